//! Overheads that kernels do not show, fitted end to end.
//!
//! Kernel times leave out what scheduler, network and client add. Given runs of one engine at
//! several rates, with the mean TTFT, TPOT and E2E of each, [`calibrate`] finds four overheads by
//! simulating: a constant per step, one per request that enters a step with prefill, one per
//! request in a step (which grows with the load), and one that the client adds to TTFT and E2E.
//! The squares of the relative errors of all three figures over all runs are least; no overhead is
//! below zero.
//!
//! Each run is then predicted from the others alone ([`Calibration::held_out`]): errors of the fit
//! itself say nothing about a run that was not seen.
//!
//! Near saturation a few per cent of step time become tens of per cent of latency, so
//! [`Calibration::predict`] gives a band there.

use sched_sim::{
    MeanWork, ServerOverheads, StepTime, StepWork, StretchTime, Ticks, WithOverheads, Workload,
};

use crate::error::{FitError, Result};
use crate::fit::solve::Problem;
use crate::means::{Means, Server};

/// One measured run.
#[derive(Clone, Debug)]
pub struct CalibrationRun {
    /// What it is called.
    pub name: String,
    /// What arrived; several where it is random, and their means are averaged.
    pub workloads: Vec<Workload>,
    /// What was measured.
    pub measured: Means,
}

/// What is added to a step time and to latencies, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overheads {
    /// Of every step.
    pub per_step_s: f64,
    /// Per prompt chunk in a step.
    pub per_prefill_s: f64,
    /// Per request in a step: grows with the load.
    pub per_request_s: f64,
    /// Added to TTFT and E2E outside of the server.
    pub client_s: f64,
}

/// How many overheads there are.
const KINDS: usize = 4;

impl Overheads {
    /// Their names with the overheads, for a report.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, f64); KINDS] {
        [
            ("per step", self.per_step_s),
            ("per prompt chunk", self.per_prefill_s),
            ("per request in a step", self.per_request_s),
            ("client", self.client_s),
        ]
    }

    fn from_values([per_step_s, per_prefill_s, per_request_s, client_s]: [f64; KINDS]) -> Self {
        Self { per_step_s, per_prefill_s, per_request_s, client_s }
    }
}

impl Overheads {
    /// Those of the server, which make its steps longer, as whole attoseconds.
    ///
    /// # Errors
    ///
    /// [`FitError::Simulation`] for an overhead below zero, not finite, or beyond any run.
    pub fn of_server(&self) -> Result<ServerOverheads> {
        Ok(ServerOverheads {
            step: Ticks::from_seconds(self.per_step_s)?,
            prompt_chunk: Ticks::from_seconds(self.per_prefill_s)?,
            request: Ticks::from_seconds(self.per_request_s)?,
        })
    }
}

/// A step time with every step longer by a factor.
struct Scaled<T> {
    inner: T,
    /// In parts of a million.
    scale: u128,
}

const MILLION: u128 = 1_000_000;

impl<T: StepTime> Scaled<T> {
    /// The factor is rounded to a millionth.
    fn new(inner: T, factor: f64) -> Result<Self> {
        if !(0.01 <= factor && factor <= 100.0) {
            let (min, max) = (0.01, 100.0);
            return Err(FitError::Range { input: "factor", min, max, value: factor });
        }
        // Between 10^4 and 10^8, as checked.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let scale = (factor * 1e6).round() as u128;
        Ok(Self { inner, scale })
    }
}

impl<T: StepTime> StepTime for Scaled<T> {
    fn step(&self, work: &StepWork) -> Ticks {
        Ticks::from_attoseconds(self.inner.step(work).attoseconds() / MILLION * self.scale)
    }

    fn stretch(&self, work: &StepWork) -> StretchTime {
        // Rounding each step makes a scaled stretch not quite affine.
        StretchTime::one(self.step(work))
    }

    fn mean_seconds(&self, mean: &MeanWork) -> f64 {
        self.inner.mean_seconds(mean) * (self.scale as f64 / 1e6)
    }
}

/// Overheads found from runs, with how well they do on runs that were left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The overheads.
    pub overheads: Overheads,
    /// Errors of the fit itself on each run, in order: these are no predictions.
    pub fitted: Vec<(String, Means)>,
    /// Errors on each run as predicted from the others; empty with fewer than two runs.
    pub held_out: Vec<(String, Means)>,
    /// Runs so near saturation that they were predicted but not fitted.
    pub near_saturation: Vec<String>,
    /// Which overheads the runs cannot tell apart, in words.
    pub confused: Vec<String>,
}

