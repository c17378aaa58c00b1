//! From rows to a checked workload: what holds for every format of traces.

use metrics_core::timeline::LARGEST_TOKENS;
use sched_sim::workload::RequestId;
use sched_sim::{PromptContent, Ticks, Workload, WorkloadRequest};

use crate::decimal::scaled;
use crate::error::{IoError, Place, Result, Spot, shown};
use crate::rows::Ids;
use crate::run::Note;
use crate::trace::map::{ArrivalForm, Columns};
use crate::trace::stamp::{STAMP, Stamps};
use crate::trace::{Epoch, TraceContent};

/// Attoseconds in a second.
const SECOND: u128 = Ticks::SECOND.attoseconds();
/// The longest time from the first row to any other.
const YEAR: u128 = 366 * 86_400 * SECOND;
/// The latest clock that a file may show: the end of the year 9999, as Unix time.
const LATEST: u128 = 253_402_300_799 * SECOND;

/// What a number of tokens should be.
const TOKENS: &str = "a whole number of tokens from 0 to 4294967295";

/// What an arrival should be that is later than any clock of a file.
const TOO_LATE: &str = "an arrival before the year 10000 on a Unix clock: is the unit right?";

/// What a priority should be.
const PRIORITY: &str = "a whole number from -9223372036854775808 to 9223372036854775807";

/// The value of one cell.
pub(super) struct Value<'a> {
    /// As text, without quotes.
    pub(super) text: &'a str,
    /// Whether it is a JSON string, which is no number.
    pub(super) quoted: bool,
}

impl Value<'_> {
    fn wrong(&self, at: Spot<'_>, expected: impl Into<String>) -> IoError {
        let found = match (self.quoted, self.text) {
            (true, text) => format!("\"{}\"", shown(text)),
            (false, "" | "null") => "nothing".to_owned(),
            (false, text) => format!("`{}`", shown(text)),
        };
        IoError::Value { at: at.place(), found, expected: expected.into() }
    }
}

/// One row of a table or one object.
pub(super) struct RowValues<'a> {
    pub(super) line: u64,
    pub(super) arrival: Value<'a>,
    pub(super) input: Value<'a>,
    pub(super) output: Value<'a>,
    pub(super) id: Option<Value<'a>>,
    pub(super) priority: Option<Value<'a>>,
    /// With its unit and its key.
    pub(super) cancel: Option<(ArrivalForm, &'a str, Value<'a>)>,
}

/// How many rows had something, and where the first of them is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    count: u64,
    first_line: u64,
}

impl Tally {
    /// One more, in that line.
    pub(super) fn add(&mut self, line: u64) {
        if self.count == 0 {
            self.first_line = line;
        }
        self.count += 1;
    }

    /// For example `3 of 20 rows (the first in line 7)`.
    fn of(self, rows: u64) -> String {
        format!("{} of {rows} rows (the first in line {})", self.count, self.first_line)
    }

    /// Adds a note if there was any.
    pub(super) fn note(self, notes: &mut Vec<Note>, id: &'static str, rows: u64, text: &str) {
        if 0 < self.count {
            notes.push(Note { id, affects: &[], text: format!("{} {text}", self.of(rows)) });
        }
    }
}

/// Rows on their way to a workload.
pub(super) struct Collector<'a> {
    file: &'a str,
    requests: Vec<WorkloadRequest>,
    /// Rows so far, those that are left out included.
    rows: u64,
    /// What the file's clock says at time zero.
    zero: Option<u128>,
    /// The row above: its line, its clock, and the clock as written.
    above: (u64, u128, String),
    stamps: Stamps,
    /// Whether the first stamp says its zone.
    zoned: Option<bool>,
    ids: Ids,
    no_input: Tally,
    no_output: Tally,
    /// The line of the last request.
    last_line: u64,
}

impl<'a> Collector<'a> {
    /// For rows of that file; time zero is the first row's arrival.
    pub(super) fn new(file: &'a str) -> Self {
        Self {
            file,
            requests: Vec::new(),
            rows: 0,
            zero: None,
            above: (0, 0, String::new()),
            stamps: Stamps::default(),
            zoned: None,
            ids: Ids::default(),
            no_input: Tally::default(),
            no_output: Tally::default(),
            last_line: 0,
        }
    }

