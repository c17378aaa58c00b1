//! The command line as a user sees it: output and exit code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write as _;
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
    copy("../prometheus/vllm-0.33.0.metrics.txt", "metrics.txt");
    copy("../prometheus/vllm-0.33.0.metrics.txt", "before.txt");
    copy("closed-c8.json", "b.json");
    copy("closed-c8.json", "good.json");
    for (i, name) in ["old", "new", "before", "after", "o1", "o2", "n1", "n2"].iter().enumerate() {
        let from = if i % 2 == 0 { "closed-c8.json" } else { "rate20-fail.json" };
        let text = std::fs::read_to_string(sample(from)).unwrap();
        // Each is a run of its own: the first request is sent some milliseconds earlier.
        let (front, rest) = text.split_once("\"start_times\": [").unwrap();
        let (first, rest) = rest.split_once(',').unwrap();
        let first = first.parse::<f64>().unwrap() - 0.001 * (i as f64 + 1.0);
        let text = format!("{front}\"start_times\": [{first},{rest}");
        std::fs::write(dir.path().join(format!("{name}.json")), text).unwrap();
    }
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let snapshot =
        std::fs::read_to_string(sample("../prometheus/vllm-0.33.0.metrics.txt")).unwrap();
    let later = |line: &str| match line.rsplit_once(' ') {
        Some((name, value)) if name.starts_with("vllm:prompt_tokens_total{") => {
            format!("{name} {}\n", value.parse::<f64>().unwrap() + 1.0)
        }
        _ => format!("{line}\n"),
    };
    write("after.txt", &snapshot.lines().map(later).collect::<String>());
    write("log.csv", "first_ms,total_ms,n\n400,1000,4\n300,900,7\n");
    write(
        "log.jsonl",
        "{\"id\":\"a\",\"arrival_s\":0,\"first_token_s\":0.3,\"last_token_s\":0.9,\"output_tokens\":7}\n",
    );
    for name in ["steps.csv", "other-steps.csv"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(name);
        std::fs::copy(from, dir.path().join(name)).unwrap();
    }
    let mooncake = "../../docs/examples/mooncake-four.jsonl";
    let mooncake = Path::new(env!("CARGO_MANIFEST_DIR")).join(mooncake);
    std::fs::copy(mooncake, dir.path().join("mooncake.jsonl")).unwrap();
    write("batches.csv", "batch,ms\n1,8.1\n4,8.4\n16,9.7\n64,14.3\n");
    write(
        "config.json",
        "{\"model_type\": \"qwen2\", \"hidden_size\": 3584, \"num_hidden_layers\": 28, \
          \"num_attention_heads\": 28, \"num_key_value_heads\": 4, \"intermediate_size\": 18944, \
          \"vocab_size\": 152064, \"max_position_embeddings\": 32768}",
    );
    write("mine.csv", "t,in,out\n0,100,20\n0.5,300,10\n");
    write(
        "azure.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
         2023-11-16 18:15:46.6805900,374,44\r\n\
         2023-11-16 18:15:50.9951690,396,109\r\n\
         2023-11-16 18:15:51.2225670,879,55",
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
    for command in [
        "report",
        "check",
        "diff",
        "diagnose",
        "sim",
        "trace",
        "fit",
        "kv",
        "queue",
        "explain",
        "completions",
        "queue little",
        "queue mm1",
        "queue mmc",
        "queue mmck",
        "queue mminf",
        "queue finite-source",
        "queue engset",
        "queue erlang-a",
        "queue erlang",
        "queue gim1",
        "queue mg1",
        "queue tokens",
        "queue md1",
        "queue mdc",
        "queue mph1",
        "queue priority",
        "queue ps",
        "queue lps",
        "queue autoscaler",
        "queue batch",
        "queue bulk",
        "queue batch-arrivals",
        "queue closed",
        "queue birth-death",
        "queue ggc",
        "queue stability",
        "queue burst",
        "queue plan",
        "queue required",
        "queue demand",
        "",
    ] {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = run(&words).replace("\\\n", " ");
        let before = examples;
        // An example is indented by two and begins with a command of the shell.
        let lines = help.lines().filter_map(|l| l.strip_prefix("  "));
        for line in lines.filter(|l| l.starts_with("goodput ") || l.starts_with("zcat ")) {
            let shell = Command::new("sh")
                .args(["-c", line])
                .env("PATH", &path)
                .current_dir(dir.path())
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&shell.stderr);
            // A gate may answer no: only a question that cannot be read is a broken example.
            let answers = ["goodput check", "goodput diagnose"].iter().any(|c| line.contains(c));
            let gate = answers && matches!(shell.status.code(), Some(1 | 3));
            assert!(
                (shell.status.success() || gate) && error.is_empty(),
                "`{line}` failed: {error}"
            );
            examples += 1;
        }
        assert!(before < examples, "`goodput {command} --help` has no example");
    }
    assert!(60 <= examples, "only {examples} examples were found");
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]);
        assert!(script.contains("goodput") && script.contains("report"), "{shell}");
    }
}

/// `--goodput` takes every value up to the next option, so a file behind it is told apart.
#[test]
fn a_file_behind_goodput_is_taken_as_a_file() {
    let dir = folder_of_examples();
    let before = run_in(dir.path(), &["report", "result.json", "--goodput", "ttft:150"]);
    let behind = run_in(dir.path(), &["report", "--goodput", "ttft:150", "result.json"]);
    assert_eq!(before, behind);
    assert!(before.contains("goodput ratio"), "{before}");
}

/// 60 requests in which neighbours are alike are worth 20: all of them being good does not make
/// them independent, so the target is not called met.
#[test]
fn a_share_of_one_hundred_per_cent_still_knows_the_runs_correlation() {
    let file = sample("closed-c8.json");
    let text = run(&["report", file.to_str().unwrap(), "--slo", "ttft<100ms @ 90%"]);
    assert!(text.contains("60 of 60 finished"), "{text}");
    assert!(text.contains("@ 90%: indeterminate"), "{text}");
}

