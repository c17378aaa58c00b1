//! Laws of the models that are solved by number, each as one function with its catalog entry.
//!
//! The models themselves give more, and give it once for many questions.

#[cfg(feature = "catalog")]
use metrics_core::metric::{Formula, Input, Layer, Metric, Source, text, whole};

#[cfg(feature = "catalog")]
use crate::catalog::{C, LAMBDA, MEAN, MU, PURE, RATE, T, TIME, shown};
use crate::closed::Closed;
use crate::erlang_a::ErlangA;
use crate::error::Result;
use crate::finite_source::MmcN;
use crate::gim1::{Gaps, GiM1};
use crate::lps::LpsStateDependent;
use crate::md1::Md1;
use crate::mg1::ServiceMoments;
use crate::mg1_priority::{Discipline, Mg1Priority, PriorityClass};
use crate::model::{Queue, WaitDistribution};
use crate::mph1::{MPh1, PhaseType};

/// Share of the arrivals that leave an M/M/c+M queue (Erlang A) unserved.
///
/// `lambda` is the arrival rate, `mu` the service rate of each of `c` servers and `theta` the rate at
/// which a waiting job leaves: its mean patience is 1 / θ.
///
/// # Errors
///
/// As [`ErlangA::new`].
///
/// # Examples
///
/// ```
/// // All rates alike: the number in the system is Poisson of mean 1, and Lq = e^-1.
/// let share = queueing::laws::erlang_a_p_abandon(1.0, 1.0, 1, 1.0)?;
/// assert!((share - (-1.0_f64).exp()).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Palm 1957; Garnett, Mandelbaum and Reiman 2002.
pub fn erlang_a_p_abandon(lambda: f64, mu: f64, c: u64, theta: f64) -> Result<f64> {
    ErlangA::new(lambda, mu, c, theta).map(|q| q.p_abandon())
}

/// The catalog entry of [`erlang_a_p_abandon`].
#[cfg(feature = "catalog")]
pub const ERLANG_A_P_ABANDON: Metric = Metric {
    id: "erlang_a_p_abandon",
    symbol: r"P_{\mathrm{ab}}",
    name: text("Share that gives up, M/M/c+M", "放弃比例，M/M/c+M"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, C, THETA],
    formula: Formula::Law {
        latex: r"\frac{\theta L_q}{\lambda}, \quad L_q = p_c \sum_{j \ge 1} j \prod_{i=1}^{j} \frac{\lambda}{c \mu + i \theta}",
        why: text("The sum over the states has no end.", "对状态的求和没有上限。"),
        test: "tests/properties.rs::erlang_a_is_its_birth_death_chain",
        example: text(
            "one server, arrivals, service and patience at the same rate",
            "单个服务台，到达率、服务率与放弃率相同",
        ),
        run: || shown(PURE, erlang_a_p_abandon(1.0, 1.0, 1, 1.0)),
        value: 0.367_879_441_171_442_33,
    },
    path: "queueing::laws::erlang_a_p_abandon",
    source: Source { work: "Palm 1957; Garnett, Mandelbaum and Reiman 2002", section: "" },
    note: text(
        "Impatience makes any load stable, so that a queue that looks calm may lose many: read it with the wait.",
        "放弃使任何负载都稳定，看似平静的队列可能流失很多请求：要与等待时间一起看。",
    ),
    exported: &[],
};

/// Probability that an arrival waits in a GI/M/1 queue.
///
/// `lambda` is the arrival rate, `gaps` the law of the gaps between arrivals and `mu` the service rate.
/// The mean wait of all is the value over μ (1 − value).
///
/// # Errors
///
/// As [`GiM1::new`].
///
/// # Examples
///
/// ```
/// // Two stages to a gap at half load: σ (2 − σ)^2 = 1, so that σ = (3 − √5) / 2.
/// let sigma = queueing::laws::gim1_p_wait(0.5, queueing::gim1::Gaps::Erlang { k: 2 }, 1.0)?;
/// assert!((sigma - (3.0 - 5.0_f64.sqrt()) / 2.0).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Kleinrock, *Queueing Systems*, vol. 1, 1975, ch. 6.
pub fn gim1_p_wait(lambda: f64, gaps: Gaps, mu: f64) -> Result<f64> {
    GiM1::new(lambda, gaps, mu).map(|q| q.p_wait())
}

