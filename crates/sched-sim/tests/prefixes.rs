//! SGLang's radix cache under both engines.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fmt::Write;

use common::{BlockLog, Gaps, limits, served, shared_workload, step_time, tokens_of};
use proptest::prelude::*;
use sched_sim::server::{Job, Server};
use sched_sim::{
    Affine, BatchHistory, KvPool, Policy, Preemption, PromptContent, Replica, Reserve, RunEnd,
    RunLimits, ServerSettings, SgLang, Simulation, Stage, Step, StepWork, Ticks, Workload,
    WorkloadRequest,
};

/// A pool of so many blocks of so many tokens.
fn pool(blocks: u64, size: u64) -> ServerSettings {
    let mut settings = ServerSettings::default();
    settings.kv = Some(KvPool::new(blocks, size).unwrap());
    settings
}

/// From what two requests need to plenty; pages of a token and of many.
fn pools() -> impl Strategy<Value = ServerSettings> {
    let size = prop::sample::select(vec![1_u64, 1, 1, 4, 16, 17, 256]);
    let tokens = prop_oneof![2 => 200_u64..3000, 2 => 3000_u64..24_000, 1 => 24_000_u64..200_000];
    (size, tokens).prop_map(|(size, tokens)| pool(tokens.div_ceil(size), size))
}

