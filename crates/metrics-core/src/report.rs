//! The report as data: every figure, ready to be rendered.
//!
//! Figures follow the order in which serving is read: latency, throughput, resources, diagnosis.
//! A renderer takes them as they are and computes nothing. What the input cannot give is `None`.

use crate::concurrency::{InFlight, in_flight};
use crate::error::{Error, Result};
use crate::goodput::slo_attainment;
use crate::interval::{Confidence, Interval, NoInterval, proportion};
use crate::latency::RequestMetrics;
use crate::slo::{Judgement, Latency, Limit, Slo, SloSet};
use crate::summary::{PercentileMethod, Summary};
use crate::throughput::{request_throughput, token_throughput};
use crate::timeline::{Gaps, Outcome, RequestTimeline};
use crate::units::{Quantity, RequestsPerSecond, Seconds, TokensPerSecond, Unit};

/// The percentiles that a report shows, as shares.
pub const PERCENTILES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

/// The window over which rates are taken, and where its length comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Its length.
    pub length: Seconds,
    /// Where the length comes from, in words.
    pub basis: String,
}

/// What a report is made of.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The requests, in order of arrival where that is known.
    pub timelines: &'a [RequestTimeline],
    /// The tool's own wall clock of the run, if known; else the span of the requests is taken.
    pub window: Option<Window>,
    /// Whether the run was stopped while requests were left: it then has no rates, since those
    /// that had ended by then are the short ones.
    pub truncated: bool,
    /// The objectives; goodput is computed if there is one.
    pub slo: &'a SloSet,
    /// How percentiles are taken.
    pub method: PercentileMethod,
    /// The confidence of the intervals.
    pub confidence: Confidence,
}

/// Every figure of one run, in the four layers.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many requests ended how, in the order of [`Outcome::ALL`].
    pub outcomes: Vec<(Outcome, u64)>,
    /// The window of the rates, if one is known.
    pub window: Option<Window>,
    /// Latency: one row a metric.
    pub latency: Vec<Distribution>,
    /// Throughput and what it has to be read beside.
    pub throughput: Throughput,
    /// Goodput, if there are objectives and the run is not truncated.
    pub goodput: Option<Goodput>,
    /// Requests in flight, if their intervals are known.
    pub in_flight: Option<InFlight>,
    /// How many completed requests the in-flight figures rest on.
    pub in_flight_n: u64,
}

/// The distribution of one metric over requests or over gaps.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Its name in files and keys: `ttft`, `tpot`, `itl`, `inter_chunk_gap`, `e2e`, `queue_time`
    /// (arrival to first scheduled), `send_delay` (arrival to sent).
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The samples; `None` if there are none.
    pub figures: Option<Figures>,
    /// How many completed requests are left out because they have one token and so no gap.
    pub one_token_left_out: u64,
    /// How many completed requests are left out because the file does not have the latency.
    pub unknown_left_out: u64,
}

/// The figures of a distribution.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Number of samples.
    pub n: u64,
    /// Percentiles in the order of [`PERCENTILES`].
    pub percentiles: Vec<Figure>,
    /// Largest sample.
    pub max: f64,
    /// Mean.
    pub mean: Figure,
}

/// One figure and how sure it is.
#[derive(Clone, Debug)]
pub struct Figure {
    /// For a percentile its share, else `None`.
    pub p: Option<f64>,
    /// The value in the unit of its distribution.
    pub value: f64,
    /// Its confidence interval, or why there is none.
    pub interval: std::result::Result<Interval, NoInterval>,
}

/// Rates of requests and tokens.
#[derive(Clone, Debug)]
pub struct Throughput {
    /// Completed requests.
    pub completed: u64,
    /// Completed requests per second.
    pub requests: Option<RequestsPerSecond>,
    /// Output tokens of completed requests, where all of them are known.
    pub output_tokens: Option<u64>,
    /// Output tokens per second.
    pub output: Option<TokensPerSecond>,
    /// Input tokens of completed requests, where all of them are known.
    pub input_tokens: Option<u64>,
    /// Input and output tokens per second together: what tools call total throughput.
    pub total: Option<TokensPerSecond>,
    /// Output lengths of completed requests, to be read beside the request rate.
    pub output_length: Option<Lengths>,
    /// Input lengths of completed requests.
    pub input_length: Option<Lengths>,
}

