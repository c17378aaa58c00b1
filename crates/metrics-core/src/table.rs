//! Many requests as columns: what a report needs of them, in 41 bytes a request or so.
//!
//! A [`RequestTimeline`] has a name and room for every field that a file may have; ten million of
//! them take gigabytes. A [`RequestTable`] keeps one column for each quantity that some request
//! has, and no names. Reports are computed from it, whether it was filled from timelines in memory
//! or row by row from a file.

use crate::error::Result;
use crate::latency::RequestMetrics;
use crate::timeline::{GapKind, Gaps, Outcome, RequestTimeline};
use crate::units::{Seconds, SecondsPerToken};

/// What the formulas over one request read, whether it stands alone or in a table.
pub trait Observed {
    /// How it ended.
    fn outcome(&self) -> Outcome;
    /// Time to first token, if a token came.
    fn ttft(&self) -> Option<Seconds>;
    /// End-to-end latency: arrival to last token, if known.
    fn e2e_latency(&self) -> Option<Seconds>;
    /// Tokens of the answer, if known.
    fn output_tokens(&self) -> Option<u64>;

    /// TTFT, TPOT and E2E together, if all are known.
    fn metrics(&self) -> Option<RequestMetrics> {
        let output_tokens = self.output_tokens().filter(|&n| 1 <= n)?;
        RequestMetrics::from_latencies(self.ttft()?, self.e2e_latency()?, output_tokens).ok()
    }

    /// Time per output token, if both ends and the count are known; 0 for a one-token answer.
    fn tpot(&self) -> Option<SecondsPerToken> {
        self.metrics().map(|m| m.tpot)
    }
}

impl Observed for RequestTimeline {
    fn outcome(&self) -> Outcome {
        Self::outcome(self)
    }
    fn ttft(&self) -> Option<Seconds> {
        Self::ttft(self)
    }
    fn e2e_latency(&self) -> Option<Seconds> {
        Self::e2e_latency(self)
    }
    fn output_tokens(&self) -> Option<u64> {
        Self::output_tokens(self)
    }
}

impl<T: Observed> Observed for &T {
    fn outcome(&self) -> Outcome {
        T::outcome(self)
    }
    fn ttft(&self) -> Option<Seconds> {
        T::ttft(self)
    }
    fn e2e_latency(&self) -> Option<Seconds> {
        T::e2e_latency(self)
    }
    fn output_tokens(&self) -> Option<u64> {
        T::output_tokens(self)
    }
}

/// One value a request; it takes no room until the first one is known.
#[derive(Clone, Debug, Default, PartialEq)]
struct Times(Vec<f64>);

impl Times {
    /// Sets the value of a request; requests come in order.
    fn set(&mut self, index: usize, value: Option<f64>) {
        if let Some(value) = value {
            // NaN stands for unknown: no checked time is one.
            self.0.resize(index, f64::NAN);
            self.0.push(value);
        }
    }

    fn get(&self, index: usize) -> Option<f64> {
        self.0.get(index).copied().filter(|x| !x.is_nan())
    }
}

/// The same for token counts, none of which reaches the value that stands for unknown.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts(Vec<u64>);

impl Counts {
    fn set(&mut self, index: usize, value: Option<u64>) {
        if let Some(value) = value {
            self.0.resize(index, u64::MAX);
            self.0.push(value);
        }
    }

    fn get(&self, index: usize) -> Option<u64> {
        self.0.get(index).copied().filter(|&n| n != u64::MAX)
    }
}

/// The gaps of all requests in one row, and where those of each end.
#[derive(Clone, Debug, Default, PartialEq)]
struct AllGaps {
    values: Vec<f64>,
    /// For each request the end of its gaps in `values`, and what they separate.
    ends: Vec<(usize, GapKind)>,
}

impl AllGaps {
    fn set(&mut self, index: usize, gaps: Option<&Gaps>) {
        let Some(gaps) = gaps.filter(|g| !g.values().is_empty()) else { return };
        let kind = match gaps {
            Gaps::Token(_) => GapKind::Token,
            Gaps::Chunk(_) => GapKind::Chunk,
        };
        self.ends.resize(index, (self.values.len(), kind));
        self.values.extend(gaps.values().iter().map(|g| g.get()));
        self.ends.push((self.values.len(), kind));
    }

