//! Alert thresholds and the state of an observed value against them.
//!
//! A threshold's number stands once, in its [`Level`]; the words in both languages are made from
//! it, so that a translated threshold cannot differ.

use crate::error::{Error, Result, above, at_least, finite, within};
use crate::metric::{Language, Source, Text, text};

/// Where a threshold lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    /// Above this share, from 0 to 1.
    Share(f64),
    /// Above this multiple of the latency's SLO.
    OfSlo(f64),
    /// Above this multiple of the largest batch.
    OfMaxBatch(f64),
    /// The value keeps growing, as [`keeps_growing`] tells.
    KeepsGrowing,
}

impl Level {
    /// The share or the multiple; nothing for a trend.
    #[must_use]
    pub const fn number(self) -> Option<f64> {
        match self {
            Self::Share(x) | Self::OfSlo(x) | Self::OfMaxBatch(x) => Some(x),
            Self::KeepsGrowing => None,
        }
    }

    /// The level in words: `> 80 %`, `> 0.7 × SLO`, `> 2 × B_max`, `keeps growing`.
    #[must_use]
    pub fn in_language(self, language: Language) -> String {
        match self {
            Self::Share(x) => format!("> {} %", percent(x)),
            Self::OfSlo(x) => format!("> {x} × SLO"),
            Self::OfMaxBatch(x) => format!("> {x} × B_max"),
            Self::KeepsGrowing => KEEPS_GROWING.in_language(language).to_owned(),
        }
    }
}

const KEEPS_GROWING: Text = text("keeps growing", "持续增长");

/// A share in percent, without the digits that the binary product adds.
fn percent(share: f64) -> f64 {
    (share * 100.0 * 1e9).round() / 1e9
}

/// One row of the threshold table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Its id.
    pub id: &'static str,
    /// The id of the metric in the catalog, or of the operand in
    /// [`diagnosis`](crate::diagnosis) for what is observed and not computed.
    pub metric: &'static str,
    /// What is watched, in words.
    pub name: Text,
    /// From where on to warn.
    pub warn: Level,
    /// From where on it is critical.
    pub critical: Level,
    /// What it announces.
    pub meaning: Text,
    /// What to do.
    pub action: Text,
    /// Where it comes from.
    pub source: Source,
}

impl Threshold {
    /// The warning level in words.
    #[must_use]
    pub fn warn_text(&self, language: Language) -> String {
        self.warn.in_language(language)
    }

    /// The critical level in words.
    #[must_use]
    pub fn critical_text(&self, language: Language) -> String {
        self.critical.in_language(language)
    }
}

const SECTION_7: Source = Source { work: "metric dictionary", section: "7" };

/// KV-cache utilization: eviction is near.
pub const KV_UTILIZATION: Threshold = Threshold {
    id: "kv_utilization",
    metric: "kv_utilization",
    name: text("KV-cache utilization", "KV Cache 利用率"),
    warn: Level::Share(0.8),
    critical: Level::Share(0.9),
    meaning: text("eviction is near", "即将触发驱逐"),
    action: text(
        "admit less, or give the KV cache more memory",
        "收紧准入，或为 KV Cache 提供更多显存",
    ),
    source: SECTION_7,
};

/// P99 of TTFT: close to the SLO.
pub const TTFT_P99: Threshold = Threshold {
    id: "ttft_p99",
    metric: "ttft",
    name: text("P99 TTFT", "P99 TTFT"),
    warn: Level::OfSlo(0.7),
    critical: Level::OfSlo(0.9),
    meaning: text("close to the SLO limit", "接近 SLO 上限"),
    action: text(
        "look at the wait in the queue and the prefill share of TTFT",
        "查看 TTFT 中排队与 prefill 的占比",
    ),
    source: SECTION_7,
};

