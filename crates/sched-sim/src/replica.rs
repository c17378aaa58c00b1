//! One server under a [`Policy`], with either engine behind it.
//!
//! The loop is the same for both: let in whoever has arrived, ask the policy, price what it
//! decided, and run it. The engine that skips prices a stretch of steps that provably repeat; the
//! plain one prices a single step and asks again. A stretch is only arithmetic until it is over, so
//! that an arrival in the middle of it cuts it at the end of the step under way.

use crate::admission::{Gate, Seen};
use crate::engine::Skipping;
use crate::error::Result;
use crate::history::{Observer, Stretch};
use crate::kv_cache::Content;
use crate::memory::{Memory, ServerSettings};
use crate::policy::{Horizon, Policy};
use crate::reference::Plain;
use crate::run::{Clock, Coming, Departures, Intake};
use crate::server::{Ending, Job, Leave, Over, Progress, Rejection, Server, ServerLoad};
use crate::simulation::{RequestRecord, RunEnd, RunLimits, Span, Stall};
use crate::statistics::{KvStatistics, RunStatistics};
use crate::step::{Batch, Step};
use crate::step_time::{StepTime, StretchTime};
use crate::time::Ticks;
use crate::workload::PromptContent;

/// What a server knows of a request that has arrived, whatever engine moves it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub id: u64,
    pub arrival: Ticks,
    pub input: u64,
    pub output: u64,
    /// Tokens of the answer that it came with, together with its KV.
    pub made: u64,
    /// Whether there is a request at this position now.
    pub inside: bool,
    pub record: RequestRecord,
    /// When it got its last token, as far as it was served by name; see [`Skipping`].
    pub token_at: Option<Ticks>,
    /// What few requests have, apart from a row of which there may be as many as wait.
    rare: Option<Box<Rare>>,
}

/// What few requests have.
#[derive(Clone, Debug, Default)]
struct Rare {
    priority: i64,
    /// When and why its client leaves, if it does.
    leaves: Option<(Ticks, Leave)>,
    /// Which tokens it has; none: tokens that no other request has.
    content: Option<Box<PromptContent>>,
    /// Tokens of its prompt that were cached at its first admission.
    hit_tokens: u64,
    stalls: Vec<Stall>,
    /// Steps that left it out although it was in the batch.
    held: Vec<Span>,
}

impl Entry {
    /// Whether it is the request of this number, and inside.
    fn is(&self, id: u64) -> bool {
        self.inside && self.id == id
    }

    #[inline]
    fn of(coming: Coming) -> Self {
        let Coming { id, arrival, input_tokens, output_tokens, whole } = coming;
        let mut entry = Self {
            id,
            arrival,
            input: input_tokens,
            output: output_tokens,
            made: 0,
            inside: true,
            record: RequestRecord::NEW,
            token_at: None,
            rare: None,
        };
        if let Some(job) = whole {
            let leaves = job.departure();
            let Job { made_tokens, made_at, priority, content, .. } = *job;
            (entry.made, entry.token_at) = (made_tokens, made_at);
            if priority != 0 || content.is_some() || leaves.is_some() {
                entry.rare = Some(Box::new(Rare { priority, leaves, content, ..Rare::default() }));
            }
        }
        entry
    }

    /// When and why its client leaves, if it does.
    fn leaves(&self) -> Option<(Ticks, Leave)> {
        self.rare.as_ref()?.leaves
    }

