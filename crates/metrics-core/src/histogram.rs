//! Histograms with fixed buckets, as engines export them: what they tell exactly, and how coarse
//! the rest is.
//!
//! Counts, means and the share up to a bucket's bound are exact. A quantile is only known to lie
//! in one bucket, so the answer is a [`Range`]; a [`point`](Histogram::point) within it is given
//! only where the bucket is narrow. Percentiles of several servers do not average, but histograms
//! with the same bounds add up ([`Histogram::plus`]), and two of one server, taken one after the
//! other, differ ([`Histogram::since`]).

use crate::error::{Error, Result, above, finite, within};

/// Two ends between which a value lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The value is not below it.
    pub low: f64,
    /// The value is not above it; `None` if nothing bounds it.
    pub high: Option<f64>,
}

impl Range {
    /// A value that is known.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self { low: value, high: Some(value) }
    }

    /// Whether both ends are one value.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.high == Some(self.low)
    }
}

/// Counts of observations by cumulative buckets; observations are not negative.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: Vec<f64>,
    /// Observations up to each bound.
    up_to: Vec<u64>,
    count: u64,
    sum: Option<f64>,
}

/// The ratio of a bucket's ends above which a value within it says too little.
pub const WIDE: f64 = 2.0;

impl Histogram {
    /// A histogram from the finite upper bounds of its buckets, how many observations lie up to
    /// each, how many there are at all, and their sum, if it is exported.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] if the two lists differ in length, counts fall, or observations
    /// that are not negative have a negative sum; [`Error::NotAbove`] if bounds do not increase;
    /// [`Error::NotFinite`] for a bound or a sum that is no number.
    ///
    /// # Examples
    ///
    /// ```
    /// use metrics_core::histogram::{Histogram, Range};
    ///
    /// // 1,000 requests, all below the first bound of 0.3 s.
    /// let h = Histogram::new(vec![0.3, 0.5], vec![1000, 1000], 1000, Some(40.0))?;
    /// assert_eq!(h.mean(), Some(0.04));
    /// assert_eq!(h.quantile(0.99)?, Some(Range { low: 0.0, high: Some(0.3) }));
    /// assert_eq!(h.point(0.99)?, None); // interpolation would say 0.297, whatever the truth is
    /// # Ok::<(), metrics_core::Error>(())
    /// ```
    pub fn new(bounds: Vec<f64>, up_to: Vec<u64>, count: u64, sum: Option<f64>) -> Result<Self> {
        let contradiction = |what: String| Err(Error::Contradiction { what });
        if bounds.len() != up_to.len() {
            let (b, c) = (bounds.len(), up_to.len());
            return contradiction(format!("{b} bucket bounds but {c} counts"));
        }
        let mut before: Option<f64> = None;
        for &bound in &bounds {
            finite("a bucket's bound", bound)?;
            if let Some(before) = before {
                above("a bucket's bound", bound, before)?;
            }
            before = Some(bound);
        }
        let mut last = 0;
        for &n in up_to.iter().chain([&count]) {
            if n < last {
                return contradiction(format!(
                    "a bucket of {n} after one of {last}: counts are cumulative and do not fall"
                ));
            }
            last = n;
        }
        if let Some(sum) = sum {
            finite("the sum of a histogram", sum)?;
        }
        Ok(Self { bounds, up_to, count, sum })
    }

