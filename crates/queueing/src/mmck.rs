//! M/M/c/K: `c` alike servers and `K` places in all; who finds them taken is turned away. M/M/1/K
//! is the one with a single server.
//!
//! Source of all: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed.
//! 2008, ch. 2.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{PURE, shown};
use crate::error::{QueueError, Result, positive, servers, zero_or_more};
use crate::inverse::Inverse;
use crate::model::{Queue, WaitDistribution};
use crate::numeric::{below_full, geometric_mean_place, geometric_sum, ln_of};
use crate::places::{Geometric, Line, Places};

/// Most places of a queue, servers included.
pub const MAX_PLACES: u64 = 1_000_000_000;

/// An M/M/c/K queue, at any load.
///
/// Means and percentiles of wait and response are those of the jobs let in. Whatever K is, they
/// cost about the same: the distributions some √K terms at the worst, all else none.
///
/// # Examples
///
/// ```
/// use queueing::{MmcK, Queue};
///
/// let queue = MmcK::new(50.0, 10.0, 4, 6)?; // 5 erlangs for 4 servers and 2 waiting places
/// assert!((queue.p_block() - 0.293543).abs() < 1e-6);
/// assert!((queue.throughput() - 50.0 * (1.0 - queue.p_block())).abs() < 1e-9);
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MmcK {
    lambda: f64,
    /// Servers and places, as exact `f64`.
    c: f64,
    k: f64,
    servers: u64,
    room: u64,
    rho: f64,
    idle: f64,
    p_block: f64,
    /// Share of the arrivals let in.
    accepted: f64,
    /// Probability that all servers are busy.
    full: f64,
    /// Probability of exactly c jobs.
    at_c: f64,
    lq: f64,
    line: Line<Geometric>,
}

impl MmcK {
    /// The queue with arrival rate `lambda`, service rate `mu` of each server, `c` servers and `k`
    /// places in all, those in service included.
    ///
    /// Rates are per the same unit of time. With `k = c` nobody waits, and the blocking probability
    /// is Erlang B.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, `c` from 1 to 10^9 and
    /// `k` from `c` to 10^9.
    pub fn new(lambda: f64, mu: f64, c: u64, k: u64) -> Result<Self> {
        let (lambda, mu) = (zero_or_more("lambda", lambda)?, positive("mu", mu)?);
        let servers = servers("c", c)?;
        let places = k as f64;
        if k < c || MAX_PLACES < k {
            let expected = "a whole number from c to 1000000000";
            return Err(QueueError::OutOfRange { name: "k", value: places, expected });
        }
        let capacity = servers * mu;
        let rho = lambda / capacity;
        let idle = servers.mul_add(mu, -lambda) / capacity;
        let apart = (1.0 - servers).mul_add(mu, lambda) / capacity;
        let n = places - servers;
        let geometric = Geometric { n, rho, idle, own: 1.0 / servers, apart };
        let mut queue = Self {
            lambda,
            c: servers,
            k: places,
            servers: c,
            room: k,
            rho,
            idle,
            p_block: 0.0,
            accepted: 1.0,
            full: 0.0,
            at_c: 0.0,
            lq: 0.0,
            line: Line {
                places: geometric,
                wait: 0.0,
                no_wait: 1.0,
                mu,
                all: capacity,
                w: 1.0 / mu,
            },
        };
        let a = lambda / mu;
        // A load below what f64 holds is none.
        if 0.0 < rho {
            queue.fill(a, n);
        }
        Ok(queue)
    }

    /// States c to K have the probabilities ρ^j of state c, those below it together I − 1 times
    /// that, where I = 1 / B.
    fn fill(&mut self, a: f64, n: f64) {
        let inverse = Inverse::new(self.c, a);
        // b times the sum of all states, over the probability of state c; b is at most 1.
        let b = inverse.scaled_down(1.0);
        let fewer = match inverse {
            Inverse::Excess(excess) => excess * b,
            _ => 1.0 - b,
        };
        let (full, last, waiting, place);
        if 0.0 <= self.idle {
            full = b * geometric_sum(self.rho, self.idle, n + 1.0);
            waiting = b * geometric_sum(self.rho, self.idle, n);
            last = b * (n * ln_of(self.rho, self.idle)).exp();
            place = geometric_mean_place(self.rho, self.idle, n + 1.0);
            self.set(fewer, full, waiting, last, place);
        } else {
            // In units of the last state instead of state c, so that no power overflows.
            let (r, r_idle) = (1.0 / self.rho, -self.idle / self.rho);
            let down = (n * ln_of(r, r_idle)).exp();
            full = b * geometric_sum(r, r_idle, n + 1.0);
            waiting = b * r * geometric_sum(r, r_idle, n);
            place = n - geometric_mean_place(r, r_idle, n + 1.0);
            self.set(fewer * down, full, waiting, b, place);
        }
        self.at_c = if 0.0 <= self.idle {
            self.full / geometric_sum(self.rho, self.idle, n + 1.0)
        } else {
            self.p_block * (-n * ln_of(self.rho, self.idle)).exp()
        };
    }

