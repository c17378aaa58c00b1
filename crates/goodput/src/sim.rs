//! `goodput sim`: a workload under one or several settings, on an exact clock.

mod believed;
mod columns;
mod explain;
mod generate;
mod lists;
mod overload;
mod plan;
mod pools;
mod remarks;
mod render;
mod requests;
mod saturation;
mod seeds;
mod served;
mod setting;
mod sketch;
mod targets;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use capacity::order;
use capacity::replica::step_time;
use capacity::watch::Watched;
use indicatif::{ProgressBar, ProgressStyle};
use metrics_core::RequestTimeline;
use metrics_core::report::{Input, Report, Settings, Window};
use metrics_core::steady::mser5;
use metrics_core::table::{Observed, RequestTable};
use metrics_core::timeline::LARGEST_TOKENS;
use metrics_core::validity::{Finding, Verdict};
use sched_sim::ledger::{Ledger, Steps};
use sched_sim::server::Rejection;
use sched_sim::vllm_v1::VllmConfig;
use sched_sim::workload::{ClosedLoop, Generated, WorkloadSpec};
use sched_sim::{
    AdmissionRule, BatchHistory, InterTokenLatency, Observer, OfferedLoad, RateScale,
    RequestDetail, RunEnd, RunResult, RunStatistics, SimError, StepTime, StepWork, Ticks,
    TokenBucket, Workload, WorkloadRequest,
};
use serving_io::chrome_trace::{self, TraceWindow};
use serving_io::engine::EngineOptions;
use serving_io::policy::{POLICIES, RULES, in_words, may_swap};
use serving_io::run::Note;
use serving_io::scenario::StepTimeSource;
use serving_io::series::StepSeries;
use serving_io::servers::Servers as FleetServers;
use serving_io::timeline::Header;

use self::believed::{Ran, believed};
use self::explain::Spent;
use self::lists::at_most;
use self::overload::Overload;
use self::plan::plan;
use self::pools::Moved;
use self::requests::Requests;
use self::saturation::Saturation;
use self::served::{Arriving, Maker, TailAnswer};
use self::setting::Setting;
use crate::output::{Format, check_outputs};
use crate::report::Objectives;
use crate::trace::Part;

pub use generate::{GeneratorArguments, described, takes_one};
pub use served::{count_from, seed};

pub const EXAMPLES: &str = "\
Without a trace or scenario, a built-in workload runs under two settings.
Lists sweep: every combination is one row of a table. A value that has commas of
its own makes a list by giving its option several times.

Examples:
  goodput sim
  goodput sim --max-num-seqs 16,64,256 --slo 'ttft<500ms,tpot<50ms'
  goodput sim --rate 10/s --arrivals gamma:cv=2 --input-tokens uniform:100,2000 --requests 1k
  goodput sim --rate 2/s,4/s,8/s,16/s --max-num-seqs 64 --chunk 256 --slo 'ttft<500ms'
  goodput sim --arrivals poisson --arrivals gamma:cv=4 --rate 10/s --max-num-seqs 64
  goodput sim --rate 14/s --seeds 10
  goodput sim --rate 14/s --warm-up 60s --cool-down 200
  goodput sim --rate 14/s --max-num-seqs 64 --chunk 256 --requests 100k --sketch
  goodput sim --turns geometric:mean=4,max=20 --think exponential:mean=10s --think-after answer \\
      --policy vllm-v1
  goodput sim --users 20,40,80 --think 5s --timeout 10s --cancel 5%,exponential:mean=4s
  goodput sim --trace azure.csv --max-num-seqs 64 --chunk 512 --slo 'ttft<2s,tpot<100ms' \\
      --step-time base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token
  goodput sim --trace azure.csv --max-num-seqs 64 --chunk 256,512 --rate-scale 1,3/2,2
  goodput sim --trace azure.csv --slice 18:15-18:20 --max-num-seqs 64 --chunk 512
  goodput sim --trace mine.csv --map arrival_s=t,input_tokens=in,output_tokens=out
  goodput sim --policy decode-first,prefill-first,sarathi --max-num-seqs 64 --chunk 512 \\
      --kv-blocks 2000 --slo 'ttft<1s,tpot<50ms'
  goodput sim --policy vllm-v1 --max-num-batched-tokens 2048,8192 --slo 'ttft<500ms'
  goodput sim --engine vllm --engine-args 'vllm serve my/model --max-num-seqs 128'
  goodput sim --engine vllm --step-time roofline:model=qwen3-8b,gpu=l40s,mfu=0.5,mbu=0.8
  goodput sim --policy sarathi --max-num-seqs 64 --chunk 2048 --disagg prefill=1,decode=2 \\
      --kv-transfer 400Gbit/s
  goodput sim --max-num-seqs 64 --chunk 256 --requests-out requests.jsonl
  goodput report requests.jsonl --slo 'ttft<500ms'";

