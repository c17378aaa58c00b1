//! Is B better than A: the change of a figure between two runs, and how sure it is.
//!
//! A change is a ratio, so that one margin (`--no-regress 5%`) serves every figure. Three ways lead
//! to its interval:
//!
//! - **One run on each side**: from the two intervals, which know the correlation inside their
//!   runs ([`change`]). They cannot know what differs from run to run (a warm cache, a neighbour
//!   on the machine), so that the interval of the change is too narrow by that.
//! - **The same requests in both runs** (one trace or one seed on two settings): the mean of a
//!   latency from the pairs ([`change_paired`]), in which what the requests themselves differ in
//!   cancels.
//! - **Several runs on each side**: Welch's t over one figure a run ([`change_of_runs`]), which
//!   knows all of it.
//!
//! A gate does not ask whether a change differs from zero but whether it stays inside the margin:
//! [`no_regress`] holds if the whole interval does, is missed if the whole interval is beyond, and
//! is indeterminate else.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::error::{Error, Result, above};
use crate::format::plain;
use crate::interval::{Confidence, Interval, Series};
use crate::report::{Answer, Report, distribution_title};
use crate::slo::Latency;
use crate::summary::Summary;
use crate::timeline::{Outcome, RequestTimeline};
use crate::units::{Quantity, Seconds};

/// Whether two runs served the same requests: the same ids with the same token counts, all of them
/// completed in both, and something that tells these requests from others.
///
/// Readers number requests that have no id, and a constant length fits any load, so neither is
/// evidence. Ids of the requests' own are, and so are lengths of prompts and answers that both vary,
/// and prompts that the files show to be the same (`same_prompts`).
#[must_use]
pub fn same_requests(
    base: &[RequestTimeline],
    new: &[RequestTimeline],
    same_prompts: bool,
) -> bool {
    let agree = base.len() == new.len()
        && base.iter().zip(new).all(|(b, n)| {
            let key = |t: &RequestTimeline| (t.input_tokens(), t.output_tokens());
            let known = b.output_tokens().is_some();
            let completed = |t: &RequestTimeline| t.outcome() == Outcome::Completed;
            b.id() == n.id() && key(b) == key(n) && known && completed(b) && completed(n)
        });
    let vary = |of: fn(&RequestTimeline) -> Option<u64>| {
        base.windows(2).any(|w| matches!(w, [a, b] if of(a).is_some() && of(a) != of(b)))
    };
    let lengths = vary(RequestTimeline::input_tokens) && vary(RequestTimeline::output_tokens);
    agree && (same_prompts || lengths || !only_counted(base))
}

/// Whether the ids are numbers that go up by one: rows, and nothing of the requests.
fn only_counted(requests: &[RequestTimeline]) -> bool {
    let numbers: Option<Vec<u64>> = requests.iter().map(|t| t.id().parse().ok()).collect();
    numbers
        .is_some_and(|n| n.windows(2).all(|w| matches!(w, [a, b] if a.checked_add(1) == Some(*b))))
}

/// The change of the mean of a latency between two runs of the [same requests](same_requests);
/// `None` unless both have it for every request.
///
/// One-token answers have no TPOT and are left out.
#[must_use]
pub fn paired_mean(
    latency: Latency,
    base: &[RequestTimeline],
    new: &[RequestTimeline],
    confidence: Confidence,
) -> Option<Change> {
    let has = |t: &RequestTimeline| latency != Latency::Tpot || t.output_tokens() != Some(1);
    let pairs: Option<Vec<(f64, f64)>> = base
        .iter()
        .zip(new)
        .filter(|(b, _)| has(b))
        .map(|(b, n)| Some((latency.of(b)?, latency.of(n)?)))
        .collect();
    change_paired(&pairs?, confidence).ok()
}

/// Which direction of a figure is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Latencies.
    Lower,
    /// Rates and shares.
    Higher,
}

/// One figure of a run that can be compared with that of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparable {
    /// Its key, with the unit at the end: `ttft_p99_s`, `output_tokens_per_s`.
    pub key: String,
    /// Its name for reading: `TTFT p99`.
    pub title: String,
    /// What it measures, without the statistic: `ttft`, `tpot`, `throughput`.
    pub of: &'static str,
    /// Which direction is good.
    pub better: Better,
    /// Whether it is a time in seconds, a rate per second or a share.
    pub kind: Kind,
    /// Its value.
    pub value: f64,
    /// Its interval, or why there is none.
    pub interval: std::result::Result<Interval, String>,
}

