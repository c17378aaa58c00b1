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
//! | `max_concurrency`, `num_prompts`, `model_id`, `tokenizer_id`, `backend`, `date`, `label` | as named; null is absent | [`Declared`] |
//! | `completed`, `failed`, `total_input_tokens`, `total_output_tokens` | counts; the tokens are those of completed requests | [`Counts`] |
//! | other keys with a number | figures that the tool computed: `mean_ttft_ms`, `p99_tpot_ms`, `request_goodput`, `spec_decode_…` (`request_goodput:`, as some versions spell it, is the same key); such a figure that is no number is an error | [`Run::stated`] |
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

use std::collections::HashSet;
use std::fmt;

use metrics_core::format::things;
use metrics_core::timeline::{GapKind, LARGEST_TOKENS, TimelineFields};
use metrics_core::{Instant, Outcome, RequestTimeline, Seconds};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::detect::{Format, Options, Reader};
use crate::error::{IoError, Place, Result, input_of, shown};
use crate::input::{Head, Input};
use crate::json::{self, COUNT, number, quoted, whole};
use crate::rows::{note_client_delay, note_gap_kind};
use crate::run::{Clock, Column, Counts, Declared, RequestRate, Run, RunDuration, Tool, Values};

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
        let mut text = input.into_text()?;
        if text.contains(INFINITE) {
            text = text.replace(INFINITE, r#""burstiness": "inf"   "#);
        }
        let mut runs = Vec::new();
        let mut documents = serde_json::Deserializer::from_str(&text).into_iter::<Document>();
        let (mut line, mut counted) = (1, 0);
        loop {
            let rest = text.get(documents.byte_offset()..).unwrap_or("");
            let begin = text.len() - rest.trim_start().len();
            line += newlines(&text, counted, begin);
            counted = begin;
            match documents.next() {
                None => break,
                Some(Ok(document)) => runs.push(run(&name, line, document)?),
                Some(Err(e)) => return Err(json::syntax_error(&name, &text, 0, &e)),
            }
        }
        if runs.is_empty() {
            return Err(IoError::Empty {
                at: Box::new(Place::file(&name)),
                expected: "a result of `vllm bench serve`".to_owned(),
            });
        }
        Ok(runs)
    }
}

/// An infinite burstiness (gaps of one length) as Python writes it, with a word that is not JSON.
///
/// In a JSON string the quotes would be escaped, so that this can only be the key.
const INFINITE: &str = r#""burstiness": Infinity"#;

/// Line ends between two offsets.
fn newlines(text: &str, from: usize, to: usize) -> u64 {
    text.get(from..to).map_or(0, |t| t.matches('\n').count() as u64)
}

/// One JSON object of the file, as it stands there.
#[derive(Default)]
struct Document {
    /// All keys but the arrays per request, in order.
    rest: Vec<(String, Value)>,
    input_lens: Option<Vec<u64>>,
    output_lens: Option<Vec<u64>>,
    ttfts: Option<Vec<f64>>,
    itls: Option<Vec<Vec<f64>>>,
    latencies: Option<Vec<f64>>,
    start_times: Option<Vec<f64>>,
    queue_times: Option<Vec<f64>>,
    errors: Option<Vec<String>>,
    /// The first value of a wrong type.
    problem: Option<Problem>,
}

/// A value of a wrong type.
struct Problem {
    key: String,
    index: Option<usize>,
    found: String,
    expected: &'static str,
}

impl<'de> serde::Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object, as `vllm bench serve` writes it")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let mut d = Document::default();
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let problem = &mut d.problem;
            if !seen.insert(key.clone()) {
                let found = "the same key a second time".to_owned();
                let index = None;
                keep(
                    problem,
                    Problem { key: key.clone(), index, found, expected: "each key once" },
                );
            }
            match key.as_str() {
                "input_lens" => d.input_lens = list(&mut map, &key, problem, COUNT)?,
                "output_lens" => d.output_lens = list(&mut map, &key, problem, COUNT)?,
                "ttfts" => d.ttfts = list(&mut map, &key, problem, SECONDS)?,
                "itls" => d.itls = list(&mut map, &key, problem, GAPS)?,
                "latencies" => d.latencies = list(&mut map, &key, problem, SECONDS)?,
                "start_times" => d.start_times = list(&mut map, &key, problem, SECONDS)?,
                "queue_times" => d.queue_times = list(&mut map, &key, problem, SECONDS)?,
                "errors" => d.errors = list(&mut map, &key, problem, "an error text, or \"\"")?,
                "generated_texts" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => d.rest.push((key.clone(), map.next_value()?)),
            }
        }
        Ok(d)
    }
}

