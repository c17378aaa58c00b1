//! A run: workload, policy and step time in; instants and totals out.

use metrics_core::RequestTimeline;
use metrics_core::table::RequestTable;
use metrics_core::timeline::{Outcome, TimelineFields};

use crate::error::Result;
use crate::history::Observer;
use crate::memory::ServerSettings;
use crate::policy::Policy;
use crate::statistics::RunStatistics;
use crate::step_time::StepTime;
use crate::time::Ticks;
use crate::vllm_v1::{Rejection, VllmV1Run, clock};
use crate::workload::{RequestId, Workload};
use crate::{engine, reference};

/// When a run stops although requests are left; by default never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// No step after this many.
    pub max_steps: Option<u64>,
    /// No step starts at this instant or later; one that has started runs to its end.
    pub until: Option<Ticks>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// Every request finished.
    Completed,
    /// [`RunLimits::max_steps`] was reached: the run is truncated.
    StepLimit,
    /// [`RunLimits::until`] was reached: the run is truncated.
    TimeLimit,
    /// The policy serves nobody, nobody else arrives, and requests are left: truncated.
    Stalled,
}

impl RunEnd {
    /// Whether requests are left: throughput of such a run has no meaning.
    #[must_use]
    pub const fn is_truncated(self) -> bool {
        !matches!(self, Self::Completed)
    }
}

/// The instants of one request; `None` for what did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    pub(crate) scheduled: Ticks,
    pub(crate) prompt_done: Ticks,
    pub(crate) first_token: Ticks,
    pub(crate) last_token: Ticks,
}

/// An instant that did not happen: one word instead of an option's two.
pub(crate) const NEVER: Ticks = Ticks(u128::MAX);

const fn known(at: Ticks) -> Option<Ticks> {
    if at.0 == NEVER.0 { None } else { Some(at) }
}

impl RequestRecord {
    /// The timeline of a request with these instants, this arrival and these tokens of its prompt
    /// and its answer.
    pub(crate) fn timeline(
        &self,
        id: String,
        arrival: Ticks,
        (input_tokens, output_tokens): (u64, u64),
        outcome: Outcome,
    ) -> TimelineFields {
        TimelineFields {
            id,
            arrival: Some(arrival.instant()),
            scheduled: self.scheduled().map(Ticks::instant),
            first_token: self.first_token().map(Ticks::instant),
            last_token: self.last_token().map(Ticks::instant),
            input_tokens: Some(input_tokens),
            output_tokens: Some(output_tokens),
            outcome,
            ..TimelineFields::default()
        }
    }

    pub(crate) const NEW: Self =
        Self { scheduled: NEVER, prompt_done: NEVER, first_token: NEVER, last_token: NEVER };

    /// The start of the first step in which it got tokens.
    #[must_use]
    pub const fn scheduled(&self) -> Option<Ticks> {
        known(self.scheduled)
    }

    /// The end of the step that completed its prompt.
    #[must_use]
    pub const fn prompt_done(&self) -> Option<Ticks> {
        known(self.prompt_done)
    }

    /// The end of the step that gave its first output token.
    #[must_use]
    pub const fn first_token(&self) -> Option<Ticks> {
        known(self.first_token)
    }

    /// The end of the step that gave its last output token.
    #[must_use]
    pub const fn last_token(&self) -> Option<Ticks> {
        known(self.last_token)
    }
}

/// A request that did not simply run from its admission to its last token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestDetail {
    /// Its position in the workload.
    pub position: usize,
    /// Why it was refused at arrival, if it was.
    pub rejected: Option<Rejection>,
    /// When the server took note that its client had gone away, if it did so before the last token.
    pub cancelled: Option<Ticks>,
    /// When the server took note that its client had stopped waiting, likewise.
    pub timed_out: Option<Ticks>,
    /// Output tokens made, if its client left before it had all of them, or if they are fewer than
    /// asked for as `max_model_len` ended it.
    pub output_tokens: Option<u64>,
    /// Its preemptions, in order.
    pub stalls: Vec<Stall>,
    /// Steps that went on without it although it was in the batch, in order, where others that
    /// were at the same stage got tokens.
    pub held: Vec<Span>,
    /// How its KV moved from the prefill pool to the decode pool, if there are two.
    pub transfer: Option<Transfer>,
}

