//! Results of AIPerf: what is read equals what the tool and the server say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod truth;

use std::io::Cursor;
use std::path::{Path, PathBuf};

use metrics_core::Outcome;
use metrics_core::timeline::Gaps;
use serving_io::run::{Clock, RequestRate};
use serving_io::{Format, Options, ReadFile, Run, read, read_path};
use truth::{data, ended, equals_the_server, ids, mean, numbers, served, survives_damage};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/aiperf-0.13.0").join(name)
}

fn path(path: &Path) -> ReadFile {
    read_path(path, &Options::default()).unwrap()
}

fn text(content: &str) -> Result<ReadFile, String> {
    read("f", Cursor::new(content.as_bytes().to_vec()), &Options::default())
        .map_err(|e| e.to_string())
}

/// One record of the file.
fn records() -> String {
    std::fs::read_to_string(fixture("rate15-fail/profile_export.jsonl")).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1e-9)
}

/// Every per-request mean of the summary follows from the columns.
fn means_follow_from_the_columns(run: &Run) -> usize {
    let mut n = 0;
    for (name, stated) in run.stated.iter() {
        let Some((metric, unit)) = name.split_once("_avg") else { continue };
        let column = format!("{metric}{unit}");
        if run.column(&column).is_some() {
            let own = mean(&numbers(run, &column));
            assert!(close(own, stated), "{name}: {own} against {stated}");
            n += 1;
        }
    }
    n
}

/// The directory: 86 answers, 14 failures, the phase as window.
#[test]
fn a_directory_gives_requests_window_and_settings() {
    let file = path(&fixture("rate15-fail"));
    assert_eq!(file.format, Format::Aiperf);
    let [run] = &file.runs[..] else { panic!("one run") };
    assert_eq!(run.tool.version.as_deref(), Some("0.13.0"));
    assert_eq!(ended(&file.runs, Outcome::Completed), 86);
    assert_eq!(ended(&file.runs, Outcome::Failed), 14);
    assert_eq!(run.declared.request_rate, Some(RequestRate::PerSecond(15.0)));
    assert_eq!(run.declared.burstiness, Some(1.0));
    assert_eq!(run.declared.num_prompts, Some(100));
    assert_eq!(run.declared.model.as_deref(), Some("mock-model"));
    // By hand: 12:27:31.918740 to 12:27:38.922755.
    let window = run.duration.unwrap().value.get();
    assert!((window - 7.004_015).abs() < 1e-9, "{window}");
    // The tool divides by that window, not by its `benchmark_duration` of 6.89 s.
    let stated = run.stated.get("request_throughput_requests_per_s").unwrap();
    assert!((86.0 / window - stated).abs() < 1e-5);
    assert_eq!(run.counts.completed, Some(86));
    assert_eq!(run.counts.failed, Some(14));
    assert_eq!(run.counts.total_output_tokens, Some(2326));
    assert_eq!(
        ids(run),
        ["gaps-look-per-token", "failed-without-times", "client-delay", "read-from"]
    );
    assert!(means_follow_from_the_columns(run) > 10);
    let slos = run.declared.metadata.iter().find(|(k, _)| k == "slos").unwrap();
    assert_eq!(slos.1, "{\"time_to_first_token\":150.0,\"request_latency\":800.0}");
}

