//! `goodput sim`: a workload under one or several settings, on an exact clock.

mod generate;
mod render;
mod seeds;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use capacity::replica::step_time;
use capacity::watch::Watched;
use metrics_core::RequestTimeline;
use metrics_core::grammar;
use metrics_core::report::{Input, Report, Window};
use metrics_core::slo::SloSet;
use metrics_core::steady::mser5;
use metrics_core::table::RequestTable;
use metrics_core::validity::evidence::Conservation;
use metrics_core::validity::{Evidence, Facts, Finding, Verdict, findings};
use sched_sim::vllm_v1::{VllmConfig, VllmV1Run};
use sched_sim::workload::WorkloadSpec;
use sched_sim::{
    DecodeFirst, OfferedLoad, Policy, RateScale, RequestDetail, RunEnd, RunLimits, RunResult,
    RunStatistics, Simulation, Ticks, Workload,
};
use serving_io::engine::{EngineOptions, Machine};
use serving_io::run::Note;
use serving_io::scenario::{POLICIES, Scenario, StepTimeSource, VLLM_V1, WorkloadSource};
use serving_io::timeline::Header;

use crate::output::{Format, check_outputs};
use crate::report::Objectives;
use crate::trace::Part;

pub use generate::{GeneratorArguments, described};

pub const EXAMPLES: &str = "\
Without a trace or scenario, a built-in workload runs under two settings.
Lists sweep: every combination is one row of a table.

Examples:
  goodput sim
  goodput sim --max-num-seqs 16,64,256 --slo 'ttft<500ms,tpot<50ms'
  goodput sim --rate 10/s --arrivals gamma:cv=2 --input-tokens uniform:100,2000 --requests 1k
  goodput sim --rate 14/s --seeds 10
  goodput sim --turns geometric:mean=4,max=20 --think exponential:mean=10s --policy vllm-v1
  goodput sim --trace azure.csv --max-num-seqs 64 --chunk 512 --slo 'ttft<2s,tpot<100ms' \\
      --step-time base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token
  goodput sim --trace azure.csv --max-num-seqs 64 --chunk 256,512 --rate-scale 1,3/2,2
  goodput sim --trace azure.csv --slice 18:15-18:20 --max-num-seqs 64 --chunk 512
  goodput sim --trace mine.csv --map arrival_s=t,input_tokens=in,output_tokens=out
  goodput sim --policy vllm-v1 --max-num-batched-tokens 2048,8192 --slo 'ttft<500ms'
  goodput sim --engine vllm --engine-args 'vllm serve my/model --max-num-seqs 128'
  goodput sim --max-num-seqs 64 --chunk 256 --requests-out requests.jsonl
  goodput report requests.jsonl --slo 'ttft<500ms'";

/// Arguments of `sim`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Requests to replay: an Azure, BurstGPT or Mooncake trace, our timelines, or CSV or JSON lines
    /// with --map.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    trace: Option<PathBuf>,
    /// A scenario file: workload, settings and objectives together.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    part: Part,
    /// Scheduling policies: decode-first, vllm-v1.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    policy: Vec<String>,
    /// Most requests in the batch [default: 8, or the scenario's; vLLM's own for vllm-v1].
    #[arg(
        long,
        visible_alias = "max-batch-size",
        alias = "max-running-requests",
        value_delimiter = ',',
        value_name = "LIST"
    )]
    max_num_seqs: Vec<String>,
    /// Most prompt tokens of one request in one step; not for vllm-v1 [default: 128, or the
    /// scenario's].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    chunk: Vec<String>,
    /// Factor on the arrival rate, such as 2, 1.5 or 3/2.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    rate_scale: Vec<String>,
    /// What a step costs: coefficients, a preset, or a file of `goodput fit` [default:
    /// llama-3.1-8b-h100-sxm].
    #[arg(long, value_name = "COEFFICIENTS|PRESET|FILE")]
    step_time: Option<String>,
    /// Run every setting with so many seeds, from --seed on: means with intervals, and differences
    /// to the first setting on the same requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=10_000))]
    #[arg(conflicts_with_all = ["trace", "requests_out"])]
    seeds: Option<u64>,
    /// KV bytes of one token, for the KV figures in bytes and for --kv-memory.
    #[arg(long, value_name = "BYTES")]
    kv_bytes_per_token: Option<u64>,
    #[command(flatten)]
    generate: GeneratorArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    objectives: Objectives,
    /// Start no step after this much simulated time; the run is then truncated.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Write every request's timeline, for `goodput report`; needs a single setting.
    #[arg(long, value_name = "FILE")]
    requests_out: Option<PathBuf>,
    /// Execute every step for every request instead of skipping; the figures are the same.
    #[arg(long)]
    reference: bool,
}

