//! Exact time: instants and durations as whole attoseconds.
//!
//! With whole ticks the sum over k decode steps is an integer closed form, a run gives the same
//! bits on every machine, and Little's law on a run is an equality. An attosecond (10⁻¹⁸ s) holds
//! every coefficient in use to well below 1e-6 of itself, and 128 bits leave room for totals:
//! requests times the longest run ([`Ticks::LONGEST_RUN`]) stay below 2¹²⁸.

use std::fmt;
use std::str::FromStr;

use metrics_core::{Instant, Seconds};

use crate::error::{Result, SimError};

/// Attoseconds in a second, as a power of ten.
const DIGITS: i64 = 18;
/// Attoseconds in a picosecond.
const PER_PICOSECOND: u128 = 1_000_000;

/// An instant since the start of a run, or a duration, in whole attoseconds.
///
/// Nothing inside a run rounds; outputs round once, down, to picoseconds ([`Ticks::instant`]).
///
/// # Examples
///
/// ```
/// use sched_sim::Ticks;
///
/// let step: Ticks = "8.0001ms".parse()?;
/// assert_eq!(step.attoseconds(), 8_000_100_000_000_000);
/// assert_eq!(step, Ticks::from_decimal_seconds("0.0080001")?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub(crate) u128);

impl Ticks {
    /// The start of a run; no time.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000_000_000_000);
    /// A hundred years of 365 days: no run and no arrival goes beyond.
    ///
    /// 2³² requests in the system for that long are still below 2¹²⁸ attoseconds together.
    pub const LONGEST_RUN: Self = Self(100 * 365 * 86_400 * Self::SECOND.0);

    /// From whole attoseconds.
    #[must_use]
    pub const fn from_attoseconds(attoseconds: u128) -> Self {
        Self(attoseconds)
    }

    /// From whole picoseconds.
    #[must_use]
    pub const fn from_picoseconds(picoseconds: u64) -> Self {
        Self(picoseconds as u128 * PER_PICOSECOND)
    }

    /// From whole nanoseconds, as clocks count them.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds as u128 * 1_000_000_000)
    }

    /// From a decimal number of seconds as text, for example `46.6805900` or `1.5e-3`, exactly.
    ///
    /// # Errors
    ///
    /// [`SimError::Grammar`] if the text is no plain decimal number or is finer than an
    /// attosecond; [`SimError::TooLarge`] beyond [`Ticks::LONGEST_RUN`].
    pub fn from_decimal_seconds(text: &str) -> Result<Self> {
        decimal(text, DIGITS).map(Self).map_err(|e| e.error("seconds", text))
    }

    /// From seconds in a float, rounded to the nearest tick.
    ///
    /// Prefer text where there is text: `0.1` as a float is not a tenth.
    ///
    /// # Errors
    ///
    /// [`SimError::Grammar`] for a negative or not finite number, [`SimError::Parameter`] beyond
    /// [`Ticks::LONGEST_RUN`].
    pub fn from_seconds(seconds: f64) -> Result<Self> {
        if !(0.0 <= seconds && seconds.is_finite()) {
            return Err(SimError::Grammar {
                what: "seconds",
                text: seconds.to_string(),
                expected: "a finite number of at least 0".to_owned(),
            });
        }
        // A float-to-integer cast saturates, so the bound below still sees what was too large.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let time = Self((seconds * 1e18).round() as u128);
        if Self::LONGEST_RUN < time {
            let bound = "at most 3153600000, a hundred years";
            return Err(SimError::Parameter { input: "seconds".to_owned(), bound, value: seconds });
        }
        Ok(time)
    }

    /// Itself, unless it is beyond [`Ticks::LONGEST_RUN`].
    pub(crate) fn within_a_run(self, input: &'static str) -> Result<Self> {
        if Self::LONGEST_RUN < self {
            return Err(SimError::TimeOutOfRange { input, value: self });
        }
        Ok(self)
    }

    /// Whole attoseconds.
    #[must_use]
    pub const fn attoseconds(self) -> u128 {
        self.0
    }

    /// Whole picoseconds, rounded down: the one rounding of an output.
    #[must_use]
    pub const fn picoseconds(self) -> u128 {
        self.0 / PER_PICOSECOND
    }

    /// The nearest float in seconds, for ratios and reports.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e18
    }

    /// As a typed quantity of the metrics.
    ///
    /// # Errors
    ///
    /// Never for an instant of a run; the type's own check.
    pub fn to_seconds(self) -> metrics_core::Result<Seconds> {
        Seconds::new(self.seconds())
    }

    /// As an instant of a timeline: whole picoseconds, rounded down.
    #[must_use]
    pub const fn instant(self) -> Instant {
        Instant::Picoseconds(self.picoseconds())
    }

    /// In full in its largest fitting unit, as [`Ticks::from_str`] reads it: `8.5ms`.
    #[must_use]
    pub fn compact(self) -> String {
        let units = [("s", 18), ("ms", 15), ("us", 12), ("ns", 9), ("ps", 6), ("fs", 3), ("as", 0)];
        let (unit, power) =
            units.into_iter().find(|&(_, p)| 10_u128.pow(p) <= self.0).unwrap_or(("s", 18));
        let one = 10_u128.pow(power);
        let (whole, part) = (self.0 / one, self.0 % one);
        if part == 0 {
            return format!("{whole}{unit}");
        }
        let digits = format!("{part:0width$}", width = power as usize);
        format!("{whole}.{}{unit}", digits.trim_end_matches('0'))
    }

    /// The time from `earlier` to `self`; `None` if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Self> {
        self.0.checked_sub(earlier.0).map(Self)
    }

    /// The instant `duration` later; the end of the range if that is beyond it.
    #[must_use]
    pub const fn after(self, duration: Self) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

