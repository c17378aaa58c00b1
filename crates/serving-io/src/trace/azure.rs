//! Azure LLM inference traces: `TIMESTAMP,ContextTokens,GeneratedTokens`.
//!
//! The files of 2023 (`AzureLLMInferenceTrace_conv.csv`, `…_code.csv`) have stamps with seven
//! digits of a second and no zone, CRLF line ends, and no line end after the last row; those of
//! 2024 have an offset behind the stamp. Neither has ids: requests are named by their line.
//!
//! | column | becomes |
//! |---|---|
//! | `TIMESTAMP` | arrival, relative to the first row; that row's stamp is the epoch |
//! | `ContextTokens` | input tokens |
//! | `GeneratedTokens` | output tokens |
//!
//! Further columns are not read. The two files of 2023 have no row with 0 tokens.
//!
//! Source: github.com/Azure/AzurePublicDataset, CC-BY-4.0; described in Patel et al., "Splitwise:
//! Efficient generative LLM inference using phase splitting", ISCA 2024.

use crate::csv_table::header_cells;
use crate::error::Result;
use crate::input::{Head, Input};
use crate::trace::generic::read_table;
use crate::trace::map::{ArrivalForm, Columns};
use crate::trace::{TraceContent, TraceFormat, TraceOptions, TraceReader};

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Azure;

impl TraceReader for Azure {
    fn format(&self) -> TraceFormat {
        TraceFormat::Azure
    }

    fn recognizes(&self, head: &Head, options: &TraceOptions) -> bool {
        let cells = header_cells(head.first_line());
        options.map.is_empty()
            && ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
                .iter()
                .all(|column| cells.iter().any(|c| c == column))
    }

    fn read(&self, input: Input, _: &TraceOptions) -> Result<TraceContent> {
        read_table(input, |_| {
            Ok(Columns {
                form: ArrivalForm::Stamp,
                arrival: "TIMESTAMP".to_owned(),
                input: "ContextTokens".to_owned(),
                output: "GeneratedTokens".to_owned(),
                id: None,
                priority: None,
                cancel: None,
            })
        })
    }
}
