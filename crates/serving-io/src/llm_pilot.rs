//! Measurements of LLM-Pilot on TGIS, IBM's fork of text-generation-inference.
//!
//! Facts from IBM/LLM-performance-prediction 3c66483 (`preprocess_data/`), whose raw files are
//! `results_MODEL_gpuN_GPU_uUSERS.csv`: a closed loop of so many users for 120 s.
//!
//! # The raw file
//!
//! A CSV table, one request a row.
//!
//! | column | meaning | becomes |
//! |---|---|---|
//! | `start_timestamp` | when it was sent, Unix time in ms | arrival |
//! | `latency_ms_per_token` | ms before each event of the stream, as a list in a cell | TTFT, E2E, gaps |
//! | `n_input_tokens`, `n_output_tokens` | tokens; empty where it failed | token counts |
//! | `errors`, `status` | `[]` and 200, else the errors and another status | outcome, column `error` |
//! | `latency_ms`, `end_timestamp` | the whole request, and when it ended | column `latency_ms` |
//! | `num_users` | users of the closed loop | [`Declared::max_concurrency`](crate::run::Declared::max_concurrency); runs are by it |
//! | `model`, `n_gpus`, `gpu_type`, `experiment_duration_s` | as named | runs are by the first three; model, metadata |
//! | `timestamps_per_token`, `smpnum`, `reqnum`, `requests`, `records`, `Unnamed: 0` | ignored: the stamps repeat the list above | |
//!
//! # The reduced file
//!
//! `num_users,start_ms,end_ms,input_tokens,output_tokens,n_events,first_event_ms,ttft_ms,e2e_ms`,
//! with the same meaning: `ttft_ms` is the sum of the first two gaps, `n_events` and
//! `first_event_ms` become columns. Failed requests are not in it.
//!
//! # What is decided here
//!
//! - **The first event carries no token.** TTFT is the time of the second one, the sum of the first
//!   two gaps; the time of the first is in the column `first_event_ms`.
//! - **E2E** ends at the last event of the raw file; the reduced one has whole requests.
//! - **Gaps** follow the second event. They are between tokens only if every completed request of
//!   the run has one fewer than tokens, else between chunks.
//! - **A failed request** keeps its TTFT if a second event had come. Where some failed, the note
//!   `survivors-are-short` warns: they failed for want of memory, long ones first.
//! - **A one-token answer** that ends later than its token has first = last = its end (note
//!   `one-token-in-several-chunks`, column `ttft_as_written_s`).

use metrics_core::format::things;
use metrics_core::timeline::{GapKind, TimelineFields};
use metrics_core::{Outcome, RequestTimeline};

use crate::detect::{Format, Options, Reader};
use crate::error::{IoError, Place, Result};
use crate::grid::{Grid, Runs, add_number, add_text, has_columns};
use crate::input::{Head, Input};
use crate::run::{Clock, Run, in_flight_limit};

/// The reader of this format.
#[derive(Clone, Copy, Debug)]
pub struct LlmPilot;

const RAW: [&str; 6] = [
    "latency_ms_per_token",
    "start_timestamp",
    "n_input_tokens",
    "n_output_tokens",
    "num_users",
    "errors",
];
const REDUCED: [&str; 7] = [
    "first_event_ms",
    "num_users",
    "start_ms",
    "input_tokens",
    "output_tokens",
    "ttft_ms",
    "e2e_ms",
];

impl Reader for LlmPilot {
    fn format(&self) -> Format {
        Format::LlmPilot
    }

