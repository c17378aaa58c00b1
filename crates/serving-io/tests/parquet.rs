//! Parquet tables with a column map; the tables are written here.
#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;
use std::sync::Arc;

use insta::assert_snapshot;
use metrics_core::{Outcome, Seconds};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use serving_io::{ColumnMap, Format, IoError, Options, ReadFile, read};

/// Three requests in two row groups: the third failed.
fn table(compression: Compression) -> Vec<u8> {
    let schema = "message log {
        REQUIRED INT64 at (TIMESTAMP(MICROS, true));
        OPTIONAL DOUBLE first;
        OPTIONAL DOUBLE e2e_ms;
        OPTIONAL INT64 output_tokens;
        REQUIRED BYTE_ARRAY status (STRING);
        OPTIONAL group tags { OPTIONAL INT64 x; }
    }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, properties).unwrap();
    for (at, first, end, tokens, status) in [
        (
            &[1_700_000_000_000_000, 1_700_000_000_250_001][..],
            &[0.25, 0.5][..],
            &[1000.0, 1500.0][..],
            &[4, 5][..],
            &["ok", "ok"][..],
        ),
        (&[1_700_000_000_500_000], &[], &[], &[], &["error"]),
    ] {
        let mut group = writer.next_row_group().unwrap();
        let levels: Vec<i16> =
            at.iter().enumerate().map(|(i, _)| i16::from(i < first.len())).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(at, None, None).unwrap();
        column.close().unwrap();
        for values in [first, end] {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<DoubleType>().write_batch(values, Some(&levels), None).unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(tokens, Some(&levels), None).unwrap();
        column.close().unwrap();
        let words: Vec<ByteArray> = status.iter().map(|&s| s.into()).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&words, None, None).unwrap();
        column.close().unwrap();
        let nothing = vec![0; at.len()];
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&[], Some(&nothing), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    out
}

const MAP: [&str; 5] = [
    "arrival_us=at",
    "ttft_s=first",
    "e2e_ms=e2e_ms",
    "output_tokens=output_tokens",
    "outcome=status",
];

fn mapped(bytes: Vec<u8>, map: &[&str]) -> Result<ReadFile, IoError> {
    let map = ColumnMap::parse(map).unwrap();
    read("t.parquet", Cursor::new(bytes), &Options { map, format: None })
}

fn error(map: &[&str]) -> String {
    mapped(table(Compression::UNCOMPRESSED), map).unwrap_err().to_string()
}

#[test]
fn a_mapped_table_gives_checked_timelines() {
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW] {
        let file = mapped(table(compression), &MAP).unwrap();
        assert_eq!(file.format, Format::GenericParquet);
        let [a, b, c] = &file.runs[0].timelines[..] else { panic!() };
        assert_eq!(a.ttft(), Seconds::new(0.25).ok());
        assert!((a.tpot().unwrap().get() - 0.25).abs() < 1e-12); // 0.75 s over 3 gaps
        assert_eq!(b.arrival_s(), Some(1_700_000_000.250_001));
        assert_eq!((c.id(), c.outcome(), c.ttft()), ("3", Outcome::Failed, None));
    }
}

#[test]
fn columns_with_the_names_of_fields_need_no_map() {
    let file = mapped(table(Compression::UNCOMPRESSED), &[]);
    // The third row has neither a time nor an outcome under a field's name.
    assert_snapshot!(file.unwrap_err().to_string(), @"t.parquet, line 3: found a request with neither an outcome nor a time of an output, expected one of them; outcomes are `completed`, `failed`, `rejected`, `timed_out`, `cancelled`, `cut_off`");
}

#[test]
fn a_column_that_does_not_fit_is_named() {
    assert_snapshot!(error(&["arrival_ms=at", "ttft_s=first"]), @"t.parquet, `at`: found timestamps in microseconds, expected them under `arrival_us`");
    assert_snapshot!(error(&["ttft_s=nope"]), @"t.parquet, `nope`: no such column; the file has `at`, `first`, `e2e_ms`, `output_tokens`, `status`, `tags`");
    assert_snapshot!(error(&["ttft_s=tags"]), @"t.parquet, `tags`: found a nested column, expected a column of numbers, texts or timestamps");
    assert_snapshot!(error(&["ttft_s=status"]), @"t.parquet, line 1, `status`: found `ok`, expected a number of seconds, or nothing for unknown");
}

#[test]
fn a_cut_table_is_an_error_of_one_line() {
    let bytes = table(Compression::SNAPPY);
    for n in [4, 5, 12, bytes.len() / 2, bytes.len() - 1] {
        let text = mapped(bytes[..n].to_vec(), &MAP).unwrap_err().to_string();
        assert!(text.starts_with("t.parquet: cannot be read: not a sound Parquet file"), "{text}");
        assert!(!text.contains('\n'));
    }
}

proptest! {
    /// A few bytes changed anywhere: an answer or an error, never a panic.
    #[test]
    fn damaged_tables_are_answered(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = table(Compression::UNCOMPRESSED);
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Err(e) = mapped(bytes, &MAP) {
            prop_assert!(!e.to_string().contains('\n'));
        }
    }
}
