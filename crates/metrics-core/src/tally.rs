//! A run in bounded memory: counts that are exact and sketches that are nearly so, both of which
//! add up over shards.
//!
//! A [`Tally`] takes requests in any order and keeps none. Merging is associative and commutative:
//! however a log is cut and its parts are merged, the tally is the same, bit for bit. What needs
//! the requests themselves it cannot give: the peak in flight, and confidence intervals of latencies,
//! which rest on the order of arrival.

use serde::{Deserialize, Serialize};

use crate::error::{Error, LARGEST, Result, within};
use crate::report::{Distribution, Figure, Figures, PERCENTILES, Settings};
use crate::sketch::{ExactSum, Scale, Sketch};
use crate::slo::{Judgement, Latency, Slo, SloSet};
use crate::table::Observed;
use crate::timeline::{Gaps, Outcome, RequestTimeline};
use crate::units::{Seconds, Unit};

/// How many requests meet what, of those that finished. They add up over shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SloCounts {
    /// Completed requests.
    pub completed: u64,
    /// Requests that failed, were rejected or timed out.
    pub misses: u64,
    /// Completed requests that meet every limit.
    pub good: u64,
    /// How many of them have one token.
    pub good_one_token: u64,
    /// Completed requests that cannot be judged.
    pub unknown: u64,
    /// Output tokens of the good requests whose count is known.
    pub good_tokens: u64,
    /// How many good requests that are.
    pub good_tokens_known: u64,
    /// For each limit, how many completed requests meet it and how many have the latency.
    pub limits: Vec<(u64, u64)>,
}

impl SloCounts {
    /// For these objectives.
    #[must_use]
    pub fn new(slo: &SloSet) -> Self {
        Self { limits: vec![(0, 0); slo.limits().count()], ..Self::default() }
    }

    /// Counts a request; one that neither completed nor missed is outside.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the tokens pass what `u64` holds.
    pub fn push(&mut self, slo: &SloSet, t: &impl Observed) -> Result<()> {
        if t.outcome().is_miss() {
            self.misses += 1;
        }
        if t.outcome() != Outcome::Completed {
            return Ok(());
        }
        self.completed += 1;
        match slo.judge(t) {
            Judgement::Good => {
                self.good += 1;
                self.good_one_token += u64::from(t.output_tokens() == Some(1));
                if let Some(n) = t.output_tokens() {
                    self.good_tokens_known += 1;
                    self.good_tokens = added(self.good_tokens, n)?;
                }
            }
            Judgement::Unknown => self.unknown += 1,
            Judgement::Miss | Judgement::Outside => {}
        }
        for ((met, known), limit) in self.limits.iter_mut().zip(slo.limits()) {
            if let Some(value) = limit.latency.of(t) {
                *known += 1;
                *met += u64::from(limit.is_met_by(value));
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: &Self) -> Result<()> {
        for (a, b) in [
            (&mut self.completed, other.completed),
            (&mut self.misses, other.misses),
            (&mut self.good, other.good),
            (&mut self.good_one_token, other.good_one_token),
            (&mut self.unknown, other.unknown),
            (&mut self.good_tokens, other.good_tokens),
            (&mut self.good_tokens_known, other.good_tokens_known),
        ] {
            *a = added(*a, b)?;
        }
        for (a, b) in self.limits.iter_mut().zip(&other.limits) {
            *a = (added(a.0, b.0)?, added(a.1, b.1)?);
        }
        Ok(())
    }
}

/// The sum of two counts.
pub(crate) fn added(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b).ok_or(Error::TooLarge {
        input: "the sum of the token counts",
        max: u64::MAX as f64,
        value: a as f64 + b as f64,
    })
}

/// Token counts of completed requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tokens {
    /// Their sum, where known.
    pub(crate) sum: u64,
    /// Their lengths.
    pub(crate) lengths: Sketch,
}

impl Tokens {
    fn new() -> Result<Self> {
        Ok(Self { sum: 0, lengths: Sketch::new(Scale::One)? })
    }

    fn push(&mut self, n: Option<u64>) -> Result<()> {
        let Some(n) = n else { return Ok(()) };
        self.sum = added(self.sum, n)?;
        self.lengths.record(n as f64)
    }

    /// Whether the sum is that of the lengths.
    fn fit(&self) -> bool {
        let (exact, sum) = (self.lengths.sum(), self.sum as f64);
        // Both round the same whole numbers, beyond 2^53 in another order.
        self.lengths.scale() == Scale::One && (exact - sum).abs() <= 1e-12 * exact.max(sum)
    }

