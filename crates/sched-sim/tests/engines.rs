//! The engine that skips against the plain one where they are driven from outside: every policy,
//! `vllm-v1` among them, with and without a bound on KV, under every order, alone, in a fleet behind
//! every router and in two pools, in open loops, closed loops and sessions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Gaps, limits, make, transfer};
use proptest::prelude::*;
use sched_sim::drive::{Driven, drive};
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::server::{Job, Over, Progress, Server, ServerLoad};
use sched_sim::vllm_v1::{QueuePolicy, VllmConfig, VllmReplica};
use sched_sim::workload::{
    ArrivalLaw, ClosedLoop, Generated, Lengths, Sessions, ThinkAfter, WorkloadSpec,
};
use sched_sim::{
    Affine, Coefficients, Disaggregated, KvPool, KvTransfer, Order, PromptContent, Replica, RunEnd,
    RunLimits, RunStatistics, ServerSettings, Ticks,
};

/// Most tokens of a prompt and its answer, which every server here has room for.
const LONGEST: u64 = 320;

/// A policy with its limits: those of [`make`], and `vllm-v1` after them.
const KINDS: usize = 10;

#[derive(Clone, Debug)]
struct Machine {
    kind: usize,
    seqs: u64,
    tokens: u64,
    order: Order,
    kv: Option<KvPool>,
    /// Of `vllm-v1`: asynchronous scheduling, and its prefix cache.
    flags: (bool, bool),
    step_time: Affine,
}

impl Machine {
    fn server(&self, reference: bool, limits: RunLimits) -> Box<dyn Server> {
        if self.kind + 1 == KINDS {
            let server = VllmReplica::new(self.config(), self.step_time).unwrap().limits(limits);
            return Box::new(if reference { server.asked_in_every_step() } else { server });
        }
        let mut settings = ServerSettings::default();
        settings.order = self.order;
        settings.kv = self.kv;
        let new = if reference { Replica::reference } else { Replica::new };
        let policy = make((self.kind, self.seqs, self.tokens));
        Box::new(new(policy, self.step_time).settings(settings).limits(limits))
    }

    fn config(&self) -> VllmConfig {
        let pool = self.kv.unwrap_or(KvPool::new(4000, 16).unwrap());
        // One block is never used.
        let mut config = VllmConfig::new(pool.blocks() + 1, LONGEST + 1);
        config.block_size = pool.block_size();
        config.max_num_seqs = self.seqs;
        config.max_num_batched_tokens = self.seqs + self.tokens;
        config.async_scheduling = Some(self.flags.0);
        config.enable_prefix_caching = self.flags.1;
        config.enable_chunked_prefill = true;
        let fcfs = self.order == Order::Fcfs;
        config.policy = if fcfs { QueuePolicy::Fcfs } else { QueuePolicy::Priority };
        config
    }
}

/// Steps that take time, since drivers are shown what takes none in the order of the engine.
fn step_time() -> impl Strategy<Value = Affine> {
    let ns = Ticks::from_nanoseconds;
    let coefficient = |max: u64| prop_oneof![1 => Just(0), 3 => 1..max];
    (1_u64..20_000_000, coefficient(100_000), coefficient(1_000_000), coefficient(2000)).prop_map(
        move |(base, prefill, decode, context)| {
            Affine::new(Coefficients {
                base: ns(base),
                prefill: ns(prefill),
                decode: ns(decode),
                context: ns(context),
                ..Coefficients::default()
            })
            .unwrap()
        },
    )
}

fn machine() -> impl Strategy<Value = Machine> {
    let seqs = prop_oneof![2 => 1_u64..4, 3 => 4_u64..40];
    let tokens = prop_oneof![2 => 1_u64..8, 3 => 8_u64..400];
    let order = prop::sample::select(vec![Order::Fcfs, Order::ShortestJob, Order::Priority]);
    let size = prop::sample::select(vec![1_u64, 4, 16]);
    let kv = (size, LONGEST + 20..1500).prop_map(|(size, n)| KvPool::new(n / size + 2, size));
    let kv = prop::option::weighted(0.6, kv.prop_map(Result::unwrap));
    let rest = (any::<(bool, bool)>(), step_time());
    (0..KINDS, seqs, tokens, order, kv, rest).prop_map(
        |(kind, seqs, tokens, order, kv, (flags, step_time))| Machine {
            kind,
            seqs,
            tokens,
            order,
            kv,
            flags,
            step_time,
        },
    )
}

