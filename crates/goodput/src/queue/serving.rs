//! What is about LLM servers: the autoscaler's chain, stability limits, bursts.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use metrics_core::format;
use metrics_core::metric::Language;
use queueing::lps::{Autoscaler as Server, ServingLaw};
use queueing::profile::{Kind, Profile};
use queueing::{approx, stability};
use serving_io::trace::{TraceOptions, read_trace_path};

use super::answer::{Answer, reading, say, seconds};
use super::input::{Show, count, pure, rate, share, time};

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LawName {
    /// October 2025: --alpha, --beta, --gamma, --delta.
    V1,
    /// February 2026.
    V2,
    /// June 2026: prompts in chunks of 8192 tokens a step.
    #[default]
    Chunked,
}

#[derive(Args, Debug)]
pub struct Autoscaler {
    /// Arrival rate; without it, the largest at which --ttft and --itl are kept.
    #[arg(long, value_name = "RATE", required_unless_present_any = ["ttft", "itl"])]
    rate: Option<String>,
    /// Service law.
    #[arg(long, value_enum, default_value_t)]
    law: LawName,
    /// Time of a step without requests.
    #[arg(long, value_name = "TIME")]
    alpha: String,
    /// Time of one token's computation.
    #[arg(long, value_name = "TIME")]
    beta: String,
    /// Time of one token's memory access (of a prefill without tokens in v1).
    #[arg(long, value_name = "TIME")]
    gamma: String,
    /// Time per prompt token and request of the batch; v1 only.
    #[arg(long, value_name = "TIME")]
    delta: Option<String>,
    /// Mean input tokens.
    #[arg(long, value_name = "NUMBER")]
    input_tokens: String,
    /// Mean output tokens.
    #[arg(long, value_name = "NUMBER")]
    output_tokens: String,
    /// Most requests that run at once.
    #[arg(long, visible_alias = "max-num-seqs", value_name = "COUNT")]
    max_batch: String,
    /// Waiting places; without it, ten times the batch.
    #[arg(long, value_name = "COUNT")]
    max_queue: Option<String>,
    /// Limit on the mean TTFT.
    #[arg(long, value_name = "TIME")]
    ttft: Option<String>,
    /// Limit on the mean time between tokens.
    #[arg(long, value_name = "TIME")]
    itl: Option<String>,
    /// Percentile of TTFT that --ttft is a limit on, instead of the mean.
    #[arg(long, value_name = "SHARE", requires = "ttft")]
    percentile: Option<String>,
    /// Find the smallest batch with 99 % of the throughput at --max-batch; needs --ttft and --itl.
    #[arg(long, requires = "ttft", requires = "itl", conflicts_with_all = ["rate", "percentile"])]
    smallest_batch: bool,
    /// Also the distribution of the response time, which takes seconds for long queues.
    #[arg(long)]
    response: bool,
    #[command(flatten)]
    show: Show,
}

/// What the inputs of the model are on the command line.
pub const OPTIONS: &[(&str, &str)] = &[
    ("alpha", "--alpha"),
    ("beta", "--beta"),
    ("gamma", "--gamma"),
    ("delta", "--delta"),
    ("n_in", "--input-tokens"),
    ("n_out", "--output-tokens"),
    ("max_batch", "--max-batch"),
    ("max_queue", "--max-queue"),
    ("rate", "--rate"),
    ("ttft", "--ttft: TTFT"),
    ("itl", "--itl: the time between tokens"),
    ("p", "--percentile"),
];

