//! M/D/c: Poisson arrivals, constant service, c servers, first come first served. Exact, with the
//! distribution.
//!
//! From one service time to the next all that were in service leave, and Poisson(a) arrive: what
//! waits is the maximum of a random walk (see `walk.rs`), and the wait follows from it by Franx's
//! sum of positive terms, here for the survival function as well.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "indices come from whole numbers that were checked to be below 10^8"
)]

use crate::error::{QueueError, Result, not_negative, positive, probability, zero_or_more};
use crate::model::{Queue, WaitDistribution};
use crate::numeric::poisson;
use crate::search::root;
use crate::walk::Walk;

/// Most servers that [`Mdc`] takes: its cost grows with them, to some 0.1 s here.
pub const MAX_SERVERS: u64 = 20_000;

/// An M/D/c queue that keeps up with its arrivals.
///
/// # Examples
///
/// ```
/// use queueing::{Mdc, Queue, WaitDistribution};
///
/// let one = Mdc::new(0.5, 1.0, 1)?;
/// assert!((one.wq() - 0.5).abs() < 1e-13); // ρ / (2 (1 − ρ)) services
/// let ten = Mdc::new(9.0, 1.0, 10)?;
/// assert!((ten.wq_cdf(0.0)? - 0.353_138_716_067_592_3).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Franx, *A simple solution for the M/D/c waiting time distribution*, Operations Research
/// Letters 29, 2001; Crommelin, *Delay probability formulae*, 1932.
#[derive(Clone, Debug, PartialEq)]
pub struct Mdc {
    lambda: f64,
    service: f64,
    c: f64,
    rho: f64,
    idle: f64,
    lq: f64,
    var_nq: f64,
    p_wait: f64,
    no_wait: f64,
    /// `None` without arrivals.
    waiting: Option<Waiting>,
}

/// The law of the number that wait.
#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    walk: Walk,
    /// P(Lq = m), up to where it is geometric.
    q: Vec<f64>,
    /// P(Lq <= m).
    at_most: Vec<f64>,
    /// P(Lq > m).
    beyond: Vec<f64>,
}

impl Waiting {
    fn new(walk: Walk, none: f64) -> Self {
        let mut q = walk.ratios(walk.settles());
        let mut sum = 0.0;
        let mut at_most = Vec::with_capacity(q.len());
        for p in &mut q {
            *p *= none;
            sum += *p;
            at_most.push(sum);
        }
        let mut rest = q.last().copied().unwrap_or(0.0) * walk.r / walk.idle();
        let mut beyond = vec![0.0; q.len()];
        for (tail, p) in beyond.iter_mut().zip(&q).rev() {
            *tail = rest;
            rest += p;
        }
        Self { walk, q, at_most, beyond }
    }

    fn last(&self) -> usize {
        self.q.len() - 1
    }

    /// P(Lq > m) and P(Lq <= m), for m from −1.
    fn tails(&self, m: f64) -> (f64, f64) {
        if m < 0.0 {
            return (1.0, 0.0);
        }
        let last = self.last() as f64;
        if m <= last {
            return (self.beyond[m as usize], self.at_most[m as usize]);
        }
        let tail = self.beyond[self.last()] * self.walk.power(m - last);
        (tail, 1.0 - tail)
    }

    fn pn(&self, m: f64) -> f64 {
        let last = self.last() as f64;
        if m <= last {
            return self.q[m as usize];
        }
        self.q[self.last()] * self.walk.power(m - last)
    }

