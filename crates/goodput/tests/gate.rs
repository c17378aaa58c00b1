//! `check` and `diff` as a user sees them: output and exit code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

fn run_in(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_goodput"))
        .current_dir(dir)
        .args(arguments)
        .output()
        .unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8(output.stderr).unwrap());
    let code = output.status.code().map_or("killed".to_owned(), |c| format!("exit {c}"));
    writeln!(text, "{code}").unwrap();
    text
}

/// Shares that look drawn at random: a multiplicative generator of Park and Miller.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f64 {
        self.0 = self.0 * 48_271 % 2_147_483_647;
        self.0 as f64 / 2_147_483_647.0
    }
}

/// A log of `n` requests, ten a second, with TTFT uniform from 100 to 300 ms and TPOT uniform from
/// 15 to 25 ms, both times `factor`; 21 tokens each.
fn log(seed: u64, n: u32, factor: f64) -> String {
    let mut draws = Draws(seed);
    let mut text = "arrival_s,ttft_ms,e2e_ms,output_tokens\n".to_owned();
    for i in 0..n {
        let ttft = factor * (100.0 + 200.0 * draws.next());
        let e2e = ttft + 20.0 * factor * (15.0 + 10.0 * draws.next());
        writeln!(text, "{:.3},{ttft:.6},{e2e:.6},21", f64::from(i) / 10.0).unwrap();
    }
    text
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("old.csv", &log(11, 2000, 1.0));
    write("same.csv", &log(12, 2000, 1.0));
    write("slow.csv", &log(13, 2000, 1.2));
    write("short.csv", &log(14, 15, 1.0));
    write("twin.csv", &log(15, 2000, 1.0));
    write("slow2.csv", &log(16, 2000, 1.2));
    write("slow3.csv", &log(17, 2000, 1.2));
    dir
}

/// TTFT is uniform from 100 to 300 ms: p95 is 290 ms, 75 % are below 250 ms; TPOT is uniform from
/// 15 to 25 ms: half are below 20 ms, which no run can decide.
#[test]
fn targets_pass_fail_or_stay_open_by_their_interval() {
    let dir = folder();
    let slo = "p95(ttft)<295ms,ttft<250ms @ 80%,tpot<20ms @ 50%";
    insta::assert_snapshot!(run_in(dir.path(), &["check", "old.csv", "--slo", slo]));
}

/// One margin for all: the same law passes, one that is 20 % slower fails in every latency while
/// the rate stays, since arrivals set it.
#[test]
fn a_regression_is_found_and_its_absence_too() {
    let dir = folder();
    let gate =
        |new: &str| run_in(dir.path(), &["check", new, "--base", "old.csv", "--no-regress", "8%"]);
    insta::assert_snapshot!("no_regression", gate("same.csv"));
    insta::assert_snapshot!("regression", gate("slow.csv"));
}

#[test]
fn a_run_that_is_too_short_is_indeterminate() {
    let dir = folder();
    let text = run_in(
        dir.path(),
        &["check", "short.csv", "--base", "old.csv", "--no-regress", "ttft_p50=5%"],
    );
    insta::assert_snapshot!(text);
}

/// ln 1.2 = 0.182 between the means of both sides, whose runs differ by about one per cent.
#[test]
fn repeated_runs_count_what_differs_from_run_to_run() {
    let dir = folder();
    let text = run_in(
        dir.path(),
        &[
            "check",
            "slow.csv",
            "slow2.csv",
            "slow3.csv",
            "--base",
            "old.csv",
            "same.csv",
            "twin.csv",
            "--no-regress",
            "ttft_mean=10%,tpot_mean=30%",
        ],
    );
    insta::assert_snapshot!(text);
}

#[test]
fn the_answers_go_to_a_test_report_and_to_json() {
    let dir = folder();
    let arguments = [
        "check",
        "slow.csv",
        "--slo",
        "p50(ttft)<1s",
        "--base",
        "old.csv",
        "--no-regress",
        "tpot_p50=5%",
        "--junit",
        "check.xml",
        "--format",
        "json",
    ];
    insta::assert_snapshot!("check_json", run_in(dir.path(), &arguments));
    let xml = std::fs::read_to_string(dir.path().join("check.xml")).unwrap();
    insta::assert_snapshot!("check_junit", xml);
}

