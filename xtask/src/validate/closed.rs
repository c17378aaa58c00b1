//! Closed-loop sweeps: what N users without think time see, from the runs that may be fitted to.

use anyhow::{Context, Result, bail};
use capacity::fit::model::fit_terms;
use capacity::fit::{Form, Point, Term};

use super::{Case, CaseRun, Load, Role, Row, compare, measured};

/// TPOT and TTFT as lines in the number of users, fitted to the calibration runs; throughput by
/// the interactive law.
///
/// A line in the batch is what a decode step is; the engine of such a case does not record its
/// limits, so nothing is simulated.
pub fn run(case: &Case) -> Result<(String, Vec<Row>)> {
    let tpot = line(case, "tpot_mean_s")?;
    let ttft = line(case, "ttft_mean_s")?;
    let mut rows = Vec::new();
    for run in case.runs.iter().filter(|r| r.role != Role::Calibrate) {
        let (users, output) = closed(run)?;
        let tpot = tpot.0 + tpot.1 * users;
        let ttft = ttft.0 + ttft.1 * users;
        let e2e = ttft + tpot * (output - 1.0).max(0.0);
        // Without think time N users are N requests in flight: X = N / E2E.
        let rate = users / e2e;
        let figures = vec![
            ("ttft_mean_s".to_owned(), ttft),
            ("tpot_mean_s".to_owned(), tpot),
            ("e2e_mean_s".to_owned(), e2e),
            ("output_tokens_per_s".to_owned(), rate * output),
            ("little_n".to_owned(), queueing::little::little_l(rate, e2e)?),
        ];
        rows.extend(compare(run, &[figures]));
    }
    let method = format!(
        "closed form: TPOT {:.2} ms + {:.3} ms/user, TTFT {:.2} ms + {:.3} ms/user, fitted to the calibration runs; throughput by the interactive law",
        tpot.0 * 1e3,
        tpot.1 * 1e3,
        ttft.0 * 1e3,
        ttft.1 * 1e3,
    );
    Ok((method, rows))
}

/// Base and slope of a figure over users, by relative least squares.
fn line(case: &Case, figure: &str) -> Result<(f64, f64)> {
    let points: Result<Vec<Point>> = case
        .runs
        .iter()
        .filter(|r| r.role == Role::Calibrate)
        .map(|r| {
            let (users, _) = closed(r)?;
            let y = measured(r, figure)
                .with_context(|| format!("run {}: `{figure}` is not measured", r.id))?;
            Ok(Point::decode(users, 0.0, y).at(r.id.clone()))
        })
        .collect();
    let points = points?;
    // Nothing of the context is known, so two runs are enough for the line.
    let all: Vec<&Point> = points.iter().collect();
    let fitted = fit_terms(&all, Form::TwoRegime, &[Term::Base, Term::Decodes])?;
    let decode = fitted.decode.as_ref().context("no calibration runs")?;
    Ok((decode.coefficient(Term::Base), decode.coefficient(Term::Decodes)))
}

/// Users and mean answer of a run.
fn closed(run: &CaseRun) -> Result<(f64, f64)> {
    match run.load {
        Load::Closed { users, output_mean } => Ok((users as f64, output_mean)),
        _ => bail!("run {}: a closed-loop sweep has closed loads", run.id),
    }
}

/// Why our own fits do not predict a closed-loop sweep.
pub fn unserved(case: &Case) -> Result<String> {
    Ok(match super::steps::own(case)? {
        Err(why) => format!("{why}: the tables that presets are fitted from do not have it"),
        Ok(preset) => format!(
            "preset {} has its steps, but users who send when they are answered are not simulated",
            preset.name
        ),
    })
}