/// What a figure counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Seconds, or seconds per token.
    Time,
    /// Requests or tokens per second.
    Rate,
    /// A share from 0 to 1.
    Share,
}

/// A ratio; where the base is so near 0 that it is beyond every number, there is none.
fn finite_ratio(value: f64) -> Result<f64> {
    if value.is_finite() { Ok(value) } else { Err(Error::NotFinite { input: "new / base", value }) }
}

/// A relative bound from its logarithm; open if it is beyond every number.
fn bound_of(log: f64) -> Option<f64> {
    Some(log.exp_m1()).filter(|x| x.is_finite())
}

/// How much a figure changed from a base to a new run.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The base's figure; the mean on the logarithmic scale where there are several runs.
    pub base: f64,
    /// The new figure, likewise.
    pub new: f64,
    /// `new / base − 1`: 0.05 is 5 % more.
    pub relative: f64,
    /// Lower end of the interval of `relative`, if there is one.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Why there is no interval, if there is none.
    pub none_because: Option<String>,
}

impl Change {
    /// Whether the interval leaves "no change" possible; without an interval it does.
    #[must_use]
    pub fn may_be_none(&self) -> bool {
        self.low.is_none_or(|low| low <= 0.0) && self.high.is_none_or(|high| 0.0 <= high)
    }
}

/// The change between two runs, from the intervals of both.
///
/// ```text
/// relative = new / base − 1
/// ln low  = ln(new / base) − sqrt((ln new − ln new_low)² + (ln base_high − ln base)²)
/// ln high = ln(new / base) + sqrt((ln new_high − ln new)² + (ln base − ln base_low)²)
/// ```
///
/// A bound that one of the intervals lacks is open here too. With normal errors of both logarithms
/// this is the usual interval of a difference; it also keeps the skew of order statistics.
///
/// Source: Zou and Donner, *Construction of confidence limits about effect measures: a general
/// approach*, Statistics in Medicine 27 (2008), equations 5 and 6 (MOVER).
///
/// # Errors
///
/// [`Error::NotAbove`] unless both figures are above zero: a ratio has no meaning there;
/// [`Error::NotFinite`] where the ratio is beyond every number.
///
/// # Examples
///
/// ```
/// use metrics_core::compare::change;
///
/// let c = change(0.200, None, 0.210, None)?;
/// assert!((c.relative - 0.05).abs() < 1e-12); // 210 ms after 200 ms
/// assert_eq!((c.low, c.high), (None, None));
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn change(
    base: f64,
    base_interval: Option<&Interval>,
    new: f64,
    new_interval: Option<&Interval>,
) -> Result<Change> {
    let base = above("the base's figure", base, 0.0)?;
    let new = above("the new figure", new, 0.0)?;
    let centre = (new / base).ln();
    // An interval of a latency may reach zero: its logarithm is then open below.
    let log = |x: Option<f64>| x.filter(|x| 0.0 < *x).map(f64::ln);
    let bound = |interval: Option<&Interval>, low: bool| {
        log(interval.and_then(|i| if low { i.low } else { i.high }))
    };
    let low = bound(new_interval, true)
        .zip(bound(base_interval, false))
        .map(|(n, b)| centre - (new.ln() - n).hypot(b - base.ln()));
    let high = bound(new_interval, false)
        .zip(bound(base_interval, true))
        .map(|(n, b)| centre + (n - new.ln()).hypot(base.ln() - b));
    let none_because = (low.is_none() && high.is_none()).then(|| "a side has no interval".into());
    Ok(Change {
        base,
        new,
        relative: finite_ratio(new / base)? - 1.0,
        low: low.and_then(bound_of),
        high: high.and_then(bound_of),
        none_because,
    })
}

