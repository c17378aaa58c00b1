//! `goodput tune`: which settings of a server keep the objectives.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, bail};
use capacity::tune::{Outcome, SCHEMA_VERSION, Setting, TuneAnswer, TuneRequest, Tuned, tune};
use metrics_core::{Seconds, format, grammar};
use sched_sim::{RateScale, Workload};
use serde_json::{Value, json};
use serving_io::engine::EngineOptions;
use serving_io::policy::{takes_batched_tokens, takes_chunk};
use serving_io::scenario::{Scenario, VLLM_V1, WorkloadSource};

use crate::output::{self, Format, check_outputs};
use crate::sim::{
    EngineArguments, GeneratorArguments, MOST_JOBS, count_from, described, in_parallel, progress,
    step_time_file,
};
use crate::trace::Part;

pub const EXAMPLES: &str = "\
Lists are swept: every combination is a setting. Settings that miss an objective for certain are
not run to their end, and limits that a run never reaches are simulated once; neither changes the
answer.

Exit codes: 1 if no setting keeps the objectives, 2 if no setting can run.

Examples:
  goodput tune --slo 'p99(ttft)<500ms,tpot<30ms @ 99%'
  goodput tune --rate 16/s --slo 'p99(ttft)<500ms,tpot<30ms @ 99%' \\
      --max-num-seqs 16,64,256 --max-num-batched-tokens 512,2048,8192
  goodput tune --policy decode-first --max-num-seqs 16,64 --chunk 128,512 --slo 'p99(ttft)<2s'
  goodput tune --policy sarathi,prefill-first --max-num-seqs 64 --num-kv-blocks 2000,8000 \\
      --order fcfs,sjf --slo 'p99(ttft)<5s,tpot<100ms @ 99%'
  goodput tune --trace azure.csv --slo 'p99(ttft)<1s,tpot<50ms @ 99%' --resume search.jsonl";

/// Arguments of `tune`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Requests to replay, as in `goodput sim` [default: the built-in workload].
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    part: Part,
    #[command(flatten)]
    generate: GeneratorArguments,
    /// Factor on the arrival rate, such as 2, 1.5 or 3/2.
    #[arg(long, value_name = "FACTOR")]
    rate_scale: Option<String>,
    /// Objectives: p99(ttft)<1s, tpot<50ms @ 99%, or limits on single requests with --attainment.
    #[arg(long, value_name = "SLO", required = true)]
    slo: Vec<String>,
    /// Share of the requests that has to meet all limits on single requests.
    #[arg(long, value_name = "SHARE")]
    attainment: Option<String>,
    /// What a step costs: coefficients, a preset, or a file of `goodput fit` [default:
    /// llama-3.1-8b-h100-sxm].
    #[arg(long, value_name = "COEFFICIENTS|PRESET|FILE")]
    step_time: Option<String>,
    /// Scheduling policies, as in `goodput sim` [default: vllm-v1].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    policy: Vec<String>,
    /// Most requests in the batch [default: 16 to 1024 in powers of 2].
    #[arg(
        long,
        visible_alias = "max-batch-size",
        alias = "max-running-requests",
        value_delimiter = ',',
        value_name = "LIST"
    )]
    max_num_seqs: Vec<String>,
    /// Most prompt tokens of one request in one step, for policies with a chunk [default: 128 to 2048 in
    /// powers of 2].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    chunk: Vec<String>,
    /// Who is next in the queue: fcfs, sjf, priority; for policies other than vllm-v1 [default: fcfs].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    order: Vec<String>,
    #[command(flatten)]
    engine: EngineArguments,
    /// Threads [default: as many as cores]; the answer is the same.
    #[arg(long, value_name = "N", value_parser = count_from(1, MOST_JOBS))]
    jobs: Option<u64>,
    /// Keep outcomes in a file, and go on from it if it is there.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Run settings to their end that cannot keep the objectives any more.
    #[arg(long)]
    run_to_the_end: bool,
}

