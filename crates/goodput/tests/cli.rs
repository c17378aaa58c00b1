//! The command line as a user sees it: output and exit code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's own copy of a benchmark result.
fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../serving-io/tests/data/vllm-0.33.0").join(name)
}

/// Runs the tool in `dir`; what it printed, and the exit code where it is not 0.
fn run_in(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_goodput"))
        .current_dir(dir)
        .args(arguments)
        .output()
        .unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    match output.status.code() {
        Some(0) => {}
        Some(code) => text.push_str(&format!("exit {code}\n")),
        None => text.push_str("killed\n"),
    }
    text
}

fn run(arguments: &[&str]) -> String {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
}

/// A folder with the files that the examples of `--help` name.
fn folder_of_examples() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        std::fs::copy(sample(from), dir.path().join(to)).unwrap();
    };
    copy("rate20-fail.json", "result.json");
    copy("rate20-fail.json", "a.json");
    copy("closed-c8.json", "b.json");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("log.csv", "first_ms,total_ms,n\n400,1000,4\n300,900,7\n");
    write(
        "log.jsonl",
        "{\"id\":\"a\",\"arrival_s\":0,\"first_token_s\":0.3,\"last_token_s\":0.9,\"output_tokens\":7}\n",
    );
    assert!(Command::new("gzip").arg(dir.path().join("log.jsonl")).status().unwrap().success());
    dir
}

/// The figures that vLLM prints for this file stand in its `.summary.txt`: goodput 3.83 req/s,
/// mean TPOT 20.38 ms over 88 requests, mean TTFT 145.92 ms, 15.95 req/s, 539.17 tok/s.
/// By hand: 25 good of 104 completed is 24.0 %, of 120 finished 20.8 %; 25 / 6.521 s is 3.83.
#[test]
fn report_gives_the_figures_of_the_tool_and_the_bases_of_every_share() {
    let dir = folder_of_examples();
    let text = run_in(dir.path(), &["report", "result.json", "--goodput", "ttft:150", "tpot:15"]);
    insta::assert_snapshot!("report_rate20_fail", text);
}

#[test]
fn a_file_of_several_runs_is_several_reports() {
    let file = sample("append2.json");
    let text = run(&["report", file.to_str().unwrap(), "--format", "csv"]);
    let figures: Vec<&str> = text
        .lines()
        .filter(|l| l.contains("request_throughput_per_s"))
        .map(|l| l.split_once(".json,").unwrap().1)
        .collect();
    assert_eq!(figures.len(), 2, "{text}");
    assert!(figures[0].starts_with("1,") && figures[1].starts_with("2,"), "{figures:?}");
}

#[test]
fn json_has_a_schema_version_and_units_in_its_keys() {
    let dir = folder_of_examples();
    let text = run_in(
        dir.path(),
        &["report", "result.json", "--goodput", "ttft:150", "tpot:15", "--format", "json"],
    );
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema_version"], 1);
    let run = &json["runs"][0];
    assert_eq!(run["requests"]["completed"], 104);
    assert_eq!(run["goodput"]["good"], 25);
    assert_eq!(run["goodput"]["good_one_token"], 10);
    assert_eq!(run["goodput"]["attainment"], 25.0 / 120.0);
    assert_eq!(run["latency"]["tpot"]["n"], 88);
    let mean = run["latency"]["ttft"]["mean_s"].as_f64().unwrap();
    assert!((mean - 0.145_920_326_778_843_05).abs() < 1e-15, "{mean}");
}

