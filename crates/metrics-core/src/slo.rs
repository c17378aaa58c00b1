//! Service-level objectives: three different things, one grammar.
//!
//! - `ttft<200ms`: a limit for each request; a request is good if it meets all limits.
//! - `ttft<200ms @ 99%`: an attainment target, the share of requests that must meet the limit.
//! - `p99(ttft)<200ms`: a percentile target, a bound on a percentile over all requests.
//!
//! Several are separated by commas. `<` and `<=` both mean "at most": every tool that measures
//! goodput counts a request exactly at its limit as good. [`SloSet::strictly`] asks for the strict
//! reading that one of the project's sources writes.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::grammar;
use crate::latency::RequestMetrics;
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, text};
use crate::table::Observed;
use crate::timeline::Outcome;
#[cfg(feature = "catalog")]
use crate::units::Unit;
use crate::units::{Seconds, SecondsPerToken};

/// A latency that a limit can be set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Latency {
    /// Time to first token.
    Ttft,
    /// Time per output token; 0 for a one-token answer, which therefore meets every limit on it.
    Tpot,
    /// End-to-end latency.
    E2e,
}

impl Latency {
    /// All of them, in report order.
    pub const ALL: [Self; 3] = [Self::Ttft, Self::Tpot, Self::E2e];

    /// The name used in the grammar and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::E2e => "e2e",
        }
    }

    /// The latency with this name or one that benchmark tools use for it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ttft" | "time_to_first_token" => Self::Ttft,
            "tpot" | "time_per_output_token" | "inter_token_latency" => Self::Tpot,
            "e2e" | "e2el" | "latency" | "request_latency" | "e2e_latency" => Self::E2e,
            _ => return None,
        })
    }

    /// This latency of one request in seconds (per token for TPOT), if known.
    #[must_use]
    pub fn of(self, t: &impl Observed) -> Option<f64> {
        match self {
            Self::Ttft => t.ttft().map(Seconds::get),
            Self::Tpot => t.tpot().map(SecondsPerToken::get),
            Self::E2e => t.e2e_latency().map(Seconds::get),
        }
    }
}

/// Whether a request exactly at a limit meets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// At the limit is good (≤): the default, as in every tool that measures goodput.
    #[default]
    Inclusive,
    /// At the limit is a miss (<).
    Strict,
}

/// A limit on one latency of each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Of what.
    pub latency: Latency,
    /// The limit, in seconds (per token for TPOT).
    pub limit: Seconds,
    /// Whether the limit itself is good.
    pub bound: Bound,
}

impl Limit {
    /// Whether a value in seconds meets it.
    #[must_use]
    pub fn is_met_by(&self, value_s: f64) -> bool {
        match self.bound {
            Bound::Inclusive => value_s <= self.limit.get(),
            Bound::Strict => value_s < self.limit.get(),
        }
    }
}

/// Writes a duration so that it parses back to the same number.
struct Written(Seconds);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0.get();
        for (unit, per_second) in [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)] {
            let rounded = (s * per_second).round();
            if 1.0 <= rounded && rounded < 1e15 && (rounded / per_second).total_cmp(&s).is_eq() {
                return write!(f, "{rounded}{unit}");
            }
        }
        write!(f, "{}s", crate::format::plain(s))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.bound {
            Bound::Inclusive => "<=",
            Bound::Strict => "<",
        };
        write!(f, "{}{sign}{}", self.latency.name(), Written(self.limit))
    }
}

/// One service-level objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slo {
    /// A limit for each request.
    PerRequest(Limit),
    /// The share of requests that must meet the limit.
    Attainment {
        /// The limit.
        limit: Limit,
        /// The share, from 0 to 1.
        target: f64,
    },
    /// A bound on a percentile over all requests.
    Percentile {
        /// The percentile as a share: 0.99 for p99.
        p: f64,
        /// Its bound.
        limit: Limit,
    },
}

impl Slo {
    /// The limit inside.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        match self {
            Self::PerRequest(limit)
            | Self::Attainment { limit, .. }
            | Self::Percentile { limit, .. } => limit,
        }
    }

    /// The limit inside, if it judges single requests.
    #[must_use]
    pub const fn per_request(&self) -> Option<&Limit> {
        match self {
            Self::PerRequest(limit) | Self::Attainment { limit, .. } => Some(limit),
            Self::Percentile { .. } => None,
        }
    }
}

