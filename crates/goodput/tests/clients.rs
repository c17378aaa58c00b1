//! Clients of `goodput sim` who wait for answers, stop waiting, or go away.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

mod common;

use std::path::Path;

use common::{json, run_in, sim, sim_in};
use serde_json::Value;

/// The line of a text with this label.
fn line<'t>(text: &'t str, label: &str) -> &'t str {
    text.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_default()
}

/// One slot, and a step of 10 ms each for the prompt and for a token.
const STEPS: &str =
    "--input-tokens 1 --output-tokens 1 --max-num-seqs 1 --chunk 16 --step-time base=10ms";

/// The run of two users that is worked out by hand in the tests of `sched-sim`: the first request is
/// answered after 20 ms, and the five others are given up after 25 ms, three of them in the middle of
/// a step that runs on for nobody. Until 82 ms eight steps run.
#[test]
fn users_stop_waiting() {
    let users = "--users 2 --think 2ms --requests 6";
    let text = sim(&format!("{STEPS} {users} --timeout 25ms"));
    assert!(
        text.contains("6 injected = 1 completed + 0 running + 0 queued + 5 timed out"),
        "{text}"
    );
    assert!(line(&text, "steps").contains("8, "), "{text}");
    assert!(
        text.contains("83.3 % of the requests timed out, and latencies are of the others"),
        "{text}"
    );
    let gone = sim(&format!("{STEPS} {users} --cancel 100%,25ms"));
    assert!(
        gone.contains("6 injected = 1 completed + 0 running + 0 queued + 5 cancelled"),
        "{gone}"
    );
    let says = "83.3 % of the requests were cancelled by their clients, and latencies and attainment \
                are of the others";
    assert!(gone.contains(says), "{gone}");
    let both = sim(&format!("{STEPS} {users} --cancel 50%,25ms --timeout 25ms"));
    assert!(
        both.contains("% were cancelled by their clients: latencies are of the others, and the"),
        "{both}"
    );
}

/// Sessions of two turns come every 100 ms, answers take 40 ms (a step for the prompt and three for
/// the tokens), and a client thinks for 30 ms: after an arrival, its second turn comes 10 ms before
/// the answer; after the answer it comes at 70 ms. Prompts are 5 tokens, and then 5 + 3 + 5.
#[test]
fn turns_may_wait_for_their_answers() {
    let dir = tempfile::tempdir().unwrap();
    let of = |after: &str| -> Vec<String> {
        let text = sim_in(
            dir.path(),
            &format!(
                "--turns 2 --think 30ms --requests 4 --rate 10/s --arrivals deterministic \
                 --input-tokens 5 --output-tokens 3 --max-num-seqs 8 --chunk 64 --step-time base=10ms \
                 --requests-out out.jsonl --think-after {after}"
            ),
        );
        assert_eq!(text.contains("quote answers"), after == "arrival", "{text}");
        assert!(text.contains(&format!("think constant:30ms after an {after}")), "{text}");
        let out = std::fs::read_to_string(dir.path().join("out.jsonl")).unwrap();
        let row = |line: &str| {
            let row: Value = serde_json::from_str(line).unwrap();
            let ms = row["arrival_ps"].as_str().unwrap().parse::<u64>().unwrap() / 1_000_000_000;
            format!("{} {ms} {}", row["id"].as_str().unwrap(), row["input_tokens"])
        };
        out.lines().filter(|line| line.contains("\"id\"")).map(row).collect()
    };
    assert_eq!(of("arrival"), ["1.1 100 5", "1.2 130 13", "2.1 200 5", "2.2 230 13"]);
    assert_eq!(of("answer"), ["1.1 100 5", "1.2 170 13", "2.1 200 5", "2.2 270 13"]);
}