    fn get(&self, index: usize) -> Option<(GapKind, &[f64])> {
        let &(end, kind) = self.ends.get(index)?;
        let before = index.checked_sub(1).and_then(|i| self.ends.get(i));
        let start = before.map_or(0, |&(end, _)| end);
        self.values.get(start..end).filter(|v| !v.is_empty()).map(|v| (kind, v))
    }
}

/// Requests as columns, in the order in which they were added.
///
/// # Examples
///
/// ```
/// use metrics_core::RequestTimeline;
/// use metrics_core::table::{Observed, RequestTable};
///
/// let mut table = RequestTable::default();
/// table.push(&RequestTimeline::completed("a", 0.0, 0.4, 1.0, 4)?);
/// let request = table.requests().next().expect("one was added");
/// assert_eq!(request.ttft().map(|t| t.get()), Some(0.4));
/// assert_eq!(table.len(), 1);
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestTable {
    outcomes: Vec<Outcome>,
    arrival: Times,
    sent_after: Times,
    scheduled_after: Times,
    ttft: Times,
    e2e: Times,
    input_tokens: Counts,
    output_tokens: Counts,
    gaps: AllGaps,
}

impl RequestTable {
    /// The table of these requests, in their order.
    #[must_use]
    pub fn of(timelines: &[RequestTimeline]) -> Self {
        let mut table = Self::default();
        table.outcomes.reserve_exact(timelines.len());
        for t in timelines {
            table.push(t);
        }
        table
    }

    /// Adds a request.
    pub fn push(&mut self, t: &RequestTimeline) {
        let i = self.outcomes.len();
        self.outcomes.push(t.outcome());
        self.arrival.set(i, t.arrival_s());
        self.sent_after.set(i, t.send_delay().map(Seconds::get));
        self.scheduled_after.set(i, t.queue_time().map(Seconds::get));
        self.ttft.set(i, t.ttft().map(Seconds::get));
        self.e2e.set(i, t.e2e_latency().map(Seconds::get));
        self.input_tokens.set(i, t.input_tokens());
        self.output_tokens.set(i, t.output_tokens());
        self.gaps.set(i, t.gaps());
    }

    /// How many requests there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// The requests in their order.
    pub fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        (0..self.len()).map(|index| Request { table: self, index })
    }

    /// Those requests that are wanted, in order of arrival where all of them have one, else in the
    /// order of the table.
    #[must_use]
    pub fn select(&self, wanted: impl Fn(Outcome) -> bool) -> Selection<'_> {
        let wanted = Outcome::ALL.map(wanted);
        let len = self.outcomes.iter().filter(|&&o| wanted[o as usize]).count();
        let mut selection = Selection { table: self, wanted, len, order: None };
        let arrivals = || selection.iter().map(|r| r.arrival_s());
        let known = arrivals().all(|a| a.is_some());
        if known && !arrivals().flatten().is_sorted_by(|x, y| x.total_cmp(y).is_le()) {
            let key = |i: &usize| self.arrival.get(*i).unwrap_or(0.0);
            let mut order: Vec<usize> = selection.iter().map(|r| r.index()).collect();
            order.sort_by(|a, b| key(a).total_cmp(&key(b)));
            selection.order = Some(order);
        }
        selection
    }
}

/// Some requests of a table, in an order of their own.
#[derive(Clone, Debug)]
pub struct Selection<'a> {
    table: &'a RequestTable,
    /// Whether requests that ended so are in it, in the order of [`Outcome::ALL`].
    wanted: [bool; Outcome::ALL.len()],
    len: usize,
    /// `None` for the order of the table, so that a log in order needs no room.
    order: Option<Vec<usize>>,
}

impl<'a> Selection<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The requests in order.
    pub fn iter(&self) -> impl Iterator<Item = Request<'a>> {
        let (table, wanted) = (self.table, self.wanted);
        let all = if self.order.is_none() { 0..table.len() } else { 0..0 };
        let ordered = self.order.as_deref().unwrap_or(&[]).iter().copied();
        let in_it = move |r: &Request<'_>| wanted[r.outcome() as usize];
        ordered.chain(all).map(move |index| Request { table, index }).filter(in_it)
    }
}

/// One request of a table.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    table: &'a RequestTable,
    index: usize,
}

impl<'a> Request<'a> {
    /// Its place in the table, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// When it was due, in seconds from the run's origin, if known.
    #[must_use]
    pub fn arrival_s(&self) -> Option<f64> {
        self.table.arrival.get(self.index)
    }