/// Whose prompt tokens the chunk of each policy bounds.
fn chunk_help() -> String {
    let of = RULES.iter().filter_map(|r| Some(format!("{} for {}", r.chunk?.en, r.name)));
    format!(
        "Most prompt tokens in one step: {}; other policies have none [default: 128, or the scenario's]",
        of.collect::<Vec<_>>().join(", ")
    )
}

fn preemption_help() -> String {
    format!(
        "What becomes of the KV of a decode that is preempted for want of blocks: recompute, or swap (out and back, for --swap-time); for {} with --kv-blocks [default: recompute]",
        in_words(may_swap)
    )
}

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
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    #[arg(help = format!("Scheduling policies: {}", POLICIES.join(", ")))]
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
    #[arg(long, value_delimiter = ',', value_name = "LIST", help = chunk_help())]
    chunk: Vec<String>,
    /// KV blocks of the server, of --block-size tokens; vllm-v1 has --num-kv-blocks [default: no
    /// limit, or the scenario's].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    kv_blocks: Vec<String>,
    /// No prefixes are kept for others; for sglang with --kv-blocks, the same as
    /// --enable-prefix-caching=false.
    #[arg(long, conflicts_with = "enable_prefix_caching")]
    disable_radix_cache: bool,
    /// Who is next in the queue, and preempted last: fcfs, sjf (fewest tokens, prompt and answer)
    /// or priority; vllm-v1 has --scheduling-policy [default: fcfs, or the scenario's].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    order: Vec<String>,
    #[arg(long, value_delimiter = ',', value_name = "LIST", help = preemption_help())]
    preemption: Vec<String>,
    /// How long the KV of a token moves one way, such as 1us/token: its bytes over the bandwidth.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    swap_time: Vec<String>,
    /// Factor on the arrival rate, such as 2, 1.5 or 3/2.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    rate_scale: Vec<String>,
    /// What a step costs: coefficients, a preset, a file of `goodput fit`, or
    /// roofline:model=NAME,gpu=NAME[,tp=N,mfu=SHARE,mbu=SHARE,overhead=TIME] [default:
    /// llama-3.1-8b-h100-sxm]. May be given several times.
    #[arg(long, value_name = "COEFFICIENTS|PRESET|FILE|ROOFLINE")]
    step_time: Vec<String>,
    /// Servers behind a router.
    #[arg(long, value_delimiter = ',', value_name = "LIST", group = "fleet")]
    replicas: Vec<String>,
    /// Servers for prompts and servers for answers, such as prefill=2,decode=3, each pool behind a
    /// router of its own: the first token comes from one pool, the KV moves for --kv-transfer, and
    /// the other tokens come from the other pool. May be given several times.
    #[arg(long, value_name = "COUNTS", group = "fleet", requires = "kv_transfer")]
    disagg: Vec<String>,
    /// How fast KV moves between the pools: a bandwidth of a replica, 400Gbit/s or 50GB/s, or a time
    /// per token of the prompt, 3us/token.
    #[arg(long, value_delimiter = ',', value_name = "LIST", requires = "disagg")]
    kv_transfer: Vec<String>,
    /// What every transfer takes beside that [default: 0s].
    #[arg(long, value_delimiter = ',', value_name = "LIST", requires = "disagg")]
    kv_transfer_latency: Vec<String>,
    /// Who gets a request: round-robin, random, least-requests, least-tokens, power-of-two,
    /// prefix-affinity or central-queue [default: least-requests].
    #[arg(long, value_delimiter = ',', value_name = "LIST", requires = "fleet")]
    router: Vec<String>,
    /// So many users in place of a rate, each of whom waits for the answer and thinks for --think.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    #[arg(conflicts_with_all = ["trace", "rate", "arrivals", "rate_scale"])]
    users: Vec<String>,
    /// Run every setting with so many seeds, from --seed on: means with intervals, and differences
    /// to the first setting on the same requests, or on those of the same random streams where lists
    /// draw others or clients wait for answers.
    #[arg(long, value_name = "N", value_parser = served::count_from(2, 10_000))]
    #[arg(conflicts_with = "requests_out")]
    seeds: Option<u64>,
    /// KV bytes of one token, for the KV figures in bytes and for --kv-memory.
    #[arg(long, value_name = "BYTES", value_parser = served::count_from(1, MOST_KV_BYTES))]
    kv_bytes_per_token: Option<u64>,
    #[command(flatten)]
    generate: GeneratorArguments,
    #[command(flatten)]
    engine: EngineArguments,
    #[command(flatten)]
    objectives: Objectives,
    /// Clients stop waiting for the last token this long after their arrival: who has not got it by
    /// then is timed out and not completed. The server notices at the end of the step under way.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    timeout: Vec<String>,
    /// Refuse who arrives when so many requests wait; this and the next three stand for a gateway
    /// in front of vllm-v1, which refuses nobody for it. Of several replicas each has these limits,
    /// and the permits of --token-bucket are for all of them; with --router central-queue all four
    /// are those of its queue.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    #[arg(value_parser = served::count_from(0, LARGEST_TOKENS))]
    max_waiting: Vec<u64>,
    /// Refuse who arrives when with its prompt more tokens than this would wait.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    #[arg(value_parser = served::count_from(0, LARGEST_TOKENS))]
    max_waiting_tokens: Vec<u64>,
    /// Permits for requests: who arrives while there is none is refused, such as 10/s,burst=20. May
    /// be given several times.
    #[arg(long, value_name = "RATE,burst=N")]
    token_bucket: Vec<TokenBucket>,
    /// Refuse who arrives unless queue, KV cache and P99 of TTFT have room: all four of
    /// queue=16,kv=0.9,slo=500ms,window=30s, in any order. May be given several times.
    #[arg(long, value_name = "LIMITS")]
    admission_rule: Vec<AdmissionRule>,
    /// Start no step after this much simulated time; the run is then truncated.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    until: Vec<String>,
    /// Measure without the first so many requests (500) or so much time from the first arrival on
    /// (60s); auto is what MSER-5 finds. The run does not change: latencies and shares are of who
    /// arrives in what is left, rates of what is completed meanwhile [default: measure all].
    #[arg(long, visible_alias = "warmup", value_delimiter = ',', value_name = "LIST")]
    warm_up: Vec<String>,
    /// Measure without the last so many requests (500) or so much time before the last arrival (60s)
    /// [default: measure all].
    #[arg(long, visible_alias = "cooldown", value_delimiter = ',', value_name = "LIST")]
    cool_down: Vec<String>,
    /// Write every request's timeline, of the whole run, for `goodput report`; needs a single
    /// setting.
    #[arg(long, value_name = "FILE")]
    requests_out: Option<PathBuf>,
    /// Where the time of the slowest requests went, those from this percentile on, such as p99; of
    /// several settings with --format json alone.
    #[arg(long, value_name = "PERCENTILE", conflicts_with = "seeds")]
    explain_tail: Option<String>,
    /// Write steps and requests as a Chrome trace, which Perfetto shows; needs a single setting.
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    trace_out: Option<PathBuf>,
    /// The part of the run that --trace-out writes [default: all of it].
    #[arg(long, value_name = "FROM..TO", requires = "trace_out")]
    trace_window: Option<String>,
    /// Write steps, batch, KV and waiting requests over time as JSON lines, equal steps as one; needs
    /// a single setting.
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    series: Option<PathBuf>,
    /// Settings and seeds that run at the same time; the answer does not depend on it
    /// [default: all cores].
    #[arg(long, value_name = "N", value_parser = served::count_from(1, MOST_JOBS))]
    jobs: Option<u64>,
    /// Count and sketch requests of any number as they end instead of keeping them: percentiles are
    /// off by 0.05 % at most, counts and the share that meets --slo are exact.
    #[arg(long)]
    sketch: bool,
    /// Execute every step for every request instead of skipping; the figures are the same.
    #[arg(long)]
    reference: bool,
}

