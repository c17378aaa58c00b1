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
//! | `[workload.generate]` | requests drawn from a seed, with the keys below |
//! | `[[workload.requests]]` | `id`, `at` (a time from the start, `25ms`), `input_tokens`, `output_tokens`, and if orders shall know it `priority` (0, the lowest runs first), and `cancel_after` (`2s`) if its client goes away so long after; in order of `at` |
//! | `trace` | the path of a [trace](crate::trace), from the directory in which the tool runs |
//!
//! | key of `generate` | value | default |
//! |---|---|---|
//! | `requests` | how many, 1 to 4294967295 | required |
//! | `rate_per_s` | mean arrivals per second, 1e-6 to 1e9; of sessions, if there are any | required |
//! | `arrivals` | an [`ArrivalLaw`] | `poisson` |
//! | `input_tokens`, `output_tokens` | a [law of lengths](crate::lengths) | required without `pairs` |
//! | `pairs` | the path of a trace from which prompts are drawn with their answers | none |
//! | `system_prompts` | [`SystemPrompts`], on top of `input_tokens` | none |
//! | `turns`, `think` | [`Sessions`]: a law of how many turns, and a [`Delay`] between them | none |
//! | `think_after` | from when that counts, from the `arrival` of a turn or from its `answer` ([`ThinkAfter`]) | `arrival`; for `users`, `answer` |
//! | `cancel` | [`Cancellations`], `"10%,exponential:mean=5s"`: clients who go away | none |
//! | `seed` | a whole number | required |
//!
//! # Settings
//!
//! | key | value | default |
//! |---|---|---|
//! | `policy` | one of [`POLICIES`] | `decode-first` |
//! | `max_num_seqs` | most requests in a step, 1 to 4294967295 | required; vLLM's own for `vllm-v1` |
//! | `chunk` | most prompt tokens in a step, 1 to 4294967295, of one request or of all as the [`RULES`](crate::policy::RULES) say | required by policies that have one |
//! | `max_num_batched_tokens` | most prompt tokens in a step of policies that [take it](crate::policy::takes_batched_tokens) | 4096 |
//! | `kv_blocks`, `block_size` | KV blocks and the tokens in each; not for `vllm-v1` | no limit, 16 |
//! | `order` | who is next in the queue: `fcfs`, `sjf` (fewest tokens first) or `priority`; not for `vllm-v1` | `fcfs` |
//! | `preemption` | `recompute`, or `swap` with `swap_time` (`"1us/token"`, one way); for policies that [may swap](crate::policy::may_swap), with `kv_blocks` | `recompute` |
//! | `enable_prefix_caching` | whether `sglang` with `kv_blocks` keeps prefixes that were computed (its radix cache) | `true` |
//! | `max_waiting`, `max_waiting_tokens` | who arrives is refused when so many requests wait, or with its prompt more tokens than this; for `vllm-v1` a gateway does it | any number |
//! | `token_bucket` | a [`TokenBucket`], `"10/s,burst=20"`; likewise | none |
//! | `admission_rule` | an [`AdmissionRule`], `"queue=16,kv=0.9,slo=500ms,window=30s"`; likewise | none |
//! | `timeout` | how long clients wait for the last token; who has not got it by then is timed out | without end |
//! | `until` | no step starts after this much simulated time | none |
//! | `warm_up`, `cool_down` | what is measured leaves out so many requests, `500`, or so much time, `"60s"`, from the first arrival on and before the last ([`Cuts`]); `warm_up = "auto"` is what MSER-5 finds | all is measured |
//! | `replicas`, `router` | servers behind a [`RouterKind`] | 1, `least-requests` |
//! | `users`, `think` | so many users in place of the rate of `generate`, who wait for the answer and think for a [`Delay`], between sessions if `generate` has `turns` | none, `0s` |
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

use std::path::{Path, PathBuf};

use metrics_core::measured::{Cut, Cuts};
use metrics_core::slo::SloSet;
use sched_sim::fleet::RouterKind;
use sched_sim::workload::{
    ArrivalLaw, Cancellations, Delay, LengthLaw, Lengths, RateScale, Sessions, SystemPrompts,
    ThinkAfter, WorkloadSpec,
};
use sched_sim::{
    AdmissionRule, Affine, DecodeFirst, KvPool, Order, Policy, Preemption, SimError, Ticks,
    TokenBucket, TwoRegime, Workload, WorkloadRequest,
};
use serde::Deserialize;
use toml::Spanned;

