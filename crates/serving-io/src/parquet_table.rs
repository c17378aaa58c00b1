//! Any request log as a Parquet table, with the column map of the [generic readers](crate::generic).
//!
//! Needs the feature `parquet`; a build without it says so. Told by the first four bytes, `PAR1`.
//!
//! Only the columns that the map names, or whose names are fields, are decoded. They are numbers,
//! texts, truth values or timestamps at the top level; the rules for values and outcomes are those
//! of the [generic readers](crate::generic), and null is unknown. A row is named by its number from
//! 1 where a text file has a line.
//!
//! # What is decided here
//!
//! - **A timestamp** has its unit in the file. It has to be the unit of the field to which it is
//!   mapped, so that microseconds do not pass for milliseconds.
//! - **A float of 32 bits** is read as the shortest decimal that gives it back.
//! - The packed file is held in memory; rows are decoded one at a time. Uncompressed, Snappy, gzip
//!   and LZ4 pages are read, and Zstandard with the feature `zstd`.

use crate::detect::{Format, Options, Reader};
use crate::error::{IoError, Place, Result};
use crate::input::{Head, Input};
use crate::rows::Stream;
use crate::run::Run;

/// The reader of Parquet.
#[derive(Clone, Copy, Debug)]
pub struct GenericParquet;

impl Reader for GenericParquet {
    fn format(&self) -> Format {
        Format::GenericParquet
    }

    fn recognizes(&self, head: &Head, _: &Options) -> bool {
        head.parquet
    }

    fn read(&self, input: Input, options: &Options) -> Result<Vec<Run>> {
        check(&input)?;
        rows::read(input, options, None)
    }

    fn stream(&self, input: Input, options: &Options, to: &mut Stream<'_>) -> Result<Vec<Run>> {
        check(&input)?;
        rows::read(input, options, Some(to))
    }
}

/// Refuses what does not begin as a Parquet file.
fn check(input: &Input) -> Result<()> {
    if input.head.parquet {
        return Ok(());
    }
    Err(IoError::Value {
        at: Box::new(Place::file(&input.name)),
        found: "other bytes at its beginning".to_owned(),
        expected: "`PAR1`, with which a Parquet file begins".to_owned(),
    })
}

#[cfg(not(feature = "parquet"))]
mod rows {
    use super::{Input, IoError, Options, Place, Result, Run, Stream};

    #[expect(clippy::needless_pass_by_value, reason = "as the reader with the feature")]
    pub(super) fn read(input: Input, _: &Options, _: Option<&mut Stream<'_>>) -> Result<Vec<Run>> {
        Err(IoError::Compression {
            at: Box::new(Place::file(&input.name)),
            found: "is a Parquet file, which this build cannot read".to_owned(),
            expected: "CSV or JSON lines, or a build with the feature `parquet`".to_owned(),
        })
    }
}

#[cfg(feature = "parquet")]
mod rows {
    use std::borrow::Cow;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
    use parquet::errors::ParquetError;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field as Value;
    use parquet::record::reader::RowIter;
    use parquet::schema::types::Type;

    use super::{Input, IoError, Options, Place, Result, Run, Stream};
    use crate::columns::{Field, Target, TimeUnit};
    use crate::error::{Spot, columns_shown, shown};
    use crate::generic::{
        Cell, Cells, Decided, Keep, RowReader, Slot, Slots, Source, hold, map_by_names, pass_on,
    };
    use crate::rows::Row;

