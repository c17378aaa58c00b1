//! Every policy under every setting of a server: both engines agree, and the books balance.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{driven, limits, step_time, workload};
use proptest::prelude::*;
use sched_sim::server::{Job, Over, Server, run_stream};
use sched_sim::{
    Affine, BatchHistory, DecodeFirst, KvPool, Orca, Order, Policy, PrefillFirst, Replica, RunEnd,
    RunLimits, RunStatistics, Sarathi, ServerSettings, SgLang, Simulation, StaticBatch, Ticks,
    Workload,
};

/// One of the policies, with limits from tight to plenty.
fn policy() -> impl Strategy<Value = (usize, u64, u64)> {
    let seqs = prop_oneof![3 => 1_u64..6, 2 => 6_u64..64];
    let tokens = prop_oneof![1 => 1_u64..4, 3 => 4_u64..300, 2 => 300_u64..30_000];
    (0_usize..6, seqs, tokens)
}

fn make((kind, seqs, tokens): (usize, u64, u64)) -> Box<dyn Policy> {
    match kind {
        0 => Box::new(DecodeFirst::new(seqs, tokens).unwrap()),
        1 => Box::new(PrefillFirst::new(seqs, tokens).unwrap()),
        2 => Box::new(Sarathi::new(seqs, tokens).unwrap()),
        3 => Box::new(Orca::new(seqs).unwrap()),
        4 => Box::new(StaticBatch::new(seqs).unwrap()),
        _ => Box::new(SgLang::new(seqs, tokens).unwrap()),
    }
}

/// No bound, or a pool from a few requests to many; blocks from a token to a page.
fn settings() -> impl Strategy<Value = ServerSettings> {
    let order = prop_oneof![
        2 => Just(Order::Fcfs),
        1 => Just(Order::ShortestJob),
        1 => Just(Order::Priority)
    ];
    let size = prop_oneof![Just(1_u64), Just(4), Just(16), Just(17), Just(256)];
    let tokens = prop_oneof![2 => 20_u64..600, 2 => 600_u64..5000, 1 => 5000_u64..100_000];
    let kv = prop_oneof![
        1 => Just(None),
        4 => (size, tokens).prop_map(|(size, tokens)| {
            Some(KvPool::new(tokens.div_ceil(size), size).unwrap())
        }),
    ];
    let waiting = prop_oneof![3 => Just(None), 1 => (0_u64..8).prop_map(Some)];
    let tokens = prop_oneof![3 => Just(None), 1 => (0_u64..2000).prop_map(Some)];
    (order, kv, waiting, tokens).prop_map(|(order, kv, waiting, tokens)| {
        let mut settings = ServerSettings::default();
        settings.order = order;
        settings.kv = kv;
        settings.max_waiting = waiting;
        settings.max_waiting_tokens = tokens;
        settings
    })
}

/// Clients that stay, or leave after a while.
fn leaving() -> impl Strategy<Value = (Option<u64>, Vec<Option<u64>>)> {
    let cancel = prop::option::weighted(0.2, 0_u64..5_000_000_000);
    prop_oneof![
        2 => Just((None, Vec::new())),
        1 => (prop::option::of(0_u64..20_000_000_000), prop::collection::vec(cancel, 40)),
    ]
}

type Outcome = (RunEnd, Vec<Over>, RunStatistics, BatchHistory);

