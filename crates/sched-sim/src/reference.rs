//! The reference engine: every step, for every request, asking the policy each time.
//!
//! It knows nothing of stretches, clocks or agendas: a step is a list of who gets how many
//! tokens, and running it means walking that list. It is there to be believed, and its results
//! are those of the [engine](crate::engine) that skips, bit for bit. It is a tight loop all the
//! same, so that a comparison of speed means something.

use crate::error::Result;
use crate::history::{Observer, Stretch};
use crate::policy::Policy;
use crate::request::Stage;
use crate::run::Run;
use crate::simulation::{RequestRecord, RunEnd, RunResult, Simulation, Unfinished};
use crate::step::{Batch, Step};
use crate::step_time::{StepTime, StepWork, StretchTime};
use crate::time::Ticks;
use crate::workload::WorkloadRequest;

/// Runs a simulation, one step at a time.
///
/// # Errors
///
/// As [`engine::run`](crate::engine::run).
pub fn run<'w, P: Policy, T: StepTime>(
    simulation: Simulation<'w, P, T>,
    observer: &mut impl Observer,
) -> Result<RunResult<'w>> {
    let Simulation { workload, mut policy, step_time, limits } = simulation;
    let max_num_seqs = policy.max_num_seqs();
    let mut run = Run::new(workload, limits, max_num_seqs);
    let mut batch = Plain { emits: policy.prefill_emits_first_token(), ..Plain::default() };

    let end = loop {
        run.take_arrivals();
        batch.begin(run.arrived);
        run.statistics.waiting_max = run.statistics.waiting_max.max(batch.waiting());
        if let Some(end) = run.ended() {
            break end;
        }
        if batch.rows.is_empty() && batch.waiting() == 0 {
            run.idle(0, observer);
            continue;
        }
        let held_tokens = batch.rows.iter().map(|r| r.prefilled + r.decoded).sum();
        policy.fill(&mut Step {
            batch: Batch::Plain(&mut batch),
            requests: run.requests(),
            max_num_seqs,
            at: run.now,
            number: run.statistics.steps + 1,
        })?;
        if batch.work.is_empty() {
            if run.idle(batch.running(), observer) {
                continue;
            }
            break RunEnd::Stalled;
        }

        let duration = step_time.step(&batch.work);
        let stretch = Stretch {
            start: run.now,
            end: run.end_after(duration)?,
            steps: 1,
            work: batch.work,
            time: StretchTime::one(duration),
            running: batch.running(),
            held_tokens,
        };
        observer.stretch(&stretch);
        let finished = batch.apply(run.now, stretch.end, &mut run.records);
        run.advance(&stretch, finished);
    };
    let unfinished = batch.rows.iter().map(|r| Unfinished {
        position: r.position,
        prefilled: r.prefilled,
        decoded: r.decoded,
    });
    let unfinished = unfinished.collect();
    Ok(run.close(end, unfinished))
}

/// A request in the batch.
struct Row {
    position: usize,
    input: u64,
    output: u64,
    prefilled: u64,
    decoded: u64,
    /// Prompt tokens in this step; a decode has none.
    tokens: u64,
    served: bool,
}

impl Row {
    fn is_decoding(&self) -> bool {
        self.prefilled == self.input
    }
}

/// The batch of the reference engine, in order of admission.
#[derive(Default)]
pub(crate) struct Plain {
    emits: bool,
    rows: Vec<Row>,
    /// How many of the rows were there before this step.
    old: usize,
    /// Whether a prompt that was there before has work in this step.
    prefills_served: bool,
    head: usize,
    arrived: usize,
    work: StepWork,
}

impl Plain {
    fn begin(&mut self, arrived: usize) {
        self.arrived = arrived;
        self.old = self.rows.len();
        self.prefills_served = false;
        self.work = StepWork::default();
    }

    fn row(&self, position: usize) -> Option<&Row> {
        self.rows.iter().find(|r| r.position == position)
    }

    pub fn running(&self) -> u64 {
        self.rows.len() as u64
    }

