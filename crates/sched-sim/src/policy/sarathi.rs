//! `sarathi`: every request that decodes gets one token, and what a step's token budget leaves
//! goes to the prompt in progress, then to the head of the queue.
//!
//! Favours streams, like `decode-first`, and bounds a step by tokens rather than by requests: the
//! longest gap between two tokens is that of a step of `chunk` tokens. Can starve prompts: with
//! many decodes little of the budget is left, and TTFT grows.
//! The rule of Sarathi-Serve (OSDI 2024), as Vidur replays it: the KV blocks of a whole prompt are
//! taken at its admission, which leaves 1 % of them free; out of blocks, the request that arrived
//! last starts over from the front of the queue, or, if it decodes, its KV is swapped out and it
//! comes back before anybody behind it, when nobody had to go in that step and no prompt is in
//! progress. Vidur preempts also while no block is free but
//! none is needed; here a preemption needs a decode that needs a block.

use crate::error::Result;
use crate::memory::Preemption;
use crate::policy::{Horizon, Policy, limit};
use crate::step::Step;

/// Decodes first, then chunks of prompts up to a token budget.
///
/// # Examples
///
/// ```
/// use sched_sim::{Policy, Sarathi};
///
/// let policy = Sarathi::new(128, 512)?;
/// assert_eq!(policy.max_num_seqs(), 128);
/// assert!(Sarathi::new(128, 0).is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sarathi {
    max_num_seqs: u64,
    chunk: u64,
    preemption: Preemption,
}

impl Sarathi {
    /// At most `max_num_seqs` requests in the batch, and in a step prompt tokens only as far as
    /// they and the decodes are at most `chunk`.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`](crate::SimError) if either is 0,
    /// [`SimError::TooLarge`](crate::SimError) above 2³² − 1.
    pub fn new(max_num_seqs: u64, chunk: u64) -> Result<Self> {
        Ok(Self {
            max_num_seqs: limit("max_num_seqs", max_num_seqs)?,
            chunk: limit("chunk", chunk)?,
            preemption: Preemption::default(),
        })
    }

    /// The same policy, which preempts decodes so.
    ///
    /// # Errors
    ///
    /// [`SimError::Coefficient`](crate::SimError) if a token takes longer than
    /// [`Preemption::LONGEST`] to move.
    pub fn with_preemption(mut self, preemption: Preemption) -> Result<Self> {
        self.preemption = preemption.check()?;
        Ok(self)
    }
}

impl Policy for Sarathi {
    fn name(&self) -> &'static str {
        "sarathi"
    }

    fn max_num_seqs(&self) -> u64 {
        self.max_num_seqs
    }

    fn prefill_emits_first_token(&self) -> bool {
        true
    }

    fn watermark_percent(&self) -> u64 {
        1
    }

    fn preemption(&self) -> Preemption {
        self.preemption
    }

    fn sees_the_head_only(&self) -> bool {
        true
    }

    fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
        // The prompt in progress has to stay the request admitted last.
        if step.make_room()? == 0 && step.prefilling() == 0 {
            while step.swap_in() {}
        }
        step.decode_all()?;
        let mut left = self.chunk.saturating_sub(step.work().decodes);
        // A prompt is admitted only when those before it are done or done in this step, so that
        // at most one is in progress, the one admitted last.
        if 0 < left
            && let Some(last) = step.last_admitted()
            && let Some(rest) = step.prompt_left(last)
        {
            step.prefill(last, rest.min(left))?;
            left -= rest.min(left);
        }
        while 0 < left
            && step.running() < self.max_num_seqs
            && let Some(next) = step.next_waiting()
            && !next.swapped
            && step.next_fits(next.known_tokens)
        {
            let tokens = next.known_tokens.min(left);
            step.admit(tokens)?;
            left -= tokens;
        }
        Ok(())
    }

    fn horizon(&self, step: &Step<'_>) -> Horizon {
        let work = step.work();
        // Beside a prompt in progress nobody comes back either, who needs no tokens of the budget.
        if self.chunk <= work.decodes + work.prefill_tokens && step.prefilling() > 0 {
            Horizon::UNTIL_CHANGE
        } else {
            step.horizon()
        }
    }
}