/// Batches that are tried where none are given.
const SEQS: [u64; 7] = [16, 32, 64, 128, 256, 512, 1024];
/// Token budgets likewise.
const BUDGETS: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16_384];
/// Chunks likewise.
const CHUNKS: [u64; 5] = [128, 256, 512, 1024, 2048];
/// Settings of one search.
const MOST_SETTINGS: usize = 1_000_000;

/// Whether an option under vLLM's name is one of a policy's.
fn knows(policy: &str, option: &str) -> bool {
    match option {
        _ if policy == VLLM_V1 => true,
        "num_kv_blocks" | "block_size" => true,
        "max_num_batched_tokens" => takes_batched_tokens(policy),
        _ => false,
    }
}

fn counts(option: &str, list: &[String], default: &[u64]) -> Result<Vec<u64>> {
    if list.is_empty() {
        return Ok(default.to_vec());
    }
    list.iter().map(|n| grammar::count(n.trim()).map_err(|e| anyhow!("{option}: {e}"))).collect()
}

impl Arguments {
    /// Refuses to write over what is read.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let read = [self.trace.clone(), step_time_file(self.step_time.as_deref())];
        let read: Vec<PathBuf> = read.into_iter().flatten().chain(self.generate.files()).collect();
        check_outputs(&read, &[("-o", output), ("--resume", self.resume.as_deref())])
    }

    /// What arrives, and what to call it.
    fn workload(&self) -> Result<(String, Workload)> {
        let (title, workload) = if let Some(path) = &self.trace {
            if let Some(flag) = self.generate.given() {
                bail!("{flag}: the requests of {} are not drawn from a seed", path.display());
            }
            let file = self.part.read(path)?;
            (format!("{}: {}", file.name, file.format.title()), file.workload)
        } else {
            if let Some(flag) = self.part.given() {
                bail!("{flag}: is for a trace, add --trace FILE");
            }
            let scenario = Scenario::built_in().map_err(|e| anyhow!("{e}"))?;
            let WorkloadSource::Generated(mut spec) = scenario.workload else {
                bail!("the built-in scenario draws no requests");
            };
            self.generate.apply(&mut spec)?;
            (described(&spec), spec.generate()?)
        };
        let Some(text) = &self.rate_scale else { return Ok((title, workload)) };
        let factor: RateScale = text.trim().parse().map_err(|e| anyhow!("--rate-scale: {e}"))?;
        Ok((format!("{title}, rate times {}", factor.factor()), workload.scale_rate(factor)?))
    }

    /// Every combination of the lists.
    fn settings(&self) -> Result<Vec<Setting>> {
        let mut policies = self.policy.clone();
        policies.extend(self.engine.engine.iter().map(|_| VLLM_V1.to_owned()));
        if policies.is_empty() {
            policies.push(VLLM_V1.to_owned());
        }
        let seqs = counts("--max-num-seqs", &self.max_num_seqs, &SEQS)?;
        let chunks = counts("--chunk", &self.chunk, &CHUNKS)?;
        let not_for = |option: &str| anyhow!("{option}: is not for {}", policies.join(", "));
        if !self.chunk.is_empty() && !policies.iter().any(|p| takes_chunk(p)) {
            return Err(not_for("--chunk"));
        }
        if !self.order.is_empty() && policies.iter().all(|p| p == VLLM_V1) {
            return Err(not_for("--order"));
        }
        let engines = self.engine.combinations()?;
        let given = engines.iter().flat_map(EngineOptions::given);
        if let Some((name, _)) =
            given.into_iter().find(|(name, _)| !policies.iter().any(|p| knows(p, name)))
        {
            return Err(not_for(&format!("--{}", name.replace('_', "-"))));
        }
        let mut all = Vec::new();
        for policy in &policies {
            let is_vllm = policy == VLLM_V1;
            // What a policy does not know makes no settings of it.
            let mut options: Vec<Vec<(String, String)>> = Vec::new();
            for engine in &engines {
                let known = engine.given().iter().filter(|(name, _)| knows(policy, name));
                let known =
                    known.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
                if !options.contains(&known) {
                    options.push(known);
                }
            }
            let chunks: Vec<Option<u64>> = if takes_chunk(policy) {
                chunks.iter().copied().map(Some).collect()
            } else {
                vec![None]
            };
            let orders: Vec<Option<String>> = if is_vllm || self.order.is_empty() {
                vec![None]
            } else {
                self.order.iter().map(|o| Some(o.trim().to_owned())).collect()
            };
            for &n in &seqs {
                let mut push = |engine: &[(String, String)]| {
                    for &chunk in &chunks {
                        for order in &orders {
                            all.push(Setting {
                                policy: policy.clone(),
                                max_num_seqs: Some(n),
                                chunk,
                                engine: engine.to_vec(),
                                order: order.clone(),
                            });
                        }
                    }
                };
                for given in &options {
                    if !is_vllm || given.iter().any(|(name, _)| name == "max_num_batched_tokens") {
                        push(given);
                        continue;
                    }
                    for budget in BUDGETS.iter().filter(|b| n <= **b) {
                        let mut given = given.clone();
                        given.push(("max_num_batched_tokens".to_owned(), budget.to_string()));
                        push(&given);
                    }
                }
            }
        }
        if MOST_SETTINGS < all.len() {
            bail!("{} settings: at most {MOST_SETTINGS} in one search", all.len());
        }
        Ok(all)
    }
}

