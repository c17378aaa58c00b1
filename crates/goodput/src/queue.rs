//! `goodput queue`: what queueing theory says, with a reading in plain words.

use anyhow::{Result, anyhow, bail};
use clap::Subcommand;
use metrics_core::{Seconds, format, grammar};
use queueing::{Mg1, Mm1, Mmc, Queue, WaitDistribution};
use serde_json::{Map, Value, json};

use crate::output::{self, Format};

pub const EXAMPLES: &str = "\
Rates are per second unless they say otherwise (20/s, 1200/min, 50000/h);
times need a unit (250us, 30ms, 1.5s).

Examples:
  goodput queue little --rate 20/s --time 500ms
  goodput queue mm1 --rate 4/s --service 100ms
  goodput queue mmc --rate 8/s --service 200ms --servers 3
  goodput queue mg1 --rate 4/s --service 100ms --cv 1.5
  goodput queue erlang --load 8.5 --servers 10
  goodput queue required --rate 4/s --mean 250ms
  goodput queue required --rate 4/s --percentile 99% --within 1s
  goodput queue demand --rate 0.5/s --input-tokens 512 --output-tokens 128 \\
      --prefill 0.5ms --decode 10ms";

/// Arguments of `queue`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    model: Model,
}

#[derive(Debug, Subcommand)]
enum Model {
    /// Little's law, L = λ·W, in three directions: give two of the three.
    #[command(after_help = "Example:\n  goodput queue little --rate 20/s --time 500ms")]
    Little {
        /// Requests in the system, L.
        #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
        number: Option<String>,
        /// Arrival rate, λ.
        #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
        rate: Option<String>,
        /// Time in the system, W.
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        time: Option<String>,
    },
    /// One server, Poisson arrivals, exponential service.
    #[command(after_help = "Example:\n  goodput queue mm1 --rate 4/s --service 100ms")]
    Mm1 {
        #[command(flatten)]
        load: Load,
    },
    /// Several servers with one queue, Poisson arrivals, exponential service.
    #[command(after_help = "Example:\n  goodput queue mmc --rate 8/s --service 200ms --servers 3")]
    Mmc {
        #[command(flatten)]
        load: Load,
        /// Number of servers, c.
        #[arg(long, short = 'c', allow_hyphen_values = true)]
        servers: String,
    },
    /// One server, Poisson arrivals, any service time (Pollaczek-Khinchine).
    #[command(after_help = "Example:\n  goodput queue mg1 --rate 4/s --service 100ms --cv 1.5")]
    Mg1 {
        #[command(flatten)]
        load: Load,
        /// Coefficient of variation of the service time: 0 constant, 1 exponential.
        #[arg(long, allow_hyphen_values = true)]
        cv: String,
    },
    /// Erlang B (blocked are lost) and Erlang C (blocked wait).
    #[command(after_help = "Example:\n  goodput queue erlang --load 8.5 --servers 10")]
    Erlang {
        /// Offered load in erlangs, a = λ/μ.
        #[arg(long, allow_hyphen_values = true)]
        load: String,
        /// Number of servers, c.
        #[arg(long, short = 'c', allow_hyphen_values = true)]
        servers: String,
    },
    /// The service rate that an M/M/1 server needs for a mean or percentile of the response.
    #[command(
        after_help = "Example:\n  goodput queue required --rate 4/s --percentile 99% --within 1s"
    )]
    Required {
        /// Arrival rate, λ.
        #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
        rate: String,
        /// Mean response time to reach.
        #[arg(
            long,
            value_name = "TIME",
            allow_hyphen_values = true,
            conflicts_with = "percentile"
        )]
        mean: Option<String>,
        /// Percentile of the response time to bound.
        #[arg(long, value_name = "SHARE", allow_hyphen_values = true, requires = "within")]
        percentile: Option<String>,
        /// The bound on that percentile.
        #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "percentile")]
        within: Option<String>,
    },
    /// From the tokens of a request to its service demand, μ and ρ of one replica.
    #[command(
        after_help = "Example:\n  goodput queue demand --rate 0.5/s --input-tokens 512 --output-tokens 128 \\\n      --prefill 0.5ms --decode 10ms"
    )]
    Demand {
        /// Arrival rate, λ.
        #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
        rate: String,
        /// Mean input tokens.
        #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
        input_tokens: String,
        /// Mean output tokens.
        #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
        output_tokens: String,
        /// Prefill time per input token.
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        prefill: String,
        /// Decode time per output token.
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        decode: String,
    },
}