#[test]
fn a_question_that_no_run_can_answer_is_refused() {
    let dir = folder();
    let cases: [&[&str]; 9] = [
        &["check", "old.csv"],
        &["check", "old.csv", "--slo", "ttft<200ms"],
        &["check", "old.csv", "--slo", "p99(ttft)<200ms", "--attainment", "99%"],
        &["check", "old.csv", "--slo", "ttft<200ms", "--attainment", "99"],
        &["check", "old.csv", "--base", "same.csv"],
        &["check", "old.csv", "--base", "same.csv", "--no-regress", "ttft_p77=5%"],
        &["check", "old.csv", "--base", "same.csv", "slow.csv", "--no-regress", "5%"],
        &["check", "old.csv", "--no-regress", "5%"],
        &["check", "nowhere.csv", "--slo", "p99(ttft)<200ms"],
    ];
    let text: String = cases.iter().map(|c| run_in(dir.path(), c)).collect();
    insta::assert_snapshot!(text);
}

/// The latencies grew by a fifth, the rate did not change.
#[test]
fn a_difference_is_named_only_where_it_is_more_than_chance() {
    let dir = folder();
    insta::assert_snapshot!("diff_slow", run_in(dir.path(), &["diff", "old.csv", "slow.csv"]));
    insta::assert_snapshot!(
        "diff_same",
        run_in(dir.path(), &["diff", "old.csv", "same.csv", "--format", "md"])
    );
}

#[test]
fn what_is_no_comparison_is_refused() {
    let dir = folder();
    let cases: [&[&str]; 4] = [
        &["diff", "old.csv"],
        &["diff", "old.csv", "old.csv"],
        &["diff", "old.csv", "same.csv", "slow.csv"],
        &["diff", "old.csv", "same.csv", "--run", "2"],
    ];
    let text: String = cases.iter().map(|c| run_in(dir.path(), c)).collect();
    insta::assert_snapshot!(text);
}

/// A summary of one tool, as its reader keeps the names: `n` requests, TTFT p99 as given.
fn summary(tool: &str, ttft_p99_ms: f64) -> String {
    let ms = |x: f64| x / 1e3;
    match tool {
        "vllm" => format!(
            "{{\"date\": \"20260101-000000\", \"endpoint_type\": \"openai\", \"backend\": \"openai\", \
             \"label\": null, \"model_id\": \"m\", \"tokenizer_id\": \"m\", \"num_prompts\": 400, \
             \"request_rate\": 10.0, \"burstiness\": 1.0, \"max_concurrency\": null, \
             \"duration\": 41.0, \"completed\": 400, \"failed\": 0, \"total_input_tokens\": 40000, \
             \"total_output_tokens\": 8000, \"request_throughput\": 9.756, \
             \"output_throughput\": 195.12, \"total_token_throughput\": 1170.7, \
             \"mean_ttft_ms\": 80.0, \"median_ttft_ms\": 75.0, \"std_ttft_ms\": 9.0, \
             \"p99_ttft_ms\": {ttft_p99_ms}, \"mean_e2el_ms\": 500.0, \"median_e2el_ms\": 490.0, \
             \"std_e2el_ms\": 30.0, \"p99_e2el_ms\": 700.0}}"
        ),
        _ => format!(
            "{{\"load_summary\": {{\"count\": 400, \"requested_rate\": 10.0}}, \
             \"benchmark_time_seconds\": 41.0, \"successes\": {{\"count\": 400, \
             \"latency\": {{\"time_to_first_token\": {{\"mean\": 0.09, \"median\": 0.08, \
             \"p99\": {}}}, \"request_latency\": {{\"mean\": 0.55, \"median\": 0.5, \"p99\": 0.8}}}}, \
             \"throughput\": {{\"requests_per_sec\": 9.8}}}}, \"failures\": {{\"count\": 0}}}}",
            ms(ttft_p99_ms)
        ),
    }
}

