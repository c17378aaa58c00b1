//! Results of SGLang's benchmark client, `python -m sglang.bench_serving`.
//!
//! Facts from SGLang 0.5.23 (`sglang/benchmark/serving.py`, `goodput.py`; earlier
//! `python/sglang/bench_serving.py`) and from files that it wrote.
//!
//! # The file
//!
//! JSON lines, one object a run; each run is appended to the file that is there, so that a file
//! often holds several: each is a [`Run`]. Python writes what is not finite as a bare `Infinity` or
//! `NaN`, which is no JSON; both are read. Pretty-printed objects are read as well.
//!
//! | key | meaning | becomes |
//! |---|---|---|
//! | `duration` | wall clock from the first send until the last answer, in s; > 0 | [`Run::duration`] |
//! | `request_rate` | requests per second, `Infinity` for all at once | [`Declared::request_rate`] |
//! | `max_concurrency`, `backend`, `tag` | as named; `tag` is the label; null is absent | [`Declared`] |
//! | `completed`, `total_input_tokens`, `total_output_tokens` | counts, of completed requests | [`Counts`] |
//! | other keys with a number | figures that the tool computed: `mean_ttft_ms`, `p99_itl_ms`, `concurrency`, `slo_attainment`; those of `slo_attainment_by_metric` and `cache_report` behind their key and a dot: `slo_attainment_by_metric.ttft` | [`Run::stated`] |
//! | `server_info` | what the server says of itself | model ([`Declared::model`]), version and the rest as JSON in [`Declared::metadata`] |
//! | other keys | settings such as `dataset_name`, `goodput_slos_ms` (limits in ms) | [`Declared::metadata`] |
//! | `input_lens`, `output_lens` | tokens per request, 0 for the answer of a failed one | token counts |
//! | `ttfts` | s from sending to the first chunk with text | TTFT |
//! | `itls` | s between chunks with text, one list a request | gaps |
//! | `errors` | error text, empty if there is none | outcome, column `error` |
//! | `cached_tokens` | prompt tokens from the server's cache (`--cache-report`) | column `cached_tokens` |
//! | `generated_texts`, `cached_tokens_details` | ignored | |
//!
//! The arrays are there with `--output-details` only.
//!
//! # What is decided here
//!
//! - **E2E is `ttfts` + Σ `itls`**, the time of the last chunk with text, which is our definition
//!   (note `e2e-from-gaps`). The tool's own E2E ends at the last line of the stream, usage and
//!   `[DONE]` included; it is not in the file per request, and so the tool's TPOT is not either:
//!   both can only be had as stated figures, which [`Run::missing`] says.
//! - **Completed or failed.** The file does not carry the tool's success flag. A request failed if
//!   its error text is not empty, or if it has no TTFT and no output token.
//! - **A failed request** keeps its TTFT if a chunk had come, and its gaps; its E2E and its output
//!   tokens are unknown: the tool writes 0.
//! - **Output tokens.** With an OpenAI backend the tool takes the number that was asked for where
//!   the stream has no usage. If the file's retokenized total differs from its total, and is exactly
//!   the number of chunks of all completed requests, then one chunk is one token, and the chunks
//!   are counted instead of what is written (note `tokens-as-requested`, column
//!   `output_tokens_as_written`). If they differ otherwise, the written counts stay (note
//!   `tokens-differ-from-retokenized`).
//! - **Gaps.** The native backend spreads the gap before a chunk evenly over the tokens in it, the
//!   OpenAI backends write one gap a chunk. If for every completed request they are exactly one
//!   fewer than its output tokens, they are taken as gaps between tokens
//!   (`gaps-look-per-token`), otherwise they stay gaps between chunks (`gaps-per-chunk`). Equal
//!   neighbours of the native backend are what the spreading leaves (`gaps-spread-over-chunk`).
//! - **Input tokens** are those of `input_lens`. Where they add up to another number than
//!   `total_input_tokens`, the note `input-tokens-differ` says so.
//! - **A one-token answer with several chunks** has first = last by definition; the later end is
//!   taken for both (note `one-token-in-several-chunks`, column `ttft_as_written_s`).
//! - **Not streamed.** If no completed request has a gap though some have several tokens, the time
//!   in `ttfts` is that of the whole answer: it is E2E, and TTFT is unknown (note `not-streamed`).
//! - **A figure that is not finite** is left out (note `figures-not-finite`).
//!
//! [`Counts`]: crate::run::Counts
//! [`Declared`]: crate::run::Declared
//! [`Declared::metadata`]: crate::run::Declared::metadata
//! [`Declared::model`]: crate::run::Declared::model
//! [`Declared::request_rate`]: crate::run::Declared::request_rate

