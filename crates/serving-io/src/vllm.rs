//! Results of `vllm bench serve`, and of its predecessor `benchmark_serving.py`.
//!
//! Facts from vLLM 0.33.0 (`vllm/benchmarks/serve.py`, `lib/endpoint_request_func.py`) and from
//! files that it wrote.
//!
//! # The file
//!
//! One JSON object a run. `--append-result` puts several into one file, one a line, the last one
//! without a newline: each is a [`Run`]. Pretty-printed objects are read as well.
//!
//! | key | meaning | becomes |
//! |---|---|---|
//! | `duration` | wall clock from the first send until the last answer, in s; > 0 | [`Run::duration`] |
//! | `request_rate` | requests per second, or the text `"inf"` | [`Declared::request_rate`] |
//! | `burstiness` | shape of the gaps between requests; may be a bare `Infinity`: gaps of one length | [`Declared::burstiness`] |
//! | `max_concurrency`, `num_prompts`, `model_id`, `tokenizer_id`, `backend`, `date`, `label` | as named; null is absent, and so is a `max_concurrency` of 0, which the client takes as no limit | [`Declared`] |
//! | `completed`, `failed`, `total_input_tokens`, `total_output_tokens` | counts; the tokens are those of completed requests | [`Counts`] |
//! | other keys with a number | figures that the tool computed: `mean_ttft_ms`, `p99_tpot_ms`, `request_goodput`, `spec_decode_…` (`request_goodput:`, as some versions spell it, is the same key); such a figure that is no number is an error; `NaN` and `Infinity` are left out (note `figures-not-finite`) | [`Run::stated`] |
//! | other keys | `--metadata` of the user and settings | [`Declared::metadata`] |
//! | `input_lens`, `output_lens` | tokens per request | token counts |
//! | `ttfts` | s from sending to the first chunk with a choice | TTFT |
//! | `latencies` | s from sending to the last chunk with a choice: equal to `ttfts` + Σ `itls` | E2E |
//! | `itls` | s between chunks, one list a request | gaps |
//! | `start_times` | when it was sent, on the client's monotonic clock | arrival |
//! | `queue_times` | s that it waited in the client, from the instant when it was due until it was sent | column `client_delay_s` |
//! | `errors` | error text, empty if there is none | outcome, column `error` |
//! | `generated_texts` | ignored | |
//!
//! Without `--save-detailed` the tool removes `input_lens`, `output_lens`, `ttfts`, `itls`,
//! `start_times`, `generated_texts` and `errors`; `latencies` and `queue_times` stay where the
//! version has them, so that E2E and failures are still known per request. Older files lack
//! `latencies`, `queue_times`, `start_times` and `failed`; E2E is then `ttfts` + Σ `itls`.
//!
//! # What is decided here
//!
//! - **Arrival is the send time.** TTFT and E2E are the tool's, bit for bit, and count from
//!   sending. With a concurrency limit a request can be due long before: that wait is in
//!   `client_delay_s` and in no latency. If the rate is finite and some waits are above 10 ms, the
//!   note `client-delay` says so; at an infinite rate everything is due at once by definition.
//! - **Completed or failed.** The file does not carry the tool's success flag. A request failed if
//!   its error text is not empty, or if it has no error text but a latency of 0.0 (without
//!   `latencies`: a TTFT of 0.0 and no output token), since an HTTP error without a reason leaves
//!   an empty text. If the result contradicts the file's own counts, the note `counts-disagree`
//!   says so.
//! - **A failed request** keeps its TTFT if a chunk had come (`ttfts` above 0), and its gaps; its
//!   E2E is unknown, and so are its output tokens: the tool writes 0 for each.
//! - **Gaps** are between chunks. If for every completed request they are exactly one fewer than
//!   its output tokens, they are taken as gaps between tokens (note `gaps-look-per-token`: a chunk
//!   with two tokens beside an empty one would go unseen). Otherwise they stay gaps between chunks
//!   (note `gaps-per-chunk`).
//! - **A one-token answer with several chunks** (a chunk with a role only, or an empty last one)
//!   has first = last by definition. The later end is taken for both, so that TTFT is never better
//!   than the truth; the tool's own value is in the column `ttft_as_written_s` (note
//!   `one-token-in-several-chunks`).
//! - **A completed request with 0 output tokens** (the server sent no usage and the text was empty)
//!   keeps its times; its token count is unknown (note `no-tokens`).
//! - **A completed request with a TTFT of 0.0** came from a backend without streaming: its TTFT is
//!   unknown (note `not-streamed`).

