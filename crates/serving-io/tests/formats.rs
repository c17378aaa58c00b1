//! Our own timelines, generic logs, and how a format is told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use metrics_core::timeline::{GapKind, Gaps, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline, Seconds};
use proptest::prelude::*;
use serde_json::Value;
use serving_io::generic::{CsvRows, JsonRows};
use serving_io::input::Input;
use serving_io::run::Clock;
use serving_io::timeline::{Header, Rows, Writer, fields_of};
use serving_io::{ColumnMap, Format, IoError, Options, ReadFile, read};

fn bytes(content: impl AsRef<[u8]>, options: &Options) -> Result<ReadFile, IoError> {
    read("log", Cursor::new(content.as_ref().to_vec()), options)
}

fn plain(content: impl AsRef<[u8]>) -> ReadFile {
    bytes(content, &Options::default()).unwrap()
}

fn mapped(content: &str, map: &[&str]) -> ReadFile {
    bytes(content, &Options { map: ColumnMap::parse(map).unwrap(), format: None }).unwrap()
}

fn ids(file: &ReadFile) -> Vec<&str> {
    file.runs[0].notes.iter().map(|n| n.id).collect()
}

/// The request of metrics.md: arrive 0, first 0.4, last 1.0, 4 tokens; TPOT 0.2.
const ONE: &str =
    r#"{"id": "a", "arrival_s": 0, "first_token_s": 0.4, "last_token_s": 1.0, "output_tokens": 4}"#;

#[test]
fn a_request_line_is_a_timeline() {
    let file = plain(ONE);
    assert_eq!(file.format, Format::Timeline);
    let expected = RequestTimeline::completed("a", 0.0, 0.4, 1.0, 4).unwrap();
    assert_eq!(file.runs[0].timelines, [expected]);
    assert_eq!(ids(&file), ["outcome-implied"]);
    assert_eq!(file.runs[0].clock, Clock::Unspecified);
}

/// 2^53 + 1 picoseconds is no `f64`: the gap of one picosecond survives only as an integer.
#[test]
fn whole_picoseconds_are_exact_beyond_two_to_the_53() {
    let line = r#"{"id": 7, "arrival_ps": "9007199254740993", "first_token_ps": "9007199254740994",
        "last_token_ps": "9007199254740996", "outcome": "completed"}"#
        .replace('\n', " ");
    let t = &plain(line).runs[0].timelines[0];
    assert_eq!(t.id(), "7");
    assert_eq!(t.ttft(), Seconds::new(1e-12).ok());
    assert_eq!(t.e2e_latency(), Seconds::new(3e-12).ok());
}

/// The wrong order by one picosecond is an error, although both are one number in seconds.
#[test]
fn whole_picoseconds_in_the_wrong_order_are_refused() {
    let line = r#"{"id": 7, "arrival_ps": "9007199254740993000", "first_token_ps": "9007199254740992999"}"#;
    let error = bytes(line, &Options::default()).unwrap_err();
    assert_eq!(error.place().unwrap().key.as_deref(), Some("first_token_ps"));
}

#[test]
fn the_header_says_when_and_how_long() {
    let header = r#"{"schema_version": 1, "kind": "goodput-timelines", "epoch_s": 1700000000.5, "duration_ps": "2500000000000", "tool": "goodput sim"}"#;
    let file = plain(format!("\u{feff}{header}\r\n\r\n{ONE}\r\n"));
    let run = &file.runs[0];
    assert_eq!(run.clock, Clock::RunStart { epoch_s: Some(1_700_000_000.5) });
    assert_eq!(run.duration.unwrap().value, Seconds::new(2.5).unwrap());
    assert_eq!(run.tool.name, "goodput sim");
    assert_eq!(run.timelines.len(), 1);
}

/// Every field has another value, so that no two can change places.
#[test]
fn every_column_of_a_csv_goes_to_its_own_field() {
    let file = plain(concat!(
        "id,arrival_ms,sent_ms,scheduled_ms,first_token_ms,last_token_ms,input_tokens,output_tokens,outcome\n",
        "a,1000,1001,1003,1250,1500,70,6,failed\n",
    ));
    let t = &file.runs[0].timelines[0];
    let after_arrival = |s: Option<Seconds>| s.map(Seconds::as_millis);
    assert_eq!((t.id(), t.arrival_s(), t.outcome()), ("a", Some(1.0), Outcome::Failed));
    assert_eq!(after_arrival(t.send_delay()), Some(1.0));
    assert_eq!(after_arrival(t.queue_time()), Some(3.0));
    assert_eq!(after_arrival(t.ttft()), Some(250.0));
    assert_eq!(after_arrival(t.e2e_latency()), Some(500.0));
    assert_eq!((t.input_tokens(), t.output_tokens()), (Some(70), Some(6)));
}

