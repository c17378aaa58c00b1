//! Summaries of MLPerf's loadgen, measurements of LLM-Pilot, and tables of known layouts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use metrics_core::slo::SloSet;
use metrics_core::table::RequestTable;
use metrics_core::timeline::Gaps;
use metrics_core::validity::{Subject, Verdict, findings};
use metrics_core::{Outcome, Seconds};
use serving_io::run::{Clock, RequestRate, Values};
use serving_io::{Format, Options, ReadFile, Run, read, read_path};

const SUMMARY: &str = include_str!("data/mlperf/mlperf_log_summary.txt");

fn text(content: &str) -> ReadFile {
    read("f", Cursor::new(content.as_bytes().to_vec()), &Options::default()).unwrap()
}

fn error(content: &str) -> String {
    read("f", Cursor::new(content.as_bytes().to_vec()), &Options::default())
        .unwrap_err()
        .to_string()
}

fn ids(run: &Run) -> Vec<&str> {
    run.notes.iter().map(|n| n.id).collect()
}

fn numbers(run: &Run, column: &str) -> Vec<Option<f64>> {
    let Values::Number(values) = &run.column(column).unwrap().values else { panic!() };
    values.clone()
}

#[test]
fn a_loadgen_summary_is_stated_figures() {
    let file = text(SUMMARY);
    let run = &file.runs[0];
    assert_eq!((file.format, file.runs.len(), run.has_requests()), (Format::Mlperf, 1, false));
    for (name, value) in [
        ("Completed samples per second", 11.9),
        ("Completed tokens per second", 3500.25),
        ("99.00 percentile first token latency (ns)", 2.1e9),
        ("99.00 percentile time to output token (ns)", 1.5e8),
        ("Scheduled samples per second", 12.05),
    ] {
        assert_eq!(run.stated.get(name), Some(value), "{name}");
    }
    assert_eq!(run.stated.len(), 14, "a figure that stands twice is taken once");
    assert_eq!(run.declared.request_rate, Some(RequestRate::PerSecond(12.0)));
    assert_eq!(run.declared.label.as_deref(), Some("ExampleSUT"));
    let remarks = run.declared.metadata.iter().find(|(k, _)| k == "remarks").unwrap();
    assert!(remarks.1.contains("* Reduce target QPS to improve latency."), "{remarks:?}");
    assert_eq!(ids(run), ["result-invalid"]);
    assert_snapshot!(run.notes[0].text, @"loadgen itself does not accept the run: `Result is: INVALID`, `Performance constraints satisfied: NO`");
    assert!(run.missing.iter().any(|m| m.what == "how many requests there were"));
    // What the tool says of its run reaches the verdict.
    let facts = serving_io::evidence::facts(run, &RequestTable::default(), &SloSet::none(), None);
    let found = findings(&facts);
    let f = found.iter().find(|f| f.check.id == "W39").unwrap();
    assert_eq!(f.says, run.notes[0].text);
    assert_eq!(
        Verdict::of(&found, &facts.subjects()).is_usable_for(Subject::Throughput),
        Some(false)
    );
}

#[test]
fn summaries_behind_each_other_are_runs() {
    let file = text(&format!("\u{feff}{SUMMARY}\r\n{SUMMARY}"));
    assert_eq!(file.runs.iter().map(|r| r.line).collect::<Vec<_>>(), [2, 55]);
    assert_eq!(file.runs[0].stated, file.runs[1].stated);
    // A cut summary says so, and a figure in both sections that differs is kept twice.
    let cut = SUMMARY.split("No errors").next().unwrap();
    let differs = cut.replacen("second: 3500.25", "second: 3400", 1);
    let run = &text(&differs).runs[0];
    assert_eq!(ids(run), ["log-ends-early", "result-invalid"]);
    assert_eq!(run.stated.get("Completed tokens per second (additional)"), Some(3500.25));
}

