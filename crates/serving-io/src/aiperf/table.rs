//! `profile_export_aiperf.csv`: the tool's figures in two tables, rounded to two digits.
//!
//! The first table has a row for each distribution and a column for each statistic, the second a
//! name and a value. A name ends in its unit in brackets, `Time to First Token (ms)`; it becomes
//! `time_to_first_token_p99_ms`, as in the JSON file. Some titles are longer than the names there:
//! `effective_latency_co_aware_p99_ms`. Tables of another kind (GPU telemetry) are left out, and
//! counted in a note.

use metrics_core::format::things;

use super::{snake, suffix, with_unit};
use crate::error::{IoError, Place, Result, shown};
use crate::input::Input;
use crate::json::whole;
use crate::run::{Counts, Run, Stated, Tool};
use crate::timeline::number;

pub(super) fn read(input: Input) -> Result<Vec<Run>> {
    let name = input.name.clone();
    let text = input.into_text()?;
    let mut run = Run { line: 1, ..Run::default() };
    run.tool = Tool { name: "AIPerf".to_owned(), ..Tool::default() };
    let mut other_rows = 0_u64;
    for (first_line, block) in blocks(&text) {
        other_rows += table(&name, first_line, &block, &mut run.stated)?;
    }
    if run.stated.is_empty() {
        let expected = "rows below its header";
        return Err(IoError::NoRequests { at: Box::new(Place::file(&name)), expected });
    }
    run.counts = counts(&run.stated);
    let text = "the figures of this file are rounded to two digits after the point".to_owned();
    run.note("rounded-figures", &["ttft", "tpot", "e2e_latency"], text);
    if 0 < other_rows {
        let text = format!("{} of other tables left out", things(other_rows, "row"));
        run.note("tables-not-read", &[], text);
    }
    run.lacks("latencies per request", "profile_export.jsonl, which the same run leaves");
    run.lacks("settings and the window", "profile_export_aiperf.json, which the same run leaves");
    Ok(vec![run])
}

/// The tables of the text, which stand apart by blank lines, each with its first line.
fn blocks(text: &str) -> Vec<(u64, String)> {
    let mut blocks: Vec<(u64, String)> = Vec::new();
    let mut open = false;
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim().is_empty() {
            open = false;
            continue;
        }
        match blocks.last_mut() {
            Some((_, block)) if open => {
                block.push('\n');
                block.push_str(content);
            }
            _ => blocks.push((line, content.to_owned())),
        }
        open = true;
    }
    blocks
}

/// Reads one table; says how many rows it left out, since it is of another kind.
fn table(file: &str, first_line: u64, text: &str, stated: &mut Stated) -> Result<u64> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut header: Option<Vec<String>> = None;
    let mut other_rows = 0;
    for record in reader.records() {
        let record = record.map_err(|e| IoError::Unreadable {
            at: Box::new(Place::file(file)),
            reason: shown(&e.to_string()),
        })?;
        let line = first_line + record.position().map_or(0, |p| p.line().saturating_sub(1));
        let cells: Vec<&str> = record.iter().map(str::trim).collect();
        let Some(header) = &header else {
            header = Some(cells.iter().map(|c| (*c).to_owned()).collect());
            continue;
        };
        if header.first().is_none_or(|c| c != "Metric") {
            other_rows += 1;
            continue;
        }
        if cells.len() != header.len() {
            let (found, expected) = (cells.len() as u64, header.len() as u64);
            return Err(IoError::Ragged { at: Box::new(Place::line(file, line)), found, expected });
        }
        row(file, line, header, &cells, stated)?;
    }
    Ok(other_rows)
}

/// The figures of one row.
fn row(
    file: &str,
    line: u64,
    header: &[String],
    cells: &[&str],
    stated: &mut Stated,
) -> Result<()> {
    let Some((title, values)) = cells.split_first() else { return Ok(()) };
    let (name, unit) = split(title);
    let scalar = header.get(1).is_some_and(|h| h == "Value");
    for (statistic, cell) in header.iter().skip(1).zip(values) {
        if cell.is_empty() {
            continue;
        }
        let value = number(&cell.replace(',', "")).ok_or_else(|| IoError::Value {
            at: Box::new(Place::line(file, line).key(format!("{title}: {statistic}"))),
            found: format!("`{}`", shown(cell)),
            expected: "a number, or nothing".to_owned(),
        })?;
        let name = if scalar { name.clone() } else { format!("{name}_{}", snake(statistic)) };
        stated.push(with_unit(&name, unit), value);
    }
    Ok(())
}

/// A title's name and unit; brackets that hold no unit belong to the name.
fn split(title: &str) -> (String, &str) {
    if let Some((name, rest)) = title.rsplit_once('(')
        && let Some(unit) = rest.strip_suffix(')')
        && suffix(unit).is_some()
    {
        return (snake(name), unit);
    }
    (snake(title), "")
}

fn counts(stated: &Stated) -> Counts {
    let of = |name| stated.get(name).and_then(whole);
    let completed = of("request_count");
    Counts {
        completed,
        failed: of("error_request_count").or(completed.map(|_| 0)),
        total_input_tokens: of("total_input_sequence_length_tokens"),
        total_output_tokens: of("total_output_sequence_length_tokens"),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_unit_is_what_stands_in_the_last_brackets() {
        assert_eq!(
            split("Effective Latency (CO-aware) (ms)"),
            ("effective_latency_co_aware".to_owned(), "ms")
        );
        let title = "Completed Requests (Success + Error)";
        assert_eq!(split(title), ("completed_requests_success_error".to_owned(), ""));
    }
}
