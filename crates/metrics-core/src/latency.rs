//! Latency of one request: TTFT, TPOT, ITL, E2E.

use serde::{Deserialize, Serialize};

use crate::error::{Result, difference};
#[cfg(feature = "catalog")]
use crate::metric::{Exported, Formula, Input, Layer, Metric, Source, computed, text, whole};
#[cfg(feature = "catalog")]
use crate::units::Unit;
use crate::units::{Seconds, SecondsPerToken, Tokens};

/// Time to first token: from the instant the request was due to its first output token.
///
/// ```text
/// ttft = t_first - t_arrive
/// ```
///
/// `t_arrive` is the instant the request was due (the scheduled send time if known, else the send
/// time); `t_first` that of the first output which carries a token. Both count from one origin.
/// It holds the wait in the queue: a high TTFT need not mean a slow prefill.
///
/// # Errors
///
/// [`Error::Order`](crate::Error::Order) if `t_first < t_arrive`.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, latency::ttft};
///
/// let ttft = ttft(Seconds::new(0.0)?, Seconds::new(0.25)?)?;
/// assert_eq!(ttft, Seconds::new(0.25)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 1.1; vLLM 0.33.0 `vllm/benchmarks/serve.py`, `calculate_metrics`.
pub fn ttft(t_arrive: Seconds, t_first: Seconds) -> Result<Seconds> {
    Seconds::new(difference(("t_first", t_first.get()), ("t_arrive", t_arrive.get()))?)
}

