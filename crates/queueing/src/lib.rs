//! Queueing theory for serving: what to expect of a queue, and which rate an objective needs.
//!
//! Little's law, M/M/1, M/M/c by an Erlang B and C that neither overflow nor cancel, M/G/1 by
//! Pollaczek and Khinchine, percentiles of wait and response, and the rate that a target needs.
//!
//! **Units.** Every rate is per *one* unit of time of the caller's choice and every time is in
//! that unit: with rates per second, waits are in seconds. The catalog writes `s` for it. Module
//! [`demand`] turns the typed quantities of `metrics-core` into such rates, per second.
//!
//! **Bad input.** A queue that receives work at least as fast as it serves it is
//! [`QueueError::Unstable`], never a number; no arrivals at all (`lambda = 0`) are valid. Nothing
//! here panics or returns NaN or a negative wait for any input. A result is infinite only where
//! the truth is: a percentile at `p = 1`, the wait under an infinite second moment, the logarithm
//! of a probability 0.
//!
//! ```
//! use queueing::{Mm1, Mmc, Queue, WaitDistribution};
//!
//! let one = Mm1::new(8.0, 10.0)?; // 8 requests arrive a second, 10 could be served
//! let two = Mmc::new(8.0, 5.0, 2)?; // the same capacity from two servers half as fast
//! assert!(two.wq() < one.wq() && one.w() < two.w());
//! assert!(one.w_quantile(0.99)? > 4.6 * one.w());
//! # Ok::<(), queueing::QueueError>(())
//! ```

pub mod approx;
pub mod batch;
pub mod birth_death;
#[cfg(feature = "catalog")]
pub mod catalog;
pub mod closed;
pub mod demand;
pub mod erlang;
pub mod erlang_a;
pub mod error;
mod exact;
pub mod finite_source;
pub mod gim1;
mod inverse;
pub mod little;
pub mod lps;
pub mod lps_batch;
pub mod lps_response;
pub mod md1;
pub mod mdc;
pub mod mg1;
pub mod mg1_priority;
pub mod mg1_ps;
pub mod mm1;
pub mod mmc;
pub mod mmck;
pub mod mminf;
pub mod model;
pub mod mph1;
mod numeric;
mod places;
pub mod plan;
#[cfg(feature = "catalog")]
pub mod profile;
mod quadrature;
mod search;
pub mod service;
pub mod shape;
pub mod stability;
mod tail;
mod waits;
mod walk;

pub use batch::{BatchArrivals, BatchCapped, BatchLinear, BulkMmK};
pub use birth_death::BirthDeath;
pub use closed::Closed;
pub use erlang::{
    erlang_b, erlang_b_real, erlang_c, erlang_c_real, ln_erlang_b, ln_erlang_b_real, ln_erlang_c,
    offered_load, utilization,
};
pub use erlang_a::ErlangA;
pub use error::{QueueError, Result};
pub use finite_source::MmcN;
pub use gim1::GiM1;
pub use lps::LpsStateDependent;
pub use md1::Md1;
pub use mdc::Mdc;
pub use mg1::{Mg1, ServiceMoments};
pub use mg1_priority::Mg1Priority;
pub use mg1_ps::Mg1Ps;
pub use mm1::Mm1;
pub use mmc::Mmc;
pub use mmck::MmcK;
pub use mminf::MmInf;
pub use model::{Queue, WaitDistribution};
pub use mph1::MPh1;
pub use service::{ServiceLaw, TokenLaw};
