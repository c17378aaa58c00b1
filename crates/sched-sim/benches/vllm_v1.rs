//! vLLM's scheduler step by step: the recorded workloads m15 (500 Azure requests, 1,384 steps of
//! 96 requests) and m16 (300 requests in a tight KV cache, two steps in flight).
//!
//! And on the clock: the Azure 2023 conversation trace (`GOODPUT_DATA`, by default the folder
//! `shared/data` beside the repository), two steps in flight, prefix caching on, with the limits
//! of an API server on an 80 GB GPU; once with plenty of blocks and once with so few that requests
//! are preempted.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sched_sim::vllm_v1::golden::Workload;
use sched_sim::vllm_v1::{Usage, VllmConfig, VllmV1, VllmV1Run};
use sched_sim::{Affine, Simulation, Ticks, WorkloadRequest};

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

/// The trace, if it is there; only as much of CSV as this file needs.
fn azure() -> Option<sched_sim::Workload> {
    let data = std::env::var_os("GOODPUT_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = data.join("traces/azure2023/AzureLLMInferenceTrace_conv.csv");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped the Azure trace: {} is not there (set GOODPUT_DATA)", path.display());
        return None;
    };
    let mut start = None;
    let requests = text.lines().skip(1).enumerate().map(|(i, line)| {
        let mut fields = line.split(',');
        // All stamps are of one day: `2023-11-16 18:15:46.6805900`.
        let stamp = fields.next().unwrap().split_once(' ').unwrap().1;
        let mut tokens = fields.map(|n| n.trim().parse::<u64>().unwrap());
        let clock: Vec<&str> = stamp.split(':').collect();
        let minutes = clock[0].parse::<u64>().unwrap() * 60 + clock[1].parse::<u64>().unwrap();
        let seconds = Ticks::from_decimal_seconds(clock[2]).unwrap();
        let at = Ticks::from_nanoseconds(minutes * 60_000_000_000).after(seconds);
        let arrival = at.since(*start.get_or_insert(at)).unwrap();
        let (input, output) = (tokens.next().unwrap(), tokens.next().unwrap());
        WorkloadRequest::new(i as u64, arrival, input, output)
    });
    Some(sched_sim::Workload::new(requests.collect()).unwrap())
}

fn clock(c: &mut Criterion) {
    let Some(workload) = azure() else { return };
    let step_time: Affine =
        "base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token".parse().unwrap();
    let mut group = c.benchmark_group("vllm_v1_clock");
    group.sample_size(10);
    group.throughput(Throughput::Elements(workload.len() as u64));
    for (name, blocks) in [("azure-conv", 27_000), ("azure-conv-tight", 3000)] {
        let config = VllmConfig::new(blocks, 32_768.min(16 * (blocks - 1)));
        let vllm = VllmV1Run::new(config.with_gpu_defaults(80.0, false, Usage::ApiServer));
        let run = || Simulation::vllm_v1(&workload, vllm.clone(), step_time);
        let result = run().run().unwrap();
        let (s, kv) = (result.statistics(), result.statistics().kv.unwrap());
        println!(
            "{name}: {} completed, {} steps ({} with an event), {} preemptions, {} blocks registered",
            s.completed, s.steps, s.event_steps, kv.preemptions, kv.counters.registered_blocks
        );
        group.bench_function(format!("{name}-skipping"), |b| b.iter(|| run().run().unwrap()));
        group.bench_function(format!("{name}-reference"), |b| {
            b.iter(|| run().run_reference().unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, step_mode, clock);
criterion_main!(benches);