/// The server that the flags describe.
fn server(a: &Autoscaler) -> Result<Server> {
    let (alpha, beta, gamma) =
        (time("--alpha", &a.alpha)?, time("--beta", &a.beta)?, time("--gamma", &a.gamma)?);
    let law = match (a.law, &a.delta) {
        (LawName::V1, Some(delta)) => {
            ServingLaw::V1 { alpha, beta, gamma, delta: time("--delta", delta)? }
        }
        (LawName::V1, None) => bail!("--delta: the law v1 needs it"),
        (_, Some(_)) => bail!("--delta: only the law v1 has it"),
        (LawName::V2, None) => ServingLaw::V2 { alpha, beta, gamma },
        (LawName::Chunked, None) => ServingLaw::Chunked { alpha, beta, gamma },
    };
    let (n_in, n_out) =
        (pure("--input-tokens", &a.input_tokens)?, pure("--output-tokens", &a.output_tokens)?);
    let max_batch = count("--max-batch", &a.max_batch)?;
    let max_queue = match &a.max_queue {
        Some(queue) => count("--max-queue", queue)?,
        None => max_batch.saturating_mul(10),
    };
    Ok(Server::new(law, n_in, n_out, max_batch, max_queue)?)
}

/// A figure before the language of its answer is settled.
type Found = (Kind, &'static str, String, f64);

/// The rates that keep the limits, and the batch that is enough, which the server then has.
fn limits(
    server: &mut Server,
    a: &Autoscaler,
    (ttft, itl, percentile): (Option<f64>, Option<f64>, Option<f64>),
    language: Language,
) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    if let (true, Some(ttft), Some(itl)) = (a.smallest_batch, ttft, itl) {
        let choice = server.smallest_batch(ttft, itl, 0.99)?;
        *server = server.with_max_batch(choice.max_batch)?;
        found.push((
            Kind::Number,
            "max_batch",
            say!(language, "smallest batch", "最小批上限"),
            choice.max_batch as f64,
        ));
        found.push((
            Kind::Rate,
            "peak_throughput",
            say!(language, "throughput at the largest", "最大批上限时的吞吐"),
            choice.peak,
        ));
    }
    if let Some(ttft) = ttft {
        let limit = match percentile {
            Some(p) => server.max_rate_for_ttft_quantile(p, ttft)?,
            None => server.max_rate_for_ttft(ttft)?,
        };
        found.push((
            Kind::Rate,
            "max_rate_for_ttft",
            say!(language, "largest rate for --ttft", "满足 --ttft 的最大速率"),
            limit,
        ));
    }
    if let Some(itl) = itl {
        let limit = server.max_rate_for_itl(itl)?;
        found.push((
            Kind::Rate,
            "max_rate_for_itl",
            say!(language, "largest rate for --itl", "满足 --itl 的最大速率"),
            limit,
        ));
    }
    Ok(found)
}

