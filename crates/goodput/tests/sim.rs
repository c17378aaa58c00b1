//! What `goodput sim` says beside its table, and what it streams.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

mod common;

use common::{json, sim, sim_in};
use serde_json::Value;
use serving_io::policy::{POLICIES as POLICIES_LIST, RULES};

/// The part of a text from the line that begins with this to the next empty line.
fn part<'a>(text: &'a str, from: &str) -> &'a str {
    let start = text.find(from).unwrap_or_else(|| panic!("{from}: {text}"));
    text[start..].split("\n\n").next().unwrap_or_default()
}

/// Three policies under one batch limit, two of which have a chunk.
const POLICIES: &str = "--policy decode-first,prefill-first,sglang --chunk 128,512 \
                        --max-num-seqs 64 --rate 6/s --requests 400";

/// Two chunks for two policies and none for the third are five rows; every sentence is made of the
/// figures of the table above it.
#[test]
fn a_comparison_of_policies_is_explained() {
    let text = sim(POLICIES);
    let rows = part(&text, "policy  ").lines().skip(1);
    let chunks: Vec<&str> = rows.map(|row| row.split_whitespace().nth(2).unwrap()).collect();
    assert_eq!(chunks, ["128", "512", "-", "128", "512"]);
    insta::assert_snapshot!(part(&text, "What the policies"));
    let markdown = sim(&format!("{POLICIES} --format md"));
    for line in part(&text, "What the policies").lines().skip(1) {
        let (_, says) = line.split_at_checked(19).unwrap();
        assert!(markdown.contains(says), "{says}: {markdown}");
    }
}

