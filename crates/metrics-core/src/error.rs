//! Why a formula has no value, and the checks that say so.

use crate::format::plain;

/// A number of a message.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the error's fields come as references")]
fn number(x: &f64) -> String {
    plain(*x)
}

/// A text from outside as it may stand in a one-line message: control characters escaped, cut at
/// 60 characters.
fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == LONGEST {
            out.push('…');
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// A text with its control characters escaped, so that a message stays one line.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// The result of a formula of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a formula has no value for the given inputs.
///
/// Every variant names the input, the bound and the value, as a clause that completes
/// "cannot compute tpot: …", for example `n_out must be at least 2, got 1`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input is NaN or infinite.
    #[error("{input} must be a finite number, got {}", number(.value))]
    NotFinite {
        /// The input's name.
        input: &'static str,
        /// What the caller passed.
        value: f64,
    },
    /// An input is below its smallest value.
    #[error("{input} must be at least {}, got {}", number(.min), number(.value))]
    TooSmall {
        /// The input's name.
        input: &'static str,
        /// The smallest value with a meaning.
        min: f64,
        /// What the caller passed.
        value: f64,
    },
    /// An input is not above the bound that it may not reach.
    #[error("{input} must be above {}, got {}", number(.bound), number(.value))]
    NotAbove {
        /// The input's name.
        input: &'static str,
        /// The bound, itself not allowed.
        bound: f64,
        /// What the caller passed.
        value: f64,
    },
    /// An input is above its largest value.
    #[error("{input} must be at most {}, got {}", number(.max), number(.value))]
    TooLarge {
        /// The input's name.
        input: &'static str,
        /// The largest value with a meaning.
        max: f64,
        /// What the caller passed.
        value: f64,
    },
    /// An input is not below the bound that it may not reach.
    #[error("{input} must be below {}, got {}", number(.bound), number(.value))]
    NotBelow {
        /// The input's name.
        input: &'static str,
        /// The bound, itself not allowed.
        bound: f64,
        /// What the caller passed.
        value: f64,
    },
    /// Two inputs stand in the wrong order.
    #[error(
        "{later} must be at least {earlier} = {}, got {}",
        number(.earlier_value),
        number(.later_value)
    )]
    Order {
        /// The name of the input that has to be the larger one.
        later: &'static str,
        /// Its value.
        later_value: f64,
        /// The name of the input that has to be the smaller one.
        earlier: &'static str,
        /// Its value.
        earlier_value: f64,
    },
    /// A formula over many items got none.
    #[error("{input} must hold at least one {item}, got none")]
    Empty {
        /// The input's name.
        input: &'static str,
        /// What it should hold.
        item: &'static str,
    },
    /// A list holds fewer items than the formula needs.
    #[error("{input} must hold at least {min} {item}s, got {len}")]
    TooFew {
        /// The input's name.
        input: &'static str,
        /// What it should hold.
        item: &'static str,
        /// How many it must hold.
        min: usize,
        /// How many it holds.
        len: usize,
    },
    /// A required field of a record is absent.
    #[error("{input} is missing: {needed_for}")]
    Missing {
        /// The field's name.
        input: &'static str,
        /// Why it is needed.
        needed_for: &'static str,
    },
    /// Two fields of a record contradict each other.
    #[error("{what}")]
    Contradiction {
        /// The fields, their values and what would be right.
        what: String,
    },
    /// A text does not follow its grammar.
    #[error("{what} `{}`: {}", shown(.text), escaped(.expected))]
    Grammar {
        /// What was being read, for example `SLO`.
        what: &'static str,
        /// The text as it came.
        text: String,
        /// What would be right.
        expected: String,
    },
}

/// Largest magnitude that a quantity may have.
///
/// Sums and products of quantities below it stay finite, so that no formula can overflow to
/// infinity; nothing that a server measures comes near it.
pub const LARGEST: f64 = 1e100;

