//! A replica as plans and settings see it: a scheduler, a step time, and requests that go through
//! one or several of them.

use metrics_core::table::Observed;
use metrics_core::timeline::Outcome;
use metrics_core::units::Seconds;
use sched_sim::history::Observer;
use sched_sim::server::Ending;
use sched_sim::vllm_v1::{VllmConfig, VllmReplica};
use sched_sim::{Job, Over, Replica, Server, SimError, StepTime, Ticks, Workload};
use serving_io::machine::Machine;
use serving_io::policy::{BLOCK_SIZE, ServerOptions, named, takes_chunk};
use serving_io::scenario::StepTimeSource;

use crate::error::{PlanError, Result};

/// A step time that threads share.
pub type SharedStepTime = Box<dyn StepTime + Send + Sync>;

/// The step time that a source names.
///
/// # Errors
///
/// [`PlanError::Contradiction`] for a form that this version does not know.
pub fn step_time(source: &StepTimeSource) -> Result<SharedStepTime, PlanError> {
    Ok(match source {
        StepTimeSource::Affine(affine) => Box::new(*affine),
        StepTimeSource::TwoRegime(form) => Box::new(*form),
        StepTimeSource::Roofline(source) => Box::new(source.step_time()?),
        StepTimeSource::Fitted(file) => Box::new(file.step.clone()),
        _ => {
            let text = "this version does not know the form of the step time";
            return Err(PlanError::Contradiction(text.to_owned()));
        }
    })
}

/// Model and GPUs of a step time, if they are known.
#[must_use]
pub fn machine(source: &StepTimeSource) -> Option<Machine> {
    match source {
        // A file of the user's may be of another model or GPU than those that are known.
        StepTimeSource::Fitted(f) => Machine::named(&f.model, &f.gpu, f.tensor_parallel).ok(),
        StepTimeSource::Roofline(source) => Some(source.machine.clone()),
        _ => None,
    }
}

/// How far a step time is off its measurements: the mean size of its relative errors, where the
/// source states it, the largest of its regimes.
#[must_use]
pub fn stated_error(source: &StepTimeSource) -> Option<f64> {
    match source {
        StepTimeSource::Fitted(file) => {
            file.regimes.iter().map(|r| r.mean_absolute).reduce(f64::max)
        }
        _ => None,
    }
}

/// What decides the steps of a replica.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scheduler {
    /// A policy by its name.
    Named(NamedPolicy),
    /// vLLM's.
    VllmV1(Box<VllmConfig>),
}

/// One of [`serving_io::policy::NAMES`] with its limits, which are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPolicy {
    name: String,
    max_num_seqs: u64,
    chunk: u64,
    options: ServerOptions,
    emits_first_token: bool,
}

impl NamedPolicy {
    /// A policy with its limits; `chunk` is ignored by a policy without one.
    ///
    /// # Errors
    ///
    /// [`PlanError::Contradiction`] for a name that is not known, [`PlanError::Simulation`] for a
    /// limit that cannot be.
    pub fn new(
        name: &str,
        max_num_seqs: u64,
        chunk: u64,
        options: ServerOptions,
    ) -> Result<Self, PlanError> {
        let policy = named(name, max_num_seqs, chunk, &options).ok_or_else(|| {
            let known = serving_io::scenario::POLICIES.join(", ");
            PlanError::Contradiction(format!("policy `{name}`: expected {known}"))
        })??;
        options.settings()?;
        let emits_first_token = policy.prefill_emits_first_token();
        Ok(Self { name: name.to_owned(), max_num_seqs, chunk, options, emits_first_token })
    }

    /// Whether a limit that no run reaches does nothing at all, for the batch and for the chunk.
    pub(crate) fn limits_only(&self) -> bool {
        self.name == "decode-first"
    }

    /// The same with another batch limit and chunk.
    pub(crate) fn with(&self, max_num_seqs: u64, chunk: u64) -> Self {
        Self { max_num_seqs, chunk, ..self.clone() }
    }
}

impl Scheduler {
    /// Most requests in a batch.
    #[must_use]
    pub fn max_num_seqs(&self) -> u64 {
        match self {
            Self::Named(policy) => policy.max_num_seqs,
            Self::VllmV1(config) => config.max_num_seqs,
        }
    }

    /// Most prompt tokens of one request in a step.
    #[must_use]
    pub fn chunk(&self) -> u64 {
        match self {
            Self::Named(policy) if takes_chunk(&policy.name) => policy.chunk,
            Self::Named(_) => Workload::LARGEST_TOKENS,
            Self::VllmV1(config) => match config.long_prefill_token_threshold {
                0 => config.max_num_batched_tokens,
                limit => limit.min(config.max_num_batched_tokens),
            },
        }
    }