/// The most KV bytes of a token, as for a transfer between two pools: 4 GiB.
const MOST_KV_BYTES: u64 = 1 << 32;

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
    /// Most tokens in a step; for prefill-first too, there 4096 prompt tokens by default.
    max_num_batched_tokens;
    /// Most tokens of a request, prompt and answer.
    max_model_len;
    /// KV blocks as vLLM counts them: one of them is the null block.
    num_kv_blocks [visible_alias = "num-gpu-blocks-override"];
    /// Memory of the KV cache, 60GiB.
    kv_memory;
    /// Type of an element of the KV cache, auto, bf16 or fp8 [default: auto, the model's].
    kv_cache_dtype;
    /// Share of the GPU's memory that the server takes [default: 0.92].
    gpu_memory_utilization;
    /// Memory of one GPU [default: that of the preset's].
    gpu_memory;
    /// Memory for activations and CUDA graphs, not left to the KV cache [default: 0].
    reserved_memory;
    /// Tokens in a KV block, of --kv-blocks too [default: 16].
    block_size;
    /// Whether equal prefixes are computed once; for sglang with --kv-blocks too [default: true].
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
            at_most(all.len().saturating_mul(values.len()), || {
                format!("--{}: its values", name.replace('_', "-"))
            })?;
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
    /// Whether somebody has to see every step.
    fn is_watched(&self) -> bool {
        self.explain_tail.is_some() || self.trace_out.is_some() || self.series.is_some()
    }

    /// Refuses to write over what is read, or twice into one file.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let read = [self.trace.clone(), self.scenario.clone()].into_iter().flatten();
        let step_times = self.step_time.iter().filter_map(|text| step_time_file(Some(text)));
        let inputs: Vec<PathBuf> = read.chain(step_times).chain(self.generate.files()).collect();
        self.check_inputs(&inputs, output)
    }

    /// Refuses to write over one of these files.
    fn check_inputs(&self, inputs: &[PathBuf], output: Option<&Path>) -> Result<()> {
        let requests = ("--requests-out", self.requests_out.as_deref());
        let trace = ("--trace-out", self.trace_out.as_deref());
        let series = ("--series", self.series.as_deref());
        check_outputs(inputs, &[("-o", output), requests, trace, series])
    }
}

