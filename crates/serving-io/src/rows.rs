//! What the readers with one request a row share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use metrics_core::timeline::TimelineFields;
use metrics_core::{Outcome, RequestTimeline};

use crate::error::{IoError, Place, Result, shown};

/// A request and the line where it stands.
pub(crate) type Row = (u64, RequestTimeline);

/// Refuses a second request of the same id.
///
/// Of each id it keeps 64 bits of one hash and 24 of another, not the text. Two of n different ids
/// are taken for one with a chance of n²/2⁸⁹: 2e-13 among ten million.
#[derive(Default)]
pub(crate) struct Ids(HashMap<u64, Seen, FixedState>);

/// Where an id was seen first.
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

    fn line(&self) -> u64 {
        self.packed >> CHECK
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.packed ^ other.packed) << (u64::BITS - CHECK) == 0
    }
}

impl Ids {
    /// Notes the id of a line.
    pub(crate) fn check(&mut self, file: &str, key: &str, line: u64, id: &str) -> Result<()> {
        let seen = Seen::new(line, id);
        let first = match self.0.entry(FixedState::default().hash_one(id)) {
            Entry::Vacant(entry) => {
                entry.insert(seen);
                return Ok(());
            }
            Entry::Occupied(entry) => entry,
        };
        if !first.get().is_same(&seen) {
            return Ok(());
        }
        Err(IoError::DuplicateId {
            at: Box::new(Place::line(file, line).key(key)),
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
