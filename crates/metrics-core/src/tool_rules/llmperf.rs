//! Ray's llmperf f1d6bed: `token_benchmark_ray.py`, `metrics_summary`.

use super::Topic;
use super::sheet::{Beside, Block, Seen, Sheet, Stat, known, percent_name};

const PERCENTILES: [f64; 6] = [25.0, 50.0, 75.0, 90.0, 95.0, 99.0];

pub(super) fn figures(s: &mut Sheet<'_>) {
    let completed = s.completed();
    let itl = known(&completed, "ttft and gaps, or inter_token_latency_s,", itl);
    let rate = known(&completed, "e2e latency and output tokens", |r| {
        Some(r.output()? / r.stream_end().filter(|&e| 0.0 < e)?)
    });
    let e2e = known(&completed, "e2e latency", Seen::stream_end);
    let mut add = |key: &str, beside, values, topic, fault| {
        let row = |stat: &str, shown: &str, s| {
            (format!("results_{key}_{stat}"), format!("{key} {shown}"), s)
        };
        let percentile = |&p: &f64| {
            let name = format!("p{}", percent_name(p));
            row(&format!("quantiles_{name}"), &name, Stat::P(p))
        };
        let mut rows: Vec<(String, String, Stat)> = PERCENTILES.iter().map(percentile).collect();
        rows.push(row("mean", "mean", Stat::Mean));
        rows.push(row("min", "min", Stat::Min));
        rows.push(row("max", "max", Stat::Max));
        rows.push(row("stddev", "stddev", Stat::StdSample));
        s.block(Block { beside, values, scale: 1.0, topic, rows, fault });
    };
    let fault = Some("llmperf-itl-with-ttft");
    add("inter_token_latency_s", Beside::Gaps, itl, Topic::Itl, fault);
    add("ttft_s", Beside::Ttft, known(&completed, "ttft", Seen::ttft), Topic::Ttft, None);
    add("end_to_end_latency_s", Beside::E2e, e2e, Topic::E2e, None);
    let key = "request_output_throughput_token_per_s";
    add(key, Beside::Nothing, rate, Topic::Tokens, None);
    let input = known(&completed, "input tokens", Seen::input);
    add("number_input_tokens", Beside::Input, input, Topic::Tokens, None);
    let output = known(&completed, "output tokens", Seen::output);
    add("number_output_tokens", Beside::Output, output, Topic::Tokens, None);
    totals(s);
}

/// Counts and rates.
fn totals(s: &mut Sheet<'_>) {
    let n = s.completed_n();
    let [requests, output, _] = s.our_rates();
    let wall = s.wall();
    let (tokens, _) = s.tokens();
    let failed = s.missed_n();
    s.push(
        ("results_number_errors", "Number Of Errored Requests"),
        Ok(failed),
        Some(failed),
        Topic::Failures,
    );
    s.with_fault("llmperf-failures-vanish");
    s.push(
        ("results_mean_output_throughput_token_per_s", "Overall Output Throughput"),
        tokens.and_then(|t| Ok(t / wall.clone()?)),
        output,
        Topic::TimeBase,
    );
    s.push(
        ("results_num_completed_requests", "Number Of Completed Requests"),
        Ok(n),
        Some(n),
        Topic::Failures,
    );
    s.push(
        ("results_num_completed_requests_per_min", "Completed Requests Per Minute"),
        wall.map(|w| n / w * 60.0),
        requests.map(|r| r * 60.0),
        Topic::TimeBase,
    );
}

/// (TTFT + gaps) / lines: as the file has it, else from the gaps between its chunks.
fn itl(r: &Seen<'_>) -> Option<f64> {
    r.column(&["inter_token_latency_s"]).or_else(|| {
        let gaps = r.gaps()?;
        let lines = gaps.len() as f64 + 1.0;
        Some((r.ttft()? + gaps.iter().sum::<f64>()) / lines)
    })
}
