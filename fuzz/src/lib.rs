//! What the targets share: how a file is read, and what has to hold of every answer.

use std::io::Cursor;

use metrics_core::interval::Confidence;
use metrics_core::report::{Input, Report};
use metrics_core::slo::SloSet;
use metrics_core::summary::PercentileMethod;
use serving_io::{Format, IoError, Options, ReadFile};

/// Reads bytes as a file; the format is told by the content if none is given.
pub fn read(bytes: &[u8], format: Option<Format>) -> Result<ReadFile, IoError> {
    let options = Options { format, ..Options::default() };
    serving_io::read("f", Cursor::new(bytes.to_vec()), &options)
}

/// Reads bytes and holds the answer to what every answer keeps: runs with finite figures, or an
/// error of one line.
pub fn answer(bytes: &[u8], format: Option<Format>) {
    match read(bytes, format) {
        Ok(file) => {
            assert!(!file.runs.is_empty());
            for run in &file.runs {
                for (name, x) in run.stated.iter() {
                    assert!(!x.is_nan(), "{name}");
                }
                for column in &run.columns {
                    let n = match &column.values {
                        serving_io::run::Values::Number(v) => v.len(),
                        serving_io::run::Values::Text(v) => v.len(),
                    };
                    assert_eq!(n, run.timelines.len(), "{}", column.name);
                }
                report(&run.timelines);
            }
        }
        Err(e) => one_line(&e.to_string()),
    }
}

/// A message is one line that says something.
pub fn one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(['\n', '\r']), "{text:?}");
}

/// Every figure over checked timelines exists or is refused; none is NaN.
fn report(timelines: &[metrics_core::RequestTimeline]) {
    // Intervals of long runs take their time and are no matter of the readers.
    let timelines = timelines.get(..timelines.len().min(200)).unwrap_or_default();
    let slo = SloSet::none();
    let input = Input {
        timelines,
        window: None,
        truncated: false,
        slo: &slo,
        method: PercentileMethod::Linear,
        confidence: Confidence::new(0.95).expect("a confidence"),
    };
    match Report::new(&input) {
        Ok(r) => {
            for d in &r.latency {
                let Some(f) = &d.figures else { continue };
                assert!(f.percentiles.iter().chain([&f.mean]).all(|x| x.value.is_finite()));
            }
            let seen = metrics_core::observe::observe(&r, timelines, Some(4));
            if let Ok(seen) = seen {
                let tolerance = metrics_core::diagnosis::Tolerance::default();
                if let Err(e) = metrics_core::diagnosis::diagnose(&seen.seen, &tolerance) {
                    one_line(&e.to_string());
                }
            }
        }
        Err(e) => one_line(&e.to_string()),
    }
}
