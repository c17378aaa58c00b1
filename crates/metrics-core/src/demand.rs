//! Service demand: what one request asks of a replica.

use crate::error::{Result, above};
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, text, whole};
#[cfg(feature = "catalog")]
use crate::units::{Quantity, Unit};
use crate::units::{RequestsPerSecond, Seconds, SecondsPerToken};

/// Service demand of one request: the time for which it asks a replica.
///
/// ```text
/// request_service_demand = n_in * c_prefill + n_out * c_decode
/// ```
///
/// `n_in` counts the prompt tokens to compute, `n_out` the output tokens; `c_prefill` and
/// `c_decode` are the mean cost of one of each. An account, not a model of the GPU: it tells a
/// request made slow by its prompt from one made slow by its answer. Where several requests share
/// a decode step, `c_decode` is the step time divided by the batch, not the TPOT.
///
/// # Errors
///
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves the range of a time.
///
/// # Examples
///
/// ```
/// use metrics_core::{SecondsPerToken, demand::request_service_demand};
///
/// let (c_prefill, c_decode) = (SecondsPerToken::new(0.0005)?, SecondsPerToken::new(0.010)?);
/// let demand = request_service_demand(512, 128, c_prefill, c_decode)?;
/// assert!((demand.get() - 1.536).abs() < 1e-12); // 0.256 s of prefill, 1.28 s of decode
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 3.1.
pub fn request_service_demand(
    n_in: u64,
    n_out: u64,
    c_prefill: SecondsPerToken,
    c_decode: SecondsPerToken,
) -> Result<Seconds> {
    Seconds::named("service demand", n_in as f64 * c_prefill.get() + n_out as f64 * c_decode.get())
}

/// The catalog entry of [`request_service_demand`].
#[cfg(feature = "catalog")]
pub const REQUEST_SERVICE_DEMAND: Metric = Metric {
    id: "request_service_demand",
    symbol: r"D_{\mathrm{req}}",
    name: text("Service demand of a request", "请求的服务需求"),
    layer: Layer::Capacity,
    unit: Unit::SECOND,
    inputs: &[
        Input::whole(
            "n_in",
            r"N_{\mathrm{in}}",
            Unit::TOKEN,
            (0.0, 131_072.0),
            text("prompt tokens to compute", "需要计算的输入 token 数"),
        ),
        Input::whole(
            "n_out",
            r"N_{\mathrm{out}}",
            Unit::TOKEN,
            (0.0, 16_384.0),
            text("output tokens", "输出 token 数"),
        ),
        Input::real(
            "c_prefill",
            r"c_{\mathrm{prefill}}",
            SecondsPerToken::UNIT,
            (0.0, 0.01),
            text("mean cost of a prompt token", "每个输入 token 的平均 prefill 代价"),
        ),
        Input::real(
            "c_decode",
            r"c_{\mathrm{decode}}",
            SecondsPerToken::UNIT,
            (0.0, 0.2),
            text("mean cost of an output token", "每个输出 token 的平均 decode 代价"),
        ),
    ],
    formula: Formula::Scalar {
        text: "n_in * c_prefill + n_out * c_decode",
        eval: |x| {
            computed(request_service_demand(
                whole("n_in", x[0])?,
                whole("n_out", x[1])?,
                SecondsPerToken::new(x[2])?,
                SecondsPerToken::new(x[3])?,
            ))
        },
        example: (&[512.0, 128.0, 0.0005, 0.01], 1.536),
    },
    path: "metrics_core::demand::request_service_demand",
    source: Source { work: "formula walkthrough", section: "3.1" },
    note: text(
        "Where requests share a decode step, the cost of an output token is the step time divided by the batch, not the TPOT.",
        "多个请求共享一个 decode 步时，每个输出 token 的代价是步时长除以 batch，而不是 TPOT。",
    ),
    exported: &[],
};

/// Service rate of one replica from the mean service demand of its requests.
///
/// ```text
/// service_rate_from_demand = 1 / mean_demand
/// ```
///
/// `mean_demand` is the mean of [`request_service_demand`] over the mix of requests; the rate is
/// the μ of queueing theory, in requests per second. It takes the mean of the demands, not the
/// mean of the rates, and says nothing of how demands vary: two mixes of one μ can wait very
/// differently.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `mean_demand` is zero,
/// [`Error::TooLarge`](crate::Error::TooLarge) if it is so small that the rate leaves its range.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, demand::service_rate_from_demand};
///
/// let mu = service_rate_from_demand(Seconds::new(0.25)?)?;
/// assert!((mu.get() - 4.0).abs() < 1e-12); // a quarter of a second each: four in a second
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 3.3.
pub fn service_rate_from_demand(mean_demand: Seconds) -> Result<RequestsPerSecond> {
    RequestsPerSecond::named("service rate", 1.0 / above("mean_demand", mean_demand.get(), 0.0)?)
}

/// The catalog entry of [`service_rate_from_demand`].
#[cfg(feature = "catalog")]
pub const SERVICE_RATE_FROM_DEMAND: Metric = Metric {
    id: "service_rate_from_demand",
    symbol: r"\mu_{\mathrm{req}}",
    name: text("Service rate from mean demand", "由平均服务需求得到的服务率"),
    layer: Layer::Capacity,
    unit: RequestsPerSecond::UNIT,
    inputs: &[Input::real(
        "mean_demand",
        r"\mathbb{E}[D_{\mathrm{req}}]",
        Unit::SECOND,
        (0.001, 100.0),
        text("mean service demand of one request", "单个请求的平均服务需求"),
    )
    .counts_as(Unit::SECOND.per(Unit::REQUEST))],
    formula: Formula::Scalar {
        text: "1 / mean_demand",
        eval: |x| computed(service_rate_from_demand(Seconds::new(x[0])?)),
        example: (&[0.25], 4.0),
    },
    path: "metrics_core::demand::service_rate_from_demand",
    source: Source { work: "formula walkthrough", section: "3.3" },
    note: text(
        "It holds for one replica at full work; the variation of demands, which sets the wait, is not in it.",
        "它只对单个满负荷副本成立；决定等待时间的需求波动不在其中。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&REQUEST_SERVICE_DEMAND, &SERVICE_RATE_FROM_DEMAND];
