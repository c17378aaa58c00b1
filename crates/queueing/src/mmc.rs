//! M/M/c: Poisson arrivals, exponential service, `c` alike servers, one queue, first come first
//! served.
//!
//! Source of all: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed.
//! 2008, ch. 2.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{C, LAMBDA, LAMBDA_ABOVE_0, MU, P, PURE, T, TIME, shown};
use crate::erlang::{Load, stable};
use crate::error::Result;
use crate::inverse::Inverse;
use crate::model::{Queue, WaitDistribution};
use crate::numeric::{geometric, poisson};
use crate::waits::Waits;

/// An M/M/c queue that keeps up with its arrivals.
///
/// # Examples
///
/// ```
/// use queueing::{Mmc, Queue};
///
/// let (two, three) = (Mmc::new(8.0, 5.0, 2)?, Mmc::new(8.0, 5.0, 3)?);
/// assert!(three.p_wait() < two.p_wait() && two.p_wait() < 1.0);
/// assert!(three.wq() < two.wq());
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mmc {
    load: Load,
    servers: u64,
    waits: Waits,
    /// e^(−a) / P(system empty): how far the numbers in the system are from a Poisson law.
    poisson_mass: f64,
}

impl Mmc {
    /// The queue with arrival rate `lambda`, service rate `mu` of each server, and `c` servers.
    ///
    /// Rates are per the same unit of time. The cost is the same for any `c`.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`](crate::QueueError::Unstable) if `c * mu <= lambda`; other
    /// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50 and
    /// `c` from 1 to 10^9.
    pub fn new(lambda: f64, mu: f64, c: u64) -> Result<Self> {
        let load = stable(lambda, mu, c)?;
        let a = load.lambda / load.mu;
        let (mut wait, mut no_wait, mut poisson_mass) = (0.0, 1.0, 1.0);
        if 0.0 < a {
            let inverse = Inverse::new(load.c, a);
            (wait, no_wait) = inverse.wait(load.rho, load.idle);
            // Where fewer wait than one in 10^18, no digit of the Poisson law is touched.
            if 1e-18 < wait {
                poisson_mass = poisson(load.c, a) * (inverse.value() + load.lambda / load.spare);
            }
        }
        let apart = (load.c - 1.0).mul_add(load.mu, -load.lambda).abs();
        let waits = Waits { wait, no_wait, spare: load.spare, mu: load.mu, apart };
        Ok(Self { load, servers: c, waits, poisson_mass })
    }

    /// Arrival rate.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.load.lambda
    }

    /// Service rate of one server.
    #[must_use]
    pub fn mu(&self) -> f64 {
        self.load.mu
    }

    /// Number of servers.
    #[must_use]
    pub fn c(&self) -> u64 {
        self.servers
    }

    /// Offered load λ / μ: the mean number of busy servers.
    #[must_use]
    pub fn offered_load(&self) -> f64 {
        self.load.lambda / self.load.mu
    }

    /// Mean wait of the jobs that do wait: 1 / (c μ − λ).
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        1.0 / self.load.spare
    }

    /// Variance of the wait: C (2 − C) / (c μ − λ)², where C is the probability of waiting.
    #[must_use]
    pub fn var_wq(&self) -> f64 {
        self.waits.wait * (1.0 + self.waits.no_wait) / self.load.spare / self.load.spare
    }

    /// Variance of the response time: that of the wait and of the service.
    #[must_use]
    pub fn var_w(&self) -> f64 {
        self.var_wq() + 1.0 / self.load.mu / self.load.mu
    }

    /// Variance of the number in the system: a (1 + C) and that of the number that wait.
    ///
    /// From E\[busy · N\] = a (L + 1), the balance of the mean of N²; every term is positive.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        self.offered_load() * (1.0 + self.waits.wait) + self.var_nq()
    }

    /// Variance of the number that wait: ρ C (1 + ρ − ρ C) / (1 − ρ)².
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        let Load { rho, idle, .. } = self.load;
        rho * self.waits.wait * (1.0 + rho * self.waits.no_wait) / idle / idle
    }
}

