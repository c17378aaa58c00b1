//! From memory and rates to concurrency, nodes and cost, as a first approximation.

use crate::error::{Result, above, at_least, difference, within};
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, text, whole};
#[cfg(feature = "catalog")]
use crate::units::Unit;
use crate::units::{
    Bytes, BytesPerToken, CostPerHour, CostPerToken, Gpus, Nodes, Requests, RequestsPerSecond,
    RequestsPerSecondPerNode, Tokens, TokensPerHour, TokensPerSecond,
};

/// Requests that fit into the memory of a card beside the weights.
///
/// ```text
/// concurrency_from_memory = (card_bytes - weights_bytes - overhead_bytes)
///                           / (kv_bytes_per_token * tokens_per_request)
/// ```
///
/// `card_bytes` is the card's memory, `weights_bytes` what of the model lies on it,
/// `overhead_bytes` what activations and the runtime take, `kv_bytes_per_token` the KV cache of
/// one token on this card, `tokens_per_request` what a request holds at its longest, prompt and
/// answer. Not rounded; only whole requests run.
///
/// # Errors
///
/// [`Error::Order`](crate::Error::Order) if weights and overhead do not fit,
/// [`Error::NotAbove`](crate::Error::NotAbove) if `kv_bytes_per_token` or `tokens_per_request` is
/// 0.
///
/// # Examples
///
/// ```
/// use metrics_core::sizing::concurrency_from_memory;
/// use metrics_core::units::{Bytes, BytesPerToken, Tokens};
///
/// // 80 GB less 70 GB weights and 2 GB overhead; 320 KB a token, 4 096 tokens.
/// let (gb, kb) = (|x| Bytes::new(x * 1e9), |x| BytesPerToken::new(x * 1e3));
/// let n = concurrency_from_memory(gb(80.0)?, gb(70.0)?, gb(2.0)?, kb(320.0)?, Tokens::new(4_096.0)?)?;
/// assert!((n.get() - 6.1).abs() < 0.01);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: metric dictionary, 5.1, with the budget taken apart.
pub fn concurrency_from_memory(
    card_bytes: Bytes,
    weights_bytes: Bytes,
    overhead_bytes: Bytes,
    kv_bytes_per_token: BytesPerToken,
    tokens_per_request: Tokens,
) -> Result<Requests> {
    let rest =
        difference(("card_bytes", card_bytes.get()), ("weights_bytes", weights_bytes.get()))?;
    let budget =
        difference(("card_bytes - weights_bytes", rest), ("overhead_bytes", overhead_bytes.get()))?;
    let per_request = above("kv_bytes_per_token", kv_bytes_per_token.get(), 0.0)?
        * above("tokens_per_request", tokens_per_request.get(), 0.0)?;
    let per_request = above("kv_bytes_per_token * tokens_per_request", per_request, 0.0)?;
    Requests::named("concurrency", budget / per_request)
}

/// The catalog entry of [`concurrency_from_memory`].
#[cfg(feature = "catalog")]
pub const CONCURRENCY_FROM_MEMORY: Metric = Metric {
    id: "concurrency_from_memory",
    symbol: r"n_{\mathrm{fit}}",
    name: text("Concurrency from memory", "由显存得到的并发数"),
    layer: Layer::Capacity,
    unit: Unit::REQUEST,
    inputs: &[
        Input::real(
            "card_bytes",
            r"M_{\mathrm{card}}",
            Unit::BYTE,
            (1e10, 2e11),
            text("memory of the card", "单卡显存"),
        ),
        Input::real(
            "weights_bytes",
            r"M_{\mathrm{weights}}",
            Unit::BYTE,
            (0.0, 1e11),
            text("weights on the card", "卡上的权重"),
        ),
        Input::real(
            "overhead_bytes",
            r"M_{\mathrm{overhead}}",
            Unit::BYTE,
            (0.0, 1e10),
            text("activations and runtime", "激活与运行时开销"),
        ),
        Input::real(
            "kv_bytes_per_token",
            r"m_{\text{token}}",
            Unit::BYTE.per(Unit::TOKEN),
            (1_024.0, 4e6),
            text("KV bytes per token", "每 token 的 KV 字节数"),
        ),
        Input::real(
            "tokens_per_request",
            r"T_{\mathrm{req}}",
            Unit::TOKEN,
            (1.0, 131_072.0),
            text("tokens that a request holds", "单个请求占用的 token 数"),
        )
        .counts_as(Unit::TOKEN.per(Unit::REQUEST)),
    ],
    formula: Formula::Scalar {
        text: "(card_bytes - weights_bytes - overhead_bytes) / (kv_bytes_per_token * tokens_per_request)",
        eval: |x| {
            computed(concurrency_from_memory(
                Bytes::new(x[0])?,
                Bytes::new(x[1])?,
                Bytes::new(x[2])?,
                BytesPerToken::new(x[3])?,
                Tokens::new(x[4])?,
            ))
        },
        example: (&[80e9, 70e9, 2e9, 320e3, 4_096.0], 6.103_515_625),
    },
    path: "metrics_core::sizing::concurrency_from_memory",
    source: Source { work: "metric dictionary", section: "5.1, with the budget taken apart" },
    note: text(
        "GB here are 10^9 bytes; with GiB the example gives 6.4, so say which is meant.",
        "此处 GB 为 10^9 字节；改用 GiB 时该例结果为 6.4，因此须说明单位。",
    ),
    exported: &[],
};

