//! Any request log: a CSV table or JSON lines, one request a row, with a column map.
//!
//! Which column is which field is said by a [map](crate::columns), `--map ttft_ms=col`. Without
//! one, the columns whose names are fields are taken: `ttft_ms`, `output_tokens`, `outcome`.
//! Columns that are not mapped are not read. Without a map, a column whose name is nearly that of a
//! field which has no column is an error ([`IoError::Misspelt`]), so that a misspelt one is not
//! left out in silence; the note `columns-not-read` lists the others.
//!
//! # CSV
//!
//! UTF-8, a header line, then one row a request. A byte order mark, CRLF, quoted fields (`""` for a
//! quote), quoted line ends, blank lines and a missing last newline are allowed; a quote that is
//! never closed is an error. The delimiter is
//! whichever of comma, semicolon and tab the header has most. Spaces around a cell are dropped. An
//! empty cell is unknown. A row with more or fewer cells than the header is an error, and so is a
//! mapped column whose name is in the header twice.
//!
//! # JSON lines
//!
//! One object a line; blank lines, a byte order mark and CRLF are allowed. A mapped value is a
//! number (text for `id` and `outcome`); null, or a key that a line does not have, is unknown. A
//! number in quotes is an error. A mapped key that no line has is an error.
//!
//! # Values
//!
//! - A time is a decimal number in the unit of its field's suffix. It is read exactly: what has no
//!   digit below the picosecond becomes whole picoseconds, so that epoch stamps with many digits
//!   lose nothing (`1700000000.123456`, `1700000000123456789` ns).
//! - Instants (`arrival`, `sent`, `scheduled`, `first_token`, `last_token`) are on one clock and
//!   need `arrival`; `ttft` and `e2e` are durations from arrival and do not.
//! - Without `e2e` and `last_token`, `tpot` gives `e2e = ttft + (output_tokens - 1) · tpot`. With
//!   one of them, `tpot` is only compared: if it differs by more than 1 % in some rows, the note
//!   `tpot-differs` says in how many (some tools divide by N, not by N − 1).
//! - A count is a whole number from 0 to 2^53; `12.0` is 12.
//! - Without a column for `id`, requests are named by their line.
//!
//! # Outcomes
//!
//! Case does not matter; a space or hyphen is read as an underscore.
//!
//! | outcome | words |
//! |---|---|
//! | completed | `completed`, `complete`, `ok`, `success`, `successful`, `succeeded`, `done`, `finished`, `true`, `yes`, `stop`, `length`, 200–299 |
//! | failed | `failed`, `fail`, `failure`, `error`, `errored`, `false`, `no`, 400–599 but for those below |
//! | rejected | `rejected`, `refused`, `throttled`, `rate_limited`, 429 |
//! | timed_out | `timed_out`, `timeout`, `deadline_exceeded`, 408, 504 |
//! | cancelled | `cancelled`, `canceled`, `abort`, `aborted`, 499 |
//! | cut_off | `cut_off`, `incomplete`, `in_flight`, `unfinished` |
//!
//! Any other word is an error, 0 and 1 too: they mean success in one log and failure in another.
//! Without an outcome (no column, or an empty cell), a row with a time of an output is completed,
//! and the note `outcome-implied` says how many were; a row without one is an error, since it may
//! have failed.

use std::borrow::Cow;
use std::collections::HashMap;

use metrics_core::format::things;
use metrics_core::timeline::{LARGEST_TOKENS, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline};
use serde_json::value::RawValue;

use crate::columns::{ColumnMap, Field, Target, TimeUnit, nearly, valid_fields};
use crate::csv_table::{CsvTable, header_cells};
use crate::detect::{Format, Options, Reader};
use crate::error::{IoError, Place, Result, Spot, columns_shown, input_of, shown};
use crate::input::{Head, Input, Lines};
use crate::json::{self, COUNT};
use crate::rows::{Ids, Row, Stream, implied_outcome, outcome_names};
use crate::run::{Clock, Run};

/// The reader of JSON lines.
#[derive(Clone, Copy, Debug)]
pub struct GenericJsonl;

impl Reader for GenericJsonl {
    fn format(&self) -> Format {
        Format::GenericJsonl
    }

    fn recognizes(&self, head: &Head, options: &Options) -> bool {
        head.is_json_object() && (!options.map.is_empty() || any_telling(&head.keys))
    }

