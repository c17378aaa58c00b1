//! The servers of a setting, one or several behind a router, and what runs on them.

use anyhow::{Result, anyhow, bail};
use metrics_core::{format, grammar};
use sched_sim::drive::{Driven, drive};
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::ledger::{Account, Ledger, Tail};
use sched_sim::server::{Books, Job, Server, run_stream};
use sched_sim::vllm_v1::{VllmConfig, VllmReplica};
use sched_sim::workload::Generated;
use sched_sim::{
    Disaggregated, Observer, Order, Replica, RunLimits, RunResult, RunStatistics, ServerSettings,
    StepTime, Ticks, Workload,
};
use serde_json::{Map, Value, json};

use serving_io::policy::VLLM_V1;
use serving_io::scenario::MOST_REPLICAS;

use super::{Arguments, Setting};
use crate::report::text as report_text;

/// What arrives in a run.
pub enum Arriving<'a> {
    /// Requests that wait for no answer.
    Open(&'a Workload),
    /// Those of clients who wait for answers.
    Waiting(Generated),
}

/// How many servers an option asks for.
pub fn replicas(option: &str, text: &str) -> Result<u64> {
    between(option, text, MOST_REPLICAS)
}

/// A count from 1 to `max`.
pub fn between(option: &str, text: &str, max: u64) -> Result<u64> {
    let n = grammar::count(text.trim()).map_err(|e| anyhow!("{option}: {e}"))?;
    if !(1..=max).contains(&n) {
        bail!("{option}: must be from 1 to {max}, got {n}");
    }
    Ok(n)
}

/// Reads the one count of an option, from `min` to `max`.
pub fn count_from(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        if text.contains(',') {
            return Err("takes one value, not a list".to_owned());
        }
        let n = grammar::count(text).ok();
        let bounds = format!("must be a whole number from {min} to {max}");
        n.filter(|n| (min..=max).contains(n)).ok_or(bounds)
    }
}

/// Reads a seed, which may be any whole number of 64 bits.
pub fn seed(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("must be a whole number from 0 to {}", u64::MAX))
}

/// What makes the servers of a setting.
pub struct Maker<'m, 'a, T> {
    pub arguments: &'m Arguments,
    pub setting: &'m Setting,
    /// Of vLLM, if it is one.
    pub config: Option<&'m VllmConfig>,
    pub cost: &'a T,
    /// For routers that draw.
    pub seed: u64,
}

impl<'a, T: StepTime> Maker<'_, 'a, T> {
    /// What refuses who arrives and the rest of a server's settings; one that is `open` refuses nobody
    /// who could end.
    fn settings(&self, open: bool) -> Result<ServerSettings> {
        let settings = self.setting.server.settings()?;
        Ok(if open { settings.open() } else { settings })
    }

    /// One server; one that is `open` refuses nobody who could end.
    pub fn one(&self, open: bool) -> Result<Box<dyn Server + 'a>> {
        self.one_with(self.settings(open)?)
    }

    fn one_with(&self, settings: ServerSettings) -> Result<Box<dyn Server + 'a>> {
        let Self { arguments, setting, config, cost, .. } = *self;
        let limits = RunLimits { until: setting.until, ..RunLimits::default() };
        if let Some(config) = config {
            let replica = VllmReplica::new(config.clone(), cost)?.limits(limits).gateway(&settings);
            return Ok(if arguments.reference {
                Box::new(replica.asked_in_every_step())
            } else {
                Box::new(replica)
            });
        }
        let new = if arguments.reference { Replica::reference } else { Replica::new };
        let replica = new(setting.named_policy()?, cost);
        Ok(Box::new(replica.settings(settings).limits(limits)))
    }

    /// So many behind the router of the setting, and a gateway in front of it.
    fn fleet(&self, n: u64, open: bool, seed: u64) -> Result<Box<dyn Server + 'a>> {
        if n == 1 {
            return self.one(open);
        }
        let (settings, router) = (self.settings(open)?, self.setting.router);
        let central = router == RouterKind::CentralQueue;
        let behind = settings.behind(central);
        let servers = (0..n).map(|_| self.one_with(behind)).collect::<Result<Vec<_>>>()?;
        let mut front = settings.in_front(central);
        if self.setting.by_priority() {
            front.order = Order::Priority;
        }
        Ok(Box::new(Fleet::new(servers, router, seed)?.gateway(&front)))
    }

    /// All servers of the setting. Whoever arrives is refused at the prefill pool, if there are two.
    pub fn server(&self) -> Result<Box<dyn Server + 'a>> {
        let Some(pools) = self.setting.pools else {
            return self.fleet(self.setting.replicas, false, self.seed);
        };
        let prefill = self.fleet(pools.prefill, false, self.seed)?;
        // Routers of two pools draw apart.
        let decode = self.fleet(pools.decode, true, !self.seed)?;
        Ok(Box::new(Disaggregated::new(prefill, decode, pools.transfer)))
    }
}

