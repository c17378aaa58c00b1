//! BurstGPT traces: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`.
//!
//! Later files have a session and the time that the answer took as well, `Session ID` (or
//! `SessionID`) and `Elapsed time`. Both schemas have no ids: requests are named by their line.
//!
//! | column | becomes |
//! |---|---|
//! | `Timestamp` | arrival, seconds from midnight of the first day; time zero is the first row |
//! | `Request tokens` | input tokens |
//! | `Response tokens` | output tokens; 0 for requests that failed, which are left out and counted |
//!
//! Further columns are not read. A session says which requests belong together and not which tokens
//! they share, so that no prefixes are taken from it; the note `sessions` says so.
//!
//! Source: github.com/HPMLL/BurstGPT; described in Wang et al., "BurstGPT: a real-world
//! workload dataset to optimize LLM serving systems", arXiv 2401.17644.

use crate::csv_table::header_cells;
use crate::error::Result;
use crate::input::{Head, Input};
use crate::run::Note;
use crate::trace::generic::read_table;
use crate::trace::map::{ArrivalForm, Columns};
use crate::trace::{TraceContent, TraceFormat, TraceOptions, TraceReader};

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct BurstGpt;

impl TraceReader for BurstGpt {
    fn format(&self) -> TraceFormat {
        TraceFormat::BurstGpt
    }

    fn recognizes(&self, head: &Head, options: &TraceOptions) -> bool {
        let cells = header_cells(head.first_line());
        options.map.is_empty()
            && ["Timestamp", "Request tokens", "Response tokens"]
                .iter()
                .all(|column| cells.iter().any(|c| c == column))
    }

    fn read(&self, input: Input, _: &TraceOptions) -> Result<TraceContent> {
        let cells = header_cells(input.head.first_line());
        let mut content = read_table(input, |_| {
            Ok(Columns {
                form: ArrivalForm::Seconds,
                arrival: "Timestamp".to_owned(),
                input: "Request tokens".to_owned(),
                output: "Response tokens".to_owned(),
                id: None,
                priority: None,
                cancel: None,
            })
        })?;
        if cells.iter().any(|c| c == "Session ID" || c == "SessionID") {
            let text =
                "sessions are not followed: the file does not say which tokens the requests \
                        of one share"
                    .to_owned();
            content.notes.push(Note { id: "sessions", affects: &[], text });
        }
        Ok(content)
    }
}
