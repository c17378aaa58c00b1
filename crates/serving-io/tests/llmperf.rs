//! Results of llmperf: what is read equals what the tool and the server say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;
use std::path::{Path, PathBuf};

use metrics_core::{Outcome, Seconds};
use serving_io::run::Values;
use serving_io::{Format, Options, ReadFile, Run, read, read_path};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llmperf-f1d6bed").join(name)
}

fn sample(name: &str) -> ReadFile {
    let path = fixture(&format!("mock-model_300_20_{name}.json"));
    let file = read_path(&path, &Options::default()).unwrap();
    assert_eq!((file.format, file.runs.len()), (Format::Llmperf, 1));
    file
}

fn text(content: &str) -> ReadFile {
    read("r.json", Cursor::new(content.as_bytes().to_vec()), &Options::default()).unwrap()
}

fn error(content: &str) -> String {
    let content = Cursor::new(content.as_bytes().to_vec());
    read("r.json", content, &Options::default()).unwrap_err().to_string()
}

fn ids(run: &Run) -> Vec<&str> {
    run.notes.iter().map(|n| n.id).collect()
}

fn numbers(run: &Run, column: &str) -> Vec<f64> {
    let Values::Number(values) = &run.column(column).unwrap().values else { panic!() };
    values.iter().flatten().copied().collect()
}

/// The summary has means of what the other file has per request.
#[test]
fn the_requests_give_the_means_of_the_summary() {
    let (rows, summary) = (sample("individual_responses"), sample("summary"));
    let (run, stated) = (&rows.runs[0], &summary.runs[0].stated);
    let seconds = |f: fn(&metrics_core::RequestTimeline) -> Option<Seconds>| {
        run.timelines.iter().filter_map(f).map(Seconds::get).collect::<Vec<_>>()
    };
    for (name, values) in [
        ("ttft_s", seconds(metrics_core::RequestTimeline::ttft)),
        ("end_to_end_latency_s", seconds(metrics_core::RequestTimeline::e2e_latency)),
        ("inter_token_latency_s", numbers(run, "inter_token_latency_s")),
        (
            "request_output_throughput_token_per_s",
            numbers(run, "request_output_throughput_token_per_s"),
        ),
    ] {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let stated = stated.get(&format!("results_{name}_mean")).unwrap();
        assert_eq!(values.len(), 30);
        assert!((mean - stated).abs() < 1e-12 * stated, "{name}: {mean} against {stated}");
    }
    let tokens: u64 =
        run.timelines.iter().filter_map(metrics_core::RequestTimeline::output_tokens).sum();
    assert!((tokens as f64 / 30.0 - 38.6).abs() < 1e-9);
}

/// The server answered 30 of 33: the client's file has those 30, and no failure.
#[test]
fn the_server_saw_the_same_answers_and_the_failures_that_are_missing() {
    let file = sample("individual_responses");
    let run = &file.runs[0];
    let log = std::fs::read_to_string(fixture("conc4-fail.server.jsonl")).unwrap();
    let server: Vec<serde_json::Value> =
        log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let mut e2e: Vec<f64> = server
        .iter()
        .filter(|s| s["status"] == "ok")
        .map(|s| s["last_token"].as_f64().unwrap() - s["arrival"].as_f64().unwrap())
        .collect();
    let mut client: Vec<f64> =
        run.timelines.iter().map(|t| t.e2e_latency().unwrap().get()).collect();
    assert_eq!((server.len(), e2e.len(), client.len()), (33, 30, 30));
    // Neither order is in the file: sorted, each end of the client is behind one of the server.
    e2e.sort_by(f64::total_cmp);
    client.sort_by(f64::total_cmp);
    assert!(e2e.iter().zip(&client).all(|(s, c)| s <= c && c - s < 0.05));
    assert!(run.missing.iter().any(|m| m.what == "failed requests that the tool dropped"));
    // The server made 496 tokens; the lines are one more for each of 30 answers, the counts are
    // another tokenizer's.
    let tokens: u64 = server.iter().filter_map(|s| s["output_tokens"].as_u64()).sum();
    assert_eq!(tokens, 496);
    let note = run.notes.iter().find(|n| n.id == "tokens-retokenized").unwrap();
    insta::assert_snapshot!(note.text, @"the 1158 output tokens are counted again from the text by a Llama tokenizer, whatever the model is; the streams had 526 lines");
}

