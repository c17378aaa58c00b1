//! `profile_export.jsonl`: one JSON object a request.

use std::collections::HashMap;

use metrics_core::format::{things, value};
use metrics_core::timeline::{GapKind, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline};
use serde_json::value::RawValue;

use super::{per_second, with_unit};
use crate::error::{IoError, Place, Result, input_of, shown};
use crate::input::Input;
use crate::node::{Document, Node};
use crate::rows::{Cells, Ids, note_client_delay, note_gap_kind};
use crate::run::{Clock, Run, Tool};

/// What a stamp should be.
const STAMP: &str = "whole nanoseconds since 1970";

/// Picoseconds in a nanosecond.
const PS: u128 = 1000;

/// One record, with its stamps still in Unix time.
struct Record {
    line: u64,
    fields: TimelineFields,
    /// Under which metric the number of tokens stood, for messages.
    tokens_key: &'static str,
    phase: Phase,
    start_ns: u128,
    /// Column name and Unix time.
    stamps: Vec<(&'static str, u128)>,
    credit_ns: Option<u128>,
    numbers: Vec<(String, f64)>,
    texts: Vec<(String, String)>,
    /// The client's own count of output tokens.
    client_tokens: Option<u64>,
    /// The TTFT of a one-token answer in several chunks, as the file has it.
    ttft_as_written: Option<f64>,
    streamed: bool,
}

/// Which phase of the run a request belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Phase {
    index: Option<u64>,
    name: String,
}

/// Counters of what was decided over all records.
#[derive(Default)]
struct Decided {
    skipped: u64,
    warm_up: u64,
}

pub(super) fn read(input: Input) -> Result<Vec<Run>> {
    let name = input.name.clone();
    let mut ids = Ids::default();
    let mut decided = Decided::default();
    let mut phases: Vec<(Phase, Vec<Record>)> = Vec::new();
    let mut by_phase: HashMap<Phase, usize> = HashMap::new();
    let mut lines = input.into_lines();
    while let Some((line, text)) = lines.next_line()? {
        let node = Document::of_line(&name, line, text).object()?;
        let Some(record) = record(&node, &mut decided)? else { continue };
        ids.check(&name, "metadata.x_request_id", line, &record.fields.id)?;
        let n = phases.len();
        let at = *by_phase.entry(record.phase.clone()).or_insert(n);
        if at == n {
            phases.push((record.phase.clone(), Vec::new()));
        }
        phases[at].1.push(record);
    }
    if phases.is_empty() {
        let expected = if 0 < decided.warm_up {
            "requests of the phase `profiling`, not of the warm-up alone"
        } else {
            "one JSON object a line and request, as AIPerf writes it"
        };
        return Err(IoError::NoRequests { at: Box::new(Place::file(&name)), expected });
    }
    let several = 1 < phases.len();
    let mut runs = Vec::with_capacity(phases.len());
    for (phase, records) in phases {
        let mut run = run(&name, records)?;
        if several {
            run.declared.label = Some(format!("phase {}", phase.name));
        }
        if 0 < decided.skipped {
            let text = format!(
                "{} left out: never sent, as the conversation had outgrown the context",
                things(decided.skipped, "record")
            );
            run.note("context-overflow-skipped", &["request_throughput", "attainment"], text);
        }
        if 0 < decided.warm_up {
            let text = format!(
                "{} of the warm-up phase left out, as the tool's own figures leave them out",
                things(decided.warm_up, "record")
            );
            run.note("warm-up-left-out", &["request_throughput"], text);
        }
        runs.push(run);
    }
    Ok(runs)
}

