//! A part of a trace: `0..1000` of its requests, `10m-30m` from time zero, or `18:20-18:30` of its
//! clock.

use std::fmt;
use std::str::FromStr;

use sched_sim::{Ticks, Workload};

use crate::error::{IoError, Result, shown};
use crate::trace::Epoch;

/// A part of a trace, its end not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    text: String,
    part: Part,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Positions of requests, from 0.
    Requests(usize, usize),
    /// Times from time zero.
    Times(Ticks, Ticks),
    /// Seconds of the day on the file's clock.
    Clock(u64, u64),
}

/// Seconds of a day.
const DAY: u64 = 86_400;

impl Slice {
    /// The requests of this part, arrivals as they are; `epoch` is the calendar time of time zero.
    ///
    /// Of times of day, the end is the first such instant after time zero, and the part begins at
    /// time zero if it would begin before.
    ///
    /// # Errors
    ///
    /// [`IoError::Slice`] if the part has no requests, or if a time of day is asked of a trace
    /// without a calendar.
    pub fn of(&self, workload: &Workload, epoch: Option<Epoch>) -> Result<Workload> {
        let wrong = |expected: String| IoError::Slice { slice: shown(&self.text), expected };
        let range = match self.part {
            Part::Requests(from, to) => from..to.min(workload.len()),
            Part::Times(from, to) => between(workload, from, to),
            Part::Clock(from, to) => {
                let epoch = epoch.ok_or_else(|| {
                    let what = "times from the start such as `10m-30m`: the trace has no calendar";
                    wrong(what.to_owned())
                })?;
                let second = Ticks::SECOND.attoseconds();
                let day = u128::from(DAY) * second;
                let zero = epoch.unix_attoseconds() % day;
                // The same time twice is a whole day.
                let length = if from == to { DAY } else { (to + DAY - from) % DAY };
                let end = (u128::from(to) * second + day - zero) % day;
                let end = if end == 0 { day } else { end };
                let at = Ticks::from_attoseconds;
                between(workload, at(end.saturating_sub(u128::from(length) * second)), at(end))
            }
        };
        if range.is_empty() {
            let span = workload.requests().last().map_or(Ticks::ZERO, |r| r.arrival);
            return Err(wrong(format!(
                "a part with requests: the trace has {} of them, the last one at {span}",
                workload.len()
            )));
        }
        Ok(workload.slice(range))
    }
}

/// The positions of what arrives from `from` on and before `to`.
fn between(workload: &Workload, from: Ticks, to: Ticks) -> std::ops::Range<usize> {
    let before = |t: Ticks| workload.requests().partition_point(|r| r.arrival < t);
    before(from)..before(to)
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Slice {
    type Err = IoError;

    /// `A..B` of requests, either side of which may be missing, or `A-B` of two times.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let part = if let Some((from, to)) = text.split_once("..") {
            let side = |side: &str, open: usize| {
                if side.is_empty() { Some(open) } else { side.parse().ok() }
            };
            side(from, 0).zip(side(to, usize::MAX)).map(|(a, b)| Part::Requests(a, b))
        } else {
            text.split_once('-').and_then(|(from, to)| {
                if let (Some(a), Some(b)) = (clock(from), clock(to)) {
                    return Some(Part::Clock(a, b));
                }
                Some(Part::Times(from.parse().ok()?, to.parse().ok()?))
            })
        };
        let ordered = |part: &Part| match part {
            Part::Requests(a, b) => a < b,
            Part::Times(a, b) => a < b,
            Part::Clock(..) => true,
        };
        let part = part.filter(ordered).ok_or_else(|| IoError::Slice {
            slice: shown(text),
            expected: "requests `0..1000`, times from the start `10m-30m` or times of day \
                       `18:20-18:30`, the end after the start"
                .to_owned(),
        })?;
        Ok(Self { text: text.to_owned(), part })
    }
}

/// A time of day in seconds: `18:20` or `18:20:30`.
fn clock(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.trim().split(':').collect();
    let of = |at: usize, max: u64| {
        let part = parts.get(at)?;
        let digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u64>().ok().filter(|&n| digits && n <= max)
    };
    let seconds = if parts.len() == 3 { of(2, 59)? } else { 0 };
    (2..=3).contains(&parts.len()).then_some(())?;
    Some(of(0, 23)? * 3600 + of(1, 59)? * 60 + seconds)
}
