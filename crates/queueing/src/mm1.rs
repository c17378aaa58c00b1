//! M/M/1: Poisson arrivals, exponential service, one server, first come first served.
//!
//! Source of all: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3 and 5.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{LAMBDA, LAMBDA_ABOVE_0, MU, N, P, PURE, T, TIME, shown};
use crate::erlang::{Load, stable};
use crate::error::{Result, not_negative, probability};
use crate::model::{Queue, WaitDistribution};
use crate::numeric::geometric;
use crate::waits::Waits;

/// An M/M/1 queue that keeps up with its arrivals.
///
/// # Examples
///
/// ```
/// use queueing::{Mm1, Queue, WaitDistribution};
///
/// let queue = Mm1::new(4.0, 10.0)?; // 4 arrivals and 10 services a second
/// assert!((queue.utilization() - 0.4).abs() < 1e-15);
/// assert!((queue.w() - 1.0 / 6.0).abs() < 1e-15);
/// assert!((queue.w_quantile(0.99)? - 100.0_f64.ln() / 6.0).abs() < 1e-14);
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mm1 {
    load: Load,
}

impl Mm1 {
    /// The queue with arrival rate `lambda` and service rate `mu`, per the same unit of time.
    ///
    /// Without arrivals (`lambda = 0`) the response time is that of a job that finds it empty.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
    /// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
    pub fn new(lambda: f64, mu: f64) -> Result<Self> {
        stable(lambda, mu, 1).map(|load| Self { load })
    }

    /// Arrival rate.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.load.lambda
    }

    /// Service rate.
    #[must_use]
    pub fn mu(&self) -> f64 {
        self.load.mu
    }

    /// Mean wait of the jobs that do wait: 1 / (μ − λ), as long as the mean response.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        1.0 / self.load.spare
    }

    /// Variance of the number in the system: ρ / (1 − ρ)².
    #[must_use]
    pub fn var_n(&self) -> f64 {
        self.load.rho / self.load.idle / self.load.idle
    }

    /// Variance of the number that wait: ρ² (1 + ρ − ρ²) / (1 − ρ)².
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        let Load { rho, idle, .. } = self.load;
        rho * rho * (1.0 + rho * idle) / idle / idle
    }

    /// Variance of the response time: 1 / (μ − λ)².
    #[must_use]
    pub fn var_w(&self) -> f64 {
        self.w() * self.w()
    }

    /// Variance of the wait: ρ (2 − ρ) / (μ − λ)².
    #[must_use]
    pub fn var_wq(&self) -> f64 {
        let Load { rho, idle, .. } = self.load;
        rho * (1.0 + idle) * self.var_w()
    }

    fn waits(&self) -> Waits {
        let Load { rho, idle, spare, mu, lambda, .. } = self.load;
        Waits { wait: rho, no_wait: idle, spare, mu, apart: lambda }
    }
}

impl Queue for Mm1 {
    fn utilization(&self) -> f64 {
        self.load.rho
    }
    fn l(&self) -> f64 {
        self.load.lambda / self.load.spare
    }
    fn lq(&self) -> f64 {
        self.load.rho * self.l()
    }
    fn w(&self) -> f64 {
        1.0 / self.load.spare
    }
    fn wq(&self) -> f64 {
        self.load.rho / self.load.spare
    }
    fn p0(&self) -> f64 {
        self.load.idle
    }
    fn pn(&self, n: u64) -> Result<f64> {
        let Load { rho, idle, .. } = self.load;
        Ok(idle * geometric(rho, idle, n as f64))
    }
    fn throughput(&self) -> f64 {
        self.load.lambda
    }
    fn p_wait(&self) -> f64 {
        self.load.rho
    }
}

impl WaitDistribution for Mm1 {
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
        not_negative("t", t).map(|t| -(-self.load.spare * t).exp_m1())
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| (-self.load.spare * t).exp())
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        // Plain zero at p = 0: the logarithm alone gives its negative.
        probability("p", p).map(|p| 0.0 - (-p).ln_1p() / self.load.spare)
    }
}

/// Mean number of jobs in an M/M/1 system, the one in service included.
///
/// ```text
/// mm1_l = lambda / (mu - lambda)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::mm1::mm1_l(4.0, 10.0)? - 2.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_l(lambda: f64, mu: f64) -> Result<f64> {
    Mm1::new(lambda, mu).map(|q| q.l())
}

