//! The KV cache: paged blocks, a free list, and a prefix cache.
//!
//! A block without a user is *idle*. An idle block that still holds a known prefix is *cached*:
//! it can be hit until it is handed out for something else, which is the only eviction there is.
//!
//! **Order of eviction.** Blocks are handed out from the front of the free list. A request's
//! blocks are freed from its last to its first; those that hold a known prefix go to the end of
//! the list in that order, so that of one request the tail is evicted before the head, and across
//! requests the least recently freed goes first. Blocks that hold none go to the front as a group
//! or to the end, as [`FreedOrder`] says. A hit takes a block out of the list; it comes back at
//! the end when its last user frees it. There is no other recency.
//!
//! Used, cached and free blocks sum to the total at any time ([`KvBooks`]).
//!
//! # Examples
//!
//! ```
//! use sched_sim::kv_cache::{BlockTable, Content, KvCache, KvOptions};
//!
//! let mut kv = KvCache::new(KvOptions::new(11, 16))?;
//! let (mut a, mut b) = (BlockTable::default(), BlockTable::default());
//!
//! // 50 tokens of segment 1 fill three blocks and begin a fourth.
//! kv.describe(&mut a, &Content { prompt: &[(1, 50)], output: (7, 10) });
//! assert!(kv.extend(&mut a, 50));
//! kv.register(&mut a, 50);
//!
//! // The same first 33 tokens: two blocks are hit, and the last token is computed in a third.
//! kv.describe(&mut b, &Content { prompt: &[(1, 33)], output: (8, 10) });
//! let hit = kv.lookup(&b, 33);
//! assert_eq!((hit.tokens, hit.idle_blocks), (32, 0));
//! assert!(kv.admit(&mut b, hit, 33, 33));
//! assert_eq!(b.blocks(), [1, 2, 5]);
//! assert_eq!(kv.books().used, 5);
//! # Ok::<(), sched_sim::SimError>(())
//! ```

mod pool;
mod prefix;

use crate::error::{Result, SimError};
use pool::{BlockId, Pool, Row};
use prefix::{Chain, Cursor, Prefixes};

/// Where blocks that hold no known prefix go when they are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreedOrder {
    /// To the front of the free list as a group, the request's last block first: what can never
    /// be hit is used up before what can (vLLM from 0.24.0 on).
    UnregisteredFirst,
    /// To the end like all others (vLLM before 0.24.0).
    AllAtEnd,
}

/// What a KV cache is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvOptions {
    /// Blocks that can be handed out.
    pub blocks: u64,
    /// Tokens in a block.
    pub block_size: u64,
    /// Whether blocks are registered and looked up.
    pub prefix_caching: bool,
    /// Where freed blocks go.
    pub freed_order: FreedOrder,
}

impl KvOptions {
    /// So many usable blocks of so many tokens, prefix caching on, freed as vLLM 0.33.0 does.
    #[must_use]
    pub fn new(blocks: u64, block_size: u64) -> Self {
        Self {
            blocks,
            block_size,
            prefix_caching: true,
            freed_order: FreedOrder::UnregisteredFirst,
        }
    }
}

/// Which tokens a request consists of, for prefix caching.
///
/// A token is a pair of segment and offset in it; `(s, n)` stands for the first n tokens of
/// segment s. Equal pairs are equal tokens.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The prompt: segments with their lengths, one after the other.
    pub prompt: &'a [(u64, u64)],
    /// The answer: its segment, and how long it can become.
    pub output: (u64, u64),
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hit {
    /// Tokens whose KV is there, a multiple of the block size.
    pub tokens: u64,
    /// Blocks of the hit.
    pub blocks: u64,
    /// Those of them that have no user now and would leave the free list.
    pub idle_blocks: u64,
}

/// The blocks of one request, in the order of its tokens, and the keys of its prefixes.
#[derive(Clone, Debug, Default)]
pub struct BlockTable {
    blocks: Vec<BlockId>,
    chain: Chain,
    /// Its first blocks that are in the prefix cache.
    registered: u32,
    cursor: Cursor,
    /// Tokens that its blocks can hold.
    room: u64,
    /// The number of known tokens at which the next block can be registered.
    register_at: u64,
}

impl BlockTable {
    /// Ids of the blocks.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Tokens that its blocks can hold.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// The number of known tokens at which its next block can be registered.
    pub(crate) fn register_at(&self) -> u64 {
        self.register_at
    }
}

