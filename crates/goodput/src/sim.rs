//! `goodput sim`: a workload under one or several settings, on an exact clock.

mod render;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use capacity::watch::Watched;
use metrics_core::grammar;
use metrics_core::report::{Input, Report, Window};
use metrics_core::slo::SloSet;
use sched_sim::{
    DecodeFirst, Floored, FlooredCoefficients, OfferedLoad, Policy, RateScale, RunEnd, RunLimits,
    RunResult, RunStatistics, Simulation, StepTime, Ticks, Workload,
};
use serving_io::preset::Preset;
use serving_io::run::Note;
use serving_io::scenario::{Scenario, StepTimeSource, WorkloadSource};
use serving_io::timeline::Header;
use serving_io::trace::{TraceMap, TraceOptions, read_trace, read_trace_path};

use crate::output::{Format, same_file};
use crate::report::Objectives;

pub const EXAMPLES: &str = "\
Without a trace or scenario, a built-in workload runs under two settings.
Lists sweep: every combination is one row of a table.

Examples:
  goodput sim
  goodput sim --max-num-seqs 16,64,256 --slo 'ttft<500ms,tpot<50ms'
  goodput sim --trace azure.csv --max-num-seqs 64 --chunk 512 --slo 'ttft<2s,tpot<100ms' \\
      --step-time base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token
  goodput sim --trace azure.csv --max-num-seqs 64 --chunk 256,512 --rate-scale 1,3/2,2
  goodput sim --trace mine.csv --map arrival_s=t,input_tokens=in,output_tokens=out
  goodput sim --max-num-seqs 64 --chunk 256 --requests-out requests.jsonl
  goodput report requests.jsonl --slo 'ttft<500ms'";

/// Arguments of `sim`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Requests to replay: an Azure trace, our timelines, or CSV or JSON lines with --map.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    trace: Option<PathBuf>,
    /// A scenario file: workload, settings and objectives together.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Meaning of a column of the trace: FIELD_UNIT=COLUMN.
    #[arg(long, value_name = "FIELD=COLUMN[,…]", requires = "trace")]
    map: Vec<String>,
    /// Scheduling policies: decode-first.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    policy: Vec<String>,
    /// Most requests in the batch [default: 8, or the scenario's].
    #[arg(
        long,
        visible_alias = "max-batch-size",
        alias = "max-running-requests",
        value_delimiter = ',',
        value_name = "LIST"
    )]
    max_num_seqs: Vec<String>,
    /// Most prompt tokens of one request in one step [default: 128, or the scenario's].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    chunk: Vec<String>,
    /// Factor on the arrival rate, such as 2, 1.5 or 3/2.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    rate_scale: Vec<String>,
    /// What a step costs: coefficients, a preset, or a file of `goodput fit` [default:
    /// llama-3.1-8b-h100-sxm].
    #[arg(long, value_name = "COEFFICIENTS|PRESET|FILE")]
    step_time: Option<String>,
    /// Seed of a generated workload.
    #[arg(long, value_name = "NUMBER", conflicts_with = "trace")]
    seed: Option<u64>,
    /// KV bytes of one token, for the KV figures in bytes.
    #[arg(long, value_name = "BYTES")]
    kv_bytes_per_token: Option<u64>,
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

impl Arguments {
    /// Refuses to write over what is read, or twice into one file.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let inputs: Vec<&Path> =
            [&self.trace, &self.scenario].into_iter().flatten().map(PathBuf::as_path).collect();
        let outputs = [("-o", output), ("--requests-out", self.requests_out.as_deref())];
        for (option, file) in outputs {
            let Some(file) = file else { continue };
            if file.as_os_str() == "-" {
                bail!("{option} -: name a file; the result goes to standard output by itself");
            }
            if inputs.iter().any(|input| same_file(input, file)) {
                bail!("{option} {}: is an input file, name another one", file.display());
            }
        }
        if let (Some(a), Some(b)) = (output, self.requests_out.as_deref())
            && same_file(a, b)
        {
            bail!("-o and --requests-out both name {}: the second would overwrite", b.display());
        }
        Ok(())
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
}

/// What arrives, and what is to be said about it.
struct Source {
    title: String,
    workload: Workload,
    seed: Option<u64>,
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
}

