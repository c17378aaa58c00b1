//! How many replicas by queueing theory: seats of a batch as servers.

use metrics_core::slo::Latency;
use queueing::approx::wait_factor;
use queueing::{Mmc, MmcN, Queue, WaitDistribution};

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

/// Who sends requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Senders {
    /// Somebody who does not wait for answers: requests per second.
    Open(f64),
    /// Users who wait for their answer and think.
    Closed { users: f64, think_s: f64 },
}

impl Senders {
    /// The rate of one of `n` replicas if nobody waits for a seat; none where it cannot keep up.
    ///
    /// Users send what the interactive law says, x = users / (n · (think + service(x))): the more
    /// they send, the longer a request takes, so that there is one such rate.
    pub(crate) fn each(self, model: &Model<'_>, n: u64) -> Option<f64> {
        match self {
            Self::Open(rate) => Some(rate / n as f64),
            Self::Closed { users, think_s } => {
                let users = users / n as f64;
                solve(users / (think_s + model.at(0.0)?.service_s), |x| {
                    let at = model.at(x)?;
                    Some(users / (think_s + at.service_s))
                })
            }
        }
    }
}

/// The x from 0 to `most` at which `f`, which falls as x grows, is x; where `f` has no value, x is
/// too large.
fn solve(most: f64, f: impl Fn(f64) -> Option<f64>) -> Option<f64> {
    let (mut low, mut high) = (0.0, most);
    while 1e-7 * most < high - low {
        let middle = 0.5 * (low + high);
        if f(middle).is_some_and(|y| middle < y) {
            low = middle;
        } else {
            high = middle;
        }
    }
    f(low).is_some().then_some(low)
}

/// Most users of the queueing method, whose cost grows with them.
pub(crate) const MOST_USERS: f64 = 50_000.0;

/// What the queueing method needs beside the replica.
#[derive(Clone, Copy)]
pub(crate) struct Demand<'a> {
    pub senders: Senders,
    pub gap_cv: f64,
    pub kv_tokens: Option<u64>,
    pub goals: &'a [Goal],
}

/// The queue of seats behind `n` replicas, and one of them at its share of the load.
///
/// Users make it M/M/c//N, with the service time of the rate that they then send.
pub(crate) fn queue(
    model: &Model<'_>,
    demand: &Demand<'_>,
    n: u64,
    queues: Queues,
) -> Option<(OperatingPoint, Box<dyn WaitDistribution>)> {
    let replicas = n as f64;
    let servers = |at: &OperatingPoint| {
        let seats = seats(model, demand.kv_tokens, at);
        if queues == Queues::Pooled { seats.saturating_mul(n) } else { seats }
    };
    match demand.senders {
        Senders::Open(rate) => {
            let at = model.at(rate / replicas)?;
            let rate = if queues == Queues::Pooled { rate } else { rate / replicas };
            let queue = Mmc::new(rate, 1.0 / at.service_s, servers(&at)).ok()?;
            Some((at, Box::new(queue)))
        }
        Senders::Closed { users, think_s } => {
            // The fullest of the replicas, if users stay with one.
            let all = if queues == Queues::Pooled { users } else { (users / replicas).ceil() };
            let share = if queues == Queues::Pooled { replicas } else { 1.0 };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let sources = all as u64;
            let at = |x: f64| {
                let at = model.at(x)?;
                // Who does not think comes back at once, which needs a rate all the same.
                let think = think_s.max(1e-6 * at.service_s);
                let line = MmcN::new(1.0 / think, 1.0 / at.service_s, servers(&at), sources);
                Some((at, line.ok()?))
            };
            let most = all / share / (think_s + model.at(0.0)?.service_s);
            let x = solve(most, |x| at(x).map(|(_, line)| line.throughput() / share))?;
            let (at, line) = at(x)?;
            Some((at, Box::new(line)))
        }
    }
}

/// Whether so many replicas keep every goal by a queue of seats, M/M/c or for users M/M/c//N, with
/// the mean service of the steady state at that load; waits are longer by the factor of Kingman's
/// formula under bursts.
pub(crate) fn keeps(model: &Model<'_>, demand: &Demand<'_>, n: u64, queues: Queues) -> bool {
    let Some((at, queue)) = queue(model, demand, n, queues) else { return false };
    let factor = wait_factor(demand.gap_cv * demand.gap_cv, model.mix.output_scv());
    let Ok(factor) = factor else { return false };
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
    let holds = |rate: f64| {
        keeps(model, &Demand { senders: Senders::Open(rate), ..*demand }, 1, Queues::Split)
    };
    model.largest_rate(|p| holds(p.rate_per_s.max(1e-9)))
}
