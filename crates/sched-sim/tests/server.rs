//! Servers that are driven from outside.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{decode_first, driven, step_time, workload};
use proptest::prelude::*;
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::server::{Ending, Job, Over, Server, run_stream};
use sched_sim::vllm_v1::{VllmConfig, VllmReplica};
use sched_sim::{
    Affine, DecodeFirst, Disaggregated, KvTransfer, Replica, RunEnd, Sarathi, ServerSettings,
    SimError, Simulation, Ticks,
};

fn at(ms: u64) -> Ticks {
    Ticks::from_nanoseconds(ms * 1_000_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A server that is stopped and sent requests from outside ends as one that had them all.
    #[test]
    fn driving_from_outside_changes_nothing(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        peeks in any::<bool>(),
    ) {
        let whole = Simulation::new(&workload, policy, step_time).run().unwrap();
        let skipping = Replica::new(policy, step_time);
        prop_assert_eq!(&driven(&workload, skipping, false, peeks)?, &whole);
        let plain = Replica::reference(policy, step_time);
        prop_assert_eq!(&driven(&workload, plain, false, peeks)?, &whole);
    }

    /// Clients that leave are counted once, by both engines alike, and Little's law stays exact.
    #[test]
    fn clients_that_leave_are_accounted_for(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        patience in 0_u64..20_000_000_000,
        cancels in prop::collection::vec(prop::option::weighted(0.3, 0_u64..5_000_000_000), 40),
    ) {
        let jobs = || workload.requests().iter().enumerate().map(|(position, r)| {
            let mut job = Job::of(position, r);
            job.timeout_at = Some(r.arrival.after(Ticks::from_nanoseconds(patience)));
            let cancel = cancels[position].map(Ticks::from_nanoseconds);
            job.cancel_at = cancel.map(|after| r.arrival.after(after));
            job
        });
        let run = |mut server: Replica<DecodeFirst, Affine>| {
            let mut over = Vec::new();
            let end = run_stream(&mut server, jobs(), &mut (), |o| over.push(o.clone())).unwrap();
            (end, over, server.statistics())
        };
        let (end, mut over, s) = run(Replica::new(policy, step_time));
        prop_assert_eq!(&(end, over.clone(), s), &run(Replica::reference(policy, step_time)));
        prop_assert_eq!(end, RunEnd::Completed);
        prop_assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
        let count = |ending| over.iter().filter(|o| o.ending == ending).count() as u64;
        prop_assert_eq!(count(Ending::Completed), s.completed);
        prop_assert_eq!(count(Ending::Cancelled), s.cancelled);
        prop_assert_eq!(count(Ending::TimedOut), s.timed_out);
        prop_assert_eq!(over.len() as u64, s.injected);
        over.sort_by_key(|o| o.progress.id);
        for (o, job) in over.iter().zip(jobs()) {
            let due = match o.ending {
                Ending::Cancelled => job.cancel_at,
                Ending::TimedOut => job.timeout_at,
                _ => Some(job.arrival),
            };
            prop_assert!(due.unwrap() <= o.at);
        }
    }
}

/// By hand: steps of 1 ms; a prompt of 1 token, then 1000 answers: an arrival at 10.5 ms is seen
/// when the step under way ends at 11 ms, though the stretch was planned to the last token.
#[test]
fn an_arrival_cuts_a_planned_stretch() {
    let step_time: Affine = "base=1ms".parse().unwrap();
    let mut server = Replica::new(DecodeFirst::new(8, 512).unwrap(), step_time);
    server.submit(Job::new(0, Ticks::ZERO, 1, 1000)).unwrap();
    server.advance_to(at(1), &mut ()).unwrap();
    assert_eq!(server.next_visible(&mut ()).unwrap(), Some(at(1001)));
    server.advance_to("10500us".parse().unwrap(), &mut ()).unwrap();
    assert_eq!(server.load().outstanding_tokens, 991);
    server.submit(Job::new(1, "10500us".parse().unwrap(), 1, 1)).unwrap();
    assert_eq!(server.load().waiting, 1);
    // Its prompt is in the step that ends at 12 ms, its token in the one that ends at 13 ms.
    let mut over: Vec<Over> = Vec::new();
    while over.is_empty() {
        let visible = server.next_visible(&mut ()).unwrap().unwrap();
        server.advance_to(visible, &mut ()).unwrap();
        server.take_over(&mut over);
    }
    assert_eq!((over[0].progress.id, over[0].at), (1, at(13)));
    server.cancel(0);
    assert_eq!(server.finish(&mut ()).unwrap(), RunEnd::Completed);
    server.take_over(&mut over);
    assert_eq!((over[1].ending, over[1].at), (Ending::Cancelled, at(13)));
    assert_eq!(over[1].progress.output_tokens, 12);
}

/// A hundred thousand requests, of which at most a few are inside at once.
#[test]
fn a_stream_needs_room_for_those_inside_only() {
    let step_time: Affine = "base=1ms".parse().unwrap();
    let mut server = Replica::new(DecodeFirst::new(8, 512).unwrap(), step_time);
    let jobs = (0..100_000).map(|i| Job::new(i, at(20 * i), 100, 50));
    let mut n = 0;
    run_stream(&mut server, jobs, &mut (), |_| n += 1).unwrap();
    assert_eq!(n, 100_000);
    // One prompt step and fifty tokens take 51 ms: three are inside at once.
    assert_eq!(server.positions(), 3);
}

/// A server can be told of what is to come, and not of what has passed.
#[test]
fn requests_have_to_arrive_in_order() {
    let step_time: Affine = "base=1ms".parse().unwrap();
    let mut server = Replica::new(DecodeFirst::default(), step_time);
    server.submit(Job::new(0, at(5), 1, 1)).unwrap();
    let late = server.submit(Job::new(7, at(4), 1, 1)).unwrap_err();
    assert!(matches!(late, SimError::OutOfOrder { .. }), "{late}");
    let text = "requests must reach a server in order of arrival: `7` arrives at 0.004 s, and the \
                server is at 0.005 s already";
    assert_eq!(late.to_string(), text);
    server.advance_to(at(9), &mut ()).unwrap();
    assert!(server.submit(Job::new(1, at(8), 1, 1)).is_err());
    assert!(server.submit(Job::new(1, at(9), 1, 0)).is_err());
    server.submit(Job::new(1, at(9), 1, 1)).unwrap();
}

/// Every kind of server with steps of 10 ms, whose first one gives the first token of a prompt, and
/// how many of 12 tokens are made for a client that leaves in the last of these steps: vLLM drops what
/// a step made for somebody who has left.
fn servers() -> Vec<(Box<dyn Server>, u64)> {
    let step_time: Affine = "base=10ms".parse().unwrap();
    let policy = Sarathi::new(4, 64).unwrap();
    let replica = || Replica::new(policy, step_time);
    let vllm = || VllmReplica::new(VllmConfig::new(40, 240), step_time).unwrap();
    let two = Fleet::new(vec![replica(), replica()], RouterKind::LeastRequests, 1).unwrap();
    let at_once = KvTransfer::new(Ticks::ZERO, Ticks::ZERO).unwrap();
    vec![
        (Box::new(replica()), 12),
        (Box::new(Replica::reference(policy, step_time)), 12),
        (Box::new(two), 12),
        (Box::new(Disaggregated::new(replica(), replica(), at_once)), 12),
        (Box::new(vllm()), 11),
        (Box::new(vllm().asked_in_every_step()), 11),
    ]
}

/// The last of 12 tokens is made at 120 ms. Who waits until then has it and is completed; for who has
/// left at 115 ms, or 1 ns too early, there is no last token.
#[test]
fn a_last_token_that_nobody_waits_for_completes_nothing() {
    let nanosecond = Ticks::from_nanoseconds(120 * 1_000_000 - 1);
    for (timeout, in_time) in [(at(120), true), (at(115), false), (nanosecond, false)] {
        for (i, (mut server, late)) in servers().into_iter().enumerate() {
            let mut job = Job::new(0, Ticks::ZERO, 1, 12);
            job.timeout_at = Some(timeout);
            server.submit(job).unwrap();
            assert_eq!(server.finish(&mut ()).unwrap(), RunEnd::Completed);
            let mut over = Vec::new();
            server.take_over(&mut over);
            let (ending, tokens, last) = if in_time {
                (Ending::Completed, 12, Some(at(120)))
            } else {
                (Ending::TimedOut, late, None)
            };
            let progress = &over[0].progress;
            assert_eq!((over[0].ending, over[0].at), (ending, at(120)), "server {i}, {timeout}");
            assert_eq!((progress.output_tokens, progress.record.last_token()), (tokens, last));
            let s = server.statistics();
            assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
            assert_eq!((s.completed, s.timed_out), (u64::from(in_time), u64::from(!in_time)));
        }
    }
    // The same of a client that is said to go away while the step runs.
    for (i, (mut server, late)) in servers().into_iter().enumerate() {
        server.submit(Job::new(0, Ticks::ZERO, 1, 12)).unwrap();
        server.advance_to(at(115), &mut ()).unwrap();
        server.cancel(0);
        server.finish(&mut ()).unwrap();
        let mut over = Vec::new();
        server.take_over(&mut over);
        assert_eq!(
            (over[0].ending, over[0].progress.output_tokens),
            (Ending::Cancelled, late),
            "{i}"
        );
        let s = server.statistics();
        assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
        assert_eq!((s.completed, s.cancelled), (0, 1));
    }
}

/// Steps of 2 s, one slot, one place in the queue, patience for 0.9 s. Who comes at 0.1 s waits until
/// 1 s, so that the place is free for who comes at 1.5 s, although the server sees both at 2 s only.
#[test]
fn who_has_left_does_not_stand_in_the_way_of_who_comes() {
    let mut settings = ServerSettings::default();
    settings.max_waiting = Some(1);
    let step_time: Affine = "base=2s".parse().unwrap();
    for new in [Replica::new, Replica::reference] {
        let mut server = new(DecodeFirst::new(1, 10).unwrap(), step_time).settings(settings);
        for (id, ms) in [(0, 0), (1, 100), (2, 1500)] {
            let mut job = Job::new(id, at(ms), 1, 1);
            job.timeout_at = Some(at(ms + 900));
            server.submit(job).unwrap();
        }
        server.finish(&mut ()).unwrap();
        let s = server.statistics();
        assert_eq!((s.timed_out, s.rejected), (3, 0));
    }
}
