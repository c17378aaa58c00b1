//! Inverse problems: the rate that a target needs, and how a percentile splits over parts.

use std::f64::consts::{FRAC_1_SQRT_2, TAU};

#[cfg(feature = "catalog")]
use metrics_core::format::plain;
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{LAMBDA, LAMBDA_ABOVE_0, MU, PURE, RATE, TIME, shown};
use crate::erlang::{erlang_b, erlang_c, stable};
use crate::error::{
    QueueError, Result, not_negative, positive, probability, servers, target, zero_or_more,
};
use crate::inverse::{Inverse, erfcx};
use crate::mmc::Mmc;
use crate::model::WaitDistribution;

/// Most parts of a budget.
const MAX_PARTS: u64 = 1_000_000_000;
/// Newton steps after which a solution is given up; it needs some tens at the worst.
const ITERATIONS: u32 = 200;

#[cfg(feature = "catalog")]
const LIMIT_W: Input = Input::real(
    "w",
    "W",
    TIME,
    (0.1, 10.0),
    text("mean response time to keep", "平均响应时间上限"),
);
#[cfg(feature = "catalog")]
const LIMIT_WQ: Input =
    Input::real("wq", "W_q", TIME, (0.01, 10.0), text("mean wait to keep", "平均等待时间上限"));
#[cfg(feature = "catalog")]
const LIMIT_T: Input = Input::real("t", "t", TIME, (1.0, 10.0), text("time to keep", "时限"));
#[cfg(feature = "catalog")]
const SHARE: Input = Input::real(
    "p",
    "p",
    PURE,
    (0.01, 0.9999),
    text("share that is to keep it, 0.99 for P99", "须满足的比例，P99 为 0.99"),
);
#[cfg(feature = "catalog")]
const TOTAL_P: Input =
    Input::real("p", "p", PURE, (0.0, 1.0), text("percentile of the total", "总体的百分位"));
#[cfg(feature = "catalog")]
const PARTS: Input =
    Input::whole("parts", "n", PURE, (1.0, 20.0), text("number of parts", "部分的个数"));

/// `mu`, or the next number above `lambda` where rounding ate the difference: a rate that no
/// queue can run at would be no answer.
fn above(lambda: f64, mu: f64) -> f64 {
    mu.max(lambda.next_up())
}

/// `lambda`, or the next number below `mu` where rounding ate the difference.
fn below(mu: f64, lambda: f64) -> f64 {
    lambda.min(mu.next_down())
}

/// An arrival rate above 0, without which a target for the wait asks nothing of the server.
fn arriving(lambda: f64) -> Result<f64> {
    if lambda == 0.0 {
        let reason = "lambda must be above 0, got 0: without arrivals nobody waits, at any rate";
        return Err(QueueError::NoSolution { reason: reason.into() });
    }
    positive("lambda", lambda)
}

/// Service rate that an M/M/1 queue needs for a mean response time.
///
/// ```text
/// mm1_service_rate_for_mean_response = lambda + 1 / w
/// ```
///
/// `lambda` is the arrival rate and `w` the mean response time to reach, in one unit of time. The
/// result is the least rate that reaches it.
///
/// # Errors
///
/// [`QueueError`] unless `lambda` is from 0 and `w` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::plan::mm1_service_rate_for_mean_response(4.0, 0.25)? - 8.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_service_rate_for_mean_response(lambda: f64, w: f64) -> Result<f64> {
    let (lambda, w) = (zero_or_more("lambda", lambda)?, positive("w", w)?);
    Ok(above(lambda, lambda + 1.0 / w))
}

/// The catalog entry of [`mm1_service_rate_for_mean_response`].
#[cfg(feature = "catalog")]
pub const MM1_SERVICE_RATE_FOR_MEAN_RESPONSE: Metric = Metric {
    id: "mm1_service_rate_for_mean_response",
    symbol: r"\mu",
    name: text("Service rate for a mean response, M/M/1", "满足平均响应时间所需的服务率，M/M/1"),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[LAMBDA, LIMIT_W],
    formula: Formula::Scalar {
        text: "lambda + 1 / w",
        eval: |x| shown(RATE, mm1_service_rate_for_mean_response(x[0], x[1])),
        example: (&[4.0, 0.25], 8.0),
    },
    path: "queueing::plan::mm1_service_rate_for_mean_response",
    source: Source { work: "inverse of Kleinrock 1975", section: "ch. 3" },
    note: text(
        "The spare rate 1 / W does not shrink with the load: small services pay for it most.",
        "所需的富余速率 1/W 不随负载减小：小规模服务为此付出的比例最高。",
    ),
    exported: &[],
};