/// The file that a step time names.
pub fn step_time_file(step_time: Option<&str>) -> Option<PathBuf> {
    StepTimeSource::file_of(step_time?).map(Path::to_path_buf)
}

/// What arrives, and what is to be said about it.
struct Source {
    title: String,
    /// The requests of all settings; at least one.
    requests: Vec<Requests>,
    notes: Vec<Note>,
    /// Whether anything is drawn from a seed.
    draws: bool,
}

impl Source {
    /// The requests of a setting.
    fn of(&self, setting: &Setting) -> Result<&Requests> {
        self.requests.get(setting.workload).ok_or_else(|| anyhow!("a setting without requests"))
    }

    /// The seed that anything is drawn from, if anything is.
    fn seed(&self) -> Option<u64> {
        self.requests.first().filter(|_| self.draws).map(Requests::seed)
    }

    /// Says for which of these settings requests are kept.
    fn used_by(&self, settings: &[Setting]) {
        let mut n = vec![0; self.requests.len()];
        for setting in settings {
            n[setting.workload] += 1;
        }
        self.requests.iter().zip(n).for_each(|(requests, n)| requests.used_by(n));
    }
}

/// One setting with its run.
struct Simulated {
    setting: Setting,
    requests: usize,
    report: Option<Report>,
    statistics: RunStatistics,
    load: OfferedLoad,
    /// What becomes of the queue, if more arrives than can be served.
    overload: Option<Overload>,
    end: RunEnd,
    /// Steps outside of the range in which the step time is known.
    beyond: Vec<String>,
    /// The totals of each server, and what each server of two pools has to bear.
    each: Vec<RunStatistics>,
    pool_loads: Option<[OfferedLoad; 2]>,
    /// What moved between two pools.
    moved: Option<Moved>,
    /// Where the time of the slowest went, if that was asked for.
    tail: Option<TailAnswer>,
    /// Where its time went, for the comparison of policies.
    spent: Option<Spent>,
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

impl Simulated {
    /// Whether the run was cut while requests of what is measured were left.
    fn is_truncated(&self) -> bool {
        is_truncated(self.report.as_ref(), self.end)
    }