    /// Survival and distribution function of the wait at `t` services: Poisson(u) arrivals, u the
    /// load of what is missing to the next whole service, meet what waits.
    fn wait(&self, t: f64) -> (f64, f64) {
        let Walk { c, a, growth, .. } = self.walk;
        let k = t.floor() + 1.0;
        let u = a * (k - t);
        let m = k * c - 1.0;
        // The tilted Poisson law that the geometric tail makes of it ends well before here.
        let end = u * (1.0 + growth);
        let reach = end + 12.0 * end.sqrt() + 60.0;
        let last = self.last() as f64;
        if last + reach < m {
            // In one exponent: apart, one may vanish and the other overflow.
            let exponent = u * growth - (m - last) * growth.ln_1p();
            let tail = self.beyond[self.last()] * exponent.exp();
            return (tail, 1.0 - tail);
        }
        let mode = u.floor();
        let at_mode = poisson(mode, u);
        let (mut sf, mut cdf) = (0.0, 0.0);
        let (mut p, mut j) = (at_mode, mode);
        // Upwards every term is at most p, downwards both factors of the survival fall.
        loop {
            let (tail, head) = self.tails(m - j);
            sf += p * tail;
            cdf += p * head;
            j += 1.0;
            p *= u / j;
            if p <= 1e-18 * sf || p == 0.0 {
                break;
            }
        }
        (p, j) = (at_mode, mode);
        while 0.0 < j {
            p *= j / u;
            j -= 1.0;
            let (tail, head) = self.tails(m - j);
            sf += p * tail;
            cdf += p * head;
            if p * tail <= 1e-18 * sf && p * head <= 1e-18 * cdf {
                break;
            }
        }
        (sf.min(1.0), cdf.min(1.0))
    }
}

impl Mdc {
    /// The queue with arrival rate `lambda` and `c` servers that each take the time `service`.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if `c <= lambda * service`; other [`QueueError`] unless `lambda` is
    /// from 0 and `service` from 1e-50 to 1e50, and `c` from 1 to 20 000.
    pub fn new(lambda: f64, service: f64, c: u64) -> Result<Self> {
        let (lambda, service) = (zero_or_more("lambda", lambda)?, positive("service", service)?);
        let servers = c as f64;
        if c < 1 || MAX_SERVERS < c {
            let expected = "a whole number from 1 to 20000";
            return Err(QueueError::OutOfRange { name: "c", value: servers, expected });
        }
        let a = lambda * service;
        let (rho, idle) = (a / servers, (-lambda).mul_add(service, servers) / servers);
        if idle <= 0.0 {
            return Err(QueueError::Unstable { rho });
        }
        let mut queue = Self {
            lambda,
            service,
            c: servers,
            rho,
            idle,
            lq: 0.0,
            var_nq: 0.0,
            p_wait: 0.0,
            no_wait: 1.0,
            waiting: None,
        };
        // Below this, not one in 10^100 waits, and its probability may underflow on the way.
        if a < 1e-100 {
            if c == 1 {
                queue.lq = 0.5 * a * a;
                queue.p_wait = a;
            }
            return Ok(queue);
        }
        let walk = Walk::new(servers, a, idle)?;
        let mean = walk.mean();
        let (none, level) = (walk.minus_ln_zero(), walk.level);
        queue.lq = mean;
        queue.var_nq = walk.second() + mean;
        queue.p_wait = -(-none - level).exp_m1();
        queue.no_wait = (-none - level).exp();
        if c == 1 {
            (queue.p_wait, queue.no_wait) = (rho, idle);
            queue.lq = 0.5 * rho * rho / idle;
        }
        queue.waiting = Some(Waiting::new(walk, (-none).exp()));
        Ok(queue)
    }

    /// Arrival rate.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Time of one service.
    #[must_use]
    pub fn service(&self) -> f64 {
        self.service
    }