/// The catalog entry of [`gim1_p_wait`].
#[cfg(feature = "catalog")]
pub const GIM1_P_WAIT: Metric = Metric {
    id: "gim1_p_wait",
    symbol: r"\sigma",
    name: text("Probability of waiting, GI/M/1", "等待概率，GI/M/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU],
    formula: Formula::Law {
        latex: r"\sigma = \int_0^\infty e^{-\mu (1 - \sigma) t}\thinspace dA(t), \quad W_q = \frac{\sigma}{\mu (1 - \sigma)}",
        why: text("It is the root of an equation.", "它是一个方程的根。"),
        test: "tests/general_properties.rs::the_root_of_gim1_is_one",
        example: text("half load, gaps of two exponential stages", "半载，间隔为两段指数之和"),
        run: || shown(PURE, gim1_p_wait(0.5, Gaps::Erlang { k: 2 }, 1.0)),
        value: 0.381_966_011_250_105_15,
    },
    path: "queueing::laws::gim1_p_wait",
    source: Source { work: "Kleinrock 1975", section: "ch. 6" },
    note: text(
        "What an arrival finds: at steady gaps fewer wait than the server is busy, at bursts more.",
        "这是到达者所见：间隔均匀时等待者少于忙碌比例，突发时则更多。",
    ),
    exported: &[],
};

/// Share of M/D/1's jobs that wait at most `t`.
///
/// `lambda` is the arrival rate and `mean` the time of each service.
///
/// # Errors
///
/// As [`Md1::new`]; [`QueueError`](crate::QueueError) if `t` is negative or not finite.
///
/// # Examples
///
/// ```
/// // Within half a service only the first term counts: (1 − ρ) e^(λ t).
/// let share = queueing::laws::md1_wq_cdf(0.5, 1.0, 0.5)?;
/// assert!((share - 0.5 * 0.25_f64.exp()).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Erlang 1909; Iversen and Staalhagen, *Waiting time distribution in M/D/1 queueing
/// systems*, 1999.
pub fn md1_wq_cdf(lambda: f64, mean: f64, t: f64) -> Result<f64> {
    Md1::new(lambda, mean)?.wq_cdf(t)
}

/// The catalog entry of [`md1_wq_cdf`].
#[cfg(feature = "catalog")]
pub const MD1_WQ_CDF: Metric = Metric {
    id: "md1_wq_cdf",
    symbol: r"P(W_q \le t)",
    name: text("Share that waits at most t, M/D/1", "等待不超过 t 的比例，M/D/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MEAN, T],
    formula: Formula::Law {
        latex: r"(1 - \rho) \sum_{k=0}^{\lfloor t / E[S] \rfloor} \frac{(\lambda (k E[S] - t))^k}{k!} e^{-\lambda (k E[S] - t)}",
        why: text(
            "The terms have alternating signs and cancel: computed as written, the sum loses all digits.",
            "各项正负交替、相互抵消：照式直接求和会丢失全部有效数字。",
        ),
        test: "tests/general.rs::md1_waits_hold_their_digits",
        example: text("half load, within half a service", "半载，半个服务时间之内"),
        run: || shown(PURE, md1_wq_cdf(0.5, 1.0, 0.5)),
        value: 0.642_012_708_343_870_7,
    },
    path: "queueing::laws::md1_wq_cdf",
    source: Source { work: "Erlang 1909; Iversen and Staalhagen 1999", section: "" },
    note: text(
        "Equal prompts of equal length come close to it; real lengths spread, and wait longer.",
        "长度相同的请求接近此模型；真实长度分散，等待更久。",
    ),
    exported: &[],
};

/// Probability that a job of an M/PH/1 queue waits longer than `t`.
///
/// `lambda` is the arrival rate and `law` the phase-type law of the service time.
///
/// # Errors
///
/// As [`MPh1::new`]; [`QueueError`](crate::QueueError) if `t` is negative or not finite.
///
/// # Examples
///
/// ```
/// // One phase is M/M/1: ρ e^(−(μ − λ) t) is a quarter at t = 2 ln 2.
/// let law = queueing::mph1::PhaseType::erlang(1.0, 1)?;
/// let late = queueing::laws::mph1_wq_sf(0.5, law, 2.0 * 2.0_f64.ln())?;
/// assert!((late - 0.25).abs() < 1e-14);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Neuts, *Matrix-Geometric Solutions in Stochastic Models*, 1981, ch. 3.
pub fn mph1_wq_sf(lambda: f64, law: PhaseType, t: f64) -> Result<f64> {
    MPh1::new(lambda, law)?.wq_sf(t)
}

/// The catalog entry of [`mph1_wq_sf`].
#[cfg(feature = "catalog")]
pub const MPH1_WQ_SF: Metric = Metric {
    id: "mph1_wq_sf",
    symbol: r"P(W_q > t)",
    name: text("Probability of a wait longer than t, M/PH/1", "等待超过 t 的概率，M/PH/1"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, T],
    formula: Formula::Law {
        latex: r"\rho \pi e^{(T + \rho T^0 \pi) t} \mathbf{1}, \quad \pi = -\frac{\alpha T^{-1}}{E[S]}",
        why: text("It is the exponential of a matrix.", "它是矩阵指数。"),
        test: "tests/general.rs::phase_type_waits_hold_their_digits",
        example: text(
            "half load, one phase of rate 1, longer than 2 ln 2",
            "半载，一个速率为 1 的相，超过 2 ln 2",
        ),
        run: || {
            let t = 2.0 * std::f64::consts::LN_2;
            shown(PURE, PhaseType::erlang(1.0, 1).and_then(|law| mph1_wq_sf(0.5, law, t)))
        },
        value: 0.25,
    },
    path: "queueing::laws::mph1_wq_sf",
    source: Source { work: "Neuts 1981", section: "ch. 3" },
    note: text(
        "With short and long jobs mixed, the tail is that of the long ones, whatever the mean says.",
        "长短任务混合时，尾部由长任务决定，与均值无关。",
    ),
    exported: &[],
};

/// Probability of `n` jobs where `rates[i - 1]` is the service rate of all while `i` are in service,
/// and more than `rates.len()` wait.
///
/// # Errors
///
/// As [`LpsStateDependent::new`] without a limit on the queue.
///
/// # Examples
///
/// ```
/// // Rates of two servers at half load: 1/3, 1/3, 1/6, ...
/// let p = queueing::laws::lps_pn(1.0, &[1.0, 2.0], 2)?;
/// assert!((p - 1.0 / 6.0).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn lps_pn(lambda: f64, rates: &[f64], n: u64) -> Result<f64> {
    LpsStateDependent::new(lambda, rates, None)?.pn(n)
}

/// The catalog entry of [`lps_pn`].
#[cfg(feature = "catalog")]
pub const LPS_PN: Metric = Metric {
    id: "lps_pn",
    symbol: "p_n",
    name: text("Probability of n jobs, limited sharing", "系统内恰有 n 个任务的概率，有限共享"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, RATES, JOBS],
    formula: Formula::Law {
        latex: r"p_0 \prod_{i=1}^{n} \frac{\lambda}{v_{\min(i, M)}}, \quad \sum_n p_n = 1",
        why: text("It runs over a list of rates.", "它遍历一组速率。"),
        test: "tests/general_properties.rs::rates_of_servers_make_limited_sharing_an_mmc",
        example: text(
            "one arrival per unit of time, rates 1 and 2, two jobs",
            "单位时间到达 1 个，速率 1 与 2，恰有 2 个任务",
        ),
        run: || shown(PURE, lps_pn(1.0, &[1.0, 2.0], 2)),
        value: 1.0 / 6.0,
    },
    path: "queueing::laws::lps_pn",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "A batch of an engine: each job is slower the more there are, which M/M/c does not know.",
        "对应引擎的批：任务越多每个越慢，M/M/c 不考虑这一点。",
    ),
    exported: &[],
};

