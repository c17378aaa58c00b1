//! Erlang B and C, and the offered load that they take.
//!
//! Everything comes from `I = 1 / B`, which is computed in constant time for any number of servers,
//! whole or real, and has an exponent of its own where it passes 10^308 (where public libraries
//! turn into NaN or 0). Erlang C comes from `1 / (ρ + ((c − a) / c) · I)`, since the textbook
//! quotients cancel near ρ = 1.
//!
//! statrs 0.19 and scipy 1.17 were measured for this: through the incomplete gamma function Erlang B
//! is off by up to 1.8e-9 and 1.1e-9, and no number where its terms underflow. Here it is off by less
//! than 1e-14 over the same rows; `tests/statrs.rs` repeats the measurement, and fails when statrs
//! becomes good enough.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{C, LAMBDA, MU, PURE, shown};
use crate::error::{QueueError, Result, not_negative, positive, servers, zero_or_more};
use crate::inverse::Inverse;

/// Offered load: the mean number of servers that the arrivals would keep busy.
///
/// ```text
/// offered_load = lambda / mu
/// ```
///
/// `lambda` is the arrival rate and `mu` the service rate of one server, both per the same unit of
/// time. In erlangs; it may exceed the number of servers, which then cannot keep up.
///
/// # Errors
///
/// [`QueueError`] unless `lambda` is from 0 and `mu` from 1e-50 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::offered_load(8.0, 5.0)? - 1.6).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008, ch. 1.
pub fn offered_load(lambda: f64, mu: f64) -> Result<f64> {
    Ok(zero_or_more("lambda", lambda)? / positive("mu", mu)?)
}

/// The catalog entry of [`offered_load`].
#[cfg(feature = "catalog")]
pub const OFFERED_LOAD: Metric = Metric {
    id: "offered_load",
    symbol: "a",
    name: text("Offered load", "提供负载"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU],
    formula: Formula::Scalar {
        text: "lambda / mu",
        eval: |x| shown(PURE, offered_load(x[0], x[1])),
        example: (&[8.0, 5.0], 1.6),
    },
    path: "queueing::erlang::offered_load",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 1" },
    note: text(
        "It is a number of busy servers, not a share: divide by c for the utilization.",
        "它是忙碌服务台的个数而不是比例：除以 c 才是利用率。",
    ),
    exported: &[],
};

/// Utilization: the mean share of `c` servers that is busy.
///
/// ```text
/// utilization = lambda / (c * mu)
/// ```
///
/// `lambda` is the arrival rate, `mu` the service rate of one server, both per the same unit of
/// time, and `c` the number of servers.
///
/// # Errors
///
/// [`QueueError::Unstable`] if `c * mu <= lambda`, since no server is busy more than always; other
/// [`QueueError`] unless `lambda` is from 0 and `mu` from 1e-50 to 1e50 and `c` from 1 to 10^9.
///
/// # Examples
///
/// ```
/// assert!((queueing::utilization(4.0, 10.0, 1)? - 0.4).abs() < 1e-15);
/// assert!(queueing::utilization(10.0, 10.0, 1).is_err());
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008, ch. 1.
pub fn utilization(lambda: f64, mu: f64, c: u64) -> Result<f64> {
    stable(lambda, mu, c).map(|load| load.rho)
}

/// The catalog entry of [`utilization`].
#[cfg(feature = "catalog")]
pub const UTILIZATION: Metric = Metric {
    id: "utilization",
    symbol: r"\rho",
    name: text("Utilization", "利用率"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, C],
    formula: Formula::Scalar {
        text: "lambda / (c * mu)",
        eval: |x| shown(PURE, utilization(x[0], x[1], whole("c", x[2])?)),
        example: (&[4.0, 10.0, 1.0], 0.4),
    },
    path: "queueing::erlang::utilization",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 1" },
    note: text(
        "Waits grow like 1 / (1 − ρ): from 0.9 to 0.95 they double.",
        "等待时间按 1/(1 − ρ) 增长：从 0.9 到 0.95 就翻倍。",
    ),
    exported: &[],
};

