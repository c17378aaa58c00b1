//! Which format a file has, told by its content, and the one way in.
//!
//! [`read`] looks at the beginning of a file (unpacked if it is a gzip or, with the feature
//! `zstd`, a zstd file) and asks each of [`READERS`] in turn; the name of the file plays no part,
//! nor does the order of the keys in a JSON object.
//! [`Options::format`] skips the question. A new format is one module with one [`Reader`] and one
//! line in [`READERS`].
//!
//! | name | content | told by |
//! |---|---|---|
//! | `vllm` | [result of `vllm bench serve`](crate::vllm) | a JSON object with `model_id` and `num_prompts` |
//! | `sglang` | [result of `sglang.bench_serving`](crate::sglang) | a JSON object with `total_output_tokens_retokenized`, or `server_info` and `dataset_name` |
//! | `aiperf` | [results of AIPerf](crate::aiperf) | JSON lines with `metadata` and `metrics`, a JSON object with `aiperf_version`, or a CSV that begins with `Metric,avg,min,max` |
//! | `guidellm` | [results of GuideLLM](crate::guidellm) | a JSON object with `metadata` that holds `guidellm_version`, or a CSV that begins with `Run Info,Run Info,` |
//! | `inference-perf` | [results of inference-perf](crate::inference_perf) | a JSON list whose elements have `start_time` and `end_time`, or a JSON object with `load_summary`, `successes` and `failures` |
//! | `llmperf` | [result of llmperf](crate::llmperf) | a list of objects with `end_to_end_latency_s` and `number_output_tokens`, or an object with `results_inter_token_latency_s…` |
//! | `mlperf` | [summary of MLPerf's loadgen](crate::mlperf) | the title `MLPerf Results Summary` |
//! | `llm-pilot` | [measurements of LLM-Pilot](crate::llm_pilot) | a CSV header with `latency_ms_per_token`, or `first_event_ms` and `ttft_ms` |
//! | `table` | [CSV tables of known layouts](crate::tables) | their headers, without a column map |
//! | `goodput` | [our timelines](crate::timeline) | a JSON object with `"kind": "goodput-timelines"`, or whose keys are all fields of a timeline |
//! | `prometheus` | [what an engine's `/metrics` answers](crate::prometheus) | a first line `# HELP`, `# TYPE` or a sample, without a column map |
//! | `jsonl` | [any log with one JSON object a line](crate::generic) | a JSON object, with a column map or a key that has a field's name |
//! | `csv` | [any table](crate::generic) | a first line that is not JSON, with a column map or a column that has a field's name |
//! | `parquet` | [any Parquet table](crate::parquet_table), with the feature `parquet` | the bytes `PAR1` |

use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use crate::aiperf::Aiperf;
use crate::artifacts;
use crate::columns::{ColumnMap, nearly, valid_fields};
use crate::error::{IoError, Place, Result, columns_shown, listed, shown};
use crate::generic::{self, GenericCsv, GenericJsonl};
use crate::guidellm::Guidellm;
use crate::inference_perf::InferencePerf;
use crate::input::{Head, Input, open};
use crate::llm_pilot::LlmPilot;
use crate::llmperf::Llmperf;
use crate::mlperf::Mlperf;
use crate::parquet_table::GenericParquet;
use crate::prometheus::Prometheus;
use crate::rows::Stream;
use crate::run::Run;
use crate::sglang::Sglang;
use crate::stated;
use crate::tables::KnownTable;
use crate::timeline::Timelines;
use crate::vllm::Vllm;

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Result of `vllm bench serve`.
    Vllm,
    /// Result of `sglang.bench_serving`.
    Sglang,
    /// Result of AIPerf: records, summary or tables.
    Aiperf,
    /// Result of GuideLLM, JSON or CSV.
    Guidellm,
    /// Result of inference-perf: requests, stage or summary.
    InferencePerf,
    /// Result of llmperf.
    Llmperf,
    /// Summary of MLPerf's loadgen.
    Mlperf,
    /// Measurements of LLM-Pilot.
    LlmPilot,
    /// A CSV table of a known layout.
    KnownTable,
    /// Our own timelines, one JSON object a line.
    Timeline,
    /// What an engine's `/metrics` answers.
    Prometheus,
    /// A log with one JSON object a line.
    GenericJsonl,
    /// A table with a header.
    GenericCsv,
    /// A Parquet table.
    GenericParquet,
}

