//! The gaps between the tokens of answers (ITL), counted by step.
//!
//! All answers in a batch that got their last token together get the next one together, so a step
//! has few gaps of different lengths, however many answers it serves; and the steps of a stretch
//! grow evenly. A run of a million tokens is so a few thousand [`GapRun`]s, of which percentiles
//! are exact all the same.

use metrics_core::summary::Ranked;

use crate::history::Observer;
use crate::step_time::StretchTime;
use crate::time::Ticks;

/// Gaps between two tokens of the same answer, of as many answers in each of some steps in a row.
///
/// Gap j of an answer (from 0) took `first + j · growth` attoseconds.
/// The first may have begun long before its step, as the gap of an answer that had to wait did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GapRun {
    /// How long the first gap was.
    pub first: Ticks,
    /// By how many attoseconds each gap is longer than the one before it.
    pub growth: i128,
    /// Gaps in a row, one a step.
    pub steps: u64,
    /// Answers that have these gaps.
    pub requests: u64,
}

impl GapRun {
    /// One gap, from the token before to the token at its end, of so many answers.
    pub(crate) fn between(before: Ticks, end: Ticks, requests: u64) -> Self {
        Self { first: Ticks(end.0.saturating_sub(before.0)), growth: 0, steps: 1, requests }
    }

    /// The gaps of all steps of a stretch but the first `skipped`, of so many answers.
    pub(crate) fn of_steps(time: &StretchTime, skipped: u64, steps: u64, requests: u64) -> Self {
        let (first, growth) = (time.step(skipped), time.growth);
        Self { first, growth, steps: steps - skipped, requests }
    }

    /// How long all of them are together, for one answer.
    fn total(&self) -> u128 {
        self.time().total(self.steps).0
    }

    /// How long gap `j` is, from 0.
    #[must_use]
    pub fn gap(&self, j: u64) -> Ticks {
        Ticks(self.length(j))
    }

    fn length(&self, j: u64) -> u128 {
        self.time().step(j).0
    }

    /// Its gaps as if they were steps.
    const fn time(&self) -> StretchTime {
        let Self { first, growth, steps, .. } = *self;
        StretchTime { first, growth, steps }
    }

    /// How many of its gaps from `j` on are between these lengths, as gap `j` of this `length` is.
    fn alike(&self, j: u64, length: u128, (low, high): (u128, u128)) -> u64 {
        let (left, each) = (self.steps - j, self.growth.unsigned_abs());
        if left == 1 || each == 0 {
            return left;
        }
        let room = if self.growth < 0 { length - low } else { high - length };
        // As a rule the next one is in another cell, which needs no division.
        if room < each {
            return 1;
        }
        let last = self.length(self.steps - 1);
        if low <= last && last <= high {
            return left;
        }
        let more = room / each;
        u64::try_from(more).map_or(left, |more| left.min(more.saturating_add(1)))
    }

    /// Its gaps in pieces, each of those in a row that are in the same cell: `cell` tells of a length
    /// which one it is in, and the least and the greatest length of that.
    fn pieces(self, cell: impl Fn(u128) -> Cell) -> impl Iterator<Item = (usize, Self)> {
        let mut j = 0;
        std::iter::from_fn(move || {
            if self.steps <= j {
                return None;
            }
            let first = self.length(j);
            let Cell(which, low, high) = cell(first);
            let steps = self.alike(j, first, (low, high));
            j += steps;
            Some((which, Self { first: Ticks(first), steps, ..self }))
        })
    }
}

/// Lengths that are told apart from others: which they are, the least and the greatest.
struct Cell(usize, u128, u128);

/// Leading bits of a length that tell buckets apart: 256 of them between a length and its double.
const BITS: u32 = 8;

/// The bucket of a length.
#[allow(clippy::cast_possible_truncation, reason = "below 2^15 buckets")]
const fn bucket(value: u128) -> usize {
    let bits = u128::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(BITS + 1);
    ((shift as usize) << BITS) + (value >> shift) as usize
}

