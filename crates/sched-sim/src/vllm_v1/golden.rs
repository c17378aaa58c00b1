//! Recorded traces of vLLM's own scheduler, and whether a replay agrees with one.
//!
//! The types are the lines of the trace format; reading files is the caller's.

use std::fmt::{self, Debug};

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::config::{QueuePolicy, VllmConfig};
use super::plan::{FinishReason, Kind, Plan, Update};
use super::replay::{
    Abort, Intake, Outcome, Phase, Replay, ReplayRecord, ReplayRequest, StepNanoseconds, Watcher,
};
use super::scheduler::VllmV1;
use crate::error::Result;

/// Segments from here on are answers: of request r, this plus r.
const OUTPUT_SEGMENTS: u64 = 1_000_000;

/// The input of a trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name.
    pub name: String,
    #[serde(rename = "desc", default)]
    _description: String,
    mode: Mode,
    engine: Engine,
    #[serde(default)]
    detail: bool,
    config: Config,
    #[serde(default)]
    step_time: Option<StepTime>,
    requests: Vec<Request>,
    #[serde(default)]
    aborts: Vec<AbortLine>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Step,
    Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Sync,
    Async,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Queue {
    Fcfs,
    Priority,
}

/// vLLM's options; what is left out has the recording harness's default.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "vLLM's options")]
struct Config {
    block_size: u64,
    num_blocks: u64,
    max_num_seqs: u64,
    max_num_batched_tokens: u64,
    max_model_len: u64,
    enable_chunked_prefill: bool,
    enable_prefix_caching: bool,
    policy: Queue,
    long_prefill_token_threshold: u64,
    long_prefill_token_threshold_adaptive: bool,
    scheduler_reserve_full_isl: bool,
    watermark: f64,
    max_num_active_seqs: Option<u64>,
    max_num_scheduled_tokens: Option<u64>,
    prefill_schedule_interval: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            block_size: 16,
            num_blocks: 1025,
            max_num_seqs: 16,
            max_num_batched_tokens: 512,
            max_model_len: 4096,
            enable_chunked_prefill: true,
            enable_prefix_caching: true,
            policy: Queue::Fcfs,
            long_prefill_token_threshold: 0,
            long_prefill_token_threshold_adaptive: false,
            scheduler_reserve_full_isl: true,
            watermark: 0.0,
            max_num_active_seqs: None,
            max_num_scheduled_tokens: None,
            prefill_schedule_interval: 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTime {
    #[serde(rename = "a_ns")]
    a: u64,
    #[serde(rename = "b_ns")]
    b: u64,
    #[serde(rename = "c_ns")]
    c: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    id: u64,
    arrival: u64,
    prompt: Vec<(u64, u64)>,
    output: u64,
    #[serde(default)]
    priority: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AbortLine {
    at: u64,
    id: u64,
    #[serde(default)]
    phase: PhaseName,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PhaseName {
    #[default]
    Before,
    During,
}

/// The first line of a trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    format: String,
    #[serde(rename = "vllm")]
    version: String,
    name: String,
    mode: Mode,
    engine: Engine,
    config: Config,
    #[serde(default)]
    step_time: Option<StepTime>,
}

/// One step of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    i: u64,
    t: Option<u64>,
    e: Option<u64>,
    add: Vec<u64>,
    rej: Vec<u64>,
    ab: Vec<u64>,
    s: Vec<(u64, u64, u64, u8)>,
    b: Option<Vec<Vec<u32>>>,
    p: Vec<u64>,
    r: u64,
    w: u64,
    fb: u64,
    abd: Vec<u64>,
    f: Vec<u64>,
    fb2: u64,
}

/// The last line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    #[serde(rename = "end")]
    how: String,
    steps: u64,
    tokens: u64,
    #[serde(rename = "t_end", default)]
    time: Option<u64>,
    #[serde(rename = "cols")]
    _columns: IgnoredColumns,
    req: Vec<Row>,
}

/// The columns are the same in every trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IgnoredColumns;

impl<'de> Deserialize<'de> for IgnoredColumns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer).map(|_| Self)
    }
}

