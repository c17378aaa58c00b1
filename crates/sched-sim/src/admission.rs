//! Who may come in: limits on the queue, a token bucket and the admission rule, all in front of the
//! queue of a server.
//!
//! The formulas are those of [`metrics_core::admission`]; here they have a clock. All are off
//! unless a server is told otherwise.

use std::collections::VecDeque;
use std::str::FromStr;

use metrics_core::admission::{SLO_SHARE, admit};
use metrics_core::grammar;
use metrics_core::summary::{PercentileMethod, percentile_by};
use metrics_core::units::RequestsPerSecond;

use crate::error::{Result, SimError};
use crate::memory::ServerSettings;
use crate::policy::limit;
use crate::server::{Over, Rejection};
use crate::time::Ticks;
use crate::workload::law::{Parameters, within};

/// Permits for requests that come at a steady rate, of which a bucket keeps so many; who arrives
/// takes one, or is refused. It starts full.
///
/// Written `RATE,burst=N`, the rate with its unit, the burst 1 if it is left out.
///
/// # Examples
///
/// ```
/// use sched_sim::TokenBucket;
///
/// let bucket: TokenBucket = "10/s,burst=20".parse()?;
/// assert_eq!(bucket, TokenBucket::new("100ms".parse()?, 20)?);
/// assert!("0/s".parse::<TokenBucket>().is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    every: Ticks,
    burst: u64,
}

impl TokenBucket {
    /// A permit comes `every` so long, and `burst` of them are kept.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] if either is 0, [`SimError::TooLarge`] above 2³² − 1 permits,
    /// [`SimError::TimeOutOfRange`] for a time longer than a run.
    pub fn new(every: Ticks, burst: u64) -> Result<Self> {
        let every = every.within_a_run("the time from permit to permit")?;
        if every == Ticks::ZERO {
            let input = "attoseconds from permit to permit";
            return Err(SimError::TooSmall { input, min: 1, value: 0 });
        }
        Ok(Self { every, burst: limit("burst", burst)? })
    }
}

impl FromStr for TokenBucket {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self> {
        const WHAT: &str = "token bucket";
        let read = Parameters::read(WHAT, text, text, &["rate", "burst"])?;
        let wrong = |expected: &str| {
            let expected = expected.to_owned();
            Err(SimError::Grammar { what: WHAT, text: text.to_owned(), expected })
        };
        let rate = read.get("rate").unwrap_or_default();
        // A bare number could be permits a second, or the burst.
        if rate.parse::<f64>().is_ok() {
            return wrong("a rate with its unit, such as 10/s or 600/min");
        }
        let number = rate.split_once('/').and_then(|(number, _)| number.trim().parse::<f64>().ok());
        let per_second = grammar::rate(rate).ok().map(RequestsPerSecond::get);
        if number.or(per_second).is_none_or(|rate| rate <= 0.0) {
            return wrong("a rate above 0, such as 10/s");
        }
        let every = per_second.and_then(|rate| Ticks::from_seconds(rate.recip()).ok());
        let Some(every) = every.filter(|&every| Ticks::ZERO < every) else {
            return wrong("a rate from 3.2e-10/s, one in a hundred years, to 1e18/s");
        };
        Self::new(every, read.count("burst", Some(1))?)
    }
}

impl std::fmt::Display for TokenBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = metrics_core::format::value(self.every.seconds().recip());
        f.pad(&format!("{rate}/s,burst={}", self.burst))
    }
}

/// A bucket, and what is in it.
#[derive(Clone, Copy, Debug)]
struct Permits {
    bucket: TokenBucket,
    /// When it was last looked at.
    at: Ticks,
    /// What had come by then, in the time that it takes to come: exact, where a number of permits
    /// would be rounded.
    fill: u128,
}

impl Permits {
    fn new(bucket: TokenBucket) -> Self {
        let fill = bucket.every.0 * u128::from(bucket.burst);
        Self { bucket, at: Ticks::ZERO, fill }
    }