use metrics_core::format::things;
use metrics_core::timeline::{GapKind, TimelineFields};
use metrics_core::{Outcome, RequestTimeline};
use serde_json::Value;

use crate::arrays::{
    Row, answered_tokens, check_counts, gaps_look_per_token, key_of, note_cut, note_gaps,
    note_no_tokens, note_several_chunks, parallel,
};
use crate::detect::{Format, Options, Reader};
use crate::document::{self, Document, duration};
use crate::error::{IoError, Place, Result};
use crate::input::{Head, Input};
use crate::json::{python_word, without_python_words};
use crate::run::{Column, RequestRate, Run, Tool, Values, in_flight_limit};

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Sglang;

impl Reader for Sglang {
    fn format(&self) -> Format {
        Format::Sglang
    }

    fn recognizes(&self, head: &Head, _: &Options) -> bool {
        // vLLM's client has the same arrays; `model_id` is vLLM's alone.
        let own = head.has_key("total_output_tokens_retokenized")
            || (head.has_key("server_info") && head.has_key("dataset_name"));
        own && !head.has_key("model_id")
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let text = without_python_words(input.into_text()?);
        let expected = "a result of `sglang.bench_serving`";
        document::runs(&name, &text, expected, |line, document| run(&name, line, document))
    }
}

/// Checks one document and makes a run of it.
fn run(file: &str, line: u64, mut d: Document) -> Result<Run> {
    let at = Place::line(file, line);
    d.refuse_problem(&at)?;
    let tool = Tool { name: TOOL.to_owned(), ..Tool::default() };
    let mut run = Run { line, tool, ..Run::default() };
    let mut not_finite = Vec::new();
    for (key, value) in std::mem::take(&mut d.rest) {
        take(&at, key, value, &mut run, &mut not_finite)?;
    }
    document::note_not_finite(&mut run, &not_finite);
    requests(&at, d, &mut run)?;
    if !document::holds_result(&run, is_figure) {
        let expected = "the counts, figures or arrays of a `sglang.bench_serving` result";
        return Err(IoError::NoRequests { at: Box::new(at), expected });
    }
    if run.duration.is_none() {
        run.lacks("duration of the run", "the file as the tool wrote it");
    }
    run.lacks("queue time in the server", "the server's own metrics or log");
    Ok(run)
}

/// The tool's name.
const TOOL: &str = "sglang.bench_serving";

/// Takes one key that is no array.
fn take(
    at: &Place,
    key: String,
    value: Value,
    run: &mut Run,
    not_finite: &mut Vec<String>,
) -> Result<()> {
    match key.as_str() {
        "duration" => run.duration = duration(at, &value)?,
        "request_rate" => run.declared.request_rate = rate(at, &value)?,
        "max_concurrency" => {
            run.declared.max_concurrency = in_flight_limit(document::count(at, &key, &value)?);
        }
        "backend" => run.declared.backend = document::text(at, &key, &value)?,
        "tag" => run.declared.label = document::text(at, &key, &value)?,
        "completed" => run.counts.completed = document::count(at, &key, &value)?,
        "total_input_tokens" => run.counts.total_input_tokens = document::count(at, &key, &value)?,
        "total_output_tokens" => {
            run.counts.total_output_tokens = document::count(at, &key, &value)?;
        }
        "slo_attainment_by_metric" | "cache_report" => {
            let Value::Object(parts) = value else {
                return match value {
                    Value::Null => Ok(()),
                    _ => Err(document::wrong(at, &key, &value, "an object, or null")),
                };
            };
            for (part, value) in parts {
                figure(at, format!("{key}.{part}"), value, run, not_finite)?;
            }
        }
        "server_info" => {
            let text = |name: &str| value.get(name).and_then(Value::as_str);
            let model = text("model_path").or_else(|| text("served_model_name"));
            run.declared.model = model.map(str::to_owned);
            if let Some(version) = text("version") {
                let version = ("server_version".to_owned(), version.to_owned());
                run.declared.metadata.push(version);
            }
            if !value.is_null() {
                run.declared.metadata.push((key, value.to_string()));
            }
        }
        _ => figure(at, key, value, run, not_finite)?,
    }
    Ok(())
}