/// The plain engine prints the same bytes, and so does any number of threads.
#[test]
fn clients_who_wait_do_not_depend_on_the_engine() {
    for clients in [
        "--users 9 --turns uniform:1,4 --think exponential:mean=300ms --timeout 4s",
        "--users 9 --think 100ms --cancel 30%,exponential:mean=2s --max-waiting 3",
        "--turns 3 --think 1s --think-after answer --rate 6/s --timeout 9s --cancel 20%,2s",
    ] {
        for servers in [
            "--policy vllm-v1 --max-num-seqs 4 --num-kv-blocks 4000 --max-model-len 60000",
            "--policy sarathi,sglang --chunk 256 --max-num-seqs 4 --kv-blocks 4000",
            "--policy sarathi --chunk 256 --max-num-seqs 4 --replicas 3 --router power-of-two",
            "--policy sarathi --chunk 256 --max-num-seqs 4 --disagg prefill=1,decode=2 \
             --kv-transfer 1us/token",
        ] {
            let run = format!("--requests 150 {clients} {servers}");
            let one = sim(&run);
            assert!(one.contains("TTFT"), "{one}");
            assert_eq!(one, sim(&format!("{run} --reference")), "{run}");
            assert_eq!(one, sim(&format!("{run} --jobs 2")), "{run}");
        }
    }
}

/// What flags draw for a trace is what its rows may say themselves: the same run. Its own times win.
#[test]
fn a_trace_says_who_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &str| run_in(dir.path(), arguments.split_whitespace());
    run("trace generate --requests 200 --rate 9/s -o plain.jsonl");
    run("trace generate --requests 200 --rate 9/s --cancel 30%,exponential:mean=1s -o own.jsonl");
    let own = std::fs::read_to_string(dir.path().join("own.jsonl")).unwrap();
    let leave = own.lines().filter(|line| line.contains("\"cancel_after_s\":")).count();
    assert!((40..80).contains(&leave), "{leave}");
    let settings = "--max-num-seqs 8 --chunk 128";
    let of = |rest: &str| {
        let text = run(&format!("sim {settings} {rest} --format json"));
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        json["runs"][0]["simulation"].clone()
    };
    let drawn = of("--requests 200 --rate 9/s --cancel 30%,exponential:mean=1s");
    let cancelled = drawn["cancelled_requests"].as_u64().unwrap();
    assert!(20 < cancelled && cancelled <= leave as u64, "{drawn}");
    let times = |of: Value| (of["steps"].clone(), of["cancelled_requests"].clone());
    assert_eq!(times(of("--trace own.jsonl")), times(drawn.clone()));
    assert_eq!(
        times(of("--trace plain.jsonl --cancel 30%,exponential:mean=1s")),
        times(drawn.clone())
    );
    assert_ne!(
        times(of("--trace plain.jsonl --cancel 30%,exponential:mean=1s --seed 2")),
        times(drawn)
    );
    assert_eq!(of("--trace plain.jsonl --cancel 100%,0s")["completed"], 0);
    let completed = of("--trace own.jsonl --cancel 100%,0s")["completed"].as_u64().unwrap();
    assert!((1..=leave as u64).contains(&completed), "{completed}");
    // A plan is for those who stay.
    let plan = "plan --input-tokens 9 --trace own.jsonl";
    let plan = run(&plan.replace("--input-tokens 9 ", "")) + &run(plan);
    assert!(plan.contains("of clients who went away: planned as if they stayed"), "{plan}");
}

/// With a trace, seeds are for what draws: routers, and clients who go away. Under one setting that
/// draws nothing every seed gives the same.
#[test]
fn a_trace_has_seeds_for_what_draws() {
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), "trace generate --requests 150 --rate 14/s -o t.jsonl".split(' '));
    let run = |rest: &str| {
        sim_in(dir.path(), &format!("--trace t.jsonl --max-num-seqs 4 --chunk 128 {rest}"))
    };
    let refused = run("--seeds 3");
    assert!(refused.ends_with("exit 2\n"), "{refused}");
    insta::assert_snapshot!(
        "nothing_draws",
        refused + &run("--seed 3 --replicas 2") + &run("--rate 5/s")
    );
    let text = run("--replicas 3 --router random,round-robin --seeds 4 --format csv");
    let widths = |router: &str| -> Vec<bool> {
        let of = text.lines().filter(|l| l.contains(router) && l.contains(",ttft_p50_s,mean,"));
        let numbers = |l: &str| -> Vec<f64> {
            l.rsplit(',').take(4).filter_map(|cell| cell.parse().ok()).collect()
        };
        of.map(|l| numbers(l)[1] > numbers(l)[2]).collect()
    };
    assert_eq!((widths("random"), widths("round-robin")), (vec![true], vec![false]), "{text}");
    assert!(run("--replicas 3 --router random --seed 9").contains("150 requests, seed 9"));
    assert!(run("--cancel 10%,2s --seeds 2").contains("150 requests, seeds 1 to 2"));
    assert!(!run("").contains("seed"));
}

