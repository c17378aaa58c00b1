//! Prefill and decode on replicas of their own: how many of each, and where they balance.

use metrics_core::slo::Latency;
use queueing::{Mmc, WaitDistribution};
use sched_sim::{MeanWork, Workload};
use serde::{Deserialize, Serialize};

use super::point::Model;
use super::queue::least;
use crate::goals::{Goal, strictest};

/// What the KV cache of a prompt costs on its way from a prefill to a decode replica.
///
/// The prefill replica gives the first token; the transfer comes before the second one, so that it is
/// part of TPOT and E2E and not of TTFT. It is taken to start when the prompt is done, as engines do that
/// do not send layer by layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Bytes of the KV cache of a mean prompt.
    pub prompt_bytes: f64,
    /// Bytes per second that all requests together need.
    pub required_bytes_per_s: f64,
    /// How long a mean prompt takes at the bandwidth of a prefill replica, if that is given.
    pub transfer_s: Option<f64>,
    /// What that adds to the mean TPOT: the transfer over the tokens after the first.
    pub tpot_s: Option<f64>,
}

/// The KV cache on its way: bytes of a token, and bytes per second that a prefill replica sends.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub bytes_per_token: f64,
    pub bandwidth: Option<f64>,
}

impl Link {
    fn transfer(self, model: &Model<'_>, rate: f64) -> Transfer {
        let prompt_bytes = self.bytes_per_token * model.mix.input_mean;
        let transfer_s = self.bandwidth.map(|bandwidth| prompt_bytes / bandwidth);
        // An answer of one token has no second one to wait for.
        let later = model.mix.output_mean - 1.0;
        Transfer {
            prompt_bytes,
            required_bytes_per_s: rate * prompt_bytes,
            transfer_s,
            tpot_s: transfer_s.filter(|_| 0.0 < later).map(|s| s / later.max(1.0)),
        }
    }
}

/// Pools of prefill and decode replicas by closed forms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pools {
    /// Seconds that a mean prompt takes of a prefill replica, one prompt after another.
    pub prefill_s: f64,
    /// Prompts per second of one prefill replica that is always busy.
    pub prefill_rate_per_s: f64,
    /// Requests per second of one decode replica within its seats, its KV cache and the limit on
    /// TPOT.
    pub decode_rate_per_s: f64,
    /// Decode replicas that one prefill replica keeps busy: the balance point.
    pub decode_per_prefill: f64,
    /// Prefill replicas for the limit on TTFT by an M/M/c queue of prompts; none if none are
    /// enough.
    pub prefill_replicas: Option<u64>,
    /// Decode replicas for the rate.
    pub decode_replicas: Option<u64>,
    /// The KV cache between them; none if its bytes are not known, and then it is left out.
    pub transfer: Option<Transfer>,
}

/// Pools for a load; none if a decode replica bears nothing.
pub(crate) fn pools(
    model: &Model<'_>,
    workload: &Workload,
    rate: f64,
    goals: &[Goal],
    link: Option<Link>,
) -> Option<Pools> {
    let transfer = link.map(|link| link.transfer(model, rate));
    let sent = transfer.and_then(|t| t.tpot_s).unwrap_or(0.0);
    let kv_tokens = model.scheduler.kv_tokens();
    // Every prompt alone in its steps.
    let chunk = model.scheduler.chunk().max(1);
    let prefill = |tokens: u64| -> f64 {
        let mut done = 0;
        let mut sum = 0.0;
        while done < tokens {
            let n = chunk.min(tokens - done);
            let mut work = MeanWork::default();
            work.prefills = 1.0;
            work.prefill_tokens = n as f64;
            work.attention = n as f64 * (done as f64 + n as f64 / 2.0);
            sum += model.step_time.mean_seconds(&work);
            done += n;
        }
        sum
    };
    let n = workload.len() as f64;
    let prefill_s = workload.requests().iter().map(|r| prefill(r.input_tokens)).sum::<f64>() / n;
    // A decode replica is given prompts that cost nothing.
    let mut mix = model.mix;
    (mix.input_square_mean, mix.chunks_mean) = (0.0, f64::MIN_POSITIVE);
    let (context, output) = (model.mix.context(), mix.output_mean);
    mix.input_mean = 0.0;
    let decode = Model { mix, ..*model };
    let seats = model.scheduler.max_num_seqs() as f64;
    let tpot = strictest(goals, Latency::Tpot).map(|(limit, _)| limit);
    let decode_rate_per_s = decode.largest_rate(|p| {
        let busy = p.rate_per_s * output * p.tpot_s;
        busy <= seats
            && kv_tokens.is_none_or(|kv| busy * context / output <= kv as f64)
            && tpot.is_none_or(|limit| p.tpot_s + sent <= limit)
    });
    if !(0.0 < decode_rate_per_s && decode_rate_per_s.is_finite() && 0.0 < prefill_s) {
        return None;
    }
    let ttft = strictest(goals, Latency::Ttft);
    let keeps = |c: u64| match (Mmc::new(rate, 1.0 / prefill_s, c), ttft) {
        (Err(_), _) => false,
        (Ok(_), None) => true,
        (Ok(queue), Some((limit, goal))) => {
            prefill_s <= limit
                && queue.wq_cdf(limit - prefill_s).is_ok_and(|share| goal.target <= share)
        }
    };
    // The links of the prefill replicas have to carry what all prompts leave behind.
    let bandwidth = link.and_then(|link| link.bandwidth);
    let carries = |c: u64| match (bandwidth, &transfer) {
        (Some(bandwidth), Some(t)) => t.required_bytes_per_s <= c as f64 * bandwidth,
        _ => true,
    };
    Some(Pools {
        prefill_s,
        prefill_rate_per_s: 1.0 / prefill_s,
        decode_rate_per_s,
        decode_per_prefill: 1.0 / prefill_s / decode_rate_per_s,
        prefill_replicas: least(|c| keeps(c) && carries(c)),
        transfer,
        decode_replicas: least(|c| rate <= c as f64 * decode_rate_per_s),
    })
}
