//! What arrives and under which settings: a trace or a scenario, and the lists of the command line.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use metrics_core::grammar;
use metrics_core::measured::Cuts;
use sched_sim::fleet::RouterKind;
use sched_sim::{DecodeFirst, Order, Policy, Preemption, RateScale, Ticks, Workload};
use serving_io::engine::EngineOptions;
use serving_io::policy::{
    self, POLICIES, ServerOptions, VLLM_V1, caches_prefixes, in_words, may_swap,
    takes_batched_tokens, takes_chunk,
};
use serving_io::scenario::{MOST_USERS, Scenario, StepTimeSource, WorkloadSource};

use super::pools::Pools;
use super::saturation::Saturation;
use super::setting::{add, with_names};
use super::{Arguments, Setting, Source, pools, served};
use crate::trace::Part;

/// Refuses flags of a trace without one, and flags of drawn requests beside one.
fn for_their_source(arguments: &Arguments) -> Result<()> {
    if let (None, Some(flag)) = (&arguments.trace, arguments.part.given()) {
        bail!("{flag}: is for a trace, add --trace FILE");
    }
    if let (Some(flag), Some(path)) = (arguments.generate.given(), &arguments.trace) {
        bail!("{flag}: the requests of {} are not drawn from a seed", path.display());
    }
    Ok(())
}

/// What arrives, and the settings that flags vary.
fn bases(arguments: &Arguments, output: Option<&Path>) -> Result<(Source, Vec<Setting>)> {
    if let Some(path) = &arguments.trace {
        return Ok((traced(path, &arguments.part)?, vec![Setting::of_a_trace()?]));
    }
    let scenario = match &arguments.scenario {
        Some(path) => Scenario::read_path(path).map_err(|e| anyhow!("{e}"))?,
        None => Scenario::built_in().map_err(|e| anyhow!("{e}"))?,
    };
    arguments.check_inputs(&scenario.files, output)?;
    scenario_settings(arguments, scenario)
}

