//! Mean TTFT, TPOT and E2E of a run, measured or simulated, and how far two are apart.

use metrics_core::RequestTimeline;
use sched_sim::vllm_v1::{VllmConfig, VllmV1Run};
use sched_sim::{DecodeFirst, OfferedLoad, Simulation, StepTime, Workload};

use crate::error::{FitError, Result};

/// Mean latencies of one run in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Means {
    /// Time to first token.
    pub ttft_s: f64,
    /// Time per output token; answers of one token are left out.
    pub tpot_s: f64,
    /// End to end.
    pub e2e_s: f64,
}

impl Means {
    /// The means of the requests whose latencies are known; none where there are none, or where
    /// every answer has one token.
    #[must_use]
    pub fn of(timelines: &[RequestTimeline]) -> Option<Self> {
        let known: Vec<_> = timelines.iter().filter_map(|t| Some((t.metrics()?, t))).collect();
        let mean = |values: &[f64]| -> Option<f64> {
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let of = |f: fn(&metrics_core::RequestMetrics) -> f64| -> Vec<f64> {
            known.iter().map(|(m, _)| f(m)).collect()
        };
        let tpot: Vec<f64> = known
            .iter()
            .filter(|(_, t)| t.output_tokens().is_some_and(|n| 2 <= n))
            .map(|(m, _)| m.tpot.get())
            .collect();
        Some(Self {
            ttft_s: mean(&of(|m| m.ttft.get()))?,
            tpot_s: mean(&tpot)?,
            e2e_s: mean(&of(|m| m.e2e_latency.get()))?,
        })
    }

    /// The three, in the order TTFT, TPOT, E2E.
    #[must_use]
    pub const fn values(&self) -> [f64; 3] {
        [self.ttft_s, self.tpot_s, self.e2e_s]
    }

    /// From the three in that order.
    #[must_use]
    pub const fn from_values([ttft_s, tpot_s, e2e_s]: [f64; 3]) -> Self {
        Self { ttft_s, tpot_s, e2e_s }
    }

    /// By how much each differs from what was measured: (self − measured) / measured, with signs.
    #[must_use]
    pub fn errors(&self, measured: &Self) -> Self {
        let mut errors = self.values();
        for (e, m) in errors.iter_mut().zip(measured.values()) {
            *e = *e / m - 1.0;
        }
        Self::from_values(errors)
    }
}

/// A server that can be simulated under any step time.
pub trait Server {
    /// The timelines of a workload.
    ///
    /// # Errors
    ///
    /// [`FitError`] if the simulation cannot be.
    fn run(&self, workload: &Workload, step_time: &dyn StepTime) -> Result<Vec<RequestTimeline>>;

    /// The arrival rate as a share of what the server completes while a queue is never empty, if
    /// that is known.
    ///
    /// # Errors
    ///
    /// [`FitError`] if it cannot be computed.
    fn load(&self, workload: &Workload, step_time: &dyn StepTime) -> Result<Option<f64>>;

    /// The mean latencies of a workload.
    ///
    /// # Errors
    ///
    /// [`FitError`] as [`Server::run`], or if no answer has two tokens.
    fn means(&self, workload: &Workload, step_time: &dyn StepTime) -> Result<Means> {
        let none = || FitError::NoPoints {
            regime: "completed request with two tokens or more",
            remedy: "a mean TPOT needs some".to_owned(),
        };
        Means::of(&self.run(workload, step_time)?).ok_or_else(none)
    }
}

/// Timelines that a simulation made; they are sound by construction.
fn unsound(source: &metrics_core::Error) -> FitError {
    FitError::Row { file: "simulation".to_owned(), line: 0, problem: source.to_string() }
}

/// vLLM's scheduler.
impl Server for VllmConfig {
    fn run(&self, workload: &Workload, step_time: &dyn StepTime) -> Result<Vec<RequestTimeline>> {
        let vllm = VllmV1Run::new(self.clone());
        let result = Simulation::vllm_v1(workload, vllm, step_time).run()?;
        result.timelines().map_err(|e| unsound(&e))
    }

    fn load(&self, workload: &Workload, step_time: &dyn StepTime) -> Result<Option<f64>> {
        Ok(OfferedLoad::of_vllm_v1(workload, self, step_time)?.relative())
    }
}

/// Decode first: the policy that needs no more than two limits.
impl Server for DecodeFirst {
    fn run(&self, workload: &Workload, step_time: &dyn StepTime) -> Result<Vec<RequestTimeline>> {
        let result = Simulation::new(workload, *self, step_time).run()?;
        result.timelines().map_err(|e| unsound(&e))
    }

    fn load(&self, workload: &Workload, step_time: &dyn StepTime) -> Result<Option<f64>> {
        Ok(OfferedLoad::of(workload, *self, step_time)?.relative())
    }
}