#[test]
fn token_instants_and_gaps_are_kept_apart() {
    let file = plain(concat!(
        r#"{"id": "t", "arrival_s": 1, "token_s": [1.5, 2, 3], "first_token_s": 1.5, "last_token_s": 3, "output_tokens": 3}"#,
        "\n",
        r#"{"id": "c", "ttft_s": 0.5, "e2e_s": 2, "chunk_gap_s": [0.5, 1], "output_tokens": 9}"#,
        "\n",
        r#"{"id": "f", "arrival_s": null, "outcome": "rejected"}"#,
    ));
    let [t, c, f] = &file.runs[0].timelines[..] else { panic!() };
    let half = Seconds::new(0.5).unwrap();
    let one = Seconds::new(1.0).unwrap();
    assert_eq!(t.gaps(), Some(&Gaps::Token(vec![half, one])));
    assert_eq!(c.gaps(), Some(&Gaps::Chunk(vec![half, one])));
    assert_eq!((f.outcome(), f.ttft()), (Outcome::Rejected, None));
}

fn instants() -> impl Strategy<Value = (Vec<Instant>, bool)> {
    // Up to a year, which is beyond 2^64 picoseconds.
    prop_oneof![
        prop::collection::vec(0..31_536_000_000_000_000_000_u128, 5).prop_map(|mut v| {
            v.sort_unstable();
            (v.into_iter().map(Instant::Picoseconds).collect(), true)
        }),
        prop::collection::vec(0.0..1e9_f64, 5).prop_map(|mut v| {
            v.sort_by(f64::total_cmp);
            (v.into_iter().map(Instant::Seconds).collect(), false)
        }),
    ]
}

prop_compose! {
    fn fields()(
        (at, _) in instants(),
        known in prop::array::uniform4(any::<bool>()),
        output in 2..1000_u64,
        input in prop::option::of(0..1_u64 << 53),
        gaps in prop::option::of(prop::collection::vec(0.0..10.0_f64, 0..4)),
        outcome in prop::sample::select(Outcome::ALL.to_vec()),
        id in "[a-z\"\\\\\u{e9} ]{1,12}",
    ) -> TimelineFields {
        let pick = |i: usize| known[i - 1].then(|| at[i]);
        TimelineFields {
            id,
            arrival: Some(at[0]),
            sent: pick(1),
            scheduled: pick(2),
            first_token: Some(at[3]),
            last_token: known[3].then(|| at[4]),
            gaps: gaps.map(|g| (GapKind::Chunk, g)),
            input_tokens: input,
            output_tokens: known[0].then_some(output),
            outcome,
            ..TimelineFields::default()
        }
    }
}

fn written(write: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Some(&Header::default())).unwrap();
    write(&mut writer);
    writer.finish().unwrap()
}

proptest! {
    /// Fields → file → timeline gives the timeline of the fields, to the picosecond and the bit.
    #[test]
    fn writing_fields_and_reading_them_changes_nothing(f in fields()) {
        let file = plain(written(|w| w.fields(&f).unwrap()));
        prop_assert_eq!(&file.runs[0].timelines, &[RequestTimeline::new(f).unwrap()]);
    }

    /// Timeline → file → timeline keeps every duration that a metric is made of.
    #[test]
    fn writing_a_timeline_keeps_its_latencies_bit_for_bit(f in fields()) {
        let t = RequestTimeline::new(f).unwrap();
        let file = plain(written(|w| w.request(&t).unwrap()));
        let back = &file.runs[0].timelines[0];
        prop_assert_eq!(back.arrival(), t.arrival());
        prop_assert_eq!(back.ttft(), t.ttft());
        prop_assert_eq!(back.e2e_latency(), t.e2e_latency());
        prop_assert_eq!(back.gaps(), t.gaps());
        prop_assert_eq!(back.outcome(), t.outcome());
        // Rebuilt from an instant near 1e9 s, whose spacing is 1.2e-7 s.
        for (a, b) in [(back.queue_time(), t.queue_time()), (back.send_delay(), t.send_delay())] {
            prop_assert_eq!(a.is_some(), b.is_some());
            if let (Some(a), Some(b)) = (a, b) {
                prop_assert!((a.get() - b.get()).abs() <= 1.2e-7 + 1e-15 * b.get());
            }
        }
    }

    /// An exact decimal in any unit is the same time.
    #[test]
    fn units_only_move_the_decimal_point(ns in 1..u64::MAX / 2) {
        let s = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let us = format!("{}.{:03}", ns / 1000, ns % 1000);
        let csv = |unit: &str, value: &str| {
            let text = format!("arrival_{unit},first_token_{unit},outcome\n0,{value},ok\n");
            plain(text).runs[0].timelines[0].ttft()
        };
        let exact = Seconds::new((u128::from(ns) * 1000) as f64 / 1e12).ok();
        prop_assert_eq!(csv("ns", &ns.to_string()), exact);
        prop_assert_eq!(csv("us", &us), exact);
        prop_assert_eq!(csv("s", &s), exact);
    }
}

