//! The measured part of a run: without its warm-up and its cool-down.
//!
//! A run begins with an empty server and ends with one that drains. Latencies and shares are of the
//! requests that arrive in the measured window, however late they end; rates are of what is
//! completed within it, whenever it arrived, so that an overloaded server is not rated by what
//! arrives. The run itself does not change.

use crate::concurrency::{InFlight, in_flight};
use crate::error::{Error, Result};
use crate::report::{Goodput, Input, Report, Settings, Throughput, Window, span};
use crate::steady::{Profile, mser5, rate_within};
use crate::table::{Observed, Request, RequestTable};
use crate::tally::SloCounts;
use crate::throughput::{request_throughput, token_throughput};
use crate::timeline::{Instant, Outcome, RequestTimeline};
use crate::units::{Quantity, Seconds};
use crate::validity::evidence::Conservation;
use crate::validity::facts::stays;
use crate::validity::load::no_steady_state;
use crate::validity::{Evidence, Facts};
use crate::{format, grammar};

/// How much of a run is left out at one of its ends.
///
/// # Examples
///
/// ```
/// use metrics_core::Seconds;
/// use metrics_core::measured::Cut;
///
/// assert_eq!("500".parse::<Cut>()?, Cut::Requests(500));
/// assert_eq!("1m30s".parse::<Cut>()?, Cut::Time(Seconds::new(90.0)?));
/// assert_eq!("auto".parse::<Cut>()?, Cut::Mser5);
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// So many requests, in order of arrival.
    Requests(u64),
    /// So long after the first arrival, or before the last.
    Time(Seconds),
    /// What [`mser5`] takes for warm-up in TTFT; not for a cool-down.
    Mser5,
}

impl Cut {
    /// A cut at the end of a run, from its text: as [`Cut::from_str`](std::str::FromStr), but not
    /// `auto`.
    ///
    /// # Errors
    ///
    /// [`Error::Grammar`].
    pub fn cool_down(text: &str) -> Result<Self> {
        let expected = "MSER-5 finds a warm-up alone, write a number of requests or a time";
        match text.parse()? {
            Self::Mser5 => Err(Error::Grammar {
                what: "cool-down",
                text: text.to_owned(),
                expected: expected.to_owned(),
            }),
            cut => Ok(cut),
        }
    }

    /// In words, as the warm-up or the cool-down.
    fn of(self, what: &str) -> String {
        match self {
            Self::Requests(n) => format!("a {what} of {}", format::things(n, "request")),
            Self::Time(_) => format!("a {what} of {self}"),
            Self::Mser5 => format!("the {what} that MSER-5 finds"),
        }
    }

    fn is_nothing(self) -> bool {
        match self {
            Self::Requests(n) => n == 0,
            Self::Time(time) => time.get() <= 0.0,
            Self::Mser5 => false,
        }
    }
}

impl std::str::FromStr for Cut {
    type Err = Error;

    /// A number of requests (`500`, `1k`), a time (`60s`), or `auto`.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        if text == "auto" {
            return Ok(Self::Mser5);
        }
        if let Ok(n) = grammar::count(text) {
            return Ok(Self::Requests(n));
        }
        grammar::duration(text).map(Self::Time).map_err(|_| Error::Grammar {
            what: "cut",
            text: text.to_owned(),
            expected:
                "write a number of requests up to 2^53 or a time, neither negative: 500 or 60s"
                    .to_owned(),
        })
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Requests(n) => write!(f, "{n}"),
            Self::Time(time) => write!(f, "{}s", format::plain(time.get())),
            Self::Mser5 => f.write_str("auto"),
        }
    }
}

/// What is left out of a run; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cuts {
    /// At its start.
    pub warm_up: Option<Cut>,
    /// At its end.
    pub cool_down: Option<Cut>,
}

