//! What `goodput sim` does with a scenario beside flags, with traces, and with settings that fail.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{run_in, sim_in};
use serde_json::Value;

/// A folder with a scenario of 60 requests of 100 and 50 tokens under these settings.
fn scenario(settings: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "schema_version = 1\nname = 's'\ntitle = {{ en = 's', zh = 's' }}\n\
         about = {{ en = 's', zh = 's' }}\n[workload.generate]\nrequests = 60\nrate_per_s = 5\n\
         input_tokens = '100'\noutput_tokens = '50'\nseed = 1\n[settings]\n\
         step_time = 'base=10ms'\n{settings}"
    );
    std::fs::write(dir.path().join("s.toml"), text).unwrap();
    dir
}

/// The lines under a label of the text form.
fn lines(text: &str, label: &str) -> String {
    let rows = text.lines().skip_while(|l| !l.starts_with(&format!("  {label}")));
    let first = rows.clone().take(1);
    let more = rows.skip(1).take_while(|l| l.starts_with("          "));
    first.chain(more).collect::<Vec<_>>().join("\n")
}

/// The setting holds what is in force under the policy of the flag, and what the policy of the
/// scenario alone follows is said to be left out.
#[test]
fn what_a_policy_does_not_follow_is_left_out_and_said() {
    let vllm = scenario(
        "policy = 'vllm-v1'\nmax_waiting = 1\nengine = { num_kv_blocks = 100, max_model_len = 500, \
         scheduling_policy = 'priority', max_num_batched_tokens = 64, block_size = 32, \
         enable_prefix_caching = false }\n",
    );
    let under = |dir: &tempfile::TempDir, flags: &str| {
        let text = sim_in(dir.path(), &format!("--scenario s.toml {flags}"));
        format!("{}\n{}\n", lines(&text, "setting"), lines(&text, "to know"))
    };
    insta::assert_snapshot!(
        under(&vllm, "--policy sarathi")
            + &under(&vllm, "--policy prefill-first --max-num-batched-tokens 64")
    );
    let text = sim_in(vllm.path(), "--scenario s.toml --policy sarathi --format json");
    let server = &serde_json::from_str::<Value>(&text).unwrap()["runs"][0];
    assert!(!text.contains("num_kv_blocks=") && !text.contains("\"100\""), "{server}");
    let sarathi = scenario(
        "policy = 'sarathi'\nmax_num_seqs = 64\nchunk = 128\nkv_blocks = 12\nblock_size = 32\n\
         preemption = 'swap'\nswap_time = '1ms/token'\norder = 'sjf'\n",
    );
    let mut all = String::new();
    for policy in ["prefill-first", "decode-first", "orca", "sglang"] {
        all.push_str(&under(&sarathi, &format!("--policy {policy}")));
    }
    all.push_str(&under(&sarathi, "--policy vllm-v1 --num-kv-blocks 500 --max-model-len 4000"));
    insta::assert_snapshot!("left_behind_of_sarathi", all);
    // What holds of the scenario under its own policy is not mentioned, nor what a flag replaces.
    assert!(!under(&sarathi, "").contains("left out"));
    let replaced = under(&vllm, "--policy sarathi --kv-blocks 50 --block-size 16");
    assert!(
        replaced.contains("block_size=16") && !replaced.contains("block_size 32"),
        "{replaced}"
    );
}

#[test]
fn users_of_a_scenario_refuse_flags_of_an_open_loop() {
    let dir = scenario("max_num_seqs = 64\nchunk = 128\nusers = 3\n");
    let mut said = String::new();
    for flags in [
        "--rate 50/s",
        "--arrivals deterministic",
        "--rate-scale 2",
        "--turns 3 --think 1s --think-after answer",
    ] {
        said.push_str(&sim_in(dir.path(), &format!("--scenario s.toml {flags}")));
    }
    insta::assert_snapshot!("users_refuse", said);
    // What users do have may change.
    let text = sim_in(dir.path(), "--scenario s.toml --think 1s --requests 20");
    assert!(text.contains("20 requests"), "{text}");
}