    /// Takes a permit at an instant that is not before the last one; whether there is one.
    fn take(&mut self, at: Ticks) -> bool {
        let TokenBucket { every, burst } = self.bucket;
        let come = at.since(self.at).unwrap_or_default().0;
        self.fill = (self.fill + come).min(every.0 * u128::from(burst));
        self.at = at;
        let left = self.fill.checked_sub(every.0);
        self.fill = left.unwrap_or(self.fill);
        left.is_some()
    }
}

/// Refuses whoever arrives unless queue, KV cache and tail latency all have room, by
/// [`metrics_core::admission::admit`].
///
/// The latency is TTFT: its P99 (nearest rank) over the requests that completed in the last
/// `window`, 0 without any. All three are taken when the server takes note of the arrival, at the
/// end of the step under way.
///
/// Written `queue=16,kv=0.9,slo=500ms,window=30s`.
///
/// # Examples
///
/// ```
/// use sched_sim::AdmissionRule;
///
/// let rule: AdmissionRule = "queue=16,kv=0.9,slo=500ms,window=30s".parse()?;
/// assert_eq!(rule, AdmissionRule::new(16, 0.9, "500ms".parse()?, "30s".parse()?)?);
/// assert!("queue=16,kv=90,slo=500ms,window=30s".parse::<AdmissionRule>().is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionRule {
    queue: u64,
    kv: f64,
    slo: Ticks,
    window: Ticks,
}

// The share is checked to be a number.
impl Eq for AdmissionRule {}

impl AdmissionRule {
    /// A request comes in while fewer than `queue` wait, less than the share `kv` of the KV blocks
    /// is in use (none, if they have no bound), and P99 is below 0.8 of `slo`.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] unless `kv` is from 0 to 1 and `slo` and `window` are above 0,
    /// [`SimError::TimeOutOfRange`] for times longer than a run.
    pub fn new(queue: u64, kv: f64, slo: Ticks, window: Ticks) -> Result<Self> {
        const RULE: &str = "admission rule";
        within(RULE, "kv", kv, "a share from 0 to 1", (0.0..=1.0).contains(&kv))?;
        for (name, time) in [("slo", slo), ("window", window)] {
            within(RULE, name, time.seconds(), "above 0 s", Ticks::ZERO < time)?;
            time.within_a_run("a time of the admission rule")?;
        }
        Ok(Self { queue, kv, slo, window })
    }
}

impl FromStr for AdmissionRule {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self> {
        const WHAT: &str = "admission rule";
        let names = ["queue", "kv", "slo", "window"];
        let read = Parameters::read(WHAT, text, text, &names)?;
        if names.iter().any(|name| read.get(name).is_none()) {
            let expected = "all four of queue, kv, slo and window, such as \
                            queue=16,kv=0.9,slo=500ms,window=30s"
                .to_owned();
            return Err(SimError::Grammar { what: WHAT, text: text.to_owned(), expected });
        }
        let (queue, kv) = (read.count("queue", None)?, read.number("kv", None)?);
        Self::new(queue, kv, read.time("slo")?, read.time("window")?)
    }
}

impl std::fmt::Display for AdmissionRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { queue, kv, slo, window } = self;
        let (slo, window) = (slo.compact(), window.compact());
        f.pad(&format!("queue={queue},kv={kv},slo={slo},window={window}"))
    }
}

/// All that refuses who arrives at a server, whatever its scheduler is, in the order in which it is
/// asked: how many wait, their tokens, the rule, and a permit that nobody takes whom the others refuse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    max_waiting: Option<u64>,
    max_waiting_tokens: Option<u64>,
    door: Option<Door>,
    permits: Option<Permits>,
}

/// What a gate looks at when somebody arrives.
pub(crate) struct Seen<W, K> {
    /// Requests that wait.
    pub waiting: u64,
    /// The tokens that they have to prefill.
    pub waiting_tokens: W,
    /// The share of the KV blocks in use; 0 if they have no bound.
    pub kv_used: K,
}

