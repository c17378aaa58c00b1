//! Lists of any setting of `goodput sim`: every combination is a row, which is the run of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

mod common;

use std::path::Path;

use common::{json, run_in, sim, sim_in};
use serde_json::Value;

/// The runs of an answer without what says in which requests they differ.
fn runs(arguments: &str) -> Vec<Value> {
    let mut runs = json(arguments)["runs"].as_array().unwrap().clone();
    for run in &mut runs {
        run.as_object_mut().unwrap().remove("drawn");
    }
    runs
}

/// One slot, and a step of 10 ms each for the prompt and for both tokens: a request takes 30 ms, and
/// its first token comes after 20 ms of them.
const BY_HAND: &str = "--requests 5 --arrivals deterministic --input-tokens 10 --output-tokens 2 \
                       --max-num-seqs 1 --chunk 16 --step-time base=10ms --slo ttft<25ms";

/// At 25/s nobody waits, every first token comes after 20 ms, and the last of five requests ends
/// after 160 + 30 ms: 26.32/s. At 50/s each waits 10 ms longer than the one before, as it comes 20 ms
/// later and is served for 30 ms: TTFT is 20, 30, 40, 50 and 60 ms with the median 40 ms and p99 at
/// 50 + 0.96 * 10 ms. At 100/s each waits 20 ms longer: 20 to 100 ms, 60 ms and 99.2 ms. Both end
/// after 150 ms, 33.33/s, and the first alone meets 25 ms: 6.67/s.
#[test]
fn a_sweep_over_the_rate_can_be_checked_by_hand() {
    let text = sim(&format!("{BY_HAND} --rate 25/s,50/s,100/s"));
    insta::assert_snapshot!("rates", text);
    let markdown = sim(&format!("{BY_HAND} --rate 25/s,50/s,100/s --format md"));
    assert!(markdown.contains("| rate | max_num_seqs | chunk | TTFT p50 | "), "{markdown}");
}

/// The same as data: what a run is drawn from stands in each of them, and the seed once.
#[test]
fn a_sweep_has_what_is_drawn_in_files() {
    let answer = json(&format!("{BY_HAND} --rate 25/s,100/s"));
    let of = |run: &Value| {
        serde_json::json!({
            "drawn": run["drawn"],
            "ttft_p50_s": run["latency"]["ttft"]["p50_s"],
            "goodput": run["goodput"]["goodput_per_s"],
        })
    };
    let runs: Vec<Value> = answer["runs"].as_array().unwrap().iter().map(of).collect();
    let cut = serde_json::json!({ "seed": answer["seed"], "drawn": answer["drawn"], "runs": runs });
    insta::assert_snapshot!("rates_json", serde_json::to_string_pretty(&cut).unwrap());
    let csv = sim(&format!("{BY_HAND} --rate 25/s,100/s --format csv"));
    let kept = |line: &&str| {
        ["rate_per_s,", ",ttft_p50_s,", ",goodput_per_s,"].iter().any(|part| line.contains(part))
    };
    insta::assert_snapshot!("rates_csv", csv.lines().filter(kept).collect::<Vec<_>>().join("\n"));
    // One workload is said once, above all.
    let single = json(&format!("{BY_HAND} --rate 25/s"));
    assert!(single["runs"][0].get("drawn").is_none(), "{single}");
    assert!(!sim(&format!("{BY_HAND} --rate 25/s --format csv")).contains("rate_per_s,"));
}

/// Laws and step times have commas of their own, and are given several times. At 20 ms a step a
/// request takes 60 ms and comes every 40 ms, so that each waits 20 ms longer than the one before:
/// TTFT is 40, 60, 80, 100 and 120 ms, with p99 at 100 + 0.96 * 20 ms.
#[test]
fn what_has_commas_is_given_several_times() {
    let rows = |arguments: &str| {
        let text = sim(arguments);
        let table = text.split("\n\n").find(|part| part.contains("TTFT p50")).unwrap();
        table.to_owned()
    };
    let hand = BY_HAND.replace("--arrivals deterministic", "").replace("--requests 5", "");
    let laws = "--requests 200 --rate 25/s --arrivals deterministic --arrivals gamma:cv=4 \
                --arrivals on-off:on=1s,off=3s";
    insta::assert_snapshot!("arrivals", rows(&format!("{hand} {laws}")));
    let steps = "--rate 25/s --step-time base=20ms --step-time base=10ms,decode=1us/request";
    insta::assert_snapshot!("step_times", rows(&format!("{BY_HAND} {steps}")));
}

