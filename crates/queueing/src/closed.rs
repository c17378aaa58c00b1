//! Closed systems: a fixed number of clients, each of which waits for its response, thinks, and
//! asks again. What a load generator with fixed concurrency does.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text};

#[cfg(feature = "catalog")]
use crate::catalog::{PURE, RATE, TIME, shown};
use crate::error::{LARGEST, QueueError, Result, positive, zero_or_more};

/// Most clients of [`Closed`], whose cost grows with them.
pub const MAX_CLIENTS: u64 = 10_000_000;

#[cfg(feature = "catalog")]
const CLIENTS: Input =
    Input::real("n", "N", PURE, (1.0, 100.0), text("number of clients", "客户端数"));
#[cfg(feature = "catalog")]
const THROUGHPUT: Input = Input::real(
    "throughput",
    "X",
    RATE,
    (0.01, 1.0),
    text("requests completed per time", "单位时间完成的请求数"),
);
#[cfg(feature = "catalog")]
const THINK: Input =
    Input::real("z", "Z", TIME, (0.0, 1.0), text("mean think time", "平均思考时间"));
#[cfg(feature = "catalog")]
const RESPONSE: Input =
    Input::real("r", "R", TIME, (0.001, 10.0), text("mean response time", "平均响应时间"));
#[cfg(feature = "catalog")]
const DEMAND: Input =
    Input::real("demand", "D", TIME, (0.001, 10.0), text("mean service demand", "平均服务需求"));

/// Mean response time of a closed system by the interactive response time law.
///
/// ```text
/// interactive_response = n / throughput - z
/// ```
///
/// `n` clients each wait for the response to a request and then think for `z` on average; the system
/// completes `throughput` requests per unit of time. A load generator with fixed concurrency is such a
/// system: latency, throughput and concurrency cannot disagree with this law.
/// A wrong measurement can make it negative, and is refused.
///
/// # Errors
///
/// [`QueueError`](crate::QueueError) unless `n` and `z` are from 0 to 1e50, `throughput` is from 1e-50
/// to 1e50, and the result is not negative.
///
/// # Examples
///
/// ```
/// // One connection, 17 924 requests a second, no pause: 55.8 µs, whatever the tool prints.
/// let r = queueing::closed::interactive_response(1.0, 17_924.0, 0.0)?;
/// assert!((r - 55.791e-6).abs() < 1e-9);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Denning and Buzen, *The operational analysis of queueing network models*, 1978.
pub fn interactive_response(n: f64, throughput: f64, z: f64) -> Result<f64> {
    let (n, z) = (zero_or_more("n", n)?, zero_or_more("z", z)?);
    let cycle = n / positive("throughput", throughput)?;
    if cycle < z {
        let expected = "at most n / throughput, one round of a client";
        return Err(QueueError::OutOfRange { name: "z", value: z, expected });
    }
    Ok(cycle - z)
}