#[test]
fn a_percentile_target_alone_gives_no_goodput() {
    let file = sample("closed-c8.json");
    let slo = ["report", file.to_str().unwrap(), "--slo", "p99(ttft)<1ms"];
    let text = run(&slo);
    assert!(
        text.contains("no limit on single requests") && !text.contains("goodput ratio"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&run(&[&slo[..], &["--format", "json"]].concat())).unwrap();
    let goodput = &json["runs"][0]["goodput"];
    assert!(goodput["good"].is_null() && goodput["attainment"].is_null(), "{goodput}");
}

/// The figures are those of the plain engine, which executes every step for every request.
#[test]
fn the_built_in_scenario_runs_under_two_settings_and_equals_the_reference() {
    let text = run(&["sim"]);
    assert_eq!(text, run(&["sim", "--reference"]));
    insta::assert_snapshot!("sim", text);
}

/// Latency, throughput and goodput as they are printed, but for the widths of columns and ITL: a
/// file of timelines has no gaps.
fn layers(text: &str) -> Vec<String> {
    let start = text.find("\nLatency").unwrap();
    let end = text.find("\nResources").unwrap();
    let lines = text[start..end].lines().filter(|line| !line.starts_with("  ITL"));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// A simulated run and the report on the file that it wrote print the same figures.
#[test]
fn report_on_the_timelines_of_a_run_prints_the_same() {
    let dir = folder_of_examples();
    let slo = ["--slo", "ttft<500ms,tpot<10ms,p99(ttft)<1s"];
    let sim = ["sim", "--max-num-seqs", "16", "--chunk", "512", "--requests-out", "r.jsonl"];
    let simulated = run_in(dir.path(), &[&sim[..], &slo[..]].concat());
    let reported = run_in(dir.path(), &[&["report", "r.jsonl"][..], &slo[..]].concat());
    assert_eq!(layers(&simulated), layers(&reported));
    assert!(layers(&reported).iter().any(|line| line.starts_with("goodput ratio")));
}

/// By hand: two requests of 10 prompt and 2 output tokens, 1 s a step, one slot: each takes three
/// steps, so the second is scheduled at 3 s although it came at 0.5 s.
#[test]
fn a_run_on_one_slot_can_be_checked_by_hand() {
    let dir = folder_of_examples();
    std::fs::write(dir.path().join("two.csv"), "t,in,out\n0,10,2\n0.5,10,2\n").unwrap();
    let text = run_in(
        dir.path(),
        &[
            "sim",
            "--trace",
            "two.csv",
            "--map",
            "arrival_s=t,input_tokens=in,output_tokens=out",
            "--max-num-seqs",
            "1",
            "--chunk",
            "16",
            "--step-time",
            "base=1s",
        ],
    );
    insta::assert_snapshot!("sim_by_hand", text);
}

#[test]
fn a_bad_simulation_is_refused_with_the_bound() {
    let dir = folder_of_examples();
    std::fs::write(dir.path().join("back.csv"), "t,in,out\n1,10,2\n0.5,10,2\n").unwrap();
    std::fs::write(dir.path().join("same.csv"), "id,t,in,out\na,1,10,2\na,2,10,2\n").unwrap();
    let map = ["--map", "arrival_s=t,input_tokens=in,output_tokens=out"];
    let mut text = String::new();
    for arguments in [
        &["sim", "--max-num-seqs", "0"][..],
        &["sim", "--chunk", "0"],
        &["sim", "--policy", "fifo"],
        &["sim", "--step-time", "base=-1ms"],
        &["sim", "--step-time", "base=1h"],
        &["sim", "--step-time", "h100"],
        &["sim", "--rate-scale", "0"],
        &["sim", "--requests-out", "r.jsonl"],
        &["sim", "--trace", "log.csv"],
        &["sim", "--trace", "back.csv", map[0], map[1]],
        &[
            "sim",
            "--trace",
            "same.csv",
            "--map",
            "id=id,arrival_s=t,input_tokens=in,output_tokens=out",
        ],
        &["sim", "--trace", "result.json"],
    ] {
        text.push_str(&format!(
            "$ goodput {}\n{}",
            arguments.join(" "),
            run_in(dir.path(), arguments)
        ));
    }
    insta::assert_snapshot!("sim_errors", text);
}

/// Runs the tool and wants it to refuse in one line.
fn refused(dir: &Path, arguments: &[&str]) -> String {
    let text = run_in(dir, arguments);
    let message = text.strip_suffix("exit 2\n").unwrap_or_else(|| panic!("not refused: {text}"));
    assert_eq!(message.lines().count(), 1, "{message}");
    message.to_owned()
}

#[test]
fn an_input_is_never_written_over() {
    let dir = folder_of_examples();
    let before = std::fs::read(dir.path().join("log.csv")).unwrap();
    let map = "--map=ttft_ms=first_ms";
    insta::assert_snapshot!(
        refused(dir.path(), &["report", "log.csv", map, "-o", "./log.csv"]),
        @"goodput: -o ./log.csv: is an input file, name another one"
    );
    assert_eq!(std::fs::read(dir.path().join("log.csv")).unwrap(), before);
    insta::assert_snapshot!(
        refused(dir.path(), &["report", "log.csv", map, "-o", "nowhere/x.md"]),
        @"goodput: cannot write nowhere/x.md: No such file or directory (os error 2)"
    );
    insta::assert_snapshot!(
        refused(dir.path(), &["report", "-", "-"]),
        @"goodput: `-` is given twice, but standard input can be read once"
    );
}

/// A full disk is an error; a reader that went away, as `head` does, ends the tool in silence.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_goodput")).arg("explain").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(
        String::from_utf8(output.stderr).unwrap(),
        @"goodput: cannot write standard output: No space left on device (os error 28)"
    );
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output =
        Command::new(env!("CARGO_BIN_EXE_goodput")).arg("explain").stdout(writer).output().unwrap();
    // 128 and SIGPIPE, as a shell reports it of `cat`.
    assert_eq!((output.status.code(), output.stderr.len()), (Some(141), 0));
}

#[test]
fn the_tool_that_wrote_a_file_is_named_with_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let header =
        |tool: &str| format!("{{\"schema_version\": 1, \"kind\": \"goodput-timelines\"{tool}}}\n");
    let request = "{\"id\": \"a\", \"ttft_s\": 0.3, \"e2e_s\": 0.9, \"output_tokens\": 7}\n";
    let mut first_lines = String::new();
    for (tool, format) in [
        (", \"tool\": \"our gateway\", \"tool_version\": \"1.4\"", "text"),
        (", \"tool\": \"our gateway\", \"tool_version\": \"1.4\"", "md"),
        (", \"tool\": \"our gateway\"", "text"),
        (", \"tool_version\": \"1.4\"", "text"),
        (", \"tool\": \"evil\\u001b[2J\\nname\"", "text"),
        ("", "text"),
    ] {
        std::fs::write(dir.path().join("t.jsonl"), header(tool) + request).unwrap();
        let text = run_in(dir.path(), &["report", "t.jsonl", "--format", format]);
        first_lines.push_str(text.lines().next().unwrap());
        first_lines.push('\n');
        assert!(!text.contains("1 requests"), "{text}");
    }
    insta::assert_snapshot!(first_lines, @r#"
    t.jsonl: goodput timelines, written by our gateway 1.4
    **t.jsonl** (goodput timelines, written by our gateway 1.4)
    t.jsonl: goodput timelines, written by our gateway
    t.jsonl: goodput timelines, written by version 1.4
    t.jsonl: goodput timelines, written by evil\u{1b}[2J\nname
    t.jsonl: goodput timelines
    "#);
}

/// The name of a figure in a file is its own affair, the table of the report is ours.
#[test]
fn control_characters_of_a_file_do_not_reach_the_terminal_or_break_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let file = r#"{"model_id": "m\u001b[31m\nx", "num_prompts": 1, "completed": 1, "a\n|b": 2.5}"#;
    std::fs::write(dir.path().join("r.json"), file).unwrap();
    let text = run_in(dir.path(), &["report", "r.json"]);
    assert!(!text.contains('\u{1b}') && text.contains(r"m\u{1b}[31m\nx"), "{text}");
    let table = run_in(dir.path(), &["report", "r.json", "--format", "md"]);
    assert!(table.contains(r"| stated by tool: a\n\|b | 2.5 |"), "{table}");
}

