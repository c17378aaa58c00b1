//! The tree by hand, and against one that keeps every token and looks at every node.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::{Prefix, ROOT, RadixTree};
use crate::kv_cache::Content;

/// A prompt with an answer of 100 tokens.
fn content(prompt: &[(u64, u64)], answer: u64) -> Content<'_> {
    Content { prompt, output: (answer, 100) }
}

impl RadixTree {
    /// Every node as the prefix that ends with it, in order: its tokens, and whether it is locked.
    fn prefixes(&self) -> Vec<(Vec<(u64, u64)>, bool)> {
        let mut all = Vec::new();
        for id in 1..self.nodes.len() {
            if self.nodes[id].blocks == 0 {
                continue;
            }
            let (mut at, mut runs) = (id, Vec::new());
            while at != ROOT as usize {
                runs.extend(self.nodes[at].runs.iter().rev());
                at = self.nodes[at].parent as usize;
            }
            let of = |run: &super::Run| {
                let (segment, offset) = (run.segment, run.offset);
                (0..run.tokens).map(move |n| (segment, offset + n))
            };
            let tokens = runs.iter().rev().flat_map(of).collect();
            all.push((tokens, self.nodes[id].locks > 0));
        }
        all.sort();
        all
    }

    /// The lengths of the prefixes.
    fn lengths(&self) -> Vec<usize> {
        self.prefixes().iter().map(|(tokens, _)| tokens.len()).collect()
    }

    /// Counts everything anew.
    fn balances(&self) {
        let (mut blocks, mut locked, mut children) = (0, 0, vec![0; self.nodes.len()]);
        for node in self.nodes.iter().skip(1).filter(|node| node.blocks > 0) {
            let tokens: u64 = node.runs.iter().map(|run| run.tokens).sum();
            assert_eq!(tokens, node.blocks * self.block);
            blocks += node.blocks;
            locked += if node.locks > 0 { node.blocks } else { 0 };
            children[node.parent as usize] += 1;
            let above = &self.nodes[node.parent as usize];
            assert!(node.parent == ROOT || (above.blocks > 0 && node.locks <= above.locks));
        }
        let kept: Vec<u32> = self.nodes.iter().map(|node| node.children).collect();
        let there = |id: usize| id == 0 || self.nodes[id].blocks > 0;
        assert!((0..kept.len()).all(|id| !there(id) || kept[id] == children[id]));
        assert_eq!(self.children.len() as u64, children.iter().map(|&n| u64::from(n)).sum());
        assert_eq!((blocks, locked), (self.blocks, self.locked));
    }
}

/// 10 tokens that two prompts share, then 5 and 7 of their own: 22 tokens in three nodes. A prompt
/// that ends inside of a node splits it.
#[test]
fn two_prompts_share_what_they_have_in_common() {
    let mut tree = RadixTree::new(1);
    let (a, b) = ([(1, 10), (2, 5)], [(1, 10), (3, 7)]);
    assert_eq!(tree.insert(Prefix::default(), &content(&a, 8), 15).1, 15);
    assert_eq!(tree.lengths(), [15]);
    let (prefix, new) = tree.insert(Prefix::default(), &content(&b, 9), 17);
    assert_eq!((prefix.tokens, new, tree.blocks()), (17, 7, 22));
    assert_eq!(tree.lengths(), [10, 15, 17]);
    assert_eq!(tree.find(&content(&[(1, 4), (5, 5)], 9), 9).tokens, 4);
    assert_eq!(tree.lengths(), [4, 10, 15, 17]);
    assert_eq!(tree.blocks(), 22);
    tree.balances();
}

/// In blocks of 4, 15 tokens have 3 whole ones; of 10 shared tokens, 2 blocks are found, and a
/// prompt of which only the first block differs in its last token shares nothing.
#[test]
fn matches_end_with_a_whole_block() {
    let mut tree = RadixTree::new(4);
    let a = [(1, 10), (2, 5)];
    let (prefix, new) = tree.insert(Prefix::default(), &content(&a, 8), 15);
    assert_eq!((prefix.tokens, new), (12, 3));
    let (prefix, new) = tree.insert(Prefix::default(), &content(&[(1, 10), (3, 7)], 9), 17);
    assert_eq!((prefix.tokens, new, tree.blocks()), (16, 2, 5));
    assert_eq!(tree.lengths(), [8, 12, 16]);
    assert_eq!(tree.find(&content(&[(1, 3), (4, 9)], 9), 12).tokens, 0);
    assert_eq!(tree.insert(Prefix::default(), &content(&[(1, 3), (4, 9)], 9), 12).1, 3);
    // Found again by a first block of two runs.
    assert_eq!(tree.find(&content(&[(1, 3), (4, 9)], 9), 12).tokens, 12);
    tree.balances();
}

