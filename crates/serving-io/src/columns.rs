//! Which column of a file holds which field: the left sides of `--map ttft_ms=col`.
//!
//! | field | unit suffix | meaning |
//! |---|---|---|
//! | `id` | none | the request's name |
//! | `arrival` | `_s`, `_ms`, `_us`, `_ns` | when the request was due: the scheduled send time if the log has it, else the send time |
//! | `sent`, `scheduled`, `first_token`, `last_token` | the same | instants on the same clock as `arrival` |
//! | `ttft`, `e2e` | the same | durations from arrival to the first and to the last token |
//! | `tpot` | the same | time per output token after the first |
//! | `input_tokens`, `output_tokens` | none | token counts |
//! | `outcome` | none | [how it ended](crate::generic#outcomes) |

use std::fmt;

use crate::error::{IoError, Result, shown};

/// A field of a request to which a column can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Field {
    /// The request's name.
    Id,
    /// When it was due.
    Arrival,
    /// When the client sent it.
    Sent,
    /// When the server first took it into a batch.
    Scheduled,
    /// When the first token came.
    FirstToken,
    /// When the last token came.
    LastToken,
    /// From arrival to the first token.
    Ttft,
    /// Per output token after the first.
    Tpot,
    /// From arrival to the last token.
    E2e,
    /// Tokens of the prompt.
    InputTokens,
    /// Tokens of the answer.
    OutputTokens,
    /// How it ended.
    Outcome,
}

impl Field {
    /// All fields.
    pub const ALL: [Self; 12] = [
        Self::Id,
        Self::Arrival,
        Self::Sent,
        Self::Scheduled,
        Self::FirstToken,
        Self::LastToken,
        Self::Ttft,
        Self::Tpot,
        Self::E2e,
        Self::InputTokens,
        Self::OutputTokens,
        Self::Outcome,
    ];

    /// Its name without a unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Arrival => "arrival",
            Self::Sent => "sent",
            Self::Scheduled => "scheduled",
            Self::FirstToken => "first_token",
            Self::LastToken => "last_token",
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::E2e => "e2e",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Outcome => "outcome",
        }
    }

    /// Whether it is a time and needs a unit.
    #[must_use]
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Id | Self::InputTokens | Self::OutputTokens | Self::Outcome)
    }

    /// Where it stands in [`Field::ALL`].
    pub(crate) const fn slot(self) -> usize {
        self as usize
    }
}

/// The unit of a column with times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    #[default]
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl TimeUnit {
    const ALL: [Self; 4] =
        [Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Nanoseconds];

    /// The suffix that names it.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Seconds => "_s",
            Self::Milliseconds => "_ms",
            Self::Microseconds => "_us",
            Self::Nanoseconds => "_ns",
        }
    }

    /// Its name in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
        }
    }

    /// Decimal places from the unit down to the picosecond.
    pub(crate) const fn places(self) -> usize {
        match self {
            Self::Seconds => 12,
            Self::Milliseconds => 9,
            Self::Microseconds => 6,
            Self::Nanoseconds => 3,
        }
    }

    /// How many of it make a second.
    pub(crate) const fn per_second(self) -> f64 {
        match self {
            Self::Seconds => 1.0,
            Self::Milliseconds => 1e3,
            Self::Microseconds => 1e6,
            Self::Nanoseconds => 1e9,
        }
    }
}

/// A field with its unit, as a left side of a map names it: `ttft_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The field.
    pub field: Field,
    /// The unit, if the field is a time.
    pub unit: TimeUnit,
}

impl Target {
    /// The target of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Field::ALL.into_iter().find_map(|field| {
            let suffix = name.strip_prefix(field.name())?;
            if !field.is_time() {
                return suffix.is_empty().then_some(Self { field, unit: TimeUnit::Seconds });
            }
            let unit = TimeUnit::ALL.into_iter().find(|u| u.suffix() == suffix)?;
            Some(Self { field, unit })
        })
    }

    /// Whether the name alone says that a file is a request log: a time or a count.
    pub(crate) fn is_telling(self) -> bool {
        !matches!(self.field, Field::Id | Field::Outcome)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.field.name())?;
        if self.field.is_time() { f.write_str(self.unit.suffix()) } else { Ok(()) }
    }
}

/// The left sides that a map can have, for messages.
#[must_use]
pub fn valid_fields() -> String {
    let of = |time: bool| {
        let names = Field::ALL.into_iter().filter(|f| f.is_time() == time).map(Field::name);
        names.collect::<Vec<_>>().join(", ")
    };
    format!("{}, or with _s, _ms, _us or _ns {}", of(false), of(true))
}

