//! Results of `vllm bench serve`: what is read equals what the tool and the server say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use metrics_core::timeline::Gaps;
use metrics_core::{Outcome, RequestTimeline, Seconds};
use serving_io::run::{Clock, RequestRate, Values};
use serving_io::{Format, Options, ReadFile, Run, read, read_path};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/vllm-0.33.0").join(name)
}

fn sample(name: &str) -> ReadFile {
    read_path(&fixture(name), &Options::default()).unwrap()
}

fn text(content: &str) -> ReadFile {
    read("result.json", Cursor::new(content.as_bytes().to_vec()), &Options::default()).unwrap()
}

fn completed(run: &Run) -> impl Iterator<Item = &RequestTimeline> {
    run.timelines.iter().filter(|t| t.outcome() == Outcome::Completed)
}

fn ids(run: &Run) -> Vec<&str> {
    run.notes.iter().map(|n| n.id).collect()
}

/// The four samples of a run, in ms: TTFT, TPOT of answers with at least two tokens, gaps, E2E.
fn samples(run: &Run) -> [(&'static str, Vec<f64>); 4] {
    let ms = |s: Option<Seconds>| s.map(Seconds::as_millis);
    let ttft = completed(run).filter_map(|t| ms(t.ttft())).collect();
    let tpot = completed(run)
        .filter(|t| t.output_tokens().is_some_and(|n| 2 <= n))
        .filter_map(|t| t.tpot().map(|x| x.get() * 1e3))
        .collect();
    let itl = completed(run)
        .filter_map(RequestTimeline::gaps)
        .flat_map(|g| g.values().iter().map(|s| s.as_millis()))
        .collect();
    let e2e = completed(run).filter_map(|t| ms(t.e2e_latency())).collect();
    [("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2el", e2e)]
}

/// numpy's default percentile: linear between order statistics.
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let position = p / 100.0 * (sorted.len() - 1) as f64;
    let below = position.floor();
    // Both are indexes of the sample.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let (a, b) = (sorted[below as usize], sorted[position.ceil() as usize]);
    a + (b - a) * (position - below)
}

