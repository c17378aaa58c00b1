//! `/metrics` of the engines: every line kept, every figure with what it can and cannot say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;

use proptest::prelude::*;
use serving_io::prometheus::{Exposition, Kind, Snapshot, What};
use serving_io::{Format, IoError, Options, ReadFile, read};

const VLLM: &str = include_str!("data/prometheus/vllm-0.33.0.metrics.txt");
const PREEMPT: &str = include_str!("data/prometheus/vllm-0.33.0-preempt.metrics.txt");
const SGLANG: &str = include_str!("data/prometheus/sglang-0.5.23.metrics.txt");

fn file(text: &str) -> Result<ReadFile, IoError> {
    read("metrics.txt", Cursor::new(text.as_bytes().to_vec()), &Options::default())
}

fn servers(text: &str) -> Vec<Snapshot> {
    file(text).unwrap().runs.into_iter().map(|r| *r.server.unwrap()).collect()
}

fn server(text: &str) -> Snapshot {
    let mut all = servers(text);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn error(text: &str) -> String {
    file(text).unwrap_err().to_string()
}

/// Every line that is no comment is a sample, and TTFT has the 60 requests of the log that the
/// server was fed with: their TTFT sums up to 21.824 s in `preempt.server.jsonl`.
#[test]
fn captured_metrics_are_read_whole() {
    for text in [VLLM, PREEMPT, SGLANG] {
        let lines = text.lines().filter(|l| !l.starts_with('#')).count();
        let read = Exposition::parse("m", text).unwrap();
        assert_eq!(read.samples.len(), lines);
        assert_eq!(file(text).unwrap().format, Format::Prometheus);
    }
    for text in [PREEMPT, SGLANG] {
        let s = server(text);
        let ttft = &s.histograms[&What::Ttft];
        assert_eq!(ttft.count(), 60);
        assert!((ttft.mean().unwrap() - 21.824_119_621_001_5 / 60.0).abs() < 1e-12);
        assert_eq!(s.counter(What::Preemptions), Some(46.0));
        assert_eq!(s.counter(What::PromptTokens), Some(3780.0));
        assert_eq!(s.completed(), Some(60.0));
        assert_eq!(s.gauges[&What::KvUtilization].max(), 0.4);
        assert_eq!(s.model.as_deref(), Some("mock-model"));
    }
}

/// What a snapshot of vLLM states, in full; the median TTFT is rank 30, in 0.25 to 0.5 s, whose
/// ends are a factor of 2 apart: interpolated. P99 is rank 60, in 0.75 to 1 s.
#[test]
fn a_snapshot_states_counts_means_and_buckets() {
    let run = &file(PREEMPT).unwrap().runs[0];
    let mut lines: Vec<String> = vec![format!("{} {:?}", run.tool.name, run.counts)];
    let shown = |n: &str| {
        !["prefill", "decode", "itl", "e2e", "queue", "input_tokens_per", "output_tokens_per"]
            .iter()
            .any(|p| n.starts_with(p))
    };
    lines.extend(run.stated.iter().filter(|(n, _)| shown(n)).map(|(n, x)| format!("{n} {x}")));
    lines.extend(run.notes.iter().map(|n| format!("note {}: {}", n.id, n.text)));
    lines.extend(run.missing.iter().map(|m| format!("missing {}", m.what)));
    insta::assert_snapshot!("vllm_preempt", lines.join("\n"));
}

/// Two scrapes of one server: between them 2 preemptions and 10 requests.
#[test]
fn two_snapshots_differ_by_what_happened() {
    let text = |n: u32, preempted: u32, sum: f64| {
        format!(
            "process_start_time_seconds 5\n\
             vllm:num_preemptions_total {preempted}\n\
             vllm:num_requests_waiting {n}\n\
             vllm:time_to_first_token_seconds_bucket{{le=\"0.1\"}} {n}\n\
             vllm:time_to_first_token_seconds_bucket{{le=\"+Inf\"}} {n}\n\
             vllm:time_to_first_token_seconds_count {n}\n\
             vllm:time_to_first_token_seconds_sum {sum}\n"
        )
    };
    let (before, after) = (server(&text(5, 1, 0.5)), server(&text(15, 3, 1.0)));
    let between = after.since(&before).unwrap();
    assert!(between.difference);
    assert_eq!(between.counter(What::Preemptions), Some(2.0));
    assert_eq!(between.histograms[&What::Ttft].count(), 10);
    assert_eq!(between.histograms[&What::Ttft].mean(), Some(0.05));
    assert_eq!(between.gauges[&What::Waiting].sum(), 15.0);
    assert_eq!(
        before.since(&after).unwrap_err(),
        "`preemptions` went back from 3 to 1: the server was restarted in between, or the files are in the wrong order"
    );
    let restarted = server(&text(1, 0, 0.1).replace("seconds 5", "seconds 6"));
    assert!(restarted.since(&before).unwrap_err().contains("restarted"));
    assert!(before.since(&restarted).unwrap_err().contains("give the earlier file first"));
    assert!(server(SGLANG).since(&server(PREEMPT)).unwrap_err().contains("two servers"));
}

/// Engines of one server add up, two models stay apart, ranks of one engine count once, and an old
/// name beside the new one is not added to it.
#[test]
fn labels_say_what_adds_up() {
    let s = server(
        "vllm:num_requests_running{engine=\"0\",model_name=\"a\"} 9\n\
         vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 1\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a\"} 0.9\n\
         vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"a\"} 0.1\n\
         vllm:gpu_cache_usage_perc{engine=\"0\",model_name=\"a\"} 0.95\n",
    );
    assert_eq!(s.gauges[&What::Running].sum(), 10.0);
    assert_eq!(s.gauges[&What::KvUtilization].0, [0.9, 0.1]);
    let models = servers(
        "vllm:num_requests_running{model_name=\"a\"} 9\nvllm:num_requests_running{model_name=\"b\"} 1\n",
    );
    assert_eq!(models.iter().map(|s| s.model.as_deref().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
    let ranks = server(
        "sglang:num_running_reqs{tp_rank=\"0\"} 4\nsglang:num_running_reqs{tp_rank=\"1\"} 4\n",
    );
    assert_eq!(ranks.gauges[&What::Running].0, [4.0]);
    assert_eq!(
        ranks.decided,
        ["running_requests: 2 processes of one engine report it; the first rank counts"]
    );
    let hot = file(
        "vllm:num_requests_running{engine=\"0\"} 9\nvllm:num_requests_running{engine=\"1\"} 1\n",
    )
    .unwrap();
    assert!(hot.runs[0].notes.iter().any(|n| n.id == "hot-replica"));
}

/// Different bounds do not add up, and nothing is averaged instead.
#[test]
fn histograms_of_other_bounds_are_refused() {
    let h = |engine: u8, le: &str| {
        format!(
            "vllm:time_to_first_token_seconds_bucket{{engine=\"{engine}\",le=\"{le}\"}} 1\n\
             vllm:time_to_first_token_seconds_bucket{{engine=\"{engine}\",le=\"+Inf\"}} 1\n\
             vllm:time_to_first_token_seconds_count{{engine=\"{engine}\"}} 1\n"
        )
    };
    assert_eq!(server(&(h(0, "1") + &h(1, "1"))).histograms[&What::Ttft].count(), 2);
    assert_eq!(
        error(&(h(0, "1") + &h(1, "2"))),
        "metrics.txt, line 6, `ttft`: the bounds of the buckets differ, so the histograms do not add up"
    );
}

/// A value of another tool's notes: aborted requests are not completed ones, tokens without a
/// finished request are named, zeros are no latency.
#[test]
fn what_an_engine_counts_otherwise_is_said() {
    let run = &file(
        "vllm:request_success_total{finished_reason=\"stop\"} 5\n\
         vllm:request_success_total{finished_reason=\"abort\"} 2\n\
         vllm:request_success_total{finished_reason=\"error\"} 1\n\
         vllm:prompt_tokens_total 3010\n\
         vllm:request_prompt_tokens_bucket{le=\"+Inf\"} 0\n\
         vllm:request_prompt_tokens_count 0\n\
         vllm:request_prompt_tokens_sum 0\n\
         vllm:num_preemptions_total 3\n\
         vllm:prefix_cache_hits_total 90\n\
         vllm:prefix_cache_queries_total 300\n\
         vllm:time_to_first_token_seconds_bucket{le=\"0.001\"} 208\n\
         vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 208\n\
         vllm:time_to_first_token_seconds_count 208\n\
         vllm:time_to_first_token_seconds_sum 0\n\
         vllm:num_requests_waiting NaN\n",
    )
    .unwrap()
    .runs[0];
    assert_eq!((run.counts.completed, run.counts.failed), (Some(5), Some(1)));
    assert_eq!(run.stated.get("kv_hit_rate"), Some(0.3));
    assert_eq!(run.stated.get("ttft_p99_at_most_s"), None);
    let ids: Vec<&str> = run.notes.iter().map(|n| n.id).collect();
    for id in ["aborted", "unfinished-tokens", "all-zero", "hits-after-preemption", "metrics-read"]
    {
        assert!(ids.contains(&id), "{id}: {ids:?}");
    }
}

#[test]
fn both_dialects_are_read_whole() {
    let text = "# TYPE a counter\r\n# HELP a said \"so\"\r\n# UNIT a seconds\r\n\
                a_total{x=\"1\\n\\\"\\\\\",} 1.5e3 12.5 # {trace_id=\"t\"} 0.5 9\r\n\
                {\"b.c\",\"d e\"=\"f\"} +Inf\r\n  g\t-1 \r\n# just words\r\n# EOF\r\n";
    let read = Exposition::parse("m", text).unwrap();
    assert!(read.ended);
    assert_eq!(read.kinds["a"], Kind::Counter);
    let [a, b, g] = &read.samples[..] else { panic!("{read:?}") };
    assert_eq!(
        (a.line, a.labels["x"].as_str(), a.value, a.timestamp),
        (4, "1\n\"\\", 1500.0, Some(12.5))
    );
    let exemplar = a.exemplar.as_ref().unwrap();
    assert_eq!((exemplar.labels["trace_id"].as_str(), exemplar.value), ("t", 0.5));
    assert_eq!((b.name.as_str(), b.labels["d e"].as_str(), b.value), ("b.c", "f", f64::INFINITY));
    assert_eq!((g.name.as_str(), g.value), ("g", -1.0));
}

#[test]
fn faults_are_named_with_line_and_column() {
    let h = "vllm:time_to_first_token_seconds";
    let mut said = Vec::new();
    for text in [
        "up 1\nup\n".to_owned(),
        "up{a=\"b} 1\nup 1\n".to_owned(),
        "up 1\nup{a=\"\\x\"} 1".to_owned(),
        "up 1\nup 1\n".to_owned(),
        "up 1\nup{a=\"1\",a=\"2\"} 1\n".to_owned(),
        "# TYPE up gouge\nup 1\n".to_owned(),
        "up 1\n# EOF\nup 2\n".to_owned(),
        "up 1 2 3\n".to_owned(),
        "# HELP up is it\nup{a 1\n".to_owned(),
        "# HELP up is it\nup 1\n".to_owned(),
        format!("{h}_bucket{{le=\"1\"}} 1\n{h}_sum 1\n{h}_count 1\n"),
        format!("{h}_bucket{{le=\"+Inf\"}} 1\n{h}_count 2\n"),
        format!("{h}_bucket{{le=\"1\"}} 3\n{h}_bucket{{le=\"+Inf\"}} 2\n{h}_count 2\n"),
        format!("{h}_bucket{{le=\"x\"}} 1\n"),
        format!("{h}_bucket 1\n"),
        "vllm:num_preemptions_total -1\n".to_owned(),
        format!("{h}_bucket{{le=\"1\"}} 0.5\n"),
        "up 1\nvllm:kv_cache_usage_perc 80\n".to_owned(),
        "up 1\nvllm:num_preemptions_total 1e400\n".to_owned(),
    ] {
        let options = Options { format: Some(Format::Prometheus), ..Options::default() };
        let result = read("m", Cursor::new(text.into_bytes()), &options);
        said.push(result.unwrap_err().to_string());
    }
    insta::assert_snapshot!("faults", said.join("\n"));
}

/// The old name of a gap in vLLM is no TPOT, and other prefixes are known.
#[test]
fn names_of_other_versions_and_wrappers_are_known() {
    let h = |name: &str| format!("{name}_bucket{{le=\"+Inf\"}} 1\n{name}_count 1\n{name}_sum 1\n");
    let old = server(&h("vllm:time_per_output_token_seconds"));
    assert!(old.histograms.contains_key(&What::Itl) && !old.histograms.contains_key(&What::Tpot));
    assert_eq!(server("ray_vllm_num_requests_running 2\n").gauges[&What::Running].sum(), 2.0);
}

proptest! {
    /// What is written as a sample is read back, whatever the labels hold.
    #[test]
    fn labels_survive_their_escapes(
        name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,8}",
        labels in prop::collection::btree_map("[a-z_]{1,4}", any::<String>(), 0..4),
        value in any::<f64>().prop_filter("equal to itself", |x| !x.is_nan()),
        stamp in prop::option::of(0..1_u64 << 50),
    ) {
        let escape = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let inside: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
        let stamp_text = stamp.map(|t| format!(" {t}")).unwrap_or_default();
        let line = format!("{name}{{{}}} {value:e}{stamp_text}\n", inside.join(","));
        let read = Exposition::parse("m", &line).unwrap();
        prop_assert_eq!(&read.samples[0].name, &name);
        prop_assert_eq!(&read.samples[0].labels, &labels);
        prop_assert_eq!(read.samples[0].value, value);
        prop_assert_eq!(read.samples[0].timestamp, stamp.map(|t| t as f64));
    }
}
