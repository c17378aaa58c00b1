//! vLLM's scheduler on the exact clock of a simulation.
//!
//! ```text
//! sync:   deliver; schedule; run; update; repeat
//! async:  deliver; schedule; with one step in flight go on at once,
//!         else wait for the oldest one and update it; repeat
//! ```
//!
//! A step starts when the one before it has ended, and not before it was scheduled. What happened
//! to a request is dated by the steps it was in: scheduled and admitted again at the start of a
//! step, preempted at the start of the step that goes on without it, tokens at the end of one.
//!
//! The clock either asks the scheduler in every step, or lets it skip what has no events
//! ([`scheduler::Quiet`](super::scheduler)); the result is the same, bit for bit.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::config::VllmConfig;
use super::plan::{Kind, Plan};
use super::scheduler::{NewRequest, Quiet, Taken, VllmV1};
use crate::error::{Result, SimError};
use crate::history::{Observer, Stretch};
use crate::run::Run;
use crate::simulation::{
    RequestDetail, RunEnd, RunLimits, RunResult, Simulation, Span, Stall, Unfinished,
};
use crate::statistics::KvStatistics;
use crate::step_time::{StepTime, StepWork, StretchTime};
use crate::time::Ticks;
use crate::workload::{PromptContent, Workload};

/// A run under vLLM's scheduler: its options, and clients that go away.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VllmV1Run {
    /// The options.
    pub config: VllmConfig,
    /// When the client of which request goes away, by position in the workload. A request that is
    /// over or has not arrived by then is left alone, or goes when it arrives.
    pub cancellations: Vec<(Ticks, usize)>,
}

impl VllmV1Run {
    /// A run in which everybody stays.
    #[must_use]
    pub fn new(config: VllmConfig) -> Self {
        Self { config, cancellations: Vec::new() }
    }
}

/// Runs a simulation, skipping or not.
pub(crate) fn run<'w, T: StepTime>(
    simulation: Simulation<'w, VllmV1Run, T>,
    skipping: bool,
    observer: &mut impl Observer,
) -> Result<RunResult<'w>> {
    let Simulation { workload, policy, step_time, limits } = simulation;
    let mut replica = VllmReplica::new(workload, policy, step_time)?.limits(limits);
    replica.skipping = skipping;
    for position in 0..workload.len() {
        replica.submit(position);
    }
    let end = replica.advance(None, observer)?;
    Ok(replica.close(end.unwrap_or(RunEnd::Completed)))
}

/// A step that was scheduled and has not ended.
struct Flight {
    plan: Plan,
    start: Ticks,
    end: Ticks,
    work: StepWork,
    held_tokens: u64,
    used_blocks: u64,
    /// Who runs and is not in it.
    left_out: Vec<u64>,
}

/// Where a request is, as far as its steps have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "four facts, each of which can hold or not")]
struct State {
    delivered: bool,
    in_batch: bool,
    over: bool,
    preempted: bool,
}

/// One replica of vLLM on a clock, driven from outside: requests are submitted as they arrive, and
/// the replica advances to an instant.
///
/// [`Simulation::vllm_v1`] is the run of a single one. A router that has to look at replicas at
/// the time of an arrival advances all of them to it, and submits the request to one.
///
/// # Examples
///
/// ```
/// use sched_sim::vllm_v1::{VllmConfig, VllmReplica, VllmV1Run};
/// use sched_sim::{Affine, Ticks, Workload, WorkloadRequest};
///
/// let at = |ms: u64| Ticks::from_nanoseconds(ms * 1_000_000);
/// let requests = [(0, 100, 3), (5, 60, 1)];
/// let requests = requests.iter().enumerate().map(|(i, &(ms, prompt, answer))| {
///     WorkloadRequest::new(i as u64, at(ms), prompt, answer)
/// });
/// let workload = Workload::new(requests.collect())?;
/// let step_time: Affine = "base=1ms,prefill=10us/token".parse()?;
///
/// let vllm = VllmV1Run::new(VllmConfig::new(101, 400));
/// let mut replica = VllmReplica::new(&workload, vllm, step_time)?;
/// replica.submit(0);
/// replica.advance_to(at(5), &mut ())?;
/// // Steps of 2, 1 and 1 ms.
/// assert!(!replica.scheduler().has_unfinished());
/// assert_eq!(replica.now(), at(4));
/// replica.submit(1);
/// let result = replica.finish(&mut ())?;
/// assert_eq!(result.records()[1].last_token(), Some("6.6ms".parse()?));
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub struct VllmReplica<'w, T> {
    scheduler: VllmV1,
    step_time: T,
    run: Run<'w>,
    skipping: bool,
    depth: usize,
    /// Positions that were submitted and are not delivered, in order of arrival.
    pending: VecDeque<usize>,
    /// Clients that are to go away, the earliest last.
    cancellations: Vec<(Ticks, usize)>,
    in_flight: VecDeque<Flight>,
    /// When the step scheduled last ends.
    busy_until: Ticks,
    states: Vec<State>,
    in_batch: u64,
    kv: KvStatistics,
    hit_tokens: Vec<u64>,
    details: Vec<RequestDetail>,
    /// Looked up and never iterated: where in `details` a position is.
    detail_of: HashMap<usize, usize, FixedState>,
    /// Schedules in a row that gave nobody a token, with nothing in flight.
    empty: usize,
    /// Steps in a row in which nobody got a token.
    barren: u64,
}

