//! Named laws of the service time, with their first three moments.
//!
//! A law knows its mean to twice the digits of `f64`, so that 1 − ρ is right where the rounded mean
//! alone would move it: at ρ = 0.999999 by 1e-10 of itself.

use crate::error::{QueueError, Result, finite, positive, zero_or_more};
use crate::exact::Twice;
use crate::mg1::ServiceMoments;
use crate::numeric::erfc;

/// Most tokens that a law of lengths takes.
pub const MAX_TOKENS: u64 = 1_000_000_000;

/// A law of the service time.
///
/// # Examples
///
/// ```
/// use queueing::{Mg1, Queue, ServiceLaw};
///
/// let erlang = ServiceLaw::Erlang { mean: 0.1, k: 4 };
/// assert!((erlang.moments()?.scv - 0.25).abs() < 1e-15);
/// let heavy = ServiceLaw::Pareto { alpha: 1.8, least: 0.25 };
/// assert_eq!(Mg1::of_law(0.5, &heavy)?.wq(), f64::INFINITY); // no second moment
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ServiceLaw {
    /// Exponential.
    Exp {
        /// Mean.
        mean: f64,
    },
    /// Always the same time.
    Det {
        /// That time.
        mean: f64,
    },
    /// Sum of `k` exponential stages alike.
    Erlang {
        /// Mean of the sum.
        mean: f64,
        /// Stages, from 1 to 10^9.
        k: u64,
    },
    /// Gamma.
    Gamma {
        /// Shape, from 1e-20 on.
        shape: f64,
        /// Scale: the mean is shape · scale.
        scale: f64,
    },
    /// Any time between two bounds alike.
    Uniform {
        /// Shortest.
        low: f64,
        /// Longest.
        high: f64,
    },
    /// Lognormal by its mean and variation.
    Lognormal {
        /// Mean.
        mean: f64,
        /// Standard deviation over mean, from 0 to 1e24.
        cv: f64,
    },
    /// Lognormal by mean and standard deviation of its logarithm.
    LognormalOfLog {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Exponential with one of two rates: the first with probability `p`.
    Hyperexp {
        /// Probability of the first.
        p: f64,
        /// Rate of the first.
        rate1: f64,
        /// Rate of the second.
        rate2: f64,
    },
    /// Pareto: longer than t with probability (least / t)^alpha.
    ///
    /// The second moment is infinite for `alpha <= 2`, and so is the mean wait then; the third for
    /// `alpha <= 3`, and so is the variance of the wait.
    Pareto {
        /// Tail index, above 1: at or below it even the mean is infinite.
        alpha: f64,
        /// Shortest time.
        least: f64,
    },
    /// A geometric number of units, at least one: each is the last with probability `q`.
    Geometric {
        /// Probability that a unit is the last, above 0 and at most 1.
        q: f64,
        /// Time of one unit.
        unit: f64,
    },
    /// An answer of N tokens, cut at `n_max`: `base + per_token · min(N, n_max)`.
    ///
    /// The model of Yang, Xu and Jiao, arXiv 2407.05347: one request at a time, no batch.
    ClippedTokens {
        /// Time of a request without output tokens.
        base: f64,
        /// Time of one output token.
        per_token: f64,
        /// Law of the number of output tokens.
        tokens: TokenLaw,
        /// Most output tokens that the server gives, from 1 to 10^9.
        n_max: u64,
    },
}

/// A law of the number of output tokens, at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum TokenLaw {
    /// Each token is the last with probability `q`.
    Geometric {
        /// Probability that a token is the last, from 1e-9 to 1.
        q: f64,
    },
    /// Any number from 1 to `most` alike.
    Uniform {
        /// Largest number.
        most: u64,
    },
    /// The next whole number from a lognormal length on, cut at `most`.
    Lognormal {
        /// Mean of the logarithm, from -100 to 100.
        mu: f64,
        /// Standard deviation of the logarithm, from 1e-3 to 100.
        sigma: f64,
        /// Largest number, at most 10^7: the moments are a sum over it.
        most: u64,
    },
}

/// Moments of a number of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenMoments {
    /// E\[N\].
    pub mean: f64,
    /// E\[N²\].
    pub second: f64,
    /// E\[N³\].
    pub third: f64,
    /// Probability that an answer is cut: that it would have been longer.
    pub clipped: f64,
}

fn whole(name: &'static str, n: u64) -> Result<f64> {
    let value = n as f64;
    if n < 1 || MAX_TOKENS < n {
        let expected = "a whole number from 1 to 1000000000";
        return Err(QueueError::OutOfRange { name, value, expected });
    }
    Ok(value)
}

fn between(
    name: &'static str,
    value: f64,
    low: f64,
    high: f64,
    expected: &'static str,
) -> Result<f64> {
    let value = finite(name, value)?;
    if value < low || high < value {
        return Err(QueueError::OutOfRange { name, value, expected });
    }
    Ok(value + 0.0)
}

