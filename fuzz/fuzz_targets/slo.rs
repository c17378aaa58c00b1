//! What people write for objectives, durations, rates, sizes, counts and shares.
#![no_main]

use metrics_core::grammar;
use metrics_core::slo::SloSet;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match text.parse::<SloSet>() {
        Ok(set) => {
            let shown = set.to_string();
            if !set.is_empty() {
                let again: SloSet =
                    shown.parse().unwrap_or_else(|e| panic!("`{text}` prints `{shown}`: {e}"));
                assert_eq!(again.to_string(), shown, "{text}");
            }
        }
        Err(e) => goodput_fuzz::one_line(&e.to_string()),
    }
    let _ =
        SloSet::from_goodput(text.split(' ')).map_err(|e| goodput_fuzz::one_line(&e.to_string()));
    let finite = |x: f64| assert!(x.is_finite(), "{text}");
    let _ = grammar::duration(text).map(|x| finite(x.get()));
    let _ = grammar::rate(text).map(|x| finite(x.get()));
    let _ = grammar::size(text).map(|x| finite(x.get()));
    let _ = grammar::count(text);
    let _ = grammar::share(text).map(|x| assert!((0.0..=1.0).contains(&x), "{text}"));
    let _ = grammar::price(text);
});