/// OOM rate: the batch policy asks for too much.
pub const OOM_RATE: Threshold = Threshold {
    id: "oom_rate",
    metric: "oom_rate",
    name: text("OOM rate", "OOM 率"),
    warn: Level::Share(0.000_1),
    critical: Level::Share(0.001),
    meaning: text("the batch policy asks for more memory than there is", "batch 策略超出显存容量"),
    action: text("change the batch policy", "调整 batch 策略"),
    source: SECTION_7,
};

/// Refill rate: eviction misjudges.
pub const REFILL_RATE: Threshold = Threshold {
    id: "refill_rate",
    metric: "refill_rate",
    name: text("Refill rate", "回填率"),
    warn: Level::Share(0.05),
    critical: Level::Share(0.15),
    meaning: text(
        "eviction misjudges: what was evicted is needed again",
        "驱逐策略误判：被驱逐的内容又被需要",
    ),
    action: text("improve the eviction policy", "优化驱逐策略"),
    source: SECTION_7,
};

/// Queue depth: more comes than is served.
pub const QUEUE_DEPTH: Threshold = Threshold {
    id: "queue_depth",
    metric: "queue_depth",
    name: text("Queue depth", "队列深度"),
    warn: Level::OfMaxBatch(2.0),
    critical: Level::KeepsGrowing,
    meaning: text("more requests come than are served", "到达的请求多于能处理的请求"),
    action: text("scale out or rate-limit", "扩容或限流"),
    source: SECTION_7,
};

/// Every threshold, in docs order.
pub const THRESHOLDS: &[&Threshold] =
    &[&KV_UTILIZATION, &TTFT_P99, &OOM_RATE, &REFILL_RATE, &QUEUE_DEPTH];

/// How an observed value stands against a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Below the warning level.
    Fine,
    /// Above the warning level.
    Warn,
    /// Above the critical level.
    Critical,
}

impl State {
    /// The state in words.
    #[must_use]
    pub const fn text(self) -> Text {
        match self {
            Self::Fine => text("fine", "正常"),
            Self::Warn => text("warn", "预警"),
            Self::Critical => text("critical", "紧急"),
        }
    }
}

/// What was observed of a threshold's metric, and what its levels refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// The value, in the metric's unit.
    pub value: f64,
    /// The latency's SLO in seconds, for levels that refer to it.
    pub slo: Option<f64>,
    /// The largest batch in requests, for levels that refer to it.
    pub max_batch_size: Option<f64>,
    /// Whether the value keeps growing, for levels that ask.
    pub keeps_growing: Option<bool>,
}

/// Whether a level is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It cannot be told without the named field of [`Observed`].
    Unknown(&'static str),
}

/// Both levels of one threshold against one observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// Whether the warning level is passed.
    pub warn: Passed,
    /// Whether the critical level is passed.
    pub critical: Passed,
}

impl Assessment {
    /// The worst state that is certain.
    #[must_use]
    pub fn at_least(self) -> State {
        match (self.warn, self.critical) {
            (_, Passed::Yes) => State::Critical,
            (Passed::Yes, _) => State::Warn,
            _ => State::Fine,
        }
    }

    /// The state, if nothing that is unknown could make it worse.
    #[must_use]
    pub fn state(self) -> Option<State> {
        self.missing().is_none().then(|| self.at_least())
    }

    /// What is missing to tell the state, if anything.
    #[must_use]
    pub fn missing(self) -> Option<&'static str> {
        if self.critical == Passed::Yes {
            return None;
        }
        match (self.critical, self.warn) {
            (Passed::Unknown(field), _) | (_, Passed::Unknown(field)) => Some(field),
            _ => None,
        }
    }
}

/// Whether an observation passes the levels of a threshold; every sign is strict, so that a value
/// at a level has not passed it.
///
/// # Errors
///
/// [`Error::NotFinite`], [`Error::TooSmall`] or [`Error::TooLarge`] unless the value is a share
/// from 0 to 1 where the levels are shares, and at least 0 elsewhere; [`Error::NotAbove`] if the
/// SLO is 0; [`Error::TooSmall`] if the largest batch is below 1.
pub fn assess(threshold: &Threshold, observed: &Observed) -> Result<Assessment> {
    Ok(Assessment {
        warn: passed(threshold.warn, observed)?,
        critical: passed(threshold.critical, observed)?,
    })
}

