//! What follows from measured and simulated serving: how long a step takes, and how well a
//! simulator meets a real engine.
//!
//! - [`fit`]: from measurements to a step time, with its errors and what the data cannot tell
//! - [`kv`]: what a KV cache holds, from model and memory
//! - [`means`]: mean latencies, and a server that can be simulated under any step time
//! - [`watch`]: whether a simulation left the range in which its step time is known
//! - [`plan`]: how many replicas a load needs, by closed form, queueing and simulation;
//!   [`goals`]: objectives as shares of requests; [`replica`]: a scheduler with its step time
//! - [`tune`]: which settings of a server keep the objectives
//! - [`cost`]: what tokens cost at a real load
//! - [`calibrate`]: overheads that kernels do not show, fitted end to end with cross-validation
//!
//! This crate reads files through [`serving_io`], simulates with [`sched_sim`] and holds no formula
//! of a metric.

pub mod calibrate;
pub mod cost;
pub mod error;
pub mod fit;
pub mod goals;
pub mod kv;
pub mod means;
pub mod order;
pub mod plan;
pub mod replica;
pub mod tune;
pub mod watch;

pub use error::{FitError, PlanError, Result};
