//! Scenario files: a workload, the settings of the server, and what is compared.
//!
//! A scenario is a TOML file; those that documentation, tests and benches share are in
//! `scenarios`. Unknown keys are errors, and every error names line and key.
//!
//! # Top level
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `schema_version` | 1, required | this format |
//! | `name` | text, required | letters, digits, `.`, `_` and `-` |
//! | `[title]`, `[about]` | `en` and `zh`, required | what it is called, and what it shows |
//! | `[workload]` | required | what arrives: exactly one of the three below |
//! | `[settings]` | see below | what holds for all variants |
//! | `[[variants]]` | `name` and settings | what is compared, in this order; without any, the settings alone |
//!
//! # Workload
//!
//! | key | value |
//! |---|---|
//! | `[workload.poisson]` | `requests`, `rate_per_s`, `seed`, and the tables `input_tokens` and `output_tokens` |
//! | `[[workload.requests]]` | `id`, `at` (a time from the start, `25ms`), `input_tokens`, `output_tokens`; in order of `at` |
//! | `trace` | the path of a [trace](crate::trace), from the directory in which the tool runs |
//!
//! Lengths are lognormal: `sigma`, and either `median` or `mean` = median · exp(sigma² / 2), rounded
//! to whole tokens and moved to `min` or `max` where they are beyond. `sigma = 0` makes all lengths
//! the same. A mean is the one before `min` and `max` cut.
//!
//! # Settings
//!
//! | key | value | default |
//! |---|---|---|
//! | `policy` | `decode-first` or `vllm-v1` | `decode-first` |
//! | `max_num_seqs` | most requests in a step, 1 to 4294967295 | required; vLLM's own for `vllm-v1` |
//! | `chunk` | most prompt tokens of one request in a step, 1 to 4294967295 | required; not for `vllm-v1` |
//! | `engine` | table of [options](crate::engine) of `vllm-v1`: `{ num_kv_blocks = 500 }` | vLLM's own |
//! | `step_time` | coefficients, `base=8ms,prefill=60us/token` (in two regimes: `decode:…; mixed:…`), the name of a [preset], or the path of a [file](crate::fitted), from the directory in which the tool runs | required |
//! | `slo` | objectives, `ttft<2s,tpot<100ms` | none |
//! | `rate_scale` | a factor on the rate of arrivals as a text, `"2"` or `"1/3"` | `"1"` |
//!
//! Each setting stands in `[settings]`, in a variant, or in both; the variant's wins.
//!
//! # Examples
//!
//! ```
//! use serving_io::scenario::Scenario;
//!
//! let chat = Scenario::built_in()?;
//! assert_eq!(chat.name, "chat");
//! assert_eq!(chat.variants.len(), 2);
//! # Ok::<(), serving_io::IoError>(())
//! ```

use std::path::Path;

use metrics_core::slo::SloSet;
use sched_sim::workload::{LogNormalLengths, PoissonWorkload, RateScale};
use sched_sim::{
    Affine, DecodeFirst, Policy, SimError, Ticks, TwoRegime, Workload, WorkloadRequest,
};
use serde::Deserialize;
use toml::Spanned;

use crate::config::{check_version, parse, text_of_file, wrong};
use crate::engine::EngineOptions;
use crate::error::{IoError, Result, listed, shown};
use crate::fitted::FittedStepTime;
use crate::preset::{self, Preset};
use crate::roofline::{self, RooflineSource};
use crate::run::Note;
use crate::trace::{TraceOptions, read_trace_path};

/// The policy that follows vLLM's scheduler.
pub const VLLM_V1: &str = "vllm-v1";

/// The policies that a scenario or a flag can name.
pub const POLICIES: [&str; 2] = ["decode-first", VLLM_V1];

/// The scenario that runs where nothing else is said.
const BUILT_IN: &str = include_str!("../../../scenarios/chat.toml");

/// A checked scenario.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it is called.
    pub title: Bilingual,
    /// What it shows.
    pub about: Bilingual,
    /// What arrives.
    pub workload: WorkloadSource,
    /// What is compared; at least one.
    pub variants: Vec<Variant>,
}

