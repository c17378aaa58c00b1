//! M/G/1 with priority classes, first come first served within a class.

use crate::error::{QueueError, Result};
use crate::exact::Twice;
use crate::mg1::{Mg1, ServiceMoments};

/// What happens to the job in service when one of a higher class arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discipline {
    /// It is served to its end.
    NonPreemptive,
    /// It is interrupted, and goes on later where it was.
    PreemptiveResume,
}

/// Arrivals and service of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriorityClass {
    /// Arrival rate.
    pub lambda: f64,
    /// Service time.
    pub service: ServiceMoments,
}

/// Long-run means of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassMeans {
    /// Arriving work of this class per unit of time.
    pub rho: f64,
    /// Mean wait: response less service, so that interruptions count.
    pub wq: f64,
    /// Mean response time.
    pub w: f64,
    /// Mean number that waits or is interrupted.
    pub lq: f64,
    /// Mean number in the system.
    pub l: f64,
}

/// An M/G/1 queue whose classes have priorities, the first the highest.
///
/// # Examples
///
/// ```
/// use queueing::{Mg1Priority, ServiceMoments, mg1_priority::{Discipline, PriorityClass}};
///
/// let class = |lambda| PriorityClass { lambda, service: ServiceMoments::exp(1.0) };
/// let queue = Mg1Priority::new(&[class(0.2), class(0.6)])?;
/// let means = queue.means(Discipline::NonPreemptive)?;
/// assert!((means[0].w - 2.0).abs() < 1e-12 && (means[1].w - 6.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Cobham, *Priority assignment in waiting line problems*, 1954; Gross, Shortle, Thompson
/// and Harris 2008, ch. 3.
#[derive(Clone, Debug, PartialEq)]
pub struct Mg1Priority {
    classes: Vec<PriorityClass>,
    /// 1 − Σ λ E[S] over the classes up to each, rounded once.
    idle: Vec<f64>,
    /// Σ λ E[S²] / 2 over the classes up to each.
    residual: Vec<f64>,
}

impl Mg1Priority {
    /// The queue with these classes, the highest priority first.
    ///
    /// Lower classes may bring more work than the server can do: with preemption the higher ones
    /// do not notice, and [`class`](Self::class) still answers for them.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if there is no class, or one is not as [`Mg1::new`] wants it.
    pub fn new(classes: &[PriorityClass]) -> Result<Self> {
        if classes.is_empty() {
            let reason = "classes must hold at least one class, got none";
            return Err(QueueError::NoSolution { reason: reason.into() });
        }
        let (mut left, mut work) = (Twice::of(1.0), 0.0);
        let (mut idle, mut residual) = (Vec::new(), Vec::new());
        for class in classes {
            // One class alone may be too much; its moments are checked as those of a quiet queue.
            Mg1::new(0.0, class.service)?;
            let lambda = crate::error::zero_or_more("lambda", class.lambda)?;
            let ServiceMoments { mean, scv, .. } = class.service;
            left = left.plus(Twice::product(-lambda, mean));
            if 0.0 < lambda {
                work += if scv == f64::INFINITY {
                    f64::INFINITY
                } else {
                    0.5 * lambda * mean * mean * (1.0 + scv)
                };
            }
            idle.push(left.value());
            residual.push(work);
        }
        Ok(Self { classes: classes.to_vec(), idle, residual })
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Means of class `k`, counted from 0.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] with the work that counts for this class if that is 1 or more: the
    /// work of all classes without preemption, since the lowest would keep the server busy; that
    /// of the classes up to `k` with it. [`QueueError::NoSolution`] if there is no such class.
    pub fn class(&self, discipline: Discipline, k: usize) -> Result<ClassMeans> {
        let Some(class) = self.classes.get(k) else {
            let reason =
                format!("k must be below the number of classes {}, got {k}", self.classes());
            return Err(QueueError::NoSolution { reason });
        };
        let last = match discipline {
            Discipline::NonPreemptive => self.classes.len() - 1,
            Discipline::PreemptiveResume => k,
        };
        if self.idle[last] <= 0.0 {
            return Err(QueueError::Unstable { rho: 1.0 - self.idle[last] });
        }
        let above = if k == 0 { 1.0 } else { self.idle[k - 1] };
        let mean = class.service.mean;
        let behind = self.residual[last] / above / self.idle[k];
        let wq = match discipline {
            Discipline::NonPreemptive => behind,
            // The service itself is stretched by the interruptions.
            Discipline::PreemptiveResume => behind + mean * ((1.0 - above) / above),
        };
        let lambda = class.lambda + 0.0;
        let (w, count) = (wq + mean, |t: f64| if lambda == 0.0 { 0.0 } else { lambda * t });
        Ok(ClassMeans { rho: lambda * mean, wq, w, lq: count(wq), l: count(w) })
    }

    /// Means of every class, the highest priority first.
    ///
    /// # Errors
    ///
    /// As [`class`](Self::class), for the first class that has none.
    pub fn means(&self, discipline: Discipline) -> Result<Vec<ClassMeans>> {
        (0..self.classes.len()).map(|k| self.class(discipline, k)).collect()
    }
}
