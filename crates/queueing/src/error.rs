//! Why a queue has no answer, and the checks that say so.

use metrics_core::format::plain;

/// A number of a message.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the error's fields come as references")]
fn number(x: &f64) -> String {
    plain(*x)
}

/// The result of a formula of this crate.
pub type Result<T, E = QueueError> = std::result::Result<T, E>;

/// Why a formula or a model has no value for the given inputs.
///
/// Every message is a clause that completes "cannot compute erlang_c: …" and names the input, the
/// bound and the value, for example `c must be a whole number from 1 to 1000000000, got 0`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// An input is NaN, or infinite where that has no meaning.
    #[error("{name} must be a finite number, got {}", number(.value))]
    NotFinite {
        /// The input's name.
        name: &'static str,
        /// What the caller passed.
        value: f64,
    },
    /// An input lies outside the range in which it has a meaning.
    #[error("{name} must be {expected}, got {}", number(.value))]
    OutOfRange {
        /// The input's name.
        name: &'static str,
        /// What the caller passed.
        value: f64,
        /// What would be right.
        expected: &'static str,
    },
    /// Work arrives at least as fast as the servers can do it, so the queue grows without end.
    #[error("rho must be below 1 for a queue that does not grow for ever, got {}", number(.rho))]
    Unstable {
        /// Arriving work per unit of capacity.
        rho: f64,
    },
    /// The inputs are valid, but no value meets what they ask for.
    #[error("{reason}")]
    NoSolution {
        /// What stands in the way, with the numbers.
        reason: String,
    },
    /// An iteration ended before it met its tolerance.
    #[error("{name} must settle within {iterations} iterations, got {} still to go", number(.residual))]
    NotConverged {
        /// What was being solved for.
        name: &'static str,
        /// How many iterations were allowed.
        iterations: u32,
        /// The relative change of the last one.
        residual: f64,
    },
}

/// Smallest rate or time, other than 0, that a model takes.
///
/// Between it and [`LARGEST`] no product or quotient of a formula here can overflow, so that a
/// result is a number, 0 where the true value is below what `f64` holds, or an infinity that the
/// documentation names.
pub const SMALLEST: f64 = 1e-50;

/// Largest rate or time that a model takes; see [`SMALLEST`].
pub const LARGEST: f64 = 1e50;

/// Most servers that this crate takes: a whole number and exact as `f64`, with room to multiply.
pub const MAX_SERVERS: u64 = 1_000_000_000;

/// `value` if it is a number of either sign, infinities excluded.
pub(crate) fn finite(name: &'static str, value: f64) -> Result<f64> {
    if value.is_finite() { Ok(value) } else { Err(QueueError::NotFinite { name, value }) }
}

/// `value` if it is finite and not negative; the negative zero becomes plain zero.
pub(crate) fn not_negative(name: &'static str, value: f64) -> Result<f64> {
    let value = finite(name, value)?;
    if value < 0.0 {
        return Err(QueueError::OutOfRange { name, value, expected: "at least 0" });
    }
    Ok(value + 0.0)
}

/// A rate, time or mean number that may be 0.
pub(crate) fn zero_or_more(name: &'static str, value: f64) -> Result<f64> {
    let value = finite(name, value)?;
    if value < 0.0 || LARGEST < value {
        return Err(QueueError::OutOfRange { name, value, expected: "from 0 to 1e50" });
    }
    Ok(value + 0.0)
}

/// A rate or time by which a formula divides.
pub(crate) fn positive(name: &'static str, value: f64) -> Result<f64> {
    let value = finite(name, value)?;
    if value <= 0.0 {
        return Err(QueueError::OutOfRange { name, value, expected: "above 0" });
    }
    if value < SMALLEST || LARGEST < value {
        return Err(QueueError::OutOfRange { name, value, expected: "from 1e-50 to 1e50" });
    }
    Ok(value)
}

/// A probability, both ends included.
pub(crate) fn probability(name: &'static str, value: f64) -> Result<f64> {
    let value = finite(name, value)?;
    if value < 0.0 || 1.0 < value {
        return Err(QueueError::OutOfRange { name, value, expected: "from 0 to 1" });
    }
    Ok(value + 0.0)
}

/// A probability strictly between 0 and 1, as a target has to be.
pub(crate) fn target(name: &'static str, value: f64) -> Result<f64> {
    let value = finite(name, value)?;
    if value <= 0.0 || 1.0 <= value {
        return Err(QueueError::OutOfRange { name, value, expected: "above 0 and below 1" });
    }
    Ok(value)
}

/// A number of servers, at least one, as the `f64` that formulas use; it is exact.
pub(crate) fn servers(name: &'static str, c: u64) -> Result<f64> {
    let value = c as f64;
    if c < 1 || MAX_SERVERS < c {
        let expected = "a whole number from 1 to 1000000000";
        return Err(QueueError::OutOfRange { name, value, expected });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_input_bound_and_value() {
        let say = |e: Result<f64>| e.unwrap_err().to_string();
        assert_eq!(say(positive("mu", 0.0)), "mu must be above 0, got 0");
        assert_eq!(say(positive("mu", 1e-60)), "mu must be from 1e-50 to 1e50, got 1e-60");
        assert_eq!(
            say(zero_or_more("lambda", f64::NAN)),
            "lambda must be a finite number, got NaN"
        );
        assert_eq!(say(probability("p", 99.0)), "p must be from 0 to 1, got 99");
        assert_eq!(say(target("p", 1.0)), "p must be above 0 and below 1, got 1");
        assert_eq!(say(servers("c", 0)), "c must be a whole number from 1 to 1000000000, got 0");
        assert_eq!(
            QueueError::Unstable { rho: 1.25 }.to_string(),
            "rho must be below 1 for a queue that does not grow for ever, got 1.25"
        );
        assert_eq!(
            QueueError::NotConverged { name: "t", iterations: 9, residual: 0.5 }.to_string(),
            "t must settle within 9 iterations, got 0.5 still to go"
        );
    }
}
