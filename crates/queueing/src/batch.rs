//! Batch service and batch arrivals.
//!
//! [`BatchLinear`] is dynamic batching: a server that is free takes what waits, up to a cap, and
//! needs D(b) = alpha b + tau0 for a batch of b. [`BulkMmK`] has exponential batch times that do
//! not depend on the batch; [`BatchArrivals`] has batches of arrivals and a server for one job.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "indices come from whole numbers that were checked to be below 10^8"
)]

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text};

#[cfg(feature = "catalog")]
use crate::catalog::{LAMBDA, TIME, shown};
use crate::error::{QueueError, Result, finite, positive, zero_or_more};
use crate::numeric::poisson;
use crate::walk::Walk;

/// Largest cap on a batch that is computed exactly; the cost grows with its cube.
pub const MAX_BATCH: u64 = 512;

/// Iterations that the free server's probability may need; they grow with 1 / (1 − λ alpha).
const ITERATIONS: u32 = 2_000_000;

/// Poisson arrivals, and a server that takes all that waits, in D(b) = alpha b + tau0.
///
/// Exact, not a bound: the law of the batch size obeys an equation for its generating function that
/// a product solves.
///
/// # Examples
///
/// ```
/// use queueing::BatchLinear;
///
/// // A V100 at a fifth of its limit, times in ms (the coefficients are from memory of the paper).
/// let gpu = BatchLinear::new(0.2 / 0.1438, 0.1438, 1.8874)?;
/// assert!((gpu.w() - 3.687_342_843_16).abs() < 1e-10);
/// assert!((gpu.w_bound() - 3.703_645_83).abs() < 1e-8);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Inoue, *Queueing analysis of GPU-based inference servers with dynamic batching*, arXiv
/// 1912.06322; the exact solution is derived here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchLinear {
    lambda: f64,
    alpha: f64,
    tau0: f64,
    /// λ alpha.
    load: f64,
    /// 1 − λ alpha.
    idle: f64,
    /// Probability that a batch leaves nobody.
    empty: f64,
    batch: f64,
    batch_square: f64,
}

fn service(alpha: f64, tau0: f64) -> Result<(f64, f64)> {
    let (alpha, tau0) = (zero_or_more("alpha", alpha)?, zero_or_more("tau0", tau0)?);
    positive("service", alpha + tau0)?;
    Ok((alpha, tau0))
}

impl BatchLinear {
    /// The queue with arrival rate `lambda`, and `alpha` and `tau0` in the same unit of time.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if `1 <= lambda * alpha`; other [`QueueError`] unless `lambda`,
    /// `alpha` and `tau0` are from 0 to 1e50 and alpha + tau0 from 1e-50;
    /// [`QueueError::NotConverged`] within some 2e-5 of the limit of stability.
    pub fn new(lambda: f64, alpha: f64, tau0: f64) -> Result<Self> {
        let lambda = zero_or_more("lambda", lambda)?;
        let (alpha, tau0) = service(alpha, tau0)?;
        let (load, idle) = (lambda * alpha, (-lambda).mul_add(alpha, 1.0));
        if idle <= 0.0 {
            return Err(QueueError::Unstable { rho: load });
        }
        let fixed = lambda * tau0;
        // φ(z) = e^(−λ tau0 (1 − z)) φ(e^(−λ alpha (1 − z))) − empty · (1 − z), followed from z = 0,
        // where φ is 0, to z = 1, where it is 1.
        let (mut distance, mut product, mut sum) = (1.0, 1.0, 0.0);
        let mut settled = false;
        for _ in 0..ITERATIONS {
            let term = product * distance;
            sum += term;
            product *= f64::exp(-fixed * distance);
            distance = -f64::exp_m1(-load * distance);
            // What follows adds at most term · load / idle, and moves the product by as much.
            if product == 0.0 || distance <= 1e-18 * idle / (1.0 + fixed) {
                settled = true;
                break;
            }
        }
        if !settled {
            let residual = distance;
            return Err(QueueError::NotConverged {
                name: "empty",
                iterations: ITERATIONS,
                residual,
            });
        }
        let empty = (product / sum).min(1.0);
        let batch = (fixed + empty) / idle;
        let pairs = (fixed * fixed + 2.0 * fixed * load * batch + load * load * batch)
            / (idle * (1.0 + load));
        Ok(Self { lambda, alpha, tau0, load, idle, empty, batch, batch_square: pairs + batch })
    }

