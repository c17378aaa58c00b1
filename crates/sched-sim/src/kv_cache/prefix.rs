//! Which block holds which prefix.
//!
//! Engines key a block by a hash chain: over the previous block's key and its own tokens. Equal
//! keys mean equal tokens from position 0 on. Here the same equality is exact and costs no hash
//! per block: prefixes form a tree whose edges are runs of tokens (a segment, an offset and a
//! length), and a block that only goes on in the run of the block before it lies in the same
//! branch, one place further. A prompt of its own is one branch, so that looking a block up is
//! one step in an array.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::pool::{BlockId, Pool, UNREGISTERED};

/// In [`Branch::heads`]: a block was registered here and every copy of it was evicted.
const EVICTED: BlockId = BlockId::MAX;

/// The root of the tree: the empty prefix.
const ROOT: Node = Node { branch: 0, place: 0 };

/// A prefix that ends with a block or inside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    branch: u32,
    place: u32,
}

/// What follows a prefix up to the next change of the segment or end of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    after: Node,
    segment: u64,
    offset: u64,
    tokens: u64,
}

/// Blocks that follow each other in one run: per place the block that was registered first.
#[derive(Clone, Debug, Default)]
struct Branch {
    heads: Vec<BlockId>,
    /// Blocks registered here now.
    live: u32,
    /// Without `heads`: every copy of the blocks before this place was evicted.
    evicted: u32,
}

/// The keys of one request's full blocks: which branch begins at which block.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    spans: Vec<Span>,
    /// Full blocks that have a key.
    blocks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    branch: u32,
}

/// A place in a [`Chain`], from which the next key is one step away.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    span: u32,
}

impl Chain {
    pub fn clear(&mut self) {
        self.spans.clear();
        self.blocks = 0;
    }

    /// Full blocks that have a key.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The branches that it goes through.
    pub fn branches(&self) -> impl Iterator<Item = u32> + '_ {
        self.spans.iter().map(|span| span.branch)
    }

    /// The cursor for the key of block `block`.
    pub fn cursor(&self, block: u32) -> Cursor {
        let after = self.spans.partition_point(|s| s.first <= block);
        Cursor { span: u32::try_from(after.saturating_sub(1)).unwrap_or(u32::MAX) }
    }

    /// How many blocks from `block` on lie in one branch, and which branch it is.
    pub fn span(&self, cursor: &mut Cursor, block: u32) -> (u32, u32) {
        let key = self.key(cursor, block);
        let end = self.spans.get(cursor.span as usize + 1).map_or(self.blocks, |s| s.first);
        (end - block, key.branch)
    }

    /// The key of block `block`, which must not be before the cursor's last one.
    fn key(&self, cursor: &mut Cursor, block: u32) -> Node {
        while let Some(next) = self.spans.get(cursor.span as usize + 1)
            && next.first <= block
        {
            cursor.span += 1;
        }
        match self.spans.get(cursor.span as usize) {
            Some(span) => Node { branch: span.branch, place: block - span.first },
            None => ROOT,
        }
    }
}

/// The tree of prefixes, with the blocks registered in it.
#[derive(Clone, Debug)]
pub(super) struct Prefixes {
    /// Looked up and never iterated.
    runs: HashMap<Run, u32, FixedState>,
    branches: Vec<Branch>,
}

impl Prefixes {
    pub fn new() -> Self {
        // Branch 0 is the root's, in which no block is ever registered.
        Self {
            runs: HashMap::with_hasher(FixedState::default()),
            branches: vec![Branch::default()],
        }
    }

    fn child(&mut self, run: Run) -> Node {
        let new = u32::try_from(self.branches.len()).unwrap_or(UNREGISTERED);
        let branch = *self.runs.entry(run).or_insert(new);
        if branch == new {
            self.branches.push(Branch::default());
        }
        Node { branch, place: 0 }
    }