/// The numbers that every model with `c` alike servers starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) lambda: f64,
    pub(crate) mu: f64,
    /// Servers, as the exact `f64`.
    pub(crate) c: f64,
    pub(crate) rho: f64,
    /// c μ − λ, rounded once, so that it has all its digits near ρ = 1.
    pub(crate) spare: f64,
    /// 1 − ρ.
    pub(crate) idle: f64,
}

/// The checked load of `c` servers, if they keep up.
pub(crate) fn stable(lambda: f64, mu: f64, c: u64) -> Result<Load> {
    let (lambda, mu) = (zero_or_more("lambda", lambda)?, positive("mu", mu)?);
    let c = servers("c", c)?;
    let spare = c.mul_add(mu, -lambda);
    let rho = lambda / (c * mu);
    if spare <= 0.0 {
        return Err(QueueError::Unstable { rho });
    }
    Ok(Load { lambda, mu, c, rho, spare, idle: spare / (c * mu) })
}

/// Erlang B: the probability that an arrival is lost when `c` servers have no waiting room.
///
/// ```text
/// erlang_b = a^c / fact(c) / sum(k, 0, c, a^k / fact(k))
/// ```
///
/// `c` is the number of servers, at most 10^9; `a` is the offered load λ / μ in erlangs, which may
/// exceed `c`. It holds for any distribution of service times. With no server everyone is lost,
/// with no load and a server nobody. The cost is the same for any number of servers, some 100 ns.
///
/// # Errors
///
/// [`QueueError`] if `a` is negative or not finite, or `c` is above 10^9.
///
/// # Examples
///
/// ```
/// let lost = queueing::erlang_b(2, 1.0)?; // (1/2) / (1 + 1 + 1/2)
/// assert!((lost - 0.2).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Erlang 1917; Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*,
/// 4th ed. 2008, ch. 2.
pub fn erlang_b(c: u64, a: f64) -> Result<f64> {
    Ok(match loss(c, a)? {
        Loss::All => 1.0,
        Loss::None => 0.0,
        Loss::Some(c, a) => Inverse::new(c, a).scaled_down(1.0),
    })
}

