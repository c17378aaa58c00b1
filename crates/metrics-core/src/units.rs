//! Quantities with their unit in the type, and the units themselves as data.
//!
//! A bare `f64` is a pure number. Everything else is a type: [`Seconds`], [`SecondsPerToken`],
//! [`TokensPerSecond`] and their like, each finite, not negative and at most
//! [`LARGEST`](crate::error::LARGEST), checked once when made. Arithmetic that
//! could leave that range returns a [`Result`], the rest is plain operators.

use std::fmt;
use std::ops::{Add, Div, Mul};
use std::time::Duration;

use crate::error::{Result, above, at_least};

/// A unit of measure: whole exponents over the base units that serving needs.
///
/// Counts (tokens, requests, bytes, FLOP) are units of their own, so that a formula that divides
/// tokens by requests cannot pass for one that does not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unit {
    exponents: [i8; BASES.len()],
}

/// The base units, in the order in which they are printed.
const BASES: [&str; 12] = [
    "currency",
    "token",
    "request",
    "byte",
    "FLOP",
    "parameter",
    "block",
    "step",
    "GPU",
    "node",
    "s",
    "h",
];
/// Where the counts end and time begins.
const SECOND_INDEX: usize = 10;

impl Unit {
    /// The unit of a pure number.
    pub const ONE: Self = Self { exponents: [0; BASES.len()] };
    /// Money, in the caller's currency.
    pub const CURRENCY: Self = Self::base(0);
    /// Tokens.
    pub const TOKEN: Self = Self::base(1);
    /// Requests.
    pub const REQUEST: Self = Self::base(2);
    /// Bytes.
    pub const BYTE: Self = Self::base(3);
    /// Floating-point operations, as a count.
    pub const FLOP: Self = Self::base(4);
    /// Model parameters.
    pub const PARAMETER: Self = Self::base(5);
    /// KV-cache blocks.
    pub const BLOCK: Self = Self::base(6);
    /// Scheduler steps.
    pub const STEP: Self = Self::base(7);
    /// GPUs.
    pub const GPU: Self = Self::base(8);
    /// Nodes: servers of several GPUs.
    pub const NODE: Self = Self::base(9);
    /// Seconds. In `queueing` it stands for the caller's one unit of time.
    pub const SECOND: Self = Self::base(SECOND_INDEX);
    /// Hours, for prices: kept apart from seconds so that 3600 is never lost.
    pub const HOUR: Self = Self::base(11);

    const fn base(index: usize) -> Self {
        let mut exponents = [0; BASES.len()];
        exponents[index] = 1;
        Self { exponents }
    }

    /// The product of two units.
    #[must_use]
    pub const fn times(self, other: Self) -> Self {
        let mut exponents = self.exponents;
        let mut i = 0;
        while i < exponents.len() {
            exponents[i] = exponents[i].saturating_add(other.exponents[i]);
            i += 1;
        }
        Self { exponents }
    }

    /// The quotient of two units.
    #[must_use]
    pub const fn per(self, other: Self) -> Self {
        let mut exponents = self.exponents;
        let mut i = 0;
        while i < exponents.len() {
            exponents[i] = exponents[i].saturating_sub(other.exponents[i]);
            i += 1;
        }
        Self { exponents }
    }

    /// This unit to a whole power.
    #[must_use]
    pub const fn power(self, n: i8) -> Self {
        let mut exponents = self.exponents;
        let mut i = 0;
        while i < exponents.len() {
            exponents[i] = exponents[i].saturating_mul(n);
            i += 1;
        }
        Self { exponents }
    }

    /// The unit whose square this is, if there is one.
    #[must_use]
    pub fn square_root(self) -> Option<Self> {
        let whole = self.exponents.iter().all(|e| e % 2 == 0);
        whole.then(|| Self { exponents: self.exponents.map(|e| e / 2) })
    }

    /// Whether it is the unit of a pure number.
    #[must_use]
    pub fn is_one(self) -> bool {
        self == Self::ONE
    }

