//! From what a reader found to what the validity verdict reads.
//!
//! Names and units only: which key of which tool means what. What follows from the figures is the
//! matter of [`metrics_core::validity`].

use metrics_core::Outcome;
use metrics_core::report::{Figures, Goodput, PERCENTILES, Report};
use metrics_core::slo::{Latency, SloSet};
use metrics_core::table::RequestTable;
use metrics_core::units::Quantity;
use metrics_core::validity::evidence::{
    Conservation, LimitFacts, Load, Objectives, Rate, Server, Spread, Stated,
};
use metrics_core::validity::{Evidence, Facts};

use crate::prometheus::{Levels, Snapshot, What};
use crate::run::{RequestRate, Run, Values};
use crate::stated::{self, Of, Statistic};

/// The facts of a run under objectives; `requests` is the table of its timelines, and `report` what
/// was computed from it, if there is one: nothing is then sorted twice.
#[must_use]
pub fn facts(run: &Run, requests: &RequestTable, slo: &SloSet, report: Option<&Report>) -> Facts {
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
        counts_disagree: note(run, "counts-disagree"),
        called_invalid: note(run, "result-invalid"),
        latencies: report.and_then(|r| r.latencies),
        // The requests of a simulation are its books; counts of a large file are not in the table.
        conservation: (run.tool.name == crate::simulation::TOOL && !requests.is_empty())
            .then(|| Conservation::of(requests)),
        ..Evidence::of(requests, slo)
    })
}

/// What the note of that id says, if the reader made one.
fn note<'a>(run: &'a Run, id: &str) -> Option<&'a str> {
    run.notes.iter().find(|note| note.id == id).map(|note| note.text.as_str())
}

/// The facts of a run of which only counts and sketches are held, with the report on them.
///
/// What needs the requests themselves is absent; see [`metrics_core::validity::NEED_REQUESTS`].
#[must_use]
pub fn sketched(run: &Run, report: &Report, slo: &SloSet) -> Facts {
    let mut facts = facts(run, &RequestTable::default(), slo, None);
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