    /// Mean response time of a job: wait plus the time of its batch.
    #[must_use]
    pub fn w(&self) -> f64 {
        let Self { lambda, alpha, tau0, batch, batch_square, .. } = *self;
        let duration = alpha * batch + tau0;
        let square = alpha * alpha * batch_square + 2.0 * alpha * tau0 * batch + tau0 * tau0;
        let own = alpha * batch_square + tau0 * batch;
        // Jobs a cycle, busy and idle: λ E[D] during service, and one that ends an idle time.
        (own + 0.5 * lambda * square) / (lambda * duration + self.empty)
    }

    /// Mean wait before the own batch starts.
    #[must_use]
    pub fn wq(&self) -> f64 {
        let own = (self.alpha * self.batch_square + self.tau0 * self.batch) / self.batch;
        (self.w() - own).max(0.0)
    }

    /// Mean number of jobs in the system, by Little's law.
    #[must_use]
    pub fn l(&self) -> f64 {
        self.lambda * self.w()
    }

    /// Mean batch, over batches.
    #[must_use]
    pub fn mean_batch(&self) -> f64 {
        self.batch
    }

    /// Share of time that the server is busy.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        let busy = self.lambda * (self.alpha * self.batch + self.tau0);
        busy / (busy + self.empty)
    }

    /// Inoue's bound phi0 on the mean response time, tight under light load.
    #[must_use]
    pub fn phi0(&self) -> f64 {
        let (la, t) = (self.load, self.tau0);
        let lt = self.lambda * t;
        (self.alpha + t) / (2.0 * self.idle) * (1.0 + 2.0 * lt + (1.0 - lt) / (1.0 + la))
    }

    /// Inoue's bound phi1 on the mean response time, tight under heavy load.
    #[must_use]
    pub fn phi1(&self) -> f64 {
        let la = self.load;
        1.5 * self.tau0 / self.idle + 0.5 * self.alpha * (la + 2.0) / (self.idle * (1.0 + la))
    }

    /// The smaller of [`phi0`](Self::phi0) and [`phi1`](Self::phi1): never below [`w`](Self::w),
    /// and at most 8.1 % above it in 38 cases computed.
    #[must_use]
    pub fn w_bound(&self) -> f64 {
        self.phi0().min(self.phi1())
    }
}

/// As [`BatchLinear`], with at most `cap` jobs in a batch.
///
/// # Examples
///
/// ```
/// use queueing::batch::BatchCapped;
///
/// let one = BatchCapped::new(0.5, 0.0, 1.0, 1)?; // M/D/1
/// assert!((one.wq() - 0.5).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: the model is Inoue's, arXiv 1912.06322; the solution by ladder heights is derived here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchCapped {
    w: f64,
    wq: f64,
    lambda: f64,
    batch: f64,
    utilization: f64,
}

