//! Traces become workloads to the digit, and what was decided is said.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

use std::io::{Cursor, Write};
use std::path::PathBuf;

use insta::assert_snapshot;
use sched_sim::{Ticks, Workload};
use serving_io::trace::{
    Epoch, Slice, TraceFile, TraceFormat, TraceMap, TraceOptions, TraceProfile, read_trace,
    read_trace_path, write_request,
};

/// Of the form of the Azure trace: seven digits, CRLF, no line end after the last row.
const AZURE: &str = include_str!("data/traces/azure-form.csv");

fn trace(content: impl AsRef<[u8]>) -> TraceFile {
    trace_with(content, &[])
}

fn trace_with(content: impl AsRef<[u8]>, map: &[&str]) -> TraceFile {
    let options = TraceOptions { map: TraceMap::parse(map).unwrap(), format: None };
    read_trace("f", Cursor::new(content.as_ref().to_vec()), &options).unwrap()
}

/// Id, arrival, input and output tokens of each request.
fn rows(workload: &Workload) -> Vec<String> {
    let row = |r: &sched_sim::WorkloadRequest| {
        format!("{} {} {} {}", r.id, r.arrival.compact(), r.input_tokens, r.output_tokens)
    };
    workload.requests().iter().map(row).collect()
}

fn notes(file: &TraceFile) -> Vec<String> {
    file.notes.iter().map(|n| format!("{}: {}", n.id, n.text)).collect()
}

#[test]
fn seven_digits_crlf_and_no_last_line_end_are_read_to_the_digit() {
    assert!(AZURE.contains("\r\n") && !AZURE.ends_with('\n'), "the fixture lost its line ends");
    let file = trace(AZURE);
    assert_eq!(file.format, TraceFormat::Azure);
    assert_eq!(file.epoch.unwrap().to_string(), "2028-02-28 23:59:58.7500001");
    // Ids are lines. The third row is on 29 February, the fourth on 1 March of a leap year.
    assert_eq!(
        rows(&file.workload),
        ["2 0s 120 30", "3 1.2499998s 7 512", "4 86401.2499999s 4096 1", "5 86401.2499999s 33 64"]
    );
    assert_eq!(notes(&file), [] as [&str; 0]);
}

#[test]
fn a_zipped_trace_is_the_same() {
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zip.write_all(AZURE.as_bytes()).unwrap();
    let file = trace(zip.finish().unwrap());
    assert_eq!(file.compression, Some("gzip"));
    assert_eq!(file.workload, trace(AZURE).workload);
}

#[test]
fn stamps_with_an_offset_are_in_utc() {
    let file = trace(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n\
         2024-05-10 00:00:00.009930+00:00,5,6\n2024-05-10 00:00:01+00:00,7,8\n",
    );
    assert_eq!(file.epoch.unwrap().to_string(), "2024-05-10 00:00:00.00993 UTC");
    assert_eq!(rows(&file.workload), ["2 0s 5 6", "3 990.07ms 7 8"]);
}

#[test]
fn any_table_and_any_lines_with_a_map() {
    let want = ["a 0s 10 3", "b 1.0000001s 20 4"];
    let csv = "rid;t;prompt;answer\na;1700000000.1234567;10;3\nb;1700000001.1234568;20;4\n";
    let map = ["id=rid", "arrival_s=t", "input_tokens=prompt", "output_tokens=answer"];
    let file = trace_with(csv, &map);
    assert_eq!(
        (file.format, rows(&file.workload)),
        (TraceFormat::Csv, want.map(str::to_owned).to_vec())
    );
    assert_snapshot!(notes(&file)[0], @"clock-shifted: arrivals count from the first row, which the file's clock puts at 1700000000.1234567 s");
    let lines = "{\"rid\": \"a\", \"t\": 1700000000.1234567, \"prompt\": 10, \"answer\": 3.0}\n\
                 {\"rid\": \"b\", \"t\": 1700000001.1234568, \"prompt\": 20, \"answer\": 4}\n";
    let file = trace_with(lines, &map);
    assert_eq!(
        (file.format, rows(&file.workload)),
        (TraceFormat::Jsonl, want.map(str::to_owned).to_vec())
    );
}

