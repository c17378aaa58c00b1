//! What simulated servers did over time, as JSON lines: their steps, and who waited.
//!
//! The first line says `schema_version` (1) and `kind` (`goodput-series`); times are seconds from
//! the start of the run. Each other line is one of two kinds; where there are several servers, it
//! says of which one it is: its number from 0 as `server`, with `pool` (`prefill` or `decode`) where
//! there are two. The lines of one server are in order of time.
//!
//! | key of a line `"series":"steps"` | meaning |
//! |---|---|
//! | `start_s`, `end_s` | from the start of its first step to the end of its last |
//! | `steps` | how many; 0 for a gap in which nothing ran |
//! | `running` | requests in the batch |
//! | `decodes`, `prefills` | those that decoded in each step, and prompt chunks in each step |
//! | `prefill_tokens` | prompt tokens in each step |
//! | `kv_held_tokens_start`, `kv_held_tokens_end` | tokens whose KV the batch held before the first step and after the last, before anybody left: a prefix that several requests share counts once, and the newest token of an answer only once it is stored, by the step that comes next; in between they grow by the same number in each step |
//! | `kv_used_blocks_start`, `kv_used_blocks_end` | KV blocks of the batch while the first step ran and while the last did, where blocks are counted |
//! | `kv_cached_blocks_start`, `kv_cached_blocks_end` | blocks that hold a prefix and that nobody uses, likewise, where there is a prefix cache |
//!
//! Consecutive steps that agree in batch and work are one line, whatever the engine skipped and
//! wherever a router looked at the server.
//!
//! | key of a line `"series":"waiting"` | meaning |
//! |---|---|
//! | `at_s` | when the number changed |
//! | `waiting` | requests that have arrived and are not in the batch, preempted ones included, from then on; of a router that keeps a queue, those of all its servers together, without `server` |

use std::collections::BTreeMap;
use std::io::{self, Write};

use sched_sim::history::Blocks;
use sched_sim::{Observer, RunResult, Stretch, Ticks};
use serde_json::{Map, Value, json};

use crate::servers::{Place, Servers};

/// Consecutive steps that differ in nothing but the age of their requests, or a gap of no steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepRun {
    /// When its first step started.
    pub start: Ticks,
    /// When its last step ended.
    pub end: Ticks,
    /// How many steps it has.
    pub steps: u64,
    /// Requests in the batch.
    pub running: u64,
    /// Requests that decoded in each step.
    pub decodes: u64,
    /// Prompt chunks in each step.
    pub prefills: u64,
    /// Prompt tokens in each step.
    pub prefill_tokens: u64,
    /// Tokens held in KV before the first step.
    pub held_start: u64,
    /// KV blocks while the first and while the last step ran, where they are counted.
    pub blocks: Option<[Blocks; 2]>,
}

impl StepRun {
    /// Tokens held in KV after the last step, before anybody left.
    #[must_use]
    pub const fn held_end(&self) -> u64 {
        self.held_start + self.steps * (self.prefill_tokens + self.decodes)
    }

    /// Whether `next` goes on where this one ends, doing the same.
    fn is_continued_by(&self, next: &Self) -> bool {
        let same = |r: &Self| (r.running, r.decodes, r.prefills, r.prefill_tokens, r.steps == 0);
        same(self) == same(next) && self.end == next.start && self.held_end() == next.held_start
    }

    /// A gap in which nothing runs.
    const fn gap(start: Ticks, end: Ticks) -> Self {
        Self {
            start,
            end,
            steps: 0,
            running: 0,
            decodes: 0,
            prefills: 0,
            prefill_tokens: 0,
            held_start: 0,
            blocks: None,
        }
    }