/// Arrival rate and service of a queue.
#[derive(clap::Args, Debug)]
struct Load {
    /// Arrival rate, λ.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: String,
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

impl Load {
    fn lambda(&self) -> Result<f64> {
        rate("--rate", &self.rate)
    }

    /// Service rate of one server.
    fn mu(&self) -> Result<f64> {
        match (&self.service, &self.service_rate) {
            (Some(s), _) => {
                let s = time("--service", s)?;
                if s == 0.0 {
                    bail!("--service: the service time must be above 0");
                }
                Ok(1.0 / s)
            }
            (None, Some(r)) => rate("--service-rate", r),
            (None, None) => bail!("give --service or --service-rate"),
        }
    }
}

fn rate(option: &str, text: &str) -> Result<f64> {
    grammar::rate(text).map(f64::from).map_err(|e| anyhow!("{option}: {e}"))
}

fn time(option: &str, text: &str) -> Result<f64> {
    grammar::duration(text).map(Seconds::get).map_err(|e| anyhow!("{option}: {e}"))
}

fn count(option: &str, text: &str) -> Result<u64> {
    grammar::count(text).map_err(|e| anyhow!("{option}: {e}"))
}

fn share(option: &str, text: &str) -> Result<f64> {
    grammar::share(text).map_err(|e| anyhow!("{option}: {e}"))
}

/// A number without a unit.
fn pure(option: &str, text: &str) -> Result<f64> {
    text.trim().parse().map_err(|_| {
        anyhow!("{option}: `{}`: write a number, for example 1.5", output::one_line(text))
    })
}

/// What a figure is, so that it is printed with its unit.
#[derive(Clone, Copy)]
enum Kind {
    Time,
    Rate,
    Number,
    Share,
}

/// One figure of an answer.
struct Figure {
    /// Key in JSON and CSV, without the unit.
    key: String,
    label: String,
    value: f64,
    kind: Kind,
}

impl Figure {
    /// The key with its unit.
    fn full_key(&self) -> String {
        match self.kind {
            Kind::Time => format!("{}_s", self.key),
            Kind::Rate => format!("{}_per_s", self.key),
            Kind::Number | Kind::Share => self.key.clone(),
        }
    }