/// Request rate that one node sustains.
///
/// ```text
/// request_rate_per_node = in_flight * tokens_per_second_each / tokens_per_request
/// ```
///
/// `in_flight` is the number of requests that the node decodes at once, `tokens_per_second_each`
/// the output of each of them, `tokens_per_request` the mean answer. Prefill and queueing take
/// their part on top, so it is an upper bound.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `tokens_per_request` is 0,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves the range of a quantity.
///
/// # Examples
///
/// ```
/// use metrics_core::sizing::request_rate_per_node;
/// use metrics_core::units::{Requests, Tokens, TokensPerSecond};
///
/// let each = TokensPerSecond::new(50.0)?;
/// let rate = request_rate_per_node(Requests::new(128.0)?, each, Tokens::new(200.0)?)?;
/// assert_eq!(rate.get(), 32.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: Little's law (metric dictionary, 5.2) with a decode time of tokens over rate.
pub fn request_rate_per_node(
    in_flight: Requests,
    tokens_per_second_each: TokensPerSecond,
    tokens_per_request: Tokens,
) -> Result<RequestsPerSecondPerNode> {
    let answer = above("tokens_per_request", tokens_per_request.get(), 0.0)?;
    let rate = in_flight.get() * tokens_per_second_each.get() / answer;
    RequestsPerSecondPerNode::named("request rate per node", rate)
}

/// The catalog entry of [`request_rate_per_node`].
#[cfg(feature = "catalog")]
pub const REQUEST_RATE_PER_NODE: Metric = Metric {
    id: "request_rate_per_node",
    symbol: r"\lambda_{\mathrm{node}}",
    name: text("Request rate per node", "单节点请求速率"),
    layer: Layer::Capacity,
    unit: Unit::REQUEST.per(Unit::SECOND).per(Unit::NODE),
    inputs: &[
        Input::real(
            "in_flight",
            r"n_{\mathrm{node}}",
            Unit::REQUEST,
            (0.0, 1_024.0),
            text("requests that a node decodes at once", "单节点同时 decode 的请求数"),
        )
        .counts_as(Unit::REQUEST.per(Unit::NODE)),
        Input::real(
            "tokens_per_second_each",
            r"r_{\mathrm{each}}",
            Unit::TOKEN.per(Unit::SECOND),
            (0.0, 200.0),
            text("output rate of each request", "每个请求的输出速率"),
        )
        .counts_as(Unit::TOKEN.per(Unit::SECOND).per(Unit::REQUEST)),
        Input::real(
            "tokens_per_request",
            r"\bar{N}_{\mathrm{out}}",
            Unit::TOKEN,
            (1.0, 4_096.0),
            text("mean output tokens of a request", "单个请求的平均输出 token 数"),
        )
        .counts_as(Unit::TOKEN.per(Unit::REQUEST)),
    ],
    formula: Formula::Scalar {
        text: "in_flight * tokens_per_second_each / tokens_per_request",
        eval: |x| {
            computed(request_rate_per_node(
                Requests::new(x[0])?,
                TokensPerSecond::new(x[1])?,
                Tokens::new(x[2])?,
            ))
        },
        example: (&[128.0, 50.0, 200.0], 32.0),
    },
    path: "metrics_core::sizing::request_rate_per_node",
    source: Source {
        work: "metric dictionary",
        section: "5.2, with decode time as tokens over rate",
    },
    note: text(
        "It leaves prefill and queueing out: an upper bound.",
        "未计入 prefill 与排队，因此是上界。",
    ),
    exported: &[],
};