    /// From the weights of all states in one unit: those below c, those from it on, those of them
    /// that still let in, and the last.
    fn set(&mut self, fewer: f64, full: f64, waiting: f64, last: f64, place: f64) {
        let all = fewer + full;
        self.full = full / all;
        self.p_block = last / all;
        self.accepted = (fewer + waiting) / all;
        self.lq = self.full * place;
        let line = &mut self.line;
        line.wait = waiting / (fewer + waiting);
        line.no_wait = fewer / (fewer + waiting);
        line.w = 1.0 / line.mu;
        if 0.0 < self.lq {
            line.w += self.lq / (self.lambda * self.accepted);
        }
    }

    /// Probability of `n` jobs, fewer than c.
    fn fewer(&self, n: f64) -> f64 {
        below_full(n, self.c, self.lambda / self.line.mu, self.rho, self.idle, self.at_c, self.full)
    }

    /// Arrival rate, those turned away included.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Service rate of one server.
    #[must_use]
    pub fn mu(&self) -> f64 {
        self.line.mu
    }

    /// Number of servers.
    #[must_use]
    pub fn c(&self) -> u64 {
        self.servers
    }

    /// Number of places, servers included.
    #[must_use]
    pub fn k(&self) -> u64 {
        self.room
    }

    /// Offered load per server, λ / (c μ), which may exceed 1.
    #[must_use]
    pub fn rho(&self) -> f64 {
        self.rho
    }

    /// Probability that an arrival is turned away.
    #[must_use]
    pub fn p_block(&self) -> f64 {
        self.p_block
    }

    /// Mean wait of the jobs that are let in and do wait; 0 if none can.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        if self.line.places.n == 0.0 {
            return 0.0;
        }
        // By the place it finds, since wait and probability may both be below what f64 holds.
        let Geometric { n, rho, idle, .. } = self.line.places;
        let place = if 0.0 <= idle {
            geometric_mean_place(rho, idle, n)
        } else {
            n - 1.0 - geometric_mean_place(1.0 / rho, -idle / rho, n)
        };
        (1.0 + place) / self.line.all
    }

    /// Variance of the wait of the jobs that are let in.
    #[must_use]
    pub fn var_wq(&self) -> f64 {
        self.line.var_wq()
    }

    /// Variance of the response time of the jobs that are let in.
    #[must_use]
    pub fn var_w(&self) -> f64 {
        self.line.var_w()
    }

    /// Mean and variance of the number that wait, given that all servers are busy.
    fn queued(&self) -> (f64, f64) {
        let waiting = Geometric { n: self.k - self.c + 1.0, ..self.line.places };
        waiting.ahead()
    }

    /// Variance of the number that wait.
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        let (mean, var) = self.queued();
        self.full * var + self.full * (1.0 - self.full).max(0.0) * mean * mean
    }

    /// Variance of the number in the system.
    ///
    /// Up to 65 536 places the sum over the states. With more, from the balance of the mean of N²,
    /// which has about ten digits less than the variance far beyond full load.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        if self.rho == 0.0 {
            return 0.0;
        }
        if self.full == 1.0 {
            return self.queued().1; // always busy: only the line moves
        }
        if self.room <= 65_536 {
            let mean = self.l();
            let spread = |n: u64| {
                let off = n as f64 - mean;
                self.pn(n).map_or(0.0, |p| p * off * off)
            };
            return (0..=self.room).map(spread).sum();
        }
        let busy = self.c * self.utilization();
        let turned = self.lambda / self.line.mu * self.p_block * (self.k - self.l());
        (busy + self.var_nq() + self.lq * (self.c - busy) - turned).max(0.0)
    }

    /// Probability that an arrival that is let in finds `n` jobs; 0 for `n = k`.
    ///
    /// # Errors
    ///
    /// None.
    pub fn pn_arrival(&self, n: u64) -> Result<f64> {
        if self.room <= n { Ok(0.0) } else { Ok(self.pn(n)? / self.accepted) }
    }
}

