//! Laws and models without a curve: Little, Erlang, closed systems, priorities, approximations.

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use metrics_core::format;
use metrics_core::metric::Language;
use queueing::mg1_priority::{Discipline, PriorityClass};
use queueing::profile::{Kind, Profile, Quantity};
use queueing::{BirthDeath, Closed, Mg1Priority, MmcN, ServiceMoments, approx};

use super::answer::{Answer, figure_share, reading, say, seconds};
use super::input::{Load, Service, Show, count, list, pure, rate, shape, share, time};

#[derive(Args, Debug)]
pub struct Little {
    /// Requests in the system, L.
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    number: Option<String>,
    /// Arrival rate, λ.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Time in the system, W.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    time: Option<String>,
}

pub fn little(a: &Little, language: Language) -> Result<Answer> {
    let number = a.number.as_deref().map(|n| pure("--number", n)).transpose()?;
    let lambda = a.rate.as_deref().map(|r| rate("--rate", r)).transpose()?;
    let w = a.time.as_deref().map(|t| time("--time", t)).transpose()?;
    let (l, lambda, w) = match (number, lambda, w) {
        (None, Some(lambda), Some(w)) => (queueing::little::little_l(lambda, w)?, lambda, w),
        (Some(l), None, Some(w)) => (l, queueing::little::little_lambda(l, w)?, w),
        (Some(l), Some(lambda), None) => (l, lambda, queueing::little::little_w(l, lambda)?),
        _ => bail!("give two of --number, --rate and --time, and the third follows"),
    };
    let mut answer = Answer::new(
        language,
        say!(language, "Little's law: L = lambda * W", "利特尔定律：L = lambda * W"),
    );
    let in_system = say!(language, "requests in the system, L", "系统内请求数 L");
    answer.add(Kind::Number, "l", in_system, l);
    answer.add(
        Kind::Rate,
        "lambda",
        say!(language, "arrival rate, lambda", "到达率 lambda"),
        lambda,
    );
    answer.add(Kind::Time, "w", say!(language, "time in the system, W", "逗留时间 W"), w);
    let (rate, each, number) = (format::value(lambda), seconds(w), format::value(l));
    answer.reading = say!(
        language,
        "At {rate}/s and {each} each, {number} requests are in the system on average, whatever the distributions.",
        "每秒 {rate} 个、每个 {each} 时，系统内平均有 {number} 个请求，与分布无关。"
    );
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct Erlang {
    /// Offered load in erlangs, a = λ/μ.
    #[arg(long, allow_hyphen_values = true)]
    load: String,
    /// Number of servers, c; a fraction such as 13.5 counts between whole numbers.
    #[arg(long, short = 'c', allow_hyphen_values = true)]
    servers: String,
}

pub fn erlang(a: &Erlang, language: Language) -> Result<Answer> {
    let load = pure("--load", &a.load)?;
    // A fraction of a server is a number with a point that is no count.
    let real: Option<f64> = match count("--servers", &a.servers) {
        Ok(_) => None,
        Err(e) => match a.servers.trim().parse::<f64>() {
            Ok(x) if x.fract() != 0.0 => Some(x),
            _ => return Err(e),
        },
    };
    let (b, c, servers) = match real {
        None => {
            let c = count("--servers", &a.servers)?;
            let many = format::things(c, "server");
            let servers = say!(language, "{many}", "{c} 个服务台");
            (queueing::erlang_b(c, load)?, queueing::erlang_c(c, load), servers)
        }
        Some(x) => (
            queueing::erlang_b_real(x, load)?,
            queueing::erlang_c_real(x, load),
            say!(language, "{x} servers", "{x} 个服务台"),
        ),
    };
    let offered = format::value(load);
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "Erlang: {offered} erlangs offered to {servers}",
            "Erlang：{offered} erlang 提供给 {servers}"
        ),
    );
    let label = say!(language, "lost if nobody may wait, B", "不许等待时的损失率 B");
    answer.add(Kind::Share, "erlang_b", label, b);
    let lost = figure_share(b);
    let lost = say!(
        language,
        "If nobody may wait, {lost} of the arrivals are lost.",
        "若不许等待，{lost} 的到达被丢失。"
    );
    answer.reading = match c {
        Ok(c) => {
            let label = say!(language, "has to wait if all may, C", "允许等待时的等待概率 C");
            answer.add(Kind::Share, "erlang_c", label, c);
            let wait = figure_share(c);
            say!(
                language,
                "{lost} If all may wait, {wait} do.",
                "{lost}若允许等待，{wait} 需要等待。"
            )
        }
        Err(queueing::QueueError::Unstable { .. }) => say!(
            language,
            "{lost} If all may wait, the queue grows without end: the load is not below the servers.",
            "{lost}若允许等待，队列无限增长：负载不低于服务台数。"
        ),
        Err(e) => return Err(e.into()),
    };
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct Population {
    /// Number of sources, N: clients that wait for their answer before they think again.
    #[arg(long, visible_alias = "concurrency", value_name = "COUNT")]
    sources: String,
    /// Mean time that a source thinks before it sends again.
    #[arg(long, value_name = "TIME")]
    think: String,
    #[command(flatten)]
    service: Service,
    /// Number of servers, c.
    #[arg(long, short = 'c', default_value = "1")]
    servers: String,
    #[command(flatten)]
    show: Show,
}

