//! GuideLLM 0.8.1: `guidellm/schemas/request_stats.py`, `statistics.py` and
//! `guidellm/benchmark/schemas/generative/metrics.py`.

use super::Topic;
use super::sheet::{Beside, Seen, Sheet, Stat, Value, every, known};
use super::weighted::{Weighted, in_flight, rate};
use crate::slo::Latency;
use crate::timeline::Outcome;

const PERCENTILES: [(f64, &str); 11] = [
    (0.001, "p001"),
    (0.01, "p01"),
    (0.05, "p05"),
    (0.1, "p10"),
    (0.25, "p25"),
    (0.5, "p50"),
    (0.75, "p75"),
    (0.9, "p90"),
    (0.95, "p95"),
    (0.99, "p99"),
    (0.999, "p999"),
];

pub(super) fn figures(s: &mut Sheet<'_>) {
    let ok = s.completed();
    let n = s.completed_n();
    let failed = s.missed_n();
    let incomplete = s.sent_n() - n - failed;
    for (key, label, count) in [
        ("successful", "Requests Comp", n),
        ("errored", "Requests Err", failed),
        ("incomplete", "Requests Inc", incomplete),
    ] {
        let key = format!("request_totals.{key}");
        s.push((&key, label), Ok(count), Some(count), Topic::Failures);
    }
    let prompts = known(&ok, "input tokens", |r| Some((r.input()?, 1.0)));
    let generated = known(&ok, "output tokens", |r| Some((r.output()?, 1.0)));
    let latency = known(&ok, "request latency", |r| Some((r.stream_end()?, 1.0)));
    let ttft = known(&ok, "ttft", |r| Some((r.ttft()? * 1e3, 1.0)));
    let itl = known(&ok, "e2e latency and output tokens", |r| {
        let n = r.output()?;
        let gap = r.tpot().ok()?;
        // One token has no gap, and a weight of 0 leaves it out.
        Some((gap.unwrap_or(0.0) * 1e3, (n - 1.0).max(0.0)))
    });
    let tpot = known(&ok, "e2e latency and output tokens", |r| {
        let n = r.output()?;
        Some((r.e2e()? / n * 1e3, n))
    });
    for (key, label, beside, scale, values, topic) in [
        ("request_latency", "Request Latency (s)", Beside::E2e, 1.0, latency, Topic::E2e),
        ("time_to_first_token_ms", "TTFT (ms)", Beside::Ttft, 1e3, ttft, Topic::Ttft),
        ("inter_token_latency_ms", "ITL (ms)", Beside::Tpot, 1e3, itl, Topic::Itl),
        ("time_per_output_token_ms", "TPOT (ms)", Beside::Tpot, 1e3, tpot, Topic::Tpot),
        ("prompt_token_count", "Input Tok Per Req", Beside::Input, 1.0, prompts, Topic::Percentile),
        (
            "output_token_count",
            "Output Tok Per Req",
            Beside::Output,
            1.0,
            generated,
            Topic::Percentile,
        ),
    ] {
        distribution(s, key, label, beside, scale, values, topic);
        if key == "time_per_output_token_ms" {
            s.with_fault("guidellm-tpot-with-prefill");
        }
    }
    over_time(s);
    goodput(s);
}

/// Mean, median, spread and percentiles of a weighted distribution.
fn distribution(
    s: &mut Sheet<'_>,
    key: &str,
    label: &str,
    beside: Beside,
    scale: f64,
    values: Value<Vec<(f64, f64)>>,
    topic: Topic,
) {
    let w = values
        .and_then(|v| Weighted::new(v).ok_or_else(|| "no completed request has it".to_owned()));
    let mut add = |stat: &str, ours: Stat, of: &dyn Fn(&Weighted) -> f64, topic| {
        let ours = s.ours_of(beside, ours).map(|x| x * scale);
        let key = format!("{key}.successful.{stat}");
        let shown = stat.trim_start_matches("percentiles.");
        s.push((&key, &format!("{label} {shown}")), w.clone().map(|w| of(&w)), ours, topic);
    };
    // Unweighted samples differ from ours by the way in which the percentile is taken alone.
    let by = if matches!(topic, Topic::Itl | Topic::Tpot) { topic } else { Topic::Percentile };
    add("mean", Stat::Mean, &Weighted::mean, topic);
    add("median", Stat::Median, &|w| w.percentile(0.5), by);
    add("std_dev", Stat::Std, &Weighted::std, topic);
    for (p, name) in PERCENTILES {
        let stat = format!("percentiles.{name}");
        add(&stat, Stat::P(p * 100.0), &|w| w.percentile(p), by);
    }
}