/// Probability that all `n` sources of an M/M/c//N system are idle.
///
/// ```text
/// mmcn_p0 = 1 / (sum(k, 0, c, fact(n) / (fact(k) * fact(n - k)) * (lambda / mu)^k)
///     + sum(k, c + 1, n, fact(n) / (fact(n - k) * fact(c) * c^(k - c)) * (lambda / mu)^k))
/// ```
///
/// `lambda` is the rate at which one idle source sends a job, `mu` the service rate of each of `c`
/// servers, and `n` the number of sources, as many as `c` or more.
///
/// # Errors
///
/// As [`MmcN::new`].
///
/// # Examples
///
/// ```
/// // Two sources and one server at equal rates: 1 : 2 : 2.
/// assert!((queueing::laws::mmcn_p0(1.0, 1.0, 1, 2)? - 0.2).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Gross, Shortle, Thompson and Harris, *Fundamentals of Queueing Theory*, 4th ed. 2008,
/// ch. 2.
pub fn mmcn_p0(lambda: f64, mu: f64, c: u64, n: u64) -> Result<f64> {
    MmcN::new(lambda, mu, c, n).map(|q| q.p0())
}

/// The catalog entry of [`mmcn_p0`].
#[cfg(feature = "catalog")]
pub const MMCN_P0: Metric = Metric {
    id: "mmcn_p0",
    symbol: "p_0",
    name: text("Probability of an idle system, M/M/c//N", "系统空闲概率，M/M/c//N"),
    layer: Layer::Queueing,
    unit: PURE,
    inputs: &[LAMBDA, MU, FEW_SERVERS, SOURCES],
    formula: Formula::Scalar {
        text: "1 / (sum(k, 0, c, fact(n) / (fact(k) * fact(n - k)) * (lambda / mu)^k) + sum(k, c + 1, n, fact(n) / (fact(n - k) * fact(c) * c^(k - c)) * (lambda / mu)^k))",
        eval: |x| shown(PURE, mmcn_p0(x[0], x[1], whole("c", x[2])?, whole("n", x[3])?)),
        example: (&[1.0, 1.0, 1.0, 2.0], 0.2),
    },
    path: "queueing::laws::mmcn_p0",
    source: Source { work: "Gross, Shortle, Thompson and Harris 2008", section: "ch. 2" },
    note: text(
        "A load generator of fixed concurrency is such a system: the load falls when the server is slow.",
        "固定并发的压测就是这样的系统：服务变慢时负载随之下降。",
    ),
    exported: &[],
};

