//! The ledger: every tick of a request has exactly one account.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{
    Budget, Pool, booked, decode_first, jobs, limits, lines, make, policy, pool, settings,
    step_time, transfer, workload,
};
use proptest::prelude::*;
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::ledger::{Account, Ledger, Steps};
use sched_sim::server::{Books, Server, run_stream};
use sched_sim::vllm_v1::{VllmConfig, VllmReplica, VllmV1Run};
use sched_sim::{
    DecodeFirst, Disaggregated, KvPool, Policy, Preemption, PrefillFirst, Replica, RunLimits,
    RunResult, ServerSettings, SimError, Simulation, Stall, Step, StepTime, Ticks, TwoRegime,
    Workload, WorkloadRequest,
};

/// TTFT and E2E of every completed request are the sums of its accounts.
fn adds_up(result: &RunResult<'_>, ledger: &Ledger, workload: &Workload) {
    let mut rows = ledger.rows().iter();
    for (i, (r, record)) in workload.requests().iter().zip(result.records()).enumerate() {
        let Some(last) = record.last_token() else { continue };
        let row = rows.next().unwrap();
        assert_eq!(row.position, i);
        let span = |t: Ticks| t.since(r.arrival).unwrap().attoseconds().cast_signed();
        assert_eq!(row.ttft.total(), span(record.first_token().unwrap()), "{row:?}");
        assert_eq!(row.e2e.total(), span(last), "{row:?}");
        for account in Account::ALL {
            let (ttft, e2e) = (row.ttft.attoseconds(account), row.e2e.attoseconds(account));
            assert!(account == Account::Interference || (0 <= ttft && ttft <= e2e), "{row:?}");
        }
        // A later token is never in TTFT.
        assert_eq!(row.ttft.attoseconds(Account::OwnDecode), 0);
        assert_eq!(row.ttft.attoseconds(Account::Interference), 0);
    }
    assert_eq!(rows.next(), None);
}

/// A form with two regimes, so that the price of a decode depends on who else is in the step.
fn two_regimes() -> impl Strategy<Value = TwoRegime> {
    (1_u64..20, 0_u64..100, 0_u64..2000, 1_u64..20, 0_u64..200, 0_u64..3000).prop_map(
        |(a, c, d, ma, mb, md)| {
            let text = format!(
                "decode:base={a}ms,decode={c}us/request,context={d}ns/token; \
                 mixed:base={ma}ms,prefill={mb}us/token,decode={c}us/request,context={md}ns/token"
            );
            text.parse().unwrap()
        },
    )
}

/// Requests that fit into a small KV cache.
fn short_requests() -> impl Strategy<Value = Workload> {
    let rows = prop::collection::vec((0_u64..60, 1_u64..150, 1_u64..60), 1..24);
    rows.prop_map(|rows| {
        let mut now = 0;
        let requests = rows.iter().enumerate().map(|(i, &(gap, input, output))| {
            now += gap;
            WorkloadRequest::new(i as u64, Ticks::from_nanoseconds(now * 1_000_000), input, output)
        });
        Workload::new(requests.collect()).unwrap()
    })
}

/// vLLM with one, sync or async, with a prefix cache or without.
fn tight_vllm() -> impl Strategy<Value = VllmConfig> {
    let limits = (14_u64..60, 1_u64..12, 0_u64..200);
    (limits, any::<(bool, bool)>()).prop_map(|((blocks, seqs, budget), (is_async, caching))| {
        let mut config = VllmConfig::new(blocks + 2, 220);
        config.max_num_seqs = seqs;
        config.max_num_batched_tokens = seqs + budget;
        config.async_scheduling = Some(is_async);
        config.enable_prefix_caching = caching;
        config
    })
}

