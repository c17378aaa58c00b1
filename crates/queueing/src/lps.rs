//! Limited processor sharing with rates that depend on the batch: the chain of LLM autoscalers.
//!
//! At most N jobs are served at once, at a total rate that depends on how many they are; the others
//! wait in order. With exponential work this is a birth-death chain on the number in the system. An
//! engine with continuous batching is such a queue if a request's service time S(n) depends on the
//! batch n: the total rate is n / S(n).
//!
//! **What is exact.** The chain's means, states, blocking, and the law of the wait before service
//! (which the autoscaler itself does not compute). What is not: that a request's work is
//! exponential, and that the prefill and the gap between tokens are given as means.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "indices come from whole numbers that were checked to be below 10^8"
)]

use crate::error::{QueueError, Result, finite, not_negative, positive, probability, zero_or_more};
use crate::model::Queue;
use crate::numeric::poisson;
use crate::search::root;

/// Most slots, and most waiting places, that a chain takes.
pub const MAX_PLACES: u64 = 1_000_000;

/// 2^n.
fn power_of_two(n: i32) -> f64 {
    2.0_f64.powi(n)
}

/// value · 2^(512 shift), so that products of a million ratios neither overflow nor vanish.
#[derive(Clone, Copy)]
struct Scaled {
    value: f64,
    shift: i64,
}

impl Scaled {
    fn times(self, factor: f64) -> Self {
        let mut next = Self { value: self.value * factor, shift: self.shift };
        while power_of_two(256) < next.value {
            next.value *= power_of_two(-512);
            next.shift += 1;
        }
        while 0.0 < next.value && next.value < power_of_two(-256) {
            next.value *= power_of_two(512);
            next.shift -= 1;
        }
        next
    }

    /// The value in units of 2^(512 top), for top at least as large as the shift or nearly.
    fn at(self, top: i64) -> f64 {
        match top - self.shift {
            0 => self.value,
            1 => self.value * power_of_two(-512),
            2 => self.value * power_of_two(-512) * power_of_two(-512),
            _ => 0.0,
        }
    }
}

/// Limited processor sharing with state-dependent rates.
///
/// # Examples
///
/// ```
/// use queueing::{LpsStateDependent, Queue};
///
/// // Two slots; both together are served one and a half times as fast as one alone.
/// let queue = LpsStateDependent::new(1.0, &[1.0, 1.5], Some(0))?;
/// // Weights 1, 1, 2/3.
/// assert!((queue.p0() - 3.0 / 8.0).abs() < 1e-15);
/// assert!((queue.p_block() - 0.25).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: birth-death chains, Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
#[derive(Clone, Debug, PartialEq)]
pub struct LpsStateDependent {
    lambda: f64,
    rates: Vec<f64>,
    queue: Option<u64>,
    /// Probabilities of 0 to N jobs, and with finite room of up to N + Q.
    p: Vec<f64>,
    /// λ over the rate of a full batch.
    load: f64,
    /// 1 − load.
    idle: f64,
    l: f64,
    lq: f64,
    in_service: f64,
    /// Probability that an arrival finds room.
    accepted: f64,
    p_block: f64,
    /// P(an accepted arrival finds at least N + j jobs), with finite room.
    later: Vec<f64>,
}