/// Two requests compute the same 10 tokens; the second finds them in the tree when it puts its own
/// there, and its blocks are nobody's.
#[test]
fn a_duplicate_adds_nothing() {
    let mut tree = RadixTree::new(1);
    let both = [(1, 10)];
    assert_eq!(tree.insert(Prefix::default(), &content(&both, 8), 10).1, 10);
    let (prefix, new) = tree.insert(Prefix::default(), &content(&both, 9), 10);
    assert_eq!((prefix.tokens, new, tree.blocks()), (10, 0, 10));
    // The answers differ: 10, and 3 and 4 behind them.
    tree.insert(prefix, &content(&both, 8), 13);
    tree.insert(prefix, &content(&both, 9), 14);
    assert_eq!(tree.lengths(), [10, 13, 14]);
}

/// Leaves go least recently used first, as a whole: of 3, 4 and 5 tokens, of which the first was
/// found again, 4 go for a single block and 5 more for the next. A parent goes after its leaves.
#[test]
fn the_least_recently_used_leaf_goes_first() {
    let mut tree = RadixTree::new(1);
    let (a, b, c) = ([(1, 3)], [(2, 4)], [(3, 5)]);
    for prompt in [&a, &b, &c] {
        tree.insert(Prefix::default(), &content(prompt, 9), prompt[0].1);
    }
    assert_eq!(tree.find(&content(&a, 9), 3).tokens, 3);
    assert_eq!((tree.evict(1), tree.blocks()), (4, 8));
    assert_eq!((tree.evict(1), tree.blocks()), (5, 3));
    // An answer of 2 tokens behind the 3.
    tree.insert(Prefix::default(), &content(&a, 9), 5);
    assert_eq!((tree.evict(1), tree.lengths()), (2, vec![3]));
    assert_eq!((tree.evict(9), tree.blocks()), (3, 0));
    assert_eq!(tree.evict(1), 0);
    tree.balances();
}

/// A parent whose leaf was used late is itself used late: behind 3 tokens, 2 are found after 4 others
/// were put in. When the 2 are gone, the 4 go before the 3.
#[test]
fn a_use_counts_for_the_whole_path() {
    let mut tree = RadixTree::new(1);
    let (a, b) = ([(1, 3)], [(2, 4)]);
    tree.insert(Prefix::default(), &content(&a, 8), 3);
    tree.insert(Prefix::default(), &content(&a, 8), 5);
    tree.insert(Prefix::default(), &content(&b, 9), 4);
    tree.find(&content(&a, 8), 5);
    // The 4 go first, then the 2, then the 3.
    assert_eq!([tree.evict(1), tree.evict(1), tree.evict(1)], [4, 2, 3]);
    tree.insert(Prefix::default(), &content(&a, 8), 5);
    tree.insert(Prefix::default(), &content(&b, 9), 4);
    tree.find(&content(&a, 8), 3);
    // Found up to its 3rd token, the rest of it is used just before: 4, 2, 3 again.
    assert_eq!([tree.evict(1), tree.evict(1), tree.evict(1)], [4, 2, 3]);
}

/// A locked path stays, and only what is behind it goes: 3 tokens are locked, and locked twice.
#[test]
fn a_locked_path_survives() {
    let mut tree = RadixTree::new(1);
    let a = [(1, 3)];
    tree.insert(Prefix::default(), &content(&a, 8), 7);
    let prefix = tree.find(&content(&a, 9), 3);
    assert_eq!(tree.evictable_of(prefix), 3);
    tree.lock(prefix);
    tree.lock(prefix);
    assert_eq!((tree.locked(), tree.evictable(), tree.evictable_of(prefix)), (3, 4, 0));
    assert_eq!((tree.evict(9), tree.blocks()), (4, 3));
    // The lock moves to what was computed behind it.
    let (longer, new) = tree.insert(prefix, &content(&a, 9), 5);
    tree.move_lock(prefix, longer);
    assert_eq!((new, tree.locked(), tree.evict(1)), (2, 5, 0));
    tree.unlock(longer);
    assert_eq!((tree.locked(), tree.evict(1)), (3, 2));
    tree.unlock(prefix);
    assert_eq!((tree.locked(), tree.evict(1), tree.blocks()), (0, 3, 0));
    tree.balances();
}

