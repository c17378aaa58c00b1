//! M/G/1: Poisson arrivals, any service time, one server, by Pollaczek and Khinchine.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Layer, Metric, Source, text};

#[cfg(feature = "catalog")]
use crate::catalog::{CV, LAMBDA, MEAN, PURE, TIME, shown};
use crate::error::{LARGEST, QueueError, Result, finite, positive, zero_or_more};
use crate::exact::Twice;
use crate::model::Queue;
use crate::service::ServiceLaw;

/// Largest third moment of the service time that a model takes.
const LARGEST_THIRD: f64 = 1e200;

/// What M/G/1 needs to know of the service time: its first moments.
///
/// The fields may be set freely; [`Mg1::new`] checks them.
///
/// # Examples
///
/// ```
/// use queueing::ServiceMoments;
///
/// let measured = ServiceMoments::from_cv(0.1, 2.0);
/// assert_eq!(measured, ServiceMoments { mean: 0.1, scv: 4.0, third: None });
/// assert_eq!(ServiceMoments::exp(0.1).scv, 1.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceMoments {
    /// Mean E\[S\], above 0.
    pub mean: f64,
    /// Squared coefficient of variation Var\[S\] / E\[S\]², from 0 to 1e50, or infinite for a tail
    /// so heavy that the second moment does not exist.
    pub scv: f64,
    /// Third moment about 0, E\[S³\], if known: the variance of the wait needs it.
    pub third: Option<f64>,
}

impl ServiceMoments {
    /// Mean and coefficient of variation, standard deviation over mean.
    #[must_use]
    pub const fn from_cv(mean: f64, cv: f64) -> Self {
        Self { mean, scv: cv * cv, third: None }
    }

    /// Exponential service: E\[S³\] = 6 · mean³.
    #[must_use]
    pub const fn exp(mean: f64) -> Self {
        Self { mean, scv: 1.0, third: Some(6.0 * mean * mean * mean) }
    }

    /// Service that always takes the same time.
    #[must_use]
    pub const fn det(mean: f64) -> Self {
        Self { mean, scv: 0.0, third: Some(mean * mean * mean) }
    }
}

/// An M/G/1 queue that keeps up with its arrivals.
///
/// Two moments of the service time settle the means but neither the distribution of the number in
/// the system nor that of the wait; it offers no percentile.
///
/// # Examples
///
/// ```
/// use queueing::{Mg1, Queue};
///
/// let exponential = Mg1::from_cv(4.0, 0.1, 1.0)?;
/// assert!((exponential.wq() - 1.0 / 15.0).abs() < 1e-15); // as M/M/1 at μ = 10
/// let steady = Mg1::from_cv(4.0, 0.1, 0.0)?;
/// assert!((steady.wq() - 1.0 / 30.0).abs() < 1e-15); // half of it
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mg1 {
    lambda: f64,
    service: ServiceMoments,
    rho: f64,
    idle: f64,
}

impl Mg1 {
    /// The queue with arrival rate `lambda` and the moments of its service time, in the same unit
    /// of time.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if `1 <= lambda * mean`; other [`QueueError`] unless `lambda` is
    /// from 0 and `mean` from 1e-50 to 1e50, `scv` is from 0 to 1e50 or infinite, and the third
    /// moment, if given, is at least E\[S²\]² / E\[S\] (as it is for every distribution).
    pub fn new(lambda: f64, service: ServiceMoments) -> Result<Self> {
        Self::with_mean(lambda, service, Twice::of(service.mean))
    }

    /// The queue with arrival rate `lambda` and a named law of its service time.
    ///
    /// Where the law's mean has more digits than `f64` holds, 1 − ρ comes from all of them.
    ///
    /// # Errors
    ///
    /// As [`Mg1::new`], and if a parameter is out of the range that the law gives.
    pub fn of_law(lambda: f64, law: &ServiceLaw) -> Result<Self> {
        let (moments, mean) = law.precise()?;
        Self::with_mean(lambda, moments, mean)
    }