    /// How long after it was due the client sent it, if known.
    #[must_use]
    pub fn send_delay(&self) -> Option<Seconds> {
        seconds(self.table.sent_after.get(self.index))
    }

    /// Time from arrival until the server first took it into a batch, if known.
    #[must_use]
    pub fn queue_time(&self) -> Option<Seconds> {
        seconds(self.table.scheduled_after.get(self.index))
    }

    /// Tokens of the prompt, if known.
    #[must_use]
    pub fn input_tokens(&self) -> Option<u64> {
        self.table.input_tokens.get(self.index)
    }

    /// The gaps between its outputs in seconds, and what they separate, if there are any.
    #[must_use]
    pub fn gaps(&self) -> Option<(GapKind, &'a [f64])> {
        self.table.gaps.get(self.index)
    }
}

/// A time that was checked when its timeline was made.
fn seconds(value: Option<f64>) -> Option<Seconds> {
    value.map(Seconds::new).and_then(Result::ok)
}

impl Observed for Request<'_> {
    fn outcome(&self) -> Outcome {
        self.table.outcomes.get(self.index).copied().unwrap_or_default()
    }
    fn ttft(&self) -> Option<Seconds> {
        seconds(self.table.ttft.get(self.index))
    }
    fn e2e_latency(&self) -> Option<Seconds> {
        seconds(self.table.e2e.get(self.index))
    }
    fn output_tokens(&self) -> Option<u64> {
        self.table.output_tokens.get(self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Instant, TimelineFields};

    /// What a request lacks takes no room and is unknown, before and after one that has it.
    #[test]
    fn every_field_comes_back() {
        let full = RequestTimeline::new(TimelineFields {
            id: "full".to_owned(),
            arrival: Some(Instant::Seconds(2.0)),
            sent: Some(Instant::Seconds(2.25)),
            scheduled: Some(Instant::Seconds(2.5)),
            ttft: Some(1.0),
            e2e: Some(3.0),
            gaps: Some((GapKind::Token, vec![0.5, 1.5])),
            input_tokens: Some(7),
            output_tokens: Some(3),
            ..TimelineFields::default()
        })
        .unwrap();
        let bare = RequestTimeline::new(TimelineFields {
            id: "bare".to_owned(),
            outcome: Outcome::Failed,
            ..TimelineFields::default()
        })
        .unwrap();
        let table = RequestTable::of(&[bare.clone(), full.clone(), bare, full]);
        for (i, r) in table.requests().enumerate() {
            if i % 2 == 0 {
                assert_eq!((r.arrival_s(), r.ttft(), r.gaps()), (None, None, None));
                assert_eq!((r.outcome(), r.input_tokens()), (Outcome::Failed, None));
                continue;
            }
            let s = |x| Some(Seconds::new(x).unwrap());
            assert_eq!((r.arrival_s(), r.ttft(), r.e2e_latency()), (Some(2.0), s(1.0), s(3.0)));
            assert_eq!((r.send_delay(), r.queue_time()), (s(0.25), s(0.5)));
            assert_eq!((r.input_tokens(), r.output_tokens()), (Some(7), Some(3)));
            assert_eq!(r.gaps(), Some((GapKind::Token, &[0.5, 1.5][..])));
            assert_eq!(r.tpot().map(SecondsPerToken::get), Some(1.0)); // 2 s over 2 gaps
        }
    }

    #[test]
    fn a_selection_is_in_order_of_arrival_if_all_have_one() {
        let at = |arrival: f64| {
            RequestTimeline::completed("r", arrival, arrival + 1.0, arrival + 2.0, 2).unwrap()
        };
        let unknown =
            RequestTimeline::new(TimelineFields { ttft: Some(1.0), ..TimelineFields::default() })
                .unwrap();
        let order = |t: &[RequestTimeline]| {
            let table = RequestTable::of(t);
            table.select(|_| true).iter().map(|r| r.index()).collect::<Vec<_>>()
        };
        assert_eq!(order(&[at(3.0), at(1.0), at(2.0), at(1.0)]), [1, 3, 2, 0]);
        assert_eq!(order(&[at(3.0), unknown, at(2.0)]), [0, 1, 2]);
        let table = RequestTable::of(&[at(3.0), at(1.0)]);
        assert!(table.select(|o| o == Outcome::Failed).is_empty());
    }
}
