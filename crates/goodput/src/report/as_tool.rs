//! `--as TOOL`: a run's figures under a tool's rules, beside ours and beside what the file states.

use std::fmt::Write;

use anyhow::Result;
use metrics_core::format;
use metrics_core::report::{Input, Report};
use metrics_core::tool_rules::{Known, Rule, Tool, ToolFigure, figures};
use serde_json::{Value, json};
use serving_io::run::{Run, Values};
use serving_io::stated::{Figure, Statistic, rate, tool as writer};

use super::{Reported, text};
use crate::output::{csv_text, markdown_table, one_line, plain_table};

/// A run under a tool's rules.
pub struct Sheet {
    tool: Tool,
    rows: Vec<Row>,
}

/// A figure, and what the file itself says it is.
struct Row {
    figure: ToolFigure,
    stated: Option<f64>,
}

impl Row {
    /// What is wrong with the file's own figure, if it is not the recomputed one.
    fn disagreement(&self) -> Option<String> {
        let stated = self.stated?;
        match &self.figure.value {
            Ok(x) if agrees(stated, *x, &self.figure.key) => None,
            Ok(_) => Some(self.figure.fault.map_or_else(
                || "not what the requests of the file give; no public fault is known".to_owned(),
                |f| format!("{} ({})", f.says.en, f.source),
            )),
            // What cannot be recomputed cannot be checked either.
            Err(_) => None,
        }
    }
}

/// Whether a stated figure is the recomputed one to the digits that it has.
///
/// A median of a rate curve hangs on gaps between neighbouring stamps, which in Unix time have no
/// more than a quarter of a microsecond.
fn agrees(stated: f64, recomputed: f64, key: &str) -> bool {
    let digits = stated.to_string();
    let decimals = digits.split_once('.').map_or(0, |(_, d)| d.len());
    // More decimals than a tool rounds to are the number itself, in which sums can differ.
    let half = if (1..=4).contains(&decimals) {
        0.5 * 10_f64.powi(-i32::try_from(decimals).unwrap_or(4))
    } else {
        0.0
    };
    let of_curve = key.contains("_per_second") && key.contains("median");
    let relative = if of_curve { 1e-4 } else { 1e-6 };
    (stated - recomputed).abs() <= half + relative * stated.abs()
}

/// The sheet of a run that has requests.
pub fn sheet(tool: Tool, run: &Run, input: &Input<'_>, report: &Report) -> Sheet {
    let rows = computed(tool, run, input, report, &percentiles(run))
        .into_iter()
        .map(|figure| Row { stated: stated(tool, run, &figure.key), figure })
        .collect();
    Sheet { tool, rows }
}

/// Every figure of a run under a tool's rules.
fn computed(
    tool: Tool,
    run: &Run,
    input: &Input<'_>,
    report: &Report,
    percentiles: &[f64],
) -> Vec<ToolFigure> {
    let columns: Vec<(&str, &[Option<f64>])> = run
        .columns
        .iter()
        .filter_map(|c| match &c.values {
            Values::Number(values) => Some((c.name.as_str(), values.as_slice())),
            Values::Text(_) => None,
        })
        .collect();
    let numbers: Vec<(&str, f64)> = run_numbers(run);
    figures(tool, &Known { input, report, columns: &columns, numbers: &numbers, percentiles })
}

/// What a run with requests has under a tool's rules for each of the figures that the tool states
/// of another run, in the tool's unit; none where the rules have no such figure.
pub fn beside(
    tool: Tool,
    run: &Run,
    input: &Input<'_>,
    report: &Report,
    stated: &[Figure<'_>],
) -> Vec<Option<std::result::Result<f64, String>>> {
    let percentiles: Vec<f64> = stated
        .iter()
        .filter_map(|f| match f.statistic {
            Statistic::P(p) => Some((p * 1e5).round() / 1e3),
            _ => None,
        })
        .collect();
    let all = computed(tool, run, input, report, &percentiles);
    let of = |f: &Figure<'_>| {
        let found = all.iter().find(|t| {
            // A tool's CSV names a rate otherwise than its JSON.
            let is = |n: &String| n == f.name || rate(n).is_some_and(|of| of == f.of);
            names(&t.key).iter().any(is) || t.label.eq_ignore_ascii_case(f.name)
        });
        found.map(|t| t.value.clone())
    };
    stated.iter().map(of).collect()
}

/// Numbers of the run that a rule needs beside the requests.
fn run_numbers(run: &Run) -> Vec<(&'static str, f64)> {
    let mut numbers = Vec::new();
    if writer(run) == Some(Tool::Aiperf) {
        // The reader takes the phase as the window where a file has it, and nothing else.
        match run.duration {
            Some(d) => numbers.push(("phase_s", d.value.get())),
            None => numbers.push(("records_without_phase", 1.0)),
        }
    }
    numbers
}