/// By hand, the first record: start 1795955252143781756, credit 1.10507 ms earlier.
#[test]
fn times_are_the_files() {
    let file = path(&fixture("rate15-fail/profile_export.jsonl"));
    let run = &file.runs[0];
    let t = &run.timelines[0];
    assert_eq!(t.id(), "b2200c00-c661-4051-9ab9-eb752da26f81");
    assert_eq!(t.ttft().unwrap().get(), 28.674_239_999_999_998 / 1e3);
    assert_eq!(t.e2e_latency().unwrap().get(), 126.059_430_999_999_99 / 1e3);
    assert_eq!(t.output_tokens(), Some(11));
    assert_eq!(t.input_tokens(), Some(77));
    let Some(Gaps::Token(gaps)) = t.gaps() else { panic!("gaps between tokens") };
    assert_eq!(gaps.len(), 10);
    assert!(close(numbers(run, "client_delay_s")[0], 0.001_105_07));
    let Clock::RunStart { epoch_s: Some(epoch) } = run.clock else { panic!("Unix time") };
    let start = t.arrival_s().unwrap();
    assert!((epoch + start - 1_795_955_252.143_782).abs() < 1e-6);
    assert_eq!(run.duration, None);
}

/// A failed request has no times, and its error says why.
#[test]
fn failures_are_failures() {
    let file = path(&fixture("rate15-fail"));
    for t in file.runs[0].timelines.iter().filter(|t| t.outcome() == Outcome::Failed) {
        assert_eq!((t.ttft(), t.e2e_latency(), t.output_tokens()), (None, None, None));
        assert!(t.input_tokens().is_some());
    }
    assert_eq!(numbers(&file.runs[0], "error_code"), [500.0; 9]);
}

/// The server's log and the client's file agree request by request. The client stands on a busy
/// machine; what it sees later than the server is measured here: at least 1 ms, on average below
/// 40 ms.
#[test]
fn timelines_equal_the_servers_truth() {
    let file = path(&fixture("rate15-fail"));
    let log = served(&fixture("rate15-fail.server.jsonl"));
    check_noise(&equals_the_server(&file.runs, &log));
    for name in ["closed-c8", "prefix-cache", "rate15-fail"] {
        let Some(directory) = data(&format!("samples/aiperf-0.13.0/{name}")) else { return };
        let file = path(&directory);
        let log = served(&directory.with_file_name(format!("{name}.server.jsonl")));
        check_noise(&equals_the_server(&file.runs, &log));
        let run = &file.runs[0];
        assert!(means_follow_from_the_columns(run) > 10);
        assert!(!ids(run).contains(&"counts-disagree"), "{:?}", run.notes);
        let one = log.iter().filter(|r| r.status == "ok" && r.output_tokens == 1).count();
        let ours = run.timelines.iter().filter(|t| t.output_tokens() == Some(1)).count();
        assert_eq!(ours, one);
    }
}

fn check_noise(noise: &[truth::Noise; 2]) {
    for n in noise {
        assert!(0.0009 < n.least && n.mean < 0.04, "{n:?}");
    }
}

/// The summary alone states figures and has no requests.
#[test]
fn a_summary_states_its_figures() {
    let json = path(&fixture("rate15-fail/profile_export_aiperf.json"));
    let csv = path(&fixture("rate15-fail/profile_export_aiperf.csv"));
    for file in [&json, &csv] {
        assert_eq!(file.format, Format::Aiperf);
        assert!(!file.runs[0].has_requests());
        assert_eq!(file.runs[0].counts.completed, Some(86));
        assert_eq!(file.runs[0].counts.failed, Some(14));
        assert!(file.runs[0].missing.iter().any(|m| m.what == "latencies per request"));
    }
    let (json, csv) = (&json.runs[0].stated, &csv.runs[0].stated);
    assert_eq!(json.get("time_to_first_token_p99_ms"), Some(70.707_940_700_000_05));
    assert_eq!(csv.get("time_to_first_token_p99_ms"), Some(70.71));
    assert_eq!(csv.get("total_token_throughput_tokens_per_s"), Some(1538.69));
    // Every figure of the table that has the same name is the one of the JSON file, rounded.
    let mut same = 0;
    for (name, rounded) in csv.iter() {
        if let Some(exact) = json.get(name) {
            assert!((exact - rounded).abs() < 0.005_000_1, "{name}: {exact}, {rounded}");
            same += 1;
        }
    }
    assert!(300 < same, "{same}");
}