/// vLLM and inference-perf both count TTFT from sending; the E2E of one ends at the last token and of
/// the other at the end of the stream, and their rates have other bases.
#[test]
fn summaries_are_compared_where_their_tools_mean_the_same() {
    let dir = folder();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("a.json", &summary("vllm", 120.0));
    write("b.json", &summary("vllm", 150.0));
    write("c.json", &summary("inference-perf", 140.0));
    let diff = |a: &str, b: &str| run_in(dir.path(), &["diff", a, b]);
    insta::assert_snapshot!("diff_two_summaries", diff("a.json", "b.json"));
    insta::assert_snapshot!("diff_two_tools", diff("a.json", "c.json"));
    // The requests of the log are computed as vLLM would.
    insta::assert_snapshot!("diff_log_and_summary", diff("old.csv", "a.json"));
}

/// A figure without its samples passes nothing; what would give them is said.
#[test]
fn a_summary_decides_nothing() {
    let dir = folder();
    std::fs::write(dir.path().join("a.json"), summary("vllm", 120.0)).unwrap();
    std::fs::write(dir.path().join("b.json"), summary("vllm", 150.0)).unwrap();
    let text = run_in(
        dir.path(),
        &[
            "check",
            "a.json",
            "--slo",
            "p99(ttft)<200ms",
            "--goodput",
            "ttft:100",
            "--base",
            "b.json",
            "--no-regress",
            "ttft_p99=5%",
        ],
    );
    insta::assert_snapshot!(text);
}

/// A burst of requests overloads the server, which a warning on TTFT says: with --warn-fatal it decides
/// before any interval, and names itself. A run without a finding keeps its answers.
#[test]
fn a_finding_makes_what_it_affects_indeterminate() {
    let dir = folder();
    let check = |more: &[&str]| {
        let mut all = vec!["check", "old.csv", "--slo", "p99(ttft)<400ms,p50(ttft)<400ms"];
        all.extend(more);
        run_in(dir.path(), &all)
    };
    insta::assert_snapshot!("check_without_warnings", check(&[]));
    let mut burst = "arrival_s,ttft_s,e2e_s,output_tokens\n".to_owned();
    // All are sent in the first tenth of a second of a server that answers ten a second.
    for i in 0..400 {
        let ttft = 0.1 * f64::from(i) + 0.1;
        writeln!(burst, "{:.4},{ttft:.3},{:.3},21", f64::from(i) * 0.0002, ttft + 0.4).unwrap();
    }
    std::fs::write(dir.path().join("burst.csv"), burst).unwrap();
    let text = |more: &[&str]| {
        let mut all = vec!["check", "burst.csv", "--slo", "p50(tpot)<50ms,p50(ttft)<60s"];
        all.extend(more);
        run_in(dir.path(), &all)
    };
    insta::assert_snapshot!("check_burst", text(&["--warn-fatal"]));
}

/// A run counts once: a copy makes repeated runs look alike, and no run regresses against itself.
#[test]
fn one_run_is_not_two() {
    let dir = folder();
    let path = |name: &str| dir.path().join(name);
    std::fs::copy(path("old.csv"), path("copy.csv")).unwrap();
    std::fs::hard_link(path("old.csv"), path("link.csv")).unwrap();
    std::fs::write(path("a.json"), summary("vllm", 120.0)).unwrap();
    std::fs::write(path("b.json"), summary("vllm", 120.0)).unwrap();
    let gate = ["--no-regress", "5%"];
    let cases: [&[&str]; 7] = [
        &["check", "old.csv", "--base", "old.csv"],
        &["check", "old.csv", "--base", "link.csv"],
        &["check", "old.csv", "--base", "copy.csv"],
        &["check", "same.csv", "slow.csv", "--base", "old.csv", "copy.csv"],
        &["check", "a.json", "--base", "b.json"],
        &["check", "same.csv", "--base", "old.csv", "--no-regress", "3%"],
        &["check", "same.csv", "--base", "old.csv", "--no-regress", "ttft_p50=3%,ttft_p50_s=4%"],
    ];
    let text: String = cases.iter().map(|c| run_in(dir.path(), &[c, &gate[..]].concat())).collect();
    insta::assert_snapshot!(text);
}