impl Queue for Mmc {
    fn utilization(&self) -> f64 {
        self.load.rho
    }
    fn l(&self) -> f64 {
        self.lq() + self.offered_load()
    }
    fn lq(&self) -> f64 {
        self.waits.wait * (self.load.lambda / self.load.spare)
    }
    fn w(&self) -> f64 {
        self.wq() + 1.0 / self.load.mu
    }
    fn wq(&self) -> f64 {
        self.waits.wait / self.load.spare
    }
    fn p0(&self) -> f64 {
        poisson(0.0, self.offered_load()) / self.poisson_mass
    }
    fn pn(&self, n: u64) -> Result<f64> {
        let Load { rho, idle, .. } = self.load;
        if self.servers <= n {
            return Ok(self.waits.wait * idle * geometric(rho, idle, (n - self.servers) as f64));
        }
        Ok(poisson(n as f64, self.offered_load()) / self.poisson_mass)
    }
    fn throughput(&self) -> f64 {
        self.load.lambda
    }
    fn p_wait(&self) -> f64 {
        self.waits.wait
    }
}

impl WaitDistribution for Mmc {
    fn wq_cdf(&self, t: f64) -> Result<f64> {
        self.waits.wq_cdf(t)
    }
    fn wq_sf(&self, t: f64) -> Result<f64> {
        self.waits.wq_sf(t)
    }
    fn wq_quantile(&self, p: f64) -> Result<f64> {
        self.waits.wq_quantile(p)
    }
    fn w_cdf(&self, t: f64) -> Result<f64> {
        self.waits.w_cdf(t)
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        self.waits.w_sf(t)
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        self.waits.w_quantile(p)
    }
}

/// Mean wait before service in an M/M/c queue, over all jobs.
///
/// ```text
/// mmc_wq = (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))
///          / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k))
///             + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)))
///          / (c * mu - lambda)
/// ```
///
/// `lambda` is the arrival rate, `mu` the service rate of one server, both per the same unit of
/// time, and `c` the number of servers. The result is in that unit of time: Erlang C over the spare
/// rate.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `c * mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, `c`
/// from 1 to 10^9.
///
/// # Examples
///
/// ```
/// assert!((queueing::mmc::mmc_wq(1.0, 1.0, 2)? - 1.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn mmc_wq(lambda: f64, mu: f64, c: u64) -> Result<f64> {
    Mmc::new(lambda, mu, c).map(|q| q.wq())
}

/// The catalog entry of [`mmc_wq`].
#[cfg(feature = "catalog")]
pub const MMC_WQ: Metric = Metric {
    id: "mmc_wq",
    symbol: "W_q",
    name: text("Mean wait, M/M/c", "平均等待时间，M/M/c"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MU, C],
    formula: Formula::Scalar {
        text: "(lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)) / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k)) + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))) / (c * mu - lambda)",
        eval: |x| shown(TIME, mmc_wq(x[0], x[1], whole("c", x[2])?)),
        example: (&[1.0, 1.0, 2.0], 1.0 / 3.0),
    },
    path: "queueing::mmc::mmc_wq",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "One shared queue; separate queues per server wait far longer.",
        "所有服务台共用一个队列；各自排队的等待要长得多。",
    ),
    exported: &[],
};

/// Mean response time of an M/M/c queue: wait plus service.
///
/// ```text
/// mmc_w = (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))
///         / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k))
///            + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)))
///         / (c * mu - lambda) + 1 / mu
/// ```
///
/// `lambda` is the arrival rate, `mu` the service rate of one server, both per the same unit of
/// time, and `c` the number of servers. The result is in that unit of time.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `c * mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, `c`
/// from 1 to 10^9.
///
/// # Examples
///
/// ```
/// assert!((queueing::mmc::mmc_w(1.0, 1.0, 2)? - 4.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn mmc_w(lambda: f64, mu: f64, c: u64) -> Result<f64> {
    Mmc::new(lambda, mu, c).map(|q| q.w())
}

