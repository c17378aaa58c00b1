//! Every kind of bad input has an error of one line: file, row, key, what was found, what is right.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;
use std::path::Path;

use insta::assert_snapshot;
use serving_io::{ColumnMap, Format, Options, read, read_path};

fn error(name: &str, content: impl AsRef<[u8]>, options: &Options) -> String {
    let content = content.as_ref().to_vec();
    let text = read(name, Cursor::new(content), options).unwrap_err().to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

fn say(content: impl AsRef<[u8]>) -> String {
    error("f", content, &Options::default())
}

fn mapped(content: &str, map: &[&str]) -> String {
    error("f.csv", content, &Options { map: ColumnMap::parse(map).unwrap(), format: None })
}

fn map(item: &str) -> String {
    ColumnMap::parse([item]).unwrap_err().to_string()
}

/// A vLLM result with these keys replaced or added.
fn vllm(keys: &str) -> String {
    let base =
        r#""model_id": "m", "num_prompts": 2, "duration": 2.0, "completed": 2, "errors": ["", ""]"#;
    error("r.json", format!("{{{base}, {keys}}}"), &Options::default())
}

/// The same with two sound requests, of which one array is given.
fn request(array: &str) -> String {
    let mut keys = vec![array.to_owned()];
    for (key, value) in [
        ("input_lens", "[10, 10]"),
        ("output_lens", "[3, 2]"),
        ("ttfts", "[0.5, 0.25]"),
        ("itls", "[[0.25, 0.25], [0.5]]"),
        ("latencies", "[1.0, 0.75]"),
        ("start_times", "[5.0, 6.0]"),
    ] {
        if !array.starts_with(&format!("\"{key}\"")) {
            keys.push(format!("\"{key}\": {value}"));
        }
    }
    vllm(&keys.join(", "))
}

/// One of our lines with more keys.
fn line(keys: &str) -> String {
    say(format!("{{\"id\": \"a\", {keys}}}"))
}

/// A row of a table with our names, below two sound rows.
fn row(cells: &str) -> String {
    let head = "id,arrival_s,first_token_s,last_token_s,output_tokens,outcome";
    say(format!("{head}\nx,3,4,5,2,ok\ny,3,4,5,2,ok\n{cells}\n"))
}

#[test]
fn files_that_are_no_text() {
    assert_snapshot!(say(""), @"f: is empty, expected benchmark results or a request log");
    assert_snapshot!(say("\u{feff}"), @"f: is empty, expected benchmark results or a request log");
    assert_snapshot!(say(" \r\n\n"), @"f: is empty, expected benchmark results or a request log");
    assert_snapshot!(say([0x89, b'P', 0, 1]), @"f, byte 2: a zero byte, as in a binary file, expected UTF-8 text");
    assert_snapshot!(say([b'a', b',', 0xc3, b'\n']), @"f, byte 2: byte 0xc3, expected UTF-8 text");
    assert_snapshot!(say([0xff, 0xfe, b'{', 0]), @"f, byte 0: a UTF-16 byte order mark, expected UTF-8 text");
    assert_snapshot!(say([0x1f, 0x8b, 8, 0, 0, 0]), @"f: cannot be read: the compressed data end too early, or other bytes follow them: is the file whole?");
    let here = read_path(Path::new("tests"), &Options::default()).unwrap_err();
    assert_snapshot!(here.to_string(), @"tests: is a directory without the files of a benchmark tool, expected a file or the directory that AIPerf or inference-perf leaves (profile_export.jsonl, per_request_lifecycle_metrics.json)");
    let nowhere = read_path(Path::new("tests/nowhere"), &Options::default()).unwrap_err();
    assert_snapshot!(nowhere.to_string(), @"tests/nowhere: cannot be read: No such file or directory (os error 2)");
}

#[cfg(not(feature = "zstd"))]
#[test]
fn zstd_needs_its_feature() {
    assert_snapshot!(say([0x28, 0xb5, 0x2f, 0xfd, 0, 0]), @"f: is compressed with zstd, which this build cannot unpack, expected a plain or gzip file, or a build with the feature `zstd`");
}

/// The message without the list of all formats, which grows.
fn listless(message: &str) -> String {
    let names = Format::ALL.map(|f| format!("`{}`", f.name())).join(", ");
    message.replace(&names, "FORMATS")
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_its_feature() {
    assert_snapshot!(say(b"PAR1\x15\x04"), @"f: is a Parquet file, which this build cannot read, expected CSV or JSON lines, or a build with the feature `parquet`");
}

#[test]
fn content_of_no_known_format() {
    assert_snapshot!(listless(&say("hello world\n")), @"f: begins with `hello world`; expected one of FORMATS");
    assert_snapshot!(listless(&say("[{\"ttft_ms\": 1}]")), @r#"f: begins with `[{"ttft_ms": 1}]`; expected one of FORMATS"#);
    assert_snapshot!(listless(&say("{}")), @"f: a JSON object without a key; expected one of FORMATS");
    assert_snapshot!(say("{\"latency\": 1, \"n\": 2}"), @"f: no column has a field's name; the file has `latency`, `n`; map them, as in `--map ttft_ms=latency`, to id, input_tokens, output_tokens, outcome, or with _s, _ms, _us or _ns arrival, sent, scheduled, first_token, last_token, ttft, tpot, e2e");
    assert_snapshot!(say("latency,n\n1,2\n"), @"f: no column has a field's name; the file has `latency`, `n`; map them, as in `--map ttft_ms=latency`, to id, input_tokens, output_tokens, outcome, or with _s, _ms, _us or _ns arrival, sent, scheduled, first_token, last_token, ttft, tpot, e2e");
    assert_snapshot!(listless(&"xml".parse::<Format>().unwrap_err().to_string()), @"`xml` is no input format; expected one of FORMATS");
}

#[test]
fn column_maps_that_do_not_fit() {
    assert_snapshot!(map("ttft_ms"), @"column map `ttft_ms`: expected FIELD=COLUMN, for example `ttft_ms=latency_first`");
    assert_snapshot!(map("ttft=x"), @"column map `ttft=x`: `ttft` is no field, expected id, input_tokens, output_tokens, outcome, or with _s, _ms, _us or _ns arrival, sent, scheduled, first_token, last_token, ttft, tpot, e2e");
    let twice = ColumnMap::parse(["ttft_ms=a", "ttft_s=b"]).unwrap_err();
    assert_snapshot!(twice.to_string(), @"column map `ttft_s=b`: ttft is already mapped to `a`, expected one column");
    assert_snapshot!(mapped("a,b\n1,2\n", &["ttft_ms=c"]), @"f.csv, `c`: no such column; the file has `a`, `b`");
    assert_snapshot!(mapped("a,a\n1,2\n", &["ttft_ms=a"]), @"f.csv, line 1, `a`: appears twice, expected once");
    assert_snapshot!(mapped("{\"a\": 1}\n", &["ttft_ms=c"]), @"f.csv, `c`: no such column; the file has `a`");
    assert_snapshot!(say("ttft_ms,ttft_s\n1,2\n"), @"f, line 1, `ttft_s`: ttft is already in column `ttft_ms`, expected one column");
    assert_snapshot!(say("ttft_ms,ttft_ms\n1,2\n"), @"f, line 1, `ttft_ms`: appears twice, expected once");
}

#[test]
fn times_that_no_clock_shows() {
    assert_snapshot!(row("z,-3,4,5,2,ok"), @"f, line 4, `arrival_s`: arrival must be at least 0, got -3");
    assert_snapshot!(row("z,3,2.5,5,2,ok"), @"f, line 4, `first_token_s`: first_token must be at least arrival = 3, got 2.5");
    assert_snapshot!(row("z,3,4,3.5,2,ok"), @"f, line 4, `last_token_s`: last_token after arrival must be at least first_token after arrival = 1, got 0.5");
    assert_snapshot!(row("z,3,4,5,1,ok"), @"f, line 4, `output_tokens`: one output token means last_token = first_token, got 2 and 1 after arrival");
    assert_snapshot!(row("z,3,NaN,5,2,ok"), @"f, line 4, `first_token_s`: found `NaN`, expected a number of seconds, or nothing for unknown");
    assert_snapshot!(row("z,3,inf,5,2,ok"), @"f, line 4, `first_token_s`: found `inf`, expected a number of seconds, or nothing for unknown");
    assert_snapshot!(row("z,3,1e999,5,2,ok"), @"f, line 4, `first_token_s`: found `1e999`, expected a number of seconds, or nothing for unknown");
    assert_snapshot!(row("z,3,1e99,1e101,2,ok"), @"f, line 4, `last_token_s`: last_token must be at most 1e100, got 1e101");
    assert_snapshot!(row("z,3,\"4,5\",5,2,ok"), @"f, line 4, `first_token_s`: found `4,5`, expected a number of seconds, or nothing for unknown");
    assert_snapshot!(row("z,,4,5,2,ok"), @"f, line 4, `arrival_s`: arrival is missing: an instant has a meaning only from the request's arrival");
    assert_snapshot!(say("ttft_ms,tpot_ms\n5,5\n"), @"f, line 2: output_tokens is missing: the end is ttft + (output_tokens - 1) · tpot");
    assert_snapshot!(say("ttft_ms,tpot_ms,output_tokens\n5,-5,2\n"), @"f, line 2, `tpot_ms`: tpot must be at least 0, got -0.005 (in seconds)");
}

#[test]
fn counts_and_words_that_mean_nothing() {
    assert_snapshot!(row("z,3,4,5,0,ok"), @"f, line 4, `output_tokens`: output_tokens must be at least 1, got 0");
    assert_snapshot!(row("z,3,4,5,1e30,ok"), @"f, line 4, `output_tokens`: found `1e30`, expected a whole number from 0 to 2^53");
    assert_snapshot!(row("z,3,4,5,-1,ok"), @"f, line 4, `output_tokens`: found `-1`, expected a whole number from 0 to 2^53");
    assert_snapshot!(row("z,3,4,5,1.5,ok"), @"f, line 4, `output_tokens`: found `1.5`, expected a whole number from 0 to 2^53");
    assert_snapshot!(row("z,3,4,5,2,1"), @"f, line 4, `outcome`: found `1`, expected an outcome such as `completed`, `failed`, `rejected`, `timed_out`, `cancelled`, `cut_off`, or an HTTP status; 0 and 1 are ambiguous");
    assert_snapshot!(row("z,3,4,5,2,Perfect\u{7}"), @r#"f, line 4, `outcome`: found `Perfect\u{7}`, expected an outcome such as `completed`, `failed`, `rejected`, `timed_out`, `cancelled`, `cut_off`, or an HTTP status; 0 and 1 are ambiguous"#);
    assert_snapshot!(row("z,3,,,,"), @"f, line 4, `outcome`: found a request with neither an outcome nor a time of an output, expected one of them; outcomes are `completed`, `failed`, `rejected`, `timed_out`, `cancelled`, `cut_off`");
    assert_snapshot!(row("x,3,4,5,2,ok"), @"f, line 4, `id`: request `x` is already in line 2, expected unique ids");
    assert_snapshot!(row(",3,4,5,2,ok"), @"f, line 4, `id`: found nothing, expected the request's name");
}

#[test]
fn tables_out_of_shape() {
    assert_snapshot!(row("z,3,4"), @"f, line 4: 3 cells, expected 6 as in the header");
    assert_snapshot!(row("z,3,4,5,2,ok,more"), @"f, line 4: 7 cells, expected 6 as in the header");
    assert_snapshot!(say("ttft_ms,outcome\r\n"), @"f: holds no requests, expected at least one request");
    assert_snapshot!(say("ttft_ms,outcome\r\n5,\"ok\r\n"), @"f, line 2: ends in the middle of a quoted cell, expected the rest of it: is it truncated?");
    assert_snapshot!(say(b"ttft_ms,outcome\n5,\xff\n"), @"f, byte 18: byte 0xff, expected UTF-8 text");
}

#[test]
fn json_lines_out_of_shape() {
    assert_snapshot!(say("{\"ttft_ms\": 5}\n{\"ttft_ms\": "), @"f, line 2: ends in the middle of a JSON object, expected the rest of it: is it truncated?");
    assert_snapshot!(say("{\"ttft_ms\": 5}\n{\"ttft_ms\": NaN}\n"), @"f, line 2, `ttft_ms`, column 13: `NaN`, which is not JSON, expected a finite number, or null for unknown");
    assert_snapshot!(say("{\"ttft_ms\": 5}\n5\n"), @"f, line 2, column 1: `5`, expected one JSON object a line");
    assert_snapshot!(say("{\"ttft_ms\": 5}\n{\"ttft_ms\": 5, \"ttft_ms\": 6}\n"), @"f, line 2, `ttft_ms`: appears twice, expected once");
    assert_snapshot!(say("{\"ttft_ms\": 5, \"output_tokens\": \"12\"}\n"), @r#"f, line 1, `output_tokens`: found "12", expected a whole number from 0 to 2^53"#);
    assert_snapshot!(say("{\"ttft_ms\": [5]}\n"), @"f, line 1, `ttft_ms`: found [5], expected a number of milliseconds, or nothing for unknown");
    assert_snapshot!(say("{\"ttft_ms\": 5} {\"ttft_ms\": 6}\n"), @"f, line 1, column 16: not JSON (trailing characters), expected valid JSON");
    assert_snapshot!(say("{\"ttft_ms\": 5}\n{\"ttft_s\": 6}\n"), @"f, line 2, `ttft_s`: ttft is already in column `ttft_ms`, expected one column");
}

#[test]
fn our_timelines_with_wrong_values() {
    assert_snapshot!(line("\"arrival_s\": 3, \"first_token_s\": 2.5"), @"f, line 1, `first_token_s`: first_token must be at least arrival = 3, got 2.5");
    assert_snapshot!(line("\"arrival_ps\": \"3\", \"first_token_ps\": \"2\""), @"f, line 1, `first_token_ps`: first_token must be at least arrival = 3e-12, got 2e-12");
    assert_snapshot!(line("\"arrival_s\": -1, \"outcome\": \"failed\""), @"f, line 1, `arrival_s`: arrival must be at least 0, got -1");
    assert_snapshot!(line("\"arrival_s\": 0, \"first_token_s\": 1, \"last_token_s\": 2, \"output_tokens\": 1"), @"f, line 1, `output_tokens`: one output token means last_token = first_token, got 2 and 1 after arrival");
    assert_snapshot!(line("\"arrival_s\": \"5\""), @r#"f, line 1, `arrival_s`: found "5", expected a number of seconds"#);
    assert_snapshot!(line("\"arrival_ps\": 5"), @r#"f, line 1, `arrival_ps`: found 5, expected whole picoseconds in a text, for example "12345""#);
    assert_snapshot!(line("\"arrival_ps\": \"-5\""), @r#"f, line 1, `arrival_ps`: found "-5", expected whole picoseconds in a text, for example "12345""#);
    assert_snapshot!(line("\"arrival_s\": 0, \"arrival_ps\": \"5\""), @"f, line 1, `arrival_ps`: appears twice, expected once");
    assert_snapshot!(line("\"arrival_s\": 0, \"token_s\": [1, null]"), @"f, line 1, `token_s[1]`: found null, expected a number of seconds");
    assert_snapshot!(line("\"first_token_s\": 1"), @"f, line 1, `arrival_s`: arrival is missing: an instant has a meaning only from the request's arrival");
    assert_snapshot!(line("\"e2e_s\": 1, \"output_tokens\": 0"), @"f, line 1, `output_tokens`: output_tokens must be at least 1, got 0");
    assert_snapshot!(line("\"e2e_s\": 1, \"output_tokens\": 1e30"), @"f, line 1, `output_tokens`: found 1e30, expected a whole number from 0 to 2^53");
    assert_snapshot!(line("\"arrival_s\": Infinity"), @"f, line 1, `arrival_s`, column 26: `Infinity`, which is not JSON, expected a finite number, or null for unknown");
    assert_snapshot!(line("\"arrival_s\": 1"), @"f, line 1, `outcome`: found a request without it and without a time of an output, expected one of `completed`, `failed`, `rejected`, `timed_out`, `cancelled`, `cut_off`");
    assert_snapshot!(line("\"outcome\": \"ok\""), @r#"f, line 1, `outcome`: found "ok", expected one of `completed`, `failed`, `rejected`, `timed_out`, `cancelled`, `cut_off`"#);
}

#[test]
fn our_timelines_out_of_shape() {
    let header = "{\"schema_version\": 1, \"kind\": \"goodput-timelines\"";
    let two = "{\"id\": 1, \"e2e_s\": 1}\n\n{\"id\": \"1\", \"e2e_s\": 1}";
    assert_snapshot!(say(two), @"f, line 3, `id`: request `1` is already in line 1, expected unique ids");
    assert_snapshot!(say(format!("{header}}}\n")), @"f: holds no requests, expected one JSON object a line and request");
    assert_snapshot!(say(format!("{header}, \"duration_s\": 0}}\n")), @"f, line 1, `duration_s`: found 0, expected a duration above 0; leave it out if it is unknown");
    assert_snapshot!(say(format!("{header}, \"seed\": 0}}\n")), @"f, line 1, `seed`: unknown key, expected one of `schema_version`, `kind`, `epoch_s`, `duration_s`, `duration_ps`, `truncated`, `tool`, `tool_version`");
    assert_snapshot!(say("{\"schema_version\": 2, \"kind\": \"goodput-timelines\"}\n"), @"f, line 1, `schema_version`: found 2, expected 1");
    assert_snapshot!(say(format!("{header}}}\n{{\"arrival_s\": 1}}")), @"f, line 2, `id`: found a request without it, expected the request's name");
    assert_snapshot!(say(format!("{header}}}\n{{\"id\": 1, \"arrival\": 1}}")), @"f, line 2, `arrival`: unknown key, did you mean `arrival_s`?");
}

#[test]
fn vllm_results_with_wrong_values() {
    assert_snapshot!(request("\"ttfts\": [0.5, -0.25]"), @"r.json, line 1, `ttfts[1]`: ttft must be at least 0, got -0.25");
    assert_snapshot!(request("\"ttfts\": [0.5, \"0.25\"]"), @r#"r.json, line 1, `ttfts[1]`: found "0.25", expected a number of seconds"#);
    assert_snapshot!(request("\"ttfts\": [0.5, NaN]"), @"r.json, line 1, `ttfts[1]`: found NaN, expected a number of seconds");
    assert_snapshot!(request("\"ttfts\": [0.5]"), @"r.json, line 1, `latencies`: holds 2 values, expected 1 as in `ttfts`");
    assert_snapshot!(request("\"ttfts\": 0.5"), @"r.json, line 1, `ttfts`: found 0.5, expected a list with one value a request");
    assert_snapshot!(request("\"latencies\": [1.0, 0.125]"), @"r.json, line 1, `latencies[1]`: last_token after arrival must be at least first_token after arrival = 0.25, got 0.125");
    assert_snapshot!(request("\"output_lens\": [3, 1.5]"), @"r.json, line 1, `output_lens[1]`: found 1.5, expected a whole number from 0 to 2^53");
    assert_snapshot!(request("\"output_lens\": [3, 1e30]"), @"r.json, line 1, `output_lens[1]`: found 1e30, expected a whole number from 0 to 2^53");
    assert_snapshot!(request("\"input_lens\": [-1, 1]"), @"r.json, line 1, `input_lens[0]`: found -1, expected a whole number from 0 to 2^53");
    assert_snapshot!(request("\"itls\": [[0.25, null], [0.5]]"), @"r.json, line 1, `itls[0]`: found null at 1 in it, expected a list of numbers of seconds");
    assert_snapshot!(request("\"itls\": [[0.25, -0.25], [0.5]]"), @"r.json, line 1, `itls[0]`: a gap between outputs must be at least 0, got -0.25");
    assert_snapshot!(request("\"start_times\": [5.0, -6.0]"), @"r.json, line 1, `start_times[1]`: arrival must be at least 0, got -6");
    assert_snapshot!(request("\"start_times\": [5.0, 6.0"), @"r.json, line 1, `start_times[2]`, column 128: not JSON (expected `,` or `]`), expected valid JSON");
}

#[test]
fn vllm_results_with_wrong_settings() {
    assert_snapshot!(vllm("\"ttfts\": []"), @"r.json, line 1, `errors`: holds 2 values, expected 0 as in `ttfts`");
    assert_snapshot!(vllm("\"latencies\": [1, 2], \"queue_times\": [0, -1]"), @"r.json, line 1, `queue_times[1]`: the wait in the client must be at least 0, got -1");
    assert_snapshot!(vllm("\"duration\": 1"), @"r.json, line 1, `duration`: found the same key a second time, expected each key once");
    assert_snapshot!(vllm("\"failed\": -1"), @"r.json, line 1, `failed`: found -1, expected a whole number from 0 to 2^53");
    assert_snapshot!(vllm("\"request_rate\": 0"), @r#"r.json, line 1, `request_rate`: found 0, expected a number above 0, or "inf""#);
    assert_snapshot!(vllm("\"request_rate\": Infinity"), @r#"r.json, line 1, `request_rate`: found Infinity, expected a number above 0, or "inf""#);
    assert_snapshot!(vllm("\"burstiness\": \"1\""), @r#"r.json, line 1, `burstiness`: found "1", expected a number above 0"#);
    assert_snapshot!(say("{\"model_id\": \"m\", \"num_prompts\": 2, \"duration\": 0.0}"), @"f, line 1, `duration`: found 0.0, expected a number of seconds above 0 and at most 1e100");
    assert_snapshot!(say("{\"model_id\": \"m\", \"num_prompts\": 2, \"duration\": 1e300}"), @"f, line 1, `duration`: found 1e+300, expected a number of seconds above 0 and at most 1e100");
    assert_snapshot!(say("{\"model_id\": \"m\", \"num_prompts\": 2, \"duration\": 1.0} x"), @"f, line 1: holds no requests, expected the counts, figures or arrays of a `vllm bench serve` result");
    assert_snapshot!(say("{\"model_id\": \"m\", \"num_prompts\": 2, \"duration\": 1.0}\n{\"model"), @"f, line 1: holds no requests, expected the counts, figures or arrays of a `vllm bench serve` result");
}

/// Times and rates are at least 0, and bounded as a duration is.
#[test]
fn stated_figures_that_no_run_has() {
    assert_snapshot!(vllm("\"p99_ttft_ms\": -5"), @"r.json, line 1, `p99_ttft_ms`: found -5, expected a time of at least 0 and at most 1e103");
    assert_snapshot!(vllm("\"p99_ttft_ms\": 1e308"), @"r.json, line 1, `p99_ttft_ms`: found 1e308, expected a time of at least 0 and at most 1e103");
    assert_snapshot!(vllm("\"mean_ttft_ms\": -5"), @"r.json, line 1, `mean_ttft_ms`: found -5, expected a time of at least 0 and at most 1e103");
    assert_snapshot!(vllm("\"request_throughput\": -1"), @"r.json, line 1, `request_throughput`: found -1, expected a rate of at least 0 and at most 1e100");
}

/// A number under a name of its own, or a line of a request log, is no run of a tool.
#[test]
fn a_stray_object_is_no_result() {
    let one = |format| {
        let options = Options { format: Some(format), ..Options::default() };
        error("r.json", "{\"foo\": 1}", &options)
    };
    assert_snapshot!(one(Format::Vllm), @"r.json, line 1: holds no requests, expected the counts, figures or arrays of a `vllm bench serve` result");
    assert_snapshot!(one(Format::Sglang), @"r.json, line 1: holds no requests, expected the counts, figures or arrays of a `sglang.bench_serving` result");
    assert_snapshot!(one(Format::Llmperf), @"r.json: holds no requests, expected the requests or figures of an llmperf result");
    let result = "{\"model_id\": \"m\", \"num_prompts\": 2, \"duration\": 1.0, \"completed\": 2}";
    assert_snapshot!(say(format!("{result}\n{{\"foo\": 1}}")), @"f, line 2: holds no requests, expected the counts, figures or arrays of a `vllm bench serve` result");
    assert_snapshot!(say(format!("{result}\n{{\"id\": \"a\", \"ttft_ms\": 5}}")), @"f, line 2: holds no requests, expected the counts, figures or arrays of a `vllm bench serve` result");
}

/// A file's text that names no field, in the shape that each tool writes.
#[test]
fn a_misspelt_column_is_named_and_not_left_out() {
    assert_snapshot!(say("ttft_ms,e2e_ms,outptu_tokens\n2,5,3\n"), @"f, line 1, `outptu_tokens`: no field is called so, did you mean `output_tokens`? Rename it, or say with `--map` what each column means");
    assert_snapshot!(say("TTFT_ms,e2e_ms\n2,5\n"), @"f, line 1, `TTFT_ms`: no field is called so, did you mean `ttft_ms`? Rename it, or say with `--map` what each column means");
    assert_snapshot!(say("{\"id\": 1, \"e2e_s\": 5, \"outptu_tokens\": 3}\n"), @"f, `outptu_tokens`: no field is called so, did you mean `output_tokens`? Rename it, or say with `--map` what each column means");
    assert_snapshot!(say("{\"id\": 1, \"ttft\": 5}\n"), @"f, `ttft`: no field is called so, did you mean `ttft_s`? Rename it, or say with `--map` what each column means");
    assert_snapshot!(say("{\"ttft_ms\": 5, \"e2e_ms\": 9}\n{\"ttfts_ms\": 5, \"e2e_ms\": 9}\n"), @"f, line 2, `ttfts_ms`: no field is called so, did you mean `ttft_ms`? Rename it, or say with `--map` what each column means");
    let header = "{\"schema_version\": 1, \"kind\": \"goodput-timelines\"}";
    assert_snapshot!(say(format!("{header}\n{{\"id\": 1, \"outptu_tokens\": 1}}")), @"f, line 2, `outptu_tokens`: unknown key, did you mean `output_tokens`?");
    let all = say(format!("{header}\n{{\"id\": 1, \"colour\": 1}}"));
    assert_snapshot!(all, @"f, line 2, `colour`: unknown key, expected one of id, arrival_s|_ps, sent_s|_ps, scheduled_s|_ps, first_token_s|_ps, last_token_s|_ps, token_s|_ps, ttft_s, e2e_s, itl_s, chunk_gap_s, input_tokens, output_tokens, outcome");
    assert!(all.chars().count() < 300);
}

/// A name that only begins alike, or whose field is there under its own name, is another column.
#[test]
fn other_columns_are_left_out_and_listed() {
    let csv =
        "ttft_ms,output_tokens,output_token,sent_at,output_tokens_per_s,status\n2,3,9,9,9,9\n";
    let file = read("f", Cursor::new(csv), &Options::default()).unwrap();
    assert_eq!(file.runs[0].timelines[0].output_tokens(), Some(3));
    let note = file.runs[0].notes.iter().find(|n| n.id == "columns-not-read").unwrap();
    assert_snapshot!(note.text, @"no field is called so, not read: `output_token`, `sent_at`, `output_tokens_per_s`, `status`");
    let map = ColumnMap::parse(["ttft_ms=TTFT_ms", "e2e_ms=e2e_ms"]).unwrap();
    let options = Options { map, format: None };
    let file = read("f", Cursor::new("TTFT_ms,e2e_ms,outptu_tokens\n2,5,3\n"), &options).unwrap();
    assert!(file.runs[0].notes.iter().all(|n| n.id != "columns-not-read"));
}

#[test]
fn messages_name_the_file_in_full_and_stay_short() {
    let folder = "folder/".repeat(20);
    let text = error(&format!("{folder}a.csv"), "hello", &Options::default());
    assert!(text.starts_with(&format!("{folder}a.csv: ")), "{text}");
    let wide: Vec<String> = (0..300).map(|i| format!("some_long_column_{i}")).collect();
    assert_snapshot!(say(format!("{}\n", wide.join(","))), @"f: no column has a field's name; the file has `some_long_column_0`, `some_long_column_1`, `some_long_column_2` and 297 more; map them, as in `--map ttft_ms=some_long_column_0`, to id, input_tokens, output_tokens, outcome, or with _s, _ms, _us or _ns arrival, sent, scheduled, first_token, last_token, ttft, tpot, e2e");
    assert_snapshot!(mapped(&wide.join(","), &["ttft_ms=x"]), @"f.csv, `x`: no such column; the file has `some_long_column_0`, `some_long_column_1`, `some_long_column_2` and 297 more");
    assert_snapshot!(mapped("1,2\n3,4\n", &["ttft_ms=1"]), @"f.csv, line 1: found only numbers, `1`, `2`, expected a header with the names of the columns");
    assert_snapshot!(say("{\"date\": \"2026"), @"f, line 1: ends in the middle of a JSON object, expected the rest of it: is it truncated?");
    assert_snapshot!(say("ttft_ms,n\n5\n"), @"f, line 2: 1 cell, expected 2 as in the header");
}

/// 2^53 + 1 has no `f64`: read through one it would become 2^53, which is allowed.
#[test]
fn a_count_above_the_largest_is_not_rounded_into_the_range() {
    let n = "9007199254740993";
    for text in [
        row(&format!("z,3,4,5,{n},ok")),
        line(&format!("\"e2e_s\": 1, \"output_tokens\": {n}")),
        request(&format!("\"output_lens\": [3, {n}]")),
        vllm(&format!("\"num_prompts2\": 1, \"failed\": {n}")),
    ] {
        assert!(
            text.contains(n) && text.ends_with("expected a whole number from 0 to 2^53"),
            "{text}"
        );
    }
}

#[test]
fn the_key_that_is_wrong_is_the_one_named() {
    assert_snapshot!(line("\"e2e_s\": 1, \"chunk_gap_s\": [0.1, -1]"), @"f, line 1, `chunk_gap_s`: a gap between outputs must be at least 0, got -1");
    assert_snapshot!(line("\"arrival_ps\": \"0\", \"token_ps\": [\"5\", \"4\"]"), @"f, line 1, `token_ps`: a token instant must be at least the one before it = 5e-12, got 4e-12");
    assert_snapshot!(line("\"arrival_s\": 0, \"token_s\": [1, 2], \"output_tokens\": 3"), @"f, line 1, `output_tokens`: output_tokens = 3 but 2 token instants");
    assert_snapshot!(say("ttft_ms,e2e_ms\n5,2\n"), @"f, line 2, `e2e_ms`: last_token after arrival must be at least first_token after arrival = 0.005, got 0.002 (in seconds)");
    assert_snapshot!(vllm("\"mean_ttft_ms\": \"12.5\""), @r#"r.json, line 1, `mean_ttft_ms`: found "12.5", expected a number, as the tool computed it"#);
    assert_snapshot!(say("{\"model_id\": \"m\", \"num_prompts\": 1}"), @"f, line 1: holds no requests, expected the counts, figures or arrays of a `vllm bench serve` result");
    assert_snapshot!(say("{\"model_id\": \"m\", \"num_prompts\": 1, \"completed\": 1}\n[1]"), @"f, line 2, column 1: `[1]`, expected one JSON object a run");
}
