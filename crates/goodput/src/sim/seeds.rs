//! Every setting with several seeds: means with intervals, and paired differences.

use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use metrics_core::format;
use metrics_core::interval::{Interval, difference_paired, mean_independent};
use metrics_core::summary::Summary;
use metrics_core::validity::Level;
use serde_json::{Map, Value, json};

use super::columns::{Column, columns};
use super::render::{self, Named, settings_of};
use super::requests::Requests;
use super::targets::{self, OverSeeds};
use super::{
    Arguments, Setting, Simulated, Source, generate, in_order, in_parallel, named, progress,
    simulate,
};
use crate::output::{self, Format};
use crate::report::finding_json;

/// One setting with its run under each seed.
struct Replicated {
    setting: Setting,
    runs: Vec<Simulated>,
}

/// The least and the most of some numbers.
fn range(of: impl Iterator<Item = u64> + Clone) -> Option<(u64, u64)> {
    of.clone().min().zip(of.max())
}

/// What is said of a column: its interval, around the mean.
type Cell = Option<Interval>;

impl Replicated {
    /// A column, if every seed has it.
    fn column(&self, column: &Column) -> Option<Vec<f64>> {
        self.runs.iter().map(|run| column.value(run)).collect()
    }

    /// How many requests of each seed were left out at the start and measured, if some were left out.
    fn measured(&self) -> impl Iterator<Item = (u64, u64)> + Clone {
        let measured = self.runs.iter().filter_map(|run| run.report.as_ref()?.measured);
        measured.map(|m| (m.from as u64, m.requests()))
    }
}

/// Every setting with the requests of every seed: the same for all settings of a workload.
fn replicated(
    arguments: &Arguments,
    source: &Source,
    settings: Vec<Setting>,
    seeds: RangeInclusive<u64>,
) -> Result<Vec<Replicated>> {
    let names = named("setting", render::varying(&settings.iter().collect::<Vec<_>>()));
    let seeds: Vec<u64> = seeds.collect();
    let runs = seeds.len().saturating_mul(settings.len());
    let bar = progress(runs, "runs");
    let of_seed = |seed: u64| -> Result<Vec<Simulated>> {
        let drawn = Source {
            title: source.title.clone(),
            requests: Requests::with_seed(&source.requests, seed),
            notes: Vec::new(),
            draws: source.draws,
        };
        drawn.used_by(&settings);
        if let [only] = drawn.requests.as_slice() {
            // What is wrong with it is wrong for all settings.
            only.check()?;
        }
        let run = |setting: &Setting| {
            let run = simulate(arguments, &drawn, setting.clone(), false);
            bar.inc(1);
            run
        };
        in_order(settings.iter().collect(), &names, run)
    };
    let of_seeds = named("seed", seeds.iter().map(u64::to_string).collect());
    let by_seed = in_parallel(arguments.jobs, runs, || in_order(seeds, &of_seeds, of_seed))?;
    bar.finish_and_clear();
    let mut all: Vec<Replicated> =
        settings.into_iter().map(|setting| Replicated { setting, runs: Vec::new() }).collect();
    for runs in by_seed {
        for (replicated, run) in all.iter_mut().zip(runs) {
            replicated.runs.push(run);
        }
    }
    Ok(all)
}

