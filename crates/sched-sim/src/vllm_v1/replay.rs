//! The loop around vLLM's scheduler, without an engine: arrivals, aborts, and steps in flight.
//!
//! ```text
//! sync:   deliver; schedule i; run i; update i; repeat
//! async:  deliver; schedule i; with fewer than 2 steps in flight go on at once with i + 1,
//!         else wait for the oldest one and update it; repeat
//! ```
//!
//! Time is the index of the step, or whole nanoseconds by [`StepNanoseconds`].

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::plan::{FinishReason, Finished, Plan, Update};
use super::scheduler::{NewRequest, VllmV1};

/// A request of a [`Replay`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayRequest {
    /// Its id, unique in the replay.
    pub id: u64,
    /// The step or nanosecond of its arrival.
    pub arrival: u64,
    /// The prompt as segments with their lengths.
    pub prompt: Vec<(u64, u64)>,
    /// The segment of the answer.
    pub output_segment: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Its priority.
    pub priority: i64,
}

impl ReplayRequest {
    /// A request of priority 0.
    #[must_use]
    pub fn new(
        id: u64,
        arrival: u64,
        prompt: Vec<(u64, u64)>,
        output_segment: u64,
        output: u64,
    ) -> Self {
        Self { id, arrival, prompt, output_segment, output, priority: 0 }
    }
}

/// When in its step an abort comes; with a clock it comes when it is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Before the step is scheduled, after its arrivals.
    #[default]
    Before,
    /// While it runs, before the next update.
    During,
}

/// A client goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abort {
    /// The step or nanosecond.
    pub at: u64,
    /// The request.
    pub id: u64,
    /// When in the step.
    pub phase: Phase,
}

impl Abort {
    /// An abort.
    #[must_use]
    pub fn new(at: u64, id: u64, phase: Phase) -> Self {
        Self { at, id, phase }
    }
}

/// How long a step takes: `a + b · tokens + c · context`, and nothing if it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepNanoseconds {
    /// Per step.
    pub a: u64,
    /// Per token that it computes.
    pub b: u64,
    /// Per token in the KV cache of its requests when it ends.
    pub c: u64,
}

impl StepNanoseconds {
    /// Whole nanoseconds per step, per token and per token of context.
    #[must_use]
    pub fn new(a: u64, b: u64, c: u64) -> Self {
        Self { a, b, c }
    }

    fn of(self, plan: &Plan) -> u64 {
        if plan.tokens() == 0 {
            return 0;
        }
        let work = self.b.saturating_mul(plan.tokens());
        let context = self.c.saturating_mul(plan.context());
        self.a.saturating_add(work).saturating_add(context)
    }
}

/// What became of a request; steps are indices, times the ends of those steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayRecord {
    /// The step of its first admission, and how many tokens were a hit then.
    pub admitted: Option<(u64, u64)>,
    /// The step that gave the first token, and its end.
    pub first_token: Option<(u64, u64)>,
    /// The step that gave the last token, and its end; none if it was aborted.
    pub last_token: Option<(u64, u64)>,
    /// Whether it was refused before the scheduler.
    pub rejected: bool,
    /// Why it is over; none if it was rejected or never ended.
    pub reason: Option<FinishReason>,
    /// How often it was preempted.
    pub preemptions: u64,
    /// Tokens delivered.
    pub outputs: u64,
}

/// How a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Whether it ended because the head of the queue can never be admitted.
    pub stalled: bool,
    /// Whether it ended at [`Replay::max_steps`].
    pub cut: bool,
    /// Steps that were scheduled.
    pub steps: u64,
    /// Tokens scheduled.
    pub tokens: u64,
    /// When it ended; 0 without a clock.
    pub end: u64,
    /// One record per request, in their order.
    pub records: Vec<ReplayRecord>,
}

/// What came in between two steps.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Intake {
    /// Ids that were delivered.
    pub added: Vec<u64>,
    /// Ids that were refused.
    pub rejected: Vec<u64>,
    /// Ids that were aborted.
    pub aborted: Vec<u64>,
}

/// Sees every step of a replay.
pub trait Watcher {
    /// A step was scheduled at `at`, and will end at `end`.
    fn scheduled(
        &mut self,
        step: u64,
        (at, end): (u64, u64),
        intake: &Intake,
        plan: &Plan,
        scheduler: &VllmV1,
    ) {
        let _ = (step, at, end, intake, plan, scheduler);
    }

    /// A request was aborted after the latest step was scheduled, before the next update.
    fn aborted(&mut self, id: u64) {
        let _ = id;
    }

    /// The output of a step was taken in; so many blocks are free then.
    fn updated(&mut self, step: u64, update: &Update, free_blocks: u64) {
        let _ = (step, update, free_blocks);
    }
}

