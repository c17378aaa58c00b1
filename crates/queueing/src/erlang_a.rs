//! Erlang A (M/M/c+M): as M/M/c, and who waits leaves after an exponential patience.
//!
//! With x = c μ / θ and y = λ / θ, the states from c on have the probabilities
//! y^j / ((x + 1) … (x + j)) of state c, whose sum A(x, y) is an incomplete gamma function. The
//! wait that an arrival of endless patience would have exceeds t with probability
//! `p_c e^(y − y' − c μ t) A(x, y')`, y' = y e^(−θ t), so that no sum over states is needed.
//!
//! Source of all: Palm 1957; Garnett, Mandelbaum and Reiman, *Designing a Call Center with Impatient
//! Customers*, Manufacturing & Service Operations Management 4, 2002; Baccelli and Hebuterne 1981.

use crate::error::{
    QueueError, Result, not_negative, positive, probability, servers, zero_or_more,
};
use crate::inverse::{Inverse, rising_tail};
use crate::model::{Queue, WaitDistribution};
use crate::numeric::{below_full, deviance, poisson, quantile, stirling_error};
use crate::quadrature::log_concave;

/// An M/M/c queue whose waiting jobs leave at the rate θ each.
///
/// Any load is stable, since a longer queue loses more. `w` and `wq` are means over all arrivals,
/// those that leave unserved included, so that Little's law holds with λ.
///
/// # Examples
///
/// ```
/// use queueing::{ErlangA, Queue};
///
/// // As patient as a service is long: the number in the system is that of M/M/∞.
/// let queue = ErlangA::new(3.0, 1.0, 2, 1.0)?;
/// assert!((queue.l() - 3.0).abs() < 1e-14);
/// assert!((queue.p_abandon() - queue.lq() / 3.0).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErlangA {
    lambda: f64,
    mu: f64,
    c: f64,
    servers: u64,
    theta: f64,
    /// A(x, y) = front · e^power.
    tail: (f64, f64),
    p_wait: f64,
    no_wait: f64,
    /// Probability of exactly c jobs.
    at_c: f64,
    lq: f64,
    busy: f64,
}

impl ErlangA {
    /// The queue with arrival rate `lambda`, service rate `mu` of each of `c` servers, and rate
    /// `theta` at which a waiting job leaves: its mean patience is 1 / θ.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `lambda` is from 0 and `mu` and `theta` from 1e-50 to 1e50 and `c` from 1
    /// to 10^9; [`QueueError::NoSolution`] for a patience longer than 10^15 services of the whole
    /// system at a load within 1e-5 below 1, where the queue is neither M/M/c nor overloaded.
    pub fn new(lambda: f64, mu: f64, c: u64, theta: f64) -> Result<Self> {
        let (lambda, mu) = (zero_or_more("lambda", lambda)?, positive("mu", mu)?);
        let (servers, theta) = (servers("c", c)?, positive("theta", theta)?);
        let mut queue = Self {
            lambda,
            mu,
            c: servers,
            servers: c,
            theta,
            tail: (1.0, 0.0),
            p_wait: 0.0,
            no_wait: 1.0,
            at_c: 0.0,
            lq: 0.0,
            busy: 0.0,
        };
        let a = lambda / mu;
        if 0.0 < a {
            queue.fill(a)?;
        }
        Ok(queue)
    }

