//! What all servers share: the clock, the books, and the run of a workload. No batch, no skipping.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::error::{Refusal, Result, SimError};
use crate::history::{Observer, Stretch};
use crate::server::{Ending, Job, Leave, Over, Progress, Server};
use crate::simulation::{RequestDetail, RequestRecord, RunEnd, RunLimits, RunResult, Unfinished};
use crate::statistics::RunStatistics;
use crate::time::Ticks;
use crate::workload::{RequestId, Workload};

/// The clock of a server, and what it adds up along it.
pub(crate) struct Clock {
    pub limits: RunLimits,
    pub now: Ticks,
    pub statistics: RunStatistics,
    /// Up to when the outside has said what arrives.
    told: Ticks,
    over: Vec<Over>,
}

impl Clock {
    pub fn new(max_num_seqs: u64) -> Self {
        Self {
            limits: RunLimits::default(),
            now: Ticks::ZERO,
            statistics: RunStatistics { max_num_seqs, servers: 1, ..RunStatistics::default() },
            told: Ticks::ZERO,
            over: Vec::new(),
        }
    }

    /// Notes that the outside has nothing more to say before `time`.
    pub fn tell(&mut self, time: Ticks) {
        self.told = self.told.max(time);
    }

    /// Up to when the outside has said what arrives.
    pub fn told(&self) -> Ticks {
        self.told
    }

    /// Checks a job, and counts it.
    #[inline]
    pub fn submitted(&mut self, job: &Job) -> Result<()> {
        job.check()?;
        if job.arrival < self.told {
            return Err(SimError::OutOfOrder {
                id: job.id.into(),
                arrival: job.arrival,
                before: self.told,
            });
        }
        self.told = job.arrival;
        if self.statistics.requests == 0 {
            self.statistics.start = job.arrival;
        }
        self.statistics.requests += 1;
        Ok(())
    }

    /// Somebody who arrived is inside, and was already in the time since.
    #[inline]
    pub fn let_in(&mut self, arrival: Ticks) {
        self.statistics.injected += 1;
        self.statistics.in_system_time += self.now.0 - arrival.0;
    }

    /// Somebody who arrived is refused, so that it was never inside.
    pub fn refuse(&mut self, over: Over) {
        self.statistics.injected += 1;
        self.statistics.rejected += 1;
        if let Ending::Rejected(why) = &over.ending {
            self.statistics.refused.count(why);
        }
        self.over.push(over);
    }

    /// Which limit is reached now, if one is.
    #[inline]
    pub fn stopped(&self) -> Option<RunEnd> {
        let RunLimits { max_steps, until } = self.limits;
        if max_steps.is_some_and(|max| max <= self.statistics.steps) {
            Some(RunEnd::StepLimit)
        } else if until.is_some_and(|until| until <= self.now) {
            Some(RunEnd::TimeLimit)
        } else {
            None
        }
    }

    /// Moves the clock past a stretch, in whose last step some requests `finished`.
    #[inline]
    pub fn advance(&mut self, stretch: &Stretch, finished: u64) {
        self.statistics.in_system_time += stretch.duration().0 * u128::from(self.inside());
        self.statistics.add(stretch, finished);
        self.now = stretch.end;
    }

    /// Lets time pass without a step.
    pub fn wait_until(&mut self, to: Ticks, running: u64, observer: &mut dyn Observer) {
        observer.idle(self.now, to);
        let gap = to.0 - self.now.0;
        self.statistics.in_system_time += gap * u128::from(self.inside());
        self.statistics.in_service_time += gap * u128::from(running);
        self.now = to;
    }

    /// Requests that arrived and are not over.
    #[inline]
    pub fn inside(&self) -> u64 {
        let s = &self.statistics;
        s.injected - s.ended()
    }

    /// The end of a step or stretch of this length that starts at `start`.
    #[inline]
    pub fn end_after(start: Ticks, duration: Ticks) -> Result<Ticks> {
        let end = start.after(duration);
        if Ticks::LONGEST_RUN < end { Err(SimError::RunTooLong) } else { Ok(end) }
    }

    /// Takes note of a request that was inside and is over; a completed one is counted by
    /// [`advance`](Self::advance).
    #[inline]
    pub fn leave(&mut self, over: Over) {
        match over.ending {
            Ending::Cancelled => self.statistics.cancelled += 1,
            Ending::TimedOut => self.statistics.timed_out += 1,
            Ending::Completed | Ending::Rejected(_) => {}
        }
        count(&mut self.statistics, &over.progress, over.at);
        self.over.push(over);
    }