fn passed(level: Level, observed: &Observed) -> Result<Passed> {
    let yes = |b| if b { Passed::Yes } else { Passed::No };
    let value = at_least("value", observed.value, 0.0)?;
    Ok(match level {
        Level::Share(x) => yes(x < within("value", value, 0.0, 1.0)?),
        Level::OfSlo(x) => match observed.slo {
            Some(slo) => yes(x * above("slo", slo, 0.0)? < value),
            None => Passed::Unknown("slo"),
        },
        Level::OfMaxBatch(x) => match observed.max_batch_size {
            Some(b) => yes(x * at_least("max_batch_size", b, 1.0)? < value),
            None => Passed::Unknown("max_batch_size"),
        },
        Level::KeepsGrowing => observed.keeps_growing.map_or(Passed::Unknown("keeps_growing"), yes),
    })
}

/// The state of an observation against a threshold.
///
/// # Errors
///
/// As [`assess`], and [`Error::Missing`] if something unknown could make the state worse:
/// [`Assessment::at_least`] then says what is certain.
///
/// # Examples
///
/// ```
/// use metrics_core::alerts::{KV_UTILIZATION, Observed, State, state};
///
/// let at = |value| state(&KV_UTILIZATION, &Observed { value, ..Observed::default() });
/// assert_eq!(at(0.8)?, State::Fine); // the sign is strict
/// assert_eq!(at(0.85)?, State::Warn);
/// assert_eq!(at(0.95)?, State::Critical);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 7.
pub fn state(threshold: &Threshold, observed: &Observed) -> Result<State> {
    let assessment = assess(threshold, observed)?;
    match assessment.missing() {
        None => Ok(assessment.at_least()),
        Some(input) => Err(Error::Missing { input, needed_for: "a level of the threshold" }),
    }
}

/// The significance at which a series counts as growing.
pub const SIGNIFICANCE: f64 = 0.01;
/// The fewest samples for which the test's normal approximation is used.
pub const MIN_SAMPLES: usize = 10;
/// The most samples that are compared pairwise; of longer series every second, third, … is taken.
pub const MAX_SAMPLES: usize = 1_024;

/// What a series does over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Samples compared.
    pub n: usize,
    /// Theil-Sen slope: the median slope over all pairs, per unit of the first coordinate.
    pub slope: f64,
    /// One-sided probability of such a rise in a series without a trend.
    pub p_value: f64,
    /// Median of the first third.
    pub begins: f64,
    /// Lower quartile of the last third.
    pub ends: f64,
}

impl Trend {
    /// Whether the series keeps growing: the rise is significant and does not fall back.
    #[must_use]
    pub fn keeps_growing(&self) -> bool {
        self.p_value < SIGNIFICANCE && 0.0 < self.slope && self.begins < self.ends
    }
}

