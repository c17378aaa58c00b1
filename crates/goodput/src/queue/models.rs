//! The models in which requests arrive at a rate, each as a profile of that rate.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use metrics_core::format;
use metrics_core::metric::Language;
use queueing::batch::{BatchRule, BatchSize};
use queueing::profile::{Kind, Profile};
use queueing::{
    BatchArrivals, BatchCapped, BatchLinear, BulkMmK, ErlangA, GiM1, MPh1, Md1, Mdc, Mg1, Mg1Ps,
    Mm1, MmInf, Mmc, MmcK, ServiceLaw, TokenLaw,
};

use super::answer::{Answer, reading, say, seconds, tenth_more};
use super::input::{Load, Show, count, list, pure, rate, shape, time};

#[derive(Args, Debug)]
pub struct Plain {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct Pool {
    #[command(flatten)]
    load: Load,
    /// Number of servers, c.
    #[arg(long, short = 'c', allow_hyphen_values = true)]
    servers: String,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct Room {
    #[command(flatten)]
    load: Load,
    /// Number of servers, c.
    #[arg(long, short = 'c', default_value = "1")]
    servers: String,
    /// Places in the system, K, those in service included.
    #[arg(long, short = 'k')]
    places: String,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct Impatient {
    #[command(flatten)]
    load: Load,
    /// Number of servers, c.
    #[arg(long, short = 'c')]
    servers: String,
    /// Mean time after which a waiting request leaves, 1/θ.
    #[arg(long, value_name = "TIME")]
    patience: String,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct Irregular {
    #[command(flatten)]
    load: Load,
    /// Law of the gaps between arrivals: exp, det, erlang:K, gamma:CV or hyperexp:CV.
    #[arg(long, value_name = "LAW")]
    gaps: String,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct General {
    #[command(flatten)]
    load: Load,
    /// Coefficient of variation of the service time: 0 constant, 1 exponential.
    #[arg(
        long,
        allow_hyphen_values = true,
        required_unless_present = "law",
        conflicts_with = "law"
    )]
    cv: Option<String>,
    /// Law of the service time: exp, det, erlang:K, gamma:CV, lognormal:CV, uniform:H,
    /// hyperexp:CV or pareto:ALPHA.
    #[arg(long, value_name = "LAW")]
    law: Option<String>,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct Phases {
    #[command(flatten)]
    load: Load,
    /// Law of the service time: exp, erlang:K or hyperexp:CV.
    #[arg(long, value_name = "LAW")]
    law: String,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct CutAnswers {
    /// Arrival rate, λ.
    #[arg(long, value_name = "RATE")]
    rate: String,
    /// Time of a request without output tokens.
    #[arg(long, value_name = "TIME")]
    base: String,
    /// Time of one output token.
    #[arg(long, value_name = "TIME")]
    per_token: String,
    /// Law of the output tokens: geometric:MEAN, uniform:MOST or lognormal:MEDIAN:SIGMA.
    #[arg(long, value_name = "LAW")]
    output_tokens: String,
    /// Output tokens at which an answer is cut.
    #[arg(long, value_name = "COUNT")]
    max_tokens: String,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct Batch {
    /// Arrival rate, λ.
    #[arg(long, value_name = "RATE")]
    rate: String,
    /// Time that each request adds to a batch.
    #[arg(long, value_name = "TIME")]
    per_request: String,
    /// Time of a batch without requests.
    #[arg(long, value_name = "TIME")]
    fixed: String,
    /// Most requests in a batch, up to 512; without it, all that wait.
    #[arg(long, value_name = "COUNT")]
    cap: Option<String>,
    #[command(flatten)]
    show: Show,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Rule {
    /// Arrivals join the batch in service while it has room.
    #[default]
    Joinable,
    /// The server waits for a full batch.
    Full,
    /// A batch takes what waits and is closed.
    Closed,
}

#[derive(Args, Debug)]
pub struct Bulk {
    #[command(flatten)]
    load: Load,
    /// Most requests in a batch, K; --service is the time of a batch, whatever its size.
    #[arg(long, value_name = "COUNT")]
    batch: String,
    /// Who is in a batch.
    #[arg(long, value_enum, default_value_t)]
    rule: Rule,
    #[command(flatten)]
    show: Show,
}

#[derive(Args, Debug)]
pub struct Arrivals {
    /// Rate at which batches arrive.
    #[arg(long, value_name = "RATE")]
    rate: String,
    #[command(flatten)]
    service: super::input::Service,
    /// Requests that arrive at once: a number, or geometric:MEAN.
    #[arg(long, value_name = "SIZE")]
    size: String,
    #[command(flatten)]
    show: Show,
}

/// A model as a function of its arrival rate.
type Rated = Box<dyn Fn(f64) -> Result<Profile>>;

/// What an open model is asked.
struct Case<'a> {
    title: String,
    lambda: f64,
    /// The rate at load 1, of which a curve's loads are shares.
    full: f64,
    /// Whether full load is the end of it.
    stable: bool,
    at: &'a dyn Fn(f64) -> Result<Profile>,
    show: &'a Show,
}

impl Case<'_> {
    /// What a tenth more load does to the mean wait, from the model itself.
    fn tenth_more(&self, now: &Profile, language: Language) -> Result<String> {
        let rate = 1.1 * self.lambda;
        let more = if rate < self.full { Some((self.at)(rate)?) } else { None };
        Ok(tenth_more(now, more.as_ref(), language))
    }

    fn answer(self, language: Language) -> Result<Answer> {
        let profile = (self.at)(self.lambda)?;
        let tenth = self.stable.then(|| self.tenth_more(&profile, language)).transpose()?;
        let mut answer = Answer::new(language, self.title);
        answer.profile(&profile, self.show)?;
        if let Some(loads) = self.show.curve()? {
            answer.curve(&loads, self.full, self.at)?;
        }
        answer.reading = reading(&profile, tenth, language);
        Ok(answer)
    }
}

/// The part of a title that says what arrives and what a server needs.
fn arriving(lambda: f64, servers: u64, mean: f64, language: Language) -> String {
    let (rate, each) = (format::value(lambda), seconds(mean));
    if servers == 1 {
        return say!(
            language,
            "{rate}/s arrive, one server takes {each} each on average",
            "每秒到达 {rate} 个，一个服务台平均每个需 {each}"
        );
    }
    let many = format::things(servers, "server");
    say!(
        language,
        "{rate}/s arrive, {many} with one queue take {each} each on average",
        "每秒到达 {rate} 个，{servers} 个服务台共用一个队列，平均每个需 {each}"
    )
}

pub fn mm1(a: &Plain, language: Language) -> Result<Answer> {
    let (lambda, mu) = (a.load.lambda()?, a.load.mu()?);
    let title = format!("M/M/1: {}", arriving(lambda, 1, 1.0 / mu, language));
    let at = |rate: f64| Ok(Mm1::new(rate, mu)?.into());
    let case = Case { title, lambda, full: mu, stable: true, at: &at, show: &a.show };
    let load = case.tenth_more(&Mm1::new(lambda, mu)?.into(), language)?;
    let mut answer = case.answer(language)?;
    let q = Mm1::new(lambda, mu)?;
    let rho = queueing::Queue::utilization(&q);
    let (busy, times) = (format::percent(rho), format::significant(queueing::Queue::w(&q) * mu, 3));
    answer.reading = say!(
        language,
        "The server is busy {busy} of the time, and as many arrivals wait. The mean response is {times} times the bare service. {load}",
        "服务台忙碌时间占 {busy}，需要等待的到达也是这个比例。平均响应时间是纯服务时间的 {times} 倍。{load}"
    );
    Ok(answer)
}

pub fn mmc(a: &Pool, language: Language) -> Result<Answer> {
    let (lambda, mu, c) = (a.load.lambda()?, a.load.mu()?, count("--servers", &a.servers)?);
    let title = format!("M/M/{c}: {}", arriving(lambda, c, 1.0 / mu, language));
    let at = |rate: f64| Ok(Mmc::new(rate, mu, c)?.into());
    Case { title, lambda, full: c as f64 * mu, stable: true, at: &at, show: &a.show }
        .answer(language)
}

pub fn mdc(a: &Pool, language: Language) -> Result<Answer> {
    let (lambda, mean, c) = (a.load.lambda()?, a.load.mean()?, count("--servers", &a.servers)?);
    let title = format!("M/D/{c}: {}", arriving(lambda, c, mean, language));
    let at = |rate: f64| Ok(Mdc::new(rate, mean, c)?.into());
    Case { title, lambda, full: c as f64 / mean, stable: true, at: &at, show: &a.show }
        .answer(language)
}

pub fn md1(a: &Plain, language: Language) -> Result<Answer> {
    let (lambda, mean) = (a.load.lambda()?, a.load.mean()?);
    let title = format!("M/D/1: {}", arriving(lambda, 1, mean, language));
    let at = |rate: f64| Ok(Md1::new(rate, mean)?.into());
    Case { title, lambda, full: 1.0 / mean, stable: true, at: &at, show: &a.show }.answer(language)
}

pub fn mminf(a: &Plain, language: Language) -> Result<Answer> {
    let (lambda, mu) = (a.load.lambda()?, a.load.mu()?);
    if a.show.curve()?.is_some() {
        bail!("--curve: with endlessly many servers nothing depends on the load");
    }
    let (rate, each) = (format::value(lambda), seconds(1.0 / mu));
    let title = say!(
        language,
        "M/M/∞: {rate}/s arrive, a server for everyone takes {each} on average",
        "M/M/∞：每秒到达 {rate} 个，人人都有服务台，平均需 {each}"
    );
    let at = |rate: f64| Ok(MmInf::new(rate, mu)?.into());
    let case = Case { title, lambda, full: mu, stable: false, at: &at, show: &a.show };
    let mut answer = case.answer(language)?;
    let q = MmInf::new(lambda, mu)?;
    for (name, p) in a.show.percentiles()? {
        if p < 1.0 {
            let label =
                say!(language, "p{name} of the number in the system", "系统内请求数 p{name}");
            answer.add(Kind::Number, format!("n_p{name}"), label, q.n_quantile(p)? as f64);
        }
    }
    let mean = format::value(q.offered_load());
    answer.reading = say!(
        language,
        "Nobody waits; {mean} servers are busy on average, as a Poisson number.",
        "无人等待；平均有 {mean} 个服务台忙碌，数目服从泊松分布。"
    );
    Ok(answer)
}

pub fn mmck(a: &Room, language: Language) -> Result<Answer> {
    let (lambda, mu) = (a.load.lambda()?, a.load.mu()?);
    let (c, k) = (count("--servers", &a.servers)?, count("--places", &a.places)?);
    let arriving = arriving(lambda, c, 1.0 / mu, language);
    let title = say!(
        language,
        "M/M/{c}/{k}: {arriving}; at most {k} in the system",
        "M/M/{c}/{k}：{arriving}；系统内至多 {k} 个"
    );
    let at = |rate: f64| Ok(MmcK::new(rate, mu, c, k)?.into());
    Case { title, lambda, full: c as f64 * mu, stable: false, at: &at, show: &a.show }
        .answer(language)
}

pub fn erlang_a(a: &Impatient, language: Language) -> Result<Answer> {
    let (lambda, mu, c) = (a.load.lambda()?, a.load.mu()?, count("--servers", &a.servers)?);
    let patience = time("--patience", &a.patience)?;
    if patience == 0.0 {
        bail!("--patience: the patience must be above 0; `goodput queue erlang` has no patience");
    }
    let (arriving, long) = (arriving(lambda, c, 1.0 / mu, language), seconds(patience));
    let title = say!(
        language,
        "M/M/{c}+M: {arriving}; who waits leaves after {long} on average",
        "M/M/{c}+M：{arriving}；等待者平均 {long} 后离开"
    );
    let at = |rate: f64| Ok(ErlangA::new(rate, mu, c, 1.0 / patience)?.into());
    let case = Case { title, lambda, full: c as f64 * mu, stable: false, at: &at, show: &a.show };
    let mut answer = case.answer(language)?;
    if let Some(t) = a.show.within()? {
        let queue = ErlangA::new(lambda, mu, c, 1.0 / patience)?;
        let long = seconds(t);
        let label = say!(language, "service begins within {long}", "{long} 内开始服务");
        answer.add(Kind::Share, "served_within", label, queue.served_within(t)?);
    }
    answer.notes.push(say!(
        language,
        "Wait and response are those of all arrivals: for those who leave, both end there.",
        "等待与响应时间针对全部到达：离开者到离开为止。"
    ));
    Ok(answer)
}

pub fn gim1(a: &Irregular, language: Language) -> Result<Answer> {
    let (lambda, mu) = (a.load.lambda()?, a.load.mu()?);
    let gaps = shape("--gaps", &a.gaps)?.gaps()?;
    let (arriving, law) = (arriving(lambda, 1, 1.0 / mu, language), a.gaps.trim());
    let title = say!(
        language,
        "GI/M/1: {arriving}; gaps between arrivals {law}",
        "GI/M/1：{arriving}；到达间隔 {law}"
    );
    // Without arrivals there are no gaps; a curve begins above.
    let at = |rate: f64| Ok(GiM1::new(rate, gaps, mu)?.into());
    Case { title, lambda, full: mu, stable: true, at: &at, show: &a.show }.answer(language)
}

pub fn mg1(a: &General, language: Language) -> Result<Answer> {
    let (lambda, mu) = (a.load.lambda()?, a.load.mu()?);
    let arriving = arriving(lambda, 1, 1.0 / mu, language);
    let (q, title, at): (Mg1, String, Rated) = match (&a.cv, &a.law) {
        (Some(cv), None) => {
            let cv = pure("--cv", cv)?;
            let variation = if cv == f64::INFINITY {
                say!(language, "infinite", "无穷")
            } else {
                format::value(cv)
            };
            let title = say!(
                language,
                "M/G/1: {arriving} with coefficient of variation {variation}",
                "M/G/1：{arriving}，变异系数 {variation}"
            );
            let at = move |rate: f64| Ok(Mg1::from_cv(rate, 1.0 / mu, cv)?.into());
            (Mg1::from_cv(lambda, 1.0 / mu, cv)?, title, Box::new(at))
        }
        (_, Some(law)) => {
            let service = shape("--law", law)?.service(a.load.mean()?)?;
            let law = law.trim();
            let title = say!(language, "M/G/1: {arriving}, {law}", "M/G/1：{arriving}，{law}");
            let at = move |rate: f64| Ok(Mg1::of_law(rate, &service)?.into());
            (Mg1::of_law(lambda, &service)?, title, Box::new(at))
        }
        (None, None) => bail!("give --cv or --law"),
    };
    let case = Case { title, lambda, full: mu, stable: true, at: &at, show: &a.show };
    let mut answer = case.answer(language)?;
    let wq = queueing::Queue::wq(&q);
    let exponential = queueing::Queue::wq(&Mm1::new(lambda, mu)?);
    if wq.is_finite() && 0.0 < exponential {
        let times = format::significant(wq / exponential, 3);
        answer.reading += &say!(
            language,
            " The mean wait is {times} times that of exponential service at the same load.",
            "平均等待时间是同负载下指数服务的 {times} 倍。"
        );
    }
    answer.notes.push(say!(
        language,
        "Moments do not settle percentiles; for those take mph1, md1 or mm1.",
        "矩不能确定百分位数；需要时用 mph1、md1 或 mm1。"
    ));
    Ok(answer)
}

pub fn mph1(a: &Phases, language: Language) -> Result<Answer> {
    let (lambda, mean) = (a.load.lambda()?, a.load.mean()?);
    let phases = shape("--law", &a.law)?.phases(mean)?;
    let (arriving, law) = (arriving(lambda, 1, mean, language), a.law.trim());
    let title = say!(language, "M/PH/1: {arriving}, {law}", "M/PH/1：{arriving}，{law}");
    let at = |rate: f64| Ok(MPh1::new(rate, phases.clone())?.into());
    Case { title, lambda, full: 1.0 / mean, stable: true, at: &at, show: &a.show }.answer(language)
}

pub fn ps(a: &Plain, language: Language) -> Result<Answer> {
    let (lambda, mean) = (a.load.lambda()?, a.load.mean()?);
    let (rate, each) = (format::value(lambda), seconds(mean));
    let title = say!(
        language,
        "M/G/1-PS: {rate}/s arrive, all share one server, alone each takes {each} on average",
        "M/G/1-PS：每秒到达 {rate} 个，共享一个服务台，单独平均需 {each}"
    );
    let at = |rate: f64| Ok(Mg1Ps::new(rate, mean)?.into());
    let case = Case { title, lambda, full: 1.0 / mean, stable: true, at: &at, show: &a.show };
    let mut answer = case.answer(language)?;
    let times = format::significant(Mg1Ps::new(lambda, mean)?.slowdown(), 4);
    answer.reading += &say!(
        language,
        " Every request takes {times} times as long as alone, whatever its size.",
        "无论大小，每个请求的耗时都是单独运行的 {times} 倍。"
    );
    Ok(answer)
}

/// `geometric:MEAN`, `uniform:MOST` or `lognormal:MEDIAN:SIGMA`.
fn token_law(text: &str) -> Result<TokenLaw> {
    let option = "--output-tokens";
    let parts: Vec<&str> = text.trim().split(':').collect();
    match parts.as_slice() {
        ["geometric", mean] => Ok(TokenLaw::Geometric { q: 1.0 / pure(option, mean)? }),
        ["uniform", most] => Ok(TokenLaw::Uniform { most: count(option, most)? }),
        ["lognormal", median, sigma] => Ok(TokenLaw::Lognormal {
            mu: pure(option, median)?.ln(),
            sigma: pure(option, sigma)?,
            most: 131_072,
        }),
        _ => bail!(
            "{option}: write geometric:MEAN, uniform:MOST or lognormal:MEDIAN:SIGMA, got `{}`",
            crate::output::one_line(text)
        ),
    }
}

pub fn tokens(a: &CutAnswers, language: Language) -> Result<Answer> {
    let lambda = rate("--rate", &a.rate)?;
    let (base, per_token) = (time("--base", &a.base)?, time("--per-token", &a.per_token)?);
    let (tokens, n_max) = (token_law(&a.output_tokens)?, count("--max-tokens", &a.max_tokens)?);
    let law = ServiceLaw::ClippedTokens { base, per_token, tokens, n_max };
    let moments = law.moments()?;
    let clipped = tokens.clipped(n_max)?;
    let (rate, law_text) = (format::value(lambda), a.output_tokens.trim());
    let (fixed, each) = (seconds(base), seconds(per_token));
    let title = say!(
        language,
        "M/G/1 with answers cut at {n_max} tokens: {rate}/s arrive, {fixed} and {each} a token, tokens {law_text}",
        "M/G/1，回答在 {n_max} token 处截断：每秒到达 {rate} 个，{fixed} 加每 token {each}，长度 {law_text}"
    );
    let at = |rate: f64| Ok(Mg1::of_law(rate, &law)?.into());
    let full = 1.0 / moments.mean;
    let case = Case { title, lambda, full, stable: true, at: &at, show: &a.show };
    let mut answer = case.answer(language)?;
    answer.add(
        Kind::Time,
        "service_mean",
        say!(language, "mean service time", "平均服务时间"),
        moments.mean,
    );
    answer.add(
        Kind::Number,
        "service_cv",
        say!(language, "its coefficient of variation", "其变异系数"),
        moments.scv.sqrt(),
    );
    answer.add(
        Kind::Number,
        "mean_tokens",
        say!(language, "mean output tokens", "平均输出 token 数"),
        clipped.mean,
    );
    answer.add(
        Kind::Share,
        "p_clipped",
        say!(language, "answers cut", "被截断的回答"),
        clipped.clipped,
    );
    Ok(answer)
}

pub fn batch(a: &Batch, language: Language) -> Result<Answer> {
    let lambda = rate("--rate", &a.rate)?;
    let (alpha, tau0) = (time("--per-request", &a.per_request)?, time("--fixed", &a.fixed)?);
    let cap = a.cap.as_deref().map(|c| count("--cap", c)).transpose()?;
    let (arrive, fixed, each) = (format::value(lambda), seconds(tau0), seconds(alpha));
    let most = match cap {
        Some(cap) => say!(language, "at most {cap}", "至多 {cap} 个"),
        None => say!(language, "all that wait", "所有等待者"),
    };
    let title = say!(
        language,
        "Dynamic batching: {arrive}/s arrive, a batch of {most} takes {fixed} and {each} a request",
        "动态批处理：每秒到达 {arrive} 个，每批{most}，耗时 {fixed} 加每个 {each}"
    );
    let full = match cap {
        Some(cap) => cap as f64 / (alpha * cap as f64 + tau0),
        None => 1.0 / alpha,
    };
    if a.show.curve()?.is_some() && !full.is_finite() {
        bail!("--curve: with --per-request 0 and no --cap no rate is too much: give --cap");
    }
    let at = |rate: f64| match cap {
        Some(cap) => Ok(BatchCapped::new(rate, alpha, tau0, cap)?.into()),
        None => Ok(BatchLinear::new(rate, alpha, tau0)?.into()),
    };
    let case = Case { title, lambda, full, stable: true, at: &at, show: &a.show };
    let mut answer = case.answer(language)?;
    if cap.is_none() {
        let bound = BatchLinear::new(lambda, alpha, tau0)?.w_bound();
        answer.add(
            Kind::Time,
            "w_bound",
            say!(language, "Inoue's bound on W", "Inoue 给出的 W 上界"),
            bound,
        );
    }
    Ok(answer)
}

pub fn bulk(a: &Bulk, language: Language) -> Result<Answer> {
    let (lambda, mu) = (a.load.lambda()?, a.load.mu()?);
    let k = count("--batch", &a.batch)?;
    let rule = match a.rule {
        Rule::Joinable => BatchRule::Joinable,
        Rule::Full => BatchRule::Full,
        Rule::Closed => BatchRule::Closed,
    };
    let (arrive, each) = (format::value(lambda), seconds(1.0 / mu));
    let title = say!(
        language,
        "M/M^[{k}]/1: {arrive}/s arrive, a batch of up to {k} takes {each} on average",
        "M/M^[{k}]/1：每秒到达 {arrive} 个，每批至多 {k} 个，平均需 {each}"
    );
    let at = |rate: f64| Ok(BulkMmK::new(rate, mu, k, rule)?.into());
    Case { title, lambda, full: k as f64 * mu, stable: true, at: &at, show: &a.show }
        .answer(language)
}

pub fn arrivals(a: &Arrivals, language: Language) -> Result<Answer> {
    let (lambda, mu) = (rate("--rate", &a.rate)?, a.service.mu()?);
    let (size, mean) = if let Some(mean) = a.size.trim().strip_prefix("geometric:") {
        let mean = pure("--size", mean)?;
        (BatchSize::Geometric(1.0 / mean), mean)
    } else {
        let n = count("--size", &a.size)?;
        (BatchSize::Constant(n), n as f64)
    };
    let (arrive, each, many) = (format::value(lambda), seconds(1.0 / mu), a.size.trim());
    let title = say!(
        language,
        "M^[X]/M/1: {arrive}/s batches of {many} arrive, one server takes {each} each on average",
        "M^[X]/M/1：每秒到达 {arrive} 批，每批 {many} 个，一个服务台平均每个需 {each}"
    );
    let at = |rate: f64| Ok(BatchArrivals::new(rate, size, mu)?.into());
    Case { title, lambda, full: mu / mean, stable: true, at: &at, show: &a.show }.answer(language)
}

#[derive(Args, Debug)]
pub struct Sharing {
    /// Arrival rate, λ.
    #[arg(long, value_name = "RATE")]
    rate: String,
    /// Total service rate with 1, 2, … requests in service, separated by commas.
    #[arg(long, value_name = "RATES")]
    rates: String,
    /// Waiting places; without it, as many as it takes.
    #[arg(long, value_name = "COUNT")]
    queue: Option<String>,
    /// Also the distribution of the response time.
    #[arg(long)]
    response: bool,
    #[command(flatten)]
    show: Show,
}

pub fn lps(a: &Sharing, language: Language) -> Result<Answer> {
    let lambda = rate("--rate", &a.rate)?;
    let rates = list(&a.rates, |item| rate("--rates", item))?;
    let room = a.queue.as_deref().map(|q| count("--queue", q)).transpose()?;
    let full = rates.last().copied().unwrap_or(0.0);
    let (arrive, slots) = (format::value(lambda), rates.len());
    let title = say!(
        language,
        "Limited processor sharing: {arrive}/s arrive, at most {slots} are served at once",
        "受限处理器共享：每秒到达 {arrive} 个，至多同时服务 {slots} 个"
    );
    let at = |rate: f64| {
        let queue = queueing::LpsStateDependent::new(rate, &rates, room)?;
        let response = if a.response { Some(queue.response()?) } else { None };
        let profile = Profile::from(queue);
        Ok(match response {
            Some(response) => profile.with_response(response),
            None => profile,
        })
    };
    Case { title, lambda, full, stable: room.is_none(), at: &at, show: &a.show }.answer(language)
}
