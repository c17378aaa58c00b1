//! A step time against runs that it has not seen.

use metrics_core::RequestTimeline;
use metrics_core::timeline::Outcome;
use sched_sim::{StepTime, Ticks, Workload, WorkloadRequest};

use crate::error::{FitError, Result};
use crate::means::{Means, Server};

/// A simulated run beside the measured one.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// How many requests were replayed.
    pub requests: u64,
    /// How many of the file were left out: what they asked for is not known, or they did not
    /// complete.
    pub left_out: u64,
    /// What was measured.
    pub measured: Means,
    /// What the simulation says.
    pub predicted: Means,
    /// The difference, with signs.
    pub errors: Means,
    /// Arrival rate as a share of what the server bears, by the simulation.
    pub load: Option<f64>,
}

impl Replay {
    /// Whether the model's own error could decide between a server that keeps up and one that
    /// does not (finding W29): load · (1 ± `error`) has 1 between its ends.
    #[must_use]
    pub fn straddles_saturation(&self, error: f64) -> bool {
        self.load.is_some_and(|rho| rho * (1.0 - error) < 1.0 && 1.0 < rho * (1.0 + error))
    }
}

/// Replays measured requests at their arrivals on a simulated server.
///
/// # Errors
///
/// [`FitError::NoPoints`] if no request has arrival, both token counts and latencies;
/// [`FitError::Simulation`] if the workload cannot be simulated.
pub fn replay(
    timelines: &[RequestTimeline],
    server: &dyn Server,
    step_time: &dyn StepTime,
) -> Result<Replay> {
    let mut known: Vec<(f64, &RequestTimeline)> = timelines
        .iter()
        .filter(|t| t.outcome() == Outcome::Completed && t.metrics().is_some())
        .filter(|t| t.input_tokens().is_some_and(|n| 1 <= n))
        .filter_map(|t| Some((t.arrival_s()?, t)))
        .collect();
    let none = || FitError::NoPoints {
        regime: "request with arrival, token counts and latencies",
        remedy: "a replay needs them all".to_owned(),
    };
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let start = known.first().ok_or_else(none)?.0;
    let mut requests = Vec::with_capacity(known.len());
    for (i, (arrival, t)) in known.iter().enumerate() {
        let at = Ticks::from_seconds(arrival - start)?;
        let (input, output) =
            (t.input_tokens().unwrap_or_default(), t.output_tokens().unwrap_or_default());
        requests.push(WorkloadRequest::new(i.to_string(), at, input, output));
    }
    let workload = Workload::new(requests)?;
    let measured: Vec<RequestTimeline> = known.iter().map(|(_, t)| (*t).clone()).collect();
    let measured = Means::of(&measured).ok_or_else(none)?;
    let predicted = server.means(&workload, step_time)?;
    Ok(Replay {
        requests: known.len() as u64,
        left_out: (timelines.len() - known.len()) as u64,
        measured,
        predicted,
        errors: predicted.errors(&measured),
        load: server.load(&workload, step_time)?,
    })
}