#[test]
fn the_summary_has_figures_and_no_requests() {
    let file = sample("summary");
    let run = &file.runs[0];
    assert!(!run.has_requests());
    assert_eq!(run.stated.get("results_number_input_tokens_min"), Some(275.0));
    assert_eq!((run.counts.completed, run.counts.failed), (Some(30), Some(0)));
    assert_eq!(run.declared.max_concurrency, Some(4));
    assert_eq!(run.declared.model.as_deref(), Some("mock-model"));
    assert!(run.declared.metadata.contains(&("version".to_owned(), "2023-08-31".to_owned())));
    assert!(run.missing.iter().any(|m| m.what == "ttft per request"));
    let file = text(
        r#"{"results_inter_token_latency_s_mean": NaN, "results_ttft_s_mean": 1, "results_ttft_s_min": "nan"}"#,
    );
    assert_eq!(ids(&file.runs[0]), ["figures-not-finite"]);
}

#[test]
fn failures_and_odd_answers_are_told_apart() {
    let file = text(
        r#"[{"error_code": 500, "error_msg": "x", "ttft_s": 0, "end_to_end_latency_s": 0.5,
             "inter_token_latency_s": 0, "number_output_tokens": 0, "number_input_tokens": 9},
            {"error_code": null, "error_msg": "cut", "ttft_s": 0.25, "end_to_end_latency_s": 0.5,
             "inter_token_latency_s": 0.1, "number_output_tokens": 3, "number_input_tokens": 9},
            {"error_code": null, "error_msg": "", "ttft_s": 0.25, "end_to_end_latency_s": 0.5,
             "inter_token_latency_s": 0.1, "number_output_tokens": 1, "number_input_tokens": 9},
            {"error_code": null, "error_msg": "", "ttft_s": 0.25, "end_to_end_latency_s": 0.5,
             "inter_token_latency_s": 0.1, "number_output_tokens": 0, "number_input_tokens": 9}]"#,
    );
    let run = &file.runs[0];
    let all: Vec<_> = run
        .timelines
        .iter()
        .map(|t| (t.outcome(), t.ttft().map(Seconds::get), t.output_tokens()))
        .collect();
    assert_eq!(
        all,
        [
            (Outcome::Failed, None, None),
            (Outcome::Failed, Some(0.25), None),
            (Outcome::Completed, Some(0.5), Some(1)),
            (Outcome::Completed, Some(0.25), None),
        ]
    );
    assert_eq!(
        ids(run),
        [
            "e2e-to-end-of-stream",
            "tokens-retokenized",
            "one-token-in-several-chunks",
            "no-tokens",
            "cut-in-mid-stream"
        ]
    );
    assert_eq!(numbers(run, "ttft_as_written_s"), [0.0, 0.25, 0.25, 0.25]);
}

#[test]
fn what_is_wrong_is_named_with_key_and_index() {
    let row = |keys: &str| {
        error(&format!(
            r#"[{{"ttft_s": 1, "end_to_end_latency_s": 2, "number_output_tokens": 3}}, {{{keys}}}]"#
        ))
    };
    insta::assert_snapshot!(row(r#""ttft_s": "x""#), @r#"r.json, `ttft_s[1]`: found "x", expected a number, or null"#);
    insta::assert_snapshot!(row(r#""ttft_s": NaN"#), @"r.json, `ttft_s[1]`: found NaN, expected a number, or null");
    insta::assert_snapshot!(row(r#""ttft_s": 2, "end_to_end_latency_s": 1"#), @"r.json, `end_to_end_latency_s[1]`: last_token after arrival must be at least first_token after arrival = 2, got 1");
    insta::assert_snapshot!(row(r#""number_output_tokens": 2"#), @"r.json, `end_to_end_latency_s[1]`: found nothing, for a request without an error, expected a number of seconds, or an error");
    insta::assert_snapshot!(row(r#""ttft_s": 1, "number_output_tokens": 2.5"#), @"r.json, `number_output_tokens[1]`: found 2.5, expected a whole number from 0 to 2^53");
    insta::assert_snapshot!(error(r#"[{"end_to_end_latency_s": 2, "number_output_tokens": 3}, 7]"#), @r#"r.json, index 1: found `7`, expected one object a request"#);
    insta::assert_snapshot!(error(r#"[{"end_to_end_latency_s": 2, "number_output_tokens": 3}, {"ttft"#), @"r.json, line 1: ends in the middle of a JSON object, expected the rest of it: is it truncated?");
    insta::assert_snapshot!(error(r#"{"results_inter_token_latency_s_mean": [1]}"#), @"r.json, `results_inter_token_latency_s_mean`: found [1], expected a number");
}
