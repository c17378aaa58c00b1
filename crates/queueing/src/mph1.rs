//! M/PH/1: Poisson arrivals and phase-type service, one server, first come first served, with the
//! distributions of wait and response.
//!
//! Both are phase-type themselves. Their tails are sums of Poisson probabilities times the mass
//! left after k jumps (uniformization): all terms are positive. The masses soon fall by the same
//! factor from one to the next, which carries the sum to any time.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "indices come from whole numbers that were checked to be below 10^8"
)]

use crate::error::{QueueError, Result, finite, not_negative, positive, probability, zero_or_more};
use crate::mg1::{Mg1, ServiceMoments};
use crate::model::{Queue, WaitDistribution};
use crate::tail::{JUMPS, Tail};

/// Most phases of a service time.
pub const MAX_PHASES: usize = 32;

/// A service time that passes through phases, each exponential.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseType {
    /// Probability to start in each phase.
    start: Vec<f64>,
    /// Rates from phase to phase; the diagonal is 0.
    rates: Vec<Vec<f64>>,
    /// Rates from each phase to the end.
    exit: Vec<f64>,
    /// Mean time spent in each phase.
    times: Vec<f64>,
}

impl PhaseType {
    /// A service time from the probabilities to start in each phase, the rates from phase to phase
    /// (the diagonal does not count), and those from each phase to the end.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless there are from 1 to 32 phases, the starts are probabilities that add
    /// up to 1 within 1e-12, the rates are from 0 to 1e50, and every phase leads to the end.
    ///
    /// # Examples
    ///
    /// ```
    /// use queueing::mph1::PhaseType;
    ///
    /// // One step of rate 4, after which half of the jobs need another of rate 2.
    /// let law = PhaseType::new(&[1.0, 0.0], &[&[0.0, 2.0], &[0.0, 0.0]], &[2.0, 2.0])?;
    /// assert!((law.mean() - 0.5).abs() < 1e-15);
    /// # Ok::<(), queueing::QueueError>(())
    /// ```
    pub fn new(start: &[f64], rates: &[&[f64]], exit: &[f64]) -> Result<Self> {
        let n = start.len();
        if n < 1 || MAX_PHASES < n || rates.len() != n || exit.len() != n {
            let reason = format!(
                "start, rates and exit must have the same 1 to {MAX_PHASES} phases, got {n}, {} and {}",
                rates.len(),
                exit.len()
            );
            return Err(QueueError::NoSolution { reason });
        }
        let mut total = 0.0;
        for &p in start {
            total += probability("start", p)?;
        }
        if 1e-12 < f64::abs(total - 1.0) {
            let expected = "probabilities that add up to 1";
            return Err(QueueError::OutOfRange { name: "start", value: total, expected });
        }
        let mut square = Vec::with_capacity(n);
        for (i, row) in rates.iter().enumerate() {
            if row.len() != n {
                let reason = format!("rates must have {n} columns, got {}", row.len());
                return Err(QueueError::NoSolution { reason });
            }
            let mut checked = Vec::with_capacity(n);
            for (j, &rate) in row.iter().enumerate() {
                let rate = zero_or_more("rates", rate)?;
                checked.push(if i == j { 0.0 } else { rate });
            }
            square.push(checked);
        }
        let mut leave = Vec::with_capacity(n);
        for &rate in exit {
            leave.push(zero_or_more("exit", rate)?);
        }
        let times = times(start.to_vec(), square.clone(), leave.clone())?;
        let law = Self { start: start.to_vec(), rates: square, exit: leave, times };
        positive("mean", law.mean())?;
        Ok(law)
    }

