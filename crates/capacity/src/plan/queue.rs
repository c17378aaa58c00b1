//! How many replicas by queueing theory: seats of a batch as servers.

use metrics_core::slo::Latency;
use queueing::approx::wait_factor;
use queueing::{Mmc, WaitDistribution};

use super::point::{Model, OperatingPoint};
use crate::goals::Goal;

/// The most replicas that are looked for.
pub(crate) const MOST_REPLICAS: u64 = 4096;

/// Seats of one replica: what the batch and the KV cache have room for.
pub(crate) fn seats(model: &Model<'_>, kv_tokens: Option<u64>, at: &OperatingPoint) -> u64 {
    let batch = model.scheduler.max_num_seqs();
    let each = at.kv_tokens / at.in_flight;
    // Below the batch where it counts; the cast saturates.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let fit = kv_tokens.filter(|_| 0.0 < each).map(|kv| (kv as f64 / each) as u64);
    fit.map_or(batch, |fit| fit.min(batch))
}

/// Whether replicas share one queue or have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queues {
    Pooled,
    Split,
}

/// What the queueing method needs beside the replica.
pub(crate) struct Demand<'a> {
    pub rate: f64,
    pub gap_cv: f64,
    pub kv_tokens: Option<u64>,
    pub goals: &'a [Goal],
}

/// Whether so many replicas keep every goal by an M/M/c queue of seats, with the mean service of the
/// steady state at that load; waits are longer by the factor of Kingman's formula under bursts.
pub(crate) fn keeps(model: &Model<'_>, demand: &Demand<'_>, n: u64, queues: Queues) -> bool {
    let Some(at) = model.at(demand.rate / n as f64) else { return false };
    let seats = seats(model, demand.kv_tokens, &at);
    let (rate, servers) = match queues {
        Queues::Pooled => (demand.rate, seats.saturating_mul(n)),
        Queues::Split => (demand.rate / n as f64, seats),
    };
    let queue = Mmc::new(rate, 1.0 / at.service_s, servers);
    let factor = wait_factor(demand.gap_cv * demand.gap_cv, model.mix.output_scv());
    let (Ok(queue), Ok(factor)) = (queue, factor) else { return false };
    let within = |limit: f64, served: f64, target: f64| {
        served <= limit
            && queue.wq_cdf((limit - served) / factor).is_ok_and(|share| target <= share)
    };
    demand.goals.iter().all(|goal| {
        goal.limit(Latency::Tpot).is_none_or(|limit| at.tpot_s <= limit)
            && goal.limit(Latency::Ttft).is_none_or(|l| within(l, at.prefill_s, goal.target))
            && goal.limit(Latency::E2e).is_none_or(|l| within(l, at.service_s, goal.target))
    })
}

/// The least number from 1 to [`MOST_REPLICAS`] for which `holds`, which stays true from there on.
pub(crate) fn least(holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, 1);
    while !holds(high) {
        if high == MOST_REPLICAS {
            return None;
        }
        low = high;
        high = (2 * high).min(MOST_REPLICAS);
    }
    while 1 < high - low {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// The largest rate that one replica bears by the same method.
pub(crate) fn largest_rate(model: &Model<'_>, demand: &Demand<'_>) -> f64 {
    let holds = |rate: f64| keeps(model, &Demand { rate, ..*demand }, 1, Queues::Split);
    model.largest_rate(|p| holds(p.rate_per_s.max(1e-9)))
}
