//! Findings about what was sent and counted: prompts, tokens, instants, and what is possible.

use crate::format::{percent, rate, significant, things};
use crate::metric::{Source, text};

use super::evidence::{Bound, Facts, Ideal, Load, Prompts, Rate};
use super::{Check, Command, Finding, LATENCIES, Level, Subject, seconds};

/// W17: part of the prompts was in the prefix cache already.
///
/// A warning where the prompts were to be random or were sent before in the run, a note where
/// shared prefixes may be meant.
#[must_use]
pub fn warm_cache(prompts: &Prompts, random: Option<bool>) -> Option<Finding> {
    let cached = prompts
        .cached
        .filter(|_| 0.0 < prompts.tokens)
        .map(|c| c / prompts.tokens)
        .filter(|s| 0.01 < *s);
    let repeated = (0 < prompts.known)
        .then(|| prompts.repeated as f64 / prompts.known as f64)
        .filter(|s| 0.01 < *s);
    let mut parts = Vec::new();
    if let Some(share) = cached {
        let random = if random == Some(true) { ", although they are random" } else { "" };
        parts.push(format!("{} of the prompt tokens were cached{random}", percent(share)));
    }
    if let Some(share) = repeated {
        parts.push(format!("{} of the prompts had been sent before in the run", percent(share)));
    }
    if parts.is_empty() {
        return None;
    }
    let level = if random == Some(true) || repeated.is_some() { Level::Warn } else { Level::Note };
    Some(
        W17.finding(level, parts.join("; "))
            .maybe("cached_share", cached)
            .maybe("repeated_share", repeated),
    )
}

/// W17 between two runs of one server: prompts of the second that the first had sent.
#[must_use]
pub fn warm_cache_between(shared: u64, prompts: u64) -> Option<Finding> {
    let share = (0 < prompts).then(|| shared as f64 / prompts as f64).filter(|s| 0.01 < *s)?;
    let says = format!(
        "{} of the prompts were sent in the other run too: whichever came second found them cached",
        percent(share)
    );
    Some(W17.finding(Level::Warn, says).number("shared_share", share))
}

/// See [`warm_cache`].
pub const W17: Check = Check {
    id: "W17",
    name: "warm-prefix-cache",
    title: text("the prefix cache was warm", "前缀缓存已预热"),
    rule: text(
        "cached / prompt tokens > 1 %, or more than 1 % of the prompts repeat within the run or between two runs; a warning if prompts are random or repeat, else a note",
        "缓存 / prompt token 数 > 1 %，或超过 1 % 的 prompt 在本次或两次运行间重复；随机或重复的 prompt 为警告，否则为提示",
    ),
    why: text(
        "The same seed on the same server sends the same prompts, and their prefill costs nothing the second time: 37 % to 93 % of a figure has been this.",
        "同一种子、同一服务器会发送同样的 prompt，第二次 prefill 几乎免费：曾有 37 % 到 93 % 的数字由此而来。",
    ),
    levels: &[Level::Note, Level::Warn],
    affects: &[Subject::Throughput, Subject::Ttft, Subject::E2e, Subject::Goodput],
    advice: text(
        "use a new seed for each run, or restart the server or its cache; with shared prefixes state the hit rate",
        "每次运行换种子，或重启服务器或清空缓存；有共享前缀时说明命中率",
    ),
    source: Source {
        work: "vllm#52884; vllm#54227; vllm PR#10753; inference-perf PR#340",
        section: "case K061",
    },
    raised_by: &[Command::Report, Command::Diff],
};

/// W24: tokens per second that count the prompts as well.
///
/// `stated_per_s` is a rate that its tool calls neither output nor total.
#[must_use]
pub fn total_as_output(
    stated_per_s: f64,
    input_tokens: u64,
    output_tokens: u64,
    window_s: f64,
) -> Option<Finding> {
    let output = output_tokens as f64 / window_s;
    let total = (input_tokens as f64 + output_tokens as f64) / window_s;
    let near = |x: f64| (stated_per_s - x).abs() <= 0.01 * x;
    if !(0.0 < window_s && near(total)) || near(output) {
        return None;
    }
    let says = format!(
        "{} tok/s counts input and output together; output alone is {} tok/s",
        rate(stated_per_s),
        rate(output)
    );
    Some(
        W24.finding(Level::Warn, says)
            .number("stated_tokens_per_s", stated_per_s)
            .number("output_tokens_per_s", output)
            .number("total_tokens_per_s", total),
    )
}