/// What one line says; nothing for a request that was never sent, or only to warm up.
fn record(node: &Node<'_>, decided: &mut Decided) -> Result<Option<Record>> {
    let metadata = node.need_node("metadata")?;
    if metadata.flag("context_overflow_skip")? == Some(true) {
        decided.skipped += 1;
        return Ok(None);
    }
    if is_warm_up(&metadata)? {
        decided.warm_up += 1;
        return Ok(None);
    }
    let start_ns = metadata
        .integer("request_start_ns", STAMP)?
        .ok_or_else(|| metadata.wrong("request_start_ns", STAMP))?;
    let mut r = Record {
        line: node.line(),
        fields: TimelineFields::default(),
        tokens_key: "output_sequence_length",
        phase: phase(&metadata)?,
        start_ns,
        stamps: Vec::new(),
        credit_ns: metadata.integer("credit_issued_ns", STAMP)?,
        numbers: Vec::new(),
        texts: Vec::new(),
        client_tokens: None,
        ttft_as_written: None,
        streamed: false,
    };
    for (key, column) in [
        ("credit_issued_ns", "credit_issued_s"),
        ("request_ack_ns", "request_ack_s"),
        ("request_end_ns", "request_end_s"),
        ("cancellation_time_ns", "cancellation_s"),
    ] {
        if let Some(ns) = metadata.integer(key, STAMP)? {
            r.stamps.push((column, ns));
        }
    }
    for key in ["session_num", "turn_index", "agent_depth"] {
        r.numbers.extend(metadata.count(key)?.map(|n| (key.to_owned(), n as f64)));
    }
    for key in [
        "conversation_id",
        "x_correlation_id",
        "root_correlation_id",
        "worker_id",
        "record_processor_id",
    ] {
        r.texts.extend(metadata.text(key)?.map(|text| (key.to_owned(), text)));
    }
    r.fields.id = metadata.text("x_request_id")?.unwrap_or_else(|| r.line.to_string());
    r.fields.outcome = outcome(node, &metadata, &mut r)?;
    let end_ns = metadata.integer("request_end_ns", STAMP)?;
    if let Some(end_ns) = end_ns
        && end_ns < start_ns
    {
        let expected = format!("a stamp of at least `request_start_ns` = {start_ns}");
        return Err(metadata.wrong("request_end_ns", expected));
    }
    if let Some(metrics) = node.node("metrics")? {
        read_metrics(&metrics, &mut r)?;
        agree(&metrics, r.fields.e2e, end_ns.map(|end_ns| between(start_ns, end_ns)))?;
    }
    Ok(Some(r))
}

/// How many times one of `request_latency` and the time between the stamps may be the other: both
/// are of one answer, and the stamps may hold what came behind the last token.
const LATENCIES_APART: f64 = 10.0;

/// Refuses a latency that its own stamps contradict by more than a factor, and by over 1 ms.
fn agree(metrics: &Node<'_>, latency: Option<f64>, stamped: Option<f64>) -> Result<()> {
    let (Some(latency), Some(stamped)) = (latency, stamped) else { return Ok(()) };
    let (low, high) = (latency.min(stamped), latency.max(stamped));
    if high - low <= 1e-3 || high <= LATENCIES_APART * low {
        return Ok(());
    }
    let between = "`request_start_ns` to `request_end_ns`";
    let expected = format!("about the {} s from {between}", value(stamped));
    Err(match metrics.node("request_latency")? {
        Some(node) => node.wrong("value", expected),
        None => metrics.wrong("request_latency", expected),
    })
}

/// Whether the record is of the phase that warms the server up.
fn is_warm_up(metadata: &Node<'_>) -> Result<bool> {
    match metadata.text("benchmark_phase")?.as_deref() {
        Some("warmup") => Ok(true),
        None | Some("profiling") => Ok(false),
        Some(_) => Err(metadata.wrong("benchmark_phase", "`warmup` or `profiling`")),
    }
}

fn phase(metadata: &Node<'_>) -> Result<Phase> {
    let name = match metadata.text("phase_name")? {
        Some(name) => name,
        None => metadata.text("benchmark_phase")?.unwrap_or_default(),
    };
    Ok(Phase { index: metadata.count("phase_index")?, name })
}

fn outcome(node: &Node<'_>, metadata: &Node<'_>, r: &mut Record) -> Result<Outcome> {
    let mut outcome = Outcome::Completed;
    if let Some(error) = node.node("error")? {
        let code = error.count("code")?;
        let kind = error.text("type")?.unwrap_or_default();
        outcome = match code {
            Some(429) => Outcome::Rejected,
            Some(408 | 504) => Outcome::TimedOut,
            Some(499) => Outcome::Cancelled,
            _ if kind.contains("Timeout") => Outcome::TimedOut,
            _ => Outcome::Failed,
        };
        r.numbers.extend(code.map(|n| ("error_code".to_owned(), n as f64)));
        if !kind.is_empty() {
            r.texts.push(("error_type".to_owned(), kind));
        }
        r.texts.extend(error.shown("message").map(|text| ("error".to_owned(), text)));
    }
    if metadata.flag("was_cancelled")? == Some(true) {
        outcome = Outcome::Cancelled;
    }
    Ok(outcome)
}

/// A metric of a record: its value as the file has it, and its unit.
fn metric<'a>(metrics: &Node<'a>, key: &str) -> Result<Option<(Node<'a>, String)>> {
    let Some(node) = metrics.node(key)? else { return Ok(None) };
    let unit = node.text("unit")?.ok_or_else(|| node.wrong("unit", "the unit as a text"))?;
    Ok(Some((node, unit)))
}

/// The metric under a key in seconds.
fn seconds(metrics: &Node<'_>, key: &str) -> Result<Option<f64>> {
    let Some((node, unit)) = metric(metrics, key)? else { return Ok(None) };
    let per = time_unit(&node, &unit)?;
    Ok(node.number("value")?.map(|x| x / per))
}

