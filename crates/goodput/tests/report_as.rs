//! `report --as` and `report --by` as a user sees them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with the repository's own copies of benchmark results.
fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../serving-io/tests/data/vllm-0.33.0")
}

/// What the tool prints in that folder, with the exit code where it is not 0.
fn run(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_goodput"))
        .current_dir(samples())
        .args(arguments)
        .output()
        .unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    match output.status.code() {
        Some(0) => text,
        code => format!("{text}exit {code:?}\n"),
    }
}

/// The lines that hold one of these words.
fn only(text: &str, words: &[&str]) -> String {
    let lines = text.lines().filter(|l| words.iter().any(|w| l.contains(w)));
    lines.map(|l| format!("{}\n", l.trim_end())).collect()
}

/// By hand: 104 of 120 completed; good are 25 with 10 one-token answers in them, so 25 / 6.521 s by
/// vLLM's rule and 15 / 6.521 s by AIPerf's, whose fraction is 15 / 120.
#[test]
fn one_file_has_a_goodput_for_each_rule() {
    let of = |tool| {
        let text =
            run(&["report", "rate20-fail.json", "--as", tool, "--goodput", "ttft:150", "tpot:15"]);
        only(&text, &["oodput", "ttainment", "Good", "Peak concurrent", "One token", "Time base"])
    };
    insta::assert_snapshot!(of("vllm"));
    insta::assert_snapshot!(of("aiperf"));
    insta::assert_snapshot!(of("guidellm"));
    insta::assert_snapshot!(of("inference-perf"));
}

#[test]
fn a_tool_with_few_figures_is_shown_whole() {
    let arguments = ["report", "rate20-fail.json", "--as", "distserve", "--goodput", "ttft:150"];
    insta::assert_snapshot!(run(&arguments));
    insta::assert_snapshot!(run(&[&arguments[..], &["--format", "csv"]].concat()));
    insta::assert_snapshot!(run(&[&arguments[..], &["--format", "md"]].concat()));
    let json = run(&[&arguments[..], &["--format", "json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&json["runs"][0]["as"]).unwrap());
}

/// Without detail per request there are only the tool's own figures, and with some of it those that
/// follow.
#[test]
fn what_a_file_cannot_give_is_said() {
    let text = run(&["report", "nodetail.json", "--as", "vllm", "--goodput", "ttft:40"]);
    insta::assert_snapshot!(only(&text, &["not given", "goodput", "Mean", "Peak"]));
    let text = run(&["report", "rate20-fail.json", "--as", "locust"]);
    insta::assert_snapshot!(only(&text, &["error"]));
}

/// By hand: the 16 failed requests are 16 misses, and 104 + 16 = 120.
#[test]
fn groups_are_reports_of_their_own() {
    let slo = ["--slo", "ttft<150ms"];
    let of = |by: &str, format: &str| {
        run(&[&["report", "rate20-fail.json", "--by", by, "--format", format], &slo[..]].concat())
    };
    insta::assert_snapshot!(of("outcome", "text"));
    insta::assert_snapshot!(of("input_tokens:80,120", "md"));
    insta::assert_snapshot!(only(
        &of("output_tokens:2", "csv"),
        &["by,", "ttft_p50_s", "requests_"]
    ));
    let json: serde_json::Value = serde_json::from_str(&of("output_tokens", "json")).unwrap();
    let groups = json["runs"][0]["groups"]["groups"].as_array().unwrap();
    let sent: Vec<(String, u64)> = groups
        .iter()
        .map(|g| (g["group"].as_str().unwrap().to_owned(), g["requests"]["sent"].as_u64().unwrap()))
        .collect();
    assert_eq!(sent.iter().map(|(_, n)| n).sum::<u64>(), 120, "{sent:?}");
    assert_eq!(sent.last().unwrap(), &("unknown".to_owned(), 16));
    // All groups have the run's window, so that rates add up to the run's.
    let rate =
        |v: &serde_json::Value| v["throughput"]["request_throughput_per_s"].as_f64().unwrap();
    let sum: f64 = groups.iter().map(rate).sum();
    assert!((sum - rate(&json["runs"][0])).abs() < 1e-9, "{sum}");
}

#[test]
fn a_column_that_cannot_be_grouped_by_is_an_error() {
    let mut text = String::new();
    for by in ["tenant", "error:4", "output_tokens:x", "output_tokens:0", "output_tokens:9,3"] {
        text.push_str(&only(&run(&["report", "rate20-fail.json", "--by", by]), &["--by", "exit"]));
    }
    let text = text.replace("\n\n", "\n");
    insta::assert_snapshot!(text);
}
