//! How long a client thinks before its next request, or waits before it goes away.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_pcg::Pcg64;

use crate::error::{Result, SimError};
use crate::time::Ticks;
use crate::workload::law::{Parameters, bounded, split, within};

/// A law of times.
///
/// As a text: `5s` or `constant:5s`, `exponential:mean=10s`, `uniform:1s,5s`,
/// `lognormal:median=10s,sigma=1`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// Always the same.
    Constant(Ticks),
    /// Without memory.
    Exponential {
        /// Its mean.
        mean: Ticks,
    },
    /// Anything between two times, equally likely.
    Uniform {
        /// The shortest.
        min: Ticks,
        /// The longest.
        max: Ticks,
    },
    /// With a long tail: the logarithm is normal.
    LogNormal {
        /// The time that half of the delays exceed.
        median: Ticks,
        /// The standard deviation of the logarithm, 0 to 10.
        sigma: f64,
    },
}

const WHAT: &str = "law of times";

impl Delay {
    /// Checks the parameters; `input` names them.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] or [`SimError::TimeOutOfRange`] with name, bound and value.
    pub fn check(&self, input: &str) -> Result<()> {
        match *self {
            Self::Constant(t) | Self::Exponential { mean: t } => {
                t.within_a_run("the time of a law").map(|_| ())
            }
            Self::Uniform { min, max } => {
                max.within_a_run("the time of a law")?;
                if max < min {
                    return Err(SimError::Bounds {
                        input: format!("{input}.max"),
                        bound: format!("at least min, {}", min.compact()),
                        value: max.compact(),
                    });
                }
                Ok(())
            }
            Self::LogNormal { median, sigma } => {
                median.within_a_run("the time of a law")?;
                within(input, "sigma", sigma, "from 0 to 10", 0.0 <= sigma && sigma <= 10.0)
            }
        }
    }

    /// Draws a time, or its seconds if it is beyond [`Ticks::LONGEST_RUN`].
    pub(super) fn sample(&self, rng: &mut Pcg64) -> std::result::Result<Ticks, f64> {
        let seconds = match *self {
            Self::Constant(t) => return Ok(t),
            Self::Exponential { mean } => {
                let x: f64 = Exp1.sample(rng);
                x * mean.seconds()
            }
            Self::Uniform { min, max } => {
                let width = max.since(min).unwrap_or_default().seconds();
                let more = rng.random::<f64>() * width;
                return Ok(min.after(Ticks::from_seconds(more).map_err(|_| more)?));
            }
            Self::LogNormal { median, sigma } => {
                let z: f64 = StandardNormal.sample(rng);
                median.seconds() * (sigma * z).exp()
            }
        };
        Ticks::from_seconds(seconds).map_err(|_| seconds)
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(t) => write!(f, "constant:{}", t.compact()),
            Self::Exponential { mean } => write!(f, "exponential:mean={}", mean.compact()),
            Self::Uniform { min, max } => {
                write!(f, "uniform:min={},max={}", min.compact(), max.compact())
            }
            Self::LogNormal { median, sigma } => {
                write!(f, "lognormal:median={},sigma={sigma}", median.compact())
            }
        }
    }
}

impl FromStr for Delay {
    type Err = SimError;

    /// A time, or a law by its name, with values in the order of its fields or by their names.
    fn from_str(text: &str) -> Result<Self> {
        let (name, list) = split(text);
        let read = |names| Parameters::read(WHAT, text, list, names);
        match name {
            "constant" => Ok(Self::Constant(read(&["time"])?.time("time")?)),
            "exponential" => Ok(Self::Exponential { mean: read(&["mean"])?.time("mean")? }),
            "uniform" => {
                let p = read(&["min", "max"])?;
                Ok(Self::Uniform { min: p.time("min")?, max: p.time("max")? })
            }
            "lognormal" => {
                let p = read(&["median", "sigma"])?;
                Ok(Self::LogNormal { median: p.time("median")?, sigma: p.number("sigma", None)? })
            }
            time => {
                bounded(time)?;
                time.parse().map(Self::Constant).map_err(|_| SimError::Grammar {
                    what: WHAT,
                    text: text.to_owned(),
                    expected: "a time such as `5s`, or one of `exponential:mean=10s`, \
                               `uniform:1s,5s`, `lognormal:median=10s,sigma=1`"
                        .to_owned(),
                })
            }
        }
    }
}
