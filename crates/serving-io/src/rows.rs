//! What the readers with one request a row share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use metrics_core::format::things;
use metrics_core::timeline::TimelineFields;
use metrics_core::{Outcome, RequestTimeline};

use crate::error::{IoError, Place, Result, shown};
use crate::run::{Column, Run, Values};

/// A request and the line where it stands.
pub(crate) type Row = (u64, RequestTimeline);

/// Refuses a second request of the same id.
///
/// Of each id it keeps 64 bits of one hash and 24 of another, not the text. Two of n different ids
/// are taken for one with a chance of n²/2⁸⁹: 2e-13 among ten million.
///
/// Ids are kept in parts by their hash. Many are looked up part by part, since a part fits the
/// cache and all of them do not.
#[derive(Default)]
pub(crate) struct Ids {
    parts: Vec<Part>,
    /// How many ids there are, those that wait included.
    count: usize,
}

/// The ids whose hash begins alike.
#[derive(Default)]
struct Part {
    seen: HashMap<u64, Seen, FixedState>,
    /// Ids that are not yet looked up, each with the end of its text.
    waiting: Vec<(u64, Seen, usize)>,
    texts: String,
}

/// Bits of a hash that choose the part.
const PART: u32 = 8;
/// Ids of a part that wait until they are looked up together.
const WAITING: usize = 512;
/// Below so many ids each is looked up at once, so that a fault of a short log is found in its row.
const FEW: usize = 1 << 20;

/// Where an id was seen first.
#[derive(Clone, Copy)]
struct Seen {
    /// The line in the upper 40 bits, the second hash below.
    packed: u64,
}

/// Bits of the second hash.
const CHECK: u32 = 24;
/// What makes the second hash a different one.
const OTHER: FixedState = FixedState::with_seed(0x676f_6f64_7075_7431);

impl Seen {
    fn new(line: u64, id: &str) -> Self {
        Self { packed: line << CHECK | OTHER.hash_one(id) >> (u64::BITS - CHECK) }
    }

    fn line(self) -> u64 {
        self.packed >> CHECK
    }

    fn is_same(self, other: Self) -> bool {
        (self.packed ^ other.packed) << (u64::BITS - CHECK) == 0
    }
}

impl Ids {
    /// Notes the id of a line.
    pub(crate) fn check(&mut self, file: &str, key: &str, line: u64, id: &str) -> Result<()> {
        let hash = FixedState::default().hash_one(id);
        self.part(hash).map_or(Ok(()), |p| p.look_up(file, key, hash, Seen::new(line, id), id))
    }

    /// Notes the id of a line; among many, a second one may be found only in a later row, or by
    /// [`Ids::finish`].
    pub(crate) fn check_soon(&mut self, file: &str, key: &str, line: u64, id: &str) -> Result<()> {
        if self.count < FEW {
            return self.check(file, key, line, id);
        }
        let hash = FixedState::default().hash_one(id);
        let Some(part) = self.part(hash) else { return Ok(()) };
        part.texts.push_str(id);
        part.waiting.push((hash, Seen::new(line, id), part.texts.len()));
        if part.waiting.len() < WAITING { Ok(()) } else { part.settle(file, key) }
    }

    /// Looks up all ids that wait.
    pub(crate) fn finish(&mut self, file: &str, key: &str) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| part.settle(file, key))
    }

    fn part(&mut self, hash: u64) -> Option<&mut Part> {
        if self.parts.is_empty() {
            self.parts.resize_with(1 << PART, Part::default);
        }
        self.count += 1;
        self.parts.get_mut(usize::try_from(hash >> (u64::BITS - PART)).ok()?)
    }
}

impl Part {
    /// Looks up the ids that wait, in their order.
    fn settle(&mut self, file: &str, key: &str) -> Result<()> {
        let (waiting, texts) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.texts));
        let mut start = 0;
        for &(hash, seen, end) in &waiting {
            self.look_up(file, key, hash, seen, texts.get(start..end).unwrap_or(""))?;
            start = end;
        }
        (self.waiting, self.texts) = (waiting, texts);
        self.waiting.clear();
        self.texts.clear();
        Ok(())
    }

    fn look_up(&mut self, file: &str, key: &str, hash: u64, seen: Seen, id: &str) -> Result<()> {
        let first = match self.seen.entry(hash) {
            Entry::Vacant(entry) => {
                entry.insert(seen);
                return Ok(());
            }
            Entry::Occupied(entry) => entry,
        };
        if !first.get().is_same(seen) {
            return Ok(());
        }
        Err(IoError::DuplicateId {
            at: Box::new(Place::line(file, seen.line()).key(key)),
            id: shown(id),
            first_line: first.get().line(),
        })
    }
}

/// Takes requests one at a time; an error of it stops the reading.
pub type Sink<'a> = dyn FnMut(&RequestTimeline) -> metrics_core::Result<()> + 'a;

/// Where the requests of a file go when they are not held.
pub struct Stream<'a> {
    /// What takes each request. It has no id: names are not kept.
    pub sink: &'a mut Sink<'a>,
    /// Whether a second request of the same id is refused; that takes some 30 bytes a request.
    pub compare_ids: bool,
    /// How many requests went there.
    pub requests: u64,
}

impl<'a> Stream<'a> {
    /// Into `sink`, ids compared.
    pub fn new(sink: &'a mut Sink<'a>) -> Self {
        Self { sink, compare_ids: true, requests: 0 }
    }

    /// Takes the request of a line.
    pub(crate) fn push(&mut self, file: &str, line: u64, request: &RequestTimeline) -> Result<()> {
        self.requests += 1;
        (self.sink)(request).map_err(|source| IoError::Request {
            at: Box::new(Place::line(file, line)),
            source,
            note: "",
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Among many ids a second one is found later, with both of its lines and its name.
    #[test]
    fn a_second_id_is_found_among_few_and_among_many() {
        let mut few = Ids::default();
        few.check_soon("log", "id", 2, "a").unwrap();
        let said = few.check_soon("log", "id", 3, "a").unwrap_err().to_string();
        assert!(said.contains("`a` is already in line 2"), "{said}");

        let mut many = Ids { count: FEW, ..Ids::default() };
        for line in 2..100_000 {
            many.check_soon("log", "id", line, &format!("r{line}")).unwrap();
        }
        many.check_soon("log", "id", 100_000, "r77").unwrap();
        let error = many.finish("log", "id").unwrap_err();
        let said = error.to_string();
        assert!(said.contains("`r77` is already in line 77") && said.contains("100000"), "{said}");
    }
}