#[test]
fn a_damaged_summary_is_named_by_its_line() {
    let broken = SUMMARY.replace("55000000000", "55s");
    assert_snapshot!(error(&broken), @"f, line 29, `99.00 percentile latency (ns)`: found `55s`, expected a number");
    assert_snapshot!(error("====\nMLPerf Results Summary\n====\nScenario : Server\n"), @"f, line 2: holds no requests, expected the figures of a loadgen summary");
    assert_snapshot!(error(&SUMMARY.replace("target_qps : 12", "target_qps : no")), @"f, line 44, `target_qps`: found `no`, expected a number above 0");
}

const RAW: &str = "\
,smpnum,reqnum,errors,status,model,num_users,requests,latency_ms,records,n_gpus,gpu_type,start_timestamp,end_timestamp,experiment_duration_s,n_input_tokens,n_output_tokens,latency_ms_per_token,timestamps_per_token
0,0,0,[],200,m-7b,2,1,310.0,1,1,A100,1700000000000,1700000000310,120,39,3,\"[10, 200, 50, 50]\",\"[1, 2, 3, 4]\"
1,1,1,[],200,m-7b,2,1,91.0,1,1,A100,1700000000020,1700000000111.0,120,31.0,1.0,\"[15, 75]\",\"[1, 2]\"
2,2,2,\"['{\"\"code\"\":2}']\",408,m-7b,2,1,,,1,A100,1700000000400,1700000000900.0,120,,,\"[20, 300, 40]\",\"[1, 2, 3]\"
3,3,3,\"['{\"\"code\"\":2}']\",408,m-7b,2,1,,,1,A100,1700000000400,1700000000900.0,120,,,[20],[1]
4,0,0,[],200,m-7b,4,1,310.0,1,1,A100,1700000000000,1700000000310,120,39,4,\"[10, 200, 50, 50]\",\"[1, 2, 3, 4]\"
";

/// The first event has no token: 10 + 200 ms to the first one, then two gaps for three tokens.
#[test]
fn the_first_event_of_llm_pilot_carries_no_token() {
    let file = text(RAW);
    assert_eq!((file.format, file.runs.len()), (Format::LlmPilot, 2));
    let run = &file.runs[0];
    let first = &run.timelines[0];
    assert_eq!(
        (first.ttft(), first.e2e_latency()),
        (Seconds::new(0.21).ok(), Seconds::new(0.31).ok())
    );
    assert_eq!(first.arrival_s(), Some(1_700_000_000.0));
    assert!(matches!(first.gaps(), Some(Gaps::Token(gaps)) if gaps.len() == 2));
    assert!((first.tpot().unwrap().get() - 0.05).abs() < 1e-12);
    assert_eq!((run.clock, run.declared.max_concurrency), (Clock::Epoch, Some(2)));
    assert_eq!(run.declared.model.as_deref(), Some("m-7b"));
    assert_eq!(numbers(run, "first_event_ms"), [Some(10.0), Some(15.0), Some(20.0), Some(20.0)]);
    assert_eq!(numbers(run, "latency_ms")[..2], [Some(310.0), Some(91.0)]);
    // Two failed: one after its first token, one before.
    let failed: Vec<_> = run.timelines[2..].iter().map(|t| (t.outcome(), t.ttft())).collect();
    assert_eq!(failed, [(Outcome::Failed, Seconds::new(0.32).ok()), (Outcome::Failed, None)]);
    assert!(run.timelines[2].e2e_latency().is_none() && run.timelines[2].output_tokens().is_none());
    assert_eq!(
        ids(run),
        ["first-event-without-token", "gaps-look-per-token", "survivors-are-short"]
    );
    // The second run has four tokens for two gaps: chunks.
    let run = &file.runs[1];
    assert_eq!(run.declared.max_concurrency, Some(4));
    assert!(matches!(run.timelines[0].gaps(), Some(Gaps::Chunk(_))));
    assert_eq!(ids(run), ["first-event-without-token", "gaps-per-chunk"]);
}

