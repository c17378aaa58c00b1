//! What the figures are that tools state: each tool's name and unit, read as one of ours.
//!
//! The names are those that the readers keep ([`Run::stated`]); a name that is not here is a
//! figure that no rule reads, not a mistake.
//!
//! | tool | TTFT | TPOT | gaps | E2E | requests/s |
//! |---|---|---|---|---|---|
//! | vLLM, SGLang | `mean_ttft_ms` | `p99_tpot_ms` | `median_itl_ms` | `mean_e2el_ms`, `mean_e2e_latency_ms` | `request_throughput` |
//! | AIPerf | `time_to_first_token_avg_ms` | `inter_token_latency_p99_ms` | `inter_chunk_latency_p50_ms` | `request_latency_avg_ms` | `request_throughput_requests_per_s` |
//! | GuideLLM | `time_to_first_token_successful_mean_ms` | `inter_token_latency_successful_p99_ms` | - | `request_latency_successful_mean_s` | `requests_per_second_successful_mean`, `server_throughput_successful_requests_mean_per_s` |
//! | inference-perf | `time_to_first_token_mean_s` | `time_per_output_token_p99_s` | `inter_token_latency_median_s` | `request_latency_mean_s` | `throughput_requests_per_sec` |
//! | llmperf | `results_ttft_s_mean` | - | - | `results_end_to_end_latency_s_quantiles_p99` | `results_num_completed_requests_per_min` |
//! | MLPerf | `Mean First Token latency (ns)` | `99.00 percentile time to output token (ns)` | - | `Mean latency (ns)` | `Completed samples per second` |
//! | LLM-Pilot's table | `ttft_p99` | `tpot_p50` | - | `e2e_p50` | - |
//!
//! GuideLLM's `time_per_output_token` holds the prefill and llmperf's `inter_token_latency` the
//! TTFT: neither is one of ours, so neither is read.

use metrics_core::error::LARGEST;
use metrics_core::format::plain;
use metrics_core::tool_rules::Tool;

use crate::error::{IoError, Place, Result};
use crate::run::Run;

/// What a stated figure measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Time to first token, in seconds.
    Ttft,
    /// Time per output token after the first, in seconds.
    Tpot,
    /// Gaps between tokens or chunks as the tool has them, in seconds.
    Itl,
    /// End-to-end latency, in seconds.
    E2e,
    /// Completed requests per second.
    Requests,
    /// Output tokens per second.
    OutputTokens,
    /// Input and output tokens per second.
    TotalTokens,
    /// Tokens per second that are not said to be output or total.
    Tokens,
}

/// Which figure of many samples it is; a rate is a mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// Mean.
    Mean,
    /// Standard deviation.
    Std,
    /// Percentile, as a share between 0 and 1.
    P(f64),
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// How many samples there are.
    Count,
}

/// A stated figure that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure<'a> {
    /// Its name in the file.
    pub name: &'a str,
    /// What it measures.
    pub of: Of,
    /// Which figure of it.
    pub statistic: Statistic,
    /// Its value: seconds, per second, or a count.
    pub value: f64,
    /// How many of the file's unit are one of that of `value`.
    pub per: f64,
}

impl Figure<'_> {
    /// Whether people read it first: rates, mean, median, P90, P95 and P99.
    #[must_use]
    pub fn is_main(&self) -> bool {
        match self.statistic {
            Statistic::Mean => true,
            Statistic::P(p) => [0.5, 0.9, 0.95, 0.99].iter().any(|x| (x - p).abs() < 1e-9),
            _ => false,
        }
    }
}

/// The tool that wrote the run, if its rules are known.
#[must_use]
pub fn tool(run: &Run) -> Option<Tool> {
    let name = run.tool.name.to_ascii_lowercase();
    Tool::ALL.into_iter().find(|t| name.contains(t.name()))
}

/// The stated figures of a run that are known, in its order; of one that is stated twice under two
/// names (`median`, `p50`) the first.
///
/// A scrape of an engine's own metrics states none: it is not the client's view.
#[must_use]
pub fn figures(run: &Run) -> Vec<Figure<'_>> {
    if run.server.is_some() {
        return Vec::new();
    }
    let tool = tool(run);
    let pilot = is_pilot(run);
    let mut all: Vec<Figure<'_>> = Vec::new();
    for (name, stated) in run.stated.iter() {
        let Some((of, statistic, per)) = named(tool, pilot, name) else { continue };
        let value = stated / per;
        let is_new = all.iter().all(|f| f.of != of || f.statistic != statistic);
        if is_new && (0.0..=LARGEST).contains(&value) {
            all.push(Figure { name, of, statistic, value, per });
        }
    }
    all
}