/// What arrives, and under which settings.
pub(super) fn plan(arguments: &Arguments, output: Option<&Path>) -> Result<(Source, Vec<Setting>)> {
    let slo = arguments.objectives.set(&[])?;
    let slo = (!slo.is_empty()).then_some(slo);
    for_their_source(arguments)?;
    let (source, bases) = bases(arguments, output)?;
    let step_time = arguments
        .step_time
        .as_deref()
        .map(|t| t.parse::<StepTimeSource>().map_err(|e| anyhow!("--step-time: {e}")))
        .transpose()?;
    let limits = counts("--max-num-seqs", &arguments.max_num_seqs)?;
    let chunks = counts("--chunk", &arguments.chunk)?;
    let scales: Result<Vec<RateScale>> = arguments
        .rate_scale
        .iter()
        .map(|s| s.trim().parse().map_err(|e| anyhow!("--rate-scale: {e}")))
        .collect();
    let scales = scales?;
    let timeout = time_of("--timeout", arguments.timeout.as_deref())?;
    let until = time_of("--until", arguments.until.as_deref())?;
    let cuts = arguments.cuts()?;
    let think = arguments.generate.think()?;
    let engines = arguments.engine.combinations()?;
    let mut policies = arguments.policy.clone();
    policies.extend(arguments.engine.engine.iter().map(|_| VLLM_V1.to_owned()));
    if !arguments.engine.num_kv_blocks.is_empty() && !arguments.engine.kv_memory.is_empty() {
        bail!("--num-kv-blocks and --kv-memory both say how large the KV cache is: give one");
    }
    let servers = Servers::of(arguments)?;
    let none = EngineOptions::default();
    let mut settings: Vec<Setting> = Vec::new();
    for base in &bases {
        for policy in &or_own(&policies, &base.policy) {
            if !POLICIES.contains(&policy.as_str()) {
                let known = POLICIES.join(", ");
                bail!("--policy: unknown policy `{policy}`, this version has {known}");
            }
            let is_vllm = policy == VLLM_V1;
            // Each policy has its own limits: a list of the other's leaves it as it is.
            let own = if base.is_vllm() == is_vllm { base.max_num_seqs } else { 0 };
            let own = if is_vllm || own > 0 { own } else { DecodeFirst::default().max_num_seqs() };
            let chunk = if base.chunk > 0 { base.chunk } else { DecodeFirst::default().chunk() };
            let chunks = if takes_chunk(policy) { or_own(&chunks, &chunk) } else { vec![0] };
            // Each policy has options of its own kind; whoever refuses stands in front of any.
            let options: Vec<(EngineOptions, ServerOptions)> = if is_vllm {
                let gateway = arguments.admission(&base.server.gateway());
                engines.iter().map(|e| (e.clone(), gateway.clone())).collect()
            } else {
                let own = arguments.admission(&base.server);
                let servers = servers.combinations(policy, &own).into_iter();
                servers.map(|s| (EngineOptions::default(), s)).collect()
            };
            for &max_num_seqs in &or_own(&limits, &own) {
                for &chunk in &chunks {
                    for (engine, server) in &options {
                        for &rate_scale in &or_own(&scales, &base.rate_scale) {
                            // Another scheduler follows none of vLLM's options.
                            let mut engine = if is_vllm {
                                engine.clone().over(&base.engine)
                            } else {
                                none.clone()
                            };
                            if is_vllm && max_num_seqs > 0 {
                                engine.set("max_num_seqs", &max_num_seqs.to_string())?;
                            }
                            if is_vllm && let Some(bytes) = arguments.kv_bytes_per_token {
                                engine.set("kv_bytes_per_token", &bytes.to_string())?;
                            }
                            let setting = Setting {
                                policy: policy.clone(),
                                max_num_seqs,
                                chunk,
                                rate_scale,
                                step_time: step_time.clone().unwrap_or(base.step_time.clone()),
                                slo: slo.clone().unwrap_or(base.slo.clone()),
                                engine,
                                server: server.clone(),
                                timeout: timeout.or(base.timeout),
                                until: until.or(base.until),
                                cuts: Cuts {
                                    warm_up: cuts.warm_up.or(base.cuts.warm_up),
                                    cool_down: cuts.cool_down.or(base.cuts.cool_down),
                                },
                                think: think.unwrap_or(base.think),
                                ..base.clone()
                            };
                            let mut setting = setting.show_limit();
                            if arguments.scenario.is_some() {
                                setting.note_left_behind(base, limits.is_empty());
                            }
                            add(&mut settings, setting);
                        }
                    }
                }
            }
        }
    }
    options_that_do_nothing(arguments, &settings, (&limits, &chunks), &servers, &engines)?;
    let settings = with_fleets(arguments, settings)?;
    Ok((source, with_names(settings, bases)))
}

