//! The KV cache: its books, its prefixes, its order of eviction.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use sched_sim::kv_cache::{BlockTable, Content, FreedOrder, Hit, KvCache, KvOptions};

/// A request with this content, admitted with everything computed and registered.
fn admit(kv: &mut KvCache, prompt: &[(u64, u64)], output: (u64, u64), tokens: u64) -> BlockTable {
    let mut table = BlockTable::default();
    kv.describe(&mut table, &Content { prompt, output });
    let hit = kv.lookup(&table, tokens);
    assert!(kv.admit(&mut table, hit, tokens, tokens));
    kv.register(&mut table, tokens);
    table
}

/// Of 12 tokens in blocks of 4, a request hits 2 blocks and computes the last one again; one more
/// token, and it hits all 3.
#[test]
fn the_last_token_is_always_computed() {
    let mut kv = KvCache::new(KvOptions::new(20, 4)).unwrap();
    admit(&mut kv, &[(1, 12)], (90, 1), 12);
    let mut table = BlockTable::default();

    kv.describe(&mut table, &Content { prompt: &[(1, 12)], output: (91, 9) });
    assert_eq!(kv.lookup(&table, 12).tokens, 8);

    kv.describe(&mut table, &Content { prompt: &[(1, 12), (2, 1)], output: (91, 9) });
    assert_eq!(kv.lookup(&table, 13).tokens, 12);
}

/// Equal tokens at other positions, or after other tokens, are another prefix.
#[test]
fn a_block_is_hit_only_after_the_same_tokens() {
    let mut kv = KvCache::new(KvOptions::new(40, 4)).unwrap();
    admit(&mut kv, &[(1, 6), (2, 10)], (90, 1), 16);
    let mut found = |prompt: &[(u64, u64)]| {
        let mut table = BlockTable::default();
        kv.describe(&mut table, &Content { prompt, output: (91, 100) });
        kv.lookup(&table, prompt.iter().map(|p| p.1).sum()).tokens
    };

    assert_eq!(found(&[(1, 6), (2, 30)]), 16);
    assert_eq!(found(&[(1, 6), (2, 3), (3, 30)]), 8);
    assert_eq!(found(&[(1, 4), (2, 30)]), 4, "(2, 0) comes after (1, 3) here, not after (1, 5)");
    assert_eq!(found(&[(1, 4), (1, 2), (2, 30)]), 4, "segment 1 begins again in the second block");
    assert_eq!(found(&[(1, 7), (2, 30)]), 4, "the second block has three tokens of segment 1");
    assert_eq!(found(&[(1, 6), (2, 2), (2, 30)]), 8, "segment 2 begins again at its offset 0");
    assert_eq!(found(&[(1, 0), (1, 6), (4, 0), (2, 30)]), 16, "empty segments are none");
    assert_eq!(found(&[(2, 30)]), 0);
}

/// Turn 2 repeats the prompt and the answer of turn 1 and goes on.
#[test]
fn an_answer_is_a_prefix_of_the_next_turn() {
    let mut kv = KvCache::new(KvOptions::new(40, 4)).unwrap();
    let mut first = admit(&mut kv, &[(1, 6)], (90, 10), 15);
    kv.release(&mut first);
    let mut second = BlockTable::default();

    kv.describe(&mut second, &Content { prompt: &[(1, 6), (90, 10), (2, 5)], output: (91, 1) });

    assert_eq!(kv.lookup(&second, 21), hit(12, 3, 3, &kv, &second));
}

/// `Hit` has no public constructor: this checks the three numbers and gives the same look-up back.
fn hit(tokens: u64, blocks: u64, idle: u64, kv: &KvCache, table: &BlockTable) -> Hit {
    let found = kv.lookup(table, 21);
    assert_eq!((found.tokens, found.blocks, found.idle_blocks), (tokens, blocks, idle));
    found
}