    /// Most tokens of a step; none where only the batch bounds them.
    #[must_use]
    pub fn token_budget(&self) -> Option<u64> {
        match self {
            Self::Named(_) => None,
            Self::VllmV1(config) => Some(config.max_num_batched_tokens),
        }
    }

    /// Tokens that the KV cache holds; none if it has no bound.
    #[must_use]
    pub fn kv_tokens(&self) -> Option<u64> {
        let (blocks, size) = match self {
            Self::Named(policy) => {
                (policy.options.kv_blocks?, policy.options.block_size.unwrap_or(BLOCK_SIZE))
            }
            Self::VllmV1(config) => (config.num_blocks.saturating_sub(1), config.block_size),
        };
        Some(blocks.saturating_mul(size))
    }

    /// Whether the step that ends a prompt gives the first token.
    #[must_use]
    pub const fn prefill_emits_first_token(&self) -> bool {
        match self {
            Self::Named(policy) => policy.emits_first_token,
            Self::VllmV1(_) => true,
        }
    }

    /// An idle replica.
    ///
    /// # Errors
    ///
    /// [`PlanError::Simulation`] for what vLLM would not start with.
    pub fn server<'a, T: StepTime + 'a>(
        &self,
        step_time: T,
    ) -> Result<Box<dyn Server + 'a>, PlanError> {
        Ok(match self {
            Self::Named(p) => {
                let policy = named(&p.name, p.max_num_seqs, p.chunk, &p.options);
                let policy = policy.ok_or_else(|| {
                    PlanError::Contradiction(format!("policy `{}` is not known", p.name))
                })??;
                Box::new(Replica::new(policy, step_time).settings(p.options.settings()?))
            }
            Self::VllmV1(config) => Box::new(VllmReplica::new((**config).clone(), step_time)?),
        })
    }
}

/// What a client saw of one simulated request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Its position in the workload.
    pub position: u64,
    outcome: Outcome,
    ttft: Option<Seconds>,
    e2e: Option<Seconds>,
    output_tokens: u64,
}

impl Served {
    pub(crate) fn of(over: &Over) -> Self {
        let p = &over.progress;
        let after = |at: Option<Ticks>| at?.since(p.arrival)?.to_seconds().ok();
        Self {
            position: p.id,
            outcome: match over.ending {
                Ending::Completed => Outcome::Completed,
                Ending::Cancelled => Outcome::Cancelled,
                Ending::TimedOut => Outcome::TimedOut,
                _ => Outcome::Rejected,
            },
            ttft: after(p.record.first_token()),
            e2e: after(p.record.last_token()),
            output_tokens: p.output_tokens,
        }
    }
}

impl Observed for Served {
    fn outcome(&self) -> Outcome {
        self.outcome
    }
    fn ttft(&self) -> Option<Seconds> {
        self.ttft
    }
    fn e2e_latency(&self) -> Option<Seconds> {
        self.e2e
    }
    fn output_tokens(&self) -> Option<u64> {
        Some(self.output_tokens)
    }
}

/// Requests that are submitted at once.
const AHEAD: usize = 128;

/// Runs a workload on a server and shows whoever is over to `each`, until that says to stop;
/// whether the workload was run to its end. Now and then `pause` sees the server at an instant, and
/// may say to stop too.
///
/// # Errors
///
/// [`SimError`] as [`Server::advance_to`].
pub fn serve<S: Server + ?Sized>(
    server: &mut S,
    workload: &Workload,
    observer: &mut dyn Observer,
    mut each: impl FnMut(&Served) -> bool,
    mut pause: impl FnMut(&S, Ticks) -> bool,
) -> Result<bool, SimError> {
    let mut over = Vec::new();
    let mut jobs = workload.requests().iter().enumerate().map(|(i, r)| Job::of(i, r));
    loop {
        let mut last = None;
        for job in jobs.by_ref().take(AHEAD) {
            last = Some(job.arrival);
            server.submit(job)?;
        }
        match last {
            Some(arrival) => {
                server.advance_to(arrival, observer)?;
            }
            None => {
                server.finish(observer)?;
            }
        }
        server.take_over(&mut over);
        for o in over.drain(..) {
            if !each(&Served::of(&o)) {
                return Ok(false);
            }
        }
        let Some(now) = last else { return Ok(true) };
        if !pause(server, now) {
            return Ok(false);
        }
    }
}
