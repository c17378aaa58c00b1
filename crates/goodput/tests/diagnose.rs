//! `goodput diagnose`: every row of the tree is reached from files, and the answer is shown.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;

/// Runs the tool in this process; what it printed, and the exit code where it is not 0.
fn run(arguments: &[&str]) -> String {
    let answer = goodput::run(std::iter::once("goodput").chain(arguments.iter().copied()));
    let exit = if answer.code == 0 { String::new() } else { format!("exit {}\n", answer.code) };
    answer.out + &answer.err + &exit
}

const STEP: &str = "base=10ms,prefill=100us/token,decode=1ms/request";

/// Files of the tests, in a folder of their own.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Timelines of a simulated run: `n` requests, one each `gap_s`, with lengths by their number.
    fn simulate(
        &self,
        name: &str,
        (n, gap_s): (u32, f64),
        lengths: impl Fn(u32) -> (u32, u32),
        options: &[&str],
    ) -> String {
        let mut trace = "arrival_s,input_tokens,output_tokens\n".to_owned();
        for i in 0..n {
            let (input, output) = lengths(i);
            trace.push_str(&format!("{:.3},{input},{output}\n", f64::from(i) * gap_s));
        }
        let trace = self.write(&format!("{name}.csv"), &trace);
        let out = self.path(name);
        let mut arguments = vec!["sim", "--trace", &trace, "--requests-out", &out];
        arguments.extend(["--max-num-seqs", "4"]);
        if !options.contains(&"--chunk") {
            arguments.extend(["--chunk", "4096"]);
        }
        if !options.contains(&"--step-time") {
            arguments.extend(["--step-time", STEP]);
        }
        arguments.extend(options);
        let said = run(&arguments);
        assert!(Path::new(&out).exists(), "{said}");
        out
    }
}

fn diagnose(arguments: &[&str]) -> serde_json::Value {
    let mut all = vec!["diagnose", "--format", "json"];
    all.extend(arguments);
    let answer = goodput::run(std::iter::once("goodput").chain(all));
    serde_json::from_str(&answer.out).unwrap_or_else(|_| panic!("{}", answer.err))
}

fn fired(arguments: &[&str]) -> Vec<String> {
    let json = diagnose(arguments);
    let rows = json["verdicts"].as_array().unwrap();
    rows.iter().map(|v| v["row"].as_str().unwrap().to_owned()).collect()
}

fn sample(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../serving-io/tests/data");
    data.join(name).to_str().unwrap().to_owned()
}