    /// Whether more arrives than can be served; users who wait for their answers only saturate.
    fn is_overloaded(&self) -> bool {
        self.overload.is_some_and(|overload| !matches!(overload, Overload::Users(_)))
    }
}

/// Whether a run was cut before what is measured of it had ended.
fn is_truncated(report: Option<&Report>, end: RunEnd) -> bool {
    report.and_then(|r| r.measured).map_or(end.is_truncated(), |m| m.truncated)
}

/// All runs, and what they share.
struct Answer {
    title: String,
    /// The seed that the requests are drawn from, if they are drawn.
    seed: Option<u64>,
    notes: Vec<Note>,
    kv_bytes_per_token: Option<u64>,
    confidence: metrics_core::interval::Confidence,
    runs: Vec<Simulated>,
}

impl Answer {
    /// What was run.
    fn settings(&self) -> Vec<&Setting> {
        self.runs.iter().map(|run| &run.setting).collect()
    }
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format, output: Option<&Path>) -> Result<String> {
    sketch::check(arguments)?;
    let (source, settings) = plan(arguments, output)?;
    shown(arguments, &settings, format)?;
    if let Some(n) = arguments.seeds {
        return seeds::run(arguments, &source, settings, n, format);
    }
    source.used_by(&settings);
    let progress = if arguments.sketch {
        sketch::progress(&settings)
    } else {
        progress(settings.len(), "settings")
    };
    let booked = explain::books(&settings);
    let names = render::varying(&settings.iter().collect::<Vec<_>>());
    let run = |setting| {
        if arguments.sketch {
            return sketch::simulate(arguments, &source, setting, &progress);
        }
        let run = simulate(arguments, &source, setting, booked);
        progress.inc(1);
        run
    };
    let runs = in_parallel(arguments.jobs, settings.len(), || {
        in_order(settings, &named("setting", names), run)
    })?;
    progress.finish_and_clear();
    let answer = Answer {
        seed: source.seed(),
        title: source.title,
        notes: source.notes,
        kv_bytes_per_token: arguments.kv_bytes_per_token,
        confidence: arguments.objectives.confidence()?,
        runs,
    };
    render::render(&answer, format)
}

/// Refuses files of one setting for several, and answers that a form does not have.
fn shown(arguments: &Arguments, settings: &[Setting], format: Format) -> Result<()> {
    let files = [
        ("--requests-out", &arguments.requests_out),
        ("--trace-out", &arguments.trace_out),
        ("--series", &arguments.series),
    ];
    let (n, all) = (settings.len(), settings.iter().collect::<Vec<_>>());
    let how = || match arguments.scenario {
        Some(_) => {
            "options with one value each replace what its variants differ in, or keep one of them in \
             the file"
        }
        None => "give --max-num-seqs, --chunk and every other list one value each",
    };
    let first = || render::varying(&all).join("; ");
    for (option, file) in files {
        if file.is_some() && n != 1 {
            bail!("{option}: needs a single setting, got {n} ({}): {}", first(), how());
        }
    }
    if arguments.explain_tail.is_some() {
        match format {
            Format::Csv | Format::Md => {
                bail!("--explain-tail: is in text and JSON, CSV and Markdown have no place for it")
            }
            Format::Text if n != 1 => bail!(
                "--explain-tail: needs a single setting in text, got {n}: {}, or add --format json",
                how()
            ),
            Format::Text | Format::Json => {}
        }
    }
    Ok(())
}

/// The most that `--jobs` takes: more than the cores of any server, and few enough to start.
pub const MOST_JOBS: u64 = 1024;

/// Calls `work` on so many threads, or on one a core; on no more than there are settings to run.
pub fn in_parallel<T: Send>(
    jobs: Option<u64>,
    settings: usize,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    if 1 < settings {
        keep_memory();
    }
    let asked = jobs.map(|n| usize::try_from(n).unwrap_or(usize::MAX).min(settings.max(1)));
    if settings == 1 {
        // Threads that would only wait take longer to start than a short run, which the pool of
        // one thread does where it is; of a thread that has one, another pool cannot be made.
        let here = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        if let Ok(pool) = here {
            return pool.install(work);
        }
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(asked.unwrap_or(0)).build()?;
    pool.install(work)
}

/// What each of several is called in a message; of one there is nothing to tell apart.
pub fn named(what: &str, names: Vec<String>) -> Vec<String> {
    let name = |name| format!("{what} {name}");
    if names.len() == 1 { Vec::new() } else { names.into_iter().map(name).collect() }
}

/// Runs all of them, some at the same time; the error is that of the first one that fails, and begins
/// with its name.
pub fn in_order<I: Send, T: Send>(
    items: Vec<I>,
    names: &[String],
    run: impl Fn(I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    order::in_order(items, run).map_err(|(i, error)| match names.get(i) {
        Some(name) => error.context(name.clone()),
        None => error,
    })
}

/// Lets memory that one run gives back serve the next.
///
/// glibc hands large blocks back to the kernel and asks for them anew, which costs a quarter of the
/// time of many short runs; a freed block of this size, of which nothing is ever touched, raises the
/// limit from which it does (`mallopt(3)`, `M_MMAP_THRESHOLD`). Other allocators lose nothing by it.
fn keep_memory() {
    const LARGEST: usize = (32 << 20) - (64 << 10);
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGEST)));
}

