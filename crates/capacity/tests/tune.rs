//! A sweep with its short cuts against the same sweep without.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use capacity::tune::{Outcome, Setting, TuneAnswer, TuneRequest, tune};
use sched_sim::Workload;
use sched_sim::workload::chat;

fn vllm(seqs: u64, budget: u64) -> Setting {
    Setting {
        policy: "vllm-v1".to_owned(),
        max_num_seqs: Some(seqs),
        chunk: None,
        engine: vec![("max_num_batched_tokens".to_owned(), budget.to_string())],
        order: None,
    }
}

fn request(settings: Vec<Setting>, slo: &str) -> TuneRequest {
    TuneRequest {
        slo: slo.to_owned(),
        attainment: None,
        step_time: "llama-3.1-8b-h100-sxm".to_owned(),
        settings,
        run_to_the_end: false,
    }
}

fn workload() -> Workload {
    chat(600, 14.0, 3).generate().unwrap()
}

fn run(request: &TuneRequest, workload: &Workload) -> TuneAnswer {
    tune(request, workload, &BTreeMap::new(), &|_, _| {}).unwrap()
}

fn grid() -> Vec<Setting> {
    let seqs = [4, 16, 32, 48, 64, 200, 201, 1024];
    let budgets = [1024, 2048, 8192, 60_000, 100_000];
    seqs.into_iter().flat_map(|n| budgets.map(|b| vllm(n, b))).collect()
}

/// A policy of no engine with a paged KV cache and an order of its queue.
fn sarathi(seqs: u64, blocks: u64, order: Option<&str>) -> Setting {
    Setting {
        policy: "sarathi".to_owned(),
        max_num_seqs: Some(seqs),
        chunk: Some(512),
        engine: vec![("num_kv_blocks".to_owned(), blocks.to_string())],
        order: order.map(str::to_owned),
    }
}

/// A KV cache that holds less holds requests up, and the shortest first are sooner done on average.
#[test]
fn every_policy_has_its_kv_cache_and_order() {
    let workload = workload();
    let settings = vec![
        sarathi(64, 20_000, None),
        sarathi(64, 1_100, None),
        sarathi(64, 1_100, Some("sjf")),
        sarathi(64, 900, None),
        Setting { order: Some("lifo".to_owned()), ..sarathi(64, 20_000, None) },
        Setting { order: Some("sjf".to_owned()), ..vllm(64, 2048) },
    ];
    let mut request = request(settings, "p50(ttft)<10s");
    request.run_to_the_end = true;
    let answer = run(&request, &workload);
    let median = |i: usize| match &answer.settings[i].outcome {
        Outcome::Run { values_s, .. } => values_s[0][0].unwrap(),
        _ => unreachable!("{:?}", answer.settings[i]),
    };
    assert!(median(0) < median(1) && median(2) < median(1), "{answer:?}");
    let said = |i: usize| match &answer.settings[i].outcome {
        Outcome::Refused { reason } => reason.as_str(),
        _ => "",
    };
    assert!(said(3).contains("and the KV cache of a replica holds 14400"), "{}", said(3));
    assert!(said(4).starts_with("order: "), "{}", said(4));
    assert!(said(5).starts_with("order sjf: is not for vllm-v1"), "{}", said(5));
}

/// Who waits for longer than the limit is lost before it is served: at ten times the rate the run is
/// stopped before so many requests are over as may miss.
#[test]
fn who_waits_too_long_is_a_miss_already() {
    let workload = chat(2000, 140.0, 3).generate().unwrap();
    let request = request(vec![vllm(16, 2048)], "p99(ttft)<500ms");
    let answer = run(&request, &workload);
    let Outcome::Stopped { goal: 0, after_requests } = answer.settings[0].outcome else {
        unreachable!("{answer:?}")
    };
    assert!(after_requests <= 20, "{after_requests} of 2000, of which 20 may miss");
}

/// Each setting alone has no other run to stand for it.
#[test]
fn settings_that_share_a_run_are_the_same_run() {
    let workload = workload();
    let all = run(&request(grid(), "p99(ttft)<600ms,tpot<30ms @ 99%"), &workload);
    for (setting, together) in grid().into_iter().zip(&all.settings) {
        let alone = run(&request(vec![setting], "p99(ttft)<600ms,tpot<30ms @ 99%"), &workload);
        assert_eq!(alone.settings[0].outcome, together.outcome, "{:?}", together.setting);
    }
}