fn sglang() -> impl Strategy<Value = SgLang> {
    let chunk = prop_oneof![1 => 1_u64..20, 3 => 20_u64..600, 2 => 600_u64..30_000];
    let conservativeness = prop_oneof![Just(1.0), Just(0.0), 0.0_f64..1.5];
    (1_u64..30, chunk, conservativeness).prop_map(|(seqs, chunk, conservativeness)| {
        SgLang::new(seqs, chunk).unwrap().with_conservativeness(conservativeness).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// After each step the blocks in use, the cached and the free ones are all there are, and a
    /// server that is driven from outside is no other.
    #[test]
    fn blocks_are_conserved_after_each_step(
        workload in shared_workload(),
        policy in sglang(),
        settings in pools(),
        reference in any::<bool>(),
    ) {
        let step_time: Affine = "base=3ms,prefill=7us/token,decode=11us/request".parse().unwrap();
        let new = if reference { Replica::reference } else { Replica::new };
        let mut server = new(policy, step_time).settings(settings);
        for (position, r) in workload.requests().iter().enumerate() {
            server.submit(Job::of(position, r)).unwrap();
        }
        let (mut over, mut steps) = (Vec::new(), 0);
        while let Some(at) = server.next_visible(&mut ()).unwrap()
            && steps < 3000
        {
            server.advance_to(at, &mut ()).unwrap();
            server.take_over(&mut over);
            let load = server.load();
            let blocks = load.kv_blocks.unwrap();
            prop_assert!(load.kv_used + load.kv_cached <= blocks, "{load:?}");
            steps += 1;
        }
        prop_assert!(steps == 3000 || server.load().kv_used == 0);
    }

    /// They agree under a policy that does as it likes, with prefixes found or not.
    #[test]
    fn skipping_equals_the_reference_under_a_whim(
        workload in shared_workload(),
        moods in prop::collection::vec(0_u64..400, 1..12),
        emits in any::<bool>(),
        swaps in any::<bool>(),
        reserve in prop::sample::select(vec![Reserve::Prompt, Reserve::Chunk, Reserve::Maximum]),
        settings in pools(),
        step_time in step_time(),
        departs in prop::collection::vec(prop::option::weighted(0.2, 0_u64..9_000_000_000), 40),
    ) {
        let whim = Whim { moods, step: 0, emits, swaps, reserve };
        let limits = RunLimits { max_steps: Some(2000), until: None };
        let jobs = || workload.requests().iter().enumerate().map(|(position, r)| {
            let mut job = Job::of(position, r);
            job.cancel_at = departs[position].map(|ns| r.arrival.after(Ticks::from_nanoseconds(ns)));
            job
        });
        let skipping = Replica::new(whim.clone(), step_time).settings(settings).limits(limits);
        let plain = Replica::reference(whim, step_time).settings(settings).limits(limits);
        prop_assert_eq!(served(skipping, jobs()), served(plain, jobs()));
    }
}

/// The skipping engine and the plain one agree bit for bit where prefixes are shared, kept and
/// evicted. Prompt tokens are computed or found, once and again after each preemption.
#[test]
fn skipping_equals_the_reference_with_shared_prefixes() {
    let seen = std::cell::Cell::new([0; 4]);
    // Few of the servers are so full that somebody who was there before comes back.
    for _ in 0..20 {
        prefixes_are_shared_alike(&seen);
        if seen.get().iter().all(|&n| 0 < n) {
            return;
        }
    }
    panic!("{:?}: hits, evictions, preemptions, hits after them", seen.get());
}

/// A round of cases, which adds to what was `seen`.
fn prefixes_are_shared_alike(seen: &std::cell::Cell<[u64; 4]>) {
    let inputs = (shared_workload(), sglang(), pools(), step_time(), limits());
    let config = ProptestConfig::with_cases(cases());
    proptest!(config, |((workload, policy, settings, step_time, limits) in inputs)| {
        let run = || Simulation::new(&workload, policy, step_time).settings(settings).limits(limits);
        let (mut fast_watch, mut plain_watch) = Default::default();
        let skipping = run().run_observed(&mut fast_watch).unwrap();
        let plain = run().run_reference_observed(&mut plain_watch).unwrap();
        prop_assert_eq!(&skipping, &plain);
        let (fast_history, (fast_blocks, fast_gaps)): (BatchHistory, (BlockLog, Gaps)) = fast_watch;
        let (plain_history, (plain_blocks, plain_gaps)): (BatchHistory, (BlockLog, Gaps)) = plain_watch;
        prop_assert_eq!(&fast_history, &plain_history);
        prop_assert!(fast_blocks.agrees_with(&plain_blocks));
        fast_gaps.check(&plain_gaps, skipping.statistics(), &tokens_of(&skipping))?;
        let (s, hits) = (skipping.statistics(), skipping.hit_tokens());
        prop_assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
        let kv = s.kv.unwrap();
        prop_assert!(kv.used_max <= kv.blocks && kv.cached_blocks <= kv.blocks);
        prop_assert!(kv.counters.evicted_blocks <= kv.counters.registered_blocks);
        let [hits_seen, evicted, preempted, again] = seen.get();
        let found_again = skipping.details().iter().flat_map(|d| &d.stalls).map(|s| s.hit_tokens);
        seen.set([
            hits_seen + kv.counters.hit_tokens,
            evicted + kv.counters.evicted_blocks,
            preempted + kv.preemptions,
            again + found_again.sum::<u64>(),
        ]);
        if skipping.end() != RunEnd::Completed {
            return Ok(());
        }
        let kept = kv.counters.registered_blocks - kv.counters.evicted_blocks;
        prop_assert_eq!(kept, kv.cached_blocks);
        let (mut prompts, mut exact) = (0, true);
        for (i, (r, record)) in workload.requests().iter().zip(skipping.records()).enumerate() {
            if record.scheduled().is_some() {
                prop_assert!(hits[i] < r.input_tokens);
                prompts += r.input_tokens - hits[i];
            }
            let detail = skipping.details().iter().find(|d| d.position == i);
            let mut computed = record.prompt_done();
            for stall in detail.map(|d| d.stalls.as_slice()).unwrap_or_default() {
                // The last token of a decode has no KV yet; a prompt in progress may go again.
                let decoded = computed.is_some_and(|done| done <= stall.from);
                prompts += stall.recomputed_tokens() + u64::from(decoded);
                computed = stall.recomputed;
                exact &= stall.hit_tokens <= stall.lost_tokens;
            }
        }
        prop_assert!(!exact || prompts == s.prefill_tokens, "{} {}", prompts, s.prefill_tokens);
    });
}

/// How many cases: 300, or what `PROPTEST_CASES` says.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// A policy that decodes, prefills, looks up, preempts and evicts by a list of numbers.
#[derive(Clone, Debug)]
struct Whim {
    moods: Vec<u64>,
    step: usize,
    emits: bool,
    swaps: bool,
    reserve: Reserve,
}

impl Policy for Whim {
    fn name(&self) -> &'static str {
        "whim"
    }

    fn max_num_seqs(&self) -> u64 {
        7
    }

    fn prefill_emits_first_token(&self) -> bool {
        self.emits
    }

    fn reserve(&self) -> Reserve {
        self.reserve
    }

    fn preemption(&self) -> Preemption {
        if self.swaps {
            Preemption::Swap { per_token: Ticks::from_nanoseconds(1000) }
        } else {
            Preemption::Recompute
        }
    }

    fn prefix_caching(&self) -> bool {
        true
    }

    fn ran(&mut self, _: &StepWork, steps: u64) {
        self.step += usize::try_from(steps).unwrap();
    }

    fn fill(&mut self, step: &mut Step<'_>) -> sched_sim::Result<()> {
        let mood = self.moods[self.step % self.moods.len()];
        if mood.is_multiple_of(7) {
            step.make_free(mood);
        }
        step.make_room()?;
        if mood.is_multiple_of(11)
            && let Some(first) = step.running_after(None)
        {
            step.retract(first)?;
        }
        while step.swap_in() {}
        if !mood.is_multiple_of(3) && step.decode_blocks() <= step.free_blocks() {
            step.decode_all()?;
        }
        if self.reserve == Reserve::Chunk {
            let mut at = step.running_after(None);
            while let Some(p) = at {
                if step.stage(p) == Some(Stage::Prefill) {
                    // Without blocks it waits.
                    let _ = step.prefill(p, step.prompt_left(p).unwrap().min(mood));
                }
                at = step.running_after(Some(p));
            }
        } else {
            step.prefill_all(mood + 1)?;
        }
        while step.running() < self.max_num_seqs()
            && let Some(next) = step.next_waiting().filter(|next| !next.swapped)
        {
            let hit = if mood.is_multiple_of(5) { 0 } else { step.look_up().tokens };
            let tokens = (next.known_tokens - hit).min(mood);
            if tokens == 0 || !step.next_fits(tokens) {
                break;
            }
            step.admit(tokens)?;
        }
        Ok(())
    }
}

/// A request: its arrival in ms, the segments of its prompt, the tokens of its answer.
type Arrival<'a> = (u64, &'a [(u64, u64)], u64);

