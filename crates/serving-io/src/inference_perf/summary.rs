//! Stage and summary files: figures only.

use std::path::Path;

use metrics_core::Seconds;
use metrics_core::format::time;

use crate::document::DURATION;
use crate::error::{IoError, Result};
use crate::input::{Input, open};
use crate::json::whole;
use crate::node::{Document, Node};
use crate::run::{Counts, RequestRate, Run, RunDuration, Stated, Tool, in_flight_limit};

/// What stands in the tool's settings alone, which are YAML and not read.
pub(super) const SETTINGS: (&str, &str) = (
    "the limits of goodput, the load's type and the model",
    "config.yaml, which the same run leaves: give its limits as --slo",
);

/// Deepest nesting of a figure: `successes.latency.request_latency.mean`.
const DEEPEST: usize = 8;

pub(super) fn read(input: Input) -> Result<Vec<Run>> {
    let name = input.name.clone();
    let text = input.into_text()?;
    let root = Document::new(&name, &text).object()?;
    Ok(vec![run(&root)?])
}

/// The run of one stage file.
pub(super) fn read_one(path: &Path) -> Result<Run> {
    let (name, input) = open(path)?;
    let text = input.into_text()?;
    let root = Document::new(&name, &text).object()?;
    run(&root)
}

fn run(root: &Node<'_>) -> Result<Run> {
    let mut run = Run { line: 1, ..Run::default() };
    let successes = root.need_node("successes")?;
    let of_client = successes.has("latency") || !successes.has("request_latency");
    let age = if root.has("benchmark_time_seconds") {
        "writes `benchmark_time_seconds`, as 0.7 does"
    } else {
        "writes no `benchmark_time_seconds`, as 0.2 does not"
    };
    run.tool = Tool { name: "inference-perf".to_owned(), version: None, age: Some(age.to_owned()) };
    flatten(root, "", 0, &mut run.stated)?;
    run.counts = counts(root, &successes)?;
    if run.stated.is_empty() && run.counts.completed.is_none() {
        let (found, expected) = ("no figure".to_owned(), "the figures of a stage".to_owned());
        return Err(IoError::Value { at: root.place("successes", None), found, expected });
    }
    run.duration = duration(root)?;
    if let Some(load) = root.node("load_summary")? {
        describe(&load, &mut run)?;
    }
    if of_client {
        note_halved(&mut run);
    } else {
        let text = "the figures are those of the server's own metrics over the stage, not of the \
                    client: a histogram's percentiles, and a window of the scrapes";
        let affects = &["ttft", "tpot", "e2e_latency", "request_throughput"];
        run.note("from-server-metrics", affects, text.to_owned());
    }
    if run.duration.is_none() {
        let with = "a version that writes `benchmark_time_seconds`, or the requests";
        run.lacks("duration of the run", with);
    }
    let with = "per_request_lifecycle_metrics.json: set `report.request_lifecycle.per_request`";
    run.lacks("latencies per request", with);
    run.lacks("queue time in the server", "the server's own metrics or log");
    run.lacks(SETTINGS.0, SETTINGS.1);
    Ok(run)
}

fn duration(root: &Node<'_>) -> Result<Option<RunDuration>> {
    const KEY: &str = "benchmark_time_seconds";
    let Some(x) = root.number_as(KEY, DURATION)? else { return Ok(None) };
    if x <= 0.0 {
        return Err(root.wrong(KEY, DURATION));
    }
    let value = Seconds::named("duration", x).map_err(|e| root.broken(KEY, e))?;
    Ok(Some(RunDuration { value, from: "`benchmark_time_seconds`: first send to last end" }))
}

