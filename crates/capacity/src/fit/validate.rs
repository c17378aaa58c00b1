//! Measured steps against what the hardware allows, and a step time against runs that it has not
//! seen.

use metrics_core::RequestTimeline;
use metrics_core::timeline::Outcome;
use metrics_core::validity::content::against_ideal;
use metrics_core::validity::evidence::{Bound, Ideal};
use metrics_core::validity::model::{crosses_saturation, errors_cancel};
use metrics_core::validity::{Finding, Subject};
use sched_sim::{StepTime, Ticks, Workload, WorkloadRequest};

use crate::error::{FitError, Result};
use crate::fit::point::{Point, Regime};
use crate::means::{Means, Server};

/// W25: measured steps that are faster than any can be, or all many times slower.
///
/// `bound` is the least time of a step. Of each kind of step the point is judged that is nearest to
/// it: if even that is more than five times above, all are. A decode step counts as TPOT, one with
/// prefill as TTFT. Each finding ends with its point.
#[must_use]
pub fn against_bound(points: &[Point], bound: &dyn StepTime) -> Vec<Finding> {
    let kinds = [
        (Regime::Decode, Subject::Tpot),
        (Regime::Mean, Subject::Tpot),
        (Regime::Prefill, Subject::Ttft),
    ];
    let nearest = |regime: Regime| {
        let own = points.iter().filter(|p| p.regime == regime);
        own.map(|p| (p, bound.mean_seconds(&p.work())))
            .min_by(|(p, b), (q, c)| (p.time_s / b).total_cmp(&(q.time_s / c)))
    };
    kinds
        .into_iter()
        .filter_map(|(regime, subject)| {
            let (point, bound_s) = nearest(regime)?;
            let (measured_s, bound) = (point.time_s, Bound::Floor);
            let mut finding = against_ideal(&Ideal { subject, measured_s, bound_s, bound })?;
            finding.says.push_str(&format!(", in a {}: {}", regime.title(), point.name()));
            Some(finding)
        })
        .collect()
}

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

/// Measured requests as a simulation takes them.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The requests, from the first arrival on.
    pub workload: Workload,
    /// What was measured of them.
    pub means: Means,
    /// How many requests were left out: what they asked for is not known, or they did not complete.
    pub left_out: u64,
}

/// The requests of a run whose arrival, token counts and latencies are known.
///
/// # Errors
///
/// [`FitError::NoPoints`] if there is none; [`FitError::Simulation`] if they cannot be simulated.
pub fn measured(timelines: &[RequestTimeline]) -> Result<Measured> {
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
    let completed: Vec<RequestTimeline> = known.iter().map(|(_, t)| (*t).clone()).collect();
    Ok(Measured {
        workload: Workload::new(requests)?,
        means: Means::of(&completed).ok_or_else(none)?,
        left_out: (timelines.len() - known.len()) as u64,
    })
}

/// Replays measured requests at their arrivals on a simulated server.
///
/// # Errors
///
/// As [`measured`]; [`FitError::Simulation`] if the workload cannot be simulated.
pub fn replay(
    timelines: &[RequestTimeline],
    server: &dyn Server,
    step_time: &dyn StepTime,
) -> Result<Replay> {
    let Measured { workload, means, left_out } = measured(timelines)?;
    let predicted = server.means(&workload, step_time)?;
    Ok(Replay {
        requests: workload.requests().len() as u64,
        left_out,
        measured: means,
        predicted,
        errors: predicted.errors(&means),
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

    /// Decode steps of at least 5 ms and 1 µs a context token, prefill of 0.1 ms a token.
    #[test]
    fn steps_are_held_against_what_the_hardware_allows() {
        let t = |s: &str| s.parse::<Ticks>().unwrap();
        let bound = sched_sim::Affine::new(sched_sim::Coefficients {
            base: t("5ms"),
            prefill: t("0.1ms"),
            context: t("1us"),
            ..sched_sim::Coefficients::default()
        })
        .unwrap();
        let ids = |points: &[Point]| -> Vec<(&str, Vec<Subject>)> {
            let found = against_bound(points, &bound).into_iter();
            found.map(|f| (f.level.name(), f.affects)).collect()
        };
        let decode = |ms: f64| Point::decode(1.0, 1000.0, ms / 1e3).at("a.csv line 2");
        // 6 ms are the least: 5.8 are within 5 %, 5.6 are not, 29 are slow and 31 too slow.
        assert_eq!(ids(&[decode(5.8), decode(40.0)]), []);
        assert_eq!(ids(&[decode(5.6), decode(40.0)]), [("error", vec![Subject::Tpot])]);
        assert_eq!(ids(&[decode(29.0), decode(40.0)]), []);
        assert_eq!(ids(&[decode(31.0), decode(40.0)]), [("warn", vec![Subject::Tpot])]);
        // A prompt of 100 tokens takes 15 ms at least.
        let prompt = |ms: f64| Point::prefill(1.0, 100.0, ms / 1e3);
        assert_eq!(ids(&[decode(10.0), prompt(14.0)]), [("error", vec![Subject::Ttft])]);
        let said = against_bound(&[decode(5.6)], &bound).remove(0).says;
        assert!(said.ends_with("in a pure decode step: B 1, C 1000 (a.csv line 2)"), "{said}");
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