/// A value of a list that is none, lists where one value is wanted, and more than fits.
#[test]
fn what_is_wrong_with_a_list_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let name = dir.path().join(format!("{name}.txt"));
        std::fs::write(name, "100\n").unwrap();
    }
    let chunks: Vec<String> = (1..=1001).map(|n| n.to_string()).collect();
    let chunks = chunks.join(",");
    let mut text = String::new();
    for arguments in [
        "sim --rate 2/s,fast,8/s",
        "sim --rate 2/s,0/s",
        "sim --rate 2/s,,8/s",
        "sim --arrivals poisson,gamma:cv=4",
        "sim --input-tokens 512,1024",
        "sim --arrivals poisson --arrivals gamma:cv=-1",
        "sim --input-tokens 100 --input-tokens uniform:9,3",
        "sim --system-prompts tokens=10,count=2 --system-prompts tokens=0",
        "sim --requests 10,0",
        "sim --timeout 1s,2x",
        "sim --until 1s,soon",
        "sim --warm-up 10,1/s",
        "sim --swap-time 1us/token,2us",
        "sim --swap-time 1us/token,2us/token",
        "sim --max-waiting 1,-1",
        "sim --token-bucket 1/s,burst=1 --token-bucket 0/s,burst=1",
        "sim --step-time base=1ms --step-time base=-1ms",
        "sim --think 1s --think 2s",
        "sim --users 2 --rate 1/s,2/s",
        "sim --disagg prefill=1,decode=1 --kv-transfer 1us/token --kv-transfer-latency 1ms,2",
        "sim --rate 1/s,2/s --requests 40M",
        "sim --rate 1/s,2/s --requests-out r.jsonl --max-num-seqs 8 --chunk 64",
        "sim --sketch --warm-up 10,20",
        "trace generate --rate 1/s,2/s",
        "tune --input-tokens 100 --input-tokens 200 --slo ttft<1s",
    ] {
        let said = run_in(dir.path(), arguments.split(' '));
        assert!(said.contains("exit 2"), "{arguments}: {said}");
        let said: Vec<&str> = said.lines().take_while(|line| !line.is_empty()).collect();
        text.push_str(&format!("$ goodput {arguments}\n{}\n", said[0]));
    }
    for (name, arguments) in [
        ("1,001 chunks and batch limits", format!("--chunk {chunks} --max-num-seqs {chunks}")),
        ("1,001 rates and chunks", format!("--rate {chunks} --max-num-seqs 8 --chunk {chunks}")),
        ("1,001 chunks, 1,000 seeds", format!("--max-num-seqs 8 --chunk {chunks} --seeds 1000")),
        ("1,001 rates and lengths", {
            let lengths: String = (1..=1000).map(|n| format!(" --input-tokens {n}")).collect();
            format!("--rate {chunks}{lengths}")
        }),
    ] {
        let said = sim(&arguments);
        assert!(said.contains("exit 2"), "{name}: {said}");
        text.push_str(&format!("{name}\n{}\n", said.lines().next().unwrap()));
    }
    insta::assert_snapshot!("wrong_lists", text);
    // What differs has names that differ.
    let files =
        sim_in(dir.path(), "--input-tokens file:a.txt --input-tokens file:b.txt --requests 9");
    assert!(files.contains("\nfile:a.txt ") && files.contains("\nfile:b.txt "), "{files}");
}

/// Commands that draw one workload name one value, where `sim` names a list.
#[test]
fn help_says_who_takes_a_list() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (command, says) in [
        ("sim --help", "--rate <LIST>"),
        ("trace generate --help", "--rate <RATE>"),
        ("tune --help", "--requests <N>"),
    ] {
        let help = run_in(dir, command.split(' '));
        assert!(help.contains(says), "{command}: {help}");
    }
}

