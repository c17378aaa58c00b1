//! Targets on percentiles and shares over several seeds.

use metrics_core::format;
use metrics_core::interval::{Confidence, Interval, mean_independent};
use metrics_core::report::Answer;
use metrics_core::slo::Slo;
use metrics_core::summary::Summary;
use serde_json::{Value, json};

use super::Simulated;
use crate::report::text as report_text;

/// A target, and what the runs of a setting say of it.
pub(super) struct OverSeeds {
    slo: Slo,
    /// What each run observed, where it could.
    observed: Vec<Option<f64>>,
    /// The interval around the mean, if every run observed something.
    pub(super) interval: Option<Interval>,
    /// Whether it holds in the mean.
    answer: Answer,
}

/// The targets of a run; none where it was cut.
fn of_run(run: &Simulated) -> &[metrics_core::report::Target] {
    let goodput = run.report.as_ref().and_then(|r| r.goodput.as_ref());
    goodput.map(|g| g.targets.as_slice()).unwrap_or_default()
}

/// Whether a value meets a target.
fn is_met(slo: &Slo, x: f64) -> bool {
    match slo {
        Slo::Attainment { target, .. } => *target <= x,
        Slo::PerRequest(limit) | Slo::Percentile { limit, .. } => limit.is_met_by(x),
    }
}

impl OverSeeds {
    /// Of each target of a setting.
    pub(super) fn all(runs: &[Simulated], confidence: Confidence) -> Vec<Self> {
        let Some(first) = runs.iter().map(of_run).find(|targets| !targets.is_empty()) else {
            return Vec::new();
        };
        let of = |slo: &Slo| {
            let observed: Vec<Option<f64>> = runs
                .iter()
                .map(|run| of_run(run).iter().find(|t| t.slo == *slo)?.observed)
                .collect();
            let all: Option<Vec<f64>> = observed.iter().copied().collect();
            let interval = all
                .and_then(|all| Summary::new(all).ok())
                .and_then(|summary| mean_independent(&summary, confidence).ok());
            let answer = answer(slo, &observed, interval.as_ref());
            Self { slo: *slo, observed, interval, answer }
        };
        first.iter().map(|target| of(&target.slo)).collect()
    }

    /// Its name as a figure of a file.
    pub(super) fn figure(&self) -> String {
        format!("target {}", self.slo)
    }

    /// How many runs meet it, of how many that observed something.
    pub(super) fn met(&self) -> (usize, usize) {
        let observed = || self.observed.iter().flatten();
        (observed().filter(|&&x| is_met(&self.slo, x)).count(), observed().count())
    }

    /// Target, mean with half width, answer, and how many runs meet it.
    pub(super) fn cells(&self) -> Vec<String> {
        let shown = |x: f64| match self.slo {
            Slo::Attainment { .. } => format::percent(x),
            _ => report_text::time(x),
        };
        let mean = self.interval.as_ref().and_then(super::seeds::middle);
        let mean = mean.map(|(mean, half)| format!("{} ± {}", shown(mean), shown(half)));
        let (met, of) = self.met();
        vec![
            self.slo.to_string(),
            mean.unwrap_or_else(|| "-".to_owned()),
            self.answer.name().to_owned(),
            format!("{met} of {of}"),
        ]
    }

    /// The same as data.
    pub(super) fn json(&self) -> Value {
        let mean = self.interval.as_ref().and_then(super::seeds::middle).map(|(mean, _)| mean);
        let (met, observed) = self.met();
        json!({
            "target": self.slo.to_string(),
            "mean": mean,
            "low": self.interval.and_then(|i| i.low),
            "high": self.interval.and_then(|i| i.high),
            "n": observed,
            "answer": self.answer.name(),
            "met_by_seeds": met,
        })
    }
}

/// Whether a target holds in the mean over seeds.
fn answer(slo: &Slo, observed: &[Option<f64>], interval: Option<&Interval>) -> Answer {
    let (low, high) = interval.map_or((None, None), |i| (i.low, i.high));
    if let Slo::Attainment { target, .. } = slo {
        let one_missed = observed.iter().flatten().any(|x| *x < 1.0);
        // Runs without a miss have no spread, and prove nothing of the requests of other seeds.
        let interval = interval.filter(|_| *target < 1.0);
        return Answer::of_share(*target, one_missed, interval);
    }
    match (low, high) {
        (_, Some(high)) if is_met(slo, high) => Answer::Holds,
        (Some(low), _) if !is_met(slo, low) => Answer::Missed,
        _ => Answer::Indeterminate,
    }
}

/// What one run observed of each of its targets.
pub(super) fn of_seed(run: &Simulated) -> Vec<Value> {
    let targets = of_run(run).iter();
    targets
        .map(|t| {
            json!({
                "target": t.slo.to_string(),
                "observed": t.observed,
                "met": t.observed.map(|x| is_met(&t.slo, x)),
                "answer": t.answer.name(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use metrics_core::interval::difference_paired;

    use super::*;

    /// The interval around the mean decides, not the mean: of 0.9 s, 1.0 s and 1.1 s it is 1 ± 0.25 s
    /// (4.303 · 0.1 / √3).
    #[test]
    fn a_target_is_judged_by_its_interval() {
        let judged = |slo: &str, seeds: [f64; 3]| {
            let slo: Slo = slo.parse().unwrap();
            let none = [0.0; 3];
            let interval = difference_paired(&none, &seeds, Confidence::P95).unwrap();
            answer(&slo, &seeds.map(Some), Some(&interval))
        };
        let seconds = [0.9, 1.0, 1.1];
        assert_eq!(judged("p99(ttft)<1.3s", seconds), Answer::Holds);
        assert_eq!(judged("p99(ttft)<1.2s", seconds), Answer::Indeterminate);
        assert_eq!(judged("p99(ttft)<0.8s", seconds), Answer::Indeterminate);
        assert_eq!(judged("p99(ttft)<0.7s", seconds), Answer::Missed);
        let shares = [0.89, 0.9, 0.91];
        assert_eq!(judged("ttft<1s @ 87%", shares), Answer::Holds);
        assert_eq!(judged("ttft<1s @ 90%", shares), Answer::Indeterminate);
        assert_eq!(judged("ttft<1s @ 93%", shares), Answer::Missed);
        // Nothing finite proves that all requests meet a limit, and one miss disproves it.
        assert_eq!(judged("ttft<1s @ 100%", [1.0; 3]), Answer::Indeterminate);
        assert_eq!(judged("ttft<1s @ 100%", [1.0, 1.0, 0.999]), Answer::Missed);
    }
}