/// What happened in a KV cache since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvCounters {
    /// Admissions with a look-up, repeated ones after a preemption included.
    pub lookups: u64,
    /// Tokens that those admissions asked for.
    pub queried_tokens: u64,
    /// Tokens of them that were there.
    pub hit_tokens: u64,
    /// Blocks put into the prefix cache.
    pub registered_blocks: u64,
    /// Blocks that were handed out for something else while they held a known prefix.
    pub evicted_blocks: u64,
    /// Blocks that were registered again after their last copy had been evicted: the refill.
    pub refilled_blocks: u64,
    /// Times that too few blocks were idle for an admission or a running request: once for each
    /// attempt, so that the head of a queue counts in every step that it waits. No request fails.
    pub failed_allocations: u64,
}

impl KvCounters {
    /// The sum over two caches.
    pub(crate) const fn plus(&self, other: &Self) -> Self {
        Self {
            lookups: self.lookups + other.lookups,
            queried_tokens: self.queried_tokens + other.queried_tokens,
            hit_tokens: self.hit_tokens + other.hit_tokens,
            registered_blocks: self.registered_blocks + other.registered_blocks,
            evicted_blocks: self.evicted_blocks + other.evicted_blocks,
            refilled_blocks: self.refilled_blocks + other.refilled_blocks,
            failed_allocations: self.failed_allocations + other.failed_allocations,
        }
    }
}

/// Where the blocks are: used + cached + free = total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvBooks {
    /// In the table of at least one request.
    pub used: u64,
    /// Idle, with a known prefix.
    pub cached: u64,
    /// Idle, without.
    pub free: u64,
    /// All that can be handed out.
    pub total: u64,
}

/// The KV cache of one replica.
#[derive(Clone, Debug)]
pub struct KvCache {
    options: KvOptions,
    pool: Pool,
    prefixes: Prefixes,
    used: u64,
    cached: u64,
    /// Entries of tables beyond the first one of a block.
    shared: u64,
    counters: KvCounters,
    /// Branches of a request that waits, and whether a block of theirs was registered or evicted.
    watched: Vec<u32>,
    touched: bool,
}

impl KvCache {
    /// An empty cache.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] or [`SimError::TooLarge`] unless there are 1 to 2³² − 3 blocks of 1
    /// to 2³² − 1 tokens.
    pub fn new(options: KvOptions) -> Result<Self> {
        const MAX_BLOCKS: u64 = u32::MAX as u64 - 2;
        check("KV blocks", options.blocks, MAX_BLOCKS)?;
        check("block_size", options.block_size, u32::MAX.into())?;
        let total = u32::try_from(options.blocks + 1).unwrap_or(u32::MAX);
        Ok(Self {
            options,
            pool: Pool::new(total),
            prefixes: Prefixes::new(),
            used: 0,
            cached: 0,
            shared: 0,
            counters: KvCounters::default(),
            watched: Vec::new(),
            touched: false,
        })
    }

    /// What it was made of.
    #[must_use]
    pub fn options(&self) -> &KvOptions {
        &self.options
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> KvCounters {
        self.counters
    }

    /// Blocks that can be handed out now, the cached ones included.
    #[must_use]
    pub fn idle_blocks(&self) -> u64 {
        self.pool.idle()
    }

    /// Where the blocks are.
    #[must_use]
    pub fn books(&self) -> KvBooks {
        let free = self.pool.idle() - self.cached;
        KvBooks { used: self.used, cached: self.cached, free, total: self.options.blocks }
    }

    /// Tokens of full blocks that are in several tables, for each table beyond the first: what a sum
    /// over the requests counts too much.
    #[must_use]
    pub fn shared_tokens(&self) -> u64 {
        self.shared * self.options.block_size
    }

    /// Counts every block anew and says whether that agrees with [`books`](Self::books) and
    /// [`shared_tokens`](Self::shared_tokens), which are kept as blocks move; for tests, since it walks
    /// the whole pool.
    #[must_use]
    pub fn books_balance(&self) -> bool {
        let used = self.pool.blocks.iter().skip(1).filter(|b| b.users > 0).count() as u64;
        let (mut cached, mut free) = (0, 0);
        for id in self.pool.free_list() {
            let block = &self.pool.blocks[id as usize];
            if block.users > 0 {
                return false;
            }
            *(if block.registered() { &mut cached } else { &mut free }) += 1;
        }
        let counted = KvBooks { used, cached, free, total: self.options.blocks };
        let entries: u64 = self.pool.blocks.iter().skip(1).map(|b| u64::from(b.users)).sum();
        counted == self.books()
            && used + cached + free == self.options.blocks
            && used + self.shared == entries
    }

    /// Ids of the idle blocks in the order in which they will be handed out.
    pub fn free_list(&self) -> impl Iterator<Item = u32> + '_ {
        self.pool.free_list()
    }

