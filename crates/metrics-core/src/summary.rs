//! Samples as figures: exact percentiles, mean, and what they rest on.
//!
//! Nothing here is an estimate by buckets or sketches: a percentile is computed from the sorted
//! samples by one named definition. How far the figures can be trusted is the matter of
//! [`interval`](crate::interval).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, finite, within};
use crate::interval::Run;
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, text};
#[cfg(feature = "catalog")]
use crate::units::Unit;

/// Which value counts as the percentile when it falls between two samples.
///
/// On few samples the definitions differ by more than most regressions: the p99 of 50 samples is
/// the maximum by nearest rank and about halfway between the two largest by interpolation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PercentileMethod {
    /// Linear interpolation at position (n − 1)·p, counted from 0: numpy's and pandas' default,
    /// type 7 of Hyndman and Fan, and what vLLM, SGLang, AIPerf and inference-perf print.
    #[default]
    Linear,
    /// The sample of rank ⌈n·p⌉, counted from 1: always a value that occurred; type 1 of Hyndman
    /// and Fan.
    NearestRank,
}

impl fmt::Display for PercentileMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linear => "linear",
            Self::NearestRank => "nearest-rank",
        })
    }
}

/// The percentile of samples in any order, by linear interpolation.
///
/// ```text
/// percentile = x[floor(h)] + (h - floor(h)) * (x[floor(h) + 1] - x[floor(h)]),  h = (n - 1) * p
/// ```
///
/// `samples` holds the n values, `x` is the same in ascending order, counted from 0; `p` is a
/// fraction: 0.99 for p99. The result has the unit of the samples. It says nothing about the
/// population when n·(1 − p) is small: p99 of ten samples is nearly their maximum. Percentiles do
/// not add and do not average.
///
/// # Errors
///
/// [`Error::Empty`] without samples, [`Error::NotFinite`] or [`Error::TooLarge`] for a sample that
/// is no number, [`Error::TooSmall`] or [`Error::TooLarge`] unless `0 <= p <= 1`.
///
/// # Examples
///
/// ```
/// use metrics_core::summary::percentile;
///
/// assert_eq!(percentile(&[40.0, 10.0, 30.0, 20.0], 0.5)?, 25.0);
/// assert_eq!(percentile(&[0.0, 100.0], 0.9)?, 90.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: numpy 2 `numpy.percentile`, method `linear`; Hyndman and Fan, *Sample Quantiles in
/// Statistical Packages*, The American Statistician 50 (1996), definition 7.
pub fn percentile(samples: &[f64], p: f64) -> Result<f64> {
    percentile_by(samples, p, PercentileMethod::Linear)
}

/// The catalog entry of [`percentile`].
#[cfg(feature = "catalog")]
pub const PERCENTILE: Metric = Metric {
    id: "percentile",
    symbol: r"x_p",
    name: text("Percentile", "百分位数"),
    layer: Layer::Latency,
    unit: Unit::ONE,
    inputs: &[
        Input::real(
            "samples",
            "x",
            Unit::ONE,
            (0.0, 1e3),
            text("samples, in any order and of any one unit", "样本，顺序不限，单位一致即可"),
        ),
        Input::real(
            "p",
            "p",
            Unit::ONE,
            (0.0, 1.0),
            text("the percentile as a fraction", "以小数表示的百分位"),
        ),
    ],
    formula: Formula::Law {
        latex: r"x_p = x_{(\lfloor h \rfloor)} + (h - \lfloor h \rfloor) (x_{(\lfloor h \rfloor + 1)} - x_{(\lfloor h \rfloor)}), \quad h = (n - 1) p",
        why: text("It needs all samples in order of size.", "它需要全部样本按大小排序。"),
        test: "tests/summary.rs::percentiles_equal_their_definitions",
        example: text(
            "samples 40, 10, 30, 20 at p = 0.9: h = 2.7, between 30 and 40",
            "样本 40、10、30、20，p = 0.9：h = 2.7，落在 30 与 40 之间",
        ),
        run: || computed(percentile(&[40.0, 10.0, 30.0, 20.0], 0.9)),
        value: 37.0,
    },
    path: "metrics_core::summary::percentile",
    source: Source { work: "numpy 2 `numpy.percentile`", section: "method `linear`" },
    note: text(
        "It has the unit of the samples. With fewer than 10 samples above it, it is mostly chance; percentiles neither add nor average.",
        "单位与样本相同。若高于它的样本不足 10 个，其值多半出于偶然；百分位数既不能相加，也不能取平均。",
    ),
    exported: &[],
};

