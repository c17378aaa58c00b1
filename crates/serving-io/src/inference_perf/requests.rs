//! `per_request_lifecycle_metrics.json`: one JSON array, a request each.

use std::collections::HashMap;
use std::path::PathBuf;

use metrics_core::format::{plain, things};
use metrics_core::timeline::{GapKind, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline, Seconds};

use super::summary;
use crate::error::{IoError, Place, Result, input_of, shown};
use crate::input::Input;
use crate::node::{Document, Node};
use crate::rows::{Cells, note_gap_kind};
use crate::run::{Clock, Run, Tool};

/// What a stamp should be.
const STAMP: &str = "seconds on the client's clock";

/// One request, with its place in the file.
#[derive(Clone)]
struct Request {
    line: u64,
    index: usize,
    fields: TimelineFields,
    start: f64,
    end: f64,
    /// Stamps of tokens as the tool has them, after sending.
    stamps: Vec<f64>,
    /// Stamps of chunks after sending, where the version has them.
    chunks: Option<Vec<f64>>,
    numbers: Vec<(&'static str, f64)>,
    texts: Vec<(&'static str, String)>,
    /// Whether the number of tokens is the client's own.
    retokenized: bool,
}

/// The requests of a file, and its name.
struct Requests {
    name: String,
    all: Vec<Request>,
}

pub(super) fn read(input: Input) -> Result<Vec<Run>> {
    let requests = parse(input)?;
    let mut run = run(&requests.name, requests.all)?;
    run.lacks("which stage a request belongs to", "the directory with the stage files");
    Ok(vec![run])
}

/// As one run a stage, where the stage files tell which request belongs to which.
pub(super) fn read_stages(input: Input, stages: &[(u64, PathBuf)]) -> Result<Vec<Run>> {
    let mut requests = parse(input)?;
    let mut described = Vec::with_capacity(stages.len());
    for (number, path) in stages {
        described.push((*number, summary::read_one(path)?));
    }
    requests.all.sort_by(|a, b| a.start.total_cmp(&b.start));
    let Some(parts) = split(&requests.all, &described) else {
        let mut run = run(&requests.name, requests.all)?;
        if !described.is_empty() {
            let text = format!(
                "{} beside the requests, but cut by their counts the requests do not have their \
                 successes, failures and lengths: all requests are one run",
                things(described.len() as u64, "stage file")
            );
            run.note("stages-not-matched", &["request_throughput", "goodput"], text);
        }
        return Ok(vec![run]);
    };
    let mut runs = Vec::with_capacity(parts.len());
    for (part, (number, stage)) in parts.into_iter().zip(described) {
        let mut run = run(&requests.name, part)?;
        run.declared = stage.declared;
        run.declared.label = Some(format!("stage {number}"));
        run.duration = stage.duration;
        run.counts = stage.counts;
        run.stated = stage.stated;
        run.tool.age = stage.tool.age;
        run.notes.extend(stage.notes);
        runs.push(run);
    }
    Ok(runs)
}

/// The requests of each stage, in time order; nothing if the stage files contradict them.
fn split(all: &[Request], stages: &[(u64, Run)]) -> Option<Vec<Vec<Request>>> {
    let mut rest = all;
    let mut parts = Vec::with_capacity(stages.len());
    for (_, stage) in stages {
        let (completed, failed) = (stage.counts.completed?, stage.counts.failed?);
        let n = usize::try_from(completed.checked_add(failed)?).ok()?;
        let (part, after) = (rest.get(..n)?, rest.get(n..)?);
        let ok = part.iter().filter(|r| r.fields.outcome == Outcome::Completed).count() as u64;
        if ok != completed {
            return None;
        }
        if let Some(stated) = stage.duration {
            let first = part.iter().map(|r| r.start).fold(f64::INFINITY, f64::min);
            let last = part.iter().map(|r| r.end).fold(f64::NEG_INFINITY, f64::max);
            // The tool's figure is this difference itself.
            if 1e-3 < (last - first - stated.value.get()).abs() {
                return None;
            }
        }
        parts.push(part.to_vec());
        rest = after;
    }
    (rest.is_empty() && !parts.is_empty()).then_some(parts)
}

fn parse(input: Input) -> Result<Requests> {
    let name = input.name.clone();
    let text = input.into_text()?;
    let nodes = Document::new(&name, &text).array()?;
    if nodes.is_empty() {
        let expected = "a list of requests, as inference-perf writes it";
        return Err(IoError::NoRequests { at: Box::new(Place::file(&name)), expected });
    }
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(nodes.len());
    let mut all = Vec::with_capacity(nodes.len());
    for (i, node) in nodes.iter().enumerate() {
        // Stamps of one clock to the last digit, and all else alike: a copy.
        if let Some(first) = seen.insert(node.source(), i) {
            return Err(IoError::Value {
                at: Box::new(Place::line(&name, node.line()).key(node.path())),
                found: format!("the same request as [{first}]"),
                expected: "each request once".to_owned(),
            });
        }
        all.push(request(i, node)?);
    }
    Ok(Requests { name, all })
}

fn request(index: usize, node: &Node<'_>) -> Result<Request> {
    let start = node.need_number("start_time", STAMP)?;
    let end = node.need_number("end_time", STAMP)?;
    let mut r = Request {
        line: node.line(),
        index,
        fields: TimelineFields {
            id: index.to_string(),
            arrival: Some(Instant::Seconds(start)),
            ..TimelineFields::default()
        },
        start,
        end,
        stamps: Vec::new(),
        chunks: None,
        numbers: vec![("request_end_s", end), ("request_latency_s", end - start)],
        texts: Vec::new(),
        retokenized: false,
    };
    r.fields.outcome = outcome(node, &mut r)?;
    let Some(info) = node.node("info")? else { return Ok(r) };
    r.texts.extend(info.text("lora_adapter")?.map(|t| ("lora_adapter", t)));
    // The tool writes 0 for a request that failed.
    let client_input = info.count("input_tokens")?.filter(|&n| 0 < n);
    let nested = info.node("response_metrics")?;
    let metrics = nested.as_ref().unwrap_or(&info);
    let client_output = metrics.count("output_tokens")?.filter(|&n| 0 < n);
    let (mut server_input, mut server_output) = (None, None);
    if let Some(usage) = metrics.node("server_usage")? {
        server_input = usage.count("prompt_tokens")?;
        server_output = usage.count("completion_tokens")?.filter(|&n| 0 < n);
        if let Some(details) = usage.node("prompt_tokens_details")? {
            let cached = details.count("cached_tokens")?;
            r.numbers.extend(cached.map(|n| ("cached_tokens", n as f64)));
        }
    }
    for (name, n) in [
        ("client_prompt_tokens", client_input),
        ("server_prompt_tokens", server_input),
        ("retokenized_output_tokens", client_output),
        ("server_output_tokens", server_output),
    ] {
        r.numbers.extend(n.map(|n| (name, n as f64)));
    }
    let after = |key: &str| -> Result<Option<Vec<f64>>> {
        let Some(list) = metrics.numbers(key)? else { return Ok(None) };
        // An end before the start is said of the end.
        if start <= end {
            within(metrics, key, &list, (start, end))?;
        }
        Ok(Some(list.into_iter().map(|t| t - start).collect()))
    };
    r.stamps = after("output_token_times")?.unwrap_or_default();
    r.chunks = after("chunk_times")?;
    let completed = r.fields.outcome == Outcome::Completed;
    r.fields.input_tokens = server_input.or(client_input);
    r.fields.output_tokens = server_output.or(client_output).filter(|_| completed);
    r.retokenized = server_output.is_none() && client_output.is_some();
    r.numbers.push(("token_stamps", r.stamps.len() as f64));
    Ok(r)
}

/// Refuses stamps outside of their request.
fn within(metrics: &Node<'_>, key: &str, stamps: &[f64], (start, end): (f64, f64)) -> Result<()> {
    match stamps.iter().position(|t| !(start..=end).contains(t)) {
        None => Ok(()),
        Some(i) => {
            let mut at = metrics.place(key, metrics.raw(key));
            at.index = Some(i);
            let found = stamps.get(i).map_or_else(String::new, |&t| plain(t));
            let (start, end) = (plain(start), plain(end));
            let expected = format!("a stamp from `start_time` = {start} to `end_time` = {end}");
            Err(IoError::Value { at, found, expected })
        }
    }
}

fn outcome(node: &Node<'_>, r: &mut Request) -> Result<Outcome> {
    let Some(error) = node.node("error")? else { return Ok(Outcome::Completed) };
    let kind = error.text("error_type")?.unwrap_or_default();
    let is = |words: &[&str]| words.iter().any(|w| kind.contains(w));
    let outcome = if is(&["HTTP Error 429"]) {
        Outcome::Rejected
    } else if is(&["HTTP Error 408", "HTTP Error 504", "Timeout"]) {
        Outcome::TimedOut
    } else if is(&["Cancel"]) {
        Outcome::Cancelled
    } else {
        Outcome::Failed
    };
    if !kind.is_empty() {
        r.texts.push(("error_type", kind));
    }
    r.texts.extend(error.text("error_msg")?.map(|text| ("error", text)));
    Ok(outcome)
}

/// Whether the file has two stamps for each token: each chunk was tokenized with a start token.
fn doubled(all: &[Request]) -> bool {
    let (mut stamps, mut tokens) = (0.0, 0.0);
    for r in all.iter().filter(|r| r.fields.outcome == Outcome::Completed) {
        if let Some(n) = r.fields.output_tokens.filter(|_| !r.stamps.is_empty()) {
            stamps += r.stamps.len() as f64;
            tokens += n as f64;
        }
    }
    // One more or less a request is what tokenizing the whole text again can do.
    0.0 < tokens && 1.8 < stamps / tokens && stamps / tokens < 2.2
}

/// Makes the run of some requests.
fn run(file: &str, mut all: Vec<Request>) -> Result<Run> {
    let mut run = Run { line: all.first().map_or(1, |r| r.line), ..Run::default() };
    run.tool = Tool { name: "inference-perf".to_owned(), ..Tool::default() };
    run.clock = Clock::Monotonic;
    let doubled = doubled(&all);
    let mut decided = Decided::default();
    for r in &mut all {
        r.set_times(doubled, &mut decided);
    }
    let answers = || all.iter().filter(|r| r.fields.outcome == Outcome::Completed);
    let counts =
        |r: &Request| Some((r.fields.gaps.as_ref()?.1.len() as u64, r.fields.output_tokens?));
    let per_token = answers().all(|r| counts(r).is_some_and(|(g, n)| g == n.saturating_sub(1)))
        && answers().any(|r| counts(r).is_some_and(|(g, _)| 0 < g));
    note_gap_kind(&mut run, per_token, answers().filter_map(counts));
    let rows = all.len();
    let mut cells = Cells::default();
    for (i, mut r) in all.into_iter().enumerate() {
        if per_token
            && r.fields.outcome == Outcome::Completed
            && let Some((kind, _)) = &mut r.fields.gaps
        {
            *kind = GapKind::Token;
        }
        for (name, x) in r.numbers {
            cells.number(i, name, Some(x));
        }
        for (name, text) in r.texts {
            cells.text(i, name, Some(text));
        }
        run.timelines.push(RequestTimeline::new(r.fields).map_err(|source| {
            let key = format!("[{}].{}", r.index, key_of(&source));
            let at = Box::new(Place::line(file, r.line).key(key));
            IoError::Request { at, source, note: "" }
        })?);
        Seconds::named("end_time after start_time", r.end - r.start).map_err(|source| {
            let at = Box::new(Place::line(file, r.line).key(format!("[{}].end_time", r.index)));
            IoError::Request { at, source, note: "" }
        })?;
    }
    run.columns = cells.finish(rows);
    decided.say(doubled, &mut run);
    run.lacks("scheduled send times", "the stage file, as a distribution: `schedule_delay`");
    run.lacks("queue time in the server", "the server's own metrics or log");
    run.lacks(super::summary::SETTINGS.0, super::summary::SETTINGS.1);
    Ok(run)
}

/// Counters of what was decided over all requests.
#[derive(Default)]
struct Decided {
    retokenized: u64,
    not_streamed: u64,
    no_tokens: u64,
    several_chunks: u64,
    failed: u64,
}

impl Request {
    /// TTFT, E2E and gaps from the stamps.
    fn set_times(&mut self, doubled: bool, decided: &mut Decided) {
        if self.fields.outcome != Outcome::Completed {
            decided.failed += 1;
            return;
        }
        decided.no_tokens += u64::from(self.fields.output_tokens.is_none());
        decided.retokenized += u64::from(self.retokenized);
        let pairs: Vec<f64>;
        let stamps: &[f64] = if doubled {
            pairs = self.stamps.chunks(2).filter_map(|p| p.first().copied()).collect();
            &pairs
        } else {
            self.chunks.as_deref().filter(|c| !c.is_empty()).unwrap_or(&self.stamps)
        };
        // The first and last token, where the chunks hold others, are those of the token stamps.
        let tokens = if self.stamps.is_empty() { stamps } else { &self.stamps };
        let (Some(&first), Some(&last)) = (tokens.first(), tokens.last()) else {
            decided.not_streamed += 1;
            self.fields.e2e = Some(self.end - self.start);
            return;
        };
        self.fields.ttft = Some(first);
        self.fields.e2e = Some(last);
        if self.fields.output_tokens == Some(1) && first < last {
            decided.several_chunks += 1;
            self.numbers.push(("ttft_as_written_s", first));
            self.fields.ttft = Some(last);
        }
        let gaps = stamps.windows(2).map(|w| match w {
            [a, b] => b - a,
            _ => 0.0,
        });
        self.fields.gaps = Some((GapKind::Chunk, gaps.collect()));
    }
}

impl Decided {
    fn say(&self, doubled: bool, run: &mut Run) {
        if doubled {
            let text = "two stamps for each token: this version tokenizes each chunk with a start \
                        token; every second stamp is left out, while the tool's own TPOT and \
                        inter-token latency are half of these";
            run.note("stamps-doubled", &["tpot", "itl"], text.to_owned());
        }
        if 0 < self.retokenized {
            let text = format!(
                "{} whose tokens the client counted by tokenizing the text again: the server sent \
                 no count",
                things(self.retokenized, "answer")
            );
            run.note("retokenized", &["tpot", "token_throughput"], text);
        }
        if 0 < self.not_streamed {
            let text = format!(
                "{} without token stamps: not streamed, E2E ends with the response",
                things(self.not_streamed, "completed request")
            );
            run.note("not-streamed", &["ttft", "tpot"], text);
        }
        if 0 < self.no_tokens {
            let text = format!(
                "{} without output tokens: count unknown",
                things(self.no_tokens, "completed request")
            );
            run.note("no-tokens", &["tpot", "token_throughput"], text);
        }
        if 0 < self.several_chunks {
            let text = format!(
                "{} in several chunks: TTFT is taken as the last chunk, the tool's own value is in \
                 the column ttft_as_written_s",
                things(self.several_chunks, "one-token answer")
            );
            run.note("one-token-in-several-chunks", &["ttft"], text);
        }
        if 0 < self.failed {
            let text = format!(
                "{} without times: the file does not say whether chunks had come before the error",
                things(self.failed, "failed request")
            );
            run.note("failed-without-times", &["ttft", "e2e_latency"], text);
        }
    }
}

/// The key of the value that breaks the rule, below a request.
fn key_of(error: &metrics_core::Error) -> String {
    let key = match input_of(error).unwrap_or("") {
        "arrival" => "start_time",
        "output_tokens" => "info.output_tokens",
        "input_tokens" => "info.input_tokens",
        "a gap between outputs" => "info.chunk_times",
        _ => "info.output_token_times",
    };
    shown(key)
}