/// Runs the command; what it prints and the exit code.
pub fn run(arguments: &Arguments, format: Format) -> Result<(String, u8)> {
    let attainment = arguments.attainment.as_deref().map(grammar::share).transpose();
    let request = TuneRequest {
        slo: arguments.slo.join(","),
        attainment: attainment.map_err(|e| anyhow!("--attainment: {e}"))?,
        step_time: arguments.step_time.clone().unwrap_or(serving_io::preset::DEFAULT.to_owned()),
        settings: arguments.settings()?,
        run_to_the_end: arguments.run_to_the_end,
    };
    let (title, workload) = arguments.workload()?;
    let mut journal = arguments
        .resume
        .as_deref()
        .map(|path| Journal::open(path, &request, &workload))
        .transpose()?;
    let known = journal.as_mut().map(|j| std::mem::take(&mut j.known)).unwrap_or_default();
    let bar = progress(request.settings.len(), "settings");
    bar.inc(known.len() as u64);
    let failed: Mutex<Option<std::io::Error>> = Mutex::new(None);
    let done = |i: usize, outcome: &Outcome| {
        bar.inc(1);
        if let Some(Err(e)) = journal.as_ref().map(|j| j.note(i, outcome))
            && let Ok(mut failed) = failed.lock()
        {
            failed.get_or_insert(e);
        }
    };
    let search = || tune(&request, &workload, &known, &done);
    let settings = request.settings.len();
    let answer =
        in_parallel(arguments.jobs, settings, || search().map_err(|e| output::in_flags(&e)));
    bar.finish_and_clear();
    let answer = answer?;
    if let Some(e) = failed.into_inner().ok().flatten() {
        return Err(anyhow!(e).context("--resume: cannot write"));
    }
    let refused = |t: &Tuned| match &t.outcome {
        Outcome::Refused { reason } => Some(reason.clone()),
        _ => None,
    };
    let reasons: Option<Vec<String>> = answer.settings.iter().map(refused).collect();
    if let (Some(reasons), Some(first)) = (reasons, answer.settings.first()) {
        bail!(
            "no setting can run, the first of {}: {}: {}",
            reasons.len(),
            name(&first.setting),
            reasons.first().map_or("", String::as_str)
        );
    }
    let text = match format {
        Format::Json => output::json_text(&serde_json::to_value(&answer)?)?,
        Format::Csv => output::csv_of_json(&serde_json::to_value(&answer)?)?,
        Format::Text | Format::Md => {
            text(&title, &workload, &request, &answer, format == Format::Md)
        }
    };
    Ok((text, u8::from(answer.best.is_none())))
}

/// The outcomes of a search in a file, one a line after a line that says which search it is.
struct Journal {
    known: BTreeMap<usize, Outcome>,
    file: Mutex<File>,
}