impl Population {
    /// Rate of an idle source, service rate, servers and sources.
    fn numbers(&self) -> Result<(f64, f64, u64, u64)> {
        let think = time("--think", &self.think)?;
        if think == 0.0 {
            bail!(
                "--think: sources that do not think make `goodput queue closed`: give a time above 0"
            );
        }
        if self.show.curve()?.is_some() {
            bail!("--curve: arrivals depend on the system itself, so there is no rate to vary");
        }
        let (c, n) = (count("--servers", &self.servers)?, count("--sources", &self.sources)?);
        Ok((1.0 / think, self.service.mu()?, c, n))
    }
}

pub fn finite_source(a: &Population, language: Language) -> Result<Answer> {
    let (lambda, mu, c, n) = a.numbers()?;
    let queue = MmcN::new(lambda, mu, c, n)?;
    let many = format::things(c, "server");
    let (think, each, servers) =
        (seconds(1.0 / lambda), seconds(1.0 / mu), say!(language, "{many}", "{c} 个服务台"));
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "M/M/{c}//{n}: {n} sources think for {think}, {servers}, {each} each on average",
            "M/M/{c}//{n}：{n} 个源思考 {think}，{servers}，平均每个 {each}"
        ),
    );
    let profile = Profile::from(queue);
    answer.profile(&profile, &a.show)?;
    answer.reading = reading(&profile, None, language);
    Ok(answer)
}

pub fn engset(a: &Population, language: Language) -> Result<Answer> {
    use queueing::finite_source::{
        engset_call_congestion, engset_carried_load, engset_time_congestion,
    };
    let (lambda, mu, c, n) = a.numbers()?;
    let alpha = lambda / mu;
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "Engset: {n} sources of {0} erlangs each when idle, {c} servers, nobody may wait",
            "Engset：{n} 个源，空闲时各 {0} erlang，{c} 个服务台，不许等待",
            format::value(alpha)
        ),
    );
    let (time, call) = (engset_time_congestion(n, c, alpha)?, engset_call_congestion(n, c, alpha)?);
    answer.add(
        Kind::Share,
        "time_congestion",
        say!(language, "all servers busy, share of time", "全忙时间占比"),
        time,
    );
    answer.add(
        Kind::Share,
        "call_congestion",
        say!(language, "requests lost, share of requests", "丢失请求占比"),
        call,
    );
    answer.add(
        Kind::Number,
        "carried_load",
        say!(language, "servers busy on average", "平均忙碌服务台数"),
        engset_carried_load(n, c, alpha)?,
    );
    let (busy, lost) = (figure_share(time), figure_share(call));
    answer.reading = say!(
        language,
        "All servers are busy {busy} of the time, and {lost} of the requests meet that: the two differ since a busy source sends nothing.",
        "{busy} 的时间全忙，{lost} 的请求遇到全忙：忙碌的源不再发送，所以两者不同。"
    );
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct ClosedArgs {
    /// Number of clients, N: the concurrency of a closed-loop benchmark.
    #[arg(long, visible_alias = "concurrency", value_name = "COUNT")]
    clients: String,
    /// Mean time between an answer and the client's next request.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    think: String,
    /// Service demand of a request, for the mean value analysis of one queue.
    #[arg(long, value_name = "TIME", required_unless_present_any = ["throughput", "response"])]
    demand: Option<String>,
    /// Measured throughput: the interactive law then gives the response.
    #[arg(long, value_name = "RATE", conflicts_with_all = ["demand", "response"])]
    throughput: Option<String>,
    /// Measured mean response: the interactive law then gives the throughput.
    #[arg(long, value_name = "TIME", conflicts_with = "demand")]
    response: Option<String>,
}