/// Service rate that an M/M/1 queue needs for a mean wait.
///
/// ```text
/// mm1_service_rate_for_mean_wait = (lambda + sqrt(lambda^2 + 4 * lambda / wq)) / 2
/// ```
///
/// `lambda` is the arrival rate and `wq` the mean wait to reach, in one unit of time. The result is
/// the least rate that reaches it.
///
/// # Errors
///
/// [`QueueError::NoSolution`] if `lambda` is 0, since then nobody waits at any rate; other
/// [`QueueError`] unless both are from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// let mu = queueing::plan::mm1_service_rate_for_mean_wait(4.0, 1.0 / 15.0)?;
/// assert!((mu - 10.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_service_rate_for_mean_wait(lambda: f64, wq: f64) -> Result<f64> {
    let (lambda, wq) = (arriving(lambda)?, positive("wq", wq)?);
    Ok(above(lambda, 0.5 * (lambda + (lambda * lambda + 4.0 * lambda / wq).sqrt())))
}

/// The catalog entry of [`mm1_service_rate_for_mean_wait`].
#[cfg(feature = "catalog")]
pub const MM1_SERVICE_RATE_FOR_MEAN_WAIT: Metric = Metric {
    id: "mm1_service_rate_for_mean_wait",
    symbol: r"\mu",
    name: text("Service rate for a mean wait, M/M/1", "满足平均等待时间所需的服务率，M/M/1"),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[LAMBDA_ABOVE_0, LIMIT_WQ],
    formula: Formula::Scalar {
        text: "(lambda + sqrt(lambda^2 + 4 * lambda / wq)) / 2",
        eval: |x| shown(RATE, mm1_service_rate_for_mean_wait(x[0], x[1])),
        example: (&[4.0, 1.0 / 15.0], 10.0),
    },
    path: "queueing::plan::mm1_service_rate_for_mean_wait",
    source: Source { work: "inverse of Kleinrock 1975", section: "ch. 3" },
    note: text(
        "A bound on the wait alone says nothing about the service time in the response.",
        "只限制等待时间，并不限制响应中的服务时间。",
    ),
    exported: &[],
};

/// Service rate that an M/M/1 queue needs for a percentile of the response time.
///
/// ```text
/// mm1_service_rate_for_response_quantile = lambda - ln(1 - p) / t
/// ```
///
/// `lambda` is the arrival rate; a share `p` of the responses, 0.99 for P99, is to take at most
/// `t`, in one unit of time. The result is the least rate that reaches it.
///
/// # Errors
///
/// [`QueueError`] unless `lambda` is from 0 and `t` from 1e-50 to 1e50, and `p` above 0 and below
/// 1.
///
/// # Examples
///
/// ```
/// let mu = queueing::plan::mm1_service_rate_for_response_quantile(4.0, 0.99, 0.5)?;
/// assert!((mu - (4.0 - 0.01_f64.ln() / 0.5)).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 5.
pub fn mm1_service_rate_for_response_quantile(lambda: f64, p: f64, t: f64) -> Result<f64> {
    let (lambda, p, t) = (zero_or_more("lambda", lambda)?, target("p", p)?, positive("t", t)?);
    Ok(above(lambda, lambda - (-p).ln_1p() / t))
}

/// The catalog entry of [`mm1_service_rate_for_response_quantile`].
#[cfg(feature = "catalog")]
pub const MM1_SERVICE_RATE_FOR_RESPONSE_QUANTILE: Metric = Metric {
    id: "mm1_service_rate_for_response_quantile",
    symbol: r"\mu",
    name: text(
        "Service rate for a response percentile, M/M/1",
        "满足响应时间百分位所需的服务率，M/M/1",
    ),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[LAMBDA, SHARE, LIMIT_T],
    formula: Formula::Scalar {
        text: "lambda - ln(1 - p) / t",
        eval: |x| shown(RATE, mm1_service_rate_for_response_quantile(x[0], x[1], x[2])),
        example: (&[4.0, 0.99, 0.5], 13.210_340_371_976_184),
    },
    path: "queueing::plan::mm1_service_rate_for_response_quantile",
    source: Source { work: "inverse of Kleinrock 1975", section: "ch. 5" },
    note: text(
        "P99 needs 4.6 times the spare rate that the same mean needs.",
        "达到同样时限，P99 所需的富余速率是均值的 4.6 倍。",
    ),
    exported: &[],
};

/// Largest arrival rate at which an M/M/1 queue keeps a mean response time.
///
/// ```text
/// mm1_max_rate_for_mean_response = mu - 1 / w
/// ```
///
/// `mu` is the service rate and `w` the largest mean response time, in one unit of time.
///
/// # Errors
///
/// [`QueueError::NoSolution`] if `w` is shorter than the service time `1 / mu`; other
/// [`QueueError`] unless both are from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::plan::mm1_max_rate_for_mean_response(8.0, 0.25)? - 4.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_max_rate_for_mean_response(mu: f64, w: f64) -> Result<f64> {
    let (mu, w) = (positive("mu", mu)?, positive("w", w)?);
    let lambda = mu - 1.0 / w;
    if lambda < 0.0 {
        let (shortest, w) = (plain(1.0 / mu), plain(w));
        let reason = format!("w must be at least the service time 1 / mu = {shortest}, got {w}");
        return Err(QueueError::NoSolution { reason });
    }
    Ok(below(mu, lambda))
}

