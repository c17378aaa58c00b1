//! Where a run is steady: between ramp and drain, and the rates there.
//!
//! A run begins with nobody in flight and ends so. Over the whole window the rates are therefore
//! too low, the more so the shorter the run; between ramp and drain they are those of the load.

use crate::error::{Error, Result, difference, finite};
use crate::summary::sort;

/// How near the usual number in flight a run has to be to count as steady.
pub const STEADY_SHARE: f64 = 0.9;

/// One request as it was in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stay {
    /// When it was sent, in seconds from any origin.
    pub from_s: f64,
    /// When its first token came, if known.
    pub first_token_s: Option<f64>,
    /// When it ended.
    pub to_s: f64,
    /// Its output tokens, if known.
    pub output_tokens: Option<u64>,
    /// Whether it completed: only those count in the rates, all of them in flight.
    pub completed: bool,
}

/// The steady stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Its begin, in seconds from the first send.
    pub from_s: f64,
    /// Its end, in seconds from the first send.
    pub to_s: f64,
    /// From the first send to the last end, or the window that is judged, in seconds.
    pub span_s: f64,
    /// The number in flight from which on the run counts as steady.
    pub level: f64,
    /// The number that is in flight or fewer during half of the time.
    pub median_in_flight: u64,
    /// Mean number in flight within the stretch.
    pub in_flight: f64,
    /// The largest number in flight.
    pub peak: u64,
    /// Completed requests, each by the share of its stay that lies within the stretch.
    pub requests: f64,
    /// Requests per second within the stretch.
    pub requests_per_s: f64,
    /// Output tokens per second within the stretch, where all token counts and times are known.
    pub output_tokens_per_s: Option<f64>,
}

impl Steady {
    /// The length of the stretch in seconds, above zero.
    #[must_use]
    pub fn length_s(&self) -> f64 {
        self.to_s - self.from_s
    }

    /// The share of the run that it takes.
    #[must_use]
    pub fn share(&self) -> f64 {
        (self.length_s() / self.span_s).min(1.0)
    }
}

/// The number in flight over the time of a run, as a step function.
///
/// # Examples
///
/// ```
/// use metrics_core::steady::{Profile, Stay};
///
/// let stay = |from_s, to_s| Stay {
///     from_s,
///     first_token_s: None,
///     to_s,
///     output_tokens: None,
///     completed: true,
/// };
/// // Two clients, three requests each of 1 s; the second client starts 0.5 s late.
/// let stays: Vec<Stay> =
///     (0..3).flat_map(|i| [stay(f64::from(i), f64::from(i + 1)), stay(f64::from(i) + 0.5, f64::from(i) + 1.5)]).collect();
/// let profile = Profile::new(stays.iter().copied())?;
/// assert_eq!((profile.peak(), profile.median()), (2, 2));
/// let steady = profile.steady(stays, Some(2)).expect("it is steady in between");
/// assert_eq!((steady.from_s, steady.to_s), (0.5, 3.0));
/// assert!((steady.requests_per_s - 2.0).abs() < 1e-12); // 6 in 3.5 s would be 1.71
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Begins, ascending.
    from: Vec<f64>,
    /// Ends, ascending.
    to: Vec<f64>,
    /// For each number in flight the time for which it was that number.
    time_at: Vec<f64>,
}

impl Profile {
    /// The profile of these stays.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] without stays, [`Error::NotFinite`] or [`Error::Order`] for a broken one.
    pub fn new(stays: impl IntoIterator<Item = Stay>) -> Result<Self> {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for s in stays {
            let (a, b) = (finite("the begin of a stay", s.from_s)?, finite("its end", s.to_s)?);
            difference(("the end of a stay", b), ("its begin", a))?;
            from.push(a);
            to.push(b);
        }
        if from.is_empty() {
            return Err(Error::Empty { input: "stays", item: "request" });
        }
        // Two sorts of plain numbers are several times faster than one of tagged edges.
        sort(&mut from);
        sort(&mut to);
        let mut profile = Self { from, to, time_at: Vec::new() };
        let mut time_at: Vec<f64> = Vec::new();
        profile.walk(|number, begin, end| {
            if time_at.len() <= number {
                time_at.resize(number + 1, 0.0);
            }
            if let Some(time) = time_at.get_mut(number) {
                *time += end - begin;
            }
        });
        profile.time_at = time_at;
        Ok(profile)
    }

