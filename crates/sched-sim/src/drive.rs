//! Requests that wait for answers, on a server that gives them: closed loops and sessions.
//!
//! What arrives depends on what is over, so that neither is known before the run. The driver asks
//! the server when anything can be seen next, and the arrivals when the next one is due, and lets
//! time go on to whichever is first.
//!
//! Answers of several servers at one instant are told in order of their numbers. Only where decode
//! steps take no time does that order depend on the engine, as one shows such steps one by one.

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

/// Runs all that arrives to its end, or to that of the server's limits.
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
///     seed: 1,
/// };
/// let mut server = Replica::new(DecodeFirst::new(8, 512)?, "base=1ms".parse::<Affine>()?);
/// let driven = drive(&mut server, &mut users.arrivals()?, &mut ())?;
/// let arrivals: Vec<Ticks> = driven.workload().requests().iter().map(|r| r.arrival).collect();
/// let ms = |n: u64| Ticks::from_nanoseconds(n * 1_000_000);
/// assert_eq!(arrivals, [ms(10), ms(10), ms(23), ms(23)]);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub fn drive<S: Server + ?Sized>(
    server: &mut S,
    arrivals: &mut impl Arrivals,
    observer: &mut dyn Observer,
) -> Result<Driven> {
    let mut requests: Vec<WorkloadRequest> = Vec::new();
    let mut over = Vec::new();
    let mut now = Ticks::ZERO;
    let end = loop {
        while arrivals.next_at().is_some_and(|at| at <= now)
            && let Some(request) = arrivals.next()?
        {
            server.submit(Job::of(requests.len(), &request))?;
            requests.push(request);
        }
        let visible = server.next_visible(observer)?;
        // The decision of this instant may have let somebody go, whose user goes on.
        if answer(server, arrivals, &requests, &mut over, now)? {
            continue;
        }
        let Some(next) = [visible, arrivals.next_at()].into_iter().flatten().min() else {
            break server.finish(observer)?;
        };
        now = now.max(next);
        let end = server.advance_to(now, observer)?;
        answer(server, arrivals, &requests, &mut over, now)?;
        if let Some(end) = end {
            break end;
        }
    };
    server.take_over(&mut over);
    Ok(Driven { workload: Workload::new(requests)?, over, end })
}

/// Tells the arrivals who is over; whether anybody is. Who was refused is told so when the server
/// takes note of the arrival, which is at the end of the step under way.
fn answer<S: Server + ?Sized>(
    server: &mut S,
    arrivals: &mut impl Arrivals,
    requests: &[WorkloadRequest],
    over: &mut Vec<Over>,
    now: Ticks,
) -> Result<bool> {
    let known = over.len();
    server.take_over(over);
    for over in over.iter().skip(known) {
        let position = usize::try_from(over.progress.id).ok();
        if let Some(request) = position.and_then(|position| requests.get(position)) {
            arrivals.completed(&request.id, over.at.max(now))?;
        }
    }
    Ok(known < over.len())
}
