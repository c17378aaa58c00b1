//! A step time against runs that it has not seen.

use metrics_core::RequestTimeline;
use metrics_core::timeline::Outcome;
use metrics_core::validity::Finding;
use metrics_core::validity::model::{crosses_saturation, errors_cancel};
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
    /// What makes the comparison worth less than its numbers: errors that cancel (W30), and a load
    /// that `error`, the relative error of the step time, moves across saturation (W29).
    #[must_use]
    pub fn findings(&self, error: f64) -> Vec<Finding> {
        let e = &self.errors;
        let saturation = self.load.and_then(|rho| crosses_saturation(rho, error));
        saturation.into_iter().chain(errors_cancel(e.e2e_s, e.ttft_s, e.tpot_s)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(errors: [f64; 3], load: Option<f64>) -> Replay {
        let one = Means::from_values([1.0; 3]);
        let errors = Means::from_values(errors);
        Replay { requests: 1, left_out: 0, measured: one, predicted: one, errors, load }
    }

    /// TTFT 40 % short and TPOT 35 % long make an E2E that is 5 % off; a load of 0.97 with a step
    /// time that is 5 % off is anything from 0.92 to 1.02.
    #[test]
    fn findings_of_a_replay() {
        let ids = |r: Replay, error: f64| -> Vec<&str> {
            r.findings(error).iter().map(|f| f.check.id).collect()
        };
        assert_eq!(ids(replay([-0.4, 0.35, 0.05], Some(0.97)), 0.05), ["W29", "W30"]);
        assert!(ids(replay([-0.4, -0.35, -0.36], Some(0.97)), 0.02).is_empty());
        assert!(ids(replay([0.01; 3], None), 0.5).is_empty());
    }
}