    /// Exponential with one of several rates, each with its probability.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn hyperexponential(branches: &[(f64, f64)]) -> Result<Self> {
        let n = branches.len();
        let none = vec![0.0; n];
        let rows: Vec<&[f64]> = (0..n).map(|_| none.as_slice()).collect();
        let start: Vec<f64> = branches.iter().map(|&(p, _)| p).collect();
        let exit: Vec<f64> = branches.iter().map(|&(_, rate)| rate).collect();
        Self::new(&start, &rows, &exit)
    }

    /// The sum of `k` exponential stages alike, with this mean.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `mean` is from 1e-50 to 1e50 and `k` from 1 to 32.
    pub fn erlang(mean: f64, k: u64) -> Result<Self> {
        let rate = k as f64 / positive("mean", mean)?;
        if k < 1 || (MAX_PHASES as u64) < k {
            let (value, expected) = (k as f64, "a whole number from 1 to 32");
            return Err(QueueError::OutOfRange { name: "k", value, expected });
        }
        let n = k as usize;
        let unit = |at: usize, value: f64| -> Vec<f64> {
            (0..n).map(|j| if j == at { value } else { 0.0 }).collect()
        };
        let rows: Vec<Vec<f64>> = (0..n).map(|i| unit(i + 1, rate)).collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        Self::new(&unit(0, 1.0), &rows, &unit(n - 1, rate))
    }

    /// Mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.times.iter().sum()
    }

    /// Mean time in all phases from each one on, weighted: E\[S²\] / 2 and E\[S³\] / 6 follow.
    fn moments(&self) -> Result<ServiceMoments> {
        let mean = self.mean();
        let again =
            |weights: &[f64]| times(weights.to_vec(), self.rates.clone(), self.exit.clone());
        let second = again(&self.times)?;
        let third = again(&second)?;
        let half: f64 = second.iter().sum();
        let sixth: f64 = third.iter().sum();
        let scv = (2.0 * half / mean / mean - 1.0).max(0.0);
        Ok(ServiceMoments { mean, scv, third: Some(6.0 * sixth) })
    }
}

/// Mean times in each phase from starting weights, by elimination without subtraction.
fn times(mut start: Vec<f64>, mut rates: Vec<Vec<f64>>, mut exit: Vec<f64>) -> Result<Vec<f64>> {
    let n = start.len();
    let mut out = vec![0.0; n];
    for k in (0..n).rev() {
        let leave = exit[k] + rates[k][..k].iter().sum::<f64>();
        if leave <= 0.0 {
            let reason = format!("every phase must lead to the end, got one that does not: {k}");
            return Err(QueueError::NoSolution { reason });
        }
        out[k] = leave;
        let row = rates[k].clone();
        for i in 0..k {
            let share = rates[i][k] / leave;
            for j in 0..k {
                if i != j {
                    rates[i][j] += share * row[j];
                }
            }
            exit[i] += share * exit[k];
            start[i] += start[k] / leave * row[i];
        }
    }
    let mut times = vec![0.0; n];
    for k in 0..n {
        let into: f64 = (0..k).map(|i| times[i] * rates[i][k]).sum();
        times[k] = (start[k] + into) / out[k];
    }
    Ok(times)
}

/// The tail from the starting mass (what is missing to 1 is gone at once), the rates between phases
/// and to the end.
fn phases(start: Vec<f64>, at_once: f64, rates: &[Vec<f64>], exit: &[f64]) -> Result<Tail> {
    let n = start.len();
    let out: Vec<f64> = (0..n).map(|i| exit[i] + rates[i].iter().sum::<f64>()).collect();
    let clock = out.iter().copied().fold(0.0, f64::max);
    let begin = (start.iter().sum(), at_once);
    let mut mass = start;
    Tail::of_jumps(clock, begin, 0.0, JUMPS, || {
        let mut next = vec![0.0; n];
        let mut absorbed = 0.0;
        for i in 0..n {
            let share = mass[i] / clock;
            next[i] += mass[i] * ((clock - out[i]) / clock);
            for j in 0..n {
                next[j] += share * rates[i][j];
            }
            absorbed += share * exit[i];
        }
        mass = next;
        (mass.iter().sum(), absorbed)
    })
}

