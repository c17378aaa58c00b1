//! The CSV file: three header lines (group, name, statistic), then one row a benchmark.
//!
//! `Time to First Token`, `Successful ms`, `Mean` becomes the figure
//! `time_to_first_token_successful_mean_ms`, as in the JSON file; a cell with a list of percentiles
//! becomes one figure each. Cells of text become metadata.

use metrics_core::Seconds;

use crate::error::{IoError, Place, Result, shown};
use crate::input::Input;
use crate::json::whole;
use crate::node::Document;
use crate::run::{Counts, Run, RunDuration, Tool};
use crate::timeline::number;

/// Which percentiles a list holds, as the JSON file names them.
const PERCENTILES: [&str; 11] =
    ["p001", "p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p999"];

pub(super) fn read(input: Input) -> Result<Vec<Run>> {
    let name = input.name.clone();
    let text = input.into_text()?;
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut headers: Vec<Vec<String>> = Vec::new();
    let mut runs = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| IoError::Unreadable {
            at: Box::new(Place::file(&name)),
            reason: shown(&e.to_string()),
        })?;
        let line = record.position().map_or(1, csv::Position::line);
        let cells: Vec<&str> = record.iter().map(str::trim).collect();
        if let Some(first) = headers.first()
            && first.len() != cells.len()
        {
            let (found, expected) = (cells.len() as u64, first.len() as u64);
            return Err(IoError::Ragged {
                at: Box::new(Place::line(&name, line)),
                found,
                expected,
            });
        }
        match &headers[..] {
            [groups, names, statistics] => {
                runs.push(run(&name, line, &[groups, names, statistics], &cells)?);
            }
            _ => headers.push(cells.iter().map(|c| (*c).to_owned()).collect()),
        }
    }
    if runs.is_empty() {
        let expected = "a row for each benchmark below its three header lines";
        return Err(IoError::NoRequests { at: Box::new(Place::file(&name)), expected });
    }
    Ok(runs)
}

fn run(file: &str, line: u64, headers: &[&Vec<String>; 3], cells: &[&str]) -> Result<Run> {
    let mut run = Run { line, ..Run::default() };
    run.tool = Tool { name: "GuideLLM".to_owned(), ..Tool::default() };
    let [groups, names, statistics] = headers;
    for (((group, name), statistic), cell) in
        groups.iter().zip(names.iter()).zip(statistics.iter()).zip(cells)
    {
        if cell.is_empty() {
            continue;
        }
        let title = [group.as_str(), name, statistic].join(" ").trim().to_owned();
        let wrong = |expected: &str| IoError::Value {
            at: Box::new(Place::line(file, line).key(title.clone())),
            found: format!("`{}`", shown(cell)),
            expected: expected.to_owned(),
        };
        if statistic == "Percentiles" && cell.starts_with('[') {
            let list: Vec<f64> =
                serde_json::from_str(cell).map_err(|_| wrong("a list of numbers"))?;
            if list.len() != PERCENTILES.len() {
                return Err(wrong("a list of 11 percentiles"));
            }
            for (p, value) in PERCENTILES.iter().zip(list) {
                run.stated.push(figure(group, name, p), value);
            }
        } else if let Some(value) = number(cell) {
            run.stated.push(figure(group, name, statistic), value);
        } else if matches!(statistic.as_str(), "Mean" | "Median" | "Std Dev") {
            return Err(wrong("a number, or nothing"));
        } else {
            describe(file, line, &mut run, group, name, cell, &title)?;
        }
    }
    if run.stated.is_empty() {
        let at = Box::new(Place::line(file, line));
        return Err(IoError::NoRequests { at, expected: "the figures of a benchmark" });
    }
    let count = |name: &str| run.stated.get(name).and_then(whole);
    run.counts = Counts {
        completed: count("request_counts_successful"),
        failed: count("request_counts_errored"),
        ..Counts::default()
    };
    if let Some(x) = run.stated.get("timings_duration_s").filter(|x| 0.0 < *x)
        && let Ok(value) = Seconds::named("duration", x)
    {
        run.duration = Some(RunDuration { value, from: "`Timings, Duration`" });
    }
    run.lacks("latencies per request", "the JSON file that the same run can write");
    run.lacks("queue time in the server", "the server's own metrics or log");
    Ok(run)
}

/// Takes a cell of text.
fn describe(
    file: &str,
    line: u64,
    run: &mut Run,
    group: &str,
    name: &str,
    cell: &str,
    title: &str,
) -> Result<()> {
    match (group, name) {
        ("Benchmark", "Strategy") => run.declared.label = Some(cell.to_owned()),
        ("Timings", "Start Time") => run.declared.date = Some(cell.to_owned()),
        ("Run Info", "Backend") if cell.starts_with('{') => {
            let backend = Document::of_line(file, line, cell).object()?;
            run.declared.model = backend.text("model")?;
            run.declared.backend = backend.text("request_format")?;
        }
        ("Runtime Info", "Metadata") if cell.starts_with('{') => {
            let metadata = Document::of_line(file, line, cell).object()?;
            run.tool.version = metadata.text("guidellm_version")?;
        }
        _ => run.declared.metadata.push((title.to_owned(), cell.to_owned())),
    }
    Ok(())
}

/// The name of a figure, with its unit at the end.
fn figure(group: &str, name: &str, statistic: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut unit = None;
    for word in [group, name].iter().flat_map(|t| t.split([' ', '/'])).filter(|w| !w.is_empty()) {
        match word {
            "ms" => unit = Some("ms"),
            "Sec" if name.contains("/Sec") => unit = Some("per_s"),
            "Sec" => unit = Some("s"),
            "Count" => {}
            _ => words.push(word.to_ascii_lowercase()),
        }
    }
    match statistic {
        "Sec" => unit = Some("s"),
        "ms" => unit = Some("ms"),
        _ => words.extend(statistic.split_whitespace().map(str::to_ascii_lowercase)),
    }
    words.extend(unit.map(str::to_owned));
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn figures_are_called_as_in_the_json_file() {
        assert_eq!(
            figure("Time to First Token", "Successful ms", "Mean"),
            "time_to_first_token_successful_mean_ms"
        );
        assert_eq!(
            figure("Request Latency", "Successful Sec", "Std Dev"),
            "request_latency_successful_std_dev_s"
        );
        assert_eq!(figure("Timings", "Duration", "Sec"), "timings_duration_s");
        assert_eq!(
            figure("Server Throughput", "Successful Requests/Sec", "Mean"),
            "server_throughput_successful_requests_mean_per_s"
        );
    }
}
