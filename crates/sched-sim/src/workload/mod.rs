//! What arrives: requests with their arrival and token counts, checked once.

mod arrivals;
mod cancellations;
mod delay;
mod feedback;
mod generate;
pub(crate) mod law;
mod lengths;

pub use arrivals::ArrivalLaw;
pub use cancellations::Cancellations;
pub use delay::Delay;
pub use feedback::{Arrivals, ClosedLoop, OpenLoop};
pub use generate::{
    Generated, RequestStream, Sessions, SystemPrompts, ThinkAfter, WorkloadSpec, chat,
};
pub(crate) use generate::{Stream, stream};
pub use lengths::{LengthHistogram, LengthLaw, LengthPairs, Lengths};

use std::collections::HashMap;
use std::fmt;

use crate::error::{Result, SimError};
use crate::time::Ticks;
use crate::workload::cancellations::Leavers;

/// The name of a request, kept from its source to its timeline.
///
/// A plain decimal number is kept as one, so that ten million rows need no strings; `7` and
/// `"7"` are the same id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestId {
    /// A number, for example the row of a trace.
    Number(u64),
    /// Any other name.
    Name(Box<str>),
}

impl From<u64> for RequestId {
    fn from(n: u64) -> Self {
        Self::Number(n)
    }
}

impl From<&str> for RequestId {
    fn from(s: &str) -> Self {
        match s.parse::<u64>() {
            Ok(n) if n.to_string() == s => Self::Number(n),
            _ => Self::Name(s.into()),
        }
    }
}

impl From<String> for RequestId {
    fn from(s: String) -> Self {
        Self::from(s.as_str())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => fmt::Display::fmt(n, f),
            Self::Name(s) => f.pad(s),
        }
    }
}

/// One request as it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkloadRequest {
    /// Its name, unique in the workload.
    pub id: RequestId,
    /// When it arrives, from the start of the run.
    pub arrival: Ticks,
    /// Tokens of its prompt.
    pub input_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Who runs first under a policy that knows priorities: the lower one.
    pub priority: i64,
    /// Which tokens it has, for prefix caching; none: tokens that no other request has.
    pub content: Option<Box<PromptContent>>,
    /// How long after its arrival its client goes away; few have it, so that it stands apart.
    cancel_after: Option<Box<Ticks>>,
}

/// Which tokens a prompt consists of, and which segment its answer is.
///
/// A token is a pair of a segment and an offset in it; `(s, n)` stands for the first n tokens of
/// segment s. Equal pairs are equal tokens, so that a later turn of a conversation names the
/// segments of the turns before it, answers included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PromptContent {
    /// Segments with their lengths, one after the other; below [`PromptContent::OWN`].
    pub prompt: Vec<(u64, u64)>,
    /// The segment of the answer; none: one that no other request has.
    pub answer: Option<u64>,
}

impl PromptContent {
    /// Segments from here on stand for tokens that only one request has.
    pub const OWN: u64 = 1 << 62;

    /// A prompt of these segments, with an answer that nobody refers to.
    #[must_use]
    pub fn new(prompt: Vec<(u64, u64)>) -> Self {
        Self { prompt, answer: None }
    }

    /// That the segments make up the prompt.
    fn check(&self, r: &WorkloadRequest) -> Result<()> {
        let tokens = self.prompt.iter().fold(0_u64, |sum, &(_, n)| sum.saturating_add(n));
        if tokens != r.input_tokens {
            return Err(SimError::ContentTokens {
                id: r.id.clone(),
                input_tokens: r.input_tokens,
                tokens,
            });
        }
        let segments = self.prompt.iter().map(|&(segment, _)| segment).chain(self.answer);
        match segments.max() {
            Some(segment) if Self::OWN <= segment => {
                Err(SimError::Segment { id: r.id.clone(), max: Self::OWN - 1, segment })
            }
            _ => Ok(()),
        }
    }
}

impl WorkloadRequest {
    /// A request with its arrival and token counts; [`Workload::new`] checks them.
    #[must_use]
    pub fn new(
        id: impl Into<RequestId>,
        arrival: Ticks,
        input_tokens: u64,
        output_tokens: u64,
    ) -> Self {
        Self {
            id: id.into(),
            arrival,
            input_tokens,
            output_tokens,
            priority: 0,
            content: None,
            cancel_after: None,
        }
    }

