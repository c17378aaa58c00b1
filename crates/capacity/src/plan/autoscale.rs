//! An autoscaler on a trace: replicas that come after a delay and go when they are idle enough.

use sched_sim::server::Server;
use sched_sim::{Job, Over, SimError, Ticks, Workload};
use serde::{Deserialize, Serialize};

use crate::error::{PlanError, Result};
use crate::goals::Goal;
use crate::replica::{Scheduler, Served, SharedStepTime};

/// How the number of replicas follows the load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Autoscaler {
    /// From one look at the signal to the next.
    pub interval_s: f64,
    /// From the decision to a replica that takes requests.
    pub delay_s: f64,
    /// Waiting requests per replica above which there have to be more: so many more that this
    /// number is met, and at most twice as many as there are.
    pub queue_per_replica: f64,
    /// Requests per second of one replica: with one less, the last `settle_s` would have been below
    /// it by a fifth, or none goes.
    pub rate_per_replica: f64,
    /// How long the rate has to be so low.
    pub settle_s: f64,
    /// Fewest replicas; so many there are at first.
    pub least: u64,
    /// Most replicas.
    pub most: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backtest {
    /// The rule.
    pub autoscaler: Autoscaler,
    /// For each goal, the share of the requests that meets it.
    pub shares: Vec<f64>,
    /// Whether every goal is kept.
    pub keeps: bool,
    /// Replica-hours, from each decision to start a replica until its last request is over.
    pub replica_hours: f64,
    /// Most replicas at a time.
    pub most_replicas: u64,
    /// Replicas that were started after the first ones.
    pub started: u64,
    /// Replicas that were stopped.
    pub stopped: u64,
}

/// What is kept free when a replica goes.
const HEADROOM: f64 = 0.8;

impl Autoscaler {
    fn check(&self) -> Result<(), PlanError> {
        let day = (0.0, 86_400.0);
        PlanError::bounds("interval", self.interval_s, day, " s")?;
        PlanError::bounds("delay", self.delay_s, (-f64::MIN_POSITIVE, 86_400.0), " s")?;
        PlanError::bounds("settling time", self.settle_s, day, " s")?;
        PlanError::bounds("queue per replica", self.queue_per_replica, (0.0, 1e9), "")?;
        PlanError::bounds("rate per replica", self.rate_per_replica, (0.0, 1e9), "/s")?;
        PlanError::bounds("fewest replicas", self.least as f64, (0.0, 4096.0), "")?;
        let above = self.least as f64 - 1.0;
        PlanError::bounds("most replicas", self.most as f64, (above, 4096.0), "").map(|_| ())
    }

    /// The replicas that there should be.
    fn wanted(&self, now: u64, waiting: u64, recent_rate: f64) -> u64 {
        let each = waiting as f64 / now as f64;
        if self.queue_per_replica < each {
            // At most twice as many; the cast is of a number below 10^4.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let more =
                (waiting as f64 / self.queue_per_replica).ceil().min(2.0 * now as f64) as u64;
            return more.clamp(now, self.most);
        }
        let fewer = now - 1;
        let idle = recent_rate <= HEADROOM * self.rate_per_replica * fewer as f64;
        if self.least <= fewer && waiting == 0 && idle { fewer } else { now }
    }
}

/// A replica in its life.
struct Unit<'a> {
    server: Box<dyn Server + 'a>,
    /// When it was asked for, and when it takes requests.
    asked: Ticks,
    ready: Ticks,
    /// Since when it takes no more.
    leaving: bool,
    inside: u64,
    gone: Option<Ticks>,
}

/// A fleet that changes.
struct Elastic<'a> {
    units: Vec<Unit<'a>>,
    over: Vec<Over>,
    served: Vec<Served>,
}

