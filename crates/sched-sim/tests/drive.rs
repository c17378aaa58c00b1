//! Closed loops and sessions: what arrives depends on what is over.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use common::{Pool, pool, step_time, transfer};
use proptest::prelude::*;
use sched_sim::drive::{Driven, drive};
use sched_sim::server::{Ending, Server};
use sched_sim::workload::{ClosedLoop, Lengths, Sessions, ThinkAfter};
use sched_sim::{
    Affine, DecodeFirst, Disaggregated, Replica, RunEnd, RunLimits, ServerSettings, StepTime,
    StepWork, Ticks,
};

fn users() -> impl Strategy<Value = ClosedLoop> {
    let think = prop::sample::select(vec!["0s", "5ms", "exponential:mean=80ms", "2s"]);
    let input = prop::sample::select(vec!["1", "300", "uniform:1,900"]);
    let output = prop::sample::select(vec!["1", "geometric:mean=20", "uniform:1,200"]);
    let turns = prop::option::weighted(0.3, prop::sample::select(vec!["2", "uniform:1,4"]));
    let leave = prop::sample::select(vec!["50%,20ms", "0.2,0s", "100%,exponential:mean=500ms"]);
    let leave = prop::option::weighted(0.3, leave);
    (1_u64..9, think, 1_u64..60, input, output, any::<u64>(), turns, leave).prop_map(
        |(users, think, requests, input, output, seed, turns, leave)| ClosedLoop {
            users,
            think: think.parse().unwrap(),
            requests,
            lengths: Lengths::Independent {
                input: input.parse().unwrap(),
                output: output.parse().unwrap(),
            },
            system_prompts: None,
            sessions: turns.map(|turns| Sessions {
                turns: turns.parse().unwrap(),
                think: think.parse().unwrap(),
                after: ThinkAfter::Answer,
            }),
            cancellations: leave.map(|law| law.parse().unwrap()),
            seed,
        },
    )
}

/// Users with prompts of one token and so many requests in all, for calculations by hand.
fn closed(users: u64, think: &str, requests: u64, output: &str) -> ClosedLoop {
    ClosedLoop {
        users,
        think: think.parse().unwrap(),
        requests,
        lengths: Lengths::Independent {
            input: "1".parse().unwrap(),
            output: output.parse().unwrap(),
        },
        system_prompts: None,
        sessions: None,
        cancellations: None,
        seed: 1,
    }
}

/// How long clients wait: not at all, for less than a step, for a while.
fn patience() -> impl Strategy<Value = Ticks> {
    prop_oneof![
        1 => Just(Ticks::ZERO),
        1 => (1_u64..1000).prop_map(Ticks::from_nanoseconds),
        4 => (1_u64..3000).prop_map(|ms| Ticks::from_nanoseconds(ms * 1_000_000)),
    ]
}

/// Steps that take time, of a prompt and of a decode. Where one takes none, several answers and
/// refusals are there at one instant, and which of them a driver is shown first depends on how many
/// steps the engine takes at once.
fn steps_that_take_time() -> impl Strategy<Value = Affine> {
    step_time().prop_filter("each step takes time", |step_time| {
        let (mut decode, mut prefill) = (StepWork::default(), StepWork::default());
        (decode.decodes, decode.decode_context) = (1, 1);
        (prefill.prefills, prefill.prefill_tokens, prefill.attention_doubled) = (1, 1, 1);
        [decode, prefill].iter().all(|work| step_time.step(work) != Ticks::ZERO)
    })
}

