//! `--by COLUMN`: a report for each group of requests.

use std::fmt::Write;

use anyhow::{Result, anyhow, bail};
use metrics_core::RequestTimeline;
use metrics_core::format;
use metrics_core::grouping::{Bins, Group, by_number, by_text};
use metrics_core::report::{Distribution, Input, Report, Window, distribution_title};
use metrics_core::timeline::Outcome;
use metrics_core::units::Quantity;
use serde_json::{Map, Value, json};
use serving_io::run::{Run, Values};

use super::{Reported, csv, json as report_json, text};
use crate::output::{csv_text, markdown_table, one_line, plain_table};

/// More groups than this are no summary.
const MOST: usize = 50;

/// What `--by` asks for.
#[derive(Clone, Debug)]
pub struct By {
    column: String,
    bins: Bins,
}

impl By {
    /// Reads `COLUMN`, `COLUMN:4` or `COLUMN:100,1000`.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let Some((column, bins)) = text.rsplit_once(':') else {
            return Ok(Self { column: text.to_owned(), bins: Bins::Auto });
        };
        let wrong = || {
            format!(
                "`{bins}` is neither a number of bins nor edges: write {column}:4 or {column}:100,1000"
            )
        };
        let bins = if bins.contains(',') {
            let edges: std::result::Result<Vec<f64>, _> =
                bins.split(',').map(|e| e.trim().parse::<f64>()).collect();
            let edges = edges.map_err(|_| wrong())?;
            if edges.iter().any(|e| !e.is_finite()) {
                return Err(wrong());
            }
            Bins::Edges(edges)
        } else {
            match bins.parse() {
                Ok(n) if (1..=MOST).contains(&n) => Bins::Count(n),
                Ok(n) => return Err(format!("1 to {MOST} bins are possible, not {n}")),
                Err(_) => return Err(wrong()),
            }
        };
        Ok(Self { column: column.to_owned(), bins })
    }
}

/// The groups of one run.
pub struct Groups {
    column: String,
    /// Name and report of each.
    list: Vec<(String, Report)>,
    /// Whether the groups are bins of like size that were not asked for.
    binned: bool,
}

/// What every run can be grouped by.
const BUILT_IN: [&str; 3] = ["outcome", "input_tokens", "output_tokens"];

/// The reports of the groups of a run.
///
/// All groups have the window of the run, so that their rates add up to its rates.
pub fn groups(by: &By, run: &Run, input: &Input<'_>, report: &Report) -> Result<Groups> {
    let number = |of: fn(&RequestTimeline) -> Option<u64>| {
        Values::Number(run.timelines.iter().map(|t| of(t).map(|n| n as f64)).collect())
    };
    let own = run.column(&by.column).map(|c| c.values.clone());
    let values = match (own, by.column.as_str()) {
        (Some(values), _) => values,
        (None, "outcome") => {
            let name = |t: &RequestTimeline| Some(t.outcome().name().to_owned());
            Values::Text(run.timelines.iter().map(name).collect())
        }
        (None, "input_tokens") => number(RequestTimeline::input_tokens),
        (None, "output_tokens") => number(RequestTimeline::output_tokens),
        (None, other) => {
            let columns = run.columns.iter().map(|c| c.name.as_str());
            let known: Vec<&str> = BUILT_IN.into_iter().chain(columns).collect();
            bail!("--by {other}: there is no such column; the file has {}", known.join(", "));
        }
    };
    let (members, binned) = match values {
        Values::Number(values) => {
            let groups =
                by_number(&values, &by.bins).map_err(|e| anyhow!("--by {}: {e}", by.column))?;
            let mut different: Vec<f64> = values.iter().flatten().copied().collect();
            different.sort_unstable_by(f64::total_cmp);
            different.dedup();
            let binned = by.bins == Bins::Auto && metrics_core::grouping::FEW < different.len();
            (groups, binned)
        }
        Values::Text(_) if by.bins != Bins::Auto => {
            bail!("--by {}: the column holds text, which has no bins: leave them out", by.column)
        }
        Values::Text(values) => (by_text(&values), false),
    };
    if MOST < members.len() {
        bail!(
            "--by {}: {} different values in {}, which is no summary: at most {MOST} groups",
            by.column,
            members.len(),
            format::things(run.timelines.len() as u64, "request")
        );
    }
    let window = report.window.clone();
    let list: Result<Vec<(String, Report)>> =
        members.into_iter().map(|g| one(g, run, input, window.clone())).collect();
    Ok(Groups { column: by.column.clone(), list: list?, binned })
}

