//! vLLM's scheduler in runs with a clock: skipping = asking in every step, and both = the loop
//! whose decisions are compared with vLLM's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{BlockLog, Gaps, driven, limits, settings, step_time, tokens_of};
use proptest::prelude::*;
use sched_sim::server::{Job, Server};
use sched_sim::vllm_v1::replay::{Abort, Phase, Replay, ReplayRequest, StepNanoseconds};
use sched_sim::vllm_v1::{EngineVersion, QueuePolicy, VllmConfig, VllmReplica, VllmV1, VllmV1Run};
use sched_sim::{
    BatchHistory, Coefficients, PromptContent, RequestId, RunEnd, RunLimits, RunResult,
    ServerSettings, SimError, Simulation, StepTime, Ticks, Workload, WorkloadRequest,
};

const MODEL_LEN: u64 = 240;

/// Requests of up to `MODEL_LEN` tokens, a few beyond; prompts that share beginnings, and turns
/// that begin with an earlier prompt and its answer.
fn workload() -> impl Strategy<Value = Workload> {
    let gap = prop_oneof![
        4 => Just(0_u64),
        4 => 1_u64..30_000_000,
        2 => 30_000_000_u64..400_000_000,
        1 => 400_000_000_u64..5_000_000_000,
    ];
    let input = prop_oneof![3 => 1_u64..40, 3 => 1_u64..150, 1 => 150_u64..250];
    let output = prop_oneof![1 => Just(1_u64), 3 => 1_u64..40, 3 => 1_u64..200];
    let shared = prop_oneof![
        3 => Just(None),
        3 => (0_u64..3, 1_u64..150).prop_map(|(s, n)| Some((s, n))),
        2 => (100_u64..130, 1_u64..120).prop_map(|(s, n)| Some((s, n))),
    ];
    let row = (gap, input, output, shared, -2_i64..3);
    prop::collection::vec(row, 1..24).prop_map(|rows| {
        let mut now = 0;
        let requests = rows.into_iter().enumerate().map(|(i, (gap, input, output, shared, p))| {
            now += gap;
            let mut r = WorkloadRequest::new(i as u64, Ticks::from_nanoseconds(now), input, output);
            r.priority = p;
            let mut prompt = vec![(1000 + i as u64, input)];
            if let Some((segment, tokens)) = shared {
                // Segments from 100 on are answers of earlier requests.
                let tokens = tokens.min(input);
                prompt = vec![(segment, tokens), (1000 + i as u64, input - tokens)];
                prompt.retain(|s| s.1 > 0);
            }
            let mut content = PromptContent::new(prompt);
            content.answer = Some(100 + i as u64);
            r.content = Some(Box::new(content));
            r
        });
        Workload::new(requests.collect()).unwrap()
    })
}

/// Pools from one request of full length to plenty, and every rule on and off.
fn config() -> impl Strategy<Value = VllmConfig> {
    let size = prop_oneof![Just(1_u64), Just(4), Just(16), Just(17)];
    let basic = (size, 0_u64..40, any::<(bool, bool, bool)>(), 1_u64..10);
    let budget = prop_oneof![2 => 0_u64..30, 2 => 30_u64..400];
    let rules = (
        any::<bool>(),
        prop_oneof![3 => Just(0_u64), 1 => 1_u64..60],
        any::<bool>(),
        prop_oneof![3 => Just(1_u64), 1 => 2_u64..5],
        prop_oneof![2 => Just(0.0), 1 => 0.0..0.5],
        prop_oneof![2 => Just(None), 1 => (1_u64..4).prop_map(Some)],
    );
    let version = prop_oneof![
        3 => Just(EngineVersion::V0_33_0),
        1 => Just(EngineVersion::new(0, 19, 0)),
        1 => Just(EngineVersion::new(0, 11, 0)),
    ];
    (basic, budget, rules, version).prop_map(|(basic, budget, rules, version)| {
        let (size, more, (is_async, caching, reserve), seqs) = basic;
        let (priority, cap, adaptive, interval, watermark, fewer) = rules;
        let mut c = VllmConfig::new(MODEL_LEN.div_ceil(size) + 1 + more * 16 / size, MODEL_LEN);
        c.block_size = size;
        c.async_scheduling = Some(is_async);
        c.enable_prefix_caching = caching;
        c.scheduler_reserve_full_isl = Some(reserve && version == EngineVersion::V0_33_0);
        c.max_num_seqs = seqs;
        c.max_num_batched_tokens = seqs + budget;
        c.enable_chunked_prefill =
            c.max_num_batched_tokens < MODEL_LEN || fewer.is_some() || reserve;
        c.policy = if priority { QueuePolicy::Priority } else { QueuePolicy::Fcfs };
        c.long_prefill_token_threshold = cap;
        c.max_num_scheduled_tokens = fewer;
        c.engine_version = version;
        if version == EngineVersion::V0_33_0 {
            c.long_prefill_token_threshold_adaptive = adaptive;
            c.prefill_schedule_interval = interval;
            c.watermark = watermark;
        }
        c
    })
}

