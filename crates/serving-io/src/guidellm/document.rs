//! The JSON file: benchmarks with their requests.

use metrics_core::error::LARGEST;
use metrics_core::format::things;
use metrics_core::timeline::TimelineFields;
use metrics_core::{Instant, Outcome, RequestTimeline, Seconds};

use super::with_unit;
use crate::document::DURATION;
use crate::error::{IoError, Place, Result, input_of, shown};
use crate::input::Input;
use crate::json::whole;
use crate::node::{Document, Node};
use crate::rows::{Cells, Ids, note_client_delay};
use crate::run::{
    Clock, Counts, Declared, RequestRate, Run, RunDuration, Stated, Tool, in_flight_limit,
};

/// What a stamp should be.
const STAMP: &str = "Unix time in seconds";
/// What a latency, a rate or a count of a request should be; the bound is that of every quantity.
const MEASURED: &str = "a number of at least 0 and at most 1e100, or null";
/// Deepest nesting of a figure: `metrics.text.tokens.input.successful.percentiles`.
const DEEPEST: usize = 8;

pub(super) fn read(input: Input) -> Result<Vec<Run>> {
    let name = input.name.clone();
    let text = input.into_text()?;
    let root = Document::new(&name, &text).object()?;
    let version = match root.node("metadata")? {
        Some(metadata) => metadata.text("guidellm_version")?,
        None => None,
    };
    let tokenizer = tokenizer(&root)?;
    let benchmarks = root
        .nodes("benchmarks")?
        .ok_or_else(|| root.wrong("benchmarks", "a list with one benchmark a rate"))?;
    if benchmarks.is_empty() {
        let at = Box::new(Place::file(&name).key("benchmarks"));
        return Err(IoError::NoRequests { at, expected: "at least one benchmark" });
    }
    let each = |benchmark: Node<'_>| {
        let mut run = run(&benchmark)?;
        run.tool = Tool { name: "GuideLLM".to_owned(), version: version.clone(), age: None };
        run.declared.tokenizer.clone_from(&tokenizer);
        Ok(run)
    };
    benchmarks.into_iter().map(each).collect()
}

fn tokenizer(root: &Node<'_>) -> Result<Option<String>> {
    let Some(config) = root.node("config")? else { return Ok(None) };
    let Some(spec) = config.node("spec")? else { return Ok(None) };
    match spec.node("tokenizer")? {
        Some(tokenizer) => tokenizer.text("model"),
        None => Ok(None),
    }
}