/// An M/PH/1 queue that keeps up with its arrivals.
///
/// # Examples
///
/// ```
/// use queueing::{MPh1, Queue, WaitDistribution, mph1::PhaseType};
///
/// // Nine short jobs to one long: the P99 of the wait is that of the long ones.
/// let law = PhaseType::hyperexponential(&[(0.9, 2.0), (0.1, 0.2)])?;
/// let queue = MPh1::new(0.75, law)?;
/// assert!(queue.wq_quantile(0.99)? > 5.0 * queue.wq());
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Neuts, *Matrix-Geometric Solutions in Stochastic Models*, 1981, ch. 3.
#[derive(Clone, Debug, PartialEq)]
pub struct MPh1 {
    queue: Mg1,
    wait: Tail,
    response: Tail,
}

impl MPh1 {
    /// The queue with arrival rate `lambda` and this law of its service time.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if `1 <= lambda * mean`; other [`QueueError`] unless `lambda` is
    /// from 0 to 1e50; [`QueueError::NotConverged`] where phases differ by so many orders of
    /// magnitude that the tails do not settle within 200 000 jumps.
    pub fn new(lambda: f64, law: PhaseType) -> Result<Self> {
        let queue = Mg1::new(lambda, law.moments()?)?;
        let (rho, idle) = (queue.utilization(), queue.p0());
        let PhaseType { start, rates, exit, times } = law;
        let n = start.len();
        let mean: f64 = times.iter().sum();
        // What is left of the service in progress starts in phases by the time spent there.
        let rest: Vec<f64> =
            times.iter().map(|t| finite("times", t / mean)).collect::<Result<_>>()?;
        let mut waiting = rates.clone();
        let mut ends = vec![0.0; n];
        for i in 0..n {
            // At its end another one is ahead with probability ρ.
            for j in 0..n {
                waiting[i][j] += rho * exit[i] * rest[j];
            }
            ends[i] = idle * exit[i];
        }
        let late: Vec<f64> = rest.iter().map(|p| rho * p).collect();
        let wait = phases(late.clone(), idle, &waiting, &ends)?;
        // The response goes on with the own service.
        let mut both = vec![vec![0.0; 2 * n]; 2 * n];
        let mut leave = vec![0.0; 2 * n];
        for i in 0..n {
            both[i][..n].copy_from_slice(&waiting[i]);
            both[n + i][n..].copy_from_slice(&rates[i]);
            for j in 0..n {
                both[i][n + j] = ends[i] * start[j];
            }
            leave[n + i] = exit[i];
        }
        let begin = late.into_iter().chain(start.iter().map(|p| idle * p)).collect();
        let response = phases(begin, 0.0, &both, &leave)?;
        Ok(Self { queue, wait, response })
    }

    /// Variance of the wait.
    #[must_use]
    pub fn var_wq(&self) -> f64 {
        self.queue.var_wq().unwrap_or(f64::INFINITY)
    }

    /// Variance of the response time.
    #[must_use]
    pub fn var_w(&self) -> f64 {
        self.queue.var_w().unwrap_or(f64::INFINITY)
    }

    /// Variance of the number in the system.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        self.queue.var_n().unwrap_or(f64::INFINITY)
    }

    /// Variance of the number that wait.
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        self.queue.var_nq().unwrap_or(f64::INFINITY)
    }

    /// Mean wait of the jobs that wait.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        self.queue.wq_given_wait()
    }
}

impl Queue for MPh1 {
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
    /// Only `n = 0` so far.
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

impl WaitDistribution for MPh1 {
    fn wq_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.wait.late(t).1)
    }
    fn wq_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.wait.late(t).0)
    }
    fn wq_quantile(&self, p: f64) -> Result<f64> {
        self.wait.quantile(p)
    }
    fn w_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.response.late(t).1)
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.response.late(t).0)
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        self.response.quantile(p)
    }
}