/// Refuses options that no setting follows.
fn options_that_do_nothing(
    arguments: &Arguments,
    settings: &[Setting],
    (max_num_seqs, chunks): (&[u64], &[u64]),
    servers: &Servers,
    engines: &[EngineOptions],
) -> Result<()> {
    // A setting of vllm-v1 takes 0 for "vLLM's own".
    if max_num_seqs.contains(&0) && settings.iter().any(Setting::is_vllm) {
        bail!("--max-num-seqs: must be at least 1, got 0");
    }
    let any = |of: &dyn Fn(&Setting) -> bool| settings.is_empty() || settings.iter().any(of);
    if !chunks.is_empty() && !any(&|s| takes_chunk(&s.policy)) {
        bail!(
            "--chunk: is for {}; {VLLM_V1} has --long-prefill-token-threshold, {} \
             --max-num-batched-tokens",
            in_words(takes_chunk),
            in_words(takes_batched_tokens)
        );
    }
    for (option, given) in [("--kv-blocks", &arguments.kv_blocks), ("--order", &arguments.order)] {
        if !given.is_empty() && !any(&|s| !s.is_vllm()) {
            bail!(
                "{option}: is not for {VLLM_V1}, which has --num-kv-blocks and --scheduling-policy"
            );
        }
    }
    if !servers.block_size.is_empty() && !any(&|s| s.is_vllm() || s.server.kv_blocks.is_some()) {
        bail!("--block-size: says nothing without --kv-blocks");
    }
    let preempts = |s: &Setting| may_swap(&s.policy) && s.server.kv_blocks.is_some();
    if !servers.preemptions.is_empty() && !any(&preempts) {
        bail!("--preemption: is for {}, and says nothing without --kv-blocks", in_words(may_swap));
    }
    if !servers.tokens.is_empty() && !any(&|s| s.is_vllm() || takes_batched_tokens(&s.policy)) {
        let others = in_words(takes_batched_tokens);
        bail!("--max-num-batched-tokens: is for {others} and {VLLM_V1}");
    }
    let caches = |s: &Setting| caches_prefixes(&s.policy) && s.server.kv_blocks.is_some();
    if arguments.disable_radix_cache && !any(&caches) {
        if any(&Setting::is_vllm) {
            bail!(
                "--disable-radix-cache: is for sglang; {VLLM_V1} has --enable-prefix-caching=false"
            );
        }
        bail!("--disable-radix-cache: is for sglang, and says nothing without --kv-blocks");
    }
    if !servers.caching.is_empty() && !any(&|s| s.is_vllm() || caches(s)) {
        bail!(
            "--enable-prefix-caching: is for {VLLM_V1}, and for sglang with --kv-blocks: no other \
             policy keeps prefixes"
        );
    }
    let shared = ["max_num_batched_tokens", "block_size", "enable_prefix_caching"];
    let mut of_vllm: Vec<&str> =
        engines.iter().flat_map(EngineOptions::given).map(|(n, _)| *n).collect();
    of_vllm.retain(|name| !shared.contains(name));
    if !of_vllm.is_empty() && !any(&Setting::is_vllm) {
        of_vllm.sort_unstable();
        of_vllm.dedup();
        let named: Vec<String> =
            of_vllm.iter().map(|name| format!("--{}", name.replace('_', "-"))).collect();
        bail!("{}: for {VLLM_V1} alone: add --policy {VLLM_V1}", named.join(", "));
    }
    Ok(())
}

/// Lists for servers under policies other than vllm-v1.
struct Servers {
    tokens: Vec<u64>,
    kv_blocks: Vec<u64>,
    block_size: Vec<u64>,
    orders: Vec<Order>,
    preemptions: Vec<Preemption>,
    caching: Vec<bool>,
}

/// The list of --preemption.
fn preemptions(list: &[String], swap_time: Option<&str>) -> Result<Vec<Preemption>> {
    let mut all = Vec::new();
    for name in list {
        all.push(match name.trim() {
            "recompute" => Preemption::Recompute,
            "swap" => {
                let time = swap_time.ok_or_else(|| {
                    anyhow!("--preemption: swap needs --swap-time, such as 1us/token")
                })?;
                let per_token = policy::swap_time(time).map_err(|e| anyhow!("--swap-time: {e}"))?;
                Preemption::Swap { per_token }
            }
            other => bail!("--preemption: expected recompute or swap, got `{other}`"),
        });
    }
    let swaps = |p: &Preemption| matches!(p, Preemption::Swap { .. });
    if swap_time.is_some() && !all.iter().any(swaps) {
        bail!("--swap-time: says nothing without --preemption swap");
    }
    Ok(all)
}

