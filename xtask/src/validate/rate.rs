//! The largest rate under an objective, on an open-loop sweep: predicted against measured.

use super::{CaseRun, Role, Row, measured, shown};

/// Figures that rise with the rate, whose limit an operator would set.
const FIGURES: [&str; 2] = ["tpot_mean_s", "e2e_p99_s"];

/// How far the predicted rate may be off, in per cent: the goal of this repository, and no gate of
/// a case.
pub const GOAL_PCT: f64 = 10.0;

/// The largest rate at which a figure stays below a limit halfway between two measured rates.
///
/// Both the measured and the predicted rate are read from a line between the two rates, so that
/// the error is that of the prediction and not of the line.
pub fn rows(runs: &[CaseRun], rows: &[Row]) -> Vec<Row> {
    let mut found = Vec::new();
    for figure in FIGURES {
        let mut points: Vec<(f64, f64, f64, Role)> = runs
            .iter()
            .filter(|r| r.role != Role::Calibrate)
            .filter_map(|r| {
                let row = rows.iter().find(|x| x.run == r.id && x.figure == figure)?;
                Some((r.load.rate_per_s()?, measured(r, figure)?, row.predicted, r.role))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in points.windows(2) {
            let [(low, below, said_below, role_below), (high, above, said_above, role_above)] =
                pair
            else {
                continue;
            };
            let limit = f64::midpoint(*below, *above);
            let at = |a: f64, b: f64| {
                let share = (limit - a) / (b - a);
                (a < b && (-1.0..=2.0).contains(&share)).then(|| low + share * (high - low))
            };
            // A figure that does not rise, or a limit far beyond both, tells no rate.
            let (Some(was), Some(says)) = (at(*below, *above), at(*said_below, *said_above)) else {
                continue;
            };
            let predicted = [role_below, role_above].iter().all(|r| **r == Role::Predict);
            found.push(Row {
                run: format!("{}/s to {}/s", shown(*low), shown(*high)),
                figure: format!("max rate, {} < {} s", figure.trim_end_matches("_s"), shown(limit)),
                predicted: says,
                spread: None,
                measured: was,
                gate: super::Gate::None { goal_pct: predicted.then_some(GOAL_PCT) },
            });
        }
    }
    found
}
