//! Why a file cannot be read: which file, which row or key, what was found, what would be right.

use std::fmt;

use metrics_core::format::things;

/// The result of a reader of this crate.
pub type Result<T, E = IoError> = std::result::Result<T, E>;

/// Where in a file something stands.
///
/// Prints as `FILE`, `FILE, line 3`, `` FILE, line 3, `first_token_s` `` or
/// `` FILE, `ttfts[17]` ``.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file's name as the user gave it.
    pub file: String,
    /// The line, counted from 1.
    pub line: Option<u64>,
    /// The column of a table or the key of an object.
    pub key: Option<String>,
    /// The index in the array under that key, counted from 0 as the tool's own language does.
    pub index: Option<usize>,
}

impl Place {
    /// The file as a whole.
    #[must_use]
    pub fn file(file: &str) -> Self {
        Self { file: file.to_owned(), ..Self::default() }
    }

    /// A line of it.
    #[must_use]
    pub fn line(file: &str, line: u64) -> Self {
        Self { line: Some(line), ..Self::file(file) }
    }

    /// The same place, narrowed to a key or column.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The same place, narrowed to an element of the array under its key.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_path(&self.file))?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        match (&self.key, self.index) {
            (Some(key), Some(index)) => write!(f, ", `{}[{index}]`", shown_key(key)),
            (Some(key), None) => write!(f, ", `{}`", shown_key(key)),
            (None, Some(index)) => write!(f, ", index {index}"),
            (None, None) => Ok(()),
        }
    }
}

/// A place that costs nothing until an error needs it.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) file: &'a str,
    pub(crate) line: u64,
    pub(crate) key: Option<&'a str>,
    pub(crate) index: Option<usize>,
}

impl<'a> Spot<'a> {
    /// A line.
    pub(crate) fn line(file: &'a str, line: u64) -> Self {
        Self { file, line, key: None, index: None }
    }

