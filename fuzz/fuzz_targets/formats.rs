//! Any bytes as every format in turn, those that detection would not choose among them.
//!
//! New formats join by themselves, as the list is that of the readers.
#![no_main]

use serving_io::detect::READERS;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The first byte chooses, so that the fuzzer can stay with one format; a NUL would end them
    // all before the reader.
    let Some((&first, rest)) = bytes.split_first() else { return };
    let reader = READERS[usize::from(first) % READERS.len()];
    goodput_fuzz::answer(rest, Some(reader.format()));
});
