//! Exact metrics of LLM serving, each formula once.
//!
//! Time to first token, time per output token, end-to-end latency, throughput, goodput, KV and
//! batch utilization, and what follows from them, as pure functions: no clock, no randomness, no
//! files. Every formula stands beside its catalog entry ([`metric::Metric`]), from which
//! tables, explanations and both languages are made (feature `catalog`, on by default).
//!
//! Throughput is not goodput: only requests that meet their SLO count.

pub mod admission;
pub mod alerts;
pub mod budget;
pub mod cache;
#[cfg(feature = "catalog")]
pub mod catalog;
pub mod compare;
pub mod concurrency;
pub mod demand;
pub mod diagnosis;
pub mod error;
pub mod expr;
pub mod format;
pub mod goodput;
pub mod grammar;
pub mod grouping;
pub mod histogram;
pub mod interval;
pub mod kv_pool;
pub mod latency;
pub mod measured;
pub mod metric;
pub mod model;
pub mod observe;
pub mod report;
pub mod roofline;
pub mod scheduling;
pub mod sizing;
pub mod sketch;
pub mod slo;
pub mod steady;
pub mod summary;
pub mod table;
pub mod tally;
pub mod throughput;
pub mod timeline;
pub mod tool_rules;
pub mod units;
pub mod utilization;
pub mod validity;

pub use error::{Error, Result};
pub use latency::RequestMetrics;
pub use timeline::{Instant, Outcome, RequestTimeline};
pub use units::{Quantity, Seconds, SecondsPerToken, TokensPerSecond, Unit};
