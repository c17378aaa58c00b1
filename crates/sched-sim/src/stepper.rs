//! The learner's scheduler: the source's rule, one step at a time and without a clock.

use std::collections::HashSet;

use crate::error::{Result, SimError};
use crate::policy::limit;
use crate::request::{Request, Stage};
use crate::workload::{RequestId, Workload};

/// The source's decode-first scheduler.
///
/// A step reads every stage at its start. Up to `max_batch_size` requests in decode get one token
/// each; each of the first `max_batch_size` − decodes requests in prefill then gets up to
/// `prefill_chunk` tokens; both in order of submission. So the first output token comes from the
/// decode step after the prompt is complete, and steps in which nothing happens count too.
///
/// # Examples
///
/// ```
/// use sched_sim::stepper::Scheduler;
///
/// let mut scheduler = Scheduler::new(2, 64)?;
/// scheduler.submit("short", 64, 2)?;
/// scheduler.submit("long", 100, 1)?;
///
/// assert_eq!(scheduler.step().to_string(), "step 1: prefill short +64, long +64");
/// assert_eq!(scheduler.step().to_string(), "step 2: decode short; prefill long +36");
/// assert_eq!(scheduler.step().to_string(), "step 3: decode short, long; done short, long");
/// # Ok::<(), sched_sim::SimError>(())
/// ```
///
/// Source: `scheduler.py` of the serving walkthrough, section 4.
#[derive(Clone, Debug)]
pub struct Scheduler {
    max_batch_size: usize,
    prefill_chunk: u64,
    requests: Vec<Request>,
    ids: HashSet<String>,
    steps: u64,
}

/// What one step did, by id and in order of submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// The step's number, from 1.
    pub step: u64,
    /// Who got an output token.
    pub decoded: Vec<String>,
    /// Who got how many prompt tokens.
    pub prefilled: Vec<(String, u64)>,
    /// Who finished.
    pub finished: Vec<String>,
}

impl StepReport {
    /// Requests in the step, which is what batch utilization counts.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.decoded.len() + self.prefilled.len()
    }
}

impl std::fmt::Display for StepReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefills: Vec<String> =
            self.prefilled.iter().map(|(id, n)| format!("{id} +{n}")).collect();
        let parts: Vec<String> =
            [("decode", &self.decoded), ("prefill", &prefills), ("done", &self.finished)]
                .iter()
                .filter(|(_, ids)| !ids.is_empty())
                .map(|(name, ids)| format!("{name} {}", ids.join(", ")))
                .collect();
        let what = if parts.is_empty() { "idle".to_owned() } else { parts.join("; ") };
        write!(f, "step {}: {what}", self.step)
    }
}

impl Scheduler {
    /// The source's limit on the steps of [`Scheduler::run_until_done`].
    pub const MAX_STEPS: u64 = 10_000;

    /// A scheduler with no requests.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] if either limit is 0, [`SimError::TooLarge`] above 2³² − 1.
    pub fn new(max_batch_size: u64, prefill_chunk: u64) -> Result<Self> {
        let max_batch_size = limit("max_batch_size", max_batch_size)?;
        Ok(Self {
            max_batch_size: usize::try_from(max_batch_size).unwrap_or(usize::MAX),
            prefill_chunk: limit("prefill_chunk", prefill_chunk)?,
            requests: Vec::new(),
            ids: HashSet::new(),
            steps: 0,
        })
    }

    /// Adds a request behind those already submitted.
    ///
    /// An empty prompt is allowed, as in the source: such a request decodes from the start.
    ///
    /// # Errors
    ///
    /// [`SimError::DuplicateId`] for an id in use; [`SimError::RequestTokens`] for an answer of no
    /// tokens, or for more than [`Workload::LARGEST_TOKENS`] either way.
    pub fn submit(
        &mut self,
        id: impl Into<String>,
        input_tokens: u64,
        output_tokens: u64,
    ) -> Result<()> {
        let id = id.into();
        let counts = [("input_tokens", input_tokens, 0), ("output_tokens", output_tokens, 1)];
        for (input, value, min) in counts {
            let max = Workload::LARGEST_TOKENS;
            if !(min <= value && value <= max) {
                let id = RequestId::from(id);
                return Err(SimError::RequestTokens { input, id, min, max, value });
            }
        }
        if !self.ids.insert(id.clone()) {
            let first = self.requests.iter().position(|r| r.id() == id).map_or(0, |i| i + 1);
            let second = self.requests.len() + 1;
            return Err(SimError::DuplicateId { id: RequestId::from(id), first, second });
        }
        self.requests.push(Request::new(id, input_tokens, output_tokens));
        Ok(())
    }

    /// Runs one step, even if there is nothing to do, and says what it did.
    pub fn step(&mut self) -> StepReport {
        self.steps += 1;
        let in_stage = |stage| {
            let requests = self.requests.iter().enumerate();
            requests.filter(move |(_, r)| r.stage() == stage).map(|(i, _)| i)
        };
        let decodes: Vec<usize> = in_stage(Stage::Decode).take(self.max_batch_size).collect();
        let slots = self.max_batch_size - decodes.len();
        let prefills: Vec<usize> = in_stage(Stage::Prefill).take(slots).collect();

        let mut report = StepReport { step: self.steps, ..StepReport::default() };
        for i in decodes {
            let r = &mut self.requests[i];
            r.decode();
            report.decoded.push(r.id().to_owned());
            if r.stage() == Stage::Done {
                report.finished.push(r.id().to_owned());
            }
        }
        for i in prefills {
            let r = &mut self.requests[i];
            let tokens = r.prefill(self.prefill_chunk);
            report.prefilled.push((r.id().to_owned(), tokens));
        }
        report
    }

    /// Steps until every request is done, at most `max_steps` steps more; returns who is not.
    ///
    /// The source's limit is [`Scheduler::MAX_STEPS`].
    pub fn run_until_done(&mut self, max_steps: u64) -> Vec<String> {
        let mut left = max_steps;
        while 0 < left && self.requests.iter().any(|r| r.stage() != Stage::Done) {
            self.step();
            left -= 1;
        }
        self.unfinished().map(|r| r.id().to_owned()).collect()
    }

    /// Requests that are not done, in order of submission.
    pub fn unfinished(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|r| r.stage() != Stage::Done)
    }

    /// All requests in order of submission.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Steps so far, idle ones included.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }
}

impl Default for Scheduler {
    /// The source's defaults: 8 requests in a batch, chunks of 128 tokens.
    fn default() -> Self {
        Self {
            max_batch_size: 8,
            prefill_chunk: 128,
            requests: Vec::new(),
            ids: HashSet::new(),
            steps: 0,
        }
    }
}
