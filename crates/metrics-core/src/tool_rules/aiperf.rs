//! NVIDIA AIPerf 0.13.0: `aiperf/metrics/types`, one file a metric.

use super::Topic;
use super::sheet::{Beside, Block, Seen, Sheet, Stat, Value, every, known, percent_name};
use crate::slo::Latency;

const PERCENTILES: [f64; 9] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0];
/// The unit of what one user sees.
const USER: &str = "tokens_per_s_per_user";
/// Percentiles of its error-adjusted figures.
const ADJUSTED: [f64; 6] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0];

pub(super) fn figures(s: &mut Sheet<'_>) {
    let completed = s.completed();
    let end = Seen::e2e;
    let ttft = known(&completed, "ttft", Seen::ttft);
    let latency = known(&completed, "request latency", end);
    let itl = tpots(&completed);
    let decode = known(&completed, "ttft and request latency", |r| Some(end(r)? - r.ttft()?));
    let gaps = known(&completed, "gaps", Seen::gaps);
    let second = gaps.clone().map(|g| g.iter().filter_map(|g| g.first().copied()).collect());
    let gaps = gaps.map(|g| g.concat());
    let e2e_rate = known(&completed, "request latency and output tokens", |r| {
        Some(output(r)? / end(r).filter(|&e| 0.0 < e)?)
    });
    let rate = |v: Vec<f64>| v.into_iter().filter(|&x| 0.0 < x).map(|x| 1.0 / x).collect();
    let decode_rate = itl.clone().map(rate);
    let generated = known(&completed, "output tokens", output);
    let prompts = known(&completed, "input tokens", input);
    let mut add = |(key, unit, label): (&str, &str, &str), beside, values, topic| {
        let row = |stat: &str, s| (format!("{key}_{stat}_{unit}"), format!("{label} {stat}"), s);
        let mut rows = vec![
            row("avg", Stat::Mean),
            row("min", Stat::Min),
            row("max", Stat::Max),
            row("std", Stat::Std),
        ];
        for p in PERCENTILES {
            rows.push(row(&format!("p{}", percent_name(p)), Stat::P(p)));
        }
        let scale = if unit == "ms" { 1e3 } else { 1.0 };
        s.block(Block { beside, values, scale, topic, rows, fault: None });
    };
    let key = ("time_to_first_token", "ms", "Time to First Token (ms)");
    add(key, Beside::Ttft, ttft.clone(), Topic::Ttft);
    let key = ("time_to_second_token", "ms", "Time to Second Token (ms)");
    add(key, Beside::Nothing, second, Topic::Itl);
    let key = ("request_latency", "ms", "Request Latency (ms)");
    add(key, Beside::E2e, latency.clone(), Topic::E2e);
    let key = ("decode_duration", "ms", "Decode Duration (ms)");
    add(key, Beside::Nothing, decode.clone(), Topic::E2e);
    let key = ("inter_token_latency", "ms", "Inter Token Latency (ms)");
    add(key, Beside::Tpot, itl.clone(), Topic::Tpot);
    let key = ("inter_chunk_latency", "ms", "Inter Chunk Latency (ms)");
    add(key, Beside::Gaps, gaps, Topic::Itl);
    let label = "Output Token Throughput Per User (tokens/sec/user)";
    let key = ("output_token_throughput_per_user", USER, label);
    add(key, Beside::Nothing, decode_rate, Topic::Tpot);
    let label = "E2E Output Token Throughput (tokens/sec/user)";
    add(("e2e_output_token_throughput", USER, label), Beside::Nothing, e2e_rate, Topic::E2e);
    let key = ("output_sequence_length", "tokens", "Output Sequence Length (tokens)");
    add(key, Beside::Output, generated, Topic::Tokens);
    let key = ("input_sequence_length", "tokens", "Input Sequence Length (tokens)");
    add(key, Beside::Input, prompts, Topic::Tokens);
    counts(s);
    rates(s);
    if 0.0 < s.missed_n() {
        adjusted(s, "adj_time_to_first_token", "Time to First Token", ttft);
        adjusted(s, "adj_request_latency", "Request Latency", latency);
        adjusted(s, "adj_inter_token_latency", "Inter Token Latency", itl);
        adjusted(s, "adj_decode_duration", "Decode Duration", decode);
    }
}