/// The user and turn of a request `u.k`.
fn turn(id: &str) -> (u64, u64) {
    let (user, turn) = id.split_once('.').unwrap();
    (user.parse().unwrap(), turn.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Skipping and plain servers, in one fleet or in two pools, see the same requests and give the
    /// same answers, whatever their policies, memory, router and limits are; nobody has two requests
    /// at once, and whoever is refused comes again.
    #[test]
    fn closed_loops_close(
        users in users(),
        step_time in steps_that_take_time(),
        pool in pool(),
        decode in prop::option::of((pool(), transfer())),
        patience in prop::option::weighted(0.4, patience()),
    ) {
        let run = |reference| -> (Driven, sched_sim::RunStatistics) {
            let fleet = |pool: &Pool| pool.fleet(step_time, RunLimits::default(), reference);
            let mut server: Box<dyn Server> = match &decode {
                Some((decode, transfer)) => {
                    Box::new(Disaggregated::new(fleet(&pool), fleet(decode), *transfer))
                }
                None => Box::new(fleet(&pool)),
            };
            let driven = drive(&mut server, &mut users.arrivals().unwrap(), patience, &mut ()).unwrap();
            let s = server.statistics();
            (driven, s)
        };
        let (driven, s) = run(false);
        prop_assert_eq!(&run(true), &(driven.clone(), s));
        prop_assert!(s.conserves_requests() && s.littles_law_holds(), "{:?}", s);
        prop_assert_eq!(s.completed + s.rejected + s.timed_out + s.cancelled, users.requests);
        let mut last: BTreeMap<u64, (u64, Ticks)> = BTreeMap::new();
        let mut over: Vec<_> = driven.over().iter().collect();
        over.sort_by_key(|o| o.progress.id);
        for (o, r) in over.iter().zip(driven.workload().requests()) {
            let (user, turn) = turn(&r.id.to_string());
            let leaves = r.cancel_after().into_iter().chain(patience).min();
            let left = leaves.map_or(o.at, |after| o.at.min(r.arrival.after(after)));
            let before = last.insert(user, (turn, left));
            let (turns, answered) = before.unwrap_or((0, Ticks::ZERO));
            prop_assert_eq!(turn, turns + 1);
            prop_assert!(answered <= r.arrival, "{} before its last answer", r.id);
        }
        prop_assert!(last.len() as u64 <= users.users);
    }
}

/// The interactive law, in attoseconds: with a think time of 50 ms, users × time is the time in
/// the system and 50 ms for each request, but for what is left at the end.
#[test]
fn the_interactive_law_is_exact() {
    let users = ClosedLoop {
        users: 8,
        think: "50ms".parse().unwrap(),
        requests: 400,
        lengths: Lengths::Independent {
            input: "uniform:1,2000".parse().unwrap(),
            output: "geometric:mean=50".parse().unwrap(),
        },
        system_prompts: None,
        sessions: None,
        cancellations: None,
        seed: 11,
    };
    let step_time: Affine = "base=2ms,prefill=20us/token,decode=100us/request".parse().unwrap();
    let mut server = Replica::new(DecodeFirst::new(4, 512).unwrap(), step_time);
    let driven = drive(&mut server, &mut users.arrivals().unwrap(), None, &mut ()).unwrap();
    let s = server.statistics();
    let think = Ticks::from_nanoseconds(50_000_000).attoseconds();
    let mut last: BTreeMap<u64, Ticks> = BTreeMap::new();
    for over in driven.over() {
        let r = &driven.workload().requests()[usize::try_from(over.progress.id).unwrap()];
        last.insert(turn(&r.id.to_string()).0, over.at);
    }
    let answered: u128 = last.values().map(|at| at.attoseconds()).sum();
    assert_eq!(s.sojourn_time + 400 * think, answered);
    // X (R + Z) = N, less the users who are done before the last one.
    let x = 400.0 / s.end.seconds();
    let r = s.sojourn_time as f64 / 400.0 / 1e18;
    let busy = answered as f64 / 1e18 / s.end.seconds();
    assert!((x * (r + 0.05) - busy).abs() < 1e-9 && 7.5 < busy && busy <= 8.0, "{busy}");
}

/// By hand, with steps of 10 ms, one slot, one place in the queue, and users who think for 5 ms. At
/// 5 ms one of three finds the place; the server has nothing to do, and refuses the others at once.
/// They come again at 10 ms, and are seen at the end of the step under way, at 15 ms: one finds the
/// place, the other comes again 5 ms after that, and is refused at 25 ms.
#[test]
fn whoever_is_refused_comes_again() {
    let users = closed(3, "5ms", 6, "1");
    let mut settings = ServerSettings::default();
    settings.max_waiting = Some(1);
    let step_time: Affine = "base=10ms".parse().unwrap();
    for new in [Replica::new, Replica::reference] {
        let mut server = new(DecodeFirst::new(1, 512).unwrap(), step_time).settings(settings);
        let driven = drive(&mut server, &mut users.arrivals().unwrap(), None, &mut ()).unwrap();
        let arrivals = driven.workload().requests().iter();
        let ms: Vec<f64> = arrivals.map(|r| 1e3 * r.arrival.seconds()).collect();
        assert_eq!(ms, [5.0, 5.0, 5.0, 10.0, 10.0, 20.0]);
        let s = server.statistics();
        assert_eq!((s.completed, s.rejected), (2, 4));
    }
}

/// By hand, with steps of 10 ms, one for a prompt and one for a token, one slot, and two users who
/// wait for 25 ms at most and think for 2 ms. Both ask at 2 ms; the first has its token at 22 ms and
/// asks again at 24 ms. The second is served from 22 ms on; it stops waiting at 27 ms and asks again
/// at 29 ms, while the server works for nobody until it takes note at 32 ms. Then the first is served
/// in vain, as its token would come at 52 ms and it leaves at 49 ms, to ask again at 51 ms. The second
/// is served from 52 ms on and leaves at 54 ms; the server takes note at 62 ms, and serves the first
/// until 82 ms, who leaves at 76 ms; the second, who came back at 56 ms, has left the queue at 81 ms.
#[test]
fn whoever_stops_waiting_goes_on_at_once() {
    let users = closed(2, "2ms", 6, "1");
    let step_time: Affine = "base=10ms".parse().unwrap();
    let patience: Ticks = "25ms".parse().unwrap();
    for new in [Replica::new, Replica::reference] {
        let mut server = new(DecodeFirst::new(1, 512).unwrap(), step_time);
        let mut arrivals = users.arrivals().unwrap();
        let driven = drive(&mut server, &mut arrivals, Some(patience), &mut ()).unwrap();
        let ms = |at: Ticks| 1e3 * at.seconds();
        let requests = driven.workload().requests().iter();
        let sent: Vec<String> = requests.map(|r| format!("{} {}", r.id, ms(r.arrival))).collect();
        assert_eq!(sent, ["1.1 2", "2.1 2", "1.2 24", "2.2 29", "1.3 51", "2.3 56"]);
        let over = driven.over().iter();
        let over: Vec<_> = over.map(|o| (o.progress.id, o.ending, ms(o.at))).collect();
        let left = Ending::TimedOut;
        assert_eq!(
            over,
            [
                (0, Ending::Completed, 22.0),
                (1, left, 32.0),
                (2, left, 52.0),
                (3, left, 62.0),
                (4, left, 82.0),
                (5, left, 82.0),
            ]
        );
        // The same for clients who go away.
        let law = sched_sim::workload::Cancellations {
            share: 1.0,
            after: sched_sim::workload::Delay::Constant(patience),
        };
        let users = ClosedLoop { cancellations: Some(law), ..users.clone() };
        let mut server = new(DecodeFirst::new(1, 512).unwrap(), step_time);
        let gone = drive(&mut server, &mut users.arrivals().unwrap(), None, &mut ()).unwrap();
        let arrivals =
            |d: &Driven| d.workload().requests().iter().map(|r| r.arrival).collect::<Vec<_>>();
        assert_eq!(arrivals(&gone), arrivals(&driven));
        let s = server.statistics();
        assert_eq!((s.completed, s.timed_out, s.cancelled), (1, 0, 5));
    }
}

/// A run that is stopped says so, and gives what there is.
#[test]
fn a_stopped_loop_is_truncated() {
    let users = closed(2, "0s", 1000, "9");
    let step_time: Affine = "base=1ms".parse().unwrap();
    let limits = sched_sim::RunLimits {
        until: Some(Ticks::from_nanoseconds(95_000_000)),
        ..sched_sim::RunLimits::default()
    };
    let policy = DecodeFirst::new(4, 512).unwrap();
    let mut server = Replica::new(policy, step_time).limits(limits);
    let driven = drive(&mut server, &mut users.arrivals().unwrap(), None, &mut ()).unwrap();
    let result = driven.result(&server, false);
    // Ten steps each: 9 rounds in 90 ms, and the tenth is under way.
    assert_eq!(result.end(), RunEnd::TimeLimit);
    assert_eq!((result.statistics().completed, result.statistics().running), (18, 2));
    assert!(result.statistics().conserves_requests());
}
