//! Percentiles in bounded memory, with a bound on their error, that can be merged.
//!
//! A [`Sketch`] counts samples in buckets whose width grows with the value (HdrHistogram with three
//! digits). Number, sum, smallest and largest sample are exact, whatever the order in which samples
//! came and sketches were merged: the same samples give the same sketch, bit for bit.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, within};
use crate::summary::{PercentileMethod, of_order_statistics, sum};

/// Largest relative error of a sample as a sketch gives it back, and so of a percentile.
///
/// With three digits a bucket has at most 1/1024 of its smallest value as width, and a sample is
/// given back as the middle of its bucket. A sample is rounded to the sketch's unit before that.
///
/// Source: HdrHistogram, `src/lib.rs` of the crate `hdrhistogram` 7.6.0: 2,048 sub-buckets for 3
/// significant digits.
pub const RELATIVE_ERROR: f64 = 1.0 / 2048.0;

/// Digits that the buckets keep.
const DIGITS: u8 = 3;

/// The largest sample in units of the sketch.
const LARGEST_UNITS: f64 = 9.0e18;

/// What one unit of a sketch's buckets is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// A picosecond, for samples in seconds: up to 104 days.
    Picosecond,
    /// One, for counts.
    One,
}

impl Scale {
    const fn per_one(self) -> f64 {
        match self {
            Self::Picosecond => 1e12,
            Self::One => 1.0,
        }
    }

    /// The largest sample.
    const fn largest(self) -> f64 {
        LARGEST_UNITS / self.per_one()
    }

    /// A sample between 0 and the largest in whole units.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
    fn units(self, value: f64) -> u64 {
        (value * self.per_one()).round() as u64
    }
}

/// Samples of one quantity in bounded memory.
///
/// # Examples
///
/// ```
/// use metrics_core::sketch::{RELATIVE_ERROR, Scale, Sketch};
/// use metrics_core::summary::PercentileMethod;
///
/// let mut even = Sketch::new(Scale::Picosecond)?;
/// let mut odd = even.clone();
/// for i in 1..=500 {
///     even.record(f64::from(2 * i) * 0.001)?;
///     odd.record(f64::from(2 * i - 1) * 0.001)?;
/// }
/// even.merge(&odd)?;
/// let p99 = even.percentile_by(0.99, PercentileMethod::NearestRank)?.expect("it has samples");
/// assert!((p99 - 0.990).abs() <= RELATIVE_ERROR * 0.990);
/// assert_eq!((even.n(), even.max()), (1000, Some(1.0)));
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Sketch {
    scale: Scale,
    counts: Histogram<u64>,
    sum: ExactSum,
    /// Smallest and largest sample.
    range: Option<(f64, f64)>,
}

impl Sketch {
    /// Without samples.
    ///
    /// # Errors
    ///
    /// None in practice: the number of digits is valid.
    pub fn new(scale: Scale) -> Result<Self> {
        let counts = Histogram::new(DIGITS).map_err(|e| broken(&e))?;
        Ok(Self { scale, counts, sum: ExactSum::default(), range: None })
    }

