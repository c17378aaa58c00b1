//! Scenario files, presets, and what a simulated run looks like as a file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;
use std::path::Path;

use insta::assert_snapshot;
use sched_sim::vllm_v1::VllmV1Run;
use sched_sim::workload::{ArrivalLaw, LengthLaw, Lengths};
use sched_sim::{DecodeFirst, RunResult, Simulation, Ticks, Workload};
use serving_io::fitted::FittedStepTime;
use serving_io::policy::named;
use serving_io::preset;
use serving_io::scenario::{Scenario, StepTimeSource, Variant, WorkloadSource};
use serving_io::simulation;
use serving_io::timeline::Header;
use serving_io::trace::{TraceOptions, read_trace};
use serving_io::{Options, read};

fn scenario(name: &str) -> Scenario {
    let path = format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let scenario = Scenario::read_path(Path::new(&path)).unwrap();
    assert_eq!(scenario.name, name);
    scenario
}

/// A variant of a scenario whose requests are listed, run to its end.
fn run<R>(
    name: &str,
    variant: &str,
    then: impl FnOnce(&Workload, &RunResult<'_>, &Variant) -> R,
) -> R {
    let scenario = scenario(name);
    let variant = scenario.variants.iter().find(|v| v.name == variant).unwrap();
    let WorkloadSource::Requests(requests) = &scenario.workload else { panic!("no list") };
    let StepTimeSource::Affine(step_time) = variant.step_time else { panic!("no coefficients") };
    let workload = requests.scale_rate(variant.rate_scale).unwrap();
    let server = &variant.server;
    let policy = named(&variant.policy, variant.max_num_seqs, variant.chunk, server);
    let simulation = Simulation::new(&workload, policy.unwrap().unwrap(), step_time);
    let result = simulation.settings(server.settings().unwrap()).run().unwrap();
    then(&workload, &result, variant)
}

/// TTFT, TPOT and whether the SLO is met, per request, and output tokens per second.
fn figures(name: &str, variant: &str) -> String {
    run(name, variant, |_, result, variant| {
        let mut out = Vec::new();
        for t in result.timelines().unwrap() {
            let m = t.metrics().unwrap();
            let (ttft, tpot) = (m.ttft.get() * 1e3, m.tpot.get() * 1e3);
            let met = if variant.slo.is_met_by(&m) { "met" } else { "missed" };
            out.push(format!("{} {ttft:.1} {tpot:.2} {met}", t.id()));
        }
        let s = result.statistics();
        let rate = s.output_tokens as f64 / s.end.seconds();
        format!("{}; {rate:.1} tok/s", out.join(", "))
    })
}

/// The numbers are worked out by hand in the comment of each file.
#[test]
fn the_three_trade_offs_come_out_as_worked_by_hand() {
    assert_snapshot!(figures("larger-chunk", "chunk-128"), @"stream 31.0 23.80 met, long 204.4 11.00 missed; 33.3 tok/s");
    assert_snapshot!(figures("larger-chunk", "chunk-1024"), @"stream 31.0 31.88 missed, long 131.4 12.00 met; 42.0 tok/s");
    assert_snapshot!(figures("more-decodes", "rate-1"), @"a 20.0 10.00 met, b 20.0 10.00 met, c 20.0 10.00 met, d 20.0 10.00 met, e 20.0 10.00 met, f 20.0 10.00 met; 96.0 tok/s");
    assert_snapshot!(figures("more-decodes", "rate-2"), @"a 20.0 10.00 met, b 20.0 10.00 met, c 30.0 10.00 missed, d 30.0 10.00 missed, e 40.0 10.00 missed, f 40.0 10.00 missed; 141.2 tok/s");
    assert_snapshot!(figures("throughput-hides-latency", "batch-2"), @"a 30.0 20.00 met, b 30.0 20.00 met, c 140.0 20.00 met, d 140.0 20.00 met; 90.9 tok/s");
    assert_snapshot!(figures("throughput-hides-latency", "batch-4"), @"a 40.0 30.00 missed, b 40.0 30.00 missed, c 40.0 30.00 missed, d 40.0 30.00 missed; 125.0 tok/s");
}

/// The numbers are worked out by hand in the comment of each file.
#[test]
fn the_policies_come_out_as_worked_by_hand() {
    let policies = |variant| figures("policies", variant);
    assert_snapshot!(policies("decode-first"), @"stream 30.0 20.00 met, b 75.0 10.00 missed, c 64.0 10.00 met; 81.8 tok/s");
    assert_snapshot!(policies("prefill-first"), @"stream 20.0 22.50 missed, b 55.0 10.00 met, c 54.0 10.00 met; 81.8 tok/s");
    assert_snapshot!(policies("sarathi"), @"stream 20.0 20.00 met, b 64.8 10.20 met, c 74.0 10.00 missed; 81.8 tok/s");
    assert_snapshot!(policies("orca"), @"stream 20.0 20.00 met, b 55.0 10.00 met, c 54.0 10.00 met; 90.0 tok/s");
    assert_snapshot!(policies("static"), @"stream 20.0 10.00 met, b 85.0 10.00 missed, c 84.0 10.00 missed; 75.0 tok/s");
    assert_snapshot!(policies("sglang"), @"stream 20.0 25.00 missed, b 65.0 10.00 met, c 64.0 10.00 met; 75.0 tok/s");
    // TPOT of b: (167 - 74) / 3 = 31 ms preempted, (144 - 114) / 3 = 10 ms reserved.
    assert_snapshot!(figures("tight-kv", "prefill-first"), @"a 74.0 10.00 met, b 74.0 31.00 missed; 47.9 tok/s");
    assert_snapshot!(figures("tight-kv", "sarathi"), @"a 74.0 10.00 met, b 74.0 31.00 missed; 47.9 tok/s");
    assert_snapshot!(figures("tight-kv", "orca"), @"a 42.0 10.00 met, b 114.0 10.00 missed; 55.6 tok/s");
}

#[test]
fn every_scenario_of_the_folder_can_be_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    for name in &names {
        assert!(2 <= scenario(name).variants.len(), "{name} compares nothing");
    }
    assert!(names.contains(&Scenario::built_in().unwrap().name));
}