/// The least and the greatest length of a bucket.
const fn bounds(bucket: usize) -> (u128, u128) {
    // From the second double on, the leading bit is in the number of the bucket once.
    let shift = (bucket >> BITS).saturating_sub(1);
    let leading = (bucket - (shift << BITS)) as u128;
    (leading << shift, (leading << shift) + ((1 << shift) - 1))
}

/// The bucket of a length as a cell.
fn cell(value: u128) -> Cell {
    let at = bucket(value);
    let (low, high) = bounds(at);
    Cell(at, low, high)
}

/// All gaps of a run, from which every percentile is exact: an [`Observer`] to run with.
///
/// # Examples
///
/// ```
/// use sched_sim::{Affine, DecodeFirst, InterTokenLatency, Simulation, Ticks, Workload};
/// use sched_sim::WorkloadRequest;
///
/// // Steps of 10 ms. The prompt of the second takes 20 ms longer than a step without it.
/// let ms = |n: u64| Ticks::from_nanoseconds(n * 1_000_000);
/// let of = |i, at, input| WorkloadRequest::new(i, ms(at), input, 4);
/// let workload = Workload::new(vec![of(1, 0, 100), of(2, 25, 2000)])?;
/// let step_time: Affine = "base=10ms,prefill=10us/token".parse()?;
///
/// let mut itl = InterTokenLatency::default();
/// let policy = DecodeFirst::new(8, 2000)?;
/// Simulation::new(&workload, policy, step_time).run_observed(&mut itl)?;
/// // Three gaps each: 10 ms, and once 30 ms.
/// assert_eq!(itl.n(), 6);
/// assert_eq!(itl.max(), Some(ms(30)));
/// assert_eq!(itl.in_order(&[0, 4, 5]), [ms(10), ms(10), ms(30)]);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct InterTokenLatency {
    runs: Vec<Kept>,
    /// Runs that are too long for that, of which there are few.
    long: Vec<GapRun>,
    /// Gaps by bucket.
    counts: Vec<u64>,
    n: u64,
    /// Σ gaps, in attoseconds.
    total: u128,
    max: Ticks,
}

/// A run as it is kept: there may be as many as events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    first: u64,
    growth: i64,
    steps: u32,
    requests: u32,
}

impl Kept {
    /// None of a first gap of more than 18 seconds, or of 2³² steps.
    fn of(run: &GapRun) -> Option<Self> {
        Some(Self {
            first: u64::try_from(run.first.0).ok()?,
            growth: if run.steps == 1 { 0 } else { i64::try_from(run.growth).ok()? },
            steps: u32::try_from(run.steps).ok()?,
            requests: u32::try_from(run.requests).ok()?,
        })
    }

    fn run(&self) -> GapRun {
        let Self { first, growth, steps, requests } = *self;
        GapRun {
            first: Ticks(first.into()),
            growth: growth.into(),
            steps: steps.into(),
            requests: requests.into(),
        }
    }
}