/// Runs every setting with the requests of its workload, seed by seed.
pub fn run(
    arguments: &Arguments,
    source: &Source,
    settings: Vec<Setting>,
    seeds: u64,
    format: Format,
) -> Result<String> {
    let Some(seed) = source.seed() else {
        bail!("--seeds: the requests are not drawn from a seed, so that every run is the same");
    };
    let Some(last) = seed.checked_add(seeds - 1) else {
        bail!("--seeds: seed {seed} has no {} above it", seeds - 1);
    };
    let all = replicated(arguments, source, settings, seed..=last)?;
    let confidence = arguments.objectives.confidence()?;
    let mean = |r: &Replicated, column: &Column| -> Cell {
        let summary = Summary::new(r.column(column)?).ok()?;
        mean_independent(&summary, confidence).ok()
    };
    let difference = |a: &Replicated, b: &Replicated, column: &Column| -> Cell {
        difference_paired(&a.column(column)?, &b.column(column)?, confidence).ok()
    };
    let settings: Vec<&Setting> = all.iter().map(|r| &r.setting).collect();
    let names = render::varying(&settings);
    let rows = |cell: &dyn Fn(&Replicated, &Column) -> Cell, from: usize| -> Vec<Row<'_>> {
        let rows = all.iter().zip(&names).skip(from);
        rows.map(|(r, name)| Row {
            name: name.clone(),
            of: r,
            cells: columns().map(|c| (c, cell(r, c))).collect(),
            targets: OverSeeds::all(&r.runs, confidence),
        })
        .collect()
    };
    let means = rows(&mean, 0);
    let differences = match all.first() {
        Some(first) => rows(&|r, column| difference(first, r, column), 1),
        None => Vec::new(),
    };
    let measured = || all.iter().flat_map(Replicated::measured);
    let first = all.first().map(|r| &r.setting);
    let head = Head {
        title: &source.title,
        shared: render::shared(&settings, true),
        step_time: first
            .filter(|f| settings.iter().all(|s| s.step_time == f.step_time))
            .map(|s| render::step_time_name(&s.step_time)),
        objectives: first
            .filter(|f| !f.slo.is_empty() && settings.iter().all(|s| s.slo == f.slo))
            .map(|s| s.slo.to_string()),
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
        drawn: generate::drawn_for(&settings),
        several: render::several(&settings),
        others: !render::same_requests(&settings),
        requests: range(all.iter().flat_map(|r| r.runs.iter().map(|run| run.requests as u64))),
        seeds: (seed, last),
        confidence: confidence.get(),
    };
    match format {
        Format::Text | Format::Md => text(&head, &means, &differences, format == Format::Md),
        Format::Json => json_of(&head, &means, &differences),
        Format::Csv => csv(&head, &means, &differences),
    }
}