/// The ledgers from stretches and from single steps are the same, add up, and have exactly the time
/// between a preemption and its end under [`Account::Preempted`].
fn books_balance(
    result: &RunResult<'_>,
    [skipped, single]: [&Steps; 2],
    step_time: &impl StepTime,
) -> Result<(), TestCaseError> {
    let ledger = Ledger::new(result, skipped, step_time).unwrap();
    adds_up(result, &ledger, result.workload());
    prop_assert_eq!(&ledger, &Ledger::new(result, single, step_time).unwrap());
    for row in ledger.rows() {
        let detail = result.details().iter().find(|d| d.position == row.position);
        let stalls = detail.map(|d| d.stalls.as_slice()).unwrap_or_default();
        let out = |s: &Stall| s.readmitted.unwrap().since(s.from).unwrap().attoseconds();
        let stalled = stalls.iter().map(out).sum::<u128>().cast_signed();
        let moved = stalls.iter().map(|s| s.swap_time.attoseconds()).sum::<u128>().cast_signed();
        prop_assert_eq!(row.e2e.attoseconds(Account::Preempted), stalled - moved);
        prop_assert_eq!(row.e2e.attoseconds(Account::Swap), 2 * moved);
        if stalls.is_empty() {
            prop_assert_eq!(row.e2e.attoseconds(Account::Recompute), 0);
        }
    }
    Ok(())
}