/// Refuses times, rates and counts that no run can have.
///
/// # Errors
///
/// [`IoError::Value`] with the key of a figure that is known and negative, or above
/// [`LARGEST`] in seconds or per second.
pub(crate) fn check(file: &str, run: &Run) -> Result<()> {
    if run.server.is_some() {
        return Ok(());
    }
    let (tool, pilot) = (tool(run), is_pilot(run));
    for (name, stated) in run.stated.iter() {
        let Some((of, statistic, per)) = named(tool, pilot, name) else { continue };
        if (0.0..=LARGEST).contains(&(stated / per)) {
            continue;
        }
        let what = match (statistic, of) {
            (Statistic::Count, _) => "a count",
            (_, Of::Ttft | Of::Tpot | Of::Itl | Of::E2e) => "a time",
            _ => "a rate",
        };
        return Err(IoError::Value {
            at: Box::new(Place::line(file, run.line).key(name)),
            found: plain(stated),
            expected: format!("{what} of at least 0 and at most {:e}", per * LARGEST),
        });
    }
    Ok(())
}

fn is_pilot(run: &Run) -> bool {
    run.tool.name.contains("LLM-Pilot")
}

/// Rates under their whole names, with what divides them into those per second.
const RATES: &[(&str, Of, f64)] = &[
    ("request_throughput", Of::Requests, 1.0),
    ("output_throughput", Of::OutputTokens, 1.0),
    ("total_token_throughput", Of::TotalTokens, 1.0),
    ("total_throughput", Of::TotalTokens, 1.0),
    ("throughput", Of::Tokens, 1.0),
    ("tokens_per_second", Of::Tokens, 1.0),
    ("request_throughput_requests_per_s", Of::Requests, 1.0),
    ("output_token_throughput_tokens_per_s", Of::OutputTokens, 1.0),
    ("total_token_throughput_tokens_per_s", Of::TotalTokens, 1.0),
    ("requests_per_second_successful_mean", Of::Requests, 1.0),
    ("output_tokens_per_second_successful_mean", Of::OutputTokens, 1.0),
    ("tokens_per_second_successful_mean", Of::TotalTokens, 1.0),
    ("server_throughput_successful_requests_mean_per_s", Of::Requests, 1.0),
    ("token_throughput_successful_output_tokens_mean_per_s", Of::OutputTokens, 1.0),
    ("token_throughput_successful_total_tokens_mean_per_s", Of::TotalTokens, 1.0),
    ("throughput_requests_per_sec", Of::Requests, 1.0),
    ("throughput_output_tokens_per_sec", Of::OutputTokens, 1.0),
    ("throughput_total_tokens_per_sec", Of::TotalTokens, 1.0),
    ("results_num_completed_requests_per_min", Of::Requests, 60.0),
    ("results_mean_output_throughput_token_per_s", Of::OutputTokens, 1.0),
    ("completed samples per second", Of::Requests, 1.0),
    ("completed tokens per second", Of::OutputTokens, 1.0),
];

/// The rate that a figure of that name is, under the name of any tool.
#[must_use]
pub fn rate(name: &str) -> Option<Of> {
    RATES.iter().find(|(n, ..)| n.eq_ignore_ascii_case(name)).map(|(_, of, _)| *of)
}

