//! Results of GuideLLM: what is read equals what the tool and the server say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod truth;

use std::io::Cursor;

use metrics_core::Outcome;
use serving_io::run::{Clock, RequestRate};
use serving_io::{Format, Options, ReadFile, Run, read, read_path};
use truth::{data, ended, equals_the_server, ids, mean, numbers, served, survives_damage};

fn text(content: &str) -> Result<ReadFile, String> {
    read("f", Cursor::new(content.as_bytes().to_vec()), &Options::default())
        .map_err(|e| e.to_string())
}

fn sample(name: &str) -> Option<ReadFile> {
    let path = data(&format!("samples/guidellm-0.8.1/{name}"))?;
    Some(read_path(&path, &Options::default()).unwrap())
}

/// A request whose first token comes 0.2 s and whose last 0.5 s after sending; the stream closes
/// 0.1 s later. It was due 0.05 s before it was sent.
fn request(id: &str, more: &str) -> String {
    format!(
        r#"{{"request_id": "{id}", "info": {{"conversation_id": "c", "turn_index": 0, "error": null,
        "timings": {{"targeted_start": 1000.0, "request_start": 1000.05,
        "first_request_iteration": 1000.15, "first_token_iteration": 1000.25,
        "last_token_iteration": 1000.55, "request_end": 1000.65,
        "request_iterations": 6, "token_iterations": 4}}}},
        "request_latency": 0.6, "prompt_tokens": 7, "output_tokens": 4,
        "time_to_first_token_ms": 200.0, "inter_token_latency_ms": 100.0{more}}}"#
    )
}

/// A file with one benchmark.
fn document(successful: &str, errored: &str, incomplete: &str, more: &str) -> String {
    format!(
        r#"{{"metadata": {{"guidellm_version": "0.8.1"}}, "benchmarks": [{{
        "config": {{"strategy": {{"type_": "poisson", "rate": 12.0}},
        "backend": {{"model": "m", "request_format": "/v1/completions"}}}},
        "duration": 4.0, "requests": {{"successful": [{successful}], "errored": [{errored}],
        "incomplete": [{incomplete}]}}{more}}}]}}"#
    )
}

#[test]
fn a_request_has_the_times_of_its_tokens() {
    let file = text(&document(&request("a", ""), "", "", "")).unwrap();
    assert_eq!(file.format, Format::Guidellm);
    let [run] = &file.runs[..] else { panic!("one run") };
    assert_eq!(run.tool.version.as_deref(), Some("0.8.1"));
    assert_eq!(run.declared.request_rate, Some(RequestRate::PerSecond(12.0)));
    assert_eq!(run.declared.burstiness, Some(1.0));
    assert_eq!(run.declared.label.as_deref(), Some("poisson@12"));
    assert_eq!(run.duration.unwrap().value.get(), 4.0);
    assert_eq!(run.clock, Clock::RunStart { epoch_s: Some(1000.0) });
    let t = &run.timelines[0];
    let near = |x: f64, y: f64| assert!((x - y).abs() < 1e-9, "{x} {y}");
    near(t.arrival_s().unwrap(), 0.05);
    near(t.ttft().unwrap().get(), 0.2);
    // To the last token, not to the end of the stream.
    near(t.e2e_latency().unwrap().get(), 0.5);
    near(t.tpot().unwrap().get(), 0.1);
    near(numbers(run, "client_delay_s")[0], 0.05);
    near(numbers(run, "request_end_s")[0], 0.65);
    assert_eq!(numbers(run, "request_latency_s"), [0.6]);
    assert_eq!(ids(run), ["client-delay"]);
}

/// In flight at the end is no miss, an error is, and both keep the TTFT that was measured.
#[test]
fn endings_are_told_apart() {
    let (a, b, c) = (request("a", ""), request("b", ""), request("c", ""));
    let file = text(&document(&a, &b, &c, "")).unwrap();
    assert_eq!(ended(&file.runs, Outcome::Completed), 1);
    assert_eq!(ended(&file.runs, Outcome::Failed), 1);
    assert_eq!(ended(&file.runs, Outcome::CutOff), 1);
    for t in file.runs[0].timelines.iter().filter(|t| t.outcome() != Outcome::Completed) {
        assert!(t.ttft().is_some() && t.e2e_latency().is_none() && t.output_tokens().is_none());
    }
    assert_eq!(ids(&file.runs[0]), ["cut-in-mid-stream", "client-delay"]);
}

#[test]
fn a_warm_up_and_a_sample_have_no_stated_window() {
    let one = request("a", "");
    let file = text(&document(&one, "", "", ", \"warmup_duration\": 1.5")).unwrap();
    assert_eq!(file.runs[0].duration, None);
    assert!(ids(&file.runs[0]).contains(&"warmup-in-file"));
    let totals = ", \"metrics\": {\"request_totals\": {\"successful\": 9, \"total\": 9}}";
    let file = text(&document(&one, "", "", totals)).unwrap();
    assert!(file.runs[0].truncated);
    assert!(ids(&file.runs[0]).contains(&"requests-sampled"));
}

