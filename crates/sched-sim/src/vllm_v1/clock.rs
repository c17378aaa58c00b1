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
use super::plan::{Kind, Plan, Update};
use super::scheduler::{NewRequest, Quiet, Taken, VllmV1};
use crate::admission::{Gate, Seen};
use crate::error::{Result, SimError};
use crate::history::{Blocks, Observer, Stretch};
use crate::itl::GapRun;
use crate::kv_cache::KvBooks;
use crate::memory::ServerSettings;
use crate::run::{Clock, Coming, Departures, Intake, run_workload};
use crate::server::{Ending, Job, Leave, Over, Progress, Server, ServerLoad};
use crate::simulation::{RequestRecord, RunEnd, RunLimits, RunResult, Simulation, Span, Stall};
use crate::statistics::{KvStatistics, RunStatistics};
use crate::step_time::{StepTime, StepWork, StretchTime};
use crate::time::Ticks;
use crate::workload::PromptContent;

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
    let Simulation { workload, policy, step_time, limits, settings, patience } = simulation;
    let VllmV1Run { config, mut cancellations } = policy;
    let len = workload.len();
    if let Some(&(_, position)) = cancellations.iter().find(|c| len <= c.1) {
        return Err(SimError::NoSuchCancellation { position, len });
    }
    // Of several of one request, the first counts.
    cancellations.sort_unstable_by_key(|&(at, position)| (position, at));
    let caching = config.enable_prefix_caching;
    let mut server = VllmReplica::new(config, step_time)?.limits(limits).gateway(&settings);
    server.skipping = skipping;
    let leaves = |job: &mut Job| {
        let first = cancellations.partition_point(|c| (c.1 as u64) < job.id);
        let own = cancellations.get(first).filter(|c| c.1 as u64 == job.id);
        job.cancel_at = own.map(|c| c.0).or(job.cancel_at);
        job.give_up_after(patience);
    };
    run_workload(workload, server, caching, leaves, observer)
}

/// A step that was scheduled and has not ended.
struct Flight {
    plan: Plan,
    start: Ticks,
    end: Ticks,
    work: StepWork,
    held_tokens: u64,
    used_blocks: u64,
    cached_blocks: u64,
    /// Who runs and is not in it.
    left_out: Vec<u64>,
    /// Prompt chunks and decodes in it of those who left after it was scheduled and before it began.
    gone: (u64, u64),
}

impl Flight {
    /// The request is over before the step begins.
    fn lose(&mut self, id: u64) {
        match self.plan.rows().iter().find(|row| row.id == id) {
            Some(row) if row.prefill => self.gone.0 += 1,
            Some(_) => self.gone.1 += 1,
            None => {}
        }
    }
}

/// A request that was taken in, as far as its steps have run.
#[derive(Clone, Debug)]
struct Entry {
    id: u64,
    arrival: Ticks,
    input: u64,
    output: u64,
    /// Tokens of the answer that it came with, together with its KV.
    made: u64,
    record: RequestRecord,
    hit_tokens: u64,
    stalls: Vec<Stall>,
    held: Vec<Span>,
    inside: bool,
    in_batch: bool,
}