use crate::config::{check_version, parse, text_of_file, wrong};
use crate::engine::EngineOptions;
use crate::error::{IoError, Result, listed, shown};
use crate::fitted::FittedStepTime;
use crate::lengths;
use crate::policy::{
    ServerOptions, caches_prefixes, in_words, may_swap, swap_time, takes_batched_tokens,
    takes_chunk,
};
use crate::preset;
use crate::roofline::{self, RooflineSource};
use crate::run::Note;
use crate::trace::{TraceOptions, read_trace_path};

pub use crate::policy::{POLICIES, VLLM_V1};

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
    /// The files that it names, so that nothing is written over them.
    pub files: Vec<PathBuf>,
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
    Generated(Box<WorkloadSpec>),
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
            Self::Generated(spec) => {
                let workload = spec.generate();
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
    /// Most prompt tokens in a step, of one request or of all; 0 for policies that have none.
    pub chunk: u64,
    /// What else the server is told; for `vllm-v1` whom a gateway in front of it refuses.
    pub server: ServerOptions,
    /// Options of `vllm-v1`; empty for others.
    pub engine: EngineOptions,
    /// What a step costs.
    pub step_time: StepTimeSource,
    /// The objectives.
    pub slo: SloSet,
    /// The factor on the rate of arrivals.
    pub rate_scale: RateScale,
    /// Servers behind the router.
    pub replicas: u64,
    /// Who gets a request, where there are several.
    pub router: RouterKind,
    /// Users who wait for their answers, in place of a rate.
    pub users: Option<u64>,
    /// How long they think.
    pub think: Delay,
    /// How long clients wait.
    pub timeout: Option<Ticks>,
    /// When the run is cut.
    pub until: Option<Ticks>,
    /// What is not measured of it.
    pub cuts: Cuts,
}

/// Most servers behind a router.
pub const MOST_REPLICAS: u64 = 100_000;

/// Most users of a closed loop.
pub const MOST_USERS: u64 = 1_000_000;

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
    /// A step-time file, or a preset, which is one that is built in.
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
        if is_step_time_file(text) {
            return step_time_file(Path::new(text));
        }
        if !text.contains('=') {
            return preset::named(text).map(|p| Self::Fitted(Box::new(p)));
        }
        if text.contains(';') || text.starts_with("decode:") || text.starts_with("mixed:") {
            return text.parse().map(Self::TwoRegime).map_err(simulation);
        }
        text.parse().map(Self::Affine).map_err(simulation)
    }
}

impl StepTimeSource {
    /// The file that a text of a step time names, if it names one: that of a fit, or the
    /// configuration of a model.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::Path;
    /// use serving_io::scenario::StepTimeSource;
    ///
    /// let file = StepTimeSource::file_of("roofline:config=my/config.json,gpu=h100");
    /// assert_eq!(file, Some(Path::new("my/config.json")));
    /// assert_eq!(StepTimeSource::file_of("llama-3.1-8b-h100-sxm"), None);
    /// ```
    #[must_use]
    pub fn file_of(text: &str) -> Option<&Path> {
        let text = text.trim();
        match text.strip_prefix(roofline::PREFIX) {
            Some(parts) => roofline::config_of(parts),
            None => is_step_time_file(text).then(|| Path::new(text)),
        }
    }
}

/// Whether a text of a step time is the name of a file.
fn is_step_time_file(text: &str) -> bool {
    Path::new(text).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"))
}

