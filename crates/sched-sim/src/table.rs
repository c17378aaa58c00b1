//! Step times that are not affine: measured tables with lines between their points, and two sets
//! of decode coefficients on both sides of a batch size.

use crate::error::{Result, SimError};
use crate::step_time::{Affine, Coefficients, MeanWork, StepTime, StepWork, StretchTime};
use crate::time::Ticks;
use crate::two_regime::TwoRegime;

/// Times measured at every pair of two amounts of work.
///
/// Between the points, the time is bilinear. Below the least amount it is that of the least; above
/// the largest, the line of the last two goes on, or the last time stays where that line falls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    first: Vec<u64>,
    second: Vec<u64>,
    times: Vec<Vec<Ticks>>,
}

/// A time on a grid, and how it goes on along the second axis.
struct On {
    time: i128,
    /// Attoseconds for each unit of the second amount.
    slope: i128,
    /// The first amount for which that slope no longer holds.
    until: u128,
}

/// A whole number of attoseconds as a signed one; times of a grid are far below the bound.
fn signed(t: Ticks) -> i128 {
    i128::try_from(t.0).unwrap_or(i128::MAX)
}

impl Grid {
    /// Most amounts on an axis.
    pub const MOST: usize = 4096;

    /// Checks a grid: both axes rise, and every row has a time for each amount of the second axis.
    ///
    /// # Errors
    ///
    /// [`SimError::Grammar`] for an axis with fewer than two or more than [`Grid::MOST`] amounts, or
    /// that does not rise, or rows that do not fit; [`SimError::Coefficient`] for a time above
    /// [`Affine::LARGEST`].
    pub fn new(first: Vec<u64>, second: Vec<u64>, times: Vec<Vec<Ticks>>) -> Result<Self> {
        let wrong = |text: String, expected: &str| SimError::Grammar {
            what: "step-time table",
            text,
            expected: expected.to_owned(),
        };
        for (name, axis) in [("first", &first), ("second", &second)] {
            if axis.len() < 2 || Self::MOST < axis.len() {
                let expected = format!("2 to {} amounts of work", Self::MOST);
                return Err(wrong(format!("{name} axis of {}", axis.len()), &expected));
            }
            if let Some(pair) = axis.windows(2).find(|p| p[1] <= p[0]) {
                return Err(wrong(
                    format!("{name} axis: {} after {}", pair[1], pair[0]),
                    "amounts that rise",
                ));
            }
        }
        if times.len() != first.len() {
            let text = format!("{} rows of times for {} amounts", times.len(), first.len());
            return Err(wrong(text, "a row for each amount of the first axis"));
        }
        for row in &times {
            if row.len() != second.len() {
                let text = format!("a row of {} times for {} amounts", row.len(), second.len());
                return Err(wrong(text, "a time for each amount of the second axis"));
            }
            if let Some(&value) = row.iter().find(|t| Affine::LARGEST < **t) {
                let max = Affine::LARGEST;
                return Err(SimError::Coefficient { input: "time of a table", max, value });
            }
        }
        Ok(Self { first, second, times })
    }

    /// The amounts of the first axis.
    #[must_use]
    pub fn first(&self) -> &[u64] {
        &self.first
    }

    /// The amounts of the second axis.
    #[must_use]
    pub fn second(&self) -> &[u64] {
        &self.second
    }

    /// The times, a row for each amount of the first axis.
    #[must_use]
    pub fn times(&self) -> &[Vec<Ticks>] {
        &self.times
    }

    /// The first amount of the two between which an amount lies; of the last two beyond all.
    fn cell(axis: &[u64], scale: u64, at: u64) -> usize {
        let scaled = |x: u64| u128::from(x) * u128::from(scale);
        axis.partition_point(|&x| scaled(x) <= u128::from(at)).clamp(1, axis.len() - 1) - 1
    }

    /// The time in a column of the grid.
    fn column(&self, cell: usize, column: usize, first: u64) -> i128 {
        let (low, high) = (self.first[cell], self.first[cell + 1]);
        let (a, b) = (signed(self.times[cell][column]), signed(self.times[cell + 1][column]));
        if first <= low {
            return a;
        }
        if high < first && b <= a {
            return b;
        }
        // Below 2^70 · 2^48.
        a + (b - a) * i128::from(first - low) / i128::from(high - low)
    }

