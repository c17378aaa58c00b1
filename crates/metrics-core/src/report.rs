//! The report as data: every figure, ready to be rendered.
//!
//! Figures follow the order in which serving is read: latency, throughput, resources, diagnosis.
//! A renderer takes them as they are and computes nothing. What the input cannot give is `None`.

use std::cell::OnceCell;

use crate::concurrency::{InFlight, in_flight};
use crate::error::{Error, Result, above};
use crate::goodput::slo_attainment;
use crate::interval::{Confidence, Correlation, Interval, NoInterval, Series, proportion};
use crate::latency::RequestMetrics;
use crate::measured::Measured;
use crate::sketch::RELATIVE_ERROR;
use crate::slo::{Judgement, Latency, Limit, Slo, SloSet};
use crate::summary::{PercentileMethod, Ranked, Summary, percentiles_of};
use crate::table::{Observed, Request, RequestTable, Selection};
use crate::tally::{SloCounts, Tally, Tokens};
use crate::throughput::{request_throughput, token_throughput};
use crate::timeline::{GapKind, Outcome, RequestTimeline};
use crate::units::{Requests, RequestsPerSecond, Seconds, TokensPerSecond, Unit};
use crate::validity::evidence::{self, Latencies, Spread};

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

/// What a report of a table is asked for: [`Input`] without the requests.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    /// The tool's own wall clock of the run, if known; else the span of the requests is taken.
    pub window: Option<Window>,
    /// Whether the run was stopped while requests were left.
    pub truncated: bool,
    /// The objectives.
    pub slo: &'a SloSet,
    /// How percentiles are taken.
    pub method: PercentileMethod,
    /// The confidence of the intervals.
    pub confidence: Confidence,
}

impl<'a> From<&Input<'a>> for Settings<'a> {
    fn from(input: &Input<'a>) -> Self {
        Self {
            window: input.window.clone(),
            truncated: input.truncated,
            slo: input.slo,
            method: input.method,
            confidence: input.confidence,
        }
    }
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
    /// What is different if the figures come from sketches.
    pub sketched: Option<Sketched>,
    /// The latencies as the verdict reads them; none where the figures come from sketches.
    pub latencies: Option<Latencies>,
    /// The part of the run that is measured, if some of it is left out.
    pub measured: Option<Measured>,
}

/// What is different in a report from sketches: no intervals of latencies, no peak in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sketched {
    /// Bound on the relative error of percentiles and lengths; counts, means, largest and smallest
    /// are exact.
    pub relative_error: f64,
    /// Mean number in flight by Little's law: the stays divided by the window.
    pub in_flight_mean: Option<Requests>,
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

