//! The tools' rules on inputs whose figures can be had by hand.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use metrics_core::interval::Confidence;
use metrics_core::report::{Input, Report};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use metrics_core::timeline::{GapKind, TimelineFields};
use metrics_core::tool_rules::{
    FAULTS, Known, RULES, Tool, ToolFigure, Topic, fault, figures, rule, same_figure,
};
use metrics_core::{Instant, Outcome, RequestTimeline};
use proptest::prelude::*;

/// A streamed request: when it was sent, its chunks as (instant after sending, tokens).
fn streamed(id: &str, sent: f64, chunks: &[(f64, u64)]) -> RequestTimeline {
    let times: Vec<f64> = chunks.iter().map(|c| c.0).collect();
    let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    RequestTimeline::new(TimelineFields {
        id: id.to_owned(),
        arrival: Some(Instant::Seconds(sent)),
        ttft: times.first().copied(),
        e2e: times.last().copied(),
        gaps: Some((GapKind::Chunk, gaps)),
        input_tokens: Some(100),
        output_tokens: Some(chunks.iter().map(|c| c.1).sum()),
        ..TimelineFields::default()
    })
    .unwrap()
}

fn failed(id: &str, sent: f64) -> RequestTimeline {
    RequestTimeline::new(TimelineFields {
        id: id.to_owned(),
        arrival: Some(Instant::Seconds(sent)),
        outcome: Outcome::Failed,
        ..TimelineFields::default()
    })
    .unwrap()
}

/// The figures of these requests under a tool's rules.
fn under(tool: Tool, timelines: &[RequestTimeline], goodput: &[&str]) -> Vec<ToolFigure> {
    let slo = SloSet::from_goodput(goodput.iter().copied()).unwrap();
    let input = Input {
        timelines,
        window: None,
        truncated: false,
        slo: &slo,
        method: PercentileMethod::Linear,
        confidence: Confidence::new(0.95).unwrap(),
    };
    let report = Report::new(&input).unwrap();
    let known =
        Known { input: &input, report: &report, columns: &[], numbers: &[], percentiles: &[99.0] };
    figures(tool, &known)
}

fn value(figures: &[ToolFigure], key: &str) -> f64 {
    let found = figures.iter().find(|f| f.key == key).unwrap_or_else(|| panic!("no {key}"));
    *found.value.as_ref().unwrap_or_else(|why| panic!("{key}: {why}"))
}

#[track_caller]
fn near(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{a} is not {b}");
}

/// vllm#27485: 9 tokens in chunks of 1, 4 and 4 with gaps of 100 ms. What vLLM calls ITL is the gap
/// of 100 ms; TPOT is 200 ms over 8 gaps; llmperf has (100 + 200) / 3 lines; inference-perf stamps
/// each token, so that 200 ms are spread over 8 gaps, six of them 0.
#[test]
fn a_chunk_of_four_tokens_under_every_rule() {
    let requests = [streamed("a", 0.0, &[(0.1, 1), (0.2, 4), (0.3, 4)])];
    let vllm = under(Tool::Vllm, &requests, &[]);
    near(value(&vllm, "mean_itl_ms"), 100.0);
    near(value(&vllm, "mean_tpot_ms"), 25.0);
    let itl = vllm.iter().find(|f| f.key == "mean_itl_ms").unwrap();
    assert_eq!(itl.fault.unwrap().id, "vllm-gap-per-chunk");
    let llmperf = under(Tool::Llmperf, &requests, &[]);
    near(value(&llmperf, "results_inter_token_latency_s_mean"), 0.1);
    let perf = under(Tool::InferencePerf, &requests, &[]);
    near(value(&perf, "successes.latency.inter_token_latency.mean"), 0.025);
    near(value(&perf, "successes.latency.inter_token_latency.median"), 0.0);
}

