//! Requests that are streamed against those that are held, and partial results of shards.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Cursor;

use metrics_core::slo::SloSet;
use metrics_core::table::RequestTable;
use metrics_core::tally::Tally;
use proptest::prelude::*;
use serving_io::partial::Partial;
use serving_io::{Options, ReadFile, Stream, read, stream};

fn columns(text: &str) -> (ReadFile, RequestTable) {
    let mut table = RequestTable::default();
    let mut push = |request: &_| {
        table.push(request);
        Ok(())
    };
    let mut to = Stream::new(&mut push);
    let reader = Cursor::new(text.to_owned());
    let file = stream("log", reader, &Options::default(), &mut to).unwrap();
    (file, table)
}

proptest! {
    /// A log of each form says the same whether it is streamed or held.
    #[test]
    fn streaming_reads_what_reading_reads(
        rows in prop::collection::vec((0..9_999_999_u64, 1..99_999_u64, 0..99_999_u64, 2..900_u64), 1..40),
    ) {
        let mut csv = "id,arrival_s,ttft_ms,e2e_ms,output_tokens,outcome\n".to_owned();
        let mut jsonl = String::new();
        let mut own = String::new();
        for (i, (arrival, ttft, tail, n)) in rows.iter().enumerate() {
            let (arrival, ttft, e2e) =
                (*arrival as f64 / 1e3, *ttft as f64 / 1e2, (ttft + tail) as f64 / 1e2);
            csv += &format!("r{i},{arrival},{ttft},{e2e},{n},ok\n");
            jsonl += &format!(
                "{{\"id\":\"r{i}\",\"arrival_s\":{arrival},\"ttft_ms\":{ttft},\"e2e_ms\":{e2e},\
                 \"output_tokens\":{n}}}\n"
            );
            own += &format!(
                "{{\"id\":\"r{i}\",\"arrival_s\":{arrival},\"ttft_s\":{ttft},\"e2e_s\":{e2e},\
                 \"output_tokens\":{n}}}\n"
            );
        }
        for text in [csv, jsonl, own] {
            let held = read("log", Cursor::new(text.clone()), &Options::default()).unwrap();
            let (file, table) = columns(&text);
            prop_assert_eq!(&RequestTable::of(&held.runs[0].timelines), &table);
            prop_assert!(file.runs[0].timelines.is_empty());
            prop_assert_eq!(&held.runs[0].notes, &file.runs[0].notes);
            prop_assert_eq!(&held.runs[0].missing, &file.runs[0].missing);
            prop_assert_eq!(held.runs[0].clock, file.runs[0].clock);
        }
    }
}

fn partial(name: &str, csv: &str, slo: &str) -> Partial {
    let slo: SloSet = if slo.is_empty() { SloSet::none() } else { slo.parse().unwrap() };
    let mut tally = Tally::new(&slo).unwrap();
    let mut push = |request: &_| tally.push(request);
    let mut to = Stream::new(&mut push);
    let options = Options::default();
    let file = stream(name, Cursor::new(csv.to_owned()), &options, &mut to).unwrap();
    Partial::new(&file, &file.runs[0], &options, tally).unwrap()
}

const A: &str = "arrival_s,ttft_ms,e2e_ms,output_tokens\n0,100,500,5\n1,150,600,7\n";
const B: &str = "arrival_s,ttft_ms,e2e_ms,output_tokens\n2,300,900,5\n";

#[test]
fn a_partial_result_reads_back_and_merges_in_any_order() {
    let (a, b) = (partial("a", A, "ttft<200ms"), partial("b", B, "ttft<200ms"));
    assert_eq!(Partial::read("a.part", a.to_text().unwrap().as_bytes()).unwrap(), a);
    let mut ab = a.clone();
    ab.merge("b.part", b.clone()).unwrap();
    let mut ba = b;
    ba.merge("a.part", a).unwrap();
    assert_eq!(ab.to_text().unwrap(), ba.to_text().unwrap());
    assert_eq!(ab.tally().requests(), 3);
    assert_eq!(ab.tally().objectives().good, 2); // 100 and 150 ms of 200 ms
    assert_eq!(Partial::read("ab", ab.to_text().unwrap().as_bytes()).unwrap(), ab);
}

