//! What every queue answers: the two traits that the models share.

use crate::error::Result;

/// The long-run means and probabilities of a queue.
///
/// Rates are per the caller's one unit of time and times are in that unit. A model is checked when
/// it is made, so that its means need no [`Result`]. Where jobs can be turned away, `w` and `wq`
/// are those of the jobs let in, and [`throughput`](Queue::throughput) is their rate.
pub trait Queue {
    /// Mean share of the servers that are busy, from 0 to 1.
    fn utilization(&self) -> f64;
    /// Mean number of jobs in the system, those in service included.
    fn l(&self) -> f64;
    /// Mean number of jobs that wait.
    fn lq(&self) -> f64;
    /// Mean response time: wait plus service.
    fn w(&self) -> f64;
    /// Mean wait before service, over all jobs, those that do not wait included.
    fn wq(&self) -> f64;
    /// Probability that the system is empty.
    fn p0(&self) -> f64;
    /// Probability that `n` jobs are in the system; 0 where the true value is below what `f64`
    /// holds.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSolution`](crate::QueueError::NoSolution) if what the model knows of its
    /// service times does not settle it.
    fn pn(&self, n: u64) -> Result<f64>;
    /// Rate at which jobs leave served.
    fn throughput(&self) -> f64;
    /// Probability that an arriving job has to wait.
    fn p_wait(&self) -> f64;
}

/// The distribution of the wait and of the response time, first come first served.
///
/// A time `t` may be any finite number from 0 on, a probability `p` any from 0 to 1. The survival
/// function (`sf`) is computed on its own: in the tail, 1 − cdf has no digits left. The quantile
/// at `p = 1` is truly infinite, unless nobody waits.
///
/// # Errors
///
/// Every method: [`QueueError`](crate::QueueError) if `t` or `p` is not such a number.
pub trait WaitDistribution {
    /// Probability that the wait is at most `t`.
    ///
    /// # Errors
    ///
    /// As for the trait.
    fn wq_cdf(&self, t: f64) -> Result<f64>;
    /// Probability that the wait is longer than `t`.
    ///
    /// # Errors
    ///
    /// As for the trait.
    fn wq_sf(&self, t: f64) -> Result<f64>;
    /// Shortest time within which the wait ends with probability at least `p`: 0 if at least that
    /// share of the jobs does not wait.
    ///
    /// # Errors
    ///
    /// As for the trait.
    fn wq_quantile(&self, p: f64) -> Result<f64>;
    /// Probability that the response time is at most `t`.
    ///
    /// # Errors
    ///
    /// As for the trait.
    fn w_cdf(&self, t: f64) -> Result<f64>;
    /// Probability that the response time is longer than `t`.
    ///
    /// # Errors
    ///
    /// As for the trait.
    fn w_sf(&self, t: f64) -> Result<f64>;
    /// Shortest time within which the response comes with probability at least `p`.
    ///
    /// # Errors
    ///
    /// As for the trait; [`QueueError::NotConverged`](crate::QueueError::NotConverged) where it is
    /// found by iteration.
    fn w_quantile(&self, p: f64) -> Result<f64>;
}
