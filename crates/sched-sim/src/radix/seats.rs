//! What the requests of a batch hold of the radix tree; both engines keep it, and tell it the same
//! in the same order.
//!
//! The engines count the blocks of each request in full, as if nothing were shared. What is held
//! by several is taken off the sum here, so that
//! used + cached + free = total, where used are the blocks that requests have and cached those of
//! the tree that nobody has locked.
//!
//! Blocks are taken without a look at what is cached, which gives way afterwards: at the end of a
//! decision, and of a stretch of steps. In a stretch nothing is used but by decodes, which only
//! take, so that one eviction at its end takes the same leaves in the same order as one in each
//! step.

use super::{Prefix, RadixTree};
use crate::kv_cache::{Content, Hit, KvCounters};
use crate::memory::KvPool;
use crate::replica::Entry;

/// What a request holds.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    /// Which path it has locked.
    prefix: Prefix,
    /// When it came into the batch, in numbers that grow.
    order: u64,
    /// Tokens that were there when it came.
    hit: u64,
}

/// What came of a request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    /// When it came into the batch: the order of the step.
    order: u64,
    position: u32,
    /// Tokens whose KV it has.
    tokens: u64,
    finished: bool,
}

/// The tree with the seats of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    tree: RadixTree,
    pool: KvPool,
    list: Vec<Seat>,
    admitted: u64,
    /// Blocks of the tree that requests hold, once for each of them.
    held: u64,
    /// What the last look-up found, for whom.
    found: Option<(u32, Prefix, Hit)>,
    events: Vec<Event>,
    counters: KvCounters,
}

impl Seats {
    pub fn new(pool: KvPool) -> Self {
        Self {
            tree: RadixTree::new(pool.block_size()),
            pool,
            list: Vec::new(),
            admitted: 0,
            held: 0,
            found: None,
            events: Vec::new(),
            counters: KvCounters::default(),
        }
    }

    pub fn counters(&self) -> KvCounters {
        self.counters
    }

    /// Blocks that are counted more than once in the sum over the requests.
    pub fn shared(&self) -> u64 {
        self.held - self.tree.locked()
    }

    /// Blocks in the tree that nobody has.
    pub fn cached(&self) -> u64 {
        self.tree.evictable()
    }

    /// A step begins.
    pub fn begin(&mut self) {
        self.found = None;
    }

    /// Looks up the `known` tokens of a request that waits, all but the last, since a model has to
    /// compute at least one token to say the next. What is found is used now.
    pub fn look_up(&mut self, position: u32, content: &Content<'_>, known: u64) -> Hit {
        let prefix = self.tree.find(content, known.saturating_sub(1));
        let hit = Hit {
            tokens: prefix.tokens,
            blocks: prefix.tokens / self.pool.block_size(),
            idle_blocks: self.tree.evictable_of(prefix),
        };
        self.found = Some((position, prefix, hit));
        hit
    }

    /// What the last look-up found for this request, if nothing was evicted since.
    pub fn found(&self, position: u32) -> Hit {
        let found = self.found.filter(|found| found.0 == position);
        found.map_or_else(Hit::default, |(_, prefix, hit)| Hit {
            idle_blocks: self.tree.evictable_of(prefix),
            ..hit
        })
    }

    /// A request that knows so many tokens comes into the batch, with what was found for it; how many
    /// tokens that are.
    pub fn admit(&mut self, position: u32, known: u64) -> u64 {
        let found = self.found.take().filter(|found| found.0 == position);
        let (_, prefix, hit) = found.unwrap_or_default();
        if found.is_some() {
            self.counters.lookups += 1;
            self.counters.queried_tokens += known;
            self.counters.hit_tokens += hit.tokens;
        }
        self.tree.lock(prefix);
        self.held += hit.blocks;
        self.take(position, prefix, hit.tokens);
        hit.tokens
    }

    /// A request comes into the batch with its KV.
    pub fn swap_in(&mut self, position: u32) {
        self.take(position, Prefix::default(), 0);
    }

    fn take(&mut self, position: u32, prefix: Prefix, hit: u64) {
        let position = position as usize;
        if self.list.len() <= position {
            self.list.resize(position + 1, Seat::default());
        }
        self.admitted += 1;
        self.list[position] = Seat { prefix, order: self.admitted, hit };
    }

    /// Tokens that were there when a request came into the batch.
    pub fn hit(&self, position: u32) -> u64 {
        self.list.get(position as usize).map_or(0, |seat| seat.hit)
    }

    /// A request leaves the batch: what is its alone is lost, its prefix is unlocked.
    pub fn leave(&mut self, position: u32) {
        let Some(seat) = self.list.get_mut(position as usize) else { return };
        let prefix = std::mem::take(&mut seat.prefix);
        self.held -= prefix.tokens / self.pool.block_size();
        self.tree.unlock(prefix);
    }

    /// The first `tokens` tokens of a request are computed in this step.
    pub fn computed(&mut self, position: u32, tokens: u64) {
        self.note(position, tokens, false);
    }

    /// A request ends in this step with the KV of so many tokens.
    pub fn finished(&mut self, position: u32, tokens: u64) {
        self.note(position, tokens, true);
    }

    fn note(&mut self, position: u32, tokens: u64, finished: bool) {
        let order = self.list.get(position as usize).map_or(0, |seat| seat.order);
        self.events.push(Event { order, position, tokens, finished });
    }

    /// Takes what came of the step into the tree, in order of admission.
    pub fn close_step(&mut self, requests: &[Entry]) {
        let mut events = std::mem::take(&mut self.events);
        events.sort_unstable();
        events.dedup();
        for event in events.drain(..) {
            if let Some(request) = requests.get(event.position as usize) {
                self.keep(event.position, request, event.tokens);
            }
            if event.finished {
                self.leave(event.position);
            }
        }
        self.events = events;
        self.found = None;
    }

    /// A request leaves between two steps, and the KV of so many tokens stays.
    pub fn remove(&mut self, position: u32, request: &Entry, tokens: u64) {
        self.keep(position, request, tokens);
        self.leave(position);
        self.found = None;
    }

    /// Puts the KV of so many tokens into the tree, and moves the lock to their end. Blocks of tokens
    /// that somebody else has put there meanwhile are given back.
    fn keep(&mut self, position: u32, request: &Entry, tokens: u64) {
        let Some(seat) = self.list.get_mut(position as usize) else { return };
        let own = request.own_prompt();
        let (prefix, new) = self.tree.insert(seat.prefix, &request.content(&own), tokens);
        self.tree.move_lock(seat.prefix, prefix);
        self.held += (prefix.tokens - seat.prefix.tokens) / self.pool.block_size();
        seat.prefix = prefix;
        self.counters.registered_blocks += new;
    }

    /// Evicts until so many blocks are free, where the requests have `used`, or nothing is left that
    /// could go.
    pub fn make_free(&mut self, blocks: u64, used: u64) {
        let wanted = (used + self.cached()).saturating_add(blocks);
        let lacking = wanted.saturating_sub(self.pool.blocks());
        if lacking > 0 {
            self.found = None;
            self.counters.evicted_blocks += self.tree.evict(lacking);
        }
    }
}
