//! Every setting with several seeds: means with intervals, and paired differences.

use anyhow::{Result, bail};
use metrics_core::format;
use metrics_core::interval::{Interval, difference_paired, mean_independent};
use metrics_core::measured::Cut;
use metrics_core::report::Report;
use metrics_core::summary::Summary;
use metrics_core::units::Quantity;
use serde_json::{Map, Value, json};

use super::render::{self, run_settings};
use super::saturation::Saturation;
use super::{Arguments, Setting, Simulated, Source, generate, simulate};
use crate::output::{self, Format};
use crate::report::text as report_text;

/// A figure of a run.
struct Column {
    title: &'static str,
    /// With its unit at the end.
    key: &'static str,
    value: fn(&Simulated) -> Option<f64>,
}

/// A percentile of a latency in seconds.
fn latency(run: &Simulated, name: &str, p: f64) -> Option<f64> {
    let latency = run.report.as_ref()?.latency.iter().find(|d| d.name == name)?;
    let percentiles = &latency.figures.as_ref()?.percentiles;
    percentiles.iter().find(|f| f.p == Some(p)).map(|f| f.value)
}

fn report(run: &Simulated) -> Option<&Report> {
    run.report.as_ref()
}

static COLUMNS: [Column; 9] = [
    Column { title: "TTFT p50", key: "ttft_p50_s", value: |r| latency(r, "ttft", 0.5) },
    Column { title: "TTFT p99", key: "ttft_p99_s", value: |r| latency(r, "ttft", 0.99) },
    Column { title: "TPOT p50", key: "tpot_p50_s", value: |r| latency(r, "tpot", 0.5) },
    Column { title: "TPOT p99", key: "tpot_p99_s", value: |r| latency(r, "tpot", 0.99) },
    Column { title: "E2E p99", key: "e2e_p99_s", value: |r| latency(r, "e2e", 0.99) },
    Column {
        title: "req/s",
        key: "requests_per_s",
        value: |r| report(r)?.throughput.requests.map(Quantity::number),
    },
    Column {
        title: "tok/s",
        key: "output_tokens_per_s",
        value: |r| report(r)?.throughput.output.map(Quantity::number),
    },
    Column {
        title: "goodput",
        key: "goodput_requests_per_s",
        value: |r| report(r)?.goodput.as_ref()?.rate.map(Quantity::number),
    },
    Column {
        title: "attainment",
        key: "slo_attainment",
        value: |r| report(r)?.goodput.as_ref()?.attainment,
    },
];

impl Column {
    fn is_time(&self) -> bool {
        self.key.ends_with("p50_s") || self.key.ends_with("p99_s")
    }

    fn shown(&self, x: f64) -> String {
        let sign = if x < 0.0 { "-" } else { "" };
        let x = x.abs();
        match self.key {
            _ if self.is_time() => format!("{sign}{}", report_text::time(x)),
            "slo_attainment" => format!("{sign}{}", format::percent(x)),
            _ => format!("{sign}{}", format::rate(x)),
        }
    }
}

/// One setting with the value of each column under each seed; none where a run has no such figure.
struct Replicated {
    setting: Setting,
    values: Vec<Vec<Option<f64>>>,
    /// How many requests of each seed were measured, if some were left out: first and number.
    measured: Vec<(u64, u64)>,
}

/// The least and the most of some numbers.
fn range(of: impl Iterator<Item = u64> + Clone) -> Option<(u64, u64)> {
    of.clone().min().zip(of.max())
}

/// What is said of a column: its interval, around the mean.
type Cell = Option<Interval>;

impl Replicated {
    fn new(setting: Setting) -> Self {
        Self { setting, values: Vec::new(), measured: Vec::new() }
    }

    /// A column, if every seed has it.
    fn column(&self, i: usize) -> Option<Vec<f64>> {
        self.values.iter().map(|row| row.get(i).copied().flatten()).collect()
    }
}