/// What became of one request: id, admit, hit, first, fin, why, pre, nout, and with a clock
/// first_t, fin_t.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    id: u64,
    admit: Option<u64>,
    hit: Option<u64>,
    first: Option<u64>,
    fin: Option<u64>,
    why: Option<String>,
    pre: u64,
    nout: u64,
    first_t: Option<u64>,
    fin_t: Option<u64>,
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cells;
        impl<'de> Visitor<'de> for Cells {
            type Value = Row;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the 8 or 10 cells of a request")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut cells: A) -> Result<Row, A::Error> {
                fn cell<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
                    cells: &mut A,
                ) -> Result<T, A::Error> {
                    cells.next_element()?.ok_or_else(|| A::Error::custom("a cell is missing"))
                }
                Ok(Row {
                    id: cell(&mut cells)?,
                    admit: cell(&mut cells)?,
                    hit: cell(&mut cells)?,
                    first: cell(&mut cells)?,
                    fin: cell(&mut cells)?,
                    why: cell(&mut cells)?,
                    pre: cell(&mut cells)?,
                    nout: cell(&mut cells)?,
                    first_t: cells.next_element::<Option<u64>>()?.flatten(),
                    fin_t: cells.next_element::<Option<u64>>()?.flatten(),
                })
            }
        }
        deserializer.deserialize_seq(Cells)
    }
}

/// A trace: what vLLM did with a workload.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its first line.
    pub header: Header,
    /// A line per step.
    pub steps: Vec<Step>,
    /// Its last line.
    pub end: End,
}

/// The first place where a replay and a trace differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The step, unless it is in the header or in the last line.
    pub step: Option<u64>,
    /// The key of the trace that differs.
    pub key: &'static str,
    /// What the trace says.
    pub expected: String,
    /// What the replay says.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}, ")?,
            None => f.write_str("whole run, ")?,
        }
        write!(f, "`{}`: expected {}, got {}", self.key, self.expected, self.got)
    }
}

impl Workload {
    /// The options for the scheduler.
    #[must_use]
    pub fn config(&self) -> VllmConfig {
        let given = &self.config;
        VllmConfig {
            block_size: given.block_size,
            max_num_batched_tokens: given.max_num_batched_tokens,
            max_num_seqs: given.max_num_seqs,
            max_num_active_seqs: given.max_num_active_seqs,
            max_num_scheduled_tokens: given.max_num_scheduled_tokens,
            enable_chunked_prefill: given.enable_chunked_prefill,
            enable_prefix_caching: given.enable_prefix_caching,
            policy: match given.policy {
                Queue::Fcfs => QueuePolicy::Fcfs,
                Queue::Priority => QueuePolicy::Priority,
            },
            async_scheduling: Some(self.engine == Engine::Async),
            long_prefill_token_threshold: given.long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive: given.long_prefill_token_threshold_adaptive,
            scheduler_reserve_full_isl: Some(given.scheduler_reserve_full_isl),
            watermark: given.watermark,
            prefill_schedule_interval: given.prefill_schedule_interval,
            ..VllmConfig::new(given.num_blocks, given.max_model_len)
        }
    }

    /// Its requests and aborts.
    #[must_use]
    pub fn replay(&self) -> Replay {
        let request = |r: &Request| ReplayRequest {
            id: r.id,
            arrival: r.arrival,
            prompt: r.prompt.clone(),
            output_segment: OUTPUT_SEGMENTS + r.id,
            output: r.output,
            priority: r.priority,
        };
        let abort = |a: &AbortLine| {
            let during = a.phase == PhaseName::During;
            Abort::new(a.at, a.id, if during { Phase::During } else { Phase::Before })
        };
        Replay {
            requests: self.requests.iter().map(request).collect(),
            aborts: self.aborts.iter().map(abort).collect(),
            step_time: match (self.mode, self.step_time) {
                (Mode::Clock, Some(s)) => Some(StepNanoseconds::new(s.a, s.b, s.c)),
                _ => None,
            },
            max_steps: None,
        }
    }

