//! What a GPU cannot beat: bounds on prefill and decode from arithmetic and bandwidth.

use crate::error::{Result, above, at_least};
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, text, whole};
use crate::units::{
    Bytes, BytesPerSecond, BytesPerToken, Flop, FlopPerByte, FlopPerSecond, Requests, Seconds,
    Tokens,
};
#[cfg(feature = "catalog")]
use crate::units::{Quantity, Unit};

/// KV-cache bytes that one decode step reads.
///
/// ```text
/// kv_step_bytes = active_batch * bytes_per_token * mean_cached_tokens
/// ```
///
/// `active_batch` counts the requests that decode in the step, `bytes_per_token` the KV bytes of
/// one token (see [`kv_bytes_per_token`](crate::model::kv_bytes_per_token)), `mean_cached_tokens`
/// the tokens that one of these requests has in the cache, on average. For a single step take its
/// own mean: over many steps, batch and length vary together, and the product of their means is
/// not the mean of their product.
///
/// # Errors
///
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::{roofline::kv_step_bytes, units::{Bytes, BytesPerToken, Requests, Tokens}};
///
/// // Eight requests, each with 4,096 tokens of 128 KiB: 4 GiB.
/// let bytes =
///     kv_step_bytes(Requests::new(8.0)?, BytesPerToken::new(131_072.0)?, Tokens::new(4_096.0)?)?;
/// assert_eq!(bytes, Bytes::new(4_294_967_296.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 6.1; metric dictionary, 1.3.
pub fn kv_step_bytes(
    active_batch: Requests,
    bytes_per_token: BytesPerToken,
    mean_cached_tokens: Tokens,
) -> Result<Bytes> {
    Bytes::named(
        "kv step bytes",
        active_batch.get() * bytes_per_token.get() * mean_cached_tokens.get(),
    )
}

