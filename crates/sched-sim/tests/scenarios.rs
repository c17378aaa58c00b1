//! Whole runs that are small enough to check by hand.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;

use metrics_core::{Outcome, RequestTimeline};
use sched_sim::{
    Affine, BatchHistory, DecodeFirst, KvPool, PrefillFirst, PromptContent, RunEnd, RunLimits,
    RunResult, Sarathi, ServerSettings, SgLang, Simulation, Ticks, Workload, WorkloadRequest,
};

/// 1 ms a step, 10 µs a prompt token, 10 µs a decode.
fn step_time() -> Affine {
    "base=1ms,prefill=10us/token,decode=10us/request".parse().unwrap()
}

fn workload(rows: &[(&str, &str, u64, u64)]) -> Workload {
    let request = |&(id, at, input, output): &(&str, &str, u64, u64)| {
        WorkloadRequest::new(id, at.parse().unwrap(), input, output)
    };
    Workload::new(rows.iter().map(request).collect()).unwrap()
}

fn ms(t: Ticks) -> String {
    format!("{:.3}", t.seconds() * 1e3)
}

fn ttft_ms(workload: &Workload, result: &RunResult<'_>, i: usize) -> String {
    let first = result.records()[i].first_token().unwrap();
    ms(first.since(workload.requests()[i].arrival).unwrap())
}