/// Token counts as quantiles.
#[derive(Clone, Debug)]
pub struct Lengths {
    /// Percentiles in the order of [`PERCENTILES`].
    pub percentiles: Vec<f64>,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

/// Goodput and the two ratios, each with its base.
#[derive(Clone, Debug)]
pub struct Goodput {
    /// The objectives that it stands under.
    pub slo: SloSet,
    /// Good requests: completed, every limit met.
    pub good: u64,
    /// How many of them have one token, whose TPOT of 0 meets every limit on it.
    pub good_one_token: u64,
    /// Completed requests that cannot be judged because the file lacks a latency.
    pub unknown: u64,
    /// Good requests per second.
    pub rate: Option<RequestsPerSecond>,
    /// Output tokens of good requests per second, where all counts are known.
    pub tokens: Option<TokensPerSecond>,
    /// Good of completed requests; none without a completed request.
    pub ratio: Option<f64>,
    /// Base of the ratio.
    pub completed: u64,
    /// Good of finished requests, failed ones counted as misses.
    pub attainment: Option<f64>,
    /// Interval of the attainment, which knows the run's correlation unless `too_narrow`.
    pub attainment_interval: Option<Interval>,
    /// Why the interval is that of independent requests although these are not: it is too narrow.
    pub too_narrow: Option<NoInterval>,
    /// Base of the attainment: completed and failed, rejected or timed out.
    pub finished: u64,
    /// Each limit alone.
    pub marginals: Vec<Marginal>,
    /// Index in `marginals` of the limit that fewest completed requests meet; none if all meet it,
    /// if a latency is unknown, or if two are alike.
    pub binding: Option<usize>,
    /// Targets on attainment and percentiles, and whether they hold.
    pub targets: Vec<Target>,
}

/// How many requests meet one limit alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Marginal {
    /// The limit.
    pub limit: Limit,
    /// Completed requests that meet it.
    pub met: u64,
    /// Share of the finished requests.
    pub share: Option<f64>,
}

/// One target and what the run says of it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The target.
    pub slo: Slo,
    /// The attainment or percentile that was observed.
    pub observed: Option<f64>,
    /// Its interval, or why there is none.
    pub interval: std::result::Result<Interval, String>,
    /// The answer.
    pub answer: Answer,
}

/// Whether a target holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The whole interval is on the good side.
    Holds,
    /// The whole interval is on the bad side.
    Missed,
    /// The interval straddles the target, or there is none.
    Indeterminate,
}

impl Answer {
    /// The answer in a word, as reports and files say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Missed => "missed",
            Self::Indeterminate => "indeterminate",
        }
    }
}

impl Report {
    /// Computes every figure of a run.
    ///
    /// # Errors
    ///
    /// [`Error::NotAbove`] if the window has length zero; [`Error::Empty`] without any request.
    pub fn new(input: &Input<'_>) -> Result<Self> {
        if input.timelines.is_empty() {
            return Err(Error::Empty { input: "the run", item: "request" });
        }
        let mut completed: Vec<&RequestTimeline> =
            input.timelines.iter().filter(|t| t.outcome() == Outcome::Completed).collect();
        sort_by_arrival(&mut completed);
        let outcomes: Vec<(Outcome, u64)> = Outcome::ALL
            .iter()
            .map(|&o| (o, input.timelines.iter().filter(|t| t.outcome() == o).count() as u64))
            .collect();
        let window = if input.truncated {
            None
        } else {
            input.window.clone().or_else(|| span(input.timelines))
        };
        let intervals: Vec<(f64, f64)> = completed
            .iter()
            .filter_map(|t| Some((t.arrival_s()?, t.arrival_s()? + t.e2e_latency()?.get())))
            .collect();
        let in_flight_n = intervals.len() as u64;
        let in_flight = match &window {
            Some(w) if !intervals.is_empty() => Some(in_flight(&intervals, w.length)?),
            _ => None,
        };
        Ok(Self {
            latency: latency(&completed, input),
            throughput: Throughput::new(&completed, window.as_ref())?,
            goodput: if input.slo.is_empty() || input.truncated {
                None
            } else {
                Some(Goodput::new(input, &completed, window.as_ref())?)
            },
            outcomes,
            window,
            in_flight,
            in_flight_n,
        })
    }

    /// How many requests there are.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.outcomes.iter().map(|(_, n)| n).sum()
    }

    /// How many requests ended so.
    #[must_use]
    pub fn ended(&self, outcome: Outcome) -> u64 {
        self.outcomes.iter().filter(|(o, _)| *o == outcome).map(|(_, n)| n).sum()
    }
}

