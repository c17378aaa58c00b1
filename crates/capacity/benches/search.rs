//! A sweep of settings: one that a server keeps up with, where most settings share a run, and one in
//! overload, where most are stopped early.

#![allow(missing_docs, clippy::unwrap_used, reason = "it is a benchmark")]

use std::collections::BTreeMap;
use std::hint::black_box;

use capacity::tune::{Setting, TuneRequest, tune};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sched_sim::workload::chat;

/// Twenty batch limits by fifteen token budgets.
fn grid() -> Vec<Setting> {
    let seqs = (1..=20).map(|i| 16 * i);
    let budget = |i: u64| vec![("max_num_batched_tokens".to_owned(), (1024 * i).to_string())];
    let settings = seqs.flat_map(|n| {
        (1..=15).map(move |i| Setting {
            policy: "vllm-v1".to_owned(),
            max_num_seqs: Some(n),
            chunk: None,
            engine: budget(i),
            order: None,
        })
    });
    settings.collect()
}

fn search(c: &mut Criterion) {
    let request = TuneRequest {
        slo: "p99(ttft)<600ms,tpot<30ms @ 99%".to_owned(),
        attainment: None,
        step_time: "llama-3.1-8b-h100-sxm".to_owned(),
        settings: grid(),
        run_to_the_end: false,
    };
    let mut group = c.benchmark_group("search");
    group.sample_size(10);
    for (name, rate) in [("in time", 8.0), ("near the limit", 16.0), ("overload", 100.0)] {
        let workload = chat(1000, rate, 1).generate().unwrap();
        group.bench_function(BenchmarkId::new("300 settings", name), |b| {
            b.iter(|| tune(black_box(&request), &workload, &BTreeMap::new(), &|_, _| {}).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, search);
criterion_main!(benches);
