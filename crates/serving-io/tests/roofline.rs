//! Step times from model and GPU against published measurements, and the floor below all of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

use metrics_core::RequestTimeline;
use metrics_core::slo::SloSet;
use metrics_core::table::RequestTable;
use metrics_core::timeline::{Instant, TimelineFields};
use metrics_core::validity::evidence::Bound;
use metrics_core::validity::{Evidence, Facts, Level, Subject, findings};
use sched_sim::{StepTime, StepWork};
use serde_json::Value;
use serving_io::machine::Machine;
use serving_io::roofline::{Floor, RooflineSource};
use serving_io::scenario::StepTimeSource;

fn near(got: f64, want: f64, relative: f64) {
    assert!((got / want - 1.0).abs() <= relative, "{got} against {want}");
}

fn case(id: &str) -> Value {
    let text = include_str!("../../metrics-core/tests/data/worked-cases.jsonl");
    let mut cases = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    cases.find(|c| c["id"] == id).unwrap()
}

fn floor(model: &str, gpu: &str, tp: u32) -> Floor {
    Floor::of(&Machine::named(model, gpu, tp).unwrap(), None).unwrap()
}

fn decode(batch: u64, context: u64) -> StepWork {
    let mut work = StepWork::default();
    (work.decodes, work.decode_context) = (batch, batch * context);
    work
}

fn prefill(prompts: u64, tokens: u64) -> StepWork {
    let mut work = StepWork::default();
    (work.prefills, work.prefill_tokens) = (prompts, prompts * tokens);
    work.attention_doubled = u128::from(prompts * tokens * tokens);
    work
}

/// K025 and K026: one token of Llama-3-8B on H100 at 1k of context, and at 200k by the bandwidth that
/// the first reaches.
#[test]
fn a_single_decode_is_bound_by_bandwidth() {
    let floor = floor("llama-3-8b", "h100", 1);
    let (short, long) = (case("K025"), case("K026"));
    let at = |tokens| floor.tpot_s(tokens).unwrap() * 1e3;
    near(at(1024), short["predicted"].as_f64().unwrap(), 0.002);
    assert!(at(1024) < short["observed"].as_f64().unwrap());
    let mbu = long["inputs"]["mbu_from_1k"].as_f64().unwrap();
    near(
        at(204_800) / mbu,
        long["observed"].as_f64().unwrap(),
        long["tolerance"].as_f64().unwrap(),
    );
}

/// K028 and K029: tokens per second of LLaMA-7B on an A100 in static batches, at a share of the
/// roofline that another row of the same table gives.
#[test]
fn static_batches_reach_their_share_of_the_roofline() {
    // The shape of the first LLaMA is that of the second.
    let source: RooflineSource = "model=llama-2-7b,gpu=a100,mfu=1,mbu=1".parse().unwrap();
    let t = source.step_time().unwrap();
    for id in ["K028", "K029"] {
        let c = case(id);
        let n = |key: &str| c["inputs"][key].as_u64().unwrap();
        let (batch, isl, osl) = (n("batch"), n("isl"), n("osl"));
        let mut seconds = t.step(&prefill(batch, isl)).seconds();
        for i in 0..osl {
            seconds += t.step(&decode(batch, isl + i)).seconds();
        }
        let rate = c["inputs"]["eta"].as_f64().unwrap() * (batch * osl) as f64 / seconds;
        near(rate, c["observed"].as_f64().unwrap(), c["tolerance"].as_f64().unwrap());
    }
}

/// K031: a server whose batch the KV cache bounds: each request costs its prefill and its share of
/// the decode steps.
#[test]
fn a_batch_that_kv_bounds_has_its_published_throughput() {
    let c = case("K031");
    let source: RooflineSource = "model=llama-3.1-8b,gpu=h100,mfu=0.6,mbu=0.85".parse().unwrap();
    let t = source.step_time().unwrap();
    let batch = c["inputs"]["batch"].as_f64().unwrap();
    let step = t.step(&decode(82, 4096 + 1024)).seconds() / 82.0 * batch;
    let request = 2048.0 * step / batch + t.step(&prefill(1, 4096)).seconds();
    near(2048.0 / request, c["observed"].as_f64().unwrap(), c["tolerance"].as_f64().unwrap());
}

