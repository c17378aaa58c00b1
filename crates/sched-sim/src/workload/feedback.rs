//! Requests that wait for answers: closed loops and sessions, and what drives them.

use std::collections::{BTreeMap, HashMap};

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::error::{Result, SimError};
use crate::time::Ticks;
use crate::workload::arrivals::ArrivalClock;
use crate::workload::cancellations::{Cancellations, Leavers};
use crate::workload::delay::Delay;
use crate::workload::generate::{
    Draws, Generated, Mold, Sessions, Source, Stream, ThinkAfter, segment, stream,
};
use crate::workload::law::within;
use crate::workload::lengths::{Lengths, Sampler};
use crate::workload::{PromptContent, RequestId, SystemPrompts, Workload, WorkloadRequest};

/// Requests as a server meets them, some of which wait for answers.
///
/// Whoever drives a server, or a fleet of them, asks [`Arrivals::next_at`], takes a request with
/// [`Arrivals::next`] once its clock is there, and says of every answer when it ended, in order of
/// time. An answer at t releases requests at t or later only, so that taking what is due until the
/// next event keeps all arrivals in order.
pub trait Arrivals {
    /// When the next request arrives, as far as is known; `None`: none before another answer.
    fn next_at(&self) -> Option<Ticks>;

    /// Takes the next request.
    ///
    /// # Errors
    ///
    /// What generating or reading it refuses.
    fn next(&mut self) -> Result<Option<WorkloadRequest>>;

    /// Says that an answer ended at `at`, not before its request arrived, however it ended.
    ///
    /// # Errors
    ///
    /// [`SimError::NotInFlight`] for a request that was not taken, or ended before.
    fn completed(&mut self, id: &RequestId, at: Ticks) -> Result<()>;
}

/// Requests that wait for no answer: a [`Workload`], or any stream in order of arrival.
#[derive(Clone, Debug)]
pub struct OpenLoop<I> {
    rest: I,
    next: Option<Result<WorkloadRequest>>,
}

impl<I: Iterator<Item = Result<WorkloadRequest>>> OpenLoop<I> {
    /// From requests in order of arrival.
    pub fn new(mut requests: I) -> Self {
        Self { next: requests.next(), rest: requests }
    }
}

impl Workload {
    /// Its requests, which wait for no answer.
    pub fn open_loop(&self) -> OpenLoop<impl Iterator<Item = Result<WorkloadRequest>>> {
        OpenLoop::new(self.requests().iter().cloned().map(Ok))
    }
}

impl<I: Iterator<Item = Result<WorkloadRequest>>> Arrivals for OpenLoop<I> {
    fn next_at(&self) -> Option<Ticks> {
        // An error is due at once.
        self.next.as_ref().map(|r| r.as_ref().map_or(Ticks::ZERO, |r| r.arrival))
    }

    fn next(&mut self) -> Result<Option<WorkloadRequest>> {
        let next = self.next.take();
        self.next = self.rest.next();
        next.transpose()
    }

    fn completed(&mut self, _: &RequestId, _: Ticks) -> Result<()> {
        Ok(())
    }
}

/// A fixed number of users, each of whom sends a request, waits for the answer, thinks, and sends
/// the next one.
///
/// Request k of user u arrives one think time after the answer to request k − 1, or after the user
/// stopped waiting for it; the first one arrives one think time after the start. Its id is `u.k`,
/// and its tokens and think time depend on seed, u and k alone, so that two servers are compared on
/// the same requests. More users begin with the same ones. With sessions a user begins another
/// conversation when one is over.
///
/// # Examples
///
/// ```
/// use sched_sim::Ticks;
/// use sched_sim::workload::{Arrivals, ClosedLoop, Lengths};
///
/// let spec = ClosedLoop {
///     users: 2,
///     think: "5s".parse()?,
///     requests: 10,
///     lengths: Lengths::Independent { input: "100".parse()?, output: "20".parse()? },
///     system_prompts: None,
///     sessions: None,
///     cancellations: None,
///     seed: 1,
/// };
/// let mut arrivals = spec.arrivals()?;
/// let first = arrivals.next()?.unwrap();
/// assert_eq!((first.id.to_string(), first.arrival), ("1.1".to_owned(), "5s".parse()?));
/// assert_eq!(arrivals.next()?.unwrap().id.to_string(), "2.1");
/// assert_eq!(arrivals.next_at(), None); // both wait
///
/// arrivals.completed(&first.id, "8s".parse()?)?;
/// assert_eq!(arrivals.next_at(), Some("13s".parse()?));
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedLoop {
    /// How many users, at most 1000000.
    pub users: u64,
    /// How long a user thinks before a request, or before the first one of a session.
    pub think: Delay,
    /// How many requests of all users together.
    pub requests: u64,
    /// Tokens of prompts and answers; a system prompt comes on top.
    pub lengths: Lengths,
    /// Prompts that many requests begin with.
    pub system_prompts: Option<SystemPrompts>,
    /// Requests of a user that follow each other, after the [answer](ThinkAfter::Answer) in any case;
    /// none: each stands alone.
    pub sessions: Option<Sessions>,
    /// Users who go away from a request before its answer is complete, and go on as after an answer.
    pub cancellations: Option<Cancellations>,
    /// The seed of all streams.
    pub seed: u64,
}