    fn recognizes(&self, head: &Head, options: &Options) -> bool {
        options.map.is_empty() && (has_columns(head, &RAW) || has_columns(head, &REDUCED))
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let mut grid = Grid::open(input)?;
        let raw = grid.has("latency_ms_per_token");
        let by: &[&str] =
            if raw { &["model", "n_gpus", "gpu_type", "num_users"] } else { &["num_users"] };
        let mut runs = Runs::new("LLM-Pilot", by);
        let mut rows: Vec<Vec<Row>> = Vec::new();
        while grid.advance()? {
            let i = runs.of(&grid)?;
            let Some(run) = runs.list.get_mut(i) else { continue };
            if rows.len() <= i {
                rows.push(Vec::new());
                begin(&grid, run)?;
            }
            let row = if raw { raw_row(&grid)? } else { reduced_row(&grid)? };
            add_number(run, "first_event_ms", row.first_event_ms);
            if raw {
                add_number(run, "latency_ms", row.latency_ms);
                add_text(run, "error", row.error.clone());
            } else {
                add_number(run, "n_events", row.events);
            }
            // Checked at once, so that the message has the line; gaps follow when all are known.
            grid.timeline(
                row.fields(GapKind::Chunk, &mut 0),
                if raw { raw_key } else { reduced_key },
            )?;
            if let Some(rows) = rows.get_mut(i) {
                rows.push(row);
            }
        }
        for (run, rows) in runs.list.iter_mut().zip(&rows) {
            finish(&name, run, rows, raw)?;
        }
        if runs.list.is_empty() {
            let expected = "at least one request";
            return Err(IoError::NoRequests { at: Box::new(Place::file(&name)), expected });
        }
        Ok(runs.list)
    }
}

/// What the first row says about its run.
fn begin(grid: &Grid, run: &mut Run) -> Result<()> {
    run.clock = Clock::Epoch;
    run.declared.model = grid.text("model")?.map(str::to_owned);
    run.declared.max_concurrency = in_flight_limit(grid.count("num_users")?);
    if let Some(planned) = grid.text("experiment_duration_s")? {
        let planned = planned.to_owned();
        run.declared.metadata.push(("experiment_duration_s".to_owned(), planned));
    }
    Ok(())
}

/// What a row says.
struct Row {
    base: TimelineFields,
    /// Gaps after the first token, in s.
    gaps: Option<Vec<f64>>,
    ttft: Option<f64>,
    first_event_ms: Option<f64>,
    latency_ms: Option<f64>,
    events: Option<f64>,
    error: Option<String>,
}

impl Row {
    /// The fields of a timeline with gaps of that kind; counts one-token answers that end later.
    fn fields(&self, kind: GapKind, late: &mut u64) -> TimelineFields {
        let mut f = self.base.clone();
        f.ttft = self.ttft;
        if let (Some(1), Some(first), Some(last)) = (f.output_tokens, f.ttft, f.e2e)
            && first < last
        {
            *late += 1;
            f.ttft = f.e2e;
        }
        f.gaps = self.gaps.clone().map(|g| (kind, g));
        f
    }
}

fn raw_key(field: &str) -> &'static str {
    match field {
        "arrival" => "start_timestamp",
        "input_tokens" => "n_input_tokens",
        "output_tokens" => "n_output_tokens",
        _ => "latency_ms_per_token",
    }
}

fn reduced_key(field: &str) -> &'static str {
    match field {
        "arrival" => "start_ms",
        "input_tokens" => "input_tokens",
        "output_tokens" => "output_tokens",
        "e2e" | "last_token" => "e2e_ms",
        _ => "ttft_ms",
    }
}

/// Milliseconds as seconds.
fn seconds(ms: f64) -> f64 {
    ms / 1e3
}

fn raw_row(grid: &Grid) -> Result<Row> {
    const LIST: &str = "latency_ms_per_token";
    let list = grid.text(LIST)?.unwrap_or("[]");
    let steps: Vec<f64> = serde_json::from_str(list)
        .map_err(|_| grid.wrong(LIST, list, "a list of milliseconds such as `[12, 140, 47]`"))?;
    let errors = grid.text("errors")?.filter(|e| *e != "[]");
    let status = grid.text("status")?.filter(|s| s.parse() != Ok(200.0));
    let completed = errors.is_none() && status.is_none();
    let error = errors.or(status).map(str::to_owned);
    if completed && steps.len() < 2 {
        let expected = "two events or more for a request without an error";
        return Err(grid.wrong(LIST, list, expected));
    }
    let ttft = match steps.as_slice() {
        [first, second, ..] => Some(seconds(first + second)),
        _ => None,
    };
    let e2e = completed.then(|| seconds(steps.iter().sum()));
    let gaps = ttft.map(|_| steps.iter().skip(2).map(|&ms| seconds(ms)).collect());
    let base = TimelineFields {
        id: grid.line().to_string(),
        arrival: grid.instant("start_timestamp", 3)?,
        e2e,
        input_tokens: grid.count("n_input_tokens")?,
        output_tokens: grid.count("n_output_tokens")?.filter(|_| completed),
        outcome: if completed { Outcome::Completed } else { Outcome::Failed },
        ..TimelineFields::default()
    };
    let first_event_ms = steps.first().copied();
    let latency_ms = grid.number("latency_ms")?;
    Ok(Row { base, gaps, ttft, first_event_ms, latency_ms, events: None, error })
}

