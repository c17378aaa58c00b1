//! Lists of values and what they make of settings: every combination.

use anyhow::{Result, anyhow, bail};
use metrics_core::grammar;
use metrics_core::measured::Cut;
use metrics_core::slo::SloSet;
use sched_sim::fleet::RouterKind;
use sched_sim::workload::Delay;
use sched_sim::{AdmissionRule, Order, Preemption, RateScale, Ticks, TokenBucket};
use serving_io::engine::EngineOptions;
use serving_io::policy::{
    self, ServerOptions, VLLM_V1, caches_prefixes, may_swap, takes_batched_tokens,
};
use serving_io::scenario::{MOST_USERS, StepTimeSource};

use super::render::step_time_name;
use super::{Arguments, served};

/// Most runs of one command: each keeps its answer in memory until the last one has ended.
pub(super) const MOST_RUNS: usize = 1_000_000;

/// Refuses more runs than one command has; `how`: what makes so many.
pub(super) fn at_most(runs: usize, how: impl FnOnce() -> String) -> Result<()> {
    if MOST_RUNS < runs {
        bail!("{} make {runs} runs, and one command has at most {MOST_RUNS}", how());
    }
    Ok(())
}

/// Each of them with each value of a list, or as it is without any.
pub(super) fn with<S: Clone, T>(
    flag: &str,
    all: Vec<S>,
    values: &[T],
    set: impl Fn(&mut S, &T),
) -> Result<Vec<S>> {
    if values.is_empty() {
        return Ok(all);
    }
    let (own, n) = (all.len(), values.len());
    at_most(own.saturating_mul(n), || {
        format!("{flag}: its {n} values for each of {own} settings")
    })?;
    let mut longer = Vec::with_capacity(own * n);
    for one in all {
        for value in values {
            let mut one = one.clone();
            set(&mut one, value);
            longer.push(one);
        }
    }
    Ok(longer)
}

/// What becomes of each of them, which may be several.
pub(super) fn each<S>(flag: &str, all: Vec<S>, of: impl Fn(S) -> Result<Vec<S>>) -> Result<Vec<S>> {
    let mut longer = Vec::with_capacity(all.len());
    for one in all {
        longer.extend(of(one)?);
        at_most(longer.len(), || format!("{flag}: its values"))?;
    }
    Ok(longer)
}

/// The values of a list, each once.
pub(super) fn unique<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut once = Vec::with_capacity(values.len());
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}

/// The values that an option has, each read by itself.
pub(super) fn parsed<T, E: std::fmt::Display>(
    flag: &str,
    texts: &[String],
    read: impl Fn(&str) -> std::result::Result<T, E>,
) -> Result<Vec<T>> {
    let one = |text: &String| {
        read(text).map_err(|e| {
            // Where a value may have commas of its own, they make no list.
            let is_list = text.contains(',') && text.split(',').all(|part| read(part).is_ok());
            let hint = if is_list { ": for a list give the option several times" } else { "" };
            anyhow!("{flag}: {e}{hint}")
        })
    };
    texts.iter().map(one).collect()
}

/// Refuses several values for an option that takes one here.
pub(super) fn single(lists: &[(&str, usize)]) -> Result<()> {
    match lists.iter().find(|(_, n)| 1 < *n) {
        Some((flag, n)) => bail!("{flag}: needs one value here, got {n}"),
        None => Ok(()),
    }
}

/// The list of the command line, or the scenario's own value.
pub(super) fn or_own<T: Clone>(list: &[T], own: &T) -> Vec<T> {
    if list.is_empty() { vec![own.clone()] } else { list.to_vec() }
}

/// The lists of a command line.
pub(super) struct Lists {
    pub(super) policies: Vec<String>,
    pub(super) max_num_seqs: Vec<u64>,
    pub(super) chunks: Vec<u64>,
    pub(super) servers: Servers,
    /// Every combination of vLLM's options; at least one.
    pub(super) engines: Vec<EngineOptions>,
    pub(super) rate_scales: Vec<RateScale>,
    pub(super) step_times: Vec<StepTimeSource>,
    /// The one set of objectives, if it is given.
    pub(super) slo: Option<SloSet>,
    pub(super) replicas: Vec<u64>,
    pub(super) routers: Vec<RouterKind>,
    pub(super) users: Vec<u64>,
    pub(super) thinks: Vec<Delay>,
    pub(super) timeouts: Vec<Ticks>,
    pub(super) untils: Vec<Ticks>,
    pub(super) warm_ups: Vec<Cut>,
    pub(super) cool_downs: Vec<Cut>,
}