/// See [`total_as_output`].
pub const W24: Check = Check {
    id: "W24",
    name: "total-as-output",
    title: text("tokens per second count the prompts", "token 速率含 prompt"),
    rule: text(
        "a stated rate that is called neither output nor total equals (input + output) / window within 1 %, and output / window does not",
        "未标明输出或合计的速率与（输入 + 输出）/ 窗口相差不超过 1 %，而与输出 / 窗口不符",
    ),
    why: text(
        "Prompt tokens are far cheaper than output tokens, so the sum says little about either.",
        "prompt token 比输出 token 便宜得多，其和对两者都说明不了什么。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Throughput, Subject::Cost],
    advice: text("label it total, and read the output rate", "标明为合计，并看输出速率"),
    source: Source { work: "TensorRT-LLM#321", section: "case K058" },
    raised_by: &[Command::Report],
};

/// W25: faster than the hardware can be, or many times slower.
///
/// Only [`Bound::Floor`] can be beaten by nothing, so that only it raises the error.
#[must_use]
pub fn against_ideal(ideal: &Ideal) -> Option<Finding> {
    let ratio = ideal.measured_s / ideal.bound_s;
    if !ratio.is_finite() || ratio < 0.0 || ideal.bound_s <= 0.0 {
        return None;
    }
    let name = ideal.subject.text().en;
    let (level, says) = if ideal.bound == Bound::Floor && ratio < 0.95 {
        let says = format!(
            "{name} {} is faster than the {} that bandwidth and FLOP allow: another precision, cached tokens, or another model",
            seconds(ideal.measured_s),
            seconds(ideal.bound_s)
        );
        (Level::Error, says)
    } else if 5.0 < ratio {
        let allowed = match ideal.bound {
            Bound::Floor => "that bandwidth and FLOP allow",
            Bound::Load => "that bandwidth and FLOP allow with all requests in one batch",
        };
        let says = format!(
            "{name} {} is {} times the {} {allowed}",
            seconds(ideal.measured_s),
            significant(ratio, 3),
            seconds(ideal.bound_s)
        );
        (Level::Warn, says)
    } else {
        return None;
    };
    Some(
        W25.finding(level, says)
            .affecting(&[ideal.subject])
            .number("measured_s", ideal.measured_s)
            .number("bound_s", ideal.bound_s)
            .number("ratio", ratio),
    )
}

/// See [`against_ideal`].
pub const W25: Check = Check {
    id: "W25",
    name: "faster-than-light",
    title: text("faster than possible, or many times slower", "快于物理极限，或慢数倍"),
    rule: text(
        "measured < 0.95 · the least possible is an error; a mean TPOT > 5 · the step of as many requests as are in the system, or steps of a fit all > 5 · the least possible, a warning",
        "测得 < 0.95 · 理想下界为错误；TPOT 均值 > 5 倍（系统内全部请求同批的一步），或拟合的步全部 > 5 倍下界，为警告",
    ),
    why: text(
        "No kernel beats the bandwidth of its memory. A figure below the bound belongs to another precision, to cached tokens or to another model. The step of all in the system is no such bound: with a queue or several replicas a batch holds fewer of them.",
        "任何核函数都快不过显存带宽。低于下界的数字属于别的精度、缓存的 token 或别的模型。系统内全部请求同批的一步不是这样的下界：有排队或多个副本时，一个批次装的请求更少。",
    ),
    levels: &[Level::Warn, Level::Error],
    affects: LATENCIES,
    advice: text(
        "check precision, prefix cache and which model answered",
        "检查精度、前缀缓存以及实际应答的模型",
    ),
    source: Source { work: "aiconfigurator#1150; TensorRT-LLM#321", section: "case K032" },
    raised_by: &[Command::Report, Command::Sim, Command::Fit],
};

/// The instants of a trace, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TraceTiming {
    /// Requests.
    pub n: u64,
    /// Of them without an instant.
    pub missing: u64,
    /// Different instants.
    pub distinct: u64,
    /// Instants before the one of the line above; 0 where the order means nothing.
    pub decreasing: u64,
    /// From the first to the last, in seconds as read.
    pub span_s: f64,
    /// The rate that the trace is said to have, if any.
    pub stated_per_s: Option<f64>,
    /// Prompts whose number of block hashes is not their tokens over the block size.
    pub wrong_blocks: u64,
}