/// Runs an open loop on a server.
pub fn run_open<'w>(
    server: &mut dyn Server,
    workload: &'w Workload,
    patience: Option<Ticks>,
    observer: &mut dyn Observer,
) -> Result<RunResult<'w>> {
    let jobs = workload.requests().iter().enumerate().map(|(position, r)| {
        let mut job = Job::of(position, r);
        job.give_up_after(patience);
        job
    });
    let mut books = Books::new(workload, server.statistics().kv.is_some());
    let end = run_stream(server, jobs, observer, |over| books.take(over))?;
    Ok(books.close(server, end))
}

/// Runs clients who wait for their answers, for so long, on a server.
pub fn run_waiting(
    server: &mut dyn Server,
    mut clients: Generated,
    patience: Option<Ticks>,
    observer: &mut dyn Observer,
) -> Result<Driven> {
    Ok(drive(server, &mut clients, patience, observer)?)
}

/// One replica of a fleet, for a reader.
fn replica_line(i: usize, s: &RunStatistics) -> String {
    let share = |x: Option<f64>| x.map_or("-".to_owned(), format::percent);
    let hits = s.kv.and_then(|kv| kv.hit_rate());
    let hits = hits.map(|h| format!(", prefix hit rate {}", format::percent(h)));
    let kv = s.kv_utilization();
    let kv = kv.map(|used| format!(", {} of the KV blocks by time", format::percent(used)));
    format!(
        "{}: {}, busy {}, {} of the batch by time{}{}",
        i,
        format::things(s.injected, "request"),
        share(s.busy_share()),
        share(s.utilization_by_time()),
        kv.unwrap_or_default(),
        hits.unwrap_or_default()
    )
}

/// Replicas in the text: more would fill the screen, and JSON has them all.
const SHOWN: usize = 8;

/// The replicas of a fleet, and how uneven they are.
pub fn replica_lines(router: RouterKind, each: &[RunStatistics]) -> Vec<String> {
    let mut lines = vec![match imbalance(each) {
        _ if each.len() == 1 => "1 replica".to_owned(),
        Some(x) => format!(
            "{} replicas behind {router}; the fullest had {} times the mean of the requests",
            each.len(),
            format::fixed(x, 2)
        ),
        None => format!("{} replicas behind {router}", each.len()),
    }];
    lines.extend(each.iter().enumerate().take(SHOWN).map(|(i, s)| replica_line(i, s)));
    if SHOWN < each.len() {
        lines.push(format!("and {} more (--format json has all)", each.len() - SHOWN));
    }
    lines
}

/// Most over mean requests of a replica.
pub fn imbalance(each: &[RunStatistics]) -> Option<f64> {
    let most = each.iter().map(|s| s.injected).max()?;
    let sum: u64 = each.iter().map(|s| s.injected).sum();
    (0 < sum).then(|| most as f64 * each.len() as f64 / sum as f64)
}

/// The replicas of a fleet as data.
pub fn replicas_json(router: RouterKind, each: &[RunStatistics]) -> Value {
    let rows: Vec<Value> = each
        .iter()
        .map(|s| {
            json!({
                "requests": s.injected,
                "completed": s.completed,
                "busy_share": s.busy_share(),
                "batch_utilization_by_time": s.utilization_by_time(),
                "waiting_max": s.waiting_max,
                "kv_utilization_by_time": s.kv_utilization(),
                "kv_utilization_max": s.kv.and_then(|kv| kv.utilization_max()),
                "prefix_hit_rate": s.kv.and_then(|kv| kv.hit_rate()),
                "preemptions": s.kv.map(|kv| kv.preemptions),
            })
        })
        .collect();
    json!({
        "router": router.name(),
        "most_over_mean_requests": imbalance(each),
        "replicas": rows,
    })
}