    /// Reads all rows into one run, or into `to` if there is one.
    pub(super) fn read(
        input: Input,
        options: &Options,
        to: Option<&mut Stream<'_>>,
    ) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let bytes = bytes::Bytes::from(input.into_bytes()?);
        // The decoder is not ours: a panic in it on damaged bytes is an error, too.
        let run = || {
            let file = SerializedFileReader::new(bytes).map_err(|e| damaged(&name, None, &e))?;
            let names: Vec<String> = file
                .metadata()
                .file_metadata()
                .schema()
                .get_fields()
                .iter()
                .map(field_name)
                .collect();
            let rows = ParquetRows::new(&name, &file, names, options)?;
            match to {
                Some(to) => pass_on(&name, rows, to),
                None => hold(&name, rows),
            }
        };
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            let why = ParquetError::General("its pages cannot be decoded".to_owned());
            Err(damaged(&name, None, &why))
        })
    }

    fn field_name(field: &Arc<Type>) -> String {
        field.name().to_owned()
    }

    /// What the decoder says, as one line.
    fn damaged(name: &str, row: Option<u64>, e: &ParquetError) -> IoError {
        let at = row.map_or_else(|| Place::file(name), |row| Place::line(name, row));
        let reason = format!("not a sound Parquet file ({})", shown(&e.to_string()));
        IoError::Unreadable { at: Box::new(at), reason }
    }

    /// The rows of a table, of which only the mapped columns are decoded.
    struct ParquetRows<'a> {
        name: &'a str,
        iter: RowIter<'a>,
        slots: Slots,
        /// The fields in the order of the decoded columns.
        fields: Vec<Vec<Field>>,
        unread: Vec<String>,
        row: u64,
        decided: Decided,
    }

    impl<'a> ParquetRows<'a> {
        fn new(
            name: &'a str,
            file: &'a dyn FileReader,
            names: Vec<String>,
            options: &Options,
        ) -> Result<Self> {
            let by_name = options.map.is_empty();
            let map = if by_name { map_by_names(name, 1, &names)? } else { options.map.clone() };
            let schema = file.metadata().file_metadata().schema();
            let mut slots = Slots::default();
            for (target, column) in map.items() {
                let place = || Box::new(Place::file(name).key(column.clone()));
                let mut found = schema.get_fields().iter().filter(|f| f.name() == column);
                let Some(field) = found.next() else {
                    return Err(IoError::MissingColumn {
                        at: place(),
                        known: columns_shown(&names),
                    });
                };
                if found.next().is_some() {
                    return Err(IoError::Repeated { at: place() });
                }
                if let Err((found, expected)) = readable(field, *target) {
                    return Err(IoError::Value { at: place(), found, expected });
                }
                slots.set(Slot { target: *target, column: column.clone() });
            }
            let wanted: Vec<Arc<Type>> = schema
                .get_fields()
                .iter()
                .filter(|f| map.items().iter().any(|(_, c)| c == f.name()))
                .cloned()
                .collect();
            let fields = wanted
                .iter()
                .map(|f| {
                    let held = map.items().iter().filter(|(_, c)| c == f.name());
                    held.map(|(t, _)| t.field).collect()
                })
                .collect();
            let unread = |c: &String| by_name && Target::named(c).is_none();
            let projection = Type::group_type_builder(schema.name()).with_fields(wanted).build();
            let iter = projection
                .and_then(|p| file.get_row_iter(Some(p)))
                .map_err(|e| damaged(name, None, &e))?;
            let unread = names.into_iter().filter(unread).collect();
            Ok(Self { name, iter, slots, fields, unread, row: 0, decided: Decided::default() })
        }
    }

    impl Source for ParquetRows<'_> {
        fn row(&mut self, keep: Keep<'_>) -> Result<Option<Row>> {
            let Some(row) = self.iter.next() else { return Ok(None) };
            self.row += 1;
            let row = row.map_err(|e| damaged(self.name, Some(self.row), &e))?;
            let spot = Spot::line(self.name, self.row);
            let mut cells: Cells<'_> = std::array::from_fn(|_| None);
            for ((column, value), fields) in row.into_columns().iter().zip(&self.fields) {
                let text = text_of(value).ok_or_else(|| IoError::Value {
                    at: spot.key(column).place(),
                    found: shown(&value.to_string()),
                    expected: "a number, a text or a timestamp".to_owned(),
                })?;
                for field in fields {
                    cells[field.slot()] = Some(Cell::Bare(Cow::Owned(text.clone())));
                }
            }
            let reader = RowReader { row: spot, slots: &self.slots, cells: &cells };
            let timeline = reader.kept(self.row, &mut self.decided, keep)?;
            Ok(Some((self.row, timeline)))
        }
        fn decided(&self) -> Decided {
            self.decided
        }
        fn slots(&self) -> &Slots {
            &self.slots
        }
        fn unread(&self) -> Vec<&str> {
            self.unread.iter().map(String::as_str).collect()
        }
        fn finish(&self) -> Result<()> {
            Ok(())
        }
    }

    /// Whether a column can hold a field, else what it is and what would be right.
    fn readable(column: &Arc<Type>, target: Target) -> Result<(), (String, String)> {
        const EXPECTED: &str = "a column of numbers, texts or timestamps";
        let wrong = |found: &str| Err((found.to_owned(), EXPECTED.to_owned()));
        let info = column.get_basic_info();
        if !column.is_primitive() || info.repetition() == Repetition::REPEATED {
            return wrong("a nested column");
        }
        let physical = column.get_physical_type();
        let sound = matches!(
            (physical, info.converted_type()),
            (Physical::BOOLEAN | Physical::FLOAT | Physical::DOUBLE, _)
                | (Physical::BYTE_ARRAY, ConvertedType::UTF8 | ConvertedType::ENUM)
                | (
                    Physical::INT32,
                    ConvertedType::NONE
                        | ConvertedType::INT_8
                        | ConvertedType::INT_16
                        | ConvertedType::INT_32
                        | ConvertedType::UINT_8
                        | ConvertedType::UINT_16
                        | ConvertedType::UINT_32
                )
                | (
                    Physical::INT64,
                    ConvertedType::NONE
                        | ConvertedType::INT_64
                        | ConvertedType::UINT_64
                        | ConvertedType::TIMESTAMP_MILLIS
                        | ConvertedType::TIMESTAMP_MICROS
                )
        );
        if !sound {
            return wrong(&format!("{physical} as {}", info.converted_type()));
        }
        let stamp = match (info.logical_type_ref(), info.converted_type()) {
            (Some(LogicalType::Timestamp(t)), _) => Some(match t.unit {
                parquet::basic::TimeUnit::MILLIS => TimeUnit::Milliseconds,
                parquet::basic::TimeUnit::MICROS => TimeUnit::Microseconds,
                parquet::basic::TimeUnit::NANOS => TimeUnit::Nanoseconds,
            }),
            (_, ConvertedType::TIMESTAMP_MILLIS) => Some(TimeUnit::Milliseconds),
            (_, ConvertedType::TIMESTAMP_MICROS) => Some(TimeUnit::Microseconds),
            _ => None,
        };
        match stamp {
            Some(unit) if !target.field.is_time() || target.unit != unit => {
                let found = format!("timestamps in {}", unit.name());
                let field = if target.field.is_time() { target.field.name() } else { "arrival" };
                Err((found, format!("them under `{field}{}`", unit.suffix())))
            }
            _ => Ok(()),
        }
    }

    /// A value as the text that a CSV cell would have; empty is unknown.
    fn text_of(value: &Value) -> Option<String> {
        Some(match value {
            Value::Null => String::new(),
            Value::Bool(b) => b.to_string(),
            Value::Byte(n) => n.to_string(),
            Value::Short(n) => n.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Long(n) | Value::TimestampMillis(n) | Value::TimestampMicros(n) => n.to_string(),
            Value::UByte(n) => n.to_string(),
            Value::UShort(n) => n.to_string(),
            Value::UInt(n) => n.to_string(),
            Value::ULong(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Double(x) => x.to_string(),
            Value::Str(s) => s.trim().to_owned(),
            _ => return None,
        })
    }
}