/// Each flag with the values of its list: a row is the run of its single setting, to the last byte.
#[test]
fn a_row_is_the_run_of_its_own() {
    let base = "--requests 120 --rate 20/s --max-num-seqs 8 --chunk 128";
    let short = "--max-num-seqs 8 --chunk 128";
    for (common, flag, values) in [
        (short, "--rate", "9/s 300/min 30/s"),
        ("--requests 99 --max-num-seqs 8 --chunk 64 --rate-scale 3/2", "--rate", "9/s 11/s"),
        (base, "--arrivals", "poisson gamma:cv=3 on-off:on=1s,off=2s,low=0.1"),
        (base, "--input-tokens", "100 uniform:10,900 lognormal:median=300,sigma=1"),
        (base, "--output-tokens", "20 geometric:mean=90"),
        (base, "--system-prompts", "tokens=64,count=3 tokens=200,count=1"),
        (
            "--rate 4/s --requests 90 --max-num-seqs 8 --think 2s",
            "--turns",
            "2 geometric:mean=3,max=9",
        ),
        ("--rate 4/s --requests 90 --max-num-seqs 8 --turns 3", "--think", "1s uniform:1s,5s"),
        ("--users 4 --requests 90 --max-num-seqs 2", "--think", "100ms exponential:mean=1s"),
        ("--rate 20/s --max-num-seqs 8", "--requests", "50 120"),
        (base, "--step-time", "base=9ms llama-3.1-8b-h100-sxm base=5ms,prefill=20us/token"),
        (base, "--timeout", "1s 5s"),
        (base, "--cancel", "10%,exponential:mean=1s 100%,2s 0.3,uniform:1s,3s"),
        (
            "--rate 4/s --requests 90 --max-num-seqs 8 --turns 3 --think 1s",
            "--think-after",
            "arrival answer",
        ),
        (
            "--users 4 --requests 90 --max-num-seqs 2 --turns uniform:1,4",
            "--think",
            "100ms exponential:mean=1s",
        ),
        ("--users 4 --requests 90 --max-num-seqs 2", "--timeout", "1s 3s"),
        (base, "--until", "2s 100s"),
        (base, "--warm-up", "20 1s"),
        (base, "--cool-down", "20 1s"),
        (base, "--max-waiting", "2 8"),
        (base, "--max-waiting-tokens", "2000 8k"),
        (base, "--token-bucket", "10/s,burst=5 15/s,burst=1"),
        (
            base,
            "--admission-rule",
            "queue=2,kv=0.9,slo=1s,window=5s queue=9,kv=0.9,slo=1s,window=5s",
        ),
        (
            "--requests 90 --rate 40/s --policy sarathi --kv-blocks 400 --preemption swap",
            "--swap-time",
            "1us/token 9us/token",
        ),
        (
            "--requests 90 --disagg prefill=1,decode=1 --kv-transfer 1us/token",
            "--kv-transfer-latency",
            "0s 20ms",
        ),
    ] {
        let lists: String = values.split(' ').map(|value| format!(" {flag} {value}")).collect();
        let rows = runs(&format!("{common}{lists}"));
        let singles: Vec<Value> =
            values.split(' ').flat_map(|value| runs(&format!("{common} {flag} {value}"))).collect();
        assert_eq!(rows.len(), singles.len(), "{flag}");
        for single in &singles {
            // Rows of other lists stand between those of one value.
            assert!(rows.contains(single), "{flag}: {single} is not in {rows:?}");
        }
        assert!(rows.iter().all(|row| singles.contains(row)), "{flag}");
    }
}

/// The same with seeds, with a sketch and under vllm-v1: what is counted differs by nothing.
#[test]
fn lists_work_with_seeds_and_sketches() {
    let common = "--requests 60 --max-num-seqs 8 --chunk 128";
    let alone = |run: &Value| {
        let mut run = run.clone();
        // What a row is compared with is another one where there are several.
        run.as_object_mut().unwrap().remove("difference_to_first");
        run
    };
    for (common, flag, values) in [
        (format!("{common} --seeds 3"), "--rate", "5/s 20/s"),
        (format!("{common} --seeds 3 --rate 9/s"), "--input-tokens", "100 uniform:1,900"),
        (format!("{common} --seeds 3 --users 5"), "--think", "1s 2s"),
        (format!("{common} --sketch"), "--rate", "5/s 20/s"),
        (format!("{common} --sketch --rate 9/s"), "--timeout", "1s 3s"),
        ("--policy vllm-v1 --requests 60".to_owned(), "--rate", "5/s 20/s"),
    ] {
        let lists: String = values.split(' ').map(|value| format!(" {flag} {value}")).collect();
        let rows: Vec<Value> = runs(&format!("{common}{lists}")).iter().map(alone).collect();
        let single = |value| runs(&format!("{common} {flag} {value}"));
        let singles: Vec<Value> = values.split(' ').flat_map(single).map(|r| alone(&r)).collect();
        assert_eq!(rows, singles, "{common} {flag}");
    }
    let csv = sim(&format!("{common} --seeds 3 --rate 5/s,20/s --format csv"));
    let first = csv.lines().next().unwrap();
    assert!(
        first.starts_with("system_prompts,turns,think_after,input_tokens,output_tokens,requests,"),
        "{csv}"
    );
    assert!(first.contains(",arrivals,rate_per_s,variant,policy,"), "{first}");
}