    fn with_mean(lambda: f64, service: ServiceMoments, precise: Twice) -> Result<Self> {
        let lambda = zero_or_more("lambda", lambda)?;
        let mean = positive("mean", service.mean)?;
        let scv = service.scv + 0.0;
        if scv.is_nan() {
            return Err(QueueError::NotFinite { name: "scv", value: scv });
        }
        if scv < 0.0 || (LARGEST < scv && scv.is_finite()) {
            let expected = "from 0 to 1e50, or infinite";
            return Err(QueueError::OutOfRange { name: "scv", value: scv, expected });
        }
        let third = match service.third {
            Some(value) if value == f64::INFINITY => Some(value),
            Some(value) => Some(third_moment(mean, scv, value)?),
            None => None,
        };
        // 1 − λ E[S] rounded once, so that it has all its digits near ρ = 1.
        let (rho, idle) = (lambda * mean, (-lambda).mul_add(mean, 1.0) - lambda * precise.low);
        if idle <= 0.0 {
            return Err(QueueError::Unstable { rho });
        }
        Ok(Self { lambda, service: ServiceMoments { mean, scv, third }, rho, idle })
    }

    /// The queue with arrival rate `lambda`, mean service time and its coefficient of variation.
    ///
    /// # Errors
    ///
    /// As [`Mg1::new`]; `cv` must be from 0 to 1e24 or infinite.
    pub fn from_cv(lambda: f64, mean: f64, cv: f64) -> Result<Self> {
        // Checked before it is squared, where a negative one would pass for its opposite.
        if cv.is_nan() {
            return Err(QueueError::NotFinite { name: "cv", value: cv });
        }
        if cv < 0.0 || (1e24 < cv && cv.is_finite()) {
            let expected = "from 0 to 1e24, or infinite";
            return Err(QueueError::OutOfRange { name: "cv", value: cv, expected });
        }
        Self::new(lambda, ServiceMoments::from_cv(mean, cv))
    }

    /// Arrival rate.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Moments of the service time.
    #[must_use]
    pub fn service(&self) -> ServiceMoments {
        self.service
    }

    /// Variance of the wait, by Takács: Wq² + λ E\[S³\] / (3 (1 − ρ)).
    ///
    /// `None` if the third moment is not known; infinite if the second or third moment is.
    #[must_use]
    pub fn var_wq(&self) -> Option<f64> {
        let third = self.service.third?;
        if self.lambda == 0.0 {
            return Some(0.0);
        }
        let wq = self.wq();
        Some(wq * wq + self.lambda / self.idle * third / 3.0)
    }

    /// Variance of the response time: that of the wait and that of the service.
    #[must_use]
    pub fn var_w(&self) -> Option<f64> {
        let ServiceMoments { mean, scv, .. } = self.service;
        self.var_wq().map(|wait| wait + mean * mean * scv)
    }

    /// Mean wait of the jobs that do wait: Wq / ρ.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        if self.rho == 0.0 {
            // The limit of ever fewer arrivals: the rest of the service that one meets.
            return 0.5 * self.service.mean * (1.0 + self.service.scv);
        }
        self.wq() / self.rho
    }

    /// Variance of the number in the system: λ² Var\[W\] + L, since a job leaves behind the Poisson
    /// arrivals of its own time in the system. `None` if the third moment is not known.
    #[must_use]
    pub fn var_n(&self) -> Option<f64> {
        self.var_w().map(|w| counted(self.lambda, w, self.l()))
    }

    /// Variance of the number that wait: λ² Var\[Wq\] + Lq. `None` if the third moment is not known.
    #[must_use]
    pub fn var_nq(&self) -> Option<f64> {
        self.var_wq().map(|wq| counted(self.lambda, wq, self.lq()))
    }
}

/// λ² var + mean: the variance of the Poisson arrivals in a time with that variance.
pub(crate) fn counted(lambda: f64, var: f64, mean: f64) -> f64 {
    if lambda == 0.0 { 0.0 } else { lambda * var * lambda + mean }
}

/// The third moment if a distribution with this mean and variation can have it.
fn third_moment(mean: f64, scv: f64, third: f64) -> Result<f64> {
    let third = finite("third", third)?;
    // Cauchy and Schwarz: E[S²]² <= E[S] · E[S³]; equality (constant service) survives rounding.
    let least = (1.0 + scv) * (1.0 + scv) * mean * mean * mean;
    if third < least * (1.0 - 1e-12) {
        let expected = "at least E[S²]² / E[S] = (1 + scv)² · mean³";
        return Err(QueueError::OutOfRange { name: "third", value: third, expected });
    }
    if LARGEST_THIRD < third {
        let expected = "at most 1e200, or infinite";
        return Err(QueueError::OutOfRange { name: "third", value: third, expected });
    }
    Ok(third)
}

