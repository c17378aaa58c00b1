//! Inverse problems: how many servers, how much traffic, for a target.

use anyhow::{Result, anyhow};
use clap::Args;
use metrics_core::format;
use metrics_core::metric::Language;
use queueing::plan::{self, Target};
use queueing::profile::{Kind, Quantity};
use queueing::{Mmc, Queue, WaitDistribution};

use super::answer::{Answer, figure_share, say, seconds};
use super::input::{Service, count, in_options, rate, share, time};
use crate::output;

#[derive(Args, Debug)]
pub struct Plan {
    /// What to keep: `p_wait<10%`, `mean(wait)<100ms`, `p99(wait)<1s`, `p99(response)<2s` or
    /// `blocking<1%`.
    #[arg(long, value_name = "TARGET")]
    target: String,
    /// Arrival rate, for the least number of servers.
    #[arg(long, value_name = "RATE", required_unless_present = "servers")]
    rate: Option<String>,
    #[command(flatten)]
    service: Service,
    /// Number of servers, for the largest arrival rate.
    #[arg(long, short = 'c', value_name = "COUNT", conflicts_with = "rate")]
    servers: Option<String>,
    /// Also split the traffic at random over this many queues.
    #[arg(long, value_name = "COUNT", requires = "rate", conflicts_with = "slots")]
    parts: Option<String>,
    /// Count replicas of this many slots each, with one queue for all and with a queue each.
    #[arg(long, value_name = "COUNT", requires = "rate")]
    slots: Option<String>,
}

/// What the inputs of the formulas are on the command line.
pub const OPTIONS: &[(&str, &str)] = &[
    ("lambda", "--rate"),
    ("mu", "the service rate"),
    ("c", "the number of servers"),
    ("p", "the share of --target"),
    ("t", "the time of --target"),
    ("wq", "the time of --target"),
    ("parts", "--parts"),
];

/// Reads a target.
fn target(text: &str) -> Result<Target> {
    let option = "--target";
    let refuse = || {
        anyhow!(
            "{option}: `{}`: write p_wait<10%, mean(wait)<100ms, p99(wait)<1s, p99(response)<2s or blocking<1%",
            output::one_line(text)
        )
    };
    let (what, limit) = text.split_once('<').ok_or_else(refuse)?;
    let (what, limit) = (what.trim(), limit.trim_start_matches('=').trim());
    match what {
        "p_wait" => return Ok(Target::PWait(share(option, limit)?)),
        "blocking" => return Ok(Target::Blocking(share(option, limit)?)),
        "mean(wait)" => return Ok(Target::MeanWait(time(option, limit)?)),
        _ => {}
    }
    let (percentile, rest) =
        what.strip_prefix('p').and_then(|w| w.split_once('(')).ok_or_else(refuse)?;
    let p = share(option, &format!("{percentile}%")).map_err(|_| refuse())?;
    let t = time(option, limit)?;
    match rest {
        "wait)" => Ok(Target::WaitQuantile { p, t }),
        "response)" => Ok(Target::ResponseQuantile { p, t }),
        _ => Err(refuse()),
    }
}

/// What the target is about at `c` servers, in words; `None` if they cannot keep up.
fn reached(lambda: f64, mu: f64, c: u64, target: &Target) -> Option<(Kind, &'static str, f64)> {
    let offered = lambda / mu;
    let queue = || Mmc::new(lambda, mu, c).ok();
    Some(match *target {
        Target::PWait(_) => (Kind::Share, "p_wait", queue()?.p_wait()),
        Target::MeanWait(_) => (Kind::Time, "wq", queue()?.wq()),
        Target::WaitQuantile { p, .. } => {
            (Kind::Time, "wq_quantile", queue()?.wq_quantile(p).ok()?)
        }
        Target::ResponseQuantile { p, .. } => {
            (Kind::Time, "w_quantile", queue()?.w_quantile(p).ok()?)
        }
        Target::Blocking(_) => (Kind::Share, "p_block", queueing::erlang_b(c, offered).ok()?),
        _ => return None,
    })
}

fn shown(kind: Kind, value: f64) -> String {
    if matches!(kind, Kind::Time) { seconds(value) } else { figure_share(value) }
}

/// The largest rate that `c` servers take.
fn largest_rate(mu: f64, c: u64, goal: &Target, text: &str, language: Language) -> Result<Answer> {
    let each = seconds(1.0 / mu);
    let most = plan::max_rate(mu, c, goal).map_err(|e| in_options(&e, &[("c", "--servers")]))?;
    let many = format::things(c, "server");
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "Largest rate for {text}: {many}, {each} each on average",
            "满足 {text} 的最大速率：{c} 个服务台，平均每个 {each}"
        ),
    );
    answer.add(Kind::Rate, "max_rate", say!(language, "largest arrival rate", "最大到达率"), most);
    answer.add(
        Kind::Number,
        "offered_load",
        say!(language, "offered load, erlangs", "提供负载（erlang）"),
        most / mu,
    );
    answer.quantity(Quantity::Utilization, (most / mu / c as f64).min(1.0));
    let (rate, busy) = (format::value(most), format::percent((most / mu / c as f64).min(1.0)));
    answer.reading = say!(
        language,
        "Up to {rate}/s keep it, busy {busy} of the time.",
        "到达率不超过 {rate}/s 即可满足，忙碌时间占 {busy}。"
    );
    Ok(answer)
}

