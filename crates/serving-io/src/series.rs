//! What a simulated server did over time, as JSON lines: its steps, and who waited.
//!
//! The first line says `schema_version` (1) and `kind` (`goodput-series`); times are seconds from
//! the start of the run. Each other line is one of two kinds.
//!
//! | key of a line `"series":"steps"` | meaning |
//! |---|---|
//! | `start_s`, `end_s` | from the start of its first step to the end of its last |
//! | `steps` | how many; 0 for a gap in which nothing ran |
//! | `running` | requests in the batch |
//! | `decodes`, `prefills` | those that decoded in each step, and prompt chunks in each step |
//! | `prefill_tokens` | prompt tokens in each step |
//! | `kv_held_tokens_start`, `kv_held_tokens_end` | tokens that the batch held in KV before the first step and after the last, before anybody left; in between they grow by the same number in each step |
//!
//! Consecutive steps that agree in all of that are one line, whatever the engine skipped.
//!
//! | key of a line `"series":"waiting"` | meaning |
//! |---|---|
//! | `at_s` | when the number changed |
//! | `waiting` | requests that have arrived and are not in the batch, preempted ones included, from then on |

use std::collections::BTreeMap;
use std::io::{self, Write};

use sched_sim::{Observer, RunResult, Stretch, Ticks};
use serde_json::{Value, json};

/// Consecutive steps that differ in nothing but the age of their requests, or a gap of no steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepRun {
    /// When its first step started.
    pub start: Ticks,
    /// When its last step ended.
    pub end: Ticks,
    /// How many steps it has.
    pub steps: u64,
    /// Requests in the batch.
    pub running: u64,
    /// Requests that decoded in each step.
    pub decodes: u64,
    /// Prompt chunks in each step.
    pub prefills: u64,
    /// Prompt tokens in each step.
    pub prefill_tokens: u64,
    /// Tokens held in KV before the first step.
    pub held_start: u64,
}

impl StepRun {
    /// Tokens held in KV after the last step, before anybody left.
    #[must_use]
    pub const fn held_end(&self) -> u64 {
        self.held_start + self.steps * (self.prefill_tokens + self.decodes)
    }

    /// Whether `next` goes on where this one ends, doing the same.
    fn is_continued_by(&self, next: &Self) -> bool {
        let same = |r: &Self| (r.running, r.decodes, r.prefills, r.prefill_tokens, r.steps == 0);
        same(self) == same(next) && self.end == next.start && self.held_end() == next.held_start
    }

    fn json(&self) -> Value {
        json!({
            "series": "steps",
            "start_s": self.start.seconds(),
            "end_s": self.end.seconds(),
            "steps": self.steps,
            "running": self.running,
            "decodes": self.decodes,
            "prefills": self.prefills,
            "prefill_tokens": self.prefill_tokens,
            "kv_held_tokens_start": self.held_start,
            "kv_held_tokens_end": self.held_end(),
        })
    }
}

/// The steps of one server, run-length encoded: an [`Observer`] to run with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepSeries {
    runs: Vec<StepRun>,
}

impl StepSeries {
    /// The runs in order of time, gaps included.
    #[must_use]
    pub fn runs(&self) -> &[StepRun] {
        &self.runs
    }

    fn push(&mut self, next: StepRun) {
        match self.runs.last_mut() {
            Some(last) if last.is_continued_by(&next) => {
                last.steps += next.steps;
                last.end = next.end;
            }
            _ => self.runs.push(next),
        }
    }
}

impl Observer for StepSeries {
    fn stretch(&mut self, s: &Stretch) {
        self.push(StepRun {
            start: s.start,
            end: s.end,
            steps: s.steps,
            running: s.running,
            decodes: s.work.decodes,
            prefills: s.work.prefills,
            prefill_tokens: s.work.prefill_tokens,
            held_start: s.held_tokens,
        });
    }

    fn idle(&mut self, from: Ticks, to: Ticks) {
        self.push(StepRun {
            start: from,
            end: to,
            steps: 0,
            running: 0,
            decodes: 0,
            prefills: 0,
            prefill_tokens: 0,
            held_start: 0,
        });
    }
}

/// When the number of waiting requests changed, and what it was from then on.
#[must_use]
pub fn waiting(result: &RunResult<'_>) -> Vec<(Ticks, u64)> {
    let mut changes: BTreeMap<Ticks, i64> = BTreeMap::new();
    let mut add = |at: Ticks, by: i64| *changes.entry(at).or_default() += by;
    let injected = usize::try_from(result.statistics().injected).unwrap_or(usize::MAX);
    let mut details = result.details().iter().peekable();
    let requests = result.workload().requests().iter().zip(result.records()).enumerate();
    for (position, (request, record)) in requests.take(injected) {
        let detail = details.next_if(|d| d.position == position);
        if detail.is_some_and(|d| d.rejected.is_some()) {
            continue;
        }
        // Who leaves while it waits ends its wait so.
        let left = detail.and_then(|d| d.cancelled.or(d.timed_out));
        let mut waits = vec![(request.arrival, record.scheduled())];
        let stalls = detail.map(|d| d.stalls.as_slice()).unwrap_or_default();
        waits.extend(stalls.iter().map(|stall| (stall.from, stall.readmitted)));
        for (from, to) in waits {
            add(from, 1);
            if let Some(to) = to.or(left) {
                add(to, -1);
            }
        }
    }
    let mut series = Vec::new();
    let mut now = 0_i64;
    for (at, by) in changes.into_iter().filter(|(_, by)| *by != 0) {
        now += by;
        series.push((at, now.unsigned_abs()));
    }
    series
}

/// Writes the series of a run, and gives the writer back.
///
/// # Errors
///
/// What the system says.
///
/// # Examples
///
/// ```
/// use sched_sim::{Affine, DecodeFirst, Simulation, Ticks, Workload, WorkloadRequest};
/// use serving_io::series::{StepSeries, write};
///
/// let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 100, 3)])?;
/// let step: Affine = "base=1ms,prefill=10us/token".parse()?;
/// let mut steps = StepSeries::default();
/// let simulation = Simulation::new(&workload, DecodeFirst::new(8, 512)?, step);
/// let result = simulation.run_observed(&mut steps)?;
///
/// // A step of 2 ms for the prompt, and three of 1 ms that differ in nothing.
/// let text = String::from_utf8(write(Vec::new(), &result, &steps)?)?;
/// assert_eq!(text.lines().count(), 3);
/// assert!(text.contains(r#""start_s":0.002,"end_s":0.005,"steps":3,"running":1,"decodes":1"#));
/// assert!(text.contains(r#""kv_held_tokens_start":100,"kv_held_tokens_end":103"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<W: Write>(mut out: W, result: &RunResult<'_>, steps: &StepSeries) -> io::Result<W> {
    writeln!(out, "{}", json!({ "schema_version": 1, "kind": "goodput-series" }))?;
    for run in steps.runs() {
        writeln!(out, "{}", run.json())?;
    }
    for (at, n) in waiting(result) {
        writeln!(out, "{}", json!({ "series": "waiting", "at_s": at.seconds(), "waiting": n }))?;
    }
    out.flush()?;
    Ok(out)
}
