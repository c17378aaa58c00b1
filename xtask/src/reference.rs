//! `cargo xtask reference queueing DIR`: the queueing models against tables of reference values.
//!
//! A table is a CSV file of a known name: inputs that are doubles as `repr` prints them, and values
//! to some 25 digits. Any grid will do. The checks stand in `finite` (Markov chains with a finite
//! description: Erlang, M/M/c and its relatives, inverse problems) and `general` (general service
//! or arrivals, batches, disciplines).

mod finite;
mod general;

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use queueing::QueueError;

/// One known table: its file name without `.csv`, and what compares its rows with the models.
pub struct Family {
    pub table: &'static str,
    pub check: fn(&Table) -> Result<Vec<Worst>>,
}

/// A table as read.
pub struct Table {
    pub rows: Vec<Row>,
}

/// A row of a table, by column.
pub struct Row {
    line: usize,
    cells: HashMap<String, String>,
}

impl Row {
    /// The text in a column.
    pub fn text(&self, column: &str) -> Result<&str> {
        let cell = self.cells.get(column);
        Ok(cell.with_context(|| format!("line {}: there is no column {column}", self.line))?)
    }

    /// The value in a column; `None` where it is empty, which means undefined.
    pub fn get<T: FromStr<Err: Display>>(&self, column: &str) -> Result<Option<T>> {
        let text = self.text(column)?;
        if text.is_empty() {
            return Ok(None);
        }
        let value = text.parse();
        Ok(Some(value.map_err(|e| anyhow!("line {}: {column} {text:?}: {e}", self.line))?))
    }

    /// The number in a column that is always filled.
    pub fn number(&self, column: &str) -> Result<f64> {
        self.value(column)
    }

    /// The count in a column that is always filled.
    pub fn count(&self, column: &str) -> Result<u64> {
        self.value(column)
    }

    fn value<T: FromStr<Err: Display>>(&self, column: &str) -> Result<T> {
        self.get(column)?.with_context(|| format!("line {}: {column} is empty", self.line))
    }
}

/// What a model answers: a number, or perhaps a refusal.
pub trait Outcome {
    fn outcome(self) -> Result<f64, QueueError>;
}

impl Outcome for f64 {
    fn outcome(self) -> Result<f64, QueueError> {
        Ok(self)
    }
}

impl Outcome for Result<f64, QueueError> {
    fn outcome(self) -> Result<f64, QueueError> {
        self
    }
}

/// The worst error of one quantity over a table.
pub struct Worst {
    what: String,
    bound: f64,
    seen: usize,
    error: f64,
    at: String,
}

impl Worst {
    /// A quantity, and the relative error that it may have.
    pub fn new(what: impl Into<String>, bound: f64) -> Self {
        Self { what: what.into(), bound, seen: 0, error: 0.0, at: String::new() }
    }

    /// Counts the relative error of `got`; a refusal counts as infinitely wrong.
    pub fn see(&mut self, row: &Row, got: impl Outcome, want: f64) {
        self.see_within(row, got, want, 0.0);
    }

    /// The same, with an absolute error that the row allows because of what it asks.
    pub fn see_within(&mut self, row: &Row, got: impl Outcome, want: f64, absolute: f64) {
        self.seen += 1;
        let (error, text) = match got.outcome() {
            Ok(got) if got == want => return,
            Ok(got) => {
                // A subnormal number has fewer digits: half its unit is no fault.
                let allowed = absolute.max(f64::from_bits(1));
                let excess = (got - want).abs() - allowed;
                let error = if excess <= 0.0 { 0.0 } else { excess / want.abs() };
                (error, format!("{got:e} for {want:e}"))
            }
            Err(e) => (f64::INFINITY, e.to_string()),
        };
        self.record(row, error, &text);
    }

    /// Counts an exact comparison: any difference is infinitely wrong.
    pub fn see_exact<T: PartialEq + Display>(&mut self, row: &Row, got: &T, want: &T) {
        self.seen += 1;
        if got != want {
            self.record(row, f64::INFINITY, &format!("{got} for {want}"));
        }
    }