/// The report of one group.
fn one(
    group: Group,
    run: &Run,
    input: &Input<'_>,
    window: Option<Window>,
) -> Result<(String, Report)> {
    let timelines: Vec<RequestTimeline> =
        group.members.iter().filter_map(|&i| run.timelines.get(i)).cloned().collect();
    let report = Report::new(&Input { timelines: &timelines, window, ..input.clone() })?;
    Ok((group.name, report))
}

impl Groups {
    /// What is to be known before the figures.
    fn head(&self) -> String {
        let n = format::things(self.list.len() as u64, "group");
        let bins = if self.binned {
            format!(
                "; many values, so bins of like size: --by {}:N or edges choose others",
                self.column
            )
        } else {
            String::new()
        };
        format!("By {}, {n}; rates are over the whole run's window{bins}", one_line(&self.column))
    }

    /// The names of the distributions that any group has, in report order.
    fn distributions(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for d in self.list.iter().flat_map(|(_, r)| &r.latency) {
            if !names.contains(&d.name) {
                names.push(d.name);
            }
        }
        names
    }

    /// One row a group for one latency.
    fn latency(&self, name: &str) -> Vec<Vec<String>> {
        let cells = |d: Option<&Distribution>| -> Vec<String> {
            let Some(f) = d.and_then(|d| d.figures.as_ref()) else {
                return std::iter::repeat_n("-".to_owned(), 6).chain(["0".to_owned()]).collect();
            };
            let mut cells: Vec<String> =
                f.percentiles.iter().map(|p| text::time(p.value)).collect();
            cells.extend([text::time(f.max), text::time(f.mean.value), f.n.to_string()]);
            cells
        };
        self.list
            .iter()
            .map(|(group, report)| {
                let d = report.latency.iter().find(|d| d.name == name);
                std::iter::once(one_line(group)).chain(cells(d)).collect()
            })
            .collect()
    }

    /// One row a group for rates and goodput.
    fn rates(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let mut head = vec!["", "sent", "completed", "missed", "req/s", "tok/s out"];
        let goodput = self.list.iter().any(|(_, r)| r.goodput.is_some());
        if goodput {
            head.extend(["good", "goodput/s", "ratio", "attainment", "interval"]);
        }
        let rate = |x: Option<f64>| x.map_or("-".to_owned(), format::rate);
        let share = |x: Option<f64>| x.map_or("-".to_owned(), format::percent);
        let rows = self
            .list
            .iter()
            .map(|(group, r)| {
                let t = &r.throughput;
                let missed: u64 =
                    r.outcomes.iter().filter(|(o, _)| o.is_miss()).map(|(_, n)| n).sum();
                let mut cells = vec![
                    one_line(group),
                    r.sent().to_string(),
                    r.ended(Outcome::Completed).to_string(),
                    missed.to_string(),
                    rate(t.requests.map(Quantity::number)),
                    rate(t.output.map(Quantity::number)),
                ];
                if let Some(g) = r.goodput.as_ref().filter(|_| goodput) {
                    let interval = g.attainment_interval.filter(|_| g.too_narrow.is_none());
                    let interval = interval.map_or("-".to_owned(), |i| {
                        format!("{} to {}", share(i.low), share(i.high))
                    });
                    cells.extend([
                        if g.unknown == 0 && g.has_limits() {
                            g.good.to_string()
                        } else {
                            "-".to_owned()
                        },
                        rate(g.rate.map(Quantity::number)),
                        share(g.ratio),
                        share(g.attainment),
                        interval,
                    ]);
                }
                cells
            })
            .collect();
        (head, rows)
    }
}