    /// The time at two amounts, the second in units of which `scale` make one of the axis.
    fn at(&self, first: u64, second: u64, scale: u64) -> On {
        let cell = Self::cell(&self.first, 1, first);
        let i = Self::cell(&self.second, scale, second);
        let edge = |i: usize| u128::from(self.second[i]) * u128::from(scale);
        let (low, high) = (edge(i), edge(i + 1));
        let (a, b) = (self.column(cell, i, first), self.column(cell, i + 1, first));
        let at = u128::from(second);
        if at < low {
            return On { time: a, slope: 0, until: low };
        }
        let last = i + 2 == self.second.len();
        if last && high < at && b <= a {
            return On { time: b, slope: 0, until: u128::MAX };
        }
        // Whole attoseconds for each unit, so that a stretch within the cell grows by a constant:
        // less than one attosecond for each token is lost.
        let width = i128::try_from(high - low).unwrap_or(i128::MAX).max(1);
        let slope = (b - a) / width;
        let over = i128::try_from(at - low).unwrap_or(i128::MAX);
        let time = a.saturating_add(slope.saturating_mul(over));
        // The cell ends at its upper edge; the last one goes on as long as it does not fall.
        let until = if last && a < b { u128::MAX } else { high };
        On { time, slope, until }
    }
}

/// A step time from measured tables.
///
/// ```text
/// pure decode step      t = D(B, C / B)
/// step with prefill     t = M(P, C) + c·B + q·A
/// ```
///
/// D is a [`Grid`] over the decode requests and the mean context of each, M one over the prompt
/// tokens and the context of all decodes together. A grid has two axes and a step with prefill four
/// amounts of work, so requests and attention may add to M what they cost on top.
///
/// # Examples
///
/// ```
/// use sched_sim::{Grid, StepTime, StepWork, Table, Ticks};
///
/// let ms = |n: u64| Ticks::from_attoseconds(u128::from(n) * 1_000_000_000_000_000);
/// let decode = Grid::new(vec![1, 3], vec![0, 100], vec![vec![ms(10), ms(12)], vec![ms(14), ms(20)]])?;
/// let mixed = Grid::new(vec![0, 100], vec![0, 1], vec![vec![ms(10); 2], vec![ms(30); 2]])?;
/// let t = Table::new(decode, mixed, Ticks::ZERO, Ticks::ZERO)?;
/// let mut work = StepWork::default();
/// work.decodes = 2;
/// work.decode_context = 100; // half of the way on both axes: (10 + 12 + 14 + 20) / 4
/// assert_eq!(t.step(&work), ms(14));
/// # Ok::<(), sched_sim::SimError>(())
/// ```
///
/// Source: own, for measurements that no affine form meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    decode: Grid,
    mixed: Grid,
    /// c and q as the affine part of a step with prefill.
    rest: Affine,
}

impl Table {
    /// A step time from a grid for pure decode, one for steps with prefill, and what a decode and a
    /// pair of prompt tokens add there.
    ///
    /// # Errors
    ///
    /// As [`Affine::new`] for the two coefficients.
    pub fn new(decode: Grid, mixed: Grid, request: Ticks, attention: Ticks) -> Result<Self> {
        let rest =
            Affine::new(Coefficients { decode: request, attention, ..Coefficients::default() })?;
        Ok(Self { decode, mixed, rest })
    }

    /// The grid of pure decode steps.
    #[must_use]
    pub const fn decode(&self) -> &Grid {
        &self.decode
    }

    /// The grid of steps with prefill.
    #[must_use]
    pub const fn mixed(&self) -> &Grid {
        &self.mixed
    }

    /// What a decode and a pair of prompt tokens add to a step with prefill.
    #[must_use]
    pub const fn rest(&self) -> Coefficients {
        self.rest.coefficients()
    }

    fn on(&self, work: &StepWork) -> On {
        if work.prefills == 0 {
            self.decode.at(work.decodes, work.decode_context, work.decodes.max(1))
        } else {
            self.mixed.at(work.prefill_tokens, work.decode_context, 1)
        }
    }

