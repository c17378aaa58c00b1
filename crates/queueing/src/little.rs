//! Little's law in its three directions: L = λ W.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text};

#[cfg(feature = "catalog")]
use crate::catalog::{PURE, RATE, TIME, shown};
use crate::error::{Result, positive, zero_or_more};

pub use self::{little_l as l, little_lambda as lambda, little_w as w};

#[cfg(feature = "catalog")]
const RATE_IN: Input = Input::real(
    "lambda",
    r"\lambda",
    RATE,
    (0.0, 100.0),
    text("rate of entering jobs", "进入速率"),
);
#[cfg(feature = "catalog")]
const RATE_ABOVE_0: Input = Input::real(
    "lambda",
    r"\lambda",
    RATE,
    (0.01, 100.0),
    text("rate of entering jobs", "进入速率"),
);
#[cfg(feature = "catalog")]
const STAY: Input =
    Input::real("w", "W", TIME, (0.0, 60.0), text("mean time in the system", "平均停留时间"));
#[cfg(feature = "catalog")]
const STAY_ABOVE_0: Input =
    Input::real("w", "W", TIME, (0.001, 60.0), text("mean time in the system", "平均停留时间"));
#[cfg(feature = "catalog")]
const NUMBER: Input =
    Input::real("l", "L", PURE, (0.0, 1000.0), text("mean number in the system", "系统内平均数量"));

/// Little's law for the number: the mean number of jobs in a system.
///
/// ```text
/// little_l = lambda * w
/// ```
///
/// `lambda` is the rate at which jobs enter it and `w` the mean time that they stay, in one unit of
/// time. It holds for any system, also for a part of one: with the wait for `w` it gives the queue,
/// with the time in service the busy servers.
///
/// # Errors
///
/// [`QueueError`](crate::QueueError) unless both are from 0 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::little::l(20.0, 0.5)? - 10.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Little, *A Proof for the Queuing Formula: L = λW*, Operations Research 9(3), 383-387.
pub fn little_l(lambda: f64, w: f64) -> Result<f64> {
    Ok(zero_or_more("lambda", lambda)? * zero_or_more("w", w)?)
}

/// The catalog entry of [`little_l`].
#[cfg(feature = "catalog")]
pub const LITTLE_L: Metric = Metric {
    id: "little_l",
    symbol: "L",
    name: text("Number in the system (Little)", "系统内平均数量（Little 定律）"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[RATE_IN, STAY],
    formula: Formula::Scalar {
        text: "lambda * w",
        eval: |x| shown(PURE, little_l(x[0], x[1])),
        example: (&[20.0, 0.5], 10.0),
    },
    path: "queueing::little::little_l",
    source: Source { work: "Little 1961", section: "Operations Research 9(3), 383-387" },
    note: text(
        "With E2E for W it counts waiting requests too; only the time in service compares with a batch limit.",
        "若 W 取 E2E，结果包含排队请求；只有用服务时间得到的数量才能与批上限比较。",
    ),
    exported: &[],
};

/// Little's law for the rate: the throughput of a system.
///
/// ```text
/// little_lambda = l / w
/// ```
///
/// `l` is the mean number of jobs in it and `w` the mean time that they stay; the result is per the
/// unit of time of `w`.
///
/// # Errors
///
/// [`QueueError`](crate::QueueError) unless `l` is from 0 and `w` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::little::lambda(10.0, 0.5)? - 20.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Little, *A Proof for the Queuing Formula: L = λW*, Operations Research 9(3), 383-387.
pub fn little_lambda(l: f64, w: f64) -> Result<f64> {
    Ok(zero_or_more("l", l)? / positive("w", w)?)
}

/// The catalog entry of [`little_lambda`].
#[cfg(feature = "catalog")]
pub const LITTLE_LAMBDA: Metric = Metric {
    id: "little_lambda",
    symbol: r"\lambda",
    name: text("Throughput (Little)", "吞吐（Little 定律）"),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[NUMBER, STAY_ABOVE_0],
    formula: Formula::Scalar {
        text: "l / w",
        eval: |x| shown(RATE, little_lambda(x[0], x[1])),
        example: (&[10.0, 0.5], 20.0),
    },
    path: "queueing::little::little_lambda",
    source: Source { work: "Little 1961", section: "Operations Research 9(3), 383-387" },
    note: text(
        "A closed-loop client with l users offers no more than this: it slows down with the server.",
        "有 l 个用户的闭环客户端最多提供这个速率：服务端变慢，它也跟着变慢。",
    ),
    exported: &[],
};

/// Little's law for the time: the mean time that jobs stay in a system.
///
/// ```text
/// little_w = l / lambda
/// ```
///
/// `l` is the mean number of jobs in it and `lambda` the rate at which they enter; the result is in
/// the unit of time of `lambda`.
///
/// # Errors
///
/// [`QueueError`](crate::QueueError) unless `l` is from 0 and `lambda` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::little::w(10.0, 20.0)? - 0.5).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Little, *A Proof for the Queuing Formula: L = λW*, Operations Research 9(3), 383-387.
pub fn little_w(l: f64, lambda: f64) -> Result<f64> {
    Ok(zero_or_more("l", l)? / positive("lambda", lambda)?)
}

/// The catalog entry of [`little_w`].
#[cfg(feature = "catalog")]
pub const LITTLE_W: Metric = Metric {
    id: "little_w",
    symbol: "W",
    name: text("Time in the system (Little)", "系统内平均停留时间（Little 定律）"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[NUMBER, RATE_ABOVE_0],
    formula: Formula::Scalar {
        text: "l / lambda",
        eval: |x| shown(TIME, little_w(x[0], x[1])),
        example: (&[10.0, 20.0], 0.5),
    },
    path: "queueing::little::little_w",
    source: Source { work: "Little 1961", section: "Operations Research 9(3), 383-387" },
    note: text(
        "Use the rate of jobs let in: rejected ones do not stay.",
        "速率应取被接纳的任务：被拒绝的任务不会停留。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&LITTLE_L, &LITTLE_LAMBDA, &LITTLE_W];
