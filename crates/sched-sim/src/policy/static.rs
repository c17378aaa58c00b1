//! `static`: whoever waits when the server is empty forms a batch, whose prompts run in one step;
//! it decodes until its longest answer ends, and nobody joins it.
//!
//! The baseline that continuous batching is measured against. Favours the requests of the batch
//! under way: nobody stalls them. Starves everybody else, who waits for the longest answer of a
//! batch it is not in.
//! Request-level batching as in `FasterTransformer`, the baseline of the Orca paper (OSDI 2022).
//! KV blocks are reserved for the last token. A request that ends leaves, and gets its answer then;
//! its slot stays empty. Padding is not priced: a step costs what the requests that are left need,
//! where a static graph would compute the others as well. There is no timer: a batch starts with
//! whoever is there.

use crate::error::Result;
use crate::history::Held;
use crate::memory::Reserve;
use crate::policy::{Horizon, Policy, limit};
use crate::step::Step;

/// One batch after the other.
///
/// # Examples
///
/// ```
/// use sched_sim::{Policy, StaticBatch};
///
/// assert_eq!(StaticBatch::new(16)?.name(), "static");
/// assert!(StaticBatch::new(0).is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBatch {
    max_num_seqs: u64,
}

impl StaticBatch {
    /// Batches of at most `max_num_seqs` requests.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`](crate::SimError) for 0, [`SimError::TooLarge`](crate::SimError)
    /// above 2³² − 1.
    pub fn new(max_num_seqs: u64) -> Result<Self> {
        Ok(Self { max_num_seqs: limit("max_num_seqs", max_num_seqs)? })
    }
}

impl Policy for StaticBatch {
    fn name(&self) -> &'static str {
        "static"
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
        if step.running() > 0 {
            // Nobody joins, whatever is free.
            step.hold(Held::Slots);
            return step.decode_all();
        }
        while step.swap_in() {}
        while step.running() < self.max_num_seqs
            && let Some(next) = step.next_waiting()
            && !next.swapped
            && step.next_fits(next.known_tokens)
        {
            step.admit(next.known_tokens)?;
        }
        if step.work().is_empty() { step.decode_all() } else { Ok(()) }
    }

    fn horizon(&self, _: &Step<'_>) -> Horizon {
        Horizon::UNTIL_CHANGE
    }
}
