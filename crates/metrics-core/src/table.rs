//! Many requests as columns: what a report needs of them, in 41 bytes a request or so.
//!
//! A [`RequestTimeline`] has a name and room for every field that a file may have; ten million of
//! them take gigabytes. A [`RequestTable`] keeps one column for each quantity that some request
//! has, and no names. Reports are computed from it, whether it was filled from timelines in memory
//! or row by row from a file.

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
    #[inline]
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
    /// Sets the value of a request; requests come in order, and there is to be room for so many.
    fn set(&mut self, index: usize, value: Option<f64>, room: usize) {
        if let Some(value) = value {
            // NaN stands for unknown: no checked time is one.
            push(&mut self.0, index, value, f64::NAN, room);
        }
    }

    #[inline]
    fn get(&self, index: usize) -> Option<f64> {
        self.0.get(index).copied().filter(|x| !x.is_nan())
    }
}

/// Adds a value at an index, after as many unknown ones as are missing before it.
fn push<T: Copy>(column: &mut Vec<T>, index: usize, value: T, unknown: T, room: usize) {
    if column.is_empty() {
        column.reserve_exact(room.max(index + 1));
    }
    if column.len() < index {
        column.resize(index, unknown);
    }
    column.push(value);
}

/// The same for token counts, none of which reaches the value that stands for unknown.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts(Vec<u64>);

impl Counts {
    fn set(&mut self, index: usize, value: Option<u64>, room: usize) {
        if let Some(value) = value {
            push(&mut self.0, index, value, u64::MAX, room);
        }
    }

    #[inline]
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
        let mut table = Self::with_capacity(timelines.len());
        for t in timelines {
            table.push(t);
        }
        table
    }

    /// An empty table with room for so many requests.
    #[must_use]
    pub fn with_capacity(requests: usize) -> Self {
        Self { outcomes: Vec::with_capacity(requests), ..Self::default() }
    }

    /// Adds a request.
    pub fn push(&mut self, t: &RequestTimeline) {
        let i = self.outcomes.len();
        self.outcomes.push(t.outcome());
        let room = self.outcomes.capacity();
        self.arrival.set(i, t.arrival_s(), room);
        self.sent_after.set(i, t.send_delay().map(Seconds::get), room);
        self.scheduled_after.set(i, t.queue_time().map(Seconds::get), room);
        self.ttft.set(i, t.ttft().map(Seconds::get), room);
        self.e2e.set(i, t.e2e_latency().map(Seconds::get), room);
        self.input_tokens.set(i, t.input_tokens(), room);
        self.output_tokens.set(i, t.output_tokens(), room);
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

    /// How many requests ended how, in the order of [`Outcome::ALL`].
    pub(crate) fn ended(&self) -> [u64; Outcome::ALL.len()] {
        let mut ended = [0; Outcome::ALL.len()];
        for &outcome in &self.outcomes {
            ended[outcome as usize] += 1;
        }
        ended
    }

    /// Those requests that are wanted, in order of arrival where all of them have one, else in the
    /// order of the table.
    #[must_use]
    pub fn select(&self, wanted: impl Fn(Outcome) -> bool) -> Selection<'_> {
        let wanted = Outcome::ALL.map(wanted);
        let len = self.outcomes.iter().filter(|&&o| wanted[o as usize]).count();
        let mut selection = Selection { table: self, wanted, len, order: None };
        let (mut known, mut in_order, mut before) = (true, true, f64::NEG_INFINITY);
        for r in selection.iter() {
            let Some(arrival) = r.arrival_s() else {
                known = false;
                break;
            };
            in_order &= before.total_cmp(&arrival).is_le();
            before = arrival;
        }
        if known && !in_order {
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
        let (table, order) = (self.table, self.order.as_deref());
        let places = 0..order.map_or(table.len(), <[usize]>::len);
        let all = self.len == table.len();
        Members { table, order, places, all, wanted: self.wanted }
    }

    /// What they have of something, in order.
    pub(crate) fn known<T>(&self, of: impl FnMut(Request<'a>) -> Option<T>) -> Vec<T> {
        let mut known = Vec::with_capacity(self.len);
        known.extend(self.iter().filter_map(of));
        known
    }

    /// The same, if all of them have it.
    pub(crate) fn all_known<T>(&self, of: impl FnMut(Request<'a>) -> Option<T>) -> Option<Vec<T>> {
        Some(self.known(of)).filter(|known| known.len() == self.len)
    }
}

/// The requests of a selection, one by one.
struct Members<'a, 's> {
    table: &'a RequestTable,
    order: Option<&'s [usize]>,
    /// What is left of the order, or of the table.
    places: std::ops::Range<usize>,
    /// Whether the whole table is wanted.
    all: bool,
    wanted: [bool; Outcome::ALL.len()],
}

impl<'a> Iterator for Members<'a, '_> {
    type Item = Request<'a>;

    #[inline]
    fn next(&mut self) -> Option<Request<'a>> {
        for place in &mut self.places {
            let index = match self.order {
                Some(order) => *order.get(place)?,
                None => place,
            };
            let request = Request { table: self.table, index };
            if self.all || self.wanted[request.outcome() as usize] {
                return Some(request);
            }
        }
        None
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
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// When it was due, in seconds from the run's origin, if known.
    #[must_use]
    #[inline]
    pub fn arrival_s(&self) -> Option<f64> {
        self.table.arrival.get(self.index)
    }

    /// How long after it was due the client sent it, if known.
    #[must_use]
    #[inline]
    pub fn send_delay(&self) -> Option<Seconds> {
        self.table.sent_after.get(self.index).map(Seconds::stored)
    }

    /// Time from arrival until the server first took it into a batch, if known.
    #[must_use]
    #[inline]
    pub fn queue_time(&self) -> Option<Seconds> {
        self.table.scheduled_after.get(self.index).map(Seconds::stored)
    }

    /// Tokens of the prompt, if known.
    #[must_use]
    #[inline]
    pub fn input_tokens(&self) -> Option<u64> {
        self.table.input_tokens.get(self.index)
    }

    /// The gaps between its outputs in seconds, and what they separate, if there are any.
    #[must_use]
    #[inline]
    pub fn gaps(&self) -> Option<(GapKind, &'a [f64])> {
        self.table.gaps.get(self.index)
    }
}

impl Observed for Request<'_> {
    #[inline]
    fn outcome(&self) -> Outcome {
        self.table.outcomes.get(self.index).copied().unwrap_or_default()
    }
    #[inline]
    fn ttft(&self) -> Option<Seconds> {
        self.table.ttft.get(self.index).map(Seconds::stored)
    }
    #[inline]
    fn e2e_latency(&self) -> Option<Seconds> {
        self.table.e2e.get(self.index).map(Seconds::stored)
    }
    #[inline]
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
