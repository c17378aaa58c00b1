//! `goodput plan`: how many replicas a load needs.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use capacity::plan::disagg::Transfer;
use capacity::plan::search::Decision;
use capacity::plan::{Binding, Bounds, LoadSpec, PlanAnswer, PlanRequest, Verdict, plan};
use metrics_core::grammar;
use metrics_core::interval::Confidence;
use metrics_core::units::{Bytes, CostPerHour, RequestsPerSecond};
use metrics_core::{Seconds, format};
use serving_io::lengths;

use crate::output::{self, Format, check_outputs};
use crate::sim::{EngineArguments, count_from, seed, step_time_file};
use crate::trace::Part;

pub const EXAMPLES: &str = "\
The load alone needs no step time: how many requests a second, and how many at once.
With lengths and a step time, three methods answer beside each other: closed form, queueing,
simulation. Lengths are laws as in `goodput sim`; a bare number is a constant.

Users who --think are a closed loop: they wait for their answers, and their rate follows from the
time of a request. With --requests-per-user they do not wait.

Exit codes: 3 if the answer is indeterminate: the intervals straddle a target, or the error of the
step time straddles saturation or several numbers of replicas (--model-error 0 leaves it out).

Examples:
  goodput plan --users 5000 --requests-per-user 10/h --e2e 5s
  goodput plan --users 200 --think 30s --e2e 5s --max-num-seqs 16
  goodput plan --users 300 --think 20s --input-tokens 800 --output-tokens 250 \\
      --step-time llama-3.1-8b-h100-sxm --slo 'p99(ttft)<500ms,tpot<30ms @ 99%'
  goodput plan --rate 20/s --input-tokens lognormal:median=600,sigma=1,max=16000 --output-tokens 160 \\
      --step-time llama-3.1-8b-h100-sxm --slo 'p99(ttft)<1s,tpot<50ms @ 99%'
  goodput plan --rate 10/s --input-tokens 3000 --output-tokens 300 --disagg --no-sim \\
      --kv-bandwidth 25GB/s --price 10/h \\
      --step-time llama-3.1-70b-h100-sxm-tp4 --slo 'p99(ttft)<2s,tpot<40ms @ 99%'
  goodput plan --trace azure.csv --step-time llama-3.1-8b-h100-sxm \\
      --slo 'p99(ttft)<1s,tpot<50ms @ 99%' --autoscale-delay 2m";