/// The catalog entry of [`mm1_max_rate_for_mean_response`].
#[cfg(feature = "catalog")]
pub const MM1_MAX_RATE_FOR_MEAN_RESPONSE: Metric = Metric {
    id: "mm1_max_rate_for_mean_response",
    symbol: r"\lambda",
    name: text(
        "Largest arrival rate for a mean response, M/M/1",
        "满足平均响应时间的最大到达率，M/M/1",
    ),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[MU, LIMIT_W],
    formula: Formula::Scalar {
        text: "mu - 1 / w",
        eval: |x| shown(RATE, mm1_max_rate_for_mean_response(x[0], x[1])),
        example: (&[8.0, 0.25], 4.0),
    },
    path: "queueing::plan::mm1_max_rate_for_mean_response",
    source: Source { work: "inverse of Kleinrock 1975", section: "ch. 3" },
    note: text(
        "For Poisson arrivals; bursts allow less.",
        "针对泊松到达；突发到达时允许的速率更低。",
    ),
    exported: &[],
};

/// Largest arrival rate at which an M/M/1 queue keeps a mean wait.
///
/// ```text
/// mm1_max_rate_for_mean_wait = mu * mu * wq / (1 + mu * wq)
/// ```
///
/// `mu` is the service rate and `wq` the largest mean wait, in one unit of time.
///
/// # Errors
///
/// [`QueueError`] unless both are from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::plan::mm1_max_rate_for_mean_wait(10.0, 1.0 / 15.0)? - 4.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 3.
pub fn mm1_max_rate_for_mean_wait(mu: f64, wq: f64) -> Result<f64> {
    let (mu, wq) = (positive("mu", mu)?, positive("wq", wq)?);
    let waits = mu * wq;
    Ok(below(mu, mu * (waits / (1.0 + waits))))
}

/// The catalog entry of [`mm1_max_rate_for_mean_wait`].
#[cfg(feature = "catalog")]
pub const MM1_MAX_RATE_FOR_MEAN_WAIT: Metric = Metric {
    id: "mm1_max_rate_for_mean_wait",
    symbol: r"\lambda",
    name: text(
        "Largest arrival rate for a mean wait, M/M/1",
        "满足平均等待时间的最大到达率，M/M/1",
    ),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[MU, LIMIT_WQ],
    formula: Formula::Scalar {
        text: "mu * mu * wq / (1 + mu * wq)",
        eval: |x| shown(RATE, mm1_max_rate_for_mean_wait(x[0], x[1])),
        example: (&[10.0, 1.0 / 15.0], 4.0),
    },
    path: "queueing::plan::mm1_max_rate_for_mean_wait",
    source: Source { work: "inverse of Kleinrock 1975", section: "ch. 3" },
    note: text(
        "A wait of one service time is reached at half load already.",
        "负载到一半时，平均等待就已等于一个服务时间。",
    ),
    exported: &[],
};

/// Largest arrival rate at which an M/M/1 queue keeps a percentile of the response time.
///
/// ```text
/// mm1_max_rate_for_response_quantile = mu + ln(1 - p) / t
/// ```
///
/// `mu` is the service rate; a share `p` of the responses, 0.99 for P99, is to take at most `t`, in
/// one unit of time.
///
/// # Errors
///
/// [`QueueError::NoSolution`] if the service alone takes longer too often; other [`QueueError`]
/// unless `mu` and `t` are from 1e-50 to 1e50, and `p` above 0 and below 1.
///
/// # Examples
///
/// ```
/// let most = queueing::plan::mm1_max_rate_for_response_quantile(10.0, 0.99, 1.0)?;
/// assert!((most - (10.0 + 0.01_f64.ln())).abs() < 1e-12);
/// assert!(queueing::plan::mm1_max_rate_for_response_quantile(10.0, 0.99, 0.4).is_err());
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 5.
pub fn mm1_max_rate_for_response_quantile(mu: f64, p: f64, t: f64) -> Result<f64> {
    let (mu, p, t) = (positive("mu", mu)?, target("p", p)?, positive("t", t)?);
    let lambda = mu + (-p).ln_1p() / t;
    if lambda < 0.0 {
        let (best, asked, t) = (plain(-(-mu * t).exp_m1()), plain(p), plain(t));
        let reason = format!(
            "p must be at most {best}, the share that a server without a queue reaches within t = {t}, got {asked}"
        );
        return Err(QueueError::NoSolution { reason });
    }
    Ok(below(mu, lambda))
}