impl Queue for Mg1 {
    fn utilization(&self) -> f64 {
        self.rho
    }
    /// Infinite if the second moment is.
    fn l(&self) -> f64 {
        self.rho + self.lq()
    }
    /// Infinite if the second moment is.
    fn lq(&self) -> f64 {
        self.lambda * self.wq()
    }
    /// Infinite if the second moment is.
    fn w(&self) -> f64 {
        self.service.mean + self.wq()
    }
    /// Infinite if the second moment is, unless nothing arrives.
    fn wq(&self) -> f64 {
        if self.lambda == 0.0 {
            return 0.0;
        }
        if self.service.scv == f64::INFINITY {
            return f64::INFINITY; // rho may have underflowed to 0
        }
        self.rho / self.idle * self.service.mean * (1.0 + self.service.scv) / 2.0
    }
    fn p0(&self) -> f64 {
        self.idle
    }
    /// Only `n = 0`: two moments of the service time do not settle the rest.
    fn pn(&self, n: u64) -> Result<f64> {
        if n == 0 {
            return Ok(self.idle);
        }
        Err(QueueError::NoSolution {
            reason: format!(
                "the moments of the service time do not settle p_n beyond n = 0, got n = {n}"
            ),
        })
    }
    fn throughput(&self) -> f64 {
        self.lambda
    }
    fn p_wait(&self) -> f64 {
        self.rho
    }
}

/// Mean wait before service in an M/G/1 queue, by Pollaczek and Khinchine.
///
/// ```text
/// mg1_wq = lambda * mean * mean * (1 + cv^2) / (2 * (1 - lambda * mean))
/// ```
///
/// `lambda` is the arrival rate, `mean` the mean service time in the same unit of time, and `cv`
/// the coefficient of variation of the service time: standard deviation over mean, 0 for constant
/// and 1 for exponential service. The result is in that unit of time, and truly infinite if `cv` is
/// and anything arrives.
///
/// # Errors
///
/// [`QueueError::Unstable`] if `1 <= lambda * mean`; other [`QueueError`] unless `lambda` is from 0
/// and `mean` from 1e-50 to 1e50, and `cv` from 0 to 1e24 or infinite.
///
/// # Examples
///
/// ```
/// assert!((queueing::mg1::mg1_wq(4.0, 0.1, 1.0)? - 1.0 / 15.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 5.
pub fn mg1_wq(lambda: f64, mean: f64, cv: f64) -> Result<f64> {
    Mg1::from_cv(lambda, mean, cv).map(|q| q.wq())
}

/// The catalog entry of [`mg1_wq`].
#[cfg(feature = "catalog")]
pub const MG1_WQ: Metric = Metric {
    id: "mg1_wq",
    symbol: "W_q",
    name: text("Mean wait, M/G/1", "平均等待时间，M/G/1"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MEAN, CV],
    formula: Formula::Scalar {
        text: "lambda * mean * mean * (1 + cv^2) / (2 * (1 - lambda * mean))",
        eval: |x| shown(TIME, mg1_wq(x[0], x[1], x[2])),
        example: (&[4.0, 0.1, 1.0], 1.0 / 15.0),
    },
    path: "queueing::mg1::mg1_wq",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 5" },
    note: text(
        "Half of it is there even with constant service; the rest grows with cv².",
        "即使服务时间恒定，也有一半的等待；其余部分随 cv² 增长。",
    ),
    exported: &[],
};

/// Mean response time of an M/G/1 queue: wait plus service.
///
/// ```text
/// mg1_w = mean + lambda * mean * mean * (1 + cv^2) / (2 * (1 - lambda * mean))
/// ```
///
/// `lambda` is the arrival rate, `mean` the mean service time in the same unit of time, and `cv`
/// the coefficient of variation of the service time: standard deviation over mean, 0 for constant
/// and 1 for exponential service. The result is in that unit of time, and truly infinite if `cv` is
/// and anything arrives.
///
/// # Errors
///
/// [`QueueError::Unstable`] if `1 <= lambda * mean`; other [`QueueError`] unless `lambda` is from 0
/// and `mean` from 1e-50 to 1e50, and `cv` from 0 to 1e24 or infinite.
///
/// # Examples
///
/// ```
/// assert!((queueing::mg1::mg1_w(4.0, 0.1, 1.0)? - 1.0 / 6.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 5.
pub fn mg1_w(lambda: f64, mean: f64, cv: f64) -> Result<f64> {
    Mg1::from_cv(lambda, mean, cv).map(|q| q.w())
}

