//! CSV tables of known layouts whose columns a [map](crate::columns) cannot express.
//!
//! Each is told by its header, and only where no `--map` is given.
//!
//! # `multi-round-qa`: llm-d-benchmark, vLLM production-stack
//!
//! Facts from llm-d-benchmark 52d328c (`collected/data`), per request.
//!
//! | column | meaning | becomes |
//! |---|---|---|
//! | `launch_time` | when it was sent, Unix time in s | arrival |
//! | `ttft` | s to the first chunk | TTFT |
//! | `generation_time` | s from the first to the last chunk | E2E = `ttft` + `generation_time` |
//! | `finish_time` | when it ended, on the same clock | ignored: equal to the former up to 0.02 ms |
//! | `prompt_tokens`, `generation_tokens` | tokens | token counts |
//! | `workload`, `qps` | of the experiment, where files were put together | runs are by both; `qps` is the rate |
//! | `user_id`, `question_id` | of the session | columns |
//!
//! # `dstack`: arrays of `benchmark_serving.py` as rows
//!
//! Facts from dstackai/benchmarks 06c957a: `input_len,output_len,ttft_s,sum_itl_s,n_itl,error`.
//! E2E is `ttft_s` + `sum_itl_s` (note `e2e-from-gaps`), `n_itl` a column. A request is failed if
//! `error` says so, or if it has neither a TTFT nor an output token, as the tool's old versions
//! count such requests as completed (note `failures-without-error`).
//!
//! # Summaries, one run a row
//!
//! Columns with a number are stated figures under their names, columns with a text metadata.
//!
//! - MLPerf submissions: `round`, `system`, `scheduled_sps`, `ttft_p99_ms`, …
//! - LLM-Pilot: `model`, `users`, `n_ok`, `n_bad`, `ttft_p99`, …; times without a unit are in ms.
//!   `users` is the concurrency, `n_ok` and `n_bad` the counts, `dur_s` the duration.
//!
//! # What is decided here
//!
//! - **A one-token answer** that ends later than its chunk has first = last = its end (note
//!   `one-token-in-several-chunks`, column `ttft_as_written_s`).
//! - **Failures**: the first and the last kind of table have none, or only their count;
//!   [`Run::missing`] says so.

use metrics_core::format::things;
use metrics_core::timeline::TimelineFields;
use metrics_core::{Outcome, Seconds};

use crate::detect::{Format, Options, Reader};
use crate::error::{IoError, Place, Result};
use crate::grid::{Grid, Runs, add_number, add_text, has_columns};
use crate::input::{Head, Input};
use crate::run::{Clock, RequestRate, Run, RunDuration, Tool, in_flight_limit};

/// The reader of these tables.
#[derive(Clone, Copy, Debug)]
pub struct KnownTable;

/// A layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    MultiRoundQa,
    Dstack,
    Mlperf,
    Pilot,
}

impl Layout {
    const ALL: [Self; 4] = [Self::MultiRoundQa, Self::Dstack, Self::Mlperf, Self::Pilot];

    /// The columns that tell it.
    const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::MultiRoundQa => &[
                "generation_tokens",
                "prompt_tokens",
                "ttft",
                "generation_time",
                "launch_time",
                "finish_time",
            ],
            Self::Dstack => &["sum_itl_s", "input_len", "output_len", "ttft_s", "n_itl"],
            Self::Mlperf => &["scheduled_sps", "round", "system", "scenario", "ttft_p99_ms"],
            Self::Pilot => &["n_bad", "n_ok", "users", "ttft_p99", "tpot_p99"],
        }
    }

    const fn tool(self) -> &'static str {
        match self {
            Self::MultiRoundQa => "multi-round-qa",
            Self::Dstack => "benchmark_serving.py",
            Self::Mlperf => "MLPerf loadgen",
            Self::Pilot => "LLM-Pilot",
        }
    }

    /// The columns whose values make runs.
    const fn by(self) -> &'static [&'static str] {
        match self {
            Self::MultiRoundQa => &["workload", "qps"],
            _ => &[],
        }
    }
}

impl Reader for KnownTable {
    fn format(&self) -> Format {
        Format::KnownTable
    }

    fn recognizes(&self, head: &Head, options: &Options) -> bool {
        options.map.is_empty() && Layout::ALL.iter().any(|l| has_columns(head, l.columns()))
    }

