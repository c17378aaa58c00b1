//! Series and traces of small fleets, by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::server::{Books, Job, Server, run_stream};
use sched_sim::{
    Affine, BatchHistory, DecodeFirst, Disaggregated, KvPool, KvTransfer, Replica, RunResult,
    Sarathi, ServerSettings, Ticks, Workload, WorkloadRequest,
};
use serving_io::chrome_trace::{self, TraceWindow};
use serving_io::series::{self, StepSeries};
use serving_io::servers::Servers;

fn step_time() -> Affine {
    "base=1ms,prefill=10us/token".parse().unwrap()
}

/// Requests of 100 prompt tokens that arrive at once, with so many output tokens.
fn workload(outputs: &[u64]) -> Workload {
    let request = |(i, &n): (usize, &u64)| WorkloadRequest::new(i as u64, Ticks::ZERO, 100, n);
    Workload::new(outputs.iter().enumerate().map(request).collect()).unwrap()
}

/// Runs a server that may have several inside, and watches.
fn run<'w>(
    server: &mut dyn Server,
    workload: &'w Workload,
) -> (RunResult<'w>, BatchHistory, StepSeries) {
    let mut watch = (BatchHistory::new(), StepSeries::default());
    let mut books = Books::new(workload, false);
    let jobs = workload.requests().iter().enumerate().map(|(i, r)| Job::of(i, r));
    let end = run_stream(server, jobs, &mut watch, |over| books.take(over)).unwrap();
    (books.close(server, end), watch.0, watch.1)
}

fn trace(result: &RunResult<'_>, history: &BatchHistory, servers: &Servers) -> String {
    let window = TraceWindow { from: Ticks::ZERO, to: "1s".parse().unwrap() };
    let out = chrome_trace::write(Vec::new(), result, history, servers, window).unwrap();
    let text = String::from_utf8(out).unwrap();
    let events: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut lines = Vec::new();
    for e in events["traceEvents"].as_array().unwrap() {
        let at = (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap());
        let name = e["name"].as_str().unwrap();
        match e["ph"].as_str().unwrap() {
            "M" => lines.push(format!("{at:?} is {}", e["args"]["name"].as_str().unwrap())),
            "X" => lines.push(format!("{at:?} {} us for {} us: {name}", e["ts"], e["dur"])),
            _ => {}
        }
    }
    lines.join("\n")
}

