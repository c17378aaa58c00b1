//! Which settings of a server keep the objectives of a workload, and which of those are best.
//!
//! Every setting is simulated with the same requests. Two things make a large grid cheap and change
//! no answer:
//!
//! - A setting whose misses are already too many for a target is not run to its end. Who waits for
//!   longer than a limit is a miss already.
//! - A limit that a run never reached did nothing: with a batch that never held more than 90
//!   requests, every `max_num_seqs` above 90 is the same run, step by step, and so it is with the
//!   token budget. Such settings are simulated once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Mutex;

use metrics_core::slo::{Latency, SloSet};
use metrics_core::table::Observed;
use rayon::prelude::*;
use sched_sim::history::{Observer, Stretch};
use sched_sim::vllm_v1::VllmConfig;
use sched_sim::{MeanWork, Server, StepTime, Ticks, Workload};
use serde::{Deserialize, Serialize};
use serving_io::engine::EngineOptions;
use serving_io::machine::Machine;
use serving_io::scenario::StepTimeSource;

use crate::error::{PlanError, Result};
use crate::goals::{Goal, check_agreement, goals};
use crate::order::in_order;
use crate::plan::mix::Mix;
use crate::plan::{check_fit, scheduler_on};
use crate::replica::{Scheduler, Served, SharedStepTime, machine, serve, step_time};

/// The version of [`TuneAnswer`]'s fields.
pub const SCHEMA_VERSION: u64 = 1;

/// One setting of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// One of [`serving_io::scenario::POLICIES`].
    pub policy: String,
    /// Most requests in the batch; the policy's own if not given.
    pub max_num_seqs: Option<u64>,
    /// Most prompt tokens of a request in a step, for policies with a chunk.
    pub chunk: Option<u64>,
    /// Options under vLLM's names; of the others, some know `num_kv_blocks`, `block_size` and
    /// `max_num_batched_tokens`.
    pub engine: Vec<(String, String)>,
    /// Who is next in the queue, `fcfs`, `sjf` or `priority`; for policies other than vllm-v1.
    #[serde(default)]
    pub order: Option<String>,
}

/// What is to be tuned. Texts are in the grammar of the command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneRequest {
    /// The objectives.
    pub slo: String,
    /// The share of the requests that has to meet all limits on single requests.
    pub attainment: Option<f64>,
    /// A preset, coefficients or a file.
    pub step_time: String,
    /// The settings, at least one.
    pub settings: Vec<Setting>,
    /// Whether settings that cannot keep the objectives any more are run to their end.
    pub run_to_the_end: bool,
}

/// What a setting came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// It was run to its end.
    Run {
        /// For each goal, the share of the requests that meets it.
        shares: Vec<f64>,
        /// For each goal, the value of each of its latencies that the target's share of the
        /// requests does not pass, in seconds; none if that many never got there.
        values_s: Vec<Vec<Option<f64>>>,
    },
    /// It was stopped, as a goal was out of reach.
    Stopped {
        /// Which goal, by its position.
        goal: usize,
        /// How many requests were over by then.
        after_requests: u64,
    },
    /// The server would not start, or does not fit the requests.
    Refused {
        /// Why.
        reason: String,
    },
}

/// A setting with what it came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    /// The setting.
    pub setting: Setting,
    /// What it came to.
    pub outcome: Outcome,
    /// Whether it keeps every goal.
    pub keeps: bool,
    /// The least of 1 − value / limit over all limits: how far the tightest one is away.
    pub slack: Option<f64>,
    /// Whether no other setting that keeps the goals is better in one latency and not worse in
    /// another.
    pub on_front: bool,
    /// The longest step that can hold up a decode: the fullest batch with as many prompt tokens as
    /// fit, of the longest requests.
    pub itl_bound_s: Option<f64>,
    /// Steps of a mean prompt, if it gets all that it may.
    pub steps_per_prompt: Option<f64>,
    /// The engine's flags for it; none for a policy that is no engine's.
    pub flags: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneAnswer {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u64,
    /// `goodput-tune`.
    pub kind: String,
    /// The goals, in the order of their values.
    pub goals: Vec<String>,
    /// The setting with the most slack, by its position; none keeps the goals.
    pub best: Option<usize>,
    /// Every setting, in order.
    pub settings: Vec<Tuned>,
}

/// The limits that a run reached.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    running: u64,
    tokens: u64,
}