    /// Visits the stretches of one number in flight, in order of time; at one instant those that
    /// leave go first.
    fn walk(&self, mut visit: impl FnMut(usize, f64, f64)) {
        let (mut entered, mut left) = (0, 0);
        let mut at = self.begin();
        while let Some(&leaves) = self.to.get(left) {
            let enters = self.from.get(entered).copied().filter(|&enters| enters < leaves);
            let next = enters.unwrap_or(leaves);
            if at < next {
                visit(entered - left, at, next);
                at = next;
            }
            if enters.is_some() {
                entered += 1;
            } else if entered == left {
                // A stay of no length ends where it begins.
                entered += 1;
                left += 1;
            } else {
                left += 1;
            }
        }
    }

    /// The first begin.
    #[must_use]
    pub fn begin(&self) -> f64 {
        self.from.first().copied().unwrap_or(0.0)
    }

    /// The last end.
    #[must_use]
    pub fn end(&self) -> f64 {
        self.to.last().copied().unwrap_or(0.0)
    }

    /// The last begin.
    #[must_use]
    pub fn last_begin(&self) -> f64 {
        self.from.last().copied().unwrap_or(0.0)
    }

    /// The largest number in flight for any time.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.time_at.len().saturating_sub(1) as u64
    }

    /// The number that is in flight or fewer during half of the time.
    #[must_use]
    pub fn median(&self) -> u64 {
        let half = self.time_at.iter().sum::<f64>() / 2.0;
        let mut sum = 0.0;
        for (number, time) in self.time_at.iter().enumerate() {
            sum += time;
            if half <= sum {
                return number as u64;
            }
        }
        self.peak()
    }

    /// The share of the time in which at least `number` were in flight; none without any time.
    #[must_use]
    pub fn share_at_least(&self, number: u64) -> Option<f64> {
        let total: f64 = self.time_at.iter().sum();
        let skip = usize::try_from(number).unwrap_or(usize::MAX);
        (0.0 < total).then(|| self.time_at.iter().skip(skip).sum::<f64>() / total)
    }

    /// How many are in flight at an instant; those that leave at it have left.
    #[must_use]
    pub fn at(&self, t: f64) -> u64 {
        let entered = self.from.partition_point(|&x| x <= t);
        let left = self.to.partition_point(|&x| x <= t);
        entered.saturating_sub(left) as u64
    }

    /// The steady stretch of a run; none if no time passes in it.
    ///
    /// ```text
    /// level = 0.9 * max(median, min(clients, peak))
    /// from  = the first instant with level or more in flight
    /// to    = the last such instant; in an open loop the last send
    /// rate  = sum(requests, share of its stay within from..to) / (to - from)
    /// ```
    ///
    /// The median is taken over time. `clients` is the nominal concurrency of a closed loop; in an
    /// open loop the peak is a chance maximum and tells nothing of the level, so the median stands
    /// alone. A request counts by the share of its stay that lies within the stretch, and its
    /// tokens by the share of the time from its first to its last: counting the ends that lie
    /// within would add a whole wave where clients run in step.
    #[must_use]
    pub fn steady(
        &self,
        stays: impl IntoIterator<Item = Stay>,
        clients: Option<u64>,
    ) -> Option<Steady> {
        self.steady_within(stays, clients, (self.begin(), self.end()))
    }

    /// The part of the steady stretch of the run that lies within a window, of which it is a share;
    /// `window` is in seconds from the origin of the stays. Else as [`Profile::steady`].
    #[must_use]
    pub fn steady_within(
        &self,
        stays: impl IntoIterator<Item = Stay>,
        clients: Option<u64>,
        window: (f64, f64),
    ) -> Option<Steady> {
        let median = self.median();
        let nominal = clients.map_or(0, |n| n.min(self.peak()));
        let level = STEADY_SHARE * (median.max(nominal) as f64).max(1.0);
        let (mut from, mut to) = (None, None);
        self.walk(|number, begin, end| {
            if level <= number as f64 {
                from = from.or(Some(begin));
                to = Some(end);
            }
        });
        // In an open loop the number in flight falls by chance as well; the drain begins when
        // nobody comes any more, and a stretch chosen for many in flight would rate too high.
        let to = if clients.is_none() && self.begin() < self.last_begin() {
            Some(self.last_begin())
        } else {
            to
        };
        let (from, to) = (from?.max(window.0), to?.min(window.1));
        if to <= from {
            return None;
        }
        let length = to - from;
        let within = |a: f64, b: f64| (b.min(to) - a.max(from)).max(0.0);
        let (mut requests, mut tokens, mut area) = (0.0, Some(0.0), 0.0);
        for s in stays {
            let inside = within(s.from_s, s.to_s);
            area += inside;
            if !s.completed {
                continue;
            }
            let stay = s.to_s - s.from_s;
            let at_once = |t: f64| f64::from(u8::from(from <= t && t < to));
            requests += if 0.0 < stay { inside / stay } else { at_once(s.to_s) };
            tokens = match (tokens, s.output_tokens, s.first_token_s) {
                (Some(sum), Some(n), Some(first)) => {
                    let decoding = s.to_s - first;
                    let share = if 0.0 < decoding {
                        within(first, s.to_s) / decoding
                    } else {
                        at_once(first)
                    };
                    Some(sum + n as f64 * share)
                }
                _ => None,
            };
        }
        Some(Steady {
            from_s: from - self.begin(),
            to_s: to - self.begin(),
            // In the same steps as the stretch, which then is exactly the window where it fills it.
            span_s: (window.1 - self.begin()) - (window.0 - self.begin()),
            level,
            median_in_flight: median,
            in_flight: area / length,
            peak: self.peak(),
            requests,
            requests_per_s: requests / length,
            output_tokens_per_s: tokens.map(|n| n / length),
        })
    }
}

