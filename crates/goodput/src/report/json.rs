//! The report as JSON: units end the key names, what is unknown is null.

use anyhow::Result;
use metrics_core::interval::Interval;
use metrics_core::report::{Distribution, Figure, Goodput, Lengths, Report};
use metrics_core::units::Quantity;
use serde_json::{Map, Value, json};
use serving_io::run::RequestRate;

use super::Reported;
use crate::output::json_text;

pub fn render(reported: &[Reported<'_>]) -> Result<String> {
    let runs: Vec<Value> = reported.iter().map(run).collect();
    json_text(&json!({ "schema_version": 1, "kind": "goodput-report", "runs": runs }))
}

fn number(x: Option<impl Quantity>) -> Value {
    x.map_or(Value::Null, |x| json!(x.number()))
}

fn run(r: &Reported<'_>) -> Value {
    let declared = &r.run.declared;
    let rate = match declared.request_rate {
        Some(RequestRate::PerSecond(x)) => json!(x),
        Some(RequestRate::Infinite) => json!("inf"),
        None => Value::Null,
    };
    let notes: Vec<Value> = r
        .run
        .notes
        .iter()
        .map(|n| json!({ "id": n.id, "affects": n.affects, "text": n.text }))
        .collect();
    let missing: Vec<Value> =
        r.run.missing.iter().map(|m| json!({ "what": m.what, "with": m.with })).collect();
    let stated: Map<String, Value> =
        r.run.stated.iter().map(|(k, x)| (k.to_owned(), json!(x))).collect();
    let mut object = json!({
        "file": r.file.name,
        "format": r.file.format.name(),
        "run": r.number,
        "tool": { "name": r.run.tool.name, "version": r.run.tool.version },
        "declared": {
            "model": declared.model,
            "request_rate_per_s": rate,
            "max_concurrency": declared.max_concurrency,
            "num_prompts": declared.num_prompts,
        },
        "confidence": f64::from(r.confidence),
    });
    let Some(map) = object.as_object_mut() else { return object };
    match &r.report {
        Some(report) => figures(map, report),
        None => {
            map.insert(
                "requests".to_owned(),
                json!({ "completed": r.run.counts.completed, "failed": r.run.counts.failed }),
            );
        }
    }
    r.believed.json(map);
    if let Some(sheet) = &r.as_tool {
        map.insert("as".to_owned(), super::as_tool::json(sheet));
    }
    if let Some(groups) = &r.groups {
        map.insert("groups".to_owned(), super::groups::json(groups));
    }
    map.insert("stated_by_tool".to_owned(), Value::Object(stated));
    map.insert("notes".to_owned(), Value::Array(notes));
    map.insert("missing".to_owned(), Value::Array(missing));
    object
}

/// The figures of a report, as keys of a run.
pub fn figures(map: &mut Map<String, Value>, report: &Report) {
    let mut requests = Map::new();
    requests.insert("sent".to_owned(), json!(report.sent()));
    for (outcome, n) in &report.outcomes {
        requests.insert(outcome.name().to_owned(), json!(n));
    }
    map.insert("requests".to_owned(), Value::Object(requests));
    map.insert("window_s".to_owned(), number(report.window.as_ref().map(|w| w.length)));
    map.insert("window_basis".to_owned(), json!(report.window.as_ref().map(|w| &w.basis)));
    if let Some(m) = &report.measured {
        map.insert(
            "measured".to_owned(),
            json!({
                "requests": m.requests(),
                "requests_of_run": m.of,
                "start_s": m.start_s,
                "end_s": m.end_s,
                "completed_within": m.completed,
                "good_within": m.good,
                "truncated": m.truncated,
            }),
        );
    }
    let latency: Map<String, Value> =
        report.latency.iter().map(|d| (d.name.to_owned(), distribution(d))).collect();
    map.insert("latency".to_owned(), Value::Object(latency));
    let t = &report.throughput;
    map.insert(
        "throughput".to_owned(),
        json!({
            "request_throughput_per_s": number(t.requests),
            "output_tokens_per_s": number(t.output),
            "total_tokens_per_s": number(t.total),
            "completed": t.completed,
            "output_tokens": t.output_tokens,
            "input_tokens": t.input_tokens,
            "output_length_tokens": t.output_length.as_ref().map(lengths),
            "input_length_tokens": t.input_length.as_ref().map(lengths),
        }),
    );
    if let Some(s) = report.sketched {
        map.insert("sketch_relative_error".to_owned(), json!(s.relative_error));
    }
    map.insert("goodput".to_owned(), report.goodput.as_ref().map_or(Value::Null, goodput));
    map.insert(
        "resources".to_owned(),
        json!({
            "in_flight_mean": number(report.in_flight_mean()),
            "in_flight_peak": report.in_flight.map(|n| n.peak),
            "in_flight_requests": report.in_flight_n,
        }),
    );
}

/// `p50`, `p99_9`: a percentile's name in a key.
fn percentile_name(p: f64) -> String {
    format!("p{}", metrics_core::format::value(p * 100.0)).replace('.', "_")
}

/// The name of a figure in a key.
fn name(figure: &Figure) -> String {
    figure.p.map_or("mean".to_owned(), percentile_name)
}

fn distribution(d: &Distribution) -> Value {
    let mut map = Map::new();
    // TPOT is in seconds per token; the key of every latency ends in s all the same.
    map.insert("unit".to_owned(), json!(d.unit.to_string()));
    map.insert("n".to_owned(), json!(d.figures.as_ref().map_or(0, |f| f.n)));
    map.insert("one_token_left_out".to_owned(), json!(d.one_token_left_out));
    map.insert("unknown_left_out".to_owned(), json!(d.unknown_left_out));
    if let Some(f) = &d.figures {
        for figure in f.percentiles.iter().chain([&f.mean]) {
            let name = name(figure);
            let (low, high) = match &figure.interval {
                Ok(i) => (i.low, i.high),
                Err(_) => (None, None),
            };
            map.insert(format!("{name}_s"), json!(figure.value));
            map.insert(format!("{name}_low_s"), json!(low));
            map.insert(format!("{name}_high_s"), json!(high));
            map.insert(format!("{name}_interval"), interval(&figure.interval));
        }
        map.insert("max_s".to_owned(), json!(f.max));
    }
    Value::Object(map)
}

/// How an interval was formed, or why there is none.
fn interval(i: &std::result::Result<Interval, impl std::fmt::Display>) -> Value {
    match i {
        Ok(i) => {
            json!({ "method": i.method.to_string(), "samples": i.samples, "blocks": i.blocks })
        }
        Err(reason) => json!({ "none_because": reason.to_string() }),
    }
}

fn lengths(l: &Lengths) -> Value {
    let mut map: Map<String, Value> = metrics_core::report::PERCENTILES
        .iter()
        .zip(&l.percentiles)
        .map(|(p, x)| (percentile_name(*p), json!(x)))
        .collect();
    map.insert("min".to_owned(), json!(l.min));
    map.insert("max".to_owned(), json!(l.max));
    map.insert("mean".to_owned(), json!(l.mean));
    Value::Object(map)
}

fn goodput(g: &Goodput) -> Value {
    let limits: Vec<Value> = g
        .marginals
        .iter()
        .enumerate()
        .map(|(i, m)| {
            json!({
                "limit": m.limit.to_string(),
                "met": m.met,
                "share_of_finished": m.share,
                "binding": g.binding == Some(i),
            })
        })
        .collect();
    let targets: Vec<Value> = g
        .targets
        .iter()
        .map(|t| {
            let (low, high) = t.interval.as_ref().map_or((None, None), |i| (i.low, i.high));
            json!({
                "target": t.slo.to_string(),
                "observed": t.observed,
                "low": low,
                "high": high,
                "interval": interval(&t.interval),
                "answer": t.answer.name(),
            })
        })
        .collect();
    // Percentile targets alone judge no single request, so nothing is good or not.
    let judged = |n: u64| if g.has_limits() { json!(n) } else { Value::Null };
    let why = |said: bool| g.too_narrow.as_ref().filter(|_| said).map(ToString::to_string);
    json!({
        "slo": g.slo.to_string(),
        "goodput_per_s": number(g.rate),
        "goodput_tokens_per_s": number(g.tokens),
        "good": judged(g.good),
        "good_one_token": judged(g.good_one_token),
        "not_judged": g.unknown,
        "goodput_ratio": g.ratio,
        "goodput_ratio_base": g.completed,
        "attainment": g.attainment,
        "attainment_base": g.finished,
        "attainment_low": g.attainment_interval.and_then(|i| i.low),
        "attainment_high": g.attainment_interval.and_then(|i| i.high),
        "attainment_no_interval_because": why(g.attainment_interval.is_none()),
        "attainment_interval_too_narrow_because": why(g.attainment_interval.is_some()),
        "limits": limits,
        "targets": targets,
    })
}
