//! What a latency is made of: parts of TTFT and TPOT, and budgets for E2E.

#[cfg(feature = "catalog")]
use crate::metric::Metric;

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[];
