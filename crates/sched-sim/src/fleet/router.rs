//! Who gets the next request.

use std::collections::HashMap;
use std::str::FromStr;

use foldhash::fast::FixedState;
use rand::RngExt;
use rand_pcg::Pcg64;

use crate::error::SimError;
use crate::server::Job;
use crate::workload::{Stream, stream};

/// The rule by which a router chooses a server. Ties go to the server with the lowest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouterKind {
    /// Each server in turn, whatever it has to do.
    RoundRobin,
    /// Any server with the same chance.
    Random,
    /// The server with the fewest requests inside.
    LeastRequests,
    /// The server with the fewest tokens left to compute or to make.
    LeastTokens,
    /// Of two different servers drawn at random, the one with fewer requests inside.
    PowerOfTwo,
    /// The server that was last sent the longest known beginning of the prompt, unless the servers
    /// are out of balance or too little of the prompt is known: then the one with the fewest
    /// requests.
    PrefixAffinity,
    /// One queue for all: whoever is first in it goes to a server with a free slot, the one with
    /// the fewest requests.
    CentralQueue,
}

impl RouterKind {
    /// All rules.
    pub const ALL: [Self; 7] = [
        Self::RoundRobin,
        Self::Random,
        Self::LeastRequests,
        Self::LeastTokens,
        Self::PowerOfTwo,
        Self::PrefixAffinity,
        Self::CentralQueue,
    ];

    /// Whether it draws from a seed where there are several servers.
    #[must_use]
    pub const fn draws(self) -> bool {
        matches!(self, Self::Random | Self::PowerOfTwo)
    }

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::LeastRequests => "least-requests",
            Self::LeastTokens => "least-tokens",
            Self::PowerOfTwo => "power-of-two",
            Self::PrefixAffinity => "prefix-affinity",
            Self::CentralQueue => "central-queue",
        }
    }
}

impl std::fmt::Display for RouterKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RouterKind {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self, SimError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| SimError::Grammar {
            what: "router",
            text: text.to_owned(),
            expected: Self::ALL.map(Self::name).join(", "),
        })
    }
}

/// Share of the prompt that has to be known for affinity to decide.
///
/// Source: `--cache-threshold` of the SGLang model gateway, default 0.3.
const CACHE_THRESHOLD: f64 = 0.3;
/// Servers are out of balance if the most and the fewest requests differ by more than this, and
///
/// Source: `--balance-abs-threshold` of the SGLang model gateway, default 64.
const BALANCE_ABS: u64 = 64;
/// the most are more than this many times the fewest.
///
/// Source: `--balance-rel-threshold` of the SGLang model gateway, default 1.5.
const BALANCE_REL: f64 = 1.5;

/// A rule with its memory.
#[derive(Clone, Debug)]
pub struct Router {
    kind: RouterKind,
    servers: usize,
    turn: usize,
    rng: Pcg64,
    /// Looked up and never iterated: which server was last sent a prompt that begins so.
    known: HashMap<u64, usize, FixedState>,
}

impl Router {
    pub(super) fn new(kind: RouterKind, servers: usize, seed: u64) -> Self {
        let known = HashMap::with_hasher(FixedState::default());
        Self { kind, servers, turn: 0, rng: stream(seed, Stream::Router), known }
    }

    /// The rule.
    #[must_use]
    pub const fn kind(&self) -> RouterKind {
        self.kind
    }

    /// The server for a request, from the requests inside each one and, where they are asked for,
    /// the tokens that it has left.
    pub(super) fn choose(
        &mut self,
        job: &Job,
        requests: &[u64],
        tokens: impl Fn(usize) -> u64,
    ) -> usize {
        let least = || (0..self.servers).min_by_key(|&i| (requests[i], i)).unwrap_or(0);
        match self.kind {
            RouterKind::RoundRobin => {
                let server = self.turn;
                self.turn = (self.turn + 1) % self.servers;
                server
            }
            RouterKind::Random => self.rng.random_range(0..self.servers),
            RouterKind::LeastRequests | RouterKind::CentralQueue => least(),
            RouterKind::LeastTokens => {
                (0..self.servers).min_by_key(|&i| (tokens(i), i)).unwrap_or(0)
            }
            RouterKind::PowerOfTwo if self.servers == 1 => 0,
            RouterKind::PowerOfTwo => {
                let a = self.rng.random_range(0..self.servers);
                let b = self.rng.random_range(0..self.servers - 1);
                let b = if b < a { b } else { b + 1 };
                if (requests[b], b) < (requests[a], a) { b } else { a }
            }
            RouterKind::PrefixAffinity => {
                let (beginnings, matched) = self.beginnings(job);
                let server = matched.filter(|_| balanced(requests)).unwrap_or_else(least);
                for key in beginnings {
                    self.known.insert(key, server);
                }
                server
            }
        }
    }

    /// A key for each beginning of the prompt, and the server that is known for the longest one,
    /// if that is long enough.
    fn beginnings(&self, job: &Job) -> (Vec<u64>, Option<usize>) {
        let mut keys = Vec::new();
        let mut known = None;
        let (mut chain, mut tokens) = (0_u64, 0_u64);
        let prompt = job.content.as_deref().map(|c| c.prompt.as_slice()).unwrap_or_default();
        for &segment in prompt {
            use std::hash::BuildHasher;
            chain = FixedState::default().hash_one((chain, segment));
            keys.push(chain);
            tokens += segment.1;
            if let Some(&server) = self.known.get(&chain) {
                known = Some((server, tokens));
            }
        }
        let enough = |tokens: u64| CACHE_THRESHOLD * job.input_tokens as f64 <= tokens as f64;
        (keys, known.filter(|&(_, tokens)| enough(tokens)).map(|(server, _)| server))
    }
}

/// Whether the servers have about as many requests each.
fn balanced(requests: &[u64]) -> bool {
    let most = requests.iter().copied().max().unwrap_or(0);
    let fewest = requests.iter().copied().min().unwrap_or(0);
    most - fewest <= BALANCE_ABS || most as f64 <= BALANCE_REL * fewest as f64
}
