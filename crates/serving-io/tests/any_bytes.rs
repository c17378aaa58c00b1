//! Whatever a file holds, reading it gives runs or an error of one line; never a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;

use proptest::prelude::*;
use serving_io::scenario::Scenario;
use serving_io::trace::{TraceFormat, TraceMap, TraceOptions, read_trace};
use serving_io::{ColumnMap, Format, Options, read};

const VALID: [&str; 18] = [
    include_str!("data/vllm-0.33.0/nodetail.json"),
    r#"{"model_id": "m", "num_prompts": 2, "request_rate": "inf", "duration": 2.0, "completed": 2,
       "input_lens": [10, 10], "output_lens": [3, 1], "ttfts": [0.5, 0.25], "itls": [[0.25, 0.1], []],
       "latencies": [0.85, 0.25], "start_times": [5.0, 6.0], "errors": ["", "x"]}"#,
    "{\"schema_version\": 1, \"kind\": \"goodput-timelines\", \"duration_ps\": \"5\"}\n{\"id\": 1, \"arrival_ps\": \"12345\", \"token_s\": [1, 2], \"output_tokens\": 2}\n",
    "{\"ttft_ms\": 5, \"e2e_ms\": 7, \"outcome\": \"ok\"}\n{\"ttft_ms\": null, \"outcome\": 500}\n",
    "id,arrival_s,ttft_ms,tpot_ms,output_tokens,outcome\n\"a\",1.5,5,2,3,ok\n\"b\",2.5,,,0,error\n",
    "arrival_ns;first_token_ns;last_token_ns\n1700000000123456789;1700000000223456789;1700000000323456789\n",
    "id,arrival_s,ttft_ms,input_tokens,output_tokens,outcome\na,1.5,5,2,3,ok\nb,1e1,5,2,1,ok\n",
    "{\"arrival_s\": 1.5e0, \"ttft_ms\": 5, \"input_tokens\": 2, \"output_tokens\": 3, \"outcome\": \"ok\"}\n",
    "{\"schema_version\": 1, \"kind\": \"goodput-timelines\", \"epoch_s\": 5.5}\n{\"id\": 1, \"arrival_ps\": \"12345\", \"ttft_s\": 1, \"input_tokens\": 1, \"output_tokens\": 2}\n",
    r#"{"backend": "sglang-oai", "dataset_name": "random", "request_rate": Infinity, "server_info": {},
       "duration": 2.0, "completed": 2, "total_output_tokens": 9, "total_output_tokens_retokenized": 4,
       "mean_ttft_ms": NaN, "cache_report": {"x": 1}, "input_lens": [1, 1], "output_lens": [3, 6],
       "ttfts": [0.5, 0.25], "itls": [[0.25, 0.1], []], "errors": ["", ""], "cached_tokens": [0, null]}"#,
    "# TYPE vllm:x histogram\nvllm:request_queue_time_seconds_bucket{le=\"0.3\",model_name=\"m\"} 2\nvllm:request_queue_time_seconds_bucket{le=\"+Inf\",model_name=\"m\"} 3.0 5 # {t=\"a\\\"\"} 1 2\nvllm:request_queue_time_seconds_sum{model_name=\"m\"} 1\nvllm:request_queue_time_seconds_count{model_name=\"m\"} 3\nvllm:num_requests_running NaN\n# EOF\n",
    r#"[{"error_code": null, "error_msg": "", "ttft_s": 0.25, "end_to_end_latency_s": 0.5, "inter_token_latency_s": 0.1,
       "number_output_tokens": 1, "number_input_tokens": 9}, {"error_code": 500, "end_to_end_latency_s": null}]"#,
    r#"{"model": "m", "num_concurrent_requests": 4, "results_inter_token_latency_s_mean": 0.5, "results_x_min": "275"}"#,
    include_str!("data/mlperf/mlperf_log_summary.txt"),
    "num_users,errors,status,start_timestamp,n_input_tokens,n_output_tokens,latency_ms_per_token\n1,[],200,17,39,3,\"[10, 200, 50, 50]\"\n1,['x'],408,18,,,[10]\n",
    "num_users,start_ms,input_tokens,output_tokens,first_event_ms,ttft_ms,e2e_ms\n1,17,39,3,10,210,310.0\n2,17,31,1,15,90,91.0\n",
    "workload,qps,prompt_tokens,generation_tokens,ttft,generation_time,launch_time,finish_time\nchat,0.5,689.0,5.0,0.25,1.0,17.5,18.75\n",
    "input_len,output_len,ttft_s,sum_itl_s,n_itl,error\n13,5,0.5,1.0,4,False\n9,0,0.0,0.0,0,False\n",
];