    fn json(&self, servers: &Servers, server: usize) -> Value {
        let mut line = of_series("steps", servers, Place::Server(server));
        for (key, value) in [
            ("start_s", json!(self.start.seconds())),
            ("end_s", json!(self.end.seconds())),
            ("steps", json!(self.steps)),
            ("running", json!(self.running)),
            ("decodes", json!(self.decodes)),
            ("prefills", json!(self.prefills)),
            ("prefill_tokens", json!(self.prefill_tokens)),
            ("kv_held_tokens_start", json!(self.held_start)),
            ("kv_held_tokens_end", json!(self.held_end())),
        ] {
            line.insert(key.to_owned(), value);
        }
        for (end, blocks) in ["start", "end"].into_iter().zip(self.blocks.into_iter().flatten()) {
            line.insert(format!("kv_used_blocks_{end}"), json!(blocks.used));
        }
        for (end, blocks) in ["start", "end"].into_iter().zip(self.blocks.into_iter().flatten()) {
            if let Some(cached) = blocks.cached {
                line.insert(format!("kv_cached_blocks_{end}"), json!(cached));
            }
        }
        Value::Object(line)
    }
}

/// The begin of a line.
fn of_series(series: &str, servers: &Servers, place: Place) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("series".to_owned(), json!(series));
    servers.put(place, &mut line);
    line
}

/// The steps of every server, run-length encoded: an [`Observer`] to run with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepSeries {
    servers: Vec<Vec<StepRun>>,
    /// The server that runs now.
    server: usize,
}

impl StepSeries {
    /// The runs of a server, counted from 0, in order of time, gaps included.
    #[must_use]
    pub fn of_server(&self, server: usize) -> &[StepRun] {
        self.servers.get(server).map_or(&[], Vec::as_slice)
    }

    fn push(&mut self, next: StepRun) {
        if self.servers.len() <= self.server {
            self.servers.resize_with(self.server + 1, Vec::new);
        }
        let Some(runs) = self.servers.get_mut(self.server) else { return };
        match runs.last_mut() {
            Some(last) if last.is_continued_by(&next) => {
                last.steps += next.steps;
                last.end = next.end;
                if let (Some([_, last]), Some([_, next])) = (&mut last.blocks, next.blocks) {
                    *last = next;
                }
            }
            _ => runs.push(next),
        }
    }

    /// The runs of one server of several, up to the end of the run of all: whoever is done before
    /// the others then has nothing to do.
    fn up_to(&self, server: usize, end: Ticks) -> Vec<StepRun> {
        let mut runs = self.of_server(server).to_vec();
        // How long it was idle in the end is what a router happened to look at.
        while runs.last().is_some_and(|last| last.steps == 0) {
            runs.pop();
        }
        let over = runs.last().map_or(Ticks::ZERO, |last| last.end);
        if over < end {
            runs.push(StepRun::gap(over, end));
        }
        runs
    }
}

impl Observer for StepSeries {
    fn server(&mut self, server: usize) {
        self.server = server;
    }

    fn stretch(&mut self, s: &Stretch) {
        self.push(StepRun {
            start: s.start,
            end: s.end,
            steps: s.steps,
            running: s.running,
            decodes: s.work.decodes,
            prefills: s.work.prefills,
            prefill_tokens: s.work.prefill_tokens,
            held_start: s.held_tokens,
            blocks: s.blocks,
        });
    }

    fn idle(&mut self, from: Ticks, to: Ticks) {
        self.push(StepRun::gap(from, to));
    }
}

