//! Any trace: a CSV table or JSON lines, one request a row, with a [column map](crate::trace::map).
//!
//! CSV and JSON lines are read as [request logs](crate::generic) are. What differs: `arrival_s`
//! (or another unit, or `arrival` with stamps), `input_tokens` and `output_tokens` are needed in
//! every row, and nothing else but `id`, `priority` and `cancel_after_s` is read. JSON numbers are
//! read from their digits, so that `1700000000.1234567` loses none.
//!
//! JSON lines may say which tokens a prompt has: `prompt_segments` and `answer_segment`, as
//! [`write_request`](crate::trace::write_request) writes them.

use std::borrow::Cow;

use sched_sim::PromptContent;
use serde_json::value::RawValue;

use crate::csv_table::{CsvTable, header_cells};
use crate::error::{IoError, Place, Result, Spot, columns_shown, shown};
use crate::input::{Head, Input};
use crate::json;
use crate::trace::collect::{Collector, RowValues, Value};
use crate::trace::map::{ArrivalForm, Columns, TraceField, TraceMap};
use crate::trace::{TraceContent, TraceFormat, TraceOptions, TraceReader};

/// The reader of JSON lines.
#[derive(Clone, Copy, Debug)]
pub struct TraceJsonl;

impl TraceReader for TraceJsonl {
    fn format(&self) -> TraceFormat {
        TraceFormat::Jsonl
    }

    fn recognizes(&self, head: &Head, options: &TraceOptions) -> bool {
        head.is_json_object() && (!options.map.is_empty() || any_field(&head.keys))
    }

    fn read(&self, input: Input, options: &TraceOptions) -> Result<TraceContent> {
        read_lines(input, &options.map)
    }
}

/// The reader of CSV.
#[derive(Clone, Copy, Debug)]
pub struct TraceCsv;

impl TraceReader for TraceCsv {
    fn format(&self) -> TraceFormat {
        TraceFormat::Csv
    }

    fn recognizes(&self, head: &Head, options: &TraceOptions) -> bool {
        if head.text.trim_start().starts_with(['{', '[']) {
            return false;
        }
        let cells = header_cells(head.first_line());
        any_field(&cells) || (!options.map.is_empty() && !cells.is_empty())
    }

    fn read(&self, input: Input, options: &TraceOptions) -> Result<TraceContent> {
        let name = input.name.clone();
        read_table(input, |columns| {
            if options.map.is_empty() {
                TraceMap::by_names(columns)?.columns(&name, columns)
            } else {
                options.map.columns(&name, columns)
            }
        })
    }
}

/// Whether some name is a field that says of a load.
fn any_field(names: &[String]) -> bool {
    let of_no_load =
        |f| matches!(f, TraceField::Id | TraceField::Priority | TraceField::CancelAfter(_));
    names.iter().any(|n| TraceField::named(n).is_some_and(|f| !of_no_load(f)))
}

/// Reads a table whose columns are found in its header.
pub(super) fn read_table(
    input: Input,
    find: impl FnOnce(&[String]) -> Result<Columns>,
) -> Result<TraceContent> {
    let name = input.name.clone();
    let mut table = CsvTable::open(input)?;
    let columns = find(table.columns())?;
    let place = |column: &str| {
        table.index_of(column)?.ok_or_else(|| IoError::MissingColumn {
            at: Box::new(Place::file(&name).key(column)),
            known: columns_shown(table.columns()),
        })
    };
    let (arrival, input) = (place(&columns.arrival)?, place(&columns.input)?);
    let output = place(&columns.output)?;
    let id = columns.id.as_deref().map(place).transpose()?;
    let priority = columns.priority.as_deref().map(place).transpose()?;
    let cancel = match &columns.cancel {
        Some((form, column)) => Some((*form, column.as_str(), place(column)?)),
        None => None,
    };
    let mut rows = Collector::new(&name);
    while let Some(line) = table.advance()? {
        let cell = |index| Ok(Value { text: table.cell(line, index)?, quoted: false });
        let row = RowValues {
            line,
            arrival: cell(arrival)?,
            input: cell(input)?,
            output: cell(output)?,
            id: id.map(cell).transpose()?,
            priority: priority.map(cell).transpose()?,
            cancel: match cancel {
                Some((form, column, index)) => Some((form, column, cell(index)?)),
                None => None,
            },
        };
        rows.row(&columns, &row)?;
    }
    rows.finish(columns.form)
}

