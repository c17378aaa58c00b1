//! Which format a file has, told by its content, and the one way in.
//!
//! [`read`] looks at the beginning of a file (unpacked if it is a gzip or, with the feature
//! `zstd`, a zstd file) and asks each of [`READERS`] in turn; the name of the file plays no part.
//! [`Options::format`] skips the question. A new format is one module with one [`Reader`] and one
//! line in [`READERS`].
//!
//! | name | content | told by |
//! |---|---|---|
//! | `vllm` | [result of `vllm bench serve`](crate::vllm) | a JSON object with `model_id` and `num_prompts` |
//! | `goodput` | [our timelines](crate::timeline) | a JSON object with `"kind": "goodput-timelines"`, or whose keys are all fields of a timeline |
//! | `jsonl` | [any log with one JSON object a line](crate::generic) | a JSON object, with a column map or a key that has a field's name |
//! | `csv` | [any table](crate::generic) | a first line that is not JSON, with a column map or a column that has a field's name |

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use crate::columns::{ColumnMap, nearly, valid_fields};
use crate::error::{IoError, Place, Result, columns_shown, listed, shown};
use crate::generic::{self, GenericCsv, GenericJsonl};
use crate::input::{Head, Input, unreadable};
use crate::json;
use crate::rows::Stream;
use crate::run::Run;
use crate::timeline::Timelines;
use crate::vllm::Vllm;

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Result of `vllm bench serve`.
    Vllm,
    /// Our own timelines, one JSON object a line.
    Timeline,
    /// A log with one JSON object a line.
    GenericJsonl,
    /// A table with a header.
    GenericCsv,
}

impl Format {
    /// All formats, in the order in which they are tried.
    pub const ALL: [Self; 4] = [Self::Vllm, Self::Timeline, Self::GenericJsonl, Self::GenericCsv];

    /// The name that selects it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Timeline => "goodput",
            Self::GenericJsonl => "jsonl",
            Self::GenericCsv => "csv",
        }
    }

    /// What it is, in words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Vllm => "vllm bench serve result",
            Self::Timeline => "goodput timelines",
            Self::GenericJsonl => "JSON lines",
            Self::GenericCsv => "CSV",
        }
    }
}

impl FromStr for Format {
    type Err = IoError;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| IoError::UnknownFormatName {
            name: shown(name),
            known: listed(Self::ALL.map(Self::name)),
        })
    }
}

/// How to read a file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; told by the content if absent.
    pub format: Option<Format>,
    /// What the columns of a generic file mean; by their names if empty.
    pub map: ColumnMap,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadFile {
    /// The file's name as given.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// How it was packed, if it was.
    pub compression: Option<&'static str>,
    /// Its runs, at least one.
    pub runs: Vec<Run>,
}

/// A reader of one format.
pub trait Reader: Sync {
    /// The format that it reads.
    fn format(&self) -> Format;

    /// Whether a file that begins so has this format.
    fn recognizes(&self, head: &Head, options: &Options) -> bool;

    /// Reads the whole file into its runs, at least one.
    ///
    /// # Errors
    ///
    /// [`IoError`] with the place, what was found and what would be right.
    fn read(&self, input: Input, options: &Options) -> Result<Vec<Run>>;

    /// Reads the file request by request into `to`, so that its run has no timelines. A format that
    /// cannot be read so, as by default, is read whole, and nothing goes to `to`.
    ///
    /// # Errors
    ///
    /// As [`Reader::read`], and what the sink says.
    fn stream(&self, input: Input, options: &Options, to: &mut Stream<'_>) -> Result<Vec<Run>> {
        let _ = to;
        self.read(input, options)
    }
}

/// All readers, in the order in which they are asked.
pub static READERS: &[&dyn Reader] = &[&Vllm, &Timelines, &GenericJsonl, &GenericCsv];

/// Reads a file by its path.
///
/// # Errors
///
/// [`IoError`]: a directory, a file that cannot be opened, or as [`read`].
pub fn read_path(path: &Path, options: &Options) -> Result<ReadFile> {
    read(&path.display().to_string(), open(path)?, options)
}

/// Opens a file that is no directory.
///
/// # Errors
///
/// [`IoError`]: a directory, or a file that cannot be opened.
pub fn open(path: &Path) -> Result<File> {
    let name = path.display().to_string();
    if path.is_dir() {
        return Err(IoError::Directory { at: Box::new(Place::file(&name)) });
    }
    File::open(path).map_err(|e| unreadable(&name, &e))
}

/// Reads a file from any source; `name` is only used in messages.
///
/// # Errors
///
/// [`IoError`] with the place, what was found and what would be right, as one line.
///
/// # Examples
///
/// ```
/// use serving_io::{Options, read};
///
/// let csv = "ttft_ms,e2e_ms,output_tokens\n400,1000,4\n";
/// let file = read("log.csv", csv.as_bytes(), &Options::default())?;
/// let metrics = file.runs[0].timelines[0].metrics().expect("all three are known");
/// assert_eq!(metrics.ttft.get(), 0.4);
/// assert!((metrics.tpot.get() - 0.2).abs() < 1e-12); // 0.6 s over 3 gaps
/// # Ok::<(), serving_io::IoError>(())
/// ```
pub fn read(name: &str, reader: impl Read + 'static, options: &Options) -> Result<ReadFile> {
    let input = Input::new(name, reader)?;
    let reader = reader_for(&input, options)?;
    let compression = input.compression;
    let runs = reader.read(input, options)?;
    Ok(ReadFile { name: name.to_owned(), format: reader.format(), compression, runs })
}