impl LpsStateDependent {
    /// The queue with arrival rate `lambda`, total service rate `rates[n - 1]` while `n` jobs are
    /// in service, `rates.len()` slots, and `queue` waiting places (`None`: as many as it takes).
    ///
    /// # Errors
    ///
    /// [`QueueError::Unstable`] if room is unlimited and `lambda` is not below the last rate; other
    /// [`QueueError`] unless `lambda` is from 0 and each rate from 1e-50 to 1e50, and there are
    /// from 1 to 10^6 rates and at most 10^6 waiting places.
    pub fn new(lambda: f64, rates: &[f64], queue: Option<u64>) -> Result<Self> {
        let lambda = zero_or_more("lambda", lambda)?;
        let slots = rates.len() as u64;
        let places = |name, value: u64| QueueError::OutOfRange {
            name,
            value: value as f64,
            expected: "at most 1000000, and at least 1 slot",
        };
        if slots < 1 || MAX_PLACES < slots {
            return Err(places("rates", slots));
        }
        let waiting = queue.unwrap_or(0);
        if MAX_PLACES < waiting {
            return Err(places("queue", waiting));
        }
        for &rate in rates {
            positive("rates", rate)?;
        }
        let full = rates[rates.len() - 1];
        let (load, idle) = (lambda / full, (full - lambda) / full);
        if queue.is_none() && full <= lambda {
            return Err(QueueError::Unstable { rho: load });
        }
        let mut weights = vec![Scaled { value: 1.0, shift: 0 }];
        let mut weight = weights[0];
        for rate in rates.iter().copied().chain((0..waiting).map(|_| full)) {
            weight = weight.times(lambda / rate);
            weights.push(weight);
        }
        let top = weights.iter().filter(|w| 0.0 < w.value).map(|w| w.shift).max().unwrap_or(0);
        let mut p: Vec<f64> = weights.iter().map(|w| w.at(top)).collect();
        let n_full = rates.len();
        // Unlimited room goes on as a geometric series.
        let at_full = p[n_full];
        let (more, more_queued) = if queue.is_none() {
            (at_full * load / idle, at_full * load / idle / idle)
        } else {
            (0.0, 0.0)
        };
        let (mut below, mut l, mut lq, mut in_service) = (0.0, 0.0, 0.0, 0.0);
        let last = p.len() - 1;
        for (n, &weight) in p.iter().enumerate() {
            if n < last || queue.is_none() {
                below += weight;
            }
            l += n as f64 * weight;
            lq += n.saturating_sub(n_full) as f64 * weight;
            in_service += n.min(n_full) as f64 * weight;
        }
        below += more;
        l += n_full as f64 * more + more_queued;
        lq += more_queued;
        in_service += n_full as f64 * more;
        let p_last = if queue.is_none() { 0.0 } else { p[last] };
        let total = below + p_last;
        for weight in &mut p {
            *weight /= total;
        }
        let accepted = below / total;
        let mut later = Vec::new();
        if 0 < waiting {
            later = vec![0.0; waiting as usize];
            let mut sum = 0.0;
            for (j, tail) in later.iter_mut().enumerate().rev() {
                sum += p[n_full + j];
                // With more arrivals than 10^16 times the service, hardly any is let in.
                *tail = if 0.0 < accepted { (sum / accepted).min(1.0) } else { 1.0 };
            }
        }
        Ok(Self {
            lambda,
            rates: rates.to_vec(),
            queue,
            load,
            idle,
            l: l / total,
            lq: lq / total,
            in_service: in_service / total,
            accepted,
            p_block: p_last / total,
            later,
            p,
        })
    }

