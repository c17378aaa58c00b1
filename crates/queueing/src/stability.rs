//! How much traffic a continuously batching server can take at all.
//!
//! Two limits, and both must hold: tokens per iteration, and memory held over iterations. A server
//! may be far below one and beyond the other: with long prompts the token budget is spent while
//! the KV cache is nearly empty.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{PURE, RATE, TIME, shown};
use crate::error::{QueueError, Result, positive};

/// Most tokens of a request, of an iteration or of a memory, so that their products are exact.
const MAX_TOKENS: u64 = 1_000_000_000_000;

/// A number of tokens, at least one.
fn tokens(name: &'static str, n: u64) -> Result<f64> {
    if n == 0 || MAX_TOKENS < n {
        let expected = "a whole number from 1 to 1000000000000";
        return Err(QueueError::OutOfRange { name, value: n as f64, expected });
    }
    Ok(n as f64)
}

/// Largest arrival rate that a token budget per iteration can keep up with.
///
/// ```text
/// token_budget_limit = budget / (t_iteration * (prompt + output))
/// ```
///
/// `budget` is the number of tokens that one iteration processes at most, `t_iteration` how long it
/// then takes, `prompt` and `output` the mean tokens of a request. A scheduler that fills every
/// iteration reaches any rate below it; at or above, the queue grows for ever.
///
/// # Errors
///
/// [`QueueError`] unless the counts are from 1 to 10^12 and `t_iteration` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// // 512 tokens every 20 ms are 25,600 a second, and a request takes 384.
/// let limit = queueing::stability::token_budget_limit(512, 0.02, 256, 128)?;
/// assert!((limit - 66.666_666_666_667).abs() < 1e-9);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Li, Dai and Peng, arXiv 2504.07347.
pub fn token_budget_limit(budget: u64, t_iteration: f64, prompt: u64, output: u64) -> Result<f64> {
    let (budget, t) = (tokens("budget", budget)?, positive("t_iteration", t_iteration)?);
    Ok(budget / (t * (tokens("prompt", prompt)? + tokens("output", output)?)))
}

