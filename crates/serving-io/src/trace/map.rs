//! Which column of a trace holds which field: the left sides of `--map input_tokens=prompt`.
//!
//! | field | meaning |
//! |---|---|
//! | `arrival_s`, `_ms`, `_us`, `_ns`, `_ps` | when the request arrived, a number on any clock |
//! | `arrival` | the same as a time stamp, `2023-11-16 18:15:46.6805900` |
//! | `input_tokens`, `output_tokens` | token counts |
//! | `id` | the request's name; without it, its line |
//! | `priority` | for an order by priority, a whole number: the lowest runs first; without it, 0 |
//! | `cancel_after_s`, `_ms`, `_us`, `_ns`, `_ps` | how long after its arrival the client goes away who has not got its last token by then; without it, or empty, it stays |

use crate::columns::sides;
use crate::error::{IoError, Place, Result, columns_shown, listed, shown};

/// A field of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceField {
    /// When the request arrived.
    Arrival(ArrivalForm),
    /// Tokens of the prompt.
    InputTokens,
    /// Tokens of the answer.
    OutputTokens,
    /// The request's name.
    Id,
    /// Who runs first under an order by priority: the lowest.
    Priority,
    /// How long after its arrival the client goes away, in this unit, which is no stamp.
    CancelAfter(ArrivalForm),
}

/// How an arrival is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalForm {
    /// As a time stamp.
    Stamp,
    /// As a number of seconds.
    Seconds,
    /// As a number of milliseconds.
    Milliseconds,
    /// As a number of microseconds.
    Microseconds,
    /// As a number of nanoseconds.
    Nanoseconds,
    /// As a number of picoseconds.
    Picoseconds,
}

impl ArrivalForm {
    /// All forms.
    pub const ALL: [Self; 6] = [
        Self::Stamp,
        Self::Seconds,
        Self::Milliseconds,
        Self::Microseconds,
        Self::Nanoseconds,
        Self::Picoseconds,
    ];

    /// The field's name in this form.
    const fn field(self) -> &'static str {
        match self {
            Self::Stamp => "arrival",
            Self::Seconds => "arrival_s",
            Self::Milliseconds => "arrival_ms",
            Self::Microseconds => "arrival_us",
            Self::Nanoseconds => "arrival_ns",
            Self::Picoseconds => "arrival_ps",
        }
    }

    /// What a number counts; `None` for a stamp.
    pub(super) const fn unit(self) -> Option<&'static str> {
        match self {
            Self::Stamp => None,
            Self::Seconds => Some("seconds"),
            Self::Milliseconds => Some("milliseconds"),
            Self::Microseconds => Some("microseconds"),
            Self::Nanoseconds => Some("nanoseconds"),
            Self::Picoseconds => Some("picoseconds"),
        }
    }

    /// The unit in attoseconds, as a power of ten; a stamp is in none.
    pub(super) const fn power(self) -> i32 {
        match self {
            Self::Stamp | Self::Seconds => 18,
            Self::Milliseconds => 15,
            Self::Microseconds => 12,
            Self::Nanoseconds => 9,
            Self::Picoseconds => 6,
        }
    }
}

impl TraceField {
    /// The field of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "input_tokens" => Some(Self::InputTokens),
            "output_tokens" => Some(Self::OutputTokens),
            "id" => Some(Self::Id),
            "priority" => Some(Self::Priority),
            _ => match name.strip_prefix(CANCEL_AFTER) {
                Some(unit) => {
                    let is =
                        |form: &ArrivalForm| form.field().strip_prefix("arrival") == Some(unit);
                    let form = ArrivalForm::ALL.into_iter().find(is);
                    form.filter(|form| form.unit().is_some()).map(Self::CancelAfter)
                }
                None => ArrivalForm::ALL.into_iter().find(|a| a.field() == name).map(Self::Arrival),
            },
        }
    }

    /// The unit of a time after which a client goes away, if it is one.
    pub(super) const fn cancel_form(self) -> Option<ArrivalForm> {
        match self {
            Self::CancelAfter(form) => Some(form),
            _ => None,
        }
    }

    /// Its name without a unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arrival(_) => "arrival",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Id => "id",
            Self::Priority => "priority",
            Self::CancelAfter(_) => CANCEL_AFTER,
        }
    }
}

/// The name of the field without a unit.
const CANCEL_AFTER: &str = "cancel_after";