/// `x` rounded up, where a quotient of decimal numbers that should be whole stays whole.
fn rounded_up(x: f64) -> f64 {
    // 4.2 / 0.6 is 7.000000000000001 in binary: three roundings must not cost a node.
    let nearest = x.round();
    if (x - nearest).abs() <= 4.0 * f64::EPSILON * x { nearest } else { x.ceil() }
}

/// Nodes that a request rate needs.
///
/// ```text
/// nodes_for_rate = ceil(rate / rate_per_node)
/// ```
///
/// `rate` is the load, `rate_per_node` what one node sustains. Nothing is kept in reserve: at a
/// quotient that is whole, every node runs at its limit and queues grow.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `rate_per_node` is 0,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the quotient leaves the range of a quantity.
///
/// # Examples
///
/// ```
/// use metrics_core::sizing::nodes_for_rate;
/// use metrics_core::units::{RequestsPerSecond, RequestsPerSecondPerNode};
///
/// let per_node = RequestsPerSecondPerNode::new(32.0)?;
/// assert_eq!(nodes_for_rate(RequestsPerSecond::new(1_000.0)?, per_node)?.get(), 32.0); // 31.25
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: this project's worked sizing, after the metric dictionary, 5.
pub fn nodes_for_rate(
    rate: RequestsPerSecond,
    rate_per_node: RequestsPerSecondPerNode,
) -> Result<Nodes> {
    let quotient = rate.get() / above("rate_per_node", rate_per_node.get(), 0.0)?;
    // The quotient is checked first: rounding needs a finite number.
    let quotient = Nodes::named("rate / rate_per_node", quotient)?.get();
    Nodes::named("nodes", rounded_up(quotient))
}

/// The catalog entry of [`nodes_for_rate`].
#[cfg(feature = "catalog")]
pub const NODES_FOR_RATE: Metric = Metric {
    id: "nodes_for_rate",
    symbol: r"n_{\mathrm{nodes}}",
    name: text("Nodes for a request rate", "某请求速率所需节点数"),
    layer: Layer::Capacity,
    unit: Unit::NODE,
    inputs: &[
        Input::real(
            "rate",
            r"\lambda_{\mathrm{req}}",
            Unit::REQUEST.per(Unit::SECOND),
            (0.0, 5_000.0),
            text("request rate", "请求速率"),
        ),
        Input::real(
            "rate_per_node",
            r"\lambda_{\mathrm{node}}",
            Unit::REQUEST.per(Unit::SECOND).per(Unit::NODE),
            (0.5, 200.0),
            text("request rate that a node sustains", "单节点可承受的请求速率"),
        ),
    ],
    formula: Formula::Scalar {
        text: "ceil(rate / rate_per_node)",
        eval: |x| {
            computed(nodes_for_rate(
                RequestsPerSecond::new(x[0])?,
                RequestsPerSecondPerNode::new(x[1])?,
            ))
        },
        example: (&[1_000.0, 32.0], 32.0),
    },
    path: "metrics_core::sizing::nodes_for_rate",
    source: Source { work: "this project, after the metric dictionary", section: "5" },
    note: text(
        "It keeps no reserve: nodes that all run at their limit have growing queues.",
        "未留余量：所有节点都跑满时，队列会持续增长。",
    ),
    exported: &[],
};

/// GPUs to buy for a number of nodes and a reserve.
///
/// ```text
/// gpus_with_reserve = ceil(nodes * gpus_per_node * (1 + reserve))
/// ```
///
/// `nodes` of `gpus_per_node` GPUs carry the load, `reserve` is the share kept on top for peaks
/// and failures: 0.3 for 30 %. Rounded up to whole GPUs, not to whole nodes.
///
/// # Errors
///
/// [`Error::TooSmall`](crate::Error::TooSmall) if `reserve` is negative,
/// [`Error::TooLarge`](crate::Error::TooLarge) if the result leaves the range of a quantity.
///
/// # Examples
///
/// ```
/// use metrics_core::{sizing::gpus_with_reserve, units::Nodes};
///
/// assert_eq!(gpus_with_reserve(Nodes::new(32.0)?, 8, 0.0)?.get(), 256.0);
/// assert_eq!(gpus_with_reserve(Nodes::new(32.0)?, 8, 0.3)?.get(), 333.0); // 332.8
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: this project's worked sizing, which says "about 330".
pub fn gpus_with_reserve(nodes: Nodes, gpus_per_node: u64, reserve: f64) -> Result<Gpus> {
    let reserve = at_least("reserve", reserve, 0.0)?;
    let gpus = nodes.get() * gpus_per_node as f64 * (1.0 + reserve);
    let gpus = Gpus::named("nodes * gpus_per_node * (1 + reserve)", gpus)?.get();
    Gpus::named("GPUs", rounded_up(gpus))
}