impl Gate {
    pub fn new(settings: &ServerSettings) -> Self {
        Self {
            max_waiting: settings.max_waiting,
            max_waiting_tokens: settings.max_waiting_tokens,
            door: settings.rule.map(Door::new),
            permits: settings.bucket.map(Permits::new),
        }
    }

    /// Whether what it says depends on when exactly the server takes note of an arrival: the KV cache
    /// and the latest completions change from step to step.
    #[inline]
    pub fn looks(&self) -> bool {
        self.door.is_some()
    }

    /// Takes note of a request that is complete.
    pub fn completed(&mut self, over: &Over) {
        if let Some(door) = &mut self.door {
            door.completed(over);
        }
    }

    /// Why a request with so many tokens to prefill, of which the server takes note now, is refused,
    /// if it is.
    pub fn refusal(
        &mut self,
        (id, own_tokens): (u64, u64),
        (arrival, now): (Ticks, Ticks),
        seen: Seen<impl FnOnce() -> u64, impl FnOnce() -> f64>,
    ) -> Option<Rejection> {
        let Seen { waiting, waiting_tokens, kv_used } = seen;
        if let Some(max) = self.max_waiting.filter(|&max| max <= waiting) {
            return Some(Rejection::QueueFull { id, waiting, max });
        }
        if let Some(max) = self.max_waiting_tokens {
            let tokens = own_tokens + waiting_tokens();
            if max < tokens {
                return Some(Rejection::QueueTokens { id, tokens, max });
            }
        }
        if let Some(door) = &mut self.door
            && let Some(shut) = door.shut(now, waiting, kv_used())
        {
            return Some(Rejection::Shut { id, shut });
        }
        let permit = self.permits.as_mut().is_none_or(|permits| permits.take(arrival));
        (!permit).then_some(Rejection::NoPermit { id })
    }
}

/// What keeps the door shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shut {
    /// As many requests wait as the rule lets in.
    Queue,
    /// As many KV blocks are in use.
    Kv,
    /// The P99 of TTFT is not below 0.8 of its SLO.
    Latency,
}

impl std::fmt::Display for Shut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Queue => "the queue is at its limit",
            Self::Kv => "the KV cache is at its limit",
            Self::Latency => "the P99 of TTFT is not below 0.8 of its SLO",
        })
    }
}

/// A rule, with the latencies that it goes by.
#[derive(Clone, Debug)]
struct Door {
    rule: AdmissionRule,
    /// Completions of the last window, with the TTFT in seconds.
    recent: VecDeque<(Ticks, f64)>,
}

impl Door {
    fn new(rule: AdmissionRule) -> Self {
        Self { rule, recent: VecDeque::new() }
    }

    /// Takes note of a request that is complete.
    fn completed(&mut self, over: &Over) {
        let first = over.progress.record.first_token();
        if let Some(ttft) = first.and_then(|first| first.since(over.progress.arrival)) {
            self.recent.push_back((over.at, ttft.seconds()));
        }
    }

    /// What keeps it shut to a request that arrives now, if anything does.
    fn shut(&mut self, now: Ticks, waiting: u64, kv_used: f64) -> Option<Shut> {
        let AdmissionRule { queue, kv, slo, window } = self.rule;
        while self.recent.front().is_some_and(|&(at, _)| at.after(window) < now) {
            self.recent.pop_front();
        }
        let ttft: Vec<f64> = self.recent.iter().map(|&(_, ttft)| ttft).collect();
        // An error is that of an empty list: nothing says that it is slow.
        let p99 = percentile_by(&ttft, 0.99, PercentileMethod::NearestRank).unwrap_or_default();
        let seconds = metrics_core::Seconds::new;
        let open = seconds(p99).and_then(|p99| {
            let slo = seconds(slo.seconds())?;
            admit(waiting, queue, kv_used, kv, p99, slo)
        });
        if open == Ok(true) {
            None
        } else if queue <= waiting {
            Some(Shut::Queue)
        } else if SLO_SHARE * slo.seconds() <= p99 {
            Some(Shut::Latency)
        } else {
            Some(Shut::Kv)
        }
    }
}