    /// Whether it counts things one by one, so that a bare whole number may be added to it.
    #[must_use]
    pub fn is_count(self) -> bool {
        let counts = self.exponents[1..SECOND_INDEX].iter().filter(|&&e| e == 1).count();
        counts == 1 && self.exponents.iter().filter(|&&e| e != 0).count() == 1
    }
}

impl fmt::Display for Unit {
    /// `s/token`, `request/s`, `1`; several in the denominator are joined by a dot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |sign: i8| {
            let parts: Vec<String> = BASES
                .iter()
                .zip(self.exponents)
                .filter(|(_, e)| 0 < e.signum() * sign)
                .map(|(base, e)| match e.abs() {
                    1 => (*base).to_string(),
                    n => format!("{base}^{n}"),
                })
                .collect();
            parts.join("·")
        };
        match (side(1).as_str(), side(-1).as_str()) {
            ("", "") => f.write_str("1"),
            (up, "") => f.write_str(up),
            ("", down) => write!(f, "1/{down}"),
            (up, down) => write!(f, "{up}/{down}"),
        }
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unit({self})")
    }
}

/// A number together with its unit in the type.
pub trait Quantity: Copy {
    /// The unit.
    const UNIT: Unit;
    /// The number, in that unit.
    fn number(self) -> f64;
}

impl Quantity for f64 {
    const UNIT: Unit = Unit::ONE;
    fn number(self) -> f64 {
        self
    }
}

/// Declares a quantity: its checked constructor, its number, and its arithmetic with itself.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:expr, $input:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0.0);

            /// A checked quantity.
            ///
            /// # Errors
            ///
            /// [`Error`](crate::Error) if `value` is not finite, negative, or above
            /// [`LARGEST`](crate::error::LARGEST).
            #[inline]
            pub fn new(value: f64) -> Result<Self> {
                Self::named($input, value)
            }

            /// A checked quantity whose error calls it `input`.
            ///
            /// # Errors
            ///
            /// As [`Self::new`].
            #[inline]
            pub fn named(input: &'static str, value: f64) -> Result<Self> {
                // Adding zero turns the negative zero of a subtraction into plain zero.
                Ok(Self(at_least(input, value, 0.0)? + 0.0))
            }

            /// The number, in this type's unit.
            #[must_use]
            #[inline]
            pub const fn get(self) -> f64 {
                self.0
            }

            /// Total order, for sorting.
            #[must_use]
            pub fn total_cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.0.total_cmp(&other.0)
            }

            /// How much more this is than `other`.
            ///
            /// # Errors
            ///
            /// [`Error::Order`](crate::Error) if `other` is the larger one.
            pub fn minus(self, other: Self) -> Result<Self> {
                crate::error::difference(("the minuend", self.0), ("the subtrahend", other.0)).map(Self)
            }
        }

        impl Quantity for $name {
            const UNIT: Unit = $unit;
            fn number(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = crate::Error;
            fn try_from(value: f64) -> Result<Self> {
                Self::new(value)
            }
        }

        impl From<$name> for f64 {
            fn from(q: $name) -> f64 {
                q.0
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }

        impl Mul<f64> for $name {
            type Output = Result<Self>;
            /// Scaled; an error if the factor is negative or not finite.
            fn mul(self, factor: f64) -> Result<Self> {
                Self::new(self.0 * at_least("factor", factor, 0.0)?)
            }
        }

        impl Div for $name {
            type Output = Result<f64>;
            /// The ratio of two of a kind; an error if the divisor is zero.
            fn div(self, other: Self) -> Result<f64> {
                Ok(self.0 / above(concat!("the divisor in ", $input), other.0, 0.0)?)
            }
        }
    };
}

quantity!(
    /// A duration, or an instant counted from the start of its run.
    Seconds, Unit::SECOND, "seconds");
quantity!(
    /// Time per token, as TPOT has it.
    SecondsPerToken, Unit::SECOND.per(Unit::TOKEN), "seconds per token");
