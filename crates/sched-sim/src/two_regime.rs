//! A step time with a set of coefficients for each regime: pure decode, and with prefill.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Result, SimError};
use crate::step_time::{Affine, Coefficients, MeanWork, StepTime, StepWork, StretchTime};
use crate::time::Ticks;

/// A step time in two regimes.
///
/// ```text
/// pure decode step      t = a  + c·B  + d·C
/// step with prefill     t = max(w, a' + b·P + c'·B + d'·C + q·A)
/// plus in both          overhead + comm·(P + B)
/// ```
///
/// P, B, C and A as in [`StepWork`]. A context token costs 1.6 to 2.8 times more in a step that
/// also carries prefill, so one set of coefficients for both regimes is 20 to 40 % off on pure
/// decode; this form is the default for what is fitted. The floor `w` is optional; while it holds,
/// a stretch with prefill is taken one step at a time.
///
/// As text, with the regimes separated by `;` and each as [`Affine`] writes it:
/// `decode:base=6.9ms,decode=8us/request,context=36ns/token; mixed:base=7.8ms,prefill=17us/token`,
/// with `overhead=0.5ms`, `comm=1us/token` and `floor=20ms` as further parts.
///
/// # Examples
///
/// ```
/// use sched_sim::{StepTime, StepWork, Ticks, TwoRegime};
///
/// let t: TwoRegime = "decode:base=10ms,decode=100us/request; \
///                     mixed:base=12ms,prefill=50us/token,decode=200us/request; overhead=1ms"
///     .parse()?;
/// let mut work = StepWork::default();
/// work.decodes = 10; // 10 + 1 + 1 ms
/// assert_eq!(t.step(&work), "12ms".parse::<Ticks>()?);
/// work.prefills = 1;
/// work.prefill_tokens = 100; // 12 + 5 + 2 + 1 ms
/// assert_eq!(t.step(&work), "20ms".parse::<Ticks>()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
///
/// Source: fits of measured kernel tables and of replays of vLLM 0.19, whose cases state the
/// coefficients and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TwoRegime {
    decode: Affine,
    mixed: Affine,
    extra: Extra,
}

/// What [`TwoRegime`] adds in both regimes, and the floor; those left out are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Of every step, on top of what the GPU does.
    pub overhead: Ticks,
    /// Communication per new token, prompt or decode.
    pub comm: Ticks,
    /// Least time of a step with prefill, before overhead and communication.
    pub floor: Ticks,
}

impl TwoRegime {
    /// Checks coefficients: with the bounds of [`Affine`] no step of any workload overflows.
    ///
    /// # Errors
    ///
    /// As [`Affine::new`]; [`SimError::Coefficient`] above [`Affine::LARGEST`] in `extra`;
    /// [`SimError::Grammar`] for a prompt coefficient in the pure decode regime, which has no
    /// prompts.
    pub fn new(decode: Coefficients, mixed: Coefficients, extra: Extra) -> Result<Self> {
        if decode.prefill != Ticks::ZERO || decode.attention != Ticks::ZERO {
            return Err(SimError::Grammar {
                what: "step time",
                text: "decode:… with prefill or attention".to_owned(),
                expected: "base, decode and context: a pure decode step has no prompt".to_owned(),
            });
        }
        for (input, value) in
            [("overhead", extra.overhead), ("comm", extra.comm), ("floor", extra.floor)]
        {
            if Affine::LARGEST < value {
                return Err(SimError::Coefficient { input, max: Affine::LARGEST, value });
            }
        }
        Ok(Self { decode: Affine::new(decode)?, mixed: Affine::new(mixed)?, extra })
    }

    /// The coefficients of a pure decode step.
    #[must_use]
    pub const fn decode(&self) -> Coefficients {
        self.decode.coefficients()
    }

    /// The coefficients of a step with prefill.
    #[must_use]
    pub const fn mixed(&self) -> Coefficients {
        self.mixed.coefficients()
    }

    /// What is added in both regimes, and the floor.
    #[must_use]
    pub const fn extra(&self) -> Extra {
        self.extra
    }

    /// Overhead and communication of a step.
    fn added(&self, work: &StepWork) -> u128 {
        self.extra.overhead.0
            + self.extra.comm.0 * (u128::from(work.prefill_tokens) + u128::from(work.decodes))
    }
}

impl StepTime for TwoRegime {
    fn step(&self, work: &StepWork) -> Ticks {
        let gpu = if work.prefills == 0 {
            self.decode.step(work)
        } else {
            self.mixed.step(work).max(self.extra.floor)
        };
        Ticks(gpu.0 + self.added(work))
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        let regime = if work.prefills == 0 { &self.decode } else { &self.mixed };
        let stretch = regime.stretch(work);
        if work.prefills != 0 && stretch.first < self.extra.floor {
            // The step under the floor ends where the growing sum passes it.
            return StretchTime::one(self.step(work));
        }
        StretchTime { first: self.step(work), ..stretch }
    }

    fn decode_alone(&self, context: u64, mixed: bool) -> StretchTime {
        let work = StepWork { decodes: 1, decode_context: context, ..StepWork::default() };
        // The floor is one of the prefill, so that it is no part of the price of a decode.
        let gpu = if mixed { self.mixed.stretch(&work) } else { self.decode.stretch(&work) };
        StretchTime { first: Ticks(gpu.first.0 + self.added(&work)), ..gpu }
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        let gpu = if mean.prefills <= 0.0 {
            self.decode.mean_seconds(mean)
        } else {
            self.mixed.mean_seconds(mean).max(self.extra.floor.seconds())
        };
        gpu + self.extra.overhead.seconds()
            + self.extra.comm.seconds() * (mean.prefill_tokens + mean.decodes)
    }
}