fn describe(load: &Node<'_>, run: &mut Run) -> Result<()> {
    const RATE: &str = "requests per second, above 0";
    run.declared.max_concurrency = in_flight_limit(load.count("concurrency")?);
    run.declared.num_prompts = load.count("count")?;
    let rate = load.number_as("requested_rate", RATE)?;
    // With a concurrency the tool writes the number of requests as the rate.
    if let Some(rate) = rate.filter(|_| run.declared.max_concurrency.is_none()) {
        if rate <= 0.0 {
            return Err(load.wrong("requested_rate", RATE));
        }
        run.declared.request_rate = Some(RequestRate::PerSecond(rate));
    }
    Ok(())
}

fn counts(root: &Node<'_>, successes: &Node<'_>) -> Result<Counts> {
    let total = |key: &str| -> Result<Option<u64>> {
        match successes.node(key)? {
            Some(node) => Ok(node.number("total")?.and_then(whole)),
            None => Ok(None),
        }
    };
    let failed = match root.node("failures")? {
        Some(failures) => failures.count("count")?,
        None => None,
    };
    Ok(Counts {
        completed: successes.count("count")?,
        failed,
        total_input_tokens: total("prompt_tokens")?,
        total_output_tokens: total("output_tokens")?,
    })
}

/// All numbers below a node, under their keys.
fn flatten(node: &Node<'_>, prefix: &str, depth: usize, stated: &mut Stated) -> Result<()> {
    if DEEPEST < depth {
        return Ok(());
    }
    for (key, raw) in node.entries() {
        let path = match (prefix, key) {
            ("" | "successes", "successes" | "latency") => "successes".to_owned(),
            ("successes", "count") => "successes_count".to_owned(),
            ("" | "successes", key) => key.to_owned(),
            (prefix, key) => format!("{prefix}_{key}"),
        };
        match raw.get().as_bytes().first() {
            Some(b'{') => {
                if let Some(child) = node.node(key)? {
                    flatten(&child, &path, depth + 1, stated)?;
                }
            }
            Some(b'-' | b'0'..=b'9') => {
                let value = node.need_number(key, "a number, as the tool computed it")?;
                stated.push(with_unit(&path), value);
            }
            Some(b'"') if STATISTICS.contains(&key) => {
                return Err(node.wrong(key, "a number, as the tool computed it"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Keys under which the tool itself writes a number.
const STATISTICS: [&str; 7] = ["mean", "min", "max", "median", "p50", "p90", "p99"];

/// A figure's name with its unit; the tool writes seconds.
fn with_unit(name: &str) -> String {
    const TIMES: [&str; 6] = [
        "latency",
        "delay",
        "duration",
        "time_to_first_token",
        "time_per_output_token",
        "benchmark_time",
    ];
    if let Some(front) = name.strip_suffix("_seconds") {
        return format!("{front}_s");
    }
    if TIMES.iter().any(|t| name.contains(t)) && !name.ends_with("_rate") {
        return format!("{name}_s");
    }
    name.to_owned()
}

/// Says where the stated TPOT is half of what the stated latencies give.
fn note_halved(run: &mut Run) {
    let of = |name| run.stated.get(name);
    let (Some(tpot), Some(latency), Some(ttft), Some(tokens)) = (
        of("time_per_output_token_mean_s"),
        of("request_latency_mean_s"),
        of("time_to_first_token_mean_s"),
        of("output_len_mean"),
    ) else {
        return;
    };
    let from_means = (latency - ttft) / (tokens - 1.0);
    // Means of quotients differ from quotients of means, but not by a factor near 2.
    if !(tokens > 2.0 && 0.4 < tpot / from_means && tpot / from_means < 0.6) {
        return;
    }
    let shown = |x: f64| Seconds::new(x).map_or_else(|_| x.to_string(), time);
    let text = format!(
        "the stated time per output token is {} on average, but latency and TTFT give {} over {} \
         tokens: this version counts each chunk twice, so TPOT and inter-token latency are about \
         half the truth",
        shown(tpot),
        shown(from_means),
        metrics_core::format::value(tokens)
    );
    run.note("tpot-halved", &["tpot", "itl"], text);
}