use metrics_core::format::things;
use metrics_core::timeline::{GapKind, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline, Seconds};
use serde_json::Value;

use crate::arrays::{
    Row, answered_tokens, asked_tokens, check_counts, gaps_look_per_token, key_of, note_cut,
    note_gaps, note_no_tokens, note_several_chunks, parallel,
};
use crate::detect::{Format, Options, Reader};
use crate::document::{self, Document, duration};
use crate::error::{IoError, Place, Result};
use crate::input::{Head, Input};
use crate::json::{python_word, without_python_words};
use crate::rows::note_client_delay;
use crate::run::{
    Clock, Column, Counts, Declared, RequestRate, Run, Tool, Values, in_flight_limit,
};

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Vllm;

impl Reader for Vllm {
    fn format(&self) -> Format {
        Format::Vllm
    }

    fn recognizes(&self, head: &Head, _: &Options) -> bool {
        // SGLang's client has the same arrays; these two keys are vLLM's alone.
        head.has_key("model_id") && head.has_key("num_prompts") && !head.has_key("server_info")
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let text = without_python_words(input.into_text()?);
        let expected = "a result of `vllm bench serve`";
        document::runs(&name, &text, expected, |line, document| run(&name, line, document))
    }
}

/// The scalars of a document.
struct Scalars<'a> {
    at: Place,
    declared: &'a mut Declared,
    counts: &'a mut Counts,
}