    /// What is added to a step with prefill, and by how much it grows from step to step.
    fn added(&self, work: &StepWork) -> (u128, i128) {
        if work.prefills == 0 {
            return (0, 0);
        }
        let stretch = self.rest.stretch(work);
        (stretch.first.0, stretch.growth)
    }
}

/// Attoseconds of a time that may be beyond any run.
fn whole(time: i128) -> u128 {
    const MOST: u128 = 1 << 122;
    u128::try_from(time).unwrap_or(0).min(MOST)
}

impl StepTime for Table {
    fn step(&self, work: &StepWork) -> Ticks {
        Ticks(whole(self.on(work).time) + self.added(work).0)
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        let On { slope, until, .. } = self.on(work);
        let first = self.step(work);
        let (_, grows) = self.added(work);
        let context = u128::from(work.decode_context);
        let each = u128::from(work.decodes);
        // Steps whose context is still on the line of this one.
        let steps = match until.saturating_sub(context.saturating_add(1)).checked_div(each) {
            None => u64::MAX,
            Some(more) => u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1),
        };
        // Far beyond any run the sum is not followed.
        let Some(growth) =
            i128::try_from(each).ok().and_then(|n| n.checked_mul(slope)?.checked_add(grows))
        else {
            return StretchTime::one(first);
        };
        if whole(i128::MAX) <= first.0 || 1 << 100 < growth.unsigned_abs() {
            return StretchTime::one(first);
        }
        StretchTime { first, growth, steps: steps.max(1) }
    }
}

/// Two sets of coefficients for decode on both sides of a batch size, and one for steps with
/// prefill.
///
/// ```text
/// pure decode step      t = a  + c·B  + d·C    up to a batch of `at`
///                       t = a″ + c″·B + d″·C   above it
/// step with prefill     as in the two-regime form
/// ```
///
/// Source: DistServe's simulator, which splits its A100 fits at a batch of 95.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    at: u64,
    below: TwoRegime,
    above: TwoRegime,
}

impl Split {
    /// Two step times that share their coefficients of steps with prefill, and the largest batch of
    /// the first.
    ///
    /// # Errors
    ///
    /// [`SimError::Grammar`] if they differ in steps with prefill or in what is added to every step,
    /// which a batch size does not tell.
    pub fn new(at: u64, below: TwoRegime, above: TwoRegime) -> Result<Self> {
        if below.mixed() != above.mixed() || below.extra() != above.extra() {
            return Err(SimError::Grammar {
                what: "step time",
                text: "split with two sets for steps with prefill".to_owned(),
                expected: "one set for steps with prefill".to_owned(),
            });
        }
        Ok(Self { at, below, above })
    }

    /// The largest batch of the first set.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// The step times up to that batch and above it.
    #[must_use]
    pub const fn sets(&self) -> [&TwoRegime; 2] {
        [&self.below, &self.above]
    }

    fn of(&self, decodes: u64) -> &TwoRegime {
        if decodes <= self.at { &self.below } else { &self.above }
    }
}

impl StepTime for Split {
    fn step(&self, work: &StepWork) -> Ticks {
        self.of(work.decodes).step(work)
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        self.of(work.decodes).stretch(work)
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        // Means are not negative and far below 2^63; a cast of a float saturates.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        self.of(mean.decodes.ceil() as u64).mean_seconds(mean)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn us(n: u64) -> Ticks {
        Ticks::from_attoseconds(u128::from(n) * 1_000_000_000_000)
    }

    fn work(prompt: u64, decodes: u64, context: u64) -> StepWork {
        let mut w = StepWork::default();
        if 0 < prompt {
            w.add_chunk(prompt, 0);
        }
        w.decodes = decodes;
        w.decode_context = context;
        w
    }

    /// Decode: 10 + 2·B + 3·(C / B) µs, which is bilinear; with prefill 20 + P + C µs and 5 a decode.
    fn table() -> Table {
        let axis = [1, 4, 16];
        let each = [10, 100, 1000];
        let decode = axis.map(|b| each.map(|c| us(10 + 2 * b + 3 * c)).to_vec());
        let mixed = [10_u64, 100].map(|p| [0_u64, 500].map(|c| us(20 + p + c)).to_vec());
        Table::new(
            Grid::new(axis.to_vec(), each.to_vec(), decode.to_vec()).unwrap(),
            Grid::new(vec![10, 100], vec![0, 500], mixed.to_vec()).unwrap(),
            us(5),
            Ticks::ZERO,
        )
        .unwrap()
    }

