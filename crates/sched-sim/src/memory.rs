//! KV memory by counts, and the order of the queue: what a server has, whatever its policy.
//!
//! Blocks have no identity here: a request has so many of them, and blocks used + free = total after
//! every step. A decode needs a block when its last one is full. What prefixes share under SGLang's
//! policy is in the tree of `radix.rs`, which is taken off the count, and used + cached + free =
//! total; `vllm-v1` keeps blocks by name, in [`kv_cache`](crate::kv_cache).

use crate::admission::{AdmissionRule, TokenBucket};
use crate::error::Result;
use crate::policy::{at_most, limit};
use crate::replica::Entry;
use crate::server::Job;
use crate::time::Ticks;

/// The KV blocks of a server.
///
/// # Examples
///
/// ```
/// use sched_sim::KvPool;
///
/// let pool = KvPool::new(100, 16)?;
/// assert_eq!(pool.blocks_for(33), 3);
/// assert!(KvPool::new(100, 0).is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvPool {
    blocks: u64,
    block_size: u64,
}

impl KvPool {
    /// So many blocks of so many tokens.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`](crate::SimError) if either is 0,
    /// [`SimError::TooLarge`](crate::SimError) above 2³² − 1 blocks of
    /// [`KvPool::LARGEST_BLOCK`] tokens.
    pub fn new(blocks: u64, block_size: u64) -> Result<Self> {
        Ok(Self {
            blocks: limit("kv_blocks", blocks)?,
            block_size: at_most("block_size", block_size, Self::LARGEST_BLOCK)?,
        })
    }

    /// Most tokens in a block.
    pub const LARGEST_BLOCK: u64 = 1 << 16;

    /// Blocks of the server.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Tokens in a block.
    #[must_use]
    pub const fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Blocks that hold so many tokens.
    #[must_use]
    pub const fn blocks_for(&self, tokens: u64) -> u64 {
        let (full, rest) = self.split(tokens);
        full + (0 < rest) as u64
    }

    /// Full blocks of so many tokens, and the tokens beyond them. The size of a block is mostly a
    /// power of two, which needs no division.
    pub(crate) const fn split(&self, tokens: u64) -> (u64, u64) {
        let size = self.block_size;
        if size.is_power_of_two() {
            (tokens >> size.trailing_zeros(), tokens & (size - 1))
        } else {
            (tokens / size, tokens % size)
        }
    }
}

/// Which blocks a policy takes for a request at its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Those of all tokens it knows: its prompt, and after a preemption its answer so far.
    Prompt,
    /// Those of the tokens that are computed, chunk by chunk.
    Chunk,
    /// Those of its last token: it is never preempted.
    Maximum,
}

/// Who is next in the queue, and last to be preempted. Ties end at the arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// First come, first served.
    #[default]
    Fcfs,
    /// The fewest tokens first, prompt and answer: what no server knows, and the best it could do.
    ShortestJob,
    /// The lowest value of [`Job::priority`](crate::Job::priority) first.
    Priority,
}

impl Order {
    /// Smaller is sooner.
    pub(crate) fn key(self, r: &Entry) -> i64 {
        self.key_of(r.input + r.output, || r.priority())
    }

    /// The same of a request that no server has seen.
    pub(crate) fn key_of_job(self, job: &Job) -> i64 {
        self.key_of(job.input_tokens + job.output_tokens, || job.priority)
    }

    fn key_of(self, tokens: u64, priority: impl FnOnce() -> i64) -> i64 {
        match self {
            Self::Fcfs => 0,
            // Token counts are below 2³² each.
            Self::ShortestJob => tokens.cast_signed(),
            Self::Priority => priority(),
        }
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Fcfs => "fcfs",
            Self::ShortestJob => "sjf",
            Self::Priority => "priority",
        })
    }
}

impl std::str::FromStr for Order {
    type Err = crate::SimError;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Fcfs, Self::ShortestJob, Self::Priority]
            .into_iter()
            .find(|order| order.to_string() == text)
            .ok_or_else(|| crate::SimError::Grammar {
                what: "order",
                text: text.to_owned(),
                expected: "fcfs, sjf or priority".to_owned(),
            })
    }
}

/// What becomes of the KV of a request that decodes and is preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// It is lost, and computed again: everything that the request knows is prefilled.
    #[default]
    Recompute,
    /// It moves out, and back when the request returns, so long for each token and direction. The
    /// step in which it moves waits for it, and with it everybody who is in that step.
    Swap {
        /// Bytes of a token's KV over the bandwidth, at most [`Preemption::LONGEST`].
        per_token: Ticks,
    },
}

impl Preemption {
    /// The longest time to move the KV of one token.
    pub const LONGEST: Ticks = Ticks::SECOND;

