//! A step time from what the hardware allows: the longer of computing and moving.

use crate::error::{Result, SimError};
use crate::step_time::{Affine, Coefficients, MeanWork, StepTime, StepWork, StretchTime};
use crate::time::Ticks;

/// A step time as the longer of two: the operations of the step, and the bytes that it moves.
///
/// ```text
/// compute = token·(P + B) + head·B + pair·(A + C)
/// memory  = weights + experts·(1 − (1 − chosen / each_layer)^(P + B)) + context·C
/// t       = overhead + max(compute, memory)
/// ```
///
/// P, B, C and A as in [`StepWork`]. The experts of a mixture are read as far as P + B tokens choose
/// them, each token at random. Both sides are affine while a batch ages, and one of them stays the
/// longer until the other has caught up.
///
/// It has no communication between GPUs and no kernel's own behaviour, so that it is an estimate at
/// best, and with rates that the hardware cannot exceed a bound.
///
/// # Examples
///
/// ```
/// use sched_sim::{Roofline, RooflineCoefficients, StepTime, StepWork, Ticks};
///
/// let mut c = RooflineCoefficients::default();
/// c.token = "40us".parse()?; // of computing
/// c.weights = "5ms".parse()?; // of reading
/// let t = Roofline::new(c)?;
/// let mut work = StepWork::default();
/// work.decodes = 10; // 0.4 ms of computing are hidden
/// assert_eq!(t.step(&work), "5ms".parse::<Ticks>()?);
/// work.prefill_tokens = 990; // 1,000 tokens
/// assert_eq!(t.step(&work), "40ms".parse::<Ticks>()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
///
/// Source: Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009, for the larger of the two;
/// the operations and bytes are those of `metrics_core::roofline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roofline {
    coefficients: RooflineCoefficients,
    compute: Affine,
    memory: Affine,
}

/// The coefficients of [`Roofline`]; those left out are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RooflineCoefficients {
    /// Of every step, on top of the longer side.
    pub overhead: Ticks,
    /// Computing per new token, prompt or decode.
    pub token: Ticks,
    /// Computing the output of a decode, on top.
    pub head: Ticks,
    /// Computing per pair of tokens that attend to each other, in an even number of attoseconds.
    pub pair: Ticks,
    /// Reading the weights that each step needs.
    pub weights: Ticks,
    /// Reading the experts.
    pub experts: ExpertReads,
    /// Reading the cache per token of context of a decode.
    pub context: Ticks,
}

/// What reading the experts of a mixture costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertReads {
    /// Reading all of them.
    pub all: Ticks,
    /// Experts of a layer.
    pub each_layer: u64,
    /// How many of these a token chooses.
    pub chosen: u64,
}

impl ExpertReads {
    /// Reading those that so many tokens choose.
    fn of(&self, tokens: u64) -> u128 {
        const BITS: u32 = 64;
        if self.all == Ticks::ZERO {
            return 0;
        }
        // The share that nobody chooses, in units of 2^-64; whole numbers are the same everywhere.
        let (each, chosen) = (u128::from(self.each_layer), u128::from(self.chosen));
        let mut base = ((each - chosen) << BITS) / each;
        let (mut share, mut left) = (1_u128 << BITS, tokens);
        while 0 < left {
            if left % 2 == 1 {
                share = multiplied(share, base);
            }
            base = multiplied(base, base);
            left /= 2;
        }
        self.all.0 - ((self.all.0 * (share >> 32)) >> 32)
    }
}

/// The product of two numbers in units of 2^-64, neither above 1.
fn multiplied(a: u128, b: u128) -> u128 {
    const ONE: u128 = 1 << 64;
    if a == ONE {
        b
    } else if b == ONE {
        a
    } else {
        (a * b) >> 64
    }
}

impl Roofline {
    /// Checks coefficients: with the bounds of [`Affine`] no step of any workload overflows.
    ///
    /// # Errors
    ///
    /// As [`Affine::new`]; [`SimError::Coefficient`] above [`Affine::LARGEST`];
    /// [`SimError::Grammar`] for experts of which more are chosen than there are.
    pub fn new(coefficients: RooflineCoefficients) -> Result<Self> {
        let c = coefficients;
        for (input, value) in
            [("overhead", c.overhead), ("token", c.token), ("experts", c.experts.all)]
        {
            if Affine::LARGEST < value {
                return Err(SimError::Coefficient { input, max: Affine::LARGEST, value });
            }
        }
        let e = c.experts;
        if e.all != Ticks::ZERO && (e.chosen == 0 || e.each_layer < e.chosen) {
            return Err(SimError::Grammar {
                what: "experts",
                text: format!("{} of {}", e.chosen, e.each_layer),
                expected: "at least one chosen of at least as many".to_owned(),
            });
        }
        let compute = Affine::new(Coefficients {
            base: Ticks::ZERO,
            prefill: c.token,
            decode: Ticks(c.token.0.saturating_add(c.head.0)),
            context: c.pair,
            attention: c.pair,
        })?;
        let memory = Affine::new(Coefficients {
            base: c.weights,
            context: c.context,
            ..Coefficients::default()
        })?;
        Ok(Self { coefficients, compute, memory })
    }