impl Observer for Peaks {
    fn stretch(&mut self, stretch: &Stretch) {
        self.running = self.running.max(stretch.running);
        self.tokens = self.tokens.max(stretch.work.prefill_tokens + stretch.work.decodes);
    }
}

/// A run that stands for all settings whose limits it did not reach either.
struct Known {
    seqs: u64,
    tokens: u64,
    peaks: Peaks,
    outcome: Outcome,
}

impl Known {
    /// Whether a run under other limits is this one, step by step; `plain`: whether a limit that is
    /// not reached does nothing.
    fn is_run_of(&self, seqs: u64, tokens: u64, plain: bool) -> bool {
        let idle = |mine: u64, theirs: u64, peak: u64| {
            mine == theirs || (plain && peak < mine && peak < theirs)
        };
        idle(self.seqs, seqs, self.peaks.running) && idle(self.tokens, tokens, self.peaks.tokens)
    }
}

/// A scheduler as far as runs are shared: without the two limits that may be idle, those, and whether
/// a limit that is not reached does nothing.
struct Split {
    rest: Scheduler,
    seqs: u64,
    tokens: u64,
    plain: bool,
}

impl Split {
    fn of(scheduler: &Scheduler) -> Self {
        let seqs = scheduler.max_num_seqs();
        match scheduler {
            Scheduler::Named(p) => {
                let rest = Scheduler::Named(p.with(0, scheduler.chunk()));
                Self { rest, seqs, tokens: 0, plain: p.limits_only() }
            }
            Scheduler::VllmV1(config) => {
                let mut rest: VllmConfig = (**config).clone();
                (rest.max_num_seqs, rest.max_num_batched_tokens) = (0, 0);
                // The others take the token budget or the batch into account in other ways too.
                let plain = config.enable_chunked_prefill
                    && !config.long_prefill_token_threshold_adaptive
                    && config.max_num_active_seqs.is_none()
                    && config.max_num_scheduled_tokens.is_none();
                let tokens = config.max_num_batched_tokens;
                Self { rest: Scheduler::VllmV1(Box::new(rest)), seqs, tokens, plain }
            }
        }
    }
}

/// The runs so far, by what their schedulers have in common beside the two limits.
#[derive(Default)]
struct Runs(Vec<(Scheduler, Vec<Known>)>);

impl Runs {
    fn find(&self, of: &Split) -> Option<&Known> {
        let (_, alike) = self.0.iter().find(|(rest, _)| *rest == of.rest)?;
        alike.iter().find(|k| k.is_run_of(of.seqs, of.tokens, of.plain))
    }

    fn add(&mut self, of: Split, peaks: Peaks, outcome: Outcome) {
        let known = Known { seqs: of.seqs, tokens: of.tokens, peaks, outcome };
        match self.0.iter_mut().find(|(rest, _)| *rest == of.rest) {
            Some((_, alike)) => alike.push(known),
            None => self.0.push((of.rest, vec![known])),
        }
    }
}

/// A search in progress.
struct Tuner<'a> {
    request: &'a TuneRequest,
    workload: &'a Workload,
    goals: Vec<Goal>,
    step_time: SharedStepTime,
    longest_prompt: u64,
    mix: Mix,
    known: Mutex<Runs>,
}

/// The scheduler of a setting.
fn resolve(
    setting: &Setting,
    machine: Option<&Machine>,
    longest_prompt: u64,
) -> Result<Scheduler, PlanError> {
    let mut engine = EngineOptions::default();
    for (name, value) in &setting.engine {
        engine.set(name, value)?;
    }
    let found = scheduler_on(
        &setting.policy,
        setting.max_num_seqs,
        setting.chunk,
        engine,
        setting.order.as_deref(),
        machine,
    )?;
    // A limit that no prompt reaches is none.
    Ok(match found.0 {
        Scheduler::Named(p) if p.limits_only() => {
            let named = Scheduler::Named(p.clone());
            let chunk = named.chunk().min(longest_prompt);
            Scheduler::Named(p.with(named.max_num_seqs(), chunk))
        }
        Scheduler::VllmV1(mut c) if longest_prompt <= c.long_prefill_token_threshold => {
            if !c.long_prefill_token_threshold_adaptive {
                c.long_prefill_token_threshold = 0;
            }
            Scheduler::VllmV1(c)
        }
        other => other,
    })
}