/// The catalog entry of [`mmc_w`].
#[cfg(feature = "catalog")]
pub const MMC_W: Metric = Metric {
    id: "mmc_w",
    symbol: "W",
    name: text("Mean response time, M/M/c", "平均响应时间，M/M/c"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MU, C],
    formula: Formula::Scalar {
        text: "(lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)) / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k)) + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))) / (c * mu - lambda) + 1 / mu",
        eval: |x| shown(TIME, mmc_w(x[0], x[1], whole("c", x[2])?)),
        example: (&[1.0, 1.0, 2.0], 4.0 / 3.0),
    },
    path: "queueing::mmc::mmc_w",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "More servers cut the wait, never the service itself.",
        "增加服务台只能缩短等待，不能缩短服务本身。",
    ),
    exported: &[],
};

/// Mean number of jobs that wait in an M/M/c queue.
///
/// ```text
/// mmc_lq = lambda * ((lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))
///          / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k))
///             + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)))
///          / (c * mu - lambda))
/// ```
///
/// `lambda` is the arrival rate, `mu` the service rate of one server, both per the same unit of
/// time, and `c` the number of servers.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `c * mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, `c`
/// from 1 to 10^9.
///
/// # Examples
///
/// ```
/// assert!((queueing::mmc::mmc_lq(1.0, 1.0, 2)? - 1.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn mmc_lq(lambda: f64, mu: f64, c: u64) -> Result<f64> {
    Mmc::new(lambda, mu, c).map(|q| q.lq())
}

/// The catalog entry of [`mmc_lq`].
#[cfg(feature = "catalog")]
pub const MMC_LQ: Metric = Metric {
    id: "mmc_lq",
    symbol: "L_q",
    name: text("Jobs waiting, M/M/c", "平均排队任务数，M/M/c"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, C],
    formula: Formula::Scalar {
        text: "lambda * ((lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)) / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k)) + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))) / (c * mu - lambda))",
        eval: |x| shown(PURE, mmc_lq(x[0], x[1], whole("c", x[2])?)),
        example: (&[1.0, 1.0, 2.0], 1.0 / 3.0),
    },
    path: "queueing::mmc::mmc_lq",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "A mean that hides bursts: at high load its spread is as large as itself.",
        "这是均值，会掩盖突发：高负载时其波动与均值相当。",
    ),
    exported: &[],
};

/// Mean number of jobs in an M/M/c system, those in service included.
///
/// ```text
/// mmc_l = lambda * ((lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))
///         / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k))
///            + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)))
///         / (c * mu - lambda)) + lambda / mu
/// ```
///
/// `lambda` is the arrival rate, `mu` the service rate of one server, both per the same unit of
/// time, and `c` the number of servers.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `c * mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, `c`
/// from 1 to 10^9.
///
/// # Examples
///
/// ```
/// assert!((queueing::mmc::mmc_l(1.0, 1.0, 2)? - 4.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn mmc_l(lambda: f64, mu: f64, c: u64) -> Result<f64> {
    Mmc::new(lambda, mu, c).map(|q| q.l())
}

/// The catalog entry of [`mmc_l`].
#[cfg(feature = "catalog")]
pub const MMC_L: Metric = Metric {
    id: "mmc_l",
    symbol: "L",
    name: text("Jobs in the system, M/M/c", "系统内平均任务数，M/M/c"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, C],
    formula: Formula::Scalar {
        text: "lambda * ((lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)) / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k)) + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))) / (c * mu - lambda)) + lambda / mu",
        eval: |x| shown(PURE, mmc_l(x[0], x[1], whole("c", x[2])?)),
        example: (&[1.0, 1.0, 2.0], 4.0 / 3.0),
    },
    path: "queueing::mmc::mmc_l",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "It holds λ / μ busy servers besides the queue.",
        "除排队任务外，它还包含 λ/μ 个忙碌的服务台。",
    ),
    exported: &[],
};