/// (Σ s^k, Σ k s^k, Σ k² s^k) over k from 0 to m − 1, by doubling: all terms positive, no quotient
/// of differences.
fn powers(ln_s: f64, m: u64) -> (f64, f64, f64) {
    let (mut s0, mut s1, mut s2, mut done) = (0.0, 0.0, 0.0, 0.0_f64);
    for bit in (0..64 - m.leading_zeros()).rev() {
        // The first half again, shifted by as many terms as there are, each s^done smaller.
        let shift = (done * ln_s).exp();
        let (t0, t1) = (s0, s1);
        s0 += shift * t0;
        s1 += shift * (done * t0 + t1);
        s2 += shift * (done * done * t0 + 2.0 * done * t1 + s2);
        done *= 2.0;
        if m >> bit & 1 == 1 {
            let last = (done * ln_s).exp();
            s0 += last;
            s1 += done * last;
            s2 += done * done * last;
            done += 1.0;
        }
    }
    (s0, s1, s2)
}

impl TokenLaw {
    /// Moments of min(N, n_max), and how often it cuts.
    ///
    /// E\[min(N, m)^i\] is the sum of P(N > k) · ((k + 1)^i − k^i) over k below m.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if a parameter is out of the range that its law gives.
    pub fn clipped(self, n_max: u64) -> Result<TokenMoments> {
        whole("n_max", n_max)?;
        match self {
            Self::Geometric { q } => {
                let q = between("q", q, 1e-9, 1.0, "from 1e-9 to 1")?;
                if q == 1.0 {
                    return Ok(TokenMoments { mean: 1.0, second: 1.0, third: 1.0, clipped: 0.0 });
                }
                let ln_s = (-q).ln_1p();
                let (s0, s1, s2) = powers(ln_s, n_max);
                Ok(TokenMoments {
                    mean: s0,
                    second: 2.0 * s1 + s0,
                    third: 3.0 * s2 + 3.0 * s1 + s0,
                    clipped: (n_max as f64 * ln_s).exp(),
                })
            }
            Self::Uniform { most } => {
                let b = whole("most", most)?;
                let m = most.min(n_max) as f64;
                let longer = (b - m) / b;
                let cubes = m * m * (m + 1.0) * (m + 1.0) / 4.0;
                Ok(TokenMoments {
                    mean: m * (m + 1.0) / 2.0 / b + m * longer,
                    second: m * (m + 1.0) * (2.0 * m + 1.0) / 6.0 / b + m * m * longer,
                    third: cubes / b + m * m * m * longer,
                    clipped: longer,
                })
            }
            Self::Lognormal { mu, sigma, most } => {
                let mu = between("mu", mu, -100.0, 100.0, "from -100 to 100")?;
                let sigma = between("sigma", sigma, 1e-3, 100.0, "from 1e-3 to 100")?;
                if most < 1 || 10_000_000 < most {
                    let expected = "a whole number from 1 to 10000000";
                    let value = most as f64;
                    return Err(QueueError::OutOfRange { name: "most", value, expected });
                }
                // P(N > k): the length passes k. Absolute error 1e-16 is enough in sums that
                // start with P(N > 0) = 1.
                let longer =
                    |k: f64| 0.5 * erfc((k.ln() - mu) / sigma * std::f64::consts::FRAC_1_SQRT_2);
                let (mut mean, mut second, mut third, mut k) = (1.0, 1.0, 1.0, 1.0);
                let m = most.min(n_max) as f64;
                while k < m {
                    let tail = longer(k);
                    mean += tail;
                    second += tail * (2.0 * k + 1.0);
                    third += tail * (3.0 * k * (k + 1.0) + 1.0);
                    k += 1.0;
                }
                let clipped = if n_max < most { longer(m) } else { 0.0 };
                Ok(TokenMoments { mean, second, third, clipped })
            }
        }
    }
}

impl ServiceLaw {
    /// Mean, variation and third moment.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if a parameter is out of the range that its law gives, or the mean is not
    /// from 1e-50 to 1e50.
    pub fn moments(&self) -> Result<ServiceMoments> {
        self.precise().map(|(moments, _)| moments)
    }