    /// Runs the workload and compares it with what vLLM did.
    ///
    /// # Errors
    ///
    /// [`SimError`](crate::SimError) if the configuration is one that vLLM refuses.
    pub fn first_difference(&self, trace: &Trace) -> Result<Option<Difference>> {
        if let Some(difference) = self.header_difference(&trace.header) {
            return Ok(Some(difference));
        }
        // The traces include pools that vLLM would not start with, on purpose.
        let mut scheduler = VllmV1::with_any_capacity(self.config())?;
        scheduler.record_blocks(self.detail);
        let mut recorder = Recorder {
            clocked: self.mode == Mode::Clock,
            detail: self.detail,
            steps: Vec::with_capacity(trace.steps.len()),
            done: 0,
            unbalanced: None,
        };
        let mut replay = self.replay();
        // A wrong rule can go on for ever; one step more than recorded is difference enough.
        replay.max_steps = Some(trace.steps.len() as u64 + 1);
        let outcome = replay.run(&mut scheduler, &mut recorder);
        let Recorder { steps, unbalanced, .. } = recorder;
        if let Some(step) = unbalanced {
            return Ok(Some(Difference {
                step: Some(step),
                key: "books",
                expected: "used + cached + free = total".to_owned(),
                got: format!("{:?}", scheduler.kv_cache().books()),
            }));
        }
        Ok(steps_difference(&trace.steps, &steps)
            .or_else(|| end_difference(&trace.end, &self.end(&outcome))))
    }

    fn header_difference(&self, header: &Header) -> Option<Difference> {
        let key = |key| Place { step: None, key };
        key("format")
            .compare(&"vllm-sched-trace/1", &header.format.as_str())
            .or_else(|| key("vllm").compare(&"0.33.0", &header.version.as_str()))
            .or_else(|| key("name").compare(&header.name, &self.name))
            .or_else(|| key("mode").compare(&header.mode, &self.mode))
            .or_else(|| key("engine").compare(&header.engine, &self.engine))
            .or_else(|| key("config").compare(&header.config, &self.config))
            .or_else(|| key("step_time").compare(&header.step_time, &self.step_time))
    }

    fn end(&self, outcome: &Outcome) -> End {
        let clocked = self.mode == Mode::Clock;
        End {
            how: if outcome.stalled { "stalled" } else { "done" }.to_owned(),
            steps: outcome.steps,
            tokens: outcome.tokens,
            time: clocked.then_some(outcome.end),
            _columns: IgnoredColumns,
            req: self
                .requests
                .iter()
                .zip(&outcome.records)
                .map(|(request, record)| row(request.id, record, clocked))
                .collect(),
        }
    }
}

fn row(id: u64, record: &ReplayRecord, clocked: bool) -> Row {
    let step = |at: Option<(u64, u64)>| at.map(|(step, _)| step);
    let time = |at: Option<(u64, u64)>| at.map(|(_, time)| time).filter(|_| clocked);
    let why = match record.reason {
        Some(FinishReason::Length) => Some("length"),
        Some(FinishReason::Abort) => Some("abort"),
        None if record.rejected => Some("rejected"),
        None => None,
    };
    Row {
        id,
        admit: step(record.admitted),
        hit: record.admitted.map(|(_, hit)| hit),
        first: step(record.first_token),
        fin: step(record.last_token),
        why: why.map(str::to_owned),
        pre: record.preemptions,
        nout: record.outputs,
        first_t: time(record.first_token),
        fin_t: time(record.last_token),
    }
}

/// Writes down a replay as a trace, and checks the books of the KV cache after every step.
struct Recorder {
    clocked: bool,
    detail: bool,
    steps: Vec<Step>,
    /// Steps whose output was taken in.
    done: usize,
    unbalanced: Option<u64>,
}

impl Watcher for Recorder {
    fn scheduled(
        &mut self,
        step: u64,
        (at, end): (u64, u64),
        intake: &Intake,
        plan: &Plan,
        scheduler: &VllmV1,
    ) {
        let books = scheduler.kv_cache().books();
        if books.used + books.cached + books.free != books.total {
            self.unbalanced.get_or_insert(step);
        }
        let kind = |kind| match kind {
            Kind::Running => 0,
            Kind::New => 1,
            Kind::Resumed => 2,
        };
        self.steps.push(Step {
            i: step,
            t: self.clocked.then_some(at),
            e: self.clocked.then_some(end),
            add: intake.added.clone(),
            rej: intake.rejected.clone(),
            ab: intake.aborted.clone(),
            s: plan.rows().iter().map(|r| (r.id, r.tokens, r.computed, kind(r.kind))).collect(),
            b: self.detail.then(|| plan.rows().iter().map(|r| plan.blocks(r).to_vec()).collect()),
            p: plan.preempted().to_vec(),
            r: scheduler.num_running() as u64,
            w: scheduler.num_waiting() as u64,
            fb: scheduler.kv_cache().idle_blocks(),
            ..Step::default()
        });
    }

