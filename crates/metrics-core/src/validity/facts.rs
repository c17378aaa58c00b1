//! From what a file says to the figures that the rules read.
//!
//! A few passes over the requests, and for what needs the order of size at most [`SAMPLE_MAX`]
//! samples chosen by a fixed rule: ten million requests cost seconds, not minutes. One column of
//! numbers is held at a time, and beside it only when requests began and ended.

use std::collections::{BTreeMap, HashSet};

use crate::alerts::keeps_growing;
use crate::interval::{Series, autocorrelation};
use crate::latency::RequestMetrics;
use crate::slo::{Judgement, Latency, SloSet};
use crate::steady::{Profile, Stay};
use crate::summary::{Summary, median, sort, sum};
use crate::table::{Observed, Request, RequestTable, Selection};
use crate::timeline::{GapKind, Outcome};
use crate::units::Seconds;

use super::evidence::{
    Evidence, Facts, Growth, Latencies, Lengths, LimitFacts, Load, Objectives, Prompts, Sending,
    Spread, Streams,
};
use super::{Subject, load};

/// The most samples that are sorted for a percentile; of more, every request is taken or not by a
/// hash of its place, so that a period of the run does not meet a period of the choice.
pub const SAMPLE_MAX: usize = 1 << 20;

/// The most samples whose correlation is measured.
const CORRELATED_MAX: usize = 200_000;

/// Into how many medians a run is divided for a trend.
const TREND_BINS: usize = 200;

/// The samples that are sorted of a series of `n`.
struct Chosen(usize);

impl Chosen {
    fn of(n: usize) -> Self {
        Self(n.div_ceil(SAMPLE_MAX).max(1))
    }

    /// Whether that is all of them.
    fn all(&self) -> bool {
        self.0 == 1
    }

    fn takes(&self, index: usize) -> bool {
        // Fibonacci hashing; the high bits are the mixed ones.
        let mixed = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.all() || mixed.is_multiple_of(self.0 as u64)
    }
}

/// The figures of one latency over samples in order of occurrence.
fn spread(values: &[f64], with_correlation: bool) -> Spread {
    let n = values.len();
    let chosen = Chosen::of(n);
    let sample: Vec<f64> = if chosen.all() {
        values.to_vec()
    } else {
        values.iter().enumerate().filter(|(i, _)| chosen.takes(*i)).map(|(_, &x)| x).collect()
    };
    let Ok(summary) = Summary::new(sample) else { return Spread::default() };
    let effective = (with_correlation && correlated(n)).then(|| summary.run().effective_samples());
    Spread {
        n: Some(n as u64),
        mean: Some(sum(values.iter().copied()) / n as f64),
        max: values.iter().copied().max_by(f64::total_cmp),
        effective,
        ..Spread::of(&summary)
    }
}

/// Whether the correlation of so many samples is asked for.
fn correlated(n: usize) -> bool {
    20 <= n && n <= CORRELATED_MAX
}

impl Spread {
    fn of(summary: &Summary) -> Self {
        let at = |p| summary.percentile(p).ok();
        Self {
            n: Some(summary.n()),
            mean: Some(summary.mean()),
            std: Some(summary.std_population()),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: Some(summary.max()),
            effective: None,
        }
    }

    /// The figures of samples that are sorted already.
    pub(crate) fn of_series(series: &Series) -> Self {
        let known = correlated(series.summary().values().len());
        let effective = known.then(|| series.run().effective_samples());
        Self { effective, ..Self::of(series.summary()) }
    }
}

impl Lengths {
    fn of(s: &Spread, total: Option<u64>) -> Self {
        let cv = s.std.zip(s.mean).filter(|(_, m)| 0.0 < *m).map(|(std, mean)| std / mean);
        Self { total, mean: s.mean, p50: s.p50, p95: s.p95, cv }
    }

    /// The figures of lengths that are sorted already; none of more than are sorted here.
    pub(crate) fn of_summary(summary: &Summary, total: Option<u64>) -> Option<Self> {
        let values = summary.values();
        let mean = Some(sum(values.iter().copied()) / values.len() as f64);
        let spread = Spread { mean, ..Spread::of(summary) };
        Chosen::of(values.len()).all().then(|| Self::of(&spread, total))
    }
}