/// Takes a figure of the tool, or a setting.
fn figure(
    at: &Place,
    key: String,
    value: Value,
    run: &mut Run,
    not_finite: &mut Vec<String>,
) -> Result<()> {
    match value {
        Value::Number(n) if n.as_f64().is_some_and(f64::is_finite) => {
            run.stated.push(key, n.as_f64().unwrap_or_default());
        }
        Value::Null => {}
        Value::String(s) if python_word(&s).is_some() => not_finite.push(key),
        other if is_figure(&key) => {
            return Err(document::wrong(at, &key, &other, "a number, as the tool computed it"));
        }
        Value::String(s) => run.declared.metadata.push((key, s)),
        other => run.declared.metadata.push((key, other.to_string())),
    }
    Ok(())
}

/// Whether the tool itself writes a number under that key, so that anything else is damage.
fn is_figure(key: &str) -> bool {
    let statistic = key.split_once('_').is_some_and(|(first, _)| {
        ["mean", "median", "std"].contains(&first)
            || first.strip_prefix('p').is_some_and(|p| p.parse::<f64>().is_ok())
    });
    (statistic && key.ends_with("_ms"))
        || key.ends_with("_throughput")
        || ["concurrency", "request_goodput", "slo_attainment", "total_output_tokens_retokenized"]
            .contains(&key)
}

fn rate(at: &Place, value: &Value) -> Result<Option<RequestRate>> {
    const EXPECTED: &str = "a number above 0, or Infinity";
    match (value, value.as_f64()) {
        (Value::Null, _) => Ok(None),
        (Value::String(s), _) if s == "inf" || python_word(s) == Some("Infinity") => {
            Ok(Some(RequestRate::Infinite))
        }
        (_, Some(x)) if 0.0 < x => Ok(Some(RequestRate::PerSecond(x))),
        _ => Err(document::wrong(at, "request_rate", value, EXPECTED)),
    }
}

/// What was decided per request.
#[derive(Default)]
struct Decided {
    several_chunks: usize,
    no_tokens: usize,
    cut: usize,
    rebuilt: usize,
}

