//! Workloads and scenarios: any bytes as every format of a trace, and any text as a scenario.
#![no_main]

use std::io::Cursor;

use serving_io::scenario::Scenario;
use serving_io::trace::{TraceFormat, TraceOptions, read_trace};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for format in TraceFormat::ALL.map(Some).into_iter().chain([None]) {
        let options = TraceOptions { format, ..TraceOptions::default() };
        match read_trace("f", Cursor::new(bytes.to_vec()), &options) {
            Ok(file) => assert!(!file.workload.is_empty()),
            Err(e) => goodput_fuzz::one_line(&e.to_string()),
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(e) = Scenario::parse("f", text)
    {
        goodput_fuzz::one_line(&e.to_string());
    }
});