    pub fn take_over(&mut self, into: &mut Vec<Over>) {
        let place = |o: &Over| (o.at, o.progress.id);
        // As a rule they are in order, and rows as wide as these are not moved for nothing.
        if !self.over.is_sorted_by_key(place) {
            self.over.sort_by_key(place);
        }
        if into.is_empty() {
            std::mem::swap(into, &mut self.over);
        } else {
            into.append(&mut self.over);
        }
    }

    /// The totals, of which `running` are in the batch.
    pub fn totals(&self, running: u64, inside: &[Progress]) -> RunStatistics {
        let mut s = self.statistics;
        s.end = self.now.max(s.start);
        s.running = running;
        s.queued = self.inside() - running;
        for progress in inside {
            count(&mut s, progress, self.now);
        }
        s.close();
        s
    }
}

/// Clients that leave if their request, at its place in the server, is not over by then.
pub(crate) struct Departures<P>(BinaryHeap<Reverse<(Ticks, u64, P, Leave)>>);

impl<P: Copy + Ord> Departures<P> {
    pub fn new() -> Self {
        Self(BinaryHeap::new())
    }

    #[inline]
    pub fn push(&mut self, at: Ticks, id: u64, place: P, why: Leave) {
        self.0.push(Reverse((at, id, place, why)));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the first client leaves whose request is still `inside`.
    pub fn next(&mut self, inside: impl Fn(u64, P) -> bool) -> Option<Ticks> {
        while let Some(&Reverse((at, id, place, _))) = self.0.peek() {
            if inside(id, place) {
                return Some(at);
            }
            self.0.pop();
        }
        None
    }

    /// Takes the first client, if it leaves by `now`.
    pub fn due(&mut self, now: Ticks, inside: impl Fn(u64, P) -> bool) -> Option<(u64, P, Leave)> {
        self.next(inside).filter(|&at| at <= now)?;
        self.0.pop().map(|Reverse((_, id, place, why))| (id, place, why))
    }
}

/// Who was submitted and has not been let in, in order of arrival.
#[derive(Default)]
pub(crate) struct Intake {
    jobs: VecDeque<Coming>,
    /// How many of them have a client that may leave.
    leaving: usize,
}

/// A job that has not been let in. There may be as many as a workload has, so that what few of them
/// have stands apart.
pub(crate) struct Coming {
    pub id: u64,
    pub arrival: Ticks,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The job, if it has more than these four.
    pub whole: Option<Box<Job>>,
}

impl Coming {
    #[inline]
    fn of(job: Job) -> Self {
        let Job { id, arrival, input_tokens, output_tokens, .. } = job;
        let plain = job == Job::new(id, arrival, input_tokens, output_tokens);
        let whole = (!plain).then(|| Box::new(job));
        Self { id, arrival, input_tokens, output_tokens, whole }
    }

    #[inline]
    fn plain(&self) -> Job {
        Job::new(self.id, self.arrival, self.input_tokens, self.output_tokens)
    }

    pub fn job(self) -> Job {
        let plain = self.plain();
        self.whole.map_or(plain, |job| *job)
    }