/// Runs a fleet, and what its steps were.
fn fleet<S: Server>(
    workload: &Workload,
    router: RouterKind,
    servers: impl Fn() -> Vec<S>,
) -> (Steps, RunResult<'_>) {
    booked(workload, Fleet::new(servers(), router, 7).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Under decode-first, and the same from stretches as from single steps.
    #[test]
    fn it_adds_up_under_decode_first(
        workload in workload(),
        policy in decode_first(),
        affine in step_time(),
        two in prop::option::of(two_regimes()),
        limits in limits(),
    ) {
        let step_time: Box<dyn StepTime> = match two {
            Some(two) => Box::new(two),
            None => Box::new(affine),
        };
        let simulation = || Simulation::new(&workload, policy, &step_time).limits(limits);
        let (mut skipped, mut single) = (Steps::default(), Steps::default());
        let result = simulation().run_observed(&mut skipped).unwrap();
        simulation().run_reference_observed(&mut single).unwrap();
        let ledger = Ledger::new(&result, &skipped, &step_time).unwrap();
        adds_up(&result, &ledger, &workload);
        prop_assert_eq!(&ledger, &Ledger::new(&result, &single, &step_time).unwrap());
    }

    /// Under every policy, memory and order: preempted, recomputed and held back; and the same from
    /// stretches as from single steps.
    #[test]
    fn it_adds_up_under_every_policy(
        workload in workload(),
        policy in policy(),
        settings in settings(),
        affine in step_time(),
        two in prop::option::of(two_regimes()),
        limits in limits(),
        patience in prop::option::weighted(0.2, 0_u64..20_000_000_000),
    ) {
        let step_time: Box<dyn StepTime> = match two {
            Some(two) => Box::new(two),
            None => Box::new(affine),
        };
        let simulation = || {
            let run = Simulation::new(&workload, make(policy), &step_time).limits(limits);
            let run = run.settings(settings);
            match patience {
                Some(ns) => run.patience(Ticks::from_nanoseconds(ns)),
                None => run,
            }
        };
        let (mut skipped, mut single) = (Steps::default(), Steps::default());
        let result = simulation().run_observed(&mut skipped).unwrap();
        let plain = simulation().run_reference_observed(&mut single).unwrap();
        prop_assert_eq!(&result, &plain);
        books_balance(&result, [&skipped, &single], &step_time)?;
    }

    /// Under a policy that serves some of those at a stage and leaves others out.
    #[test]
    fn it_adds_up_where_single_requests_are_left_out(
        workload in workload(),
        max_num_seqs in 1_u64..12,
        tokens in prop_oneof![1_u64..20, 20_u64..2000],
        step_time in two_regimes(),
        limits in limits(),
    ) {
        let policy = Budget { max_num_seqs, tokens };
        let simulation = || Simulation::new(&workload, policy.clone(), &step_time).limits(limits);
        let (mut skipped, mut single) = (Steps::default(), Steps::default());
        let result = simulation().run_observed(&mut skipped).unwrap();
        let plain = simulation().run_reference_observed(&mut single).unwrap();
        prop_assert_eq!(&result, &plain);
        books_balance(&result, [&skipped, &single], &step_time)?;
    }

    /// In fleets, where each request is booked with the steps of the server that had it.
    #[test]
    fn it_adds_up_in_fleets(
        workload in workload(),
        policy in policy(),
        settings in settings(),
        step_time in two_regimes(),
        router in prop::sample::select(RouterKind::ALL.to_vec()),
        replicas in 1_usize..5,
    ) {
        let (skipped, skipping) = fleet(&workload, router, || (0..replicas).map(|_| {
            Replica::new(make(policy), step_time).settings(settings)
        }).collect());
        let (single, plain) = fleet(&workload, router, || (0..replicas).map(|_| {
            Replica::reference(make(policy), step_time).settings(settings)
        }).collect());
        prop_assert_eq!(&skipping, &plain);
        prop_assert!(skipping.servers().iter().all(|&server| server < replicas));
        books_balance(&skipping, [&skipped, &single], &step_time)?;
    }

    /// In two pools, where the transfer has an account of its own and the decode pool books what
    /// comes after it.
    #[test]
    fn it_adds_up_in_two_pools(
        workload in workload(),
        (prefill, decode) in (pool(), pool()),
        transfer in transfer(),
        step_time in two_regimes(),
    ) {
        let run = |reference| {
            let fleet = |pool: &Pool| pool.fleet(step_time, RunLimits::default(), reference);
            let server = Disaggregated::new(fleet(&prefill), fleet(&decode), transfer);
            booked(&workload, server)
        };
        let ((skipped, skipping), (single, plain)) = (run(false), run(true));
        prop_assert_eq!(&skipping, &plain);
        books_balance(&skipping, [&skipped, &single], &step_time)?;
        let ledger = Ledger::new(&skipping, &skipped, &step_time).unwrap();
        for row in ledger.rows() {
            let r = &workload.requests()[row.position];
            let detail = skipping.details().iter().find(|d| d.position == row.position);
            let moved = detail.and_then(|d| d.transfer);
            let time = moved.map_or(0, |_| transfer.time(r.input_tokens).attoseconds());
            prop_assert_eq!(row.e2e.attoseconds(Account::KvTransfer), time.cast_signed());
            prop_assert_eq!(row.ttft.attoseconds(Account::KvTransfer), 0);
            prop_assert_eq!(moved.is_some(), 1 < r.output_tokens);
        }
    }

    /// Under vLLM's scheduler with a KV cache that runs out, so that requests are preempted and
    /// prompts wait for budget.
    #[test]
    fn it_adds_up_under_vllm_v1(
        workload in short_requests(),
        config in tight_vllm(),
        step_time in two_regimes(),
    ) {
        let vllm = VllmV1Run::new(config);
        let simulation = || Simulation::vllm_v1(&workload, vllm.clone(), step_time);
        let (mut skipped, mut single) = (Steps::default(), Steps::default());
        let result = match simulation().run_observed(&mut skipped) {
            Err(SimError::NoProgress { .. } | SimError::Vllm(_)) => return Ok(()),
            result => result.unwrap(),
        };
        simulation().run_reference_observed(&mut single).unwrap();
        let ledger = Ledger::new(&result, &skipped, &step_time).unwrap();
        adds_up(&result, &ledger, &workload);
        prop_assert_eq!(&ledger, &Ledger::new(&result, &single, &step_time).unwrap());
        for (row, detail) in result.details().iter().filter_map(|d| {
            ledger.rows().iter().find(|row| row.position == d.position).map(|row| (row, d))
        }) {
            let stalled: u128 = detail
                .stalls
                .iter()
                .map(|s| s.readmitted.unwrap().since(s.from).unwrap().attoseconds())
                .sum();
            prop_assert_eq!(row.e2e.attoseconds(Account::Preempted), stalled.cast_signed());
        }
    }
}

/// In two pools of vLLM, skipping and asked in every step, all of this holds as well.
#[test]
fn it_adds_up_in_two_pools_of_vllm() {
    let inputs = (short_requests(), tight_vllm(), tight_vllm(), transfer(), two_regimes());
    let config = ProptestConfig::with_cases(300);
    let preemptions = std::cell::Cell::new(0);
    proptest!(config, |((workload, prefill, decode, transfer, step_time) in inputs)| {
        let run = |asked: bool| -> sched_sim::Result<_> {
            let one = |config: &VllmConfig| -> sched_sim::Result<_> {
                let replica = VllmReplica::new(config.clone(), step_time)?;
                Ok(if asked { replica.asked_in_every_step() } else { replica })
            };
            let mut server = Disaggregated::new(one(&prefill)?, one(&decode)?, transfer);
            let (mut steps, mut books) = (Steps::default(), Books::new(&workload, true));
            let end = run_stream(&mut server, jobs(&workload, None), &mut steps, |o| books.take(o))?;
            let each = server.each();
            Ok((steps, books.close(&server, end), each))
        };
        let (skipped, skipping, each) = match run(false) {
            Err(SimError::NoProgress { .. } | SimError::Vllm(_)) => return Ok(()),
            run => run.unwrap(),
        };
        let (single, plain, _) = run(true).unwrap();
        prop_assert_eq!(&skipping, &plain);
        let s = skipping.statistics();
        prop_assert!(s.conserves_requests() && s.littles_law_holds(), "{:?}", s);
        books_balance(&skipping, [&skipped, &single], &step_time)?;
        preemptions.set(preemptions.get() + each[1].kv.unwrap().preemptions);
    });
    assert!(0 < preemptions.get(), "the decode pool preempts in some of them");
}

/// Two requests of 32 tokens in 4 usable blocks of 16: `b` is preempted when both need a third
/// block, waits for `a`, and is computed again.
///
/// `base=1ms, prefill=10us/token`, sync, no prefix cache. Step 1 (1.64 ms) computes both prompts
/// and gives both first tokens; the prompts fill two blocks each. Step 2 needs two blocks more:
/// `b`, admitted last, goes, with `a` alone in steps of 1 ms until its 5 tokens are there at
/// 1.64 + 4 = 5.64. Then `b` computes 33 known tokens in 1.33 ms, which gives its second token,
/// and the last in 1 ms.
#[test]
fn a_preemption_by_hand() {
    let workload = Workload::new(vec![
        WorkloadRequest::new("a", Ticks::ZERO, 32, 5),
        WorkloadRequest::new("b", Ticks::ZERO, 32, 3),
    ])
    .unwrap();
    let step_time: sched_sim::Affine = "base=1ms,prefill=10us/token".parse().unwrap();
    let mut config = VllmConfig::new(5, 48);
    config.async_scheduling = Some(false);
    config.enable_prefix_caching = false;
    let vllm = VllmV1Run::new(config);
    let mut steps = Steps::default();
    let simulation = Simulation::vllm_v1(&workload, vllm, step_time);
    let result = simulation.run_observed(&mut steps).unwrap();
    let ledger = Ledger::new(&result, &steps, &step_time).unwrap();
    let b = &ledger.rows()[1].e2e;
    let ms = |account| (1e3 * b.seconds(account) * 100.0).round() / 100.0;
    assert!((ms(Account::OwnPrefill) - 1.64).abs() < 1e-9);
    assert!((ms(Account::Preempted) - 4.0).abs() < 1e-9);
    assert!((ms(Account::Recompute) - 1.33).abs() < 1e-9);
    assert!((ms(Account::OwnDecode) - 1.0).abs() < 1e-9);
    assert_eq!(b.attoseconds(Account::Interference), 0);
    assert_eq!(b.dominant(), Account::Preempted);
}

/// Two prompts of 32 tokens and answers of 4 in 5 blocks of 16, `base=10ms, prefill=1ms/token`, and
/// half a millisecond to move the KV of a token.
///
/// | step | starts | what | takes |
/// |---|---|---|---|
/// | 1 | 0 | both prompts | 74 ms |
/// | 2 | 74 | 32 tokens of `b` move out; `a` decodes | 16 + 10 |
/// | 3, 4 | 100 | `a` decodes and is done | 10 each |
/// | 5 | 120 | `b` moves back and decodes | 16 + 10 |
/// | 6, 7 | 146 | `b` decodes and is done | 10 each |
///
/// Of the 46 ms until its return `b` moved for 16, which are interference to `a`.
#[test]
fn a_swap_by_hand() {
    let workload = Workload::new(vec![
        WorkloadRequest::new("a", Ticks::ZERO, 32, 4),
        WorkloadRequest::new("b", Ticks::ZERO, 32, 4),
    ])
    .unwrap();
    let step_time: sched_sim::Affine = "base=10ms,prefill=1ms/token".parse().unwrap();
    let swap = Preemption::Swap { per_token: "500us".parse().unwrap() };
    let policy = PrefillFirst::new(8, 100).unwrap().with_preemption(swap).unwrap();
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(5, 16).unwrap());
    let mut steps = Steps::default();
    let simulation = Simulation::new(&workload, policy, step_time).settings(settings);
    let result = simulation.run_observed(&mut steps).unwrap();
    assert_eq!(result.statistics().kv.unwrap().swapped_tokens, 32);
    let ledger = Ledger::new(&result, &steps, &step_time).unwrap();
    insta::assert_snapshot!(lines(&ledger, &workload), @r"
    a: own_prefill 74.0, own_decode 30.0, interference 16.0
    b: own_prefill 74.0, own_decode 30.0, preempted 30.0, swap 32.0
    ");
}

/// Swaps the first decode out in a decision that serves nobody, and brings it back in the next one,
/// at the same instant.
#[derive(Clone)]
struct ThereAndBack {
    done: bool,
}

impl Policy for ThereAndBack {
    fn name(&self) -> &'static str {
        "there-and-back"
    }

    fn max_num_seqs(&self) -> u64 {
        1
    }

    fn prefill_emits_first_token(&self) -> bool {
        true
    }

    fn preemption(&self) -> Preemption {
        Preemption::Swap { per_token: Ticks::from_nanoseconds(10_000) }
    }

    fn fill(&mut self, step: &mut Step<'_>) -> sched_sim::Result<()> {
        if !self.done
            && step.decoding() > 0
            && let Some(first) = step.running_after(None)
        {
            self.done = true;
            return step.preempt(first);
        }
        step.swap_in();
        if step.running() == 0 { step.admit(100).map(drop) } else { step.decode_all() }
    }
}