/// The name for reading of the [`Distribution`] with that name in files and keys.
#[must_use]
pub fn distribution_title(name: &str) -> &str {
    match name {
        "ttft" => "TTFT",
        "tpot" => "TPOT",
        "itl" => "ITL",
        "inter_chunk_gap" => "chunk gap",
        "e2e" => "E2E",
        "queue_time" => "queue wait",
        "send_delay" => "sent late",
        other => other,
    }
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
    /// Interval of the attainment, which knows the run's correlation unless `too_narrow`. None of a
    /// run that is known to be worth too few independent requests.
    pub attainment_interval: Option<Interval>,
    /// Why there is no interval, or why it is that of independent requests although nothing shows
    /// that these are: it may be too narrow.
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
    /// Whether at least the share `target` of all requests meets a limit, from the interval of that
    /// share and whether one request is known to miss it.
    ///
    /// 0 is always met. One miss disproves 1, and nothing finite proves it.
    #[must_use]
    pub fn of_share(target: f64, one_missed: bool, interval: Option<&Interval>) -> Self {
        let (low, high) = interval.map_or((None, None), |i| (i.low, i.high));
        match (low, high) {
            _ if target <= 0.0 => Self::Holds,
            _ if 1.0 <= target && one_missed => Self::Missed,
            (Some(low), _) if target <= low => Self::Holds,
            (_, Some(high)) if high < target => Self::Missed,
            _ => Self::Indeterminate,
        }
    }

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
        Self::of_table(&RequestTable::of(input.timelines), &Settings::from(input))
    }

    /// The same figures from a table, bit for bit.
    ///
    /// # Errors
    ///
    /// As [`Report::new`].
    pub fn of_table(table: &RequestTable, settings: &Settings<'_>) -> Result<Self> {
        if table.is_empty() {
            return Err(Error::Empty { input: "the run", item: "request" });
        }
        let completed = table.select(|o| o == Outcome::Completed);
        let outcomes = Outcome::ALL.into_iter().zip(table.ended()).collect();
        let window =
            if settings.truncated { None } else { settings.window.clone().or_else(|| span(table)) };
        let stays = completed.known(|t| {
            let arrival = t.arrival_s()?;
            Some((arrival, arrival + t.e2e_latency()?.get()))
        });
        let in_flight_n = stays.len() as u64;
        let in_flight = match &window {
            Some(w) if 0 < in_flight_n => Some(in_flight(stays, w.length)?),
            _ => None,
        };
        let mut asked = Asked::new(table, &completed, settings);
        let latency = latency(&mut asked);
        let of = |l| asked.found(l).map_or(Spread::default(), |found| found.spread);
        let (throughput, output) = Throughput::with_lengths(&completed, window.as_ref())?;
        Ok(Self {
            latencies: Some(Latencies {
                ttft: of(Latency::Ttft),
                tpot: of(Latency::Tpot),
                e2e: of(Latency::E2e),
                output,
            }),
            latency,
            throughput,
            goodput: if settings.slo.is_empty() || settings.truncated {
                None
            } else {
                Some(Goodput::new(&asked, window.as_ref())?)
            },
            outcomes,
            window,
            in_flight,
            in_flight_n,
            sketched: None,
            measured: None,
        })
    }

    /// The same report with a row for the gaps between tokens, `itl`, which stand for those of all
    /// requests, completed or not. It has no intervals.
    #[must_use]
    pub fn with_itl(mut self, gaps: &impl Ranked, settings: &Settings<'_>) -> Self {
        let (Some(max), Some(mean)) = (gaps.max(), gaps.mean()) else { return self };
        let figure = |p, value| Figure { p, value, interval: Err(NoInterval::Counted) };
        let values = percentiles_of(gaps, &PERCENTILES, settings.method);
        let percentiles = PERCENTILES.into_iter().zip(values);
        let row = Distribution {
            name: "itl",
            unit: Unit::SECOND,
            figures: Some(Figures {
                n: gaps.n(),
                percentiles: percentiles.map(|(p, value)| figure(Some(p), value)).collect(),
                max,
                mean: figure(None, mean),
            }),
            one_token_left_out: 0,
            unknown_left_out: 0,
        };
        let place = self.latency.iter().position(|d| d.name == Latency::E2e.name());
        self.latency.insert(place.unwrap_or(self.latency.len()), row);
        self
    }

    /// The figures of a tally: counts, sums and shares as in [`Report::of_table`], percentiles
    /// within the error of a sketch, and neither a peak in flight nor intervals of latencies.
    ///
    /// # Errors
    ///
    /// As [`Report::new`]; [`Error::Contradiction`] if other objectives are asked for than the
    /// tally was counted under.
    pub fn of_tally(tally: &Tally, settings: &Settings<'_>) -> Result<Self> {
        if tally.requests() == 0 {
            return Err(Error::Empty { input: "the run", item: "request" });
        }
        if tally.slo() != settings.slo {
            let what = format!(
                "requests were counted under `{}`, so `{}` cannot be answered",
                tally.slo(),
                settings.slo
            );
            return Err(Error::Contradiction { what });
        }
        let span = || tally.span().map(|length| Window { length, basis: SPAN.to_owned() });
        let window = settings.window.clone().or_else(span).filter(|_| !settings.truncated);
        let in_flight_mean = match &window {
            Some(w) if 0 < tally.stays_n => {
                let t_total = above("t_total", w.length.get(), 0.0)?;
                Some(Requests::new(tally.stays.value() / t_total)?)
            }
            _ => None,
        };
        let goodput = if settings.slo.is_empty() || settings.truncated {
            None
        } else {
            Some(Goodput::of_tally(tally, settings, window.as_ref())?)
        };
        Ok(Self {
            latency: tally.latency(settings)?,
            throughput: Throughput::of_tally(tally, window.as_ref())?,
            goodput,
            outcomes: tally.outcomes(),
            window,
            in_flight: None,
            in_flight_n: tally.stays_n,
            sketched: Some(Sketched { relative_error: RELATIVE_ERROR, in_flight_mean }),
            latencies: None,
            measured: None,
        })
    }

    /// The mean number in flight, whichever way it was found.
    #[must_use]
    pub fn in_flight_mean(&self) -> Option<Requests> {
        self.in_flight.map(|n| n.mean).or(self.sketched.and_then(|s| s.in_flight_mean))
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

/// The basis of a window that no tool states.
const SPAN: &str = "first arrival to last token";

/// First arrival to last token, if any completed request has both.
pub(crate) fn span(table: &RequestTable) -> Option<Window> {
    let start = table.requests().filter_map(|t| t.arrival_s()).min_by(f64::total_cmp)?;
    let end = table
        .requests()
        .filter_map(|t| Some(t.arrival_s()? + t.e2e_latency()?.get()))
        .max_by(f64::total_cmp)?;
    let length = Seconds::new(end - start).ok().filter(|l| 0.0 < l.get())?;
    Some(Window { length, basis: SPAN.to_owned() })
}

/// The requests of a run, what is asked of them, and what the latency layer finds out on its way
/// that the goodput layer needs, so that no latency is sorted twice or kept.
struct Asked<'a> {
    table: &'a RequestTable,
    completed: &'a Selection<'a>,
    /// Completed requests and misses, once a target asks for them.
    finished: OnceCell<Selection<'a>>,
    settings: &'a Settings<'a>,
    /// Of each latency in the order of [`Latency::ALL`].
    found: [Found; Latency::ALL.len()],
}

