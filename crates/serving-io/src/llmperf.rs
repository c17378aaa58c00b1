//! Results of llmperf (`token_benchmark_ray.py`): one file per request, one with its summary.
//!
//! Facts from llmperf f1d6bed (`token_benchmark_ray.py`, `src/llmperf/common_metrics.py`,
//! `ray_clients/openai_chat_completions_client.py`) and from files that it wrote.
//!
//! # `*_individual_responses.json`
//!
//! One JSON array, one object a request.
//!
//! | key | meaning | becomes |
//! |---|---|---|
//! | `ttft_s` | s from sending to the first line with text | TTFT |
//! | `end_to_end_latency_s` | s from sending to the end of the stream | E2E |
//! | `inter_token_latency_s` | (TTFT + gaps) / lines of the stream: no gap between tokens | column `inter_token_latency_s` |
//! | `request_output_throughput_token_per_s` | output tokens / `end_to_end_latency_s` | column of that name |
//! | `number_input_tokens`, `number_output_tokens` | tokens by a Llama tokenizer, whatever the model is | token counts |
//! | `number_total_tokens` | the sum of both | ignored |
//! | `error_code`, `error_msg` | null and empty if there is none | outcome, columns `error_code` and `error` |
//!
//! # `*_summary.json`
//!
//! One flat object. `results_…` with a number, also in quotes (`"275"`), are stated figures under
//! their names; `model` and `num_concurrent_requests` are [declared](crate::run::Declared), the
//! other keys metadata. It has no request.
//!
//! # What is decided here
//!
//! - **E2E ends at the end of the stream**, not at the last token: the trailing lines are in it
//!   (note `e2e-to-end-of-stream`).
//! - **Output tokens** are the tool's, counted again from the text by another tokenizer (note
//!   `tokens-retokenized`, with how many lines the streams had).
//! - **A failed request** (`error_code` not null, or an `error_msg`) keeps a TTFT above 0; its E2E
//!   and its output tokens are unknown. This version leaves requests with an HTTP error out of both
//!   files, which [`Run::missing`] says.
//! - **A one-token answer** has first = last: the end is taken for both, the tool's TTFT is in the
//!   column `ttft_as_written_s` (note `one-token-in-several-chunks`).
//! - **A completed request with 0 output tokens** has an unknown count (note `no-tokens`).
//! - **A figure that is not finite** is left out (note `figures-not-finite`).

use metrics_core::format::things;
use metrics_core::timeline::TimelineFields;
use metrics_core::{Outcome, RequestTimeline};
use serde_json::{Map, Value};

use crate::detect::{Format, Options, Reader};
use crate::document;
use crate::error::{IoError, Place, Result, input_of, shown};
use crate::input::{Head, Input};
use crate::json::{self, python_word, without_python_words};
use crate::run::{Column, Run, Tool, Values, in_flight_limit};

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct Llmperf;

impl Reader for Llmperf {
    fn format(&self) -> Format {
        Format::Llmperf
    }

    fn recognizes(&self, head: &Head, _: &Options) -> bool {
        let has = |key: &str| head.has_element_key(key);
        (has("end_to_end_latency_s") && has("number_output_tokens"))
            || head.keys.iter().any(|k| k.starts_with("results_inter_token_latency_s"))
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let text = without_python_words(input.into_text()?);
        let value: Value =
            serde_json::from_str(&text).map_err(|e| json::syntax_error(&name, &text, 0, &e))?;
        let tool = Tool { name: "llmperf".to_owned(), ..Tool::default() };
        let mut run = Run { line: 1, tool, ..Run::default() };
        let at = Place::file(&name);
        match value {
            Value::Array(rows) => requests(&at, &rows, &mut run)?,
            Value::Object(keys) => summary(&at, keys, &mut run)?,
            other => {
                let found = format!("`{}`", shown(&other.to_string()));
                let expected = "the results of llmperf, a list or an object".to_owned();
                return Err(IoError::Value { at: Box::new(at), found, expected });
            }
        }
        run.lacks("arrivals, and with them concurrency over time", "the server's log");
        run.lacks(
            "failed requests that the tool dropped",
            "the server's log: a request with an HTTP error can be in neither file",
        );
        run.lacks("gaps between outputs", "another client: this one sums them up");
        run.lacks("queue time in the server", "the server's own metrics or log");
        Ok(vec![run])
    }
}

