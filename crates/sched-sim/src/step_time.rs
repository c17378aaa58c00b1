//! What one scheduler step costs, in exact integers.
//!
//! A step time is a function of what the step processes ([`StepWork`]). While a batch only ages,
//! that work grows by the same amounts from step to step, and most step times grow by a constant
//! too; a [`StepTime`] says over how many steps, and the engine then takes the sum of all of them
//! in closed form ([`StretchTime::total`]).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Result, SimError};
use crate::time::Ticks;

/// What one step processes, and how that grows while the same batch ages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepWork {
    /// Prompt chunks in the step.
    pub prefills: u64,
    /// P: prompt tokens of all chunks.
    pub prefill_tokens: u64,
    /// B: requests that decode one token each.
    pub decodes: u64,
    /// C: tokens that those requests had before this step, prompt and answer.
    pub decode_context: u64,
    /// 2A: twice the sum over chunks of chunk · (tokens already computed) + chunk² / 2, whole
    /// because it is doubled.
    pub attention_doubled: u128,
    /// By how much 2A grows when every chunk is followed by another of its size: 2 · Σ chunk².
    pub attention_growth: u128,
}

impl StepWork {
    /// The work of the step that comes `steps` later in a stretch of the same batch: every decode
    /// has that many tokens more, every chunk that many chunks of its size before it.
    #[must_use]
    pub fn after(&self, steps: u64) -> Self {
        Self {
            decode_context: self.decode_context + steps * self.decodes,
            attention_doubled: self.attention_doubled + u128::from(steps) * self.attention_growth,
            ..*self
        }
    }

    /// Requests in the step.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.decodes + self.prefills
    }

    /// Whether the step does nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests() == 0
    }

    /// Adds a chunk of `tokens` prompt tokens after `done` that are computed.
    pub(crate) fn add_chunk(&mut self, tokens: u64, done: u64) {
        let (n, done) = (u128::from(tokens), u128::from(done));
        self.prefills += 1;
        self.prefill_tokens += tokens;
        self.attention_doubled += n * (2 * done + n);
        self.attention_growth += 2 * n * n;
    }

    /// Adds one decode of a request that has `context` tokens.
    pub(crate) fn add_decode(&mut self, context: u64) {
        self.decodes += 1;
        self.decode_context += context;
    }
}

/// The durations of the steps of a stretch: the first, and by how much each next one is longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StretchTime {
    /// The duration of the first step.
    pub first: Ticks,
    /// By how many attoseconds each step is longer than the one before it.
    pub growth: i128,
    /// For how many steps that holds, at least 1.
    pub steps: u64,
}

impl StretchTime {
    /// One step of which nothing more is known.
    #[must_use]
    pub const fn one(first: Ticks) -> Self {
        Self { first, growth: 0, steps: 1 }
    }

    /// The duration of step `j`, from 0.
    #[must_use]
    #[inline]
    pub fn step(&self, j: u64) -> Ticks {
        let grown = match u64::try_from(self.growth.unsigned_abs()) {
            Ok(each) => u128::from(each) * u128::from(j),
            Err(_) => self.growth.unsigned_abs().saturating_mul(j.into()),
        };
        Ticks(if self.growth < 0 {
            self.first.0.saturating_sub(grown)
        } else {
            self.first.0.saturating_add(grown)
        })
    }

    /// The duration of the first `k` steps: k · first + growth · k (k − 1) / 2, exactly.
    ///
    /// Beyond 2¹²⁶ attoseconds, far past any run, it is the end of the range.
    #[must_use]
    #[inline]
    pub fn total(&self, k: u64) -> Ticks {
        let size = self.growth.unsigned_abs();
        let small = |x: u128| u64::try_from(x).ok().filter(|&x| x < 1 << 62);
        let (plain, aged) = match (small(self.first.0), small(size)) {
            // As small as they mostly are, nothing passes the range, and a product is one operation.
            (Some(first), Some(size)) if k < 1 << 32 => {
                let pairs = k * k.saturating_sub(1) / 2;
                (u128::from(k) * u128::from(first), u128::from(size) * u128::from(pairs))
            }
            _ => {
                let n = u128::from(k);
                let bits = |x: u128| u128::BITS - x.leading_zeros();
                if 126 < bits(n) + bits(self.first.0) || 126 < 2 * bits(n) + bits(size) {
                    return Ticks(u128::MAX);
                }
                (n * self.first.0, size * (n * n.saturating_sub(1) / 2))
            }
        };
        Ticks(if self.growth < 0 { plain.saturating_sub(aged) } else { plain + aged })
    }