fn run(mut server: Replica<Box<dyn Policy>, Affine>, jobs: impl Iterator<Item = Job>) -> Outcome {
    let mut over = Vec::new();
    let mut history = BatchHistory::new();
    let end = run_stream(&mut server, jobs, &mut history, |o| over.push(o)).unwrap();
    assert!(end != RunEnd::Completed || server.inside().is_empty());
    let load = server.load();
    if end == RunEnd::Completed {
        assert_eq!((load.running, load.waiting, load.outstanding_tokens), (0, 0, 0));
        assert_eq!(load.kv_used, 0, "every block is free again");
    }
    (end, over, server.statistics(), history)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// The skipping engine and the plain one agree bit for bit, whatever the policy, the memory,
    /// the order and the clients; nobody is lost, nobody waits for ever, and blocks are conserved.
    #[test]
    fn skipping_equals_the_reference(
        workload in workload(),
        policy in policy(),
        settings in settings(),
        step_time in step_time(),
        limits in limits(),
        priorities in prop::collection::vec(-2_i64..3, 40),
        (patience, cancels) in leaving(),
    ) {
        let jobs = || workload.requests().iter().enumerate().map(|(position, r)| {
            let mut job = Job::of(position, r);
            let later = |ns| r.arrival.after(Ticks::from_nanoseconds(ns));
            job.priority = priorities[position];
            job.timeout_at = patience.map(later);
            job.cancel_at = cancels.get(position).copied().flatten().map(later);
            job
        });
        let skipping = Replica::new(make(policy), step_time).settings(settings).limits(limits);
        let plain = Replica::reference(make(policy), step_time).settings(settings).limits(limits);
        let (end, over, s, history) = run(skipping, jobs());
        let (plain_end, plain_over, plain_s, plain_history) = run(plain, jobs());
        prop_assert_eq!(&over, &plain_over);
        prop_assert_eq!(s, plain_s);
        prop_assert_eq!(end, plain_end);
        prop_assert_eq!(&history, &plain_history);

        prop_assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
        if limits == RunLimits::default() {
            prop_assert_eq!(end, RunEnd::Completed);
            prop_assert_eq!(over.len(), workload.len());
        }
        if let Some(kv) = s.kv {
            prop_assert!(kv.used_max <= kv.blocks);
            let stalls = over.iter().map(|o| o.progress.stalls.len() as u64).sum::<u64>();
            prop_assert!(stalls <= kv.preemptions);
            if limits == RunLimits::default() {
                prop_assert_eq!(stalls, kv.preemptions);
                let again = over.iter().flat_map(|o| &o.progress.stalls);
                let again = again.map(sched_sim::Stall::recomputed_tokens).sum::<u64>();
                prop_assert_eq!(again, kv.recomputed_tokens);
            }
            // Policies that reserve the last token never preempt.
            prop_assert!(kv.preemptions == 0 || !(3..=4).contains(&policy.0));
        }
        for o in &over {
            let (p, r) = (&o.progress, &o.progress.record);
            prop_assert!(r.scheduled().is_none_or(|t| p.arrival <= t));
            prop_assert!(r.first_token() <= r.last_token() || r.last_token().is_none());
            for stall in &p.stalls {
                prop_assert!(stall.readmitted.is_none_or(|t| stall.from <= t));
                prop_assert!(stall.caught_up.is_none_or(|t| stall.readmitted.unwrap() <= t));
            }
        }
    }

    /// A server that is driven from outside ends as one that had all requests.
    #[test]
    fn driving_from_outside_changes_nothing(
        workload in workload(),
        policy in policy(),
        settings in settings(),
        peeks in any::<bool>(),
    ) {
        let step_time: Affine = "base=3ms,prefill=7us/token,decode=11us/request,context=1ns/token"
            .parse()
            .unwrap();
        let whole = Simulation::new(&workload, make(policy), step_time).settings(settings);
        let whole = whole.run().unwrap();
        let server = Replica::new(make(policy), step_time).settings(settings);
        prop_assert_eq!(driven(&workload, server, false, peeks)?, whole);
    }
}

/// How many cases: 400, or what `PROPTEST_CASES` says.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

/// ∫ blocks in use dt, followed block by block: two requests of 3 and 7 prompt tokens in blocks of
/// 4, with steps that grow with the context.
#[test]
fn the_area_of_blocks_in_use_is_that_of_the_steps() {
    let workload = Workload::new(vec![
        sched_sim::WorkloadRequest::new(0, Ticks::ZERO, 3, 40),
        sched_sim::WorkloadRequest::new(1, Ticks::ZERO, 7, 90),
    ])
    .unwrap();
    let step_time: Affine = "base=1ms,context=1us/token".parse().unwrap();
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(1000, 4).unwrap());
    let run = Simulation::new(&workload, Orca::new(2).unwrap(), step_time).settings(settings);
    let s = *run.run().unwrap().statistics();
    // Reserved from the first step on: 42 tokens in 11 blocks, 96 in 24.
    assert_eq!(s.kv.unwrap().used_max, 35);

    let run = Simulation::new(&workload, Sarathi::new(2, 512).unwrap(), step_time);
    let s = *run.settings(settings).run().unwrap().statistics();
    // The first step computes both prompts, and gives a token to each; a decode of a request that
    // knows k tokens stores the k-th. The shorter one ends with its 40th token.
    let (mut area, mut at) = (0_u128, 0_u64);
    for step in 0..90_u64 {
        let knows = |prompt: u64, answer: u64| (step < answer).then_some(prompt + step);
        let alive = [knows(3, 40), knows(7, 90)].into_iter().flatten();
        let (blocks, context) =
            alive.fold((0, 0), |(b, c), k| (b + k.div_ceil(4), if step > 0 { c + k } else { 0 }));
        let microseconds = 1000 + context;
        area += u128::from(blocks) * u128::from(microseconds) * 1_000_000_000_000;
        at += microseconds;
    }
    assert_eq!(s.end, Ticks::from_nanoseconds(at * 1000));
    assert_eq!(s.kv.unwrap().used_time, area);
}
