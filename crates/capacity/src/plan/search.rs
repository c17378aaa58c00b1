//! The least number of replicas by simulation: the same requests for every number, more seeds until
//! the intervals decide.

use metrics_core::interval::{Confidence, mean_independent};
use metrics_core::summary::Summary;
use sched_sim::drive::drive;
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::workload::{ArrivalLaw, ClosedLoop, Delay, WorkloadSpec};
use sched_sim::{RateScale, Server, Ticks, Workload};
use serde::{Deserialize, Serialize};

use super::queue::MOST_REPLICAS;
use crate::error::{PlanError, Result};
use crate::goals::Goal;
use crate::order::in_order;
use crate::replica::{Scheduler, Served, SharedStepTime, serve};

/// The requests of a simulation.
#[derive(Clone, Debug)]
pub enum Requests<'a> {
    /// As they are.
    Trace(&'a Workload),
    /// Drawn, seed by seed.
    Drawn(Box<WorkloadSpec>),
    /// Of users who wait for their answers, seed by seed.
    Users {
        /// The users; their think time is replaced by the one beside.
        closed: Box<ClosedLoop>,
        /// Their mean think time; each is drawn from an exponential law.
        think_s: f64,
    },
}

/// Whether a number of replicas keeps the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Every goal, beyond chance.
    Met,
    /// At least one goal not, beyond chance.
    Missed,
    /// The interval of a goal leaves its target possible with all seeds that were allowed.
    Undecided,
}

/// What became of one goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// The goal.
    pub goal: String,
    /// The share that has to meet it.
    pub target: f64,
    /// The mean share that did.
    pub share: f64,
    /// The bounds of its interval over the seeds; none for a single run, which is exact.
    pub low: Option<f64>,
    /// See `low`.
    pub high: Option<f64>,
}

/// One number of replicas, simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// How many replicas.
    pub replicas: u64,
    /// What they keep.
    pub decision: Decision,
    /// Each goal.
    pub goals: Vec<Reached>,
    /// How many runs that took.
    pub seeds: u64,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// The least number that keeps the goals.
    pub replicas: u64,
    /// Whether one less is shown to miss them; if not, that number is undecided.
    pub decided: bool,
    /// All numbers that were simulated, from the fewest.
    pub probes: Vec<Probe>,
}

/// What is simulated, and how sure the answer has to be.
pub struct Search<'a> {
    /// The scheduler of a replica.
    pub scheduler: &'a Scheduler,
    /// Its step time.
    pub step_time: &'a SharedStepTime,
    /// How requests are given to replicas.
    pub router: RouterKind,
    /// What is to be kept; at least one goal.
    pub goals: Vec<Goal>,
    /// What arrives.
    pub requests: Requests<'a>,
    /// The first seed.
    pub seed: u64,
    /// Most seeds for one number of replicas.
    pub most_seeds: u64,
    /// Confidence of the intervals.
    pub confidence: Confidence,
    /// The factor on the length of every step, with at most four decimals.
    pub slower: f64,
    /// The factor on the rate of arrivals, likewise.
    pub faster: f64,
}

/// Seeds of the first look at a number.
const FIRST_SEEDS: u64 = 4;
/// This part of drawn requests comes first and is not judged: the fleet begins empty.
const WARM_UP: usize = 10;

