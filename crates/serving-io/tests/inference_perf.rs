//! Results of inference-perf: what is read equals what the tool and the server say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod truth;

use std::io::Cursor;
use std::path::Path;

use metrics_core::Outcome;
use metrics_core::timeline::Gaps;
use serving_io::run::{Clock, RequestRate};
use serving_io::{Format, Options, ReadFile, Run, read, read_path};
use truth::{data, ended, equals_the_server, ids, mean, numbers, served, survives_damage};

fn text(content: &str) -> Result<ReadFile, String> {
    read("f", Cursor::new(content.as_bytes().to_vec()), &Options::default())
        .map_err(|e| e.to_string())
}

fn path(path: &Path) -> ReadFile {
    read_path(path, &Options::default()).unwrap()
}

/// A request sent at 10 s; its tokens come at the given stamps, the stream ends at 11 s.
fn request(stamps: &str, tokens: u64, more: &str) -> String {
    format!(
        r#"{{"start_time": 10.0, "end_time": 11.0, "request": "r", "response": "s",
        "info": {{"input_tokens": 5, "response_metrics": {{"output_tokens": {tokens},
        "output_token_times": [{stamps}]{more}}}}}, "error": null}}"#
    )
}

const STAGE: &str = r#"{"benchmark_time_seconds": 1.0,
    "load_summary": {"count": 1, "requested_rate": 5.0, "schedule_delay": {"mean": 0.25}},
    "successes": {"count": 1, "latency": {"request_latency": {"mean": 1.0},
    "time_to_first_token": {"mean": 0.5, "p99": 0.5}}, "output_tokens": {"total": 3.0}},
    "failures": {"count": 0, "request_latency": null}}"#;

#[test]
fn a_request_has_the_times_of_its_tokens() {
    let usage = r#", "chunk_times": [10.5, 10.625, 10.875], "server_usage": {"prompt_tokens": 6,
        "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}"#;
    let file = text(&format!("[{}]", request("10.5, 10.625, 10.875", 3, usage))).unwrap();
    assert_eq!(file.format, Format::InferencePerf);
    let run = &file.runs[0];
    let t = &run.timelines[0];
    assert_eq!(run.clock, Clock::Monotonic);
    assert_eq!(t.ttft().unwrap().get(), 0.5);
    // To the last token, not to the end of the stream.
    assert_eq!(t.e2e_latency().unwrap().get(), 0.875);
    assert_eq!((t.input_tokens(), t.output_tokens()), (Some(6), Some(3)));
    let Some(Gaps::Token(gaps)) = t.gaps() else { panic!("gaps between tokens") };
    assert_eq!(gaps.iter().map(|g| g.get()).collect::<Vec<_>>(), [0.125, 0.25]);
    assert_eq!(numbers(run, "request_latency_s"), [1.0]);
    assert_eq!(numbers(run, "cached_tokens"), [4.0]);
    assert_eq!(ids(run), ["gaps-look-per-token"]);
}

/// The public fault kubernetes-sigs/inference-perf#566: three tokens at 0.1, 0.2 and 0.3 s, each
/// stamped twice. The mean of the stamps' gaps is 40 ms, that of the tokens 100 ms.
#[test]
fn doubled_stamps_are_undone() {
    let stamps = "10.1, 10.1, 10.2, 10.2, 10.3, 10.3";
    let file = text(&format!("[{}]", request(stamps, 3, ""))).unwrap();
    let run = &file.runs[0];
    let t = &run.timelines[0];
    assert!((t.tpot().unwrap().get() - 0.1).abs() < 1e-9);
    let gaps: Vec<f64> = t.gaps().unwrap().values().iter().map(|g| g.get()).collect();
    assert!((mean(&gaps) - 0.1).abs() < 1e-9, "{gaps:?}");
    assert_eq!(ids(run), ["gaps-look-per-token", "stamps-doubled", "retokenized"]);
}

/// Before 0.3 the stamps stand in `info` itself.
#[test]
fn older_files_are_read() {
    let old = r#"[{"start_time": 1.0, "end_time": 2.0, "request": "r", "response": "s",
        "info": {"input_tokens": 5, "output_tokens": 2, "output_token_times": [1.5, 1.75]},
        "error": null}]"#;
    let file = text(old).unwrap();
    assert_eq!(file.runs[0].timelines[0].e2e_latency().unwrap().get(), 0.75);
}

