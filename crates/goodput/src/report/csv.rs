//! The report as rows: one figure a line, for spreadsheets and for pages.

use anyhow::Result;
use metrics_core::format;
use metrics_core::report::{Answer, Report, Target};
use metrics_core::units::Quantity;

use super::Reported;
use crate::output::{csv_text, markdown_table, one_line};

/// One figure.
struct Row {
    /// Its name; the unit ends it.
    name: String,
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    n: Option<u64>,
}

impl Row {
    /// Name, value, low, high and n, in full.
    fn cells(self) -> Vec<String> {
        let full = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
        let n = self.n.map(|n| n.to_string()).unwrap_or_default();
        vec![self.name, full(self.value), full(self.low), full(self.high), n]
    }

    fn plain(name: &str, value: Option<f64>, n: Option<u64>) -> Self {
        Self { name: name.to_owned(), value, low: None, high: None, n }
    }
}

/// What was observed of a target, and whether that says that it holds: 1, 0, or nothing where the
/// interval leaves it open.
fn target(t: &Target) -> [Row; 2] {
    let interval = t.interval.as_ref().ok();
    let n = interval.map(|i| i.samples);
    let holds = match t.answer {
        Answer::Holds => Some(1.0),
        Answer::Missed => Some(0.0),
        Answer::Indeterminate => None,
    };
    let name = format!("target {}", t.slo);
    let (low, high) = interval.map_or((None, None), |i| (i.low, i.high));
    [
        Row { name, value: t.observed, low, high, n },
        Row::plain(&format!("target_holds {}", t.slo), holds, n),
    ]
}

/// Every figure of a report in the order of the layers.
fn rows(report: &Report) -> Vec<Row> {
    let mut rows = Vec::new();
    for d in &report.latency {
        let Some(f) = &d.figures else {
            rows.push(Row::plain(&format!("{}_mean_s", d.name), None, Some(0)));
            continue;
        };
        for figure in f.percentiles.iter().chain([&f.mean]) {
            let stat =
                figure.p.map_or("mean".to_owned(), |p| format!("p{}", format::value(p * 100.0)));
            let (low, high) = match &figure.interval {
                Ok(i) => (i.low, i.high),
                Err(_) => (None, None),
            };
            let name = format!("{}_{stat}_s", d.name);
            rows.push(Row { name, value: Some(figure.value), low, high, n: Some(f.n) });
        }
        rows.push(Row::plain(&format!("{}_max_s", d.name), Some(f.max), Some(f.n)));
    }
    let t = &report.throughput;
    let n = Some(t.completed);
    rows.push(Row::plain("window_s", report.window.as_ref().map(|w| w.length.get()), None));
    rows.push(Row::plain("request_throughput_per_s", t.requests.map(Quantity::number), n));
    rows.push(Row::plain("output_tokens_per_s", t.output.map(Quantity::number), n));
    rows.push(Row::plain("total_tokens_per_s", t.total.map(Quantity::number), n));
    if let Some(l) = &t.output_length {
        for (p, x) in metrics_core::report::PERCENTILES.iter().zip(&l.percentiles) {
            let name = format!("output_length_p{}_tokens", format::value(p * 100.0));
            rows.push(Row::plain(&name, Some(*x), n));
        }
        rows.push(Row::plain("output_length_mean_tokens", Some(l.mean), n));
    }
    if let Some(g) = report.goodput.as_ref().filter(|g| g.has_limits()) {
        // Rates of a window are of those who ended in it, shares of those who arrived.
        let ended = report.measured.and_then(|m| m.good).unwrap_or(g.good);
        rows.push(Row::plain("goodput_per_s", g.rate.map(Quantity::number), Some(ended)));
        rows.push(Row::plain("goodput_tokens_per_s", g.tokens.map(Quantity::number), Some(ended)));
        rows.push(Row::plain("goodput_ratio", g.ratio, Some(g.completed)));
        // No column says of an interval that it may be too narrow.
        let interval = g.attainment_interval.filter(|_| g.too_narrow.is_none());
        rows.push(Row {
            name: "slo_attainment".to_owned(),
            value: g.attainment,
            low: interval.and_then(|i| i.low),
            high: interval.and_then(|i| i.high),
            n: Some(g.finished),
        });
        for m in &g.marginals {
            rows.push(Row::plain(
                &format!("{}_attainment", m.limit.latency.name()),
                m.share,
                Some(g.finished),
            ));
        }
    }
    rows.extend(report.goodput.iter().flat_map(|g| &g.targets).flat_map(target));
    let n = Some(report.in_flight_n);
    rows.push(Row::plain("in_flight_mean", report.in_flight_mean().map(Quantity::number), n));
    let peak = report.in_flight.map(|x| x.peak as f64);
    rows.push(Row::plain("in_flight_peak", peak, n));
    if let Some(s) = report.sketched {
        rows.push(Row::plain("sketch_relative_error", Some(s.relative_error), None));
    }
    for (outcome, count) in &report.outcomes {
        rows.push(Row::plain(&format!("requests_{}", outcome.name()), Some(*count as f64), None));
    }
    rows
}

/// Every figure of a report as cells: name, value, low, high, n.
pub fn cells(report: &Report) -> Vec<Vec<String>> {
    rows(report).into_iter().map(Row::cells).collect()
}

/// The rows of a run: recomputed where there is detail, else as the tool states them.
fn of_run(r: &Reported<'_>) -> Vec<Row> {
    match &r.report {
        Some(report) => rows(report),
        None => r
            .run
            .stated
            .iter()
            .map(|(name, x)| Row::plain(&format!("stated by tool: {name}"), Some(x), None))
            .collect(),
    }
}

pub fn render_csv(reported: &[Reported<'_>]) -> Result<String> {
    let mut table = Vec::new();
    for r in reported {
        for row in of_run(r) {
            let run = [r.file.name.clone(), r.number.to_string()];
            table.push(run.into_iter().chain(row.cells()).collect());
        }
        for cells in r.believed.cells() {
            let run = [r.file.name.clone(), r.number.to_string()];
            table.push(run.into_iter().chain(cells).collect());
        }
    }
    csv_text(&["file", "run", "figure", "value", "low", "high", "n"], &table)
}

pub fn render_markdown(reported: &[Reported<'_>]) -> String {
    let mut text = String::new();
    let short = |x: Option<f64>| x.map_or("-".to_owned(), format::value);
    for (i, r) in reported.iter().enumerate() {
        if 0 < i {
            text.push('\n');
        }
        let run =
            if r.file.runs.len() == 1 { String::new() } else { format!(", run {}", r.number) };
        text.push_str(&format!("**{}{run}** ({})\n\n", one_line(&r.file.name), r.origin()));
        if !r.slo.is_empty() {
            text.push_str(&format!("Objectives: `{}`\n\n", r.slo));
        }
        let table: Vec<Vec<String>> = of_run(r)
            .into_iter()
            .map(|row| {
                let n = row.n.map(|n| n.to_string()).unwrap_or_default();
                vec![row.name, short(row.value), short(row.low), short(row.high), n]
            })
            .collect();
        let level = format!(
            "{} low",
            metrics_core::format::percent(f64::from(r.confidence)).replace(".0", "")
        );
        text.push_str(&markdown_table(&["figure", "value", &level, "high", "n"], &table));
        r.believed.markdown(&mut text);
    }
    text
}