/// Blocks of 4: a request of 10 tokens holds 1, 2 (registered) and 3 (half full). Freed, 3 is the
/// next to be handed out; then come the never used 4 to 6, then 2 before 1: the tail of a request
/// is evicted before its head.
#[test]
fn a_freed_tail_goes_first_and_a_cached_head_last() {
    let mut kv = KvCache::new(KvOptions::new(6, 4)).unwrap();
    let mut table = admit(&mut kv, &[(1, 10)], (90, 1), 10);
    kv.release(&mut table);
    assert_eq!(kv.free_list().collect::<Vec<_>>(), [3, 4, 5, 6, 2, 1]);

    // Before vLLM 0.24.0 all of them went to the end.
    let mut options = KvOptions::new(6, 4);
    options.freed_order = FreedOrder::AllAtEnd;
    let mut kv = KvCache::new(options).unwrap();
    let mut table = admit(&mut kv, &[(1, 10)], (90, 1), 10);
    kv.release(&mut table);
    assert_eq!(kv.free_list().collect::<Vec<_>>(), [4, 5, 6, 3, 2, 1]);
}

/// Two copies of a block are two blocks: evicting one of them loses nothing.
#[test]
fn a_prefix_is_refilled_only_after_its_last_copy_went() {
    let mut kv = KvCache::new(KvOptions::new(4, 4)).unwrap();
    let mut tables = [BlockTable::default(), BlockTable::default()];
    for table in &mut tables {
        // Both are admitted before either is registered: two copies, blocks 1 and 2.
        kv.describe(table, &Content { prompt: &[(1, 8)], output: (90, 1) });
        assert!(kv.admit(table, Hit::default(), 4, 4));
    }
    for table in &mut tables {
        kv.register(table, 4);
        kv.release(table);
    }
    assert_eq!(kv.free_list().collect::<Vec<_>>(), [3, 4, 1, 2]);

    // Three other blocks evict the first copy, and the second one is hit.
    let mut other = admit(&mut kv, &[(2, 9)], (91, 1), 9);
    let mut again = BlockTable::default();
    kv.describe(&mut again, &Content { prompt: &[(1, 8)], output: (92, 1) });
    assert_eq!(kv.lookup(&again, 8).tokens, 4);
    let counters = kv.counters();
    assert_eq!((counters.evicted_blocks, counters.refilled_blocks), (1, 0));

    // A fourth block evicts that one too: now it is gone, and has to be computed again.
    assert!(kv.extend(&mut other, 13));
    assert_eq!(kv.lookup(&again, 8).tokens, 0);
    assert!(!kv.extend(&mut again, 4));
    kv.release(&mut other);
    assert!(kv.extend(&mut again, 4));
    kv.register(&mut again, 4);
    let counters = kv.counters();
    assert_eq!((counters.evicted_blocks, counters.refilled_blocks), (2, 1));
    assert_eq!(counters.failed_allocations, 1);
}