/// A prediction, with a band where a number would say too much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// With the step time as it is.
    pub means: Means,
    /// With every step shorter and longer by the error of the model; where the load is above
    /// [`BAND_ABOVE`], or where that is not known.
    pub band: Option<(Means, Means)>,
    /// The arrival rate as a share of what the server bears.
    pub load: Option<f64>,
}

/// The share of what the server bears above which a prediction is a band.
pub const BAND_ABOVE: f64 = 0.9;

/// The least half width of a band, as a share of the step time.
const LEAST_BAND: f64 = 0.02;

/// Means of a run under overheads.
fn simulate<T: StepTime>(
    run: &CalibrationRun,
    server: &dyn Server,
    step_time: &T,
    overheads: &Overheads,
    factor: f64,
) -> Result<Means> {
    let mut sums = [0.0; 3];
    for workload in &run.workloads {
        let with = WithOverheads::new(step_time, overheads.of_server()?)?;
        let means = if factor == 1.0 {
            server.means(workload, &with)?
        } else {
            server.means(workload, &Scaled::new(with, factor)?)?
        };
        for (sum, x) in sums.iter_mut().zip(means.values()) {
            *sum += x;
        }
    }
    let n = run.workloads.len() as f64;
    let [ttft, tpot, e2e] = sums.map(|s| s / n);
    Ok(Means::from_values([ttft + overheads.client_s, tpot, e2e + overheads.client_s]))
}

/// The largest load of a run's workloads.
fn load<T: StepTime>(
    run: &CalibrationRun,
    server: &dyn Server,
    step_time: &T,
    overheads: &Overheads,
) -> Result<Option<f64>> {
    let with = WithOverheads::new(step_time, overheads.of_server()?)?;
    let mut largest: Option<f64> = None;
    for workload in &run.workloads {
        if let Some(load) = server.load(workload, &with)? {
            largest = Some(largest.map_or(load, |l| l.max(load)));
        }
    }
    Ok(largest)
}

/// Relative errors of all three figures over the runs.
fn residuals<T: StepTime>(
    runs: &[&CalibrationRun],
    server: &dyn Server,
    step_time: &T,
    overheads: &Overheads,
) -> Result<Vec<f64>> {
    let mut all = Vec::with_capacity(3 * runs.len());
    for run in runs {
        let means = simulate(run, server, step_time, overheads, 1.0)?;
        all.extend(means.errors(&run.measured).values());
    }
    Ok(all)
}

/// Most steps of Gauss and Newton.
const ITERATIONS: usize = 30;

/// A combination of overheads that changes the figures this much less than the strongest is not
/// told by the runs: differences of simulations are rough.
const WEAK: f64 = 0.1;

/// The overheads with the least squared relative errors over the runs.
///
/// Gauss–Newton with one-sided differences; the linear problem of each step is solved with
/// overheads of at least zero.
fn fit<T: StepTime>(
    runs: &[&CalibrationRun],
    server: &dyn Server,
    step_time: &T,
) -> Result<(Overheads, Vec<String>)> {
    let squares = |r: &[f64]| r.iter().map(|x| x * x).sum::<f64>();
    let least = runs.iter().map(|r| r.measured.tpot_s).fold(f64::INFINITY, f64::min);
    // Small against what is measured, and far above what the instants of arrivals inside a step
    // make of a difference; many requests share a step, so theirs is smaller.
    let deltas = [least / 20.0, least / 20.0, least / 400.0, least / 20.0];
    let mut x = [0.0; KINDS];
    let mut at = residuals(runs, server, step_time, &Overheads::from_values(x))?;
    let mut confused = Vec::new();
    for _ in 0..ITERATIONS {
        let mut rows: Vec<Vec<f64>> = vec![vec![0.0; KINDS + 1]; at.len()];
        for (j, delta) in deltas.into_iter().enumerate() {
            let mut moved = x;
            moved[j] += delta;
            let there = residuals(runs, server, step_time, &Overheads::from_values(moved))?;
            for ((row, there), here) in rows.iter_mut().zip(&there).zip(&at) {
                row[j] = (there - here) / delta;
            }
        }
        for (row, here) in rows.iter_mut().zip(&at) {
            row[KINDS] = (0..KINDS).map(|j| row[j] * x[j]).sum::<f64>() - here;
        }
        let problem = Problem::new(KINDS, rows.iter().map(Vec::as_slice));
        confused = confusions(&problem);
        let target = problem.solve().coefficients;
        // The simulation is not linear: the step is halved until it helps.
        let mut share = 1.0;
        let mut better = None;
        for _ in 0..6 {
            let mut tried = x;
            for (t, goal) in tried.iter_mut().zip(&target) {
                *t += share * (goal - *t);
            }
            let there = residuals(runs, server, step_time, &Overheads::from_values(tried))?;
            if squares(&there) < squares(&at) * (1.0 - 1e-9) {
                better = Some((tried, there));
                break;
            }
            share /= 2.0;
        }
        match better {
            Some((tried, there)) => {
                let gain = squares(&at) - squares(&there);
                (x, at) = (tried, there);
                if gain < 1e-13 {
                    break;
                }
            }
            None => break,
        }
    }
    Ok((Overheads::from_values(x), confused))
}