impl Scalars<'_> {
    fn wrong(&self, key: &str, value: &Value, expected: &str) -> IoError {
        document::wrong(&self.at, key, value, expected)
    }

    fn count(&self, key: &str, value: &Value) -> Result<Option<u64>> {
        document::count(&self.at, key, value)
    }

    fn text(&self, key: &str, value: &Value) -> Result<Option<String>> {
        document::text(&self.at, key, value)
    }

    /// Takes the value if the key is a setting or a count.
    fn take(&mut self, key: &str, value: &Value) -> Result<bool> {
        match key {
            "request_rate" => self.declared.request_rate = self.rate(value)?,
            "burstiness" => {
                self.declared.burstiness = match (value, value.as_f64()) {
                    (Value::Null, _) => None,
                    // Gaps of one length.
                    (Value::String(s), _) if python_word(s) == Some("Infinity") => {
                        Some(f64::INFINITY)
                    }
                    (_, Some(x)) if 0.0 < x => Some(x),
                    _ => return Err(self.wrong(key, value, "a number above 0")),
                }
            }
            "max_concurrency" => {
                self.declared.max_concurrency = in_flight_limit(self.count(key, value)?);
            }
            "num_prompts" => self.declared.num_prompts = self.count(key, value)?,
            "model_id" => self.declared.model = self.text(key, value)?,
            "tokenizer_id" => self.declared.tokenizer = self.text(key, value)?,
            "backend" => self.declared.backend = self.text(key, value)?,
            "date" => self.declared.date = self.text(key, value)?,
            "label" => self.declared.label = self.text(key, value)?,
            "completed" => self.counts.completed = self.count(key, value)?,
            "failed" => self.counts.failed = self.count(key, value)?,
            "total_input_tokens" => self.counts.total_input_tokens = self.count(key, value)?,
            "total_output_tokens" => self.counts.total_output_tokens = self.count(key, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn rate(&self, value: &Value) -> Result<Option<RequestRate>> {
        match (value, value.as_f64()) {
            (Value::Null, _) => Ok(None),
            (Value::String(s), _) if s == "inf" => Ok(Some(RequestRate::Infinite)),
            (_, Some(x)) if 0.0 < x => Ok(Some(RequestRate::PerSecond(x))),
            _ => Err(self.wrong("request_rate", value, "a number above 0, or \"inf\"")),
        }
    }
}

/// Checks one document and makes a run of it.
fn run(file: &str, line: u64, mut d: Document) -> Result<Run> {
    let at = Place::line(file, line);
    d.refuse_problem(&at)?;
    let mut run = Run { line, ..Run::default() };
    let mut not_finite = Vec::new();
    for (key, value) in std::mem::take(&mut d.rest) {
        let mut scalars =
            Scalars { at: at.clone(), declared: &mut run.declared, counts: &mut run.counts };
        if key == "duration" {
            run.duration = duration(&at, &value)?;
        } else if !scalars.take(&key, &value)? {
            match value {
                Value::String(s) if python_word(&s).is_some() => not_finite.push(key),
                Value::String(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_)
                    if is_figure(&key) =>
                {
                    return Err(scalars.wrong(&key, &value, "a number, as the tool computed it"));
                }
                Value::Number(n) if n.as_f64().is_some_and(f64::is_finite) => {
                    run.stated.push(figure(&key), n.as_f64().unwrap_or_default());
                }
                Value::Null => {}
                Value::String(s) => run.declared.metadata.push((key, s)),
                other => run.declared.metadata.push((key, other.to_string())),
            }
        }
    }
    document::note_not_finite(&mut run, &not_finite);
    run.tool = Tool {
        name: "vllm bench serve".to_owned(),
        version: None,
        age: Some(age(&d, &run).to_owned()),
    };
    requests(&at, &d, &mut run)?;
    if !document::holds_result(&run, is_figure) {
        let expected = "the counts, figures or arrays of a `vllm bench serve` result";
        return Err(IoError::NoRequests { at: Box::new(at), expected });
    }
    let (tokens, input) = (answered_tokens(&run), asked_tokens(&run));
    check_counts(&mut run, tokens, input);
    say_what_is_missing(&d, &mut run);
    Ok(run)
}

/// Whether the tool itself writes a number under that key, so that anything else is damage and not
/// the user's metadata.
fn is_figure(key: &str) -> bool {
    let key = key.trim_end_matches(':');
    let statistic = key.split_once('_').is_some_and(|(first, _)| {
        ["mean", "median", "std"].contains(&first)
            || first.strip_prefix('p').is_some_and(|p| p.parse::<f64>().is_ok())
    });
    (statistic && key.ends_with("_ms"))
        || ["request_throughput", "output_throughput", "total_token_throughput", "request_goodput"]
            .contains(&key)
}

/// The name of a figure; some versions end `request_goodput` in a colon.
fn figure(key: &str) -> String {
    key.trim_end_matches(':').to_owned()
}

/// What the keys tell about the file's age.
fn age(d: &Document, run: &Run) -> &'static str {
    if d.queue_times.is_some() {
        "writes `queue_times`, as 0.33 does"
    } else if d.latencies.is_some() {
        "writes `latencies` but not `queue_times`: before 0.33"
    } else if run.counts.failed.is_some() || d.start_times.is_some() {
        "writes `failed` or `start_times` but not `latencies`: before 0.33"
    } else {
        "writes neither `latencies`, `start_times` nor `failed`: an older version, or without \
         `--save-detailed`"
    }
}

/// Counters of what was decided per request.
#[derive(Default)]
struct Decided {
    several_chunks: usize,
    no_tokens: usize,
    not_streamed: usize,
    cut: usize,
    longer_than_gaps: usize,
}

/// Makes the timelines and the columns.
fn requests(at: &Place, d: &Document, run: &mut Run) -> Result<()> {
    let Some(n) = parallel(at, d)? else { return Ok(()) };
    if n == 0 {
        let expected = "at least one request in its arrays";
        return Err(IoError::NoRequests { at: Box::new(at.clone()), expected });
    }
    let per_token = gaps_look_per_token(d, n);
    let mut decided = Decided::default();
    let mut as_written: Vec<Option<f64>> = Vec::with_capacity(n);
    // A client that does not stamp its requests writes 0.0 for each.
    let stamped = d.start_times.as_ref().is_some_and(|s| s.iter().any(|&t| t != 0.0));
    for i in 0..n {
        let r = Row::new(d, i);
        let fields = fields(&r, i, per_token, stamped, &mut decided);
        as_written.push(r.ttft);
        run.timelines.push(RequestTimeline::new(fields).map_err(|source| {
            let key = key_of(&source, d);
            IoError::Request { at: Box::new(at.clone().key(key).index(i)), source, note: "" }
        })?);
    }
    if stamped {
        run.clock = Clock::Monotonic;
    }
    if let Some(times) = &d.queue_times {
        for (i, &time) in times.iter().enumerate() {
            Seconds::named("the wait in the client", time).map_err(|source| IoError::Request {
                at: Box::new(at.clone().key("queue_times").index(i)),
                source,
                note: "",
            })?;
        }
        let values = Values::Number(times.iter().copied().map(Some).collect());
        run.columns.push(Column { name: "client_delay_s".to_owned(), values });
        // With an infinite rate everything is due at once, and the wait says nothing.
        if run.declared.request_rate != Some(RequestRate::Infinite) {
            note_client_delay(run);
        }
    }
    if let Some(errors) = &d.errors {
        let text = |e: &String| (!e.is_empty()).then(|| e.clone());
        let values = Values::Text(errors.iter().map(text).collect());
        run.columns.push(Column { name: "error".to_owned(), values });
    }
    if 0 < decided.several_chunks {
        let values = Values::Number(as_written);
        run.columns.push(Column { name: "ttft_as_written_s".to_owned(), values });
    }
    note_gaps(d, n, per_token, run);
    note_decided(&decided, d, run);
    Ok(())
}

/// The fields of one request.
fn fields(
    r: &Row<'_>,
    i: usize,
    per_token: bool,
    stamped: bool,
    decided: &mut Decided,
) -> TimelineFields {
    let completed = r.completed();
    let mut ttft = r.ttft.filter(|&t| t != 0.0);
    let e2e = if completed { r.end() } else { None };
    let mut output = r.output.filter(|_| completed);
    if completed {
        decided.not_streamed += usize::from(r.ttft == Some(0.0));
        if output == Some(0) {
            decided.no_tokens += 1;
            output = None;
        }
        if let (Some(1), Some(first), Some(last)) = (output, ttft, e2e)
            && first < last
        {
            decided.several_chunks += 1;
            ttft = e2e;
        }
        if let (Some(latency), Some(rebuilt)) = (r.latency, r.rebuilt_end()) {
            // A microsecond is above the rounding of the sum and below what a client notices.
            decided.longer_than_gaps += usize::from(1e-6 < (latency - rebuilt).abs());
        }
    } else if ttft.is_some() {
        decided.cut += 1;
    }
    let kind = if per_token && completed { GapKind::Token } else { GapKind::Chunk };
    TimelineFields {
        id: i.to_string(),
        arrival: r.start.filter(|&t| stamped && t != 0.0).map(Instant::Seconds),
        ttft,
        e2e,
        gaps: r.gaps.filter(|_| ttft.is_some()).map(|g| (kind, g.to_vec())),
        input_tokens: r.input,
        output_tokens: output,
        outcome: if completed { Outcome::Completed } else { Outcome::Failed },
        ..TimelineFields::default()
    }
}

fn note_decided(decided: &Decided, d: &Document, run: &mut Run) {
    let Decided { several_chunks, no_tokens, not_streamed, cut, longer_than_gaps } = *decided;
    note_several_chunks(several_chunks, run);
    note_no_tokens(no_tokens, run);
    if 0 < not_streamed {
        let text = format!(
            "{} with a TTFT of 0.0: not streamed",
            things(not_streamed as u64, "completed request")
        );
        run.note("not-streamed", &["ttft", "tpot"], text);
    }
    note_cut(cut, run);
    if 0 < longer_than_gaps {
        let text = format!(
            "in {} the latency is not TTFT + the gaps: it does not end at the last chunk",
            things(longer_than_gaps as u64, "request")
        );
        run.note("latency-beyond-last-chunk", &["e2e_latency", "tpot"], text);
    }
    if d.latencies.is_none() && d.ttfts.is_some() && d.itls.is_some() {
        let text = "no `latencies`: E2E is TTFT + the sum of the gaps".to_owned();
        run.note("e2e-from-gaps", &["e2e_latency", "tpot"], text);
    }
}

/// Says what the file cannot give.
fn say_what_is_missing(d: &Document, run: &mut Run) {
    const DETAIL: &str = "run with `--save-result --save-detailed`";
    if d.ttfts.is_none() {
        run.lacks("ttft per request", DETAIL);
    }
    if d.output_lens.is_none() {
        run.lacks("output tokens and tpot per request", DETAIL);
    }
    if d.itls.is_none() {
        run.lacks("gaps between outputs", DETAIL);
    }
    if d.latencies.is_none() && (d.ttfts.is_none() || d.itls.is_none()) {
        run.lacks("e2e latency per request", format!("{DETAIL}, or a version with `latencies`"));
    }
    if run.clock == Clock::Unknown {
        let with = if d.ttfts.is_some() {
            "a version of `vllm bench serve` that writes `start_times`"
        } else {
            "run with `--save-result --save-detailed`, in a version that writes `start_times`"
        };
        run.lacks("arrivals, and with them concurrency over time", with);
    }
    if run.duration.is_none() {
        run.lacks("duration of the run", "the file as the tool wrote it");
    }
    run.lacks("queue time in the server", "the server's own metrics or log");
}