/// 2 ms for the prompt of 100 tokens. At 2 ms they move out and back, 1 ms each way, in the step of
/// the second token, which takes 3 ms; the third takes 1. It was never away.
#[test]
fn a_swap_within_an_instant_is_no_time_away() {
    let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 100, 3)]).unwrap();
    let step_time: sched_sim::Affine = "base=1ms,prefill=10us/token".parse().unwrap();
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(200, 1).unwrap());
    let mut steps = Steps::default();
    let simulation = Simulation::new(&workload, ThereAndBack { done: false }, step_time);
    let result = simulation.settings(settings).run_observed(&mut steps).unwrap();
    let ledger = Ledger::new(&result, &steps, &step_time).unwrap();
    adds_up(&result, &ledger, &workload);
    let lines = lines(&ledger, &workload);
    insta::assert_snapshot!(lines, @"a: own_prefill 2.0, own_decode 2.0, swap 2.0");
}

/// The slowest from a percentile on are those from rank ⌈p n⌉ on, counted from 1: of 100 from p55 on
/// 46, of 1,000 from p99.9 on 2. Counted in thousandths, so that nothing is rounded.
#[test]
fn the_share_of_the_slowest_is_exact() {
    for n in [7_u64, 100, 1000] {
        let one =
            |i| WorkloadRequest::new(i, Ticks::from_nanoseconds(10_000_000 * i), 1 + i % 50, 1);
        let workload = Workload::new((0..n).map(one).collect()).unwrap();
        let step_time: sched_sim::Affine = "base=1ms,prefill=10us/token".parse().unwrap();
        let mut steps = Steps::default();
        let simulation = Simulation::new(&workload, DecodeFirst::default(), step_time);
        let result = simulation.run_observed(&mut steps).unwrap();
        let ledger = Ledger::new(&result, &steps, &step_time).unwrap();
        for thousandths in 0..1000_u32 {
            let p = f64::from(thousandths) / 10.0;
            let rank = (u64::from(thousandths) * n).div_ceil(1000).max(1);
            let tail = ledger.tail_by_e2e(p).unwrap();
            assert_eq!(tail.requests as u64, n - rank + 1, "p{p} of {n}");
        }
    }
}