/// Puts requests in order of arrival, which the block intervals need since neighbours in time are
/// alike; where an arrival is unknown the order of the file stays.
fn sort_by_arrival(requests: &mut [&RequestTimeline]) {
    let arrival = |t: &RequestTimeline| t.arrival_s();
    if requests.iter().all(|t| arrival(t).is_some()) {
        let key = |t: &RequestTimeline| arrival(t).unwrap_or(0.0);
        requests.sort_by(|a, b| key(a).total_cmp(&key(b)));
    }
}

/// First arrival to last token, if any completed request has both.
fn span(timelines: &[RequestTimeline]) -> Option<Window> {
    let start = timelines.iter().filter_map(RequestTimeline::arrival_s).min_by(f64::total_cmp)?;
    let end = timelines
        .iter()
        .filter_map(|t| Some(t.arrival_s()? + t.e2e_latency()?.get()))
        .max_by(f64::total_cmp)?;
    let length = Seconds::new(end - start).ok().filter(|l| 0.0 < l.get())?;
    Some(Window { length, basis: "first arrival to last token".to_owned() })
}

/// The latency layer: TTFT, TPOT, gaps, E2E.
fn latency(completed: &[&RequestTimeline], input: &Input<'_>) -> Vec<Distribution> {
    let row = |name, unit, values: Vec<f64>, one_token_left_out: usize| {
        let known = values.len() + one_token_left_out;
        Distribution {
            name,
            unit,
            unknown_left_out: completed.len().saturating_sub(known) as u64,
            one_token_left_out: one_token_left_out as u64,
            figures: figures(values, input),
        }
    };
    let metrics: Vec<RequestMetrics> = completed.iter().filter_map(|t| t.metrics()).collect();
    let with_gaps: Vec<f64> =
        metrics.iter().filter(|m| m.has_gaps()).map(|m| m.tpot.get()).collect();
    let one_token = metrics.len() - with_gaps.len();
    let of = |l: Latency| completed.iter().filter_map(|t| l.of(t)).collect::<Vec<f64>>();
    let mut rows = vec![
        row(Latency::Ttft.name(), Unit::SECOND, of(Latency::Ttft), 0),
        row(Latency::Tpot.name(), Unit::SECOND.per(Unit::TOKEN), with_gaps, one_token),
    ];
    for (name, per_token) in [("itl", true), ("inter_chunk_gap", false)] {
        let values: Vec<f64> = completed
            .iter()
            .filter_map(|t| t.gaps())
            .filter(|g| matches!(g, Gaps::Token(_)) == per_token)
            .flat_map(|g| g.values().iter().map(|s| s.get()))
            .collect();
        if !values.is_empty() {
            rows.push(Distribution {
                name,
                unit: Unit::SECOND,
                figures: figures(values, input),
                one_token_left_out: 0,
                unknown_left_out: 0,
            });
        }
    }
    rows.push(row(Latency::E2e.name(), Unit::SECOND, of(Latency::E2e), 0));
    let waits = |of: fn(&RequestTimeline) -> Option<Seconds>| {
        completed.iter().filter_map(|t| of(t)).map(Seconds::get).collect::<Vec<f64>>()
    };
    for (name, values) in [
        ("queue_time", waits(RequestTimeline::queue_time)),
        ("send_delay", waits(RequestTimeline::send_delay)),
    ] {
        if !values.is_empty() {
            rows.push(row(name, Unit::SECOND, values, 0));
        }
    }
    rows
}

fn figures(values: Vec<f64>, input: &Input<'_>) -> Option<Figures> {
    let summary = Summary::new(values).ok()?;
    let run = summary.run();
    let percentiles: Result<Vec<Figure>> = PERCENTILES
        .iter()
        .map(|&p| {
            Ok(Figure {
                p: Some(p),
                value: summary.percentile_by(p, input.method)?,
                interval: run.percentile(p, input.confidence),
            })
        })
        .collect();
    Some(Figures {
        n: summary.n(),
        percentiles: percentiles.ok()?,
        max: summary.max(),
        mean: Figure { p: None, value: summary.mean(), interval: run.mean(input.confidence) },
    })
}

impl Throughput {
    fn new(completed: &[&RequestTimeline], window: Option<&Window>) -> Result<Self> {
        let n = completed.len() as u64;
        let output: Option<Vec<u64>> = completed.iter().map(|t| t.output_tokens()).collect();
        let input: Option<Vec<u64>> = completed.iter().map(|t| t.input_tokens()).collect();
        let output_tokens = output.as_deref().map(total).transpose()?;
        let input_tokens = input.as_deref().map(total).transpose()?;
        let per_second = |tokens: Option<u64>| match (tokens, window) {
            (Some(n), Some(w)) => token_throughput(n, w.length).map(Some),
            _ => Ok(None),
        };
        let both = match (input_tokens, output_tokens) {
            (Some(i), Some(o)) => Some(total(&[i, o])?),
            _ => None,
        };
        Ok(Self {
            completed: n,
            requests: window.map(|w| request_throughput(n, w.length)).transpose()?,
            output_tokens,
            output: per_second(output_tokens)?,
            input_tokens,
            total: per_second(both)?,
            output_length: output.as_deref().and_then(lengths),
            input_length: input.as_deref().and_then(lengths),
        })
    }
}

