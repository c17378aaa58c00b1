//! Every metric of this crate, in docs order.

use crate::metric::Metric;

/// The families, in docs order.
const FAMILIES: &[&[&Metric]] = &[
    crate::latency::METRICS,
    crate::summary::METRICS,
    crate::budget::METRICS,
    crate::throughput::METRICS,
    crate::goodput::METRICS,
    crate::utilization::METRICS,
    crate::cache::METRICS,
    crate::scheduling::METRICS,
    crate::admission::METRICS,
    crate::demand::METRICS,
    crate::model::METRICS,
    crate::roofline::METRICS,
    crate::sizing::METRICS,
];

/// Every metric of this crate, in docs order.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    FAMILIES.iter().flat_map(|family| family.iter().copied())
}

/// The metric with this id, if there is one.
#[must_use]
pub fn find(id: &str) -> Option<&'static Metric> {
    metrics().find(|m| m.id == id)
}
