//! M/M/∞: a server for everyone. Nobody waits, and the number in the system is a Poisson variable.
//!
//! It holds for any distribution of service times (M/G/∞). Source: Kleinrock, *Queueing Systems*,
//! vol. 1, 1975, ch. 3.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{LAMBDA_ABOVE_0, MU, N, PURE, shown};
use crate::error::{QueueError, Result, not_negative, positive, probability, zero_or_more};
use crate::inverse::{Inverse, rising_tail};
use crate::model::{Queue, WaitDistribution};
use crate::numeric::poisson;

/// Largest offered load for which [`MmInf::n_quantile`] and the cdf of the number are computed.
const MAX_LOAD: f64 = 1e15;

/// A system with a server for every job.
///
/// # Examples
///
/// ```
/// use queueing::{MmInf, Queue};
///
/// let system = MmInf::new(20.0, 1.0)?;
/// assert_eq!((system.l(), system.wq()), (20.0, 0.0));
/// assert_eq!(system.n_quantile(0.99)?, 31); // 99 % of the time at most 31 jobs
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MmInf {
    lambda: f64,
    mu: f64,
}

impl MmInf {
    /// The system with arrival rate `lambda` and service rate `mu` of each server.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
    pub fn new(lambda: f64, mu: f64) -> Result<Self> {
        Ok(Self { lambda: zero_or_more("lambda", lambda)?, mu: positive("mu", mu)? })
    }

    /// Offered load λ / μ, which is also the mean number of jobs and its variance.
    #[must_use]
    pub fn offered_load(&self) -> f64 {
        self.lambda / self.mu
    }

    /// Variance of the number in the system: λ / μ, as of any Poisson number.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        self.offered_load()
    }

    /// Variance of the response time, which is the service: 1 / μ².
    #[must_use]
    pub fn var_w(&self) -> f64 {
        1.0 / self.mu / self.mu
    }

    /// Probability of at most `n` jobs, and of more, each with its digits.
    fn tails(&self, n: f64) -> (f64, f64) {
        let a = self.offered_load();
        if n < a {
            let below = if n == 0.0 { 1.0 } else { Inverse::real(n, a).value() };
            let cdf = poisson(n, a) * below;
            (cdf, 1.0 - cdf)
        } else {
            let (front, power) = rising_tail(n + 1.0, a);
            let sf = poisson(n + 1.0, a) * front * power.exp();
            (1.0 - sf, sf)
        }
    }

    fn small(&self) -> Result<()> {
        let value = self.offered_load();
        if MAX_LOAD < value {
            let (name, expected) = ("lambda / mu", "at most 1e15");
            return Err(QueueError::OutOfRange { name, value, expected });
        }
        Ok(())
    }

    /// Probability of at most `n` jobs in the system.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if the offered load is above 1e15.
    pub fn n_cdf(&self, n: u64) -> Result<f64> {
        self.small()?;
        if self.lambda == 0.0 { Ok(1.0) } else { Ok(self.tails(n as f64).0) }
    }

    /// Probability of more than `n` jobs in the system.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if the offered load is above 1e15.
    pub fn n_sf(&self, n: u64) -> Result<f64> {
        self.small()?;
        if self.lambda == 0.0 { Ok(0.0) } else { Ok(self.tails(n as f64).1) }
    }

    /// Least `n` so that with probability at least `p` at most `n` jobs are in the system.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if `p` is not from 0 to below 1, or the offered load is above 1e15.
    pub fn n_quantile(&self, p: f64) -> Result<u64> {
        self.small()?;
        let p = probability("p", p)?;
        if p == 1.0 {
            return Err(QueueError::OutOfRange { name: "p", value: p, expected: "below 1" });
        }
        if self.lambda == 0.0 {
            return Ok(0);
        }
        let reached = |n: u64| {
            let (cdf, sf) = self.tails(n as f64);
            if p < 0.5 { p <= cdf } else { sf <= 1.0 - p }
        };
        let mut high = 1;
        while !reached(high) {
            high *= 2;
        }
        let mut low = 0;
        while low < high {
            let middle = low + (high - low) / 2;
            if reached(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }
}

impl Queue for MmInf {
    /// Of endlessly many servers the busy share is 0.
    fn utilization(&self) -> f64 {
        0.0
    }
    fn l(&self) -> f64 {
        self.offered_load()
    }
    fn lq(&self) -> f64 {
        0.0
    }
    fn w(&self) -> f64 {
        1.0 / self.mu
    }
    fn wq(&self) -> f64 {
        0.0
    }
    fn p0(&self) -> f64 {
        (-self.offered_load()).exp()
    }
    fn pn(&self, n: u64) -> Result<f64> {
        Ok(poisson(n as f64, self.offered_load()))
    }
    fn throughput(&self) -> f64 {
        self.lambda
    }
    fn p_wait(&self) -> f64 {
        0.0
    }
}

impl WaitDistribution for MmInf {
    fn wq_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|_| 1.0)
    }
    fn wq_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|_| 0.0)
    }
    fn wq_quantile(&self, p: f64) -> Result<f64> {
        probability("p", p).map(|_| 0.0)
    }
    fn w_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| -(-self.mu * t).exp_m1())
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| (-self.mu * t).exp())
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        probability("p", p).map(|p| -(-p).ln_1p() / self.mu)
    }
}

/// Probability of `n` jobs in a system with a server for each.
///
/// ```text
/// mminf_pn = (lambda / mu)^n * exp(-(lambda / mu)) / fact(n)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate of one server, both per the same unit of
/// time. The law of the service time does not matter beyond its mean.
///
/// # Errors
///
/// [`QueueError`] unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// // One busy server on average: as often none as one.
/// assert!((queueing::mminf::mminf_pn(2.0, 2.0, 1)? - (-1.0_f64).exp()).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mminf_pn(lambda: f64, mu: f64, n: u64) -> Result<f64> {
    MmInf::new(lambda, mu)?.pn(n)
}

/// The catalog entry of [`mminf_pn`].
#[cfg(feature = "catalog")]
pub const MMINF_PN: Metric = Metric {
    id: "mminf_pn",
    symbol: "p_n",
    name: text("Probability of n jobs, M/M/∞", "系统内恰有 n 个任务的概率，M/M/∞"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA_ABOVE_0, MU, N],
    formula: Formula::Scalar {
        text: "(lambda / mu)^n * exp(-(lambda / mu)) / fact(n)",
        eval: |x| shown(PURE, mminf_pn(x[0], x[1], whole("n", x[2])?)),
        example: (&[2.0, 2.0, 1.0], 0.367_879_441_171_442_33),
    },
    path: "queueing::mminf::mminf_pn",
    source: Source { work: "Kleinrock 1975", section: "ch. 3" },
    note: text(
        "A Poisson number: its variance is its mean, so that a fleet needs a spare of some √a.",
        "服从泊松分布：方差等于均值，因此机群需要约 √a 的余量。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&MMINF_PN];