    #[inline]
    fn may_leave(&self) -> bool {
        self.whole.as_ref().is_some_and(|job| job.departure().is_some())
    }
}

impl Intake {
    #[inline]
    pub fn push(&mut self, job: Job) {
        let coming = Coming::of(job);
        self.leaving += usize::from(coming.may_leave());
        self.jobs.push_back(coming);
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    #[inline]
    pub fn next_arrival(&self) -> Option<Ticks> {
        self.jobs.front().map(|job| job.arrival)
    }

    /// Whether an arrival can matter although there is no room for it: its client may leave.
    pub fn may_leave(&self) -> bool {
        self.leaving > 0
    }

    /// The next one, if it has arrived by now.
    #[inline]
    pub fn take(&mut self, now: Ticks) -> Option<Coming> {
        let coming = self.jobs.pop_front_if(|coming| coming.arrival <= now)?;
        self.leaving -= usize::from(coming.may_leave());
        Some(coming)
    }

    /// The client of a request goes away; whether the request is here.
    pub fn cancel(&mut self, id: u64, now: Ticks) -> bool {
        let Some(coming) = self.jobs.iter_mut().find(|job| job.id == id) else { return false };
        self.leaving += usize::from(!coming.may_leave());
        let plain = coming.plain();
        coming.whole.get_or_insert_with(|| Box::new(plain)).cancel_at = Some(now);
        true
    }

    /// How many have arrived by `now`, and their tokens.
    pub fn arrived(&self, now: Ticks) -> (u64, u64) {
        let tokens = |coming: &Coming| match &coming.whole {
            Some(job) => job.outstanding_tokens(),
            None => coming.input_tokens + coming.output_tokens,
        };
        let coming = self.jobs.iter().take_while(|coming| coming.arrival <= now);
        coming.fold((0, 0), |(n, sum), coming| (n + 1, sum + tokens(coming)))
    }
}

/// Adds up what is counted request by request, for one that left, or is cut off, at `left`.
fn count(s: &mut RunStatistics, progress: &Progress, left: Ticks) {
    s.output_tokens += progress.output_tokens - progress.made_before;
    s.sojourn_time += left.0 - progress.arrival.0;
    if let Some(scheduled) = progress.record.scheduled() {
        s.service_time += left.0 - scheduled.0;
        for stall in &progress.stalls {
            s.service_time -= stall.readmitted.unwrap_or(left).0 - stall.from.0;
        }
    }
}

/// So many requests are submitted at once: few enough to stay in the processor's cache, enough
/// that it does not matter that a stretch is cut after the last of them.
const AHEAD: usize = 64;

/// Submits the requests of an iterator as they come due and hands whoever is over to `sink`;
/// memory is that of the requests inside.
///
/// # Errors
///
/// As [`Server::submit`] and [`Server::advance_to`].
pub fn run_stream<S: Server + ?Sized>(
    server: &mut S,
    jobs: impl IntoIterator<Item = Job>,
    observer: &mut dyn Observer,
    mut sink: impl FnMut(&Over),
) -> Result<RunEnd> {
    let mut over = Vec::new();
    let mut jobs = jobs.into_iter();
    loop {
        let mut last = None;
        for job in jobs.by_ref().take(AHEAD) {
            last = Some(job.arrival);
            server.submit(job)?;
        }
        let end = match last {
            // The last one is in the server and not decided on, so that it is never idle for good.
            Some(arrival) => server.advance_to(arrival, observer)?,
            None => Some(server.finish(observer)?),
        };
        server.take_over(&mut over);
        // Shown where they are: rows as wide as these are not moved for nothing.
        over.iter().for_each(&mut sink);
        over.clear();
        if let Some(end) = end {
            return Ok(end);
        }
    }
}

/// The run of a whole workload on one server.
pub(crate) fn run_workload<'w, S: Server>(
    workload: &'w Workload,
    mut server: S,
    hits: bool,
    departures: impl Fn(&mut Job),
    observer: &mut dyn Observer,
) -> Result<RunResult<'w>> {
    let mut books = Books::new(workload, hits);
    let jobs = workload.requests().iter().enumerate().map(|(position, r)| {
        let mut job = Job::of(position, r);
        departures(&mut job);
        job
    });
    let end = run_stream(&mut server, jobs, observer, |over| books.take(over))
        .map_err(|e| named(e, workload))?;
    Ok(books.close(&server, end))
}

/// Collects who is over into the result of a run, for drivers that submit the requests of a
/// workload to a server themselves.
///
/// # Examples
///
/// ```
/// use sched_sim::server::{Books, Job, Server};
/// use sched_sim::{Affine, DecodeFirst, Replica, Ticks, Workload, WorkloadRequest};
///
/// let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 100, 3)])?;
/// let mut server = Replica::new(DecodeFirst::new(8, 512)?, "base=1ms".parse::<Affine>()?);
/// for (position, request) in workload.requests().iter().enumerate() {
///     server.submit(Job::of(position, request))?;
/// }
/// let end = server.finish(&mut ())?;
/// let mut books = Books::new(&workload, false);
/// let mut over = Vec::new();
/// server.take_over(&mut over);
/// over.iter().for_each(|o| books.take(o));
/// let result = books.close(&server, end);
/// assert_eq!(result.records()[0].last_token(), Some("4ms".parse()?));
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub struct Books<'w> {
    workload: &'w Workload,
    records: Vec<RequestRecord>,
    details: Vec<RequestDetail>,
    hit_tokens: Vec<u64>,
    servers: Vec<usize>,
    unrouted: Vec<usize>,
}

impl<'w> Books<'w> {
    /// Empty books of a workload; `hits`: whether its server has a prefix cache.
    #[must_use]
    pub fn new(workload: &'w Workload, hits: bool) -> Self {
        Self {
            workload,
            records: vec![RequestRecord::NEW; workload.len()],
            details: Vec::new(),
            hit_tokens: vec![0; if hits { workload.len() } else { 0 }],
            servers: Vec::new(),
            unrouted: Vec::new(),
        }
    }