/// Other rates draw other requests, so that nothing claims the same; settings of one workload meet
/// the same requests as before.
#[test]
fn differences_by_seed_say_what_is_the_same() {
    let common = "--requests 60 --max-num-seqs 8 --seeds 3";
    let rates = sim(&format!("{common} --chunk 128 --rate 5/s,20/s"));
    assert!(
        rates.contains("\nDifference to rate 5/s by the same random streams, paired"),
        "{rates}"
    );
    assert!(rates.contains("\n  workload         60 requests, seeds 1 to 3\n"), "{rates}");
    assert!(rates.contains("\n  drawn            poisson arrivals; input lognormal:"), "{rates}");
    let chunks = sim(&format!("{common} --chunk 64,128 --rate 5/s"));
    assert!(chunks.contains("\nDifference to chunk 64 on the same requests, paired"), "{chunks}");
    let answer = json(&format!("--requests 60,90 --rate 5/s --chunk 64 {}", &common[14..]));
    assert!(answer["requests"].is_null(), "{answer}");
    assert_eq!(answer["runs"][1]["drawn"]["requests"], 90);
}

/// Policies are explained on the same requests alone, and the groups say on which.
#[test]
fn policies_are_compared_on_the_same_requests() {
    let settings = "--policy decode-first,prefill-first --max-num-seqs 16 --chunk 256 \
                    --requests 100 --rate 6/s,12/s";
    let answer = json(settings);
    let groups = answer["policies_explained"].as_array().unwrap();
    let of: Vec<&str> = groups.iter().map(|g| g["settings"].as_str().unwrap()).collect();
    assert_eq!(of, ["rate 6/s", "rate 12/s"]);
    for (group, rate) in groups.iter().zip([6.0, 12.0]) {
        let entries = group["policies"].as_array().unwrap().iter();
        for run in entries.flat_map(|p| p["runs"].as_array().unwrap()) {
            let place = usize::try_from(run["run"].as_u64().unwrap()).unwrap();
            assert_eq!(answer["runs"][place]["drawn"]["rate_per_s"], rate);
        }
    }
}

/// What runs on the same requests stands together; a value that is given twice is one row, and a
/// value that some settings do not follow is left out there.
#[test]
fn rows_stand_by_their_requests() {
    let of = |arguments: &str, keys: &[&str]| -> Vec<String> {
        let answer = json(arguments);
        let runs = answer["runs"].as_array().unwrap().iter();
        let text = |run: &Value, key: &str| match key {
            "rate" => run["drawn"]["rate_per_s"].to_string(),
            _ => run[key].to_string(),
        };
        runs.map(|run| keys.iter().map(|k| text(run, k)).collect::<Vec<_>>().join(" ")).collect()
    };
    let two = "--rate 1/s,2/s,60/min --requests 20 --max-num-seqs 4,8 --chunk 64 --timeout 1s,2s";
    assert_eq!(
        of(two, &["rate", "max_num_seqs", "timeout_s"]),
        [
            "1.0 4 1.0",
            "1.0 4 2.0",
            "1.0 8 1.0",
            "1.0 8 2.0",
            "2.0 4 1.0",
            "2.0 4 2.0",
            "2.0 8 1.0",
            "2.0 8 2.0",
        ]
    );
    let mixed = "--policy orca,sarathi --kv-blocks 500 --preemption recompute,swap \
                 --swap-time 1us/token,2us/token --requests 20 --max-num-seqs 4 --chunk 64";
    let rows = of(mixed, &["policy"]);
    assert_eq!(rows, ["\"orca\"", "\"sarathi\"", "\"sarathi\"", "\"sarathi\""]);
}

/// Rows run at the same time, and which of them first draws the requests changes nothing.
#[test]
fn a_sweep_does_not_depend_on_the_jobs() {
    let sweep = "--rate 4/s,8/s,16/s --arrivals poisson --arrivals gamma:cv=2 --requests 80 \
                 --replicas 2 --router random,least-requests --chunk 64,128 --timeout 5s,9s";
    for format in ["text", "json", "csv", "md"] {
        let of = |jobs| sim(&format!("{sweep} --format {format} --jobs {jobs}"));
        assert_eq!(of(1), of(2), "{format}");
        assert_eq!(of(1), of(7), "{format}");
    }
    let seeds = |jobs| sim(&format!("{sweep} --seeds 2 --jobs {jobs}"));
    assert_eq!(seeds(1), seeds(3));
}

/// A scenario's variants keep their names beside what is drawn.
#[test]
fn variants_keep_their_names_in_a_sweep() {
    let text = sim("--rate 4/s,8/s --requests 50 --timeout 3s,6s --seeds 2");
    for row in [
        "rate 4/s, chunk-256, chunk 256, timeout 3s ",
        "rate 8/s, chunk-2048, chunk 2048, timeout 6s ",
    ] {
        assert!(text.contains(&format!("\n{row}")), "{row}: {text}");
    }
}
