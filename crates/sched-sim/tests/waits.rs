//! What the wait for admission was for: by hand, and step by step.
//!
//! By hand two requests, `base=1ms, prefill=10us/token`. `b` comes at 0.5 ms, in the first step of
//! `a`, whose rest it waits for first; what it waits for then is the rule's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::cell::Cell;

use common::{Budget, booked, jobs, lines, make, policy, settings, workload};
use proptest::prelude::*;
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::ledger::{Account, Ledger, Steps};
use sched_sim::server::{Books, run_stream};
use sched_sim::vllm_v1::{QueuePolicy, VllmConfig, VllmReplica};
use sched_sim::{
    Affine, DecodeFirst, Held, KvPool, Observer, Orca, Policy, PrefillFirst, Replica, Sarathi,
    Server, ServerSettings, SgLang, SimError, StaticBatch, StepTime, Stretch, Ticks, Workload,
    WorkloadRequest,
};

fn step_time() -> Affine {
    "base=1ms,prefill=10us/token".parse().unwrap()
}

/// The accounts of requests that come at so many microseconds with these tokens.
fn accounts(rows: &[(u64, u64, u64)], server: impl Server) -> String {
    let names = ["a", "b", "c"];
    let request = |(&(at, input, output), name): (&(u64, u64, u64), &str)| {
        WorkloadRequest::new(name, Ticks::from_nanoseconds(at * 1000), input, output)
    };
    let workload = Workload::new(rows.iter().zip(names).map(request).collect()).unwrap();
    let (steps, result) = booked(&workload, server);
    let ledger = Ledger::new(&result, &steps, &step_time()).unwrap();
    lines(&ledger, &workload)
}

/// A server with an unbounded KV cache, or with so many blocks of so many tokens.
fn server(policy: impl Policy + 'static, kv: Option<(u64, u64)>) -> impl Server {
    let mut settings = ServerSettings::default();
    settings.kv = kv.map(|(blocks, size)| KvPool::new(blocks, size).unwrap());
    Replica::new(policy, step_time()).settings(settings)
}

fn vllm(change: impl Fn(&mut VllmConfig)) -> impl Server {
    let mut config = VllmConfig::new(16, 240);
    config.max_num_seqs = 8;
    config.async_scheduling = Some(false);
    config.enable_prefix_caching = false;
    change(&mut config);
    VllmReplica::new(config, step_time()).unwrap()
}