/// The field that a column's name nearly but not quite is, as the name should be; `taken` says which fields have
/// a column already.
///
/// Near is as [`nearest`] says; a time without its unit is near too.
pub(crate) fn nearly(name: &str, taken: impl Fn(Field) -> bool) -> Option<String> {
    if Target::named(name).is_some() {
        return None;
    }
    let plain = plain_name(name);
    let free = || Field::ALL.into_iter().filter(|&f| !taken(f));
    if let Some(field) = free().find(|f| f.is_time() && plain == f.name()) {
        return Some(Target { field, unit: TimeUnit::Seconds }.to_string());
    }
    let names = free().flat_map(|field| {
        let units = if field.is_time() { TimeUnit::ALL.as_slice() } else { &[TimeUnit::Seconds] };
        units.iter().map(move |&unit| Target { field, unit }.to_string())
    });
    nearest(name, names)
}

/// A column's name with case, hyphens and spaces evened out.
fn plain_name(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace(['-', ' '], "_")
}

/// The first of the nearest of these names, if one is near at all.
///
/// Near is an edit distance (a swap of neighbours counts once, case and hyphens not at all) of at
/// most 2, at most 1 for names of 5 to 7 letters, and 0 below. It is not a similarity such as
/// Jaro-Winkler, which rewards a common beginning and takes `output_tokens_per_s` for
/// `output_tokens`.
///
/// # Examples
///
/// ```
/// use serving_io::columns::nearest;
///
/// let fields = ["prefill_tokens", "decodes"];
/// assert_eq!(nearest("prefill_token", fields), Some("prefill_tokens"));
/// assert_eq!(nearest("tokens", fields), None);
/// ```
pub fn nearest<S: AsRef<str>>(name: &str, names: impl IntoIterator<Item = S>) -> Option<S> {
    let plain = plain_name(name);
    let mut best: Option<(usize, S)> = None;
    for right in names {
        let most = match right.as_ref().len() {
            0..=4 => 0,
            5..=7 => 1,
            _ => 2,
        };
        let distance = strsim::osa_distance(&plain, right.as_ref());
        if distance <= most && best.as_ref().is_none_or(|(d, _)| distance < *d) {
            best = Some((distance, right));
        }
    }
    best.map(|(_, right)| right)
}

/// The two sides of an item of a map, `FIELD=COLUMN`; what follows the first `=` is the column.
///
/// # Errors
///
/// [`IoError::MapSyntax`] if either side is empty or there is no `=`.
pub(crate) fn sides(item: &str) -> Result<(&str, &str)> {
    item.split_once('=')
        .map(|(f, c)| (f.trim(), c.trim()))
        .filter(|(f, c)| !f.is_empty() && !c.is_empty())
        .ok_or_else(|| IoError::MapSyntax { item: shown(item) })
}

/// Which column holds which field.
///
/// Empty by default: then the columns that have a field's name are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnMap {
    items: Vec<(Target, String)>,
}

impl ColumnMap {
    /// A map from its items `FIELD=COLUMN`. What follows the first `=` is the column's name.
    ///
    /// # Errors
    ///
    /// [`IoError::MapSyntax`] for an item without two sides, [`IoError::MapField`] for a left side
    /// that is no field, [`IoError::MapTwice`] for a field with two columns.
    ///
    /// # Examples
    ///
    /// ```
    /// use serving_io::ColumnMap;
    ///
    /// let map = ColumnMap::parse(["ttft_ms=first token (ms)", "output_tokens=n"])?;
    /// assert_eq!(map.items().len(), 2);
    /// assert!(ColumnMap::parse(["ttft=x"]).is_err()); // a time needs a unit
    /// # Ok::<(), serving_io::IoError>(())
    /// ```
    pub fn parse<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut map = Self::default();
        for item in items {
            let item = item.as_ref();
            let (field, column) = sides(item)?;
            let target = Target::named(field).ok_or_else(|| IoError::MapField {
                item: shown(item),
                field: shown(field),
                valid: valid_fields(),
            })?;
            map.add(target, column, item)?;
        }
        Ok(map)
    }

    /// Adds one column; `item` is what a message shows.
    pub(crate) fn add(&mut self, target: Target, column: &str, item: &str) -> Result<()> {
        if let Some((_, other)) = self.items.iter().find(|(t, _)| t.field == target.field) {
            return Err(IoError::MapTwice {
                item: shown(item),
                field: target.field.name(),
                column: shown(other),
            });
        }
        self.items.push((target, column.to_owned()));
        Ok(())
    }

    /// The fields and their columns, in the order given.
    #[must_use]
    pub fn items(&self) -> &[(Target, String)] {
        &self.items
    }

    /// Whether nothing is mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}