    /// Who runs first under an order that knows priorities: the lower one.
    pub fn priority(&self) -> i64 {
        self.rare.as_ref().map_or(0, |rare| rare.priority)
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn last_stall(&mut self) -> Option<&mut Stall> {
        self.rare.as_mut()?.stalls.last_mut()
    }

    /// Why its client left, if that was before `at`.
    #[inline]
    fn left_before(&self, at: Ticks) -> Option<Leave> {
        self.leaves().filter(|leaves| leaves.0 < at).map(|leaves| leaves.1)
    }

    /// Its prompt as a segment that no other request has.
    pub fn own_prompt(&self) -> [(u64, u64); 1] {
        [(PromptContent::OWN | self.id, self.input)]
    }

    /// Which tokens it has, `own` those of its [own prompt](Self::own_prompt).
    pub fn content<'a>(&'a self, own: &'a [(u64, u64); 1]) -> Content<'a> {
        let content = self.rare.as_ref().and_then(|rare| rare.content.as_deref());
        let answer = content.and_then(|c| c.answer);
        Content {
            prompt: content.map_or(own, |c| &c.prompt),
            output: (answer.unwrap_or((2 * PromptContent::OWN) | self.id), self.output),
        }
    }

    /// Its prompt, or all that it knows after a preemption, is computed and a token made; when the
    /// one before that was.
    pub fn token(&mut self, at: Ticks) -> Option<Ticks> {
        self.record.first_token = self.record.first_token().unwrap_or(at);
        if let Some(stall) = self.last_stall() {
            stall.caught_up.get_or_insert(at);
        }
        self.token_at.replace(at)
    }

    /// All that it knows is computed.
    pub fn prompt_done(&mut self, at: Ticks) {
        self.record.prompt_done = self.record.prompt_done().unwrap_or(at);
        if let Some(stall) = self.last_stall() {
            stall.recomputed.get_or_insert(at);
        }
    }

    /// Its KV is back, and nothing is computed again.
    pub fn returned(&mut self, at: Ticks) {
        self.scheduled(at, 0);
        if let Some(stall) = self.last_stall() {
            stall.recomputed.get_or_insert(at);
        }
    }

    /// It is in the batch, and a step or stretch goes on without it while others get tokens that
    /// are at the same stage.
    pub fn left_out(&mut self, stretch: &Stretch) {
        Span::add(&mut self.rare().held, stretch.start, stretch.end);
    }

    /// It is in the batch from now on, with `hit` tokens that were cached; how many have to be
    /// computed once more.
    pub fn scheduled(&mut self, at: Ticks, hit: u64) -> u64 {
        self.record.scheduled = self.record.scheduled().unwrap_or(at);
        match self.last_stall() {
            Some(stall) if stall.readmitted.is_none() => {
                stall.readmitted = Some(at);
                stall.hit_tokens = hit;
                stall.recomputed_tokens()
            }
            Some(_) => 0,
            None => {
                if 0 < hit {
                    self.rare().hit_tokens = hit;
                }
                0
            }
        }
    }

    #[inline]
    fn progress(&mut self, prefilled: u64, decoded: u64) -> Progress {
        let rare = self.rare.take().map(|rare| *rare);
        let Rare { hit_tokens, stalls, held, .. } = rare.unwrap_or_default();
        Progress {
            id: self.id,
            arrival: self.arrival,
            input_tokens: self.input,
            record: self.record,
            prefilled,
            output_tokens: decoded,
            made_before: self.made,
            hit_tokens,
            stalls,
            held,
            transfer: None,
            server: Some(0),
        }
    }
}

/// A request that a decision took out of the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preempted {
    pub position: u32,
    /// Tokens whose KV is lost.
    pub lost: u64,
    /// Tokens whose KV moves out.
    pub moved: u64,
    /// When it got its last token, if that was together with all others.
    pub token_at: Option<Ticks>,
}

/// Requests that are in the same list of positions for the server and its engine.
type Position = u32;

/// The batch, in either form.
enum Engine {
    Skipping(Box<Skipping>),
    Plain(Box<Plain>),
}

macro_rules! on {
    ($engine:expr, $batch:ident => $call:expr) => {
        match $engine {
            Engine::Skipping($batch) => $call,
            Engine::Plain($batch) => $call,
        }
    };
}

