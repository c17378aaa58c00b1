//! Each clause of each policy's rule, in runs that are small enough to check by hand.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;

use sched_sim::server::Rejection;
use sched_sim::{
    Affine, KvPool, Orca, Order, Policy, Preemption, PrefillFirst, RunEnd, RunLimits, Sarathi,
    ServerSettings, SgLang, Simulation, StaticBatch, Workload, WorkloadRequest,
};

/// A pool of so many blocks of so many tokens, first come, first served.
fn pool(blocks: u64, size: u64) -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(blocks, size).unwrap());
    settings
}

/// Runs requests of (arrival in ms, prompt, answer) with 10 ms a step and 1 ms a prompt token; one
/// line each: start, first and last token in ms, and preemptions.
fn run(policy: impl Policy + Clone, settings: ServerSettings, rows: &[(u64, u64, u64)]) -> String {
    let requests = rows.iter().enumerate().map(|(i, &(ms, input, output))| {
        let at = format!("{ms}ms").parse().unwrap();
        let mut r = WorkloadRequest::new(i as u64, at, input, output);
        // Under the priority order: later requests first.
        r.priority = -i64::try_from(i).unwrap();
        r
    });
    let workload = Workload::new(requests.collect()).unwrap();
    let step_time: Affine = "base=10ms,prefill=1ms/token".parse().unwrap();
    let plain = Simulation::new(&workload, policy.clone(), step_time).settings(settings);
    let result = Simulation::new(&workload, policy, step_time).settings(settings).run().unwrap();
    assert_eq!(result, plain.run_reference().unwrap());
    assert_eq!(result.end(), RunEnd::Completed);
    let mut text = String::new();
    for (i, r) in result.records().iter().enumerate() {
        let detail = result.details().iter().find(|d| d.position == i);
        if let Some(reason) = detail.and_then(|d| d.rejected) {
            writeln!(text, "{i}: refused, {}", Rejection::reason(&reason)).unwrap();
            continue;
        }
        let ms = |t: Option<sched_sim::Ticks>| t.unwrap().seconds() * 1e3;
        let (start, first, last) = (ms(r.scheduled()), ms(r.first_token()), ms(r.last_token()));
        write!(text, "{i}: starts {start}, first token {first}, last {last}").unwrap();
        for s in detail.map(|d| d.stalls.as_slice()).unwrap_or_default() {
            let (from, back) = (ms(Some(s.from)), ms(s.readmitted));
            write!(text, "; out from {from} to {back}, loses {}", s.lost_tokens).unwrap();
        }
        text.push('\n');
    }
    text
}