/// The percentiles that the file's own figures have, in percent, with those of a report.
fn percentiles(run: &Run) -> Vec<f64> {
    let of_key = |key: &str| {
        let (p, rest) = key.strip_prefix('p')?.split_once('_')?;
        rest.ends_with("_ms").then_some(())?;
        p.parse::<f64>().ok().filter(|p| 0.0 <= *p && *p <= 100.0)
    };
    let mut percentiles: Vec<f64> =
        metrics_core::report::PERCENTILES.iter().map(|p| p * 100.0).collect();
    percentiles.extend(run.stated.iter().filter_map(|(key, _)| of_key(key)));
    percentiles.sort_by(f64::total_cmp);
    percentiles.dedup();
    percentiles
}

/// What the file states under that key, if the tool itself wrote it.
fn stated(tool: Tool, run: &Run, key: &str) -> Option<f64> {
    if writer(run) != Some(tool) {
        return None;
    }
    let count = |n: Option<u64>| n.map(|n| n as f64);
    let counts = &run.counts;
    names(key).iter().find_map(|name| run.stated.get(name)).or_else(|| match key {
        "completed" | "results_num_completed_requests" => count(counts.completed),
        "failed" => count(counts.failed),
        "total_input_tokens" => count(counts.total_input_tokens),
        "total_output_tokens" => count(counts.total_output_tokens),
        "duration" => run.duration.map(|d| d.value.get()),
        _ => None,
    })
}

/// The names under which a reader may keep the figure of that key: nested keys joined, and the unit
/// at the end.
fn names(key: &str) -> Vec<String> {
    let inner = key.strip_prefix("successes.").unwrap_or(key);
    let inner = inner.strip_prefix("latency.").unwrap_or(inner);
    let short = inner.replace("percentiles.", "");
    let mut names = vec![key.to_owned()];
    for path in [inner, short.as_str()] {
        if let Some((front, rest)) = path.split_once("_ms.") {
            names.push(format!("{front}_{}_ms", rest.replace('.', "_")));
        }
        let joined = path.replace('.', "_");
        names.push(format!("{joined}_s"));
        names.push(joined);
        // The dot of `p99.9` is no nesting.
        let nested = path.replacen('.', "_", 1);
        names.push(format!("{nested}_s"));
        names.push(nested.replace("_seconds", "_s"));
    }
    names
}

fn shown(x: Option<f64>) -> String {
    x.map_or("-".to_owned(), format::value)
}

/// A rule in a line.
fn told(rule: &Rule) -> String {
    format!("{}: {} ({})", rule.topic.title().en, rule.says.en, rule.source)
}

impl Sheet {
    /// The rules that make a difference here, in order of their first figure.
    fn rules(&self) -> Vec<&'static Rule> {
        let mut rules: Vec<&'static Rule> = Vec::new();
        for row in &self.rows {
            if let Some(rule) = row.figure.difference()
                && !rules.contains(&rule)
            {
                rules.push(rule);
            }
        }
        rules
    }

    /// Reasons why figures cannot be had, each with the figures.
    fn reasons(&self) -> Vec<(String, Vec<&str>)> {
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        for row in &self.rows {
            if let Err(why) = &row.figure.value {
                let label = row.figure.label.as_str();
                match reasons.iter_mut().find(|(w, _)| w == why) {
                    Some((_, labels)) => labels.push(label),
                    None => reasons.push((why.clone(), vec![label])),
                }
            }
        }
        reasons
    }

    /// Figures of the file that are not what its requests give, by what is wrong.
    fn disagreements(&self) -> Vec<(String, Vec<&str>)> {
        let mut faults: Vec<(String, Vec<&str>)> = Vec::new();
        for row in &self.rows {
            if let Some(why) = row.disagreement() {
                let label = row.figure.label.as_str();
                match faults.iter_mut().find(|(w, _)| *w == why) {
                    Some((_, labels)) => labels.push(label),
                    None => faults.push((why, vec![label])),
                }
            }
        }
        faults
    }

    fn has_stated(&self) -> bool {
        self.rows.iter().any(|r| r.stated.is_some())
    }

    /// Head and rows of the table: figure, theirs, ours, what the file states, mark of the rule.
    fn table(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let rules = self.rules();
        let mut head = vec!["", self.tool.title(), "ours"];
        if self.has_stated() {
            head.push("in the file");
        }
        head.push("rule");
        let rows = self
            .rows
            .iter()
            .map(|row| {
                let mut cells = vec![
                    row.figure.label.clone(),
                    shown(row.figure.value.clone().ok()),
                    shown(row.figure.ours),
                ];
                if self.has_stated() {
                    cells.push(shown(row.stated));
                }
                cells.push(mark(row, &rules));
                cells
            })
            .collect();
        (head, rows)
    }

    /// The sentences under the table.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (i, rule) in self.rules().iter().enumerate() {
            notes.push(format!("[{}] {}", i + 1, told(rule)));
        }
        for (why, labels) in self.reasons() {
            notes.push(format!("not given: {}: {why}", few(&labels)));
        }
        for (why, labels) in self.disagreements() {
            notes.push(format!("the file prints another {}: {why}", few(&labels)));
        }
        notes
    }
}

