//! A file as a table of text cells: CSV, or JSON lines whose keys are the columns.

use std::fs::File;
use std::path::Path;

use serving_io::input::Input;
use serving_io::{IoError, Place};

use crate::error::{FitError, Result};
use crate::fit::point::TIME_S;

/// A table in memory.
pub(super) struct Table {
    pub name: String,
    columns: Vec<String>,
    /// The line in which each column first stands.
    lines: Vec<u64>,
    rows: Vec<(u64, Vec<String>)>,
    /// The first column or key that is there twice.
    repeated: Option<IoError>,
}

/// One row of a table.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    table: &'a Table,
    /// Its line in the file.
    pub line: u64,
    cells: &'a [String],
}

impl Table {
    /// Reads a file; none if it is no table: a JSON document, or metrics of an engine.
    pub fn read(path: &Path, name: &str) -> Result<Option<Self>> {
        let unreadable = |e: &std::io::Error| {
            let at = Box::new(Place::file(name));
            FitError::Io(IoError::Unreadable { at, reason: e.to_string() })
        };
        let file = File::open(path).map_err(|e| unreadable(&e))?;
        let input = Input::new(name, file)?;
        let first = input.head.first_line().trim_start().to_owned();
        if first.starts_with('[') || first.starts_with('#') {
            return Ok(None);
        }
        let json = first.starts_with('{');
        if json && !first.trim_end().ends_with('}') {
            return Ok(None);
        }
        let text = input.into_text()?;
        let text = text.trim_start_matches('\u{feff}');
        if json { Self::json_lines(name, text) } else { Self::csv(name, text).map(Some) }
    }

    fn csv(name: &str, text: &str) -> Result<Self> {
        let header = text.lines().find(|l| !l.trim().is_empty()).unwrap_or("");
        let count = |b: u8| header.bytes().filter(|&x| x == b).count();
        let delimiter = [b';', b'\t', b','].into_iter().max_by_key(|&d| count(d)).unwrap_or(b',');
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            // A carriage return goes with the spaces around a cell; as a line end for the parser
            // it would make the lines count one short.
            .terminator(csv::Terminator::Any(b'\n'))
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let row_error =
            |line: u64, problem: String| FitError::Row { file: name.to_owned(), line, problem };
        let columns: Vec<String> = reader
            .headers()
            .map_err(|e| row_error(1, e.to_string()))?
            .iter()
            .map(str::to_owned)
            .collect();
        let above = text.lines().take_while(|l| l.trim().is_empty()).count() as u64;
        let twice = (0..columns.len())
            .find(|&i| columns[..i].contains(&columns[i]) && !columns[i].is_empty());
        let repeated = twice.map(|i| IoError::Repeated {
            at: Box::new(Place::line(name, above + 1).key(columns[i].clone())),
        });
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|e| {
                let line = e.position().map_or(1, csv::Position::line);
                row_error(line, e.to_string())
            })?;
            let line = record.position().map_or(1, csv::Position::line);
            if record.len() != columns.len() {
                let problem =
                    format!("{} cells, expected {} as in the header", record.len(), columns.len());
                return Err(row_error(line, problem));
            }
            rows.push((line, record.iter().map(str::to_owned).collect()));
        }
        let lines = vec![above + 1; columns.len()];
        Ok(Self { name: name.to_owned(), columns, lines, rows, repeated })
    }

    /// JSON lines; none if a line is no object of plain values, as in a result of a benchmark.
    fn json_lines(name: &str, text: &str) -> Result<Option<Self>> {
        let mut columns: Vec<String> = Vec::new();
        let mut lines = Vec::new();
        let mut rows = Vec::new();
        let mut repeated = None;
        for (line, content) in (1_u64..).zip(text.lines()).filter(|(_, l)| !l.trim().is_empty()) {
            let object: serde_json::Map<String, serde_json::Value> =
                match serde_json::from_str(content) {
                    Ok(object) => object,
                    Err(_) if rows.is_empty() => return Ok(None),
                    Err(e) => {
                        let file = name.to_owned();
                        return Err(FitError::Row { file, line, problem: e.to_string() });
                    }
                };
            if let Err(e @ IoError::Repeated { .. }) =
                serving_io::json_value(name, line - 1, content)
            {
                repeated.get_or_insert(e);
            }
            let mut cells = vec![String::new(); columns.len()];
            for (key, value) in object {
                let cell = match value {
                    serde_json::Value::Null => String::new(),
                    serde_json::Value::String(text) => text,
                    // Not their text: a request log has long lists.
                    serde_json::Value::Array(_) => "a list".to_owned(),
                    serde_json::Value::Object(_) => "an object".to_owned(),
                    other => other.to_string(),
                };
                if let Some(i) = columns.iter().position(|c| *c == key) {
                    cells[i] = cell;
                } else {
                    columns.push(key);
                    lines.push(line);
                    cells.push(cell);
                }
            }
            rows.push((line, cells));
        }
        Ok(Some(Self { name: name.to_owned(), columns, lines, rows, repeated }))
    }

    /// Where a column stands.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c == name)
    }

    /// Whether all of these columns are there.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|n| self.column(n).is_some())
    }

    /// The columns with the line in which each first stands.
    pub fn columns(&self) -> impl Iterator<Item = (&str, u64)> {
        self.columns.iter().map(String::as_str).zip(self.lines.iter().copied())
    }

    /// The columns, for a message.
    pub fn shown_columns(&self) -> String {
        let mut shown = String::new();
        for column in self.columns.iter().take(12) {
            if !shown.is_empty() {
                shown.push_str(", ");
            }
            shown.push_str(&column.escape_debug().to_string());
        }
        if 12 < self.columns.len() {
            shown.push_str(", …");
        }
        shown
    }

    /// Refuses a table in which a column or a key is there twice: one of the two would be lost.
    pub fn refuse_repeated(&mut self) -> Result<()> {
        self.repeated.take().map_or(Ok(()), |e| Err(e.into()))
    }

    /// The rows, each with its line.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|(line, cells)| Row { table: self, line: *line, cells })
    }
}