/// Probability that a job of an M/M/c queue waits longer than `t`.
///
/// ```text
/// mmc_wq_sf = (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))
///             / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k))
///                + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)))
///             * exp((lambda - c * mu) * t)
/// ```
///
/// `lambda` is the arrival rate, `mu` the service rate of one server, both per the same unit of
/// time, and `c` the number of servers. `t` is in that unit of time. First come first served.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `c * mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, `c`
/// from 1 to 10^9, and `t` is not negative.
///
/// # Examples
///
/// ```
/// assert!((queueing::mmc::mmc_wq_sf(1.0, 1.0, 2, 0.0)? - 1.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn mmc_wq_sf(lambda: f64, mu: f64, c: u64, t: f64) -> Result<f64> {
    Mmc::new(lambda, mu, c)?.wq_sf(t)
}

/// The catalog entry of [`mmc_wq_sf`].
#[cfg(feature = "catalog")]
pub const MMC_WQ_SF: Metric = Metric {
    id: "mmc_wq_sf",
    symbol: r"P(W_q \gt t)",
    name: text("Probability of a longer wait, M/M/c", "等待超过 t 的概率，M/M/c"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, C, T],
    formula: Formula::Scalar {
        text: "(lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)) / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k)) + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))) * exp((lambda - c * mu) * t)",
        eval: |x| shown(PURE, mmc_wq_sf(x[0], x[1], whole("c", x[2])?, x[3])),
        example: (&[1.0, 1.0, 2.0, 0.0], 1.0 / 3.0),
    },
    path: "queueing::mmc::mmc_wq_sf",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "The service level of call centres is 1 minus this.",
        "呼叫中心所说的服务水平等于 1 减去它。",
    ),
    exported: &[],
};

/// Percentile of the wait in an M/M/c queue.
///
/// ```text
/// mmc_wq_quantile = max(0, ln((lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))
///                   / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k))
///                      + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)))
///                   / (1 - p))) / (c * mu - lambda)
/// ```
///
/// `lambda` is the arrival rate, `mu` the service rate of one server, both per the same unit of
/// time, and `c` the number of servers. The result is in that unit of time. `p` is the probability,
/// 0.99 for P99; at `p = 1` the result is truly infinite if `lambda` is above 0. Jobs that do not
/// wait come first: up to `p = 1 - erlang_c` the result is 0.
///
/// Without arrivals the wait is 0, where the formula has no logarithm.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `c * mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, `c`
/// from 1 to 10^9, and `p` is from 0 to 1.
///
/// # Examples
///
/// ```
/// let p99 = queueing::mmc::mmc_wq_quantile(1.0, 1.0, 2, 0.99)?;
/// assert!((p99 - (100.0_f64 / 3.0).ln()).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn mmc_wq_quantile(lambda: f64, mu: f64, c: u64, p: f64) -> Result<f64> {
    Mmc::new(lambda, mu, c)?.wq_quantile(p)
}

/// The catalog entry of [`mmc_wq_quantile`].
#[cfg(feature = "catalog")]
pub const MMC_WQ_QUANTILE: Metric = Metric {
    id: "mmc_wq_quantile",
    symbol: "W_q(p)",
    name: text("Percentile of the wait, M/M/c", "等待时间百分位，M/M/c"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA_ABOVE_0, MU, C, P],
    formula: Formula::Scalar {
        text: "max(0, ln((lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda)) / (sum(k, 0, c - 1, (lambda / mu)^k / fact(k)) + (lambda / mu)^c / fact(c) * (c * mu / (c * mu - lambda))) / (1 - p))) / (c * mu - lambda)",
        eval: |x| shown(TIME, mmc_wq_quantile(x[0], x[1], whole("c", x[2])?, x[3])),
        example: (&[1.0, 1.0, 2.0, 0.99], 3.506_557_897_319_982),
    },
    path: "queueing::mmc::mmc_wq_quantile",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "0 while fewer than 1 − p of all jobs wait; then it grows without bound.",
        "只要等待的任务不足 1 − p，它就是 0；超过后则无上限地增长。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&MMC_WQ, &MMC_W, &MMC_LQ, &MMC_L, &MMC_WQ_SF, &MMC_WQ_QUANTILE];