/// A text in both languages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bilingual {
    /// English.
    pub en: String,
    /// Chinese.
    pub zh: String,
}

/// Where the requests come from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WorkloadSource {
    /// Drawn from a seed.
    Poisson(PoissonWorkload),
    /// Listed in the scenario.
    Requests(Workload),
    /// Read from a trace.
    Trace(String),
}

impl WorkloadSource {
    /// The requests, before any scaling of their rate, and what a reader of a trace had to decide.
    ///
    /// # Errors
    ///
    /// [`IoError`] of the trace, if they come from one.
    ///
    /// # Examples
    ///
    /// ```
    /// use serving_io::scenario::Scenario;
    ///
    /// let chat = Scenario::built_in()?;
    /// let (workload, notes) = chat.workload.load()?;
    /// assert_eq!((workload.len(), notes.len()), (2000, 0));
    /// # Ok::<(), serving_io::IoError>(())
    /// ```
    pub fn load(&self) -> Result<(Workload, Vec<Note>)> {
        let plain = |workload| (workload, Vec::new());
        match self {
            Self::Poisson(load) => {
                let workload = load.generate();
                workload.map(plain).map_err(|source| IoError::Simulation { source })
            }
            Self::Requests(workload) => Ok(plain(workload.clone())),
            Self::Trace(path) => {
                let trace = read_trace_path(Path::new(path), &TraceOptions::default())?;
                Ok((trace.workload, trace.notes))
            }
        }
    }
}

/// One setting of the server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Variant {
    /// Its name, unique in the scenario.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// Most requests in a step; 0 for `vllm-v1`, whose options say it.
    pub max_num_seqs: u64,
    /// Most prompt tokens of one request in a step; 0 for `vllm-v1`, which has none.
    pub chunk: u64,
    /// Options of `vllm-v1`; empty for others.
    pub engine: EngineOptions,
    /// What a step costs.
    pub step_time: StepTimeSource,
    /// The objectives.
    pub slo: SloSet,
    /// The factor on the rate of arrivals.
    pub rate_scale: RateScale,
}

/// What a step costs, as a scenario or a flag says it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StepTimeSource {
    /// Coefficients.
    Affine(Affine),
    /// Coefficients in two regimes.
    TwoRegime(TwoRegime),
    /// What model and GPU allow.
    Roofline(Box<RooflineSource>),
    /// A preset.
    Preset(Box<Preset>),
    /// A file that `goodput fit` wrote.
    Fitted(Box<FittedStepTime>),
}

impl std::str::FromStr for StepTimeSource {
    type Err = IoError;

    /// What model and GPU allow if the text begins with `roofline:`, a step-time file if it ends with `.toml`, coefficients if it has a `=`, else the name
    /// of a preset.
    ///
    /// Coefficients are those of [`TwoRegime`] if there is a `;` in them, else of [`Affine`].
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let simulation = |source| IoError::Simulation { source };
        if let Some(parts) = text.strip_prefix(roofline::PREFIX) {
            return parts.parse().map(|r| Self::Roofline(Box::new(r)));
        }
        if Path::new(text).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")) {
            return step_time_file(Path::new(text));
        }
        if !text.contains('=') {
            return preset::named(text).map(|p| Self::Preset(Box::new(p)));
        }
        if text.contains(';') || text.starts_with("decode:") || text.starts_with("mixed:") {
            return text.parse().map(Self::TwoRegime).map_err(simulation);
        }
        text.parse().map(Self::Affine).map_err(simulation)
    }
}