impl Search<'_> {
    /// Whether every run is the same.
    fn is_single(&self) -> bool {
        matches!(self.requests, Requests::Trace(_)) && !self.router.draws()
    }

    /// Steps that take f times as long are arrivals, think times and limits that are f times as
    /// short: the requests as they have to be run.
    fn arriving(&self, seed: u64) -> Result<Arriving, PlanError> {
        let workload = match &self.requests {
            Requests::Trace(workload) => (*workload).clone(),
            Requests::Drawn(spec) => WorkloadSpec { seed, ..(**spec).clone() }.generate()?,
            Requests::Users { closed, think_s } => {
                let mean = Ticks::from_seconds(think_s / (self.slower * self.faster))?;
                let none = mean == Ticks::ZERO;
                let think = if none { Delay::Constant(mean) } else { Delay::Exponential { mean } };
                let users = ClosedLoop { think, seed, ..(**closed).clone() };
                return Ok(Arriving::Users(Box::new(users)));
            }
        };
        let parts = 10_000;
        // Between 1 and 10^6: callers pass factors of about 1.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let factor = (self.slower * self.faster * f64::from(parts)).round().clamp(1.0, 1e6) as u32;
        if factor == parts {
            return Ok(Arriving::Open(workload));
        }
        Ok(Arriving::Open(workload.scale_rate(RateScale::new(factor, parts)?)?))
    }

    /// The share of the judged requests that meets each goal in one run.
    fn shares(&self, replicas: u64, goals: &[Goal], seed: u64) -> Result<Vec<f64>, PlanError> {
        let servers = (0..replicas).map(|_| self.scheduler.server(&**self.step_time));
        let servers: Result<Vec<_>, PlanError> = servers.collect();
        let mut fleet = Fleet::new(servers?, self.router, seed)?;
        let is_trace = matches!(self.requests, Requests::Trace(_));
        let warm_up = |n: usize| if is_trace { 0 } else { n / WARM_UP };
        match self.arriving(seed)? {
            Arriving::Open(workload) => {
                shares(&mut fleet, &workload, warm_up(workload.len()), goals)
            }
            Arriving::Users(users) => {
                let driven = drive(&mut fleet, &mut users.arrivals()?, None, &mut ())?;
                let n = driven.workload().len();
                let mut tally = Tally::new(warm_up(n), goals);
                driven.over().iter().for_each(|over| tally.take(&Served::of(over)));
                Ok(tally.shares(n))
            }
        }
    }

    /// Simulates a number of replicas until the intervals decide.
    ///
    /// # Errors
    ///
    /// [`PlanError`] for a workload or a server that cannot be.
    pub fn probe(&self, replicas: u64) -> Result<Probe, PlanError> {
        let goals: Result<Vec<Goal>, PlanError> =
            self.goals.iter().map(|g| g.times(1.0 / self.slower)).collect();
        let goals = goals?;
        if self.is_single() {
            let shares = self.shares(replicas, &goals, self.seed)?;
            let reached: Vec<Reached> = self
                .goals
                .iter()
                .zip(shares)
                .map(|(g, share)| Reached {
                    goal: g.text.clone(),
                    target: g.target,
                    share,
                    low: None,
                    high: None,
                })
                .collect();
            let met = reached.iter().all(|r| r.target <= r.share);
            let decision = if met { Decision::Met } else { Decision::Missed };
            return Ok(Probe { replicas, decision, goals: reached, seeds: 1 });
        }
        let mut runs: Vec<Vec<f64>> = Vec::new();
        let mut upto = FIRST_SEEDS.min(self.most_seeds).max(2);
        loop {
            let from = runs.len() as u64;
            let shares = |i: u64| self.shares(replicas, &goals, self.seed.wrapping_add(i));
            let more = in_order((from..upto).collect(), shares).map_err(|(_, error)| error)?;
            runs.extend(more);
            let (reached, decision) = self.decide(&runs)?;
            if decision != Decision::Undecided || self.most_seeds <= upto {
                return Ok(Probe { replicas, decision, goals: reached, seeds: upto });
            }
            upto = (2 * upto).min(self.most_seeds);
        }
    }

    /// What the runs so far say.
    fn decide(&self, runs: &[Vec<f64>]) -> Result<(Vec<Reached>, Decision), PlanError> {
        let mut all = Vec::new();
        let mut decision = Decision::Met;
        for (i, goal) in self.goals.iter().enumerate() {
            let column: Vec<f64> = runs.iter().filter_map(|r| r.get(i).copied()).collect();
            let share = column.iter().sum::<f64>() / column.len() as f64;
            let interval = mean_independent(&Summary::new(column)?, self.confidence)?;
            let (low, high) = (interval.low.unwrap_or(0.0), interval.high.unwrap_or(1.0));
            if high < goal.target {
                decision = Decision::Missed;
            } else if low < goal.target && decision == Decision::Met {
                decision = Decision::Undecided;
            }
            all.push(Reached {
                goal: goal.text.clone(),
                target: goal.target,
                share,
                low: Some(low.max(0.0)),
                high: Some(high.min(1.0)),
            });
        }
        Ok((all, decision))
    }

    /// The least number of replicas that keeps the goals, from a first guess.
    ///
    /// # Errors
    ///
    /// [`PlanError::Contradiction`] if an idle replica misses a goal already, or if no number does;
    /// else as [`Search::probe`].
    pub fn run(&self, guess: u64) -> Result<Found, PlanError> {
        self.check_alone()?;
        let mut probes: Vec<Probe> = Vec::new();
        let mut met = |n: u64| -> Result<bool, PlanError> {
            if let Some(known) = probes.iter().find(|p| p.replicas == n) {
                return Ok(known.decision == Decision::Met);
            }
            let probe = self.probe(n)?;
            let met = probe.decision == Decision::Met;
            probes.push(probe);
            Ok(met)
        };
        // Bracket outwards from the guess in growing steps, then halve.
        let guess = guess.clamp(1, MOST_REPLICAS);
        let (mut low, mut high) = (0, guess);
        let mut step = 1;
        if met(guess)? {
            while 1 < high {
                let next = high.saturating_sub(step).max(1);
                if met(next)? {
                    high = next;
                    step *= 2;
                } else {
                    low = next;
                    break;
                }
            }
        } else {
            low = guess;
            high = guess + 1;
            while !met(high)? {
                low = high;
                step *= 2;
                if high == MOST_REPLICAS {
                    return Err(PlanError::Contradiction(format!(
                        "no number of replicas up to {MOST_REPLICAS} keeps the SLOs behind router {}",
                        self.router
                    )));
                }
                high = (high + step).min(MOST_REPLICAS);
            }
        }
        while 1 < high - low {
            let middle = low + (high - low) / 2;
            if met(middle)? { high = middle } else { low = middle }
        }
        probes.sort_by_key(|p| p.replicas);
        let fewer = probes.iter().find(|p| p.replicas + 1 == high);
        let decided = fewer.is_none_or(|p| p.decision == Decision::Missed);
        Ok(Found { replicas: high, decided, probes })
    }

    /// The factor on the rate of arrivals up to which so many replicas keep the goals, to about a
    /// hundredth of `most`; 0 if they do not keep them at a hundredth of it.
    ///
    /// # Errors
    ///
    /// As [`Search::probe`].
    pub fn largest_factor(&self, replicas: u64, most: f64) -> Result<f64, PlanError> {
        let (mut low, mut high) = (0.0, most);
        while most / 100.0 < high - low {
            let middle = 0.5 * (low + high);
            let faster = Search {
                faster: middle,
                goals: self.goals.clone(),
                requests: self.requests.clone(),
                ..*self
            };
            if faster.probe(replicas)?.decision == Decision::Met {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Refuses goals that a request misses although nobody else is there.
    fn check_alone(&self) -> Result<(), PlanError> {
        let workload = match &self.requests {
            Requests::Trace(workload) => (*workload).clone(),
            Requests::Drawn(spec) => spec.generate()?,
            Requests::Users { closed, .. } => WorkloadSpec {
                requests: closed.requests.min(MOST_ALONE as u64),
                rate_per_s: 1.0,
                arrivals: ArrivalLaw::Deterministic,
                lengths: closed.lengths.clone(),
                system_prompts: None,
                sessions: None,
                cancellations: None,
                seed: self.seed,
            }
            .generate()?,
        };
        // An hour apart nobody meets anybody, whatever the server.
        let mut apart = workload.requests().to_vec();
        apart.truncate(MOST_ALONE);
        for (i, r) in apart.iter_mut().enumerate() {
            r.arrival = Ticks::from_nanoseconds(i as u64 * 3_600_000_000_000);
        }
        let mut server = self.scheduler.server(&**self.step_time)?;
        let shares = shares(&mut *server, &Workload::new(apart)?, 0, &self.goals)?;
        match self.goals.iter().zip(shares).find(|(goal, share)| *share < goal.target) {
            None => Ok(()),
            Some((goal, share)) => Err(PlanError::Contradiction(format!(
                "`{}` cannot be kept by any number of replicas: on an idle one {} of the requests meet it, the target is {}",
                goal.text,
                metrics_core::format::percent(share),
                metrics_core::format::percent(goal.target)
            ))),
        }
    }
}

/// Requests that are looked at alone.
const MOST_ALONE: usize = 20_000;

/// What arrives in one run.
enum Arriving {
    Open(Workload),
    Users(Box<ClosedLoop>),
}

/// Counts who meets the goals, from a position on.
struct Tally<'a> {
    from: usize,
    goals: &'a [Goal],
    met: Vec<u64>,
}

impl<'a> Tally<'a> {
    fn new(from: usize, goals: &'a [Goal]) -> Self {
        Self { from, goals, met: vec![0; goals.len()] }
    }

    fn take(&mut self, served: &Served) {
        if self.from as u64 <= served.position {
            for (count, goal) in self.met.iter_mut().zip(self.goals) {
                *count += u64::from(goal.is_met_by(served));
            }
        }
    }

    /// The share of the requests that meets each goal; who never ends meets none.
    fn shares(self, requests: usize) -> Vec<f64> {
        let judged = (requests - self.from) as f64;
        self.met.into_iter().map(|n| n as f64 / judged).collect()
    }
}

/// The share of the requests from a position on that meets each goal.
fn shares<S: Server + ?Sized>(
    server: &mut S,
    workload: &Workload,
    from: usize,
    goals: &[Goal],
) -> Result<Vec<f64>, PlanError> {
    let mut tally = Tally::new(from, goals);
    let each = |served: &Served| {
        tally.take(served);
        true
    };
    serve(server, workload, &mut (), each, |_, _| true)?;
    Ok(tally.shares(workload.len()))
}