impl<'w, T: StepTime> VllmReplica<'w, T> {
    /// An idle replica that serves requests of this workload.
    ///
    /// # Errors
    ///
    /// [`SimError::Vllm`] for what vLLM would not start with, [`SimError::NoSuchCancellation`].
    pub fn new(workload: &'w Workload, vllm: VllmV1Run, step_time: T) -> Result<Self> {
        let VllmV1Run { config, mut cancellations } = vllm;
        let len = workload.len();
        if let Some(&(_, position)) = cancellations.iter().find(|c| len <= c.1) {
            return Err(SimError::NoSuchCancellation { position, len });
        }
        // The earliest is the last, and of equals the one that was named first.
        cancellations.reverse();
        cancellations.sort_by_key(|c| std::cmp::Reverse(c.0));
        let max_num_seqs = config.max_num_seqs;
        let prefix_caching = config.enable_prefix_caching;
        let scheduler = VllmV1::new(config)?;
        let depth = if scheduler.config().is_async() { 2 } else { 1 };
        let options = scheduler.kv_cache().options();
        let kv = KvStatistics {
            blocks: options.blocks,
            block_size: options.block_size,
            ..KvStatistics::default()
        };
        Ok(Self {
            scheduler,
            step_time,
            run: Run::new(workload, RunLimits::default(), max_num_seqs),
            skipping: true,
            depth,
            pending: VecDeque::new(),
            cancellations,
            in_flight: VecDeque::new(),
            busy_until: Ticks::ZERO,
            states: vec![State::default(); len],
            in_batch: 0,
            kv,
            hit_tokens: vec![0; if prefix_caching { len } else { 0 }],
            details: Vec::new(),
            detail_of: HashMap::with_hasher(FixedState::default()),
            empty: 0,
            barren: 0,
        })
    }

