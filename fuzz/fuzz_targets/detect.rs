//! Any bytes through the one way in: the format is told by the content.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| goodput_fuzz::answer(bytes, None));
