//! From what a reader found to what the validity verdict reads.
//!
//! Names and units only: which key of which tool means what. What follows from the figures is the
//! matter of [`metrics_core::validity`].

use metrics_core::slo::SloSet;
use metrics_core::table::RequestTable;
use metrics_core::validity::evidence::{Load, Rate, Spread, Stated};
use metrics_core::validity::{Evidence, Facts};

use crate::run::{RequestRate, Run, Values};

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
        counts_disagree: run
            .notes
            .iter()
            .find(|note| note.id == "counts-disagree")
            .map(|note| note.text.as_str()),
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

/// Which figure of a spread a statistic is.
type Slot = fn(&mut Spread) -> &mut Option<f64>;

/// The statistics of a name: `mean_ttft_ms` is the mean of `ttft` in milliseconds.
const STATISTICS: &[(&str, Slot)] = &[
    ("mean", |s| &mut s.mean),
    ("avg", |s| &mut s.mean),
    ("median", |s| &mut s.p50),
    ("p50", |s| &mut s.p50),
    ("p90", |s| &mut s.p90),
    ("p95", |s| &mut s.p95),
    ("p99", |s| &mut s.p99),
    ("std", |s| &mut s.std),
    ("max", |s| &mut s.max),
];

fn stated(run: &Run) -> Stated {
    let mut stated = Stated {
        requests_per_s: run.stated.get("request_throughput"),
        output_tokens_per_s: run.stated.get("output_throughput"),
        tokens_per_s: run.stated.get("throughput").or_else(|| run.stated.get("tokens_per_second")),
        completed: run.counts.completed,
        failed: run.counts.failed,
        input_tokens: run.counts.total_input_tokens,
        output_tokens: run.counts.total_output_tokens,
        ..Stated::default()
    };
    let tool = run.tool.name.to_ascii_lowercase();
    // These two call the gaps of a request, averaged, what all others call TPOT.
    let itl_is_tpot = tool.contains("aiperf") || tool.contains("guidellm");
    for (key, value) in run.stated.iter() {
        let key = key.to_ascii_lowercase().replace(['.', ' '], "_");
        let Some((name, per)) = [("_ms", 1e3), ("_s", 1.0)]
            .into_iter()
            .find_map(|(unit, per)| Some((key.strip_suffix(unit)?, per)))
        else {
            continue;
        };
        let found = STATISTICS.iter().find_map(|(statistic, slot)| {
            let rest = name
                .strip_prefix(&format!("{statistic}_"))
                .or_else(|| name.strip_suffix(&format!("_{statistic}")))?;
            Some((rest, slot))
        });
        let Some((metric, slot)) = found else { continue };
        let spread = match metric {
            "ttft" | "time_to_first_token" => &mut stated.ttft,
            "tpot" => &mut stated.tpot,
            "inter_token_latency" if itl_is_tpot => &mut stated.tpot,
            "itl" | "inter_token_latency" => &mut stated.itl,
            "e2el" | "e2e_latency" | "request_latency" => &mut stated.e2e,
            _ => continue,
        };
        // The sum of a file's own digits is not rounded again: both units end in seconds.
        let value = value / per;
        if value.is_finite() && 0.0 <= value {
            *slot(spread) = Some(value);
        }
    }
    stated
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