/// Steps: 0–20 prompt of 0 (10 tokens). 20–30 its 2nd token. 30–50: the prompt of 1 (10 tokens),
/// alone. 50–60: a token each, the last of both.
#[test]
fn prefill_first_stops_streams_for_a_prompt() {
    let policy = PrefillFirst::new(8, 100).unwrap();
    insta::assert_snapshot!(run(policy, ServerSettings::default(), &[(0, 10, 3), (25, 10, 2)]), @"
    0: starts 0, first token 20, last 60
    1: starts 30, first token 50, last 60
    ");
}

/// Two prompts of 60 are more than 100 tokens: 0–70, 70–140, one after the other. A prompt of 150
/// is more than 100 by itself, and runs alone: 140–300.
#[test]
fn prefill_first_fills_a_step_with_whole_prompts_up_to_its_tokens() {
    let policy = PrefillFirst::new(8, 100).unwrap();
    let rows = [(0, 60, 1), (0, 60, 1), (0, 150, 1)];
    insta::assert_snapshot!(run(policy, ServerSettings::default(), &rows), @"
    0: starts 0, first token 70, last 70
    1: starts 70, first token 140, last 140
    2: starts 140, first token 300, last 300
    ");
}

/// 200 blocks of one token, of which an admission leaves 2 free. The prompt of 99 takes 0–109.
/// With 101 free, one of 99 leaves 2, but one of 100 would leave 1: it waits for the end of the
/// first, whose second token has taken a block, at 119.
#[test]
fn prefill_first_leaves_one_percent_free() {
    let policy = PrefillFirst::new(8, 99).unwrap();
    insta::assert_snapshot!(run(policy, pool(200, 1), &[(0, 99, 2), (0, 99, 1)]), @"
    0: starts 0, first token 109, last 228
    1: starts 109, first token 218, last 218
    ");
    insta::assert_snapshot!(run(policy, pool(200, 1), &[(0, 99, 2), (0, 100, 1)]), @"
    0: starts 0, first token 109, last 119
    1: starts 119, first token 229, last 229
    ");
}

/// Five blocks of 16: both prompts run to 74 and hold two each. Both need a third, one is free: the
/// later one goes. It knows 33 tokens and comes back when the first has ended, at 104, to compute
/// them for 43 ms.
#[test]
fn out_of_blocks_the_last_to_arrive_computes_everything_again() {
    let rows = [(0, 32, 4), (0, 32, 4)];
    let expected = "\
        0: starts 0, first token 74, last 104\n\
        1: starts 0, first token 74, last 167; out from 74 to 104, loses 32\n";
    assert_eq!(run(PrefillFirst::new(8, 100).unwrap(), pool(5, 16), &rows), expected);
    assert_eq!(run(Sarathi::new(8, 100).unwrap(), pool(5, 16), &rows), expected);
    // Under the priority order, in which the later one is first, the other one goes.
    let mut settings = pool(5, 16);
    settings.order = Order::Priority;
    let expected = "\
        0: starts 0, first token 74, last 167; out from 74 to 104, loses 32\n\
        1: starts 0, first token 74, last 104\n";
    assert_eq!(run(PrefillFirst::new(8, 100).unwrap(), settings, &rows), expected);
}

/// A permit every 10 ms, of which two are kept. At 0 two of three come in; at 10 a third permit is
/// there, at 15 half of one, at 100 two again.
#[test]
fn an_empty_token_bucket_refuses_who_arrives() {
    let mut settings = ServerSettings::default();
    settings.bucket = Some("100/s,burst=2".parse().unwrap());
    let rows = [0, 0, 0, 10, 15, 100, 100, 100].map(|ms| (ms, 10, 1));
    let text = run(Sarathi::new(8, 100).unwrap(), settings, &rows);
    let refused: Vec<&str> = text.lines().filter(|line| line.contains("refused")).collect();
    assert_eq!(refused, [2, 4, 7].map(|i| format!("{i}: refused, the token bucket has no permit")));
}

/// The bucket that is exact in time is that of `metrics_core` in permits.
#[test]
fn the_token_bucket_is_the_formula() {
    use metrics_core::units::{Requests, RequestsPerSecond, Seconds};
    let (rate, burst) = (RequestsPerSecond::new(8.0).unwrap(), Requests::new(3.0).unwrap());
    // Gaps in units of 1/64 s, which floats hold exactly.
    let gaps = [0, 0, 1, 3, 4, 0, 0, 8, 8, 2, 6, 64, 0, 0, 0, 0, 7, 1, 8, 16, 0, 0, 0];
    let (mut fill, mut at, mut want, mut requests) = (burst, 0_u64, Vec::new(), Vec::new());
    for (i, gap) in gaps.into_iter().enumerate() {
        let dt = Seconds::new(gap as f64 / 64.0).unwrap();
        fill = metrics_core::admission::token_bucket(fill, dt, rate, burst).unwrap();
        want.push(1.0 <= fill.get());
        if want[i] {
            fill = Requests::new(fill.get() - 1.0).unwrap();
        }
        at += gap;
        let arrival = sched_sim::Ticks::from_nanoseconds(at * 15_625_000);
        requests.push(WorkloadRequest::new(i as u64, arrival, 1, 1));
    }
    let workload = Workload::new(requests).unwrap();
    let mut settings = ServerSettings::default();
    settings.bucket = Some("8/s,burst=3".parse().unwrap());
    let policy = Sarathi::new(8, 100).unwrap();
    let step_time: Affine = "base=1ms".parse().unwrap();
    let result = Simulation::new(&workload, policy, step_time).settings(settings).run().unwrap();
    let came_in: Vec<bool> = result.records().iter().map(|r| r.scheduled().is_some()).collect();
    assert_eq!(came_in, want);
    assert!(want.contains(&false));
}

/// One slot, steps of 10 ms and 10 ms more for a prompt of 10 tokens, in 100 blocks of one token.
///
/// | arrival | seen at | waiting | P99 of TTFT | |
/// |---|---|---|---|---|
/// | 0: 0 ms | 0 | 0 | none | comes in; 20 ms to its first token, ends at 40 |
/// | 1: 5 | 20 | 0 | none | comes in and waits; ends at 60, with a TTFT of 55 ms |
/// | 2: 5 | 20 | 1 | none | refused: the queue |
/// | 3: 25 | 30 | 1 | none | refused: the queue |
/// | 4: 100 | 100 | 0 | 55 ms, that of 1 | refused: 55 is not below 0.8 · 60 |
/// | 5: 200 | 200 | 0 | none in 50 ms | comes in |
#[test]
fn the_admission_rule_looks_at_queue_memory_and_latency() {
    let mut settings = pool(100, 1);
    settings.rule = Some("queue=1,kv=0.5,slo=60ms,window=50ms".parse().unwrap());
    let rows = [(0, 10, 3), (5, 10, 1), (5, 10, 1), (25, 10, 1), (100, 10, 1), (200, 10, 1)];
    let text = run(Sarathi::new(1, 100).unwrap(), settings, &rows);
    let lines: Vec<&str> = text.lines().collect();
    let queue = "refused, the admission rule: the queue is at its limit";
    assert_eq!(lines[1], "1: starts 40, first token 60, last 60");
    assert_eq!((lines[2], lines[3]), (&*format!("2: {queue}"), &*format!("3: {queue}")));
    let latency = "4: refused, the admission rule: the P99 of TTFT is not below 0.8 of its SLO";
    assert_eq!(lines[4], latency);
    assert_eq!(lines[5], "5: starts 200, first token 220, last 220");
    // With at most 0.1 of the blocks, the one that comes while 10 are in use does not.
    settings.rule = Some("queue=9,kv=0.1,slo=1s,window=1s".parse().unwrap());
    let text = run(Sarathi::new(1, 100).unwrap(), settings, &rows[..2]);
    assert!(text.ends_with("1: refused, the admission rule: the KV cache is at its limit\n"));
}

/// The same with 0.5 ms to move the KV of a token: the later one stores 32 tokens, so that its KV
/// moves out for 16 ms of the step that begins at 74 and ends at 74 + 16 + 10 = 100. The first is
/// done at 120. The step that begins then waits 16 ms for the KV to move back, and ends at 146.
#[test]
fn swapped_out_it_comes_back_and_computes_nothing_again() {
    let rows = [(0, 32, 4), (0, 32, 4)];
    let swap = Preemption::Swap { per_token: "500us".parse().unwrap() };
    let expected = "\
        0: starts 0, first token 74, last 120\n\
        1: starts 0, first token 74, last 166; out from 74 to 120, loses 0\n";
    let policy = PrefillFirst::new(8, 100).unwrap().with_preemption(swap).unwrap();
    assert_eq!(run(policy, pool(5, 16), &rows), expected);
    let policy = Sarathi::new(8, 100).unwrap().with_preemption(swap).unwrap();
    assert_eq!(run(policy, pool(5, 16), &rows), expected);
    // No prompt passes by whoever is swapped out: a third one of one block, which would fit from
    // 100 on, starts when the second is back.
    let rows = [(0, 32, 4), (0, 32, 4), (80, 10, 1)];
    let text = run(policy, pool(5, 16), &rows);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "1: starts 0, first token 74, last 176; out from 74 to 120, loses 0");
    assert_eq!(lines[2], "2: starts 120, first token 156, last 156");
    // A token may take a second at most.
    let swap = Preemption::Swap { per_token: "1.1s".parse().unwrap() };
    let error = PrefillFirst::new(8, 100).unwrap().with_preemption(swap).unwrap_err();
    insta::assert_snapshot!(error, @"swap_time must be at most 1s, got 1.1s");
}

/// A budget of 20 tokens with the decodes. 0–20: the prompt of 0 (10 tokens) and 10 of 1: 30 ms, so
/// to 30. 30–59: a decode and 19 of the 30 that are left. 59–80: a decode and the last 11, the
/// first token of 1. 80–90: a token each.
#[test]
fn sarathi_serves_decodes_first_and_chunks_with_the_rest() {
    let policy = Sarathi::new(8, 20).unwrap();
    insta::assert_snapshot!(run(policy, ServerSettings::default(), &[(0, 10, 4), (0, 40, 2)]), @"
    0: starts 0, first token 30, last 90
    1: starts 0, first token 80, last 90
    ");
}

/// 40 tokens each in all: 39 are stored at the end, in 3 blocks of 16. Of five blocks the second
/// request gets none before the first ends: 42 ms and three tokens.
#[test]
fn orca_reserves_the_last_token_and_never_preempts() {
    let policy = Orca::new(8).unwrap();
    insta::assert_snapshot!(run(policy, pool(5, 16), &[(0, 32, 8), (0, 32, 8)]), @"
    0: starts 0, first token 42, last 112
    1: starts 112, first token 154, last 224
    ");
    // With plenty, whole prompts run beside decodes: 0–20, 20–50 with a token of the first.
    insta::assert_snapshot!(run(policy, ServerSettings::default(), &[(0, 10, 2), (5, 20, 1)]), @"
    0: starts 0, first token 20, last 50
    1: starts 20, first token 50, last 50
    ");
}

/// The batch of 0 and 1 runs to the end of 0: 0–30 both prompts, then tokens at 40, 50, 60. Though
/// there is a slot from 40 on, 2 waits to 60, and then shares no step with anybody.
#[test]
fn a_static_batch_runs_until_its_longest_answer_ends() {
    let policy = StaticBatch::new(2).unwrap();
    let rows = [(0, 10, 4), (0, 10, 2), (5, 10, 1)];
    insta::assert_snapshot!(run(policy, ServerSettings::default(), &rows), @"
    0: starts 0, first token 30, last 60
    1: starts 0, first token 30, last 40
    2: starts 60, first token 80, last 80
    ");
}

/// Chunks of 20. 0–20: the prompt of 0 (10 tokens) fits, 10 of 1: 30 ms. 30–60: 20 more of 1 alone,
/// 60–80: the last 10 of 1, and 10 of 2: 30 ms, so to 90. Then decodes: 90–100 a token each.
#[test]
fn sglang_goes_on_with_the_prompt_in_progress_while_decodes_wait() {
    let policy = SgLang::new(8, 20).unwrap();
    let rows = [(0, 10, 2), (0, 40, 2), (0, 10, 2)];
    insta::assert_snapshot!(run(policy, ServerSettings::default(), &rows), @"
    0: starts 0, first token 30, last 100
    1: starts 0, first token 90, last 100
    2: starts 60, first token 90, last 100
    ");
}

/// 130 tokens of memory in pages of one. 0 takes 20 and may make 100: an empty server takes it.
/// 1 needs 20 + 40 + 1 = 61 tokens; free are 110 less 0.7 · 99 = 69.3, rounded up to 70: 40. It is
/// refused, and no other try is made until 0 has left, after 99 tokens of 10 ms, at 1020.
#[test]
fn sglang_admits_by_what_it_predicts() {
    let policy = SgLang::new(8, 100).unwrap();
    insta::assert_snapshot!(run(policy, pool(130, 1), &[(0, 20, 100), (1, 20, 40)]), @"
    0: starts 0, first token 30, last 1020
    1: starts 1020, first token 1050, last 1440
    ");
}

/// With a conservativeness of 0 nothing is expected of 0 when 1 comes: 20 + 10 + 1 tokens are fewer
/// than the 35 that are free of 55, and 1 runs its prompt from 30 to 60. They hold 20 each then, and
/// one more each step, until at 130 one token is free and two are needed. Both have made 8 tokens
/// and have prompts of 20: the smaller number is retracted. It loses 27 tokens and knows 28. At 140
/// it needs 28 + 2 + 1 and 27 are free; at 150 the other has ended. It computes for 38 ms, which
/// gives its 9th token.
#[test]
fn sglang_retracts_whoever_has_made_the_least() {
    let policy = SgLang::new(8, 100).unwrap().with_conservativeness(0.0).unwrap();
    insta::assert_snapshot!(run(policy, pool(55, 1), &[(0, 20, 10), (5, 20, 10)]), @"
    0: starts 0, first token 30, last 198; out from 130 to 150, loses 27
    1: starts 30, first token 60, last 150
    ");
}

/// The new-token ratio after `steps` decode steps without a retraction since it was `from`, at a
/// conservativeness of `c`: 1/600 of the way from 0.7 c to 14 % of that in each.
fn fallen(from: f64, c: f64, steps: f64) -> f64 {
    from - steps * 0.7 * c * (1.0 - 0.14) / 600.0
}

/// The ratio that a run of these requests leaves behind which is stopped at `until_ms`, with either
/// engine.
fn ratio(policy: SgLang, settings: ServerSettings, rows: &[(u64, u64, u64)], until_ms: u64) -> f64 {
    let ms = |ms: u64| format!("{ms}ms").parse().unwrap();
    let requests = rows
        .iter()
        .enumerate()
        .map(|(i, &(at, input, output))| WorkloadRequest::new(i as u64, ms(at), input, output));
    let workload = Workload::new(requests.collect()).unwrap();
    let step_time: Affine = "base=10ms,prefill=1ms/token".parse().unwrap();
    let limits = RunLimits { until: Some(ms(until_ms)), max_steps: None };
    let (mut fast, mut plain) = (policy, policy);
    let simulation = Simulation::new(&workload, &mut fast, step_time);
    simulation.settings(settings).limits(limits).run().unwrap();
    let simulation = Simulation::new(&workload, &mut plain, step_time);
    simulation.settings(settings).limits(limits).run_reference().unwrap();
    assert!((fast.new_token_ratio() - plain.new_token_ratio()).abs() < 1e-12);
    fast.new_token_ratio()
}

/// The two requests of [`sglang_retracts_whoever_has_made_the_least`], with a conservativeness of
/// 0.1, which changes none of their instants: 0.07 · 9 tokens are less than the 4 that were free
/// beyond need. The one that stays has made 8 of 10 tokens, and (8 + 20) / 11 is more than 1. The
/// step that retracts, from 130 to 140, leaves that; the next one is the first to lower it.
#[test]
fn sglang_does_not_lower_the_ratio_in_the_step_that_retracts() {
    let policy = SgLang::new(8, 100).unwrap().with_conservativeness(0.1).unwrap();
    let at = |until| ratio(policy, pool(55, 1), &[(0, 20, 10), (5, 20, 10)], until);
    // Seven decode steps after the two prompts.
    assert!((at(130) - fallen(0.07, 0.1, 7.0)).abs() < 1e-12);
    assert!((at(140) - 1.0).abs() < 1e-12);
    assert!((at(150) - fallen(1.0, 0.1, 1.0)).abs() < 1e-12);
}

/// One slot: each request takes 20 ms for its prompt and 40 for four decode steps. The second waits
/// while the first runs, or comes in the instant in which it ends: the server is never idle, and the
/// ratio goes on falling. The third comes to an idle server.
#[test]
fn sglang_starts_its_ratio_anew_when_idle() {
    let policy = SgLang::new(1, 100).unwrap();
    for second in [0, 60] {
        let rows = [(0, 10, 5), (second, 10, 5), (1000, 10, 5)];
        let at = |until| ratio(policy, ServerSettings::default(), &rows, until);
        assert!((at(60) - fallen(0.7, 1.0, 4.0)).abs() < 1e-12, "{second}");
        assert!((at(120) - fallen(0.7, 1.0, 8.0)).abs() < 1e-12, "{second}");
        assert!((at(1020) - 0.7).abs() < 1e-12, "{second}");
        assert!((at(1060) - fallen(0.7, 1.0, 4.0)).abs() < 1e-12, "{second}");
    }
}

/// 200 blocks of one token, of which an admission leaves 2 free. 100 + 100 tokens store 199, 198 + 2
/// as many, and both prompts leave 2 blocks: the prompt takes 110 or 208 ms, each token 10. A prompt
/// of 199 leaves 1, and 100 + 102 tokens store 201: 0 and 3 need 201 blocks.
#[test]
fn the_watermark_is_a_test_of_the_admission_alone() {
    let rows = [(0, 199, 1), (0, 100, 100), (2000, 198, 2), (2000, 100, 102)];
    let expected = "\
        0: refused, it needs 201 KV blocks to be admitted and to end, and there are 200\n\
        1: starts 0, first token 110, last 1100\n\
        2: starts 2000, first token 2208, last 2218\n\
        3: refused, it needs 201 KV blocks to be admitted and to end, and there are 200\n";
    assert_eq!(run(PrefillFirst::new(8, 300).unwrap(), pool(200, 1), &rows), expected);
    assert_eq!(run(Sarathi::new(8, 300).unwrap(), pool(200, 1), &rows), expected);
}

/// The same blocks, later requests first. 0 decodes from 160 on, and has stored 197 tokens at 630,
/// when 1 is admitted with one and leaves 2 free. At 651 they hold 198 and 2, and 0 goes, with 49 of
/// its 50 tokens. It knows 199, which leave 1 block of 200: as nobody else is there when 1 ends at
/// 681, it comes back and computes them for 209 ms. By swap nothing is computed again: its KV moves
/// for 0.198 ms in the step from 651, and as long in that from 681.2.
#[test]
fn who_comes_back_to_an_empty_batch_leaves_nothing_free() {
    let mut settings = pool(200, 1);
    settings.order = Order::Priority;
    let policy = PrefillFirst::new(8, 300).unwrap();
    let rows = [(0, 150, 50), (625, 1, 5)];
    insta::assert_snapshot!(run(policy, settings, &rows), @"
    0: starts 0, first token 160, last 890; out from 651 to 681, loses 198
    1: starts 630, first token 641, last 681
    ");
    let per_token = "1us".parse().unwrap();
    let policy = policy.with_preemption(Preemption::Swap { per_token }).unwrap();
    insta::assert_snapshot!(run(policy, settings, &rows), @"
    0: starts 0, first token 160, last 691.396; out from 651 to 681.198, loses 0
    1: starts 630, first token 641, last 681.198
    ");
}

/// Ten blocks of 4 tokens hold 40: a request of 30 and 12 tokens stores 41.
#[test]
fn who_could_never_end_is_refused_at_arrival() {
    let policy = Orca::new(8).unwrap();
    insta::assert_snapshot!(run(policy, pool(10, 4), &[(0, 30, 12), (0, 30, 11)]), @"
    0: refused, it needs 11 KV blocks to be admitted and to end, and there are 10
    1: starts 0, first token 40, last 140
    ");
}

/// One slot. The first runs; of the others the one with the fewest tokens is next: 2, then 1.
#[test]
fn the_shortest_job_is_next() {
    let mut settings = ServerSettings::default();
    settings.order = Order::ShortestJob;
    let rows = [(0, 10, 1), (1, 30, 1), (2, 20, 1)];
    insta::assert_snapshot!(run(Orca::new(1).unwrap(), settings, &rows), @"
    0: starts 0, first token 20, last 20
    1: starts 50, first token 90, last 90
    2: starts 20, first token 50, last 50
    ");
}

/// One slot, one place in the queue: of three that come at once, the third is refused. The first
/// ends at 20, the second at 40.
#[test]
fn a_full_queue_refuses_who_arrives() {
    let rows = [(0, 10, 1), (1, 10, 1), (2, 10, 1)];
    let mut settings = ServerSettings::default();
    settings.max_waiting = Some(1);
    insta::assert_snapshot!(run(Orca::new(1).unwrap(), settings, &rows), @"
    0: starts 0, first token 20, last 20
    1: starts 20, first token 40, last 40
    2: refused, requests waiting are 1, at most 1 may
    ");
    settings.max_waiting = None;
    settings.max_waiting_tokens = Some(19);
    insta::assert_snapshot!(run(Orca::new(1).unwrap(), settings, &rows), @"
    0: starts 0, first token 20, last 20
    1: starts 20, first token 40, last 40
    2: refused, 20 tokens would wait for prefill, and at most 19 may
    ");
}