/// The catalog entry of [`ttft`].
#[cfg(feature = "catalog")]
pub const TTFT: Metric = Metric {
    id: "ttft",
    symbol: r"\mathrm{TTFT}",
    name: text("Time to first token (TTFT)", "首 token 时延（TTFT）"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[T_ARRIVE, T_FIRST],
    formula: Formula::Scalar {
        text: "t_first - t_arrive",
        eval: |x| computed(ttft(Seconds::new(x[0])?, Seconds::new(x[1])?)),
        example: (&[0.0, 0.25], 0.25),
    },
    path: "metrics_core::latency::ttft",
    source: Source {
        work: "metric dictionary; vLLM 0.33.0 `vllm/benchmarks/serve.py`",
        section: "1.1; `calculate_metrics`",
    },
    note: text(
        "It holds the wait in the queue: a high TTFT need not mean a slow prefill.",
        "它包含排队等待：TTFT 高不一定是 prefill 慢。",
    ),
    exported: &[
        Exported {
            engine: "vLLM 0.33",
            name: "vllm:time_to_first_token_seconds",
            differs: text("", ""),
        },
        Exported {
            engine: "SGLang 0.5.23",
            name: "sglang:time_to_first_token_seconds",
            differs: text("", ""),
        },
        Exported {
            engine: "TensorRT-LLM",
            name: "trtllm_time_to_first_token_seconds",
            differs: text("", ""),
        },
        Exported {
            engine: "Dynamo",
            name: "dynamo_frontend_time_to_first_token_seconds",
            differs: text("", ""),
        },
    ],
};

#[cfg(feature = "catalog")]
const T_ARRIVE: Input = Input::real(
    "t_arrive",
    r"t_{\mathrm{arrive}}",
    Unit::SECOND,
    (0.0, 600.0),
    text("instant the request was due", "请求应到达的时刻"),
);
#[cfg(feature = "catalog")]
const T_FIRST: Input = Input::real(
    "t_first",
    r"t_{\mathrm{first}}",
    Unit::SECOND,
    (0.0, 600.0),
    text("instant of the first output token", "首个输出 token 的时刻"),
);
#[cfg(feature = "catalog")]
const T_LAST: Input = Input::real(
    "t_last",
    r"t_{\mathrm{last}}",
    Unit::SECOND,
    (0.0, 600.0),
    text("instant of the last output token", "最后一个输出 token 的时刻"),
);
#[cfg(feature = "catalog")]
const N_OUT: Input = Input::whole(
    "n_out",
    r"N_{\mathrm{out}}",
    Unit::TOKEN,
    (0.0, 4096.0),
    text("number of output tokens, the first included", "输出 token 数（含首个）"),
);

/// Time per output token: the mean gap between the output tokens after the first.
///
/// ```text
/// tpot = if n_out <= 1 then 0 else (t_last - t_first) / (n_out - 1)
/// ```
///
/// `t_first` and `t_last` are the instants of the first and the last output that carries a token;
/// `n_out` counts the output tokens, the first included. One token has no gap: its TPOT is 0 by
/// definition, and summaries of TPOT leave such requests out and say how many. As a mean over one
/// request, it hides stalls.
///
/// # Errors
///
/// [`Error::Order`](crate::Error::Order) if `t_last < t_first`.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, latency::tpot};
///
/// let tpot = tpot(Seconds::new(0.25)?, Seconds::new(1.25)?, 6)?;
/// assert!((tpot.get() - 0.2).abs() < 1e-12); // 1 s over 5 gaps
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 1.1; vLLM 0.33.0 `vllm/benchmarks/serve.py`, `calculate_metrics`.
#[inline]
pub fn tpot(t_first: Seconds, t_last: Seconds, n_out: u64) -> Result<SecondsPerToken> {
    let decoding = difference(("t_last", t_last.get()), ("t_first", t_first.get()))?;
    if n_out <= 1 {
        return Ok(SecondsPerToken::ZERO);
    }
    SecondsPerToken::new(decoding / (n_out - 1) as f64)
}

/// The catalog entry of [`tpot`].
#[cfg(feature = "catalog")]
pub const TPOT: Metric = Metric {
    id: "tpot",
    symbol: r"\mathrm{TPOT}",
    name: text("Time per output token (TPOT)", "每输出 token 时延（TPOT）"),
    layer: Layer::Latency,
    unit: Unit::SECOND.per(Unit::TOKEN),
    inputs: &[T_FIRST, T_LAST, N_OUT],
    formula: Formula::Scalar {
        text: "if n_out <= 1 then 0 else (t_last - t_first) / (n_out - 1)",
        eval: |x| computed(tpot(Seconds::new(x[0])?, Seconds::new(x[1])?, whole("n_out", x[2])?)),
        example: (&[0.25, 1.25, 6.0], 0.2),
    },
    path: "metrics_core::latency::tpot",
    source: Source {
        work: "formula walkthrough; vLLM 0.33.0 `vllm/benchmarks/serve.py`",
        section: "1.1; `calculate_metrics`",
    },
    note: text(
        "As a mean over one request it hides stalls; one-token answers have 0 and are left out of summaries.",
        "它是单个请求内的平均值，会掩盖卡顿；只有一个 token 的回答其值为 0，汇总时不计入。",
    ),
    exported: &[
        Exported {
            engine: "vLLM 0.33",
            name: "vllm:request_time_per_output_token_seconds",
            differs: text("one-token answers are observed as 0", "只有一个 token 的回答记为 0"),
        },
        Exported {
            engine: "SGLang 0.5.23",
            name: "sglang:request_time_per_output_token_seconds",
            differs: text("", ""),
        },
        Exported {
            engine: "TensorRT-LLM",
            name: "trtllm_time_per_output_token_seconds",
            differs: text("", ""),
        },
        Exported {
            engine: "TGI 3.3",
            name: "tgi_request_mean_time_per_token_duration",
            differs: text(
                "inference time over N tokens, prefill included",
                "推理总时间除以 N 个 token，含 prefill",
            ),
        },
    ],
};

/// End-to-end latency: from the instant the request was due to its last output token.
///
/// ```text
/// e2e_latency = t_last - t_arrive
/// ```
///
/// `t_arrive` and `t_last` count from one origin; `t_last` is the last output that carries a
/// token, not the end of the stream: a trailing usage chunk is no token.
///
/// # Errors
///
/// [`Error::Order`](crate::Error::Order) if `t_last < t_arrive`.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, latency::e2e_latency};
///
/// assert_eq!(e2e_latency(Seconds::new(0.0)?, Seconds::new(1.25)?)?, Seconds::new(1.25)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 1.1.
pub fn e2e_latency(t_arrive: Seconds, t_last: Seconds) -> Result<Seconds> {
    Seconds::new(difference(("t_last", t_last.get()), ("t_arrive", t_arrive.get()))?)
}

/// The catalog entry of [`e2e_latency`].
#[cfg(feature = "catalog")]
pub const E2E_LATENCY: Metric = Metric {
    id: "e2e_latency",
    symbol: r"\mathrm{E2E}",
    name: text("End-to-end latency (E2E)", "端到端时延（E2E）"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[T_ARRIVE, T_LAST],
    formula: Formula::Scalar {
        text: "t_last - t_arrive",
        eval: |x| computed(e2e_latency(Seconds::new(x[0])?, Seconds::new(x[1])?)),
        example: (&[0.0, 1.25], 1.25),
    },
    path: "metrics_core::latency::e2e_latency",
    source: Source { work: "formula walkthrough", section: "1.1" },
    note: text(
        "It ends at the last token, not at the end of the stream: a trailing usage chunk is no token.",
        "它止于最后一个 token，而不是流的结束：末尾的 usage 块不是 token。",
    ),
    exported: &[
        Exported {
            engine: "vLLM 0.33",
            name: "vllm:e2e_request_latency_seconds",
            differs: text("", ""),
        },
        Exported {
            engine: "SGLang 0.5.23",
            name: "sglang:e2e_request_latency_seconds",
            differs: text("", ""),
        },
        Exported {
            engine: "TensorRT-LLM",
            name: "trtllm_e2e_request_latency_seconds",
            differs: text("", ""),
        },
        Exported { engine: "TGI 3.3", name: "tgi_request_duration", differs: text("", "") },
        Exported {
            engine: "Dynamo",
            name: "dynamo_frontend_request_duration_seconds",
            differs: text("", ""),
        },
    ],
};

/// End-to-end latency rebuilt from TTFT and TPOT.
///
/// ```text
/// e2e_from_ttft_tpot = ttft + max(n_out - 1, 0) * tpot
/// ```
///
/// `ttft` and `tpot` are those of one request; `n_out` counts its output tokens, the first
/// included. The identity holds request by request and for means weighted alike, not between
/// percentiles.
///
/// # Errors
///
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves the range of a time.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, SecondsPerToken, latency::e2e_from_ttft_tpot};
///
/// let e2e = e2e_from_ttft_tpot(Seconds::new(0.25)?, SecondsPerToken::new(0.2)?, 6)?;
/// assert!((e2e.get() - 1.25).abs() < 1e-12); // 0.25 s and 5 gaps of 0.2 s
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 1.3, with `max` for answers without a token.
pub fn e2e_from_ttft_tpot(ttft: Seconds, tpot: SecondsPerToken, n_out: u64) -> Result<Seconds> {
    Seconds::named("e2e", ttft.get() + n_out.saturating_sub(1) as f64 * tpot.get())
}

/// The catalog entry of [`e2e_from_ttft_tpot`].
#[cfg(feature = "catalog")]
pub const E2E_FROM_TTFT_TPOT: Metric = Metric {
    id: "e2e_from_ttft_tpot",
    symbol: r"\mathrm{E2E}",
    name: text("End-to-end latency from TTFT and TPOT", "由 TTFT 与 TPOT 得到的端到端时延"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[
        Input::real(
            "ttft",
            r"\mathrm{TTFT}",
            Unit::SECOND,
            (0.0, 60.0),
            text("time to first token", "首 token 时延"),
        ),
        Input::real(
            "tpot",
            r"\mathrm{TPOT}",
            Unit::SECOND.per(Unit::TOKEN),
            (0.0, 1.0),
            text("time per output token", "每输出 token 时延"),
        ),
        N_OUT,
    ],
    formula: Formula::Scalar {
        text: "ttft + max(n_out - 1, 0) * tpot",
        eval: |x| {
            computed(e2e_from_ttft_tpot(
                Seconds::new(x[0])?,
                SecondsPerToken::new(x[1])?,
                whole("n_out", x[2])?,
            ))
        },
        example: (&[0.25, 0.2, 6.0], 1.25),
    },
    path: "metrics_core::latency::e2e_from_ttft_tpot",
    source: Source { work: "formula walkthrough", section: "1.3" },
    note: text(
        "It holds for each request; for means only if TPOT is weighted by the gaps; never between percentiles.",
        "它对每个请求成立；对均值仅当 TPOT 按间隔数加权时成立；对百分位数不成立。",
    ),
    exported: &[],
};

/// Inter-token latency: the gap between one output token and the next.
///
/// ```text
/// inter_token_latency = t_token - t_previous
/// ```
///
/// `t_previous` and `t_token` are the instants of two neighbouring tokens of one answer. A
/// stream's chunk may hold several tokens; a gap between chunks is an inter-chunk gap, not an ITL.
///
/// # Errors
///
/// [`Error::Order`](crate::Error::Order) if `t_token < t_previous`.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, latency::inter_token_latency};
///
/// let itl = inter_token_latency(Seconds::new(0.5)?, Seconds::new(0.75)?)?;
/// assert_eq!(itl, Seconds::new(0.25)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 1.1.
pub fn inter_token_latency(t_previous: Seconds, t_token: Seconds) -> Result<Seconds> {
    Seconds::new(difference(("t_token", t_token.get()), ("t_previous", t_previous.get()))?)
}

/// The catalog entry of [`inter_token_latency`].
#[cfg(feature = "catalog")]
pub const INTER_TOKEN_LATENCY: Metric = Metric {
    id: "inter_token_latency",
    symbol: r"\mathrm{ITL}_i",
    name: text("Inter-token latency (ITL)", "token 间时延（ITL）"),
    layer: Layer::Latency,
    unit: Unit::SECOND,
    inputs: &[
        Input::real(
            "t_previous",
            r"t_{i-1}",
            Unit::SECOND,
            (0.0, 600.0),
            text("instant of the token before", "前一个 token 的时刻"),
        ),
        Input::real(
            "t_token",
            "t_i",
            Unit::SECOND,
            (0.0, 600.0),
            text("instant of the token", "该 token 的时刻"),
        ),
    ],
    formula: Formula::Scalar {
        text: "t_token - t_previous",
        eval: |x| computed(inter_token_latency(Seconds::new(x[0])?, Seconds::new(x[1])?)),
        example: (&[0.5, 0.75], 0.25),
    },
    path: "metrics_core::latency::inter_token_latency",
    source: Source { work: "metric dictionary", section: "1.1" },
    note: text(
        "Files that record chunks give inter-chunk gaps, which are longer when a chunk holds several tokens.",
        "按块记录的文件给出的是块间间隔；一块含多个 token 时，间隔会更长。",
    ),
    exported: &[
        Exported {
            engine: "vLLM 0.33",
            name: "vllm:inter_token_latency_seconds",
            differs: text("", ""),
        },
        Exported {
            engine: "SGLang 0.5.23",
            name: "sglang:inter_token_latency_seconds",
            differs: text("", ""),
        },
        Exported { engine: "TGI 3.3", name: "tgi_batch_decode_duration", differs: text("", "") },
        Exported {
            engine: "Dynamo",
            name: "dynamo_frontend_inter_token_latency_seconds",
            differs: text("", ""),
        },
    ],
};

/// TTFT, TPOT and E2E of one request, with `e2e = ttft + max(n_out - 1, 0) * tpot` by construction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestMetrics {
    /// Time to first token.
    pub ttft: Seconds,
    /// Time per output token; 0 for a one-token answer.
    pub tpot: SecondsPerToken,
    /// End-to-end latency.
    pub e2e_latency: Seconds,
    /// Output tokens, the first included.
    pub output_tokens: u64,
}

impl RequestMetrics {
    /// The metrics of a request whose latencies from arrival are known.
    ///
    /// # Errors
    ///
    /// [`Error::Order`](crate::Error::Order) if `e2e < ttft`.
    #[inline]
    pub fn from_latencies(ttft: Seconds, e2e: Seconds, output_tokens: u64) -> Result<Self> {
        // Counted from arrival, the first token's instant is TTFT and the last one's is E2E.
        let tpot = tpot(ttft, e2e, output_tokens)?;
        Ok(Self { ttft, tpot, e2e_latency: e2e, output_tokens })
    }

    /// Whether the answer has a gap between tokens, so that its TPOT says something.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        2 <= self.output_tokens
    }

    /// The output tokens as a quantity.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        Tokens::new(self.output_tokens as f64).unwrap_or(Tokens::ZERO)
    }
}

