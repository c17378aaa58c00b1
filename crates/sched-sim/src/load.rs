//! How much is asked of a server, relative to what it can give.
//!
//! Two figures, from different ends. **ρ** is computed: arrival rate times the time that a request
//! takes of a server whose batch is always full. The **load relative to saturation** is measured:
//! arrival rate over the rate at which the same requests are completed while a queue is never
//! empty. For a step time that is linear in the work they agree but for the start of the measured
//! run; where they do not, the policy does not keep its batch full.

use crate::error::Result;
use crate::memory::{Order, ServerSettings};
use crate::policy::Policy;
use crate::replica::Replica;
use crate::server::{Job, Progress, Server};
use crate::simulation::NEVER;
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
    /// workload does not fill the batch at least twice over.
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
            saturated_rate: rate_of_all(server, jobs(workload))?,
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
            saturated_rate: rate_of_all(server, jobs)?,
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

/// Requests per second that are completed while requests wait: the workload all at once, from when
/// as many are completed as are in the batch, up to the moment when the last of it is scheduled.
///
/// `None` if less than as many are completed then as before: the first batch is filled at once and
/// ends late, and from it alone a server would seem slower than it is, by any factor.
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
    if settings.order == Order::Fcfs && policy.sees_the_head_only() {
        let waiting = policy.max_num_seqs();
        let ahead = Ahead { least: waiting, most: waiting.saturating_add(AHEAD) };
        return rate_ahead(workload, policy, settings, step_time, ahead);
    }
    rate_of_all(Replica::new(policy, step_time).settings(settings), jobs(workload))
}

/// The same where who waits behind others changes nothing, so that few have to be told at a time.
fn rate_ahead<P: Policy, T: StepTime>(
    workload: &Workload,
    mut policy: P,
    settings: ServerSettings,
    step_time: T,
    ahead: Ahead,
) -> Result<Option<f64>> {
    let server = Replica::new(&mut policy, &step_time).settings(settings);
    match rate_while_waiting(server, jobs(workload), ahead)? {
        Measured::Rate(rate) => Ok(rate),
        // More were admitted between two looks than were told.
        Measured::RanOut => {
            rate_of_all(Replica::new(policy, step_time).settings(settings), jobs(workload))
        }
    }
}

/// The rate of a server that is told of all requests at once.
fn rate_of_all(server: impl Server, jobs: impl Iterator<Item = Job>) -> Result<Option<f64>> {
    match rate_while_waiting(server, jobs, Ahead::ALL)? {
        Measured::Rate(rate) => Ok(rate),
        Measured::RanOut => Ok(None),
    }
}

/// How many requests a server is told of that are not in its batch, while there are more.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// More than that wait at any time; of so many, all may have been in the batch and come back.
    least: u64,
    /// So many are told.
    most: u64,
}

impl Ahead {
    const ALL: Self = Self { least: 0, most: u64::MAX };
}

/// So many more than have to wait are told: more than leave the queue between two looks, as a rule.
const AHEAD: u64 = 256;

/// What a run that is told of its requests as it goes comes to.
enum Measured {
    Rate(Option<f64>),
    /// The queue may have been empty while there were more to tell.
    RanOut,
}

/// The requests of a workload, whose clients all stay: who goes away while everybody waits is no
/// measure of what can be served.
fn jobs(workload: &Workload) -> impl Iterator<Item = Job> {
    let jobs = workload.requests().iter().enumerate();
    jobs.map(|(position, r)| Job { cancel_at: None, ..Job::of(position, r) })
}

/// So many requests end before the run is looked at again, which keeps them in the cache.
const LOOK_AFTER: usize = 64;

/// Requests per second that a server completes while these wait, as if all had come at once. The run
/// ends when nobody waits any more, and remembers two instants a request.
fn rate_while_waiting(
    mut server: impl Server,
    jobs: impl Iterator<Item = Job>,
    ahead: Ahead,
) -> Result<Measured> {
    let mut jobs = jobs.peekable();
    // Tells of more, and whether the queue was long enough all the time since the last time.
    let mut tell = |server: &mut dyn Server, at: Ticks| -> Result<bool> {
        if jobs.peek().is_none() {
            return Ok(true);
        }
        let waiting = server.load().waiting;
        let none_yet = at == Ticks::ZERO;
        let more = usize::try_from(ahead.most - waiting.min(ahead.most)).unwrap_or(usize::MAX);
        for job in jobs.by_ref().take(more) {
            server.submit(Job { arrival: at, ..job })?;
        }
        Ok(none_yet || ahead.least < waiting)
    };
    tell(&mut server, Ticks::ZERO)?;
    let (mut scheduled, mut ends, mut over) = (Vec::new(), Vec::new(), Vec::new());
    // By number, in which order most are scheduled, so that hardly anything is left to sort.
    let mut keep = |progress: &Progress| {
        let Ok(number) = usize::try_from(progress.id) else { return };
        if scheduled.len() <= number {
            scheduled.resize(number + 1, NEVER);
        }
        scheduled[number] = progress.record.scheduled().unwrap_or(NEVER);
        ends.extend(progress.record.last_token());
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
        over.drain(..).for_each(|o| keep(&o.progress));
        if !ended && !tell(&mut server, to)? {
            return Ok(Measured::RanOut);
        }
        if ended || server.load().waiting == 0 {
            // The step under way may have the last of them, who is scheduled when it ends.
            let inside = server.inside();
            if ended || inside.iter().all(|p| p.record.scheduled().is_some()) {
                for progress in &inside {
                    keep(progress);
                }
                break;
            }
        }
        to = to.after(window);
    }
    scheduled.retain(|&at| at != NEVER);
    scheduled.sort_unstable();
    ends.sort_unstable();
    Ok(Measured::Rate(rate_after_a_turn(&scheduled, &ends)))
}

