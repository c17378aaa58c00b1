//! SGLang 0.5.23: `sglang/benchmark/serving.py` and `goodput.py`.

use super::Topic;
use super::sheet::{Beside, Block, Seen, Sheet, Stat, Value, every, known};
use crate::slo::Latency;

pub(super) fn figures(s: &mut Sheet<'_>) {
    let completed = s.completed();
    let n = s.completed_n();
    let [our_requests, our_output, our_total] = s.our_rates();
    let wall = s.wall();
    let (counted, input) = s.tokens();
    // Where the reader counted chunks instead, the tool's own figures rest on what it wrote.
    let output = every(&completed, "output tokens", output_tokens).map(|v| v.iter().sum::<f64>());
    let per_second = |x: &Value| Ok(x.clone()? / wall.clone()?);
    let (our_tokens, our_input) = (counted.ok(), input.clone().ok());
    let input_rate = our_input.zip(s.our_window()).map(|(n, w)| n / w);
    s.push(("completed", "Successful requests"), Ok(n), Some(n), Topic::Failures);
    s.push(("duration", "Benchmark duration (s)"), wall.clone(), s.our_window(), Topic::TimeBase);
    s.push(("total_input_tokens", "Total input tokens"), input.clone(), our_input, Topic::Tokens);
    s.with_fault("sglang-requested-input-tokens");
    s.push(
        ("total_output_tokens", "Total generated tokens"),
        output.clone(),
        our_tokens,
        Topic::Tokens,
    );
    s.push(
        ("request_throughput", "Request throughput (req/s)"),
        per_second(&Ok(n)),
        our_requests,
        Topic::TimeBase,
    );
    s.push(
        ("input_throughput", "Input token throughput (tok/s)"),
        per_second(&input),
        input_rate,
        Topic::Tokens,
    );
    s.with_fault("sglang-requested-input-tokens");
    s.push(
        ("output_throughput", "Output token throughput (tok/s)"),
        per_second(&output),
        our_output,
        Topic::Tokens,
    );
    s.push_peaks(&completed);
    let both = output.and_then(|o| Ok(o + input?));
    s.push(
        ("total_throughput", "Total token throughput (tok/s)"),
        per_second(&both),
        our_total,
        Topic::Tokens,
    );
    s.with_fault("sglang-requested-input-tokens");
    let latencies = every(&completed, "latency to the last line of the stream", latency);
    let our_mean = s.known.report.in_flight.map(|f| f.mean.get());
    let mean = latencies.clone().and_then(|l| Ok(l.iter().sum::<f64>() / wall.clone()?));
    s.push(("concurrency", "Concurrency"), mean, our_mean, Topic::InFlight);
    s.with_fault("sglang-latency-to-done");
    goodput(s);
    let tpot: Value<Vec<Option<f64>>> = completed.iter().map(tpot).collect();
    let tpot = tpot.map(|v| v.into_iter().flatten().collect());
    let gaps = known(&completed, "gaps", Seen::gaps).map(|g| g.concat());
    let late = Some("sglang-latency-to-done");
    let blocks = [
        ("e2e_latency", "E2E Latency", Beside::E2e, latencies, Topic::E2e, late),
        ("ttft", "TTFT", Beside::Ttft, known(&completed, "ttft", Seen::ttft), Topic::Ttft, None),
        ("tpot", "TPOT", Beside::Tpot, tpot, Topic::Tpot, late),
        ("itl", "ITL", Beside::Gaps, gaps, Topic::Itl, None),
    ];
    for (key, label, beside, values, topic, fault) in blocks {
        let mut rows = vec![
            (format!("mean_{key}_ms"), format!("Mean {label} (ms)"), Stat::Mean),
            (format!("median_{key}_ms"), format!("Median {label} (ms)"), Stat::Median),
            (format!("std_{key}_ms"), format!("Std {label} (ms)"), Stat::Std),
        ];
        for p in [90.0, 95.0, 99.0] {
            rows.push((format!("p{p}_{key}_ms"), format!("P{p} {label} (ms)"), Stat::P(p)));
        }
        if key == "itl" {
            rows.push(("max_itl_ms".to_owned(), "Max ITL (ms)".to_owned(), Stat::Max));
        }
        s.block(Block { beside, values, scale: 1e3, topic, rows, fault });
    }
}

/// From sending to the last line of the stream, where the run knows it.
fn latency(r: &Seen<'_>) -> Option<f64> {
    r.stream_end()
}

/// Output tokens as the tool wrote them.
fn output_tokens(r: &Seen<'_>) -> Option<f64> {
    r.column(&["output_tokens_as_written"]).or_else(|| r.output())
}

/// TPOT over that latency.
fn tpot(r: &Seen<'_>) -> Value<Option<f64>> {
    let lacks = |what: &str| format!("the file lacks the {what} per request");
    let n = output_tokens(r).ok_or_else(|| lacks("output tokens"))?;
    if n <= 1.0 {
        return Ok(None);
    }
    let end = latency(r).ok_or_else(|| lacks("latency to the last line of the stream"))?;
    Ok(Some((end - r.ttft().ok_or_else(|| lacks("ttft"))?) / (n - 1.0)))
}

fn goodput(s: &mut Sheet<'_>) {
    if s.limits().is_empty() {
        return;
    }
    let judged = |r: &Seen<'_>, l: Latency| {
        let lacks = |what: &str| format!("the file lacks the {what} per request");
        match l {
            Latency::Ttft => r.ttft().map(Some).ok_or_else(|| lacks("ttft")),
            Latency::Tpot => Ok(Some(tpot(r)?.unwrap_or(0.0))),
            Latency::E2e => {
                latency(r).map(Some).ok_or_else(|| lacks("latency to the last line of the stream"))
            }
        }
    };
    let good = s.good(judged).map(|g| g.len() as f64);
    let (rate, attainment) = s.our_goodput();
    let wall = s.wall();
    let sent = s.sent_n();
    s.push(
        ("request_goodput", "Request goodput (req/s)"),
        good.clone().and_then(|g| Ok(g / wall?)),
        rate,
        Topic::Failures,
    );
    s.push(
        ("slo_attainment", "SLO attainment (share)"),
        good.map(|g| g / sent),
        attainment,
        Topic::Failures,
    );
    for limit in s.limits() {
        let (key, label) = match limit.latency {
            Latency::Ttft => ("ttft", "TTFT"),
            Latency::Tpot => ("tpot", "TPOT"),
            Latency::E2e => ("e2el", "E2EL"),
        };
        let met: Value<Vec<Option<f64>>> =
            s.completed().iter().map(|r| judged(r, limit.latency)).collect();
        let met = met
            .map(|v| v.into_iter().flatten().filter(|&x| limit.is_met_by(x)).count() as f64 / sent);
        let ours = s.known.report.goodput.as_ref().and_then(|g| {
            g.marginals.iter().find(|m| m.limit.latency == limit.latency).and_then(|m| m.share)
        });
        let key = format!("slo_attainment_by_metric.{key}");
        s.push((&key, &format!("{label} SLO attainment (share)")), met, ours, Topic::Failures);
    }
}