    /// Writes the keys of the full blocks of `segments` (a segment and how many of its tokens,
    /// from its first) into `chain`.
    pub fn describe(
        &mut self,
        chain: &mut Chain,
        segments: impl Iterator<Item = (u64, u64)>,
        block_size: u64,
    ) {
        chain.clear();
        let mut after = ROOT;
        let mut filled = 0;
        for (segment, length) in segments {
            if length == 0 {
                continue;
            }
            let mut offset = 0;
            if filled > 0 {
                // The rest of a block that another segment began.
                let tokens = length.min(block_size - filled);
                after = self.child(Run { after, segment, offset, tokens });
                offset += tokens;
                filled += tokens;
                if filled < block_size {
                    continue;
                }
                chain.spans.push(Span { first: chain.blocks, branch: after.branch });
                chain.blocks += 1;
            }
            let blocks = u32::try_from((length - offset) / block_size).unwrap_or(u32::MAX);
            if blocks > 0 {
                let mut further = blocks;
                if offset == 0 {
                    after = self.child(Run { after, segment, offset, tokens: block_size });
                    chain.spans.push(Span { first: chain.blocks, branch: after.branch });
                    further -= 1;
                }
                after.place += further;
                chain.blocks += blocks;
                offset += u64::from(blocks) * block_size;
            }
            filled = length - offset;
            if filled > 0 {
                after = self.child(Run { after, segment, offset, tokens: filled });
            }
        }
    }

    /// The block to reuse for block `block` of `chain`: of several with the same tokens the one
    /// that was registered first.
    pub fn get(&self, chain: &Chain, cursor: &mut Cursor, block: u32) -> Option<BlockId> {
        let key = chain.key(cursor, block);
        match self.branches.get(key.branch as usize)?.heads.get(key.place as usize) {
            None | Some(&(0 | EVICTED)) => None,
            Some(&head) => Some(head),
        }
    }

    /// Registers `ids` as the blocks from `block` on of `chain`, all in one branch; for how many
    /// of them the same tokens had been cached and evicted.
    pub fn insert(
        &mut self,
        pool: &mut Pool,
        chain: &Chain,
        cursor: &mut Cursor,
        block: u32,
        ids: &[BlockId],
    ) -> u64 {
        let key = chain.key(cursor, block);
        let first = key.place as usize;
        let branch = &mut self.branches[key.branch as usize];
        branch.live += u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let heads = &mut branch.heads;
        if heads.is_empty() {
            heads.resize(branch.evicted as usize, EVICTED);
        }
        if heads.len() < first + ids.len() {
            heads.resize(first + ids.len(), 0);
        }
        let mut refilled = 0;
        for ((head, &id), place) in heads[first..].iter_mut().zip(ids).zip(key.place..) {
            let b = pool.block(id);
            b.branch = key.branch;
            b.place = place;
            if *head == 0 || *head == EVICTED {
                refilled += u64::from(*head == EVICTED);
                *head = id;
                b.twin_prev = id;
                b.twin_next = id;
                continue;
            }
            // No two blocks are merged: the copy waits behind the first one.
            let last = pool.block(*head).twin_prev;
            pool.block(last).twin_next = id;
            pool.block(*head).twin_prev = id;
            let b = pool.block(id);
            b.twin_prev = last;
            b.twin_next = *head;
        }
        refilled
    }

    /// Forgets a registered block.
    pub fn remove(&mut self, pool: &mut Pool, id: BlockId) {
        let b = pool.block(id);
        let (branch, place, prev, next) = (b.branch, b.place, b.twin_prev, b.twin_next);
        b.branch = UNREGISTERED;
        let branch = &mut self.branches[branch as usize];
        branch.live -= 1;
        if branch.live == 0 {
            // Most prompts never come back: what is left of them is one number.
            branch.evicted = u32::try_from(branch.heads.len()).unwrap_or(u32::MAX);
            branch.heads = Vec::new();
            return;
        }
        let head = &mut branch.heads[place as usize];
        if next == id {
            *head = EVICTED;
            return;
        }
        if *head == id {
            *head = next;
        }
        pool.block(prev).twin_next = next;
        pool.block(next).twin_prev = prev;
    }
}