/// The sum of token counts; an error if it passes what `u64` holds.
fn total(counts: &[u64]) -> Result<u64> {
    counts.iter().try_fold(0_u64, |sum, &n| sum.checked_add(n)).ok_or(Error::TooLarge {
        input: "the sum of the token counts",
        max: u64::MAX as f64,
        value: counts.iter().map(|&n| n as f64).sum(),
    })
}

fn lengths(counts: &[u64]) -> Option<Lengths> {
    let summary = Summary::new(counts.iter().map(|&n| n as f64).collect()).ok()?;
    // A length is a count, so its quantiles are lengths that occur.
    let percentiles: Result<Vec<f64>> = PERCENTILES
        .iter()
        .map(|&p| summary.percentile_by(p, PercentileMethod::NearestRank))
        .collect();
    Some(Lengths {
        percentiles: percentiles.ok()?,
        min: summary.min(),
        max: summary.max(),
        mean: summary.mean(),
    })
}

impl Goodput {
    /// Whether any objective judges single requests; percentile targets alone do not.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        !self.marginals.is_empty()
    }

    fn new(
        input: &Input<'_>,
        completed: &[&RequestTimeline],
        window: Option<&Window>,
    ) -> Result<Self> {
        let slo = input.slo;
        let judged = |j: Judgement| completed.iter().filter(move |t| slo.judge(t) == j);
        let good: Vec<&&RequestTimeline> = judged(Judgement::Good).collect();
        let good_n = good.len() as u64;
        let completed_n = completed.len() as u64;
        let misses = input.timelines.iter().filter(|t| t.outcome().is_miss()).count() as u64;
        let finished = completed_n + misses;
        let unknown = judged(Judgement::Unknown).count() as u64;
        let good_tokens: Option<Vec<u64>> = good.iter().map(|t| t.output_tokens()).collect();
        let good_tokens = good_tokens.as_deref().map(total).transpose()?;
        // A share over requests that cannot be judged would count the unknown as misses, and
        // without a limit on single requests there is nothing to judge them by.
        let known = unknown == 0 && slo.limits().next().is_some();
        let attainment =
            if known { slo_attainment(good_n, completed_n, misses).ok() } else { None };
        let marginals: Vec<Marginal> = slo
            .limits()
            .map(|&limit| {
                let values: Vec<f64> =
                    completed.iter().filter_map(|t| limit.latency.of(t)).collect();
                let met = values.iter().filter(|&&v| limit.is_met_by(v)).count() as u64;
                let all_known = values.len() == completed.len();
                let share = slo_attainment(met, completed_n, misses).ok().filter(|_| all_known);
                Marginal { limit, met, share }
            })
            .collect();
        let least = marginals.iter().map(|m| m.met).min().filter(|&met| met < completed_n);
        let at_least: Vec<usize> = (0..marginals.len())
            .filter(|&i| marginals.get(i).is_some_and(|m| Some(m.met) == least))
            .collect();
        let binding = match at_least.as_slice() {
            &[i] if marginals.iter().all(|m| m.share.is_some()) => Some(i),
            _ => None,
        };
        let latencies: Vec<Latency> = slo.limits().map(|l| l.latency).collect();
        let (attainment_interval, too_narrow) =
            match share_interval(input, &latencies, |t| slo.judge(t) == Judgement::Good) {
                _ if attainment.is_none() => (None, None),
                Ok(interval) => (Some(interval), None),
                // A run too short for its correlation still has its count, and the reader the warning.
                Err(why) => (proportion(good_n, finished, input.confidence).ok(), Some(why)),
            };
        let targets =
            slo.items().iter().filter_map(|s| target(s, completed, misses, input)).collect();
        Ok(Self {
            slo: slo.clone(),
            good: good_n,
            good_one_token: good.iter().filter(|t| t.output_tokens() == Some(1)).count() as u64,
            unknown,
            rate: match window {
                Some(w) if known => Some(request_throughput(good_n, w.length)?),
                _ => None,
            },
            tokens: match (good_tokens, window) {
                (Some(n), Some(w)) if known => Some(token_throughput(n, w.length)?),
                _ => None,
            },
            ratio: (known && 0 < completed_n).then(|| good_n as f64 / completed_n as f64),
            completed: completed_n,
            attainment,
            attainment_interval,
            too_narrow,
            finished,
            marginals,
            binding,
            targets,
        })
    }
}