/// One server under a policy, driven from outside.
pub struct Replica<P, T> {
    policy: P,
    step_time: T,
    settings: ServerSettings,
    max_num_seqs: u64,
    clock: Clock,
    /// Submitted, and not arrived when the last decision was made.
    pending: Intake,
    requests: Vec<Entry>,
    vacant: Vec<Position>,
    /// Clients that leave if their request is not over by then; looked at when due.
    departures: Departures<Position>,
    engine: Engine,
    /// What is decided and has not ended.
    flight: Option<Stretch>,
    /// Decisions in a row, at one instant, that preempted somebody and served nobody.
    in_vain: u64,
    finished: Vec<Position>,
    preemptions: u64,
    preempted_requests: u64,
    swapped_tokens: u64,
    gate: Gate,
    end: Option<RunEnd>,
}

impl<P: Policy, T: StepTime> Replica<P, T> {
    /// An idle server that skips what has no events.
    #[must_use]
    pub fn new(policy: P, step_time: T) -> Self {
        Self::with(policy, step_time, ServerSettings::default(), true)
    }

    /// An idle server that executes every step for every request: the same results.
    #[must_use]
    pub fn reference(policy: P, step_time: T) -> Self {
        Self::with(policy, step_time, ServerSettings::default(), false)
    }

    fn with(policy: P, step_time: T, settings: ServerSettings, skips: bool) -> Self {
        let max_num_seqs = policy.max_num_seqs();
        let emits = policy.prefill_emits_first_token();
        let memory = settings.kv.map(|pool| Memory {
            pool,
            reserve: policy.reserve(),
            watermark: pool.blocks() * policy.watermark_percent() / 100,
            lag: u64::from(emits),
            radix: policy.prefix_caching(),
        });
        let engine = if skips {
            Engine::Skipping(Box::new(Skipping::new(emits, settings.order, memory)))
        } else {
            Engine::Plain(Box::new(Plain::new(emits, settings.order, memory)))
        };
        Self {
            policy,
            step_time,
            settings,
            max_num_seqs,
            clock: Clock::new(max_num_seqs),
            pending: Intake::default(),
            requests: Vec::new(),
            vacant: Vec::new(),
            departures: Departures::new(),
            engine,
            flight: None,
            in_vain: 0,
            finished: Vec::new(),
            preemptions: 0,
            preempted_requests: 0,
            swapped_tokens: 0,
            gate: Gate::new(&settings),
            end: None,
        }
    }

    /// The same server, before it has taken any request, with other settings.
    #[must_use]
    pub fn settings(self, settings: ServerSettings) -> Self {
        let skips = matches!(self.engine, Engine::Skipping(_));
        let limits = self.clock.limits;
        Self::with(self.policy, self.step_time, settings, skips).limits(limits)
    }

