//! The engine that skips against the plain one: any requests under any policy, `vllm-v1` too, alone,
//! in a fleet and in two pools, and on one server under plans that ask for any operation, sound or
//! not. Both give the same, or refuse with the same words; nobody is lost, and no block.
#![no_main]

use arbitrary::Arbitrary;
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::server::{Job, Over, Server, run_stream};
use sched_sim::vllm_v1::{QueuePolicy, VllmConfig, VllmReplica};
use sched_sim::{
    AdmissionRule, Affine, BatchHistory, Coefficients, Disaggregated, Extra, KvPool, KvTransfer,
    Order, Policy, Preemption, PromptContent, Replica, RunEnd, RunLimits, RunStatistics,
    ServerSettings, Step, StepTime, StepWork, Ticks, TokenBucket, TwoRegime,
};
use serving_io::policy::{NAMES, ServerOptions, may_swap, named};

/// Most steps of a run: plans may serve nobody for long.
const STEPS: u64 = 3_000;

#[derive(Arbitrary, Debug)]
struct Request {
    gap_us: u16,
    idle: bool,
    input: u16,
    output: u8,
    priority: i8,
    /// Which prompt it begins with, and for how many tokens.
    shares: Option<(u8, u16)>,
    cancel_us: Option<u16>,
    timeout_us: Option<u16>,
}

/// An operation of a step; numbers are taken as they are, or to the nearest that is sound.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Operation {
    Decode(u8),
    DecodeAll,
    Prefill(u8, u16),
    PrefillAll(u16),
    Admit(u16),
    AdmitWhole,
    Preempt(u8),
    Retract(u8),
    MakeRoom,
    SwapIn,
    LookUp,
    MakeFree(u8),
}

#[derive(Arbitrary, Debug)]
enum Rule {
    Named { policy: u8, chunk: u16, tokens: u16, swap: bool },
    Plan { steps: Vec<Vec<Operation>>, stops: bool, emits: bool, swap: bool, caches: bool },
    Vllm { is_async: bool, caches: bool, tokens: u16 },
}

/// What there is besides one server; plans are for one server alone.
#[derive(Arbitrary, Debug)]
struct Machines {
    servers: u8,
    router: u8,
    /// The rule of a decode pool, and its link: microseconds a transfer, nanoseconds a token.
    decode: Option<(Rule, u16, u16)>,
}

#[derive(Arbitrary, Debug)]
struct Input {
    requests: Vec<Request>,
    rule: Rule,
    max_num_seqs: u8,
    base_us: u16,
    prefill_ns: u16,
    decode_ns: u16,
    context_ns: u8,
    kv: Option<(u8, u8)>,
    order: u8,
    max_waiting: Option<u8>,
    until_us: Option<u32>,
    machines: Option<Machines>,
    /// The base of a step with a prompt, if it is another one, in microseconds.
    mixed_us: Option<u16>,
    /// An admission rule: waiting, percent of the blocks, TTFT and window in milliseconds.
    door: Option<(u8, u8, u16, u16)>,
    /// A token bucket: microseconds a permit, and permits.
    bucket: Option<(u32, u8)>,
}

/// A policy that does what a list says, one entry a step, whether it makes sense or not.
#[derive(Clone)]
struct Plan {
    steps: Vec<Vec<Operation>>,
    /// Whether a refusal ends the run, instead of being passed over.
    stops: bool,
    emits: bool,
    caches: bool,
    preemption: Preemption,
    max_num_seqs: u64,
    step: usize,
}

impl Plan {
    fn operate(&self, operation: Operation, step: &mut Step<'_>) -> sched_sim::Result<()> {
        let running = |n: u8| {
            let mut at = step.running_after(None);
            for _ in 0..n % 8 {
                at = step.running_after(at).or(at);
            }
            // A request that is not in the batch is refused by its number.
            at.unwrap_or(usize::from(n))
        };
        match operation {
            Operation::Decode(n) => step.decode(running(n)),
            Operation::DecodeAll => step.decode_all(),
            Operation::Prefill(n, tokens) => step.prefill(running(n), tokens.into()),
            Operation::PrefillAll(chunk) => step.prefill_all(chunk.into()),
            Operation::Admit(tokens) => step.admit(tokens.into()).map(drop),
            Operation::AdmitWhole => {
                let known = step.next_waiting().map_or(1, |w| w.known_tokens);
                step.admit(known).map(drop)
            }
            Operation::Preempt(n) => step.preempt(running(n)),
            Operation::Retract(n) => step.retract(running(n)),
            Operation::MakeRoom => step.make_room().map(drop),
            Operation::SwapIn => {
                step.swap_in();
                Ok(())
            }
            Operation::LookUp => {
                step.look_up();
                Ok(())
            }
            Operation::MakeFree(blocks) => {
                step.make_free(blocks.into());
                Ok(())
            }
        }
    }
}