impl ClosedLoop {
    /// The requests for a driver that says when answers end.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] with the name of the field, bound and value.
    pub fn arrivals(&self) -> Result<Generated> {
        let good = 1 <= self.users && self.users <= 1_000_000;
        within("users", "", self.users as f64, "from 1 to 1000000", good)?;
        self.think.check("think")?;
        let mold = Mold::new(&self.lengths, self.system_prompts)?;
        let mut pace = self.sessions.as_ref().map_or(Ok(Pace::default()), Pace::of_sessions)?;
        (pace.between, pace.after) = (self.think, ThinkAfter::Answer);
        self.cancellations.map_or(Ok(()), |law| law.check("cancellations"))?;
        let mut talk = Conversations::new(mold, pace, None, self.cancellations, self.seed);
        for _ in 0..self.users {
            let user = talk.open();
            talk.release(user, Ticks::ZERO, self.think)?;
        }
        let source = Source::Conversations(Box::new(talk));
        Ok(Generated { left: self.requests, total: 0, source })
    }
}

/// A client with its own random streams.
#[derive(Clone, Debug)]
struct Conversation {
    number: u64,
    /// Requests so far.
    turn: u64,
    /// The session, if there are any.
    session: Option<Session>,
    draws: Draws,
    turns: Pcg64,
    thinks: Pcg64,
    leavers: Option<Leavers>,
}

/// What a client says at a time.
#[derive(Clone, Debug)]
struct Session {
    number: u64,
    /// Turns so far, and those that are left.
    turn: u64,
    left: u64,
    /// What was said before.
    said: Vec<(u64, u64)>,
}

/// How clients go on.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Turns of a session; none: every request stands alone.
    turns: Option<Sampler>,
    /// How long a client thinks between the turns of a session.
    think: Delay,
    after: ThinkAfter,
    /// How long who stays thinks before another session, or another request that stands alone.
    between: Delay,
}

impl Default for Pace {
    fn default() -> Self {
        let none = Delay::Constant(Ticks::ZERO);
        Self { turns: None, think: none, after: ThinkAfter::Answer, between: none }
    }
}

impl Pace {
    pub(super) fn of_sessions(sessions: &Sessions) -> Result<Self> {
        sessions.check()?;
        let Sessions { ref turns, think, after } = *sessions;
        let turns = Some(turns.sampler("turns")?);
        Ok(Self { turns, think, after, ..Self::default() })
    }
}

/// Clients that wait for answers.
#[derive(Clone, Debug)]
pub(super) struct Conversations {
    mold: Mold,
    pace: Pace,
    cancellations: Option<Cancellations>,
    /// When the next client comes, who leaves after one session; none: all are there, and stay.
    starts: Option<(ArrivalClock, Ticks)>,
    /// A seed for each client.
    seeds: Pcg64,
    clients: u64,
    sessions: u64,
    /// Requests so far.
    issued: u64,
    /// Clients that think, by the instant at which they are done, and number.
    thinking: BTreeMap<(Ticks, u64), Conversation>,
    /// Clients that wait for an answer, by number.
    waiting: HashMap<u64, Conversation>,
}

impl Conversations {
    pub(super) fn new(
        mold: Mold,
        pace: Pace,
        starts: Option<(ArrivalClock, Ticks)>,
        cancellations: Option<Cancellations>,
        seed: u64,
    ) -> Self {
        Self {
            mold,
            pace,
            cancellations,
            starts,
            seeds: stream(seed, Stream::Seeds),
            clients: 0,
            sessions: 0,
            issued: 0,
            thinking: BTreeMap::new(),
            waiting: HashMap::new(),
        }
    }

