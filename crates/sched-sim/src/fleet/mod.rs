//! Several servers behind a router, driven as one.
//!
//! A [`Fleet`] is a [`Server`] itself: requests go in, time goes on, whoever is over comes out. When
//! a request arrives, the router sees every server as it is at that instant, with each step that
//! ended by then and nothing later.
//!
//! Limits on who comes in are those of each server, and those of a [gateway](Fleet::gateway) in front
//! of the router. A router with a queue of its own leaves nobody to wait in a server, so that only a
//! gateway can bound who waits, and its order is the one that counts.

mod router;

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

pub use router::{Router, RouterKind};

use crate::admission::{Gate, Seen};
use crate::error::{Result, SimError};
use crate::history::Observer;
use crate::memory::{Order, ServerSettings};
use crate::server::{Ending, Job, Leave, Over, Progress, Server, ServerLoad};
use crate::simulation::{RequestRecord, RunEnd};
use crate::statistics::{Refused, RunStatistics};
use crate::time::Ticks;

/// Servers behind a router.
///
/// # Examples
///
/// ```
/// use sched_sim::fleet::{Fleet, RouterKind};
/// use sched_sim::server::{Job, Over, Server};
/// use sched_sim::{Affine, DecodeFirst, Replica, Ticks};
///
/// let step_time: Affine = "base=1ms,prefill=10us/token".parse()?;
/// let servers = (0..2).map(|_| Ok(Replica::new(DecodeFirst::new(8, 512)?, step_time)));
/// let servers = servers.collect::<sched_sim::Result<Vec<_>>>()?;
/// let mut fleet = Fleet::new(servers, RouterKind::RoundRobin, 1)?;
/// fleet.submit(Job::new(0, Ticks::ZERO, 100, 3))?;
/// fleet.submit(Job::new(1, Ticks::ZERO, 100, 3))?;
/// fleet.finish(&mut ())?;
/// let mut over: Vec<Over> = Vec::new();
/// fleet.take_over(&mut over);
/// // Each alone on its server: 2 ms for the prompt, 1 ms for each token.
/// assert!(over.iter().all(|o| o.at == "5ms".parse::<Ticks>().unwrap()));
/// assert_eq!((over[0].server, over[1].server), (0, 1));
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub struct Fleet<S> {
    servers: Vec<S>,
    router: Router,
    /// Requests inside each server, those on their way into it included.
    assigned: Vec<u64>,
    /// Most requests in the batch of each server.
    slots: Vec<u64>,
    /// Submitted, and not routed.
    pending: VecDeque<Job>,
    /// Arrived, and in no server: those that wait for the router's own queue.
    queue: VecDeque<Job>,
    /// Who of them is next.
    order: Order,
    gate: Gate,
    /// Requests inside the servers.
    placed: HashMap<u64, Placed, FixedState>,
    /// All servers have advanced to here.
    at: Ticks,
    over: Vec<Over>,
    scratch: Vec<Over>,
    totals: Totals,
    end: Option<RunEnd>,
}

/// Where a request is, and when it came.
#[derive(Clone, Copy, Debug)]
struct Placed {
    server: usize,
    arrival: Ticks,
}

/// What a fleet counts beside its servers.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    requests: u64,
    start: Ticks,
    /// Requests whose client left while they were in the queue.
    cancelled: u64,
    timed_out: u64,
    /// Requests that the gateway refused.
    rejected: u64,
    refused: Refused,
    /// ∫ requests in the queue dt.
    queue_area: u128,
    /// Up to when that is counted.
    counted: Ticks,
    /// Σ time in the queue, of those who left it.
    queued_time: u128,
    queue_max: u64,
}

impl<S: Server> Fleet<S> {
    /// Idle servers behind a router; `seed` is for routers that draw.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] without servers.
    pub fn new(servers: Vec<S>, kind: RouterKind, seed: u64) -> Result<Self> {
        if servers.is_empty() {
            return Err(SimError::TooSmall { input: "servers of a fleet", min: 1, value: 0 });
        }
        Ok(Self {
            assigned: vec![0; servers.len()],
            slots: servers.iter().map(|s| s.statistics().max_num_seqs).collect(),
            router: Router::new(kind, servers.len(), seed),
            servers,
            pending: VecDeque::new(),
            queue: VecDeque::new(),
            order: Order::Fcfs,
            gate: Gate::default(),
            placed: HashMap::with_hasher(FixedState::default()),
            at: Ticks::ZERO,
            over: Vec::new(),
            scratch: Vec::new(),
            totals: Totals::default(),
            end: None,
        })
    }