/// The percentile of samples in any order, by a named definition.
///
/// ```text
/// percentile_by = x[floor(h)] + (h - floor(h)) * (x[floor(h) + 1] - x[floor(h)]),  h = (n - 1) * p
/// percentile_by = x[ceil(n * p) - 1]
/// ```
///
/// The first line is [`PercentileMethod::Linear`], the second [`PercentileMethod::NearestRank`];
/// the rest is as in [`percentile`]. A product n·p that misses a whole number by rounding alone
/// counts as that number: the 7th of 100 samples is the nearest rank of p = 0.07, although the
/// product in floating point is 7.000000000000001.
///
/// # Errors
///
/// As [`percentile`].
///
/// # Examples
///
/// ```
/// use metrics_core::summary::{PercentileMethod, percentile_by};
///
/// let samples = [10.0, 20.0, 30.0, 40.0];
/// assert_eq!(percentile_by(&samples, 0.6, PercentileMethod::NearestRank)?, 30.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Hyndman and Fan 1996, definitions 7 and 1.
pub fn percentile_by(samples: &[f64], p: f64, method: PercentileMethod) -> Result<f64> {
    let p = within("p", p, 0.0, 1.0)?;
    of_unordered(&mut samples.to_vec(), p, method)
}

/// The median by linear interpolation; `None` without samples or for one that is no number. It
/// leaves the samples in another order.
pub(crate) fn median(samples: &mut [f64]) -> Option<f64> {
    of_unordered(samples, 0.5, PercentileMethod::Linear).ok()
}

/// The percentile of samples that are put into another order; `0 <= p <= 1`.
fn of_unordered(samples: &mut [f64], p: f64, method: PercentileMethod) -> Result<f64> {
    check(samples)?;
    if samples.is_sorted() {
        return Ok(of_sorted(samples, p, method));
    }
    // Places are asked in ascending order, and what lies before one that was found is no larger.
    let mut found = 0;
    Ok(of_order_statistics(samples.len(), p, method, |i| {
        if found <= i {
            samples[found..].select_nth_unstable_by(i - found, f64::total_cmp);
            found = i + 1;
        }
        samples[i]
    }))
}

/// Makes one zero of both, so that their order cannot show; an error unless all are numbers.
fn check(samples: &mut [f64]) -> Result<()> {
    numbers(samples)?;
    for x in samples {
        *x += 0.0;
    }
    Ok(())
}

/// The samples checked and in ascending order.
fn sorted(samples: &[f64]) -> Result<Vec<f64>> {
    numbers(samples)?;
    let mut sorted: Vec<f64> = samples.iter().map(|x| x + 0.0).collect();
    sort(&mut sorted);
    Ok(sorted)
}

/// An error unless there are samples and all are numbers.
fn numbers(samples: &[f64]) -> Result<()> {
    if samples.is_empty() {
        return Err(Error::Empty { input: "samples", item: "value" });
    }
    for &x in samples {
        finite("samples", x)?;
    }
    Ok(())
}

/// Puts numbers into ascending order.
pub(crate) fn sort(numbers: &mut [f64]) {
    if !RADIX.contains(&numbers.len()) {
        numbers.sort_unstable_by(f64::total_cmp);
    } else if !numbers.is_sorted_by(|a, b| a.total_cmp(b).is_le()) {
        // Arrivals are in order as a rule.
        radsort::sort(numbers);
    }
}

