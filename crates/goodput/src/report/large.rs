//! Large logs: read row by row into columns or sketches, with a progress bar on a terminal; and
//! partial results of their shards.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use metrics_core::slo::SloSet;
use metrics_core::table::RequestTable;
use metrics_core::tally::Tally;
use metrics_core::validity::NEED_REQUESTS;
use serving_io::partial::Partial;
use serving_io::run::{Note, Run, RunDuration};
use serving_io::{IoError, Options, ReadFile, Stream};

use crate::output::one_line;

/// From how many bytes on the requests of a file are kept as columns. Figures are the same on both
/// sides of it; a request as columns takes an eighth of the memory.
const LARGE: u64 = 32 << 20;

/// A file that was read, and its requests.
pub struct Log {
    /// What the file says.
    pub file: ReadFile,
    /// Its requests, where they are not in the runs of the file.
    pub held: Held,
}

/// In which form the requests of a file are held.
pub enum Held {
    /// In the runs of the file.
    Timelines,
    /// As columns.
    Columns(Box<RequestTable>),
    /// As counts and sketches, one for each run of the file.
    Sketches(Vec<Tally>),
}

/// In which form requests are to be held.
#[derive(Clone, Copy)]
pub enum Form<'a> {
    /// In the runs of the file.
    Timelines,
    /// As columns if the file is large, else in its runs.
    BySize,
    /// As counts and sketches, under these objectives.
    Sketches(&'a SloSet),
}

/// Reads a file, a tool's directory, or standard input for `-`.
pub fn read(path: &Path, options: &Options, form: Form<'_>) -> Result<Log> {
    if path.as_os_str() == "-" {
        let name = "standard input";
        let stdin = std::io::stdin();
        match form {
            Form::Timelines => return in_memory(serving_io::read(name, stdin, options)),
            Form::Sketches(slo) => return sketches(name, stdin, None, options, slo),
            Form::BySize => {}
        }
        let mut head = Vec::new();
        let taken = stdin.lock().take(LARGE).read_to_end(&mut head);
        taken.map_err(|e| anyhow!("{name}: cannot be read: {e}"))?;
        let large = head.len() as u64 == LARGE;
        let whole = Cursor::new(head).chain(stdin);
        return if large {
            columns(name, whole, None, options)
        } else {
            in_memory(serving_io::read(name, whole, options))
        };
    }
    if path.is_dir() {
        let file = serving_io::read_path(path, options).map_err(said)?;
        return match form {
            Form::Sketches(slo) => sketched(file, slo),
            _ => Ok(Log { file, held: Held::Timelines }),
        };
    }
    let name = path.display().to_string();
    let opened = serving_io::input::open_file(path).map_err(said)?;
    let size = opened.metadata().map(|m| m.len()).unwrap_or_default();
    match form {
        Form::Sketches(slo) => sketches(&name, opened, Some(size), options, slo),
        Form::BySize if LARGE <= size => columns(&name, opened, Some(size), options),
        _ => in_memory(serving_io::read(&name, opened, options)),
    }
}

/// The reader's message already says what its cause says, so the chain would say it twice.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn said(e: IoError) -> anyhow::Error {
    anyhow!("{e}")
}

fn in_memory(file: serving_io::error::Result<ReadFile>) -> Result<Log> {
    Ok(Log { file: file.map_err(said)?, held: Held::Timelines })
}

/// Reads row by row into columns.
fn columns(
    name: &str,
    reader: impl Read + 'static,
    size: Option<u64>,
    options: &Options,
) -> Result<Log> {
    let mut table = RequestTable::default();
    let mut push = |request: &_| {
        table.push(request);
        Ok(())
    };
    let mut stream = Stream::new(&mut push);
    let file = with_bar(name, reader, size, options, &mut stream)?;
    let held = if 0 < stream.requests { Held::Columns(Box::new(table)) } else { Held::Timelines };
    Ok(Log { file, held })
}