/// Clients who wait send a faster server more requests, so that rows meet others; those who go away
/// are of the same requests.
#[test]
fn the_same_requests_are_said_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    run_in(dir.path(), "trace generate --requests 60 --rate 14/s -o t.jsonl".split(' '));
    let common = "--requests 60 --chunk 64 --step-time base=10ms --max-num-seqs 2,4 --seeds 2";
    for (clients, same) in [
        ("--rate 9/s", true),
        ("--rate 9/s --timeout 2s", true),
        ("--rate 9/s --cancel 10%,1s --cancel 30%,1s", true),
        ("--rate 9/s,11/s", false),
        ("--users 5", false),
        ("--rate 3/s --turns 3 --think 1s", true),
        ("--rate 3/s --turns 3 --think 1s --think-after answer", false),
    ] {
        let text = sim(&format!("{common} {clients}"));
        let says = if same {
            " on the same requests, paired"
        } else {
            " by the same random streams, paired"
        };
        assert!(text.contains(says), "{clients}: {text}");
    }
    let trace =
        "--trace t.jsonl --max-num-seqs 2 --chunk 64 --cancel 0%,1s --cancel 30%,1s --seeds 2";
    let text = sim_in(dir.path(), trace);
    assert!(text.contains(" on the same requests, paired"), "{text}");
    let policies = "--policy decode-first,prefill-first --requests 60 --chunk 64 --max-num-seqs 4";
    let explained = |rest: &str| {
        let text = sim(&format!("{policies} {rest}"));
        let not = "Not compared by rules: clients who wait for answers send a faster server more requests";
        (text.contains("What the policies"), text.contains(not))
    };
    assert_eq!(explained("--rate 9/s"), (true, false));
    assert_eq!(explained("--users 5"), (false, true));
}

/// By hand, with steps of 10 ms: the tokens of a prompt and five answers are made at 20, 30, 40, 50
/// and 60 ms under decode-first. Whoever leaves at 55 ms is noticed at 60 ms, when all five are made.
#[test]
fn a_last_token_in_vain_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = |leave: &str| -> Value {
        let run = format!(
            "--max-num-seqs 1 --chunk 16 --requests 1 --rate 1/s --input-tokens 10 --output-tokens 5 \
             --step-time base=10ms --requests-out o.jsonl {leave}"
        );
        sim_in(dir.path(), &run);
        let text = std::fs::read_to_string(dir.path().join("o.jsonl")).unwrap();
        let row: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        serde_json::json!([row["outcome"], row["output_tokens"]])
    };
    let said = |outcome: &str, tokens: u32| serde_json::json!([outcome, tokens]);
    assert_eq!(tokens("--timeout 60ms"), said("completed", 5));
    assert_eq!(tokens("--timeout 55ms"), said("timed_out", 5));
    assert_eq!(tokens("--cancel 100%,55ms"), said("cancelled", 5));
    assert_eq!(tokens("--timeout 45ms"), said("timed_out", 4));
}