/// The rules promise it, and the figures of the table have to show it: who decodes first keeps TPOT
/// low and lets prompts wait, who prefills first the reverse.
#[test]
fn decode_first_protects_tpot_and_prefill_first_ttft() {
    let answer = json(POLICIES);
    let p99 = |policy: &str, latency: &str| -> Vec<f64> {
        let runs = answer["runs"].as_array().unwrap().iter();
        let of = runs.filter(|r| r["policy"] == policy);
        let figure = |r: &Value| r["latency"][latency]["p99_s"].as_f64();
        of.map(|r| figure(r).unwrap()).collect()
    };
    for decode_first in p99("decode-first", "tpot") {
        assert!(decode_first < p99("prefill-first", "tpot")[0]);
    }
    for decode_first in p99("decode-first", "ttft") {
        assert!(p99("prefill-first", "ttft")[0] < decode_first);
    }
    let explained = &answer["policies_explained"][0];
    let pairs = explained["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 2, "decode-first with each of the others: {pairs:?}");
    assert_eq!(pairs[0]["protects_ttft"], "prefill-first");
    assert_eq!(pairs[0]["as_the_rules_say"], true);
    assert_eq!(pairs[0]["tpot_p99"], serde_json::json!({ "lower": 2, "higher": 0, "of": 2 }));
    // The books: shares of all accounts are the whole.
    let time = &explained["policies"][0]["runs"][0]["time"]["after_first_token"];
    let sum: f64 = time.as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{time}");
}

/// One prompt at a time and no stream beside it: both rules decide the same, so no rule is at work
/// and the text says so instead of praising one.
#[test]
fn figures_that_do_not_follow_the_rules_are_told() {
    let settings = "--policy decode-first,prefill-first --max-num-seqs 1 --chunk 100000 \
                    --requests 50 --rate 1/min --step-time base=10ms";
    let answer = json(settings);
    let pair = &answer["policies_explained"][0]["pairs"][0];
    assert_eq!(pair["as_the_rules_say"], false);
    insta::assert_snapshot!(pair["text"].as_str().unwrap());
}

/// Settings that differ in more than the policy are compared among their like alone.
#[test]
fn policies_are_compared_under_equal_settings() {
    let settings = "--policy decode-first,prefill-first --max-num-seqs 8,16,32 --chunk 256 \
                    --requests 100";
    let answer = json(settings);
    let groups = answer["policies_explained"].as_array().unwrap();
    let of: Vec<&str> = groups.iter().map(|g| g["settings"].as_str().unwrap()).collect();
    assert_eq!(of, ["max_num_seqs 8", "max_num_seqs 16", "max_num_seqs 32"]);
    let text = sim(settings);
    assert_eq!(text.matches("What the policies").count(), 2);
    assert!(text.contains("\nand so for 1 more (--format json has all)\n"), "{text}");
    assert!(json("--max-num-seqs 8,16 --requests 20")["policies_explained"].is_null());
}

/// The same requests, kept and not kept: what is counted is the same, to the last digit, and what
/// is sketched is off by what the answer states at most.
#[test]
fn a_sketched_run_agrees_with_the_exact_one() {
    for settings in [
        "--policy decode-first,sarathi,sglang --chunk 256 --kv-blocks 3000 --max-waiting 20 --rate 22/s",
        "--replicas 3 --router power-of-two --max-num-seqs 8 --timeout 3s --rate-scale 5/2",
        "--policy vllm-v1 --num-kv-blocks 9000 --enable-prefix-caching=false --until 20s",
        "--turns 3 --think exponential:mean=2s --rate 5/s --max-num-seqs 16",
    ] {
        let slo = "ttft<300ms,tpot<12ms,p99(e2e)<10s";
        let settings = format!("{settings} --requests 700 --slo {slo}");
        let (exact, sketched) = (json(&settings), json(&format!("{settings} --sketch")));
        let runs = |answer: &Value| answer["runs"].as_array().unwrap().clone();
        for (exact, sketched) in runs(&exact).iter().zip(&runs(&sketched)) {
            for key in ["simulation", "kv_cache", "requests", "window_s", "truncated", "fleet"] {
                assert_eq!(exact[key], sketched[key], "{settings}: {key}");
            }
            // A truncated run has no goodput.
            assert_eq!(exact["goodput"].is_null(), settings.contains("--until"), "{settings}");
            for key in ["good", "goodput_per_s", "goodput_ratio", "attainment", "limits"] {
                assert_eq!(exact["goodput"][key], sketched["goodput"][key], "{settings}: {key}");
            }
            let error = sketched["sketch_relative_error"].as_f64().unwrap();
            assert!(0.0 < error && error < 1e-3, "{error}");
            for latency in ["ttft", "tpot", "e2e", "queue_time"] {
                let of = |run: &Value, key: &str| run["latency"][latency][key].as_f64();
                for key in ["p50_s", "p90_s", "p95_s", "p99_s"] {
                    let (a, b) = (of(exact, key).unwrap(), of(sketched, key).unwrap());
                    // A wait of nothing is nothing, and a picosecond is the sketch's unit.
                    assert!((a - b).abs() <= error * a + 1e-12, "{settings}: {latency} {key}");
                }
                assert_eq!(of(exact, "max_s"), of(sketched, "max_s"));
                let (a, b) = (of(exact, "mean_s").unwrap(), of(sketched, "mean_s").unwrap());
                assert!((a - b).abs() <= 1e-12 * a, "{settings}: mean of {latency}");
            }
        }
    }
}

/// What needs the requests says why.
#[test]
fn a_sketched_run_refuses_what_needs_its_requests() {
    let mut said = String::new();
    for more in [
        "--requests 10 --trace azure.csv",
        "--users 3",
        "--seeds 3",
        "--requests-out r.jsonl",
        "--explain-tail p99",
        "--trace-out t.json",
        "--series s.jsonl",
        "--warm-up 5",
        "--cool-down 5s",
        "--scenario ../../scenarios/policies.toml",
        "--policy vllm-v1 --num-kv-blocks 4000",
    ] {
        said.push_str(&sim(&format!("--sketch --max-num-seqs 8 {more}")));
    }
    insta::assert_snapshot!(said);
}

/// A hundred prompts of 500 tokens, one after the other, of which 400 are a system prompt: 99 find
/// them, 39600 of 50000 tokens, and TTFT is 10 + 100 ms instead of 510. In the tree are the 400, and
/// of each request 100 and the answer but for its last token: 400 + 100 · 109.
#[test]
fn sglang_finds_shared_prefixes_unless_told_otherwise() {
    let common = "--max-num-seqs 8 --chunk 1000 --input-tokens 100 --output-tokens 10 \
                  --system-prompts 400 --requests 100 --rate 1/s --arrivals deterministic \
                  --step-time base=10ms,prefill=1ms/token";
    let sglang = format!("{common} --policy sglang --kv-blocks 20000 --block-size 1");
    let text = sim(&sglang);
    let row = "prefix hit rate 79.2 % of 50000 tokens; 0 blocks evicted, 11300 cached at the end";
    assert!(text.contains(row), "{text}");
    let ttft = |answer: &Value| answer["runs"][0]["latency"]["ttft"]["p50_s"].as_f64().unwrap();
    let answer = json(&sglang);
    assert!((ttft(&answer) - 0.11).abs() < 1e-12);
    let cache = &answer["runs"][0]["kv_cache"];
    assert_eq!(cache["hit_tokens"], 39600);
    assert_eq!(cache["cached_blocks"], 11300);
    assert!(cache["refilled_blocks"].is_null() && cache["refill_rate"].is_null());
    let off = json(&format!("{sglang} --disable-radix-cache"));
    assert!((ttft(&off) - 0.51).abs() < 1e-12);
    assert_eq!(off["runs"][0]["kv_cache"]["lookups"], 0);
    let both = json(&format!("{sglang} --enable-prefix-caching=true,false"));
    let runs = both["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["kv_cache"], *cache);
    assert_eq!(runs[1]["kv_cache"], off["runs"][0]["kv_cache"]);
    // Pages of 64 find 6 of the 6.25 of them.
    let paged = sim(&format!("{common} --policy sglang --kv-blocks 400 --block-size 64"));
    assert!(paged.contains("prefix hit rate 76.0 % of 50000 tokens"), "{paged}");
    let mut said = String::new();
    for more in [
        "--policy sglang --disable-radix-cache",
        "--policy sarathi --kv-blocks 20000 --disable-radix-cache",
        "--policy sarathi --kv-blocks 20000 --enable-prefix-caching=false",
        "--policy sglang --kv-blocks 20000 --enable-prefix-caching=maybe",
    ] {
        said.push_str(&sim(&format!("{common} {more}")));
    }
    insta::assert_snapshot!(said, @"
    goodput: --disable-radix-cache: is for sglang, and says nothing without --kv-blocks
    exit 2
    goodput: --disable-radix-cache: is for sglang, and says nothing without --kv-blocks
    exit 2
    goodput: --enable-prefix-caching: is for vllm-v1, and for sglang with --kv-blocks: no other policy keeps prefixes
    exit 2
    goodput: --enable-prefix-caching: enable_prefix_caching: found `maybe`, expected true or false
    exit 2
    ");
}

/// Where one request after the other is served in 20 ms and a hundred come at once, a bucket of
/// three lets in three, a rule of two that wait three (one runs), and the others are refused; the
/// books are whole, and the setting says why.
#[test]
fn a_token_bucket_and_an_admission_rule_refuse_by_their_numbers() {
    let common = "--max-num-seqs 1 --chunk 1000 --input-tokens 100 --output-tokens 1 --requests 100 \
                  --rate 1000000/s --arrivals deterministic --step-time base=10ms";
    for (option, setting, completed, why) in [
        ("--token-bucket 1/min,burst=3", "token_bucket=0.0166667/s,burst=3", 3, "no permit"),
        (
            "--admission-rule queue=2,kv=1,slo=10s,window=1s",
            "admission_rule=queue=2,kv=1,slo=10s,window=1s",
            3,
            "the queue is at its limit",
        ),
    ] {
        let text = sim(&format!("{common} {option}"));
        assert!(text.contains(setting), "{text}");
        let books = format!(
            "100 injected = {completed} completed + 0 running + 0 queued + {} rejected",
            100 - completed
        );
        assert!(text.contains(&books) && text.contains(why), "{text}");
    }
    for (option, says) in [
        ("--token-bucket 0/s", "a rate above 0"),
        ("--token-bucket 10/s,burst=0", "burst must be at least 1, got 0"),
        (
            "--admission-rule queue=2,kv=90,slo=1s,window=1s",
            "kv must be a share from 0 to 1, got 90",
        ),
        ("--admission-rule queue=2", "expected all four of queue, kv, slo and window"),
        (
            "--token-bucket 1e308/s,burst=1",
            "a rate from 3.2e-10/s, one in a hundred years, to 1e18/s",
        ),
        ("--token-bucket 1e-300/s,burst=1", "a rate from 3.2e-10/s, one in a hundred years"),
        ("--token-bucket 5,burst=1", "a rate with its unit, such as 10/s or 600/min"),
        ("--token-bucket -5/s,burst=1", "a rate above 0"),
        ("--token-bucket 1/s,burst=18446744073709551615", "a whole number up to 2^53 for `burst`"),
    ] {
        let text = sim(option);
        assert!(text.contains(says) && text.ends_with("exit 2\n"), "{option}: {text}");
    }
}

/// Every setting that a flag can give can stand in a scenario, and is the same there.
#[test]
fn a_scenario_says_what_flags_say() {
    let dir = tempfile::tempdir().unwrap();
    for (keys, flags) in [
        (
            "policy = \"sarathi\"\nkv_blocks = 300\npreemption = \"swap\"\nswap_time = \"1us/token\"",
            "--policy sarathi --kv-blocks 300 --preemption swap --swap-time 1us/token",
        ),
        ("token_bucket = \"5/s,burst=2\"", "--token-bucket 5/s,burst=2"),
        (
            "admission_rule = \"queue=2,kv=0.9,slo=500ms,window=5s\"",
            "--admission-rule queue=2,kv=0.9,slo=500ms,window=5s",
        ),
        ("max_waiting = 1\nmax_waiting_tokens = 900", "--max-waiting 1 --max-waiting-tokens 900"),
        ("timeout = \"1500ms\"\nuntil = \"8s\"", "--timeout 1500ms --until 8s"),
        ("warm_up = \"3s\"\ncool_down = \"9\"", "--warmup 3s --cooldown 9"),
        ("replicas = 2\nrouter = \"round-robin\"", "--replicas 2 --router round-robin"),
        ("users = 20\nthink = \"exponential:mean=1s\"", "--users 20 --think exponential:mean=1s"),
    ] {
        let common = "--max-num-seqs 4 --chunk 256 --requests 80 --rate 9/s --step-time base=10ms";
        let common = if flags.contains("--users") {
            common.replace(" --rate 9/s", "")
        } else {
            common.to_owned()
        };
        let scenario = format!(
            "schema_version = 1\nname = \"chat\"\n[title]\nen = \"Chat on one GPU\"\nzh = \"聊天\"\n\
             [about]\nen = \"\"\nzh = \"\"\n[workload.generate]\nrequests = 80\nrate_per_s = 9\n\
             seed = 1\ninput_tokens = \"lognormal:median=600,sigma=1.1,min=4,max=16384\"\n\
             output_tokens = \"lognormal:median=160,sigma=0.8,min=1,max=4096\"\n[settings]\n\
             max_num_seqs = 4\nchunk = 256\nstep_time = \"base=10ms\"\n{keys}\n"
        );
        std::fs::write(dir.path().join("s.toml"), scenario).unwrap();
        let by_keys = sim_in(dir.path(), "--scenario s.toml --format json");
        let by_flags = sim_in(dir.path(), &format!("{common} {flags} --format json"));
        let run = |text: &str| -> Value {
            let answer: Value =
                serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let mut run = answer["runs"][0].clone();
            // The built-in scenario has a name for its setting, and objectives.
            for key in ["variant", "slo", "goodput", "findings", "verdict"] {
                run.as_object_mut().unwrap().remove(key);
            }
            if let Some(measured) = run.get_mut("measured") {
                measured["good_within"] = Value::Null;
            }
            run
        };
        assert_eq!(run(&by_keys), run(&by_flags), "{flags}");
    }
}

/// Whatever stands in the list of policies can be asked for, and the help says what it takes.
#[test]
fn every_policy_of_the_list_is_in_the_help_and_runs() {
    let help = sim("--help");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&POLICIES_LIST.join(", ")), "{help}");
    for rule in RULES {
        if let Some(chunk) = rule.chunk {
            assert!(help.contains(&format!("{} for {}", chunk.en, rule.name)), "{}", rule.name);
        }
        let common = "--max-num-seqs 4 --requests 20";
        let run = json(&format!("{common} --policy {}", rule.name))["runs"][0].clone();
        assert_eq!(run["policy"], rule.name);
        assert_eq!(run["chunk_tokens"].is_u64(), rule.chunk.is_some(), "{}", rule.name);
    }
    let unknown = sim("--policy fair");
    assert!(unknown.contains(&POLICIES_LIST.join(", ")), "{unknown}");
}

/// A gateway in front of vLLM refuses as the other policies do, in one sweep with them: of a hundred
/// requests that come at once, one slot and two places in the queue leave three.
#[test]
fn a_gateway_stands_in_front_of_vllm_too() {
    let common = "--max-num-seqs 1 --input-tokens 100 --output-tokens 1 --requests 100 \
                  --rate 1000000/s --arrivals deterministic --step-time base=10ms \
                  --num-kv-blocks 4000 --max-model-len 1000";
    let answer = json(&format!("{common} --policy decode-first,vllm-v1 --max-waiting 2"));
    let runs = answer["runs"].as_array().unwrap();
    for run in runs {
        assert_eq!(run["simulation"]["rejected_by_reason"]["queue_full"], 97);
        assert_eq!(run["server"]["max_waiting"], 2);
    }
    let text = sim(&format!("{common} --policy vllm-v1 --token-bucket 1/min,burst=3"));
    assert!(text.contains("refused at arrival by a gateway in front of vLLM: "), "{text}");
    assert!(text.contains("97 token bucket"), "{text}");
}

/// A gateway lets nobody in where as many wait as may, also with async scheduling, where the step that
/// comes next is filled while another runs: who is in it still waits.
#[test]
fn no_more_wait_than_may() {
    let dir = tempfile::tempdir().unwrap();
    for policy in [
        "vllm-v1 --async-scheduling=true",
        "vllm-v1 --async-scheduling=false",
        "sarathi --chunk 512",
    ] {
        let run = format!(
            "--policy {policy} --rate 40/s --requests 400 --max-num-seqs 16 --max-waiting 10 \
             --series s.jsonl --format json"
        );
        let answer: Value = serde_json::from_str(&sim_in(dir.path(), &run)).unwrap();
        let refused = &answer["runs"][0]["simulation"]["rejected_by_reason"]["queue_full"];
        assert!(refused.as_u64().is_some_and(|n| 0 < n), "{policy}");
        let text = std::fs::read_to_string(dir.path().join("s.jsonl")).unwrap();
        let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        let waiting = lines.filter_map(|l| l["waiting"].as_u64()).max();
        assert_eq!(waiting, Some(10), "{policy}");
    }
}

/// The series of a run add up to its totals, over all its servers: steps, time in the batch, who
/// waits, the most blocks; and the engine that executes every step writes the same bytes as the one
/// that skips.
#[test]
fn the_series_of_a_run_add_up_to_its_totals() {
    let dir = tempfile::tempdir().unwrap();
    for settings in [
        "--policy decode-first --chunk 256 --timeout 4s",
        "--policy prefill-first --kv-blocks 600 --max-waiting 30",
        "--policy vllm-v1 --num-kv-blocks 9000",
        "--policy sglang --chunk 256 --kv-blocks 6000 --block-size 1 --turns 3 --think 1s",
        "--policy vllm-v1 --num-kv-blocks 400 --turns 3 --think 1s --max-model-len 5000",
        "--policy sarathi --chunk 256 --kv-blocks 400 --replicas 3",
        "--policy orca --replicas 2 --router central-queue --timeout 3s",
        "--policy vllm-v1 --num-kv-blocks 700 --replicas 2 --router power-of-two \
         --max-model-len 5000",
        "--policy sarathi --chunk 256 --disagg prefill=2,decode=2 --kv-transfer 3us/token",
    ] {
        let common = format!("{settings} --max-num-seqs 12 --requests 150 --rate 12/s");
        let run = |more: &str| {
            let all = format!("{common} --series s.jsonl --format json {more}");
            let answer: Value = serde_json::from_str(&sim_in(dir.path(), &all)).unwrap();
            (
                answer["runs"][0].clone(),
                std::fs::read_to_string(dir.path().join("s.jsonl")).unwrap(),
            )
        };
        let (answer, text) = run("");
        assert_eq!(text, run("--reference").1, "{settings}");
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines[0]["kind"], "goodput-series");
        let of = |series: &str| -> Vec<&Value> {
            lines.iter().filter(|l| l["series"] == series).collect()
        };
        let (steps, waiting) = (of("steps"), of("waiting"));
        let number = |line: &Value, key: &str| line[key].as_f64().unwrap();
        let totals = &answer["simulation"];
        let sum = |f: &dyn Fn(&Value) -> f64| steps.iter().map(|s| f(s)).sum::<f64>();
        assert_eq!(sum(&|s| number(s, "steps")), number(totals, "steps"));
        let length = number(&answer, "window_s");
        let in_batch =
            sum(&|s| number(s, "running") * (number(s, "end_s") - number(s, "start_s"))) / length;
        let mean = number(totals, "in_service_mean");
        assert!((in_batch - mean).abs() < 1e-6 * mean, "{settings}: {in_batch} {mean}");
        let server = |l: &Value| (l["pool"].clone(), l["server"].clone());
        let follows =
            |w: &[&Value]| w[0]["end_s"] == w[1]["start_s"] || server(w[0]) != server(w[1]);
        assert!(steps.windows(2).all(follows), "{settings}");
        let held = steps.iter().map(|s| number(s, "kv_held_tokens_end")).fold(0.0, f64::max);
        assert_eq!(held, number(totals, "kv_held_tokens_max"));
        if let Some(most) = answer["kv_cache"]["utilization_max"].as_f64() {
            let ends = ["kv_used_blocks_start", "kv_used_blocks_end"];
            let used = steps.iter().flat_map(|s| ends.map(|key| s[key].as_f64().unwrap_or(0.0)));
            // Blocks are those of each server.
            let blocks = number(&answer["kv_cache"], "blocks");
            assert!((used.fold(0.0, f64::max) - most * blocks).abs() < 1e-6, "{settings}");
        }
        let cached = steps.iter().any(|s| s.get("kv_cached_blocks_end").is_some());
        let has_cache = settings.contains("vllm") || settings.contains("sglang");
        assert_eq!(cached, has_cache, "{settings}");
        // Everybody is gone in the end, and the mean is that of the totals, which count who is on
        // the way between two pools as waiting.
        assert_eq!(waiting.last().unwrap()["waiting"], 0, "{settings}");
        let area: f64 = waiting
            .windows(2)
            .filter(|w| server(w[0]) == server(w[1]))
            .map(|w| number(w[0], "waiting") * (number(w[1], "at_s") - number(w[0], "at_s")))
            .sum();
        let pools = &answer["disaggregation"];
        let moving = pools["kv_transfers"].as_f64().unwrap_or(0.0)
            * pools["kv_transfer_mean_s"].as_f64().unwrap_or(0.0);
        let mean = number(totals, "waiting_mean");
        let area = (area + moving) / length;
        assert!((area - mean).abs() < 1e-6 * (1.0 + mean), "{settings}: {area} {mean}");
        // Fewer lines than steps: what repeats is one.
        assert!((steps.len() as f64) < number(totals, "steps"));
    }
}