    fn shown(&self) -> String {
        match self.kind {
            Kind::Time => seconds(self.value),
            Kind::Rate => format!("{}/s", format::value(self.value)),
            Kind::Number => number(self.value),
            Kind::Share => figure_share(self.value),
        }
    }
}

/// A number that may be infinite.
fn number(x: f64) -> String {
    if x == f64::INFINITY { "infinite".to_owned() } else { format::value(x) }
}

/// A time that may be infinite.
fn seconds(s: f64) -> String {
    Seconds::new(s).map_or_else(|_| "infinite".to_owned(), format::time)
}

/// An answer: figures and what they mean.
struct Answer {
    model: String,
    figures: Vec<Figure>,
    reading: String,
}

impl Answer {
    fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), figures: Vec::new(), reading: String::new() }
    }

    fn add(&mut self, kind: Kind, key: impl Into<String>, label: impl Into<String>, value: f64) {
        self.figures.push(Figure { key: key.into(), label: label.into(), value, kind });
    }

    /// The means of a queue.
    fn means(&mut self, q: &impl Queue, p_wait: bool) {
        self.add(Kind::Share, "rho", "utilization, rho", q.utilization());
        if p_wait {
            self.add(Kind::Share, "p_wait", "an arrival has to wait", q.p_wait());
        }
        self.add(Kind::Number, "l", "requests in the system, L", q.l());
        self.add(Kind::Number, "lq", "requests waiting, Lq", q.lq());
        self.add(Kind::Time, "w", "mean response, W", q.w());
        self.add(Kind::Time, "wq", "mean wait, Wq", q.wq());
    }

    /// Percentiles of wait and response.
    fn percentiles(&mut self, q: &impl WaitDistribution) -> Result<()> {
        for p in [0.5, 0.9, 0.95, 0.99] {
            let name = format::value(p * 100.0);
            self.add(
                Kind::Time,
                format!("wq_p{name}"),
                format!("p{name} of the wait"),
                q.wq_quantile(p)?,
            );
        }
        for p in [0.5, 0.9, 0.95, 0.99] {
            let name = format::value(p * 100.0);
            self.add(
                Kind::Time,
                format!("w_p{name}"),
                format!("p{name} of the response"),
                q.w_quantile(p)?,
            );
        }
        Ok(())
    }

    fn render(&self, format: Format) -> Result<String> {
        let rows = |full: bool| -> Vec<Vec<String>> {
            self.figures
                .iter()
                .map(|f| {
                    if full {
                        vec![f.full_key(), f.value.to_string()]
                    } else {
                        vec![f.label.clone(), f.shown()]
                    }
                })
                .collect()
        };
        Ok(match format {
            Format::Text => {
                let rows: Vec<Vec<String>> = rows(false)
                    .into_iter()
                    .map(|r| vec![format!("  {}", r[0]), r[1].clone()])
                    .collect();
                let table = output::plain_table(&["", ""], &rows);
                format!("{}\n{}\n{}\n", self.model, table.trim_start_matches('\n'), self.reading)
            }
            Format::Csv => output::csv_text(&["figure", "value"], &rows(true))?,
            Format::Md => {
                let table = output::markdown_table(&["figure", "value"], &rows(false));
                format!("**{}**\n\n{table}\n{}\n", self.model, self.reading)
            }
            Format::Json => {
                // JSON has no infinity; an unbounded time is null.
                let figures: Map<String, Value> =
                    self.figures.iter().map(|f| (f.full_key(), json!(f.value))).collect();
                output::json_text(&json!({
                    "schema_version": 1,
                    "model": self.model,
                    "figures": figures,
                    "reading": self.reading,
                }))?
            }
        })
    }
}

/// How near a server is to overload, in words.
fn load_in_words(rho: f64) -> &'static str {
    if rho < 0.7 {
        "There is room: a tenth more load changes little."
    } else if rho < 0.9 {
        "Waits grow fast from here: a tenth more load costs far more than a tenth."
    } else {
        "This is near overload: small errors in the rates decide whether the queue holds."
    }
}

/// Runs the command; what it prints.
pub fn run(arguments: &Arguments, format: Format) -> Result<String> {
    let answer = match &arguments.model {
        Model::Little { number, rate, time } => {
            let number = number.as_deref().map(|n| pure("--number", n)).transpose()?;
            little(number, rate.as_deref(), time.as_deref())?
        }
        Model::Mm1 { load } => mm1(load.lambda()?, load.mu()?)?,
        Model::Mmc { load, servers } => {
            mmc(load.lambda()?, load.mu()?, count("--servers", servers)?)?
        }
        Model::Mg1 { load, cv } => mg1(load.lambda()?, load.mu()?, pure("--cv", cv)?)?,
        Model::Erlang { load, servers } => {
            erlang(count("--servers", servers)?, pure("--load", load)?)?
        }
        Model::Required { rate: r, mean, percentile, within } => {
            required(rate("--rate", r)?, mean.as_deref(), percentile.as_deref(), within.as_deref())?
        }
        Model::Demand { rate: r, input_tokens, output_tokens, prefill, decode } => demand(
            rate("--rate", r)?,
            count("--input-tokens", input_tokens)?,
            count("--output-tokens", output_tokens)?,
            time("--prefill", prefill)?,
            time("--decode", decode)?,
        )?,
    };
    answer.render(format)
}