/// The catalog entry of [`mm1_max_rate_for_response_quantile`].
#[cfg(feature = "catalog")]
pub const MM1_MAX_RATE_FOR_RESPONSE_QUANTILE: Metric = Metric {
    id: "mm1_max_rate_for_response_quantile",
    symbol: r"\lambda",
    name: text(
        "Largest arrival rate for a response percentile, M/M/1",
        "满足响应时间百分位的最大到达率，M/M/1",
    ),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[MU, SHARE, LIMIT_T],
    formula: Formula::Scalar {
        text: "mu + ln(1 - p) / t",
        eval: |x| shown(RATE, mm1_max_rate_for_response_quantile(x[0], x[1], x[2])),
        example: (&[10.0, 0.99, 1.0], 5.394_829_814_011_908),
    },
    path: "queueing::plan::mm1_max_rate_for_response_quantile",
    source: Source { work: "inverse of Kleinrock 1975", section: "ch. 5" },
    note: text("It also bounds ρ: divide by μ.", "除以 μ 即得到允许的最大 ρ。"),
    exported: &[],
};

/// Percentile that each of several parts has to keep so that their sum keeps one, by the union
/// bound.
///
/// ```text
/// quantile_per_part = 1 - (1 - p) / parts
/// ```
///
/// `p` is the percentile of the total as a probability, and `parts` the number of parts that share
/// its failures alike: a total of 0.99 from four parts needs each at 0.9975. The sum of the parts'
/// limits then holds for the total whatever their dependence. Limits at P99 of each part promise
/// only P96 of four.
///
/// # Errors
///
/// [`QueueError`] unless `p` is from 0 to 1 and `parts` from 1 to 10^9.
///
/// # Examples
///
/// ```
/// assert!((queueing::plan::quantile_per_part(0.99, 4)? - 0.9975).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Boole's inequality; metric dictionary, E2E budget.
pub fn quantile_per_part(p: f64, parts: u64) -> Result<f64> {
    let p = probability("p", p)?;
    if parts == 0 || MAX_PARTS < parts {
        let expected = "a whole number from 1 to 1000000000";
        return Err(QueueError::OutOfRange { name: "parts", value: parts as f64, expected });
    }
    Ok(1.0 - (1.0 - p) / parts as f64)
}

