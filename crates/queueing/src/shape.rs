//! A law by its name and one number, apart from its mean: `lognormal:1.5`, `erlang:4`.

use std::str::FromStr;

use crate::error::{QueueError, Result, positive};
use crate::gim1::Gaps;
use crate::mph1::PhaseType;
use crate::service::ServiceLaw;

/// The form of a law of times, without its mean.
///
/// # Examples
///
/// ```
/// use queueing::shape::Shape;
///
/// let shape: Shape = "lognormal:1.5".parse()?;
/// let moments = shape.service(0.2)?.moments()?;
/// assert!((moments.mean - 0.2).abs() < 1e-15 && (moments.scv - 2.25).abs() < 1e-14);
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Shape {
    /// `exp`: exponential.
    Exp,
    /// `det`: always the same.
    Det,
    /// `erlang:K`: K exponential stages.
    Erlang(u64),
    /// `gamma:CV`.
    Gamma(f64),
    /// `lognormal:CV`.
    Lognormal(f64),
    /// `uniform:H`: from 1 − H to 1 + H times the mean.
    Uniform(f64),
    /// `hyperexp:CV`: two exponentials with balanced means, CV from 1 on.
    Hyperexp(f64),
    /// `pareto:ALPHA`: heavy tail, ALPHA above 1.
    Pareto(f64),
}

/// The forms that [`Shape`] reads.
pub const FORMS: &str =
    "exp, det, erlang:K, gamma:CV, lognormal:CV, uniform:H, hyperexp:CV or pareto:ALPHA";

impl FromStr for Shape {
    type Err = QueueError;

    fn from_str(s: &str) -> Result<Self> {
        let refuse = || QueueError::NoSolution {
            reason: format!("a law must be {FORMS}, got `{}`", s.escape_debug()),
        };
        let (name, number) = match s.trim().split_once(':') {
            Some((name, number)) => (name, Some(number.trim())),
            None => (s.trim(), None),
        };
        let real = || number.and_then(|n| n.parse::<f64>().ok()).ok_or_else(refuse);
        match (name, number) {
            ("exp", None) => Ok(Self::Exp),
            ("det", None) => Ok(Self::Det),
            ("uniform", None) => Ok(Self::Uniform(1.0)),
            ("erlang", Some(k)) => k.parse().map(Self::Erlang).map_err(|_| refuse()),
            ("gamma", Some(_)) => real().map(Self::Gamma),
            ("lognormal", Some(_)) => real().map(Self::Lognormal),
            ("uniform", Some(_)) => real().map(Self::Uniform),
            ("hyperexp", Some(_)) => real().map(Self::Hyperexp),
            ("pareto", Some(_)) => real().map(Self::Pareto),
            _ => Err(refuse()),
        }
    }
}

/// Probability of the first branch of a hyperexponential law with balanced means.
fn balanced(cv: f64) -> Result<f64> {
    if !(1.0..=1e9).contains(&cv) {
        return Err(QueueError::OutOfRange {
            name: "cv of hyperexp",
            value: cv,
            expected: "from 1 to 1e9",
        });
    }
    let square = cv * cv;
    Ok(0.5 + 0.5 * ((square - 1.0) / (square + 1.0)).sqrt())
}

impl Shape {
    /// The law of a service time with this mean.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `mean` is from 1e-50 to 1e50 and the form's number in its range.
    pub fn service(self, mean: f64) -> Result<ServiceLaw> {
        let mean = positive("mean", mean)?;
        let law = match self {
            Self::Exp => ServiceLaw::Exp { mean },
            Self::Det => ServiceLaw::Det { mean },
            Self::Erlang(k) => ServiceLaw::Erlang { mean, k },
            Self::Gamma(cv) => {
                let shape = 1.0 / (cv * cv);
                ServiceLaw::Gamma { shape, scale: mean * cv * cv }
            }
            Self::Lognormal(cv) => ServiceLaw::Lognormal { mean, cv },
            Self::Uniform(half) => {
                if !(0.0..=1.0).contains(&half) {
                    let (name, expected) = ("half width of uniform", "from 0 to 1");
                    return Err(QueueError::OutOfRange { name, value: half, expected });
                }
                ServiceLaw::Uniform { low: mean * (1.0 - half), high: mean * (1.0 + half) }
            }
            Self::Hyperexp(cv) => {
                let p = balanced(cv)?;
                ServiceLaw::Hyperexp { p, rate1: 2.0 * p / mean, rate2: 2.0 * (1.0 - p) / mean }
            }
            Self::Pareto(alpha) => {
                ServiceLaw::Pareto { alpha, least: mean * ((alpha - 1.0) / alpha) }
            }
        };
        law.moments()?;
        Ok(law)
    }

    /// The law of gaps between arrivals, for GI/M/1.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSolution`] for `lognormal`, `uniform` and `pareto`, whose transforms have no
    /// closed form.
    pub fn gaps(self) -> Result<Gaps> {
        match self {
            Self::Exp => Ok(Gaps::Exp),
            Self::Det => Ok(Gaps::Det),
            Self::Erlang(k) => Ok(Gaps::Erlang { k }),
            Self::Gamma(cv) => Ok(Gaps::Gamma { scv: cv * cv }),
            Self::Hyperexp(cv) => Ok(Gaps::Hyperexp { scv: cv * cv }),
            Self::Lognormal(_) | Self::Uniform(_) | Self::Pareto(_) => {
                Err(QueueError::NoSolution {
                    reason: "gaps must be exp, det, erlang:K, gamma:CV or hyperexp:CV".into(),
                })
            }
        }
    }

    /// The law as phases, for M/PH/1.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSolution`] unless it is `exp`, `erlang:K` or `hyperexp:CV`.
    pub fn phases(self, mean: f64) -> Result<PhaseType> {
        match self {
            Self::Exp => PhaseType::erlang(mean, 1),
            Self::Erlang(k) => PhaseType::erlang(mean, k),
            Self::Hyperexp(cv) => {
                let (p, mean) = (balanced(cv)?, positive("mean", mean)?);
                PhaseType::hyperexponential(&[
                    (p, 2.0 * p / mean),
                    (1.0 - p, 2.0 * (1.0 - p) / mean),
                ])
            }
            _ => Err(QueueError::NoSolution {
                reason:
                    "phases must be exp, erlang:K or hyperexp:CV, which are made of exponentials"
                        .into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_its_mean_and_variation() {
        for (text, scv) in [
            ("exp", 1.0),
            ("det", 0.0),
            ("erlang:4", 0.25),
            ("gamma:0.5", 0.25),
            ("lognormal:2", 4.0),
            ("uniform", 1.0 / 3.0),
            ("uniform:0.5", 1.0 / 12.0),
            ("hyperexp:2", 4.0),
            ("pareto:3", 1.0 / 3.0),
        ] {
            let shape: Shape = text.parse().unwrap();
            let moments = shape.service(0.2).unwrap().moments().unwrap();
            assert!((moments.mean / 0.2 - 1.0).abs() < 1e-14, "{text} {moments:?}");
            assert!((moments.scv - scv).abs() < 1e-12, "{text} {moments:?}");
        }
        for bad in ["", "normal:1", "erlang", "erlang:x", "exp:1", "gamma:", "erlang:-1"] {
            assert!(bad.parse::<Shape>().is_err(), "{bad}");
        }
        let refused = |text: &str| text.parse::<Shape>().unwrap().service(1.0).is_err();
        for bad in ["hyperexp:0.5", "uniform:2", "pareto:1", "gamma:0", "lognormal:nan", "erlang:0"]
        {
            assert!(refused(bad), "{bad}");
        }
    }
}