/// A file of a fitted step time, or of a preset.
fn step_time_file(path: &Path) -> Result<StepTimeSource> {
    let name = path.display().to_string();
    let text = text_of_file(path, "a step time in TOML")?;
    // A preset names its form as a formula.
    if text.lines().any(|l| l.trim_start().starts_with("[coefficients_ms]")) {
        return Preset::parse(&name, &text).map(|p| StepTimeSource::Preset(Box::new(p)));
    }
    FittedStepTime::parse(&name, &text).map(|f| StepTimeSource::Fitted(Box::new(f)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    schema_version: Spanned<u64>,
    name: Spanned<String>,
    title: Bilingual,
    about: Bilingual,
    workload: Spanned<RawWorkload>,
    settings: Option<Spanned<RawSettings>>,
    variants: Option<Spanned<Vec<Spanned<RawVariant>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWorkload {
    poisson: Option<RawPoisson>,
    requests: Option<Vec<Spanned<RawRequest>>>,
    trace: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPoisson {
    requests: Spanned<u64>,
    rate_per_s: Spanned<f64>,
    seed: u64,
    input_tokens: Spanned<RawLengths>,
    output_tokens: Spanned<RawLengths>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLengths {
    median: Option<Spanned<f64>>,
    mean: Option<Spanned<f64>>,
    sigma: Spanned<f64>,
    min: Spanned<u64>,
    max: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest {
    id: String,
    at: Spanned<String>,
    input_tokens: u64,
    output_tokens: u64,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSettings {
    policy: Option<Spanned<String>>,
    max_num_seqs: Option<Spanned<u64>>,
    chunk: Option<Spanned<u64>>,
    engine: Option<Spanned<toml::Table>>,
    step_time: Option<Spanned<String>>,
    slo: Option<Spanned<String>>,
    rate_scale: Option<Spanned<String>>,
}

/// As [`RawSettings`], with a name; `flatten` would hide where an unknown key stands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVariant {
    name: Spanned<String>,
    policy: Option<Spanned<String>>,
    max_num_seqs: Option<Spanned<u64>>,
    chunk: Option<Spanned<u64>>,
    engine: Option<Spanned<toml::Table>>,
    step_time: Option<Spanned<String>>,
    slo: Option<Spanned<String>>,
    rate_scale: Option<Spanned<String>>,
}

impl RawVariant {
    /// These settings, and the common ones where there are none.
    fn over(self, common: &RawSettings) -> (Spanned<String>, RawSettings) {
        let settings = RawSettings {
            policy: self.policy.or_else(|| common.policy.clone()),
            max_num_seqs: self.max_num_seqs.or_else(|| common.max_num_seqs.clone()),
            chunk: self.chunk.or_else(|| common.chunk.clone()),
            engine: match (self.engine, &common.engine) {
                (Some(own), Some(common)) => {
                    // Option by option, as with the other settings.
                    let (span, mut table) = (own.span(), common.get_ref().clone());
                    table.extend(own.into_inner());
                    Some(Spanned::new(span, table))
                }
                (own, common) => own.or_else(|| common.clone()),
            },
            step_time: self.step_time.or_else(|| common.step_time.clone()),
            slo: self.slo.or_else(|| common.slo.clone()),
            rate_scale: self.rate_scale.or_else(|| common.rate_scale.clone()),
        };
        (self.name, settings)
    }
}

impl Scenario {
    /// The built-in scenario `chat`.
    ///
    /// # Errors
    ///
    /// None: a test reads it.
    pub fn built_in() -> Result<Self> {
        Self::parse("scenarios/chat.toml", BUILT_IN)
    }

    /// Reads a scenario file.
    ///
    /// # Errors
    ///
    /// [`IoError`]: a file that cannot be read, or as [`Scenario::parse`].
    pub fn read_path(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        Self::parse(&name, &text_of_file(path, "a scenario in TOML")?)
    }

    /// A scenario from its text; `file` is only used in messages.
    ///
    /// # Errors
    ///
    /// [`IoError::Config`] with line and key.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let raw: RawScenario = parse(file, text)?;
        let source = Source { file, text };
        check_version(file, text, &raw.schema_version)?;
        let span = raw.workload.span();
        let workload = source.workload(raw.workload.into_inner(), span)?;
        let mut variants: Vec<Variant> = Vec::new();
        let name = source.name(&raw.name)?;
        let span = raw.settings.as_ref().map_or(raw.name.span(), Spanned::span);
        let settings = raw.settings.map(Spanned::into_inner).unwrap_or_default();
        match raw.variants {
            None => {
                let variant = source.variant(&raw.name, settings, span)?;
                variants.push(variant);
            }
            Some(list) if list.get_ref().is_empty() => {
                let problem = "expected at least one variant, or none of this key";
                return Err(source.wrong(list.span(), problem));
            }
            Some(list) => {
                for variant in list.into_inner() {
                    let span = variant.span();
                    let (name, settings) = variant.into_inner().over(&settings);
                    if variants.iter().any(|v| v.name == *name.get_ref()) {
                        let problem = format!("another variant is named `{}`", name.get_ref());
                        return Err(source.wrong(name.span(), problem));
                    }
                    variants.push(source.variant(&name, settings, span)?);
                }
            }
        }
        Ok(Self { name, title: raw.title, about: raw.about, workload, variants })
    }
}

/// The text of a scenario, to say where something stands in it.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

type Span = std::ops::Range<usize>;

impl Source<'_> {
    fn wrong(self, span: Span, problem: impl Into<String>) -> IoError {
        wrong(self.file, self.text, span, problem)
    }

    /// A value that breaks a bound.
    fn expected<T: std::fmt::Display>(self, value: &Spanned<T>, expected: &str) -> IoError {
        let found = shown(&value.get_ref().to_string());
        self.wrong(value.span(), format!("found {found}, expected {expected}"))
    }

    fn name(self, name: &Spanned<String>) -> Result<String> {
        let text = name.get_ref();
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if text.is_empty() || !text.chars().all(good) {
            return Err(self.expected(name, "letters, digits, `.`, `_` and `-`"));
        }
        Ok(text.clone())
    }

    fn variant(self, name: &Spanned<String>, raw: RawSettings, span: Span) -> Result<Variant> {
        let missing = |key: &str| {
            self.wrong(
                span.clone(),
                format!("no `{key}`: give it in [settings] or in each variant"),
            )
        };
        let known = |p: &str| POLICIES.contains(&p);
        if let Some(policy) = raw.policy.as_ref().filter(|p| !known(p.get_ref())) {
            return Err(self.expected(policy, &format!("a policy: {}", listed(POLICIES))));
        }
        let default = DecodeFirst::default().name();
        let policy = raw.policy.map_or_else(|| default.to_owned(), Spanned::into_inner);
        let is_vllm = policy == VLLM_V1;
        let mut engine = EngineOptions::default();
        if let Some(table) = raw.engine {
            let span = table.span();
            if !is_vllm {
                return Err(self.wrong(span, format!("`engine` is for the policy {VLLM_V1}")));
            }
            for (name, value) in table.into_inner() {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                engine.set(&name, &value).map_err(|e| self.wrong(span.clone(), e.to_string()))?;
            }
        }
        let limit = |key: &str, value: Option<Spanned<u64>>| {
            let value = value.ok_or_else(|| missing(key))?;
            if !(1..=u64::from(u32::MAX)).contains(value.get_ref()) {
                return Err(self.expected(&value, "1 to 4294967295"));
            }
            Ok(value.into_inner())
        };
        let (mut max_num_seqs, mut chunk) = (0, 0);
        if !is_vllm {
            max_num_seqs = limit("max_num_seqs", raw.max_num_seqs)?;
            chunk = limit("chunk", raw.chunk)?;
        } else if raw.max_num_seqs.is_some() {
            let seqs = limit("max_num_seqs", raw.max_num_seqs)?;
            engine.set("max_num_seqs", &seqs.to_string())?;
        }
        let step_time = raw.step_time.ok_or_else(|| missing("step_time"))?;
        let step_time = step_time
            .get_ref()
            .parse()
            .map_err(|e: IoError| self.wrong(step_time.span(), e.to_string()))?;
        let slo = match raw.slo {
            None => SloSet::none(),
            Some(slo) => {
                let parsed = slo.get_ref().parse();
                parsed.map_err(|e: metrics_core::Error| self.wrong(slo.span(), e.to_string()))?
            }
        };
        let rate_scale = match raw.rate_scale {
            None => RateScale::new(1, 1),
            Some(ref scale) => scale.get_ref().parse(),
        };
        let at = raw.rate_scale.map_or(span.clone(), |s| s.span());
        let rate_scale = rate_scale.map_err(|e| self.wrong(at, e.to_string()))?;
        let name = self.name(name)?;
        Ok(Variant { name, policy, max_num_seqs, chunk, engine, step_time, slo, rate_scale })
    }

    fn workload(self, raw: RawWorkload, span: Span) -> Result<WorkloadSource> {
        match (raw.poisson, raw.requests, raw.trace) {
            (Some(raw), None, None) => self.poisson(raw).map(WorkloadSource::Poisson),
            (None, Some(list), None) => self.requests(list, span).map(WorkloadSource::Requests),
            (None, None, Some(path)) if path.get_ref().trim().is_empty() => {
                Err(self.expected(&path, "the path of a trace"))
            }
            (None, None, Some(path)) => Ok(WorkloadSource::Trace(path.into_inner())),
            _ => Err(self.wrong(span, "expected exactly one of `poisson`, `requests`, `trace`")),
        }
    }

    fn poisson(self, raw: RawPoisson) -> Result<PoissonWorkload> {
        if !(1..=u64::from(u32::MAX)).contains(raw.requests.get_ref()) {
            return Err(self.expected(&raw.requests, "1 to 4294967295 requests"));
        }
        let rate = *raw.rate_per_s.get_ref();
        if !(1e-6 <= rate && rate <= 1e9) {
            return Err(self.expected(&raw.rate_per_s, "from 1e-6 to 1e9 requests per second"));
        }
        Ok(PoissonWorkload {
            requests: raw.requests.into_inner(),
            rate_per_s: rate,
            seed: raw.seed,
            input: self.lengths(raw.input_tokens)?,
            output: self.lengths(raw.output_tokens)?,
        })
    }

    fn lengths(self, raw: Spanned<RawLengths>) -> Result<LogNormalLengths> {
        let span = raw.span();
        let raw = raw.into_inner();
        let sigma = *raw.sigma.get_ref();
        if !(0.0 <= sigma && sigma <= 10.0) {
            return Err(self.expected(&raw.sigma, "a sigma from 0 to 10"));
        }
        let (typical, shift) = match (raw.median, raw.mean) {
            (Some(median), None) => (median, 0.0),
            (None, Some(mean)) => (mean, sigma * sigma / 2.0),
            _ => return Err(self.wrong(span, "expected either `median` or `mean`")),
        };
        let length = *typical.get_ref();
        if !(0.0 < length && length < 1e9) {
            return Err(self.expected(&typical, "a length above 0 and below 1e9 tokens"));
        }
        let (min, max) = (*raw.min.get_ref(), *raw.max.get_ref());
        if min < 1 {
            return Err(self.expected(&raw.min, "at least 1 token"));
        }
        if !(min <= max && max <= Workload::LARGEST_TOKENS) {
            return Err(self.expected(&raw.max, "a length from `min` to 4294967295 tokens"));
        }
        Ok(LogNormalLengths { median: length * (-shift).exp(), sigma, min, max })
    }

    fn requests(self, list: Vec<Spanned<RawRequest>>, span: Span) -> Result<Workload> {
        if list.is_empty() {
            return Err(self.wrong(span, "expected at least one request"));
        }
        let mut spans = Vec::with_capacity(list.len());
        let mut requests = Vec::with_capacity(list.len());
        for request in list {
            spans.push(request.span());
            let r = request.into_inner();
            let at: Ticks = (r.at.get_ref().parse())
                .map_err(|e: SimError| self.wrong(r.at.span(), e.to_string()))?;
            requests.push(WorkloadRequest::new(r.id, at, r.input_tokens, r.output_tokens));
        }
        let ids: Vec<_> = requests.iter().map(|r| r.id.clone()).collect();
        Workload::new(requests).map_err(|e| {
            let row = match &e {
                SimError::Unsorted { row, .. } => row.checked_sub(1),
                SimError::DuplicateId { second, .. } => second.checked_sub(1),
                SimError::RequestTokens { id, .. } => ids.iter().position(|i| i == id),
                _ => None,
            };
            let at = row.and_then(|i| spans.get(i)).cloned().unwrap_or(span);
            self.wrong(at, e.to_string())
        })
    }
}