const SOUND: &str = r#"schema_version = 1
name = "s"
title = { en = "t", zh = "t" }
about = { en = "a", zh = "a" }

[workload.generate]
requests = 10
rate_per_s = 2.5
seed = 7
input_tokens = "lognormal:mean=100,sigma=1,max=1000"
output_tokens = "lognormal:median=50,sigma=0,max=1000"

[settings]
max_num_seqs = 8
chunk = 128
step_time = "base=8ms,prefill=60us/token"
"#;

#[test]
fn a_mean_is_the_mean_of_the_lognormal() {
    let WorkloadSource::Generated(spec) = Scenario::parse("s", SOUND).unwrap().workload else {
        panic!("not drawn")
    };
    let Lengths::Independent { input, output } = spec.lengths else { panic!("not drawn apart") };
    // The mean is median · exp(1/2).
    let LengthLaw::LogNormal { median, .. } = input else { panic!("{input}") };
    assert!((median * 0.5_f64.exp() - 100.0).abs() < 1e-10);
    assert_eq!(output, "lognormal:50,0,1,1000".parse().unwrap());
    assert_eq!((spec.arrivals, spec.sessions), (ArrivalLaw::Poisson, None));
}

/// Three of 100 and one of 300 tokens: each drawn length is one of them.
#[test]
fn lengths_come_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let law = |path: &str| serving_io::lengths::law(&format!("file:{path}"));
    let LengthLaw::Empirical(list) = law(&write("list", "tokens\n100\n300\n\n100\n100\n")).unwrap()
    else {
        panic!("no histogram")
    };
    assert_eq!((list.total(), list.mean(), list.largest()), (4, 150.0, 300));
    let table = law(&write("table.csv", "tokens,count\r\n100,3\r\n300,1\r\n")).unwrap();
    assert_eq!(table, LengthLaw::Empirical(list));

    let fault = |text: &str| {
        let error = law(&write("bad", text)).unwrap_err().to_string();
        error.replace(dir.path().to_str().unwrap(), "DIR")
    };
    assert_snapshot!(fault("5\nsix\n"), @"DIR/bad, line 2: found `six`, expected a length from 1 to 4294967295, or a length and how often it occurs, `512,20`");
    assert_snapshot!(fault("5\n0\n"), @"DIR/bad, line 2: found `0`, expected a length from 1 to 4294967295, or a length and how often it occurs, `512,20`");
    assert_snapshot!(fault("5,-1\n"), @"DIR/bad, line 1: found `5,-1`, expected a length from 1 to 4294967295, or a length and how often it occurs, `512,20`");
    assert_snapshot!(fault("tokens\n"), @"DIR/bad: lengths of a histogram must be at least 1, got 0");

    let trace = write("t.csv", "arrival_s,input_tokens,output_tokens\n0,10,1\n1,20,2\n");
    let text =
        SOUND.replace("input_tokens = \"lognormal:mean=100,sigma=1,max=1000\"\n", "").replace(
            "output_tokens = \"lognormal:median=50,sigma=0,max=1000\"",
            &format!("pairs = \"{trace}\""),
        );
    let (workload, _) = Scenario::parse("s", &text).unwrap().workload.load().unwrap();
    assert!(workload.requests().iter().all(|r| r.input_tokens == 10 * r.output_tokens));
}