/// Where each sample stands in ascending order: its value as an integer of the same order, and its
/// place among the samples.
fn places(samples: &[f64]) -> Vec<(i64, usize)> {
    let mut places: Vec<(i64, usize)> =
        samples.iter().enumerate().map(|(i, x)| (ordered(*x), i)).collect();
    if RADIX.contains(&places.len()) {
        radsort::sort_by_key(&mut places, |p| p.0);
    } else {
        places.sort_unstable_by_key(|p| p.0);
    }
    places
}

/// How many samples are sorted digit by digit: of fewer the passes cost more than comparisons, and
/// of more the second buffer costs memory where logs of millions of requests are read.
const RADIX: std::ops::Range<usize> = 1 << 9..1 << 20;

/// An integer that is ordered as the number is; one zero for both.
fn ordered(x: f64) -> i64 {
    let bits = (x + 0.0).to_bits().cast_signed();
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

/// The number of such an integer.
fn number(ordered: i64) -> f64 {
    f64::from_bits((if ordered < 0 { ordered ^ i64::MAX } else { ordered }).cast_unsigned())
}

/// Ranks from 1, in the order of the values; equal values share their middle rank.
pub(crate) fn mid_ranks(values: &[f64]) -> Vec<f64> {
    ranks_of(&places(values))
}

fn ranks_of(places: &[(i64, usize)]) -> Vec<f64> {
    let mut ranks = vec![0.0; places.len()];
    let mut before = 0.0;
    for group in places.chunk_by(|a, b| a.0 == b.0) {
        let len = group.len() as f64;
        let middle = before + 0.5 * (1.0 + len);
        for &(_, i) in group {
            ranks[i] = middle;
        }
        before += len;
    }
    ranks
}

/// The percentile of ascending samples; there is at least one, and `0 <= p <= 1`.
pub(crate) fn of_sorted(sorted: &[f64], p: f64, method: PercentileMethod) -> f64 {
    of_order_statistics(sorted.len(), p, method, |i| sorted[i])
}

/// The percentile of `n` samples, at least one, of which `at` knows each in ascending order, from 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions lie between 0 and the number of samples"
)]
pub(crate) fn of_order_statistics(
    n: usize,
    p: f64,
    method: PercentileMethod,
    mut at: impl FnMut(usize) -> f64,
) -> f64 {
    let last = n - 1;
    match method {
        PercentileMethod::Linear => {
            let h = last as f64 * p;
            let below = (h.floor() as usize).min(last);
            let (a, b) = (at(below), at((below + 1).min(last)));
            let t = h - below as f64;
            // From the nearer end, as numpy does it, so that results agree with it to the bit.
            if t < 0.5 { a + (b - a) * t } else { b - (b - a) * (1.0 - t) }
        }
        PercentileMethod::NearestRank => at(nearest_rank(n, p) - 1),
    }
}

/// The rank, counted from 1, at which [`PercentileMethod::NearestRank`] finds the percentile of so
/// many samples; `0 <= p <= 1`. A product of them that misses a whole number by rounding alone is
/// that number.
///
/// # Examples
///
/// ```
/// use metrics_core::summary::nearest_rank;
///
/// // In floating point 0.55 times 100 is more than 55, and 0.57 times 100 less than 57.
/// assert_eq!(nearest_rank(100, 0.55), 55);
/// assert_eq!(nearest_rank(100, 0.57), 57);
/// assert_eq!(nearest_rank(100, 0.551), 56);
/// ```
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank lies between 1 and the number of samples"
)]
pub fn nearest_rank(n: usize, p: f64) -> usize {
    let h = n as f64 * p;
    let whole = h.round();
    let rank = if (h - whole).abs() <= 2.0 * f64::EPSILON * h { whole } else { h.ceil() };
    (rank as usize).clamp(1, n.max(1))
}