/// A share as a percentage without the noise of `0.999 * 100`.
fn percent(share: f64) -> f64 {
    (share * 1e12).round() / 1e10
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerRequest(limit) => write!(f, "{limit}"),
            Self::Attainment { limit, target } => write!(f, "{limit} @ {}%", percent(*target)),
            Self::Percentile { p, limit } => {
                let text = limit.to_string();
                let name = limit.latency.name();
                write!(f, "p{}({name}){}", percent(*p), &text[name.len()..])
            }
        }
    }
}

impl FromStr for Slo {
    type Err = Error;

    /// Reads one objective; see the module's grammar.
    fn from_str(s: &str) -> Result<Self> {
        let fail = |expected: String| Error::Grammar { what: "SLO", text: s.to_owned(), expected };
        let (left, right) = s.split_once('<').ok_or_else(|| {
            fail("write ttft<200ms, ttft<200ms @ 99% or p99(ttft)<200ms".to_owned())
        })?;
        let right = right.strip_prefix('=').unwrap_or(right);
        let (limit_text, target) = match right.split_once('@') {
            Some((limit, target)) => (limit, Some(grammar::share(target)?)),
            None => (right, None),
        };
        let limit = match grammar::duration(limit_text) {
            Ok(limit) => limit,
            Err(Error::Grammar { expected, .. }) => return Err(fail(expected)),
            Err(e) => return Err(e),
        };
        let left = left.trim().to_ascii_lowercase();
        let (p, name) = match left.strip_prefix('p').and_then(|rest| rest.split_once('(')) {
            Some((p, rest)) if rest.ends_with(')') => {
                (Some(grammar::share(&format!("{}%", p.trim()))?), rest[..rest.len() - 1].trim())
            }
            _ => (None, left.as_str()),
        };
        if p.is_some_and(|p| p <= 0.0 || 1.0 <= p) {
            return Err(fail("a percentile is above 0 and below 100, such as p99".to_owned()));
        }
        let latency = Latency::named(name)
            .ok_or_else(|| fail(format!("unknown latency `{name}`, use ttft, tpot or e2e")))?;
        let limit = Limit { latency, limit, bound: Bound::Inclusive };
        match (p, target) {
            (None, None) => Ok(Self::PerRequest(limit)),
            (None, Some(target)) => Ok(Self::Attainment { limit, target }),
            (Some(p), None) => Ok(Self::Percentile { p, limit }),
            (Some(_), Some(_)) => Err(fail(
                "a percentile target has its share in the percentile: drop the @".to_owned(),
            )),
        }
    }
}

/// All objectives of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SloSet {
    items: Vec<Slo>,
}

/// What the per-request limits say of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Completed, and every limit met.
    Good,
    /// A limit missed, or the request failed, was rejected or timed out.
    Miss,
    /// Cancelled or cut off by the end of the run: neither good nor a miss.
    Outside,
    /// Completed, but the file does not have a latency that a limit needs.
    Unknown,
}

impl SloSet {
    /// No objectives: every completed request is good.
    #[must_use]
    pub const fn none() -> Self {
        Self { items: Vec::new() }
    }

    /// From single objectives.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] if one latency has two limits of the same kind.
    pub fn new(items: Vec<Slo>) -> Result<Self> {
        for (i, a) in items.iter().enumerate() {
            for b in items.iter().skip(i + 1) {
                let clash = match (a, b) {
                    (Slo::Percentile { p, limit: x }, Slo::Percentile { p: q, limit: y }) => {
                        x.latency == y.latency && p.total_cmp(q).is_eq()
                    }
                    (a, b) => match (a.per_request(), b.per_request()) {
                        (Some(x), Some(y)) => x.latency == y.latency,
                        _ => false,
                    },
                };
                if clash {
                    return Err(Error::Contradiction {
                        what: format!("`{a}` and `{b}` limit the same latency: keep one"),
                    });
                }
            }
        }
        Ok(Self { items })
    }