/// Arguments of `plan`.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Requests per second, 20/s or 50000/h.
    #[arg(long, value_name = "RATE", group = "load")]
    rate: Option<String>,
    /// Coefficient of variation of the gaps between requests [default: 1, Poisson].
    #[arg(long, value_name = "NUMBER", requires = "rate", allow_hyphen_values = true)]
    cv: Option<f64>,
    /// Requests to replay, as in `goodput sim`.
    #[arg(long, value_name = "FILE", group = "load")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    part: Part,
    /// Users, who wait for answers and think, or ask at a rate of their own.
    #[arg(long, value_name = "COUNT", group = "load")]
    users: Option<String>,
    /// Mean time from an answer to the next request of the same user: a closed loop.
    #[arg(long, value_name = "TIME", requires = "users", conflicts_with = "requests_per_user")]
    think: Option<String>,
    /// Requests of each user, 10/h: an open loop.
    #[arg(long, value_name = "RATE", requires = "users")]
    requests_per_user: Option<String>,
    /// Mean time of a request end to end, for the requests in flight; with --think and a step time it
    /// follows from that.
    #[arg(long, value_name = "TIME")]
    e2e: Option<String>,
    /// Tokens of prompts: 512, uniform:100,200, lognormal:median=600,sigma=1.1, file:PATH, …
    #[arg(long, value_name = "LAW", requires = "output_tokens")]
    input_tokens: Option<String>,
    /// Tokens of answers, in the same words.
    #[arg(long, value_name = "LAW", requires = "input_tokens")]
    output_tokens: Option<String>,
    /// Objectives: p99(ttft)<1s, tpot<50ms @ 99%, or limits on single requests with --attainment.
    #[arg(long, value_name = "SLO")]
    slo: Vec<String>,
    /// Share of the requests that has to meet all limits on single requests.
    #[arg(long, value_name = "SHARE")]
    attainment: Option<String>,
    /// What a step costs: coefficients, a preset, or a file of `goodput fit`.
    #[arg(long, value_name = "COEFFICIENTS|PRESET|FILE")]
    step_time: Option<String>,
    /// How far the step time may be off [default: what its source states].
    #[arg(long, value_name = "SHARE", requires = "step_time")]
    model_error: Option<String>,
    /// Scheduling policy of a replica, as in `goodput sim` [default: vllm-v1].
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Most requests in the batch of a replica.
    #[arg(
        long,
        visible_alias = "max-batch-size",
        alias = "max-running-requests",
        value_name = "N"
    )]
    max_num_seqs: Option<String>,
    /// Most prompt tokens of one request in one step; for policies with a chunk.
    #[arg(long, value_name = "N")]
    chunk: Option<String>,
    #[command(flatten)]
    engine: EngineArguments,
    /// How requests are given to replicas: least-requests, round-robin, random, least-tokens,
    /// power-of-two, prefix-affinity, central-queue.
    #[arg(long, value_name = "RULE", default_value = "least-requests")]
    router: String,
    /// Plan pools of prefill and decode too, in closed form.
    #[arg(long, requires = "step_time")]
    disagg: bool,
    /// Bytes of the KV cache of a token, for --disagg [default: those of the step time's model].
    #[arg(long, value_name = "BYTES", requires = "disagg")]
    kv_bytes_per_token: Option<String>,
    /// What a prefill replica sends of the KV cache to decode replicas, 25GB/s.
    #[arg(long, value_name = "SIZE/s", requires = "disagg")]
    kv_bandwidth: Option<String>,
    /// Price of one replica with all its GPUs, 10/h for four at 2.50/h, in any currency.
    #[arg(long, value_name = "PRICE")]
    price: Option<String>,
    /// Try an autoscaler on the trace whose replicas take so long to start.
    #[arg(long, value_name = "TIME", requires = "trace")]
    autoscale_delay: Option<String>,
    /// Waiting requests per replica above which it starts more [default: from the limit on TTFT].
    #[arg(long, value_name = "NUMBER", requires = "autoscale_delay")]
    autoscale_queue: Option<f64>,
    /// From one look of it to the next [default: 15s].
    #[arg(long, value_name = "TIME", requires = "autoscale_delay")]
    autoscale_interval: Option<String>,
    /// How long the rate has to be low before it stops a replica [default: 5m].
    #[arg(long, value_name = "TIME", requires = "autoscale_delay")]
    autoscale_settle: Option<String>,
    /// Leave the simulation out.
    #[arg(long)]
    no_sim: bool,
    /// Requests of a simulated run [default: 40 times those in flight, 4 for each user who thinks,
    /// 4000 to 100000].
    #[arg(long, value_name = "N", conflicts_with_all = ["trace", "no_sim"])]
    requests: Option<String>,
    /// The first seed.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = seed)]
    seed: u64,
    /// Most seeds for one number of replicas.
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = count_from(2, 10_000))]
    seeds: u64,
    /// Confidence of the intervals over the seeds.
    #[arg(long, value_name = "SHARE", default_value = "95%")]
    confidence: String,
}

/// A duration of an option in seconds.
fn seconds(option: &str, text: Option<&str>) -> Result<Option<f64>> {
    text.map(|t| grammar::duration(t).map(Seconds::get).map_err(|e| anyhow!("{option}: {e}")))
        .transpose()
}

fn share(option: &str, text: Option<&str>) -> Result<Option<f64>> {
    text.map(|t| grammar::share(t).map_err(|e| anyhow!("{option}: {e}"))).transpose()
}

fn count(option: &str, text: Option<&str>) -> Result<Option<u64>> {
    text.map(|t| grammar::count(t).map_err(|e| anyhow!("{option}: {e}"))).transpose()
}