impl Elastic<'_> {
    fn advance(&mut self, time: Ticks) -> Result<(), SimError> {
        for unit in self.units.iter_mut().filter(|u| u.gone.is_none()) {
            unit.server.advance_to(time, &mut ())?;
            unit.server.take_over(&mut self.over);
            for over in self.over.drain(..) {
                unit.inside -= 1;
                if unit.leaving && unit.inside == 0 {
                    unit.gone = Some(over.at);
                }
                self.served.push(Served::of(&over));
            }
        }
        Ok(())
    }

    /// Replicas that are there or on their way.
    fn staying(&self) -> u64 {
        self.units.iter().filter(|u| !u.leaving).count() as u64
    }

    fn waiting(&self) -> u64 {
        self.units.iter().filter(|u| !u.leaving).map(|u| u.server.load().waiting).sum()
    }

    /// The replica with the fewest requests of those that take some.
    fn route(&mut self, job: Job) -> Result<(), SimError> {
        let now = job.arrival;
        let open = self.units.iter_mut().filter(|u| !u.leaving && u.ready <= now);
        if let Some(unit) = open.min_by_key(|u| u.inside) {
            unit.inside += 1;
            unit.server.submit(job)?;
        }
        Ok(())
    }

    /// Lets the replica that came last go, if another one takes requests now.
    fn stop(&mut self, now: Ticks) -> bool {
        if self.units.iter().filter(|u| !u.leaving && u.ready <= now).count() < 2 {
            return false;
        }
        let Some(unit) = self.units.iter_mut().rev().find(|u| !u.leaving && u.ready <= now) else {
            return false;
        };
        unit.leaving = true;
        if unit.inside == 0 {
            unit.gone = Some(now);
        }
        true
    }
}

/// Runs a trace on a fleet that an autoscaler changes. Requests go to the replica with the fewest.
///
/// # Errors
///
/// [`PlanError::Bounds`] for a rule that cannot be, [`PlanError`] for a server that cannot be.
pub fn backtest(
    workload: &Workload,
    scheduler: &Scheduler,
    step_time: &SharedStepTime,
    goals: &[Goal],
    rule: &Autoscaler,
) -> Result<Backtest, PlanError> {
    rule.check()?;
    let interval = Ticks::from_seconds(rule.interval_s)?;
    let delay = Ticks::from_seconds(rule.delay_s)?;
    let plus = |a: Ticks, b: Ticks| Ticks::from_attoseconds(a.attoseconds() + b.attoseconds());
    let start = workload.requests().first().map_or(Ticks::ZERO, |r| r.arrival);
    let unit = |asked: Ticks, ready: Ticks| -> Result<Unit<'_>, PlanError> {
        let server = scheduler.server(&**step_time)?;
        Ok(Unit { server, asked, ready, leaving: false, inside: 0, gone: None })
    };
    let units: Result<Vec<_>, PlanError> = (0..rule.least).map(|_| unit(start, start)).collect();
    let mut fleet = Elastic { units: units?, over: Vec::new(), served: Vec::new() };
    let (mut started, mut stopped, mut most_replicas) = (0, 0, rule.least);
    let mut tick = plus(start, interval);
    let arrivals: Vec<f64> = workload.requests().iter().map(|r| r.arrival.seconds()).collect();
    for (i, r) in workload.requests().iter().enumerate() {
        while tick <= r.arrival {
            fleet.advance(tick)?;
            let now = fleet.staying();
            let from = tick.seconds() - rule.settle_s;
            let recent = i - arrivals.partition_point(|&a| a < from);
            // Before the first settling time is over nothing is known to be idle.
            let rate =
                if from < start.seconds() { f64::INFINITY } else { recent as f64 / rule.settle_s };
            let wanted = rule.wanted(now, fleet.waiting(), rate);
            for _ in now..wanted {
                fleet.units.push(unit(tick, plus(tick, delay))?);
                started += 1;
            }
            if wanted < now && fleet.stop(tick) {
                stopped += 1;
            }
            let there = fleet.units.iter().filter(|u| u.gone.is_none()).count() as u64;
            most_replicas = most_replicas.max(there);
            tick = plus(tick, interval);
        }
        fleet.advance(r.arrival)?;
        fleet.route(Job::of(i, r))?;
    }
    for unit in fleet.units.iter_mut().filter(|u| u.gone.is_none()) {
        unit.server.finish(&mut ())?;
        unit.server.take_over(&mut fleet.over);
    }
    let last = fleet.over.iter().map(|o| o.at).max().unwrap_or(tick);
    fleet.served.extend(fleet.over.iter().map(Served::of));
    let paid = fleet
        .units
        .iter()
        .map(|u| u.gone.unwrap_or(last).since(u.asked).map_or(0.0, Ticks::seconds));
    let replica_hours = paid.sum::<f64>() / 3600.0;
    let shares: Vec<f64> = goals
        .iter()
        .map(|g| {
            let met = fleet.served.iter().filter(|s| g.is_met_by(*s)).count();
            met as f64 / workload.len() as f64
        })
        .collect();
    Ok(Backtest {
        autoscaler: *rule,
        keeps: goals.iter().zip(&shares).all(|(g, share)| g.target <= *share),
        shares,
        replica_hours,
        most_replicas,
        started,
        stopped,
    })
}