    fn read(&self, input: Input, options: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        hold(&name, JsonRows::new(input, &options.map))
    }

    fn stream(&self, input: Input, options: &Options, to: &mut Stream<'_>) -> Result<Vec<Run>> {
        let name = input.name.clone();
        pass_on(&name, JsonRows::new(input, &options.map), to)
    }
}

/// The reader of CSV.
#[derive(Clone, Copy, Debug)]
pub struct GenericCsv;

impl Reader for GenericCsv {
    fn format(&self) -> Format {
        Format::GenericCsv
    }

    fn recognizes(&self, head: &Head, options: &Options) -> bool {
        if head.text.trim_start().starts_with(['{', '[']) {
            return false;
        }
        let cells = header_cells(head.first_line());
        any_telling(&cells) || (!options.map.is_empty() && !cells.is_empty())
    }

    fn read(&self, input: Input, options: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        hold(&name, CsvRows::new(input, &options.map)?)
    }

    fn stream(&self, input: Input, options: &Options, to: &mut Stream<'_>) -> Result<Vec<Run>> {
        let name = input.name.clone();
        pass_on(&name, CsvRows::new(input, &options.map)?, to)
    }
}

/// Whether some name alone says that this is a request log.
fn any_telling(names: &[String]) -> bool {
    names.iter().any(|n| Target::named(n).is_some_and(Target::is_telling))
}

/// The columns of a file that could be a request log.
pub(crate) fn columns_of(head: &Head) -> Option<Vec<String>> {
    if head.is_json_object() {
        return Some(head.keys.clone());
    }
    let cells = header_cells(head.first_line());
    (1 < cells.len() && !head.text.trim_start().starts_with('[')).then_some(cells)
}

/// One value of a row.
pub(crate) enum Cell<'a> {
    /// Text without a type, as CSV has it; empty is unknown.
    Bare(Cow<'a, str>),
    /// A JSON value.
    Json(&'a RawValue),
}

impl Cell<'_> {
    fn is_unknown(&self) -> bool {
        match self {
            Self::Bare(text) => text.is_empty(),
            Self::Json(value) => value.get() == "null",
        }
    }

    /// What stands in the file.
    fn text(&self) -> &str {
        match self {
            Self::Bare(text) => text.as_ref(),
            Self::Json(value) => value.get(),
        }
    }

    /// The text of a number, if it can be one.
    fn number(&self) -> Option<&str> {
        let text = self.text();
        let numeric = |b: u8| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E');
        (text.bytes().all(numeric) && text.parse::<f64>().is_ok_and(f64::is_finite)).then_some(text)
    }

    /// A word: text, a number or a truth value.
    fn word(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Bare(text) => Some(Cow::Borrowed(text.as_ref())),
            Self::Json(value) => match value.get().as_bytes().first() {
                Some(b'"') => serde_json::from_str(value.get()).ok().map(Cow::Owned),
                Some(b'{' | b'[') => None,
                _ => Some(Cow::Borrowed(value.get())),
            },
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Bare(text) => format!("`{}`", shown(text)),
            Self::Json(value) => json::raw(value),
        }
    }
}

/// Which column of the file holds a field.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) target: Target,
    pub(crate) column: String,
}

/// The mapped columns, by field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots([Option<Slot>; Field::ALL.len()]);

impl Slots {
    /// Maps a column.
    #[cfg(feature = "parquet")]
    pub(crate) fn set(&mut self, slot: Slot) {
        let field = slot.target.field;
        self.0[field.slot()] = Some(slot);
    }

    fn get(&self, field: Field) -> Option<&Slot> {
        self.0[field.slot()].as_ref()
    }

    /// The column of the first of these fields that is mapped.
    fn column(&self, fields: &[Field]) -> Option<&str> {
        fields.iter().find_map(|&f| self.get(f)).map(|s| s.column.as_str())
    }