/// guidellm#1144: the whole second of the first request over its two tokens, and 0.19 s over ten,
/// weighted by tokens: (1.1 + 0.19) / 12 = 107.5 ms, where the mean of ours is (100 + 10) / 2.
#[test]
fn guidellm_counts_the_prefill_in_its_tpot() {
    let ten: Vec<(f64, u64)> = (0..10).map(|i| (0.1 + 0.01 * f64::from(i), 1)).collect();
    let requests = [streamed("a", 0.0, &[(1.0, 1), (1.1, 1)]), streamed("b", 0.0, &ten)];
    let figures = under(Tool::Guidellm, &requests, &[]);
    near(value(&figures, "time_per_output_token_ms.successful.mean"), 107.5);
    let tpot =
        figures.iter().find(|f| f.key == "time_per_output_token_ms.successful.mean").unwrap();
    near(tpot.ours.unwrap(), 55.0);
    assert_eq!(tpot.difference().unwrap().topic, Topic::Tpot);
    // (0.1 + 0.09) / (1 + 9) of its `inter_token_latency`.
    near(value(&figures, "inter_token_latency_ms.successful.mean"), 19.0);
}

/// llmperf#99: (0.5 + 0.02 + 0.02) / 3 lines is 180 ms, where TPOT is 40 ms over 6 gaps.
#[test]
fn llmperf_counts_ttft_in_its_itl() {
    let requests = [streamed("a", 0.0, &[(0.5, 1), (0.52, 3), (0.54, 3)])];
    let figures = under(Tool::Llmperf, &requests, &[]);
    near(value(&figures, "results_inter_token_latency_s_mean"), 0.18);
}

/// Three good requests in 4 s, one of them with one token, and a failed one, under each tool's
/// goodput: with 0 for the TPOT of one token all 3 are good; AIPerf and inference-perf have no value
/// there, so 2 are; GuideLLM leaves the one-token answer out of its base.
#[test]
fn one_token_and_a_failure_under_every_goodput() {
    let two = [(0.1, 1), (0.2, 1)];
    let requests = [
        streamed("a", 0.0, &two),
        streamed("b", 1.0, &[(0.1, 1)]),
        streamed("c", 3.8, &two),
        failed("d", 2.0),
    ];
    let limits = ["ttft:500", "tpot:150"];
    let of = |tool| under(tool, &requests, &limits);
    near(value(&of(Tool::Vllm), "request_goodput"), 3.0 / 4.0);
    let sglang = of(Tool::Sglang);
    near(value(&sglang, "request_goodput"), 3.0 / 4.0);
    near(value(&sglang, "slo_attainment"), 3.0 / 4.0);
    let aiperf = of(Tool::Aiperf);
    near(value(&aiperf, "good_request_count"), 2.0);
    near(value(&aiperf, "good_request_fraction"), 2.0 / 4.0);
    let perf = of(Tool::InferencePerf);
    near(value(&perf, "successes.goodput_metrics.goodput_percentage"), 200.0 / 3.0);
    near(value(&of(Tool::Guidellm), "slo_attainment"), 2.0 / 3.0);
    near(value(&of(Tool::DistServe), "attainment"), 3.0 / 4.0);
}

/// 20 requests of 1 ms one after the other, 40 ms apart: never two at once, and all 20 touch the
/// first second.
#[test]
fn buckets_of_a_second_count_requests_that_never_met() {
    let requests: Vec<RequestTimeline> = (0..20)
        .map(|i| streamed(&i.to_string(), 0.04 * f64::from(i), &[(0.0005, 1), (0.001, 1)]))
        .collect();
    let figures = under(Tool::Vllm, &requests, &[]);
    near(value(&figures, "max_concurrent_requests"), 20.0);
    near(value(&figures, "max_output_tokens_per_s"), 40.0);
    let peak = figures.iter().find(|f| f.key == "max_concurrent_requests").unwrap();
    assert_eq!(peak.ours, Some(1.0));
    assert_eq!(peak.difference().unwrap().topic, Topic::InFlight);
}

/// With two failed requests at infinity, the median of five is the third, 3 s, and the third quartile
/// is the fourth, which is infinite.
#[test]
fn aiperf_puts_failed_requests_at_infinity() {
    let mut requests: Vec<RequestTimeline> = (1..4)
        .map(|i| streamed(&i.to_string(), 0.0, &[(f64::from(i), 1), (f64::from(i) + 1.0, 1)]))
        .collect();
    requests.extend([failed("d", 0.0), failed("e", 0.0)]);
    let figures = under(Tool::Aiperf, &requests, &[]);
    near(value(&figures, "adj_time_to_first_token_p50_ms"), 3000.0);
    let p75 = figures.iter().find(|f| f.key == "adj_time_to_first_token_p75_ms").unwrap();
    assert!(p75.value.as_ref().unwrap_err().contains("infinitely slow"), "{p75:?}");
}

