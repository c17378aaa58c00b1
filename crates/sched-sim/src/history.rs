//! What happened step by step, for those who want to know: stretches, and the batch history.

use crate::itl::GapRun;
use crate::step_time::{StepWork, StretchTime};
use crate::time::Ticks;

/// What keeps in the queue, during a step, the request that is next in it, and with it all behind.
///
/// Of several reasons a full batch counts first, then the one that the rule of the policy comes upon
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Held {
    /// The batch is full, or closed until all of it has ended.
    Slots,
    /// There are too few KV blocks for it, or the policy expects that there will be.
    Blocks,
    /// The tokens of the step went to others, or a step of this kind takes nobody in, or a router
    /// sent it at the instant of the decision and after it.
    Budget,
}

/// Consecutive steps of the same batch doing the same things.
///
/// Step j of it (from 0) did `work.after(j)` and took `time.step(j)`; nothing else happened
/// between `start` and `end`. Everything about a run follows from its stretches and the instants
/// of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stretch {
    /// When its first step started.
    pub start: Ticks,
    /// When its last step ended.
    pub end: Ticks,
    /// How many steps it has.
    pub steps: u64,
    /// The work of its first step.
    pub work: StepWork,
    /// The durations of its steps.
    pub time: StretchTime,
    /// Requests in the batch, with or without work in these steps.
    pub running: u64,
    /// Tokens whose KV the batch held before the first step: not the newest one of an answer where
    /// the next step stores it, and those that requests share once.
    pub held_tokens: u64,
    /// KV blocks while its first and while its last step ran, where a server counts them and
    /// somebody watches.
    pub blocks: Option<[Blocks; 2]>,
    /// What holds back whoever waits during these steps, or would if there were anybody; none of
    /// vLLM's scheduler if nobody waited when it decided them, which with async scheduling may be
    /// before somebody comes.
    pub held: Option<Held>,
}

/// KV blocks while a step ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Those of requests in the batch.
    pub used: u64,
    /// Those that hold a prefix and that nobody uses, where there is a prefix cache.
    pub cached: Option<u64>,
}

impl Stretch {
    /// How long it took.
    #[must_use]
    pub fn duration(&self) -> Ticks {
        Ticks(self.end.0 - self.start.0)
    }
}

/// Someone who watches a run.
///
/// An engine may cut the same steps into stretches as it likes; an observer must not depend on
/// where the cuts are. `()` watches nothing and costs nothing.
pub trait Observer {
    /// What follows is of this server of a fleet, whose stretches are in order of time for each
    /// server alone.
    fn server(&mut self, server: usize) {
        let _ = server;
    }

    /// The next stretch, in order of time.
    fn stretch(&mut self, stretch: &Stretch) {
        let _ = stretch;
    }

    /// Whether anybody looks at stretches, so that what only they tell has to be computed.
    fn is_watching(&self) -> bool {
        true
    }

    /// Whether anybody looks at gaps between tokens, so that they have to be told apart.
    fn counts_gaps(&self) -> bool {
        true
    }

    /// Nothing ran from `from` to `to`: the clock jumped to the next arrival.
    fn idle(&mut self, from: Ticks, to: Ticks) {
        let _ = (from, to);
    }

    /// The gaps between tokens that ended in the last stretch.
    fn gaps(&mut self, runs: &[GapRun]) {
        let _ = runs;
    }
}

impl Observer for () {
    fn is_watching(&self) -> bool {
        false
    }

    fn counts_gaps(&self) -> bool {
        false
    }
}

impl<O: Observer + ?Sized> Observer for &mut O {
    fn server(&mut self, server: usize) {
        (**self).server(server);
    }

    fn stretch(&mut self, stretch: &Stretch) {
        (**self).stretch(stretch);
    }

    fn is_watching(&self) -> bool {
        (**self).is_watching()
    }

    fn counts_gaps(&self) -> bool {
        (**self).counts_gaps()
    }

    fn idle(&mut self, from: Ticks, to: Ticks) {
        (**self).idle(from, to);
    }

    fn gaps(&mut self, runs: &[GapRun]) {
        (**self).gaps(runs);
    }
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn server(&mut self, server: usize) {
        self.0.server(server);
        self.1.server(server);
    }

    fn stretch(&mut self, stretch: &Stretch) {
        self.0.stretch(stretch);
        self.1.stretch(stretch);
    }

    fn is_watching(&self) -> bool {
        self.0.is_watching() || self.1.is_watching()
    }

    fn counts_gaps(&self) -> bool {
        self.0.counts_gaps() || self.1.counts_gaps()
    }

    fn idle(&mut self, from: Ticks, to: Ticks) {
        self.0.idle(from, to);
        self.1.idle(from, to);
    }

    fn gaps(&mut self, runs: &[GapRun]) {
        self.0.gaps(runs);
        self.1.gaps(runs);
    }
}

/// Consecutive steps with the same numbers of decodes and prefills, or an idle gap of no steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRun {
    /// When it started.
    pub start: Ticks,
    /// How long it took.
    pub duration: Ticks,
    /// How many steps it has; 0 for an idle gap.
    pub steps: u64,
    /// Requests that decoded in each of its steps.
    pub decodes: u64,
    /// Prompt chunks in each of its steps.
    pub prefills: u64,
}

/// The batch of every step, run-length encoded, of each server: the same for both engines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchHistory {
    servers: Vec<Vec<BatchRun>>,
    /// The server that runs now.
    server: usize,
}

impl BatchHistory {
    /// An empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The runs of the first server in order of time, idle gaps included.
    #[must_use]
    pub fn runs(&self) -> &[BatchRun] {
        self.of_server(0)
    }

    /// The same of a server of a fleet, counted from 0; none of one that did nothing.
    #[must_use]
    pub fn of_server(&self, server: usize) -> &[BatchRun] {
        self.servers.get(server).map_or(&[], Vec::as_slice)
    }

    fn push(&mut self, next: BatchRun) {
        if self.servers.len() <= self.server {
            self.servers.resize_with(self.server + 1, Vec::new);
        }
        let Some(runs) = self.servers.get_mut(self.server) else { return };
        if let Some(last) = runs.last_mut()
            && (last.decodes, last.prefills) == (next.decodes, next.prefills)
            && (last.steps == 0) == (next.steps == 0)
        {
            last.steps += next.steps;
            last.duration = last.duration.after(next.duration);
        } else {
            runs.push(next);
        }
    }
}

impl Observer for BatchHistory {
    fn server(&mut self, server: usize) {
        self.server = server;
    }

    fn stretch(&mut self, s: &Stretch) {
        self.push(BatchRun {
            start: s.start,
            duration: s.duration(),
            steps: s.steps,
            decodes: s.work.decodes,
            prefills: s.work.prefills,
        });
    }

    fn idle(&mut self, from: Ticks, to: Ticks) {
        self.push(BatchRun {
            start: from,
            duration: Ticks(to.0 - from.0),
            steps: 0,
            decodes: 0,
            prefills: 0,
        });
    }
}