fn time_unit(node: &Node<'_>, unit: &str) -> Result<f64> {
    per_second(unit).ok_or_else(|| node.wrong("unit", "a unit of time: ns, us, ms or sec"))
}

/// The metric under a key as a count.
fn tokens(metrics: &Node<'_>, key: &str) -> Result<Option<u64>> {
    match metric(metrics, key)? {
        Some((node, unit)) if unit == "tokens" => node.count("value"),
        Some((node, _)) => Err(node.wrong("unit", "\"tokens\"")),
        None => Ok(None),
    }
}

fn read_metrics(metrics: &Node<'_>, r: &mut Record) -> Result<()> {
    let completed = r.fields.outcome == Outcome::Completed;
    r.fields.ttft = seconds(metrics, "time_to_first_token")?;
    r.streamed = r.fields.ttft.is_some();
    r.fields.e2e = seconds(metrics, "request_latency")?.filter(|_| completed);
    if let Some((node, unit)) = metric(metrics, "inter_chunk_latency")? {
        let per = time_unit(&node, &unit)?;
        let gaps = node.numbers("value")?.unwrap_or_default();
        let gaps = gaps.into_iter().map(|x| x / per).collect();
        r.fields.gaps = Some((GapKind::Chunk, gaps)).filter(|_| r.streamed);
    } else if r.streamed && completed {
        r.fields.gaps = Some((GapKind::Chunk, Vec::new()));
    }
    r.client_tokens = tokens(metrics, "output_sequence_length")?;
    let server = tokens(metrics, "usage_completion_tokens")?.filter(|&n| 0 < n);
    if server.is_some() {
        r.tokens_key = "usage_completion_tokens";
    }
    // The tool counts an empty text as no tokens.
    r.fields.output_tokens = server.or(r.client_tokens).filter(|&n| completed && 0 < n);
    r.fields.input_tokens = match tokens(metrics, "usage_prompt_tokens")? {
        Some(n) => Some(n),
        None => match tokens(metrics, "input_sequence_length")? {
            Some(n) => Some(n),
            None => tokens(metrics, "error_isl")?,
        },
    };
    if let (Some(1), Some(first), Some(last)) =
        (r.fields.output_tokens, r.fields.ttft, r.fields.e2e)
        && first < last
    {
        r.ttft_as_written = Some(first);
        r.fields.ttft = Some(last);
    }
    for (key, _) in metrics.entries() {
        let Some((node, unit)) = metric(metrics, key)? else { continue };
        if node.raw("value").is_some_and(is_list) {
            node.numbers("value")?;
            continue;
        }
        r.numbers.extend(node.number("value")?.map(|x| (with_unit(key, &unit), x)));
    }
    Ok(())
}

fn is_list(raw: &RawValue) -> bool {
    raw.get().starts_with('[')
}

/// Seconds between two stamps.
fn between(earlier: u128, later: u128) -> f64 {
    // Whole nanoseconds of a run are far below 2^53.
    let (gap, sign) =
        if earlier <= later { (later - earlier, 1.0) } else { (earlier - later, -1.0) };
    sign * (gap as f64 / 1e9)
}