    /// Adds a sample.
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`] below 0, [`Error::TooLarge`] beyond what a bucket can count.
    pub fn record(&mut self, value: f64) -> Result<()> {
        self.record_times(value, 1)
    }

    /// Adds `n` equal samples.
    ///
    /// # Errors
    ///
    /// As [`Sketch::record`].
    pub fn record_times(&mut self, value: f64, n: u64) -> Result<()> {
        let value = within("a sample of a sketch", value, 0.0, self.scale.largest())? + 0.0;
        if n == 0 {
            return Ok(());
        }
        self.counts.record_n(self.scale.units(value), n).map_err(|e| broken(&e))?;
        self.sum.add_times(value, n);
        let (low, high) = self.range.unwrap_or((value, value));
        self.range = Some((low.min(value), high.max(value)));
        Ok(())
    }

    /// Adds the samples of another sketch: the order of merging does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] if the units differ, or the counts pass 64 bits.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.scale != other.scale {
            let what = "sketches of different units cannot be merged".to_owned();
            return Err(Error::Contradiction { what });
        }
        self.counts.add(&other.counts).map_err(|e| broken(&e))?;
        self.sum.merge(&other.sum);
        self.range = match (self.range, other.range) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
        Ok(())
    }

    /// How many samples there are.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.counts.len()
    }

    /// The smallest sample, exactly.
    #[must_use]
    pub fn min(&self) -> Option<f64> {
        self.range.map(|r| r.0)
    }

    /// The largest sample, exactly.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.range.map(|r| r.1)
    }

    /// The sum of the samples, rounded once.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum.value()
    }

    /// The mean, which is exact to the last bits.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let (low, high) = self.range?;
        Some((self.sum.value() / self.n() as f64).clamp(low, high))
    }

    /// The percentile at the fraction `p`, off by [`RELATIVE_ERROR`] at most; `None` without
    /// samples.
    ///
    /// The definitions are those of [`percentile_by`](crate::summary::percentile_by), with each
    /// sample as the sketch gives it back.
    ///
    /// # Errors
    ///
    /// [`Error`] unless `0 <= p <= 1`.
    pub fn percentile_by(&self, p: f64, method: PercentileMethod) -> Result<Option<f64>> {
        let p = within("p", p, 0.0, 1.0)?;
        let Some((low, high)) = self.range else { return Ok(None) };
        let n = usize::try_from(self.n()).unwrap_or(usize::MAX);
        Ok(Some(of_order_statistics(n, p, method, |i| self.sample(i as u64).clamp(low, high))))
    }

    /// The sample of that place in ascending order, from 0.
    fn sample(&self, place: u64) -> f64 {
        let mut before = 0;
        for bucket in self.counts.iter_recorded() {
            before += bucket.count_since_last_iteration();
            if place < before {
                let middle = self.counts.median_equivalent(bucket.value_iterated_to());
                return middle as f64 / self.scale.per_one();
            }
        }
        f64::INFINITY
    }
}

/// Checks of a sketch that was read.
impl Sketch {
    /// The scale of its buckets.
    pub(crate) fn scale(&self) -> Scale {
        self.scale
    }

    /// Whether the smallest and largest sample lie in the first and last bin.
    fn holds_its_range(&self) -> bool {
        let Some((low, high)) = self.range else { return true };
        if self.scale.largest() < high {
            return false;
        }
        let mut bins = self.counts.iter_recorded().map(|b| b.value_iterated_to());
        let first = bins.next();
        let last = bins.last().or(first);
        let in_bin = |bin: Option<u64>, value: f64| {
            bin.is_some_and(|bin| self.counts.equivalent(bin, self.scale.units(value)))
        };
        in_bin(first, low) && in_bin(last, high)
    }

    /// Whether the sum is one that samples in these bins can have.
    fn holds_its_sum(&self) -> bool {
        let per_one = self.scale.per_one();
        let bound = |of: fn(&Histogram<u64>, u64) -> u64, beside: f64| {
            sum(self.counts.iter_recorded().map(|b| {
                let value = of(&self.counts, b.value_iterated_to()) as f64 + beside;
                value.max(0.0) * b.count_since_last_iteration() as f64 / per_one
            }))
        };
        // A sample is rounded to whole units before it falls into a bin.
        let low = bound(Histogram::lowest_equivalent, -0.5);
        let high = bound(Histogram::highest_equivalent, 0.5);
        let (least, most) = (low * (1.0 - 1e-9), high * (1.0 + 1e-9));
        (least..=most).contains(&self.sum.value())
    }
}

/// What the histogram says, which no input that was checked before can make it say.
fn broken(e: &dyn std::fmt::Display) -> Error {
    Error::Contradiction { what: format!("a sketch cannot count further: {e}") }
}

/// A sketch in a file: the buckets that hold samples, by their smallest value in units.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    unit: Scale,
    digits: u8,
    min: Option<f64>,
    max: Option<f64>,
    sum: ExactSum,
    counts: Vec<(u64, u64)>,
}

impl From<Sketch> for Wire {
    fn from(s: Sketch) -> Self {
        let bucket = |value: u64| s.counts.lowest_equivalent(value);
        let counts = s.counts.iter_recorded();
        let counts =
            counts.map(|b| (bucket(b.value_iterated_to()), b.count_since_last_iteration()));
        let counts = counts.collect();
        Self { unit: s.scale, digits: DIGITS, min: s.min(), max: s.max(), sum: s.sum, counts }
    }
}

impl TryFrom<Wire> for Sketch {
    type Error = Error;

    fn try_from(wire: Wire) -> Result<Self> {
        let wrong = |what: &str| Err(Error::Contradiction { what: what.to_owned() });
        if wire.digits != DIGITS {
            return wrong("the sketch has another number of digits");
        }
        let mut sketch = Self::new(wire.unit)?;
        let mut last = None;
        for (value, count) in wire.counts {
            let bucket = sketch.counts.lowest_equivalent(value);
            if bucket != value || count == 0 || last.is_some_and(|last| value <= last) {
                return wrong("the sketch's bins are not ascending, each once");
            }
            last = Some(value);
            sketch.counts.record_n(value, count).map_err(|e| broken(&e))?;
        }
        sketch.sum = wire.sum;
        sketch.range = match (wire.min, wire.max) {
            (None, None) if sketch.n() == 0 => None,
            (Some(min), Some(max)) if 0 < sketch.n() && 0.0 <= min && min <= max => {
                Some((min, max))
            }
            _ => return wrong("the sketch's range does not fit its counts"),
        };
        if !sketch.holds_its_range() {
            return wrong("the sketch's range does not fit its counts");
        }
        if !sketch.holds_its_sum() {
            return wrong("the sketch's sum does not fit its counts");
        }
        Ok(sketch)
    }
}

/// A sum of numbers of at least 0 that is the same in whatever order they come.
///
/// Each number is added as a whole number to one of the bins, by its binary exponent; 2^43 numbers
/// fit before a bin could overflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(usize, String)>", into = "Vec<(usize, String)>")]
pub struct ExactSum {
    /// Bin k counts multiples of 2^(32 k - 1075).
    bins: Vec<i128>,
}

/// Binary exponents in a bin.
const EXPONENTS: u64 = 32;
/// Bins that cover every number.
const BINS: usize = 64;

impl ExactSum {
    /// Adds a number that is finite and at least 0.
    pub fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let (exponent, fraction) = (bits >> 52, bits & ((1 << 52) - 1));
        let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        if mantissa == 0 {
            return;
        }
        let exponent = exponent.max(1);
        let bin = usize::try_from(exponent / EXPONENTS).unwrap_or(0);
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, 0);
        }
        if let Some(sum) = self.bins.get_mut(bin) {
            *sum = sum.saturating_add(i128::from(mantissa) << (exponent % EXPONENTS));
        }
    }

    /// Adds such a number `n` times.
    pub fn add_times(&mut self, value: f64, n: u64) {
        // A number times a power of two is exact, so n is taken by its binary digits.
        let mut part = value;
        let mut rest = n;
        while 0 < rest {
            if rest % 2 == 1 {
                self.add(part);
            }
            part *= 2.0;
            rest /= 2;
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        if self.bins.len() < other.bins.len() {
            self.bins.resize(other.bins.len(), 0);
        }
        for (sum, more) in self.bins.iter_mut().zip(&other.bins) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// The sum, rounded from the exact one.
    #[must_use]
    pub fn value(&self) -> f64 {
        let parts = self.bins.iter().zip(0_i32..).map(|(&count, bin)| {
            // What stands below the normal numbers counts for nothing beside any time or count.
            let exponent = 32 * bin - 1075;
            let unit = if exponent < -1022 { 0.0 } else { 2.0_f64.powi(exponent) };
            count as f64 * unit
        });
        sum(parts)
    }
}

impl From<ExactSum> for Vec<(usize, String)> {
    fn from(sum: ExactSum) -> Self {
        let bins = sum.bins.iter().enumerate().filter(|(_, n)| **n != 0);
        bins.map(|(bin, n)| (bin, n.to_string())).collect()
    }
}

impl TryFrom<Vec<(usize, String)>> for ExactSum {
    type Error = Error;

    fn try_from(parts: Vec<(usize, String)>) -> Result<Self> {
        let mut bins = Vec::new();
        for (bin, text) in parts {
            let count = text.parse().ok().filter(|n: &i128| 0 <= *n && bin < BINS);
            let Some(count) = count else {
                let what = format!("`{text}` in bin {bin} is no part of a sum");
                return Err(Error::Contradiction { what });
            };
            if bin < bins.len() || count == 0 {
                let what = format!("bin {bin} of a sum is empty, or not in ascending order");
                return Err(Error::Contradiction { what });
            }
            bins.resize(bin, 0);
            bins.push(count);
        }
        Ok(Self { bins })
    }
}
