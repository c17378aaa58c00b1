//! `goodput diff`: is B better, or measured differently?

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use metrics_core::compare::{Better, COMPLETED_SHARE, Change, Comparable};
use metrics_core::format;
use metrics_core::interval::Confidence;
use metrics_core::validity::{Facts, Finding, Level, Subject};
use serde_json::{Map, Value, json};
use serving_io::run::{RequestRate, Run};

use crate::gate::{
    Basis, Loaded, Paired, Reading, affecting, affects, change_shown, changed, distinct_files,
    distinct_runs, interval_shown, of_both, pair, shown, subjects,
};
use crate::output::{
    Format, check_outputs, csv_text, json_text, markdown_table, one_line, plain_table,
};
use crate::report::{Objectives, finding_json};

pub const EXAMPLES: &str = "\
Both runs go through the same formulas. A change is called better or worse only
if its confidence interval leaves no room for \"no change\". A file without
detail per request is compared under the rules of the tool that wrote it, and
its figures, which have no interval, are shown and not judged. Findings that
affect a figure stand beside it, with the run that they are of.

Examples:
  goodput diff before.json after.json
  goodput diff before.json after.json --goodput ttft:200 tpot:50
  goodput diff before.json after.json --format md -o diff.md";

/// Arguments of `diff`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// The run to start from, and the run to compare with it.
    #[arg(num_args = 1..=2, required_unless_present = "goodput", value_names = ["A", "B"])]
    files: Vec<PathBuf>,
    #[command(flatten)]
    objectives: Objectives,
    #[command(flatten)]
    reading: Reading,
}

impl Arguments {
    /// The files, those behind `--goodput` included.
    fn files(&self) -> Vec<PathBuf> {
        self.files.iter().cloned().chain(self.objectives.swallowed()).collect()
    }

    /// Refuses to write over what is read.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        check_outputs(&self.files(), &[("-o", output)])
    }
}

/// One figure of both runs.
struct Row {
    figure: Comparable,
    base: f64,
    new: f64,
    change: Option<Change>,
    verdict: &'static str,
    why: Option<String>,
    /// Checks that say that the figure cannot be used, with the side.
    doubts: Vec<(&'static str, &'static str)>,
}

/// A finding, and of which run it is.
struct Found {
    side: Side,
    finding: Finding,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Base,
    New,
    Both,
}

impl Side {
    const fn letter(self) -> &'static str {
        match self {
            Self::Base => "A",
            Self::New => "B",
            Self::Both => "A, B",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::New => "new",
            Self::Both => "comparison",
        }
    }
}

/// All that is said of two runs.
struct Compared {
    rows: Vec<Row>,
    /// Figures that are not compared, and why.
    refused: Vec<(String, String)>,
    findings: Vec<Found>,
    /// Whether both served the same requests.
    same: bool,
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let files = arguments.files();
    let slo = arguments.objectives.set(&arguments.objectives.swallowed())?;
    let confidence = arguments.objectives.confidence()?;
    let basis = Basis { slo: &slo, method: arguments.objectives.method(), confidence };
    if files.len() > 2 {
        bail!("diff compares two runs, and {} files were given", files.len());
    }
    distinct_files(&files.iter().collect::<Vec<_>>(), "one run")?;
    let runs = arguments.reading.load(&files, basis)?;
    let [base, new] = runs.as_slice() else {
        bail!(
            "diff compares two runs, and the files hold {}: give two files, or one file with two \
             runs; --run N picks one of each",
            runs.len()
        );
    };
    let compared = compare(base, new, basis)?;
    let differs = settings(base, new);
    match format {
        Format::Text => text(base, new, &differs, &compared, confidence),
        Format::Json => json_text(&json!({
            "schema_version": 1,
            "kind": "goodput-diff",
            "confidence": f64::from(confidence),
            "base": base.name,
            "new": new.name,
            "settings_that_differ": differs,
            "figures": compared.rows.iter().map(as_json).collect::<Vec<Value>>(),
            "not_compared": compared
                .refused
                .iter()
                .map(|(what, why)| json!({ "figures": what, "because": why }))
                .collect::<Vec<Value>>(),
            "findings": compared.findings.iter().map(found_json).collect::<Vec<Value>>(),
        })),
        Format::Csv => csv_text(&HEADER, &cells(&compared.rows, true)),
        Format::Md => Ok(markdown(&compared)),
    }
}

