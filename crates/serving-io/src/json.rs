//! What readers of JSON share: keys of a document that may be cut, the place of an error, and
//! numbers as files write them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use metrics_core::timeline::LARGEST_TOKENS;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{IoError, Place, Spot, shown};

/// The keys and the raw values of one JSON object, in its order.
pub(crate) struct Object<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one JSON object a line")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
        let mut out = Vec::new();
        while let Some(Key(key)) = map.next_key_seed(KeySeed)? {
            out.push((key, map.next_value()?));
        }
        Ok(Object(out))
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);
struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key<'de>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Key<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Borrowed(key)))
    }
    fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Owned(key.to_owned())))
    }
}

/// The object in one line of a file.
pub(crate) fn object<'a>(file: &str, line: u64, text: &'a str) -> Result<Object<'a>, IoError> {
    serde_json::from_str(text).map_err(|e| {
        if text.trim_start().starts_with('{') {
            return syntax_error(file, text, line - 1, &e);
        }
        IoError::Syntax {
            at: Box::new(Place::line(file, line)),
            column: 1,
            found: format!("`{}`", shown(text.trim())),
            expected: "one JSON object a line".to_owned(),
        }
    })
}

/// The value of a key of an object; none if it is not there.
///
/// # Errors
///
/// [`IoError::Repeated`] if it is there twice: nobody knows which of the values is meant.
pub(crate) fn once<'a>(
    row: Spot<'_>,
    object: &[(Cow<'_, str>, &'a RawValue)],
    key: &str,
) -> Result<Option<&'a RawValue>, IoError> {
    let mut values = object.iter().filter(|(k, _)| k == key);
    let value = values.next().map(|(_, value)| *value);
    match values.next() {
        Some(_) => Err(IoError::Repeated { at: row.key(key).place() }),
        None => Ok(value),
    }
}

/// A JSON text in which no key of an object stands twice; `lines_before` counts the lines of the
/// file before it.
///
/// A parser that keeps the last of two values says nothing of the first.
///
/// # Errors
///
/// [`IoError::Repeated`] with the line of the second key, [`IoError::Syntax`] and
/// [`IoError::Truncated`] for what is no JSON.
///
/// # Examples
///
/// ```
/// let twice = serving_io::json_value("a.json", 0, "{\"n\": 1,\n \"n\": 2}").unwrap_err();
/// assert_eq!(twice.to_string(), "a.json, line 2, `n`: appears twice, expected once");
/// ```
pub fn json_value(file: &str, lines_before: u64, text: &str) -> Result<Value, IoError> {
    let repeated = RefCell::new(None);
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = Unique(&repeated).deserialize(&mut parser).and_then(|v| parser.end().map(|()| v));
    value.map_err(|e| match repeated.take() {
        Some(key) => {
            let at = Place::line(file, lines_before + e.line() as u64).key(key);
            IoError::Repeated { at: Box::new(at) }
        }
        None => syntax_error(file, text, lines_before, &e),
    })
}

/// Makes a value, and keeps the first key that stands twice in its object.
struct Unique<'a>(&'a RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Unique<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, x: bool) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_u64<E>(self, x: u64) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_i64<E>(self, x: i64) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(value) = list.next_element_seed(Unique(self.0))? {
            out.push(value);
        }
        Ok(Value::Array(out))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if out.contains_key(&key) {
                *self.0.borrow_mut() = Some(key);
                return Err(A::Error::custom("a key stands twice"));
            }
            let value = map.next_value_seed(Unique(self.0))?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// A raw JSON value as it may stand in a message.
pub(crate) fn raw(value: &RawValue) -> String {
    shown(value.get())
}

/// Goes through JSON text, piece by piece and without checking it, and knows where it stands.
#[derive(Default)]
pub(crate) struct Scan {
    /// The keys of the first document's outermost object.
    pub(crate) keys: Vec<String>,
    /// The keys one level below, each behind its outer key and a dot.
    pub(crate) inner_keys: Vec<String>,
    /// How many documents have ended.
    pub(crate) documents: u64,
    /// The key of the outermost object that is being read.
    key: Option<String>,
    /// The index in the array under that key.
    index: Option<usize>,
    open: Vec<u8>,
    /// Whether a text that begins here is a key.
    key_next: bool,
    in_text: bool,
    escaped: bool,
    /// The text that is a key if a colon follows.
    name: Option<Vec<u8>>,
}