#[test]
fn every_unit_of_an_arrival_is_exact() {
    for (unit, second) in [
        ("arrival_s", "1.000000000001"),
        ("arrival_ms", "1000.000000001"),
        ("arrival_us", "1000000.000001"),
        ("arrival_ns", "1000000000.001"),
        ("arrival_ps", "1000000000001"),
    ] {
        let file = trace(format!("{unit},input_tokens,output_tokens\n0,1,2\n{second},3,4\n"));
        let at = file.workload.requests()[1].arrival;
        assert_eq!(at, Ticks::from_picoseconds(1_000_000_000_001), "{unit}");
        assert_eq!(notes(&file), [] as [&str; 0], "{unit}");
    }
    let stamps = "{\"arrival\": \"2030-01-01T00:00:00Z\", \"input_tokens\": 1, \"output_tokens\": 2}\n\
                  {\"arrival\": \"2030-01-01T01:00:00.5+01:00\", \"input_tokens\": 3, \"output_tokens\": 4}";
    assert_eq!(rows(&trace(stamps).workload), ["1 0s 1 2", "2 500ms 3 4"]);
}

#[test]
fn rows_with_no_tokens_are_left_out_and_counted() {
    let file = trace("arrival_s,input_tokens,output_tokens\n0,0,5\n1,5,0\n2,5,0\n3,5,5\n");
    // Time zero stays that of the first row, though it is left out.
    assert_eq!(rows(&file.workload), ["5 3s 5 5"]);
    assert_snapshot!(notes(&file).join("\n"), @r"
no-input: 1 of 4 rows (the first in line 2) have 0 prompt tokens and are left out
no-output: 2 of 4 rows (the first in line 3) have 0 answer tokens, as failed requests do, and are left out: their prompts may have loaded the server
");
}

#[test]
fn timelines_are_sorted_and_keep_the_origin_of_their_header() {
    let log = r#"{"schema_version": 1, "kind": "goodput-timelines", "epoch_s": 1700000000.25}
{"id": "late", "arrival_ps": "2000000000001", "ttft_s": 1, "e2e_s": 2, "input_tokens": 9, "output_tokens": 8}
{"id": "early", "arrival_s": 0.1, "ttft_s": 1, "e2e_s": 2, "input_tokens": 7, "output_tokens": 6}
{"id": "cut", "arrival_s": 0.3, "ttft_s": 1, "input_tokens": 5, "output_tokens": 4, "outcome": "cut_off"}
{"id": "lost", "arrival_s": 0.2, "input_tokens": 3, "outcome": "failed"}
"#;
    let file = trace(log);
    assert_eq!(file.format, TraceFormat::Timelines);
    assert_eq!(
        rows(&file.workload),
        ["early 100ms 7 6", "cut 300ms 5 4", "late 2.000000000001s 9 8"]
    );
    assert_eq!(
        file.epoch.map(Epoch::unix_attoseconds),
        Some(1_700_000_000_250_000_000_000_000_000)
    );
    assert_snapshot!(notes(&file).join("\n"), @r"
no-output: 1 of 4 rows (the first in line 5) have 0 answer tokens, as failed requests do, and are left out: their prompts may have loaded the server
sorted: requests were not in order of arrival (line 3) and are sorted
partial-answers: 1 of 4 rows (the first in line 4) are not completed: they are replayed with the output tokens that they got
");
    // Without a header the clock is unknown, and the first arrival is time zero.
    let bare = log.split_once('\n').unwrap().1;
    assert_eq!(
        rows(&trace(bare).workload),
        ["early 0s 7 6", "cut 200ms 5 4", "late 1.900000000001s 9 8"]
    );
}

fn say(content: impl AsRef<[u8]>) -> String {
    let options = TraceOptions::default();
    let error = read_trace("f", Cursor::new(content.as_ref().to_vec()), &options).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

/// A sound row of the Azure form, then this one.
fn azure(row: &str) -> String {
    say(format!(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n{row}"
    ))
}

#[test]
fn faults_of_a_row_name_line_column_value_and_what_is_right() {
    assert_snapshot!(azure("2023-11-16 18:15:46.6805899,1,1"), @"f, line 3, `TIMESTAMP`: found `2023-11-16 18:15:46.6805899`, expected an arrival not before that of line 2, `2023-11-16 18:15:46.6805900`: sort the rows by arrival");
    assert_snapshot!(azure("2033-11-16 18:15:46.6805900,1,1"), @"f, line 3, `TIMESTAMP`: found `2033-11-16 18:15:46.6805900`, expected an arrival at most 366 days after the first row's");
    assert_snapshot!(azure("2023-11-31 18:15:46.6805900,1,1"), @"f, line 3, `TIMESTAMP`: found `2023-11-31 18:15:46.6805900`, expected a time stamp on the calendar from 1970 on, for example `2023-11-16 18:15:46.6805900`");
    assert_snapshot!(azure("1700158546.68,1,1"), @"f, line 3, `TIMESTAMP`: found `1700158546.68`, expected a time stamp on the calendar from 1970 on, for example `2023-11-16 18:15:46.6805900`");
    assert_snapshot!(azure("2023-11-16 18:15:47Z,1,1"), @"f, line 3, `TIMESTAMP`: found `2023-11-16 18:15:47Z`, expected a stamp without an offset from UTC, as in the first row");
    assert_snapshot!(azure("2023-11-16 18:15:50.9951690,396,"), @"f, line 3, `GeneratedTokens`: found nothing, expected a whole number of tokens from 0 to 4294967295");
    assert_snapshot!(azure("2023-11-16 18:15:50.99"), @"f, line 3: 1 cell, expected 3 as in the header");
    assert_snapshot!(azure("2023-11-16 18:15:50.9951690,39.6,1"), @"f, line 3, `ContextTokens`: found `39.6`, expected a whole number of tokens from 0 to 4294967295");
    assert_snapshot!(azure("2023-11-16 18:15:50.9951690,many,1"), @"f, line 3, `ContextTokens`: found `many`, expected a whole number of tokens from 0 to 4294967295");
    assert_snapshot!(azure("2023-11-16 18:15:50.9951690,-5,1"), @"f, line 3, `ContextTokens`: found `-5`, expected a whole number of tokens from 0 to 4294967295");
    assert_snapshot!(azure("2023-11-16 18:15:50.9951690,1,4294967296"), @"f, line 3, `GeneratedTokens`: found `4294967296`, expected a whole number of tokens from 0 to 4294967295");
    let table = "id,arrival_ms,input_tokens,output_tokens\na,5,1,1\n";
    assert_snapshot!(say(format!("{table}b,-5,1,1\n")), @"f, line 3, `arrival_ms`: found `-5`, expected a number of milliseconds, at least 0");
    assert_snapshot!(say(format!("{table}a,5,1,1\n")), @"f, line 3, `id`: request `a` is already in line 2, expected unique ids");
    assert_snapshot!(say(format!("{table},5,1,1\n")), @"f, line 3, `id`: found nothing, expected the request's name");
    assert_snapshot!(say("arrival_s,input_tokens,output_tokens\n1700000000123,1,1\n"), @"f, line 2, `arrival_s`: found `1700000000123`, expected an arrival before the year 10000 on a Unix clock: is the unit right?");
    let line = r#"{"arrival_s": 0, "input_tokens": 1, "output_tokens": 1}"#;
    assert_snapshot!(say(format!("{line}\n{}", line.replace(": 0", ": \"0\""))), @r#"f, line 2, `arrival_s`: found "0", expected a number of seconds, at least 0"#);
    assert_snapshot!(say(format!("{line}\n{}", line.replace("\"input_tokens\": 1, ", ""))), @"f, line 2, `input_tokens`: found nothing, expected a whole number of tokens from 0 to 4294967295");
    assert_snapshot!(say(format!("{line}\n{}", &line[..30])), @"f, line 2: ends in the middle of a JSON object, expected the rest of it: is it truncated?");
    assert_snapshot!(say(r#"{"id": "a", "arrival_s": 1, "e2e_s": 1, "output_tokens": 1}"#), @"f, line 1, `input_tokens`: found a request without it, expected its value: a workload needs it");
    assert_snapshot!(say(r#"{"id": "a", "ttft_s": 1, "input_tokens": 1, "output_tokens": 1}"#), @"f, line 1, `arrival_s`: found a request without it, expected its value: a workload needs it");
}

#[test]
fn faults_of_a_file_name_it_and_what_is_right() {
    assert_snapshot!(say(""), @"f: is empty, expected a trace, one request a row");
    assert_snapshot!(say("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"), @"f: holds no requests, expected at least one request");
    assert_snapshot!(say("arrival_s,input_tokens,output_tokens\n0,5,0\n"), @"f: holds no requests, expected at least one with 1 token or more each way");
    assert_snapshot!(say("time,prompt,answer\n0,1,1\n"), @"f: no column for arrival; the file has `time`, `prompt`, `answer`; map one, for example `--map arrival_s=COLUMN`; fields are `arrival_s|_ms|_us|_ns|_ps`, `arrival`, `input_tokens`, `output_tokens`, `id`, `priority`, `cancel_after_s|_ms|_us|_ns|_ps`");
    assert_snapshot!(say("arrival_s,prompt,output_tokens\n0,1,1\n"), @"f: no column for input_tokens; the file has `arrival_s`, `prompt`, `output_tokens`; map one, for example `--map input_tokens=COLUMN`; fields are `arrival_s|_ms|_us|_ns|_ps`, `arrival`, `input_tokens`, `output_tokens`, `id`, `priority`, `cancel_after_s|_ms|_us|_ns|_ps`");
    assert_snapshot!(say("TIMESTAMP,ContextTokens\r\n2023-11-16 18:15:46.6805900,374\r\n"), @"f: no column for arrival; the file has `TIMESTAMP`, `ContextTokens`; map one, for example `--map arrival_s=COLUMN`; fields are `arrival_s|_ms|_us|_ns|_ps`, `arrival`, `input_tokens`, `output_tokens`, `id`, `priority`, `cancel_after_s|_ms|_us|_ns|_ps`");
    assert_snapshot!(say("[1, 2]"), @"f: begins with `[1, 2]`; expected Azure LLM inference trace (`azure`), BurstGPT trace (`burstgpt`), Mooncake trace (`mooncake`), goodput timelines (`goodput`), JSON lines (`jsonl`), CSV (`csv`)");
    assert_snapshot!(say([0x1f, 0x8b, 8, 0, 0, 0]), @"f: cannot be read: the compressed data end too early, or other bytes follow them: is the file whole?");
    assert_snapshot!(say("arrival_s,arrival_ms,input_tokens,output_tokens\n0,0,1,1\n"), @"column map `arrival_ms`: arrival is already mapped to `arrival_s`, expected one column");
    let map = TraceMap::parse(["arrival_s=t", "input_tokens=i", "output_tokens=o"]).unwrap();
    let options = TraceOptions { map, format: None };
    for text in ["t,i,n\n0,1,1\n", "{\"t\": 0, \"i\": 1, \"n\": 1}"] {
        let error = read_trace("f", Cursor::new(text.as_bytes()), &options).unwrap_err();
        assert!(
            error.to_string().ends_with("`o`: no such column; the file has `t`, `i`, `n`"),
            "{error}"
        );
    }
    let format = "azur".parse::<TraceFormat>().unwrap_err();
    assert_snapshot!(format.to_string(), @"`azur` is no input format; expected one of `azure`, `burstgpt`, `mooncake`, `goodput`, `jsonl`, `csv`");
}

/// The folder with third parties' data.
fn data(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("GOODPUT_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = root.join(path);
    if !path.exists() {
        println!("skipped: {} is absent; set GOODPUT_DATA", path.display());
        return None;
    }
    Some(path)
}

/// Attoseconds in the 100 ns of a stamp's last digit.
const TICKS: u128 = 100_000_000_000;

/// The numbers come from Python's csv module over integers alone: stamps without their point as
/// counts of 100 ns since 1970 (`datetime` for the whole seconds), then min, max and sums.
#[test]
fn the_azure_traces_of_2023_have_these_totals() {
    for (name, n, first, last, arrivals, input, output) in [
        (
            "conv",
            19_366,
            17_001_585_466_805_900_u128,
            35_017_219_370_u128,
            334_733_403_854_070_u128,
            22_361_870_u64,
            4_088_665_u64,
        ),
        (
            "code",
            8_819,
            17_001_586_239_799_600,
            34_359_480_560,
            133_272_679_545_920,
            18_059_974,
            245_896,
        ),
    ] {
        let Some(path) = data(&format!("traces/azure2023/AzureLLMInferenceTrace_{name}.csv"))
        else {
            return;
        };
        let file = read_trace_path(&path, &TraceOptions::default()).unwrap();
        let requests = file.workload.requests();
        assert_eq!((file.format, requests.len()), (TraceFormat::Azure, n));
        assert_eq!(file.epoch.map(Epoch::unix_attoseconds), Some(first * TICKS));
        assert_eq!(requests.last().unwrap().arrival.attoseconds(), last * TICKS);
        let sum: u128 = requests.iter().map(|r| r.arrival.attoseconds()).sum();
        assert_eq!(sum, arrivals * TICKS);
        assert_eq!(requests.iter().map(|r| r.input_tokens).sum::<u64>(), input);
        assert_eq!(requests.iter().map(|r| r.output_tokens).sum::<u64>(), output);
        // No row has 0 tokens, so none is left out.
        assert_eq!(notes(&file), [] as [&str; 0]);
    }
}

/// A request's prompt as names with their tokens: 512 each, the last one what is left.
#[test]
fn the_names_of_a_mooncake_trace_are_runs_of_its_prompt() {
    let row = |ms: u64, input: u64, ids: &str| {
        format!(
            r#"{{"timestamp": {ms}, "input_length": {input}, "output_length": 3, "hash_ids": {ids}}}"#
        )
    };
    let file = trace([row(500, 1100, "[0, 1, 2]"), row(750, 1024, "[0, 7]")].join("\n"));
    assert_eq!(file.format, TraceFormat::Mooncake);
    assert_eq!(rows(&file.workload), ["1 0s 1100 3", "2 250ms 1024 3"]);
    let prompts: Vec<_> = file
        .workload
        .requests()
        .iter()
        .map(|r| r.content.as_ref().unwrap().prompt.clone())
        .collect();
    assert_eq!(prompts, [vec![(0, 512), (1, 512), (2, 76)], vec![(0, 512), (7, 512)]]);

    // One name too few, one that is too large, and one that is no number.
    for (input, ids) in [(1100, "[0, 1]"), (512, "[4611686018427387904]"), (512, r#"["a"]"#)] {
        let said = say(row(0, input, ids));
        let expected = format!("{} whole numbers below 2^62", input.div_ceil(512));
        assert!(said.contains("line 1, `hash_ids`") && said.contains(&expected), "{said}");
    }
}

/// Both schemas; the failed request of line 3 is left out.
#[test]
fn burstgpt_traces_of_both_schemas_are_read() {
    let old = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
               5,ChatGPT,472,18,490,Conversation log\n\
               45.25,ChatGPT,1087,0,1087,Conversation log\n\
               118,GPT-4,417,276,693,API log\n";
    let file = trace(old);
    assert_eq!(file.format, TraceFormat::BurstGpt);
    assert_eq!(rows(&file.workload), ["2 0s 472 18", "4 113s 417 276"]);
    assert_snapshot!(notes(&file).join("\n"), @"
    no-output: 1 of 3 rows (the first in line 3) have 0 answer tokens, as failed requests do, and are left out: their prompts may have loaded the server
    clock-shifted: arrivals count from the first row, which the file's clock puts at 5 s
    ");

    let new = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
               5,a,1.5,ChatGPT,472,18,490,Conversation log\n\
               118,a,9,GPT-4,417,276,693,Conversation log\n";
    let file = trace(new);
    assert_eq!(rows(&file.workload), ["2 0s 472 18", "3 113s 417 276"]);
    assert!(notes(&file)[1].starts_with("sessions: "));
}

/// Five requests at 0, 10, 20, 90 and 100 s; time zero is 23:59:30 on the file's clock.
#[test]
fn a_slice_is_a_part_of_requests_or_of_time() {
    let file = trace(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2030-01-01 23:59:30,1,1\n\
         2030-01-01 23:59:40,1,1\n2030-01-01 23:59:50,1,1\n2030-01-02 00:01:00,1,1\n\
         2030-01-02 00:01:10,1,1\n",
    );
    let part = |text: &str| {
        let slice: Slice = text.parse().unwrap();
        let part = slice.of(&file.workload, file.epoch);
        part.map(|w| w.requests().iter().map(|r| r.id.to_string()).collect::<Vec<_>>().concat())
    };
    for (text, ids) in [
        ("0..2", "23"),
        ("3..", "56"),
        ("..1", "2"),
        ("1..99", "3456"),
        ("10s-90s", "34"),
        ("0m-1m", "234"),
        ("0.025h-1h", "56"),
        ("0s-10001ms", "23"),
        ("23:59:40-00:01", "34"),
        ("00:01-23:59:30", "56"),
        ("00:01:00-00:01:00", "234"),
        ("23:00-00:01", "234"),
    ] {
        assert_eq!(part(text).unwrap(), ids, "{text}");
    }
    let say = |text: &str| match text.parse::<Slice>() {
        Ok(_) => part(text).unwrap_err().to_string(),
        Err(e) => e.to_string(),
    };
    assert_snapshot!(say("5..9"), @"slice `5..9`: expected a part with requests: the trace has 5 of them, the last one at 100 s");
    assert_snapshot!(say("12:00-13:00"), @"slice `12:00-13:00`: expected a part with requests: the trace has 5 of them, the last one at 100 s");
    assert_snapshot!(say("2..1"), @"slice `2..1`: expected requests `0..1000`, times from the start `10m-30m` or times of day `18:20-18:30`, the end after the start");
    assert_snapshot!(say("10-20"), @"slice `10-20`: expected requests `0..1000`, times from the start `10m-30m` or times of day `18:20-18:30`, the end after the start");
    assert_snapshot!(say("25:00-26:00"), @"slice `25:00-26:00`: expected requests `0..1000`, times from the start `10m-30m` or times of day `18:20-18:30`, the end after the start");
    assert_snapshot!(say("-1..3"), @"slice `-1..3`: expected places from 0 to 2^53 on both sides of `..`, got `-1`");
    assert_snapshot!(say("0s-1e300s"), @"slice `0s-1e300s`: expected two times: duration `1e300s`: expected at most 3153600000 s (a hundred years)");
    let plain = trace("arrival_s,input_tokens,output_tokens\n0,1,1\n1,1,1\n");
    let slice: Slice = "10:00-11:00".parse().unwrap();
    assert_snapshot!(slice.of(&plain.workload, plain.epoch).unwrap_err().to_string(), @"slice `10:00-11:00`: expected times from the start such as `10m-30m`: the trace has no calendar");
}

/// What is written reads back the same: every digit of an arrival, names and prefixes.
#[test]
fn what_is_written_reads_back_the_same() {
    use sched_sim::workload::{Sessions, ThinkAfter, chat};
    let mut spec = chat(300, 3.0, 5);
    let mut plain = Vec::new();
    write_request(&mut plain, &spec.generate().unwrap().requests()[0]).unwrap();
    assert_eq!(trace(&plain).format, TraceFormat::Jsonl);
    spec.system_prompts = Some("tokens=40,count=3,skew=1".parse().unwrap());
    spec.cancellations = Some("20%,exponential:mean=2s".parse().unwrap());
    for sessions in [false, true] {
        spec.sessions = sessions.then(|| Sessions {
            turns: "uniform:1,5".parse().unwrap(),
            think: "exponential:2s".parse().unwrap(),
            after: ThinkAfter::Arrival,
        });
        let workload = spec.generate().unwrap();
        let mut text = Vec::new();
        for r in workload.requests() {
            write_request(&mut text, r).unwrap();
        }
        let file = trace(&text);
        assert_eq!(file.format, TraceFormat::Jsonl);
        // Time zero is the first row.
        let zero = workload.requests()[0].arrival;
        for (got, want) in file.workload.requests().iter().zip(workload.requests()) {
            let mut want = want.clone();
            want.arrival = want.arrival.since(zero).unwrap();
            assert_eq!(*got, want);
        }
        assert_eq!(file.workload.len(), 300);
    }
    let wrong =
        r#"{"id":"a","arrival_s":0,"input_tokens":9,"output_tokens":1,"prompt_segments":[[1,8]]}"#;
    assert_snapshot!(say(wrong), @"f, line 1, `prompt_segments`: found [[1,8]], expected pairs of a segment below 2^62 and its tokens, 9 in all, and an `answer_segment` that is one or none");
}

/// Gaps of 10, 10, 70 and 10 s: mean 25, standard deviation 30. Two prompts of 8 tokens begin with
/// the first one's 5, the last of them with its answer of 3 as well; one of 4 is a part of it.
#[test]
fn a_profile_is_counted_by_hand() {
    let line = |s: u32, n: u64, more: &str| {
        format!("{{\"arrival_s\":{s},\"input_tokens\":{n},\"output_tokens\":3{more}}}\n")
    };
    let text = [
        line(0, 5, ",\"prompt_segments\":[[1,5]],\"answer_segment\":2"),
        line(10, 8, ",\"prompt_segments\":[[1,5],[7,3]]"),
        line(20, 8, ",\"prompt_segments\":[[1,5],[2,3]]"),
        line(90, 4, ",\"prompt_segments\":[[1,4]]"),
        line(100, 5, ""),
    ];
    let p = TraceProfile::of(&trace(text.concat()).workload).unwrap();
    assert_eq!((p.requests, p.span_s, p.rate_per_s), (5, 100.0, Some(0.04)));
    // Three in the first minute; the second one is not over.
    assert_eq!(p.peak_minute_per_s, Some(0.05));
    assert!((p.gap_cv.unwrap() - 30.0 / 25.0).abs() < 1e-12);
    // Of 30 tokens: 5 of the second, 5 + 3 of the third, 4 of the fourth.
    assert!((p.shared_prefix.unwrap() - 17.0 / 30.0).abs() < 1e-12);
    assert_eq!((p.input_tokens.max(), p.output_tokens.mean()), (8.0, 3.0));

    let one = TraceProfile::of(&trace("arrival_s,input_tokens,output_tokens\n5,1,1\n").workload);
    let one = one.unwrap();
    assert_eq!((one.rate_per_s, one.peak_minute_per_s, one.gap_cv), (None, None, None));
    assert_eq!(one.shared_prefix, None);
}

/// Nobody knows which of two values is meant, wherever they stand.
#[test]
fn a_key_that_stands_twice_is_refused() {
    let said = |line: &str| {
        let options = TraceOptions::default();
        read_trace("f", Cursor::new(line.as_bytes().to_vec()), &options).unwrap_err().to_string()
    };
    let mooncake = |more: &str| {
        said(&format!(
            r#"{{"timestamp":0,"input_length":5,"output_length":2,"hash_ids":[1]{more}}}"#
        ))
    };
    assert_snapshot!(mooncake(r#","input_length":700"#), @"f, line 1, `input_length`: appears twice, expected once");
    assert_snapshot!(mooncake(r#","hash_ids":[2]"#), @"f, line 1, `hash_ids`: appears twice, expected once");
    // In the first line two columns would have one field; here it is the second.
    let lines = |more: &str| {
        let line = r#"{"arrival_s":0,"input_tokens":5,"output_tokens":2"#;
        said(&format!("{line}}}\n{line}{more}}}"))
    };
    assert_snapshot!(lines(r#","input_tokens":7"#), @"f, line 2, `input_tokens`: appears twice, expected once");
    assert_snapshot!(lines(r#","priority":1,"priority":2"#), @"f, line 2, `priority`: appears twice, expected once");
    let segments = r#","prompt_segments":[[1,5]],"prompt_segments":[[2,5]]"#;
    assert_snapshot!(lines(segments), @"f, line 2, `prompt_segments`: appears twice, expected once");
    let answers = r#","prompt_segments":[[1,5]],"answer_segment":2,"answer_segment":3"#;
    assert_snapshot!(lines(answers), @"f, line 2, `answer_segment`: appears twice, expected once");
}

/// A priority is a whole number of 64 bits; a map needs it in every row.
#[test]
fn what_is_no_priority_is_refused() {
    let said = |priority: &str| {
        let line = format!(
            r#"{{"arrival_s":0,"input_tokens":5,"output_tokens":2,"priority":{priority}}}"#
        );
        let options = TraceOptions::default();
        read_trace("f", Cursor::new(line.into_bytes()), &options).unwrap_err().to_string()
    };
    for wrong in ["1.5", "\"1\"", "null", "true", "9223372036854775808", "1e3"] {
        let text = said(wrong);
        assert!(text.contains("`priority`") && text.contains("9223372036854775807"), "{text}");
    }
    let csv = "arrival_s,input_tokens,output_tokens,priority\n0,5,2,-9223372036854775808\n";
    assert_eq!(trace(csv).workload.requests()[0].priority, i64::MIN);
    let map = ["arrival_s=t", "input_tokens=i", "output_tokens=o", "priority=p"];
    let lines = "{\"t\":0,\"i\":5,\"o\":2,\"p\":4}\n{\"t\":0,\"i\":5,\"o\":2}\n";
    let options = TraceOptions { map: TraceMap::parse(map).unwrap(), format: None };
    let lacking = read_trace("f", Cursor::new(lines.as_bytes()), &options).unwrap_err();
    assert_snapshot!(lacking.to_string(), @"f, line 2, `p`: found nothing, expected a whole number from -9223372036854775808 to 9223372036854775807");
}

/// When a client goes away is a time from its arrival, in any unit; who stays leaves it out.
#[test]
fn clients_who_go_away_are_read_in_any_unit() {
    let after = |text: &str| -> Vec<String> {
        let of = |r: &sched_sim::WorkloadRequest| {
            r.cancel_after().map_or("-".to_owned(), Ticks::compact)
        };
        trace(text).workload.requests().iter().map(of).collect()
    };
    let csv = "arrival_s,input_tokens,output_tokens,cancel_after_ms\n0,5,2,1500\n1,5,2,\n2,5,2,0\n";
    assert_eq!(after(csv), ["1.5s", "-", "0s"]);
    let line =
        |more: &str| format!("{{\"arrival_s\":0,\"input_tokens\":5,\"output_tokens\":2{more}}}\n");
    let lines = [
        line(""),
        line(r#","cancel_after_s":0.25"#),
        line(r#","cancel_after_ns":7"#),
        line(r#","cancel_after_s":null"#),
    ];
    assert_eq!(after(&lines.concat()), ["-", "250ms", "7ns", "-"]);

    let said = |more: &str| {
        let options = TraceOptions::default();
        read_trace("f", Cursor::new(line(more).into_bytes()), &options).unwrap_err().to_string()
    };
    assert_snapshot!(said(r#","cancel_after_s":-1"#), @"f, line 1, `cancel_after_s`: found `-1`, expected a number of seconds from 0 to a hundred years, or nothing");
    assert_snapshot!(said(r#","cancel_after_s":"2s""#), @r#"f, line 1, `cancel_after_s`: found "2s", expected a number of seconds from 0 to a hundred years, or nothing"#);
    assert_snapshot!(said(r#","cancel_after_us":1e16"#), @"f, line 1, `cancel_after_us`: found `1e16`, expected a number of microseconds from 0 to a hundred years, or nothing");
    assert_snapshot!(said(r#","cancel_after_s":1,"cancel_after_ms":1"#), @"column map `cancel_after_ms`: cancel_after is already mapped to `cancel_after_s`, expected one column");
    assert_snapshot!(TraceMap::parse(["cancel_after=x"]).unwrap_err().to_string(), @"column map `cancel_after=x`: `cancel_after` is no field, expected `arrival_s|_ms|_us|_ns|_ps`, `arrival`, `input_tokens`, `output_tokens`, `id`, `priority`, `cancel_after_s|_ms|_us|_ns|_ps`");
}

/// A file that a second writer added to is no whole one, whatever its first part holds.
#[test]
fn bytes_behind_a_zipped_trace_are_told() {
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zipped.write_all(AZURE.as_bytes()).unwrap();
    let mut bytes = zipped.finish().unwrap();
    bytes.extend_from_slice(b"xx");
    let said = read_trace("f", Cursor::new(bytes), &TraceOptions::default()).unwrap_err();
    assert_snapshot!(said.to_string(), @"f: cannot be read: the compressed data end too early, or other bytes follow them: is the file whole?");
}