    /// The same server, stopped by `limits`.
    #[must_use]
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.clock.limits = limits;
        self
    }

    /// Whether it keeps prefixes that it has computed: its requests have hits.
    pub(crate) fn caches_prefixes(&self) -> bool {
        self.settings.kv.is_some() && self.policy.prefix_caching()
    }

    /// How many requests it has room for in memory: the most that were ever inside at once.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.requests.len()
    }

    /// Decides and runs up to `until`, or to the end.
    fn advance(&mut self, until: Option<Ticks>, observer: &mut dyn Observer) -> Result<()> {
        let mut flight = self.flight.take();
        while self.end.is_none() {
            let Some(stretch) = &mut flight else {
                let due = until.is_none_or(|until| self.clock.now < until);
                if due && self.decide(until, until, observer, &mut flight)? {
                    continue;
                }
                break;
            };
            if let Some(until) = until.filter(|&until| until < stretch.end) {
                // Of a stretch, the steps that have ended are over.
                let gap = until.since(stretch.start).unwrap_or_default();
                let done = stretch.time.steps_within(gap, stretch.steps);
                if 1 < stretch.steps {
                    *stretch = first_steps(stretch, done.max(1));
                }
                if until < stretch.end {
                    break;
                }
            }
            self.land(stretch, observer);
            flight = None;
        }
        self.flight = flight;
        Ok(())
    }

    /// Makes the decision that is due now, whose steps are cut at `cut` and go to `flight`, or waits
    /// for one, not beyond `until`; whether there is more to do before somebody comes.
    fn decide(
        &mut self,
        cut: Option<Ticks>,
        until: Option<Ticks>,
        observer: &mut dyn Observer,
        flight: &mut Option<Stretch>,
    ) -> Result<bool> {
        self.take_arrivals();
        if !self.departures.is_empty() {
            self.take_departures(self.clock.now);
        }
        let inside = self.clock.inside();
        let waiting = on!(&self.engine, b => b.waiting());
        self.clock.statistics.waiting_max = self.clock.statistics.waiting_max.max(waiting);
        if inside == 0 && self.pending.is_empty() {
            return Ok(false);
        }
        self.end = self.clock.stopped();
        if self.end.is_some() {
            return Ok(false);
        }
        if inside == 0 {
            return Ok(self.idle(until, 0, observer));
        }
        let at = self.clock.now;
        let skips = matches!(self.engine, Engine::Skipping(_));
        let mut step = Step {
            batch: match &mut self.engine {
                Engine::Skipping(batch) => {
                    batch.begin();
                    Batch::Skipping(batch)
                }
                Engine::Plain(batch) => {
                    batch.begin();
                    Batch::Plain(batch)
                }
            },
            requests: &self.requests,
            inside,
            max_num_seqs: self.max_num_seqs,
            order: self.settings.order,
            preemption: self.policy.preemption(),
            at,
            number: self.clock.statistics.steps + 1,
            held: None,
        };
        self.policy.fill(&mut step)?;
        let nothing = step.work().is_empty();
        step.settle();
        let horizon = if skips { self.policy.horizon(&step) } else { Horizon::ONE };
        let held = step.held();
        let preempted = self.note_preemptions();
        if nothing {
            // Whoever came back is in the batch, served or not.
            let requests = &mut self.requests;
            on!(&mut self.engine, b => b.date_returns(at, requests));
            let running = on!(&self.engine, b => b.running());
            // What was preempted may be admitted at once; who does not stay out would go round for ever.
            if preempted && self.in_vain < inside {
                self.in_vain += 1;
                return Ok(true);
            }
            self.in_vain = 0;
            return Ok(self.idle(until, running, observer));
        }
        self.in_vain = 0;
        let steps = match &mut self.engine {
            Engine::Skipping(batch) => batch.repeats().min(horizon.steps),
            Engine::Plain(_) => 1,
        };
        let work = on!(&self.engine, b => b.work());
        let time = if steps <= 1 {
            StretchTime::one(self.step_time.step(work))
        } else {
            self.step_time.stretch(work)
        };
        let moved = on!(&mut self.engine, b => b.take_moved());
        let time = if moved > 0 {
            // A step in which KV moves is a stretch of its own.
            let moving = self.policy.preemption().move_time(moved);
            StretchTime::one(time.first.after(moving))
        } else {
            time
        };
        let steps = steps.min(time.steps).max(1);
        let (steps, duration) = self.until_something_comes(steps, &time, horizon.arrivals, cut);
        *flight = Some(Stretch {
            start: at,
            end: Clock::end_after(at, duration)?,
            steps,
            work: *on!(&self.engine, b => b.work()),
            time,
            running: on!(&self.engine, b => b.running()),
            held_tokens: on!(&self.engine, b => b.held_tokens()),
            blocks: None,
            held: Some(held),
        });
        Ok(true)
    }

    /// Dates the preemptions of the decision just made; whether there are any.
    fn note_preemptions(&mut self) -> bool {
        let from = self.clock.now;
        let preempted = on!(&self.engine, b => b.preempted());
        for &Preempted { position, lost: lost_tokens, moved, token_at } in preempted {
            let entry = &mut self.requests[position as usize];
            entry.token_at = token_at.or(entry.token_at);
            let stalls = &mut entry.rare().stalls;
            self.preemptions += 1;
            self.swapped_tokens += moved;
            self.preempted_requests += u64::from(stalls.is_empty());
            stalls.push(Stall {
                from,
                readmitted: None,
                recomputed: None,
                caught_up: None,
                lost_tokens,
                hit_tokens: 0,
                swap_time: self.policy.preemption().move_time(moved),
            });
        }
        !preempted.is_empty()
    }

    /// Cuts a stretch of so many steps at what comes from outside; how long what is left takes.
    fn until_something_comes(
        &mut self,
        mut steps: u64,
        time: &StretchTime,
        arrivals: bool,
        until: Option<Ticks>,
    ) -> (u64, Ticks) {
        if steps == 1 {
            return (1, time.first);
        }
        let RunLimits { max_steps, until: stop } = self.clock.limits;
        if let Some(max) = max_steps {
            steps = steps.min(max - self.clock.statistics.steps);
        }
        let departure = self.next_departure();
        // Whoever arrives waits together with those who leave later in the stretch.
        // The door looks at the KV cache as it is when somebody arrives.
        let seen = departure.is_some() || self.gate.looks();
        let arrivals = arrivals || self.pending.may_leave() || seen;
        let arrival = if arrivals { self.pending.next_arrival() } else { None };
        let mut duration = time.total(steps);
        let first = sooner(sooner(arrival, departure), stop);
        if let Some(gap) = first.and_then(|event| event.since(self.clock.now))
            && 1 < steps
            && gap < duration
        {
            steps = time.steps_to_reach(gap, steps);
            duration = time.total(steps);
        }
        if let Some(gap) = until.and_then(|until| until.since(self.clock.now))
            && gap < duration
        {
            steps = time.steps_within(gap, steps).max(1);
            duration = time.total(steps);
        }
        (steps, duration)
    }

    /// Cuts what is decided at the end of the step under way at an instant.
    #[cold]
    fn cut_flight(&mut self, at: Ticks) {
        if let Some(flight) = self.flight.as_mut().filter(|flight| 1 < flight.steps) {
            let gap = at.since(flight.start).unwrap_or_default();
            let steps = flight.time.steps_to_reach(gap, flight.steps);
            *flight = first_steps(flight, steps);
        }
    }

    /// Runs what was decided, or the first steps of it. Together with the decision it would be more
    /// code in a row than a processor keeps at hand, and slower by a twentieth.
    #[inline(never)]
    fn land(&mut self, stretch: &Stretch, observer: &mut dyn Observer) {
        if observer.is_watching() {
            let blocks = on!(&mut self.engine, b => b.blocks_in(stretch.steps));
            observer.stretch(&Stretch { blocks, ..*stretch });
        }
        let requests = &mut self.requests;
        let (out, counts_gaps) = (&mut self.finished, observer.counts_gaps());
        on!(&mut self.engine, b => b.apply(stretch, requests, out, counts_gaps));
        let gaps = on!(&self.engine, b => b.gaps());
        if !gaps.is_empty() {
            observer.gaps(gaps);
        }
        self.policy.ran(&stretch.work, stretch.steps);
        // Nobody is there any more to whom this last token would go.
        let late = |&&position: &&Position| {
            self.requests[position as usize].left_before(stretch.end).is_some()
        };
        let late = self.finished.iter().filter(late).count();
        self.clock.advance(stretch, (self.finished.len() - late) as u64);
        if !self.finished.is_empty() {
            self.let_finished_go(stretch.end);
        }
    }

    /// Lets go who got its last token at `end`.
    fn let_finished_go(&mut self, end: Ticks) {
        let mut finished = std::mem::take(&mut self.finished);
        let requests = &self.requests;
        // Who ends together leaves in the order in which it is told.
        if 1 < finished.len() {
            finished.sort_unstable_by_key(|&position| requests[position as usize].id);
        }
        for position in finished.drain(..) {
            let entry = &mut self.requests[position as usize];
            let late = entry.left_before(end);
            if late.is_none() {
                entry.record.last_token = end;
            }
            let progress = entry.progress(entry.input, entry.output);
            let ending = late.map_or(Ending::Completed, Leave::ending);
            let over = Over::new(progress, end, ending);
            if late.is_none() {
                self.gate.completed(&over);
            }
            self.leave(position, over);
        }
        self.finished = finished;
    }

    fn leave(&mut self, position: Position, over: Over) {
        self.clock.leave(over);
        self.requests[position as usize].inside = false;
        self.vacant.push(position);
    }

    /// Lets in whoever has arrived by now, after those whose clients had left by then.
    fn take_arrivals(&mut self) {
        while let Some(coming) = self.pending.take(self.clock.now) {
            if !self.departures.is_empty() {
                self.take_departures(coming.arrival);
            }
            let mut entry = Entry::of(coming);
            let (id, arrival) = (entry.id, entry.arrival);
            if let Some(reason) = self.refusal(&entry) {
                let progress = entry.progress(0, entry.made);
                let ending = Ending::Rejected(reason);
                self.clock.refuse(Over::new(progress, arrival, ending));
                continue;
            }
            self.clock.let_in(arrival);
            let leaves = entry.leaves();
            let position = if let Some(position) = self.vacant.pop() {
                self.requests[position as usize] = entry;
                position
            } else {
                self.requests.push(entry);
                short(self.requests.len() - 1)
            };
            let entry = &self.requests[position as usize];
            on!(&mut self.engine, b => b.arrive(position, entry));
            if let Some((at, why)) = leaves {
                self.departures.push(at, id, position, why);
            }
        }
    }

    /// Why a request that arrives now is refused, if it is.
    fn refusal(&mut self, entry: &Entry) -> Option<Rejection> {
        let id = entry.id;
        if let Some(memory) = on!(&self.engine, b => b.memory()) {
            let (needed, max) = (memory.most(entry), memory.largest());
            if max < needed {
                return Some(Rejection::NeverFits { id, needed, max });
            }
        }
        let engine = &self.engine;
        let seen = Seen {
            waiting: on!(engine, b => b.waiting()),
            waiting_tokens: || on!(engine, b => b.waiting_tokens()),
            kv_used: || {
                let kv = on!(engine, b => b.kv());
                kv.map_or(0.0, |(kv, used)| used as f64 / kv.blocks as f64)
            },
        };
        let own = if entry.made == 0 { entry.input } else { 0 };
        self.gate.refusal((id, own), (entry.arrival, self.clock.now), seen)
    }

    /// The first departure of a request that is inside.
    fn next_departure(&mut self) -> Option<Ticks> {
        let requests = &self.requests;
        self.departures.next(|id, position| requests[position as usize].is(id))
    }

    /// Lets go whoever's client has left by an instant that is not after now.
    fn take_departures(&mut self, by: Ticks) {
        let now = self.clock.now;
        loop {
            let requests = &self.requests;
            let inside = |id, position| requests[position as usize].is(id);
            let Some((_, position, why)) = self.departures.due(by, inside) else { break };
            let entry = &mut self.requests[position as usize];
            let (prefilled, decoded) = on!(&mut self.engine, b => b.remove(position, entry));
            let progress = entry.progress(prefilled, decoded);
            self.leave(position, Over::new(progress, now, why.ending()));
        }
    }

    /// Waits, with nobody served, for who arrives or leaves next, not beyond `until` or the limit
    /// of the run; whether there is more to do before somebody comes.
    fn idle(&mut self, until: Option<Ticks>, running: u64, observer: &mut dyn Observer) -> bool {
        let arrival = self.pending.next_arrival();
        let Some(next) = sooner(arrival, self.next_departure()) else {
            if until.is_none() {
                self.end = Some(RunEnd::Stalled);
            }
            return false;
        };
        let ends = [until, self.clock.limits.until].into_iter().flatten();
        let to = ends.fold(next, Ticks::min);
        if to <= self.clock.now {
            return false;
        }
        self.clock.wait_until(to, running, observer);
        true
    }
}