    /// The same fleet behind a gateway, which refuses who arrives by the limits of `settings`. Who waits
    /// there is who waits in the router's own queue, of which the next one is by its order. The limits
    /// of the servers stay theirs.
    #[must_use]
    pub fn gateway(mut self, settings: &ServerSettings) -> Self {
        self.order = settings.order;
        self.gate = Gate::new(settings);
        self
    }

    /// The servers, in the order in which [`Over::server`] counts them.
    #[must_use]
    pub fn servers(&self) -> &[S] {
        &self.servers
    }

    /// Advances every server, and takes in who is over.
    fn advance_servers(&mut self, time: Ticks, observer: &mut dyn Observer) -> Result<()> {
        for (i, server) in self.servers.iter_mut().enumerate() {
            observer.server(i);
            if let Some(end) = server.advance_to(time, observer)? {
                self.end = Some(end);
            }
        }
        self.at = self.at.max(time);
        self.collect();
        Ok(())
    }

    /// Takes in who is over, with the arrival that its client knows.
    fn collect(&mut self) {
        for (i, server) in self.servers.iter_mut().enumerate() {
            server.take_over(&mut self.scratch);
            for mut over in self.scratch.drain(..) {
                self.assigned[i] -= 1;
                over.server = i;
                over.progress.server = Some(i);
                if let Some(placed) = self.placed.remove(&over.progress.id) {
                    over.progress.arrival = placed.arrival;
                }
                if over.ending == Ending::Completed {
                    self.gate.completed(&over);
                }
                self.over.push(over);
            }
        }
    }

    /// Gives a request to a server, which has come to know of it.
    fn place(
        &mut self,
        server: usize,
        job: Job,
        arrival: Ticks,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        self.assigned[server] += 1;
        self.placed.insert(job.id, Placed { server, arrival });
        // Steps that it has planned from now on may be others with one request more.
        observer.server(server);
        self.servers[server].advance_to(self.at, observer)?;
        self.servers[server].submit(job)
    }

    /// Whether the gateway refuses a request that arrives now, which is then over.
    fn refuses(&mut self, job: &Job) -> bool {
        let (queue, servers) = (&self.queue, &self.servers);
        let seen = Seen {
            waiting: queue.len() as u64,
            waiting_tokens: || queue.iter().map(Job::prompt_left).sum(),
            kv_used: || {
                let loads = servers.iter().map(Server::load);
                let of = |l: ServerLoad| l.kv_blocks.map(|blocks| (l.kv_used, blocks));
                let (used, all) = loads.filter_map(of).fold((0, 0), |s, l| (s.0 + l.0, s.1 + l.1));
                if all == 0 { 0.0 } else { used as f64 / all as f64 }
            },
        };
        let at = (job.arrival, self.at);
        let Some(reason) = self.gate.refusal((job.id, job.prompt_left()), at, seen) else {
            return false;
        };
        self.totals.rejected += 1;
        self.totals.refused.count(&reason);
        self.over.push(Over::new(progress_of(job), job.arrival, Ending::Rejected(reason)));
        true
    }

    /// Routes a request that arrives now.
    fn route(&mut self, job: Job, observer: &mut dyn Observer) -> Result<()> {
        if self.refuses(&job) {
            return Ok(());
        }
        if self.router.kind() == RouterKind::CentralQueue {
            self.queue.push_back(job);
            return self.serve_queue(observer);
        }
        let servers = &self.servers;
        let tokens = |i: usize| servers.get(i).map_or(0, |s| s.load().outstanding_tokens);
        let server = self.router.choose(&job, &self.assigned, tokens);
        let arrival = job.arrival;
        self.place(server, job, arrival, observer)
    }

    /// Gives the head of the queue to a server with a free slot, as long as there are both.
    fn serve_queue(&mut self, observer: &mut dyn Observer) -> Result<()> {
        self.count_queue(self.at);
        while !self.queue.is_empty() {
            let free = |i: &usize| self.assigned[*i] < self.slots[*i];
            let least = (0..self.servers.len()).filter(free).min_by_key(|&i| (self.assigned[i], i));
            let Some(server) = least else { break };
            let Some(mut job) = self.take_next() else { break };
            let arrival = job.arrival;
            self.totals.queued_time += self.at.0 - arrival.0;
            job.arrival = self.at;
            self.place(server, job, arrival, observer)?;
        }
        self.totals.queue_max = self.totals.queue_max.max(self.queue.len() as u64);
        Ok(())
    }