/// The slices of a request follow one another without a gap from its arrival to its end, whichever
/// servers it was on and however its KV moved.
#[test]
fn every_request_is_in_a_trace_once() {
    let dir = tempfile::tempdir().unwrap();
    for settings in [
        "--policy vllm-v1 --num-kv-blocks 400 --replicas 2 --max-model-len 5000",
        "--policy orca --replicas 2 --router central-queue --timeout 3s",
        "--policy sarathi --chunk 256 --kv-blocks 400 --disagg prefill=1,decode=2 \
         --kv-transfer 3us/token --router central-queue",
    ] {
        let all = format!(
            "{settings} --max-num-seqs 12 --requests 120 --rate 12/s --trace-out t.json \
             --requests-out r.jsonl"
        );
        sim_in(dir.path(), &all);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let trace: Value = serde_json::from_str(&read("t.json")).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let name = |pid: &Value| {
            let named = |e: &&Value| e["name"] == "process_name" && e["pid"] == *pid;
            events.iter().find(named).map(|e| e["args"]["name"].as_str().unwrap())
        };
        let mut slices: Vec<(u64, f64, f64)> = Vec::new();
        for e in events.iter().filter(|e| e["ph"] == "X") {
            let process = name(&e["pid"]).unwrap();
            if !process.ends_with("steps") {
                let number = |key: &str| e[key].as_f64().unwrap();
                slices.push((e["tid"].as_u64().unwrap(), number("ts"), number("dur")));
            }
        }
        slices.sort_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).unwrap());
        let mut requests = 0;
        for row in read("r.jsonl").lines().skip(1) {
            let row: Value = serde_json::from_str(row).unwrap();
            let id: u64 = row["id"].as_str().unwrap().parse().unwrap();
            let its: Vec<_> = slices.iter().filter(|s| s.0 + 1 == id).collect();
            let us = |key: &str| Some(row[key].as_str()?.parse::<f64>().unwrap() / 1e6);
            requests += usize::from(!its.is_empty() || row["outcome"] == "rejected");
            assert!(its.windows(2).all(|w| (w[0].1 + w[0].2 - w[1].1).abs() < 1e-3), "{row}");
            if let (Some(first), Some(last)) = (its.first(), its.last())
                && let (Some(arrival), Some(end)) = (us("arrival_ps"), us("last_token_ps"))
            {
                assert!((first.1 - arrival).abs() < 1e-3, "{settings}: {row} {its:?}");
                assert!((last.1 + last.2 - end).abs() < 1e-3, "{settings}: {row} {its:?}");
            }
        }
        assert_eq!(requests, 120, "{settings}");
    }
}

/// One request after the other is served in 2 s, a step for its prompt and one for its token, and
/// one arrives each second from 0 s to 9 s: request i ends at 2 · (i + 1) s.
const OVERLOAD: &str = "--max-num-seqs 1 --chunk 1000 --input-tokens 100 --output-tokens 1 \
                        --requests 10 --rate 1/s --arrivals deterministic --step-time base=1s";

/// From 4 s on and before 6 s requests 4 and 5 arrive, whose answers take 6 s and 7 s; request 2
/// ends at 6 s, the only one in these 2 s: 0.5 req/s, where 1 req/s arrives. Three are there for
/// the first second and four for the other. The books stay those of the ten.
#[test]
fn a_window_has_latencies_of_who_arrives_and_rates_of_who_ends() {
    let common = format!("{OVERLOAD} --slo e2e<4.5s");
    let text = sim(&format!("{common} --warm-up 4s --cool-down 4"));
    let of = |from: &str| part(&text, from).to_owned();
    let lines = |part: &str, labels: &[&str]| {
        let wanted = |l: &&str| labels.iter().any(|label| l.trim_start().starts_with(label));
        part.lines().filter(wanted).collect::<Vec<_>>().join("\n")
    };
    let shown = [
        lines(&of("  setting"), &["setting", "measured"]),
        lines(&of("Latency"), &["TTFT  ", "E2E  "]),
        lines(&of("Throughput"), &["requests", "output  ", "goodput", "attainment"]),
        lines(&of("Resources"), &["Resources", "in the system", "in flight"]),
        lines(&of("Diagnosis"), &["requests"]),
    ];
    insta::assert_snapshot!(shown.join("\n\n"));
    // The same window by the other unit at each end, and the figures of the run as before.
    let run = |cuts: &str| json(&format!("{common} {cuts}"))["runs"][0].clone();
    let (a, b) = (run("--warm-up 4s --cool-down 4"), run("--warmup 4 --cooldown 3s"));
    for key in ["measured", "window_s", "latency", "throughput", "goodput", "resources"] {
        assert_eq!(a[key], b[key], "{key}");
    }
    assert_eq!(a["simulation"], run("")["simulation"]);
    assert_eq!(a["measured"]["good_within"], 1);
}

/// Whoever asks for nothing to be left out gets the run as it is.
#[test]
fn a_warm_up_of_nothing_changes_nothing() {
    let without = |mut answer: Value| {
        let run = answer["runs"][0].as_object_mut().unwrap();
        assert_eq!(run.get("measured"), None);
        run.remove("warm_up");
        run.remove("cool_down");
        answer
    };
    let common = "--max-num-seqs 8 --chunk 512 --requests 200 --rate 8/s --explain-tail p90";
    let plain = without(json(common));
    for nothing in ["--warm-up 0 --cool-down 0", "--warm-up 0s --cool-down 0s", "--warm-up 0"] {
        assert_eq!(without(json(&format!("{common} {nothing}"))), plain, "{nothing}");
    }
}