impl BatchCapped {
    /// The queue with arrival rate `lambda`, batch time alpha b + tau0, and at most `cap` jobs in a
    /// batch.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if the full batch's time brings `cap` arrivals or more; other
    /// [`QueueError`] as [`BatchLinear::new`], and unless `cap` is from 1 to 512.
    pub fn new(lambda: f64, alpha: f64, tau0: f64, cap: u64) -> Result<Self> {
        let lambda = zero_or_more("lambda", lambda)?;
        let (alpha, tau0) = service(alpha, tau0)?;
        if cap < 1 || MAX_BATCH < cap {
            let (value, expected) = (cap as f64, "a whole number from 1 to 512");
            return Err(QueueError::OutOfRange { name: "cap", value, expected });
        }
        let c = cap as f64;
        let full = alpha * c + tau0;
        let (a, idle) = (lambda * full, (-lambda).mul_add(full, c) / c);
        if idle <= 0.0 {
            return Err(QueueError::Unstable { rho: a / c });
        }
        // Rarer than one in 10^100 meets another.
        if a < 1e-100 {
            let w = alpha + tau0;
            return Ok(Self { w, wq: 0.0, lambda, batch: 1.0, utilization: lambda * w });
        }
        let walk = Walk::new(c, a, idle)?;
        let n = cap as usize;
        let time = |b: usize| alpha * b as f64 + tau0;
        let arrivals = |b: usize| lambda * time(b);
        // More arrivals than this in one batch time are rarer than one in 10^20.
        let reach = (a + 14.0 * a.sqrt() + 40.0).ceil() as usize;
        // η(k): from a state above the cap, the next one that is not higher is lower by k.
        let up = walk.ratios(n + 1);
        let last = poisson_row(a, n);
        let ladder: Vec<f64> =
            (0..=n).map(|k| (0..=n - k).map(|m| up[m] * last[n - k - m]).sum()).collect();
        let down: f64 = ladder[1..].iter().sum();
        // Visits to a state before going below it, from j above.
        let mut visits = Vec::with_capacity(reach + 1);
        for j in 0..=reach {
            let mut sum = if j == 0 { 1.0 } else { 0.0 };
            for k in 1..=j.min(n) {
                sum += ladder[k] * visits[j - k];
            }
            visits.push(if j == 0 { 1.0 / down } else { sum / down });
        }
        let stationary = Stationary::new(n, reach, &walk, &ladder, down, &visits, arrivals);
        let Stationary { below, above, at_last, last, empty } = stationary;
        // Sums over the states: jobs at the start of a batch.
        let (mut weight, mut served, mut busy) = (0.0, 0.0, 0.0);
        let (mut own, mut behind, mut square) = (0.0, 0.0, 0.0);
        for (i, p) in below.iter().enumerate() {
            let (b, d) = ((i + 1) as f64, time(i + 1));
            weight += p;
            served += p * b;
            busy += p * d;
            own += p * b * d;
            square += p * d * d;
        }
        let mut add = |p: f64, left: f64| {
            weight += p;
            served += p * c;
            busy += p * full;
            own += p * c * full;
            behind += left * full;
            square += p * full * full;
        };
        for (i, &p) in above.iter().enumerate() {
            add(p, p * (i + 1) as f64);
        }
        // Beyond the last the probabilities are geometric.
        let rest = at_last * walk.r / walk.idle();
        add(rest, rest * (last as f64 - c + 1.0 / walk.idle()));
        let cycle = lambda * busy + empty;
        let wq = (behind + 0.5 * lambda * square) / cycle;
        // A cycle serves as many jobs as arrive in it: `served` and `cycle` are the same number.
        Ok(Self {
            w: wq + own / cycle,
            wq,
            lambda,
            batch: served / weight,
            utilization: lambda * busy / cycle,
        })
    }

    /// Mean response time of a job: wait plus the time of its batch.
    #[must_use]
    pub fn w(&self) -> f64 {
        self.w
    }

    /// Mean wait before the own batch starts.
    #[must_use]
    pub fn wq(&self) -> f64 {
        self.wq
    }

    /// Mean number of jobs in the system, by Little's law.
    #[must_use]
    pub fn l(&self) -> f64 {
        self.lambda * self.w
    }

    /// Mean batch, over batches.
    #[must_use]
    pub fn mean_batch(&self) -> f64 {
        self.batch
    }

    /// Share of time that the server is busy.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.utilization
    }
}

/// The Poisson probabilities of 0 to `last`.
fn poisson_row(mean: f64, last: usize) -> Vec<f64> {
    (0..=last).map(|k| poisson(k as f64, mean)).collect()
}