const SECONDS: &str = "a number of seconds";
const GAPS: &str = "a list of numbers of seconds";

/// Keeps the first problem.
fn keep(slot: &mut Option<Problem>, problem: Problem) {
    if slot.is_none() {
        *slot = Some(problem);
    }
}

/// An element of an array per request.
trait Element: Sized {
    /// From a number.
    fn from_number(_: f64) -> Option<Self> {
        None
    }
    /// From a whole number.
    fn from_whole(n: u64) -> Option<Self> {
        Self::from_number(n as f64)
    }
    /// From a text.
    fn from_text(_: &str) -> Option<Self> {
        None
    }
    /// From a list of numbers.
    fn from_list(_: Vec<f64>) -> Option<Self> {
        None
    }
    /// Whether it is a list.
    const LIST: bool = false;
}
impl Element for u64 {
    fn from_number(x: f64) -> Option<Self> {
        whole(x)
    }
    fn from_whole(n: u64) -> Option<Self> {
        (n <= LARGEST_TOKENS).then_some(n)
    }
}
impl Element for f64 {
    fn from_number(x: f64) -> Option<Self> {
        Some(x)
    }
}
impl Element for String {
    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}
impl Element for Vec<f64> {
    fn from_list(list: Vec<f64>) -> Option<Self> {
        Some(list)
    }
    const LIST: bool = true;
}

/// The array under a key; values of a wrong type become the problem and are left out.
fn list<'de, A: MapAccess<'de>, T: Element>(
    map: &mut A,
    key: &str,
    problem: &mut Option<Problem>,
    expected: &'static str,
) -> Result<Option<Vec<T>>, A::Error> {
    let element = std::marker::PhantomData::<T>;
    map.next_value_seed(ListSeed { key, problem, expected, element }).map(Some)
}

struct ListSeed<'a, T> {
    key: &'a str,
    problem: &'a mut Option<Problem>,
    expected: &'static str,
    element: std::marker::PhantomData<T>,
}

impl<'de, T: Element> DeserializeSeed<'de> for ListSeed<'_, T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        match deserializer.deserialize_any(AnyVisitor::<T>::new())? {
            Any::Items(items, None) => Ok(items),
            Any::Items(items, Some((index, found))) => {
                let (key, expected) = (self.key.to_owned(), self.expected);
                keep(self.problem, Problem { key, index: Some(index), found, expected });
                Ok(items)
            }
            other => {
                keep(
                    self.problem,
                    Problem {
                        key: self.key.to_owned(),
                        index: None,
                        found: other.shown(),
                        expected: "a list with one value a request",
                    },
                );
                Ok(Vec::new())
            }
        }
    }
}