quantity!(
    /// Token throughput.
    TokensPerSecond, Unit::TOKEN.per(Unit::SECOND), "tokens per second");
quantity!(
    /// Request throughput, arrival rate, goodput.
    RequestsPerSecond, Unit::REQUEST.per(Unit::SECOND), "requests per second");
quantity!(
    /// A number of requests that need not be whole, as a mean is.
    Requests, Unit::REQUEST, "requests");
quantity!(
    /// A number of tokens that need not be whole, as a mean is.
    Tokens, Unit::TOKEN, "tokens");
quantity!(
    /// A number of bytes; whole numbers are exact up to 2^53.
    Bytes, Unit::BYTE, "bytes");
quantity!(
    /// Bytes per token, as the KV cache needs them.
    BytesPerToken, Unit::BYTE.per(Unit::TOKEN), "bytes per token");
quantity!(
    /// Memory bandwidth.
    BytesPerSecond, Unit::BYTE.per(Unit::SECOND), "bytes per second");
quantity!(
    /// A number of floating-point operations.
    Flop, Unit::FLOP, "FLOP");
quantity!(
    /// Floating-point operations per second.
    FlopPerSecond, Unit::FLOP.per(Unit::SECOND), "FLOP per second");
quantity!(
    /// Arithmetic intensity.
    FlopPerByte, Unit::FLOP.per(Unit::BYTE), "FLOP per byte");
quantity!(
    /// A price per hour, in the caller's currency.
    CostPerHour, Unit::CURRENCY.per(Unit::HOUR), "cost per hour");
quantity!(
    /// A price per token, in the caller's currency.
    CostPerToken, Unit::CURRENCY.per(Unit::TOKEN), "cost per token");
quantity!(
    /// Tokens per hour, for prices.
    TokensPerHour, Unit::TOKEN.per(Unit::HOUR), "tokens per hour");
quantity!(
    /// A number of nodes.
    Nodes, Unit::NODE, "nodes");
quantity!(
    /// A number of GPUs.
    Gpus, Unit::GPU, "GPUs");
quantity!(
    /// Requests per second that one node serves.
    RequestsPerSecondPerNode, Unit::REQUEST.per(Unit::SECOND).per(Unit::NODE), "requests per second per node");

impl From<Duration> for Seconds {
    /// Every [`Duration`] is a valid time.
    fn from(d: Duration) -> Self {
        Self(d.as_secs_f64())
    }
}

impl Seconds {
    /// A time that was checked when it was stored.
    pub(crate) const fn stored(value: f64) -> Self {
        Self(value)
    }

    /// The quantity in milliseconds, as benchmark tools print it.
    #[must_use]
    pub fn as_millis(self) -> f64 {
        self.0 * 1e3
    }

    /// From milliseconds.
    ///
    /// # Errors
    ///
    /// As [`Seconds::new`].
    pub fn from_millis(ms: f64) -> Result<Self> {
        Self::named("milliseconds", ms).map(|s| Self(s.0 / 1e3))
    }
}

/// Declares `A * B = C` in both orders; the product of two checked quantities is finite.
macro_rules! product {
    ($a:ident * $b:ident = $c:ident) => {
        impl Mul<$b> for $a {
            type Output = $c;
            fn mul(self, other: $b) -> $c {
                $c(self.0 * other.0)
            }
        }
        impl Mul<$a> for $b {
            type Output = $c;
            fn mul(self, other: $a) -> $c {
                $c(self.0 * other.0)
            }
        }
    };
}

product!(SecondsPerToken * Tokens = Seconds);
product!(TokensPerSecond * Seconds = Tokens);
product!(RequestsPerSecond * Seconds = Requests);
product!(BytesPerToken * Tokens = Bytes);
product!(BytesPerSecond * Seconds = Bytes);
product!(FlopPerSecond * Seconds = Flop);
product!(FlopPerByte * Bytes = Flop);

