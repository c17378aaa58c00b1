//! SGLang's prefix cache: a tree whose edges are runs of tokens, in whole blocks.
//!
//! Two prompts share the nodes of what they have in common, token by token, and part where they
//! differ, at the last whole block before: a node is split there. A block of one token, SGLang's
//! usual page, loses nothing by that.
//!
//! **Locks.** A request locks the path of its prefix. What is locked by nobody is *evictable*.
//!
//! **Order of eviction.** A leaf that nobody has locked goes as a whole, the least recently used
//! first, and its parent may then be such a leaf. To match or to insert a prefix uses every node
//! on its path; where a node is split, the part that is left over is used as well, just before.
//!
//! A use is noted at the end of the path alone: a node can only be evicted after all that is below
//! it, and takes over their last use when they go.
//!
//! Source: SGLang, `python/sglang/srt/mem_cache/radix_cache.py`.

mod seats;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::FixedState;

use crate::kv_cache::Content;

pub(crate) use seats::Seats;

/// Consecutive tokens of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    segment: u64,
    offset: u64,
    tokens: u64,
}

/// The tokens of a request from some place on.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a> {
    content: &'a Content<'a>,
    /// Which segment comes next, the answer's after those of the prompt, and from which token on.
    index: usize,
    offset: u64,
}

impl<'a> Cursor<'a> {
    /// After the first `tokens` tokens.
    fn after(content: &'a Content<'a>, tokens: u64) -> Self {
        let mut cursor = Self { content, index: 0, offset: 0 };
        cursor.advance(tokens);
        cursor
    }

    /// The rest of the segment; none at the end.
    fn run(&mut self) -> Option<Run> {
        let prompt = self.content.prompt;
        loop {
            let (segment, length) = match prompt.get(self.index) {
                Some(&segment) => segment,
                None if self.index == prompt.len() => self.content.output,
                None => return None,
            };
            if self.offset < length {
                let tokens = length - self.offset;
                return Some(Run { segment, offset: self.offset, tokens });
            }
            (self.index, self.offset) = (self.index + 1, 0);
        }
    }

    fn advance(&mut self, mut tokens: u64) {
        while tokens > 0
            && let Some(run) = self.run()
        {
            let some = tokens.min(run.tokens);
            self.offset += some;
            tokens -= some;
        }
    }

    /// How many tokens there are, at most `most`.
    fn tokens(mut self, most: u64) -> u64 {
        let mut tokens = 0;
        while tokens < most
            && let Some(run) = self.run()
        {
            tokens += run.tokens;
            self.offset += run.tokens;
        }
        tokens.min(most)
    }

    /// The next `tokens` tokens, or as many as there are.
    fn take(mut self, mut tokens: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        while tokens > 0
            && let Some(run) = self.run()
        {
            let some = tokens.min(run.tokens);
            runs.push(Run { tokens: some, ..run });
            self.offset += some;
            tokens -= some;
        }
        runs
    }
}

/// The first block of a node, by which its parent finds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FirstBlock {
    first: Run,
    rest: Vec<Run>,
}

impl FirstBlock {
    fn of(runs: &[Run], block: u64) -> Self {
        let mut left = block;
        let mut cut = runs.iter().map_while(|run| {
            let tokens = run.tokens.min(left);
            left -= tokens;
            (tokens > 0).then_some(Run { tokens, ..*run })
        });
        let first = cut.next().unwrap_or(Run { segment: 0, offset: 0, tokens: 0 });
        Self { first, rest: cut.collect() }
    }

    fn at(mut cursor: Cursor<'_>, block: u64) -> Self {
        match cursor.run() {
            // Nearly always: no list is made.
            Some(run) if block <= run.tokens => {
                Self { first: Run { tokens: block, ..run }, rest: Vec::new() }
            }
            _ => Self::of(&cursor.take(block), block),
        }
    }
}

/// Tokens that follow those of the parent.
#[derive(Clone, Debug)]
struct Node {
    parent: u32,
    runs: Vec<Run>,
    /// Blocks of the runs; none if there is no node at this place.
    blocks: u64,
    children: u32,
    /// Locks here and below.
    locks: u32,
    /// The last use of a prefix that ended here or in what was evicted below; never the same for
    /// two nodes that are there.
    used: u64,
}