    /// M/M/1 with limited processor sharing: the rate `mu` does not depend on the batch.
    ///
    /// The number in the system is that of M/M/1 for any number of slots, and Lq is
    /// ρ^(slots + 1) / (1 − ρ).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn mm1(lambda: f64, mu: f64, slots: u64) -> Result<Self> {
        if MAX_PLACES < slots {
            return Self::new(lambda, &[], None).map_err(|_| QueueError::OutOfRange {
                name: "slots",
                value: slots as f64,
                expected: "from 1 to 1000000",
            });
        }
        Self::new(lambda, &vec![mu; slots as usize], None)
    }

    /// Arrival rate, those turned away included.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Jobs that are served at once at most.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.rates.len() as u64
    }

    /// Waiting places; `None`: as many as it takes.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        self.queue
    }

    /// Total service rate while 1, 2, … jobs are in service.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Arrival rate over the rate of a full batch, which may exceed 1 where room is finite.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.load
    }

    /// Variance of the number in the system.
    #[must_use]
    pub fn var_n(&self) -> f64 {
        let mean = self.l;
        let square = |n: f64| (n - mean) * (n - mean);
        let mut sum: f64 = self.p.iter().enumerate().map(|(n, p)| p * square(n as f64)).sum();
        if self.queue.is_none() {
            // Beyond the last listed state a geometric number j from 1 on is added.
            let last = self.p.len() - 1;
            let (p, off) = (self.p[last] * self.load / self.idle, last as f64 - mean);
            let (first, second) = (1.0 / self.idle, (1.0 + self.load) / self.idle / self.idle);
            sum += p * (off * off + 2.0 * off * first + second);
        }
        sum.max(0.0)
    }

    /// Mean wait of the jobs that are let in and do wait; 0 if none can.
    #[must_use]
    pub fn wq_given_wait(&self) -> f64 {
        let wait = self.p_wait();
        if 0.0 < wait { self.wq() / wait } else { 0.0 }
    }

    /// Mean number in service: the mean batch.
    #[must_use]
    pub fn in_service(&self) -> f64 {
        self.in_service
    }

    /// Mean time in service, of the jobs let in.
    #[must_use]
    pub fn service(&self) -> f64 {
        let rate = self.throughput();
        if 0.0 < rate { self.in_service / rate } else { 1.0 / self.rates[0] }
    }

    /// Probability that an arrival finds no room.
    #[must_use]
    pub fn p_block(&self) -> f64 {
        self.p_block
    }

    fn full_rate(&self) -> f64 {
        self.rates[self.rates.len() - 1]
    }

    /// Probability that the wait of a job that is let in is longer than `t`.
    ///
    /// A job that finds N + j jobs waits for j + 1 departures, each after an exponential time at
    /// the rate of a full batch.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `t` is finite and not negative.
    pub fn wq_sf(&self, t: f64) -> Result<f64> {
        not_negative("t", t).map(|t| self.late(t))
    }

    fn late(&self, t: f64) -> f64 {
        if self.queue.is_none() {
            return self.p_wait() * (-self.idle * (self.full_rate() * t)).exp();
        }
        if t == 0.0 {
            return self.p_wait();
        }
        let departures = self.full_rate() * t;
        if 1e15 < departures || self.later.is_empty() {
            return 0.0; // more than a million waiting places could hold
        }
        // Σ P(j departures) P(more than j wait), from its largest Poisson term both ways.
        let end = self.later.len() as f64;
        let mode = departures.floor().min(end - 1.0);
        let at_mode = poisson(mode, departures);
        let (mut sum, mut p, mut j) = (0.0, at_mode, mode);
        while j < end {
            sum += p * self.later[j as usize];
            j += 1.0;
            p *= departures / j;
            if p <= 1e-18 * sum {
                break;
            }
        }
        (p, j) = (at_mode, mode);
        while 0.0 < j {
            p *= j / departures;
            j -= 1.0;
            sum += p * self.later[j as usize];
            if p <= 1e-18 * sum {
                break;
            }
        }
        sum.min(1.0)
    }

    /// Shortest time within which the wait of a job that is let in ends with probability `p`.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `p` is from 0 to 1; [`QueueError::NotConverged`] if it is not found.
    pub fn wq_quantile(&self, p: f64) -> Result<f64> {
        let rest = 1.0 - probability("p", p)?;
        if self.p_wait() <= rest {
            return Ok(0.0);
        }
        if rest == 0.0 {
            return Ok(f64::INFINITY);
        }
        let full = self.full_rate();
        if self.queue.is_none() {
            return Ok((self.p_wait() / rest).ln() / self.idle / full);
        }
        let error = |t: f64| (rest / self.late(t / full)).ln();
        Ok(root("wq_quantile", error, 0.0, 1.0)? / full)
    }
}

impl Queue for LpsStateDependent {
    /// Mean share of the slots that are in use.
    fn utilization(&self) -> f64 {
        self.in_service / self.rates.len() as f64
    }
    fn l(&self) -> f64 {
        self.l
    }
    fn lq(&self) -> f64 {
        self.lq
    }
    fn w(&self) -> f64 {
        let rate = self.throughput();
        if 0.0 < rate { self.l / rate } else { 1.0 / self.rates[0] }
    }
    fn wq(&self) -> f64 {
        let rate = self.throughput();
        if 0.0 < rate { self.lq / rate } else { 0.0 }
    }
    fn p0(&self) -> f64 {
        self.p[0]
    }
    fn pn(&self, n: u64) -> Result<f64> {
        let last = self.p.len() - 1;
        if n <= last as u64 {
            return Ok(self.p[n as usize]);
        }
        if self.queue.is_some() {
            return Ok(0.0);
        }
        Ok(self.p[last] * self.load.powf((n - last as u64) as f64))
    }
    fn throughput(&self) -> f64 {
        self.lambda * self.accepted
    }
    fn p_wait(&self) -> f64 {
        match self.queue {
            None => (self.p[self.rates.len()] / self.idle).min(1.0),
            Some(_) => self.later.first().copied().unwrap_or(0.0),
        }
    }
}