    /// The moments, and the mean to twice the digits.
    pub(crate) fn precise(&self) -> Result<(ServiceMoments, Twice)> {
        let (mean, scv, third) = match *self {
            Self::Exp { mean } => {
                let m = positive("mean", mean)?;
                (Twice::of(m), 1.0, 6.0 * m * m * m)
            }
            Self::Det { mean } => {
                let m = positive("mean", mean)?;
                (Twice::of(m), 0.0, m * m * m)
            }
            Self::Erlang { mean, k } => {
                let (m, k) = (positive("mean", mean)?, whole("k", k)?);
                (Twice::of(m), 1.0 / k, m * m * m * (1.0 + 1.0 / k) * (1.0 + 2.0 / k))
            }
            Self::Gamma { shape, scale } => {
                let shape = between("shape", shape, 1e-20, 1e20, "from 1e-20 to 1e20")?;
                let mean = Twice::product(shape, positive("scale", scale)?);
                let m = mean.high;
                let third = m * m * m * (1.0 + 1.0 / shape) * (1.0 + 2.0 / shape);
                (mean, 1.0 / shape, third)
            }
            Self::Uniform { low, high } => {
                let (low, high) = (zero_or_more("low", low)?, positive("high", high)?);
                if high < low {
                    let expected = "at most high";
                    return Err(QueueError::OutOfRange { name: "low", value: low, expected });
                }
                let sum = Twice::sum(low, high);
                let mean = Twice { high: 0.5 * sum.high, low: 0.5 * sum.low };
                let spread = (high - low) / sum.high;
                (mean, spread * spread / 3.0, 0.5 * mean.high * (low * low + high * high))
            }
            Self::Lognormal { mean, cv } => {
                let m = positive("mean", mean)?;
                let cv = between("cv", cv, 0.0, 1e24, "from 0 to 1e24")?;
                let growth = 1.0 + cv * cv;
                (Twice::of(m), cv * cv, m * m * m * growth * growth * growth)
            }
            Self::LognormalOfLog { mu, sigma } => {
                let mu = between("mu", mu, -100.0, 100.0, "from -100 to 100")?;
                let sigma = between("sigma", sigma, 0.0, 10.0, "from 0 to 10")?;
                let square = Twice::product(sigma, sigma);
                let half = Twice { high: 0.5 * square.high, low: 0.5 * square.low };
                let mean = Twice::of(mu).plus(half).exp();
                let m = mean.high;
                (mean, square.high.exp_m1(), m * m * m * (3.0 * square.high).exp())
            }
            Self::Hyperexp { p, rate1, rate2 } => hyperexponential(p, rate1, rate2)?,
            Self::Pareto { alpha, least } => {
                let alpha = finite("alpha", alpha)?;
                if alpha <= 1.0 || 1e20 < alpha {
                    let expected = "above 1 and at most 1e20: at 1 the mean is infinite";
                    return Err(QueueError::OutOfRange { name: "alpha", value: alpha, expected });
                }
                let least = positive("least", least)?;
                let mean = Twice::product(alpha, least).over(Twice::sum(alpha, -1.0));
                let scv = if alpha <= 2.0 { f64::INFINITY } else { 1.0 / (alpha * (alpha - 2.0)) };
                let third = if alpha <= 3.0 {
                    f64::INFINITY
                } else {
                    alpha / (alpha - 3.0) * least * least * least
                };
                (mean, scv, third)
            }
            Self::Geometric { q, unit } => {
                let q = between("q", q, 1e-20, 1.0, "from 1e-20 to 1")?;
                let unit = positive("unit", unit)?;
                let mean = Twice::of(unit).over(Twice::of(q));
                let m = mean.high;
                (mean, 1.0 - q, m * m * m * (6.0 * (1.0 - q) + q * q))
            }
            Self::ClippedTokens { base, per_token, tokens, n_max } => {
                let n = tokens.clipped(n_max)?;
                let (s0, s1) = (zero_or_more("base", base)?, zero_or_more("per_token", per_token)?);
                let mean = Twice::of(s0).plus(Twice::product(s1, n.mean));
                let spread = s1 / mean.high;
                let scv = spread * spread * (n.second - n.mean * n.mean).max(0.0);
                let third = s0 * s0 * s0
                    + 3.0 * s0 * s0 * s1 * n.mean
                    + 3.0 * s0 * s1 * s1 * n.second
                    + s1 * s1 * s1 * n.third;
                (mean, if mean.high == 0.0 { 0.0 } else { scv }, third)
            }
        };
        positive("mean", mean.high)?;
        Ok((ServiceMoments { mean: mean.high, scv, third: Some(third) }, mean))
    }
}

fn hyperexponential(p: f64, rate1: f64, rate2: f64) -> Result<(Twice, f64, f64)> {
    let p = crate::error::probability("p", p)?;
    let (rate1, rate2) = (positive("rate1", rate1)?, positive("rate2", rate2)?);
    let first = Twice::of(p).over(Twice::of(rate1));
    let second = Twice::sum(1.0, -p).over(Twice::of(rate2));
    let mean = first.plus(second);
    let (m, m1, m2) = (mean.high, 1.0 / rate1, 1.0 / rate2);
    // The variance of the two means, twice, is what it has more than one exponential.
    let apart = (m1 - m2) / m;
    let scv = 1.0 + 2.0 * p * (1.0 - p) * apart * apart;
    Ok((mean, scv, 6.0 * (p * m1 * m1 * m1 + (1.0 - p) * m2 * m2 * m2)))
}
