//! Nested JSON as other tools write it: values by key, each with its place in the file.
//!
//! Keys that no one asks for are never parsed, so that prompts and streams in a result cost
//! nothing but a look. Other tools' files are read leniently: an unknown key is no error, and null
//! is the same as absent. A value of a wrong type is an error with its place.

use metrics_core::timeline::LARGEST_TOKENS;
use serde_json::value::RawValue;

use crate::error::{IoError, Place, Result};
use crate::json::{self, COUNT, Object, whole};
use crate::timeline::number;

/// What a number should be.
const NUMBER: &str = "a number";

/// JSON text of a file, or one line of it.
#[derive(Clone, Copy)]
pub(crate) struct Document<'a> {
    file: &'a str,
    /// The line on which the text begins, from 1.
    line: u64,
    text: &'a str,
}

impl<'a> Document<'a> {
    /// The text of a whole file.
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, line: 1, text }
    }

    /// A line of a file.
    pub(crate) fn of_line(file: &'a str, line: u64, text: &'a str) -> Self {
        Self { file, line, text }
    }

    /// The one object that the text is.
    pub(crate) fn object(self) -> Result<Node<'a>> {
        let object = serde_json::from_str::<Object<'a>>(self.text)
            .map_err(|e| json::syntax_error(self.file, self.text, self.line - 1, &e))?;
        Node { document: self, path: String::new(), at: self.text, line: self.line, object }
            .unique()
    }

    /// The objects of the one array that the text is.
    pub(crate) fn array(self) -> Result<Vec<Node<'a>>> {
        let items: Vec<&'a RawValue> = serde_json::from_str(self.text)
            .map_err(|e| json::syntax_error(self.file, self.text, self.line - 1, &e))?;
        self.items((self.text, self.line), "", &items)
    }

    /// The objects of a list that begins behind `from`.
    fn items(
        self,
        from: (&'a str, u64),
        path: &str,
        items: &[&'a RawValue],
    ) -> Result<Vec<Node<'a>>> {
        let mut last = from;
        let mut nodes = Vec::with_capacity(items.len());
        for (i, &raw) in items.iter().enumerate() {
            last = (raw.get(), self.line_of(raw.get(), last));
            nodes.push(Node::of(self, format!("{path}[{i}]"), raw, last.1)?);
        }
        Ok(nodes)
    }

    /// The line of a part of the text, from an earlier part and its line: the file is walked
    /// through once, however many parts are asked for.
    fn line_of(self, part: &str, (earlier, line): (&str, u64)) -> u64 {
        // Every part is borrowed from the text.
        let offset = |s: &str| (s.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let between = self.text.get(offset(earlier)..offset(part)).unwrap_or("");
        line + between.matches('\n').count() as u64
    }
}

/// An object in a document.
pub(crate) struct Node<'a> {
    document: Document<'a>,
    /// The keys that lead to it, as `info.timings`.
    path: String,
    /// Its own text.
    at: &'a str,
    /// The line on which it begins.
    line: u64,
    object: Object<'a>,
}