/// Token instants one picosecond apart, far beyond 2^53, are written and read as they are.
#[test]
fn token_instants_are_written_exactly() {
    let far = 1_u128 << 70;
    let f = TimelineFields {
        id: "t".to_owned(),
        arrival: Some(Instant::Picoseconds(far)),
        tokens: Some((1..4).map(|i| Instant::Picoseconds(far + i)).collect()),
        output_tokens: Some(3),
        ..TimelineFields::default()
    };
    let bytes = written(|w| w.fields(&f).unwrap());
    let gaps = plain(bytes).runs[0].timelines[0].gaps().cloned();
    assert_eq!(gaps, Some(Gaps::Token(vec![Seconds::new(1e-12).unwrap(); 2])));
}

/// The row readers give a file request by request, as a report on millions of rows needs it.
#[test]
fn rows_can_be_read_one_by_one() {
    let input = |text: &str| Input::new("f", Cursor::new(text.as_bytes().to_vec())).unwrap();
    let map = ColumnMap::default();
    let csv = CsvRows::new(input("ttft_ms\n5\n\n6\nx\n7\n"), &map).unwrap();
    let lines: Vec<_> = csv.map(|row| row.map(|(line, _)| line).ok()).collect();
    assert_eq!(lines, [Some(2), Some(4), None, Some(6)]);
    let json = JsonRows::new(input("{\"ttft_ms\": 5}\n{\"ttft_ms\": 6}"), &map);
    assert_eq!(json.filter_map(Result::ok).count(), 2);
    let ours = Rows::new(input(&format!("{ONE}\n{ONE}"))).unwrap();
    assert_eq!(ours.filter_map(Result::ok).count(), 2, "ids are not compared here");
}

#[test]
fn a_timeline_survives_without_an_arrival() {
    let t = RequestTimeline::new(TimelineFields {
        id: "x".to_owned(),
        e2e: Some(0.1 + 0.2),
        outcome: Outcome::Completed,
        ..TimelineFields::default()
    })
    .unwrap();
    assert_eq!(RequestTimeline::new(fields_of(&t)).unwrap(), t);
}

#[test]
fn a_csv_with_our_names_needs_no_map() {
    let file = plain("\u{feff}id,ttft_ms,e2e_ms,output_tokens,outcome,note\r\n\"a, b\",400,1000,4,200,x\r\nb,,,,HTTP,y".replace("HTTP", "503"));
    assert_eq!(file.format, Format::GenericCsv);
    let [a, b] = &file.runs[0].timelines[..] else { panic!() };
    assert_eq!(
        (a.id(), a.ttft(), a.outcome()),
        ("a, b", Seconds::new(0.4).ok(), Outcome::Completed)
    );
    assert!((a.tpot().unwrap().get() - 0.2).abs() < 1e-15);
    assert_eq!((b.outcome(), b.ttft(), b.output_tokens()), (Outcome::Failed, None, None));
    assert_eq!(ids(&file), ["columns-not-read"]);
    assert_eq!(file.runs[0].notes[0].text, "no field is called so, not read: `note`");
}