/// What is known of one latency over the completed requests.
#[derive(Default)]
struct Found {
    /// The correlation of the run in it; `None` if no request has it.
    correlation: Option<Correlation>,
    /// How many requests that rests on.
    known: usize,
    /// The percentiles that targets ask for.
    percentiles: Vec<(f64, Percentile)>,
    /// Its figures as the verdict reads them.
    spread: Spread,
}

/// A percentile as a target needs it.
type Percentile = (Option<f64>, std::result::Result<Interval, String>);

impl<'a> Asked<'a> {
    fn new(
        table: &'a RequestTable,
        completed: &'a Selection<'a>,
        settings: &'a Settings<'a>,
    ) -> Self {
        let (finished, found) = (OnceCell::new(), Default::default());
        Self { table, completed, finished, settings, found }
    }

    fn finished(&self) -> &Selection<'a> {
        let in_it = |o: Outcome| o == Outcome::Completed || o.is_miss();
        self.finished.get_or_init(|| self.table.select(in_it))
    }

    fn misses(&self) -> u64 {
        (self.finished().len() - self.completed.len()) as u64
    }

    /// The figures of a latency; notes what the objectives will need of it.
    fn figures(&mut self, latency: Latency, values: Vec<f64>) -> Option<Figures> {
        let known = values.len();
        let settings = self.settings;
        let series = Series::new(values);
        let percentiles = settings.slo.items().iter().filter_map(|s| match s {
            Slo::Percentile { p, limit } if limit.latency == latency => Some(*p),
            _ => None,
        });
        let percentiles = percentiles
            .map(|p| match &series {
                Ok(s) => {
                    let interval = s.run().percentile(p, settings.confidence);
                    let observed = s.summary().percentile_by(p, settings.method).ok();
                    (p, (observed, interval.map_err(|e| e.to_string())))
                }
                Err(e) => (p, (None, Err(e.to_string()))),
            })
            .collect();
        let correlation = series.as_ref().ok().map(Series::correlation);
        if let Some(found) = self.found.get_mut(latency as usize) {
            let spread = series.as_ref().map(Spread::of_series).unwrap_or_default();
            *found = Found { correlation, known, percentiles, spread };
        }
        figures(&series.ok()?, settings)
    }

    fn found(&self, latency: Latency) -> Option<&Found> {
        self.found.get(latency as usize)
    }

    /// The correlation of the finished requests in a latency; `None` if one of them has none.
    fn correlation(&self, latency: Latency) -> Result<Option<Correlation>> {
        let found = self.found(latency).filter(|f| f.known == self.finished().len());
        if let Some(found) = found {
            return Ok(found.correlation);
        }
        let values: Option<Vec<f64>> = self.finished().all_known(|t| latency.of(&t));
        values.map(|v| Ok(Series::new(v)?.correlation())).transpose()
    }
}

