//! vLLM's scheduler beyond the recorded traces: what it refuses, older releases, deeper pipelines.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use sched_sim::vllm_v1::{EngineVersion, NewRequest, Plan, QueuePolicy, Usage, VllmConfig, VllmV1};

fn sync(num_blocks: u64, max_model_len: u64) -> VllmConfig {
    let mut config = VllmConfig::new(num_blocks, max_model_len);
    config.async_scheduling = Some(false);
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 64;
    config
}

fn refused(config: VllmConfig) -> String {
    VllmV1::new(config).unwrap_err().to_string()
}

/// Id and tokens of every request of a step.
fn shares(plan: &Plan) -> Vec<(u64, u64)> {
    plan.rows().iter().map(|r| (r.id, r.tokens)).collect()
}

/// 400 tokens need 25 blocks of 16; of 25 blocks, one is the null block.
#[test]
fn a_kv_cache_below_one_request_is_refused_with_both_ways_out() {
    assert_eq!(
        refused(sync(25, 400)),
        "a request of max_model_len (400) tokens needs 25 blocks of 16 tokens, but the KV cache \
         has 24 besides the null block: lower max_model_len to 384, or raise num_blocks (--num-kv-blocks) to 26"
    );
    assert!(VllmV1::new(sync(26, 400)).is_ok());
    assert!(VllmV1::new(sync(25, 384)).is_ok());
    assert!(VllmV1::with_any_capacity(sync(25, 400)).is_ok());
}

#[test]
fn a_bad_configuration_is_refused_with_the_bound() {
    let with = |change: fn(&mut VllmConfig)| {
        let mut config = sync(101, 400);
        change(&mut config);
        refused(config)
    };
    for (change, message) in [
        (
            (|c| c.max_num_seqs = 65) as fn(&mut VllmConfig),
            "max_num_batched_tokens must be at least max_num_seqs, which is 65, got 64",
        ),
        (
            |c| c.enable_chunked_prefill = false,
            "without chunked prefill, max_num_batched_tokens must be at least max_model_len, \
             which is 400, got 64",
        ),
        (
            |c| c.max_num_active_seqs = Some(9),
            "max_num_active_seqs must be at most max_num_seqs, which is 8, got 9",
        ),
        (
            |c| c.long_prefill_token_threshold = 401,
            "long_prefill_token_threshold must be at most max_model_len, which is 400, got 401",
        ),
        (|c| c.watermark = 1.0, "watermark must be at least 0 and below 1, got 1"),
        (|c| c.watermark = f64::NAN, "watermark must be at least 0 and below 1, got NaN"),
        (|c| c.max_num_seqs = 0, "max_num_seqs must be at least 1, got 0"),
        (|c| c.block_size = 0, "block_size must be at least 1, got 0"),
        (
            |c| c.engine_version = EngineVersion::new(0, 34, 0),
            "engine_version must be 0.8.5 to 0.33.0, got 0.34.0",
        ),
        (
            |c| {
                c.engine_version = EngineVersion::new(0, 19, 0);
                c.watermark = 0.01;
            },
            "watermark needs engine_version 0.24.0 or later, got 0.19.0",
        ),
        (
            |c| {
                c.engine_version = EngineVersion::new(0, 30, 0);
                c.max_num_active_seqs = Some(4);
            },
            "max_num_active_seqs needs engine_version 0.31.0 or later, got 0.30.0",
        ),
    ] {
        assert_eq!(with(change), message);
    }
    let mut config = sync(1, 400);
    config.num_blocks = 1;
    assert_eq!(
        refused(config),
        "num_blocks must be at least 2, the null block and one to use, got 1"
    );
}

#[test]
fn a_prompt_that_leaves_no_room_for_an_answer_is_refused() {
    let mut vllm = VllmV1::new(sync(101, 400)).unwrap();
    let mut refused = |id, prompt: u64, output| {
        vllm.add_request(&NewRequest::new(id, &[(id, prompt)], 1000 + id, output))
            .map_err(|e| e.to_string())
    };

    assert_eq!(
        refused(7, 400, 1).unwrap_err(),
        "the prompt of request 7 must be shorter than max_model_len, which is 400, to leave room \
         for one token of the answer; got 400 tokens"
    );
    assert_eq!(
        refused(7, 0, 1).unwrap_err(),
        "the prompt of request 7 must have at least 1 token, got 0"
    );
    assert_eq!(refused(7, 1, 0).unwrap_err(), "max_tokens of request 7 must be at least 1, got 0");
    assert_eq!(refused(7, 399, 1), Ok(()));
    assert_eq!(refused(7, 1, 1).unwrap_err(), "request ids must differ: 7 is not over");
    assert!(vllm.abort(7).is_some());
    assert!(vllm.abort(7).is_none());
    assert!(!vllm.has_unfinished());
}