fn rate(option: &str, text: &str) -> Result<f64> {
    grammar::rate(text).map(RequestsPerSecond::get).map_err(|e| anyhow!("{option}: {e}"))
}

/// A bandwidth: a size per second.
fn bytes_per_second(text: &str) -> Result<f64> {
    let Some(size) = text.trim().strip_suffix("/s") else {
        bail!("--kv-bandwidth: `{}`: write a size per second, 25GB/s", output::one_line(text));
    };
    grammar::size(size).map(Bytes::get).map_err(|e| anyhow!("--kv-bandwidth: {e}"))
}

impl Arguments {
    /// Refuses to write over what is read.
    pub fn check_files(&self, output: Option<&Path>) -> Result<()> {
        let read = [self.trace.clone(), step_time_file(self.step_time.as_deref())];
        let laws = [&self.input_tokens, &self.output_tokens];
        let laws = laws.into_iter().filter_map(|law| lengths::file_of(law.as_deref()?));
        let read = read.into_iter().flatten().chain(laws.map(Path::to_path_buf));
        let read: Vec<PathBuf> = read.collect();
        check_outputs(&read, &[("-o", output)])
    }

    fn load(&self) -> Result<LoadSpec> {
        if let Some(text) = &self.rate {
            return Ok(LoadSpec::Rate { per_s: rate("--rate", text)?, cv: self.cv.unwrap_or(1.0) });
        }
        if self.trace.is_some() {
            return Ok(LoadSpec::Trace);
        }
        let Some(users) = count("--users", self.users.as_deref())? else {
            bail!("give a load: --rate, --trace, or --users with --think or --requests-per-user");
        };
        match (&self.requests_per_user, seconds("--think", self.think.as_deref())?) {
            (Some(text), _) => {
                // A bare number would be per second, which no user means.
                if text.trim().parse::<f64>().is_ok() {
                    bail!(
                        "--requests-per-user: `{0}` needs a unit, write {0}/h or {0}/min",
                        output::one_line(text.trim())
                    );
                }
                let per_user_per_s = rate("--requests-per-user", text)?;
                Ok(LoadSpec::Users { users, per_user_per_s })
            }
            (None, Some(think_s)) => Ok(LoadSpec::Thinking { users, think_s }),
            (None, None) => bail!(
                "--users: a user is no request: say how often each asks, --requests-per-user 10/h, or how long each thinks, --think 30s"
            ),
        }
    }

    fn request(&self) -> Result<PlanRequest> {
        let mut request = PlanRequest::new(self.load()?);
        if let (None, Some(flag)) = (&self.trace, self.part.given()) {
            bail!("{flag}: is for a trace, add --trace FILE");
        }
        request.e2e_s = seconds("--e2e", self.e2e.as_deref())?;
        request.input_tokens.clone_from(&self.input_tokens);
        request.output_tokens.clone_from(&self.output_tokens);
        request.slo = (!self.slo.is_empty()).then(|| self.slo.join(","));
        request.attainment = share("--attainment", self.attainment.as_deref())?;
        request.step_time.clone_from(&self.step_time);
        request.model_error = share("--model-error", self.model_error.as_deref())?;
        if let Some(policy) = &self.policy {
            request.policy.clone_from(policy);
        }
        request.max_num_seqs = count("--max-num-seqs", self.max_num_seqs.as_deref())?;
        request.chunk = count("--chunk", self.chunk.as_deref())?;
        request.engine = self.engine.single()?;
        request.router.clone_from(&self.router);
        request.simulate = !self.no_sim;
        request.requests = count("--requests", self.requests.as_deref())?;
        request.seed = self.seed;
        request.most_seeds = self.seeds;
        request.confidence = grammar::share(&self.confidence)
            .and_then(Confidence::new)
            .map_err(|e| anyhow!("--confidence: {e}"))?;
        request.disagg = self.disagg;
        request.kv_bytes_per_token =
            count("--kv-bytes-per-token", self.kv_bytes_per_token.as_deref())?;
        request.kv_bandwidth_bytes_per_s =
            self.kv_bandwidth.as_deref().map(bytes_per_second).transpose()?;
        let price = self.price.as_deref().map(grammar::price).transpose();
        request.price_per_h = price.map_err(|e| anyhow!("--price: {e}"))?.map(CostPerHour::get);
        request.autoscale_delay_s = seconds("--autoscale-delay", self.autoscale_delay.as_deref())?;
        request.autoscale_queue = self.autoscale_queue;
        request.autoscale_interval_s =
            seconds("--autoscale-interval", self.autoscale_interval.as_deref())?;
        request.autoscale_settle_s =
            seconds("--autoscale-settle", self.autoscale_settle.as_deref())?;
        Ok(request)
    }
}