/// The catalog entry of [`gpus_with_reserve`].
#[cfg(feature = "catalog")]
pub const GPUS_WITH_RESERVE: Metric = Metric {
    id: "gpus_with_reserve",
    symbol: r"n_{\mathrm{GPU}}",
    name: text("GPUs with a reserve", "含余量的 GPU 数"),
    layer: Layer::Capacity,
    unit: Unit::GPU,
    inputs: &[
        Input::real(
            "nodes",
            r"n_{\mathrm{nodes}}",
            Unit::NODE,
            (0.0, 256.0),
            text("nodes", "节点数"),
        ),
        Input::whole(
            "gpus_per_node",
            "g",
            Unit::GPU,
            (1.0, 16.0),
            text("GPUs of a node", "每节点 GPU 数"),
        )
        .counts_as(Unit::GPU.per(Unit::NODE)),
        Input::real(
            "reserve",
            r"r_{\mathrm{reserve}}",
            Unit::ONE,
            (0.0, 1.0),
            text("share kept in reserve", "余量比例"),
        ),
    ],
    formula: Formula::Scalar {
        text: "ceil(nodes * gpus_per_node * (1 + reserve))",
        eval: |x| {
            computed(gpus_with_reserve(Nodes::new(x[0])?, whole("gpus_per_node", x[1])?, x[2]))
        },
        example: (&[32.0, 8.0, 0.3], 333.0),
    },
    path: "metrics_core::sizing::gpus_with_reserve",
    source: Source { work: "this project's worked sizing", section: "256 GPUs and 30 % more" },
    note: text(
        "It rounds up to whole GPUs; machines come in whole nodes.",
        "按整块 GPU 向上取整；而机器只能整节点采购。",
    ),
    exported: &[],
};

/// Price of a token at a stated utilization.
///
/// ```text
/// cost_per_token = cost_per_hour / (tokens_per_hour * utilization)
/// ```
///
/// `cost_per_hour` is the price of the machines, `tokens_per_hour` what they yield at full load
/// within the SLO, `utilization` the share of that which is really asked for, above 0 and at most
/// 1. Idle machines cost too: at a utilization of 0.25 a token costs four times as much.
///
/// # Errors
///
/// [`Error::NotAbove`](crate::Error::NotAbove) if `tokens_per_hour` or `utilization` is 0 or less,
/// [`Error::TooLarge`](crate::Error::TooLarge) if `utilization > 1` or the result leaves the range
/// of a quantity.
///
/// # Examples
///
/// ```
/// use metrics_core::sizing::cost_per_token;
/// use metrics_core::units::{CostPerHour, TokensPerHour};
///
/// // 2.50 an hour for a million tokens at full load, half of which is used: 5 per million.
/// let cost = cost_per_token(CostPerHour::new(2.5)?, TokensPerHour::new(1e6)?, 0.5)?;
/// assert!((cost.get() * 1e6 - 5.0).abs() < 1e-12);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: this project's definition of cost.
pub fn cost_per_token(
    cost_per_hour: CostPerHour,
    tokens_per_hour: TokensPerHour,
    utilization: f64,
) -> Result<CostPerToken> {
    above("utilization", within("utilization", utilization, f64::MIN, 1.0)?, 0.0)?;
    let yielded = above("tokens_per_hour", tokens_per_hour.get(), 0.0)? * utilization;
    let yielded = above("tokens_per_hour * utilization", yielded, 0.0)?;
    CostPerToken::named("cost per token", cost_per_hour.get() / yielded)
}

