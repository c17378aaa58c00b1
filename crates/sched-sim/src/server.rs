//! A server that is driven from outside: requests go in as they arrive, time goes on as far as the
//! outside knows what arrives, and whoever is over comes out.
//!
//! A run of one workload, a stream of requests that nobody holds in memory, closed loops of users
//! and routers over several servers are drivers of the same three calls: submit, advance, take.
//! Memory is that of the requests inside.
//!
//! # Time
//!
//! A server that has *advanced to* t has made every decision before t, and has shown every step
//! that ended by t. The decision at t itself waits for what arrives at t. A step that spans t is
//! under way: it cannot be changed, and nothing of it is visible yet.

use metrics_core::{Outcome, RequestTimeline};

use crate::error::{Result, SimError};
use crate::history::Observer;
use crate::simulation::{RequestRecord, RunEnd, Span, Stall, Transfer};
use crate::statistics::RunStatistics;
use crate::time::Ticks;
use crate::workload::{PromptContent, Workload, WorkloadRequest};

pub use crate::run::{Books, run_stream};
pub use crate::vllm_v1::Rejection;

/// A request on its way into a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// Its number, unique among the requests inside; for a workload, the position in it.
    pub id: u64,
    /// When it arrives, from the start of the run.
    pub arrival: Ticks,
    /// Tokens of its prompt, from 1 to [`Workload::LARGEST_TOKENS`].
    pub input_tokens: u64,
    /// Tokens of its answer, likewise.
    pub output_tokens: u64,
    /// Who runs first under an order that knows priorities: the lower one.
    pub priority: i64,
    /// Which tokens it has, for prefix caching; none: tokens that no other request has.
    pub content: Option<Box<PromptContent>>,
    /// When its client goes away, if it has not got its last token by then.
    pub cancel_at: Option<Ticks>,
    /// When its client stops waiting, likewise. The server takes note at the end of the step under
    /// way: what that step makes for it is for nobody, and if it is the last token, the request is not
    /// completed.
    pub timeout_at: Option<Ticks>,
    /// Tokens of its answer that another server made, less than all; 0 for a request that begins
    /// here. With them comes the KV of all that was computed there, which takes room here from its
    /// admission on; it has nothing to prefill, unless a preemption loses that KV.
    pub made_tokens: u64,
    /// When the last of them was made; unknown, the first gap between tokens here is not counted.
    pub made_at: Option<Ticks>,
}

impl Job {
    /// A request whose client stays.
    #[must_use]
    #[inline]
    pub fn new(id: u64, arrival: Ticks, input_tokens: u64, output_tokens: u64) -> Self {
        Self {
            id,
            arrival,
            input_tokens,
            output_tokens,
            priority: 0,
            content: None,
            cancel_at: None,
            timeout_at: None,
            made_tokens: 0,
            made_at: None,
        }
    }

    /// The request at this position of a workload.
    #[must_use]
    #[inline]
    pub fn of(position: usize, r: &WorkloadRequest) -> Self {
        Self {
            priority: r.priority,
            content: r.content.clone(),
            cancel_at: r.cancel_after().map(|after| r.arrival.after(after)),
            ..Self::new(position as u64, r.arrival, r.input_tokens, r.output_tokens)
        }
    }

    /// Its client stops waiting so long after its arrival; none: it waits for ever.
    pub fn give_up_after(&mut self, patience: Option<Ticks>) {
        self.timeout_at = patience.map(|patience| self.arrival.after(patience));
    }

    /// Tokens that are left to prefill for it when it arrives.
    pub(crate) const fn prompt_left(&self) -> u64 {
        if self.made_tokens == 0 { self.input_tokens } else { 0 }
    }

    /// Tokens that are left to compute or to make for it when it arrives.
    pub(crate) const fn outstanding_tokens(&self) -> u64 {
        self.prompt_left() + self.output_tokens.saturating_sub(self.made_tokens)
    }

    /// The instant at which its client leaves, and whether it then gave up waiting.
    #[inline]
    pub(crate) fn departure(&self) -> Option<(Ticks, Leave)> {
        let cancel = self.cancel_at.map(|at| (at, Leave::Cancel));
        let timeout = self.timeout_at.map(|at| (at, Leave::Timeout));
        match (cancel, timeout) {
            (Some(c), Some(t)) => Some(if t.0 < c.0 { t } else { c }),
            (c, t) => c.or(t),
        }
    }