pub fn closed(a: &ClosedArgs, language: Language) -> Result<Answer> {
    use queueing::closed::{interactive_response, interactive_throughput, saturation_clients};
    let (n, think) = (count("--clients", &a.clients)?, time("--think", &a.think)?);
    let pause = seconds(think);
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "Closed system: {n} clients that think for {pause}",
            "封闭系统：{n} 个客户端，思考 {pause}"
        ),
    );
    if let Some(demand) = &a.demand {
        let demand = time("--demand", demand)?;
        let profile = Profile::from(Closed::new(n, demand, think)?);
        for (quantity, value) in profile.figures() {
            answer.quantity(quantity, value);
        }
        let most = saturation_clients(demand, think)?;
        answer.add(
            Kind::Number,
            "saturation_clients",
            say!(language, "clients at saturation", "饱和客户端数"),
            most,
        );
        let clients = format::significant(most, 3);
        answer.reading = reading(&profile, None, language)
            + &say!(
                language,
                " Beyond {clients} clients the server is the limit and the rest only queue.",
                "超过 {clients} 个客户端后服务器成为瓶颈，其余只是排队。"
            );
        return Ok(answer);
    }
    let (x, r) = match (&a.throughput, &a.response) {
        (Some(x), _) => {
            let x = rate("--throughput", x)?;
            (x, interactive_response(n as f64, x, think)?)
        }
        (None, Some(r)) => {
            let r = time("--response", r)?;
            (interactive_throughput(n as f64, r, think)?, r)
        }
        (None, None) => bail!("give --demand, --throughput or --response"),
    };
    answer.quantity(Quantity::Throughput, x);
    answer.quantity(Quantity::W, r);
    let (shown_x, shown_r) = (format::value(x), seconds(r));
    answer.reading = say!(
        language,
        "Interactive law: {n} clients at {shown_x}/s must see {shown_r} each; a report that says otherwise is wrong.",
        "交互响应定律：{n} 个客户端、{shown_x}/s 时每个必为 {shown_r}；与此不符的报告有误。"
    );
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct Chain {
    /// Rates of a step up from state 0, 1, …, separated by commas.
    #[arg(long, value_name = "RATES")]
    births: String,
    /// Rates of a step down from state 1, 2, …, as many.
    #[arg(long, value_name = "RATES")]
    deaths: String,
}

pub fn birth_death(a: &Chain, language: Language) -> Result<Answer> {
    let births = list(&a.births, |item| rate("--births", item))?;
    let deaths = list(&a.deaths, |item| rate("--deaths", item))?;
    let chain = BirthDeath::new(&births, &deaths)?;
    let states = chain.states().len();
    let mut answer = Answer::new(
        language,
        say!(language, "Birth-death chain of {states} states", "{states} 个状态的生灭链"),
    );
    answer.quantity(Quantity::L, chain.mean());
    answer.quantity(Quantity::VarN, chain.variance());
    // What goes up in the long run is what goes down.
    let through = chain.expect(|n| nth(&births, n));
    answer.quantity(Quantity::Throughput, through);
    for (n, p) in chain.states().iter().enumerate() {
        answer.add(Kind::Share, format!("p_n{n}"), say!(language, "state {n}", "状态 {n}"), *p);
    }
    let (mean, rate) = (format::value(chain.mean()), format::value(through));
    answer.reading = say!(
        language,
        "State {mean} on average; {rate}/s pass through.",
        "平均处于状态 {mean}；每秒通过 {rate} 个。"
    );
    Ok(answer)
}

