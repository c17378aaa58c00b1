//! How full the batch, the KV cache and the GPU are.

use crate::error::{Error, Result, above, at_least, difference};
#[cfg(feature = "catalog")]
use crate::metric::{Exported, Formula, Input, Layer, Metric, Source, computed, text, whole};
#[cfg(feature = "catalog")]
use crate::units::Unit;
use crate::units::{Bytes, BytesPerToken, Requests, RequestsPerSecond, Seconds, Tokens};

/// An error if a batch holds more than it can.
fn fits(b: u64, max_batch_size: u64) -> Result<()> {
    if max_batch_size < b {
        return Err(Error::Order {
            later: "max_batch_size",
            later_value: max_batch_size as f64,
            earlier: "the batch of a step",
            earlier_value: b as f64,
        });
    }
    Ok(())
}

/// Batch utilization over scheduler steps: the mean share of the batch's places that are taken.
///
/// ```text
/// batch_utilization = Σ active_batch_history[t] / (T · max_batch_size), over the T steps t
/// ```
///
/// `active_batch_history` holds the number of requests in the batch in each step, also those that
/// the step holds back, `max_batch_size` the most that the batch can hold. Every step counts alike, however long it took:
/// [`batch_utilization_by_time`] weighs by duration. High is not good by itself, since a backlog
/// fills the batch as well.
///
/// # Errors
///
/// [`Error::Empty`] without a step, [`Error::TooSmall`] if `max_batch_size` is 0,
/// [`Error::Order`] if a step holds more than `max_batch_size`.
///
/// # Examples
///
/// ```
/// use metrics_core::utilization::batch_utilization;
///
/// let utilization = batch_utilization(&[2, 4, 4], 4)?;
/// assert!((utilization - 10.0 / 12.0).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 5.1.
pub fn batch_utilization(active_batch_history: &[u64], max_batch_size: u64) -> Result<f64> {
    at_least("max_batch_size", max_batch_size as f64, 1.0)?;
    if active_batch_history.is_empty() {
        return Err(Error::Empty { input: "active_batch_history", item: "step" });
    }
    for &b in active_batch_history {
        fits(b, max_batch_size)?;
    }
    // Whole numbers to the last division, so that a full batch is 1 and never a bit above.
    let taken: u128 = active_batch_history.iter().map(|&b| u128::from(b)).sum();
    let places = active_batch_history.len() as u128 * u128::from(max_batch_size);
    Ok(taken as f64 / places as f64)
}

