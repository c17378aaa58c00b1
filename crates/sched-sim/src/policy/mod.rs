//! Policies: rules that fill one step.
//!
//! | policy | favours | can starve | which engine |
//! |---|---|---|---|
//! | [`DecodeFirst`] | streams that have begun (TPOT) | prompts (TTFT) | the walkthrough's scheduler |
//! | [`PrefillFirst`] | prompts (TTFT) | streams (ITL) | vLLM's engine v0 |
//! | [`Sarathi`] | streams, with steps of bounded length | prompts under load | Sarathi-Serve |
//! | [`Orca`] | nobody | the queue, for want of memory | Orca |
//! | [`StaticBatch`] | the batch under way | everybody else | classic batching |
//! | [`SgLang`] | prompts, chunk by chunk | the queue; who is retracted | SGLang 0.5.23 |

mod decode_first;
mod orca;
mod prefill_first;
mod sarathi;
mod sglang;
mod r#static;

pub use decode_first::DecodeFirst;
pub(crate) use decode_first::{at_most, limit};
pub use orca::Orca;
pub use prefill_first::PrefillFirst;
pub use sarathi::Sarathi;
pub use sglang::SgLang;
pub use r#static::StaticBatch;

use crate::error::Result;
use crate::memory::{Preemption, Reserve};
use crate::step::Step;
use crate::step_time::StepWork;

/// How long a decision provably repeats, so that the engine may skip.
///
/// It says: asked again at the start of each of the next `steps` steps, the policy would do the
/// very same operations with the same numbers, as long as until then no request finishes, none
/// completes its prompt, none has less than a whole chunk left and, if `arrivals` is set, none
/// arrives. A decision that admits or preempts a request, or serves a last partial chunk, never
/// repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Steps with this decision, this one included.
    pub steps: u64,
    /// Whether an arrival would change it.
    pub arrivals: bool,
}

impl Horizon {
    /// This step alone.
    pub const ONE: Self = Self { steps: 1, arrivals: true };
    /// Until a request finishes, changes its stage, or arrives.
    pub const UNTIL_ARRIVAL: Self = Self { steps: u64::MAX, arrivals: true };
    /// Until a request finishes or changes its stage: nobody else could be admitted.
    pub const UNTIL_CHANGE: Self = Self { steps: u64::MAX, arrivals: false };
}

/// A rule that fills one step through the operations of [`Step`].
///
/// It holds at most its own small memory (same history, same step): no clock, no random source.
/// Only [`Step`] changes queues and counters, and refuses what would break an invariant.
pub trait Policy {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// Most requests in the batch, prefill and decode together; [`Step`] refuses more.
    fn max_num_seqs(&self) -> u64;

    /// Whether the step that ends a prompt already gives the first token (vLLM), or the next
    /// decode step does (the walkthrough's scheduler, the default).
    fn prefill_emits_first_token(&self) -> bool {
        false
    }

    /// Which KV blocks an admission takes; by default those of the whole prompt.
    fn reserve(&self) -> Reserve {
        Reserve::Prompt
    }

    /// Percent of the KV blocks that an admission leaves free; by default none.
    fn watermark_percent(&self) -> u64 {
        0
    }

    /// What becomes of the KV of a decode that it preempts; by default it is lost.
    fn preemption(&self) -> Preemption {
        Preemption::Recompute
    }

    /// Whether the server keeps what it has computed in a radix tree, if it has KV blocks, so that
    /// [`Step::look_up`] finds prefixes; by default not.
    fn prefix_caching(&self) -> bool {
        false
    }

    /// Takes note of steps that have run: so many, each with this work or as it ages. A policy
    /// that remembers something of its past changes it here, never in [`fill`](Self::fill), which
    /// may be asked again.
    fn ran(&mut self, work: &StepWork, steps: u64) {
        let _ = (work, steps);
    }

    /// For how many steps a request with these tokens keeps a slot of a full batch, if the policy
    /// can say so without knowing the others; the load that a server can bear follows from it.
    fn slot_steps(&self, input_tokens: u64, output_tokens: u64) -> Option<u64> {
        let _ = (input_tokens, output_tokens);
        None
    }

    /// Whether who waits behind the head of a queue of first come, first served changes nothing in
    /// what it decides, and nobody whom it preempts goes behind them; by default nothing is claimed.
    fn sees_the_head_only(&self) -> bool {
        false
    }

    /// Decides one step.
    ///
    /// # Errors
    ///
    /// What [`Step`] refuses; a policy passes it on.
    fn fill(&mut self, step: &mut Step<'_>) -> Result<()>;

    /// How many steps the decision just made, in `step`, provably repeats.
    ///
    /// The default claims nothing. The reference engine never asks.
    fn horizon(&self, step: &Step<'_>) -> Horizon {
        let _ = step;
        Horizon::ONE
    }
}

/// A policy behind a pointer is that policy.
macro_rules! behind {
    ($pointer:ty) => {
        impl<P: Policy + ?Sized> Policy for $pointer {
            fn name(&self) -> &'static str {
                (**self).name()
            }

            fn max_num_seqs(&self) -> u64 {
                (**self).max_num_seqs()
            }

            fn prefill_emits_first_token(&self) -> bool {
                (**self).prefill_emits_first_token()
            }

            fn reserve(&self) -> Reserve {
                (**self).reserve()
            }

            fn watermark_percent(&self) -> u64 {
                (**self).watermark_percent()
            }

            fn preemption(&self) -> Preemption {
                (**self).preemption()
            }

            fn prefix_caching(&self) -> bool {
                (**self).prefix_caching()
            }

            fn ran(&mut self, work: &StepWork, steps: u64) {
                (**self).ran(work, steps);
            }

            fn slot_steps(&self, input_tokens: u64, output_tokens: u64) -> Option<u64> {
                (**self).slot_steps(input_tokens, output_tokens)
            }

            fn sees_the_head_only(&self) -> bool {
                (**self).sees_the_head_only()
            }

            fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
                (**self).fill(step)
            }

            fn horizon(&self, step: &Step<'_>) -> Horizon {
                (**self).horizon(step)
            }
        }
    };
}

behind!(&mut P);
behind!(Box<P>);