/// TTFT, TPOT and E2E of one request from its instants.
///
/// `t_arrive`, `t_first` and `t_last` are as in [`ttft`] and [`tpot`]; `n_out` counts the output
/// tokens.
///
/// # Errors
///
/// [`Error::Order`](crate::Error::Order) unless `t_arrive <= t_first <= t_last`.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, latency::request_metrics};
///
/// let s = Seconds::new;
/// let m = request_metrics(s(0.0)?, s(0.4)?, s(1.0)?, 4)?;
/// assert!((m.ttft.get() - 0.4).abs() < 1e-12);
/// assert!((m.tpot.get() - 0.2).abs() < 1e-12);
/// assert!((m.e2e_latency.get() - 1.0).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 1.3.
pub fn request_metrics(
    t_arrive: Seconds,
    t_first: Seconds,
    t_last: Seconds,
    n_out: u64,
) -> Result<RequestMetrics> {
    Ok(RequestMetrics {
        ttft: ttft(t_arrive, t_first)?,
        tpot: tpot(t_first, t_last, n_out)?,
        e2e_latency: e2e_latency(t_arrive, t_last)?,
        output_tokens: n_out,
    })
}

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] =
    &[&TTFT, &TPOT, &INTER_TOKEN_LATENCY, &E2E_LATENCY, &E2E_FROM_TTFT_TPOT];