/// The way of a request from a prefill pool to a decode pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transfer {
    /// Which server computed its prompt, counted from 0.
    pub from_server: usize,
    /// When its KV began to move: at its first token.
    pub from: Ticks,
    /// When it was all there; none if its client left before, or the run ended.
    pub to: Option<Ticks>,
    /// The start of the first step that it was in there; none if it never was.
    pub admitted: Option<Ticks>,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Its start.
    pub from: Ticks,
    /// Its end.
    pub to: Ticks,
}

impl Span {
    /// Adds a span that does not begin before the last one ends.
    pub(crate) fn add(spans: &mut Vec<Self>, from: Ticks, to: Ticks) {
        match spans.last_mut() {
            Some(last) if last.to == from => last.to = to,
            _ => spans.push(Self { from, to }),
        }
    }
}

/// One preemption of a request, from the step that went on without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The start of that step.
    pub from: Ticks,
    /// The start of the first step that it was in again; none if it never was.
    pub readmitted: Option<Ticks>,
    /// The end of the step that had all its known tokens computed again; none if it was preempted
    /// again before, or the run ended.
    pub recomputed: Option<Ticks>,
    /// The end of the step that then gave its next token: the same one, or the next decode step
    /// where a prompt's last step gives no token; none as above.
    pub caught_up: Option<Ticks>,
    /// Tokens whose KV was lost.
    pub lost_tokens: u64,
    /// Known tokens that the prefix cache still held when it was admitted again.
    pub hit_tokens: u64,
    /// How long its KV moved out at the start of the step that went on without it, and moved back
    /// at the start of the one that it was in again; zero if it was lost.
    pub swap_time: Ticks,
}

impl Stall {
    /// Tokens that were computed before and had to be computed again.
    #[must_use]
    pub fn recomputed_tokens(&self) -> u64 {
        if self.readmitted.is_some() { self.lost_tokens.saturating_sub(self.hit_tokens) } else { 0 }
    }
}

/// A request that was running when the run was truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its position in the workload.
    pub position: usize,
    /// Prompt tokens computed.
    pub prefilled: u64,
    /// Output tokens made.
    pub decoded: u64,
}

/// What a run gives: instants per request, totals, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult<'w> {
    pub(crate) workload: &'w Workload,
    pub(crate) records: Vec<RequestRecord>,
    pub(crate) unfinished: Vec<Unfinished>,
    pub(crate) statistics: RunStatistics,
    pub(crate) end: RunEnd,
    pub(crate) details: Vec<RequestDetail>,
    pub(crate) hit_tokens: Vec<u64>,
    pub(crate) servers: Vec<usize>,
    pub(crate) unrouted: Vec<usize>,
}