/// The measured window on the clock of the arrivals.
fn window(s: &Sheet<'_>) -> Value<(f64, f64)> {
    let stated = s.known.number(&["measure_start_s"]).zip(s.known.number(&["measure_end_s"]));
    if let Some(window) = stated {
        return Ok(window);
    }
    let all = s.seen();
    let starts = every(&all, "start", Seen::start)?;
    let first = starts.into_iter().fold(f64::INFINITY, f64::min);
    Ok((first, first + s.wall()?))
}

/// When the request's stream ended, or it failed.
fn ended(r: &Seen<'_>) -> Option<f64> {
    let whole = r.stream_end().and_then(|after| Some(r.start()? + after));
    whole.or_else(|| r.column(&["request_end_s"])).or_else(|| r.column(&["resolve_end_s"]))
}

/// Output tokens and their instants: one at the first token, the others evenly up to the last, in
/// as many steps as the stream had.
fn outputs(r: &Seen<'_>) -> Option<Vec<(f64, f64)>> {
    // What had come of a failed request is in the columns of the tool's own file alone.
    let Some(n) = r.output().or_else(|| r.column(&["output_tokens"])) else {
        // No token at its end is an event of its own, which divides the time between others.
        let none = ended(r).map(|at| (at, 0.0)).into_iter().collect();
        return (r.t.outcome() != Outcome::Completed).then_some(none);
    };
    let start = r.start()?;
    let last = r.e2e().map(|after| start + after);
    let last = last.or_else(|| r.column(&["last_token_iteration_s"]))?;
    let chunks = r.column(&["token_iterations"]);
    let steps = chunks.or_else(|| Some(r.gaps()?.len() as f64 + 1.0)).unwrap_or(n);
    if steps <= 1.0 || n <= 1.0 {
        return Some(vec![(last, n)]);
    }
    let first = start + r.ttft()?;
    let each = (n - 1.0) / (steps - 1.0);
    let mut events = vec![(first, 1.0)];
    let mut step = 1.0;
    while step < steps {
        events.push((first + (last - first) * step / (steps - 1.0), each));
        step += 1.0;
    }
    Some(events)
}

/// The prompt's tokens at the first token, else at the end.
fn prompt(r: &Seen<'_>) -> Option<(f64, f64)> {
    let at = match r.ttft() {
        Some(ttft) => r.start()? + ttft,
        None => ended(r)?,
    };
    Some((at, r.input()?))
}

/// The rate of what each request has, at its end and without a window.
fn at_end<'b>(ok: &[Seen<'b>], of: impl Fn(&Seen<'b>) -> Option<f64>) -> Value<Weighted> {
    every(ok, "tokens and end", |r| Some((ended(r)?, of(r)?)))
        .and_then(|v| rate(&v, None).ok_or_else(|| "fewer than two instants".to_owned()))
}