impl Cuts {
    /// Whether nothing was asked to be left out, not even nothing.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.warm_up.is_none() && self.cool_down.is_none()
    }

    /// Both with their verb: `a warm-up of 60s leaves`.
    fn leave(&self) -> String {
        let both = self.warm_up.is_some() && self.cool_down.is_some();
        format!("{} {}", self.in_words(), if both { "leave" } else { "leaves" })
    }

    /// In words: `a warm-up of 60s and a cool-down of 500 requests`; empty without any.
    #[must_use]
    pub fn in_words(&self) -> String {
        let warm_up = self.warm_up.map(|cut| cut.of("warm-up"));
        let cool_down = self.cool_down.map(|cut| cut.of("cool-down"));
        warm_up.into_iter().chain(cool_down).collect::<Vec<_>>().join(" and ")
    }

    /// The measured window of requests in order of arrival; `None` if nothing is left out.
    ///
    /// ```text
    /// start = first arrival + warm_up    or the arrival of the first request that is measured
    /// end   = last arrival - cool_down   or the arrival of the first request after them
    /// ```
    ///
    /// Measured is who arrives from the start on and before the end. Without a cool-down the window
    /// ends with the run. Instants in picoseconds are compared exactly. Where a count cuts between
    /// requests that arrive at one instant, their places say who is measured; the window, and with
    /// it the rates, begins or ends at that instant.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] for a request without an arrival, [`Error::Order`] if they are not in
    /// order, [`Error::NotBelow`] for a cut that leaves no request, [`Error::Contradiction`] if both
    /// together leave none or a window without length, if `auto` finds no steady part, and for a
    /// cool-down of `auto`; [`Error::Empty`] without requests, [`Error::TooFew`] for `auto` with
    /// fewer than [`mser5`] needs.
    pub fn of(&self, timelines: &[RequestTimeline]) -> Result<Option<Measured>> {
        if self.cool_down == Some(Cut::Mser5) {
            let what = "cool-down must be a number of requests or a time, got auto".to_owned();
            return Err(Error::Contradiction { what });
        }
        let warm_up = self.warm_up.filter(|cut| !cut.is_nothing());
        let cool_down = self.cool_down.filter(|cut| !cut.is_nothing());
        if warm_up.is_none() && cool_down.is_none() {
            return Ok(None);
        }
        let arrivals = arrivals(timelines)?;
        let n = arrivals.len();
        // Checked to be in order, so that no difference is negative.
        let after_first = |i: usize| since(&arrivals, 0, i);
        let before_last = |i: usize| since(&arrivals, i, n - 1);
        let from = match warm_up {
            None => 0,
            Some(cut @ Cut::Requests(skipped)) => place(("warm-up", cut), skipped, n)?,
            Some(Cut::Time(time)) => {
                let from = arrivals.partition_point_by(|i| after_first(i) < time.get());
                left("warm-up", time, after_first(n - 1), from < n)?;
                from
            }
            Some(Cut::Mser5) => found(timelines)?,
        };
        let to = match cool_down {
            None | Some(Cut::Mser5) => n,
            Some(cut @ Cut::Requests(skipped)) => n - place(("cool-down", cut), skipped, n)?,
            Some(Cut::Time(time)) => {
                let to = arrivals.partition_point_by(|i| time.get() < before_last(i));
                left("cool-down", time, before_last(0), 0 < to)?;
                to
            }
        };
        if to <= from {
            let what = format!("{} none of {}", self.leave(), format::things(n as u64, "request"));
            return Err(Error::Contradiction { what });
        }
        let start_s = match warm_up {
            Some(Cut::Time(time)) => time.get(),
            _ => after_first(from),
        };
        let end_s = match cool_down {
            None => None,
            Some(Cut::Time(time)) => Some(after_first(n - 1) - time.get()),
            Some(_) => Some(after_first(to)),
        };
        if let Some(end_s) = end_s.filter(|&end| end <= start_s) {
            let what = format!(
                "{} a window from {} to {} after the first arrival, which has no length",
                self.leave(),
                seconds(start_s),
                seconds(end_s)
            );
            return Err(Error::Contradiction { what });
        }
        let first = arrivals.0.first().copied().unwrap_or(Instant::Seconds(0.0));
        let tied = |i: usize| 0 < i && i < n && since(&arrivals, i - 1, i) <= 0.0;
        let by_place = tied(from) || tied(to);
        Ok(Some(Measured {
            from,
            to,
            of: n,
            by_place,
            first,
            start_s,
            end_s,
            completed: 0,
            good: None,
            truncated: false,
        }))
    }
}