impl Policy for Plan {
    fn name(&self) -> &'static str {
        "plan"
    }

    fn max_num_seqs(&self) -> u64 {
        self.max_num_seqs
    }

    fn prefill_emits_first_token(&self) -> bool {
        self.emits
    }

    fn preemption(&self) -> Preemption {
        self.preemption
    }

    fn prefix_caching(&self) -> bool {
        self.caches
    }

    fn ran(&mut self, _: &StepWork, steps: u64) {
        self.step = self.step.wrapping_add(usize::try_from(steps).unwrap_or(usize::MAX));
    }

    fn fill(&mut self, step: &mut Step<'_>) -> sched_sim::Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        for &operation in &self.steps[self.step % self.steps.len()] {
            match self.operate(operation, step) {
                Err(refused) if self.stops => return Err(refused),
                _ => {}
            }
        }
        Ok(())
    }
}

fn preemption(swap: bool) -> Preemption {
    if swap {
        Preemption::Swap { per_token: Ticks::from_nanoseconds(1000) }
    } else {
        Preemption::Recompute
    }
}

fn policy(rule: &Rule, max_num_seqs: u64) -> Option<Box<dyn Policy>> {
    match rule {
        Rule::Named { policy, chunk, tokens, swap } => {
            let name = NAMES[usize::from(*policy) % NAMES.len()];
            let mut options = ServerOptions::default();
            options.max_num_batched_tokens = Some(u64::from(*tokens));
            if may_swap(name) {
                options.preemption = Some(preemption(*swap));
            }
            // Limits of 0 are refused.
            named(name, max_num_seqs, u64::from(*chunk), &options)?.ok()
        }
        Rule::Plan { steps, stops, emits, swap, caches } => Some(Box::new(Plan {
            steps: steps.clone(),
            stops: *stops,
            emits: *emits,
            caches: *caches,
            preemption: preemption(*swap),
            max_num_seqs,
            step: 0,
        })),
        Rule::Vllm { .. } => None,
    }
}

/// What all servers of an input have.
struct Common {
    seqs: u64,
    affine: Affine,
    mixed: Option<TwoRegime>,
    settings: ServerSettings,
    limits: RunLimits,
}

impl Common {
    fn step_time(&self) -> Box<dyn StepTime> {
        match self.mixed {
            Some(mixed) => Box::new(mixed),
            None => Box::new(self.affine),
        }
    }

    fn server(&self, rule: &Rule, reference: bool) -> Option<Box<dyn Server>> {
        if let Rule::Vllm { is_async, caches, tokens } = *rule {
            let pool = self.settings.kv.unwrap_or(KvPool::new(4000, 16).ok()?);
            let len = (pool.blocks() * pool.block_size()).min(5_300);
            let mut config = VllmConfig::new(pool.blocks() + 1, len);
            config.block_size = pool.block_size();
            config.max_num_seqs = self.seqs;
            config.max_num_batched_tokens = self.seqs + u64::from(tokens);
            config.async_scheduling = Some(is_async);
            config.enable_prefix_caching = caches;
            config.enable_chunked_prefill = true;
            let fcfs = self.settings.order == Order::Fcfs;
            config.policy = if fcfs { QueuePolicy::Fcfs } else { QueuePolicy::Priority };
            let server = VllmReplica::new(config, self.step_time()).ok()?;
            let server = server.gateway(&self.settings).limits(self.limits);
            return Some(Box::new(if reference { server.asked_in_every_step() } else { server }));
        }
        let new = if reference { Replica::reference } else { Replica::new };
        let server = new(policy(rule, self.seqs)?, self.step_time());
        Some(Box::new(server.settings(self.settings).limits(self.limits)))
    }

    fn machine(&self, input: &Input, reference: bool) -> Option<Box<dyn Server>> {
        let Some(machines) = &input.machines else { return self.server(&input.rule, reference) };
        let pool = |rule: &Rule| {
            // Which server refuses first depends on how far each one is advanced at a time.
            if matches!(rule, Rule::Plan { .. }) {
                return None;
            }
            let servers = (0..1 + machines.servers % 4).map(|_| self.server(rule, reference));
            let kind = RouterKind::ALL[usize::from(machines.router) % RouterKind::ALL.len()];
            Fleet::new(servers.collect::<Option<Vec<_>>>()?, kind, 7).ok()
        };
        let prefill = pool(&input.rule)?;
        let Some((rule, latency, per_token)) = &machines.decode else {
            return Some(Box::new(prefill));
        };
        let ns = Ticks::from_nanoseconds;
        let link = KvTransfer::new(ns((*per_token).into()), ns(1000 * u64::from(*latency))).ok()?;
        Some(Box::new(Disaggregated::new(prefill, pool(rule)?, link)))
    }
}

