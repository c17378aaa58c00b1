//! Goodput: the rate of requests that meet their SLO, and the ratios it is made of.

use crate::error::{Error, Result, above, within};
use crate::latency::RequestMetrics;
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, text, whole};
use crate::slo::SloSet;
#[cfg(feature = "catalog")]
use crate::units::Unit;
use crate::units::{RequestsPerSecond, Seconds};

/// Goodput ratio: the share of completed requests that meet every per-request limit.
///
/// `metrics` are those of the completed requests, each once; `slo` holds the limits. Failed
/// requests are not in the base: for them see [`slo_attainment`].
///
/// # Errors
///
/// [`Error::Empty`] if there is no request: a share of nothing has no value.
///
/// # Examples
///
/// ```
/// use metrics_core::{RequestTimeline, goodput::goodput_ratio};
///
/// let log = [
///     RequestTimeline::completed("a", 0.0, 0.3, 0.9, 7)?,
///     RequestTimeline::completed("b", 0.0, 0.8, 1.6, 5)?,
/// ];
/// let metrics: Vec<_> = log.iter().filter_map(|t| t.metrics()).collect();
/// assert_eq!(goodput_ratio(&metrics, &"ttft<500ms,tpot<120ms".parse()?)?, 0.5);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 2.2 (whose function returns 0 for an empty log and whose text
/// divides by zero: here it has no value).
pub fn goodput_ratio(metrics: &[RequestMetrics], slo: &SloSet) -> Result<f64> {
    if metrics.is_empty() {
        return Err(Error::Empty { input: "metrics", item: "completed request" });
    }
    let good = metrics.iter().filter(|m| slo.is_met_by(m)).count();
    Ok(good as f64 / metrics.len() as f64)
}

/// Goodput: completed requests that meet every per-request limit, per second.
///
/// `metrics` are those of the completed requests; `t_total` is the length of the window; `slo`
/// holds the limits. At most the request throughput, and equal to it only if every completed
/// request is good.
///
/// # Errors
///
/// [`Error::NotAbove`] if `t_total` is 0.
///
/// # Examples
///
/// ```
/// use metrics_core::{RequestTimeline, Seconds, goodput::goodput};
///
/// let log = [
///     RequestTimeline::completed("a", 0.0, 0.3, 0.9, 7)?,
///     RequestTimeline::completed("b", 0.0, 0.8, 1.6, 5)?,
/// ];
/// let metrics: Vec<_> = log.iter().filter_map(|t| t.metrics()).collect();
/// let slo = "ttft<500ms,tpot<120ms".parse()?;
/// assert_eq!(goodput(&metrics, Seconds::new(2.0)?, &slo)?.get(), 0.5);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 2.2; metric dictionary, 2.3.
pub fn goodput(
    metrics: &[RequestMetrics],
    t_total: Seconds,
    slo: &SloSet,
) -> Result<RequestsPerSecond> {
    let good = metrics.iter().filter(|m| slo.is_met_by(m)).count();
    RequestsPerSecond::new(good as f64 / above("t_total", t_total.get(), 0.0)?)
}

/// The two requests of the source's example: the first meets the limits, the second does not.
#[cfg(feature = "catalog")]
fn example() -> Result<(Vec<RequestMetrics>, SloSet)> {
    let s = Seconds::new;
    let metrics = vec![
        crate::latency::request_metrics(s(0.0)?, s(0.3)?, s(0.9)?, 7)?,
        crate::latency::request_metrics(s(0.0)?, s(0.8)?, s(1.6)?, 5)?,
    ];
    Ok((metrics, "ttft<500ms,tpot<120ms".parse()?))
}

/// The catalog entry of [`goodput_ratio`].
#[cfg(feature = "catalog")]
pub const GOODPUT_RATIO: Metric = Metric {
    id: "goodput_ratio",
    symbol: r"\mathrm{GR}",
    name: text("Goodput ratio", "Goodput 比率"),
    layer: Layer::Throughput,
    unit: Unit::ONE,
    inputs: &[],
    formula: Formula::Law {
        latex: r"\frac{1}{N_{\mathrm{completed}}} \sum_{i} I_i",
        why: text("a mean over requests, not a formula over scalars", "对请求求平均，不是标量公式"),
        test: "tests/goodput.rs::goodput_counts_what_a_plain_loop_counts",
        example: text(
            "(arrive 0, first 0.3, last 0.9, 7 tokens) and (0, 0.8, 1.6, 5 tokens), limits 0.5 s and 0.12 s",
            "（到达 0，首 0.3，末 0.9，7 token）与（0，0.8，1.6，5 token），上限 0.5 s 与 0.12 s",
        ),
        run: || {
            let (metrics, slo) = example()?;
            computed(goodput_ratio(&metrics, &slo))
        },
        value: 0.5,
    },
    path: "metrics_core::goodput::goodput_ratio",
    source: Source { work: "formula walkthrough", section: "2.2" },
    note: text(
        "Its base is the completed requests; attainment counts failed ones as misses.",
        "分母是已完成的请求；达标率则把失败请求计为未达标。",
    ),
    exported: &[],
};

