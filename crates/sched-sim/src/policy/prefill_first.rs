//! `prefill-first`: if whole prompts from the head of the queue fit, a step runs them alone; else
//! every request that decodes gets one token.
//!
//! Favours prompts: whoever arrives gets the first token in the next step that has room, so TTFT is
//! as good as slots and memory allow. Can starve streams: every prompt stops all of them for a step,
//! so that ITL has spikes of a whole prompt and TPOT grows with the arrival rate.
//! The rule of vLLM's engine v0 (SOSP 2023), without chunks and on one step at a time: an admission
//! leaves 1 % of the KV blocks free; out of blocks, the request that arrived last goes back to the
//! front of the queue and computes everything it knows again, or its KV is swapped out and it comes
//! back, when nobody had to go in that step, before any prompt behind it.

use crate::error::Result;
use crate::memory::Preemption;
use crate::policy::{Horizon, Policy, limit};
use crate::step::Step;

/// Whole prompts first, alone; decodes when there are none.
///
/// A prompt longer than `max_num_batched_tokens` runs in a step of its own; vLLM refuses to start
/// with so few tokens instead.
///
/// # Examples
///
/// ```
/// use sched_sim::{Policy, PrefillFirst};
///
/// let policy = PrefillFirst::new(256, 4096)?;
/// assert!(policy.prefill_emits_first_token());
/// assert!(PrefillFirst::new(256, 0).is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillFirst {
    max_num_seqs: u64,
    max_num_batched_tokens: u64,
    preemption: Preemption,
}

impl PrefillFirst {
    /// At most `max_num_seqs` requests in the batch, at most `max_num_batched_tokens` prompt
    /// tokens in a step.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`](crate::SimError) if either is 0,
    /// [`SimError::TooLarge`](crate::SimError) above 2³² − 1.
    pub fn new(max_num_seqs: u64, max_num_batched_tokens: u64) -> Result<Self> {
        Ok(Self {
            max_num_seqs: limit("max_num_seqs", max_num_seqs)?,
            max_num_batched_tokens: limit("max_num_batched_tokens", max_num_batched_tokens)?,
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

impl Policy for PrefillFirst {
    fn name(&self) -> &'static str {
        "prefill-first"
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
        while step.running() < self.max_num_seqs
            && let Some(next) = step.next_waiting()
            && !next.swapped
            && step.next_fits(next.known_tokens)
        {
            let tokens = step.work().prefill_tokens + next.known_tokens;
            if self.max_num_batched_tokens < tokens && step.work().prefills > 0 {
                break;
            }
            step.admit(next.known_tokens)?;
        }
        if step.work().is_empty() {
            if step.make_room()? == 0 {
                while step.swap_in() {}
            }
            step.decode_all()?;
        }
        Ok(())
    }

    fn horizon(&self, step: &Step<'_>) -> Horizon {
        step.horizon()
    }
}