#[test]
fn a_map_names_the_columns_and_their_units() {
    let csv = "Start;First Token [us];End;n\n1700000000.25;500000;1700000001.75;3\n";
    let map =
        ["arrival_s=Start", "ttft_us=First Token [us]", "last_token_s=End", "output_tokens=n"];
    let file = mapped(csv, &map);
    let t = &file.runs[0].timelines[0];
    assert_eq!((t.ttft(), t.e2e_latency()), (Seconds::new(0.5).ok(), Seconds::new(1.5).ok()));
    assert_eq!((t.id(), t.output_tokens()), ("2", Some(3)));
    assert_eq!(ids(&file), ["outcome-implied"]);
}

/// 0.1 s + 4 gaps of 25 ms is 0.2 s.
#[test]
fn tpot_stands_in_for_the_end() {
    let file = plain("ttft_ms\ttpot_ms\toutput_tokens\n100\t25\t5\n100\t0\t1\n");
    let [a, b] = &file.runs[0].timelines[..] else { panic!() };
    assert!((a.e2e_latency().unwrap().get() - 0.2).abs() < 1e-15);
    assert_eq!(b.e2e_latency(), b.ttft());
    assert!(ids(&file).contains(&"e2e-from-tpot"));
}

/// E2E / N instead of (E2E − TTFT) / (N − 1): 250 ms instead of 200 ms.
#[test]
fn a_tpot_under_another_definition_is_noticed() {
    let csv = "ttft_ms,tpot_ms,e2e_ms,output_tokens\n400,250,1000,4\n400,200,1000,4\n";
    let file = plain(csv);
    assert!((file.runs[0].timelines[0].tpot().unwrap().get() - 0.2).abs() < 1e-15);
    let note = file.runs[0].notes.iter().find(|n| n.id == "tpot-differs").unwrap();
    assert!(note.text.starts_with("in 1 request "), "{}", note.text);
}

#[test]
fn json_lines_may_leave_keys_out() {
    let log = concat!(
        r#"{"lat": {"x": 1}, "t0": 10, "ok": true, "first": 10.5, "out": 2.0, "end": 11}"#,
        "\n\n",
        r#"{"t0": 11, "ok": false, "note": "NaN"}"#,
    );
    let map = [
        "arrival_s=t0",
        "first_token_s=first",
        "last_token_s=end",
        "output_tokens=out",
        "outcome=ok",
    ];
    let file = mapped(log, &map);
    assert_eq!(file.format, Format::GenericJsonl);
    let [a, b] = &file.runs[0].timelines[..] else { panic!() };
    assert_eq!((a.ttft(), a.output_tokens()), (Seconds::new(0.5).ok(), Some(2)));
    assert_eq!((b.id(), b.outcome(), b.ttft()), ("3", Outcome::Failed, None));
    let log = r#"{"ttft_ms": 5, "e2e_ms": 7, "why": "x"}"#;
    assert_eq!(plain(log).format, Format::GenericJsonl);
}

#[test]
fn every_documented_outcome_word_is_read() {
    for (words, outcome) in [
        (
            "completed complete OK success successful succeeded Done finished true yes stop length 200 204",
            Outcome::Completed,
        ),
        ("failed fail failure Error errored false no 400 500 503", Outcome::Failed),
        ("rejected refused throttled rate-limited 429", Outcome::Rejected),
        ("timed_out timed-out TIMEOUT deadline_exceeded 408 504", Outcome::TimedOut),
        ("cancelled canceled abort aborted 499", Outcome::Cancelled),
        ("cut_off incomplete in-flight unfinished", Outcome::CutOff),
    ] {
        for word in words.split(' ') {
            let file = plain(format!("ttft_ms,outcome\n5,{word}\n"));
            assert_eq!(file.runs[0].timelines[0].outcome(), outcome, "{word}");
        }
    }
}