    /// A new client, who begins a session if there are any.
    fn open(&mut self) -> Conversation {
        let seed = self.seeds.random();
        self.clients += 1;
        let mut client = Conversation {
            number: self.clients,
            turn: 0,
            session: None,
            draws: Draws::new(seed),
            turns: stream(seed, Stream::Turns),
            thinks: stream(seed, Stream::Thinks),
            leavers: self.cancellations.map(|law| Leavers::new(law, seed)),
        };
        self.begin(&mut client);
        client
    }

    /// Lets a client begin another session, if there are any.
    fn begin(&mut self, client: &mut Conversation) {
        let Some(turns) = &self.pace.turns else { return };
        self.sessions += 1;
        client.session = Some(Session {
            number: self.sessions,
            turn: 0,
            left: turns.sample(&mut client.turns),
            said: self.mold.opening(&mut client.draws),
        });
    }

    /// Lets a client go on who has an answer at `at`, or left; who came for one session and has had it
    /// does not.
    fn go_on(&mut self, mut client: Conversation, at: Ticks) -> Result<()> {
        let think = match &client.session {
            Some(session) if 0 < session.left => self.pace.think,
            _ if self.starts.is_some() => return Ok(()),
            _ => {
                self.begin(&mut client);
                self.pace.between
            }
        };
        self.release(client, at, think)
    }

    /// Lets a client think from `at` on.
    fn release(&mut self, mut client: Conversation, at: Ticks, think: Delay) -> Result<()> {
        let time = think.sample(&mut client.thinks).map_err(|value| SimError::Parameter {
            input: format!("a think time drawn from {think}, in seconds,"),
            bound: "at most 3153600000, a hundred years",
            value,
        })?;
        let at = at.after(time);
        self.thinking.insert((at.within_a_run("an arrival")?, client.number), client);
        Ok(())
    }

    pub(super) fn next_at(&self) -> Option<Ticks> {
        let thought = self.thinking.first_key_value().map(|((at, _), _)| *at);
        let start = self.starts.as_ref().map(|(_, at)| *at);
        thought.into_iter().chain(start).min()
    }

    pub(super) fn next(&mut self) -> Result<Option<WorkloadRequest>> {
        let start = self.starts.as_ref().map(|(_, at)| *at);
        // Whoever was there before goes first.
        let thought = (self.thinking.first_entry())
            .filter(|e| start.is_none_or(|start| e.key().0 <= start))
            .map(std::collections::btree_map::OccupiedEntry::remove_entry);
        let (at, mut client) = match (thought, &mut self.starts) {
            (Some(((at, _), client)), _) => (at, client),
            (None, Some((clock, next))) => {
                let at = *next;
                *next = clock.next()?;
                (at, self.open())
            }
            (None, None) => return Ok(None),
        };
        client.turn += 1;
        self.issued += 1;
        let id = RequestId::Name(format!("{}.{}", client.number, client.turn).into());
        let mut request = match &mut client.session {
            None => self.mold.alone(id, self.issued, at, &mut client.draws),
            Some(session) => session.next(id, at, self.mold.lengths(&mut client.draws)),
        };
        request.set_cancel_after(client.leavers.as_mut().and_then(Leavers::next));
        if self.pace.after == ThinkAfter::Arrival {
            self.go_on(client, at)?;
        } else {
            self.waiting.insert(client.number, client);
        }
        Ok(Some(request))
    }

    pub(super) fn completed(&mut self, id: &RequestId, at: Ticks) -> Result<()> {
        if self.pace.after == ThinkAfter::Arrival {
            return Ok(());
        }
        let unknown = || SimError::NotInFlight { id: id.clone() };
        let RequestId::Name(name) = id else { return Err(unknown()) };
        let (number, turn) = name.split_once('.').ok_or_else(unknown)?;
        let number: u64 = number.parse().map_err(|_| unknown())?;
        let client = self.waiting.remove(&number).ok_or_else(unknown)?;
        if client.turn.to_string() != turn {
            self.waiting.insert(number, client);
            return Err(unknown());
        }
        self.go_on(client, at)
    }
}

impl Session {
    /// Its next turn, with so many tokens of a message and of its answer.
    fn next(&mut self, id: RequestId, at: Ticks, (input, output): (u64, u64)) -> WorkloadRequest {
        self.turn += 1;
        self.left -= 1;
        self.said.push((segment(self.number, self.turn, false), input));
        let prompt = self.said.clone();
        let tokens = prompt.iter().map(|&(_, tokens)| tokens).sum();
        let answer = segment(self.number, self.turn, true);
        self.said.push((answer, output));
        let mut request = WorkloadRequest::new(id, at, tokens, output);
        request.content = Some(Box::new(PromptContent { prompt, answer: Some(answer) }));
        request
    }
}