fn cancellations() -> impl Strategy<Value = Vec<(u64, usize)>> {
    prop_oneof![
        2 => Just(Vec::new()),
        1 => prop::collection::vec((0_u64..4_000_000_000, 0_usize..24), 1..6),
    ]
}

fn going(workload: &Workload, list: &[(u64, usize)]) -> Vec<(Ticks, usize)> {
    let there = list.iter().filter(|c| c.1 < workload.len());
    there.map(|&(at, position)| (Ticks::from_nanoseconds(at), position)).collect()
}

/// Both engines must agree on everything, also on requests that displace each other for ever;
/// returns what they agree on.
fn both<'w, T: StepTime + Clone>(
    workload: &'w Workload,
    vllm: &VllmV1Run,
    step_time: &T,
    (settings, limits): (ServerSettings, RunLimits),
) -> Result<(Result<RunResult<'w>, SimError>, BatchHistory), TestCaseError> {
    let run = || {
        let simulation = Simulation::vllm_v1(workload, vllm.clone(), step_time.clone());
        simulation.gateway(settings).limits(limits)
    };
    let (mut fast_watch, mut plain_watch) = Default::default();
    let fast = run().run_observed(&mut fast_watch);
    let plain = run().run_reference_observed(&mut plain_watch);
    prop_assert_eq!(&fast, &plain);
    let (fast_history, (fast_blocks, fast_gaps)): (BatchHistory, (BlockLog, Gaps)) = fast_watch;
    let (plain_history, (plain_blocks, plain_gaps)): (BatchHistory, (BlockLog, Gaps)) = plain_watch;
    prop_assert_eq!(&fast_history, &plain_history);
    if let Ok(result) = &fast {
        prop_assert!(fast_blocks.agrees_with(&plain_blocks));
        prop_assert!(plain_blocks.has_room_for_what_is_held(vllm.config.block_size));
        fast_gaps.check(&plain_gaps, result.statistics(), &tokens_of(result))?;
        let records = result.records().iter();
        if records.clone().all(|r| r.last_token().is_some()) {
            let each = records.map(|r| r.last_token().unwrap().since(r.first_token().unwrap()));
            let each = each.map(|stay| stay.unwrap().attoseconds());
            prop_assert_eq!(fast_gaps.total(), each.sum::<u128>());
        }
    }
    Ok((fast, fast_history))
}

