//! Rates of requests and tokens.

use crate::error::{Result, above};
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, text, whole};
#[cfg(feature = "catalog")]
use crate::units::Unit;
use crate::units::{Requests, RequestsPerSecond, Seconds, SecondsPerToken, TokensPerSecond};

/// Request throughput: completed requests per second.
///
/// ```text
/// request_throughput = n_completed / t_total
/// ```
///
/// `n_completed` counts the requests answered in full; `t_total` is the length of the window in
/// which they were counted. It depends strongly on the output lengths: read it beside their
/// quantiles.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `t_total` is 0.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, throughput::request_throughput};
///
/// assert_eq!(request_throughput(2, Seconds::new(2.0)?)?.get(), 1.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 2.1.
pub fn request_throughput(n_completed: u64, t_total: Seconds) -> Result<RequestsPerSecond> {
    RequestsPerSecond::new(n_completed as f64 / above("t_total", t_total.get(), 0.0)?)
}

/// The catalog entry of [`request_throughput`].
#[cfg(feature = "catalog")]
pub const REQUEST_THROUGHPUT: Metric = Metric {
    id: "request_throughput",
    symbol: r"X_{\mathrm{req}}",
    name: text("Request throughput", "请求吞吐"),
    layer: Layer::Throughput,
    unit: Unit::REQUEST.per(Unit::SECOND),
    inputs: &[
        Input::whole(
            "n_completed",
            r"N_{\mathrm{req}}",
            Unit::REQUEST,
            (0.0, 1e6),
            text("requests answered in full", "完整应答的请求数"),
        ),
        T_TOTAL,
    ],
    formula: Formula::Scalar {
        text: "n_completed / t_total",
        eval: |x| computed(request_throughput(whole("n_completed", x[0])?, Seconds::new(x[1])?)),
        example: (&[2.0, 2.0], 1.0),
    },
    path: "metrics_core::throughput::request_throughput",
    source: Source { work: "formula walkthrough", section: "2.1" },
    note: text(
        "It depends strongly on the output lengths: read it beside their quantiles.",
        "它与输出长度分布强相关，应与输出长度分位数一起看。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const T_TOTAL: Input = Input::real(
    "t_total",
    r"T_{\mathrm{total}}",
    Unit::SECOND,
    (0.0, 1e5),
    text("length of the window", "统计窗口时长"),
);

/// Token throughput: output tokens per second.
///
/// ```text
/// token_throughput = n_tokens / t_total
/// ```
///
/// `n_tokens` is the sum of the output tokens of the completed requests; `t_total` is the length
/// of the window. Tools that add the input tokens call the sum total throughput: it is not this.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `t_total` is 0.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, throughput::token_throughput};
///
/// assert_eq!(token_throughput(7 + 5, Seconds::new(2.0)?)?.get(), 6.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 2.1.
pub fn token_throughput(n_tokens: u64, t_total: Seconds) -> Result<TokensPerSecond> {
    TokensPerSecond::new(n_tokens as f64 / above("t_total", t_total.get(), 0.0)?)
}

/// The catalog entry of [`token_throughput`].
#[cfg(feature = "catalog")]
pub const TOKEN_THROUGHPUT: Metric = Metric {
    id: "token_throughput",
    symbol: r"X_{\mathrm{tok}}",
    name: text("Output token throughput", "输出 token 吞吐"),
    layer: Layer::Throughput,
    unit: Unit::TOKEN.per(Unit::SECOND),
    inputs: &[
        Input::whole(
            "n_tokens",
            r"\sum_i N_{\mathrm{out}}^{(i)}",
            Unit::TOKEN,
            (0.0, 1e9),
            text("output tokens of the completed requests", "已完成请求的输出 token 总数"),
        ),
        T_TOTAL,
    ],
    formula: Formula::Scalar {
        text: "n_tokens / t_total",
        eval: |x| computed(token_throughput(whole("n_tokens", x[0])?, Seconds::new(x[1])?)),
        example: (&[12.0, 2.0], 6.0),
    },
    path: "metrics_core::throughput::token_throughput",
    source: Source { work: "formula walkthrough", section: "2.1" },
    note: text(
        "Total throughput adds the input tokens and is another figure.",
        "总吞吐还包含输入 token，是另一个指标。",
    ),
    exported: &[],
};

/// Token throughput of a decoding batch: every request in decode yields one token per TPOT.
///
/// ```text
/// token_throughput_from_batch = b_decode / tpot
/// ```
///
/// `b_decode` is the mean number of requests in decode, prefill and queue left out; `tpot` is
/// their mean time per output token.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `tpot` is 0.
///
/// # Examples
///
/// ```
/// use metrics_core::{SecondsPerToken, throughput::token_throughput_from_batch, units::Requests};
///
/// let x = token_throughput_from_batch(Requests::new(8.0)?, SecondsPerToken::new(0.02)?)?;
/// assert!((x.get() - 400.0).abs() < 1e-9);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 2.1.
pub fn token_throughput_from_batch(
    b_decode: Requests,
    tpot: SecondsPerToken,
) -> Result<TokensPerSecond> {
    TokensPerSecond::new(b_decode.get() / above("tpot", tpot.get(), 0.0)?)
}

/// The catalog entry of [`token_throughput_from_batch`].
#[cfg(feature = "catalog")]
pub const TOKEN_THROUGHPUT_FROM_BATCH: Metric = Metric {
    id: "token_throughput_from_batch",
    symbol: r"X_{\mathrm{tok}}",
    name: text("Output token throughput of a decoding batch", "解码批次的输出 token 吞吐"),
    layer: Layer::Throughput,
    unit: Unit::TOKEN.per(Unit::SECOND),
    inputs: &[
        // Each request in decode yields one token per TPOT, so the count of requests is one of tokens.
        Input::real(
            "b_decode",
            r"\bar{B}_{\mathrm{decode}}",
            Unit::REQUEST,
            (0.0, 1024.0),
            text("mean number of requests in decode", "处于 decode 的平均请求数"),
        )
        .counts_as(Unit::ONE),
        Input::real(
            "tpot",
            r"\mathrm{TPOT}",
            Unit::SECOND.per(Unit::TOKEN),
            (0.0, 1.0),
            text("mean time per output token", "平均每输出 token 时延"),
        ),
    ],
    formula: Formula::Scalar {
        text: "b_decode / tpot",
        eval: |x| {
            computed(token_throughput_from_batch(Requests::new(x[0])?, SecondsPerToken::new(x[1])?))
        },
        example: (&[8.0, 0.02], 400.0),
    },
    path: "metrics_core::throughput::token_throughput_from_batch",
    source: Source { work: "metric dictionary", section: "2.1" },
    note: text(
        "Only requests in decode count: with prefill or queue in the batch the estimate is too high.",
        "只计处于 decode 的请求；把 prefill 或排队中的请求算进去会高估。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] =
    &[&REQUEST_THROUGHPUT, &TOKEN_THROUGHPUT, &TOKEN_THROUGHPUT_FROM_BATCH];
