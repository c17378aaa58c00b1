//! Batch sweeps: a decode step fitted to the runs that may be fitted to, the others simulated.

use anyhow::{Context, Result, bail};
use capacity::fit::{Form, Point, Term, fit};
use sched_sim::{Coefficients, Extra, TwoRegime};

use super::{Case, CaseRun, Load, Role, Row, compare, config, longest, measured, simulate};

/// Fits base, per request and per context token to the median TPOT of the calibration runs, then
/// simulates the others.
pub fn run(case: &Case) -> Result<(String, Vec<Row>)> {
    // Fitted where it is asked: a batch beyond all that are predicted may be bound by something
    // else, and would only bend the line.
    let widest = |role| case.runs.iter().filter(|r| r.role == role).filter_map(batch).max();
    let largest = widest(Role::Predict).context("no run to predict")?;
    let points: Result<Vec<Point>> = case
        .runs
        .iter()
        .filter(|r| r.role == Role::Calibrate && batch(r).is_some_and(|b| b <= largest))
        .map(point)
        .collect();
    let points = points?;
    let fitted = fit(&points, Form::TwoRegime)?;
    let decode = fitted.decode.as_ref().context("no decode points")?;
    let [a, c, d] = [Term::Base, Term::Decodes, Term::Context].map(|t| decode.coefficient(t));
    let ticks = |seconds: f64| super::two_regime_ticks(seconds * 1e3);
    let coefficients = Coefficients {
        base: ticks(a),
        decode: ticks(c),
        context: ticks(d),
        ..Coefficients::default()
    };
    // Prompts of a few tokens: a prompt token costs what a decode does, for want of another datum.
    let mixed = Coefficients { prefill: ticks(c), ..coefficients };
    let step_time = TwoRegime::new(coefficients, mixed, Extra::default())?;
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for run in case.runs.iter().filter(|r| r.role != Role::Calibrate) {
        let workload = run.load.workload(1)?;
        let (config, said) = config(case, run, longest(&workload))?;
        notes = said;
        let none = metrics_core::Seconds::new(0.0)?;
        rows.extend(compare(run, &[simulate(&workload, config, &step_time, none)?]));
    }
    let errors = decode.errors.mean_absolute * 100.0;
    let method = format!(
        "decode step {:.3} ms + {:.3} us/request + {:.3} ns/context token, fitted to {} calibration runs of up to {largest} requests (MAPE {errors:.1} %), then vllm-v1 as of {}{}",
        a * 1e3,
        c * 1e6,
        d * 1e9,
        points.len(),
        case.engine.version,
        notes.iter().map(|n| format!("; {n}")).collect::<String>(),
    );
    Ok((method, rows))
}

fn batch(run: &CaseRun) -> Option<u64> {
    run.max_num_seqs
}

/// A full batch in mid-answer: TPOT is the duration of its step.
fn point(run: &CaseRun) -> Result<Point> {
    let Load::AllAtZero { lengths, .. } = &run.load else {
        bail!("run {}: a batch sweep sends all at zero", run.id);
    };
    let batch = batch(run).with_context(|| format!("run {}: no max_num_seqs", run.id))? as f64;
    let tpot = measured(run, "tpot_p50_s")
        .with_context(|| format!("run {}: `tpot_p50_s` is not measured", run.id))?;
    let (input, output) = lengths.means();
    let context = batch * (input + output / 2.0);
    Ok(Point::decode(batch, context, tpot).at(run.id.clone()))
}