    /// How long after its arrival its client goes away, if it has not got its last token by then.
    #[must_use]
    pub fn cancel_after(&self) -> Option<Ticks> {
        self.cancel_after.as_deref().copied()
    }

    /// Says how long after its arrival its client goes away; none: it stays.
    pub fn set_cancel_after(&mut self, time: Option<Ticks>) {
        self.cancel_after = time.map(Box::new);
    }

    /// When its client leaves who would wait for its last token for `patience` at most.
    pub(crate) fn departure(&self, patience: Option<Ticks>) -> Option<Ticks> {
        let longest = self.cancel_after().into_iter().chain(patience).min()?;
        Some(self.arrival.after(longest))
    }
}

/// Requests in order of arrival, checked once, so that a run needs no checks.
///
/// What holds: arrivals do not fall and are within [`Ticks::LONGEST_RUN`]; ids differ; every
/// request has 1 to [`Workload::LARGEST_TOKENS`] tokens each way; all tokens together are at most
/// [`Workload::LARGEST_TOTAL`]. Requests that arrive at the same instant keep their order here,
/// which is their order of submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    requests: Vec<WorkloadRequest>,
}

impl Workload {
    /// Most tokens of one prompt or one answer.
    pub const LARGEST_TOKENS: u64 = u32::MAX as u64;
    /// Most tokens of all requests together: sums over a batch cannot overflow below it.
    pub const LARGEST_TOTAL: u64 = 1 << 48;
    /// Most requests.
    pub const LARGEST_LEN: usize = u32::MAX as usize;

    /// Checks a list of requests.
    ///
    /// # Errors
    ///
    /// [`SimError::Unsorted`], [`SimError::DuplicateId`], [`SimError::RequestTokens`],
    /// [`SimError::TimeOutOfRange`] or [`SimError::TooLarge`], each naming the request and value.
    pub fn new(requests: Vec<WorkloadRequest>) -> Result<Self> {
        if Self::LARGEST_LEN < requests.len() {
            return Err(SimError::TooLarge {
                input: "requests",
                max: Self::LARGEST_LEN as u128,
                value: requests.len() as u128,
            });
        }
        let mut total: u64 = 0;
        let mut before = Ticks::ZERO;
        for (i, r) in requests.iter().enumerate() {
            r.arrival.within_a_run("an arrival")?;
            if r.arrival < before {
                return Err(SimError::Unsorted {
                    id: r.id.clone(),
                    row: i + 1,
                    arrival: r.arrival,
                    before,
                });
            }
            before = r.arrival;
            for (input, value) in
                [("input_tokens", r.input_tokens), ("output_tokens", r.output_tokens)]
            {
                if !(1 <= value && value <= Self::LARGEST_TOKENS) {
                    return Err(SimError::RequestTokens {
                        input,
                        id: r.id.clone(),
                        min: 1,
                        max: Self::LARGEST_TOKENS,
                        value,
                    });
                }
                total = total.saturating_add(value);
            }
            if let Some(content) = &r.content {
                content.check(r)?;
            }
        }
        if Self::LARGEST_TOTAL < total {
            return Err(SimError::TooLarge {
                input: "tokens of all requests together",
                max: u128::from(Self::LARGEST_TOTAL),
                value: u128::from(total),
            });
        }
        check_ids(&requests)?;
        Ok(Self { requests })
    }

    /// The requests in order of arrival.
    #[must_use]
    pub fn requests(&self) -> &[WorkloadRequest] {
        &self.requests
    }

    /// How many requests there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// From the first arrival to the last; `None` without requests.
    #[must_use]
    pub fn span(&self) -> Option<Ticks> {
        let (first, last) = (self.requests.first()?, self.requests.last()?);
        last.arrival.since(first.arrival)
    }