    pub fn decoding(&self) -> u64 {
        self.rows.iter().filter(|r| r.is_decoding()).count() as u64
    }

    pub fn prefilling(&self) -> u64 {
        self.rows[..self.old].iter().filter(|r| !r.is_decoding()).count() as u64
    }

    pub fn waiting(&self) -> u64 {
        (self.arrived - self.head) as u64
    }

    pub fn next_waiting(&self) -> Option<usize> {
        if self.head < self.arrived { Some(self.head) } else { None }
    }

    pub fn work(&self) -> &StepWork {
        &self.work
    }

    pub fn running_after(&self, position: Option<usize>) -> Option<usize> {
        let next = match position {
            None => 0,
            Some(p) => self.rows.iter().position(|r| r.position == p)? + 1,
        };
        self.rows.get(next).map(|r| r.position)
    }

    pub fn stage(&self, position: usize) -> Option<Stage> {
        let row = self.row(position)?;
        Some(if row.is_decoding() { Stage::Decode } else { Stage::Prefill })
    }

    pub fn prefilled(&self, position: usize, _: &WorkloadRequest) -> u64 {
        self.row(position).map_or(0, |r| r.prefilled)
    }

    pub fn served(&self, position: usize) -> bool {
        self.row(position).is_some_and(|r| r.served)
    }

    pub fn prefills_served(&self) -> bool {
        self.prefills_served
    }

    pub fn decode_all(&mut self) {
        for row in &mut self.rows {
            if row.is_decoding() {
                row.served = true;
                self.work.add_decode(row.prefilled + row.decoded);
            }
        }
    }

    pub fn decode(&mut self, position: usize, _: &WorkloadRequest) {
        if let Some(row) = self.rows.iter_mut().find(|r| r.position == position) {
            row.served = true;
            self.work.add_decode(row.prefilled + row.decoded);
        }
    }

    pub fn prefill_all(&mut self, chunk: u64, _: &[WorkloadRequest]) {
        for row in &mut self.rows[..self.old] {
            if !row.is_decoding() {
                self.prefills_served = true;
                row.served = true;
                row.tokens = chunk.min(row.input - row.prefilled);
                self.work.add_chunk(row.tokens, row.prefilled);
            }
        }
    }

    pub fn prefill(&mut self, position: usize, tokens: u64, _: &WorkloadRequest) {
        if let Some(row) = self.rows.iter_mut().find(|r| r.position == position) {
            self.prefills_served = true;
            row.served = true;
            row.tokens = tokens;
            self.work.add_chunk(tokens, row.prefilled);
        }
    }

    pub fn admit(&mut self, tokens: u64, r: &WorkloadRequest) {
        self.rows.push(Row {
            position: self.head,
            input: r.input_tokens,
            output: r.output_tokens,
            prefilled: 0,
            decoded: 0,
            tokens,
            served: true,
        });
        self.head += 1;
        self.work.add_chunk(tokens, 0);
    }

    /// Runs the step; how many requests finished in it.
    fn apply(&mut self, start: Ticks, end: Ticks, records: &mut [RequestRecord]) -> u64 {
        for row in &mut self.rows[self.old..] {
            records[row.position].scheduled = start;
        }
        let mut finished = 0;
        for row in &mut self.rows {
            if !row.served {
                continue;
            }
            row.served = false;
            if row.tokens == 0 {
                if row.decoded == 0 {
                    records[row.position].first_token = end;
                }
                row.decoded += 1;
            } else {
                row.prefilled += row.tokens;
                row.tokens = 0;
                if row.is_decoding() {
                    records[row.position].prompt_done = end;
                    if self.emits {
                        records[row.position].first_token = end;
                        row.decoded = 1;
                    }
                }
            }
            if row.decoded == row.output {
                records[row.position].last_token = end;
                finished += 1;
            }
        }
        if 0 < finished {
            self.rows.retain(|r| r.decoded < r.output);
        }
        finished
    }
}