/// `prefill_schedule_interval` 3: while `a` decodes, prompts run in every third step only.
///
/// `base=1ms, prefill=10us/token`, sync, 24 tokens a step. Step 1 computes all 20 tokens of `a` and
/// 4 of the 60 of `b` (1.24 ms); steps 2 and 3 hold `b` back (1 ms each); step 4 computes 23 of it
/// beside the decode (1.23); 5 and 6 hold it back, and give `a` its last token; then `b` is alone
/// with 24 (1.24) and 9 (1.09).
#[test]
fn a_prompt_that_a_step_leaves_out_is_held_back() {
    let workload = Workload::new(vec![
        WorkloadRequest::new("a", Ticks::ZERO, 20, 6),
        WorkloadRequest::new("b", Ticks::ZERO, 60, 1),
    ])
    .unwrap();
    let step_time: sched_sim::Affine = "base=1ms,prefill=10us/token".parse().unwrap();
    let mut config = VllmConfig::new(101, 80);
    config.async_scheduling = Some(false);
    config.max_num_batched_tokens = 24;
    config.max_num_seqs = 8;
    config.prefill_schedule_interval = 3;
    let mut steps = Steps::default();
    let simulation = Simulation::vllm_v1(&workload, VllmV1Run::new(config), step_time);
    let result = simulation.run_observed(&mut steps).unwrap();
    let ledger = Ledger::new(&result, &steps, &step_time).unwrap();
    adds_up(&result, &ledger, &workload);
    let b = &ledger.rows()[1].ttft;
    let us = |account| (b.attoseconds(account) / 1_000_000_000_000, account);
    assert_eq!(us(Account::HeldBack), (4000, Account::HeldBack));
    assert_eq!(us(Account::OwnPrefill), (4800, Account::OwnPrefill));
}

