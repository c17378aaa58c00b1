//! Mooncake traces: one JSON object a line with `timestamp`, `input_length`, `output_length` and
//! `hash_ids`.
//!
//! | key | becomes |
//! |---|---|
//! | `timestamp` | arrival, milliseconds from the first row |
//! | `input_length` | input tokens |
//! | `output_length` | output tokens |
//! | `hash_ids` | which prompts begin alike: one name for each 512 tokens, the last one for the rest |
//!
//! A name stands for its block and all before it, so that equal names are equal prefixes. Requests
//! are named by their line.
//!
//! Source: github.com/kvcache-ai/Mooncake, Apache-2.0; described in Qin et al., "Mooncake: a
//! KVCache-centric disaggregated architecture for LLM serving", FAST 2025.

use sched_sim::PromptContent;

use crate::error::{IoError, Result, Spot};
use crate::input::{Head, Input};
use crate::json;
use crate::trace::collect::{Collector, RowValues, Value};
use crate::trace::map::{ArrivalForm, Columns};
use crate::trace::{TraceContent, TraceFormat, TraceOptions, TraceReader};

/// Tokens that one name stands for.
const BLOCK: u64 = 512;

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Mooncake;

impl TraceReader for Mooncake {
    fn format(&self) -> TraceFormat {
        TraceFormat::Mooncake
    }

    fn recognizes(&self, head: &Head, options: &TraceOptions) -> bool {
        options.map.is_empty()
            && head.is_json_object()
            && ["timestamp", "input_length", "output_length", "hash_ids"]
                .iter()
                .all(|key| head.keys.iter().any(|k| k == key))
    }

    fn read(&self, input: Input, _: &TraceOptions) -> Result<TraceContent> {
        let name = input.name.clone();
        let mut lines = input.into_lines();
        let mut rows = Collector::new(&name);
        let columns = Columns {
            form: ArrivalForm::Milliseconds,
            arrival: "timestamp".to_owned(),
            input: "input_length".to_owned(),
            output: "output_length".to_owned(),
            id: None,
            priority: None,
            cancel: None,
        };
        while let Some((line, text)) = lines.next_line()? {
            let object = json::object(&name, line, text)?.0;
            let raw = |key: &str| {
                let value = json::once(Spot::line(&name, line), &object, key)?;
                Ok::<_, IoError>(value.map_or("null", |value| value.get()))
            };
            let value = |key: &str| {
                let text = raw(key)?;
                Ok::<_, IoError>(Value {
                    text: text.trim_matches('"'),
                    quoted: text.starts_with('"'),
                })
            };
            let row = RowValues {
                line,
                arrival: value(&columns.arrival)?,
                input: value(&columns.input)?,
                output: value(&columns.output)?,
                id: None,
                priority: None,
                cancel: None,
            };
            rows.row(&columns, &row)?;
            let hashes = raw("hash_ids")?;
            let ids: Option<Vec<u64>> = serde_json::from_str(hashes).ok();
            rows.content(line, |input| {
                let mut left = input;
                let prompt = ids.filter(|ids| ids.len() as u64 == input.div_ceil(BLOCK))?;
                let prompt = prompt.into_iter().map(|id| {
                    let tokens = left.min(BLOCK);
                    left -= tokens;
                    (id < PromptContent::OWN).then_some((id, tokens))
                });
                prompt.collect::<Option<_>>().map(PromptContent::new)
            })
            .map_err(|input| IoError::Value {
                at: Spot::line(&name, line).key("hash_ids").place(),
                found: crate::error::shown(hashes),
                expected: format!(
                    "{} whole numbers below 2^62, one for each {BLOCK} of the {input} input tokens",
                    input.div_ceil(BLOCK)
                ),
            })?;
        }
        rows.finish(columns.form)
    }
}
