//! Goodput: the rate of requests that meet their SLO, and the ratios it is made of.

#[cfg(feature = "catalog")]
use crate::metric::Metric;

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[];
