//! How much is asked of a server, relative to what it can give.
//!
//! Two figures, from different ends. **ρ** is computed: arrival rate times the time that a request
//! takes of a server whose batch is always full. The **load relative to saturation** is measured:
//! arrival rate over the rate at which the same requests are completed while a queue is never
//! empty. For a step time that is linear in the work they agree but for the start of the measured
//! run; where they do not, the policy does not keep its batch full.

use crate::error::Result;
use crate::memory::ServerSettings;
use crate::policy::Policy;
use crate::replica::Replica;
use crate::server::{Job, Server};
use crate::simulation::RequestRecord;
use crate::step_time::{MeanWork, StepTime};
use crate::time::Ticks;
use crate::vllm_v1::{VllmConfig, VllmReplica};
use crate::workload::Workload;

/// Load above which queues are long and small errors of a step time become large ones of a wait.
pub const NEAR_SATURATION: f64 = 0.9;

/// What a load allows to be said about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadLevel {
    /// At most [`NEAR_SATURATION`].
    Moderate,
    /// Above it: a few per cent of step time become tens of per cent of latency.
    NearSaturation,
    /// 1 or more: the queue grows for as long as requests arrive, so no figure of the run is one
    /// of a steady state.
    Overloaded,
}

impl LoadLevel {
    /// The level of a load relative to capacity.
    #[must_use]
    pub fn of(load: f64) -> Self {
        if load <= NEAR_SATURATION {
            Self::Moderate
        } else if load < 1.0 {
            Self::NearSaturation
        } else {
            Self::Overloaded
        }
    }

    /// Whether a run at this load may be called steady.
    #[must_use]
    pub fn can_be_steady(self) -> bool {
        self != Self::Overloaded
    }
}

/// The load that a workload offers under a policy and a step time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OfferedLoad {
    /// λ: requests per second, arrival gaps over the time they span; `None` if they span none.
    pub arrival_rate: Option<f64>,
    /// E\[D\]: seconds that a request takes of a server whose batch is full, a step's fixed cost
    /// shared by the batch; `None` if the policy cannot say how long a request keeps its slot.
    pub saturated_demand_s: Option<f64>,
    /// Requests per second completed while the queue is never empty, measured; `None` if the
    /// workload never fills the batch.
    pub saturated_rate: Option<f64>,
}

impl OfferedLoad {
    /// Computes both capacities; the measured one costs a run of the workload.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sched_sim::{Affine, DecodeFirst, LoadLevel, OfferedLoad};
    /// use sched_sim::{Ticks, Workload, WorkloadRequest};
    ///
    /// // One slot, one step of 1 s for the prompt and one for the token: 2 s a request.
    /// let every_3_s = |i| WorkloadRequest::new(i, Ticks::from_nanoseconds(i * 3_000_000_000), 1, 1);
    /// let workload = Workload::new((0..100).map(every_3_s).collect())?;
    /// let step_time: Affine = "base=1s".parse()?;
    ///
    /// let load = OfferedLoad::of(&workload, DecodeFirst::new(1, 1)?, step_time)?;
    /// assert_eq!(load.saturated_demand_s, Some(2.0));
    /// assert_eq!(load.saturated_rate, Some(0.5));
    /// assert!((load.rho().unwrap() - 2.0 / 3.0).abs() < 1e-12);
    /// assert_eq!(load.level(), Some(LoadLevel::Moderate));
    /// # Ok::<(), sched_sim::SimError>(())
    /// ```
    pub fn of<P: Policy, T: StepTime>(
        workload: &Workload,
        policy: P,
        step_time: T,
    ) -> Result<Self> {
        Self::of_server(workload, policy, ServerSettings::default(), step_time)
    }

    /// The same on a server with other settings; where KV blocks limit the batch as well, no
    /// demand can be computed.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`].
    pub fn of_server<P: Policy, T: StepTime>(
        workload: &Workload,
        policy: P,
        settings: ServerSettings,
        step_time: T,
    ) -> Result<Self> {
        let demand = saturated_demand(workload, &policy, &step_time);
        Ok(Self {
            arrival_rate: arrival_rate(workload),
            saturated_demand_s: demand.filter(|_| settings.kv.is_none()),
            saturated_rate: rate_at_once(workload, policy, settings, step_time)?,
        })
    }

    /// The same under vLLM's scheduler, for which no demand can be computed: how long a request
    /// keeps its place depends on the others, and KV blocks limit the batch as well.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`].
    pub fn of_vllm_v1<T: StepTime>(
        workload: &Workload,
        config: &VllmConfig,
        step_time: T,
    ) -> Result<Self> {
        let server = VllmReplica::new(config.clone(), step_time)?;
        Ok(Self {
            arrival_rate: arrival_rate(workload),
            saturated_demand_s: None,
            saturated_rate: rate_while_waiting(server, jobs(workload))?,
        })
    }

    /// The load of a decode pool, whose requests come with their first token and their KV: those
    /// with more tokens to make, at an idle `server` of the pool all at once. No demand can be
    /// computed, as that of a prompt is not in it.
    ///
    /// # Errors
    ///
    /// As [`Simulation::run`].
    pub fn of_decode_pool(workload: &Workload, server: impl Server) -> Result<Self> {
        let longer = workload.requests().iter().filter(|r| 1 < r.output_tokens);
        let coming = Workload::new(longer.cloned().collect())?;
        let jobs = jobs(&coming).map(|job| Job { made_tokens: 1, ..job });
        Ok(Self {
            arrival_rate: arrival_rate(&coming),
            saturated_demand_s: None,
            saturated_rate: rate_while_waiting(server, jobs)?,
        })
    }

