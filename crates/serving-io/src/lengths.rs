//! Laws of lengths as a scenario or a flag says them: those of [`LengthLaw`], and files.
//!
//! `file:PATH` names a file with one length a line, or a length and how often it occurs, `512,20`;
//! a first line that begins with a letter is a header. Nothing is clipped: a length out of 1 to
//! 4294967295 is an error with its line. A gzip file is unpacked.
//!
//! Pairs of prompts and answers come from a [trace](crate::trace), of which only the lengths are
//! taken.

use std::path::Path;

use sched_sim::workload::{LengthHistogram, LengthLaw, LengthPairs, Lengths};

use crate::error::{IoError, Place, Result, Spot, shown};
use crate::input;
use crate::trace::{TraceOptions, read_trace_path};

/// What begins the name of a file of lengths.
const FILE: &str = "file:";

/// The law of lengths that a text says.
///
/// # Errors
///
/// [`IoError::Simulation`] for a text that is no law, [`IoError`] with file and line for a file.
///
/// # Examples
///
/// ```
/// use sched_sim::workload::LengthLaw;
/// use serving_io::lengths::law;
///
/// assert_eq!(law("constant:512")?, LengthLaw::Constant(512));
/// # Ok::<(), serving_io::IoError>(())
/// ```
pub fn law(text: &str) -> Result<LengthLaw> {
    match file_of(text) {
        Some(path) => histogram(path).map(LengthLaw::Empirical),
        None => text.trim().parse().map_err(|source| IoError::Simulation { source }),
    }
}

/// The file that a law of lengths names, if it is one of a file.
///
/// # Examples
///
/// ```
/// use std::path::Path;
/// use serving_io::lengths::file_of;
///
/// assert_eq!(file_of("file:len.txt"), Some(Path::new("len.txt")));
/// assert_eq!(file_of("uniform:1,9"), None);
/// ```
#[must_use]
pub fn file_of(text: &str) -> Option<&Path> {
    text.trim().strip_prefix(FILE).map(|path| Path::new(path.trim()))
}

/// The lengths of a file.
fn histogram(path: &Path) -> Result<LengthHistogram> {
    let (name, input) = input::open(path)?;
    let mut lines = input.into_lines();
    let mut lengths: Vec<(u64, u64)> = Vec::new();
    while let Some((line, text)) = lines.next_line()? {
        let text = text.trim();
        if text.is_empty() || (lengths.is_empty() && text.starts_with(char::is_alphabetic)) {
            continue;
        }
        let (length, count) = text.split_once(',').unwrap_or((text, "1"));
        let count = count.trim().parse().ok();
        let length = length.trim().parse().ok().filter(|n| (1..=u64::from(u32::MAX)).contains(n));
        let row = length.zip(count).ok_or_else(|| IoError::Value {
            at: Spot::line(&name, line).place(),
            found: format!("`{}`", shown(text)),
            expected: "a length from 1 to 4294967295, or a length and how often it occurs, \
                       `512,20`"
                .to_owned(),
        })?;
        lengths.push(row);
    }
    let at = || Box::new(Place::file(&name));
    LengthHistogram::new(lengths)
        .map_err(|source| IoError::Workload { at: at(), source: Box::new(source) })
}

/// The prompts of a trace with their answers.
///
/// # Errors
///
/// As [`read_trace_path`].
pub fn pairs(path: &Path) -> Result<Lengths> {
    let trace = read_trace_path(path, &TraceOptions::default())?;
    LengthPairs::of(&trace.workload)
        .map(Lengths::Pairs)
        .map_err(|source| IoError::Simulation { source })
}