/// The catalog entry of [`quantile_per_part`].
#[cfg(feature = "catalog")]
pub const QUANTILE_PER_PART: Metric = Metric {
    id: "quantile_per_part",
    symbol: "p_i",
    name: text("Percentile of each part of a budget", "预算各部分所需的百分位"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[TOTAL_P, PARTS],
    formula: Formula::Scalar {
        text: "1 - (1 - p) / parts",
        eval: |x| shown(PURE, quantile_per_part(x[0], whole("parts", x[1])?)),
        example: (&[0.99, 4.0], 0.9975),
    },
    path: "queueing::plan::quantile_per_part",
    source: Source { work: "Boole's inequality; metric dictionary", section: "E2E budget" },
    note: text(
        "A bound, not an equality: percentiles do not add.",
        "这是上界而非等式：百分位数不能相加。",
    ),
    exported: &[],
};

/// Service rate that an M/M/1 queue needs for a percentile of the wait.
///
/// `lambda` is the arrival rate; a share `p` of the waits, 0.99 for P99, is to take at most `t`, in
/// one unit of time. The result is the least rate μ that reaches it: the solution of
/// λ / μ · e^(−(μ − λ) t) = 1 − p, which no closed form without Lambert's W gives, found by
/// Newton's method.
///
/// # Errors
///
/// [`QueueError::NoSolution`] if `lambda` is 0, since then nobody waits at any rate; other
/// [`QueueError`] unless `lambda` and `t` are from 1e-50 to 1e50, and `p` above 0 and below 1.
///
/// # Examples
///
/// ```
/// use queueing::{Mm1, WaitDistribution, plan::mm1_service_rate_for_wait_quantile};
///
/// let mu = mm1_service_rate_for_wait_quantile(4.0, 0.99, 0.5)?;
/// assert!((Mm1::new(4.0, mu)?.wq_quantile(0.99)? - 0.5).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 5.
pub fn mm1_service_rate_for_wait_quantile(lambda: f64, p: f64, t: f64) -> Result<f64> {
    let (lambda, p, t) = (arriving(lambda)?, target("p", p)?, positive("t", t)?);
    let (load, goal) = (lambda * t, -(-p).ln_1p());
    // With d = (μ − λ) t: d + ln(1 + d / λt) = −ln(1 − p). Concave and rising, so that Newton's
    // method climbs to the root from 0 without passing it.
    let spare = rising("mu", 0.0, |d| d + (d / load).ln_1p() - goal, |d| 1.0 + 1.0 / (load + d))?;
    Ok(above(lambda, lambda + spare / t))
}

/// Largest arrival rate at which an M/M/1 queue keeps a percentile of the wait.
///
/// `mu` is the service rate; a share `p` of the waits, 0.99 for P99, is to take at most `t`, in one
/// unit of time. The result is the solution λ of λ / μ · e^(−(μ − λ) t) = 1 − p, found by Newton's
/// method.
///
/// # Errors
///
/// [`QueueError`] unless `mu` and `t` are from 1e-50 to 1e50, and `p` above 0 and below 1.
///
/// # Examples
///
/// ```
/// use queueing::{Mm1, WaitDistribution, plan::mm1_max_rate_for_wait_quantile};
///
/// let lambda = mm1_max_rate_for_wait_quantile(10.0, 0.99, 0.5)?;
/// assert!((Mm1::new(lambda, 10.0)?.wq_quantile(0.99)? - 0.5).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 5.
pub fn mm1_max_rate_for_wait_quantile(mu: f64, p: f64, t: f64) -> Result<f64> {
    let (mu, p, t) = (positive("mu", mu)?, target("p", p)?, positive("t", t)?);
    let (full, goal) = (mu * t, -(-p).ln_1p());
    // With e = (μ − λ) t: e − ln(1 − e / μt) = −ln(1 − p). Convex and rising, so that Newton's
    // method comes down to the root from either bound above it.
    let spare = rising(
        "lambda",
        goal.min(full * p),
        |e| e - (-e / full).ln_1p() - goal,
        |e| 1.0 + 1.0 / (full - e),
    )?;
    // At a small λ the difference has no digits left; there, e^(e) (1 − p) is the same share.
    let lambda = mu - spare / t;
    Ok(below(mu, if lambda < 0.5 * mu { mu * (1.0 - p) * spare.exp() } else { lambda }))
}

/// The root of a rising `f` with slope `slope`, from a start on the side where Newton's method
/// cannot overshoot.
fn rising(
    name: &'static str,
    start: f64,
    f: impl Fn(f64) -> f64,
    slope: impl Fn(f64) -> f64,
) -> Result<f64> {
    let (mut x, mut residual) = (start, 1.0);
    for _ in 0..ITERATIONS {
        let next = x - f(x) / slope(x);
        let step = (next - x).abs();
        // Newton's method squares the error: after a step this small nothing is left of it.
        if step <= (1e-10 * next.abs()).max(f64::MIN_POSITIVE) {
            return Ok(next);
        }
        (x, residual) = (next, step / next.abs());
    }
    Err(QueueError::NotConverged { name, iterations: ITERATIONS, residual })
}

/// Percentile that the sum of several parts keeps if each keeps its own, by the union bound.
///
/// `parts` are the parts' percentiles as probabilities; the sum of their limits is kept with at
/// least the probability 1 − Σ (1 − pᵢ), or 0 where that is negative: four parts at P99 promise
/// P96.
///
/// # Errors
///
/// [`QueueError`] if a part is not from 0 to 1, or there is none.
///
/// # Examples
///
/// ```
/// let total = queueing::plan::quantile_of_sum(&[0.9975; 4])?;
/// assert!((total - 0.99).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Boole's inequality; metric dictionary, E2E budget.
pub fn quantile_of_sum(parts: &[f64]) -> Result<f64> {
    if parts.is_empty() {
        let reason = "parts must hold at least one percentile, got none";
        return Err(QueueError::NoSolution { reason: reason.into() });
    }
    let mut failures = 0.0;
    for &p in parts {
        failures += 1.0 - probability("parts", p)?;
    }
    Ok((1.0 - failures).max(0.0))
}

/// What a queue of `c` alike servers is to keep.
///
/// A value that equals its limit keeps it, and so does one that is above by less than four units in
/// the last place, since the value itself is rounded: C(2, 1/2) is 1/10, and two servers keep
/// `PWait(0.1)`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Target {
    /// At most this share of the jobs waits (M/M/c).
    PWait(f64),
    /// The mean wait is at most this (M/M/c).
    MeanWait(f64),
    /// A share `p` of the waits, 0.99 for P99, takes at most `t` (M/M/c).
    WaitQuantile {
        /// The share, above 0 and below 1.
        p: f64,
        /// The limit.
        t: f64,
    },
    /// A share `p` of the response times takes at most `t` (M/M/c).
    ResponseQuantile {
        /// The share, above 0 and below 1.
        p: f64,
        /// The limit.
        t: f64,
    },
    /// At most this share of the jobs is turned away, with no room to wait (M/M/c/c).
    Blocking(f64),
}

impl Target {
    /// The target if its numbers have a meaning.
    fn checked(&self) -> Result<Self> {
        match *self {
            Self::PWait(p) => target("p", p).map(Self::PWait),
            Self::MeanWait(t) => positive("t", t).map(Self::MeanWait),
            Self::WaitQuantile { p, t } => {
                Ok(Self::WaitQuantile { p: target("p", p)?, t: zero_or_more("t", t)? })
            }
            Self::ResponseQuantile { p, t } => {
                Ok(Self::ResponseQuantile { p: target("p", p)?, t: positive("t", t)? })
            }
            Self::Blocking(p) => target("p", p).map(Self::Blocking),
        }
    }

    fn may_wait(&self) -> bool {
        !matches!(self, Self::Blocking(_))
    }

