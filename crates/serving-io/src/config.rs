//! Our TOML files: unknown keys are errors, and every error names line and key.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use serde::de::DeserializeOwned;

use crate::error::{IoError, Place, Result, shown};
use crate::input::Input;

/// A table that is part of the program, read once for all runs of a sweep.
pub(crate) fn once<T>(
    table: &'static OnceLock<T>,
    read: impl FnOnce() -> Result<T>,
) -> Result<&'static T> {
    if let Some(known) = table.get() {
        return Ok(known);
    }
    let known = read()?;
    Ok(table.get_or_init(|| known))
}

/// The text as a `T`.
pub(crate) fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|e| {
        let what = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let what = what
            .replace("expected u64", "expected a whole number of at least 0")
            .replace("expected f64", "expected a number");
        let missing = what.starts_with("missing field");
        let mut error = wrong(file, text, e.span().unwrap_or_default(), what);
        // What is missing is missing from a table: its first key is not to blame.
        if let IoError::Config { at, .. } = &mut error
            && missing
            && !line_of(text, at.line).starts_with('[')
        {
            at.key = None;
        }
        error
    })
}

/// An error at a place in the text.
pub(crate) fn wrong(
    file: &str,
    text: &str,
    span: Range<usize>,
    problem: impl Into<String>,
) -> IoError {
    let start = span.start.min(text.len());
    let line = text.get(..start).unwrap_or(text).matches('\n').count();
    let mut at = Place::line(file, line as u64 + 1);
    at.key = text.lines().nth(line).and_then(key_of);
    IoError::Config { at: Box::new(at), problem: problem.into() }
}

/// A line by its number.
fn line_of(text: &str, line: Option<u64>) -> &str {
    let index = line.and_then(|n| usize::try_from(n.checked_sub(1)?).ok());
    index.and_then(|i| text.lines().nth(i)).unwrap_or_default()
}

/// The key or the table that a line begins with.
fn key_of(line: &str) -> Option<String> {
    let line = line.trim();
    let key = match line.split_once('=') {
        _ if line.starts_with('[') => line.trim_matches(['[', ']']),
        Some((key, _)) => key.trim(),
        None => return None,
    };
    (!key.is_empty() && !key.starts_with('#')).then(|| shown(key))
}

/// The version that our files have.
pub(crate) const SCHEMA_VERSION: u64 = 1;

/// Refuses another version.
pub(crate) fn check_version(file: &str, text: &str, version: &toml::Spanned<u64>) -> Result<()> {
    let n = *version.get_ref();
    if n == SCHEMA_VERSION {
        return Ok(());
    }
    Err(wrong(file, text, version.span(), format!("found {n}, expected {SCHEMA_VERSION}")))
}

/// The text of a file that is no run: one of ours, or a model's.
pub(crate) fn text_of_file(path: &Path, expected: &str) -> Result<String> {
    let name = path.display().to_string();
    if path.is_dir() {
        return Err(IoError::Directory { at: Box::new(Place::file(&name)) });
    }
    let file = std::fs::File::open(path).map_err(|e| crate::input::unreadable(&name, &e))?;
    let input = Input::new(&name, file).map_err(|e| match e {
        IoError::Empty { at, .. } => IoError::Empty { at, expected: expected.to_owned() },
        other => other,
    })?;
    input.into_text()
}