/// A file of a fitted step time.
fn step_time_file(path: &Path) -> Result<StepTimeSource> {
    let text = text_of_file(path, "a step time in TOML")?;
    FittedStepTime::parse(&path.display().to_string(), &text)
        .map(|f| StepTimeSource::Fitted(Box::new(f)))
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
    generate: Option<Spanned<RawGenerate>>,
    requests: Option<Vec<Spanned<RawRequest>>>,
    trace: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGenerate {
    requests: Spanned<u64>,
    rate_per_s: Spanned<f64>,
    arrivals: Option<Spanned<String>>,
    input_tokens: Option<Spanned<String>>,
    output_tokens: Option<Spanned<String>>,
    pairs: Option<Spanned<String>>,
    system_prompts: Option<Spanned<String>>,
    turns: Option<Spanned<String>>,
    think: Option<Spanned<String>>,
    think_after: Option<Spanned<String>>,
    cancel: Option<Spanned<String>>,
    seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest {
    id: String,
    at: Spanned<String>,
    input_tokens: u64,
    output_tokens: u64,
    #[serde(default)]
    priority: i64,
    cancel_after: Option<Spanned<String>>,
}

macro_rules! settings {
    ($($key:ident: $value:ty,)*) => {
        #[derive(Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RawSettings {
            $($key: Option<Spanned<$value>>,)*
        }

        /// As [`RawSettings`], with a name; `flatten` would hide where an unknown key stands.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RawVariant {
            name: Spanned<String>,
            $($key: Option<Spanned<$value>>,)*
        }

        impl RawVariant {
            /// These settings, and the common ones where there are none.
            fn over(mut self, common: &RawSettings) -> (Spanned<String>, RawSettings) {
                if let (Some(own), Some(common)) = (&mut self.engine, &common.engine) {
                    // Option by option, as with the other settings.
                    let mut table = common.get_ref().clone();
                    table.extend(std::mem::take(own.get_mut()));
                    *own.get_mut() = table;
                }
                let settings = RawSettings {
                    $($key: self.$key.or_else(|| common.$key.clone()),)*
                };
                (self.name, settings)
            }
        }
    };
}

/// A text, or a number of requests without quotes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a number of requests, or a text such as \"60s\" or \"500\"")]
enum TextOrCount {
    Count(u64),
    Text(String),
}

/// The text of a setting that may be a number.
fn text_of(value: Option<&Spanned<TextOrCount>>) -> Option<Spanned<String>> {
    let value = value?;
    let text = match value.get_ref() {
        TextOrCount::Count(n) => n.to_string(),
        TextOrCount::Text(text) => text.clone(),
    };
    Some(Spanned::new(value.span(), text))
}

settings! {
    policy: String,
    max_num_seqs: u64,
    chunk: u64,
    max_num_batched_tokens: u64,
    kv_blocks: u64,
    block_size: u64,
    order: String,
    preemption: String,
    swap_time: String,
    enable_prefix_caching: bool,
    max_waiting: u64,
    max_waiting_tokens: u64,
    token_bucket: String,
    admission_rule: String,
    timeout: String,
    until: String,
    warm_up: TextOrCount,
    cool_down: TextOrCount,
    replicas: u64,
    router: String,
    users: u64,
    think: String,
    engine: toml::Table,
    step_time: String,
    slo: String,
    rate_scale: String,
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
        let files = raw.files();
        let span = raw.workload.span();
        let after_arrival = raw.thinks_after_arrival();
        let workload = source.workload(raw.workload.into_inner(), span)?;
        let mut variants: Vec<Variant> = Vec::new();
        let name = source.name(&raw.name)?;
        let span = raw.settings.as_ref().map_or(raw.name.span(), Spanned::span);
        let settings = raw.settings.map(Spanned::into_inner).unwrap_or_default();
        match raw.variants {
            None => {
                source.users_of(settings.users.as_ref(), &workload, after_arrival.as_ref())?;
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
                    source.users_of(settings.users.as_ref(), &workload, after_arrival.as_ref())?;
                    variants.push(source.variant(&name, settings, span)?);
                }
            }
        }
        Ok(Self { name, title: raw.title, about: raw.about, workload, variants, files })
    }
}

impl RawScenario {
    /// Where it says that think times count from arrivals, if it does.
    fn thinks_after_arrival(&self) -> Option<Span> {
        let after = self.workload.get_ref().generate.as_ref()?.get_ref().think_after.as_ref()?;
        (after.get_ref().trim() == ThinkAfter::Arrival.name()).then(|| after.span())
    }

    /// The files that its texts name, each once.
    fn files(&self) -> Vec<PathBuf> {
        fn text(value: Option<&Spanned<String>>) -> Option<&str> {
            value.map(|text| text.get_ref().as_str())
        }
        let workload = self.workload.get_ref();
        let mut files: Vec<&Path> =
            text(workload.trace.as_ref()).map(Path::new).into_iter().collect();
        if let Some(drawn) = workload.generate.as_ref().map(Spanned::get_ref) {
            files.extend(text(drawn.pairs.as_ref()).map(Path::new));
            let laws = [&drawn.input_tokens, &drawn.output_tokens, &drawn.turns];
            files.extend(laws.into_iter().filter_map(|law| lengths::file_of(text(law.as_ref())?)));
        }
        let settings = self.settings.as_ref().map(|s| s.get_ref().step_time.as_ref());
        let variants = self.variants.iter().flat_map(Spanned::get_ref);
        let step_times =
            settings.into_iter().chain(variants.map(|v| v.get_ref().step_time.as_ref()));
        files.extend(step_times.filter_map(|time| StepTimeSource::file_of(text(time)?)));
        let mut named: Vec<PathBuf> = Vec::new();
        for file in files {
            if !named.iter().any(|n| n == file) {
                named.push(file.to_owned());
            }
        }
        named
    }
}

