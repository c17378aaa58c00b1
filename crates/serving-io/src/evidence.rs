//! From what a reader found to what the validity verdict reads.
//!
//! Names and units only: which key of which tool means what. What follows from the figures is the
//! matter of [`metrics_core::validity`].

use metrics_core::Outcome;
use metrics_core::report::{Figures, Goodput, PERCENTILES, Report};
use metrics_core::slo::{Latency, SloSet};
use metrics_core::table::RequestTable;
use metrics_core::units::Quantity;
use metrics_core::validity::evidence::{LimitFacts, Load, Objectives, Rate, Spread, Stated};
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
        ..Evidence::of(requests, slo)
    })
}

/// The facts of a run of which only counts and sketches are held, with the report on them.
///
/// What needs the requests themselves is absent; see [`metrics_core::validity::NEED_REQUESTS`].
#[must_use]
pub fn sketched(run: &Run, report: &Report, slo: &SloSet) -> Facts {
    let mut facts = facts(run, &RequestTable::default(), slo);
    let t = &report.throughput;
    let count = |wanted: fn(Outcome) -> bool| {
        report.outcomes.iter().filter(|(o, _)| wanted(*o)).map(|(_, n)| n).sum::<u64>()
    };
    facts.window_s =
        report.window.as_ref().map(|w| w.length.get()).filter(|w| 0.0 < *w && !run.truncated);
    facts.completed = Some(t.completed);
    facts.missed = Some(count(Outcome::is_miss));
    facts.outside = count(|o| matches!(o, Outcome::Cancelled | Outcome::CutOff));
    for d in &report.latency {
        let Some(of) = d.figures.as_ref().map(spread) else { continue };
        match d.name {
            "ttft" => facts.ttft = of,
            "tpot" => facts.tpot = of,
            "e2e" => facts.e2e = of,
            "itl" => (facts.itl, facts.streams.per_token) = (of, Some(true)),
            "inter_chunk_gap" => (facts.itl, facts.streams.per_token) = (of, Some(false)),
            _ => {}
        }
    }
    facts.input_tokens = t.input_tokens;
    facts.output.total = t.output_tokens;
    if let Some(lengths) = &t.output_length {
        let at = |p| position(p).and_then(|i| lengths.percentiles.get(i).copied());
        facts.output.mean = Some(lengths.mean);
        (facts.output.p50, facts.output.p95) = (at(0.5), at(0.95));
        facts.output.cv = (lengths.min == lengths.max).then_some(0.0);
    }
    facts.requests_per_s = t.requests.map(Quantity::number).or(facts.requests_per_s);
    facts.in_flight = report.in_flight_mean().map(Quantity::number);
    facts.objectives = report.goodput.as_ref().map(|g| judged(g, report)).unwrap_or_default();
    facts
}

/// Where a percentile stands in a report.
fn position(p: f64) -> Option<usize> {
    PERCENTILES.iter().position(|&q| q == p)
}

fn spread(figures: &Figures) -> Spread {
    let at = |p| position(p).and_then(|i| figures.percentiles.get(i)).map(|f| f.value);
    Spread {
        n: Some(figures.n),
        mean: Some(figures.mean.value),
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        max: Some(figures.max),
        ..Spread::default()
    }
}

fn judged(goodput: &Goodput, report: &Report) -> Objectives {
    let limit_of = |l| goodput.slo.limits().find(|x| x.latency == l).map(|x| x.limit.get());
    let unknown = |l: Latency| {
        report.latency.iter().find(|d| d.name == l.name()).map_or(0, |d| d.unknown_left_out)
    };
    if goodput.marginals.is_empty() {
        return Objectives::default();
    }
    let limits = goodput.marginals.iter().map(|m| LimitFacts {
        text: m.limit.to_string(),
        known: goodput.completed.saturating_sub(unknown(m.limit.latency)),
        met: m.met,
        // How many would meet another limit is not counted: as many, so that nothing follows.
        met_times_1000: m.met,
        met_by_1000: m.met,
    });
    Objectives {
        ttft_s: limit_of(Latency::Ttft),
        tpot_s: limit_of(Latency::Tpot),
        e2e_s: limit_of(Latency::E2e),
        limits: limits.collect(),
        good: goodput.good,
        finished: goodput.finished,
        unknown: goodput.unknown,
    }
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