    /// From limits as vLLM, SGLang and AIPerf write them: `ttft:200`, in milliseconds.
    ///
    /// # Errors
    ///
    /// [`Error::Grammar`] for an unknown name or a value that is no number of milliseconds.
    pub fn from_goodput<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let slos: Result<Vec<Slo>> = items.into_iter().map(goodput_item).collect();
        Self::new(slos?)
    }

    /// The same objectives under the strict reading: a request at its limit is a miss.
    #[must_use]
    pub fn strictly(mut self) -> Self {
        for slo in &mut self.items {
            match slo {
                Slo::PerRequest(limit)
                | Slo::Attainment { limit, .. }
                | Slo::Percentile { limit, .. } => limit.bound = Bound::Strict,
            }
        }
        self
    }

    /// These and the other's objectives.
    ///
    /// # Errors
    ///
    /// As [`SloSet::new`].
    pub fn and(mut self, other: Self) -> Result<Self> {
        self.items.extend(other.items);
        Self::new(self.items)
    }

    /// The objectives in order.
    #[must_use]
    pub fn items(&self) -> &[Slo] {
        &self.items
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The limits that judge single requests.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.items.iter().filter_map(Slo::per_request)
    }

    /// Whether a request with these metrics meets every per-request limit.
    #[must_use]
    pub fn is_met_by(&self, m: &RequestMetrics) -> bool {
        self.limits().all(|limit| {
            limit.is_met_by(match limit.latency {
                Latency::Ttft => m.ttft.get(),
                Latency::Tpot => m.tpot.get(),
                Latency::E2e => m.e2e_latency.get(),
            })
        })
    }

    /// What the per-request limits say of a request: a known miss decides even if another latency
    /// is unknown.
    #[must_use]
    pub fn judge(&self, t: &impl Observed) -> Judgement {
        match t.outcome() {
            Outcome::Cancelled | Outcome::CutOff => return Judgement::Outside,
            outcome if outcome.is_miss() => return Judgement::Miss,
            _ => {}
        }
        let mut judgement = Judgement::Good;
        for limit in self.limits() {
            match limit.latency.of(t) {
                Some(value) if !limit.is_met_by(value) => return Judgement::Miss,
                Some(_) => {}
                None => judgement = Judgement::Unknown,
            }
        }
        judgement
    }
}