#[test]
fn gzip_is_unpacked_whatever_its_name() {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(ONE.as_bytes()).unwrap();
    let packed = gz.finish().unwrap();
    let file = plain(&packed);
    assert_eq!((file.compression, file.format), (Some("gzip"), Format::Timeline));
    // Concatenated parts, as log shippers write them.
    let more = ONE.replace("\"a\"", "\"b\"");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(format!("\n{more}").as_bytes()).unwrap();
    let two = [packed, gz.finish().unwrap()].concat();
    assert_eq!(plain(two).runs[0].timelines.len(), 2);
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_is_unpacked_with_the_feature() {
    let packed = zstd::encode_all(ONE.as_bytes(), 1).unwrap();
    assert_eq!(plain(packed).compression, Some("zstd"));
}

#[test]
fn a_format_can_be_forced_and_has_one_name() {
    for format in Format::ALL {
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    let options = Options { format: Some(Format::GenericJsonl), map: ColumnMap::default() };
    assert_eq!(bytes(ONE, &options).unwrap().format, Format::GenericJsonl);
}

/// A file above the 64 KiB that are looked at is read to its end.
#[test]
fn a_long_file_is_read_to_its_end() {
    let mut csv = b"id,ttft_ms,outcome\n".to_vec();
    for i in 0..20_000 {
        writeln!(csv, "ü{i},{i},ok").unwrap();
    }
    let file = plain(csv);
    assert_eq!(file.runs[0].timelines.len(), 20_000);
    assert_eq!(file.runs[0].timelines[19_999].ttft(), Seconds::new(19.999).ok());
}

/// Line numbers are those of an editor, whatever the line ends, blank lines and quoted line ends.
#[test]
fn rows_without_an_id_are_named_by_their_line() {
    for end in ["\n", "\r\n"] {
        let csv =
            ["", "ttft_ms,note", "5,a", "", "6,\"two", "lines\"", "7,\"end", "\"", "8,c"].join(end);
        for last in ["", end] {
            let file = plain(format!("{csv}{last}"));
            let names: Vec<_> = file.runs[0].timelines.iter().map(RequestTimeline::id).collect();
            assert_eq!(names, ["3", "5", "7", "9"], "{end:?}");
        }
    }
}

/// The JSON files below a folder.
fn json_files(folder: &Path, to: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            json_files(&path, to);
        } else if path.extension().is_some_and(|e| e == "json") {
            to.push(path);
        }
    }
}

/// The same document with a long value in front and the keys of its outermost object, or of a list's
/// first element, the other way round.
fn turned(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let long = ("a_long_note".to_owned(), Value::String("x".repeat(100_000)));
            Value::Object(std::iter::once(long).chain(map.into_iter().rev()).collect())
        }
        Value::Array(mut items) => {
            let first = items.first_mut().map(|i| turned(i.take()));
            Value::Array(first.into_iter().chain(items.into_iter().skip(1)).collect())
        }
        other => other,
    }
}

/// Keys in another order, and tens of kilobytes before the first that tells, change no format.
#[test]
fn a_tools_file_is_told_wherever_its_keys_stand() {
    let mut files = Vec::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let data = std::env::var_os("GOODPUT_DATA");
    for folder in [Some(own), data.map(|d| Path::new(&d).join("samples"))].into_iter().flatten() {
        if folder.exists() {
            json_files(&folder, &mut files);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let Ok(value) = serde_json::from_str::<Value>(&text) else { continue };
        let told = |e: IoError| e.to_string();
        let Ok(as_it_is) = bytes(&text, &Options::default()) else { continue };
        let format = bytes(turned(value).to_string(), &Options::default())
            .map_or_else(|e| Err(told(e)), |f| Ok(f.format));
        // A reader may refuse the note; it is the right reader then, which says so.
        match format {
            Ok(format) => assert_eq!(format, as_it_is.format, "{}", path.display()),
            Err(why) => assert!(why.contains("a_long_note"), "{}: {why}", path.display()),
        }
        seen.insert(as_it_is.format.name());
    }
    assert!(["aiperf", "llmperf", "vllm"].iter().all(|f| seen.contains(f)), "{seen:?}");
}

#[test]
fn a_long_object_that_is_cut_off_is_said_to_be() {
    let text = format!("{{\"a_long_note\":\n\"{}\", \"model_id\": ", "x".repeat(100_000));
    let error = bytes(text, &Options::default()).unwrap_err().to_string();
    assert!(error.starts_with("log, line 2: ") && error.contains("JSON object"), "{error}");
}

#[test]
fn a_column_map_for_a_file_of_known_fields_is_refused() {
    let vllm = r#"{"model_id": "m", "num_prompts": 1, "completed": 1, "mean_ttft_ms": 3.0}"#;
    let map = ColumnMap::parse(["ttft_ms=x"]).unwrap();
    let error = bytes(vllm, &Options { map, format: None }).unwrap_err().to_string();
    insta::assert_snapshot!(error, @"log: is a file of known fields (vllm bench serve result), which no `--map` can change; leave it out, or say with `--input-format` jsonl, csv or parquet that it is a log of any origin");
}
