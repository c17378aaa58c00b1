//! A part of a trace: `0..1000` of its requests, `10m-30m` from time zero, or `18:20-18:30` of its
//! clock.

use std::fmt;
use std::str::FromStr;

use metrics_core::grammar;
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
    /// Whether it asks for requests behind the last of so many; an open end does not.
    #[must_use]
    pub fn is_past(&self, requests: usize) -> bool {
        matches!(self.part, Part::Requests(_, to) if requests < to && to < usize::MAX)
    }

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
        let wrong = |expected: String| IoError::Slice { slice: shown(text), expected };
        let part = if let Some((from, to)) = text.split_once("..") {
            let side = |side: &str, open: usize| {
                if side.is_empty() {
                    return Ok(open);
                }
                side.parse().map_err(|_| {
                    let side = shown(side);
                    wrong(format!("places from 0 to 2^53 on both sides of `..`, got `{side}`"))
                })
            };
            Some(Part::Requests(side(from, 0)?, side(to, usize::MAX)?))
        } else {
            match text.split_once('-') {
                Some((from, to)) => match (clock(from), clock(to)) {
                    (Some(a), Some(b)) => Some(Part::Clock(a, b)),
                    _ => times(from, to).map_err(wrong)?,
                },
                None => None,
            }
        };
        let ordered = |part: &Part| match part {
            Part::Requests(a, b) => a < b,
            Part::Times(a, b) => a < b,
            Part::Clock(..) => true,
        };
        let part = part.filter(ordered).ok_or_else(|| {
            wrong(
                "requests `0..1000`, times from the start `10m-30m` or times of day \
                 `18:20-18:30`, the end after the start"
                    .to_owned(),
            )
        })?;
        Ok(Self { text: text.to_owned(), part })
    }
}

/// Two times from the start; none if they are no times, and what is expected of one that is out of
/// range.
fn times(from: &str, to: &str) -> std::result::Result<Option<Part>, String> {
    let mut both = [Ticks::ZERO; 2];
    for (side, text) in both.iter_mut().zip([from, to]) {
        // Minutes and hours too, which times of a simulation do not have.
        let longer = |e| match grammar::duration(text) {
            Ok(time) if text.ends_with(['m', 'h', 'd']) => Ticks::from_seconds(time.get()),
            _ => Err(e),
        };
        match text.parse().or_else(longer) {
            Ok(time) => *side = time,
            Err(e) if text.starts_with(|c: char| c.is_ascii_digit()) && text.ends_with('s') => {
                return Err(format!("two times: {e}"));
            }
            Err(_) => return Ok(None),
        }
    }
    let [from, to] = both;
    Ok(Some(Part::Times(from, to)))
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
