//! inference-perf 0.7.0: `inference_perf/reportgen/base.py`, its summary of the lifecycle.

use super::Topic;
use super::sheet::{Beside, Block, Seen, Sheet, Stat, Value, every, known, percent_name};
use crate::slo::Latency;

const PERCENTILES: [f64; 10] = [0.1, 1.0, 5.0, 10.0, 25.0, 75.0, 90.0, 95.0, 99.0, 99.9];

pub(super) fn figures(s: &mut Sheet<'_>) {
    let ok = s.completed();
    let several = |r: &Seen<'_>| r.output().is_some_and(|n| 1.0 < n);
    let with_gaps: Vec<Seen<'_>> = ok.iter().copied().filter(several).collect();
    let ttft = known(&with_gaps, "ttft", Seen::ttft);
    let blocks: [(&str, Beside, Value<Vec<f64>>, Topic); 5] = [
        (
            "request_latency",
            Beside::E2e,
            known(&ok, "request latency", Seen::stream_end),
            Topic::E2e,
        ),
        (
            "normalized_time_per_output_token",
            Beside::Nothing,
            known(&ok, "request latency and output tokens", |r| {
                Some(r.stream_end()? / r.output()?)
            }),
            Topic::Tpot,
        ),
        ("time_per_output_token", Beside::Tpot, super::sheet::tpots(&ok), Topic::Tpot),
        ("time_to_first_token", Beside::Ttft, ttft, Topic::OneToken),
        (
            "inter_token_latency",
            Beside::Gaps,
            known(&with_gaps, "gaps", token_gaps).map(|g| g.concat()),
            Topic::Itl,
        ),
    ];
    for (key, beside, values, topic) in blocks {
        let row = |stat: &str, s| {
            (format!("successes.latency.{key}.{stat}"), format!("{key} {stat} (s)"), s)
        };
        let mut rows = vec![
            row("mean", Stat::Mean),
            row("min", Stat::Min),
            row("max", Stat::Max),
            row("median", Stat::Median),
        ];
        for p in PERCENTILES {
            rows.push(row(&format!("p{}", percent_name(p)), Stat::P(p)));
        }
        s.block(Block { beside, values, scale: 1.0, topic, rows, fault: None });
    }
    rates(s, &ok);
}

/// Gaps between tokens; where only chunks are known, each further token of a chunk comes with it.
///
/// The tool stamps every token of a chunk with the chunk's time. If the tokens are not one to a
/// chunk and the file does not say how they are split, the gaps cannot be had.
fn token_gaps(r: &Seen<'_>) -> Option<Vec<f64>> {
    let mut gaps = r.gaps()?;
    let n = r.output()?;
    let inside = n - 1.0 - gaps.len() as f64;
    // A chunk without a token would have no stamp, and which one it is cannot be seen.
    if inside < 0.0 {
        return None;
    }
    let more = std::iter::repeat(0.0).take_while({
        let mut left = inside;
        move |_| {
            left -= 1.0;
            0.0 <= left
        }
    });
    gaps.extend(more);
    Some(gaps)
}

fn rates(s: &mut Sheet<'_>, ok: &[Seen<'_>]) {
    let n = s.completed_n();
    let [our_requests, our_output, our_total] = s.our_rates();
    let (output, input) = s.tokens();
    let input_rate = input.clone().ok().zip(s.our_window()).map(|(n, w)| n / w);
    let span = span(ok);
    let per_second = |x: Value| Ok(x? / span.clone()?);
    s.push(
        ("benchmark_time_seconds", "benchmark time (s)"),
        span.clone(),
        s.our_window(),
        Topic::TimeBase,
    );
    let rate = |key: &str| format!("successes.throughput.{key}");
    let both = output.clone().and_then(|o| Ok(o + input.clone()?));
    for (key, label, value, ours) in [
        ("input_tokens_per_sec", "input tokens per second", input.clone(), input_rate),
        ("output_tokens_per_sec", "output tokens per second", output.clone(), our_output),
        ("total_tokens_per_sec", "total tokens per second", both, our_total),
        ("requests_per_sec", "requests per second", Ok(n), our_requests),
    ] {
        s.push((&rate(key), label), per_second(value), ours, Topic::TimeBase);
    }
    if s.limits().is_empty() {
        return;
    }
    // A latency that it has no value for is a miss.
    let judged = |r: &Seen<'_>, l: Latency| {
        let lacks = |what: &str| format!("the file lacks the {what} per request");
        let n = r.output().ok_or_else(|| lacks("output tokens"))?;
        match l {
            Latency::Ttft if n <= 1.0 => Ok(None),
            Latency::Ttft => r.ttft().map(Some).ok_or_else(|| lacks("ttft")),
            Latency::Tpot => r.tpot(),
            Latency::E2e => r.stream_end().map(Some).ok_or_else(|| lacks("request latency")),
        }
    };
    let good = s.good(judged);
    let count = good.clone().map(|g| g.len() as f64);
    let goodput = |key: &str| format!("successes.goodput_metrics.{key}");
    let ours = s.known.report.goodput.clone();
    let (our_rate, _) = s.our_goodput();
    let ratio = ours.as_ref().and_then(|g| g.ratio).map(|r| r * 100.0);
    s.push(
        (&goodput("goodput_percentage"), "goodput (%)"),
        count.clone().map(|g| g / n * 100.0),
        ratio,
        Topic::OneToken,
    );
    s.push(
        (&goodput("request_goodput"), "request goodput (req/s)"),
        per_second(count.clone()),
        our_rate,
        Topic::OneToken,
    );
    let tokens = good.and_then(|g| {
        let all = every(&g, "input and output tokens", |r| Some(r.input()? + r.output()?))?;
        Ok(all.iter().sum::<f64>())
    });
    s.push(
        (&goodput("token_goodput"), "token goodput (tok/s)"),
        per_second(tokens),
        ours.as_ref().and_then(|g| g.tokens).map(crate::units::Quantity::number),
        Topic::Tokens,
    );
    let our_good = ours.as_ref().filter(|g| g.unknown == 0).map(|g| g.good as f64);
    s.push((&goodput("good_requests"), "good requests"), count, our_good, Topic::OneToken);
    s.push((&goodput("total_requests"), "total requests"), Ok(n), Some(n), Topic::Failures);
    for limit in s.limits() {
        let name = match limit.latency {
            Latency::Ttft => "ttft",
            Latency::Tpot => "tpot",
            Latency::E2e => "request_latency",
        };
        let met: Value<Vec<Option<f64>>> = ok.iter().map(|r| judged(r, limit.latency)).collect();
        let met = met.map(|v| {
            v.into_iter().flatten().filter(|&x| limit.is_met_by(x)).count() as f64 / n * 100.0
        });
        let key = goodput(&format!("{name}_attainment_percentage"));
        s.push((&key, &format!("{name} attainment (%)")), met, None, Topic::OneToken);
    }
}

/// First start to last end of the successes.
fn span(ok: &[Seen<'_>]) -> Value {
    let starts = every(ok, "start", Seen::start)?;
    let ends = every(ok, "end", |r| Some(r.start()? + r.stream_end()?))?;
    let first = starts.into_iter().fold(f64::INFINITY, f64::min);
    let last = ends.into_iter().fold(f64::NEG_INFINITY, f64::max);
    if first < last { Ok(last - first) } else { Err("no completed request".to_owned()) }
}