/// By hand: the prompt of `a` takes 1 + 1 = 2 ms, and `b` waits for the end of that step. Then a
/// decode and 512 tokens take 1 + 5.12 + 0.01 = 6.13 ms, a decode and the other 388 take 4.89 ms.
/// Two decodes take 1.02 ms and end `a`; the last one takes 1.01 ms.
#[test]
fn long_prompt_does_not_stall_a_decode() {
    let workload = workload(&[("a", "0s", 100, 3), ("b", "500us", 900, 2)]);
    let policy = DecodeFirst::new(8, 512).unwrap();

    let result = Simulation::new(&workload, policy, step_time()).run().unwrap();

    let mut events = Vec::new();
    for (r, record) in workload.requests().iter().zip(result.records()) {
        events.extend([
            (r.arrival, &r.id, "arrives"),
            (record.scheduled().unwrap(), &r.id, "starts its prompt"),
            (record.prompt_done().unwrap(), &r.id, "has its prompt computed"),
            (record.first_token().unwrap(), &r.id, "gives its first token"),
            (record.last_token().unwrap(), &r.id, "gives its last token"),
        ]);
    }
    events.sort_by_key(|e| e.0);
    let mut text = String::new();
    for (at, id, what) in events {
        writeln!(text, "{:>7} ms  {id} {what}", ms(at)).unwrap();
    }
    insta::assert_snapshot!(text, @"
      0.000 ms  a arrives
      0.000 ms  a starts its prompt
      0.500 ms  b arrives
      2.000 ms  a has its prompt computed
      2.000 ms  b starts its prompt
      8.130 ms  a gives its first token
     13.020 ms  b has its prompt computed
     14.040 ms  a gives its last token
     14.040 ms  b gives its first token
     15.050 ms  b gives its last token
    ");
}

/// First trade-off: a larger chunk brings a long prompt to its first token sooner, and makes the
/// steps that a streaming request shares with it longer.
///
/// By hand: `a` has its prompt at 2 ms and its first token at 3.01 ms, when the first step with
/// `b` starts. Chunks of 100: 20 steps of 1 + 1 + 0.01 ms and one of 1.02 ms end at 44.23 ms, that
/// is 41.23 ms after `b` came. Chunks of 1000: 2 steps of 11.01 ms, so 26.05 − 3 = 23.05 ms.
#[test]
fn larger_chunk_helps_the_long_prompt_and_crowds_the_decode() {
    let workload = workload(&[("a", "0s", 100, 40), ("b", "3ms", 2000, 2)]);
    let mut text = String::from("chunk  TTFT of b  longest gap between tokens of a\n");
    for chunk in [100, 1000] {
        let policy = DecodeFirst::new(8, chunk).unwrap();
        let mut history = BatchHistory::new();
        let run = Simulation::new(&workload, policy, step_time());
        let result = run.run_observed(&mut history).unwrap();
        // `a` decodes in every step after its first token; those of a run are equally long here.
        let steps = history.runs().iter().filter(|r| 0 < r.decodes);
        let gap = steps.map(|r| r.duration.attoseconds() / u128::from(r.steps)).max().unwrap();
        let (ttft, gap) = (ttft_ms(&workload, &result, 1), ms(Ticks::from_attoseconds(gap)));
        writeln!(text, "{chunk:>5}  {ttft:>6} ms  {gap:>6} ms").unwrap();
    }
    insta::assert_snapshot!(text, @"
    chunk  TTFT of b  longest gap between tokens of a
      100  41.230 ms   2.010 ms
     1000  23.050 ms  11.010 ms
    ");
}

/// Second trade-off: requests that decode take the slots of prompts, so TTFT worsens first, while
/// TPOT is as before.
///
/// By hand, steps of 1 ms and 4 slots: streams have their prompt at 1 ms and decode until 101 ms.
/// Four prompts of one chunk and one token come at 10 ms. With 4 slots left all have their token
/// two steps later; with 2 left they go in pairs, with 1 left one by one; with none left they wait
/// until 101 ms and need two steps more, that is 93 ms.
#[test]
fn decodes_take_the_slots_of_prompts() {
    let second: Affine = "base=1ms".parse().unwrap();
    let policy = DecodeFirst::new(4, 100).unwrap();
    let mut text = String::from("streams  TTFT of four prompts (ms)  TPOT of a stream (ms)\n");
    for streams in [0, 2, 3, 4] {
        let mut rows = Vec::new();
        for i in 0..streams {
            rows.push(WorkloadRequest::new(format!("stream {i}"), Ticks::ZERO, 1, 100));
        }
        for i in 0..4 {
            let at = "10ms".parse().unwrap();
            rows.push(WorkloadRequest::new(format!("prompt {i}"), at, 100, 1));
        }
        let workload = Workload::new(rows).unwrap();
        let result = Simulation::new(&workload, policy, second).run().unwrap();
        let ttft: Vec<_> = (streams..streams + 4).map(|i| ttft_ms(&workload, &result, i)).collect();
        let tpot = result.timelines().unwrap()[0].tpot().unwrap().get() * 1e3;
        let tpot = if streams == 0 { "-".to_owned() } else { format!("{tpot:.3}") };
        writeln!(text, "{streams:>7}  {}  {tpot}", ttft.join(" ")).unwrap();
    }
    insta::assert_snapshot!(text, @"
    streams  TTFT of four prompts (ms)  TPOT of a stream (ms)
          0  2.000 2.000 2.000 2.000  -
          2  2.000 2.000 4.000 4.000  1.000
          3  2.000 4.000 6.000 8.000  1.000
          4  93.000 93.000 93.000 93.000  1.000
    ");
}

/// Third trade-off: token throughput still rises while what users see gets worse.
///
/// By hand, with 0.1 ms a decode: n prompts of 100 tokens take 1 + n ms, then 50 steps take
/// 1 + 0.1 n ms each. So TTFT is 2 + 1.1 n, TPOT 1 + 0.1 n, and 50 n tokens take 51 + 6 n ms: 877
/// tokens/s for one request, 5442 for sixteen.
#[test]
fn throughput_rises_while_latency_worsens() {
    let step_time: Affine = "base=1ms,prefill=10us/token,decode=100us/request".parse().unwrap();
    let policy = DecodeFirst::new(16, 100).unwrap();
    let mut text = String::from("requests  tokens/s  TTFT (ms)  TPOT (ms)\n");
    for n in [1_u64, 4, 16] {
        let rows = (0..n).map(|i| WorkloadRequest::new(i, Ticks::ZERO, 100, 50));
        let workload = Workload::new(rows.collect()).unwrap();
        let result = Simulation::new(&workload, policy, step_time).run().unwrap();
        let s = result.statistics();
        let rate = s.output_tokens as f64 / s.duration().seconds();
        let tpot = result.timelines().unwrap()[0].tpot().unwrap().get() * 1e3;
        let ttft = ttft_ms(&workload, &result, 0);
        writeln!(text, "{n:>8}  {rate:>8.0}  {ttft:>9}  {tpot:>9.3}").unwrap();
    }
    insta::assert_snapshot!(text, @"
    requests  tokens/s  TTFT (ms)  TPOT (ms)
           1       877      3.100      1.100
           4      2667      6.400      1.400
          16      5442     19.600      2.600
    ");
}

/// By hand: one step of 1 s serves `a` (its prompt), one its token; the clock then jumps from 2 s
/// to the arrival of `b` at 10 s. Idle time is not a step.
#[test]
fn the_clock_jumps_to_the_next_arrival() {
    let workload = workload(&[("a", "0s", 1, 1), ("b", "10s", 1, 1)]);
    let second: Affine = "base=1s".parse().unwrap();
    let mut history = BatchHistory::new();
    let run = Simulation::new(&workload, DecodeFirst::default(), second);
    let result = run.run_observed(&mut history).unwrap();
    let mut text = String::new();
    for r in history.runs() {
        let what = (r.steps, r.decodes, r.prefills);
        writeln!(text, "{:>4} +{}: {what:?}", r.start.to_string(), r.duration).unwrap();
    }
    insta::assert_snapshot!(text, @"
     0 s +1 s: (1, 0, 1)
     1 s +1 s: (1, 1, 0)
     2 s +8 s: (0, 0, 0)
    10 s +1 s: (1, 0, 1)
    11 s +1 s: (1, 1, 0)
    ");
    let s = result.statistics();
    assert_eq!((s.steps, s.idle(), s.busy), (4, "8s".parse().unwrap(), "4s".parse().unwrap()));
    // One request of at most eight in every step; a third of the time somebody is there.
    assert_eq!(s.utilization_by_steps(), Some(1.0 / 8.0));
    assert!((s.utilization_by_time().unwrap() - 1.0 / 24.0).abs() < 1e-15);
    assert!((s.mean_in_system().unwrap() - 1.0 / 3.0).abs() < 1e-15);
}

/// By hand, in batches of at most 4: the prompt of `a` takes 2 s. From 2 s to 4 s the prompt of `b`
/// is computed, and `a` is in the batch and gets nothing. Then both decode for 1 s, and `a` has its
/// last token; `b` goes on for 1 s. So there is 1 request in the batch for 2 s, 2 for 3 s and 1 for 1 s,
/// which is 9 of 4 · 6 place-seconds, and 1 + 2 + 2 + 1 of 4 · 4 places by steps. Of the 9
/// request-seconds 4 are in prefill, 3 in decode and 2 held back.
#[test]
fn who_is_held_back_takes_a_place_of_the_batch() {
    let workload = workload(&[("a", "0s", 1, 2), ("b", "1s", 1, 3)]);
    let step_time: Affine = "base=1s,prefill=1s/token".parse().unwrap();
    let policy = PrefillFirst::new(4, 8).unwrap();
    let run = || Simulation::new(&workload, policy, step_time);
    for s in [run().run(), run().run_reference()].map(|result| *result.unwrap().statistics()) {
        assert_eq!((s.steps, s.duration()), (4, "6s".parse().unwrap()));
        assert_eq!(s.utilization_by_time(), Some(9.0 / 24.0));
        assert_eq!(s.utilization_by_steps(), Some(6.0 / 16.0));
        assert_eq!(s.mean_in_service(), Some(9.0 / 6.0));
        assert_eq!(s.mean_in_prefill(), Some(4.0 / 6.0));
        assert_eq!(s.mean_in_decode(), Some(3.0 / 6.0));
        assert_eq!(s.mean_held_back(), Some(2.0 / 6.0));
    }
}

/// By hand: prompt 3, answer 2, chunks of 2. Steps compute 2 and 1 prompt tokens, then the two
/// decodes read 3 and 4 tokens. KV holds 2, 3, 4, 5 tokens at the ends of the four steps.
#[test]
fn kv_of_one_request_is_counted_per_step() {
    let workload = workload(&[("a", "0s", 3, 2)]);
    let run = Simulation::new(&workload, DecodeFirst::new(1, 2).unwrap(), step_time());
    let s = *run.run().unwrap().statistics();
    assert_eq!((s.steps, s.kv_read_tokens, s.kv_held_tokens, s.kv_held_max), (4, 7, 14, 5));
    assert_eq!(s.kv_read_bytes_per_step(100), Some(175.0));
    assert_eq!(s.kv_held_bytes_per_step(100), Some(350.0));
    assert_eq!(s.kv_held_bytes_max(100), 500);
    assert_eq!(s.prefill_decode_ratio(), Some(1.5));
}

/// A pool of so many blocks of so many tokens.
fn pool(blocks: u64, size: u64) -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(blocks, size).unwrap());
    settings
}

/// By hand: prompt 32, answer 17, the first token from the prompt's step, which stores 32 tokens. Of
/// each later token the KV is stored by the step after it, so that 16 decodes end with 33 to 48 in
/// KV, which is three blocks of 16 tokens: 32 + (33 + 48) · 16 / 2 = 680.
#[test]
fn the_newest_token_of_an_answer_is_not_held_yet() {
    let workload = workload(&[("a", "0s", 32, 17)]);
    let policy = Sarathi::new(4, 64).unwrap();
    let run = || Simulation::new(&workload, policy, step_time()).settings(pool(20, 16));
    for s in [run().run(), run().run_reference()].map(|result| *result.unwrap().statistics()) {
        assert_eq!((s.steps, s.kv_held_tokens, s.kv_held_max), (17, 680, 48));
        assert_eq!(s.kv.unwrap().used_max, 3);
    }
}

/// By hand: two requests with the same prompt of 10 tokens and answers of 5 tokens. The first step
/// stores 10 tokens. The second prompt finds 9 of them and computes 1, which makes 11, and once that
/// step is over the copy of it is given back: 10. Then each of four steps stores a token for each:
/// 12, 14, 16, 18. Counted once for each request it would be 28 in the end.
#[test]
fn what_requests_share_is_held_once() {
    let request = |id: u64, at: &str| {
        let mut r = WorkloadRequest::new(id, at.parse().unwrap(), 10, 5);
        r.content = Some(Box::new(PromptContent::new(vec![(7, 10)])));
        r
    };
    let workload = Workload::new(vec![request(0, "0s"), request(1, "1us")]).unwrap();
    let policy = SgLang::new(4, 64).unwrap();
    let run = || Simulation::new(&workload, policy, step_time()).settings(pool(100, 1));
    for s in [run().run(), run().run_reference()].map(|result| *result.unwrap().statistics()) {
        assert_eq!((s.steps, s.kv_held_max), (6, 18));
        assert_eq!(s.kv_held_tokens, 10 + 11 + 12 + 14 + 16 + 18);
        assert_eq!(s.kv.unwrap().used_max, 18);
    }
}

/// The chunks of a prompt of n tokens add up to n² / 2 attention pairs, whatever their size: at
/// 40 ps a pair, 300 tokens take 45,000 · 40 ps = 1.8 µs, and a decode adds none.
#[test]
fn attention_of_a_prompt_does_not_depend_on_the_chunk() {
    let workload = workload(&[("a", "0s", 300, 2)]);
    let step_time: Affine = "attention=40ps/pair".parse().unwrap();
    for chunk in [1, 7, 128, 300, 1000] {
        let policy = DecodeFirst::new(1, chunk).unwrap();
        let result = Simulation::new(&workload, policy, step_time).run().unwrap();
        assert_eq!(result.statistics().busy, "1.8us".parse().unwrap());
    }
}

/// The source's linear form: one after the other, requests take their service demand,
/// N_in · c_prefill + N_out · c_decode = 100 · 20 µs + 3 · 10 ms = 32 ms each.
#[test]
fn linear_step_time_is_the_service_demand_of_the_source() {
    let workload = workload(&[("a", "0s", 100, 3), ("b", "0s", 100, 3)]);
    let step_time = Affine::linear("20us".parse().unwrap(), "10ms".parse().unwrap()).unwrap();
    let policy = DecodeFirst::new(1, 30).unwrap();
    let result = Simulation::new(&workload, policy, step_time).run().unwrap();
    let last = |i: usize| result.records()[i].last_token();
    assert_eq!((last(0), last(1)), (Some("32ms".parse().unwrap()), Some("64ms".parse().unwrap())));
}

/// By hand: cut at 2.5 s, the step that began at 2 s still ends at 3 s; `a` then has one of three
/// tokens, `b` waits for its slot, `c` has not come. No step begins at 3 s.
#[test]
fn a_truncated_run_says_who_is_left() {
    let workload = workload(&[("a", "0s", 2, 3), ("b", "1s", 1, 1), ("c", "9s", 1, 1)]);
    let limits = RunLimits { until: Some("2500ms".parse().unwrap()), max_steps: None };
    let step_time: Affine = "base=1s".parse().unwrap();
    let run = Simulation::new(&workload, DecodeFirst::new(1, 1).unwrap(), step_time);
    let result = run.limits(limits).run().unwrap();
    let s = result.statistics();
    assert_eq!((result.end(), s.end), (RunEnd::TimeLimit, "3s".parse().unwrap()));
    assert_eq!((s.completed, s.running, s.queued, s.not_arrived()), (0, 1, 1, 1));
    let left = result.unfinished()[0];
    assert_eq!((left.position, left.prefilled, left.decoded), (0, 2, 1));
    let timelines = result.timelines().unwrap();
    let outcomes: Vec<_> = timelines.iter().map(RequestTimeline::outcome).collect();
    assert_eq!(outcomes, [Outcome::CutOff, Outcome::CutOff]);
    assert_eq!(timelines[0].ttft().unwrap().get(), 3.0);
    assert_eq!(timelines[0].output_tokens(), Some(1));
}