    /// That the time is in range.
    pub(crate) fn check(self) -> Result<Self> {
        match self {
            Self::Swap { per_token } if Self::LONGEST < per_token => {
                Err(crate::SimError::Coefficient {
                    input: "swap_time",
                    max: Self::LONGEST,
                    value: per_token,
                })
            }
            _ => Ok(self),
        }
    }

    /// How long the KV of so many tokens moves one way, which is not in a step's own time.
    pub(crate) fn move_time(self, tokens: u64) -> Ticks {
        match self {
            Self::Recompute => Ticks::ZERO,
            Self::Swap { per_token } => Ticks(per_token.0 * u128::from(tokens)),
        }
    }
}

impl std::fmt::Display for Preemption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Recompute => f.pad("recompute"),
            Self::Swap { per_token } => f.pad(&format!("swap {}/token", per_token.compact())),
        }
    }
}

/// What a server has besides its policy; by default no bound on KV memory, first come first served,
/// and nobody refused.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// Who is next in the queue.
    pub order: Order,
    /// Its KV blocks; none: as many as anybody asks for.
    pub kv: Option<KvPool>,
    /// Most requests that wait: who arrives when so many do is refused. None: any number.
    pub max_waiting: Option<u64>,
    /// Most tokens that those who wait have to prefill, the one who arrives included. None: any
    /// number.
    pub max_waiting_tokens: Option<u64>,
    /// What else refuses who arrives. None: nothing.
    pub rule: Option<AdmissionRule>,
    /// Permits, of which everybody takes one whom nothing else refuses. None: as many as are asked
    /// for.
    pub bucket: Option<TokenBucket>,
}

impl ServerSettings {
    /// No bound on KV memory, first come first served, nobody refused.
    pub const DEFAULT: Self = Self {
        order: Order::Fcfs,
        kv: None,
        max_waiting: None,
        max_waiting_tokens: None,
        rule: None,
        bucket: None,
    };

    /// The same server, which refuses nobody who could end.
    #[must_use]
    pub const fn open(self) -> Self {
        Self { order: self.order, kv: self.kv, ..Self::DEFAULT }
    }

    /// What of it a gateway in front of several servers does: all that refuses and the order, if the
    /// router has a queue of its own; else the permits, since who waits does so in the servers.
    #[must_use]
    pub const fn in_front(self, central_queue: bool) -> Self {
        if central_queue {
            Self { kv: None, ..self }
        } else {
            Self { bucket: self.bucket, ..Self::DEFAULT }
        }
    }

    /// What is left to each server behind that gateway.
    #[must_use]
    pub const fn behind(self, central_queue: bool) -> Self {
        if central_queue { self.open() } else { Self { bucket: None, ..self } }
    }
}

/// The pool with the rules of a policy for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub pool: KvPool,
    pub reserve: Reserve,
    /// Blocks that an admission has to leave free.
    pub watermark: u64,
    /// Tokens of a decoding request whose KV is not stored yet: its last one, if the last prefill
    /// step already gives a token.
    pub lag: u64,
    /// Whether computed prefixes are kept in a radix tree.
    pub radix: bool,
}

impl Memory {
    /// Whether decodes take blocks as they go.
    pub fn grows(&self) -> bool {
        self.reserve != Reserve::Maximum
    }

    /// Blocks of a request at its last token.
    fn at_end(&self, r: &Entry) -> u64 {
        self.pool.blocks_for(r.input + r.output - self.lag)
    }

    /// Blocks that there have to be for a request to be admitted and to end: the watermark is a test
    /// of its admission, and what it takes later may use all.
    pub fn most(&self, r: &Entry) -> u64 {
        let admission = if r.made == 0 {
            // A chunk grows to the whole prompt, for which no watermark is left.
            self.admission(r, 1, r.input)
        } else {
            self.holding(r, r.input + r.made + 1 - self.lag)
        };
        self.at_end(r).max(admission + self.watermark)
    }

    /// Blocks of a decode with so many tokens in KV.
    pub fn holding(&self, r: &Entry, stored: u64) -> u64 {
        if self.grows() { self.pool.blocks_for(stored) } else { self.at_end(r) }
    }

    /// Blocks that one request can have.
    pub fn largest(&self) -> u64 {
        self.pool.blocks
    }

    /// Blocks that an admission takes after whose first step `tokens` of `known` tokens are
    /// computed, those of a prefix that was there included.
    pub fn admission(&self, r: &Entry, tokens: u64, known: u64) -> u64 {
        match self.reserve {
            Reserve::Prompt => self.pool.blocks_for(known),
            Reserve::Chunk => self.pool.blocks_for(tokens),
            Reserve::Maximum => self.at_end(r),
        }
    }
}
