//! `cargo xtask conformance`: a policy against recorded decisions of the real scheduler.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::MultiGzDecoder;
use sched_sim::vllm_v1::golden::{Trace, Workload};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Mismatches that are shown; all are counted.
const SHOWN: usize = 20;

/// How a folder of traces fared.
#[derive(Debug, Default)]
pub struct Tally {
    pub matched: usize,
    pub total: usize,
    /// One line each: the workload, and the first place where it differs.
    pub mismatches: Vec<String>,
}

impl Tally {
    /// What is printed, the last line of which is the result.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for mismatch in self.mismatches.iter().take(SHOWN) {
            text += mismatch;
            text.push('\n');
        }
        if SHOWN < self.mismatches.len() {
            text += &format!("… and {} more\n", self.mismatches.len() - SHOWN);
        }
        text + &format!("matched {} of {}", self.matched, self.total)
    }

    fn add(&mut self, workload: &Workload, trace: &Trace) {
        self.total += 1;
        match workload.first_difference(trace) {
            Ok(None) => self.matched += 1,
            Ok(Some(difference)) => {
                self.mismatches.push(format!("{}: {difference}", workload.name));
            }
            Err(refused) => {
                self.mismatches.push(format!("{}: refused: {refused}", workload.name));
            }
        }
    }
}

/// A workload and its trace on one line.
#[derive(Deserialize)]
struct Line {
    workload: Workload,
    trace: Vec<Value>,
}

/// Replays every workload of a folder: `NAME.workload.json` beside `NAME.trace.jsonl`, and
/// `.jsonl` files with both on one line; each of them also as `.gz`.
pub fn run(dir: &Path) -> Result<Tally> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    let mut tally = Tally::default();
    for name in &names {
        let bare = name.strip_suffix(".gz").unwrap_or(name);
        let path = dir.join(name);
        if let Some(stem) = bare.strip_suffix(".workload.json") {
            let workload =
                serde_json::from_str(&read(&path)?).with_context(|| format!("in {name}"))?;
            let trace = format!("{stem}.trace.jsonl");
            let trace = [format!("{trace}.gz"), trace]
                .into_iter()
                .find(|t| names.contains(t))
                .with_context(|| format!("{name} has no trace {stem}.trace.jsonl[.gz]"))?;
            tally.add(
                &workload,
                &named_trace(&read(&dir.join(&trace))?).with_context(|| format!("in {trace}"))?,
            );
        } else if bare
            .strip_suffix(".jsonl")
            .is_some_and(|stem| stem.strip_suffix(".trace").is_none())
        {
            for (number, line) in read(&path)?.lines().enumerate() {
                let place = || format!("in {name}, line {}", number + 1);
                let line: Line = serde_json::from_str(line).with_context(place)?;
                tally.add(&line.workload, &fuzz_trace(line.trace).with_context(place)?);
            }
        }
    }
    if tally.total == 0 {
        bail!("no NAME.workload.json and no .jsonl with workloads in {}", dir.display());
    }
    Ok(tally)
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        MultiGzDecoder::new(bytes.as_slice())
            .read_to_string(&mut text)
            .with_context(|| format!("cannot unpack {}", path.display()))?;
        return Ok(text);
    }
    String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))
}

fn named_trace(text: &str) -> Result<Trace> {
    let lines: Vec<&str> = text.lines().collect();
    let [header, steps @ .., end] = lines.as_slice() else {
        bail!("a trace has at least a first and a last line");
    };
    Ok(Trace {
        header: line(header, 1)?,
        steps: steps.iter().enumerate().map(|(i, s)| line(s, i + 2)).collect::<Result<_>>()?,
        end: line(end, lines.len())?,
    })
}

fn line<T: DeserializeOwned>(text: &str, number: usize) -> Result<T> {
    serde_json::from_str(text).with_context(|| format!("line {number}"))
}

fn fuzz_trace(mut lines: Vec<Value>) -> Result<Trace> {
    let (Some(end), false) = (lines.pop(), lines.is_empty()) else {
        bail!("a trace has at least a first and a last line");
    };
    let mut lines = lines.into_iter();
    let header = serde_json::from_value(lines.next().unwrap_or_default())?;
    let steps = lines.map(serde_json::from_value).collect::<Result<_, _>>()?;
    Ok(Trace { header, steps, end: serde_json::from_value(end)? })
}