/// How long an engine takes for a request in a batch of n, as the LLM autoscaler models it.
///
/// `alpha` is the time of a step that does not depend on the batch, `beta` that of one token's
/// computation, `gamma` that of one token's memory access; all in one unit of time. Prompt and
/// answer have `n_in` and `n_out` tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ServingLaw {
    /// October 2025: S = gamma + delta n_in n + (n_out − 1) (alpha + beta n).
    V1 {
        /// Time of a decode step without requests.
        alpha: f64,
        /// More of it per request.
        beta: f64,
        /// Time of a prefill without tokens.
        gamma: f64,
        /// More of it per prompt token and request.
        delta: f64,
    },
    /// February 2026: a step T(n) = alpha + n (beta (n_in + n_out) / (n_out + 1) +
    /// gamma (n_in + n_out / 2)); S = T + (beta + gamma) n_in + n_out (T + beta +
    /// gamma (n_in + n_out / 2)).
    V2 {
        /// Time of a step without requests.
        alpha: f64,
        /// Time of one token's computation.
        beta: f64,
        /// Time of one token's memory access.
        gamma: f64,
    },
    /// June 2026: prompts are prefilled in chunks of a budget of 8192 tokens a step.
    Chunked {
        /// Time of a step without requests.
        alpha: f64,
        /// Time of one token's computation.
        beta: f64,
        /// Time of one token's memory access.
        gamma: f64,
    },
}

/// Tokens that a step of [`ServingLaw::Chunked`] takes.
const BUDGET: f64 = 8192.0;

impl ServingLaw {
    fn check(self) -> Result<Self> {
        let (alpha, beta, gamma, delta) = match self {
            Self::V1 { alpha, beta, gamma, delta } => (alpha, beta, gamma, delta),
            Self::V2 { alpha, beta, gamma } | Self::Chunked { alpha, beta, gamma } => {
                (alpha, beta, gamma, 0.0)
            }
        };
        for (name, value) in [("alpha", alpha), ("beta", beta), ("gamma", gamma), ("delta", delta)]
        {
            let value = finite(name, value)?;
            if value < 0.0 || 1e9 < value {
                return Err(QueueError::OutOfRange { name, value, expected: "from 0 to 1e9" });
            }
        }
        Ok(self)
    }
}

/// One model server as the LLM autoscaler sees it.
///
/// # Examples
///
/// The autoscaler's published example, in milliseconds: TTFT of at most 60 ms on average.
///
/// ```
/// use queueing::lps::{Autoscaler, ServingLaw};
///
/// let law = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
/// let server = Autoscaler::new(law, 128.0, 512.0, 48, 128)?;
/// let rate = server.max_rate_for_ttft(60.0)?;
/// assert!((rate * 1e3 - 2.949_464).abs() < 1e-6); // requests per second
/// let state = server.at(rate)?;
/// // The mean hides the tail: 1.3 % of the requests wait, and they make the mean of 14 ms.
/// assert!((state.wait - 14.219_127).abs() < 1e-5);
/// assert!((state.chain.wq_quantile(0.99)? - 287.91).abs() < 0.01);
/// assert!((state.ttft_quantile(0.99)? - 333.69).abs() < 0.01); // of a mean of 60
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: llm-inferno/queue-analysis, `pkg/queue` and `pkg/analyzer` at cfadd1c; llm-d workload
/// variant autoscaler at 56a651b (V1) and b08b1c7 (V2). They compute in 32 bits and give means
/// only.
#[derive(Clone, Debug, PartialEq)]
pub struct Autoscaler {
    law: ServingLaw,
    n_in: f64,
    n_out: f64,
    max_batch: u64,
    max_queue: u64,
}

/// What the chain says of one server at one arrival rate.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// Rate of requests served.
    pub throughput: f64,
    /// Mean response time: wait plus service.
    pub response: f64,
    /// Mean wait before service.
    pub wait: f64,
    /// Mean batch.
    pub in_service: f64,
    /// Mean time in service.
    pub service: f64,
    /// Mean prefill.
    pub prefill: f64,
    /// Mean time between tokens.
    pub itl: f64,
    /// Mean wait + prefill + first gap between tokens.
    pub ttft: f64,
    /// Probability that a request is turned away.
    pub p_block: f64,
    /// The chain itself, for states and percentiles of the wait.
    pub chain: LpsStateDependent,
}

impl ServerState {
    /// Time to first token that a share `p` of the requests keeps: the exact percentile of the
    /// chain's wait, plus the mean prefill and the mean gap, which the model does not spread.
    ///
    /// # Errors
    ///
    /// As [`LpsStateDependent::wq_quantile`].
    pub fn ttft_quantile(&self, p: f64) -> Result<f64> {
        self.chain.wq_quantile(p).map(|wait| wait + self.prefill + self.itl)
    }
}