#[test]
fn what_queueing_cannot_answer_is_said_in_one_line() {
    let here = Path::new(".");
    let mut text = String::new();
    for arguments in [
        &["queue", "mm1", "--rate", "-1/s", "--service", "100ms"][..],
        &["queue", "mm1", "--rate", "1e308/s", "--service", "100ms"],
        &["queue", "mm1", "--rate", "1/s", "--service", "1e-300s"],
        &["queue", "mg1", "--rate", "1/s", "--service", "100ms", "--cv", "x"],
        &["queue", "mg1", "--rate", "1/s", "--service", "100ms", "--cv", "-1"],
        &["queue", "erlang", "--load", "1e9", "--servers", "18446744073709551615"],
        &["queue", "erlang", "--load", "1e9", "--servers", "9007199254740991"],
        &["queue", "erlang", "--load", "-1", "--servers", "2"],
        &["queue", "mmc", "--rate", "1/s", "--service", "1s", "--servers", "1.5"],
        &["queue", "little", "--number", "-1", "--rate", "1/s"],
        &["queue", "required", "--rate", "4/s", "--percentile", "100%", "--within", "1s"],
    ] {
        text.push_str(&refused(here, arguments));
    }
    insta::assert_snapshot!(text, @r#"
    goodput: --rate: rate `-1/s`: a rate is not negative
    goodput: --rate: rate must be at most 1e100, got 1e308
    goodput: mu must be from 1e-50 to 1e50, got 9.999999999999999e299
    goodput: --cv: `x`: write a number, for example 1.5
    goodput: cv must be from 0 to 1e24, or infinite, got -1
    goodput: --servers: count `18446744073709551615`: write a whole number up to 2^53, with k, M or G if you like: 120, 5k, 1.2M
    goodput: c must be a whole number from 1 to 1000000000, got 9007199254740991
    goodput: a must be at least 0, got -1
    goodput: --servers: count `1.5`: write a whole number up to 2^53, with k, M or G if you like: 120, 5k, 1.2M
    goodput: l must be from 0 to 1e50, got -1
    goodput: p must be above 0 and below 1, got 1
    "#);
}

/// Rounded to 100 % it would say that a queue without end is stable, or that nobody misses.
#[test]
fn extremes_of_queueing_are_neither_rounded_away_nor_printed_as_noise() {
    let mut text = run(&["queue", "mg1", "--rate", "1/s", "--service", "100ms", "--cv", "inf"]);
    text += &run(&["queue", "mmc", "--rate", "0.999999/s", "--service", "1s", "--servers", "1"]);
    insta::assert_snapshot!("queue_extremes", text);
    let json = run(&[
        "queue",
        "mg1",
        "--rate",
        "1/s",
        "--service",
        "1ms",
        "--cv",
        "inf",
        "--format",
        "json",
    ]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["figures"]["wq_s"].is_null());
}

/// Every figure of the catalog, at values that no server shows: a value or a reason, never NaN.
#[test]
fn explain_has_a_value_or_a_reason_for_every_number() {
    let list: serde_json::Value =
        serde_json::from_str(&run(&["explain", "--format", "json"])).unwrap();
    let metrics = list["metrics"].as_array().unwrap();
    assert!(90 <= metrics.len());
    for metric in metrics {
        let id = metric["id"].as_str().unwrap();
        let inputs = metric["inputs"].as_array().unwrap();
        for x in ["0", "-1", "1e300", "1e-300", "9007199254740993", "0.5"] {
            let with: Vec<String> =
                inputs.iter().map(|i| format!("{}={x}", i["id"].as_str().unwrap())).collect();
            if with.is_empty() {
                continue;
            }
            let arguments = ["goodput", "explain", id, "--with", &with.join(","), "--format"];
            let answer = goodput::run(arguments.into_iter().chain(["json"]));
            assert_eq!(answer.code, 0, "{id} at {x}: {}", answer.err);
            let json: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
            let value = json["value"].as_f64();
            let reason = json["no_value_because"].as_str();
            assert!(value.is_some() != reason.is_some(), "{id} at {x}: {value:?} {reason:?}");
            assert!(reason.is_none_or(|r| r.len() < 200), "{id} at {x}: {reason:?}");
            let text = goodput::run(arguments.into_iter().chain(["text"]));
            let page = text.out.lines().find(|l| l.trim_start().starts_with("yours"));
            assert!(page.is_some_and(|l| l.contains("no value") == reason.is_some()), "{id} {x}");
        }
    }
}

/// Text, JSON, CSV and Markdown hold the same figures; by hand: one request of 10^15 tokens whose
/// first came after 1 s and whose last after 3 s, TPOT 2 s / (10^15 - 1).
#[test]
fn extreme_but_valid_values_agree_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let line = "{\"id\": \"a\", \"arrival_s\": 0, \"first_token_s\": 1, \"last_token_s\": 3, \"output_tokens\": 1000000000000000}\n";
    std::fs::write(dir.path().join("t.jsonl"), line).unwrap();
    let of = |format: &str| run_in(dir.path(), &["report", "t.jsonl", "--format", format]);
    let json: serde_json::Value = serde_json::from_str(&of("json")).unwrap();
    let tpot = 2.0 / 999_999_999_999_999.0;
    assert_eq!(json["runs"][0]["latency"]["tpot"]["p99_s"], tpot);
    assert_eq!(json["runs"][0]["throughput"]["output_tokens_per_s"], 1e15 / 3.0);
    assert!(of("csv").contains(&format!("tpot_p99_s,{tpot},,,1")));
    assert!(of("md").contains("| tpot_p99_s | 2.00000e-15 | - | - | 1 |"), "{}", of("md"));
    let text = of("text");
    assert!(text.contains("0.000002 ns") && text.contains("333333000000000 tok/s "), "{text}");
}