/// What a name means, and what divides it into seconds or per second.
fn named(tool: Option<Tool>, pilot: bool, name: &str) -> Option<(Of, Statistic, f64)> {
    let lower = name.to_ascii_lowercase();
    if let Some((_, of, per)) = RATES.iter().find(|(n, ..)| *n == lower) {
        return Some((*of, Statistic::Mean, *per));
    }
    if let Some(text) = lower.strip_suffix(" (ns)") {
        return of_mlperf(text);
    }
    let lower = separated(&lower);
    // Figures of failed requests, or of all together, are not those of the answered ones.
    let of_others = ["failures", "errored", "incomplete", "total"];
    if lower.split('_').any(|part| of_others.contains(&part)) {
        return None;
    }
    let text = lower.strip_prefix("results_").unwrap_or(&lower);
    let text = text.replace("_successful_", "_").replace("_quantiles_", "_");
    let unit = |text: &str| {
        [("_ms", 1e3), ("_s", 1.0)]
            .into_iter()
            .find_map(|(unit, per)| Some((text.strip_suffix(unit)?.to_owned(), per)))
    };
    // The unit ends the name, or the metric in it: `ttft_p99_ms`, `ttft_s_p99`.
    let (text, per) = unit(&text).map_or((text, None), |(rest, per)| (rest, Some(per)));
    let (metric, statistic) = statistic(&text)?;
    let (metric, per) = match (per, unit(&metric)) {
        (Some(per), _) => (metric, per),
        (None, Some((rest, per))) => (rest, per),
        (None, None) if statistic == Statistic::Count => (metric, 1.0),
        (None, None) if pilot => (metric, 1e3),
        (None, None) => return None,
    };
    let of = match metric.as_str() {
        "ttft" | "time_to_first_token" => Of::Ttft,
        "tpot" => Of::Tpot,
        "time_per_output_token" if tool != Some(Tool::Guidellm) => Of::Tpot,
        "inter_token_latency" => match tool {
            Some(Tool::Aiperf | Tool::Guidellm) => Of::Tpot,
            Some(Tool::Llmperf) => return None,
            _ => Of::Itl,
        },
        "itl" | "inter_chunk_latency" => Of::Itl,
        "e2el" | "e2e" | "e2e_latency" | "request_latency" | "end_to_end_latency" => Of::E2e,
        _ => return None,
    };
    let per = if statistic == Statistic::Count { 1.0 } else { per };
    Some((of, statistic, per))
}

/// The name with `_` between its parts; the point in `p99.9` is none between parts.
fn separated(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    let mut text = String::new();
    for (i, part) in parts.iter().enumerate() {
        if 0 < i {
            let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
            let inside = digit(text.chars().last()) && digit(part.chars().next());
            text.push(if inside { '.' } else { '_' });
        }
        text.push_str(part);
    }
    text.replace(' ', "_")
}

/// A metric and its statistic, which stands in front or behind.
fn statistic(text: &str) -> Option<(String, Statistic)> {
    const WORDS: &[(&str, Statistic)] = &[
        ("mean", Statistic::Mean),
        ("avg", Statistic::Mean),
        ("median", Statistic::P(0.5)),
        ("std", Statistic::Std),
        ("stddev", Statistic::Std),
        ("std_dev", Statistic::Std),
        ("min", Statistic::Min),
        ("max", Statistic::Max),
        ("count", Statistic::Count),
    ];
    for &(word, statistic) in WORDS {
        let rest = text
            .strip_prefix(word)
            .and_then(|r| r.strip_prefix('_'))
            .or_else(|| text.strip_suffix(word).and_then(|r| r.strip_suffix('_')));
        if let Some(rest) = rest {
            return Some((rest.to_owned(), statistic));
        }
    }
    let (front, back) = (text.split_once('_'), text.rsplit_once('_'));
    let at_front = front.and_then(|(p, rest)| Some((rest, percentile(p)?)));
    let at_back = || back.and_then(|(rest, p)| Some((rest, percentile(p)?)));
    let (rest, p) = at_front.or_else(at_back)?;
    Some((rest.to_owned(), Statistic::P(p)))
}

/// `p99`, `p99.9`; GuideLLM writes the latter as `p999`, and 0.1 % as `p001`.
fn percentile(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('p').filter(|d| d.starts_with(|c: char| c.is_ascii_digit()))?;
    let percent = match digits {
        "999" => 99.9,
        "001" => 0.1,
        _ => digits.parse::<f64>().ok()?,
    };
    // A thousandth of a per cent is the least that tools write: 99.9 / 100 is not 0.999.
    (0.0 < percent && percent < 100.0).then(|| (percent * 1e3).round() / 1e5)
}

