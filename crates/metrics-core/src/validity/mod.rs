//! Whether a result can be believed: findings, and the verdict that they add up to.
//!
//! Many of the costliest mistakes lie outside the server: a client that could not send fast
//! enough, a warm prefix cache, ramp and drain inside the window, a p99 from 50 requests. Each
//! finding is written once, as a [`Check`] beside the rule that raises it; tables, `explain` and
//! both languages come from there.
//!
//! A rule is a pure function: it takes numbers and gives a [`Finding`] or nothing. What is unknown
//! raises nothing. [`Evidence`] holds what a file says of a run, [`Facts`] the figures that the
//! rules read, [`findings`] asks every rule that a report raises, and [`Verdict`] tells what the
//! run is usable for.

pub mod compare;
pub mod content;
pub mod counts;
pub mod engine;
pub mod evidence;
pub mod facts;
pub mod load;
pub mod model;
pub mod objectives;
pub mod samples;
pub mod stream;
pub mod verdict;

use std::fmt;

use crate::metric::{Language, Source, Text, text};

pub use evidence::{Evidence, Facts};
pub use verdict::Verdict;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Worth knowing; the figures stand.
    Note,
    /// What it affects cannot be used as it stands.
    Warn,
    /// The run is not what it says it is: nothing of it can be used.
    Error,
}

impl Level {
    /// The level in a word, as reports and files say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// The level in the words of the docs.
    #[must_use]
    pub const fn text(self) -> Text {
        match self {
            Self::Note => text("note", "提示"),
            Self::Warn => text("warn", "警告"),
            Self::Error => text("error", "错误"),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a figure is about that a finding can affect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// Requests and tokens per second.
    Throughput,
    /// Time to first token.
    Ttft,
    /// Time per output token.
    Tpot,
    /// Gaps between tokens.
    Itl,
    /// End-to-end latency.
    E2e,
    /// Goodput and attainment.
    Goodput,
    /// The 90th percentile of any latency.
    P90,
    /// The 95th percentile of any latency.
    P95,
    /// The 99th percentile of any latency.
    P99,
    /// Requests in flight, and throughput per user.
    Concurrency,
    /// Prefix hit rate.
    HitRate,
    /// How many requests fit or can be served: KV cache, batch, queueing, planning.
    Capacity,
    /// Alerts and autoscaling.
    Alerts,
    /// Cost per token.
    Cost,
    /// A trace's instants.
    Trace,
    /// What a simulation or a fitted model predicts.
    Model,
    /// The comparison of two runs.
    Comparison,
}

impl Subject {
    /// All of them, in the order in which a verdict lists them.
    pub const ALL: [Self; 17] = [
        Self::Throughput,
        Self::Ttft,
        Self::Tpot,
        Self::Itl,
        Self::E2e,
        Self::Goodput,
        Self::P90,
        Self::P95,
        Self::P99,
        Self::Concurrency,
        Self::HitRate,
        Self::Capacity,
        Self::Alerts,
        Self::Cost,
        Self::Trace,
        Self::Model,
        Self::Comparison,
    ];

    /// Its name in files, a stable id.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::E2e => "e2e",
            Self::Goodput => "goodput",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::Concurrency => "concurrency",
            Self::HitRate => "hit_rate",
            Self::Capacity => "capacity",
            Self::Alerts => "alerts",
            Self::Cost => "cost",
            Self::Trace => "trace",
            Self::Model => "model",
            Self::Comparison => "comparison",
        }
    }

    /// Its name for reading.
    #[must_use]
    pub const fn text(self) -> Text {
        match self {
            Self::Throughput => text("throughput", "吞吐"),
            Self::Ttft => text("TTFT", "TTFT"),
            Self::Tpot => text("TPOT", "TPOT"),
            Self::Itl => text("ITL", "ITL"),
            Self::E2e => text("E2E", "E2E"),
            Self::Goodput => text("goodput", "Goodput"),
            Self::P90 => text("p90", "p90"),
            Self::P95 => text("p95", "p95"),
            Self::P99 => text("p99", "p99"),
            Self::Concurrency => text("concurrency", "并发"),
            Self::HitRate => text("hit rate", "命中率"),
            Self::Capacity => text("capacity", "容量"),
            Self::Alerts => text("alerts", "告警"),
            Self::Cost => text("cost", "成本"),
            Self::Trace => text("trace", "轨迹"),
            Self::Model => text("predictions", "预测"),
            Self::Comparison => text("comparison", "比较"),
        }
    }
}

/// All that a client measures per request.
pub const LATENCIES: &[Subject] = &[Subject::Ttft, Subject::Tpot, Subject::Itl, Subject::E2e];

/// A command that raises findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// `goodput report` and `goodput check`.
    Report,
    /// `goodput diff` and `goodput check --base`.
    Diff,
    /// `goodput diagnose`, from metrics of an engine beside a result.
    Diagnose,
    /// `goodput sim`.
    Sim,
    /// `goodput fit`.
    Fit,
    /// `goodput cost`.
    Cost,
    /// `goodput plan`.
    Plan,
    /// `goodput kv`.
    Kv,
}

impl Command {
    /// The command's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Diff => "diff",
            Self::Diagnose => "diagnose",
            Self::Sim => "sim",
            Self::Fit => "fit",
            Self::Cost => "cost",
            Self::Plan => "plan",
            Self::Kv => "kv",
        }
    }
}

