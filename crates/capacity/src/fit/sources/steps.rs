//! Any table of steps, or of closed loops, with a column map.

use serving_io::columns::{Target, nearest};
use serving_io::{IoError, Place};

use super::Options;
use super::published::mean_step;
use super::table::{Row, Table};
use crate::error::{FitError, Result};
use crate::fit::point::{Point, Regime, Source};

/// Fields without a unit.
const COUNTS: [&str; 8] =
    ["prefill_tokens", "decodes", "context", "attention", "prefills", "concurrency", "isl", "osl"];

/// Fields of time, with how many of their unit make a second.
const TIMES: [(&str, f64); 6] = [
    ("time_s", 1.0),
    ("time_ms", 1e3),
    ("time_us", 1e6),
    ("time_ns", 1e9),
    ("tpot_ms", 1e3),
    ("tpot_s", 1.0),
];

/// The counts of a step log.
const STEP: [&str; 5] = ["prefill_tokens", "decodes", "context", "attention", "prefills"];

/// The fields of the time of a step, for a message.
fn time_fields() -> String {
    let of_step = TIMES.iter().map(|t| t.0).filter(|t| t.starts_with("time"));
    of_step.collect::<Vec<_>>().join(", ")
}

/// One item of a column map.
pub(super) fn map_item(item: &str) -> Result<(String, String)> {
    let fields = || -> Vec<&str> { COUNTS.into_iter().chain(TIMES.map(|t| t.0)).collect() };
    let wrong = |problem: String| FitError::Option { option: "--map", problem };
    let (field, column) = item.split_once('=').ok_or_else(|| {
        wrong(format!("found `{item}`, expected FIELD=COLUMN, for example `decodes=batch`"))
    })?;
    let field = field.trim();
    if !fields().contains(&field) {
        let problem = format!("no field `{field}`, expected one of {}", fields().join(", "));
        return Err(wrong(problem));
    }
    Ok((field.to_owned(), column.trim().to_owned()))
}

/// Which column each field has.
struct Columns<'a> {
    table: &'a Table,
    map: &'a [(String, String)],
}

impl Columns<'_> {
    /// The mapped column, or the one that has the field's name.
    fn of(&self, field: &str) -> Result<Option<String>> {
        if let Some((_, column)) = self.map.iter().find(|(f, _)| f == field) {
            if self.table.column(column).is_none() {
                let problem = format!(
                    "{field}={column}: {} has no such column, it has {}",
                    self.table.name,
                    self.table.shown_columns()
                );
                return Err(FitError::Option { option: "--map", problem });
            }
            return Ok(Some(column.clone()));
        }
        Ok(self.table.column(field).map(|_| field.to_owned()))
    }

    /// The only time column whose name begins so, and how many of its unit make a second.
    fn time(&self, of: &str) -> Result<Option<(String, f64)>> {
        let mut found: Vec<(&str, String, f64)> = Vec::new();
        for (field, per_second) in TIMES.iter().filter(|(f, _)| f.starts_with(of)) {
            if let Some(column) = self.of(field)? {
                found.push((*field, column, *per_second));
            }
        }
        // A column of the map is meant even where others have a field's name.
        if found.iter().any(|(f, ..)| self.map.iter().any(|(m, _)| m == f)) {
            found.retain(|(f, ..)| self.map.iter().any(|(m, _)| m == f));
        }
        if let [first, second, ..] = found.as_slice() {
            return Err(FitError::Units {
                file: self.table.name.clone(),
                problem: format!(
                    "`{}` and `{}` both give the time: name one with --map",
                    first.1, second.1
                ),
            });
        }
        Ok(found.pop().map(|(_, column, per_second)| (column, per_second)))
    }

    /// Refuses a column that nearly has the name of one of these fields which has none; where the
    /// user says what columns mean, the others are meant to be left.
    fn misspelt(&self, fields: &[&str]) -> Result<()> {
        if !self.map.is_empty() {
            return Ok(());
        }
        let is_field = |c: &str| {
            COUNTS.contains(&c) || TIMES.iter().any(|t| t.0 == c) || Target::named(c).is_some()
        };
        for (column, line) in self.table.columns().filter(|(c, _)| !is_field(c)) {
            let free = fields.iter().filter(|f| self.table.column(f).is_none());
            if let Some(meant) = nearest(column, free) {
                let at = Box::new(Place::line(&self.table.name, line).key(column));
                return Err(IoError::Misspelt { at, meant: (*meant).to_owned() }.into());
            }
        }
        Ok(())
    }

    /// A table of the work of steps without their time: none if it may be a request log.
    fn without_time(&self) -> Result<Option<Source>> {
        let times: Vec<&str> = TIMES.iter().map(|t| t.0).collect();
        self.misspelt(&times)?;
        if self.table.columns().any(|(c, _)| Target::named(c).is_some_and(|t| t.field.is_time())) {
            return Ok(None);
        }
        let (file, fields) = (self.table.name.clone(), time_fields());
        let problem = if self.table.column("time").is_some() {
            format!("`time` has no unit, expected one of {fields}")
        } else {
            let has = self.table.shown_columns();
            format!("a step log without a time, expected one of {fields}; it has {has}")
        };
        Err(FitError::Units { file, problem })
    }

    /// The columns that are neither these nor tell deployments apart.
    fn unread(&self, used: &[&String], by: &[String]) -> Vec<String> {
        let read =
            |c: &str| c.is_empty() || used.iter().any(|u| *u == c) || by.iter().any(|b| b == c);
        let unread = self.table.columns().map(|(c, _)| c).filter(|c| !read(c));
        unread.map(str::to_owned).collect()
    }
}