/// A prompt takes 2 ms and a token 1 ms. Server 0 has request 0 until 4 ms and then request 2 until
/// 7 ms; server 1 has request 1 until 3 ms, and then nothing to do. A prompt takes 7 blocks of 16
/// tokens, and has room there for 12 tokens more.
#[test]
fn each_server_of_a_fleet_has_its_own_lines() {
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(20, 16).unwrap());
    let servers = (0..2)
        .map(|_| Replica::new(DecodeFirst::new(1, 512).unwrap(), step_time()).settings(settings));
    let mut fleet = Fleet::new(servers.collect(), RouterKind::RoundRobin, 1).unwrap();
    let workload = workload(&[2, 1, 1]);
    let (result, history, steps) = run(&mut fleet, &workload);
    let names = Servers::fleet(2, RouterKind::RoundRobin);
    let lines = series::write(Vec::new(), &result, &steps, &names).unwrap();
    insta::assert_snapshot!(String::from_utf8(lines).unwrap(), @r#"
    {"schema_version":1,"kind":"goodput-series"}
    {"series":"steps","server":0,"start_s":0.0,"end_s":0.002,"steps":1,"running":1,"decodes":0,"prefills":1,"prefill_tokens":100,"kv_held_tokens_start":0,"kv_held_tokens_end":100,"kv_used_blocks_start":7,"kv_used_blocks_end":7}
    {"series":"steps","server":0,"start_s":0.002,"end_s":0.004,"steps":2,"running":1,"decodes":1,"prefills":0,"prefill_tokens":0,"kv_held_tokens_start":100,"kv_held_tokens_end":102,"kv_used_blocks_start":7,"kv_used_blocks_end":7}
    {"series":"steps","server":0,"start_s":0.004,"end_s":0.006,"steps":1,"running":1,"decodes":0,"prefills":1,"prefill_tokens":100,"kv_held_tokens_start":0,"kv_held_tokens_end":100,"kv_used_blocks_start":7,"kv_used_blocks_end":7}
    {"series":"steps","server":0,"start_s":0.006,"end_s":0.007,"steps":1,"running":1,"decodes":1,"prefills":0,"prefill_tokens":0,"kv_held_tokens_start":100,"kv_held_tokens_end":101,"kv_used_blocks_start":7,"kv_used_blocks_end":7}
    {"series":"steps","server":1,"start_s":0.0,"end_s":0.002,"steps":1,"running":1,"decodes":0,"prefills":1,"prefill_tokens":100,"kv_held_tokens_start":0,"kv_held_tokens_end":100,"kv_used_blocks_start":7,"kv_used_blocks_end":7}
    {"series":"steps","server":1,"start_s":0.002,"end_s":0.003,"steps":1,"running":1,"decodes":1,"prefills":0,"prefill_tokens":0,"kv_held_tokens_start":100,"kv_held_tokens_end":101,"kv_used_blocks_start":7,"kv_used_blocks_end":7}
    {"series":"steps","server":1,"start_s":0.003,"end_s":0.007,"steps":0,"running":0,"decodes":0,"prefills":0,"prefill_tokens":0,"kv_held_tokens_start":0,"kv_held_tokens_end":0}
    {"series":"waiting","server":0,"at_s":0.0,"waiting":1}
    {"series":"waiting","server":0,"at_s":0.004,"waiting":0}
    "#);
    insta::assert_snapshot!(trace(&result, &history, &names), @"
    (1, 0) is server 0 steps
    (2, 0) is server 0 requests
    (1, 0) 0.0 us for 2000.0 us: 1 step: 1 prompt chunk
    (1, 0) 2000.0 us for 2000.0 us: 2 steps: 1 decode
    (1, 0) 4000.0 us for 2000.0 us: 1 step: 1 prompt chunk
    (1, 0) 6000.0 us for 1000.0 us: 1 step: 1 decode
    (3, 0) is server 1 steps
    (4, 0) is server 1 requests
    (3, 0) 0.0 us for 2000.0 us: 1 step: 1 prompt chunk
    (3, 0) 2000.0 us for 1000.0 us: 1 step: 1 decode
    (2, 0) is 0
    (2, 0) 0.0 us for 2000.0 us: prefill
    (2, 0) 2000.0 us for 2000.0 us: decode
    (4, 1) is 1
    (4, 1) 0.0 us for 2000.0 us: prefill
    (4, 1) 2000.0 us for 1000.0 us: decode
    (2, 2) is 2
    (2, 2) 0.0 us for 4000.0 us: waiting
    (2, 2) 4000.0 us for 2000.0 us: prefill
    (2, 2) 6000.0 us for 1000.0 us: decode
    ");
}

/// The same three requests where the router keeps whoever finds no free slot: request 2 waits for
/// server 1, which is free at 3 ms.
#[test]
fn a_router_with_a_queue_has_the_waiting_of_its_own() {
    let servers = (0..2).map(|_| Replica::new(DecodeFirst::new(1, 512).unwrap(), step_time()));
    let mut fleet = Fleet::new(servers.collect(), RouterKind::CentralQueue, 1).unwrap();
    let workload = workload(&[2, 1, 1]);
    let (result, _, _) = run(&mut fleet, &workload);
    let names = Servers::fleet(2, RouterKind::CentralQueue);
    let ms = |(place, at, n): (_, Ticks, u64)| format!("{place:?} {at} {n}");
    let waiting: Vec<String> = series::waiting(&result, &names).into_iter().map(ms).collect();
    insta::assert_snapshot!(waiting.join("\n"), @"
    Pool(0) 0 s 1
    Pool(0) 0.003 s 0
    ");
    assert_eq!((result.server(0), result.server(2)), (Some(0), Some(1)));
}

/// The prompt and its first token take 2 ms in the prefill pool, the transfer 0.5 ms, and the two
/// tokens left 1 ms each in the decode pool.
#[test]
fn a_transfer_is_a_slice_between_two_pools() {
    let pool = || Replica::new(Sarathi::new(8, 512).unwrap(), step_time());
    let transfer = KvTransfer::new("5us".parse().unwrap(), Ticks::ZERO).unwrap();
    let mut server = Disaggregated::new(pool(), pool(), transfer);
    let workload = workload(&[3]);
    let (result, history, steps) = run(&mut server, &workload);
    let names = Servers::pools(1, 1, RouterKind::LeastRequests);
    let lines = series::write(Vec::new(), &result, &steps, &names).unwrap();
    insta::assert_snapshot!(String::from_utf8(lines).unwrap(), @r#"
    {"schema_version":1,"kind":"goodput-series"}
    {"series":"steps","pool":"prefill","server":0,"start_s":0.0,"end_s":0.002,"steps":1,"running":1,"decodes":0,"prefills":1,"prefill_tokens":100,"kv_held_tokens_start":0,"kv_held_tokens_end":100}
    {"series":"steps","pool":"prefill","server":0,"start_s":0.002,"end_s":0.0045,"steps":0,"running":0,"decodes":0,"prefills":0,"prefill_tokens":0,"kv_held_tokens_start":0,"kv_held_tokens_end":0}
    {"series":"steps","pool":"decode","server":0,"start_s":0.0,"end_s":0.0025,"steps":0,"running":0,"decodes":0,"prefills":0,"prefill_tokens":0,"kv_held_tokens_start":0,"kv_held_tokens_end":0}
    {"series":"steps","pool":"decode","server":0,"start_s":0.0025,"end_s":0.0045,"steps":2,"running":1,"decodes":1,"prefills":0,"prefill_tokens":0,"kv_held_tokens_start":100,"kv_held_tokens_end":102}
    "#);
    insta::assert_snapshot!(trace(&result, &history, &names), @"
    (1, 0) is prefill 0 steps
    (2, 0) is prefill 0 requests
    (1, 0) 0.0 us for 2000.0 us: 1 step: 1 prompt chunk
    (3, 0) is decode 0 steps
    (4, 0) is decode 0 requests
    (3, 0) 2500.0 us for 2000.0 us: 2 steps: 1 decode
    (5, 0) is KV transfer
    (2, 0) is 0
    (2, 0) 0.0 us for 2000.0 us: prefill
    (5, 0) is 0
    (5, 0) 2000.0 us for 500.0 us: KV transfer
    (4, 0) is 0
    (4, 0) 2500.0 us for 2000.0 us: decode
    ");
}