/// Runs the command; what it prints and the exit code.
pub fn run(arguments: &Arguments, format: Format) -> Result<(String, u8)> {
    let request = arguments.request()?;
    let trace = arguments.trace.as_deref().map(|path| arguments.part.read(path)).transpose()?;
    let answer =
        plan(&request, trace.as_ref().map(|t| &t.workload)).map_err(|e| output::in_flags(&e))?;
    let code = if answer.verdict == Verdict::Decided { 0 } else { 3 };
    let text = match format {
        Format::Json => output::json_text(&serde_json::to_value(&answer)?)?,
        Format::Csv => output::csv_of_json(&serde_json::to_value(&answer)?)?,
        Format::Text | Format::Md => text(&answer, format == Format::Md),
    };
    Ok((text, code))
}

/// A time that is known.
fn time(s: f64) -> String {
    Seconds::new(s).map_or_else(|_| "-".to_owned(), format::time)
}

fn number(n: Option<u64>) -> String {
    n.map_or_else(|| "none".to_owned(), |n| n.to_string())
}

/// Paragraphs, one label a line.
struct Lines {
    text: String,
    md: bool,
}

impl Lines {
    fn line(&mut self, label: &str, content: &str) {
        let line = if self.md {
            format!("- {label}: {content}\n")
        } else {
            format!("{label:14}{content}\n")
        };
        self.text.push_str(&line);
    }

    fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        if !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
        self.text.push_str(&output::table(header, rows, self.md));
        self.text.push('\n');
    }
}

fn text(a: &PlanAnswer, md: bool) -> String {
    let mut out = Lines { text: String::new(), md };
    let headline = match (a.replicas, &a.verdict) {
        (Some(n), Verdict::Decided) => {
            format!("{} ({} with a spare)", format::things(n, "replica"), n + 1)
        }
        (Some(n), Verdict::Indeterminate { .. }) => match a.band {
            Some((Some(least), Some(most))) if least != most => {
                format!("indeterminate: {least} to {}", format::things(most, "replica"))
            }
            _ => format!("indeterminate around {}", format::things(n, "replica")),
        },
        (None, _) => format!("{}/s", format::value(a.load.rate_per_s)),
    };
    out.text.push_str(&format!("{headline}\n\n"));
    let in_flight = a.load.in_flight.map_or_else(String::new, |l| {
        format!(", {} in flight (Little's law)", format::significant(l, 3))
    });
    let rate = format::significant(a.load.rate_per_s, 3);
    out.line("load", &format!("{rate}/s{in_flight}: {}", a.load.basis));
    if let Some(m) = &a.mix {
        let (i, o) = (format::significant(m.input_mean, 4), format::significant(m.output_mean, 4));
        let longest = format::things(m.longest, "token");
        out.line("lengths", &format!("{i} in, {o} out on average; the longest {longest}"));
    }
    if let Some(slo) = &a.request.slo {
        out.line("slo", &output::one_line(slo));
    }
    if let Some(step_time) = &a.request.step_time {
        let error = match a.model_error {
            0.0 => "error not stated".to_owned(),
            error => format!("off by {}", format::percent(error)),
        };
        out.line("step time", &format!("{} ({error})", output::one_line(step_time)));
        out.line("replica", &format!("{}, router {}", a.request.policy, a.request.router));
    }
    if let Some(b) = &a.bounds {
        bounds(&mut out, b);
    }
    if let Some(p) = &a.point {
        let parts = [
            format!("{}/s", format::significant(p.rate_per_s, 3)),
            format!("TPOT {}", time(p.tpot_s)),
            format!("prefill {}", time(p.prefill_s)),
            format!("service {}", time(p.service_s)),
            format!("{} in flight", format::significant(p.in_flight, 3)),
            format!("{} KV tokens", format::count(p.kv_tokens.round())),
        ];
        out.line("each", &format!("{} (steady state, waits left out)", parts.join(", ")));
    }
    if let Some(u) = a.utilization {
        let mut text = format!("{} of what the replicas bear", format::percent(u));
        if let (Some(b), Some(p)) = (&a.bounds, &a.point)
            && b.binding == Binding::Tpot
        {
            let share = format::percent(p.rate_per_s / b.least_per_s);
            text.push_str(&format!(", {share} of what keeps the limit on TPOT"));
        }
        out.line("utilization", &text);
    }
    answers(&mut out, a);
    simulated(&mut out, a);
    others(&mut out, a);
    if let Verdict::Indeterminate { reasons } = &a.verdict {
        for reason in reasons {
            out.line("undecided", reason);
        }
    }
    for f in a.finding().into_iter().chain(a.cost_finding()) {
        out.line(f.check.id, &f.says);
    }
    for note in &a.notes {
        out.line("note", note);
    }
    out.text
}