    /// That its token counts and instants are in range.
    pub(crate) fn check(&self) -> Result<()> {
        self.arrival.within_a_run("an arrival")?;
        for (input, value) in
            [("input_tokens", self.input_tokens), ("output_tokens", self.output_tokens)]
        {
            if !(1 <= value && value <= Workload::LARGEST_TOKENS) {
                return Err(SimError::RequestTokens {
                    input,
                    id: self.id.into(),
                    min: 1,
                    max: Workload::LARGEST_TOKENS,
                    value,
                });
            }
        }
        if self.output_tokens <= self.made_tokens {
            return Err(SimError::RequestTokens {
                input: "made_tokens",
                id: self.id.into(),
                min: 0,
                max: self.output_tokens - 1,
                value: self.made_tokens,
            });
        }
        Ok(())
    }
}

/// Why a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leave {
    /// It goes away.
    Cancel,
    /// It stops waiting.
    Timeout,
}

impl Leave {
    /// How the request of a client that leaves so ends.
    pub(crate) const fn ending(self) -> Ending {
        match self {
            Self::Cancel => Ending::Cancelled,
            Self::Timeout => Ending::TimedOut,
        }
    }
}

/// How far a request is, or how far it came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Its number.
    pub id: u64,
    /// When it arrived.
    pub arrival: Ticks,
    /// Tokens of its prompt.
    pub input_tokens: u64,
    /// Its instants so far.
    pub record: RequestRecord,
    /// Prompt tokens computed, as the server holds them now.
    pub prefilled: u64,
    /// Output tokens made, those that it came with included.
    pub output_tokens: u64,
    /// Output tokens that it came with: [`Job::made_tokens`].
    pub made_before: u64,
    /// Prompt tokens that the prefix cache held at its first admission.
    pub hit_tokens: u64,
    /// Its preemptions, in order.
    pub stalls: Vec<Stall>,
    /// Steps that went on without it although it was in the batch, in order.
    pub held: Vec<Span>,
    /// How its KV moved from one pool to another, if there are two.
    pub transfer: Option<Box<Transfer>>,
    /// Which server of a fleet has it, or had it last, counted from 0; none while it waits for one.
    pub server: Option<usize>,
}

impl Progress {
    /// Its timeline so far, named by its number, for a request that came to this `outcome`.
    ///
    /// # Errors
    ///
    /// None that a server can cause: the checks of [`RequestTimeline::new`].
    pub fn timeline(&self, outcome: Outcome) -> metrics_core::Result<RequestTimeline> {
        let tokens = (self.input_tokens, self.output_tokens);
        let fields = self.record.timeline(self.id.to_string(), self.arrival, tokens, outcome);
        RequestTimeline::new(fields)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// With all its tokens, or those that the server's limits leave it.
    Completed,
    /// Refused when it arrived.
    Rejected(Rejection),
    /// Its client went away.
    Cancelled,
    /// Its client stopped waiting.
    TimedOut,
}

impl Ending {
    /// The same in the words of a timeline.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Completed => Outcome::Completed,
            Self::Rejected(_) => Outcome::Rejected,
            Self::Cancelled => Outcome::Cancelled,
            Self::TimedOut => Outcome::TimedOut,
        }
    }
}

/// A request that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Over {
    /// How far it came.
    pub progress: Progress,
    /// When it ended: at its last token, at its arrival (in the pool that refused it) if it was
    /// refused, else when the server took note that its client had left.
    pub at: Ticks,
    /// How.
    pub ending: Ending,
    /// Which server of a fleet had it last, counted from 0.
    pub server: usize,
}

impl Over {
    /// One that only one server knows.
    pub(crate) const fn new(progress: Progress, at: Ticks, ending: Ending) -> Self {
        Self { progress, at, ending, server: 0 }
    }
}

/// How much a server has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLoad {
    /// Requests that have arrived and are not in the batch.
    pub waiting: u64,
    /// Requests in the batch.
    pub running: u64,
    /// Tokens that are left to compute or to make for all of them.
    pub outstanding_tokens: u64,
    /// KV blocks in use.
    pub kv_used: u64,
    /// KV blocks that hold a prefix and are in use by nobody, so that they can be had as well.
    pub kv_cached: u64,
    /// KV blocks that can be used; none if the KV cache has no bound.
    pub kv_blocks: Option<u64>,
}