/// Who holds a node keeps it when it is split: 8 locked tokens, of which another prompt has 5.
#[test]
fn a_split_keeps_the_locks() {
    let mut tree = RadixTree::new(1);
    let (whole, _) = tree.insert(Prefix::default(), &content(&[(1, 8)], 8), 8);
    tree.lock(whole);
    let part = tree.find(&content(&[(1, 5)], 9), 5);
    assert_eq!((part.tokens, tree.evictable_of(part), tree.locked()), (5, 0, 8));
    tree.lock(part);
    tree.unlock(whole);
    assert_eq!((tree.locked(), tree.evict(1), tree.lengths()), (5, 3, vec![5]));
    tree.unlock(part);
    assert_eq!(tree.evict(1), 5);
}

type Token = (u64, u64);

/// The same rules on single tokens: nodes in a list, every node of a path with its last use.
#[derive(Default)]
struct Naive {
    block: usize,
    nodes: Vec<NaiveNode>,
    clock: u64,
}

struct NaiveNode {
    /// All tokens from the root to its end, and where its own begin.
    prefix: Vec<Token>,
    from: usize,
    locks: u32,
    used: u64,
}

impl Naive {
    fn whole(&self, tokens: usize) -> usize {
        tokens / self.block * self.block
    }

    fn follow(&mut self, tokens: &[Token]) -> usize {
        self.clock += 1;
        let (now, mut done) = (self.clock, 0);
        loop {
            let block = self.block;
            let next = self.nodes.iter_mut().find(|node| {
                node.from == done
                    && done + block <= tokens.len()
                    && node.prefix.get(..done + block) == tokens.get(..done + block)
            });
            let Some(node) = next else { return done };
            node.used = now;
            let same = node.prefix.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            let same = same / block * block;
            done = same;
            if same < node.prefix.len() {
                let (prefix, from) = (node.prefix[..same].to_vec(), node.from);
                let locks = node.locks;
                node.from = same;
                self.clock += 1;
                self.nodes.push(NaiveNode { prefix, from, locks, used: self.clock });
                return done;
            }
        }
    }

    fn insert(&mut self, tokens: &[Token]) -> usize {
        let tokens = &tokens[..self.whole(tokens.len())];
        let done = self.follow(tokens);
        if done < tokens.len() {
            self.clock += 1;
            let prefix = tokens.to_vec();
            self.nodes.push(NaiveNode { prefix, from: done, locks: 0, used: self.clock });
        }
        (tokens.len() - done) / self.block
    }

    fn lock(&mut self, tokens: &[Token], by: i32) {
        for node in &mut self.nodes {
            if tokens.starts_with(&node.prefix) {
                node.locks = node.locks.checked_add_signed(by).unwrap();
            }
        }
    }

    fn evict(&mut self, blocks: usize) -> usize {
        let mut gone = 0;
        while gone < blocks {
            let is_leaf = |node: &NaiveNode| {
                node.locks == 0
                    && !self
                        .nodes
                        .iter()
                        .any(|n| n.from == node.prefix.len() && n.prefix.starts_with(&node.prefix))
            };
            let leaves = (0..self.nodes.len()).filter(|&n| is_leaf(&self.nodes[n]));
            let Some(first) = leaves.min_by_key(|&n| self.nodes[n].used) else { break };
            let node = self.nodes.remove(first);
            gone += (node.prefix.len() - node.from) / self.block;
        }
        gone
    }

    fn blocks(&self, locked: bool) -> usize {
        let of = |node: &NaiveNode| (node.prefix.len() - node.from) / self.block;
        self.nodes.iter().filter(|node| (node.locks > 0) == locked).map(of).sum()
    }

