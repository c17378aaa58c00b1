//! Findings about the objectives: do they say what their author meant?

use crate::format::{percent, value};
use crate::metric::{Source, text};

use super::evidence::{LimitFacts, Objectives, Spread};
use super::{Check, Command, Facts, Finding, Level, Subject, seconds};

/// The longest answer for which limits on TTFT, TPOT and E2E agree.
///
/// ```text
/// agree_up_to = 1 + floor((e2e - ttft) / tpot)
/// ```
///
/// `None` if even one token breaks the limit on E2E, or if the limit on TPOT is 0.
#[must_use]
pub fn agree_up_to(ttft_s: f64, tpot_s: f64, e2e_s: f64) -> Option<f64> {
    if tpot_s <= 0.0 || e2e_s < ttft_s {
        return None;
    }
    Some(1.0 + ((e2e_s - ttft_s) / tpot_s).floor()).filter(|n| n.is_finite())
}

/// W14: a request at its limits on TTFT and TPOT misses the limit on E2E.
///
/// `median` and `p95` are those of the output lengths, in tokens.
#[must_use]
pub fn contradiction(
    ttft_s: f64,
    tpot_s: f64,
    e2e_s: f64,
    median: Option<f64>,
    p95: Option<f64>,
) -> Option<Finding> {
    let needs = |n: f64| ttft_s + (n - 1.0).max(0.0) * tpot_s;
    let breaks = |n: Option<f64>| n.filter(|n| e2e_s < needs(*n));
    let (level, n, which) = match (breaks(median), breaks(p95)) {
        (Some(n), _) => (Level::Warn, n, "median"),
        (None, Some(n)) => (Level::Note, n, "p95"),
        (None, None) => return None,
    };
    let agree = agree_up_to(ttft_s, tpot_s, e2e_s);
    let up_to = match agree {
        Some(x) => format!("; they agree up to {} tokens", value(x)),
        None => "; they agree at no length".to_owned(),
    };
    let says = format!(
        "an answer of {} tokens ({which}) at its limits on TTFT and TPOT takes {}, above the limit of {} on E2E{up_to}",
        value(n),
        seconds(needs(n)),
        seconds(e2e_s)
    );
    Some(
        W14.finding(level, says)
            .number("output_tokens", n)
            .number("e2e_needed_s", needs(n))
            .number("e2e_limit_s", e2e_s)
            .maybe("agree_up_to_tokens", agree)
            .maybe(
                "tpot_that_agrees_s",
                (1.0 < n && ttft_s <= e2e_s).then(|| (e2e_s - ttft_s) / (n - 1.0)),
            ),
    )
}

/// See [`contradiction`].
pub const W14: Check = Check {
    id: "W14",
    name: "slos-contradict",
    title: text("objectives contradict each other", "目标互相矛盾"),
    rule: text(
        "limit on TTFT + (n − 1) · limit on TPOT > limit on E2E at the median output length (warning) or its p95 (note)",
        "输出长度取中位数时 TTFT 上限 +（n − 1）· TPOT 上限 > E2E 上限（警告），取 p95 时为提示",
    ),
    why: text(
        "The limit on E2E then decides alone, and meeting the others earns nothing.",
        "此时只有 E2E 上限起作用，满足其他上限毫无收益。",
    ),
    levels: &[Level::Note, Level::Warn],
    affects: &[Subject::Goodput],
    advice: text(
        "raise the limit on E2E, lower that on TPOT, or drop one of them",
        "提高 E2E 上限、降低 TPOT 上限，或去掉其中之一",
    ),
    source: Source { work: "kevinluzbetak.com", section: "case K062" },
    raised_by: &[Command::Report],
};

/// W15: all objectives together are met by fewer than each alone.
///
/// `limits` holds each limit with its attainment, `joint` is that of all together; all are shares of
/// the finished requests.
#[must_use]
pub fn stricter_than_parts(joint: f64, limits: &[(&str, f64)]) -> Option<Finding> {
    let (binding, least) = limits.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    if limits.len() < 2 || *least - 0.005 <= joint {
        return None;
    }
    let each: Vec<String> = limits.iter().map(|(l, x)| format!("{l} {}", percent(*x))).collect();
    let says = format!(
        "{} meet all limits, {} alone: together they are stricter than the binding one, {binding}",
        percent(joint),
        each.join(", ")
    );
    Some(W15.finding(Level::Note, says).number("joint", joint).number("least_alone", *least))
}

/// See [`stricter_than_parts`].
pub const W15: Check = Check {
    id: "W15",
    name: "conjunction-is-stricter",
    title: text("together the limits are stricter than each", "合取比各项更严"),
    rule: text(
        "joint attainment < least attainment of a single limit − 0.5 points; failures are misses, requests cut off are outside, what cannot be measured is unset",
        "联合达标率 < 各单项达标率最小值 − 0.5 个百分点；失败算未达标，被截断的请求不计，无法测量的视为未设",
    ),
    why: text(
        "Different requests miss different limits, so the joint share cannot be read from the single ones.",
        "不同请求违反不同上限，因此联合达标率无法由各单项推出。",
    ),
    levels: &[Level::Note],
    affects: &[Subject::Goodput],
    advice: text("state the joint attainment and the binding limit", "给出联合达标率与约束性上限"),
    source: Source {
        work: "AIPerf research doc; guidellm SLO guide; inference-sim#1409",
        section: "",
    },
    raised_by: &[Command::Report],
};

