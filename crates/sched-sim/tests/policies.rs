//! Every policy under every setting of a server: both engines agree, and the books balance.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    BlockLog, Gaps, driven, limits, make, policy, settings, shared_workload, step_time, workload,
};
use proptest::prelude::*;
use sched_sim::server::{Ending, Job, Over, Server, run_stream};
use sched_sim::{
    Affine, BatchHistory, KvPool, OfferedLoad, Orca, Policy, Preemption, Replica, RequestRecord,
    RunEnd, RunLimits, RunStatistics, Sarathi, ServerSettings, Simulation, Step, Ticks, Workload,
};

/// Clients that stay, or leave after a while.
fn leaving() -> impl Strategy<Value = (Option<u64>, Vec<Option<u64>>)> {
    let cancel = prop::option::weighted(0.2, 0_u64..5_000_000_000);
    prop_oneof![
        2 => Just((None, Vec::new())),
        1 => (prop::option::of(0_u64..20_000_000_000), prop::collection::vec(cancel, 40)),
    ]
}

type Watch = (BatchHistory, (BlockLog, Gaps));
type Outcome = (RunEnd, Vec<Over>, Vec<u64>, RunStatistics, Watch);

fn run(mut server: Replica<Box<dyn Policy>, Affine>, jobs: impl Iterator<Item = Job>) -> Outcome {
    let mut over = Vec::new();
    let mut history = Default::default();
    let end = run_stream(&mut server, jobs, &mut history, |o| over.push(o.clone())).unwrap();
    assert!(end != RunEnd::Completed || server.inside().is_empty());
    let load = server.load();
    if end == RunEnd::Completed {
        assert_eq!((load.running, load.waiting, load.outstanding_tokens), (0, 0, 0));
        assert_eq!(load.kv_used, 0, "every block is free again");
        assert!(load.kv_blocks.is_none_or(|blocks| load.kv_cached <= blocks));
    }
    let inside = server.inside();
    let made = over.iter().map(|o| &o.progress).chain(&inside).map(|p| p.output_tokens).collect();
    (end, over, made, server.statistics(), history)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// The skipping engine and the plain one agree bit for bit, whatever the policy, the memory,
    /// the order and the clients; nobody is lost, nobody waits for ever, and blocks are conserved.
    #[test]
    fn skipping_equals_the_reference(
        workload in prop_oneof![workload(), shared_workload()],
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
        let (end, over, made, s, (history, (blocks, gaps))) = run(skipping, jobs());
        let (plain_end, plain_over, _, plain_s, plain_watch) = run(plain, jobs());
        let (plain_history, (plain_blocks, plain_gaps)) = plain_watch;
        prop_assert_eq!(&over, &plain_over);
        prop_assert_eq!(s, plain_s);
        prop_assert_eq!(end, plain_end);
        prop_assert_eq!(&history, &plain_history);
        prop_assert!(blocks.agrees_with(&plain_blocks));
        if let Some(pool) = settings.kv {
            // What is said to be held is stored somewhere.
            prop_assert!(plain_blocks.has_room_for_what_is_held(pool.block_size()));
        }
        gaps.check(&plain_gaps, &s, &made)?;
        let all = over.iter().all(|o| o.progress.record.last_token().is_some());
        if end == RunEnd::Completed && all {
            // From the first token of an answer to its last there is nothing but gaps.
            let each = over.iter().map(|o| {
                let r = &o.progress.record;
                r.last_token().unwrap().since(r.first_token().unwrap()).unwrap().attoseconds()
            });
            prop_assert_eq!(gaps.total(), each.sum::<u128>());
        }

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
        let departs: Vec<_> = jobs().map(|j| [j.cancel_at, j.timeout_at]).collect();
        for o in &over {
            let (p, r) = (&o.progress, &o.progress.record);
            // Nobody is completed whose client was not there for the last token.
            let departs = departs[usize::try_from(p.id).unwrap()].into_iter().flatten().min();
            let in_time = departs.is_none_or(|at| o.at <= at);
            prop_assert!(o.ending != Ending::Completed || in_time);
            prop_assert_eq!(o.ending == Ending::Completed, r.last_token().is_some());
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
        workload in prop_oneof![workload(), shared_workload()],
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
        let hits = !whole.hit_tokens().is_empty();
        prop_assert_eq!(driven(&workload, server, hits, peeks)?, whole);
    }

    /// The saturated rate, of a run that ends early and keeps no request, is that of a whole run.
    #[test]
    fn a_saturated_rate_is_that_of_the_whole_run(
        workload in shared_workload(),
        policy in policy(),
        settings in settings(),
        step_time in step_time(),
    ) {
        let settings = settings.open();
        let at_once: Vec<_> = workload.requests().iter().cloned().map(|mut r| {
            r.arrival = Ticks::ZERO;
            r
        }).collect();
        let at_once = Workload::new(at_once).unwrap();
        let run = Simulation::new(&at_once, make(policy), step_time).settings(settings).run();
        let found = OfferedLoad::of_server(&workload, make(policy), settings, step_time);
        let (run, found) = (run.unwrap(), found.unwrap().saturated_rate);

        let scheduled: Vec<Ticks> = run.records().iter().filter_map(RequestRecord::scheduled).collect();
        let ends: Vec<Ticks> = run.records().iter().filter_map(RequestRecord::last_token).collect();
        let by = |list: &[Ticks], t: Ticks| list.iter().filter(|&&x| x <= t).count();
        let turned = |t: &Ticks| by(&scheduled, *t) - by(&ends, *t) <= by(&ends, *t);
        let start = ends.iter().copied().filter(turned).min();
        let last = scheduled.iter().max().copied();
        let expected = start.zip(last).filter(|(start, last)| start < last).and_then(|(start, last)| {
            let then = by(&ends, last) - by(&ends, start);
            let span = last.since(start).unwrap();
            (by(&ends, start) <= then).then(|| then as f64 / span.seconds())
        });
        prop_assert_eq!(found, expected);
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

/// Takes the prompt in, swaps the request out and in again, and serves nobody.
struct OutAndIn;

impl Policy for OutAndIn {
    fn name(&self) -> &'static str {
        "out-and-in"
    }

    fn max_num_seqs(&self) -> u64 {
        1
    }

    fn prefill_emits_first_token(&self) -> bool {
        true
    }

    fn preemption(&self) -> Preemption {
        Preemption::Swap { per_token: Ticks::from_nanoseconds(1000) }
    }

    fn fill(&mut self, step: &mut Step<'_>) -> sched_sim::Result<()> {
        if let Some(next) = step.next_waiting().filter(|next| !next.swapped) {
            step.admit(next.known_tokens)?;
        } else if let Some(first) = step.running_after(None)
            // Whoever came back in this step stays.
            && step.preempt(first).is_ok()
        {
            step.swap_in();
        }
        Ok(())
    }
}

/// Whoever comes back in a step that serves nobody is in the batch from then on, and a policy that
/// does nothing else is not asked again for ever at that instant. The prompt takes 1 ms; from there to
/// its time-out at 10 ms the request is in the batch.
#[test]
fn a_return_is_dated_in_a_step_that_serves_nobody() {
    let step_time: Affine = "base=1ms".parse().unwrap();
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(100, 16).unwrap());
    let job = || {
        let mut job = Job::new(0, Ticks::ZERO, 100, 9);
        job.timeout_at = Some("10ms".parse().unwrap());
        std::iter::once(job)
    };
    let new = |plain: bool| -> Replica<Box<dyn Policy>, Affine> {
        let policy: Box<dyn Policy> = Box::new(OutAndIn);
        let new = if plain { Replica::reference } else { Replica::new };
        new(policy, step_time).settings(settings)
    };
    let (end, over, made, s, (history, (_, gaps))) = run(new(false), job());
    let (plain_end, plain_over, _, plain_s, plain_watch) = run(new(true), job());
    let (plain_history, (_, plain_gaps)) = plain_watch;
    assert_eq!((end, &over, s, history), (plain_end, &plain_over, plain_s, plain_history));
    gaps.check(&plain_gaps, &s, &made).unwrap();
    assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
    assert_eq!(s.timed_out, 1);
    assert_eq!(over[0].progress.stalls[0].readmitted, Some("1ms".parse().unwrap()));
    assert_eq!(s.service_time, "10ms".parse::<Ticks>().unwrap().attoseconds());
}