/// vllm#4987: without a completed request there is no latency, where the tool prints 0.00.
#[test]
fn without_a_completed_request_there_is_no_latency() {
    for tool in Tool::ALL {
        for f in under(tool, &[failed("a", 0.0)], &["ttft:100"]) {
            let latency = ["ttft", "tpot", "itl", "e2e", "latency", "token_ms"];
            if latency.iter().any(|l| f.key.contains(l)) && !f.key.contains("attainment") {
                assert!(f.value.is_err(), "{} {f:?}", tool.name());
            }
        }
    }
}

/// What cannot be had says why in a clause; what can is the same under equal rules.
#[test]
fn what_a_run_lacks_is_a_reason() {
    let ttft_only = RequestTimeline::new(TimelineFields {
        id: "a".to_owned(),
        ttft: Some(0.1),
        ..TimelineFields::default()
    })
    .unwrap();
    for tool in Tool::ALL {
        let figures = under(tool, std::slice::from_ref(&ttft_only), &["tpot:10"]);
        let reasons: Vec<&String> = figures.iter().filter_map(|f| f.value.as_ref().err()).collect();
        assert!(!reasons.is_empty(), "{}", tool.name());
        assert!(reasons.iter().all(|r| !r.is_empty() && !r.ends_with('.')), "{reasons:?}");
    }
    near(value(&under(Tool::Vllm, &[ttft_only], &[]), "mean_ttft_ms"), 100.0);
}

#[test]
fn every_tool_has_a_rule_on_every_topic() {
    for tool in Tool::ALL {
        assert_eq!(tool.name().parse::<Tool>().unwrap(), tool);
        for topic in Topic::ALL {
            let rule = rule(tool, topic)
                .unwrap_or_else(|| panic!("{} has no rule on {topic:?}", tool.name()));
            assert!(!rule.says.en.ends_with('.') && !rule.says.zh.is_empty(), "{rule:?}");
        }
    }
    assert_eq!(RULES.len(), Tool::ALL.len() * Topic::ALL.len(), "a rule stands twice");
    for f in FAULTS {
        assert_eq!(fault(f.id), Some(f), "a fault's id stands twice");
    }
    let unknown = "locust".parse::<Tool>().unwrap_err().to_string();
    assert!(unknown.contains("vllm, sglang, aiperf"), "{unknown}");
}

proptest! {
    /// On runs without failures, one-token answers and chunks of several tokens, sent at once when
    /// due, tools that say that they have our rule have our figures.
    #[test]
    fn equal_rules_give_equal_figures(
        requests in proptest::collection::vec((0_u16..500, proptest::collection::vec(1_u16..400, 2..6)), 1..20),
    ) {
        let timelines: Vec<RequestTimeline> = requests
            .iter()
            .enumerate()
            .map(|(i, (sent, gaps))| {
                let mut at = 0.0;
                let chunks: Vec<(f64, u64)> = gaps
                    .iter()
                    .map(|g| {
                        at += f64::from(*g) / 1e3;
                        (at, 1)
                    })
                    .collect();
                streamed(&i.to_string(), f64::from(*sent) / 1e3, &chunks)
            })
            .collect();
        for tool in Tool::ALL {
            for f in under(tool, &timelines, &["ttft:100", "tpot:100", "e2e:600"]) {
                if let Ok(x) = f.value {
                    prop_assert!(x.is_finite());
                }
            }
        }
        for (tool, keys) in [
            (Tool::Vllm, &["mean_ttft_ms", "p99_tpot_ms", "std_itl_ms", "request_goodput"][..]),
            (Tool::Sglang, &["mean_tpot_ms", "median_e2e_latency_ms", "slo_attainment"]),
            (Tool::Aiperf, &["inter_token_latency_p95_ms", "good_request_fraction"]),
            (Tool::InferencePerf, &["successes.latency.time_to_first_token.p99"]),
            (Tool::DistServe, &["attainment"]),
        ] {
            let figures = under(tool, &timelines, &["ttft:100", "tpot:100", "e2e:600"]);
            for key in keys {
                let f = figures.iter().find(|f| f.key == *key).unwrap();
                prop_assert!(
                    same_figure(*f.value.as_ref().unwrap(), f.ours.unwrap()),
                    "{} {f:?}", tool.name()
                );
            }
        }
    }
}