/// Every bound of one replica, the binding one marked.
fn bounds(out: &mut Lines, b: &Bounds) {
    let row = |name: &str, rate: Option<f64>, which: Binding| {
        let rate = rate.map_or_else(
            || "no bound".to_owned(),
            |rate| format!("{}/s", format::significant(rate, 3)),
        );
        let mark = if b.binding == which { "binds" } else { "" };
        vec![name.to_owned(), rate, mark.to_owned()]
    };
    let rows = [
        row("token rate, prefill and decode", b.token_rate_per_s, Binding::TokenRate),
        row("seats of the batch", b.seats_per_s, Binding::Seats),
        row("KV stock", b.kv_stock_per_s, Binding::KvStock),
        row("limit on TPOT", b.tpot_per_s, Binding::Tpot),
    ];
    out.table(&["one replica bears", "at most", ""], &rows);
}

/// The number by each method, and how far they are apart.
fn answers(out: &mut Lines, a: &PlanAnswer) {
    if a.methods.is_empty() {
        return;
    }
    let rows: Vec<Vec<String>> =
        a.methods.iter().map(|m| vec![m.method.name().to_owned(), number(m.replicas)]).collect();
    out.table(&["method", "replicas"], &rows);
    let known: Vec<u64> = a.methods.iter().filter_map(|m| m.replicas).collect();
    if let (Some(least), Some(most)) = (known.iter().min(), known.iter().max())
        && least < most
    {
        out.line("methods", &format!("disagree: from {least} to {most}"));
    }
}

/// What was simulated, number by number.
fn simulated(out: &mut Lines, a: &PlanAnswer) {
    let Some(found) = &a.simulation else { return };
    let mut header = vec!["simulated", "keeps"];
    if let Some(first) = found.probes.first() {
        header.extend(first.goals.iter().map(|g| g.goal.as_str()));
    }
    header.push("runs");
    let rows: Vec<Vec<String>> = found
        .probes
        .iter()
        .map(|p| {
            let keeps = match p.decision {
                Decision::Met => "yes",
                Decision::Missed => "no",
                Decision::Undecided => "unclear",
            };
            let mut row = vec![p.replicas.to_string(), keeps.to_owned()];
            row.extend(p.goals.iter().map(|g| match (g.low, g.high) {
                (Some(low), Some(high)) => format!(
                    "{} ({} to {})",
                    format::percent(g.share),
                    format::percent(low),
                    format::percent(high)
                ),
                _ => format::percent(g.share),
            }));
            row.push(p.seeds.to_string());
            row
        })
        .collect();
    out.table(&header, &rows);
}

