//! From what a reader found to what the validity verdict reads.
//!
//! Names and units only: which key of which tool means what. What follows from the figures is the
//! matter of [`metrics_core::validity`].

use metrics_core::slo::SloSet;
use metrics_core::table::RequestTable;
use metrics_core::validity::evidence::{Load, Rate, Server, Stated};
use metrics_core::validity::{Evidence, Facts};

use crate::prometheus::{Levels, Snapshot, What};
use crate::run::{RequestRate, Run, Values};
use crate::stated::{self, Of, Statistic};

/// The facts of a run under objectives; `requests` is the table of its timelines.
#[must_use]
pub fn facts(run: &Run, requests: &RequestTable, slo: &SloSet) -> Facts {
    let client_delay_s = numbers(run, &["client_delay_s"]);
    let cached_tokens = numbers(run, &["cached_tokens"]);
    let prompts = texts(run, &["prompt_hash", "prompt"]);
    let replicas = texts(run, &["replica", "worker", "instance", "pod"]);
    Facts::new(&Evidence {
        client_delay_s: &client_delay_s,
        cached_tokens: &cached_tokens,
        prompts: &prompts,
        replicas: &replicas,
        load: load(run),
        window_s: run.duration.map(|d| d.value.get()),
        truncated: run.truncated,
        stated: stated(run),
        ..Evidence::of(requests, slo)
    })
}

/// The first column of one of these names, as numbers; empty if there is none.
fn numbers(run: &Run, names: &[&str]) -> Vec<Option<f64>> {
    match names.iter().find_map(|name| run.column(name)).map(|c| &c.values) {
        Some(Values::Number(values)) => values.clone(),
        _ => Vec::new(),
    }
}

/// The first column of one of these names, as texts; empty if there is none.
fn texts(run: &Run, names: &[&str]) -> Vec<Option<String>> {
    match names.iter().find_map(|name| run.column(name)).map(|c| &c.values) {
        Some(Values::Text(values)) => values.clone(),
        Some(Values::Number(values)) => values.iter().map(|x| x.map(|x| x.to_string())).collect(),
        None => Vec::new(),
    }
}

fn load(run: &Run) -> Load {
    let d = &run.declared;
    let dataset = d.metadata.iter().find(|(key, _)| key == "dataset_name");
    Load {
        rate: d.request_rate.map(|rate| match rate {
            RequestRate::PerSecond(x) => Rate::PerSecond(x),
            RequestRate::Infinite => Rate::Unlimited,
        }),
        concurrency: d.max_concurrency,
        burstiness: d.burstiness,
        number: d.num_prompts,
        duration_s: None,
        random_prompts: dataset.map(|(_, name)| name.contains("random")),
    }
}

/// The figures that the tool states, each under the name that its reader keeps.
fn stated(run: &Run) -> Stated {
    let mut stated = Stated {
        completed: run.counts.completed,
        failed: run.counts.failed,
        input_tokens: run.counts.total_input_tokens,
        output_tokens: run.counts.total_output_tokens,
        ..Stated::default()
    };
    for figure in stated::figures(run) {
        let x = Some(figure.value);
        let spread = match figure.of {
            Of::Ttft => &mut stated.ttft,
            Of::Tpot => &mut stated.tpot,
            Of::Itl => &mut stated.itl,
            Of::E2e => &mut stated.e2e,
            Of::Requests => {
                stated.requests_per_s = x;
                continue;
            }
            Of::OutputTokens => {
                stated.output_tokens_per_s = x;
                continue;
            }
            Of::Tokens => {
                stated.tokens_per_s = x;
                continue;
            }
            Of::TotalTokens => continue,
        };
        let slot = match figure.statistic {
            Statistic::Mean => &mut spread.mean,
            Statistic::Std => &mut spread.std,
            Statistic::Max => &mut spread.max,
            Statistic::P(p) => match percent(p) {
                50 => &mut spread.p50,
                90 => &mut spread.p90,
                95 => &mut spread.p95,
                99 => &mut spread.p99,
                _ => continue,
            },
            Statistic::Count => {
                spread.n = whole(figure.value);
                continue;
            }
            Statistic::Min => continue,
        };
        *slot = x;
    }
    stated
}

/// A share in whole per cent; 0 if it is not whole.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100")]
fn percent(p: f64) -> u32 {
    let percent = p * 100.0;
    if (percent - percent.round()).abs() < 1e-9 { percent.round() as u32 } else { 0 }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a count"
)]
fn whole(x: f64) -> Option<u64> {
    (x.fract() == 0.0 && 0.0 <= x && x < 2_f64.powi(53)).then_some(x as u64)
}

/// What an engine's scrape says of the run, beside a client whose median TTFT is known.
///
/// The server's median is known as a bucket only: of it the end that is nearest to the client's is
/// taken, so that a finding never rests on the width of a bucket. The highest KV utilization is the
/// level of the moment, unless nothing runs.
#[must_use]
pub fn server(snapshot: &Snapshot, client_ttft_p50_s: Option<f64>) -> Server {
    let median = snapshot.histograms.get(&What::Ttft).and_then(|h| h.quantile(0.5).ok().flatten());
    let nearest = median.map(|range| match (client_ttft_p50_s, range.high) {
        (Some(client), Some(high)) => client.clamp(range.low, high.max(range.low)),
        (Some(client), None) => client.max(range.low),
        (None, _) => range.low,
    });
    let idle = snapshot.gauges.get(&What::Running).is_some_and(|l| l.sum() == 0.0);
    let count = |x: Option<f64>| x.map(f64::round).and_then(whole);
    let cache = snapshot.prefix_cache();
    Server {
        ttft_p50_s: nearest,
        preemptions: count(snapshot.counter(What::Preemptions)),
        completions: count(snapshot.completed()),
        kv_peak: snapshot.gauges.get(&What::KvUtilization).filter(|_| !idle).map(Levels::max),
        prompt_tokens: count(snapshot.counter(What::PromptTokens)),
        lookup_tokens: count(cache.map(|(_, queries)| queries)),
        hit_tokens: count(cache.map(|(hits, _)| hits)),
        ..Server::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_figure_is_found_by_its_parts() {
        let mut run = Run::default();
        for (name, x) in [
            ("mean_ttft_ms", 15_510.0),
            ("p99_e2e_latency_ms", 80_000.0),
            ("median_itl_ms", 38.9),
            ("ttft.p95.ms", 20_000.0),
            ("std_tpot_ms", f64::NAN),
            ("mean_input_len", 4.0),
        ] {
            run.stated.push(name.to_owned(), x);
        }
        let s = stated(&run);
        assert_eq!((s.ttft.mean, s.ttft.p95), (Some(15.51), Some(20.0)));
        assert_eq!((s.e2e.p99, s.itl.p50, s.tpot.std), (Some(80.0), Some(0.0389), None));
        run.tool.name = "AIPerf".to_owned();
        run.stated.push("inter_token_latency_avg_ms".to_owned(), 9.0);
        assert_eq!(super::stated(&run).tpot.mean, Some(0.009));
    }
}