    fn merge(&mut self, other: &Self) -> Result<()> {
        self.sum = added(self.sum, other.sum)?;
        self.lengths.merge(&other.lengths)
    }
}

/// The rows of the latency layer, in its order.
const ROWS: [&str; 7] =
    ["ttft", "tpot", "itl", "inter_chunk_gap", "e2e", "queue_time", "send_delay"];

/// Requests counted and sketched, in bounded memory.
///
/// # Examples
///
/// ```
/// use metrics_core::RequestTimeline;
/// use metrics_core::slo::SloSet;
/// use metrics_core::tally::Tally;
///
/// let slo: SloSet = "ttft<500ms".parse()?;
/// let mut a = Tally::new(&slo)?;
/// let mut b = a.clone();
/// a.push(&RequestTimeline::completed("a", 0.0, 0.4, 1.0, 4)?)?;
/// b.push(&RequestTimeline::completed("b", 0.5, 1.5, 2.0, 4)?)?;
/// a.merge(&b)?;
/// assert_eq!((a.requests(), a.objectives().good), (2, 1));
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// The objectives; a file has them beside the tally.
    #[serde(skip)]
    slo: SloSet,
    /// Requests by outcome, in the order of [`Outcome::ALL`].
    outcomes: [u64; Outcome::ALL.len()],
    objectives: SloCounts,
    /// Completed requests with one token, whose TPOT is left out.
    one_token: u64,
    /// One sketch a row of the latency layer, over completed requests.
    latency: Vec<Sketch>,
    pub(crate) output: Tokens,
    pub(crate) input: Tokens,
    /// First arrival of any request, and last end of one with an arrival.
    first_arrival_s: Option<f64>,
    last_end_s: Option<f64>,
    /// The stays of completed requests with an arrival and an end, each between these two instants
    /// as `f64` has them, and how many those are.
    pub(crate) stays: ExactSum,
    pub(crate) stays_n: u64,
}

impl Tally {
    /// Without requests, for these objectives.
    ///
    /// # Errors
    ///
    /// None in practice.
    pub fn new(slo: &SloSet) -> Result<Self> {
        let latency: Result<Vec<Sketch>> =
            ROWS.iter().map(|_| Sketch::new(Scale::Picosecond)).collect();
        Ok(Self {
            slo: slo.clone(),
            outcomes: [0; Outcome::ALL.len()],
            objectives: SloCounts::new(slo),
            one_token: 0,
            latency: latency?,
            output: Tokens::new()?,
            input: Tokens::new()?,
            first_arrival_s: None,
            last_end_s: None,
            stays: ExactSum::default(),
            stays_n: 0,
        })
    }

    /// Adds a request.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] for a latency of more than 104 days or a sum of tokens beyond `u64`.
    pub fn push(&mut self, t: &RequestTimeline) -> Result<()> {
        let at = Outcome::ALL.iter().position(|o| *o == t.outcome());
        if let Some(n) = at.and_then(|i| self.outcomes.get_mut(i)) {
            *n += 1;
        }
        self.objectives.push(&self.slo, t)?;
        let least = |a: Option<f64>, b: f64| Some(a.map_or(b, |a| a.min(b)));
        let most = |a: Option<f64>, b: f64| Some(a.map_or(b, |a| a.max(b)));
        let stay = t.e2e_latency().map(Seconds::get);
        if let Some(arrival) = t.arrival_s() {
            self.first_arrival_s = least(self.first_arrival_s, arrival);
            if let Some(stay) = stay {
                self.last_end_s = most(self.last_end_s, arrival + stay);
            }
        }
        if t.outcome() != Outcome::Completed {
            return Ok(());
        }
        if let (Some(arrival), Some(stay)) = (t.arrival_s(), stay) {
            // Between the ends as the window has them, so that one request alone is at most one.
            self.stays.add((arrival + stay) - arrival);
            self.stays_n += 1;
        }
        self.output.push(t.output_tokens())?;
        self.input.push(t.input_tokens())?;
        let metrics = t.metrics();
        self.one_token += u64::from(metrics.is_some_and(|m| !m.has_gaps()));
        let tpot = metrics.filter(crate::latency::RequestMetrics::has_gaps).map(|m| m.tpot.get());
        let seconds = |s: Option<Seconds>| s.map(Seconds::get);
        for (row, value) in [
            (0, seconds(t.ttft())),
            (1, tpot),
            (4, stay),
            (5, seconds(t.queue_time())),
            (6, seconds(t.send_delay())),
        ] {
            self.record(row, value)?;
        }
        if let Some(gaps) = t.gaps() {
            let row = if matches!(gaps, Gaps::Token(_)) { 2 } else { 3 };
            for gap in gaps.values() {
                self.record(row, Some(gap.get()))?;
            }
        }
        Ok(())
    }

