//! How full the batch, the KV cache and the GPU are.

#[cfg(feature = "catalog")]
use crate::metric::Metric;

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[];