    /// For rows whose clock counts from time zero itself.
    pub(super) fn from_zero(file: &'a str) -> Self {
        Self { zero: Some(0), ..Self::new(file) }
    }

    /// Adds a row of text values.
    pub(super) fn row(&mut self, columns: &Columns, row: &RowValues<'_>) -> Result<()> {
        let at = Spot::line(self.file, row.line);
        let arrival = at.key(&columns.arrival);
        let clock = self.clock(arrival, columns.form, &row.arrival)?;
        let input = tokens(at.key(&columns.input), &row.input)?;
        let output = tokens(at.key(&columns.output), &row.output)?;
        let id = match (&columns.id, &row.id) {
            (Some(key), Some(id)) => {
                if id.text.is_empty() || (!id.quoted && id.text == "null") {
                    return Err(id.wrong(at.key(key), "the request's name"));
                }
                self.ids.check(self.file, key, row.line, id.text)?;
                RequestId::from(id.text)
            }
            _ => RequestId::Number(row.line),
        };
        let priority = match (&columns.priority, &row.priority) {
            (Some(key), Some(value)) => priority(at.key(key), value)?,
            _ => 0,
        };
        let cancel = match &row.cancel {
            Some((form, key, value)) => cancel_after(at.key(key), *form, value)?,
            None => None,
        };
        self.request(arrival, (clock, row.arrival.text), id, input, output)?;
        if let Some(request) = self.requests.last_mut().filter(|_| self.last_line == row.line) {
            request.priority = priority;
            request.set_cancel_after(cancel);
        }
        Ok(())
    }

    /// The file's clock in attoseconds.
    fn clock(&mut self, at: Spot<'_>, form: ArrivalForm, value: &Value<'_>) -> Result<u128> {
        let Some(unit) = form.unit() else {
            let stamp = self.stamps.parse(value.text).ok_or_else(|| value.wrong(at, STAMP))?;
            if *self.zoned.get_or_insert(stamp.zoned) != stamp.zoned {
                let expected = if stamp.zoned {
                    "a stamp without an offset from UTC, as in the first row"
                } else {
                    "a stamp with its offset from UTC, as in the first row"
                };
                return Err(value.wrong(at, expected));
            }
            return Ok(stamp.unix);
        };
        let clock = (!value.quoted).then(|| scaled(value.text, form.power())).flatten();
        // A number that no clock here can hold is too large, and no other fault.
        let large = |text: &str| text.parse::<f64>().is_ok_and(|x| x.is_finite() && 1.0 < x);
        if clock.is_none() && !value.quoted && large(value.text) {
            return Err(value.wrong(at, TOO_LATE));
        }
        clock.ok_or_else(|| value.wrong(at, format!("a number of {unit}, at least 0")))
    }

    /// Adds a request; `at` is where its arrival stands, with the arrival as written.
    pub(super) fn request(
        &mut self,
        at: Spot<'_>,
        (clock, written): (u128, &str),
        id: RequestId,
        input: u64,
        output: u64,
    ) -> Result<()> {
        let wrong = |expected: String| IoError::Value {
            at: at.place(),
            found: format!("`{}`", shown(written)),
            expected,
        };
        if LATEST < clock {
            return Err(wrong(TOO_LATE.to_owned()));
        }
        let (above_line, above, ref above_written) = self.above;
        if clock < above {
            return Err(wrong(format!(
                "an arrival not before that of line {above_line}, `{}`: sort the rows by arrival",
                shown(above_written)
            )));
        }
        let zero = *self.zero.get_or_insert(clock);
        let first = self.requests.first().map_or(clock, |r| zero + r.arrival.attoseconds());
        if YEAR < clock - first {
            return Err(wrong("an arrival at most 366 days after the first row's".to_owned()));
        }
        self.rows += 1;
        self.above.0 = at.line;
        self.above.1 = clock;
        written.clone_into(&mut self.above.2);
        if input == 0 {
            self.no_input.add(at.line);
        } else if output == 0 {
            self.no_output.add(at.line);
        } else {
            let arrival = Ticks::from_attoseconds(clock - zero);
            self.requests.push(WorkloadRequest::new(id, arrival, input, output));
            self.last_line = at.line;
        }
        Ok(())
    }