#[test]
fn a_pool_without_blocks_or_tokens_is_refused() {
    for (blocks, block_size, message) in [
        (0, 16, "KV blocks must be at least 1, got 0"),
        (10, 0, "block_size must be at least 1, got 0"),
        (u64::MAX, 16, "KV blocks must be at most 4294967293, got 18446744073709551615"),
    ] {
        let error = KvCache::new(KvOptions::new(blocks, block_size)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

/// Prompt and tokens of a request that holds blocks.
type Held = (Vec<(u64, u64)>, u64);

/// Something that a scheduler can do to request `who`.
#[derive(Clone, Debug)]
enum Act {
    Admit { who: usize, prompt: Vec<(u64, u64)>, tokens: u64 },
    Extend { who: usize, tokens: u64 },
    Release { who: usize },
}

fn act() -> impl Strategy<Value = Act> {
    let who = 0..5_usize;
    prop_oneof![
        (who.clone(), prop::collection::vec((0..3_u64, 0..9_u64), 1..4), 1..20_u64)
            .prop_map(|(who, prompt, tokens)| Act::Admit { who, prompt, tokens }),
        (who.clone(), 1..12_u64).prop_map(|(who, tokens)| Act::Extend { who, tokens }),
        who.prop_map(|who| Act::Release { who }),
    ]
}

/// The first `n` tokens of a content, pair by pair.
fn tokens(prompt: &[(u64, u64)], output: u64, n: u64) -> Vec<(u64, u64)> {
    let prompt = prompt.iter().flat_map(|&(s, n)| (0..n).map(move |i| (s, i)));
    prompt.chain((0..n).map(|i| (output, i))).take(usize::try_from(n).unwrap()).collect()
}

proptest! {
    /// Used + cached + free = total after anything, and a hit is never longer than what some
    /// request registered with the very same tokens before, compared one by one.
    #[test]
    fn books_balance_and_hits_are_true(
        blocks in 1..12_u64,
        block_size in 1..5_u64,
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let mut kv = KvCache::new(KvOptions::new(blocks, block_size)).unwrap();
        let mut tables = vec![BlockTable::default(); 5];
        let mut held: Vec<Option<Held>> = vec![None; 5];
        let mut seen: Vec<Vec<(u64, u64)>> = Vec::new();
        for act in acts {
            match act {
                Act::Admit { who, prompt, tokens: n } if held[who].is_none() => {
                    let output = 100 + who as u64;
                    kv.describe(&mut tables[who], &Content { prompt: &prompt, output: (output, 40) });
                    let hit = kv.lookup(&tables[who], n);
                    let known = tokens(&prompt, output, n);
                    let prefix = &known[..usize::try_from(hit.tokens).unwrap()];
                    prop_assert!(hit.tokens < n);
                    prop_assert!(prefix.is_empty() || seen.iter().any(|s| s.starts_with(prefix)));
                    let need = kv.need(hit, n);
                    let idle = kv.idle_blocks();
                    let admitted = kv.admit(&mut tables[who], hit, n, n);
                    prop_assert_eq!(admitted, need <= idle);
                    if admitted {
                        prop_assert_eq!(kv.idle_blocks(), idle - need);
                        prop_assert_eq!(tables[who].blocks().len() as u64, n.div_ceil(block_size));
                        kv.register(&mut tables[who], n);
                        seen.push(known);
                        held[who] = Some((prompt, n));
                    }
                }
                Act::Extend { who, tokens: more } => if let Some((prompt, n)) = &mut held[who] {
                    let to = *n + more;
                    if to <= 40 && kv.extend(&mut tables[who], to) {
                        *n = to;
                        kv.register(&mut tables[who], to);
                        seen.push(tokens(prompt, 100 + who as u64, to));
                    }
                },
                Act::Release { who } => {
                    kv.release(&mut tables[who]);
                    held[who] = None;
                }
                Act::Admit { .. } => {}
            }
            prop_assert!(kv.books_balance(), "{:?}", kv.books());
        }
    }
}

/// Mooncake's traces name each block of 512 tokens by a hash of its whole prefix. With a cache
/// that never evicts, 36.6 % of the conversation trace's blocks and 64.0 % of the synthetic one's
/// are hits in order of arrival, counted by the names alone.
#[test]
fn hits_on_the_mooncake_traces_are_those_counted_by_name() {
    let data = std::env::var_os("GOODPUT_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    for (file, percent) in [("conversation_trace", 36.6), ("synthetic_trace", 64.0)] {
        let path = data.join(format!("traces/mooncake/{file}.jsonl.gz"));
        let Ok(bytes) = std::fs::read(&path) else {
            // Written past the test runner's capture, so that a plain run shows it.
            let skipped = format!("skipped: {} is not there (set GOODPUT_DATA)", path.display());
            let _ = writeln!(std::io::stderr(), "{skipped}");
            continue;
        };
        let mut text = String::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
        let mut kv = KvCache::new(KvOptions::new(2_000_000, 512)).unwrap();
        let (mut named, mut hits, mut blocks) = (std::collections::HashSet::new(), 0, 0);
        for (row, line) in text.lines().enumerate() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let ids = line["hash_ids"].as_array().unwrap();
            let prompt: Vec<_> = ids.iter().map(|id| (id.as_u64().unwrap(), 512)).collect();
            // One token more, so that the last named block can be a hit.
            let tokens = prompt.len() as u64 * 512 + 1;
            let mut table = admit(&mut kv, &prompt, (u64::MAX - row as u64, 1), tokens);
            kv.release(&mut table);
            blocks += ids.len();
            hits += prompt.iter().filter(|(id, _)| !named.insert(*id)).count();
        }
        let counters = kv.counters();

        assert_eq!(counters.evicted_blocks, 0);
        assert_eq!(counters.hit_tokens, hits as u64 * 512);
        let found = 100.0 * hits as f64 / blocks as f64;
        assert!((found - percent).abs() < 0.05, "{file}: {found} %");
    }
}