/// A bar over so many settings or runs; on a terminal, and for more than a few.
pub fn progress(n: usize, what: &str) -> ProgressBar {
    if n < 4 {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(n as u64);
    let template = format!("{{wide_bar}} {{pos}}/{{len}} {what} {{eta}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

/// Runs one setting; `booked`: whether it has to say where its time went.
fn simulate(
    arguments: &Arguments,
    source: &Source,
    setting: Setting,
    booked: bool,
) -> Result<Simulated> {
    let step_time = render::step_time_name(&setting.step_time);
    simulated(arguments, source, setting, booked).map_err(|e| of_step_time(e, &step_time))
}

/// Adds to an error of the clock what makes the steps long.
fn of_step_time(error: anyhow::Error, step_time: &str) -> anyhow::Error {
    match error.downcast_ref::<SimError>() {
        Some(SimError::RunTooLong) => error.context(format!("step time {step_time}")),
        _ => error,
    }
}

/// The same, with errors as they come.
fn simulated(
    arguments: &Arguments,
    source: &Source,
    setting: Setting,
    booked: bool,
) -> Result<Simulated> {
    let requests = source.of(&setting)?;
    let seed = requests.seed();
    if let Some(waiting) = waiting(requests, &setting)? {
        return run_setting(arguments, Arriving::Waiting(waiting), setting, booked, seed, None);
    }
    let known = Some(&*requests.saturation);
    let workload = requests.workload()?;
    let scaled;
    let open = if setting.rate_scale == RateScale::new(1, 1)? {
        Arriving::Open(&workload)
    } else {
        scaled = workload.scale_rate(setting.rate_scale)?;
        Arriving::Open(&scaled)
    };
    let ran = run_setting(arguments, open, setting, booked, seed, known);
    requests.done();
    ran
}

/// The requests of clients who wait for answers, if they do: users, or turns of sessions.
fn waiting(requests: &Requests, setting: &Setting) -> Result<Option<Generated>> {
    let spec = requests.spec();
    let Some(users) = setting.users else {
        let spec = spec.filter(|spec| spec.waits_for_answers());
        return Ok(spec.map(WorkloadSpec::feedback).transpose()?);
    };
    let Some(spec) = spec else {
        bail!("--users: the requests are not drawn from a seed");
    };
    let closed = ClosedLoop {
        users,
        think: setting.think,
        requests: spec.requests,
        lengths: spec.lengths.clone(),
        system_prompts: spec.system_prompts,
        sessions: spec.sessions.clone(),
        cancellations: spec.cancellations,
        seed: spec.seed,
    };
    Ok(Some(closed.arrivals()?))
}

/// Runs what arrives under one setting; `seed`: of routers that draw, `known`: what a server can
/// complete of the same requests, whenever they arrive.
fn run_setting(
    arguments: &Arguments,
    arriving: Arriving<'_>,
    setting: Setting,
    booked: bool,
    seed: u64,
    known: Option<&Saturation>,
) -> Result<Simulated> {
    let cost = Watched::new(step_time(&setting.step_time)?);
    let (config, mut remarks) = setting.vllm_config()?;
    let maker = Maker { arguments, setting: &setting, config: config.as_ref(), cost: &cost, seed };
    let mut server = maker.server()?;
    let mut watch = ((Steps::default(), BatchHistory::new()), StepSeries::default());
    let watched = booked || arguments.is_watched();
    let mut gaps = InterTokenLatency::default();
    let mut both = (&mut gaps, &mut watch);
    let observer: &mut dyn Observer = if watched { &mut both } else { both.0 };
    let driven;
    let waits = matches!(arriving, Arriving::Waiting(_));
    let (result, (load, pool_loads)) = match arriving {
        Arriving::Open(workload) => {
            // First, as the run then has its memory.
            let loads = loads(&maker, workload, known)?;
            let timeout = setting.timeout;
            (served::run_open(&mut *server, workload, timeout, observer)?, loads)
        }
        Arriving::Waiting(clients) => {
            takes_time(&setting, cost.inner())?;
            driven = served::run_waiting(&mut *server, clients, setting.timeout, observer)?;
            arrives(&setting, &server.statistics(), driven.workload().requests().first())?;
            let result = driven.result(&*server, server.statistics().kv.is_some());
            let loads = loads(&maker, result.workload(), known)?;
            (result, loads)
        }
    };
    let workload = result.workload();
    // Of clients who wait, not all are sent by the end of a run that is cut.
    let asked_for = setting.drawn.as_ref().filter(|_| waits).map(|drawn| drawn.spec.requests);
    let asked_for = asked_for.and_then(|n| usize::try_from(n).ok());
    arrives(&setting, result.statistics(), workload.requests().first())?;
    remarks.extend(without_effect(&setting, workload));
    remarks.extend(remarks::ignored_prefixes(&setting, workload));
    remarks.extend(remarks::quoted_too_early(&result, waits));
    let moved = Moved::of(&result);
    let duration = result.statistics().duration();
    remarks.extend(setting.pools.and_then(|p| p.overfull_links(moved.as_ref(), duration)));
    remarks.extend(rejections(&result, workload, config.is_some()));
    remarks.extend(config.as_ref().and_then(|config| cut(&result, config.max_model_len)));
    // Only a window goes back to them.
    let timelines = if setting.cuts.are_none() { Vec::new() } else { result.timelines()? };
    let table = result.table()?;
    let seen = (timelines.as_slice(), &table);
    let report = report_of(arguments, &setting, &result, seen, &gaps)?;
    let measured = report.as_ref().and_then(|r| r.measured);
    let asked = arguments.explain_tail.as_deref().map(served::percentile).transpose()?;
    let ledger =
        (booked || asked.is_some()).then(|| Ledger::new(&result, &watch.0.0, &cost)).transpose()?;
    let ledger = ledger.map(|ledger| match measured {
        Some(m) => ledger.of_positions(m.from..m.to),
        None => ledger,
    });
    let tail = ledger.as_ref().zip(asked).map(|(ledger, p)| TailAnswer::of(ledger, p));
    let spent = ledger.as_ref().filter(|_| booked).map(Spent::of);
    if let Some(path) = &arguments.trace_out {
        let window = window(arguments.trace_window.as_deref(), result.statistics().end)?;
        write_trace(path, &result, &watch.0.1, &setting.servers(), window)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &arguments.series {
        write_series(path, &result, &watch.1, &setting.servers())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let statistics = *result.statistics();
    let beyond = setting.beyond(&cost);
    let ttft: Vec<f64> = table.requests().filter_map(|t| Some(t.ttft()?.get())).collect();
    let warm_up = mser5(&ttft);
    let each = server.each();
    let overload = Overload::of(&load, &statistics, setting.users);
    let run = Ran { statistics: &statistics, each: &each, end: result.end(), overload };
    let (findings, verdict) = believed(seen, report.as_ref(), &run, &setting)?;
    if let Some(path) = &arguments.requests_out {
        write_timelines(path, &result)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Simulated {
        load,
        overload,
        each,
        pool_loads,
        moved,
        tail,
        spent,
        config,
        remarks,
        warm_up,
        findings,
        verdict,
        requests: asked_for.unwrap_or(workload.len()),
        beyond,
        end: result.end(),
        setting,
        report,
        statistics,
    })
}

/// Refuses several servers with steps that take no time for clients who wait: answers of one instant
/// are then told in an order that nobody defines.
fn takes_time<T: StepTime>(setting: &Setting, cost: &T) -> Result<()> {
    let (mut decode, mut prefill) = (StepWork::default(), StepWork::default());
    (decode.decodes, decode.decode_context) = (1, 1);
    (prefill.prefills, prefill.prefill_tokens, prefill.attention_doubled) = (1, 1, 1);
    let servers = setting.pools.map_or(setting.replicas, |pools| pools.prefill + pools.decode);
    if 1 < servers && [decode, prefill].iter().any(|work| cost.step(work) == Ticks::ZERO) {
        bail!(
            "--step-time: a step of one token takes no time under {}, so that the answers of \
             {servers} servers come in no order; clients who wait for them need one: give it a base",
            render::step_time_name(&setting.step_time)
        );
    }
    Ok(())
}

/// What arrives, relative to what a server of the setting can give; of two pools that of the fuller
/// one, and both.
fn loads<T: StepTime>(
    maker: &Maker<'_, '_, Watched<T>>,
    workload: &Workload,
    known: Option<&Saturation>,
) -> Result<(OfferedLoad, Option<[OfferedLoad; 2]>)> {
    let Maker { arguments, setting, config, cost, seed } = *maker;
    // Its steps are none of the run.
    let cost = cost.inner();
    let Some(pools) = setting.pools else {
        let measure = || setting.load(config, workload, cost);
        let load = known.map_or_else(measure, |known| known.load(setting, workload, measure))?;
        return Ok((load, None));
    };
    let prefill = setting.load(config, &first_tokens(workload)?, cost)?;
    let decode = Setting { until: None, ..setting.clone() };
    let decode = Maker { arguments, setting: &decode, config, cost, seed }.one(true)?;
    let decode = OfferedLoad::of_decode_pool(workload, decode)?;
    let loads = pools.per_server([prefill, decode]);
    Ok((pools::fuller(&loads), Some(loads)))
}

/// The same requests with answers of one token, as a prefill pool sees them.
fn first_tokens(workload: &Workload) -> Result<Workload> {
    let mut requests = workload.requests().to_vec();
    for request in &mut requests {
        request.output_tokens = 1;
    }
    Ok(Workload::new(requests)?)
}

/// The report of a run; none without requests.
fn report_of(
    arguments: &Arguments,
    setting: &Setting,
    result: &RunResult<'_>,
    (timelines, table): (&[RequestTimeline], &RequestTable),
    gaps: &InterTokenLatency,
) -> Result<Option<Report>> {
    if table.is_empty() {
        return Ok(None);
    }
    let input = Input {
        timelines,
        window: window_of(result.statistics())?,
        truncated: result.end().is_truncated(),
        slo: &setting.slo,
        method: arguments.objectives.method(),
        confidence: arguments.objectives.confidence()?,
    };
    let settings = Settings::from(&input);
    let report = if setting.cuts.are_none() {
        Report::of_table(table, &settings)?
    } else {
        Report::measured(&input, &setting.cuts)?
    };
    // Gaps are counted over the whole run.
    let whole = report.measured.is_none();
    Ok(Some(if whole { report.with_itl(gaps, &settings) } else { report }))
}

/// The time that rates are over. A run whose steps cost nothing takes no time, and has no rates.
fn window_of(statistics: &RunStatistics) -> Result<Option<Window>> {
    // The same picoseconds that a file of the run states, so that both reports agree.
    let length = metrics_core::Seconds::new(statistics.duration().instant().seconds())?;
    let basis = "first arrival to last token".to_owned();
    Ok((0.0 < length.get()).then_some(Window { length, basis }))
}

/// Refuses a run that ends before anybody arrives: there is nothing to say of it.
fn arrives(
    setting: &Setting,
    statistics: &RunStatistics,
    first: Option<&WorkloadRequest>,
) -> Result<()> {
    let nobody_comes = setting.until.is_some() && statistics.injected == 0;
    if nobody_comes { Err(nobody(setting, first)) } else { Ok(()) }
}

/// That a run ends before anybody arrives.
fn nobody(setting: &Setting, first: Option<&WorkloadRequest>) -> anyhow::Error {
    let at = |r: &WorkloadRequest| format!(", the first at {}", r.arrival.compact());
    let first = first.map_or(String::new(), at);
    match setting.until {
        Some(until) => anyhow!("--until: nobody arrives before {}{first}", until.compact()),
        None => anyhow!("nobody arrives"),
    }
}

/// What a setting asks for that its requests leave without effect.
fn without_effect(setting: &Setting, workload: &Workload) -> Vec<String> {
    let mut said = Vec::new();
    let requests = workload.len() as u64;
    if let Some(users) = setting.users.filter(|&users| requests < users) {
        said.push(format!(
            "{} for {users} users: {} of them never send one",
            metrics_core::format::things(requests, "request"),
            users - requests
        ));
    }
    let mut priorities = workload.requests().iter().map(|r| r.priority);
    let first = priorities.next();
    if setting.by_priority() && priorities.all(|p| Some(p) == first) {
        said.push("order priority: all requests have the same, so it is fcfs".to_owned());
    }
    said
}

/// How many requests were refused, with the first of them.
fn rejections(result: &RunResult<'_>, workload: &Workload, is_vllm: bool) -> Option<String> {
    let mut rejected = result.details().iter().filter(|d| d.rejected.is_some());
    let first = rejected.next()?;
    let more = rejected.count();
    let id = &workload.requests().get(first.position)?.id;
    Some(refused(&id.to_string(), first.rejected?, more as u64, is_vllm))
}

/// That a request was refused, and so many more.
fn refused(id: &str, why: Rejection, more: u64, is_vllm: bool) -> String {
    let by_gateway = matches!(
        why,
        Rejection::QueueFull { .. }
            | Rejection::QueueTokens { .. }
            | Rejection::Shut { .. }
            | Rejection::NoPermit { .. }
    );
    let as_whom = match (is_vllm, by_gateway) {
        (false, _) => "",
        (true, false) => ", as vLLM does",
        (true, true) => " by a gateway in front of vLLM",
    };
    let others = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("refused at arrival{as_whom}: request `{id}`: {}{others}", why.reason())
}

/// How many answers ended at `max_model_len`, before the tokens that the workload asks for.
fn cut(result: &RunResult<'_>, max_model_len: u64) -> Option<String> {
    let ended = |d: &&RequestDetail| {
        let left = d.cancelled.or(d.timed_out).is_some();
        d.output_tokens.is_some() && !left && d.rejected.is_none()
    };
    let n = result.details().iter().filter(ended).count();
    (0 < n).then(|| {
        let answers = metrics_core::format::things(n as u64, "answer");
        format!("{answers} cut at max_model_len ({max_model_len} tokens), as vLLM does")
    })
}

/// The window that `--trace-window` names; all of a run that ends at `end` without it.
fn window(text: Option<&str>, end: Ticks) -> Result<TraceWindow> {
    let Some(text) = text else { return Ok(TraceWindow { from: Ticks::ZERO, to: end }) };
    let time = |text: &str| text.trim().parse().map_err(|e| anyhow!("--trace-window: {e}"));
    let window = match text.split_once("..") {
        Some((from, to)) => Some(TraceWindow { from: time(from)?, to: time(to)? }),
        None => None,
    };
    let Some(window) = window.filter(|w| w.from < w.to) else {
        bail!("--trace-window: expected FROM..TO, such as 10s..12s, FROM before TO, got `{text}`");
    };
    if end <= window.from {
        bail!("--trace-window: `{text}` begins after the run, which ends at {}", end.compact());
    }
    Ok(window)
}

/// Writes a window of a run as a Chrome trace.
fn write_trace(
    path: &Path,
    result: &RunResult<'_>,
    history: &BatchHistory,
    servers: &FleetServers,
    window: TraceWindow,
) -> Result<()> {
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    chrome_trace::write(file, result, history, servers, window)?;
    Ok(())
}

/// Writes what the servers did over time.
fn write_series(
    path: &Path,
    result: &RunResult<'_>,
    steps: &StepSeries,
    servers: &FleetServers,
) -> Result<()> {
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    serving_io::series::write(file, result, steps, servers)?;
    Ok(())
}

/// Writes the timelines of a run, instants in whole picoseconds.
fn write_timelines(path: &Path, result: &RunResult<'_>) -> Result<()> {
    let header = Header {
        // A run whose steps cost nothing has no duration to take rates over.
        duration: Some(result.statistics().duration().instant()).filter(|d| 0.0 < d.seconds()),
        truncated: result.end().is_truncated(),
        tool: Some(serving_io::simulation::TOOL.to_owned()),
        tool_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..Header::default()
    };
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    serving_io::simulation::write(file, result, &header)?;
    Ok(())
}
