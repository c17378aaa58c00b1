//! What tokens cost on machines that are paid by the hour.
//!
//! An hour costs the same whether it is used or not, so a cost per token has no meaning without
//! the load that it is for. [`cost`] gives it at three loads where they are known: with every hour
//! full, which no service keeps up and which is a lower bound; at the real utilization; and at the
//! rate at which the objectives are still met. Against the price of an API it gives the load above
//! which machines of one's own are cheaper.

use metrics_core::sizing::cost_per_token;
use metrics_core::units::{CostPerHour, TokensPerHour};
use metrics_core::validity::Finding;
use metrics_core::validity::model::cost_at_full_duty;
use serde::{Deserialize, Serialize};

use crate::error::{PlanError, Result};

/// The version of [`CostAnswer`]'s fields.
pub const SCHEMA_VERSION: u64 = 1;

/// A claim that differs from the figures by more than this is not a matter of rounding.
const CLAIM_TOLERANCE: f64 = 0.05;

/// Machines, their rates, and what to compare with. Prices are in one currency, whichever it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CostRequest {
    /// Price of all machines for an hour.
    pub price_per_h: f64,
    /// Output tokens per second at full load, of all machines.
    pub output_tokens_per_s: f64,
    /// Input tokens per second at the same load, if they are to be priced.
    pub input_tokens_per_s: Option<f64>,
    /// The load as a share of the full one, over all hours that are paid.
    pub utilization: Option<f64>,
    /// Output tokens per second at which the objectives are still met.
    pub slo_output_tokens_per_s: Option<f64>,
    /// How many output tokens an input token is worth; that of the API's prices if not given.
    pub input_weight: Option<f64>,
    /// Price of an API for an output token.
    pub api_output_per_token: Option<f64>,
    /// Its price for an input token.
    pub api_input_per_token: Option<f64>,
    /// A cost per output token that somebody states for these machines.
    pub claimed_per_token: Option<f64>,
    /// Twice the memory bandwidth over the bytes of the weights: output tokens per second below
    /// which a rate is that of one request and not of a batch.
    pub batch_one_tokens_per_s: Option<f64>,
}

/// What a million tokens cost at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The load as a share of the full one.
    pub utilization: f64,
    /// Output tokens per second, over all hours that are paid.
    pub output_tokens_per_s: f64,
    /// A million output tokens, which bear all of the cost.
    pub per_million_output: f64,
    /// A million tokens, input and output alike; none without the input rate.
    pub per_million_tokens: Option<f64>,
    /// A million input and a million output tokens where they bear the cost by weight.
    pub weighted: Option<Weighted>,
}

/// The cost split between input and output tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// How many output tokens an input token is worth.
    pub input_weight: f64,
    /// A million input tokens.
    pub per_million_input: f64,
    /// A million output tokens.
    pub per_million_output: f64,
}

/// The load at which machines cost what an API asks for the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakEven {
    /// What the API asks for a million output tokens with the input tokens that go with them.
    pub api_per_million_output: f64,
    /// Output tokens per second at which both cost the same.
    pub output_tokens_per_s: f64,
    /// That as a share of the full load; above 1 the API is cheaper at any load.
    pub utilization: f64,
    /// Whether that load is at most the one at which the objectives are met, where that is known,
    /// else at most the full one.
    pub reachable: bool,
}

/// What the inputs say of a stated cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What is claimed for a million output tokens.
    pub per_million_output: f64,
    /// What the same inputs come to, every hour full: no load makes it less.
    pub least_per_million_output: f64,
    /// The second over the first: above 1, the claim is too low.
    pub too_low_by: f64,
    /// Whether the claim is below what is possible, beyond rounding.
    pub impossible: bool,
}

/// Costs at each load that is known, and what to think of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostAnswer {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u64,
    /// `goodput-cost`.
    pub kind: String,
    /// What was asked.
    pub request: CostRequest,
    /// With every hour full: a lower bound.
    pub full: Costs,
    /// At the real utilization, if it is stated.
    pub real: Option<Costs>,
    /// At the objectives' limit, if it is stated.
    pub at_slo: Option<Costs>,
    /// Against the API, if its prices are stated.
    pub break_even: Option<BreakEven>,
    /// What the claim is worth, if there is one.
    pub claim: Option<Claim>,
}

impl CostAnswer {
    /// Finding W34: no utilization is stated, or the rate is that of a single request.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        let r = &self.request;
        cost_at_full_duty(r.utilization, r.output_tokens_per_s, r.batch_one_tokens_per_s)
    }
}

/// A price that somebody may pay for machines, per hour, in whatever currency.
pub(crate) const PRICE: (f64, f64) = (1e-4, 1e6);
/// Tokens per second of the largest fleet.
const RATE: (f64, f64) = (0.0, 1e12);