    fn read(&self, input: Input, _: &Options) -> Result<Vec<Run>> {
        let name = input.name.clone();
        let layout = Layout::ALL.into_iter().find(|l| has_columns(&input.head, l.columns()));
        let Some(layout) = layout else {
            return Err(IoError::UnknownFormat {
                at: Box::new(Place::file(&name)),
                found: "no table of a known layout".to_owned(),
                expected: "the columns of one; `csv` reads any table with `--map`".to_owned(),
            });
        };
        let mut grid = Grid::open(input)?;
        let mut runs = Runs::new(layout.tool(), layout.by());
        let mut decided: Vec<Decided> = Vec::new();
        while grid.advance()? {
            if matches!(layout, Layout::Mlperf | Layout::Pilot) {
                runs.list.push(summary(&grid, layout)?);
                continue;
            }
            let i = runs.of(&grid)?;
            if decided.len() <= i {
                decided.push(Decided::default());
            }
            if let (Some(run), Some(decided)) = (runs.list.get_mut(i), decided.get_mut(i)) {
                request(&grid, layout, run, decided)?;
            }
        }
        for (run, decided) in runs.list.iter_mut().zip(&decided) {
            describe(layout, decided, run);
        }
        if runs.list.is_empty() {
            let expected = "at least one row";
            return Err(IoError::NoRequests { at: Box::new(Place::file(&name)), expected });
        }
        Ok(runs.list)
    }
}

/// What was decided over the requests of a run.
#[derive(Default)]
struct Decided {
    late: u64,
    silent: u64,
    cut: u64,
    written: Vec<Option<f64>>,
}

/// One row of a table with requests.
fn request(grid: &Grid, layout: Layout, run: &mut Run, decided: &mut Decided) -> Result<()> {
    let mut f = TimelineFields { id: grid.line().to_string(), ..TimelineFields::default() };
    let key: fn(&str) -> &'static str = if layout == Layout::Dstack {
        let (ttft, gaps) = (grid.needed("ttft_s")?, grid.needed("sum_itl_s")?);
        let output = grid.count("output_len")?;
        let errored = match grid.text("error")? {
            None | Some("False") => false,
            Some("True") => true,
            Some(other) => return Err(grid.wrong("error", other, "`True` or `False`")),
        };
        let silent = ttft == 0.0 && output.is_none_or(|n| n == 0);
        decided.silent += u64::from(silent && !errored);
        f.input_tokens = grid.count("input_len")?;
        f.ttft = Some(ttft).filter(|&t| t != 0.0);
        if errored || silent {
            f.outcome = Outcome::Failed;
            decided.cut += u64::from(f.ttft.is_some());
        } else {
            f.e2e = Some(ttft + gaps);
            f.output_tokens = output.filter(|&n| 0 < n);
        }
        add_number(run, "n_itl", grid.number("n_itl")?);
        |field| match field {
            "input_tokens" => "input_len",
            "output_tokens" => "output_len",
            "e2e" | "last_token" => "sum_itl_s",
            _ => "ttft_s",
        }
    } else {
        let (ttft, rest) = (grid.needed("ttft")?, grid.needed("generation_time")?);
        f.arrival = grid.instant("launch_time", 0)?;
        (f.ttft, f.e2e) = (Some(ttft), Some(ttft + rest));
        f.input_tokens = grid.count("prompt_tokens")?;
        f.output_tokens = grid.count("generation_tokens")?;
        for column in ["user_id", "question_id"] {
            if grid.has(column) {
                add_text(run, column, grid.text(column)?.map(str::to_owned));
            }
        }
        if run.timelines.is_empty() {
            run.clock = Clock::Epoch;
            let rate = grid.number("qps")?.filter(|q| 0.0 < *q);
            run.declared.request_rate = rate.map(RequestRate::PerSecond);
            run.declared.label = grid.text("workload")?.map(str::to_owned);
        }
        |field| match field {
            "arrival" => "launch_time",
            "input_tokens" => "prompt_tokens",
            "output_tokens" => "generation_tokens",
            "e2e" | "last_token" => "generation_time",
            _ => "ttft",
        }
    };
    decided.written.push(f.ttft);
    if f.output_tokens == Some(1) && f.ttft < f.e2e {
        decided.late += 1;
        f.ttft = f.e2e;
    }
    run.timelines.push(grid.timeline(f, key)?);
    Ok(())
}