/// The figure of that name from the sample itself.
fn own(name: &str, values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    match name {
        "mean" => Some(mean),
        "median" => Some(percentile(&sorted, 50.0)),
        "std" => Some((values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt()),
        _ => Some(percentile(&sorted, name.strip_prefix('p')?.parse().ok()?)),
    }
}

fn close(a: f64, b: f64) -> bool {
    // The tool sums in another order: 1e-9 is far above that and far below any digit it prints.
    (a - b).abs() <= 1e-9 * b.abs()
}

/// Compares every latency figure of the file that `metrics` allow; says how many there were.
fn stated_figures_hold(run: &Run, metrics: &[&str]) -> usize {
    let mut compared = 0;
    for (metric, values) in samples(run).iter().filter(|(m, _)| metrics.contains(m)) {
        for (name, stated) in run.stated.iter() {
            let Some(which) = name.strip_suffix(&format!("_{metric}_ms")) else { continue };
            let own = own(which, values).unwrap();
            assert!(close(own, stated), "{name}: {own} against {stated}");
            compared += 1;
        }
    }
    let duration = run.duration.unwrap().value.get();
    let stated = run.stated.get("request_throughput").unwrap();
    assert!(close(completed(run).count() as f64 / duration, stated));
    compared
}

#[test]
fn every_sample_gives_the_figures_that_the_tool_printed() {
    let all = ["ttft", "tpot", "itl", "e2el"];
    for (file, runs, figures) in [
        ("rate20-fail.json", 1, 4 * 7),
        ("closed-c8.json", 1, 4 * 10),
        ("chat-chunk4.json", 1, 4 * 7),
        ("preempt.json", 1, 4 * 7),
        ("append2.json", 2, 4 * 7),
    ] {
        let read = sample(file);
        assert_eq!((read.format, read.runs.len()), (Format::Vllm, runs), "{file}");
        for run in &read.runs {
            assert_eq!(stated_figures_hold(run, &all), figures, "{file}");
            assert_eq!(run.counts.completed, Some(completed(run).count() as u64));
            let tokens = completed(run).map(|t| t.output_tokens().unwrap()).sum();
            assert_eq!(run.counts.total_output_tokens, Some(tokens));
            let tokens = completed(run).map(|t| t.input_tokens().unwrap()).sum();
            assert_eq!(run.counts.total_input_tokens, Some(tokens));
            assert!(!ids(run).contains(&"counts-disagree"));
            assert!(!ids(run).contains(&"latency-beyond-last-chunk"));
        }
    }
}

/// The counts and figures of the tool's printed summary, and of its `--goodput ttft:150 tpot:15`.
#[test]
fn the_run_with_failures_has_the_counts_of_its_summary() {
    let file = sample("rate20-fail.json");
    let run = &file.runs[0];
    let of = |o| run.timelines.iter().filter(|t| t.outcome() == o).count();
    assert_eq!((of(Outcome::Completed), of(Outcome::Failed), run.timelines.len()), (104, 16, 120));
    assert_eq!((run.counts.completed, run.counts.failed), (Some(104), Some(16)));

    let [(_, ttft), (_, tpot), ..] = samples(run);
    assert_eq!((ttft.len(), tpot.len()), (104, 88));
    let rounded = |values: &[f64]| format!("{:.2}", own("mean", values).unwrap());
    assert_eq!((rounded(&ttft), rounded(&tpot)), ("145.92".to_owned(), "20.38".to_owned()));

    let good = completed(run)
        .filter_map(RequestTimeline::metrics)
        .filter(|m| m.ttft.get() <= 0.150 && m.tpot.get() <= 0.015)
        .count();
    assert_eq!(good, 25);
    let duration = run.duration.unwrap().value.get();
    assert!(close(good as f64 / duration, run.stated.get("request_goodput").unwrap()));
    assert_eq!(format!("{duration:.2}"), "6.52");

    assert_eq!(run.declared.request_rate, Some(RequestRate::PerSecond(20.0)));
    assert_eq!(run.declared.max_concurrency, None);
    assert_eq!(run.declared.model.as_deref(), Some("mock-model"));
    assert_eq!(run.clock, Clock::Monotonic);
}

/// Six answers were cut after some chunks, ten requests got an HTTP error and nothing else.
#[test]
fn a_cut_request_keeps_its_ttft_and_nothing_that_the_tool_zeroed() {
    let file = sample("rate20-fail.json");
    let failed: Vec<_> =
        file.runs[0].timelines.iter().filter(|t| t.outcome() == Outcome::Failed).collect();
    let cut: Vec<_> = failed.iter().filter(|t| t.ttft().is_some()).collect();
    assert_eq!((failed.len(), cut.len()), (16, 6));
    for t in &cut {
        assert!(matches!(t.gaps(), Some(Gaps::Chunk(gaps)) if !gaps.is_empty()));
    }
    for t in &failed {
        assert_eq!((t.e2e_latency(), t.output_tokens(), t.metrics()), (None, None, None));
        assert!(t.arrival().is_some() && t.input_tokens().is_some());
    }
    let Values::Text(errors) = &file.runs[0].column("error").unwrap().values else { panic!() };
    assert_eq!(errors.iter().flatten().count(), 16);
    assert_eq!(errors[10].as_deref(), Some("Internal Server Error"));
}

/// The server wrote what it did on the client's clock: sent before it arrived, and every token
/// left the server before it reached the client.
#[test]
fn the_server_saw_the_same_requests() {
    for name in ["rate20-fail", "closed-c8", "chat-chunk4"] {
        let file = sample(&format!("{name}.json"));
        let mut client: Vec<_> = file.runs[0].timelines.iter().collect();
        client.sort_by(|a, b| a.arrival_s().unwrap().total_cmp(&b.arrival_s().unwrap()));
        let log = std::fs::read_to_string(fixture(&format!("{name}.server.jsonl"))).unwrap();
        let rows = log.lines().map(|l| serde_json::from_str(l).unwrap());
        let mut server: Vec<serde_json::Value> = rows.collect();
        server.sort_by(|a, b| {
            a["arrival"].as_f64().unwrap().total_cmp(&b["arrival"].as_f64().unwrap())
        });
        assert_eq!(client.len(), server.len(), "{name}");
        // Requests sent within a millisecond may arrive in another order: they are told apart by
        // their prompt and answer, and the first arrival after the send is taken.
        for c in client {
            let sent = c.arrival_s().unwrap();
            let ok = c.outcome() == Outcome::Completed;
            let same = |s: &&serde_json::Value| {
                sent <= s["arrival"].as_f64().unwrap()
                    && s["prompt_tokens"].as_u64() == c.input_tokens()
                    && (s["status"] == "ok") == ok
                    && (!ok || s["output_tokens"].as_u64() == c.output_tokens())
            };
            let found = server.iter().position(|s| same(&s)).expect("a request at the server");
            let s = server.remove(found);
            let at = |key: &str| s[key].as_f64();
            if let (Some(ttft), Some(first)) = (c.ttft(), at("first_token")) {
                assert!(first <= sent + ttft.get(), "{name} {}", c.id());
            }
            if let (Some(e2e), Some(last)) = (c.e2e_latency(), at("last_token")) {
                assert!(last <= sent + e2e.get(), "{name} {}", c.id());
            }
        }
    }
}

#[test]
fn appended_results_are_runs_of_their_own() {
    let file = sample("append2.json");
    let limits: Vec<_> = file.runs.iter().map(|r| r.declared.max_concurrency).collect();
    assert_eq!(limits, [Some(2), Some(6)]);
    assert_eq!(file.runs.iter().map(|r| r.line).collect::<Vec<_>>(), [1, 2]);
    for run in &file.runs {
        assert_eq!(run.declared.request_rate, Some(RequestRate::Infinite));
        let metadata = |key: &str| run.declared.metadata.iter().find(|(k, _)| k == key);
        assert_eq!(metadata("tp").map(|(_, v)| v.as_str()), Some("1"));
        assert_eq!(metadata("note").map(|(_, v)| v.as_str()), Some("sweep"));
    }
}

#[test]
fn a_pretty_printed_result_is_the_same_run() {
    let plain = std::fs::read_to_string(fixture("append2.json")).unwrap();
    let mut pretty = String::from("\u{feff}\n");
    for line in plain.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        pretty += &serde_json::to_string_pretty(&value).unwrap().replace('\n', "\r\n");
        pretty += "\r\n";
    }
    let (a, b) = (text(&plain).runs, text(&pretty).runs);
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a.timelines, b.timelines);
        assert!(1 < b.line);
    }
}