/// The rate of state `n`, 0 beyond the list.
fn nth(rates: &[f64], n: f64) -> f64 {
    rates
        .iter()
        .enumerate()
        .find(|(i, _)| (*i as f64).total_cmp(&n).is_eq())
        .map_or(0.0, |(_, r)| *r)
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Order {
    /// A service that has begun is finished.
    #[default]
    NonPreemptive,
    /// A more important arrival interrupts, and the service goes on later.
    PreemptiveResume,
}

#[derive(Args, Debug)]
pub struct Priority {
    /// A class, the most important first: RATE,SERVICE or RATE,SERVICE,LAW; repeat it for each class.
    #[arg(long = "class", value_name = "RATE,SERVICE[,LAW]", required = true)]
    classes: Vec<String>,
    /// Whether an arrival may interrupt.
    #[arg(long, value_enum, default_value_t)]
    order: Order,
}

fn class(text: &str) -> Result<PriorityClass> {
    let option = "--class";
    let parts: Vec<&str> = text.split(',').collect();
    let (arrive, service, law) = match parts.as_slice() {
        [arrive, service] => (arrive, service, "exp"),
        [arrive, service, law] => (arrive, service, *law),
        _ => bail!(
            "{option}: write RATE,SERVICE or RATE,SERVICE,LAW, got `{}`",
            crate::output::one_line(text)
        ),
    };
    let mean = time(option, service)?;
    let service: ServiceMoments = shape(option, law)?
        .service(mean)
        .and_then(|law| law.moments())
        .map_err(|e| anyhow!("{option}: {e}"))?;
    Ok(PriorityClass { lambda: rate(option, arrive)?, service })
}

pub fn priority(a: &Priority, language: Language) -> Result<Answer> {
    let classes: Vec<PriorityClass> = a.classes.iter().map(|c| class(c)).collect::<Result<_>>()?;
    let (discipline, order) = match a.order {
        Order::NonPreemptive => {
            (Discipline::NonPreemptive, say!(language, "non-preemptive", "非抢占"))
        }
        Order::PreemptiveResume => {
            (Discipline::PreemptiveResume, say!(language, "preemptive-resume", "抢占续传"))
        }
    };
    let n = classes.len();
    let queue = Mg1Priority::new(&classes)?;
    let mut answer = Answer::new(
        language,
        say!(language, "M/G/1 with {n} priority classes, {order}", "M/G/1，{n} 个优先级，{order}"),
    );
    let mut waits = Vec::new();
    for (i, mean) in queue.means(discipline)?.iter().enumerate() {
        let k = i + 1;
        let name = say!(language, "class {k}", "第 {k} 级");
        for (kind, key, what, value) in [
            (Kind::Share, "rho", say!(language, "load", "负载"), mean.rho),
            (Kind::Time, "wq", say!(language, "mean wait", "平均等待"), mean.wq),
            (Kind::Time, "w", say!(language, "mean response", "平均响应"), mean.w),
            (Kind::Number, "lq", say!(language, "requests waiting", "排队请求数"), mean.lq),
        ] {
            answer.add(kind, format!("class{k}_{key}"), format!("{name}, {what}"), value);
        }
        waits.push(mean.wq);
    }
    answer.reading = match (waits.first(), waits.last()) {
        (Some(&first), Some(&last)) if 0.0 < first && last.is_finite() && 1 < n => {
            let times = format::significant(last / first, 3);
            say!(
                language,
                "The last class waits {times} times as long as the first; what one gains another pays.",
                "末级等待是首级的 {times} 倍；一级所得即他级所付。"
            )
        }
        _ => say!(
            language,
            "Classes ahead are not touched by those behind but for one service in progress.",
            "前面的级别只受一次进行中的服务影响。"
        ),
    };
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct Approximations {
    #[command(flatten)]
    load: Load,
    /// Number of servers, c.
    #[arg(long, short = 'c', default_value = "1")]
    servers: String,
    /// Coefficient of variation of the gaps between arrivals.
    #[arg(long, value_name = "CV", default_value = "1")]
    gap_cv: String,
    /// Coefficient of variation of the service time.
    #[arg(long, value_name = "CV", default_value = "1")]
    cv: String,
}

pub fn ggc(a: &Approximations, language: Language) -> Result<Answer> {
    let (lambda, mean) = (a.load.lambda()?, a.load.mean()?);
    let c = count("--servers", &a.servers)?;
    let square = |option: &str, text: &str| pure(option, text).map(|cv| cv * cv.abs());
    let (ca2, cs2) = (square("--gap-cv", &a.gap_cv)?, square("--cv", &a.cv)?);
    let offered = lambda * mean;
    let (arrive, each) = (format::value(lambda), seconds(mean));
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "GI/G/{c}: {arrive}/s arrive with gap cv {0}, {each} each with cv {1}",
            "GI/G/{c}：每秒到达 {arrive} 个，间隔变异系数 {0}；每个 {each}，变异系数 {1}",
            a.gap_cv,
            a.cv
        ),
    );
    let mut rows = vec![
        ("allen_cunneen", "Allen-Cunneen", approx::allen_cunneen(c, offered, ca2, cs2, mean)),
        ("sakasegawa", "Sakasegawa", approx::sakasegawa(c, offered, ca2, cs2, mean)),
        ("whitt_gim", "Whitt (QNA), GI/G/m", approx::whitt_gim(c, offered, ca2, cs2, mean)),
    ];
    if c == 1 {
        rows.extend([
            ("kingman_vut", "Kingman VUT", approx::kingman_vut(offered, ca2, cs2, mean)),
            ("klb_qna", "KLB (QNA)", approx::klb_qna(offered, ca2, cs2, mean)),
            ("klb", "KLB", approx::klb(offered, ca2, cs2, mean)),
            (
                "kingman_upper_bound",
                "Kingman, bound",
                approx::kingman_upper_bound(offered, ca2, cs2, mean),
            ),
            (
                "daley_upper_bound",
                "Daley, bound",
                approx::daley_upper_bound(offered, ca2, cs2, mean),
            ),
        ]);
    }
    answer.quantity(Quantity::Utilization, offered / c as f64);
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for (id, name, value) in rows {
        let value = match value {
            Ok(value) => value,
            // A bound that needs arrivals, or a form that needs variation, is left out by name.
            Err(e @ queueing::QueueError::Unstable { .. }) => return Err(e.into()),
            Err(e) => {
                answer.notes.push(format!("{name}: {e}"));
                continue;
            }
        };
        if !id.ends_with("bound") {
            (least, most) = (least.min(value), most.max(value));
        }
        answer.add(
            Kind::Time,
            format!("wq_{id}"),
            say!(language, "mean wait, {name}", "平均等待，{name}"),
            value,
        );
        if let Some(metric) = queueing::catalog::find(id) {
            answer.notes.push(format!("{name}: {}", metric.note.in_language(language)));
        }
    }
    let (low, high) = (seconds(least), seconds(most));
    answer.reading = say!(
        language,
        "The approximations lie from {low} to {high}: their spread is a hint of their error.",
        "各近似在 {low} 到 {high} 之间：其差距提示误差大小。"
    );
    if ca2.total_cmp(&1.0).is_eq() {
        answer.reading += &say!(
            language,
            " With Poisson arrivals an exact model may fit: mg1, mdc or mmc.",
            "到达为泊松时可能有精确模型：mg1、mdc 或 mmc。"
        );
    }
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct Required {
    /// Arrival rate, λ.
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: String,
    /// Mean response time to reach.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "percentile")]
    mean: Option<String>,
    /// Percentile of the response time to bound.
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, requires = "within")]
    percentile: Option<String>,
    /// The bound on that percentile.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "percentile")]
    within: Option<String>,
}

