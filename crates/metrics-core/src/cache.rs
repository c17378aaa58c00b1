//! Hits, evictions, preemptions and refusals as rates.

use crate::error::{Result, at_least, difference};
#[cfg(feature = "catalog")]
use crate::metric::{Exported, Formula, Input, Layer, Metric, Source, computed, text, whole};
#[cfg(feature = "catalog")]
use crate::units::Unit;

/// `part / whole` for counts, of which the part cannot be the larger one.
fn share(part: (&'static str, u64), whole: (&'static str, u64)) -> Result<f64> {
    let denominator = at_least(whole.0, whole.1 as f64, 1.0)?;
    difference((whole.0, denominator), (part.0, part.1 as f64))?;
    Ok(part.1 as f64 / denominator)
}

/// KV hit rate: the share of prefix look-ups that the cache answers.
///
/// ```text
/// kv_hit_rate = hits / lookups
/// ```
///
/// `lookups` counts what was looked up in the prefix cache, `hits` what was found there, both in
/// one unit: tokens or blocks. A rate in blocks is at most the one in tokens, as a block that is
/// only partly the same is a miss. No look-up is no rate, not 0.
///
/// # Errors
///
/// [`Error::TooSmall`](crate::Error::TooSmall) if `lookups` is 0,
/// [`Error::Order`](crate::Error::Order) if `hits > lookups`.
///
/// # Examples
///
/// ```
/// use metrics_core::cache::kv_hit_rate;
///
/// assert_eq!(kv_hit_rate(768, 1_024)?, 0.75);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 4.1.
pub fn kv_hit_rate(hits: u64, lookups: u64) -> Result<f64> {
    share(("hits", hits), ("lookups", lookups))
}

/// The catalog entry of [`kv_hit_rate`].
#[cfg(feature = "catalog")]
pub const KV_HIT_RATE: Metric = Metric {
    id: "kv_hit_rate",
    symbol: r"h_{\mathrm{KV}}",
    name: text("KV hit rate", "KV 命中率"),
    layer: Layer::Resources,
    unit: Unit::ONE,
    inputs: &[
        Input::whole(
            "hits",
            r"N_{\mathrm{hits}}",
            Unit::TOKEN,
            (0.0, 100_000.0),
            text("tokens (or blocks) found in the prefix cache", "命中前缀缓存的 token（或块）数"),
        ),
        Input::whole(
            "lookups",
            r"N_{\mathrm{lookups}}",
            Unit::TOKEN,
            (0.0, 200_000.0),
            text(
                "tokens (or blocks) looked up, in the same unit",
                "查询的 token（或块）数，单位相同",
            ),
        ),
    ],
    formula: Formula::Scalar {
        text: "hits / lookups",
        eval: |x| computed(kv_hit_rate(whole("hits", x[0])?, whole("lookups", x[1])?)),
        example: (&[768.0, 1_024.0], 0.75),
    },
    path: "metrics_core::cache::kv_hit_rate",
    source: Source { work: "metric dictionary", section: "4.1" },
    note: text(
        "Say whether it counts tokens or blocks; a warm cache from the run before flatters it.",
        "须说明按 token 还是按块计；上一次运行留下的热缓存会使它虚高。",
    ),
    exported: &[
        Exported {
            engine: "vLLM 0.33",
            name: "vllm:prefix_cache_hits_total",
            differs: text(
                "the numerator, in tokens; divide by vllm:prefix_cache_queries_total",
                "仅为分子，按 token 计；除以 vllm:prefix_cache_queries_total",
            ),
        },
        Exported {
            engine: "SGLang 0.5.23",
            name: "sglang:cached_tokens_total",
            differs: text(
                "the numerator, in tokens; divide by sglang:prompt_tokens_total",
                "仅为分子，按 token 计；除以 sglang:prompt_tokens_total",
            ),
        },
        Exported {
            engine: "TensorRT-LLM",
            name: "trtllm_kv_cache_reused_blocks_total",
            differs: text(
                "the numerator, in blocks; divide by its sum with trtllm_kv_cache_missed_blocks_total",
                "仅为分子，按块计；除以它与 trtllm_kv_cache_missed_blocks_total 之和",
            ),
        },
    ],
};