fn little(number: Option<f64>, rate_text: Option<&str>, time_text: Option<&str>) -> Result<Answer> {
    let lambda = rate_text.map(|r| rate("--rate", r)).transpose()?;
    let w = time_text.map(|t| time("--time", t)).transpose()?;
    let (l, lambda, w) = match (number, lambda, w) {
        (None, Some(lambda), Some(w)) => (queueing::little::little_l(lambda, w)?, lambda, w),
        (Some(l), None, Some(w)) => (l, queueing::little::little_lambda(l, w)?, w),
        (Some(l), Some(lambda), None) => (l, lambda, queueing::little::little_w(l, lambda)?),
        _ => bail!("give two of --number, --rate and --time, and the third follows"),
    };
    let mut answer = Answer::new("Little's law: L = lambda * W");
    answer.add(Kind::Number, "l", "requests in the system, L", l);
    answer.add(Kind::Rate, "lambda", "arrival rate, lambda", lambda);
    answer.add(Kind::Time, "w", "time in the system, W", w);
    answer.reading = format!(
        "At {}/s and {} each, {} requests are in the system on average, whatever the distributions.",
        format::value(lambda),
        seconds(w),
        format::value(l)
    );
    Ok(answer)
}

fn mm1(lambda: f64, mu: f64) -> Result<Answer> {
    let q = Mm1::new(lambda, mu)?;
    let mut answer = Answer::new(format!(
        "M/M/1: {}/s arrive, one server takes {} each on average",
        format::value(lambda),
        seconds(1.0 / mu)
    ));
    answer.means(&q, false);
    answer.percentiles(&q)?;
    answer.reading = format!(
        "The server is busy {} of the time, and as many arrivals wait. The mean response is {} times the bare service. {}",
        format::percent(q.utilization()),
        format::significant(q.w() * mu, 3),
        load_in_words(q.utilization())
    );
    Ok(answer)
}

fn mmc(lambda: f64, mu: f64, servers: u64) -> Result<Answer> {
    let q = Mmc::new(lambda, mu, servers)?;
    let mut answer = Answer::new(format!(
        "M/M/{servers}: {}/s arrive, {} with one queue {} {} each on average",
        format::value(lambda),
        format::things(servers, "server"),
        if servers == 1 { "takes" } else { "take" },
        seconds(1.0 / mu)
    ));
    answer.means(&q, true);
    answer.percentiles(&q)?;
    answer.reading = format!(
        "The servers are busy {} of the time; {} of the arrivals wait. {}",
        format::percent(q.utilization()),
        format::percent(q.p_wait()),
        load_in_words(q.utilization())
    );
    Ok(answer)
}

fn mg1(lambda: f64, mu: f64, cv: f64) -> Result<Answer> {
    let q = Mg1::from_cv(lambda, 1.0 / mu, cv)?;
    let mut answer = Answer::new(format!(
        "M/G/1: {}/s arrive, one server takes {} each on average with coefficient of variation {}",
        format::value(lambda),
        seconds(1.0 / mu),
        number(cv)
    ));
    answer.means(&q, false);
    let exponential = Mm1::new(lambda, mu)?.wq();
    if q.wq() == f64::INFINITY {
        answer.reading = format!(
            "The server is busy {} of the time, and still the wait has no finite mean: no load is \
             light enough for service times of infinite variance.",
            format::percent(q.utilization())
        );
        return Ok(answer);
    }
    let against = if 0.0 < exponential {
        let times = format::significant(q.wq() / exponential, 3);
        format!(" The mean wait is {times} times that of exponential service at the same load.")
    } else {
        String::new()
    };
    answer.reading = format!(
        "The server is busy {} of the time.{against} Mean and cv do not settle percentiles. {}",
        format::percent(q.utilization()),
        load_in_words(q.utilization())
    );
    Ok(answer)
}