    /// The column that holds the value which breaks a rule.
    fn key_of(&self, error: &metrics_core::Error) -> Option<&str> {
        match input_of(error)? {
            "arrival" => self.column(&[Field::Arrival]),
            "sent" => self.column(&[Field::Sent]),
            "scheduled" => self.column(&[Field::Scheduled]),
            "first_token" | "ttft" => self.column(&[Field::FirstToken, Field::Ttft]),
            "last_token" | "e2e" => self.column(&[Field::LastToken, Field::E2e, Field::Tpot]),
            "tpot" => self.column(&[Field::Tpot]),
            "input_tokens" => self.column(&[Field::InputTokens]),
            "output_tokens" => self.column(&[Field::OutputTokens]),
            _ => None,
        }
    }
}

/// What was decided over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Requests whose outcome was not in the file.
    pub implied: u64,
    /// Requests whose end was computed from TPOT.
    pub from_tpot: u64,
    /// Requests whose TPOT in the file is more than 1 % off the one from their times.
    pub tpot_differs: u64,
}

/// A time of a file: exact if it has no digit below the picosecond.
fn time(text: &str, unit: TimeUnit) -> Option<Instant> {
    exact(text, unit).map(Instant::Picoseconds).or_else(|| {
        let x: f64 = text.parse().ok()?;
        Some(Instant::Seconds(x / unit.per_second()))
    })
}

/// A decimal number as so many decimal places have it, if it is whole there and fits 64 bits, as
/// nearly every time and count of a log does: [`exact`] in one pass.
fn exact_short(text: &str, places: usize) -> Option<u64> {
    let mut value: u64 = 0;
    let mut point = None;
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?,
            b'.' if point.is_none() && 0 < i => point = Some(i + 1),
            _ => return None,
        }
    }
    let decimals = point.map_or(0, |at| text.len() - at);
    let rest = u32::try_from(places.checked_sub(decimals)?).ok()?;
    if text.is_empty() { None } else { value.checked_mul(10_u64.checked_pow(rest)?) }
}

/// Whole picoseconds, if the text is a plain decimal number that is one.
fn exact(text: &str, unit: TimeUnit) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let plain = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    let places = unit.places();
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() || !plain(whole) || !plain(fraction) || places < fraction.len() {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(places).ok()?);
    let rest = 10_u128.pow(u32::try_from(places - fraction.len()).ok()?);
    let below = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? * rest };
    whole.parse::<u128>().ok()?.checked_mul(scale)?.checked_add(below)
}

/// The outcome that a word means.
fn outcome(word: &str) -> Option<Outcome> {
    if let Some(outcome) = Outcome::ALL.into_iter().find(|o| o.name() == word) {
        return Some(outcome);
    }
    let word = word.trim().to_ascii_lowercase().replace([' ', '-'], "_");
    if let Ok(status) = word.parse::<u16>() {
        return match status {
            200..=299 => Some(Outcome::Completed),
            408 | 504 => Some(Outcome::TimedOut),
            429 => Some(Outcome::Rejected),
            499 => Some(Outcome::Cancelled),
            400..=599 => Some(Outcome::Failed),
            _ => None,
        };
    }
    match word.as_str() {
        "completed" | "complete" | "ok" | "success" | "successful" | "succeeded" | "done"
        | "finished" | "true" | "yes" | "stop" | "length" => Some(Outcome::Completed),
        "failed" | "fail" | "failure" | "error" | "errored" | "false" | "no" => {
            Some(Outcome::Failed)
        }
        "rejected" | "refused" | "throttled" | "rate_limited" => Some(Outcome::Rejected),
        "timed_out" | "timeout" | "deadline_exceeded" => Some(Outcome::TimedOut),
        "cancelled" | "canceled" | "abort" | "aborted" => Some(Outcome::Cancelled),
        "cut_off" | "incomplete" | "in_flight" | "unfinished" => Some(Outcome::CutOff),
        _ => None,
    }
}

/// What an outcome should be.
fn outcome_words() -> String {
    format!("an outcome such as {}, or an HTTP status; 0 and 1 are ambiguous", outcome_names())
}

/// A row's values by field.
pub(crate) type Cells<'a> = [Option<Cell<'a>>; Field::ALL.len()];

/// One row on its way to a timeline.
pub(crate) struct RowReader<'a> {
    pub(crate) row: Spot<'a>,
    pub(crate) slots: &'a Slots,
    pub(crate) cells: &'a Cells<'a>,
}