impl Format {
    /// All formats, in the order in which they are tried.
    pub const ALL: [Self; 14] = [
        Self::Vllm,
        Self::Sglang,
        Self::Aiperf,
        Self::Guidellm,
        Self::InferencePerf,
        Self::Llmperf,
        Self::Mlperf,
        Self::LlmPilot,
        Self::KnownTable,
        Self::Timeline,
        Self::Prometheus,
        Self::GenericJsonl,
        Self::GenericCsv,
        Self::GenericParquet,
    ];

    /// The name that selects it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Aiperf => "aiperf",
            Self::Guidellm => "guidellm",
            Self::InferencePerf => "inference-perf",
            Self::Llmperf => "llmperf",
            Self::Mlperf => "mlperf",
            Self::LlmPilot => "llm-pilot",
            Self::KnownTable => "table",
            Self::Timeline => "goodput",
            Self::Prometheus => "prometheus",
            Self::GenericJsonl => "jsonl",
            Self::GenericCsv => "csv",
            Self::GenericParquet => "parquet",
        }
    }

    /// What it is, in words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Vllm => "vllm bench serve result",
            Self::Sglang => "sglang.bench_serving result",
            Self::Aiperf => "AIPerf result",
            Self::Guidellm => "GuideLLM result",
            Self::InferencePerf => "inference-perf result",
            Self::Llmperf => "llmperf result",
            Self::Mlperf => "MLPerf loadgen summary",
            Self::LlmPilot => "LLM-Pilot measurements",
            Self::KnownTable => "table of a known layout",
            Self::Timeline => "goodput timelines",
            Self::Prometheus => "Prometheus metrics",
            Self::GenericJsonl => "JSON lines",
            Self::GenericCsv => "CSV",
            Self::GenericParquet => "Parquet",
        }
    }
}

impl FromStr for Format {
    type Err = IoError;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|f| f.name() == name)
            .ok_or_else(|| IoError::UnknownFormatName { name: shown(name), known: formats() })
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
pub static READERS: &[&dyn Reader] = &[
    &Vllm,
    &Sglang,
    &Aiperf,
    &Guidellm,
    &InferencePerf,
    &Llmperf,
    &Mlperf,
    &LlmPilot,
    &KnownTable,
    &Timelines,
    &Prometheus,
    &GenericJsonl,
    &GenericCsv,
    &GenericParquet,
];

/// Reads a file by its path, or the directory that a tool left; [`ReadFile::name`] is then the file
/// in it that was read, and the note `read-from` names it.
///
/// # Errors
///
/// [`IoError`]: a directory without a tool's files, a file that cannot be opened, or as [`read`].
pub fn read_path(path: &Path, options: &Options) -> Result<ReadFile> {
    if path.is_dir() {
        return artifacts::read(path, options);
    }
    read_file(path, options)
}

/// Reads a file that is no directory.
pub(crate) fn read_file(path: &Path, options: &Options) -> Result<ReadFile> {
    let (name, input) = open(path)?;
    read_input(&name, input, options)
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
    read_input(name, Input::new(name, reader)?, options)
}

fn read_input(name: &str, input: Input, options: &Options) -> Result<ReadFile> {
    let reader = reader_for(&input, options)?;
    let compression = input.compression;
    let runs = reader.read(input, options)?;
    runs.iter().try_for_each(|run| stated::check(name, run))?;
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
    runs.iter().try_for_each(|run| stated::check(name, run))?;
    Ok(ReadFile { name: name.to_owned(), format: reader.format(), compression, runs })
}

/// The reader that the options name, else the first that recognizes the content.
fn reader_for(input: &Input, options: &Options) -> Result<&'static dyn Reader> {
    let found = match options.format {
        Some(format) => READERS.iter().find(|r| r.format() == format),
        None => READERS.iter().find(|r| r.recognizes(&input.head, options)),
    };
    let found = found.copied().ok_or_else(|| unknown(input))?;
    let generic = [Format::GenericJsonl, Format::GenericCsv, Format::GenericParquet];
    if !options.map.is_empty() && !generic.contains(&found.format()) {
        let at = Box::new(Place::file(&input.name));
        return Err(IoError::MapUnused { at, title: found.format().title() });
    }
    Ok(found)
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
        return IoError::UnknownFormat { at, found, expected: format!("one of {}", formats()) };
    }
    if ["shards", "durations_s", "clock"].iter().all(|key| head.has_key(key)) {
        return IoError::Value {
            at,
            found: "a partial result".to_owned(),
            expected: "a log or result; partial results are read by `goodput report --merge`"
                .to_owned(),
        };
    }
    if let Some(line) = head.ends_early {
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
    IoError::UnknownFormat { at, found, expected: format!("one of {}", formats()) }
}

/// The formats, for a message.
fn formats() -> String {
    listed(Format::ALL.map(Format::name))
}