/// How many cases: 400, or what `PROPTEST_CASES` says.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Skipping agrees with asking in every step, bit for bit, and the books balance.
    #[test]
    fn skipping_equals_the_reference(
        workload in workload(),
        config in config(),
        step_time in step_time(),
        cancellations in cancellations(),
        settings in settings(),
        limits in limits(),
    ) {
        let mut vllm = VllmV1Run::new(config);
        vllm.cancellations = going(&workload, &cancellations);
        let (result, history) = both(&workload, &vllm, &step_time, (settings, limits))?;
        let Ok(result) = result else {
            prop_assert!(matches!(result, Err(SimError::NoProgress { .. })), "{result:?}");
            return Ok(());
        };
        let s = result.statistics();
        let kv = s.kv.unwrap();
        prop_assert!(s.conserves_requests(), "{s:?}");
        prop_assert!(s.littles_law_holds(), "{s:?}");
        prop_assert!(s.served_time <= s.in_service_time, "{s:?}");
        prop_assert!(s.served_steps <= s.in_service_steps, "{s:?}");
        prop_assert_eq!(history.runs().iter().map(|r| r.steps).sum::<u64>(), s.steps);
        prop_assert!(kv.used_max <= kv.blocks);
        prop_assert!(s.kv_utilization().is_none_or(|u| u <= 1.0));
        prop_assert!(kv.counters.refilled_blocks <= kv.counters.evicted_blocks);
        if limits == RunLimits::default() {
            prop_assert_eq!(result.end(), RunEnd::Completed);
            prop_assert_eq!(s.running + s.queued, 0);
        }
        prop_assert_eq!(result.timelines().unwrap().len() as u64, s.injected);
    }

    /// Instants, preemptions and outputs are those of the loop that is compared with vLLM's own
    /// decisions, for whole nanoseconds.
    #[test]
    fn the_clock_is_that_of_the_recorded_loop(
        workload in workload(),
        config in config(),
        (a, b) in (0_u64..20_000_000, 0_u64..100_000),
        cancellations in cancellations(),
    ) {
        let mut replay = Replay::new(workload.requests().iter().map(|r| {
            let RequestId::Number(id) = r.id else { unreachable!() };
            let arrival = u64::try_from(r.arrival.attoseconds() / 1_000_000_000).unwrap();
            let content = r.content.as_ref().unwrap();
            let prompt = content.prompt.clone();
            let mut request =
                ReplayRequest::new(id, arrival, prompt, content.answer.unwrap(), r.output_tokens);
            request.priority = r.priority;
            request
        }).collect());
        let going = going(&workload, &cancellations);
        replay.aborts = going.iter().map(|&(at, position)| {
            let at = u64::try_from(at.attoseconds() / 1_000_000_000).unwrap();
            Abort::new(at, position as u64, Phase::Before)
        }).collect();
        replay.step_time = Some(StepNanoseconds::new(a, b, 0));
        let mut scheduler = VllmV1::new(config.clone()).unwrap();
        let step_time = sched_sim::Affine::new(Coefficients {
            base: Ticks::from_nanoseconds(a),
            prefill: Ticks::from_nanoseconds(b),
            decode: Ticks::from_nanoseconds(b),
            ..Coefficients::default()
        }).unwrap();
        let mut vllm = VllmV1Run::new(config);
        vllm.cancellations = going;
        let Ok(result) = Simulation::vllm_v1(&workload, vllm, step_time).run() else {
            return Ok(());
        };
        let outcome = replay.run(&mut scheduler, &mut ());

        for (position, record) in outcome.records.iter().enumerate() {
            let found = result.records()[position];
            let ns = |step: Option<(u64, u64)>| step.map(|s| Ticks::from_nanoseconds(s.1));
            prop_assert_eq!(found.first_token(), ns(record.first_token));
            prop_assert_eq!(found.last_token(), ns(record.last_token));
            if let Some((_, hit)) = record.admitted
                && let Some(&tokens) = result.hit_tokens().get(position)
            {
                prop_assert!(tokens == hit || found.scheduled().is_none());
            }
            let detail = result.details().iter().find(|d| d.position == position);
            let rejected = detail.is_some_and(|d| d.rejected.is_some());
            prop_assert_eq!(rejected, record.rejected);
        }
        let kv = result.statistics().kv.unwrap();
        prop_assert_eq!(kv.counters, scheduler.counters().kv);
        prop_assert_eq!(kv.preemptions, scheduler.counters().preemptions);
    }

    /// A replica that is stopped and sent requests from outside ends as one that had them all.
    #[test]
    fn a_replica_can_be_driven_from_outside(
        workload in workload(),
        config in config(),
        step_time in step_time(),
        settings in settings(),
        peeks in any::<bool>(),
    ) {
        let caching = config.enable_prefix_caching;
        let vllm = VllmV1Run::new(config.clone());
        let simulation = Simulation::vllm_v1(&workload, vllm, step_time).gateway(settings);
        let Ok(whole) = simulation.run() else { return Ok(()) };
        let replica = VllmReplica::new(config, step_time).unwrap().gateway(&settings);
        prop_assert_eq!(driven(&workload, replica, caching, peeks)?, whole);
    }
}

/// Async: at 0 the prompts of both, 0–3 ms, and a token of each, 3–4, are scheduled. The client of `a`
/// leaves at 2, which shows at 3, so that the step to 4 computes a token for nobody: of its batch only `b`
/// is left, up to its fifth token at 7.
#[test]
fn a_step_scheduled_for_who_has_left_serves_the_batch() {
    let workload = Workload::new(vec![
        WorkloadRequest::new("a", Ticks::ZERO, 100, 5),
        WorkloadRequest::new("b", Ticks::ZERO, 100, 5),
    ])
    .unwrap();
    let step_time: sched_sim::Affine = "base=1ms,prefill=10us/token".parse().unwrap();
    let mut vllm = VllmV1Run::new(VllmConfig::new(101, 240));
    vllm.config.async_scheduling = Some(true);
    vllm.cancellations = vec![("2ms".parse().unwrap(), 0)];
    let result = Simulation::vllm_v1(&workload, vllm, step_time).run().unwrap();
    let s = result.statistics();
    let ms = |time: u128| time as f64 / Ticks::from_nanoseconds(1_000_000).attoseconds() as f64;
    assert_eq!([ms(s.prefill_time), ms(s.decode_time)], [2.0 * 3.0, 4.0]);
    assert_eq!(ms(s.in_service_time), 2.0 * 3.0 + 4.0);
    assert_eq!((s.served_steps, s.in_service_steps), (6, 6));
    assert_eq!(s.mean_held_back(), Some(0.0));
}

