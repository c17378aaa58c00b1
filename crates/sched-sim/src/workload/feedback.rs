//! Requests that wait for answers: closed loops and sessions, and what drives them.

use std::collections::{BTreeMap, HashMap};

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::error::{Result, SimError};
use crate::time::Ticks;
use crate::workload::arrivals::ArrivalClock;
use crate::workload::delay::Delay;
use crate::workload::generate::{Draws, Generated, Mold, Source, Stream, segment, stream};
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
/// Request k of user u arrives one think time after the answer to request k − 1; the first one
/// arrives one think time after the start. Its id is `u.k`, and its tokens and think time depend on
/// seed, u and k alone, so that two servers are compared on the same requests. More users begin
/// with the same ones.
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
    /// How long a user thinks before a request.
    pub think: Delay,
    /// How many requests of all users together.
    pub requests: u64,
    /// Tokens of prompts and answers; a system prompt comes on top.
    pub lengths: Lengths,
    /// Prompts that many requests begin with.
    pub system_prompts: Option<SystemPrompts>,
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
        let mut talk = Conversations::new(mold, self.think, None, self.seed);
        for _ in 0..self.users {
            let user = talk.open(None);
            talk.release(user, Ticks::ZERO)?;
        }
        let source = Source::Conversations(Box::new(talk));
        Ok(Generated { left: self.requests, total: 0, source })
    }
}

/// A client with its own random streams.
#[derive(Clone, Debug)]
struct Conversation {
    number: u64,
    /// Turns so far.
    turn: u64,
    /// Turns in all; none: a user who never leaves and starts afresh with every request.
    turns: Option<u64>,
    draws: Draws,
    thinks: Pcg64,
    /// What was said before.
    said: Vec<(u64, u64)>,
}

/// Clients that wait for answers.
#[derive(Clone, Debug)]
pub(super) struct Conversations {
    mold: Mold,
    think: Delay,
    /// When the next session starts, and how many turns it has; none: all are there.
    starts: Option<(ArrivalClock, Ticks, Sampler)>,
    /// A seed for each client.
    seeds: Pcg64,
    opened: u64,
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
        think: Delay,
        starts: Option<(ArrivalClock, Ticks, Sampler)>,
        seed: u64,
    ) -> Self {
        Self {
            mold,
            think,
            starts,
            seeds: stream(seed, Stream::Seeds),
            opened: 0,
            issued: 0,
            thinking: BTreeMap::new(),
            waiting: HashMap::new(),
        }
    }

    /// A new client; `turns` draws from its own stream how many turns it has.
    fn open(&mut self, turns: Option<&Sampler>) -> Conversation {
        let seed = self.seeds.random();
        self.opened += 1;
        let mut draws = Draws::new(seed);
        Conversation {
            number: self.opened,
            turn: 0,
            turns: turns.map(|law| law.sample(&mut stream(seed, Stream::Turns))),
            said: if turns.is_some() { self.mold.opening(&mut draws) } else { Vec::new() },
            draws,
            thinks: stream(seed, Stream::Thinks),
        }
    }

    /// Lets a client think from `at` on.
    fn release(&mut self, mut client: Conversation, at: Ticks) -> Result<()> {
        let at = at.after(self.think.sample(&mut client.thinks)?);
        self.thinking.insert((at.within_a_run("an arrival")?, client.number), client);
        Ok(())
    }

    pub(super) fn next_at(&self) -> Option<Ticks> {
        let thought = self.thinking.first_key_value().map(|((at, _), _)| *at);
        let start = self.starts.as_ref().map(|(_, at, _)| *at);
        thought.into_iter().chain(start).min()
    }

    pub(super) fn next(&mut self) -> Result<Option<WorkloadRequest>> {
        let start = self.starts.as_ref().map(|(_, at, _)| *at);
        // Whoever was there before goes first.
        let thought = (self.thinking.first_entry())
            .filter(|e| start.is_none_or(|start| e.key().0 <= start))
            .map(std::collections::btree_map::OccupiedEntry::remove_entry);
        let (at, mut client) = match (thought, self.starts.take()) {
            (Some(((at, _), client)), starts) => {
                self.starts = starts;
                (at, client)
            }
            (None, Some((mut clock, at, turns))) => {
                let client = self.open(Some(&turns));
                let next = clock.next()?;
                self.starts = Some((clock, next, turns));
                (at, client)
            }
            (None, None) => return Ok(None),
        };
        client.turn += 1;
        self.issued += 1;
        let id = RequestId::Name(format!("{}.{}", client.number, client.turn).into());
        let request = if client.turns.is_none() {
            self.mold.alone(id, self.issued, at, &mut client.draws)
        } else {
            let (input, output) = self.mold.lengths(&mut client.draws);
            client.said.push((segment(client.number, client.turn, false), input));
            let prompt = client.said.clone();
            let tokens = prompt.iter().map(|&(_, tokens)| tokens).sum();
            let answer = segment(client.number, client.turn, true);
            client.said.push((answer, output));
            let mut request = WorkloadRequest::new(id, at, tokens, output);
            request.content = Some(Box::new(PromptContent { prompt, answer: Some(answer) }));
            request
        };
        self.waiting.insert(client.number, client);
        Ok(Some(request))
    }

    pub(super) fn completed(&mut self, id: &RequestId, at: Ticks) -> Result<()> {
        let unknown = || SimError::NotInFlight { id: id.clone() };
        let RequestId::Name(name) = id else { return Err(unknown()) };
        let (number, turn) = name.split_once('.').ok_or_else(unknown)?;
        let number: u64 = number.parse().map_err(|_| unknown())?;
        let client = self.waiting.remove(&number).ok_or_else(unknown)?;
        if client.turn.to_string() != turn {
            self.waiting.insert(number, client);
            return Err(unknown());
        }
        if client.turns.is_none_or(|turns| client.turn < turns) {
            self.release(client, at)?;
        }
        Ok(())
    }
}