/// Makes the run of one phase.
fn run(file: &str, records: Vec<Record>) -> Result<Run> {
    let mut run = Run { line: records.first().map_or(1, |r| r.line), ..Run::default() };
    run.tool = Tool { name: "AIPerf".to_owned(), ..Tool::default() };
    let earliest = |r: &Record| r.credit_ns.map_or(r.start_ns, |c| c.min(r.start_ns));
    let origin = records.iter().map(earliest).min().unwrap_or(0);
    run.clock = Clock::RunStart { epoch_s: Some(origin as f64 / 1e9) };
    let per_token = gaps_look_per_token(&records);
    note_gap_kind(
        &mut run,
        per_token,
        records.iter().filter(|r| r.fields.outcome == Outcome::Completed).filter_map(|r| {
            Some((r.fields.gaps.as_ref()?.1.len() as u64, r.fields.output_tokens?))
        }),
    );
    let mut cells = Cells::default();
    let (mut differ, mut not_streamed, mut no_tokens, mut several) = (0, 0, 0, 0);
    let rows = records.len();
    for (i, mut r) in records.into_iter().enumerate() {
        let completed = r.fields.outcome == Outcome::Completed;
        let offset = r.start_ns - origin;
        r.fields.arrival = Some(Instant::Picoseconds(offset.saturating_mul(PS)));
        if per_token
            && completed
            && let Some((kind, _)) = &mut r.fields.gaps
        {
            *kind = GapKind::Token;
        }
        if completed {
            not_streamed += u64::from(!r.streamed);
            no_tokens += u64::from(r.fields.output_tokens.is_none());
            several += u64::from(r.ttft_as_written.is_some());
            let client = r.client_tokens.filter(|_| r.fields.output_tokens.is_some());
            differ += u64::from(client.is_some_and(|n| Some(n) != r.fields.output_tokens));
        }
        let late = r.credit_ns.map(|credit| between(credit, r.start_ns));
        cells.number(i, "client_delay_s", late);
        for &(name, ns) in &r.stamps {
            cells.number(i, name, Some(between(origin, ns)));
        }
        for (name, x) in r.numbers {
            cells.number(i, &name, Some(x));
        }
        for (name, text) in r.texts {
            cells.text(i, &name, Some(text));
        }
        cells.number(i, "ttft_as_written_s", r.ttft_as_written);
        let tokens_key = r.tokens_key;
        run.timelines.push(RequestTimeline::new(r.fields).map_err(|source| {
            let key = key_of(&source, tokens_key);
            let at = Box::new(Place::line(file, r.line).key(key));
            IoError::Request { at, source, note: " (in seconds)" }
        })?);
    }
    run.columns = cells.finish(rows);
    if 0 < differ {
        let text = format!(
            "the server's token count is not the client's in {}: the server's is taken, the tool's \
             figures use the client's (column output_sequence_length_tokens)",
            things(differ, "answer")
        );
        run.note("token-counts-differ", &["tpot", "token_throughput"], text);
    }
    if 0 < not_streamed {
        let text = format!(
            "{} without a time to first token: not streamed",
            things(not_streamed, "completed request")
        );
        run.note("not-streamed", &["ttft", "tpot"], text);
    }
    if 0 < no_tokens {
        let text = format!(
            "{} without output tokens: count unknown",
            things(no_tokens, "completed request")
        );
        run.note("no-tokens", &["tpot", "token_throughput"], text);
    }
    if 0 < several {
        let text = format!(
            "{} in several chunks: TTFT is taken as the last chunk, the tool's own value is in the \
             column ttft_as_written_s",
            things(several, "one-token answer")
        );
        run.note("one-token-in-several-chunks", &["ttft"], text);
    }
    note_endings(&mut run);
    note_client_delay(&mut run);
    say_what_is_missing(&mut run);
    Ok(run)
}

fn note_endings(run: &mut Run) {
    let of = |outcome| run.timelines.iter().filter(|t| t.outcome() == outcome).count() as u64;
    let (cancelled, failed) = (of(Outcome::Cancelled), of(Outcome::Failed));
    if 0 < cancelled {
        let text = format!(
            "{} that the client gave up: by a cancellation rate or at the end of the phase, the \
             file does not tell which",
            things(cancelled, "request")
        );
        run.note("cancelled-by-client", &["attainment"], text);
    }
    if 0 < failed {
        let text = format!(
            "{} without times: the file does not say whether chunks had come before the error",
            things(failed, "failed request")
        );
        run.note("failed-without-times", &["ttft", "e2e_latency"], text);
    }
}

/// The metric that holds the value which breaks the rule.
fn key_of(error: &metrics_core::Error, tokens: &str) -> String {
    let metric = match input_of(error).unwrap_or("") {
        "arrival" => return "metadata.request_start_ns".to_owned(),
        "output_tokens" => tokens,
        "input_tokens" => "input_sequence_length",
        "a gap between outputs" => "inter_chunk_latency",
        "e2e" | "last_token" => "request_latency",
        _ => "time_to_first_token",
    };
    format!("metrics.{}", shown(metric))
}

/// Whether every completed request has exactly one gap fewer than tokens, and some has a gap.
fn gaps_look_per_token(records: &[Record]) -> bool {
    let mut any = false;
    for r in records.iter().filter(|r| r.fields.outcome == Outcome::Completed) {
        let (Some((_, gaps)), Some(tokens)) = (&r.fields.gaps, r.fields.output_tokens) else {
            return false;
        };
        if tokens.saturating_sub(1) != gaps.len() as u64 {
            return false;
        }
        any |= !gaps.is_empty();
    }
    any
}

fn say_what_is_missing(run: &mut Run) {
    if run.timelines.iter().all(|t| t.ttft().is_none()) {
        run.lacks("ttft per request", "run with `--streaming`");
    }
    run.lacks("queue time in the server", "the server's own metrics or log");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_subtracted_before_they_are_rounded() {
        let a = 1_795_955_252_142_676_686;
        assert_eq!(between(a, a + 1).to_bits(), 1e-9_f64.to_bits());
        assert_eq!(between(a + 5, a), -5e-9);
    }
}