/// The catalog entry of [`mg1_w`].
#[cfg(feature = "catalog")]
pub const MG1_W: Metric = Metric {
    id: "mg1_w",
    symbol: "W",
    name: text("Mean response time, M/G/1", "平均响应时间，M/G/1"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, MEAN, CV],
    formula: Formula::Scalar {
        text: "mean + lambda * mean * mean * (1 + cv^2) / (2 * (1 - lambda * mean))",
        eval: |x| shown(TIME, mg1_w(x[0], x[1], x[2])),
        example: (&[4.0, 0.1, 1.0], 1.0 / 6.0),
    },
    path: "queueing::mg1::mg1_w",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 5" },
    note: text(
        "Two moments give the mean only; percentiles need the distribution.",
        "两个矩只能给出均值；百分位需要完整分布。",
    ),
    exported: &[],
};

/// Mean number of jobs that wait in an M/G/1 queue.
///
/// ```text
/// mg1_lq = lambda * (lambda * mean * mean * (1 + cv^2) / (2 * (1 - lambda * mean)))
/// ```
///
/// `lambda` is the arrival rate, `mean` the mean service time in the same unit of time, and `cv`
/// the coefficient of variation of the service time: standard deviation over mean, 0 for constant
/// and 1 for exponential service. Truly infinite if `cv` is and anything arrives.
///
/// # Errors
///
/// [`QueueError::Unstable`] if `1 <= lambda * mean`; other [`QueueError`] unless `lambda` is from 0
/// and `mean` from 1e-50 to 1e50, and `cv` from 0 to 1e24 or infinite.
///
/// # Examples
///
/// ```
/// assert!((queueing::mg1::mg1_lq(4.0, 0.1, 1.0)? - 4.0 / 15.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 5.
pub fn mg1_lq(lambda: f64, mean: f64, cv: f64) -> Result<f64> {
    Mg1::from_cv(lambda, mean, cv).map(|q| q.lq())
}

/// The catalog entry of [`mg1_lq`].
#[cfg(feature = "catalog")]
pub const MG1_LQ: Metric = Metric {
    id: "mg1_lq",
    symbol: "L_q",
    name: text("Jobs waiting, M/G/1", "平均排队任务数，M/G/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MEAN, CV],
    formula: Formula::Scalar {
        text: "lambda * (lambda * mean * mean * (1 + cv^2) / (2 * (1 - lambda * mean)))",
        eval: |x| shown(PURE, mg1_lq(x[0], x[1], x[2])),
        example: (&[4.0, 0.1, 1.0], 4.0 / 15.0),
    },
    path: "queueing::mg1::mg1_lq",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 5" },
    note: text(
        "Long answers among short ones raise it through cv, at the same ρ.",
        "长短回答混杂会通过 cv 抬高它，即使 ρ 不变。",
    ),
    exported: &[],
};

/// Mean number of jobs in an M/G/1 system, the one in service included.
///
/// ```text
/// mg1_l = lambda * (mean + lambda * mean * mean * (1 + cv^2) / (2 * (1 - lambda * mean)))
/// ```
///
/// `lambda` is the arrival rate, `mean` the mean service time in the same unit of time, and `cv`
/// the coefficient of variation of the service time: standard deviation over mean, 0 for constant
/// and 1 for exponential service. Truly infinite if `cv` is and anything arrives.
///
/// # Errors
///
/// [`QueueError::Unstable`] if `1 <= lambda * mean`; other [`QueueError`] unless `lambda` is from 0
/// and `mean` from 1e-50 to 1e50, and `cv` from 0 to 1e24 or infinite.
///
/// # Examples
///
/// ```
/// assert!((queueing::mg1::mg1_l(4.0, 0.1, 1.0)? - 2.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 5.
pub fn mg1_l(lambda: f64, mean: f64, cv: f64) -> Result<f64> {
    Mg1::from_cv(lambda, mean, cv).map(|q| q.l())
}

/// The catalog entry of [`mg1_l`].
#[cfg(feature = "catalog")]
pub const MG1_L: Metric = Metric {
    id: "mg1_l",
    symbol: "L",
    name: text("Jobs in the system, M/G/1", "系统内平均任务数，M/G/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MEAN, CV],
    formula: Formula::Scalar {
        text: "lambda * (mean + lambda * mean * mean * (1 + cv^2) / (2 * (1 - lambda * mean)))",
        eval: |x| shown(PURE, mg1_l(x[0], x[1], x[2])),
        example: (&[4.0, 0.1, 1.0], 2.0 / 3.0),
    },
    path: "queueing::mg1::mg1_l",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 5" },
    note: text(
        "One server: a batch of many running requests is no M/G/1.",
        "只有一个服务台：同时运行多个请求的批处理不是 M/G/1。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&MG1_WQ, &MG1_W, &MG1_LQ, &MG1_L];
