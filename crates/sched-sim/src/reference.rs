//! The reference engine: every step, for every request, asking the policy each time.
//!
//! It knows nothing of stretches, clocks or agendas: a step is a list of who gets how many
//! tokens, and running it means walking that list. It is there to be believed, and its results
//! are those of the [engine](crate::engine) that skips, bit for bit. It is a tight loop all the
//! same, so that a comparison of speed means something.

use crate::error::Result;
use crate::history::{Observer, Stretch};
use crate::policy::Policy;
use crate::replica::{Entry, Replica, short};
use crate::request::Stage;
use crate::run::run_workload;
use crate::simulation::{RunResult, Simulation};
use crate::step_time::{StepTime, StepWork};

/// Runs a simulation, one step at a time.
///
/// # Errors
///
/// As [`engine::run`](crate::engine::run).
pub fn run<'w, P: Policy, T: StepTime>(
    simulation: Simulation<'w, P, T>,
    observer: &mut impl Observer,
) -> Result<RunResult<'w>> {
    let Simulation { workload, policy, step_time, limits } = simulation;
    let server = Replica::reference(policy, step_time).limits(limits);
    run_workload(workload, server, false, |_| (), observer)
}

/// A request that waits or is in the batch.
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
    /// In order of arrival.
    waiting: Vec<Row>,
    work: StepWork,
}

impl Plain {
    pub fn new(emits: bool) -> Self {
        Self { emits, ..Self::default() }
    }

    pub fn arrive(&mut self, position: u32, r: &Entry) {
        self.waiting.push(Row {
            position: position as usize,
            input: r.input,
            output: r.output,
            prefilled: 0,
            decoded: 0,
            tokens: 0,
            served: false,
        });
    }

    pub fn begin(&mut self) {
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
        self.waiting.len() as u64
    }

    pub fn next_waiting(&self) -> Option<usize> {
        self.waiting.first().map(|r| r.position)
    }

    /// Tokens that are left to compute or to make.
    pub fn outstanding(&self) -> u64 {
        let all = self.waiting.iter().chain(&self.rows);
        all.map(|r| r.input - r.prefilled + r.output - r.decoded).sum()
    }

    /// Tokens in KV.
    pub fn held_tokens(&self) -> u64 {
        self.rows.iter().map(|r| r.prefilled + r.decoded).sum()
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

    pub fn prefilled(&self, position: usize, _: &Entry) -> u64 {
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

    pub fn decode(&mut self, position: usize, _: &Entry) {
        if let Some(row) = self.rows.iter_mut().find(|r| r.position == position) {
            row.served = true;
            self.work.add_decode(row.prefilled + row.decoded);
        }
    }

    pub fn prefill_all(&mut self, chunk: u64, _: &[Entry]) {
        for row in &mut self.rows[..self.old] {
            if !row.is_decoding() {
                self.prefills_served = true;
                row.served = true;
                row.tokens = chunk.min(row.input - row.prefilled);
                self.work.add_chunk(row.tokens, row.prefilled);
            }
        }
    }

    pub fn prefill(&mut self, position: usize, tokens: u64, _: &Entry) {
        if let Some(row) = self.rows.iter_mut().find(|r| r.position == position) {
            self.prefills_served = true;
            row.served = true;
            row.tokens = tokens;
            self.work.add_chunk(tokens, row.prefilled);
        }
    }

    pub fn admit(&mut self, tokens: u64, _: &Entry) {
        let mut row = self.waiting.remove(0);
        row.tokens = tokens;
        row.served = true;
        self.rows.push(row);
        self.work.add_chunk(tokens, 0);
    }

    /// Prompt tokens computed and output tokens made.
    pub fn progress(&self, position: u32, _: &Entry) -> (u64, u64) {
        self.row(position as usize).map_or((0, 0), |r| (r.prefilled, r.decoded))
    }

    /// Takes a request out between two steps, wherever it is; how far it came.
    pub fn remove(&mut self, position: u32, r: &Entry) -> (u64, u64) {
        let progress = self.progress(position, r);
        self.rows.retain(|r| r.position != position as usize);
        self.waiting.retain(|r| r.position != position as usize);
        progress
    }

    /// Runs the step, and tells who `finished` in it.
    pub fn apply(&mut self, step: &Stretch, requests: &mut [Entry], finished: &mut Vec<u32>) {
        for row in &mut self.rows[self.old..] {
            requests[row.position].scheduled(step.start);
        }
        for row in &mut self.rows {
            if !row.served {
                continue;
            }
            row.served = false;
            let request = &mut requests[row.position];
            if row.tokens == 0 {
                request.token(step.end);
                row.decoded += 1;
            } else {
                row.prefilled += row.tokens;
                row.tokens = 0;
                if row.is_decoding() {
                    request.prompt_done(step.end);
                    if self.emits {
                        request.token(step.end);
                        row.decoded += 1;
                    }
                }
            }
            if row.decoded == row.output {
                finished.push(short(row.position));
            }
        }
        if !finished.is_empty() {
            self.rows.retain(|r| r.decoded < r.output);
        }
    }
}