/// A position as rows hold it: there are no more requests inside than fit.
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn short(position: usize) -> Position {
    position as Position
}

/// The first of two instants, of which there may be one or none.
fn sooner(a: Option<Ticks>, b: Option<Ticks>) -> Option<Ticks> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The stretch of the first `steps` steps of another.
fn first_steps(stretch: &Stretch, steps: u64) -> Stretch {
    Stretch { steps, end: stretch.start.after(stretch.time.total(steps)), ..*stretch }
}

impl<P: Policy, T: StepTime> Server for Replica<P, T> {
    #[inline]
    fn submit(&mut self, job: Job) -> Result<()> {
        self.clock.submitted(&job)?;
        // Steps that were decided before it came are run up to the end of the one under way.
        if self.flight.as_ref().is_some_and(|flight| 1 < flight.steps) {
            self.cut_flight(job.arrival);
        }
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
        let mut flight = self.flight.take();
        while flight.is_none()
            && self.end.is_none()
            && self.decide(None, Some(told), observer, &mut flight)?
        {}
        self.flight = flight;
        if let Some(flight) = self.flight {
            return Ok(Some(flight.end));
        }
        if self.end.is_some() {
            return Ok(None);
        }
        let arrival = self.pending.next_arrival();
        Ok(sooner(arrival, self.next_departure()))
    }