/// Output tokens as the tool counted them.
fn output(r: &Seen<'_>) -> Option<f64> {
    r.column(&["output_sequence_length_tokens"]).or_else(|| r.output())
}

/// Input tokens as the tool counted them.
fn input(r: &Seen<'_>) -> Option<f64> {
    r.column(&["input_sequence_length_tokens"]).or_else(|| r.input())
}

/// Request latency less TTFT, per token after the first.
fn tpot(r: &Seen<'_>) -> Value<Option<f64>> {
    let lacks = |what: &str| format!("the file lacks the {what} per request");
    let n = output(r).ok_or_else(|| lacks("output tokens"))?;
    if n <= 1.0 {
        return Ok(None);
    }
    let end = r.e2e().ok_or_else(|| lacks("request latency"))?;
    Ok(Some((end - r.ttft().ok_or_else(|| lacks("ttft"))?) / (n - 1.0)))
}

fn tpots(requests: &[Seen<'_>]) -> Value<Vec<f64>> {
    let values: Value<Vec<Option<f64>>> = requests.iter().map(tpot).collect();
    Ok(values?.into_iter().flatten().collect())
}

fn counts(s: &mut Sheet<'_>) {
    let n = s.completed_n();
    let failed = s.missed_n();
    let finished = n + failed;
    s.push(("request_count", "Request Count (requests)"), Ok(n), Some(n), Topic::Failures);
    s.push(
        ("error_request_count", "Error Request Count (requests)"),
        Ok(failed),
        Some(failed),
        Topic::Failures,
    );
    s.push(
        ("completed_request_count", "Completed Requests (Success + Error) (requests)"),
        Ok(finished),
        None,
        Topic::Failures,
    );
    let share = if 0.0 < finished {
        Ok(failed / finished * 100.0)
    } else {
        Err("no request finished".to_owned())
    };
    s.push(("request_error_rate_pct", "Request Error Rate (%)"), share, None, Topic::Failures);
}

fn rates(s: &mut Sheet<'_>) {
    let completed = s.completed();
    let n = s.completed_n();
    let [our_requests, our_output, our_total] = s.our_rates();
    // The tool counts with its own tokenizer, also where the server sent its count.
    let sum = |v: Value<Vec<f64>>| v.map(|v| v.iter().sum::<f64>());
    let generated = sum(every(&completed, "output tokens", output));
    let input = sum(every(&completed, "input tokens", input));
    let output = generated;
    let our_input = s.tokens().1.ok().zip(s.our_window()).map(|(n, w)| n / w);
    // The duration runs over completed requests to their last response, and over all starts.
    let all = s.seen();
    let duration = every(&all, "start", Seen::start).and_then(|starts| {
        let first = starts.into_iter().fold(f64::INFINITY, f64::min);
        let ends = every(&completed, "request latency", |r| Some(r.start()? + r.e2e()?))?;
        let last = ends.into_iter().fold(f64::NEG_INFINITY, f64::max);
        if first < last { Ok(last - first) } else { Err("no completed request".to_owned()) }
    });
    s.push(
        ("benchmark_duration_s", "Benchmark Duration (sec)"),
        duration,
        s.our_window(),
        Topic::TimeBase,
    );
    s.with_fault("aiperf-duration-is-not-the-base");
    let phase = phase(s);
    let per_second = |x: Value| Ok(x? / phase.clone()?);
    s.push(
        ("request_throughput_requests_per_s", "Request Throughput (requests/sec)"),
        per_second(Ok(n)),
        our_requests,
        Topic::TimeBase,
    );
    s.push(
        ("output_token_throughput_tokens_per_s", "Output Token Throughput (tokens/sec)"),
        per_second(output.clone()),
        our_output,
        Topic::TimeBase,
    );
    s.push(
        ("input_token_throughput_tokens_per_s", "Input Token Throughput (tokens/sec)"),
        per_second(input.clone()),
        our_input,
        Topic::TimeBase,
    );
    let both = output.and_then(|o| Ok(o + input?));
    s.push(
        ("total_token_throughput_tokens_per_s", "Total Token Throughput (tokens/sec)"),
        per_second(both),
        our_total,
        Topic::TimeBase,
    );
    if s.limits().is_empty() {
        return;
    }
    let judged = |r: &Seen<'_>, l: Latency| {
        match l {
            Latency::Ttft => r.ttft().map(Some).ok_or("ttft"),
            Latency::Tpot => return tpot(r),
            Latency::E2e => r.e2e().map(Some).ok_or("request latency"),
        }
        .map_err(|what| format!("the file lacks the {what} per request"))
    };
    let good = s.good(judged).map(|g| g.len() as f64);
    let (rate, attainment) = s.our_goodput();
    let ours = s.known.report.goodput.as_ref().filter(|g| g.unknown == 0).map(|g| g.good as f64);
    s.push(
        ("good_request_count", "Good Request Count (requests)"),
        good.clone(),
        ours,
        Topic::OneToken,
    );
    let finished = n + s.missed_n();
    s.push(
        ("good_request_fraction", "GoodRequestFraction (ratio)"),
        good.clone().map(|g| g / finished),
        attainment,
        Topic::OneToken,
    );
    let why = if good.as_ref().ok() == ours.as_ref() { Topic::TimeBase } else { Topic::OneToken };
    s.push(("goodput_requests_per_s", "Goodput (requests/sec)"), per_second(good), rate, why);
}