/// The latency layer: TTFT, TPOT, gaps, E2E.
fn latency(asked: &mut Asked<'_>) -> Vec<Distribution> {
    let (completed, settings) = (asked.completed, asked.settings);
    let row = |name, unit, n: usize, figures: Option<Figures>, one_token_left_out: usize| {
        let known = n + one_token_left_out;
        Distribution {
            name,
            unit,
            unknown_left_out: completed.len().saturating_sub(known) as u64,
            one_token_left_out: one_token_left_out as u64,
            figures,
        }
    };
    let mut of = |latency: Latency, unit: Unit| {
        let mut one_token = 0;
        let mut with_gaps = |m: &RequestMetrics| {
            one_token += usize::from(!m.has_gaps());
            m.has_gaps()
        };
        let values: Vec<f64> = match latency {
            Latency::Tpot => {
                completed.known(|t| t.metrics().filter(&mut with_gaps).map(|m| m.tpot.get()))
            }
            Latency::Ttft => completed.known(|t| t.ttft().map(Seconds::get)),
            Latency::E2e => completed.known(|t| t.e2e_latency().map(Seconds::get)),
        };
        let n = values.len();
        row(latency.name(), unit, n, asked.figures(latency, values), one_token)
    };
    let mut rows =
        vec![of(Latency::Ttft, Unit::SECOND), of(Latency::Tpot, Unit::SECOND.per(Unit::TOKEN))];
    let e2e = of(Latency::E2e, Unit::SECOND);
    for (name, kind) in [("itl", GapKind::Token), ("inter_chunk_gap", GapKind::Chunk)] {
        let gaps = completed.iter().filter_map(|t| t.gaps()).filter(|(k, _)| *k == kind);
        let values: Vec<f64> = gaps.flat_map(|(_, gaps)| gaps).copied().collect();
        if !values.is_empty() {
            rows.push(Distribution {
                name,
                unit: Unit::SECOND,
                figures: Series::new(values).ok().and_then(|s| figures(&s, settings)),
                one_token_left_out: 0,
                unknown_left_out: 0,
            });
        }
    }
    rows.push(e2e);
    for (name, values) in [
        ("queue_time", waits(completed, Request::queue_time)),
        ("send_delay", waits(completed, Request::send_delay)),
    ] {
        if !values.is_empty() {
            let n = values.len();
            let figures = Series::new(values).ok().and_then(|s| figures(&s, settings));
            rows.push(row(name, Unit::SECOND, n, figures, 0));
        }
    }
    rows
}

fn waits<'a>(requests: &Selection<'a>, of: impl Fn(&Request<'a>) -> Option<Seconds>) -> Vec<f64> {
    requests.known(|t| of(&t).map(Seconds::get))
}

fn figures(series: &Series, settings: &Settings<'_>) -> Option<Figures> {
    let (summary, run) = (series.summary(), series.run());
    let percentiles: Result<Vec<Figure>> = PERCENTILES
        .iter()
        .map(|&p| {
            Ok(Figure {
                p: Some(p),
                value: summary.percentile_by(p, settings.method)?,
                interval: run.percentile(p, settings.confidence),
            })
        })
        .collect();
    Some(Figures {
        n: summary.n(),
        percentiles: percentiles.ok()?,
        max: summary.max(),
        mean: Figure { p: None, value: summary.mean(), interval: run.mean(settings.confidence) },
    })
}

impl Throughput {
    pub(crate) fn new(completed: &Selection<'_>, window: Option<&Window>) -> Result<Self> {
        Self::with_lengths(completed, window).map(|(throughput, _)| throughput)
    }

    /// And the output lengths as the verdict reads them, where it reads all of them.
    fn with_lengths(
        completed: &Selection<'_>,
        window: Option<&Window>,
    ) -> Result<(Self, Option<evidence::Lengths>)> {
        let counts = |counts: Option<Vec<u64>>| {
            let Some(counts) = counts else { return Ok((None, None)) };
            let sum = total(&counts)?;
            Ok((Some(sum), Summary::new(counts.into_iter().map(|n| n as f64).collect()).ok()))
        };
        let (output_sum, output) = counts(completed.all_known(|t| t.output_tokens()))?;
        let answers = output.as_ref().and_then(|s| evidence::Lengths::of_summary(s, output_sum));
        let output = output.as_ref().and_then(lengths);
        let (input_sum, input) = counts(completed.all_known(|t| t.input_tokens()))?;
        let input = input.as_ref().and_then(lengths);
        let n = completed.len() as u64;
        Ok((Self::of(n, (output_sum, input_sum), (output, input), window)?, answers))
    }