/// One finding as data: what the rule beside it looks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// Its id, `W01` to `W39`.
    pub id: &'static str,
    /// Its name in files, for example `concurrency-not-reached`.
    pub name: &'static str,
    /// Its name for reading.
    pub title: Text,
    /// The rule, with its numbers.
    pub rule: Text,
    /// Why it matters, and where the rule differs from the common one.
    pub why: Text,
    /// The levels it can have, lowest first.
    pub levels: &'static [Level],
    /// What it can affect.
    pub affects: &'static [Subject],
    /// What to do about it.
    pub advice: Text,
    /// Where the effect was seen.
    pub source: Source,
    /// The commands that raise it; none where only the rule is there, for callers of the library.
    pub raised_by: &'static [Command],
}

impl Check {
    /// A finding of this check; what it says is added by [`Finding::number`].
    #[must_use]
    pub fn finding(&'static self, level: Level, says: String) -> Finding {
        Finding { check: self, level, affects: self.affects.to_vec(), says, numbers: Vec::new() }
    }

    /// The levels in words, `note, warn`.
    #[must_use]
    pub fn level_names(&self, language: Language) -> String {
        let joint = match language {
            Language::En => ", ",
            Language::Zh => "、",
        };
        let names: Vec<&str> = self.levels.iter().map(|l| l.text().in_language(language)).collect();
        names.join(joint)
    }

    /// The commands that raise it in words, `report, diff`.
    #[must_use]
    pub fn command_names(&self, language: Language) -> String {
        const NONE: Text = text("no command yet", "尚无命令");
        let joint = match language {
            Language::En => ", ",
            Language::Zh => "、",
        };
        match self.raised_by {
            [] => NONE.in_language(language).to_owned(),
            some => some.iter().map(|c| c.name()).collect::<Vec<_>>().join(joint),
        }
    }
}

/// One number that a finding rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// What it is; the unit ends it.
    pub name: &'static str,
    /// Its value, finite.
    pub value: f64,
}

/// What a rule found in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Which check it is of.
    pub check: &'static Check,
    /// How much it weighs here.
    pub level: Level,
    /// What it affects here, in the order of [`Subject::ALL`].
    pub affects: Vec<Subject>,
    /// What was found, in one clause with its numbers.
    pub says: String,
    /// The numbers it rests on.
    pub numbers: Vec<Number>,
}

impl Finding {
    /// With one more number; what is not finite is left out.
    #[must_use]
    pub fn number(mut self, name: &'static str, value: f64) -> Self {
        if value.is_finite() {
            self.numbers.push(Number { name, value });
        }
        self
    }

    /// With a number where there is one.
    #[must_use]
    pub fn maybe(self, name: &'static str, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.number(name, value),
            None => self,
        }
    }

    /// Affecting these instead of everything that the check can affect.
    #[must_use]
    pub fn affecting(mut self, subjects: &[Subject]) -> Self {
        self.affects = Subject::ALL.into_iter().filter(|s| subjects.contains(s)).collect();
        self
    }

    /// The number of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.numbers.iter().find(|n| n.name == name).map(|n| n.value)
    }
}

/// Every check, in the order of the ids.
pub const CHECKS: &[&Check] = &[
    &load::W01,
    &load::W02,
    &load::W03,
    &load::W04,
    &load::W05,
    &stream::W06,
    &stream::W07,
    &stream::W08,
    &stream::W09,
    &samples::W10,
    &samples::W11,
    &samples::W12,
    &compare::W13,
    &objectives::W14,
    &objectives::W15,
    &objectives::W16,
    &content::W17,
    &engine::W18,
    &engine::W19,
    &engine::W20,
    &engine::W21,
    &engine::W22,
    &engine::W23,
    &content::W24,
    &content::W25,
    &stream::W26,
    &engine::W27,
    &model::W28,
    &model::W29,
    &model::W30,
    &content::W31,
    &engine::W32,
    &model::W33,
    &model::W34,
    &load::W35,
    &compare::W36,
    &counts::W37,
    &counts::W38,
    &counts::W39,
];

/// Checks of a report that need the requests one by one or in their order, so that counts and
/// sketches do not show them; W02 of a closed loop is then found by its bound.
pub const NEED_REQUESTS: &[&Check] = &[
    &load::W02,
    &load::W03,
    &load::W04,
    &load::W05,
    &objectives::W16,
    &content::W17,
    &stream::W26,
    &content::W31,
    &engine::W32,
    &load::W35,
];

/// The check of this id or name, in any case.
#[must_use]
pub fn find(id: &str) -> Option<&'static Check> {
    let id = id.trim();
    CHECKS
        .iter()
        .copied()
        .find(|c| c.id.eq_ignore_ascii_case(id) || c.name.eq_ignore_ascii_case(id))
}

/// What every rule of a report says of a run, heaviest first, then by id.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(load::findings(facts));
    found.extend(stream::findings(facts));
    found.extend(samples::findings(facts));
    found.extend(objectives::findings(facts));
    found.extend(content::findings(facts));
    found.extend(counts::findings(facts));
    found.extend(engine::findings(facts));
    found.extend(model::findings(facts));
    found.sort_by(|a, b| b.level.cmp(&a.level).then(a.check.id.cmp(b.check.id)));
    found
}

/// A time in seconds as reports print it.
pub(crate) fn seconds(s: f64) -> String {
    crate::Seconds::new(s)
        .map_or_else(|_| format!("{} s", crate::format::plain(s)), crate::format::time)
}