/// What a search is of: a file of another one is refused.
fn identity(request: &TuneRequest, workload: &Workload) -> Result<Value> {
    // FNV-1a over all requests.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for r in workload.requests() {
        for byte in [r.arrival.attoseconds(), r.input_tokens.into(), r.output_tokens.into()]
            .iter()
            .flat_map(|x: &u128| x.to_le_bytes())
        {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "goodput-tune-journal",
        "version": env!("CARGO_PKG_VERSION"),
        "requests": workload.len(),
        "requests_fnv1a": format!("{hash:016x}"),
        "request": serde_json::to_value(request)?,
    }))
}

impl Journal {
    fn open(path: &Path, request: &TuneRequest, workload: &Workload) -> Result<Self> {
        let own = identity(request, workload)?;
        let at = || format!("--resume {}", path.display());
        let mut known = BTreeMap::new();
        let mut sound = 0;
        let is_new = !path.exists() || std::fs::metadata(path).with_context(at)?.len() == 0;
        if !is_new {
            let mut lines = BufReader::new(File::open(path).with_context(at)?);
            let mut line = String::new();
            let mut first = true;
            // A last line that was cut off by the end of the search is written anew.
            while 0 < lines.read_line(&mut line).with_context(at)? && line.ends_with('\n') {
                let value: Value = serde_json::from_str(&line).with_context(at)?;
                if first && value != own {
                    bail!(
                        "{}: is of another search: other requests, objectives, step time, settings or version; name a new file",
                        at()
                    );
                }
                if !first {
                    let (i, outcome): (usize, Outcome) =
                        serde_json::from_value(value).with_context(at)?;
                    known.insert(i, outcome);
                }
                first = false;
                sound += line.len() as u64;
                line.clear();
            }
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).with_context(at)?;
        file.set_len(sound).with_context(at)?;
        if sound == 0 {
            writeln!(file, "{own}").with_context(at)?;
        }
        Ok(Self { known, file: Mutex::new(file) })
    }

    fn note(&self, i: usize, outcome: &Outcome) -> std::io::Result<()> {
        let line = format!("{}\n", json!([i, outcome]));
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(line.as_bytes())
    }
}

/// Rows of a table for reading.
const MOST_ROWS: usize = 20;

fn name(s: &Setting) -> String {
    let mut text = s.policy.clone();
    if let Some(n) = s.max_num_seqs {
        text.push_str(&format!(", {n} seqs"));
    }
    if let Some(n) = s.chunk {
        text.push_str(&format!(", chunk {n}"));
    }
    for (name, value) in &s.engine {
        match name.as_str() {
            "max_num_batched_tokens" => text.push_str(&format!(", budget {value}")),
            name => text.push_str(&format!(", {name} {value}")),
        }
    }
    if let Some(order) = &s.order {
        text.push_str(&format!(", {order}"));
    }
    text
}

fn time(s: f64) -> String {
    Seconds::new(s).map_or_else(|_| "-".to_owned(), format::time)
}

/// A setting with its values.
fn row(t: &Tuned) -> Vec<String> {
    let mut row = vec![name(&t.setting)];
    if let Outcome::Run { values_s, .. } = &t.outcome {
        let values = values_s.iter().flatten();
        row.extend(values.map(|v| v.map_or_else(|| "-".to_owned(), time)));
    }
    row.push(t.slack.map_or_else(|| "-".to_owned(), format::percent));
    row.push(t.itl_bound_s.map_or_else(|| "-".to_owned(), time));
    row.push(t.steps_per_prompt.map_or_else(|| "-".to_owned(), |x| format::significant(x, 3)));
    row
}

/// The first of the settings that held out longest, with what was lost and when.
fn nearest(a: &TuneAnswer) -> Option<(&Tuned, usize, u64)> {
    let stopped = a.settings.iter().filter_map(|t| match t.outcome {
        Outcome::Stopped { goal, after_requests } => Some((t, goal, after_requests)),
        _ => None,
    });
    stopped.reduce(|longest, next| if longest.2 < next.2 { next } else { longest })
}