/// Who is stopped would have missed the goals at the end too, and nobody else's answer changes.
#[test]
fn stopping_early_changes_no_answer() {
    let workload = workload();
    let early = run(&request(grid(), "p99(ttft)<600ms,tpot<30ms @ 99%"), &workload);
    let mut to_the_end = request(grid(), "p99(ttft)<600ms,tpot<30ms @ 99%");
    to_the_end.run_to_the_end = true;
    let full = run(&to_the_end, &workload);
    assert_eq!(early.best, full.best);
    let mut stopped = 0;
    for (a, b) in early.settings.iter().zip(&full.settings) {
        assert_eq!((a.keeps, a.on_front), (b.keeps, b.on_front), "{:?}", a.setting);
        match &a.outcome {
            Outcome::Stopped { .. } => stopped += 1,
            outcome => assert_eq!(*outcome, b.outcome),
        }
    }
    assert!(0 < stopped && stopped < early.settings.len(), "{stopped}");
    let kept = early.settings.iter().filter(|t| t.keeps).count();
    assert!(0 < kept, "no setting keeps the goals: the test says nothing of the front");
}

/// The outcomes of a search that was broken off give the same answer, and are not told again.
#[test]
fn a_search_goes_on_where_it_was() {
    let workload = workload();
    let request = request(grid(), "p99(ttft)<400ms");
    let told = Mutex::new(BTreeMap::new());
    let note = |i: usize, outcome: &Outcome| {
        told.lock().unwrap().insert(i, outcome.clone());
    };
    let whole = tune(&request, &workload, &BTreeMap::new(), &note).unwrap();
    let mut half = told.into_inner().unwrap();
    assert_eq!(half.len(), whole.settings.len());
    half.retain(|i, _| i % 3 == 0);
    let again = Mutex::new(0);
    let count = |_: usize, _: &Outcome| *again.lock().unwrap() += 1;
    assert_eq!(tune(&request, &workload, &half, &count).unwrap(), whole);
    assert_eq!(half.len() + again.into_inner().unwrap(), whole.settings.len());
}

/// Steps of 10 ms + 100 us a prompt token: while somebody decodes, a step takes no longer than
/// with a full budget of prompt tokens beside it, 10 + 0.1 · 511 = 61.1 ms. A prompt of 1,000
/// takes two steps of up to 512.
#[test]
fn the_longest_step_and_the_steps_of_a_prompt() {
    let mut spec = chat(20, 1.0, 1);
    spec.lengths = sched_sim::workload::Lengths::Independent {
        input: "1000".parse().unwrap(),
        output: "10".parse().unwrap(),
    };
    let mut request = request(vec![vllm(8, 512)], "p99(ttft)<10s");
    request.step_time = "base=10ms,prefill=100us/token".to_owned();
    request.settings[0].engine.push(("num_kv_blocks".to_owned(), "1000".to_owned()));
    let answer = run(&request, &spec.generate().unwrap());
    let t = &answer.settings[0];
    assert!((t.itl_bound_s.unwrap() - 0.0611).abs() < 1e-9, "{t:?}");
    assert_eq!(t.steps_per_prompt, Some(2.0));
    assert_eq!(t.flags.as_deref(), Some("--max-num-seqs 8 --max-num-batched-tokens 512"));
}

#[test]
fn what_cannot_be_tuned_is_refused_or_named() {
    let workload = workload();
    let none = BTreeMap::new();
    let said = |r: &TuneRequest| tune(r, &workload, &none, &|_, _| {}).unwrap_err().to_string();
    assert!(said(&request(Vec::new(), "p99(ttft)<1s")).starts_with("settings: "));
    assert!(said(&request(grid(), "ttft<1s")).starts_with("attainment: "));
    assert!(said(&request(grid(), "ttft<1")).starts_with("slo: "));
    // vLLM does not start with a budget below the batch.
    let answer = run(&request(vec![vllm(512, 256), vllm(64, 2048)], "p99(ttft)<10s"), &workload);
    assert!(matches!(answer.settings[0].outcome, Outcome::Refused { .. }), "{answer:?}");
    assert_eq!(answer.best, Some(1));
}
