//! Every law of this crate as data, in docs order, and the inputs that they share.
//!
//! The unit `s` stands for the caller's one unit of time: rates are in `1/s`, times in `s`, and
//! jobs are counted by pure numbers.

use metrics_core::Unit;
use metrics_core::metric::{Computed, Input, Metric, Refusal, computed_as, text};

/// A pure number.
pub(crate) const PURE: Unit = Unit::ONE;
/// The caller's unit of time.
pub(crate) const TIME: Unit = Unit::SECOND;
/// Per the caller's unit of time.
pub(crate) const RATE: Unit = Unit::ONE.per(Unit::SECOND);

/// Arrival rate, below every service rate that tests draw.
pub(crate) const LAMBDA: Input =
    Input::real("lambda", r"\lambda", RATE, (0.0, 9.5), text("arrival rate", "到达率"));
/// Arrival rate where a formula takes its logarithm.
pub(crate) const LAMBDA_ABOVE_0: Input =
    Input::real("lambda", r"\lambda", RATE, (0.01, 9.5), text("arrival rate", "到达率"));
/// Service rate of one server.
pub(crate) const MU: Input = Input::real(
    "mu",
    r"\mu",
    RATE,
    (10.0, 20.0),
    text("service rate of one server", "单个服务台的服务率"),
);
/// Servers.
pub(crate) const C: Input =
    Input::whole("c", "c", PURE, (1.0, 30.0), text("number of servers", "服务台数"));
/// Jobs in the system.
pub(crate) const N: Input =
    Input::whole("n", "n", PURE, (0.0, 40.0), text("number of jobs in the system", "系统内任务数"));
/// A time.
pub(crate) const T: Input = Input::real("t", "t", TIME, (0.0, 5.0), text("length of time", "时长"));
/// The probability of a percentile.
pub(crate) const P: Input = Input::real(
    "p",
    "p",
    PURE,
    (0.0, 0.9999),
    text("probability, 0.99 for P99", "概率，P99 为 0.99"),
);
/// Mean service time, so short that no arrival rate that tests draw is too much.
pub(crate) const MEAN: Input =
    Input::real("mean", "E[S]", TIME, (0.001, 0.1), text("mean service time", "平均服务时间"));
/// Variation of the service time.
pub(crate) const CV: Input = Input::real(
    "cv",
    "c_S",
    PURE,
    (0.0, 5.0),
    text("coefficient of variation of the service time", "服务时间的变异系数"),
);

/// The value of a function, in the unit that its documentation gives.
///
/// What is truly infinite (a percentile at `p = 1`) is refused here: tables and `explain` show
/// numbers.
pub(crate) fn shown(
    unit: Unit,
    result: crate::error::Result<f64>,
) -> std::result::Result<Computed, Refusal> {
    let computed = computed_as(unit, result)?;
    if computed.value.is_infinite() {
        return Err(Refusal("the value is infinite for these inputs".into()));
    }
    Ok(computed)
}

/// The families, in docs order.
const FAMILIES: &[&[&Metric]] = &[
    crate::little::METRICS,
    crate::demand::METRICS,
    crate::erlang::METRICS,
    crate::mm1::METRICS,
    crate::mmc::METRICS,
    crate::mmck::METRICS,
    crate::mminf::METRICS,
    crate::finite_source::METRICS,
    crate::mg1::METRICS,
    crate::md1::METRICS,
    crate::mg1_ps::METRICS,
    crate::batch::METRICS,
    crate::approx::METRICS,
    crate::closed::METRICS,
    crate::plan::METRICS,
    crate::stability::METRICS,
];

/// Every law of this crate, in docs order.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    FAMILIES.iter().flat_map(|family| family.iter().copied())
}

/// The law with this id, if there is one.
#[must_use]
pub fn find(id: &str) -> Option<&'static Metric> {
    metrics().find(|m| m.id == id)
}
