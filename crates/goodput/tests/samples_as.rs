//! Every sample under its own tool's rule is what the tool printed, or the fault is named.
//!
//! The samples lie in `GOODPUT_DATA` (by default `../shared/data` beside the workspace); a tool whose
//! reader is not there yet is left out, and said to be.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A sample with its tool and the limits that the run was given.
const SAMPLES: &[(&str, &str, &str)] = &[
    ("vllm", "vllm-0.33.0/append2.json", ""),
    ("vllm", "vllm-0.33.0/chat-chunk4.json", "tpot:13 e2el:600"),
    ("vllm", "vllm-0.33.0/closed-c8.json", "ttft:60 tpot:12 e2el:350"),
    ("vllm", "vllm-0.33.0/nodetail.json", "ttft:40"),
    ("vllm", "vllm-0.33.0/preempt.json", "ttft:300 tpot:15"),
    ("vllm", "vllm-0.33.0/rate20-fail.json", "ttft:150 tpot:15"),
    ("sglang", "sglang-0.5.23/chat-gsp-cache.jsonl", "ttft:80 e2el:300"),
    ("sglang", "sglang-0.5.23/native-c8.jsonl", "ttft:100 tpot:15 e2el:500"),
    ("sglang", "sglang-0.5.23/oai-rate15-fail.jsonl", "ttft:150 tpot:20"),
    ("aiperf", "aiperf-0.13.0/closed-c8", "time_to_first_token:100 inter_token_latency:15"),
    ("aiperf", "aiperf-0.13.0/prefix-cache", "time_to_first_token:60 inter_token_latency:12"),
    ("aiperf", "aiperf-0.13.0/rate15-fail", "time_to_first_token:150 request_latency:800"),
    ("guidellm", "guidellm-0.8.1/conc.json", "ttft:80 tpot:14 e2el:500"),
    ("guidellm", "guidellm-0.8.1/rate12-fail.json", "ttft:100 tpot:15"),
    ("inference-perf", "inference-perf-0.7.0/conc", "ttft:200 tpot:30"),
    ("inference-perf", "inference-perf-0.7.0/poisson-fail", "ttft:200 tpot:30"),
];

/// Figures that may differ from what their tool printed, with the fault that has to be named.
const FAULTS: &[(&str, &str)] = &[
    ("sglang", "sglang-latency-to-done"),
    ("sglang", "sglang-requested-input-tokens"),
    ("vllm", "vllm-gap-per-chunk"),
];

fn data() -> PathBuf {
    std::env::var_os("GOODPUT_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    )
}

/// Whether the reader of that tool's files is there.
fn has_reader(tool: &str) -> bool {
    serving_io::Format::ALL.iter().any(|f| f.name() == tool)
}

#[test]
fn every_sample_is_what_its_tool_printed_or_the_fault_is_named() {
    let samples = data().join("samples");
    let mut err = std::io::stderr();
    if !samples.exists() {
        let _ = writeln!(err, "skipped: no {} (set GOODPUT_DATA)", samples.display());
        return;
    }
    let mut wrong = Vec::new();
    for &(tool, name, limits) in SAMPLES {
        if !has_reader(tool) {
            let _ = writeln!(err, "left out: {name}, there is no reader of {tool} files");
            continue;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_goodput"));
        command.args(["report", "--as", tool, "--format", "json"]).arg(samples.join(name));
        if !limits.is_empty() {
            command.arg("--goodput").args(limits.split(' '));
        }
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let report: Value = serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
        let mut same = 0;
        for run in report["runs"].as_array().unwrap() {
            for figure in run["as"]["figures"].as_array().unwrap() {
                if figure["stated_by_tool"].is_null() {
                    continue;
                }
                let place = || format!("{name}: {figure}");
                let fault = figure["fault"].as_str();
                if figure["value"].is_null() {
                    assert!(figure["none_because"].as_str().is_some_and(|w| !w.is_empty()));
                } else if figure["stated_differs_because"].is_null() {
                    same += 1;
                } else if !fault.is_some_and(|f| FAULTS.contains(&(tool, f))) {
                    wrong.push(place());
                }
            }
        }
        let least = if name.contains("nodetail") { 5 } else { 19 };
        assert!(least <= same, "{name}: only {same} figures are the tool's own");
    }
    assert!(wrong.is_empty(), "{} figures differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// llmperf keeps its figures in a file of their own, beside that with the requests; its duration is
/// in neither, so the rates cannot be had.
#[test]
fn llmperf_states_in_its_summary_what_its_requests_give() {
    let folder = data().join("samples/llmperf-f1d6bed/conc4-fail");
    if !folder.exists() {
        let _ = writeln!(std::io::stderr(), "skipped: no {} (set GOODPUT_DATA)", folder.display());
        return;
    }
    let json = |arguments: &[&str], file: &str| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_goodput"))
            .args(["report", "--format", "json"])
            .args(arguments)
            .arg(folder.join(file))
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let requests = "mock-model_300_20_individual_responses.json";
    let report = json(&["--as", "llmperf"], requests);
    let stated = json(&[], "mock-model_300_20_summary.json");
    let stated = &stated["runs"][0]["stated_by_tool"];
    let mut same = 0;
    let mut without = Vec::new();
    for figure in report["runs"][0]["as"]["figures"].as_array().unwrap() {
        let key = figure["key"].as_str().unwrap();
        let Some(theirs) = stated[key].as_f64() else { continue };
        let Some(ours) = figure["value"].as_f64() else {
            without.push(key);
            continue;
        };
        let half = 1e-9 * theirs.abs();
        assert!((ours - theirs).abs() <= half, "{key}: {ours} is not {theirs}: {figure}");
        same += 1;
    }
    assert!(60 <= same, "{same} figures are the tool's own");
    assert_eq!(
        without,
        ["results_mean_output_throughput_token_per_s", "results_num_completed_requests_per_min"]
    );
}