#[test]
fn phases_are_runs() {
    let first = records().lines().next().unwrap().replace("b2200c00", "0");
    let other = first.replace("\"phase_name\":\"profiling\"", "\"phase_name\":\"second\"");
    let file = text(&format!("{other}\n{}", records())).unwrap();
    let labels: Vec<_> = file.runs.iter().map(|r| r.declared.label.as_deref().unwrap()).collect();
    assert_eq!(labels, ["phase second", "phase profiling"]);
}

/// The tool's figures are those of the profiling phase: so are ours, and the rest is counted.
#[test]
fn a_warm_up_is_left_out_and_said() {
    let first = records().lines().next().unwrap().replace("b2200c00", "0");
    let warm = first.replace("\"benchmark_phase\":\"profiling\"", "\"benchmark_phase\":\"warmup\"");
    let file = text(&format!("{warm}\n{}", records())).unwrap();
    assert_eq!(file.runs[0].timelines.len(), text(&records()).unwrap().runs[0].timelines.len());
    let note = file.runs[0].notes.iter().find(|n| n.id == "warm-up-left-out").unwrap();
    assert!(note.text.starts_with("1 record of the warm-up phase left out"), "{}", note.text);
    assert_eq!(
        text(&warm).unwrap_err(),
        "f: holds no requests, expected requests of the phase `profiling`, not of the warm-up alone"
    );
}

#[test]
fn endings_are_told_apart() {
    let line = records().lines().next().unwrap().to_owned();
    let with = |error: &str, cancelled: bool| {
        let line =
            line.replace("\"was_cancelled\":false", &format!("\"was_cancelled\":{cancelled}"));
        let line = format!("{},\"error\":{error}}}", line.strip_suffix('}').unwrap());
        text(&line).unwrap().runs[0].timelines[0].outcome()
    };
    assert_eq!(with("null", false), Outcome::Completed);
    assert_eq!(with("null", true), Outcome::Cancelled);
    assert_eq!(with("{\"code\": 429, \"type\": \"x\"}", false), Outcome::Rejected);
    assert_eq!(with("{\"code\": 504}", false), Outcome::TimedOut);
    assert_eq!(with("{\"type\": \"TimeoutError\"}", false), Outcome::TimedOut);
    assert_eq!(with("{\"code\": 499}", true), Outcome::Cancelled);
    assert_eq!(with("{}", false), Outcome::Failed);
    let skipped = line.replace("\"context_overflow_skip\":false", "\"context_overflow_skip\":true");
    let skipped = skipped.replace("b2200c00", "0");
    let file = text(&format!("{skipped}\n{line}")).unwrap();
    assert_eq!(file.runs[0].timelines.len(), 1);
    assert!(ids(&file.runs[0]).contains(&"context-overflow-skipped"));
}

/// The client counts 11 tokens, the server 12: the server knows.
#[test]
fn the_servers_token_count_wins() {
    let line = records().lines().next().unwrap().to_owned();
    let line = line.replace(
        "\"usage_completion_tokens\":{\"value\":11",
        "\"usage_completion_tokens\":{\"value\":12",
    );
    let file = text(&line).unwrap();
    let run = &file.runs[0];
    assert_eq!(run.timelines[0].output_tokens(), Some(12));
    assert_eq!(numbers(run, "output_sequence_length_tokens"), [11.0]);
    assert_eq!(ids(run), ["gaps-per-chunk", "token-counts-differ"]);
}

