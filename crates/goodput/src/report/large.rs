//! Large logs: read row by row into columns, with a progress bar on a terminal.

use std::io::{Cursor, Read};
use std::path::Path;

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use metrics_core::table::RequestTable;
use serving_io::{IoError, Options, ReadFile, Stream};

/// From how many bytes on the requests of a file are kept as columns. Figures are the same on both
/// sides of it; a request as columns takes an eighth of the memory.
const LARGE: u64 = 32 << 20;

/// A file that was read, and its requests.
pub struct Log {
    /// What the file says.
    pub file: ReadFile,
    /// Its requests as columns; else they are in the runs of the file.
    pub table: Option<RequestTable>,
}

/// Reads a file, or standard input for `-`.
pub fn read(path: &Path, options: &Options) -> Result<Log> {
    // The reader's message already says what its cause says, so the chain would say it twice.
    let said = |e: IoError| anyhow!("{e}");
    if path.as_os_str() == "-" {
        let name = "standard input";
        let mut head = Vec::new();
        let stdin = std::io::stdin();
        let taken = stdin.lock().take(LARGE).read_to_end(&mut head);
        taken.map_err(|e| anyhow!("{name}: cannot be read: {e}"))?;
        let large = head.len() as u64 == LARGE;
        let whole = Cursor::new(head).chain(stdin);
        return if large {
            columns(name, whole, None, options)
        } else {
            let file = serving_io::read(name, whole, options).map_err(said)?;
            Ok(Log { file, table: None })
        };
    }
    let name = path.display().to_string();
    let opened = serving_io::open(path).map_err(said)?;
    let size = opened.metadata().map(|m| m.len()).unwrap_or_default();
    if LARGE <= size {
        return columns(&name, opened, Some(size), options);
    }
    let file = serving_io::read(&name, opened, options).map_err(said)?;
    Ok(Log { file, table: None })
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
    let bar = progress(name, size);
    let file = serving_io::stream(name, bar.wrap_read(reader), options, &mut stream);
    let streamed = 0 < stream.requests;
    bar.finish_and_clear();
    let file = file.map_err(|e| anyhow!("{e}"))?;
    Ok(Log { file, table: streamed.then_some(table) })
}

/// A bar on standard error, which shows only if that is a terminal.
fn progress(name: &str, size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{msg} {wide_bar} {percent} % {eta}"),
        None => (ProgressBar::no_length(), "{msg} {spinner} {bytes}"),
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(crate::output::one_line(name))
}
