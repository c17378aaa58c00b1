//! `goodput plan`, `tune` and `cost` as a user calls them.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use std::path::Path;
use std::process::{Command, Output};

fn goodput(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_goodput"));
    command.args(arguments).current_dir(dir).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What it prints in the folder of the test, and its exit code.
fn said(arguments: &[&str]) -> (String, i32) {
    let output = goodput(Path::new("."), arguments);
    let text = String::from_utf8(output.stderr.clone()).unwrap() + &out(&output);
    (text, output.status.code().unwrap())
}

/// A trace of a minute in the form of Azure's: a request a second, lengths in a cycle.
fn azure() -> String {
    let mut text = "TIMESTAMP,ContextTokens,GeneratedTokens\n".to_owned();
    for i in 0..60 {
        let (prompt, answer) = (200 + 700 * (i % 5), 40 + 60 * (i % 3));
        text.push_str(&format!("2023-11-16 18:15:{i:02}.0000000,{prompt},{answer}\n"));
    }
    text
}

/// The examples of a command's help, with their lines joined.
fn examples(command: &str) -> Vec<String> {
    let help = out(&goodput(Path::new("."), &[command, "--help"]));
    let (_, examples) = help.split_once("Examples:").unwrap();
    let joined = examples.replace("\\\n", " ");
    joined.lines().map(str::trim).filter(|l| l.starts_with("goodput ")).map(str::to_owned).collect()
}

#[test]
fn the_examples_of_the_help_run() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("azure.csv"), azure()).unwrap();
    let tool_folder = Path::new(env!("CARGO_BIN_EXE_goodput")).parent().unwrap();
    let path = format!("{}:{}", tool_folder.display(), std::env::var("PATH").unwrap());
    let mut ran = 0;
    for command in ["plan", "tune", "cost"] {
        for example in examples(command) {
            let output = Command::new("bash")
                .args(["-c", &example])
                .env("PATH", &path)
                .current_dir(dir.path())
                .output()
                .unwrap();
            let code = output.status.code().unwrap();
            // The claim of the last example of `cost` is too low.
            let right = i32::from(example.contains("--claimed"));
            assert_eq!(code, right, "{example}\n{}", String::from_utf8_lossy(&output.stderr));
            ran += 1;
        }
    }
    assert!(11 <= ran, "only {ran} examples");
}