    /// The fewest steps whose total reaches `gap`, at most `max`; at least 1.
    #[must_use]
    pub fn steps_to_reach(&self, gap: Ticks, max: u64) -> u64 {
        let reaches = |k: u64| gap <= self.total(k);
        // The root of the quadratic in floats is off by a step at most; integers settle it.
        let size = float(self.growth.unsigned_abs());
        let growth = if self.growth < 0 { -size } else { size };
        let wanted = float(gap.0);
        let linear = float(self.first.0) - growth / 2.0;
        let root = 2.0 * wanted / (linear + (linear * linear + 2.0 * growth * wanted).sqrt());
        // A float-to-integer cast saturates, and NaN becomes 0: both are then corrected.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let mut k = (root.ceil() as u64).clamp(1, max.max(1));
        for _ in 0..2 {
            if reaches(k) {
                if k == 1 || !reaches(k - 1) {
                    return k;
                }
                k -= 1;
            } else if max <= k {
                return k;
            } else {
                k += 1;
            }
        }
        let (mut low, mut high) = (0, max.max(1));
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if reaches(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }

    /// How many of `max` steps end within `gap`.
    pub(crate) fn steps_within(&self, gap: Ticks, max: u64) -> u64 {
        // None of them is common, and costs no root.
        if max == 0 || gap < self.step(0) {
            return 0;
        }
        if self.total(max) <= gap {
            return max;
        }
        let k = self.steps_to_reach(gap, max);
        if self.total(k) <= gap { k } else { k - 1 }
    }
}

/// A float a rounding away: each word is one that the processor converts by itself.
#[allow(clippy::cast_possible_truncation, reason = "the lower word is meant")]
fn float(x: u128) -> f64 {
    (x >> 64) as u64 as f64 * 18_446_744_073_709_551_616.0 + x as u64 as f64
}

/// A mean step of a long run, for the load that a server can bear.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MeanWork {
    /// Mean number of prompt chunks.
    pub prefills: f64,
    /// Mean P.
    pub prefill_tokens: f64,
    /// Mean B.
    pub decodes: f64,
    /// Mean C.
    pub decode_context: f64,
    /// Mean A.
    pub attention: f64,
}

/// How long a step takes.
///
/// A step time is a pure function of the work: no memory, no randomness. Its integers must not
/// overflow for any work of a [`Workload`](crate::Workload): tokens of a batch stay below 2⁴⁸,
/// `attention_doubled` below 2⁸¹.
pub trait StepTime {
    /// The duration of one step.
    fn step(&self, work: &StepWork) -> Ticks;

    /// The durations of the steps that follow while the same batch ages (see
    /// [`StepWork::after`]), as far as they grow by a constant.
    ///
    /// Must agree with [`StepTime::step`] for each of those steps. The default knows one step.
    fn stretch(&self, work: &StepWork) -> StretchTime {
        StretchTime::one(self.step(work))
    }

    /// The durations of the steps in which one request decodes with nobody else, from `context`
    /// tokens on, at the price of a step with prefill if `mixed`.
    ///
    /// The share of a decode in a step that carries prefill is priced in that regime, without the
    /// prefill; the default is for forms that have one regime.
    fn decode_alone(&self, context: u64, mixed: bool) -> StretchTime {
        let _ = mixed;
        self.stretch(&StepWork { decodes: 1, decode_context: context, ..StepWork::default() })
    }

    /// Seconds of a step with this mean work.
    ///
    /// The default rounds the work to whole tokens; a form that is linear in it can be exact.
    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        // Means are not negative and far below 2^63; a cast of a float saturates.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = |x: f64| x.round() as u64;
        self.step(&StepWork {
            prefills: whole(mean.prefills),
            prefill_tokens: whole(mean.prefill_tokens),
            decodes: whole(mean.decodes),
            decode_context: whole(mean.decode_context),
            attention_doubled: u128::from(whole(2.0 * mean.attention)),
            attention_growth: 0,
        })
        .seconds()
    }
}