/// A prefix that is in the tree: where it ends, and how many tokens it has.
///
/// It is there as long as it is locked or nothing is evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    end: u32,
    pub tokens: u64,
}

/// The root: the empty prefix.
const ROOT: u32 = 0;

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct RadixTree {
    block: u64,
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    /// Looked up and never iterated.
    children: HashMap<(u32, FirstBlock), u32, FixedState>,
    /// Leaves that nobody has locked, with their last use; some entries are out of date.
    leaves: BinaryHeap<Reverse<(u64, u32)>>,
    uses: u64,
    blocks: u64,
    locked: u64,
}

impl RadixTree {
    /// An empty tree with blocks of so many tokens, at least one.
    pub fn new(block: u64) -> Self {
        let root =
            Node { parent: ROOT, runs: Vec::new(), blocks: 0, children: 0, locks: 0, used: 0 };
        Self {
            block: block.max(1),
            nodes: vec![root],
            vacant: Vec::new(),
            children: HashMap::with_hasher(FixedState::default()),
            leaves: BinaryHeap::new(),
            uses: 0,
            blocks: 0,
            locked: 0,
        }
    }

    #[cfg(test)]
    /// Blocks in the tree.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Those of them that somebody has locked.
    pub fn locked(&self) -> u64 {
        self.locked
    }

    /// Those that nobody has.
    pub fn evictable(&self) -> u64 {
        self.blocks - self.locked
    }

    /// The longest prefix of the first `tokens` tokens that is there, in whole blocks. It is used
    /// now.
    pub fn find(&mut self, content: &Content<'_>, tokens: u64) -> Prefix {
        self.walk(Prefix::default(), content, tokens)
    }

    /// Blocks at the end of a prefix that nobody has locked.
    pub fn evictable_of(&self, prefix: Prefix) -> u64 {
        let (mut at, mut blocks) = (prefix.end, 0);
        while at != ROOT && self.node(at).locks == 0 {
            blocks += self.node(at).blocks;
            at = self.node(at).parent;
        }
        blocks
    }

    /// Puts the whole blocks of the first `tokens` tokens into the tree, of which the prefix
    /// `from` is there: the prefix that they are now, used now, and how many blocks are new.
    pub fn insert(&mut self, from: Prefix, content: &Content<'_>, tokens: u64) -> (Prefix, u64) {
        let there = self.walk(from, content, tokens);
        let rest = Cursor::after(content, there.tokens);
        let tokens = self.whole(rest.tokens(self.whole(tokens) - there.tokens));
        if tokens == 0 {
            return (there, 0);
        }
        let runs = rest.take(tokens);
        let blocks = tokens / self.block;
        let key = FirstBlock::of(&runs, self.block);
        let parent = there.end;
        let end = self.place(Node { parent, runs, blocks, children: 0, locks: 0, used: 0 });
        self.children.insert((parent, key), end);
        self.nodes[parent as usize].children += 1;
        self.blocks += blocks;
        self.touch(end);
        (Prefix { end, tokens: there.tokens + tokens }, blocks)
    }

    /// Locks the path of a prefix.
    pub fn lock(&mut self, prefix: Prefix) {
        self.lock_below(ROOT, prefix.end);
    }

    /// Moves a lock from a prefix to a longer one.
    pub fn move_lock(&mut self, from: Prefix, to: Prefix) {
        self.lock_below(from.end, to.end);
    }

    fn lock_below(&mut self, top: u32, end: u32) {
        let mut at = end;
        while at != top && at != ROOT {
            let node = &mut self.nodes[at as usize];
            if node.locks == 0 {
                self.locked += node.blocks;
            }
            node.locks += 1;
            at = node.parent;
        }
    }

    /// Gives a lock back.
    pub fn unlock(&mut self, prefix: Prefix) {
        let mut at = prefix.end;
        while at != ROOT {
            let node = &mut self.nodes[at as usize];
            node.locks -= 1;
            let parent = node.parent;
            if node.locks == 0 {
                self.locked -= node.blocks;
                self.offer(at);
            }
            at = parent;
        }
    }

