//! Traces: what arrived at a server, as a [`Workload`] of the simulator.
//!
//! | name | content | told by |
//! |---|---|---|
//! | `azure` | [Azure LLM inference trace](azure) | a CSV header with `TIMESTAMP`, `ContextTokens` and `GeneratedTokens` |
//! | `burstgpt` | [BurstGPT trace](burstgpt) | a CSV header with `Timestamp`, `Request tokens` and `Response tokens` |
//! | `mooncake` | [Mooncake trace](mooncake), with shared prefixes | a JSON object with `timestamp`, `input_length`, `output_length` and `hash_ids` |
//! | `goodput` | [our timelines](timelines) | as [`crate::timeline`] |
//! | `jsonl` | [one JSON object a line](generic) | a JSON object, with a map or a key that has a field's name |
//! | `csv` | [any table](generic) | a first line that is not JSON, with a map or a column that has a field's name |
//!
//! The content decides, not the name of the file; a gzip file is unpacked. A new format is one
//! module with one [`TraceReader`] and one line in [`READERS`].
//!
//! # What holds for every format
//!
//! - **Time is exact.** Decimal digits become whole attoseconds without a float in between; what
//!   is finer is rounded to the nearest.
//! - **Time zero is the first row.** What the file's clock said then is [`TraceFile::epoch`], or
//!   in the note `clock-shifted`. Timelines with a header have an origin of their own, and keep it.
//! - **Rows are in order of arrival.** A row that arrives before the one above it is an error, and
//!   so is one more than a year (366 days) after the first: such stamps are mistakes of unit or
//!   clock. Timelines may be in any order, and are sorted.
//! - **Ids are unique.** Without a column for them, requests are named by their line.
//! - **A row with 0 tokens** of prompt or answer asks for nothing that a scheduler could do. It is
//!   left out, and the notes `no-input` and `no-output` say how many and where the first one is.
//! - Everything else that is wrong is an error of one line with file, line, column and value.
//!
//! The rate is scaled by [`Workload::scale_rate`], and a [`Slice`] is a part of a trace.
//! [`TraceProfile`] says what a workload is like, and [`write_request`] writes it.

pub mod azure;
pub mod burstgpt;
mod collect;
pub mod generic;
pub mod map;
pub mod mooncake;
mod profile;
mod slice;
mod stamp;
pub mod timelines;
mod write;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use sched_sim::Workload;

pub use map::TraceMap;
pub use profile::{TraceProfile, shared_prefix};
pub use slice::Slice;
pub use write::write_request;

use crate::error::{IoError, Place, Result, listed, shown};
use crate::generic::columns_of;
use crate::input::{Head, Input, unreadable};
use crate::run::Note;
use azure::Azure;
use burstgpt::BurstGpt;
use generic::{TraceCsv, TraceJsonl};
use mooncake::Mooncake;
use timelines::TimelineTrace;

/// A format of traces that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceFormat {
    /// Azure LLM inference trace.
    Azure,
    /// BurstGPT trace.
    BurstGpt,
    /// Mooncake trace.
    Mooncake,
    /// Our own timelines, of which only the load is taken.
    Timelines,
    /// One JSON object a line.
    Jsonl,
    /// A table with a header.
    Csv,
}

impl TraceFormat {
    /// All formats, in the order in which they are tried.
    pub const ALL: [Self; 6] =
        [Self::Azure, Self::BurstGpt, Self::Mooncake, Self::Timelines, Self::Jsonl, Self::Csv];

    /// The name that selects it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Azure => "azure",
            Self::BurstGpt => "burstgpt",
            Self::Mooncake => "mooncake",
            Self::Timelines => "goodput",
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
        }
    }

    /// What it is, in words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Azure => "Azure LLM inference trace",
            Self::BurstGpt => "BurstGPT trace",
            Self::Mooncake => "Mooncake trace",
            Self::Timelines => "goodput timelines",
            Self::Jsonl => "JSON lines",
            Self::Csv => "CSV",
        }
    }
}

impl FromStr for TraceFormat {
    type Err = IoError;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| IoError::UnknownFormatName {
            name: shown(name),
            known: listed(Self::ALL.map(Self::name)),
        })
    }
}

/// How to read a trace.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// The format; told by the content if absent.
    pub format: Option<TraceFormat>,
    /// What the columns of a generic file mean; by their names if empty.
    pub map: TraceMap,
}

/// A trace as a workload, and what was decided about it.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// The file's name as given.
    pub name: String,
    /// Its format.
    pub format: TraceFormat,
    /// How it was packed, if it was.
    pub compression: Option<&'static str>,
    /// The requests; at least one.
    pub workload: Workload,
    /// The calendar time of time zero, if the file says it.
    pub epoch: Option<Epoch>,
    /// What the reader had to decide.
    pub notes: Vec<Note>,
}

/// A calendar time, exactly: attoseconds since 1970 began, in UTC or, where a file names no zone,
/// in the file's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    unix: u128,
    zoned: bool,
}

impl Epoch {
    /// Unix time, in attoseconds.
    #[must_use]
    pub const fn unix_attoseconds(self) -> u128 {
        self.unix
    }

    /// Unix time in seconds, to the nearest float: some hundred nanoseconds.
    #[must_use]
    pub fn unix_seconds(self) -> f64 {
        self.unix as f64 / 1e18
    }