/// Sees nothing.
impl Watcher for () {}

/// A workload for the scheduler alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// Delivered in order of arrival, ties in this order.
    pub requests: Vec<ReplayRequest>,
    /// Carried out in order of their time, ties in this order.
    pub aborts: Vec<Abort>,
    /// The clock; without one, time is the index of the step.
    pub step_time: Option<StepNanoseconds>,
    /// Ends the replay after so many steps, done or not.
    pub max_steps: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Done,
    Stalled,
    Cut,
}

struct InFlight {
    plan: Plan,
    step: u64,
    end: u64,
}

/// A replay under way.
struct Run<'a, W> {
    replay: &'a Replay,
    scheduler: &'a mut VllmV1,
    watcher: &'a mut W,
    /// Positions in order of delivery, and how many were delivered.
    order: Vec<usize>,
    delivered: usize,
    /// Aborts to come, by time.
    aborts: Vec<Abort>,
    /// Looked up and never iterated.
    position: HashMap<u64, usize, FixedState>,
    arrived: Vec<bool>,
    intake: Intake,
    in_flight: VecDeque<InFlight>,
    step: u64,
    now: u64,
    /// End of the step scheduled last.
    busy_until: u64,
    tokens: u64,
    steps: u64,
    records: Vec<ReplayRecord>,
}

impl Replay {
    /// Requests without aborts or a clock.
    #[must_use]
    pub fn new(requests: Vec<ReplayRequest>) -> Self {
        Self { requests, ..Self::default() }
    }

    /// Runs it through an idle scheduler.
    pub fn run(&self, scheduler: &mut VllmV1, watcher: &mut impl Watcher) -> Outcome {
        let mut order: Vec<usize> = (0..self.requests.len()).collect();
        order.sort_by_key(|&i| self.requests.get(i).map(|r| r.arrival));
        let mut aborts = self.aborts.clone();
        aborts.sort_by_key(|a| a.at);
        let mut run = Run {
            replay: self,
            order,
            delivered: 0,
            aborts,
            position: self.requests.iter().enumerate().map(|(i, r)| (r.id, i)).collect(),
            arrived: vec![false; self.requests.len()],
            intake: Intake::default(),
            in_flight: VecDeque::new(),
            step: 0,
            now: 0,
            busy_until: 0,
            tokens: 0,
            steps: 0,
            records: vec![ReplayRecord::default(); self.requests.len()],
            scheduler,
            watcher,
        };
        let ended = run.run();
        run.finish(ended)
    }
}