/// Without `--save-detailed` version 0.33 leaves latencies and client delays: E2E and failures are
/// known per request, the rest only as stated figures.
#[test]
fn without_detail_the_file_still_gives_e2e_and_failures() {
    let file = sample("nodetail.json");
    let run = &file.runs[0];
    assert_eq!(stated_figures_hold(run, &["e2el"]), 7);
    assert_eq!((completed(run).count(), run.timelines.len()), (27, 30));
    assert!(run.timelines.iter().all(|t| t.ttft().is_none() && t.arrival().is_none()));
    assert!(run.stated.get("mean_ttft_ms").is_some());
    assert_eq!(run.clock, Clock::Unknown);
    let missing: Vec<_> = run.missing.iter().map(|m| m.what).collect();
    insta::assert_snapshot!(missing.join("\n"), @"
    ttft per request
    output tokens and tpot per request
    gaps between outputs
    arrivals, and with them concurrency over time
    queue time in the server
    ");
    assert!(run.missing[0].with.contains("--save-detailed"));
}

/// 50 requests per second were due but at most 4 in flight: the client held them back.
#[test]
fn waiting_in_the_client_is_said_and_in_no_latency() {
    let file = sample("nodetail.json");
    let run = &file.runs[0];
    let note = run.notes.iter().find(|n| n.id == "client-delay").unwrap();
    assert!(note.affects.contains(&"ttft"), "{note:?}");
    let Values::Number(delays) = &run.column("client_delay_s").unwrap().values else { panic!() };
    let longest = delays.iter().flatten().copied().fold(0.0, f64::max);
    assert!(0.7 < longest && note.text.contains(&format!("{longest:.3} s")), "{}", note.text);
    // In a closed loop everything is due at once, and the wait is the design.
    let closed = sample("append2.json");
    assert_eq!(ids(&closed.runs[0]), ["gaps-look-per-token"]);
    assert!(closed.runs[0].column("client_delay_s").is_some());
}

#[test]
fn gaps_are_per_token_only_where_every_answer_says_so() {
    for (file, token) in [("rate20-fail.json", true), ("chat-chunk4.json", false)] {
        let read = sample(file);
        let run = &read.runs[0];
        assert!(completed(run).all(|t| matches!(t.gaps(), Some(Gaps::Token(_))) == token));
        assert_eq!(ids(run).contains(&"gaps-look-per-token"), token);
        assert_eq!(ids(run).contains(&"gaps-per-chunk"), !token);
    }
}

const HEAD: &str = r#""date": "20240501-120000", "backend": "vllm", "model_id": "m", "tokenizer_id": "m",
    "best_of": 1, "num_prompts": 2, "request_rate": "inf", "duration": 2.0, "completed": 2,
    "total_input_tokens": 20, "total_output_tokens": 4, "request_goodput:": 0.5"#;

/// Before 2025 there were no latencies, start times, failed counts or client delays.
#[test]
fn an_old_file_gives_e2e_from_its_gaps() {
    let file = text(&format!(
        r#"{{{HEAD}, "input_lens": [10, 10], "output_lens": [3, 1], "ttfts": [0.5, 0.25],
            "itls": [[0.25, 0.125], []], "generated_texts": ["\ud800", ""], "errors": ["", ""]}}"#
    ));
    let run = &file.runs[0];
    let e2e: Vec<_> = run.timelines.iter().map(|t| t.e2e_latency().unwrap().get()).collect();
    assert_eq!(e2e, [0.875, 0.25]);
    assert_eq!(ids(run), ["gaps-look-per-token", "e2e-from-gaps"]);
    assert_eq!(run.clock, Clock::Unknown);
    assert_eq!(run.counts.failed, None);
    assert_eq!(run.stated.get("request_goodput"), Some(0.5));
    assert_eq!(run.declared.burstiness, None);
    assert!(run.tool.age.as_ref().unwrap().contains("older"));
}

