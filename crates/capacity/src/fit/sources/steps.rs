//! Any table of steps, or of closed loops, with a column map.

use super::Options;
use super::published::mean_step;
use super::table::{Row, Table};
use crate::error::{FitError, Result};
use crate::fit::point::{Point, Regime, Source};

/// Fields without a unit.
const COUNTS: [&str; 8] =
    ["prefill_tokens", "decodes", "context", "attention", "prefills", "concurrency", "isl", "osl"];

/// Fields of time, with how many of their unit make a second.
const TIMES: [(&str, f64); 5] =
    [("time_s", 1.0), ("time_ms", 1e3), ("time_us", 1e6), ("tpot_ms", 1e3), ("tpot_s", 1.0)];

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
}

/// A cell of an optional column.
fn optional(row: &Row<'_>, column: Option<&String>) -> Result<Option<f64>> {
    column.filter(|c| !row.text(c).is_empty()).map(|c| row.number(c)).transpose()
}

/// The points of a table of steps or of closed loops; none if it is neither.
pub(super) fn read(table: &Table, options: &Options) -> Result<Option<Source>> {
    let columns = Columns { table, map: &options.map };
    let loops = [columns.of("concurrency")?, columns.of("isl")?, columns.of("osl")?];
    if let ([Some(users), Some(input), Some(output)], Some((time, unit))) =
        (&loops, columns.time("tpot")?)
    {
        let mut source = Source::new(&table.name, "closed-loop sweep");
        source.assumed.push("all users are in flight all the time".to_owned());
        for row in table.rows() {
            let point = mean_step(
                row.positive(users)?,
                row.positive(input)?,
                row.positive(output)?,
                row.positive(&time)? / unit,
            );
            source.points.push(point.at(row.place()).of(row.group(&options.by, &[])));
        }
        return Ok(Some(source));
    }
    let (prompt, decodes) = (columns.of("prefill_tokens")?, columns.of("decodes")?);
    let Some((time, unit)) = columns.time("time")? else {
        if options.map.is_empty() {
            return Ok(None);
        }
        let problem = "no time: map one of time_s, time_ms, time_us".to_owned();
        return Err(FitError::Option { option: "--map", problem });
    };
    if prompt.is_none() && decodes.is_none() {
        return Ok(None);
    }
    let context = columns.of("context")?;
    let (attention, prefills) = (columns.of("attention")?, columns.of("prefills")?);
    let mut source = Source::new(&table.name, "step log");
    let mut assumed = false;
    for row in table.rows() {
        let p = optional(&row, prompt.as_ref())?.unwrap_or(0.0);
        let b = optional(&row, decodes.as_ref())?.unwrap_or(0.0);
        let time_s = row.positive(&time)? / unit;
        if p == 0.0 && b == 0.0 {
            source.exclude("neither prompt tokens nor decodes: an idle step", || row.place());
            continue;
        }
        let chunks = optional(&row, prefills.as_ref())?.unwrap_or(f64::from(u8::from(0.0 < p)));
        if 0.0 < p && chunks == 0.0 {
            let problem = format!("{p} prompt tokens in 0 prefills, expected at least 1");
            return Err(FitError::Row { file: table.name.clone(), line: row.line, problem });
        }
        let pairs = optional(&row, attention.as_ref())?;
        assumed |= 0.0 < p && pairs.is_none();
        let whole = if 0.0 < p { p * p / (2.0 * chunks) } else { 0.0 };
        let point = Point {
            regime: if 0.0 < p { Regime::Prefill } else { Regime::Decode },
            prefills: chunks,
            prefill_tokens: p,
            attention: pairs.unwrap_or(whole),
            ..Point::decode(b, optional(&row, context.as_ref())?.unwrap_or(0.0), time_s)
        };
        source.points.push(point.at(row.place()).of(row.group(&options.by, &[])));
    }
    if assumed {
        source.assumed.push(
            "no column `attention`: prompts are taken to be whole and of one length, A = P² / (2 · prefills)"
                .to_owned(),
        );
    }
    Ok(Some(source))
}