impl Row<'_> {
    /// A cell; empty where the row has none.
    pub fn text(&self, column: &str) -> &str {
        let i = self.table.column(column);
        i.and_then(|i| self.cells.get(i)).map_or("", String::as_str)
    }

    /// A number of at least zero.
    pub fn number(&self, column: &str) -> Result<f64> {
        self.checked(column, "a number of at least 0", |x| 0.0 <= x)
    }

    /// A number above zero.
    pub fn positive(&self, column: &str) -> Result<f64> {
        self.checked(column, "a number above 0", |x| 0.0 < x)
    }

    /// A time in seconds, from a column of which `per_second` units make one.
    pub fn seconds(&self, column: &str, per_second: f64) -> Result<f64> {
        let time = self.positive(column)? / per_second;
        let expected = "a time from 1e-12 s to 1e6 s";
        self.checked(column, expected, |_| TIME_S.0 <= time && time <= TIME_S.1)?;
        Ok(time)
    }

    fn checked(
        &self,
        column: &str,
        expected: &'static str,
        good: impl Fn(f64) -> bool,
    ) -> Result<f64> {
        let text = self.text(column);
        text.parse::<f64>().ok().filter(|x| x.is_finite() && good(*x)).ok_or_else(|| {
            let found: String = text.chars().take(40).flat_map(char::escape_debug).collect();
            FitError::Value {
                file: self.table.name.clone(),
                line: self.line,
                column: column.to_owned(),
                found: if found.is_empty() { "nothing".to_owned() } else { format!("`{found}`") },
                expected,
            }
        })
    }

    /// Where it stands, for a message.
    pub fn place(&self) -> String {
        let file = Path::new(&self.table.name);
        let short = file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        format!("{short} line {}", self.line)
    }

    /// The group: the cells of these columns that are not empty.
    pub fn group(&self, by: &[String], otherwise: &[&str]) -> String {
        let cells: Vec<&str> = if by.is_empty() {
            otherwise.iter().map(|c| self.text(c)).collect()
        } else {
            by.iter().map(|c| self.text(c)).collect()
        };
        cells.into_iter().filter(|c| !c.is_empty()).collect::<Vec<_>>().join(" ")
    }
}
