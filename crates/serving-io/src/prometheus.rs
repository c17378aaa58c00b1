//! `/metrics` of an engine, as a run without requests: what a snapshot can tell.
//!
//! Totals count since the server's start, levels are of the moment of the scrape, and latencies
//! are buckets. So a snapshot has counts, means and shares exactly, percentiles only as the ends
//! of a bucket, and neither a window nor joint objectives. Two snapshots differ by what happened
//! between them ([`Snapshot::since`]).
//!
//! - Figures of several models or targets are several runs; they are never mixed, and a percentile
//!   is never averaged.
//! - Data-parallel engines of one server add up: totals, levels of requests, and histograms of the
//!   same bounds. Of the KV utilization the highest is taken, since the fullest one preempts.
//! - Tensor-parallel ranks report the same figures, and the first one counts.
//!
//! The names by engine are the table [`engines::ENGINES`].

pub mod engines;
mod snapshot;
mod text;

use metrics_core::cache::kv_hit_rate;
use metrics_core::format::{count, percent};
use metrics_core::histogram::Histogram;

pub use engines::What;
pub use snapshot::{Levels, Snapshot};
pub use text::{Exemplar, Exposition, Kind, Labels, Sample};

use crate::detect::{Format, Options, Reader};
use crate::error::Result;
use crate::input::{Head, Input};
use crate::run::{Run, Tool};

/// The percentiles that are shown, with their names.
pub const PERCENTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];

/// Reads `/metrics`.
pub struct Prometheus;

impl Reader for Prometheus {
    fn format(&self) -> Format {
        Format::Prometheus
    }

    fn recognizes(&self, head: &Head, options: &Options) -> bool {
        options.map.is_empty() && text::is_exposition(head.first_line())
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let text = Exposition::read(input)?;
        let snapshots = snapshot::snapshots(&name, &text)?;
        Ok(snapshots.into_iter().map(run).collect())
    }
}

/// A snapshot as a run: its figures are stated, its requests unknown.
fn run(snapshot: Snapshot) -> Run {
    let mut run = Run {
        line: 1,
        tool: Tool {
            name: snapshot.engine.to_owned(),
            version: None,
            age: Some(format!("names as in {}", snapshot.names_from)),
        },
        ..Run::default()
    };
    run.declared.model.clone_from(&snapshot.model);
    run.declared.metadata = snapshot.target.clone().into_iter().collect();
    totals(&mut run, &snapshot);
    for (what, histogram) in &snapshot.histograms {
        distribution(&mut run, *what, histogram);
    }
    notes(&mut run, &snapshot);
    for (what, with) in [
        ("latencies per request", "a benchmark client's result, or a log of requests"),
        (
            "goodput and joint attainment",
            "latencies per request: histograms are one by one, and only bound what meets all objectives",
        ),
        (
            "exact percentiles",
            "latencies per request; or buckets of your own with the objective among them (vLLM `--custom-histogram-buckets`, SGLang `--bucket-time-to-first-token`), which makes the share that meets it exact",
        ),
        (
            "rates per second",
            "a second snapshot and the time between them: `goodput diagnose before.txt after.txt --interval 60s`",
        ),
        ("out-of-memory events", "the server's log; no engine exports them"),
    ] {
        run.lacks(what, with);
    }
    run.server = Some(Box::new(snapshot));
    run
}

/// Counts and levels.
fn totals(run: &mut Run, snapshot: &Snapshot) {
    let mut push = |name: String, value: f64| run.stated.push(name, value);
    for (what, levels) in &snapshot.gauges {
        let value = if *what == What::KvUtilization { levels.max() } else { levels.sum() };
        push(what.name().to_owned(), value);
    }
    for (what, value) in &snapshot.counters {
        push(what.name().to_owned(), *value);
    }
    for (reason, value) in &snapshot.finished {
        push(format!("finished_requests_{reason}"), *value);
    }
    if let Some((hits, queries)) = snapshot.prefix_cache()
        && let Some(rate) = hit_rate(hits, queries)
    {
        push("kv_hit_rate".to_owned(), rate);
    }
    run.counts.completed = snapshot.completed().and_then(whole);
    run.counts.failed = snapshot.finished.get("error").copied().and_then(whole);
    run.counts.total_input_tokens = snapshot.counter(What::PromptTokens).and_then(whole);
    run.counts.total_output_tokens = snapshot.counter(What::OutputTokens).and_then(whole);
}

