//! Clients that go away before their answer is complete.

use std::fmt;
use std::str::FromStr;

use metrics_core::grammar;
use rand::RngExt;
use rand_pcg::Pcg64;

use crate::error::{Result, SimError};
use crate::time::Ticks;
use crate::workload::delay::Delay;
use crate::workload::generate::{Stream, stream};
use crate::workload::law::within;

/// Which clients go away, and how long after their request arrived; who has its last token by then
/// is not concerned.
///
/// As a text: `10%,exponential:mean=5s`, or `share=0.1,after=2s`.
///
/// # Examples
///
/// ```
/// use sched_sim::workload::Cancellations;
///
/// let law: Cancellations = "share=10%,after=uniform:1s,5s".parse()?;
/// assert_eq!(law.to_string(), "share=0.1,after=uniform:min=1s,max=5s");
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cancellations {
    /// The share of the clients who would, 0 to 1.
    pub share: f64,
    /// How long after the arrival.
    pub after: Delay,
}

impl Cancellations {
    /// Checks the values; `input` names them.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] or [`SimError::TimeOutOfRange`] with name, bound and value.
    pub fn check(&self, input: &str) -> Result<()> {
        let good = 0.0 <= self.share && self.share <= 1.0;
        within(input, "share", self.share, "from 0 to 1", good)?;
        self.after.check(&format!("{input}.after"))
    }
}

impl fmt::Display for Cancellations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "share={},after={}", self.share, self.after)
    }
}

impl FromStr for Cancellations {
    type Err = SimError;

    /// A share and a law of delays, in this order; the law may have commas of its own.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |expected: String| SimError::Grammar {
            what: "cancellations",
            text: text.to_owned(),
            expected,
        };
        let form = "a share of the clients and how long after their arrival they go away, such as \
                    `10%,exponential:mean=5s`";
        let (share, after) = text.split_once(',').ok_or_else(|| wrong(form.to_owned()))?;
        let value = |part: &str, name: &str| -> String {
            let part = part.trim();
            let named =
                part.strip_prefix(name).and_then(|rest| rest.trim_start().strip_prefix('='));
            named.unwrap_or(part).trim().to_owned()
        };
        let share = grammar::share(&value(share, "share"))
            .map_err(|_| wrong(format!("{form}; the share is from 0 to 1, or 0% to 100%")))?;
        Ok(Self { share, after: value(after, "after").parse()? })
    }
}

/// The cancellations of clients one after the other.
#[derive(Clone, Debug)]
pub(super) struct Leavers {
    law: Cancellations,
    who: Pcg64,
    when: Pcg64,
}

impl Leavers {
    pub(super) fn new(law: Cancellations, seed: u64) -> Self {
        Self { law, who: stream(seed, Stream::Leavers), when: stream(seed, Stream::Leaving) }
    }

    /// How long after its arrival the next client goes away, if it would.
    ///
    /// Both are drawn for everybody: another share leaves the delays as they were, and a larger one
    /// has the same clients go away and some more.
    pub(super) fn next(&mut self) -> Option<Ticks> {
        let goes = self.who.random::<f64>() < self.law.share;
        // No run is as long as the longest time, so that whoever would go later stays.
        let after = self.law.after.sample(&mut self.when).ok();
        after.filter(|_| goes)
    }
}