pub fn autoscaler(a: &Autoscaler, language: Language) -> Result<Answer> {
    let mut server = server(a)?;
    let ttft = a.ttft.as_deref().map(|t| time("--ttft", t)).transpose()?;
    let itl = a.itl.as_deref().map(|t| time("--itl", t)).transpose()?;
    let percentile = a.percentile.as_deref().map(|p| share("--percentile", p)).transpose()?;
    let found = limits(&mut server, a, (ttft, itl, percentile), language)?;
    let least = found
        .iter()
        .filter(|f| f.1.starts_with("max_rate_for"))
        .map(|f| f.3)
        .fold(f64::INFINITY, f64::min);
    let lambda = match &a.rate {
        Some(r) => rate("--rate", r)?,
        None => least,
    };
    let (arrive, batch, max_queue) =
        (format::value(lambda), server.max_batch(), server.max_queue());
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "LLM autoscaler's chain: {arrive}/s arrive, a batch of at most {batch}, {max_queue} may wait",
            "LLM 自动扩缩器的链：每秒到达 {arrive} 个，批至多 {batch} 个，最多 {max_queue} 个等待"
        ),
    );
    for (kind, key, label, value) in found {
        answer.add(kind, key, label, value);
    }
    answer.add(
        Kind::Rate,
        "max_rate",
        say!(language, "rate of a full batch", "满批速率"),
        server.max_rate()?,
    );
    let state = server.at(lambda)?;
    answer.add(Kind::Time, "ttft", say!(language, "mean TTFT", "平均 TTFT"), state.ttft);
    for (name, p) in a.show.percentiles()? {
        let label =
            say!(language, "p{name} TTFT, prefill at its mean", "TTFT p{name}（prefill 取均值）");
        answer.add(Kind::Time, format!("ttft_p{name}"), label, state.ttft_quantile(p)?);
    }
    answer.add(
        Kind::Time,
        "prefill",
        say!(language, "mean prefill", "平均 prefill 时间"),
        state.prefill,
    );
    answer.add(
        Kind::Time,
        "itl",
        say!(language, "mean time between tokens", "平均 token 间隔"),
        state.itl,
    );
    let at = |rate: f64| {
        let chain = server.at(rate)?.chain;
        let response = if a.response { Some(chain.response()?) } else { None };
        let profile = Profile::from(chain);
        Ok(match response {
            Some(response) => profile.with_response(response),
            None => profile,
        })
    };
    let profile = at(lambda)?;
    answer.profile(&profile, &a.show)?;
    if let Some(loads) = a.show.curve()? {
        answer.curve(&loads, server.max_rate()?, &at)?;
    }
    answer.reading = reading(&profile, None, language);
    let p99 = state.ttft_quantile(0.99)?;
    let times = format::significant(p99 / state.ttft, 3);
    answer.reading += &say!(
        language,
        " The P99 of TTFT is {times} times the mean that the autoscaler sizes by.",
        "TTFT 的 P99 是自动扩缩器所依据均值的 {times} 倍。"
    );
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct Stability {
    /// Time of one iteration.
    #[arg(long, value_name = "TIME")]
    iteration: String,
    /// Tokens of one iteration.
    #[arg(long, visible_alias = "max-num-batched-tokens", value_name = "COUNT")]
    token_budget: String,
    /// Tokens that the KV cache holds.
    #[arg(long, value_name = "COUNT")]
    kv_tokens: String,
    /// Most prompt tokens of one request in an iteration; without it, the token budget.
    #[arg(long, value_name = "COUNT")]
    chunk: Option<String>,
    /// Input tokens of a request.
    #[arg(long, value_name = "COUNT")]
    input_tokens: String,
    /// Output tokens of a request.
    #[arg(long, value_name = "COUNT")]
    output_tokens: String,
    /// Arrival rate to compare with the limits.
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
}

pub fn stable(a: &Stability, language: Language) -> Result<Answer> {
    let (t, budget) =
        (time("--iteration", &a.iteration)?, count("--token-budget", &a.token_budget)?);
    let (prompt, output) =
        (count("--input-tokens", &a.input_tokens)?, count("--output-tokens", &a.output_tokens)?);
    let chunk = a.chunk.as_deref().map(|c| count("--chunk", c)).transpose()?.unwrap_or(budget);
    let tokens = stability::token_budget_limit(budget, t, prompt, output)?;
    let held = stability::memory_iterations(prompt, output, chunk)?;
    let memory = stability::kv_memory_limit(count("--kv-tokens", &a.kv_tokens)?, t, held)?;
    let least = tokens.min(memory);
    let each = seconds(t);
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "Stability of continuous batching: {prompt} input and {output} output tokens, an iteration takes {each}",
            "连续批处理的稳定性：{prompt} 个输入与 {output} 个输出 token，每次迭代 {each}"
        ),
    );
    answer.add(
        Kind::Rate,
        "token_budget_limit",
        say!(language, "limit by token budget", "token 预算极限"),
        tokens,
    );
    answer.add(
        Kind::Rate,
        "kv_memory_limit",
        say!(language, "limit by KV memory", "KV 显存极限"),
        memory,
    );
    answer.add(
        Kind::Number,
        "memory_iterations",
        say!(language, "KV tokens held, summed over iterations", "KV token 占用（按迭代累计）"),
        held,
    );
    answer.add(Kind::Rate, "limit", say!(language, "largest stable rate", "最大稳定速率"), least);
    let (binding, limit) = (
        if tokens <= memory {
            say!(language, "The token budget", "token 预算")
        } else {
            say!(language, "KV memory", "KV 显存")
        },
        format::value(least),
    );
    answer.reading = say!(
        language,
        "{binding} binds: the queue stays bounded below {limit}/s.",
        "{binding}是瓶颈：低于 {limit}/s 时队列有界。"
    );
    if let Some(r) = &a.rate {
        let load = rate("--rate", r)? / least;
        answer.add(Kind::Share, "load", say!(language, "load against it", "相对负载"), load);
        answer.reading += &if load < 1.0 {
            say!(language, " This rate is below it.", "该速率低于极限。")
        } else {
            say!(
                language,
                " At this rate the queue grows without end.",
                "在该速率下队列会无限增长。"
            )
        };
    }
    answer.notes.push(say!(
        language,
        "Both need a scheduler that leaves no budget unused while requests wait; lengths are taken as given, not as means.",
        "两者都要求有请求等待时调度器不浪费预算；长度取定值而非均值。"
    ));
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct Burst {
    /// Trace whose arrivals are measured: any that `goodput sim --trace` reads.
    #[arg(value_name = "TRACE", required_unless_present = "gap_cv", conflicts_with = "gap_cv")]
    pub trace: Option<PathBuf>,
    /// Coefficient of variation of the gaps between arrivals, instead of a trace.
    #[arg(long, value_name = "CV")]
    gap_cv: Option<String>,
    /// Coefficient of variation of the service time.
    #[arg(long, value_name = "CV", default_value = "1")]
    cv: String,
}