/// Runs every setting with the same requests, seed by seed.
pub fn run(
    arguments: &Arguments,
    source: &Source,
    settings: Vec<Setting>,
    seeds: u64,
    format: Format,
) -> Result<String> {
    let Some(spec) = &source.drawn else {
        bail!("--seeds: the requests are not drawn from a seed, so that every run is the same");
    };
    let Some(last) = spec.seed.checked_add(seeds - 1) else {
        bail!("--seeds: seed {} has no {} above it", spec.seed, seeds - 1);
    };
    let mut all: Vec<Replicated> = settings.into_iter().map(Replicated::new).collect();
    for seed in spec.seed..=last {
        let mut spec = spec.clone();
        spec.seed = seed;
        let drawn = Source {
            title: source.title.clone(),
            workload: spec.generate()?,
            drawn: Some(spec),
            notes: Vec::new(),
            saturation: Saturation::default(),
        };
        for replicated in &mut all {
            let run = simulate(arguments, &drawn, replicated.setting.clone(), false)?;
            let measured = report(&run).and_then(|r| r.measured);
            replicated.measured.extend(measured.map(|m| (m.from as u64, m.requests())));
            replicated.values.push(COLUMNS.iter().map(|c| (c.value)(&run)).collect());
        }
    }
    let confidence = arguments.objectives.confidence()?;
    let mean = |r: &Replicated, i: usize| -> Cell {
        let summary = Summary::new(r.column(i)?).ok()?;
        mean_independent(&summary, confidence).ok()
    };
    let difference = |a: &Replicated, b: &Replicated, i: usize| -> Cell {
        difference_paired(&a.column(i)?, &b.column(i)?, confidence).ok()
    };
    let columns: Vec<usize> =
        (0..COLUMNS.len()).filter(|&i| all.iter().any(|r| r.column(i).is_some())).collect();
    let names = render::varying(&all.iter().map(|r| &r.setting).collect::<Vec<_>>());
    let rows = |cell: &dyn Fn(&Replicated, usize) -> Cell, from: usize| -> Vec<Row> {
        let rows = all.iter().zip(&names).skip(from);
        rows.map(|(r, name)| Row {
            name: name.clone(),
            settings: run_settings(&r.setting),
            left_out: r.setting.left_out(),
            warm_up_requests: r.measured.iter().map(|m| m.0).collect(),
            cells: columns.iter().map(|&i| (&COLUMNS[i], cell(r, i))).collect(),
        })
        .collect()
    };
    let means = rows(&mean, 0);
    let differences = match all.first() {
        Some(first) => rows(&|r, i| difference(first, r, i), 1),
        None => Vec::new(),
    };
    let settings: Vec<&Setting> = all.iter().map(|r| &r.setting).collect();
    let measured = || all.iter().flat_map(|r| &r.measured);
    let head = Head {
        title: &source.title,
        measured: render::cuts_line(&settings).map(|cuts| {
            let left_out = range(measured().map(|m| m.0));
            let kept = range(measured().map(|m| m.1));
            let each = left_out.zip(kept).map(|(left_out, kept)| {
                format!(
                    "; {} left out at the start of a run, {} measured",
                    span(left_out),
                    span(kept)
                )
            });
            cuts + &each.unwrap_or_default()
        }),
        said: said(&settings),
        drawn: generate::described(spec),
        requests: spec.requests,
        seeds: (spec.seed, last),
        confidence: confidence.get(),
    };
    match format {
        Format::Text | Format::Md => Ok(text(&head, &means, &differences, format == Format::Md)),
        Format::Json => json_of(&head, &means, &differences),
        Format::Csv => csv(&means, &differences),
    }
}