/// Stationary weights of the number of jobs at the start of a batch, not normalised.
struct Stationary {
    /// Of 1 to cap.
    below: Vec<f64>,
    /// Of cap + 1 on.
    above: Vec<f64>,
    /// Of the last of them.
    at_last: f64,
    /// Which that is.
    last: usize,
    /// Of batches that leave nobody.
    empty: f64,
}

impl Stationary {
    /// Every step adds probabilities, none subtracts: the chain is watched while at most `cap` are
    /// there, solved by elimination after Grassmann, Taksar and Heyman, and continued upwards by
    /// expected visits.
    fn new(
        n: usize,
        reach: usize,
        walk: &Walk,
        ladder: &[f64],
        down: f64,
        visits: &[f64],
        arrivals: impl Fn(usize) -> f64,
    ) -> Self {
        // Where a path from `n + i + 1` first is at most n: weights over 1 to n (0 counts as 1).
        let mut landing: Vec<Vec<f64>> = Vec::with_capacity(reach);
        for i in 0..reach {
            let mut row = vec![0.0; n];
            for (k, &weight) in ladder.iter().enumerate().skip(1) {
                if k <= i {
                    for (sum, p) in row.iter_mut().zip(&landing[i - k]) {
                        *sum += weight / down * p;
                    }
                } else {
                    // From n + 1 + i down by k: n + 1 + i − k, and k at most n, is from 1 to n.
                    row[n + i - k] += weight / down;
                }
            }
            landing.push(row);
        }
        let mut watched = vec![vec![0.0; n]; n];
        let mut jumps = Vec::with_capacity(n);
        for b in 1..=n {
            let row = poisson_row(arrivals(b), n + reach);
            for (k, &p) in row.iter().enumerate() {
                if k <= n {
                    watched[b - 1][k.max(1) - 1] += p;
                } else {
                    for (sum, q) in watched[b - 1].iter_mut().zip(&landing[k - n - 1]) {
                        *sum += p * q;
                    }
                }
            }
            jumps.push(row);
        }
        let below = eliminate(watched);
        let empty = below.iter().zip(&jumps).map(|(p, row)| p * row[0]).sum();
        // State s above the cap: visits on paths that come from a lower one.
        let full = poisson_row(walk.a, n + reach);
        // From s − d in the upper region: d lower, so Poisson + s − d − n.
        let from_above: Vec<f64> = (0..=reach)
            .map(|d| {
                let start = n + d;
                (start..=n + reach).map(|k| full[k] * visits[k - start]).sum()
            })
            .collect();
        let mut inflow = vec![0.0; n + reach + 1];
        for (p, row) in below.iter().zip(&jumps) {
            for (sum, q) in inflow.iter_mut().zip(row) {
                *sum += p * q;
            }
        }
        let count = walk.settles().max(n) + n;
        let mut above: Vec<f64> = Vec::with_capacity(count);
        for i in 0..count {
            let mut sum = 0.0;
            let state = n + 1 + i;
            if state <= n + reach {
                for k in state..=n + reach {
                    sum += inflow[k] * visits[k - state];
                }
            }
            for d in 1..=i.min(reach) {
                sum += above[i - d] * from_above[d];
            }
            above.push(sum);
        }
        let at_last = above[count - 1];
        Self { below, above, at_last, last: n + count, empty }
    }
}

/// Stationary weights of a finite chain, by elimination without subtraction.
fn eliminate(mut p: Vec<Vec<f64>>) -> Vec<f64> {
    let n = p.len();
    for k in (1..n).rev() {
        let leave: f64 = p[k][..k].iter().sum();
        let row = p[k].clone();
        for from in &mut p[..k] {
            let share = if 0.0 < leave { from[k] / leave } else { 0.0 };
            from[k] = share;
            for (sum, q) in from[..k].iter_mut().zip(&row) {
                *sum += share * q;
            }
        }
    }
    let mut weights = vec![1.0; n];
    for k in 1..n {
        weights[k] = (0..k).map(|i| weights[i] * p[i][k]).sum();
    }
    weights
}