pub fn burst(a: &Burst, language: Language) -> Result<Answer> {
    let cv = pure("--cv", &a.cv)?;
    let mut count = None;
    let ca2 = match (&a.trace, &a.gap_cv) {
        (Some(path), _) => {
            let read = read_trace_path(path, &TraceOptions::default())
                .with_context(|| path.display().to_string())?;
            let arrivals: Vec<f64> =
                read.workload.requests().iter().map(|r| r.arrival.seconds()).collect();
            count = Some(arrivals.len());
            let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
            approx::gap_scv(&gaps)?
        }
        (None, Some(cv)) => {
            let cv = pure("--gap-cv", cv)?;
            cv * cv
        }
        (None, None) => bail!("give a trace or --gap-cv"),
    };
    let factor = approx::wait_factor(ca2, cv * cv)?;
    let mut answer = Answer::new(
        language,
        match count {
            Some(n) => {
                say!(language, "Bursts: gaps between {n} arrivals", "突发：{n} 个到达的间隔")
            }
            None => say!(language, "Bursts: gaps between arrivals", "突发：到达间隔"),
        },
    );
    answer.add(
        Kind::Number,
        "gap_cv",
        say!(language, "coefficient of variation of the gaps", "间隔的变异系数"),
        ca2.sqrt(),
    );
    answer.add(
        Kind::Number,
        "service_cv",
        say!(language, "of the service time", "服务时间的变异系数"),
        cv,
    );
    answer.add(
        Kind::Number,
        "wait_factor",
        say!(language, "waits against Poisson arrivals", "等待时间相对泊松到达的倍数"),
        factor,
    );
    let times = format::significant(factor, 3);
    answer.reading = if 1.2 < ca2.sqrt() {
        say!(
            language,
            "Arrivals are bursty (above 1.2): waits are about {times} times what M/M/c says, and its answers are not to be believed.",
            "到达有突发（超过 1.2）：等待约为 M/M/c 的 {times} 倍，不可相信其结果。"
        )
    } else {
        say!(
            language,
            "Waits are about {times} times what a model with Poisson arrivals says.",
            "等待约为泊松到达模型的 {times} 倍。"
        )
    };
    if let Some(note) = queueing::catalog::find("wait_factor") {
        answer.notes.push(note.note.in_language(language).to_owned());
    }
    Ok(answer)
}