    /// How many observations there are.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub const fn sum(&self) -> Option<f64> {
        self.sum
    }

    /// The finite bounds of the buckets.
    #[must_use]
    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Their mean, exactly; nothing without an observation.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let sum = self.sum.filter(|_| 0 < self.count)?;
        Some(sum / self.count as f64)
    }

    /// Whether every observation was 0, so that only the count says anything: an engine that
    /// exports a latency it does not measure.
    #[must_use]
    pub fn is_all_zero(&self) -> bool {
        0 < self.count && self.sum == Some(0.0)
    }

    /// The bucket that holds the quantile, as the observation of rank ⌈q·n⌉, counted from 1.
    ///
    /// Nothing without an observation, or if every one of them was 0.
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`] or [`Error::TooLarge`] unless `0 <= q <= 1`.
    pub fn quantile(&self, q: f64) -> Result<Option<Range>> {
        Ok(self.bucket(q)?.map(|(range, _)| range))
    }

    /// The bucket of the quantile, and its index.
    fn bucket(&self, q: f64) -> Result<Option<(Range, usize)>> {
        within("q", q, 0.0, 1.0)?;
        if self.count == 0 || self.is_all_zero() {
            return Ok(None);
        }
        let rank = (q * self.count as f64).ceil().max(1.0);
        let i = self.up_to.partition_point(|&n| (n as f64) < rank);
        let low = i.checked_sub(1).and_then(|i| self.bounds.get(i)).copied().unwrap_or(0.0);
        let high = self.bounds.get(i).copied();
        // Below a first bound under 0 there is no lower end that observations keep.
        let low = high.map_or(low, |high| low.min(high));
        Ok(Some((Range { low, high }, i)))
    }

    /// The quantile by interpolation within its bucket, as Prometheus' `histogram_quantile`; none
    /// where that would be a guess: beyond the last bound, in the last bucket that has one, or in a
    /// bucket whose ends are more than a factor of [`WIDE`] apart.
    ///
    /// # Errors
    ///
    /// As [`quantile`](Self::quantile).
    pub fn point(&self, q: f64) -> Result<Option<f64>> {
        let Some((Range { low, high: Some(high) }, i)) = self.bucket(q)? else { return Ok(None) };
        if self.bounds.len() <= i + 1 || WIDE * low < high {
            return Ok(None);
        }
        let below = i.checked_sub(1).and_then(|i| self.up_to.get(i)).copied().unwrap_or(0);
        let inside = self.up_to.get(i).copied().unwrap_or(0).saturating_sub(below);
        let share = (q * self.count as f64 - below as f64) / inside as f64;
        Ok(Some(low + (high - low) * share.clamp(0.0, 1.0)))
    }

    /// The share of the observations that are at most `limit`: exact if `limit` is a bound of a
    /// bucket, else between the shares of its neighbours.
    ///
    /// # Errors
    ///
    /// [`Error::NotFinite`] for a limit that is no number.
    ///
    /// # Examples
    ///
    /// ```
    /// use metrics_core::histogram::{Histogram, Range};
    ///
    /// let h = Histogram::new(vec![0.25, 0.5], vec![18, 41], 60, None)?;
    /// assert_eq!(h.share_up_to(0.25)?, Some(Range::exactly(0.3)));
    /// let between = h.share_up_to(0.3)?.expect("there are observations");
    /// assert_eq!((between.low, between.high), (0.3, Some(41.0 / 60.0)));
    /// # Ok::<(), metrics_core::Error>(())
    /// ```
    pub fn share_up_to(&self, limit: f64) -> Result<Option<Range>> {
        finite("limit", limit)?;
        if self.count == 0 {
            return Ok(None);
        }
        let n = self.count as f64;
        // The first bound that is not below the limit.
        let i = self.bounds.partition_point(|&b| b < limit);
        let share = |i: usize| self.up_to.get(i).map_or(1.0, |&x| x as f64 / n);
        let low = i.checked_sub(1).map_or(0.0, share);
        Ok(Some(match self.bounds.get(i) {
            Some(&bound) if bound == limit => Range::exactly(share(i)),
            _ => Range { low, high: Some(share(i)) },
        }))
    }

    /// Both histograms together, for servers that share a load.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] if their bounds differ: such histograms do not add up, and their
    /// percentiles do not average.
    pub fn plus(&self, other: &Self) -> Result<Self> {
        self.with(other, "add up", u64::checked_add, |a, b| a + b)
    }

    /// What was observed since `earlier`.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] if the bounds differ, or if a count fell: the server was restarted
    /// in between, or the two were given in the wrong order.
    pub fn since(&self, earlier: &Self) -> Result<Self> {
        // Differences of large sums can miss 0 by their rounding.
        self.with(earlier, "differ", u64::checked_sub, |a, b| (a - b).max(0.0))
    }

    fn with(
        &self,
        other: &Self,
        verb: &str,
        counts: impl Fn(u64, u64) -> Option<u64>,
        sums: impl Fn(f64, f64) -> f64,
    ) -> Result<Self> {
        let contradiction = |what: String| Error::Contradiction { what };
        if self.bounds != other.bounds {
            return Err(contradiction(format!(
                "the bounds of the buckets differ, so the histograms do not {verb}"
            )));
        }
        let each = |a: u64, b: u64| {
            counts(a, b)
                .ok_or_else(|| contradiction(format!("a count of {a} against {b}: it went back")))
        };
        let up_to: Result<Vec<u64>> =
            self.up_to.iter().zip(&other.up_to).map(|(&a, &b)| each(a, b)).collect();
        let sum = match (self.sum, other.sum) {
            (Some(a), Some(b)) => Some(sums(a, b)),
            _ => None,
        };
        Self::new(self.bounds.clone(), up_to?, each(self.count, other.count)?, sum)
    }
}