/// `12`, or `12 to 48`.
fn span((least, most): (u64, u64)) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// One setting in a table.
struct Row {
    name: String,
    settings: Vec<(&'static str, String)>,
    left_out: Vec<(&'static str, Cut)>,
    /// How many requests were left out at the start, seed by seed; empty if none were to be.
    warm_up_requests: Vec<u64>,
    cells: Vec<(&'static Column, Cell)>,
}

/// What all runs share.
struct Head<'a> {
    title: &'a str,
    /// What is left out of all runs.
    measured: Option<String>,
    /// How the settings came about, where that is to be said.
    said: Vec<String>,
    drawn: String,
    requests: u64,
    seeds: (u64, u64),
    confidence: f64,
}

/// What is to be said of any of the settings, once.
fn said(settings: &[&Setting]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for says in settings.iter().flat_map(|s| s.said()) {
        if !all.contains(&says) {
            all.push(says);
        }
    }
    all
}

/// The middle of an interval and half of its width.
fn middle(i: &Interval) -> Option<(f64, f64)> {
    let (low, high) = (i.low?, i.high?);
    Some((low + (high - low) / 2.0, (high - low) / 2.0))
}

fn text(head: &Head<'_>, means: &[Row], differences: &[Row], md: bool) -> String {
    let mut out = format!("{}\n", head.title);
    let (from, to) = head.seeds;
    let share = format::percent(head.confidence);
    let bullet = if md { "- " } else { "  " };
    let about = [
        ("workload", format!("{}, seeds {from} to {to}", format::things(head.requests, "request"))),
        ("drawn", head.drawn.clone()),
        (
            "intervals",
            format!("mean ± half width at {share}, Student's t over {} seeds", to - from + 1),
        ),
    ];
    let measured = head.measured.iter().map(|cuts| ("measured", cuts.clone()));
    let said = head.said.iter().map(|says| ("to know", says.clone()));
    for (label, content) in about.into_iter().chain(measured).chain(said) {
        let lead = if md && label == "workload" { "\n" } else { "" };
        let label = if md { format!("{label}: ") } else { format!("{label:17}") };
        out.push_str(&format!("{lead}{bullet}{label}{content}\n"));
    }
    let table = |rows: &[Row]| {
        let mut header = vec!["setting"];
        header.extend(rows.iter().take(1).flat_map(|r| r.cells.iter().map(|(c, _)| c.title)));
        let body: Vec<Vec<String>> = rows
            .iter()
            .map(|r| {
                let cell = |(column, cell): &(&Column, Cell)| match cell.as_ref().and_then(middle) {
                    Some((x, half)) => format!("{} ± {}", column.shown(x), column.shown(half)),
                    None => "-".to_owned(),
                };
                std::iter::once(r.name.clone()).chain(r.cells.iter().map(cell)).collect()
            })
            .collect();
        if md {
            output::markdown_table(&header, &body)
        } else {
            output::plain_table(&header, &body)
        }
    };
    out.push('\n');
    out.push_str(&table(means));
    if let (Some(first), false) = (means.first(), differences.is_empty()) {
        out.push_str(&format!(
            "\nDifference to {} on the same requests, paired by seed\n{}{}\n\
             A difference that is smaller than its half width may be chance.\n",
            first.name,
            if md { "\n" } else { "" },
            table(differences).trim_end_matches('\n'),
        ));
    }
    out
}

/// Mean, bounds and seeds of each figure.
fn figures(row: &Row) -> Value {
    let mut map = Map::new();
    for (column, cell) in &row.cells {
        let value = cell.as_ref().and_then(|i| {
            let (mean, _) = middle(i)?;
            Some(json!({ "mean": mean, "low": i.low, "high": i.high, "n": i.samples }))
        });
        map.insert(column.key.to_owned(), json!(value));
    }
    Value::Object(map)
}

fn json_of(head: &Head<'_>, means: &[Row], differences: &[Row]) -> Result<String> {
    let settings = |row: &Row| -> Map<String, Value> {
        let left_out =
            row.left_out.iter().map(|(k, cut)| ((*k).to_owned(), json!(cut.to_string())));
        row.settings.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).chain(left_out).collect()
    };
    // The first setting is what the others are compared with.
    let differences = std::iter::once(None).chain(differences.iter().map(Some));
    let runs: Vec<Value> = means
        .iter()
        .zip(differences)
        .map(|(row, difference)| {
            let mut map = settings(row);
            if !row.warm_up_requests.is_empty() {
                let of = json!(row.warm_up_requests);
                map.insert("warm_up_requests_by_seed".to_owned(), of);
            }
            map.insert("figures".to_owned(), figures(row));
            map.insert("difference_to_first".to_owned(), json!(difference.map(figures)));
            Value::Object(map)
        })
        .collect();
    output::json_text(&json!({
        "schema_version": 1,
        "kind": "goodput-replications",
        "workload": head.title,
        "drawn": head.drawn,
        "requests": head.requests,
        "seed_first": head.seeds.0,
        "seed_last": head.seeds.1,
        "confidence": head.confidence,
        "remarks": head.said,
        "runs": runs,
    }))
}

fn csv(means: &[Row], differences: &[Row]) -> Result<String> {
    let mut header: Vec<&str> =
        means.first().map(|r| r.settings.iter().map(|(k, _)| *k).collect()).unwrap_or_default();
    header.extend(["figure", "kind", "mean", "low", "high", "n"]);
    let mut rows = Vec::new();
    for (kind, row) in means
        .iter()
        .map(|r| ("mean", r))
        .chain(differences.iter().map(|r| ("difference_to_first", r)))
    {
        for (column, cell) in &row.cells {
            let number = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
            let mut cells: Vec<String> = row.settings.iter().map(|(_, v)| v.clone()).collect();
            cells.push(column.key.to_owned());
            cells.push(kind.to_owned());
            let interval = cell.as_ref();
            cells.push(number(interval.and_then(middle).map(|(mean, _)| mean)));
            cells.push(number(interval.and_then(|i| i.low)));
            cells.push(number(interval.and_then(|i| i.high)));
            cells.push(interval.map(|i| i.samples.to_string()).unwrap_or_default());
            rows.push(cells);
        }
    }
    output::csv_text(&header, &rows)
}
