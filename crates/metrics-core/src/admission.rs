//! Whether a request may enter: the admission rule and the token bucket.

#[cfg(feature = "catalog")]
use crate::metric::Metric;

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[];
