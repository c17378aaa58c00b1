//! `orca`: every request that decodes gets one token, and the head of the queue is admitted with
//! its whole prompt as long as there are slots and memory for its longest answer.
//!
//! Favours nobody in particular: prompts and tokens share every step. Streams stall for the length
//! of each prompt that joins. Can starve the queue: a request reserves KV blocks for its last token
//! at its admission, most of which it does not use for long, so that the batch is small; in return
//! nobody is ever preempted.
//! The rule of Orca (OSDI 2022), iteration by iteration and first come, first served. Here the
//! maximum that is reserved is the request's own answer, where Orca has that of the model.

use crate::error::Result;
use crate::memory::Reserve;
use crate::policy::{Horizon, Policy, limit};
use crate::step::Step;

/// Whole prompts beside the decodes, and memory for the whole answer.
///
/// # Examples
///
/// ```
/// use sched_sim::{Orca, Policy, Reserve};
///
/// assert_eq!(Orca::new(64)?.reserve(), Reserve::Maximum);
/// assert!(Orca::new(0).is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orca {
    max_num_seqs: u64,
}

impl Orca {
    /// At most `max_num_seqs` requests in the batch.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`](crate::SimError) for 0, [`SimError::TooLarge`](crate::SimError)
    /// above 2³² − 1.
    pub fn new(max_num_seqs: u64) -> Result<Self> {
        Ok(Self { max_num_seqs: limit("max_num_seqs", max_num_seqs)? })
    }
}

impl Policy for Orca {
    fn name(&self) -> &'static str {
        "orca"
    }

    fn max_num_seqs(&self) -> u64 {
        self.max_num_seqs
    }

    fn prefill_emits_first_token(&self) -> bool {
        true
    }

    fn reserve(&self) -> Reserve {
        Reserve::Maximum
    }

    fn sees_the_head_only(&self) -> bool {
        true
    }

    fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
        while step.swap_in() {}
        step.decode_all()?;
        while step.running() < self.max_num_seqs
            && let Some(next) = step.next_waiting()
            && !next.swapped
            && step.next_fits(next.known_tokens)
        {
            step.admit(next.known_tokens)?;
        }
        Ok(())
    }

    fn horizon(&self, step: &Step<'_>) -> Horizon {
        step.horizon()
    }
}