/// Means and medians of rates and of the number in flight.
fn over_time(s: &mut Sheet<'_>) {
    let ok = s.completed();
    let all: Vec<Seen<'_>> = s
        .seen()
        .into_iter()
        .filter(|r| r.t.outcome() == Outcome::Completed || r.t.outcome().is_miss())
        .collect();
    let [our_requests, our_output, our_total] = s.our_rates();
    let window = window(s);
    let none = || "fewer than two instants".to_owned();
    let curve = |events: Value<Vec<(f64, f64)>>| {
        let (events, window) = (events?, window.clone()?);
        rate(&events, Some(window)).ok_or_else(none)
    };
    let ends = |r: &[Seen<'_>]| every(r, "end", |r| Some((ended(r)?, 1.0)));
    let tokens = |r: &[Seen<'_>]| every(r, "instants of its tokens", outputs).map(|v| v.concat());
    let prompts = |r: &[Seen<'_>]| every(r, "input tokens and end", prompt);
    let intervals = every(&all, "end", |r| Some((r.start()?, ended(r)?)));
    let flying = intervals.and_then(|v| in_flight(&v, window.clone()?).ok_or_else(none));
    let our_flying = s.known.report.in_flight.map(|f| f.mean.get());
    s.push(
        ("request_concurrency.total.median", "Concurrency Mdn"),
        flying.clone().map(|w| w.percentile(0.5)),
        None,
        Topic::InFlight,
    );
    s.push(
        ("request_concurrency.total.mean", "Concurrency Mean"),
        flying.map(|w| w.mean()),
        our_flying,
        Topic::InFlight,
    );
    let input_rate = s.tokens().1.ok().zip(s.our_window()).map(|(n, w)| n / w);
    let both = |r: &[Seen<'_>]| {
        let mut events = prompts(r)?;
        events.extend(tokens(r)?);
        Ok(events)
    };
    let rows = [
        ("requests_per_second.total", "Requests Per Sec (all)", ends(&all), our_requests),
        ("requests_per_second.successful", "Requests Per Sec (completed)", ends(&ok), our_requests),
        ("prompt_tokens_per_second.total", "Input Tokens Per Sec (all)", prompts(&all), input_rate),
        ("output_tokens_per_second.total", "Output Tokens Per Sec (all)", tokens(&all), our_output),
        (
            "output_tokens_per_second.successful",
            "Output Tokens Per Sec (completed)",
            tokens(&ok),
            our_output,
        ),
        ("tokens_per_second.total", "Total Tokens Per Sec (all)", both(&all), our_total),
    ];
    for (key, label, events, ours) in rows {
        let w = curve(events);
        let mean = w.clone().map(|w| w.mean());
        s.push((&format!("{key}.mean"), &format!("{label} Mean")), mean, ours, Topic::TimeBase);
        s.with_fault("guidellm-tail-dropped");
        let median = w.map(|w| w.percentile(0.5));
        s.push((&format!("{key}.median"), &format!("{label} Mdn")), median, None, Topic::TimeBase);
    }
    // Its table of text has no window: from the first to the last end of a completed request.
    for (key, label, w, ours) in [
        ("input_per_second", "Input Tokens Per Second", at_end(&ok, Seen::input), input_rate),
        ("output_per_second", "Output Tokens Per Second", at_end(&ok, Seen::output), our_output),
    ] {
        let key = |stat: &str| format!("text.tokens.{key}.successful.{stat}");
        let median = w.clone().map(|w| w.percentile(0.5));
        s.push((&key("median"), &format!("{label} Mdn")), median, None, Topic::TimeBase);
        s.push(
            (&key("mean"), &format!("{label} Mean")),
            w.map(|w| w.mean()),
            ours,
            Topic::TimeBase,
        );
    }
}

fn goodput(s: &mut Sheet<'_>) {
    let limits = s.limits();
    if limits.is_empty() {
        return;
    }
    // `None` where a limit has no value to compare with: the request is then neither.
    let conforming = |r: &Seen<'_>| -> Value<Option<bool>> {
        let lacks = |what: &str| format!("the file lacks the {what} per request");
        let mut all = true;
        for limit in &limits {
            let value = match limit.latency {
                Latency::Ttft => Some(r.ttft().ok_or_else(|| lacks("ttft"))?),
                Latency::Tpot => r.tpot()?,
                Latency::E2e => Some(r.stream_end().ok_or_else(|| lacks("request latency"))?),
            };
            let Some(value) = value else { return Ok(None) };
            all &= limit.is_met_by(value);
        }
        Ok(Some(all))
    };
    let ok = s.completed();
    let judged: Value<Vec<Option<bool>>> = ok.iter().map(conforming).collect();
    let failed = s.missed_n();
    let attainment = judged.clone().and_then(|j| {
        let determined = j.iter().flatten().count() as f64 + failed;
        let good = j.iter().filter(|j| **j == Some(true)).count() as f64;
        if 0.0 < determined {
            Ok(good / determined)
        } else {
            Err("no request is determined".to_owned())
        }
    });
    let (our_rate, our_attainment) = s.our_goodput();
    s.push(
        ("slo_attainment", "Goodput Attainment (share)"),
        attainment,
        our_attainment,
        Topic::OneToken,
    );
    let determined = judged.clone().map(|j| j.iter().flatten().count() as f64 + failed);
    s.push(
        ("slo_determined_requests", "determined requests"),
        determined,
        s.known.report.goodput.as_ref().map(|g| g.finished as f64),
        Topic::OneToken,
    );
    let window = window(s);
    let mean = judged.and_then(|j| {
        let good: Vec<Seen<'_>> =
            ok.iter().zip(&j).filter(|(_, j)| **j == Some(true)).map(|(r, _)| *r).collect();
        let events = every(&good, "end", |r| Some((ended(r)?, 1.0)))?;
        rate(&events, Some(window?))
            .map(|w| w.mean())
            .ok_or_else(|| "fewer than two instants".to_owned())
    });
    s.push(("request_goodput.total.mean", "Goodput Per Sec Mean"), mean, our_rate, Topic::OneToken);
    s.with_fault("guidellm-tail-dropped");
}