/// One replica of vLLM on a clock, driven from outside.
///
/// [`Simulation::vllm_v1`] is the run of a single one. A router that has to look at replicas at
/// the time of an arrival advances all of them to it, and submits the request to one.
///
/// # Examples
///
/// ```
/// use sched_sim::server::{Job, Server};
/// use sched_sim::vllm_v1::{VllmConfig, VllmReplica};
/// use sched_sim::{Affine, Ticks};
///
/// let at = |ms: u64| Ticks::from_nanoseconds(ms * 1_000_000);
/// let step_time: Affine = "base=1ms,prefill=10us/token".parse()?;
///
/// let mut replica = VllmReplica::new(VllmConfig::new(101, 400), step_time)?;
/// replica.submit(Job::new(0, at(0), 100, 3))?;
/// replica.advance_to(at(5), &mut ())?;
/// // Steps of 2, 1 and 1 ms.
/// assert!(!replica.scheduler().has_unfinished());
/// assert_eq!(replica.now(), at(4));
/// replica.submit(Job::new(1, at(5), 60, 1))?;
/// replica.finish(&mut ())?;
/// let mut over = Vec::new();
/// replica.take_over(&mut over);
/// assert_eq!(over[1].at, "6.6ms".parse()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub struct VllmReplica<T> {
    scheduler: VllmV1,
    step_time: T,
    clock: Clock,
    skipping: bool,
    depth: usize,
    /// Submitted, and not delivered, in order of arrival.
    pending: Intake,
    entries: Vec<Entry>,
    vacant: Vec<usize>,
    /// Looked up and never iterated: where in `entries` a request is that is not over.
    place: HashMap<u64, usize, FixedState>,
    /// Clients that leave if their request is not over by then; looked at when due.
    departures: Departures<usize>,
    in_flight: VecDeque<Flight>,
    /// When the step scheduled last ends.
    busy_until: Ticks,
    in_batch: u64,
    kv: KvStatistics,
    gate: Gate,
    /// Schedules in a row that gave nobody a token, with nothing in flight.
    empty: usize,
    /// Steps in a row in which nobody got a token.
    barren: u64,
    /// When tokens were made last.
    beat: Ticks,
    /// Gaps between tokens that ended in the last stretch.
    gaps: Vec<GapRun>,
    end: Option<RunEnd>,
}