/// Where time went, means over seeds and the comparison of policies leave the same requests out.
#[test]
fn all_answers_leave_a_warm_up_out() {
    let tail = json(&format!("{OVERLOAD} --warm-up 8 --explain-tail p0"));
    assert_eq!(tail["runs"][0]["tail"]["e2e"]["requests"], 2);
    let common = "--max-num-seqs 8 --chunk 512 --requests 200 --rate 8/s";
    let one = |seed: u64| {
        let run = json(&format!("{common} --seed {seed} --warm-up 50 --cool-down 20s"));
        run["runs"][0]["latency"]["e2e"]["p99_s"].as_f64().unwrap()
    };
    let seeds = json(&format!("{common} --seeds 2 --warm-up 50 --cool-down 20s"));
    let mean = seeds["runs"][0]["figures"]["e2e_p99_s"]["mean"].as_f64().unwrap();
    assert!((mean - (one(1) + one(2)) / 2.0).abs() < 1e-9 * mean, "{mean}");
    assert_eq!(seeds["runs"][0]["warm_up"], "50");
    let table = sim(&format!("{common} --policy decode-first,sarathi --warm-up 50"));
    assert!(table.contains("without a warm-up of 50 requests"), "{table}");
    assert!(table.contains("150 of 200"), "{table}");
}

#[test]
fn what_leaves_nothing_to_measure_is_refused() {
    let mut said = String::new();
    for cuts in [
        "--warm-up 10",
        "--cool-down 1k",
        "--warm-up 9001ms",
        "--cool-down 1h",
        "--warm-up 6 --cool-down 4",
        "--warm-up 5s --cool-down 5s",
        "--warm-up 5s --cool-down 4s",
        "--warm-up 5%",
        "--cool-down auto",
        "--warm-up auto",
    ] {
        said.push_str(&sim(&format!("{OVERLOAD} {cuts}")));
    }
    insta::assert_snapshot!(said);
}

/// Findings of a run by their ids, and its verdict.
fn found(arguments: &str) -> (Vec<String>, String) {
    let answer = json(arguments);
    let run = &answer["runs"][0];
    let ids = run["findings"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap());
    (ids.map(str::to_owned).collect(), run["verdict"]["text"].as_str().unwrap().to_owned())
}

/// With 300 waiting at 4 places, or with 80 on 64 replicas, no step has all of them: a preset is not
/// faster than its own machine.
#[test]
fn a_queue_and_a_fleet_are_no_batch() {
    let sarathi = "--policy sarathi --chunk 512 --max-num-seqs 4 --rate 60/s";
    for load in ["--requests 600", "--requests 3k --replicas 64"] {
        let (ids, verdict) = found(&format!("{sarathi} {load}"));
        assert!(!ids.contains(&"W25".to_owned()), "{load}: {ids:?}");
        assert!(verdict.starts_with("usable for"), "{load}: {verdict}");
    }
}

/// Of an open loop that nothing bounds, latencies depend on its length; refusals, time-outs and users
/// who wait bound the queue, and of those who time out only rates and shares are whole.
#[test]
fn an_overload_says_what_becomes_of_the_queue() {
    let at = |rest: &str| {
        let arguments =
            format!("--policy sarathi --chunk 512 --max-num-seqs 8 --requests 400 {rest}");
        let (ids, verdict) = found(&arguments);
        let text = sim(&arguments);
        let load = part(&text, "  load").lines().nth(2).unwrap_or_default().trim().to_owned();
        (ids.contains(&"W04".to_owned()), verdict, load)
    };
    let not_for = "not for TTFT, E2E and goodput (W04)";
    let (grows, verdict, load) = at("--rate 14/s --slo ttft<1s");
    assert!(grows && verdict.contains(not_for), "{verdict}");
    assert!(load.starts_with("OVERLOADED: not a steady state"), "{load}");
    // Permits for more than can be served do not bound the queue.
    assert!(at("--rate 14/s --token-bucket 8/s,burst=1").0);
    for (rest, bound) in [
        ("--rate 14/s --max-waiting 10", "refused of 400 requests"),
        ("--rate 14/s --timeout 5s", "timed out of 400 requests"),
        ("--rate 14/s --token-bucket 3/s,burst=1", "refused of 400 requests"),
        ("--users 32", "the 32 users"),
    ] {
        let (grows, verdict, load) = at(rest);
        assert!(!grows && !verdict.contains("W04"), "{rest}: {verdict}");
        assert!(load.contains(bound) && !load.contains("grows"), "{rest}: {load}");
    }
    let (_, verdict, _) = at("--rate 14/s --timeout 5s --slo ttft<1s");
    let whole = "usable for throughput and goodput, not for TTFT, TPOT and E2E (W28)";
    assert!(verdict.starts_with(whole), "{verdict}");
    // Below saturation nothing is said, though the rate may rise.
    assert!(!at("--rate 2/s").0);
}

/// Ties go to the first replica, which is as idle as the other: at one request a second none waits for
/// another. A prefix that sends every request to one replica makes it hot.
#[test]
fn an_idle_replica_is_not_hot() {
    let idle = "--policy sarathi --chunk 512 --max-num-seqs 64 --replicas 2 --requests 600 \
                --rate 1/s --output-tokens 20";
    assert!(json(idle)["runs"][0]["fleet"]["most_over_mean_requests"].as_f64().unwrap() > 1.5);
    assert!(!found(idle).0.contains(&"W32".to_owned()));
    let text = sim(idle);
    let names = text.lines().filter(|l| l.contains(" requests, busy ")).map(str::trim_start);
    assert_eq!(names.map(|l| l.get(..2).unwrap()).collect::<Vec<_>>(), ["0:", "1:"]);
    let hot = sim("--policy sglang --kv-blocks 20000 --max-num-seqs 64 --chunk 2048 --rate 4/s \
                   --requests 300 --replicas 2 --router prefix-affinity \
                   --system-prompts tokens=4000,count=1 --input-tokens uniform:4100,4300");
    let says =
        "W32 warn  the fullest of 2 replicas has 300 of 300 requests, 2 times the mean, and ";
    assert!(hot.contains(says), "{hot}");
}

/// All that is measured has ended when the run is cut: nothing that comes after could change it.
#[test]
fn a_cut_after_the_measured_window_leaves_it_whole() {
    let run =
        "--policy sarathi --chunk 512 --max-num-seqs 64 --rate 8/s --requests 800 --until 50s";
    let whole = json(&format!("{run} --warm-up 10s --cool-down 20s"));
    let of = |answer: &Value| {
        let run = &answer["runs"][0];
        (run["truncated"].clone(), run["measured"]["truncated"].clone())
    };
    assert_eq!(of(&whole), (true.into(), false.into()));
    let uncut = "--policy sarathi --chunk 512 --max-num-seqs 64 --rate 8/s --requests 800";
    // The same window of the run that goes on: those who arrive from 10 s on and before 29.9 s.
    let until = whole["runs"][0]["measured"]["end_s"].as_f64().unwrap();
    let rate = whole["runs"][0]["throughput"]["request_throughput_per_s"].as_f64().unwrap();
    let window = until - 10.0;
    let completed = whole["runs"][0]["measured"]["completed_within"].as_f64().unwrap();
    assert!((rate - completed / window).abs() < 1e-9);
    let after = json(&format!("{uncut} --warm-up 10s --cool-down 10s"));
    let p50 = |a: &Value| a["runs"][0]["latency"]["ttft"]["n"].as_u64().unwrap();
    assert!(p50(&whole) < p50(&after));
    let cut = json(&format!("{run} --warm-up 10s"));
    assert_eq!(of(&cut), (true.into(), true.into()));
    assert!(cut["runs"][0]["throughput"]["request_throughput_per_s"].is_null());
}

/// A table says what no row of it shows: who is refused, for whom a remark holds, and what the first of
/// several findings is. In Markdown a line without a label belongs to the one above it.
#[test]
fn a_table_names_what_it_speaks_of() {
    let run = "--max-num-seqs 4 --chunk 256 --requests 100 --policy sarathi,decode-first,orca \
               --max-waiting 2";
    let text = sim(run);
    let header = part(&text, "policy  ").lines().next().unwrap();
    assert!(header.contains("  ITL p99  ") && header.contains("  refused  "), "{header}");
    assert!(!header.contains("timed out"), "{header}");
    let answer = json(run);
    let rejected = |run: &Value| run["rejected_requests"].as_u64().unwrap().to_string();
    let rows: Vec<&str> = part(&text, "policy  ").lines().skip(1).collect();
    for (row, run) in rows.iter().zip(answer["runs"].as_array().unwrap()) {
        assert!(row.split_whitespace().any(|cell| cell == rejected(run)), "{row}");
    }
    let bounded = "An overloaded run that refuses requests";
    assert!(text.contains(bounded) && !text.contains("latencies grow"), "{text}");
    assert!(text.contains("\nchunk-256, policy sarathi max_waiting=2"), "{text}");
    let w10 = text.lines().find(|l| l.starts_with("W10 in 3 of 3 runs: ")).unwrap();
    assert!(w10.contains("(the first: p90, p95, p99 from "), "{w10}");
    let markdown = sim(&format!("{run} --format md"));
    assert!(markdown.contains("\n  - 118 step times"), "{markdown}");
    assert!(!markdown.contains("\n- 118 step times"), "{markdown}");
    let full = "NOT as their rules say, but every run is overloaded: ";
    let azure = "--max-num-seqs 4 --requests 300 --rate 40/s --policy decode-first,prefill-first \
                 --chunk 512";
    let explained = &json(azure)["policies_explained"][0]["pairs"][0];
    assert_eq!(explained["all_runs_overloaded"], true);
    let says = explained["text"].as_str().unwrap();
    assert!(explained["as_the_rules_say"] == true || says.starts_with(full), "{says}");
}

/// A radix cache, the same without it, vLLM with as many blocks and vLLM behind a gateway: only what
/// differs in the policy alone is compared.
#[test]
fn what_differs_in_more_than_the_policy_is_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = r#"
schema_version = 1
name = "mix"
title = { en = "Mix", zh = "混" }
about = { en = "Mix.", zh = "混。" }