    /// Says which tokens the request of that line has, made from its input tokens; nothing if the
    /// line was left out.
    ///
    /// # Errors
    ///
    /// The input tokens, if `content` makes none of them.
    pub(super) fn content(
        &mut self,
        line: u64,
        content: impl FnOnce(u64) -> Option<PromptContent>,
    ) -> std::result::Result<(), u64> {
        match self.requests.last_mut() {
            Some(r) if self.last_line == line => {
                let made = content(r.input_tokens).ok_or(r.input_tokens)?;
                r.content = Some(Box::new(made));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The checked workload, with what was decided.
    pub(super) fn finish(self, form: ArrivalForm) -> Result<TraceContent> {
        let at = || Box::new(Place::file(self.file));
        if self.rows == 0 {
            return Err(IoError::NoRequests { at: at(), expected: "at least one request" });
        }
        if self.requests.is_empty() {
            let expected = "at least one with 1 token or more each way";
            return Err(IoError::NoRequests { at: at(), expected });
        }
        let workload = Workload::new(self.requests)
            .map_err(|source| IoError::Workload { at: at(), source: Box::new(source) })?;
        let mut notes = Vec::new();
        let text = "have 0 prompt tokens and are left out";
        self.no_input.note(&mut notes, "no-input", self.rows, text);
        let text = "have 0 answer tokens, as failed requests do, and are left out: their \
                    prompts may have loaded the server";
        self.no_output.note(&mut notes, "no-output", self.rows, text);
        let zero = self.zero.unwrap_or_default();
        let epoch = match self.zoned {
            Some(zoned) if form == ArrivalForm::Stamp => Some(Epoch { unix: zero, zoned }),
            _ => None,
        };
        if epoch.is_none() && zero != 0 {
            let text = format!(
                "arrivals count from the first row, which the file's clock puts at {}",
                Ticks::from_attoseconds(zero)
            );
            notes.push(Note { id: "clock-shifted", affects: &[], text });
        }
        Ok(TraceContent { workload, epoch, notes })
    }
}

/// A token count; 0 is one.
fn tokens(at: Spot<'_>, value: &Value<'_>) -> Result<u64> {
    // Other programs write counts as floats: `374.0` is 374.
    let count = (!value.quoted).then(|| value.text.parse().ok().or_else(|| whole(value.text)));
    count
        .flatten()
        .filter(|&n| n <= Workload::LARGEST_TOKENS)
        .ok_or_else(|| value.wrong(at, TOKENS))
}

/// How long after its arrival a client goes away; nothing: it stays.
fn cancel_after(at: Spot<'_>, form: ArrivalForm, value: &Value<'_>) -> Result<Option<Ticks>> {
    if !value.quoted && ["", "null"].contains(&value.text.trim()) {
        return Ok(None);
    }
    let time = (!value.quoted).then(|| scaled(value.text, form.power())).flatten();
    let unit = form.unit().unwrap_or_default();
    let longest = Ticks::LONGEST_RUN.attoseconds();
    let time = time.filter(|&time| time <= longest).ok_or_else(|| {
        value.wrong(at, format!("a number of {unit} from 0 to a hundred years, or nothing"))
    })?;
    Ok(Some(Ticks::from_attoseconds(time)))
}

/// Who runs first under an order by priority.
fn priority(at: Spot<'_>, value: &Value<'_>) -> Result<i64> {
    let number = (!value.quoted).then(|| value.text.trim().parse().ok()).flatten();
    number.ok_or_else(|| value.wrong(at, PRIORITY))
}

/// A whole number written with a point or an exponent.
fn whole(text: &str) -> Option<u64> {
    // A thousandth is kept, and what is finer than that is no whole number either.
    let thousandths = scaled(text, 3)?;
    let x: f64 = text.parse().ok()?;
    let n = u64::try_from(thousandths / 1000).ok().filter(|&n| n <= LARGEST_TOKENS)?;
    (n as f64 == x).then_some(n)
}
