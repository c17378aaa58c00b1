//! From the typed quantities of `metrics-core` to rates: service demand → μ → ρ.
//!
//! The only module that knows units; its rates are per second and its times in seconds.

use metrics_core::Seconds;
#[cfg(feature = "catalog")]
use metrics_core::Unit;
#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text};
use metrics_core::units::RequestsPerSecond;

#[cfg(feature = "catalog")]
use crate::catalog::{PURE, RATE, shown};
use crate::error::{Result, positive, zero_or_more};
use crate::mg1::Mg1;
use crate::mm1::Mm1;
use crate::mmc::Mmc;

#[cfg(feature = "catalog")]
const DEMAND: Input = Input::real(
    "demand",
    "D",
    Unit::SECOND,
    (0.001, 60.0),
    text("mean service demand of a request", "每个请求的平均服务需求"),
);
#[cfg(feature = "catalog")]
const ARRIVALS: Input = Input::real(
    "lambda",
    r"\lambda",
    Unit::REQUEST.per(Unit::SECOND),
    (0.0, 100.0),
    text("arrival rate of requests", "请求到达率"),
)
.counts_as(RATE);

/// Service rate of one server per second, from the mean service demand of a request.
///
/// ```text
/// mu_from_demand = 1 / demand
/// ```
///
/// `demand` is the mean time that a request keeps one server to itself, as `metrics_core::demand`
/// computes it from token counts. The result is a plain rate for the models here, per second.
///
/// # Errors
///
/// [`QueueError`](crate::QueueError) unless `demand` is from 1e-50 to 1e50 s: a service time of 0
/// has no rate.
///
/// # Examples
///
/// ```
/// use metrics_core::Seconds;
///
/// let mu = queueing::demand::mu_from_demand(Seconds::new(1.536)?)?;
/// assert!((mu - 1.0 / 1.536).abs() < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: formula walkthrough, service demand.
pub fn mu_from_demand(demand: Seconds) -> Result<f64> {
    Ok(1.0 / positive("demand", demand.get())?)
}

/// The catalog entry of [`mu_from_demand`].
#[cfg(feature = "catalog")]
pub const MU_FROM_DEMAND: Metric = Metric {
    id: "mu_from_demand",
    symbol: r"\mu",
    name: text("Service rate from service demand", "由服务需求得到的服务率"),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[DEMAND],
    formula: Formula::Scalar {
        text: "1 / demand",
        eval: |x| shown(RATE, mu_from_demand(Seconds::new(x[0])?)),
        example: (&[1.25], 0.8),
    },
    path: "queueing::demand::mu_from_demand",
    source: Source { work: "formula walkthrough", section: "service demand" },
    note: text(
        "A server that batches serves more than one request in this time: it is the rate of one slot.",
        "服务器若做批处理，这段时间内能服务多个请求：它只是一个槽位的速率。",
    ),
    exported: &[],
};

/// Load of one server: arriving work per unit of time.
///
/// ```text
/// rho_from_demand = lambda * demand
/// ```
///
/// `lambda` is the arrival rate and `demand` the mean time that a request keeps the server. At or
/// above 1 the queue grows for ever; the value is still given, since it says by how much. The
/// models refuse it.
///
/// # Errors
///
/// [`QueueError`](crate::QueueError) unless both are at most 1e50.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, units::RequestsPerSecond};
///
/// let rho = queueing::demand::rho_from_demand(RequestsPerSecond::new(4.0)?, Seconds::new(0.1)?)?;
/// assert!((rho - 0.4).abs() < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: formula walkthrough, service demand and utilization.
pub fn rho_from_demand(lambda: RequestsPerSecond, demand: Seconds) -> Result<f64> {
    Ok(zero_or_more("lambda", lambda.get())? * zero_or_more("demand", demand.get())?)
}

/// The catalog entry of [`rho_from_demand`].
#[cfg(feature = "catalog")]
pub const RHO_FROM_DEMAND: Metric = Metric {
    id: "rho_from_demand",
    symbol: r"\rho",
    name: text("Load from service demand", "由服务需求得到的负载"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[ARRIVALS, DEMAND],
    formula: Formula::Scalar {
        text: "lambda * demand",
        eval: |x| shown(PURE, rho_from_demand(RequestsPerSecond::new(x[0])?, Seconds::new(x[1])?)),
        example: (&[4.0, 0.1], 0.4),
    },
    path: "queueing::demand::rho_from_demand",
    source: Source { work: "formula walkthrough", section: "service demand and utilization" },
    note: text(
        "Divide by the number of servers or slots before you compare it with 1.",
        "与 1 比较之前，先除以服务台或槽位的个数。",
    ),
    exported: &[],
};

/// The M/M/1 queue of requests that arrive at `lambda` and keep its server for `demand` on average.
///
/// # Errors
///
/// As [`Mm1::new`] with `mu = 1 / demand`.
pub fn mm1(lambda: RequestsPerSecond, demand: Seconds) -> Result<Mm1> {
    Mm1::new(lambda.get(), mu_from_demand(demand)?)
}

/// The M/M/c queue of requests that arrive at `lambda` and keep one of `c` servers for `demand` on
/// average.
///
/// # Errors
///
/// As [`Mmc::new`] with `mu = 1 / demand`.
pub fn mmc(lambda: RequestsPerSecond, demand: Seconds, c: u64) -> Result<Mmc> {
    Mmc::new(lambda.get(), mu_from_demand(demand)?, c)
}

/// The M/G/1 queue of requests that arrive at `lambda` and keep its server for `demand` on average,
/// with coefficient of variation `cv`.
///
/// # Errors
///
/// As [`Mg1::from_cv`] with `mean = demand`.
pub fn mg1(lambda: RequestsPerSecond, demand: Seconds, cv: f64) -> Result<Mg1> {
    Mg1::from_cv(lambda.get(), demand.get(), cv)
}

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&MU_FROM_DEMAND, &RHO_FROM_DEMAND];