fn erlang(servers: u64, load: f64) -> Result<Answer> {
    let b = queueing::erlang_b(servers, load)?;
    let mut answer = Answer::new(format!(
        "Erlang: {} erlangs offered to {}",
        format::value(load),
        format::things(servers, "server")
    ));
    answer.add(Kind::Share, "erlang_b", "lost if nobody may wait, B", b);
    let lost = format!("If nobody may wait, {} of the arrivals are lost.", figure_share(b));
    answer.reading = match queueing::erlang_c(servers, load) {
        Ok(c) => {
            answer.add(Kind::Share, "erlang_c", "has to wait if all may, C", c);
            format!("{lost} If all may wait, {} do.", figure_share(c))
        }
        Err(queueing::QueueError::Unstable { .. }) => {
            format!(
                "{lost} If all may wait, the queue grows without end: the load is not below the servers."
            )
        }
        Err(e) => return Err(e.into()),
    };
    Ok(answer)
}

/// A share with four significant digits, or with as many as it takes to tell it from all.
fn figure_share(x: f64) -> String {
    match format::significant(x * 100.0, 4) {
        all if all == "100" => format::percent(x).replace("100.0 %", "100 %"),
        text => format!("{text} %"),
    }
}

fn required(
    lambda: f64,
    mean: Option<&str>,
    percentile: Option<&str>,
    within: Option<&str>,
) -> Result<Answer> {
    let (mu, target) = match (mean, percentile, within) {
        (Some(w), None, None) => {
            let w = time("--mean", w)?;
            (
                queueing::plan::mm1_service_rate_for_mean_response(lambda, w)?,
                format!("a mean response of {}", seconds(w)),
            )
        }
        (None, Some(p), Some(t)) => {
            let (p, t) = (share("--percentile", p)?, time("--within", t)?);
            let mu = queueing::plan::mm1_service_rate_for_response_quantile(lambda, p, t)?;
            (mu, format!("{} of the responses within {}", format::percent(p), seconds(t)))
        }
        _ => bail!("give --mean TIME, or --percentile SHARE with --within TIME"),
    };
    let mut answer =
        Answer::new(format!("M/M/1 service rate for {target} at {}/s", format::value(lambda)));
    answer.add(Kind::Rate, "mu", "service rate, mu", mu);
    answer.add(Kind::Time, "service", "mean service time, 1/mu", 1.0 / mu);
    answer.add(Kind::Share, "rho", "utilization, rho", lambda / mu);
    answer.reading = format!(
        "A server that takes {} each on average reaches it, busy {} of the time.",
        seconds(1.0 / mu),
        format::percent(lambda / mu)
    );
    Ok(answer)
}

fn demand(lambda: f64, n_in: u64, n_out: u64, prefill: f64, decode: f64) -> Result<Answer> {
    use metrics_core::SecondsPerToken;
    let per_token =
        |option: &str, s: f64| SecondsPerToken::new(s).map_err(|e| anyhow!("{option}: {e}"));
    let demand = metrics_core::demand::request_service_demand(
        n_in,
        n_out,
        per_token("--prefill", prefill)?,
        per_token("--decode", decode)?,
    )?;
    let mu = queueing::demand::mu_from_demand(demand)?;
    let rate = metrics_core::units::RequestsPerSecond::new(lambda)?;
    let rho = queueing::demand::rho_from_demand(rate, demand)?;
    let mut answer = Answer::new(format!(
        "Service demand: {n_in} input and {n_out} output tokens at {} and {} a token, {}/s arrive",
        seconds(prefill),
        seconds(decode),
        format::value(lambda)
    ));
    answer.add(Kind::Time, "service_demand", "service demand, D", demand.get());
    answer.add(Kind::Rate, "mu", "service rate of one replica, mu", mu);
    answer.add(Kind::Share, "rho", "utilization of one replica, rho", rho);
    answer.reading = if rho < 1.0 {
        format!(
            "One replica that serves one request at a time is busy {} of the time. {}",
            format::percent(rho),
            load_in_words(rho)
        )
    } else {
        format!(
            "One replica that serves one request at a time cannot keep up: {} replicas' worth of work arrives.",
            format::significant(rho, 3)
        )
    };
    Ok(answer)
}
