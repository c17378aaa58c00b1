//! What an overload does to a run: a queue that grows as long as requests arrive, or one that is
//! bounded.

use metrics_core::format;
use sched_sim::{LoadLevel, OfferedLoad, RunStatistics};

/// What becomes of a queue when more arrives than can be served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Overload {
    /// It grows; with the load relative to what can be completed.
    Growing(f64),
    /// Whoever is refused or gives up keeps it short.
    Bounded {
        /// Requests that were refused for want of room or of a permit.
        refused: u64,
        /// Requests whose client stopped waiting.
        timed_out: u64,
        /// Requests whose client went away.
        cancelled: u64,
        /// Requests that arrived.
        of: u64,
    },
    /// No more wait than there are users, who wait for their answers.
    Users(u64),
}

impl Overload {
    /// Of a run at this load; none if it is not overloaded, or if too few requests came to fill the
    /// batch even all at once.
    pub fn of(load: &OfferedLoad, s: &RunStatistics, users: Option<u64>) -> Option<Self> {
        let relative = load.relative()?;
        if load.level() != Some(LoadLevel::Overloaded) {
            return None;
        }
        if let Some(users) = users {
            return Some(Self::Users(users));
        }
        let relative = load.rho().map_or(relative, |rho| rho.max(relative));
        // A limit that refused somebody was reached, and so did not let the queue grow further.
        let by_limits = s.refused.queue_full + s.refused.queue_tokens + s.refused.admission_rule;
        let refused = by_limits + s.refused.token_bucket;
        // A bucket bounds what is let in, which may still be too much, and so may who stays.
        let not_served = refused + s.cancelled;
        let let_in = relative * (1.0 - not_served as f64 / s.injected.max(1) as f64);
        let bounded = 0 < by_limits + s.timed_out || (0 < not_served && let_in < 1.0);
        Some(if bounded {
            let (timed_out, cancelled) = (s.timed_out, s.cancelled);
            Self::Bounded { refused, timed_out, cancelled, of: s.injected }
        } else {
            Self::Growing(relative)
        })
    }

    /// Whether latencies depend on the length of the run.
    pub const fn grows(&self) -> bool {
        matches!(self, Self::Growing(_))
    }

    /// What it means for the figures.
    pub fn says(&self) -> String {
        match *self {
            Self::Growing(_) => "OVERLOADED: not a steady state, the queue grows as long as requests arrive and every latency depends on the length of the run".to_owned(),
            Self::Bounded { refused, timed_out, cancelled, of } => {
                let all = [(refused, "refused"), (timed_out, "timed out"), (cancelled, "cancelled")];
                let parts: Vec<String> = all
                    .iter()
                    .filter(|(n, _)| 0 < *n)
                    .map(|(n, what)| format!("{n} {what}"))
                    .collect();
                format!(
                    "OVERLOADED: more arrives than can be served; {} of {} keep the queue bounded, and latencies are those of the others",
                    parts.join(" and "),
                    format::things(of, "request")
                )
            }
            Self::Users(users) => format!(
                "saturated: the {users} users keep a queue, which is never longer than they are many; the rate is what the server can do"
            ),
        }
    }
}