const TRACES: [&str; 4] = [
    include_str!("data/traces/azure-form.csv"),
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,5,6\n2024-05-10 00:00:01-08:30,7,8\n",
    "id;arrival_us;input_tokens;output_tokens\na;1.5;2;3\nb;1e1;2;0\n",
    "{\"arrival\": \"2030-01-01T00:00:00Z\", \"input_tokens\": 1, \"output_tokens\": 2.0}\n",
];

const SCENARIO: &str = include_str!("../../../scenarios/larger-chunk.toml");

/// A trace is a workload or an error of one line, and so is a scenario.
fn traces_never_panic(bytes: &[u8]) {
    let map = ["arrival_s=arrival_s", "input_tokens=input_tokens", "output_tokens=output_tokens"];
    let map = TraceMap::parse(map).unwrap();
    let forced = TraceFormat::ALL.map(|f| TraceOptions { format: Some(f), ..Default::default() });
    let others = [TraceOptions::default(), TraceOptions { format: None, map }];
    for options in forced.into_iter().chain(others) {
        match read_trace("f", Cursor::new(bytes.to_vec()), &options) {
            Ok(file) => assert!(!file.workload.is_empty()),
            Err(e) => {
                let text = e.to_string();
                assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(e) = Scenario::parse("f", text)
    {
        assert!(!e.to_string().contains('\n'), "{e}");
    }
}

fn never_panics(bytes: &[u8]) {
    let map = ColumnMap::parse(["ttft_ms=ttft_ms", "outcome=outcome"]).unwrap();
    let forced = Format::ALL.map(|f| Options { format: Some(f), map: ColumnMap::default() });
    let others = [Options::default(), Options { format: None, map }];
    for options in forced.into_iter().chain(others) {
        match read("f", Cursor::new(bytes.to_vec()), &options) {
            Ok(file) => assert!(!file.runs.is_empty()),
            Err(e) => {
                let text = e.to_string();
                assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        never_panics(&bytes);
        traces_never_panic(&bytes);
    }

    #[test]
    fn random_text_is_answered(text in "[\\[\\]{}:,;\"\\\\a-e0-9.\n\r\t é_-]{0,80}") {
        never_panics(text.as_bytes());
        traces_never_panic(text.as_bytes());
        let row = format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{text}");
        traces_never_panic(row.as_bytes());
    }

    /// Valid files with a few bytes replaced, removed or doubled, and cut somewhere.
    #[test]
    fn mutated_files_are_answered(which in 0..VALID.len(), edits in edits(), cut in cut()) {
        never_panics(&mutated(VALID[which], edits, cut));
    }

    #[test]
    fn mutated_traces_are_answered(which in 0..TRACES.len() + 3, edits in edits(), cut in cut()) {
        let text = TRACES.iter().chain(&VALID[6..9]).nth(which).unwrap();
        traces_never_panic(&mutated(text, edits, cut));
    }

    #[test]
    fn mutated_scenarios_are_answered(edits in edits(), cut in cut()) {
        traces_never_panic(&mutated(SCENARIO, edits, cut));
    }

    /// Any nine digits in place of the time of day, the zone and the counts.
    #[test]
    fn odd_stamps_are_answered(stamp in "[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:]{8}(\\.[0-9]{1,22})?(Z|[+-][0-9]{2}:[0-9]{2})?", tokens in "[0-9]{1,20}(\\.0)?(e-?[0-9]{1,10})?") {
        let text = format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{stamp},{tokens},1\n");
        traces_never_panic(text.as_bytes());
        traces_never_panic(format!("arrival_s,input_tokens,output_tokens\n{tokens},1,1\n").as_bytes());
    }
}

type Edit = (prop::sample::Index, u8, u8);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..6)
}

fn cut() -> impl Strategy<Value = Option<prop::sample::Index>> {
    prop::option::of(any::<prop::sample::Index>())
}

fn mutated(text: &str, edits: Vec<Edit>, cut: Option<prop::sample::Index>) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (at, byte, kind) in edits {
        let at = at.index(bytes.len());
        match kind {
            0 => bytes[at] = byte,
            1 => {
                bytes.remove(at);
            }
            2 => bytes.insert(at, b"{}[],:\"0-9.eE\n\\"[usize::from(byte) % 15]),
            _ => bytes.insert(at, bytes[at]),
        }
        if bytes.is_empty() {
            break;
        }
    }
    if let Some(cut) = cut.filter(|_| !bytes.is_empty()) {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

#[test]
fn the_files_that_are_mutated_are_valid() {
    for text in VALID {
        read("f", Cursor::new(text.as_bytes().to_vec()), &Options::default()).unwrap();
    }
    for text in TRACES.iter().chain(&VALID[6..9]) {
        read_trace("f", Cursor::new(text.as_bytes().to_vec()), &TraceOptions::default()).unwrap();
    }
    Scenario::parse("f", SCENARIO).unwrap();
}