#[test]
fn without_variants_the_settings_are_the_only_one() {
    let scenario = Scenario::parse("s", SOUND).unwrap();
    assert_eq!(scenario.variants.len(), 1);
    assert_eq!(
        (scenario.variants[0].name.as_str(), scenario.variants[0].policy.as_str()),
        ("s", "decode-first")
    );
    assert!(scenario.variants[0].slo.is_empty());
}

/// What is said after this part of a sound scenario is replaced.
fn fault(old: &str, new: &str) -> String {
    assert!(SOUND.contains(old), "{old}");
    let error = Scenario::parse("s.toml", &SOUND.replacen(old, new, 1)).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// Users hold conversations and stop waiting; what says how clients go on is checked where it stands.
#[test]
fn clients_of_a_scenario_may_talk_and_leave() {
    let sessions = "seed = 7\nturns = \"3\"\nthink = \"1s\"";
    let users = SOUND.replace("seed = 7", sessions);
    let users =
        users.replace("chunk = 128", "chunk = 128\nusers = 3\nthink = \"5s\"\ntimeout = \"9s\"");
    let users = &Scenario::parse("s.toml", &users).unwrap().variants[0];
    assert_eq!((users.users, users.timeout), (Some(3), Some("9s".parse().unwrap())));
    assert_snapshot!(fault("seed = 7", &format!("{sessions}\nthink_after = \"token\"")), @"s.toml, line 12, `think_after`: start of a think time `token`: expected `arrival` or `answer`");
    let from_arrivals = format!("{sessions}\nthink_after = \"arrival\"");
    let users =
        SOUND.replace("seed = 7", &from_arrivals).replace("chunk = 128", "chunk = 128\nusers = 3");
    assert_snapshot!(Scenario::parse("s.toml", &users).unwrap_err(), @"s.toml, line 12, `think_after`: `users` wait for their answers, so that `think_after` is `answer`");
    assert_snapshot!(fault("seed = 7", "seed = 7\nthink_after = \"answer\""), @"s.toml, line 10, `think_after`: `think_after` is for `turns` and `think`");
    assert_snapshot!(fault("seed = 7", "seed = 7\ncancel = \"5s\""), @"s.toml, line 10, `cancel`: cancellations `5s`: expected a share of the clients and how long after their arrival they go away, such as `10%,exponential:mean=5s`");
    assert_snapshot!(fault("seed = 7", "seed = 7\ncancel = \"50%,uniform:5s,2s\""), @"s.toml, line 10, `cancel`: cancel.after.max must be at least min, 5s, got 2s");
}

#[test]
fn faults_of_a_scenario_name_line_and_key() {
    assert_snapshot!(fault("schema_version = 1", "schema_version = 2"), @"s.toml, line 1, `schema_version`: found 2, expected 1");
    assert_snapshot!(fault("chunk = 128", "chunks = 128"), @"s.toml, line 15, `chunks`: unknown field `chunks`, expected one of `policy`, `max_num_seqs`, `chunk`, `max_num_batched_tokens`, `kv_blocks`, `block_size`, `order`, `preemption`, `swap_time`, `enable_prefix_caching`, `max_waiting`, `max_waiting_tokens`, `token_bucket`, `admission_rule`, `timeout`, `until`, `warm_up`, `cool_down`, `replicas`, `router`, `users`, `think`, `engine`, `step_time`, `slo`, `rate_scale`");
    assert_snapshot!(fault("chunk = 128\n", ""), @"s.toml, line 13, `settings`: no `chunk`: give it in [settings] or in each variant");
    assert_snapshot!(fault("chunk = 128", "chunk = 0"), @"s.toml, line 15, `chunk`: found 0, expected 1 to 4294967295");
    assert_snapshot!(fault("chunk = 128", "chunk = \"128\""), @r#"s.toml, line 15, `chunk`: invalid type: string "128", expected a whole number of at least 0"#);
    assert_snapshot!(fault("chunk = 128", "chunk = 128\npolicy = \"fifo\""), @"s.toml, line 16, `policy`: found fifo, expected a policy: `decode-first`, `prefill-first`, `sarathi`, `orca`, `static`, `sglang`, `vllm-v1`");
    assert_snapshot!(fault("chunk = 128", "chunk = 128\nkv_blocks = 0"), @"s.toml, line 16, `kv_blocks`: found 0, expected 1 to 4294967295");
    assert_snapshot!(fault("chunk = 128", "chunk = 128\nblock_size = 16"), @"s.toml, line 16, `block_size`: `block_size` says nothing without `kv_blocks`");
    assert_snapshot!(fault("chunk = 128", "chunk = 128\norder = \"lifo\""), @"s.toml, line 16, `order`: found lifo, expected fcfs, sjf or priority");
    assert_snapshot!(fault("chunk = 128", "chunk = 128\nmax_num_batched_tokens = 9"), @"s.toml, line 16, `max_num_batched_tokens`: `max_num_batched_tokens` is for prefill-first");
    for (keys, said) in [
        ("preemption = \"swap\"", "`preemption` is for prefill-first and sarathi"),
        (
            "policy = \"sarathi\"\npreemption = \"swap\"",
            "`preemption` says nothing without `kv_blocks`",
        ),
        (
            "policy = \"sarathi\"\nkv_blocks = 9\npreemption = \"swap\"",
            "swap needs `swap_time`, such as \"1us/token\"",
        ),
        (
            "policy = \"sarathi\"\nkv_blocks = 9\nswap_time = \"1us/token\"",
            "`swap_time` says nothing without preemption = \"swap\"",
        ),
        (
            "policy = \"sarathi\"\nkv_blocks = 9\npreemption = \"drop\"",
            "found drop, expected recompute or swap",
        ),
        (
            "policy = \"sarathi\"\nkv_blocks = 9\npreemption = \"swap\"\nswap_time = \"1us\"",
            "expected a time per token, such as 1us/token, got `1us`",
        ),
        ("token_bucket = \"0/s\"", "token bucket `0/s`: expected a rate above 0, such as 10/s"),
        (
            "admission_rule = \"queue=1,kv=2,slo=1s,window=1s\"",
            "admission rule.kv must be a share from 0 to 1, got 2",
        ),
        (
            "timeout = \"5\"",
            "duration `5`: expected a number with one of the units s, ms, us, ns, ps, fs, as: `8ms`",
        ),
        (
            "warm_up = \"5%\"",
            "cut `5%`: write a number of requests up to 2^53 or a time, neither negative: 500 or 60s",
        ),
        ("cool_down = \"auto\"", "cool-down `auto`: MSER-5 finds a warm-up alone"),
        ("replicas = 0", "found 0, expected 1 to 100000"),
        ("router = \"random\"", "`router` says nothing without several `replicas`"),
        ("replicas = 2\nrouter = \"any\"", "router `any`: expected "),
        ("users = 1000001", "found 1000001, expected 1 to 1000000"),
        (
            "users = 3\nrate_scale = \"2\"",
            "`rate_scale` is for an open loop: `users` wait for their answers",
        ),
        ("think = \"5s\"", "`think` is for `users`"),
        ("enable_prefix_caching = false", "is for sglang; vllm-v1 has it in the table `engine`"),
        ("policy = \"sglang\"\nenable_prefix_caching = true", "nothing without `kv_blocks`"),
    ] {
        let error = fault("chunk = 128", &format!("chunk = 128\n{keys}"));
        assert!(error.contains(said), "{error}");
    }
    assert_snapshot!(fault("chunk = 128", "chunk = 128\nslo = \"ttft<2\""), @"s.toml, line 16, `slo`: SLO `ttft<2`: a number needs a unit, write 2ms or 2s");
    assert_snapshot!(fault("chunk = 128", "chunk = 128\nrate_scale = \"0\""), @"s.toml, line 16, `rate_scale`: rate scale `0`: expected a factor above 0 with at most 9 digits, such as `2`, `0.25` or `1/3`");
    assert_snapshot!(fault("base=8ms", "base=8"), @"s.toml, line 16, `step_time`: step time `base=8`: expected a number with one of the units s, ms, us, ns, ps, fs, as: `8ms`");
    assert_snapshot!(fault("base=8ms,prefill=60us/token", "h100"), @"s.toml, line 16, `step_time`: `h100` is no step-time preset; expected one of `llama-3.1-8b-h100-sxm`, `llama-3.1-8b-h200-sxm`, `llama-3.1-8b-b200-sxm`, `llama-3.1-8b-a100-sxm`, `llama-3.1-8b-l40s`, `llama-3.1-8b-rtx-4090`, `llama-3.1-8b-rtx-pro-6000`, `llama-3.1-70b-h100-sxm-tp4`, `llama-3.1-70b-h100-sxm-tp8`, `llama-3.1-70b-h200-sxm-tp4`, `llama-3.1-70b-a100-sxm-tp4`, `qwen3-8b-h100-sxm`, `qwen3-32b-h100-sxm-tp2`, `qwen3-32b-rtx-pro-6000`, or coefficients such as `base=8ms,prefill=60us/token`");
    assert_snapshot!(fault("rate_per_s = 2.5", "rate_per_s = 0"), @"s.toml, line 8, `rate_per_s`: found 0, expected from 1e-6 to 1e9 requests per second");
    assert_snapshot!(fault("rate_per_s = 2.5", "rate_per_s = nan"), @"s.toml, line 8, `rate_per_s`: found NaN, expected from 1e-6 to 1e9 requests per second");
    assert_snapshot!(fault("mean=100", "mean=100,median=5"), @"s.toml, line 10, `input_tokens`: law of lengths `lognormal:mean=100,median=5,sigma=1,max=1000`: expected either `median` or `mean`");
    assert_snapshot!(fault("sigma=1,", "sigma=-1,"), @"s.toml, line 10, `input_tokens`: input_tokens.sigma must be from 0 to 10, got -1");
    assert_snapshot!(fault("max=1000", "max=0"), @"s.toml, line 10, `input_tokens`: input_tokens.max must be at least min, 1, and at most 4294967295, got 0");
    assert_snapshot!(fault("seed = 7", "seed = 7\narrivals = \"gamma\""), @"s.toml, line 10, `arrivals`: law of arrivals `gamma`: expected a number for `cv`");
    assert_snapshot!(fault("seed = 7", "seed = 7\narrivals = \"gamma:cv=0\""), @"s.toml, line 10, `arrivals`: arrivals.cv must be from 0.01 to 10, got 0");
    assert_snapshot!(fault("seed = 7", "seed = 7\nturns = \"3\""), @"s.toml, line 6, `workload.generate`: expected both `turns` and `think`, or neither");
    assert_snapshot!(fault("seed = 7", "seed = 7\nturns = \"geometric:3\"\nthink = \"5s\""), @"s.toml, line 6, `workload.generate`: turns must be at most 1000 turns: give the law a `max`, got 4294967295");
    assert_snapshot!(fault("seed = 7", "seed = 7\nthink = \"5\""), @"s.toml, line 10, `think`: law of times `5`: expected a time such as `5s`, or one of `exponential:mean=10s`, `uniform:1s,5s`, `lognormal:median=10s,sigma=1`");
    assert_snapshot!(fault("seed = 7", "seed = 7\nsystem_prompts = \"0\""), @"s.toml, line 10, `system_prompts`: system_prompts.tokens must be from 1 to 4294967295, got 0");
    assert_snapshot!(fault("seed = 7", "seed = 7\npairs = \"none.csv\""), @"s.toml, line 10, `pairs`: none.csv: cannot be read: No such file or directory (os error 2)");
    assert_snapshot!(fault("lognormal:mean=100,sigma=1,max=1000", "file:none.txt"), @"s.toml, line 10, `input_tokens`: none.txt: cannot be read: No such file or directory (os error 2)");
    assert_snapshot!(fault("[workload.generate]", "[workload]\ntrace = \"t.csv\"\n[workload.generate]"), @"s.toml, line 6, `workload`: expected exactly one of `generate`, `requests`, `trace`");
    assert_snapshot!(fault("name = \"s\"", "name = \"s s\""), @"s.toml, line 2, `name`: found s s, expected letters, digits, `.`, `_` and `-`");
    assert_snapshot!(fault("name = \"s\"\n", ""), @"s.toml, line 1: missing field `name`");
    assert_snapshot!(fault("requests = 10", "requests = 10 20"), @"s.toml, line 7, `requests`: string values must be quoted, expected literal string");
    let generate =
        &SOUND[SOUND.find("[workload.generate]").unwrap()..SOUND.find("[settings]").unwrap()];
    let row = |id: &str, at: &str, n: u64| {
        format!(
            "[[workload.requests]]\nid = \"{id}\"\nat = \"{at}\"\ninput_tokens = {n}\noutput_tokens = 1\n"
        )
    };
    let first = row("a", "1ms", 5);
    assert_snapshot!(fault(generate, &(first.clone() + &row("b", "0s", 5))), @"s.toml, line 11, `workload.requests`: requests must be sorted by arrival: `b` (row 2) arrives at 0 s, the one before it at 0.001 s");
    assert_snapshot!(fault(generate, &(first.clone() + &row("a", "1ms", 5))), @"s.toml, line 11, `workload.requests`: request ids must differ: `a` is in rows 1 and 2");
    assert_snapshot!(fault(generate, &(first.clone() + &row("b", "1ms", 0))), @"s.toml, line 11, `workload.requests`: input_tokens of request `b` must be 1 to 4294967295, got 0");
    let leaves = row("b", "1ms", 5) + "cancel_after = \"-1s\"\n";
    assert_snapshot!(fault(generate, &(first.clone() + &leaves)), @"s.toml, line 16, `cancel_after`: duration `-1s`: expected a time of at least 0");
    assert_snapshot!(fault(generate, &(first + &row("b", "1", 5))), @"s.toml, line 13, `at`: duration `1`: expected a number with one of the units s, ms, us, ns, ps, fs, as: `8ms`");
    let twice = format!("{SOUND}[[variants]]\nname = \"x\"\n[[variants]]\nname = \"x\"\n");
    assert_snapshot!(Scenario::parse("s.toml", &twice).unwrap_err(), @"s.toml, line 20, `name`: another variant is named `x`");
}

#[test]
fn every_preset_is_complete_and_says_where_it_holds() {
    for name in preset::names() {
        let preset = preset::named(name).unwrap();
        assert_eq!(preset.name, name);
        for text in [&preset.model, &preset.gpu, &preset.engine, &preset.source, &preset.method] {
            assert!(!text.is_empty(), "{name}: {preset:?}");
        }
        assert!(
            ["Apache-2.0", "MIT"].iter().any(|l| preset.licence.contains(l)),
            "{name}: {}",
            preset.licence
        );
        // Kernels are timed without what surrounds them, and every preset says so.
        assert!(preset.limits.iter().any(|l| l.contains("no scheduler")), "{name}");
        for prefill in [false, true] {
            let own: Vec<_> = preset.regimes.iter().filter(|r| r.covers(prefill)).collect();
            assert_eq!(own.len(), 1, "{name}");
            let r = own[0];
            assert!(0.0 < r.mean_absolute && r.mean_absolute < 0.11, "{name}: {r:?}");
            assert!(1.0 < r.decodes[1] && r.decodes[1] < r.context[1], "{name}: {r:?}");
            assert!(!prefill || 2048.0 <= r.prefill_tokens[1], "{name}: {r:?}");
        }
        // Read and written again, no digit is lost.
        assert_eq!(FittedStepTime::parse("again.toml", &preset.to_toml()).unwrap(), preset);
    }
    assert_eq!(preset::named(preset::DEFAULT).unwrap().gpu, "NVIDIA H100 SXM");
    assert_snapshot!(preset::named("h100").unwrap_err(), @"`h100` is no step-time preset; expected one of `llama-3.1-8b-h100-sxm`, `llama-3.1-8b-h200-sxm`, `llama-3.1-8b-b200-sxm`, `llama-3.1-8b-a100-sxm`, `llama-3.1-8b-l40s`, `llama-3.1-8b-rtx-4090`, `llama-3.1-8b-rtx-pro-6000`, `llama-3.1-70b-h100-sxm-tp4`, `llama-3.1-70b-h100-sxm-tp8`, `llama-3.1-70b-h200-sxm-tp4`, `llama-3.1-70b-a100-sxm-tp4`, `qwen3-8b-h100-sxm`, `qwen3-32b-h100-sxm-tp2`, `qwen3-32b-rtx-pro-6000`, or coefficients such as `base=8ms,prefill=60us/token`");
}

#[test]
fn faults_of_a_step_time_file_name_line_and_key() {
    let sound = include_str!("../../../presets/step-time/llama-3.1-8b-l40s.toml");
    let fault = |old: &str, new: &str| {
        assert!(sound.contains(old), "{old}");
        FittedStepTime::parse("p.toml", &sound.replacen(old, new, 1)).unwrap_err().to_string()
    };
    assert_snapshot!(fault("floored", "flored"), @"p.toml, line 7, `form`: found `flored`, expected `two-regime`, `split`, `affine`, `floored` or `table`");
    assert_snapshot!(fault("w = \"", "w = \"-"), @"p.toml, line 17, `step_ms`: `w`: found `-17.60493731226071`, expected a decimal number of milliseconds");
    assert_snapshot!(fault("points = 118", "point = 118"), @"p.toml, line 27, `point`: unknown field `point`, expected one of `regime`, `points`, `mean_absolute`, `p90_absolute`, `p95_absolute`, `worst`, `max_absolute`, `bias`, `prefill_tokens`, `decodes`, `context`, `attention`");
    assert_snapshot!(fault("[step_ms]", "[coefficients_ms]"), @"p.toml, line 17, `coefficients_ms`: unknown field `coefficients_ms`, expected one of `schema_version`, `name`, `model`, `gpu`, `tensor_parallel`, `engine`, `form`, `source`, `licence`, `method`, `limits`, `decode_ms`, `above_ms`, `decode_table_ms`, `prefill_table_ms`, `prefill_ms`, `extra_ms`, `step_ms`, `overheads_ms`, `regimes`");
}

/// A table and a split are written as they are read.
#[test]
fn tables_and_splits_survive_their_file() {
    let head = "schema_version = 1\nname = \"x\"\nmodel = \"\"\ngpu = \"\"\nengine = \"\"\nsource = \"\"\nlicence = \"\"\nmethod = \"\"\nlimits = []\n";
    let table = "form = \"table\"\n[decode_table_ms]\ndecodes = [1, 8]\ncontext_each = [0, 9]\n\
                 times = [[\"1\", \"1.25\"], [\"2\", \"3\"]]\n[prefill_table_ms]\n\
                 prompt_tokens = [0, 64]\ncontext = [0, 9]\ntimes = [[\"4\", \"5\"], [\"6\", \"7\"]]\n\
                 c = \"0.5\"\nq = \"0.000002\"\n";
    let set = "a = \"1\"\nc = \"0.1\"\nd = \"0.0001\"\n";
    let split = format!(
        "form = \"split\"\n[decode_ms]\n{set}[above_ms]\ndecodes = 95\n{set}[prefill_ms]\n{set}b = \"0.2\"\nq = \"0\"\n"
    );
    for body in [table, &split] {
        let file = FittedStepTime::parse("f.toml", &format!("{head}{body}")).unwrap();
        assert_eq!(FittedStepTime::parse("again.toml", &file.to_toml()).unwrap(), file);
    }
    // Each form has its own tables.
    let mixed = format!("{head}{table}[step_ms]\na = \"1\"\n");
    assert_snapshot!(FittedStepTime::parse("f.toml", &mixed).unwrap_err(), @"f.toml, line 10, `form`: the form `table` has [decode_table_ms] and [prefill_table_ms], and no coefficients");
}

/// Against the facts from which the presets of aiconfigurator's tables were made, if they are
/// there: their texts have every digit.
#[test]
fn presets_have_the_digits_of_their_fit() {
    let root = std::env::var("GOODPUT_DATA")
        .unwrap_or_else(|_| format!("{}/../../../shared/data", env!("CARGO_MANIFEST_DIR")));
    let Ok(fit) = std::fs::read_to_string(format!("{root}/presets/step-time-aic.json")) else {
        let mut err = std::io::stderr();
        std::io::Write::write_all(
            &mut err,
            b"skipped: no presets/step-time-aic.json in GOODPUT_DATA\n",
        )
        .unwrap();
        return;
    };
    let mut compared = 0;
    for name in preset::names() {
        let path = format!("{}/../../presets/step-time/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        if !text.contains("aiconfigurator") {
            continue;
        }
        for line in text.lines().skip_while(|l| *l != "[step_ms]").skip(1).take(6) {
            let (key, value) = line.split_once(" = ").unwrap();
            let value = value.trim_matches('"');
            assert!(fit.contains(&format!("\"{key}\": {value}")), "{name}: {line}");
            compared += 1;
        }
    }
    assert_eq!(compared, 11 * 6);
}

#[test]
fn a_simulated_run_reads_back_the_same() {
    run("larger-chunk", "chunk-128", |workload, result, _| {
        let duration = Some(result.statistics().end.instant());
        let header = Header { duration, epoch_s: Some(1e9), ..Header::default() };
        let bytes = simulation::write(Vec::new(), result, &header).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert_snapshot!(text, @r#"
{"schema_version":1,"kind":"goodput-timelines","epoch_s":1000000000.0,"duration_ps":"240400000000"}
{"id":"stream","arrival_ps":"0","scheduled_ps":"0","first_token_ps":"31000000000","last_token_ps":"150000000000","input_tokens":100,"output_tokens":6,"outcome":"completed"}
{"id":"long","arrival_ps":"25000000000","scheduled_ps":"31000000000","first_token_ps":"229400000000","last_token_ps":"240400000000","input_tokens":1024,"output_tokens":2,"outcome":"completed"}
"#);
        let file = read("f", Cursor::new(bytes.clone()), &Options::default()).unwrap();
        assert_eq!(file.runs[0].timelines, result.timelines().unwrap());
        // And as a trace it is the workload again.
        let trace = read_trace("f", Cursor::new(bytes), &TraceOptions::default()).unwrap();
        assert_eq!(trace.workload, *workload);
    });
}

/// An arrival after three hours is beyond 2^53 ps: a float of it would lose the last digits.
#[test]
fn late_instants_keep_every_picosecond() {
    let at = Ticks::from_picoseconds(12_345_678_901_234_567);
    let request = sched_sim::WorkloadRequest::new("late", at, 1, 1);
    let workload = Workload::new(vec![request]).unwrap();
    let step: sched_sim::Affine = "base=1ps".parse().unwrap();
    let result = Simulation::new(&workload, DecodeFirst::default(), step).run().unwrap();
    let bytes = simulation::write(Vec::new(), &result, &Header::default()).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    for key in ["\"arrival_ps\":\"12345678901234567\"", "\"last_token_ps\":\"12345678901234569\""] {
        assert!(text.contains(key), "{text}");
    }
}

#[test]
fn the_example_of_the_book_is_sound_and_its_error_is_real() {
    for language in ["en", "zh"] {
        let path =
            format!("{}/../../docs/{language}/guides/scenarios.md", env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(path).unwrap();
        let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let scenario = Scenario::parse("two-chunks.toml", example).unwrap();
        assert_eq!((scenario.name.as_str(), scenario.variants.len()), ("two-chunks", 2));
        let wrong = example.replace("max_num_seqs", "max_num_seq");
        let error = Scenario::parse("two-chunks.toml", &wrong).unwrap_err().to_string();
        assert!(page.contains(&error), "{error}");
    }
}

/// The numbers are worked out by hand in the comment of the file.
#[test]
fn a_preempted_request_comes_back_as_worked_by_hand() {
    let scenario = scenario("vllm-v1");
    let WorkloadSource::Requests(workload) = &scenario.workload else { panic!("no list") };
    let mut lines = Vec::new();
    for variant in &scenario.variants {
        let StepTimeSource::Affine(step_time) = variant.step_time else {
            panic!("no coefficients")
        };
        let vllm = VllmV1Run::new(variant.engine.resolve(None).unwrap().config);
        let result = Simulation::vllm_v1(workload, vllm, step_time).run().unwrap();
        let (detail, kv) = (&result.details()[0], result.statistics().kv.unwrap());
        let stall = detail.stalls[0];
        lines.push(format!(
            "{}: {} preempted from {} to {}, goes on at {}, ends at {}; {} hit, {} again",
            variant.name,
            workload.requests()[detail.position].id,
            stall.from,
            stall.readmitted.unwrap(),
            stall.caught_up.unwrap(),
            result.records()[detail.position].last_token().unwrap(),
            stall.hit_tokens,
            kv.recomputed_tokens,
        ));
    }
    assert_snapshot!(lines.join("\n"), @"
    prefix-caching: b preempted from 0.074 s to 0.104 s, goes on at 0.115 s, ends at 0.135 s; 32 hit, 0 again
    no-prefix-caching: b preempted from 0.074 s to 0.104 s, goes on at 0.147 s, ends at 0.167 s; 0 hit, 32 again
    ");
}