/// Mean response time with `n` clients, each of which thinks for `think` and asks one server again.
///
/// `demand` is the mean service time. The recursion is exact for exponential service.
///
/// # Errors
///
/// As [`Closed::new`].
///
/// # Examples
///
/// ```
/// // One client finds nobody, R = 1 and Q = 1/2; the second finds that half.
/// assert!((queueing::laws::closed_w(2, 1.0, 1.0)? - 1.5).abs() < 1e-15);
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Reiser and Lavenberg, *Mean-Value Analysis of Closed Multichain Queuing Networks*, 1980.
pub fn closed_w(n: u64, demand: f64, think: f64) -> Result<f64> {
    Closed::new(n, demand, think).map(|q| q.w())
}

/// The catalog entry of [`closed_w`].
#[cfg(feature = "catalog")]
pub const CLOSED_W: Metric = Metric {
    id: "closed_w",
    symbol: "R_n",
    name: text("Mean response time, n clients", "平均响应时间，n 个客户端"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: &[JOBS, MEAN],
    formula: Formula::Law {
        latex: r"R_n = D (1 + Q_{n-1}), \quad Q_n = \frac{n R_n}{R_n + Z}, \quad Q_0 = 0",
        why: text("It is a recursion over the clients.", "它是对客户端数的递推。"),
        test: "tests/general_properties.rs::closed_systems_obey_their_law",
        example: text(
            "two clients, a demand of 1 and a think time of 1",
            "两个客户端，服务需求 1，思考时间 1",
        ),
        run: || shown(TIME, closed_w(2, 1.0, 1.0)),
        value: 1.5,
    },
    path: "queueing::laws::closed_w",
    source: Source { work: "Reiser and Lavenberg 1980", section: "" },
    note: text(
        "It says nothing of an open load: clients that wait send nothing.",
        "它不能说明开放负载：等待中的客户端不会发出请求。",
    ),
    exported: &[],
};

/// Two classes with these arrival rates, mean service times and coefficients of variation.
fn two_classes(first: [f64; 3], second: [f64; 3]) -> Result<Mg1Priority> {
    let class = |[lambda, mean, cv]: [f64; 3]| PriorityClass {
        lambda,
        service: ServiceMoments::from_cv(mean, cv),
    };
    Mg1Priority::new(&[class(first), class(second)])
}

/// Mean wait of the first of two priority classes that do not interrupt.
///
/// ```text
/// mg1_priority_wq_first = (lambda1 * mean1 * mean1 * (1 + cv1^2)
///     + lambda2 * mean2 * mean2 * (1 + cv2^2)) / (2 * (1 - lambda1 * mean1))
/// ```
///
/// Each class has an arrival rate, a mean service time and its coefficient of variation.
///
/// # Errors
///
/// As [`Mg1Priority::class`]: the work of both classes must be below 1.
///
/// # Examples
///
/// ```
/// let wait = queueing::laws::mg1_priority_wq_first(0.2, 1.0, 1.0, 0.6, 1.0, 1.0)?;
/// assert!((wait - 1.0).abs() < 1e-15); // 0.8 / (1 - 0.2)
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Cobham, *Priority assignment in waiting line problems*, 1954.
pub fn mg1_priority_wq_first(
    lambda1: f64,
    mean1: f64,
    cv1: f64,
    lambda2: f64,
    mean2: f64,
    cv2: f64,
) -> Result<f64> {
    let queue = two_classes([lambda1, mean1, cv1], [lambda2, mean2, cv2])?;
    queue.class(Discipline::NonPreemptive, 0).map(|m| m.wq)
}

/// The catalog entry of [`mg1_priority_wq_first`].
#[cfg(feature = "catalog")]
pub const MG1_PRIORITY_WQ_FIRST: Metric = Metric {
    id: "mg1_priority_wq_first",
    symbol: "W_{q,1}",
    name: text("Mean wait, first priority of two", "平均等待时间，两级中的高优先级"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: TWO_CLASSES,
    formula: Formula::Scalar {
        text: "(lambda1 * mean1 * mean1 * (1 + cv1^2) + lambda2 * mean2 * mean2 * (1 + cv2^2)) / (2 * (1 - lambda1 * mean1))",
        eval: |x| shown(TIME, mg1_priority_wq_first(x[0], x[1], x[2], x[3], x[4], x[5])),
        example: (&[0.2, 1.0, 1.0, 0.6, 1.0, 1.0], 1.0),
    },
    path: "queueing::laws::mg1_priority_wq_first",
    source: Source { work: "Cobham 1954", section: "" },
    note: text(
        "It waits for what is in service, of either class: long jobs of the second make the first wait too.",
        "它要等正在服务的任务（不论级别）结束：低级的长任务也会拖慢高级。",
    ),
    exported: &[],
};

/// Mean wait of the second of two priority classes that do not interrupt.
///
/// ```text
/// mg1_priority_wq_second = (lambda1 * mean1 * mean1 * (1 + cv1^2)
///     + lambda2 * mean2 * mean2 * (1 + cv2^2))
///     / (2 * (1 - lambda1 * mean1) * (1 - lambda1 * mean1 - lambda2 * mean2))
/// ```
///
/// Each class has an arrival rate, a mean service time and its coefficient of variation.
///
/// # Errors
///
/// As [`Mg1Priority::class`]: the work of both classes must be below 1.
///
/// # Examples
///
/// ```
/// let wait = queueing::laws::mg1_priority_wq_second(0.2, 1.0, 1.0, 0.6, 1.0, 1.0)?;
/// assert!((wait - 5.0).abs() < 1e-14); // 0.8 / (1 - 0.2) / (1 - 0.8)
/// # Ok::<(), queueing::QueueError>(())
/// ```
///
/// Source: Cobham, *Priority assignment in waiting line problems*, 1954.
pub fn mg1_priority_wq_second(
    lambda1: f64,
    mean1: f64,
    cv1: f64,
    lambda2: f64,
    mean2: f64,
    cv2: f64,
) -> Result<f64> {
    let queue = two_classes([lambda1, mean1, cv1], [lambda2, mean2, cv2])?;
    queue.class(Discipline::NonPreemptive, 1).map(|m| m.wq)
}

/// The catalog entry of [`mg1_priority_wq_second`].
#[cfg(feature = "catalog")]
pub const MG1_PRIORITY_WQ_SECOND: Metric = Metric {
    id: "mg1_priority_wq_second",
    symbol: "W_{q,2}",
    name: text("Mean wait, second priority of two", "平均等待时间，两级中的低优先级"),
    layer: Layer::Queueing,
    unit: TIME,
    inputs: TWO_CLASSES,
    formula: Formula::Scalar {
        text: "(lambda1 * mean1 * mean1 * (1 + cv1^2) + lambda2 * mean2 * mean2 * (1 + cv2^2)) / (2 * (1 - lambda1 * mean1) * (1 - lambda1 * mean1 - lambda2 * mean2))",
        eval: |x| shown(TIME, mg1_priority_wq_second(x[0], x[1], x[2], x[3], x[4], x[5])),
        example: (&[0.2, 1.0, 1.0, 0.6, 1.0, 1.0], 5.0),
    },
    path: "queueing::laws::mg1_priority_wq_second",
    source: Source { work: "Cobham 1954", section: "" },
    note: text(
        "What the first class gains the second pays, weighted with their work: priorities make no capacity.",
        "高级所得即低级所失（按工作量加权）：优先级并不产生容量。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const THETA: Input = Input::real(
    "theta",
    r"\theta",
    RATE,
    (0.01, 10.0),
    text("rate at which a waiting job leaves", "等待者的放弃率"),
);
#[cfg(feature = "catalog")]
const RATES: Input = Input::real(
    "rates",
    "v_i",
    RATE,
    (10.0, 20.0),
    text("service rate of all while i are in service", "有 i 个任务服务中时的总服务率"),
);
#[cfg(feature = "catalog")]
const JOBS: Input = Input::whole(
    "n",
    "n",
    PURE,
    (1.0, 40.0),
    text("number of jobs or clients", "任务数或客户端数"),
);
#[cfg(feature = "catalog")]
const FEW_SERVERS: Input =
    Input::whole("c", "c", PURE, (1.0, 10.0), text("number of servers", "服务台数"));
#[cfg(feature = "catalog")]
const SOURCES: Input =
    Input::whole("n", "N", PURE, (10.0, 30.0), text("number of sources", "源的个数"));

#[cfg(feature = "catalog")]
const TWO_CLASSES: &[Input] = &[
    Input::real(
        "lambda1",
        r"\lambda_1",
        RATE,
        (0.0, 9.5),
        text("arrival rate, first", "高级到达率"),
    ),
    Input::real(
        "mean1",
        "E[S_1]",
        TIME,
        (0.001, 0.05),
        text("mean service time, first", "高级平均服务时间"),
    ),
    Input::real("cv1", "c_1", PURE, (0.0, 5.0), text("its coefficient of variation", "其变异系数")),
    Input::real(
        "lambda2",
        r"\lambda_2",
        RATE,
        (0.0, 9.5),
        text("arrival rate, second", "低级到达率"),
    ),
    Input::real(
        "mean2",
        "E[S_2]",
        TIME,
        (0.001, 0.05),
        text("mean service time, second", "低级平均服务时间"),
    ),
    Input::real("cv2", "c_2", PURE, (0.0, 5.0), text("its coefficient of variation", "其变异系数")),
];

/// The entries of this module, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &ERLANG_A_P_ABANDON,
    &MMCN_P0,
    &GIM1_P_WAIT,
    &MD1_WQ_CDF,
    &MPH1_WQ_SF,
    &MG1_PRIORITY_WQ_FIRST,
    &MG1_PRIORITY_WQ_SECOND,
    &LPS_PN,
    &CLOSED_W,
];
