//! The figures of a run under the rules of the tools that people use.
//!
//! Tools disagree by definition: on one file the goodput is 3.83 or 2.32 requests a second,
//! depending on whose rule it stands under. Here is one module for each tool, a pure function from
//! what a run knows to that tool's figures, each beside ours; [`RULES`] says in words where they
//! differ, and [`FAULTS`] what is publicly known to be wrong with a tool's own figure.
//!
//! A rule is applied to any run whose data allow it, whoever wrote the file; what the data cannot
//! give under a rule is an error with the reason.

mod aiperf;
mod distserve;
mod guidellm;
mod inference_perf;
mod like;
mod llmperf;
mod mlperf;
mod rules;
mod sglang;
mod sheet;
mod vllm;
mod weighted;

pub use like::like_with_like;
pub use rules::{FAULTS, Fault, RULES, Rule, Topic, fault, rule};

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::report::{Input, Report};

use sheet::Sheet;

/// A tool whose rules are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tool {
    /// `vllm bench serve`.
    Vllm,
    /// SGLang's `bench_serving`.
    Sglang,
    /// NVIDIA AIPerf.
    Aiperf,
    /// GuideLLM.
    Guidellm,
    /// inference-perf.
    InferencePerf,
    /// Ray's llmperf.
    Llmperf,
    /// MLPerf's load generator.
    Mlperf,
    /// DistServe's evaluation.
    DistServe,
}

impl Tool {
    /// All tools, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Vllm,
        Self::Sglang,
        Self::Aiperf,
        Self::Guidellm,
        Self::InferencePerf,
        Self::Llmperf,
        Self::Mlperf,
        Self::DistServe,
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
            Self::DistServe => "distserve",
        }
    }

    /// Its name for reading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::Aiperf => "AIPerf",
            Self::Guidellm => "GuideLLM",
            Self::InferencePerf => "inference-perf",
            Self::Llmperf => "llmperf",
            Self::Mlperf => "MLPerf",
            Self::DistServe => "DistServe",
        }
    }

    /// The version whose rules these are.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self {
            Self::Vllm => "0.33.0",
            Self::Sglang => "0.5.23",
            Self::Aiperf => "0.13.0",
            Self::Guidellm => "0.8.1",
            Self::InferencePerf => "0.7.0",
            Self::Llmperf => "f1d6bed",
            Self::Mlperf => "loadgen",
            Self::DistServe => "OSDI '24",
        }
    }
}

impl FromStr for Tool {
    type Err = Error;

    /// The tool of that name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name).ok_or_else(|| Error::Grammar {
            what: "tool",
            text: name.to_owned(),
            expected: Self::ALL.map(Self::name).join(", "),
        })
    }
}

/// What a run knows.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// What our own report is made of.
    pub input: &'a Input<'a>,
    /// Our own report of it.
    pub report: &'a Report,
    /// Further numbers per request by name, each as long as the timelines: what a reader gives
    /// beside them.
    pub columns: &'a [(&'a str, &'a [Option<f64>])],
    /// Numbers of the run by name, in the unit that ends the name.
    pub numbers: &'a [(&'a str, f64)],
    /// The percentiles wanted, in percent, where the tool lets its user choose.
    pub percentiles: &'a [f64],
}

impl Known<'_> {
    /// The column of the first of these names that there is.
    fn column(&self, names: &[&str]) -> Option<&[Option<f64>]> {
        names.iter().find_map(|name| {
            self.columns.iter().find(|(n, _)| n == name).map(|(_, values)| *values)
        })
    }

    /// The number of the first of these names that there is.
    fn number(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| self.numbers.iter().find(|(n, _)| n == name).map(|&(_, x)| x))
    }
}

/// One figure under a tool's rule, beside ours.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolFigure {
    /// Its key in the tool's own file, with a dot between nested keys.
    pub key: String,
    /// Its name as the tool prints it, with the unit.
    pub label: String,
    /// The value in the tool's unit, or why the run cannot give it.
    pub value: std::result::Result<f64, String>,
    /// Our figure of the same name in the same unit, if there is one.
    pub ours: Option<f64>,
    /// The rule that makes the difference, if there is one.
    pub rule: Option<&'static Rule>,
    /// The public fault that can make the tool's own printed value another than this.
    pub fault: Option<&'static Fault>,
}

/// Relative difference below which two figures are the same: sums in another order.
const SAME: f64 = 1e-9;

/// Whether two figures are the same number but for the order of the sums in them.
#[must_use]
pub fn same_figure(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= SAME * a.abs().max(b.abs())
}

impl ToolFigure {
    /// The rule, if the figure under it is not ours; none if there is no figure.
    #[must_use]
    pub fn difference(&self) -> Option<&'static Rule> {
        match (&self.value, self.ours) {
            (Ok(theirs), Some(ours)) => self.rule.filter(|_| !same_figure(*theirs, ours)),
            (Ok(_), None) => self.rule.filter(|r| r.differs),
            (Err(_), _) => None,
        }
    }
}

/// The figures of a run under a tool's rules, in the order in which the tool prints them.
///
/// # Examples
///
/// ```
/// use metrics_core::interval::Confidence;
/// use metrics_core::report::{Input, Report};
/// use metrics_core::slo::SloSet;
/// use metrics_core::summary::PercentileMethod;
/// use metrics_core::tool_rules::{Known, Tool, figures};
/// use metrics_core::RequestTimeline;
///
/// // 0.4 s to the first of 4 tokens, and 0.6 s for the other three.
/// let timelines = [RequestTimeline::completed("a", 0.0, 0.4, 1.0, 4)?];
/// let slo = SloSet::none();
/// let input = Input {
///     timelines: &timelines,
///     window: None,
///     truncated: false,
///     slo: &slo,
///     method: PercentileMethod::Linear,
///     confidence: Confidence::new(0.95)?,
/// };
/// let report = Report::new(&input)?;
/// let known = Known { input: &input, report: &report, columns: &[], numbers: &[], percentiles: &[99.0] };
/// let figure = |tool, key: &str| {
///     figures(tool, &known).into_iter().find(|f| f.key == key).expect("it has this figure").value
/// };
/// // vLLM divides by the 3 gaps, GuideLLM the whole second by the 4 tokens.
/// assert!((figure(Tool::Vllm, "mean_tpot_ms")? - 200.0).abs() < 1e-9);
/// let guidellm = figure(Tool::Guidellm, "time_per_output_token_ms.successful.mean")?;
/// assert!((guidellm - 250.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn figures(tool: Tool, known: &Known<'_>) -> Vec<ToolFigure> {
    let mut sheet = Sheet::new(tool, known);
    match tool {
        Tool::Vllm => vllm::figures(&mut sheet),
        Tool::Sglang => sglang::figures(&mut sheet),
        Tool::Aiperf => aiperf::figures(&mut sheet),
        Tool::Guidellm => guidellm::figures(&mut sheet),
        Tool::InferencePerf => inference_perf::figures(&mut sheet),
        Tool::Llmperf => llmperf::figures(&mut sheet),
        Tool::Mlperf => mlperf::figures(&mut sheet),
        Tool::DistServe => distserve::figures(&mut sheet),
    }
    sheet.done()
}