#[test]
fn damage_is_named_with_its_place() {
    let line = records().lines().next().unwrap().to_owned();
    let say = |from: &str, to: &str| {
        assert!(line.contains(from), "{from}");
        text(&line.replace(from, to)).unwrap_err()
    };
    assert_eq!(
        say("\"request_start_ns\":1795955252143781756", "\"request_start_ns\":\"soon\""),
        "f, line 1, `metadata.request_start_ns`: found \"soon\", expected whole nanoseconds since 1970"
    );
    assert_eq!(
        say(
            "\"request_latency\":{\"value\":126.05943099999999,\"unit\":\"ms\"}",
            "\"request_latency\":{\"value\":126.0,\"unit\":\"furlong\"}"
        ),
        "f, line 1, `metrics.request_latency.unit`: found \"furlong\", expected a unit of time: ns, us, ms or sec"
    );
    assert_eq!(
        say(
            "\"request_latency\":{\"value\":126.05943099999999",
            "\"request_latency\":{\"value\":15.5"
        ),
        "f, line 1, `metrics.request_latency`: last_token after arrival must be at least first_token after arrival = 0.028674239999999997, got 0.0155 (in seconds)"
    );
    assert_eq!(
        say(
            "\"request_latency\":{\"value\":126.05943099999999",
            "\"request_latency\":{\"value\":126059.4"
        ),
        "f, line 1, `metrics.request_latency.value`: found 126059.4, expected about the 0.126059 s from `request_start_ns` to `request_end_ns`"
    );
    assert_eq!(
        say("\"request_end_ns\":1795955252269841187", "\"request_end_ns\":1"),
        "f, line 1, `metadata.request_end_ns`: found 1, expected a stamp of at least `request_start_ns` = 1795955252143781756"
    );
    assert_eq!(
        say("\"benchmark_phase\":\"profiling\"", "\"benchmark_phase\":\"zzz\""),
        "f, line 1, `metadata.benchmark_phase`: found \"zzz\", expected `warmup` or `profiling`"
    );
    let twice = format!("{line}\n{line}");
    assert_eq!(
        text(&twice).unwrap_err(),
        "f, line 2, `metadata.x_request_id`: request `b2200c00-c661-4051-9ab9-eb752da26f81` is already in line 1, expected unique ids"
    );
    let cut = &twice[..twice.len() - 20];
    assert!(text(cut).unwrap_err().starts_with("f, line 2: ends in the middle of"));
    assert_eq!(
        text("{\"aiperf_version\": \"0.13.0\"}").unwrap_err(),
        "f, line 1, `request_throughput`: found no figure, expected the figures of an AIPerf run, each with `unit` and `avg`"
    );
    assert_eq!(
        text("Metric,avg,min,max\nTTFT (ms),1,x,3\n").unwrap_err(),
        "f, line 2, `TTFT (ms): min`: found `x`, expected a number, or nothing"
    );
    assert_eq!(
        text("Metric,avg,min,max\nTTFT (ms),1,2\n").unwrap_err(),
        "f, line 2: 3 cells, expected 4 as in the header"
    );
}

#[test]
fn damaged_files_are_answered() {
    let lines: Vec<String> = records().lines().map(str::to_owned).collect();
    survives_damage("f", &lines[0]);
    let failed = lines.iter().find(|l| l.contains("\"error\"")).unwrap();
    survives_damage("f", failed);
    let summary =
        std::fs::read_to_string(fixture("rate15-fail/profile_export_aiperf.json")).unwrap();
    survives_damage("f", &summary);
    let table = std::fs::read_to_string(fixture("rate15-fail/profile_export_aiperf.csv")).unwrap();
    survives_damage("f", &table);
}

/// Directories without a tool's files, or with those of two runs, say so.
#[test]
fn other_directories_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let say = || {
        let e = read_path(directory.path(), &Options::default()).unwrap_err().to_string();
        e.replace(&directory.path().display().to_string(), "DIR")
    };
    assert!(say().starts_with(
        "DIR: is a directory without the files of a benchmark tool, expected a file or"
    ));
    for name in ["a_aiperf.json", "b_aiperf.json"] {
        std::fs::write(directory.path().join(name), "{}").unwrap();
    }
    assert_eq!(
        say(),
        "DIR: holds several results, expected one of `a_aiperf.json`, `b_aiperf.json`"
    );
}