impl Facts {
    /// The figures of a run.
    ///
    /// What the file does not tell is absent: nothing is guessed, and no figure is 0 for want of
    /// samples. Figures that a tool states are taken where there is no detail to compute them from.
    #[must_use]
    pub fn new(e: &Evidence<'_>) -> Self {
        let table = e.requests;
        let done = table.select(|o| o == Outcome::Completed);
        let has_requests = !table.is_empty();
        let ended = table.ended();
        let count = |wanted: fn(Outcome) -> bool| {
            let each = Outcome::ALL.into_iter().zip(ended);
            each.filter(|&(o, _)| wanted(o)).map(|(_, n)| n).sum::<u64>()
        };
        let (completed, missed) = if has_requests {
            (Some(done.len() as u64), Some(count(Outcome::is_miss)))
        } else {
            (e.stated.completed, e.stated.failed)
        };
        let clients = e.load.clients();
        let of = |l: Latency| done.known(|t| l.of(&t));
        let lag = clients.and_then(|n| usize::try_from(n).ok());
        let ttft_at_lag_n = lag.and_then(|n| {
            let ttfts = of(Latency::Ttft);
            if ttfts.len() < 3 * n { None } else { autocorrelation(&ttfts, n).ok().flatten() }
        });
        let tpots =
            || done.known(|t| t.metrics().filter(RequestMetrics::has_gaps).map(|m| m.tpot.get()));
        let Latencies { ttft, tpot, e2e, output } = e.latencies.unwrap_or_else(|| Latencies {
            ttft: spread(&of(Latency::Ttft), true),
            tpot: spread(&tpots(), true),
            e2e: spread(&of(Latency::E2e), true),
            output: None,
        });
        let ttft = ttft.or(e.stated.ttft);
        let tpot = tpot.or(e.stated.tpot);
        let e2e = e2e.or(e.stated.e2e);
        let (streams, gaps) = streams(&done);
        let output = output.unwrap_or_else(|| lengths(&done, e, completed));
        let profile = Profile::new(stays(table)).ok();
        let steady = profile.as_ref().and_then(|p| p.steady(stays(table), clients));
        let span = profile.as_ref().map(|p| p.end() - p.begin()).filter(|s| 0.0 < *s);
        let window_s = e.window_s.or(span).filter(|w| 0.0 < *w && !e.truncated);
        let in_flight = in_flight(completed, window_s, &ttft, &tpot, &e2e, &output);
        let requests_per_s = completed
            .zip(window_s)
            .map(|(n, w)| n as f64 / w)
            .or(e.stated.requests_per_s.filter(|_| !e.truncated));
        let (ttft_growth, in_flight_growth) = growth(&done, profile.as_ref(), e2e.p50);
        let mut facts = Self {
            load: e.load,
            window_s,
            truncated: e.truncated,
            has_requests,
            completed,
            missed,
            outside: count(|o| matches!(o, Outcome::Cancelled | Outcome::CutOff)),
            ttft,
            tpot,
            itl: gaps.or(e.stated.itl),
            e2e,
            input_tokens: if has_requests {
                total(done.iter().map(|t| t.input_tokens()))
            } else {
                e.stated.input_tokens
            },
            output,
            requests_per_s,
            tokens_per_s: e.stated.tokens_per_s,
            in_flight,
            span_s: span,
            peak_in_flight: profile.as_ref().map(Profile::peak),
            stays_in_flight: window_s.filter(|_| profile.is_some()).map(|w| {
                // Little's law over the same requests: one whose end is unknown is in neither.
                sum(stays(table).map(|s| s.to_s - s.from_s)) / w
            }),
            counts_disagree: e.counts_disagree.map(str::to_owned),
            called_invalid: e.called_invalid.map(str::to_owned),
            steady,
            stays_per_s: None,
            ttft_growth,
            in_flight_growth,
            ttft_at_lag_n,
            sending: sending(e, profile.as_ref()),
            streams,
            objectives: objectives(e, &done),
            prompts: prompts(e),
            replicas: replicas(e),
            replicas_in_system: Vec::new(),
            server: e.server.clone(),
            conservation: e.conservation,
            ideal: e.ideal.to_vec(),
        };
        // While a queue grows, waiting would count as service: there is no steady stretch to rate.
        if load::no_steady_state(&facts).is_some() {
            facts.steady = None;
        }
        facts
    }