impl Queue for MmcK {
    fn utilization(&self) -> f64 {
        (self.rho * self.accepted).min(1.0)
    }
    fn l(&self) -> f64 {
        self.lq + self.c * self.utilization()
    }
    fn lq(&self) -> f64 {
        self.lq
    }
    fn w(&self) -> f64 {
        self.line.w
    }
    fn wq(&self) -> f64 {
        if self.lq == 0.0 { 0.0 } else { self.lq / (self.lambda * self.accepted) }
    }
    fn p0(&self) -> f64 {
        self.fewer(0.0)
    }
    fn pn(&self, n: u64) -> Result<f64> {
        let at = n as f64;
        Ok(if self.room < n {
            0.0
        } else if n < self.servers {
            self.fewer(at)
        } else if self.rho == 0.0 {
            0.0
        } else if 0.0 <= self.idle {
            let ln_power = (at - self.c) * ln_of(self.rho, self.idle);
            self.at_c * ln_power.exp()
        } else {
            self.p_block * (-(self.k - at) * ln_of(self.rho, self.idle)).exp()
        })
    }
    fn throughput(&self) -> f64 {
        self.lambda * self.accepted
    }
    fn p_wait(&self) -> f64 {
        self.line.wait
    }
}

impl WaitDistribution for MmcK {
    fn wq_cdf(&self, t: f64) -> Result<f64> {
        self.line.wq_cdf(t)
    }
    fn wq_sf(&self, t: f64) -> Result<f64> {
        self.line.wq_sf(t)
    }
    fn wq_quantile(&self, p: f64) -> Result<f64> {
        self.line.wq_quantile(p)
    }
    fn w_cdf(&self, t: f64) -> Result<f64> {
        self.line.w_cdf(t)
    }
    fn w_sf(&self, t: f64) -> Result<f64> {
        self.line.w_sf(t)
    }
    fn w_quantile(&self, p: f64) -> Result<f64> {
        self.line.w_quantile(p)
    }
}

/// Probability that an M/M/c/K queue turns an arrival away.
///
/// ```text
/// mmck_p_block = a^k / (fact(c) * c^(k - c))
///                / (sum(n, 0, c, a^n / fact(n))
///                   + sum(n, c + 1, k, a^n / (fact(c) * c^(n - c))))
/// ```
///
/// `a` is the offered load λ / μ in erlangs, `c` the number of servers and `k` the number of places,
/// those in service included. The load may exceed the servers. At `k = c` it is Erlang B.
///
/// # Errors
///
/// [`QueueError`] unless `a` is from 0 to 1e50, `c` from 1 to 10^9 and `k` from `c` to 10^9.
///
/// # Examples
///
/// ```
/// // One server at its own rate with two places: states 0, 1 and 2 are alike.
/// assert!((queueing::mmck::mmck_p_block(1.0, 1, 2)? - 1.0 / 3.0).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn mmck_p_block(a: f64, c: u64, k: u64) -> Result<f64> {
    let a = zero_or_more("a", a)?;
    MmcK::new(a, 1.0, c, k).map(|q| q.p_block())
}

/// The catalog entry of [`mmck_p_block`].
#[cfg(feature = "catalog")]
pub const MMCK_P_BLOCK: Metric = Metric {
    id: "mmck_p_block",
    symbol: "P_K",
    name: text("Blocking probability, M/M/c/K", "阻塞概率，M/M/c/K"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LOAD, FEW_SERVERS, ROOM],
    formula: Formula::Scalar {
        text: "a^k / (fact(c) * c^(k - c)) / (sum(n, 0, c, a^n / fact(n)) + sum(n, c + 1, k, a^n / (fact(c) * c^(n - c))))",
        eval: |x| shown(PURE, mmck_p_block(x[0], whole("c", x[1])?, whole("k", x[2])?)),
        example: (&[1.0, 1.0, 2.0], 1.0 / 3.0),
    },
    path: "queueing::mmck::mmck_p_block",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "More room blocks less and waits longer; above ρ = 1 it never falls below 1 − 1/ρ.",
        "等待位越多，阻塞越少而等待越长；ρ 超过 1 时它不会低于 1 − 1/ρ。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const LOAD: Input = Input::real(
    "a",
    "a",
    PURE,
    (0.0, 20.0),
    text("offered load λ / μ in erlangs", "提供负载 λ/μ（Erlang）"),
);
#[cfg(feature = "catalog")]
const FEW_SERVERS: Input =
    Input::whole("c", "c", PURE, (1.0, 10.0), text("number of servers", "服务台数"));
#[cfg(feature = "catalog")]
const ROOM: Input = Input::whole(
    "k",
    "K",
    PURE,
    (10.0, 30.0),
    text("places in the system, servers included", "系统容量（含服务台）"),
);

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&MMCK_P_BLOCK];