/// 5,000 · 10 / 3,600 s = 13.9/s; · 5 s = 69.4.
#[test]
fn people_are_not_requests() {
    let arguments = ["plan", "--users", "5000", "--requests-per-user", "10/h", "--e2e", "5s"];
    let (text, code) = said(&arguments);
    assert_eq!(code, 0);
    insta::assert_snapshot!(text, @r#"
    13.8889/s

    load          13.9/s, 69.4 in flight (Little's law): 5000 users with 10/h each (open loop)
    "#);
}

/// 2.5 / (50 · 3,600) · 10^6 = 13.9, and 13.89 / 0.14 = 99.2.
#[test]
fn a_published_cost_that_is_too_low_is_told() {
    let (text, code) =
        said(&["cost", "--price", "2.50/h", "--output-rate", "50/s", "--claimed", "0.14/1M"]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(text, @r#"
    2.5/h for 50 tok/s out at full load

    load                               share  out tok/s  1M out alone
    every hour full (a lower bound)  100.0 %         50          13.9

    W34 warn  no utilization is stated, so every hour is taken as full

    claim     0.14 per 1M output tokens is too low by a factor of 99.2: these figures give at least 13.9
    "#);
}

/// A request takes 3,000 · 20 us + 300 · 100 us = 90 ms of steps: at most 11.1/s a replica. On a
/// replica of its own a prompt takes six chunks, 6 · 10 + 60 = 120 ms: 8.33/s.
#[test]
fn every_method_and_bound_stands_beside_the_others() {
    let (text, code) = said(&[
        "plan",
        "--rate",
        "40/s",
        "--input-tokens",
        "3000",
        "--output-tokens",
        "300",
        "--step-time",
        "base=10ms,prefill=20us/token,decode=100us/request",
        "--policy",
        "decode-first",
        "--max-num-seqs",
        "64",
        "--chunk",
        "512",
        "--slo",
        "p99(ttft)<2s,tpot<60ms @ 99%",
        "--disagg",
    ]);
    assert_eq!(code, 0, "{text}");
    insta::assert_snapshot!(text, @r#"
    6 replicas (7 with a spare)

    load          40/s: as given
    lengths       3000 in, 300 out on average; the longest 3300 tokens
    slo           p99(ttft)<2s,tpot<60ms @ 99%
    step time     base=10ms,prefill=20us/token,decode=100us/request (error not stated)
    replica       decode-first, router least-requests

    one replica bears                at most
    token rate, prefill and decode    11.1/s
    seats of the batch                7.26/s  binds
    KV stock                        no bound
    limit on TPOT                     9.39/s

    each          6.67/s, TPOT 24.67 ms, prefill 317.80 ms, service 7694.66 ms, 51.3 in flight, 158339 KV tokens (steady state, waits left out)
    utilization   91.9 % of what the replicas bear

    method                  replicas
    closed form                    6
    queueing, one queue            6
    queueing, a queue each         6
    simulation                     6

    simulated  keeps                 p99(ttft)<=2s              tpot<=60ms @ 99%  runs
    5             no        1.8 % (0.0 % to 7.4 %)  100.0 % (100.0 % to 100.0 %)     4
    6            yes  100.0 % (100.0 % to 100.0 %)  100.0 % (100.0 % to 100.0 %)     4

    sensitivity   gaps with a CV of 2: replicas 7 (queueing, a queue each)
    sensitivity   capacity 20 % lower: replicas 8 (simulation)
    sensitivity   gaps with a CV of 2: replicas 7 (simulation)
    scale out     above 11.2 waiting per replica: 1682.20 ms of wait are allowed, times the rate of a replica
    disaggregated 6 prefill and 4 decode replicas; 0.641 decode for each prefill balance (8.33/s against 13/s)
    KV transfer   left out: the step time names no model, give --kv-bytes-per-token
    "#);
}

/// 16/s on a replica that bears 20/s: 80 % of it, and more than it bears if steps are 40 % longer.
#[test]
fn an_error_of_the_step_time_leaves_the_number_open() {
    let call = "plan --rate 16/s --input-tokens 1000 --output-tokens 100 --policy decode-first \
                --step-time base=10ms,prefill=50us/token --max-num-seqs 10000 --chunk 1000";
    let run = |error: &str| {
        let arguments: Vec<&str> =
            call.split_whitespace().chain(["--model-error", error]).collect();
        said(&arguments)
    };
    let (text, code) = run("40%");
    assert_eq!(code, 3, "{text}");
    assert!(text.starts_with("indeterminate: 1 to 2 replicas\n"), "{text}");
    let reasons: Vec<&str> = text.lines().filter(|l| l.starts_with("undecided")).collect();
    insta::assert_snapshot!(reasons.join("\n"), @r#"
    undecided     the load is 80.2 % of what 1 replica can bear, and the step time may be off by 40.0 %: that straddles saturation
    undecided     the step time may be off by 40.0 %: replicas 1 if steps are so much shorter, 2 if they are longer
    "#);
    let (text, code) = run("0");
    assert!(code == 0 && text.starts_with("1 replica (2 with a spare)\n"), "{text}");
}

/// The keys of the answer, for those who read it with a program.
#[test]
fn the_answer_in_json_has_a_version() {
    let (text, code) = said(&["plan", "--rate", "36000/h", "--e2e", "2s", "--format", "json"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(text, @r#"
    {
      "schema_version": 1,
      "kind": "goodput-plan",
      "request": {
        "schema_version": 1,
        "load": {
          "kind": "rate",
          "per_s": 10.0,
          "cv": 1.0
        },
        "e2e_s": 2.0,
        "input_tokens": null,
        "output_tokens": null,
        "slo": null,
        "attainment": null,
        "step_time": null,
        "model_error": null,
        "policy": "vllm-v1",
        "max_num_seqs": null,
        "chunk": null,
        "engine": [],
        "router": "least-requests",
        "simulate": true,
        "requests": null,
        "seed": 1,
        "most_seeds": 16,
        "confidence": 0.95,
        "disagg": false,
        "kv_bytes_per_token": null,
        "kv_bandwidth_bytes_per_s": null,
        "price_per_h": null,
        "autoscale_delay_s": null,
        "autoscale_queue": null,
        "autoscale_interval_s": null,
        "autoscale_settle_s": null
      },
      "load": {
        "rate_per_s": 10.0,
        "basis": "as given",
        "model": "open",
        "gap_cv": 1.0,
        "in_flight": 20.0,
        "response_s": null
      },
      "mix": null,
      "bounds": null,
      "methods": [],
      "replicas": null,
      "with_spare": null,
      "point": null,
      "utilization": null,
      "model_error": 0.0,
      "band": null,
      "simulation": null,
      "sensitivity": [],
      "signal": null,
      "hours": null,
      "backtest": null,
      "pools": null,
      "cost": null,
      "verdict": {
        "verdict": "decided"
      },
      "notes": []
    }
    "#);
}

/// The numbers of a text in JSON with six digits.
fn rounded(json: &str) -> String {
    let line = |line: &str| {
        let (head, tail) = line.rsplit_once(' ').unwrap_or(("", line));
        match tail.trim_end_matches(',').parse::<f64>() {
            Ok(x) if tail.contains('.') => {
                let comma = if tail.ends_with(',') { "," } else { "" };
                format!("{head} {}{comma}\n", metrics_core::format::significant(x, 6))
            }
            _ => format!("{line}\n"),
        }
    };
    json.lines().map(line).collect()
}

/// Every answer with all of its parts, as a program reads it.
#[test]
fn every_answer_in_json_has_its_parts() {
    let json = |arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').chain(["--format", "json"]).collect();
        let (text, code) = said(&arguments);
        assert_eq!(code, 0, "{text}");
        rounded(&text)
    };
    let lengths = "--input-tokens 500 --output-tokens 50";
    insta::assert_snapshot!(
        "plan_json",
        json(&format!(
            "plan --users 200 --think 5s {lengths} --step-time llama-3.1-8b-h100-sxm \
             --slo p99(ttft)<500ms,tpot<30ms@99% --disagg --kv-bandwidth 25GB/s --price 2.50/h"
        ))
    );
    insta::assert_snapshot!(
        "tune_json",
        json(&format!(
            "tune --requests 200 {lengths} --slo p99(ttft)<500ms --max-num-seqs 64,256 \
             --max-num-batched-tokens 2048"
        ))
    );
    insta::assert_snapshot!(
        "cost_json",
        json(
            "cost --price 2.50/h --output-rate 2400/s --input-rate 9600/s --utilization 35% \
             --slo-rate 1700/s --api-output 0.60/1M --api-input 0.15/1M --claimed 0.50/1M"
        )
    );
    insta::assert_snapshot!(
        "kv_json",
        json("kv --model llama-3.1-8b --gpu h100 --mean-tokens 2000")
    );
}

/// Each call is refused in one line that has the text beside it.
fn refuses(cases: &[(&str, &str)]) {
    for (arguments, expected) in cases {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let (text, code) = said(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}\n  says  {text}  wants {expected}");
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    }
}

const LENGTHS: &str = "--input-tokens 500 --output-tokens 50 --step-time base=10ms";

#[test]
fn what_is_wrong_is_named_by_its_flag() {
    let sound = format!("plan --rate 5/s {LENGTHS} --policy decode-first");
    refuses(&[
        ("plan --users 20", "--users: a user is no request: say how often each asks"),
        (
            "plan --users 20 --requests-per-user 10",
            "--requests-per-user: `10` needs a unit, write 10/h or 10/min",
        ),
        ("plan --rate 0", "--rate: rate must be above 0"),
        ("plan --rate 5/s --e2e 5", "--e2e: duration `5`: a number needs a unit, write 5ms or 5s"),
        ("plan --e2e 5s", "give a load: --rate, --trace, or --users"),
        (
            &format!("{sound} --slo ttft<1s"),
            "--attainment: `ttft<=1s` says nothing of how many requests",
        ),
        (&format!("{sound} --slo p99(ttft)<1"), "--slo: "),
        (&format!("{sound} --slo p99(ttft)<1s --router nearest"), "--router: "),
        (
            &format!("{sound} --max-num-batched-tokens 512"),
            "max_num_batched_tokens: is not for policy decode-first",
        ),
        (&format!("{sound} --slice 0..3"), "--slice: is for a trace, add --trace FILE"),
        (
            "plan --rate 5/s --input-tokens 5 --output-tokens 5 --step-time nope",
            "--step-time: `nope` is no step-time preset",
        ),
        (
            "cost --price 2.5 --output-rate 10",
            "--price: price `2.5`: write a number per hour: 2.50/h",
        ),
        (
            "cost --price 2/h --output-rate 10 --api-output 0.6",
            "--api-output: price of tokens `0.6`: a number needs a unit",
        ),
        ("cost --price 2/h --output-rate 10 --utilization 40", "--utilization: share `40`"),
        ("tune --slo ttft<1s", "--attainment: "),
        ("tune --slo p99(ttft)<1s --chunk 128", "--chunk: is not for vllm-v1"),
        (
            "tune --slo p99(ttft)<1s --policy decode-first --watermark 0.01",
            "--watermark: is not for decode-first",
        ),
        ("tune --slo p99(ttft)<1s --order sjf", "--order: is not for vllm-v1"),
    ]);
}

/// Numbers that no option can have, and inputs that contradict each other.
#[test]
fn what_cannot_be_is_told_its_bound() {
    let sound = format!("plan --rate 5/s {LENGTHS} --policy decode-first");
    let users = format!("plan --users 20 {LENGTHS}");
    refuses(&[
        ("plan --rate -5/s", "--rate: rate `-5/s`: a rate is not negative"),
        ("plan --rate 5/s --e2e -1s", "--e2e: duration `-1s`: a duration is not negative"),
        ("plan --users 20 --think 0s", "--think: users who neither think nor wait have no rate"),
        (
            &format!("{users} --think 5s --e2e 2s"),
            "--e2e: of a closed loop follows from the step time: leave it out",
        ),
        (
            &format!("{users} --requests-per-user 0/h"),
            "--requests-per-user: requests per user must",
        ),
        (
            "plan --users 2M --think 5s --input-tokens 500 --output-tokens 50 --step-time base=10ms",
            "--users: users must be above 0 and at most 1000000, got 2000000",
        ),
        (
            &format!("{sound} --slo ttft<1s@99%,tpot<100ms@99%,e2e<2s@99%"),
            "up to n = 11 tokens, and a mean answer has 50",
        ),
        (
            &format!("{sound} --slo p99(ttft)<3s,p99(e2e)<2s"),
            "the SLOs contradict each other: the limit on TTFT is above that on E2E",
        ),
        (
            &format!("{sound} --model-error -1%"),
            "--model-error: share `-1%`: a share is not negative",
        ),
        (
            &format!("{sound} --disagg --kv-bandwidth 25GB"),
            "--kv-bandwidth: `25GB`: write a size per second, 25GB/s",
        ),
        (
            &format!("{sound} --disagg --kv-bandwidth 0GB/s --kv-bytes-per-token 100"),
            "--kv-bandwidth: kv bandwidth must be above 0",
        ),
        (&format!("{sound} --price 2"), "--price: price `2`: write a number per hour: 2.50/h"),
        (&format!("{sound} --price 0/h"), "--price: price must be above 0.0001"),
        (&format!("{sound} --max-num-seqs 0"), "--max-num-seqs: max_num_seqs must be above 0"),
        (
            &format!("{sound} --slo p99(ttft)<1s --requests 100000M"),
            "--requests: requests must be above 99 and at most 10000000, got 100000000000",
        ),
        (
            "plan --rate 5/s --input-tokens 140000 --output-tokens 50 --step-time llama-3.1-8b-h100-sxm",
            "the longest request has 140050 tokens, prompt and answer, and max_model_len is 131072",
        ),
        (
            "plan --rate 5/s --input-tokens 500 --output-tokens 50 --step-time llama-3.1-8b-h100-sxm --num-kv-blocks 10",
            "the longest request has 550 tokens, and the KV cache of a replica holds 144",
        ),
        ("cost --price 0/h --output-rate 10", "--price: price must be above 0.0001"),
        ("cost --price 1e-300/h --output-rate 10", "and at most 1000000/h, got 1e-300"),
        ("cost --price 1e9/h --output-rate 10", "--price: price must be above 0.0001"),
        ("cost --price -1/h --output-rate 10", "--price: price `-1/h`: write a number per hour"),
        ("cost --price 2/h --output-rate -5/s", "--output-rate: rate `-5/s`: a rate is not"),
        (
            "cost --price 2/h --output-rate 10 --slo-rate 20/s",
            "the rate at the SLO must be at most",
        ),
        (
            "tune --slo ttft<1s@99%,tpot<100ms@99%,e2e<2s@99%",
            "TTFT + (n - 1) * TPOT stays within the limit on E2E up to n = 11 tokens",
        ),
        (
            "tune --slo p99(ttft)<1s --max-num-seqs 16 --num-kv-blocks 5",
            "no setting can run, the first of 6: vllm-v1, 16 seqs, num_kv_blocks 5, budget 512: the longest request has",
        ),
        (
            "tune --slo p99(ttft)<1s --input-tokens 200000",
            "prompt and answer, and max_model_len is 131072",
        ),
        ("tune --slo p99(ttft)<1s --policy nope", "policy `nope`: expected decode-first"),
        (
            "kv --num-kv-blocks 10 --input-tokens 5000 --output-tokens 10",
            "--mean-tokens: a request of 5005 tokens needs 313 blocks and the KV cache has 10",
        ),
        ("kv --num-kv-blocks -1", "--num-kv-blocks: count `-1`: write a whole number"),
    ]);
}

const SWEEP: [&str; 8] = [
    "tune",
    "--requests",
    "500",
    "--slo",
    "p99(ttft)<600ms,tpot<30ms @ 99%",
    "--max-num-batched-tokens",
    "1024,4096",
    "--max-num-seqs=32,64,500",
];

/// The threads and a search that was broken off change nothing; another search is refused.
#[test]
fn a_search_goes_on_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| goodput(dir.path(), &[&SWEEP, more].concat());
    let whole = run(&["--jobs", "1"]);
    assert_eq!(out(&whole), out(&run(&["--jobs", "3", "--resume", "a.jsonl"])));
    // Half of the file, and a line that was cut off.
    let path = dir.path().join("a.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 7);
    let half: Vec<&str> = text.lines().take(4).collect();
    std::fs::write(&path, format!("{}\n[5,{{\"outc", half.join("\n"))).unwrap();
    assert_eq!(out(&whole), out(&run(&["--resume", "a.jsonl"])));
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 7);
    let other = run(&["--resume", "a.jsonl", "--seed", "9"]);
    assert_eq!(other.status.code(), Some(2));
    let error = String::from_utf8(other.stderr).unwrap();
    assert!(error.contains("--resume a.jsonl: is of another search"), "{error}");
}

#[test]
fn a_sweep_shows_the_front_and_the_flags() {
    let (text, code) = said(&SWEEP);
    assert_eq!(code, 0);
    insta::assert_snapshot!(text, @r#"
    4 of 6 settings keep the SLO; most slack: vllm-v1, 64 seqs, budget 1024
      requests   500, 15/s poisson; input lognormal:median=600,sigma=1.1,min=4,max=16384; output lognormal:median=160,sigma=0.8,min=1,max=4096
      slo        p99(ttft)<=600ms, tpot<=30ms @ 99%
      step time  llama-3.1-8b-h100-sxm
      stopped    2 once an SLO was out of reach
      flags      --max-num-seqs 64 --max-num-batched-tokens 1024

    on the front                    p99(ttft)<=600ms  tpot<=30ms @ 99%   slack  ITL at most  steps a prompt  same run
    vllm-v1, 64 seqs, budget 1024          392.53 ms          20.01 ms  33.3 %     33.11 ms            1.65
    vllm-v1, 500 seqs, budget 1024         383.06 ms          20.47 ms  31.8 %     36.30 ms            1.65
    vllm-v1, 500 seqs, budget 4096         303.82 ms          22.35 ms  25.5 %    124.19 ms            1.06

    3 on the front: no other setting is better in one value and not worse in another
    one run each, on the same requests: near a limit try the settings with `goodput sim --seeds 10`
    "#);
    let (text, code) = said(&["tune", "--requests", "300", "--slo", "p99(ttft)<20ms"]);
    assert_eq!(code, 1);
    assert!(text.starts_with("none of 41 settings keeps the SLO"), "{text}");
    assert!(text.contains("nearest"), "{text}");
}
