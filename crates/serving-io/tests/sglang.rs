//! Results of `sglang.bench_serving`: what is read equals what the tool and the server say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;
use std::path::{Path, PathBuf};

use metrics_core::timeline::Gaps;
use metrics_core::{Outcome, RequestTimeline, Seconds};
use serving_io::run::{Clock, RequestRate, Values};
use serving_io::{Format, Options, ReadFile, Run, read, read_path};

const SAMPLES: [&str; 3] = ["chat-gsp-cache", "native-c8", "oai-rate15-fail"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sglang-0.5.23").join(name)
}

fn sample(name: &str) -> ReadFile {
    read_path(&fixture(&format!("{name}.jsonl")), &Options::default()).unwrap()
}

fn text(content: &str) -> ReadFile {
    read("r.jsonl", Cursor::new(content.as_bytes().to_vec()), &Options::default()).unwrap()
}

fn error(content: &str) -> String {
    let content = Cursor::new(content.as_bytes().to_vec());
    read("r.jsonl", content, &Options::default()).unwrap_err().to_string()
}

fn completed(run: &Run) -> impl Iterator<Item = &RequestTimeline> {
    run.timelines.iter().filter(|t| t.outcome() == Outcome::Completed)
}

fn ids(run: &Run) -> Vec<&str> {
    run.notes.iter().map(|n| n.id).collect()
}

/// numpy's default percentile: linear between order statistics.
fn percentile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = p / 100.0 * (sorted.len() - 1) as f64;
    let below = position.floor();
    // Both are indexes of the sample.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let (a, b) = (sorted[below as usize], sorted[position.ceil() as usize]);
    a + (b - a) * (position - below)
}

/// TTFT and the gaps are in the file, so every figure of them can be had again.
#[test]
fn ttft_and_gaps_give_the_figures_that_the_tool_printed() {
    for name in SAMPLES {
        let file = sample(name);
        let run = &file.runs[0];
        assert_eq!((file.format, file.runs.len()), (Format::Sglang, 1));
        let ttft: Vec<f64> = completed(run).map(|t| t.ttft().unwrap().as_millis()).collect();
        let gaps = completed(run).filter_map(RequestTimeline::gaps);
        let itl: Vec<f64> = gaps.flat_map(|g| g.values().iter().map(|s| s.as_millis())).collect();
        for (metric, values) in [("ttft", ttft), ("itl", itl)] {
            for (which, p) in [("median", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0)] {
                let stated = run.stated.get(&format!("{which}_{metric}_ms")).unwrap();
                let own = percentile(&values, p);
                assert!((own - stated).abs() <= 1e-9 * stated, "{name} {which} {metric}");
            }
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let stated = run.stated.get(&format!("mean_{metric}_ms")).unwrap();
            assert!((mean - stated).abs() <= 1e-9 * stated, "{name} mean {metric}");
        }
        let n = completed(run).count();
        assert_eq!(run.counts.completed, Some(n as u64));
        let duration = run.duration.unwrap().value.get();
        let rate = run.stated.get("request_throughput").unwrap();
        assert!((n as f64 / duration - rate).abs() < 1e-9 * rate);
        assert!(!ids(run).contains(&"counts-disagree"), "{name}");
        // The tool's E2E ends at the last line, ours at the last chunk: less than a millisecond.
        let e2e: Vec<f64> = completed(run).map(|t| t.e2e_latency().unwrap().as_millis()).collect();
        let behind = run.stated.get("mean_e2e_latency_ms").unwrap()
            - e2e.iter().sum::<f64>() / e2e.len() as f64;
        assert!(0.0 < behind && behind < 1.0, "{name} {behind}");
        assert!(run.missing.iter().any(|m| m.what.starts_with("e2e latency and tpot as the tool")));
        assert_eq!(run.clock, Clock::Unknown);
    }
}