    fn prefixes(&self) -> Vec<(Vec<Token>, bool)> {
        let of = |node: &NaiveNode| (node.prefix.clone(), node.locks > 0);
        let mut all: Vec<_> = self.nodes.iter().map(of).collect();
        all.sort();
        all
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Find(usize, u64),
    Insert(usize, u64),
    /// Finds a prefix and locks it.
    Lock(usize, u64),
    /// Puts so many more tokens of a locked prefix in, and moves the lock.
    Extend(usize, u64),
    Unlock(usize),
    Evict(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{Evict, Extend, Find, Insert, Lock, Unlock};
    let tokens = 0_u64..40;
    prop_oneof![
        2 => (0_usize..8, tokens.clone()).prop_map(|(c, n)| Find(c, n)),
        3 => (0_usize..8, tokens.clone()).prop_map(|(c, n)| Insert(c, n)),
        2 => (0_usize..8, tokens).prop_map(|(c, n)| Lock(c, n)),
        2 => (0_usize..4, 0_u64..15).prop_map(|(l, n)| Extend(l, n)),
        2 => (0_usize..4).prop_map(Unlock),
        2 => (0_u64..20).prop_map(Evict),
    ]
}

/// Prompts of a few segments, which begin alike, with answers.
fn contents() -> impl Strategy<Value = Vec<(Vec<(u64, u64)>, u64)>> {
    let prompt = prop::collection::vec((1_u64..4, 0_u64..9), 1..5);
    prop::collection::vec((prompt, 4_u64..7), 8)
}

/// The first `n` tokens.
fn tokens(content: &Content<'_>, n: u64) -> Vec<Token> {
    let segments = content.prompt.iter().chain(std::iter::once(&content.output));
    let all = segments.flat_map(|&(segment, length)| (0..length).map(move |at| (segment, at)));
    all.take(usize::try_from(n).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The tree has the nodes of the naive one after any operations, finds as much, and evicts the same.
    #[test]
    fn the_tree_is_the_naive_one(
        contents in contents(),
        operations in prop::collection::vec(operation(), 1..60),
        block in prop::sample::select(vec![1_u64, 1, 2, 4, 7]),
    ) {
        let mut tree = RadixTree::new(block);
        let mut naive = Naive { block: usize::try_from(block).unwrap(), ..Naive::default() };
        let mut locks: Vec<(usize, Prefix)> = Vec::new();
        let of = |c: usize| Content { prompt: &contents[c].0, output: (contents[c].1, 12) };
        for operation in operations {
            match operation {
                Operation::Find(c, n) | Operation::Lock(c, n) => {
                    let found = tree.find(&of(c), n);
                    let mut wanted = tokens(&of(c), n);
                    wanted.truncate(naive.whole(wanted.len()));
                    let done = naive.follow(&wanted);
                    prop_assert_eq!(found.tokens, done as u64);
                    if matches!(operation, Operation::Lock(..)) {
                        tree.lock(found);
                        naive.lock(&wanted[..done], 1);
                        locks.push((c, found));
                    }
                }
                Operation::Insert(c, n) => {
                    let (prefix, new) = tree.insert(Prefix::default(), &of(c), n);
                    let all = tokens(&of(c), n);
                    prop_assert_eq!(prefix.tokens, naive.whole(all.len()) as u64);
                    prop_assert_eq!(new, naive.insert(&all) as u64);
                }
                Operation::Extend(l, more) => {
                    let Some((c, prefix)) = locks.get_mut(l) else { continue };
                    let (longer, new) = tree.insert(*prefix, &of(*c), prefix.tokens + more);
                    tree.move_lock(*prefix, longer);
                    let all = tokens(&of(*c), prefix.tokens + more);
                    prop_assert_eq!(new, naive.insert(&all) as u64);
                    naive.lock(&tokens(&of(*c), prefix.tokens), -1);
                    naive.lock(&tokens(&of(*c), longer.tokens), 1);
                    *prefix = longer;
                }
                Operation::Unlock(l) => {
                    if l < locks.len() {
                        let (c, prefix) = locks.swap_remove(l);
                        tree.unlock(prefix);
                        naive.lock(&tokens(&of(c), prefix.tokens), -1);
                    }
                }
                Operation::Evict(blocks) => {
                    let gone = tree.evict(blocks);
                    prop_assert_eq!(gone, naive.evict(usize::try_from(blocks).unwrap()) as u64);
                }
            }
            tree.balances();
            prop_assert_eq!(tree.evictable(), naive.blocks(false) as u64);
            prop_assert_eq!(tree.locked(), naive.blocks(true) as u64);
            prop_assert_eq!(tree.prefixes(), naive.prefixes());
        }
    }
}