impl<W: Watcher> Run<'_, W> {
    fn clocked(&self) -> bool {
        self.replay.step_time.is_some()
    }

    /// The time in the unit of arrivals and aborts.
    fn time(&self) -> u64 {
        if self.clocked() { self.now } else { self.step }
    }

    fn run(&mut self) -> Ended {
        let depth = if self.scheduler.config().is_async() { 2 } else { 1 };
        let mut idle_steps = 0;
        loop {
            // In step mode, those that met no update in the turn of their step.
            self.abort_due(Some(Phase::During), true);
            if !self.scheduler.has_unfinished() {
                // The rules do not say it, the traces do: with nothing left to do, what is in
                // flight is taken in before the next arrivals are delivered.
                self.drain();
                // vLLM schedules once more, to tell the workers who is over; it takes no time.
                let plan = self.scheduler.schedule();
                self.scheduler.update_from_output(plan);
                if !self.jump() {
                    return Ended::Done;
                }
            }
            self.deliver();
            self.abort_due(Some(Phase::Before), true);
            if !self.scheduler.has_unfinished() {
                continue;
            }
            if self.replay.max_steps.is_some_and(|max| max <= self.steps) {
                return Ended::Cut;
            }
            let plan = self.scheduler.schedule();
            let nothing =
                plan.tokens() == 0 && self.in_flight.iter().all(|flight| flight.plan.tokens() == 0);
            idle_steps = if nothing { idle_steps + 1 } else { 0 };
            self.launch(plan);
            if depth <= self.in_flight.len() {
                self.update_oldest();
            }
            self.step += 1;
            if 2 * depth <= idle_steps {
                self.drain();
                let Some(arrival) = self.next_arrival() else { return Ended::Stalled };
                self.go_to(arrival);
                idle_steps = 0;
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(&position) = self.order.get(self.delivered)
            && let Some(request) = self.replay.requests.get(position)
            && request.arrival <= self.time()
        {
            self.delivered += 1;
            self.arrived[position] = true;
            let added = self.scheduler.add_request(&NewRequest {
                id: request.id,
                arrival: request.arrival.into(),
                priority: request.priority,
                prompt: &request.prompt,
                output_segment: request.output_segment,
                max_tokens: request.output,
                made_tokens: 0,
                made_at: None,
            });
            if added.is_ok() {
                self.intake.added.push(request.id);
            } else {
                self.records[position].rejected = true;
                self.intake.rejected.push(request.id);
            }
        }
    }

    /// Carries out what is due of one phase; with a clock phases do not matter. One for a request
    /// that is not delivered yet waits for it.
    fn abort_due(&mut self, phase: Option<Phase>, before_schedule: bool) {
        let (now, clocked) = (self.time(), self.clocked());
        if clocked && phase == Some(Phase::During) && before_schedule {
            return;
        }
        let mut next = 0;
        while let Some(&abort) = self.aborts.get(next)
            && abort.at <= now
        {
            let arrived = match self.position.get(&abort.id) {
                Some(&position) => self.arrived[position],
                None => true,
            };
            // Before the schedule of step i, a `during` abort of step i itself is not due yet.
            let later = abort.phase == Phase::During && before_schedule && abort.at == now;
            if !arrived || !clocked && (phase != Some(abort.phase) || later) {
                next += 1;
                continue;
            }
            self.aborts.remove(next);
            if let Some(finished) = self.scheduler.abort(abort.id) {
                self.record_finish(&finished, None);
                if before_schedule {
                    self.intake.aborted.push(abort.id);
                } else {
                    self.watcher.aborted(abort.id);
                }
            }
        }
    }

    fn launch(&mut self, plan: Plan) {
        let duration = self.replay.step_time.map_or(0, |step_time| step_time.of(&plan));
        self.busy_until = self.busy_until.max(self.now).saturating_add(duration);
        self.tokens += plan.tokens();
        self.steps += 1;
        for row in plan.admissions() {
            if let Some(&position) = self.position.get(&row.id) {
                self.records[position].admitted.get_or_insert((self.step, row.computed));
            }
        }
        let times = (self.now, self.busy_until);
        self.watcher.scheduled(self.step, times, &self.intake, &plan, self.scheduler);
        self.intake.added.clear();
        self.intake.rejected.clear();
        self.intake.aborted.clear();
        self.in_flight.push_back(InFlight { plan, step: self.step, end: self.busy_until });
    }

    fn update_oldest(&mut self) {
        let Some(InFlight { plan, step, end }) = self.in_flight.pop_front() else { return };
        self.now = self.now.max(end);
        self.abort_due(Some(Phase::During), false);
        let update = self.scheduler.update_from_output(plan);
        for id in &update.first_tokens {
            if let Some(&position) = self.position.get(id) {
                self.records[position].first_token = Some((step, end));
            }
        }
        let finished = update.finished.clone();
        for finished in &finished {
            self.record_finish(finished, Some((step, end)));
        }
        let free = self.scheduler.kv_cache().idle_blocks();
        self.watcher.updated(step, self.scheduler.last_update(), free);
    }

    fn record_finish(&mut self, finished: &Finished, last: Option<(u64, u64)>) {
        if let Some(&position) = self.position.get(&finished.id) {
            let record = &mut self.records[position];
            record.last_token = last;
            record.reason = Some(finished.reason);
            record.preemptions = finished.preemptions;
            record.outputs = finished.outputs;
        }
    }

    fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            self.update_oldest();
        }
    }

    /// Goes on to the next arrival or abort if it is not due yet; false if none is to come. That an abort of nobody
    /// moves the clock too is what the traces say.
    fn jump(&mut self) -> bool {
        let now = self.time();
        let arrival = self.next_arrival();
        let abort = self.aborts.iter().map(|a| a.at).find(|&at| now < at);
        let next = match (arrival, abort) {
            (Some(arrival), Some(abort)) => arrival.min(abort),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => return false,
        };
        self.go_to(next);
        true
    }

    fn next_arrival(&self) -> Option<u64> {
        let &position = self.order.get(self.delivered)?;
        self.replay.requests.get(position).map(|r| r.arrival)
    }

    fn go_to(&mut self, time: u64) {
        let clock = if self.clocked() { &mut self.now } else { &mut self.step };
        *clock = time.max(*clock);
    }

    fn finish(mut self, ended: Ended) -> Outcome {
        for (record, request) in self.records.iter_mut().zip(&self.replay.requests) {
            if let Some((outputs, preemptions)) = self.scheduler.progress(request.id)
                && !record.rejected
            {
                record.outputs = outputs;
                record.preemptions = preemptions;
            }
        }
        Outcome {
            stalled: ended == Ended::Stalled,
            cut: ended == Ended::Cut,
            steps: self.steps,
            tokens: self.tokens,
            end: self.now,
            records: self.records,
        }
    }
}