/// Samples that are counted and not held one by one, by what a report asks of them: the gaps of a
/// simulated run, of which there are as many as tokens.
pub trait Ranked {
    /// The number of samples.
    fn n(&self) -> u64;

    /// Their mean; `None` without any.
    fn mean(&self) -> Option<f64>;

    /// The largest; `None` without any.
    fn max(&self) -> Option<f64>;

    /// The samples at these places in ascending order, from 0, each below [`n`](Ranked::n).
    fn in_order(&self, places: &[u64]) -> Vec<f64>;
}

/// The percentiles at `shares`, each from 0 to 1, of samples of which there is at least one.
pub(crate) fn percentiles_of(
    samples: &impl Ranked,
    shares: &[f64],
    method: PercentileMethod,
) -> Vec<f64> {
    let n = usize::try_from(samples.n()).unwrap_or(usize::MAX);
    // Which places a definition reads does not depend on what is there.
    let mut places = Vec::new();
    for &p in shares {
        of_order_statistics(n, p, method, |i| {
            places.push(i as u64);
            0.0
        });
    }
    let mut found = samples.in_order(&places).into_iter();
    let mut next = |_| found.next().unwrap_or_default();
    shares.iter().map(|&p| of_order_statistics(n, p, method, &mut next)).collect()
}

/// The sum without the rounding errors that a plain loop gathers (Neumaier's compensation).
pub(crate) fn sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for x in values {
        let next = sum + x;
        lost += if x.abs() <= sum.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    sum + lost
}

/// Samples of one quantity in order of occurrence, with their exact figures.
///
/// The order matters for intervals: requests of one run are correlated, see [`Summary::run`].
/// All figures have the unit of the samples.
///
/// # Examples
///
/// ```
/// use metrics_core::summary::Summary;
///
/// let ttft = Summary::new(vec![0.1, 0.4, 0.2, 0.3])?;
/// assert_eq!(ttft.n(), 4);
/// assert!((ttft.mean() - 0.25).abs() < 1e-15);
/// assert!((ttft.percentile(0.5)? - 0.25).abs() < 1e-15);
/// assert_eq!(ttft.max(), 0.4);
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    values: Vec<f64>,
    sorted: Vec<f64>,
    mean: f64,
    /// Sum of squared deviations from the mean.
    squares: f64,
}

impl Summary {
    /// The summary of samples in order of occurrence.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] without samples, [`Error::NotFinite`] or [`Error::TooLarge`] for a sample
    /// that is NaN, infinite or above [`LARGEST`](crate::error::LARGEST).
    pub fn new(values: Vec<f64>) -> Result<Self> {
        let sorted = sorted(&values)?;
        Ok(Self::of(values, sorted))
    }

    /// The summary, and the ranks of the samples in their order: both from one sort.
    pub(crate) fn ranked(values: Vec<f64>) -> Result<(Self, Vec<f64>)> {
        numbers(&values)?;
        let places = places(&values);
        let sorted = places.iter().map(|p| number(p.0)).collect();
        let ranks = ranks_of(&places);
        drop(places);
        Ok((Self::of(values, sorted), ranks))
    }

    /// Of samples and the same in ascending order; there is at least one.
    fn of(values: Vec<f64>, sorted: Vec<f64>) -> Self {
        let n = values.len() as f64;
        // Rounding may put the mean of equal samples a bit beside them.
        let mean = (sum(values.iter().copied()) / n).clamp(sorted[0], sorted[sorted.len() - 1]);
        let squares = sum(values.iter().map(|x| (x - mean) * (x - mean)));
        Self { values, sorted, mean, squares }
    }