#[test]
fn a_share_has_its_bounds_in_its_message() {
    let dir = folder();
    let check = |more: &[&str]| run_in(dir.path(), &[&["check", "old.csv"], more].concat());
    let margin = |share: &str| {
        let given = format!("--no-regress={share}");
        check(&["--base", "same.csv", &given])
    };
    let mut text = margin("150%") + &margin("-5%") + &margin("5") + &margin("ttft_p50=x");
    text += &check(&["--slo", "ttft<1 s @ 101%"]);
    text += &check(&["--slo", "p100(ttft)<1 s"]);
    text += &check(&["--slo", "ttft<1 s @ 50%"]);
    insta::assert_snapshot!(text);
}

/// 600 of 2000 requests fail, one in each third of ten: 70 % completed, and every other figure is
/// that of the base's own law. 4 % failures leave a margin of 5 % open or pass it, but not 2 %.
#[test]
fn failures_are_a_figure_and_a_regression() {
    let dir = folder();
    let failing = |seed: u64, share: f64| {
        let mut draws = Draws(seed);
        let mut text = "arrival_s,ttft_ms,e2e_ms,output_tokens,outcome\n".to_owned();
        for (i, line) in log(seed, 2000, 1.0).lines().skip(1).enumerate() {
            if draws.next() < share {
                writeln!(text, "{:.3},,,,failed", i as f64 / 10.0).unwrap();
            } else {
                writeln!(text, "{line},completed").unwrap();
            }
        }
        text
    };
    std::fs::write(dir.path().join("failing.csv"), failing(21, 0.3)).unwrap();
    std::fs::write(dir.path().join("few.csv"), failing(22, 0.03)).unwrap();
    let gate = |file: &str, margin: &str| {
        run_in(dir.path(), &["check", file, "--base", "old.csv", "--no-regress", margin])
    };
    let row = |text: &str| {
        let lines: Vec<&str> =
            text.lines().skip_while(|l| !l.contains("completed share")).collect();
        lines.get(..2).map(|l| l.join("\n")).unwrap_or_default()
    };
    insta::assert_snapshot!(
        "failing",
        format!(
            "{}\n{}\n{}",
            row(&gate("failing.csv", "5%")),
            row(&gate("few.csv", "5%")),
            row(&gate("few.csv", "1%")),
        )
    );
    assert!(gate("failing.csv", "5%").ends_with("exit 1\n"));
    // A percentile target says nothing of them, so they are said beside it.
    let target = run_in(dir.path(), &["check", "failing.csv", "--slo", "p50(ttft)<1s"]);
    insta::assert_snapshot!("failing_and_a_target", target);
    assert!(!gate("same.csv", "5%").contains("completed share"));
    let diff = run_in(dir.path(), &["diff", "old.csv", "failing.csv", "--format", "csv"]);
    insta::assert_snapshot!(
        "diff_failing",
        diff.lines().filter(|l| l.starts_with("completed")).collect::<String>()
    );
}

/// Two summaries at 10 req/s: the mean prompt has 100 tokens in one and 150 in the other.
#[test]
fn summaries_of_other_loads_are_said_to_differ() {
    let dir = folder();
    let other = summary("vllm", 150.0)
        .replace("\"total_input_tokens\": 40000", "\"total_input_tokens\": 60000");
    std::fs::write(dir.path().join("a.json"), summary("vllm", 120.0)).unwrap();
    std::fs::write(dir.path().join("b.json"), other).unwrap();
    let text = run_in(dir.path(), &["diff", "a.json", "b.json"]);
    assert!(text.contains("differs  mean input tokens: 100 and 150\n"), "{text}");
    assert!(text.contains("W36 warn  prompts of 100 and 150 tokens\n"), "{text}");
}

