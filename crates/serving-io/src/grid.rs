//! A CSV table of a known layout: cells by the names of their columns, and rows put into runs.

use std::collections::HashMap;

use metrics_core::timeline::{LARGEST_TOKENS, TimelineFields};
use metrics_core::{Instant, RequestTimeline};

use crate::csv_table::{CsvTable, header_cells};
use crate::decimal::scaled;
use crate::error::{IoError, Result, Spot, input_of, shown};
use crate::input::{Head, Input};
use crate::json::{COUNT, whole};
use crate::run::{Column, Run, Tool, Values};

/// Whether the header of a file has all these columns.
pub(crate) fn has_columns(head: &Head, columns: &[&str]) -> bool {
    let line = head.first_line();
    // JSON is no header, and a header without the first column needs no parsing.
    if line.trim_start().starts_with(['{', '['])
        || columns.first().is_none_or(|c| !line.contains(c))
    {
        return false;
    }
    let cells = header_cells(line);
    columns.iter().all(|c| cells.iter().any(|cell| cell == c))
}

/// The rows of the table, one at a time.
pub(crate) struct Grid {
    table: CsvTable,
    indexes: HashMap<String, usize>,
    line: u64,
}

impl Grid {
    /// Reads the header.
    pub(crate) fn open(input: Input) -> Result<Self> {
        let table = CsvTable::open(input)?;
        let mut indexes = HashMap::new();
        for column in table.columns() {
            if let Some(index) = table.index_of(column)? {
                indexes.insert(column.clone(), index);
            }
        }
        Ok(Self { table, indexes, line: 0 })
    }

    /// Goes to the next row; whether there is one.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let Some(line) = self.table.advance()? else { return Ok(false) };
        self.line = line;
        Ok(true)
    }

    /// The line of the row.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The columns of the header.
    pub(crate) fn columns(&self) -> &[String] {
        self.table.columns()
    }

    /// Whether there is such a column.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.indexes.contains_key(column)
    }

    fn spot<'a>(&'a self, column: &'a str) -> Spot<'a> {
        Spot::line(self.table.name(), self.line).key(column)
    }

    /// The error of a cell.
    pub(crate) fn wrong(&self, column: &str, found: &str, expected: &str) -> IoError {
        let found =
            if found.is_empty() { "nothing".to_owned() } else { format!("`{}`", shown(found)) };
        IoError::Value { at: self.spot(column).place(), found, expected: expected.to_owned() }
    }

    /// The text of a cell; none if it is empty or the column is not there.
    pub(crate) fn text(&self, column: &str) -> Result<Option<&str>> {
        let Some(&index) = self.indexes.get(column) else { return Ok(None) };
        let text = self.table.cell(self.line, index)?;
        Ok((!text.is_empty()).then_some(text))
    }

    /// The finite number in a cell.
    pub(crate) fn number(&self, column: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(column)? else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|x| x.is_finite());
        number.map(Some).ok_or_else(|| self.wrong(column, text, "a finite number, or nothing"))
    }

    /// The count in a cell, also as a decimal (`12.0`).
    pub(crate) fn count(&self, column: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(column)? else { return Ok(None) };
        let count = match text.parse::<u64>() {
            Ok(n) => Some(n).filter(|&n| n <= LARGEST_TOKENS),
            Err(_) => text.parse().ok().and_then(whole),
        };
        count.map(Some).ok_or_else(|| self.wrong(column, text, COUNT))
    }

    /// The instant in a cell, in units of 10^-`places` s, to the picosecond.
    pub(crate) fn instant(&self, column: &str, places: i32) -> Result<Option<Instant>> {
        let Some(text) = self.text(column)? else { return Ok(None) };
        let picoseconds = scaled(text, 12 - places).map(Instant::Picoseconds);
        picoseconds
            .map(Some)
            .ok_or_else(|| self.wrong(column, text, "a number of at least 0, or nothing"))
    }

    /// The same as [`Grid::number`], where the value is needed.
    pub(crate) fn needed(&self, column: &str) -> Result<f64> {
        self.number(column)?.ok_or_else(|| self.wrong(column, "", "a finite number"))
    }

    /// Checks the fields of the row; `key` says which column holds a field.
    pub(crate) fn timeline(
        &self,
        fields: TimelineFields,
        key: impl Fn(&str) -> &'static str,
    ) -> Result<RequestTimeline> {
        RequestTimeline::new(fields).map_err(|source| {
            let key = key(input_of(&source).unwrap_or(""));
            IoError::Request { at: self.spot(key).place(), source, note: " (in seconds)" }
        })
    }
}

/// Runs by the values of some columns, in the order in which they come up.
pub(crate) struct Runs {
    tool: &'static str,
    by: &'static [&'static str],
    index: HashMap<Vec<String>, usize>,
    /// The runs so far.
    pub(crate) list: Vec<Run>,
}

impl Runs {
    /// No run yet.
    pub(crate) fn new(tool: &'static str, by: &'static [&'static str]) -> Self {
        Self { tool, by, index: HashMap::new(), list: Vec::new() }
    }

    /// The number of the run to which the row belongs.
    pub(crate) fn of(&mut self, grid: &Grid) -> Result<usize> {
        let mut key = Vec::with_capacity(self.by.len());
        for column in self.by {
            key.push(grid.text(column)?.unwrap_or("").to_owned());
        }
        if let Some(&i) = self.index.get(&key) {
            return Ok(i);
        }
        let i = self.list.len();
        let tool = Tool { name: self.tool.to_owned(), ..Tool::default() };
        let mut run = Run { line: grid.line(), tool, ..Run::default() };
        for (column, value) in self.by.iter().zip(&key) {
            if !value.is_empty() {
                run.declared.metadata.push(((*column).to_owned(), value.clone()));
            }
        }
        self.index.insert(key, i);
        self.list.push(run);
        Ok(i)
    }
}

/// Adds a value to a column of numbers, which is made with the first one.
pub(crate) fn add_number(run: &mut Run, name: &str, value: Option<f64>) {
    match run.columns.iter_mut().find(|c| c.name == name) {
        Some(Column { values: Values::Number(values), .. }) => values.push(value),
        Some(_) => {}
        None => {
            run.columns.push(Column { name: name.to_owned(), values: Values::Number(vec![value]) });
        }
    }
}

/// Adds a value to a column of texts, which is made with the first one.
pub(crate) fn add_text(run: &mut Run, name: &str, value: Option<String>) {
    match run.columns.iter_mut().find(|c| c.name == name) {
        Some(Column { values: Values::Text(values), .. }) => values.push(value),
        Some(_) => {}
        None => {
            run.columns.push(Column { name: name.to_owned(), values: Values::Text(vec![value]) });
        }
    }
}
