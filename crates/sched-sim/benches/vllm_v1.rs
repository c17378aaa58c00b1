//! vLLM's scheduler step by step: the recorded workloads m15 (500 Azure requests, 1,384 steps of
//! 96 requests) and m16 (300 requests in a tight KV cache, two steps in flight).

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::io::Read;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sched_sim::vllm_v1::VllmV1;
use sched_sim::vllm_v1::golden::Workload;

fn workload(name: &str) -> Workload {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/vllm-v1"));
    let bytes = std::fs::read(dir.join(format!("{name}.workload.json.gz"))).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn step_mode(c: &mut Criterion) {
    let mut group = c.benchmark_group("vllm_v1");
    for name in ["m15-azure-conv-sync", "m16-azure-conv-tight-async"] {
        let workload = workload(name);
        let replay = workload.replay();
        group.throughput(Throughput::Elements(replay.requests.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut scheduler = VllmV1::with_any_capacity(workload.config()).unwrap();
                black_box(replay.run(&mut scheduler, &mut ()))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, step_mode);
criterion_main!(benches);