    fn record(&mut self, row: usize, value: Option<f64>) -> Result<()> {
        match (self.latency.get_mut(row), value) {
            (Some(sketch), Some(value)) => sketch.record(value),
            _ => Ok(()),
        }
    }

    /// Adds `n` equal gaps between tokens, of whichever requests.
    ///
    /// # Errors
    ///
    /// As [`Sketch::record`].
    pub fn push_gaps(&mut self, gap: Seconds, n: u64) -> Result<()> {
        self.latency.get_mut(2).map_or(Ok(()), |itl| itl.record_times(gap.get(), n))
    }

    /// Adds the requests of another tally.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] if the objectives differ; as [`Tally::push`].
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.slo != other.slo {
            let what = format!("objectives `{}` and `{}` cannot be merged", self.slo, other.slo);
            return Err(Error::Contradiction { what });
        }
        for (a, b) in self.outcomes.iter_mut().zip(other.outcomes) {
            *a = added(*a, b)?;
        }
        self.objectives.merge(&other.objectives)?;
        self.one_token = added(self.one_token, other.one_token)?;
        for (a, b) in self.latency.iter_mut().zip(&other.latency) {
            a.merge(b)?;
        }
        self.output.merge(&other.output)?;
        self.input.merge(&other.input)?;
        let either = |a: Option<f64>, b: Option<f64>, pick: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (a, b) => a.or(b),
        };
        self.first_arrival_s = either(self.first_arrival_s, other.first_arrival_s, f64::min);
        self.last_end_s = either(self.last_end_s, other.last_end_s, f64::max);
        self.stays.merge(&other.stays);
        self.stays_n = added(self.stays_n, other.stays_n)?;
        Ok(())
    }

    /// The tally of a file, which has the objectives beside it.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] if its counts do not fit each other or the objectives.
    pub fn under(mut self, slo: &SloSet) -> Result<Self> {
        let completed = self.outcomes.first().copied().unwrap_or_default();
        let misses: u64 = Outcome::ALL
            .iter()
            .zip(self.outcomes)
            .filter(|(o, _)| o.is_miss())
            .map(|(_, n)| n)
            .fold(0, u64::saturating_add);
        let c = &self.objectives;
        let within_completed = |n: u64| n <= completed;
        let fits = c.completed == completed
            && c.misses == misses
            && c.limits.len() == slo.limits().count()
            && c.limits.iter().all(|&(met, known)| met <= known && within_completed(known))
            && c.good.checked_add(c.unknown).is_some_and(within_completed)
            && c.good_one_token <= c.good
            && c.good_tokens_known <= c.good
            && within_completed(self.one_token)
            && within_completed(self.stays_n)
            && self.latency.len() == ROWS.len()
            && within_completed(self.output.lengths.n())
            && within_completed(self.input.lengths.n())
            && self.latency.iter().all(|s| s.scale() == Scale::Picosecond)
            && [&self.output, &self.input].iter().all(|tokens| tokens.fit())
            && c.good_tokens <= self.output.sum
            && self.stays_fit()
            && self.rows_fit(completed, slo);
        if !fits {
            let what = "its counts do not fit each other".to_owned();
            return Err(Error::Contradiction { what });
        }
        for at in [self.first_arrival_s, self.last_end_s].into_iter().flatten() {
            within("an instant of the run", at, 0.0, LARGEST)?;
        }
        if let (Some(first), Some(last)) = (self.first_arrival_s, self.last_end_s)
            && last < first
        {
            let what = format!("its last end at {last} s is before its first arrival at {first} s");
            return Err(Error::Contradiction { what });
        }
        self.slo = slo.clone();
        Ok(self)
    }

    /// Whether the stays are those of completed requests with an end: all of them, or some.
    fn stays_fit(&self) -> bool {
        let e2e = ROWS.iter().zip(&self.latency).find(|(name, _)| **name == "e2e");
        let (n, all) = e2e.map_or((0, 0.0), |(_, s)| (s.n(), s.sum()));
        let stays = self.stays.value();
        // Each end is rounded by up to half of what separates it from the next number.
        let rounded = self.stays_n as f64 * self.last_end_s.unwrap_or(0.0) * f64::EPSILON;
        let off = 1e-9 * all + rounded;
        match self.stays_n {
            0 => stays == 0.0,
            k if k == n => (stays - all).abs() <= off,
            k => k < n && stays <= all + off,
        }
    }

    /// Whether each row that has one sample a request has at most the completed ones, and as many as
    /// the limits on it know of.
    fn rows_fit(&self, completed: u64, slo: &SloSet) -> bool {
        let one_each = |name: &str| !matches!(name, "itl" | "inter_chunk_gap");
        let rows = || ROWS.iter().zip(&self.latency);
        let tpot = |name: &str| if name == "tpot" { self.one_token } else { 0 };
        let known = slo.limits().zip(&self.objectives.limits).all(|(limit, &(_, known))| {
            // An answer of one token has a TPOT of 0 by definition, which is in no sketch.
            let name = limit.latency.name();
            rows()
                .filter(|(row, _)| **row == name)
                .all(|(_, s)| s.n() <= known && known <= s.n().saturating_add(tpot(name)))
        });
        known
            && rows()
                .filter(|(name, _)| one_each(name))
                .all(|(name, s)| s.n().checked_add(tpot(name)).is_some_and(|n| n <= completed))
    }

    /// How many requests there are.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.outcomes.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The objectives under which requests were counted.
    #[must_use]
    pub fn slo(&self) -> &SloSet {
        &self.slo
    }

    /// What the objectives say.
    #[must_use]
    pub fn objectives(&self) -> &SloCounts {
        &self.objectives
    }

    /// First arrival to last end, if both are known.
    pub(crate) fn span(&self) -> Option<Seconds> {
        let length = Seconds::new(self.last_end_s? - self.first_arrival_s?).ok()?;
        (0.0 < length.get()).then_some(length)
    }

    /// Requests by outcome.
    pub(crate) fn outcomes(&self) -> Vec<(Outcome, u64)> {
        Outcome::ALL.into_iter().zip(self.outcomes).collect()
    }

    /// The observed percentile that a target asks for.
    pub(crate) fn percentile(&self, slo: &Slo, settings: &Settings<'_>) -> Option<f64> {
        let Slo::Percentile { p, limit } = slo else { return None };
        let row = ROWS.iter().position(|r| *r == limit.latency.name())?;
        self.latency.get(row)?.percentile_by(*p, settings.method).ok()?
    }

    /// How many completed requests have no value of that latency.
    pub(crate) fn lack(&self, latency: Latency) -> u64 {
        let known =
            ROWS.iter().position(|r| *r == latency.name()).and_then(|r| self.latency.get(r));
        let one_token = if latency == Latency::Tpot { self.one_token } else { 0 };
        let known = known.map_or(0, Sketch::n).saturating_add(one_token);
        self.objectives.completed.saturating_sub(known)
    }

    /// The latency layer.
    pub(crate) fn latency(&self, settings: &Settings<'_>) -> Result<Vec<Distribution>> {
        let mut rows = Vec::new();
        for (name, sketch) in ROWS.into_iter().zip(&self.latency) {
            let latency = Latency::ALL.into_iter().find(|l| l.name() == name);
            if latency.is_none() && sketch.n() == 0 {
                continue;
            }
            let tpot = latency == Some(Latency::Tpot);
            let per_gap = matches!(name, "itl" | "inter_chunk_gap");
            let unknown = match latency {
                Some(latency) => self.lack(latency),
                None if per_gap => 0,
                None => self.objectives.completed.saturating_sub(sketch.n()),
            };
            rows.push(Distribution {
                name,
                unit: if tpot { Unit::SECOND.per(Unit::TOKEN) } else { Unit::SECOND },
                figures: figures(sketch, settings)?,
                one_token_left_out: if tpot { self.one_token } else { 0 },
                unknown_left_out: unknown,
            });
        }
        Ok(rows)
    }
}

fn figures(sketch: &Sketch, settings: &Settings<'_>) -> Result<Option<Figures>> {
    let (Some(max), Some(mean)) = (sketch.max(), sketch.mean()) else { return Ok(None) };
    let none = || Err(crate::interval::NoInterval::Sketched);
    let mut percentiles = Vec::new();
    for p in PERCENTILES {
        let value = sketch.percentile_by(p, settings.method)?.unwrap_or(max);
        percentiles.push(Figure { p: Some(p), value, interval: none() });
    }
    let mean = Figure { p: None, value: mean, interval: none() };
    Ok(Some(Figures { n: sketch.n(), percentiles, max, mean }))
}
