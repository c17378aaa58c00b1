//! Seeded workloads: arrivals, lengths, shared system prompts and sessions, as a stream.

use std::fmt;
use std::str::FromStr;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;

use crate::error::{Result, SimError};
use crate::time::Ticks;
use crate::workload::arrivals::{ArrivalClock, ArrivalLaw};
use crate::workload::cancellations::{Cancellations, Leavers};
use crate::workload::delay::Delay;
use crate::workload::feedback::{Arrivals, Conversations, Pace};
use crate::workload::law::{Parameters, within};
use crate::workload::lengths::{LengthLaw, Lengths, PairSampler};
use crate::workload::{PromptContent, RequestId, Workload, WorkloadRequest};

/// What a random stream is for.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Arrivals = 1,
    Inputs,
    Outputs,
    SystemPrompts,
    Seeds,
    Turns,
    Thinks,
    Router,
    Leavers,
    Leaving,
}

/// A generator for one purpose: its state and its increment both depend on seed and purpose.
pub(crate) fn stream(seed: u64, purpose: Stream) -> Pcg64 {
    let mut mixer = rand_pcg::Pcg32::new(seed, purpose as u64);
    let mut bytes = <Pcg64 as SeedableRng>::Seed::default();
    mixer.fill(&mut bytes);
    Pcg64::from_seed(bytes)
}

/// Requests to be drawn from a seed.
///
/// Arrivals, prompts, answers and what else is drawn come from random streams of their own:
/// changing the rate leaves every length as it was, and changing one length leaves the arrivals
/// and the other length. More requests begin with the same ones. With sessions that holds for each
/// session, whatever the others do.
///
/// # Examples
///
/// ```
/// use sched_sim::workload::{Lengths, WorkloadSpec};
///
/// let spec = WorkloadSpec {
///     requests: 1000,
///     rate_per_s: 5.0,
///     arrivals: "gamma:cv=2".parse()?,
///     lengths: Lengths::Independent {
///         input: "lognormal:median=500,sigma=1,max=8192".parse()?,
///         output: "geometric:mean=150,max=2048".parse()?,
///     },
///     system_prompts: None,
///     sessions: None,
///     cancellations: None,
///     seed: 7,
/// };
/// let workload = spec.generate()?;
/// assert_eq!(workload.len(), 1000);
///
/// // The same requests one after the other, for more of them than memory holds.
/// assert_eq!(spec.stream()?.next().unwrap()?, workload.requests()[0]);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// How many requests, turns of sessions included.
    pub requests: u64,
    /// Mean arrivals per second; of sessions, if there are any.
    pub rate_per_s: f64,
    /// How arrivals are spread.
    pub arrivals: ArrivalLaw,
    /// Tokens of prompts and answers. A system prompt and what a session said before come on top.
    pub lengths: Lengths,
    /// Prompts that many requests begin with; none: no two requests share any token.
    pub system_prompts: Option<SystemPrompts>,
    /// Requests that follow each other; none: each request stands alone.
    pub sessions: Option<Sessions>,
    /// Clients who go away before their answer is complete; none: all stay.
    pub cancellations: Option<Cancellations>,
    /// The seed of all streams.
    pub seed: u64,
}

/// Prompts that many requests begin with.
///
/// As a text: `tokens=1000,count=4,skew=1`, or its values in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SystemPrompts {
    /// Tokens of each of them.
    pub tokens: u64,
    /// How many there are, at most 1000000.
    pub count: u64,
    /// The r-th of them is chosen with a probability proportional to r^−skew, 0 to 20.
    pub skew: f64,
}

impl SystemPrompts {
    /// Checks the values; `input` names them.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] with name, bound and value.
    pub fn check(&self, input: &str) -> Result<()> {
        let good = 1 <= self.tokens && self.tokens <= Workload::LARGEST_TOKENS;
        within(input, "tokens", self.tokens as f64, "from 1 to 4294967295", good)?;
        let good = 1 <= self.count && self.count <= 1_000_000;
        within(input, "count", self.count as f64, "from 1 to 1000000", good)?;
        let good = 0.0 <= self.skew && self.skew <= 20.0;
        within(input, "skew", self.skew, "from 0 to 20", good)
    }
}