impl<T: StepTime> VllmReplica<T> {
    /// An idle replica.
    ///
    /// # Errors
    ///
    /// [`SimError::Vllm`] for what vLLM would not start with.
    pub fn new(config: VllmConfig, step_time: T) -> Result<Self> {
        let max_num_seqs = config.max_num_seqs;
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
            clock: Clock::new(max_num_seqs),
            skipping: true,
            depth,
            pending: Intake::default(),
            entries: Vec::new(),
            vacant: Vec::new(),
            place: HashMap::with_hasher(FixedState::default()),
            departures: Departures::new(),
            in_flight: VecDeque::new(),
            busy_until: Ticks::ZERO,
            in_batch: 0,
            kv,
            gate: Gate::default(),
            empty: 0,
            barren: 0,
            beat: Ticks::ZERO,
            gaps: Vec::new(),
            end: None,
        })
    }

    /// The same replica, stopped by `limits`.
    #[must_use]
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.clock.limits = limits;
        self
    }

    /// The same replica behind a gateway that refuses who arrives as these settings say; vLLM itself
    /// has no such limits. The order of the queue and the KV cache are its own.
    #[must_use]
    pub fn gateway(mut self, settings: &ServerSettings) -> Self {
        self.gate = Gate::new(settings);
        self
    }

    /// The same replica, which asks the scheduler in every step: the same results.
    #[must_use]
    pub fn asked_in_every_step(mut self) -> Self {
        self.skipping = false;
        self
    }

    /// The time up to which all steps have run.
    #[must_use]
    pub fn now(&self) -> Ticks {
        self.clock.now
    }

    /// Its scheduler: queue, running list and KV cache as they are now.
    #[must_use]
    pub fn scheduler(&self) -> &VllmV1 {
        &self.scheduler
    }

    /// Goes on up to `until`, or to the end.
    fn advance(&mut self, until: Option<Ticks>, observer: &mut dyn Observer) -> Result<()> {
        while self.end.is_none() {
            // As many steps as can be are in flight: nothing is decided before the oldest ends.
            if let Some(end) = self.awaited() {
                if until.is_some_and(|until| until < end) {
                    return Ok(());
                }
                self.land(observer)?;
            }
            if until.is_some_and(|until| until <= self.clock.now) {
                return Ok(());
            }
            if !self.turn(until, self.skipping, observer)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The end of the step in flight that has to end before another can be scheduled.
    fn awaited(&self) -> Option<Ticks> {
        let full = self.depth <= self.in_flight.len();
        self.in_flight.front().filter(|_| full).map(|flight| flight.end)
    }

    /// One schedule, or a wait for one; `false` if there is nothing to do until somebody is
    /// submitted.
    fn turn(
        &mut self,
        until: Option<Ticks>,
        skipping: bool,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let idle = self.clock.inside() == 0 && self.pending.is_empty();
        if !self.scheduler.has_unfinished() && (idle || self.clock.stopped().is_none()) {
            // With nothing left to do, what is in flight is taken in before the next arrivals
            // are. vLLM then schedules once more, to tell its workers who is over.
            self.drain(observer)?;
            let plan = self.scheduler.schedule();
            self.scheduler.update_from_output(plan);
        }
        self.deliver();
        self.let_go(self.clock.now);
        let waiting = self.waiting();
        self.clock.statistics.waiting_max = self.clock.statistics.waiting_max.max(waiting);
        if self.clock.inside() == 0 && self.pending.is_empty() {
            return Ok(false);
        }
        self.end = self.clock.stopped();
        if self.end.is_some() {
            return Ok(true);
        }
        if !self.scheduler.has_unfinished() {
            return Ok(self.wait(until, observer));
        }
        if skipping && self.skip(until, observer)? {
            return Ok(true);
        }
        self.launch()?;
        if 2 * self.depth <= self.empty {
            self.drain(observer)?;
            self.empty = 0;
            if self.wait(until, observer) {
                return Ok(true);
            }
            if until.is_none() {
                self.end = Some(RunEnd::Stalled);
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Waits for who arrives or leaves next, not beyond `until` or the limit of the run; `false`
    /// if nobody does.
    fn wait(&mut self, until: Option<Ticks>, observer: &mut dyn Observer) -> bool {
        let coming = [self.pending.next_arrival(), self.next_departure()];
        let Some(next) = coming.into_iter().flatten().min() else { return false };
        let ends = [until, self.clock.limits.until].into_iter().flatten();
        let to = ends.fold(next, Ticks::min);
        if to <= self.clock.now {
            return false;
        }
        self.clock.wait_until(to, self.in_batch, observer);
        true
    }

    fn deliver(&mut self) {
        while let Some(job) = self.pending.take(self.clock.now).map(Coming::job) {
            let own = [(PromptContent::OWN | job.id, job.input_tokens)];
            let content = job.content.as_deref();
            let answer = content.and_then(|c| c.answer);
            let request = NewRequest {
                id: job.id,
                arrival: job.arrival.0,
                priority: job.priority,
                prompt: content.map_or(&own, |c| &c.prompt),
                output_segment: answer.unwrap_or((2 * PromptContent::OWN) | job.id),
                max_tokens: job.output_tokens,
                made_tokens: job.made_tokens,
                made_at: job.made_at.map(|at| at.0),
            };
            let (scheduler, entries) = (&self.scheduler, &self.entries);
            let seen = Seen {
                waiting: self.waiting(),
                waiting_tokens: || waiting_tokens(entries, scheduler),
                kv_used: || scheduler.kv_cache().books().used as f64 / self.kv.blocks as f64,
            };
            let own_tokens = job.prompt_left();
            let at = (job.arrival, self.clock.now);
            // What vLLM would refuse anyhow takes no permit.
            let refusal = scheduler
                .check(&request)
                .err()
                .or_else(|| self.gate.refusal((job.id, own_tokens), at, seen));
            let added = match refusal {
                Some(rejection) => Err(rejection),
                None => self.scheduler.add_request(&request),
            };
            let entry = Entry {
                id: job.id,
                arrival: job.arrival,
                input: job.input_tokens,
                output: job.output_tokens,
                made: job.made_tokens,
                record: RequestRecord::NEW,
                hit_tokens: 0,
                stalls: Vec::new(),
                held: Vec::new(),
                inside: true,
                in_batch: false,
            };
            if let Err(rejection) = added {
                let ending = Ending::Rejected(rejection);
                self.clock.refuse(Over::new(entry.progress((0, entry.made)), job.arrival, ending));
                continue;
            }
            self.clock.let_in(job.arrival);
            let place = if let Some(place) = self.vacant.pop() {
                self.entries[place] = entry;
                place
            } else {
                self.entries.push(entry);
                self.entries.len() - 1
            };
            self.place.insert(job.id, place);
            if let Some((at, why)) = job.departure() {
                self.departures.push(at, job.id, place, why);
            }
        }
    }

    /// Requests that have arrived and are in no step that has begun. With async scheduling the queue
    /// of the scheduler is shorter: who is in the step after the one that runs has left it.
    fn waiting(&self) -> u64 {
        self.clock.inside() - self.in_batch
    }

    /// The first departure of a request that is inside.
    fn next_departure(&mut self) -> Option<Ticks> {
        let entries = &self.entries;
        self.departures.next(|id, place| entries[place].is(id))
    }

    /// Lets go whoever's client has left by `by`, which is now or just before.
    fn let_go(&mut self, by: Ticks) {
        let now = self.clock.now;
        loop {
            let entries = &self.entries;
            let due = self.departures.due(by, |id, place| entries[place].is(id));
            let Some((id, _, why)) = due else { break };
            let prefilled = self.scheduler.prefilled(id).unwrap_or_default();
            let Some(finished) = self.scheduler.abort(id) else { continue };
            for flight in &mut self.in_flight {
                flight.lose(id);
            }
            self.leave(id, (prefilled, finished.outputs), now, why.ending());
            self.barren = 0;
        }
    }

    /// The request is over.
    fn leave(&mut self, id: u64, progress: (u64, u64), at: Ticks, ending: Ending) {
        let Some(place) = self.place.remove(&id) else { return };
        let entry = &mut self.entries[place];
        entry.inside = false;
        if std::mem::replace(&mut entry.in_batch, false) {
            self.in_batch -= 1;
        }
        let over = Over::new(entry.progress(progress), at, ending);
        if ending == Ending::Completed {
            self.gate.completed(&over);
        }
        self.vacant.push(place);
        self.clock.leave(over);
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.get_mut(*self.place.get(&id)?)
    }

    /// Schedules a step and sends it off.
    fn launch(&mut self) -> Result<()> {
        let plan = self.scheduler.schedule();
        let work = plan.work();
        let nothing = work.is_empty() && self.in_flight.iter().all(|f| f.work.is_empty());
        self.empty = if nothing { self.empty + 1 } else { 0 };
        let duration = if work.is_empty() { Ticks::ZERO } else { self.step_time.step(&work) };
        let start = self.busy_until.max(self.clock.now);
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
            gone: (0, 0),
            held_tokens: self.scheduler.held_tokens() - plan.tokens(),
            used_blocks: self.scheduler.kv_cache().books().used,
            cached_blocks: self.scheduler.kv_cache().books().cached,
            plan,
        });
        Ok(())
    }

    fn drain(&mut self, observer: &mut dyn Observer) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.land(observer)?;
        }
        Ok(())
    }

    /// Waits for the oldest step in flight, and takes its output in.
    fn land(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let Some(flight) = self.in_flight.pop_front() else { return Ok(()) };
        self.fly(&flight);
        let stretch = self.pass(&flight, observer);
        // Who leaves as the step ends gets its token.
        if let Some(before) = self.clock.now.0.checked_sub(1) {
            self.let_go(Ticks(before));
        }
        let Flight { plan, end, work, gone, .. } = flight;
        self.scheduler.tell(end.0);
        self.scheduler.update_from_output(plan);
        let update = std::mem::take(&mut self.scheduler.update);
        self.gaps.clear();
        self.note_gaps(end, &update);
        observer.gaps(&self.gaps);
        // An empty step makes none.
        self.beat = if work.is_empty() { self.beat } else { end };
        let finished = update.finished.len() as u64;
        if let Some(stretch) = stretch {
            self.clock.statistics.add(&stretch, finished);
            self.clock.statistics.leave_out(&stretch, gone);
        } else {
            self.clock.statistics.completed += finished;
        }
        let progress = work.decodes > 0 || !update.first_tokens.is_empty();
        self.barren = if progress { 0 } else { self.barren + 1 };
        for &id in &update.first_tokens {
            if let Some(entry) = self.entry(id) {
                entry.record.prompt_done = end;
                entry.record.first_token = end;
            }
        }
        for over in &update.finished {
            if let Some(entry) = self.entry(over.id) {
                entry.record.last_token = end;
                let input = entry.input;
                self.leave(over.id, (input, over.outputs), end, Ending::Completed);
            }
        }
        self.scheduler.update = update;
        let limit = self.barren_limit();
        if limit < self.barren {
            return Err(SimError::NoProgress {
                at: self.clock.now,
                step: self.clock.statistics.steps,
                steps: limit,
                requests: self.clock.inside(),
            });
        }
        Ok(())
    }

    /// Notes the gaps before the tokens that an update at `end` brought.
    fn note_gaps(&mut self, end: Ticks, update: &Update) {
        if 0 < update.following {
            self.gaps.push(GapRun::between(self.beat, end, update.following));
        }
        let apart = update.before.iter().map(|&t| GapRun::between(Ticks(t), end, 1));
        self.gaps.extend(apart);
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
            self.kv.preemptions += 1;
            let Some(entry) = self.entry(id) else { continue };
            let first = entry.stalls.is_empty();
            // Else its last token came from the step before.
            if std::mem::replace(&mut entry.in_batch, false) {
                entry.stalls.push(Stall {
                    from: *start,
                    readmitted: None,
                    recomputed: None,
                    caught_up: None,
                    lost_tokens,
                    hit_tokens: 0,
                    swap_time: Ticks::ZERO,
                });
                self.in_batch -= 1;
                self.kv.preempted_requests += u64::from(first);
            }
        }
        for row in plan.admissions() {
            let Some(entry) = self.entry(row.id) else { continue };
            entry.in_batch = true;
            let mut again = 0;
            if row.kind == Kind::New {
                entry.record.scheduled = *start;
                // What it came with is no hit.
                entry.hit_tokens = if entry.made == 0 { row.computed } else { 0 };
            } else if let Some(stall) = entry.stalls.last_mut() {
                stall.readmitted = Some(*start);
                stall.hit_tokens = row.computed;
                again = stall.recomputed_tokens();
            }
            self.in_batch += 1;
            self.kv.recomputed_tokens += again;
        }
        for &id in &flight.left_out {
            // Async: its last token may have come from the step before.
            if let Some(entry) = self.entry(id).filter(|entry| entry.in_batch) {
                Span::add(&mut entry.held, *start, *end);
            }
        }
        if flight.work.prefills > 0 && self.kv.preemptions > 0 {
            for row in plan.rows().iter().filter(|row| row.prefill && row.samples) {
                if let Some(entry) = self.entry(row.id)
                    && let Some(stall) = entry.stalls.last_mut()
                {
                    stall.recomputed.get_or_insert(*end);
                    stall.caught_up.get_or_insert(*end);
                }
            }
        }
    }

    /// Moves the clock past one step, unless it is empty.
    fn pass(&mut self, flight: &Flight, observer: &mut dyn Observer) -> Option<Stretch> {
        let Flight { start, end, work, held_tokens, used_blocks, cached_blocks, .. } = *flight;
        self.clock.now = end;
        if work.is_empty() {
            return None;
        }
        let time = StretchTime::one(Ticks(end.0 - start.0));
        let running = self.in_batch;
        let blocks = Some([self.blocks(used_blocks, cached_blocks); 2]);
        let held = flight.plan.held();
        let stretch =
            Stretch { start, end, steps: 1, work, time, running, held_tokens, blocks, held };
        observer.stretch(&stretch);
        let area = stretch.duration().0;
        self.clock.statistics.in_system_time += area * u128::from(self.clock.inside());
        self.kv.used_time += area * u128::from(used_blocks);
        self.kv.used_max = self.kv.used_max.max(used_blocks);
        Some(stretch)
    }

    /// Blocks while a step ran; without a prefix cache none is cached.
    fn blocks(&self, used: u64, cached: u64) -> Blocks {
        let caching = self.scheduler.config().enable_prefix_caching;
        Blocks { used, cached: caching.then_some(cached) }
    }

    /// Skips what the scheduler can; whether it could.
    fn skip(&mut self, until: Option<Ticks>, observer: &mut dyn Observer) -> Result<bool> {
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
        let KvBooks { used: before, cached, .. } = self.scheduler.kv_cache().books();
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
                self.clock.statistics.add(&stretch, 0);
            }
        }
        let new = steps - u64::from(landed.is_some());
        let start = self.clock.now;
        let end = start.after(time.total(new));
        if Ticks::LONGEST_RUN < end {
            return Err(SimError::RunTooLong);
        }
        if new > 0 {
            let running = self.in_batch;
            let last = self.blocks(before + taken.before(new), cached - taken.evicted_before(new));
            let first = self.blocks(before + taken.first.0, cached - taken.first.1);
            let blocks = Some([first, last]);
            let held = quiet.held;
            let stretch =
                Stretch { start, end, steps: new, work, time, running, held_tokens, blocks, held };
            observer.stretch(&stretch);
            self.clock.now = end;
            self.clock.statistics.in_system_time +=
                stretch.duration().0 * u128::from(self.clock.inside());
            self.clock.statistics.add(&stretch, 0);
            let (sum, weighted) = taken.used(before, new);
            // Modulo 2^128, in which the whole fits.
            let growth = time.growth.cast_unsigned();
            let area = sum.wrapping_mul(time.first.0).wrapping_add(weighted.wrapping_mul(growth));
            self.kv.used_time = self.kv.used_time.wrapping_add(area);
            self.kv.used_max = self.kv.used_max.max(before + taken.before(new));
        }
        self.scheduler.date(end.0);
        let update = std::mem::take(&mut self.scheduler.update);
        self.gaps.clear();
        let all = quiet.decodes;
        if landed.is_none() && update.before.is_empty() && self.beat == start {
            self.gaps.push(GapRun::of_steps(&time, 0, new, all));
        } else {
            let (first_end, seen) = match &landed {
                Some(flight) => (flight.end, 0),
                None => (start.after(time.first), 1),
            };
            self.note_gaps(first_end, &update);
            if seen < new {
                self.gaps.push(GapRun::of_steps(&time, seen, new, all));
            }
        }
        observer.gaps(&self.gaps);
        self.scheduler.update = update;
        self.beat = end;
        self.busy_until = end;
        if let Some(Flight { mut plan, .. }) = landed {
            plan.repeat(quiet.held);
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
                cached_blocks: cached - taken.evicted,
                left_out: Vec::new(),
                gone: (0, 0),
            });
        }
        self.empty = 0;
        self.barren = 0;
        Ok(true)
    }

    /// How many steps may be skipped until something comes from outside.
    fn most(&mut self, quiet: &Quiet, time: &StretchTime, until: Option<Ticks>) -> u64 {
        let mut most = quiet.steps.min(time.steps);
        if let Some(max) = self.clock.limits.max_steps {
            most = most.min(max - self.clock.statistics.steps);
        }
        // Who arrives may be one whose client goes away meanwhile.
        let arrivals = quiet.arrivals || self.pending.may_leave() || self.gate.looks();
        let arrival = if arrivals { self.pending.next_arrival() } else { None };
        for event in [arrival, self.clock.limits.until].into_iter().flatten() {
            most = most.min(self.schedules_before(event, time, most));
        }
        // Who looks at the server at `until` finds the step that is under way then in flight.
        if let Some(until) = until {
            most = most.min(self.schedules_that_end(until, time, most));
        }
        // A client that goes away is seen one update earlier than one that comes.
        if let Some(event) = self.next_departure() {
            most = most.min(self.schedules_before(event, time, most.saturating_add(1)) - 1);
        }
        most
    }

    /// How many schedules there are before `event`, which is to come: one now, with a step in
    /// flight another at its end, then one at the start of each further step. At most `most`.
    fn schedules_before(&self, event: Ticks, time: &StretchTime, most: u64) -> u64 {
        let Some(flight) = self.in_flight.front() else {
            let gap = event.since(self.clock.now).unwrap_or_default();
            return time.steps_to_reach(gap, most);
        };
        match event.since(flight.end) {
            Some(gap) if gap != Ticks::ZERO && most > 1 => 1 + time.steps_to_reach(gap, most - 1),
            _ => 1,
        }
    }

    /// How many schedules, at most `most`, leave nothing to land that ends after `until`.
    fn schedules_that_end(&self, until: Ticks, time: &StretchTime, most: u64) -> u64 {
        let Some(flight) = self.in_flight.front() else {
            let gap = until.since(self.clock.now).unwrap_or_default();
            return time.steps_within(gap, most);
        };
        // The last one that is scheduled stays in flight.
        let after = |gap| 1 + time.steps_within(gap, most.saturating_sub(1));
        until.since(flight.end).map_or(0, after)
    }

    /// How far a request is that is inside.
    fn progress(&self, entry: &Entry) -> (u64, u64) {
        let decoded = self.scheduler.progress(entry.id).map(|(outputs, _)| outputs);
        let prefilled = self.scheduler.prefilled(entry.id);
        (prefilled.unwrap_or_default(), decoded.unwrap_or_default())
    }
}