/// One slot. `a`: prompt 2 ms, then tokens of 1 ms: three under decode-first, to 5; two after the one
/// of its prompt under vLLM, to 4.
#[test]
fn a_full_batch() {
    let rows = [(0, 100, 3), (500, 100, 1)];
    insta::assert_snapshot!(accounts(&rows, server(DecodeFirst::new(1, 512).unwrap(), None)), @r"
    a: own_prefill 2.0, first_decode 1.0, own_decode 2.0
    b: waiting_step 1.5, waiting_slots 3.0, own_prefill 2.0, first_decode 1.0
    ");
    insta::assert_snapshot!(accounts(&rows, vllm(|c| c.max_num_seqs = 1)), @r"
    a: own_prefill 2.0, own_decode 2.0
    b: waiting_step 1.5, waiting_slots 2.0, own_prefill 2.0
    ");
}

/// A static batch takes nobody in before all of it has ended, at 2 + 2 ms, with seven slots free.
#[test]
fn a_closed_batch() {
    let rows = [(0, 100, 3), (500, 100, 1)];
    insta::assert_snapshot!(accounts(&rows, server(StaticBatch::new(8).unwrap(), None)), @r"
    a: own_prefill 2.0, own_decode 2.0
    b: waiting_step 1.5, waiting_slots 2.0, own_prefill 2.0
    ");
}

/// Two replicas with a slot each behind one queue: `a` ends at 2 + 2 ms, `b` at 3 + 3, and `c` goes
/// where `a` was.
#[test]
fn no_free_replica() {
    let one = |_| Replica::new(DecodeFirst::new(1, 512).unwrap(), step_time());
    let fleet = Fleet::new((0..2).map(one).collect(), RouterKind::CentralQueue, 7).unwrap();
    insta::assert_snapshot!(accounts(&[(0, 100, 2), (0, 200, 3), (500, 100, 1)], fleet), @r"
    a: own_prefill 2.0, first_decode 1.0, own_decode 1.0
    b: own_prefill 3.0, first_decode 1.0, own_decode 2.0
    c: waiting_step 1.5, waiting_slots 2.0, own_prefill 2.0, first_decode 1.0
    ");
}

/// 15 blocks of 10 tokens. Under decode-first and prefill-first the prompt of `a` has 10 of them up
/// to its end, at 2 + 3 and 2 + 2 ms, and that of `b` needs 10.
#[test]
fn blocks_of_the_prompt() {
    let (rows, kv) = ([(0, 100, 3), (500, 100, 1)], Some((15, 10)));
    insta::assert_snapshot!(accounts(&rows, server(DecodeFirst::new(8, 512).unwrap(), kv)), @r"
    a: own_prefill 2.0, first_decode 1.0, own_decode 2.0
    b: waiting_step 1.5, waiting_blocks 3.0, own_prefill 2.0, first_decode 1.0
    ");
    insta::assert_snapshot!(accounts(&rows, server(PrefillFirst::new(8, 512).unwrap(), kv)), @r"
    a: own_prefill 2.0, own_decode 2.0
    b: waiting_step 1.5, waiting_blocks 2.0, own_prefill 2.0
    ");
    insta::assert_snapshot!(accounts(&rows, server(Sarathi::new(8, 512).unwrap(), kv)), @r"
    a: own_prefill 2.0, own_decode 2.0
    b: waiting_step 1.5, waiting_blocks 2.0, own_prefill 2.0
    ");
}

/// 15 blocks of 10 tokens. `a` uses 4 of them at first and has reserved the 10 of its last token: 1.4
/// ms for its prompt and its first token, 59 more of 1 ms. `b` needs 6.
#[test]
fn blocks_of_the_longest_answer() {
    let orca = server(Orca::new(8).unwrap(), Some((15, 10)));
    insta::assert_snapshot!(accounts(&[(0, 40, 60), (500, 40, 20)], orca), @r"
    a: own_prefill 1.4, own_decode 59.0
    b: waiting_step 0.9, waiting_blocks 59.0, own_prefill 1.4, own_decode 19.0
    ");
}

/// 300 blocks of a token. With the prompt of `a` 200 are free, of which it is expected to need 0.7 of
/// its other 49 tokens. `b` needs more than the 165 that are left: 100, 100 of its answer, and a page.
#[test]
fn blocks_by_prediction() {
    let sglang = server(SgLang::new(8, 512).unwrap(), Some((300, 1)));
    insta::assert_snapshot!(accounts(&[(0, 100, 50), (500, 100, 100)], sglang), @r"
    a: own_prefill 2.0, own_decode 49.0
    b: waiting_step 1.5, waiting_blocks 49.0, own_prefill 2.0, own_decode 99.0
    ");
}

/// 15 usable blocks of 16 tokens: `a` has 10, and 11 from its first decode on, to 2.6 + 19 ms. `b` can
/// have the 7 of its prompt when it has ended.
#[test]
fn blocks_of_vllm() {
    insta::assert_snapshot!(accounts(&[(0, 160, 20), (500, 100, 1)], vllm(|_| ())), @r"
    a: own_prefill 2.6, own_decode 19.0
    b: waiting_step 2.1, waiting_blocks 19.0, own_prefill 2.0
    ");
}

/// 100 prompt tokens a step. `a` has all of the steps 0–2 and 2–4, and half of that to 6, in which `b`
/// begins; its other half takes 1.5 ms.
#[test]
fn tokens_of_the_steps() {
    let rows = [(0, 250, 1), (500, 100, 1)];
    let each = [
        accounts(&rows, server(Sarathi::new(8, 100).unwrap(), None)),
        accounts(&rows, server(SgLang::new(8, 100).unwrap(), None)),
        accounts(
            &rows,
            vllm(|c| (c.num_blocks, c.max_model_len, c.max_num_batched_tokens) = (32, 300, 100)),
        ),
    ];
    for accounts in each {
        insta::allow_duplicates! {
            insta::assert_snapshot!(accounts, @r"
            a: own_prefill 6.0
            b: waiting_step 1.5, waiting_budget 2.0, own_prefill 3.5
            ");
        }
    }
}

/// At most 100 tokens of whole prompts in a step, which those of `a` and `b` would pass: `b` waits for
/// the step of `a`, decided after it came.
#[test]
fn tokens_of_whole_prompts() {
    let rows = [(0, 60, 1), (0, 60, 1)];
    insta::assert_snapshot!(accounts(&rows, server(PrefillFirst::new(8, 100).unwrap(), None)), @r"
    a: own_prefill 1.6
    b: waiting_budget 1.6, own_prefill 1.6
    ");
    let whole = |c: &mut VllmConfig| {
        (c.enable_chunked_prefill, c.max_num_batched_tokens, c.max_model_len) = (false, 100, 100);
    };
    insta::assert_snapshot!(accounts(&rows, vllm(whole)), @r"
    a: own_prefill 1.6
    b: waiting_budget 1.6, own_prefill 1.6
    ");
}

/// `prefill_schedule_interval` 3: after the step of the prompt of `a`, 0–1.2, two only decode.
#[test]
fn steps_that_hold_prompts() {
    let hold = vllm(|c| c.prefill_schedule_interval = 3);
    insta::assert_snapshot!(accounts(&[(0, 20, 6), (500, 60, 1)], hold), @r"
    a: own_prefill 1.2, own_decode 5.0, interference 0.6
    b: waiting_step 0.7, waiting_budget 2.0, own_prefill 1.6
    ");
}

/// Async: at 0 the steps 0–2 and 2–3 are scheduled, before `b` comes, and it is in the one after them.
#[test]
fn steps_that_were_scheduled_ahead() {
    let ahead = vllm(|c| c.async_scheduling = Some(true));
    insta::assert_snapshot!(accounts(&[(0, 100, 5), (500, 60, 1)], ahead), @r"
    a: own_prefill 2.0, own_decode 4.0, interference 0.6
    b: waiting_step 2.5, own_prefill 1.6
    ");
}

/// The steps of each server, one by one.
#[derive(Default)]
struct Single {
    servers: Vec<Vec<(Ticks, Ticks, Option<Held>)>>,
    server: usize,
}

impl Observer for Single {
    fn server(&mut self, server: usize) {
        self.server = server;
    }

    fn stretch(&mut self, s: &Stretch) {
        assert_eq!(s.steps, 1);
        if self.servers.len() <= self.server {
            self.servers.resize_with(self.server + 1, Vec::new);
        }
        self.servers[self.server].push((s.start, s.end, s.held));
    }
}

const WAITS: [Account; 4] =
    [Account::WaitStep, Account::WaitSlots, Account::WaitBlocks, Account::WaitBudget];

/// The wait between two instants, step by step.
fn waits(steps: &[(Ticks, Ticks, Option<Held>)], arrival: Ticks, scheduled: Ticks) -> [i128; 4] {
    let mut waits = [0; 4];
    let span = |from: Ticks, to: Ticks| (to.attoseconds() - from.attoseconds()).cast_signed();
    for &(start, end, held) in steps {
        let (from, to) = (start.max(arrival), end.min(scheduled));
        if from < to {
            let which = match held {
                Some(_) if start < arrival => 0,
                None => 0,
                Some(Held::Slots) => 1,
                Some(Held::Blocks) => 2,
                Some(held) => {
                    assert_eq!(held, Held::Budget);
                    3
                }
            };
            waits[which] += span(from, to);
        }
    }
    // No rule here leaves anybody waiting while nothing runs.
    assert_eq!(waits.iter().sum::<i128>(), span(arrival, scheduled));
    waits
}

/// The ledger of a server that skips is that of one that runs every step, and tells the waits apart as
/// these steps do; how much of each there was.
fn split(
    workload: &Workload,
    mut skipping: impl Server,
    mut plain: impl Server,
    step_time: &impl StepTime,
) -> sched_sim::Result<[i128; 4]> {
    let (mut skipped, mut single) = (Steps::default(), (Steps::default(), Single::default()));
    let [mut first, mut second] = [(); 2].map(|()| Books::new(workload, false));
    let end = run_stream(&mut skipping, jobs(workload, None), &mut skipped, |o| first.take(o))?;
    let result = first.close(&skipping, end);
    let end = run_stream(&mut plain, jobs(workload, None), &mut single, |o| second.take(o))?;
    assert_eq!(result, second.close(&plain, end));
    let ledger = Ledger::new(&result, &skipped, step_time)?;
    assert_eq!(ledger, Ledger::new(&result, &single.0, step_time)?);
    let mut all = [0; 4];
    for row in ledger.rows() {
        let server = result.servers().get(row.position).copied().unwrap_or_default();
        let arrival = workload.requests()[row.position].arrival;
        let scheduled = result.records()[row.position].scheduled().unwrap();
        let by_hand = waits(&single.1.servers[server], arrival, scheduled);
        assert_eq!(WAITS.map(|a| row.ttft.attoseconds(a)), by_hand, "{row:?}");
        for (all, one) in all.iter_mut().zip(by_hand) {
            *all += one;
        }
    }
    Ok(all)
}

/// Runs `cases` of `inputs`, in which each kind of wait has to be met.
fn met<S: Strategy>(cases: u32, inputs: &S, one: impl Fn(S::Value) -> [i128; 4]) {
    let all = Cell::new([0; 4]);
    proptest!(ProptestConfig::with_cases(cases), |(input in inputs)| {
        let one = one(input);
        let sum = all.get();
        all.set(std::array::from_fn(|i| sum[i] + one[i]));
    });
    assert!(all.get().iter().all(|wait| 0 < *wait), "{:?}", all.get());
}

/// Under every policy, memory and order, on one server and behind every router.
#[test]
fn the_wait_is_told_apart_step_by_step() {
    let routers = prop::sample::select(RouterKind::ALL.to_vec());
    let inputs = (workload(), policy(), settings(), common::step_time(), routers, 1_usize..4);
    met(600, &inputs, |(workload, policy, settings, step_time, router, replicas)| {
        let fleet = |reference| {
            let new = if reference { Replica::reference } else { Replica::new };
            let one = |_| new(make(policy), step_time).settings(settings);
            Fleet::new((0..replicas).map(one).collect(), router, 7).unwrap()
        };
        let pair = (fleet(false), fleet(true));
        split(&workload, pair.0, pair.1, &step_time).unwrap()
    });
}

/// Under a policy that says nothing of why it stops: only slots and tokens are short.
#[test]
fn a_policy_need_not_say_why() {
    let inputs = (workload(), 1_u64..12, 1_u64..60, common::step_time());
    proptest!(|((workload, max_num_seqs, tokens, step_time) in inputs)| {
        let policy = Budget { max_num_seqs, tokens };
        let skipping = Replica::new(policy.clone(), step_time);
        let plain = Replica::reference(policy, step_time);
        split(&workload, skipping, plain, &step_time).unwrap();
    });
}

/// Under vLLM's scheduler: sync and async, whole prompts and chunks, with intervals, thresholds and
/// priorities.
#[test]
fn the_wait_is_told_apart_under_vllm_v1() {
    let switches = any::<(bool, bool, bool, bool)>();
    let limits = (14_u64..60, 1_u64..12, 0_u64..200, 1_u64..4, 0_u64..40);
    let inputs = (workload(), limits, switches, common::step_time());
    met(600, &inputs, |(workload, limits, switches, step_time)| {
        let (blocks, seqs, budget, interval, threshold) = limits;
        let (is_async, caching, chunked, priority) = switches;
        let mut config = VllmConfig::new(blocks + 2, 220);
        config.max_num_seqs = seqs;
        config.max_num_batched_tokens = if chunked { seqs + budget } else { 220 + budget };
        config.enable_chunked_prefill = chunked;
        config.async_scheduling = Some(is_async);
        config.enable_prefix_caching = caching;
        config.prefill_schedule_interval = interval;
        config.long_prefill_token_threshold = if chunked { threshold } else { 0 };
        config.policy = if priority { QueuePolicy::Priority } else { QueuePolicy::Fcfs };
        let replica = || VllmReplica::new(config.clone(), step_time);
        let (Ok(skipping), Ok(plain)) = (replica(), replica()) else { return [0; 4] };
        match split(&workload, skipping, plain.asked_in_every_step(), &step_time) {
            Err(SimError::NoProgress { .. }) => [0; 4],
            split => split.unwrap(),
        }
    });
}