    /// Follows TTFT of these requests, and all in flight of a profile, over their arrivals.
    pub(crate) fn follow_growth(&mut self, e: &Evidence<'_>, profile: &Profile) {
        let done = e.requests.select(|o| o == Outcome::Completed);
        (self.ttft_growth, self.in_flight_growth) = growth(&done, Some(profile), self.e2e.p50);
    }

    /// What the run has figures of, in the order in which a verdict lists it.
    #[must_use]
    pub fn subjects(&self) -> Vec<Subject> {
        let latencies = [&self.ttft, &self.tpot, &self.itl, &self.e2e];
        let any = |of: fn(&Spread) -> Option<f64>| latencies.iter().any(|s| of(s).is_some());
        let o = &self.objectives;
        let goodput = !o.limits.is_empty() && 0 < o.finished && o.unknown == 0 && !self.truncated;
        [
            (Subject::Throughput, self.requests_per_s.is_some()),
            (Subject::Ttft, self.ttft.is_known()),
            (Subject::Tpot, self.tpot.is_known()),
            (Subject::Itl, self.itl.is_known()),
            (Subject::E2e, self.e2e.is_known()),
            (Subject::Goodput, goodput),
            (Subject::P90, any(|s| s.p90)),
            (Subject::P95, any(|s| s.p95)),
            (Subject::P99, any(|s| s.p99)),
        ]
        .into_iter()
        .filter_map(|(subject, there)| there.then_some(subject))
        .collect()
    }
}

/// When a request was sent, in seconds from the run's origin.
fn sent_s(t: &Request<'_>) -> Option<f64> {
    Some(t.arrival_s()? + t.send_delay().map_or(0.0, Seconds::get))
}

pub(crate) fn stays(table: &RequestTable) -> impl Iterator<Item = Stay> {
    table
        .requests()
        .filter_map(|t| {
            let arrival = t.arrival_s()?;
            Some(Stay {
                from_s: sent_s(&t)?,
                first_token_s: t.ttft().map(|x| arrival + x.get()),
                to_s: arrival + t.e2e_latency()?.get(),
                output_tokens: t.output_tokens(),
                completed: t.outcome() == Outcome::Completed,
            })
        })
        // Rounding of large stamps may put an end a bit before its begin.
        .map(|s| Stay { to_s: s.to_s.max(s.from_s), ..s })
}

/// The sum of counts, if all are known and it fits.
fn total(counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let mut any = false;
    let sum = counts.into_iter().try_fold(0_u64, |sum, n| {
        any = true;
        sum.checked_add(n?)
    })?;
    any.then_some(sum)
}

fn lengths(done: &Selection<'_>, e: &Evidence<'_>, completed: Option<u64>) -> Lengths {
    let known = done.all_known(|t| t.output_tokens().map(|n| n as f64));
    if let Some(known) = known.filter(|k| !k.is_empty()) {
        let total = total(done.iter().map(|t| t.output_tokens()));
        return Lengths::of(&spread(&known, false), total);
    }
    if !e.requests.is_empty() {
        return Lengths::default();
    }
    let total = e.stated.output_tokens;
    let mean = total.zip(completed).filter(|(_, n)| 0 < *n).map(|(t, n)| t as f64 / n as f64);
    // Lengths that differ add up to a whole multiple of n once in n times by chance.
    let one_length = total.zip(completed).is_some_and(|(t, n)| 100 <= n && t % n == 0);
    Lengths { total, mean, p50: None, p95: None, cv: one_length.then_some(0.0) }
}

/// Mean number in flight by Little's law; E2E from its parts where the file has only those.
fn in_flight(
    completed: Option<u64>,
    window_s: Option<f64>,
    ttft: &Spread,
    tpot: &Spread,
    e2e: &Spread,
    output: &Lengths,
) -> Option<f64> {
    let parts = || {
        let (ttft, tpot, n) = (ttft.mean?, tpot.mean?, output.mean?);
        Some(ttft + (n - 1.0).max(0.0) * tpot)
    };
    load::little(completed?, window_s?, e2e.mean.or_else(parts)?)
}