/// By hand: the two TTFTs of `log.csv` are 400 ms and 300 ms; 400 ms is within a limit of 400 ms
/// unless the limit is strict.
#[test]
fn a_request_at_its_limit_is_a_miss_under_strict_only() {
    let dir = folder_of_examples();
    let mut arguments = vec!["report", "log.csv", "--slo", "ttft<400ms", "--format", "json"];
    arguments.extend(["--map", "ttft_ms=first_ms,e2e_ms=total_ms,output_tokens=n"]);
    let good = |arguments: &[&str]| {
        let text = run_in(dir.path(), arguments);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["runs"][0]["goodput"]["good"].as_u64().unwrap()
    };
    assert_eq!(good(&arguments), 2);
    arguments.push("--strict");
    assert_eq!(good(&arguments), 1);
}

#[test]
fn errors_say_what_was_found_and_what_would_be_right() {
    let dir = folder_of_examples();
    std::fs::write(dir.path().join("empty.json"), "").unwrap();
    std::fs::write(dir.path().join("bad.csv"), "ttft_ms,e2e_ms,output_tokens\n400,300,4\n")
        .unwrap();
    let mut text = String::new();
    for arguments in [
        &["report", "missing.json"][..],
        &["report", "empty.json"],
        &["report", "bad.csv"],
        &["report", "result.json", "--slo", "ttft<200"],
        &["report", "result.json", "--goodput", "ttft=200"],
        &["report", "log.csv", "--map", "ttft_ms=first"],
        &["queue", "mm1", "--rate", "10/s", "--service", "100ms"],
        &["queue", "mmc", "--rate", "8/s", "--service", "200ms", "--servers", "0"],
        &["explain", "tpott"],
        &["explain", "tpot", "--with", "n_out=6"],
    ] {
        text.push_str(&format!(
            "$ goodput {}\n{}",
            arguments.join(" "),
            run_in(dir.path(), arguments)
        ));
    }
    insta::assert_snapshot!("errors", text);
}

#[test]
fn a_one_line_log_is_reported_without_intervals() {
    let dir = folder_of_examples();
    let text = run_in(dir.path(), &["report", "log.jsonl.gz", "--slo", "ttft<500ms"]);
    insta::assert_snapshot!("one_line_log", text);
}

/// By hand: ρ = 4/10; W = 1/(10 − 4) = 166.67 ms; Wq = 0.4/6 = 66.67 ms; p99 of the response is
/// ln 100 / 6 = 767.53 ms, of the wait ln(100 · 0.4) / 6 = 614.81 ms.
#[test]
fn queue_mm1_gives_means_and_percentiles() {
    insta::assert_snapshot!(
        "queue_mm1",
        run(&["queue", "mm1", "--rate", "4/s", "--service", "100ms"])
    );
}

#[test]
fn explain_puts_the_numbers_in() {
    let with = "t_first=250ms,t_last=1.25s,n_out=6";
    let text = run(&["explain", "tpot", "--with", with])
        + &run(&["explain", "tpot", "--with", with, "--lang", "zh"]);
    insta::assert_snapshot!("explain_tpot", text);
}

/// Every example of every `--help` runs, in a folder that has the files it names.
#[test]
fn the_examples_of_every_help_page_run() {
    let dir = folder_of_examples();
    let tool_folder = Path::new(env!("CARGO_BIN_EXE_goodput")).parent().unwrap();
    let path = format!("{}:{}", tool_folder.display(), std::env::var("PATH").unwrap());
    let mut examples = 0;
    for command in ["report", "queue", "explain", "completions"] {
        let help = run(&[command, "--help"]).replace("\\\n", " ");
        let lines = help
            .lines()
            .map(str::trim)
            .filter(|l| l.contains("goodput ") && !l.starts_with("Usage"));
        for line in lines.skip_while(|l| !l.starts_with("goodput ")) {
            let shell = Command::new("sh")
                .args(["-c", line])
                .env("PATH", &path)
                .current_dir(dir.path())
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&shell.stderr);
            assert!(shell.status.success() && error.is_empty(), "`{line}` failed: {error}");
            examples += 1;
        }
    }
    assert!(20 <= examples, "only {examples} examples were found");
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]);
        assert!(script.contains("goodput") && script.contains("report"), "{shell}");
    }
}