/// Published claims: 66 ms for an 8k prompt of an 8B model on an H100, whose floor is 2 · 6.98 · 10^9 ·
/// 8,192 / 989.4 · 10^12 = 115.6 ms, and which kernels take 194 ms for.
#[test]
fn the_floor_of_a_prompt_tells_a_claim_from_a_measurement() {
    let ttft = floor("llama-3.1-8b", "h100", 1).ttft_s(8192).unwrap();
    assert!(0.066 < 0.95 * ttft && ttft < 0.194, "{ttft}");
    // Half on two GPUs; a short prompt reads the weights at least.
    near(floor("llama-3.1-8b", "h100", 2).ttft_s(8192).unwrap(), ttft / 2.0, 1e-12);
    let weights = 2.0 * (8_030_261_248.0 - 128_256.0 * 4096.0) / 3.35e12;
    near(floor("llama-3.1-8b", "h100", 1).ttft_s(1).unwrap(), weights, 1e-9);
}

/// Of a mixture, a single token reads and computes what it passes: 3.35 of 30.5 · 10^9.
#[test]
fn experts_are_read_as_far_as_they_are_chosen() {
    let t = "model=qwen3-30b-a3b,gpu=h100,mfu=1,mbu=1".parse::<RooflineSource>().unwrap();
    let t = t.step_time().unwrap();
    let ms = |batch| t.step(&decode(batch, 0)).seconds() * 1e3;
    let table = 151_936.0 * 2048.0;
    let one = 2.0 * (3_353_032_704.0 - table) / 3.35e12 * 1e3;
    near(ms(1), one, 1e-6);
    near(ms(1), floor("qwen3-30b-a3b", "h100", 1).tpot_s(0).unwrap() * 1e3, 1e-6);
    // 32 tokens of 8 of 128 leave (15/16)^32 = 12.7 % of the experts; 10,000 tokens none.
    let experts = 48.0 * 128.0 * 3.0 * 2048.0 * 768.0 * 2.0 / 3.35e12 * 1e3;
    let rest = one - experts / 16.0;
    near(ms(32), rest + experts * (1.0 - (15.0_f64 / 16.0).powi(32)), 1e-6);
}

fn timelines(ttft: f64, tpot: f64) -> RequestTable {
    let of = |i: u32| {
        RequestTimeline::new(TimelineFields {
            id: i.to_string(),
            arrival: Some(Instant::Seconds(f64::from(i))),
            ttft: Some(ttft),
            e2e: Some(ttft + 99.0 * tpot),
            input_tokens: Some(4096),
            output_tokens: Some(100),
            ..TimelineFields::default()
        })
        .unwrap()
    };
    RequestTable::of(&(0..30).map(of).collect::<Vec<_>>())
}

/// 4,096 tokens take 57.8 ms of an H100, and a decode step 4.64 ms: a run below either is an error for
/// that figure alone, one above or within 5 % below is none.
///
/// Slow is a TPOT for its load: at one request a second 0.05 s keep 5.05 in flight, whose step reads
/// 15.01 GB of weights and 5.05 · 4,146 tokens of 131,072 bytes, 5.3 ms; 0.05 s is 9 times that.
#[test]
fn a_run_that_is_faster_than_its_machine_is_an_error_and_one_far_slower_a_warning() {
    let floor = floor("llama-3.1-8b", "h100", 1);
    let raised = |ttft, tpot| {
        let table = timelines(ttft, tpot);
        let slo = SloSet::none();
        let ideal = floor.against(&table).unwrap();
        let facts = Facts::new(&Evidence { ideal: &ideal, ..Evidence::of(&table, &slo) });
        let found = findings(&facts).into_iter().filter(|f| f.check.id == "W25");
        found.map(|f| (f.level, f.affects)).collect::<Vec<_>>()
    };
    let (error, warn) = (Level::Error, Level::Warn);
    let (ttft, tpot) = (vec![Subject::Ttft], vec![Subject::Tpot]);
    assert_eq!(raised(0.1, 0.01), []);
    assert_eq!(raised(0.03, 0.01), [(error, ttft.clone())]);
    assert_eq!(raised(0.1, 0.003), [(error, tpot.clone())]);
    assert_eq!(raised(0.03, 0.003), [(error, ttft), (error, tpot.clone())]);
    assert_eq!(raised(0.057, 0.0046), []);
    // Queueing makes any TTFT, and as many in flight a longer step.
    assert_eq!(raised(10.0, 0.025), []);
    assert_eq!(raised(0.1, 0.05), [(warn, tpot)]);
}

