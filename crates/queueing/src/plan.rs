//! Inverse problems: the rate that a target needs, and how a percentile splits over parts.

#[cfg(feature = "catalog")]
use metrics_core::format::plain;
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{LAMBDA, LAMBDA_ABOVE_0, MU, PURE, RATE, TIME, shown};
use crate::error::{QueueError, Result, positive, probability, target, zero_or_more};

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
