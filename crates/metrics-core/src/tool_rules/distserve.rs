//! DistServe (OSDI '24): attainment over all requests, with our TTFT and TPOT.

use super::Topic;
use super::sheet::Sheet;
use crate::slo::Latency;

pub(super) fn figures(s: &mut Sheet<'_>) {
    let sent = s.sent_n();
    let of = |r: &super::sheet::Seen<'_>, l: Latency| {
        l.of(r.t).map(Some).ok_or_else(|| format!("the file lacks the {} per request", l.name()))
    };
    let good = s.good(of).map(|g| g.len() as f64 / sent);
    let (_, attainment) = s.our_goodput();
    s.push(("attainment", "SLO attainment (share)"), good, attainment, Topic::Failures);
    for (latency, key, label) in [
        (Latency::Ttft, "ttft_attainment", "TTFT attainment (share)"),
        (Latency::Tpot, "tpot_attainment", "TPOT attainment (share)"),
    ] {
        let Some(limit) = s.limits().into_iter().find(|l| l.latency == latency) else {
            let why = format!("no limit on {} was given: --slo", latency.name());
            s.push((key, label), Err(why), None, Topic::Failures);
            continue;
        };
        let met: Result<Vec<Option<f64>>, String> =
            s.completed().iter().map(|r| of(r, latency)).collect();
        let met = met
            .map(|v| v.into_iter().flatten().filter(|&x| limit.is_met_by(x)).count() as f64 / sent);
        let ours = s.known.report.goodput.as_ref().and_then(|g| {
            g.marginals.iter().find(|m| m.limit.latency == latency).and_then(|m| m.share)
        });
        s.push((key, label), met, ours, Topic::Failures);
    }
    let why = "it is the highest rate at which attainment holds: run several rates".to_owned();
    let (goodput, _) = s.our_goodput();
    s.push(("goodput", "Goodput (req/s)"), Err(why), goodput, Topic::TimeBase);
}