/// When a batch of exponential time starts, and whether it can be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchRule {
    /// It starts with what is there; arrivals join it until it holds K.
    Joinable,
    /// It starts only when K are there.
    Full,
    /// It starts with what is there, up to K; arrivals wait for the next.
    Closed,
}

/// M/M^\[K\]/1: Poisson arrivals, and batches of up to `k` jobs in an exponential time.
///
/// # Examples
///
/// ```
/// use queueing::{BulkMmK, batch::BatchRule};
///
/// let queue = BulkMmK::new(1.0, 1.0, 2, BatchRule::Joinable)?;
/// assert!((queue.l() - 1.618_033_988_749_895).abs() < 1e-14); // the golden ratio
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BulkMmK {
    lambda: f64,
    mu: f64,
    k: f64,
    rule: BatchRule,
    /// The root r of λ = μ (r + … + r^K).
    r: f64,
    /// 1 − r.
    idle: f64,
}

impl BulkMmK {
    /// The queue with arrival rate `lambda`, batch rate `mu`, and at most `k` jobs in a batch.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if `k * mu <= lambda`; other [`QueueError`] unless `lambda` is from
    /// 0 and `mu` from 1e-50 to 1e50, and `k` from 1 to 10^5.
    pub fn new(lambda: f64, mu: f64, k: u64, rule: BatchRule) -> Result<Self> {
        let (lambda, mu) = (zero_or_more("lambda", lambda)?, positive("mu", mu)?);
        let size = k as f64;
        if k < 1 || 100_000 < k {
            let expected = "a whole number from 1 to 100000";
            return Err(QueueError::OutOfRange { name: "k", value: size, expected });
        }
        let spare = (-mu).mul_add(size, lambda) / -mu;
        let load = lambda / mu;
        if spare <= 0.0 {
            return Err(QueueError::Unstable { rho: load / size });
        }
        let (mut r, mut idle);
        if load < 0.5 {
            // Σ r^n = λ / μ is convex: from the right Newton's method comes down to the root.
            r = load;
            for _ in 0..200 {
                let (mut sum, mut slope) = (0.0, 0.0);
                for _ in 0..k {
                    slope = slope * r + sum + 1.0;
                    sum = (sum + 1.0) * r;
                }
                let next = r - (sum - load) / slope;
                if r <= next || !next.is_finite() {
                    break;
                }
                r = next;
            }
            idle = 1.0 - r;
        } else {
            // Σ (1 − r^n) = K − λ / μ is concave and rising in 1 − r: from 0 it rises to the root.
            idle = 0.0;
            for _ in 0..500 {
                let base = f64::ln_1p(-idle);
                let (mut sum, mut slope) = (0.0, 0.0);
                for n in 1..=k {
                    let n = n as f64;
                    sum -= (n * base).exp_m1();
                    slope += n * ((n - 1.0) * base).exp();
                }
                let next = idle + (spare - sum) / slope;
                if next <= idle || next - idle <= 1e-17 * next {
                    break;
                }
                idle = next;
            }
            r = 1.0 - idle;
        }
        if lambda == 0.0 {
            (r, idle) = (0.0, 1.0);
        }
        Ok(Self { lambda, mu, k: size, rule, r, idle })
    }

    /// The root r below 1 of λ = μ (r + … + r^K): with it, states are geometric.
    #[must_use]
    pub fn r(&self) -> f64 {
        self.r
    }

    /// Probability that nobody is in the system.
    #[must_use]
    pub fn p0(&self) -> f64 {
        match self.rule {
            BatchRule::Joinable => self.idle,
            BatchRule::Full => self.idle / self.k,
            BatchRule::Closed => 1.0 / (1.0 + self.lambda / self.mu / self.idle),
        }
    }

    /// Mean number of jobs in the system.
    ///
    /// Without arrivals, a full batch waits for ever for its last: (K − 1) / 2 jobs.
    #[must_use]
    pub fn l(&self) -> f64 {
        match self.rule {
            BatchRule::Joinable => self.r / self.idle,
            BatchRule::Full => 0.5 * (self.k - 1.0) + self.r / self.idle,
            BatchRule::Closed => self.lq() + self.lambda / self.mu,
        }
    }

