//! Finitely many sources, each idle for an exponential time before its next job.
//!
//! Where nobody may wait (Engset) two blocking probabilities differ: that of a moment (time
//! congestion) and that of a job (call congestion), since busy sources send none. Where all wait
//! (M/M/c//N) an arrival likewise finds the law of a system with one source less.
//!
//! Source of all: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed.
//! 2008, ch. 2; Engset 1918.

use crate::birth_death::{BirthDeath, MAX_STATES};
#[cfg(feature = "catalog")]
use crate::catalog::{PURE, shown};
use crate::error::{QueueError, Result, positive, servers, zero_or_more};
use crate::model::{Queue, WaitDistribution};
use crate::places::{Line, Listed};
#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text, whole};

/// A number of sources, as the exact `f64`.
fn sources(n: u64) -> Result<f64> {
    if n < 1 || MAX_STATES <= n {
        let expected = "a whole number from 1 to 9999999";
        return Err(QueueError::OutOfRange { name: "n_sources", value: n as f64, expected });
    }
    Ok(n as f64)
}

/// Engset: share of time in which all `c` servers are busy with `n_sources` sources.
///
/// ```text
/// engset_time_congestion = fact(n_sources) / (fact(c) * fact(n_sources - c)) * alpha^c
///     / sum(k, 0, c, fact(n_sources) / (fact(k) * fact(n_sources - k)) * alpha^k)
/// ```
///
/// `n_sources` is the number of sources and `c` that of servers; `alpha` is the rate at which an
/// idle source sends a job over the service rate μ. A job that finds all servers busy is lost, and
/// its source is idle again. With as many servers as sources the value is the share of time in which
/// all sources are busy, though nobody is lost; with more it is 0.
///
/// # Errors
///
/// [`QueueError`] unless `n_sources` is from 1 to 9999999, `c` from 1 to 10^9 and `alpha` from 0 to
/// 1e50.
///
/// # Examples
///
/// ```
/// // Two sources, one server: 1 : 2 α.
/// let time = queueing::finite_source::engset_time_congestion(2, 1, 0.5)?;
/// assert!((time - 0.5).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Engset 1918; Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*,
/// 4th ed. 2008, ch. 2.
pub fn engset_time_congestion(n_sources: u64, c: u64, alpha: f64) -> Result<f64> {
    let (n, servers, alpha) =
        (sources(n_sources)?, servers("c", c)?, zero_or_more("alpha", alpha)?);
    Ok(congestion(n, servers, alpha))
}

/// The congestion for checked inputs, with any number of sources from 0.
fn congestion(n: f64, c: f64, alpha: f64) -> f64 {
    if n < c || alpha == 0.0 {
        return 0.0;
    }
    // E(k) = α (n − k + 1) E(k − 1) / (k + α (n − k + 1) E(k − 1)): positive terms only.
    let (mut e, mut k) = (1.0, 0.0);
    while k < c {
        k += 1.0;
        let up = alpha * (n - k + 1.0) * e;
        e = up / (k + up);
    }
    e
}