/// Steps of another run are refused, not booked wrongly.
#[test]
fn steps_of_another_run_are_refused() {
    let workload =
        |tokens| Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, tokens, 5)]).unwrap();
    let step_time: sched_sim::Affine = "base=1ms,prefill=10us/token".parse().unwrap();
    let (a, b) = (workload(100), workload(130));
    let policy = DecodeFirst::new(1, 512).unwrap();
    let result = Simulation::new(&a, policy, step_time).run().unwrap();
    let mut steps = Steps::default();
    Simulation::new(&b, policy, step_time).run_observed(&mut steps).unwrap();
    let error = Ledger::new(&result, &steps, &step_time).unwrap_err();
    insta::assert_snapshot!(
        error,
        @"the steps given to the ledger are not those in which request a got its tokens"
    );
}

/// Two slots, chunks of 100, `base=1ms, prefill=10us/token, decode=100us/request`.
///
/// | step | starts | what | takes |
/// |---|---|---|---|
/// | 1 | 0 | `a` 100 | 2 ms |
/// | 2 | 2 | `a` decodes (first token), `b` 100 of 200 | 2.1 |
/// | 3 | 4.1 | `a` decodes, `b` the rest | 2.1 |
/// | 4 | 6.2 | `a` decodes and is done, `b` decodes (first and only token) | 1.2 |
/// | 5 | 7.4 | `c` 100 | 2 |
/// | 6 | 9.4 | `c` decodes | 1.1 |
///
/// `a`: 2 own prefill, 2.1 first decode, then 2.1 + 1.2 of which 2 · 1.1 would be its own.
/// `b`: comes at 1 ms and is admitted at 2; 4.2 own prefill, 1.2 first decode.
/// `c`: comes at 3 ms in the step to 4.1, and is admitted when both slots are free, at 7.4.
#[test]
fn a_ledger_by_hand() {
    let at = |ms: u64| Ticks::from_nanoseconds(ms * 1_000_000);
    let workload = Workload::new(vec![
        WorkloadRequest::new("a", at(0), 100, 3),
        WorkloadRequest::new("b", at(1), 200, 1),
        WorkloadRequest::new("c", at(3), 100, 1),
    ])
    .unwrap();
    let step_time: sched_sim::Affine =
        "base=1ms,prefill=10us/token,decode=100us/request".parse().unwrap();
    let mut steps = Steps::default();
    let policy = DecodeFirst::new(2, 100).unwrap();
    let result = Simulation::new(&workload, policy, step_time).run_observed(&mut steps).unwrap();
    let ledger = Ledger::new(&result, &steps, &step_time).unwrap();
    insta::assert_snapshot!(lines(&ledger, &workload), @r"
    a: own_prefill 2.0, first_decode 2.1, own_decode 2.2, interference 1.1
    b: waiting_step 1.0, own_prefill 4.2, first_decode 1.2
    c: waiting_step 1.1, waiting_slots 3.3, own_prefill 2.0, first_decode 1.1
    ");
    // The slowest of three by TTFT is `c` with 7.5 ms, 3.3 of them for want of a slot.
    let tail = ledger.tail_by_ttft(99.0).unwrap();
    assert_eq!((tail.requests, tail.accounts.dominant()), (1, Account::WaitSlots));
    assert!((tail.accounts.share(Account::WaitSlots).unwrap() - 3.3 / 7.5).abs() < 1e-12);
    assert!(ledger.tail_by_ttft(100.0).is_none());
}