/// The prompt of 100 tokens takes 2 ms and gives the first of ten tokens, each other one takes 1 ms.
/// Who looks in between sees the tokens of the steps that have ended, and the blocks of those that are
/// scheduled: the step under way, and with async scheduling the next one. Who goes away in a step does
/// not get its token.
#[test]
fn who_looks_in_the_middle_of_a_step_does_not_see_its_token() {
    let us = |n: u64| Ticks::from_nanoseconds(n * 1000);
    let step_time: sched_sim::Affine = "base=1ms,prefill=10us/token".parse().unwrap();
    for (is_async, asked) in [(false, false), (false, true), (true, false), (true, true)] {
        let replica = || {
            let mut config = VllmConfig::new(MODEL_LEN + 1, MODEL_LEN);
            config.block_size = 1;
            config.async_scheduling = Some(is_async);
            config.enable_chunked_prefill = true;
            let replica = VllmReplica::new(config, step_time).unwrap();
            let mut replica = if asked { replica.asked_in_every_step() } else { replica };
            replica.submit(Job::new(0, Ticks::ZERO, 100, 10)).unwrap();
            replica
        };
        let mut looked_at = replica();
        for quarter in 9..44 {
            looked_at.advance_to(us(250 * quarter), &mut ()).unwrap();
            let load = looked_at.load();
            let made = quarter / 4 - 1;
            assert_eq!(load.outstanding_tokens, 10 - made, "{is_async} {asked} {quarter}");
            // At the end of a step the next one is not decided.
            let scheduled = u64::from(is_async) + u64::from(quarter % 4 > 0);
            let stored = (100 + made - 1 + scheduled).min(109);
            assert_eq!(load.kv_used, stored, "{is_async} {asked} {quarter}");
        }
        let mut left = replica();
        left.advance_to(us(5300), &mut ()).unwrap();
        left.cancel(0);
        left.finish(&mut ()).unwrap();
        let mut over = Vec::new();
        left.take_over(&mut over);
        assert_eq!((over[0].at, over[0].progress.output_tokens), (us(6000), 4));
    }
}

/// One slot and one place in the queue: of three requests of 10 tokens, each of one step of 10 ms,
/// that come 1 ms apart, the third is refused. With 19 tokens that may wait, and with two permits, it
/// is so too; one that vLLM refuses itself is told so.
#[test]
fn a_gateway_refuses_before_vllm_does() {
    let ms = |n: u64| Ticks::from_nanoseconds(n * 1_000_000);
    let row = |id: u64, input| WorkloadRequest::new(id, ms(id), input, 1);
    let workload = Workload::new(vec![row(0, 10), row(1, 10), row(2, 10), row(3, 300)]).unwrap();
    let step_time: sched_sim::Affine = "base=10ms".parse().unwrap();
    let refused = |settings: ServerSettings| {
        let mut config = VllmConfig::new(40, MODEL_LEN);
        config.max_num_seqs = 1;
        config.enable_chunked_prefill = true;
        let vllm = VllmV1Run::new(config);
        let limits = (settings, RunLimits::default());
        let result = both(&workload, &vllm, &step_time, limits).unwrap().0.unwrap();
        let reasons = result.details().iter().filter_map(|d| Some((d.position, d.rejected?)));
        reasons.map(|(i, why)| format!("{i}: {}", why.reason())).collect::<Vec<_>>().join("\n")
    };
    let mut settings = ServerSettings::default();
    settings.max_waiting = Some(1);
    insta::assert_snapshot!(refused(settings), @"
    2: requests waiting are 1, at most 1 may
    3: the prompt must be shorter than max_model_len, which is 240, to leave room for one token of the answer; got 300 tokens
    ");
    settings.max_waiting = None;
    settings.max_waiting_tokens = Some(19);
    insta::assert_snapshot!(refused(settings), @"
    2: 20 tokens would wait for prefill, and at most 19 may
    3: the prompt must be shorter than max_model_len, which is 240, to leave room for one token of the answer; got 300 tokens
    ");
    settings.max_waiting_tokens = None;
    settings.bucket = Some("1/min,burst=2".parse().unwrap());
    insta::assert_snapshot!(refused(settings), @"
    2: the token bucket has no permit
    3: the prompt must be shorter than max_model_len, which is 240, to leave room for one token of the answer; got 300 tokens
    ");
}