/// The server numbered the requests as they came, which is the order in which they were sent.
#[test]
fn the_server_saw_the_same_requests() {
    for name in SAMPLES {
        let file = sample(name);
        let log = std::fs::read_to_string(fixture(&format!("{name}.server.jsonl"))).unwrap();
        let mut server: Vec<serde_json::Value> =
            log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        server.sort_by_key(|s| s["n"].as_u64());
        assert_eq!(server.len(), file.runs[0].timelines.len(), "{name}");
        for (s, c) in server.iter().zip(&file.runs[0].timelines) {
            let at = |key: &str| s[key].as_f64();
            let since = |key: &str| Some(at(key)? - at("arrival")?);
            let what = format!("{name}, request {} at the server", s["n"]);
            assert_eq!(s["status"] == "ok", c.outcome() == Outcome::Completed, "{what}");
            assert_eq!(s["status"] == "http500", c.ttft().is_none(), "{what}");
            if s["status"] == "ok" {
                assert_eq!(s["output_tokens"].as_u64(), c.output_tokens(), "{what}");
                assert!(since("last_token") <= c.e2e_latency().map(Seconds::get), "{what}");
            } else {
                assert_eq!((c.e2e_latency(), c.output_tokens()), (None, None), "{what}");
            }
            if let Some(ttft) = c.ttft() {
                assert!(since("first_token").unwrap() <= ttft.get(), "{what}");
            }
        }
    }
}

/// Ten one-token answers stand in the file with the 21 to 40 tokens that were asked for.
#[test]
fn tokens_that_were_asked_for_are_not_tokens_that_came() {
    let file = sample("oai-rate15-fail");
    let run = &file.runs[0];
    let tokens: u64 = completed(run).filter_map(RequestTimeline::output_tokens).sum();
    assert_eq!(tokens, 1809);
    assert_eq!(run.counts.total_output_tokens, Some(2107));
    let note = run.notes.iter().find(|n| n.id == "tokens-as-requested").unwrap();
    assert!(note.text.contains("10 answers"), "{}", note.text);
    let Values::Number(written) = &run.column("output_tokens_as_written").unwrap().values else {
        panic!()
    };
    assert_eq!(written.iter().flatten().sum::<f64>().to_bits(), 2107.0_f64.to_bits());
    assert_eq!((run.timelines[6].output_tokens(), written[6]), (Some(1), Some(28.0)));
    assert_eq!(
        ids(run),
        ["tokens-as-requested", "gaps-look-per-token", "cut-in-mid-stream", "e2e-from-gaps"]
    );
    // Where the totals agree, nothing is changed.
    assert!(sample("native-c8").runs[0].column("output_tokens_as_written").is_none());
}