/// The change of a mean between two runs of the same requests, from the pairs.
///
/// ```text
/// r = mean(new) / mean(base)
/// relative = r − 1,  interval r ± half(new − r · base) / mean(base) − 1
/// ```
///
/// `half` is half the width of the interval of a mean of one run, which knows its correlation. The
/// residuals `new − r · base` have mean 0, and what long and short requests differ in is not in them.
///
/// Source: the ratio estimator, Cochran, *Sampling Techniques*, 3rd edition (1977), 6.3.
///
/// # Errors
///
/// [`Error::Empty`] without pairs; [`Error::NotAbove`] unless both means are above zero.
///
/// # Examples
///
/// ```
/// use metrics_core::compare::change_paired;
/// use metrics_core::interval::Confidence;
///
/// // Requests of very different lengths, each a tenth slower, a little more or less.
/// let pairs: Vec<(f64, f64)> = (1..=200)
///     .map(|i| (f64::from(i * i % 197 + 1), 0.1 * (f64::from(i * i) * 0.618).fract()))
///     .map(|(base, noise)| (base, 1.1 * base + noise))
///     .collect();
/// let c = change_paired(&pairs, Confidence::P95)?;
/// assert!(0.09 < c.low.unwrap() && c.high.unwrap() < 0.11);
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn change_paired(pairs: &[(f64, f64)], confidence: Confidence) -> Result<Change> {
    let mean =
        |of: fn(&(f64, f64)) -> f64| Ok(Summary::new(pairs.iter().map(of).collect())?.mean());
    let base_mean = above("the base's mean", mean(|p| p.0)?, 0.0)?;
    let new_mean = above("the new mean", mean(|p| p.1)?, 0.0)?;
    let r = finite_ratio(new_mean / base_mean)?;
    let residuals = Summary::new(pairs.iter().map(|(b, n)| n - r * b).collect())?;
    let (half, none_because) = match residuals.run().mean(confidence) {
        Ok(i) => (i.width().map(|w| w / 2.0 / base_mean), None),
        Err(why) => (None, Some(why.to_string())),
    };
    Ok(Change {
        base: base_mean,
        new: new_mean,
        relative: r - 1.0,
        low: half.map(|h| r - h - 1.0),
        high: half.map(|h| r + h - 1.0),
        none_because,
    })
}

/// The change between two sets of runs of the same settings, one figure a run.
///
/// ```text
/// d  = mean(ln new) − mean(ln base)
/// se = sqrt(var(ln new) / n_new + var(ln base) / n_base)
/// relative = exp(d) − 1,  interval exp(d ± t(df) · se) − 1
/// ```
///
/// with Welch's degrees of freedom.
///
/// Source: Welch, *The generalization of "Student's" problem when several different population
/// variances are involved*, Biometrika 34 (1947).
///
/// # Errors
///
/// [`Error::NotAbove`] unless every figure is above zero; [`Error::TooFew`] for fewer than two
/// runs on a side.
///
/// # Examples
///
/// ```
/// use metrics_core::compare::change_of_runs;
/// use metrics_core::interval::Confidence;
///
/// let c = change_of_runs(&[1.0, 1.0, 1.0], &[1.1, 1.1, 1.1], Confidence::P95)?;
/// assert!((c.relative - 0.1).abs() < 1e-12); // three runs alike on each side: no spread
/// assert!(!c.may_be_none());
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn change_of_runs(base: &[f64], new: &[f64], confidence: Confidence) -> Result<Change> {
    let (base_mean, base_se2, base_df) = logs("the base's figures", base)?;
    let (new_mean, new_se2, new_df) = logs("the new figures", new)?;
    let d = new_mean - base_mean;
    let se2 = base_se2 + new_se2;
    let half = if 0.0 < se2 {
        let df = se2 * se2 / (base_se2 * base_se2 / base_df + new_se2 * new_se2 / new_df);
        let t = StudentsT::new(0.0, 1.0, df)
            .map_err(|_| Error::NotFinite { input: "degrees of freedom", value: df })?;
        t.inverse_cdf(f64::midpoint(1.0, f64::from(confidence))) * se2.sqrt()
    } else {
        0.0
    };
    Ok(Change {
        base: base_mean.exp(),
        new: new_mean.exp(),
        relative: finite_ratio(d.exp_m1())?,
        low: bound_of(d - half),
        high: bound_of(d + half),
        none_because: None,
    })
}

