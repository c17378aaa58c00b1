//! GI/M/1: independent gaps of any law between arrivals, exponential service, one server.
//!
//! An arrival finds n jobs with probability (1 − σ) σ^n, where σ is the root below 1 of
//! σ = A*(μ (1 − σ)), A* the transform of the gaps. It is solved for the distance x = μ (1 − σ)
//! as h(x) = 1 − ρ, with h the complement of the transform of the gaps' equilibrium law: every term
//! of h is positive, so that nothing cancels near ρ = 1.

use crate::error::{QueueError, Result, finite, not_negative, positive, probability, zero_or_more};
use crate::model::{Queue, WaitDistribution};
use crate::waits::Waits;

/// A law of the gaps between arrivals; the mean gap is 1 / λ.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Gaps {
    /// Exponential: Poisson arrivals.
    Exp,
    /// Always the same.
    Det,
    /// Sum of `k` exponential stages alike: steadier than Poisson.
    Erlang {
        /// Stages, from 1 on.
        k: u64,
    },
    /// Gamma with this squared coefficient of variation.
    Gamma {
        /// Squared coefficient of variation, from 1e-9 to 1e9.
        scv: f64,
    },
    /// Two exponentials with balanced means, for bursty arrivals.
    Hyperexp {
        /// Squared coefficient of variation, from 1 to 1e9.
        scv: f64,
    },
}

impl Gaps {
    /// Squared coefficient of variation.
    #[must_use]
    pub fn scv(&self) -> f64 {
        match *self {
            Self::Exp => 1.0,
            Self::Det => 0.0,
            Self::Erlang { k } => 1.0 / k as f64,
            Self::Gamma { scv } | Self::Hyperexp { scv } => scv,
        }
    }

    fn check(&self) -> Result<()> {
        let (value, low, expected) = match *self {
            Self::Erlang { k: 0 } => {
                let expected = "a whole number from 1 on";
                return Err(QueueError::OutOfRange { name: "k", value: 0.0, expected });
            }
            Self::Exp | Self::Det | Self::Erlang { .. } => return Ok(()),
            Self::Gamma { scv } => (scv, 1e-9, "from 1e-9 to 1e9"),
            Self::Hyperexp { scv } => (scv, 1.0, "from 1 to 1e9"),
        };
        let value = finite("scv", value)?;
        if value < low || 1e9 < value {
            return Err(QueueError::OutOfRange { name: "scv", value, expected });
        }
        Ok(())
    }

    /// Transform of the gaps at y, in mean gaps: E[e^(−y A / E A)].
    fn transform(&self, y: f64) -> f64 {
        match *self {
            Self::Exp => 1.0 / (1.0 + y),
            Self::Det => (-y).exp(),
            Self::Erlang { .. } | Self::Gamma { .. } => {
                let scv = self.scv();
                (-(y * scv).ln_1p() / scv).exp()
            }
            Self::Hyperexp { scv } => {
                let [(p1, r1), (p2, r2)] = balanced(scv);
                p1 * (r1 / (r1 + y)) + p2 * (r2 / (r2 + y))
            }
        }
    }

    /// h(y) = 1 − (1 − A*(y)) / y: rising from 0 to 1 and concave.
    fn late(&self, y: f64) -> f64 {
        match *self {
            Self::Exp => y / (1.0 + y),
            Self::Det => {
                if 0.5 < y {
                    return 1.0 + (-y).exp_m1() / y;
                }
                series(y, |_| 1.0)
            }
            Self::Erlang { .. } | Self::Gamma { .. } => {
                let scv = self.scv();
                if 0.5 < y * (1.0 + 8.0 * scv) {
                    let log = (y * scv).ln_1p() / scv;
                    return 1.0 + (-log).exp_m1() / y;
                }
                // (1 + scv y)^(−1 / scv) by its series: factor 1 + m scv from one to the next.
                series(y, |m| 1.0 + m * scv)
            }
            Self::Hyperexp { scv } => {
                let [(p1, r1), (p2, r2)] = balanced(scv);
                p1 / r1 * (y / (r1 + y)) + p2 / r2 * (y / (r2 + y))
            }
        }
    }

