//! A window of a simulated run as a Chrome trace, which Perfetto and `chrome://tracing` show.
//!
//! One process holds the steps of the server and its counters, another one a track for each
//! request, with what it was doing: waiting, prefill, decode, preempted.
//!
//! Source: the JSON object format of the Trace Event Format: complete events (`ph` X) with `ts` and
//! `dur` in microseconds, counters (`ph` C) and names (`ph` M).

use std::io::{self, Write};

use sched_sim::history::BatchRun;
use sched_sim::{RunResult, Ticks};
use serde_json::{Value, json};

/// The time that is written: steps and stages that reach into it are cut at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceWindow {
    /// Its start.
    pub from: Ticks,
    /// Its end.
    pub to: Ticks,
}

const STEPS: u64 = 1;
const REQUESTS: u64 = 2;

/// Writes the steps and requests of a run that reach into the window, and gives the writer back.
///
/// # Errors
///
/// What the system says.
///
/// # Examples
///
/// ```
/// use sched_sim::{Affine, BatchHistory, DecodeFirst, Simulation, Ticks, Workload, WorkloadRequest};
/// use serving_io::chrome_trace::{TraceWindow, write};
///
/// let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 100, 3)])?;
/// let step: Affine = "base=1ms,prefill=10us/token".parse()?;
/// let mut history = BatchHistory::new();
/// let simulation = Simulation::new(&workload, DecodeFirst::new(8, 512)?, step);
/// let result = simulation.run_observed(&mut history)?;
///
/// let window = TraceWindow { from: Ticks::ZERO, to: "1s".parse()? };
/// let text = String::from_utf8(write(Vec::new(), &result, history.runs(), window)?)?;
/// // 2 ms for the prompt, and three steps of 1 ms that differ in nothing.
/// assert!(text.contains(r#""name":"prefill","ph":"X","pid":2,"tid":0,"ts":0.0,"dur":2000.0"#));
/// assert!(text.contains(r#""name":"3 steps: 1 decode","ph":"X","pid":1,"tid":0,"ts":2000.0"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<W: Write>(
    out: W,
    result: &RunResult<'_>,
    steps: &[BatchRun],
    window: TraceWindow,
) -> io::Result<W> {
    let mut writer = Events { out, first: true, window };
    writer.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
    writer.name("process_name", STEPS, 0, "steps")?;
    writer.name("process_name", REQUESTS, 0, "requests")?;
    for run in steps {
        let end = run.start.after(run.duration);
        if run.steps > 0 {
            writer.span(&step_name(run), STEPS, 0, run.start, end)?;
        }
        writer.counter(
            "batch",
            run.start,
            &json!({"decode": run.decodes, "prefill": run.prefills}),
        )?;
    }
    let end = result.statistics().end;
    let mut details = result.details().iter().peekable();
    let requests = result.workload().requests().iter().zip(result.records()).enumerate();
    for (position, (request, record)) in requests {
        let detail = details.next_if(|d| d.position == position);
        let left = detail.and_then(|d| d.cancelled).unwrap_or(end);
        let over = record.last_token().unwrap_or(left);
        if detail.is_some_and(|d| d.rejected.is_some())
            || over < window.from
            || window.to < request.arrival
        {
            continue;
        }
        let track = position as u64;
        writer.name("thread_name", REQUESTS, track, &request.id.to_string())?;
        let scheduled = record.scheduled().unwrap_or(over);
        let prompt_done = record.prompt_done().unwrap_or(over);
        writer.span("waiting", REQUESTS, track, request.arrival, scheduled)?;
        // A stall cuts the stage that it falls into.
        let mut from = scheduled;
        let stalls = detail.map(|d| d.stalls.as_slice()).unwrap_or_default();
        let stage = |writer: &mut Events<W>, from: Ticks, to: Ticks| -> io::Result<()> {
            writer.span("prefill", REQUESTS, track, from, to.min(prompt_done))?;
            writer.span("decode", REQUESTS, track, from.max(prompt_done), to)
        };
        for stall in stalls {
            stage(&mut writer, from, stall.from)?;
            let back = stall.readmitted.unwrap_or(over);
            writer.span("preempted", REQUESTS, track, stall.from, back)?;
            from = stall.recomputed.unwrap_or(back);
            writer.span("recompute", REQUESTS, track, back, from)?;
        }
        stage(&mut writer, from, over)?;
    }
    writer.out.write_all(b"\n]}\n")?;
    writer.out.flush()?;
    Ok(writer.out)
}

fn step_name(run: &BatchRun) -> String {
    let some = |n: u64, what: &str| (n > 0).then(|| metrics_core::format::things(n, what));
    let parts: Vec<String> = [some(run.decodes, "decode"), some(run.prefills, "prompt chunk")]
        .into_iter()
        .flatten()
        .collect();
    format!("{}: {}", metrics_core::format::things(run.steps, "step"), parts.join(", "))
}

struct Events<W> {
    out: W,
    first: bool,
    window: TraceWindow,
}

fn microseconds(t: Ticks) -> f64 {
    t.attoseconds() as f64 / 1e12
}

impl<W: Write> Events<W> {
    fn event(&mut self, head: &str, tail: &str) -> io::Result<()> {
        let comma = if self.first { "" } else { ",\n" };
        self.first = false;
        write!(self.out, "{comma}{{{head}{tail}}}")
    }

    fn name(&mut self, what: &str, pid: u64, tid: u64, name: &str) -> io::Result<()> {
        let name = Value::from(name);
        self.event(
            &format!("\"name\":\"{what}\",\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid}"),
            &format!(",\"args\":{{\"name\":{name}}}"),
        )
    }

    /// A complete event, cut to the window; none where nothing of it is left.
    fn span(&mut self, name: &str, pid: u64, tid: u64, from: Ticks, to: Ticks) -> io::Result<()> {
        let (from, to) = (from.max(self.window.from), to.min(self.window.to));
        if to <= from {
            return Ok(());
        }
        let duration = to.since(from).unwrap_or_default();
        let name = Value::from(name);
        self.event(
            &format!("\"name\":{name},\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid}"),
            &format!(",\"ts\":{:?},\"dur\":{:?}", microseconds(from), microseconds(duration)),
        )
    }

    fn counter(&mut self, name: &str, at: Ticks, values: &Value) -> io::Result<()> {
        if at < self.window.from || self.window.to < at {
            return Ok(());
        }
        self.event(
            &format!("\"name\":\"{name}\",\"ph\":\"C\",\"pid\":{STEPS},\"tid\":0"),
            &format!(",\"ts\":{:?},\"args\":{values}", microseconds(at)),
        )
    }
}