    /// The same line, narrowed to a key or column.
    pub(crate) fn key(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    /// The same key, narrowed to an element.
    pub(crate) fn index(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }

    /// The place for an error.
    #[expect(clippy::unnecessary_box_returns, reason = "errors hold it boxed, to stay small")]
    pub(crate) fn place(self) -> Box<Place> {
        let mut place = Place::line(self.file, self.line);
        place.key = self.key.map(str::to_owned);
        place.index = self.index;
        Box::new(place)
    }
}

/// A text of a file as it may stand in a one-line message: control characters escaped, cut at 60
/// characters.
pub(crate) fn shown(text: &str) -> String {
    cut(text, 60)
}

/// A key as it may stand in a message: long enough for a path such as
/// `benchmarks[0].requests.successful[0].info.timings.request_start`.
fn shown_key(key: &str) -> String {
    cut(key, 120)
}

/// A text with control characters escaped, cut at that many characters.
fn cut(text: &str, longest: usize) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == longest {
            out.push('…');
            break;
        }
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// A file's name as it may stand in a message: whole, since two files of one folder differ at the
/// end, unless it is absurdly long.
fn shown_path(path: &str) -> String {
    const LONGEST: usize = 200;
    let mut out = String::new();
    let n = path.chars().count();
    if LONGEST < n {
        out.push('…');
    }
    for c in path.chars().skip(n.saturating_sub(LONGEST)) {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// The columns or keys of a file as they may stand in a message: as many as fit into a line, and
/// how many more there are.
pub fn columns_shown<S: AsRef<str>>(names: &[S]) -> String {
    const LONGEST: usize = 70;
    let mut out = String::new();
    for (i, name) in names.iter().enumerate() {
        let name = format!("`{}`", shown(name.as_ref()));
        if 0 < i && LONGEST < out.chars().count() + name.chars().count() {
            return format!("{out} and {} more", names.len() - i);
        }
        if 0 < i {
            out.push_str(", ");
        }
        out.push_str(&name);
    }
    if out.is_empty() { "none".to_owned() } else { out }
}

/// A list of our own names as it may stand in a message, each in backquotes.
pub(crate) fn listed<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let parts: Vec<String> =
        names.into_iter().map(|n| format!("`{}`", shown(n.as_ref()))).collect();
    parts.join(", ")
}

/// Why a file or a column map cannot be read.
///
/// Every message is one line: the place, then what was found and what would be right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The system cannot open or read the file.
    #[error("{at}: cannot be read: {reason}")]
    Unreadable {
        /// The file.
        at: Box<Place>,
        /// What the system says.
        reason: String,
    },
    /// A directory where a file is needed.
    #[error(
        "{at}: is a directory without the files of a benchmark tool, expected a file or {known}",
        known = crate::artifacts::KNOWN
    )]
    Directory {
        /// The directory.
        at: Box<Place>,
    },
    /// A directory with the results of several runs.
    #[error("{at}: holds several results, expected one of {files}")]
    SeveralRuns {
        /// The directory.
        at: Box<Place>,
        /// The files.
        files: String,
    },
    /// A file without content.
    #[error("{at}: is empty, expected {expected}")]
    Empty {
        /// The file.
        at: Box<Place>,
        /// What would be right.
        expected: String,
    },
    /// Bytes that are no UTF-8 text.
    #[error("{at}, byte {offset}: {found}, expected UTF-8 text")]
    Encoding {
        /// The file, and the line if it is known.
        at: Box<Place>,
        /// The offset of the first bad byte, counted from 0 in the file as unpacked; within the
        /// line where a line is given.
        offset: u64,
        /// What stands there.
        found: String,
    },
    /// A compressed file that this build cannot unpack.
    #[error("{at}: {found}, expected {expected}")]
    Compression {
        /// The file.
        at: Box<Place>,
        /// The kind of compression, or what is wrong with it.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// Content of no known format.
    #[error("{at}: {found}; expected {expected}")]
    UnknownFormat {
        /// The file.
        at: Box<Place>,
        /// What the content looks like.
        found: String,
        /// The known formats.
        expected: String,
    },
    /// A column or key that is no field but nearly one, which is in no other column.
    #[error(
        "{at}: no field is called so, did you mean `{meant}`? Rename it, or say with `--map` what \
         each column means"
    )]
    Misspelt {
        /// The column.
        at: Box<Place>,
        /// The field's name that is closest.
        meant: String,
    },
    /// A column map for a file whose format has its own fields.
    #[error(
        "{at}: is a file of known fields ({title}), which no `--map` can change; leave it out, or \
         say with `--input-format` jsonl, csv or parquet that it is a log of any origin"
    )]
    MapUnused {
        /// The file.
        at: Box<Place>,
        /// What it is.
        title: &'static str,
    },
    /// A name that is no format.
    #[error("`{name}` is no input format; expected one of {known}")]
    UnknownFormatName {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The text ends in the middle of a value.
    #[error("{at}: ends in the middle of {inside}, expected the rest of it: is it truncated?")]
    Truncated {
        /// The place where it ends.
        at: Box<Place>,
        /// What is not finished.
        inside: &'static str,
    },
    /// The text breaks the grammar of JSON or CSV.
    #[error("{at}, column {column}: {found}, expected {expected}")]
    Syntax {
        /// The line, and the key where it is known.
        at: Box<Place>,
        /// The column, counted from 1 in bytes.
        column: u64,
        /// What stands there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A value of the wrong type, out of its range, or an unknown word.
    #[error("{at}: found {found}, expected {expected}")]
    Value {
        /// The value's place.
        at: Box<Place>,
        /// The value as it stands there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A key or column that has no meaning here.
    #[error("{at}: unknown key, {known}")]
    UnknownKey {
        /// The key's place.
        at: Box<Place>,
        /// The key that was probably meant, or the known ones.
        known: String,
    },
    /// A key that the file has to have.
    #[error("{at}: is missing, expected {expected}")]
    MissingKey {
        /// The file and the key.
        at: Box<Place>,
        /// What would be right.
        expected: &'static str,
    },
    /// A key or column that appears twice.
    #[error("{at}: appears twice, expected once")]
    Repeated {
        /// The second place.
        at: Box<Place>,
    },
    /// The values of one request cannot all be true.
    #[error("{at}: {source}{note}")]
    Request {
        /// The row or the element that breaks the rule.
        at: Box<Place>,
        /// The rule, from the type that checks it.
        source: metrics_core::Error,
        /// What to add: the unit of the numbers, where the file has another one.
        note: &'static str,
    },
    /// A mapped column that the file does not have.
    #[error("{at}: no such column; the file has {known}")]
    MissingColumn {
        /// The file and the column.
        at: Box<Place>,
        /// The columns that it has.
        known: String,
    },
    /// A row with more or fewer cells than the header.
    #[error("{at}: {}, expected {expected} as in the header", things(*.found, "cell"))]
    Ragged {
        /// The row.
        at: Box<Place>,
        /// Its cells.
        found: u64,
        /// The header's cells.
        expected: u64,
    },
    /// Two arrays that should run in parallel have different lengths.
    #[error("{at}: holds {}, expected {expected} as in `{other}`", things(*.found as u64, "value"))]
    Lengths {
        /// The second array.
        at: Box<Place>,
        /// How many values it has.
        found: usize,
        /// How many the first has.
        expected: usize,
        /// The first array's key.
        other: &'static str,
    },
    /// Two requests with one id.
    #[error("{at}: request `{id}` is already in line {first_line}, expected unique ids")]
    DuplicateId {
        /// The second row.
        at: Box<Place>,
        /// The id.
        id: String,
        /// The line of the first row.
        first_line: u64,
    },
    /// A partial result that cannot be read or merged.
    #[error("{at}: {what}")]
    Partial {
        /// The file.
        at: Box<Place>,
        /// What is wrong with it, and what would be right.
        what: String,
    },
    /// A part that a trace does not have, or a text that is none.
    #[error("slice `{slice}`: expected {expected}")]
    Slice {
        /// The text.
        slice: String,
        /// What would be right.
        expected: String,
    },
    /// A file without a single request.
    #[error("{at}: holds no requests, expected {expected}")]
    NoRequests {
        /// The file.
        at: Box<Place>,
        /// What would be right.
        expected: &'static str,
    },
    /// No column of the file has a known name, and no map says what they mean.
    #[error(
        "{at}: no column has a field's name; the file has {columns}; map them, as in \
         `--map ttft_ms={example}`, to {valid}"
    )]
    NothingMapped {
        /// The file.
        at: Box<Place>,
        /// Its columns.
        columns: String,
        /// One of them.
        example: String,
        /// The fields to which a column can be mapped.
        valid: String,
    },
    /// No column of a trace is known for a field that every request needs.
    #[error(
        "{at}: no column for {field}; the file has {columns}; map one, for example \
         `--map {example}=COLUMN`; fields are {valid}"
    )]
    Unmapped {
        /// The file.
        at: Box<Place>,
        /// The field.
        field: &'static str,
        /// The file's columns.
        columns: String,
        /// A left side for the map.
        example: &'static str,
        /// The fields to which a column can be mapped.
        valid: String,
    },
    /// Requests that the simulator cannot take.
    #[error("{at}: {source}")]
    Workload {
        /// The file.
        at: Box<Place>,
        /// Why.
        source: Box<sched_sim::SimError>,
    },
    /// A file of ours, a scenario or a preset, that does not follow its format.
    #[error("{at}: {problem}")]
    Config {
        /// The line and the key.
        at: Box<Place>,
        /// What was found and what would be right.
        problem: String,
    },
    /// A name that is no preset.
    #[error(
        "`{name}` is no step-time preset; expected one of {known}, or coefficients such as `base=8ms,prefill=60us/token`"
    )]
    UnknownPreset {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A name that is in no table of models or GPUs.
    #[error("`{name}` is no {kind} that is known; nearest are {near}")]
    UnknownMachine {
        /// Model or GPU.
        kind: &'static str,
        /// The name.
        name: String,
        /// The known names that are nearest.
        near: String,
    },
    /// An option of an engine that cannot be.
    #[error("{problem}")]
    Engine {
        /// The option, what was found, and what would be right.
        problem: String,
    },
    /// Something that the simulator cannot take.
    #[error("{source}")]
    Simulation {
        /// Why.
        source: sched_sim::SimError,
    },
    /// An item of a column map without its two sides.
    #[error("column map `{item}`: expected FIELD=COLUMN, for example `ttft_ms=latency_first`")]
    MapSyntax {
        /// The item.
        item: String,
    },
    /// A left side of a column map that is no field.
    #[error("column map `{item}`: `{field}` is no field, expected {valid}")]
    MapField {
        /// The item.
        item: String,
        /// Its left side.
        field: String,
        /// The fields.
        valid: String,
    },
    /// Two columns of a file for one field.
    #[error("{at}: {field} is already in column `{column}`, expected one column")]
    FieldTwice {
        /// The second column.
        at: Box<Place>,
        /// The field without its unit.
        field: &'static str,
        /// The first column.
        column: String,
    },
    /// Two items of a column map for one field.
    #[error("column map `{item}`: {field} is already mapped to `{column}`, expected one column")]
    MapTwice {
        /// The second item.
        item: String,
        /// The field without its unit.
        field: &'static str,
        /// The first item's column.
        column: String,
    },
}