    /// Mean number of jobs that wait before their batch starts; where they join one, those beyond
    /// the first K.
    #[must_use]
    pub fn lq(&self) -> f64 {
        match self.rule {
            BatchRule::Joinable => self.r.powf(self.k) * self.r / self.idle,
            BatchRule::Full => (self.l() - self.lambda / self.mu).max(0.0),
            BatchRule::Closed => {
                self.p0() * (self.lambda / self.mu) * self.r / self.idle / self.idle
            }
        }
    }

    /// Mean response time; infinite for a full batch without arrivals.
    #[must_use]
    pub fn w(&self) -> f64 {
        if self.lambda == 0.0 {
            let waits = self.rule == BatchRule::Full && 1.0 < self.k;
            return if waits { f64::INFINITY } else { 1.0 / self.mu };
        }
        match self.rule {
            BatchRule::Closed => self.wq() + 1.0 / self.mu,
            _ => self.l() / self.lambda,
        }
    }

    /// Mean wait before the batch starts, or is joined.
    #[must_use]
    pub fn wq(&self) -> f64 {
        if self.lambda == 0.0 {
            let waits = self.rule == BatchRule::Full && 1.0 < self.k;
            return if waits { f64::INFINITY } else { 0.0 };
        }
        self.lq() / self.lambda
    }
}

/// M^\[X\]/M/1: batches of X jobs arrive at once and are served one by one.
///
/// # Examples
///
/// ```
/// use queueing::{BatchArrivals, batch::BatchSize};
///
/// let queue = BatchArrivals::new(0.05, BatchSize::Constant(4), 1.0)?;
/// assert!((queue.l() - 0.625).abs() < 1e-15); // ρ = 0.2; four at a time instead of 0.25
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchArrivals {
    lambda: f64,
    mu: f64,
    rho: f64,
    idle: f64,
    /// E\[X²\] / E\[X\].
    spread: f64,
}

/// A law of the number of jobs that arrive at once.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum BatchSize {
    /// Always this many, from 1 on.
    Constant(u64),
    /// Each is the last with this probability, from 1e-9 to 1.
    Geometric(f64),
}

impl BatchArrivals {
    /// The queue with `lambda` batches per unit of time and service rate `mu` of one job.
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if `mu <= lambda * E[X]`; other [`QueueError`] unless `lambda` is
    /// from 0 and `mu` from 1e-50 to 1e50, and the batch in its range.
    pub fn new(lambda: f64, size: BatchSize, mu: f64) -> Result<Self> {
        let (lambda, mu) = (zero_or_more("lambda", lambda)?, positive("mu", mu)?);
        let (jobs, idle, spread) = match size {
            BatchSize::Constant(k) => {
                let x = k as f64;
                if k < 1 {
                    let expected = "a whole number from 1 on";
                    return Err(QueueError::OutOfRange { name: "size", value: x, expected });
                }
                (lambda * x, (-lambda).mul_add(x, mu) / mu, x)
            }
            BatchSize::Geometric(p) => {
                let p = finite("size", p)?;
                if p < 1e-9 || 1.0 < p {
                    let expected = "from 1e-9 to 1";
                    return Err(QueueError::OutOfRange { name: "size", value: p, expected });
                }
                (lambda / p, mu.mul_add(p, -lambda) / (mu * p), (2.0 - p) / p)
            }
        };
        let rho = jobs / mu;
        if idle <= 0.0 {
            return Err(QueueError::Unstable { rho });
        }
        Ok(Self { lambda: jobs, mu, rho, idle, spread })
    }