/// The share of look-ups that hit; none without a look-up.
#[must_use]
pub fn hit_rate(hits: f64, queries: f64) -> Option<f64> {
    kv_hit_rate(whole(hits)?, whole(queries)?).ok()
}

/// A count that an exposition writes as a float.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is whole and in range"
)]
fn whole(x: f64) -> Option<u64> {
    (0.0 <= x && x <= 2_f64.powi(53) && x.fract() == 0.0).then_some(x as u64)
}

/// Count, mean and the buckets of the percentiles.
fn distribution(run: &mut Run, what: What, histogram: &Histogram) {
    let unit = match what {
        What::PromptLength | What::OutputLength => "",
        _ => "_s",
    };
    let name = what.name();
    run.stated.push(format!("{name}_count"), histogram.count() as f64);
    if let Some(mean) = histogram.mean() {
        run.stated.push(format!("{name}_mean{unit}"), mean);
    }
    if histogram.is_all_zero() {
        run.note(
            "all-zero",
            &["ttft", "tpot", "itl", "e2e_latency"],
            format!(
                "{name}: all {} observations are 0, so the engine does not measure it and no percentile is given",
                count(histogram.count() as f64)
            ),
        );
        return;
    }
    for (p, q) in PERCENTILES {
        let Ok(Some(range)) = histogram.quantile(q) else { continue };
        run.stated.push(format!("{name}_{p}_at_least{unit}"), range.low);
        if let Some(high) = range.high {
            run.stated.push(format!("{name}_{p}_at_most{unit}"), high);
        }
        if let Ok(Some(x)) = histogram.point(q) {
            run.stated.push(format!("{name}_{p}_interpolated{unit}"), x);
        }
    }
}

fn notes(run: &mut Run, snapshot: &Snapshot) {
    run.note(
        "since-start",
        &["ttft", "tpot", "e2e_latency", "preemption_rate", "kv_hit_rate"],
        "totals and latencies count everything since the server's start, warm-up included"
            .to_owned(),
    );
    if !snapshot.gauges.is_empty() {
        run.note(
            "one-moment",
            &["kv_utilization", "requests_in_service"],
            "running, waiting and KV utilization are of the moment of the scrape, no means"
                .to_owned(),
        );
    }
    if !snapshot.histograms.is_empty() {
        run.note(
            "buckets",
            &["ttft", "tpot", "itl", "e2e_latency"],
            "a percentile is only known to lie in a bucket; one number is interpolated where the bucket is narrow, and can be off by its width".to_owned(),
        );
    }
    if let (Some(n), Some((hits, _))) =
        (snapshot.counter(What::Preemptions).filter(|n| 0.0 < *n), snapshot.prefix_cache())
        && 0.0 < hits
    {
        run.note(
            "hits-after-preemption",
            &["kv_hit_rate"],
            format!(
                "a request that is prefilled again after one of the {} preemptions hits its own blocks, so the hit rate is too high",
                count(n)
            ),
        );
    }
    if let (Some(processed), Some(sum)) = (
        snapshot.counter(What::PromptTokens),
        snapshot.histograms.get(&What::PromptLength).and_then(Histogram::sum),
    ) && sum < processed
    {
        run.note(
            "unfinished-tokens",
            &["request_throughput"],
            format!(
                "{} of {} prompt tokens ({}) are of requests that have not ended or whose client went away, and are in no latency",
                count(processed - sum),
                count(processed),
                percent((processed - sum) / processed)
            ),
        );
    }
    if let Some(n) = snapshot.finished.get("abort").filter(|n| 0.0 < **n) {
        run.note(
            "aborted",
            &["request_throughput", "slo_attainment"],
            format!("{} requests were aborted, which the engine counts as success; here they are no completed ones", count(*n)),
        );
    }
    for text in &snapshot.decided {
        run.note("metrics-read", &["kv_utilization", "requests_in_service"], text.clone());
    }
    let running = snapshot.gauges.get(&What::Running);
    if let Some(levels) = running.filter(|l| 1 < l.0.len()) {
        let mean = levels.sum() / levels.0.len() as f64;
        if 1.3 * mean < levels.max() {
            run.note(
                "hot-replica",
                &["requests_in_service"],
                format!(
                    "{} engines share the load, and the busiest runs {} requests where the mean is {}",
                    levels.0.len(),
                    count(levels.max()),
                    count(mean)
                ),
            );
        }
    }
}