/// Phase end minus phase start: in its own summary; for other tools' files their wall clock.
fn phase(s: &Sheet<'_>) -> Value {
    if let Some(phase) = s.known.number(&["phase_s"]) {
        return Ok(phase);
    }
    if s.known.number(&["records_without_phase"]).is_some() {
        return Err(
            "the records have no start and end of the phase: profile_export_aiperf.json has them"
                .to_owned(),
        );
    }
    s.wall()
}

/// Percentiles with every failed request at infinity; one that is reached by it has no value.
fn adjusted(s: &mut Sheet<'_>, key: &str, label: &str, values: Value<Vec<f64>>) {
    let failed = s.seen().into_iter().filter(|r| r.t.outcome().is_miss()).count();
    let sorted = values.map(|mut v| {
        v.sort_unstable_by(f64::total_cmp);
        v
    });
    let why = || {
        "failed requests count as infinitely slow, and this percentile is one of them".to_owned()
    };
    let smallest = sorted.clone().and_then(|v| v.first().map(|x| x * 1e3).ok_or_else(why));
    let label = |stat: &str| format!("{label} (error-adjusted) (ms) {stat}");
    s.push((&format!("{key}_min_ms"), &label("min")), smallest, None, Topic::Failures);
    for p in ADJUSTED {
        let value = sorted
            .clone()
            .and_then(|v| below_infinity(&v, failed, p / 100.0).map(|x| x * 1e3).ok_or_else(why));
        let name = format!("p{}", percent_name(p));
        s.push((&format!("{key}_{name}_ms"), &label(&name)), value, None, Topic::Failures);
    }
}

/// The sample nearest to the percentile's position among ascending values with `more` infinite ones
/// behind; half way between two it is the one at the even place, as numpy rounds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a position between 0 and the number of samples"
)]
fn below_infinity(sorted: &[f64], more: usize, p: f64) -> Option<f64> {
    let h = (sorted.len() + more).checked_sub(1)? as f64 * p;
    sorted.get(h.round_ties_even() as usize).copied()
}