/// The left sides that a map can have, for messages.
#[must_use]
pub fn valid_trace_fields() -> String {
    let arrival = ["arrival_s|_ms|_us|_ns|_ps", "arrival"];
    let others =
        ["input_tokens", "output_tokens", "id", "priority", "cancel_after_s|_ms|_us|_ns|_ps"];
    listed(arrival.into_iter().chain(others))
}

/// Which column holds which field.
///
/// Empty by default: then the columns that have a field's name are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceMap {
    items: Vec<(TraceField, String)>,
}

impl TraceMap {
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
    /// use serving_io::trace::TraceMap;
    ///
    /// let map = TraceMap::parse(["arrival_ms=t", "input_tokens=prompt", "output_tokens=answer"])?;
    /// assert_eq!(map.items().len(), 3);
    /// assert!(TraceMap::parse(["ttft_ms=x"]).is_err()); // a trace has no latencies
    /// # Ok::<(), serving_io::IoError>(())
    /// ```
    pub fn parse<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut map = Self::default();
        for item in items {
            let item = item.as_ref();
            let (field, column) = sides(item)?;
            let target = TraceField::named(field).ok_or_else(|| IoError::MapField {
                item: shown(item),
                field: shown(field),
                valid: valid_trace_fields(),
            })?;
            map.add(target, column, item)?;
        }
        Ok(map)
    }

    /// Adds one column; `item` is what a message shows.
    pub(super) fn add(&mut self, field: TraceField, column: &str, item: &str) -> Result<()> {
        if let Some((_, other)) = self.items.iter().find(|(f, _)| f.name() == field.name()) {
            return Err(IoError::MapTwice {
                item: shown(item),
                field: field.name(),
                column: shown(other),
            });
        }
        self.items.push((field, column.to_owned()));
        Ok(())
    }

    /// The fields and their columns, in the order given.
    #[must_use]
    pub fn items(&self) -> &[(TraceField, String)] {
        &self.items
    }

    /// Whether nothing is mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The columns whose names are fields.
    pub(super) fn by_names<S: AsRef<str>>(columns: &[S]) -> Result<Self> {
        let mut map = Self::default();
        for column in columns.iter().map(AsRef::as_ref) {
            if let Some(field) = TraceField::named(column) {
                map.add(field, column, column)?;
            } else if column == CANCEL_AFTER {
                // Nothing would say that it is not read.
                return Err(IoError::MapField {
                    item: shown(column),
                    field: shown(column),
                    valid: valid_trace_fields(),
                });
            }
        }
        Ok(map)
    }

    /// The columns of a file.
    pub(super) fn columns<S: AsRef<str>>(&self, file: &str, known: &[S]) -> Result<Columns> {
        let of = |name: &str| self.items.iter().find(|(f, _)| f.name() == name);
        let needed = |name| of(name).ok_or_else(|| unmapped(file, name, known));
        let (arrival, column) = needed("arrival")?;
        let TraceField::Arrival(form) = *arrival else {
            return Err(unmapped(file, "arrival", known));
        };
        Ok(Columns {
            form,
            arrival: column.clone(),
            input: needed("input_tokens")?.1.clone(),
            output: needed("output_tokens")?.1.clone(),
            id: of("id").map(|(_, c)| c.clone()),
            priority: of("priority").map(|(_, c)| c.clone()),
            cancel: self.items.iter().find_map(|(f, c)| Some((f.cancel_form()?, c.clone()))),
        })
    }
}

/// What to say where no column is known for a field that every trace needs.
pub(super) fn unmapped<S: AsRef<str>>(file: &str, field: &'static str, columns: &[S]) -> IoError {
    let example = if field == "arrival" { "arrival_s" } else { field };
    IoError::Unmapped {
        at: Box::new(Place::file(file)),
        field,
        columns: columns_shown(columns),
        example,
        valid: valid_trace_fields(),
    }
}

/// The columns of one file.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub(super) form: ArrivalForm,
    pub(super) arrival: String,
    pub(super) input: String,
    pub(super) output: String,
    pub(super) id: Option<String>,
    pub(super) priority: Option<String>,
    pub(super) cancel: Option<(ArrivalForm, String)>,
}

impl Columns {
    /// Their names.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        let needed = [&self.arrival, &self.input, &self.output];
        let cancel = self.cancel.as_ref().map(|(_, column)| column);
        let optional = [self.id.as_ref(), self.priority.as_ref(), cancel];
        needed.into_iter().chain(optional.into_iter().flatten()).map(String::as_str)
    }
}