    /// Enters a request that is over; its number is its position in the workload, and one that
    /// is no position is ignored.
    #[inline]
    pub fn take(&mut self, over: &Over) {
        let Some(position) = self.note(&over.progress) else { return };
        let Over { progress: p, ending, .. } = over;
        let asked = self.workload.requests().get(position).map(|r| r.output_tokens);
        let whole = *ending == Ending::Completed && asked == Some(p.output_tokens);
        // Most have nothing to tell, and a row that would tell nothing is not made for them.
        if !(whole && p.stalls.is_empty() && p.held.is_empty() && p.transfer.is_none()) {
            self.tell(position, asked, over);
        }
    }

    /// Keeps what became of a request that did not simply run to its last token.
    fn tell(&mut self, position: usize, asked: Option<u64>, over: &Over) {
        let &Over { ref progress, at, ending, server: _ } = over;
        let detail = RequestDetail {
            position,
            rejected: match ending {
                Ending::Rejected(reason) => Some(reason),
                _ => None,
            },
            cancelled: (ending == Ending::Cancelled).then_some(at),
            timed_out: (ending == Ending::TimedOut).then_some(at),
            output_tokens: match ending {
                // Refused at the door it made none, which goes without saying.
                Ending::Rejected(_) => 0 < progress.output_tokens,
                Ending::Completed => asked != Some(progress.output_tokens),
                // Who left too early for it may have been made the last token all the same.
                Ending::Cancelled | Ending::TimedOut => true,
            }
            .then_some(progress.output_tokens),
            stalls: progress.stalls.clone(),
            held: progress.held.clone(),
            transfer: progress.transfer.as_deref().copied(),
        };
        self.keep(detail);
    }

    /// Instants and hits of a request.
    #[inline]
    fn note(&mut self, progress: &Progress) -> Option<usize> {
        let position = usize::try_from(progress.id).ok()?;
        *self.records.get_mut(position)? = progress.record;
        if let Some(hit) = self.hit_tokens.get_mut(position) {
            *hit = progress.hit_tokens;
        }
        let server = progress.server.unwrap_or_default();
        if 0 < server {
            self.servers.resize(self.records.len(), 0);
        }
        if let Some(its) = self.servers.get_mut(position) {
            *its = server;
        }
        if progress.server.is_none() {
            self.unrouted.push(position);
        }
        Some(position)
    }

    fn keep(&mut self, detail: RequestDetail) {
        let plain = RequestDetail { position: detail.position, ..RequestDetail::default() };
        if detail != plain {
            self.details.push(detail);
        }
    }

    /// The result, with whoever is still inside the server.
    #[must_use]
    pub fn close<S: Server + ?Sized>(mut self, server: &S, end: RunEnd) -> RunResult<'w> {
        let mut unfinished = Vec::new();
        for progress in server.inside() {
            let Some(position) = self.note(&progress) else { continue };
            if progress.record.scheduled().is_some() {
                let (prefilled, decoded) = (progress.prefilled, progress.output_tokens);
                unfinished.push(Unfinished { position, prefilled, decoded });
            }
            let Progress { stalls, held, transfer, .. } = progress;
            let rest = RequestDetail::default();
            let transfer = transfer.map(|transfer| *transfer);
            self.keep(RequestDetail { position, stalls, held, transfer, ..rest });
        }
        self.details.sort_unstable_by_key(|d| d.position);
        self.unrouted.sort_unstable();
        let mut statistics = server.statistics();
        statistics.requests = self.workload.len() as u64;
        if let Some(first) = self.workload.requests().first() {
            statistics.start = first.arrival;
            statistics.end = statistics.end.max(first.arrival);
        }
        RunResult {
            workload: self.workload,
            records: self.records,
            unfinished,
            statistics,
            end,
            details: self.details,
            hit_tokens: self.hit_tokens,
            servers: self.servers,
            unrouted: self.unrouted,
        }
    }
}

/// The error with the requests named as in the workload.
fn named(error: SimError, workload: &Workload) -> SimError {
    let name = |id: RequestId| match &id {
        RequestId::Number(n) => usize::try_from(*n)
            .ok()
            .and_then(|position| workload.requests().get(position))
            .map_or(id, |r| r.id.clone()),
        RequestId::Name(_) => id,
    };
    let SimError::Refused { at, step, refusal } = error else { return error };
    let refusal = match refusal {
        Refusal::ServedTwice { id } => Refusal::ServedTwice { id: name(id) },
        Refusal::WrongStage { id, stage } => Refusal::WrongStage { id: name(id), stage },
        Refusal::PrefillTokens { id, left, tokens } => {
            Refusal::PrefillTokens { id: name(id), left, tokens }
        }
        other => other,
    };
    SimError::Refused { at, step, refusal }
}