#[test]
fn what_would_make_the_sum_wrong_is_refused_by_name() {
    let a = partial("a", A, "ttft<200ms");
    let refused = |other: Partial| a.clone().merge("x.part", other).unwrap_err().to_string();
    insta::assert_snapshot!(refused(partial("b", B, "ttft<1s")), @"x.part: its objectives: `ttft<=1s`; `a` has `ttft<=200ms`");
    insta::assert_snapshot!(refused(partial("b", B, "")), @"x.part: its objectives: `none`; `a` has `ttft<=200ms`");
    insta::assert_snapshot!(refused(partial("copy of a", A, "ttft<200ms")), @"x.part: its shard `copy of a` is in already, as `a`");
    let no_clock = "ttft_ms,e2e_ms,output_tokens\n300,900,5\n";
    insta::assert_snapshot!(refused(partial("b", no_clock, "ttft<200ms")), @"x.part: its clock of arrivals: `unknown`; `a` has `unspecified`");
}

#[test]
fn what_is_no_partial_result_is_refused() {
    let text = partial("a", A, "ttft<200ms").to_text().unwrap();
    let said = |text: &str| Partial::read("x", text.as_bytes()).unwrap_err().to_string();
    insta::assert_snapshot!(said(A), @"x: is no partial result: write one with `goodput report LOG --partial FILE`");
    insta::assert_snapshot!(said(&text.replace("\"schema_version\":1", "\"schema_version\":2")), @"x: is `goodput-partial` of version 2, not `goodput-partial` of version 1");
    insta::assert_snapshot!(said(&text.replace("\"completed\":2", "\"completed\":3")), @"x: is damaged: its counts do not fit each other");
    insta::assert_snapshot!(said(&text.replace("\"requests\":2", "\"requests\":9")), @"x: is damaged: its shards and its counts do not fit");
}

/// The same partial result with one value replaced by `value`.
fn edited(text: &str, pointer: &str, value: serde_json::Value) -> String {
    let mut partial: serde_json::Value = serde_json::from_str(text).unwrap();
    *partial.pointer_mut(pointer).unwrap() = value;
    let edited = partial.to_string();
    Partial::read("x", edited.as_bytes()).unwrap_err().to_string()
}

/// Two answers of 100 and 150 ms, 5 and 7 tokens: whatever is edited, the rest contradicts it.
#[test]
fn an_edited_partial_result_is_damaged() {
    use serde_json::json;
    let text = partial("a", A, "ttft<200ms").to_text().unwrap();
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    let bins = whole.pointer("/tally/latency/0/counts").unwrap();
    let (first, last) = (bins[0].clone(), bins[1].clone());
    let damaged = |pointer: &str, value| {
        let said = edited(&text, pointer, value);
        said.strip_prefix("x: is damaged: ")
            .unwrap_or_else(|| panic!("{pointer}: {said}"))
            .to_owned()
    };
    let latency = "/tally/latency/0";
    let of = |key: &str, value| damaged(&format!("{latency}/{key}"), value);
    let before_column = |text: String| text.split(" at line").next().unwrap().to_owned();
    let mut said = vec![
        before_column(of("unit", json!("one"))),
        of("counts", json!([[first[0], 6], last])),
        of("counts", json!([first, first])),
        of("max", json!(9.0)),
        of("max", json!(0.12)),
        of("sum", json!([])),
        damaged("/tally/output/sum", json!(13)),
        damaged("/tally/output/lengths/unit", json!("picosecond")),
        damaged("/tally/stays", json!([])),
        damaged("/tally/first_arrival_s", json!(5.0)),
        damaged("/durations_s", json!([-1.0])),
        damaged("/clock", json!("sundial")),
    ];
    for text in &mut said {
        *text = before_column(std::mem::take(text));
    }
    insta::assert_snapshot!(said.join("\n"));
    let cut = Partial::read("x", &text.as_bytes()[..text.len() / 2]).unwrap_err().to_string();
    insta::assert_snapshot!(cut, @"x: ends in the middle of a JSON object: is it truncated?");
}

/// Any clock that a partial result is written with reads back.
#[test]
fn a_clock_with_an_epoch_reads_back() {
    let header = "{\"schema_version\":1,\"kind\":\"goodput-timelines\",\"epoch_s\":1795955252.143}";
    let log = format!("{header}\n{{\"id\":\"a\",\"arrival_s\":1,\"e2e_s\":2,\"ttft_s\":1}}\n");
    let one = partial("a", &log, "");
    assert_eq!(Partial::read("x", one.to_text().unwrap().as_bytes()).unwrap(), one);
}
