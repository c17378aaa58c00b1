//! What both engines share: the clock, arrivals, and the end of a run. No batch, no skipping.

use crate::error::{Result, SimError};
use crate::history::{Observer, Stretch};
use crate::simulation::{RequestDetail, RequestRecord, RunEnd, RunLimits, RunResult, Unfinished};
use crate::statistics::RunStatistics;
use crate::time::Ticks;
use crate::workload::{Workload, WorkloadRequest};

/// A run in progress.
pub(crate) struct Run<'w> {
    pub workload: &'w Workload,
    pub limits: RunLimits,
    pub now: Ticks,
    /// Requests before this position have arrived.
    pub arrived: usize,
    pub statistics: RunStatistics,
    pub records: Vec<RequestRecord>,
}

impl<'w> Run<'w> {
    pub fn new(workload: &'w Workload, limits: RunLimits, max_num_seqs: u64) -> Self {
        let start = workload.requests().first().map_or(Ticks::ZERO, |r| r.arrival);
        Self {
            workload,
            limits,
            now: Ticks::ZERO,
            arrived: 0,
            statistics: RunStatistics {
                max_num_seqs,
                requests: workload.len() as u64,
                start,
                ..RunStatistics::default()
            },
            records: vec![RequestRecord::NEW; workload.len()],
        }
    }

    pub fn requests(&self) -> &'w [WorkloadRequest] {
        self.workload.requests()
    }

    pub fn next_arrival(&self) -> Option<Ticks> {
        self.requests().get(self.arrived).map(|r| r.arrival)
    }

    /// Lets in whoever has arrived by now, and counts the time since their arrival.
    pub fn take_arrivals(&mut self) {
        while let Some(arrival) = self.next_arrival()
            && arrival <= self.now
        {
            self.statistics.in_system_time += self.now.0 - arrival.0;
            self.arrived += 1;
        }
    }

    /// Why the run is over now, if it is.
    pub fn ended(&self) -> Option<RunEnd> {
        if self.statistics.completed == self.statistics.requests {
            Some(RunEnd::Completed)
        } else if self.limits.max_steps.is_some_and(|max| max <= self.statistics.steps) {
            Some(RunEnd::StepLimit)
        } else if self.limits.until.is_some_and(|until| until <= self.now) {
            Some(RunEnd::TimeLimit)
        } else {
            None
        }
    }

    /// Moves the clock past a stretch, in whose last step some requests `finished`.
    pub fn advance(&mut self, stretch: &Stretch, finished: u64) {
        self.statistics.in_system_time += stretch.duration().0 * u128::from(self.inside());
        self.statistics.add(stretch, finished);
        self.now = stretch.end;
    }

    /// Jumps to the next arrival, or to the end that the limits set; `false` if there is neither.
    pub fn idle(&mut self, running: u64, observer: &mut impl Observer) -> bool {
        let to = match (self.next_arrival(), self.limits.until) {
            (Some(arrival), Some(until)) => arrival.min(until),
            (Some(to), None) => to,
            (None, _) => return false,
        };
        self.wait_until(to, running, observer);
        true
    }

    /// Lets time pass without a step.
    pub fn wait_until(&mut self, to: Ticks, running: u64, observer: &mut impl Observer) {
        observer.idle(self.now, to);
        let gap = to.0 - self.now.0;
        self.statistics.in_system_time += gap * u128::from(self.inside());
        self.statistics.in_service_time += gap * u128::from(running);
        self.now = to;
    }

    /// Requests that arrived and are not over.
    pub fn inside(&self) -> u64 {
        self.statistics.inside(self.arrived as u64)
    }

    /// The end of a step or stretch of this length.
    pub fn end_after(&self, duration: Ticks) -> Result<Ticks> {
        let end = self.now.after(duration);
        if Ticks::LONGEST_RUN < end { Err(SimError::RunTooLong) } else { Ok(end) }
    }

    /// Adds up what is counted request by request; all unfinished requests are in the batch.
    pub fn close(mut self, end: RunEnd, unfinished: Vec<Unfinished>) -> RunResult<'w> {
        self.statistics.running = unfinished.len() as u64;
        let arrived = self.arrived;
        self.close_with(end, unfinished, Vec::new(), Vec::new(), |position| position < arrived)
    }

    /// Adds up what is counted request by request; how many are in the batch is known.
    pub fn close_with(
        mut self,
        end: RunEnd,
        mut unfinished: Vec<Unfinished>,
        details: Vec<RequestDetail>,
        hit_tokens: Vec<u64>,
        arrived: impl Fn(usize) -> bool,
    ) -> RunResult<'w> {
        unfinished.sort_unstable_by_key(|u| u.position);
        let s = &mut self.statistics;
        s.end = self.now.max(s.start);
        s.injected = self.arrived as u64;
        s.queued = s.inside(s.injected) - s.running;
        s.output_tokens = unfinished.iter().map(|u| u.decoded).sum();
        let mut special = details.iter().peekable();
        let rows = self.workload.requests().iter().zip(&self.records).enumerate();
        for (position, (r, record)) in rows {
            let detail = special.next_if(|d| d.position == position);
            let made = detail.and_then(|d| d.output_tokens);
            if !arrived(position) || detail.is_some_and(|d| d.rejected.is_some()) {
                continue;
            }
            let cancelled = detail.and_then(|d| d.cancelled);
            let left = record.last_token().or(cancelled).unwrap_or(self.now);
            s.sojourn_time += left.0 - r.arrival.0;
            if let Some(scheduled) = record.scheduled() {
                s.service_time += left.0 - scheduled.0;
                for stall in detail.map(|d| d.stalls.as_slice()).unwrap_or_default() {
                    s.service_time -= stall.readmitted.unwrap_or(left).0 - stall.from.0;
                }
            }
            if record.last_token().is_some() {
                s.output_tokens += made.unwrap_or(r.output_tokens);
            } else {
                s.output_tokens += made.unwrap_or_default();
            }
        }
        s.close();
        RunResult {
            workload: self.workload,
            records: self.records,
            unfinished,
            statistics: self.statistics,
            end,
            details,
            hit_tokens,
        }
    }
}