impl fmt::Display for Ticks {
    /// Seconds in full, rounded down to picoseconds, without trailing zeros: `0.0081 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ps = self.picoseconds();
        let (whole, part) = (ps / 1_000_000_000_000, ps % 1_000_000_000_000);
        let digits = format!("{part:012}");
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            f.pad(&format!("{whole} s"))
        } else {
            f.pad(&format!("{whole}.{digits} s"))
        }
    }
}

impl FromStr for Ticks {
    type Err = SimError;

    /// A duration with its unit: `8ms`, `100us`, `430.78ps`, `1.5s`.
    fn from_str(text: &str) -> Result<Self> {
        let at = text.find(|c: char| c.is_alphabetic() && c != 'e' && c != 'E');
        let (number, unit) = text.split_at(at.unwrap_or(text.len()));
        let power = match unit {
            "as" => 0,
            "fs" => 3,
            "ps" => 6,
            "ns" => 9,
            "us" | "µs" | "μs" => 12,
            "ms" => 15,
            "s" => 18,
            _ => {
                return Err(SimError::Grammar {
                    what: "duration",
                    text: text.to_owned(),
                    expected: "a number with one of the units s, ms, us, ns, ps, fs, as: `8ms`"
                        .to_owned(),
                });
            }
        };
        decimal(number, power).map(Self).map_err(|e| e.error("duration", text))
    }
}

/// Why a decimal number has no value in ticks.
enum NoTicks {
    Negative,
    NoNumber,
    TooFine,
    TooLarge,
}

impl NoTicks {
    fn error(&self, what: &'static str, text: &str) -> SimError {
        let expected = match self {
            Self::Negative => "a time of at least 0".to_owned(),
            Self::NoNumber => "a decimal number such as `8`, `0.25` or `1.5e-3`".to_owned(),
            Self::TooFine => "no digit finer than an attosecond (1e-18 s)".to_owned(),
            Self::TooLarge => {
                format!("at most {} (a hundred years)", Ticks::LONGEST_RUN)
            }
        };
        SimError::Grammar { what, text: text.to_owned(), expected }
    }
}

/// `text`·10^`power` as a whole number, exactly.
fn decimal(text: &str, power: i64) -> std::result::Result<u128, NoTicks> {
    if text.starts_with('-') {
        return Err(NoTicks::Negative);
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((m, e)) => (m, e.parse::<i32>().map_err(|_| NoTicks::NoNumber)?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(NoTicks::NoNumber);
    }
    let mut value: u128 = 0;
    // Trailing zeros of the fraction carry no value, so they may be finer than a tick.
    let fraction = fraction.trim_end_matches('0');
    for c in whole.chars().chain(fraction.chars()) {
        let digit = c.to_digit(10).ok_or(NoTicks::NoNumber)?;
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u128::from(digit)))
            .ok_or(NoTicks::TooLarge)?;
    }
    let mut shift = power + i64::from(exponent)
        - i64::try_from(fraction.len()).map_err(|_| NoTicks::TooFine)?;
    if value == 0 {
        return Ok(0);
    }
    while 0 < shift {
        value = value.checked_mul(10).ok_or(NoTicks::TooLarge)?;
        shift -= 1;
    }
    while shift < 0 {
        if !value.is_multiple_of(10) {
            return Err(NoTicks::TooFine);
        }
        value /= 10;
        shift += 1;
    }
    if Ticks::LONGEST_RUN.0 < value { Err(NoTicks::TooLarge) } else { Ok(value) }
}
