//! Where results go, and in which form.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use capacity::PlanError;
use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// The form of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For reading.
    #[default]
    Text,
    /// One object with `schema_version`; units end the key names.
    Json,
    /// One line a figure.
    Csv,
    /// A table for a page or an issue.
    Md,
}

/// How a result is written.
#[derive(clap::Args, Clone, Debug)]
pub struct Output {
    /// Form of the result.
    #[arg(long, value_enum, default_value_t, global = true)]
    pub format: Format,
    /// Write the result to a file instead of standard output, which is `-`.
    #[arg(short, long, value_name = "FILE", global = true)]
    pub output: Option<PathBuf>,
}

impl Output {
    /// The file of the result, if it does not go to standard output.
    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|o| o.as_os_str() != "-")
    }

    /// What is left for standard output once the result went where it was asked to go.
    pub fn deliver(&self, text: String) -> Result<String> {
        match self.file() {
            Some(path) => {
                std::fs::write(path, text)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                Ok(String::new())
            }
            None => Ok(text),
        }
    }
}

/// A text of a file as it may stand in a line: a control character could move the cursor, change
/// the colours or break a table, and is written as its escape.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Whether two names lead to one file, through links of either kind.
pub fn same_file(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if let (Ok(a), Ok(b)) = (std::fs::metadata(a), std::fs::metadata(b)) {
            return (a.dev(), a.ino()) == (b.dev(), b.ino());
        }
    }
    // One of them, or neither, is there yet.
    match (destination(a), destination(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Where a file would be written under this name, through links whose target is not there yet;
/// `None` where nothing can be written.
fn destination(path: &Path) -> Option<PathBuf> {
    /// As many links as Linux follows.
    const MOST_LINKS: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let directory = path.parent()?;
        // The directory of a bare name is the current one.
        let here = Path::new(".");
        let directory = if directory.as_os_str().is_empty() { here } else { directory };
        let place = directory.canonicalize().ok()?.join(path.file_name()?);
        match std::fs::read_link(&place) {
            Ok(target) => path = place.parent()?.join(target),
            Err(_) => return Some(place),
        }
    }
    None
}

/// Whether a file is one of those that are read where `input` is a directory: what a tool left there,
/// kernel tables, or the configuration of a model.
fn is_read_in(input: &Path, file: &Path) -> bool {
    if !input.is_dir() || !file.is_file() {
        return false;
    }
    let Some(name) = file.file_name().and_then(|name| name.to_str()) else { return false };
    let is_read = serving_io::artifacts::may_be_read(name)
        || capacity::fit::sources::is_kernel_table(name)
        || name == "config.json";
    is_read && same_file(&input.join(name), file)
}

/// Refuses to write over what is read, twice into one file, or into a file called `-`; outputs come
/// with their option.
pub fn check_outputs(inputs: &[PathBuf], outputs: &[(&str, Option<&Path>)]) -> Result<()> {
    let outputs: Vec<(&str, &Path)> =
        outputs.iter().filter_map(|&(option, file)| Some((option, file?))).collect();
    for (i, &(option, file)) in outputs.iter().enumerate() {
        if file.as_os_str() == "-" {
            bail!("{option} -: name a file; the result goes to standard output by itself");
        }
        if inputs.iter().any(|input| same_file(input, file) || is_read_in(input, file)) {
            bail!("{option} {}: is an input file, name another one", file.display());
        }
        let earlier = outputs.get(..i).unwrap_or_default();
        if let Some((other, _)) = earlier.iter().find(|(_, f)| same_file(f, file)) {
            bail!("{other} and {option} both name {}: the second would overwrite", file.display());
        }
    }
    Ok(())
}

/// A table without borders: the first column to the left, the others to the right.
pub fn plain_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row.clone());
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if 0 < i {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A Markdown table.
pub fn markdown_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let escape = |cell: &String| one_line(cell).replace('|', "\\|");
    let mut text = line(header.iter().map(|&h| h.to_owned()).collect());
    text.push_str(&line(
        header
            .iter()
            .enumerate()
            .map(|(i, _)| if i == 0 { "---" } else { "---:" }.to_owned())
            .collect(),
    ));
    for row in rows {
        text.push_str(&line(row.iter().map(escape).collect()));
    }
    text
}

/// Rows as CSV.
pub fn csv_text(header: &[&str], rows: &[Vec<String>]) -> Result<String> {
    csv_stream(header, rows)
}

/// Rows as CSV that need not be there at the same time.
pub fn csv_stream<R>(header: &[&str], rows: impl IntoIterator<Item = R>) -> Result<String>
where
    R: IntoIterator,
    R::Item: AsRef<[u8]>,
{
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(header)?;
    for row in rows {
        writer.write_record(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// A JSON document with a final newline.
pub fn json_text(value: &serde_json::Value) -> Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// A table for reading, or for a page.
pub fn table(header: &[&str], rows: &[Vec<String>], md: bool) -> String {
    if md { markdown_table(header, rows) } else { plain_table(header, rows) }
}

/// Every value of a document as a line of CSV: where it stands, and what it is.
pub fn csv_of_json(value: &serde_json::Value) -> Result<String> {
    fn walk(at: &str, value: &serde_json::Value, rows: &mut Vec<Vec<String>>) {
        use serde_json::Value;
        let below = |name: &str| {
            if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
        };
        match value {
            Value::Object(map) => map.iter().for_each(|(name, v)| walk(&below(name), v, rows)),
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, v)| walk(&below(&i.to_string()), v, rows));
            }
            Value::Null => rows.push(vec![at.to_owned(), String::new()]),
            Value::String(text) => rows.push(vec![at.to_owned(), text.clone()]),
            other => rows.push(vec![at.to_owned(), other.to_string()]),
        }
    }
    let mut rows = Vec::new();
    walk("", value, &mut rows);
    csv_text(&["figure", "value"], &rows)
}

/// An error of a plan, a setting or a cost, with the flag of the input where it has one.
pub fn in_flags(error: &PlanError) -> anyhow::Error {
    let flag = |input: &str| format!("--{}", input.replace([' ', '_'], "-"));
    match error {
        PlanError::Bounds { input, .. } => anyhow!("{}: {error}", flag(input)),
        PlanError::Input { input, problem } => anyhow!("{}: {problem}", flag(input)),
        other => anyhow!("{other}"),
    }
}