    /// Evicts leaves until at least so many blocks are gone, or nothing is left that could go; how
    /// many are.
    pub fn evict(&mut self, blocks: u64) -> u64 {
        let mut gone = 0;
        while gone < blocks
            && let Some(Reverse((used, leaf))) = self.leaves.pop()
        {
            if !self.may_go(used, leaf) {
                continue;
            }
            let node = &mut self.nodes[leaf as usize];
            let (parent, runs) = (node.parent, std::mem::take(&mut node.runs));
            gone += node.blocks;
            node.blocks = 0;
            self.children.remove(&(parent, FirstBlock::of(&runs, self.block)));
            self.vacant.push(leaf);
            let above = &mut self.nodes[parent as usize];
            above.children -= 1;
            above.used = above.used.max(used);
            self.offer(parent);
        }
        self.blocks -= gone;
        gone
    }

    fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    fn whole(&self, tokens: u64) -> u64 {
        tokens / self.block * self.block
    }

    /// Follows the tokens from a prefix that is there on, as far as they are there.
    fn walk(&mut self, from: Prefix, content: &Content<'_>, tokens: u64) -> Prefix {
        let tokens = self.whole(tokens);
        let mut at = from;
        let mut cursor = Cursor::after(content, from.tokens);
        // A block that the content ends in is none.
        while at.tokens < tokens
            && let Some(&child) = self.children.get(&(at.end, FirstBlock::at(cursor, self.block)))
        {
            let same = self.whole(common(&self.node(child).runs, cursor, tokens - at.tokens));
            at.tokens += same;
            if same < self.node(child).blocks * self.block {
                at.end = self.split(child, same);
                break;
            }
            at.end = child;
            cursor.advance(same);
        }
        self.touch(at.end);
        at
    }

    /// Splits a node after `tokens` tokens; the upper part, while the lower one stays itself.
    fn split(&mut self, lower: u32, tokens: u64) -> u32 {
        self.touch(lower);
        let node = &mut self.nodes[lower as usize];
        let (mut left, mut first) = (tokens, Vec::new());
        while let Some(run) = node.runs.get_mut(first.len()).filter(|run| run.tokens <= left) {
            left -= run.tokens;
            first.push(*run);
        }
        node.runs.drain(..first.len());
        if let Some(run) = node.runs.first_mut().filter(|_| left > 0) {
            first.push(Run { tokens: left, ..*run });
            run.offset += left;
            run.tokens -= left;
        }
        let blocks = tokens / self.block;
        node.blocks -= blocks;
        let (parent, locks) = (node.parent, node.locks);
        let key = FirstBlock::of(&node.runs, self.block);
        let above = FirstBlock::of(&first, self.block);
        let upper = self.place(Node { parent, runs: first, blocks, children: 1, locks, used: 0 });
        self.nodes[lower as usize].parent = upper;
        self.children.insert((parent, above), upper);
        self.children.insert((upper, key), lower);
        upper
    }

    fn place(&mut self, node: Node) -> u32 {
        if let Some(id) = self.vacant.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        // Each has a block, of which there are fewer than 2³².
        u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
    }

    fn touch(&mut self, id: u32) {
        self.uses += 1;
        self.nodes[id as usize].used = self.uses;
        self.offer(id);
    }

    /// Whether it is a leaf that nobody has locked, and was used last then.
    fn may_go(&self, used: u64, id: u32) -> bool {
        let node = self.node(id);
        node.used == used && node.blocks > 0 && node.children == 0 && node.locks == 0
    }

    /// Makes a node a candidate for eviction, if it can be one.
    fn offer(&mut self, id: u32) {
        let used = self.node(id).used;
        if !self.may_go(used, id) {
            return;
        }
        if 64 + 4 * self.nodes.len() < self.leaves.len() {
            let mut leaves = std::mem::take(&mut self.leaves);
            leaves.retain(|&Reverse((used, id))| self.may_go(used, id));
            self.leaves = leaves;
        }
        self.leaves.push(Reverse((used, id)));
    }
}

/// How many tokens of a node come next as well, at most `most`.
fn common(node: &[Run], mut cursor: Cursor<'_>, most: u64) -> u64 {
    let mut same = 0;
    for run in node {
        let Some(next) = cursor.run() else { break };
        if (next.segment, next.offset) != (run.segment, run.offset) {
            break;
        }
        let some = next.tokens.min(run.tokens).min(most - same);
        same += some;
        if some < run.tokens {
            break;
        }
        cursor.advance(some);
    }
    same
}
