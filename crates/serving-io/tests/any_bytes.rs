//! Whatever a file holds, reading it gives runs or an error of one line; never a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;

use proptest::prelude::*;
use serving_io::{ColumnMap, Format, Options, read};

const VALID: [&str; 6] = [
    include_str!("data/vllm-0.33.0/nodetail.json"),
    r#"{"model_id": "m", "num_prompts": 2, "request_rate": "inf", "duration": 2.0, "completed": 2,
       "input_lens": [10, 10], "output_lens": [3, 1], "ttfts": [0.5, 0.25], "itls": [[0.25, 0.1], []],
       "latencies": [0.85, 0.25], "start_times": [5.0, 6.0], "errors": ["", "x"]}"#,
    "{\"schema_version\": 1, \"kind\": \"goodput-timelines\", \"duration_ps\": \"5\"}\n{\"id\": 1, \"arrival_ps\": \"12345\", \"token_s\": [1, 2], \"output_tokens\": 2}\n",
    "{\"ttft_ms\": 5, \"e2e_ms\": 7, \"outcome\": \"ok\"}\n{\"ttft_ms\": null, \"outcome\": 500}\n",
    "id,arrival_s,ttft_ms,tpot_ms,output_tokens,outcome\n\"a\",1.5,5,2,3,ok\n\"b\",2.5,,,0,error\n",
    "arrival_ns;first_token_ns;last_token_ns\n1700000000123456789;1700000000223456789;1700000000323456789\n",
];

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
    }

    #[test]
    fn random_text_is_answered(text in "[\\[\\]{}:,;\"\\\\a-e0-9.\n\r\t é_-]{0,80}") {
        never_panics(text.as_bytes());
    }

    /// Valid files with a few bytes replaced, removed or doubled, and cut somewhere.
    #[test]
    fn mutated_files_are_answered(
        which in 0..VALID.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = VALID[which].as_bytes().to_vec();
        for (at, byte, kind) in edits {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                2 => bytes.insert(at, b"{}[],:\"0-9.eE\n\\"[usize::from(byte) % 15]),
                _ => bytes.insert(at, bytes[at]),
            }
            if bytes.is_empty() { break; }
        }
        if let Some(cut) = cut.filter(|_| !bytes.is_empty()) {
            bytes.truncate(cut.index(bytes.len()));
        }
        never_panics(&bytes);
    }
}

#[test]
fn the_files_that_are_mutated_are_valid() {
    for text in VALID {
        read("f", Cursor::new(text.as_bytes().to_vec()), &Options::default()).unwrap();
    }
}