impl RunResult<'_> {
    /// What arrived.
    #[must_use]
    pub const fn workload(&self) -> &Workload {
        self.workload
    }

    /// The instants of each request, in order of the workload.
    #[must_use]
    pub fn records(&self) -> &[RequestRecord] {
        &self.records
    }

    /// The requests that did not simply run through, in order of the workload.
    #[must_use]
    pub fn details(&self) -> &[RequestDetail] {
        &self.details
    }

    /// Prompt tokens of each request that the prefix cache held at its first admission, in order
    /// of the workload; empty without a prefix cache.
    #[must_use]
    pub fn hit_tokens(&self) -> &[u64] {
        &self.hit_tokens
    }

    /// Which server of a fleet had each request last, in order of the workload, counted from 0; empty
    /// if all were on the first.
    #[must_use]
    pub fn servers(&self) -> &[usize] {
        &self.servers
    }

    /// The server of the request at a position; none if it never got past the queue of a router.
    #[must_use]
    pub fn server(&self, position: usize) -> Option<usize> {
        let routed = self.unrouted.binary_search(&position).is_err();
        routed.then(|| self.servers.get(position).copied().unwrap_or_default())
    }

    /// The requests that were running at the end of a truncated run, in order of the workload;
    /// those that were preempted and waited again are among them.
    #[must_use]
    pub fn unfinished(&self) -> &[Unfinished] {
        &self.unfinished
    }

    /// The totals.
    #[must_use]
    pub const fn statistics(&self) -> &RunStatistics {
        &self.statistics
    }

    /// How the run ended.
    #[must_use]
    pub const fn end(&self) -> RunEnd {
        self.end
    }

    /// The timeline of every request that arrived, in order of arrival; what is not finished is
    /// cut off.
    ///
    /// # Errors
    ///
    /// None that a run can cause: the checks of [`RequestTimeline::new`].
    pub fn timelines(&self) -> metrics_core::Result<Vec<RequestTimeline>> {
        self.timeline_fields().map(RequestTimeline::new).collect()
    }

    /// The [timelines](Self::timelines) as columns, none of which is a name, so that no timeline is
    /// kept.
    ///
    /// # Errors
    ///
    /// As [`timelines`](Self::timelines).
    pub fn table(&self) -> metrics_core::Result<RequestTable> {
        let mut table = RequestTable::with_capacity(self.records.len());
        for fields in self.fields(|_| String::new()) {
            table.push(&RequestTimeline::new(fields)?);
        }
        Ok(table)
    }

    /// The fields of every timeline, as a file holds them: instants in whole picoseconds from the
    /// start of the run.
    pub fn timeline_fields(&self) -> impl Iterator<Item = TimelineFields> {
        self.fields(ToString::to_string)
    }

    /// The same, with other names.
    fn fields(&self, name: impl Fn(&RequestId) -> String) -> impl Iterator<Item = TimelineFields> {
        let injected = usize::try_from(self.statistics.injected).unwrap_or(usize::MAX);
        let mut cut_off = self.unfinished.iter().peekable();
        let mut details = self.details.iter().peekable();
        let rows = self.workload.requests().iter().zip(&self.records).enumerate();
        rows.take(injected).map(move |(position, (r, record))| {
            let completed = record.last_token().is_some();
            let detail = details.next_if(|d| d.position == position);
            let decoded = match cut_off.next_if(|u| u.position == position) {
                Some(u) => u.decoded,
                None => detail.and_then(|d| d.output_tokens).unwrap_or(if completed {
                    r.output_tokens
                } else {
                    0
                }),
            };
            let outcome = match detail {
                _ if completed => Outcome::Completed,
                Some(d) if d.rejected.is_some() => Outcome::Rejected,
                Some(d) if d.cancelled.is_some() => Outcome::Cancelled,
                Some(d) if d.timed_out.is_some() => Outcome::TimedOut,
                _ => Outcome::CutOff,
            };
            let tokens = (r.input_tokens, decoded);
            record.timeline(name(&r.id), r.arrival, tokens, outcome)
        })
    }
}

/// A run to be: what arrives, who decides, and what a step costs.
///
/// See the [crate] for an example.
#[derive(Clone, Debug)]
pub struct Simulation<'w, P, T> {
    pub(crate) workload: &'w Workload,
    pub(crate) policy: P,
    pub(crate) step_time: T,
    pub(crate) limits: RunLimits,
    pub(crate) settings: ServerSettings,
    pub(crate) patience: Option<Ticks>,
}