/// The catalog entry of [`interactive_response`].
#[cfg(feature = "catalog")]
pub const INTERACTIVE_RESPONSE: Metric = Metric {
    id: "interactive_response",
    symbol: r"R",
    name: text("Response time of a closed system", "闭合系统的响应时间"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[CLIENTS, THROUGHPUT, THINK],
    formula: Formula::Scalar {
        text: "n / throughput - z",
        eval: |x| shown(TIME, interactive_response(x[0], x[1], x[2])),
        example: (&[10.0, 4.0, 0.5], 2.0),
    },
    path: "queueing::closed::interactive_response",
    source: Source { work: "Denning and Buzen 1978", section: "interactive response time" },
    note: text(
        "Holds for any run in which clients come back: a report that breaks it is wrong.",
        "只要客户端循环发请求就成立：违反它的报告是错的。",
    ),
    exported: &[],
};

/// Throughput of a closed system by the interactive response time law.
///
/// ```text
/// interactive_throughput = n / (r + z)
/// ```
///
/// `n` clients each wait `r` on average for a response and then think for `z`.
///
/// # Errors
///
/// [`QueueError`](crate::QueueError) unless `n`, `r` and `z` are from 0 to 1e50 and `r + z` from 1e-50.
///
/// # Examples
///
/// ```
/// assert!((queueing::closed::interactive_throughput(10.0, 2.0, 0.5)? - 4.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Denning and Buzen, *The operational analysis of queueing network models*, 1978.
pub fn interactive_throughput(n: f64, r: f64, z: f64) -> Result<f64> {
    let (n, r, z) = (zero_or_more("n", n)?, zero_or_more("r", r)?, zero_or_more("z", z)?);
    Ok(n / positive("r + z", (r + z).min(LARGEST))?)
}

/// The catalog entry of [`interactive_throughput`].
#[cfg(feature = "catalog")]
pub const INTERACTIVE_THROUGHPUT: Metric = Metric {
    id: "interactive_throughput",
    symbol: r"X",
    name: text("Throughput of a closed system", "闭合系统的吞吐量"),
    layer: Layer::Queueing,
    unit: RATE,
    inputs: &[CLIENTS, RESPONSE, THINK],
    formula: Formula::Scalar {
        text: "n / (r + z)",
        eval: |x| shown(RATE, interactive_throughput(x[0], x[1], x[2])),
        example: (&[10.0, 2.0, 0.5], 4.0),
    },
    path: "queueing::closed::interactive_throughput",
    source: Source { work: "Denning and Buzen 1978", section: "interactive response time" },
    note: text(
        "More clients raise it only until a server is busy all the time.",
        "增加客户端只在服务台还没一直忙碌时才提高它。",
    ),
    exported: &[],
};

/// Number of clients at which a closed system with one queue begins to saturate.
///
/// ```text
/// saturation_clients = (demand + z) / demand
/// ```
///
/// Each request keeps the one server for `demand` on average, and a client thinks for `z`. Below this
/// number, throughput can grow with every client; above it, latency does.
///
/// # Errors
///
/// [`QueueError`](crate::QueueError) unless `demand` is from 1e-50 and `z` from 0 to 1e50.
///
/// # Examples
///
/// ```
/// assert!((queueing::closed::saturation_clients(0.5, 4.5)? - 10.0).abs() < 1e-12);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Denning and Buzen, *The operational analysis of queueing network models*, 1978.
pub fn saturation_clients(demand: f64, z: f64) -> Result<f64> {
    let (demand, z) = (positive("demand", demand)?, zero_or_more("z", z)?);
    Ok((demand + z) / demand)
}

/// The catalog entry of [`saturation_clients`].
#[cfg(feature = "catalog")]
pub const SATURATION_CLIENTS: Metric = Metric {
    id: "saturation_clients",
    symbol: r"N^*",
    name: text("Saturation point of a closed system", "闭合系统的饱和点"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[DEMAND, THINK],
    formula: Formula::Scalar {
        text: "(demand + z) / demand",
        eval: |x| shown(PURE, saturation_clients(x[0], x[1])),
        example: (&[0.5, 4.5], 10.0),
    },
    path: "queueing::closed::saturation_clients",
    source: Source { work: "Denning and Buzen 1978", section: "asymptotic bounds" },
    note: text(
        "A benchmark with more clients than this measures its own queue.",
        "客户端数超过它的基准测试量到的是自己造成的排队。",
    ),
    exported: &[],
};

/// One server with a queue and `n` clients that think in between, by exact mean value analysis.
///
/// Exact for exponential service in order of arrival, and for any service time if the server is
/// shared evenly; the think time may have any law.
///
/// # Examples
///
/// ```
/// use queueing::Closed;
///
/// // Two clients without think time keep the server busy.
/// let pair = Closed::new(2, 0.5, 0.0)?;
/// assert!((pair.throughput() - 2.0).abs() < 1e-15 && (pair.w() - 1.0).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Reiser and Lavenberg, *Mean-value analysis of closed multichain queuing networks*, 1980.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closed {
    demand: f64,
    think: f64,
    w: f64,
    throughput: f64,
    l: f64,
}

impl Closed {
    /// `n` clients, mean service time `demand` of a request, and mean think time `think`.
    ///
    /// # Errors
    ///
    /// [`QueueError`] unless `n` is from 1 to 10^7, `demand` from 1e-50 and `think` from 0 to 1e50.
    pub fn new(n: u64, demand: f64, think: f64) -> Result<Self> {
        let (demand, think) = (positive("demand", demand)?, zero_or_more("think", think)?);
        if n < 1 || MAX_CLIENTS < n {
            let (value, expected) = (n as f64, "a whole number from 1 to 10000000");
            return Err(QueueError::OutOfRange { name: "n", value, expected });
        }
        let (mut w, mut throughput, mut l) = (demand, 0.0, 0.0);
        for k in 1..=n {
            // An arrival sees the system with one client less.
            w = demand * (1.0 + l);
            throughput = k as f64 / (w + think);
            l = throughput * w;
        }
        Ok(Self { demand, think, w, throughput, l })
    }

    /// Mean response time.
    #[must_use]
    pub fn w(&self) -> f64 {
        self.w
    }

    /// Mean wait before service, in order of arrival.
    #[must_use]
    pub fn wq(&self) -> f64 {
        self.w - self.demand
    }

    /// Requests per unit of time.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.throughput
    }

    /// Mean number of requests at the server.
    #[must_use]
    pub fn l(&self) -> f64 {
        self.l
    }

    /// Mean number of clients that think.
    #[must_use]
    pub fn thinking(&self) -> f64 {
        self.throughput * self.think
    }

    /// Share of time that the server is busy.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        (self.throughput * self.demand).min(1.0)
    }
}

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] =
    &[&INTERACTIVE_RESPONSE, &INTERACTIVE_THROUGHPUT, &SATURATION_CLIENTS];
