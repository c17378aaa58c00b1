//! `decode-first`: every request that decodes gets one token, and the slots left over go to
//! prompts in order of submission, one chunk each.
//!
//! Favours requests that already stream: nothing displaces a decode, so TPOT is as good as the
//! chunk allows. Can starve prompts: each decode takes a slot, so under load TTFT worsens first.
//! On a server with a bound on KV memory, the blocks of a whole prompt are taken at its admission;
//! out of blocks, whoever the order puts last is preempted, and nobody is admitted in that step.
//! The rule of the walkthrough's `scheduler.py`, which has no such bound; vLLM V1 differs (a token budget in place of a
//! chunk per request, list order in place of decode first, and the last prefill step already
//! gives the first token).

use crate::error::{Result, SimError};
use crate::policy::{Horizon, Policy};
use crate::step::Step;

/// Decodes first, then one chunk for each prompt that finds a slot.
///
/// The rule of the learner's [`Scheduler`](crate::stepper::Scheduler), said for a batch that was
/// never over its limit: decodes and begun prompts together then fit in it, so all of them are
/// served in every step and only admission has to look at the slots that are left.
///
/// # Examples
///
/// ```
/// use sched_sim::{DecodeFirst, Policy};
///
/// let policy = DecodeFirst::new(64, 512)?;
/// assert_eq!(policy.max_num_seqs(), 64);
/// assert!(DecodeFirst::new(0, 512).is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeFirst {
    max_num_seqs: u64,
    chunk: u64,
}

/// Largest batch and chunk: a batch of more requests than a workload may hold has no meaning.
const LARGEST: u64 = u32::MAX as u64;

/// `value` if it is from 1 to the largest count of requests or tokens.
pub(crate) fn limit(input: &'static str, value: u64) -> Result<u64> {
    at_most(input, value, LARGEST)
}

/// `value` if it is from 1 to `max`.
pub(crate) fn at_most(input: &'static str, value: u64, max: u64) -> Result<u64> {
    if value < 1 {
        return Err(SimError::TooSmall { input, min: 1, value: u128::from(value) });
    }
    if max < value {
        return Err(SimError::TooLarge { input, max: u128::from(max), value: u128::from(value) });
    }
    Ok(value)
}

impl DecodeFirst {
    /// At most `max_num_seqs` requests in a step, at most `chunk` prompt tokens for each.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] if either is 0, [`SimError::TooLarge`] above 2³² − 1.
    pub fn new(max_num_seqs: u64, chunk: u64) -> Result<Self> {
        Ok(Self {
            max_num_seqs: limit("max_num_seqs", max_num_seqs)?,
            chunk: limit("chunk", chunk)?,
        })
    }

    /// Most prompt tokens of one request in one step.
    #[must_use]
    pub const fn chunk(&self) -> u64 {
        self.chunk
    }
}

impl Default for DecodeFirst {
    /// The walkthrough's defaults: 8 requests, chunks of 128 tokens.
    fn default() -> Self {
        Self { max_num_seqs: 8, chunk: 128 }
    }
}

impl Policy for DecodeFirst {
    fn name(&self) -> &'static str {
        "decode-first"
    }

    fn max_num_seqs(&self) -> u64 {
        self.max_num_seqs
    }

    fn slot_steps(&self, input_tokens: u64, output_tokens: u64) -> Option<u64> {
        Some(input_tokens.div_ceil(self.chunk) + output_tokens)
    }

    fn sees_the_head_only(&self) -> bool {
        true
    }

    fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
        let crowded = 0 < step.make_room()?;
        while !crowded && step.swap_in() {}
        step.decode_all()?;
        step.prefill_all(self.chunk)?;
        while !crowded
            && step.running() < self.max_num_seqs
            && let Some(next) = step.next_waiting()
            && !next.swapped
            && step.next_fits(next.known_tokens.min(self.chunk))
        {
            step.admit(next.known_tokens.min(self.chunk))?;
        }
        Ok(())
    }

    fn horizon(&self, step: &Step<'_>) -> Horizon {
        // A full batch has no slot for anyone who arrives.
        step.horizon()
    }
}