impl RowReader<'_> {
    /// The known value of a field.
    fn cell(&self, field: Field) -> Option<(&Slot, &Cell<'_>)> {
        let slot = self.slots.get(field)?;
        let cell = self.cells[field.slot()].as_ref().filter(|c| !c.is_unknown())?;
        Some((slot, cell))
    }

    fn wrong(&self, slot: &Slot, cell: &Cell<'_>, expected: impl Into<String>) -> IoError {
        IoError::Value {
            at: self.row.key(&slot.column).place(),
            found: cell.shown(),
            expected: expected.into(),
        }
    }

    fn time(&self, field: Field) -> Result<Option<Instant>> {
        let Some((slot, cell)) = self.cell(field) else { return Ok(None) };
        if let Some(ps) = exact_short(cell.text(), slot.target.unit.places()) {
            return Ok(Some(Instant::Picoseconds(u128::from(ps))));
        }
        let time = cell.number().and_then(|text| time(text, slot.target.unit));
        time.map(Some).ok_or_else(|| {
            let unit = slot.target.unit.name();
            self.wrong(slot, cell, format!("a number of {unit}, or nothing for unknown"))
        })
    }

    fn seconds(&self, field: Field) -> Result<Option<f64>> {
        Ok(self.time(field)?.map(Instant::seconds))
    }

    fn count(&self, field: Field) -> Result<Option<u64>> {
        let Some((slot, cell)) = self.cell(field) else { return Ok(None) };
        // Digits alone are compared exactly, where an `f64` would round into the range.
        let count = match exact_short(cell.text(), 0) {
            Some(n) => Some(n).filter(|&n| n <= LARGEST_TOKENS),
            None => cell.number().and_then(|text| json::whole(text.parse().ok()?)),
        };
        count.map(Some).ok_or_else(|| self.wrong(slot, cell, COUNT))
    }

    fn outcome(&self) -> Result<Option<Outcome>> {
        let Some((slot, cell)) = self.cell(Field::Outcome) else { return Ok(None) };
        let known = cell.word().and_then(|w| outcome(&w));
        known.map(Some).ok_or_else(|| self.wrong(slot, cell, outcome_words()))
    }

    fn id(&self, line: u64) -> Result<Cow<'_, str>> {
        let Some((slot, cell)) = self.cell(Field::Id) else {
            if let Some(slot) = self.slots.get(Field::Id) {
                let at = self.row.key(&slot.column).place();
                let found = "nothing".to_owned();
                return Err(IoError::Value {
                    at,
                    found,
                    expected: "the request's name".to_owned(),
                });
            }
            return Ok(Cow::Owned(line.to_string()));
        };
        cell.word().ok_or_else(|| self.wrong(slot, cell, "a text or a number"))
    }

    fn broken(&self, source: metrics_core::Error) -> IoError {
        let key = self.slots.key_of(&source);
        let at = Spot { key, ..self.row }.place();
        let other_unit = |s: &Slot| {
            Some(s.column.as_str()) == key
                && s.target.field.is_time()
                && s.target.unit != TimeUnit::Seconds
        };
        let note = if self.slots.0.iter().flatten().any(other_unit) { " (in seconds)" } else { "" };
        IoError::Request { at, source, note }
    }

    /// The timeline of the row, kept as it is asked for.
    pub(crate) fn kept(
        &self,
        line: u64,
        decided: &mut Decided,
        mut keep: Keep<'_>,
    ) -> Result<RequestTimeline> {
        let slot = self.slots.get(Field::Id);
        // Without a column for it, the id is the line and needs no text.
        let id = if keep.named || slot.is_some() { self.id(line)? } else { Cow::Borrowed("") };
        let timeline = self.timeline(if keep.named { &id } else { "" }, decided)?;
        if let (Some(ids), Some(slot)) = (&mut keep.ids, slot) {
            ids.check_soon(self.row.file, &slot.column, line, &id)?;
        }
        Ok(timeline)
    }

    /// The timeline of the row under that name.
    fn timeline(&self, id: &str, decided: &mut Decided) -> Result<RequestTimeline> {
        let mut f = TimelineFields {
            id: id.to_owned(),
            arrival: self.time(Field::Arrival)?,
            sent: self.time(Field::Sent)?,
            scheduled: self.time(Field::Scheduled)?,
            first_token: self.time(Field::FirstToken)?,
            last_token: self.time(Field::LastToken)?,
            ttft: self.seconds(Field::Ttft)?,
            e2e: self.seconds(Field::E2e)?,
            input_tokens: self.count(Field::InputTokens)?,
            output_tokens: self.count(Field::OutputTokens)?,
            ..TimelineFields::default()
        };
        let tpot = self.seconds(Field::Tpot)?;
        let given = self.outcome()?;
        f.outcome = given.or_else(|| implied_outcome(&f)).ok_or_else(|| IoError::Value {
            at: Spot { key: self.slots.column(&[Field::Outcome]), ..self.row }.place(),
            found: "a request with neither an outcome nor a time of an output".to_owned(),
            expected: format!("one of them; outcomes are {}", outcome_names()),
        })?;
        decided.implied += u64::from(given.is_none());
        if let Some(tpot) = tpot
            && f.outcome == Outcome::Completed
            && f.e2e.is_none()
            && f.last_token.is_none()
        {
            f.e2e = Some(self.end_from_tpot(&f, tpot)?);
            decided.from_tpot += 1;
            return RequestTimeline::new(f).map_err(|e| self.broken(e));
        }
        let timeline = RequestTimeline::new(f).map_err(|e| self.broken(e))?;
        if let (Some(given), Some(m)) = (tpot, timeline.metrics()) {
            let own = m.tpot.get();
            decided.tpot_differs += u64::from(0.01 * own.max(given) < (given - own).abs());
        }
        Ok(timeline)
    }

    /// `ttft + (output_tokens - 1) · tpot`, from arrival.
    fn end_from_tpot(&self, f: &TimelineFields, tpot: f64) -> Result<f64> {
        use metrics_core::Error;
        const NEEDED_FOR: &str = "the end is ttft + (output_tokens - 1) · tpot";
        let missing = |input| self.broken(Error::Missing { input, needed_for: NEEDED_FOR });
        let ttft = match (f.ttft, f.first_token, f.arrival) {
            (Some(ttft), _, _) => ttft,
            (None, Some(first), Some(arrival)) => {
                first.since("first_token", arrival, "arrival").map_err(|e| self.broken(e))?.get()
            }
            _ => return Err(missing("ttft")),
        };
        let n = f.output_tokens.ok_or_else(|| missing("output_tokens"))?;
        let gaps = n.saturating_sub(1) as f64;
        metrics_core::error::at_least("tpot", tpot, 0.0).map_err(|e| self.broken(e))?;
        Ok(ttft + gaps * tpot)
    }
}

