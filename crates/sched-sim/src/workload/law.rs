//! The grammar that laws of arrivals, lengths and delays share: `NAME:VALUE,NAME=VALUE`.

use metrics_core::grammar;

use crate::error::{Result, SimError};
use crate::time::Ticks;

/// The name of a law and the list behind its colon.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let (name, list) = text.split_once(':').unwrap_or((text, ""));
    (name.trim(), list.trim())
}

/// The values of a law, by name; values without a name are those of the names in order.
pub(crate) struct Parameters<'a> {
    what: &'static str,
    text: &'a str,
    values: Vec<(&'static str, &'a str)>,
}

impl<'a> Parameters<'a> {
    /// Reads `list`, which is part of `text`, of a `what`.
    pub(crate) fn read(
        what: &'static str,
        text: &'a str,
        list: &'a str,
        names: &[&'static str],
    ) -> Result<Self> {
        let mut read = Self { what, text, values: Vec::new() };
        let known = || match names {
            [] => "no values".to_owned(),
            names => format!("the values {}, each once", names.join(", ")),
        };
        for (i, item) in list.split(',').enumerate().filter(|_| !list.is_empty()) {
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => {
                    let name = name.trim();
                    let found = names.iter().find(|&&n| n == name);
                    (found.ok_or_else(|| read.wrong(known())), value)
                }
                None => (names.get(i).ok_or_else(|| read.wrong(known())), item),
            };
            let name = *name?;
            if read.get(name).is_some() {
                return Err(read.wrong(format!("`{name}` once")));
            }
            read.values.push((name, value.trim()));
        }
        Ok(read)
    }

    fn wrong(&self, expected: String) -> SimError {
        SimError::Grammar { what: self.what, text: self.text.to_owned(), expected }
    }

    /// The text of a value.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.values.iter().find(|(n, _)| *n == name).map(|&(_, value)| value)
    }

    fn value<T>(
        &self,
        name: &str,
        default: Option<T>,
        kind: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T> {
        match self.get(name) {
            Some(text) => {
                read(text).ok_or_else(|| self.wrong(format!("{kind} for `{name}`, got `{text}`")))
            }
            None => default.ok_or_else(|| self.wrong(format!("{kind} for `{name}`"))),
        }
    }

    /// A number.
    pub(crate) fn number(&self, name: &str, default: Option<f64>) -> Result<f64> {
        self.value(name, default, "a number", |t| t.parse().ok())
    }

    /// A count, such as `512` or `8k`.
    pub(crate) fn count(&self, name: &str, default: Option<u64>) -> Result<u64> {
        self.value(name, default, "a whole number up to 2^53", |t| grammar::count(t).ok())
    }

    /// A time with its unit.
    pub(crate) fn time(&self, name: &str) -> Result<Ticks> {
        if let Some(text) = self.get(name) {
            bounded(text)?;
        }
        self.value(name, None, "a time such as 5s or 200ms", |t| t.parse().ok())
    }
}

/// Refuses what is a time but for its bounds, which the error names.
pub(crate) fn bounded(text: &str) -> Result<()> {
    let text = text.trim();
    let is_time =
        text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && text.ends_with('s');
    if is_time { text.parse::<Ticks>().map(|_| ()) } else { Ok(()) }
}

/// Refuses a parameter out of its bound.
pub(crate) fn within(
    input: &str,
    name: &str,
    value: f64,
    bound: &'static str,
    good: bool,
) -> Result<()> {
    if good {
        return Ok(());
    }
    let input = if name.is_empty() { input.to_owned() } else { format!("{input}.{name}") };
    Err(SimError::Parameter { input, bound, value })
}