#[test]
fn versions_are_read_and_compared_number_by_number() {
    let version = |s: &str| s.parse::<EngineVersion>();
    assert!(version("0.8.5").unwrap() < version("0.11.0").unwrap());
    assert_eq!(version("0.33.0").unwrap().to_string(), "0.33.0");
    for bad in ["0.33", "v0.33.0", "0.33.0.1", "", "0.33.x"] {
        assert!(version(bad).unwrap_err().to_string().contains("0.33.0"), "{bad}");
    }
}

#[test]
fn defaults_follow_the_release_and_the_gpu() {
    let mut config = VllmConfig::new(10_001, 4096);
    assert!(config.is_async() && config.reserves_full_isl());
    config.engine_version = EngineVersion::new(0, 19, 0);
    assert!(config.is_async() && !config.reserves_full_isl());
    config.engine_version = EngineVersion::new(0, 11, 0);
    assert!(!config.is_async() && !config.reserves_full_isl());

    let limits = |gib, a100, usage, max_model_len, chunked| {
        let mut config = VllmConfig::new(10_001, max_model_len);
        config.enable_chunked_prefill = chunked;
        let config = config.with_gpu_defaults(gib, a100, usage);
        (config.max_num_batched_tokens, config.max_num_seqs)
    };
    assert_eq!(limits(80.0, false, Usage::ApiServer, 4096, true), (8192, 1024));
    assert_eq!(limits(80.0, true, Usage::ApiServer, 4096, true), (2048, 256));
    assert_eq!(limits(80.0, true, Usage::Offline, 4096, true), (8192, 256));
    assert_eq!(limits(180.0, false, Usage::ApiServer, 4096, true), (16_384, 1024));
    assert_eq!(limits(24.0, false, Usage::ApiServer, 4096, false), (4096, 256));
    assert_eq!(limits(24.0, false, Usage::ApiServer, 4, true), (1024, 256));
}

/// 10 usable blocks of 16. A request of 100 tokens holds 4 blocks after its first step of 64
/// tokens; another of 100 needs 7 for all it knows, but 6 are free. It is let in by the room of
/// its first chunk in releases before the full-sequence check.
#[test]
fn an_older_release_admits_by_the_first_chunk_alone() {
    let admitted = |version: EngineVersion| {
        let mut config = sync(11, 150);
        config.engine_version = version;
        config.max_num_batched_tokens = 96;
        config.long_prefill_token_threshold = 64;
        let mut vllm = VllmV1::new(config).unwrap();
        for id in [1, 2] {
            vllm.add_request(&NewRequest::new(id, &[(id, 100)], 1000 + id, 5)).unwrap();
        }
        shares(&vllm.schedule())
    };

    assert_eq!(admitted(EngineVersion::V0_33_0), [(1, 64)]);
    assert_eq!(admitted(EngineVersion::new(0, 19, 0)), [(1, 64), (2, 32)]);
}

/// A prompt of 100 tokens alone, capped at 30 by the threshold before 0.31.0.
#[test]
fn a_lone_request_was_capped_before_0_31() {
    let first_chunk = |version: EngineVersion| {
        let mut config = sync(101, 400);
        config.engine_version = version;
        config.long_prefill_token_threshold = 30;
        let mut vllm = VllmV1::new(config).unwrap();
        vllm.add_request(&NewRequest::new(1, &[(1, 100)], 1000, 5)).unwrap();
        shares(&vllm.schedule())
    };

    assert_eq!(first_chunk(EngineVersion::V0_33_0), [(1, 64)]);
    assert_eq!(first_chunk(EngineVersion::new(0, 30, 0)), [(1, 30)]);
}

/// Two blocks of 16, and two requests that fill one each when step 2 begins. The first in the list
/// has the worse priority and displaces itself; the other one takes its block, in the same step
/// from 0.33.0 on and one step later before.
#[test]
fn after_a_self_preemption_the_priority_pass_goes_on_since_0_33() {
    let third_step = |version: EngineVersion| {
        let mut config = sync(3, 32);
        config.engine_version = version;
        config.policy = QueuePolicy::Priority;
        let mut vllm = VllmV1::new(config).unwrap();
        for (id, prompt, priority) in [(1, 15, 5), (2, 16, 0)] {
            let prompt = [(id, prompt)];
            let mut request = NewRequest::new(id, &prompt, 1000 + id, 9);
            request.priority = priority;
            vllm.add_request(&request).unwrap();
            let plan = vllm.schedule();
            vllm.update_from_output(plan);
        }
        let plan = vllm.schedule();
        assert_eq!(plan.preempted(), [1]);
        shares(&plan)
    };

    assert_eq!(third_step(EngineVersion::V0_33_0), [(2, 1)]);
    assert_eq!(third_step(EngineVersion::new(0, 32, 0)), []);
}

