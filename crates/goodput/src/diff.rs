//! `goodput diff`: is B better, or measured differently?

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use metrics_core::compare::{Better, Change, Comparable, same_requests};
use metrics_core::format;
use metrics_core::interval::Confidence;
use metrics_core::report::Report;
use serde_json::{Value, json};
use serving_io::run::{RequestRate, Run};

use crate::gate::{Basis, Loaded, Reading, change_shown, changed, interval_shown, shown};
use crate::output::{Format, csv_text, json_text, markdown_table, one_line, plain_table};
use crate::report::Objectives;

pub const EXAMPLES: &str = "\
Both runs go through the same formulas. A change is called better or worse only
if its confidence interval leaves no room for \"no change\".

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

/// One figure of both runs.
struct Row<'a> {
    figure: &'a Comparable,
    base: f64,
    new: f64,
    change: Option<Change>,
    verdict: &'static str,
    why: Option<String>,
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let swallowed = arguments.objectives.swallowed();
    let files: Vec<PathBuf> = arguments.files.iter().chain(&swallowed).cloned().collect();
    let slo = arguments.objectives.set(&swallowed)?;
    let confidence = arguments.objectives.confidence()?;
    let basis = Basis { slo: &slo, method: arguments.objectives.method(), confidence };
    if files.len() > 2 {
        bail!("diff compares two runs, and {} files were given", files.len());
    }
    let runs = arguments.reading.load(&files, basis)?;
    let [base, new] = runs.as_slice() else {
        bail!(
            "diff compares two runs, and the files hold {}: give two files, or one file with two \
             runs; --run N picks one of each",
            runs.len()
        );
    };
    let rows = compare(base, new, confidence)?;
    let differs = settings(base, new);
    match format {
        Format::Text => text(base, new, &differs, &rows, confidence),
        Format::Json => json_text(&json!({
            "schema_version": 1,
            "kind": "goodput-diff",
            "confidence": f64::from(confidence),
            "base": base.name,
            "new": new.name,
            "settings_that_differ": differs,
            "figures": rows.iter().map(as_json).collect::<Vec<Value>>(),
        })),
        Format::Csv => csv_text(&HEADER, &cells(&rows)),
        Format::Md => Ok(markdown_table(&HEADER, &cells(&rows))),
    }
}

fn compare<'a>(base: &'a Loaded, new: &'a Loaded, confidence: Confidence) -> Result<Vec<Row<'a>>> {
    for run in [base, new] {
        if run.report.is_none() {
            bail!("{}: no detail per request, so that no change has an interval", run.name);
        }
    }
    if base.run.timelines == new.run.timelines {
        bail!("{} and {} hold the same requests: the same run twice", base.name, new.name);
    }
    let rows: Vec<Row<'a>> = base
        .figures
        .iter()
        .filter_map(|b| Some((b, new.figure(&b.key)?)))
        .map(|(b, n)| {
            let (change, why) =
                changed(&b.key, base, new, confidence, ["A", "B"]).unwrap_or_default();
            Row {
                figure: b,
                base: b.value,
                new: n.value,
                verdict: verdict(change.as_ref(), b.better),
                change,
                why,
            }
        })
        .collect();
    if rows.is_empty() {
        return Err(anyhow!("{} and {} have no figure in common", base.name, new.name));
    }
    Ok(rows)
}

/// What the interval says.
fn verdict(change: Option<&Change>, better: Better) -> &'static str {
    match change {
        None => "-",
        Some(c) if c.low.is_none() && c.high.is_none() => "no interval",
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
    let mean = |report: &Report, input: bool| {
        let t = &report.throughput;
        let lengths = if input { &t.input_length } else { &t.output_length };
        lengths.as_ref().map(|l| l.mean)
    };
    for (what, input) in [("mean input tokens", true), ("mean output tokens", false)] {
        let of = |run: &Loaded| run.report.as_ref().and_then(|r| mean(r, input));
        if let (Some(a), Some(b)) = (of(base), of(new))
            // One per cent is within what one seed or another makes of a length distribution.
            && 0.01 * a.max(b) < (a - b).abs()
        {
            differs.push(format!("{what}: {} and {}", format::count(a), format::count(b)));
        }
    }
    differs
}

const HEADER: [&str; 6] = ["figure", "A", "B", "change", "interval", "B is"];

fn cells(rows: &[Row<'_>]) -> Vec<Vec<String>> {
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
            vec![
                r.figure.title.clone(),
                shown(kind, r.base),
                shown(kind, r.new),
                changed,
                interval,
                r.verdict.to_owned(),
            ]
        })
        .collect()
}

fn text(
    base: &Loaded,
    new: &Loaded,
    differs: &[String],
    rows: &[Row<'_>],
    confidence: Confidence,
) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "A  {}", base.name)?;
    writeln!(text, "B  {}", new.name)?;
    for d in differs {
        writeln!(text, "differs  {d}")?;
    }
    writeln!(text)?;
    text.push_str(&plain_table(&HEADER, &cells(rows)));
    // One reason for each metric: its percentiles differ only in how much more they need.
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for r in rows.iter().filter(|r| r.verdict == "no interval") {
        if let Some(why) = &r.why
            && reasons.iter().all(|(of, _)| *of != r.figure.of)
        {
            reasons.push((r.figure.of, why));
        }
    }
    for (of, why) in reasons {
        writeln!(text, "no interval of {of}: {why}")?;
    }
    if same_requests(&base.run.timelines, &new.run.timelines) {
        writeln!(text, "the same requests in both: means are compared request by request")?;
    }
    writeln!(
        text,
        "intervals at {} confidence, from one run each: what differs from run to run is not in them",
        format::percent(f64::from(confidence))
    )?;
    Ok(text)
}

fn as_json(r: &Row<'_>) -> Value {
    json!({
        "figure": r.figure.key,
        "base": r.base,
        "new": r.new,
        "relative": r.change.as_ref().map(|c| c.relative),
        "relative_low": r.change.as_ref().and_then(|c| c.low),
        "relative_high": r.change.as_ref().and_then(|c| c.high),
        "new_is": r.verdict,
        "no_interval_because": r.why,
    })
}