#[test]
fn endings_are_told_apart() {
    let with = |kind: &str| {
        let error = format!("\"error\": {{\"error_type\": \"{kind}\", \"error_msg\": \"m\"}}");
        let content = request("10.5", 1, "").replace("\"error\": null", &error);
        text(&format!("[{content}]")).unwrap().runs[0].timelines[0].outcome()
    };
    assert_eq!(with("HTTP Error 500"), Outcome::Failed);
    assert_eq!(with("ClientPayloadError"), Outcome::Failed);
    assert_eq!(with("HTTP Error 429"), Outcome::Rejected);
    assert_eq!(with("TimeoutError"), Outcome::TimedOut);
    assert_eq!(with("CancelledError"), Outcome::Cancelled);
}

#[test]
fn a_stage_states_its_figures() {
    let file = text(STAGE).unwrap();
    let run = &file.runs[0];
    assert!(!run.has_requests());
    assert_eq!(run.stated.get("time_to_first_token_p99_s"), Some(0.5));
    assert_eq!(run.stated.get("load_summary_schedule_delay_mean_s"), Some(0.25));
    assert_eq!(run.stated.get("successes_count"), Some(1.0));
    assert_eq!(run.declared.request_rate, Some(RequestRate::PerSecond(5.0)));
    assert_eq!(run.counts.total_output_tokens, Some(3));
    assert_eq!(run.duration.unwrap().value.get(), 1.0);
    assert!(run.missing.iter().any(|m| m.what == "latencies per request"));
}

#[test]
fn damage_is_named_with_its_place() {
    assert_eq!(
        text(&format!("[{}]", request("10.5, true", 2, ""))).unwrap_err(),
        "f, line 3, `[0].info.response_metrics.output_token_times[1]`: found true, expected a number"
    );
    let early = text(&format!("[{}]", request("9.5, 10.5", 2, ""))).unwrap_err();
    assert_eq!(
        early,
        "f, line 3, `[0].info.response_metrics.output_token_times[0]`: found 9.5, expected a stamp from `start_time` = 10 to `end_time` = 11"
    );
    // Between sound first and last stamps, and past the end of the response.
    for inside in ["10.25, -3, 10.5", "10.25, 1e300, 10.5"] {
        let message = text(&format!("[{}]", request(inside, 3, ""))).unwrap_err();
        assert!(message.contains("output_token_times[1]`: found "), "{message}");
    }
    let twice = request("10.25, 10.5", 2, "");
    assert_eq!(
        text(&format!("[{twice},\n{twice}]")).unwrap_err(),
        "f, line 4, `[1]`: found the same request as [0], expected each request once"
    );
    let ends = request("10.5", 1, "").replace("\"end_time\": 11.0", "\"end_time\": 1.0");
    assert!(text(&format!("[{ends}]")).unwrap_err().starts_with("f, line 1, `[0].end_time`"));
    assert_eq!(
        text(&STAGE.replace("\"p99\": 0.5", "\"p99\": \"fast\"")).unwrap_err(),
        "f, line 4, `successes.latency.time_to_first_token.p99`: found \"fast\", expected a number, as the tool computed it"
    );
    assert_eq!(
        text(&STAGE.replace("\"benchmark_time_seconds\": 1.0", "\"benchmark_time_seconds\": 0"))
            .unwrap_err(),
        "f, line 1, `benchmark_time_seconds`: found 0, expected a number of seconds above 0 and at most 1e100"
    );
    let cut = request("10.5", 1, "");
    assert_eq!(
        text(&format!("[{cut}")).unwrap_err(),
        "f, line 3: ends in the middle of a JSON object, expected the rest of it: is it truncated?"
    );
}

#[test]
fn damaged_files_are_answered() {
    survives_damage("f", STAGE);
    survives_damage("f", &format!("[{}, {}]", request("10.5, 10.6", 2, ""), request("", 0, "")));
}