/// Heads of the columns of a latency.
const LATENCY: [&str; 8] = ["", "p50", "p90", "p95", "p99", "max", "mean", "n"];

/// Figures of a run without requests cannot be grouped.
const NO_REQUESTS: &str = "the file has no detail per request, so there is nothing to group";

pub fn render_text(reported: &[Reported<'_>]) -> Result<String> {
    let mut out = String::new();
    for (i, r) in reported.iter().enumerate() {
        if 0 < i {
            out.push('\n');
        }
        text::header(&mut out, r)?;
        let Some(groups) = &r.groups else {
            writeln!(out, "\n{NO_REQUESTS}")?;
            continue;
        };
        writeln!(out, "\n{}", groups.head())?;
        let indented = |rows: Vec<Vec<String>>| -> Vec<Vec<String>> {
            rows.into_iter()
                .map(|mut cells| {
                    if let Some(first) = cells.first_mut() {
                        first.insert_str(0, "  ");
                    }
                    cells
                })
                .collect()
        };
        for name in groups.distributions() {
            writeln!(out, "\n{}", distribution_title(name))?;
            out.push_str(&plain_table(&LATENCY, &indented(groups.latency(name))));
        }
        writeln!(out, "\nRates")?;
        let (head, rows) = groups.rates();
        out.push_str(&plain_table(&head, &indented(rows)));
        if !r.slo.is_empty() {
            writeln!(out, "  objectives: {}", r.slo)?;
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
        let run =
            if r.file.runs.len() == 1 { String::new() } else { format!(", run {}", r.number) };
        out.push_str(&format!("**{}{run}** ({})\n\n", one_line(&r.file.name), r.origin()));
        let Some(groups) = &r.groups else {
            out.push_str(&format!("{NO_REQUESTS}\n"));
            continue;
        };
        out.push_str(&format!("{}\n\n", groups.head()));
        if !r.slo.is_empty() {
            out.push_str(&format!("Objectives: `{}`\n\n", r.slo));
        }
        let headed = |first: &str, rest: &[&str]| -> Vec<String> {
            std::iter::once(first).chain(rest.iter().skip(1).copied()).map(str::to_owned).collect()
        };
        for name in groups.distributions() {
            let head = headed(distribution_title(name), &LATENCY);
            let head: Vec<&str> = head.iter().map(String::as_str).collect();
            out.push_str(&markdown_table(&head, &groups.latency(name)));
            out.push('\n');
        }
        let (head, rows) = groups.rates();
        let head = headed("rates", &head);
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        out.push_str(&markdown_table(&head, &rows));
    }
    out
}

pub fn render_csv(reported: &[Reported<'_>]) -> Result<String> {
    let mut table = Vec::new();
    for r in reported {
        let Some(groups) = &r.groups else { continue };
        for (name, report) in &groups.list {
            for cells in csv::cells(report) {
                let place = [
                    r.file.name.clone(),
                    r.number.to_string(),
                    groups.column.clone(),
                    name.clone(),
                ];
                table.push(place.into_iter().chain(cells).collect());
            }
        }
    }
    csv_text(&["file", "run", "by", "group", "figure", "value", "low", "high", "n"], &table)
}

/// The groups as a key of a run.
pub fn json(groups: &Groups) -> Value {
    let list: Vec<Value> = groups
        .list
        .iter()
        .map(|(name, report)| {
            let mut map = Map::new();
            map.insert("group".to_owned(), json!(name));
            report_json::figures(&mut map, report);
            Value::Object(map)
        })
        .collect();
    json!({ "by": groups.column, "groups": list })
}