/// Says what was decided and what the file cannot give.
fn describe(layout: Layout, decided: &Decided, run: &mut Run) {
    if 0 < decided.late {
        for ttft in &decided.written {
            add_number(run, "ttft_as_written_s", *ttft);
        }
        let text = format!(
            "{} with an end behind its chunk: the end is taken for both, the file's own TTFT is in \
             the column ttft_as_written_s",
            things(decided.late, "one-token answer")
        );
        run.note("one-token-in-several-chunks", &["ttft"], text);
    }
    if 0 < decided.silent {
        let text = format!(
            "{} without a TTFT and without an output token is taken as failed; the tool counted \
             them as completed, with a TTFT of 0",
            things(decided.silent, "request")
        );
        run.note("failures-without-error", &["ttft", "request_throughput", "goodput"], text);
    }
    if 0 < decided.cut {
        let text = format!(
            "{} cut after the first chunk: TTFT is kept, E2E and output tokens are unknown",
            things(decided.cut, "failed request")
        );
        run.note("cut-in-mid-stream", &["e2e_latency", "token_throughput"], text);
    }
    if layout == Layout::Dstack {
        let text = "E2E is TTFT + the sum of the gaps".to_owned();
        run.note("e2e-from-gaps", &["e2e_latency", "tpot"], text);
        run.lacks("arrivals, and with them concurrency over time", "a result with `start_times`");
        run.lacks("duration of the run", "the summary of the same run");
    } else {
        run.lacks("failed requests", "the client's log: only answered requests are in the file");
        run.lacks("duration of the run", "the client's log");
    }
    run.lacks("gaps between outputs", "the tool's own result");
    run.lacks("queue time in the server", "the server's own metrics or log");
}

/// One row of a table of summaries.
fn summary(grid: &Grid, layout: Layout) -> Result<Run> {
    let tool = Tool { name: layout.tool().to_owned(), ..Tool::default() };
    let mut run = Run { line: grid.line(), tool, ..Run::default() };
    for column in grid.columns().iter().filter(|c| !c.is_empty()) {
        let Some(text) = grid.text(column)? else { continue };
        match text.parse::<f64>().ok().filter(|x| x.is_finite()) {
            Some(x) => run.stated.push(column.clone(), x),
            None if is_figure(column) => return Err(grid.wrong(column, text, "a finite number")),
            None => run.declared.metadata.push((column.clone(), text.to_owned())),
        }
    }
    run.declared.model = grid.text("model")?.map(str::to_owned);
    if layout == Layout::Mlperf {
        let rate = grid.number("target_qps")?.filter(|q| 0.0 < *q);
        run.declared.request_rate = rate.map(RequestRate::PerSecond);
        run.declared.label = grid.text("system")?.map(str::to_owned);
        if grid.text("valid")?.is_some_and(|v| v != "True") {
            let text = "loadgen itself does not accept the run".to_owned();
            run.note("result-invalid", &["request_throughput", "token_throughput"], text);
        }
    } else {
        run.declared.max_concurrency = in_flight_limit(grid.count("users")?);
        run.counts.completed = grid.count("n_ok")?;
        run.counts.failed = grid.count("n_bad")?;
        let length = grid.number("dur_s")?.filter(|d| 0.0 < *d);
        if let Some(value) = length.and_then(|d| Seconds::new(d).ok()) {
            let from = "`dur_s` of the summary";
            run.duration = Some(RunDuration { value, from });
        }
        if run.counts.failed.is_some_and(|n| 0 < n) {
            let text = "requests failed for want of memory, long ones first: the latencies are \
                        those of the short ones";
            run.note("survivors-are-short", &["ttft", "tpot", "e2e_latency"], text.to_owned());
        }
    }
    if run.stated.is_empty() {
        return Err(grid.wrong(layout.columns().first().copied().unwrap_or(""), "", "figures"));
    }
    run.lacks("ttft per request", "the result of the run itself");
    run.lacks("e2e latency per request", "the result of the run itself");
    run.lacks("output tokens and tpot per request", "the result of the run itself");
    run.lacks("arrivals, and with them concurrency over time", "the result of the run itself");
    Ok(run)
}

/// Whether a column holds figures, so that a text in it is damage.
fn is_figure(column: &str) -> bool {
    ["e2e_", "ttft_", "tpot_"].iter().any(|p| column.starts_with(p))
}