    /// Says which tokens a request consists of; without this it is cached under no prefix. The
    /// table must hold no blocks.
    pub fn describe(&mut self, table: &mut BlockTable, content: &Content<'_>) {
        table.chain.clear();
        if self.options.prefix_caching {
            // No request ever holds more than the whole cache.
            let mut left = self.options.blocks.saturating_mul(self.options.block_size);
            let segments = content.prompt.iter().chain(std::iter::once(&content.output)).map(
                |&(segment, length)| {
                    let length = length.min(left);
                    left -= length;
                    (segment, length)
                },
            );
            self.prefixes.describe(&mut table.chain, segments, self.options.block_size);
        }
        self.reset(table, 0);
    }

    /// How many of the first `tokens` tokens are there, at most all but the last one: a model
    /// has to compute at least one token to say the next.
    #[must_use]
    pub fn lookup(&self, table: &BlockTable, tokens: u64) -> Hit {
        let most = (tokens.saturating_sub(1)) / self.options.block_size;
        let most = u32::try_from(most).unwrap_or(u32::MAX).min(table.chain.blocks());
        let mut cursor = Cursor::default();
        let mut hit = Hit::default();
        for block in 0..most {
            let Some(id) = self.prefixes.get(&table.chain, &mut cursor, block) else { break };
            hit.blocks += 1;
            hit.idle_blocks += u64::from(self.pool.blocks[id as usize].users == 0);
        }
        hit.tokens = hit.blocks * self.options.block_size;
        hit
    }

    /// Idle blocks that an admission with this hit takes to hold `tokens` tokens. Idle blocks of
    /// the hit count, since they leave the free list.
    #[must_use]
    pub fn need(&self, hit: Hit, tokens: u64) -> u64 {
        tokens.div_ceil(self.options.block_size).saturating_sub(hit.blocks) + hit.idle_blocks
    }

    /// Gives a request without blocks the blocks of its hit, and new ones until it can hold
    /// `tokens` tokens; `queried` is what the hit was looked up for, and 0 for a look-up that the
    /// counters leave out. False, with nothing changed,
    /// if there are too few idle blocks.
    pub fn admit(&mut self, table: &mut BlockTable, hit: Hit, queried: u64, tokens: u64) -> bool {
        if self.need(hit, tokens) > self.pool.idle() {
            self.counters.failed_allocations += 1;
            return false;
        }
        if self.options.prefix_caching && 0 < queried {
            self.counters.lookups += 1;
            self.counters.queried_tokens += queried;
            self.counters.hit_tokens += hit.tokens;
        }
        let blocks = u32::try_from(hit.blocks).unwrap_or(u32::MAX);
        let mut cursor = Cursor::default();
        table.blocks.clear();
        for block in 0..blocks {
            let Some(id) = self.prefixes.get(&table.chain, &mut cursor, block) else { break };
            if self.pool.block(id).users == 0 {
                self.pool.unlink(id);
                self.cached -= 1;
                self.used += 1;
            } else {
                self.shared += 1;
            }
            self.pool.block(id).users += 1;
            table.blocks.push(id);
        }
        self.reset(table, blocks);
        self.extend(table, tokens)
    }

    /// Gives a request blocks until it can hold `tokens` tokens. False, with nothing changed, if
    /// there are too few idle ones.
    #[inline]
    pub fn extend(&mut self, table: &mut BlockTable, tokens: u64) -> bool {
        tokens <= table.room || self.extend_by_blocks(table, tokens)
    }

