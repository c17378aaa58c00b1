//! Several servers behind a router.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{decode_first, jobs, limits, served, step_time, workload};
use proptest::prelude::*;
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::server::{Ending, Job, Over, Server, run_stream};
use sched_sim::vllm_v1::{VllmConfig, VllmReplica};
use sched_sim::{
    Affine, DecodeFirst, Order, PromptContent, Replica, RunEnd, RunLimits, RunStatistics,
    ServerSettings, Ticks, TokenBucket, Workload, WorkloadRequest,
};

fn router() -> impl Strategy<Value = RouterKind> {
    prop::sample::select(RouterKind::ALL.to_vec())
}

/// Runs a fleet; who is over in order of their numbers, and the totals.
fn run<S: Server>(
    servers: Vec<S>,
    kind: RouterKind,
    jobs: impl Iterator<Item = Job>,
) -> (RunEnd, Vec<Over>, RunStatistics) {
    served(Fleet::new(servers, kind, 7).unwrap(), jobs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Servers that skip and plain ones give the same under every router, requests are conserved,
    /// Little's law is exact over the whole fleet, and nobody is served before arriving.
    #[test]
    fn skipping_equals_the_reference_under_every_router(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        kind in router(),
        replicas in 1_usize..5,
        limits in limits(),
        patience in prop::option::weighted(0.3, 1_u64..20_000_000_000),
    ) {
        let patience = patience.map(Ticks::from_nanoseconds);
        let servers = |new: fn(DecodeFirst, Affine) -> Replica<DecodeFirst, Affine>| {
            (0..replicas).map(|_| new(policy, step_time).limits(limits)).collect()
        };
        let (skipping, plain) = (servers(Replica::new), servers(Replica::reference));
        let (end, over, s) = run(skipping, kind, jobs(&workload, patience));
        prop_assert_eq!(&run(plain, kind, jobs(&workload, patience)), &(end, over.clone(), s));
        prop_assert!(s.conserves_requests() && s.littles_law_holds(), "{:?}", s);
        prop_assert_eq!(over.len() as u64, s.completed + s.timed_out);
        if limits == RunLimits::default() {
            prop_assert_eq!((end, over.len()), (RunEnd::Completed, workload.len()));
        }
        for o in &over {
            let r = &workload.requests()[usize::try_from(o.progress.id).unwrap()];
            prop_assert_eq!(o.progress.arrival, r.arrival);
            let scheduled = o.progress.record.scheduled();
            prop_assert!(scheduled.is_none_or(|at| r.arrival <= at));
            prop_assert!(o.server < replicas);
            prop_assert!(o.ending == Ending::Completed || o.ending == Ending::TimedOut);
        }
    }

    /// A router in front of one server changes nothing, its own queue included.
    #[test]
    fn a_fleet_of_one_is_its_server(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        kind in router(),
    ) {
        let mut alone = Vec::new();
        let mut server = Replica::new(policy, step_time);
        run_stream(&mut server, jobs(&workload, None), &mut (), |o| alone.push(o.clone())).unwrap();
        alone.sort_by_key(|o| o.progress.id);
        let (_, over, _) = run(vec![Replica::new(policy, step_time)], kind, jobs(&workload, None));
        for (fleet, alone) in over.iter().zip(&alone) {
            prop_assert_eq!(fleet.progress.record, alone.progress.record);
        }
    }

    /// Two choices of two servers are both servers.
    #[test]
    fn power_of_two_of_two_is_least_requests(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
    ) {
        let two = || vec![Replica::new(policy, step_time), Replica::new(policy, step_time)];
        let power = run(two(), RouterKind::PowerOfTwo, jobs(&workload, None));
        prop_assert_eq!(power, run(two(), RouterKind::LeastRequests, jobs(&workload, None)));
    }

    /// A fleet that is stopped and looked at on the way ends as one that is not.
    #[test]
    fn looking_changes_nothing(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        kind in router(),
    ) {
        let three = || (0..3).map(|_| Replica::new(policy, step_time)).collect::<Vec<_>>();
        let (_, want, _) = run(three(), kind, jobs(&workload, None));
        let mut fleet = Fleet::new(three(), kind, 7).unwrap();
        let mut over = Vec::new();
        for job in jobs(&workload, None) {
            fleet.advance_to(job.arrival, &mut ()).unwrap();
            fleet.take_over(&mut over);
            prop_assert!(over.iter().all(|o| o.at <= job.arrival));
            fleet.submit(job).unwrap();
        }
        fleet.finish(&mut ()).unwrap();
        fleet.take_over(&mut over);
        over.sort_by_key(|o| o.progress.id);
        prop_assert_eq!(over, want);
    }
}

/// Steps of 1 ms. One slot a server: `a` takes 4 ms (a prompt step and three tokens), `b` 2 ms.
///
/// | router | `c` at 1 ms goes to | and ends at |
/// |---|---|---|
/// | round-robin | the first, behind `a` | 6 ms |
/// | least-tokens | the second, behind `b`, which has 1 token left | 4 ms |
/// | central-queue | whoever is free first, at 2 ms | 4 ms |
#[test]
fn each_router_by_hand() {
    let at = |ms: u64| Ticks::from_nanoseconds(ms * 1_000_000);
    let requests = [("a", 0, 3), ("b", 0, 1), ("c", 1, 1)];
    let requests = requests.map(|(id, ms, n)| WorkloadRequest::new(id, at(ms), 1, n));
    let workload = Workload::new(requests.to_vec()).unwrap();
    let step_time: Affine = "base=1ms".parse().unwrap();
    let policy = DecodeFirst::new(1, 512).unwrap();
    for (kind, server, end) in [
        (RouterKind::RoundRobin, 0, 6),
        (RouterKind::LeastRequests, 0, 6),
        (RouterKind::LeastTokens, 1, 4),
        (RouterKind::CentralQueue, 1, 4),
        (RouterKind::PrefixAffinity, 0, 6),
    ] {
        let two = vec![Replica::new(policy, step_time), Replica::new(policy, step_time)];
        let (_, over, s) = run(two, kind, jobs(&workload, None));
        assert_eq!((over[2].server, over[2].at), (server, at(end)), "{kind}");
        assert_eq!((s.servers, s.completed, s.requests), (2, 3, 3));
        // Steps: 4 + 2 + 2, on two servers until the last one ends.
        assert_eq!(s.steps, 8);
        let busy = 8.0 / (2.0 * end as f64);
        assert!((s.busy_share().unwrap() - busy).abs() < 1e-12, "{kind}");
    }
}

/// The same three requests in turn on three servers, with a fourth that comes when the first has
/// ended: steps of 4, 2, 2 and 2 ms. The run lasts from 0 to 7 ms for every server, also for the one
/// that begins late and the one that ends early, so that the mean of their shares is that of all.
#[test]
fn shares_of_a_server_are_of_the_time_of_the_run() {
    let at = |ms: u64| Ticks::from_nanoseconds(ms * 1_000_000);
    let requests = [("a", 0, 3), ("b", 0, 1), ("c", 1, 1), ("d", 5, 1)];
    let requests = requests.map(|(id, ms, n)| WorkloadRequest::new(id, at(ms), 1, n));
    let workload = Workload::new(requests.to_vec()).unwrap();
    let step_time: Affine = "base=1ms".parse().unwrap();
    let policy = DecodeFirst::new(1, 512).unwrap();
    let three = (0..3).map(|_| Replica::new(policy, step_time)).collect();
    let mut fleet = Fleet::new(three, RouterKind::RoundRobin, 7).unwrap();
    run_stream(&mut fleet, jobs(&workload, None), &mut (), |_| {}).unwrap();
    let (each, whole) = (fleet.each(), fleet.statistics());
    let busy: Vec<_> = each.iter().map(|s| s.busy_share().unwrap()).collect();
    assert_eq!(busy, [6.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0]);
    let used: Vec<_> = each.iter().map(|s| s.utilization_by_time().unwrap()).collect();
    assert_eq!(used, busy);
    let mean = busy.iter().sum::<f64>() / 3.0;
    assert!((mean - whole.busy_share().unwrap()).abs() < 1e-12);
    assert!((mean - whole.utilization_by_time().unwrap()).abs() < 1e-12);
}

/// Clients leave the queue of the router at the instant at which they stop waiting: `b` waits
/// behind `a` for 2 ms of the 5, and is nobody's.
#[test]
fn clients_leave_the_central_queue_in_time() {
    let at = |ms: u64| Ticks::from_nanoseconds(ms * 1_000_000);
    let requests = [("a", 0, 4), ("b", 1, 1)];
    let requests = requests.map(|(id, ms, n)| WorkloadRequest::new(id, at(ms), 1, n));
    let workload = Workload::new(requests.to_vec()).unwrap();
    let step_time: Affine = "base=1ms".parse().unwrap();
    let server = Replica::new(DecodeFirst::new(1, 512).unwrap(), step_time);
    let (_, over, s) = run(vec![server], RouterKind::CentralQueue, jobs(&workload, Some(at(2))));
    assert_eq!((over[0].ending, over[0].at), (Ending::TimedOut, at(2)));
    assert_eq!((over[1].ending, over[1].at), (Ending::TimedOut, at(3)));
    assert_eq!((s.timed_out, s.completed, s.in_system_time), (2, 0, 4 * at(1).attoseconds()));
}

/// Four prompts that share 160 tokens with one of two others: sent where their beginning was
/// computed, they hit; in turn, they do not.
#[test]
fn prefix_affinity_finds_the_cache() {
    let at = |ms: u64| Ticks::from_nanoseconds(ms * 1_000_000);
    let requests = [1, 2, 2, 1].iter().enumerate().map(|(i, &shared)| {
        let i = i as u64;
        let mut r = WorkloadRequest::new(i, at(100 * i), 200, 2);
        r.content = Some(Box::new(PromptContent::new(vec![(shared, 160), (100 + i, 40)])));
        r
    });
    let workload = Workload::new(requests.collect()).unwrap();
    let step_time: Affine = "base=1ms,prefill=10us/token".parse().unwrap();
    let hits = |kind| {
        let servers = (0..2).map(|_| VllmReplica::new(VllmConfig::new(201, 400), step_time));
        let servers = servers.collect::<Result<Vec<_>, _>>().unwrap();
        let (_, over, _) = run(servers, kind, jobs(&workload, None));
        over.iter().map(|o| o.progress.hit_tokens).collect::<Vec<_>>()
    };
    assert_eq!(hits(RouterKind::PrefixAffinity), [0, 0, 160, 160]);
    assert_eq!(hits(RouterKind::RoundRobin), [0, 0, 0, 0]);
}

/// Two servers of one slot, steps of 1 s, a request takes 2 s. By hand: 0 and 1 run from 0 s on, 2
/// (three tokens) and 3 (one) wait in the router's queue, which has two places, and 4 is refused. At
/// 2 s the shorter one of the two is next on the first server, the longer one on the second.
#[test]
fn a_central_queue_has_the_limits_and_the_order() {
    let mut settings = ServerSettings::default();
    settings.max_waiting = Some(2);
    settings.order = Order::ShortestJob;
    let step_time: Affine = "base=1s".parse().unwrap();
    let server = || {
        let replica = Replica::new(DecodeFirst::new(1, 512).unwrap(), step_time);
        replica.settings(settings.behind(true))
    };
    let fleet = Fleet::new(vec![server(), server()], RouterKind::CentralQueue, 1).unwrap();
    let ms = |n: u64| Ticks::from_nanoseconds(n * 1_000_000);
    let jobs = [(0, 0, 1), (1, 0, 1), (2, 100, 3), (3, 200, 1), (4, 300, 1)];
    let jobs = jobs.map(|(id, at, output)| Job::new(id, ms(at), 1, output));
    let (_, over, s) = served(fleet.gateway(&settings.in_front(true)), jobs.into_iter());
    let ends: Vec<(f64, usize)> = over.iter().map(|o| (o.at.seconds(), o.server)).collect();
    assert_eq!(ends, [(2.0, 0), (2.0, 1), (6.0, 1), (4.0, 0), (0.3, 0)]);
    assert_eq!((s.completed, s.rejected, s.refused.queue_full, s.queued), (4, 1, 1, 0));
    assert!(s.conserves_requests() && s.littles_law_holds());
}

/// One permit a second for all servers, however many there are: of ten requests a second for 3 s,
/// those at 0, 1 and 2 s have one.
#[test]
fn a_gateway_gives_permits_for_all_servers() {
    let mut settings = ServerSettings::default();
    settings.bucket = Some(TokenBucket::new(Ticks::from_nanoseconds(1_000_000_000), 1).unwrap());
    let step_time: Affine = "base=1ms".parse().unwrap();
    let server = |_| {
        let replica = Replica::new(DecodeFirst::new(8, 512).unwrap(), step_time);
        replica.settings(settings.behind(false))
    };
    let fleet = Fleet::new((0..4).map(server).collect(), RouterKind::RoundRobin, 1).unwrap();
    let jobs = (0..30).map(|i| Job::new(i, Ticks::from_nanoseconds(i * 100_000_000), 1, 1));
    let (_, over, s) = served(fleet.gateway(&settings.in_front(false)), jobs);
    let let_in = over.iter().filter(|o| o.ending == Ending::Completed).map(|o| o.progress.id);
    assert_eq!(let_in.collect::<Vec<_>>(), [0, 10, 20]);
    assert_eq!((s.injected, s.refused.token_bucket), (30, 27));
}