/// The catalog entry of [`batch_utilization`].
#[cfg(feature = "catalog")]
pub const BATCH_UTILIZATION: Metric = Metric {
    id: "batch_utilization",
    symbol: r"U_{\mathrm{batch}}",
    name: text("Batch utilization, by steps", "batch 利用率（按步）"),
    layer: Layer::Resources,
    unit: Unit::ONE,
    inputs: &[
        Input::whole(
            "active_batch_history",
            "b_t",
            Unit::REQUEST,
            (0.0, 256.0),
            text(
                "requests in the batch in each step, served by it or held back",
                "各步中 batch 里的请求数，含该步搁置的",
            ),
        ),
        MAX_BATCH_SIZE_INPUT,
    ],
    formula: Formula::Law {
        latex: r"U_{\mathrm{batch}} = \frac{1}{T \cdot B_{\max}} \sum_{t=1}^{T} b_t",
        why: text("It sums over every scheduler step.", "它对每个调度步求和。"),
        test: "utilization::full_steps_and_idle_steps_give_their_share",
        example: text(
            "Steps with 2, 4 and 4 requests, at most 4 a step: 10 of 12 places.",
            "三个调度步各有 2、4、4 个请求，每步上限为 4：12 个位置占用了 10 个。",
        ),
        run: || computed(batch_utilization(&[2, 4, 4], 4)),
        value: 10.0 / 12.0,
    },
    path: "metrics_core::utilization::batch_utilization",
    source: Source { work: "formula walkthrough", section: "5.1" },
    note: text(
        "A backlog fills the batch as well: high utilization with a rising E2E is overload, not efficiency.",
        "积压同样会把 batch 填满：利用率高而 E2E 上升说明过载，并不代表高效。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const MAX_BATCH_SIZE_INPUT: Input = Input::whole(
    "max_batch_size",
    r"B_{\max}",
    Unit::REQUEST,
    (1.0, 512.0),
    text("most requests that a step can hold", "每步可容纳的最大请求数"),
);

/// Batch utilization over time: the share of the batch's places that are taken, weighed by how
/// long.
///
/// ```text
/// batch_utilization_by_time = ∫ b dt / (T · max_batch_size), over the whole time T
/// ```
///
/// `intervals` holds pairs of a duration and the number of requests in the batch during it;
/// `max_batch_size` is the most that a step can hold. It differs from [`batch_utilization`] when
/// steps differ in length, as they do when some carry prefill.
///
/// # Errors
///
/// [`Error::Empty`] without an interval, [`Error::NotAbove`] if all durations are 0,
/// [`Error::TooSmall`] if `max_batch_size` is 0, [`Error::Order`] if an interval holds more than
/// `max_batch_size`.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, utilization::batch_utilization_by_time};
///
/// // 3 s full, then 1 s empty: 0.75 by time, where two steps would make 0.5.
/// let intervals = [(Seconds::new(3.0)?, 4), (Seconds::new(1.0)?, 0)];
/// assert_eq!(batch_utilization_by_time(&intervals, 4)?, 0.75);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 5.1, with time in place of steps.
pub fn batch_utilization_by_time(intervals: &[(Seconds, u64)], max_batch_size: u64) -> Result<f64> {
    at_least("max_batch_size", max_batch_size as f64, 1.0)?;
    if intervals.is_empty() {
        return Err(Error::Empty { input: "intervals", item: "interval" });
    }
    let mut total = 0.0;
    let mut taken = 0.0;
    for &(duration, b) in intervals {
        fits(b, max_batch_size)?;
        total += duration.get();
        // Dividing before summing keeps a full batch at 1 exactly: rounding is monotone.
        taken += b as f64 / max_batch_size as f64 * duration.get();
    }
    Ok(taken / above("the sum of the intervals", total, 0.0)?)
}

/// The catalog entry of [`batch_utilization_by_time`].
#[cfg(feature = "catalog")]
pub const BATCH_UTILIZATION_BY_TIME: Metric = Metric {
    id: "batch_utilization_by_time",
    symbol: r"U_{\mathrm{batch}}^{\mathrm{time}}",
    name: text("Batch utilization, by time", "batch 利用率（按时间）"),
    layer: Layer::Resources,
    unit: Unit::ONE,
    inputs: &[
        Input::real(
            "intervals",
            r"(\Delta t, b)",
            Unit::SECOND,
            (0.0, 600.0),
            text(
                "durations, each with the requests in the batch during it",
                "各时段的时长及其间 batch 中的请求数",
            ),
        ),
        MAX_BATCH_SIZE_INPUT,
    ],
    formula: Formula::Law {
        latex: r"U_{\mathrm{batch}}^{\mathrm{time}} = \frac{1}{T \cdot B_{\max}} \int_0^T b(t) \mathrm{d}t",
        why: text("It integrates over the whole run.", "它对整个运行时间积分。"),
        test: "utilization::steps_of_equal_length_have_one_utilization",
        example: text(
            "3 s with 4 requests and 1 s with none, at most 4: 12 of 16 place-seconds.",
            "3 秒内有 4 个请求、1 秒内为空，上限为 4：16 个“位置·秒”占用了 12 个。",
        ),
        run: || {
            let intervals = [(Seconds::new(3.0)?, 4), (Seconds::new(1.0)?, 0)];
            computed(batch_utilization_by_time(&intervals, 4))
        },
        value: 0.75,
    },
    path: "metrics_core::utilization::batch_utilization_by_time",
    source: Source { work: "formula walkthrough", section: "5.1, over time" },
    note: text(
        "It differs from the mean over steps when steps differ in length, as steps with prefill do.",
        "各步时长不等（例如含 prefill 的步）时，它与按步平均的结果不同。",
    ),
    exported: &[],
};

/// Batch utilization from means: the mean number of requests in the batch over the most it holds.
///
/// ```text
/// mean_batch_utilization = b_mean / b_max
/// ```
///
/// `b_mean` is the mean number of requests in service, `b_max` the most that fit at once. Only
/// [`requests_in_service`] may stand for `b_mean`: [`requests_in_system`] counts the queue too and
/// would pass 1.
///
/// # Errors
///
/// [`Error::NotAbove`] if `b_max` is 0, [`Error::Order`] if `b_mean > b_max`.
///
/// # Examples
///
/// ```
/// use metrics_core::{units::Requests, utilization::mean_batch_utilization};
///
/// assert_eq!(mean_batch_utilization(Requests::new(10.0)?, Requests::new(16.0)?)?, 0.625);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 3.3.
pub fn mean_batch_utilization(b_mean: Requests, b_max: Requests) -> Result<f64> {
    above("b_max", b_max.get(), 0.0)?;
    difference(("b_max", b_max.get()), ("b_mean", b_mean.get()))?;
    Ok(b_mean.get() / b_max.get())
}

/// The catalog entry of [`mean_batch_utilization`].
#[cfg(feature = "catalog")]
pub const MEAN_BATCH_UTILIZATION: Metric = Metric {
    id: "mean_batch_utilization",
    symbol: r"\bar{U}_{\mathrm{batch}}",
    name: text("Batch utilization, from means", "batch 利用率（由均值）"),
    layer: Layer::Resources,
    unit: Unit::ONE,
    inputs: &[
        Input::real(
            "b_mean",
            r"\bar{B}_{\mathrm{active}}",
            Unit::REQUEST,
            (0.0, 256.0),
            text("mean number of requests in service", "在服务请求数的均值"),
        ),
        Input::real(
            "b_max",
            r"B_{\max}",
            Unit::REQUEST,
            (1.0, 512.0),
            text("most requests in service at once", "可同时服务的最大请求数"),
        ),
    ],
    formula: Formula::Scalar {
        text: "b_mean / b_max",
        eval: |x| computed(mean_batch_utilization(Requests::new(x[0])?, Requests::new(x[1])?)),
        example: (&[10.0, 16.0], 0.625),
    },
    path: "metrics_core::utilization::mean_batch_utilization",
    source: Source { work: "metric dictionary", section: "3.3" },
    note: text(
        "Requests that wait in the queue are not in the batch: with them the ratio would pass 1.",
        "排队中的请求不在 batch 内：若把它们算进来，比值会超过 1。",
    ),
    exported: &[],
};

/// GPU utilization: the share of time in which the GPU computes.
///
/// ```text
/// gpu_utilization = t_active / t_total
/// ```
///
/// `t_active` is the time in which one GPU ran kernels, `t_total` the whole observed time. It says
/// that a kernel ran, not that it used the arithmetic units: a decode that waits for memory can show
/// 100 %.
///
/// # Errors
///
/// [`Error::NotAbove`] if `t_total` is 0, [`Error::Order`] if `t_active > t_total`.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, utilization::gpu_utilization};
///
/// assert_eq!(gpu_utilization(Seconds::new(45.0)?, Seconds::new(60.0)?)?, 0.75);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 3.1.
pub fn gpu_utilization(t_active: Seconds, t_total: Seconds) -> Result<f64> {
    above("t_total", t_total.get(), 0.0)?;
    difference(("t_total", t_total.get()), ("t_active", t_active.get()))?;
    Ok(t_active.get() / t_total.get())
}

/// The catalog entry of [`gpu_utilization`].
#[cfg(feature = "catalog")]
pub const GPU_UTILIZATION: Metric = Metric {
    id: "gpu_utilization",
    symbol: r"U_{\mathrm{GPU}}",
    name: text("GPU utilization", "GPU 计算利用率"),
    layer: Layer::Resources,
    unit: Unit::ONE,
    inputs: &[
        Input::real(
            "t_active",
            r"T_{\mathrm{active}}",
            Unit::SECOND,
            (0.0, 600.0),
            text("time in which the GPU computes", "GPU 处于计算状态的时间"),
        ),
        Input::real(
            "t_total",
            r"T_{\mathrm{total}}",
            Unit::SECOND,
            (1e-3, 600.0),
            text("observed time", "观测总时长"),
        ),
    ],
    formula: Formula::Scalar {
        text: "t_active / t_total",
        eval: |x| computed(gpu_utilization(Seconds::new(x[0])?, Seconds::new(x[1])?)),
        example: (&[45.0, 60.0], 0.75),
    },
    path: "metrics_core::utilization::gpu_utilization",
    source: Source { work: "metric dictionary", section: "3.1" },
    note: text(
        "It says that a kernel ran, not that the arithmetic units were busy: a memory-bound decode can show 100 %.",
        "它只说明有 kernel 在运行，不说明算力用满：memory-bound 的 decode 也可能显示 100 %。",
    ),
    exported: &[],
};

/// KV-cache utilization: the share of the KV blocks that are in use.
///
/// ```text
/// kv_utilization = used_blocks / total_blocks
/// ```
///
/// `used_blocks` counts the blocks that requests hold now, `total_blocks` all blocks of the pool.
/// Blocks that are only cached for later prefix hits are free for the taking and do not count.
///
/// # Errors
///
/// [`Error::TooSmall`] if `total_blocks` is 0, [`Error::Order`] if `used_blocks > total_blocks`.
///
/// # Examples
///
/// ```
/// use metrics_core::utilization::kv_utilization;
///
/// assert_eq!(kv_utilization(1_800, 2_400)?, 0.75);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 3.2.
pub fn kv_utilization(used_blocks: u64, total_blocks: u64) -> Result<f64> {
    at_least("total_blocks", total_blocks as f64, 1.0)?;
    difference(("total_blocks", total_blocks as f64), ("used_blocks", used_blocks as f64))?;
    Ok(used_blocks as f64 / total_blocks as f64)
}

/// The catalog entry of [`kv_utilization`].
#[cfg(feature = "catalog")]
pub const KV_UTILIZATION: Metric = Metric {
    id: "kv_utilization",
    symbol: r"\rho_{\mathrm{KV}}",
    name: text("KV-cache utilization", "KV Cache 利用率"),
    layer: Layer::Resources,
    unit: Unit::ONE,
    inputs: &[
        Input::whole(
            "used_blocks",
            r"N_{\mathrm{used}}",
            Unit::BLOCK,
            (0.0, 20_000.0),
            text("KV blocks in use", "已用 KV 块数"),
        ),
        Input::whole(
            "total_blocks",
            r"N_{\mathrm{blocks}}",
            Unit::BLOCK,
            (1.0, 40_000.0),
            text("all KV blocks", "KV 块总数"),
        ),
    ],
    formula: Formula::Scalar {
        text: "used_blocks / total_blocks",
        eval: |x| {
            computed(kv_utilization(whole("used_blocks", x[0])?, whole("total_blocks", x[1])?))
        },
        example: (&[1_800.0, 2_400.0], 0.75),
    },
    path: "metrics_core::utilization::kv_utilization",
    source: Source { work: "metric dictionary", section: "3.2" },
    note: text(
        "Blocks kept only for later prefix hits are free for the taking: they do not count as used.",
        "仅为后续前缀命中而保留的块可随时回收，不计为已用。",
    ),
    exported: &[
        Exported {
            engine: "vLLM 0.33",
            name: "vllm:kv_cache_usage_perc",
            differs: text(
                "a share from 0 to 1, in spite of its name",
                "虽名为百分比，取值为 0 到 1",
            ),
        },
        Exported {
            engine: "SGLang 0.5.23",
            name: "sglang:token_usage",
            differs: text("tokens instead of blocks", "按 token 而非按块计"),
        },
        Exported {
            engine: "TensorRT-LLM",
            name: "trtllm_kv_cache_utilization",
            differs: text("", ""),
        },
        Exported {
            engine: "Dynamo",
            name: "dynamo_component_kvstats_gpu_cache_usage_percent",
            differs: text("", ""),
        },
    ],
};

/// Requests in the system by Little's law: those that wait and those in service.
///
/// ```text
/// requests_in_system = lambda_req * mean_e2e
/// ```
///
/// `lambda_req` is the rate of requests that arrive and finish, `mean_e2e` their mean end-to-end
/// latency, queue included. It is no batch size: compare [`requests_in_service`] with `B_max`.
///
/// # Errors
///
/// [`Error::TooLarge`] if the product leaves the range of a quantity.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, units::{Requests, RequestsPerSecond}};
/// use metrics_core::utilization::requests_in_system;
///
/// let n = requests_in_system(RequestsPerSecond::new(20.0)?, Seconds::new(0.5)?)?;
/// assert_eq!(n, Requests::new(10.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 5.2; Little, *A Proof for the Queuing Formula L = λW*, 1961.
pub fn requests_in_system(lambda_req: RequestsPerSecond, mean_e2e: Seconds) -> Result<Requests> {
    Requests::named("requests in the system", lambda_req.get() * mean_e2e.get())
}

/// The catalog entry of [`requests_in_system`].
#[cfg(feature = "catalog")]
pub const REQUESTS_IN_SYSTEM: Metric = Metric {
    id: "requests_in_system",
    symbol: r"n_{\mathrm{system}}",
    name: text("Requests in the system", "系统内请求数"),
    layer: Layer::Resources,
    unit: Unit::REQUEST,
    inputs: &[LAMBDA_REQ, MEAN_E2E],
    formula: Formula::Scalar {
        text: "lambda_req * mean_e2e",
        eval: |x| computed(requests_in_system(RequestsPerSecond::new(x[0])?, Seconds::new(x[1])?)),
        example: (&[20.0, 0.5], 10.0),
    },
    path: "metrics_core::utilization::requests_in_system",
    source: Source {
        work: "metric dictionary; Little, A Proof for the Queuing Formula L = λW, 1961",
        section: "5.2",
    },
    note: text(
        "It counts the queue too, so it may pass B_max: it is no batch size.",
        "它包含排队的请求，因此可以超过 B_max：它不是 batch 大小。",
    ),
    exported: &[Exported {
        engine: "Dynamo",
        name: "dynamo_frontend_inflight_requests",
        differs: text("a sample at the scrape, not a mean", "抓取瞬间的采样值，不是均值"),
    }],
};

#[cfg(feature = "catalog")]
const LAMBDA_REQ: Input = Input::real(
    "lambda_req",
    r"\lambda_{\mathrm{req}}",
    Unit::REQUEST.per(Unit::SECOND),
    (0.0, 1_000.0),
    text("request rate", "请求速率"),
);
#[cfg(feature = "catalog")]
const MEAN_E2E: Input = Input::real(
    "mean_e2e",
    r"\overline{\mathrm{E2E}}",
    Unit::SECOND,
    (0.0, 600.0),
    text("mean end-to-end latency", "平均端到端时延"),
);

/// Requests in service by Little's law: those that hold a place in the batch.
///
/// ```text
/// requests_in_service = lambda_req * (mean_e2e - mean_w_queue)
/// ```
///
/// `lambda_req` is the rate of requests that arrive and finish, `mean_e2e` their mean end-to-end
/// latency, `mean_w_queue` the part of it spent waiting for a place. Only this number compares
/// with `B_max`.
///
/// # Errors
///
/// [`Error::Order`] if `mean_w_queue > mean_e2e`, [`Error::TooLarge`] if the product leaves the
/// range of a quantity.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, units::{Requests, RequestsPerSecond}};
/// use metrics_core::utilization::requests_in_service;
///
/// let rate = RequestsPerSecond::new(20.0)?;
/// let n = requests_in_service(rate, Seconds::new(0.5)?, Seconds::new(0.125)?)?;
/// assert_eq!(n, Requests::new(7.5)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 5.2, without the queue; Little 1961.
pub fn requests_in_service(
    lambda_req: RequestsPerSecond,
    mean_e2e: Seconds,
    mean_w_queue: Seconds,
) -> Result<Requests> {
    let in_service =
        difference(("mean_e2e", mean_e2e.get()), ("mean_w_queue", mean_w_queue.get()))?;
    Requests::named("requests in service", lambda_req.get() * in_service)
}

/// The catalog entry of [`requests_in_service`].
#[cfg(feature = "catalog")]
pub const REQUESTS_IN_SERVICE: Metric = Metric {
    id: "requests_in_service",
    symbol: r"n_{\mathrm{service}}",
    name: text("Requests in service", "在服务请求数"),
    layer: Layer::Resources,
    unit: Unit::REQUEST,
    inputs: &[
        LAMBDA_REQ,
        MEAN_E2E,
        Input::real(
            "mean_w_queue",
            r"\overline{W}_{\mathrm{queue}}",
            Unit::SECOND,
            (0.0, 600.0),
            text("mean wait in the queue", "平均排队等待时间"),
        ),
    ],
    formula: Formula::Scalar {
        text: "lambda_req * (mean_e2e - mean_w_queue)",
        eval: |x| {
            computed(requests_in_service(
                RequestsPerSecond::new(x[0])?,
                Seconds::new(x[1])?,
                Seconds::new(x[2])?,
            ))
        },
        example: (&[20.0, 0.5, 0.125], 7.5),
    },
    path: "metrics_core::utilization::requests_in_service",
    source: Source { work: "formula walkthrough; Little 1961", section: "5.2, without the queue" },
    note: text(
        "Only this number compares with B_max; the source writes B_active for it and for the number in the system.",
        "只有它能与 B_max 比较；原文对它和系统内请求数都写作 B_active。",
    ),
    exported: &[
        Exported { engine: "vLLM 0.33", name: "vllm:num_requests_running", differs: SAMPLED },
        Exported { engine: "SGLang 0.5.23", name: "sglang:num_running_reqs", differs: SAMPLED },
        Exported { engine: "TGI 3.3", name: "tgi_batch_current_size", differs: SAMPLED },
    ],
};

#[cfg(feature = "catalog")]
const SAMPLED: crate::metric::Text =
    text("a sample at the scrape, not a mean", "抓取瞬间的采样值，不是均值");

/// The largest batch that the KV memory holds.
///
/// ```text
/// max_batch_size = kv_budget_bytes / (bytes_per_token * mean_cached_tokens)
/// ```
///
/// `kv_budget_bytes` is the memory left for KV, `bytes_per_token` what one token takes in all
/// layers, `mean_cached_tokens` the mean number of tokens that a request holds while it runs. It
/// rests on that mean: requests that grow long together run out of blocks before it, so it is a
/// guide, not a setting. It is not rounded.
///
/// # Errors
///
/// [`Error::NotAbove`] if `bytes_per_token` or `mean_cached_tokens` is 0, [`Error::TooLarge`] if
/// the quotient leaves the range of a quantity.
///
/// # Examples
///
/// ```
/// use metrics_core::units::{Bytes, BytesPerToken, Requests, Tokens};
/// use metrics_core::utilization::max_batch_size;
///
/// let budget = Bytes::new(4_294_967_296.0)?; // 4 GiB
/// let b_max = max_batch_size(budget, BytesPerToken::new(131_072.0)?, Tokens::new(4_096.0)?)?;
/// assert_eq!(b_max, Requests::new(8.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 5.1.
pub fn max_batch_size(
    kv_budget_bytes: Bytes,
    bytes_per_token: BytesPerToken,
    mean_cached_tokens: Tokens,
) -> Result<Requests> {
    let per_request = above("bytes_per_token", bytes_per_token.get(), 0.0)?
        * above("mean_cached_tokens", mean_cached_tokens.get(), 0.0)?;
    let per_request = above("bytes_per_token * mean_cached_tokens", per_request, 0.0)?;
    Requests::named("max_batch_size", kv_budget_bytes.get() / per_request)
}

/// The catalog entry of [`max_batch_size`].
#[cfg(feature = "catalog")]
pub const MAX_BATCH_SIZE: Metric = Metric {
    id: "max_batch_size",
    symbol: r"B_{\max}",
    name: text("Largest batch that the KV memory holds", "KV 显存可容纳的最大 batch"),
    layer: Layer::Capacity,
    unit: Unit::REQUEST,
    inputs: &[
        Input::real(
            "kv_budget_bytes",
            r"M_{\mathrm{KV}}",
            Unit::BYTE,
            (0.0, 1e12),
            text("memory for the KV cache", "KV Cache 可用显存"),
        ),
        Input::real(
            "bytes_per_token",
            r"m_{\text{token}}",
            Unit::BYTE.per(Unit::TOKEN),
            (1_024.0, 4e6),
            text("KV bytes per token", "每 token 的 KV 字节数"),
        ),
        Input::real(
            "mean_cached_tokens",
            r"\bar{T}_{\mathrm{cache}}",
            Unit::TOKEN,
            (1.0, 131_072.0),
            text("mean cached tokens of a request", "单个请求的平均缓存 token 数"),
        )
        .counts_as(Unit::TOKEN.per(Unit::REQUEST)),
    ],
    formula: Formula::Scalar {
        text: "kv_budget_bytes / (bytes_per_token * mean_cached_tokens)",
        eval: |x| {
            computed(max_batch_size(
                Bytes::new(x[0])?,
                BytesPerToken::new(x[1])?,
                Tokens::new(x[2])?,
            ))
        },
        example: (&[4_294_967_296.0, 131_072.0, 4_096.0], 8.0),
    },
    path: "metrics_core::utilization::max_batch_size",
    source: Source { work: "metric dictionary", section: "5.1" },
    note: text(
        "It rests on a mean: requests that grow together run out of blocks before it.",
        "它基于均值：多个请求同时变长时，尚未达到它就会耗尽 KV 块。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &BATCH_UTILIZATION,
    &BATCH_UTILIZATION_BY_TIME,
    &MEAN_BATCH_UTILIZATION,
    &GPU_UTILIZATION,
    &KV_UTILIZATION,
    &REQUESTS_IN_SYSTEM,
    &REQUESTS_IN_SERVICE,
    &MAX_BATCH_SIZE,
];