fn reduced_row(grid: &Grid) -> Result<Row> {
    let ttft = grid.number("ttft_ms")?.map(seconds);
    let e2e = grid.number("e2e_ms")?.map(seconds);
    if ttft.is_none() && e2e.is_none() {
        return Err(grid.wrong("ttft_ms", "", "a time: failed requests are not in this file"));
    }
    let base = TimelineFields {
        id: grid.line().to_string(),
        arrival: grid.instant("start_ms", 3)?,
        e2e,
        input_tokens: grid.count("input_tokens")?,
        output_tokens: grid.count("output_tokens")?,
        outcome: Outcome::Completed,
        ..TimelineFields::default()
    };
    let first_event_ms = grid.number("first_event_ms")?;
    let events = grid.number("n_events")?;
    Ok(Row { base, gaps: None, ttft, first_event_ms, latency_ms: None, events, error: None })
}

/// Makes the timelines of a run, now that the kind of its gaps is known.
fn finish(name: &str, run: &mut Run, rows: &[Row], raw: bool) -> Result<()> {
    let one_fewer = |r: &Row| {
        let gaps = r.gaps.as_ref().map(|g| g.len() as u64 + 1);
        gaps.is_some() && gaps == r.base.output_tokens
    };
    let completed = || rows.iter().filter(|r| r.base.outcome == Outcome::Completed);
    let per_token = completed().all(one_fewer) && completed().any(|r| r.gaps.is_some());
    let mut late = 0;
    for row in rows {
        let token = per_token && row.base.outcome == Outcome::Completed;
        let kind = if token { GapKind::Token } else { GapKind::Chunk };
        let fields = row.fields(kind, &mut late);
        run.timelines.push(RequestTimeline::new(fields).map_err(|source| IoError::Request {
            at: Box::new(Place::line(name, row.base.id.parse().unwrap_or(run.line))),
            source,
            note: "",
        })?);
    }
    let text = "the first event of a stream carries no token: TTFT is the time of the second \
                (column first_event_ms has the first)";
    run.note("first-event-without-token", &["ttft"], text.to_owned());
    if 0 < late {
        let written = rows.iter().map(|r| r.ttft);
        for ttft in written {
            add_number(run, "ttft_as_written_s", ttft);
        }
        let text = format!(
            "{} with an end behind its token: the end is taken for both, the file's own TTFT is in \
             the column ttft_as_written_s",
            things(late, "one-token answer")
        );
        run.note("one-token-in-several-chunks", &["ttft"], text);
    }
    if raw && per_token {
        let text = "every answer has exactly one gap fewer than tokens, so the gaps are taken as \
                    gaps between tokens; a chunk with two tokens beside an empty one would go unseen";
        run.note("gaps-look-per-token", &["itl"], text.to_owned());
    } else if raw {
        let differ = completed().filter(|r| !one_fewer(r)).count() as u64;
        let text = format!(
            "another number of gaps than tokens - 1 in {}: the gaps are between chunks",
            things(differ, "answer")
        );
        run.note("gaps-per-chunk", &["itl"], text);
    }
    let failed = rows.len() - completed().count();
    if 0 < failed {
        let text = format!(
            "{failed} of {} failed, for want of memory where the errors say so: long requests \
             fail first, so that latencies are those of the short ones",
            things(rows.len() as u64, "request")
        );
        run.note("survivors-are-short", &["ttft", "tpot", "e2e_latency"], text);
    }
    if !raw {
        run.lacks("gaps between outputs", "the raw file of the same run");
        run.lacks("failed requests", "the raw file of the same run");
    }
    run.lacks("duration of the run", "nothing: it was planned for 120 s, the end is not stamped");
    run.lacks("queue time in the server", "the server's own metrics or log");
    Ok(())
}