/// The catalog entry of [`erlang_b`].
#[cfg(feature = "catalog")]
pub const ERLANG_B: Metric = Metric {
    id: "erlang_b",
    symbol: "B(c, a)",
    name: text("Blocking probability, M/G/c/c (Erlang B)", "阻塞概率，M/G/c/c（Erlang B）"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[SERVERS_OR_NONE, LOAD],
    formula: Formula::Scalar {
        text: "a^c / fact(c) / sum(k, 0, c, a^k / fact(k))",
        eval: |x| shown(PURE, erlang_b(whole("c", x[0])?, x[1])),
        example: (&[2.0, 1.0], 0.2),
    },
    path: "queueing::erlang::erlang_b",
    source: Source {
        work: "Erlang 1917; Gross, Shortle, Thompson and Harris 2008",
        section: "ch. 2",
    },
    note: text(
        "For servers without waiting room; where arrivals wait, Erlang C is the one to ask.",
        "适用于没有等待位的系统；如果到达者会排队，应使用 Erlang C。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const SERVERS_OR_NONE: Input =
    Input::whole("c", "c", PURE, (0.0, 30.0), text("number of servers", "服务台数"));
#[cfg(feature = "catalog")]
const LOAD: Input = Input::real(
    "a",
    "a",
    PURE,
    (0.0, 40.0),
    text("offered load λ / μ in erlangs", "提供负载 λ/μ（Erlang）"),
);

/// The two loads for which Erlang B needs no recursion, and the rest.
enum Loss {
    All,
    None,
    Some(f64, f64),
}

/// The checked inputs of Erlang B.
fn loss(c: u64, a: f64) -> Result<Loss> {
    let a = not_negative("a", a)?;
    if c == 0 {
        return Ok(Loss::All);
    }
    let c = servers("c", c)?;
    Ok(if a == 0.0 { Loss::None } else { Loss::Some(c, a) })
}

/// The natural logarithm of [`erlang_b`], which has a value where the probability itself is below
/// what `f64` holds.
///
/// `c` and `a` are as there. Without load and with a server it is truly minus infinity.
///
/// # Errors
///
/// As [`erlang_b`].
///
/// # Examples
///
/// ```
/// assert_eq!(queueing::erlang_b(1000, 1.0)?, 0.0); // e^(−5913) is no f64
/// assert!((queueing::ln_erlang_b(1000, 1.0)? + 5913.128178).abs() < 1e-6);
/// # Ok::<(), queueing::QueueError>(())
/// ```
pub fn ln_erlang_b(c: u64, a: f64) -> Result<f64> {
    Ok(match loss(c, a)? {
        Loss::All => 0.0,
        Loss::None => f64::NEG_INFINITY,
        Loss::Some(c, a) => 0.0 - Inverse::new(c, a).ln(),
    })
}

/// Erlang C: the probability that an arrival has to wait in an M/M/c queue.
///
/// ```text
/// erlang_c = a^c / fact(c) * (c / (c - a))
///            / (sum(k, 0, c - 1, a^k / fact(k))
///               + a^c / fact(c) * (c / (c - a)))
/// ```
///
/// `c` is the number of servers, at most 10^9; `a` is the offered load λ / μ in erlangs, below
/// `c`. The code has no factorial: 10^9 servers neither overflow nor lose digits near ρ = 1.
///
/// # Errors
///
/// [`QueueError::Unstable`] if `c <= a`; other [`QueueError`] if `a` is negative or not finite, or
/// `c` is 0 or above 10^9.
///
/// # Examples
///
/// ```
/// let wait = queueing::erlang_c(2, 1.0)?;
/// assert!((wait - 1.0 / 3.0).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Erlang 1917; Harchol-Balter, *Performance Modeling and Design of Computer Systems*,
/// 2013, ch. 14.
pub fn erlang_c(c: u64, a: f64) -> Result<f64> {
    let (c, a) = delay(c, a)?;
    if a == 0.0 {
        return Ok(0.0);
    }
    Ok(Inverse::new(c, a).wait(a / c, (c - a) / c).0)
}

/// The catalog entry of [`erlang_c`].
#[cfg(feature = "catalog")]
pub const ERLANG_C: Metric = Metric {
    id: "erlang_c",
    symbol: "C(c, a)",
    name: text("Probability of waiting, M/M/c (Erlang C)", "等待概率，M/M/c（Erlang C）"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[C, LOAD_BELOW],
    formula: Formula::Scalar {
        text: "a^c / fact(c) * (c / (c - a)) / (sum(k, 0, c - 1, a^k / fact(k)) + a^c / fact(c) * (c / (c - a)))",
        eval: |x| shown(PURE, erlang_c(whole("c", x[0])?, x[1])),
        example: (&[2.0, 1.0], 1.0 / 3.0),
    },
    path: "queueing::erlang::erlang_c",
    source: Source { work: "Erlang 1917; Harchol-Balter 2013", section: "ch. 14" },
    note: text(
        "It needs exponential service times; with a patience or a full room it is an upper bound.",
        "它要求服务时间服从指数分布；若顾客会放弃或等待位有限，它只是上界。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const LOAD_BELOW: Input = Input::real(
    "a",
    "a",
    PURE,
    (0.0, 20.0),
    text("offered load λ / μ in erlangs, below c", "提供负载 λ/μ（Erlang），小于 c"),
);

/// The checked inputs of Erlang C.
fn delay(c: u64, a: f64) -> Result<(f64, f64)> {
    let c = servers("c", c)?;
    let a = not_negative("a", a)?;
    if c <= a {
        return Err(QueueError::Unstable { rho: a / c });
    }
    Ok((c, a))
}

/// The natural logarithm of [`erlang_c`], which has a value where the probability itself is below
/// what `f64` holds.
///
/// `c` and `a` are as there. Without load it is truly minus infinity.
///
/// # Errors
///
/// As [`erlang_c`].
///
/// # Examples
///
/// ```
/// let ln_wait = queueing::ln_erlang_c(2, 1.0)?;
/// assert!((ln_wait - (1.0_f64 / 3.0).ln()).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
pub fn ln_erlang_c(c: u64, a: f64) -> Result<f64> {
    let (c, a) = delay(c, a)?;
    if a == 0.0 {
        return Ok(f64::NEG_INFINITY);
    }
    Ok(Inverse::new(c, a).ln_wait(a / c, (c - a) / c))
}

/// Erlang B for a real number of servers: 1 / (a ∫ e^(−a t) (1 + t)^x dt) over t from 0 on.
///
/// `x` is the number of servers, from 0 to 10^9; `a` is the offered load λ / μ in erlangs. It equals
/// [`erlang_b`] at whole numbers and passes smoothly between them, which is how a fraction of a
/// server, or the number of servers as an unknown, is handled.
///
/// # Errors
///
/// [`QueueError`] if `a` is negative or not finite, or `x` is not from 0 to 10^9.
///
/// # Examples
///
/// ```
/// let half = queueing::erlang::erlang_b_real(1.5, 1.0)?;
/// assert!(queueing::erlang_b(2, 1.0)? < half && half < queueing::erlang_b(1, 1.0)?);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Jagerman, *Some properties of the Erlang loss function*, Bell System Technical Journal
/// 53, 1974.
pub fn erlang_b_real(x: f64, a: f64) -> Result<f64> {
    let (x, a) = (real_servers(x)?, not_negative("a", a)?);
    if a == 0.0 {
        return Ok(if x == 0.0 { 1.0 } else { 0.0 });
    }
    Ok(Inverse::real(x, a).scaled_down(1.0))
}

/// The natural logarithm of [`erlang_b_real`], which has a value where the probability itself is
/// below what `f64` holds.
///
/// Without load and with some server it is truly minus infinity.
///
/// # Errors
///
/// As [`erlang_b_real`].
pub fn ln_erlang_b_real(x: f64, a: f64) -> Result<f64> {
    let (x, a) = (real_servers(x)?, not_negative("a", a)?);
    if a == 0.0 {
        return Ok(if x == 0.0 { 0.0 } else { f64::NEG_INFINITY });
    }
    Ok(0.0 - Inverse::real(x, a).ln())
}

/// Erlang C for a real number of servers, from [`erlang_b_real`].
///
/// `x` is the number of servers, above `a` and at most 10^9; `a` is the offered load λ / μ in
/// erlangs. It equals [`erlang_c`] at whole numbers and passes smoothly between them.
///
/// # Errors
///
/// [`QueueError::Unstable`] if `x <= a`; other [`QueueError`] if `a` is negative or not finite, or
/// `x` is not above 0 and at most 10^9.
///
/// # Examples
///
/// ```
/// let wait = queueing::erlang::erlang_c_real(2.5, 1.0)?;
/// assert!(queueing::erlang_c(3, 1.0)? < wait && wait < queueing::erlang_c(2, 1.0)?);
/// # Ok::<(), queueing::QueueError>(())
/// ```
pub fn erlang_c_real(x: f64, a: f64) -> Result<f64> {
    let (x, a) = (real_servers(x)?, not_negative("a", a)?);
    if x == 0.0 {
        return Err(QueueError::OutOfRange { name: "x", value: x, expected: "above 0" });
    }
    if x <= a {
        return Err(QueueError::Unstable { rho: a / x });
    }
    if a == 0.0 {
        return Ok(0.0);
    }
    Ok(Inverse::real(x, a).wait(a / x, (x - a) / x).0)
}

/// A real number of servers.
fn real_servers(x: f64) -> Result<f64> {
    let x = not_negative("x", x)?;
    if (crate::error::MAX_SERVERS as f64) < x {
        let expected = "from 0 to 1000000000";
        return Err(QueueError::OutOfRange { name: "x", value: x, expected });
    }
    Ok(x)
}

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[&OFFERED_LOAD, &UTILIZATION, &ERLANG_B, &ERLANG_C];