/// The catalog entry of [`goodput`].
#[cfg(feature = "catalog")]
pub const GOODPUT: Metric = Metric {
    id: "goodput",
    symbol: "G",
    name: text("Goodput", "Goodput（有效吞吐）"),
    layer: Layer::Throughput,
    unit: Unit::REQUEST.per(Unit::SECOND),
    inputs: &[],
    formula: Formula::Law {
        latex: r"\frac{1}{T_{\mathrm{total}}} \sum_{i} I_i",
        why: text("a count over requests, not a formula over scalars", "对请求计数，不是标量公式"),
        test: "tests/goodput.rs::goodput_is_at_most_throughput_and_equal_only_if_all_are_good",
        example: text(
            "(arrive 0, first 0.3, last 0.9, 7 tokens) and (0, 0.8, 1.6, 5 tokens) in 2 s, limits 0.5 s and 0.12 s",
            "2 s 内（到达 0，首 0.3，末 0.9，7 token）与（0，0.8，1.6，5 token），上限 0.5 s 与 0.12 s",
        ),
        run: || {
            let (metrics, slo) = example()?;
            computed(goodput(&metrics, Seconds::new(2.0)?, &slo))
        },
        value: 0.5,
    },
    path: "metrics_core::goodput::goodput",
    source: Source { work: "formula walkthrough; metric dictionary", section: "2.2; 2.3" },
    note: text(
        "No engine exports it: histograms are marginal and only bound the joint share.",
        "没有引擎导出该指标：直方图是边缘分布，只能给出联合达标率的上下界。",
    ),
    exported: &[],
};

/// Goodput from throughput and goodput ratio.
///
/// ```text
/// goodput_from_ratio = request_throughput * goodput_ratio
/// ```
///
/// `request_throughput` is the rate of completed requests, `goodput_ratio` the share of them that
/// meets the limits.
///
/// # Errors
///
/// [`Error::TooSmall`] or [`Error::TooLarge`] if the ratio is outside 0 to 1.
///
/// # Examples
///
/// ```
/// use metrics_core::{goodput::goodput_from_ratio, units::RequestsPerSecond};
///
/// assert_eq!(goodput_from_ratio(RequestsPerSecond::new(1.0)?, 0.5)?.get(), 0.5);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 2.2.
pub fn goodput_from_ratio(
    request_throughput: RequestsPerSecond,
    goodput_ratio: f64,
) -> Result<RequestsPerSecond> {
    let share = within("goodput_ratio", goodput_ratio, 0.0, 1.0)?;
    RequestsPerSecond::new(request_throughput.get() * share)
}

/// The catalog entry of [`goodput_from_ratio`].
#[cfg(feature = "catalog")]
pub const GOODPUT_FROM_RATIO: Metric = Metric {
    id: "goodput_from_ratio",
    symbol: "G",
    name: text("Goodput from throughput and ratio", "由吞吐与比率得到的 Goodput"),
    layer: Layer::Throughput,
    unit: Unit::REQUEST.per(Unit::SECOND),
    inputs: &[
        Input::real(
            "request_throughput",
            r"X_{\mathrm{req}}",
            Unit::REQUEST.per(Unit::SECOND),
            (0.0, 1e4),
            text("completed requests per second", "每秒完成的请求数"),
        ),
        Input::real(
            "goodput_ratio",
            r"\mathrm{GR}",
            Unit::ONE,
            (0.0, 1.0),
            text("share of the completed requests that meets the limits", "已完成请求中达标的比例"),
        ),
    ],
    formula: Formula::Scalar {
        text: "request_throughput * goodput_ratio",
        eval: |x| computed(goodput_from_ratio(RequestsPerSecond::new(x[0])?, x[1])),
        example: (&[1.0, 0.5], 0.5),
    },
    path: "metrics_core::goodput::goodput_from_ratio",
    source: Source { work: "formula walkthrough", section: "2.2" },
    note: text(
        "Throughput can rise while goodput falls: the ratio falls faster.",
        "吞吐上升而 Goodput 下降并不矛盾：比率下降得更快。",
    ),
    exported: &[],
};

/// SLO attainment: the share of finished requests that are good, failures counted as misses.
///
/// ```text
/// slo_attainment = n_good / (n_completed + n_failed)
/// ```
///
/// `n_good` counts the completed requests that meet every limit, `n_completed` all completed ones,
/// `n_failed` those that failed, were rejected or timed out. Requests cancelled by the user or cut
/// off by the end of the run are in neither.
///
/// # Errors
///
/// [`Error::NotAbove`] if nothing finished, [`Error::Order`] if `n_good > n_completed`.
///
/// # Examples
///
/// ```
/// use metrics_core::goodput::slo_attainment;
///
/// assert_eq!(slo_attainment(25, 104, 16)?, 25.0 / 120.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: SGLang 0.5.23 `sglang/benchmark/goodput.py` (good / all sent); DistServe.
pub fn slo_attainment(n_good: u64, n_completed: u64, n_failed: u64) -> Result<f64> {
    crate::error::difference(("n_completed", n_completed as f64), ("n_good", n_good as f64))?;
    let finished = above("n_completed + n_failed", n_completed as f64 + n_failed as f64, 0.0)?;
    Ok(n_good as f64 / finished)
}

