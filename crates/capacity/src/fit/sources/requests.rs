//! Points from request logs: the mean step that each request saw between its tokens.

use std::path::Path;

use serving_io::{Run, read_path};

use super::Options;
use crate::error::{FitError, Result};
use crate::fit::point::{Point, Regime, Source};

/// A request on the clock of its run.
#[derive(Clone, Copy, Debug)]
struct Seen {
    first: f64,
    last: f64,
    input: f64,
    output: f64,
    row: usize,
}

impl Seen {
    /// The time that both decode, and the mean context of this one during it.
    fn overlap(&self, other: &Self) -> (f64, f64) {
        let (from, to) = (self.first.max(other.first), self.last.min(other.last));
        if to <= from || self.last <= self.first {
            return (0.0, 0.0);
        }
        let middle = (from + to) / 2.0 - self.first;
        let context = self.input + self.output * middle / (self.last - self.first);
        (to - from, context)
    }
}

/// The points of a file that a reader of benchmark results knows.
pub(super) fn read(path: &Path, name: &str, options: &Options) -> Result<Source> {
    let file = read_path(path, &serving_io::Options::default())?;
    let mut source = Source::new(name, super::REQUEST_LOG);
    source.assumed.push(
        "each request gives one mean step: its TPOT against the requests that decoded with it and the prompts whose first token came meanwhile; TTFT is not used"
            .to_owned(),
    );
    if !options.by.is_empty() {
        let problem =
            format!("{name} is a request log ({}) and has no groups", file.format.title());
        return Err(FitError::Option { option: "--by", problem });
    }
    for (i, run) in file.runs.iter().enumerate() {
        let label = if file.runs.len() == 1 { String::new() } else { format!("run {} ", i + 1) };
        points_of(run, &label, &mut source);
    }
    if source.points.is_empty() {
        let reasons: Vec<String> = source
            .excluded
            .iter()
            .map(|e| format!("{} ({})", e.why, metrics_core::format::things(e.rows, "request")))
            .collect();
        return Err(FitError::UnknownSource {
            file: name.to_owned(),
            found: if reasons.is_empty() {
                "a result without requests".to_owned()
            } else {
                format!("no request that gives a step: {}", reasons.join("; "))
            },
            expected: "requests with arrival, TTFT, E2E, input and output tokens".to_owned(),
        });
    }
    Ok(source)
}

fn points_of(run: &Run, label: &str, source: &mut Source) {
    let place = |row: usize| format!("{label}request {}", row + 1);
    let mut seen = Vec::with_capacity(run.timelines.len());
    for (row, t) in run.timelines.iter().enumerate() {
        let (Some(arrival), Some(ttft), Some(e2e), Some(input), Some(output)) =
            (t.arrival_s(), t.ttft(), t.e2e_latency(), t.input_tokens(), t.output_tokens())
        else {
            source.exclude("arrival, TTFT, E2E or token counts are not known", || place(row));
            continue;
        };
        let (first, last) = (arrival + ttft.get(), arrival + e2e.get());
        seen.push(Seen { first, last, input: input as f64, output: output as f64, row });
    }
    seen.sort_by(|a, b| a.first.total_cmp(&b.first));
    let longest = seen.iter().map(|s| s.last - s.first).fold(0.0, f64::max);
    for s in &seen {
        let length = s.last - s.first;
        if s.output < 2.0 || length <= 0.0 {
            source.exclude("one token, or all at one instant: no decode step", || place(s.row));
            continue;
        }
        let begin = seen.partition_point(|o| o.first < s.first - longest);
        let (mut decodes, mut context, mut prompts, mut tokens, mut pairs) =
            (0.0, 0.0, 0.0, 0.0, 0.0);
        for o in seen[begin..].iter().take_while(|o| o.first < s.last) {
            let (time, mean) = o.overlap(s);
            decodes += time / length;
            context += mean * time / length;
            if s.first < o.first {
                prompts += 1.0;
                tokens += o.input;
                pairs += o.input * o.input / 2.0;
            }
        }
        let steps = s.output - 1.0;
        source.points.push(
            Point {
                regime: Regime::Mean,
                prefills: prompts / steps,
                prefill_tokens: tokens / steps,
                attention: pairs / steps,
                ..Point::decode(decodes, context, length / steps)
            }
            .at(place(s.row)),
        );
    }
}