/// One request on its way to a timeline; instants are still Unix time.
struct Request {
    line: u64,
    path: String,
    fields: TimelineFields,
    start: f64,
    targeted: Option<f64>,
    stamps: Vec<(String, f64)>,
    numbers: Vec<(String, f64)>,
    texts: Vec<(&'static str, String)>,
    several_chunks: bool,
}

fn run(benchmark: &Node<'_>) -> Result<Run> {
    let mut run = Run { line: benchmark.line(), ..Run::default() };
    if let Some(config) = benchmark.node("config")? {
        run.declared = declared(&config)?;
    }
    let mut windows = (0.0, 0.0);
    for (key, slot) in [("warmup_duration", &mut windows.0), ("cooldown_duration", &mut windows.1)]
    {
        *slot = benchmark.number_as(key, "a number of seconds")?.unwrap_or(0.0);
    }
    for key in ["start_time", "end_time", "duration", "warmup_duration", "cooldown_duration"] {
        add(&mut run.declared, benchmark, key);
    }
    if let Some(metrics) = benchmark.node("metrics")? {
        flatten(&metrics, "", 0, &mut run.stated)?;
        run.counts = counts(&metrics)?;
    }
    if let Some(scheduler) = benchmark.node("scheduler_metrics")? {
        for (key, _) in scheduler.entries().filter(|(k, _)| k.ends_with("_time")) {
            add(&mut run.declared, &scheduler, key);
        }
        flatten(&scheduler, "", 0, &mut run.stated)?;
    }
    requests(benchmark, &mut run)?;
    let found = run.timelines.len() as u64;
    let total = run.stated.get("request_totals_total").and_then(whole);
    if let Some(total) = total.filter(|&n| found < n) {
        run.truncated = true;
        let text = format!(
            "{found} of {} are in the file (`sample_size`): there are no rates, and \
             percentiles are those of the sample",
            things(total, "request")
        );
        run.note("requests-sampled", &["request_throughput", "goodput"], text);
    } else if 0.0 < windows.0 || 0.0 < windows.1 {
        let text = format!(
            "the tool's figures leave out a warm-up of {} s and a cool-down of {} s; the requests \
             here are all of the file, and so is the window",
            crate::json::number(windows.0),
            crate::json::number(windows.1)
        );
        run.note("warmup-in-file", &["ttft", "tpot", "e2e_latency", "request_throughput"], text);
    } else {
        run.duration = duration(benchmark)?;
    }
    check_counts(&mut run);
    note_client_delay(&mut run);
    for warning in benchmark.nodes("warnings")?.unwrap_or_default() {
        if let Some(text) = warning.text("message")? {
            run.note("tool-warning", &[], text);
        }
    }
    if run.duration.is_none() {
        run.lacks("duration of the run", "a run without warm-up, cool-down and `sample_size`");
    }
    run.lacks("gaps between outputs", "another client; the file has their mean per request");
    run.lacks("queue time in the server", "the server's own metrics or log");
    Ok(run)
}

fn add(declared: &mut Declared, node: &Node<'_>, key: &str) {
    declared.metadata.extend(node.shown(key).map(|text| (key.to_owned(), text)));
}

fn duration(benchmark: &Node<'_>) -> Result<Option<RunDuration>> {
    let Some(x) = benchmark.number_as("duration", DURATION)? else { return Ok(None) };
    if x <= 0.0 {
        return Err(benchmark.wrong("duration", DURATION));
    }
    let value = Seconds::named("duration", x).map_err(|e| benchmark.broken("duration", e))?;
    Ok(Some(RunDuration { value, from: "`duration`: first send to last end" }))
}

fn declared(config: &Node<'_>) -> Result<Declared> {
    const RATE: &str = "requests per second, above 0";
    let mut d = Declared::default();
    if let Some(backend) = config.node("backend")? {
        d.model = backend.text("model")?;
        d.backend = match backend.text("request_format")? {
            Some(format) => Some(format),
            None => backend.text("kind")?,
        };
    }
    if let Some(strategy) = config.node("strategy")? {
        let kind = strategy.text("type_")?.unwrap_or_default();
        let rate = strategy.number_as("rate", RATE)?;
        if rate.is_some_and(|r| r <= 0.0) {
            return Err(strategy.wrong("rate", RATE));
        }
        d.request_rate = rate.map(RequestRate::PerSecond);
        let streams = strategy.count("streams")?;
        d.max_concurrency = in_flight_limit(streams);
        match kind.as_str() {
            "poisson" => d.burstiness = Some(1.0),
            "constant" => d.burstiness = Some(f64::INFINITY),
            "synchronous" => d.max_concurrency = Some(1),
            "throughput" => {
                d.request_rate = Some(RequestRate::Infinite);
                d.max_concurrency = in_flight_limit(strategy.count("max_concurrency")?);
            }
            _ => {}
        }
        let of = rate.map(crate::json::number).or(streams.map(|n| n.to_string()));
        d.label = Some(of.map_or(kind.clone(), |of| format!("{kind}@{of}")));
    }
    if let Some(constraints) = config.node("constraints")?
        && let Some(most) = constraints.node("max_requests")?
        && let Some(arguments) = most.node("args")?
    {
        d.num_prompts = arguments.count("count")?;
    }
    for key in [
        "run_id",
        "run_index",
        "slo",
        "warmup",
        "cooldown",
        "confidence",
        "prefer_response_metrics",
    ] {
        add(&mut d, config, key);
    }
    Ok(d)
}

fn counts(metrics: &Node<'_>) -> Result<Counts> {
    let mut counts = Counts::default();
    if let Some(totals) = metrics.node("request_totals")? {
        counts.completed = totals.count("successful")?;
        counts.failed = totals.count("errored")?;
    }
    let sum = |key: &str| -> Result<Option<u64>> {
        let Some(metric) = metrics.node(key)? else { return Ok(None) };
        match metric.node("successful")? {
            // Summed from a weighted distribution: 5444.999999999999 is 5445.
            Some(successful) => Ok(successful
                .number("total_sum")?
                .filter(|x| (x - x.round()).abs() < 1e-6)
                .and_then(|x| whole(x.round()))),
            None => Ok(None),
        }
    };
    counts.total_input_tokens = sum("prompt_token_count")?;
    counts.total_output_tokens = sum("output_token_count")?;
    Ok(counts)
}

/// All numbers below a node, under their keys; what has no samples is left out.
fn flatten(node: &Node<'_>, prefix: &str, depth: usize, stated: &mut Stated) -> Result<()> {
    if DEEPEST < depth || (node.has("mean") && node.number("count")? == Some(0.0)) {
        return Ok(());
    }
    for (key, raw) in node.entries() {
        let path = match (prefix, key) {
            ("", key) => key.to_owned(),
            (prefix, "percentiles") => prefix.to_owned(),
            (prefix, key) => format!("{prefix}_{key}"),
        };
        match raw.get().as_bytes().first() {
            Some(b'{') => {
                if let Some(child) = node.node(key)? {
                    flatten(&child, &path, depth + 1, stated)?;
                }
            }
            Some(b'-' | b'0'..=b'9') if !key.ends_with("_time") => {
                let value = node.need_number(key, "a number, as the tool computed it")?;
                stated.push(with_unit(&path), value);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes timelines and columns.
fn requests(benchmark: &Node<'_>, run: &mut Run) -> Result<()> {
    let Some(lists) = benchmark.node("requests")? else {
        run.lacks("requests", "the JSON file as the tool wrote it");
        return Ok(());
    };
    let mut ids = Ids::default();
    let mut all = Vec::new();
    for (key, outcome) in [
        ("successful", Outcome::Completed),
        ("errored", Outcome::Failed),
        ("incomplete", Outcome::CutOff),
    ] {
        for node in lists.nodes(key)?.unwrap_or_default() {
            let request = request(&node, outcome)?;
            ids.check(node.file(), "request_id", request.line, &request.fields.id)?;
            all.push(request);
        }
    }
    if all.is_empty() {
        run.lacks("latencies per request", "a run in which requests were sent");
        return Ok(());
    }
    // The lists are by outcome; time order is what a reader of a log expects.
    all.sort_by(|a, b| a.start.total_cmp(&b.start));
    let earliest = |r: &Request| r.targeted.map_or(r.start, |t| t.min(r.start));
    let origin = all.iter().map(earliest).fold(f64::INFINITY, f64::min);
    run.clock = Clock::RunStart { epoch_s: Some(origin) };
    let rows = all.len();
    let mut cells = Cells::default();
    let (mut cut, mut several, mut no_tokens) = (0, 0, 0);
    for (i, mut r) in all.into_iter().enumerate() {
        r.fields.arrival = Some(Instant::Seconds(r.start - origin));
        match r.fields.outcome {
            Outcome::Completed => {
                several += u64::from(r.several_chunks);
                no_tokens += u64::from(r.fields.output_tokens.is_none());
            }
            _ => cut += u64::from(r.fields.ttft.is_some()),
        }
        cells.number(i, "client_delay_s", r.targeted.map(|t| r.start - t));
        for (name, at) in r.stamps {
            cells.number(i, &name, Some(at - origin));
        }
        for (name, x) in r.numbers {
            cells.number(i, &name, Some(x));
        }
        for (name, text) in r.texts {
            cells.text(i, name, Some(text));
        }
        let (line, path) = (r.line, r.path);
        run.timelines.push(RequestTimeline::new(r.fields).map_err(|source| {
            let key = format!("{path}{}", key_of(&source));
            let at = Box::new(Place::line(benchmark.file(), line).key(key));
            IoError::Request { at, source, note: "" }
        })?);
    }
    run.columns = cells.finish(rows);
    if 0 < cut {
        let text = format!(
            "{} that had begun to answer: TTFT is kept, E2E and output tokens are unknown",
            things(cut, "failed or cut-off request")
        );
        run.note("cut-in-mid-stream", &["e2e_latency", "token_throughput"], text);
    }
    if 0 < several {
        let text = format!(
            "{} in several chunks: TTFT is taken as the last chunk, the tool's own value is in the \
             column time_to_first_token_ms",
            things(several, "one-token answer")
        );
        run.note("one-token-in-several-chunks", &["ttft"], text);
    }
    if 0 < no_tokens {
        let text = format!(
            "{} without output tokens: count unknown",
            things(no_tokens, "completed request")
        );
        run.note("no-tokens", &["tpot", "token_throughput"], text);
    }
    Ok(())
}

fn request(node: &Node<'_>, outcome: Outcome) -> Result<Request> {
    let info = node.need_node("info")?;
    let timings = info.need_node("timings")?;
    let completed = outcome == Outcome::Completed;
    let start = match timings.number_as("request_start", STAMP)? {
        Some(start) => start,
        // What was never sent has been due.
        None => match timings.number_as("resolve_start", STAMP)? {
            Some(start) if !completed => start,
            _ => timings.need_number("targeted_start", STAMP)?,
        },
    };
    let since = |key: &str| -> Result<Option<f64>> {
        let Some(at) = timings.number_as(key, STAMP)? else { return Ok(None) };
        // Seen before it was sent: let the timeline's own check say so.
        Ok(Some(at - start))
    };
    let mut fields = TimelineFields {
        id: match node.text("request_id")? {
            Some(id) => id,
            None => info.text("request_id")?.unwrap_or_else(|| node.line().to_string()),
        },
        ttft: since("first_token_iteration")?,
        e2e: since("last_token_iteration")?.filter(|_| completed),
        input_tokens: node.count("prompt_tokens")?,
        output_tokens: node.count("output_tokens")?.filter(|&n| completed && 0 < n),
        outcome,
        ..TimelineFields::default()
    };
    if completed && fields.e2e.is_none() {
        // Not streamed: the answer came whole.
        fields.e2e = since("request_end")?;
        fields.ttft = None;
    }
    let mut several_chunks = false;
    if let (Some(1), Some(first), Some(last)) = (fields.output_tokens, fields.ttft, fields.e2e)
        && first < last
    {
        fields.ttft = Some(last);
        several_chunks = true;
    }
    let mut r = Request {
        line: node.line(),
        path: node.path().to_owned(),
        fields,
        start,
        targeted: timings.number_as("targeted_start", STAMP)?,
        stamps: Vec::new(),
        numbers: Vec::new(),
        texts: Vec::new(),
        several_chunks,
    };
    for (key, _) in timings.entries() {
        let value = timings.need_number(key, "a number or null")?;
        if key.ends_with("_iterations") || key.ends_with("_count") || key.ends_with("_sum") {
            r.numbers.push((key.to_owned(), value));
        } else {
            r.stamps.push((format!("{key}_s"), value));
        }
    }
    for key in ["turn_index", "history_len", "scheduler_node_id", "scheduler_process_id"] {
        r.numbers.extend(info.number(key)?.map(|x| (key.to_owned(), x)));
    }
    for key in ["conversation_id", "agent_id", "status", "error"] {
        r.texts.extend(info.text(key)?.map(|text| (key, text)));
    }
    for (key, raw) in node.entries() {
        let numeric = raw.get().starts_with(|c: char| c == '-' || c.is_ascii_digit());
        // The stamps are among the timings already.
        if numeric && !key.ends_with("_time") {
            let value = node.need_number(key, MEASURED)?;
            if !(0.0..=LARGEST).contains(&value) {
                return Err(node.wrong(key, MEASURED));
            }
            r.numbers.push((with_unit(key), value));
        }
    }
    Ok(r)
}

/// The key of the value that breaks the rule, below a request.
fn key_of(error: &metrics_core::Error) -> String {
    let key = match input_of(error).unwrap_or("") {
        "output_tokens" => "output_tokens",
        "input_tokens" => "prompt_tokens",
        "arrival" => "info.timings.request_start",
        "e2e" | "last_token" => "info.timings.last_token_iteration",
        _ => "info.timings.first_token_iteration",
    };
    format!(".{}", shown(key))
}

/// Compares the file's totals with its requests.
fn check_counts(run: &mut Run) {
    if run.truncated || !run.has_requests() {
        return;
    }
    let of = |outcome| run.timelines.iter().filter(|t| t.outcome() == outcome).count() as u64;
    let mut differ = Vec::new();
    for (name, stated, found) in [
        ("request_totals.successful", run.counts.completed, of(Outcome::Completed)),
        ("request_totals.errored", run.counts.failed, of(Outcome::Failed)),
    ] {
        if let Some(stated) = stated
            && stated != found
        {
            differ.push(format!("`{name}` says {stated}, the requests {found}"));
        }
    }
    if !differ.is_empty() {
        run.note("counts-disagree", &["request_throughput", "goodput"], differ.join("; "));
    }
}