/// The catalog entry of [`token_budget_limit`].
#[cfg(feature = "catalog")]
pub const TOKEN_BUDGET_LIMIT: Metric = Metric {
    id: "token_budget_limit",
    symbol: r"\lambda_b",
    name: text("Stability limit by token budget", "由 token 预算决定的稳定极限"),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[BUDGET, ITERATION, PROMPT, OUTPUT],
    formula: Formula::Scalar {
        text: "budget / (t_iteration * (prompt + output))",
        eval: |x| {
            let (budget, prompt) = (whole("budget", x[0])?, whole("prompt", x[2])?);
            shown(RATE, token_budget_limit(budget, x[1], prompt, whole("output", x[3])?))
        },
        example: (&[500.0, 0.02, 150.0, 100.0], 100.0),
    },
    path: "queueing::stability::token_budget_limit",
    source: Source { work: "Li, Dai and Peng, arXiv 2504.07347", section: "stability" },
    note: text(
        "The memory limit must hold as well; the smaller of the two decides.",
        "还必须满足显存极限；两者中较小的起决定作用。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const BUDGET: Input = Input::whole(
    "budget",
    "b",
    PURE,
    (1.0, 8192.0),
    text("tokens of one iteration", "每次迭代处理的 token 数"),
);
#[cfg(feature = "catalog")]
const ITERATION: Input = Input::real(
    "t_iteration",
    "t_b",
    TIME,
    (0.001, 1.0),
    text("time of one iteration", "迭代时长"),
);
#[cfg(feature = "catalog")]
const PROMPT: Input =
    Input::whole("prompt", "m_p", PURE, (1.0, 4000.0), text("prompt tokens", "输入 token 数"));
#[cfg(feature = "catalog")]
const OUTPUT: Input =
    Input::whole("output", "m_d", PURE, (1.0, 2000.0), text("output tokens", "输出 token 数"));

/// Memory that a request holds, summed over the iterations of its life.
///
/// ```text
/// memory_iterations = sum(j, 1, ceil(prompt / chunk), min(j * chunk, prompt))
///                     + prompt * output + output * (output + 1) / 2
/// ```
///
/// `prompt` and `output` are the tokens of the request and `chunk` the most prompt tokens of one
/// iteration. In tokens times iterations: the cache fills chunk by chunk, then holds the prompt and
/// one more output token at each decode.
///
/// # Errors
///
/// [`QueueError`] unless all counts are from 1 to 10^12.
///
/// # Examples
///
/// ```
/// // Chunks of 2 for 3 tokens: 2 + 3, then 3 + 1 and 3 + 2.
/// assert_eq!(queueing::stability::memory_iterations(3, 2, 2)?, 14.0);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Nie, Si and Zhou, arXiv 2605.04595, with prefill in chunks.
pub fn memory_iterations(prompt: u64, output: u64, chunk: u64) -> Result<f64> {
    let (s, o) = (tokens("prompt", prompt)?, tokens("output", output)?);
    let chunk = tokens("chunk", chunk)?;
    // All chunks but the last are full.
    let full = (s / chunk).ceil() - 1.0;
    Ok(chunk * (full * (full + 1.0) / 2.0) + s + s * o + o * (o + 1.0) / 2.0)
}

/// The catalog entry of [`memory_iterations`].
#[cfg(feature = "catalog")]
pub const MEMORY_ITERATIONS: Metric = Metric {
    id: "memory_iterations",
    symbol: "g",
    name: text("Memory held over a request's life", "请求生命周期内占用的显存总量"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[PROMPT, OUTPUT, CHUNK],
    formula: Formula::Scalar {
        text: "sum(j, 1, ceil(prompt / chunk), min(j * chunk, prompt)) + prompt * output + output * (output + 1) / 2",
        eval: |x| {
            let (prompt, output) = (whole("prompt", x[0])?, whole("output", x[1])?);
            shown(PURE, memory_iterations(prompt, output, whole("chunk", x[2])?))
        },
        example: (&[3.0, 2.0, 2.0], 14.0),
    },
    path: "queueing::stability::memory_iterations",
    source: Source { work: "Nie, Si and Zhou, arXiv 2605.04595", section: "stability" },
    note: text(
        "It grows with the square of the answer: the mean length alone underestimates it.",
        "它随输出长度平方增长：只用平均长度会低估。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const CHUNK: Input = Input::whole(
    "chunk",
    "b_c",
    PURE,
    (1.0, 2048.0),
    text("most prompt tokens of one iteration", "每次迭代最多处理的输入 token 数"),
);

/// Largest arrival rate that a KV memory can keep up with.
///
/// ```text
/// kv_memory_limit = memory / (t_iteration * held)
/// ```
///
/// `memory` is the number of tokens that the KV cache holds, `t_iteration` the mean time of one
/// iteration, and `held` the mean of [`memory_iterations`] over the requests. Above it the system is
/// overloaded; a scheduler that packs well is stable below.
///
/// # Errors
///
/// [`QueueError`] unless `memory` is from 1 to 10^12 and the others from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// let held = queueing::stability::memory_iterations(512, 128, 512)?;
/// let limit = queueing::stability::kv_memory_limit(16_000, 0.03, held)?;
/// assert!((limit - 7.177_720_356).abs() < 1e-8);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Nie, Si and Zhou, arXiv 2605.04595.
pub fn kv_memory_limit(memory: u64, t_iteration: f64, held: f64) -> Result<f64> {
    let (memory, t) = (tokens("memory", memory)?, positive("t_iteration", t_iteration)?);
    Ok(memory / t / positive("held", held)?)
}

/// The catalog entry of [`kv_memory_limit`].
#[cfg(feature = "catalog")]
pub const KV_MEMORY_LIMIT: Metric = Metric {
    id: "kv_memory_limit",
    symbol: r"\lambda_M",
    name: text("Stability limit by KV memory", "由 KV 显存决定的稳定极限"),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[MEMORY, ITERATION, HELD],
    formula: Formula::Scalar {
        text: "memory / (t_iteration * held)",
        eval: |x| shown(RATE, kv_memory_limit(whole("memory", x[0])?, x[1], x[2])),
        example: (&[10_000.0, 0.1, 1000.0], 100.0),
    },
    path: "queueing::stability::kv_memory_limit",
    source: Source { work: "Nie, Si and Zhou, arXiv 2605.04595", section: "stability" },
    note: text(
        "A rate, not a stock: a half-empty cache says nothing about it.",
        "这是速率而不是存量：缓存半空并不说明离极限还远。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const MEMORY: Input = Input::whole(
    "memory",
    "M",
    PURE,
    (100.0, 1_000_000.0),
    text("tokens that the KV cache holds", "KV 缓存可容纳的 token 数"),
);
#[cfg(feature = "catalog")]
const HELD: Input = Input::real(
    "held",
    "E[g]",
    PURE,
    (1.0, 10_000_000.0),
    text("mean memory held over a request's life", "请求生命周期内占用显存的均值"),
);

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&TOKEN_BUDGET_LIMIT, &MEMORY_ITERATIONS, &KV_MEMORY_LIMIT];