    /// Takes who is next out of the queue.
    fn take_next(&mut self) -> Option<Job> {
        if self.order == Order::Fcfs {
            return self.queue.pop_front();
        }
        // Of equal ones the first is the one that came first.
        let next = (0..self.queue.len()).min_by_key(|&i| self.order.key_of_job(&self.queue[i]))?;
        self.queue.remove(next)
    }

    /// Counts the time of the queue up to now.
    fn count_queue(&mut self, now: Ticks) {
        let gap = now.0.saturating_sub(self.totals.counted.0);
        self.totals.queue_area += gap * self.queue.len() as u128;
        self.totals.counted = self.totals.counted.max(now);
    }

    /// The first client in the queue that leaves, and which one it is.
    fn next_departure(&self) -> Option<(Ticks, usize, Leave)> {
        let leaving = self.queue.iter().enumerate();
        leaving.filter_map(|(i, job)| job.departure().map(|(at, why)| (at, i, why))).min()
    }

    /// Lets go whoever leaves the queue by `time`, at the instant at which it does.
    fn take_departures(&mut self, time: Ticks) {
        while let Some((at, i, why)) = self.next_departure().filter(|(at, ..)| *at <= time)
            && let Some(job) = self.queue.get(i).cloned()
        {
            let at = at.max(job.arrival);
            self.count_queue(at);
            self.queue.remove(i);
            self.totals.queued_time += at.0 - job.arrival.0;
            match why {
                Leave::Timeout => self.totals.timed_out += 1,
                Leave::Cancel => self.totals.cancelled += 1,
            }
            self.over.push(Over::new(progress_of(&job), at, why.ending()));
        }
    }

    /// The next instant at which the queue may have to be looked at: a server shows something, or
    /// a client leaves the queue.
    fn next_turn(&mut self, observer: &mut dyn Observer) -> Result<Option<Ticks>> {
        let mut next = self.next_departure().map(|(at, ..)| at);
        for (i, server) in self.servers.iter_mut().enumerate() {
            observer.server(i);
            next = [next, server.next_visible(observer)?].into_iter().flatten().min();
        }
        Ok(next)
    }

    /// Takes in whom a decision of this instant let go, and fills their slots from the queue; whether
    /// anybody came to a server.
    fn hand_on(&mut self, observer: &mut dyn Observer) -> Result<bool> {
        self.collect();
        let waiting = self.queue.len();
        self.serve_queue(observer)?;
        Ok(self.queue.len() < waiting)
    }

    /// Goes on to `time`, before which nothing arrives, in the turns of the queue.
    fn go_on(&mut self, time: Option<Ticks>, observer: &mut dyn Observer) -> Result<()> {
        while !self.queue.is_empty() && self.end.is_none() {
            let turn = self.next_turn(observer)?;
            if self.hand_on(observer)? {
                continue;
            }
            let Some(turn) = turn.filter(|t| time.is_none_or(|time| *t <= time)) else { break };
            self.take_departures(turn);
            self.advance_servers(turn, observer)?;
            self.serve_queue(observer)?;
        }
        if let Some(time) = time {
            self.take_departures(time);
            self.advance_servers(time, observer)?;
            self.serve_queue(observer)?;
        }
        Ok(())
    }

    /// Routes what arrives before `time`, or by it.
    fn take_arrivals(
        &mut self,
        time: Option<Ticks>,
        at_it: bool,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        while self.end.is_none()
            && let Some(job) = self.pending.pop_front_if(|job| {
                time.is_none_or(|t| job.arrival < t || (at_it && job.arrival == t))
            })
        {
            if self.at < job.arrival {
                self.go_on(Some(job.arrival), observer)?;
            }
            self.route(job, observer)?;
        }
        Ok(())
    }
}

/// A request that no server has seen.
fn progress_of(job: &Job) -> Progress {
    Progress {
        id: job.id,
        arrival: job.arrival,
        input_tokens: job.input_tokens,
        record: RequestRecord::NEW,
        prefilled: 0,
        output_tokens: job.made_tokens,
        made_before: job.made_tokens,
        hit_tokens: 0,
        stalls: Vec::new(),
        held: Vec::new(),
        transfer: None,
        server: None,
    }
}

impl<S: Server> Server for Fleet<S> {
    fn submit(&mut self, job: Job) -> Result<()> {
        job.check()?;
        let told = self.pending.back().map_or(self.at, |last| last.arrival);
        if job.arrival < told {
            return Err(SimError::OutOfOrder {
                id: job.id.into(),
                arrival: job.arrival,
                before: told,
            });
        }
        if self.totals.requests == 0 {
            self.totals.start = job.arrival;
        }
        self.totals.requests += 1;
        self.pending.push_back(job);
        Ok(())
    }