impl<T: StepTime + ?Sized> StepTime for &T {
    fn step(&self, work: &StepWork) -> Ticks {
        (**self).step(work)
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        (**self).stretch(work)
    }

    fn decode_alone(&self, context: u64, mixed: bool) -> StretchTime {
        (**self).decode_alone(context, mixed)
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        (**self).mean_seconds(mean)
    }
}

impl<T: StepTime + ?Sized> StepTime for Box<T> {
    fn step(&self, work: &StepWork) -> Ticks {
        (**self).step(work)
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        (**self).stretch(work)
    }

    fn decode_alone(&self, context: u64, mixed: bool) -> StretchTime {
        (**self).decode_alone(context, mixed)
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        (**self).mean_seconds(mean)
    }
}

/// The coefficients of [`Affine`]; those left out are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coefficients {
    /// Of every step.
    pub base: Ticks,
    /// Per prompt token.
    pub prefill: Ticks,
    /// Per request that decodes.
    pub decode: Ticks,
    /// Per token of context that a decode reads.
    pub context: Ticks,
    /// Per pair of prompt tokens that attend to each other (A), in an even number of attoseconds.
    pub attention: Ticks,
}

/// A step time that is affine in the work of the step.
///
/// ```text
/// t = base + prefill·P + decode·B + context·C + attention·A
/// ```
///
/// P, B, C and A as in [`StepWork`]. The source's linear form, seconds per prefill token and per
/// decode token, is the one with only `prefill` and `decode` ([`Affine::linear`]): every decode in
/// a step makes one token.
///
/// # Examples
///
/// ```
/// use sched_sim::{Affine, StepTime, StepWork, Ticks};
///
/// let t: Affine = "base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token".parse()?;
/// let mut work = StepWork::default();
/// work.prefill_tokens = 100; // 6 ms
/// work.decodes = 2; // 0.2 ms
/// work.decode_context = 1000; // 0.15 ms
/// assert_eq!(t.step(&work), "14.35ms".parse::<Ticks>()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
///
/// Source: `request_service_demand` of the serving walkthrough for the linear form; the affine
/// one is the usual fit of measured step times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Affine {
    coefficients: Coefficients,
    /// Half of `attention`, per unit of the doubled sum.
    half_attention: u128,
}

impl Affine {
    /// Largest coefficient per step, prompt token, request or context token.
    pub const LARGEST: Ticks = Ticks(1000 * Ticks::SECOND.0);
    /// Largest coefficient per pair of prompt tokens.
    pub const LARGEST_ATTENTION: Ticks = Ticks(Ticks::SECOND.0 / 1_000_000);

    /// Checks coefficients: with these bounds no step of any workload overflows.
    ///
    /// # Errors
    ///
    /// [`SimError::Coefficient`] above [`Affine::LARGEST`] or [`Affine::LARGEST_ATTENTION`];
    /// [`SimError::Grammar`] for an odd number of attoseconds in `attention`, which its half
    /// cannot hold.
    pub fn new(coefficients: Coefficients) -> Result<Self> {
        let c = coefficients;
        for (input, value, max) in [
            ("base", c.base, Self::LARGEST),
            ("prefill", c.prefill, Self::LARGEST),
            ("decode", c.decode, Self::LARGEST),
            ("context", c.context, Self::LARGEST),
            ("attention", c.attention, Self::LARGEST_ATTENTION),
        ] {
            if max < value {
                return Err(SimError::Coefficient { input, max, value });
            }
        }
        if !c.attention.0.is_multiple_of(2) {
            return Err(SimError::Grammar {
                what: "attention coefficient",
                text: format!("{}as/pair", c.attention.0),
                expected: "an even number of attoseconds, since the work holds half pairs"
                    .to_owned(),
            });
        }
        Ok(Self { coefficients, half_attention: c.attention.0 / 2 })
    }

    /// The source's linear step time: seconds per prompt token and per decode token.
    ///
    /// # Errors
    ///
    /// As [`Affine::new`].
    pub fn linear(prefill_per_token: Ticks, decode_per_token: Ticks) -> Result<Self> {
        Self::new(Coefficients {
            prefill: prefill_per_token,
            decode: decode_per_token,
            ..Coefficients::default()
        })
    }

