//! `/metrics`: any text, and what the parser made of it differs from itself by nothing.
#![no_main]

use serving_io::Format;
use serving_io::prometheus::Exposition;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        match Exposition::parse("f", text) {
            Ok(read) => assert!(read.samples.len() <= text.lines().count()),
            Err(e) => goodput_fuzz::one_line(&e.to_string()),
        }
    }
    goodput_fuzz::answer(bytes, Some(Format::Prometheus));
    if let Ok(file) = goodput_fuzz::read(bytes, Some(Format::Prometheus)) {
        for run in &file.runs {
            let server = run.server.as_ref().expect("a snapshot");
            let nothing = server.since(server).expect("it does not go back");
            assert!(nothing.counters.values().all(|x| *x == 0.0));
            assert!(nothing.histograms.values().all(|h| h.count() == 0));
        }
    }
});