/// Reads row by row into counts and sketches.
fn sketches(
    name: &str,
    reader: impl Read + 'static,
    size: Option<u64>,
    options: &Options,
    slo: &SloSet,
) -> Result<Log> {
    let mut tally = Tally::new(slo)?;
    let mut push = |request: &_| tally.push(request);
    let mut stream = Stream::new(&mut push);
    // What is kept of the ids would grow with the log.
    stream.compare_ids = false;
    let mut file = with_bar(name, reader, size, options, &mut stream)?;
    if 0 < stream.requests {
        let text = "an id that is there twice is not seen: ids are not kept".to_owned();
        for run in &mut file.runs {
            run.notes.push(Note { id: "ids-not-compared", affects: &[], text: text.clone() });
            run.notes.push(findings_not_looked_for());
        }
        return Ok(Log { file, held: Held::Sketches(vec![tally]) });
    }
    sketched(file, slo)
}

/// Which findings counts and sketches do not show.
fn findings_not_looked_for() -> Note {
    let ids: Vec<&str> = NEED_REQUESTS.iter().map(|c| c.id).collect();
    let text = format!(
        "findings that need the requests themselves are not looked for: {}",
        ids.join(", ")
    );
    Note { id: NOT_LOOKED_FOR, affects: &[], text }
}

const NOT_LOOKED_FOR: &str = "findings-need-requests";

/// A file that was read whole, its requests counted and sketched.
fn sketched(mut file: ReadFile, slo: &SloSet) -> Result<Log> {
    let mut tallies = Vec::new();
    for run in &mut file.runs {
        let mut tally = Tally::new(slo)?;
        for request in &run.timelines {
            tally.push(request).with_context(|| file.name.clone())?;
        }
        if run.has_requests() {
            run.notes.push(findings_not_looked_for());
        }
        tallies.push(tally);
    }
    Ok(Log { file, held: Held::Sketches(tallies) })
}

fn with_bar(
    name: &str,
    reader: impl Read + 'static,
    size: Option<u64>,
    options: &Options,
    stream: &mut Stream<'_>,
) -> Result<ReadFile> {
    let bar = progress(name, size);
    let file = serving_io::stream(name, bar.wrap_read(reader), options, stream);
    bar.finish_and_clear();
    file.map_err(said)
}

/// The partial result of logs that were read into sketches: of one run.
pub fn partial(logs: &[Log], options: &Options) -> Result<Partial> {
    let [Log { file, held: Held::Sketches(tallies) }] = logs else {
        bail!("--partial: takes one log, got {}", logs.len());
    };
    match (file.runs.as_slice(), tallies.as_slice()) {
        ([run], [tally]) if 0 < tally.requests() => {
            Partial::new(file, run, options, tally.clone()).map_err(said)
        }
        ([_], _) => bail!("--partial: {} has no detail per request", one_line(&file.name)),
        (runs, _) => bail!("--partial: {} has {} runs, not one", one_line(&file.name), runs.len()),
    }
}

/// The partial results of these files as one.
pub fn merge(paths: &[PathBuf]) -> Result<Partial> {
    let mut merged: Option<Partial> = None;
    for path in paths {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).with_context(|| name.clone())?;
        let next = Partial::read(&name, &bytes).map_err(said)?;
        match &mut merged {
            Some(all) => all.merge(&name, next).map_err(said)?,
            None => merged = Some(next),
        }
    }
    merged.context("--merge: no partial result was given")
}

/// A merged result as a file that was read.
pub fn merged_file(partial: &Partial) -> Result<ReadFile> {
    let mut run = Run { line: 1, truncated: partial.truncated(), ..Run::default() };
    run.duration = partial
        .duration()
        .map(|value| RunDuration { value, from: "the duration that every shard states" });
    // What is true of every shard is said once, below.
    for (id, text) in partial.notes().into_iter().filter(|(id, _)| id != NOT_LOOKED_FOR) {
        run.notes.push(Note { id: "shards", affects: &[], text: format!("{id}: {text}") });
    }
    for (what, with) in partial.missing() {
        let text = format!("{what}; {with}");
        run.notes.push(Note { id: "not in the shards", affects: &[], text });
    }
    run.notes.push(findings_not_looked_for());
    let name = match partial.shards() {
        [one] => one.name.clone(),
        many => format!("{} shards", many.len()),
    };
    let format = partial.format().parse().map_err(said)?;
    Ok(ReadFile { name, format, compression: None, runs: vec![run] })
}

/// A bar on standard error, which shows only if that is a terminal.
fn progress(name: &str, size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{msg} {wide_bar} {percent} % {eta}"),
        None => (ProgressBar::no_length(), "{msg} {spinner} {bytes}"),
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(one_line(name))
}