impl Tuner<'_> {
    fn outcome(&self, resolved: &Result<Scheduler, PlanError>) -> Result<Outcome, PlanError> {
        let refused = |e: &PlanError| Outcome::Refused { reason: e.to_string() };
        let scheduler = match resolved {
            Ok(scheduler) => scheduler,
            Err(e) => return Ok(refused(e)),
        };
        if let Err(e) = check_fit(scheduler, &self.mix) {
            return Ok(refused(&e));
        }
        let split = Split::of(scheduler);
        let known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = known.find(&split) {
            return Ok(known.outcome.clone());
        }
        drop(known);
        let mut server = match scheduler.server(&*self.step_time) {
            Ok(server) => server,
            Err(e) => return Ok(refused(&e)),
        };
        let (outcome, peaks) = self.run(&mut server)?;
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.add(split, peaks, outcome.clone());
        Ok(outcome)
    }

    /// Runs the workload, to its end or until a goal is out of reach.
    fn run<S: Server>(&self, server: &mut S) -> Result<(Outcome, Peaks), PlanError> {
        let total = self.workload.len();
        // The target's share of the requests is so many; the others may miss.
        let needed: Vec<usize> = self.goals.iter().map(|g| needed(g.target, total)).collect();
        let mut values: Vec<Vec<Vec<f64>>> =
            self.goals.iter().map(|g| vec![Vec::new(); limited(g).len()]).collect();
        let latencies: Vec<Vec<Latency>> = self.goals.iter().map(limited).collect();
        let (over, lost, mut peaks) = (Cell::new(0_usize), Cell::new(None), Peaks::default());
        let missed = RefCell::new(vec![0_usize; self.goals.len()]);
        let goes_on = || lost.get().is_none() || self.request.run_to_the_end;
        let each = |served: &Served| {
            over.set(over.get() + 1);
            let mut missed = missed.borrow_mut();
            for (i, goal) in self.goals.iter().enumerate() {
                if !goal.is_met_by(served) {
                    missed[i] += 1;
                    if total < missed[i] + needed[i] && lost.get().is_none() {
                        lost.set(Some((i, over.get())));
                    }
                }
                for (latency, values) in latencies[i].iter().zip(&mut values[i]) {
                    values.extend(latency.of(served).filter(|_| {
                        served.outcome() == metrics_core::timeline::Outcome::Completed
                    }));
                }
            }
            goes_on()
        };
        let pause = |server: &S, now: Ticks| {
            let (load, missed) = (server.load(), missed.borrow());
            let spare = |i: usize| (total - needed[i]).saturating_sub(missed[i]);
            let is_near = |i: usize| (spare(i) as u64) < load.waiting + load.running;
            if self.request.run_to_the_end || !(0..needed.len()).any(is_near) {
                return true;
            }
            let inside = server.inside();
            for (i, goal) in self.goals.iter().enumerate() {
                let late = inside.iter().filter(|r| goal.is_lost_for(r, now)).count();
                if spare(i) < late && lost.get().is_none() {
                    lost.set(Some((i, over.get())));
                }
            }
            goes_on()
        };
        serve(server, self.workload, &mut peaks, each, pause)?;
        let lost = lost.get();
        if let Some((goal, after)) = lost.filter(|_| !self.request.run_to_the_end) {
            return Ok((Outcome::Stopped { goal, after_requests: after as u64 }, peaks));
        }
        let missed = missed.into_inner();
        let shares = missed.iter().map(|&n| (total - n) as f64 / total as f64).collect();
        let values_s = values
            .into_iter()
            .zip(needed)
            .map(|(list, needed)| list.into_iter().map(|v| at_rank(v, needed)).collect())
            .collect();
        Ok((Outcome::Run { shares, values_s }, peaks))
    }
}

/// The latencies that a goal limits, in report order.
fn limited(goal: &Goal) -> Vec<Latency> {
    Latency::ALL.into_iter().filter(|l| goal.limit(*l).is_some()).collect()
}

/// The least number of requests that is a share of all.
fn needed(share: f64, total: usize) -> usize {
    // A share of at most 1 of a count; 0.99 of 100 is 99 and not 100 by a rounding.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let n = (share * total as f64 * (1.0 - f64::EPSILON)).ceil() as usize;
    n.clamp(1, total.max(1))
}

/// The value of this rank, from 1, if there are so many.
fn at_rank(mut values: Vec<f64>, rank: usize) -> Option<f64> {
    if values.len() < rank {
        return None;
    }
    Some(*values.select_nth_unstable_by(rank - 1, f64::total_cmp).1)
}