/// Overheads that the runs cannot tell apart.
fn confusions(problem: &Problem) -> Vec<String> {
    let names = Overheads::default().named().map(|(name, _)| name);
    let singular = problem.singular();
    let largest = singular.first().map_or(0.0, |s| s.0);
    let weak = singular.iter().filter(|(value, _)| value / largest < WEAK);
    weak.map(|(_, direction)| {
        let parts: Vec<&str> = names
            .iter()
            .zip(direction)
            .filter(|(_, x)| 0.2 < x.abs())
            .map(|(name, _)| *name)
            .collect();
        format!(
            "the runs cannot tell apart: {}; their sum holds, each alone does not",
            parts.join(", ")
        )
    })
    .collect()
}

/// Fits overheads to measured runs, and predicts each run from the others.
///
/// Runs above [`BAND_ABOVE`] of what the server bears with the overheads of the others are not
/// fitted as long as two others are left: there, a small error of the step time is a large one of
/// the latency, and would bend everything else.
///
/// # Errors
///
/// [`FitError::NoPoints`] without runs or for a run without workloads; [`FitError::Range`] for a
/// measured figure that is not above zero; [`FitError::Simulation`].
pub fn calibrate<T: StepTime>(
    runs: &[CalibrationRun],
    server: &dyn Server,
    step_time: &T,
) -> Result<Calibration> {
    if runs.is_empty() || runs.iter().any(|r| r.workloads.is_empty()) {
        return Err(FitError::NoPoints {
            regime: "measured run with a workload",
            remedy: "give at least one, and better several rates".to_owned(),
        });
    }
    for (input, value) in runs.iter().flat_map(|r| {
        [
            ("measured TTFT", r.measured.ttft_s),
            ("measured TPOT", r.measured.tpot_s),
            ("measured E2E", r.measured.e2e_s),
        ]
    }) {
        if !(1e-9 <= value && value <= 1e6) {
            return Err(FitError::Range { input, min: 1e-9, max: 1e6, value });
        }
    }
    let mut calm: Vec<&CalibrationRun> = Vec::new();
    let mut near: Vec<&CalibrationRun> = Vec::new();
    for run in runs {
        let load = load(run, server, step_time, &Overheads::default())?;
        if load.is_some_and(|l| BAND_ABOVE < l) { near.push(run) } else { calm.push(run) }
    }
    if calm.len() < 2 {
        calm = runs.iter().collect();
        near.clear();
    }
    let (overheads, confused) = fit(&calm, server, step_time)?;
    let error = |run: &CalibrationRun, overheads: &Overheads| -> Result<(String, Means)> {
        let means = simulate(run, server, step_time, overheads, 1.0)?;
        Ok((run.name.clone(), means.errors(&run.measured)))
    };
    let mut held_out = Vec::new();
    if 2 <= calm.len() {
        for (i, run) in calm.iter().enumerate() {
            let others: Vec<&CalibrationRun> =
                calm.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, r)| *r).collect();
            held_out.push(error(run, &fit(&others, server, step_time)?.0)?);
        }
    }
    for run in &near {
        held_out.push(error(run, &overheads)?);
    }
    Ok(Calibration {
        overheads,
        fitted: calm.iter().map(|r| error(r, &overheads)).collect::<Result<_>>()?,
        held_out,
        near_saturation: near.iter().map(|r| r.name.clone()).collect(),
        confused,
    })
}

impl Calibration {
    /// By how much TPOT was off on runs that were left out, the mean of the sizes: the error of
    /// the step time as far as it is known, at least 2 %.
    #[must_use]
    pub fn step_error(&self) -> f64 {
        let far = if self.held_out.is_empty() { &self.fitted } else { &self.held_out };
        let sum: f64 = far.iter().map(|(_, e)| e.tpot_s.abs()).sum();
        (sum / far.len().max(1) as f64).max(LEAST_BAND)
    }

    /// Predicts a workload; near saturation with a band.
    ///
    /// # Errors
    ///
    /// [`FitError::Simulation`].
    pub fn predict<T: StepTime>(
        &self,
        workload: &Workload,
        server: &dyn Server,
        step_time: &T,
    ) -> Result<Prediction> {
        let run = CalibrationRun {
            name: String::new(),
            workloads: vec![workload.clone()],
            measured: Means::from_values([1.0; 3]),
        };
        let of = |factor| simulate(&run, server, step_time, &self.overheads, factor);
        let load = load(&run, server, step_time, &self.overheads)?;
        let error = self.step_error();
        let band = if load.is_none_or(|l| BAND_ABOVE < l) {
            Some((of(1.0 - error.min(0.9))?, of(1.0 + error)?))
        } else {
            None
        };
        Ok(Prediction { means: of(1.0)?, band, load })
    }
}