/// Tokens that those have to prefill who have arrived and are in no step that has begun.
fn waiting_tokens(entries: &[Entry], scheduler: &VllmV1) -> u64 {
    let waiting = entries.iter().filter(|entry| entry.inside && !entry.in_batch);
    // What came with its KV has nothing to prefill until it loses that.
    let own = waiting.filter(|entry| entry.made == 0 || !entry.stalls.is_empty());
    own.map(|entry| scheduler.left_to_prefill(entry.id)).sum()
}

impl Entry {
    /// Whether it is the request of this number, and inside.
    fn is(&self, id: u64) -> bool {
        self.inside && self.id == id
    }

    fn progress(&self, (prefilled, output_tokens): (u64, u64)) -> Progress {
        Progress {
            id: self.id,
            arrival: self.arrival,
            input_tokens: self.input,
            record: self.record,
            prefilled,
            output_tokens,
            made_before: self.made,
            hit_tokens: self.hit_tokens,
            stalls: self.stalls.clone(),
            held: self.held.clone(),
            transfer: None,
            server: Some(0),
        }
    }
}

impl<T: StepTime> Server for VllmReplica<T> {
    fn submit(&mut self, job: Job) -> Result<()> {
        self.clock.submitted(&job)?;
        self.pending.push(job);
        Ok(())
    }