    /// Whether the file says the offset from UTC; without it, its stamps are taken as UTC.
    #[must_use]
    pub const fn is_zoned(self) -> bool {
        self.zoned
    }
}

impl fmt::Display for Epoch {
    /// The calendar time to the nanosecond, rounded down: `2023-11-16 18:15:46.68059`, and ` UTC`
    /// if that is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NANOSECOND: u128 = 1_000_000_000;
        const SECOND: u128 = 1_000_000_000 * NANOSECOND;
        let zone = if self.zoned { " UTC" } else { "" };
        let seconds = i64::try_from(self.unix / SECOND).unwrap_or(i64::MAX);
        let nanoseconds = i32::try_from(self.unix % SECOND / NANOSECOND).unwrap_or_default();
        match Timestamp::from_duration(SignedDuration::new(seconds, nanoseconds)) {
            Ok(at) => {
                let text = at.to_string().replacen('T', " ", 1);
                write!(f, "{}{zone}", text.trim_end_matches('Z'))
            }
            Err(_) => write!(f, "{seconds} s after 1970{zone}"),
        }
    }
}

/// What a reader finds in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceContent {
    /// The requests; at least one.
    pub workload: Workload,
    /// The calendar time of time zero, if the file says it.
    pub epoch: Option<Epoch>,
    /// What the reader had to decide.
    pub notes: Vec<Note>,
}

/// A reader of one format.
pub trait TraceReader: Sync {
    /// The format that it reads.
    fn format(&self) -> TraceFormat;

    /// Whether a file that begins so has this format.
    fn recognizes(&self, head: &Head, options: &TraceOptions) -> bool;

    /// Reads the whole file.
    ///
    /// # Errors
    ///
    /// [`IoError`] with the place, what was found and what would be right.
    fn read(&self, input: Input, options: &TraceOptions) -> Result<TraceContent>;
}

/// All readers, in the order in which they are asked.
pub static READERS: &[&dyn TraceReader] =
    &[&Azure, &BurstGpt, &Mooncake, &TimelineTrace, &TraceJsonl, &TraceCsv];

/// Reads a trace by its path.
///
/// # Errors
///
/// [`IoError`]: a directory, a file that cannot be opened, or as [`read_trace`].
pub fn read_trace_path(path: &Path, options: &TraceOptions) -> Result<TraceFile> {
    let name = path.display().to_string();
    if path.is_dir() {
        return Err(IoError::Directory { at: Box::new(Place::file(&name)) });
    }
    let file = File::open(path).map_err(|e| unreadable(&name, &e))?;
    read_trace(&name, file, options)
}

/// Reads a trace from any source; `name` is only used in messages.
///
/// # Errors
///
/// [`IoError`] with the place, what was found and what would be right, as one line.
///
/// # Examples
///
/// ```
/// use serving_io::trace::{TraceFormat, TraceOptions, read_trace};
///
/// let csv = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
///            2030-01-01 00:00:00.2500000,374,44\r\n\
///            2030-01-01 00:00:01.2500001,396,109";
/// let trace = read_trace("t.csv", csv.as_bytes(), &TraceOptions::default())?;
/// assert_eq!(trace.format, TraceFormat::Azure);
/// assert_eq!(trace.epoch.unwrap().to_string(), "2030-01-01 00:00:00.25");
/// let second = &trace.workload.requests()[1];
/// assert_eq!(second.arrival, "1.0000001s".parse()?); // to the digit
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_trace(
    name: &str,
    reader: impl Read + 'static,
    options: &TraceOptions,
) -> Result<TraceFile> {
    let input = Input::new(name, reader).map_err(|e| match e {
        IoError::Empty { at, .. } => empty(at),
        other => other,
    })?;
    let reader = match options.format {
        Some(format) => READERS.iter().find(|r| r.format() == format),
        None => READERS.iter().find(|r| r.recognizes(&input.head, options)),
    };
    let reader = reader.ok_or_else(|| unknown(&input))?;
    let compression = input.compression;
    let TraceContent { workload, epoch, notes } = reader.read(input, options)?;
    let name = name.to_owned();
    Ok(TraceFile { name, format: reader.format(), compression, workload, epoch, notes })
}

/// What to say about a file without content.
fn empty(at: Box<Place>) -> IoError {
    IoError::Empty { at, expected: "a trace, one request a row".to_owned() }
}

/// What to say about content of no known format.
fn unknown(input: &Input) -> IoError {
    let at = Box::new(Place::file(&input.name));
    let head = &input.head;
    if head.parquet {
        let found = "is a Parquet file, which is read as requests and not as a trace".to_owned();
        let expected = "CSV or JSON lines".to_owned();
        return IoError::Compression { at, found, expected };
    }
    if head.text.trim().is_empty() {
        return empty(at);
    }
    match columns_of(head).filter(|c| !c.is_empty()) {
        Some(columns) => map::unmapped(&input.name, "arrival", &columns),
        None => IoError::UnknownFormat {
            at,
            found: format!("begins with `{}`", shown(head.first_line().trim())),
            expected: {
                let names = TraceFormat::ALL.map(|f| format!("{} (`{}`)", f.title(), f.name()));
                names.join(", ")
            },
        },
    }
}
