//! The language of the formula texts: parse, print, evaluate.
#![no_main]

use metrics_core::expr;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match expr::parse(text) {
        Ok(e) => {
            let shown = e.to_string();
            let again =
                expr::parse(&shown).unwrap_or_else(|f| panic!("`{text}` prints `{shown}`: {f}"));
            assert_eq!(again.to_string(), shown, "{text}");
            let _ = e.latex(&|_| None);
        }
        Err(e) => goodput_fuzz::one_line(&e.to_string()),
    }
});