fn compare(base: &Loaded, new: &Loaded, basis: Basis<'_>) -> Result<Compared> {
    for run in [base, new] {
        if run.run.server.is_some() {
            bail!("{}: is a scrape of an engine, not a run: `goodput diagnose` reads it", run.name);
        }
    }
    distinct_runs(&[base, new])?;
    let Paired { mut pairs, refused, under, same } = pair(base, new, basis);
    // Where nothing failed there is nothing to tell.
    pairs.retain(|(b, n)| b.key != COMPLETED_SHARE || b.value < 1.0 || n.value < 1.0);
    if pairs.is_empty() {
        if let Some((what, why)) = refused.first() {
            bail!("{} and {}: {what} cannot be compared: {why}", base.name, new.name);
        }
        return Err(anyhow!("{} and {} have no figure in common", base.name, new.name));
    }
    let mut found: Vec<Found> = of_both(base, new, under)
        .into_iter()
        .map(|finding| Found { side: Side::Both, finding })
        .collect();
    // What affects no figure of a comparison is said by `report`.
    let all: Vec<Subject> = pairs.iter().flat_map(|(b, _)| subjects(b.of, &b.key)).collect();
    for (side, run) in [(Side::Base, base), (Side::New, new)] {
        let finding = affecting(&run.findings, &all, Level::Warn).cloned();
        found.extend(finding.map(|finding| Found { side, finding }));
    }
    let mut rows = Vec::new();
    for (b, n) in pairs {
        let (change, why) = changed((&b, &n), (base, new), same, basis.confidence, ["A", "B"]);
        let about = subjects(b.of, &b.key);
        let doubts = found
            .iter()
            .filter(|f| Level::Warn <= f.finding.level)
            .filter(|f| affects(&f.finding, &about))
            .map(|f| (f.finding.check.id, f.side.letter()))
            .collect();
        rows.push(Row {
            base: b.value,
            new: n.value,
            verdict: verdict(change.as_ref(), b.better),
            figure: b,
            change,
            why,
            doubts,
        });
    }
    Ok(Compared { rows, refused, findings: found, same })
}

/// What is said where a side has no interval.
const NO_INTERVAL: &str = "no interval";

/// What the interval says.
fn verdict(change: Option<&Change>, better: Better) -> &'static str {
    match change {
        None => "-",
        Some(c) if c.low.is_none() && c.high.is_none() => NO_INTERVAL,
        Some(c) if c.may_be_none() => "no difference shown",
        Some(c) if (c.relative < 0.0) == (better == Better::Lower) => "better",
        Some(_) => "worse",
    }
}

/// What the runs were told to do, and what they were asked, where it differs.
fn settings(base: &Loaded, new: &Loaded) -> Vec<String> {
    let mut differs = Vec::new();
    let mut compare = |what: &str, of: &dyn Fn(&Run) -> Option<String>| {
        let (a, b) = (of(&base.run), of(&new.run));
        if let (Some(a), Some(b)) = (&a, &b)
            && a != b
        {
            differs.push(format!("{what}: {} and {}", one_line(a), one_line(b)));
        }
    };
    compare("tool", &|r| (!r.tool.name.is_empty()).then(|| r.tool.name.clone()));
    compare("model", &|r| r.declared.model.clone());
    compare("rate", &|r| {
        r.declared.request_rate.map(|rate| match rate {
            RequestRate::PerSecond(x) => format!("{}/s", format::value(x)),
            RequestRate::Infinite => "no limit".to_owned(),
        })
    });
    compare("at most in flight", &|r| r.declared.max_concurrency.map(|n| n.to_string()));
    let means = |facts: &Facts| {
        [("mean input tokens", facts.input_mean()), ("mean output tokens", facts.output.mean)]
    };
    for ((what, a), (_, b)) in means(&base.facts).into_iter().zip(means(&new.facts)) {
        if let (Some(a), Some(b)) = (a, b)
            // One per cent is within what one seed or another makes of a length distribution.
            && 0.01 * a.max(b) < (a - b).abs()
        {
            differs.push(format!("{what}: {} and {}", format::count(a), format::count(b)));
        }
    }
    differs
}

const HEADER: [&str; 7] = ["figure", "A", "B", "change", "interval", "B is", "doubts"];

/// `W02 A, W10 B`; a check of both runs as `W10 A, B`.
fn doubts(row: &Row) -> String {
    let mut each: Vec<(&str, Vec<&str>)> = Vec::new();
    for (id, side) in &row.doubts {
        match each.iter_mut().find(|(i, _)| i == id) {
            Some((_, sides)) if sides.contains(side) => {}
            Some((_, sides)) => sides.push(side),
            None => each.push((id, vec![side])),
        }
    }
    let each: Vec<String> =
        each.iter().map(|(id, sides)| format!("{id} {}", sides.join(", "))).collect();
    each.join("; ")
}