/// The mark of a figure's rule among those that are told.
fn mark(row: &Row, rules: &[&'static Rule]) -> String {
    let place = row.figure.difference().and_then(|r| rules.iter().position(|x| *x == r));
    place.map_or(String::new(), |i| format!("[{}]", i + 1))
}

/// The first of many names.
fn few(labels: &[&str]) -> String {
    const MOST: usize = 4;
    let shown: Vec<&str> = labels.iter().take(MOST).copied().collect();
    match labels.len().checked_sub(MOST) {
        Some(more) if 0 < more => format!("{} and {more} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}

/// What is said of a run without detail per request.
const NO_REQUESTS: &str =
    "the file has no detail per request, so nothing can be computed under any rule";

pub fn render_text(reported: &[Reported<'_>]) -> Result<String> {
    let mut out = String::new();
    for (i, r) in reported.iter().enumerate() {
        if 0 < i {
            out.push('\n');
        }
        text::header(&mut out, r)?;
        let Some(sheet) = &r.as_tool else {
            writeln!(out, "\n{NO_REQUESTS}")?;
            text::stated(&mut out, r)?;
            continue;
        };
        let tool = sheet.tool;
        if r.slo.is_empty() {
            writeln!(out, "\nUnder the rules of {} {}", tool.title(), tool.version())?;
        } else {
            let (title, version) = (tool.title(), tool.version());
            writeln!(out, "\nUnder the rules of {title} {version}, objectives {}", r.slo)?;
        }
        let (head, rows) = sheet.table();
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|mut cells| {
                if let Some(first) = cells.first_mut() {
                    first.insert_str(0, "  ");
                }
                cells
            })
            .collect();
        out.push_str(&plain_table(&head, &rows));
        for note in sheet.notes() {
            writeln!(out, "  {}", one_line(&note))?;
        }
    }
    Ok(out)
}

pub fn render_markdown(reported: &[Reported<'_>]) -> String {
    let mut out = String::new();
    for (i, r) in reported.iter().enumerate() {
        if 0 < i {
            out.push('\n');
        }
        let name = one_line(&r.file.name);
        let Some(sheet) = &r.as_tool else {
            out.push_str(&format!("**{name}**, run {}: {NO_REQUESTS}\n", r.number));
            continue;
        };
        let (tool, version) = (sheet.tool.title(), sheet.tool.version());
        let run =
            if r.file.runs.len() == 1 { String::new() } else { format!(", run {}", r.number) };
        out.push_str(&format!("**{name}{run}** under the rules of {tool} {version}\n\n"));
        if !r.slo.is_empty() {
            out.push_str(&format!("Objectives: `{}`\n\n", r.slo));
        }
        let (head, rows) = sheet.table();
        out.push_str(&markdown_table(&head, &rows));
        for (i, note) in sheet.notes().iter().enumerate() {
            let lead = if i == 0 { "\n- " } else { "- " };
            out.push_str(&format!("{lead}{}\n", one_line(note)));
        }
    }
    out
}

pub fn render_csv(reported: &[Reported<'_>]) -> Result<String> {
    let full = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
    let mut table = Vec::new();
    for r in reported {
        let run = [r.file.name.clone(), r.number.to_string()];
        let Some(sheet) = &r.as_tool else {
            let cells = ["", "", "", "", "", NO_REQUESTS].map(str::to_owned);
            table.push(run.into_iter().chain(cells).collect());
            continue;
        };
        for row in &sheet.rows {
            let f = &row.figure;
            let why = match &f.value {
                Err(why) => why.clone(),
                Ok(_) => row
                    .disagreement()
                    .map(|d| format!("the file prints another: {d}"))
                    .or_else(|| f.difference().map(told))
                    .unwrap_or_default(),
            };
            let cells = [
                sheet.tool.name().to_owned(),
                f.key.clone(),
                full(f.value.clone().ok()),
                full(f.ours),
                full(row.stated),
                why,
            ];
            table.push(run.iter().cloned().chain(cells).collect());
        }
    }
    csv_text(&["file", "run", "as", "figure", "value", "ours", "stated_by_tool", "why"], &table)
}

/// The sheet as a key of a run.
pub fn json(sheet: &Sheet) -> Value {
    let rows: Vec<Value> = sheet
        .rows
        .iter()
        .map(|row| {
            let f = &row.figure;
            let rule = f.difference();
            json!({
                "key": f.key,
                "label": f.label,
                "value": f.value.as_ref().ok(),
                "none_because": f.value.as_ref().err(),
                "ours": f.ours,
                "stated_by_tool": row.stated,
                "differs_because": rule.map(|r| json!({
                    "topic": r.topic.title().en,
                    "rule": r.says.en,
                    "source": r.source,
                })),
                "stated_differs_because": row.disagreement(),
                "fault": f.fault.filter(|_| row.disagreement().is_some()).map(|f| f.id),
            })
        })
        .collect();
    json!({ "tool": sheet.tool.name(), "version": sheet.tool.version(), "figures": rows })
}