/// The percentile that `--explain-tail` names, `p99` or `99`.
pub fn percentile(text: &str) -> Result<f64> {
    let wrong =
        || anyhow!("--explain-tail: expected a percentile below 100, such as p99, got `{text}`");
    let number = text.strip_prefix('p').unwrap_or(text);
    let p: f64 = number.parse().map_err(|_| wrong())?;
    if (0.0..100.0).contains(&p) { Ok(p) } else { Err(wrong()) }
}

/// The option of a policy that bounds what a request waits for before its admission, if one does.
fn limit(account: Account, setting: &Setting) -> Option<&'static str> {
    let policy = setting.policy.as_str();
    let engine = &setting.engine;
    // Options of vLLM that bound the same, of which one cannot tell here which did.
    let unclear = |names: &[&str]| engine.given().iter().any(|(name, _)| names.contains(name));
    match account {
        Account::WaitSlots if unclear(&["max_num_active_seqs"]) => None,
        Account::WaitBudget
            if unclear(&[
                "max_num_scheduled_tokens",
                "long_prefill_token_threshold",
                "prefill_schedule_interval",
            ]) =>
        {
            None
        }
        // A static batch is closed, however many it may have.
        Account::WaitSlots => (policy != "static").then_some("max_num_seqs"),
        Account::WaitBlocks if setting.is_vllm() => Some("num_kv_blocks"),
        Account::WaitBlocks => Some("kv_blocks"),
        Account::WaitBudget => match policy {
            "sarathi" | "sglang" => Some("chunk"),
            "prefill-first" | VLLM_V1 => Some("max_num_batched_tokens"),
            _ => None,
        },
        _ => None,
    }
}

/// Where the time of the slowest requests of a run went.
pub struct TailAnswer {
    p: f64,
    ttft: Option<Tail>,
    e2e: Option<Tail>,
}

impl TailAnswer {
    /// Of the requests from the percentile `p` on, by TTFT and by E2E.
    pub fn of(ledger: &Ledger, p: f64) -> Self {
        Self { p, ttft: ledger.tail_by_ttft(p), e2e: ledger.tail_by_e2e(p) }
    }

    /// One sentence for each latency of a run with this setting, and the accounts below it.
    pub fn lines(&self, setting: &Setting) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        for (name, tail) in [("TTFT", &self.ttft), ("E2E", &self.e2e)] {
            let Some(tail) = tail else {
                lines.push((name, "no request is completed".to_owned()));
                continue;
            };
            let dominant = tail.accounts.dominant();
            let share =
                |account| tail.accounts.share(account).map_or("-".to_owned(), format::percent);
            lines.push((
                name,
                format!(
                    "the slowest {} ({} from {} on) spend {} of it on {}{}",
                    format::percent(1.0 - self.p / 100.0),
                    format::things(tail.requests as u64, "request"),
                    report_text::time(tail.from.seconds()),
                    share(dominant),
                    dominant.meaning().0,
                    limit(dominant, setting).map_or(String::new(), |name| format!(" ({name})"))
                ),
            ));
            let parts: Vec<String> = Account::ALL
                .into_iter()
                .filter(|&a| a != dominant && tail.accounts.attoseconds(a) != 0)
                .map(|a| format!("{} {}", a.meaning().0, share(a)))
                .collect();
            if !parts.is_empty() {
                lines.push(("", parts.join(", ")));
            }
        }
        lines
    }

    /// The same as data, seconds of all slowest requests together.
    pub fn json(&self) -> Value {
        let one = |tail: &Option<Tail>| {
            tail.as_ref().map(|tail| {
                let accounts: Map<String, Value> = Account::ALL
                    .into_iter()
                    .map(|a| (format!("{}_s", a.id()), json!(tail.accounts.seconds(a))))
                    .collect();
                json!({
                    "requests": tail.requests,
                    "from_s": tail.from.seconds(),
                    "dominant": tail.accounts.dominant().id(),
                    "dominant_share": tail.accounts.share(tail.accounts.dominant()),
                    "accounts": accounts,
                })
            })
        };
        json!({ "percentile": self.p, "ttft": one(&self.ttft), "e2e": one(&self.e2e) })
    }
}