fn cells(rows: &[Row], with_doubts: bool) -> Vec<Vec<String>> {
    rows.iter()
        .map(|r| {
            let kind = r.figure.kind;
            let (changed, interval) = match &r.change {
                Some(c) => (
                    change_shown(c.relative),
                    match (c.low, c.high) {
                        (None, None) => "-".to_owned(),
                        (low, high) => interval_shown(low, high),
                    },
                ),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let mut cells = vec![
                r.figure.title.clone(),
                shown(kind, r.base),
                shown(kind, r.new),
                changed,
                interval,
                r.verdict.to_owned(),
            ];
            if with_doubts {
                cells.push(doubts(r));
            }
            cells
        })
        .collect()
}

/// Head and rows of the table, with the column of doubts if there is any.
fn table(rows: &[Row]) -> (&'static [&'static str], Vec<Vec<String>>) {
    let any = rows.iter().any(|r| !r.doubts.is_empty());
    let columns = if any { HEADER.len() } else { HEADER.len() - 1 };
    (HEADER.get(..columns).unwrap_or(&HEADER), cells(rows, any))
}

fn markdown(compared: &Compared) -> String {
    let (head, rows) = table(&compared.rows);
    let mut text = markdown_table(head, &rows);
    let mut lead = "\n";
    for (what, why) in &compared.refused {
        text.push_str(&format!("{lead}- not compared: {what}: {}\n", one_line(why)));
        lead = "";
    }
    for Found { side, finding } in &compared.findings {
        let (id, level) = (finding.check.id, finding.level.name());
        let says = one_line(&finding.says);
        text.push_str(&format!("{lead}- {id} {level}, {}: {says}\n", side.letter()));
        lead = "";
    }
    text
}

fn text(
    base: &Loaded,
    new: &Loaded,
    differs: &[String],
    compared: &Compared,
    confidence: Confidence,
) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "A  {}", base.name)?;
    writeln!(text, "B  {}", new.name)?;
    for d in differs {
        writeln!(text, "differs  {d}")?;
    }
    writeln!(text)?;
    let (head, cells) = table(&compared.rows);
    text.push_str(&plain_table(head, &cells));
    // One reason for each metric: its percentiles differ only in how much more they need.
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for r in compared.rows.iter().filter(|r| r.verdict == NO_INTERVAL) {
        if let Some(why) = &r.why
            && reasons.iter().all(|(of, w)| *of != r.figure.of && *w != why)
        {
            reasons.push((r.figure.of, why));
        }
    }
    let has_requests = base.report.is_some() && new.report.is_some();
    for (of, why) in reasons {
        if has_requests {
            writeln!(text, "no interval of {of}: {why}")?;
        } else {
            writeln!(text, "no interval: {}", why.trim_start_matches("A: "))?;
        }
    }
    for (what, why) in &compared.refused {
        writeln!(text, "not compared: {what}: {}", one_line(why))?;
    }
    if compared.same {
        writeln!(text, "the same requests in both: means are compared request by request")?;
    }
    if has_requests {
        writeln!(
            text,
            "intervals at {} confidence, from one run each: what differs from run to run is not in them",
            format::percent(f64::from(confidence))
        )?;
    } else {
        writeln!(text, "nothing is judged: a file with figures only leaves no interval")?;
    }
    if !compared.findings.is_empty() {
        writeln!(text, "\nFindings")?;
    }
    for Found { side, finding } in &compared.findings {
        let (id, level) = (finding.check.id, finding.level.name());
        writeln!(text, "  {:4} {id} {level:5} {}", side.letter(), one_line(&finding.says))?;
        if *side == Side::Both && Level::Note < finding.level {
            writeln!(text, "                 {}", finding.check.advice.en)?;
        }
    }
    Ok(text)
}

fn as_json(r: &Row) -> Value {
    json!({
        "figure": r.figure.key,
        "base": r.base,
        "new": r.new,
        "relative": r.change.as_ref().map(|c| c.relative),
        "relative_low": r.change.as_ref().and_then(|c| c.low),
        "relative_high": r.change.as_ref().and_then(|c| c.high),
        "new_is": r.verdict,
        "no_interval_because": r.why,
        "doubts": r.doubts.iter().map(|(id, _)| *id).collect::<Vec<&str>>(),
    })
}

fn found_json(found: &Found) -> Value {
    let mut map = Map::new();
    map.insert("of".to_owned(), json!(found.side.name()));
    if let Value::Object(finding) = finding_json(&found.finding) {
        map.extend(finding);
    }
    Value::Object(map)
}