/// Where and when the number of waiting requests changed, and what it was from then on, place by
/// place in order of time.
#[must_use]
pub fn waiting(result: &RunResult<'_>, servers: &Servers) -> Vec<(Place, Ticks, u64)> {
    let mut changes: BTreeMap<(Place, Ticks), i64> = BTreeMap::new();
    let mut add = |place, at: Ticks, by: i64| *changes.entry((place, at)).or_default() += by;
    let injected = usize::try_from(result.statistics().injected).unwrap_or(usize::MAX);
    let mut details = result.details().iter().peekable();
    let requests = result.workload().requests().iter().zip(result.records()).enumerate();
    for (position, (request, record)) in requests.take(injected) {
        let detail = details.next_if(|d| d.position == position);
        let rejected = detail.is_some_and(|d| d.rejected.is_some());
        let moved = detail.and_then(|d| d.transfer).and_then(|transfer| {
            // Whoever the second pool refuses does not wait there.
            transfer.to.filter(|_| !rejected).map(|to| (to, transfer.admitted))
        });
        if rejected && record.scheduled().is_none() {
            continue;
        }
        // Who leaves while it waits ends its wait so.
        let left = detail.and_then(|d| d.cancelled.or(d.timed_out));
        let (first, second) = Servers::that_had(result, position, detail);
        let first = servers.waits_at(0, first);
        let second = servers.waits_at(1, second);
        let mut waits = vec![(first, request.arrival, record.scheduled())];
        waits.extend(moved.map(|(from, to)| (second, from, to)));
        let stalls = detail.map(|d| d.stalls.as_slice()).unwrap_or_default();
        waits.extend(stalls.iter().map(|stall| {
            let is_second = moved.is_some_and(|(to, _)| to <= stall.from);
            (if is_second { second } else { first }, stall.from, stall.readmitted)
        }));
        for (place, from, to) in waits {
            add(place, from, 1);
            if let Some(to) = to.or(left) {
                add(place, to, -1);
            }
        }
    }
    let mut series = Vec::new();
    let (mut at_place, mut now) = (None, 0_i64);
    for ((place, at), by) in changes.into_iter().filter(|(_, by)| *by != 0) {
        now = if at_place == Some(place) { now + by } else { by };
        at_place = Some(place);
        series.push((place, at, now.unsigned_abs()));
    }
    series
}

/// Writes the series of a run, and gives the writer back.
///
/// # Errors
///
/// What the system says.
///
/// # Examples
///
/// ```
/// use sched_sim::{Affine, DecodeFirst, Simulation, Ticks, Workload, WorkloadRequest};
/// use serving_io::series::{StepSeries, write};
/// use serving_io::servers::Servers;
///
/// let workload = Workload::new(vec![WorkloadRequest::new("a", Ticks::ZERO, 100, 3)])?;
/// let step: Affine = "base=1ms,prefill=10us/token".parse()?;
/// let mut steps = StepSeries::default();
/// let simulation = Simulation::new(&workload, DecodeFirst::new(8, 512)?, step);
/// let result = simulation.run_observed(&mut steps)?;
///
/// // A step of 2 ms for the prompt, and three of 1 ms that differ in nothing.
/// let text = String::from_utf8(write(Vec::new(), &result, &steps, &Servers::one())?)?;
/// assert_eq!(text.lines().count(), 3);
/// assert!(text.contains(r#""start_s":0.002,"end_s":0.005,"steps":3,"running":1,"decodes":1"#));
/// assert!(text.contains(r#""kv_held_tokens_start":100,"kv_held_tokens_end":103"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<W: Write>(
    mut out: W,
    result: &RunResult<'_>,
    steps: &StepSeries,
    servers: &Servers,
) -> io::Result<W> {
    writeln!(out, "{}", json!({ "schema_version": 1, "kind": "goodput-series" }))?;
    for server in 0..servers.count() {
        let whole;
        let runs = if servers.is_one() {
            steps.of_server(server)
        } else {
            whole = steps.up_to(server, result.statistics().end);
            whole.as_slice()
        };
        for run in runs {
            writeln!(out, "{}", run.json(servers, server))?;
        }
    }
    for (place, at, n) in waiting(result, servers) {
        let mut line = of_series("waiting", servers, place);
        line.insert("at_s".to_owned(), json!(at.seconds()));
        line.insert("waiting".to_owned(), json!(n));
        writeln!(out, "{}", Value::Object(line))?;
    }
    out.flush()?;
    Ok(out)
}