/// A column that a step's work is read from.
struct Work {
    /// The column; none if the table has none.
    column: Option<String>,
    /// Why a row with an empty cell is left out.
    unknown: &'static str,
}

/// A cell of a row: none without such a column.
enum Cell {
    Known(Option<f64>),
    Unknown(&'static str),
}

impl Work {
    fn of(columns: &Columns<'_>, field: &str, unknown: &'static str) -> Result<Self> {
        Ok(Self { column: columns.of(field)?, unknown })
    }

    fn cell(&self, row: &Row<'_>) -> Result<Cell> {
        match &self.column {
            None => Ok(Cell::Known(None)),
            Some(column) if row.text(column).is_empty() => Ok(Cell::Unknown(self.unknown)),
            Some(column) => Ok(Cell::Known(Some(row.number(column)?))),
        }
    }

    /// The same, where an empty cell says nothing of a step that has none of this work.
    fn cell_if(&self, has: bool, row: &Row<'_>) -> Result<Cell> {
        match self.cell(row)? {
            Cell::Unknown(_) if !has => Ok(Cell::Known(None)),
            cell => Ok(cell),
        }
    }
}

/// The points of a table of closed loops; none if it is not one.
fn loops(columns: &Columns<'_>, options: &Options) -> Result<Option<Source>> {
    let table = columns.table;
    let found = [columns.of("concurrency")?, columns.of("isl")?, columns.of("osl")?];
    let time = columns.time("tpot")?;
    let ([Some(users), Some(input), Some(output)], Some((time, unit))) = (&found, &time) else {
        // One column is missing: perhaps for its name.
        if found.iter().flatten().count() + usize::from(time.is_some()) == 3 {
            columns.misspelt(&["concurrency", "isl", "osl", "tpot_ms", "tpot_s"])?;
        }
        return Ok(None);
    };
    let mut source = Source::new(&table.name, "closed-loop sweep");
    source.assumed.push("all users are in flight all the time".to_owned());
    for row in table.rows() {
        let point = mean_step(
            row.positive(users)?,
            row.positive(input)?,
            row.positive(output)?,
            row.seconds(time, *unit)?,
        );
        source.points.push(point.at(row.place()).of(row.group(&options.by, &[])));
    }
    source.unread = columns.unread(&[users, input, output, time], &options.by);
    Ok(Some(source))
}

/// The points of a table of steps or of closed loops; none if it is neither.
pub(super) fn read(table: &Table, options: &Options) -> Result<Option<Source>> {
    let columns = Columns { table, map: &options.map };
    if let Some(source) = loops(&columns, options)? {
        return Ok(Some(source));
    }
    let prompt = Work::of(&columns, "prefill_tokens", "prompt tokens are not known")?;
    let decodes = Work::of(&columns, "decodes", "decodes are not known")?;
    let steps = prompt.column.is_some() || decodes.column.is_some();
    let Some((time, unit)) = columns.time("time")? else {
        if !options.map.is_empty() {
            let problem = format!("no time: map one of {}", time_fields());
            return Err(FitError::Option { option: "--map", problem });
        }
        return if steps { columns.without_time() } else { Ok(None) };
    };
    if !steps {
        columns.misspelt(&["prefill_tokens", "decodes"])?;
        return Ok(None);
    }
    columns.misspelt(&STEP)?;
    let context = Work::of(&columns, "context", "context is not known")?;
    let attention = Work::of(&columns, "attention", "attention is not known")?;
    let prefills = Work::of(&columns, "prefills", "prefills are not known")?;
    let mut source = Source::new(&table.name, "step log");
    let (mut whole, mut without_context) = (false, false);
    for row in table.rows() {
        let time_s = row.seconds(&time, unit)?;
        let (p, b) = match (prompt.cell(&row)?, decodes.cell(&row)?) {
            (Cell::Known(p), Cell::Known(b)) => (p.unwrap_or(0.0), b.unwrap_or(0.0)),
            (Cell::Unknown(why), _) | (_, Cell::Unknown(why)) => {
                source.exclude(why, || row.place());
                continue;
            }
        };
        if p == 0.0 && b == 0.0 {
            source.exclude("neither prompt tokens nor decodes: an idle step", || row.place());
            continue;
        }
        let (chunks, pairs) = (prefills.cell_if(0.0 < p, &row)?, attention.cell_if(0.0 < p, &row)?);
        let (chunks, pairs, held) = match (chunks, pairs, context.cell_if(0.0 < b, &row)?) {
            (Cell::Known(chunks), Cell::Known(pairs), Cell::Known(held)) => (chunks, pairs, held),
            (Cell::Unknown(why), ..) | (_, Cell::Unknown(why), _) | (.., Cell::Unknown(why)) => {
                source.exclude(why, || row.place());
                continue;
            }
        };
        let chunks = chunks.unwrap_or(f64::from(u8::from(0.0 < p)));
        if 0.0 < p && chunks == 0.0 {
            let problem = format!("{p} prompt tokens in 0 prefills, expected at least 1");
            return Err(FitError::Row { file: table.name.clone(), line: row.line, problem });
        }
        if let Some(c) = held
            && c < b
        {
            let problem = format!(
                "`context` is {c} for {b} decodes, expected at least {b}: each decode has a token or more"
            );
            return Err(FitError::Row { file: table.name.clone(), line: row.line, problem });
        }
        whole |= 0.0 < p && pairs.is_none();
        without_context |= 0.0 < b && held.is_none();
        let of_whole = if 0.0 < p { p * p / (2.0 * chunks) } else { 0.0 };
        let point = Point {
            regime: if 0.0 < p { Regime::Prefill } else { Regime::Decode },
            prefills: chunks,
            prefill_tokens: p,
            attention: pairs.unwrap_or(of_whole),
            ..Point::decode(b, held.unwrap_or(0.0), time_s)
        };
        source.points.push(point.at(row.place()).of(row.group(&options.by, &[])));
    }
    if whole {
        source.assumed.push(
            "no column `attention`: prompts are taken to be whole and of one length, A = P² / (2 · prefills)"
                .to_owned(),
        );
    }
    if without_context {
        let text = "no column `context`: what context costs is not told from the other work";
        source.assumed.push(text.to_owned());
    }
    let used = [prompt, decodes, context, attention, prefills].map(|w| w.column);
    let used: Vec<&String> = used.iter().flatten().chain([&time]).collect();
    source.unread = columns.unread(&used, &options.by);
    Ok(Some(source))
}
