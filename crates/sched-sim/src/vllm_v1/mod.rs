//! The scheduler of vLLM's engine v1, decision by decision as in release 0.33.0.
//!
//! The rule in one sentence: every request that runs gets the tokens it lacks, in order of
//! admission, until the step's token budget is spent, and what is left goes to the head of the
//! queue.
//! It favours those who were admitted first, prefills as much as decodes; it can starve whoever
//! is behind a long prompt in the list, and everybody behind a prompt that does not fit.
//!
//! [`VllmV1`] is a state machine without a clock: [`add_request`](VllmV1::add_request),
//! [`schedule`](VllmV1::schedule), [`update_from_output`](VllmV1::update_from_output),
//! [`abort`](VllmV1::abort). [`VllmReplica`] drives it on the exact clock of a simulation, and
//! [`Simulation::vllm_v1`](crate::Simulation::vllm_v1) is a run of one replica. [`replay`] is the
//! same loop for traces, with one or two steps in flight; [`golden`] compares a replay with recorded decisions of vLLM's own scheduler.
//!
//! # The rules
//!
//! Names are vLLM's. *Known* tokens are the prompt and what was delivered of the answer;
//! *computed* ones have their KV, or are getting it in a step in flight.
//!
//! **1. State.** A list of running requests in order of admission, a queue of waiting ones (by
//! arrival, or by priority, arrival and id), and the blocks of each request.
//!
//! **2a. Running requests first**, in list order. Each gets as many tokens as are known and not
//! computed, cut to `long_prefill_token_threshold`, to what is left of the budget and to
//! `max_model_len − 1`. A decode is the case of one token, and has no precedence. If there are no
//! blocks for it, somebody is preempted: the last of the list, or under the priority policy
//! whoever has the highest value and arrived last.
//!
//! **2b. Then the queue**, unless somebody was preempted in this step. The head gets what the
//! prefix cache does not hold, cut likewise; if it does not fit it blocks all behind it, and
//! nobody is preempted for it, under neither policy.
//!
//! **2c. Preemption** frees all blocks and puts the request at the front of the queue; later it
//! computes everything it knows again, less what the prefix cache still holds.
//!
//! **2d. At the end** of `schedule()`, the tokens count as computed. A request that has all its
//! known tokens computed by the step samples one.
//!
//! **3. Blocks.** Block 0 is the null block and never used. A running request needs a block when
//! it computes the block's first token, so that the last token of an answer needs none. An
//! admission needs blocks for all known tokens, not only for its first chunk
//! (`scheduler_reserve_full_isl`, from 0.20.2), but only those of the chunk are taken. Idle blocks
//! of its hit count as needed, since they leave the free list. While something runs, `watermark`
//! of the blocks stay free (from 0.24.0).
//!
//! **4. Prefix cache**: see [`kv_cache`](crate::kv_cache). Blocks are registered when they are
//! allocated, before the step has run, so that an admission in the same step hits them. With two
//! steps in flight the last token may not be known then, and they are registered when it is.
//!
//! **5. Freeing**: tail first; from 0.24.0 on, blocks outside the prefix cache to the front.
//!
//! **6. Output.** A request is over at `max_tokens` or `max_model_len`. A request that was
//! preempted while its step ran still gets that step's token.
//!
//! **7. Intake** refuses an empty prompt, and one of `max_model_len` tokens or more.
//!
//! # Not modelled
//!
//! Speculative decoding, LoRA, images, structured output, KV connectors, pipeline and context
//! parallelism, more than one kind of attention. `max_num_partial_prefills`, which releases up to
//! 0.26.0 had, is taken as not given.

pub(crate) mod clock;
mod config;
pub mod golden;
mod plan;
pub mod replay;
mod scheduler;

pub use clock::{VllmReplica, VllmV1Run};
pub use config::{ConfigFault, EngineVersion, QueuePolicy, Usage, VllmConfig};
pub use plan::{FinishReason, Finished, Kind, Plan, Scheduled, Update};
pub use scheduler::{NewRequest, Rejection, VllmCounters, VllmV1};