impl InterTokenLatency {
    /// How many gaps there are.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.n
    }

    /// All gaps together, modulo 2¹²⁸ attoseconds.
    #[must_use]
    pub fn total(&self) -> Ticks {
        Ticks(self.total)
    }

    /// The longest gap; none without a gap.
    #[must_use]
    pub fn max(&self) -> Option<Ticks> {
        (0 < self.n).then_some(self.max)
    }

    /// Adds gaps.
    pub fn add(&mut self, run: &GapRun) {
        if run.steps == 0 || run.requests == 0 {
            return;
        }
        let last = run.length(run.steps - 1);
        let at = bucket(run.first.0);
        // Most runs lie in one bucket, which two ends tell.
        if at == bucket(last) {
            self.count(at, run.steps * run.requests);
        } else {
            run.pieces(cell).for_each(|(at, piece)| self.count(at, piece.steps * piece.requests));
        }
        self.n += run.steps * run.requests;
        self.total = self.total.wrapping_add(run.total().wrapping_mul(run.requests.into()));
        self.max = self.max.max(run.first).max(Ticks(last));
        match Kept::of(run) {
            Some(kept) => self.keep(kept),
            None => self.long.push(*run),
        }
    }

    fn count(&mut self, bucket: usize, gaps: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += gaps;
    }

    fn keep(&mut self, kept: Kept) {
        let Kept { growth, steps, requests, .. } = kept;
        match self.runs.last_mut() {
            // Equal steps in a row, and equal gaps of several answers, are one entry.
            Some(last) if (last.first, last.growth) == (kept.first, 0) && growth == 0 => {
                let longer = last.steps.checked_add(steps).filter(|_| last.requests == requests);
                let wider = last.requests.checked_add(requests).filter(|_| last.steps == steps);
                match (longer, wider) {
                    (Some(steps), _) => last.steps = steps,
                    (None, Some(requests)) => last.requests = requests,
                    (None, None) => self.runs.push(kept),
                }
            }
            _ => self.runs.push(kept),
        }
    }

    /// The gaps at these places in ascending order, from 0; [`Ticks::ZERO`] beyond the last.
    #[must_use]
    pub fn in_order(&self, places: &[u64]) -> Vec<Ticks> {
        // The bucket of each place, and how many gaps lie before that bucket.
        let found: Vec<Option<(usize, u64)>> = places
            .iter()
            .map(|&place| {
                let mut before = 0;
                self.counts.iter().enumerate().find_map(|(bucket, &count)| {
                    let here = place < before + count;
                    before += if here { 0 } else { count };
                    here.then_some((bucket, before))
                })
            })
            .collect();
        let mut wanted: Vec<usize> = found.iter().flatten().map(|f| f.0).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let pieces = self.pieces(&wanted);
        let place_in = |(place, found): (&u64, &Option<(usize, u64)>)| {
            let (bucket, before) = (*found)?;
            let which = wanted.binary_search(&bucket).ok()?;
            let (low, high) = bounds(bucket);
            let bits = u128::BITS - (high - low).leading_zeros();
            Some(Ticks(select(pieces.get(which)?, low, bits, place - before)))
        };
        places.iter().zip(&found).map(|p| place_in(p).unwrap_or_default()).collect()
    }

    /// The gaps of each of these buckets, which are in ascending order.
    fn pieces(&self, wanted: &[usize]) -> Vec<Vec<GapRun>> {
        let mut pieces = vec![Vec::new(); wanted.len()];
        // How many of them are below each bucket: two tell whether a run has gaps in any.
        let mut below = vec![0; self.counts.len() + 1];
        let mut more = wanted.iter().peekable();
        for bucket in 0..self.counts.len() {
            below[bucket + 1] = below[bucket] + usize::from(more.next_if_eq(&&bucket).is_some());
        }
        for run in self.runs.iter().map(Kept::run).chain(self.long.iter().copied()) {
            let (first, last) = (bucket(run.first.0), bucket(run.length(run.steps - 1)));
            let touched = below[first.min(last)]..below[first.max(last) + 1];
            if touched.is_empty() {
                continue;
            }
            if first == last {
                pieces[touched.start].push(run);
                continue;
            }
            for (bucket, piece) in run.pieces(cell) {
                if let Ok(which) = wanted.binary_search(&bucket) {
                    pieces[which].push(piece);
                }
            }
        }
        pieces
    }
}