    /// The same replica, stopped by `limits`.
    #[must_use]
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.run.limits = limits;
        self
    }

    /// The time up to which all steps have run.
    #[must_use]
    pub fn now(&self) -> Ticks {
        self.run.now
    }

    /// Its scheduler: queue, running list and KV cache as they are now.
    #[must_use]
    pub fn scheduler(&self) -> &VllmV1 {
        &self.scheduler
    }

    /// Sends it the request at this position of the workload, which it takes in at the first
    /// schedule after the request's arrival. In order of arrival; a position that was submitted
    /// before, or that is none, is ignored.
    pub fn submit(&mut self, position: usize) {
        if position < self.states.len() {
            self.pending.push_back(position);
        }
    }

    /// Makes every schedule before `time`; requests that arrive from then on can be submitted
    /// after it.
    ///
    /// # Errors
    ///
    /// [`SimError::RunTooLong`] if the clock passes its range, [`SimError::NoProgress`] for a
    /// scheduler that is stuck.
    pub fn advance_to(&mut self, time: Ticks, observer: &mut impl Observer) -> Result<()> {
        self.advance(Some(time), observer).map(|_| ())
    }

    /// Runs all that was submitted to its end.
    ///
    /// # Errors
    ///
    /// As [`advance_to`](Self::advance_to).
    pub fn finish(mut self, observer: &mut impl Observer) -> Result<RunResult<'w>> {
        let end = self.advance(None, observer)?;
        Ok(self.close(end.unwrap_or(RunEnd::Completed)))
    }

    /// Goes on up to `until`, or to the end, which is then `Some`.
    fn advance(
        &mut self,
        until: Option<Ticks>,
        observer: &mut impl Observer,
    ) -> Result<Option<RunEnd>> {
        loop {
            if until.is_some_and(|until| until <= self.run.now) {
                return Ok(None);
            }
            if !self.scheduler.has_unfinished() && self.stopped().is_none() {
                // With nothing left to do, what is in flight is taken in before the next arrivals
                // are. vLLM then schedules once more, to tell its workers who is over.
                self.drain(observer)?;
                let plan = self.scheduler.schedule();
                self.scheduler.update_from_output(plan);
            }
            self.deliver();
            self.cancel_due();
            let waiting = self.scheduler.num_waiting() as u64;
            self.run.statistics.waiting_max = self.run.statistics.waiting_max.max(waiting);
            if let Some(end) = self.stopped() {
                return Ok(Some(end));
            }
            if !self.scheduler.has_unfinished() {
                match self.next_arrival() {
                    // What is left belongs to other replicas, or has to be submitted yet.
                    None => return Ok(until.is_none().then_some(RunEnd::Completed)),
                    Some(arrival) => self.go_to(arrival, until, observer),
                }
                continue;
            }
            if self.skipping && self.skip(until, observer)? {
                continue;
            }
            self.launch()?;
            if self.depth <= self.in_flight.len() {
                self.land(observer)?;
            }
            if 2 * self.depth <= self.empty {
                self.drain(observer)?;
                let Some(arrival) = self.next_arrival() else { return Ok(Some(RunEnd::Stalled)) };
                self.go_to(arrival, until, observer);
                self.empty = 0;
            }
        }
    }

    /// Whether a limit of the run is reached.
    fn stopped(&self) -> Option<RunEnd> {
        let RunLimits { max_steps, until } = self.run.limits;
        if self.run.inside() == 0 && self.pending.is_empty() {
            None
        } else if max_steps.is_some_and(|max| max <= self.run.statistics.steps) {
            Some(RunEnd::StepLimit)
        } else if until.is_some_and(|until| until <= self.run.now) {
            Some(RunEnd::TimeLimit)
        } else {
            None
        }
    }

    fn arrival(&self, position: usize) -> Option<Ticks> {
        self.run.requests().get(position).map(|r| r.arrival)
    }

    fn next_arrival(&self) -> Option<Ticks> {
        self.pending.front().and_then(|&position| self.arrival(position))
    }

    /// Waits for an arrival, not beyond `until` or the limit of the run.
    fn go_to(&mut self, arrival: Ticks, until: Option<Ticks>, observer: &mut impl Observer) {
        let to = [until, self.run.limits.until].into_iter().flatten().fold(arrival, Ticks::min);
        if self.run.now < to {
            self.run.wait_until(to, self.in_batch, observer);
        }
    }

    fn deliver(&mut self) {
        let requests = self.run.requests();
        while let Some(&position) = self.pending.front()
            && let Some(request) = requests.get(position)
            && request.arrival <= self.run.now
        {
            self.pending.pop_front();
            let state = &mut self.states[position];
            if std::mem::replace(&mut state.delivered, true) {
                continue;
            }
            let own = [(PromptContent::OWN | position as u64, request.input_tokens)];
            let content = request.content.as_deref();
            let answer = content.and_then(|c| c.answer);
            let added = self.scheduler.add_request(&NewRequest {
                id: position as u64,
                arrival: request.arrival.0,
                priority: request.priority,
                prompt: content.map_or(&own, |c| &c.prompt),
                output_segment: answer.unwrap_or((2 * PromptContent::OWN) | position as u64),
                max_tokens: request.output_tokens,
            });
            self.run.arrived += 1;
            match added {
                Ok(()) => {
                    self.run.statistics.in_system_time += self.run.now.0 - request.arrival.0;
                }
                Err(rejection) => {
                    // Refused when it came, so that it was never inside.
                    state.over = true;
                    self.run.statistics.rejected += 1;
                    self.detail(position).rejected = Some(rejection);
                }
            }
        }
    }

    /// Cancels what is due. A cancellation of a request that is not delivered yet waits for it.
    fn cancel_due(&mut self) {
        let mut at = self.cancellations.len();
        while let Some(next) = at.checked_sub(1)
            && let Some(&(due, position)) = self.cancellations.get(next)
            && due <= self.run.now
        {
            at = next;
            if !self.states[position].delivered {
                continue;
            }
            self.cancellations.remove(next);
            let Some(finished) = self.scheduler.abort(position as u64) else { continue };
            self.leave(position);
            self.run.statistics.cancelled += 1;
            let now = self.run.now;
            let detail = self.detail(position);
            detail.cancelled = Some(now);
            detail.output_tokens = Some(finished.outputs);
            self.barren = 0;
        }
    }

    /// The request is over.
    fn leave(&mut self, position: usize) {
        let state = &mut self.states[position];
        state.over = true;
        if std::mem::replace(&mut state.in_batch, false) {
            self.in_batch -= 1;
        }
    }

    fn detail(&mut self, position: usize) -> &mut RequestDetail {
        let next = self.details.len();
        let at = *self.detail_of.entry(position).or_insert(next);
        if at == next {
            self.details.push(RequestDetail { position, ..RequestDetail::default() });
        }
        &mut self.details[at]
    }

    /// Schedules a step and sends it off.
    fn launch(&mut self) -> Result<()> {
        let plan = self.scheduler.schedule();
        let work = plan.work();
        let nothing = work.is_empty() && self.in_flight.iter().all(|f| f.work.is_empty());
        self.empty = if nothing { self.empty + 1 } else { 0 };
        let duration = if work.is_empty() { Ticks::ZERO } else { self.step_time.step(&work) };
        let start = self.busy_until.max(self.run.now);
        self.busy_until = start.after(duration);
        if Ticks::LONGEST_RUN < self.busy_until {
            return Err(SimError::RunTooLong);
        }
        let left_out = if plan.rows().len() < self.scheduler.num_running() && !work.is_empty() {
            self.scheduler.left_out(&plan).collect()
        } else {
            Vec::new()
        };
        self.in_flight.push_back(Flight {
            start,
            end: self.busy_until,
            work,
            left_out,
            held_tokens: self.scheduler.held_tokens() - plan.tokens(),
            used_blocks: self.scheduler.kv_cache().books().used,
            plan,
        });
        Ok(())
    }

    fn drain(&mut self, observer: &mut impl Observer) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.land(observer)?;
        }
        Ok(())
    }

    /// Waits for the oldest step in flight, and takes its output in.
    fn land(&mut self, observer: &mut impl Observer) -> Result<()> {
        let Some(flight) = self.in_flight.pop_front() else { return Ok(()) };
        self.fly(&flight);
        let stretch = self.pass(&flight, observer);
        self.cancel_due();
        let Flight { plan, end, work, .. } = flight;
        self.scheduler.update_from_output(plan);
        let update = std::mem::take(&mut self.scheduler.update);
        let progress = work.decodes > 0 || !update.first_tokens.is_empty();
        self.barren = if progress { 0 } else { self.barren + 1 };
        for &id in &update.first_tokens {
            let record = &mut self.run.records[index(id)];
            record.prompt_done = end;
            record.first_token = end;
        }
        for over in &update.finished {
            let position = index(over.id);
            self.run.records[position].last_token = end;
            self.leave(position);
            if over.outputs < self.run.requests()[position].output_tokens {
                self.detail(position).output_tokens = Some(over.outputs);
            }
        }
        if let Some(stretch) = stretch {
            self.run.statistics.add(&stretch, update.finished.len() as u64);
        }
        self.scheduler.update = update;
        let limit = self.barren_limit();
        if limit < self.barren {
            return Err(SimError::NoProgress {
                at: self.run.now,
                step: self.run.statistics.steps,
                steps: limit,
                requests: self.run.inside(),
            });
        }
        Ok(())
    }

    /// Steps without a token after which no scheduler gives one: far more than prompts need that
    /// displace each other.
    fn barren_limit(&self) -> u64 {
        let config = self.scheduler.config();
        let prompt = config.max_model_len.saturating_mul(2).saturating_add(64);
        config.max_num_seqs.saturating_add(2).saturating_mul(prompt)
    }

    /// Notes who is in a step, and who is not any more.
    fn fly(&mut self, flight: &Flight) {
        let Flight { plan, start, end, .. } = flight;
        for (&id, &lost_tokens) in plan.preempted().iter().zip(plan.lost()) {
            let position = index(id);
            self.kv.preemptions += 1;
            let state = &mut self.states[position];
            if !std::mem::replace(&mut state.preempted, true) {
                self.kv.preempted_requests += 1;
            }
            // Else its last token came from the step before.
            if std::mem::replace(&mut state.in_batch, false) {
                self.in_batch -= 1;
                self.detail(position).stalls.push(Stall {
                    from: *start,
                    readmitted: None,
                    caught_up: None,
                    lost_tokens,
                    hit_tokens: 0,
                });
            }
        }
        for row in plan.admissions() {
            let position = index(row.id);
            let state = &mut self.states[position];
            if state.over {
                continue;
            }
            state.in_batch = true;
            self.in_batch += 1;
            if row.kind == Kind::New {
                self.run.records[position].scheduled = *start;
                if let Some(hit) = self.hit_tokens.get_mut(position) {
                    *hit = row.computed;
                }
            } else if let Some(stall) = self.detail(position).stalls.last_mut() {
                stall.readmitted = Some(*start);
                stall.hit_tokens = row.computed;
                let again = stall.recomputed_tokens();
                self.kv.recomputed_tokens += again;
            }
        }
        for &id in &flight.left_out {
            let state = &self.states[index(id)];
            // Async: its last token may have come from the step before.
            if !state.in_batch || state.over {
                continue;
            }
            let held = &mut self.detail(index(id)).held;
            match held.last_mut() {
                Some(last) if last.to == *start => last.to = *end,
                _ => held.push(Span { from: *start, to: *end }),
            }
        }
        if flight.work.prefills > 0 && self.kv.preemptions > 0 {
            for row in plan.rows().iter().filter(|row| row.prefill && row.samples) {
                let position = index(row.id);
                if self.states[position].preempted
                    && !self.states[position].over
                    && let Some(stall) = self.detail(position).stalls.last_mut()
                {
                    stall.caught_up.get_or_insert(*end);
                }
            }
        }
    }

    /// Moves the clock past one step, unless it is empty.
    fn pass(&mut self, flight: &Flight, observer: &mut impl Observer) -> Option<Stretch> {
        let Flight { start, end, work, held_tokens, used_blocks, .. } = *flight;
        self.run.now = end;
        if work.is_empty() {
            return None;
        }
        let time = StretchTime::one(Ticks(end.0 - start.0));
        let running = self.in_batch;
        let stretch = Stretch { start, end, steps: 1, work, time, running, held_tokens };
        observer.stretch(&stretch);
        let area = stretch.duration().0;
        self.run.statistics.in_system_time += area * u128::from(self.run.inside());
        self.kv.used_time += area * u128::from(used_blocks);
        self.kv.used_max = self.kv.used_max.max(used_blocks);
        Some(stretch)
    }

    /// Skips what the scheduler can; whether it could.
    fn skip(&mut self, until: Option<Ticks>, observer: &mut impl Observer) -> Result<bool> {
        if self.in_flight.len() + 1 != self.depth {
            return Ok(false);
        }
        let Some(quiet) = self.scheduler.quiet(self.in_flight.back().map(|f| &f.plan)) else {
            return Ok(false);
        };
        let work = StepWork {
            decodes: quiet.decodes,
            decode_context: quiet.context,
            ..StepWork::default()
        };
        let time = self.step_time.stretch(&work);
        let most = self.most(&quiet, &time, until);
        if most == 0 {
            return Ok(false);
        }
        let held_tokens = self.scheduler.held_tokens();
        let before = self.scheduler.kv_cache().books().used;
        let mut taken = Taken::default();
        let steps = self.scheduler.skip(&quiet, most, &mut taken);
        if steps == 0 {
            return Ok(false);
        }
        let after = before + taken.blocks;
        // With a step in flight, that one lands and the last of the new ones is in flight instead.
        let landed = self.in_flight.pop_front();
        if let Some(flight) = &landed {
            self.fly(flight);
            if let Some(stretch) = self.pass(flight, observer) {
                self.run.statistics.add(&stretch, 0);
            }
        }
        let new = steps - u64::from(landed.is_some());
        let start = self.run.now;
        let end = start.after(time.total(new));
        if Ticks::LONGEST_RUN < end {
            return Err(SimError::RunTooLong);
        }
        if new > 0 {
            let running = self.in_batch;
            let stretch = Stretch { start, end, steps: new, work, time, running, held_tokens };
            observer.stretch(&stretch);
            self.run.now = end;
            self.run.statistics.in_system_time +=
                stretch.duration().0 * u128::from(self.run.inside());
            self.run.statistics.add(&stretch, 0);
            let (sum, weighted) = taken.used(before, new);
            // Modulo 2^128, in which the whole fits.
            let growth = time.growth.cast_unsigned();
            let area = sum.wrapping_mul(time.first.0).wrapping_add(weighted.wrapping_mul(growth));
            self.kv.used_time = self.kv.used_time.wrapping_add(area);
            self.kv.used_max = self.kv.used_max.max(before + taken.before(new));
        }
        self.busy_until = end;
        if let Some(Flight { mut plan, .. }) = landed {
            plan.repeat();
            self.busy_until = end.after(time.step(new));
            if Ticks::LONGEST_RUN < self.busy_until {
                return Err(SimError::RunTooLong);
            }
            self.in_flight.push_back(Flight {
                plan,
                start: end,
                end: self.busy_until,
                work: work.after(new),
                held_tokens: held_tokens + new * quiet.decodes,
                used_blocks: after,
                left_out: Vec::new(),
            });
        }
        self.empty = 0;
        self.barren = 0;
        Ok(true)
    }

    /// How many steps may be skipped until something comes from outside.
    fn most(&self, quiet: &Quiet, time: &StretchTime, until: Option<Ticks>) -> u64 {
        let mut most = quiet.steps.min(time.steps);
        if let Some(max) = self.run.limits.max_steps {
            most = most.min(max - self.run.statistics.steps);
        }
        // Who arrives may be one whose client goes away meanwhile.
        let arrivals = quiet.arrivals || !self.cancellations.is_empty();
        let arrival = if arrivals { self.next_arrival() } else { None };
        for event in [arrival, self.run.limits.until, until].into_iter().flatten() {
            most = most.min(self.schedules_before(event, time, most));
        }
        // A client that goes away is seen one update earlier than one that comes.
        let going = self.cancellations.iter().rev().find(|c| self.states[c.1].delivered);
        if let Some(&(event, _)) = going {
            most = most.min(self.schedules_before(event, time, most.saturating_add(1)) - 1);
        }
        most
    }

    /// How many schedules there are before `event`, which is to come: one now, with a step in
    /// flight another at its end, then one at the start of each further step. At most `most`.
    fn schedules_before(&self, event: Ticks, time: &StretchTime, most: u64) -> u64 {
        let Some(flight) = self.in_flight.front() else {
            let gap = event.since(self.run.now).unwrap_or_default();
            return time.steps_to_reach(gap, most);
        };
        match event.since(flight.end) {
            Some(gap) if gap != Ticks::ZERO && most > 1 => 1 + time.steps_to_reach(gap, most - 1),
            _ => 1,
        }
    }

    /// Adds up what is counted request by request.
    fn close(mut self, end: RunEnd) -> RunResult<'w> {
        let mut unfinished = Vec::new();
        for (position, state) in self.states.iter().enumerate() {
            let id = position as u64;
            if !state.delivered
                || state.over
                || self.run.records.get(position).is_none_or(|r| r.scheduled().is_none())
            {
                continue;
            }
            if let (Some((decoded, _)), Some(prefilled)) =
                (self.scheduler.progress(id), self.scheduler.prefilled(id))
            {
                unfinished.push(Unfinished { position, prefilled, decoded });
            }
        }
        self.kv.counters = self.scheduler.kv_cache().counters();
        self.details.sort_unstable_by_key(|d| d.position);
        let mut statistics = self.run.statistics;
        statistics.kv = Some(self.kv);
        statistics.running = self.in_batch;
        self.run.statistics = statistics;
        let states = self.states;
        let arrived = |position: usize| states.get(position).is_some_and(|s| s.delivered);
        self.run.close_with(end, unfinished, self.details, self.hit_tokens, arrived)
    }
}

/// Ids of the scheduler are positions in the workload.
fn index(id: u64) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}