[workload.generate]
requests = 100
rate_per_s = 8.0
input_tokens = "uniform:100,2000"
output_tokens = "uniform:50,300"
seed = 1

[settings]
step_time = "llama-3.1-8b-h100-sxm"
warm_up = 20

[[variants]]
name = "cached"
policy = "sglang"
max_num_seqs = 32
chunk = 2048
kv_blocks = 3000

[[variants]]
name = "uncached"
policy = "sglang"
max_num_seqs = 32
chunk = 2048
kv_blocks = 3000
enable_prefix_caching = false

[[variants]]
name = "vllm"
policy = "vllm-v1"
engine = { num_kv_blocks = 3001, max_model_len = 4096, max_num_seqs = 32 }

[[variants]]
name = "more"
policy = "vllm-v1"
engine = { num_kv_blocks = 9000, max_model_len = 4096, max_num_seqs = 32 }

[[variants]]
name = "gateway"
policy = "vllm-v1"
max_waiting = 5
engine = { num_kv_blocks = 3001, max_model_len = 4096, max_num_seqs = 32 }
"#;
    std::fs::write(dir.path().join("mix.toml"), scenario).unwrap();
    let run = |rest: &str| sim_in(dir.path(), &format!("--scenario mix.toml {rest}"));
    let answer: Value = serde_json::from_str(&run("--format json")).unwrap();
    let groups = answer["policies_explained"].as_array().unwrap();
    let runs = |g: &Value| -> Vec<u64> {
        let policies = g["policies"].as_array().unwrap().iter();
        let runs = policies.flat_map(|p| p["runs"].as_array().unwrap());
        runs.map(|r| r["run"].as_u64().unwrap()).collect()
    };
    assert_eq!(groups.iter().map(runs).collect::<Vec<_>>(), [[0, 2]]);
    // `warm_up = 20` is a number of requests, as in `warm_up = "20"`.
    assert_eq!(answer["runs"][0]["measured"]["requests"], 80);
    let none = answer["runs"][0]["latency"]["itl"]["none_because"].as_str().unwrap();
    let text = run("");
    assert!(
        text.contains(
            "(batch limit, KV blocks, prefix cache, who is refused): uncached; more; gateway"
        ),
        "{text}"
    );
    assert!(none.contains("over all of it"), "{none}");
    let said = run("--requests-out r.jsonl");
    let which =
        "got 5 (cached; uncached; vllm; more; gateway): options with one value each replace";
    assert!(said.contains(which), "{said}");
}

/// vLLM's KV cache is limited by the memory, however that is said: beside policies without a limit it
/// stands where no request felt it.
#[test]
fn a_limit_that_is_felt_is_not_compared_with_none() {
    let of = |memory: &str| {
        let answer = json(&format!(
            "--policy prefill-first,sarathi,vllm-v1 --chunk 256 --max-num-seqs 32 --rate 20/s \
             --requests 200 --max-model-len 20000 {memory}"
        ));
        let blocks = answer["runs"][2]["kv_cache"]["blocks"].as_u64().unwrap();
        let groups = answer["policies_explained"].as_array().unwrap();
        (blocks, groups[0]["policies"].as_array().unwrap().len())
    };
    // Of 79.65 GiB a share of 0.92 less 14.96 GiB of weights are 29,858 blocks of 2 MiB, one of them
    // the null block; 32 requests of 760 tokens on average fill about 1,500 of them.
    assert_eq!(of(""), (29_857, 3));
    for memory in
        ["--gpu-memory-utilization 0.22", "--reserved-memory 55.5GiB", "--kv-memory 2.6GiB"]
    {
        let (blocks, compared) = of(memory);
        assert!((1_250..1_500).contains(&blocks), "{memory}: {blocks}");
        assert_eq!(compared, 2, "{memory}");
    }
    assert_eq!(of("--num-kv-blocks 1300"), (1_299, 2));
    assert_eq!(of("--num-kv-blocks 29858"), of(""));
}

/// What cannot be done is refused with what can.
#[test]
fn refusals_say_what_to_give() {
    for (arguments, says) in [
        ("--seeds 5,10", "takes one value, not a list"),
        ("--max-waiting-tokens many", "must be a whole number from 0 to 9007199254740992"),
        ("--admission-rule queue=2", "expected all four of queue, kv, slo and window"),
        ("--policy vllm-v1 --disable-radix-cache", "vllm-v1 has --enable-prefix-caching=false"),
        ("--max-num-seqs 8,16 --explain-tail p99", "needs a single setting in text, got 4: "),
        ("--max-num-seqs 8 --chunk 64 --explain-tail p99 --format csv", "is in text and JSON"),
        ("--max-num-seqs 8 --chunk 64 --explain-tail p99 --format md", "is in text and JSON"),
    ] {
        let said = sim(arguments);
        assert!(said.contains(says) && said.contains("exit "), "{arguments}: {said}");
    }
    let seeds = sim("--max-num-seqs 64 --chunk 256 --rate 14/s --seeds 2 --warm-up auto");
    assert!(seeds.contains(" left out at the start of a run, "), "{seeds}");
}

/// No rho has a reason, under every policy that has none.
#[test]
fn a_load_without_rho_says_why() {
    for (rest, says) in [
        ("", "no rho: how long a request keeps its place depends on the others\n"),
        ("--kv-blocks 3000", "depends on the others and on free KV blocks\n"),
    ] {
        let text = sim(&format!(
            "--policy sarathi --max-num-seqs 8 --chunk 512 --requests 100 --rate 2/s {rest}"
        ));
        assert!(text.contains(says) && !text.contains("rho -"), "{text}");
    }
    // Forty at once are no rate, and fill a batch of four all the same.
    let dir = tempfile::tempdir().unwrap();
    let trace = "arrival_s,input_tokens,output_tokens\n".to_owned() + &"0,500,50\n".repeat(40);
    std::fs::write(dir.path().join("burst.csv"), trace).unwrap();
    let map = "--map arrival_s=arrival_s,input_tokens=input_tokens,output_tokens=output_tokens";
    let burst = format!("--trace burst.csv {map} --policy sarathi --chunk 512 --max-num-seqs 4");
    let text = sim_in(dir.path(), &burst);
    let load =
        part(&text, "  load             no arrival rate, as all arrive at one instant; how ");
    assert!(load.ends_with("/s are completed while a queue is never empty"), "{load}");
    assert!(text.contains("W04 warn  40 requests were sent within 0 ms"), "{text}");
}

