//! Requests that wait for answers, on a server that gives them: closed loops and sessions.
//!
//! What arrives depends on what is over, so that neither is known before the run. The driver asks
//! the server when anything can be seen next, and the arrivals when the next one is due, and lets
//! time go on to whichever is first.
//!
//! A client who leaves, because it stops waiting or goes away, goes on at that instant: it does not
//! know when the server takes note, which is at the end of the step under way. Who is refused goes
//! on when the server says so.
//!
//! Answers of several servers at one instant are told in order of their numbers. Only where decode
//! steps take no time does that order depend on the engine, as one shows such steps one by one.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::history::Observer;
use crate::server::{Books, Job, Over, Server};
use crate::simulation::{RunEnd, RunResult};
use crate::time::Ticks;
use crate::workload::{Arrivals, Workload, WorkloadRequest};

/// What arrived in a driven run, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driven {
    workload: Workload,
    over: Vec<Over>,
    end: RunEnd,
}

impl Driven {
    /// The requests in order of arrival.
    #[must_use]
    pub const fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Whoever is over, in order of time; their numbers are positions in the workload.
    #[must_use]
    pub fn over(&self) -> &[Over] {
        &self.over
    }

    /// The result of the run, with whoever is still inside the server; `hits`: whether it has a
    /// prefix cache.
    #[must_use]
    pub fn result<S: Server + ?Sized>(&self, server: &S, hits: bool) -> RunResult<'_> {
        let mut books = Books::new(&self.workload, hits);
        self.over.iter().for_each(|over| books.take(over));
        books.close(server, self.end)
    }
}

/// Runs all that arrives to its end, or to that of the server's limits; clients wait for their last
/// token for `patience` at most, if that is given.
///
/// # Errors
///
/// What the arrivals, [`Server::submit`] and [`Server::advance_to`] refuse.
///
/// # Examples
///
/// ```
/// use sched_sim::drive::drive;
/// use sched_sim::workload::{ClosedLoop, Lengths};
/// use sched_sim::{Affine, DecodeFirst, Replica, Ticks};
///
/// // Two users who think for 10 ms; alone in the server a request takes 3 ms, with the other 3 too.
/// let users = ClosedLoop {
///     users: 2,
///     think: "10ms".parse()?,
///     requests: 4,
///     lengths: Lengths::Independent { input: "1".parse()?, output: "2".parse()? },
///     system_prompts: None,
///     sessions: None,
///     cancellations: None,
///     seed: 1,
/// };
/// let mut server = Replica::new(DecodeFirst::new(8, 512)?, "base=1ms".parse::<Affine>()?);
/// let driven = drive(&mut server, &mut users.arrivals()?, None, &mut ())?;
/// let arrivals: Vec<Ticks> = driven.workload().requests().iter().map(|r| r.arrival).collect();
/// let ms = |n: u64| Ticks::from_nanoseconds(n * 1_000_000);
/// assert_eq!(arrivals, [ms(10), ms(10), ms(23), ms(23)]);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub fn drive<S: Server + ?Sized>(
    server: &mut S,
    arrivals: &mut impl Arrivals,
    patience: Option<Ticks>,
    observer: &mut dyn Observer,
) -> Result<Driven> {
    let mut clients = Clients { patience, ..Clients::default() };
    let mut now = Ticks::ZERO;
    let end = loop {
        while arrivals.next_at().is_some_and(|at| at <= now)
            && let Some(request) = arrivals.next()?
        {
            server.submit(clients.send(request))?;
        }
        let visible = server.next_visible(observer)?;
        // The decision of this instant may have let somebody go, whose user goes on.
        if clients.hear(server, arrivals, now)? {
            continue;
        }
        let Some(next) =
            [visible, arrivals.next_at(), clients.next_departure()].into_iter().flatten().min()
        else {
            break server.finish(observer)?;
        };
        now = now.max(next);
        let end = server.advance_to(now, observer)?;
        clients.hear(server, arrivals, now)?;
        if let Some(end) = end {
            break end;
        }
        clients.leave(arrivals, now)?;
    };
    let Clients { requests, mut over, .. } = clients;
    server.take_over(&mut over);
    Ok(Driven { workload: Workload::new(requests)?, over, end })
}

/// Those who sent requests.
#[derive(Default)]
struct Clients {
    requests: Vec<WorkloadRequest>,
    over: Vec<Over>,
    /// How long each waits at most.
    patience: Option<Ticks>,
    /// Who will leave when, in order of time, unless an answer comes first.
    leaving: BTreeSet<(Ticks, usize)>,
}

impl Clients {
    /// A request on its way to the server.
    fn send(&mut self, request: WorkloadRequest) -> Job {
        let position = self.requests.len();
        let mut job = Job::of(position, &request);
        job.give_up_after(self.patience);
        self.leaving.extend(request.departure(self.patience).map(|at| (at, position)));
        self.requests.push(request);
        job
    }

    /// Tells the arrivals who is over; whether anybody is. Who was refused is told so when the server
    /// takes note of the arrival, which is at the end of the step under way.
    fn hear<S: Server + ?Sized>(
        &mut self,
        server: &mut S,
        arrivals: &mut impl Arrivals,
        now: Ticks,
    ) -> Result<bool> {
        let known = self.over.len();
        server.take_over(&mut self.over);
        for over in self.over.iter().skip(known) {
            let position = usize::try_from(over.progress.id).unwrap_or(usize::MAX);
            let Some(request) = self.requests.get(position) else { continue };
            let departure = request.departure(self.patience);
            // Who has left went on then.
            if departure.is_none_or(|at| self.leaving.remove(&(at, position))) {
                arrivals.completed(&request.id, over.at.max(now))?;
            }
        }
        Ok(known < self.over.len())
    }

    /// When the next client leaves, if nothing is over before.
    fn next_departure(&self) -> Option<Ticks> {
        self.leaving.first().map(|&(at, _)| at)
    }

    /// Lets those go on who leave by now.
    fn leave(&mut self, arrivals: &mut impl Arrivals, now: Ticks) -> Result<()> {
        while let Some((at, position)) = self.leaving.first().copied().filter(|l| l.0 <= now) {
            self.leaving.remove(&(at, position));
            if let Some(request) = self.requests.get(position) {
                arrivals.completed(&request.id, at)?;
            }
        }
        Ok(())
    }
}