    fn aborted(&mut self, id: u64) {
        if let Some(step) = self.steps.last_mut() {
            step.abd.push(id);
        }
    }

    fn updated(&mut self, _step: u64, update: &Update, free_blocks: u64) {
        if let Some(step) = self.steps.get_mut(self.done) {
            step.f = update.finished.iter().map(|f| f.id).collect();
            step.fb2 = free_blocks;
        }
        self.done += 1;
    }
}

/// Where a difference is.
#[derive(Clone, Copy)]
struct Place {
    step: Option<u64>,
    key: &'static str,
}

impl Place {
    fn compare<T: PartialEq + Debug>(self, expected: &T, got: &T) -> Option<Difference> {
        (expected != got).then(|| self.difference(expected, got))
    }

    /// Of two lists, only the first entry that differs.
    fn compare_lists<T: PartialEq + Debug>(self, expected: &[T], got: &[T]) -> Option<Difference> {
        if expected == got {
            return None;
        }
        let at = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
        let name = |entry: Option<&T>| match entry {
            Some(entry) => format!("entry {at} = {}", shown(entry)),
            None => format!("{at} entries"),
        };
        let (expected, got) = (name(expected.get(at)), name(got.get(at)));
        Some(Difference { step: self.step, key: self.key, expected, got })
    }

    fn difference<T: Debug>(self, expected: &T, got: &T) -> Difference {
        Difference { step: self.step, key: self.key, expected: shown(expected), got: shown(got) }
    }
}

/// At most a line's worth.
fn shown(value: &impl Debug) -> String {
    const LONGEST: usize = 160;
    let text = format!("{value:?}");
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text,
    }
}

fn steps_difference(expected: &[Step], got: &[Step]) -> Option<Difference> {
    for (expected, got) in expected.iter().zip(got) {
        let key = |key| Place { step: Some(expected.i), key };
        let none = Vec::new();
        // What is decided first is compared first, so that causes come before consequences.
        let difference = key("i")
            .compare(&expected.i, &got.i)
            .or_else(|| key("t").compare(&expected.t, &got.t))
            .or_else(|| key("add").compare_lists(&expected.add, &got.add))
            .or_else(|| key("rej").compare_lists(&expected.rej, &got.rej))
            .or_else(|| key("ab").compare_lists(&expected.ab, &got.ab))
            .or_else(|| key("p").compare_lists(&expected.p, &got.p))
            .or_else(|| key("s").compare_lists(&expected.s, &got.s))
            .or_else(|| {
                let (expected, got) = (expected.b.as_ref(), got.b.as_ref());
                key("b").compare_lists(expected.unwrap_or(&none), got.unwrap_or(&none))
            })
            .or_else(|| key("r").compare(&expected.r, &got.r))
            .or_else(|| key("w").compare(&expected.w, &got.w))
            .or_else(|| key("fb").compare(&expected.fb, &got.fb))
            .or_else(|| key("e").compare(&expected.e, &got.e))
            .or_else(|| key("abd").compare_lists(&expected.abd, &got.abd))
            .or_else(|| key("f").compare_lists(&expected.f, &got.f))
            .or_else(|| key("fb2").compare(&expected.fb2, &got.fb2));
        if difference.is_some() {
            return difference;
        }
    }
    Place { step: None, key: "steps" }.compare(&expected.len(), &got.len())
}

fn end_difference(expected: &End, got: &End) -> Option<Difference> {
    let key = |key| Place { step: None, key };
    key("end")
        .compare(&expected.how, &got.how)
        .or_else(|| key("steps").compare(&expected.steps, &got.steps))
        .or_else(|| key("tokens").compare(&expected.tokens, &got.tokens))
        .or_else(|| key("t_end").compare(&expected.time, &got.time))
        .or_else(|| key("req").compare_lists(&expected.req, &got.req))
}