/// All runs, and what they share.
struct Answer {
    title: String,
    seed: Option<u64>,
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
    let mut runs = Vec::new();
    for setting in settings {
        runs.push(simulate(arguments, &source.workload, setting, limits)?);
    }
    let answer = Answer {
        title: source.title,
        seed: source.seed,
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
    let (source, base) = if let Some(path) = &arguments.trace {
        let base = Setting {
            name: None,
            policy: DecodeFirst::default().name().to_owned(),
            max_num_seqs: DecodeFirst::default().max_num_seqs(),
            chunk: DecodeFirst::default().chunk(),
            rate_scale: RateScale::new(1, 1)?,
            step_time: default_step_time()?,
            slo: SloSet::none(),
        };
        (traced(path, &arguments.map)?, vec![base])
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
    let mut settings = Vec::new();
    for base in base {
        let policies = or_own(&arguments.policy, &base.policy);
        for policy in &policies {
            for &max_num_seqs in &or_own(&max_num_seqs, &base.max_num_seqs) {
                for &chunk in &or_own(&chunks, &base.chunk) {
                    for &rate_scale in &or_own(&scales, &base.rate_scale) {
                        let setting = Setting {
                            policy: policy.clone(),
                            max_num_seqs,
                            chunk,
                            rate_scale,
                            step_time: step_time.clone().unwrap_or(base.step_time.clone()),
                            slo: slo.clone().unwrap_or(base.slo.clone()),
                            name: base.name.clone(),
                        };
                        // A list replaces what the variants differ in, so that they fall together.
                        if !settings.iter().any(|s| same(s, &setting)) {
                            settings.push(setting);
                        }
                    }
                }
            }
        }
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
fn traced(path: &Path, map: &[String]) -> Result<Source> {
    let map = TraceMap::parse(crate::report::map_items(map).iter().map(String::as_str))
        .map_err(|e| anyhow!("--map: {e}"))?;
    let options = TraceOptions { map, ..TraceOptions::default() };
    let file = if path.as_os_str() == "-" {
        read_trace("standard input", std::io::stdin(), &options)
    } else {
        read_trace_path(path, &options)
    };
    let file = file.map_err(|e| anyhow!("{e}"))?;
    Ok(Source {
        title: format!("{}: {}", file.name, file.format.title()),
        workload: file.workload,
        seed: None,
        notes: file.notes,
    })
}

/// The requests and variants of a scenario.
fn scenario_settings(arguments: &Arguments, scenario: Scenario) -> Result<(Source, Vec<Setting>)> {
    let mut source = scenario.workload;
    let mut seed = None;
    if let WorkloadSource::Poisson(load) = &mut source {
        load.seed = arguments.seed.unwrap_or(load.seed);
        seed = Some(load.seed);
    }
    if arguments.seed.is_some() && seed.is_none() {
        bail!("--seed: the requests of scenario {} are not drawn from a seed", scenario.name);
    }
    let (workload, notes) = source.load().map_err(|e| anyhow!("{e}"))?;
    let source = Source {
        title: format!("{}: {}", scenario.name, scenario.title.en),
        workload,
        seed,
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
        })
        .collect();
    Ok((source, settings))
}

/// The step time that a source names.
fn step_time(source: &StepTimeSource) -> Result<Box<dyn StepTime>> {
    Ok(match source {
        StepTimeSource::Affine(affine) => Box::new(*affine),
        StepTimeSource::TwoRegime(form) => Box::new(*form),
        StepTimeSource::Preset(preset) => Box::new(of_preset(preset)?),
        StepTimeSource::Fitted(file) => Box::new(file.step),
        _ => bail!("this version does not know the form of the step time"),
    })
}

fn of_preset(preset: &Preset) -> Result<Floored> {
    let t = preset.ticks().map_err(|e| anyhow!("{e}"))?;
    Ok(Floored::new(FlooredCoefficients {
        overhead: t.overhead,
        floor: t.floor,
        token: t.token,
        attention: t.attention,
        context: t.context,
        request: t.request,
    })?)
}

/// Runs one setting.
fn simulate(
    arguments: &Arguments,
    workload: &Workload,
    setting: Setting,
    limits: RunLimits,
) -> Result<Simulated> {
    let policy = DecodeFirst::new(setting.max_num_seqs, setting.chunk)?;
    if setting.policy != policy.name() {
        bail!("--policy: unknown policy `{}`, this version has {}", setting.policy, policy.name());
    }
    let cost = step_time(&setting.step_time)?;
    let scaled;
    let workload = if setting.rate_scale == RateScale::new(1, 1)? {
        workload
    } else {
        scaled = workload.scale_rate(setting.rate_scale)?;
        &scaled
    };
    let cost = Watched::new(cost);
    let simulation = Simulation::new(workload, policy, &cost).limits(limits);
    let result =
        if arguments.reference { simulation.run_reference()? } else { simulation.run()? };
    let timelines = result.timelines()?;
    let statistics = *result.statistics();
    let beyond = match &setting.step_time {
        StepTimeSource::Fitted(file) => cost.beyond(&file.regimes),
        _ => Vec::new(),
    };
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
        load: OfferedLoad::of(workload, policy, &cost)?,
        requests: workload.len(),
        beyond,
        end: result.end(),
        setting,
        report,
        statistics,
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