/// The interval of the share of finished requests that are `met`, with the run's correlation.
///
/// Whether each request is met may be the same all along and so show no correlation, where the
/// latencies behind it do: without failures the widest interval over those latencies is taken.
fn share_interval(
    input: &Input<'_>,
    latencies: &[Latency],
    met: impl Fn(&RequestTimeline) -> bool,
) -> std::result::Result<Interval, NoInterval> {
    let mut finished: Vec<&RequestTimeline> = input
        .timelines
        .iter()
        .filter(|t| t.outcome() == Outcome::Completed || t.outcome().is_miss())
        .collect();
    sort_by_arrival(&mut finished);
    let met: Vec<bool> = finished.iter().map(|t| met(t)).collect();
    let series = Summary::new(met.iter().map(|&m| f64::from(u8::from(m))).collect())?;
    let mut widest = series.run().proportion(&met, input.confidence)?;
    for latency in latencies {
        let values: Option<Vec<f64>> = finished.iter().map(|t| latency.of(t)).collect();
        // A failed request has no latency, but then the outcomes differ and show the correlation.
        let Some(values) = values else { continue };
        let interval = Summary::new(values)?.run().proportion(&met, input.confidence)?;
        if widest.width() < interval.width() {
            widest = interval;
        }
    }
    Ok(widest)
}

/// What the run says of a target; `None` for a limit that has none.
fn target(
    slo: &Slo,
    completed: &[&RequestTimeline],
    misses: u64,
    input: &Input<'_>,
) -> Option<Target> {
    let limit = slo.limit();
    let values: Vec<f64> = completed.iter().filter_map(|t| limit.latency.of(t)).collect();
    let unknown = completed.len() - values.len();
    let lacking = || Err(format!("{unknown} completed requests have no {}", limit.latency.name()));
    match slo {
        Slo::PerRequest(_) => None,
        Slo::Attainment { target, .. } => {
            let met = values.iter().filter(|&&v| limit.is_met_by(v)).count() as u64;
            let interval = if unknown == 0 {
                share_interval(input, &[limit.latency], |t| {
                    t.outcome() == Outcome::Completed
                        && limit.latency.of(t).is_some_and(|v| limit.is_met_by(v))
                })
                .map_err(|e| e.to_string())
            } else {
                lacking()
            };
            let observed =
                slo_attainment(met, completed.len() as u64, misses).ok().filter(|_| unknown == 0);
            let answer = answer(&interval, |low, high| match (low, high) {
                (Some(low), _) if *target <= low => Answer::Holds,
                (_, Some(high)) if high < *target => Answer::Missed,
                _ => Answer::Indeterminate,
            });
            Some(Target { slo: *slo, observed, interval, answer })
        }
        Slo::Percentile { p, .. } => {
            // TPOT of a one-token answer is 0 by definition and says nothing about the percentile.
            let values: Vec<f64> = if limit.latency == Latency::Tpot {
                let metrics = completed.iter().filter_map(|t| t.metrics());
                metrics.filter(RequestMetrics::has_gaps).map(|m| m.tpot.number()).collect()
            } else {
                values
            };
            let summary = Summary::new(values);
            let observed = match &summary {
                Ok(s) => s.percentile_by(*p, input.method).ok(),
                Err(_) => None,
            };
            let interval = match summary {
                Ok(s) if unknown == 0 => {
                    s.run().percentile(*p, input.confidence).map_err(|e| e.to_string())
                }
                Ok(_) => lacking(),
                Err(e) => Err(e.to_string()),
            };
            let answer = answer(&interval, |low, high| match (low, high) {
                (_, Some(high)) if limit.is_met_by(high) => Answer::Holds,
                (Some(low), _) if !limit.is_met_by(low) => Answer::Missed,
                _ => Answer::Indeterminate,
            });
            Some(Target { slo: *slo, observed, interval, answer })
        }
    }
}

fn answer(
    interval: &std::result::Result<Interval, String>,
    decide: impl Fn(Option<f64>, Option<f64>) -> Answer,
) -> Answer {
    match interval {
        Ok(i) => decide(i.low, i.high),
        Err(_) => Answer::Indeterminate,
    }
}