#[test]
fn damage_is_named_with_its_place() {
    let say = |from: &str, to: &str| {
        let content = document(&request("a", ""), "", "", "");
        assert!(content.contains(from), "{from}");
        text(&content.replace(from, to)).unwrap_err()
    };
    assert_eq!(
        say("\"request_start\": 1000.05", "\"request_start\": \"now\""),
        "f, line 5, `benchmarks[0].requests.successful[0].info.timings.request_start`: found \"now\", expected Unix time in seconds"
    );
    assert_eq!(
        say("\"output_tokens\": 4", "\"output_tokens\": 4.5"),
        "f, line 9, `benchmarks[0].requests.successful[0].output_tokens`: found 4.5, expected a whole number from 0 to 2^53"
    );
    let early = say("\"first_token_iteration\": 1000.25", "\"first_token_iteration\": 999.0");
    assert!(early.starts_with("f, line 4, `benchmarks[0].requests.successful[0].info.timings.first_token_iteration`: ttft must be"), "{early}");
    assert_eq!(
        say("\"request_latency\": 0.6", "\"request_latency\": -0.6"),
        "f, line 9, `benchmarks[0].requests.successful[0].request_latency`: found -0.6, expected a number of at least 0 and at most 1e100, or null"
    );
    let negative = say("\"time_to_first_token_ms\": 200", "\"time_to_first_token_ms\": -200");
    assert!(negative.contains(".time_to_first_token_ms`: found -200"), "{negative}");
    let twice = document(&format!("{},{}", request("a", ""), request("a", "")), "", "", "");
    assert!(text(&twice).unwrap_err().contains("request `a` is already in line 4"));
    assert_eq!(
        text("{\"metadata\": {\"guidellm_version\": \"0.8\"}, \"benchmarks\": []}").unwrap_err(),
        "f, `benchmarks`: holds no requests, expected at least one benchmark"
    );
    assert_eq!(
        text("Run Info,Run Info,Timings\na,b,c\n").unwrap_err(),
        "f: holds no requests, expected a row for each benchmark below its three header lines"
    );
    assert_eq!(
        text("Run Info,Run Info,Timings\na,b,c\nx,y,Mean\n1,2,z\n").unwrap_err(),
        "f, line 4, `Timings c Mean`: found `z`, expected a number, or nothing"
    );
    assert_eq!(
        text("Run Info,Run Info,Timings\na,b,c\nx,y,Mean\n1,2\n").unwrap_err(),
        "f, line 4: 2 cells, expected 3 as in the header"
    );
}

#[test]
fn damaged_files_are_answered() {
    survives_damage("f", &document(&request("a", ""), &request("b", ""), "", ""));
    survives_damage("f", "Run Info,Run Info,Timings\na,b,c\nx,y,Mean\n1,2,3\n");
}

/// The files of the client against the server's log of the same run. On a busy machine the client
/// sees TTFT about 40 ms late on average, and never before the server sends it.
#[test]
fn timelines_equal_the_servers_truth() {
    for (name, runs) in [("rate12-fail", 1), ("conc", 2)] {
        let Some(file) = sample(&format!("{name}.json")) else { return };
        assert_eq!(file.runs.len(), runs);
        let log = data(&format!("samples/guidellm-0.8.1/{name}.server.jsonl")).unwrap();
        for noise in equals_the_server(&file.runs, &served(&log)) {
            assert!(0.0009 < noise.least && noise.mean < 0.06, "{noise:?}");
        }
        for run in &file.runs {
            assert!(!ids(run).contains(&"counts-disagree"), "{:?}", run.notes);
            stated_means_follow(run);
        }
    }
}

/// The tool's own means come from the columns; its TPOT and ITL are weighted by tokens.
fn stated_means_follow(run: &Run) {
    let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} {b}");
    let stated = |name: &str| run.stated.get(name).unwrap_or_else(|| panic!("no {name}"));
    let completed = |name: &str| -> Vec<f64> {
        let serving_io::run::Values::Number(list) = &run.column(name).unwrap().values else {
            panic!("numbers")
        };
        let of = run.timelines.iter().zip(list);
        of.filter(|(t, _)| t.outcome() == Outcome::Completed).filter_map(|(_, x)| *x).collect()
    };
    close(mean(&completed("request_latency_s")), stated("request_latency_successful_mean_s"));
    close(
        mean(&completed("time_to_first_token_ms")),
        stated("time_to_first_token_successful_mean_ms"),
    );
    let n: Vec<f64> = completed("output_tokens");
    let weighted = |x: &[f64], w: &[f64]| {
        x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>() / w.iter().sum::<f64>()
    };
    close(
        weighted(&completed("time_per_output_token_ms"), &n),
        stated("time_per_output_token_successful_mean_ms"),
    );
    let gaps: Vec<f64> = n.iter().filter(|&&n| 1.0 < n).map(|n| n - 1.0).collect();
    close(
        weighted(&completed("inter_token_latency_ms"), &gaps),
        stated("inter_token_latency_successful_mean_ms"),
    );
}

/// The table states the figures of the JSON file under the same names.
#[test]
fn the_table_states_the_same_figures() {
    for name in ["rate12-fail", "conc"] {
        let Some(json) = sample(&format!("{name}.json")) else { return };
        let csv = sample(&format!("{name}.csv")).unwrap();
        assert_eq!(csv.runs.len(), json.runs.len());
        for (csv, json) in csv.runs.iter().zip(&json.runs) {
            assert_eq!(csv.tool.version.as_deref(), Some("0.8.1"));
            assert_eq!(csv.counts.completed, json.counts.completed);
            assert_eq!(csv.counts.failed, json.counts.failed);
            assert_eq!(csv.duration.unwrap().value, json.duration.unwrap().value);
            let same = csv.stated.iter().filter(|(n, x)| json.stated.get(n) == Some(*x)).count();
            assert!(60 <= same, "{same}");
            let ttft = "time_to_first_token_successful_p95_ms";
            assert_eq!(csv.stated.get(ttft), json.stated.get(ttft));
            assert!(csv.stated.get(ttft).is_some());
        }
    }
}