/// The counts of a list.
fn counts(option: &str, list: &[String]) -> Result<Vec<u64>> {
    list.iter().map(|n| grammar::count(n.trim()).map_err(|e| anyhow!("{option}: {e}"))).collect()
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

/// The time of an option, if it is given.
fn time_of(option: &str, text: Option<&str>) -> Result<Option<Ticks>> {
    text.map(|t| t.parse().map_err(|e| anyhow!("{option}: {e}"))).transpose()
}

impl Servers {
    /// What the flags say.
    fn of(arguments: &Arguments) -> Result<Self> {
        let orders = arguments.order.iter();
        let orders = orders.map(|o| o.trim().parse::<Order>().map_err(|e| anyhow!("--order: {e}")));
        Ok(Self {
            tokens: counts("--max-num-batched-tokens", &arguments.engine.max_num_batched_tokens)?,
            kv_blocks: counts("--kv-blocks", &arguments.kv_blocks)?,
            block_size: counts("--block-size", &arguments.engine.block_size)?,
            orders: orders.collect::<Result<_>>()?,
            preemptions: preemptions(&arguments.preemption, arguments.swap_time.as_deref())?,
            caching: if arguments.disable_radix_cache {
                vec![false]
            } else {
                switches("--enable-prefix-caching", &arguments.engine.enable_prefix_caching)?
            },
        })
    }

    /// Every combination, with the scenario's own values where a list is empty.
    fn combinations(&self, policy: &str, own: &ServerOptions) -> Vec<ServerOptions> {
        fn options<T: Copy>(list: &[T], own: Option<T>) -> Vec<Option<T>> {
            if list.is_empty() { vec![own] } else { list.iter().copied().map(Some).collect() }
        }
        let batches = takes_batched_tokens(policy);
        let tokens = if batches { self.tokens.as_slice() } else { &[] };
        let own_tokens = own.max_num_batched_tokens.filter(|_| batches);
        let mut all = Vec::new();
        for tokens in options(tokens, own_tokens) {
            for kv_blocks in options(&self.kv_blocks, own.kv_blocks) {
                let sizes = if kv_blocks.is_some() { self.block_size.as_slice() } else { &[] };
                for block_size in options(sizes, own.block_size) {
                    let preempts = may_swap(policy) && kv_blocks.is_some();
                    let how = if preempts { self.preemptions.as_slice() } else { &[] };
                    let own_preemption = own.preemption.filter(|_| preempts);
                    let caches = caches_prefixes(policy) && kv_blocks.is_some();
                    let caching = if caches { self.caching.as_slice() } else { &[] };
                    let own_caching = own.enable_prefix_caching.filter(|_| caches);
                    for order in options(&self.orders, own.order) {
                        for preemption in options(how, own_preemption) {
                            for caching in options(caching, own_caching) {
                                let mut server = own.clone();
                                server.max_num_batched_tokens = tokens;
                                server.kv_blocks = kv_blocks;
                                server.block_size = block_size;
                                server.order = order;
                                server.preemption = preemption;
                                server.enable_prefix_caching = caching;
                                all.push(server);
                            }
                        }
                    }
                }
            }
        }
        all
    }
}

/// The list of the command line, or the scenario's own value.
fn or_own<T: Clone>(list: &[T], own: &T) -> Vec<T> {
    if list.is_empty() { vec![own.clone()] } else { list.to_vec() }
}

/// A flag of arrivals that wait for no answer, if one was given.
fn of_an_open_loop(arguments: &Arguments) -> Option<&'static str> {
    let scaled = (!arguments.rate_scale.is_empty()).then_some("--rate-scale");
    arguments.generate.of_arrivals().or(scaled)
}

/// Every setting with every number of replicas, router and number of users.
fn with_fleets(arguments: &Arguments, settings: Vec<Setting>) -> Result<Vec<Setting>> {
    let counts = |option: &str, list: &[String], max: u64| -> Result<Vec<u64>> {
        list.iter().map(|n| served::between(option, n, max)).collect()
    };
    let replicas = (arguments.replicas.iter())
        .map(|n| served::replicas("--replicas", n))
        .collect::<Result<Vec<u64>>>()?;
    let users = counts("--users", &arguments.users, MOST_USERS)?;
    let routers = (arguments.router.iter())
        .map(|r| r.trim().parse().map_err(|e| anyhow!("--router: {e}")))
        .collect::<Result<Vec<RouterKind>>>()?;
    let open_loop = of_an_open_loop(arguments);
    let users_of_scenario = settings.iter().find(|s| s.users.is_some());
    if let (Some(flag), Some(setting)) = (open_loop, users_of_scenario) {
        let whose = setting.name.as_ref().map_or(String::new(), |n| format!("variant {n} of "));
        bail!(
            "{flag}: is for an open loop, and {whose}the scenario has users, who wait for answers"
        );
    }
    let has_users = !users.is_empty() || settings.iter().any(|s| s.users.is_some());
    if arguments.generate.only_think() && !has_users {
        bail!("--think: is for --users, or for sessions with --turns");
    }
    let users: Vec<Option<u64>> = users.into_iter().map(Some).collect();
    let mut all: Vec<Setting> = Vec::new();
    let mut routes = false;
    for setting in settings {
        // A number of replicas, or two pools: flags give one of them.
        let pools: Vec<_> = pools::of(arguments, &setting)?.into_iter().map(Some).collect();
        let fleets = or_own(&replicas, &setting.replicas).into_iter().map(|n| (n, None));
        let pools = pools.into_iter().map(|pools| (1, pools));
        let fleets: Vec<(u64, Option<Pools>)> =
            if arguments.disagg.is_empty() { fleets.collect() } else { pools.collect() };
        for &(replicas, pools) in &fleets {
            for &router in &or_own(&routers, &setting.router) {
                for &users in &or_own(&users, &setting.users) {
                    // One server has no use for a router.
                    let most = pools.map_or(replicas, |pools| pools.prefill.max(pools.decode));
                    let mut setting = Setting { replicas, pools, users, ..setting.clone() };
                    if most == 1 && setting.router != RouterKind::LeastRequests {
                        let own = setting.router;
                        setting.remarks.extend(routers.is_empty().then(|| {
                            format!("router {own} of the scenario says nothing with one server")
                        }));
                    }
                    routes |= most != 1;
                    setting.router = if most == 1 { RouterKind::LeastRequests } else { router };
                    add(&mut all, setting);
                }
            }
        }
    }
    if !routers.is_empty() && !routes {
        bail!("--router: says nothing with one server, or one in each pool");
    }
    Ok(all)
}