    /// The number of samples.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.values.len() as u64
    }

    /// The arithmetic mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The sample standard deviation, with n − 1 in the denominator; `None` for one sample.
    #[must_use]
    pub fn std(&self) -> Option<f64> {
        let n = self.values.len();
        (2 <= n).then(|| (self.squares / (n - 1) as f64).sqrt())
    }

    /// The standard deviation with n in the denominator: what numpy's `std` and therefore the
    /// files of vLLM and SGLang hold. It underestimates the spread of few samples.
    #[must_use]
    pub fn std_population(&self) -> f64 {
        (self.squares / self.values.len() as f64).sqrt()
    }

    /// The smallest sample.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// The largest sample.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// The percentile at the fraction `p`, by linear interpolation: see [`percentile`].
    ///
    /// # Errors
    ///
    /// [`Error`] unless `0 <= p <= 1`.
    pub fn percentile(&self, p: f64) -> Result<f64> {
        self.percentile_by(p, PercentileMethod::Linear)
    }

    /// The percentile at the fraction `p` by a named definition: see [`percentile_by`].
    ///
    /// # Errors
    ///
    /// [`Error`] unless `0 <= p <= 1`.
    pub fn percentile_by(&self, p: f64, method: PercentileMethod) -> Result<f64> {
        Ok(of_sorted(&self.sorted, within("p", p, 0.0, 1.0)?, method))
    }

    /// How many samples are at most `limit`: with [`Summary::n`], the share that meets a limit.
    #[must_use]
    pub fn at_most(&self, limit: f64) -> u64 {
        self.sorted.partition_point(|&x| x <= limit) as u64
    }

    /// The samples in order of occurrence.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The samples in ascending order.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// The samples as one run whose neighbours may be correlated: confidence intervals.
    ///
    /// It sorts once more; keep it when several intervals are wanted.
    #[must_use]
    pub fn run(&self) -> Run<'_> {
        Run::new(self)
    }

    /// The figures that a report prints.
    #[must_use]
    pub fn row(&self) -> SummaryRow {
        let at = |p| of_sorted(&self.sorted, p, PercentileMethod::Linear);
        SummaryRow {
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: self.max(),
            min: self.min(),
            mean: self.mean,
            std: self.std(),
            n: self.n(),
        }
    }
}

/// The figures of a [`Summary`] as a row, percentiles by linear interpolation.
///
/// Numbers are in the unit of the samples; whoever writes the row puts the unit into its name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryRow {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The largest sample.
    pub max: f64,
    /// The smallest sample.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation (n − 1); absent for one sample.
    pub std: Option<f64>,
    /// The number of samples.
    pub n: u64,
}

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&PERCENTILE];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Times, of which many are alike, with zeros, outliers and numbers below zero among them.
    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![
            8 => 1e-3..1e3_f64,
            4 => (0_u8..20).prop_map(f64::from),
            1 => Just(-0.0),
            1 => -1e3..1e3_f64,
            1 => any::<i32>().prop_map(|e| 10_f64.powi(e % 99)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Digits change how the order is found, not the order.
        #[test]
        fn digits_sort_as_comparisons_do(
            numbers in prop::collection::vec(number(), 500..3000),
            alike in any::<bool>(),
        ) {
            let numbers: Vec<f64> =
                numbers.into_iter().map(|x| if alike { x.signum() } else { x }).collect();
            let mut sorted = numbers.clone();
            sort(&mut sorted);
            let mut want = numbers.clone();
            want.sort_by(f64::total_cmp);
            prop_assert!(sorted.iter().zip(&want).all(|(a, b)| a.total_cmp(b).is_eq()));
            let mut places = places(&numbers);
            let in_order: Vec<f64> = want.iter().map(|x| x + 0.0).collect();
            let placed: Vec<f64> = places.iter().map(|p| super::number(p.0)).collect();
            prop_assert_eq!(placed, in_order);
            prop_assert!(places.iter().all(|&(key, i)| key == ordered(numbers[i])));
            places.sort_by_key(|p| p.1);
            prop_assert!(places.iter().enumerate().all(|(i, p)| i == p.1));
        }
    }
}
