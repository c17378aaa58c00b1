//! What the readers with one request a row share.

use std::collections::HashMap;

use metrics_core::timeline::TimelineFields;
use metrics_core::{Outcome, RequestTimeline};

use crate::error::{IoError, Place, Result, shown};

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
