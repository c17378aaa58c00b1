//! `profile_export_aiperf.json`: the tool's figures, the window and the settings.
//!
//! | key | becomes |
//! |---|---|
//! | `NAME` with `unit` and `avg` alone | figure `NAME_UNIT`, for example `request_throughput_requests_per_s` |
//! | `NAME` with `unit` and statistics | figures `NAME_STATISTIC_UNIT`, for example `time_to_first_token_p99_ms` |
//! | `request_count`, `error_request_count`, `total_isl`, `total_osl` | the counts as well |
//! | `start_time`, `end_time` | [`Run::duration`]: they are local time without a zone, so only their difference has a meaning |
//! | `input_config` | model, tokenizer, endpoint, rate, concurrency, number of requests; the goodput limits as metadata `slos` |
//! | `was_cancelled` | [`Run::truncated`] |
//! | `aiperf_version` | the tool's version |
//! | `run_info.cli_command`, `benchmark_id`, `start_time`, `end_time`, `is_complete` | metadata |

use std::path::Path;

use metrics_core::Seconds;
use metrics_core::format::things;

use super::with_unit;
use crate::error::{IoError, Result};
use crate::input::{Input, open};
use crate::json::whole;
use crate::node::{Document, Node};
use crate::run::{Counts, Declared, RequestRate, Run, RunDuration, Stated, Tool, in_flight_limit};

pub(super) fn read(input: Input) -> Result<Vec<Run>> {
    let name = input.name.clone();
    let text = input.into_text()?;
    let root = Document::new(&name, &text).object()?;
    let summary = summary(&root)?;
    let mut run = Run { line: 1, ..Run::default() };
    if summary.stated.is_empty() {
        let expected = "the figures of an AIPerf run, each with `unit` and `avg`".to_owned();
        return Err(IoError::Value {
            at: root.place("request_throughput", None),
            found: "no figure".to_owned(),
            expected,
        });
    }
    summary.fill(&mut run);
    run.lacks("latencies per request", "profile_export.jsonl, which the same run leaves");
    run.lacks("queue time in the server", "the server's own metrics or log");
    Ok(vec![run])
}

/// Takes window, settings and figures from the summary beside the records.
pub(super) fn complete(runs: &mut [Run], path: &Path) -> Result<()> {
    let (name, input) = open(path)?;
    let text = input.into_text()?;
    let root = Document::new(&name, &text).object()?;
    let summary = summary(&root)?;
    // What the tool sums up is the profiling phase; warm-up keeps only its settings.
    let profiling: Vec<&mut Run> = runs
        .iter_mut()
        .filter(|r| !r.declared.label.as_deref().is_some_and(|l| l.contains("warmup")))
        .collect();
    let n = profiling.len();
    for run in profiling {
        let label = run.declared.label.take();
        if n == 1 {
            summary.clone().fill(run);
            check_counts(run);
        } else {
            run.tool = summary.tool.clone();
            run.declared = summary.declared.clone();
            let text = format!(
                "the window and the figures of {} span {}: they are left out",
                crate::error::shown(&name),
                things(n as u64, "profiling phase")
            );
            run.note("window-of-all-phases", &["request_throughput", "goodput"], text);
        }
        run.declared.label = label;
    }
    Ok(())
}

/// What the file says.
#[derive(Clone, Default)]
struct Summary {
    tool: Tool,
    duration: Option<RunDuration>,
    truncated: bool,
    declared: Declared,
    counts: Counts,
    stated: Stated,
    /// Why the window is unknown.
    no_window: Option<&'static str>,
}

impl Summary {
    fn fill(self, run: &mut Run) {
        run.tool = self.tool;
        run.duration = self.duration;
        run.truncated = self.truncated;
        run.declared = self.declared;
        run.counts = self.counts;
        run.stated = self.stated;
        if self.truncated {
            let text = "the run was cancelled while requests were left: it has no rates, and its \
                        latencies are those of the requests that had ended";
            run.note(
                "truncated",
                &["request_throughput", "goodput", "attainment"],
                text.to_owned(),
            );
        }
        if let Some(why) = self.no_window {
            run.lacks("duration of the run", why);
        }
    }
}

fn summary(root: &Node<'_>) -> Result<Summary> {
    let mut s = Summary {
        tool: Tool {
            name: "AIPerf".to_owned(),
            version: root.text("aiperf_version")?,
            age: root.has("aiperf_version").then_some(()).map_or_else(
                || Some("writes no `aiperf_version`: an older version".to_owned()),
                |()| None,
            ),
        },
        truncated: root.flag("was_cancelled")? == Some(true),
        ..Summary::default()
    };
    figures(root, &mut s.stated)?;
    s.counts = counts(root)?;
    if let Some(config) = root.node("input_config")? {
        s.declared = declared(&config)?;
    }
    if let Some(info) = root.node("run_info")? {
        add(&mut s.declared, &info, "cli_command");
    }
    for key in ["benchmark_id", "start_time", "end_time", "is_complete"] {
        add(&mut s.declared, root, key);
    }
    s.declared.date = root.text("start_time")?;
    s.duration = window(root)?;
    if s.duration.is_none() {
        s.no_window = Some("`start_time` and `end_time` in profile_export_aiperf.json");
    }
    Ok(s)
}

fn add(declared: &mut Declared, node: &Node<'_>, key: &str) {
    declared.metadata.extend(node.shown(key).map(|text| (key.to_owned(), text)));
}