    fn fill(&mut self, a: f64) -> Result<()> {
        let capacity = self.c * self.mu;
        let (x, y) = (capacity / self.theta, self.lambda / self.theta);
        let spare = self.c.mul_add(self.mu, -self.lambda);
        if 1e15 < x && 0.0 < spare && spare < 1e-5 * capacity {
            let reason = format!(
                "theta must be at least 1e-15 of c mu at a load within 1e-5 of 1, got {}",
                self.theta
            );
            return Err(QueueError::NoSolution { reason });
        }
        self.tail = rising_tail(x, y);
        let (front, power) = self.tail;
        let inverse = Inverse::new(self.c, a);
        // b times the states below c, and from it on, over the probability of c jobs.
        let b = inverse.scaled_down(1.0);
        let fewer = match inverse {
            Inverse::Excess(excess) => excess * b,
            _ => 1.0 - b,
        };
        let (fewer, one) = (fewer * (-power).exp(), b * (-power).exp());
        let full = b * front;
        let all = fewer + full;
        (self.p_wait, self.no_wait, self.at_c) = (full / all, fewer / all, one / all);
        // Mean number beyond c: x + (y − x) A in the same unit, which cancels below ρ = 1.
        let over = -spare / self.theta;
        let closed = x * self.at_c + over * self.p_wait;
        self.lq = if spare <= 0.0 || 1e-3 * x * self.at_c < closed {
            closed
        } else {
            self.at_c * place_moments(x, y).0
        };
        let abandoning = self.theta * self.lq;
        self.busy = if abandoning < 0.5 * self.lambda {
            (self.lambda - abandoning) / self.mu
        } else {
            // Fewer than half are served: all servers where the queue is full, and the arrivals
            // of the states before, one state on.
            self.c * self.p_wait + (a * self.no_wait - self.c * self.at_c).max(0.0)
        };
        Ok(())
    }

    /// Arrival rate.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Service rate of one server.
    #[must_use]
    pub fn mu(&self) -> f64 {
        self.mu
    }

    /// Number of servers.
    #[must_use]
    pub fn c(&self) -> u64 {
        self.servers
    }

    /// Rate at which a waiting job leaves.
    #[must_use]
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// Share of the arrivals that leave unserved.
    #[must_use]
    pub fn p_abandon(&self) -> f64 {
        if self.lq == 0.0 { 0.0 } else { (self.theta * self.lq / self.lambda).min(1.0) }
    }