/// W16: a limit that all or none meet, where a thousand times more or less would tell them apart:
/// milliseconds for seconds, or the other way round.
#[must_use]
pub fn unit_trap(limit: &LimitFacts) -> Option<Finding> {
    let between = |n: u64| 0 < n && n < limit.known;
    let (share, other) = match limit.met {
        _ if limit.known == 0 => return None,
        0 if between(limit.met_times_1000) => (0.0, "a thousand times"),
        n if n == limit.known && between(limit.met_by_1000) => (1.0, "a thousandth of"),
        _ => return None,
    };
    let (who, met) =
        if share == 0.0 { ("none", limit.met_times_1000) } else { ("all", limit.met_by_1000) };
    let says = format!(
        "{who} of {} requests meet {}, but {met} would meet {other} it: is the unit right?",
        limit.known, limit.text
    );
    Some(
        W16.finding(Level::Warn, says)
            .affecting(&[Subject::Goodput])
            .number("attainment", share)
            .number("attainment_at_other_unit", met as f64 / limit.known as f64),
    )
}

/// TPOT above which no server answers: a reader would have left, and 10 s a token is an hour for
/// 360 tokens.
const ABSURD_TPOT_S: f64 = 10.0;
/// Median TTFT above which hundreds of requests were hardly waited for.
const ABSURD_TTFT_S: f64 = 600.0;

/// W16 for measured values: a median no server has, so that milliseconds were taken for seconds.
#[must_use]
pub fn absurd_latencies(ttft: &Spread, tpot: &Spread, completed: u64) -> Option<Finding> {
    let mut parts = Vec::new();
    let mut numbers = Vec::new();
    if let Some(x) = tpot.p50.or(tpot.mean).filter(|x| ABSURD_TPOT_S < *x) {
        parts.push(format!("TPOT is {} for each token", seconds(x)));
        numbers.push(("tpot_s", x));
    }
    if let Some(x) = ttft.p50.or(ttft.mean).filter(|x| ABSURD_TTFT_S < *x && 100 <= completed) {
        parts.push(format!("the median TTFT of {completed} requests is {}", seconds(x)));
        numbers.push(("ttft_s", x));
    }
    if parts.is_empty() {
        return None;
    }
    let says = format!("{}: are these milliseconds read as seconds?", parts.join(", and "));
    let finding = W16.finding(Level::Warn, says);
    Some(numbers.into_iter().fold(finding, |f, (name, x)| f.number(name, x)))
}

/// See [`unit_trap`] and [`absurd_latencies`].
pub const W16: Check = Check {
    id: "W16",
    name: "unit-trap",
    title: text("a limit or a column looks like the wrong unit", "上限或列的单位似乎有误"),
    rule: text(
        "all or none of the completed requests meet a limit, and neither all nor none would meet a thousandth or a thousand times it; or median TPOT > 10 s, or median TTFT > 600 s of at least 100 requests; a number without a unit is refused at once",
        "完成的请求全部或全不满足某上限，而换成其千分之一或一千倍时则不然；或 TPOT 中位数 > 10 s，或至少 100 个请求的 TTFT 中位数 > 600 s；没有单位的数字直接拒绝",
    ),
    why: text(
        "vLLM, SGLang and AIPerf take milliseconds, GuideLLM and inference-perf seconds.",
        "vLLM、SGLang、AIPerf 用毫秒，GuideLLM、inference-perf 用秒。",
    ),
    levels: &[Level::Warn],
    affects: &[Subject::Throughput, Subject::Ttft, Subject::Tpot, Subject::E2e, Subject::Goodput],
    advice: text(
        "write the unit, as in ttft<200ms, and check the unit of the columns",
        "写明单位，例如 ttft<200ms，并核对列的单位",
    ),
    source: Source { work: "vLLM, AIPerf, GuideLLM, inference-perf", section: "goodput options" },
    raised_by: &[Command::Report],
};

/// What these rules say of a run.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let o: &Objectives = &facts.objectives;
    let mut found = Vec::new();
    if let (Some(ttft), Some(tpot), Some(e2e)) = (o.ttft_s, o.tpot_s, o.e2e_s) {
        let median = facts.output.p50.or(facts.output.mean);
        found.extend(contradiction(ttft, tpot, e2e, median, facts.output.p95));
    }
    let completed = facts.completed.unwrap_or(0);
    if 0 < o.finished && o.unknown == 0 {
        let share = |n: u64| n as f64 / o.finished as f64;
        let known = o.limits.iter().all(|l| l.known == completed);
        let limits: Vec<(&str, f64)> =
            o.limits.iter().map(|l| (l.text.as_str(), share(l.met))).collect();
        if known {
            found.extend(stricter_than_parts(share(o.good), &limits));
        }
    }
    found.extend(o.limits.iter().filter_map(unit_trap));
    found.extend(absurd_latencies(&facts.ttft, &facts.tpot, completed));
    found
}
