//! What the readers with one request a row share.

use std::collections::HashMap;

use metrics_core::format::things;
use metrics_core::timeline::TimelineFields;
use metrics_core::{Outcome, RequestTimeline};

use crate::error::{IoError, Place, Result, shown};
use crate::run::{Column, Run, Values};

/// A request and the line where it stands.
pub(crate) type Row = (u64, RequestTimeline);

/// Refuses a second request of the same id.
#[derive(Default)]
pub(crate) struct Ids(HashMap<String, u64>);

impl Ids {
    /// Notes the id of a line.
    pub(crate) fn check(&mut self, file: &str, key: &str, line: u64, id: &str) -> Result<()> {
        match self.0.insert(id.to_owned(), line) {
            None => Ok(()),
            Some(first_line) => Err(IoError::DuplicateId {
                at: Box::new(Place::line(file, line).key(key)),
                id: shown(id),
                first_line,
            }),
        }
    }
}

/// The outcome of a row that does not say it: completed, if it has any time of an output.
pub(crate) fn implied_outcome(f: &TimelineFields) -> Option<Outcome> {
    let answered = f.first_token.is_some()
        || f.last_token.is_some()
        || f.ttft.is_some()
        || f.e2e.is_some()
        || f.tokens.is_some();
    answered.then_some(Outcome::Completed)
}

/// The outcomes' names in files, for messages.
pub(crate) fn outcome_names() -> String {
    crate::error::listed(Outcome::ALL.map(Outcome::name))
}

/// Columns that fill row by row, where not every row has every value.
#[derive(Default)]
pub(crate) struct Cells {
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
}

impl Cells {
    /// Puts a number into a row; rows come in order.
    pub(crate) fn number(&mut self, row: usize, name: &str, value: Option<f64>) {
        let Some(value) = value else { return };
        if let Values::Number(list) = self.values(name, || Values::Number(Vec::new())) {
            list.resize(list.len().max(row), None);
            list.push(Some(value));
        }
    }

    /// Puts a text into a row; rows come in order.
    pub(crate) fn text(&mut self, row: usize, name: &str, value: Option<String>) {
        let Some(value) = value else { return };
        if let Values::Text(list) = self.values(name, || Values::Text(Vec::new())) {
            list.resize(list.len().max(row), None);
            list.push(Some(value));
        }
    }

    fn values(&mut self, name: &str, new: impl Fn() -> Values) -> &mut Values {
        let n = self.columns.len();
        let at = *self.by_name.entry(name.to_owned()).or_insert(n);
        if at == n {
            self.columns.push(Column { name: name.to_owned(), values: new() });
        }
        &mut self.columns[at].values
    }

    /// The columns, each with that many rows.
    pub(crate) fn finish(self, rows: usize) -> Vec<Column> {
        let mut columns = self.columns;
        for column in &mut columns {
            match &mut column.values {
                Values::Number(list) => list.resize(rows, None),
                Values::Text(list) => list.resize(rows, None),
            }
        }
        columns
    }
}

/// Says how long requests waited in the client, if it is more than its own overhead: from the
/// column `client_delay_s`.
pub(crate) fn note_client_delay(run: &mut Run) {
    /// A client that sends at once needs well under this.
    const OVERHEAD: f64 = 0.01;
    let Some(Values::Number(times)) = run.column("client_delay_s").map(|c| &c.values) else {
        return;
    };
    let known = || times.iter().flatten().copied();
    let longest = known().fold(0.0, f64::max);
    let late = known().filter(|&t| OVERHEAD < t).count();
    if 0 < late {
        let text = format!(
            "sent more than 10 ms after it was due: {late} of {}, at most {longest:.3} s; TTFT \
             and E2E count from sending and do not hold this wait (column client_delay_s)",
            things(known().count() as u64, "request")
        );
        run.note("client-delay", &["ttft", "e2e_latency", "goodput"], text);
    }
}

/// Says between what the gaps of a run are; `answers` are the number of gaps and of tokens of each
/// completed request.
pub(crate) fn note_gap_kind(
    run: &mut Run,
    per_token: bool,
    answers: impl Iterator<Item = (u64, u64)>,
) {
    if per_token {
        let text = "every answer has exactly one gap fewer than tokens, so the gaps are taken as \
                    gaps between tokens; a chunk with two tokens beside an empty one would go unseen";
        run.note("gaps-look-per-token", &["itl"], text.to_owned());
        return;
    }
    let (mut gaps, mut due, mut differ, mut completed) = (0_u64, 0_u64, 0_u64, 0_u64);
    for (g, t) in answers {
        gaps = gaps.saturating_add(g);
        due = due.saturating_add(t.saturating_sub(1));
        differ += u64::from(t.saturating_sub(1) != g);
        completed += 1;
    }
    if 0 < differ {
        let text = format!(
            "another number of gaps than tokens - 1 in {differ} of {} ({gaps} gaps, {due} due): \
             the gaps are between chunks of the stream, not between tokens",
            things(completed, "answer")
        );
        run.note("gaps-per-chunk", &["itl"], text);
    }
}