/// A directory: the stage file's counts cut the requests; a contradiction leaves one run.
#[test]
fn stages_are_runs_where_the_counts_fit() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| {
        std::fs::write(directory.path().join(name), content).unwrap();
    };
    let usage = ", \"server_usage\": {\"completion_tokens\": 2}";
    let first = request("10.5, 10.75", 2, usage);
    let second = first.replace("10.", "20.").replace("11.0", "21.0");
    write("per_request_lifecycle_metrics.json", &format!("[{second}, {first}]"));
    write("stage_0_lifecycle_metrics.json", STAGE);
    write("stage_1_lifecycle_metrics.json", STAGE);
    let file = path(directory.path());
    assert!(file.name.ends_with("per_request_lifecycle_metrics.json"));
    assert_eq!(file.runs.len(), 2);
    let arrivals: Vec<f64> =
        file.runs.iter().map(|r| r.timelines[0].arrival_s().unwrap()).collect();
    assert_eq!(arrivals, [10.0, 20.0]);
    assert_eq!(file.runs[1].declared.label.as_deref(), Some("stage 1"));
    assert_eq!(file.runs[1].duration.unwrap().value.get(), 1.0);
    write("stage_1_lifecycle_metrics.json", &STAGE.replace("\"count\": 0", "\"count\": 1"));
    let file = path(directory.path());
    assert_eq!(file.runs.len(), 1);
    assert!(ids(&file.runs[0]).contains(&"stages-not-matched"));
    std::fs::remove_file(directory.path().join("per_request_lifecycle_metrics.json")).unwrap();
    let file = path(directory.path());
    assert_eq!(file.runs.len(), 2);
    assert!(ids(&file.runs[0]).contains(&"read-from"));
}

/// The client's file against the server's log of the same run; both are on one clock, and the
/// client sees TTFT less than 15 ms late on average.
#[test]
fn timelines_equal_the_servers_truth() {
    for name in ["conc", "poisson-fail"] {
        let Some(directory) = data(&format!("samples/inference-perf-0.7.0/{name}")) else { return };
        let log = served(&directory.with_file_name(format!("{name}.server.jsonl")));
        let stages = path(&directory);
        assert_eq!(stages.runs.len(), 2, "{:?}", stages.runs[0].notes);
        let alone = path(&directory.join("per_request_lifecycle_metrics.json"));
        assert_eq!(alone.runs.len(), 1);
        for runs in [&stages.runs, &alone.runs] {
            for noise in equals_the_server(runs, &log) {
                assert!(0.0009 < noise.least && noise.mean < 0.015, "{noise:?}");
            }
        }
        for run in &stages.runs {
            stated_means_follow(run);
        }
    }
}

/// The tool's own means come from the requests of the stage.
fn stated_means_follow(run: &Run) {
    let close = |a: f64, b: f64| assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} {b}");
    let stated = |name: &str| run.stated.get(name).unwrap_or_else(|| panic!("no {name}"));
    let done = || run.timelines.iter().filter(|t| t.outcome() == Outcome::Completed);
    // The tool has no TTFT for a one-token answer.
    let several = || done().filter(|t| t.output_tokens() != Some(1));
    let ttft: Vec<f64> = several().map(|t| t.ttft().unwrap().get()).collect();
    close(mean(&ttft), stated("time_to_first_token_mean_s"));
    let tpot: Vec<f64> = several().map(|t| t.tpot().unwrap().get()).collect();
    close(mean(&tpot), stated("time_per_output_token_mean_s"));
    let gaps: Vec<f64> =
        done().flat_map(|t| t.gaps().unwrap().values().iter().map(|g| g.get())).collect();
    close(mean(&gaps), stated("inter_token_latency_mean_s"));
    let failed = run.timelines.len() - done().count();
    assert_eq!(run.counts.failed, Some(failed as u64));
}

/// Public results of version 0.2: TPOT is half of what its own latencies give, in every stage of
/// the first engine, and the note says so.
#[test]
fn halved_figures_of_old_versions_are_named() {
    let Some(root) = data("measured/inference_perf_kubecon2025") else { return };
    for folder in ["vllm", "vllm+chunking_and_prefix_caching", "vllm+v0_engine"] {
        let file = path(&root.join(folder));
        assert_eq!(file.runs.len(), 7);
        let from = file.runs[0].notes.iter().find(|n| n.id == "read-from").unwrap();
        assert_eq!(
            from.text,
            "7 stage files of the directory; 7 files of the server's metrics \
             (…_prometheus_metrics.json) not read"
        );
        for run in &file.runs {
            assert!(ids(run).contains(&"tpot-halved"), "{folder}: {:?}", run.notes);
            assert!(run.tool.age.as_deref().unwrap().contains("0.2"));
        }
        let server = path(&root.join(folder).join("stage_0_prometheus_metrics.json"));
        assert_eq!(ids(&server.runs[0]), ["from-server-metrics"]);
    }
    let Some(sample) = data("samples/inference-perf-0.7.0/conc") else { return };
    for run in &path(&sample).runs {
        assert!(!ids(run).contains(&"tpot-halved"));
    }
    assert_eq!(ended(&path(&sample).runs, Outcome::Completed), 70);
}
