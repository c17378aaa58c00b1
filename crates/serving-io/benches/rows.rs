//! Rows a second of the generic readers: one log of 100,000 requests as CSV, as JSON lines and, with
//! the feature `parquet`, as Parquet, read into columns as `goodput report` reads large logs.
//!
//! `cargo bench -p serving-io --features parquet --bench rows`

#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write as _;
use std::io::Cursor;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use metrics_core::table::RequestTable;
use serving_io::{Options, Stream, stream};

const ROWS: u32 = 100_000;

/// A request as its columns; the numbers have as many digits as those of `cargo xtask request-log`.
struct Request {
    id: String,
    arrival_s: f64,
    ttft_ms: f64,
    e2e_ms: f64,
    input_tokens: u32,
    output_tokens: u32,
}

fn requests() -> Vec<Request> {
    // The generator of Park and Miller: any digits will do.
    let mut state = 42_u64;
    let mut draw = |below: f64| {
        state = state * 48_271 % 2_147_483_647;
        below * state as f64 / 2_147_483_647.0
    };
    (0..ROWS)
        .map(|i| {
            let (ttft_ms, output_tokens) = (50.0 + draw(100.0), 1 + i * 7 % 400);
            Request {
                id: format!("{:016x}", u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                arrival_s: f64::from(i) / 200.0 + draw(0.004),
                ttft_ms,
                e2e_ms: ttft_ms + f64::from(output_tokens - 1) * (15.0 + draw(10.0)),
                input_tokens: 1 + i * 13 % 2_000,
                output_tokens,
            }
        })
        .collect()
}

fn csv(requests: &[Request]) -> Vec<u8> {
    let mut text = "id,arrival_s,ttft_ms,e2e_ms,input_tokens,output_tokens,outcome\n".to_owned();
    for r in requests {
        let Request { id, arrival_s, ttft_ms, e2e_ms, input_tokens, output_tokens } = r;
        let times = format!("{arrival_s:.6},{ttft_ms:.3},{e2e_ms:.3}");
        writeln!(text, "{id},{times},{input_tokens},{output_tokens},completed").unwrap();
    }
    text.into_bytes()
}

fn jsonl(requests: &[Request]) -> Vec<u8> {
    let mut text = String::new();
    for r in requests {
        let Request { id, arrival_s, ttft_ms, e2e_ms, input_tokens, output_tokens } = r;
        writeln!(
            text,
            "{{\"id\":\"{id}\",\"arrival_s\":{arrival_s:.6},\"ttft_ms\":{ttft_ms:.3},\
             \"e2e_ms\":{e2e_ms:.3},\"input_tokens\":{input_tokens},\
             \"output_tokens\":{output_tokens},\"outcome\":\"completed\"}}"
        )
        .unwrap();
    }
    text.into_bytes()
}

#[cfg(feature = "parquet")]
fn parquet(requests: &[Request]) -> Vec<u8> {
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let schema = "message log {
        REQUIRED BYTE_ARRAY id (STRING);
        REQUIRED DOUBLE arrival_s;
        REQUIRED DOUBLE ttft_ms;
        REQUIRED DOUBLE e2e_ms;
        REQUIRED INT64 input_tokens;
        REQUIRED INT64 output_tokens;
        REQUIRED BYTE_ARRAY outcome (STRING);
    }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts = |of: &dyn Fn(&Request) -> ByteArray| requests.iter().map(of).collect::<Vec<_>>();
    let numbers = |of: &dyn Fn(&Request) -> f64| requests.iter().map(of).collect::<Vec<_>>();
    let counts = |of: &dyn Fn(&Request) -> u32| -> Vec<i64> {
        requests.iter().map(|r| i64::from(of(r))).collect()
    };
    let mut column = group.next_column().unwrap().unwrap();
    let ids = texts(&|r| r.id.as_str().into());
    column.typed::<ByteArrayType>().write_batch(&ids, None, None).unwrap();
    column.close().unwrap();
    for values in [numbers(&|r| r.arrival_s), numbers(&|r| r.ttft_ms), numbers(&|r| r.e2e_ms)] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    for values in [counts(&|r| r.input_tokens), counts(&|r| r.output_tokens)] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    let mut column = group.next_column().unwrap().unwrap();
    let outcomes = texts(&|_| "completed".into());
    column.typed::<ByteArrayType>().write_batch(&outcomes, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    out
}

/// Reads a log into columns, ids compared; how many requests there are.
fn columns(name: &str, bytes: &[u8]) -> usize {
    let mut table = RequestTable::default();
    let mut push = |request: &_| {
        table.push(request);
        Ok(())
    };
    let mut to = Stream::new(&mut push);
    stream(name, Cursor::new(bytes.to_vec()), &Options::default(), &mut to).unwrap();
    table.len()
}

fn rows(criterion: &mut Criterion) {
    let requests = requests();
    let logs = [
        ("csv", csv(&requests)),
        ("jsonl", jsonl(&requests)),
        #[cfg(feature = "parquet")]
        ("parquet", parquet(&requests)),
    ];
    let mut group = criterion.benchmark_group("rows");
    group.throughput(Throughput::Elements(ROWS.into())).sample_size(20);
    for (name, bytes) in &logs {
        assert_eq!(columns(name, bytes), requests.len());
        group.bench_function(*name, |b| b.iter(|| columns(name, bytes)));
    }
    group.finish();
}

criterion_group!(benches, rows);
criterion_main!(benches);