/// `check --base` says as `diff` does that the base is another workload, and decides nothing on TTFT,
/// alone and with repeated runs; the rate, which W36 leaves alone, is still decided.
#[test]
fn a_base_of_another_workload_decides_nothing_on_ttft() {
    let dir = folder();
    for (seed, name, input) in
        [(21, "long.csv", 5000), (22, "long2.csv", 5000), (23, "new.csv", 10), (24, "new2.csv", 10)]
    {
        let mut text = String::new();
        for (i, line) in log(seed, 2000, 1.0).lines().enumerate() {
            let cell = if i == 0 { "input_tokens".to_owned() } else { input.to_string() };
            writeln!(text, "{line},{cell}").unwrap();
        }
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let gate = ["--no-regress", "ttft_p50=10%,request_throughput=10%"];
    let one =
        run_in(dir.path(), &[&["check", "new.csv", "--base", "long.csv"], &gate[..]].concat());
    insta::assert_snapshot!("check_other_workload", one);
    let several = ["check", "new.csv", "new2.csv", "--base", "long.csv", "long2.csv"];
    let all = run_in(dir.path(), &[&several[..], &gate, &["--format", "json"]].concat());
    let value: serde_json::Value =
        serde_json::from_str(all.rsplit_once("exit").unwrap().0).unwrap();
    assert_eq!(value["result"], "indeterminate");
    assert_eq!(value["assertions"][0]["findings"], serde_json::json!(["W36"]));
    assert_eq!(value["assertions"][1]["answer"], "pass");
    let between = value["findings_between_runs"].as_array().unwrap();
    assert_eq!(
        (&between[0]["id"], &between[0]["run"]),
        (&"W36".into(), &"2 runs against 2".into())
    );
}

/// 60 requests, each with a TTFT of at least 100 ms: one miss disproves 100 %, 0 % is always met, and
/// no run, however long, proves 100 %.
#[test]
fn all_requests_and_none_are_decided_by_what_they_mean() {
    let dir = folder();
    std::fs::write(dir.path().join("sixty.csv"), log(31, 60, 1.0)).unwrap();
    let check = |slo: &str| run_in(dir.path(), &["check", "sixty.csv", "--slo", slo]);
    for (slo, code) in [("ttft<0ms @ 100%", 1), ("ttft<0ms @ 0%", 0), ("ttft<1s @ 100%", 3)] {
        let text = check(slo);
        assert!(text.ends_with(&format!("exit {code}\n")), "{slo}: {text}");
        assert!(!text.contains("run longer"), "{slo}: {text}");
    }
    let all =
        run_in(dir.path(), &["check", "sixty.csv", "--slo", "ttft<150ms", "--attainment", "100%"]);
    assert!(all.ends_with("exit 1\n"), "{all}");
    let says = check("ttft<1s @ 100%");
    assert!(says.contains("one miss disproves 100 %, and no finite run proves it"), "{says}");
}

/// What has no effect, or is one thing twice, is said.
#[test]
fn options_without_an_effect_are_said() {
    let dir = folder();
    let last = |arguments: &[&str]| {
        let text = run_in(dir.path(), arguments);
        text.lines().map(str::to_owned).collect::<Vec<_>>().join("|")
    };
    let said = [
        last(&["check", "old.csv", "--slo", "ttft<1s @ 99%", "--percentile", "nearest-rank"]),
        last(&["report", "old.csv", "--map", "ttft_ms=ttft_ms,"]),
        last(&["diagnose", "old.csv", "--baseline", "old.csv", "--goodput", "ttft:200"]),
    ];
    insta::assert_snapshot!("without_effect", said.join("\n"));
}

/// Repeated runs are compared like with like too: the E2E of vLLM ends at the last token, that of
/// inference-perf at the end of the stream, and a log is not a summary.
#[test]
fn repeated_runs_of_two_tools_are_not_mixed() {
    let dir = folder();
    for (name, tool, ms) in [
        ("a.json", "vllm", 120.0),
        ("b.json", "vllm", 121.0),
        ("c.json", "inference-perf", 120.0),
        ("d.json", "inference-perf", 121.0),
    ] {
        std::fs::write(dir.path().join(name), summary(tool, ms)).unwrap();
    }
    let seen = |files: [&str; 4]| {
        let [a, b, c, d] = files;
        let gate = ["check", a, b, "--base", c, d, "--no-regress", "e2e_p50=50%"];
        let text = run_in(dir.path(), &gate);
        assert!(text.ends_with("exit 3\n"), "{text}");
        text.lines().find(|l| l.contains("not compared")).unwrap().trim().to_owned()
    };
    let tools = seen(["a.json", "b.json", "c.json", "d.json"]);
    assert!(tools.starts_with("not compared: E2E"), "{tools}");
    let kinds = seen(["old.csv", "same.csv", "a.json", "b.json"]);
    assert_eq!(kinds, "not compared: old.csv has detail per request and a.json has not");
}