impl Lists {
    /// What the flags say.
    pub(super) fn of(arguments: &Arguments, slo: Option<SloSet>) -> Result<Self> {
        let step_times = step_times(&arguments.step_time)?;
        let max_num_seqs = counts("--max-num-seqs", &arguments.max_num_seqs)?;
        let chunks = counts("--chunk", &arguments.chunk)?;
        let rate_scales = parsed("--rate-scale", &arguments.rate_scale, |s| s.trim().parse())?;
        let time = |t: &str| t.trim().parse::<Ticks>();
        let timeouts = parsed("--timeout", &arguments.timeout, time)?;
        let untils = parsed("--until", &arguments.until, time)?;
        let warm_ups = parsed("--warm-up", &arguments.warm_up, |t| t.trim().parse::<Cut>())?;
        let cool_downs = parsed("--cool-down", &arguments.cool_down, |t| Cut::cool_down(t.trim()))?;
        let thinks = arguments.generate.thinks()?;
        let engines = arguments.engine.combinations()?;
        let mut policies = arguments.policy.clone();
        policies.extend(arguments.engine.engine.iter().map(|_| VLLM_V1.to_owned()));
        if !arguments.engine.num_kv_blocks.is_empty() && !arguments.engine.kv_memory.is_empty() {
            bail!("--num-kv-blocks and --kv-memory both say how large the KV cache is: give one");
        }
        let servers = Servers::of(arguments)?;
        let replicas = arguments.replicas.iter();
        let replicas = replicas.map(|n| served::replicas("--replicas", n));
        let users = arguments.users.iter().map(|n| served::between("--users", n, MOST_USERS));
        Ok(Self {
            policies,
            max_num_seqs,
            chunks,
            servers,
            engines,
            rate_scales,
            step_times,
            slo,
            replicas: replicas.collect::<Result<_>>()?,
            routers: parsed("--router", &arguments.router, |r| r.trim().parse())?,
            users: users.collect::<Result<_>>()?,
            thinks,
            timeouts,
            untils,
            warm_ups,
            cool_downs,
        })
    }
}

/// The step times of a list, no two of which have the same name.
fn step_times(list: &[String]) -> Result<Vec<StepTimeSource>> {
    let all: Vec<StepTimeSource> = parsed("--step-time", list, str::parse::<StepTimeSource>)?;
    for (i, one) in all.iter().enumerate() {
        let name = step_time_name(one);
        if all[..i].iter().any(|other| other != one && step_time_name(other) == name) {
            bail!("--step-time: two that are called {name} differ: give them names of their own");
        }
    }
    Ok(all)
}

/// Lists for servers under policies other than vllm-v1.
pub(super) struct Servers {
    pub(super) tokens: Vec<u64>,
    kv_blocks: Vec<u64>,
    pub(super) block_size: Vec<u64>,
    orders: Vec<Order>,
    pub(super) preemptions: Vec<Preemption>,
    pub(super) caching: Vec<bool>,
    max_waiting: Vec<u64>,
    max_waiting_tokens: Vec<u64>,
    token_buckets: Vec<TokenBucket>,
    admission_rules: Vec<AdmissionRule>,
}

/// The list of --preemption, with every time that a swap takes.
fn preemptions(list: &[String], swap_times: &[String]) -> Result<Vec<Preemption>> {
    let times = parsed("--swap-time", swap_times, policy::swap_time)?;
    let mut all = Vec::new();
    for name in list {
        match name.trim() {
            "recompute" => all.push(Preemption::Recompute),
            "swap" if times.is_empty() => {
                bail!("--preemption: swap needs --swap-time, such as 1us/token")
            }
            "swap" => all.extend(times.iter().map(|&per_token| Preemption::Swap { per_token })),
            other => bail!("--preemption: expected recompute or swap, got `{other}`"),
        }
    }
    let swaps = |p: &Preemption| matches!(p, Preemption::Swap { .. });
    if !times.is_empty() && !all.iter().any(swaps) {
        bail!("--swap-time: says nothing without --preemption swap");
    }
    Ok(all)
}

