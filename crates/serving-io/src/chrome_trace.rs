//! A window of a simulated run as a Chrome trace, which Perfetto and `chrome://tracing` show.
//!
//! Of each server one process holds the steps and counters, another one a track for each request
//! that it had, with what that was doing: waiting, prefill, decode, preempted. A KV transfer between
//! two pools is in a process of its own.
//!
//! Source: the JSON object format of the Trace Event Format: complete events (`ph` X) with `ts` and
//! `dur` in microseconds, counters (`ph` C) and names (`ph` M).

use std::io::{self, Write};

use sched_sim::history::{BatchHistory, BatchRun};
use sched_sim::simulation::Stall;
use sched_sim::{RunResult, Ticks};
use serde_json::{Value, json};

use crate::servers::Servers;

/// The time that is written: steps and stages that reach into it are cut at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceWindow {
    /// Its start.
    pub from: Ticks,
    /// Its end.
    pub to: Ticks,
}

/// The processes of a server, counted from 0: its steps, and its requests.
const fn steps_of(server: usize) -> u64 {
    2 * server as u64 + 1
}

const fn requests_of(server: usize) -> u64 {
    2 * server as u64 + 2
}

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
/// use serving_io::servers::Servers;
///
/// let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 100, 3)])?;
/// let step: Affine = "base=1ms,prefill=10us/token".parse()?;
/// let mut history = BatchHistory::new();
/// let simulation = Simulation::new(&workload, DecodeFirst::new(8, 512)?, step);
/// let result = simulation.run_observed(&mut history)?;
///
/// let window = TraceWindow { from: Ticks::ZERO, to: "1s".parse()? };
/// let text = String::from_utf8(write(Vec::new(), &result, &history, &Servers::one(), window)?)?;
/// // 2 ms for the prompt, and three steps of 1 ms that differ in nothing.
/// assert!(text.contains(r#""name":"prefill","ph":"X","pid":2,"tid":0,"ts":0.0,"dur":2000.0"#));
/// assert!(text.contains(r#""name":"3 steps: 1 decode","ph":"X","pid":1,"tid":0,"ts":2000.0"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<W: Write>(
    out: W,
    result: &RunResult<'_>,
    history: &BatchHistory,
    servers: &Servers,
    window: TraceWindow,
) -> io::Result<W> {
    let mut writer = Events { out, first: true, window };
    writer.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
    for server in 0..servers.count() {
        let name = servers.name(server);
        let named =
            |what| if name.is_empty() { String::from(what) } else { format!("{name} {what}") };
        writer.name("process_name", steps_of(server), 0, &named("steps"))?;
        writer.name("process_name", requests_of(server), 0, &named("requests"))?;
        for run in history.of_server(server) {
            let end = run.start.after(run.duration);
            if run.steps > 0 {
                writer.span(&step_name(run), (steps_of(server), 0), run.start, end)?;
            }
        }
        writer.batch(steps_of(server), history.of_server(server))?;
    }
    // Above the processes of the servers.
    let between = steps_of(servers.count());
    let queue = requests_of(servers.count());
    if result.details().iter().any(|d| d.transfer.is_some()) {
        writer.name("process_name", between, 0, "KV transfer")?;
    }
    let mut queue_named = false;
    let end = result.statistics().end;
    let mut details = result.details().iter().peekable();
    let requests = result.workload().requests().iter().zip(result.records()).enumerate();
    for (position, (request, record)) in requests {
        let detail = details.next_if(|d| d.position == position);
        let left = detail.and_then(|d| d.cancelled.or(d.timed_out)).unwrap_or(end);
        let refused = detail.is_some_and(|d| d.rejected.is_some());
        let transfer = detail.and_then(|d| d.transfer);
        // The second pool refuses whoever it cannot take at once.
        let refused_later = transfer.and_then(|t| t.to).filter(|_| refused);
        let over = record.last_token().or(refused_later).unwrap_or(left);
        if refused && refused_later.is_none() || over < window.from || window.to < request.arrival {
            continue;
        }
        let (first, second) = Servers::that_had(result, position, detail);
        let name = request.id.to_string();
        let track = |pid: u64| (pid, position as u64);
        let at_first = track(first.map_or(queue, requests_of));
        if first.is_none() && !queue_named {
            writer.name("process_name", queue, 0, "queue of the router")?;
            queue_named = true;
        }
        writer.thread(at_first, &name)?;
        let scheduled = record.scheduled().unwrap_or(over);
        writer.span("waiting", at_first, request.arrival, scheduled)?;
        let stalls = detail.map(|d| d.stalls.as_slice()).unwrap_or_default();
        let Some(transfer) = transfer else {
            let prompt_done = record.prompt_done().unwrap_or(over);
            writer.stages(at_first, (scheduled, over), prompt_done, stalls)?;
            continue;
        };
        let prompt_done = record.prompt_done().unwrap_or(over);
        let (of_prompt, of_answer) =
            stalls.split_at(stalls.partition_point(|stall| stall.from < transfer.from));
        writer.stages(at_first, (scheduled, transfer.from), prompt_done, of_prompt)?;
        writer.thread(track(between), &name)?;
        let there = transfer.to.unwrap_or(over).min(over);
        writer.span("KV transfer", track(between), transfer.from, there)?;
        if transfer.to.is_none() || refused {
            continue;
        }
        // Whoever waits for a server of the second pool waits in its router's queue.
        let at_second = track(second.map_or(queue, requests_of));
        writer.thread(at_second, &name)?;
        let admitted = transfer.admitted.unwrap_or(over);
        writer.span("waiting", at_second, there, admitted)?;
        writer.stages(at_second, (admitted, over), prompt_done, of_answer)?;
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

    fn thread(&mut self, (pid, tid): (u64, u64), name: &str) -> io::Result<()> {
        self.name("thread_name", pid, tid, name)
    }

    /// The stages of a request on one server, which stalls cut.
    fn stages(
        &mut self,
        track: (u64, u64),
        (from, over): (Ticks, Ticks),
        prompt_done: Ticks,
        stalls: &[Stall],
    ) -> io::Result<()> {
        let stage = |writer: &mut Self, from: Ticks, to: Ticks| -> io::Result<()> {
            writer.span("prefill", track, from, to.min(prompt_done))?;
            writer.span("decode", track, from.max(prompt_done), to)
        };
        let mut from = from;
        for stall in stalls {
            stage(self, from, stall.from)?;
            let back = stall.readmitted.unwrap_or(over);
            self.span("preempted", track, stall.from, back)?;
            from = stall.recomputed.unwrap_or(back);
            self.span("recompute", track, back, from)?;
        }
        stage(self, from, over)
    }

    /// A complete event, cut to the window; none where nothing of it is left.
    fn span(
        &mut self,
        name: &str,
        (pid, tid): (u64, u64),
        from: Ticks,
        to: Ticks,
    ) -> io::Result<()> {
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

    /// The batch of a server from the start of the window on, at every instant at which it changes.
    fn batch(&mut self, pid: u64, runs: &[BatchRun]) -> io::Result<()> {
        let none = (0, 0);
        let (mut value, mut over) = (none, Ticks::ZERO);
        let mut changes = vec![(Ticks::ZERO, none)];
        let mut change = |at: Ticks, to: (u64, u64)| {
            // A viewer holds the last value, so that an end is a change as well.
            if to != value {
                changes.push((at, to));
                value = to;
            }
        };
        for run in runs {
            if over < run.start {
                change(over, none);
            }
            change(run.start, (run.decodes, run.prefills));
            over = run.start.after(run.duration);
        }
        change(over, none);
        let begun = changes.partition_point(|(at, _)| *at <= self.window.from);
        let (before, later) = changes.split_at(begun);
        let TraceWindow { from, to } = self.window;
        let first = before.last().map(|(_, batch)| (from, *batch));
        let later = later.iter().copied().take_while(|(at, _)| *at <= to);
        for (at, (decodes, prefills)) in first.into_iter().chain(later) {
            let values = json!({"decode": decodes, "prefill": prefills});
            self.event(
                &format!("\"name\":\"batch\",\"ph\":\"C\",\"pid\":{pid},\"tid\":0"),
                &format!(",\"ts\":{:?},\"args\":{values}", microseconds(at)),
            )?;
        }
        Ok(())
    }
}
