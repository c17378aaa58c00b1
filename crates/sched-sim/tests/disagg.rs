//! Two pools, one for prompts and one for answers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    Gaps, Pool, booked, driven, jobs, limits, lines, pool, served, step_time, transfer, workload,
};
use proptest::prelude::*;
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::server::{Ending, Job, Over, Rejection, Server, run_stream};
use sched_sim::{
    Affine, Disaggregated, KvPool, KvTransfer, Ledger, Replica, RunEnd, RunLimits, Sarathi,
    ServerSettings, Simulation, Ticks, Workload, WorkloadRequest,
};

fn ms(n: u64) -> Ticks {
    Ticks::from_nanoseconds(n * 1_000_000)
}

/// `base=1ms,prefill=10us/token`: a prompt of 100 tokens takes 2 ms, a decode 1 ms.
fn step_time_by_hand() -> Affine {
    "base=1ms,prefill=10us/token".parse().unwrap()
}

/// A server under `sarathi` with a batch of so many, and 512 tokens a step.
fn sarathi(max_num_seqs: u64) -> Replica<Sarathi, Affine> {
    Replica::new(Sarathi::new(max_num_seqs, 512).unwrap(), step_time_by_hand())
}

/// 5 us a token, 1 ms a transfer.
fn slow_link() -> KvTransfer {
    KvTransfer::new(Ticks::from_nanoseconds(5000), ms(1)).unwrap()
}

