//! A JSON object with one array a field and one element a request, as `vllm bench serve` and
//! `sglang.bench_serving` write it, before anything is decided.
//!
//! Values of a wrong type are kept as the first [`Problem`], so that the message can name key and
//! index.

use std::collections::HashSet;
use std::fmt;

use metrics_core::Seconds;
use metrics_core::timeline::LARGEST_TOKENS;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::error::{IoError, Place, Result, listed, shown};
use crate::json::{self, COUNT, number, quoted, whole};
use crate::run::{Run, RunDuration};

/// Makes a run of each document of a file; `run` gets the line on which it begins.
pub(crate) fn runs(
    name: &str,
    text: &str,
    expected: &str,
    mut run: impl FnMut(u64, Document) -> Result<Run>,
) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Document>();
    let (mut line, mut counted) = (1, 0);
    loop {
        let rest = text.get(documents.byte_offset()..).unwrap_or("");
        let begin = text.len() - rest.trim_start().len();
        line += newlines(text, counted, begin);
        counted = begin;
        match documents.next() {
            None => break,
            Some(Ok(document)) => runs.push(run(line, document)?),
            Some(Err(e)) => return Err(json::syntax_error(name, text, 0, &e)),
        }
    }
    if runs.is_empty() {
        let at = Box::new(Place::file(name));
        return Err(IoError::Empty { at, expected: expected.to_owned() });
    }
    Ok(runs)
}

/// Line ends between two offsets.
fn newlines(text: &str, from: usize, to: usize) -> u64 {
    text.get(from..to).map_or(0, |t| t.matches('\n').count() as u64)
}

/// One JSON object of the file, as it stands there.
#[derive(Default)]
pub(crate) struct Document {
    /// All keys but the arrays per request, in order.
    pub(crate) rest: Vec<(String, Value)>,
    pub(crate) input_lens: Option<Vec<u64>>,
    pub(crate) output_lens: Option<Vec<u64>>,
    pub(crate) ttfts: Option<Vec<f64>>,
    pub(crate) itls: Option<Vec<Vec<f64>>>,
    pub(crate) latencies: Option<Vec<f64>>,
    pub(crate) start_times: Option<Vec<f64>>,
    pub(crate) queue_times: Option<Vec<f64>>,
    pub(crate) errors: Option<Vec<String>>,
    /// Prompt tokens from the server's cache, as SGLang writes them.
    pub(crate) cached_tokens: Option<Vec<Option<u64>>>,
    /// The first value of a wrong type.
    pub(crate) problem: Option<Problem>,
}

/// A value of a wrong type.
pub(crate) struct Problem {
    pub(crate) key: String,
    pub(crate) index: Option<usize>,
    pub(crate) found: String,
    pub(crate) expected: &'static str,
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
        f.write_str("one JSON object a run")
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
                "generated_texts" | "cached_tokens_details" => {
                    map.next_value::<IgnoredAny>()?;
                }
                "cached_tokens" => d.cached_tokens = list(&mut map, &key, problem, COUNT)?,
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
    /// From null.
    fn from_null() -> Option<Self> {
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
impl Element for Option<u64> {
    fn from_number(x: f64) -> Option<Self> {
        whole(x).map(Some)
    }
    fn from_whole(n: u64) -> Option<Self> {
        u64::from_whole(n).map(Some)
    }
    fn from_null() -> Option<Self> {
        Some(None)
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
        if let Some(word) = json::python_word(text) {
            return Ok(Any::Other(word));
        }
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
                Any::Other("null") => T::from_null().ok_or_else(|| "null".to_owned()),
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

impl Document {
    /// The error of the first value of a wrong type.
    pub(crate) fn refuse_problem(&mut self, at: &Place) -> Result<()> {
        let Some(p) = self.problem.take() else { return Ok(()) };
        let at = Place { key: Some(p.key), index: p.index, ..at.clone() };
        let (found, expected) = (p.found, p.expected.to_owned());
        Err(IoError::Value { at: Box::new(at), found, expected })
    }
}

/// What is said about a scalar of the wrong type.
pub(crate) fn wrong(at: &Place, key: &str, value: &Value, expected: &str) -> IoError {
    let found = match value {
        Value::String(s) => json::python_word(s).map_or_else(|| quoted(s), str::to_owned),
        other => shown(&other.to_string()),
    };
    let at = Box::new(at.clone().key(key));
    IoError::Value { at, found, expected: expected.to_owned() }
}

/// A count under a key; null is absent.
pub(crate) fn count(at: &Place, key: &str, value: &Value) -> Result<Option<u64>> {
    match value {
        Value::Null => Ok(None),
        // Digits alone are compared exactly, where an `f64` would round into the range.
        _ => value
            .as_u64()
            .filter(|&n| n <= LARGEST_TOKENS)
            .or_else(|| value.as_f64().filter(|_| !value.is_u64()).and_then(whole))
            .map(Some)
            .ok_or_else(|| wrong(at, key, value, COUNT)),
    }
}

/// A text under a key; null is absent.
pub(crate) fn text(at: &Place, key: &str, value: &Value) -> Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::String(s) if json::python_word(s).is_none() => Ok(Some(s.clone())),
        _ => Err(wrong(at, key, value, "a text or null")),
    }
}

/// Notes the figures that the tool wrote as `NaN` or `Infinity`.
pub(crate) fn note_not_finite(run: &mut Run, keys: &[String]) {
    if !keys.is_empty() {
        let text = format!("no finite number, left out: {}", listed(keys));
        run.note("figures-not-finite", &[], text);
    }
}

/// Whether a document is a result: it has requests, a count of them, or a figure of its tool.
pub(crate) fn holds_result(run: &Run, is_figure: impl Fn(&str) -> bool) -> bool {
    run.has_requests()
        || run.counts.completed.is_some()
        || run.stated.iter().any(|(key, _)| is_figure(key))
}

/// What a duration should be; the bound is that of every quantity.
pub(crate) const DURATION: &str = "a number of seconds above 0 and at most 1e100";

/// How long the run took, by its key `duration`.
pub(crate) fn duration(at: &Place, value: &Value) -> Result<Option<RunDuration>> {
    if value.is_null() {
        return Ok(None);
    }
    let wrong = || wrong(at, "duration", value, DURATION);
    let x = value.as_f64().filter(|x| 0.0 < *x).ok_or_else(wrong)?;
    let value = Seconds::named("duration", x).map_err(|_| wrong())?;
    Ok(Some(RunDuration { value, from: "`duration`: first send to last answer" }))
}