/// A server for itself: 100 tokens of prompt take 20 ms, each further token 11 ms. Twenty a second
/// on four places are too many: four tokens take 14 ms, so at most 14 requests of 20 tokens end in
/// a second.
#[test]
fn every_row_is_reached_from_files() {
    let f = Folder::new();
    let light = f.simulate("light.jsonl", (60, 1.0), |_| (100, 20), &[]);
    let heavy = f.simulate("heavy.jsonl", (120, 0.05), |_| (100, 20), &[]);
    // Every tenth prompt is long and stalls those that decode.
    let stalls = f.simulate(
        "stalls.jsonl",
        (60, 0.15),
        |i| if i % 10 == 9 { (4000, 2) } else { (100, 20) },
        &[],
    );
    // Answers twice as long take the step from the prompts.
    let answers = f.simulate("answers.jsonl", (120, 0.05), |_| (100, 40), &[]);
    let contexts = f.simulate(
        "contexts.jsonl",
        (30, 60.0),
        |i| (100 + 500 * i, 50),
        &["--step-time", "base=10ms,prefill=1us/token,context=1us/token", "--chunk", "65536"],
    );
    let late: String = (0..40)
        .map(|i| {
            let due = f64::from(i) * 0.1;
            // Each request is sent 20 ms later than the one before it.
            let sent = due + 0.02 * f64::from(i);
            let first = sent + 0.1;
            format!(
                "{{\"id\": {i}, \"arrival_s\": {due}, \"sent_s\": {sent}, \"first_token_s\": {first}, \"last_token_s\": {}, \"output_tokens\": 5}}\n",
                first + 0.1
            )
        })
        .collect();
    let late = f.write("late.jsonl", &late);
    let preempted = sample("prometheus/vllm-0.33.0-preempt.metrics.txt");
    let b = ["--max-num-seqs", "4"];
    let cases: &[(&str, &[&str])] = &[
        ("client_limited", &[&late]),
        ("queue_grows", &[&heavy]),
        ("batch_high_e2e_high", &[&heavy, b[0], b[1], "--slo", "p99(e2e)<1s"]),
        ("preempted", &[&preempted]),
        ("p99_jitter", &[&stalls, "--with", "eviction_rate_peak=50,eviction_rate_mean=5"]),
        (
            "hit_rate_up_tpot_bad",
            &[
                &heavy,
                "--slo",
                "p99(tpot)<12ms",
                "--with",
                "kv_hit_rate=50%,baseline_kv_hit_rate=30%,refill_rate=6%",
            ],
        ),
        (
            "gpu_low_tpot_high",
            &[
                &light,
                b[0],
                b[1],
                "--slo",
                "p99(tpot)<10ms",
                "--with",
                "gpu_utilization=30%,arithmetic_intensity=60,ridge_point=295,kv_utilization=20%",
            ],
        ),
        (
            "tpot_grows_with_context",
            &[&contexts, "--slo", "p99(ttft)<10s", "--with", "kv_scan_share=60%"],
        ),
        ("tpot_up", &[&heavy, b[0], b[1], "--baseline", &light]),
        ("throughput_high_ttft_bad", &[&answers, "--baseline", &heavy, "--slo", "p99(ttft)<1s"]),
        ("ttft_high_tpot_stable", &[&heavy, "--slo", "p99(ttft)<1s,p99(tpot)<50ms"]),
        ("ttft_up", &[&heavy, b[0], b[1], "--baseline", &light]),
        ("throughput_high_goodput_low", &[&heavy, "--baseline", &light, "--goodput", "ttft:200"]),
        ("e2e_jitters", &[&heavy, "--baseline", &light]),
    ];
    for (row, arguments) in cases {
        let rows = fired(arguments);
        assert!(rows.iter().any(|r| r == row), "{row}: {rows:?}");
    }
    let mut covered: Vec<&str> = cases.iter().map(|c| c.0).collect();
    covered.sort_unstable();
    let mut all: Vec<&str> = metrics_core::diagnosis::ROWS.iter().map(|r| r.id).collect();
    all.sort_unstable();
    assert_eq!(covered, all);
    // A light load beside another one like it shows nothing.
    let twin = f.simulate("twin.jsonl", (60, 1.01), |_| (100, 20), &[]);
    let nothing =
        fired(&[&light, b[0], b[1], "--baseline", &twin, "--goodput", "ttft:200", "tpot:50"]);
    assert!(nothing.is_empty(), "{nothing:?}");
}

/// 46 preemptions for 60 requests are 0.767 each. P99 of TTFT is 828 ms against a limit of 300 ms:
/// critical, so the exit code is 1.
#[test]
fn a_result_and_a_snapshot_of_its_server_are_read_together() {
    let (result, metrics) =
        (sample("vllm-0.33.0/preempt.json"), sample("prometheus/vllm-0.33.0-preempt.metrics.txt"));
    let text = run(&[
        "diagnose",
        &result,
        &metrics,
        "--goodput",
        "ttft:300",
        "tpot:15",
        "--max-num-seqs",
        "16",
    ]);
    let folder = sample("");
    insta::assert_snapshot!("result_and_snapshot", text.replace(&folder, ""));
}

#[test]
fn the_answer_reads_in_chinese_and_as_markdown() {
    let metrics = sample("prometheus/sglang-0.5.23.metrics.txt");
    let text = run(&["diagnose", &metrics, "--slo", "p99(ttft)<2s", "--lang", "zh"]);
    insta::assert_snapshot!("sglang_zh", text.replace(&sample(""), ""));
    let text = run(&["diagnose", &metrics, "--slo", "p99(ttft)<2s", "--format", "md"]);
    let head: Vec<&str> = text.lines().take(20).collect();
    insta::assert_snapshot!("sglang_md", head.join("\n").replace(&sample(""), ""));
}