fn requests(rows: &[(u64, u64, u64)]) -> Workload {
    let names = ["a", "b", "c"].into_iter().zip(rows);
    let one =
        names.map(|(id, &(at, input, output))| WorkloadRequest::new(id, ms(at), input, output));
    Workload::new(one.collect()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Under every policy, memory, router and transfer, with clients that leave anywhere, pools that
    /// skip and plain ones give the same; requests are conserved in every server and over all, and
    /// Little's law is exact with the transfers in it.
    #[test]
    fn skipping_equals_the_reference_in_two_pools(
        workload in workload(),
        (prefill, decode) in (pool(), pool()),
        transfer in transfer(),
        (fast, slow) in (step_time(), step_time()),
        limits in limits(),
        patience in prop::option::weighted(0.3, 1_u64..20_000_000_000),
        cancels in prop::collection::vec(prop::option::weighted(0.2, 0_u64..5_000_000_000), 40),
    ) {
        let jobs = || jobs(&workload, patience.map(Ticks::from_nanoseconds)).map(|mut job| {
            let cancel = cancels[usize::try_from(job.id).unwrap()].map(Ticks::from_nanoseconds);
            job.cancel_at = cancel.map(|after| job.arrival.after(after));
            job
        });
        let run = |reference| {
            let prefill = prefill.fleet(fast, limits, reference);
            let mut server = Disaggregated::new(prefill, decode.fleet(slow, limits, reference), transfer);
            let (mut over, mut gaps) = (Vec::new(), Gaps::default());
            let end = run_stream(&mut server, jobs(), &mut gaps, |o| over.push(o.clone())).unwrap();
            ((end, over, server.inside(), server.statistics(), server.each()), gaps)
        };
        let ((end, over, inside, s, each), gaps) = run(false);
        let (plain, plain_gaps) = run(true);
        prop_assert_eq!(&plain, &(end, over.clone(), inside.clone(), s, each.clone()));
        let made = over.iter().map(|o| &o.progress).chain(&inside).map(|p| p.output_tokens);
        gaps.check(&plain_gaps, &s, &made.collect::<Vec<u64>>())?;
        if over.iter().all(|o| o.progress.record.last_token().is_some()) && end == RunEnd::Completed {
            // The gap in which the KV moved is one of them.
            let each = over.iter().map(|o| {
                let r = &o.progress.record;
                r.last_token().unwrap().since(r.first_token().unwrap()).unwrap().attoseconds()
            });
            prop_assert_eq!(gaps.total(), each.sum::<u128>());
        }
        prop_assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
        prop_assert_eq!(each.len(), prefill.servers + decode.servers);
        let busy = each.iter().map(|one| one.busy.attoseconds()).sum::<u128>();
        prop_assert_eq!(busy, s.busy.attoseconds());
        for one in &each {
            // Shares of the time are of the same time, so that their mean is that of the whole.
            prop_assert_eq!((one.start, one.end), (s.start, s.end));
            prop_assert!(one.conserves_requests() && one.littles_law_holds(), "{one:?}");
        }
        let count = |of: fn(&Ending) -> bool| over.iter().filter(|o| of(&o.ending)).count() as u64;
        prop_assert_eq!(count(|e| *e == Ending::Completed), s.completed);
        prop_assert_eq!(count(|e| *e == Ending::Cancelled), s.cancelled);
        prop_assert_eq!(count(|e| *e == Ending::TimedOut), s.timed_out);
        prop_assert_eq!(count(|e| matches!(e, Ending::Rejected(_))), s.rejected);
        let by_reason = s.refused.by_reason().map(|(_, n)| n);
        prop_assert_eq!(by_reason.iter().sum::<u64>(), s.rejected);
        prop_assert_eq!(s.servers, each.len() as u64);
        if end == RunEnd::Completed {
            prop_assert_eq!(over.len(), workload.len());
            prop_assert!(inside.is_empty());
        }
        let made = over.iter().map(|o| &o.progress).chain(&inside).map(|p| p.output_tokens);
        prop_assert_eq!(made.sum::<u64>(), s.output_tokens);
        for o in &over {
            let r = &workload.requests()[usize::try_from(o.progress.id).unwrap()];
            prop_assert_eq!((o.progress.arrival, o.progress.made_before), (r.arrival, 0));
            let record = o.progress.record;
            let Some(moved) = o.progress.transfer.as_deref() else {
                prop_assert!(o.server < prefill.servers);
                prop_assert!(r.output_tokens == 1 || o.ending != Ending::Completed);
                continue;
            };
            prop_assert_eq!(Some(moved.from), record.first_token());
            let whole = moved.from.after(transfer.time(r.input_tokens));
            match moved.to {
                Some(to) => {
                    prop_assert_eq!(to, whole);
                    prop_assert!((prefill.servers..each.len()).contains(&o.server));
                    prop_assert!(moved.admitted.is_none_or(|at| to <= at));
                }
                None => prop_assert!(moved.from <= o.at && o.at < whole),
            }
            prop_assert!(moved.from_server < prefill.servers);
            if o.ending == Ending::Completed {
                prop_assert!(moved.admitted <= record.last_token());
                prop_assert_eq!((o.progress.output_tokens, Some(o.at)), (r.output_tokens, record.last_token()));
            }
        }
    }

    /// Two pools that are stopped and looked at on the way end as two that are not.
    #[test]
    fn looking_changes_nothing(
        workload in workload(),
        (prefill, decode) in (pool(), pool()),
        transfer in transfer(),
        step_time in step_time(),
        peeks in any::<bool>(),
    ) {
        let server = || {
            let fleet = |pool: &Pool| pool.fleet(step_time, RunLimits::default(), false);
            Disaggregated::new(fleet(&prefill), fleet(&decode), transfer)
        };
        let (_, whole) = booked(&workload, server());
        prop_assert_eq!(&driven(&workload, server(), false, peeks)?, &whole);
    }

    /// With one idle prefill server and transfers in no time, the first token of a lone request is
    /// that of a lone server, and so are the others.
    #[test]
    fn a_lone_request_does_not_feel_the_pools(
        input in 1_u64..20_000,
        output in 1_u64..300,
        policy in common::policy(),
        step_time in step_time(),
    ) {
        let workload = Workload::new(vec![WorkloadRequest::new(0, Ticks::ZERO, input, output)]).unwrap();
        let alone = Simulation::new(&workload, common::make(policy), step_time).run().unwrap();
        let replica = || Replica::new(common::make(policy), step_time);
        let two = Disaggregated::new(replica(), replica(), KvTransfer::default());
        let (_, over, _) = served(two, jobs(&workload, None));
        prop_assert_eq!(over[0].progress.record, alone.records()[0]);
    }
}

/// One server in each pool, the decode server with a single slot.
///
/// | from | to | what |
/// |---|---|---|
/// | 0 | 2 | prompt of `a`, 100 tokens: 1 + 1 ms |
/// | 2 | 3.5 | its KV moves: 1 + 0.5 ms |
/// | 3.5 | 9.5 | six more tokens of `a` |
/// | 2 | 6.5 | prompts of `b` and `c`, 350 tokens; `c` has its only token |
/// | 6.5 | 9 | KV of `b`, 300 tokens: 1 + 1.5 ms |
/// | 9 | 9.5 | `b` waits for the slot |
/// | 9.5 | 10.5 | its second token |
#[test]
fn two_pools_by_hand() {
    let workload = requests(&[(0, 100, 7), (1, 300, 2), (1, 50, 1)]);
    let server = Disaggregated::new(sarathi(8), sarathi(1), slow_link());
    let (steps, result) = booked(&workload, server);
    let instants = workload.requests().iter().zip(result.records()).map(|(r, record)| {
        let at = |t: Option<Ticks>| 1e3 * t.unwrap().seconds();
        let (scheduled, first) = (at(record.scheduled()), at(record.first_token()));
        format!("{}: {scheduled} {first} {}", r.id, at(record.last_token()))
    });
    insta::assert_snapshot!(instants.collect::<Vec<_>>().join("\n"), @r"
    a: 0 2 9.5
    b: 2 6.5 10.5
    c: 2 6.5 6.5
    ");
    let ledger = Ledger::new(&result, &steps, &step_time_by_hand()).unwrap();
    insta::assert_snapshot!(lines(&ledger, &workload), @r"
    a: own_prefill 2.0, kv_transfer 1.5, own_decode 6.0
    b: waiting_step 1.0, own_prefill 4.5, kv_transfer 2.5, decode_admission 0.5, own_decode 1.0
    c: waiting_step 1.0, own_prefill 4.5
    ");
    let s = result.statistics();
    // 2 + 4.5 ms of 10.5 in one pool, 7 in the other.
    assert_eq!(
        (s.busy, s.end, s.servers),
        ("13.5ms".parse().unwrap(), "10.5ms".parse().unwrap(), 2)
    );
    assert_eq!((s.completed, s.prefill_tokens, s.output_tokens), (3, 450, 10));
}

/// A token budget of 1 in the decode pool, which `a` uses up: its KV is there at 3.5 ms, and eight
/// tokens more take until 11.5. That of `b` is there at 9.25 ms (350 tokens from 2 to 6.5, and 2.75
/// for the transfer): it has nothing to prefill, and its second token is that of the step from 9.5.
#[test]
fn who_brings_its_kv_needs_no_budget() {
    let workload = requests(&[(0, 100, 9), (1, 350, 2)]);
    let pools = |new: fn(Sarathi, Affine) -> Replica<Sarathi, Affine>| {
        let pool = |tokens| new(Sarathi::new(8, tokens).unwrap(), step_time_by_hand());
        let (_, over, _) =
            served(Disaggregated::new(pool(512), pool(1), slow_link()), jobs(&workload, None));
        over.into_iter().map(|o| o.at).collect::<Vec<_>>()
    };
    let ends = ["11.5ms".parse().unwrap(), "10.5ms".parse().unwrap()];
    assert_eq!(pools(Replica::new), ends);
    assert_eq!(pools(Replica::reference), ends);
}

/// A lone request of 100 tokens and an answer of 101 while 20 prompts of 400 tokens come, one every
/// 5 ms. On two servers in turn, prompts stall its answer; with pools each gap is a step of 1 ms, but
/// for the one before the second token, which has the transfer of 1.5 ms in it.
#[test]
fn pools_protect_an_answer_from_the_prompts_of_others() {
    let lone = std::iter::once(WorkloadRequest::new(0, Ticks::ZERO, 100, 101));
    let others = (1..21).map(|i| WorkloadRequest::new(i, ms(5 * i), 400, 1));
    let workload = Workload::new(lone.chain(others).collect()).unwrap();
    let fleet = Fleet::new(vec![sarathi(8), sarathi(8)], RouterKind::RoundRobin, 1).unwrap();
    let pools = Disaggregated::new(sarathi(8), sarathi(8), slow_link());
    let answer = |over: Vec<Over>| {
        let record = over[0].progress.record;
        record.last_token().unwrap().since(record.first_token().unwrap()).unwrap()
    };
    let together = answer(served(fleet, jobs(&workload, None)).1);
    let apart = answer(served(pools, jobs(&workload, None)).1);
    assert_eq!(apart, "101.5ms".parse().unwrap());
    // Every second prompt is on its server, and makes one step 4 ms longer.
    assert_eq!(together, ms(140));
}

/// `b` is preempted in the decode pool, and computes there what the prefill pool had computed.
///
/// Six blocks of 16 hold both prompts of 32 tokens and 16 more of each. Then `b` goes, with 48 tokens
/// in KV and 49 known, until `a` has its 20 tokens after three steps more, and computes 49 again.
#[test]
fn a_preemption_in_the_decode_pool_computes_the_prompt_again() {
    let workload = requests(&[(0, 32, 20), (0, 32, 20)]);
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(6, 16).unwrap());
    let mut server = Disaggregated::new(sarathi(8), sarathi(8).settings(settings), slow_link());
    let mut over = Vec::new();
    run_stream(&mut server, jobs(&workload, None), &mut (), |o| over.push(o.clone())).unwrap();
    over.sort_by_key(|o| o.progress.id);
    assert!(over[0].progress.stalls.is_empty());
    assert_eq!(over[1].progress.stalls[0].lost_tokens, 48);
    assert_eq!((over[1].ending, over[1].progress.output_tokens), (Ending::Completed, 20));
    let [prefill, decode] = [0, 1].map(|i| server.each()[i]);
    assert_eq!((prefill.prefill_tokens, decode.prefill_tokens), (64, 49));
    assert_eq!((prefill.output_tokens, decode.output_tokens), (2, 38));
    assert_eq!(decode.kv.unwrap().recomputed_tokens, 48);
    // What came by transfer is no swap.
    assert_eq!(decode.kv.unwrap().swapped_tokens, 0);
}

/// The prompt ends at 2 ms and would be there at 3.5 ms: who leaves in between leaves then, with the
/// first token.
#[test]
fn clients_leave_during_the_transfer() {
    let gone = |leave: &dyn Fn(&mut Disaggregated<_, _>, Job)| {
        let mut server = Disaggregated::new(sarathi(8), sarathi(8), slow_link());
        leave(&mut server, Job::new(0, Ticks::ZERO, 100, 5));
        server.finish(&mut ()).unwrap();
        let s = server.statistics();
        assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
        let mut over = Vec::new();
        server.take_over(&mut over);
        assert_eq!(over[0].progress.output_tokens, 1);
        assert_eq!(over[0].progress.transfer.as_deref().unwrap().to, None);
        (over[0].ending, over[0].at)
    };
    let at = |us: u64| Ticks::from_nanoseconds(us * 1000);
    let timed_out = gone(&|server, mut job| {
        job.timeout_at = Some(at(2500));
        server.submit(job).unwrap();
    });
    assert_eq!(timed_out, (Ending::TimedOut, at(2500)));
    let cancelled = gone(&|server, job| {
        server.submit(job).unwrap();
        server.advance_to(at(3200), &mut ()).unwrap();
        assert_eq!((server.load().waiting, server.load().outstanding_tokens), (1, 4));
        server.cancel(0);
        assert_eq!(server.next_visible(&mut ()).unwrap(), None);
    });
    assert_eq!(cancelled, (Ending::Cancelled, at(3200)));
    // Who has left by the first token is not sent on; the second of two servers had it.
    let prefill = Fleet::new(vec![sarathi(8), sarathi(8)], RouterKind::RoundRobin, 1).unwrap();
    let mut server = Disaggregated::new(prefill, sarathi(8), slow_link());
    server.submit(Job::new(0, Ticks::ZERO, 100, 5)).unwrap();
    let mut job = Job::new(1, Ticks::ZERO, 100, 5);
    job.timeout_at = Some(at(1500));
    server.submit(job).unwrap();
    server.advance_to(at(2000), &mut ()).unwrap();
    let mut over = Vec::new();
    server.take_over(&mut over);
    assert_eq!((over[0].ending, over[0].at, over[0].server), (Ending::TimedOut, at(2000), 1));
    assert_eq!((over[0].progress.transfer.clone(), over[0].progress.output_tokens), (None, 1));
}

/// What the decode pool has no room for is refused when it gets there, and its first token stays.
#[test]
fn the_decode_pool_refuses_what_never_fits() {
    let workload = requests(&[(0, 100, 5)]);
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(6, 16).unwrap());
    let server = Disaggregated::new(sarathi(8), sarathi(8).settings(settings), slow_link());
    let (_, result) = booked(&workload, server);
    let why = Rejection::NeverFits { id: 0, needed: 7, max: 6 };
    assert_eq!(result.details()[0].rejected, Some(why));
    assert_eq!((result.statistics().rejected, result.statistics().completed), (1, 0));
    let timelines = result.timelines().unwrap();
    assert_eq!((timelines[0].output_tokens(), timelines[0].ttft().is_some()), (Some(1), true));
}