/// With three steps in flight, a request can be at the head of the queue while output of before
/// its preemption is on its way. It is passed over and keeps its place.
///
/// Three blocks, each filled by a prompt; in step 1 request 1 takes the block of 3, and 2 has to
/// go too. Its block is free for request 4.
#[test]
fn a_request_with_output_on_its_way_is_passed_over() {
    let mut config = sync(4, 48);
    config.async_scheduling = Some(true);
    let mut vllm = VllmV1::new(config).unwrap();
    let add = |vllm: &mut VllmV1, id: u64, prompt| {
        vllm.add_request(&NewRequest::new(id, &[(id, prompt)], 1000 + id, 3)).unwrap();
    };
    for id in [1, 2, 3] {
        add(&mut vllm, id, 16);
    }
    let steps = [vllm.schedule(), vllm.schedule()];
    assert_eq!(shares(&steps[0]), [(1, 16), (2, 16), (3, 16)]);
    assert_eq!(shares(&steps[1]), [(1, 1)]);
    assert_eq!(steps[1].preempted(), [3, 2]);
    add(&mut vllm, 4, 5);

    let third = vllm.schedule();

    assert_eq!(shares(&third), [(1, 1), (4, 5)]);
    assert_eq!(vllm.num_waiting(), 2);
    // Both get the token that was on its way, and come back in their old order.
    for plan in steps {
        vllm.update_from_output(plan);
    }
    assert_eq!((vllm.progress(2), vllm.progress(3)), (Some((1, 1)), Some((1, 1))));
    vllm.update_from_output(third);
    // 16 tokens and the one delivered: request 4 has its block.
    assert_eq!(shares(&vllm.schedule()).last(), Some(&(2, 17)));
}

/// Prompts of 100 and 20 tokens in steps of 64. Step 1 computes 64 of the first; step 2 its other
/// 36 and all 20 of the second; step 3 decodes both, which have 101 and 21 tokens by then.
#[test]
fn a_plan_says_what_its_step_processes() {
    let mut vllm = VllmV1::new(sync(101, 400)).unwrap();
    for (id, prompt) in [(1, 100), (2, 20)] {
        vllm.add_request(&NewRequest::new(id, &[(id, prompt)], 1000 + id, 5)).unwrap();
    }
    let mut works = Vec::new();
    for _ in 0..3 {
        let plan = vllm.schedule();
        works.push((plan.work(), plan.tokens(), plan.context()));
        vllm.update_from_output(plan);
    }
    let numbers: Vec<_> = works
        .iter()
        .map(|(w, ..)| (w.prefills, w.prefill_tokens, w.decodes, w.decode_context))
        .collect();

    assert_eq!(numbers, [(1, 64, 0, 0), (2, 56, 0, 0), (0, 0, 2, 122)]);
    // 2 · (64² / 2), and 2 · (36 · 64 + 36² / 2 + 20² / 2).
    assert_eq!(works[0].0.attention_doubled, 4096);
    assert_eq!(works[1].0.attention_doubled, 4608 + 1296 + 400);
    assert_eq!(
        works.iter().map(|w| (w.1, w.2)).collect::<Vec<_>>(),
        [(64, 64), (56, 120), (2, 122)]
    );
}

/// Counters of a run with a hit and a preemption, next to what the plans said.
#[test]
fn counters_agree_with_the_plans() {
    let mut vllm = VllmV1::new(sync(12, 160)).unwrap();
    for (id, prompt) in [(1, vec![(1, 50)]), (2, vec![(2, 60)]), (3, vec![(1, 32), (3, 10)])] {
        vllm.add_request(&NewRequest::new(id, &prompt, 1000 + id, 40)).unwrap();
    }
    let (mut tokens, mut steps, mut hits, mut preemptions, mut finished) = (0, 0, 0, 0, 0);
    while vllm.has_unfinished() {
        let plan = vllm.schedule();
        tokens += plan.rows().iter().map(|r| r.tokens).sum::<u64>();
        hits += plan.admissions().iter().map(|r| r.computed).sum::<u64>();
        preemptions += plan.preempted().len() as u64;
        steps += 1;
        finished += vllm.update_from_output(plan).finished.len();
        assert!(vllm.kv_cache().books_balance());
    }
    let counters = vllm.counters();

    assert_eq!(finished, 3);
    assert!(preemptions > 0 && hits > 0, "{counters:?}");
    assert_eq!(counters.scheduled_tokens, tokens);
    assert_eq!(counters.executed_steps, steps);
    assert_eq!(counters.kv.hit_tokens, hits);
    assert_eq!(counters.preemptions, preemptions);
    assert_eq!(counters.kv.lookups, 3 + preemptions);
    assert!(counters.kv.failed_allocations >= preemptions);
    assert!(counters.kv.refilled_blocks <= counters.kv.evicted_blocks);
    assert_eq!(vllm.kv_cache().books().used, 0);
}