    fn cancel(&mut self, id: u64) {
        let now = self.clock.told();
        if self.pending.cancel(id, now) {
            return;
        }
        let found = self.requests.iter().position(|entry| entry.inside && entry.id == id);
        let Some(position) = found else { return };
        let leaves = &mut self.requests[position].rare().leaves;
        if leaves.is_none_or(|leaves| now < leaves.0) {
            *leaves = Some((now, Leave::Cancel));
        }
        self.departures.push(now, id, short(position), Leave::Cancel);
        self.cut_flight(now);
    }

    fn load(&self) -> ServerLoad {
        let (running, waiting) = on!(&self.engine, b => (b.running(), b.waiting()));
        let (more, tokens) = self.pending.arrived(self.clock.told());
        ServerLoad {
            waiting: waiting + more,
            running,
            outstanding_tokens: tokens + on!(&self.engine, b => b.outstanding()),
            kv_used: on!(&self.engine, b => b.kv()).map_or(0, |(_, used)| used),
            kv_cached: on!(&self.engine, b => b.kv()).map_or(0, |(kv, _)| kv.cached_blocks),
            kv_blocks: self.settings.kv.map(|pool| pool.blocks()),
        }
    }

    fn take_over(&mut self, into: &mut Vec<Over>) {
        self.clock.take_over(into);
    }

    fn inside(&self) -> Vec<Progress> {
        let mut list = Vec::new();
        for (position, entry) in self.requests.iter().enumerate().filter(|(_, e)| e.inside) {
            let (prefilled, decoded) = on!(&self.engine, b => b.progress(short(position), entry));
            list.push(entry.clone().progress(prefilled, decoded));
        }
        list.sort_unstable_by_key(|p| p.id);
        list
    }

    fn statistics(&self) -> RunStatistics {
        let running = on!(&self.engine, b => b.running());
        let mut statistics = self.clock.totals(running, &self.inside());
        statistics.kv = on!(&self.engine, b => b.kv()).map(|(kv, _)| KvStatistics {
            preemptions: self.preemptions,
            preempted_requests: self.preempted_requests,
            swapped_tokens: self.swapped_tokens,
            ..kv
        });
        statistics
    }
}