/// A role-only first chunk and then the one token: TTFT is not before the token.
#[test]
fn a_one_token_answer_in_two_chunks_is_never_better_than_the_truth() {
    let file = text(&format!(
        r#"{{{HEAD}, "input_lens": [10, 10], "output_lens": [3, 1], "ttfts": [0.5, 0.25],
            "itls": [[0.25, 0.125], [0.5]], "latencies": [0.875, 0.75], "errors": ["", ""]}}"#
    ));
    let run = &file.runs[0];
    let one = &run.timelines[1];
    assert_eq!((one.ttft(), one.e2e_latency()), (one.e2e_latency(), Seconds::new(0.75).ok()));
    assert_eq!(ids(run), ["gaps-per-chunk", "one-token-in-several-chunks"]);
    let written = &run.column("ttft_as_written_s").unwrap().values;
    assert_eq!(*written, Values::Number(vec![Some(0.5), Some(0.25)]));
}

#[test]
fn failures_without_an_error_text_and_odd_answers_are_told_apart() {
    let head = HEAD.replace("num_prompts\": 2", "num_prompts\": 4");
    let head = head.replace("total_input_tokens\": 20", "total_input_tokens\": 2");
    let file = text(&format!(
        r#"{{{head}, "input_lens": [1, 1, 1, 1], "output_lens": [0, 0, 0, 7],
            "ttfts": [0.0, 0.5, 0.5, 0.0], "itls": [[], [0.25], [0.25], []],
            "latencies": [0.0, 0.0, 0.75, 3.0], "errors": ["", "", "", ""],
            "start_times": [0.0, 0.0, 0.0, 0.0]}}"#
    ));
    let run = &file.runs[0];
    let outcomes: Vec<_> = run.timelines.iter().map(|t| t.outcome().name()).collect();
    assert_eq!(outcomes, ["failed", "failed", "completed", "completed"]);
    assert_eq!(run.timelines[2].output_tokens(), None);
    assert_eq!(run.timelines[3].ttft(), None);
    assert_eq!(run.timelines[3].e2e_latency(), Seconds::new(3.0).ok());
    assert!(run.timelines.iter().all(|t| t.arrival().is_none()), "0.0 is no stamp");
    assert_eq!(ids(run), ["gaps-per-chunk", "no-tokens", "not-streamed", "cut-in-mid-stream"]);
}