/// Four of these ten seeds fail; that of the first one is told, by name, however many run at a time.
#[test]
fn the_first_failure_is_told_whatever_runs_at_the_same_time() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeds = "--requests 5 --max-num-seqs 1 --chunk 64 --cool-down 1s --rate 100/s --seeds 10";
    let sweep = "--requests 5 --max-num-seqs 1 --cool-down 1s --rate 25/s --chunk 64,128 \
                 --rate-scale 1,2,3,4";
    for arguments in [seeds, sweep] {
        let said: Vec<String> =
            (1..=4).map(|n| sim_in(here, &format!("{arguments} --jobs {n}"))).collect();
        assert!(said.iter().all(|text| *text == said[0]), "{said:?}");
        assert!(said[0].ends_with("exit 2\n"), "{}", said[0]);
    }
    insta::assert_snapshot!("first_failure", sim_in(here, seeds) + &sim_in(here, sweep));
}

/// The lowest number runs first: of two requests that arrive at once, one at a time, each with a step
/// for its prompt and 50 for its answer at 10 ms, `b` of priority 1 ends at 0.51 s and `a` of 5 at
/// 1.02 s; under vllm-v1 the step of the prompt gives the first token.
#[test]
fn a_trace_says_priorities() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let request = |id: &str, p: &str| {
        format!(r#"{{"id":"{id}","arrival_s":0,"input_tokens":100,"output_tokens":50{p}}}"#)
    };
    let (five, one) = (r#","priority":5"#, r#","priority":1"#);
    write("pr.jsonl", &format!("{}\n{}\n", request("a", five), request("b", one)));
    // 0 where nothing is said.
    write("some.jsonl", &format!("{}\n{}\n", request("b", ""), request("a", one)));
    write("later.jsonl", &format!("{}\n{}\n", request("a", ""), request("b", r#","priority":-1"#)));
    write(
        "pr.csv",
        "id,arrival_s,input_tokens,output_tokens,priority\na,0,100,50,5\nb,0,100,50,1\n",
    );
    write("own.csv", "id,arrival_s,input_tokens,output_tokens,p\na,0,100,50,5\nb,0,100,50,-1\n");
    write("wide.jsonl", &(request("a", r#","priority":99999999999999999999"#) + "\n"));
    let ends = |flags: &str| {
        let text = sim_in(
            dir.path(),
            &format!("{flags} --max-num-seqs 1 --step-time base=10ms --requests-out out.jsonl"),
        );
        assert!(!text.contains("all requests have the same"), "{text}");
        let out = std::fs::read_to_string(dir.path().join("out.jsonl")).unwrap();
        let rows = out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        let mut ends: Vec<(String, u64)> = rows
            .filter_map(|r| {
                let end = r["last_token_ps"].as_str()?.parse().ok()?;
                Some((r["id"].as_str()?.to_owned(), end))
            })
            .collect();
        ends.sort();
        ends
    };
    let b_first = [("a".to_owned(), 1_020_000_000_000), ("b".to_owned(), 510_000_000_000)];
    let map = "--map id=id,arrival_s=arrival_s,input_tokens=input_tokens,\
               output_tokens=output_tokens,priority=p";
    for trace in ["pr.jsonl", "some.jsonl", "later.jsonl", "pr.csv", &format!("own.csv {map}")] {
        let found = ends(&format!("--trace {trace} --chunk 128 --order priority"));
        assert_eq!(found, b_first, "{trace}");
    }
    let vllm = "--policy vllm-v1 --scheduling-policy priority --num-kv-blocks 100 \
                --async-scheduling=false";
    let b_first = [("a".to_owned(), 1_000_000_000_000), ("b".to_owned(), 500_000_000_000)];
    assert_eq!(ends(&format!("--trace pr.jsonl {vllm}")), b_first);
    // It is written as it is read.
    run_in(dir.path(), ["trace", "convert", "pr.csv", "-o", "back.jsonl"]);
    let back = std::fs::read_to_string(dir.path().join("back.jsonl")).unwrap();
    assert_eq!(back, std::fs::read_to_string(dir.path().join("pr.jsonl")).unwrap());
    let wide = sim_in(dir.path(), "--trace wide.jsonl --order priority");
    insta::assert_snapshot!("wide_priority", wide);
}

#[test]
fn a_router_of_one_server_is_refused() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let disagg = "--disagg prefill=1,decode=1 --kv-transfer 1us/token --router random";
    insta::assert_snapshot!(
        "idle_router",
        sim_in(here, "--requests 5 --replicas 1 --router random")
            + &sim_in(here, &format!("--requests 5 {disagg}"))
    );
    // In a sweep it is for those that have several.
    let sweep = "--requests 5 --max-num-seqs 1 --chunk 64 --replicas 1,2 --router random";
    assert!(!sim_in(here, sweep).contains("exit"));
    let dir = scenario("max_num_seqs = 8\nchunk = 128\nreplicas = 2\nrouter = 'random'\n");
    let text = sim_in(dir.path(), "--scenario s.toml --replicas 1");
    insta::assert_snapshot!("idle_router_of_a_scenario", lines(&text, "to know"));
}

/// A run that ends before anybody arrives says nothing: the first of these requests is at 0.2 s.
#[test]
fn a_run_to_which_nobody_comes_is_refused() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut said = String::new();
    for more in ["", "--sketch", "--arrivals deterministic --rate 5/s", "--seeds 2"] {
        let one = "--requests 5 --max-num-seqs 1 --chunk 64 --until";
        said.push_str(&sim_in(here, &format!("{one} 0s {more}")));
    }
    insta::assert_snapshot!("nobody_comes", said);
}

/// A reader that goes away after the first line of some 100 kB ends the tool as it does without `-o`.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_without_reader_has_one_exit_code_under_every_name() {
    for output in ["-o", "--requests-out", "--series"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_goodput"));
        command.args(["sim", "--max-num-seqs", "64", "--chunk", "256", "--seed", "1"]);
        command.args([output, "/dev/stdout"]);
        if output == "-o" {
            command.args(["--format", "json", "--rate-scale"]);
            let scales: Vec<String> = (1..=40).map(|n| format!("{n}/10")).collect();
            command.arg(scales.join(",")).args(["--requests", "20"]);
        } else {
            command.args(["--requests", "3k"]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), said.as_str()), (Some(141), ""), "{output}");
    }
}

/// Each names the input, the bound and the value, in few characters.
#[test]
fn messages_name_input_bound_and_value() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("late.csv"),
        "arrival_s,input_tokens,output_tokens\n0,5,2\n1e308,5,2\n",
    )
    .unwrap();
    let mut said = String::new();
    for arguments in [
        "--turns 2 --think uniform:5s,1s",
        "--input-tokens uniform:9,3",
        "--step-time roofline:model=llama-3.1-8b,gpu=h100,mbu=1e-300",
        "--trace late.csv",
        "--goodput ttft:1e308",
        "--goodput ttft:-1",
        "--disagg prefill=0,decode=1 --kv-transfer 1us/token",
        "--disagg prefill=1,decode=0 --kv-transfer 1us/token",
        "--turns -1 --think 1s",
        "--rate 1e-308/s",
        "--input-tokens lognormal:median=5,sigma=1e300",
        "--requests 1e9 --max-num-seqs 4",
        "--requests 5 --input-tokens 4G --output-tokens 1 --chunk 1 --step-time base=1s",
    ] {
        said.push_str(&sim_in(dir.path(), arguments));
    }
    insta::assert_snapshot!(said);
}
