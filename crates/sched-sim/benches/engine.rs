//! Time per event of the skipping engine and per request-step of the plain one.
//!
//! The workload is the Azure 2023 conversation trace (`GOODPUT_DATA`, by default the folder
//! `shared/data` beside the repository) if it is there, and always a synthetic one of like size:
//! 19,366 requests in an hour. `x16` has answers and arrival gaps 16 times as long: the same
//! number of events, 16 times the steps.
//!
//! The table before the criterion runs takes the median of alternating runs, so that a change in
//! the machine's speed moves both sides of a ratio.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, missing_docs)]
#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use criterion::Criterion;
use sched_sim::{
    Affine, DecodeFirst, KvPool, RunStatistics, Sarathi, ServerSettings, Simulation, Ticks,
    Workload, WorkloadRequest,
};

fn step_time() -> Affine {
    "base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token".parse().unwrap()
}

fn policy() -> DecodeFirst {
    DecodeFirst::new(64, 512).unwrap()
}

fn simulation(workload: &Workload) -> Simulation<'_, DecodeFirst, Affine> {
    Simulation::new(workload, policy(), step_time())
}

/// Sarathi with so little KV memory that requests are preempted.
fn tight(workload: &Workload) -> Simulation<'_, Sarathi, Affine> {
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(4000, 16).unwrap());
    let policy = Sarathi::new(256, 512).unwrap();
    Simulation::new(workload, policy, step_time()).settings(settings)
}

/// The trace, if it is there; only as much of CSV as this file needs.
fn azure() -> Option<Workload> {
    let data = std::env::var_os("GOODPUT_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = data.join("traces/azure2023/AzureLLMInferenceTrace_conv.csv");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) => {
            println!("skipped the Azure trace: {}: {e} (set GOODPUT_DATA)", path.display());
            return None;
        }
    };
    let mut start = None;
    let requests = text.lines().skip(1).enumerate().map(|(i, line)| {
        let (stamp, tokens) = line.split_once(',').unwrap();
        let (input, output) = tokens.split_once(',').unwrap();
        // All stamps are of one day: `2023-11-16 18:15:46.6805900`.
        let clock: Vec<&str> = stamp.split_once(' ').unwrap().1.split(':').collect();
        let minutes = clock[0].parse::<u64>().unwrap() * 60 + clock[1].parse::<u64>().unwrap();
        let seconds = Ticks::from_decimal_seconds(clock[2]).unwrap();
        let at = Ticks::from_nanoseconds(minutes * 60_000_000_000).after(seconds);
        let arrival = at.since(*start.get_or_insert(at)).unwrap();
        WorkloadRequest::new(
            i as u64,
            arrival,
            input.parse().unwrap(),
            output.trim_end().parse().unwrap(),
        )
    });
    Some(Workload::new(requests.collect()).unwrap())
}

/// As many requests in as long a time with lengths of the same means, from a tiny generator.
fn synthetic() -> Workload {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |mean: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Uniform on 1 to twice the mean.
        1 + (state >> 33) % (2 * mean)
    };
    let mut now = 0;
    let requests = (0..19_366).map(|i| {
        now += next(181_000);
        WorkloadRequest::new(i, Ticks::from_nanoseconds(now * 1000), next(1155), next(211))
    });
    Workload::new(requests.collect()).unwrap()
}

/// Answers and arrival gaps `factor` times as long.
fn stretched(workload: &Workload, factor: u64) -> Workload {
    let requests = workload.requests().iter().map(|r| {
        let arrival = r.arrival.attoseconds() * u128::from(factor);
        WorkloadRequest::new(
            r.id.clone(),
            Ticks::from_attoseconds(arrival),
            r.input_tokens,
            r.output_tokens * factor,
        )
    });
    Workload::new(requests.collect()).unwrap()
}

fn time(run: impl FnOnce() -> RunStatistics) -> (Duration, RunStatistics) {
    let start = Instant::now();
    let statistics = black_box(run());
    (start.elapsed(), statistics)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

/// Medians of alternating runs, and the ratios that the design promises.
fn table(name: &str, workload: &Workload) {
    let long = stretched(workload, 16);
    let (mut once, mut sixteen, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let (mut short_run, mut long_run) = (RunStatistics::default(), RunStatistics::default());
    for round in 0..41 {
        let (t, s) = time(|| *simulation(workload).run().unwrap().statistics());
        once.push(t);
        short_run = s;
        let (t, s) = time(|| *simulation(&long).run().unwrap().statistics());
        sixteen.push(t);
        long_run = s;
        if round % 4 == 0 {
            let (t, s) = time(|| *simulation(workload).run_reference().unwrap().statistics());
            plain.push(t);
            assert_eq!(s, short_run, "the engines disagree");
        }
    }
    let (once, sixteen, plain) = (median(once), median(sixteen), median(plain));
    let per_event = once / short_run.event_steps as f64;
    let per_event_long = sixteen / long_run.event_steps as f64;
    let request_steps = short_run.served_steps as f64;
    println!("{name}: {} requests, medians", workload.len());
    for (what, time, s, each) in [
        ("skipping x1", once, short_run, format!("{:.1} ns per event step", per_event * 1e9)),
        (
            "skipping x16",
            sixteen,
            long_run,
            format!("{:.1} ns per event step", per_event_long * 1e9),
        ),
        (
            "reference x1",
            plain,
            short_run,
            format!("{:.2} ns per request-step", plain / request_steps * 1e9),
        ),
    ] {
        println!(
            "  {what:<13} {:>8.2} ms  {:>9} steps, {:>6} with an event  {each}",
            time * 1e3,
            s.steps,
            s.event_steps
        );
    }
    println!(
        "  per event step, x16 to x1: {:.2} (promised: at most 1.3)",
        per_event_long / per_event
    );
    println!("  reference to skipping, x1: {:.2}", plain / once);
    let mut times = Vec::new();
    let mut run = RunStatistics::default();
    for _ in 0..21 {
        let (t, s) = time(|| *tight(workload).run().unwrap().statistics());
        times.push(t);
        run = s;
    }
    let kv = run.kv.unwrap();
    println!(
        "  sarathi, paged {:>7.2} ms  {:>9} steps, {:>6} with an event; {} preemptions, {:.0} % of \
         the blocks at most",
        median(times) * 1e3,
        run.steps,
        run.event_steps,
        kv.preemptions,
        100.0 * kv.utilization_max().unwrap_or_default()
    );
}

fn main() {
    let mut workloads = vec![("synthetic", synthetic())];
    workloads.extend(azure().map(|w| ("azure-conv", w)));
    // Under `cargo test --benches` one run each shows that they work.
    let measured = std::env::args().any(|a| a == "--bench");
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    for (name, workload) in &workloads {
        if measured {
            table(name, workload);
        }
        let long = stretched(workload, 16);
        let mut group = criterion.benchmark_group(*name);
        group.bench_function("skipping-x1", |b| b.iter(|| simulation(workload).run().unwrap()));
        group.bench_function("skipping-x16", |b| b.iter(|| simulation(&long).run().unwrap()));
        group.bench_function("sarathi-paged", |b| b.iter(|| tight(workload).run().unwrap()));
        group.bench_function("reference-x1", |b| {
            b.iter(|| simulation(workload).run_reference().unwrap());
        });
        group.finish();
    }
    criterion.final_summary();
}
