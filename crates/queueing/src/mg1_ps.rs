//! M/G/1 with processor sharing: all jobs in the system share the server evenly.
//!
//! The law of the service time does not matter beyond its mean: neither for the number in the
//! system nor for the mean response of a job of a given size. It is what an engine without a limit
//! on its batch would be, if its speed did not depend on the batch.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text};

#[cfg(feature = "catalog")]
use crate::catalog::{LAMBDA, MEAN, TIME, shown};
use crate::error::{LARGEST, QueueError, Result, not_negative, positive, zero_or_more};
use crate::model::Queue;
use crate::numeric::geometric;

/// An M/G/1 queue with processor sharing that keeps up with its arrivals.
///
/// Nobody waits before service: `wq` is 0, and what sharing costs is in `w`.
///
/// # Examples
///
/// ```
/// use queueing::{Mg1Ps, Queue};
///
/// let queue = Mg1Ps::new(8.0, 0.1)?;
/// assert!((queue.w() - 0.5).abs() < 1e-15); // 0.1 / (1 − 0.8)
/// assert!((queue.w_given_size(0.02)? - 0.1).abs() < 1e-15); // every job takes five times as long
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 2, 1976, ch. 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mg1Ps {
    lambda: f64,
    mean: f64,
    rho: f64,
    idle: f64,
}

impl Mg1Ps {
    /// The queue with arrival rate `lambda` and mean service time `mean` of a job that is alone.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if `1 <= lambda * mean`; other [`QueueError`] unless `lambda` is
    /// from 0 and `mean` from 1e-50 to 1e50.
    pub fn new(lambda: f64, mean: f64) -> Result<Self> {
        let (lambda, mean) = (zero_or_more("lambda", lambda)?, positive("mean", mean)?);
        let (rho, idle) = (lambda * mean, (-lambda).mul_add(mean, 1.0));
        if idle <= 0.0 {
            return Err(QueueError::Unstable { rho });
        }
        Ok(Self { lambda, mean, rho, idle })
    }

    /// How many times longer every job takes than alone, on average: 1 / (1 − ρ).
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        1.0 / self.idle
    }

    /// Mean response time of a job that alone would take `size`: size / (1 − ρ).
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `size` is from 0 to 1e50.
    pub fn w_given_size(&self, size: f64) -> Result<f64> {
        Ok(zero_or_more("size", size)? / self.idle)
    }

    /// Variance of the response time of a job that alone would take `size`, if service is
    /// exponential.
    ///
    /// With y = (1 − ρ) size / mean, it is 2 ρ mean² / (1 − ρ)^4 · (y − 1 + e^(−y)).
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `size` is from 0 to 1e50.
    ///
    /// Source: Ott, *The sojourn-time distribution in the M/G/1 queue with processor sharing*,
    /// Journal of Applied Probability 21, 1984.
    pub fn var_w_given_size_exp(&self, size: f64) -> Result<f64> {
        let size = zero_or_more("size", size)?;
        let y = self.idle * (size / self.mean);
        let square = self.idle * self.idle;
        Ok(2.0 * self.rho * self.mean / square * self.mean / square * exp_less_line(y))
    }

    /// Variance of the response time over all jobs, if service is exponential:
    /// mean² (2 + ρ) / ((2 − ρ) (1 − ρ)²).
    #[must_use]
    pub fn var_w_exp(&self) -> f64 {
        (2.0 + self.rho) / (1.0 + self.idle) * (self.mean / self.idle) * (self.mean / self.idle)
    }

    /// Variance of the number in the system: ρ / (1 − ρ)², whatever the law of the service.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        self.rho / self.idle / self.idle
    }

    /// Probability that more than `n` jobs are in the system: ρ^(n + 1).
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `n` is from 0 to 1e50.
    pub fn n_sf(&self, n: f64) -> Result<f64> {
        let n = not_negative("n", n)?;
        if LARGEST < n {
            let expected = "from 0 to 1e50";
            return Err(QueueError::OutOfRange { name: "n", value: n, expected });
        }
        Ok(geometric(self.rho, self.idle, n.floor() + 1.0))
    }
}

/// e^(−y) − 1 + y, without the difference for small y.
fn exp_less_line(y: f64) -> f64 {
    if 0.7 < y {
        return y + (-y).exp_m1();
    }
    let (mut term, mut sum, mut m) = (-y, 0.0, 1.0);
    loop {
        m += 1.0;
        term *= -y / m;
        sum += term;
        if term.abs() <= 1e-18 * sum {
            return sum;
        }
    }
}

impl Queue for Mg1Ps {
    fn utilization(&self) -> f64 {
        self.rho
    }
    fn l(&self) -> f64 {
        self.rho / self.idle
    }
    /// 0: every job in the system is in service.
    fn lq(&self) -> f64 {
        0.0
    }
    fn w(&self) -> f64 {
        self.mean / self.idle
    }
    /// 0: service starts on arrival.
    fn wq(&self) -> f64 {
        0.0
    }
    fn p0(&self) -> f64 {
        self.idle
    }
    fn pn(&self, n: u64) -> Result<f64> {
        Ok(self.idle * geometric(self.rho, self.idle, n as f64))
    }
    fn throughput(&self) -> f64 {
        self.lambda
    }
    /// 0: service starts on arrival.
    fn p_wait(&self) -> f64 {
        0.0
    }
}

/// Mean response of a job of a given size under processor sharing.
///
/// ```text
/// mg1_ps_w_given_size = size / (1 - lambda * mean)
/// ```
///
/// `lambda` is the arrival rate, `mean` the mean service time alone, and `size` the time that the
/// job would need alone, whose unit the result has. The law of the service time does not matter.
///
/// # Errors
///
/// As [`Mg1Ps::new`]; [`QueueError`] unless `size` is from 0 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::mg1_ps::mg1_ps_w_given_size(4.0, 0.1, 0.3)? - 0.5).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 2, 1976, ch. 4.
pub fn mg1_ps_w_given_size(lambda: f64, mean: f64, size: f64) -> Result<f64> {
    Mg1Ps::new(lambda, mean)?.w_given_size(size)
}

/// The catalog entry of [`mg1_ps_w_given_size`].
#[cfg(feature = "catalog")]
pub const MG1_PS_W_GIVEN_SIZE: Metric = Metric {
    id: "mg1_ps_w_given_size",
    symbol: r"E[T \mid x]",
    name: text("Mean response of a job by its size, M/G/1-PS", "给定大小的平均响应时间，M/G/1-PS"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MEAN, SIZE],
    formula: Formula::Scalar {
        text: "size / (1 - lambda * mean)",
        eval: |x| shown(TIME, mg1_ps_w_given_size(x[0], x[1], x[2])),
        example: (&[4.0, 0.1, 0.3], 0.5),
    },
    path: "queueing::mg1_ps::mg1_ps_w_given_size",
    source: Source { work: "Kleinrock 1976", section: "ch. 4" },
    note: text(
        "Every job is slowed down by the same factor; in M/G/1 short jobs wait behind long ones.",
        "每个任务都按同一倍数变慢；而在 M/G/1 中短任务要等长任务。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const SIZE: Input = Input::real(
    "size",
    "x",
    TIME,
    (0.0, 10.0),
    text("time that the job needs alone", "任务单独运行所需时间"),
);

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&MG1_PS_W_GIVEN_SIZE];