/// Any JSON value, as far as a list of `T` needs it.
enum Any<T> {
    Number(f64),
    Whole(u64),
    Text(String),
    Other(&'static str),
    /// The elements, and the first one that is none.
    Items(Vec<T>, Option<(usize, String)>),
}

impl<T> Any<T> {
    fn shown(&self) -> String {
        match self {
            Self::Number(x) => number(*x),
            Self::Whole(n) => n.to_string(),
            Self::Text(s) => quoted(s),
            Self::Other(name) => (*name).to_owned(),
            Self::Items(..) => "a list".to_owned(),
        }
    }
}

struct AnyVisitor<T>(std::marker::PhantomData<T>);

impl<T> AnyVisitor<T> {
    fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

/// One element of a list.
struct ItemSeed;

impl<'de> DeserializeSeed<'de> for ItemSeed {
    type Value = Any<f64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Any<f64>, D::Error> {
        deserializer.deserialize_any(AnyVisitor::<f64>::new())
    }
}

impl<'de, T: Element> Visitor<'de> for AnyVisitor<T> {
    type Value = Any<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_f64<E>(self, x: f64) -> Result<Any<T>, E> {
        Ok(Any::Number(x))
    }
    fn visit_u64<E>(self, x: u64) -> Result<Any<T>, E> {
        Ok(Any::Whole(x))
    }
    fn visit_i64<E>(self, x: i64) -> Result<Any<T>, E> {
        Ok(Any::Number(x as f64))
    }
    fn visit_str<E>(self, text: &str) -> Result<Any<T>, E> {
        Ok(Any::Text(text.to_owned()))
    }
    fn visit_bool<E>(self, b: bool) -> Result<Any<T>, E> {
        Ok(Any::Other(if b { "true" } else { "false" }))
    }
    fn visit_unit<E>(self) -> Result<Any<T>, E> {
        Ok(Any::Other("null"))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Any<T>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Any::Other("an object"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Any<T>, A::Error> {
        let mut items = Vec::new();
        let mut wrong = None;
        let mut index = 0;
        while let Some(any) = seq.next_element_seed(ItemSeed)? {
            let item = match any {
                Any::Number(x) => T::from_number(x).ok_or_else(|| number(x)),
                Any::Whole(n) => T::from_whole(n).ok_or_else(|| n.to_string()),
                Any::Text(s) => T::from_text(&s).ok_or_else(|| quoted(&s)),
                Any::Items(list, None) => T::from_list(list).ok_or_else(|| "a list".to_owned()),
                Any::Items(_, Some((k, found))) if T::LIST => Err(format!("{found} at {k} in it")),
                Any::Items(..) => Err("a list".to_owned()),
                Any::Other(name) => Err(name.to_owned()),
            };
            match item {
                Ok(item) => items.push(item),
                Err(found) if wrong.is_none() => wrong = Some((index, found)),
                Err(_) => {}
            }
            index += 1;
        }
        Ok(Any::Items(items, wrong))
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
        IoError::Value {
            at: Box::new(self.at.clone().key(key)),
            found: shown(&value.to_string()),
            expected: expected.to_owned(),
        }
    }

    fn count(&self, key: &str, value: &Value) -> Result<Option<u64>> {
        match value {
            Value::Null => Ok(None),
            // Digits alone are compared exactly, where an `f64` would round into the range.
            _ => value
                .as_u64()
                .filter(|&n| n <= LARGEST_TOKENS)
                .or_else(|| value.as_f64().filter(|_| !value.is_u64()).and_then(whole))
                .map(Some)
                .ok_or_else(|| self.wrong(key, value, COUNT)),
        }
    }

    fn text(&self, key: &str, value: &Value) -> Result<Option<String>> {
        match value {
            Value::Null => Ok(None),
            Value::String(s) => Ok(Some(s.clone())),
            _ => Err(self.wrong(key, value, "a text or null")),
        }
    }

    /// Takes the value if the key is a setting or a count.
    fn take(&mut self, key: &str, value: &Value) -> Result<bool> {
        match key {
            "request_rate" => self.declared.request_rate = self.rate(value)?,
            "burstiness" => {
                self.declared.burstiness = match (value, value.as_f64()) {
                    (Value::Null, _) => None,
                    (Value::String(s), _) if s == "inf" => Some(f64::INFINITY),
                    (_, Some(x)) if 0.0 < x => Some(x),
                    _ => return Err(self.wrong(key, value, "a number above 0")),
                }
            }
            "max_concurrency" => self.declared.max_concurrency = self.count(key, value)?,
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
    if let Some(p) = d.problem {
        let at = Place { key: Some(p.key), index: p.index, ..at };
        let (found, expected) = (p.found, p.expected.to_owned());
        return Err(IoError::Value { at: Box::new(at), found, expected });
    }
    let mut run = Run { line, ..Run::default() };
    for (key, value) in std::mem::take(&mut d.rest) {
        let mut scalars =
            Scalars { at: at.clone(), declared: &mut run.declared, counts: &mut run.counts };
        if key == "duration" {
            run.duration = duration(&at, &value)?;
        } else if !scalars.take(&key, &value)? {
            match value {
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
    run.tool = Tool {
        name: "vllm bench serve".to_owned(),
        version: None,
        age: Some(age(&d, &run).to_owned()),
    };
    requests(&at, &d, &mut run)?;
    if !run.has_requests() && run.stated.is_empty() && run.counts.completed.is_none() {
        let expected = "the counts, figures or arrays of a `vllm bench serve` result";
        return Err(IoError::NoRequests { at: Box::new(at), expected });
    }
    check_counts(&mut run);
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

fn duration(at: &Place, value: &Value) -> Result<Option<RunDuration>> {
    if value.is_null() {
        return Ok(None);
    }
    let wrong = || IoError::Value {
        at: Box::new(at.clone().key("duration")),
        found: shown(&value.to_string()),
        expected: "a number of seconds above 0".to_owned(),
    };
    let x = value.as_f64().filter(|x| 0.0 < *x).ok_or_else(wrong)?;
    let value = Seconds::named("duration", x).map_err(|_| wrong())?;
    Ok(Some(RunDuration { value, from: "`duration`: first send to last answer" }))
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
        let fields = r.fields(i, per_token, stamped, &mut decided);
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

/// The common length of the arrays per request, if there are any.
fn parallel(at: &Place, d: &Document) -> Result<Option<usize>> {
    let lengths = [
        ("ttfts", d.ttfts.as_ref().map(Vec::len)),
        ("latencies", d.latencies.as_ref().map(Vec::len)),
        ("output_lens", d.output_lens.as_ref().map(Vec::len)),
        ("input_lens", d.input_lens.as_ref().map(Vec::len)),
        ("itls", d.itls.as_ref().map(Vec::len)),
        ("start_times", d.start_times.as_ref().map(Vec::len)),
        ("queue_times", d.queue_times.as_ref().map(Vec::len)),
        ("errors", d.errors.as_ref().map(Vec::len)),
    ];
    let mut first: Option<(&'static str, usize)> = None;
    for (key, len) in lengths {
        match (first, len) {
            (None, Some(len)) => first = Some((key, len)),
            (Some((other, expected)), Some(found)) if expected != found => {
                let at = Box::new(at.clone().key(key));
                return Err(IoError::Lengths { at, found, expected, other });
            }
            _ => {}
        }
    }
    // Without TTFT or latency there is nothing to make a timeline of.
    Ok(first.filter(|_| d.ttfts.is_some() || d.latencies.is_some()).map(|(_, n)| n))
}

/// What the arrays say about one request.
struct Row<'a> {
    ttft: Option<f64>,
    latency: Option<f64>,
    output: Option<u64>,
    input: Option<u64>,
    gaps: Option<&'a [f64]>,
    start: Option<f64>,
    error: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn new(d: &'a Document, i: usize) -> Self {
        Self {
            ttft: get(d.ttfts.as_ref(), i).copied(),
            latency: get(d.latencies.as_ref(), i).copied(),
            output: get(d.output_lens.as_ref(), i).copied(),
            input: get(d.input_lens.as_ref(), i).copied(),
            gaps: get(d.itls.as_ref(), i).map(Vec::as_slice),
            start: get(d.start_times.as_ref(), i).copied(),
            error: get(d.errors.as_ref(), i).map(String::as_str),
        }
    }

    /// Whether vLLM counted it as answered; its own flag is not in the file, but it writes exactly
    /// 0.0 for what it did not measure.
    fn completed(&self) -> bool {
        let failed = match (self.error, self.latency) {
            (Some(text), _) if !text.is_empty() => true,
            (_, Some(latency)) => latency == 0.0,
            (_, None) => self.ttft == Some(0.0) && self.output.is_none_or(|n| n == 0),
        };
        !failed
    }

    /// The time of the last chunk: the file's own, else rebuilt from the gaps.
    fn end(&self) -> Option<f64> {
        self.latency.or_else(|| self.rebuilt_end())
    }

    fn rebuilt_end(&self) -> Option<f64> {
        let ttft = self.ttft.filter(|&t| t != 0.0)?;
        Some(self.gaps?.iter().fold(ttft, |sum, gap| sum + gap))
    }

    fn fields(
        &self,
        i: usize,
        per_token: bool,
        stamped: bool,
        decided: &mut Decided,
    ) -> TimelineFields {
        let completed = self.completed();
        let mut ttft = self.ttft.filter(|&t| t != 0.0);
        let e2e = if completed { self.end() } else { None };
        let mut output = self.output.filter(|_| completed);
        if completed {
            decided.not_streamed += usize::from(self.ttft == Some(0.0));
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
            if let (Some(latency), Some(rebuilt)) = (self.latency, self.rebuilt_end()) {
                // A microsecond is above the rounding of the sum and below what a client notices.
                decided.longer_than_gaps += usize::from(1e-6 < (latency - rebuilt).abs());
            }
        } else if ttft.is_some() {
            decided.cut += 1;
        }
        let kind = if per_token && completed { GapKind::Token } else { GapKind::Chunk };
        TimelineFields {
            id: i.to_string(),
            arrival: self.start.filter(|&t| stamped && t != 0.0).map(Instant::Seconds),
            ttft,
            e2e,
            gaps: self.gaps.filter(|_| ttft.is_some()).map(|g| (kind, g.to_vec())),
            input_tokens: self.input,
            output_tokens: output,
            outcome: if completed { Outcome::Completed } else { Outcome::Failed },
            ..TimelineFields::default()
        }
    }
}

/// The array that holds the value which breaks the rule.
fn key_of(error: &metrics_core::Error, d: &Document) -> &'static str {
    let end = if d.latencies.is_some() { "latencies" } else { "itls" };
    match input_of(error).unwrap_or("") {
        "arrival" => "start_times",
        "output_tokens" => "output_lens",
        "input_tokens" => "input_lens",
        "a gap between outputs" => "itls",
        "e2e" | "last_token" => end,
        _ if d.ttfts.is_some() => "ttfts",
        _ => end,
    }
}

fn get<T>(list: Option<&Vec<T>>, i: usize) -> Option<&T> {
    list.and_then(|l| l.get(i))
}

/// Whether every completed request has exactly one gap fewer than tokens, and some has a gap.
fn gaps_look_per_token(d: &Document, n: usize) -> bool {
    let mut any = false;
    for row in (0..n).map(|i| Row::new(d, i)).filter(Row::completed) {
        let (Some(gaps), Some(tokens)) = (row.gaps, row.output) else { return false };
        if tokens.saturating_sub(1) != gaps.len() as u64 {
            return false;
        }
        any |= !gaps.is_empty();
    }
    any
}

fn note_gaps(d: &Document, n: usize, per_token: bool, run: &mut Run) {
    if d.itls.is_none() || d.output_lens.is_none() {
        return;
    }
    let answers = (0..n).map(|i| Row::new(d, i)).filter(Row::completed);
    let counts = answers.map(|r| (r.gaps.map_or(0, <[f64]>::len) as u64, r.output.unwrap_or(0)));
    note_gap_kind(run, per_token, counts);
}

fn note_decided(decided: &Decided, d: &Document, run: &mut Run) {
    let Decided { several_chunks, no_tokens, not_streamed, cut, longer_than_gaps } = *decided;
    if 0 < several_chunks {
        let text = format!(
            "{} in several chunks: TTFT is taken as the last chunk, the tool's own value is in \
             the column ttft_as_written_s",
            things(several_chunks as u64, "one-token answer")
        );
        run.note("one-token-in-several-chunks", &["ttft"], text);
    }
    if 0 < no_tokens {
        let text = format!(
            "{} with 0 output tokens: count unknown",
            things(no_tokens as u64, "completed request")
        );
        run.note("no-tokens", &["tpot", "token_throughput"], text);
    }
    if 0 < not_streamed {
        let text = format!(
            "{} with a TTFT of 0.0: not streamed",
            things(not_streamed as u64, "completed request")
        );
        run.note("not-streamed", &["ttft", "tpot"], text);
    }
    if 0 < cut {
        let text = format!(
            "{} cut after the first chunk: TTFT is kept, E2E and output tokens are unknown (the \
             file writes 0)",
            things(cut as u64, "failed request")
        );
        run.note("cut-in-mid-stream", &["e2e_latency", "token_throughput"], text);
    }
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

/// Compares the file's counts with its requests.
fn check_counts(run: &mut Run) {
    if !run.has_requests() {
        return;
    }
    let of = |outcome| run.timelines.iter().filter(|t| t.outcome() == outcome).count() as u64;
    let (completed, failed) = (of(Outcome::Completed), of(Outcome::Failed));
    let mut differ = Vec::new();
    for (name, stated, found) in
        [("completed", run.counts.completed, completed), ("failed", run.counts.failed, failed)]
    {
        if let Some(stated) = stated
            && stated != found
        {
            differ.push(format!("`{name}` says {stated}, the requests {found}"));
        }
    }
    let tokens: Option<u64> = run
        .timelines
        .iter()
        .filter(|t| t.outcome() == Outcome::Completed)
        .try_fold(0_u64, |sum, t| sum.checked_add(t.output_tokens()?));
    if let (Some(stated), Some(found)) = (run.counts.total_output_tokens, tokens)
        && stated != found
    {
        differ.push(format!("`total_output_tokens` says {stated}, the requests {found}"));
    }
    if !differ.is_empty() {
        run.note("counts-disagree", &["request_throughput", "goodput"], differ.join("; "));
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
