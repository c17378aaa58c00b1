//! Findings about the comparison of two runs: are the two figures the same thing?

use crate::format::{percent, rate, value};
use crate::metric::{Source, text};

use super::evidence::{Facts, Load, Rate};
use super::{Check, Command, Finding, Level, Subject};

/// Over what a tool divides the time of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerToken {
    /// (E2E − TTFT) / (N − 1): vLLM and SGLang `tpot`, AIPerf and GuideLLM `inter_token_latency`,
    /// inference-perf, MLPerf.
    AfterFirst,
    /// E2E / N, prefill included: GuideLLM `time_per_output_token`.
    AllTokens,
    /// Between the chunks of a stream, pooled: vLLM `itl`, AIPerf `inter_chunk_latency`.
    Chunks,
    /// (TTFT + gaps) / lines of the stream: llmperf.
    Lines,
}

impl PerToken {
    /// What a tool means by a figure's name; `None` where neither is known.
    #[must_use]
    pub fn named(tool: &str, figure: &str) -> Option<Self> {
        let tool = tool.to_ascii_lowercase();
        let figure = figure.to_ascii_lowercase();
        let is = |name: &str| tool.contains(name);
        Some(match figure.as_str() {
            "time_per_output_token" if is("guidellm") => Self::AllTokens,
            "inter_token_latency" if is("llmperf") => Self::Lines,
            "inter_token_latency" if is("aiperf") || is("guidellm") => Self::AfterFirst,
            "inter_chunk_latency" | "inter_chunk_gap" => Self::Chunks,
            "itl" if is("vllm") || is("sglang") => Self::Chunks,
            "tpot" | "time_per_output_token" => Self::AfterFirst,
            _ => return None,
        })
    }

    /// The formula in words.
    #[must_use]
    pub const fn formula(self) -> &'static str {
        match self {
            Self::AfterFirst => "(E2E - TTFT) / (N - 1)",
            Self::AllTokens => "E2E / N",
            Self::Chunks => "gaps between chunks",
            Self::Lines => "(TTFT + gaps) / lines",
        }
    }
}

/// E2E / N of an answer from its TTFT and TPOT: GuideLLM's time per output token.
///
/// ```text
/// per_token = (ttft + (n_out - 1) * tpot) / n_out
/// ```
///
/// `None` for an answer without a token.
#[must_use]
pub fn over_all_tokens(ttft_s: f64, tpot_s: f64, n_out: u64) -> Option<f64> {
    (1 <= n_out).then(|| (ttft_s + (n_out as f64 - 1.0) * tpot_s) / n_out as f64)
}

/// W13: two figures of one name with different definitions.
///
/// `convertible` tells whether TTFT and the token counts are known per request on both sides, so
/// that one can be computed from the other.
#[must_use]
pub fn definition_mismatch(a: PerToken, b: PerToken, convertible: bool) -> Option<Finding> {
    if a == b {
        return None;
    }
    let chunks = |d: PerToken| matches!(d, PerToken::Chunks | PerToken::Lines);
    let can = convertible && !chunks(a) && !chunks(b);
    let says = format!(
        "one is {}, the other {}: {}",
        a.formula(),
        b.formula(),
        if can { "converted" } else { "they cannot be converted, so they are not compared" }
    );
    Some(W13.finding(if can { Level::Note } else { Level::Error }, says))
}

/// See [`definition_mismatch`].
pub const W13: Check = Check {
    id: "W13",
    name: "definition-mismatch",
    title: text("two definitions of one name", "同名而定义不同"),
    rule: text(
        "the tools' figures have different definitions: a note where one can be converted from detail per request, else an error and no comparison",
        "两个工具的数字定义不同：若可由逐请求明细换算则为提示，否则为错误且不作比较",
    ),
    why: text(
        "GuideLLM's time per output token counts the prefill; its inter-token latency is everybody else's TPOT.",
        "GuideLLM 的 time per output token 含 prefill；其 inter-token latency 才是其他工具的 TPOT。",
    ),
    levels: &[Level::Note, Level::Error],
    affects: &[Subject::Tpot, Subject::Itl, Subject::Comparison],
    advice: text(
        "compare figures that we computed from both files",
        "比较由我们从两个文件算出的数字",
    ),
    source: Source { work: "guidellm#1144; configiq#8", section: "metric fault 20" },
    raised_by: &[Command::Diff],
};