impl Scan {
    /// Goes on over the next piece of the text.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        for &byte in piece {
            if self.in_text {
                self.text_byte(byte);
                continue;
            }
            match byte {
                b'"' => {
                    self.in_text = true;
                    self.name = (self.key_next && self.open.len() <= 2).then(Vec::new);
                }
                b':' => self.colon(),
                b'{' | b'[' => {
                    self.open.push(byte);
                    self.key_next = byte == b'{';
                    if self.open == *b"{[" {
                        self.index = Some(0);
                    }
                }
                b'}' | b']' => self.close(),
                b',' => {
                    self.key_next = self.open.last() == Some(&b'{');
                    if self.open == *b"{[" {
                        self.index = self.index.map(|n| n + 1);
                    } else if self.open == [b'{'] {
                        (self.key, self.index) = (None, None);
                    }
                }
                _ => {}
            }
        }
    }

    fn text_byte(&mut self, byte: u8) {
        if byte == b'"' && !self.escaped {
            self.in_text = false;
            return;
        }
        self.escaped = byte == b'\\' && !self.escaped;
        if let Some(name) = &mut self.name {
            name.push(byte);
        }
    }

    fn colon(&mut self) {
        self.key_next = false;
        let Some(name) = self.name.take() else { return };
        let name = String::from_utf8_lossy(&name).into_owned();
        if self.open == [b'{'] {
            if self.documents == 0 {
                self.keys.push(name.clone());
            }
            (self.key, self.index) = (Some(name), None);
        } else if self.open == *b"{{"
            && self.documents == 0
            && let Some(outer) = &self.key
        {
            self.inner_keys.push(format!("{outer}.{name}"));
        }
    }

    fn close(&mut self) {
        self.open.pop();
        self.key_next = false;
        if self.open == [b'{'] {
            self.index = None;
        }
        if self.open.is_empty() {
            self.documents += 1;
            (self.key, self.index) = (None, None);
        }
    }
}

/// Goes through JSON text up to the byte `until`.
fn scan(text: &[u8], until: usize) -> Scan {
    let mut scan = Scan::default();
    scan.push(text.get(..until).unwrap_or(text));
    scan
}

/// What is wrong with JSON text, from the parser's error.
///
/// `line` is added to the parser's own line, for text that is one line of a file.
pub(crate) fn syntax_error(
    file: &str,
    text: &str,
    lines_before: u64,
    error: &serde_json::Error,
) -> IoError {
    let line = lines_before + error.line() as u64;
    if error.is_eof() {
        return IoError::Truncated {
            at: Box::new(Place::line(file, line)),
            inside: "a JSON object",
        };
    }
    let offset = byte_offset(text, error.line(), error.column());
    let found = scan(text.as_bytes(), offset);
    let mut at = Place::line(file, line);
    at.key = found.key;
    at.index = found.index;
    let here = word_at(text, offset);
    let (found, expected) = match here {
        "NaN" | "Infinity" | "-Infinity" => (
            format!("`{here}`, which is not JSON"),
            "a finite number, or null for unknown".to_owned(),
        ),
        _ if error.is_data() => (
            format!("`{}`", shown(text.get(offset..).unwrap_or("").trim_start())),
            "one JSON object a run".to_owned(),
        ),
        _ => {
            let what = without_position(error);
            (format!("not JSON ({})", shown(&what)), "valid JSON".to_owned())
        }
    };
    IoError::Syntax { at: Box::new(at), column: error.column() as u64, found, expected }
}

/// The parser's message without the position that follows it.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&suffix).map_or(text.clone(), str::to_owned)
}

/// The offset of the byte that the parser means by a line and a column, both from 1.
fn byte_offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (start + column.saturating_sub(1)).min(text.len())
}

/// The bare word around an offset.
fn word_at(text: &str, offset: usize) -> &str {
    let bytes = text.as_bytes();
    let bare = |i: usize| bytes.get(i).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'-');
    let mut start = offset;
    while 0 < start && bare(start - 1) {
        start -= 1;
    }
    let mut end = offset;
    while bare(end) {
        end += 1;
    }
    text.get(start..end).unwrap_or("")
}

/// Marks a word that was no JSON; JSON that a tool writes has no such character.
const MARK: char = '\u{7f}';

