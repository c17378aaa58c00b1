//! What the models' flags mean.

use anyhow::{Result, anyhow, bail};
use metrics_core::{Seconds, grammar};
use queueing::shape::Shape;

use crate::output;

pub fn rate(option: &str, text: &str) -> Result<f64> {
    grammar::rate(text).map(f64::from).map_err(|e| anyhow!("{option}: {e}"))
}

pub fn time(option: &str, text: &str) -> Result<f64> {
    grammar::duration(text).map(Seconds::get).map_err(|e| anyhow!("{option}: {e}"))
}

pub fn count(option: &str, text: &str) -> Result<u64> {
    grammar::count(text).map_err(|e| anyhow!("{option}: {e}"))
}

pub fn share(option: &str, text: &str) -> Result<f64> {
    grammar::share(text).map_err(|e| anyhow!("{option}: {e}"))
}

/// A number without a unit.
pub fn pure(option: &str, text: &str) -> Result<f64> {
    text.trim().parse().map_err(|_| {
        anyhow!("{option}: `{}`: write a number, for example 1.5", output::one_line(text))
    })
}

pub fn shape(option: &str, text: &str) -> Result<Shape> {
    text.parse().map_err(|e| anyhow!("{option}: {e}"))
}

/// A model's error in the words of the command line: it begins with the symbol of an input, which
/// is the user's option under another name.
pub fn in_options(e: &impl std::fmt::Display, options: &[(&str, &str)]) -> anyhow::Error {
    let text = e.to_string();
    let (symbol, rest) = text.split_once(' ').unwrap_or((&text, ""));
    match options.iter().find(|(s, _)| *s == symbol) {
        Some((_, option)) => anyhow!("{option} {rest}"),
        None => anyhow!("{text}"),
    }
}

/// A list separated by commas.
pub fn list<T>(text: &str, one: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    text.split(',').map(|item| one(item.trim())).collect()
}

/// Arrival rate and service of a queue.
#[derive(clap::Args, Debug)]
pub struct Load {
    /// Arrival rate, λ.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: String,
    #[command(flatten)]
    service: Service,
}

/// Service time of a queue.
#[derive(clap::Args, Debug)]
pub struct Service {
    /// Mean service time, 1/μ.
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        required_unless_present = "service_rate"
    )]
    service: Option<String>,
    /// Service rate of one server, μ, instead of --service.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, conflicts_with = "service")]
    service_rate: Option<String>,
}

impl Service {
    /// Mean service time.
    pub fn mean(&self) -> Result<f64> {
        match (&self.service, &self.service_rate) {
            (Some(s), _) => {
                let s = time("--service", s)?;
                if s == 0.0 {
                    bail!("--service: the service time must be above 0");
                }
                Ok(s)
            }
            (None, Some(r)) => {
                let r = rate("--service-rate", r)?;
                if r == 0.0 {
                    bail!("--service-rate: the service rate must be above 0");
                }
                Ok(1.0 / r)
            }
            (None, None) => bail!("give --service or --service-rate"),
        }
    }

    /// Service rate of one server.
    pub fn mu(&self) -> Result<f64> {
        match &self.service_rate {
            Some(r) => {
                self.mean()?;
                rate("--service-rate", r)
            }
            None => Ok(1.0 / self.mean()?),
        }
    }
}

impl Load {
    pub fn lambda(&self) -> Result<f64> {
        rate("--rate", &self.rate)
    }

    pub fn mean(&self) -> Result<f64> {
        self.service.mean()
    }

    pub fn mu(&self) -> Result<f64> {
        self.service.mu()
    }
}

/// What to show of a model, beside its means.
#[derive(clap::Args, Debug)]
pub struct Show {
    /// Percentiles of wait and response, in percent, separated by commas.
    #[arg(long, value_name = "LIST", default_value = "50,90,95,99")]
    percentiles: String,
    /// Also the share of the waits and responses that end within this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    within: Option<String>,
    /// Also the probabilities of 0 to N requests in the system.
    #[arg(long, value_name = "N")]
    states: Option<String>,
    /// Also a curve: wait and response against load; loads of your own are separated by commas.
    #[arg(
        long,
        value_name = "LOADS",
        num_args = 0..=1,
        default_missing_value = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.95,0.99"
    )]
    curve: Option<String>,
}

impl Show {
    /// Percentiles as (name, probability).
    pub fn percentiles(&self) -> Result<Vec<(String, f64)>> {
        list(&self.percentiles, |item| {
            let text = item.trim_start_matches('p').trim_end_matches('%');
            let p = share("--percentiles", &format!("{text}%"))?;
            Ok((text.to_owned(), p))
        })
    }

    pub fn within(&self) -> Result<Option<f64>> {
        self.within.as_deref().map(|t| time("--within", t)).transpose()
    }

    pub fn states(&self) -> Result<Option<u64>> {
        let Some(text) = &self.states else { return Ok(None) };
        let n = count("--states", text)?;
        if 10_000 < n {
            bail!("--states: at most 10000 states are listed, got {n}");
        }
        Ok(Some(n))
    }

    pub fn curve(&self) -> Result<Option<Vec<f64>>> {
        let Some(text) = &self.curve else { return Ok(None) };
        list(text, |item| {
            let load = match share("--curve", item) {
                Ok(load) => load,
                // Beyond full load a queue with finite room or impatience still has an answer.
                Err(_) => pure("--curve", item)?,
            };
            if load.is_finite() && 0.0 <= load {
                Ok(load)
            } else {
                bail!("--curve: `{item}`: a load is a number from 0 on, for example 0.9")
            }
        })
        .map(Some)
    }
}