/// The catalog entry of [`slo_attainment`].
#[cfg(feature = "catalog")]
pub const SLO_ATTAINMENT: Metric = Metric {
    id: "slo_attainment",
    symbol: "A",
    name: text("SLO attainment", "SLO 达标率"),
    layer: Layer::Throughput,
    unit: Unit::ONE,
    inputs: &[
        Input::whole(
            "n_good",
            r"\sum_i I_i",
            Unit::REQUEST,
            (0.0, 1e4),
            text("good requests", "达标请求数"),
        ),
        N_COMPLETED,
        N_FAILED,
    ],
    formula: Formula::Scalar {
        text: "n_good / (n_completed + n_failed)",
        eval: |x| {
            computed(slo_attainment(
                whole("n_good", x[0])?,
                whole("n_completed", x[1])?,
                whole("n_failed", x[2])?,
            ))
        },
        example: (&[25.0, 104.0, 16.0], 0.208_333_333_333_333_34),
    },
    path: "metrics_core::goodput::slo_attainment",
    source: Source { work: "SGLang 0.5.23 `sglang/benchmark/goodput.py`; DistServe", section: "" },
    note: text(
        "Failures are misses; requests cut off by the end of the run are outside, and counted.",
        "失败计为未达标；因运行结束被截断的请求不计入，但会单独列出。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const N_COMPLETED: Input = Input::whole(
    "n_completed",
    r"N_{\mathrm{completed}}",
    Unit::REQUEST,
    (0.0, 1e4),
    text("completed requests", "已完成请求数"),
);
#[cfg(feature = "catalog")]
const N_FAILED: Input = Input::whole(
    "n_failed",
    r"N_{\mathrm{failed}}",
    Unit::REQUEST,
    (0.0, 1e4),
    text("failed, rejected and timed-out requests", "失败、被拒与超时的请求数"),
);

/// Goodput from the rate of finished requests and attainment.
///
/// ```text
/// goodput_from_attainment = finished_rate * attainment
/// ```
///
/// `finished_rate` counts completed and failed requests per second; `attainment` has the same
/// base.
///
/// # Errors
///
/// [`Error::TooSmall`] or [`Error::TooLarge`] if `attainment` is outside 0 to 1.
///
/// # Examples
///
/// ```
/// use metrics_core::{goodput::goodput_from_attainment, units::RequestsPerSecond};
///
/// assert_eq!(goodput_from_attainment(RequestsPerSecond::new(20.0)?, 0.25)?.get(), 5.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: the definitions of goodput and attainment put together.
pub fn goodput_from_attainment(
    finished_rate: RequestsPerSecond,
    attainment: f64,
) -> Result<RequestsPerSecond> {
    let share = within("attainment", attainment, 0.0, 1.0)?;
    RequestsPerSecond::new(finished_rate.get() * share)
}

/// The catalog entry of [`goodput_from_attainment`].
#[cfg(feature = "catalog")]
pub const GOODPUT_FROM_ATTAINMENT: Metric = Metric {
    id: "goodput_from_attainment",
    symbol: "G",
    name: text("Goodput from finished rate and attainment", "由结束速率与达标率得到的 Goodput"),
    layer: Layer::Throughput,
    unit: Unit::REQUEST.per(Unit::SECOND),
    inputs: &[
        Input::real(
            "finished_rate",
            r"X_{\mathrm{finished}}",
            Unit::REQUEST.per(Unit::SECOND),
            (0.0, 1e4),
            text("completed and failed requests per second", "每秒完成与失败的请求数"),
        ),
        Input::real("attainment", "A", Unit::ONE, (0.0, 1.0), text("SLO attainment", "SLO 达标率")),
    ],
    formula: Formula::Scalar {
        text: "finished_rate * attainment",
        eval: |x| computed(goodput_from_attainment(RequestsPerSecond::new(x[0])?, x[1])),
        example: (&[20.0, 0.25], 5.0),
    },
    path: "metrics_core::goodput::goodput_from_attainment",
    source: Source { work: "definitions of goodput and attainment", section: "" },
    note: text(
        "The base of the rate and of the share must be the same requests.",
        "速率与比例的分母必须是同一批请求。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &crate::slo::SLO_INDICATOR,
    &GOODPUT,
    &GOODPUT_RATIO,
    &SLO_ATTAINMENT,
    &GOODPUT_FROM_RATIO,
    &GOODPUT_FROM_ATTAINMENT,
];