impl<P, T> Simulation<'_, P, T> {
    /// The same run with clients that stop waiting for the last token so long after their arrival.
    #[must_use]
    pub fn patience(mut self, patience: Ticks) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The same run, stopped by `limits`.
    #[must_use]
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl<'w, P: Policy, T: StepTime> Simulation<'w, P, T> {
    /// A run of `workload` to its end.
    pub const fn new(workload: &'w Workload, policy: P, step_time: T) -> Self {
        let limits = RunLimits { max_steps: None, until: None };
        Self {
            workload,
            policy,
            step_time,
            limits,
            settings: ServerSettings::DEFAULT,
            patience: None,
        }
    }

    /// The same run on a server with these settings.
    #[must_use]
    pub fn settings(mut self, settings: ServerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Runs, skipping what has no events.
    ///
    /// # Errors
    ///
    /// [`SimError::Refused`](crate::SimError) if the policy breaks an invariant,
    /// [`SimError::RunTooLong`](crate::SimError) if the clock passes its range.
    pub fn run(self) -> Result<RunResult<'w>> {
        engine::run(self, &mut ())
    }

    /// Runs, skipping what has no events, and shows each stretch to `observer`.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`].
    pub fn run_observed(self, observer: &mut impl Observer) -> Result<RunResult<'w>> {
        engine::run(self, observer)
    }

    /// Runs every step for every request: the plain engine, with the same result.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`].
    pub fn run_reference(self) -> Result<RunResult<'w>> {
        reference::run(self, &mut ())
    }

    /// Runs every step for every request, and shows each step to `observer`.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`].
    pub fn run_reference_observed(self, observer: &mut impl Observer) -> Result<RunResult<'w>> {
        reference::run(self, observer)
    }
}

impl<'w, T: StepTime> Simulation<'w, VllmV1Run, T> {
    /// A run of `workload` under vLLM's scheduler.
    ///
    /// # Examples
    ///
    /// ```
    /// use sched_sim::vllm_v1::{VllmConfig, VllmV1Run};
    /// use sched_sim::{Affine, Simulation, Ticks, Workload, WorkloadRequest};
    ///
    /// // A prompt of 100 tokens: one step of 2 ms, which gives the first token; two more tokens.
    /// let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 100, 3)])?;
    /// let step_time: Affine = "base=1ms,prefill=10us/token".parse()?;
    /// let vllm = VllmV1Run::new(VllmConfig::new(101, 400));
    /// let result = Simulation::vllm_v1(&workload, vllm, step_time).run()?;
    /// assert_eq!(result.records()[0].first_token(), Some("2ms".parse()?));
    /// assert_eq!(result.records()[0].last_token(), Some("4ms".parse()?));
    /// # Ok::<(), sched_sim::SimError>(())
    /// ```
    pub const fn vllm_v1(workload: &'w Workload, vllm: VllmV1Run, step_time: T) -> Self {
        let limits = RunLimits { max_steps: None, until: None };
        Self {
            workload,
            policy: vllm,
            step_time,
            limits,
            settings: ServerSettings::DEFAULT,
            patience: None,
        }
    }

    /// The same run behind a gateway that refuses who arrives as these settings say; the order of the
    /// queue and the KV cache are vLLM's own.
    #[must_use]
    pub const fn gateway(mut self, settings: ServerSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Runs, skipping what has no events.
    ///
    /// # Errors
    ///
    /// [`SimError::Vllm`](crate::SimError) for what vLLM would not start with,
    /// [`SimError::RunTooLong`](crate::SimError) if the clock passes its range.
    pub fn run(self) -> Result<RunResult<'w>> {
        clock::run(self, true, &mut ())
    }

    /// Runs, skipping what has no events, and shows each stretch to `observer`.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_observed(self, observer: &mut impl Observer) -> Result<RunResult<'w>> {
        clock::run(self, true, observer)
    }

    /// Asks the scheduler in every step: the plain engine, with the same result.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_reference(self) -> Result<RunResult<'w>> {
        clock::run(self, false, &mut ())
    }

    /// Asks the scheduler in every step, and shows each to `observer`.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_reference_observed(self, observer: &mut impl Observer) -> Result<RunResult<'w>> {
        clock::run(self, false, observer)
    }
}
