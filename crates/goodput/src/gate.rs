//! What `check` and `diff` share: the runs of a command line with their reports.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use metrics_core::compare::{
    Change, Comparable, Kind, change, comparables, paired_mean, same_requests,
};
use metrics_core::format;
use metrics_core::interval::Confidence;
use metrics_core::report::{Input, Report, Window};
use metrics_core::slo::{Latency, SloSet};
use metrics_core::summary::PercentileMethod;
use serving_io::run::Run;
use serving_io::{ColumnMap, Options};

use crate::output::one_line;
use crate::report::{map_items, read, time};

/// How files are read, as every command that reads results says it.
#[derive(clap::Args, Debug)]
pub struct Reading {
    /// Meaning of a column: FIELD_UNIT=COLUMN, for CSV and JSON lines of any origin.
    #[arg(long, value_name = "FIELD=COLUMN[,…]")]
    map: Vec<String>,
    /// Format of the files, where the content does not tell.
    #[arg(long, value_name = "NAME")]
    input_format: Option<String>,
    /// Which run of files with several, counted from 1; all of them if absent.
    #[arg(long, value_name = "N")]
    run: Option<usize>,
}

/// One run with its report.
pub struct Loaded {
    /// The file, and the number of the run if the file has several.
    pub name: String,
    /// What the file says.
    pub run: Run,
    /// Its figures; none where the file has no detail per request.
    pub report: Option<Report>,
    /// Those that can be compared.
    pub figures: Vec<Comparable>,
}

/// What figures are made under.
#[derive(Clone, Copy)]
pub struct Basis<'a> {
    pub slo: &'a SloSet,
    pub method: PercentileMethod,
    pub confidence: Confidence,
}

impl Reading {
    fn options(&self) -> Result<Options> {
        let format = self
            .input_format
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(|e: serving_io::IoError| anyhow!("--input-format: {e}"))?;
        let map = ColumnMap::parse(map_items(&self.map).iter().map(String::as_str))
            .map_err(|e| anyhow!("--map: {e}"))?;
        Ok(Options { format, map })
    }

    /// Every run of these files, or the one that `--run` names.
    pub fn load(&self, files: &[PathBuf], basis: Basis<'_>) -> Result<Vec<Loaded>> {
        let options = self.options()?;
        let mut all = Vec::new();
        for path in files {
            let file = read(path, &options)?;
            let several = file.runs.len();
            if let Some(n) = self.run
                && !(1..=several).contains(&n)
            {
                bail!("--run {n}: {} has {}", file.name, format::things(several as u64, "run"));
            }
            for (i, run) in file.runs.into_iter().enumerate() {
                if self.run.is_some_and(|n| n != i + 1) {
                    continue;
                }
                let name = if several == 1 {
                    one_line(&file.name)
                } else {
                    format!("{}, run {}", one_line(&file.name), i + 1)
                };
                all.push(loaded(name, run, basis)?);
            }
        }
        Ok(all)
    }
}

fn loaded(name: String, run: Run, basis: Basis<'_>) -> Result<Loaded> {
    let Basis { slo, method, confidence } = basis;
    let report = if run.has_requests() {
        let window = run
            .duration
            .map(|d| Window { length: d.value, basis: format!("in the file as {}", d.from) });
        let timelines = &run.timelines;
        let truncated = run.truncated;
        let input = Input { timelines, window, truncated, slo, method, confidence };
        Some(Report::new(&input).with_context(|| name.clone())?)
    } else {
        None
    };
    let figures =
        report.as_ref().map_or_else(Vec::new, |r| comparables(r, &run.timelines, confidence));
    Ok(Loaded { name, run, report, figures })
}

impl Loaded {
    /// The figure of that key.
    pub fn figure(&self, key: &str) -> Option<&Comparable> {
        self.figures.iter().find(|f| f.key == key)
    }
}

/// A figure for reading.
pub fn shown(kind: Kind, x: f64) -> String {
    match kind {
        Kind::Time => time(x),
        Kind::Rate => format!("{}/s", format::rate(x)),
        Kind::Share => format::percent(x),
    }
}

/// A relative change for reading: `+3.1 %`.
pub fn change_shown(x: f64) -> String {
    let text = format!("{:.1}", x * 100.0);
    let text = if text == "-0.0" { "0.0".to_owned() } else { text };
    if text.starts_with('-') || text == "0.0" { format!("{text} %") } else { format!("+{text} %") }
}

/// The interval of a change for reading; an open side is `..`.
pub fn interval_shown(low: Option<f64>, high: Option<f64>) -> String {
    let bound = |x: Option<f64>| x.map_or("..".to_owned(), change_shown);
    format!("{} to {}", bound(low), bound(high))
}

/// The change of a figure between two runs: from the pairs where the runs served the same requests
/// and the figure is a mean, else from both intervals. The second value says where an interval is
/// lacking.
pub fn changed(
    key: &str,
    base: &Loaded,
    new: &Loaded,
    confidence: Confidence,
    sides: [&str; 2],
) -> Option<(Option<Change>, Option<String>)> {
    let (b, n) = (base.figure(key)?, new.figure(key)?);
    let latency = key.strip_suffix("_mean_s").and_then(Latency::named);
    if let Some(latency) = latency
        && same_requests(&base.run.timelines, &new.run.timelines)
        && let Some(paired) =
            paired_mean(latency, &base.run.timelines, &new.run.timelines, confidence)
    {
        let why = paired.none_because.clone().map(|why| format!("the pairs: {why}"));
        return Some((Some(paired), why));
    }
    let change = change(b.value, b.interval.as_ref().ok(), n.value, n.interval.as_ref().ok());
    let why = sides
        .iter()
        .zip([b, n])
        .find_map(|(side, f)| f.interval.as_ref().err().map(|e| format!("{side}: {e}")));
    Some((change.ok(), why))
}