    fn extend_by_blocks(&mut self, table: &mut BlockTable, tokens: u64) -> bool {
        let more = (tokens - table.room).div_ceil(self.options.block_size);
        if more > self.pool.idle() {
            self.counters.failed_allocations += 1;
            return false;
        }
        let mut id = self.pool.front();
        table.blocks.reserve(usize::try_from(more).unwrap_or_default());
        let watching = !self.watched.is_empty();
        let mut evicted = 0;
        for _ in 0..more {
            let block = self.pool.block(id);
            let next = block.next;
            block.users = 1;
            if block.registered() {
                let branch = block.branch;
                self.touched |= watching && self.watched.contains(&branch);
                self.prefixes.remove(&mut self.pool, id);
                evicted += 1;
            }
            table.blocks.push(id);
            id = next;
        }
        self.pool.cut_front(id, more);
        self.cached -= evicted;
        self.counters.evicted_blocks += evicted;
        self.used += more;
        table.room += more * self.options.block_size;
        true
    }

    /// Puts the blocks that the first `tokens` tokens fill into the prefix cache.
    #[inline]
    pub fn register(&mut self, table: &mut BlockTable, tokens: u64) {
        if table.register_at <= tokens {
            self.register_blocks(table, tokens);
        }
    }

    fn register_blocks(&mut self, table: &mut BlockTable, tokens: u64) {
        let full = u32::try_from(tokens / self.options.block_size).unwrap_or(u32::MAX);
        let full = full.min(table.chain.blocks());
        let full = full.min(u32::try_from(table.blocks.len()).unwrap_or(u32::MAX));
        while table.registered < full {
            let (chain, cursor, first) = (&table.chain, &mut table.cursor, table.registered);
            let (blocks, branch) = chain.span(cursor, first);
            let end = full.min(first + blocks);
            let Some(ids) = table.blocks.get(first as usize..end as usize) else { break };
            self.counters.registered_blocks += ids.len() as u64;
            self.counters.refilled_blocks +=
                self.prefixes.insert(&mut self.pool, chain, cursor, first, ids);
            self.touched |= self.watched.contains(&branch);
            table.registered = end;
        }
        self.set_register_at(table);
    }

    /// Frees all blocks of a request. What is in the prefix cache stays there.
    pub fn release(&mut self, table: &mut BlockTable) {
        let (mut front, mut back) = (Row::default(), Row::default());
        let (mut freed, mut cached) = (0, 0);
        let all_at_end = self.options.freed_order == FreedOrder::AllAtEnd;
        for &id in table.blocks.iter().rev() {
            let block = self.pool.block(id);
            block.users -= 1;
            if block.users > 0 {
                self.shared -= 1;
                continue;
            }
            freed += 1;
            if block.registered() {
                cached += 1;
                back.push(&mut self.pool, id);
            } else if all_at_end {
                back.push(&mut self.pool, id);
            } else {
                front.push(&mut self.pool, id);
            }
        }
        self.used -= freed;
        self.cached += cached;
        self.pool.prepend(&front);
        self.pool.append(&back);
        table.blocks.clear();
        self.reset(table, 0);
    }

    /// Counts attempts that the caller decided by [`need`](Self::need).
    pub fn count_failed_allocations(&mut self, times: u64) {
        self.counters.failed_allocations += times;
    }

    /// Begins to watch the prefixes of a request: what its look-up finds can only change when
    /// [`was_touched`](Self::was_touched) says so.
    pub(crate) fn watch(&mut self, table: &BlockTable) {
        self.watched.clear();
        self.watched.extend(table.chain.branches());
        self.touched = false;
    }

    /// Watches no longer.
    pub(crate) fn unwatch(&mut self) {
        self.watched.clear();
        self.touched = false;
    }

    /// Whether a block under a watched prefix was registered or evicted.
    pub(crate) fn was_touched(&self) -> bool {
        self.touched
    }

    /// What a table derives from its blocks, of which the first `registered` are in the cache.
    fn reset(&self, table: &mut BlockTable, registered: u32) {
        table.registered = registered;
        table.cursor = table.chain.cursor(registered);
        table.room = table.blocks.len() as u64 * self.options.block_size;
        self.set_register_at(table);
    }

    fn set_register_at(&self, table: &mut BlockTable) {
        table.register_at = if table.registered < table.chain.blocks() {
            (u64::from(table.registered) + 1) * self.options.block_size
        } else {
            u64::MAX
        };
    }
}

fn check(input: &'static str, value: u64, max: u64) -> Result<()> {
    if value < 1 {
        return Err(SimError::TooSmall { input, min: 1, value: value.into() });
    }
    if value > max {
        return Err(SimError::TooLarge { input, max: max.into(), value: value.into() });
    }
    Ok(())
}