/// `--burstiness inf` sends at equal gaps; Python writes it as a word that is not JSON.
#[test]
fn an_infinite_burstiness_is_read() {
    let file = text(&format!(
        r#"{{{HEAD}, "burstiness": Infinity, "generated_texts": ["\"burstiness\": Infinity"]}}"#
    ));
    assert_eq!(file.runs[0].declared.burstiness, Some(f64::INFINITY));
    assert!(!file.runs[0].has_requests());
}

#[test]
fn counts_that_contradict_the_requests_are_said() {
    let file =
        text(&format!(r#"{{{HEAD}, "failed": 0, "ttfts": [0.5, 0.0], "errors": ["", "boom"]}}"#));
    let note = file.runs[0].notes.iter().find(|n| n.id == "counts-disagree").unwrap();
    insta::assert_snapshot!(note.text, @"`completed` says 2, the requests 1; `failed` says 0, the requests 1");
}

/// Public results of other people, where they lie beside the repository.
#[test]
fn public_results_of_older_versions_are_read() {
    let data = std::env::var_os("GOODPUT_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let mut found = 0;
    for folder in ["dstack", "llm_d_benchmark/exp-7_A100", "llm_d_benchmark/exp-7_H100"] {
        let Ok(entries) = data.join("measured").join(folder).read_dir() else { continue };
        for path in entries.map(|e| e.unwrap().path()) {
            if path.extension().is_some_and(|e| e == "json") {
                let file = read_path(&path, &Options::default()).unwrap();
                assert!(file.runs.iter().all(|r| r.stated.get("mean_ttft_ms").is_some()));
                found += 1;
            }
        }
    }
    if found == 0 {
        // Written past the test runner's capture, so that a plain run shows it.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no public results under {} (set GOODPUT_DATA)",
            data.display()
        );
    }
}

/// Python writes a mean of nothing as `NaN`; the other figures stand. A limit of 0 is none, as the
/// client takes it.
#[test]
fn a_figure_that_is_no_finite_number_is_left_out_and_said() {
    let file = text(&format!(
        r#"{{{HEAD}, "mean_ttft_ms": NaN, "p99_ttft_ms": Infinity, "median_ttft_ms": 5, "max_concurrency": 0}}"#
    ));
    let [run] = &file.runs[..] else { panic!("one run") };
    assert_eq!(run.stated.get("median_ttft_ms"), Some(5.0));
    assert_eq!((run.stated.get("mean_ttft_ms"), run.declared.max_concurrency), (None, None));
    let note = run.notes.iter().find(|n| n.id == "figures-not-finite").unwrap();
    assert_eq!(note.text, "no finite number, left out: `mean_ttft_ms`, `p99_ttft_ms`");
}

/// A file that states other counts than its requests have, or another mean TTFT, says so.
#[test]
fn figures_that_the_requests_contradict_are_named() {
    let text_of = std::fs::read_to_string(fixture("closed-c8.json")).unwrap();
    let sound: serde_json::Value = serde_json::from_str(&text_of).unwrap();
    let said = |key: &str, value: f64| {
        let mut changed = sound.clone();
        changed[key] = value.into();
        let read = text(&changed.to_string());
        let note = read.runs[0].notes.iter().find(|n| n.id == "counts-disagree").cloned();
        note.map(|n| n.text)
    };
    let mean = sound["mean_ttft_ms"].as_f64().unwrap();
    let sent = sound["num_prompts"].as_f64().unwrap();
    let begins = |key: &str, value: f64| {
        said(key, value).is_some_and(|t| t.starts_with(&format!("`{key}` says {value}, ")))
    };
    assert!(begins("mean_ttft_ms", 1.0) && begins("total_input_tokens", 1.0));
    assert!(begins("num_prompts", 5.0));
    // Rounding and what a tool leaves out move a mean by less; a data set may be short of prompts.
    assert_eq!((said("mean_ttft_ms", 1.09 * mean), said("num_prompts", 2.0 * sent)), (None, None));
    assert!(said("mean_ttft_ms", 1.2 * mean).is_some());
}