/// Refill rate: the share of evictions that turned out wrong.
///
/// ```text
/// refill_rate = evicted_then_recomputed / evictions
/// ```
///
/// `evictions` counts what was evicted from the KV cache, `evicted_then_recomputed` what of it was
/// needed again and computed anew, both in one unit: tokens or blocks. Each eviction is recomputed
/// at most once before it is evicted again. No eviction is no rate, not 0.
///
/// # Errors
///
/// [`Error::TooSmall`](crate::Error::TooSmall) if `evictions` is 0,
/// [`Error::Order`](crate::Error::Order) if `evicted_then_recomputed > evictions`.
///
/// # Examples
///
/// ```
/// use metrics_core::cache::refill_rate;
///
/// assert_eq!(refill_rate(30, 240)?, 0.125);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 4.2.
pub fn refill_rate(evicted_then_recomputed: u64, evictions: u64) -> Result<f64> {
    share(("evicted_then_recomputed", evicted_then_recomputed), ("evictions", evictions))
}

/// The catalog entry of [`refill_rate`].
#[cfg(feature = "catalog")]
pub const REFILL_RATE: Metric = Metric {
    id: "refill_rate",
    symbol: r"r_{\mathrm{refill}}",
    name: text("Refill rate", "回填率"),
    layer: Layer::Diagnosis,
    unit: Unit::ONE,
    inputs: &[
        Input::whole(
            "evicted_then_recomputed",
            r"N_{\mathrm{refilled}}",
            Unit::BLOCK,
            (0.0, 10_000.0),
            text(
                "evicted blocks (or tokens) that were computed anew",
                "被驱逐后又重新计算的块（或 token）数",
            ),
        ),
        Input::whole(
            "evictions",
            r"N_{\mathrm{evictions}}",
            Unit::BLOCK,
            (0.0, 20_000.0),
            text(
                "evicted blocks (or tokens), in the same unit",
                "被驱逐的块（或 token）数，单位相同",
            ),
        ),
    ],
    formula: Formula::Scalar {
        text: "evicted_then_recomputed / evictions",
        eval: |x| {
            computed(refill_rate(
                whole("evicted_then_recomputed", x[0])?,
                whole("evictions", x[1])?,
            ))
        },
        example: (&[30.0, 240.0], 0.125),
    },
    path: "metrics_core::cache::refill_rate",
    source: Source { work: "metric dictionary", section: "4.2" },
    note: text(
        "A high rate says that the policy evicts what is soon needed again; with few evictions it says little.",
        "高回填率说明驱逐策略误判：被驱逐的内容很快又被需要；驱逐次数很少时参考意义不大。",
    ),
    exported: &[Exported {
        engine: "SGLang 0.5.23",
        name: "sglang:num_retracted_input_tokens_total",
        differs: text(
            "with sglang:num_retracted_output_tokens_total the tokens of retracted requests: a numerator in tokens, without evicted prefixes",
            "与 sglang:num_retracted_output_tokens_total 相加为被回退请求的 token 数：仅为分子，不含被驱逐的前缀",
        ),
    }],
};

/// OOM rate: the share of requests that failed for want of memory.
///
/// ```text
/// oom_rate = n_oom / n_total
/// ```
///
/// `n_oom` counts the requests that ended with an out-of-memory error, `n_total` all requests that
/// ended. Preempted requests that finish later are no OOM.
///
/// # Errors
///
/// [`Error::TooSmall`](crate::Error::TooSmall) if `n_total` is 0,
/// [`Error::Order`](crate::Error::Order) if `n_oom > n_total`.
///
/// # Examples
///
/// ```
/// use metrics_core::cache::oom_rate;
///
/// assert_eq!(oom_rate(1, 8_000)?, 0.000_125); // 0.0125 %
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 4.3.
pub fn oom_rate(n_oom: u64, n_total: u64) -> Result<f64> {
    share(("n_oom", n_oom), ("n_total", n_total))
}