/// The rate of ends from when as many have ended as are in the batch, which was filled at the start
/// and ends later than those that follow each other; up to the last admission. None if less than
/// as many end then as before: of few ends the rate depends on which they are.
fn rate_after_a_turn(scheduled: &[Ticks], ends: &[Ticks]) -> Option<f64> {
    let by = |list: &[Ticks], t: Ticks| list.partition_point(|&x| x <= t);
    let turned = |&t: &Ticks| by(scheduled, t) <= 2 * by(ends, t);
    let start = *ends.iter().find(|t| turned(t))?;
    let until = *scheduled.last()?;
    let before = by(ends, start);
    let then = by(ends, until).checked_sub(before).filter(|&then| before <= then)?;
    let span = until.since(start).filter(|&span| span != Ticks::ZERO)?;
    Some(then as f64 / span.seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of few requests that are told at a time, or all at once: the same rate; and a server that runs
    /// out of them is told of all.
    #[test]
    fn who_is_told_later_changes_no_rate() {
        use crate::{
            DecodeFirst, KvPool, Orca, PrefillFirst, Sarathi, StaticBatch, WorkloadRequest,
        };

        let request = |i: u64| {
            let (input, output) = (1 + i * 7919 % 611, 1 + i * 104_729 % 97);
            WorkloadRequest::new(i, Ticks::from_nanoseconds(i), input, output)
        };
        let workload = Workload::new((0..3000).map(request).collect()).unwrap();
        let step_time: crate::Affine =
            "base=3ms,prefill=7us/token,context=1ns/token".parse().unwrap();
        let mut settings = ServerSettings::default();
        for kv in [None, Some(KvPool::new(120, 16).unwrap())] {
            settings.kv = kv;
            let policies: [fn() -> Box<dyn Policy>; 5] = [
                || Box::new(DecodeFirst::new(6, 100).unwrap()),
                || Box::new(Sarathi::new(6, 200).unwrap()),
                || Box::new(PrefillFirst::new(6, 700).unwrap()),
                || Box::new(Orca::new(6).unwrap()),
                || Box::new(StaticBatch::new(6).unwrap()),
            ];
            for policy in policies {
                let server = Replica::new(policy(), step_time).settings(settings);
                let all = rate_of_all(server, jobs(&workload)).unwrap();
                assert!(all.is_some());
                for most in [7, 20, 600, 2000] {
                    let ahead = Ahead { least: 6, most };
                    let told = rate_ahead(&workload, policy(), settings, step_time, ahead);
                    assert_eq!(told.unwrap(), all, "{} {most}", policy().name());
                }
                let server = Replica::new(policy(), step_time).settings(settings);
                let ahead = Ahead { least: 6, most: 2000 };
                let told = rate_while_waiting(server, jobs(&workload), ahead).unwrap();
                assert!(matches!(told, Measured::Rate(rate) if rate == all));
            }
        }
    }

    /// By hand, in seconds, with two places: at 1 one request has ended and two are in the batch, at 2
    /// two have ended and two are. From then to the last admission, at 6, six more end: 1.5/s.
    #[test]
    fn a_saturated_rate_begins_when_the_first_batch_has_turned() {
        let s = |list: &[u64]| -> Vec<Ticks> {
            list.iter().map(|&s| Ticks::from_nanoseconds(s * 1_000_000_000)).collect()
        };
        let scheduled = s(&[0, 0, 1, 2, 3, 3, 4, 5, 6, 6]);
        let ends = s(&[1, 2, 3, 3, 4, 5, 6, 6, 7, 9]);
        assert_eq!(rate_after_a_turn(&scheduled, &ends), Some(6.0 / 4.0));
        // One end after the two of the turn tells nothing.
        assert_eq!(rate_after_a_turn(&scheduled[..5], &s(&[1, 2, 3, 5, 6])), None);
        // Everybody is in the batch at once, or nobody takes any time.
        assert_eq!(rate_after_a_turn(&s(&[0, 0, 0]), &s(&[1, 2, 3])), None);
        assert_eq!(rate_after_a_turn(&s(&[0, 0, 0]), &s(&[0, 0, 0])), None);
        assert_eq!(rate_after_a_turn(&[], &[]), None);
    }
}