    /// ln(value / limit) at `c` servers: at most 0 where the target is kept.
    fn excess(&self, lambda: f64, mu: f64, c: u64) -> f64 {
        let a = lambda / mu;
        let load =
            |limit: f64, value: Result<f64>| value.map_or(f64::INFINITY, |v| (v / limit).ln());
        let excess = match *self {
            Self::PWait(p) => load(p, erlang_c(c, a)),
            Self::Blocking(p) => load(p, erlang_b(c, a)),
            Self::MeanWait(t) => {
                load(t * (c as f64).mul_add(mu, -lambda), wait_probability(lambda, mu, c))
            }
            Self::WaitQuantile { p, t } => {
                // ln of C e^(−(c μ − λ) t) / (1 − p).
                let spare = (c as f64).mul_add(mu, -lambda);
                load(1.0 - p, wait_probability(lambda, mu, c)) - spare * t
            }
            Self::ResponseQuantile { p, t } => {
                load(1.0 - p, Mmc::new(lambda, mu, c).and_then(|q| q.w_sf(t)))
            }
        };
        if excess <= 4.0 * f64::EPSILON { excess.min(0.0) } else { excess }
    }
}

/// Erlang C, with c μ − λ rounded once.
fn wait_probability(lambda: f64, mu: f64, c: u64) -> Result<f64> {
    let load = stable(lambda, mu, c)?;
    if load.lambda == 0.0 {
        return Ok(0.0);
    }
    Ok(Inverse::new(load.c, load.lambda / load.mu).wait(load.rho, load.idle).0)
}

/// Least number of servers that keeps a target.
///
/// `lambda` is the arrival rate and `mu` the service rate of one server, per the same unit of time.
/// The search runs on the exact formulas, not on an approximation, and ends at a number that keeps
/// the target while one less does not. See [`Target`] for ties.
///
/// # Errors
///
/// [`QueueError::NoSolution`] if no number up to 10^9 does; other [`QueueError`] unless `lambda` is
/// from 0 and `mu` from 1e-50 to 1e50 and the target's numbers are in their ranges.
///
/// # Examples
///
/// ```
/// use queueing::plan::{Target, min_servers};
///
/// // 10 erlangs of 3 min, 80 % within 20 s: the call centre's classic.
/// let target = Target::WaitQuantile { p: 0.8, t: 20.0 };
/// assert_eq!(min_servers(100.0 / 1800.0, 1.0 / 180.0, &target)?, 14);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*,
/// 4th ed. 2008, ch. 2.
pub fn min_servers(lambda: f64, mu: f64, target: &Target) -> Result<u64> {
    let (lambda, mu) = (zero_or_more("lambda", lambda)?, positive("mu", mu)?);
    let target = target.checked()?;
    if let Target::ResponseQuantile { p, t } = target {
        service_within(mu, p, t)?;
    }
    let a = lambda / mu;
    let most = crate::error::MAX_SERVERS;
    let none = || QueueError::NoSolution {
        reason: format!(
            "c must be at most {most} servers, which do not keep the target at {a} erlangs"
        ),
    };
    if most as f64 <= a && target.may_wait() {
        return Err(none());
    }
    // Fewer than this cannot keep up, or turn away too many even if always busy.
    let mut low = match target {
        Target::Blocking(p) => whole_below((a * (1.0 - p)).min(most as f64)).saturating_sub(1),
        _ => whole_below(a),
    };
    let excess = |c: u64| target.excess(lambda, mu, c);
    let mut at_low = if low == 0 { f64::INFINITY } else { excess(low) };
    let mut step = 1 + whole_below(a.min(1e18).sqrt());
    let mut high = low + 1;
    let mut at_high = excess(high);
    while 0.0 < at_high {
        if high == most {
            return Err(none());
        }
        (low, at_low) = (high, at_high);
        high = (high + step).min(most);
        at_high = excess(high);
        step *= 2;
    }
    let mut halve = false;
    while 1 < high - low {
        // ln(value) bends down: the chord's root is short of the truth, and one more probe beyond
        // it mostly closes the bracket.
        let width = (high - low) as f64;
        let chord = width * at_low / (at_low - at_high);
        let middle = if halve || !chord.is_finite() {
            low + (high - low) / 2
        } else {
            (low + whole_below(chord) + 1).clamp(low + 1, high - 1)
        };
        let at = excess(middle);
        let before = high - low;
        if 0.0 < at {
            (low, at_low) = (middle, at);
        } else {
            (high, at_high) = (middle, at);
        }
        halve = before < 2 * (high - low);
    }
    Ok(high)
}

/// The whole part of a number from 0 to 10^18.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "callers pass numbers from 0 to 10^18"
)]
fn whole_below(x: f64) -> u64 {
    x as u64
}