/// What is kept of a row beside its figures.
#[derive(Default)]
pub(crate) struct Keep<'a> {
    /// Whether the request keeps its id.
    pub(crate) named: bool,
    /// The ids so far, if they are compared.
    pub(crate) ids: Option<&'a mut Ids>,
}

/// Rows that can say afterwards what was decided.
pub(crate) trait Source {
    /// The next row.
    fn row(&mut self, keep: Keep<'_>) -> Result<Option<Row>>;
    fn decided(&self) -> Decided;
    fn slots(&self) -> &Slots;
    /// Columns that have no field's name, where names decide.
    fn unread(&self) -> Vec<&str>;
    /// An error if the map does not fit the file.
    fn finish(&self) -> Result<()>;
}

/// Reads all rows into one run.
pub(crate) fn hold(name: &str, mut rows: impl Source) -> Result<Vec<Run>> {
    let mut ids = Ids::default();
    let (mut timelines, mut arrivals) = (Vec::new(), false);
    while let Some((_, timeline)) = rows.row(Keep { named: true, ids: Some(&mut ids) })? {
        arrivals |= timeline.arrival().is_some();
        timelines.push(timeline);
    }
    let run = finished(name, &rows, Some(&mut ids), timelines.len() as u64, arrivals)?;
    Ok(vec![Run { timelines, ..run }])
}

/// Reads all rows, which go elsewhere.
pub(crate) fn pass_on(name: &str, mut rows: impl Source, to: &mut Stream<'_>) -> Result<Vec<Run>> {
    let mut ids = to.compare_ids.then(Ids::default);
    let mut arrivals = false;
    while let Some((line, timeline)) = rows.row(Keep { named: false, ids: ids.as_mut() })? {
        arrivals |= timeline.arrival().is_some();
        to.push(name, line, &timeline)?;
    }
    Ok(vec![finished(name, &rows, ids.as_mut(), to.requests, arrivals)?])
}

/// The run of rows that were all read, without its requests.
fn finished(
    name: &str,
    rows: &impl Source,
    ids: Option<&mut Ids>,
    requests: u64,
    arrivals: bool,
) -> Result<Run> {
    rows.finish()?;
    if let (Some(ids), Some(slot)) = (ids, rows.slots().get(Field::Id)) {
        ids.finish(name, &slot.column)?;
    }
    if requests == 0 {
        let expected = "at least one request";
        return Err(IoError::NoRequests { at: Box::new(Place::file(name)), expected });
    }
    let mut run = Run { line: 1, ..Run::default() };
    if arrivals {
        run.clock = Clock::Unspecified;
    }
    describe(rows.decided(), rows.slots(), requests, &mut run);
    let unread = rows.unread();
    if !unread.is_empty() {
        let text = format!("no field is called so, not read: {}", columns_shown(&unread));
        run.note("columns-not-read", &[], text);
    }
    Ok(run)
}

/// Says what was decided and what the file cannot give.
fn describe(decided: Decided, slots: &Slots, n: u64, run: &mut Run) {
    if 0 < decided.implied {
        let text = format!(
            "{} of {} without an outcome, taken as completed: failures that the log does not mark \
             count as completed",
            decided.implied,
            things(n, "request")
        );
        run.note("outcome-implied", &["goodput", "attainment"], text);
    }
    if 0 < decided.from_tpot {
        let text = format!(
            "the end of {} is ttft + (output_tokens - 1) · tpot",
            things(decided.from_tpot, "request")
        );
        run.note("e2e-from-tpot", &["e2e_latency", "tpot"], text);
    }
    if 0 < decided.tpot_differs {
        let text = format!(
            "in {} the file's TPOT is more than 1 % off (last - first) / (N - 1), which is used: \
             the tool may divide by N or end elsewhere",
            things(decided.tpot_differs, "request")
        );
        run.note("tpot-differs", &["tpot"], text);
    }
    let column = |fields: &[Field]| slots.column(fields).is_some();
    if run.clock == Clock::Unknown {
        run.lacks("arrivals, and with them concurrency over time", "map `arrival_s`");
    }
    if !column(&[Field::FirstToken, Field::Ttft]) {
        run.lacks("ttft per request", "map `first_token_s` or `ttft_s`");
    }
    if !column(&[Field::LastToken, Field::E2e, Field::Tpot]) {
        run.lacks("e2e latency and tpot per request", "map `last_token_s`, `e2e_s` or `tpot_s`");
    }
    if !column(&[Field::OutputTokens]) {
        run.lacks("output tokens and tpot per request", "map `output_tokens`");
    }
    run.lacks("gaps between outputs", "our own timelines with `token_s`");
    run.lacks("duration of the run", "our own timelines with `duration_s` in the header");
}

/// The requests of a CSV table, row by row, without holding the file.
///
/// Ids are not compared: who needs that keeps them.
pub struct CsvRows {
    table: CsvTable,
    slots: Slots,
    /// Per field, the index of its column.
    indexes: [Option<usize>; Field::ALL.len()],
    /// Columns that have no field's name, where names decide.
    unread: Vec<String>,
    /// What was decided so far.
    pub decided: Decided,
}

impl CsvRows {
    /// Reads the header and finds the mapped columns.
    ///
    /// # Errors
    ///
    /// [`IoError::MissingColumn`] for a mapped column that is not there, [`IoError::Repeated`] for
    /// one that is there twice, [`IoError::MapTwice`] for two columns of one field,
    /// [`IoError::NothingMapped`] if no column is a field.
    pub fn new(input: Input, map: &ColumnMap) -> Result<Self> {
        let table = CsvTable::open(input)?;
        let (name, line, columns) = (table.name(), table.header_line(), table.columns());
        let by_name = map.is_empty();
        let map = if by_name { map_by_names(name, line, columns)? } else { map.clone() };
        let unread = |c: &&String| by_name && !c.is_empty() && Target::named(c).is_none();
        let unread: Vec<String> = columns.iter().filter(unread).cloned().collect();
        let mut slots = Slots::default();
        let mut indexes = [None; Field::ALL.len()];
        for (target, column) in map.items() {
            let Some(index) = table.index_of(column)? else {
                let at = Box::new(Place::file(name).key(column.clone()));
                return Err(IoError::MissingColumn { at, known: columns_shown(columns) });
            };
            indexes[target.field.slot()] = Some(index);
            slots.0[target.field.slot()] = Some(Slot { target: *target, column: column.clone() });
        }
        Ok(Self { table, slots, indexes, unread, decided: Decided::default() })
    }