/// Makes the timelines and the columns.
fn requests(at: &Place, mut d: Document, run: &mut Run) -> Result<()> {
    const DETAIL: &str = "run with `--output-details`";
    let n = parallel(at, &d)?;
    if n == Some(0) {
        let expected = "at least one request in its arrays";
        return Err(IoError::NoRequests { at: Box::new(at.clone()), expected });
    }
    let Some(n) = n else {
        run.lacks("ttft per request", DETAIL);
        run.lacks("output tokens and tpot per request", DETAIL);
        run.lacks("gaps between outputs", DETAIL);
        run.lacks("e2e latency per request", format!("{DETAIL}, to the last chunk with text"));
        run.lacks("failed requests", DETAIL);
        run.lacks(ARRIVALS, WITH_ARRIVALS);
        return Ok(());
    };
    let written = settle_tokens(&mut d, n, run);
    let per_token = gaps_look_per_token(&d, n);
    let streamed = is_streamed(&d, n);
    let mut decided = Decided::default();
    let mut ttft_as_written = Vec::with_capacity(n);
    for i in 0..n {
        let row = Row::new(&d, i);
        let fields = fields(&row, i, per_token, streamed, &mut decided);
        ttft_as_written.push(row.ttft);
        run.timelines.push(RequestTimeline::new(fields).map_err(|source| {
            let key = key_of(&source, &d);
            IoError::Request { at: Box::new(at.clone().key(key).index(i)), source, note: "" }
        })?);
    }
    let mut column = |name: &str, values| {
        run.columns.push(Column { name: name.to_owned(), values });
    };
    if let Some(errors) = &d.errors {
        let text = |e: &String| (!e.is_empty()).then(|| e.clone());
        column("error", Values::Text(errors.iter().map(text).collect()));
    }
    if let Some(cached) = &d.cached_tokens {
        let tokens = cached.iter().map(|c| c.map(|n| n as f64)).collect();
        column("cached_tokens", Values::Number(tokens));
    }
    if let Some(written) = &written {
        let tokens = written.iter().map(|&n| Some(n as f64)).collect();
        column("output_tokens_as_written", Values::Number(tokens));
    }
    if 0 < decided.several_chunks || !streamed {
        column("ttft_as_written_s", Values::Number(ttft_as_written));
    }
    note_gaps(&d, n, per_token, run);
    note_spread(run, per_token);
    note_decided(&decided, streamed, run);
    let tokens = match &written {
        Some(written) => sum(written.iter().copied()),
        None => answered_tokens(run),
    };
    // The server may have counted the prompts of the requests: `note_input` says where they differ.
    check_counts(run, tokens, None);
    note_input(run);
    if d.output_lens.is_none() {
        run.lacks("output tokens and tpot per request", DETAIL);
    }
    if d.itls.is_none() {
        run.lacks("gaps between outputs", DETAIL);
    }
    run.lacks(
        "e2e latency and tpot as the tool takes them, to the last line of the stream",
        "nothing: the tool writes neither the latency nor the start of a request, only its stated \
         figures",
    );
    run.lacks(ARRIVALS, WITH_ARRIVALS);
    Ok(())
}

const ARRIVALS: &str = "arrivals, and with them concurrency over time";
const WITH_ARRIVALS: &str = "the server's log; the tool writes no start of a request";

/// Says where the prompts have other lengths per request than in total.
fn note_input(run: &mut Run) {
    let inputs = completed(run).map(RequestTimeline::input_tokens);
    let found = inputs.collect::<Option<Vec<u64>>>().and_then(sum);
    if let (Some(stated), Some(found)) = (run.counts.total_input_tokens, found)
        && stated != found
    {
        let text = format!(
            "`total_input_tokens` says {stated}, `input_lens` of the completed requests {found}: \
             the latter, which the server may have counted, is taken"
        );
        run.note("input-tokens-differ", &["token_throughput"], text);
    }
}

fn completed(run: &Run) -> impl Iterator<Item = &RequestTimeline> {
    run.timelines.iter().filter(|t| t.outcome() == Outcome::Completed)
}

/// The sum, unless it is beyond 64 bits.
fn sum(counts: impl IntoIterator<Item = u64>) -> Option<u64> {
    counts.into_iter().try_fold(0_u64, u64::checked_add)
}