/// Refuses a response percentile that the service alone already misses.
fn service_within(mu: f64, p: f64, t: f64) -> Result<()> {
    let best = -(-mu * t).exp_m1();
    if best < p {
        let reason = format!(
            "p must be at most {best}, the share that a server without a queue reaches within t = {t}, got {p}"
        );
        return Err(QueueError::NoSolution { reason });
    }
    Ok(())
}

/// Largest arrival rate at which `c` servers keep a target.
///
/// `mu` is the service rate of one server; the result is per the same unit of time. It keeps the
/// target, and it is within a few units in the last place of the largest that does.
///
/// # Errors
///
/// [`QueueError::NoSolution`] if even a single job would miss the target; other [`QueueError`] unless
/// `mu` is from 1e-50 to 1e50, `c` from 1 to 10^9 and the target's numbers in their ranges.
///
/// # Examples
///
/// ```
/// use queueing::plan::{Target, max_rate};
///
/// // How much traffic 15 lines carry with 1 % lost.
/// let erlangs = max_rate(1.0, 15, &Target::Blocking(0.01))?;
/// assert!((erlangs - 8.108).abs() < 1e-3);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: inverse of Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*,
/// 4th ed. 2008, ch. 2.
pub fn max_rate(mu: f64, c: u64, target: &Target) -> Result<f64> {
    let (mu, servers) = (positive("mu", mu)?, servers("c", c)?);
    let target = target.checked()?;
    if let Target::ResponseQuantile { p, t } = target {
        service_within(mu, p, t)?;
    }
    let excess = |lambda: f64| target.excess(lambda, mu, c);
    let (mut low, mut high) = (0.0, servers * mu);
    if !target.may_wait() {
        while excess(high) <= 0.0 {
            (low, high) = (high, 2.0 * high);
            if crate::error::LARGEST < high {
                return Ok(low);
            }
        }
    }
    let (mut at_low, mut at_high) = (f64::NEG_INFINITY, f64::INFINITY);
    for step in 0..2 * ITERATIONS {
        let width = high - low;
        if width <= 2.0 * f64::EPSILON * high {
            break;
        }
        let chord = low + width * (at_low / (at_low - at_high));
        let middle = if step % 3 != 2 && low < chord && chord < high {
            chord
        } else if low == 0.0 && 1e-300 < high {
            high * 2.0_f64.powi(-(8 << (step / 8).min(4)))
        } else if low < 1e-3 * high {
            low.sqrt() * high.sqrt()
        } else {
            0.5 * low + 0.5 * high
        };
        if middle <= low || high <= middle {
            break;
        }
        let at = excess(middle);
        if at <= 0.0 {
            (low, at_low) = (middle, at);
        } else {
            (high, at_high) = (middle, at);
        }
    }
    Ok(low)
}

/// Servers that a target needs when all share one queue, and when they are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// With one queue for all.
    pub pooled: u64,
    /// With a queue for each part, all parts together.
    pub split: u64,
}

/// Servers that a target needs in one pool, against `parts` parts of equal traffic with a queue each.
///
/// `lambda` is the arrival rate of all, `mu` the service rate of one server. A job is sent to a part
/// at random, without regard to the queues: a router that looks at them does better than `split`, and
/// never better than `pooled`.
///
/// # Errors
///
/// As [`min_servers`]; [`QueueError`] unless `parts` is from 1 to 10^9.
///
/// # Examples
///
/// ```
/// use queueing::plan::{Target, pooled_against_split};
///
/// let servers = pooled_against_split(40.0, 1.0, 4, &Target::PWait(0.1))?;
/// assert_eq!((servers.pooled, servers.split), (50, 64));
/// # Ok::<(), queueing::QueueError>(())
/// ```
pub fn pooled_against_split(lambda: f64, mu: f64, parts: u64, target: &Target) -> Result<Pooling> {
    let n = servers("parts", parts)?;
    let pooled = min_servers(lambda, mu, target)?;
    let each = min_servers(lambda / n, mu, target)?;
    Ok(Pooling { pooled, split: each * parts })
}

/// Replicas of `c` slots each that a target needs: with one queue for all slots, and with a queue for
/// each replica.
///
/// `lambda` is the arrival rate of all, `mu` the service rate of one slot. Split replicas get equal
/// shares of the jobs at random.
///
/// # Errors
///
/// As [`min_servers`] and [`max_rate`]; [`QueueError::NoSolution`] if more than 10^9 replicas would
/// be needed.
///
/// # Examples
///
/// ```
/// use queueing::plan::{Target, min_replicas};
///
/// let replicas = min_replicas(40.0, 1.0, 8, &Target::PWait(0.1))?;
/// assert_eq!((replicas.pooled, replicas.split), (7, 9));
/// # Ok::<(), queueing::QueueError>(())
/// ```
pub fn min_replicas(lambda: f64, mu: f64, c: u64, target: &Target) -> Result<Pooling> {
    let slots = servers("c", c)?;
    let lambda = zero_or_more("lambda", lambda)?;
    let pooled = min_servers(lambda, mu, target)?.div_ceil(c);
    let each = max_rate(mu, c, target)?;
    let needed = (lambda / each).ceil();
    // Infinite where a replica can take nothing at all.
    if 0.0 < lambda && (crate::error::MAX_SERVERS as f64) < needed {
        let reason = format!(
            "a replica of {slots} slots must take more than {each}, got an arrival rate of {lambda}"
        );
        return Err(QueueError::NoSolution { reason });
    }
    // The largest rate is rounded down: one replica less may still do.
    let mut split = if 0.0 < lambda { whole_below(needed).max(1) } else { 1 };
    let keeps = |n: u64| target.excess(lambda / n as f64, mu, c) <= 0.0;
    while 1 < split && keeps(split - 1) {
        split -= 1;
    }
    while !keeps(split) && split < crate::error::MAX_SERVERS {
        split += 1;
    }
    Ok(Pooling { pooled, split })
}