    fn advance_to(&mut self, time: Ticks, observer: &mut dyn Observer) -> Result<Option<RunEnd>> {
        self.take_arrivals(Some(time), false, observer)?;
        if self.end.is_none() {
            self.go_on(Some(time), observer)?;
        }
        Ok(self.end)
    }

    fn finish(&mut self, observer: &mut dyn Observer) -> Result<RunEnd> {
        self.take_arrivals(None, true, observer)?;
        if self.end.is_none() {
            self.go_on(None, observer)?;
        }
        let mut ends = Vec::new();
        for (i, server) in self.servers.iter_mut().enumerate() {
            observer.server(i);
            ends.push(server.finish(observer)?);
        }
        self.collect();
        let stuck = !self.queue.is_empty();
        let end = ends.into_iter().find(|end| end.is_truncated());
        Ok(end.unwrap_or(if stuck { RunEnd::Stalled } else { RunEnd::Completed }))
    }

    fn next_visible(&mut self, observer: &mut dyn Observer) -> Result<Option<Ticks>> {
        self.take_arrivals(Some(self.at), true, observer)?;
        let next = loop {
            let next = self.next_turn(observer)?;
            if !self.hand_on(observer)? {
                break next;
            }
        };
        let arrival = self.pending.front().map(|job| job.arrival);
        Ok([next, arrival].into_iter().flatten().min())
    }

    fn cancel(&mut self, id: u64) {
        let at = self.at;
        let waiting = self.pending.iter_mut().chain(self.queue.iter_mut());
        if let Some(job) = waiting.into_iter().find(|job| job.id == id) {
            job.cancel_at = Some(job.cancel_at.map_or(at, |c| c.min(at)));
        } else if let Some(placed) = self.placed.get(&id) {
            self.servers[placed.server].cancel(id);
        }
    }

    fn load(&self) -> ServerLoad {
        let mut sum = ServerLoad { waiting: self.queue.len() as u64, ..ServerLoad::default() };
        let arrived = self.pending.iter().take_while(|job| job.arrival <= self.at);
        for job in self.queue.iter().chain(arrived.clone()) {
            sum.outstanding_tokens += job.outstanding_tokens();
        }
        sum.waiting += arrived.count() as u64;
        for load in self.servers.iter().map(Server::load) {
            sum.waiting += load.waiting;
            sum.running += load.running;
            sum.outstanding_tokens += load.outstanding_tokens;
            sum.kv_used += load.kv_used;
            sum.kv_cached += load.kv_cached;
            sum.kv_blocks = sum.kv_blocks.into_iter().chain(load.kv_blocks).reduce(|a, b| a + b);
        }
        sum
    }

    fn take_over(&mut self, into: &mut Vec<Over>) {
        self.over.sort_by_key(|o| (o.at, o.progress.id));
        into.append(&mut self.over);
    }

    fn inside(&self) -> Vec<Progress> {
        let mut list: Vec<Progress> = self.queue.iter().map(progress_of).collect();
        for (i, server) in self.servers.iter().enumerate() {
            list.extend(server.inside().into_iter().map(|mut progress| {
                progress.server = Some(i);
                if let Some(placed) = self.placed.get(&progress.id) {
                    progress.arrival = placed.arrival;
                }
                progress
            }));
        }
        list.sort_unstable_by_key(|p| p.id);
        list
    }

    fn each(&self) -> Vec<RunStatistics> {
        let whole = self.statistics();
        self.servers.iter().map(|server| server.statistics().as_part_of(&whole)).collect()
    }

    fn statistics(&self) -> RunStatistics {
        let each = self.servers.iter().map(Server::statistics);
        let mut sum = RunStatistics::of_fleet(each);
        let t = &self.totals;
        sum.requests = t.requests;
        sum.start = t.start;
        sum.end = sum.end.max(t.start).max(if self.queue.is_empty() { t.start } else { self.at });
        let waiting = self.queue.len() as u64;
        // Who was given to a server that was stopped before had not arrived.
        sum.injected += waiting + t.cancelled + t.timed_out + t.rejected;
        sum.queued += waiting;
        sum.cancelled += t.cancelled;
        sum.timed_out += t.timed_out;
        sum.rejected += t.rejected;
        sum.refused = sum.refused.plus(&t.refused);
        sum.waiting_max = sum.waiting_max.max(t.queue_max);
        let open = sum.end.0.saturating_sub(t.counted.0) * u128::from(waiting);
        sum.in_system_time += t.queue_area + open;
        sum.sojourn_time +=
            t.queued_time + self.queue.iter().map(|job| sum.end.0 - job.arrival.0).sum::<u128>();
        sum
    }
}