/// Tests whether a series keeps growing.
///
/// `samples` holds pairs of an instant in seconds and the value then; the first coordinate may be
/// any other quantity that increases, such as a context length. Two things make a series grow:
///
/// - the Mann-Kendall test finds a rise at [`SIGNIFICANCE`], with the variance corrected for ties
///   and, as queue depths follow one another closely, for the autocorrelation of the ranks that
///   is left when the Theil-Sen line is taken off (never below that of independent samples);
/// - three quarters of the last third lie above the median of the first third: a queue that drains
///   again and again, as a sawtooth does, does not keep growing.
///
/// On independent noise the false alarms are those of the significance. A series much shorter than
/// the time in which a busy queue fills and drains cannot tell that from growth: observe longer.
///
/// # Errors
///
/// [`Error::TooFew`] below [`MIN_SAMPLES`], [`Error::NotFinite`] or [`Error::TooLarge`] for a
/// sample out of range, [`Error::NotAbove`] if the first coordinate does not increase.
///
/// # Examples
///
/// ```
/// use metrics_core::alerts::keeps_growing;
///
/// let ramp: Vec<_> = (0..20).map(|t| (f64::from(t), f64::from(t / 2))).collect();
/// assert!(keeps_growing(&ramp)?.keeps_growing());
/// let teeth: Vec<_> = (0..20).map(|t| (f64::from(t), f64::from(t % 5))).collect();
/// assert!(!keeps_growing(&teeth)?.keeps_growing());
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Mann 1945; Kendall 1975; Sen 1968; Hamed and Rao, *A modified Mann-Kendall trend test
/// for autocorrelated data*, 1998.
pub fn keeps_growing(samples: &[(f64, f64)]) -> Result<Trend> {
    for (i, &(t, x)) in samples.iter().enumerate() {
        finite("the instant of a sample", t)?;
        finite("a sample", x)?;
        if let Some(&(before, _)) = i.checked_sub(1).and_then(|i| samples.get(i)) {
            above("the instant of a sample", t, before)?;
        }
    }
    // Counted from the newest, which a trend must not miss.
    let every = samples.len().div_ceil(MAX_SAMPLES).max(1);
    let mut series: Vec<(f64, f64)> = samples.iter().rev().step_by(every).copied().collect();
    series.reverse();
    let n = series.len();
    if n < MIN_SAMPLES {
        return Err(Error::TooFew { input: "samples", item: "sample", min: MIN_SAMPLES, len: n });
    }

    let mut rises = 0_i64;
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    for (i, &(t0, x0)) in series.iter().enumerate() {
        for &(t1, x1) in series.iter().skip(i + 1) {
            rises += i64::from(x0 < x1) - i64::from(x1 < x0);
            slopes.push((x1 - x0) / (t1 - t0));
        }
    }
    let slope = median(&mut slopes);
    let values: Vec<f64> = series.iter().map(|s| s.1).collect();
    let variance = kendall_variance(&values) * autocorrelation_factor(&series, slope);
    let p_value = if 0 < rises && 0.0 < variance {
        let z = (rises - 1) as f64 / variance.sqrt();
        0.5 * statrs::function::erf::erfc(z / std::f64::consts::SQRT_2)
    } else {
        1.0
    };
    let third = n / 3;
    let mut first: Vec<f64> = values.iter().take(third).copied().collect();
    let mut last: Vec<f64> = values.iter().skip(n - third).copied().collect();
    Ok(Trend { n, slope, p_value, begins: median(&mut first), ends: order(&mut last, third / 4) })
}

/// The k-th smallest value, counted from 0; `values` is not empty.
fn order(values: &mut [f64], k: usize) -> f64 {
    *values.select_nth_unstable_by(k, f64::total_cmp).1
}

fn median(values: &mut [f64]) -> f64 {
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    let below = order(values, low);
    // What lies after it is no smaller.
    let above = if low < high { order(&mut values[high..], 0) } else { below };
    f64::midpoint(below, above)
}

/// Variance of the Mann-Kendall count under no trend, with ties.
fn kendall_variance(values: &[f64]) -> f64 {
    let term = |n: usize| n as f64 * (n as f64 - 1.0) * (2.0 * n as f64 + 5.0);
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Equal as numbers, so that 0 and -0 tie as they do in the count of rises.
    let ties: f64 = sorted.chunk_by(|a, b| a >= b).map(|tie| term(tie.len())).sum();
    (term(values.len()) - ties) / 18.0
}