macro_rules! engine_arguments {
    ($($(#[$doc:meta])* $field:ident $([$($extra:tt)*])?;)*) => {
        /// Options of the policy vllm-v1, under vLLM's names; each takes a list.
        #[derive(clap::Args, Debug)]
        #[command(next_help_heading = "Options of vllm-v1, where not given as in vLLM 0.33.0")]
        pub struct EngineArguments {
            /// The engine whose scheduler is followed; the same as --policy vllm-v1.
            #[arg(long, value_parser = ["vllm"], conflicts_with = "policy")]
            pub engine: Option<String>,
            /// A `vllm serve` command line, or its flags; what is not modelled is named.
            #[arg(long, value_name = "LINE", requires = "engine", allow_hyphen_values = true)]
            engine_args: Option<String>,
            $($(#[$doc])* #[arg(long, value_delimiter = ',', value_name = "LIST" $(, $($extra)*)?)]
            $field: Vec<String>,)*
        }

        impl EngineArguments {
            /// Name and values of every option that was given.
            fn lists(&self) -> Vec<(&'static str, &[String])> {
                let all = [$((stringify!($field), self.$field.as_slice())),*];
                all.into_iter().filter(|(_, list)| !list.is_empty()).collect()
            }
        }
    };
}

engine_arguments! {
    /// Release whose rules apply, 0.8.5 to 0.33.0.
    engine_version;
    /// Most tokens in a step.
    max_num_batched_tokens;
    /// Most tokens of a request, prompt and answer.
    max_model_len;
    /// KV blocks as vLLM counts them: one of them is the null block.
    num_kv_blocks [visible_alias = "num-gpu-blocks-override"];
    /// Memory of the KV cache, 60GiB.
    kv_memory;
    /// Share of the GPU's memory that the server takes [default: 0.92].
    gpu_memory_utilization;
    /// Memory of one GPU [default: that of the preset's].
    gpu_memory;
    /// Memory for activations and CUDA graphs, not left to the KV cache [default: 0].
    reserved_memory;
    /// Tokens in a KV block [default: 16].
    block_size;
    /// Whether equal prefixes are computed once [default: true].
    enable_prefix_caching [num_args = 0..=1, default_missing_value = "true", require_equals = true];
    /// Whether a prompt can be cut to the rest of a step [default: true].
    enable_chunked_prefill [num_args = 0..=1, default_missing_value = "true", require_equals = true];
    /// Whether two steps are in flight [default: true from 0.14.1].
    async_scheduling [num_args = 0..=1, default_missing_value = "true", require_equals = true];
    /// Who runs first: fcfs or priority [default: fcfs].
    scheduling_policy;
    /// Most tokens of one request in a step; 0 is no limit [default: 0].
    long_prefill_token_threshold;
    /// Whether that limit rises to an equal share of the step [default: false].
    long_prefill_token_threshold_adaptive [num_args = 0..=1, default_missing_value = "true", require_equals = true];
    /// Whether an admission needs room for its whole prompt [default: true from 0.20.2].
    scheduler_reserve_full_isl [num_args = 0..=1, default_missing_value = "true", require_equals = true];
    /// Share of the blocks that an admission leaves free [default: 0].
    watermark;
    /// Most requests that the scheduler lets run [default: max_num_seqs].
    max_num_active_seqs;
    /// Most tokens that the scheduler gives out in a step [default: max_num_batched_tokens].
    max_num_scheduled_tokens;
    /// While something decodes, prefill runs every so many steps [default: 1].
    prefill_schedule_interval;
}

impl EngineArguments {
    /// What is common to all settings, and every combination of the lists.
    pub fn combinations(&self) -> Result<Vec<EngineOptions>> {
        let mut common = EngineOptions::default();
        if let Some(line) = &self.engine_args {
            common = EngineOptions::from_command_line(line)
                .map_err(|e| anyhow!("--engine-args: {e}"))?;
        }
        let mut all = vec![common];
        for (name, values) in self.lists() {
            let mut longer = Vec::new();
            for options in &all {
                for value in values {
                    let mut options = options.clone();
                    options
                        .set(name, value)
                        .map_err(|e| anyhow!("--{}: {e}", name.replace('_', "-")))?;
                    longer.push(options);
                }
            }
            all = longer;
        }
        Ok(all)
    }

    /// The options, for a command that takes one value of each.
    pub fn single(&self) -> Result<Vec<(String, String)>> {
        if let Some((name, values)) = self.lists().into_iter().find(|(_, list)| 1 < list.len()) {
            let name = name.replace('_', "-");
            bail!("--{name}: needs one value here, got {}", values.len());
        }
        let all = self.combinations()?;
        let given = all.iter().flat_map(EngineOptions::given);
        Ok(given.map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    }
}

impl Arguments {
    /// Refuses to write over what is read, or twice into one file.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let step_time = self.step_time.as_ref().map(PathBuf::from);
        let read = [self.trace.clone(), self.scenario.clone(), step_time];
        let inputs: Vec<PathBuf> = read.into_iter().flatten().collect();
        let requests = self.requests_out.as_deref();
        check_outputs(&inputs, &[("-o", output), ("--requests-out", requests)])
    }
}

/// One setting of the server.
#[derive(Clone, Debug, PartialEq)]
struct Setting {
    /// The scenario's name for it, if it has one.
    name: Option<String>,
    policy: String,
    max_num_seqs: u64,
    chunk: u64,
    rate_scale: RateScale,
    step_time: StepTimeSource,
    slo: SloSet,
    /// Options of vllm-v1.
    engine: EngineOptions,
}

impl Setting {
    fn is_vllm(&self) -> bool {
        self.policy == VLLM_V1
    }
}

/// What arrives, and what is to be said about it.
struct Source {
    title: String,
    workload: Workload,
    /// What the requests were drawn from, if they were drawn.
    drawn: Option<WorkloadSpec>,
    notes: Vec<Note>,
}

/// One setting with its run.
struct Simulated {
    setting: Setting,
    requests: usize,
    report: Option<Report>,
    statistics: RunStatistics,
    load: OfferedLoad,
    end: RunEnd,
    /// Steps outside of the range in which the step time is known.
    beyond: Vec<String>,
    /// What vllm-v1 was told.
    config: Option<VllmConfig>,
    /// What a run leaves out, and what was assumed.
    remarks: Vec<String>,
    /// How many requests at the start MSER-5 takes for warm-up; none if no steady part shows.
    warm_up: metrics_core::Result<Option<u64>>,
    /// Why figures of it cannot be used, and for what the others can.
    findings: Vec<Finding>,
    verdict: Verdict,
}

/// All runs, and what they share.
struct Answer {
    title: String,
    drawn: Option<WorkloadSpec>,
    notes: Vec<Note>,
    kv_bytes_per_token: Option<u64>,
    confidence: metrics_core::interval::Confidence,
    runs: Vec<Simulated>,
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let (source, settings) = plan(arguments)?;
    if arguments.requests_out.is_some() && settings.len() != 1 {
        let n = settings.len();
        bail!(
            "--requests-out: needs a single setting, got {n}: give --max-num-seqs and --chunk one value each"
        );
    }
    let limits = RunLimits {
        until: arguments
            .until
            .as_deref()
            .map(|t| t.parse::<Ticks>().map_err(|e| anyhow!("--until: {e}")))
            .transpose()?,
        ..RunLimits::default()
    };
    if let Some(n) = arguments.seeds {
        return seeds::run(arguments, &source, settings, limits, n, format);
    }
    let mut runs = Vec::new();
    for setting in settings {
        runs.push(simulate(arguments, &source.workload, setting, limits)?);
    }
    let answer = Answer {
        title: source.title,
        drawn: source.drawn,
        notes: source.notes,
        kv_bytes_per_token: arguments.kv_bytes_per_token,
        confidence: arguments.objectives.confidence()?,
        runs,
    };
    render::render(&answer, format)
}

/// What arrives, and under which settings.
fn plan(arguments: &Arguments) -> Result<(Source, Vec<Setting>)> {
    let slo = arguments.objectives.set(&[])?;
    let slo = (!slo.is_empty()).then_some(slo);
    if arguments.trace.is_none() {
        if let Some(flag) = arguments.part.given() {
            bail!("{flag}: is for a trace, add --trace FILE");
        }
    }
    if let (Some(flag), Some(path)) = (arguments.generate.given(), &arguments.trace) {
        bail!("{flag}: the requests of {} are not drawn from a seed", path.display());
    }
    let (source, base) = if let Some(path) = &arguments.trace {
        let base = Setting {
            name: None,
            policy: DecodeFirst::default().name().to_owned(),
            max_num_seqs: DecodeFirst::default().max_num_seqs(),
            chunk: DecodeFirst::default().chunk(),
            rate_scale: RateScale::new(1, 1)?,
            step_time: default_step_time()?,
            slo: SloSet::none(),
            engine: EngineOptions::default(),
        };
        (traced(path, &arguments.part)?, vec![base])
    } else {
        let scenario = match &arguments.scenario {
            Some(path) => Scenario::read_path(path).map_err(|e| anyhow!("{e}"))?,
            None => Scenario::built_in().map_err(|e| anyhow!("{e}"))?,
        };
        scenario_settings(arguments, scenario)?
    };
    let step_time = arguments
        .step_time
        .as_deref()
        .map(|t| t.parse::<StepTimeSource>().map_err(|e| anyhow!("--step-time: {e}")))
        .transpose()?;
    let counts = |option: &str, list: &[String]| -> Result<Vec<u64>> {
        list.iter()
            .map(|n| grammar::count(n.trim()).map_err(|e| anyhow!("{option}: {e}")))
            .collect()
    };
    let max_num_seqs = counts("--max-num-seqs", &arguments.max_num_seqs)?;
    let chunks = counts("--chunk", &arguments.chunk)?;
    let scales: Result<Vec<RateScale>> = arguments
        .rate_scale
        .iter()
        .map(|s| s.trim().parse().map_err(|e| anyhow!("--rate-scale: {e}")))
        .collect();
    let scales = scales?;
    let engines = arguments.engine.combinations()?;
    let mut policies = arguments.policy.clone();
    policies.extend(arguments.engine.engine.iter().map(|_| VLLM_V1.to_owned()));
    if !arguments.engine.num_kv_blocks.is_empty() && !arguments.engine.kv_memory.is_empty() {
        bail!("--num-kv-blocks and --kv-memory both say how large the KV cache is: give one");
    }
    let mut settings: Vec<Setting> = Vec::new();
    for base in base {
        for policy in &or_own(&policies, &base.policy) {
            let is_vllm = policy == VLLM_V1;
            // Each policy has its own limits: a list of the other's leaves it as it is.
            let own = if base.is_vllm() == is_vllm { base.max_num_seqs } else { 0 };
            let own = if is_vllm || own > 0 { own } else { DecodeFirst::default().max_num_seqs() };
            let chunk = if base.chunk > 0 { base.chunk } else { DecodeFirst::default().chunk() };
            let chunks = if is_vllm { vec![0] } else { or_own(&chunks, &chunk) };
            let engines = if is_vllm { engines.clone() } else { vec![EngineOptions::default()] };
            for &max_num_seqs in &or_own(&max_num_seqs, &own) {
                for &chunk in &chunks {
                    for engine in &engines {
                        for &rate_scale in &or_own(&scales, &base.rate_scale) {
                            let mut engine = engine.clone().over(&base.engine);
                            if is_vllm && max_num_seqs > 0 {
                                engine.set("max_num_seqs", &max_num_seqs.to_string())?;
                            }
                            if is_vllm && let Some(bytes) = arguments.kv_bytes_per_token {
                                engine.set("kv_bytes_per_token", &bytes.to_string())?;
                            }
                            let setting = Setting {
                                policy: policy.clone(),
                                max_num_seqs,
                                chunk,
                                rate_scale,
                                step_time: step_time.clone().unwrap_or(base.step_time.clone()),
                                slo: slo.clone().unwrap_or(base.slo.clone()),
                                name: base.name.clone(),
                                engine,
                            };
                            // A list replaces what the variants differ in, so that they fall
                            // together.
                            if !settings.iter().any(|s| same(s, &setting)) {
                                settings.push(setting);
                            }
                        }
                    }
                }
            }
        }
    }
    // A setting of vllm-v1 takes 0 for "vLLM's own".
    if max_num_seqs.contains(&0) && settings.iter().any(Setting::is_vllm) {
        bail!("--max-num-seqs: must be at least 1, got 0");
    }
    if !chunks.is_empty() && !settings.is_empty() && settings.iter().all(Setting::is_vllm) {
        bail!("--chunk: is not for {VLLM_V1}, which has --long-prefill-token-threshold");
    }
    let has_options = engines.len() > 1 || engines.iter().any(|e| !e.given().is_empty());
    if has_options && !settings.iter().any(Setting::is_vllm) {
        let mut given: Vec<&str> =
            engines.iter().flat_map(|e| e.given()).map(|(n, _)| *n).collect();
        given.sort_unstable();
        given.dedup();
        let named: Vec<String> =
            given.iter().map(|name| format!("--{}", name.replace('_', "-"))).collect();
        bail!("{}: for {VLLM_V1} alone: add --policy {VLLM_V1}", named.join(", "));
    }
    Ok((source, settings))
}

/// The list of the command line, or the scenario's own value.
fn or_own<T: Clone>(list: &[T], own: &T) -> Vec<T> {
    if list.is_empty() { vec![own.clone()] } else { list.to_vec() }
}

/// Whether two settings run alike, whatever they are called.
fn same(a: &Setting, b: &Setting) -> bool {
    Setting { name: None, ..a.clone() } == Setting { name: None, ..b.clone() }
}

fn default_step_time() -> Result<StepTimeSource> {
    serving_io::preset::DEFAULT.parse().map_err(|e| anyhow!("{e}"))
}

/// The requests of a trace.
fn traced(path: &Path, part: &Part) -> Result<Source> {
    let file = part.read(path)?;
    let slice = part.slice.as_ref().map(|s| format!(", slice {s}")).unwrap_or_default();
    Ok(Source {
        title: format!("{}: {}{slice}", file.name, file.format.title()),
        workload: file.workload,
        drawn: None,
        notes: file.notes,
    })
}

/// The requests and variants of a scenario.
fn scenario_settings(arguments: &Arguments, scenario: Scenario) -> Result<(Source, Vec<Setting>)> {
    let mut source = scenario.workload;
    let mut drawn = None;
    if let WorkloadSource::Generated(spec) = &mut source {
        arguments.generate.apply(spec)?;
        drawn = Some((**spec).clone());
    }
    if let (Some(flag), None) = (arguments.generate.given(), &drawn) {
        bail!("{flag}: the requests of scenario {} are not drawn from a seed", scenario.name);
    }
    let (workload, notes) = source.load().map_err(|e| anyhow!("{e}"))?;
    let source = Source {
        title: format!("{}: {}", scenario.name, scenario.title.en),
        workload,
        drawn,
        notes,
    };
    let settings = scenario
        .variants
        .into_iter()
        .map(|v| Setting {
            name: Some(v.name),
            policy: v.policy,
            max_num_seqs: v.max_num_seqs,
            chunk: v.chunk,
            rate_scale: v.rate_scale,
            step_time: v.step_time,
            slo: v.slo,
            engine: v.engine,
        })
        .collect();
    Ok((source, settings))
}

/// Runs one setting.
fn simulate(
    arguments: &Arguments,
    workload: &Workload,
    setting: Setting,
    limits: RunLimits,
) -> Result<Simulated> {
    let cost = step_time(&setting.step_time)?;
    let scaled;
    let workload = if setting.rate_scale == RateScale::new(1, 1)? {
        workload
    } else {
        scaled = workload.scale_rate(setting.rate_scale)?;
        &scaled
    };
    let cost = Watched::new(cost);
    let (mut config, mut remarks) = (None, Vec::new());
    let (result, load) = if setting.is_vllm() {
        let machine = match &setting.step_time {
            StepTimeSource::Fitted(f) => Machine::named(&f.model, &f.gpu, f.tensor_parallel),
            _ => None,
        };
        let resolved = setting.engine.resolve(machine.as_ref()).map_err(|e| anyhow!("{e}"))?;
        remarks.extend(setting.engine.left_out().iter().cloned());
        remarks.extend(resolved.notes);
        let vllm = VllmV1Run::new(resolved.config.clone());
        let simulation = Simulation::vllm_v1(workload, vllm, &cost).limits(limits);
        let result =
            if arguments.reference { simulation.run_reference()? } else { simulation.run()? };
        remarks.extend(rejections(&result, workload));
        remarks.extend(cut(&result, resolved.config.max_model_len));
        let load = OfferedLoad::of_vllm_v1(workload, &resolved.config, cost.inner())?;
        config = Some(resolved.config);
        (result, load)
    } else {
        let policy = DecodeFirst::new(setting.max_num_seqs, setting.chunk)?;
        if setting.policy != policy.name() {
            bail!(
                "--policy: unknown policy `{}`, this version has {}",
                setting.policy,
                POLICIES.join(", ")
            );
        }
        let simulation = Simulation::new(workload, policy, &cost).limits(limits);
        let result =
            if arguments.reference { simulation.run_reference()? } else { simulation.run()? };
        (result, OfferedLoad::of(workload, policy, cost.inner())?)
    };
    let timelines = result.timelines()?;
    let statistics = *result.statistics();
    let beyond = match &setting.step_time {
        StepTimeSource::Fitted(file) => cost.beyond(&file.regimes),
        _ => Vec::new(),
    };
    let ttft: Vec<f64> = timelines.iter().filter_map(|t| Some(t.ttft()?.get())).collect();
    let warm_up = mser5(&ttft);
    let (findings, verdict) = believed(&timelines, &statistics, result.end(), &setting.slo);
    let report = if timelines.is_empty() {
        None
    } else {
        // The same picoseconds that a file of the run states, so that both reports agree.
        let length = metrics_core::Seconds::new(statistics.duration().instant().seconds())?;
        let truncated = result.end().is_truncated();
        let basis = "first arrival to last token".to_owned();
        // A run whose steps cost nothing takes no time, and has no rates.
        let window = (0.0 < length.get()).then_some(Window { length, basis });
        Some(Report::new(&Input {
            timelines: &timelines,
            window,
            truncated,
            slo: &setting.slo,
            method: arguments.objectives.method(),
            confidence: arguments.objectives.confidence()?,
        })?)
    };
    if let Some(path) = &arguments.requests_out {
        write_timelines(path, &result)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Simulated {
        load,
        config,
        remarks,
        warm_up,
        findings,
        verdict,
        requests: workload.len(),
        beyond,
        end: result.end(),
        setting,
        report,
        statistics,
    })
}

/// The checks that a simulation can raise: an exact clock and one client leave the others without
/// meaning, and the load is told beside the settings.
const CHECKS: [&str; 5] = ["W02", "W10", "W28", "W32", "W35"];

/// What the run is usable for.
fn believed(
    timelines: &[RequestTimeline],
    statistics: &RunStatistics,
    end: RunEnd,
    slo: &SloSet,
) -> (Vec<Finding>, Verdict) {
    let table = RequestTable::of(timelines);
    let facts = Facts::new(&Evidence {
        truncated: end.is_truncated(),
        conservation: Some(Conservation {
            injected: statistics.injected,
            completed: statistics.completed,
            running: statistics.running,
            queued: statistics.queued,
            dropped: statistics.rejected,
            timed_out: statistics.cancelled,
        }),
        ..Evidence::of(&table, slo)
    });
    let mut findings = findings(&facts);
    findings.retain(|f| CHECKS.contains(&f.check.id));
    let verdict = Verdict::of(&findings, &facts.subjects());
    (findings, verdict)
}

/// How many requests were refused, with the first of them.
fn rejections(result: &RunResult<'_>, workload: &Workload) -> Option<String> {
    let mut refused = result.details().iter().filter(|d| d.rejected.is_some());
    let first = refused.next()?;
    let more = refused.count();
    let id = &workload.requests().get(first.position)?.id;
    let why = first.rejected.map(|r| r.reason()).unwrap_or_default();
    let others = if more > 0 { format!(", and {more} more") } else { String::new() };
    Some(format!("refused at arrival, as vLLM does: request `{id}`: {why}{others}"))
}

/// How many answers ended at `max_model_len`, before the tokens that the workload asks for.
fn cut(result: &RunResult<'_>, max_model_len: u64) -> Option<String> {
    let ended = |d: &&RequestDetail| {
        d.output_tokens.is_some() && d.cancelled.is_none() && d.rejected.is_none()
    };
    let n = result.details().iter().filter(ended).count();
    (0 < n).then(|| {
        let answers = metrics_core::format::things(n as u64, "answer");
        format!("{answers} cut at max_model_len ({max_model_len} tokens), as vLLM does")
    })
}

/// Writes the timelines of a run, instants in whole picoseconds.
fn write_timelines(path: &Path, result: &RunResult<'_>) -> Result<()> {
    let header = Header {
        // A run whose steps cost nothing has no duration to take rates over.
        duration: Some(result.statistics().duration().instant()).filter(|d| 0.0 < d.seconds()),
        truncated: result.end().is_truncated(),
        tool: Some("goodput sim".to_owned()),
        tool_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..Header::default()
    };
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    serving_io::simulation::write(file, result, &header)?;
    Ok(())
}