/// The length of the phase.
fn window(root: &Node<'_>) -> Result<Option<RunDuration>> {
    const STAMP: &str = "a date and time, as 2026-11-29T12:26:20.063016";
    let stamp = |key: &str| -> Result<Option<jiff::civil::DateTime>> {
        let parse = |text: String| text.parse().map_err(|_| root.wrong(key, STAMP));
        root.text(key)?.map(parse).transpose()
    };
    let (Some(start), Some(end)) = (stamp("start_time")?, stamp("end_time")?) else {
        return Ok(None);
    };
    // Local time without a zone: exact but for a run across a change of summer time.
    let length = end.duration_since(start).as_secs_f64();
    if length <= 0.0 {
        return Err(root.wrong("end_time", "an instant after `start_time`"));
    }
    let value = Seconds::named("duration", length).map_err(|e| root.broken("end_time", e))?;
    let from = "`start_time` to `end_time` of profile_export_aiperf.json: the profiling phase";
    Ok(Some(RunDuration { value, from }))
}

/// All figures in the order of the file.
fn figures(root: &Node<'_>, stated: &mut Stated) -> Result<()> {
    for (name, raw) in root.entries() {
        if !raw.get().starts_with('{') {
            continue;
        }
        let Some(node) = root.node(name)? else { continue };
        if !node.has("unit") {
            continue;
        }
        let unit = node.text("unit")?.unwrap_or_default();
        let statistics: Vec<&str> =
            node.entries().map(|(k, _)| k).filter(|k| *k != "unit").collect();
        for statistic in &statistics {
            let value = node.need_number(statistic, "a number, as the tool computed it")?;
            let name = match (statistics.len(), *statistic) {
                (1, "avg") => with_unit(name, &unit),
                (_, "count") => format!("{name}_count"),
                _ => with_unit(&format!("{name}_{statistic}"), &unit),
            };
            stated.push(name, value);
        }
    }
    Ok(())
}

fn counts(root: &Node<'_>) -> Result<Counts> {
    let of = |name: &str| -> Result<Option<u64>> {
        let Some(node) = root.node(name)? else { return Ok(None) };
        node.count("avg")
    };
    let completed = of("request_count")?;
    // The tool leaves the count out where nothing failed.
    let failed = of("error_request_count")?.or(completed.map(|_| 0));
    Ok(Counts {
        completed,
        failed,
        total_input_tokens: of("total_isl")?,
        total_output_tokens: of("total_osl")?,
    })
}

fn declared(config: &Node<'_>) -> Result<Declared> {
    let mut d = Declared::default();
    if let Some(models) = config.node("models")?.and_then(|m| m.nodes("items").transpose()) {
        d.model = models?.first().map(|m| m.text("name")).transpose()?.flatten();
    }
    if let Some(tokenizer) = config.node("tokenizer")? {
        d.tokenizer = tokenizer.text("name")?;
    }
    if let Some(endpoint) = config.node("endpoint")? {
        d.backend = endpoint.text("type")?;
        for key in ["streaming", "use_server_token_count"] {
            add(&mut d, &endpoint, key);
        }
    }
    let phases = config.nodes("phases")?.unwrap_or_default();
    let profiling = |p: &&Node<'_>| p.text("kind").ok().flatten().as_deref() == Some("profiling");
    let mut measured = phases.iter().filter(profiling);
    if let (Some(phase), None) = (measured.next(), measured.next()) {
        load(phase, &mut d)?;
    }
    add(&mut d, config, "slos");
    add(&mut d, config, "phases");
    Ok(d)
}

/// How the phase sends.
fn load(phase: &Node<'_>, d: &mut Declared) -> Result<()> {
    const RATE: &str = "requests per second, above 0";
    d.num_prompts = phase.count("requests")?;
    d.max_concurrency = in_flight_limit(phase.count("concurrency")?);
    if let Some(rate) = phase.number_as("rate", RATE)? {
        if rate <= 0.0 {
            return Err(phase.wrong("rate", RATE));
        }
        d.request_rate = Some(RequestRate::PerSecond(rate));
        d.burstiness = match phase.text("type")?.as_deref() {
            Some("poisson") => Some(1.0),
            Some("constant") => Some(f64::INFINITY),
            Some("gamma") => phase.number("smoothness")?.filter(|x| 0.0 < *x),
            _ => None,
        };
    }
    Ok(())
}

/// Compares the summary's counts with the records.
fn check_counts(run: &mut Run) {
    use metrics_core::Outcome;
    let completed =
        run.timelines.iter().filter(|t| t.outcome() == Outcome::Completed).count() as u64;
    let misses = run.timelines.iter().filter(|t| t.outcome().is_miss()).count() as u64;
    let tokens = run.column("output_sequence_length_tokens").and_then(|c| match &c.values {
        crate::run::Values::Number(list) => whole(list.iter().flatten().sum()),
        crate::run::Values::Text(_) => None,
    });
    let mut differ = Vec::new();
    for (name, stated, found) in [
        ("request_count", run.counts.completed, Some(completed)),
        ("error_request_count", run.counts.failed, Some(misses)),
        ("total_osl", run.counts.total_output_tokens, tokens),
    ] {
        if let (Some(stated), Some(found)) = (stated, found)
            && stated != found
        {
            differ.push(format!("`{name}` says {stated}, the requests {found}"));
        }
    }
    if !differ.is_empty() {
        run.note("counts-disagree", &["request_throughput", "goodput"], differ.join("; "));
    }
}