#[test]
fn settings_and_nested_figures_are_kept() {
    let file = sample("native-c8");
    let run = &file.runs[0];
    assert_eq!(run.declared.request_rate, Some(RequestRate::Infinite));
    assert_eq!(run.declared.max_concurrency, Some(8));
    assert_eq!(run.declared.backend.as_deref(), Some("sglang"));
    assert_eq!(run.stated.get("slo_attainment_by_metric.tpot"), Some(0.8));
    assert_eq!(run.stated.get("cache_report.total_prompt_tokens"), Some(3077.0));
    assert_eq!(run.stated.get("accept_length"), None);
    let of = |key: &str| run.declared.metadata.iter().find(|(k, _)| k == key).unwrap().1.clone();
    assert_eq!(of("goodput_slos_ms"), r#"{"ttft":100.0,"tpot":15.0,"e2el":500.0}"#);
    assert_eq!(of("dataset_name"), "random-ids");
    let Values::Number(cached) = &run.column("cached_tokens").unwrap().values else { panic!() };
    assert_eq!(cached.len(), 60);
    let note = run.notes.iter().find(|n| n.id == "input-tokens-differ").unwrap();
    insta::assert_snapshot!(note.text, @"`total_input_tokens` says 2772, `input_lens` of the completed requests 3077: the latter, which the server may have counted, is taken");
}

/// Runs are appended; bare words of Python are no JSON.
#[test]
fn appended_runs_with_bare_infinity_are_runs() {
    let all: String = SAMPLES
        .map(|n| std::fs::read_to_string(fixture(&format!("{n}.jsonl"))).unwrap())
        .iter()
        .map(|t| format!("{}\n", t.trim_end()))
        .collect();
    let file = text(&all);
    assert_eq!(file.runs.iter().map(|r| r.line).collect::<Vec<_>>(), [1, 2, 3]);
    for (run, name) in file.runs.iter().zip(SAMPLES) {
        assert_eq!(run.timelines, sample(name).runs[0].timelines);
    }
    let file = text(&format!(r#"{{{HEAD}, "mean_ttft_ms": NaN, "p99_itl_ms": -Infinity}}"#));
    let run = &file.runs[0];
    assert_eq!(ids(run), ["figures-not-finite"]);
    assert!(run.notes[0].text.ends_with("`mean_ttft_ms`, `p99_itl_ms`"), "{}", run.notes[0].text);
}

const HEAD: &str = r#""backend": "sglang-oai", "dataset_name": "random", "request_rate": Infinity,
    "server_info": {"model_path": "m", "version": "0.5.23"}, "duration": 2.0, "completed": 2,
    "total_output_tokens": 4, "total_output_tokens_retokenized": 4"#;

#[test]
fn without_details_the_file_gives_stated_figures_only() {
    let file = text(&format!(r#"{{{HEAD}, "mean_ttft_ms": 5.0, "accept_length": null}}"#));
    let run = &file.runs[0];
    assert!(!run.has_requests());
    assert_eq!(run.stated.get("mean_ttft_ms"), Some(5.0));
    assert_eq!(run.declared.model.as_deref(), Some("m"));
    assert!(run.declared.metadata.contains(&("server_version".to_owned(), "0.5.23".to_owned())));
    let missing: Vec<_> = run.missing.iter().map(|m| m.what).collect();
    insta::assert_snapshot!(missing.join("\n"), @"
    ttft per request
    output tokens and tpot per request
    gaps between outputs
    e2e latency per request
    failed requests
    arrivals, and with them concurrency over time
    queue time in the server
    ");
}

/// Speculative decoding: 4 and 2 tokens in 2 and 1 chunks behind the first.
#[test]
fn fewer_chunks_than_tokens_are_gaps_between_chunks() {
    let file = text(&format!(
        r#"{{{HEAD}, "input_lens": [1, 1], "output_lens": [5, 3], "ttfts": [0.5, 0.25],
            "itls": [[0.25, 0.125], [0.5]], "errors": ["", ""]}}"#
    ));
    let run = &file.runs[0];
    assert_eq!(ids(run), ["gaps-per-chunk", "e2e-from-gaps", "counts-disagree"]);
    assert!(completed(run).all(|t| matches!(t.gaps(), Some(Gaps::Chunk(_)))));
    let e2e: Vec<_> = completed(run).map(|t| t.e2e_latency().unwrap().get()).collect();
    assert_eq!(e2e, [0.875, 0.75]);
}

#[test]
fn an_answer_in_one_piece_has_no_ttft() {
    let arrays = r#""input_lens": [1, 1], "output_lens": [3, 1], "ttfts": [0.5, 0.25],
        "itls": [[], []], "errors": ["", ""]"#;
    let file = text(&format!("{{{HEAD}, {arrays}}}"));
    let run = &file.runs[0];
    assert!(ids(run).contains(&"not-streamed"), "{:?}", ids(run));
    let first = &run.timelines[0];
    assert_eq!((first.ttft(), first.e2e_latency()), (None, Seconds::new(0.5).ok()));
    // With one token, first and last are the same.
    assert_eq!(run.timelines[1].ttft(), Seconds::new(0.25).ok());
    assert!(run.column("ttft_as_written_s").is_some());
}

#[test]
fn what_is_wrong_is_named_with_key_and_index() {
    let with = |keys: &str| error(&format!("{{{HEAD}, {keys}}}"));
    insta::assert_snapshot!(with(r#""ttfts": [0.5, NaN]"#), @"r.jsonl, line 1, `ttfts[1]`: found NaN, expected a number of seconds");
    insta::assert_snapshot!(with(r#""ttfts": [0.5, -1]"#), @"r.jsonl, line 1, `ttfts[1]`: ttft must be at least 0, got -1");
    insta::assert_snapshot!(with(r#""ttfts": [0.5], "errors": ["", ""]"#), @"r.jsonl, line 1, `errors`: holds 2 values, expected 1 as in `ttfts`");
    insta::assert_snapshot!(with(r#""mean_ttft_ms": "fast""#), @r#"r.jsonl, line 1, `mean_ttft_ms`: found "fast", expected a number, as the tool computed it"#);
    insta::assert_snapshot!(with(r#""cached_tokens": [1.5]"#), @"r.jsonl, line 1, `cached_tokens[0]`: found 1.5, expected a whole number from 0 to 2^53");
    insta::assert_snapshot!(with(r#""cache_report": 7"#), @"r.jsonl, line 1, `cache_report`: found 7, expected an object, or null");
    let cut = format!("{{{HEAD}, \"ttfts\": [0.5");
    insta::assert_snapshot!(error(&cut), @"r.jsonl, line 3: ends in the middle of a JSON object, expected the rest of it: is it truncated?");
    let rate = HEAD.replace("\"request_rate\": Infinity", "\"request_rate\": NaN");
    insta::assert_snapshot!(error(&format!("{{{rate}}}")), @"r.jsonl, line 1, `request_rate`: found NaN, expected a number above 0, or Infinity");
}