/// Halfin and Whitt's limit of Erlang C for many servers at c = a + β √a.
///
/// `beta` is the number of spare servers in units of √a. It is the probability of waiting in the limit;
/// at 100 erlangs it is within 0.01 of Erlang C.
///
/// # Errors
///
/// [`QueueError`] if `beta` is negative or not finite.
///
/// # Examples
///
/// ```
/// assert!((queueing::plan::halfin_whitt(1.0)? - 0.223361).abs() < 1e-6);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Halfin and Whitt, *Heavy-Traffic Limits for Queues with Many Exponential Servers*,
/// Operations Research 29, 1981.
pub fn halfin_whitt(beta: f64) -> Result<f64> {
    let beta = not_negative("beta", beta)?;
    Ok(1.0 / (1.0 + beta * normal_ratio(beta)))
}

/// Φ(β) / φ(β), the normal distribution over its density, for β from 0 on.
fn normal_ratio(beta: f64) -> f64 {
    TAU.sqrt() * ((0.5 * beta * beta).exp() - 0.5 * erfcx(beta * FRAC_1_SQRT_2))
}

/// The β of [`halfin_whitt`] at which the probability of waiting is `p`.
///
/// # Errors
///
/// [`QueueError`] unless `p` is above 0 and below 1.
///
/// # Examples
///
/// ```
/// assert!((queueing::plan::halfin_whitt_beta(0.5)? - 0.506054).abs() < 1e-6);
/// # Ok::<(), queueing::QueueError>(())
/// ```
pub fn halfin_whitt_beta(p: f64) -> Result<f64> {
    let p = target("p", p)?;
    let goal = (1.0 - p).ln() - p.ln();
    // ln(β Φ / φ) rises and is steeper than the goal needs near 0: Newton's method in ln β.
    let mut beta = if p < 0.1 { (-2.0 * p.ln()).sqrt() } else { (1.0 - p).min(0.9) };
    for _ in 0..ITERATIONS {
        let ratio = normal_ratio(beta);
        let miss = (beta * ratio).ln() - goal;
        // d ln(β r) / d ln β = 1 + β r' / r, where r' = 1 + β r.
        let step = miss / (1.0 + beta * (1.0 + beta * ratio) / ratio);
        let next = beta * (-step).exp();
        if (next - beta).abs() <= 1e-10 * beta {
            return Ok(next);
        }
        beta = next;
    }
    Err(QueueError::NotConverged { name: "beta", iterations: ITERATIONS, residual: 1.0 })
}

/// Servers by the square-root rule: ⌈a + β √a⌉, with the β of Halfin and Whitt.
///
/// `a` is the offered load in erlangs and `p` the probability of waiting to keep. An approximation:
/// against [`min_servers`] it is one server short where loads are small, and rarely off by more.
///
/// # Errors
///
/// [`QueueError`] unless `a` is from 0 to 10^9 and `p` above 0 and below 1.
///
/// # Examples
///
/// ```
/// assert_eq!(queueing::plan::square_root_staffing(100.0, 0.05)?, 118); // 119 are needed
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Halfin and Whitt 1981.
pub fn square_root_staffing(a: f64, p: f64) -> Result<u64> {
    let a = not_negative("a", a)?;
    if (crate::error::MAX_SERVERS as f64) < a {
        return Err(QueueError::OutOfRange {
            name: "a",
            value: a,
            expected: "from 0 to 1000000000",
        });
    }
    let beta = halfin_whitt_beta(p)?;
    Ok(whole_below((a + beta * a.sqrt()).ceil()).max(1))
}

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &MM1_SERVICE_RATE_FOR_MEAN_RESPONSE,
    &MM1_SERVICE_RATE_FOR_MEAN_WAIT,
    &MM1_SERVICE_RATE_FOR_RESPONSE_QUANTILE,
    &MM1_MAX_RATE_FOR_MEAN_RESPONSE,
    &MM1_MAX_RATE_FOR_MEAN_WAIT,
    &MM1_MAX_RATE_FOR_RESPONSE_QUANTILE,
    &QUANTILE_PER_PART,
];