impl Autoscaler {
    /// A server that runs at most `max_batch` requests at once and lets `max_queue` wait, for
    /// requests of `n_in` prompt tokens and `n_out` output tokens on average.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless coefficients are from 0 to 1e9, `n_in` from 0 and `n_out` from 1 to
    /// 1e9, `max_batch` from 1 and `max_queue` from 0 to 10^6, and the service time is above 0 (no
    /// prompt and one output token give 0 in the older laws); `n_in` at most 8192 tokens times
    /// 10^4 chunks where prompts are chunked.
    pub fn new(
        law: ServingLaw,
        n_in: f64,
        n_out: f64,
        max_batch: u64,
        max_queue: u64,
    ) -> Result<Self> {
        let (n_in, n_out) = (zero_or_more("n_in", n_in)?, positive("n_out", n_out)?);
        if 1e9 < n_in {
            return Err(QueueError::OutOfRange {
                name: "n_in",
                value: n_in,
                expected: "from 0 to 1e9",
            });
        }
        if n_out < 1.0 || 1e9 < n_out {
            let expected = "from 1 to 1e9";
            return Err(QueueError::OutOfRange { name: "n_out", value: n_out, expected });
        }
        for (name, value, least) in [("max_batch", max_batch, 1), ("max_queue", max_queue, 0)] {
            if value < least || MAX_PLACES < value {
                let (value, expected) = (value as f64, "at most 1000000, and at least 1 slot");
                return Err(QueueError::OutOfRange { name, value, expected });
            }
        }
        let server = Self { law: law.check()?, n_in, n_out, max_batch, max_queue };
        positive("service", server.service(1.0)?)?;
        Ok(server)
    }

    /// Most requests that run at once.
    #[must_use]
    pub fn max_batch(&self) -> u64 {
        self.max_batch
    }

    /// Most requests that wait.
    #[must_use]
    pub fn max_queue(&self) -> u64 {
        self.max_queue
    }