/// The requests of a trace.
fn traced(path: &Path, part: &Part) -> Result<Source> {
    let file = part.read(path)?;
    let slice = part.slice.as_ref().map(|s| format!(", slice {s}")).unwrap_or_default();
    Ok(Source {
        title: format!("{}: {}{slice}", file.name, file.format.title()),
        workload: file.workload,
        drawn: None,
        notes: file.notes,
        saturation: Saturation::default(),
    })
}

/// Most requests that a run holds: 15 GB of them, more than most machines have to spare.
const MOST_HELD: u64 = 50_000_000;

/// The requests and variants of a scenario.
fn scenario_settings(arguments: &Arguments, scenario: Scenario) -> Result<(Source, Vec<Setting>)> {
    let mut source = scenario.workload;
    let mut drawn = None;
    if let WorkloadSource::Generated(spec) = &mut source {
        arguments.generate.apply(spec)?;
        drawn = Some((**spec).clone());
    }
    if let (Some(flag), None) = (arguments.generate.given(), &drawn) {
        bail!("{flag}: the requests of scenario {} are not drawn from a seed", scenario.name);
    }
    if let (false, Some(spec)) = (arguments.sketch, &drawn)
        && MOST_HELD < spec.requests
    {
        bail!(
            "--requests: {} would be held in memory, some 0.3 kB each; above {MOST_HELD} add --sketch, \
             which holds none",
            spec.requests
        );
    }
    if let (true, None) = (arguments.sketch, &drawn) {
        bail!(
            "--sketch: the requests of scenario {} are not drawn from a seed, and held anyway",
            scenario.name
        );
    }
    let (workload, notes) = if arguments.sketch {
        (Workload::new(Vec::new())?, Vec::new())
    } else {
        source.load().map_err(|e| anyhow!("{e}"))?
    };
    let source = Source {
        title: format!("{}: {}", scenario.name, scenario.title.en),
        workload,
        drawn,
        notes,
        saturation: Saturation::default(),
    };
    let settings = scenario
        .variants
        .into_iter()
        .map(|v| Setting {
            // Who gave no scenario did not ask for the variants of ours.
            variants: arguments.scenario.iter().map(|_| v.name.clone()).collect(),
            name: Some(v.name),
            remarks: Vec::new(),
            policy: v.policy,
            max_num_seqs: v.max_num_seqs,
            chunk: v.chunk,
            rate_scale: v.rate_scale,
            step_time: v.step_time,
            slo: v.slo,
            engine: v.engine,
            server: v.server,
            replicas: v.replicas,
            pools: None,
            router: v.router,
            users: v.users,
            think: v.think,
            timeout: v.timeout,
            until: v.until,
            cuts: v.cuts,
        })
        .collect();
    Ok((source, settings))
}
