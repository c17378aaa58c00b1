//! Directories that benchmark tools leave: which of their files is read.
//!
//! | directory of | told by | read | beside it |
//! |---|---|---|---|
//! | AIPerf | `….jsonl` with `…_aiperf.json` or `profile_export.jsonl` | the records | the summary, for window and settings |
//! | AIPerf, without records | `…_aiperf.json`, else `…_aiperf.csv` | it | |
//! | inference-perf | `…per_request_lifecycle_metrics.json` | the requests | `…stage_N_lifecycle_metrics.json`, to tell the stages apart |
//! | inference-perf, without requests | `…stage_N_lifecycle_metrics.json`, else `…summary_lifecycle_metrics.json` | a run each | |
//!
//! The first row that fits is taken. A directory with two runs of that row is an error, as is one
//! that fits none.

use std::path::{Path, PathBuf};

use metrics_core::format::things;

use crate::detect::{Format, Options, ReadFile, read_file};
use crate::error::{IoError, Place, Result, listed};
use crate::input::{open, unreadable};
use crate::{aiperf, inference_perf};

/// The directories that can be read, for a message.
pub(crate) const KNOWN: &str = "the directory that AIPerf or inference-perf \
                                leaves (profile_export.jsonl, per_request_lifecycle_metrics.json)";

/// Reads a directory that a tool left.
pub(crate) fn read(directory: &Path, options: &Options) -> Result<ReadFile> {
    let names = names(directory)?;
    if let Some(found) = only(directory, &names, |n| n.ends_with("_aiperf.json"))? {
        let records = records_of(&found);
        if names.contains(&records) {
            let mut file = read_file(&directory.join(&records), options)?;
            aiperf::complete(&mut file.runs, &directory.join(&found))?;
            let text = format!("{records} of the directory, window and settings from {found}");
            return Ok(said(file, &text));
        }
        return one(directory, &found, options);
    }
    if names.iter().any(|n| n == "profile_export.jsonl") {
        return one(directory, "profile_export.jsonl", options);
    }
    if let Some(found) = only(directory, &names, |n| n.ends_with("_aiperf.csv"))? {
        return one(directory, &found, options);
    }
    let stages = stages(directory, &names)?;
    if let Some(found) = only(directory, &names, |n| n.ends_with(REQUESTS))? {
        let (name, input) = open(&directory.join(&found))?;
        let compression = input.compression;
        let runs = inference_perf::read_stages(input, &stages)?;
        let format = Format::InferencePerf;
        let file = ReadFile { name, format, compression, runs };
        let text = match stages.len() {
            0 => format!("{found} of the directory"),
            n => format!("{found} of the directory, with {}", things(n as u64, "stage file")),
        };
        return Ok(said(file, &text));
    }
    if !stages.is_empty() {
        let runs = inference_perf::read_stage_files(&stages)?;
        let name = directory.display().to_string();
        let file = ReadFile { name, format: Format::InferencePerf, compression: None, runs };
        let mut text = format!("{} of the directory", things(stages.len() as u64, "stage file"));
        let server = names.iter().filter(|n| n.ends_with(SERVER)).count() as u64;
        if 0 < server {
            let files = things(server, "file");
            text.push_str(&format!("; {files} of the server's metrics (…{SERVER}) not read"));
        }
        return Ok(said(file, &text));
    }
    if let Some(found) = only(directory, &names, |n| n.ends_with(SUMMARY))? {
        return one(directory, &found, options);
    }
    Err(IoError::Directory { at: Box::new(Place::file(&directory.display().to_string())) })
}

/// How inference-perf's files end.
const REQUESTS: &str = "per_request_lifecycle_metrics.json";
const STAGE: &str = "_lifecycle_metrics.json";
const SUMMARY: &str = "summary_lifecycle_metrics.json";
const SERVER: &str = "_prometheus_metrics.json";

/// Whether a file of this name is read in a directory that a tool left.
///
/// # Examples
///
/// ```
/// use serving_io::artifacts::may_be_read;
///
/// assert!(may_be_read("profile_export.jsonl"));
/// assert!(!may_be_read("report.json"));
/// ```
#[must_use]
pub fn may_be_read(name: &str) -> bool {
    // The records of AIPerf have any name before their end.
    ["_aiperf.json", "_aiperf.csv", ".jsonl", STAGE, SERVER].iter().any(|end| name.ends_with(end))
}

/// The stage files of inference-perf, by number.
fn stages(directory: &Path, names: &[String]) -> Result<Vec<(u64, PathBuf)>> {
    let mut stages: Vec<(u64, PathBuf)> = Vec::new();
    for name in names {
        let Some((_, number)) = name.strip_suffix(STAGE).and_then(|n| n.rsplit_once("stage_"))
        else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        if let Some((_, first)) = stages.iter().find(|(n, _)| *n == number) {
            let first = first.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            return Err(IoError::SeveralRuns {
                at: Box::new(Place::file(&directory.display().to_string())),
                files: listed([first, name]),
            });
        }
        stages.push((number, directory.join(name)));
    }
    stages.sort();
    Ok(stages)
}

/// The records that belong to a summary.
fn records_of(summary: &str) -> String {
    format!("{}.jsonl", summary.strip_suffix("_aiperf.json").unwrap_or(summary))
}

fn one(directory: &Path, name: &str, options: &Options) -> Result<ReadFile> {
    let file = read_file(&directory.join(name), options)?;
    Ok(said(file, &format!("{name} of the directory")))
}

/// Says in each run which file was read.
fn said(mut file: ReadFile, text: &str) -> ReadFile {
    for run in &mut file.runs {
        run.note("read-from", &[], text.to_owned());
    }
    file
}

/// The names of a directory's files, sorted.
fn names(directory: &Path) -> Result<Vec<String>> {
    let shown = directory.display().to_string();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|e| unreadable(&shown, &e))? {
        let entry = entry.map_err(|e| unreadable(&shown, &e))?;
        // A name that is no text is no name that a tool gives.
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// The one file whose name fits, if there is one.
fn only(directory: &Path, names: &[String], fits: impl Fn(&str) -> bool) -> Result<Option<String>> {
    let mut found = names.iter().filter(|n| fits(n));
    let Some(first) = found.next() else { return Ok(None) };
    let more: Vec<&String> = found.collect();
    if more.is_empty() {
        return Ok(Some(first.clone()));
    }
    let all: Vec<PathBuf> = std::iter::once(first).chain(more).map(PathBuf::from).collect();
    Err(IoError::SeveralRuns {
        at: Box::new(Place::file(&directory.display().to_string())),
        files: listed(all.iter().map(|p| p.display().to_string())),
    })
}