    /// Variance of the number that wait.
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        self.var_nq
    }

    /// Variance of the wait, which is that of the response time too: E\[Lq (Lq − 1)\] / λ² − Wq²,
    /// since those that wait are the arrivals during a wait.
    #[must_use]
    pub fn var_wq(&self) -> f64 {
        if self.lambda == 0.0 {
            return 0.0;
        }
        let a = self.lambda * self.service;
        // E[Lq (Lq − 1)] − Lq² = var − Lq, which the walk gives as a sum of positive terms.
        let Some(waiting) = &self.waiting else {
            return if self.c == 1.0 { a * self.service / 3.0 * self.service } else { 0.0 };
        };
        waiting.walk.second() / a / a * self.service * self.service
    }

    /// Variance of the response time: that of the wait, as service is constant.
    #[must_use]
    pub fn var_w(&self) -> f64 {
        self.var_wq()
    }

    /// Variance of the number in the system: λ² Var\[W\] + L, since jobs leave in the order of their
    /// arrival and leave behind those that came during their stay.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        crate::mg1::counted(self.lambda, self.var_w(), self.l())
    }

    /// Mean wait of the jobs that wait.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        if 0.0 < self.p_wait { self.wq() / self.p_wait } else { 0.0 }
    }

    fn wait(&self, t: f64) -> Result<(f64, f64)> {
        let t = not_negative("t", t)?;
        let Some(waiting) = &self.waiting else {
            // Of so few arrivals only those within one service of another wait.
            let late = self.p_wait * (1.0 - t / self.service).max(0.0);
            return Ok((late, 1.0 - late));
        };
        if t == 0.0 {
            return Ok((self.p_wait, self.no_wait));
        }
        Ok(waiting.wait((t / self.service).min(1e300)))
    }
}

impl Queue for Mdc {
    fn utilization(&self) -> f64 {
        self.rho
    }
    fn l(&self) -> f64 {
        self.lambda * self.service + self.lq
    }
    fn lq(&self) -> f64 {
        self.lq
    }
    fn w(&self) -> f64 {
        self.service + self.wq()
    }
    fn wq(&self) -> f64 {
        if self.c == 1.0 {
            return 0.5 * self.rho / self.idle * self.service;
        }
        if self.lambda == 0.0 { 0.0 } else { self.lq / self.lambda }
    }
    fn p0(&self) -> f64 {
        if self.c == 1.0 {
            return self.idle;
        }
        let a = self.lambda * self.service;
        self.waiting.as_ref().map_or(1.0, |waiting| waiting.q[0] * (-a).exp())
    }
    /// The number in the system is what waited one service ago, and Poisson(a) arrivals.
    fn pn(&self, n: u64) -> Result<f64> {
        let (n, a) = (n as f64, self.lambda * self.service);
        let Some(waiting) = &self.waiting else {
            return Ok(poisson(n, a));
        };
        let c = self.c;
        if c < n {
            return Ok(waiting.pn(n - c));
        }
        let mut sum = 0.0;
        let mut m = 0.0;
        while m <= n {
            sum += waiting.pn(m) * poisson(n - m, a);
            m += 1.0;
        }
        Ok(sum)
    }
    fn throughput(&self) -> f64 {
        self.lambda
    }
    fn p_wait(&self) -> f64 {
        self.p_wait
    }
}

impl WaitDistribution for Mdc {
    fn wq_cdf(&self, t: f64) -> Result<f64> {
        self.wait(t).map(|(_, cdf)| cdf)
    }
    fn wq_sf(&self, t: f64) -> Result<f64> {
        self.wait(t).map(|(sf, _)| sf)
    }
    fn wq_quantile(&self, p: f64) -> Result<f64> {
        let p = probability("p", p)?;
        let rest = 1.0 - p;
        // The smaller of both probabilities decides, since it has its digits.
        if self.p_wait <= rest || p <= self.no_wait {
            return Ok(0.0);
        }
        if rest == 0.0 {
            return Ok(f64::INFINITY);
        }
        let Some(waiting) = &self.waiting else {
            return Ok(self.service * (1.0 - rest / self.p_wait));
        };
        let error = |t: f64| {
            let (sf, cdf) = waiting.wait(t);
            if p < 0.5 { (cdf / p).ln() } else { (rest / sf).ln() }
        };
        Ok(root("wq_quantile", error, 0.0, 1.0)? * self.service)
    }
    fn w_cdf(&self, t: f64) -> Result<f64> {
        let t = not_negative("t", t)?;
        if t < self.service { Ok(0.0) } else { self.wq_cdf(t - self.service) }
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        let t = not_negative("t", t)?;
        if t < self.service { Ok(1.0) } else { self.wq_sf(t - self.service) }
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        if probability("p", p)? == 0.0 {
            return Ok(0.0);
        }
        self.wq_quantile(p).map(|t| t + self.service)
    }
}
