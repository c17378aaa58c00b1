//! A step time with a floor: short prompts cost no less than a minimum.

use crate::error::{Result, SimError};
use crate::step_time::{Affine, MeanWork, StepTime, StepWork, StretchTime};
use crate::time::Ticks;

/// The coefficients of [`Floored`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlooredCoefficients {
    /// o: of every step.
    pub overhead: Ticks,
    /// w: least time of the dense layers.
    pub floor: Ticks,
    /// b: per new token, prefill and decode.
    pub token: Ticks,
    /// cp: per pair of prompt tokens that attend to each other (A).
    pub attention: Ticks,
    /// cd: per context token that the decodes read.
    pub context: Ticks,
    /// e: per request in the step.
    pub request: Ticks,
}

/// A step time whose dense part has a floor.
///
/// ```text
/// t = o + max(w, b·N) + cp·A + cd·C + e·(requests)
/// ```
///
/// N counts all new tokens of the step, P prefill and B decode; A and C as in [`StepWork`]. While
/// a batch only ages N stays, so the floor holds or does not hold for the whole stretch and the
/// closed form of an affine step time applies.
///
/// The work holds twice A, so an odd number of attoseconds per pair loses half of one: at measured
/// coefficients one part in 10⁸ at most.
///
/// Source: fits of measured kernel tables, whose presets state model, GPU and error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floored {
    coefficients: FlooredCoefficients,
    half_attention: u128,
}

impl Floored {
    /// Checks coefficients: with the bounds of [`Affine`] no step of any workload overflows.
    ///
    /// # Errors
    ///
    /// [`SimError::Coefficient`] above [`Affine::LARGEST`] or [`Affine::LARGEST_ATTENTION`].
    pub fn new(coefficients: FlooredCoefficients) -> Result<Self> {
        let c = coefficients;
        for (input, value, max) in [
            ("overhead", c.overhead, Affine::LARGEST),
            ("floor", c.floor, Affine::LARGEST),
            ("token", c.token, Affine::LARGEST),
            ("attention", c.attention, Affine::LARGEST_ATTENTION),
            ("context", c.context, Affine::LARGEST),
            ("request", c.request, Affine::LARGEST),
        ] {
            if max < value {
                return Err(SimError::Coefficient { input, max, value });
            }
        }
        Ok(Self { coefficients, half_attention: c.attention.0 / 2 })
    }

    /// The coefficients.
    #[must_use]
    pub const fn coefficients(&self) -> FlooredCoefficients {
        self.coefficients
    }

    /// The dense part of a step with this many new tokens.
    fn dense(&self, new_tokens: u64) -> u128 {
        self.coefficients.floor.0.max(self.coefficients.token.0 * u128::from(new_tokens))
    }
}

impl StepTime for Floored {
    fn step(&self, w: &StepWork) -> Ticks {
        Ticks(
            self.coefficients.overhead.0
                + self.dense(w.prefill_tokens + w.decodes)
                + self.half_attention * w.attention_doubled
                + self.coefficients.context.0 * u128::from(w.decode_context)
                + self.coefficients.request.0 * u128::from(w.requests()),
        )
    }

    fn stretch(&self, w: &StepWork) -> StretchTime {
        let growth = self.coefficients.context.0 * u128::from(w.decodes)
            + self.half_attention * w.attention_growth;
        // The bounds of the coefficients keep it below 2^122.
        #[allow(clippy::cast_possible_wrap)]
        let growth = growth as i128;
        StretchTime { first: self.step(w), growth, steps: u64::MAX }
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        let c = &self.coefficients;
        let dense = c.token.seconds() * (mean.prefill_tokens + mean.decodes);
        c.overhead.seconds()
            + c.floor.seconds().max(dense)
            + c.attention.seconds() * mean.attention
            + c.context.seconds() * mean.decode_context
            + c.request.seconds() * (mean.prefills + mean.decodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Floored {
        let t = |s: &str| s.parse::<Ticks>().unwrap();
        Floored::new(FlooredCoefficients {
            overhead: t("2ms"),
            floor: t("4ms"),
            token: t("20us"),
            attention: t("1ns"),
            context: t("40ns"),
            request: t("10us"),
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

    /// By hand: 100 decodes of 1,000 tokens each: 2 + max(4, 2) + 4 + 1 = 11 ms; a prompt of 1,000:
    /// 2 + max(4, 20) + 1e-6 · 1,000² / 2 + 0.01 = 22.51 ms.
    #[test]
    fn a_small_step_costs_the_floor_and_a_large_one_its_tokens() {
        let ms = |t: Ticks| t.seconds() * 1e3;
        assert!((ms(form().step(&work(0, 100, 100_000))) - 11.0).abs() < 1e-9);
        assert!((ms(form().step(&work(1000, 0, 0))) - 22.51).abs() < 1e-9);
    }

    #[test]
    fn a_stretch_is_its_steps_one_by_one() {
        for w in [work(0, 7, 700), work(512, 3, 90), work(16, 0, 0)] {
            let stretch = form().stretch(&w);
            for j in [0, 1, 2, 10] {
                assert_eq!(stretch.step(j), form().step(&w.after(j)), "{w:?} {j}");
            }
        }
    }

    #[test]
    fn absurd_coefficients_are_refused_by_name() {
        let t = |s: &str| s.parse::<Ticks>().unwrap();
        for (c, name) in [
            (FlooredCoefficients { token: t("1001s"), ..FlooredCoefficients::default() }, "token"),
            (
                FlooredCoefficients { attention: t("1s"), ..FlooredCoefficients::default() },
                "attention",
            ),
        ] {
            let said = Floored::new(c).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
    }
}