    /// The coefficients.
    #[must_use]
    pub const fn coefficients(&self) -> RooflineCoefficients {
        self.coefficients
    }

    /// Both sides over a stretch: computing, and moving.
    fn sides(&self, work: &StepWork) -> (StretchTime, StretchTime) {
        let compute = self.compute.stretch(work);
        let mut memory = self.memory.stretch(work);
        let tokens = work.prefill_tokens.saturating_add(work.decodes);
        memory.first.0 += self.coefficients.experts.of(tokens);
        (compute, memory)
    }
}

impl StepTime for Roofline {
    fn step(&self, work: &StepWork) -> Ticks {
        let (compute, memory) = self.sides(work);
        Ticks(compute.first.max(memory.first).0 + self.coefficients.overhead.0)
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        let (compute, memory) = self.sides(work);
        let rank = |side: &StretchTime| (side.first, side.growth);
        let (longer, other) =
            if rank(&memory) <= rank(&compute) { (compute, memory) } else { (memory, compute) };
        let steps = match u128::try_from(other.growth - longer.growth) {
            // The longer side stays so as long as it is ahead.
            Ok(closing) if 0 < closing => {
                let ahead = longer.first.0 - other.first.0;
                u64::try_from(ahead / closing).unwrap_or(u64::MAX).saturating_add(1)
            }
            _ => u64::MAX,
        };
        let first = Ticks(longer.first.0 + self.coefficients.overhead.0);
        StretchTime { first, growth: longer.growth, steps }
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        let tokens = mean.prefill_tokens + mean.decodes;
        // Means are not negative and far below 2^63; a cast of a float saturates.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let experts = Ticks(self.coefficients.experts.of(tokens.round() as u64)).seconds();
        let memory = self.memory.mean_seconds(mean) + experts;
        self.coefficients.overhead.seconds() + self.compute.mean_seconds(mean).max(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(text: &str) -> Ticks {
        text.parse().unwrap()
    }

    fn form() -> Roofline {
        Roofline::new(RooflineCoefficients {
            overhead: ticks("1ms"),
            token: ticks("30us"),
            head: ticks("2us"),
            pair: ticks("1ns"),
            weights: ticks("5ms"),
            context: ticks("50ns"),
            experts: ExpertReads { all: ticks("10ms"), each_layer: 8, chosen: 2 },
        })
        .unwrap()
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

    /// By hand: one decode with 1,000 tokens reads 5 + 10 · 2/8 + 0.05 ms; a prompt of 1,000 tokens
    /// computes 30 + 0.5 ms, beside 5 + 10 ms to read.
    #[test]
    fn the_longer_side_decides() {
        let ms = |w| form().step(&w).seconds() * 1e3;
        assert!((ms(work(0, 1, 1000)) - 8.55).abs() < 1e-9);
        assert!((ms(work(1000, 0, 0)) - 31.5).abs() < 1e-9);
        // Three tokens leave (3/4)^3 of the experts unread.
        assert!((ms(work(0, 3, 0)) - (6.0 + 10.0 * (1.0 - 27.0 / 64.0))).abs() < 1e-9);
    }

    /// Stretches in which computing leads and stays, or is overtaken by the cache's growth.
    #[test]
    fn a_stretch_is_its_steps_one_by_one_until_the_other_side_leads() {
        let mut ended = 0;
        for w in [
            work(0, 7, 700),
            work(0, 500, 1),
            work(0, 500, 5_000),
            work(600, 480, 2_000),
            work(512, 3, 90),
            work(64, 200, 40_000),
        ] {
            let stretch = form().stretch(&w);
            let last = stretch.steps - 1;
            for j in [0, 1, 2, 10, last.saturating_sub(1), last].into_iter().filter(|j| *j <= last)
            {
                if j < 1_000_000 {
                    assert_eq!(stretch.step(j), form().step(&w.after(j)), "{w:?} {j}");
                }
            }
            if last < 1_000_000 {
                ended += 1;
                // One step later the other side is longer.
                let next = stretch.steps;
                assert!(stretch.step(next) < form().step(&w.after(next)), "{w:?}");
            }
        }
        assert!(0 < ended);
    }

    #[test]
    fn absurd_coefficients_are_refused_by_name() {
        let zero = RooflineCoefficients::default;
        let long = ticks("1001s");
        for (c, name) in [
            (RooflineCoefficients { overhead: long, ..zero() }, "overhead"),
            (RooflineCoefficients { token: long, ..zero() }, "token"),
            (RooflineCoefficients { weights: long, ..zero() }, "base"),
            (
                RooflineCoefficients {
                    experts: ExpertReads { all: ticks("1ms"), each_layer: 4, chosen: 5 },
                    ..zero()
                },
                "5 of 4",
            ),
        ] {
            let said = Roofline::new(c).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
    }
}