    /// Arrival rate of jobs.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Share of time that the server is busy.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.rho
    }

    /// Probability that nobody is in the system.
    #[must_use]
    pub fn p0(&self) -> f64 {
        self.idle
    }

    /// Mean number of jobs in the system: ρ (1 + E\[X²\] / E\[X\]) / (2 (1 − ρ)).
    #[must_use]
    pub fn l(&self) -> f64 {
        self.lambda * self.w()
    }

    /// Mean number of jobs that wait.
    #[must_use]
    pub fn lq(&self) -> f64 {
        self.lambda * self.wq()
    }

    /// Mean response time. Without arrivals, that of a lone batch.
    #[must_use]
    pub fn w(&self) -> f64 {
        (1.0 + self.spread) / 2.0 / self.idle / self.mu
    }

    /// Mean wait before service, that for the others of the own batch included.
    #[must_use]
    pub fn wq(&self) -> f64 {
        // W − 1 / μ = ((X² − X) / 2 X + ρ) / ((1 − ρ) μ).
        ((self.spread - 1.0) / 2.0 + self.rho) / self.idle / self.mu
    }
}

/// Inoue's bound on the mean response of dynamic batching without a cap.
///
/// ```text
/// batch_w_bound = min((alpha + tau0) / (2 * (1 - lambda * alpha))
///                     * (1 + 2 * lambda * tau0 + (1 - lambda * tau0) / (1 + lambda * alpha)),
///                     1.5 * tau0 / (1 - lambda * alpha)
///                     + alpha / 2 * (lambda * alpha + 2) / (1 - (lambda * alpha)^2))
/// ```
///
/// `lambda` is the arrival rate; a batch of b takes `alpha` · b + `tau0`. The result is in their unit
/// of time, never below the exact mean of [`BatchLinear`], and at most 8.1 % above in 38 cases.
///
/// # Errors
///
/// As [`BatchLinear::new`].
///
/// # Examples
///
/// ```
/// // Without a fixed part, 0.1 s a job and 5 jobs a second: both bounds are exact.
/// let bound = queueing::batch::batch_w_bound(5.0, 0.1, 0.0)?;
/// assert!((bound - 0.05 * 2.5 / 0.75).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Inoue, arXiv 1912.06322.
pub fn batch_w_bound(lambda: f64, alpha: f64, tau0: f64) -> Result<f64> {
    BatchLinear::new(lambda, alpha, tau0).map(|queue| queue.w_bound())
}

/// The catalog entry of [`batch_w_bound`].
#[cfg(feature = "catalog")]
pub const BATCH_W_BOUND: Metric = Metric {
    id: "batch_w_bound",
    symbol: r"W^{\max}",
    name: text("Bound on the mean response, dynamic batching", "动态批处理平均响应时间的上界"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[LAMBDA, ALPHA, TAU0],
    formula: Formula::Scalar {
        text: "min((alpha + tau0) / (2 * (1 - lambda * alpha)) * (1 + 2 * lambda * tau0 + (1 - lambda * tau0) / (1 + lambda * alpha)), 1.5 * tau0 / (1 - lambda * alpha) + alpha / 2 * (lambda * alpha + 2) / (1 - (lambda * alpha)^2))",
        eval: |x| shown(TIME, batch_w_bound(x[0], x[1], x[2])),
        example: (&[5.0, 0.1, 0.0], 1.0 / 6.0),
    },
    path: "queueing::batch::batch_w_bound",
    source: Source { work: "Inoue, arXiv 1912.06322", section: "bounds" },
    note: text(
        "Stable as long as λ α is below 1, whatever the fixed part: batches grow with the load.",
        "只要 λα 小于 1 就稳定，与固定部分无关：批随负载变大。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const ALPHA: Input = Input::real(
    "alpha",
    r"\alpha",
    TIME,
    (0.001, 0.1),
    text("time that each request adds to a batch", "每个请求给批增加的时间"),
);
#[cfg(feature = "catalog")]
const TAU0: Input = Input::real(
    "tau0",
    r"\tau_0",
    TIME,
    (0.0, 1.0),
    text("time of a batch without requests", "批的固定时间"),
);

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&BATCH_W_BOUND];