/// The catalog entry of [`mm1_l`].
#[cfg(feature = "catalog")]
pub const MM1_L: Metric = Metric {
    id: "mm1_l",
    symbol: "L",
    name: text("Jobs in the system, M/M/1", "系统内平均任务数，M/M/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU],
    formula: Formula::Scalar {
        text: "lambda / (mu - lambda)",
        eval: |x| shown(PURE, mm1_l(x[0], x[1])),
        example: (&[4.0, 10.0], 2.0 / 3.0),
    },
    path: "queueing::mm1::mm1_l",
    source: Source { work: "Kleinrock 1975", section: "ch. 3" },
    note: text(
        "It counts the job in service; the queue alone is Lq.",
        "它包含正在服务的任务；只算等待的是 Lq。",
    ),
    exported: &[],
};

/// Mean number of jobs that wait in an M/M/1 queue.
///
/// ```text
/// mm1_lq = lambda / mu * lambda / (mu - lambda)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::mm1::mm1_lq(4.0, 10.0)? - 4.0 / 15.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_lq(lambda: f64, mu: f64) -> Result<f64> {
    Mm1::new(lambda, mu).map(|q| q.lq())
}

/// The catalog entry of [`mm1_lq`].
#[cfg(feature = "catalog")]
pub const MM1_LQ: Metric = Metric {
    id: "mm1_lq",
    symbol: "L_q",
    name: text("Jobs waiting, M/M/1", "平均排队任务数，M/M/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU],
    formula: Formula::Scalar {
        text: "lambda / mu * lambda / (mu - lambda)",
        eval: |x| shown(PURE, mm1_lq(x[0], x[1])),
        example: (&[4.0, 10.0], 4.0 / 15.0),
    },
    path: "queueing::mm1::mm1_lq",
    source: Source { work: "Kleinrock 1975", section: "ch. 3" },
    note: text(
        "L − Lq is ρ, not 1: the server is not always busy.",
        "L − Lq 等于 ρ 而不是 1：服务台并非一直忙碌。",
    ),
    exported: &[],
};

/// Mean response time of an M/M/1 queue: wait plus service.
///
/// ```text
/// mm1_w = 1 / (mu - lambda)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time. The
/// result is in that unit of time.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::mm1::mm1_w(4.0, 10.0)? - 1.0 / 6.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_w(lambda: f64, mu: f64) -> Result<f64> {
    Mm1::new(lambda, mu).map(|q| q.w())
}

/// The catalog entry of [`mm1_w`].
#[cfg(feature = "catalog")]
pub const MM1_W: Metric = Metric {
    id: "mm1_w",
    symbol: "W",
    name: text("Mean response time, M/M/1", "平均响应时间，M/M/1"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MU],
    formula: Formula::Scalar {
        text: "1 / (mu - lambda)",
        eval: |x| shown(TIME, mm1_w(x[0], x[1])),
        example: (&[4.0, 10.0], 1.0 / 6.0),
    },
    path: "queueing::mm1::mm1_w",
    source: Source { work: "Kleinrock 1975", section: "ch. 3" },
    note: text(
        "A mean: the 99th percentile is 4.6 times as long at any load.",
        "这是均值：在任何负载下，第 99 百分位都是它的 4.6 倍。",
    ),
    exported: &[],
};

/// Mean wait before service in an M/M/1 queue, over all jobs.
///
/// ```text
/// mm1_wq = lambda / mu / (mu - lambda)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time. The
/// result is in that unit of time.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::mm1::mm1_wq(4.0, 10.0)? - 1.0 / 15.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_wq(lambda: f64, mu: f64) -> Result<f64> {
    Mm1::new(lambda, mu).map(|q| q.wq())
}

/// The catalog entry of [`mm1_wq`].
#[cfg(feature = "catalog")]
pub const MM1_WQ: Metric = Metric {
    id: "mm1_wq",
    symbol: "W_q",
    name: text("Mean wait, M/M/1", "平均等待时间，M/M/1"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MU],
    formula: Formula::Scalar {
        text: "lambda / mu / (mu - lambda)",
        eval: |x| shown(TIME, mm1_wq(x[0], x[1])),
        example: (&[4.0, 10.0], 1.0 / 15.0),
    },
    path: "queueing::mm1::mm1_wq",
    source: Source { work: "Kleinrock 1975", section: "ch. 3" },
    note: text(
        "Over all jobs; those that do wait have the mean response time ahead of them.",
        "对全部任务取平均；真正需要等待的任务，平均等待等于平均响应时间。",
    ),
    exported: &[],
};

