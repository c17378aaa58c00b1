//! How many requests are in flight, exactly, from the intervals in which they are.

use crate::error::{Error, Result, above, difference, finite};
use crate::summary::sort;
use crate::units::{Requests, Seconds};

/// Requests in flight over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InFlight {
    /// The time mean: the area under the number in flight, divided by the window.
    pub mean: Requests,
    /// The largest number at any instant; a request that ends when another starts has left.
    pub peak: u64,
}

/// The exact mean and peak number of requests in flight.
///
/// `intervals` has for each request the instants at which it entered and left, in seconds from
/// one origin; `t_total` is the length of the window over which the mean is taken. Counting the
/// requests that touch a one-second bucket, as some tools do, can print 20 where the peak is 2.
///
/// # Errors
///
/// [`Error::Empty`] without intervals, [`Error::NotFinite`] or [`Error::Order`] for a broken one,
/// [`Error::NotAbove`] if `t_total` is 0.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, concurrency::in_flight};
///
/// let spans = [(0.0, 4.0), (0.0, 4.0), (1.0, 3.0), (1.0, 3.0), (3.0, 4.0)];
/// let n = in_flight(spans, Seconds::new(4.0)?)?;
/// assert_eq!((n.peak, n.mean.get()), (4, 3.25)); // (4 + 4 + 2 + 2 + 1) / 4
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Little's law on a sample path: the area under the count is the sum of the stays.
pub fn in_flight(
    intervals: impl IntoIterator<Item = (f64, f64)>,
    t_total: Seconds,
) -> Result<InFlight> {
    let mut area = 0.0;
    let intervals = intervals.into_iter();
    let room = intervals.size_hint().0;
    let (mut starts, mut ends) = (Vec::with_capacity(room), Vec::with_capacity(room));
    for (start, end) in intervals {
        area += difference(("end", finite("end", end)?), ("start", finite("start", start)?))?;
        starts.push(start);
        ends.push(end);
    }
    if starts.is_empty() {
        return Err(Error::Empty { input: "intervals", item: "request" });
    }
    let t_total = above("t_total", t_total.get(), 0.0)?;
    // Two sorts of plain numbers are several times faster than one of tagged edges.
    sort(&mut starts);
    sort(&mut ends);
    let (mut left, mut peak) = (0, 0);
    for (entered, start) in (1..).zip(&starts) {
        // At one instant leavers go first, so that back-to-back requests do not count as two.
        while ends.get(left).is_some_and(|end| end.total_cmp(start).is_le()) && left < entered {
            left += 1;
        }
        peak = peak.max(entered - left);
    }
    Ok(InFlight { mean: Requests::new(area / t_total)?, peak: peak as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// The peak is reached at some request's start, so counting there by brute force finds it.
        #[test]
        fn the_peak_is_what_counting_at_every_start_finds(
            spans in proptest::collection::vec((0_u8..20, 0_u8..10), 1..30),
        ) {
            let spans: Vec<(f64, f64)> =
                spans.iter().map(|&(s, d)| (f64::from(s), f64::from(s) + f64::from(d))).collect();
            let count = |t: f64| spans.iter().filter(|(s, e)| *s <= t && t < *e).count();
            let brute = spans.iter().map(|(s, _)| count(*s)).max().unwrap();
            let n = in_flight(spans.iter().copied(), Seconds::new(30.0).unwrap()).unwrap();
            proptest::prop_assert_eq!(n.peak, brute as u64);
            // Whole bounds make the time mean a plain sum over unit intervals.
            let area: usize = (0..30).map(|i| count(f64::from(i) + 0.5)).sum();
            proptest::prop_assert!((n.mean.get() - area as f64 / 30.0).abs() < 1e-12);
        }
    }

    #[test]
    fn broken_intervals_are_named() {
        let t = Seconds::new(1.0).unwrap();
        let say = |r: Result<InFlight>| r.unwrap_err().to_string();
        assert_eq!(say(in_flight([], t)), "intervals must hold at least one request, got none");
        assert_eq!(say(in_flight([(2.0, 1.0)], t)), "end must be at least start = 2, got 1");
        assert_eq!(say(in_flight([(0.0, 1.0)], Seconds::ZERO)), "t_total must be above 0, got 0");
        assert!(in_flight([(0.0, f64::NAN)], t).is_err());
    }
}