/// `12`, or `12 to 48`.
fn span((least, most): (u64, u64)) -> String {
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// One setting in a table.
struct Row<'a> {
    name: String,
    of: &'a Replicated,
    cells: Vec<(&'static Column, Cell)>,
    /// What all its seeds say of its targets.
    targets: Vec<OverSeeds>,
}

/// What all runs share.
struct Head<'a> {
    title: &'a str,
    /// What of the settings is the same and not the default, their step time and their objectives.
    shared: Option<String>,
    step_time: Option<String>,
    objectives: Option<String>,
    /// What is left out of all runs.
    measured: Option<String>,
    /// How the settings came about, where that is to be said.
    said: Vec<String>,
    /// What all of them are drawn from, and whether they are drawn from several things.
    drawn: Option<String>,
    several: bool,
    /// Whether its settings may meet other requests.
    others: bool,
    /// The least and the most requests of a run.
    requests: Option<(u64, u64)>,
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
pub(super) fn middle(i: &Interval) -> Option<(f64, f64)> {
    let (low, high) = (i.low?, i.high?);
    Some((low + (high - low) / 2.0, (high - low) / 2.0))
}

/// What stands above the table: each line with its label.
fn about(head: &Head<'_>) -> Vec<(&'static str, String)> {
    let (from, to) = head.seeds;
    let share = format::percent(head.confidence);
    let requests = render::requests(head.requests.unwrap_or_default());
    let mut about = vec![("workload", format!("{requests}, seeds {from} to {to}"))];
    let some = [
        ("drawn", &head.drawn),
        ("settings", &head.shared),
        ("step time", &head.step_time),
        ("objectives", &head.objectives),
    ];
    about.extend(some.into_iter().filter_map(|(label, content)| Some((label, content.clone()?))));
    about.push((
        "intervals",
        format!("mean ± half width at {share}, Student's t over {} seeds", to - from + 1),
    ));
    about.extend(head.measured.iter().map(|cuts| ("measured", cuts.clone())));
    about.extend(head.said.iter().map(|says| ("to know", says.clone())));
    about
}

fn text(head: &Head<'_>, means: &[Row<'_>], differences: &[Row<'_>], md: bool) -> Result<String> {
    let mut out = format!("{}\n", head.title);
    let bullet = if md { "- " } else { "  " };
    for (label, content) in about(head) {
        let lead = if md && label == "workload" { "\n" } else { "" };
        let label = if md { format!("{label}: ") } else { format!("{label:17}") };
        out.push_str(&format!("{lead}{bullet}{label}{content}\n"));
    }
    // What no run has, and counts that are 0 everywhere, have no column here.
    let has = |column: &Column| {
        let runs = means.iter().flat_map(|r| &r.of.runs);
        column.is_shown(runs, means.iter().any(|r| r.of.column(column).is_some()))
    };
    let shown: Vec<bool> = columns().map(has).collect();
    let table = |rows: &[Row<'_>]| {
        let mut header = vec!["setting"];
        header.extend(columns().zip(&shown).filter(|(_, is)| **is).filter_map(|(c, _)| c.title));
        let body: Vec<Vec<String>> = rows
            .iter()
            .map(|r| {
                let cells = r.cells.iter().zip(&shown).filter(|(_, is)| **is);
                let cells = cells.map(|((column, cell), _)| match cell.as_ref().and_then(middle) {
                    Some((x, half)) => format!("{} ± {}", column.shown(x), column.shown(half)),
                    None => "-".to_owned(),
                });
                std::iter::once(r.name.clone()).chain(cells).collect()
            })
            .collect();
        output::table(&header, &body, md)
    };
    out.push('\n');
    out.push_str(&table(means));
    if let (Some(first), false) = (means.first(), differences.is_empty()) {
        // A line right below a table of Markdown is one of its rows.
        let gap = if md { "\n" } else { "" };
        out.push_str(&format!(
            "\nDifference to {}{}, paired by seed\n{gap}{}\n{gap}\
             A difference that is smaller than its half width may be chance.\n",
            first.name,
            // Another rate or law draws other requests from the same streams, and clients who wait for
            // answers send what the server lets them.
            if head.others { " by the same random streams" } else { " on the same requests" },
            table(differences).trim_end_matches('\n'),
        ));
    }
    out.push_str(&targets_table(means, md));
    let mut below = String::new();
    warnings(&mut below, head, means)?;
    if md {
        // Lines that follow each other would be one paragraph.
        below.lines().filter(|l| !l.is_empty()).for_each(|l| {
            out.push_str(&format!("\n{}\n", l.trim()));
        });
    } else {
        out.push_str(&below);
    }
    Ok(out)
}

/// Each target of each setting; nothing without targets.
fn targets_table(means: &[Row<'_>], md: bool) -> String {
    let row = |(row, target): (&Row<'_>, &OverSeeds)| -> Vec<String> {
        std::iter::once(row.name.clone()).chain(target.cells()).collect()
    };
    let all = means.iter().flat_map(|r| r.targets.iter().map(move |target| (r, target)));
    let body: Vec<Vec<String>> = all.map(row).collect();
    if body.is_empty() {
        return String::new();
    }
    let header = ["setting", "target", "observed", "in the mean", "seeds that meet it"];
    format!("\n{}", output::table(&header, &body, md))
}

/// What has to be said of the runs behind the means.
fn warnings(text: &mut String, head: &Head<'_>, rows: &[Row<'_>]) -> Result<()> {
    let runs: Vec<&Simulated> = rows.iter().flat_map(|r| &r.of.runs).collect();
    let overloaded = rows.iter().filter_map(|r| {
        let n = r.of.runs.iter().filter(|run| run.is_overloaded()).count();
        (0 < n).then(|| format!("{} in {n} of {} runs", r.name, r.of.runs.len()))
    });
    let overloaded: Vec<String> = overloaded.collect();
    if !overloaded.is_empty() {
        text.push_str(&format!("\nOVERLOADED: {}\n", overloaded.join("; ")));
    }
    render::load_warnings(text, &runs)?;
    // In how many runs of which setting, with what the first of them says.
    let each = |text: &mut String, of: &dyn Fn(&Replicated, &Simulated) -> Vec<String>| {
        let mut lead = "\n";
        for row in rows {
            let all = row.of.runs.iter().zip(head.seeds.0..);
            let with = all.map(|(run, seed)| (seed, of(row.of, run))).filter(|w| !w.1.is_empty());
            let with: Vec<(u64, Vec<String>)> = with.collect();
            let Some((seed, says)) = with.first() else { continue };
            text.push_str(&format!(
                "{lead}{}, {} of {} runs (the first, seed {seed}): {}\n",
                row.name,
                with.len(),
                row.of.runs.len(),
                says.join("; ")
            ));
            lead = "";
        }
    };
    if runs.iter().any(|r| !r.beyond.is_empty()) {
        text.push_str("\nOutside of the range of the step time, whose error is not known there:");
        each(text, &|_, run| run.beyond.clone());
    }
    // Those that need no run stand above the table or here once.
    let of_all =
        |of: &Replicated, remark: &String| of.runs.iter().all(|r| r.remarks.contains(remark));
    let mut once: Vec<&String> = Vec::new();
    for row in rows {
        for remark in row.of.runs.first().iter().flat_map(|r| &r.remarks) {
            let is_new = !once.contains(&remark) && !head.said.contains(remark);
            if is_new && of_all(row.of, remark) {
                let to_all = rows.iter().all(|r| of_all(r.of, remark));
                let of = if to_all { String::new() } else { format!("{}: ", row.name) };
                let lead = if once.is_empty() { "\n" } else { "" };
                text.push_str(&format!("{lead}{of}{remark}\n"));
                once.push(remark);
            }
        }
    }
    each(text, &|of, run| {
        run.remarks.iter().filter(|remark| !of_all(of, remark)).cloned().collect()
    });
    let named: Vec<Named<'_>> =
        rows.iter().map(|r| (r.name.as_str(), r.of.runs.iter().collect())).collect();
    render::truncation_of_all(text, &named)?;
    render::findings_of_all(text, &named)
}

/// Mean, bounds and seeds of each figure.
fn figures(row: &Row<'_>) -> Value {
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

/// What became of the requests of each run, and what it is usable for.
fn by_seed(row: &Row<'_>, first: u64) -> Vec<Value> {
    let runs = row.of.runs.iter().zip(first..);
    runs.map(|(run, seed)| {
        let s = &run.statistics;
        let findings: Vec<Value> = run.findings.iter().map(finding_json).collect();
        let figures: Map<String, Value> =
            columns().map(|c| (c.key.to_owned(), json!(c.value(run)))).collect();
        json!({
            "seed": seed,
            "figures": figures,
            "targets": targets::of_seed(run),
            "truncated": run.end.is_truncated(),
            "overloaded": run.is_overloaded(),
            "injected": s.injected,
            "completed": s.completed,
            "running": s.running,
            "queued": s.queued,
            "rejected_requests": s.rejected,
            "cancelled_requests": s.cancelled,
            "timed_out_requests": s.timed_out,
            "remarks": run.remarks,
            "outside_of_step_time_range": run.beyond,
            "findings": findings,
            "verdict": { "answer": run.verdict.name(), "text": run.verdict.to_string() },
        })
    })
    .collect()
}

/// What a setting is, as a single run has it, and the servers around it.
fn settings_json(of: &Replicated, several: bool) -> Map<String, Value> {
    let mut map = Map::new();
    let Some(run) = of.runs.first() else { return map };
    render::setting_json(&mut map, run, several);
    map.insert("replicas".to_owned(), json!(of.setting.replicas));
    let texts = settings_of(run, false).into_iter();
    let around = texts.filter(|(name, _)| ["router", "disagg", "kv_transfer"].contains(name));
    map.extend(around.map(|(name, text)| {
        let text = (!text.is_empty()).then_some(text);
        (name.to_owned(), json!(text))
    }));
    map
}

fn json_of(head: &Head<'_>, means: &[Row<'_>], differences: &[Row<'_>]) -> Result<String> {
    // The first setting is what the others are compared with.
    let differences = std::iter::once(None).chain(differences.iter().map(Some));
    let runs: Vec<Value> = means
        .iter()
        .zip(differences)
        .map(|(row, difference)| {
            let mut map = settings_json(row.of, head.several);
            let left_out: Vec<u64> = row.of.measured().map(|m| m.0).collect();
            if !left_out.is_empty() {
                map.insert("warm_up_requests_by_seed".to_owned(), json!(left_out));
            }
            map.insert("figures".to_owned(), figures(row));
            map.insert("difference_to_first".to_owned(), json!(difference.map(figures)));
            let over_seeds: Vec<Value> = row.targets.iter().map(OverSeeds::json).collect();
            map.insert("targets".to_owned(), json!(over_seeds));
            map.insert("by_seed".to_owned(), json!(by_seed(row, head.seeds.0)));
            Value::Object(map)
        })
        .collect();
    // Where they differ each run has its own.
    let one = head.requests.filter(|(least, most)| least == most);
    output::json_text(&json!({
        "schema_version": 1,
        "kind": "goodput-replications",
        "workload": head.title,
        "drawn": head.drawn,
        "requests": one.map(|(n, _)| n),
        "seed_first": head.seeds.0,
        "seed_last": head.seeds.1,
        "confidence": head.confidence,
        "remarks": head.said,
        "runs": runs,
    }))
}

/// What is true of some of the runs, and of how many.
fn shares(of: &Replicated) -> Vec<(&'static str, u64)> {
    let mut shares = vec![("overloaded", 0), ("truncated", 0)];
    for run in &of.runs {
        let states = [("overloaded", run.is_overloaded()), ("truncated", run.end.is_truncated())];
        let states = states.into_iter().filter_map(|(name, is)| is.then_some(name));
        let findings = run.findings.iter().filter(|f| Level::Note < f.level);
        for name in states.chain(findings.map(|f| f.check.id)) {
            match shares.iter_mut().find(|(known, _)| *known == name) {
                Some((_, n)) => *n += 1,
                None => shares.push((name, 1)),
            }
        }
    }
    // The checks come first, as their ids begin with a capital.
    shares.sort_unstable();
    shares
}

fn csv(head: &Head<'_>, means: &[Row<'_>], differences: &[Row<'_>]) -> Result<String> {
    let settings = |row: &Row<'_>| {
        let first = row.of.runs.first();
        first.map(|run| render::csv_settings(run, head.several)).into_iter().flatten()
    };
    let mut header: Vec<&str> =
        means.first().map(|r| settings(r).map(|(k, _)| k).collect()).unwrap_or_default();
    header.extend(["figure", "kind", "mean", "low", "high", "n"]);
    let number = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
    let line = |row: &Row<'_>, rest: [String; 6]| -> Vec<String> {
        settings(row).map(|(_, v)| v).chain(rest).collect()
    };
    let mut rows = Vec::new();
    for (kind, row) in means
        .iter()
        .map(|r| ("mean", r))
        .chain(differences.iter().map(|r| ("difference_to_first", r)))
    {
        for (column, cell) in &row.cells {
            let interval = cell.as_ref();
            let rest = [
                column.key.to_owned(),
                kind.to_owned(),
                number(interval.and_then(middle).map(|(mean, _)| mean)),
                number(interval.and_then(|i| i.low)),
                number(interval.and_then(|i| i.high)),
                interval.map(|i| i.samples.to_string()).unwrap_or_default(),
            ];
            rows.push(line(row, rest));
        }
    }
    let none = String::new;
    for row in means {
        for target in &row.targets {
            let interval = target.interval.as_ref();
            let (met, of) = target.met();
            rows.push(line(
                row,
                [
                    target.figure(),
                    "mean".to_owned(),
                    number(interval.and_then(middle).map(|(mean, _)| mean)),
                    number(interval.and_then(|i| i.low)),
                    number(interval.and_then(|i| i.high)),
                    of.to_string(),
                ],
            ));
            let share = number((0 < of).then(|| met as f64 / of as f64));
            let (name, kind) = (target.figure(), "share_of_runs".to_owned());
            rows.push(line(row, [name, kind, share, none(), none(), of.to_string()]));
        }
        let n = row.of.runs.len();
        for (name, of) in shares(row.of) {
            let share = number(Some(of as f64 / n as f64));
            let kind = "share_of_runs".to_owned();
            rows.push(line(row, [name.to_owned(), kind, share, none(), none(), n.to_string()]));
        }
    }
    output::csv_text(&header, &rows)
}