/// `99.00 percentile first token latency`, `mean latency`.
fn of_mlperf(text: &str) -> Option<(Of, Statistic, f64)> {
    let (statistic, metric) = if let Some((p, metric)) = text.split_once(" percentile ") {
        let percent: f64 = p.trim().parse().ok()?;
        (Statistic::P((percent * 1e3).round() / 1e5), metric)
    } else {
        let (word, metric) = text.split_once(' ')?;
        let statistic = match word {
            "mean" => Statistic::Mean,
            "min" => Statistic::Min,
            "max" => Statistic::Max,
            _ => return None,
        };
        (statistic, metric)
    };
    let of = match metric {
        "latency" => Of::E2e,
        "first token latency" => Of::Ttft,
        "time to output token" => Of::Tpot,
        _ => return None,
    };
    Some((of, statistic, 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each tool's names as its reader keeps them; the values are what 1 of the unit is.
    #[test]
    fn the_names_of_every_tool_are_read() {
        let p99 = Statistic::P(0.99);
        let mean = Statistic::Mean;
        for (tool, name, expected) in [
            (Some(Tool::Vllm), "mean_ttft_ms", Some((Of::Ttft, mean, 1e3))),
            (Some(Tool::Vllm), "p99.9_tpot_ms", Some((Of::Tpot, Statistic::P(0.999), 1e3))),
            (Some(Tool::Vllm), "p99_e2el_ms", Some((Of::E2e, p99, 1e3))),
            (Some(Tool::Sglang), "mean_e2e_latency_ms", Some((Of::E2e, mean, 1e3))),
            (Some(Tool::Sglang), "std_itl_ms", Some((Of::Itl, Statistic::Std, 1e3))),
            (Some(Tool::Aiperf), "inter_token_latency_avg_ms", Some((Of::Tpot, mean, 1e3))),
            (Some(Tool::Aiperf), "inter_chunk_latency_p99_ms", Some((Of::Itl, p99, 1e3))),
            (Some(Tool::Aiperf), "request_latency_count", Some((Of::E2e, Statistic::Count, 1.0))),
            (Some(Tool::Aiperf), "time_to_first_output_token_avg_ms", None),
            (
                Some(Tool::Guidellm),
                "inter_token_latency_successful_p99_ms",
                Some((Of::Tpot, p99, 1e3)),
            ),
            (
                Some(Tool::Guidellm),
                "time_to_first_token_successful_std_dev_ms",
                Some((Of::Ttft, Statistic::Std, 1e3)),
            ),
            (
                Some(Tool::Guidellm),
                "request_latency_successful_p999_s",
                Some((Of::E2e, Statistic::P(0.999), 1.0)),
            ),
            // Holds the prefill; errored requests; an interval's end.
            (Some(Tool::Guidellm), "time_per_output_token_successful_mean_ms", None),
            (Some(Tool::Guidellm), "request_latency_errored_mean_s", None),
            (Some(Tool::Guidellm), "request_latency_successful_mean_ci_lower_s", None),
            (Some(Tool::InferencePerf), "time_per_output_token_p99_s", Some((Of::Tpot, p99, 1.0))),
            (
                Some(Tool::InferencePerf),
                "inter_token_latency_median_s",
                Some((Of::Itl, Statistic::P(0.5), 1.0)),
            ),
            (Some(Tool::InferencePerf), "failures_request_latency_mean_s", None),
            (Some(Tool::InferencePerf), "normalized_time_per_output_token_mean_s", None),
            (Some(Tool::Llmperf), "results_ttft_s_quantiles_p99", Some((Of::Ttft, p99, 1.0))),
            (
                Some(Tool::Llmperf),
                "results_end_to_end_latency_s_stddev",
                Some((Of::E2e, Statistic::Std, 1.0)),
            ),
            (Some(Tool::Llmperf), "results_inter_token_latency_s_mean", None),
            (
                Some(Tool::Llmperf),
                "results_num_completed_requests_per_min",
                Some((Of::Requests, mean, 60.0)),
            ),
            (
                Some(Tool::Mlperf),
                "99.00 percentile first token latency (ns)",
                Some((Of::Ttft, p99, 1e9)),
            ),
            (Some(Tool::Mlperf), "Mean Time to Output Token (ns)", Some((Of::Tpot, mean, 1e9))),
            (Some(Tool::Mlperf), "Max latency (ns)", Some((Of::E2e, Statistic::Max, 1e9))),
            (None, "ttft.p95.ms", Some((Of::Ttft, Statistic::P(0.95), 1e3))),
            (None, "mean_input_len", None),
        ] {
            assert_eq!(named(tool, false, name), expected, "{tool:?} {name}");
        }
        assert_eq!(named(None, true, "ttft_p99"), Some((Of::Ttft, p99, 1e3)));
    }
}
