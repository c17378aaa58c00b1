//! `goodput cost`: what tokens cost at a real load.

use anyhow::{Result, anyhow};
use capacity::cost::{BreakEven, CostAnswer, CostRequest, Costs, cost};
use metrics_core::format::{percent, significant};
use metrics_core::grammar;
use metrics_core::units::{CostPerToken, RequestsPerSecond};

use crate::output::{self, Format};

pub const EXAMPLES: &str = "\
An hour costs the same whether it is used or not: without --utilization there is only a lower
bound. Rates are those of all machines that the price is for.

Exit codes: 1 if --claimed is below what the same figures allow.

Examples:
  goodput cost --price 2.50/h --output-rate 2400/s --utilization 35%
  goodput cost --price 2.50/h --output-rate 2400/s --input-rate 9600/s --utilization 35% \\
      --slo-rate 1700/s --api-output 0.60/1M --api-input 0.15/1M
  goodput cost --price 2.50/h --output-rate 50/s --claimed 0.14/1M";

/// Arguments of `cost`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Price of all GPUs of the machine together, per hour, 2.50/h, in any currency.
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true)]
    price: String,
    /// Output tokens per second at full load.
    #[arg(long, value_name = "RATE")]
    output_rate: String,
    /// Input tokens per second at the same load.
    #[arg(long, value_name = "RATE")]
    input_rate: Option<String>,
    /// The real load as a share of the full one, over all hours that are paid.
    #[arg(long, value_name = "SHARE")]
    utilization: Option<String>,
    /// Output tokens per second at which the objectives are still met.
    #[arg(long, value_name = "RATE")]
    slo_rate: Option<String>,
    /// How many output tokens an input token is worth, 0.25 [default: that of the API's prices].
    #[arg(long, value_name = "NUMBER")]
    input_weight: Option<f64>,
    /// What an API asks for output tokens, 0.60/1M.
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true)]
    api_output: Option<String>,
    /// What it asks for input tokens.
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true)]
    api_input: Option<String>,
    /// A cost of output tokens that somebody states for these machines.
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true)]
    claimed: Option<String>,
    /// Twice the memory bandwidth over the bytes of the weights, in output tokens per second: a
    /// rate below it is that of one request.
    #[arg(long, value_name = "RATE")]
    batch_one_rate: Option<String>,
}

impl Arguments {
    fn request(&self) -> Result<CostRequest> {
        let rate = |option: &str, text: &str| {
            grammar::rate(text).map(RequestsPerSecond::get).map_err(|e| anyhow!("{option}: {e}"))
        };
        let rates = |option, text: &Option<String>| {
            text.as_deref().map(|text| rate(option, text)).transpose()
        };
        let price = |option: &str, text: &Option<String>| {
            let read = text.as_deref().map(grammar::token_price).transpose();
            read.map(|p| p.map(CostPerToken::get)).map_err(|e| anyhow!("{option}: {e}"))
        };
        let utilization = self.utilization.as_deref().map(grammar::share).transpose();
        Ok(CostRequest {
            price_per_h: grammar::price(&self.price).map_err(|e| anyhow!("--price: {e}"))?.get(),
            output_tokens_per_s: rate("--output-rate", &self.output_rate)?,
            input_tokens_per_s: rates("--input-rate", &self.input_rate)?,
            utilization: utilization.map_err(|e| anyhow!("--utilization: {e}"))?,
            slo_output_tokens_per_s: rates("--slo-rate", &self.slo_rate)?,
            input_weight: self.input_weight,
            api_output_per_token: price("--api-output", &self.api_output)?,
            api_input_per_token: price("--api-input", &self.api_input)?,
            claimed_per_token: price("--claimed", &self.claimed)?,
            batch_one_tokens_per_s: rates("--batch-one-rate", &self.batch_one_rate)?,
        })
    }
}

/// Runs the command; what it prints and the exit code.
pub fn run(arguments: &Arguments, format: Format) -> Result<(String, u8)> {
    let answer = cost(&arguments.request()?).map_err(|e| output::in_flags(&e))?;
    let code = u8::from(answer.claim.is_some_and(|c| c.impossible));
    let text = match format {
        Format::Json => output::json_text(&serde_json::to_value(&answer)?)?,
        Format::Csv => output::csv_of_json(&serde_json::to_value(&answer)?)?,
        Format::Text | Format::Md => text(&answer, format == Format::Md),
    };
    Ok((text, code))
}

/// An amount of money.
fn money(x: f64) -> String {
    significant(x, 3)
}

/// A load with its costs.
fn row(name: &str, costs: &Costs) -> Vec<String> {
    let optional = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), money);
    vec![
        name.to_owned(),
        percent(costs.utilization),
        significant(costs.output_tokens_per_s, 4),
        money(costs.per_million_output),
        optional(costs.per_million_tokens),
        optional(costs.weighted.map(|w| w.per_million_input)),
        optional(costs.weighted.map(|w| w.per_million_output)),
    ]
}

fn text(answer: &CostAnswer, md: bool) -> String {
    let r = &answer.request;
    let mut out = format!(
        "{}/h for {} tok/s out at full load\n\n",
        metrics_core::format::plain(r.price_per_h),
        significant(r.output_tokens_per_s, 4)
    );
    let mut rows = vec![row("every hour full (a lower bound)", &answer.full)];
    rows.extend(answer.at_slo.as_ref().map(|c| row("at the SLO's limit, all hours", c)));
    rows.extend(answer.real.as_ref().map(|c| row("at the real utilization", c)));
    let mut header = vec!["load", "share", "out tok/s", "1M out alone", "1M in + out"];
    let width = if answer.full.weighted.is_some() {
        header.extend(["1M in", "1M out"]);
        7
    } else if answer.full.per_million_tokens.is_some() {
        5
    } else {
        header.truncate(4);
        4
    };
    for row in &mut rows {
        row.truncate(width);
    }
    out.push_str(&output::table(&header, &rows, md));
    if let Some(w) = answer.full.weighted {
        let weight = significant(w.input_weight, 3);
        out.push_str(&format!(
            "\n1M in, 1M out: an input token bears {weight} of what an output token does\n"
        ));
    }
    if let Some(b) = &answer.break_even {
        out.push_str(&format!("\n{}\n", break_even(b, r.slo_output_tokens_per_s.is_some())));
    }
    if let Some(f) = answer.finding() {
        let (id, level) = (f.check.id, f.level.name());
        out.push_str(&format!("\n{id} {level}  {}\n", f.says));
    }
    if let Some(c) = answer.claim {
        let (claimed, least) = (money(c.per_million_output), money(c.least_per_million_output));
        let says = if c.impossible {
            format!(
                "is too low by a factor of {}: these figures give at least {least}",
                significant(c.too_low_by, 3)
            )
        } else {
            format!(
                "is possible at a utilization of {}: every hour full is {least}",
                percent(c.too_low_by.min(1.0))
            )
        };
        out.push_str(&format!("\nclaim     {claimed} per 1M output tokens {says}\n"));
    }
    out
}

fn break_even(b: &BreakEven, slo: bool) -> String {
    let limit = if slo { "the SLO's limit" } else { "full load" };
    let lead = format!(
        "API       {} per 1M output tokens with their input; ",
        money(b.api_per_million_output)
    );
    let rate = significant(b.output_tokens_per_s, 4);
    if b.reachable {
        format!(
            "{lead}own machines are cheaper above {rate} tok/s out, {} of full load, all hours",
            percent(b.utilization)
        )
    } else {
        format!(
            "{lead}own machines would need {rate} tok/s out to cost the same, which is above {limit}: the API is cheaper at any load"
        )
    }
}