/// Simulates every setting and compares.
///
/// `known` are outcomes of a search that was broken off, by the position of their setting; `done` is
/// told each outcome as it comes, in no order. The answer depends on neither, nor on the number of
/// threads.
///
/// # Errors
///
/// [`PlanError`] for objectives or a step time that cannot be read, and for no settings or no
/// requests. A setting that cannot be is an [`Outcome::Refused`].
pub fn tune(
    request: &TuneRequest,
    workload: &Workload,
    known: &BTreeMap<usize, Outcome>,
    done: &(dyn Fn(usize, &Outcome) + Sync),
) -> Result<TuneAnswer, PlanError> {
    let slo: SloSet = request.slo.parse().map_err(|e| PlanError::input("slo", &e))?;
    let goals = goals(&slo, request.attainment)?;
    let missing = |input, problem: &str| PlanError::Input { input, problem: problem.to_owned() };
    if goals.is_empty() {
        return Err(missing("slo", "says what to tune for, such as p99(ttft)<1s"));
    }
    if request.settings.is_empty() {
        return Err(missing("settings", "there is none to try"));
    }
    let mix = Mix::of(workload, 1)?;
    check_agreement(&goals, Some(mix.output_mean))?;
    let source: StepTimeSource =
        request.step_time.parse().map_err(|e| PlanError::input("step time", &e))?;
    let longest_prompt = workload.requests().iter().map(|r| r.input_tokens).max().unwrap_or(1);
    let tuner = Tuner {
        request,
        workload,
        goals,
        step_time: step_time(&source)?,
        longest_prompt,
        mix,
        known: Mutex::new(Runs::default()),
    };
    let machine = machine(&source);
    let resolved: Vec<Result<Scheduler, PlanError>> = request
        .settings
        .par_iter()
        .map(|setting| resolve(setting, machine.as_ref(), longest_prompt))
        .collect();
    // Large limits first: theirs are the runs that stand for others.
    let mut order: Vec<usize> = (0..request.settings.len()).collect();
    let size = |i: &usize| {
        let resolved = resolved.get(*i).and_then(|s| s.as_ref().ok());
        resolved.map(|s| (s.max_num_seqs(), s.token_budget()))
    };
    order.sort_by_cached_key(|i| (std::cmp::Reverse(size(i)), *i));
    let outcomes = in_order(order, |i| {
        if let Some(outcome) = known.get(&i) {
            return Ok((i, outcome.clone()));
        }
        let Some(resolved) = resolved.get(i) else {
            return Err(PlanError::Contradiction(format!("no setting {i}")));
        };
        let outcome = tuner.outcome(resolved)?;
        done(i, &outcome);
        Ok((i, outcome))
    });
    let mut outcomes = outcomes.map_err(|(_, error)| error)?;
    outcomes.sort_by_key(|(i, _)| *i);
    // Mean steps of a prompt, by its chunk.
    let mut chunks = BTreeMap::new();
    let mut settings: Vec<Tuned> = request
        .settings
        .iter()
        .zip(&resolved)
        .zip(outcomes)
        .map(|((setting, resolved), (_, outcome))| {
            tuner.tuned(setting, resolved.as_ref().ok(), outcome, &mut chunks)
        })
        .collect();
    mark_front(&mut settings);
    let best = (0..settings.len()).filter(|i| settings[*i].keeps).max_by(|a, b| {
        let slack = |i: usize| settings[i].slack.unwrap_or(f64::NEG_INFINITY);
        // The first of several that are alike.
        slack(*a).total_cmp(&slack(*b)).then(b.cmp(a))
    });
    Ok(TuneAnswer {
        schema_version: SCHEMA_VERSION,
        kind: "goodput-tune".to_owned(),
        goals: tuner.goals.iter().map(|g| g.text.clone()).collect(),
        best,
        settings,
    })
}