/// A real hour of traffic; the trace belongs to third parties and is not in the repository.
#[test]
fn a_replay_of_the_azure_trace_equals_the_report_on_its_timelines() {
    let data = std::env::var_os("GOODPUT_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let trace = data.join("traces/azure2023/AzureLLMInferenceTrace_conv.csv");
    if !trace.is_file() {
        // Written past the test runner's capture, so that a plain run shows it.
        let _ = writeln!(std::io::stderr(), "skipped: no {} (set GOODPUT_DATA)", trace.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let slo = ["--slo", "ttft<2s,tpot<100ms"];
    let sim = [
        "sim",
        "--trace",
        trace.to_str().unwrap(),
        "--max-num-seqs",
        "64",
        "--chunk",
        "512",
        "--step-time",
        "base=8ms,prefill=60us/token,decode=100us/request,context=150ns/token",
        "--requests-out",
        "r.jsonl",
    ];
    let simulated = run_in(dir.path(), &[&sim[..], &slo[..]].concat());
    let reported = run_in(dir.path(), &[&["report", "r.jsonl"][..], &slo[..]].concat());
    assert_eq!(layers(&simulated), layers(&reported));
    assert!(simulated.contains("19366 injected = 19366 completed + 0 running + 0 queued"));
    assert!(simulated.contains("Little's law     holds exactly"), "{simulated}");
    let reference = run_in(dir.path(), &[&sim[..], &slo[..], &["--reference"]].concat());
    assert_eq!(simulated, reference);
}

#[test]
fn a_truncated_run_prints_no_rate_and_neither_does_the_report_on_its_file() {
    let dir = folder_of_examples();
    let sim = ["sim", "--max-num-seqs", "64", "--chunk", "256", "--until", "20s"];
    let out = ["--slo", "ttft<1s", "--requests-out", "r.jsonl"];
    let text = run_in(dir.path(), &[&sim[..], &out[..]].concat());
    assert!(text.contains("TRUNCATED") && text.contains("requests         -"), "{text}");
    assert!(!text.contains("goodput ratio"), "{text}");
    let report = run_in(dir.path(), &["report", "r.jsonl", "--slo", "ttft<1s"]);
    assert!(report.contains("truncated, so without rates"), "{report}");
    assert!(report.contains("requests         -") && !report.contains("goodput ratio"), "{report}");
}

#[test]
fn a_simulation_never_writes_over_what_it_reads() {
    let dir = folder_of_examples();
    std::fs::hard_link(dir.path().join("azure.csv"), dir.path().join("link.csv")).unwrap();
    let mut said = String::new();
    for arguments in [
        &["sim", "--trace", "azure.csv", "--requests-out", "link.csv"][..],
        &["sim", "--trace", "azure.csv", "-o", "azure.csv"],
        &["sim", "--chunk", "256", "-o", "x", "--requests-out", "x"],
        &["sim", "--chunk", "256", "--requests-out", "-"],
    ] {
        said.push_str(&refused(dir.path(), arguments));
    }
    insta::assert_snapshot!(said, @"
    goodput: --requests-out link.csv: is an input file, name another one
    goodput: -o azure.csv: is an input file, name another one
    goodput: -o and --requests-out both name x: the second would overwrite
    goodput: --requests-out -: name a file; the result goes to standard output by itself
    ");
}

/// The configuration of a small model.
const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 16,
"num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
"torch_dtype": "bfloat16"}"#;

/// Files that a law, a scenario or a step time names, and those in a folder, are read like others.
#[test]
fn no_command_writes_over_what_its_options_and_files_name() {
    let dir = folder_of_examples();
    let path = |name: &str| dir.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    write("len.txt", "100\n200\n");
    write("p.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2030-01-01 00:00:00,374,44\n");
    std::fs::create_dir_all(path("kernels")).unwrap();
    write("kernels/dense.csv", "layer,tokens,time_us\n");
    std::fs::create_dir_all(path("model")).unwrap();
    write("model/config.json", LLAMA);
    let settings = "[settings]\nmax_num_seqs = 4\nchunk = 128\nstep_time = 'base=10ms'\n";
    let top = "schema_version = 1\nname = 'x'\ntitle = { en = 'x', zh = 'x' }\n\
               about = { en = 'x', zh = 'x' }\n";
    write("traced.toml", &format!("{top}[workload]\ntrace = 'p.csv'\n{settings}"));
    let drawn = "[workload.generate]\nrequests = 5\nrate_per_s = 1\nseed = 1\n";
    let tokens = "input_tokens = 'file:len.txt'\noutput_tokens = '5'\n";
    write("drawn.toml", &format!("{top}{drawn}{tokens}{settings}"));
    write("paired.toml", &format!("{top}{drawn}pairs = 'p.csv'\n{settings}"));
    let sim = ["sim", "--max-num-seqs", "4", "--chunk", "128"];
    let drawn_sim = [&sim[..], &["--requests", "5"]].concat();
    let roofline = "roofline:config=model,gpu=h100";
    let generate = ["trace", "generate", "--requests", "5"];
    let plan = ["plan", "--rate", "5/s", "--output-tokens", "5", "--input-tokens", "file:len.txt"];
    let laws = ["--input-tokens", "file:len.txt"];
    let calls: Vec<(&str, Vec<&str>)> = vec![
        ("p.csv", [&drawn_sim[..], &["--pairs", "p.csv", "-o"]].concat()),
        ("p.csv", [&drawn_sim[..], &["--pairs", "p.csv", "--series"]].concat()),
        ("len.txt", [&drawn_sim[..], &laws, &["--requests-out"]].concat()),
        ("len.txt", [&drawn_sim[..], &["--output-tokens", "file:len.txt", "-o"]].concat()),
        ("p.csv", [&sim[..], &["--scenario", "traced.toml", "-o"]].concat()),
        ("p.csv", [&sim[..], &["--scenario", "traced.toml", "--requests-out"]].concat()),
        ("len.txt", [&sim[..], &["--scenario", "drawn.toml", "--trace-out"]].concat()),
        ("p.csv", [&sim[..], &["--scenario", "paired.toml", "-o"]].concat()),
        ("model/config.json", [&drawn_sim[..], &["--step-time", roofline, "-o"]].concat()),
        ("p.csv", vec!["trace", "inspect", "p.csv", "-o"]),
        ("p.csv", vec!["trace", "convert", "p.csv", "-o"]),
        ("p.csv", [&generate[..], &["--pairs", "p.csv", "-o"]].concat()),
        ("len.txt", [&generate[..], &laws, &["-o"]].concat()),
        ("drawn.toml", vec!["trace", "generate", "--scenario", "drawn.toml", "-o"]),
        ("len.txt", vec!["trace", "generate", "--scenario", "drawn.toml", "-o"]),
        ("len.txt", [&plan[..], &["-o"]].concat()),
        ("len.txt", [&["tune", "--slo", "p99(ttft)<1s"][..], &laws, &["-o"]].concat()),
        ("p.csv", vec!["queue", "burst", "p.csv", "-o"]),
        ("model/config.json", vec!["kv", "--config", "model/config.json", "-o"]),
        ("model/config.json", vec!["kv", "--config", "model", "-o"]),
        ("kernels/dense.csv", vec!["fit", "kernels", "-o"]),
    ];
    for (file, call) in calls {
        let before = std::fs::read(path(file)).unwrap();
        let said = refused(dir.path(), &[&call[..], &[file]].concat());
        let option = call.last().unwrap();
        let expected = format!("{option} {file}: is an input file, name another one");
        assert!(said.contains(&expected), "{call:?}: {said}");
        assert_eq!(std::fs::read(path(file)).unwrap(), before, "{call:?}");
    }
    // What is no input of theirs may be beside them.
    run_in(dir.path(), &["kv", "--config", "model", "-o", "model/kv.txt"]);
    assert!(path("model/kv.txt").exists());
}

/// No file is there yet, so that nothing but the names can tell that they lead to one.
#[cfg(unix)]
#[test]
fn two_outputs_are_never_one_file_that_is_not_there_yet() {
    let dir = folder_of_examples();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    for (link, target) in [("link", "new.x"), ("sub/up", "../new.x"), ("twice", "sub/up")] {
        std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
    }
    let absolute = dir.path().join("new.x");
    for other in ["./new.x", "sub/../new.x", "link", "sub/up", "twice", absolute.to_str().unwrap()]
    {
        for arguments in [
            &["sim", "--requests", "20", "--chunk", "256", "--series", "new.x", "--trace-out"][..],
            &["sim", "--requests", "20", "--chunk", "256", "--requests-out", "new.x", "-o"],
            &["report", "result.json", "-o", "new.x", "--partial"],
            &["check", "result.json", "--slo", "ttft<1s", "-o", "new.x", "--junit"],
            &["tune", "--slo", "p99(ttft)<1s", "-o", "new.x", "--resume"],
            &["fit", "steps.csv", "-o", "new.x", "--residuals"],
        ] {
            let said = refused(dir.path(), &[arguments, &[other]].concat());
            assert!(said.contains(": the second would overwrite"), "{arguments:?} {other}: {said}");
        }
    }
    assert!(!absolute.exists());
    // The same name in two directories is two files.
    let apart = ["--series", "new.x", "--trace-out", "sub/new.x"];
    run_in(dir.path(), &[&["sim", "--requests", "20", "--chunk", "256"], &apart[..]].concat());
    assert!(absolute.exists() && dir.path().join("sub/new.x").exists());
}

#[test]
fn steps_that_cost_nothing_have_no_rates() {
    let dir = folder_of_examples();
    std::fs::write(dir.path().join("dup.csv"), "t,in,out\n1,3,2\n1,3,2\n").unwrap();
    let map = "arrival_s=t,input_tokens=in,output_tokens=out";
    let text =
        run_in(dir.path(), &["sim", "--trace", "dup.csv", "--map", map, "--step-time", "base=0ms"]);
    assert!(text.contains("requests         -") && text.contains("no arrival rate"), "{text}");
}

/// The guide says so: the path counts from where the tool runs, not from the scenario's folder.
#[test]
fn a_scenario_finds_its_trace_from_the_directory_in_which_the_tool_runs() {
    let dir = folder_of_examples();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(
        dir.path().join("sub/s.toml"),
        "schema_version = 1\nname = \"s\"\n\n[title]\nen = \"S\"\nzh = \"S\"\n\n[about]\nen = \"S.\"\n\
         zh = \"S.\"\n\n[workload]\ntrace = \"azure.csv\"\n\n[settings]\nmax_num_seqs = 4\nchunk = 256\n\
         step_time = \"base=8ms\"\n\n[[variants]]\nname = \"v\"\n",
    )
    .unwrap();
    let text = run_in(dir.path(), &["sim", "--scenario", "sub/s.toml"]);
    assert!(text.contains("3 injected = 3 completed"), "{text}");
}

/// vLLM does not start with the first two, the third says no capacity, and of the fourth's requests
/// prompts of 374 and 396 tokens fit into 400 with room for a token, the one of 879 does not.
#[test]
fn what_vllm_would_refuse_is_refused_with_the_reason() {
    let dir = folder_of_examples();
    let sim = |arguments: &str| {
        let all =
            format!("sim --trace azure.csv --policy vllm-v1 --step-time base=10ms {arguments}");
        run_in(dir.path(), &all.split(' ').collect::<Vec<_>>())
    };
    insta::assert_snapshot!(sim("--num-kv-blocks 25 --max-model-len 400"), @r#"
    goodput: a request of max_model_len (400) tokens needs 25 blocks of 16 tokens, but the KV cache has 24 besides the null block: lower max_model_len to 384, or raise num_blocks (--num-kv-blocks) to 26
    exit 2
    "#);
    insta::assert_snapshot!(sim("--num-kv-blocks 500 --max-num-seqs 512 --max-num-batched-tokens 256"), @r#"
    goodput: max_num_batched_tokens must be at least max_num_seqs, which is 512, got 256
    exit 2
    "#);
    insta::assert_snapshot!(sim("--max-num-seqs 8"), @r#"
    goodput: no KV capacity: give --num-kv-blocks, or --kv-memory with --kv-bytes-per-token, or a step-time preset whose model and GPU are known
    exit 2
    "#);
    let refused =
        sim("--num-kv-blocks 26 --max-model-len 400 --max-num-batched-tokens 256 --max-num-seqs 8");
    let shown = refused.lines().filter(|l| l.contains("refused at") || l.contains("injected"));
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r#"
      to know          refused at arrival, as vLLM does: request `4`: the prompt must be shorter than max_model_len, which is 400, to leave room for one token of the answer; got 879 tokens
      requests         3 injected = 2 completed + 0 running + 0 queued + 1 rejected
    "#);
}

/// An option that a run cannot follow is refused; an answer that ends early is counted: a prompt of
/// 374 tokens and 44 more pass a length of 400, as 396 and 109 do, and 879 do not fit.
#[test]
fn no_option_of_vllm_is_left_unused_and_no_answer_cut_in_silence() {
    let dir = folder_of_examples();
    let sim = |more: &str| {
        let all = format!("sim --trace azure.csv --policy vllm-v1 --step-time base=10ms {more}");
        run_in(dir.path(), &all.split(' ').collect::<Vec<_>>())
    };
    for (more, said) in [
        ("--num-kv-blocks 500 --max-num-seqs 0", "--max-num-seqs: must be at least 1, got 0"),
        (
            "--num-kv-blocks 500 --chunk 5",
            "--chunk: is for decode-first, sarathi and sglang; vllm-v1 has",
        ),
        ("--num-kv-blocks 500 --kv-memory 10GiB", "--num-kv-blocks and --kv-memory both say"),
    ] {
        let text = sim(more);
        assert!(text.contains(said) && text.ends_with("exit 2\n"), "{text}");
    }
    let text = sim("--num-kv-blocks 500 --max-model-len 400");
    assert!(text.contains("2 answers cut at max_model_len (400 tokens), as vLLM does"), "{text}");
}

/// What becomes of a preempted decode is said for policies that can swap, with a time.
#[test]
fn options_of_preemption_are_never_left_unused() {
    let dir = folder_of_examples();
    let sim = |more: &str| {
        let all = format!("sim --trace azure.csv --step-time base=10ms {more}");
        run_in(dir.path(), &all.split(' ').collect::<Vec<_>>())
    };
    let swaps = "--policy sarathi --kv-blocks 100 --preemption";
    for (more, said) in [
        (format!("{swaps} swap"), "--preemption: swap needs --swap-time, such as 1us/token"),
        (format!("{swaps} swap --swap-time 1us"), "--swap-time: expected a time per token"),
        (format!("{swaps} swap --swap-time 2s/token"), "swap_time must be at most 1s, got 2s"),
        (format!("{swaps} drop"), "--preemption: expected recompute or swap, got `drop`"),
        ("--policy sarathi --swap-time 1us/token".to_owned(), "--swap-time: says nothing without"),
        ("--policy sarathi --preemption recompute".to_owned(), "--preemption: is for"),
        ("--policy orca --kv-blocks 100 --preemption recompute".to_owned(), "--preemption: is for"),
    ] {
        let text = sim(&more);
        assert!(text.contains(said) && text.ends_with("exit 2\n"), "{more}: {text}");
    }
    let text = sim(&format!("{swaps} recompute,swap --swap-time 1us/token"));
    assert!(text.contains("swap 1us/token"), "{text}");
}

#[test]
fn a_vllm_command_line_is_read_and_what_it_leaves_out_is_named() {
    let dir = folder_of_examples();
    let line = "vllm serve my/model --max-num-seqs 64 --max-model-len 2048 --enable-lora \
                --num-gpu-blocks-override 500 --no-enable-prefix-caching -pp 2";
    let text = run_in(
        dir.path(),
        &[
            "sim",
            "--trace",
            "azure.csv",
            "--engine",
            "vllm",
            "--engine-args",
            line,
            "--step-time",
            "base=10ms",
            "--max-num-batched-tokens",
            "1024",
        ],
    );
    let shown = text.lines().skip(2).take(5);
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r#"
      setting          policy vllm-v1 max_model_len=2048 num_kv_blocks=500 enable_prefix_caching=false max_num_batched_tokens=1024, max_num_seqs 64, chunk -, rate_scale 1
      engine           vLLM 0.33.0, async, max_num_batched_tokens 1024, max_num_seqs 64, max_model_len 2048, 500 KV blocks of 16, prefix caching off, chunked prefill on
      to know          --enable-lora: LoRA is not modelled
                       -pp: pipeline parallelism is not modelled
      step time        base=10ms
    "#);
    let text = run_in(dir.path(), &["sim", "--max-model-len", "100"]);
    insta::assert_snapshot!(text, @r#"
    goodput: --max-model-len: for vllm-v1 alone: add --policy vllm-v1
    exit 2
    "#);
}

/// The figures that sglang#9585 states, in the shape of its client's file, without any request.
#[test]
fn the_summary_of_sglang_9585_is_usable_for_throughput_and_not_for_ttft() {
    let text = run(&["report", "tests/data/sglang-issue-9585.jsonl"]);
    assert!(text.contains("not in the file: ttft per request"), "{text}");
    let verdict = text.lines().last().unwrap();
    assert!(verdict.starts_with("verdict            usable for throughput"), "{verdict}");
    assert!(verdict.contains("not for TTFT (W05)"), "{verdict}");
}

/// The load was limited by the client: 15.8 of 50 requests a second, with 4 in flight.
#[test]
fn a_run_with_an_error_finding_ends_with_exit_code_3() {
    let file = sample("nodetail.json");
    let text = run(&["report", file.to_str().unwrap()]);
    assert!(text.ends_with("verdict            not usable (W03)\nexit 3\n"), "{text}");
    let warned = sample("rate20-fail.json");
    let text = run(&["report", warned.to_str().unwrap(), "--warn-fatal"]);
    assert!(text.ends_with("exit 3\n"), "{text}");
}

/// Steps of 42, 10, 30 and 10 ms under two steps in flight. The first two, a prompt of 32 tokens
/// and the token after it, are scheduled at once, so that who arrives at 5 ms is in the third, with
/// a prompt of 20 tokens: first tokens at 42 and 82 ms, last ones at 82 and 92. Blocks held: 2, 3,
/// 5, 5 of 10, so (42 · 2 + 10 · 3 + 40 · 5) / 920 = 34.1 %.
#[test]
fn a_run_under_vllm_can_be_checked_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let trace = "arrival_ms,input_tokens,output_tokens\n0,32,3\n5,20,2\n";
    std::fs::write(dir.path().join("two.csv"), trace).unwrap();
    let arguments = "sim --trace two.csv --policy vllm-v1 --num-kv-blocks 11 \
                     --step-time base=10ms,prefill=1ms/token";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    insta::assert_snapshot!(run_in(dir.path(), &arguments));
}

/// Flags replace what the scenario draws, and are refused where nothing is drawn.
#[test]
fn requests_are_drawn_as_flags_say() {
    let dir = folder_of_examples();
    let sim = |more: &[&str]| {
        let common = ["sim", "--max-num-seqs", "16", "--chunk", "512", "--requests", "200"];
        run_in(dir.path(), &[&common[..], more].concat())
    };
    let drawn = |text: &str| {
        let line = text.lines().find(|l| l.trim_start().starts_with("drawn"));
        line.unwrap_or(text).trim().to_owned()
    };
    let text = sim(&["--rate", "300/min", "--arrivals", "gamma:cv=2", "--input-tokens", "64"]);
    insta::assert_snapshot!(drawn(&text), @"drawn            5/s gamma:cv=2; input constant:64; output lognormal:median=160,sigma=0.8,min=1,max=4096");
    assert_eq!(
        text,
        sim(&["--rate", "5", "--arrivals", "gamma:2", "--input-tokens", "constant:64"])
    );
    let turns = ["--turns", "geometric:3,max=9", "--think", "exponential:2s", "--seed", "7"];
    insta::assert_snapshot!(drawn(&sim(&turns)), @"drawn            15/s poisson; input lognormal:median=600,sigma=1.1,min=4,max=16384; output lognormal:median=160,sigma=0.8,min=1,max=4096; sessions of turns geometric:mean=3,max=9, think exponential:mean=2s after an arrival");
    let mut faults = String::new();
    for more in [
        &["--rate", "0"][..],
        &["--rate", "fast"],
        &["--arrivals", "gamma"],
        &["--input-tokens", "normal:5"],
        &["--output-tokens", "uniform:9,5"],
        &["--input-tokens", "file:none.txt"],
        &["--pairs", "none.csv"],
        &["--turns", "geometric:3", "--think", "1s"],
        &["--trace", "azure.csv"],
        &["--slice", "0..5"],
        &["--seeds", "3", "--seed", "18446744073709551615"],
    ] {
        faults.push_str(&sim(more));
    }
    faults.push_str(&run_in(dir.path(), &["sim", "--trace", "azure.csv", "--slice", "9..5"]));
    insta::assert_snapshot!(faults, @"
    goodput: --rate: rate_per_s must be from 1e-6 to 1e9 requests per second, got 0
    exit 2
    goodput: --rate: rate `fast`: write 20/s, 1200/min, 50000/h or 20rps
    exit 2
    goodput: --arrivals: law of arrivals `gamma`: expected a number for `cv`
    exit 2
    goodput: --input-tokens: law of lengths `normal:5`: expected a whole number from 1 to 4294967295, or one of `uniform:100,200`, `geometric:mean=200`, `lognormal:median=600,sigma=1.1`, `zipf:exponent=1.2,max=4096`
    exit 2
    goodput: --output-tokens: output_tokens.max must be at least min, 9, and at most 4294967295, got 5
    exit 2
    goodput: --input-tokens: none.txt: cannot be read: No such file or directory (os error 2)
    exit 2
    goodput: --pairs: none.csv: cannot be read: No such file or directory (os error 2)
    exit 2
    goodput: --turns: turns must be at most 1000 turns: give the law a `max`, got 4294967295
    exit 2
    goodput: --requests: the requests of azure.csv are not drawn from a seed
    exit 2
    goodput: --slice: is for a trace, add --trace FILE
    exit 2
    goodput: --seeds: seed 18446744073709551615 has no 2 above it
    exit 2
    goodput: --slice `9..5`: expected requests `0..1000`, times from the start `10m-30m` or times of day `18:20-18:30`, the end after the start
    exit 2
    ");
}

/// Three seeds one by one give the mean and the paired difference of three seeds together, also
/// behind a router that draws.
#[test]
fn seeds_give_means_and_paired_differences() {
    let sim = |more: &[&str]| {
        let common = ["sim", "--requests", "200", "--rate", "12", "--format", "json"];
        let fleet = ["--replicas", "2", "--router", "random"];
        let text = run(&[&common[..], &fleet, more].concat());
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    };
    let all = sim(&["--seeds", "3", "--seed", "5"]);
    let of = |run: usize, path: &str| all["runs"][run].pointer(path).unwrap().as_f64().unwrap();
    let mut values = [[0.0; 3]; 2];
    for (i, seed) in ["5", "6", "7"].iter().enumerate() {
        let one = sim(&["--seed", seed]);
        for (run, row) in values.iter_mut().enumerate() {
            let value = &one["runs"][run]["latency"]["ttft"]["p99_s"];
            row[i] = value.as_f64().unwrap_or_else(|| panic!("{one}"));
        }
    }
    let mean = |v: [f64; 3]| v.iter().sum::<f64>() / 3.0;
    // Student's t for two degrees of freedom at 95 %, as tables have it.
    let half = |v: [f64; 3]| {
        let m = mean(v);
        4.302_652_73 * (v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / 2.0 / 3.0).sqrt()
    };
    for (run, row) in values.iter().enumerate() {
        let figure = |key: &str| of(run, &format!("/figures/ttft_p99_s/{key}"));
        assert!((figure("mean") / mean(*row) - 1.0).abs() < 1e-9);
        assert!((figure("high") - mean(*row) - half(*row)).abs() < 1e-6);
    }
    let difference = std::array::from_fn(|i| values[1][i] - values[0][i]);
    let figure = |key: &str| of(1, &format!("/difference_to_first/ttft_p99_s/{key}"));
    assert!((figure("mean") - mean(difference)).abs() < 1e-9);
    assert!((figure("low") - mean(difference) + half(difference)).abs() < 1e-6);
    assert!(all["runs"][0]["difference_to_first"].is_null());
}

/// A trace that is drawn, written and read again gives the run of the draw itself.
#[test]
fn a_generated_trace_runs_as_the_draw_does() {
    let dir = tempfile::tempdir().unwrap();
    let draw = ["--rate", "9", "--requests", "300", "--turns", "3", "--think", "1s"];
    let generate = ["trace", "generate", "-o", "t.jsonl"];
    insta::assert_snapshot!(run_in(dir.path(), &[&generate[..], &draw].concat()), @"
    t.jsonl: 300 requests, seed 1
      drawn            9/s poisson; input lognormal:median=600,sigma=1.1,min=4,max=16384; output lognormal:median=160,sigma=0.8,min=1,max=4096; sessions of turns constant:3, think constant:1s after an arrival
    ");
    let settings = ["--policy", "vllm-v1", "--num-kv-blocks", "9000"];
    let figures = |text: &str| {
        let rows = text.lines().filter(|l| l.contains("TTFT  ") || l.contains("prefix hit rate"));
        rows.collect::<Vec<_>>().join("\n")
    };
    let drawn = figures(&run_in(dir.path(), &[&["sim"], &draw[..], &settings].concat()));
    let read = ["sim", "--trace", "t.jsonl"];
    let read = figures(&run_in(dir.path(), &[&read[..], &settings].concat()));
    assert_eq!(drawn, read);
    assert_eq!(drawn.lines().count(), 2, "{drawn}");
    // What is converted is the same file, but for time zero.
    let text = run_in(dir.path(), &["trace", "convert", "t.jsonl", "--slice", "0..1"]);
    assert!(text.contains("\"arrival_s\":0,"), "{text}");
    insta::assert_snapshot!(run_in(dir.path(), &["trace", "convert", "t.jsonl", "-o", "t.jsonl"]), @"
    goodput: -o t.jsonl: is an input file, name another one
    exit 2
    ");
    insta::assert_snapshot!(run_in(dir.path(), &["trace", "inspect", "none.csv"]), @"
    goodput: none.csv: cannot be read: No such file or directory (os error 2)
    exit 2
    ");
}

/// `-` is standard output for every command's result, and for nothing else; a file is written once.
#[test]
fn outputs_mean_the_same_in_every_command() {
    let dir = folder_of_examples();
    let map = "--map=ttft_ms=first_ms";
    let to = |more: &[&str]| run_in(dir.path(), &[&["report", "log.csv", map], more].concat());
    assert_eq!(to(&["-o", "-"]), to(&[]));
    let convert =
        |more: &[&str]| run_in(dir.path(), &[&["trace", "convert", "azure.csv"], more].concat());
    assert_eq!(convert(&["-o", "-"]), convert(&[]));
    assert!(!dir.path().join("-").exists());
    let mut said = String::new();
    for arguments in [
        &["report", "log.csv", map, "--partial", "-"][..],
        &["report", "log.csv", map, "--partial", "x", "-o", "x"],
        &["check", "log.csv", map, "--slo", "p50(ttft)<1s", "--junit", "-"],
        &["check", "log.csv", map, "--slo", "p50(ttft)<1s", "--junit", "x", "-o", "x"],
        &["check", "log.csv", map, "--slo", "p50(ttft)<1s", "--junit", "log.csv"],
        &["diff", "log.csv", "azure.csv", "-o", "azure.csv"],
        &["diagnose", "log.csv", map, "-o", "log.csv"],
        &["report", "log.csv", map, "--strict"],
    ] {
        said.push_str(&refused(dir.path(), arguments));
    }
    insta::assert_snapshot!("outputs", said);
}

#[test]
fn explain_knows_findings_and_rows_and_says_which_there_are() {
    let dir = folder_of_examples();
    insta::assert_snapshot!("explain_row", run(&["explain", "queue-grows"]));
    let said: String = [
        &["explain", "W99"][..],
        &["explain", "queue_grow"],
        &["explain", "queue_grows", "--with", "rho=1"],
    ]
    .map(|arguments| refused(dir.path(), arguments))
    .concat();
    insta::assert_snapshot!("explain_unknown", said);
}

/// Two replicas behind two routers, and the ledger of one: 600 requests at 9/s, of which one
/// server completes 8.6/s.
#[test]
fn fleets_are_compared_and_their_replicas_shown() {
    let common = ["sim", "--max-num-seqs", "16", "--chunk", "512", "--rate", "9/s"];
    let sim = |more: &[&str]| run(&[&common[..], &["--requests", "600"], more].concat());
    let table = sim(&["--replicas", "1,2", "--router", "round-robin,central-queue", "--jobs", "1"]);
    insta::assert_snapshot!("sim_fleet", table);
    let on_two = ["--replicas", "1,2", "--router", "round-robin,central-queue", "--jobs", "2"];
    assert_eq!(table, sim(&on_two), "--jobs changes nothing");
    let one = sim(&["--replicas", "2", "--router", "round-robin"]);
    let part = |text: &str, from: &str, to: &str| {
        let start = text.find(from).unwrap_or_else(|| panic!("{from}: {text}"));
        text[start..].split(to).next().unwrap_or_default().to_owned()
    };
    insta::assert_snapshot!(part(&one, "Resources", "  utilization"), @"
    Resources
      in the system    mean 14.52: 14.49 in the batch of 16 on each of 2 replicas, 0.0317 waiting
      replicas         2 replicas behind round-robin; the fullest had 1.00 times the mean of the requests
                       0: 300 requests, busy 93.5 %, 46.2 % of the batch by time
                       1: 300 requests, busy 99.9 %, 44.4 % of the batch by time
    ");
    let tail = sim(&["--replicas", "1", "--explain-tail", "p99"]);
    insta::assert_snapshot!(part(&tail, "Where the time", "\nDiagnosis"), @r"
    Where the time of the slowest went
      TTFT             the slowest 1.0 % (7 requests from 7125.00 ms on) spend 98.7 % of it on waiting for a slot in the batch (max_num_seqs)
                       waiting for the step under way to end 0.1 %, its own prefill steps 1.1 %, the first decode step 0.1 %
      E2E              the slowest 1.0 % (7 requests from 12.14 s on) spend 51.1 % of it on its own decode
                       waiting for the step under way to end 0.04 %, waiting for a slot in the batch 35.5 %, its own prefill steps 0.5 %, the first decode step 0.1 %, others in its decode steps 12.8 %
    ");
}

/// Under each policy 600 requests at 9/s wait for what is too small for them, and the option that bounds
/// it is named, if that is one.
#[test]
fn what_the_slowest_wait_for_is_named_with_its_option() {
    let cases = [
        "sarathi --chunk 64 --max-num-seqs 64",
        "vllm-v1 --max-num-batched-tokens 80 --max-num-seqs 64",
        "vllm-v1 --max-num-batched-tokens 80 --max-num-scheduled-tokens 70 --max-num-seqs 64",
        "vllm-v1 --max-num-seqs 8",
        "vllm-v1 --num-kv-blocks 400 --max-model-len 4096",
        "orca --kv-blocks 300",
        "sglang --chunk 512 --max-num-seqs 16",
        "static --max-num-seqs 16",
    ];
    let mut said = String::new();
    for case in cases {
        let text = format!("sim --rate 9/s --requests 600 --explain-tail p99 --policy {case}");
        let text = run(&text.split(' ').collect::<Vec<_>>());
        let line = text.lines().find(|line| line.starts_with("  TTFT             the slowest"));
        let (_, on) = line.and_then(|line| line.split_once(" of it on ")).unwrap_or_default();
        said.push_str(&format!("{case}: {on}\n"));
    }
    insta::assert_snapshot!(said, @r"
    sarathi --chunk 64 --max-num-seqs 64: waiting behind the tokens of others (chunk)
    vllm-v1 --max-num-batched-tokens 80 --max-num-seqs 64: waiting behind the tokens of others (max_num_batched_tokens)
    vllm-v1 --max-num-batched-tokens 80 --max-num-scheduled-tokens 70 --max-num-seqs 64: waiting behind the tokens of others
    vllm-v1 --max-num-seqs 8: waiting for a slot in the batch (max_num_seqs)
    vllm-v1 --num-kv-blocks 400 --max-model-len 4096: waiting for KV blocks (num_kv_blocks)
    orca --kv-blocks 300: waiting for KV blocks (kv_blocks)
    sglang --chunk 512 --max-num-seqs 16: waiting for a slot in the batch (max_num_seqs)
    static --max-num-seqs 16: waiting for a slot in the batch
    ");
}

/// Four slots, three who may wait, and a permit every third of a second, at 20 requests a second.
#[test]
fn refusals_are_counted_by_reason() {
    let common = ["sim", "--max-num-seqs", "4", "--chunk", "256", "--rate", "20/s"];
    let doors = ["--requests", "200", "--max-waiting", "3", "--token-bucket", "3/s,burst=1"];
    let sim = |more: &[&str]| run(&[&common[..], &doors, more].concat());
    let json: serde_json::Value = serde_json::from_str(&sim(&["--format", "json"])).unwrap();
    let run = &json["runs"][0];
    let reasons = run["simulation"]["rejected_by_reason"].as_object().unwrap();
    let [full, permits] = ["queue_full", "token_bucket"].map(|why| reasons[why].as_u64().unwrap());
    assert!(0 < full && 0 < permits, "{reasons:?}");
    assert_eq!(run["rejected_requests"], full + permits);
    let said = format!("refused          {full} queue full, {permits} token bucket\n");
    assert!(sim(&[]).contains(&said), "{said}");
}

/// One server for prompts and two for answers: 400 requests at 9/s, 131072 bytes of KV a token.
#[test]
fn pools_are_shown_one_by_one() {
    let common = ["sim", "--policy", "sarathi", "--max-num-seqs", "16", "--chunk", "512"];
    let requests = ["--rate", "9/s", "--requests", "400", "--kv-transfer", "100Gbit/s"];
    let sim = |more: &[&str]| run(&[&common[..], &requests, more].concat());
    let pools = ["--disagg", "prefill=1,decode=2", "--kv-transfer-latency", "1ms"];
    let text = sim(&[&pools[..], &["--explain-tail", "p99"]].concat());
    let shown = |l: &&str| {
        ["setting", "load", "prefill", "decode", "replicas", "KV transfer", "1: ", "2: "]
            .iter()
            .any(|start| l.trim_start().starts_with(start))
            || l.contains("slowest")
            || l.contains("pool")
    };
    insta::assert_snapshot!("sim_pools", text.lines().filter(shown).collect::<Vec<_>>().join("\n"));
    let json: serde_json::Value =
        serde_json::from_str(&sim(&[&pools[..], &["--format", "json"]].concat())).unwrap();
    let run = &json["runs"][0];
    let pools = &run["disaggregation"];
    // 131072 · 8 / 10^11 s a token.
    assert_eq!(pools["kv_transfer_per_token_s"], 1.048_576e-5);
    assert_eq!(pools["kv_transfer_latency_s"], 1e-3);
    let prefill = &pools["prefill"]["replicas"];
    assert_eq!((prefill.as_array().unwrap().len(), &prefill[0]["requests"]), (1, &400.into()));
    let decode = pools["decode"]["replicas"].as_array().unwrap();
    let sum: u64 = decode.iter().map(|r| r["requests"].as_u64().unwrap()).sum();
    assert_eq!((decode.len(), pools["kv_transfers"].as_u64()), (2, Some(sum)));
    assert!(pools["decode"]["load"]["relative_to_saturation"].is_number());
    assert_eq!(run["simulation"]["completed"], 400);
    assert_eq!(run["simulation"]["littles_law_holds_exactly"], true);
    // A stream of which nothing is kept counts the same transfers.
    let sketched = sim(&[
        &["--disagg", "prefill=1,decode=2"][..],
        &["--kv-transfer-latency", "1ms"],
        &["--sketch", "--format", "json"],
    ]
    .concat());
    let sketched: serde_json::Value = serde_json::from_str(&sketched).unwrap();
    let sketched = &sketched["runs"][0]["disaggregation"];
    for key in ["kv_transfers", "kv_transfer_max_s"] {
        assert_eq!(sketched[key], pools[key], "{key}");
    }
    // Runs in other pools are not compared with each other.
    let policies = ["sim", "--policy", "decode-first,prefill-first", "--max-num-seqs", "16"];
    let two = ["--disagg", "prefill=1,decode=1", "--disagg", "prefill=2,decode=1"];
    let text = self::run(&[&policies[..], &requests, &two].concat());
    for pools in ["prefill=1,decode=1", "prefill=2,decode=1"] {
        assert!(text.contains(&format!("(from one run each; disagg {pools} ")), "{text}");
    }
    // The plain engine gives the same bytes, and vllm-v1 runs in pools as well.
    let two = ["--disagg", "prefill=2,decode=2", "--disagg", "prefill=3,decode=1"];
    let table = sim(&[&two[..], &["--router", "random"]].concat());
    assert_eq!(table, sim(&[&two[..], &["--router", "random", "--reference"]].concat()));
    insta::assert_snapshot!("sim_pools_table", table);
    let vllm = ["sim", "--policy", "vllm-v1", "--requests", "100", "--kv-transfer", "50GB/s"];
    let text = self::run(&[&vllm[..], &["--disagg", "prefill=1,decode=1"]].concat());
    assert!(text.contains("100 injected = 100 completed"), "{text}");
}

/// Users who wait: with a think time of 2 s, N users at most send N requests in 2 s.
#[test]
fn users_wait_for_their_answers() {
    let text = run(&[
        "sim",
        "--users",
        "4,32",
        "--think",
        "2s",
        "--requests",
        "300",
        "--max-num-seqs",
        "64",
        "--chunk",
        "512",
        "--format",
        "json",
    ]);
    let json: serde_json::Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    for (run, users) in json["runs"].as_array().unwrap().iter().zip([4_u32, 32]) {
        assert_eq!(run["users"], users);
        assert_eq!(run["simulation"]["completed"], 300);
        let rate = run["throughput"]["request_throughput_per_s"].as_f64().unwrap();
        assert!(rate < f64::from(users) / 2.0, "{rate}");
    }
}

#[test]
fn what_a_fleet_cannot_be_is_said() {
    let dir = folder_of_examples();
    let mut said = String::new();
    for more in [
        &["--replicas", "0"][..],
        &["--replicas", "2", "--router", "nearest"],
        &["--router", "random"],
        &["--users", "0"],
        &["--users", "4", "--rate", "5/s"],
        &["--users", "4", "--think-after", "answer", "--turns", "2", "--think", "1s"],
        &["--think-after", "answer"],
        &["--cancel", "5s"],
        &["--cancel", "10%,uniform:5s,1s"],
        &["--turns", "2", "--think", "1s", "--think-after", "answer", "--rate-scale", "2"],
        &["--think", "1s"],
        &["--users", "4", "--think", "long", "--max-num-seqs", "8", "--chunk", "64"],
        &["--explain-tail", "p100", "--max-num-seqs", "8", "--chunk", "64"],
        &["--explain-tail", "slow", "--max-num-seqs", "8", "--chunk", "64"],
        &["--trace-out", "t.json"],
        &["--trace-out", "t.json", "--trace-window", "5s", "--max-num-seqs", "8", "--chunk", "64"],
        &["--jobs", "0"],
        &["--disagg", "prefill=1,decode=1"],
        &["--kv-transfer", "3us/token"],
        &["--disagg", "prefill=1,decode=1", "--kv-transfer", "3us/token", "--replicas", "2"],
        &["--disagg", "prefill=1", "--kv-transfer", "3us/token"],
        &["--disagg", "prefill=1,decode=0", "--kv-transfer", "3us/token"],
        &["--disagg", "prefill=1,prefill=2", "--kv-transfer", "3us/token"],
        &["--disagg", "prompt=1,decode=1", "--kv-transfer", "3us/token"],
        &["--disagg", "prefill=1,decode=1", "--kv-transfer", "fast"],
        &["--disagg", "prefill=1,decode=1", "--kv-transfer", "3/token"],
        &["--disagg", "prefill=1,decode=1", "--kv-transfer", "2s/token"],
        &["--disagg", "prefill=1,decode=1", "--kv-transfer", "fast/s"],
        &["--disagg", "prefill=1,decode=1", "--kv-transfer", "0Gbit/s"],
        &["--disagg", "prefill=1,decode=1", "--kv-transfer", "1Gbit/s", "--step-time", "base=8ms"],
    ] {
        said.push_str(&run_in(dir.path(), &[&["sim"], more].concat()));
    }
    insta::assert_snapshot!("sim_fleet_errors", said);
}

/// The trace of the first second has the steps and requests of that second, and is JSON.
#[test]
fn a_window_of_a_run_is_a_chrome_trace() {
    let dir = tempfile::tempdir().unwrap();
    let common = ["sim", "--max-num-seqs", "8", "--chunk", "512", "--requests", "50"];
    let out = ["--trace-out", "t.json", "--trace-window", "0s..1s"];
    run_in(dir.path(), &[&common[..], &out].concat());
    let text = std::fs::read_to_string(dir.path().join("t.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let spans = events.iter().filter(|e| e["ph"] == "X");
    let end = |e: &serde_json::Value| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap();
    assert!(spans.clone().count() > 20 && spans.clone().all(|e| end(e) <= 1e6 + 1e-3));
    // The steps do not overlap.
    let steps: Vec<_> = spans.filter(|e| e["pid"] == 1).collect();
    assert!(steps.windows(2).all(|w| end(w[0]) <= w[1]["ts"].as_f64().unwrap() + 1e-6));
}

/// A log of 40 requests in one file and in two shards.
fn folder_of_shards() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let row = |i: u32| {
        let (ttft, gaps) = (100 + 7 * (i * 13 % 20), 1 + i % 9);
        let e2e = ttft + (10 + i % 5 * 4) * gaps;
        let outcome = if i % 20 == 7 { "failed" } else { "completed" };
        let (arrival, input) = (f64::from(i) * 0.5, 50 + i);
        format!("{i},{arrival},{ttft},{e2e},{input},{},{outcome}\n", 1 + gaps)
    };
    let write = |name: &str, rows: std::ops::Range<u32>| {
        let mut text =
            "id,arrival_s,ttft_ms,e2e_ms,input_tokens,output_tokens,outcome\n".to_owned();
        rows.for_each(|i| text.push_str(&row(i)));
        std::fs::write(dir.path().join(name), text).unwrap();
    };
    write("all.csv", 0..40);
    write("a.csv", 0..23);
    write("b.csv", 23..40);
    dir
}

const SHARD_SLO: [&str; 2] = ["--slo", "ttft<150ms,tpot<20ms"];

/// Shards that were reported apart, on other machines perhaps, give the report of the whole log.
#[test]
fn sketches_of_shards_are_merged() {
    let dir = folder_of_shards();
    let of = |arguments: &[&str]| run_in(dir.path(), &[arguments, &SHARD_SLO].concat());
    let whole = of(&["report", "all.csv", "--sketch"]);
    insta::assert_snapshot!("sketch", whole);
    for shard in ["a", "b"] {
        of(&["report", &format!("{shard}.csv"), "--partial", &format!("{shard}.part")]);
    }
    let merged = run_in(dir.path(), &["report", "--merge", "b.part", "a.part"]);
    let figures = |text: &str| {
        let (_, rest) = text.split_once('\n').unwrap();
        let (figures, rest) = rest.split_once("How the file was read").unwrap();
        let (_, findings) = rest.split_once("\nFindings").unwrap();
        (figures.to_owned(), findings.to_owned())
    };
    assert_eq!(figures(&merged), figures(&whole));
}

#[test]
fn what_cannot_be_merged_says_why() {
    let dir = folder_of_shards();
    run_in(dir.path(), &["report", "a.csv", SHARD_SLO[0], SHARD_SLO[1], "--partial", "a.part"]);
    run_in(dir.path(), &["report", "b.csv", "--slo", "ttft<1s", "--partial", "b.part"]);
    let text = std::fs::read_to_string(dir.path().join("a.part")).unwrap();
    std::fs::write(dir.path().join("cut.part"), &text[..300]).unwrap();
    let said: String = [
        &["report", "--merge", "a.part", "a.part"][..],
        &["report", "--merge", "a.part", "b.part"],
        &["report", "--merge", "a.part", "b.csv"],
        &["report", "--merge", "a.part", "cut.part"],
        &["report", "a.part"],
    ]
    .iter()
    .map(|arguments| refused(dir.path(), arguments))
    .collect();
    insta::assert_snapshot!("merge_refused", said);
}