/// Completed requests per second of a window, each by the share of its stay that lies within it, as
/// in the stretch of [`Profile::steady`]; none for a window of no length.
pub(crate) fn rate_within(
    stays: impl IntoIterator<Item = Stay>,
    window: (f64, f64),
) -> Option<f64> {
    let (from, to) = window;
    let share = |s: Stay| {
        let stay = s.to_s - s.from_s;
        let inside = (s.to_s.min(to) - s.from_s.max(from)).max(0.0);
        let at_once = f64::from(u8::from(from <= s.to_s && s.to_s < to));
        if 0.0 < stay { inside / stay } else { at_once }
    };
    let requests: f64 = stays.into_iter().filter(|s| s.completed).map(share).sum();
    (from < to).then(|| requests / (to - from))
}

/// How many samples at the start of a run are warm-up, by MSER-5; none if no steady part shows.
///
/// ```text
/// mser5 = 5 * d, which minimizes sum(j > d, (y(j) - mean(j > d))^2) / (b - d)^2 over d <= b / 2
/// ```
///
/// y(1) … y(b) are the means of each five `values` in order; the rest below five is not looked at.
/// What is left out costs samples and takes bias away, and the expression, the squared error of the
/// mean of the rest, is smallest where the two balance. A minimum at the half says that the run is
/// still on its way: too short, or without a steady state at all.
///
/// # Errors
///
/// [`Error::TooFew`] below 50 values; [`Error::NotFinite`] for a value that is no number.
///
/// # Examples
///
/// ```
/// use metrics_core::steady::mser5;
///
/// // A queue that fills for 100 requests and then stays around 10.
/// let wait = |i: u32| f64::from(i.min(100)) / 10.0 + f64::from(i * 7 % 5) / 10.0;
/// assert_eq!(mser5(&(0..1000).map(wait).collect::<Vec<_>>())?, Some(100));
/// // One that only grows.
/// assert_eq!(mser5(&(0..1000).map(f64::from).collect::<Vec<_>>())?, None);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: White, Cobb and Spratt, *A Comparison of Five Steady-State Truncation Heuristics for
/// Simulation*, WSC 2000; the half as in Franklin and White, WSC 2008.
pub fn mser5(values: &[f64]) -> Result<Option<u64>> {
    const BATCH: usize = 5;
    const FEWEST: usize = 50;
    if values.len() < FEWEST {
        let (input, item, len) = ("values", "value", values.len());
        return Err(Error::TooFew { input, item, min: FEWEST, len });
    }
    for &x in values {
        finite("a value", x)?;
    }
    let batches = values.chunks_exact(BATCH).map(|b| b.iter().sum::<f64>() / BATCH as f64);
    let batches: Vec<f64> = batches.collect();
    let half = batches.len() / 2;
    // From the end, so that mean and squares of every rest come from those of the one before.
    let (mut n, mut mean, mut squares) = (0.0, 0.0, 0.0);
    let mut best = (f64::INFINITY, half);
    for (d, y) in batches.iter().enumerate().rev() {
        n += 1.0;
        let delta = y - mean;
        mean += delta / n;
        squares += delta * (y - mean);
        let error = squares / (n * n);
        // Of equal ones that which leaves out the least.
        if d <= half && error <= best.0 {
            best = (error, d);
        }
    }
    Ok((best.1 < half).then_some((best.1 * BATCH) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition, sum by sum, on a start-up of each length.
    #[test]
    fn mser5_minimizes_the_error_of_the_rest() {
        for ramp in [0_u32, 40, 200, 450, 800] {
            let noise = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 20) / 4096.0;
            let value = |i: u32| noise(i) + 5.0 * f64::from(ramp.saturating_sub(i)) / 100.0;
            let values: Vec<f64> = (0..1000).map(value).collect();
            let y: Vec<f64> = values.chunks(5).map(|b| b.iter().sum::<f64>() / 5.0).collect();
            let error = |d: usize| {
                let rest = &y[d..];
                let mean = rest.iter().sum::<f64>() / rest.len() as f64;
                rest.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (rest.len() as f64).powi(2)
            };
            let best = (0..=100).min_by(|&a, &b| error(a).total_cmp(&error(b))).unwrap();
            let want = (best < 100).then_some(best as u64 * 5);
            assert_eq!(mser5(&values).unwrap(), want, "{ramp}");
        }
        assert_eq!(mser5(&[1.0; 50]).unwrap(), Some(0));
        assert_eq!(
            mser5(&[1.0; 49]).unwrap_err().to_string(),
            "values must hold at least 50 values, got 49"
        );
    }

    fn stay(from_s: f64, to_s: f64) -> Stay {
        Stay { from_s, first_token_s: Some(from_s), to_s, output_tokens: Some(8), completed: true }
    }

    /// Four clients in step, four waves of 1 s: no ramp, no drain, 4 req/s; counting the 16 ends
    /// between the first and the last, (16 - 1) / 3 s, would say 5.
    #[test]
    fn clients_in_step_have_the_rate_of_their_waves() {
        let stays: Vec<Stay> =
            (0..16).map(|i| stay(f64::from(i / 4), f64::from(i / 4 + 1))).collect();
        let s = Profile::new(stays.iter().copied())
            .unwrap()
            .steady(stays.iter().copied(), Some(4))
            .unwrap();
        assert_eq!((s.from_s, s.to_s, s.peak), (0.0, 4.0, 4));
        assert!((s.requests_per_s - 4.0).abs() < 1e-12);
        assert!((s.output_tokens_per_s.unwrap() - 32.0).abs() < 1e-12);
        assert!((s.in_flight - 4.0).abs() < 1e-12 && (s.share() - 1.0).abs() < 1e-12);
    }

    /// One straggler of 6 s keeps the run open: the level of two clients ends at 2 s.
    #[test]
    fn a_straggler_is_drain() {
        let stays = [stay(0.0, 1.0), stay(1.0, 2.0), stay(0.0, 8.0)];
        let p = Profile::new(stays.iter().copied()).unwrap();
        let s = p.steady(stays.iter().copied(), Some(2)).unwrap();
        assert_eq!((s.from_s, s.to_s, s.span_s), (0.0, 2.0, 8.0));
        assert!((s.requests - 2.25).abs() < 1e-12);
        // Without a nominal concurrency it is an open loop, which drains from the last send on.
        assert_eq!(p.steady(stays.iter().copied(), None).unwrap().to_s, 1.0);
        assert_eq!(p.share_at_least(2), Some(0.25));
        assert_eq!((p.at(0.0), p.at(2.0), p.at(8.0)), (2, 1, 0));
    }

    #[test]
    fn runs_without_time_and_broken_stays_have_no_stretch() {
        let none = vec![stay(1.0, 1.0), stay(1.0, 1.0)];
        let p = Profile::new(none.iter().copied()).unwrap();
        assert_eq!((p.peak(), p.steady(none, None)), (0, None));
        assert_eq!(p.share_at_least(1), None);
        let say = |s: &[Stay]| Profile::new(s.iter().copied()).unwrap_err().to_string();
        assert_eq!(say(&[]), "stays must hold at least one request, got none");
        assert_eq!(
            say(&[stay(2.0, 1.0)]),
            "the end of a stay must be at least its begin = 2, got 1"
        );
    }

    proptest::proptest! {
        /// The area under the number in flight is the sum of the stays, and the stretch lies in
        /// the run; one that is the whole run has all requests.
        #[test]
        fn the_profile_keeps_the_books(
            spans in proptest::collection::vec((0_u8..20, 0_u8..10), 1..40),
        ) {
            let stays: Vec<Stay> =
                spans.iter().map(|&(s, d)| stay(f64::from(s), f64::from(s) + f64::from(d))).collect();
            let p = Profile::new(stays.iter().copied()).unwrap();
            let area: f64 = p.time_at.iter().enumerate().map(|(n, t)| n as f64 * t).sum();
            let total: f64 = spans.iter().map(|&(_, d)| f64::from(d)).sum();
            proptest::prop_assert!((area - total).abs() < 1e-9);
            for t in 0..30 {
                let t = f64::from(t) + 0.5;
                let brute = stays.iter().filter(|s| s.from_s <= t && t < s.to_s).count();
                proptest::prop_assert_eq!(p.at(t), brute as u64);
            }
            if let Some(s) = p.steady(stays.iter().copied(), None) {
                proptest::prop_assert!(0.0 <= s.from_s && s.to_s <= s.span_s && s.requests <= stays.len() as f64 + 1e-9);
                proptest::prop_assert!(s.level <= s.peak as f64 + 1e-9);
            }
        }
    }
}