/// The catalog entry of [`cost_per_token`].
#[cfg(feature = "catalog")]
pub const COST_PER_TOKEN: Metric = Metric {
    id: "cost_per_token",
    symbol: r"c_{\mathrm{token}}",
    name: text("Cost per token", "每 token 成本"),
    layer: Layer::Capacity,
    unit: Unit::CURRENCY.per(Unit::TOKEN),
    inputs: &[
        Input::real(
            "cost_per_hour",
            r"C_{\mathrm{hour}}",
            Unit::CURRENCY.per(Unit::HOUR),
            (0.0, 100.0),
            text("price of the machines per hour", "每小时机器成本"),
        ),
        Input::real(
            "tokens_per_hour",
            r"R_{\mathrm{hour}}",
            Unit::TOKEN.per(Unit::HOUR),
            (1e3, 1e8),
            text("tokens per hour at full load", "满载时每小时 token 数"),
        ),
        Input::real(
            "utilization",
            "u",
            Unit::ONE,
            (0.05, 1.0),
            text("share of the full load that is asked for", "实际负载占满载的比例"),
        ),
    ],
    formula: Formula::Scalar {
        text: "cost_per_hour / (tokens_per_hour * utilization)",
        eval: |x| {
            computed(cost_per_token(CostPerHour::new(x[0])?, TokensPerHour::new(x[1])?, x[2]))
        },
        example: (&[2.5, 1e6, 0.5], 5e-6),
    },
    path: "metrics_core::sizing::cost_per_token",
    source: Source { work: "this project", section: "cost at a stated utilization" },
    note: text(
        "A price without its utilization compares with nothing: idle machines cost too.",
        "不注明利用率的单价没有可比性：机器空闲时同样计费。",
    ),
    exported: &[],
};

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &CONCURRENCY_FROM_MEMORY,
    &REQUEST_RATE_PER_NODE,
    &NODES_FOR_RATE,
    &GPUS_WITH_RESERVE,
    &COST_PER_TOKEN,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Quotients that are whole on paper: 4.2/0.6 = 7, 100 · 1.1 = 110, 0.3/0.1 = 3.
    #[test]
    fn binary_rounding_never_costs_a_node() {
        let nodes = |rate, each| {
            let rate = RequestsPerSecond::new(rate).unwrap();
            nodes_for_rate(rate, RequestsPerSecondPerNode::new(each).unwrap()).unwrap().get()
        };
        for k in 1..=300_u32 {
            for tenths in 1..=60_u32 {
                let each = f64::from(tenths) / 10.0;
                let rate = f64::from(k * tenths) / 10.0;
                assert!((nodes(rate, each) - f64::from(k)).abs() < 0.5, "{rate}/{each}");
            }
        }
        for percent in 0..=100_u32 {
            let reserve = f64::from(percent) / 100.0;
            let gpus = gpus_with_reserve(Nodes::new(100.0).unwrap(), 1, reserve).unwrap();
            assert!((gpus.get() - f64::from(100 + percent)).abs() < 0.5, "{percent} %");
        }
    }

    /// What is really above a whole number needs one more, however little it is.
    #[test]
    fn a_millionth_of_a_node_is_a_node() {
        let rate = RequestsPerSecond::new(7.000_001).unwrap();
        let each = RequestsPerSecondPerNode::new(1.0).unwrap();
        assert!((nodes_for_rate(rate, each).unwrap().get() - 8.0).abs() < 0.5);
        assert_eq!(nodes_for_rate(RequestsPerSecond::ZERO, each).unwrap(), Nodes::ZERO);
    }

    #[test]
    fn a_model_that_does_not_fit_says_so() {
        let gb = |x: f64| Bytes::new(x * 1e9).unwrap();
        let kv = BytesPerToken::new(1e5).unwrap();
        let tokens = Tokens::new(1e3).unwrap();
        let say = |w, o| concurrency_from_memory(gb(80.0), gb(w), gb(o), kv, tokens);
        assert!(say(90.0, 0.0).unwrap_err().to_string().starts_with("card_bytes must be at least"));
        assert!(say(79.0, 2.0).unwrap_err().to_string().contains("overhead_bytes"));
        assert_eq!(say(78.0, 2.0), Ok(Requests::ZERO));
    }

    #[test]
    fn utilization_is_above_zero_and_at_most_one() {
        let cost = |u| {
            let full = TokensPerHour::new(1e6).unwrap();
            cost_per_token(CostPerHour::new(1.0).unwrap(), full, u)
        };
        assert!(cost(1.0).is_ok());
        assert_eq!(cost(0.0).unwrap_err().to_string(), "utilization must be above 0, got 0");
        assert_eq!(cost(-1.0).unwrap_err().to_string(), "utilization must be above 0, got -1");
        assert_eq!(cost(1.5).unwrap_err().to_string(), "utilization must be at most 1, got 1.5");
        assert!(cost(f64::NAN).is_err());
    }
}