/// Reads JSON lines; without a map, the keys of the first line say what is what.
fn read_lines(input: Input, map: &TraceMap) -> Result<TraceContent> {
    let name = input.name.clone();
    let mut lines = input.into_lines();
    let mut rows = Collector::new(&name);
    let mut found: Option<Columns> = None;
    while let Some((line, text)) = lines.next_line()? {
        let object = json::object(&name, line, text)?.0;
        if found.is_none() {
            let keys: Vec<&str> = object.iter().map(|(k, _)| k.as_ref()).collect();
            let by_names = if map.is_empty() { Some(TraceMap::by_names(&keys)?) } else { None };
            let mut columns = by_names.as_ref().unwrap_or(map).columns(&name, &keys)?;
            if let Some(key) = columns.all().find(|c| !keys.contains(c)) {
                let at = Box::new(Place::line(&name, line).key(key));
                return Err(IoError::MissingColumn { at, known: columns_shown(&keys) });
            }
            if by_names.is_some() {
                // Requests of priority 0 may leave it out, the first of them too.
                columns.priority = Some(TraceField::Priority.name().to_owned());
            }
            found = Some(columns);
        }
        let Some(columns) = &found else { continue };
        let value = |key: &str| value_of(Spot::line(&name, line), &object, key);
        let (arrival, input) = (value(&columns.arrival)?, value(&columns.input)?);
        let output = value(&columns.output)?;
        let id = columns.id.as_deref().map(value).transpose()?;
        let priority = columns.priority.as_deref();
        let said = |key: &&str| !map.is_empty() || object.iter().any(|(k, _)| k == key);
        let priority = priority.filter(said).map(value).transpose()?;
        let cancel = cancel_of(columns, map, &object)?;
        let time = cancel.as_ref().map(|(_, key)| value(key)).transpose()?;
        let row = RowValues {
            line,
            arrival: as_value(&arrival),
            input: as_value(&input),
            output: as_value(&output),
            id: id.as_ref().map(as_value),
            priority: priority.as_ref().map(as_value),
            cancel: (cancel.as_ref().zip(time.as_ref()))
                .map(|((form, key), time)| (*form, key.as_str(), as_value(time))),
        };
        rows.row(columns, &row)?;
        segments(&mut rows, Spot::line(&name, line), &object)?;
    }
    let form = found.map(|c| c.form);
    rows.finish(form.unwrap_or(ArrivalForm::Seconds))
}

/// Where a line says when its client goes away: where the map has it, or else in any unit, as those
/// who stay may leave it out.
fn cancel_of(
    columns: &Columns,
    map: &TraceMap,
    object: &[(Cow<'_, str>, &RawValue)],
) -> Result<Option<(ArrivalForm, String)>> {
    if !map.is_empty() {
        return Ok(columns.cancel.clone());
    }
    let keys = object.iter().map(|(key, _)| key.as_ref());
    let is = |key: &&str| TraceField::named(key).is_some_and(|f| f.cancel_form().is_some());
    let own = TraceMap::by_names(&keys.filter(is).collect::<Vec<_>>())?;
    Ok(own.items().iter().find_map(|(field, key)| Some((field.cancel_form()?, key.clone()))))
}

/// Which tokens the request of a row has, if it says so.
fn segments(
    rows: &mut Collector<'_>,
    row: Spot<'_>,
    object: &[(Cow<'_, str>, &RawValue)],
) -> Result<()> {
    const PROMPT: &str = "prompt_segments";
    let raw = |key: &str| json::once(row, object, key).map(|value| value.map(RawValue::get));
    let answer = raw("answer_segment")?.unwrap_or("null");
    let Some(prompt) = raw(PROMPT)? else { return Ok(()) };
    let read = |input: u64| {
        let prompt: Vec<(u64, u64)> = serde_json::from_str(prompt).ok()?;
        let answer: Option<u64> = serde_json::from_str(answer).ok()?;
        let tokens = prompt.iter().fold(0_u64, |sum, &(_, n)| sum.saturating_add(n));
        let own = prompt.iter().map(|&(s, _)| s).chain(answer).any(|s| PromptContent::OWN <= s);
        if tokens != input || own {
            return None;
        }
        let mut content = PromptContent::new(prompt);
        content.answer = answer;
        Some(content)
    };
    rows.content(row.line, read).map_err(|input| IoError::Value {
        at: row.key(PROMPT).place(),
        found: shown(prompt),
        expected: format!(
            "pairs of a segment below 2^62 and its tokens, {input} in all, and an `answer_segment` \
             that is one or none"
        ),
    })
}

/// The text of a JSON value, and whether it is a string.
fn value_of<'a>(
    row: Spot<'_>,
    object: &[(Cow<'_, str>, &'a RawValue)],
    key: &str,
) -> Result<(Cow<'a, str>, bool)> {
    let at = row.key(key);
    let Some(value) = json::once(row, object, key)? else {
        return Ok((Cow::Borrowed(""), false));
    };
    let raw = value.get();
    if !raw.starts_with('"') {
        return Ok((Cow::Borrowed(raw), false));
    }
    let text = serde_json::from_str::<String>(raw).map_err(|_| IoError::Value {
        at: at.place(),
        found: json::raw(value),
        expected: "a text".to_owned(),
    })?;
    Ok((Cow::Owned(text), true))
}

fn as_value<'a>((text, quoted): &'a (Cow<'_, str>, bool)) -> Value<'a> {
    Value { text, quoted: *quoted }
}