    /// h′(y) by h′ = (1 − h + A*′) / y, or its limit (1 + scv) / 2.
    fn slope(&self, y: f64) -> f64 {
        match *self {
            Self::Exp => 1.0 / (1.0 + y) / (1.0 + y),
            Self::Hyperexp { scv } => {
                balanced(scv).into_iter().map(|(p, r)| p / (r + y) / (r + y)).sum()
            }
            Self::Det | Self::Erlang { .. } | Self::Gamma { .. } => {
                let scv = self.scv();
                if y < 1e-4 / (1.0 + scv) {
                    return 0.5 * (1.0 + scv);
                }
                let derivative = self.transform(y) / (1.0 + y * scv);
                (1.0 - self.late(y) - derivative) / y
            }
        }
    }
}

/// y/2 · (…) − y²/6 · (…) + …: the series of h, whose terms have the factors `up(1)`, `up(2)`, ….
fn series(y: f64, up: impl Fn(f64) -> f64) -> f64 {
    let (mut term, mut sum, mut m) = (1.0, 0.0, 1.0);
    loop {
        // Term m of 1 − A* over y is (−1)^(m−1) y^(m−1) Π (1 + i scv) / m!.
        term *= -y * up(m) / (m + 1.0);
        sum -= term;
        m += 1.0;
        if term.abs() <= 1e-18 * sum.abs() || term == 0.0 {
            return sum;
        }
    }
}

/// Probabilities and rates (at mean 1) of two exponentials that share the mean evenly.
fn balanced(scv: f64) -> [(f64, f64); 2] {
    let spread = ((scv - 1.0) / (scv + 1.0)).sqrt();
    let p1 = 0.5 * (1.0 + spread);
    // 1 − p1 without its cancellation: p1 p2 = (1 − spread²) / 4 = 1 / (2 (scv + 1)).
    let p2 = 0.5 / (scv + 1.0) / p1;
    [(p1, 2.0 * p1), (p2, 2.0 * p2)]
}

/// A GI/M/1 queue that keeps up with its arrivals.
///
/// # Examples
///
/// ```
/// use queueing::{GiM1, Queue, gim1::Gaps};
///
/// let steady = GiM1::new(0.5, Gaps::Det, 1.0)?;
/// let bursty = GiM1::new(0.5, Gaps::Hyperexp { scv: 4.0 }, 1.0)?;
/// assert!((steady.wq() - 0.255).abs() < 1e-5);
/// assert!((bursty.wq() - 2.162_277_660_168_379).abs() < 1e-12); // M/M/1 has 1
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 6.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GiM1 {
    lambda: f64,
    mu: f64,
    gaps: Gaps,
    idle: f64,
    /// Probability that an arrival waits.
    sigma: f64,
    /// 1 − σ.
    free: f64,
}

impl GiM1 {
    /// The queue with arrival rate `lambda`, the law of the gaps, and service rate `mu`.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if `mu <= lambda`; other [`QueueError`] unless `lambda` is from 0
    /// and `mu` from 1e-50 to 1e50, and the law's parameter in its range.
    pub fn new(lambda: f64, gaps: Gaps, mu: f64) -> Result<Self> {
        let (lambda, mu) = (zero_or_more("lambda", lambda)?, positive("mu", mu)?);
        gaps.check()?;
        if mu <= lambda {
            return Err(QueueError::Unstable { rho: lambda / mu });
        }
        let idle = (mu - lambda) / mu;
        if lambda == 0.0 {
            return Ok(Self { lambda, mu, gaps, idle, sigma: 0.0, free: 1.0 });
        }
        let rho = (lambda / mu).max(f64::MIN_POSITIVE);
        // Under light load h is 1 but for little, and its root is coarse; the equation for σ itself
        // contracts there.
        let mut sigma = gaps.transform(1.0 / rho);
        if rho < 1e-3 {
            for _ in 0..2000 {
                let next = gaps.transform((1.0 - sigma) / rho);
                let settled = (next - sigma).abs() <= 2e-16 * next;
                sigma = next;
                if settled {
                    return Ok(Self { lambda, mu, gaps, idle, sigma, free: 1.0 - sigma });
                }
            }
        }
        // Concave and rising from 0: from the left Newton's method rises to the root.
        let (mut y, mut step) = (0.0_f64, f64::INFINITY);
        for _ in 0..2000 {
            let next = y + (idle - gaps.late(y)) / gaps.slope(y);
            let change = next - y;
            // Towards the end only rounding is left, which may turn back.
            if change <= 0.0 || (step <= change && change <= 1e-9 * y) || !next.is_finite() {
                break;
            }
            (y, step) = (next, change);
        }
        sigma = gaps.transform(y).min(1.0);
        let mut free = (y * rho).min(1.0);
        if sigma < 0.3 {
            for _ in 0..200 {
                let next = gaps.transform((1.0 - sigma) / rho);
                let settled = (next - sigma).abs() <= 1e-16 * next;
                sigma = next;
                if settled {
                    break;
                }
            }
            free = 1.0 - sigma;
        }
        Ok(Self { lambda, mu, gaps, idle, sigma, free })
    }