impl IoError {
    /// Where it happened, unless it concerns no file.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Unreadable { at, .. }
            | Self::Directory { at }
            | Self::SeveralRuns { at, .. }
            | Self::Empty { at, .. }
            | Self::Encoding { at, .. }
            | Self::Compression { at, .. }
            | Self::UnknownFormat { at, .. }
            | Self::Misspelt { at, .. }
            | Self::MapUnused { at, .. }
            | Self::FieldTwice { at, .. }
            | Self::Truncated { at, .. }
            | Self::Syntax { at, .. }
            | Self::Value { at, .. }
            | Self::UnknownKey { at, .. }
            | Self::MissingKey { at, .. }
            | Self::Repeated { at }
            | Self::Request { at, .. }
            | Self::MissingColumn { at, .. }
            | Self::Ragged { at, .. }
            | Self::Lengths { at, .. }
            | Self::DuplicateId { at, .. }
            | Self::NoRequests { at, .. }
            | Self::Partial { at, .. }
            | Self::NothingMapped { at, .. }
            | Self::Unmapped { at, .. }
            | Self::Workload { at, .. }
            | Self::Config { at, .. } => Some(at),
            Self::UnknownFormatName { .. }
            | Self::UnknownPreset { .. }
            | Self::UnknownMachine { .. }
            | Self::Engine { .. }
            | Self::Simulation { .. }
            | Self::Slice { .. }
            | Self::MapSyntax { .. }
            | Self::MapField { .. }
            | Self::MapTwice { .. } => None,
        }
    }
}

/// The field of a timeline that breaks the rule, as the core's error names it.
pub(crate) fn input_of(error: &metrics_core::Error) -> Option<&'static str> {
    use metrics_core::Error as E;
    let input: &'static str = match error {
        E::NotFinite { input, .. }
        | E::TooSmall { input, .. }
        | E::NotAbove { input, .. }
        | E::TooLarge { input, .. }
        | E::Missing { input, .. } => input,
        E::Order { later, .. } => later,
        // Every contradiction but those of two times for one event is about the number of tokens.
        E::Contradiction { what }
            if what.contains("output_token") || what.contains("output token") =>
        {
            "output_tokens"
        }
        E::Contradiction { what } => what.split([' ', '=']).next().and_then(|first| {
            ["ttft", "e2e", "first_token", "last_token"].into_iter().find(|n| *n == first)
        })?,
        _ => return None,
    };
    Some(input.strip_suffix(" after arrival").unwrap_or(input))
}