    /// The requests at positions `range` alone, arrivals as they are.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        Self { requests: self.requests.get(start..end).unwrap_or_default().to_vec() }
    }

    /// The same requests with clients who go away by a law, drawn from a seed in order of arrival;
    /// who has a [time](WorkloadRequest::cancel_after) of its own keeps it.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] or [`SimError::TimeOutOfRange`] of the law.
    pub fn cancelled(mut self, law: Cancellations, seed: u64) -> Result<Self> {
        law.check("cancellations")?;
        let mut leavers = Leavers::new(law, seed);
        for r in &mut self.requests {
            let after = leavers.next();
            r.set_cancel_after(r.cancel_after().or(after));
        }
        Ok(self)
    }

    /// The same requests of clients who all stay, and how many of them would have gone away.
    #[must_use]
    pub fn staying(mut self) -> (Self, usize) {
        let leave = self.requests.iter_mut().filter(|r| r.cancel_after.is_some());
        let leaving = leave.map(|r| r.set_cancel_after(None)).count();
        (self, leaving)
    }

    /// The same requests arriving `factor` times as often: every time from the first arrival is
    /// divided by `factor`, rounded down to a tick.
    ///
    /// # Errors
    ///
    /// [`SimError::TimeOutOfRange`] if a slow rate carries an arrival beyond the longest run.
    pub fn scale_rate(&self, factor: RateScale) -> Result<Self> {
        let first = self.requests.first().map_or(Ticks::ZERO, |r| r.arrival);
        let mut requests = self.requests.clone();
        for r in &mut requests {
            r.arrival = factor.arrival(first, r.arrival)?;
        }
        Ok(Self { requests })
    }
}

/// Ids that only grow need no table.
fn check_ids(requests: &[WorkloadRequest]) -> Result<()> {
    if requests.windows(2).all(|w| matches!(w, [a, b] if a.id < b.id)) {
        return Ok(());
    }
    let mut seen = HashMap::with_capacity(requests.len());
    for (i, r) in requests.iter().enumerate() {
        if let Some(first) = seen.insert(&r.id, i) {
            return Err(SimError::DuplicateId {
                id: r.id.clone(),
                first: first + 1,
                second: i + 1,
            });
        }
    }
    Ok(())
}

/// A positive factor on an arrival rate, exactly as written: `1.5` is 15/10, not a float.
///
/// # Examples
///
/// ```
/// use sched_sim::workload::RateScale;
///
/// let faster: RateScale = "1.5".parse()?;
/// assert_eq!(faster, RateScale::new(3, 2)?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateScale {
    num: u32,
    den: u32,
}

impl RateScale {
    /// `num / den`.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] if either is 0.
    pub fn new(num: u32, den: u32) -> Result<Self> {
        for (input, value) in [("rate scale", num), ("rate scale denominator", den)] {
            if value == 0 {
                return Err(SimError::TooSmall { input, min: 1, value: 0 });
            }
        }
        let common = gcd(num, den);
        Ok(Self { num: num / common, den: den / common })
    }

    /// When somebody arrives at the scaled rate who arrives at `at`, no earlier than `first`, at the
    /// original one.
    ///
    /// # Errors
    ///
    /// [`SimError::TimeOutOfRange`] if a slow rate carries it beyond the longest run.
    pub fn arrival(self, first: Ticks, at: Ticks) -> Result<Ticks> {
        let gap = at.0.saturating_sub(first.0);
        Ticks(first.0 + gap * u128::from(self.den) / u128::from(self.num))
            .within_a_run("an arrival after rate scaling")
    }

    /// The factor as a float, for display.
    #[must_use]
    pub fn factor(self) -> f64 {
        f64::from(self.num) / f64::from(self.den)
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl std::str::FromStr for RateScale {
    type Err = SimError;

    /// A positive decimal such as `2`, `0.25` or `1.5`, or a fraction such as `1/3`.
    fn from_str(text: &str) -> Result<Self> {
        let error = || SimError::Grammar {
            what: "rate scale",
            text: text.to_owned(),
            expected: "a factor above 0 with at most 9 digits, such as `2`, `0.25` or `1/3`"
                .to_owned(),
        };
        let whole = |s: &str| {
            if s.bytes().all(|b| b.is_ascii_digit()) { s.parse::<u32>().ok() } else { None }
        };
        let (num, den) = if let Some((n, d)) = text.split_once('/') {
            (whole(n), whole(d))
        } else {
            let (w, f) = text.split_once('.').unwrap_or((text, ""));
            let f = f.trim_end_matches('0');
            let places = u32::try_from(f.len()).ok().filter(|&p| p <= 9);
            (whole(&format!("{w}{f}")), places.map(|p| 10_u32.pow(p)))
        };
        match (num, den) {
            (Some(n), Some(d)) => Self::new(n, d).map_err(|_| error()),
            _ => Err(error()),
        }
    }
}