    fn advance_to(&mut self, time: Ticks, observer: &mut dyn Observer) -> Result<Option<RunEnd>> {
        self.clock.tell(time);
        self.advance(Some(time), observer)?;
        Ok(self.end)
    }

    fn finish(&mut self, observer: &mut dyn Observer) -> Result<RunEnd> {
        self.advance(None, observer)?;
        Ok(self.end.unwrap_or(RunEnd::Completed))
    }

    fn next_visible(&mut self, observer: &mut dyn Observer) -> Result<Option<Ticks>> {
        let told = self.clock.told();
        loop {
            if let Some(end) = self.awaited() {
                return Ok(Some(end));
            }
            if self.end.is_some() || !self.turn(Some(told), false, observer)? {
                break;
            }
        }
        let in_flight = self.in_flight.front().map(|flight| flight.end);
        let others = [self.pending.next_arrival(), self.next_departure()];
        Ok(others.into_iter().chain([in_flight]).flatten().min().filter(|_| self.end.is_none()))
    }

    fn cancel(&mut self, id: u64) {
        let now = self.clock.told();
        if self.pending.cancel(id, now) {
            return;
        }
        if let Some(&place) = self.place.get(&id) {
            self.departures.push(now, id, place, Leave::Cancel);
        }
    }

    fn load(&self) -> ServerLoad {
        let (more, mut outstanding_tokens) = self.pending.arrived(self.clock.told());
        for entry in self.entries.iter().filter(|e| e.inside) {
            let (prefilled, decoded) = self.progress(entry);
            outstanding_tokens +=
                entry.input.saturating_sub(prefilled) + entry.output.saturating_sub(decoded);
        }
        ServerLoad {
            waiting: self.scheduler.num_waiting() as u64 + more,
            running: self.scheduler.num_running() as u64,
            outstanding_tokens,
            kv_used: self.scheduler.kv_cache().books().used,
            kv_cached: self.scheduler.kv_cache().books().cached,
            kv_blocks: Some(self.kv.blocks),
        }
    }

    fn take_over(&mut self, into: &mut Vec<Over>) {
        self.clock.take_over(into);
    }

    fn inside(&self) -> Vec<Progress> {
        let inside = self.entries.iter().filter(|e| e.inside);
        let mut list: Vec<Progress> = inside.map(|e| e.progress(self.progress(e))).collect();
        list.sort_unstable_by_key(|p| p.id);
        list
    }

    fn statistics(&self) -> RunStatistics {
        let mut statistics = self.clock.totals(self.in_batch, &self.inside());
        let cache = self.scheduler.kv_cache();
        let (counters, cached_blocks) = (cache.counters(), cache.books().cached);
        statistics.kv = Some(KvStatistics { counters, cached_blocks, ..self.kv });
        statistics
    }
}