/// By how much autocorrelation widens the variance, at least 1 (Hamed and Rao 1998).
///
/// The sum ends at the first lag whose autocorrelation is not significant: later ones are noise.
fn autocorrelation_factor(series: &[(f64, f64)], slope: f64) -> f64 {
    /// One-sided 5 % of a standard normal.
    const SIGNIFICANT: f64 = 1.645;
    let largest = series.iter().fold(0.0_f64, |m, s| m.max(s.1.abs()));
    // Rounding noise of a straight line must rank as ties, not as a pattern.
    let grain = largest * 1e-9;
    let rest: Vec<f64> = series
        .iter()
        .map(|&(t, x)| {
            let r = x - slope * (t - series.first().map_or(0.0, |s| s.0));
            if 0.0 < grain { (r / grain).round() } else { r }
        })
        .collect();
    let mut sorted = rest.clone();
    sorted.sort_by(f64::total_cmp);
    let rank = |x: f64| {
        let (below, upto) =
            (sorted.partition_point(|&y| y < x), sorted.partition_point(|&y| y <= x));
        (below + upto) as f64 / 2.0
    };
    let n = rest.len();
    let centre = n as f64 / 2.0;
    let d: Vec<f64> = rest.iter().map(|&x| rank(x) - centre).collect();
    let power: f64 = d.iter().map(|x| x * x).sum();
    if power <= 0.0 {
        return 1.0;
    }
    let mut sum = 0.0;
    for lag in 1..n / 2 {
        let rho: f64 = d.iter().zip(d.iter().skip(lag)).map(|(a, b)| a * b).sum::<f64>() / power;
        if rho * (n as f64).sqrt() < SIGNIFICANT {
            break;
        }
        let m = (n - lag) as f64;
        sum += m * (m - 1.0) * (m - 2.0) * rho;
    }
    let n = n as f64;
    1.0 + 2.0 * sum / (n * (n - 1.0) * (n - 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator with a known stream, so that the simulations are the same everywhere.
    struct Stream(u64);

    impl Stream {
        fn uniform(&mut self) -> f64 {
            // SplitMix64, Steele, Lea and Flood 2014.
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / 9_007_199_254_740_992.0
        }

        /// Waiting requests of an M/M/1 queue with service rate 1, every `dt`, from empty.
        fn queue(&mut self, rho: f64, n: usize, dt: f64, warm_up: f64) -> Vec<f64> {
            let (mut inside, mut t, mut next) = (0_u32, 0.0, warm_up);
            let mut depths = Vec::new();
            while depths.len() < n {
                let rate = rho + f64::from(u8::from(0 < inside));
                t -= (1.0 - self.uniform()).ln() / rate;
                while next < t && depths.len() < n {
                    depths.push(f64::from(inside.saturating_sub(1)));
                    next += dt;
                }
                if self.uniform() * rate < rho { inside += 1 } else { inside -= 1 }
            }
            depths
        }
    }

    fn trend(values: &[f64]) -> Trend {
        let samples: Vec<_> = values.iter().enumerate().map(|(i, &x)| (i as f64, x)).collect();
        keeps_growing(&samples).unwrap()
    }

    fn alarms(runs: u32, mut series: impl FnMut() -> Vec<f64>) -> u32 {
        (0..runs).map(|_| u32::from(trend(&series()).keeps_growing())).sum()
    }

    /// 2 000 series of independent noise at p < 0.01: 20 ± 4.4 by chance, and the corrections only
    /// make it fewer. Five deviations above is 42; a test that never fires would not see 3.
    #[test]
    fn flat_noise_alarms_at_about_the_nominal_rate() {
        let mut s = Stream(1);
        let smooth = alarms(2_000, || (0..30).map(|_| s.uniform()).collect());
        assert!((3..=42).contains(&smooth), "{smooth} of 2000");
        let tied = alarms(2_000, || (0..30).map(|_| (s.uniform() * 4.0).floor()).collect());
        assert!((3..=42).contains(&tied), "{tied} of 2000 with ties");
    }

    /// The p-value itself is uniform under no trend, so a tenth lies below 0.1: 200 ± 13.4.
    #[test]
    fn p_values_of_noise_are_as_rare_as_they_say() {
        let mut s = Stream(2);
        let low = (0..2_000)
            .filter(|_| trend(&(0..40).map(|_| s.uniform()).collect::<Vec<_>>()).p_value < 0.1)
            .count();
        assert!((133..=267).contains(&low), "{low} of 2000");
    }

    /// A stable queue fills and drains; the uncorrected test takes 9 to 13 % of these for growth.
    #[test]
    fn a_stable_queue_seldom_alarms_and_an_overloaded_one_nearly_always() {
        let mut s = Stream(3);
        let stable = alarms(300, || s.queue(0.7, 60, 5.0, 500.0));
        assert!(stable <= 18, "{stable} of 300");
        let overloaded = alarms(100, || s.queue(1.5, 60, 5.0, 0.0));
        assert!(95 <= overloaded, "{overloaded} of 100");
    }

    #[test]
    fn ramps_grow_and_falls_and_flats_do_not() {
        let by = |f: fn(f64) -> f64| trend(&(0..40).map(|i| f(f64::from(i))).collect::<Vec<_>>());
        assert!(by(|t| t).keeps_growing());
        assert!(by(|t| 0.1 * t + 1e6).keeps_growing());
        assert!(by(|t| t * t).keeps_growing());
        assert!(by(f64::sqrt).keeps_growing());
        assert!(by(|t| (t / 5.0).floor()).keeps_growing());
        assert!(!by(|t| 40.0 - t).keeps_growing());
        assert!(!by(|_| 3.0).keeps_growing());
        assert!((by(|t| 2.0 * t + 1.0).slope - 2.0).abs() < 1e-12);
    }

    /// Teeth of any length that drain to zero, observed from any point.
    #[test]
    fn a_sawtooth_does_not_keep_growing() {
        for period in [3_u32, 5, 8, 12, 15, 20, 30] {
            for shift in 0..period {
                let teeth: Vec<_> = (0..60).map(|i| f64::from((i + shift) % period)).collect();
                assert!(!trend(&teeth).keeps_growing(), "period {period}, shift {shift}");
            }
        }
    }

    /// A queue that rose for long and is drained at the end does not keep growing, however
    /// significant the rise. On a ramp of 12 the thirds are 0 to 3 and 8 to 11.
    #[test]
    fn a_rise_that_fell_back_is_over() {
        let ramp = trend(&(0..12).map(f64::from).collect::<Vec<_>>());
        assert!((ramp.begins - 1.5).abs() < 1e-12 && (ramp.ends - 9.0).abs() < 1e-12, "{ramp:?}");
        let drained: Vec<_> = (0..60).map(|i| if i < 48 { f64::from(i) } else { 0.0 }).collect();
        assert!(!trend(&drained).keeps_growing());
        let significant = Trend { n: 60, slope: 0.5, p_value: 1e-6, begins: 5.0, ends: 6.0 };
        assert!(significant.keeps_growing());
        assert!(!Trend { ends: 5.0, ..significant }.keeps_growing());
        assert!(!Trend { p_value: SIGNIFICANCE, ..significant }.keeps_growing());
        assert!(!Trend { slope: 0.0, ..significant }.keeps_growing());
    }

    /// Kendall's variance for 10 values with a tie of 3: (10·9·25 − 3·2·11) / 18.
    #[test]
    fn ties_narrow_the_variance() {
        let x = [1.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        assert!((kendall_variance(&x) - (2_250.0 - 66.0) / 18.0).abs() < 1e-12);
        assert!(kendall_variance(&[0.0, -0.0, 0.0]).abs() < 1e-12);
    }

    #[test]
    fn long_series_are_thinned_and_short_ones_refused() {
        let long: Vec<_> = (0..5_000).map(|i| (f64::from(i), f64::from(i))).collect();
        let t = keeps_growing(&long).unwrap();
        assert!(t.n <= MAX_SAMPLES && MAX_SAMPLES / 2 < t.n && t.keeps_growing(), "{t:?}");
        assert_eq!(
            keeps_growing(&long[..9]).unwrap_err().to_string(),
            "samples must hold at least 10 samples, got 9"
        );
        assert!(matches!(keeps_growing(&[(1.0, 0.0), (1.0, 0.0)]), Err(Error::NotAbove { .. })));
        assert!(matches!(keeps_growing(&[(1.0, f64::NAN)]), Err(Error::NotFinite { .. })));
    }

    /// The table as the source prints it, from the numbers.
    #[test]
    fn the_table_reads_as_its_source_in_both_languages() {
        let row = |t: &&Threshold| {
            let (en, zh) = (Language::En, Language::Zh);
            assert_eq!(t.warn_text(en), t.warn_text(zh));
            let (warn, critical) = (t.warn_text(en), t.critical_text(en));
            format!("{}: {warn}, {critical} ({})", t.id, t.critical_text(zh))
        };
        let table: Vec<_> = THRESHOLDS.iter().map(row).collect();
        insta::assert_snapshot!(table.join("\n"), @"
        kv_utilization: > 80 %, > 90 % (> 90 %)
        ttft_p99: > 0.7 × SLO, > 0.9 × SLO (> 0.9 × SLO)
        oom_rate: > 0.01 %, > 0.1 % (> 0.1 %)
        refill_rate: > 5 %, > 15 % (> 15 %)
        queue_depth: > 2 × B_max, keeps growing (持续增长)
        ");
    }

    /// One OOM in 10 000 is 0.01 % exactly: not above. Two are.
    #[test]
    fn a_value_at_its_level_has_not_passed_it() {
        let at = |t: &Threshold, value| {
            let slo = Some(2.0);
            state(t, &Observed { value, slo, ..Observed::default() }).unwrap()
        };
        let rate = |k| crate::cache::oom_rate(k, 10_000).unwrap();
        assert_eq!(at(&OOM_RATE, rate(1)), State::Fine);
        assert_eq!(at(&OOM_RATE, rate(2)), State::Warn);
        assert_eq!(at(&OOM_RATE, rate(10)), State::Warn);
        assert_eq!(at(&OOM_RATE, rate(11)), State::Critical);
        assert_eq!(at(&TTFT_P99, 1.4), State::Fine);
        assert_eq!(at(&TTFT_P99, 1.41), State::Warn);
        assert_eq!(at(&TTFT_P99, 1.8), State::Warn);
        assert_eq!(at(&TTFT_P99, 1.81), State::Critical);
        assert_eq!(at(&REFILL_RATE, 0.05), State::Fine);
        assert_eq!(at(&REFILL_RATE, 0.151), State::Critical);
    }

    /// What is unknown is said, and what is certain without it too.
    #[test]
    fn a_missing_trend_leaves_the_warning_standing() {
        let seen = |value, keeps_growing| {
            let max_batch_size = Some(8.0);
            assess(&QUEUE_DEPTH, &Observed { value, max_batch_size, keeps_growing, slo: None })
        };
        assert_eq!(seen(16.0, Some(false)).unwrap().state(), Some(State::Fine));
        assert_eq!(seen(17.0, Some(false)).unwrap().state(), Some(State::Warn));
        assert_eq!(seen(3.0, Some(true)).unwrap().state(), Some(State::Critical));
        let unknown = seen(17.0, None).unwrap();
        assert_eq!((unknown.state(), unknown.at_least()), (None, State::Warn));
        assert_eq!(unknown.missing(), Some("keeps_growing"));
        assert_eq!(
            state(&TTFT_P99, &Observed { value: 1.0, ..Observed::default() })
                .unwrap_err()
                .to_string(),
            "slo is missing: a level of the threshold"
        );
        let bad = Observed { value: 1.5, ..Observed::default() };
        assert!(state(&KV_UTILIZATION, &bad).is_err());
    }
}