/// What a report says of the timelines of a run is what the run says of itself, where clients leave:
/// the same warning, and no failures beside it; and nothing of requests that were left where none was.
#[test]
fn a_report_on_a_run_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let common = "--requests 120 --max-num-seqs 4 --chunk 128 --rate 3/s --slo ttft<500ms \
                  --requests-out o.jsonl";
    let finding = |text: &str, id: &str| {
        text.lines().find(|l| l.trim_start().starts_with(id)).map(|l| l.trim().to_owned())
    };
    for leave in ["--cancel 50%,1s", "--timeout 3s", "--timeout 3s --cancel 30%,1s", "--until 20s"]
    {
        let run = sim_in(dir.path(), &format!("{common} {leave}"));
        let report = run_in(dir.path(), ["report", "o.jsonl", "--slo", "ttft<500ms"]);
        for id in ["W28", "W37"] {
            assert_eq!(finding(&run, id), finding(&report, id), "{leave}: {run}{report}");
        }
        assert!(finding(&run, "W28").is_some(), "{leave}: {run}");
    }
    let short = "--requests 50 --rate 1/s --arrivals deterministic --input-tokens 5 --output-tokens 1 \
                 --max-num-seqs 4 --chunk 64 --step-time base=10ms --until 5500ms --requests-out o.jsonl";
    let run = sim_in(dir.path(), short);
    let report = run_in(dir.path(), ["report", "o.jsonl"]);
    assert!(run.contains("TRUNCATED") && run.contains("5 injected = 5 completed"), "{run}");
    assert_eq!((finding(&run, "W28"), finding(&report, "W28")), (None, None), "{report}");
    // Of clients who wait not all requests are sent then.
    let users = sim_in(
        dir.path(),
        &short.replace("--rate 1/s --arrivals deterministic", "--users 2 --think 1s"),
    );
    assert!(users.contains("50 requests, seed 1"), "{users}");
}

/// Times that no run reaches: whoever goes away later stays, and who thinks longer is told. A fleet
/// whose steps take no time has no order of answers.
#[test]
fn what_clients_cannot_do_is_said() {
    let common = "--requests 60 --max-num-seqs 4 --chunk 64 --step-time base=10ms";
    let stay = json(&format!("{common} --cancel 100%,lognormal:median=3000000000s,sigma=9"));
    let gone = stay["runs"][0]["simulation"]["cancelled_requests"].as_u64().unwrap();
    let books = &stay["runs"][0]["simulation"];
    assert_eq!(books["completed"].as_u64().unwrap() + gone, 60, "{books}");
    let dir = tempfile::tempdir().unwrap();
    let row = "arrival_s,input_tokens,output_tokens,cancel_after\n0,5,2,1\n";
    std::fs::write(dir.path().join("t.csv"), row).unwrap();
    let said = [
        "--users 3 --think lognormal:median=1000000s,sigma=10 --seed 2",
        "--users 3 --think -1s",
        "--users 3 --think 1e30s",
        "--cancel 10%,exponential:mean=9999999999s",
        "--users 3 --replicas 2 --step-time prefill=1us/token",
        "--turns 2 --think 1s --think-after answer --step-time base=0s --disagg prefill=1,decode=1 \
         --kv-transfer 1us/token",
        "--trace t.csv",
    ]
    .map(|rest| {
        sim_in(
            dir.path(),
            &format!("--requests 60 --max-num-seqs 4 --chunk 64 {rest}")
                .replace("--requests 60 --max-num-seqs 4 --chunk 64 --trace", "--trace"),
        )
    });
    insta::assert_snapshot!("cannot", said.concat());
}

/// As data: what clients do stands with the settings, and what was lost is counted.
#[test]
fn files_say_what_clients_do() {
    let runs =
        "--requests 60 --rate 20/s --max-num-seqs 2 --chunk 64 --cancel 50%,1s --cancel 0%,1s";
    let json = json(runs);
    assert_eq!(json["runs"][0]["cancel"], "share=0.5,after=constant:1s");
    assert!(0 < json["runs"][0]["simulation"]["cancelled_requests"].as_u64().unwrap());
    assert_eq!(json["runs"][1]["simulation"]["cancelled_requests"], 0);
    let table = sim(runs);
    let header = table.lines().find(|l| l.contains("TTFT p50")).unwrap();
    assert!(header.contains(" cancel ") && header.contains(" cancelled "), "{table}");
    let csv = sim(&format!("{runs} --format csv"));
    assert!(csv.lines().next().unwrap().contains(",timeout,cancel,until,"), "{csv}");
    assert!(csv.contains("share=0.5,after=constant:1s"), "{csv}");
    insta::assert_snapshot!(
        "refused",
        [
            "--sketch --turns 2 --think 1s --think-after answer",
            "--cancel 110%,1s",
            "--cancel 10%,soon",
            "--turns 2 --think 1s --think-after never"
        ]
        .map(sim)
        .concat()
            + &run_in(
                Path::new("."),
                "trace generate --turns 2 --think 1s --think-after answer".split(' ')
            )
    );
}