impl<'a> Node<'a> {
    fn of(document: Document<'a>, path: String, raw: &'a RawValue, line: u64) -> Result<Self> {
        let object: Object<'a> = serde_json::from_str(raw.get()).map_err(|_| IoError::Value {
            at: Box::new(Place::line(document.file, line).key(&*path)),
            found: json::raw(raw),
            expected: "a JSON object".to_owned(),
        })?;
        Self { document, path, at: raw.get(), line, object }.unique()
    }

    /// The same object, in which no key stands twice.
    fn unique(self) -> Result<Self> {
        let mut keys: Vec<&str> = self.object.0.iter().map(|(k, _)| k.as_ref()).collect();
        keys.sort_unstable();
        let twice = keys.windows(2).find_map(|w| match w {
            [a, b] if a == b => Some((*a).to_owned()),
            _ => None,
        });
        match twice {
            Some(key) => {
                let raw = self.object.0.iter().rev().find(|(k, _)| *k == key).map(|(_, r)| *r);
                Err(IoError::Repeated { at: self.place(&key, raw) })
            }
            None => Ok(self),
        }
    }

    /// The line on which it begins.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The line of a value in it.
    fn line_of(&self, raw: &RawValue) -> u64 {
        self.document.line_of(raw.get(), (self.at, self.line))
    }

    /// Its own text.
    pub(crate) fn source(&self) -> &'a str {
        self.at
    }

    /// The keys that lead to it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The file's name.
    pub(crate) fn file(&self) -> &'a str {
        self.document.file
    }

    /// The keys with their values, in the order of the file, without those that are null.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.object.0.iter().filter(|(_, v)| v.get() != "null").map(|(k, v)| (k.as_ref(), *v))
    }

    /// The value under a key, if it is there and not null.
    pub(crate) fn raw(&self, key: &str) -> Option<&'a RawValue> {
        self.object.0.iter().find(|(k, _)| k == key).map(|(_, v)| *v).filter(|v| v.get() != "null")
    }

    /// Whether the key is there and not null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Where a key stands, with the value under it if there is one.
    #[expect(clippy::unnecessary_box_returns, reason = "errors hold it boxed, to stay small")]
    pub(crate) fn place(&self, key: &str, raw: Option<&RawValue>) -> Box<Place> {
        let line = raw.map_or(self.line, |raw| self.line_of(raw));
        Box::new(Place::line(self.document.file, line).key(self.full(key)))
    }

    /// A value of a wrong type or out of its range.
    pub(crate) fn wrong(&self, key: &str, expected: impl Into<String>) -> IoError {
        let raw = self.raw(key);
        IoError::Value {
            at: self.place(key, raw),
            found: raw.map_or_else(|| "nothing".to_owned(), json::raw),
            expected: expected.into(),
        }
    }

    /// The rule of a timeline that the values under a key break.
    pub(crate) fn broken(&self, key: &str, source: metrics_core::Error) -> IoError {
        IoError::Request { at: self.place(key, self.raw(key)), source, note: "" }
    }

    /// The object under a key.
    pub(crate) fn node(&self, key: &str) -> Result<Option<Node<'a>>> {
        let child = |raw| Node::of(self.document, self.full(key), raw, self.line_of(raw));
        self.raw(key).map(child).transpose()
    }

    /// The object under a key that has to be there.
    pub(crate) fn need_node(&self, key: &str) -> Result<Node<'a>> {
        self.node(key)?.ok_or_else(|| self.wrong(key, "a JSON object"))
    }

    /// The objects of the array under a key.
    pub(crate) fn nodes(&self, key: &str) -> Result<Option<Vec<Node<'a>>>> {
        let Some(raw) = self.raw(key) else { return Ok(None) };
        let items: Vec<&'a RawValue> =
            serde_json::from_str(raw.get()).map_err(|_| self.wrong(key, "a list of objects"))?;
        let from = (raw.get(), self.line_of(raw));
        self.document.items(from, &self.full(key), &items).map(Some)
    }

    /// The number under a key.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.number_as(key, NUMBER)
    }

    /// The number under a key, with words for what it should be.
    pub(crate) fn number_as(&self, key: &str, expected: &str) -> Result<Option<f64>> {
        let one = |raw: &RawValue| number(raw.get()).ok_or_else(|| self.wrong(key, expected));
        self.raw(key).map(one).transpose()
    }

    /// The number under a key that has to be there.
    pub(crate) fn need_number(&self, key: &str, expected: &str) -> Result<f64> {
        self.number_as(key, expected)?.ok_or_else(|| self.wrong(key, expected))
    }

    /// The count under a key; `12.0` is 12.
    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>> {
        let one = |raw: &RawValue| count(raw.get()).ok_or_else(|| self.wrong(key, COUNT));
        self.raw(key).map(one).transpose()
    }

    /// The whole number under a key, without a bound.
    pub(crate) fn integer(&self, key: &str, expected: &str) -> Result<Option<u128>> {
        let one = |raw: &RawValue| raw.get().parse().map_err(|_| self.wrong(key, expected));
        self.raw(key).map(one).transpose()
    }

    /// The text under a key.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>> {
        let one = |raw: &RawValue| {
            serde_json::from_str(raw.get()).map_err(|_| self.wrong(key, "a text or null"))
        };
        self.raw(key).map(one).transpose()
    }

    /// The truth value under a key.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        let one = |raw: &RawValue| {
            serde_json::from_str(raw.get()).map_err(|_| self.wrong(key, "true or false"))
        };
        self.raw(key).map(one).transpose()
    }

    /// The numbers of the list under a key.
    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(raw) = self.raw(key) else { return Ok(None) };
        let items: Vec<&RawValue> =
            serde_json::from_str(raw.get()).map_err(|_| self.wrong(key, "a list of numbers"))?;
        let one = |(i, raw): (usize, &RawValue)| {
            number(raw.get()).ok_or_else(|| {
                let mut at = self.place(key, Some(raw));
                at.index = Some(i);
                IoError::Value { at, found: json::raw(raw), expected: NUMBER.to_owned() }
            })
        };
        items.into_iter().enumerate().map(one).collect::<Result<_>>().map(Some)
    }

    /// The value under a key as a reader would write it: text without quotes, all else as JSON.
    pub(crate) fn shown(&self, key: &str) -> Option<String> {
        self.raw(key).map(|raw| {
            serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| compact(raw.get()))
        })
    }
}

/// A count; digits alone are compared exactly, where an `f64` would round into the range.
fn count(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().filter(|&n| n <= LARGEST_TOKENS);
    }
    whole(number(text)?)
}

/// JSON text without the spaces between its parts.
fn compact(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text)
        .map_or_else(|_| text.to_owned(), |v| v.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
mod tests {
    use super::*;

    const TEXT: &str = "{\n\"a\": {\"b\": [1, 2.5],\n\"n\": 3, \"x\": null}, \"t\": \"\\u00e9\"\n}";

    #[test]
    fn values_have_their_types_and_their_lines() {
        let root = Document::new("f", TEXT).object().unwrap();
        let a = root.need_node("a").unwrap();
        assert_eq!(a.numbers("b").unwrap().unwrap(), [1.0, 2.5]);
        assert_eq!(a.count("n").unwrap(), Some(3));
        assert_eq!(a.number("x").unwrap(), None);
        assert_eq!(root.text("t").unwrap().unwrap(), "é");
        let message = a.text("n").unwrap_err().to_string();
        assert_eq!(message, "f, line 3, `a.n`: found 3, expected a text or null");
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        let Err(e) = Document::new("f", "{\"a\": 1,\n\"a\": 2}").object() else { panic!("read") };
        assert_eq!(e.to_string(), "f, line 2, `a`: appears twice, expected once");
    }
}