/// A name stands for that in which a variant differs from the others, and goes with it.
#[test]
fn a_variant_keeps_its_name_as_long_as_it_is_what_it_says() {
    let name = |flags: &str| {
        let answer = json(&format!("--requests 20 {flags}"));
        let runs = answer["runs"].as_array().unwrap();
        runs.iter().map(|r| r["variant"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let own = |names: &[&str]| names.iter().map(|n| Some((*n).to_owned())).collect::<Vec<_>>();
    assert_eq!(name("--chunk 100"), [None]);
    assert_eq!(name("--chunk 256"), own(&["chunk-256"]));
    assert_eq!(name("--max-num-seqs 8"), own(&["chunk-256", "chunk-2048"]));
    // Nobody asked for the variants of the built-in scenario.
    assert!(!sim("--requests 20 --chunk 100").contains("do not differ"));
    let seeds = sim("--requests 20 --seeds 2 --chunk 100");
    assert!(!seeds.contains("do not differ") && !seeds.contains("\nchunk-"), "{seeds}");
    assert!(!sim("--requests 20").contains("do not differ"));
}

/// A scenario of two variants with these keys in its settings.
fn two_variants(settings: &str, (a, b): (&str, &str)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let scenario = format!(
        "schema_version = 1\nname = \"two\"\n[title]\nen = \"Two\"\nzh = \"\"\n[about]\nen = \"\"\n\
         zh = \"\"\n[workload.generate]\nrequests = 20\nrate_per_s = 9\nseed = 1\n\
         input_tokens = \"100\"\noutput_tokens = \"20\"\n[settings]\nmax_num_seqs = 8\n\
         step_time = \"base=10ms\"\n{settings}\n[[variants]]\nname = \"a\"\n{a}\n[[variants]]\n\
         name = \"b\"\n{b}\n"
    );
    std::fs::write(dir.path().join("s.toml"), scenario).unwrap();
    dir
}

#[test]
fn equal_variants_of_a_scenario_are_said() {
    let dir = two_variants("chunk = 64", ("", ""));
    let text = sim_in(dir.path(), "--scenario s.toml");
    assert!(text.contains("variants a and b do not differ here under decode-first"), "{text}");
    // Variants that are made equal by a list of fleets are one run each, whatever their order.
    let dir = two_variants("chunk = 64", ("", "replicas = 3"));
    let text = sim_in(dir.path(), "--scenario s.toml --replicas 2,4 --format json");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["runs"].as_array().unwrap().len(), 2, "{text}");
}

/// What vLLM's options say is what stands beside the setting, and a limit for the other kind of
/// scheduler is not dropped without a word.
#[test]
fn a_scenarios_limit_is_shown_where_it_is_used() {
    let blocks = "engine = { num_kv_blocks = 500, max_model_len = 400 }";
    let dir = two_variants(&format!("policy = \"vllm-v1\"\n{blocks}"), ("", ""));
    for flags in ["", "--policy vllm-v1 --num-kv-blocks 400"] {
        let text = sim_in(dir.path(), &format!("--scenario s.toml {flags}"));
        assert!(text.contains("max_num_seqs 8, chunk -") && text.contains("max_num_seqs 8, max_"));
        assert!(!text.contains("max_num_seqs 256"), "{text}");
    }
    let dir = two_variants("chunk = 64", ("", ""));
    let vllm = "--scenario s.toml --policy vllm-v1 --num-kv-blocks 500 --max-model-len 400";
    let said = "max_num_seqs 8 of the scenario is for decode-first, not for vllm-v1";
    assert!(sim_in(dir.path(), vllm).contains(said));
    assert!(!sim_in(dir.path(), &format!("{vllm} --max-num-seqs 4")).contains(said));
}

/// What a run asks for and its requests leave without effect is said; what it cannot do is refused
/// with the bound.
#[test]
fn edges_of_a_run_are_said() {
    let one = "--requests 20 --chunk 256";
    let says = |flags: &str, says: &str| {
        let text = sim(&format!("{one} {flags}"));
        assert!(text.contains(says), "{flags}: {text}");
    };
    says("--users 30", "20 requests for 30 users: 10 of them never send one");
    says("--order priority", "order priority: all requests have the same, so it is fcfs");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.json");
    let trace = format!("--trace-out {} --trace-window", file.display());
    says(&format!("{trace} 100s..200s"), "begins after the run, which ends at ");
    says(&format!("{trace} -1s..1s"), "duration `-1s`: expected a time of at least 0");
    says(&format!("{trace} 0s..1e300s"), "expected at most 3153600000 s (a hundred years)");
    assert!(!file.exists());
    for (flags, bound) in [
        ("--jobs -1", "must be a whole number from 1 to 1024"),
        ("--jobs 5000", "must be a whole number from 1 to 1024"),
        ("--seeds -1", "must be a whole number from 2 to 10000"),
        ("--seed -1", "must be a whole number from 0 to 18446744073709551615"),
        ("--max-waiting -1", "must be a whole number from 0 to 9007199254740992"),
        ("--kv-bytes-per-token 0", "must be a whole number from 1 to 4294967296"),
        ("--kv-bytes-per-token 18446744073709551615", "from 1 to 4294967296"),
        ("--warm-up -1s", "up to 2^53 or a time, neither negative"),
        ("--cool-down -1", "up to 2^53 or a time, neither negative"),
        ("--max-num-seqs -1", "write a whole number up to 2^53"),
        ("--users -1", "write a whole number up to 2^53"),
        ("--rate-scale -1", "expected a factor above 0"),
        ("--timeout -1s", "expected a time of at least 0"),
        ("--slo ttft<1e400s", "`ttft<1e400s`: a duration is at most"),
        ("--until 0.1s --warm-up 10", "a warm-up of 10 requests leaves none of the run"),
        ("--output-tokens 4294967295", "the requests are too long for its step times"),
    ] {
        let text = sim(&format!("{one} {flags}"));
        assert!(text.contains(bound) && text.ends_with("exit 2\n"), "{flags}: {text}");
    }
    assert_eq!(
        sim(&format!("{one} --max-waiting 1k --jobs 1024")),
        sim(&format!("{one} --max-waiting 1000"))
    );
    // Ten requests at one instant.
    let text = "t,in,out\n".to_owned() + &"0,100,20\n".repeat(10);
    std::fs::write(dir.path().join("burst.csv"), text).unwrap();
    let map = "--trace burst.csv --map arrival_s=t,input_tokens=in,output_tokens=out --chunk 64";
    let text = sim_in(dir.path(), &format!("{map} --warm-up 4"));
    assert!(text.contains("6 of 10 requests: 5 to 10 in order of arrival;"), "{text}");
    let text = sim_in(dir.path(), &format!("{map} --slice 0..1000"));
    assert!(text.contains("slice 0..1000 ends with the 10 requests that there are"), "{text}");
}

/// Settings that differ in the rate, in servers or in time-outs share what a server can complete: each
/// has the load that it has alone, whoever is first.
#[test]
fn loads_of_a_sweep_are_those_of_single_runs() {
    let run = "--requests 300 --max-num-seqs 8 --chunk 256 --policy sarathi --kv-blocks 900";
    let load = |run: &Value| {
        let key = |k: &str| run["load"][k].clone();
        ["arrival_rate_per_s", "saturated_rate_per_s", "relative_to_saturation"].map(key)
    };
    let scales = ["1", "1/2", "3"];
    let all = json(&format!("{run} --rate-scale {} --replicas 1,2", scales.join(",")));
    let all = all["runs"].as_array().unwrap();
    assert_eq!(all.len(), 6);
    // A rate, then its fleets.
    let settings = scales.iter().flat_map(|scale| ["1", "2"].map(|n| (scale, n)));
    for (one, (scale, n)) in all.iter().zip(settings) {
        let alone = format!("{run} --rate-scale {scale} --replicas {n} --timeout 9s");
        let alone = load(&json(&alone)["runs"][0]);
        assert!(alone.iter().all(Value::is_number), "{alone:?}");
        assert_eq!(load(one), alone, "{scale} {n}");
    }
}

/// A run in which nobody got an answer is usable for nothing.
#[test]
fn a_run_without_answers_is_not_usable() {
    for (asks, says) in [
        (
            "--max-waiting 0",
            "none of 60 requests completed: 60 failed, 0 were cancelled or cut off",
        ),
        ("--timeout 0s", "none of 60 requests completed: 60 failed, 0 were cancelled or cut off"),
        ("--until 0.05s", "none of 2 requests completed: 0 failed, 2 were cancelled or cut off"),
    ] {
        let run = format!("--requests 60 --max-num-seqs 8 --chunk 100 {asks}");
        let text = sim(&run);
        assert!(text.contains(&format!("W37 error {says}")), "{text}");
        assert!(text.ends_with("verdict            not usable (W37)\n"), "{text}");
        assert_eq!(json(&run)["runs"][0]["verdict"]["answer"], "not_usable");
    }
}

/// What all rows of a table share stands above them, unless it is the default or has its own line.
#[test]
fn what_all_settings_share_stands_above_the_table() {
    let options = "--requests 30 --kv-blocks 2000 --timeout 5s --max-waiting 3 --order sjf \
                   --replicas 2 --router round-robin --until 4s --token-bucket 10/s,burst=2 \
                   --warm-up 3 --chunk 128 --max-num-seqs 8,16";
    let shared = "kv_blocks 2000, order sjf, max_waiting 3, token_bucket 10/s,burst=2, replicas 2, \
                  router round-robin, timeout 5s, until 4s\n";
    assert!(sim(options).contains(&format!("\n  settings         {shared}")), "{}", sim(options));
    let markdown = sim(&format!("{options} --format md"));
    assert!(markdown.contains(&format!("\n- settings         {shared}")), "{markdown}");
    let csv = sim(&format!("{options} --format csv"));
    let (header, rows) = csv.split_once('\n').unwrap();
    assert!(header.contains(",timeout,cancel,until,warm_up,cool_down,figure,"), "{header}");
    assert!(rows.lines().all(|row| row.contains(",5s,,4s,3,,")), "{rows}");
    // The batch and the chunk have columns, and what is the default needs no line.
    assert!(!sim("--requests 30 --max-num-seqs 8 --chunk 64,128").contains("  settings "));
    let users = sim("--requests 30 --users 5 --think 2s --chunk 64,128");
    assert!(users.contains("  settings         users 5, think constant:2s\n"), "{users}");
}

/// Variants that differ in when clients give up have a column for it, and names by it.
#[test]
fn settings_that_differ_in_their_time_out_are_told_apart() {
    let dir = two_variants("chunk = 64", ("", "timeout = \"150ms\""));
    let flags = "--scenario s.toml --max-num-seqs 1";
    let csv = sim_in(dir.path(), &format!("{flags} --format csv"));
    assert!(csv.contains("\na,") && csv.contains("\nb,") && csv.contains(",150ms,"), "{csv}");
    let text = sim_in(dir.path(), flags);
    let header = text.lines().find(|l| l.starts_with("variant ")).unwrap();
    assert!(header.contains("  timeout  "), "{text}");
}

/// Seed by seed the counts, the findings and the verdict of `--seeds` are those of single runs, and
/// every form says them.
#[test]
fn seeds_say_who_got_no_answer() {
    let common = "--requests 200 --max-num-seqs 8 --chunk 100 --rate 5/s --timeout 3s";
    let seeds = json(&format!("{common} --seeds 2"));
    let run = &seeds["runs"][0];
    assert_eq!(run["timeout_s"], 3.0);
    let mut timed_out = 0;
    for (i, of) in run["by_seed"].as_array().unwrap().iter().enumerate() {
        let single = json(&format!("{common} --seed {}", i + 1));
        let single = &single["runs"][0];
        for key in ["timed_out_requests", "findings", "verdict", "truncated"] {
            assert_eq!(of[key], single[key], "{key}");
        }
        assert_eq!(of["completed"], single["simulation"]["completed"]);
        timed_out += of["timed_out_requests"].as_u64().unwrap();
    }
    let mean = run["figures"]["timed_out_requests"]["mean"].as_f64().unwrap();
    assert!(timed_out > 0 && (2.0 * mean - timed_out as f64).abs() < 1e-9, "{mean} {timed_out}");
    assert_eq!(run["figures"]["rejected_requests"]["high"], 0.0);
    let text = sim(&format!("{common} --seeds 2"));
    let markdown = sim(&format!("{common} --seeds 2 --format md"));
    for says in [
        "max_num_seqs 8, chunk 100, timeout 3s\n",
        "llama-3.1-8b-h100-sxm\n",
        "ttft<=500ms, tpot<=15ms\n",
        "timed out",
        "\nOVERLOADED: decode-first in ",
        "\nW28 in 2 of 2 runs: requests were left at the end, or given up (the first: 22.0 % of ",
    ] {
        assert!(text.contains(says) && markdown.contains(says), "{says}: {text}{markdown}");
    }
    assert!(!text.contains("refused  "), "nobody is: {text}");
    let csv = sim(&format!("{common} --seeds 2 --format csv"));
    for row in
        [",timed_out_requests,mean,", ",W28,share_of_runs,1,,,2", ",truncated,share_of_runs,0,"]
    {
        assert!(csv.contains(row), "{row}: {csv}");
    }
}

/// Runs that are cut have no rates, and say so; where a refusal is, the first of each setting says it.
#[test]
fn seeds_say_that_their_runs_are_cut() {
    let common = "--requests 100 --until 4s --max-num-seqs 8,16 --chunk 128 --seeds 3 \
                  --token-bucket 10/s,burst=2";
    let text = sim(common);
    for says in [
        "  settings         token_bucket 10/s,burst=2, chunk 128, until 4s\n",
        "\nTruncated runs have no throughput and no goodput: 6 of 6.\n",
        "\nmax_num_seqs 16, 3 of 3 runs (the first, seed 1): refused at arrival: request `3`: the ",
        "  refused  left at the end  ",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let run = &json(common)["runs"][1];
    assert_eq!(run["until_s"], 4.0);
    assert!(run["figures"]["request_throughput_per_s"].is_null(), "there, and none");
    let of = &run["by_seed"][0];
    assert_eq!(of["truncated"], true);
    let count = |key: &str| of[key].as_u64().unwrap();
    let all = ["completed", "running", "queued", "rejected_requests", "timed_out_requests"];
    assert_eq!(count("injected"), all.iter().map(|key| count(key)).sum::<u64>());
    assert!(sim(&format!("{common} --format csv")).contains(",truncated,share_of_runs,1,,,3"));
}

/// Users ask when they have their answers: no rate is theirs, and none is taken for them.
#[test]
fn users_have_no_rate() {
    let lengths = "; input ";
    let rest = "--requests 40 --max-num-seqs 8 --chunk 64";
    let drawn = |answer: &Value| answer["drawn"].as_str().unwrap().to_owned();
    let closed = drawn(&json(&format!("--users 5 {rest}")));
    assert!(closed.starts_with(&format!("when users ask, at no rate{lengths}")), "{closed}");
    assert!(sim(&format!("--users 5,6 {rest}")).contains(&format!("  drawn            {closed}")));
    let open = drawn(&json(rest));
    assert!(open.contains("/s poisson; input ") && !open.contains("users"), "{open}");
    let dir = two_variants("policy = \"sarathi\"\nusers = 4\n", ("chunk = 64", "chunk = 128"));
    let run = |flags: &str| sim_in(dir.path(), &format!("--scenario s.toml {flags}"));
    for flags in ["", "--seeds 2"] {
        let text = run(flags);
        assert!(text.contains("  when users ask, at no rate; input"), "{text}");
    }
    for flag in ["--rate 3/s", "--arrivals deterministic", "--rate-scale 2"] {
        let text = run(flag);
        let name = flag.split(' ').next().unwrap();
        assert!(text.contains(&format!("{name}: is for an open loop")), "{text}");
    }
}

/// Who is timed out or refused meets no limit: of seven requests one is good under a batch of 1, since
/// the first takes longer than all are willing to wait, and the row says so.
#[test]
fn a_row_that_loses_requests_does_not_look_perfect() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "0,100,11\n.001,100,11\n.002,100,11\n.003,100,11\n.004,100,11\n.2,100,30\n\
                .201,50,2\n";
    std::fs::write(dir.path().join("c.csv"), format!("t,in,out\n{rows}")).unwrap();
    let run = |rest: &str| {
        sim_in(
            dir.path(),
            &format!(
                "--trace c.csv --map arrival_s=t,input_tokens=in,output_tokens=out --policy sarathi \
                 --chunk 1000 --step-time base=10ms,prefill=100us/token,decode=1ms/request \
                 --max-num-seqs 1,2 --timeout 200ms --slo ttft<300ms {rest}"
            ),
        )
    };
    let answer: Value = serde_json::from_str(&run("--format json")).unwrap();
    let text = run("");
    let table = part(&text, "max_num_seqs  ");
    assert!(table.contains("  attainment  ") && !table.contains("ratio"), "{table}");
    for (row, of) in table.lines().skip(1).zip(answer["runs"].as_array().unwrap()) {
        let good = &of["goodput"];
        let share = good["good"].as_f64().unwrap() / 7.0;
        assert!(row.contains(&format!("  {:.1} %  ", 100.0 * share)), "{row} {good}");
    }
    assert_eq!(answer["runs"][0]["goodput"]["good"], 1);
}

/// A viewer holds the last value of a counter: who idles says 0, and a window begins with the batch
/// that runs at its start. Each of two servers takes 20 ms for a prompt and two steps of 11 ms.
#[test]
fn the_batch_of_a_trace_has_a_start_and_an_end() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("g.csv"), "t,in,out\n0,100,3\n1,100,3\n").unwrap();
    let counts = |rest: &str| {
        let said = sim_in(
            dir.path(),
            &format!(
                "--trace g.csv --map arrival_s=t,input_tokens=in,output_tokens=out --policy sarathi \
                 --chunk 1000 --max-num-seqs 1 --replicas 2 --router round-robin --trace-out g.json \
                 --step-time base=10ms,prefill=100us/token,decode=1ms/request {rest}"
            ),
        );
        let text = std::fs::read_to_string(dir.path().join("g.json")).expect(&said);
        let trace: Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "C");
        let one = |e: &Value| {
            let number = |value: &Value| value.as_f64().unwrap();
            let (at, args) = (number(&e["ts"]) / 1e3, &e["args"]);
            (e["pid"].as_u64().unwrap(), at, number(&args["prefill"]), number(&args["decode"]))
        };
        events.map(one).collect::<Vec<_>>()
    };
    let of_second = [(3, 0.0, 0.0, 0.0), (3, 1000.0, 1.0, 0.0)];
    let first = [(1, 0.0, 1.0, 0.0), (1, 20.0, 0.0, 1.0), (1, 42.0, 0.0, 0.0)];
    let second = [of_second[0], of_second[1], (3, 1020.0, 0.0, 1.0), (3, 1042.0, 0.0, 0.0)];
    assert_eq!(counts(""), [&first[..], &second[..]].concat());
    let first = [(1, 25.0, 0.0, 1.0), (1, 42.0, 0.0, 0.0)];
    let second = [(3, 25.0, 0.0, 0.0), (3, 1000.0, 1.0, 0.0)];
    assert_eq!(counts("--trace-window 25ms..1010ms"), [&first[..], &second[..]].concat());
}