    fn record(&mut self, row: &Row, error: f64, text: &str) {
        // NaN compares with nothing, and must not pass for that.
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if self.error < error {
            self.error = error;
            self.at = format!("line {}: {text}", row.line);
        }
    }

    fn is_within(&self) -> bool {
        self.error <= self.bound
    }
}

impl Display for Worst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, bound, seen, error, at } = self;
        let mark = if self.is_within() { ' ' } else { '!' };
        write!(
            f,
            " {mark} {what:<24} {seen:>5} rows  worst {error:.1e} (bound {bound:.0e})  {at}"
        )?;
        Ok(())
    }
}

/// Files of such a folder that hold no numbers to compute.
const NO_TABLES: &[&str] = &["published_checks"];

/// What the comparison of a folder found.
pub struct Comparison {
    /// Per table and quantity: rows, worst relative error and where.
    pub text: String,
    /// The tables that are out of bounds.
    pub out: Vec<String>,
}

/// Compares every table of a known name in the folder `dir`.
pub fn queueing(dir: &Path) -> Result<Comparison> {
    let mut names = Vec::new();
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "csv")
            && let Some(name) = path.file_stem().and_then(|s| s.to_str())
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    let (mut text, mut out, mut known) = (String::new(), Vec::new(), 0);
    for name in names {
        if NO_TABLES.contains(&name.as_str()) {
            continue;
        }
        let families = || finite::TABLES.iter().chain(general::TABLES);
        let Some(family) = families().find(|f| f.table == name) else {
            text += &format!("{name}: no check is known for it\n");
            continue;
        };
        known += 1;
        let table = read(&dir.join(format!("{name}.csv")))?;
        let quantities = (family.check)(&table).with_context(|| format!("{name}.csv"))?;
        text += &format!("{name}: {} rows\n", table.rows.len());
        for worst in &quantities {
            text += &format!("{worst}\n");
        }
        if !quantities.iter().all(Worst::is_within) {
            out.push(name);
        }
    }
    if known == 0 {
        bail!("{} holds no table of a known name", dir.display());
    }
    Ok(Comparison { text, out })
}

fn read(path: &Path) -> Result<Table> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let mut lines = text.lines().enumerate();
    let (_, head) = lines.next().with_context(|| format!("{shown} is empty"))?;
    let columns: Vec<&str> = head.split(',').collect();
    let mut rows = Vec::new();
    for (i, line) in lines {
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() != columns.len() {
            bail!("{shown}:{}: {} cells for {} columns", i + 1, cells.len(), columns.len());
        }
        let cells = columns.iter().zip(cells).map(|(c, v)| ((*c).into(), v.into())).collect();
        rows.push(Row { line: i + 1, cells });
    }
    Ok(Table { rows })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn within(dir: &Path) {
        let found = queueing(dir).unwrap();
        println!("{}", found.text);
        assert!(found.out.is_empty(), "out of bounds: {:?}\n{}", found.out, found.text);
    }

    #[test]
    fn excerpts_of_the_tables_are_within_bounds() {
        within(&crate::repo::root().join("crates/queueing/tests/data"));
    }

    #[test]
    fn whole_tables_are_within_bounds_where_they_are_at_hand() {
        let data = std::env::var_os("GOODPUT_DATA")
            .map_or_else(|| crate::repo::root().join("../shared/data"), PathBuf::from);
        let dir = data.join("queueing");
        if dir.is_dir() {
            within(&dir);
        } else {
            eprintln!("only the excerpts: {} is not there (set GOODPUT_DATA)", dir.display());
        }
    }

    #[test]
    fn a_folder_without_tables_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(queueing(dir.path()).is_err());
    }

    #[test]
    fn nan_and_refusals_are_out_of_bounds() {
        let row = Row { line: 2, cells: HashMap::new() };
        for got in [Ok(f64::NAN), Ok(1.1), Err(QueueError::Unstable { rho: 2.0 })] {
            let mut worst = Worst::new("x", 1e-3);
            worst.see(&row, got, 1.0);
            assert!(!worst.is_within());
        }
        let mut worst = Worst::new("x", 1e-3);
        worst.see(&row, 1.0 + 1e-4, 1.0);
        assert!(worst.is_within() && worst.to_string().contains("line 2"));
    }
}