/// Takes the summary.
fn summary(at: &Place, keys: Map<String, Value>, run: &mut Run) -> Result<()> {
    const DETAIL: &str = "the file `…_individual_responses.json` of the same run";
    let mut not_finite = Vec::new();
    for (key, value) in keys {
        match key.as_str() {
            "model" => run.declared.model = document::text(at, &key, &value)?,
            "num_concurrent_requests" => {
                run.declared.max_concurrency = in_flight_limit(document::count(at, &key, &value)?);
            }
            _ if key.starts_with("results_") => {
                match key.as_str() {
                    "results_num_completed_requests" => {
                        run.counts.completed = document::count(at, &key, &value)?;
                    }
                    "results_number_errors" => {
                        run.counts.failed = document::count(at, &key, &value)?;
                    }
                    _ => {}
                }
                let quoted = value.as_str().and_then(|s| s.parse::<f64>().ok());
                match (value.as_f64().or(quoted).filter(|x| x.is_finite()), value) {
                    (Some(x), _) => run.stated.push(key, x),
                    (None, Value::Null) => {}
                    (None, Value::String(s)) if python_word(&s).is_some() || quoted.is_some() => {
                        not_finite.push(key);
                    }
                    // How often each error code came, an object in quotes.
                    (None, Value::String(s)) if key == "results_error_code_frequency" => {
                        run.declared.metadata.push((key, s));
                    }
                    (None, other) => return Err(document::wrong(at, &key, &other, "a number")),
                }
            }
            _ => match value {
                Value::Null => {}
                Value::String(s) => run.declared.metadata.push((key, s)),
                other => run.declared.metadata.push((key, other.to_string())),
            },
        }
    }
    document::note_not_finite(run, &not_finite);
    if !document::holds_result(run, |key| key.starts_with("results_")) {
        let expected = "the requests or figures of an llmperf result";
        return Err(IoError::NoRequests { at: Box::new(at.clone()), expected });
    }
    run.lacks("ttft per request", DETAIL);
    run.lacks("e2e latency per request", DETAIL);
    run.lacks("output tokens and tpot per request", DETAIL);
    Ok(())
}

/// One request of the file.
struct Row<'a> {
    at: &'a Place,
    index: usize,
    keys: &'a Map<String, Value>,
}

impl Row<'_> {
    fn place(&self, key: &str) -> Place {
        self.at.clone().key(key).index(self.index)
    }

    fn wrong(&self, key: &str, value: &Value, expected: &str) -> IoError {
        let error = document::wrong(self.at, key, value, expected);
        match error {
            IoError::Value { found, expected, .. } => {
                IoError::Value { at: Box::new(self.place(key)), found, expected }
            }
            other => other,
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let number = value.as_f64();
                number.map(Some).ok_or_else(|| self.wrong(key, value, "a number, or null"))
            }
        }
    }

    fn count(&self, key: &str) -> Result<Option<u64>> {
        let Some(value) = self.keys.get(key) else { return Ok(None) };
        document::count(self.at, key, value).map_err(|_| self.wrong(key, value, json::COUNT))
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(s)) => Ok(Some(s.clone()).filter(|s| !s.is_empty())),
            Some(Value::Number(n)) => Ok(Some(n.to_string())),
            Some(value) => Err(self.wrong(key, value, "a text, or null")),
        }
    }
}

/// What was decided over all requests.
#[derive(Default)]
struct Decided {
    one_token: u64,
    no_tokens: u64,
    cut: u64,
    tokens: u64,
    lines: f64,
}