/// Requests that arrive within a second and are served one after the other, or by servers of their
/// own, have a step of their own: 30 in the system for 30 s are no batch of 30.
///
/// A prompt of 131,000 tokens reads 15.01 GB and 17.2 GB at 3.35 TB/s, 9.6 ms; 30 of them in a step
/// would be 158 ms, sixteen times as much.
#[test]
fn who_waits_or_is_served_elsewhere_is_in_no_batch() {
    let floor = floor("llama-3.1-8b", "h100", 1);
    let of = |i: u32| {
        RequestTimeline::new(TimelineFields {
            id: i.to_string(),
            arrival: Some(Instant::Seconds(f64::from(i) / 30.0)),
            ttft: Some(28.0),
            e2e: Some(28.0 + 199.0 * 0.010),
            input_tokens: Some(131_000),
            output_tokens: Some(200),
            ..TimelineFields::default()
        })
        .unwrap()
    };
    let table = RequestTable::of(&(0..30).map(of).collect::<Vec<_>>());
    let ideal = floor.against(&table).unwrap();
    let [tpot] = ideal.as_slice() else { panic!("{ideal:?}") };
    assert_eq!((tpot.subject, tpot.bound), (Subject::Tpot, Bound::Load));
    assert!(10.0 * tpot.measured_s < tpot.bound_s, "{tpot:?}");
    let slo = SloSet::none();
    let facts = Facts::new(&Evidence { ideal: &ideal, ..Evidence::of(&table, &slo) });
    assert!(findings(&facts).iter().all(|f| f.check.id != "W25"));
}

/// Boards for desks run above the boost clock of their peak: the 182 TFLOP/s that kernels of an
/// RTX 4090 reached are no error, twice its peak is one.
#[test]
fn a_board_may_run_above_its_boost_clock() {
    let floor = floor("llama-3.1-8b", "rtx 4090", 1);
    let peak = 2.0 * 6_979_588_096.0 * 8192.0 / 165.2e12;
    near(floor.ttft_s(8192).unwrap(), peak / 1.25, 1e-9);
}

#[test]
fn what_a_roofline_lacks_is_named() {
    let said = |text: &str| text.parse::<StepTimeSource>().unwrap_err().to_string();
    for (text, expected) in [
        ("roofline:", "expected one of `model`"),
        ("roofline:model=llama-3.1-8b", "expected gpu=NAME"),
        ("roofline:gpu=h100", "expected model=NAME or config=FILE"),
        ("roofline:model=llama-3.1-8b,gpu=h100,mfu=50", "mfu: found `50`, expected a share"),
        ("roofline:model=llama-3.1-8b,gpu=h100,mbu=0", "mbu: found `0`, expected a share"),
        ("roofline:model=llama-3.1-8b,gpu=h100,tp=0", "tp: found `0`"),
        ("roofline:model=llama-3.1-8b,gpu=h100,tp=3", "8 KV heads cannot be divided over 3 GPUs"),
        ("roofline:model=llama-3.1-8b,gpu=h100,gpu=a100", "expected gpu once"),
        ("roofline:model=llama-3.1-8b,gpu=", "expected gpu=VALUE"),
        ("roofline:model=llama-3.1-8b,gpu=h1000", "nearest are"),
        ("roofline:model=llama-3.1-8b,gpu=h100,overhead=1", "1"),
    ] {
        let said = said(text);
        assert!(said.contains(expected), "{text}: {said}");
    }
    let source: RooflineSource = "model=llama-3.1-8b,gpu=h100,tp=2".parse().unwrap();
    let about = source.about().join("\n");
    assert!(about.contains("not validated") && about.contains("communication"), "{about}");
    let bound: RooflineSource = "model=llama-3.1-8b,gpu=h100,mfu=1,mbu=1".parse().unwrap();
    assert!(bound.about().join("\n").contains("a bound"));
}