    fn of_tally(tally: &Tally, window: Option<&Window>) -> Result<Self> {
        let n = tally.objectives().completed;
        // As with requests in memory, a sum over some of them is no sum.
        let whole = |t: &Tokens| (t.lengths.n() == n).then_some(t.sum);
        let lengths = |t: &Tokens| {
            let lengths = Some(&t.lengths).filter(|l| l.n() == n)?;
            let at = |p| lengths.percentile_by(p, PercentileMethod::NearestRank).ok()?;
            Some(Lengths {
                percentiles: PERCENTILES.into_iter().map(at).collect::<Option<Vec<f64>>>()?,
                min: lengths.min()?,
                max: lengths.max()?,
                mean: lengths.mean()?,
            })
        };
        let (output, input) = (&tally.output, &tally.input);
        Self::of(n, (whole(output), whole(input)), (lengths(output), lengths(input)), window)
    }

    /// From sums and lengths of output and input tokens.
    fn of(
        n: u64,
        (output_tokens, input_tokens): (Option<u64>, Option<u64>),
        (output_length, input_length): (Option<Lengths>, Option<Lengths>),
        window: Option<&Window>,
    ) -> Result<Self> {
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
            output_length,
            input_length,
        })
    }
}

/// The sum of token counts; an error if it passes what `u64` holds.
fn total(counts: &[u64]) -> Result<u64> {
    counts.iter().try_fold(0_u64, |sum, &n| sum.checked_add(n)).ok_or_else(|| Error::TooLarge {
        input: "the sum of the token counts",
        max: u64::MAX as f64,
        value: counts.iter().map(|&n| n as f64).sum(),
    })
}