    /// Arrival rate.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Law of the gaps between arrivals.
    #[must_use]
    pub fn gaps(&self) -> Gaps {
        self.gaps
    }

    /// Service rate.
    #[must_use]
    pub fn mu(&self) -> f64 {
        self.mu
    }

    /// Probability that an arrival finds `n` jobs: (1 − σ) σ^n.
    ///
    /// It is not that of an instant at random unless arrivals are Poisson.
    #[must_use]
    pub fn pn_arrival(&self, n: u64) -> f64 {
        if n == 0 { self.free } else { self.free * self.sigma.powf(n as f64) }
    }

    /// Variance of the wait: σ (2 − σ) / (μ (1 − σ))².
    #[must_use]
    pub fn var_wq(&self) -> f64 {
        let w = self.w();
        self.sigma * (1.0 + self.free) * w * w
    }

    /// Variance of the response time, which is exponential.
    #[must_use]
    pub fn var_w(&self) -> f64 {
        self.w() * self.w()
    }

    /// Variance of the number in the system at an instant at random:
    /// ρ (1 − ρ + σ) / (1 − σ)².
    #[must_use]
    pub fn var_n(&self) -> f64 {
        self.utilization() * (self.idle + self.sigma) / self.free / self.free
    }

    /// Variance of the number that wait: ρ σ (1 + σ − ρ σ) / (1 − σ)².
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        let waiting = self.utilization() * self.sigma;
        waiting * (1.0 + self.sigma * self.idle) / self.free / self.free
    }

    /// Mean wait of the jobs that do wait: 1 / (μ (1 − σ)), as long as the mean response.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        self.w()
    }

    fn waits(&self) -> Waits {
        let spare = self.mu * self.free;
        Waits {
            wait: self.sigma,
            no_wait: self.free,
            spare,
            mu: self.mu,
            apart: self.mu * self.sigma,
        }
    }
}

impl Queue for GiM1 {
    fn utilization(&self) -> f64 {
        self.lambda / self.mu
    }
    fn l(&self) -> f64 {
        self.lambda * self.w()
    }
    fn lq(&self) -> f64 {
        self.lambda * self.wq()
    }
    fn w(&self) -> f64 {
        1.0 / self.mu / self.free
    }
    fn wq(&self) -> f64 {
        self.sigma / self.mu / self.free
    }
    fn p0(&self) -> f64 {
        self.idle
    }
    /// At an instant at random: ρ (1 − σ) σ^(n − 1).
    fn pn(&self, n: u64) -> Result<f64> {
        if n == 0 {
            return Ok(self.idle);
        }
        Ok(self.utilization() * self.pn_arrival(n - 1))
    }
    fn throughput(&self) -> f64 {
        self.lambda
    }
    fn p_wait(&self) -> f64 {
        self.sigma
    }
}

impl WaitDistribution for GiM1 {
    fn wq_cdf(&self, t: f64) -> Result<f64> {
        self.waits().wq_cdf(t)
    }
    fn wq_sf(&self, t: f64) -> Result<f64> {
        self.waits().wq_sf(t)
    }
    fn wq_quantile(&self, p: f64) -> Result<f64> {
        self.waits().wq_quantile(p)
    }
    fn w_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| -(-self.mu * self.free * t).exp_m1())
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| (-self.mu * self.free * t).exp())
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        // Plain zero at p = 0: the logarithm alone gives its negative.
        probability("p", p).map(|p| 0.0 - (-p).ln_1p() / self.mu / self.free)
    }
}
