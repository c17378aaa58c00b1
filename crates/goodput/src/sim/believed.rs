//! What a run is usable for: its findings and its verdict.

use anyhow::Result;
use capacity::replica::machine;
use metrics_core::RequestTimeline;
use metrics_core::report::Report;
use metrics_core::table::RequestTable;
use metrics_core::validity::evidence::Conservation;
use metrics_core::validity::load::overloaded;
use metrics_core::validity::{Evidence, Facts, Finding, Verdict, findings};
use sched_sim::{RunEnd, RunStatistics};
use serving_io::roofline::Floor;

use super::{Overload, Setting, is_truncated, served};

/// The checks that a simulation can raise: an exact clock and one client leave the others without
/// meaning.
pub(super) const CHECKS: [&str; 8] = ["W02", "W04", "W10", "W25", "W28", "W32", "W35", "W37"];

/// What a run came to.
pub(super) struct Ran<'a> {
    pub(super) statistics: &'a RunStatistics,
    pub(super) each: &'a [RunStatistics],
    pub(super) end: RunEnd,
    pub(super) overload: Option<Overload>,
}

/// How many requests each replica got, and how many it had at a time; nothing for one server.
fn shares(run: &Ran<'_>, setting: &Setting) -> (Vec<u64>, Vec<f64>) {
    let each = match &setting.pools {
        // Of two pools, the one that is less even.
        Some(pools) => {
            let uneven = |each: &[RunStatistics]| served::imbalance(each).unwrap_or(1.0);
            let [prefill, decode] = pools.split(run.each);
            if uneven(prefill) < uneven(decode) { decode } else { prefill }
        }
        None => run.each,
    };
    if each.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    // Over the time of the whole run, so that they compare.
    let duration = run.statistics.duration().attoseconds() as f64;
    let at_a_time = |s: &RunStatistics| s.in_system_time as f64 / duration;
    let known = if 0.0 < duration { each } else { &[] };
    (each.iter().map(|s| s.injected).collect(), known.iter().map(at_a_time).collect())
}

/// What the run is usable for.
pub(super) fn believed(
    (timelines, all): (&[RequestTimeline], &RequestTable),
    report: Option<&Report>,
    run: &Ran<'_>,
    setting: &Setting,
) -> Result<(Vec<Finding>, Verdict)> {
    let measured = report.filter(|r| r.measured.is_some());
    let cut = measured
        .and_then(|r| r.measured)
        .map(|m| RequestTable::of(timelines.get(m.from..m.to).unwrap_or_default()));
    let table = cut.as_ref().unwrap_or(all);
    // A cache of prompts answers faster than any prefill.
    let floor = machine(&setting.step_time)
        .filter(|_| run.statistics.kv.is_none_or(|kv| kv.counters.hit_tokens == 0));
    let floor = floor.and_then(|m| Floor::of(&m, None).ok());
    let ideal = floor.map_or(Ok(Vec::new()), |floor| floor.against(table))?;
    let evidence = Evidence {
        truncated: is_truncated(report, run.end),
        conservation: Some(conservation(run.statistics)),
        ideal: &ideal,
        latencies: report.and_then(|r| r.latencies),
        ..Evidence::of(table, &setting.slo)
    };
    let mut facts = match measured {
        Some(report) => Facts::of_window(&evidence, all, report),
        None => Facts::new(&evidence),
    };
    (facts.replicas, facts.replicas_in_system) = shares(run, setting);
    Ok(raised(&facts, run.overload))
}

/// What became of the requests of a run.
pub(super) const fn conservation(statistics: &RunStatistics) -> Conservation {
    Conservation {
        injected: statistics.injected,
        completed: statistics.completed,
        running: statistics.running,
        queued: statistics.queued,
        dropped: statistics.rejected,
        timed_out: statistics.timed_out,
        cancelled: statistics.cancelled,
    }
}

/// The findings of a simulation, and what they leave.
///
/// Its load is known, so that a queue need not be seen to grow: a rate that rises within a trace is no
/// overload. That all requests come at once is.
pub(super) fn raised(facts: &Facts, overload: Option<Overload>) -> (Vec<Finding>, Verdict) {
    let guessed = |f: &Finding| f.check.id == "W04" && f.get("sent_within_s").is_none();
    let mut findings = findings(facts);
    findings.retain(|f| CHECKS.contains(&f.check.id) && !guessed(f));
    if let Some(Overload::Growing(load)) = overload {
        findings.extend(overloaded(load));
        findings.sort_by(|a, b| b.level.cmp(&a.level).then(a.check.id.cmp(b.check.id)));
    }
    let verdict = Verdict::of(&findings, &facts.subjects());
    (findings, verdict)
}