/// Mean of the logarithms, its squared standard error, degrees of freedom.
fn logs(input: &'static str, values: &[f64]) -> Result<(f64, f64, f64)> {
    if values.len() < 2 {
        return Err(Error::TooFew { input, item: "run", min: 2, len: values.len() });
    }
    let logs: Result<Vec<f64>> =
        values.iter().map(|&x| above(input, x, 0.0).map(f64::ln)).collect();
    let logs = logs?;
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let var = logs.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0);
    Ok((mean, var / n, n - 1.0))
}

/// Whether a figure got worse by no more than `margin` (0.05 for 5 %).
///
/// A figure where lower is better may grow to `1 + margin` times the base, one where higher is
/// better may fall to `1 − margin` times.
#[must_use]
pub fn no_regress(change: &Change, better: Better, margin: f64) -> Answer {
    let (good, bad) = match better {
        Better::Lower => (change.high.map(|h| h <= margin), change.low.map(|l| margin < l)),
        Better::Higher => (change.low.map(|l| -margin <= l), change.high.map(|h| h < -margin)),
    };
    match (good, bad) {
        (Some(true), _) => Answer::Holds,
        (_, Some(true)) => Answer::Missed,
        _ => Answer::Indeterminate,
    }
}

/// Whether a figure got worse by no more than `margin`, where zeros have no ratio.
///
/// A base of 0 cannot get worse where higher is better, and a figure that fell to 0 has got worse
/// by all of it; other zeros leave the question open.
#[must_use]
pub fn gate_zero(base: f64, new: f64, better: Better) -> Answer {
    match better {
        Better::Higher if base <= 0.0 => Answer::Holds,
        Better::Higher if new <= 0.0 => Answer::Missed,
        Better::Lower if new <= 0.0 => Answer::Holds,
        _ => Answer::Indeterminate,
    }
}

/// The smallest margin that this change would pass, if its interval is bounded on that side.
#[must_use]
pub fn margin_needed(change: &Change, better: Better) -> Option<f64> {
    match better {
        Better::Lower => change.high,
        Better::Higher => change.low.map(|l| -l),
    }
}

/// How many parts a run's window is cut into for the interval of a rate.
const RATE_BINS: usize = 100;

/// The interval of a rate, from the rates of equal parts of the window.
///
/// `events` are instants inside of the window, from its start, with their weight: 1 for a request,
/// its tokens for a token rate. The parts follow each other like the requests of a run, so that the
/// same rules decide: parts that drift (ramp and drain among them) or are too few have no interval.
///
/// # Errors
///
/// Why there is no interval, as a clause.
pub fn rate_interval(
    events: &[(f64, f64)],
    length: Seconds,
    confidence: Confidence,
) -> std::result::Result<Interval, String> {
    let length = length.get();
    // Five events a part, so that a part is not mostly empty.
    let bins = (events.len() / 5).min(RATE_BINS);
    if bins < 20 {
        return Err(format!(
            "{} ends are too few for the interval of a rate, 100 needed",
            events.len()
        ));
    }
    let width = length / bins as f64;
    let mut sorted = events.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The span of the requests is the window where no other is known: its end is inside.
    if let Some(last) = sorted.last().filter(|e| length * (1.0 + 1e-9) < e.0) {
        return Err(format!("a request ends {} s after the window", plain(last.0 - length)));
    }
    let mut rest = sorted.iter().peekable();
    let mut rates = Vec::with_capacity(bins);
    for bin in 1..=bins {
        let end = if bin == bins { f64::INFINITY } else { bin as f64 * width };
        let mut sum = 0.0;
        while let Some((_, weight)) = rest.next_if(|e| e.0 < end) {
            sum += weight;
        }
        rates.push(sum / width);
    }
    let summary = Summary::new(rates).map_err(|e| e.to_string())?;
    summary.run().mean(confidence).map_err(|e| e.to_string())
}