fn lengths(summary: &Summary) -> Option<Lengths> {
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

    fn new(asked: &Asked<'_>, window: Option<&Window>) -> Result<Self> {
        let slo = asked.settings.slo;
        let mut counts = SloCounts::new(slo);
        for t in asked.finished().iter() {
            counts.push(slo, &t)?;
        }
        let latencies: Vec<Latency> = slo.limits().map(|l| l.latency).collect();
        let interval = share_interval(asked, &latencies, |t| slo.judge(&t) == Judgement::Good);
        let targets = slo.items().iter().filter_map(|s| target(s, asked)).collect();
        Self::of(&counts, asked.settings, window, interval, targets)
    }

    fn of_tally(tally: &Tally, settings: &Settings<'_>, window: Option<&Window>) -> Result<Self> {
        let c = tally.objectives();
        let limits = settings.slo.items().iter().scan(0, |next, slo| {
            let at = slo.per_request().map(|_| {
                *next += 1;
                *next - 1
            });
            Some((slo, at))
        });
        let targets = limits.filter_map(|(slo, at)| {
            let unknown = tally.lack(slo.limit().latency);
            let (observed, answer) = match slo {
                Slo::PerRequest(_) => return None,
                Slo::Attainment { target, .. } => {
                    let (met, known) = at.and_then(|i| c.limits.get(i)).copied()?;
                    let share = slo_attainment(met, c.completed, c.misses).ok();
                    let one_missed = 0 < c.misses || met < known;
                    (share.filter(|_| unknown == 0), Answer::of_share(*target, one_missed, None))
                }
                Slo::Percentile { .. } => (tally.percentile(slo, settings), Answer::Indeterminate),
            };
            let interval = Err(NoInterval::Sketched.to_string());
            Some(Target { slo: *slo, observed, interval, answer })
        });
        Self::of(c, settings, window, Err(NoInterval::Sketched), targets.collect())
    }

    /// From counts, the interval of the attainment, and the targets.
    fn of(
        counts: &SloCounts,
        settings: &Settings<'_>,
        window: Option<&Window>,
        interval: std::result::Result<Interval, NoInterval>,
        targets: Vec<Target>,
    ) -> Result<Self> {
        let slo = settings.slo;
        let &SloCounts { completed, misses, good, unknown, .. } = counts;
        let finished = completed + misses;
        let good_tokens = (counts.good_tokens_known == good).then_some(counts.good_tokens);
        // A share over requests that cannot be judged would count the unknown as misses, and
        // without a limit on single requests there is nothing to judge them by.
        let judged = unknown == 0 && slo.limits().next().is_some();
        let attainment = if judged { slo_attainment(good, completed, misses).ok() } else { None };
        let limits = slo.limits().zip(&counts.limits);
        let marginals: Vec<Marginal> = limits
            .map(|(&limit, &(met, known))| {
                let share = slo_attainment(met, completed, misses).ok();
                Marginal { limit, met, share: share.filter(|_| known == completed) }
            })
            .collect();
        let least = marginals.iter().map(|m| m.met).min().filter(|&met| met < completed);
        let at_least: Vec<usize> = (0..marginals.len())
            .filter(|&i| marginals.get(i).is_some_and(|m| Some(m.met) == least))
            .collect();
        let binding = match at_least.as_slice() {
            &[i] if marginals.iter().all(|m| m.share.is_some()) => Some(i),
            _ => None,
        };
        let (attainment_interval, too_narrow) = match interval {
            _ if attainment.is_none() => (None, None),
            Ok(interval) => (Some(interval), None),
            // Neighbours that are known to be alike make the interval of a count far too narrow.
            Err(why @ (NoInterval::TooShort { .. } | NoInterval::BlocksCorrelated { .. })) => {
                (None, Some(why))
            }
            // Where that cannot be told there is still the count, and for the reader the warning.
            Err(why) => (proportion(good, finished, settings.confidence).ok(), Some(why)),
        };
        Ok(Self {
            slo: slo.clone(),
            good,
            good_one_token: counts.good_one_token,
            unknown,
            rate: match window {
                Some(w) if judged => Some(request_throughput(good, w.length)?),
                _ => None,
            },
            tokens: match (good_tokens, window) {
                (Some(n), Some(w)) if judged => Some(token_throughput(n, w.length)?),
                _ => None,
            },
            ratio: (judged && 0 < completed).then(|| good as f64 / completed as f64),
            completed,
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
/// latencies behind it do: without failures, and where all missed, the widest interval over those
/// latencies is taken.
fn share_interval(
    asked: &Asked<'_>,
    latencies: &[Latency],
    met: impl Fn(Request<'_>) -> bool,
) -> std::result::Result<Interval, NoInterval> {
    let confidence = asked.settings.confidence;
    let met: Vec<bool> = asked.finished().iter().map(met).collect();
    let mut widest = Correlation::of_flags(&met)?.proportion(&met, confidence)?;
    for &latency in latencies {
        let interval = match asked.correlation(latency)? {
            Some(correlation) => correlation.proportion(&met, confidence)?,
            // A failed request has no latency. Where outcomes differ they show the correlation
            // themselves; where all missed, only the latencies of the others can.
            None if met.iter().any(|&m| m) => continue,
            None => match asked.found(latency).and_then(|f| f.correlation) {
                Some(correlation) => correlation.proportion(&met, confidence)?,
                None => continue,
            },
        };
        if widest.width() < interval.width() {
            widest = interval;
        }
    }
    Ok(widest)
}

/// What the run says of a target; `None` for a limit that has none.
fn target(slo: &Slo, asked: &Asked<'_>) -> Option<Target> {
    let limit = slo.limit();
    let completed = asked.completed;
    let known = completed.iter().filter(|t| limit.latency.of(t).is_some()).count();
    let unknown = completed.len() - known;
    let lacking = || Err(format!("{unknown} completed requests have no {}", limit.latency.name()));
    let meets = |t: &Request<'_>| limit.latency.of(t).is_some_and(|v| limit.is_met_by(v));
    match slo {
        Slo::PerRequest(_) => None,
        Slo::Attainment { target, .. } => {
            let met = completed.iter().filter(meets).count() as u64;
            let interval = if unknown == 0 {
                share_interval(asked, &[limit.latency], |t| {
                    t.outcome() == Outcome::Completed && meets(&t)
                })
                .map_err(|e| e.to_string())
            } else {
                lacking()
            };
            let observed = slo_attainment(met, completed.len() as u64, asked.misses()).ok();
            let observed = observed.filter(|_| unknown == 0);
            let one_missed = 0 < asked.misses() || met < known as u64;
            let answer = Answer::of_share(*target, one_missed, interval.as_ref().ok());
            Some(Target { slo: *slo, observed, interval, answer })
        }
        Slo::Percentile { p, .. } => {
            let found = asked.found(limit.latency)?;
            let (_, (observed, interval)) = found.percentiles.iter().find(|(q, _)| q == p)?;
            let (observed, interval) = (*observed, interval.clone());
            let interval = if unknown == 0 || observed.is_none() { interval } else { lacking() };
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