/// One server, a fleet, or two pools, each of which may be one server.
#[derive(Clone, Debug)]
struct Shape {
    machine: Machine,
    fleet: Option<(usize, RouterKind)>,
    decode: Option<(Machine, KvTransfer)>,
}

impl Shape {
    fn server(&self, reference: bool, limits: RunLimits) -> Box<dyn Server> {
        let pool = |machine: &Machine| match self.fleet {
            None => machine.server(reference, limits),
            Some((n, router)) => {
                let servers = (0..n).map(|_| machine.server(reference, limits)).collect();
                Box::new(Fleet::new(servers, router, 5).unwrap())
            }
        };
        match &self.decode {
            None => pool(&self.machine),
            Some((decode, transfer)) => {
                Box::new(Disaggregated::new(pool(&self.machine), pool(decode), *transfer))
            }
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let router = prop::sample::select(RouterKind::ALL.to_vec());
    let fleet = prop::option::weighted(0.7, (1_usize..4, router));
    let decode = prop::option::weighted(0.4, (machine(), transfer()));
    (machine(), fleet, decode).prop_map(|(machine, fleet, decode)| Shape { machine, fleet, decode })
}

/// Requests close to each other, some of which share the beginning of their prompts.
fn requests() -> impl Strategy<Value = Vec<Job>> {
    let gap = prop_oneof![
        2 => Just(0_u64),
        5 => 1_u64..40_000_000,
        1 => 40_000_000_u64..3_000_000_000,
    ];
    let input = prop_oneof![2 => 1_u64..20, 2 => 1_u64..200];
    let output = prop_oneof![1 => Just(1_u64), 3 => 1_u64..20, 3 => 1_u64..100];
    let shared = prop::option::of((0_u64..3, 1_u64..150));
    let row = (gap, input, output, -2_i64..3, shared);
    prop::collection::vec(row, 1..30).prop_map(|rows| {
        let mut now = 0;
        let jobs = (0..).zip(rows).map(|(id, (gap, input, output, priority, shared))| {
            now += gap;
            let mut job = Job::new(id, Ticks::from_nanoseconds(now), input, output);
            job.priority = priority;
            job.content = shared.map(|(segment, tokens): (u64, u64)| {
                let tokens = tokens.min(input);
                let prompt = vec![(segment, tokens), (100 + id, input - tokens)];
                Box::new(PromptContent::new(prompt))
            });
            job
        });
        jobs.collect()
    })
}

/// What a server shows at one instant.
type Look = (ServerLoad, Vec<Progress>, RunStatistics);

/// All that a run shows: to who looks at each arrival, and in the end, with the totals of each
/// server and of all.
type Seen = (RunEnd, Vec<Over>, Vec<Look>, Vec<RunStatistics>);

/// Sends requests as they arrive, looks at the server before each, and cancels those of these
/// numbers at the arrival of the next.
fn watch(mut server: impl Server, jobs: &[Job], cancelled: &[u64]) -> (Seen, Gaps) {
    let (mut over, mut looks, mut gaps) = (Vec::new(), Vec::new(), Gaps::default());
    for job in jobs {
        let end = server.advance_to(job.arrival, &mut gaps).unwrap();
        server.take_over(&mut over);
        looks.push((server.load(), server.inside(), server.statistics()));
        if end.is_some() {
            break;
        }
        for &id in cancelled.iter().filter(|&&id| id + 1 == job.id) {
            server.cancel(id);
        }
        server.submit(job.clone()).unwrap();
    }
    let end = server.finish(&mut gaps).unwrap();
    server.take_over(&mut over);
    let s = server.statistics();
    assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
    let mut totals = server.each();
    totals.push(s);
    ((end, over, looks, totals), gaps)
}

/// Users who wait for answers, in sessions if they have `turns`, or sessions whose turns do; a session
/// shares a growing prefix.
fn arrivals(
    users: Option<u64>,
    think: &str,
    requests: u64,
    seed: u64,
    (turns, leave): (bool, Option<&str>),
) -> Generated {
    let input = "uniform:1,40".parse().unwrap();
    let lengths = Lengths::Independent { input, output: "uniform:1,40".parse().unwrap() };
    let think = think.parse().unwrap();
    let cancellations = leave.map(|law| law.parse().unwrap());
    // Four turns of at most 80 tokens.
    let sessions =
        Sessions { turns: "uniform:1,4".parse().unwrap(), think, after: ThinkAfter::Answer };
    if let Some(users) = users {
        // A system prompt and four turns would be more than there is room for.
        let sessions = turns.then_some(sessions);
        let system_prompts = sessions.is_none() && seed.is_multiple_of(2);
        let system_prompts = system_prompts.then(|| "100,2,1".parse().unwrap());
        return ClosedLoop {
            users,
            think,
            requests,
            lengths,
            system_prompts,
            sessions,
            cancellations,
            seed,
        }
        .arrivals()
        .unwrap();
    }
    let spec = WorkloadSpec {
        requests,
        rate_per_s: 20.0,
        arrivals: ArrivalLaw::Poisson,
        lengths,
        system_prompts: None,
        sessions: Some(sessions),
        cancellations,
        seed,
    };
    spec.feedback().unwrap()
}

/// How many cases: 3000, or what `PROPTEST_CASES` says.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(3000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// In an open loop both engines show the same load, the same requests inside and the same totals
    /// at every arrival, and the same in the end.
    #[test]
    fn engines_show_the_same_at_every_arrival(
        shape in shape(),
        jobs in requests(),
        cancelled in prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(0_u64..30, 1..6)],
        limits in limits(),
    ) {
        let (fast, gaps) = watch(shape.server(false, limits), &jobs, &cancelled);
        let (plain, plain_gaps) = watch(shape.server(true, limits), &jobs, &cancelled);
        prop_assert_eq!(&fast, &plain);
        if limits == RunLimits::default() {
            let made = fast.1.iter().map(|over| over.progress.output_tokens);
            gaps.check(&plain_gaps, fast.3.last().unwrap(), &made.collect::<Vec<u64>>())?;
            prop_assert_eq!((fast.0, fast.1.len()), (RunEnd::Completed, jobs.len()));
        }
    }

    /// So they do where what arrives depends on what was answered.
    #[test]
    fn engines_give_the_same_answers_to_who_waits_for_them(
        shape in shape(),
        users in prop::option::of(1_u64..12),
        think in prop::sample::select(vec!["0s", "5ms", "exponential:mean=80ms", "2s"]),
        requests in 1_u64..40,
        seed in any::<u64>(),
        turns in any::<bool>(),
        leave in prop::option::weighted(0.3, prop::sample::select(vec![
            "50%,20ms", "0.2,0s", "100%,exponential:mean=500ms",
        ])),
        patience_ms in prop::option::weighted(0.3, 0_u64..2000),
    ) {
        let patience = patience_ms.map(|ms| Ticks::from_nanoseconds(ms * 1_000_000));
        let run = |reference| -> (Driven, Vec<RunStatistics>) {
            let mut server = shape.server(reference, RunLimits::default());
            let mut arrivals = arrivals(users, think, requests, seed, (turns, leave));
            let driven = drive(&mut server, &mut arrivals, patience, &mut ()).unwrap();
            let s = server.statistics();
            assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
            assert_eq!(s.completed + s.timed_out + s.cancelled, requests);
            (driven, server.each())
        };
        prop_assert_eq!(run(false), run(true));
    }
}