/// Replaces the words that Python's `json` writes for what is not finite by texts that
/// [`python_word`] knows, outside of texts and without moving anything that follows.
pub(crate) fn without_python_words(text: String) -> String {
    const WORDS: [(&str, &str); 3] =
        [("-Infinity", "\"\u{7f}-inf\"  "), ("Infinity", "\"\u{7f}inf\"  "), ("NaN", "\"\u{7f}\"")];
    if !text.contains("Infinity") && !text.contains("NaN") {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Outside of a text, up to its quote.
        let quote = rest.find('"').unwrap_or(rest.len());
        let (outside, after) = rest.split_at(quote);
        let mut outside = outside.to_owned();
        for (word, marked) in WORDS {
            outside = outside.replace(word, marked);
        }
        out.push_str(&outside);
        // The text itself, as far as its closing quote.
        let mut escaped = false;
        let end = after.char_indices().skip(1).find(|&(_, c)| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        let (inside, next) = after.split_at(end.map_or(after.len(), |(i, _)| i + 1));
        out.push_str(inside);
        rest = next;
    }
    out
}

/// The word for which a text of [`without_python_words`] stands.
pub(crate) fn python_word(text: &str) -> Option<&'static str> {
    match text.strip_prefix(MARK)? {
        "" => Some("NaN"),
        "inf" => Some("Infinity"),
        "-inf" => Some("-Infinity"),
        _ => None,
    }
}

/// A whole number of tokens or requests from a number that a file gives as `f64`.
pub(crate) fn whole(x: f64) -> Option<u64> {
    // The cast is exact: the value is whole and at most 2^53.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let n = (0.0 <= x && x <= LARGEST_TOKENS as f64 && x.fract() == 0.0).then_some(x as u64);
    n
}

/// A number as it may stand in a message.
pub(crate) fn number(x: f64) -> String {
    metrics_core::format::plain(x)
}

/// A text as it may stand in a message.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(text))
}

/// What a count should be.
pub(crate) const COUNT: &str = "a whole number from 0 to 2^53";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_cut_document_are_those_that_are_there() {
        let text = br#"{"a": [1, {"x": 2}], "b\"c": "d:", "e": {"f": 1, "h": {"i": 2}}, "g"#;
        let found = scan(text, text.len());
        assert_eq!(found.keys, ["a", "b\\\"c", "e"]);
        assert_eq!(found.inner_keys, ["e.f", "e.h"]);
        assert_eq!(found.documents, 0);
        let two = scan(b"{\"a\": 1}\n{\"b\": 2}", 99);
        assert_eq!((two.keys, two.documents), (vec!["a".to_owned()], 2));
    }

    #[test]
    fn pieces_are_scanned_as_the_whole() {
        let text = br#"{"a": [1, {"x": "2"}], "b\\": {"c\"": 1, "d": ":,{"}, "e": "f"}"#;
        let whole = scan(text, text.len());
        for size in 1..text.len() {
            let mut pieces = Scan::default();
            text.chunks(size).for_each(|piece| pieces.push(piece));
            assert_eq!((&pieces.keys, &pieces.inner_keys), (&whole.keys, &whole.inner_keys));
        }
        assert_eq!(whole.keys.len(), 3);
        assert_eq!(whole.inner_keys, ["b\\\\.c\\\"", "b\\\\.d"]);
    }

    #[test]
    fn an_offset_has_a_key_and_an_index() {
        let text = br#"{"a": [1, [2, 3], NaN], "b": 4}"#;
        let at = |n| {
            let s = scan(text, n);
            (s.key, s.index)
        };
        assert_eq!(at(18), (Some("a".to_owned()), Some(2)));
        assert_eq!(at(30), (Some("b".to_owned()), None));
    }

    #[test]
    fn words_of_python_become_texts_of_the_same_length() {
        let text = r#"{"a": Infinity, "b\"": [NaN, -Infinity], "c": "NaN \\", "d": NaN"#;
        let out = without_python_words(text.to_owned());
        assert_eq!(out.len(), text.len());
        assert!(out.contains(r#""c": "NaN \\""#), "{out}");
        let value: serde_json::Value =
            serde_json::from_str(&format!("{out}}}")).unwrap_or_default();
        let word = |v: &serde_json::Value| v.as_str().and_then(python_word);
        assert_eq!(word(&value["a"]), Some("Infinity"));
        assert_eq!(word(&value["b\""][0]), Some("NaN"));
        assert_eq!(word(&value["b\""][1]), Some("-Infinity"));
        assert_eq!(word(&value["d"]), Some("NaN"));
        assert_eq!(without_python_words("{\"a\": \"NaN".to_owned()), "{\"a\": \"NaN");
    }

    #[test]
    fn whole_numbers_stop_at_two_to_the_53() {
        assert_eq!(whole(9_007_199_254_740_992.0), Some(1 << 53));
        assert_eq!(whole(9_007_199_254_740_994.0), None);
        assert_eq!(whole(1.5), None);
        assert_eq!(whole(-1.0), None);
        assert_eq!(whole(f64::NAN), None);
    }
}