/// W36: TTFT of two runs that stand in different regimes.
///
/// In a closed loop a server that answers shorter takes more requests a second at the same
/// concurrency, so its TTFT is that of another load. Prompts of another length are another load in
/// any loop, and so is one rate that only one of the servers keeps up with.
#[must_use]
pub fn regime_differs(a: &Facts, b: &Facts) -> Option<Finding> {
    let mut parts = Vec::new();
    let closed = a.load.clients().is_some() || b.load.clients().is_some();
    let apart = |x: f64, y: f64| 0.1 * x.max(y) < (x - y).abs();
    let mut numbers = Vec::new();
    if let (Some(x), Some(y)) = (a.output.mean, b.output.mean)
        && closed
        && apart(x, y)
    {
        parts.push(format!(
            "closed loops with answers of {} and {} tokens",
            value(x.round()),
            value(y.round())
        ));
        numbers.extend([("output_mean_a_tokens", x), ("output_mean_b_tokens", y)]);
    }
    if let (Some(x), Some(y)) = (a.input_mean(), b.input_mean())
        && apart(x, y)
    {
        parts.push(format!("prompts of {} and {} tokens", value(x.round()), value(y.round())));
        numbers.extend([("input_mean_a_tokens", x), ("input_mean_b_tokens", y)]);
    }
    match (a.load.clients(), b.load.clients()) {
        (Some(x), Some(y)) if x != y => parts.push(format!("{x} and {y} clients")),
        (Some(n), None) | (None, Some(n)) if a.load != b.load => {
            parts.push(format!("a closed loop of {n} clients and another load"));
        }
        _ => {}
    }
    let unlimited = |l: &Load| l.rate == Some(Rate::Unlimited) && l.concurrency.is_none();
    match (a.load.offered_per_s(), b.load.offered_per_s()) {
        (Some(x), Some(y)) if 0.01 * x.max(y) < (x - y).abs() => {
            parts.push(format!("{} and {} req/s offered", value(x), value(y)));
        }
        (Some(x), Some(_)) => {
            if let (Some(of_a), Some(of_b)) = (a.requests_per_s, b.requests_per_s)
                && apart(of_a, of_b)
            {
                parts.push(format!(
                    "{} req/s offered to both, and {} and {} req/s answered",
                    value(x),
                    rate(of_a),
                    rate(of_b)
                ));
                numbers.push(("requests_per_s_ratio", of_a / of_b));
            }
        }
        (Some(x), None) if unlimited(&b.load) => {
            parts.push(format!("{} req/s offered and all requests at once", value(x)));
        }
        (None, Some(x)) if unlimited(&a.load) => {
            parts.push(format!("all requests at once and {} req/s offered", value(x)));
        }
        _ => {}
    }
    if let (Some(x), Some(y)) = (a.requests_per_s, b.requests_per_s)
        && closed
        && !parts.is_empty()
        && apart(x, y)
    {
        parts.push(format!("so that one answers {} as many requests", percent(x / y)));
        numbers.push(("requests_per_s_ratio", x / y));
    }
    if parts.is_empty() {
        return None;
    }
    let finding = W36.finding(Level::Warn, parts.join(", "));
    Some(numbers.into_iter().fold(finding, |f, (name, x)| f.number(name, x)))
}

/// See [`regime_differs`].
pub const W36: Check = Check {
    id: "W36",
    name: "regime-differs",
    title: text("the runs stand in different regimes", "两次运行处于不同工况"),
    rule: text(
        "two closed loops whose mean output lengths differ by more than a tenth, two runs whose mean prompt lengths do, or whose concurrency or rate differ, or one rate that the two answer more than a tenth apart",
        "两个闭环的平均输出长度相差一成以上；或两次运行的平均提示词长度相差一成以上，或并发或速率不同；或同一速率下两者的完成速率相差一成以上",
    ),
    why: text(
        "At equal concurrency the server with shorter answers gets more requests a second; its TTFT belongs to that load.",
        "并发相同时，回答较短的服务器每秒得到更多请求；其 TTFT 属于那个负载。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Ttft, Subject::Comparison],
    advice: text(
        "compare at one offered rate with one output length, as with ignore_eos",
        "以相同的提供速率与输出长度比较，例如用 ignore_eos",
    ),
    source: Source { work: "vllm#13412; vllm#19694", section: "" },
    raised_by: &[Command::Diff],
};
