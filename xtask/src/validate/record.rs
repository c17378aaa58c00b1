//! What the dev cases gave, as a small file of the repository: the pages' table is made from it,
//! and where the cases are at hand a test compares it with a fresh run.

use std::path::Path;

use anyhow::{Context, Result};
use metrics_core::metric::Language;
use serde::{Deserialize, Serialize};

use super::{From, Gate, Outcomes, Row, run, shown};
use crate::repo;

/// Where it stands.
pub const FILE: &str = "docs/validation.json";

/// The cases with the worst error of each figure.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    schema_version: u32,
    cases: Vec<RecordedCase>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RecordedCase {
    id: String,
    engine: String,
    gpu: String,
    source: String,
    /// Whether a figure was chosen or fitted on the runs that are predicted.
    fit: bool,
    within_tolerance: bool,
    /// The preset that predicts the case without anything of it.
    own_step_time: Option<String>,
    figures: Vec<Figure>,
}

/// The worst error of a figure over the runs of a case.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_field_names, reason = "the key of the committed file")]
struct Figure {
    figure: String,
    runs: usize,
    worst_run: String,
    predicted: String,
    measured: String,
    error_pct: String,
    /// None is for information.
    gate_pct: Option<f64>,
    /// The worst over the same runs with the preset.
    own_error_pct: Option<String>,
    /// The same with overheads calibrated on all rates but the highest.
    calibrated_error_pct: Option<String>,
}

/// Per cent with one decimal and the sign.
fn signed(pct: f64) -> String {
    format!("{pct:+.1}")
}

fn worst<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    rows.iter().copied().max_by(|a, b| a.error_pct().abs().total_cmp(&b.error_pct().abs()))
}

fn figures(given: &Outcomes, own: &Outcomes, calibrated: &Outcomes) -> Vec<Figure> {
    let gate_of = |r: &Row| match r.gate {
        Gate::Pct(g) => Some(g),
        Gate::None { .. } => None,
    };
    let mut groups: Vec<(&str, Option<f64>, Vec<&Row>)> = Vec::new();
    for row in &given.rows {
        let gate = gate_of(row);
        // A percentile without a gate says less than its mean, and fills the table.
        if gate.is_none() && row.figure.ends_with("_p99_s") {
            continue;
        }
        match groups.iter_mut().find(|(f, g, _)| *f == row.figure && *g == gate) {
            Some((_, _, rows)) => rows.push(row),
            None => groups.push((&row.figure, gate, vec![row])),
        }
    }
    groups
        .into_iter()
        .filter_map(|(figure, gate_pct, rows)| {
            let worst_row = worst(&rows)?;
            let same = |of: &Outcomes| {
                let own = |o: &&Row| o.figure == figure && rows.iter().any(|r| r.run == o.run);
                let same: Vec<&Row> = of.rows.iter().filter(own).collect();
                worst(&same).map(|r| signed(r.error_pct()))
            };
            Some(Figure {
                figure: figure.to_owned(),
                runs: rows.len(),
                worst_run: worst_row.run.clone(),
                predicted: shown(worst_row.predicted),
                measured: shown(worst_row.measured),
                error_pct: signed(worst_row.error_pct()),
                gate_pct,
                own_error_pct: same(own),
                calibrated_error_pct: same(calibrated),
            })
        })
        .collect()
}

impl Recorded {
    /// A fresh run of the cases of a folder in all three ways.
    pub fn fresh(dir: &Path) -> Result<Self> {
        let (given, own) = (run(dir, From::Case)?, run(dir, From::OwnFits)?);
        let calibrated = run(dir, From::LowerRates)?;
        let cases = given
            .iter()
            .zip(own.iter().zip(&calibrated))
            .map(|(given, (own, calibrated))| {
                let [engine, gpu, source] = given.about.clone();
                RecordedCase {
                    id: given.id.clone(),
                    engine,
                    gpu,
                    source,
                    fit: given.fitted.is_some(),
                    within_tolerance: given.holds(),
                    own_step_time: own.preset.clone(),
                    figures: figures(given, own, calibrated),
                }
            })
            .collect();
        Ok(Self { schema_version: 1, cases })
    }

    /// What the repository holds.
    pub fn read(root: &Path) -> Result<Self> {
        serde_json::from_str(&repo::read(root, FILE)?).context(FILE)
    }

    /// The text of the file.
    pub fn text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The table of the pages.
    pub fn table(&self, language: Language) -> String {
        let (head, fit, information, none) = match language {
            Language::En => (
                "Case | Engine, GPU | Figure | Runs | Worst error | Tolerance | With our own fit | Calibrated on the lower rates",
                " (fit)",
                "for information",
                "none",
            ),
            Language::Zh => (
                "案例 | 引擎、GPU | 指标 | 运行数 | 最大误差 | 容差 | 用自有拟合 | 以较低速率校准",
                "（拟合）",
                "仅供参考",
                "无",
            ),
        };
        let mut text = format!("| {head} |\n|---|---|---|---|---|---|---|---|");
        for case in &self.cases {
            for (i, f) in case.figures.iter().enumerate() {
                let first = |text: String| if i == 0 { text } else { String::new() };
                let label = if case.fit { fit } else { "" };
                let error = |pct: &Option<String>| match pct {
                    Some(e) => format!("{e} %"),
                    None => none.to_owned(),
                };
                let gate = f.gate_pct.map_or(information.to_owned(), |g| format!("{g} %"));
                let cells = [
                    first(format!("`{}`{label}", case.id)),
                    first(format!("{}, {}", case.engine, case.gpu)),
                    f.figure.replace('<', "\\<"),
                    f.runs.to_string(),
                    format!("{} %", f.error_pct),
                    gate,
                    error(&f.own_error_pct),
                    error(&f.calibrated_error_pct),
                ];
                text.push('\n');
                for cell in cells {
                    let space = if cell.is_empty() { "" } else { " " };
                    text.push_str(&format!("|{space}{cell} "));
                }
                text.push('|');
            }
        }
        text.push('\n');
        for case in &self.cases {
            let own = case
                .own_step_time
                .as_ref()
                .map_or_else(|| none.to_owned(), |name| format!("`{name}`"));
            text.push_str(&match language {
                Language::En => format!("\n- `{}`: {}; our own fit: {own}", case.id, case.source),
                Language::Zh => format!("\n- `{}`：{}；自有拟合：{own}", case.id, case.source),
            });
        }
        text
    }
}

/// The block of the pages.
pub fn block(language: Language) -> Result<String> {
    Ok(Recorded::read(&repo::root())?.table(language))
}