/// Probability that `n` jobs are in an M/M/1 system.
///
/// ```text
/// mm1_pn = (1 - lambda / mu) * (lambda / mu)^n
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time. `n`
/// counts the job in service.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::mm1::mm1_pn(4.0, 10.0, 1)? - 0.24).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_pn(lambda: f64, mu: f64, n: u64) -> Result<f64> {
    Mm1::new(lambda, mu)?.pn(n)
}

/// The catalog entry of [`mm1_pn`].
#[cfg(feature = "catalog")]
pub const MM1_PN: Metric = Metric {
    id: "mm1_pn",
    symbol: "p_n",
    name: text("Probability of n jobs, M/M/1", "系统内有 n 个任务的概率，M/M/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, N],
    formula: Formula::Scalar {
        text: "(1 - lambda / mu) * (lambda / mu)^n",
        eval: |x| shown(PURE, mm1_pn(x[0], x[1], whole("n", x[2])?)),
        example: (&[4.0, 10.0, 1.0], 0.24),
    },
    path: "queueing::mm1::mm1_pn",
    source: Source { work: "Kleinrock 1975", section: "ch. 3" },
    note: text(
        "Arrivals of a Poisson stream see the same probabilities.",
        "泊松到达者看到的也是同样的概率。",
    ),
    exported: &[],
};

/// Probability that a job of an M/M/1 queue waits longer than `t`.
///
/// ```text
/// mm1_wq_sf = lambda / mu * exp((lambda - mu) * t)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time. `t` is
/// in that unit of time. First come first served.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, and `t`
/// is not negative.
///
/// # Examples
///
/// ```
/// assert!((queueing::mm1::mm1_wq_sf(4.0, 10.0, 0.0)? - 0.4).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3 and 5.
pub fn mm1_wq_sf(lambda: f64, mu: f64, t: f64) -> Result<f64> {
    Mm1::new(lambda, mu)?.wq_sf(t)
}

/// The catalog entry of [`mm1_wq_sf`].
#[cfg(feature = "catalog")]
pub const MM1_WQ_SF: Metric = Metric {
    id: "mm1_wq_sf",
    symbol: r"P(W_q \gt t)",
    name: text("Probability of a longer wait, M/M/1", "等待超过 t 的概率，M/M/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, T],
    formula: Formula::Scalar {
        text: "lambda / mu * exp((lambda - mu) * t)",
        eval: |x| shown(PURE, mm1_wq_sf(x[0], x[1], x[2])),
        example: (&[4.0, 10.0, 0.0], 0.4),
    },
    path: "queueing::mm1::mm1_wq_sf",
    source: Source { work: "Kleinrock 1975", section: "ch. 3 and 5" },
    note: text(
        "At t = 0 it is ρ: the rest does not wait at all.",
        "t = 0 时它等于 ρ：其余任务完全不等待。",
    ),
    exported: &[],
};

/// Probability that a response of an M/M/1 queue takes longer than `t`.
///
/// ```text
/// mm1_w_sf = exp((lambda - mu) * t)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time. `t` is
/// in that unit of time. First come first served.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, and `t`
/// is not negative.
///
/// # Examples
///
/// ```
/// assert!((queueing::mm1::mm1_w_sf(4.0, 10.0, 0.5)? - (-3.0_f64).exp()).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3 and 5.
pub fn mm1_w_sf(lambda: f64, mu: f64, t: f64) -> Result<f64> {
    Mm1::new(lambda, mu)?.w_sf(t)
}

/// The catalog entry of [`mm1_w_sf`].
#[cfg(feature = "catalog")]
pub const MM1_W_SF: Metric = Metric {
    id: "mm1_w_sf",
    symbol: r"P(W \gt t)",
    name: text("Probability of a longer response, M/M/1", "响应超过 t 的概率，M/M/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, T],
    formula: Formula::Scalar {
        text: "exp((lambda - mu) * t)",
        eval: |x| shown(PURE, mm1_w_sf(x[0], x[1], x[2])),
        example: (&[4.0, 10.0, 0.5], 0.049_787_068_367_863_944),
    },
    path: "queueing::mm1::mm1_w_sf",
    source: Source { work: "Kleinrock 1975", section: "ch. 3 and 5" },
    note: text(
        "Exponential, like the service: only the rate shrinks, from μ to μ − λ.",
        "与服务时间一样服从指数分布，只是速率从 μ 降到 μ − λ。",
    ),
    exported: &[],
};

/// Percentile of the wait in an M/M/1 queue.
///
/// ```text
/// mm1_wq_quantile = max(0, ln(lambda / (mu * (1 - p)))) / (mu - lambda)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time. The
/// result is in that unit of time. `p` is the probability, 0.99 for P99; at `p = 1` the result is
/// truly infinite if `lambda` is above 0. The first `1 - lambda / mu` of all jobs do not wait. At a
/// load of 0.7, P99 · μ is 14.16 for the wait and 15.35 for the response time; pages that print
/// 13.4, and 46.1 at 0.9, mix the two formulas.
///
/// Without arrivals the wait is 0, where the formula has no logarithm.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, and `p`
/// is from 0 to 1.
///
/// # Examples
///
/// ```
/// let p99 = queueing::mm1::mm1_wq_quantile(7.0, 10.0, 0.99)?;
/// assert!((p99 - 70.0_f64.ln() / 3.0).abs() < 1e-12);
/// assert_eq!(queueing::mm1::mm1_wq_quantile(7.0, 10.0, 0.3)?, 0.0);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3 and 5.
pub fn mm1_wq_quantile(lambda: f64, mu: f64, p: f64) -> Result<f64> {
    Mm1::new(lambda, mu)?.wq_quantile(p)
}

/// The catalog entry of [`mm1_wq_quantile`].
#[cfg(feature = "catalog")]
pub const MM1_WQ_QUANTILE: Metric = Metric {
    id: "mm1_wq_quantile",
    symbol: "W_q(p)",
    name: text("Percentile of the wait, M/M/1", "等待时间百分位，M/M/1"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA_ABOVE_0, MU, P],
    formula: Formula::Scalar {
        text: "max(0, ln(lambda / (mu * (1 - p)))) / (mu - lambda)",
        eval: |x| shown(TIME, mm1_wq_quantile(x[0], x[1], x[2])),
        example: (&[7.0, 10.0, 0.99], 1.416_165_080_683_844_6),
    },
    path: "queueing::mm1::mm1_wq_quantile",
    source: Source { work: "Kleinrock 1975", section: "ch. 3 and 5" },
    note: text(
        "Not the response percentile: below p = 1 − ρ it is 0.",
        "不要与响应时间百分位混淆：p 低于 1 − ρ 时它为 0。",
    ),
    exported: &[],
};

/// Percentile of the response time of an M/M/1 queue.
///
/// ```text
/// mm1_w_quantile = -ln(1 - p) / (mu - lambda)
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate, both per the same unit of time. The
/// result is in that unit of time. `p` is the probability, 0.99 for P99; at `p = 1` the result is
/// truly infinite.
///
/// # Errors
///
/// [`QueueError::Unstable`](crate::QueueError::Unstable) if `mu <= lambda`; other
/// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, and `p`
/// is from 0 to 1.
///
/// # Examples
///
/// ```
/// let p99 = queueing::mm1::mm1_w_quantile(7.0, 10.0, 0.99)?;
/// assert!((p99 - 100.0_f64.ln() / 3.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3 and 5.
pub fn mm1_w_quantile(lambda: f64, mu: f64, p: f64) -> Result<f64> {
    Mm1::new(lambda, mu)?.w_quantile(p)
}

/// The catalog entry of [`mm1_w_quantile`].
#[cfg(feature = "catalog")]
pub const MM1_W_QUANTILE: Metric = Metric {
    id: "mm1_w_quantile",
    symbol: "W(p)",
    name: text("Percentile of the response time, M/M/1", "响应时间百分位，M/M/1"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MU, P],
    formula: Formula::Scalar {
        text: "-ln(1 - p) / (mu - lambda)",
        eval: |x| shown(TIME, mm1_w_quantile(x[0], x[1], x[2])),
        example: (&[7.0, 10.0, 0.99], 1.535_056_728_662_697_3),
    },
    path: "queueing::mm1::mm1_w_quantile",
    source: Source { work: "Kleinrock 1975", section: "ch. 3 and 5" },
    note: text(
        "It is not the wait percentile plus the service percentile: percentiles do not add.",
        "它不等于等待百分位加服务百分位：百分位数不能相加。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &MM1_L,
    &MM1_LQ,
    &MM1_W,
    &MM1_WQ,
    &MM1_PN,
    &MM1_WQ_SF,
    &MM1_W_SF,
    &MM1_WQ_QUANTILE,
    &MM1_W_QUANTILE,
];
