//! What a GPU can do at best: bounds on prefill and decode time, arithmetic intensity.

#[cfg(feature = "catalog")]
use crate::metric::Metric;

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[];