impl TraceTiming {
    /// Counts instants in the order of the file.
    #[must_use]
    pub fn of(instants: &[Option<f64>]) -> Self {
        let known: Vec<f64> = instants.iter().copied().flatten().collect();
        let decreasing = known.windows(2).filter(|w| matches!(w, [a, b] if b < a)).count() as u64;
        let mut sorted = known;
        sorted.sort_unstable_by(f64::total_cmp);
        let distinct = sorted.chunk_by(|a, b| a >= b).count() as u64;
        let span = sorted.first().zip(sorted.last()).map_or(0.0, |(a, b)| b - a);
        Self {
            n: instants.len() as u64,
            missing: (instants.len() - sorted.len()) as u64,
            distinct,
            decreasing,
            span_s: span,
            stated_per_s: None,
            wrong_blocks: 0,
        }
    }
}

/// W31: the instants of a trace cannot be what they say.
#[must_use]
pub fn trace_timing(t: &TraceTiming) -> Option<Finding> {
    let mut parts = Vec::new();
    let known = t.n.saturating_sub(t.missing);
    if 0 < t.missing {
        parts.push(format!("{} of {} have no instant", t.missing, things(t.n, "request")));
    }
    if 1 < known && t.distinct == 1 {
        parts.push(format!("all {known} instants are equal"));
    }
    if 0 < t.decreasing {
        parts.push(format!("{} before the one above", things(t.decreasing, "instant")));
    }
    let unit = t.stated_per_s.filter(|r| 0.0 < *r && 0.0 < t.span_s && 20 <= known).and_then(|r| {
        let ratio = (known - 1) as f64 / t.span_s / r;
        if (500.0..2000.0).contains(&ratio) {
            Some(("a thousand times", "are they milliseconds?", ratio))
        } else if (0.0005..0.002).contains(&ratio) {
            Some(("a thousandth of", "are they milliseconds read as seconds?", ratio))
        } else {
            None
        }
    });
    if let Some((times, question, _)) = unit {
        parts.push(format!("their rate is {times} the stated one: {question}"));
    }
    if 0 < t.wrong_blocks {
        parts.push(format!(
            "{} with another number of block hashes than tokens over block size",
            things(t.wrong_blocks, "prompt")
        ));
    }
    if parts.is_empty() {
        return None;
    }
    Some(
        W31.finding(Level::Warn, parts.join("; "))
            .number("requests", t.n as f64)
            .number("missing", t.missing as f64)
            .number("distinct", t.distinct as f64)
            .number("decreasing", t.decreasing as f64)
            .maybe("rate_over_stated", unit.map(|u| u.2)),
    )
}

/// See [`trace_timing`].
pub const W31: Check = Check {
    id: "W31",
    name: "trace-timing",
    title: text("the instants of the trace are doubtful", "轨迹的时刻可疑"),
    rule: text(
        "instants are missing for some requests, all equal, decreasing in a trace, or give a rate a thousand times the stated one; or block hashes do not fit the prompt length",
        "部分请求缺少时刻、时刻全部相等、在轨迹中倒退，或速率为所述的一千倍；或块哈希数与 prompt 长度不符",
    ),
    why: text(
        "A replay with the wrong unit or with all requests at once measures another load; times between starts are no think times.",
        "单位错误或全部同时发出的回放量的是另一种负载；两次开始之间的时间不是思考时间。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Trace, Subject::Throughput],
    advice: text(
        "give the unit of the column, and say whether an instant is when a request was due or sent",
        "注明该列的单位，并说明时刻是应发出还是实际发出",
    ),
    source: Source {
        work: "inference-sim#1478; inference-sim#1270; smg PR#636; guidellm PR#948",
        section: "",
    },
    raised_by: &[Command::Report],
};

/// What the arrivals of a result file show: their order in the file means nothing, and a client
/// without a rate may send all at once.
fn timing_of_result(facts: &Facts) -> TraceTiming {
    let load: &Load = &facts.load;
    let s = &facts.sending;
    let open = matches!(load.rate, Some(Rate::PerSecond(_)));
    let equal = open && 1 < s.n && s.span_s == Some(0.0);
    TraceTiming {
        n: s.n + s.without_arrival,
        missing: s.without_arrival,
        distinct: if equal { 1 } else { s.n },
        decreasing: 0,
        span_s: s.span_s.unwrap_or(0.0),
        stated_per_s: load.offered_per_s(),
        wrong_blocks: 0,
    }
}

/// What these rules say of a run.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(warm_cache(&facts.prompts, facts.load.random_prompts));
    if let (Some(stated), Some(i), Some(o), Some(window)) =
        (facts.tokens_per_s, facts.input_tokens, facts.output.total, facts.window_s)
    {
        found.extend(total_as_output(stated, i, o, window));
    }
    found.extend(facts.ideal.iter().filter_map(against_ideal));
    if 0 < facts.sending.n {
        found.extend(trace_timing(&timing_of_result(facts)));
    }
    found
}