    /// Mean time in the queue of the arrivals that do wait, whether they are served or leave.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        if self.p_wait == 0.0 { 0.0 } else { self.wq() / self.p_wait }
    }

    /// Variance of the number that wait.
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        if self.lq == 0.0 {
            return 0.0;
        }
        let (x, y) = (self.c * self.mu / self.theta, self.lambda / self.theta);
        // (x + j) π_j = y π_(j − 1), times j: E[Lq²] = (y − x) Lq + y P(wait), which cancels where
        // patience is long; the sum over the states then.
        let closed = (y - x) * self.lq + y * self.p_wait;
        let square =
            if 1e-3 * x * self.lq < closed { closed } else { self.at_c * place_moments(x, y).1 };
        (square - self.lq * self.lq).max(0.0)
    }

    /// Variance of the number in the system.
    ///
    /// From the balance of the mean of N²; beyond full load terms of the size of λ / μ cancel.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        let a = self.lambda / self.mu;
        let idle = self.c - self.busy;
        let leaving = self.theta / self.mu * (idle - 1.0);
        // With short patience hardly anybody waits, and the number is nearly Poisson.
        (self.busy + self.var_nq() + self.lq * (2.0 * idle - leaving) - a * self.p_wait).max(0.0)
    }

    /// P(offered wait > t).
    fn offered(&self, t: f64) -> f64 {
        if self.p_wait == 0.0 {
            return 0.0;
        }
        let (x, y) = (self.c * self.mu / self.theta, self.lambda / self.theta);
        let gone = -(-self.theta * t).exp_m1();
        let (front, power) = rising_tail(x, y * (1.0 - gone));
        let exponent = y * gone - self.c * self.mu * t + (power - self.tail.1);
        (self.p_wait * (front / self.tail.0) * exponent.exp()).min(1.0)
    }

    /// Probability that a job of endless patience would wait longer than `t`.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if `t` is negative or not finite.
    pub fn offered_wait_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.offered(t))
    }

    /// Least time within which a share `p` of jobs of endless patience would be served.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if `p` is not from 0 to 1.
    pub fn offered_wait_quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        let scale = 1.0 / (self.c * self.mu);
        if self.p_wait == 0.0 {
            return Ok(0.0);
        }
        let sf = |t| self.offered(t);
        quantile("offered_wait_quantile", p, self.no_wait, scale, |t| 1.0 - sf(t), sf)
    }

    fn queued(&self, t: f64) -> f64 {
        self.offered(t) * (-self.theta * t).exp()
    }

    /// Density of the offered wait at `u`, as its logarithm: c μ `p_c` e^(y (1 − e^(−θ u)) − c μ u).
    fn ln_density(&self, u: f64) -> f64 {
        let (front, power) = self.tail;
        let capacity = self.c * self.mu;
        let gone = -(-self.theta * u).exp_m1();
        // p_c = P(wait) / A(x, y); its power may be beyond what f64 holds, the sum is not.
        (capacity * (self.p_wait / front)).ln()
            + (self.lambda / self.theta * gone - power - capacity * u)
    }

    /// P(in service at `t` after a wait), or with `ended` P(served by `t` after a wait).
    fn served(&self, t: f64, ended: bool) -> f64 {
        if self.p_wait == 0.0 {
            return 0.0;
        }
        let ln_part = |u: f64| {
            let rest = self.mu * (t - u).max(0.0);
            let service = if ended { (-(-rest).exp_m1()).ln() } else { -rest };
            self.ln_density(u) - self.theta * u + service
        };
        // Where the density's slope meets the others: λ e^(−θ u) = c μ + θ − μ.
        let slope = (self.c - 1.0).mul_add(self.mu, self.theta);
        let peak =
            if ended { peak_of(t, ln_part) } else { (self.lambda / slope).ln() / self.theta };
        log_concave(t, if peak.is_nan() { 0.0 } else { peak }, ln_part)
    }

    fn response_late(&self, t: f64) -> f64 {
        let own = self.no_wait * (-self.mu * t).exp();
        (own + self.queued(t) + self.served(t, false)).min(1.0)
    }

    fn response_early(&self, t: f64) -> f64 {
        let late = self.response_late(t);
        if late < 0.9 {
            return 1.0 - late;
        }
        // Served without a wait, left the queue, or served after a wait: all positive.
        let own = self.no_wait * -(-self.mu * t).exp_m1();
        let leaving = log_concave(t, 0.0, |u| (self.theta * self.offered(u)).ln() - self.theta * u);
        (own + leaving + self.served(t, true)).min(1.0)
    }

    /// Share of the arrivals that begin to be served within `t`: what call centres name the service
    /// level, with those that leave counted as missed.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if `t` is negative or not finite.
    ///
    /// # Examples
    ///
    /// ```
    /// use queueing::ErlangA;
    ///
    /// let queue = ErlangA::new(10.0, 1.0, 10, 0.5)?;
    /// assert!((queue.served_within(1e3)? - (1.0 - queue.p_abandon())).abs() < 1e-13);
    /// # Ok::<(), queueing::QueueError>(())
    /// ```
    pub fn served_within(&self, t: f64) -> Result<f64> {
        let t = not_negative("t", t)?;
        if self.p_wait == 0.0 {
            return Ok(1.0);
        }
        let slope = self.c.mul_add(self.mu, self.theta);
        let peak = (self.lambda / slope).ln() / self.theta;
        let peak = if peak.is_nan() { 0.0 } else { peak };
        let waited = log_concave(t, peak, |u| self.ln_density(u) - self.theta * u);
        Ok((self.no_wait + waited).min(1.0))
    }
}

/// Where a concave function on 0 to `t` is largest, by thirds.
fn peak_of(t: f64, ln_f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, t);
    for _ in 0..80 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if ln_f(a) < ln_f(b) { low = a } else { high = b }
    }
    0.5 * (low + high)
}