    /// The same server with another limit on its batch.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_max_batch(&self, max_batch: u64) -> Result<Self> {
        Self::new(self.law, self.n_in, self.n_out, max_batch, self.max_queue)
    }

    /// Service time S(n) of a request in a batch of `n`.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `n` is from 0 to 1e50, or if a prompt needs too many chunks.
    pub fn service(&self, n: f64) -> Result<f64> {
        let n = zero_or_more("n", n)?;
        let (n_in, m) = (self.n_in, self.n_out);
        Ok(match self.law {
            ServingLaw::V1 { alpha, beta, gamma, delta } => {
                gamma + delta * n_in * n + (m - 1.0) * (alpha + beta * n)
            }
            ServingLaw::V2 { alpha, beta, gamma } => {
                let memory = gamma * (n_in + 0.5 * m);
                let step = alpha + n * (beta * (n_in + m) / (m + 1.0) + memory);
                step + (beta + gamma) * n_in + m * (step + beta + memory)
            }
            ServingLaw::Chunked { alpha, .. } => {
                let (chunks, _, per_request) = self.chunked(n)?;
                (chunks + m) * (alpha + n * per_request)
            }
        })
    }

    /// Chunks of a prompt, its own work in the prefill, and what a request adds to a step.
    fn chunked(&self, n: f64) -> Result<(f64, f64, f64)> {
        const MOST: f64 = 10_000.0;
        let ServingLaw::Chunked { beta, gamma, .. } = self.law else {
            return Ok((1.0, 0.0, 0.0));
        };
        let (n_in, m) = (self.n_in, self.n_out);
        let mut chunks = 1.0;
        while ((chunks + m) * (BUDGET - n_in / chunks) / (n_in + m)).floor() < n {
            chunks += 1.0;
            if MOST < chunks {
                let reason = format!(
                    "prompts of {n_in} tokens in a batch of {n} must fit 8192 tokens a step within {MOST} chunks"
                );
                return Err(QueueError::NoSolution { reason });
            }
        }
        let prefill = (beta + gamma * (chunks + 1.0) / 2.0) * n_in;
        let decode = beta * m + gamma * m * (n_in + (m + 1.0) / 2.0);
        Ok((chunks, prefill, (prefill + decode) / (chunks + m)))
    }

    fn chain(&self, rate: f64) -> Result<LpsStateDependent> {
        let mut rates = Vec::with_capacity(self.max_batch as usize);
        for n in 1..=self.max_batch {
            let n = n as f64;
            rates.push(n / self.service(n)?);
        }
        LpsStateDependent::new(rate, &rates, Some(self.max_queue))
    }

    /// The largest rate that the server can serve, with every slot in use.
    ///
    /// # Errors
    ///
    /// As [`service`](Self::service).
    pub fn max_rate(&self) -> Result<f64> {
        let n = self.max_batch as f64;
        Ok(n / self.service(n)?)
    }

    /// The server under arrivals at `rate`.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `rate` is from 0 to 1e50.
    pub fn at(&self, rate: f64) -> Result<ServerState> {
        let chain = self.chain(zero_or_more("rate", rate)?)?;
        let (service, n, m) = (chain.service(), chain.in_service(), self.n_out);
        let (prefill, itl) = match self.law {
            ServingLaw::V1 { alpha, beta, gamma, delta } => {
                // The batch at which S(n) is the mean service time.
                let slope = delta * self.n_in + (m - 1.0) * beta;
                let fixed = gamma + (m - 1.0) * alpha;
                let n = if slope == 0.0 { 0.0 } else { ((service - fixed) / slope).max(0.0) };
                (gamma + delta * self.n_in * n, alpha + beta * n)
            }
            ServingLaw::V2 { alpha, beta, gamma } => {
                let memory = gamma * (self.n_in + 0.5 * m);
                let step = alpha + n * (beta * (self.n_in + m) / (m + 1.0) + memory);
                let prefill = step + (beta + gamma) * self.n_in;
                (prefill, ((service - prefill) / m).max(0.0))
            }
            ServingLaw::Chunked { alpha, .. } => {
                let (chunks, own, per_request) = self.chunked(n)?;
                let prefill = chunks * (alpha + (n - 1.0) * per_request).max(0.0) + own;
                (prefill, ((service - prefill) / m).max(0.0))
            }
        };
        let wait = chain.wq();
        Ok(ServerState {
            throughput: chain.throughput(),
            response: chain.w(),
            wait,
            in_service: n,
            service,
            prefill,
            itl,
            ttft: wait + prefill + itl,
            p_block: chain.p_block(),
            chain,
        })
    }

    /// The largest rate at which mean TTFT is at most `limit`.
    ///
    /// Searched, as the autoscaler does, from a thousandth of the rate of one request at a time to
    /// 0.999 of [`max_rate`](Self::max_rate), of which the last is returned if it still meets the
    /// limit.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSolution`] if even the lowest of these rates does not meet it.
    pub fn max_rate_for_ttft(&self, limit: f64) -> Result<f64> {
        self.max_rate_for("ttft", positive("limit", limit)?, |state| Ok(state.ttft))
    }

    /// The largest rate at which the mean time between tokens is at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`max_rate_for_ttft`](Self::max_rate_for_ttft).
    pub fn max_rate_for_itl(&self, limit: f64) -> Result<f64> {
        self.max_rate_for("itl", positive("limit", limit)?, |state| Ok(state.itl))
    }

    /// The largest rate at which a share `p` of the requests has a TTFT of at most `limit`, as
    /// [`ServerState::ttft_quantile`] has it.
    ///
    /// # Errors
    ///
    /// As [`max_rate_for_ttft`](Self::max_rate_for_ttft).
    pub fn max_rate_for_ttft_quantile(&self, p: f64, limit: f64) -> Result<f64> {
        let p = crate::error::target("p", p)?;
        self.max_rate_for("ttft quantile", positive("limit", limit)?, |s| s.ttft_quantile(p))
    }

    fn max_rate_for(
        &self,
        what: &str,
        limit: f64,
        of: impl Fn(&ServerState) -> Result<f64>,
    ) -> Result<f64> {
        let meets = |rate: f64| Ok::<_, QueueError>(of(&self.at(rate)?)? <= limit);
        let (mut low, mut high) = (0.001 / self.service(1.0)?, 0.999 * self.max_rate()?);
        if !meets(low)? {
            let value = of(&self.at(low)?)?;
            let reason =
                format!("{what} must be at most {limit}, got {value} at the lowest rate {low}");
            return Err(QueueError::NoSolution { reason });
        }
        if high <= low || meets(high)? {
            return Ok(high.max(low));
        }
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if middle <= low || high <= middle {
                break;
            }
            if meets(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
