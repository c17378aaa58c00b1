//! The public cases about Little's law, rooflines, queues, fluid growth and plans, each within its
//! own tolerance. Those about KV, costs and reports stand beside their commands.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

use capacity::plan::{LoadSpec, Method, PlanRequest, plan, scheduler};
use metrics_core::roofline::prefill_time_lower_bound;
use metrics_core::units::FlopPerSecond;
use queueing::approx::wait_factor;
use queueing::little::little_w;
use queueing::{Md1, Mmc, Queue};
use sched_sim::{
    Affine, DecodeFirst, Simulation, StepTime, StepWork, Ticks, Workload, WorkloadRequest,
};
use serde_json::Value;
use serving_io::engine::EngineOptions;
use serving_io::machine::Machine;
use serving_io::roofline::RooflineSource;

/// A case of the file.
struct Case(Value);

impl Case {
    fn find(id: &str) -> Self {
        let text = include_str!("../../metrics-core/tests/data/worked-cases.jsonl");
        let mut cases = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        Self(cases.find(|c| c["id"] == id).unwrap_or_else(|| panic!("no case {id}")))
    }

    fn x(&self, key: &str) -> f64 {
        self.0["inputs"][key].as_f64().unwrap_or_else(|| panic!("no {key} in {}", self.0))
    }

    fn list(&self, key: &str) -> Vec<f64> {
        let list = self.0["inputs"][key].as_array().unwrap();
        list.iter().map(|x| x.as_f64().unwrap()).collect()
    }

    fn predicted(&self) -> f64 {
        self.0["predicted"].as_f64().unwrap()
    }

    /// Within the case's tolerance of what was observed, and within 1 % of what its formula gives.
    fn holds(&self, got: f64) {
        let id = &self.0["id"];
        let predicted = self.predicted();
        assert!((got / predicted - 1.0).abs() <= 0.01, "{id}: {got}, predicted {predicted}");
        if let Some(tolerance) = self.0["tolerance"].as_f64() {
            let want = self.0["observed"].as_f64().unwrap_or(predicted);
            assert!((got / want - 1.0).abs() <= tolerance, "{id}: {got}, observed {want}");
        }
    }
}

/// Thirteen to fifteen requests run at half a request a second: 28 s each.
#[test]
fn what_runs_over_its_rate_is_its_time() {
    let c = Case::find("K011");
    let running = c.list("running");
    let mean = running.iter().sum::<f64>() / running.len() as f64;
    c.holds(little_w(mean, c.x("rate")).unwrap());
}

/// How many tokens of the KV cache a token of the budget costs, from two starts of an engine.
#[test]
fn a_larger_token_budget_takes_kv() {
    let c = Case::find("K023");
    let (budget, blocks) = (c.list("budget"), c.list("blocks"));
    let tokens = |i: usize| {
        let mut engine = EngineOptions::default();
        engine.set("num_kv_blocks", &blocks[i].to_string()).unwrap();
        let source = "base=10ms".parse().unwrap();
        let (server, _) = scheduler("vllm-v1", None, None, engine, &source).unwrap();
        server.kv_tokens().unwrap() as f64
    };
    c.holds((tokens(0) - tokens(1)) / (budget[1] - budget[0]));
}

/// The seconds that a chunk of one prompt with `decodes` beside it computes, as the case counts
/// them: every token through every parameter, the output head too, and attention.
fn computed_s(model: &str, gpu: &str, mfu: f64, chunk: u64, decodes: u64) -> f64 {
    let machine = Machine::named(model, gpu, 1).unwrap();
    let all = machine.model.parameters().unwrap().total;
    let peak = FlopPerSecond::new(989e12 * mfu).unwrap();
    let dense = prefill_time_lower_bound(all, chunk + decodes, peak).unwrap().get();
    let source: RooflineSource =
        format!("model={model},gpu={gpu},mfu={mfu},mbu=1").parse().unwrap();
    let step_time = source.step_time().unwrap();
    let step = |pairs: u128| {
        let mut work = StepWork::default();
        (work.prefills, work.prefill_tokens, work.attention_doubled) = (1, chunk, pairs);
        step_time.step(&work).seconds()
    };
    dense + step(u128::from(chunk * chunk)) - step(0)
}

/// A chunk of 9,000 with 32 decodes on an H200, and the rate of 6,000-token prompts on an H100.
#[test]
fn a_step_that_computes_takes_its_operations() {
    let c = Case::find("K034");
    c.holds(computed_s("qwen3-8b", "h200", c.x("mfu"), 9000, 32) * 1e3);
    let c = Case::find("K035");
    let most = 1.0 / computed_s("llama-3.1-8b", "h100", c.x("mfu"), 6000, 0);
    c.holds(most);
    assert!(most < c.x("rate"), "the server was saturated");
}

/// Sixteen seats at sixteen requests a second leave each a second: as many tokens as steps fit in.
#[test]
fn seats_bound_the_length_of_answers() {
    let c = Case::find("K038");
    let tpot_ms = c.0["inputs"]["tpot_ms"]["16"].as_f64().unwrap();
    c.holds(little_w(16.0, c.x("rate")).unwrap() / (tpot_ms / 1e3));
}