/// Limits in vLLM's words end at the next option, wherever they stand.
#[test]
fn limits_end_at_the_next_option() {
    let rest = "--rate 14/s --requests 50 --max-num-seqs 8 --chunk 64 --format csv";
    let before = sim(&format!("--goodput ttft:500 tpot:15 {rest}"));
    assert!(before.contains(",goodput_ratio,"), "{before}");
    assert_eq!(before, sim(&format!("{rest} --goodput ttft:500 tpot:15")));
    let refused = sim("--goodput ttft:500 --rate -1/s");
    assert!(refused.contains("--rate: ") && refused.ends_with("exit 2\n"), "{refused}");
}

/// In Markdown a line right below a table would be one of its rows.
#[test]
fn tables_of_markdown_end_before_the_next_line() {
    for arguments in [
        "--requests 50 --chunk 64,128 --seeds 2",
        "--requests 50 --chunk 64,128 --timeout 2s --max-waiting 3",
        "--policy decode-first,sarathi --requests 50 --chunk 64,128 --until 2s --slo p99(ttft)<1s",
    ] {
        let text = sim(&format!("{arguments} --format md"));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().any(|l| l.starts_with("| ")), "{text}");
        for pair in lines.windows(2).filter(|pair| pair[0].starts_with('|')) {
            assert!(pair[1].starts_with('|') || pair[1].is_empty(), "{}: {text}", pair[1]);
        }
    }
}

/// The figures of a single run in CSV by name.
fn rows(arguments: &str) -> std::collections::BTreeMap<String, String> {
    let text = sim(&format!("{arguments} --format csv"));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let place = |name| header.iter().position(|column| column == name).unwrap();
    let (figure, value) = (place("figure"), place("value"));
    let rows = reader.records().map(|row| row.unwrap());
    rows.map(|row| (row[figure].to_owned(), row[value].to_owned())).collect()
}

/// What a run is in JSON it is under `--seeds`: the same names and types, and the same figures under
/// the names that they have in CSV, of which the means can be taken again.
#[test]
fn figures_of_seeds_are_those_of_single_runs() {
    let common = "--requests 120 --max-num-seqs 8 --chunk 100 --rate 5/s --timeout 6s --warm-up 1s \
                  --kv-blocks 900 --policy sglang --system-prompts tokens=64,count=2 \
                  --slo ttft<500ms,tpot<15ms";
    let seeds = json(&format!("{common} --seeds 2"));
    let run = &seeds["runs"][0];
    let mut sums = std::collections::BTreeMap::new();
    for (seed, of) in run["by_seed"].as_array().unwrap().iter().enumerate() {
        let single = format!("{common} --seed {}", seed + 1);
        let csv = rows(&single);
        for (key, value) in of["figures"].as_object().unwrap() {
            if let Some(x) = value.as_f64() {
                *sums.entry(key.clone()).or_insert(0.0) += x;
            }
            if key == "unfinished_requests" {
                continue;
            }
            let text = value.as_f64().map(|x| x.to_string()).unwrap_or_default();
            let row = csv.get(key).map_or("", String::as_str);
            assert_eq!(row, text, "{key}");
        }
        let single = json(&single);
        for key in [
            "variant",
            "policy",
            "max_num_seqs",
            "chunk_tokens",
            "server",
            "rate_scale",
            "timeout_s",
            "warm_up",
            "step_time",
            "slo",
        ] {
            assert_eq!(run[key], single["runs"][0][key], "{key}");
            assert!(key == "variant" || !run[key].is_null(), "{key}");
        }
    }
    let figures = run["figures"].as_object().unwrap();
    assert!(figures.len() > 40 && figures["ttft_mean_s"].is_object(), "{figures:?}");
    for (key, figure) in figures.iter().filter(|(_, figure)| figure.is_object()) {
        let (mean, sum) = (figure["mean"].as_f64().unwrap(), sums[key]);
        assert!((mean - sum / 2.0).abs() <= 1e-12 * sum.abs(), "{key}: {mean} {sum}");
    }
    assert_eq!(run["replicas"], 1);
    assert_eq!(run["max_num_seqs"], 8);
}

