//! Summaries of MLPerf's load generator: `mlperf_log_summary.txt`.
//!
//! Facts from loadgen (`results.cc`, `test_settings_internal.cc` of mlcommons/inference v4 and v5)
//! and from published submissions.
//!
//! # The file
//!
//! Lines `name : value` in three sections, each under a title between two rules: `MLPerf Results
//! Summary`, `Additional Stats`, `Test Parameters Used`. Several summaries behind each other are
//! several [`Run`]s.
//!
//! | line | becomes |
//! |---|---|
//! | a number in the first two sections: `99.00 percentile first token latency (ns)`, `Completed tokens per second`, … | [`Run::stated`], under the log's own name with its unit |
//! | `SUT name` | [`Declared::label`](crate::run::Declared::label) |
//! | `target_qps` | [`Declared::request_rate`](crate::run::Declared::request_rate), in the server scenario |
//! | other text there (`Scenario`, `Mode`, `Result is`, `… satisfied`) and all test parameters | [`Declared::metadata`](crate::run::Declared::metadata) |
//! | a line without a colon: recommendations, early stopping, warnings, errors | metadata `remarks` |
//!
//! # What is decided here
//!
//! - The file has nothing per request: [`Run::missing`] says so. A percentile is the tool's, the
//!   sample at `floor(n · p)`.
//! - `Result is : INVALID`, and a constraint that is not satisfied, are the note
//!   `result-invalid`.
//! - A summary that does not end in loadgen's line about errors is perhaps cut (note
//!   `log-ends-early`).
//! - A figure in both sections (`Completed tokens per second`) is taken once if both agree, else
//!   the second one under the name with ` (additional)` behind it.

use crate::detect::{Format, Options, Reader};
use crate::error::{IoError, Place, Result, listed, shown};
use crate::input::{Head, Input};
use crate::run::{RequestRate, Run, Tool};

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Mlperf;

/// The title that begins a summary.
const TITLE: &str = "MLPerf Results Summary";

impl Reader for Mlperf {
    fn format(&self) -> Format {
        Format::Mlperf
    }

    fn recognizes(&self, head: &Head, _: &Options) -> bool {
        let mut lines = head.text.lines().map(str::trim).filter(|l| !l.is_empty() && !is_rule(l));
        lines.next() == Some(TITLE)
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let mut runs: Vec<Run> = Vec::new();
        let mut section = Section::Summary;
        let mut remarks: Vec<String> = Vec::new();
        let mut lines = input.into_lines();
        while let Some((line, text)) = lines.next_line()? {
            let text = text.trim();
            if is_rule(text) {
                continue;
            }
            match text {
                TITLE => {
                    if let Some(run) = runs.last_mut() {
                        finish(run, &mut remarks);
                    }
                    let tool = Tool { name: "MLPerf loadgen".to_owned(), ..Tool::default() };
                    runs.push(Run { line, tool, ..Run::default() });
                    section = Section::Summary;
                }
                "Additional Stats" => section = Section::Stats,
                "Test Parameters Used" => section = Section::Parameters,
                _ => {
                    let at = Place::line(&name, line);
                    let Some(run) = runs.last_mut() else {
                        let found = format!("`{}`", shown(text));
                        let expected = format!("the title `{TITLE}` first");
                        return Err(IoError::Value { at: Box::new(at), found, expected });
                    };
                    match entry(text) {
                        Some((key, value)) => take(&at, section, key, value, run)?,
                        None => remarks.push(text.to_owned()),
                    }
                }
            }
        }
        if let Some(run) = runs.last_mut() {
            finish(run, &mut remarks);
        }
        match runs.iter().find(|r| r.stated.is_empty()) {
            Some(run) => Err(IoError::NoRequests {
                at: Box::new(Place::line(&name, run.line)),
                expected: "the figures of a loadgen summary",
            }),
            None if runs.is_empty() => Err(IoError::Empty {
                at: Box::new(Place::file(&name)),
                expected: "a summary of MLPerf's loadgen".to_owned(),
            }),
            None => Ok(runs),
        }
    }
}

