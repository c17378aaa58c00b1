//! What a workload is like: rates, how bursty it is, lengths, and what its prompts share.

use std::collections::HashMap;

use metrics_core::summary::Summary;
use sched_sim::{Ticks, Workload};

/// The figures of a workload.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceProfile {
    /// How many requests.
    pub requests: u64,
    /// From the first arrival to the last, in seconds.
    pub span_s: f64,
    /// Gaps over the span, in requests per second; none if all arrive at one instant.
    pub rate_per_s: Option<f64>,
    /// Most arrivals in a minute of the clock that begins with time zero, in requests per second;
    /// none below one whole minute.
    pub peak_minute_per_s: Option<f64>,
    /// Standard deviation over mean of the gaps between arrivals: 1 for Poisson, above it bursts;
    /// none below two gaps, or if all are 0.
    pub gap_cv: Option<f64>,
    /// Tokens of prompts.
    pub input_tokens: Summary,
    /// Tokens of answers.
    pub output_tokens: Summary,
    /// The share of prompt tokens that an earlier request begins with, its answer included: the hit
    /// rate of a prefix cache that never evicts and counts single tokens. None if no request says
    /// which tokens it has.
    pub shared_prefix: Option<f64>,
}

impl TraceProfile {
    /// The figures of a workload with at least one request; none without.
    #[must_use]
    pub fn of(workload: &Workload) -> Option<Self> {
        let requests = workload.requests();
        let gaps: Vec<f64> = requests
            .windows(2)
            .filter_map(|w| match w {
                [a, b] => Some(b.arrival.since(a.arrival)?.seconds()),
                _ => None,
            })
            .collect();
        let span_s = workload.span()?.seconds();
        let gaps = Summary::new(gaps).ok();
        let gap_cv = gaps.as_ref().and_then(|g| Some(g.std()? / g.mean()));
        let tokens = |of: fn(&sched_sim::WorkloadRequest) -> u64| {
            Summary::new(requests.iter().map(|r| of(r) as f64).collect()).ok()
        };
        Some(Self {
            requests: workload.len() as u64,
            span_s,
            rate_per_s: (0.0 < span_s).then(|| (workload.len() - 1) as f64 / span_s),
            peak_minute_per_s: peak_minute(workload),
            gap_cv: gap_cv.filter(|cv| cv.is_finite()),
            input_tokens: tokens(|r| r.input_tokens)?,
            output_tokens: tokens(|r| r.output_tokens)?,
            shared_prefix: shared_prefix(workload),
        })
    }
}

/// Most arrivals of a whole minute.
fn peak_minute(workload: &Workload) -> Option<f64> {
    let minute = 60 * Ticks::SECOND.attoseconds();
    let of = |at: Ticks| at.attoseconds() / minute;
    let (first, last) = (workload.requests().first()?, workload.requests().last()?);
    // The last minute is over only if somebody comes after it.
    let whole = of(first.arrival)..of(last.arrival);
    let mut peak = None;
    let mut rest = workload.requests();
    while let Some(r) = rest.first() {
        let now = of(r.arrival);
        let n = rest.partition_point(|r| of(r.arrival) == now);
        if whole.contains(&now) {
            peak = peak.max(Some(n));
        }
        rest = rest.get(n..).unwrap_or_default();
    }
    peak.map(|n| n as f64 / 60.0)
}

/// A place in the tree of everything that was said so far.
type Node = u64;

/// The share of prompt tokens that an earlier request begins with, its answer included; `None` if no
/// request says which tokens it has.
#[must_use]
pub fn shared_prefix(workload: &Workload) -> Option<f64> {
    let mut known: HashMap<(Node, u64, u64), Node> = HashMap::new();
    // The longest piece of a segment that follows a place.
    let mut longest: HashMap<(Node, u64), u64> = HashMap::new();
    let (mut shared, mut total) = (0_u64, 0_u64);
    let mut any = false;
    for r in workload.requests() {
        total += r.input_tokens;
        let Some(content) = &r.content else { continue };
        any = true;
        let (mut node, mut same) = (0, true);
        let answer = content.answer.map(|segment| (segment, r.output_tokens));
        let prompt = content.prompt.iter().map(|&piece| (piece, true));
        for ((segment, tokens), asked) in prompt.chain(answer.map(|piece| (piece, false))) {
            let most = longest.entry((node, segment)).or_default();
            if same && asked {
                shared += tokens.min(*most);
                // A piece that ends elsewhere leaves no way on.
                same = known.contains_key(&(node, segment, tokens));
            }
            *most = tokens.max(*most);
            let next = known.len() as Node + 1;
            node = *known.entry((node, segment, tokens)).or_insert(next);
        }
    }
    (any && 0 < total).then(|| shared as f64 / total as f64)
}