impl fmt::Display for SystemPrompts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tokens={},count={},skew={}", self.tokens, self.count, self.skew)
    }
}

impl FromStr for SystemPrompts {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self> {
        let p =
            Parameters::read("system prompts", text, text.trim(), &["tokens", "count", "skew"])?;
        Ok(Self {
            tokens: p.count("tokens", None)?,
            count: p.count("count", Some(1))?,
            skew: p.number("skew", Some(0.0))?,
        })
    }
}

/// Requests of one client that follow each other: the prompt of a turn is everything that was said
/// before, answers included, and a new message.
#[derive(Clone, Debug, PartialEq)]
pub struct Sessions {
    /// How many turns a session has, at most 1000.
    pub turns: LengthLaw,
    /// How long the client thinks before its next turn.
    pub think: Delay,
    /// From when that counts.
    pub after: ThinkAfter,
}

/// From when the time counts that a client thinks before the next turn of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThinkAfter {
    /// From the arrival of the turn before: all arrivals are known before any server has run, and
    /// a turn may quote an answer that is not there yet.
    #[default]
    Arrival,
    /// From the end of the answer, as a client does who reads it: a slow server is asked later.
    /// [`WorkloadSpec::feedback`] has such requests alone, for [`drive`](crate::drive::drive).
    Answer,
}

impl ThinkAfter {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Answer => "answer",
        }
    }
}

impl fmt::Display for ThinkAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ThinkAfter {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Arrival, Self::Answer];
        all.into_iter().find(|after| after.name() == text.trim()).ok_or_else(|| SimError::Grammar {
            what: "start of a think time",
            text: text.to_owned(),
            expected: "`arrival` or `answer`".to_owned(),
        })
    }
}

impl Sessions {
    /// Most turns of a session.
    pub const LARGEST_TURNS: u64 = 1000;

    /// Checks both laws.
    pub(super) fn check(&self) -> Result<()> {
        self.turns.check("turns")?;
        let turns = self.turns.largest();
        let bound = "at most 1000 turns: give the law a `max`";
        within("turns", "", turns as f64, bound, turns <= Self::LARGEST_TURNS)?;
        self.think.check("think")
    }
}

impl WorkloadSpec {
    /// Checks every parameter.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] with the name of the field, bound and value.
    pub fn check(&self) -> Result<()> {
        let good = 1e-6 <= self.rate_per_s && self.rate_per_s <= 1e9;
        let bound = "from 1e-6 to 1e9 requests per second";
        within("rate_per_s", "", self.rate_per_s, bound, good)?;
        self.arrivals.check("arrivals", self.rate_per_s)?;
        Mold::new(&self.lengths, self.system_prompts)?;
        self.sessions.as_ref().map_or(Ok(()), Sessions::check)?;
        self.cancellations.as_ref().map_or(Ok(()), |law| law.check("cancellations"))
    }