/// What the streams show, and the figures of all gaps.
fn streams(done: &Selection<'_>) -> (Streams, Spread) {
    let mut s = Streams::default();
    let total: usize = done.iter().filter_map(|t| t.gaps()).map(|(_, g)| g.len()).sum();
    let chosen = Chosen::of(total);
    let mut sample = Vec::with_capacity(total.min(SAMPLE_MAX + SAMPLE_MAX / 8));
    let (mut index, mut max) = (0, 0.0_f64);
    let mut shares = Vec::new();
    let mut long_first = Vec::new();
    let (mut per_token, mut per_chunk) = (0_u64, 0_u64);
    for t in done.iter() {
        let (ttft, e2e, all_gaps) = (t.ttft(), t.e2e_latency(), t.gaps());
        let several = t.output_tokens().is_some_and(|n| 1 < n);
        if let (Some(ttft), Some(e2e), true) = (ttft, e2e, several)
            && 0.0 < e2e.get()
        {
            shares.push(ttft.get() / e2e.get());
        }
        // The whole answer at one instant: one chunk, whether or not the file lists gaps.
        let at_once = several && ttft.is_some() && ttft == e2e;
        let no_gap = several && all_gaps.is_some_and(|(_, g)| g.is_empty());
        let judged = all_gaps.is_some() || (ttft.is_some() && e2e.is_some());
        s.judged += u64::from(several && judged);
        s.in_one_chunk += u64::from(at_once || no_gap);
        let Some((kind, gaps)) = all_gaps else { continue };
        for &gap in gaps {
            max = max.max(gap);
            if chosen.takes(index) {
                sample.push(gap);
            }
            index += 1;
        }
        let Some(n) = t.output_tokens().filter(|_| several) else { continue };
        s.answers += 1;
        s.tokens_after_first += n - 1;
        s.gaps += gaps.len() as u64;
        match kind {
            GapKind::Token => per_token += 1,
            GapKind::Chunk => per_chunk += 1,
        }
        if n <= gaps.len() as u64 {
            s.with_empty_chunk += 1;
            let mut rest: Vec<f64> = gaps.iter().copied().skip(1).collect();
            let usual = if rest.is_empty() {
                None
            } else {
                let middle = rest.len() / 2;
                Some(*rest.select_nth_unstable_by(middle, f64::total_cmp).1)
            };
            if let (Some(&first), Some(usual)) = (gaps.first(), usual)
                && 10.0 * usual < first
            {
                s.with_empty_chunk_and_long_first_gap += 1;
                long_first.push(first);
            }
        }
    }
    s.per_token = (0 < per_token + per_chunk).then_some(per_chunk == 0);
    s.ttft_share_p50 = median(&mut shares);
    s.long_first_gap_p50_s = median(&mut long_first);
    let mut figures = spread(&sample, false);
    if figures.n.is_some() {
        figures.n = Some(total as u64);
        figures.max = Some(max);
    }
    if let Some(p50) = figures.p50 {
        let all = sum(sample.iter().copied());
        let stalled = sum(sample.iter().copied().filter(|g| 10.0 * p50 < *g));
        s.stalled_share = (0.0 < all).then(|| stalled / all);
    }
    s.two_modes_s = two_modes(&sample);
    (s, figures)
}

