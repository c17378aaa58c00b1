//! The largest rate under an objective, on an open-loop sweep: predicted against measured.

use super::{CaseRun, From, Gate, Role, Row, gate, measured, shown};

/// Figures that rise with the rate, whose limit an operator would set.
const FIGURES: [&str; 3] = ["tpot_mean_s", "e2e_mean_s", "e2e_p99_s"];

/// How far the predicted rate may be off, in per cent: the goal of this repository, and no gate of
/// a case. It is meant for figures that the case itself has a tolerance for, at rates to predict.
pub const GOAL_PCT: f64 = 10.0;

/// One measured rate of a sweep.
struct At {
    rate: f64,
    measured: f64,
    predicted: f64,
    /// Whether the case wants the figure predicted there, with a tolerance.
    held: bool,
}

/// The rate at which a figure reaches a limit on the line of two rates, as far as one of them again
/// beyond either.
fn reached(low: (f64, f64), high: (f64, f64), limit: f64) -> Option<f64> {
    let share = (limit - low.1) / (high.1 - low.1);
    (low.1 < high.1 && (-1.0..=2.0).contains(&share)).then_some(low.0 + share * (high.0 - low.0))
}

/// The largest rate at which a figure stays below a limit halfway between two measured rates.
///
/// Measured and predicted rate are read from lines between the rates of the sweep, so that the
/// error is that of the prediction and not of the lines.
pub fn rows(runs: &[CaseRun], rows: &[Row], from: From) -> Vec<Row> {
    let mut found = Vec::new();
    for figure in FIGURES {
        let mut points: Vec<At> = runs
            .iter()
            .filter(|r| from == From::LowerRates || r.role != Role::Calibrate)
            .filter_map(|r| {
                let row = rows.iter().find(|x| x.run == r.id && x.figure == figure)?;
                Some(At {
                    rate: r.load.rate_per_s()?,
                    measured: measured(r, figure)?,
                    predicted: row.predicted,
                    held: r.role == Role::Predict && matches!(gate(r, figure), Gate::Pct(_)),
                })
            })
            .collect();
        points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        for pair in points.windows(2) {
            let [low, high] = pair else { continue };
            let limit = f64::midpoint(low.measured, high.measured);
            let said =
                |a: &At, b: &At| reached((a.rate, a.predicted), (b.rate, b.predicted), limit);
            // The prediction may reach the limit between two other rates.
            let crossed = points.windows(2).find_map(|p| match p {
                [a, b] if a.predicted <= limit && limit < b.predicted => said(a, b),
                _ => None,
            });
            let was = reached((low.rate, low.measured), (high.rate, high.measured), limit);
            // A figure that does not rise, or a limit far beyond all rates, tells no rate.
            let (Some(was), Some(says)) = (was, crossed.or_else(|| said(low, high))) else {
                continue;
            };
            found.push(Row {
                run: format!("{} to {}/s", shown(low.rate), shown(high.rate)),
                figure: format!("max rate, {} < {} s", figure.trim_end_matches("_s"), shown(limit)),
                predicted: says,
                spread: None,
                measured: was,
                gate: Gate::None { goal_pct: (low.held && high.held).then_some(GOAL_PCT) },
            });
        }
    }
    found
}
