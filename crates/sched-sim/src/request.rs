//! The state machine of a request: prefill, decode, done.

use serde::{Deserialize, Serialize};

/// Where a request is.
///
/// Only a scheduler moves it, and only forward: prefill → decode → done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Its prompt is not computed in full.
    Prefill,
    /// Its prompt is; each step gives one output token.
    Decode,
    /// Its answer is complete.
    Done,
}

/// A request in the learner's scheduler: what it asks for, and how far it is.
///
/// # Examples
///
/// ```
/// use sched_sim::request::{Request, Stage};
///
/// let mut r = Request::new("r1", 100, 2);
/// assert_eq!(r.stage(), Stage::Prefill);
/// r.prefill(64);
/// r.prefill(64); // the last chunk is what is left
/// assert_eq!((r.prefilled(), r.stage()), (100, Stage::Decode));
/// r.decode();
/// r.decode();
/// assert_eq!(r.stage(), Stage::Done);
/// ```
///
/// Source: `stage()` in `scheduler.py` of the serving walkthrough, section 4.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    id: String,
    input_tokens: u64,
    output_tokens: u64,
    prefilled: u64,
    decoded: u64,
    finished: bool,
}

impl Request {
    /// A request that has had no work yet.
    #[must_use]
    pub fn new(id: impl Into<String>, input_tokens: u64, output_tokens: u64) -> Self {
        Self {
            id: id.into(),
            input_tokens,
            output_tokens,
            prefilled: 0,
            decoded: 0,
            finished: false,
        }
    }

    /// Done if finished, prefill while the prompt is not computed in full, else decode.
    #[must_use]
    pub fn stage(&self) -> Stage {
        if self.finished {
            Stage::Done
        } else if self.prefilled < self.input_tokens {
            Stage::Prefill
        } else {
            Stage::Decode
        }
    }

    /// Computes up to `chunk` prompt tokens; returns how many.
    ///
    /// p(t+1) = min(T_in, p(t) + C_prefill), section 4.3 of the walkthrough.
    pub fn prefill(&mut self, chunk: u64) -> u64 {
        let before = self.prefilled;
        self.prefilled = self.input_tokens.min(self.prefilled.saturating_add(chunk));
        self.prefilled - before
    }

    /// Makes one output token; the request is finished once it has them all.
    pub fn decode(&mut self) {
        self.decoded += 1;
        self.finished = self.output_tokens <= self.decoded;
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Tokens of its prompt.
    #[must_use]
    pub const fn input_tokens(&self) -> u64 {
        self.input_tokens
    }

    /// Tokens of its answer.
    #[must_use]
    pub const fn output_tokens(&self) -> u64 {
        self.output_tokens
    }

    /// Prompt tokens computed so far.
    #[must_use]
    pub const fn prefilled(&self) -> u64 {
        self.prefilled
    }

    /// Output tokens made so far.
    #[must_use]
    pub const fn decoded(&self) -> u64 {
        self.decoded
    }
}