pub fn required(a: &Required, language: Language) -> Result<Answer> {
    let lambda = rate("--rate", &a.rate)?;
    let (mu, target) = match (&a.mean, &a.percentile, &a.within) {
        (Some(w), None, None) => {
            let w = time("--mean", w)?;
            let goal = seconds(w);
            (
                queueing::plan::mm1_service_rate_for_mean_response(lambda, w)?,
                say!(language, "a mean response of {goal}", "平均响应时间 {goal}"),
            )
        }
        (None, Some(p), Some(t)) => {
            let (p, t) = (share("--percentile", p)?, time("--within", t)?);
            let mu = queueing::plan::mm1_service_rate_for_response_quantile(lambda, p, t)?;
            let (part, goal) = (format::percent(p), seconds(t));
            (
                mu,
                say!(
                    language,
                    "{part} of the responses within {goal}",
                    "{part} 的响应在 {goal} 内"
                ),
            )
        }
        _ => bail!("give --mean TIME, or --percentile SHARE with --within TIME"),
    };
    let arrive = format::value(lambda);
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "M/M/1 service rate for {target} at {arrive}/s",
            "M/M/1 服务率：{target}，到达率 {arrive}/s"
        ),
    );
    answer.add(Kind::Rate, "mu", say!(language, "service rate, mu", "服务率 mu"), mu);
    answer.add(
        Kind::Time,
        "service",
        say!(language, "mean service time, 1/mu", "平均服务时间 1/mu"),
        1.0 / mu,
    );
    answer.quantity(Quantity::Utilization, lambda / mu);
    let (each, busy) = (seconds(1.0 / mu), format::percent(lambda / mu));
    answer.reading = say!(
        language,
        "A server that takes {each} each on average reaches it, busy {busy} of the time.",
        "平均每个 {each} 的服务台可以达到，忙碌时间占 {busy}。"
    );
    Ok(answer)
}