fn text(
    title: &str,
    workload: &Workload,
    request: &TuneRequest,
    a: &TuneAnswer,
    md: bool,
) -> String {
    let keeps = a.settings.iter().filter(|t| t.keeps).count();
    let count = |f: fn(&Outcome) -> bool| a.settings.iter().filter(|t| f(&t.outcome)).count();
    let stopped = count(|o| matches!(o, Outcome::Stopped { .. }));
    let refused = count(|o| matches!(o, Outcome::Refused { .. }));
    let total = format::things(a.settings.len() as u64, "setting");
    let mut out = match a.best.and_then(|i| a.settings.get(i)) {
        Some(best) => {
            format!("{keeps} of {total} keep the SLO; most slack: {}\n", name(&best.setting))
        }
        None => format!("none of {total} keeps the SLO\n"),
    };
    let bullet = if md { "- " } else { "  " };
    let mut line = |label: &str, content: &str| {
        let label = if md { format!("{label}: ") } else { format!("{label:11}") };
        out.push_str(&format!("{bullet}{label}{content}\n"));
    };
    if md {
        line("requests", &format!("{}, {title}", workload.len()));
    } else {
        line("requests", &format!("{}, {}", workload.len(), output::one_line(title)));
    }
    line("slo", &a.goals.join(", "));
    line("step time", &output::one_line(&request.step_time));
    if 0 < stopped {
        line("stopped", &format!("{stopped} once an SLO was out of reach"));
    }
    if let Some((reason, t)) = a.settings.iter().find_map(|t| match &t.outcome {
        Outcome::Refused { reason } => Some((reason, t)),
        _ => None,
    }) {
        line("refused", &format!("{refused}, the first: {}: {reason}", name(&t.setting)));
    }
    if a.best.is_none()
        && let Some((t, goal, after)) = nearest(a)
    {
        let goal = a.goals.get(goal).map_or("", String::as_str);
        line(
            "nearest",
            &format!(
                "{}: `{goal}` out of reach after {} requests; --run-to-the-end has its values",
                name(&t.setting),
                format::count(after as f64)
            ),
        );
    }
    if let Some(flags) = a.best.and_then(|i| a.settings.get(i)?.flags.as_ref()) {
        line("flags", flags);
    }
    // Settings that are the same run stand in one row.
    let mut front: Vec<&Tuned> = a.settings.iter().filter(|t| t.on_front).collect();
    front.sort_by(|x, y| {
        let slack = |t: &Tuned| t.slack.unwrap_or(f64::NEG_INFINITY);
        slack(y).total_cmp(&slack(x))
    });
    let all = front.len();
    let same = |t: &Tuned, u: &Tuned| t.outcome == u.outcome;
    let mut rows: Vec<(&Tuned, usize)> = Vec::new();
    for t in front {
        match rows.iter_mut().find(|(u, _)| same(t, u)) {
            Some((_, like)) => *like += 1,
            None => rows.push((t, 0)),
        }
    }
    if !rows.is_empty() {
        let mut header = vec!["on the front".to_owned()];
        header.extend(a.goals.iter().cloned());
        header.extend(["slack", "ITL at most", "steps a prompt", "same run"].map(str::to_owned));
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let shown: Vec<Vec<String>> = rows
            .iter()
            .take(MOST_ROWS)
            .map(|(t, like)| {
                let mut row = row(t);
                row.push(if *like == 0 { String::new() } else { format!("+{like}") });
                row
            })
            .collect();
        out.push('\n');
        out.push_str(&output::table(&header, &shown, md));
        if MOST_ROWS < rows.len() {
            // A line right below a table of Markdown is one of its rows.
            let gap = if md { "\n" } else { "" };
            let more = rows.len() - MOST_ROWS;
            out.push_str(&format!("{gap}{more} more on the front: --format json\n"));
        }
        out.push_str(&format!(
            "\n{all} on the front: no other setting is better in one value and not worse in another\n"
        ));
        out.push_str(
            "one run each, on the same requests: near a limit try the settings with `goodput sim --seeds 10`\n",
        );
    }
    out
}