/// Makes the timelines and the columns.
fn requests(at: &Place, rows: &[Value], run: &mut Run) -> Result<()> {
    let mut decided = Decided::default();
    let (mut itl, mut rate, mut ttft) = (Vec::new(), Vec::new(), Vec::new());
    let (mut codes, mut errors) = (Vec::new(), Vec::new());
    for (index, value) in rows.iter().enumerate() {
        let Value::Object(keys) = value else {
            let at = Box::new(at.clone().index(index));
            let found = format!("`{}`", shown(&value.to_string()));
            let expected = "one object a request".to_owned();
            return Err(IoError::Value { at, found, expected });
        };
        let row = Row { at, index, keys };
        itl.push(row.number("inter_token_latency_s")?);
        rate.push(row.number("request_output_throughput_token_per_s")?);
        ttft.push(row.number("ttft_s")?);
        codes.push(row.text("error_code")?);
        errors.push(row.text("error_msg")?);
        run.timelines.push(timeline(&row, &mut decided)?);
    }
    if run.timelines.is_empty() {
        let expected = "at least one request";
        return Err(IoError::NoRequests { at: Box::new(at.clone()), expected });
    }
    let mut column = |name: &str, values| {
        run.columns.push(Column { name: name.to_owned(), values });
    };
    column("inter_token_latency_s", Values::Number(itl));
    column("request_output_throughput_token_per_s", Values::Number(rate));
    column("error_code", Values::Text(codes));
    column("error", Values::Text(errors));
    if 0 < decided.one_token {
        column("ttft_as_written_s", Values::Number(ttft));
    }
    describe(&decided, run);
    Ok(())
}

fn timeline(row: &Row<'_>, decided: &mut Decided) -> Result<RequestTimeline> {
    let completed = row.text("error_code")?.is_none() && row.text("error_msg")?.is_none();
    let written = row.number("ttft_s")?;
    let mut ttft = written.filter(|&t| t != 0.0);
    let mut e2e = row.number("end_to_end_latency_s")?;
    let mut output = row.count("number_output_tokens")?;
    if !completed {
        (e2e, output) = (None, None);
        decided.cut += u64::from(ttft.is_some());
    } else if e2e.is_none() && written.is_none() {
        return Err(IoError::Value {
            at: Box::new(row.place("end_to_end_latency_s")),
            found: "nothing, for a request without an error".to_owned(),
            expected: "a number of seconds, or an error".to_owned(),
        });
    } else {
        if let (Some(end), Some(itl)) = (e2e, row.number("inter_token_latency_s")?)
            && 0.0 < itl
        {
            // The end of the stream is behind the last line by less than one gap.
            decided.lines += (end / itl).floor();
        }
        if output == Some(0) {
            decided.no_tokens += 1;
            output = None;
        }
        decided.tokens = decided.tokens.saturating_add(output.unwrap_or(0));
        if output == Some(1) && ttft != e2e && e2e.is_some() {
            decided.one_token += 1;
            ttft = e2e;
        }
    }
    let fields = TimelineFields {
        id: row.index.to_string(),
        ttft,
        e2e,
        input_tokens: row.count("number_input_tokens")?,
        output_tokens: output,
        outcome: if completed { Outcome::Completed } else { Outcome::Failed },
        ..TimelineFields::default()
    };
    RequestTimeline::new(fields).map_err(|source| {
        let key = match input_of(&source).unwrap_or("") {
            "e2e" | "last_token" => "end_to_end_latency_s",
            "input_tokens" => "number_input_tokens",
            "output_tokens" => "number_output_tokens",
            _ => "ttft_s",
        };
        IoError::Request { at: Box::new(row.place(key)), source, note: "" }
    })
}

fn describe(decided: &Decided, run: &mut Run) {
    let Decided { one_token, no_tokens, cut, tokens, lines } = *decided;
    let text = "E2E ends at the end of the stream, not at the last token: a little longer";
    run.note("e2e-to-end-of-stream", &["e2e_latency", "tpot"], text.to_owned());
    let text = format!(
        "the {tokens} output tokens are counted again from the text by a Llama tokenizer, whatever \
         the model is; the streams had {lines:.0} lines"
    );
    run.note("tokens-retokenized", &["tpot", "token_throughput", "goodput"], text);
    if 0 < one_token {
        let text = format!(
            "{} with an end behind its first token: the end is taken for both, the tool's own \
             value is in the column ttft_as_written_s",
            things(one_token, "one-token answer")
        );
        run.note("one-token-in-several-chunks", &["ttft"], text);
    }
    if 0 < no_tokens {
        let text = format!(
            "{} with 0 output tokens: count unknown",
            things(no_tokens, "completed request")
        );
        run.note("no-tokens", &["tpot", "token_throughput"], text);
    }
    if 0 < cut {
        let text = format!(
            "{} cut after the first output: TTFT is kept, E2E and output tokens are unknown",
            things(cut, "failed request")
        );
        run.note("cut-in-mid-stream", &["e2e_latency", "token_throughput"], text);
    }
    run.lacks("duration of the run", "nothing: the tool writes it into neither file");
}
