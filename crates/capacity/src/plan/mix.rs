//! The lengths of a workload, as far as closed forms need them.

use sched_sim::Workload;
use serde::{Deserialize, Serialize};

use crate::error::{PlanError, Result};

/// Moments of the lengths of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// How many requests they are over.
    pub requests: u64,
    /// Mean tokens of a prompt.
    pub input_mean: f64,
    /// Mean tokens of an answer.
    pub output_mean: f64,
    /// Mean of a prompt's tokens squared.
    pub input_square_mean: f64,
    /// Mean of an answer's tokens squared.
    pub output_square_mean: f64,
    /// Mean of prompt times answer.
    pub product_mean: f64,
    /// Mean chunks of a prompt.
    pub chunks_mean: f64,
    /// Tokens of the longest request, prompt and answer.
    pub longest: u64,
}

impl Mix {
    /// Of the requests of a workload whose prompts are computed in chunks of up to `chunk`.
    ///
    /// # Errors
    ///
    /// [`PlanError::Input`] if there are none.
    pub fn of(workload: &Workload, chunk: u64) -> Result<Self, PlanError> {
        if workload.is_empty() {
            let problem = "holds no requests".to_owned();
            return Err(PlanError::Input { input: "workload", problem });
        }
        let (mut sums, mut longest) = ([0.0; 6], 0);
        for r in workload.requests() {
            let (i, o) = (r.input_tokens as f64, r.output_tokens as f64);
            let chunks = r.input_tokens.div_ceil(chunk.max(1)) as f64;
            for (sum, x) in sums.iter_mut().zip([i, o, i * i, o * o, i * o, chunks]) {
                *sum += x;
            }
            longest = longest.max(r.input_tokens + r.output_tokens);
        }
        let n = workload.len() as f64;
        let [
            input_mean,
            output_mean,
            input_square_mean,
            output_square_mean,
            product_mean,
            chunks_mean,
        ] = sums.map(|sum| sum / n);
        Ok(Self {
            requests: workload.len() as u64,
            input_mean,
            output_mean,
            input_square_mean,
            output_square_mean,
            product_mean,
            chunks_mean,
            longest,
        })
    }

    /// Context tokens that the decodes of a mean request read: Σ over its tokens j of prompt + j.
    #[must_use]
    pub fn context(&self) -> f64 {
        self.product_mean + (self.output_square_mean - self.output_mean) / 2.0
    }

    /// Squared coefficient of variation of the tokens of an answer.
    #[must_use]
    pub fn output_scv(&self) -> f64 {
        (self.output_square_mean / (self.output_mean * self.output_mean) - 1.0).max(0.0)
    }
}