/// Gamma gaps with a CV of 3 against Poisson, service times with a CV of 1.5, as the thread says.
#[test]
fn bursts_wait_longer_by_kingmans_factor() {
    Case::find("K040").holds(wait_factor(9.0, 2.25).unwrap());
}

/// The waits at a server that takes one request at a time for exactly 1 / `mu`, in order of arrival.
fn waits(arrivals: impl Iterator<Item = f64>, mu: f64) -> Vec<f64> {
    let request = |(i, at): (usize, f64)| {
        WorkloadRequest::new(i as u64, Ticks::from_seconds(at).unwrap(), 1, 1)
    };
    let workload = Workload::new(arrivals.enumerate().map(request).collect()).unwrap();
    // The prompt takes a step, and its answer of one token another.
    let step_time: Affine = format!("base={}ns", (5e8 / mu).round()).parse().unwrap();
    let server = DecodeFirst::new(1, 1).unwrap();
    let result = Simulation::new(&workload, server, &step_time).run().unwrap();
    let timelines = result.timelines().unwrap();
    timelines.iter().map(|t| t.e2e_latency().unwrap().get() - 1.0 / mu).collect()
}

/// Above what a server does, the mean wait grows with the run: at 10/s 7.67 times as fast as at 6/s.
#[test]
fn a_wait_above_saturation_measures_the_run() {
    let c = Case::find("K043");
    let mean = |rate: f64| {
        let n = (rate * 60.0).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "hundreds")]
        let all = waits((0..n as u64).map(|i| i as f64 / rate), c.x("mu"));
        all.iter().sum::<f64>() / all.len() as f64
    };
    let rates = c.list("rates");
    // Half of the surplus over a minute: 0.6 / 5.4 · 30 s, but for one request.
    assert!((mean(rates[0]) / (0.6 / 5.4 * 30.0) - 1.0).abs() < 0.01);
    c.holds(mean(rates[1]) / mean(rates[0]));
}

/// A rate that swings between 1 and 24 a second over 11.5: the queue is longest when it comes back.
#[test]
fn a_sine_above_saturation_waits_as_a_fluid_does() {
    let c = Case::find("K044");
    let (end, swing) = (c.x("T"), 900.0 / std::f64::consts::TAU);
    let arrived = |t: f64| 12.5 * t - 11.5 * swing * (t / swing).sin();
    // The instant of the k-th arrival.
    let when = |k: u64| {
        let (mut low, mut high) = (0.0, end);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if arrived(middle) < k as f64 { low = middle } else { high = middle }
        }
        high
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "thousands")]
    let all = waits((1..=arrived(end) as u64).map(when), c.x("mu"));
    c.holds(all.into_iter().fold(0.0, f64::max));
}

/// A peak of 8/s on replicas that bear 4.5/s: two, by the closed form of a plan.
#[test]
fn a_peak_over_what_a_replica_bears_is_rounded_up() {
    let c = Case::find("K046");
    let load = LoadSpec::Rate { per_s: c.x("peak"), cv: 1.0 };
    // One seat, a step for the prompt and one for the answer.
    let asked = PlanRequest {
        input_tokens: Some("1".to_owned()),
        output_tokens: Some("1".to_owned()),
        step_time: Some(format!("base={}ns", (5e8 / c.x("mu")).round())),
        policy: "decode-first".to_owned(),
        max_num_seqs: Some(1),
        ..PlanRequest::new(load)
    };
    let answer = plan(&asked, None).unwrap();
    assert!((answer.bounds.unwrap().least_per_s / c.x("mu") - 1.0).abs() < 1e-6, "{answer:?}");
    let by_hand = answer.methods.iter().find(|m| m.method == Method::ClosedForm).unwrap();
    c.holds(by_hand.replicas.unwrap() as f64);
}

/// A thousand requests at once at 2.3 a second: the last is done after 434.8 s.
#[test]
fn the_last_of_a_burst_waits_for_all_others() {
    let c = Case::find("K047");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a thousand")]
    let all = waits((0..c.x("n") as u64).map(|_| 0.0), c.x("mu"));
    c.holds(all.into_iter().fold(0.0, f64::max) + 1.0 / c.x("mu"));
}

/// A router that gives one of two replicas 78.5 % of the requests.
#[test]
fn an_uneven_split_costs_what_two_queues_say() {
    let c = Case::find("K049");
    let (rate, s, split) = (c.x("rate"), c.x("s"), c.x("split"));
    let part = |share: f64| share * Md1::new(rate * share, s).unwrap().w();
    c.holds((part(split) + part(1.0 - split)) * 1e3);
}

#[test]
fn erlang_c_gives_the_published_waits() {
    for id in ["K050", "K052", "K053"] {
        let c = Case::find(id);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "4 or 8")]
        let servers = c.x("c") as u64;
        let queue = Mmc::new(c.x("rho") * c.x("c"), 1.0, servers).unwrap();
        assert!((queue.wq() - c.predicted()).abs() <= 1e-6, "{id}: {}", queue.wq());
    }
}
