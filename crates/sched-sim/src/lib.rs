//! An exact simulator of LLM serving schedulers.
//!
//! Requests go through prefill, decode and done under a [`Policy`], on a clock of whole
//! attoseconds ([`Ticks`]), with steps priced by a [`StepTime`]. [`Simulation`] turns a
//! [`Workload`] into per-request instants and integer statistics. It prints nothing, reads no
//! files and no clock, and gives the same bits on every machine.
//!
//! Two engines give the same result: the one that skips ([`engine`]), whose cost grows with
//! events and not with tokens, and a plain loop over every step and request ([`mod@reference`]),
//! which is there to be believed. [`stepper`] is the learner's scheduler without a clock.
//!
//! # Examples
//!
//! ```
//! use sched_sim::{Affine, DecodeFirst, Simulation, Ticks, Workload, WorkloadRequest};
//!
//! let workload = Workload::new(vec![
//!     WorkloadRequest::new("a", Ticks::ZERO, 100, 3),
//!     WorkloadRequest::new("b", "1ms".parse()?, 900, 2),
//! ])?;
//! let step_time: Affine = "base=1ms,prefill=10us/token,decode=10us/request".parse()?;
//!
//! let result = Simulation::new(&workload, DecodeFirst::new(8, 512)?, step_time).run()?;
//!
//! // `a`: its prompt takes 2 ms. Its first token comes from the next step, which also carries
//! // 512 tokens of `b` and takes 1 + 5.12 + 0.01 = 6.13 ms.
//! assert_eq!(result.records()[0].first_token(), Some("8.13ms".parse()?));
//! assert!(result.statistics().littles_law_holds());
//! # Ok::<(), sched_sim::SimError>(())
//! ```

pub mod admission;
pub mod disagg;
pub mod drive;
pub mod engine;
pub mod error;
pub mod fleet;
pub mod floored;
pub mod history;
pub mod itl;
pub mod kv_cache;
pub mod ledger;
pub mod load;
pub mod memory;
mod overheads;
pub mod policy;
mod queue;
mod radix;
pub mod reference;
mod replica;
pub mod request;
mod roofline;
mod run;
pub mod server;
pub mod simulation;
pub mod statistics;
pub mod step;
pub mod step_time;
pub mod stepper;
mod table;
pub mod time;
mod two_regime;
pub mod vllm_v1;
pub mod workload;

pub use admission::{AdmissionRule, Shut, TokenBucket};
pub use disagg::{Disaggregated, KvTransfer};
pub use error::{Refusal, Result, SimError};
pub use floored::{Floored, FlooredCoefficients};
pub use history::{BatchHistory, Held, Observer, Stretch};
pub use itl::{GapRun, InterTokenLatency};
pub use ledger::{Account, Accounts, Ledger, LedgerRow, Steps, Tail};
pub use load::{LoadLevel, OfferedLoad};
pub use memory::{KvPool, Order, Preemption, Reserve, ServerSettings};
pub use overheads::{ServerOverheads, WithOverheads};
pub use policy::{DecodeFirst, Horizon, Orca, Policy, PrefillFirst, Sarathi, SgLang, StaticBatch};
pub use replica::Replica;
pub use request::Stage;
pub use roofline::{ExpertReads, Roofline, RooflineCoefficients};
pub use server::{Job, Over, Server};
pub use simulation::{
    RequestDetail, RequestRecord, RunEnd, RunLimits, RunResult, Simulation, Span, Stall, Transfer,
    Unfinished,
};
pub use statistics::{KvStatistics, Refused, RunStatistics};
pub use step::Step;
pub use step_time::{Affine, Coefficients, MeanWork, StepTime, StepWork, StretchTime};
pub use table::{Grid, Split, Table};
pub use time::Ticks;
pub use two_regime::{Extra, TwoRegime};
pub use workload::{PromptContent, RateScale, RequestId, Workload, WorkloadRequest};