/// What the KV cache costs on its way from prefill to decode.
fn transfer(t: Option<&Transfer>) -> String {
    let Some(t) = t else {
        return "left out: the step time names no model, give --kv-bytes-per-token".to_owned();
    };
    let gb = |x: f64| format::significant(x / 1e9, 3);
    let all = format!(
        "{} GB of a mean prompt, {} GB/s in all",
        gb(t.prompt_bytes),
        gb(t.required_bytes_per_s)
    );
    match (t.transfer_s, t.tpot_s) {
        (Some(s), Some(tpot)) => {
            format!("{all}; {} before the second token, {} of TPOT", time(s), time(tpot))
        }
        (Some(s), None) => format!("{all}; {} after the only token", time(s)),
        _ => format!("{all}; --kv-bandwidth tells the time"),
    }
}

/// What changes the answer, and what follows from it.
fn others(out: &mut Lines, a: &PlanAnswer) {
    if let Some((fast, slow)) = a.band {
        let error = format::percent(a.model_error);
        let (fast, slow) = (number(fast), number(slow));
        out.line("band", &format!("replicas if steps are {error} shorter: {fast}; longer: {slow}"));
    }
    for s in &a.sensitivity {
        let method = s.method.name();
        out.line("sensitivity", &format!("{}: replicas {} ({method})", s.case, number(s.replicas)));
    }
    if let Some(s) = &a.signal {
        out.line(
            "scale out",
            &format!(
                "above {} waiting per replica: {} of wait are allowed, times the rate of a replica",
                format::significant(s.queue_per_replica, 3),
                time(s.allowed_wait_s)
            ),
        );
    }
    if let Some(h) = &a.hours {
        let hours = |x: f64| format::significant(x, 4);
        out.line(
            "hours",
            &format!(
                "replica-hours of the trace at {}/s a replica: {} for the peak ({} replicas, {}/s in {} s), {} for the mean ({}), {} following each window without delay",
                format::significant(h.rate_per_replica, 3),
                hours(h.peak_hours),
                h.peak_replicas,
                format::significant(h.peak_rate_per_s, 3),
                h.window_s,
                hours(h.mean_hours),
                h.mean_replicas,
                hours(h.followed_hours)
            ),
        );
    }
    if let Some(b) = &a.backtest {
        let shares: Vec<String> = b.shares.iter().map(|s| format::percent(*s)).collect();
        out.line(
            "autoscaler",
            &format!(
                "{} the SLO ({}) with {} replica-hours, {} to {} replicas, {} started and {} stopped, each ready after {}",
                if b.keeps { "keeps" } else { "misses" },
                shares.join(", "),
                format::significant(b.replica_hours, 4),
                b.autoscaler.least,
                b.most_replicas,
                b.started,
                b.stopped,
                time(b.autoscaler.delay_s)
            ),
        );
    }
    if let Some(p) = &a.pools {
        out.line(
            "disaggregated",
            &format!(
                "{} prefill and {} decode replicas; {} decode for each prefill balance ({}/s against {}/s)",
                number(p.prefill_replicas),
                number(p.decode_replicas),
                format::significant(p.decode_per_prefill, 3),
                format::significant(p.prefill_rate_per_s, 3),
                format::significant(p.decode_rate_per_s, 3)
            ),
        );
        out.line("KV transfer", &transfer(p.transfer.as_ref()));
    }
    if let (Some(c), Some(n)) = (&a.cost, a.replicas) {
        let money = |x: f64| format::significant(x, 3);
        let mut text = format!(
            "{}/h, {} a day for {}",
            money(c.per_h),
            money(c.per_day),
            format::things(n, "replica")
        );
        if let (Some(output), Some(all)) = (c.per_million_output, c.per_million_tokens) {
            let (output, all) = (money(output), money(all));
            text.push_str(&format!(
                "; {output} per 1M output tokens alone, {all} per 1M in and out, at this load"
            ));
        }
        out.line("cost", &text);
    }
}
