//! What a latency is made of: parts of TTFT and TPOT, and budgets for E2E.

use crate::error::{Error, Result, above, at_least, within};
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, text, whole};
use crate::units::{Bytes, BytesPerSecond, FlopPerSecond, Seconds, SecondsPerToken};
#[cfg(feature = "catalog")]
use crate::units::{Quantity, Unit};

/// Time to first token as the sum of the three waits before it.
///
/// ```text
/// ttft_from_parts = w_queue + t_prefill + t_first_decode
/// ```
///
/// `w_queue` is the wait for admission, in the queue and for a batch; `t_prefill` the time to
/// compute the prompt; `t_first_decode` the time to make the first output token. Engines whose
/// last prefill step already yields that token (vLLM) have `t_first_decode` = 0. Exact for one
/// request and for means, not between percentiles: those of the parts do not add.
///
/// # Errors
///
/// [`Error::TooLarge`] if the sum leaves the range of a time.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, budget::ttft_from_parts};
///
/// let ttft = ttft_from_parts(Seconds::new(0.25)?, Seconds::new(0.5)?, Seconds::new(0.125)?)?;
/// assert_eq!(ttft, Seconds::new(0.875)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 1.2.
pub fn ttft_from_parts(
    w_queue: Seconds,
    t_prefill: Seconds,
    t_first_decode: Seconds,
) -> Result<Seconds> {
    Seconds::named("ttft", w_queue.get() + t_prefill.get() + t_first_decode.get())
}