/// Decides what the output tokens are; gives the written counts if they are not.
fn settle_tokens(d: &mut Document, n: usize, run: &mut Run) -> Option<Vec<u64>> {
    let total = run.counts.total_output_tokens?;
    let again = run.stated.get("total_output_tokens_retokenized")?;
    // A count above 2^53 is no count of tokens.
    let again = crate::json::whole(again)?;
    if total == again {
        return None;
    }
    let lens = d.output_lens.clone()?;
    let mut counts = lens.clone();
    let mut all = Some(0_u64);
    let mut differ = 0;
    let mut fewer = true;
    for (i, count) in counts.iter_mut().enumerate().take(n) {
        let row = Row::new(d, i);
        if !row.completed() {
            continue;
        }
        let chunks = row.gaps.map_or(0, <[f64]>::len) as u64 + 1;
        all = all.and_then(|sum| sum.checked_add(chunks));
        differ += u64::from(chunks != *count);
        fewer &= chunks <= *count;
        *count = chunks;
    }
    if fewer && 0 < differ && d.itls.is_some() && all == Some(again) {
        let text = format!(
            "the output tokens of {} are those that were asked for: `total_output_tokens` says \
             {total}, the texts have {again}, which is the number of all chunks; chunks are \
             counted instead (column output_tokens_as_written)",
            things(differ, "answer")
        );
        run.note("tokens-as-requested", &["tpot", "token_throughput", "goodput"], text);
        d.output_lens = Some(counts);
        return Some(lens);
    }
    let text = format!(
        "`total_output_tokens` says {total}, the texts have {again} tokens: some counts may be \
         those that were asked for"
    );
    run.note("tokens-differ-from-retokenized", &["tpot", "token_throughput"], text);
    None
}

/// Whether answers came in chunks: some has a gap, or none has more than one token.
fn is_streamed(d: &Document, n: usize) -> bool {
    let completed = || (0..n).map(|i| Row::new(d, i)).filter(Row::completed);
    d.itls.is_none()
        || completed().any(|r| r.gaps.is_some_and(|g| !g.is_empty()))
        || !completed().any(|r| r.output.is_some_and(|t| 2 <= t))
}

/// The fields of one request.
fn fields(
    r: &Row<'_>,
    i: usize,
    per_token: bool,
    streamed: bool,
    decided: &mut Decided,
) -> TimelineFields {
    let completed = r.completed();
    let mut ttft = r.ttft.filter(|&t| t != 0.0);
    let e2e = if completed { r.end() } else { None };
    let mut output = r.output.filter(|_| completed);
    if completed {
        decided.rebuilt += usize::from(e2e.is_some());
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
    } else if ttft.is_some() {
        decided.cut += 1;
    }
    if completed && !streamed && output != Some(1) {
        ttft = None;
    }
    let kind = if per_token && completed { GapKind::Token } else { GapKind::Chunk };
    TimelineFields {
        id: i.to_string(),
        ttft,
        e2e,
        gaps: r.gaps.filter(|_| ttft.is_some()).map(|g| (kind, g.to_vec())),
        input_tokens: r.input,
        output_tokens: output,
        outcome: if completed { Outcome::Completed } else { Outcome::Failed },
        ..TimelineFields::default()
    }
}

/// Says where the native backend spread one gap over the tokens of a chunk.
fn note_spread(run: &mut Run, per_token: bool) {
    if !per_token || run.declared.backend.as_deref().is_none_or(|b| b.contains("oai")) {
        return;
    }
    let equal = |t: &RequestTimeline| {
        let gaps = t.gaps().map_or(&[][..], |g| g.values());
        gaps.windows(2).filter(|w| w.first() == w.last()).count() as u64
    };
    let equal: u64 = run.timelines.iter().map(equal).sum();
    if 0 < equal {
        let text = format!(
            "{} equal to the one before: the tool spreads the time before a chunk evenly over its \
             tokens, so that stalls look shorter than they were",
            things(equal, "gap")
        );
        run.note("gaps-spread-over-chunk", &["itl"], text);
    }
}

fn note_decided(decided: &Decided, streamed: bool, run: &mut Run) {
    let Decided { several_chunks, no_tokens, cut, rebuilt } = *decided;
    note_several_chunks(several_chunks, run);
    note_no_tokens(no_tokens, run);
    note_cut(cut, run);
    if !streamed {
        let text = "no answer came in chunks: what the tool calls TTFT is the whole answer (column \
                    ttft_as_written_s); it is taken as E2E, and TTFT is unknown";
        run.note("not-streamed", &["ttft", "tpot"], text.to_owned());
    } else if 0 < rebuilt {
        let text = "E2E is TTFT + the sum of the gaps, the last chunk with text; the tool's own E2E \
                    ends at the last line of the stream and is a little longer";
        run.note("e2e-from-gaps", &["e2e_latency", "tpot"], text.to_owned());
    }
}