/// The counts of a list.
fn counts(option: &str, list: &[String]) -> Result<Vec<u64>> {
    parsed(option, list, |n| grammar::count(n.trim()))
}

/// The switches of a list, each on or off.
fn switches(option: &str, list: &[String]) -> Result<Vec<bool>> {
    let one = |text: &String| match text.trim().to_lowercase().as_str() {
        "true" | "on" | "1" | "" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(anyhow!("{option}: expected true or false, got `{text}`")),
    };
    list.iter().map(one).collect()
}

impl Servers {
    /// What the flags say.
    fn of(arguments: &Arguments) -> Result<Self> {
        Ok(Self {
            tokens: counts("--max-num-batched-tokens", &arguments.engine.max_num_batched_tokens)?,
            kv_blocks: counts("--kv-blocks", &arguments.kv_blocks)?,
            block_size: counts("--block-size", &arguments.engine.block_size)?,
            orders: parsed("--order", &arguments.order, |o| o.trim().parse::<Order>())?,
            preemptions: preemptions(&arguments.preemption, &arguments.swap_time)?,
            caching: if arguments.disable_radix_cache {
                vec![false]
            } else {
                switches("--enable-prefix-caching", &arguments.engine.enable_prefix_caching)?
            },
            max_waiting: arguments.max_waiting.clone(),
            max_waiting_tokens: arguments.max_waiting_tokens.clone(),
            token_buckets: arguments.token_bucket.clone(),
            admission_rules: arguments.admission_rule.clone(),
        })
    }

    /// Every combination, with the scenario's own values where a list is empty; a list that the
    /// policy does not follow leaves nothing behind.
    pub(super) fn combinations(
        &self,
        policy: &str,
        own: &ServerOptions,
    ) -> Result<Vec<ServerOptions>> {
        /// A list that is followed, or an empty one.
        fn if_so<T>(is: bool, list: &[T]) -> &[T] {
            if is { list } else { &[] }
        }
        let batches = takes_batched_tokens(policy);
        let mut own = own.clone();
        own.max_num_batched_tokens = own.max_num_batched_tokens.filter(|_| batches);
        let tokens = if_so(batches, &self.tokens);
        let all = with("--max-num-batched-tokens", vec![own], tokens, |s, n| {
            s.max_num_batched_tokens = Some(*n);
        })?;
        let all = with("--kv-blocks", all, &self.kv_blocks, |s, n| s.kv_blocks = Some(*n))?;
        let all = each("--block-size", all, |s| {
            let sizes = if_so(s.kv_blocks.is_some(), &self.block_size);
            with("--block-size", vec![s], sizes, |s, n| s.block_size = Some(*n))
        })?;
        let all = with("--order", all, &self.orders, |s, order| s.order = Some(*order))?;
        let all = each("--preemption", all, |mut s| {
            let preempts = may_swap(policy) && s.kv_blocks.is_some();
            s.preemption = s.preemption.filter(|_| preempts);
            let how = if_so(preempts, &self.preemptions);
            with("--preemption", vec![s], how, |s, how| s.preemption = Some(*how))
        })?;
        let all = each("--enable-prefix-caching", all, |mut s| {
            let caches = caches_prefixes(policy) && s.kv_blocks.is_some();
            s.enable_prefix_caching = s.enable_prefix_caching.filter(|_| caches);
            let caching = if_so(caches, &self.caching);
            with("--enable-prefix-caching", vec![s], caching, |s, on| {
                s.enable_prefix_caching = Some(*on);
            })
        })?;
        self.gateways(all)
    }

    /// These options with everybody who refuses who arrives.
    pub(super) fn gateways(&self, all: Vec<ServerOptions>) -> Result<Vec<ServerOptions>> {
        let all = with("--max-waiting", all, &self.max_waiting, |s, n| s.max_waiting = Some(*n))?;
        let all = with("--max-waiting-tokens", all, &self.max_waiting_tokens, |s, n| {
            s.max_waiting_tokens = Some(*n);
        })?;
        let all = with("--token-bucket", all, &self.token_buckets, |s, bucket| {
            s.token_bucket = Some(Box::new(*bucket));
        })?;
        with("--admission-rule", all, &self.admission_rules, |s, rule| {
            s.admission_rule = Some(Box::new(*rule));
        })
    }
}
