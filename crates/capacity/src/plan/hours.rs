//! Replica-hours of a trace: fixed for its peak, for its mean, and following it.

use sched_sim::{Ticks, Workload};
use serde::{Deserialize, Serialize};

use crate::error::{PlanError, Result};

/// Replica-hours over a trace, given what one replica bears.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaHours {
    /// Length of the windows in which arrivals are counted.
    pub window_s: f64,
    /// Requests per second that one replica bears.
    pub rate_per_replica: f64,
    /// Mean arrivals per second.
    pub mean_rate_per_s: f64,
    /// Arrivals per second of the busiest window.
    pub peak_rate_per_s: f64,
    /// Replicas for the mean rate: windows above it queue.
    pub mean_replicas: u64,
    /// Replicas for the busiest window.
    pub peak_replicas: u64,
    /// Replica-hours of as many replicas as the busiest window needs, all the time.
    pub peak_hours: f64,
    /// Replica-hours of as many as the mean needs.
    pub mean_hours: f64,
    /// Replica-hours where every window has exactly what it needs, known in advance and without
    /// delay: no autoscaler does better.
    pub followed_hours: f64,
}

/// Counts arrivals in windows of this length; none where one replica bears nothing, or where the
/// trace spans no time.
///
/// # Errors
///
/// [`PlanError::Bounds`] for a window that is not above 0 and at most a day.
pub fn replica_hours(
    workload: &Workload,
    window_s: f64,
    rate_per_replica: f64,
) -> Result<Option<ReplicaHours>, PlanError> {
    let window_s = PlanError::bounds("window", window_s, (0.0, 86_400.0), " s")?;
    let span = workload.span().map_or(0.0, Ticks::seconds);
    if !(0.0 < rate_per_replica && rate_per_replica.is_finite() && 0.0 < span) {
        return Ok(None);
    }
    let first = workload.requests().first().map_or(0.0, |r| r.arrival.seconds());
    // A window for each part of the span that has begun.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let index = |t: f64| (t / window_s) as usize;
    let mut counts = vec![0_u64; index(span) + 1];
    for r in workload.requests() {
        if let Some(count) = counts.get_mut(index(r.arrival.seconds() - first)) {
            *count += 1;
        }
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let needed = |rate: f64| (rate / rate_per_replica).ceil() as u64;
    let mean = workload.len() as f64 / span;
    // The last window is as long as what is left of the span.
    let lengths = (0..counts.len()).map(|i| window_s.min(span - i as f64 * window_s));
    let (mut peak, mut followed) = (0.0_f64, 0.0);
    for (count, length) in counts.iter().zip(lengths) {
        // A sliver at the end says nothing of a rate.
        let rate = *count as f64 / if length < window_s / 2.0 { window_s } else { length };
        peak = peak.max(rate);
        followed += needed(rate) as f64 * length.max(0.0) / 3600.0;
    }
    let hours = span / 3600.0;
    Ok(Some(ReplicaHours {
        window_s,
        rate_per_replica,
        mean_rate_per_s: mean,
        peak_rate_per_s: peak,
        mean_replicas: needed(mean),
        peak_replicas: needed(peak),
        peak_hours: needed(peak) as f64 * hours,
        mean_hours: needed(mean) as f64 * hours,
        followed_hours: followed,
    }))
}