/// The catalog entry of [`kv_step_bytes`].
#[cfg(feature = "catalog")]
pub const KV_STEP_BYTES: Metric = Metric {
    id: "kv_step_bytes",
    symbol: r"M_{\text{KV step}}",
    name: text("KV bytes read per decode step", "每个 decode 步读取的 KV 字节数"),
    layer: Layer::Resources,
    unit: Unit::BYTE,
    inputs: &[ACTIVE_BATCH, BYTES_PER_TOKEN, MEAN_CACHED_TOKENS],
    formula: Formula::Scalar {
        text: "active_batch * bytes_per_token * mean_cached_tokens",
        eval: |x| {
            computed(kv_step_bytes(
                Requests::new(x[0])?,
                BytesPerToken::new(x[1])?,
                Tokens::new(x[2])?,
            ))
        },
        example: (&[8.0, 131_072.0, 4096.0], 4_294_967_296.0),
    },
    path: "metrics_core::roofline::kv_step_bytes",
    source: Source { work: "formula walkthrough; metric dictionary", section: "6.1; 1.3" },
    note: text(
        "Over many steps, batch and length vary together: the product of their means is not the mean of the product.",
        "跨多步统计时，batch 与长度相互关联：均值之积不等于积的均值。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const ACTIVE_BATCH: Input = Input::real(
    "active_batch",
    r"B_{\mathrm{active}}",
    Unit::REQUEST,
    (0.0, 1024.0),
    text("requests that decode in the step", "该步中 decode 的请求数"),
);
#[cfg(feature = "catalog")]
const BYTES_PER_TOKEN: Input = Input::real(
    "bytes_per_token",
    r"m_{\text{token}}",
    BytesPerToken::UNIT,
    (0.0, 4_194_304.0),
    text("KV bytes of one token", "每 token 的 KV 字节数"),
);
/// A mean over requests: so many tokens for each.
#[cfg(feature = "catalog")]
const MEAN_CACHED_TOKENS: Input = Input::real(
    "mean_cached_tokens",
    r"\bar{T}_{\mathrm{cache}}",
    Unit::TOKEN,
    (0.0, 131_072.0),
    text("tokens in the cache per request, on average", "每个请求平均缓存的 token 数"),
)
.counts_as(Unit::TOKEN.per(Unit::REQUEST));
#[cfg(feature = "catalog")]
const MEMORY_BANDWIDTH: Input = Input::real(
    "memory_bandwidth",
    r"\mathrm{BW}_{\mathrm{mem}}",
    BytesPerSecond::UNIT,
    (1e11, 1e14),
    text("memory bandwidth", "显存带宽"),
);

/// Shortest time in which a decode step can read its KV cache.
///
/// ```text
/// kv_step_time_lower_bound = active_batch * bytes_per_token * mean_cached_tokens / memory_bandwidth
/// ```
///
/// The first three inputs are those of [`kv_step_bytes`]; `memory_bandwidth` is that of all GPUs
/// which share the cache. Context, batch and a fat KV format all lengthen it: where it exceeds the
/// time to compute, decode is bound by memory.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `memory_bandwidth` is zero,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::roofline::kv_step_time_lower_bound;
/// use metrics_core::units::{BytesPerSecond, BytesPerToken, Requests, Seconds, Tokens};
///
/// // 4 GiB at 1 GiB/s.
/// let t = kv_step_time_lower_bound(
///     Requests::new(8.0)?,
///     BytesPerToken::new(131_072.0)?,
///     Tokens::new(4_096.0)?,
///     BytesPerSecond::new(1_073_741_824.0)?,
/// )?;
/// assert_eq!(t, Seconds::new(4.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 6.2.
pub fn kv_step_time_lower_bound(
    active_batch: Requests,
    bytes_per_token: BytesPerToken,
    mean_cached_tokens: Tokens,
    memory_bandwidth: BytesPerSecond,
) -> Result<Seconds> {
    let bytes = kv_step_bytes(active_batch, bytes_per_token, mean_cached_tokens)?;
    let bandwidth = above("memory_bandwidth", memory_bandwidth.get(), 0.0)?;
    Seconds::named("decode step time", bytes.get() / bandwidth)
}

/// The catalog entry of [`kv_step_time_lower_bound`].
#[cfg(feature = "catalog")]
pub const KV_STEP_TIME_LOWER_BOUND: Metric = Metric {
    id: "kv_step_time_lower_bound",
    symbol: r"T_{\text{KV step}}^{\min}",
    name: text("Lower bound on reading KV in a step", "每步读取 KV 的时间下界"),
    layer: Layer::Capacity,
    unit: Unit::SECOND,
    inputs: &[ACTIVE_BATCH, BYTES_PER_TOKEN, MEAN_CACHED_TOKENS, MEMORY_BANDWIDTH],
    formula: Formula::Scalar {
        text: "active_batch * bytes_per_token * mean_cached_tokens / memory_bandwidth",
        eval: |x| {
            computed(kv_step_time_lower_bound(
                Requests::new(x[0])?,
                BytesPerToken::new(x[1])?,
                Tokens::new(x[2])?,
                BytesPerSecond::new(x[3])?,
            ))
        },
        example: (&[8.0, 131_072.0, 4096.0, 1_073_741_824.0], 4.0),
    },
    path: "metrics_core::roofline::kv_step_time_lower_bound",
    source: Source { work: "formula walkthrough", section: "6.2" },
    note: text(
        "Only KV: the weights, read in every step too, come on top in `decode_step_time_lower_bound`.",
        "只含 KV：权重每步也要读取，见 `decode_step_time_lower_bound`。",
    ),
    exported: &[],
};

/// Shortest time in which a prompt can be computed.
///
/// ```text
/// prefill_time_lower_bound = 2 * n_params * t_in / peak_flops
/// ```
///
/// `n_params` counts the parameters that every prompt token is multiplied with: the active ones of
/// a mixture of experts, without the embedding table, which is only looked up, and without the
/// output head, which only the last token passes; with these counted it is an estimate, no bound.
/// `t_in` counts the prompt tokens to compute, those found in a prefix cache left out; `peak_flops`
/// is the dense peak, in the precision used, of all GPUs of the replica. Attention's own work makes
/// long prompts slower still.
///
/// # Errors
///
/// [`Error::TooSmall`](crate::Error::TooSmall) if `n_params < 1`,
/// [`Error::NotAbove`](crate::Error::NotAbove) if `peak_flops` is zero,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::{roofline::prefill_time_lower_bound, units::FlopPerSecond};
///
/// // 2 · 10^10 parameters · 1,000 tokens = 2 · 10^13 FLOP, at 10^14 FLOP/s.
/// let t = prefill_time_lower_bound(10_000_000_000, 1_000, FlopPerSecond::new(1e14)?)?;
/// assert!((t.get() - 0.2).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 1.2, at MFU 1.
#[inline]
pub fn prefill_time_lower_bound(
    n_params: u64,
    t_in: u64,
    peak_flops: FlopPerSecond,
) -> Result<Seconds> {
    let flop = 2.0 * at_least("n_params", n_params as f64, 1.0)? * t_in as f64;
    Seconds::named("prefill time", flop / above("peak_flops", peak_flops.get(), 0.0)?)
}

/// The catalog entry of [`prefill_time_lower_bound`].
#[cfg(feature = "catalog")]
pub const PREFILL_TIME_LOWER_BOUND: Metric = Metric {
    id: "prefill_time_lower_bound",
    symbol: r"T_{\mathrm{prefill}}^{\min}",
    name: text("Lower bound on prefill time", "prefill 时间下界"),
    layer: Layer::Capacity,
    unit: Unit::SECOND,
    inputs: &[
        N_PARAMS.counts_as(Unit::FLOP.per(Unit::TOKEN)),
        Input::whole(
            "t_in",
            r"T_{\mathrm{in}}",
            Unit::TOKEN,
            (0.0, 131_072.0),
            text("prompt tokens to compute", "需要计算的输入 token 数"),
        ),
        PEAK_FLOPS,
    ],
    formula: Formula::Scalar {
        text: "2 * n_params * t_in / peak_flops",
        eval: |x| {
            computed(prefill_time_lower_bound(
                whole("n_params", x[0])?,
                whole("t_in", x[1])?,
                FlopPerSecond::new(x[2])?,
            ))
        },
        example: (&[1e10, 1000.0, 1e14], 0.2),
    },
    path: "metrics_core::roofline::prefill_time_lower_bound",
    source: Source { work: "metric dictionary", section: "1.2" },
    note: text(
        "A bound only without embedding table and output head in the parameters: most prompt tokens pass neither.",
        "参数量须不含 embedding 表与输出层才是下界：绝大多数 prompt token 不经过它们的计算。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const N_PARAMS: Input = Input::whole(
    "n_params",
    "N",
    Unit::PARAMETER,
    (1.0, 1e12),
    text("parameters that a token is multiplied with", "每个 token 参与计算的参数量"),
);
#[cfg(feature = "catalog")]
const PEAK_FLOPS: Input = Input::real(
    "peak_flops",
    r"\mathrm{FLOPS}",
    FlopPerSecond::UNIT,
    (1e12, 1e16),
    text("dense peak of the replica's GPUs", "副本所有 GPU 的稠密峰值算力"),
);
#[cfg(feature = "catalog")]
const M_WEIGHTS: Input = Input::real(
    "m_weights",
    r"M_{\mathrm{weights}}",
    Unit::BYTE,
    (1e8, 1e12),
    text("bytes of weights read in a step", "每步读取的权重字节数"),
);
#[cfg(feature = "catalog")]
const M_KV_STEP: Input = Input::real(
    "m_kv_step",
    r"M_{\text{KV step}}",
    Unit::BYTE,
    (0.0, 1e12),
    text("bytes of KV read in a step", "每步读取的 KV 字节数"),
);

/// Shortest time of a decode step that reads weights and KV cache once.
///
/// ```text
/// decode_step_time_lower_bound = (m_weights + m_kv_step) / memory_bandwidth
/// ```
///
/// `m_weights` counts the bytes of weights that the step reads: without the embedding table, of
/// which it needs single rows, and of a mixture of experts only those that its tokens choose;
/// `m_kv_step` is [`kv_step_bytes`]; `memory_bandwidth` is that of all GPUs of the replica. What a
/// measured step is above it is the bandwidth that is not reached, computing, communication and
/// overhead.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `memory_bandwidth` is zero,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::{roofline::decode_step_time_lower_bound, units::{Bytes, BytesPerSecond}};
///
/// // 16 GB of weights and 4 GB of KV at 2 TB/s.
/// let t = decode_step_time_lower_bound(
///     Bytes::new(16e9)?,
///     Bytes::new(4e9)?,
///     BytesPerSecond::new(2e12)?,
/// )?;
/// assert!((t.as_millis() - 10.0).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 1.3, without communication and scheduling.
#[inline]
pub fn decode_step_time_lower_bound(
    m_weights: Bytes,
    m_kv_step: Bytes,
    memory_bandwidth: BytesPerSecond,
) -> Result<Seconds> {
    let bandwidth = above("memory_bandwidth", memory_bandwidth.get(), 0.0)?;
    Seconds::named("decode step time", (m_weights.get() + m_kv_step.get()) / bandwidth)
}

/// The catalog entry of [`decode_step_time_lower_bound`].
#[cfg(feature = "catalog")]
pub const DECODE_STEP_TIME_LOWER_BOUND: Metric = Metric {
    id: "decode_step_time_lower_bound",
    symbol: r"T_{\text{decode-step}}^{\min}",
    name: text("Lower bound on a decode step", "decode 步的时间下界"),
    layer: Layer::Capacity,
    unit: Unit::SECOND,
    inputs: &[M_WEIGHTS, M_KV_STEP, MEMORY_BANDWIDTH],
    formula: Formula::Scalar {
        text: "(m_weights + m_kv_step) / memory_bandwidth",
        eval: |x| {
            computed(decode_step_time_lower_bound(
                Bytes::new(x[0])?,
                Bytes::new(x[1])?,
                BytesPerSecond::new(x[2])?,
            ))
        },
        example: (&[16e9, 4e9, 2e12], 0.01),
    },
    path: "metrics_core::roofline::decode_step_time_lower_bound",
    source: Source { work: "metric dictionary", section: "1.3" },
    note: text(
        "No measured step is shorter: a result below it has wrong inputs or is no decode step.",
        "实测的 decode 步不可能更短：低于它说明输入有误，或测的不是 decode 步。",
    ),
    exported: &[],
};

/// Arithmetic intensity: floating-point operations for each byte that moves.
///
/// ```text
/// arithmetic_intensity = flop / bytes
/// ```
///
/// `flop` and `bytes` are what one step computes and what it moves to and from memory. Below the
/// [`ridge_point`] of the GPU the step is bound by memory, above it by computing.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `bytes` is zero,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::{roofline::arithmetic_intensity, units::{Bytes, Flop, FlopPerByte}};
///
/// let intensity = arithmetic_intensity(Flop::new(128e9)?, Bytes::new(16e9)?)?;
/// assert_eq!(intensity, FlopPerByte::new(8.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009.
pub fn arithmetic_intensity(flop: Flop, bytes: Bytes) -> Result<FlopPerByte> {
    FlopPerByte::named("arithmetic intensity", flop.get() / above("bytes", bytes.get(), 0.0)?)
}

/// The catalog entry of [`arithmetic_intensity`].
#[cfg(feature = "catalog")]
pub const ARITHMETIC_INTENSITY: Metric = Metric {
    id: "arithmetic_intensity",
    symbol: r"\mathrm{AI}",
    name: text("Arithmetic intensity", "算术强度"),
    layer: Layer::Diagnosis,
    unit: FlopPerByte::UNIT,
    inputs: &[
        Input::real(
            "flop",
            r"\mathrm{FLOP}",
            Unit::FLOP,
            (0.0, 1e16),
            text("operations of the step", "该步的浮点运算数"),
        ),
        Input::real(
            "bytes",
            "M",
            Unit::BYTE,
            (1e6, 1e12),
            text("bytes that the step moves", "该步搬运的字节数"),
        ),
    ],
    formula: Formula::Scalar {
        text: "flop / bytes",
        eval: |x| computed(arithmetic_intensity(Flop::new(x[0])?, Bytes::new(x[1])?)),
        example: (&[128e9, 16e9], 8.0),
    },
    path: "metrics_core::roofline::arithmetic_intensity",
    source: Source {
        work: "Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009",
        section: "",
    },
    note: text(
        "It says which resource binds only beside the GPU's ridge point.",
        "只有与 GPU 的拐点对照，才能判断受哪种资源限制。",
    ),
    exported: &[],
};

/// Ridge point of a GPU: the arithmetic intensity at which computing and moving take equally long.
///
/// ```text
/// ridge_point = peak_flops / memory_bandwidth
/// ```
///
/// `peak_flops` is the dense peak in the precision used and `memory_bandwidth` the memory's, both
/// of the same GPUs. With the rates that are reached in place of the datasheet's it is the ridge as
/// the software sees it.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `peak_flops` or `memory_bandwidth` is zero,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::{roofline::ridge_point, units::{BytesPerSecond, FlopPerSecond}};
///
/// // 10^15 FLOP/s and 4 TB/s: a byte has to be used for 250 operations.
/// let ridge = ridge_point(FlopPerSecond::new(1e15)?, BytesPerSecond::new(4e12)?)?;
/// assert!((ridge.get() - 250.0).abs() < 1e-9);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009.
pub fn ridge_point(
    peak_flops: FlopPerSecond,
    memory_bandwidth: BytesPerSecond,
) -> Result<FlopPerByte> {
    let peak = above("peak_flops", peak_flops.get(), 0.0)?;
    let bandwidth = above("memory_bandwidth", memory_bandwidth.get(), 0.0)?;
    FlopPerByte::named("ridge point", peak / bandwidth)
}

/// The catalog entry of [`ridge_point`].
#[cfg(feature = "catalog")]
pub const RIDGE_POINT: Metric = Metric {
    id: "ridge_point",
    symbol: r"\mathrm{AI}_{\mathrm{ridge}}",
    name: text("Ridge point", "roofline 拐点"),
    layer: Layer::Capacity,
    unit: FlopPerByte::UNIT,
    inputs: &[PEAK_FLOPS, MEMORY_BANDWIDTH],
    formula: Formula::Scalar {
        text: "peak_flops / memory_bandwidth",
        eval: |x| computed(ridge_point(FlopPerSecond::new(x[0])?, BytesPerSecond::new(x[1])?)),
        example: (&[1e15, 4e12], 250.0),
    },
    path: "metrics_core::roofline::ridge_point",
    source: Source {
        work: "Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009",
        section: "",
    },
    note: text(
        "Take the dense peak: datasheets print the sparse one, twice as high.",
        "应取稠密峰值：数据手册常印稀疏峰值，是它的两倍。",
    ),
    exported: &[],
};

/// Arithmetic intensity of a decode step.
///
/// ```text
/// decode_arithmetic_intensity = 2 * n_params * active_batch / (m_weights + m_kv_step)
/// ```
///
/// Each of the `active_batch` requests passes one token, which is multiplied with `n_params`
/// parameters; the step reads `m_weights` and `m_kv_step` bytes (see
/// [`decode_step_time_lower_bound`]). At short contexts it grows with the batch, since the weights
/// are read once for all; at long ones KV grows along and it levels off: a larger batch then no
/// longer helps. Attention's own operations are not in it.
///
/// # Errors
///
/// [`Error::TooSmall`](crate::Error::TooSmall) if `n_params < 1`,
/// [`Error::NotAbove`](crate::Error::NotAbove) if the step reads nothing,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::roofline::decode_arithmetic_intensity;
/// use metrics_core::units::{Bytes, FlopPerByte, Requests};
///
/// // Ten tokens of 16 GFLOP each over 20 GB.
/// let (weights, kv) = (Bytes::new(16e9)?, Bytes::new(4e9)?);
/// let intensity =
///     decode_arithmetic_intensity(8_000_000_000, Requests::new(10.0)?, weights, kv)?;
/// assert_eq!(intensity, FlopPerByte::new(8.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009, with the operations and
/// bytes of the metric dictionary, 1.2 and 1.3.
pub fn decode_arithmetic_intensity(
    n_params: u64,
    active_batch: Requests,
    m_weights: Bytes,
    m_kv_step: Bytes,
) -> Result<FlopPerByte> {
    let flop = 2.0 * at_least("n_params", n_params as f64, 1.0)? * active_batch.get();
    let bytes = above("m_weights + m_kv_step", m_weights.get() + m_kv_step.get(), 0.0)?;
    FlopPerByte::named("arithmetic intensity", flop / bytes)
}

/// The catalog entry of [`decode_arithmetic_intensity`].
#[cfg(feature = "catalog")]
pub const DECODE_ARITHMETIC_INTENSITY: Metric = Metric {
    id: "decode_arithmetic_intensity",
    symbol: r"\mathrm{AI}_{\mathrm{decode}}",
    name: text("Arithmetic intensity of a decode step", "decode 步的算术强度"),
    layer: Layer::Diagnosis,
    unit: FlopPerByte::UNIT,
    inputs: &[
        // Each request passes one token in the step, which costs 2 FLOP for each parameter.
        N_PARAMS.counts_as(Unit::FLOP.per(Unit::REQUEST)),
        ACTIVE_BATCH,
        M_WEIGHTS,
        M_KV_STEP,
    ],
    formula: Formula::Scalar {
        text: "2 * n_params * active_batch / (m_weights + m_kv_step)",
        eval: |x| {
            computed(decode_arithmetic_intensity(
                whole("n_params", x[0])?,
                Requests::new(x[1])?,
                Bytes::new(x[2])?,
                Bytes::new(x[3])?,
            ))
        },
        example: (&[8e9, 10.0, 16e9, 4e9], 8.0),
    },
    path: "metrics_core::roofline::decode_arithmetic_intensity",
    source: Source {
        work: "Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009; metric dictionary",
        section: "1.2, 1.3",
    },
    note: text(
        "A larger batch raises it only while weights dominate what the step reads.",
        "只有在每步读取以权重为主时，增大 batch 才能提高它。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &KV_STEP_BYTES,
    &KV_STEP_TIME_LOWER_BOUND,
    &PREFILL_TIME_LOWER_BOUND,
    &DECODE_STEP_TIME_LOWER_BOUND,
    &ARITHMETIC_INTENSITY,
    &RIDGE_POINT,
    &DECODE_ARITHMETIC_INTENSITY,
];
