//! M/D/1: Poisson arrivals, constant service, one server. Exact, with the distribution of the wait.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Layer, Metric, Source, text};

#[cfg(feature = "catalog")]
use crate::catalog::{LAMBDA, MEAN, TIME, shown};
use crate::error::Result;
use crate::mdc::Mdc;
use crate::model::{Queue, WaitDistribution};

/// An M/D/1 queue that keeps up with its arrivals.
///
/// # Examples
///
/// ```
/// use queueing::{Md1, Queue, WaitDistribution};
///
/// let queue = Md1::new(0.5, 1.0)?;
/// assert!((queue.wq() - 0.5).abs() < 1e-15); // half of M/M/1's
/// // Erlang, 1909: (1 − ρ) e^(ρ t) within one service.
/// assert!((queue.wq_cdf(0.5)? - 0.5 * 0.25_f64.exp()).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Erlang, *The theory of probabilities and telephone conversations*, 1909. His sum
/// alternates and has no digit left beyond some 15 services; this is [`Mdc`]'s sum for one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Md1 {
    queue: Mdc,
}

impl Md1 {
    /// The queue with arrival rate `lambda` whose services each take the time `service`.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`](crate::QueueError::Unstable) if `1 <= lambda * service`; other
    /// [`QueueError`](crate::QueueError) unless `lambda` is from 0 and `service` from 1e-50 to
    /// 1e50.
    pub fn new(lambda: f64, service: f64) -> Result<Self> {
        Mdc::new(lambda, service, 1).map(|queue| Self { queue })
    }

    /// Arrival rate.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.queue.lambda()
    }

    /// Time of one service.
    #[must_use]
    pub fn service(&self) -> f64 {
        self.queue.service()
    }

    /// Variance of the wait, by Takács: Wq² + λ D³ / (3 (1 − ρ)).
    #[must_use]
    pub fn var_wq(&self) -> f64 {
        let (wq, service) = (self.wq(), self.service());
        wq * wq + self.utilization() / self.p0() * service / 3.0 * service
    }

    /// Variance of the response time: that of the wait, as service is constant.
    #[must_use]
    pub fn var_w(&self) -> f64 {
        self.var_wq()
    }

    /// Variance of the number that wait.
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        crate::mg1::counted(self.lambda(), self.var_wq(), self.lq())
    }

    /// Variance of the number in the system.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        crate::mg1::counted(self.lambda(), self.var_w(), self.l())
    }

    /// Mean wait of the jobs that wait: D / (2 (1 − ρ)).
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        0.5 * self.service() / self.p0()
    }
}

impl Queue for Md1 {
    fn utilization(&self) -> f64 {
        self.queue.utilization()
    }
    fn l(&self) -> f64 {
        self.queue.l()
    }
    fn lq(&self) -> f64 {
        self.queue.lq()
    }
    fn w(&self) -> f64 {
        self.queue.w()
    }
    fn wq(&self) -> f64 {
        self.queue.wq()
    }
    fn p0(&self) -> f64 {
        self.queue.p0()
    }
    fn pn(&self, n: u64) -> Result<f64> {
        self.queue.pn(n)
    }
    fn throughput(&self) -> f64 {
        self.queue.throughput()
    }
    fn p_wait(&self) -> f64 {
        self.queue.p_wait()
    }
}

impl WaitDistribution for Md1 {
    fn wq_cdf(&self, t: f64) -> Result<f64> {
        self.queue.wq_cdf(t)
    }
    fn wq_sf(&self, t: f64) -> Result<f64> {
        self.queue.wq_sf(t)
    }
    fn wq_quantile(&self, p: f64) -> Result<f64> {
        self.queue.wq_quantile(p)
    }
    fn w_cdf(&self, t: f64) -> Result<f64> {
        self.queue.w_cdf(t)
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        self.queue.w_sf(t)
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        self.queue.w_quantile(p)
    }
}

/// Mean wait before service in an M/D/1 queue, over all jobs.
///
/// ```text
/// md1_wq = lambda * mean * mean / (2 * (1 - lambda * mean))
/// ```
///
/// `lambda` is the arrival rate and `mean` the time of each service, whose unit the result has.
///
/// # Errors
///
/// As [`Md1::new`].
///
/// # Examples
///
/// ```
/// assert!((queueing::md1::md1_wq(4.0, 0.1)? - 1.0 / 30.0).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Erlang 1909.
pub fn md1_wq(lambda: f64, mean: f64) -> Result<f64> {
    Md1::new(lambda, mean).map(|q| q.wq())
}

/// The catalog entry of [`md1_wq`].
#[cfg(feature = "catalog")]
pub const MD1_WQ: Metric = Metric {
    id: "md1_wq",
    symbol: "W_q",
    name: text("Mean wait, M/D/1", "平均等待时间，M/D/1"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MEAN],
    formula: Formula::Scalar {
        text: "lambda * mean * mean / (2 * (1 - lambda * mean))",
        eval: |x| shown(TIME, md1_wq(x[0], x[1])),
        example: (&[4.0, 0.1], 1.0 / 30.0),
    },
    path: "queueing::md1::md1_wq",
    source: Source { work: "Erlang 1909", section: "constant holding times" },
    note: text(
        "Half of M/M/1's: what remains is due to the arrivals alone.",
        "是 M/M/1 的一半：剩下的完全来自到达的随机性。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&MD1_WQ];