/// Reads a file request by request into `to`, without holding it, where its format allows; see
/// [`Reader::stream`].
///
/// # Errors
///
/// As [`read`], and what the sink says.
///
/// # Examples
///
/// ```
/// use metrics_core::table::RequestTable;
/// use serving_io::{Options, Stream, stream};
///
/// let csv = "ttft_ms,e2e_ms,output_tokens\n400,1000,4\n";
/// let mut table = RequestTable::default();
/// let mut push = |request: &_| Ok(table.push(request));
/// let file = stream("log.csv", csv.as_bytes(), &Options::default(), &mut Stream::new(&mut push))?;
/// assert!(file.runs[0].timelines.is_empty());
/// assert_eq!(table.len(), 1);
/// # Ok::<(), serving_io::IoError>(())
/// ```
pub fn stream(
    name: &str,
    reader: impl Read + 'static,
    options: &Options,
    to: &mut Stream<'_>,
) -> Result<ReadFile> {
    let input = Input::new(name, reader)?;
    let reader = reader_for(&input, options)?;
    let compression = input.compression;
    let runs = reader.stream(input, options, to)?;
    Ok(ReadFile { name: name.to_owned(), format: reader.format(), compression, runs })
}

/// The reader that the options name, else the first that recognizes the content.
fn reader_for(input: &Input, options: &Options) -> Result<&'static dyn Reader> {
    let found = match options.format {
        Some(format) => READERS.iter().find(|r| r.format() == format),
        None => READERS.iter().find(|r| r.recognizes(&input.head, options)),
    };
    found.copied().ok_or_else(|| unknown(input))
}

/// What to say about content of no known format.
fn unknown(input: &Input) -> IoError {
    let at = Box::new(Place::file(&input.name));
    let head = &input.head;
    if head.text.trim().is_empty() {
        let expected = "benchmark results or a request log".to_owned();
        return IoError::Empty { at, expected };
    }
    if head.is_json_object() && head.keys.is_empty() {
        let found = "a JSON object without a key".to_owned();
        return IoError::UnknownFormat { at, found, expected: formats() };
    }
    if let Some(tool) = other_tool(head) {
        return IoError::OtherTool { at, tool, reads: formats() };
    }
    if head.is_json_object() && head.whole && json::ends_early(&head.text) {
        let line = head.text.lines().count() as u64;
        let at = Box::new(Place::line(&input.name, line));
        return IoError::Truncated { at, inside: "a JSON object" };
    }
    if let Some(columns) = generic::columns_of(head) {
        for column in &columns {
            if let Some(meant) = nearly(column, |_| false) {
                let at = Box::new(at.key(column.clone()));
                return IoError::Misspelt { at, meant };
            }
        }
        let example = columns.first().cloned().unwrap_or_default();
        let (columns, valid) = (columns_shown(&columns), valid_fields());
        return IoError::NothingMapped { at, columns, example: shown(&example), valid };
    }
    let found = format!("begins with `{}`", shown(head.first_line().trim()));
    IoError::UnknownFormat { at, found, expected: formats() }
}

/// The tool that writes such a file, with its article, where no reader reads it.
///
/// Told by keys that no other tool writes: their own names, or a combination.
fn other_tool(head: &Head) -> Option<&'static str> {
    const SGLANG: &str = "an SGLang";
    const AIPERF: &str = "an AIPerf";
    const GUIDELLM: &str = "a GuideLLM";
    const INFERENCE_PERF: &str = "an inference-perf";
    const LLMPERF: &str = "an llmperf";
    let text = head.text.trim_start();
    let first = head.first_line();
    if first.starts_with("Metric,avg,min,max,sum,p1,") {
        return Some(AIPERF);
    }
    if first.starts_with("Run Info,Run Info,") {
        return Some(GUIDELLM);
    }
    let listed = text.strip_prefix('[').map(|rest| json::outer_keys(rest.as_bytes()));
    let keys = listed.as_ref().unwrap_or(&head.keys);
    let has = |key: &str| keys.iter().any(|k| k == key);
    let all = |names: &[&str]| names.iter().all(|n| has(n));
    if has("total_output_tokens_retokenized") || all(&["server_info", "dataset_name"]) {
        return Some(SGLANG);
    }
    if has("aiperf_version")
        || (all(&["metadata", "metrics"]) && text.contains("\"credit_issued_ns\""))
    {
        return Some(AIPERF);
    }
    if has("metadata") && text.contains("\"guidellm_version\"") {
        return Some(GUIDELLM);
    }
    if all(&["load_summary", "successes", "failures"])
        || (listed.is_some() && all(&["start_time", "end_time", "request", "info"]))
    {
        return Some(INFERENCE_PERF);
    }
    let of_llmperf = keys.iter().any(|k| k.starts_with("results_inter_token_latency_s"))
        || (all(&["inter_token_latency_s", "request_output_throughput_token_per_s"]));
    of_llmperf.then_some(LLMPERF)
}

/// The formats, for a message.
fn formats() -> String {
    let names = Format::ALL.map(|f| format!("{} (`{}`)", f.title(), f.name()));
    names.join(", ")
}