    /// Whether requests wait for answers, so that they are not known before a server has run.
    #[must_use]
    pub fn waits_for_answers(&self) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.after == ThinkAfter::Answer)
    }

    /// Draws the workload. Gaps are floats in seconds, each rounded to the nearest tick; the
    /// first request arrives one gap after the start.
    ///
    /// # Errors
    ///
    /// As [`WorkloadSpec::check`], and what [`Workload::new`] refuses.
    pub fn generate(&self) -> Result<Workload> {
        Workload::new(self.stream()?.collect::<Result<_>>()?)
    }

    /// The requests of [`WorkloadSpec::generate`], drawn one by one: memory grows with the sessions
    /// that are open at a time, not with the requests.
    ///
    /// # Errors
    ///
    /// As [`WorkloadSpec::check`]; [`SimError::WaitsForAnswers`] if they
    /// [do](Self::waits_for_answers).
    pub fn stream(&self) -> Result<RequestStream> {
        if self.waits_for_answers() {
            return Err(SimError::WaitsForAnswers);
        }
        Ok(RequestStream(self.feedback()?))
    }

    /// The requests for a driver that says when an answer ended, which is what the next turn of a
    /// session [may](ThinkAfter) wait for.
    ///
    /// # Errors
    ///
    /// As [`WorkloadSpec::check`].
    pub fn feedback(&self) -> Result<Generated> {
        self.check()?;
        let mold = Mold::new(&self.lengths, self.system_prompts)?;
        let clock = stream(self.seed, Stream::Arrivals);
        let mut clock = ArrivalClock::new(self.arrivals, self.rate_per_s, clock)?;
        let next = clock.next()?;
        Ok(Generated {
            left: self.requests,
            total: 0,
            source: match &self.sessions {
                None => {
                    let draws = Draws::new(self.seed);
                    let leavers = self.cancellations.map(|law| Leavers::new(law, self.seed));
                    Source::Alone(Box::new(Alone { clock, next, mold, draws, leavers, number: 0 }))
                }
                Some(s) => {
                    let pace = Pace::of_sessions(s)?;
                    let starts = Some((clock, next));
                    let talk =
                        Conversations::new(mold, pace, starts, self.cancellations, self.seed);
                    Source::Conversations(Box::new(talk))
                }
            },
        })
    }
}

/// The built-in workload `chat`: prompts of median 600 tokens with a long tail (sigma 1.1, mean
/// about 1,100), answers of median 160 (sigma 0.8, mean about 220), Poisson arrivals.
///
/// A synthetic workload of our own, of about the size of published conversation traces; it copies
/// none of them.
#[must_use]
pub const fn chat(requests: u64, rate_per_s: f64, seed: u64) -> WorkloadSpec {
    WorkloadSpec {
        requests,
        rate_per_s,
        arrivals: ArrivalLaw::Poisson,
        lengths: Lengths::Independent {
            input: LengthLaw::LogNormal { median: 600.0, sigma: 1.1, min: 4, max: 16_384 },
            output: LengthLaw::LogNormal { median: 160.0, sigma: 0.8, min: 1, max: 4096 },
        },
        system_prompts: None,
        sessions: None,
        cancellations: None,
        seed,
    }
}

/// The random streams of requests.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    inputs: Pcg64,
    outputs: Pcg64,
    system: Pcg64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            inputs: stream(seed, Stream::Inputs),
            outputs: stream(seed, Stream::Outputs),
            system: stream(seed, Stream::SystemPrompts),
        }
    }
}

/// What requests are made of.
#[derive(Clone, Debug)]
pub(super) struct Mold {
    lengths: PairSampler,
    /// Which system prompt, and its tokens.
    system: Option<(Zipf<f64>, u64)>,
}

impl Mold {
    pub(super) fn new(lengths: &Lengths, system: Option<SystemPrompts>) -> Result<Self> {
        let system = match system {
            None => None,
            Some(s) => {
                s.check("system_prompts")?;
                let law = Zipf::new(s.count as f64, s.skew).map_err(|_| SimError::Parameter {
                    input: "system_prompts.skew".to_owned(),
                    bound: "from 0 to 20",
                    value: s.skew,
                })?;
                Some((law, s.tokens))
            }
        };
        Ok(Self { lengths: lengths.sampler()?, system })
    }