#[derive(Args, Debug)]
pub struct Demand {
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
}

pub fn demand(a: &Demand, language: Language) -> Result<Answer> {
    use metrics_core::SecondsPerToken;
    let lambda = rate("--rate", &a.rate)?;
    let (n_in, n_out) =
        (count("--input-tokens", &a.input_tokens)?, count("--output-tokens", &a.output_tokens)?);
    let (prefill, decode) = (time("--prefill", &a.prefill)?, time("--decode", &a.decode)?);
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
    let (first, each, arrive) = (seconds(prefill), seconds(decode), format::value(lambda));
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "Service demand: {n_in} input and {n_out} output tokens at {first} and {each} a token, {arrive}/s arrive",
            "服务需求：{n_in} 个输入与 {n_out} 个输出 token，每个 {first} 与 {each}，每秒到达 {arrive} 个"
        ),
    );
    answer.add(
        Kind::Time,
        "service_demand",
        say!(language, "service demand, D", "服务需求 D"),
        demand.get(),
    );
    answer.add(
        Kind::Rate,
        "mu",
        say!(language, "service rate of one replica, mu", "单副本服务率 mu"),
        mu,
    );
    answer.add(
        Kind::Share,
        "rho",
        say!(language, "utilization of one replica, rho", "单副本利用率 rho"),
        rho,
    );
    answer.reading = if rho < 1.0 {
        let busy = format::percent(rho);
        say!(
            language,
            "One replica that serves one request at a time is busy {busy} of the time.",
            "逐个服务请求的单副本忙碌时间占 {busy}。"
        )
    } else {
        let replicas = format::significant(rho, 3);
        say!(
            language,
            "One replica that serves one request at a time cannot keep up: {replicas} replicas' worth of work arrives.",
            "逐个服务请求的单副本跟不上：到达的工作量相当于 {replicas} 个副本。"
        )
    };
    Ok(answer)
}