/// Checks what is given.
fn checked(r: &CostRequest) -> Result<(), PlanError> {
    let check = |input, value, bounds, unit| PlanError::bounds(input, value, bounds, unit);
    check("price", r.price_per_h, PRICE, "/h")?;
    check("output rate", r.output_tokens_per_s, RATE, " tokens/s")?;
    for (input, value, bounds, unit) in [
        ("input rate", r.input_tokens_per_s, RATE, " tokens/s"),
        ("utilization", r.utilization, (0.0, 1.0), ""),
        ("slo rate", r.slo_output_tokens_per_s, RATE, " tokens/s"),
        ("input weight", r.input_weight, (0.0, 1.0), ""),
        ("api output", r.api_output_per_token, (0.0, 1.0), ""),
        ("api input", r.api_input_per_token, (0.0, 1.0), ""),
        ("claimed", r.claimed_per_token, (0.0, 1.0), ""),
        ("batch one rate", r.batch_one_tokens_per_s, RATE, " tokens/s"),
    ] {
        value.map(|value| check(input, value, bounds, unit)).transpose()?;
    }
    if let Some(slo) = r.slo_output_tokens_per_s.filter(|slo| r.output_tokens_per_s < *slo) {
        return Err(PlanError::Contradiction(format!(
            "the rate at the SLO must be at most the output rate at full load, {} tokens/s, got {slo}",
            r.output_tokens_per_s
        )));
    }
    if r.input_tokens_per_s.is_none()
        && (r.input_weight.is_some() || r.api_input_per_token.is_some())
    {
        return Err(PlanError::Input {
            input: "input rate",
            problem: "a price or a weight of input tokens needs how many there are".to_owned(),
        });
    }
    if r.api_input_per_token.is_some() && r.api_output_per_token.is_none() {
        return Err(PlanError::Input {
            input: "api output",
            problem: "is needed beside that of an input token".to_owned(),
        });
    }
    Ok(())
}

const MILLION: f64 = 1e6;
const HOUR_S: f64 = 3600.0;

/// Costs at a share of the full load.
fn at(r: &CostRequest, utilization: f64) -> Result<Costs, PlanError> {
    let price = CostPerHour::new(r.price_per_h)?;
    let per_million = |tokens_per_s: f64| -> Result<f64, PlanError> {
        let tokens = TokensPerHour::new(tokens_per_s * HOUR_S)?;
        Ok(cost_per_token(price, tokens, utilization)?.get() * MILLION)
    };
    let api_weight = r.api_input_per_token.zip(r.api_output_per_token).map(|(i, o)| i / o);
    let weighted = match (r.input_weight.or(api_weight), r.input_tokens_per_s) {
        (Some(input_weight), Some(input)) => {
            let per_million_output = per_million(r.output_tokens_per_s + input_weight * input)?;
            let per_million_input = input_weight * per_million_output;
            Some(Weighted { input_weight, per_million_input, per_million_output })
        }
        _ => None,
    };
    Ok(Costs {
        utilization,
        output_tokens_per_s: r.output_tokens_per_s * utilization,
        per_million_output: per_million(r.output_tokens_per_s)?,
        per_million_tokens: r
            .input_tokens_per_s
            .map(|input| per_million(r.output_tokens_per_s + input))
            .transpose()?,
        weighted,
    })
}

/// What tokens cost.
///
/// ```text
/// cost of a token = price per hour / (3600 * tokens per second at full load * utilization)
/// ```
///
/// # Errors
///
/// [`PlanError::Bounds`] for a price, a rate or a share that cannot be, and
/// [`PlanError::Contradiction`] or [`PlanError::Input`] for inputs that do not fit together.
///
/// # Examples
///
/// ```
/// use capacity::cost::{CostRequest, cost};
///
/// let answer = cost(&CostRequest {
///     price_per_h: 2.0,
///     output_tokens_per_s: 400.0,
///     utilization: Some(0.5),
///     ..CostRequest::default()
/// })?;
/// // 2 an hour over 1.44 million tokens is 1.39 a million, and half of the hours are idle.
/// assert!((answer.full.per_million_output - 1.389).abs() < 1e-3);
/// assert!((answer.real.unwrap().per_million_output - 2.778).abs() < 1e-3);
/// # Ok::<(), capacity::PlanError>(())
/// ```
pub fn cost(request: &CostRequest) -> Result<CostAnswer, PlanError> {
    checked(request)?;
    let full = at(request, 1.0)?;
    let slo_share = request.slo_output_tokens_per_s.map(|slo| slo / request.output_tokens_per_s);
    let break_even = request.api_output_per_token.map(|output| {
        let inputs = request.input_tokens_per_s.unwrap_or(0.0) / request.output_tokens_per_s;
        let api = output + request.api_input_per_token.unwrap_or(0.0) * inputs;
        let rate = request.price_per_h / HOUR_S / api;
        let utilization = rate / request.output_tokens_per_s;
        BreakEven {
            api_per_million_output: api * MILLION,
            output_tokens_per_s: rate,
            utilization,
            reachable: utilization <= slo_share.unwrap_or(1.0),
        }
    });
    let claim = request.claimed_per_token.map(|claimed| {
        let claimed = claimed * MILLION;
        let too_low_by = full.per_million_output / claimed;
        Claim {
            per_million_output: claimed,
            least_per_million_output: full.per_million_output,
            too_low_by,
            impossible: 1.0 + CLAIM_TOLERANCE < too_low_by,
        }
    });
    Ok(CostAnswer {
        schema_version: SCHEMA_VERSION,
        kind: "goodput-cost".to_owned(),
        real: request.utilization.map(|u| at(request, u)).transpose()?,
        at_slo: slo_share.map(|share| at(request, share)).transpose()?,
        request: request.clone(),
        full,
        break_even,
        claim,
    })
}
