//! Reading the reference tables, and the worst error over one.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test's helpers fail and report as its tests do, and not each uses all"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A row of a table, by column.
pub struct Row {
    pub line: String,
    cells: BTreeMap<String, String>,
}

impl Row {
    pub fn text(&self, column: &str) -> &str {
        self.cells.get(column).map_or_else(|| panic!("no column {column}"), String::as_str)
    }

    /// The number in a column; `None` where it is empty, which means undefined.
    pub fn get(&self, column: &str) -> Option<f64> {
        match self.text(column) {
            "" => None,
            text => Some(text.parse().unwrap_or_else(|e| panic!("{column} {text}: {e}"))),
        }
    }

    pub fn number(&self, column: &str) -> f64 {
        self.get(column).unwrap_or_else(|| panic!("{column} is empty in {}", self.line))
    }

    /// A whole number, written with or without a decimal point.
    pub fn count(&self, column: &str) -> u64 {
        self.number(column) as u64
    }
}

/// The rows of the excerpt in this crate, and of the whole table if it is at hand.
pub fn rows(name: &str) -> Vec<Row> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut rows = read(&crate_dir.join("tests/data").join(name));
    let data = std::env::var_os("GOODPUT_DATA")
        .map_or_else(|| crate_dir.join("../../../shared/data"), PathBuf::from);
    let whole = data.join("queueing").join(name);
    if whole.is_file() {
        rows.extend(read(&whole));
    } else {
        // Written past the test runner's capture, so that a plain run shows it.
        let _ = writeln!(
            std::io::stderr(),
            "only the excerpt of {name}: {} is not there (set GOODPUT_DATA)",
            whole.display()
        );
    }
    assert!(!rows.is_empty(), "{name} holds no row");
    rows
}

fn read(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| Row {
            line: line.to_owned(),
            cells: columns
                .iter()
                .zip(line.split(','))
                .map(|(c, v)| ((*c).into(), v.into()))
                .collect(),
        })
        .collect()
}

/// The worst relative error of each quantity of a table.
#[derive(Default)]
pub struct Worst {
    found: BTreeMap<String, (f64, String)>,
}

impl Worst {
    /// Compares with the table's column of the same name.
    pub fn see(&mut self, row: &Row, column: &str, got: f64) {
        self.compare(row, column, got, row.number(column), 0.0);
    }

    /// As `see`, without what the input's rounding allows.
    pub fn compare(&mut self, row: &Row, what: &str, got: f64, want: f64, allowed: f64) {
        assert!(!got.is_nan(), "{what} is NaN in {}", row.line);
        let entry = self.found.entry(what.to_owned()).or_default();
        if got.total_cmp(&want).is_eq() {
            return;
        }
        // A subnormal number has fewer digits: half its unit is no fault.
        let allowed = allowed.max(f64::from_bits(1));
        let excess = (got - want).abs() - allowed;
        let error = if excess <= 0.0 { 0.0 } else { excess / want.abs() };
        if entry.0 < error || error.is_nan() {
            *entry = (error, format!("{got:e} for {want:e} in {}", row.line));
        }
    }

    pub fn judge(self, bound: f64) {
        assert!(!self.found.is_empty(), "nothing was compared");
        let mut faults = Vec::new();
        for (what, (error, at)) in self.found {
            println!("{what:<20} worst {error:.1e} (bound {bound:.0e})");
            if bound < error || error.is_nan() {
                faults.push(format!("{what}: {error:e} at {at}"));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