/// The two commonest lengths of a gap, if there are two: more than three times apart, each with at
/// least 5 % of all gaps, and between them a valley of less than half the lower of both.
///
/// Counted in bins of a sixth of a decade, where gaps of a steady decode fill one or two.
fn two_modes(gaps: &[f64]) -> Option<(f64, f64)> {
    const PER_DECADE: f64 = 6.0;
    /// Bins that are at least three times apart.
    const APART: usize = 3;
    if gaps.len() < 100 {
        return None;
    }
    let bin = |g: f64| (g.log10() * PER_DECADE).round();
    let mut bins: BTreeMap<i32, u64> = BTreeMap::new();
    for &g in gaps.iter().filter(|g| 1e-6 < **g) {
        // Between -36 and 54, as gaps are above a microsecond and below 1e9 s.
        #[expect(clippy::cast_possible_truncation)]
        let index = bin(g).clamp(-36.0, 54.0) as i32;
        *bins.entry(index).or_default() += 1;
    }
    let (&low, &high) = (bins.keys().next()?, bins.keys().next_back()?);
    let counts: Vec<u64> = (low..=high).map(|i| bins.get(&i).copied().unwrap_or(0)).collect();
    let top = (0..counts.len()).max_by_key(|&i| counts.get(i))?;
    let least = (gaps.len() as u64).div_ceil(20);
    let at = |i: usize| counts.get(i).copied().unwrap_or(0);
    let near = |i: usize| at(i.saturating_sub(1)) * u64::from(0 < i) + at(i) + at(i + 1);
    let second = (0..counts.len())
        .filter(|&i| APART <= i.abs_diff(top) && least <= near(i))
        .filter(|&i| at(i.saturating_sub(1)) <= at(i) && at(i + 1) <= at(i))
        .filter(|&i| {
            let between = (i.min(top) + 1)..i.max(top);
            between.map(at).min().is_some_and(|valley| 2 * valley < at(i))
        })
        .max_by_key(|&i| at(i))?;
    let middle = |i: usize| {
        let i = i32::try_from(i).unwrap_or(0) + low;
        10_f64.powf(f64::from(i) / PER_DECADE)
    };
    let (a, b) = (middle(top.min(second)), middle(top.max(second)));
    Some((a, b))
}

/// Medians of at most [`TREND_BINS`] groups of neighbours, of `n` pairs.
fn medians(n: usize, pairs: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let size = n.div_ceil(TREND_BINS).max(1);
    let mut series: Vec<(f64, f64)> = Vec::new();
    let (mut places, mut values) = (Vec::with_capacity(size), Vec::with_capacity(size));
    for (i, (at, value)) in (1..).zip(pairs) {
        places.push(at);
        values.push(value);
        if places.len() < size && i < n {
            continue;
        }
        if let Some(pair) = median(&mut places).zip(median(&mut values))
            && series.last().is_none_or(|last| last.0 < pair.0)
        {
            series.push(pair);
        }
        places.clear();
        values.clear();
    }
    series
}

fn trend(series: &[(f64, f64)]) -> Option<Growth> {
    let trend = keeps_growing(series).ok()?;
    let time = series.last()?.0 - series.first()?.0;
    Some(Growth {
        grows: trend.keeps_growing(),
        per_s: trend.slope,
        p_value: trend.p_value,
        median: median(&mut series.iter().map(|p| p.1).collect::<Vec<f64>>())?,
        rise: trend.slope * time,
    })
}

/// TTFT and the number in flight over the arrivals, the first time in flight left out: it is ramp.
fn growth(
    done: &Selection<'_>,
    profile: Option<&Profile>,
    e2e_p50: Option<f64>,
) -> (Option<Growth>, Option<Growth>) {
    let Some(profile) = profile else { return (None, None) };
    let (begin, last) = (profile.begin(), profile.last_begin());
    let ramp = e2e_p50.unwrap_or(0.0).min(0.2 * (last - begin));
    let pairs = || {
        let known = done.iter().filter_map(|t| Some((sent_s(&t)?, t.ttft()?.get())));
        known.filter(|(at, _)| begin + ramp <= *at)
    };
    let ttft = medians(pairs().count(), pairs());
    let flight: Vec<(f64, f64)> = ttft.iter().map(|&(t, _)| (t, profile.at(t) as f64)).collect();
    (trend(&ttft), trend(&flight))
}