/// Runs requests with 10 ms a step and 1 ms a prompt token; one line each: start, first and last token in ms, tokens found, and the cache at the end.
fn run(policy: SgLang, settings: ServerSettings, rows: &[Arrival<'_>]) -> String {
    let requests = rows.iter().enumerate().map(|(i, &(ms, prompt, output))| {
        let at = format!("{ms}ms").parse().unwrap();
        let input = prompt.iter().map(|segment| segment.1).sum();
        let mut r = WorkloadRequest::new(i as u64, at, input, output);
        let mut content = PromptContent::new(prompt.to_vec());
        content.answer = Some(100 + i as u64);
        r.content = Some(Box::new(content));
        r
    });
    let workload = Workload::new(requests.collect()).unwrap();
    let step_time: Affine = "base=10ms,prefill=1ms/token".parse().unwrap();
    let plain = Simulation::new(&workload, policy, step_time).settings(settings);
    let result = Simulation::new(&workload, policy, step_time).settings(settings).run().unwrap();
    assert_eq!(result, plain.run_reference().unwrap());
    let mut text = String::new();
    for (i, r) in result.records().iter().enumerate() {
        let hit = result.hit_tokens().get(i).copied().unwrap_or_default();
        let ms = |t: Option<Ticks>| t.unwrap().seconds() * 1e3;
        let (start, first, last) = (ms(r.scheduled()), ms(r.first_token()), ms(r.last_token()));
        write!(text, "{i}: starts {start}, {hit} found, first token {first}, last {last}").unwrap();
        let detail = result.details().iter().find(|d| d.position == i);
        for s in detail.map(|d| d.stalls.as_slice()).unwrap_or_default() {
            let (from, back) = (ms(Some(s.from)), ms(s.readmitted));
            let (lost, hit) = (s.lost_tokens, s.hit_tokens);
            write!(text, "; out from {from} to {back}, loses {lost}, {hit} found").unwrap();
        }
        text.push('\n');
    }
    let kv = result.statistics().kv.unwrap();
    let c = kv.counters;
    writeln!(
        text,
        "{} of {} tokens found, {} blocks put in, {} evicted, {} cached",
        c.hit_tokens, c.queried_tokens, c.registered_blocks, c.evicted_blocks, kv.cached_blocks
    )
    .unwrap();
    text
}

/// Two requests share a system prompt of 30 tokens. 0: 40 tokens in 50 ms, and its 3 tokens at 50,
/// 60 and 70. 1 comes at 55 and waits for the step: at 60 the tree has the 40 tokens of 0, of which
/// 30 are its own as well. It computes 15 of 45 in 25 ms: TTFT 85 − 55 = 30 ms, instead of 60.
/// Meanwhile 0 waits, so that its last token comes at 95 with the second of 1.
///
/// In the tree: 40, then 15; at the end 0's answer but for its last token, 2, and 1's, 1: 58.
///
/// In blocks of 16, one of the 30 tokens is whole: 29 are computed in 39 ms. 0 has two whole blocks,
/// 1 one more.
#[test]
fn a_shared_system_prompt_is_computed_once() {
    let rows: [Arrival<'_>; 2] = [(0, &[(1, 30), (2, 10)], 3), (55, &[(1, 30), (3, 15)], 2)];
    let policy = SgLang::new(8, 100).unwrap();
    insta::assert_snapshot!(run(policy, pool(200, 1), &rows), @"
    0: starts 0, 0 found, first token 50, last 95
    1: starts 60, 30 found, first token 85, last 95
    30 of 85 tokens found, 58 blocks put in, 0 evicted, 58 cached
    ");
    insta::assert_snapshot!(run(policy.without_radix_cache(), pool(200, 1), &rows), @"
    0: starts 0, 0 found, first token 50, last 125
    1: starts 60, 0 found, first token 115, last 125
    0 of 0 tokens found, 0 blocks put in, 0 evicted, 0 cached
    ");
    insta::assert_snapshot!(run(policy, pool(13, 16), &rows), @"
    0: starts 0, 0 found, first token 50, last 109
    1: starts 60, 16 found, first token 99, last 109
    16 of 85 tokens found, 3 blocks put in, 0 evicted, 3 cached
    ");
}

/// The prompt of a request that comes again, alone: all but its last token is found, and 1 of 20 is
/// computed. In pages of 16 it is 16, and 4 are computed.
#[test]
fn a_prompt_computes_its_last_token_always() {
    let rows: [Arrival<'_>; 2] = [(0, &[(1, 20)], 1), (50, &[(1, 20)], 1)];
    let policy = SgLang::new(8, 100).unwrap();
    insta::assert_snapshot!(run(policy, pool(200, 1), &rows), @"
    0: starts 0, 0 found, first token 30, last 30
    1: starts 50, 19 found, first token 61, last 61
    19 of 40 tokens found, 20 blocks put in, 0 evicted, 20 cached
    ");
    insta::assert_snapshot!(run(policy, pool(13, 16), &rows), @"
    0: starts 0, 0 found, first token 30, last 30
    1: starts 50, 16 found, first token 64, last 64
    16 of 40 tokens found, 1 blocks put in, 0 evicted, 1 cached
    ");
}

/// A retracted request finds its own prompt again, and what nobody uses goes for it. 100 tokens of
/// memory, nothing expected of those who run. 0: 30 tokens, its first at 40; 1: 10 tokens from 40 to
/// 60. They store 40 then and two more in each step, so that at 360 nothing is free; both have 31
/// tokens, and the longer prompt goes. 0 loses 60, of which its prompt stays cached; the 30 that are
/// free are more than 20 for 1. It needs 31 + 29 + 1, and of the 59 that 1 leaves its prompt would
/// lock 30: it waits until 1 has all 50, at 550. It then computes 31 tokens in 41 ms, which gives its
/// 32nd token, and the last at 591 + 280.
///
/// In the tree: 30 and 10; 1's answer, 49; 31 and 28 of 0's: 148. At 550, 0 has 61, and 59 of 1 are
/// cached: the leaf, its answer, goes.
#[test]
fn a_retracted_request_finds_its_prompt_again() {
    let rows: [Arrival<'_>; 2] = [(0, &[(1, 30)], 60), (5, &[(2, 10)], 50)];
    let policy = SgLang::new(8, 100).unwrap().with_conservativeness(0.0).unwrap();
    insta::assert_snapshot!(run(policy, pool(100, 1), &rows), @"
    0: starts 0, 0 found, first token 40, last 871; out from 360 to 550, loses 60, 30 found
    1: starts 40, 0 found, first token 60, last 550
    30 of 101 tokens found, 148 blocks put in, 49 evicted, 99 cached
    ");
}

/// What an admission locks is not to be had for others. 100 tokens of memory, nothing expected of
/// those who run. 0 leaves its prompt of 40 cached at 50. 1 takes 40 from 50 on, and has two tokens
/// at 110, so that 59 are free or cached. 2 would compute 10, after the 40 of 0: it needs
/// 10 + 10 + 1, and 59 − 40 are fewer. It waits until 1 has all 10, at 190, and computes for 20 ms.
///
/// In the tree: 40, 40, 1's answer 9; 10 and 9 of 2's. The last 8 of its tokens find no room: the 9
/// go.
#[test]
fn a_prefix_that_is_locked_is_no_room() {
    let rows: [Arrival<'_>; 3] =
        [(0, &[(1, 40)], 1), (50, &[(2, 40)], 10), (105, &[(1, 40), (3, 10)], 10)];
    let policy = SgLang::new(8, 100).unwrap().with_conservativeness(0.0).unwrap();
    insta::assert_snapshot!(run(policy, pool(100, 1), &rows), @"
    0: starts 0, 0 found, first token 50, last 50
    1: starts 50, 0 found, first token 100, last 190
    2: starts 190, 40 found, first token 210, last 300
    40 of 130 tokens found, 108 blocks put in, 9 evicted, 99 cached
    ");
}
