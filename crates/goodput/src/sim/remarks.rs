//! What a run leaves out of its requests, or does with them that nobody would.

use std::collections::HashMap;

use metrics_core::format;
use sched_sim::{RequestRecord, RunResult, Workload};
use serving_io::policy::caches_prefixes;
use serving_io::trace::shared_prefix;

use super::Setting;

/// That requests begin alike and are computed in full all the same, unless that was asked for.
pub(super) fn ignored_prefixes(setting: &Setting, workload: &Workload) -> Option<String> {
    // With a cache of prefixes, whoever switches it off knows that they are ignored.
    let can_keep =
        caches_prefixes(&setting.policy) && setting.server.kv_blocks.is_some() || setting.is_vllm();
    if can_keep {
        return None;
    }
    let shared = shared_prefix(workload).filter(|share| 0.0 < *share)?;
    Some(format!(
        "{} of the prompt tokens are the beginning of an earlier request, and all are computed again: \
         no prefixes are kept here (vllm-v1 keeps them, and sglang with --kv-blocks)",
        format::percent(shared)
    ))
}

/// How many requests come with an answer in their prompt that is not there yet; `waiting`: whether
/// clients wait for their answers, so that it never will be.
pub(super) fn quoted_too_early(result: &RunResult<'_>, waiting: bool) -> Option<String> {
    let requests = result.workload().requests();
    let contents = requests.iter().map(|r| r.content.as_deref());
    let answers: HashMap<u64, usize> = contents
        .enumerate()
        .filter_map(|(position, content)| Some((content?.answer?, position)))
        .collect();
    let over = |position: usize| result.records().get(position).and_then(RequestRecord::last_token);
    let (mut quoting, mut early) = (0_u64, 0_u64);
    for request in requests.iter().filter(|_| !answers.is_empty()) {
        let prompt = request.content.iter().flat_map(|content| &content.prompt);
        let mut quoted = prompt.filter_map(|(segment, _)| answers.get(segment)).peekable();
        quoting += u64::from(quoted.peek().is_some());
        let is_early = quoted.any(|&of| over(of).is_none_or(|end| request.arrival < end));
        early += u64::from(is_early);
    }
    (0 < early).then(|| {
        let share = format::percent(early as f64 / quoting as f64);
        let quoting = format::things(quoting, "request");
        if waiting {
            return format!(
                "{early} of {quoting} that quote answers quote one in full whose client left before its \
                 last token ({share})"
            );
        }
        format!(
            "{early} of {quoting} that quote answers arrive before the last token of one of them ({share}): \
             think times count from arrivals, and a client that waits for answers (--think-after answer) \
             would ask later"
        )
    })
}