    #[test]
    fn the_times_of_the_table_and_those_between() {
        let t = table();
        for (w, expected) in [
            (work(0, 4, 400), 10 + 8 + 300),
            (work(0, 2, 110), 10 + 4 + 165),
            (work(0, 16, 16 * 550), 10 + 32 + 1650),
            (work(50, 3, 200), 20 + 50 + 200 + 15),
            // Below the least, the least; above the largest, the line goes on.
            (work(0, 1, 2), 10 + 2 + 30),
            (work(0, 32, 32 * 100), 10 + 64 + 300),
            (work(0, 1, 2000), 10 + 2 + 6000),
            (work(200, 0, 0), 20 + 200),
        ] {
            // Less than an attosecond a token is lost.
            let off = t.step(&w).0.abs_diff(us(expected).0);
            assert!(off <= u128::from(w.decode_context) + 1, "{w:?} {off}");
        }
    }

    /// A table that falls stays at its last time beyond its end and never goes below zero.
    #[test]
    fn a_falling_line_is_not_followed_beyond_the_table() {
        let grid = Grid::new(vec![1, 2], vec![0, 10], vec![vec![us(9), us(5)], vec![us(7), us(3)]]);
        let grid = grid.unwrap();
        let t = Table::new(grid.clone(), grid, Ticks::ZERO, Ticks::ZERO).unwrap();
        assert_eq!(t.step(&work(0, 1, 1000)), us(5));
        assert_eq!(t.step(&work(0, 100, 100_000)), us(3));
        assert_eq!(t.stretch(&work(0, 1, 1000)).growth, 0);
    }

    proptest! {
        /// A stretch is its steps one by one, up to the edge of its cell and not beyond.
        #[test]
        fn a_stretch_is_its_steps_one_by_one(
            prompt in 0_u64..300, decodes in 0_u64..40, each in 0_u64..1500,
        ) {
            let w = work(prompt, decodes, decodes * each);
            let stretch = table().stretch(&w);
            prop_assert!(1 <= stretch.steps);
            for j in (0..2000).take_while(|j| *j < stretch.steps) {
                prop_assert_eq!(stretch.step(j), table().step(&w.after(j)), "{:?} {}", w, j);
            }
        }
    }

    #[test]
    fn a_split_has_its_batch_in_the_first_set() {
        let form = |text: &str| text.parse::<TwoRegime>().unwrap();
        let below = form("decode:base=10us,decode=1us/request; mixed:base=50us");
        let above = form("decode:base=40us,decode=2us/request; mixed:base=50us");
        let split = Split::new(95, below, above).unwrap();
        assert_eq!(split.step(&work(0, 95, 0)), us(105));
        assert_eq!(split.step(&work(0, 96, 0)), us(232));
        assert_eq!(split.step(&work(1, 96, 0)), us(50));
        let other = form("decode:base=40us; mixed:base=51us");
        assert!(Split::new(95, below, other).is_err());
    }

    #[test]
    fn wrong_tables_say_what_would_be_right() {
        let said = |first: &[u64], second: &[u64], rows: &[usize]| {
            let times = rows.iter().map(|n| vec![us(1); *n]).collect();
            Grid::new(first.to_vec(), second.to_vec(), times).unwrap_err().to_string()
        };
        let lines = [
            said(&[1], &[1, 2], &[2]),
            said(&[1, 2], &[3, 3], &[2, 2]),
            said(&[1, 2], &[1, 2], &[2]),
            said(&[1, 2], &[1, 2], &[2, 3]),
        ];
        insta::assert_snapshot!(lines.join("\n"), @"
        step-time table `first axis of 1`: expected 2 to 4096 amounts of work
        step-time table `second axis: 3 after 3`: expected amounts that rise
        step-time table `1 rows of times for 2 amounts`: expected a row for each amount of the first axis
        step-time table `a row of 3 times for 2 amounts`: expected a time for each amount of the second axis
        ");
    }
}