type Outcome = Result<(RunEnd, Vec<Over>, RunStatistics, BatchHistory), String>;

fn run(mut server: Box<dyn Server>, jobs: Vec<Job>, alone: bool) -> Outcome {
    let (mut over, mut history) = (Vec::new(), BatchHistory::new());
    let end = if alone {
        run_stream(&mut server, jobs.into_iter(), &mut history, |o| over.push(o.clone()))
    } else {
        // The steps of several servers are told in turns, which are longer where steps are skipped.
        run_stream(&mut server, jobs.into_iter(), &mut (), |o| over.push(o.clone()))
    };
    let end = end.map_err(|e| e.to_string())?;
    let s = server.statistics();
    assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
    if let Some(kv) = s.kv {
        // Blocks are those of one server, and what is cached that of all.
        let all = kv.blocks * s.servers;
        assert!(kv.used_max <= kv.blocks && kv.cached_blocks <= all, "{s:?}");
    }
    if end == RunEnd::Completed {
        assert_eq!(server.load().kv_used, 0, "every block is free again");
        assert!(server.inside().is_empty());
    }
    Ok((end, over, s, history))
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let mut at = 0_u64;
    let jobs: Vec<Job> = (0_u64..)
        .zip(input.requests.iter().take(32))
        .map(|(id, r)| {
            at += u64::from(r.gap_us) * if r.idle { 1_000_000 } else { 1000 };
            let arrival = Ticks::from_nanoseconds(at);
            let later = |us: u16| Ticks::from_nanoseconds(at + 1000 * u64::from(us));
            let (input, output) = (1 + u64::from(r.input) % 5_000, 1 + u64::from(r.output));
            let mut job = Job::new(id, arrival, input, output);
            job.priority = r.priority.into();
            job.content = r.shares.map(|(segment, tokens)| {
                let shared = u64::from(tokens).min(input);
                let own = (1000 + id, input - shared);
                Box::new(PromptContent::new(vec![(u64::from(segment % 4), shared), own]))
            });
            job.cancel_at = r.cancel_us.map(later);
            job.timeout_at = r.timeout_us.map(later);
            job
        })
        .collect();
    let ns = |n: u64| Ticks::from_nanoseconds(n);
    let decode = Coefficients {
        base: ns(1000 * u64::from(input.base_us)),
        decode: ns(input.decode_ns.into()),
        context: ns(input.context_ns.into()),
        ..Coefficients::default()
    };
    let with_prompt = |base_us: u16| Coefficients {
        base: ns(1000 * u64::from(base_us)),
        prefill: ns(input.prefill_ns.into()),
        ..decode
    };
    let affine = Affine::new(with_prompt(input.base_us)).expect("the coefficients are small");
    let mixed = |us| TwoRegime::new(decode, with_prompt(us), Extra::default());
    let mut settings = ServerSettings::default();
    settings.order =
        [Order::Fcfs, Order::ShortestJob, Order::Priority][usize::from(input.order) % 3];
    settings.max_waiting = input.max_waiting.map(u64::from);
    settings.kv = input
        .kv
        .and_then(|(blocks, size)| KvPool::new(4 * u64::from(blocks), u64::from(size)).ok());
    let ms = |n: u16| ns(1_000_000 * u64::from(n));
    settings.rule = input.door.and_then(|(queue, kv, slo, window)| {
        AdmissionRule::new(queue.into(), f64::from(kv) / 100.0, ms(slo), ms(window)).ok()
    });
    settings.bucket =
        input.bucket.and_then(|(us, n)| TokenBucket::new(ns(1000 * u64::from(us)), n.into()).ok());
    let limits = RunLimits {
        max_steps: Some(STEPS),
        until: input.until_us.map(|us| ns(1000 * u64::from(us))),
    };
    let common = Common {
        seqs: 1 + u64::from(input.max_num_seqs),
        affine,
        mixed: input.mixed_us.and_then(|us| mixed(us).ok()),
        settings,
        limits,
    };
    let (Some(fast), Some(plain)) = (common.machine(&input, false), common.machine(&input, true))
    else {
        return;
    };
    let alone = input.machines.is_none();
    assert_eq!(run(fast, jobs.clone(), alone), run(plain, jobs, alone));
});
