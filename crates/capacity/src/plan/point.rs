//! How one replica stands at a rate: a mean step whose length and work make each other.
//!
//! A step of length t takes in what arrived during it, λ·t prompts, and carries a decode for every
//! token that is made meanwhile, λ·O·t. So t is the solution of t = E f(work(λ·t)), where f is the
//! step time. The smallest solution is the steady state; where there is none, the replica cannot
//! keep up. A request also sees itself: its own decode or its own chunk is in each of its steps.
//!
//! The mean is over the number of prompt chunks in a step, which is taken to be Poisson: most steps
//! carry none and some carry two, and a step time with a floor or with another regime for prefill
//! is not that of the mean number, which is less than one. Everything else is at its mean: the
//! model is exact in the limit of many requests in a batch, and says nothing of the wait for a slot,
//! which the queueing method adds.

use sched_sim::{MeanWork, StepTime};
use serde::{Deserialize, Serialize};

use super::mix::Mix;
use crate::replica::Scheduler;

/// A replica in its steady state at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatingPoint {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Length of a step in which a request decodes.
    pub tpot_s: f64,
    /// Length of a step that computes a chunk of a request's prompt.
    pub chunk_step_s: f64,
    /// Time from admission to the first token.
    pub prefill_s: f64,
    /// Time from admission to the last token.
    pub service_s: f64,
    /// Requests in the batch, by Little's law.
    pub in_flight: f64,
    /// Tokens in the KV cache, by Little's law.
    pub kv_tokens: f64,
    /// Tokens of a step, prompt and decode.
    pub step_tokens: f64,
}

/// A replica without its load.
pub(crate) struct Model<'a> {
    pub mix: Mix,
    pub scheduler: &'a Scheduler,
    pub step_time: &'a dyn StepTime,
}

/// A step that takes longer than this belongs to no server.
const LONGEST_STEP_S: f64 = 1000.0;
/// With more prompt chunks in a step the mean number stands for all of them.
const MANY_CHUNKS: f64 = 100.0;
/// A number of chunks less likely than this is left out.
const NEGLIGIBLE: f64 = 1e-12;
/// How finely the smallest solution is bracketed before it is halved.
const GROWTH: f64 = 1.1;
const HALVINGS: usize = 80;

impl Model<'_> {
    /// The mean length of a step that has so many arrivals in it on average, beside a request's own
    /// work.
    fn mean_step(&self, arrivals: f64, own: &MeanWork) -> f64 {
        let m = &self.mix;
        let chunks = arrivals * m.chunks_mean;
        let with = |k: f64| {
            let mut work = *own;
            work.decodes += arrivals * m.output_mean;
            work.decode_context += arrivals * m.context();
            work.prefills += k;
            work.prefill_tokens += k * m.input_mean / m.chunks_mean;
            work.attention += k * m.input_square_mean / (2.0 * m.chunks_mean);
            self.step_time.mean_seconds(&work)
        };
        // So many differ little from their mean, and e^-chunks has no value before long.
        if chunks.is_nan() || MANY_CHUNKS < chunks {
            return with(chunks);
        }
        let (mut k, mut p) = (0.0, (-chunks).exp());
        let (mut sum, mut total) = (0.0, 0.0);
        while k <= chunks || NEGLIGIBLE < p {
            sum += p * with(k);
            total += p;
            k += 1.0;
            p *= chunks / k;
        }
        sum / total
    }

    /// The smallest t with t = E f(work(rate, t) + own); none if there is no such step.
    fn step(&self, rate: f64, own: &MeanWork) -> Option<f64> {
        let after = |t: f64| self.mean_step(rate * t, own);
        let mut low = 0.0;
        let mut high = after(0.0).max(1e-12);
        while high < after(high) {
            low = high;
            high *= GROWTH;
            if LONGEST_STEP_S < high {
                return None;
            }
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * low + 0.5 * high;
            if middle < after(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(high)
    }

    /// The steady state at a rate; none if there is none.
    pub fn at(&self, rate: f64) -> Option<OperatingPoint> {
        let m = &self.mix;
        // Steps keep up with everything that arrives, whoever sees them.
        self.step(rate, &MeanWork::default())?;
        let seats = self.scheduler.max_num_seqs() as f64;
        // The other requests of a batch are spread over its other seats.
        let others = rate * (seats - 1.0) / seats;
        let mut decode = MeanWork::default();
        decode.decodes = 1.0;
        decode.decode_context = m.context() / m.output_mean;
        let mut chunk = MeanWork::default();
        chunk.prefills = 1.0;
        chunk.prefill_tokens = m.input_mean / m.chunks_mean;
        chunk.attention = m.input_square_mean / (2.0 * m.chunks_mean);
        let tpot_s = self.step(others, &decode)?;
        let chunk_step_s = self.step(others, &chunk)?;
        // Whether the last chunk or the step after it gives the first token.
        let first = if self.scheduler.prefill_emits_first_token() { 0.0 } else { 1.0 };
        let prefill_s = m.chunks_mean * chunk_step_s + first * tpot_s;
        let service_s = prefill_s + (m.output_mean - 1.0).max(0.0) * tpot_s;
        let decoding = service_s - m.chunks_mean * chunk_step_s;
        let held = m.chunks_mean * chunk_step_s * m.input_mean / 2.0
            + decoding * m.context() / m.output_mean;
        Some(OperatingPoint {
            rate_per_s: rate,
            tpot_s,
            chunk_step_s,
            prefill_s,
            service_s,
            in_flight: rate * service_s,
            kv_tokens: rate * held,
            step_tokens: rate * tpot_s * (m.input_mean + m.output_mean),
        })
    }

    /// The largest rate at which the steady state exists and `holds`; 0 if it never does.
    pub fn largest_rate(&self, holds: impl Fn(&OperatingPoint) -> bool) -> f64 {
        let good = |rate: f64| self.at(rate).is_some_and(|p| holds(&p));
        if !good(0.0) {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, 1e-6);
        while good(high) {
            low = high;
            high *= 2.0;
            // Steps that cost nothing bear any rate.
            if 1e12 < high {
                return f64::INFINITY;
            }
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * low + 0.5 * high;
            if good(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}