impl Tuner<'_> {
    /// A setting with all that is said of it.
    fn tuned(
        &self,
        setting: &Setting,
        resolved: Option<&Scheduler>,
        outcome: Outcome,
        chunks: &mut BTreeMap<u64, Option<f64>>,
    ) -> Tuned {
        let (keeps, slack) = match &outcome {
            Outcome::Run { shares, values_s } => {
                let keeps = self.goals.iter().zip(shares).all(|(g, share)| g.target <= *share);
                let slack = self.goals.iter().zip(values_s).flat_map(|(g, values)| {
                    limited(g).into_iter().zip(values).map(|(latency, value)| {
                        let limit = g.limit(latency).unwrap_or(f64::INFINITY);
                        value.map_or(f64::NEG_INFINITY, |v| 1.0 - v / limit)
                    })
                });
                (keeps, slack.reduce(f64::min).filter(|s| s.is_finite()))
            }
            Outcome::Stopped { .. } | Outcome::Refused { .. } => (false, None),
        };
        Tuned {
            setting: setting.clone(),
            outcome,
            keeps,
            slack,
            on_front: false,
            itl_bound_s: resolved.map(|s| self.longest_step(s)),
            steps_per_prompt: resolved.and_then(|s| {
                let of = |chunk| Mix::of(self.workload, chunk).ok().map(|m| m.chunks_mean);
                *chunks.entry(s.chunk()).or_insert_with(|| of(s.chunk()))
            }),
            flags: resolved.and_then(|s| flags(s, setting)),
        }
    }

    /// The longest step that holds up a decode.
    fn longest_step(&self, scheduler: &Scheduler) -> f64 {
        let seats = scheduler.max_num_seqs() as f64;
        let longest = self.mix.longest as f64;
        // One decodes, and the others are in prefill or decode beside it.
        let (prefill, decodes) = match scheduler.token_budget() {
            // Decodes come first; prefill gets what is left of the budget.
            Some(budget) => ((budget as f64 - 1.0).max(0.0), 1.0),
            None => ((seats - 1.0) * scheduler.chunk() as f64, 1.0),
        };
        let mut mixed = MeanWork::default();
        mixed.prefills = (seats - 1.0).min(prefill);
        mixed.prefill_tokens = prefill;
        mixed.decodes = decodes;
        mixed.decode_context = longest;
        mixed.attention = prefill * self.longest_prompt as f64;
        let mut decoding = MeanWork::default();
        decoding.decodes = seats;
        let held = scheduler.kv_tokens().map_or(f64::INFINITY, |kv| kv as f64);
        decoding.decode_context = (seats * longest).min(held);
        let step_time: &dyn StepTime = &*self.step_time;
        step_time.mean_seconds(&mixed).max(step_time.mean_seconds(&decoding))
    }
}

/// What describes the machine, and what is said already.
const NO_FLAGS: [&str; 7] = [
    "max_num_seqs",
    "max_num_batched_tokens",
    "engine_version",
    "num_kv_blocks",
    "kv_bytes_per_token",
    "reserved_memory",
    "gpu_memory",
];

/// vLLM's flags for a setting.
fn flags(scheduler: &Scheduler, setting: &Setting) -> Option<String> {
    let Scheduler::VllmV1(config) = scheduler else { return None };
    let mut text = format!(
        "--max-num-seqs {} --max-num-batched-tokens {}",
        config.max_num_seqs, config.max_num_batched_tokens
    );
    for (name, value) in setting.engine.iter().filter(|(n, _)| !NO_FLAGS.contains(&n.as_str())) {
        let flag = match name.as_str() {
            "kv_memory" => "kv-cache-memory-bytes".to_owned(),
            name => name.replace('_', "-"),
        };
        text.push_str(&match value.as_str() {
            "true" => format!(" --{flag}"),
            "false" => format!(" --no-{flag}"),
            value => format!(" --{flag} {value}"),
        });
    }
    Some(text)
}

/// Marks the settings that keep the goals and that no other such setting is at least as good as in
/// every value and better in one.
fn mark_front(settings: &mut [Tuned]) {
    let values = |t: &Tuned| -> Option<Vec<f64>> {
        let Outcome::Run { values_s, .. } = &t.outcome else { return None };
        t.keeps.then(|| values_s.iter().flatten().map(|v| v.unwrap_or(f64::INFINITY)).collect())
    };
    // Many settings are the same run.
    let mut points: Vec<Vec<f64>> = settings.iter().filter_map(values).collect();
    let order = |a: &Vec<f64>, b: &Vec<f64>| {
        let pairs = a.iter().zip(b).map(|(x, y)| x.total_cmp(y));
        pairs.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
    };
    points.sort_by(order);
    points.dedup();
    let beaten = |own: &[f64]| {
        points.iter().any(|p| {
            p.iter().zip(own).all(|(x, y)| x <= y) && p.iter().zip(own).any(|(x, y)| x < y)
        })
    };
    let front: Vec<bool> =
        settings.iter().map(|t| values(t).is_some_and(|own| !beaten(&own))).collect();
    for (t, on_front) in settings.iter_mut().zip(front) {
        t.on_front = on_front;
    }
}
