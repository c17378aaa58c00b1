//! What readers of JSON share: keys of a document that may be cut, the place of an error, and
//! numbers as files write them.

use std::borrow::Cow;
use std::fmt;

use metrics_core::timeline::LARGEST_TOKENS;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{IoError, Place, shown};

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

/// A raw JSON value as it may stand in a message.
pub(crate) fn raw(value: &RawValue) -> String {
    shown(value.get())
}

/// Where a scan of JSON text stands.
#[derive(Default)]
struct Scan {
    /// The keys of the first document's outermost object.
    keys: Vec<String>,
    /// The key of the outermost object that is being read.
    key: Option<String>,
    /// The index in the array under that key.
    index: Option<usize>,
}

/// Goes through JSON text up to the byte `until` without checking it.
fn scan(text: &[u8], until: usize) -> Scan {
    let mut out = Scan::default();
    let mut open: Vec<u8> = Vec::new();
    let mut documents = 0;
    let mut i = 0;
    let end = until.min(text.len());
    while i < end {
        let byte = text[i];
        match byte {
            b'"' => {
                let start = i + 1;
                i = start;
                while i < text.len() && text[i] != b'"' {
                    i += if text[i] == b'\\' { 2 } else { 1 };
                }
                let closed = i < text.len();
                if open == [b'{'] && closed {
                    let after = text[i + 1..].iter().find(|b| !b.is_ascii_whitespace());
                    if after == Some(&b':') {
                        let key = String::from_utf8_lossy(&text[start..i]).into_owned();
                        if documents == 0 {
                            out.keys.push(key.clone());
                        }
                        out.key = Some(key);
                        out.index = None;
                    }
                }
            }
            b'{' | b'[' => {
                open.push(byte);
                if open == *b"{[" {
                    out.index = Some(0);
                }
            }
            b'}' | b']' => {
                open.pop();
                if open == [b'{'] {
                    out.index = None;
                }
                if open.is_empty() {
                    documents += 1;
                    (out.key, out.index) = (None, None);
                }
            }
            b',' if open == *b"{[" => out.index = out.index.map(|n| n + 1),
            b',' if open == [b'{'] => (out.key, out.index) = (None, None),
            _ => {}
        }
        i += 1;
    }
    out
}

/// The keys of the first document's outermost object, as far as the text goes.
pub(crate) fn outer_keys(text: &[u8]) -> Vec<String> {
    if text.iter().find(|b| !b.is_ascii_whitespace()) != Some(&b'{') {
        return Vec::new();
    }
    scan(text, text.len()).keys
}

/// Whether the first JSON document of the text is cut off.
pub(crate) fn ends_early(text: &str) -> bool {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    documents.next().is_some_and(|first| first.is_err_and(|e| e.is_eof()))
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
        let text = br#"{"a": [1, {"x": 2}], "b\"c": "d:", "e": {"f": 1}, "g"#;
        assert_eq!(outer_keys(text), ["a", "b\\\"c", "e"]);
        assert_eq!(outer_keys(b"[{\"a\": 1}]"), Vec::<String>::new());
        assert_eq!(outer_keys(b"{\"a\": 1}\n{\"b\": 2}"), ["a"]);
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