#[test]
fn the_reduced_table_of_llm_pilot_is_a_run_for_each_number_of_users() {
    let file = text(
        "num_users,start_ms,end_ms,input_tokens,output_tokens,n_events,first_event_ms,ttft_ms,e2e_ms\n\
         1,1700000000000,1700000000310,39,3,4,10,210,310.0\n\
         2,1700000000000,1700000000091,31,1,2,15,90,91.0\n",
    );
    assert_eq!((file.format, file.runs.len()), (Format::LlmPilot, 2));
    let run = &file.runs[1];
    assert_eq!(ids(run), ["first-event-without-token", "one-token-in-several-chunks"]);
    assert_eq!(run.timelines[0].ttft(), Seconds::new(0.091).ok());
    assert_eq!(numbers(run, "ttft_as_written_s"), [Some(0.09)]);
    assert!(run.missing.iter().any(|m| m.what == "failed requests"));
}

#[test]
fn damaged_measurements_are_named_by_line_and_column() {
    assert_snapshot!(error(&RAW.replacen("[10, 200, 50, 50]", "[10, 200, 50", 1)), @"f, line 2, `latency_ms_per_token`: found `[10, 200, 50`, expected a list of milliseconds such as `[12, 140, 47]`");
    assert_snapshot!(error(&RAW.replacen("[10, 200, 50, 50]", "[10]", 1)), @"f, line 2, `latency_ms_per_token`: found `[10]`, expected two events or more for a request without an error");
    assert_snapshot!(error(&RAW.replacen("[10, 200, 50, 50]", "[10, 200, -50, 50]", 1)), @"f, line 2, `latency_ms_per_token`: a gap between outputs must be at least 0, got -0.05 (in seconds)");
    assert_snapshot!(error(&RAW.replacen(",39,3,", ",39,x,", 1)), @"f, line 2, `n_output_tokens`: found `x`, expected a whole number from 0 to 2^53");
    assert_snapshot!(error(&RAW.replacen("1700000000000,", "yesterday,", 1)), @"f, line 2, `start_timestamp`: found `yesterday`, expected a number of at least 0, or nothing");
    let header = RAW.lines().next().unwrap();
    assert_snapshot!(error(&format!("{header}\n")), @"f: holds no requests, expected at least one request");
}

#[test]
fn rows_of_llm_d_benchmark_are_runs_by_workload_and_rate() {
    let file = text(
        "workload,qps,prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,finish_time\n\
         chat,0.5,689.0,5.0,0.25,1.0,u1,,1700000000.5,1700000001.75\n\
         chat,0.5,13,1,0.25,0.125,,,1700000001.5,1700000001.875\n\
         chat,1.0,13,2,0.25,0.125,,,1700000001.5,1700000001.875\n",
    );
    assert_eq!((file.format, file.runs.len()), (Format::KnownTable, 2));
    let run = &file.runs[0];
    assert_eq!(run.declared.request_rate, Some(RequestRate::PerSecond(0.5)));
    assert_eq!(run.declared.label.as_deref(), Some("chat"));
    let [a, b] = &run.timelines[..] else { panic!() };
    assert_eq!((a.arrival_s(), a.input_tokens()), (Some(1_700_000_000.5), Some(689)));
    assert_eq!((a.e2e_latency(), b.ttft()), (Seconds::new(1.25).ok(), Seconds::new(0.375).ok()));
    assert_eq!(ids(run), ["one-token-in-several-chunks"]);
    let Values::Text(users) = &run.column("user_id").unwrap().values else { panic!() };
    assert_eq!(users, &[Some("u1".to_owned()), None]);
}