/// A target over seeds: by hand the mean of what each seed observed, and how many of them meet it.
#[test]
fn seeds_judge_targets() {
    let common = "--rate 14/s --requests 200 --chunk 256 --max-num-seqs 64 \
                  --slo p99(ttft)<600ms,tpot<15ms@90%";
    let seeds = json(&format!("{common} --seeds 4"));
    let run = &seeds["runs"][0];
    let targets = run["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 2);
    let by_seed = run["by_seed"].as_array().unwrap();
    let mut csv_rows = Vec::new();
    for (i, target) in targets.iter().enumerate() {
        let observed: Vec<f64> =
            by_seed.iter().map(|s| s["targets"][i]["observed"].as_f64().unwrap()).collect();
        let good = |x: &f64| if i == 0 { *x <= 0.6 } else { 0.9 <= *x };
        let met = observed.iter().filter(|x| good(x)).count();
        assert_eq!(target["met_by_seeds"], met, "{observed:?}");
        let said = by_seed.iter().filter(|s| s["targets"][i]["met"] == true).count();
        assert_eq!(said, met);
        let mean = observed.iter().sum::<f64>() / 4.0;
        assert!((target["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
        csv_rows.push(format!(
            ",target {},share_of_runs,{},,,4",
            target["target"].as_str().unwrap(),
            met as f64 / 4.0
        ));
        // A single run says the same of its own.
        let single = json(&format!("{common} --seed 3"));
        let single = &single["runs"][0]["goodput"]["targets"][i];
        assert_eq!(single["observed"], observed[2]);
        let rows = rows(&format!("{common} --seed 3"));
        let row = &rows[&format!("target {}", single["target"].as_str().unwrap())];
        assert_eq!(row.parse::<f64>().unwrap(), observed[2]);
        let holds = &rows[&format!("target_holds {}", single["target"].as_str().unwrap())];
        let answer = match single["answer"].as_str().unwrap() {
            "holds" => "1",
            "missed" => "0",
            _ => "",
        };
        assert_eq!(holds, answer);
    }
    let csv = sim(&format!("{common} --seeds 4 --format csv")).replace('"', "");
    for row in csv_rows {
        assert!(csv.contains(&row), "{row}: {csv}");
    }
    let text = sim(&format!("{common} --seeds 4"));
    insta::assert_snapshot!(part(&text, "setting              target"));
    let markdown = sim(&format!("{common} --seeds 4 --format md"));
    assert!(
        markdown.contains("| setting | target | observed | in the mean | seeds that meet it |")
    );
}

/// The books of a run close in CSV too, and it says what the text says of it.
#[test]
fn the_csv_of_a_run_has_its_books_and_its_verdict() {
    for rest in ["", "--kv-blocks 400 --until 5s", "--users 30"] {
        let loss = if rest.contains("users") { "" } else { "--timeout 3s --max-waiting 5" };
        let run = format!(
            "--policy sarathi --requests 150 --max-num-seqs 8 --chunk 100 --input-tokens 300 {loss} \
             {rest}"
        );
        let rows = rows(&run);
        let n = |key: &str| rows[key].parse::<f64>().unwrap();
        let all = ["completed", "running", "queued", "rejected_requests", "timed_out_requests"];
        let sum: f64 = all.iter().map(|key| n(key)).sum();
        assert_eq!(n("injected"), sum + n("cancelled_requests"), "{rest}");
        let reasons: f64 = rows
            .keys()
            .filter(|k| k.starts_with("rejected_") && *k != "rejected_requests")
            .map(|k| n(k))
            .sum();
        assert_eq!(reasons, n("rejected_requests"), "{rest}");
        assert_eq!(n("truncated"), f64::from(u8::from(rest.contains("until"))), "{rest}");
        let answer = json(&run);
        let of = &answer["runs"][0];
        assert_eq!(rows["verdict"], of["verdict"]["text"].as_str().unwrap());
        for finding in of["findings"].as_array().unwrap() {
            let text = |key: &str| finding[key].as_str().unwrap();
            assert_eq!(rows[&format!("finding_{}_{}", text("id"), text("level"))], text("text"));
        }
        for key in ["waiting_mean", "in_system_mean", "busy_share", "kv_held_tokens_max"] {
            assert_eq!(n(key), of["simulation"][key].as_f64().unwrap(), "{key}");
        }
    }
}

/// A turn comes one think time after the turn before, whether that is answered or not: with answers
/// of 3 s in steps of 1 s and thinking of 1 s none is, and with 1,000 s all are.
#[test]
fn turns_that_quote_what_is_not_there_yet_are_told() {
    let of = |think: &str| {
        sim(&format!(
            "--turns 2 --think {think} --requests 20 --rate 1/min --arrivals deterministic \
             --input-tokens 10 --output-tokens 3 --step-time base=1s --policy orca --max-num-seqs 8"
        ))
    };
    let text = of("1s");
    assert!(
        text.contains(
            "10 of 10 requests that quote answers arrive before the last token of one of them (100"
        ),
        "{text}"
    );
    assert!(!of("30s").contains("quote answers"), "{text}");
    // The answer is there after 3 s: its last token and the next turn are of the same instant.
    assert!(!of("3s").contains("quote answers"), "{text}");
}

/// The KV of 100 tokens takes 200 ms at 2 ms a token, and ten requests a second come to one prefill
/// replica: twice what its link has.
#[test]
fn links_that_cannot_carry_the_kv_are_told() {
    let of = |rest: &str| {
        sim(&format!(
            "--requests 20 --rate 10/s --arrivals deterministic --input-tokens 100 --output-tokens 2 \
             --step-time base=10ms --max-num-seqs 8 --chunk 128 --policy sarathi {rest}"
        ))
    };
    // 20 times 200 ms, of 1.9 s between the arrivals and the last one's two steps and way.
    let share = format!("{:.1} % of the time of 1 prefill replica: ", 100.0 * 4.0 / 2.12);
    let text = of("--disagg prefill=1,decode=2 --kv-transfer 2ms/token");
    assert!(text.contains(&format!("KV moves for {share}")), "{share}: {text}");
    let sketch = of("--disagg prefill=1,decode=2 --kv-transfer 2ms/token --sketch");
    assert!(sketch.contains("KV moves for "), "{sketch}");
    let other = of("--disagg prefill=2,decode=1 --kv-transfer 2ms/token");
    assert!(other.contains("of the time of 1 decode replica: "), "{other}");
    for fits in [
        "prefill=1,decode=2 --kv-transfer 900us/token",
        "prefill=2,decode=2 --kv-transfer 1ms/token",
    ] {
        assert!(!of(&format!("--disagg {fits}")).contains("KV moves for"), "{fits}");
    }
}

/// Two prompts that 40 requests begin with are computed 40 times unless somebody keeps them.
#[test]
fn prefixes_that_nobody_keeps_are_told() {
    let common = "--requests 40 --rate 5/s --system-prompts tokens=100,count=2 --input-tokens 50 \
                  --output-tokens 4 --max-num-seqs 16";
    // 38 of 40 find their 100 of 150 tokens: 63.3 %.
    let says = "63.3 % of the prompt tokens are the beginning of an earlier request";
    let told = |rest: &str| sim(&format!("{common} {rest}")).contains(says);
    for rest in ["--policy decode-first", "--policy sglang", "--policy static"] {
        assert!(told(rest), "{rest}");
    }
    assert!(told("--policy sarathi --sketch") && told("--policy orca --seeds 2"));
    for rest in ["--policy vllm-v1", "--policy sglang --kv-blocks 900"] {
        assert!(!told(rest), "{rest}");
    }
    assert!(!told("--policy sglang --kv-blocks 900 --disable-radix-cache"), "it was asked for");
    let both = sim(&format!("{common} --policy sarathi,vllm-v1 --chunk 256"));
    assert!(both.contains(&format!("policy sarathi, chunk 256: {says}")), "{both}");
    // Its full blocks are 96 of the 100 tokens.
    let found = format!("  {:.1} %  ", 100.0 * 38.0 * 96.0 / (40.0 * 150.0));
    assert!(both.contains("  hit rate  ") && both.contains(&found), "{both}");
}

/// A finding of some rows of a table says which, and a row of vLLM has its own limit.
#[test]
fn what_some_rows_have_is_said_of_them() {
    let run = "--requests 200 --chunk 100 --rate 5/s --timeout 8s --policy decode-first";
    let text = sim(&format!("{run} --max-num-seqs 8,64"));
    let says = "W28 in 1 of 2 runs (max_num_seqs 8): requests were left at the end, or given up";
    assert!(text.contains(says), "{text}");
    let seeds = sim(&format!("{run} --max-num-seqs 8,64 --seeds 2"));
    assert!(seeds.contains("W28 in 1 of 4 runs (max_num_seqs 8 in 1 of 2): "), "{seeds}");
    let vllm = sim("--policy sarathi,vllm-v1 --requests 20");
    let row = vllm.lines().find(|l| l.trim_start().starts_with("vllm-v1 ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("1024"), "{vllm}");
    let csv = sim("--policy vllm-v1 --requests 20 --format csv");
    assert!(csv.contains("\n,vllm-v1,1024,-,"), "{csv}");
}

/// Seeds and settings run at the same time, which changes nothing.
#[test]
fn seeds_do_not_depend_on_the_jobs() {
    let of = |jobs| {
        sim(&format!(
            "--requests 60 --rate 9/s --seeds 5 --replicas 2 --router random --chunk 64,128 \
             --format json --jobs {jobs}"
        ))
    };
    assert!(of(1).contains("\"by_seed\""));
    assert_eq!(of(1), of(3));
}