impl fmt::Display for SloSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, slo) in self.items.iter().enumerate() {
            write!(f, "{}{slo}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl FromStr for SloSet {
    type Err = Error;

    /// Reads objectives separated by commas.
    fn from_str(s: &str) -> Result<Self> {
        let parts: Vec<&str> = s.split(',').map(str::trim).collect();
        let items: Result<Vec<Slo>> = parts.iter().map(|part| part.parse()).collect();
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let decimal = parts.windows(2).any(|pair| match pair {
            [a, b] => digit(a.chars().last()) && digit(b.chars().next()),
            _ => false,
        });
        if items.is_err() && decimal {
            return Err(Error::Grammar {
                what: "SLO",
                text: s.to_owned(),
                expected:
                    "commas stand between objectives; the decimal sign is a point, as in 1.5s"
                        .to_owned(),
            });
        }
        Self::new(items?)
    }
}

/// One `name:milliseconds` item of `--goodput`.
fn goodput_item(item: &str) -> Result<Slo> {
    let fail = |expected: &str| Error::Grammar {
        what: "goodput limit",
        text: item.to_owned(),
        expected: expected.to_owned(),
    };
    let (name, value) = item
        .split_once(':')
        .ok_or_else(|| fail("write name:milliseconds, for example ttft:200"))?;
    let latency = Latency::named(name.trim())
        .ok_or_else(|| fail("unknown name, use ttft, tpot or e2el (AIPerf's names work too)"))?;
    let ms: f64 = value.trim().parse().map_err(|_| {
        fail("the limit is a number of milliseconds without a unit, for example ttft:200")
    })?;
    let limit = Seconds::from_millis(ms).map_err(|e| fail(&e.to_string()))?;
    Ok(Slo::PerRequest(Limit { latency, limit, bound: Bound::Inclusive }))
}

/// SLO indicator: 1 if a request meets its limits on TTFT and TPOT, else 0.
///
/// ```text
/// slo_indicator = if ttft <= tau_ttft and tpot <= tau_tpot then 1 else 0
/// ```
///
/// `ttft` and `tpot` are those of one request, `tau_ttft` and `tau_tpot` their limits. A request
/// exactly at a limit is good. A one-token answer has TPOT 0 and so meets every limit on it.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, SecondsPerToken, slo::slo_indicator};
///
/// let (s, per) = (Seconds::new, SecondsPerToken::new);
/// assert_eq!(slo_indicator(s(0.3)?, per(0.1)?, s(0.5)?, per(0.12)?), 1.0);
/// assert_eq!(slo_indicator(s(0.8)?, per(0.1)?, s(0.5)?, per(0.12)?), 0.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: formula walkthrough, 2.2.
#[must_use]
pub fn slo_indicator(
    ttft: Seconds,
    tpot: SecondsPerToken,
    tau_ttft: Seconds,
    tau_tpot: SecondsPerToken,
) -> f64 {
    if ttft <= tau_ttft && tpot <= tau_tpot { 1.0 } else { 0.0 }
}

/// The catalog entry of [`slo_indicator`].
#[cfg(feature = "catalog")]
pub const SLO_INDICATOR: Metric = Metric {
    id: "slo_indicator",
    symbol: "I_i",
    name: text("SLO indicator", "SLO 达标指示"),
    layer: Layer::Throughput,
    unit: Unit::ONE,
    inputs: &[
        Input::real(
            "ttft",
            r"\mathrm{TTFT}_i",
            Unit::SECOND,
            (0.0, 2.0),
            text("time to first token", "首 token 时延"),
        ),
        Input::real(
            "tpot",
            r"\mathrm{TPOT}_i",
            Unit::SECOND.per(Unit::TOKEN),
            (0.0, 0.2),
            text("time per output token", "每输出 token 时延"),
        ),
        Input::real(
            "tau_ttft",
            r"\tau_{\mathrm{TTFT}}",
            Unit::SECOND,
            (0.0, 2.0),
            text("limit on TTFT", "TTFT 上限"),
        ),
        Input::real(
            "tau_tpot",
            r"\tau_{\mathrm{TPOT}}",
            Unit::SECOND.per(Unit::TOKEN),
            (0.0, 0.2),
            text("limit on TPOT", "TPOT 上限"),
        ),
    ],
    formula: Formula::Scalar {
        text: "if ttft <= tau_ttft and tpot <= tau_tpot then 1 else 0",
        eval: |x| {
            computed::<f64, crate::Error>(Ok(slo_indicator(
                Seconds::new(x[0])?,
                SecondsPerToken::new(x[1])?,
                Seconds::new(x[2])?,
                SecondsPerToken::new(x[3])?,
            )))
        },
        example: (&[0.5, 0.1, 0.5, 0.12], 1.0),
    },
    path: "metrics_core::slo::slo_indicator",
    source: Source { work: "formula walkthrough", section: "2.2" },
    note: text(
        "Inclusive, as every tool that measures goodput has it; a one-token answer meets every limit on TPOT.",
        "含等号，与所有度量 goodput 的工具一致；只有一个 token 的回答总能满足 TPOT 上限。",
    ),
    exported: &[],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::RequestTimeline;

    fn set(s: &str) -> SloSet {
        s.parse().unwrap()
    }

    /// The shortest form that reads back, however small or large.
    #[test]
    fn a_limit_is_written_short_and_reads_back() {
        for limit in ["ttft<=1e-320s", "tpot<=1e-19s", "e2e<=1e99s", "ttft<=0s", "ttft<=250us"] {
            let slo: SloSet = limit.parse().unwrap();
            assert_eq!(slo.to_string(), limit);
        }
    }

    #[test]
    fn the_three_kinds_share_one_grammar() {
        let s = set("ttft<200ms, tpot<50ms @ 99%,p99.9(e2el)<=1m30s");
        assert_eq!(s.to_string(), "ttft<=200ms, tpot<=50ms @ 99%, p99.9(e2e)<=90s");
        assert_eq!(set(&s.to_string()), s);
        assert_eq!(s.limits().count(), 2);
        assert_eq!(set("ttft<200ms").strictly().to_string(), "ttft<200ms");
    }

    #[test]
    fn a_limit_without_a_unit_shows_both_readings() {
        let say = |s: &str| s.parse::<SloSet>().unwrap_err().to_string();
        assert_eq!(say("ttft<200"), "SLO `ttft<200`: a number needs a unit, write 200ms or 200s");
        assert_eq!(
            say("ttft<1,5s"),
            "SLO `ttft<1,5s`: commas stand between objectives; the decimal sign is a point, as in 1.5s"
        );
        assert_eq!(say("ttff<2s"), "SLO `ttff<2s`: unknown latency `ttff`, use ttft, tpot or e2e");
        // Found by fuzzing: a line end in the name went into the message as it was.
        assert!(!say("ttf\nf<2s").contains('\n'));
        assert_eq!(
            say("ttft>2s"),
            "SLO `ttft>2s`: write ttft<200ms, ttft<200ms @ 99% or p99(ttft)<200ms"
        );
        assert_eq!(
            say("p99(ttft)<2s @ 99%"),
            "SLO `p99(ttft)<2s @ 99%`: a percentile target has its share in the percentile: drop the @"
        );
        assert_eq!(say("ttft<2s @ 99"), "share ` 99`: a share is at most 1, write 99% or 0.99");
        assert_eq!(
            say("ttft<2s,ttft<3s @ 99%"),
            "`ttft<=2s` and `ttft<=3s @ 99%` limit the same latency: keep one"
        );
        assert!("p101(ttft)<1s".parse::<Slo>().is_err());
        assert!("".parse::<SloSet>().is_err() && "ttft<1s,".parse::<SloSet>().is_err());
    }

    #[test]
    fn goodput_limits_are_milliseconds() {
        let s = SloSet::from_goodput(["ttft:150", "tpot:15", "e2el:2500"]).unwrap();
        assert_eq!(s.to_string(), "ttft<=150ms, tpot<=15ms, e2e<=2500ms");
        for bad in ["ttft=150", "ttft:150ms", "ttff:1", "ttft:-1", "ttft:nan", "ttft:"] {
            assert!(SloSet::from_goodput([bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_at_its_limit_is_good_unless_strict() {
        let t = RequestTimeline::completed("r", 0.0, 0.5, 1.0, 6).unwrap();
        assert_eq!(set("ttft<500ms").judge(&t), Judgement::Good);
        assert_eq!(set("ttft<500ms").strictly().judge(&t), Judgement::Miss);
        assert!(set("ttft<500ms,tpot<100ms").is_met_by(&t.metrics().unwrap()));
    }

    #[test]
    fn a_missing_latency_leaves_a_request_unknown_unless_another_limit_is_missed() {
        let fields = crate::timeline::TimelineFields {
            id: "r".to_owned(),
            ttft: Some(0.3),
            output_tokens: Some(5),
            ..Default::default()
        };
        let t = RequestTimeline::new(fields).unwrap();
        assert_eq!(set("e2e<1s").judge(&t), Judgement::Unknown);
        assert_eq!(set("e2e<1s,ttft<200ms").judge(&t), Judgement::Miss);
        assert_eq!(SloSet::none().judge(&t), Judgement::Good);
    }

    /// Only a user who left and a run that stopped say nothing about the server.
    #[test]
    fn an_unfinished_request_is_a_miss_or_outside() {
        let judged = |outcome| {
            let fields = crate::timeline::TimelineFields {
                id: "r".to_owned(),
                outcome,
                ..Default::default()
            };
            set("ttft<1s").judge(&RequestTimeline::new(fields).unwrap())
        };
        for outcome in [Outcome::Failed, Outcome::Rejected, Outcome::TimedOut] {
            assert_eq!(judged(outcome), Judgement::Miss, "{outcome:?}");
        }
        for outcome in [Outcome::Cancelled, Outcome::CutOff] {
            assert_eq!(judged(outcome), Judgement::Outside, "{outcome:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_and_what_parses_prints_back(s in "[a-z0-9(.@%<>=, ]{0,24}") {
            if let Ok(set) = s.parse::<SloSet>() {
                proptest::prop_assert_eq!(set.to_string().parse::<SloSet>().unwrap(), set);
            }
        }

        #[test]
        fn every_limit_prints_back_to_itself(ns in 0.0..1e12_f64) {
            let limit = Seconds::new(ns / 1e9).unwrap();
            let slo = Slo::PerRequest(Limit { latency: Latency::Ttft, limit, bound: Bound::Inclusive });
            proptest::prop_assert_eq!(slo.to_string().parse::<Slo>().unwrap(), slo);
        }
    }
}
