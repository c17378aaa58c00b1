//! What both engines share: the clock, arrivals, and the end of a run. No batch, no skipping.

use crate::error::{Result, SimError};
use crate::history::{Observer, Stretch};
use crate::simulation::{RequestRecord, RunEnd, RunLimits, RunResult, Unfinished};
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
        let inside = self.arrived as u64 - self.statistics.completed;
        self.statistics.in_system_time += stretch.duration().0 * u128::from(inside);
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
        observer.idle(self.now, to);
        let gap = to.0 - self.now.0;
        let inside = self.arrived as u64 - self.statistics.completed;
        self.statistics.in_system_time += gap * u128::from(inside);
        self.statistics.in_service_time += gap * u128::from(running);
        self.now = to;
        true
    }

    /// The end of a step or stretch of this length.
    pub fn end_after(&self, duration: Ticks) -> Result<Ticks> {
        let end = self.now.after(duration);
        if Ticks::LONGEST_RUN < end { Err(SimError::RunTooLong) } else { Ok(end) }
    }

    /// Adds up what is counted request by request.
    pub fn close(mut self, end: RunEnd, mut unfinished: Vec<Unfinished>) -> RunResult<'w> {
        unfinished.sort_unstable_by_key(|u| u.position);
        let s = &mut self.statistics;
        s.end = self.now.max(s.start);
        s.injected = self.arrived as u64;
        s.running = unfinished.len() as u64;
        s.queued = s.injected - s.completed - s.running;
        s.output_tokens = unfinished.iter().map(|u| u.decoded).sum();
        for (r, record) in self.workload.requests().iter().zip(&self.records).take(self.arrived) {
            let left = record.last_token().unwrap_or(self.now);
            s.sojourn_time += left.0 - r.arrival.0;
            if let Some(scheduled) = record.scheduled() {
                s.service_time += left.0 - scheduled.0;
            }
            if record.last_token().is_some() {
                s.output_tokens += r.output_tokens;
            }
        }
        s.close();
        RunResult {
            workload: self.workload,
            records: self.records,
            unfinished,
            statistics: self.statistics,
            end,
        }
    }
}