/// Where in a summary a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Summary,
    Stats,
    Parameters,
}

fn is_rule(line: &str) -> bool {
    !line.is_empty() && line.bytes().all(|b| b == b'=')
}

/// The two sides of a line `name : value`; none for a remark.
fn entry(text: &str) -> Option<(&str, &str)> {
    if text.starts_with('*') {
        return None;
    }
    let (key, value) = text.split_once(':')?;
    let (key, value) = (key.trim(), value.trim());
    (!key.is_empty() && !value.is_empty()).then_some((key, value))
}

/// Whether the log has a number under that name, so that anything else is damage.
fn is_figure(key: &str) -> bool {
    key.ends_with("(ns)") || key.ends_with("per second") || key.contains("percentile")
}

fn take(at: &Place, section: Section, key: &str, value: &str, run: &mut Run) -> Result<()> {
    let wrong = |expected: &str| IoError::Value {
        at: Box::new(at.clone().key(key)),
        found: format!("`{}`", shown(value)),
        expected: expected.to_owned(),
    };
    let number = value.parse::<f64>().ok().filter(|x| x.is_finite());
    match (section, number) {
        (Section::Summary | Section::Stats, Some(x)) if key != "SUT name" => {
            match run.stated.get(key) {
                None => run.stated.push(key.to_owned(), x),
                Some(there) if there.total_cmp(&x).is_eq() => {}
                Some(_) => run.stated.push(format!("{key} (additional)"), x),
            }
        }
        (Section::Summary | Section::Stats, None) if is_figure(key) => {
            return Err(wrong("a number"));
        }
        _ => {
            match key {
                "SUT name" => run.declared.label = Some(value.to_owned()),
                "target_qps" if metadata(run, "Scenario") == Some("Server") => {
                    let rate =
                        number.filter(|x| 0.0 < *x).ok_or_else(|| wrong("a number above 0"))?;
                    run.declared.request_rate = Some(RequestRate::PerSecond(rate));
                }
                _ => {}
            }
            run.declared.metadata.push((key.to_owned(), value.to_owned()));
        }
    }
    Ok(())
}

fn metadata<'a>(run: &'a Run, key: &str) -> Option<&'a str> {
    run.declared.metadata.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
}

/// Says what a summary lacks, once it is over.
fn finish(run: &mut Run, remarks: &mut Vec<String>) {
    const DETAIL: &str = "loadgen's trace (`enable_trace`), or the system's own log";
    let ended = remarks.iter().any(|r| {
        let r = r.to_ascii_lowercase();
        r.contains("error") && r.contains("encountered")
    });
    if !ended {
        let text = "the summary does not end in loadgen's line about errors: is it cut?";
        run.note("log-ends-early", &[], text.to_owned());
    }
    let unmet: Vec<String> = run
        .declared
        .metadata
        .iter()
        .filter(|(k, v)| {
            (k == "Result is" && v != "VALID")
                || (k.to_ascii_lowercase().ends_with("satisfied") && !v.eq_ignore_ascii_case("yes"))
        })
        .map(|(k, v)| format!("{k}: {v}"))
        .collect();
    if !unmet.is_empty() {
        let text = format!("loadgen itself does not accept the run: {}", listed(&unmet));
        run.note("result-invalid", &["request_throughput", "token_throughput"], text);
    }
    if !remarks.is_empty() {
        let all = std::mem::take(remarks).join("; ");
        run.declared.metadata.push(("remarks".to_owned(), all));
    }
    run.lacks("ttft per request", DETAIL);
    run.lacks("e2e latency per request", DETAIL);
    run.lacks("output tokens and tpot per request", DETAIL);
    run.lacks("gaps between outputs", DETAIL);
    run.lacks("arrivals, and with them concurrency over time", DETAIL);
    run.lacks("how many requests there were", "`mlperf_log_detail.txt` of the same run");
    run.lacks("duration of the run", "`mlperf_log_detail.txt` of the same run");
}