/// A server that is driven from outside; see the [module](self) for what time means.
///
/// # Examples
///
/// ```
/// use sched_sim::server::{Job, Over, Server};
/// use sched_sim::{Affine, DecodeFirst, Replica, Ticks};
///
/// let step_time: Affine = "base=1ms,prefill=10us/token".parse()?;
/// let mut server = Replica::new(DecodeFirst::new(8, 512)?, step_time);
/// server.submit(Job::new(0, Ticks::ZERO, 100, 3))?;
/// // The prompt takes 2 ms, each of three tokens 1 ms: at 4.5 ms, the last step is under way.
/// server.advance_to("4500us".parse()?, &mut ())?;
/// assert_eq!(server.load().outstanding_tokens, 1);
/// assert_eq!(server.next_visible(&mut ())?, Some("5ms".parse()?));
/// server.advance_to("5ms".parse()?, &mut ())?;
/// let mut over: Vec<Over> = Vec::new();
/// server.take_over(&mut over);
/// assert_eq!(over[0].at, "5ms".parse()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub trait Server {
    /// Takes a request that arrives at [`Job::arrival`], now or later.
    ///
    /// # Errors
    ///
    /// [`SimError::OutOfOrder`] if it arrives before one that was submitted, or before the instant
    /// that the server has advanced to; [`SimError::RequestTokens`], [`SimError::TimeOutOfRange`].
    fn submit(&mut self, job: Job) -> Result<()>;

    /// Makes every decision before `time`; `Some` if a limit of the run has stopped the server, which
    /// then stays as it is.
    ///
    /// # Errors
    ///
    /// [`SimError::Refused`] if the policy breaks an invariant, [`SimError::RunTooLong`] if the
    /// clock passes its range, [`SimError::NoProgress`] for a scheduler that is stuck.
    fn advance_to(&mut self, time: Ticks, observer: &mut dyn Observer) -> Result<Option<RunEnd>>;

    /// Runs all that was submitted to its end, or to that of the limits.
    ///
    /// # Errors
    ///
    /// As [`advance_to`](Self::advance_to).
    fn finish(&mut self, observer: &mut dyn Observer) -> Result<RunEnd>;

    /// The earliest instant at which anything can be seen from outside if nothing else arrives: a
    /// first token, or a request that is over. It can be too early, never too late: advance to it,
    /// take what is over, and ask again. `None` if nothing will happen.
    ///
    /// Whatever arrives by the instant that the server has advanced to has to be submitted before,
    /// since the decision at that instant may be made.
    ///
    /// # Errors
    ///
    /// As [`advance_to`](Self::advance_to).
    fn next_visible(&mut self, observer: &mut dyn Observer) -> Result<Option<Ticks>>;

    /// The client of a request goes away now; it leaves at the next decision. A request that is
    /// not inside is ignored.
    fn cancel(&mut self, id: u64);

    /// How much there is to do.
    fn load(&self) -> ServerLoad;

    /// Appends who is over since the last call, in order of time, ties by number.
    fn take_over(&mut self, into: &mut Vec<Over>);

    /// Everyone who has arrived and is not over, in order of their numbers.
    fn inside(&self) -> Vec<Progress>;

    /// The totals up to now; those of requests that are not over count up to now.
    fn statistics(&self) -> RunStatistics;

    /// The totals of each server of a fleet, all over the time of the whole, from its first arrival to
    /// its end; of any other its own.
    fn each(&self) -> Vec<RunStatistics> {
        vec![self.statistics()]
    }
}

impl<S: Server + ?Sized> Server for Box<S> {
    fn submit(&mut self, job: Job) -> Result<()> {
        (**self).submit(job)
    }

    fn advance_to(&mut self, time: Ticks, observer: &mut dyn Observer) -> Result<Option<RunEnd>> {
        (**self).advance_to(time, observer)
    }

    fn finish(&mut self, observer: &mut dyn Observer) -> Result<RunEnd> {
        (**self).finish(observer)
    }

    fn next_visible(&mut self, observer: &mut dyn Observer) -> Result<Option<Ticks>> {
        (**self).next_visible(observer)
    }

    fn cancel(&mut self, id: u64) {
        (**self).cancel(id);
    }

    fn load(&self) -> ServerLoad {
        (**self).load()
    }

    fn take_over(&mut self, into: &mut Vec<Over>) {
        (**self).take_over(into);
    }

    fn inside(&self) -> Vec<Progress> {
        (**self).inside()
    }

    fn statistics(&self) -> RunStatistics {
        (**self).statistics()
    }

    fn each(&self) -> Vec<RunStatistics> {
        (**self).each()
    }
}
