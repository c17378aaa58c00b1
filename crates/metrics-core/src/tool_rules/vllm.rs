//! `vllm bench serve` 0.33.0: `vllm/benchmarks/serve.py`, `calculate_metrics`.

use super::Topic;
use super::sheet::{Beside, Block, Seen, Sheet, Stat, known, percent_name, tpots};
use crate::slo::Latency;

pub(super) fn figures(s: &mut Sheet<'_>) {
    let completed = s.completed();
    let n = s.completed_n();
    let [our_requests, our_output, our_total] = s.our_rates();
    let wall = s.wall();
    let (output, input) = s.tokens();
    let per_second = |x: &Result<f64, String>| Ok(x.clone()? / wall.clone()?);
    let known_counts = (output.clone().ok(), input.clone().ok());
    s.push(("completed", "Successful requests"), Ok(n), Some(n), Topic::Failures);
    let failed = s.sent_n() - n;
    s.push(("failed", "Failed requests"), Ok(failed), Some(s.missed_n()), Topic::Failures);
    s.push(("duration", "Benchmark duration (s)"), wall.clone(), s.our_window(), Topic::TimeBase);
    s.push(
        ("total_input_tokens", "Total input tokens"),
        input.clone(),
        known_counts.1,
        Topic::Tokens,
    );
    s.push(
        ("total_output_tokens", "Total generated tokens"),
        output.clone(),
        known_counts.0,
        Topic::Tokens,
    );
    s.push(
        ("request_throughput", "Request throughput (req/s)"),
        per_second(&Ok(n)),
        our_requests,
        Topic::TimeBase,
    );
    if !s.limits().is_empty() {
        let good = s.good(judged).map(|g| g.len() as f64);
        let (rate, _) = s.our_goodput();
        s.push(
            ("request_goodput", "Request goodput (req/s)"),
            per_second(&good),
            rate,
            Topic::Failures,
        );
    }
    s.push(
        ("output_throughput", "Output token throughput (tok/s)"),
        per_second(&output),
        our_output,
        Topic::Tokens,
    );
    s.push_peaks(&completed);
    let both = output.and_then(|o| Ok(o + input?));
    s.push(
        ("total_token_throughput", "Total token throughput (tok/s)"),
        per_second(&both),
        our_total,
        Topic::Tokens,
    );
    let gaps = known(&completed, "gaps", Seen::gaps).map(|g| g.concat());
    let chunked = completed.iter().any(Seen::gaps_are_chunks);
    let blocks = [
        ("ttft", "TTFT", Beside::Ttft, known(&completed, "ttft", Seen::ttft), Topic::Ttft, None),
        ("tpot", "TPOT", Beside::Tpot, tpots(&completed), Topic::Tpot, None),
        ("itl", "ITL", Beside::Gaps, gaps, Topic::Itl, chunked.then_some("vllm-gap-per-chunk")),
        (
            "e2el",
            "E2EL",
            Beside::E2e,
            known(&completed, "e2e latency", Seen::e2e),
            Topic::E2e,
            None,
        ),
    ];
    for (key, label, beside, values, topic, fault) in blocks {
        let mut rows = vec![
            (format!("mean_{key}_ms"), format!("Mean {label} (ms)"), Stat::Mean),
            (format!("median_{key}_ms"), format!("Median {label} (ms)"), Stat::Median),
            (format!("std_{key}_ms"), format!("Std {label} (ms)"), Stat::Std),
        ];
        for p in s.percentiles() {
            let name = percent_name(p);
            rows.push((format!("p{name}_{key}_ms"), format!("P{name} {label} (ms)"), Stat::P(p)));
        }
        // Without a completed request the tool prints zeros.
        let fault = if completed.is_empty() { Some("vllm-empty-prints-zero") } else { fault };
        s.block(Block { beside, values, scale: 1e3, topic, rows, fault });
    }
}

/// A latency as goodput judges it; a one-token answer has a TPOT of 0.
pub(super) fn judged(r: &Seen<'_>, latency: Latency) -> Result<Option<f64>, String> {
    let lacks = |what: &str| format!("the file lacks the {what} per request");
    match latency {
        Latency::Ttft => r.ttft().map(Some).ok_or_else(|| lacks("ttft")),
        Latency::Tpot => Ok(Some(r.tpot()?.unwrap_or(0.0))),
        Latency::E2e => r.e2e().map(Some).ok_or_else(|| lacks("e2e latency")),
    }
}