/// Servers and clients of a variant.
struct Around {
    replicas: u64,
    router: RouterKind,
    users: Option<u64>,
    think: Delay,
    timeout: Option<Ticks>,
    until: Option<Ticks>,
    cuts: Cuts,
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
        let policy = raw.policy.as_ref().map_or(default, |p| p.get_ref()).to_owned();
        let is_vllm = policy == VLLM_V1;
        let server = self.server(&policy, &raw)?;
        let around = self.around(&raw)?;
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
            if takes_chunk(&policy) {
                chunk = limit("chunk", raw.chunk)?;
            }
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
        Ok(Variant {
            name,
            policy,
            max_num_seqs,
            chunk,
            server,
            engine,
            step_time,
            slo,
            rate_scale,
            replicas: around.replicas,
            router: around.router,
            users: around.users,
            think: around.think,
            timeout: around.timeout,
            until: around.until,
            cuts: around.cuts,
        })
    }

    /// A count up to `max`, if it is there.
    fn count(self, n: Option<&Spanned<u64>>, max: u64) -> Result<Option<u64>> {
        match n {
            Some(n) if !(1..=max).contains(n.get_ref()) => {
                Err(self.expected(n, &format!("1 to {max}")))
            }
            n => Ok(n.map(|n| *n.get_ref())),
        }
    }

    /// What stands around the servers: how many they are, and who comes.
    fn around(self, raw: &RawSettings) -> Result<Around> {
        let time = str::parse::<Ticks>;
        let replicas = self.count(raw.replicas.as_ref(), MOST_REPLICAS)?.unwrap_or(1);
        if let (1, Some(router)) = (replicas, &raw.router) {
            let problem = "`router` says nothing without several `replicas`";
            return Err(self.wrong(router.span(), problem));
        }
        let users = self.count(raw.users.as_ref(), MOST_USERS)?;
        if let (None, Some(think)) = (users, &raw.think) {
            return Err(self.wrong(think.span(), "`think` is for `users`"));
        }
        if let (Some(_), Some(given)) = (users, &raw.rate_scale) {
            let problem = "`rate_scale` is for an open loop: `users` wait for their answers";
            return Err(self.wrong(given.span(), problem));
        }
        let think = self.read(raw.think.clone(), |text| {
            let think: Delay = text.parse()?;
            think.check("think").map(|()| think)
        })?;
        let router = self.read(raw.router.clone(), str::parse)?;
        Ok(Around {
            replicas,
            router: router.unwrap_or(RouterKind::LeastRequests),
            users,
            think: think.unwrap_or(Delay::Constant(Ticks::ZERO)),
            timeout: self.read(raw.timeout.clone(), time)?,
            until: self.read(raw.until.clone(), time)?,
            cuts: Cuts {
                warm_up: self.read(text_of(raw.warm_up.as_ref()), str::parse::<Cut>)?,
                cool_down: self.read(text_of(raw.cool_down.as_ref()), Cut::cool_down)?,
            },
        })
    }

    /// That users are of generated requests.
    fn users_of(
        self,
        users: Option<&Spanned<u64>>,
        workload: &WorkloadSource,
        after_arrival: Option<&Span>,
    ) -> Result<()> {
        let Some(users) = users else { return Ok(()) };
        if let Some(span) = after_arrival {
            let problem = "`users` wait for their answers, so that `think_after` is `answer`";
            return Err(self.wrong(span.clone(), problem));
        }
        if matches!(workload, WorkloadSource::Generated(_)) {
            return Ok(());
        }
        let problem = "`users` need requests that are drawn, `workload.generate`";
        Err(self.wrong(users.span(), problem))
    }

    /// What a server is told besides its policy, batch and chunk.
    fn server(self, policy: &str, raw: &RawSettings) -> Result<ServerOptions> {
        fn span<T>(key: &'static str, value: Option<&Spanned<T>>) -> Option<(&'static str, Span)> {
            value.map(|value| (key, value.span()))
        }
        let given = [
            span("max_num_batched_tokens", raw.max_num_batched_tokens.as_ref()),
            span("kv_blocks", raw.kv_blocks.as_ref()),
            span("block_size", raw.block_size.as_ref()),
            span("order", raw.order.as_ref()),
            span("preemption", raw.preemption.as_ref()),
            span("swap_time", raw.swap_time.as_ref()),
            span("enable_prefix_caching", raw.enable_prefix_caching.as_ref()),
            span("max_waiting", raw.max_waiting.as_ref()),
            span("max_waiting_tokens", raw.max_waiting_tokens.as_ref()),
            span("token_bucket", raw.token_bucket.as_ref()),
            span("admission_rule", raw.admission_rule.as_ref()),
        ];
        for (key, span) in given.into_iter().flatten() {
            let problem = match key {
                "max_waiting" | "max_waiting_tokens" | "token_bucket" | "admission_rule" => {
                    continue;
                }
                _ if policy == VLLM_V1 => {
                    format!("`{key}` is not for {VLLM_V1}, which has the table `engine`")
                }
                "max_num_batched_tokens" if !takes_batched_tokens(policy) => {
                    format!("`{key}` is for {}", in_words(takes_batched_tokens))
                }
                "preemption" | "swap_time" if !may_swap(policy) => {
                    format!("`{key}` is for {}", in_words(may_swap))
                }
                "enable_prefix_caching" if !caches_prefixes(policy) => {
                    format!("`{key}` is for sglang; {VLLM_V1} has it in the table `engine`")
                }
                "block_size" | "preemption" | "swap_time" | "enable_prefix_caching"
                    if raw.kv_blocks.is_none() =>
                {
                    format!("`{key}` says nothing without `kv_blocks`")
                }
                _ => continue,
            };
            return Err(self.wrong(span, problem));
        }
        let limit = |n| self.count(n, u32::MAX.into());
        let order = match &raw.order {
            Some(order) => {
                let parsed = order.get_ref().parse::<Order>();
                Some(parsed.map_err(|_| self.expected(order, "fcfs, sjf or priority"))?)
            }
            None => None,
        };
        Ok(ServerOptions {
            max_num_batched_tokens: limit(raw.max_num_batched_tokens.as_ref())?,
            kv_blocks: limit(raw.kv_blocks.as_ref())?,
            block_size: self.count(raw.block_size.as_ref(), KvPool::LARGEST_BLOCK)?,
            order,
            preemption: self.preemption(raw.preemption.as_ref(), raw.swap_time.as_ref())?,
            enable_prefix_caching: raw.enable_prefix_caching.as_ref().map(|on| *on.get_ref()),
            max_waiting: raw.max_waiting.as_ref().map(|n| *n.get_ref()),
            max_waiting_tokens: raw.max_waiting_tokens.as_ref().map(|n| *n.get_ref()),
            token_bucket: self
                .read(raw.token_bucket.clone(), str::parse::<TokenBucket>)?
                .map(Box::new),
            admission_rule: self
                .read(raw.admission_rule.clone(), str::parse::<AdmissionRule>)?
                .map(Box::new),
        })
    }

    /// What becomes of the KV of a decode that is preempted.
    fn preemption(
        self,
        preemption: Option<&Spanned<String>>,
        time: Option<&Spanned<String>>,
    ) -> Result<Option<Preemption>> {
        match (preemption.map(|p| p.get_ref().as_str()), preemption, time) {
            (Some("swap"), _, Some(time)) => {
                let per_token = swap_time(time.get_ref());
                let per_token = per_token.map_err(|e| self.wrong(time.span(), e))?;
                Ok(Some(Preemption::Swap { per_token }))
            }
            (Some("swap"), Some(swap), None) => {
                Err(self.wrong(swap.span(), "swap needs `swap_time`, such as \"1us/token\""))
            }
            (_, _, Some(time)) => {
                Err(self
                    .wrong(time.span(), "`swap_time` says nothing without preemption = \"swap\""))
            }
            (Some("recompute"), _, None) => Ok(Some(Preemption::Recompute)),
            (_, Some(other), None) => Err(self.expected(other, "recompute or swap")),
            (_, None, None) => Ok(None),
        }
    }

    fn workload(self, raw: RawWorkload, span: Span) -> Result<WorkloadSource> {
        match (raw.generate, raw.requests, raw.trace) {
            (Some(raw), None, None) => {
                self.generate(raw).map(|spec| WorkloadSource::Generated(Box::new(spec)))
            }
            (None, Some(list), None) => self.requests(list, span).map(WorkloadSource::Requests),
            (None, None, Some(path)) if path.get_ref().trim().is_empty() => {
                Err(self.expected(&path, "the path of a trace"))
            }
            (None, None, Some(path)) => Ok(WorkloadSource::Trace(path.into_inner())),
            _ => Err(self.wrong(span, "expected exactly one of `generate`, `requests`, `trace`")),
        }
    }

    fn generate(self, raw: Spanned<RawGenerate>) -> Result<WorkloadSpec> {
        let span = raw.span();
        let raw = raw.into_inner();
        if !(1..=u64::from(u32::MAX)).contains(raw.requests.get_ref()) {
            return Err(self.expected(&raw.requests, "1 to 4294967295 requests"));
        }
        let rate_per_s = *raw.rate_per_s.get_ref();
        if !(1e-6 <= rate_per_s && rate_per_s <= 1e9) {
            return Err(self.expected(&raw.rate_per_s, "from 1e-6 to 1e9 requests per second"));
        }
        let arrivals = self.read(raw.arrivals, |text| {
            let law: ArrivalLaw = text.parse()?;
            law.check("arrivals", rate_per_s).map(|()| law)
        })?;
        let law = |key: &str, text: Option<Spanned<String>>| -> Result<Option<LengthLaw>> {
            self.read(text, |text| {
                let law = lengths::law(text)?;
                law.check(key).map_err(|source| IoError::Simulation { source })?;
                Ok::<_, IoError>(law)
            })
        };
        let input = law("input_tokens", raw.input_tokens)?;
        let output = law("output_tokens", raw.output_tokens)?;
        let pairs = self.read(raw.pairs, |path| lengths::pairs(Path::new(path)))?;
        let lengths = match (input, output, pairs) {
            (Some(input), Some(output), None) => Lengths::Independent { input, output },
            (None, None, Some(pairs)) => pairs,
            _ => {
                let problem = "expected either `input_tokens` and `output_tokens`, or `pairs`";
                return Err(self.wrong(span, problem));
            }
        };
        let system_prompts = self.read(raw.system_prompts, |text| {
            let system: SystemPrompts = text.parse()?;
            system.check("system_prompts").map(|()| system)
        })?;
        let turns = law("turns", raw.turns)?;
        let think = self.read(raw.think, |text| {
            let think: Delay = text.parse()?;
            think.check("think").map(|()| think)
        })?;
        let think_after = raw.think_after.as_ref().map(Spanned::span);
        let after = self.read(raw.think_after, str::parse::<ThinkAfter>)?;
        let sessions = match (turns, think, think_after) {
            (None, None, None) => None,
            (None, None, Some(span)) => {
                return Err(self.wrong(span, "`think_after` is for `turns` and `think`"));
            }
            (Some(turns), Some(think), _) => {
                Some(Sessions { turns, think, after: after.unwrap_or_default() })
            }
            _ => return Err(self.wrong(span, "expected both `turns` and `think`, or neither")),
        };
        let cancellations = self.read(raw.cancel, |text| {
            let law: Cancellations = text.parse()?;
            law.check("cancel").map(|()| law)
        })?;
        let spec = WorkloadSpec {
            requests: raw.requests.into_inner(),
            rate_per_s,
            arrivals: arrivals.unwrap_or_default(),
            lengths,
            system_prompts,
            sessions,
            cancellations,
            seed: raw.seed,
        };
        spec.check().map_err(|e| self.wrong(span, e.to_string()))?;
        Ok(spec)
    }

    /// What a text says, if it is there.
    fn read<T, E: std::fmt::Display>(
        self,
        text: Option<Spanned<String>>,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        let Some(text) = text else { return Ok(None) };
        let read = read(text.get_ref());
        read.map(Some).map_err(|e| self.wrong(text.span(), e.to_string()))
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
            let mut request = WorkloadRequest::new(r.id, at, r.input_tokens, r.output_tokens);
            request.priority = r.priority;
            request.set_cancel_after(self.read(r.cancel_after, str::parse::<Ticks>)?);
            requests.push(request);
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
