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
    insta::assert_snapshot!(text, @"");
}

/// 2.5 / (50 · 3,600) · 10^6 = 13.9, and 13.89 / 0.14 = 99.2.
#[test]
fn a_published_cost_that_is_too_low_is_told() {
    let (text, code) =
        said(&["cost", "--price", "2.50/h", "--output-rate", "50/s", "--claimed", "0.14/1M"]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(text, @"");
}

/// 40 · (3,000 + 300) tokens a second on four H100 a replica; every method, both bounds, pools.
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
    insta::assert_snapshot!(text, @"");
}

/// The keys of the answer, for those who read it with a program.
#[test]
fn the_answer_in_json_has_a_version() {
    let (text, code) = said(&["plan", "--rate", "36000/h", "--e2e", "2s", "--format", "json"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(text, @"");
}

#[test]
fn what_is_wrong_is_named_by_its_flag() {
    let sound = "plan --rate 5/s --input-tokens 500 --output-tokens 50 --step-time base=10ms --policy decode-first";
    for (arguments, expected) in [
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
        ("cost --price 0/h --output-rate 10", "--price: price must be above 0"),
        (
            "cost --price 2/h --output-rate 10 --api-output 0.6",
            "--api-output: price of tokens `0.6`: a number needs a unit",
        ),
        ("cost --price 2/h --output-rate 10 --utilization 40", "--utilization: share `40`"),
        ("tune --slo ttft<1s", "--attainment: "),
        ("tune --slo p99(ttft)<1s --chunk 128", "--chunk: is not for vllm-v1"),
        (
            "tune --slo p99(ttft)<1s --policy decode-first --block-size 16",
            "--block-size: for vllm-v1 alone",
        ),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let (text, code) = said(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}\n  says  {text}  wants {expected}");
    }
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
    insta::assert_snapshot!(text, @"");
    let (text, code) = said(&["tune", "--requests", "300", "--slo", "p99(ttft)<20ms"]);
    assert_eq!(code, 1);
    assert!(text.starts_with("none of 41 settings keeps the SLO"), "{text}");
    assert!(text.contains("nearest"), "{text}");
}