/// The tool counted requests without any answer as completed, and their TTFT as 0.
#[test]
fn rows_of_dstack_without_an_answer_failed() {
    let file = text(
        "input_len,output_len,ttft_s,sum_itl_s,n_itl,error\n13,5,0.5,1.0,4,False\n\
         9,0,0.0,0.0,0,False\n9,0,0.25,0.5,2,True\n",
    );
    let run = &file.runs[0];
    let all: Vec<_> = run.timelines.iter().map(|t| (t.outcome(), t.e2e_latency())).collect();
    assert_eq!(
        all,
        [
            (Outcome::Completed, Seconds::new(1.5).ok()),
            (Outcome::Failed, None),
            (Outcome::Failed, None)
        ]
    );
    assert_eq!(ids(run), ["failures-without-error", "cut-in-mid-stream", "e2e-from-gaps"]);
    assert_snapshot!(error("input_len,output_len,ttft_s,sum_itl_s,n_itl,error\n13,5,,1.0,4,False\n"), @"f, line 2, `ttft_s`: found nothing, expected a finite number");
    assert_snapshot!(error("input_len,output_len,ttft_s,sum_itl_s,n_itl,error\n13,5,1,1.0,4,maybe\n"), @"f, line 2, `error`: found `maybe`, expected `True` or `False`");
}

#[test]
fn a_row_of_a_table_of_summaries_is_a_run() {
    let file = text(
        "round,org,system,scenario,valid,target_qps,scheduled_sps,ttft_p99_ms,path\n\
         v9,A,8xGPU,Server,True,8.6,8.62,785.2,a/b\nv9,A,1xGPU,Server,False,1,1.1,,a/c\n",
    );
    assert_eq!(file.runs.len(), 2);
    assert_eq!(file.runs[0].stated.get("ttft_p99_ms"), Some(785.2));
    assert_eq!(file.runs[0].declared.label.as_deref(), Some("8xGPU"));
    assert_eq!(ids(&file.runs[1]), ["result-invalid"]);
    let file = text("model,users,n_ok,n_bad,dur_s,ttft_p99,tpot_p99\nm,8,90,2,120.3,154.2,25.0\n");
    let run = &file.runs[0];
    assert_eq!((run.counts.completed, run.counts.failed), (Some(90), Some(2)));
    assert_eq!((run.declared.max_concurrency, run.stated.get("ttft_p99")), (Some(8), Some(154.2)));
    assert_eq!(ids(run), ["survivors-are-short"]);
}

/// A column map overrules the layout.
#[test]
fn a_map_makes_it_a_table_of_any_kind() {
    let map = serving_io::ColumnMap::parse(["ttft_s=ttft_s", "output_tokens=output_len"]).unwrap();
    let csv = "input_len,output_len,ttft_s,sum_itl_s,n_itl,error\n13,5,0.5,1.0,4,False\n";
    let options = Options { map, format: None };
    let file = read("f", Cursor::new(csv.as_bytes().to_vec()), &options).unwrap();
    assert_eq!(file.format, Format::GenericCsv);
}

/// Public results of other people, where they lie beside the repository.
#[test]
fn published_tables_are_read() {
    let data = std::env::var_os("GOODPUT_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let mut found = 0;
    for (folder, format) in [
        ("dstack", Format::KnownTable),
        ("llm_d_benchmark", Format::KnownTable),
        ("llm_pilot", Format::LlmPilot),
        ("mlperf", Format::KnownTable),
    ] {
        let Ok(entries) = data.join("measured").join(folder).read_dir() else { continue };
        for path in entries.map(|e| e.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !path.extension().is_some_and(|e| e == "csv" || e == "gz") {
                continue;
            }
            let file = read_path(&path, &Options::default()).unwrap();
            let expected = if name == "summary.csv" { Format::KnownTable } else { format };
            assert_eq!(file.format, expected, "{name}");
            found += 1;
            // What the table next to it says of the same rows.
            if name.starts_with("llama-13b_gpu1_a100") {
                let users: Vec<_> = file
                    .runs
                    .iter()
                    .map(|r| (r.declared.max_concurrency.unwrap(), r.timelines.len()))
                    .collect();
                assert_eq!(users[..2], [(1, 246), (2, 457)]);
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
    } else {
        assert_eq!(found, 6 + 4 + 7 + 1);
    }
}
