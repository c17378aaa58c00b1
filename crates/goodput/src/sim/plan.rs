//! What arrives and under which settings: a trace or a scenario, and the lists of the command line.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use sched_sim::fleet::RouterKind;
use sched_sim::{DecodeFirst, Policy, RateScale, Workload};
use serving_io::engine::EngineOptions;
use serving_io::policy::{
    POLICIES, VLLM_V1, caches_prefixes, in_words, may_swap, takes_batched_tokens, takes_chunk,
};
use serving_io::scenario::{Scenario, WorkloadSource};

use super::generate::Drawn;
use super::lists::{Lists, at_most, each, or_own, with};
use super::requests::Requests;
use super::setting::{Settings, with_names};
use super::{Arguments, Setting, Source, pools};

/// Refuses flags of a trace without one, and flags of drawn requests beside one.
fn for_their_source(arguments: &Arguments) -> Result<()> {
    if let (None, Some(flag)) = (&arguments.trace, arguments.part.given()) {
        bail!("{flag}: is for a trace, add --trace FILE");
    }
    if let (Some(flag), Some(path)) = (arguments.generate.of_drawn(), &arguments.trace) {
        bail!("{flag}: the requests of {} are not drawn from a seed", path.display());
    }
    Ok(())
}

/// What arrives, and the settings that flags vary.
fn bases(arguments: &Arguments, output: Option<&Path>) -> Result<(Source, Vec<Setting>)> {
    if let Some(path) = &arguments.trace {
        return Ok((traced(path, arguments)?, vec![Setting::of_a_trace()?]));
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
    let (mut source, bases) = bases(arguments, output)?;
    let lists = Lists::of(arguments, slo)?;
    let mut settings: Vec<Setting> = Vec::new();
    for base in &bases {
        for policy in &or_own(&lists.policies, &base.policy) {
            settings.extend(of_policy(&lists, arguments, base, policy)?);
            at_most(settings.len(), || "the lists of this command".to_owned())?;
        }
    }
    options_that_do_nothing(arguments, &settings, &lists)?;
    of_open_loops(arguments, &settings)?;
    let mut once = Settings::default();
    let settings = with_fleets(arguments, &lists, settings)?;
    let settings = with_clients(&lists, settings, arguments.generate.has_turns())?;
    for setting in settings {
        once.add(setting);
    }
    let settings = with_names(once.into_vec(), bases);
    let settings = on_all_requests(&source, &settings, arguments)?;
    of_answers(&settings)?;
    source.draws |= settings.iter().any(Setting::draws);
    let of_a_seed = [("--seed", arguments.generate.seed), ("--seeds", arguments.seeds)];
    if let (false, Some((flag, _))) = (source.draws, of_a_seed.iter().find(|f| f.1.is_some())) {
        bail!(
            "{flag}: nothing is drawn here: the requests are those of {}, and among the others \
             --cancel and the routers random and power-of-two draw",
            source.title
        );
    }
    Ok((source, settings))
}

/// Every setting of a policy, over what a base says.
fn of_policy(
    lists: &Lists,
    arguments: &Arguments,
    base: &Setting,
    policy: &str,
) -> Result<Vec<Setting>> {
    if !POLICIES.contains(&policy) {
        let known = POLICIES.join(", ");
        bail!("--policy: unknown policy `{policy}`, this version has {known}");
    }
    let is_vllm = policy == VLLM_V1;
    // Each policy has its own limits: a list of the other's leaves it as it is.
    let own = if base.is_vllm() == is_vllm { base.max_num_seqs } else { 0 };
    let own = if is_vllm || own > 0 { own } else { DecodeFirst::default().max_num_seqs() };
    let chunk = if base.chunk > 0 { base.chunk } else { DecodeFirst::default().chunk() };
    let setting = Setting {
        policy: policy.to_owned(),
        max_num_seqs: own,
        chunk: if takes_chunk(policy) { chunk } else { 0 },
        slo: lists.slo.clone().unwrap_or(base.slo.clone()),
        // Another scheduler follows none of vLLM's options.
        engine: EngineOptions::default(),
        ..base.clone()
    };
    let all = with("--max-num-seqs", vec![setting], &lists.max_num_seqs, |s, n| {
        s.max_num_seqs = *n;
    })?;
    let chunks = if takes_chunk(policy) { lists.chunks.as_slice() } else { &[] };
    let all = with("--chunk", all, chunks, |s, n| s.chunk = *n)?;
    // Each policy has options of its own kind; whoever refuses stands in front of any.
    let all = if is_vllm {
        let all = with("options of vllm-v1", all, &lists.engines, |s, engine| {
            s.engine = engine.clone().over(&base.engine);
        })?;
        let gateways = lists.servers.gateways(vec![base.server.gateway()])?;
        with("--max-waiting and other limits", all, &gateways, |s, gateway| {
            s.server = gateway.clone();
        })?
    } else {
        let servers = lists.servers.combinations(policy, &base.server)?;
        with("--kv-blocks, --max-waiting and others", all, &servers, |s, server| {
            s.server = server.clone();
        })?
    };
    let all = with("--rate-scale", all, &lists.rate_scales, |s, scale| s.rate_scale = *scale)?;
    let all = with("--step-time", all, &lists.step_times, |s, t| s.step_time = t.clone())?;
    let finished = |mut setting: Setting| {
        if is_vllm && setting.max_num_seqs > 0 {
            setting.engine.set("max_num_seqs", &setting.max_num_seqs.to_string())?;
        }
        if is_vllm && let Some(bytes) = arguments.kv_bytes_per_token {
            setting.engine.set("kv_bytes_per_token", &bytes.to_string())?;
        }
        let mut setting = setting.show_limit();
        if arguments.scenario.is_some() {
            setting.note_left_behind(base, lists.max_num_seqs.is_empty());
        }
        Ok(setting)
    };
    all.into_iter().map(finished).collect()
}

/// Every setting on every workload, workload by workload, so that what runs on the same requests
/// stands together.
fn on_all_requests(
    source: &Source,
    settings: &[Setting],
    arguments: &Arguments,
) -> Result<Vec<Setting>> {
    let (workloads, of_each) = (source.requests.len(), settings.len());
    let seeds = usize::try_from(arguments.seeds.unwrap_or(1)).unwrap_or(usize::MAX);
    at_most(workloads.saturating_mul(of_each).saturating_mul(seeds), || {
        let parts = [(workloads, "workload"), (of_each, "setting"), (seeds, "seed")];
        let parts = parts.into_iter().filter(|(n, _)| 1 < *n);
        let parts: Vec<String> = parts.map(|(n, what)| format!("{n} {what}s")).collect();
        parts.join(" times ")
    })?;
    let mut all = Vec::with_capacity(workloads * of_each);
    for (workload, requests) in source.requests.iter().enumerate() {
        let (drawn, cancel) = (requests.source(), requests.cancellations());
        let sessions = drawn.as_ref().and_then(|drawn| drawn.spec.sessions.as_ref());
        // Flags have one think time, between turns and between the conversations of a user.
        let think = sessions.filter(|_| arguments.generate.has_turns()).map(|s| s.think);
        let on_it = |s: &Setting| Setting {
            workload,
            drawn: drawn.clone(),
            cancel,
            think: think.filter(|_| s.users.is_some()).unwrap_or(s.think),
            ..s.clone()
        };
        all.extend(settings.iter().map(on_it));
    }
    Ok(all)
}

/// Refuses factors on the rate of requests that wait for answers.
fn of_answers(settings: &[Setting]) -> Result<()> {
    let one = RateScale::new(1, 1)?;
    // Of users it is said before.
    let turns = |s: &&Setting| s.users.is_none() && s.waits();
    if settings.iter().filter(turns).any(|s| s.rate_scale != one) {
        bail!("--rate-scale: is for an open loop, and turns wait for answers: give --rate");
    }
    Ok(())
}

/// Refuses options that no setting follows.
fn options_that_do_nothing(
    arguments: &Arguments,
    settings: &[Setting],
    lists: &Lists,
) -> Result<()> {
    let Lists { max_num_seqs, chunks, servers, engines, .. } = lists;
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

/// A flag of arrivals that wait for no answer, if one was given.
fn of_an_open_loop(arguments: &Arguments) -> Option<&'static str> {
    let scaled = (!arguments.rate_scale.is_empty()).then_some("--rate-scale");
    arguments.generate.of_arrivals().or(scaled)
}

/// Refuses flags of arrivals that wait for no answer for users, and think times without any.
fn of_open_loops(arguments: &Arguments, settings: &[Setting]) -> Result<()> {
    let users_of_scenario = settings.iter().find(|s| s.users.is_some());
    if let (Some(flag), Some(setting)) = (of_an_open_loop(arguments), users_of_scenario) {
        let whose = setting.name.as_ref().map_or(String::new(), |n| format!("variant {n} of "));
        bail!(
            "{flag}: is for an open loop, and {whose}the scenario has users, who wait for answers"
        );
    }
    let has_users = !arguments.users.is_empty() || users_of_scenario.is_some();
    if arguments.generate.has_think_after() && has_users {
        bail!("--think-after: users wait for their answers in any case");
    }
    if arguments.generate.only_think() && !has_users {
        bail!("--think: is for --users, or for sessions with --turns");
    }
    Ok(())
}

/// Every setting with every number of replicas or two pools, and every router.
fn with_fleets(
    arguments: &Arguments,
    lists: &Lists,
    settings: Vec<Setting>,
) -> Result<Vec<Setting>> {
    // A number of replicas, or two pools: flags give one of them.
    let all = if arguments.disagg.is_empty() {
        with("--replicas", settings, &lists.replicas, |s, n| s.replicas = *n)?
    } else {
        each("--disagg", settings, |s| {
            let pools = pools::of(arguments, &s)?.into_iter().map(Some);
            Ok(pools.map(|pools| Setting { replicas: 1, pools, ..s.clone() }).collect())
        })?
    };
    if !lists.routers.is_empty() && !all.iter().any(Setting::routes) {
        bail!("--router: says nothing with one server, or one in each pool");
    }
    each("--router", all, |mut s| {
        if s.routes() {
            return with("--router", vec![s], &lists.routers, |s, router| s.router = *router);
        }
        // One server has no use for a router.
        if s.router != RouterKind::LeastRequests && lists.routers.is_empty() {
            let own = s.router;
            s.remarks.push(format!("router {own} of the scenario says nothing with one server"));
        }
        s.router = RouterKind::LeastRequests;
        Ok(vec![s])
    })
}

/// Every setting with every number of users and think time, time-out, end, and cut; with `turns`, think
/// times come with the sessions.
fn with_clients(lists: &Lists, settings: Vec<Setting>, turns: bool) -> Result<Vec<Setting>> {
    let all = with("--users", settings, &lists.users, |s, n| s.users = Some(*n))?;
    let all = each("--think", all, |s| {
        let thinks = if s.users.is_some() && !turns { lists.thinks.as_slice() } else { &[] };
        with("--think", vec![s], thinks, |s, think| s.think = *think)
    })?;
    let all = with("--timeout", all, &lists.timeouts, |s, t| s.timeout = Some(*t))?;
    let all = with("--until", all, &lists.untils, |s, t| s.until = Some(*t))?;
    let all = with("--warm-up", all, &lists.warm_ups, |s, cut| s.cuts.warm_up = Some(*cut))?;
    with("--cool-down", all, &lists.cool_downs, |s, cut| s.cuts.cool_down = Some(*cut))
}

/// Requests that are there, with what flags draw for them.
fn there(arguments: &Arguments, workload: Workload) -> Result<Vec<Requests>> {
    let seed = arguments.generate.seed.unwrap_or(1);
    Ok(Requests::there(workload, &arguments.generate.cancellations()?, seed))
}

/// The requests of a trace.
fn traced(path: &Path, arguments: &Arguments) -> Result<Source> {
    let part = &arguments.part;
    let file = part.read(path)?;
    let slice = part.slice.as_ref().map(|s| format!(", slice {s}")).unwrap_or_default();
    Ok(Source {
        title: format!("{}: {}{slice}", file.name, file.format.title()),
        requests: there(arguments, file.workload)?,
        notes: file.notes,
        draws: false,
    })
}

/// Most requests that a run holds: 15 GB of them, more than most machines have to spare.
const MOST_HELD: u64 = 50_000_000;

/// What requests are drawn from: every combination of what flags say in the place of what a
/// scenario says; nothing of requests that are not drawn.
fn drawn(arguments: &Arguments, scenario: &Scenario) -> Result<Vec<Drawn>> {
    let WorkloadSource::Generated(spec) = &scenario.workload else {
        if let Some(flag) = arguments.generate.of_drawn() {
            bail!("{flag}: the requests of scenario {} are not drawn from a seed", scenario.name);
        }
        if arguments.sketch {
            bail!(
                "--sketch: the requests of scenario {} are not drawn from a seed, and held anyway",
                scenario.name
            );
        }
        return Ok(Vec::new());
    };
    let all = arguments.generate.specs(spec)?;
    let requests = all.iter().fold(0, |n: u64, d| n.saturating_add(d.spec.requests));
    if !arguments.sketch && MOST_HELD < requests {
        let of =
            if all.len() == 1 { String::new() } else { format!(" of {} workloads", all.len()) };
        bail!(
            "--requests: {requests}{of} would be held in memory, some 0.3 kB each; above {MOST_HELD} \
             add --sketch, which holds none"
        );
    }
    Ok(all)
}

/// The requests and variants of a scenario.
fn scenario_settings(arguments: &Arguments, scenario: Scenario) -> Result<(Source, Vec<Setting>)> {
    let drawn = drawn(arguments, &scenario)?;
    let (requests, notes) = match drawn.len() {
        0 => {
            let (workload, notes) = scenario.workload.load().map_err(|e| anyhow!("{e}"))?;
            (there(arguments, workload)?, notes)
        }
        _ => (Requests::drawn(drawn), Vec::new()),
    };
    if let ([only], false) = (requests.as_slice(), arguments.sketch) {
        only.check()?;
    }
    let draws = requests.iter().any(|r| r.spec().is_some());
    let title = format!("{}: {}", scenario.name, scenario.title.en);
    let source = Source { title, requests, notes, draws };
    let settings = scenario
        .variants
        .into_iter()
        .map(|v| Setting {
            // Who gave no scenario did not ask for the variants of ours.
            variants: arguments.scenario.iter().map(|_| v.name.clone()).collect(),
            name: Some(v.name),
            remarks: Vec::new(),
            workload: 0,
            drawn: None,
            cancel: None,
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