/// The gap at `place` in ascending order, of gaps that are `low` or up to 2^`bits` − 1 longer.
///
/// Digit by digit from the top: how many gaps share the first is counted, and those that share it
/// with the one at `place` go on. However many gaps there are, runs are only cut and never unrolled.
fn select(runs: &[GapRun], low: u128, bits: u32, mut place: u64) -> u128 {
    if bits == 0 {
        return low;
    }
    let rest = bits.saturating_sub(DIGIT);
    let low_of = |digit: usize| low + ((digit as u128) << rest);
    #[allow(clippy::cast_possible_truncation, reason = "below 2^DIGIT")]
    let digit = |value: u128| {
        let digit = ((value - low) >> rest) as usize;
        Cell(digit, low_of(digit), low_of(digit) + ((1 << rest) - 1))
    };
    let mut counts = [0; 1 << DIGIT];
    for (at, piece) in runs.iter().flat_map(|run| run.pieces(digit)) {
        counts[at] += piece.steps * piece.requests;
    }
    let mut wanted = 0;
    while wanted + 1 < counts.len() && counts[wanted] <= place {
        place -= counts[wanted];
        wanted += 1;
    }
    let pieces = runs.iter().flat_map(|run| run.pieces(digit));
    let same: Vec<GapRun> = pieces.filter(|p| p.0 == wanted).map(|p| p.1).collect();
    select(&same, low_of(wanted), rest, place)
}

/// Bits that one round of [`select`] tells apart.
const DIGIT: u32 = 8;

impl Ranked for InterTokenLatency {
    fn n(&self) -> u64 {
        self.n
    }

    fn mean(&self) -> Option<f64> {
        (0 < self.n).then(|| Ticks(self.total).seconds() / self.n as f64)
    }

    fn max(&self) -> Option<f64> {
        (0 < self.n).then(|| self.max.seconds())
    }

    fn in_order(&self, places: &[u64]) -> Vec<f64> {
        Self::in_order(self, places).into_iter().map(Ticks::seconds).collect()
    }
}

impl Observer for InterTokenLatency {
    fn is_watching(&self) -> bool {
        false
    }

    fn gaps(&mut self, runs: &[GapRun]) {
        for run in runs {
            self.add(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u128, growth: i128, steps: u64, requests: u64) -> GapRun {
        GapRun { first: Ticks(first), growth, steps, requests }
    }

    fn of(runs: &[GapRun]) -> InterTokenLatency {
        let mut itl = InterTokenLatency::default();
        itl.gaps(runs);
        itl
    }

    #[test]
    fn every_length_is_in_its_bucket_and_buckets_have_no_holes() {
        let mut next = 0;
        for b in 0..18_000 {
            let (low, high) = bounds(b);
            assert_eq!((low, bucket(low), bucket(high)), (next, b, b));
            assert!(high - low <= low / 256, "{b}");
            next = high + 1;
        }
    }

    /// By hand: 5, 7, 9 twice; 8, 6, 4, 2 once; 7 three times. In order 2 4 5 5 6 7 7 7 7 7 8 9 9.
    #[test]
    fn gaps_that_grow_and_shrink_are_found_in_order() {
        let itl = of(&[run(5, 2, 3, 2), run(8, -2, 4, 1), run(7, 0, 3, 1)]);
        let order: Vec<u128> =
            itl.in_order(&(0..13).collect::<Vec<_>>()).into_iter().map(|t| t.0).collect();
        assert_eq!(order, [2, 4, 5, 5, 6, 7, 7, 7, 7, 7, 8, 9, 9]);
        assert_eq!((itl.n(), itl.total().0, itl.max()), (13, 83, Some(Ticks(9))));
        assert_eq!(itl.in_order(&[13]), [Ticks::ZERO]);
    }

    /// A run of five thousand million steps is cut into buckets, not unrolled: gap i of them is
    /// 10^16 + i attoseconds, so the one at place i is too.
    #[test]
    fn a_run_of_any_length_takes_no_time() {
        let steps = 5_000_000_000;
        let itl = of(&[run(10_000_000_000_000_000, 1, steps, 1)]);
        for i in [0, 1, 2_499_999_999, steps - 1] {
            assert_eq!(itl.in_order(&[i]), [Ticks(10_000_000_000_000_000 + u128::from(i))]);
        }
        assert_eq!(itl.n(), steps);
    }

    #[test]
    fn no_gap_is_no_figure() {
        let itl = of(&[]);
        assert_eq!((itl.n(), itl.max(), itl.mean()), (0, None, None));
    }
}