    /// ρ = λ · E\[D\] at a full batch.
    #[must_use]
    pub fn rho(&self) -> Option<f64> {
        Some(self.arrival_rate? * self.saturated_demand_s?)
    }

    /// The load relative to saturation: λ over the measured rate of a server with a queue.
    #[must_use]
    pub fn relative(&self) -> Option<f64> {
        Some(self.arrival_rate? / self.saturated_rate?)
    }

    /// The level of the larger of the two that are known.
    #[must_use]
    pub fn level(&self) -> Option<LoadLevel> {
        [self.rho(), self.relative()].into_iter().flatten().map(LoadLevel::of).max()
    }
}

/// Arrival gaps per second; `None` for fewer than two requests or no time between them.
#[must_use]
pub fn arrival_rate(workload: &Workload) -> Option<f64> {
    let span = workload.span().filter(|&t| t != Ticks::ZERO)?;
    Some((workload.len() - 1) as f64 / span.seconds())
}

/// Seconds that a mean request takes of a server whose batch is always full.
///
/// ```text
/// E[D] = t(mean step) · E[slot steps] / B_max
/// ```
///
/// A request keeps a slot for its slot steps ([`Policy::slot_steps`]), so a full batch completes
/// `B_max / E[slot steps]` requests a step, and the mean step does that share of a mean request's
/// work: its prompt tokens, its output tokens, Σ (prompt + j) of context over its tokens j, and
/// prompt² / 2 of attention, which is what its chunks add up to whatever their size.
#[must_use]
pub fn saturated_demand<P: Policy, T: StepTime>(
    workload: &Workload,
    policy: &P,
    step_time: &T,
) -> Option<f64> {
    let (mut slots, mut prompt, mut output, mut context, mut square) = (0, 0, 0, 0, 0_u128);
    for r in workload.requests() {
        let (i, o) = (u128::from(r.input_tokens), u128::from(r.output_tokens));
        slots += u128::from(policy.slot_steps(r.input_tokens, r.output_tokens)?);
        prompt += i;
        output += o;
        context += i * o + o * (o - 1) / 2;
        square += i * i;
    }
    if slots == 0 {
        return None;
    }
    let batch = policy.max_num_seqs() as f64;
    let per_step = |total: u128| total as f64 / slots as f64 * batch;
    let mean = MeanWork {
        // A slot serves a chunk or a decode in every step.
        prefills: per_step(slots - output.min(slots)),
        prefill_tokens: per_step(prompt),
        decodes: per_step(output),
        decode_context: per_step(context),
        attention: per_step(square) / 2.0,
    };
    let slot_steps = slots as f64 / workload.len() as f64;
    Some(step_time.mean_seconds(&mean) * slot_steps / batch)
}

/// Requests per second that are completed while requests wait: the workload all at once, up to
/// the moment when the last of it is scheduled.
///
/// `None` if nothing is completed by then, which is so if all requests fit into one batch.
///
/// # Errors
///
/// As [`Simulation::run`].
pub fn saturated_rate<P: Policy, T: StepTime>(
    workload: &Workload,
    policy: P,
    step_time: T,
) -> Result<Option<f64>> {
    rate_at_once(workload, policy, ServerSettings::default(), step_time)
}

fn rate_at_once<P: Policy, T: StepTime>(
    workload: &Workload,
    policy: P,
    settings: ServerSettings,
    step_time: T,
) -> Result<Option<f64>> {
    rate_while_waiting(Replica::new(policy, step_time).settings(settings), jobs(workload))
}

/// The requests of a workload.
fn jobs(workload: &Workload) -> impl Iterator<Item = Job> {
    workload.requests().iter().enumerate().map(|(position, r)| Job::of(position, r))
}

/// So many requests end before the run is looked at again, which keeps them in the cache.
const LOOK_AFTER: usize = 256;

/// Requests per second that an idle server completes until the last of these is scheduled, if all
/// come at once. The run ends when nobody waits any more, and remembers an instant a request.
fn rate_while_waiting(
    mut server: impl Server,
    jobs: impl Iterator<Item = Job>,
) -> Result<Option<f64>> {
    for job in jobs {
        server.submit(Job { arrival: Ticks::ZERO, ..job })?;
    }
    let (mut last_scheduled, mut ends, mut over) = (Ticks::ZERO, Vec::new(), Vec::new());
    let mut keep = |record: &RequestRecord| {
        last_scheduled = last_scheduled.max(record.scheduled().unwrap_or_default());
        ends.extend(record.last_token());
    };
    let mut window = server.next_visible(&mut ())?.unwrap_or_default();
    window = window.max(Ticks::from_attoseconds(1));
    let mut to = window;
    loop {
        // Beyond the longest run nothing is left to happen.
        let ended = server.advance_to(to, &mut ())?.is_some() || Ticks::LONGEST_RUN < to;
        server.take_over(&mut over);
        if over.len() < LOOK_AFTER {
            window = window.after(window);
        }
        over.drain(..).for_each(|o| keep(&o.progress.record));
        if ended || server.load().waiting == 0 {
            // The step under way may have the last of them, who is scheduled when it ends.
            let inside = server.inside();
            if ended || inside.iter().all(|p| p.record.scheduled().is_some()) {
                for p in &inside {
                    keep(&p.record);
                }
                break;
            }
        }
        to = to.after(window);
    }
    let done = ends.iter().filter(|&&t| t <= last_scheduled).count();
    let known = 0 < done && last_scheduled != Ticks::ZERO;
    Ok(known.then(|| done as f64 / last_scheduled.seconds()))
}