/// The catalog entry of [`oom_rate`].
#[cfg(feature = "catalog")]
pub const OOM_RATE: Metric = Metric {
    id: "oom_rate",
    symbol: r"r_{\mathrm{OOM}}",
    name: text("OOM rate", "OOM 率"),
    layer: Layer::Diagnosis,
    unit: Unit::ONE,
    inputs: &[
        Input::whole(
            "n_oom",
            r"N_{\mathrm{OOM}}",
            Unit::REQUEST,
            (0.0, 1_000.0),
            text("requests that ended with an out-of-memory error", "因显存不足而失败的请求数"),
        ),
        N_TOTAL,
    ],
    formula: Formula::Scalar {
        text: "n_oom / n_total",
        eval: |x| computed(oom_rate(whole("n_oom", x[0])?, whole("n_total", x[1])?)),
        example: (&[1.0, 8_000.0], 0.000_125),
    },
    path: "metrics_core::cache::oom_rate",
    source: Source { work: "metric dictionary", section: "4.3" },
    note: text(
        "No engine exports it: count the failures in its log or at the client.",
        "没有引擎导出该指标：需从引擎日志或客户端统计失败数。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const N_TOTAL: Input = Input::whole(
    "n_total",
    r"N_{\mathrm{total}}",
    Unit::REQUEST,
    (0.0, 10_000.0),
    text("all requests that ended", "已结束的请求总数"),
);

/// Preemption rate: the share of requests that were preempted.
///
/// ```text
/// preemption_rate = n_preempted / n_total
/// ```
///
/// `n_preempted` counts the requests that were preempted at least once, `n_total` all requests
/// that ended, so it is a share. Engines count preemptions: a request that is preempted three
/// times adds three to their counter, and such a counter over the requests may pass 1. It is
/// preemptions per request, another number, and is refused here once it shows.
///
/// # Errors
///
/// [`Error::TooSmall`](crate::Error::TooSmall) if `n_total` is 0,
/// [`Error::Order`](crate::Error::Order) if `n_preempted > n_total`.
///
/// # Examples
///
/// ```
/// use metrics_core::cache::preemption_rate;
///
/// assert_eq!(preemption_rate(3, 24)?, 0.125);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 4.3, with requests counted once.
pub fn preemption_rate(n_preempted: u64, n_total: u64) -> Result<f64> {
    share(("n_preempted", n_preempted), ("n_total", n_total))
}

/// The catalog entry of [`preemption_rate`].
#[cfg(feature = "catalog")]
pub const PREEMPTION_RATE: Metric = Metric {
    id: "preemption_rate",
    symbol: r"r_{\mathrm{preempt}}",
    name: text("Preemption rate", "抢占率"),
    layer: Layer::Diagnosis,
    unit: Unit::ONE,
    inputs: &[
        Input::whole(
            "n_preempted",
            r"N_{\mathrm{preempted}}",
            Unit::REQUEST,
            (0.0, 5_000.0),
            text("requests preempted at least once", "至少被抢占一次的请求数"),
        ),
        N_TOTAL,
    ],
    formula: Formula::Scalar {
        text: "n_preempted / n_total",
        eval: |x| computed(preemption_rate(whole("n_preempted", x[0])?, whole("n_total", x[1])?)),
        example: (&[3.0, 24.0], 0.125),
    },
    path: "metrics_core::cache::preemption_rate",
    source: Source { work: "metric dictionary", section: "4.3, with requests counted once" },
    note: text(
        "It counts requests once; engines count preemptions, and those per request may pass 1.",
        "同一请求只计一次；引擎统计的是抢占次数，除以请求数可能超过 1。",
    ),
    exported: &[
        Exported {
            engine: "vLLM 0.33",
            name: "vllm:request_num_preemptions",
            differs: text(
                "a histogram of preemptions per request whose first bucket holds 0 and 1 together",
                "每请求抢占次数的直方图，但 0 次与 1 次同在第一个桶内",
            ),
        },
        Exported {
            engine: "vLLM 0.33",
            name: "vllm:num_preemptions_total",
            differs: text(
                "counts preemptions, not preempted requests: an upper bound of the numerator",
                "统计抢占次数而非被抢占的请求数：是分子的上界",
            ),
        },
        Exported {
            engine: "SGLang 0.5.23",
            name: "sglang:num_retracted_requests_total",
            differs: text(
                "a request adds one each time it is retracted: an upper bound of the numerator",
                "同一请求每次被回退都计一次：是分子的上界",
            ),
        },
    ],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&KV_HIT_RATE, &REFILL_RATE, &OOM_RATE, &PREEMPTION_RATE];