    fn next_row(&mut self, keep: Keep<'_>) -> Result<Option<Row>> {
        let Some(line) = self.table.advance()? else { return Ok(None) };
        let mut cells: Cells<'_> = std::array::from_fn(|_| None);
        for (cell, index) in cells.iter_mut().zip(self.indexes) {
            if let Some(index) = index {
                *cell = Some(Cell::Bare(Cow::Borrowed(self.table.cell(line, index)?)));
            }
        }
        let spot = Spot::line(self.table.name(), line);
        let row = RowReader { row: spot, slots: &self.slots, cells: &cells };
        let timeline = row.kept(line, &mut self.decided, keep)?;
        Ok(Some((line, timeline)))
    }
}

impl Iterator for CsvRows {
    type Item = Result<(u64, RequestTimeline)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row(Keep { named: true, ids: None }).transpose()
    }
}

impl Source for CsvRows {
    fn row(&mut self, keep: Keep<'_>) -> Result<Option<Row>> {
        self.next_row(keep)
    }
    fn decided(&self) -> Decided {
        self.decided
    }
    fn slots(&self) -> &Slots {
        &self.slots
    }
    fn unread(&self) -> Vec<&str> {
        self.unread.iter().map(String::as_str).collect()
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// The columns whose names are fields.
pub(crate) fn map_by_names(name: &str, line: u64, columns: &[String]) -> Result<ColumnMap> {
    let mut map = ColumnMap::default();
    let mut telling = false;
    for column in columns {
        if let Some(target) = Target::named(column) {
            if map.items().iter().any(|(t, c)| *t == target && c == column) {
                let at = Box::new(Place::line(name, line).key(column.clone()));
                return Err(IoError::Repeated { at });
            }
            if let Some((_, other)) = map.items().iter().find(|(t, _)| t.field == target.field) {
                return Err(IoError::FieldTwice {
                    at: Box::new(Place::line(name, line).key(column.clone())),
                    field: target.field.name(),
                    column: shown(other),
                });
            }
            map.add(target, column, column)?;
            telling |= target.is_telling();
        }
    }
    let taken = |f: Field| map.items().iter().any(|(t, _)| t.field == f);
    for column in columns.iter().filter(|c| Target::named(c).is_none()) {
        if let Some(meant) = nearly(column, taken) {
            let at = Box::new(Place::line(name, line).key(column.clone()));
            return Err(IoError::Misspelt { at, meant });
        }
    }
    if telling { Ok(map) } else { Err(nothing_mapped(name, columns)) }
}

fn nothing_mapped(name: &str, columns: &[String]) -> IoError {
    IoError::NothingMapped {
        at: Box::new(Place::file(name)),
        columns: columns_shown(columns),
        example: shown(columns.first().map_or("COLUMN", String::as_str)),
        valid: valid_fields(),
    }
}

/// The requests of JSON lines, line by line, without holding the file.
///
/// Ids are not compared: who needs that keeps them.
pub struct JsonRows {
    lines: Lines,
    slots: Slots,
    /// Per key that was seen, the fields that it holds.
    fields: HashMap<String, Vec<Field>>,
    /// The keys that were seen, in order.
    keys: Vec<String>,
    /// Whether fields are told by their names.
    by_name: bool,
    /// What was decided so far.
    pub decided: Decided,
}

impl JsonRows {
    /// Prepares to read; the map is compared with the keys as they come.
    #[must_use]
    pub fn new(input: Input, map: &ColumnMap) -> Self {
        let mut slots = Slots::default();
        for (target, column) in map.items() {
            slots.0[target.field.slot()] = Some(Slot { target: *target, column: column.clone() });
        }
        Self {
            lines: input.into_lines(),
            slots,
            fields: HashMap::new(),
            keys: Vec::new(),
            by_name: map.is_empty(),
            decided: Decided::default(),
        }
    }

    fn next_row(&mut self, keep: Keep<'_>) -> Result<Option<Row>> {
        let (name, next) = self.lines.next_named()?;
        let Some((line, text)) = next else { return Ok(None) };
        let spot = Spot::line(name, line);
        let object = json::object(name, line, text)?;
        let mut cells: Cells<'_> = std::array::from_fn(|_| None);
        let mut new: Vec<&str> = Vec::new();
        for (key, value) in &object.0 {
            if !self.fields.contains_key(key.as_ref()) {
                let fields = fields_of_key(&mut self.slots, self.by_name, spot, key)?;
                if self.by_name && fields.is_empty() {
                    new.push(key);
                }
                self.fields.insert(key.to_string(), fields);
                self.keys.push(key.to_string());
            }
            for field in self.fields.get(key.as_ref()).into_iter().flatten() {
                if cells[field.slot()].replace(Cell::Json(value)).is_some() {
                    return Err(IoError::Repeated { at: spot.key(key).place() });
                }
            }
        }
        // A field that other rows have, and this one under a name that is nearly its own; one that no
        // row has is looked for when all names are known.
        for key in new {
            let elsewhere = |f: Field| cells[f.slot()].is_some() || self.slots.get(f).is_none();
            if let Some(meant) = nearly(key, elsewhere) {
                return Err(IoError::Misspelt { at: spot.key(key).place(), meant });
            }
        }
        let row = RowReader { row: spot, slots: &self.slots, cells: &cells };
        let timeline = row.kept(line, &mut self.decided, keep);
        // A row in which no key is a field says more about the map than about the row.
        if timeline.is_err() && cells.iter().all(Option::is_none) {
            check_map(name, &self.slots, &self.fields, &self.keys)?;
        }
        Ok(Some((line, timeline?)))
    }
}

/// The fields that a key holds, which may be found only now by its name.
fn fields_of_key(
    slots: &mut Slots,
    by_name: bool,
    spot: Spot<'_>,
    key: &str,
) -> Result<Vec<Field>> {
    if !by_name {
        let held = slots.0.iter().flatten().filter(|s| s.column == key);
        return Ok(held.map(|s| s.target.field).collect());
    }
    let Some(target) = Target::named(key) else { return Ok(Vec::new()) };
    let slot = &mut slots.0[target.field.slot()];
    if let Some(other) = slot {
        return Err(IoError::FieldTwice {
            at: spot.key(key).place(),
            field: target.field.name(),
            column: shown(&other.column),
        });
    }
    *slot = Some(Slot { target, column: key.to_owned() });
    Ok(vec![target.field])
}

impl Iterator for JsonRows {
    type Item = Result<(u64, RequestTimeline)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row(Keep { named: true, ids: None }).transpose()
    }
}

impl Source for JsonRows {
    fn row(&mut self, keep: Keep<'_>) -> Result<Option<Row>> {
        self.next_row(keep)
    }
    fn decided(&self) -> Decided {
        self.decided
    }
    fn slots(&self) -> &Slots {
        &self.slots
    }
    fn unread(&self) -> Vec<&str> {
        let unread = |k: &&String| self.by_name && self.fields.get(*k).is_none_or(Vec::is_empty);
        self.keys.iter().filter(unread).map(String::as_str).collect()
    }
    fn finish(&self) -> Result<()> {
        for key in self.unread() {
            if let Some(meant) = nearly(key, |f| self.slots.get(f).is_some()) {
                let at = Box::new(Place::file(self.lines.name()).key(key));
                return Err(IoError::Misspelt { at, meant });
            }
        }
        check_map(self.lines.name(), &self.slots, &self.fields, &self.keys)
    }
}

/// Whether the map fits the keys that were seen.
fn check_map(
    name: &str,
    slots: &Slots,
    fields: &HashMap<String, Vec<Field>>,
    keys: &[String],
) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let slots = || slots.0.iter().flatten();
    if !slots().any(|s| s.target.is_telling()) {
        return Err(nothing_mapped(name, keys));
    }
    match slots().find(|s| !fields.contains_key(&s.column)) {
        Some(slot) => Err(IoError::MissingColumn {
            at: Box::new(Place::file(name).key(slot.column.clone())),
            known: columns_shown(keys),
        }),
        None => Ok(()),
    }
}
