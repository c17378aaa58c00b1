//! Objectives as shares of requests: what plans and settings are judged by.

use metrics_core::slo::{Judgement, Latency, Limit, Slo, SloSet};
use metrics_core::table::Observed;
use metrics_core::units::Seconds;
use sched_sim::Ticks;
use sched_sim::server::Progress;

use crate::error::{PlanError, Result};

/// A share of the requests that has to meet limits.
///
/// `p99(ttft)<1s` is read as "99 % of the requests have a TTFT of at most 1 s", which is the same
/// as `ttft<1s @ 99%`: the percentile of nearest rank. Requests that were refused or never
/// finished meet nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// As it was written.
    pub text: String,
    /// The share.
    pub target: f64,
    limits: SloSet,
}

impl Goal {
    /// Whether a request meets the limits.
    #[must_use]
    pub fn is_met_by(&self, request: &impl Observed) -> bool {
        self.limits.judge(request) == Judgement::Good
    }

    /// Whether a request that is inside a server at `now` cannot meet the limits any more.
    pub(crate) fn is_lost_for(&self, request: &Progress, now: Ticks) -> bool {
        let since = |at: Ticks| now.since(at).map_or(0.0, Ticks::seconds);
        let age = since(request.arrival);
        self.limits.limits().any(|l| {
            let limit = l.limit.get();
            match (l.latency, request.record.first_token()) {
                (Latency::Ttft, None) | (Latency::E2e, _) => limit < age,
                _ => false,
            }
        })
    }

    /// The limit on a latency, if it has one.
    #[must_use]
    pub fn limit(&self, latency: Latency) -> Option<f64> {
        self.limits.limits().find(|l| l.latency == latency).map(|l| l.limit.get())
    }

    /// The same with every limit multiplied.
    ///
    /// A server whose steps take f times as long, seen on a clock that is f times as slow, is the
    /// same server under arrivals and limits that are f times as short.
    pub(crate) fn times(&self, factor: f64) -> Result<Self, PlanError> {
        let scaled = |limit: &Limit| -> Result<Slo, PlanError> {
            let at = Seconds::named("limit", limit.limit.get() * factor)?;
            Ok(Slo::PerRequest(Limit { limit: at, ..*limit }))
        };
        let limits: Result<Vec<Slo>, PlanError> = self.limits.limits().map(scaled).collect();
        Ok(Self { limits: SloSet::new(limits?)?, ..self.clone() })
    }
}

/// The goals of a set of objectives.
///
/// Limits on single requests (`ttft<1s`) are one goal together: the share of requests that meets
/// all of them has to be `attainment`.
///
/// # Errors
///
/// [`PlanError::Input`] for limits on single requests without `attainment`, or the reverse;
/// [`PlanError::Bounds`] for a share that is not above 0 and at most 1.
///
/// # Examples
///
/// ```
/// use capacity::goals::goals;
///
/// let goals = goals(&"p99(ttft)<1s, tpot<50ms @ 95%".parse()?, None)?;
/// assert_eq!((goals[0].target, goals[1].target), (0.99, 0.95));
/// # Ok::<(), capacity::PlanError>(())
/// ```
pub fn goals(slo: &SloSet, attainment: Option<f64>) -> Result<Vec<Goal>, PlanError> {
    let alone = |limit: &Limit| SloSet::new(vec![Slo::PerRequest(*limit)]);
    let mut all = Vec::new();
    let mut together = Vec::new();
    for item in slo.items() {
        match item {
            Slo::PerRequest(_) => together.push(*item),
            Slo::Attainment { limit, target } | Slo::Percentile { limit, p: target } => {
                let target = PlanError::bounds("the share of an SLO", *target, (0.0, 1.0), "")?;
                all.push(Goal { text: item.to_string(), target, limits: alone(limit)? });
            }
        }
    }
    match (attainment, together.first()) {
        (None, Some(first)) => {
            return Err(PlanError::Input {
                input: "attainment",
                problem: format!(
                    "`{first}` says nothing of how many requests have to meet it: write `{first} @ 99%`, or give the share of the requests that has to meet all limits"
                ),
            });
        }
        (Some(_), None) => {
            let problem = "there is no limit on single requests for it, such as ttft<200ms";
            return Err(PlanError::Input { input: "attainment", problem: problem.to_owned() });
        }
        (Some(target), Some(_)) => {
            let target = PlanError::bounds("attainment", target, (0.0, 1.0), "")?;
            let limits = SloSet::new(together)?;
            all.push(Goal { text: format!("{limits} together"), target, limits });
        }
        (None, None) => {}
    }
    Ok(all)
}

/// The strictest limit on a latency over all goals, and the goal that sets it.
#[must_use]
pub fn strictest(goals: &[Goal], latency: Latency) -> Option<(f64, &Goal)> {
    let limits = goals.iter().filter_map(|g| Some((g.limit(latency)?, g)));
    limits.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// Up to how many tokens of an answer the limits on TTFT and TPOT are within that on E2E; none if
/// one of the three is not limited, or if E2E is limited for fewer requests than another of them:
/// `p99(ttft)<2s, p50(e2e)<1s` can both be used up.
///
/// ```text
/// n = (E2E - TTFT) / TPOT + 1, rounded down
/// ```
#[must_use]
pub fn agree_up_to(goals: &[Goal]) -> Option<u64> {
    let of = |latency| strictest(goals, latency).map(|(limit, goal)| (limit, goal.target));
    let ((ttft, first), (e2e, whole)) = (of(Latency::Ttft)?, of(Latency::E2e)?);
    if whole < first {
        return None;
    }
    if e2e < ttft {
        return Some(0);
    }
    let (tpot, _) = of(Latency::Tpot).filter(|(_, target)| *target <= whole)?;
    // A limit of 0 per token leaves any number; the cast saturates.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let more = if tpot == 0.0 { u64::MAX - 1 } else { ((e2e - ttft) / tpot + 1e-9) as u64 };
    Some(more.saturating_add(1))
}

/// Refuses objectives that a mean answer of `mean_output` tokens cannot be at all of at once.
///
/// # Errors
///
/// [`PlanError::Contradiction`] with the number of tokens up to which they agree.
pub fn check_agreement(goals: &[Goal], mean_output: Option<f64>) -> Result<(), PlanError> {
    let Some(n) = agree_up_to(goals) else { return Ok(()) };
    let reach = mean_output.unwrap_or(1.0);
    if reach <= n as f64 {
        return Ok(());
    }
    let said = if n == 0 {
        "the limit on TTFT is above that on E2E".to_owned()
    } else {
        format!(
            "TTFT + (n - 1) * TPOT stays within the limit on E2E up to n = {n} tokens, and a mean answer has {}",
            metrics_core::format::significant(reach, 4)
        )
    };
    Err(PlanError::Contradiction(format!("the SLOs contradict each other: {said}")))
}