/// Wait and response of all arrivals: who leaves ends both by leaving.
impl WaitDistribution for ErlangA {
    fn wq_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.queued(t))
    }
    fn wq_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| 1.0 - self.queued(t))
    }
    fn wq_quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        if self.p_wait == 0.0 {
            return Ok(0.0);
        }
        let scale = 1.0 / (self.c * self.mu);
        let sf = |t| self.queued(t);
        quantile("wq_quantile", p, self.no_wait, scale, |t| 1.0 - sf(t), sf)
    }
    fn w_cdf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.response_early(t))
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.response_late(t))
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        let scale = Queue::w(self).max(f64::MIN_POSITIVE);
        quantile("w_quantile", p, 0.0, scale, |t| self.response_early(t), |t| self.response_late(t))
    }
}

/// Σ j y^j / ((x + 1) … (x + j)) and Σ j² …, term by term, for y below x.
fn place_moments(x: f64, y: f64) -> (f64, f64) {
    let (mut sum, mut squares, mut term, mut j) = (0.0, 0.0, 1.0, 0.0);
    loop {
        j += 1.0;
        term *= y / (x + j);
        let part = j * term;
        sum += part;
        squares += j * part;
        if j * part <= 1e-17 * squares {
            return (sum, squares);
        }
    }
}

impl Queue for ErlangA {
    fn utilization(&self) -> f64 {
        (self.busy / self.c).min(1.0)
    }
    fn l(&self) -> f64 {
        self.lq + self.busy
    }
    fn lq(&self) -> f64 {
        self.lq
    }
    /// Mean time in the system over all arrivals.
    fn w(&self) -> f64 {
        if self.lambda == 0.0 { 1.0 / self.mu } else { self.wq() + self.busy / self.lambda }
    }
    /// Mean time in the queue over all arrivals.
    fn wq(&self) -> f64 {
        if self.lq == 0.0 { 0.0 } else { self.lq / self.lambda }
    }
    fn p0(&self) -> f64 {
        if self.lambda == 0.0 { 1.0 } else { self.fewer(0.0) }
    }
    fn pn(&self, n: u64) -> Result<f64> {
        if self.lambda == 0.0 {
            return Ok(if n == 0 { 1.0 } else { 0.0 });
        }
        if n < self.servers {
            return Ok(self.fewer(n as f64));
        }
        let j = (n - self.servers) as f64;
        let (x, y) = (self.c * self.mu / self.theta, self.lambda / self.theta);
        if 0.0 < self.tail.1 {
            // Far beyond full load the law is Poisson around y, and that of c jobs may be 0 here.
            return Ok(if x + j < 16.0 { 0.0 } else { self.p_wait * poisson(x + j, y) });
        }
        Ok(self.at_c * rising_term(x, y, j))
    }
    fn throughput(&self) -> f64 {
        self.mu * self.busy
    }
    fn p_wait(&self) -> f64 {
        self.p_wait
    }
}

impl ErlangA {
    /// Probability of `n` jobs, fewer than c.
    fn fewer(&self, n: f64) -> f64 {
        let capacity = self.c * self.mu;
        let (rho, idle) =
            (self.lambda / capacity, self.c.mul_add(self.mu, -self.lambda) / capacity);
        below_full(n, self.c, self.lambda / self.mu, rho, idle, self.at_c, self.p_wait)
    }
}

/// y^j / ((x + 1) … (x + j)).
fn rising_term(x: f64, y: f64, j: f64) -> f64 {
    let (mut term, mut i) = (1.0, 0.0);
    while i < j && (i < 64.0 || x + i < 64.0) && 0.0 < term {
        i += 1.0;
        term *= y / (x + i);
    }
    if j <= i || term == 0.0 {
        return term;
    }
    // The rest by Stirling's formula: Γ(x + i + 1) / Γ(x + j + 1) · y^(j − i).
    let (from, to) = (x + i, x + j);
    let ln = deviance(from, y) - deviance(to, y) + 0.5 * (from / to).ln() + stirling_error(from)
        - stirling_error(to);
    term * ln.exp()
}