    /// The coefficients.
    #[must_use]
    pub const fn coefficients(&self) -> Coefficients {
        self.coefficients
    }

    fn first(&self, w: &StepWork) -> u128 {
        let c = &self.coefficients;
        let mut t = c.base.0
            + c.prefill.0 * u128::from(w.prefill_tokens)
            + c.decode.0 * u128::from(w.decodes)
            + c.context.0 * u128::from(w.decode_context);
        if self.half_attention != 0 {
            t += self.half_attention * w.attention_doubled;
        }
        t
    }
}

impl StepTime for Affine {
    fn step(&self, work: &StepWork) -> Ticks {
        Ticks(self.first(work))
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        let mut growth = self.coefficients.context.0 * u128::from(work.decodes);
        if self.half_attention != 0 {
            growth += self.half_attention * work.attention_growth;
        }
        // The bounds of the coefficients keep it below 2^122.
        #[allow(clippy::cast_possible_wrap)]
        let growth = growth as i128;
        StretchTime { first: Ticks(self.first(work)), growth, steps: u64::MAX }
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        let c = &self.coefficients;
        c.base.seconds()
            + c.prefill.seconds() * mean.prefill_tokens
            + c.decode.seconds() * mean.decodes
            + c.context.seconds() * mean.decode_context
            + c.attention.seconds() * mean.attention
    }
}

/// The names of the coefficients with the units they may have, in the order in which they print.
const GRAMMAR: [(&str, &[&str]); 5] = [
    ("base", &[""]),
    ("prefill", &["/token"]),
    ("decode", &["/request", "/token"]),
    ("context", &["/token"]),
    ("attention", &["/pair"]),
];

impl FromStr for Affine {
    type Err = SimError;

    /// Comma-separated coefficients with their units:
    /// `base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token,attention=40ps/pair`.
    /// Each at most once; those left out are zero, and at least one must be there.
    fn from_str(text: &str) -> Result<Self> {
        let error = |part: &str, expected: String| SimError::Grammar {
            what: "step time",
            text: part.to_owned(),
            expected,
        };
        let mut values = [None; 5];
        for part in text.split(',').map(str::trim) {
            let Some((name, value)) = part.split_once('=') else {
                return Err(error(part, "NAME=TIME, for example `prefill=60us/token`".to_owned()));
            };
            let Some(i) = GRAMMAR.iter().position(|(n, _)| *n == name.trim()) else {
                return Err(error(
                    part,
                    "one of base, prefill, decode, context, attention".to_owned(),
                ));
            };
            let units = GRAMMAR[i].1;
            let value = value.trim();
            let (time, per) = value.split_at(value.find('/').unwrap_or(value.len()));
            if !units.contains(&per) {
                let unit = units[0];
                return Err(error(
                    part,
                    if unit.is_empty() {
                        "a time per step, for example `base=8ms`".to_owned()
                    } else {
                        format!("a time{unit}, for example `{name}=60us{unit}`")
                    },
                ));
            }
            if values[i].is_some() {
                return Err(error(part, format!("`{name}` once")));
            }
            values[i] = Some(time.parse::<Ticks>().map_err(|e| match e {
                // The part shows where in the text the time stands.
                SimError::Grammar { expected, .. } => error(part, expected),
                other => other,
            })?);
        }
        let [base, prefill, decode, context, attention] = values.map(Option::unwrap_or_default);
        Self::new(Coefficients { base, prefill, decode, context, attention })
    }
}

impl fmt::Display for Affine {
    /// The text that [`Affine::from_str`] reads back to the same coefficients.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.coefficients;
        let mut first = true;
        for ((name, units), value) in
            GRAMMAR.iter().zip([c.base, c.prefill, c.decode, c.context, c.attention])
        {
            if value != Ticks::ZERO || (*name == "base" && *c == Coefficients::default()) {
                let comma = if first { "" } else { "," };
                write!(f, "{comma}{name}={}{}", value.compact(), units[0])?;
                first = false;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Affine {
    type Error = SimError;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Affine> for String {
    fn from(affine: Affine) -> Self {
        affine.to_string()
    }
}
