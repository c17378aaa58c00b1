//! Writes a workload as a trace that reads back the same: one JSON object a line.
//!
//! | key | value |
//! |---|---|
//! | `id` | its name |
//! | `arrival_s` | seconds from time zero, every digit |
//! | `input_tokens`, `output_tokens` | token counts |
//! | `priority` | which order by priority it has, unless it is 0 |
//! | `cancel_after_s` | how long after its arrival its client goes away, every digit, if it does |
//! | `prompt_segments` | which tokens the prompt has, `[[segment, tokens], …]`, if known |
//! | `answer_segment` | the segment of the answer, if a later prompt may have it |

use std::io::{self, Write};

use sched_sim::{Ticks, WorkloadRequest};
use serde_json::json;

/// Writes one request.
///
/// # Errors
///
/// What the system says.
///
/// # Examples
///
/// ```
/// use sched_sim::{Ticks, WorkloadRequest};
/// use serving_io::trace::write_request;
///
/// let mut out = Vec::new();
/// write_request(&mut out, &WorkloadRequest::new(7, "1.5s".parse()?, 100, 20))?;
/// let line = r#"{"id":"7","arrival_s":1.5,"input_tokens":100,"output_tokens":20}"#;
/// assert_eq!(String::from_utf8(out)?, format!("{line}\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_request(out: &mut impl Write, r: &WorkloadRequest) -> io::Result<()> {
    // By hand, as a JSON writer would round the arrival to a float.
    let id = json!(r.id.to_string());
    let (arrival, input, output) = (seconds(r.arrival), r.input_tokens, r.output_tokens);
    write!(out, r#"{{"id":{id},"arrival_s":{arrival},"input_tokens":{input},"#)?;
    write!(out, r#""output_tokens":{output}"#)?;
    if r.priority != 0 {
        write!(out, r#","priority":{}"#, r.priority)?;
    }
    if let Some(after) = r.cancel_after() {
        write!(out, r#","cancel_after_s":{}"#, seconds(after))?;
    }
    if let Some(content) = &r.content {
        write!(out, r#","prompt_segments":{}"#, json!(content.prompt))?;
        if let Some(segment) = content.answer {
            write!(out, r#","answer_segment":{segment}"#)?;
        }
    }
    writeln!(out, "}}")
}

/// Whole attoseconds as seconds.
fn seconds(at: Ticks) -> String {
    let second = Ticks::SECOND.attoseconds();
    let (whole, part) = (at.attoseconds() / second, at.attoseconds() % second);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{}", format!("{part:018}").trim_end_matches('0'))
}