    /// What a conversation begins with: a system prompt, or nothing.
    pub(super) fn opening(&self, draws: &mut Draws) -> Vec<(u64, u64)> {
        let Some((law, tokens)) = &self.system else { return Vec::new() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
        let rank = law.sample(&mut draws.system) as u64;
        vec![(rank, *tokens)]
    }

    /// Tokens of a new message and of its answer.
    pub(super) fn lengths(&self, draws: &mut Draws) -> (u64, u64) {
        self.lengths.sample(&mut draws.inputs, &mut draws.outputs)
    }

    /// A request that stands alone; `number` tells its own tokens from those of others.
    pub(super) fn alone(
        &self,
        id: RequestId,
        number: u64,
        arrival: Ticks,
        draws: &mut Draws,
    ) -> WorkloadRequest {
        let (input, output) = self.lengths(draws);
        let mut prompt = self.opening(draws);
        let before: u64 = prompt.iter().map(|&(_, tokens)| tokens).sum();
        let mut request = WorkloadRequest::new(id, arrival, before + input, output);
        if !prompt.is_empty() {
            prompt.push((segment(number, 1, false), input));
            request.content = Some(Box::new(PromptContent::new(prompt)));
        }
        request
    }
}

/// The tokens of a message or its answer, beside the system prompts, which have the numbers up to
/// a million: 2²⁰ for each conversation.
pub(super) const fn segment(conversation: u64, turn: u64, answer: bool) -> u64 {
    (conversation << 20) | (turn << 1) | answer as u64
}

/// Generated requests for a driver that says when answers end: [`WorkloadSpec::feedback`],
/// [`ClosedLoop::arrivals`](crate::workload::ClosedLoop::arrivals).
#[derive(Clone, Debug)]
pub struct Generated {
    /// Requests that are still to come.
    pub(super) left: u64,
    /// Tokens so far.
    pub(super) total: u64,
    pub(super) source: Source,
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    Alone(Box<Alone>),
    Conversations(Box<Conversations>),
}

/// Requests that wait for nobody.
#[derive(Clone, Debug)]
pub(super) struct Alone {
    clock: ArrivalClock,
    next: Ticks,
    mold: Mold,
    draws: Draws,
    leavers: Option<Leavers>,
    number: u64,
}

impl Generated {
    /// What [`Workload::new`] checks for a list and a stream cannot leave to it.
    fn check(&mut self, r: &WorkloadRequest) -> Result<()> {
        if Workload::LARGEST_TOKENS < r.input_tokens {
            return Err(SimError::RequestTokens {
                input: "input_tokens",
                id: r.id.clone(),
                min: 1,
                max: Workload::LARGEST_TOKENS,
                value: r.input_tokens,
            });
        }
        self.total += r.input_tokens + r.output_tokens;
        if Workload::LARGEST_TOTAL < self.total {
            return Err(SimError::TooLarge {
                input: "tokens of all requests together",
                max: u128::from(Workload::LARGEST_TOTAL),
                value: u128::from(self.total),
            });
        }
        Ok(())
    }
}

impl Arrivals for Generated {
    fn next_at(&self) -> Option<Ticks> {
        if self.left == 0 {
            return None;
        }
        match &self.source {
            Source::Alone(alone) => Some(alone.next),
            Source::Conversations(talk) => talk.next_at(),
        }
    }

    fn next(&mut self) -> Result<Option<WorkloadRequest>> {
        if self.next_at().is_none() {
            return Ok(None);
        }
        self.left -= 1;
        let request = match &mut self.source {
            Source::Alone(alone) => {
                let at = alone.next;
                alone.number += 1;
                if 0 < self.left {
                    alone.next = alone.clock.next()?;
                }
                let number = alone.number;
                let id = RequestId::Number(number);
                let mut request = alone.mold.alone(id, number, at, &mut alone.draws);
                request.set_cancel_after(alone.leavers.as_mut().and_then(Leavers::next));
                Some(request)
            }
            Source::Conversations(talk) => talk.next()?,
        };
        if let Some(request) = &request {
            self.check(request)?;
        }
        Ok(request)
    }

    fn completed(&mut self, id: &RequestId, at: Ticks) -> Result<()> {
        match &mut self.source {
            Source::Alone(_) => Ok(()),
            Source::Conversations(talk) => talk.completed(id, at),
        }
    }
}

/// Requests in order of arrival, drawn one by one: [`WorkloadSpec::stream`].
#[derive(Clone, Debug)]
pub struct RequestStream(Generated);

impl Iterator for RequestStream {
    type Item = Result<WorkloadRequest>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().transpose()
    }
}