/// Between which shares the joint share lies, if each of several objectives alone is met by these:
/// what marginal histograms tell of goodput.
///
/// All misses may fall on the same requests or on different ones: `max(0, Σaᵢ − (k − 1))` to
/// `min aᵢ`. Nothing without an objective.
///
/// # Errors
///
/// [`Error::TooSmall`] or [`Error::TooLarge`] unless every share lies in 0 to 1.
///
/// # Examples
///
/// ```
/// use metrics_core::histogram::{Range, joint_share};
///
/// let joint = joint_share(&[Range::exactly(0.75), Range::exactly(0.5)])?;
/// assert_eq!(joint, Some(Range { low: 0.25, high: Some(0.5) }));
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Fréchet, *Généralisation du théorème des probabilités totales*, 1935.
pub fn joint_share(shares: &[Range]) -> Result<Option<Range>> {
    let (mut misses, mut least) = (0.0, 1.0_f64);
    for share in shares {
        let high = share.high.unwrap_or(1.0);
        misses += 1.0 - within("a share", share.low, 0.0, 1.0)?;
        least = least.min(within("a share", high, 0.0, 1.0)?);
    }
    let low = (1.0 - misses).max(0.0).min(least);
    Ok((!shares.is_empty()).then_some(Range { low, high: Some(least) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn observed(bounds: &[f64], values: &[f64]) -> Histogram {
        let up_to =
            bounds.iter().map(|b| values.iter().filter(|v| *v <= b).count() as u64).collect();
        let sum = Some(values.iter().sum());
        Histogram::new(bounds.to_vec(), up_to, values.len() as u64, sum).unwrap()
    }

    const BOUNDS: [f64; 6] = [0.01, 0.02, 0.03, 0.1, 0.15, 1.0];

    proptest! {
        /// The bucket holds the sample of that rank, and a point lies in its bucket.
        #[test]
        fn a_quantile_lies_in_its_bucket(
            mut values in prop::collection::vec(0.001..2.0_f64, 1..60),
            q in 0.0..=1.0_f64,
            limit in 0.001..2.0_f64,
        ) {
            let h = observed(&BOUNDS, &values);
            values.sort_by(f64::total_cmp);
            let n = values.len() as f64;
            let truth = values.iter().enumerate().find(|(i, _)| q * n <= *i as f64 + 1.0).unwrap().1;
            let truth = *truth;
            let range = h.quantile(q).unwrap().unwrap();
            prop_assert!(range.low <= truth && range.high.is_none_or(|x| truth <= x));
            if let Some(x) = h.point(q).unwrap() {
                prop_assert!(range.low <= x && range.high.is_some_and(|high| x <= high));
            }
            let share = values.iter().filter(|v| **v <= limit).count() as f64 / values.len() as f64;
            let found = h.share_up_to(limit).unwrap().unwrap();
            prop_assert!(found.low <= share && found.high.is_some_and(|high| share <= high));
        }

        /// What two servers observe is observed by both together, and taking one away leaves the
        /// other.
        #[test]
        fn histograms_of_the_same_bounds_add_up(
            a in prop::collection::vec(0.001..2.0_f64, 0..30),
            b in prop::collection::vec(0.001..2.0_f64, 0..30),
        ) {
            let both: Vec<f64> = a.iter().chain(&b).copied().collect();
            let (a, b, both) = (observed(&BOUNDS, &a), observed(&BOUNDS, &b), observed(&BOUNDS, &both));
            let sum = a.plus(&b).unwrap();
            prop_assert_eq!(&sum.up_to, &both.up_to);
            prop_assert_eq!(sum.count, both.count);
            prop_assert_eq!(sum.since(&b).unwrap().up_to, a.up_to);
        }

        /// The joint share of any two objectives lies in the bounds of their marginals.
        #[test]
        fn the_joint_share_lies_in_its_bounds(met in prop::collection::vec(any::<(bool, bool)>(), 1..50)) {
            let n = met.len() as f64;
            let share = |f: &dyn Fn(&(bool, bool)) -> bool| met.iter().filter(|x| f(x)).count() as f64 / n;
            let marginals = [share(&|x| x.0), share(&|x| x.1)].map(Range::exactly);
            let joint = share(&|x| x.0 && x.1);
            let bounds = joint_share(&marginals).unwrap().unwrap();
            prop_assert!(bounds.low <= joint + 1e-12 && joint <= bounds.high.unwrap());
        }
    }

    /// All values were 0 (an engine that does not measure it): 0.00099 would be made up.
    #[test]
    fn a_histogram_of_zeros_has_no_quantile() {
        let h =
            Histogram::new(vec![0.001, 0.005, 1.0], vec![208, 208, 208], 208, Some(0.0)).unwrap();
        assert!(h.is_all_zero());
        assert_eq!(h.quantile(0.99).unwrap(), None);
        assert_eq!(h.point(0.99).unwrap(), None);
    }

    /// By hand, 10 observations: 4 up to 10 ms, 8 up to 15 ms, 9 up to 1 s. The median is rank 5,
    /// in 10 to 15 ms, a quarter of the way in: 11.25 ms.
    #[test]
    fn a_point_is_given_only_in_a_narrow_bucket() {
        let h = Histogram::new(vec![0.01, 0.015, 1.0, 2.0], vec![4, 8, 9, 9], 10, None).unwrap();
        assert_eq!(h.point(0.5).unwrap(), Some(0.01 + 0.005 * 0.25));
        assert_eq!(h.quantile(0.5).unwrap(), Some(Range { low: 0.01, high: Some(0.015) }));
        // 15 ms to 1 s says nothing, and beyond 2 s there is no end.
        assert_eq!(h.point(0.9).unwrap(), None);
        assert_eq!(h.quantile(0.99).unwrap(), Some(Range { low: 2.0, high: None }));
        assert_eq!(h.mean(), None);
    }

    #[test]
    fn histograms_that_cannot_be_are_refused_by_name() {
        let say = |r: Result<Histogram>| r.unwrap_err().to_string();
        assert_eq!(
            say(Histogram::new(vec![1.0, 1.0], vec![1, 1], 1, None)),
            "a bucket's bound must be above 1, got 1"
        );
        assert_eq!(
            say(Histogram::new(vec![1.0, 2.0], vec![5, 3], 6, None)),
            "a bucket of 3 after one of 5: counts are cumulative and do not fall"
        );
        assert!(Histogram::new(vec![1.0], vec![], 0, None).is_err());
        let (a, b) = (observed(&[1.0], &[0.5]), observed(&[2.0], &[0.5]));
        assert!(say(a.plus(&b)).contains("do not add up"));
        assert_eq!(say(observed(&[1.0], &[]).since(&a)), "a count of 0 against 1: it went back");
        assert!(a.quantile(1.5).is_err());
    }
}