/// Every figure of a report that can be compared, in the order of the report.
#[must_use]
pub fn comparables(
    report: &Report,
    timelines: &[RequestTimeline],
    confidence: Confidence,
) -> Vec<Comparable> {
    let mut all = Vec::new();
    for d in &report.latency {
        let Some(figures) = &d.figures else { continue };
        for figure in figures.percentiles.iter().chain([&figures.mean]) {
            let name = figure.p.map_or_else(
                || "mean".to_owned(),
                |p| format!("p{}", crate::format::value(p * 100.0)),
            );
            all.push(Comparable {
                key: format!("{}_{}_s", d.name, name.replace('.', "_")),
                title: format!("{} {name}", distribution_title(d.name)),
                of: d.name,
                better: Better::Lower,
                kind: Kind::Time,
                value: figure.value,
                interval: figure.interval.as_ref().copied().map_err(ToString::to_string),
            });
        }
    }
    rates(&mut all, report, timelines, confidence);
    all.extend(completed_share(timelines, confidence));
    all
}

/// The key of the share of finished requests that completed; what is left of it to 1 failed.
pub const COMPLETED_SHARE: &str = "completed_share";

/// The share of finished requests that completed; `None` if none finished.
///
/// It says of failures what a ratio can say: their own share has no ratio to a base without any.
fn completed_share(timelines: &[RequestTimeline], confidence: Confidence) -> Option<Comparable> {
    let finished = timelines.iter().map(RequestTimeline::outcome);
    let done: Vec<bool> = finished
        .filter(|o| *o == Outcome::Completed || o.is_miss())
        .map(|o| o == Outcome::Completed)
        .collect();
    let series = Series::new(done.iter().map(|&d| f64::from(u8::from(d))).collect()).ok()?;
    let value = series.summary().mean();
    let interval = series.run().proportion(&done, confidence).map_err(|e| e.to_string());
    Some(share_completed(value, interval))
}

/// The figure with the key [`COMPLETED_SHARE`].
#[must_use]
pub fn share_completed(value: f64, interval: std::result::Result<Interval, String>) -> Comparable {
    Comparable {
        key: COMPLETED_SHARE.to_owned(),
        title: "completed share".to_owned(),
        of: "failures",
        better: Better::Higher,
        kind: Kind::Share,
        value,
        interval,
    }
}

/// Rates and shares.
fn rates(
    all: &mut Vec<Comparable>,
    report: &Report,
    timelines: &[RequestTimeline],
    confidence: Confidence,
) {
    let start = timelines.iter().filter_map(RequestTimeline::arrival_s).min_by(f64::total_cmp);
    let interval = |weight: &dyn Fn(&RequestTimeline) -> Option<f64>| {
        let (Some(window), Some(start)) = (&report.window, start) else {
            return Err("the file has no arrival".to_owned());
        };
        let completed = timelines.iter().filter(|t| t.outcome() == Outcome::Completed);
        let events: Option<Vec<(f64, f64)>> = completed
            .map(|t| Some((t.arrival_s()? + t.e2e_latency()?.get() - start, weight(t)?)))
            .collect();
        let events = events.ok_or("a completed request has no end")?;
        rate_interval(&events, window.length, confidence)
    };
    let mut push = |key: &str, title: &str, of, kind, value: Option<f64>, interval| {
        if let Some(value) = value {
            let (key, title) = (key.to_owned(), title.to_owned());
            all.push(Comparable { key, title, of, better: Better::Higher, kind, value, interval });
        }
    };
    let t = &report.throughput;
    push(
        "request_throughput_per_s",
        "requests",
        "throughput",
        Kind::Rate,
        t.requests.map(Quantity::number),
        interval(&|_| Some(1.0)),
    );
    push(
        "output_tokens_per_s",
        "output tokens",
        "throughput",
        Kind::Rate,
        t.output.map(Quantity::number),
        interval(&|t| t.output_tokens().map(|n| n as f64)),
    );
    let Some(g) = report.goodput.as_ref().filter(|g| g.has_limits() && g.unknown == 0) else {
        return;
    };
    let good = |t: &RequestTimeline| {
        matches!(g.slo.judge(t), crate::slo::Judgement::Good).then_some(1.0).or(Some(0.0))
    };
    push(
        "goodput_per_s",
        "goodput",
        "goodput",
        Kind::Rate,
        g.rate.map(Quantity::number),
        interval(&good),
    );
    let attainment = g.attainment_interval.ok_or_else(|| "no attainment interval".to_owned());
    let attainment = match &g.too_narrow {
        Some(why) => Err(why.to_string()),
        None => attainment,
    };
    push("attainment", "attainment", "goodput", Kind::Share, g.attainment, attainment);
}