/// The catalog entry of [`ttft_from_parts`].
#[cfg(feature = "catalog")]
pub const TTFT_FROM_PARTS: Metric = Metric {
    id: "ttft_from_parts",
    symbol: r"\mathrm{TTFT}",
    name: text("TTFT from its parts", "TTFT 的三段分解"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[
        seconds(
            "w_queue",
            r"W_{\mathrm{queue}}",
            text("wait for admission, queue and batch", "准入、排队与等待 batch 的时间"),
        ),
        T_PREFILL,
        seconds(
            "t_first_decode",
            r"T_{\text{first-decode}}",
            text("time to make the first output token", "生成首个输出 token 的时间"),
        ),
    ],
    formula: Formula::Scalar {
        text: "w_queue + t_prefill + t_first_decode",
        eval: |x| {
            computed(ttft_from_parts(Seconds::new(x[0])?, Seconds::new(x[1])?, Seconds::new(x[2])?))
        },
        example: (&[0.25, 0.5, 0.125], 0.875),
    },
    path: "metrics_core::budget::ttft_from_parts",
    source: Source { work: "formula walkthrough", section: "1.2" },
    note: text(
        "A worse TTFT need not mean a slower decode: the queue or a long prompt can be the cause. Percentiles of the parts do not add.",
        "TTFT 变差不代表 decode 变慢，原因可能是排队或长 prompt；各段的百分位数不能相加。",
    ),
    exported: &[],
};

/// A time of a budget, up to a minute.
#[cfg(feature = "catalog")]
const fn seconds(id: &'static str, symbol: &'static str, name: crate::metric::Text) -> Input {
    Input::real(id, symbol, Unit::SECOND, (0.0, 60.0), name)
}
#[cfg(feature = "catalog")]
const T_PREFILL: Input = seconds(
    "t_prefill",
    r"T_{\mathrm{prefill}}",
    text("time to compute the prompt", "prefill 时间"),
);
#[cfg(feature = "catalog")]
const T_QUEUE: Input =
    seconds("t_queue", r"T_{\mathrm{queue}}", text("time in the queue", "排队时间"));

/// Time to first token as queue, prefill and the scheduler's own overhead.
///
/// ```text
/// ttft_with_scheduling = t_queue + t_prefill + t_scheduling
/// ```
///
/// `t_queue` is the wait before the first step that computes the prompt, `t_prefill` the time in
/// those steps, the one that yields the first token included, and `t_scheduling` what scheduler,
/// tokenizer and output path add. The other split of TTFT, [`ttft_from_parts`], names the first
/// decode step instead; a time belongs in one of them only.
///
/// # Errors
///
/// [`Error::TooLarge`] if the sum leaves the range of a time.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, budget::ttft_with_scheduling};
///
/// let ttft = ttft_with_scheduling(Seconds::new(0.25)?, Seconds::new(0.5)?, Seconds::ZERO)?;
/// assert_eq!(ttft, Seconds::new(0.75)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 1.2.
pub fn ttft_with_scheduling(
    t_queue: Seconds,
    t_prefill: Seconds,
    t_scheduling: Seconds,
) -> Result<Seconds> {
    Seconds::named("ttft", t_queue.get() + t_prefill.get() + t_scheduling.get())
}

/// The catalog entry of [`ttft_with_scheduling`].
#[cfg(feature = "catalog")]
pub const TTFT_WITH_SCHEDULING: Metric = Metric {
    id: "ttft_with_scheduling",
    symbol: r"\mathrm{TTFT}",
    name: text("TTFT with scheduling overhead", "含调度开销的 TTFT 分解"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[
        T_QUEUE,
        T_PREFILL,
        seconds(
            "t_scheduling",
            r"T_{\mathrm{scheduling}}",
            text("overhead of scheduling", "调度开销"),
        ),
    ],
    formula: Formula::Scalar {
        text: "t_queue + t_prefill + t_scheduling",
        eval: |x| {
            computed(ttft_with_scheduling(
                Seconds::new(x[0])?,
                Seconds::new(x[1])?,
                Seconds::new(x[2])?,
            ))
        },
        example: (&[0.25, 0.5, 0.03125], 0.781_25),
    },
    path: "metrics_core::budget::ttft_with_scheduling",
    source: Source { work: "metric dictionary", section: "1.2" },
    note: text(
        "Here the prefill holds the step that yields the first token; do not add a first decode step on top.",
        "这里的 prefill 已包含产生首个 token 的那一步，不要再加一次首步 decode。",
    ),
    exported: &[],
};

/// Time to compute a prompt in one piece, from the model's size and the GPU's speed.
///
/// ```text
/// prefill_time = 2 * n_params * t_in / (peak_flops * mfu)
/// ```
///
/// `n_params` counts the parameters that a token passes (the active ones of a mixture of experts),
/// each one multiplication and one addition per token; `t_in` the prompt tokens to compute, those
/// found in a prefix cache left out; `peak_flops` is the dense peak in the precision used, over all
/// GPUs of the replica; `mfu` the share of it that is reached. Attention's own work, which grows
/// with the square of the prompt, is not in it.
///
/// # Errors
///
/// [`Error::TooSmall`] if `n_params < 1`, [`Error::NotAbove`] if `peak_flops` or `mfu` is zero,
/// [`Error::TooLarge`] if `mfu` is above 1 or the result leaves the range of a time.
///
/// # Examples
///
/// ```
/// use metrics_core::{budget::prefill_time, units::FlopPerSecond};
///
/// // 2 · 10^10 parameters · 1,000 tokens = 2 · 10^13 FLOP, at half of 10^14 FLOP/s.
/// let t = prefill_time(10_000_000_000, 1_000, FlopPerSecond::new(1e14)?, 0.5)?;
/// assert!((t.get() - 0.4).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 1.2.
pub fn prefill_time(
    n_params: u64,
    t_in: u64,
    peak_flops: FlopPerSecond,
    mfu: f64,
) -> Result<Seconds> {
    let flop = 2.0 * at_least("n_params", n_params as f64, 1.0)? * t_in as f64;
    let speed = above("peak_flops", peak_flops.get(), 0.0)?
        * within("mfu", above("mfu", mfu, 0.0)?, 0.0, 1.0)?;
    Seconds::named("prefill time", flop / speed)
}

/// The catalog entry of [`prefill_time`].
#[cfg(feature = "catalog")]
pub const PREFILL_TIME: Metric = Metric {
    id: "prefill_time",
    symbol: r"T_{\mathrm{prefill}}",
    name: text("Prefill time, in one piece", "一次性 prefill 的时间"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[
        Input::whole(
            "n_params",
            "N",
            Unit::PARAMETER,
            (1.0, 1e12),
            text("parameters that a token passes", "每个 token 经过的参数量"),
        )
        .counts_as(Unit::FLOP.per(Unit::TOKEN)),
        T_IN,
        Input::real(
            "peak_flops",
            r"\mathrm{FLOPS}",
            FlopPerSecond::UNIT,
            (1e12, 1e16),
            text("dense peak of the replica's GPUs", "副本所有 GPU 的稠密峰值算力"),
        ),
        Input::real(
            "mfu",
            r"\mathrm{MFU}",
            Unit::ONE,
            (0.01, 1.0),
            text("share of the peak that is reached", "算力利用率"),
        ),
    ],
    formula: Formula::Scalar {
        text: "2 * n_params * t_in / (peak_flops * mfu)",
        eval: |x| {
            computed(prefill_time(
                whole("n_params", x[0])?,
                whole("t_in", x[1])?,
                FlopPerSecond::new(x[2])?,
                x[3],
            ))
        },
        example: (&[1e10, 1000.0, 1e14, 0.5], 0.4),
    },
    path: "metrics_core::budget::prefill_time",
    source: Source { work: "metric dictionary", section: "1.2" },
    note: text(
        "Attention's own work grows with the square of the prompt and is not in it: long prompts take longer.",
        "不含注意力本身的计算，它随 prompt 长度平方增长：长 prompt 实际更慢。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const T_IN: Input = Input::whole(
    "t_in",
    r"T_{\mathrm{in}}",
    Unit::TOKEN,
    (0.0, 131_072.0),
    text("prompt tokens to compute", "需要计算的输入 token 数"),
);

/// Time to compute a prompt in chunks, each in a step that it shares with decodes.
///
/// ```text
/// chunked_prefill_time = ceil(t_in / c_chunk) * t_chunk + t_decode_interleave
/// ```
///
/// `t_in` counts the prompt tokens to compute and `c_chunk` those of a full chunk; `t_chunk` is the
/// time of one chunk, `t_decode_interleave` all that the decodes in between add. The last chunk
/// counts as a full one, so a prompt just above a multiple of the chunk looks dearer than it is.
/// With one chunk and nothing in between it is the unchunked time.
///
/// # Errors
///
/// [`Error::TooSmall`] if `c_chunk` is 0, [`Error::TooLarge`] if the result leaves the range of a
/// time.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, budget::chunked_prefill_time};
///
/// // 1,100 tokens are three chunks of at most 512.
/// let t = chunked_prefill_time(1_100, 512, Seconds::new(0.25)?, Seconds::new(0.125)?)?;
/// assert_eq!(t, Seconds::new(0.875)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 1.2.
pub fn chunked_prefill_time(
    t_in: u64,
    c_chunk: u64,
    t_chunk: Seconds,
    t_decode_interleave: Seconds,
) -> Result<Seconds> {
    at_least("c_chunk", c_chunk as f64, 1.0)?;
    let chunks = t_in.div_ceil(c_chunk) as f64;
    Seconds::named("prefill time", chunks * t_chunk.get() + t_decode_interleave.get())
}

/// The catalog entry of [`chunked_prefill_time`].
#[cfg(feature = "catalog")]
pub const CHUNKED_PREFILL_TIME: Metric = Metric {
    id: "chunked_prefill_time",
    symbol: r"T_{\mathrm{prefill}}",
    name: text("Prefill time, in chunks", "chunked prefill 的时间"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[
        T_IN,
        Input::whole(
            "c_chunk",
            r"C_{\mathrm{size}}",
            Unit::TOKEN,
            (1.0, 16_384.0),
            text("tokens of a full chunk", "一个完整 chunk 的 token 数"),
        ),
        Input::real(
            "t_chunk",
            r"T_{\mathrm{chunk}}",
            Unit::SECOND,
            (0.0, 2.0),
            text("time of one chunk", "单个 chunk 的时间"),
        ),
        seconds(
            "t_decode_interleave",
            r"T_{\text{decode interleave}}",
            text("time that decodes in between add", "穿插的 decode 所增加的时间"),
        ),
    ],
    formula: Formula::Scalar {
        text: "ceil(t_in / c_chunk) * t_chunk + t_decode_interleave",
        eval: |x| {
            computed(chunked_prefill_time(
                whole("t_in", x[0])?,
                whole("c_chunk", x[1])?,
                Seconds::new(x[2])?,
                Seconds::new(x[3])?,
            ))
        },
        example: (&[1100.0, 512.0, 0.25, 0.125], 0.875),
    },
    path: "metrics_core::budget::chunked_prefill_time",
    source: Source { work: "metric dictionary", section: "1.2" },
    note: text(
        "The last chunk counts as a full one; a chunk's time depends on the decodes that share its step.",
        "最后一个 chunk 按整块计；chunk 的时间取决于与它同步执行的 decode。",
    ),
    exported: &[],
};

/// Time per output token from what a decode step reads from memory.
///
/// ```text
/// tpot_bandwidth = (m_weights + m_kv_step) / bandwidth + t_comm + t_scheduling
/// ```
///
/// `m_weights` and `m_kv_step` are the bytes of weights and of KV that one decode step reads (see
/// [`kv_step_bytes`](crate::roofline::kv_step_bytes)), over all requests in it; `bandwidth` is the
/// memory bandwidth that is reached; `t_comm` and `t_scheduling` are what communication between
/// GPUs and the scheduler add to a step. A step yields one token of each of its requests, so that
/// its time is a time per token; speculative decoding, which yields several, needs a division
/// first. Prefill that shares the step is not in it.
///
/// # Errors
///
/// [`Error::NotAbove`] if `bandwidth` is zero, [`Error::TooLarge`] if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, budget::tpot_bandwidth, units::{Bytes, BytesPerSecond}};
///
/// // 16 GB of weights and 4 GB of KV at 2 TB/s are 10 ms; communication and scheduling add 3 ms.
/// let tpot = tpot_bandwidth(
///     Bytes::new(16e9)?,
///     Bytes::new(4e9)?,
///     BytesPerSecond::new(2e12)?,
///     Seconds::from_millis(2.0)?,
///     Seconds::from_millis(1.0)?,
/// )?;
/// assert!((tpot.get() - 0.013).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 1.3.
pub fn tpot_bandwidth(
    m_weights: Bytes,
    m_kv_step: Bytes,
    bandwidth: BytesPerSecond,
    t_comm: Seconds,
    t_scheduling: Seconds,
) -> Result<SecondsPerToken> {
    let reading = (m_weights.get() + m_kv_step.get()) / above("bandwidth", bandwidth.get(), 0.0)?;
    SecondsPerToken::named("tpot", reading + t_comm.get() + t_scheduling.get())
}

/// The catalog entry of [`tpot_bandwidth`].
#[cfg(feature = "catalog")]
pub const TPOT_BANDWIDTH: Metric = Metric {
    id: "tpot_bandwidth",
    symbol: r"\mathrm{TPOT}",
    name: text("TPOT, bandwidth form", "TPOT 的带宽分解"),
    layer: Layer::Latency,
    unit: SecondsPerToken::UNIT,
    inputs: &[
        Input::real(
            "m_weights",
            r"M_{\mathrm{weights}}",
            Unit::BYTE,
            (0.0, 1e12),
            text("bytes of weights read in a step", "每步读取的权重字节数"),
        )
        .counts_as(Unit::BYTE.per(Unit::TOKEN)),
        Input::real(
            "m_kv_step",
            r"M_{\text{KV step}}",
            Unit::BYTE,
            (0.0, 1e12),
            text("bytes of KV read in a step", "每步读取的 KV 字节数"),
        )
        .counts_as(Unit::BYTE.per(Unit::TOKEN)),
        Input::real(
            "bandwidth",
            r"\mathrm{BW}",
            BytesPerSecond::UNIT,
            (1e11, 1e14),
            text("memory bandwidth that is reached", "实际达到的显存带宽"),
        ),
        step_time(
            "t_comm",
            r"T_{\mathrm{comm}}",
            text("communication in a step", "每步的通信时间"),
        ),
        step_time(
            "t_scheduling",
            r"T_{\mathrm{scheduling}}",
            text("scheduling in a step", "每步的调度时间"),
        ),
    ],
    formula: Formula::Scalar {
        text: "(m_weights + m_kv_step) / bandwidth + t_comm + t_scheduling",
        eval: |x| {
            computed(tpot_bandwidth(
                Bytes::new(x[0])?,
                Bytes::new(x[1])?,
                BytesPerSecond::new(x[2])?,
                Seconds::new(x[3])?,
                Seconds::new(x[4])?,
            ))
        },
        example: (&[16e9, 4e9, 2e12, 0.002, 0.001], 0.013),
    },
    path: "metrics_core::budget::tpot_bandwidth",
    source: Source { work: "metric dictionary", section: "1.3" },
    note: text(
        "The time of a pure decode step, which yields one token of each request; a prefill chunk in the step lengthens it.",
        "这是纯 decode 步的时间，每个请求每步得到一个 token；步内若带 prefill chunk 会更长。",
    ),
    exported: &[],
};

/// A time of one decode step, which is a time per token of each of its requests.
#[cfg(feature = "catalog")]
const fn step_time(id: &'static str, symbol: &'static str, name: crate::metric::Text) -> Input {
    Input::real(id, symbol, Unit::SECOND, (0.0, 0.5), name).counts_as(Unit::SECOND.per(Unit::TOKEN))
}

/// Time per output token as the larger of computing and moving KV.
///
/// ```text
/// tpot_roofline = max(t_compute, t_decode_step)
/// ```
///
/// `t_compute` is the time in which one decode step could compute, `t_decode_step` that in which it
/// could move its KV (see
/// [`kv_step_time_lower_bound`](crate::roofline::kv_step_time_lower_bound)). Another approximation
/// than [`tpot_bandwidth`]: without weights, communication and scheduling, and as if computing and
/// moving overlapped in full. As there, a step yields one token of each of its requests.
///
/// # Errors
///
/// [`Error::TooLarge`] if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, SecondsPerToken, budget::tpot_roofline};
///
/// let tpot = tpot_roofline(Seconds::new(0.004)?, Seconds::new(0.012)?)?;
/// assert_eq!(tpot, SecondsPerToken::new(0.012)?); // moving KV decides
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 6.3.
pub fn tpot_roofline(t_compute: Seconds, t_decode_step: Seconds) -> Result<SecondsPerToken> {
    SecondsPerToken::named("tpot", t_compute.get().max(t_decode_step.get()))
}

/// The catalog entry of [`tpot_roofline`].
#[cfg(feature = "catalog")]
pub const TPOT_ROOFLINE: Metric = Metric {
    id: "tpot_roofline",
    symbol: r"\mathrm{TPOT}",
    name: text("TPOT, roofline form", "TPOT 的 roofline 近似"),
    layer: Layer::Latency,
    unit: SecondsPerToken::UNIT,
    inputs: &[
        step_time(
            "t_compute",
            r"T_{\mathrm{compute}}",
            text("computing in a decode step", "decode 步的计算时间"),
        ),
        step_time(
            "t_decode_step",
            r"T_{\text{decode-step}}",
            text("moving KV in a decode step", "decode 步搬运 KV 的时间"),
        ),
    ],
    formula: Formula::Scalar {
        text: "max(t_compute, t_decode_step)",
        eval: |x| computed(tpot_roofline(Seconds::new(x[0])?, Seconds::new(x[1])?)),
        example: (&[0.004, 0.012], 0.012),
    },
    path: "metrics_core::budget::tpot_roofline",
    source: Source { work: "formula walkthrough", section: "6.3" },
    note: text(
        "Weights are not in it: at small batches, where they are most of what a step reads, the bandwidth form is the better one.",
        "它不含权重：小 batch 时每步读取的主要是权重，应使用带宽分解。",
    ),
    exported: &[],
};

/// End-to-end latency as a budget over the four stages of a request.
///
/// ```text
/// e2e_budget = t_queue + t_prefill + t_decode + t_network
/// ```
///
/// The times in the queue, in prefill, in decode and on the network, of one request or as means
/// over the same requests, for which the sum is exact. Percentiles do not add: the sum of four P99s
/// is a budget, which the total may exceed more than 1 % of the time (see [`union_bound`]).
///
/// # Errors
///
/// [`Error::TooLarge`] if the sum leaves the range of a time.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, budget::e2e_budget};
///
/// let s = Seconds::new;
/// assert_eq!(e2e_budget(s(0.25)?, s(0.5)?, s(2.0)?, s(0.0625)?)?, s(2.8125)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 1, with network as the fourth part.
pub fn e2e_budget(
    t_queue: Seconds,
    t_prefill: Seconds,
    t_decode: Seconds,
    t_network: Seconds,
) -> Result<Seconds> {
    Seconds::named("e2e", t_queue.get() + t_prefill.get() + t_decode.get() + t_network.get())
}

/// The catalog entry of [`e2e_budget`].
#[cfg(feature = "catalog")]
pub const E2E_BUDGET: Metric = Metric {
    id: "e2e_budget",
    symbol: r"T_{\mathrm{E2E}}",
    name: text("End-to-end budget", "端到端时延预算"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[
        T_QUEUE,
        T_PREFILL,
        seconds("t_decode", r"T_{\mathrm{decode}}", text("time in decode", "decode 时间")),
        seconds("t_network", r"T_{\mathrm{network}}", text("time on the network", "网络时间")),
    ],
    formula: Formula::Scalar {
        text: "t_queue + t_prefill + t_decode + t_network",
        eval: |x| {
            computed(e2e_budget(
                Seconds::new(x[0])?,
                Seconds::new(x[1])?,
                Seconds::new(x[2])?,
                Seconds::new(x[3])?,
            ))
        },
        example: (&[0.25, 0.5, 2.0, 0.0625], 2.8125),
    },
    path: "metrics_core::budget::e2e_budget",
    source: Source { work: "formula walkthrough", section: "1" },
    note: text(
        "Exact for one request and for means. The sum of the parts' P99s is a budget, not the P99 of the sum.",
        "对单个请求和均值精确成立；各段 P99 之和只是预算，不是总时延的 P99。",
    ),
    exported: &[],
};

/// How often a total may exceed the sum of its parts' limits, at most.
///
/// ```text
/// union_bound = min(1, sum of alphas)
/// ```
///
/// `alphas` holds, for each part, the probability that it exceeds its own limit. The total can
/// exceed the sum of the limits only where a part does, however the parts depend on each other; a
/// sum above 1 bounds nothing and is given as 1, the bound that every probability has. Four parts
/// that each keep their P99 may miss together up to 4 % of the time.
///
/// # Errors
///
/// [`Error::Empty`] without parts, [`Error::NotFinite`], [`Error::TooSmall`] or
/// [`Error::TooLarge`] unless each `alpha` is a probability.
///
/// # Examples
///
/// ```
/// use metrics_core::budget::union_bound;
///
/// assert!((union_bound(&[0.01; 4])? - 0.04).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Boole's inequality; Feller, *An Introduction to Probability Theory and Its
/// Applications*, vol. 1, 3rd ed., 1968, I.7.
pub fn union_bound(alphas: &[f64]) -> Result<f64> {
    if alphas.is_empty() {
        return Err(Error::Empty { input: "alphas", item: "part" });
    }
    let mut sum = 0.0;
    for &alpha in alphas {
        sum += within("alpha", alpha, 0.0, 1.0)?;
    }
    Ok(sum.min(1.0))
}

/// The catalog entry of [`union_bound`].
#[cfg(feature = "catalog")]
pub const UNION_BOUND: Metric = Metric {
    id: "union_bound",
    symbol: r"\alpha_{\mathrm{total}}",
    name: text("Bound on missing a budget", "预算超限概率的上界"),
    layer: Layer::Latency,
    unit: Unit::ONE,
    inputs: &[Input::real(
        "alphas",
        r"\alpha_i",
        Unit::ONE,
        (0.0, 1.0),
        text("probability that part i exceeds its limit", "第 i 段超过其限值的概率"),
    )],
    formula: Formula::Law {
        latex: r"P\left(\sum_i X_i > \sum_i x_i\right) \le \min\left(1,\ \sum_i \alpha_i\right), \quad \alpha_i = P(X_i > x_i)",
        why: text("It runs over any number of parts.", "它对任意多个部分求和。"),
        test: "tests/budget.rs::the_total_misses_no_more_often_than_the_union_bound_says",
        example: text(
            "four parts, each above its limit 1 % of the time",
            "四段，每段有 1% 的概率超限",
        ),
        run: || computed(union_bound(&[0.01; 4])),
        value: 0.04,
    },
    path: "metrics_core::budget::union_bound",
    source: Source {
        work: "Feller, An Introduction to Probability Theory and Its Applications, vol. 1, 3rd ed., 1968",
        section: "I.7 (Boole's inequality)",
    },
    note: text(
        "A bound for any dependence between the parts; independent parts miss less often, and no smaller bound holds for all.",
        "对各段任意相关性都成立的上界；各段独立时更小，但没有更小的界能对所有情形成立。",
    ),
    exported: &[],
};

/// The quantile that each part of a budget has to keep so that the total keeps its own.
///
/// ```text
/// part_quantile = 1 - (1 - q_total) / parts
/// ```
///
/// `q_total` is the quantile of the total, `parts` the number of parts; the parts' limits at the
/// result add up to a limit which the total keeps with probability at least `q_total`, however the
/// parts depend on each other (see [`union_bound`]).
///
/// # Errors
///
/// [`Error::NotFinite`], [`Error::TooSmall`] or [`Error::TooLarge`] unless
/// `0 <= q_total <= 1`; [`Error::TooSmall`] if `parts` is 0.
///
/// # Examples
///
/// ```
/// use metrics_core::budget::part_quantile;
///
/// assert!((part_quantile(0.99, 4)? - 0.9975).abs() < 1e-12); // a quarter of 1 % each
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Boole's inequality with the same share for each part; Feller, *An Introduction to
/// Probability Theory and Its Applications*, vol. 1, 3rd ed., 1968, I.7.
pub fn part_quantile(q_total: f64, parts: u64) -> Result<f64> {
    let miss = 1.0 - within("q_total", q_total, 0.0, 1.0)?;
    Ok(1.0 - miss / at_least("parts", parts as f64, 1.0)?)
}

/// The catalog entry of [`part_quantile`].
#[cfg(feature = "catalog")]
pub const PART_QUANTILE: Metric = Metric {
    id: "part_quantile",
    symbol: r"q_{\mathrm{part}}",
    name: text("Quantile each part has to keep", "预算各段需满足的分位数"),
    layer: Layer::Latency,
    unit: Unit::ONE,
    inputs: &[
        Input::real(
            "q_total",
            r"q_{\mathrm{total}}",
            Unit::ONE,
            (0.0, 1.0),
            text("quantile of the total", "总时延的分位数"),
        ),
        Input::whole("parts", "k", Unit::ONE, (1.0, 20.0), text("number of parts", "段数")),
    ],
    formula: Formula::Scalar {
        text: "1 - (1 - q_total) / parts",
        eval: |x| computed(part_quantile(x[0], whole("parts", x[1])?)),
        example: (&[0.99, 4.0], 0.9975),
    },
    path: "metrics_core::budget::part_quantile",
    source: Source {
        work: "Feller, An Introduction to Probability Theory and Its Applications, vol. 1, 3rd ed., 1968",
        section: "I.7 (Boole's inequality)",
    },
    note: text(
        "Splitting a P99 into four P99s is not enough: each part needs its P99.75.",
        "把 P99 拆成四段各自的 P99 是不够的：每段需要满足 P99.75。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &TTFT_FROM_PARTS,
    &TTFT_WITH_SCHEDULING,
    &PREFILL_TIME,
    &CHUNKED_PREFILL_TIME,
    &TPOT_BANDWIDTH,
    &TPOT_ROOFLINE,
    &E2E_BUDGET,
    &UNION_BOUND,
    &PART_QUANTILE,
];
