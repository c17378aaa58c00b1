//! Our own timelines as a trace: arrival, input tokens and output tokens of each request.
//!
//! How a request fared there is not read. A request is replayed if its token counts are known,
//! whatever its outcome; the note `partial-answers` says how many answers were not complete, and
//! therefore perhaps longer had they been. One without output tokens is left out and counted
//! (`no-output`). Requests may be in any order; they are sorted by arrival, and the note `sorted`
//! says so. With a header, time zero is the origin that it describes, else the first arrival.

use metrics_core::{Instant, Outcome};
use sched_sim::workload::RequestId;

use crate::decimal::scaled;
use crate::detect::Reader;
use crate::error::{IoError, Result, Spot};
use crate::input::{Head, Input};
use crate::rows::Ids;
use crate::run::Note;
use crate::timeline::{Header, Rows, Timelines};
use crate::trace::collect::{Collector, Tally};
use crate::trace::map::{ArrivalForm, TraceField};
use crate::trace::{Epoch, TraceContent, TraceFormat, TraceOptions, TraceReader};

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct TimelineTrace;

impl TraceReader for TimelineTrace {
    fn format(&self) -> TraceFormat {
        TraceFormat::Timelines
    }

    fn recognizes(&self, head: &Head, options: &TraceOptions) -> bool {
        // A line with nothing but what a trace needs says of no output, and is a trace.
        let bare = head.keys.iter().all(|k| TraceField::named(k).is_some());
        options.map.is_empty()
            && (!bare || head.keys.is_empty())
            && Timelines.recognizes(head, &crate::Options::default())
    }

    fn read(&self, input: Input, _: &TraceOptions) -> Result<TraceContent> {
        let name = input.name.clone();
        let mut lines = Rows::new(input)?;
        let mut ids = Ids::default();
        let mut partial = Tally::default();
        let mut requests: Vec<Arrived> = Vec::new();
        for row in lines.by_ref() {
            let (line, t) = row?;
            let at = Spot::line(&name, line);
            ids.check(&name, "id", line, t.id())?;
            let missing = |key| IoError::Value {
                at: at.key(key).place(),
                found: "a request without it".to_owned(),
                expected: "its value: a workload needs it".to_owned(),
            };
            let arrival = t.arrival().ok_or_else(|| missing("arrival_s"))?;
            let (clock, written, key) = clock_of(arrival);
            let input = t.input_tokens().ok_or_else(|| missing("input_tokens"))?;
            let output = t.output_tokens().unwrap_or(0);
            for (key, count) in [("input_tokens", input), ("output_tokens", output)] {
                if sched_sim::Workload::LARGEST_TOKENS < count {
                    return Err(IoError::Value {
                        at: at.key(key).place(),
                        found: count.to_string(),
                        expected: "at most 4294967295 tokens".to_owned(),
                    });
                }
            }
            let clock = clock.ok_or_else(|| IoError::Value {
                at: at.key(key).place(),
                found: written.clone(),
                expected: "an instant of at least 0".to_owned(),
            })?;
            if t.outcome() != Outcome::Completed && 0 < output {
                partial.add(line);
            }
            requests.push(Arrived { line, clock, written, key, id: t.id().into(), input, output });
        }
        let (rows, unsorted) = (requests.len() as u64, unsorted(&requests));
        // Stable: what arrives at one instant keeps the order of the file.
        requests.sort_by_key(|r| r.clock);
        let mut collector = match lines.header {
            Some(_) => Collector::from_zero(&name),
            None => Collector::new(&name),
        };
        for r in requests {
            let at = Spot::line(&name, r.line).key(r.key);
            collector.request(at, (r.clock, &r.written), r.id, r.input, r.output)?;
        }
        let mut content = collector.finish(ArrivalForm::Seconds)?;
        content.epoch = lines.header.as_ref().and_then(epoch_of);
        if let Some(line) = unsorted {
            let text =
                format!("requests were not in order of arrival (line {line}) and are sorted");
            content.notes.push(Note { id: "sorted", affects: &[], text });
        }
        let text = "are not completed: they are replayed with the output tokens that they got";
        partial.note(&mut content.notes, "partial-answers", rows, text);
        Ok(content)
    }
}

/// A request of the file.
struct Arrived {
    line: u64,
    clock: u128,
    written: String,
    key: &'static str,
    id: RequestId,
    input: u64,
    output: u64,
}

/// An instant in attoseconds, as text, and the key under which it stands.
fn clock_of(arrival: Instant) -> (Option<u128>, String, &'static str) {
    match arrival {
        Instant::Picoseconds(ps) => (ps.checked_mul(1_000_000), ps.to_string(), "arrival_ps"),
        // The shortest text that reads as this float is what its writer meant.
        Instant::Seconds(s) => {
            let text = s.to_string();
            (scaled(&text, 18), text, "arrival_s")
        }
    }
}

/// The line of the first request that arrives before the one above it.
fn unsorted(requests: &[Arrived]) -> Option<u64> {
    requests.windows(2).find_map(|w| match w {
        [a, b] if b.clock < a.clock => Some(b.line),
        _ => None,
    })
}

/// The Unix time of the header's origin; nothing before 1970 is one.
fn epoch_of(header: &Header) -> Option<Epoch> {
    let unix = scaled(&header.epoch_s?.to_string(), 18)?;
    Some(Epoch { unix, zoned: true })
}