/// The catalog entry of [`engset_time_congestion`].
#[cfg(feature = "catalog")]
pub const ENGSET_TIME_CONGESTION: Metric = Metric {
    id: "engset_time_congestion",
    symbol: "E",
    name: text("Time congestion, Engset", "时间阻塞率，Engset"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[SOURCES, FEW_SERVERS, ALPHA],
    formula: Formula::Scalar {
        text: "fact(n_sources) / (fact(c) * fact(n_sources - c)) * alpha^c / sum(k, 0, c, fact(n_sources) / (fact(k) * fact(n_sources - k)) * alpha^k)",
        eval: |x| {
            shown(PURE, engset_time_congestion(whole("n_sources", x[0])?, whole("c", x[1])?, x[2]))
        },
        example: (&[20.0, 1.0, 0.05], 0.5),
    },
    path: "queueing::finite_source::engset_time_congestion",
    source: Source {
        work: "Engset 1918; Gross, Shortle, Thompson and Harris 2008",
        section: "ch. 2",
    },
    note: text(
        "A share of time; the share of lost jobs is smaller, since busy sources send none.",
        "这是时间占比；任务的损失率更小，因为忙碌的源不会再发出任务。",
    ),
    exported: &[],
};

/// Engset: share of the jobs that find all `c` servers busy.
///
/// ```text
/// engset_call_congestion = fact(n_sources - 1) / (fact(c) * fact(n_sources - 1 - c)) * alpha^c
///     / sum(k, 0, c, fact(n_sources - 1) / (fact(k) * fact(n_sources - 1 - k)) * alpha^k)
/// ```
///
/// Inputs are those of [`engset_time_congestion`], of which it is the value with one source less: a
/// source that sends a job sees the others. With as many servers as sources it is 0.
///
/// # Errors
///
/// As [`engset_time_congestion`].
///
/// # Examples
///
/// ```
/// // Two sources, one server: the other source is busy a third of the time at α = 1/2.
/// let lost = queueing::finite_source::engset_call_congestion(2, 1, 0.5)?;
/// assert!((lost - 1.0 / 3.0).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Engset 1918; Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*,
/// 4th ed. 2008, ch. 2.
pub fn engset_call_congestion(n_sources: u64, c: u64, alpha: f64) -> Result<f64> {
    let (n, servers, alpha) =
        (sources(n_sources)?, servers("c", c)?, zero_or_more("alpha", alpha)?);
    Ok(congestion(n - 1.0, servers, alpha))
}

/// The catalog entry of [`engset_call_congestion`].
#[cfg(feature = "catalog")]
pub const ENGSET_CALL_CONGESTION: Metric = Metric {
    id: "engset_call_congestion",
    symbol: "B",
    name: text("Call congestion, Engset", "呼叫阻塞率，Engset"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[SOURCES, FEW_SERVERS, ALPHA],
    formula: Formula::Scalar {
        text: "fact(n_sources - 1) / (fact(c) * fact(n_sources - 1 - c)) * alpha^c / sum(k, 0, c, fact(n_sources - 1) / (fact(k) * fact(n_sources - 1 - k)) * alpha^k)",
        eval: |x| {
            shown(PURE, engset_call_congestion(whole("n_sources", x[0])?, whole("c", x[1])?, x[2]))
        },
        example: (&[21.0, 1.0, 0.05], 0.5),
    },
    path: "queueing::finite_source::engset_call_congestion",
    source: Source {
        work: "Engset 1918; Gross, Shortle, Thompson and Harris 2008",
        section: "ch. 2",
    },
    note: text(
        "What the users see; Erlang B is its limit for many sources.",
        "用户实际感受到的损失率；源很多时趋于 Erlang B。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const SOURCES: Input =
    Input::whole("n_sources", "N", PURE, (15.0, 30.0), text("number of sources", "源的个数"));
#[cfg(feature = "catalog")]
const FEW_SERVERS: Input =
    Input::whole("c", "c", PURE, (1.0, 14.0), text("number of servers", "服务台数"));
#[cfg(feature = "catalog")]
const ALPHA: Input = Input::real(
    "alpha",
    r"\alpha",
    PURE,
    (0.0, 2.0),
    text("rate of an idle source over the service rate", "空闲源的到达率与服务率之比"),
);

/// Engset: mean number of busy servers with `n_sources` sources of which none may wait.
///
/// `n_sources`, `c` and `alpha` are those of [`engset_time_congestion`]. It is the carried load in
/// erlangs.
///
/// # Errors
///
/// As [`engset_time_congestion`].
///
/// # Examples
///
/// ```
/// let busy = queueing::finite_source::engset_carried_load(2, 1, 0.5)?;
/// assert!((busy - 0.5).abs() < 1e-15); // one server, busy half of the time
/// # Ok::<(), queueing::QueueError>(())
/// ```
pub fn engset_carried_load(n_sources: u64, c: u64, alpha: f64) -> Result<f64> {
    let (n, servers, alpha) =
        (sources(n_sources)?, servers("c", c)?, zero_or_more("alpha", alpha)?);
    if n <= servers {
        return Ok(n * alpha / (1.0 + alpha));
    }
    // Jobs let in are jobs served: α (n − busy) (1 − call congestion) = busy.
    let entering = alpha * (1.0 - congestion(n - 1.0, servers, alpha));
    if alpha < 1.0 || congestion(n - 1.0, servers, alpha) < 0.5 {
        return Ok(n * entering / (1.0 + entering));
    }
    // Near saturation the share let in has few digits: the mean over the states has them.
    let states = BirthDeath::from_ratios(&ratios(n, servers, servers, alpha));
    Ok(states.mean())
}

/// Ratios of neighbouring states up to `last`: sources that are idle over servers that are busy.
fn ratios(n: f64, c: f64, last: f64, alpha: f64) -> Vec<f64> {
    let mut ratios = Vec::new();
    let mut k = 0.0;
    while k < last.min(n) {
        ratios.push(alpha * (n - k) / (k + 1.0_f64).min(c));
        k += 1.0;
    }
    ratios
}

/// M/M/c//N: `n` sources and `c` servers, and whoever finds them busy waits.
///
/// The machine-repair model, and a closed benchmark with `n` clients that think. Means and waits are
/// those of all jobs; arrivals slow down by themselves, so that any load is stable.
///
/// # Examples
///
/// ```
/// use queueing::{MmcN, Queue};
///
/// // Two clients that think for 1 s and one server that takes 0.5 s: 1 : 1 : 1/2.
/// let queue = MmcN::new(1.0, 2.0, 1, 2)?;
/// assert!((queue.p0() - 0.4).abs() < 1e-15);
/// assert!((queue.throughput() - 1.2).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MmcN {
    lambda: f64,
    servers: u64,
    sources: u64,
    states: BirthDeath,
    busy: f64,
    lq: f64,
    line: Line<Listed>,
}

impl MmcN {
    /// The queue in which each of `n` idle sources sends a job at the rate `lambda`, and each of
    /// `c` servers serves at the rate `mu`.
    ///
    /// The cost grows with `n`, once.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `lambda` is from 0 and `mu` from 1e-50 to 1e50, `c` from 1 to 10^9 and
    /// `n` from 1 to 9999999.
    pub fn new(lambda: f64, mu: f64, c: u64, n: u64) -> Result<Self> {
        let (lambda, mu) = (zero_or_more("lambda", lambda)?, positive("mu", mu)?);
        let (servers, clients) = (servers("c", c)?, sources(n)?);
        let alpha = lambda / mu;
        let states = BirthDeath::from_ratios(&ratios(clients, servers, clients, alpha));
        let busy = states.expect(|k| k.min(servers));
        let lq = states.expect(|k| (k - servers).max(0.0));
        // An arrival sees the others alone.
        let seen = BirthDeath::from_ratios(&ratios(clients - 1.0, servers, clients - 1.0, alpha));
        let split = usize::try_from(c).unwrap_or(usize::MAX).min(seen.states().len());
        let (free, taken) = seen.states().split_at(split);
        // Sums of probabilities may pass 1 in rounding.
        let no_wait = free.iter().sum::<f64>().min(1.0);
        let wait = taken.iter().rev().sum::<f64>().min(1.0);
        let mut places: Vec<f64> = taken.to_vec();
        if 0.0 < wait {
            for p in &mut places {
                *p /= wait;
            }
        }
        let w = if 0.0 < lq { 1.0 / mu + lq / (mu * busy) } else { 1.0 / mu };
        let places = Listed::new(&places, 1.0 / servers);
        let line = Line { places, wait, no_wait, mu, all: servers * mu, w };
        Ok(Self { lambda, servers: c, sources: n, states, busy, lq, line })
    }

    /// Rate at which one idle source sends a job.
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

    /// Number of sources.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.sources
    }

    /// Variance of the number of jobs in the system.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        self.states.variance()
    }

    /// Variance of the number of jobs that wait.
    #[must_use]
    pub fn var_nq(&self) -> f64 {
        let c = self.servers as f64;
        self.states.expect(|k| {
            let off = (k - c).max(0.0) - self.lq;
            off * off
        })
    }

    /// Variance of the wait.
    #[must_use]
    pub fn var_wq(&self) -> f64 {
        self.line.var_wq()
    }

    /// Variance of the response time.
    #[must_use]
    pub fn var_w(&self) -> f64 {
        self.line.var_w()
    }

    /// Mean wait of the jobs that do wait; 0 if none can.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        if 0.0 < self.line.wait { self.wq() / self.line.wait } else { 0.0 }
    }
}

impl Queue for MmcN {
    fn utilization(&self) -> f64 {
        (self.busy / self.servers as f64).min(1.0)
    }
    fn l(&self) -> f64 {
        self.busy + self.lq
    }
    fn lq(&self) -> f64 {
        self.lq
    }
    fn w(&self) -> f64 {
        self.line.w
    }
    fn wq(&self) -> f64 {
        if self.lq == 0.0 { 0.0 } else { self.lq / self.throughput() }
    }
    fn p0(&self) -> f64 {
        self.states.pn(0)
    }
    fn pn(&self, n: u64) -> Result<f64> {
        Ok(self.states.pn(n))
    }
    fn throughput(&self) -> f64 {
        self.line.mu * self.busy
    }
    fn p_wait(&self) -> f64 {
        self.line.wait
    }
}

impl WaitDistribution for MmcN {
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

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&ENGSET_TIME_CONGESTION, &ENGSET_CALL_CONGESTION];
