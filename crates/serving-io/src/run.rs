//! What a file says about one run: checked timelines, the tool's own figures, and what is missing.
//!
//! A [`Run`] is plain data. Readers fill it and decide nothing about metrics: what a figure means,
//! which percentile is taken and whether the run can be believed is decided by who reads it.
//! Every decision that a reader had to take is in [`Run::notes`], and everything that the file
//! cannot give is in [`Run::missing`]; nothing is skipped silently.

use metrics_core::{RequestTimeline, Seconds};

use crate::prometheus::Snapshot;

/// What one run of a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The line of the file on which the run begins, counted from 1.
    pub line: u64,
    /// Who wrote the file.
    pub tool: Tool,
    /// From which origin the arrivals count.
    pub clock: Clock,
    /// The tool's own wall clock of the whole run, if the file has one; never zero.
    pub duration: Option<RunDuration>,
    /// Whether the run was stopped while requests were left, so that rates have no meaning.
    pub truncated: bool,
    /// What the run was told to do.
    pub declared: Declared,
    /// The counts that the file states.
    pub counts: Counts,
    /// The figures that the tool itself computed, in the order of the file.
    pub stated: Stated,
    /// The requests, in the order of the file; empty where the file has no detail per request.
    pub timelines: Vec<RequestTimeline>,
    /// Further values per request, each column as long as `timelines`.
    pub columns: Vec<Column>,
    /// The engine's own metrics, if the file is a scrape of them; there are then no requests.
    pub server: Option<Box<Snapshot>>,
    /// What the reader had to decide.
    pub notes: Vec<Note>,
    /// What the file cannot give, and what would.
    pub missing: Vec<Missing>,
}

impl Run {
    /// Whether the file has anything per request; without, only stated figures can be shown.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.timelines.is_empty()
    }

    /// The column of that name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name == name)
    }

    /// Adds a note.
    pub(crate) fn note(
        &mut self,
        id: &'static str,
        affects: &'static [&'static str],
        text: String,
    ) {
        self.notes.push(Note { id, affects, text });
    }

    /// Adds what is missing.
    pub(crate) fn lacks(&mut self, what: &'static str, with: impl Into<String>) {
        self.missing.push(Missing { what, with: with.into() });
    }
}

/// Who wrote a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tool {
    /// The tool, for example `vllm bench serve`; empty if the file does not tell.
    pub name: String,
    /// Its version, if the file says it.
    pub version: Option<String>,
    /// What the form of the file tells about its age, if the version is not in it.
    pub age: Option<String>,
}

/// From which origin the arrivals of a run count.
///
/// Two clocks must never be subtracted from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Clock {
    /// No arrival is known.
    #[default]
    Unknown,
    /// Some fixed origin that the file does not tell.
    Unspecified,
    /// A monotonic clock of the client's machine, for example seconds since it booted.
    Monotonic,
    /// The start of the run, and the Unix time of that start if it is known.
    RunStart {
        /// Unix time of the origin in seconds.
        epoch_s: Option<f64>,
    },
    /// Unix time.
    Epoch,
}

/// How long a run took by the tool's own clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunDuration {
    /// The duration, above zero.
    pub value: Seconds,
    /// The key of the file that states it, and what it spans.
    pub from: &'static str,
}

/// How fast requests were to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestRate {
    /// Requests per second, above zero: an open loop.
    PerSecond(f64),
    /// All at once, or as fast as the concurrency limit lets them go.
    Infinite,
}

/// What the run was told to do, as far as the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// The sending rate.
    pub request_rate: Option<RequestRate>,
    /// Most requests in flight that the client allows.
    pub max_concurrency: Option<u64>,
    /// Shape of the gamma-distributed gaps between requests: 1 is Poisson, below is burstier,
    /// infinity is gaps of one length.
    pub burstiness: Option<f64>,
    /// How many requests were to be sent.
    pub num_prompts: Option<u64>,
    /// The model.
    pub model: Option<String>,
    /// The tokenizer of the client.
    pub tokenizer: Option<String>,
    /// The client's backend or protocol.
    pub backend: Option<String>,
    /// The date as the file writes it.
    pub date: Option<String>,
    /// The run's label.
    pub label: Option<String>,
    /// Everything else that the file says about the run, in its order; values that are not text
    /// are written as JSON.
    pub metadata: Vec<(String, String)>,
}

/// The limit on requests in flight that a file states: clients take 0 as no limit.
pub(crate) fn in_flight_limit(stated: Option<u64>) -> Option<u64> {
    stated.filter(|&n| 0 < n)
}

/// Counts that a file states beside or instead of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered.
    pub completed: Option<u64>,
    /// Requests failed.
    pub failed: Option<u64>,
    /// Tokens of all prompts that were answered.
    pub total_input_tokens: Option<u64>,
    /// Tokens of all answers.
    pub total_output_tokens: Option<u64>,
}

/// The figures that a tool printed into its file, under its names and in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stated(Vec<(String, f64)>);

impl Stated {
    /// The figure of that name, for example `mean_ttft_ms`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(n, _)| n == name).map(|&(_, v)| v)
    }

    /// All figures in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(n, v)| (n.as_str(), *v))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a figure.
    pub(crate) fn push(&mut self, name: String, value: f64) {
        self.0.push((name, value));
    }
}

/// Further values per request, for grouping and for findings.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, ending in the unit where it has one.
    pub name: String,
    /// One value a request.
    pub values: Values,
}

/// The values of a [`Column`]; `None` is unknown.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers.
    Number(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<Option<String>>),
}

/// Something that a reader had to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// A stable name, for example `gaps-per-chunk`.
    pub id: &'static str,
    /// The metrics that it affects, by their ids: `ttft`, `tpot`, `itl`, `e2e_latency`, ….
    pub affects: &'static [&'static str],
    /// One sentence with the numbers.
    pub text: String,
}

/// Something that a file cannot give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is missing, for example `ttft per request`.
    pub what: &'static str,
    /// What would give it.
    pub with: String,
}