fn sending(e: &Evidence<'_>, profile: Option<&Profile>) -> Sending {
    let (mut n, mut ends, mut unknown) = (0_u64, None::<(f64, f64)>, 0_u64);
    let mut due = Vec::with_capacity(e.requests.len());
    let mut delays = Vec::new();
    for t in e.requests.requests() {
        delays.extend(t.send_delay().map(Seconds::get));
        due.extend(t.arrival_s());
        let Some(at) = sent_s(&t) else {
            unknown += u64::from(t.outcome() == Outcome::Completed);
            continue;
        };
        n += 1;
        let (first, last) = ends.unwrap_or((at, at));
        ends = Some((at.min(first), at.max(last)));
    }
    let span = ends.map(|(a, b)| b - a);
    sort(&mut due);
    let mean = span.filter(|_| 1 < n).map(|s| s / (n - 1) as f64).filter(|m| 0.0 < *m);
    let gap_cv = mean.filter(|_| 3 <= due.len()).and_then(|_| {
        let gaps = || due.windows(2).map(|w| w.last().copied().unwrap_or(0.0) - w[0]);
        let count = (due.len() - 1) as f64;
        let mean = sum(gaps()) / count;
        let squares = sum(gaps().map(|g| (g - mean) * (g - mean)));
        (0.0 < mean).then(|| (squares / (count - 1.0)).sqrt() / mean)
    });
    let delay_in_ttft = !delays.is_empty();
    if !delay_in_ttft {
        delays.extend(e.client_delay_s.iter().flatten());
    }
    let at_cap_share = match (e.load.offered_per_s(), e.load.concurrency, profile) {
        (Some(_), Some(cap), Some(p)) => p.share_at_least(cap),
        _ => None,
    };
    Sending {
        n,
        span_s: span,
        per_s: mean.map(|m| 1.0 / m),
        gap_cv,
        delay_p99_s: spread(&delays, false).p99,
        delay_in_ttft,
        without_arrival: if n == 0 { 0 } else { unknown },
        at_cap_share,
    }
}

fn objectives(e: &Evidence<'_>, done: &Selection<'_>) -> Objectives {
    let slo: &SloSet = e.slo;
    if slo.limits().next().is_none() {
        return Objectives::default();
    }
    let limit_of = |l: Latency| slo.limits().find(|x| x.latency == l).map(|x| x.limit.get());
    let limits = slo.limits().map(|limit| {
        let at = limit.limit.get();
        let (text, [mut known, mut met, mut times, mut by]) = (limit.to_string(), [0; 4]);
        for v in done.iter().filter_map(|t| limit.latency.of(&t)) {
            known += 1;
            met += u64::from(limit.is_met_by(v));
            times += u64::from(v <= at * 1e3);
            by += u64::from(v <= at / 1e3);
        }
        LimitFacts { text, known, met, met_times_1000: times, met_by_1000: by }
    });
    let mut o = Objectives {
        ttft_s: limit_of(Latency::Ttft),
        tpot_s: limit_of(Latency::Tpot),
        e2e_s: limit_of(Latency::E2e),
        limits: limits.collect(),
        finished: done.len() as u64,
        ..Objectives::default()
    };
    for t in e.requests.requests() {
        o.finished += u64::from(t.outcome().is_miss());
        match slo.judge(&t) {
            Judgement::Good => o.good += 1,
            Judgement::Unknown => o.unknown += 1,
            _ => {}
        }
    }
    o
}

fn prompts(e: &Evidence<'_>) -> Prompts {
    let mut p = Prompts::default();
    let mut seen: HashSet<&str> = HashSet::new();
    for text in e.prompts.iter().flatten() {
        p.known += 1;
        p.repeated += u64::from(!seen.insert(text.as_str()));
    }
    let mut cached = None;
    for (t, c) in e.requests.requests().zip(e.cached_tokens) {
        if let (Some(tokens), Some(c)) = (t.input_tokens(), c) {
            p.tokens += tokens as f64;
            cached = Some(cached.unwrap_or(0.0) + c);
        }
    }
    p.cached = cached;
    p
}

fn replicas(e: &Evidence<'_>) -> Vec<u64> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for name in e.replicas.iter().flatten() {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts.into_values().collect()
}

/// The load as a reader may know it without a name for it.
impl Load {
    /// A closed loop of so many clients.
    #[must_use]
    pub fn closed(clients: u64) -> Self {
        Self { concurrency: Some(clients), ..Self::default() }
    }

    /// An open loop at this rate.
    #[must_use]
    pub fn open(per_s: f64) -> Self {
        Self { rate: Some(super::evidence::Rate::PerSecond(per_s)), ..Self::default() }
    }
}