#[cfg(test)]
mod tests {
    use sched_sim::workload::{LengthLaw, Lengths, WorkloadSpec, chat};
    use sched_sim::{DecodeFirst, TwoRegime};

    use super::*;

    fn workload(rate_per_s: f64, seed: u64) -> Workload {
        let law = |median: f64| LengthLaw::LogNormal { median, sigma: 0.5, min: 1, max: 2000 };
        WorkloadSpec {
            lengths: Lengths::Independent { input: law(300.0), output: law(80.0) },
            ..chat(300, rate_per_s, seed)
        }
        .generate()
        .unwrap()
    }

    fn kernels() -> TwoRegime {
        "decode:base=6ms,decode=20us/request,context=40ns/token; \
         mixed:base=7ms,prefill=30us/token,decode=30us/request,context=60ns/token"
            .parse()
            .unwrap()
    }

    fn truth() -> Overheads {
        Overheads {
            per_step_s: 0.0015,
            per_prefill_s: 0.0008,
            per_request_s: 0.000_02,
            client_s: 0.004,
        }
    }

    fn run(name: &str, rate: f64, seed: u64) -> CalibrationRun {
        let workloads = vec![workload(rate, seed)];
        let mut run = CalibrationRun {
            name: name.to_owned(),
            workloads,
            measured: Means::from_values([1.0; 3]),
        };
        let server = DecodeFirst::new(64, 512).unwrap();
        run.measured = simulate(&run, &server, &kernels(), &truth(), 1.0).unwrap();
        run
    }

    /// The "measured" figures come from a simulation with known overheads, which must be found
    /// again; the requests are the same, so there is no noise.
    #[test]
    fn known_overheads_are_found_again() {
        let server = DecodeFirst::new(64, 512).unwrap();
        let runs = [run("1/s", 1.0, 1), run("4/s", 4.0, 2), run("9/s", 9.0, 3)];
        let found = calibrate(&runs, &server, &kernels()).unwrap();
        let off = |a: f64, b: f64| (a / b - 1.0).abs();
        assert!(off(found.overheads.per_step_s, 0.0015) < 0.02, "{found:?}");
        // What a prompt and what the client adds to TTFT can hardly be told apart, and it says so.
        let o = found.overheads;
        assert!(off(o.client_s + o.per_prefill_s, 0.0048) < 0.1, "{found:?}");
        assert!(
            found.confused.iter().any(|c| c.contains("per prompt chunk") && c.contains("client")),
            "{found:?}"
        );
        for (all, most) in [(&found.fitted, 0.01), (&found.held_out, 0.05)] {
            for (name, e) in all {
                assert!(e.values().iter().all(|x| x.abs() < most), "{name} {e:?}");
            }
        }
    }

    /// A run that was not used is predicted; at a rate near what the server bears, with a band
    /// that has the measured figure inside.
    #[test]
    fn a_band_near_saturation_and_a_number_elsewhere() {
        let server = DecodeFirst::new(64, 512).unwrap();
        let runs = [run("1/s", 1.0, 1), run("4/s", 4.0, 2), run("9/s", 9.0, 3)];
        let found = calibrate(&runs, &server, &kernels()).unwrap();
        let calm = run("6/s", 6.0, 7);
        let said = found.predict(&calm.workloads[0], &server, &kernels()).unwrap();
        assert_eq!(said.band, None, "{said:?}");
        assert!(said.means.errors(&calm.measured).e2e_s.abs() < 0.01, "{said:?}");
        let hot = run("60/s", 60.0, 8);
        let said = found.predict(&hot.workloads[0], &server, &kernels()).unwrap();
        let (low, high) = said.band.unwrap();
        assert!(low.e2e_s < hot.measured.e2e_s && hot.measured.e2e_s < high.e2e_s, "{said:?}");
    }

    #[test]
    fn what_cannot_be_calibrated_is_refused() {
        let server = DecodeFirst::new(64, 512).unwrap();
        let said =
            |runs: &[CalibrationRun]| calibrate(runs, &server, &kernels()).unwrap_err().to_string();
        assert!(said(&[]).starts_with("no point is a measured run"));
        let mut zero = run("1/s", 1.0, 1);
        zero.measured.tpot_s = 0.0;
        assert_eq!(said(&[zero]), "measured TPOT must be finite and from 1e-9 to 1000000, got 0");
    }
}