/// With the traffic split, or with replicas of several slots.
fn shared(a: &Plan, (lambda, mu): (f64, f64), goal: &Target, answer: &mut Answer) -> Result<()> {
    let language = answer.language;
    if let Some(parts) = &a.parts {
        let n = count("--parts", parts)?;
        let pooling = plan::pooled_against_split(lambda, mu, n, goal)?;
        answer.add(
            Kind::Number,
            "servers_split",
            say!(language, "servers, {n} queues", "服务台数（{n} 个队列）"),
            pooling.split as f64,
        );
        let split = pooling.split;
        answer.reading += &say!(
            language,
            " Split at random over {n} queues it takes {split} in all.",
            "随机分到 {n} 个队列共需 {split} 个。"
        );
    }
    if let Some(slots) = &a.slots {
        let n = count("--slots", slots)?;
        let replicas = plan::min_replicas(lambda, mu, n, goal)
            .map_err(|e| in_options(&e, &[("c", "--slots")]))?;
        answer.add(
            Kind::Number,
            "replicas_pooled",
            say!(language, "replicas, one queue", "副本数（共用队列）"),
            replicas.pooled as f64,
        );
        answer.add(
            Kind::Number,
            "replicas_split",
            say!(language, "replicas, a queue each", "副本数（各自队列）"),
            replicas.split as f64,
        );
        let (pooled, split) = (replicas.pooled, replicas.split);
        let (slots, replicas) = (format::things(n, "slot"), format::things(pooled, "replica"));
        answer.reading += &say!(
            language,
            " With {slots} in each it takes {replicas} behind one queue, {split} with a queue each.",
            "每副本 {n} 个槽位：共用队列需 {pooled} 个副本，各自队列需 {split} 个。"
        );
    }
    Ok(())
}

pub fn plan(a: &Plan, language: Language) -> Result<Answer> {
    let goal = target(&a.target)?;
    let mu = a.service.mu()?;
    let (each, text) = (seconds(1.0 / mu), output::one_line(a.target.trim()));
    if let Some(servers) = &a.servers {
        return largest_rate(mu, count("--servers", servers)?, &goal, &text, language);
    }
    let lambda = rate("--rate", a.rate.as_deref().unwrap_or_default())?;
    let arrive = format::value(lambda);
    let mut answer = Answer::new(
        language,
        say!(
            language,
            "Least servers for {text}: {arrive}/s arrive, {each} each on average",
            "满足 {text} 的最少服务台：每秒到达 {arrive} 个，平均每个 {each}"
        ),
    );
    let c = plan::min_servers(lambda, mu, &goal)?;
    answer.add(
        Kind::Number,
        "servers",
        say!(language, "servers, one queue", "服务台数（共用队列）"),
        c as f64,
    );
    answer.add(
        Kind::Number,
        "offered_load",
        say!(language, "offered load, erlangs", "提供负载（erlang）"),
        lambda / mu,
    );
    answer.quantity(Quantity::Utilization, lambda / mu / c as f64);
    let value = reached(lambda, mu, c, &goal);
    if let Some((kind, key, value)) = value {
        answer.add(kind, key, say!(language, "reached with them", "达到的值"), value);
    }
    let fewer = if 1 < c { reached(lambda, mu, c - 1, &goal) } else { None };
    if let Some((kind, key, value)) = fewer {
        answer.add(
            kind,
            format!("{key}_with_one_less"),
            say!(language, "with one less", "少一个时"),
            value,
        );
    }
    if let Target::PWait(p) = goal
        && let Ok(rule) = plan::square_root_staffing(lambda / mu, p)
    {
        answer.add(
            Kind::Number,
            "square_root_staffing",
            say!(language, "by the square-root rule", "按平方根法则"),
            rule as f64,
        );
    }
    let many = format::things(c, "server");
    answer.reading = match (value, fewer) {
        (Some((kind, _, with)), Some((_, _, without))) => {
            let (with, without) = (shown(kind, with), shown(kind, without));
            say!(
                language,
                "{many} keep it ({with}), one less does not ({without}).",
                "{c} 个服务台可满足（{with}），少一个则不行（{without}）。"
            )
        }
        _ => say!(language, "{many} keep it, one less cannot.", "{c} 个服务台可满足，少一个不行。"),
    };
    shared(a, (lambda, mu), &goal, &mut answer)?;
    answer.notes.push(say!(
        language,
        "A value equal to its limit keeps it. Service is taken as exponential (for blocking any law does).",
        "等于上限视为满足。服务按指数分布计（阻塞与分布无关）。"
    ));
    Ok(answer)
}