/// 0.8 to 1 s against SLOs of 2 s (fine), 1.2 s (warn above 0.84: fine or warn) and 0.5 s.
#[test]
fn a_bucket_gives_a_state_or_two() {
    let metrics = sample("prometheus/sglang-0.5.23.metrics.txt");
    let of = |slo: &str| {
        let json = diagnose(&[&metrics, "--slo", slo]);
        let all = json["thresholds"].as_array().unwrap().clone();
        let t = all.iter().find(|t| t["id"] == "ttft_p99").unwrap().clone();
        (t["state"].as_str().map(str::to_owned), t["state_at_least"].as_str().unwrap().to_owned())
    };
    assert_eq!(of("p99(ttft)<2s"), (Some("fine".into()), "fine".into()));
    assert_eq!(of("p99(ttft)<1.2s"), (None, "fine".into()));
    assert_eq!(of("p99(ttft)<500ms"), (Some("critical".into()), "critical".into()));
}

/// Two snapshots: what happened between them, here 10 requests, 600 tokens in 60 s, no preemption.
#[test]
fn two_snapshots_tell_what_happened_between_them() {
    let f = Folder::new();
    let at = |n: u32| {
        format!(
            "process_start_time_seconds 1\nvllm:num_preemptions_total 5\nvllm:generation_tokens_total {}\n\
             vllm:request_success_total{{finished_reason=\"stop\"}} {n}\nvllm:kv_cache_usage_perc 0.95\n",
            60 * n
        )
    };
    let (a, b) = (f.write("a.txt", &at(5)), f.write("b.txt", &at(15)));
    let json = diagnose(&[&a, &b, "--interval", "60s", "--with", "baseline_token_throughput=9"]);
    let ruled_out = json["ruled_out"].as_array().unwrap();
    let preempted = ruled_out.iter().find(|r| r["row"] == "preempted").unwrap();
    assert_eq!(preempted["by"][0]["value"], 0.0);
    let kv = &json["thresholds"][0];
    assert_eq!(
        (kv["id"].as_str(), kv["state"].as_str()),
        (Some("kv_utilization"), Some("critical"))
    );
    assert!(run(&["diagnose", &b, &a]).contains("went back"));
    assert!(run(&["diagnose", &a, &b]).ends_with("exit 1\n"));
    // Since its start the server had 5 preemptions for 15 requests.
    assert_eq!(fired(&[&b]), ["preempted"]);
}

#[test]
fn wrong_arguments_are_named() {
    let f = Folder::new();
    let one = f.write("one.jsonl", "{\"id\":\"a\",\"arrival_s\":0,\"first_token_s\":0.3,\"last_token_s\":0.9,\"output_tokens\":7}\n");
    let bare = f.write(
        "bare.txt",
        "vllm:num_requests_swapped 3\nvllm:kv_cache_usage_perc NaN\nvllm:request_success_total 0\n",
    );
    let two = f.write("two.txt", "vllm:num_requests_running{model_name=\"a\"} 1\nvllm:num_requests_running{model_name=\"b\"} 1\n");
    let still = f.write("still.txt", "vllm:request_success_total 7\n");
    let again = f.write("again.txt", "vllm:request_success_total 7\n");
    let mut text = String::new();
    for arguments in [
        &["diagnose"][..],
        &["diagnose", &one, &one],
        &["diagnose", &one, "--with", "gpu_util=1"],
        &["diagnose", &one, "--with", "gpu_utilization=much"],
        &["diagnose", &one, "--with", "gpu_utilization=1.5"],
        &["diagnose", &one, "--max-num-seqs", "0"],
        &["diagnose", &one, "--interval", "0s"],
        &["diagnose", &one, "--interval", "60s"],
        &["diagnose", &one, "--with", "gpu_utilization=40%,gpu_utilization=50%"],
        &["diagnose", &two, &two],
        &["diagnose", &still, &again],
        &["diagnose", &one, "--format", "csv"],
        &["diagnose", &two],
        &["diagnose", &two, "--run", "3"],
    ] {
        let said = run(arguments);
        let last: Vec<&str> = said.lines().filter(|l| !l.is_empty()).collect();
        text.push_str(&format!("{}\n{}\n", last.first().unwrap(), last.last().unwrap()));
    }
    let text = text.replace(f.0.path().to_str().unwrap(), "");
    insta::assert_snapshot!("wrong_arguments", text);
    assert!(run(&["diagnose", &bare]).ends_with("exit 3\n"), "{}", run(&["diagnose", &bare]));
}