/// Declares `A / B = C`; an error if the divisor is zero.
macro_rules! quotient {
    ($a:ident / $b:ident = $c:ident) => {
        impl Div<$b> for $a {
            type Output = Result<$c>;
            fn div(self, other: $b) -> Result<$c> {
                $c::new(self.0 / above(<$b>::INPUT, other.0, 0.0)?)
            }
        }
    };
}

/// The name that an error uses for a divisor of this type.
trait Named {
    const INPUT: &'static str;
}
macro_rules! named {
    ($($name:ident $input:literal),* $(,)?) => {
        $(impl Named for $name { const INPUT: &'static str = $input; })*
    };
}
named!(
    Seconds "seconds",
    Tokens "tokens",
    BytesPerSecond "bytes per second",
    FlopPerSecond "FLOP per second",
    BytesPerToken "bytes per token",
    Bytes "bytes",
    RequestsPerSecond "requests per second",
    TokensPerSecond "tokens per second",
);

quotient!(Seconds / Tokens = SecondsPerToken);
quotient!(Tokens / Seconds = TokensPerSecond);
quotient!(Tokens / TokensPerSecond = Seconds);
quotient!(Requests / Seconds = RequestsPerSecond);
quotient!(Requests / RequestsPerSecond = Seconds);
quotient!(Bytes / BytesPerSecond = Seconds);
quotient!(Bytes / Tokens = BytesPerToken);
quotient!(Bytes / BytesPerToken = Tokens);
quotient!(Flop / FlopPerSecond = Seconds);
quotient!(Flop / Bytes = FlopPerByte);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_print_as_people_write_them() {
        assert_eq!(Unit::ONE.to_string(), "1");
        assert_eq!(SecondsPerToken::UNIT.to_string(), "s/token");
        assert_eq!(Unit::ONE.per(Unit::SECOND).to_string(), "1/s");
        assert_eq!(RequestsPerSecondPerNode::UNIT.to_string(), "request/node·s");
        assert_eq!(Unit::SECOND.power(2).to_string(), "s^2");
        assert_eq!(Unit::SECOND.power(-2).square_root(), Some(Unit::ONE.per(Unit::SECOND)));
        assert_eq!(Unit::SECOND.square_root(), None);
    }

    #[test]
    fn counts_are_single_things() {
        assert!(Unit::TOKEN.is_count() && Unit::NODE.is_count());
        assert!(!Unit::SECOND.is_count() && !Unit::ONE.is_count());
        assert!(!Unit::CURRENCY.is_count() && !Unit::HOUR.is_count());
        assert!(!Unit::TOKEN.times(Unit::REQUEST).is_count());
    }

    #[test]
    fn quantities_refuse_what_no_clock_shows() {
        assert_eq!(
            Seconds::new(-1.0).unwrap_err().to_string(),
            "seconds must be at least 0, got -1"
        );
        assert!(Seconds::new(f64::NAN).is_err());
        assert!(Seconds::new(f64::INFINITY).is_err());
        assert!(Seconds::new(1e101).is_err());
        assert!(Seconds::new(-0.0).unwrap().get().is_sign_positive());
    }

    #[test]
    fn a_second_is_a_thousand_milliseconds() {
        assert_eq!(Seconds::new(0.25).unwrap().as_millis(), 250.0);
        assert_eq!(Seconds::from_millis(250.0).unwrap(), Seconds::new(0.25).unwrap());
        assert!(Seconds::from_millis(-1.0).is_err());
    }

    #[test]
    fn arithmetic_carries_the_unit() {
        let per_token = (Seconds::new(2.0).unwrap() / Tokens::new(100.0).unwrap()).unwrap();
        assert_eq!(per_token, SecondsPerToken::new(0.02).unwrap());
        assert_eq!(per_token * Tokens::new(100.0).unwrap(), Seconds::new(2.0).unwrap());
        assert!((Seconds::new(1.0).unwrap() / Seconds::ZERO).is_err());
        assert!((Seconds::new(1.0).unwrap() * -1.0).is_err());
        assert_eq!(Seconds::from(Duration::from_millis(250)), Seconds::new(0.25).unwrap());
    }
}