/// A time in a message.
fn seconds(s: f64) -> String {
    format!("{} s", format::plain(s))
}

/// Instants in order of time.
struct Arrivals(Vec<Instant>);

impl Arrivals {
    fn len(&self) -> usize {
        self.0.len()
    }

    /// The first place for which `before` does not hold, as it does for all places before it.
    fn partition_point_by(&self, before: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if before(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// The time between two arrivals of a list in order; 0 for a place that it does not have.
fn since(arrivals: &Arrivals, earlier: usize, later: usize) -> f64 {
    let (Some(a), Some(b)) = (arrivals.0.get(earlier), arrivals.0.get(later)) else { return 0.0 };
    b.since("arrival", *a, "the arrival before it").map_or(0.0, Quantity::number)
}

/// The arrivals, which have to be known and in order.
fn arrivals(timelines: &[RequestTimeline]) -> Result<Arrivals> {
    let mut all: Vec<Instant> = Vec::with_capacity(timelines.len());
    for t in timelines {
        let arrival = t.arrival().ok_or(Error::Missing {
            input: "arrival",
            needed_for: "warm-up and cool-down go by the order of arrival",
        })?;
        if let Some(last) = all.last() {
            arrival.since("arrival", *last, "the arrival before it")?;
        }
        all.push(arrival);
    }
    if all.is_empty() {
        return Err(Error::Empty { input: "the run", item: "request" });
    }
    Ok(Arrivals(all))
}

/// The number of requests that are left out, which has to leave one.
fn place((what, cut): (&str, Cut), skipped: u64, n: usize) -> Result<usize> {
    let place = usize::try_from(skipped).ok().filter(|&place| place < n);
    place.ok_or_else(|| {
        let arrived = format::things(n as u64, "request");
        let what = format!("{} leaves none of the run, in which {arrived} arrived", cut.of(what));
        Error::Contradiction { what }
    })
}

/// Refuses a time that leaves nobody between first and last arrival.
fn left(input: &'static str, time: Seconds, span: f64, any: bool) -> Result<()> {
    if any {
        return Ok(());
    }
    Err(Error::Contradiction {
        what: format!(
            "{input} of {} leaves no request: the last one arrives {} after the first",
            seconds(time.get()),
            seconds(span)
        ),
    })
}

/// How many requests MSER-5 leaves out.
fn found(timelines: &[RequestTimeline]) -> Result<usize> {
    let with_ttft: Vec<(usize, f64)> =
        timelines.iter().enumerate().filter_map(|(i, t)| Some((i, t.ttft()?.get()))).collect();
    let ttft: Vec<f64> = with_ttft.iter().map(|(_, ttft)| *ttft).collect();
    let skipped = mser5(&ttft).map_err(|e| match e {
        Error::TooFew { item, min, len, .. } => {
            Error::TooFew { input: "the TTFTs for a warm-up of auto", item, min, len }
        }
        other => other,
    })?;
    let Some(skipped) = skipped else {
        let what =
            "warm-up must be a number of requests or a time: MSER-5 finds no steady part in TTFT";
        return Err(Error::Contradiction { what: what.to_owned() });
    };
    let place = usize::try_from(skipped).ok().and_then(|n| with_ttft.get(n));
    Ok(place.map_or(0, |(i, _)| *i))
}

/// The measured window of a run, and what was completed in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The first measured request, by its place in order of arrival.
    pub from: usize,
    /// The first request after them.
    pub to: usize,
    /// How many requests arrive in the whole run.
    pub of: usize,
    /// Whether who is measured goes by the place in order of arrival alone: a request that is left
    /// out arrives at the same instant as one that is measured.
    pub by_place: bool,
    /// The first arrival of the run.
    pub first: Instant,
    /// Where the window starts, in seconds after the first arrival.
    pub start_s: f64,
    /// Where it ends, in seconds after the first arrival; with the run if `None`.
    pub end_s: Option<f64>,
    /// Requests that are completed within the window, whenever they arrived.
    pub completed: u64,
    /// How many of them are good, if there are limits and all can be judged.
    pub good: Option<u64>,
    /// Whether the run was cut before the window, or a request of it, had ended.
    pub truncated: bool,
}

impl Measured {
    /// How many requests are measured.
    #[must_use]
    pub fn requests(&self) -> u64 {
        (self.to - self.from) as u64
    }

    /// Whether a request is completed within the window: after its start, up to its end.
    fn has_end_of(&self, t: &RequestTimeline) -> bool {
        let arrival = t.arrival().and_then(|at| at.since("arrival", self.first, "the first").ok());
        let Some((arrival, stay)) = arrival.zip(t.e2e_latency()) else { return false };
        let end = picoseconds(arrival.get() + stay.get());
        // The very first request may take no time and still belongs to a window from the start on.
        let after = self.from == 0 || picoseconds(self.start_s) < end;
        after && self.end_s.is_none_or(|to| end <= picoseconds(to))
    }

    /// The part of a stay, in seconds from the run's origin, that lies within the window.
    fn clip(&self, (from, to): (f64, f64)) -> Option<(f64, f64)> {
        let first = self.first.seconds();
        let from = from.max(first + self.start_s);
        let to = self.end_s.map_or(to, |end| to.min(first + end));
        (from < to).then_some((from, to))
    }
}

/// Whole picoseconds, so that the rounding of a sum does not move an end past an edge.
fn picoseconds(s: f64) -> f64 {
    (s * 1e12).round()
}

impl Report {
    /// The figures of the measured window of a run; [`Report::new`] if nothing is left out.
    ///
    /// Latencies, shares and intervals are of the requests that arrive in the window; rates, lengths
    /// beside them and requests in flight are of what is completed, or there, within it. `input.window`
    /// is that of the whole run, from the first arrival on: without a cool-down the measured window
    /// ends with it.
    ///
    /// A run that was cut leaves a window whole that ends before the cut and whose requests had all
    /// ended by then: nothing of it depends on what would have come after.
    ///
    /// # Errors
    ///
    /// As [`Report::new`] and [`Cuts::of`].
    ///
    /// # Examples
    ///
    /// ```
    /// use metrics_core::RequestTimeline;
    /// use metrics_core::measured::{Cut, Cuts};
    /// use metrics_core::report::{Input, Report};
    /// use metrics_core::slo::SloSet;
    /// use metrics_core::interval::Confidence;
    /// use metrics_core::summary::PercentileMethod;
    ///
    /// // One request a second, each of 2 s: the first ends at 2 s, the last at 11 s.
    /// let run: Vec<RequestTimeline> = (0..10)
    ///     .map(|i| f64::from(i))
    ///     .map(|t| RequestTimeline::completed("r", t, t + 0.5, t + 2.0, 4))
    ///     .collect::<Result<_, _>>()?;
    /// let input = Input {
    ///     timelines: &run,
    ///     window: None,
    ///     truncated: false,
    ///     slo: &SloSet::none(),
    ///     method: PercentileMethod::default(),
    ///     confidence: Confidence::default(),
    /// };
    /// // Over 11 s ten requests are 0.91/s; from 3 s to 8 s five end, which is 1/s.
    /// let cuts = Cuts { warm_up: Some(Cut::Requests(3)), cool_down: Some(Cut::Requests(2)) };
    /// let report = Report::measured(&input, &cuts)?;
    /// assert_eq!(report.sent(), 5);
    /// assert_eq!(report.throughput.requests.map(|r| r.get()), Some(1.0));
    /// # Ok::<(), metrics_core::Error>(())
    /// ```
    pub fn measured(input: &Input<'_>, cuts: &Cuts) -> Result<Self> {
        let Some(mut measured) = cuts.of(input.timelines)? else { return Self::new(input) };
        let table = RequestTable::of(input.timelines);
        let run_end = || input.window.clone().or_else(|| span(&table)).map(|w| w.length.get());
        let length = measured.end_s.or_else(run_end).map(|end| end - measured.start_s);
        let cohort = input.timelines.get(measured.from..measured.to).unwrap_or_default();
        if input.truncated {
            let ends_before = measured.end_s.zip(run_end()).is_some_and(|(end, cut)| end <= cut);
            let have_ended = cohort.iter().all(|t| t.outcome() != Outcome::CutOff);
            measured.truncated = !(ends_before && have_ended);
        }
        let truncated = measured.truncated;
        let window = match length.filter(|&l| 0.0 < l && !truncated) {
            Some(length) => {
                let basis = "the measured window".to_owned();
                Some(Window { length: Seconds::new(length)?, basis })
            }
            None => None,
        };
        let settings = Settings {
            window: window.clone(),
            truncated,
            slo: input.slo,
            method: input.method,
            confidence: input.confidence,
        };
        let mut report = Report::of_table(&RequestTable::of(cohort), &settings)?;
        let mut ended = RequestTable::default();
        input.timelines.iter().filter(|t| measured.has_end_of(t)).for_each(|t| ended.push(t));
        let done = ended.select(|o| o == Outcome::Completed);
        measured.completed = done.len() as u64;
        report.throughput = Throughput::new(&done, window.as_ref())?;
        if let Some(goodput) = &mut report.goodput {
            let mut counts = SloCounts::new(input.slo);
            for t in done.iter() {
                counts.push(input.slo, &t)?;
            }
            rates(goodput, &counts, window.as_ref(), &mut measured)?;
        }
        (report.in_flight, report.in_flight_n) = in_window(&table, &measured, window.as_ref())?;
        report.window = window;
        report.measured = Some(measured);
        Ok(report)
    }
}

/// Goodput as a rate: good requests that are completed in the window.
fn rates(
    goodput: &mut Goodput,
    counts: &SloCounts,
    window: Option<&Window>,
    measured: &mut Measured,
) -> Result<()> {
    let judged = counts.unknown == 0 && goodput.has_limits();
    measured.good = judged.then_some(counts.good);
    let known = counts.good_tokens_known == counts.good;
    let window = window.filter(|_| judged);
    goodput.rate = window.map(|w| request_throughput(counts.good, w.length)).transpose()?;
    let window = window.filter(|_| known);
    goodput.tokens = window.map(|w| token_throughput(counts.good_tokens, w.length)).transpose()?;
    Ok(())
}

/// Completed requests that were in flight within the window, and how many they are.
fn in_window(
    table: &RequestTable,
    measured: &Measured,
    window: Option<&Window>,
) -> Result<(Option<InFlight>, u64)> {
    let stays = || {
        let done = table.requests().filter(|r| r.outcome() == Outcome::Completed);
        let stay = |r: Request<'_>| {
            let arrival = r.arrival_s()?;
            measured.clip((arrival, arrival + r.e2e_latency()?.get()))
        };
        done.filter_map(stay)
    };
    let n = stays().count() as u64;
    let figures = window.filter(|_| 0 < n).map(|w| in_flight(stays(), w.length)).transpose()?;
    Ok((figures, n))
}

impl Facts {
    /// The figures of the measured window that the rules read.
    ///
    /// `e` holds the measured requests, `all` those of the whole run, and `report` is that of the
    /// window. The samples are those of the measured requests; ramp and drain are what the window
    /// still has of those of the whole run, and a queue that grows is looked for over the arrivals
    /// in the window among all requests in flight. Books that balance over the whole run are those of
    /// the measured requests.
    #[must_use]
    pub fn of_window(e: &Evidence<'_>, all: &RequestTable, report: &Report) -> Self {
        let mut facts = Self::new(e);
        if facts.conservation.is_some_and(|whole| whole.balances()) {
            facts.conservation = Some(Conservation::of(e.requests));
        }
        let (Some(measured), Ok(profile)) = (&report.measured, Profile::new(stays(all))) else {
            return facts;
        };
        facts.requests_per_s = report.throughput.requests.map(Quantity::number);
        facts.window_s = report.window.as_ref().map(|w| w.length.get());
        let first = measured.first.seconds();
        let end = measured.end_s.map_or(profile.end(), |end| first + end);
        let window = (first + measured.start_s, end);
        facts.span_s = Some(window.1 - window.0).filter(|s| 0.0 < *s);
        facts.follow_growth(e, &profile);
        let steady = || profile.steady_within(stays(all), facts.load.clients(), window);
        facts.stays_per_s = rate_within(stays(all), window);
        facts.steady = if no_steady_state(&facts).is_none() { steady() } else { None };
        facts
    }
}