/// `value` if it is finite and no larger in size than [`LARGEST`].
///
/// # Errors
///
/// [`Error::NotFinite`] or [`Error::TooLarge`] naming `input`.
#[inline]
pub fn finite(input: &'static str, value: f64) -> Result<f64> {
    if !value.is_finite() {
        return Err(Error::NotFinite { input, value });
    }
    if LARGEST < value.abs() {
        return Err(Error::TooLarge { input, max: LARGEST, value: value.abs() });
    }
    Ok(value)
}

/// `value` if it is finite and `min <= value`.
///
/// # Errors
///
/// [`Error::NotFinite`], [`Error::TooLarge`] or [`Error::TooSmall`] naming `input`.
#[inline]
pub fn at_least(input: &'static str, value: f64, min: f64) -> Result<f64> {
    let value = finite(input, value)?;
    if value < min { Err(Error::TooSmall { input, min, value }) } else { Ok(value) }
}

/// `value` if it is finite and `bound < value`.
///
/// # Errors
///
/// [`Error::NotFinite`], [`Error::TooLarge`] or [`Error::NotAbove`] naming `input`.
#[inline]
pub fn above(input: &'static str, value: f64, bound: f64) -> Result<f64> {
    let value = finite(input, value)?;
    if value <= bound { Err(Error::NotAbove { input, bound, value }) } else { Ok(value) }
}

/// `value` if it is finite and `min <= value <= max`.
///
/// # Errors
///
/// [`Error::NotFinite`], [`Error::TooSmall`] or [`Error::TooLarge`] naming `input`.
#[inline]
pub fn within(input: &'static str, value: f64, min: f64, max: f64) -> Result<f64> {
    let value = at_least(input, value, min)?;
    if max < value { Err(Error::TooLarge { input, max, value }) } else { Ok(value) }
}

/// `later - earlier` if it is not negative.
///
/// # Errors
///
/// [`Error::Order`] naming both.
#[inline]
pub fn difference(later: (&'static str, f64), earlier: (&'static str, f64)) -> Result<f64> {
    if later.1 < earlier.1 {
        return Err(Error::Order {
            later: later.0,
            later_value: later.1,
            earlier: earlier.0,
            earlier_value: earlier.1,
        });
    }
    Ok(later.1 - earlier.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_names_input_bound_and_value() {
        let say = |e: Result<f64>| e.unwrap_err().to_string();
        assert_eq!(say(at_least("n_out", 1.0, 2.0)), "n_out must be at least 2, got 1");
        assert_eq!(say(above("mu", 0.0, 0.0)), "mu must be above 0, got 0");
        assert_eq!(say(within("q", 1.5, 0.0, 1.0)), "q must be at most 1, got 1.5");
        assert_eq!(say(finite("x", f64::NAN)), "x must be a finite number, got NaN");
        assert_eq!(
            say(difference(("t_last", 1.0), ("t_first", 2.0))),
            "t_last must be at least t_first = 2, got 1"
        );
    }

    /// A number of a hundred digits would hide the message.
    #[test]
    fn messages_stay_short_whatever_came() {
        let far = at_least("arrival", 1e300, 0.0).unwrap_err().to_string();
        assert_eq!(far, "arrival must be at most 1e100, got 1e300");
        let near = difference(("b", 4e-12), ("a", 5e-12)).unwrap_err().to_string();
        assert_eq!(near, "b must be at least a = 5e-12, got 4e-12");
        let text = "x\n".repeat(5000);
        let long = Error::Grammar { what: "SLO", text, expected: "write less".to_owned() };
        assert!(long.to_string().chars().count() < 150 && !long.to_string().contains('\n'));
    }

    #[test]
    fn bounds_themselves_are_in_or_out_as_named() {
        assert_eq!(at_least("x", 2.0, 2.0), Ok(2.0));
        assert!(above("x", 2.0, 2.0).is_err());
        assert_eq!(within("x", 1.0, 0.0, 1.0), Ok(1.0));
        assert_eq!(difference(("b", 2.0), ("a", 2.0)), Ok(0.0));
        assert!(finite("x", -2e100).is_err());
    }
}