impl FromStr for TwoRegime {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self> {
        let error = |part: &str, expected: &str| SimError::Grammar {
            what: "step time",
            text: part.to_owned(),
            expected: expected.to_owned(),
        };
        let (mut decode, mut mixed) = (None::<Affine>, None::<Affine>);
        let mut extra = [None::<Ticks>; 3];
        for part in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
            if let Some((regime, coefficients)) = part.split_once(':') {
                let slot = match regime.trim() {
                    "decode" => &mut decode,
                    "mixed" => &mut mixed,
                    _ => return Err(error(part, "decode:… or mixed:…")),
                };
                if slot.replace(coefficients.parse()?).is_some() {
                    return Err(error(part, "each regime once"));
                }
                continue;
            }
            let names = ["overhead", "comm", "floor"];
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(i) = names.iter().position(|n| *n == name.trim()) else {
                return Err(error(part, "decode:…, mixed:…, overhead=…, comm=…/token or floor=…"));
            };
            let value = value.trim();
            let time = if i == 1 {
                value.strip_suffix("/token").ok_or_else(|| error(part, "comm=1us/token"))?
            } else {
                value
            };
            let parsed = time.parse().map_err(|e| match e {
                SimError::Grammar { expected, .. } => error(part, &expected),
                other => other,
            })?;
            if extra.get_mut(i).is_some_and(|slot| slot.replace(parsed).is_some()) {
                return Err(error(part, "each part once"));
            }
        }
        let (Some(decode), Some(mixed)) = (decode, mixed) else {
            return Err(error(text, "both regimes, `decode:…; mixed:…`"));
        };
        let [overhead, comm, floor] = extra.map(Option::unwrap_or_default);
        Self::new(decode.coefficients(), mixed.coefficients(), Extra { overhead, comm, floor })
    }
}

impl fmt::Display for TwoRegime {
    /// The text that [`TwoRegime::from_str`] reads back to the same coefficients.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "decode:{}; mixed:{}", self.decode, self.mixed)?;
        let Extra { overhead, comm, floor } = self.extra;
        for (name, value, per) in
            [("overhead", overhead, ""), ("comm", comm, "/token"), ("floor", floor, "")]
        {
            if value != Ticks::ZERO {
                write!(f, "; {name}={}{per}", value.compact())?;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for TwoRegime {
    type Error = SimError;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<TwoRegime> for String {
    fn from(form: TwoRegime) -> Self {
        form.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> TwoRegime {
        text.parse().unwrap()
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

    const FULL: &str = "decode:base=16.94ms,decode=41.5us/request,context=142.6ns/token; \
        mixed:base=15.27ms,prefill=68.85us/token,decode=83.03us/request,context=289.1ns/token,\
        attention=5.714ns/pair; overhead=500us; comm=1us/token; floor=20ms";

    /// 16.94 + 100 · 0.0415 + 1e5 · 0.0001426 = 35.35 ms, plus 0.5 and 100 · 0.001.
    /// With a prompt of 1,000 tokens: 15.27 + 68.85 + 8.303 + 28.91 + 5.714e-6 · 5e5 = 124.19 ms,
    /// plus 0.5 and 1.1.
    #[test]
    fn each_regime_has_its_coefficients() {
        let ms = |t: Ticks| t.seconds() * 1e3;
        assert!((ms(form(FULL).step(&work(0, 100, 100_000))) - 35.95).abs() < 1e-9);
        assert!((ms(form(FULL).step(&work(1000, 100, 100_000))) - 125.79).abs() < 1e-9);
        // A prompt of one token is under the floor of 20 ms: 20 + 0.5 + 0.001.
        assert!((ms(form(FULL).step(&work(1, 0, 0))) - 20.501).abs() < 1e-9);
    }

    #[test]
    fn a_stretch_is_its_steps_one_by_one() {
        for w in [work(0, 7, 700), work(512, 3, 90), work(2, 1, 4), work(60, 1, 10_000)] {
            let stretch = form(FULL).stretch(&w);
            for j in (0..10).take_while(|j| *j < stretch.steps) {
                assert_eq!(stretch.step(j), form(FULL).step(&w.after(j)), "{w:?} {j}");
            }
        }
    }

    #[test]
    fn the_text_survives() {
        assert_eq!(form(&form(FULL).to_string()), form(FULL));
        let least = "decode:base=1ms; mixed:base=2ms";
        assert_eq!(form(least).to_string(), least);
    }

    #[test]
    fn wrong_texts_say_what_would_be_right() {
        let said = |text: &str| text.parse::<TwoRegime>().unwrap_err().to_string();
        let texts = [
            "decode:base=1ms",
            "decode:base=1ms; decode:base=1ms; mixed:base=1ms",
            "decode:prefill=1ms/token; mixed:base=1ms",
            "decode:base=1ms; mixed:base=1ms; comm=1us",
            "decode:base=1ms; mixed:base=1ms; extra=1us",
            "pure:base=1ms",
        ];
        let lines: Vec<String> = texts.iter().map(|t| said(t)).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        step time `decode:base=1ms`: expected both regimes, `decode:…; mixed:…`
        step time `decode:base=1ms`: expected each regime once
        step time `decode:… with prefill or attention`: expected base, decode and context: a pure decode step has no prompt
        step time `comm=1us`: expected comm=1us/token
        step time `extra=1us`: expected decode:…, mixed:…, overhead=…, comm=…/token or floor=…
        step time `pure:base=1ms`: expected decode:… or mixed:…
        ");
    }
}
