//! Memory of a model and bounds of a GPU, against engines' own numbers and against each other.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use metrics_core::kv_pool::KvPool;
use metrics_core::model::{
    Attention, KvShape, LayerGroup, ModelFields, ModelShape, full_length_concurrency, kv_blocks,
    kv_bytes_per_token, kv_tokens, mla_kv_bytes_per_token, weights_bytes,
};
use metrics_core::roofline::{
    arithmetic_intensity, decode_arithmetic_intensity, decode_step_time_lower_bound, kv_step_bytes,
    kv_step_time_lower_bound, prefill_time_lower_bound, ridge_point,
};
use metrics_core::units::{
    Bytes, BytesPerSecond, BytesPerToken, Flop, FlopPerByte, FlopPerSecond, Requests, Tokens,
};
use metrics_core::{Error, Seconds};
use proptest::prelude::*;

const GIB: f64 = 1_073_741_824.0;
const LARGEST_EXACT: u64 = 1 << 53;

fn message<T: std::fmt::Debug>(result: metrics_core::Result<T>) -> String {
    result.unwrap_err().to_string()
}

fn gib(x: f64) -> Bytes {
    Bytes::new(x * GIB).unwrap()
}

fn model(layer_groups: Vec<LayerGroup>) -> ModelFields {
    ModelFields {
        params: 8_030_261_248,
        active_params: None,
        weight_dtype_bytes: 2.0,
        layer_groups,
    }
}

fn group(layers: u64, attention: Attention, dtype_bytes: f64) -> LayerGroup {
    LayerGroup { layers, attention, dtype_bytes }
}

fn gqa(kv_heads: u64, head_dim: u64) -> Attention {
    Attention::Gqa { kv_heads, head_dim, heads: None }
}

/// 16 GiB over 2 · 28 · 4 · 128 · 2 B = 57,344 B a token, 16 tokens a block: 18,724.57 blocks.
#[test]
fn a_pool_holds_whole_blocks_only() {
    let per_token = kv_bytes_per_token(28, 4, 128, 2.0).unwrap();
    assert_eq!(kv_blocks(gib(16.0), per_token, 16), Ok(18_724));
    assert_eq!(kv_tokens(gib(16.0), per_token, 16), Ok(299_584));
}

/// Pools that vLLM printed with two decimals, and the blocks beside them (vllm-project/vllm#10517,
/// 32 layers, 8 KV heads of 128, two bytes). Half a unit of the last decimal is 0.13 to 0.17 %.
#[test]
fn blocks_agree_with_printed_pools() {
    let per_token = kv_bytes_per_token(32, 8, 128, 2.0).unwrap();
    for (pool, printed) in [(3.81, 1952.0), (2.89, 1478.0)] {
        let blocks = kv_blocks(gib(pool), per_token, 16).unwrap() as f64;
        let (low, high) = (pool - 0.005, pool + 0.005);
        let block = per_token.get() * 16.0 / GIB;
        assert!((blocks - printed).abs() <= 0.002 * printed, "{pool} GiB: {blocks} blocks");
        assert!(low / block - 1.0 <= printed && printed <= high / block, "{pool} GiB");
    }
}

/// What vLLM printed as maximum concurrency (vllm-project/vllm#12569 and #13596), two decimals.
#[test]
fn full_length_concurrency_is_what_vllm_prints() {
    for (blocks, printed) in [(1_381, 10.79), (127_626, 997.08)] {
        let fits = full_length_concurrency(blocks, 16, 2_048).unwrap().get();
        assert!((fits - printed).abs() <= 0.005, "{blocks} blocks: {fits}");
    }
    // A request of 17 tokens takes two blocks of 16 whole.
    assert_eq!(full_length_concurrency(10, 16, 17), Requests::new(5.0));
    assert_eq!(full_length_concurrency(10, 16, 16), Requests::new(10.0));
    assert_eq!(full_length_concurrency(0, 16, 16), Ok(Requests::ZERO));
}

/// 16 of 64 layers with full attention, 4 KV heads of 256, one byte: 302,921 tokens were reported as
/// 9.24 GiB (mitchross/talos-argocd-proxmox#1995), which all 64 layers would miss four times over.
#[test]
fn a_hybrid_model_counts_only_layers_with_a_cache() {
    let full = group(16, gqa(4, 256), 1.0);
    let linear = group(48, Attention::NoKv, 1.0);
    let hybrid = ModelShape::new(model(vec![full, linear])).unwrap();
    let held = hybrid.kv().bytes(302_921).unwrap().get() / GIB;
    assert!((held - 9.24).abs() <= 0.005, "{held} GiB");

    let naive = ModelShape::new(model(vec![group(64, gqa(4, 256), 1.0)])).unwrap();
    assert!((naive.kv().bytes(302_921).unwrap().get() / GIB / held - 4.0).abs() < 1e-12);
}

/// DeepSeek-V3: 61 · (512 + 64) · 2 B; as if it kept 128 heads of 128 it would be 57 times as much.
#[test]
fn latent_attention_has_neither_heads_nor_a_factor_two() {
    let mla = Attention::Mla { kv_lora_rank: 512, qk_rope_head_dim: 64 };
    let shape = ModelShape::new(model(vec![group(61, mla, 2.0)])).unwrap();
    assert_eq!(shape.kv().bytes_per_token(), BytesPerToken::new(70_272.0).unwrap());
    assert_eq!(mla_kv_bytes_per_token(61, 512, 64, 2.0), BytesPerToken::new(70_272.0));
    assert_eq!(mla_kv_bytes_per_token(61, 512, 0, 1.0), BytesPerToken::new(31_232.0));
}

/// Five layers with a window of 1,024 to one without (Gemma 3's ratio), 256 B a token and layer.
#[test]
fn short_requests_fill_windows_and_long_ones_do_not() {
    let window = Attention::SlidingWindow { kv_heads: 1, head_dim: 64, window: 1_024 };
    let shape =
        ModelShape::new(model(vec![group(1, gqa(1, 64), 2.0), group(5, window, 2.0)])).unwrap();
    assert_eq!(shape.kv().bytes_per_token(), BytesPerToken::new(256.0).unwrap());
    assert_eq!(shape.kv().bytes(0), Ok(Bytes::ZERO));
    assert_eq!(shape.kv().bytes(1_024), Bytes::new(6.0 * 256.0 * 1_024.0));
    // One token past the window costs the full layer only.
    assert_eq!(shape.kv().bytes(1_025), Bytes::new(6.0 * 256.0 * 1_024.0 + 256.0));
    assert!(shape.kv().bytes(LARGEST_EXACT).is_ok());
    assert!(matches!(shape.kv().bytes(LARGEST_EXACT + 1), Err(Error::TooLarge { .. })));
}

/// A product that `f64` could not hold exactly is an error on its far side, exact on the near one.
#[test]
fn absurd_products_are_errors() {
    let largest = BytesPerToken::new(LARGEST_EXACT as f64);
    assert_eq!(kv_bytes_per_token(1, 1, LARGEST_EXACT / 2, 1.0), largest);
    assert_eq!(
        message(kv_bytes_per_token(1, 1, LARGEST_EXACT / 2 + 1, 1.0)),
        "kv bytes per token must be at most 9007199254740992, got 9007199254740994"
    );
    assert_eq!(mla_kv_bytes_per_token(1, LARGEST_EXACT - 64, 64, 1.0), largest);
    assert!(mla_kv_bytes_per_token(2, LARGEST_EXACT - 64, 64, 1.0).is_err());
    assert_eq!(weights_bytes(LARGEST_EXACT / 2, 2.0), Bytes::new(LARGEST_EXACT as f64));
    assert!(weights_bytes(LARGEST_EXACT, 2.0).is_err());
    for (layers, heads, dim) in [(u64::MAX, 1, 1), (1, u64::MAX, 1), (1, 1, u64::MAX)] {
        assert!(matches!(kv_bytes_per_token(layers, heads, dim, 0.5), Err(Error::TooLarge { .. })));
    }
    assert!(matches!(weights_bytes(u64::MAX, 0.5), Err(Error::TooLarge { .. })));
    // Each group passes alone; together they do not.
    let half = group(1, gqa(1, LARGEST_EXACT / 4), 1.0);
    assert!(ModelShape::new(model(vec![half, half])).is_ok());
    assert!(ModelShape::new(model(vec![half, half, group(1, gqa(1, 1), 1.0)])).is_err());
}

#[test]
fn every_count_and_size_has_both_bounds() {
    assert_eq!(message(kv_bytes_per_token(0, 1, 1, 2.0)), "layers must be at least 1, got 0");
    assert_eq!(message(kv_bytes_per_token(1, 0, 1, 2.0)), "kv_heads must be at least 1, got 0");
    assert_eq!(message(kv_bytes_per_token(1, 1, 0, 2.0)), "head_dim must be at least 1, got 0");
    assert_eq!(kv_bytes_per_token(1, 1, 1, 2.0), BytesPerToken::new(4.0));
    assert_eq!(message(kv_bytes_per_token(1, 1, 1, 0.0)), "dtype_bytes must be above 0, got 0");
    assert_eq!(kv_bytes_per_token(1, 1, 1, 0.5), BytesPerToken::new(1.0));
    assert_eq!(
        message(kv_bytes_per_token(1, 1, 1, 17.0)),
        "dtype_bytes must be at most 16, got 17"
    );
    assert_eq!(kv_bytes_per_token(1, 1, 1, 16.0), BytesPerToken::new(32.0));
    assert!(matches!(kv_bytes_per_token(1, 1, 1, f64::NAN), Err(Error::NotFinite { .. })));
    assert_eq!(
        message(mla_kv_bytes_per_token(1, 0, 64, 2.0)),
        "kv_lora_rank must be at least 1, got 0"
    );
    assert_eq!(message(weights_bytes(0, 2.0)), "n_params must be at least 1, got 0");

    let (pool, per_token) = (gib(1.0), BytesPerToken::new(1_024.0).unwrap());
    assert_eq!(
        message(kv_blocks(pool, BytesPerToken::ZERO, 16)),
        "bytes_per_token must be above 0, got 0"
    );
    assert_eq!(message(kv_blocks(pool, per_token, 0)), "block_size must be at least 1, got 0");
    assert_eq!(kv_blocks(pool, per_token, 1), Ok(1 << 20));
    // One byte short of a block holds none.
    assert_eq!(kv_blocks(Bytes::new(1_023.0).unwrap(), per_token, 1), Ok(0));
    assert_eq!(kv_blocks(Bytes::new(1_024.0).unwrap(), per_token, 1), Ok(1));
    let sliver = BytesPerToken::new(1e-9).unwrap();
    assert!(matches!(kv_blocks(pool, sliver, 1), Err(Error::TooLarge { .. })));
    assert!(matches!(kv_tokens(pool, sliver, 1), Err(Error::TooLarge { .. })));

    assert_eq!(message(full_length_concurrency(8, 0, 16)), "block_size must be at least 1, got 0");
    assert_eq!(
        message(full_length_concurrency(8, 16, 0)),
        "max_model_len must be at least 1, got 0"
    );
    assert!(full_length_concurrency(LARGEST_EXACT + 1, 16, 1).is_err());
}

#[test]
fn a_shape_is_checked_once_when_made() {
    let refused = |fields: ModelFields| message(ModelShape::new(fields));
    assert_eq!(refused(model(vec![])), "layer_groups must hold at least one group, got none");
    assert_eq!(
        refused(model(vec![group(0, Attention::NoKv, 2.0)])),
        "layers must be at least 1, got 0"
    );
    assert_eq!(
        refused(model(vec![group(1, Attention::NoKv, 0.0)])),
        "dtype_bytes must be above 0, got 0"
    );
    let window = Attention::SlidingWindow { kv_heads: 1, head_dim: 64, window: 0 };
    assert_eq!(refused(model(vec![group(1, window, 2.0)])), "window must be at least 1, got 0");
    let uneven = Attention::Gqa { kv_heads: 8, head_dim: 128, heads: Some(12) };
    assert_eq!(
        refused(model(vec![group(1, uneven, 2.0)])),
        "heads must be a multiple of kv_heads = 8, got 12"
    );
    let headless = Attention::Gqa { kv_heads: 8, head_dim: 128, heads: Some(0) };
    assert!(ModelShape::new(model(vec![group(1, headless, 2.0)])).is_err());
    let even = Attention::Gqa { kv_heads: 8, head_dim: 128, heads: Some(8) };
    let fields = model(vec![group(1, even, 2.0)]);
    assert!(ModelShape::new(fields.clone()).is_ok());

    let active = |n| ModelFields { active_params: Some(n), ..fields.clone() };
    assert_eq!(refused(active(0)), "active_params must be at least 1, got 0");
    assert_eq!(ModelShape::new(active(8_030_261_248)).unwrap().active_params(), 8_030_261_248);
    assert_eq!(
        refused(active(8_030_261_249)),
        "params must be at least active_params = 8030261249, got 8030261248"
    );
    let dense = ModelShape::new(fields.clone()).unwrap();
    assert_eq!((dense.params(), dense.active_params()), (8_030_261_248, 8_030_261_248));
    assert_eq!(dense.weights(), Bytes::new(16_060_522_496.0).unwrap());
    assert_eq!(dense.kv().layer_groups(), fields.layer_groups);
    assert!(ModelShape::new(ModelFields { params: 0, ..fields }).is_err());
}

/// A shape is read with the same checks as it is made, and written as it was read.
#[test]
fn json_goes_through_the_same_checks() {
    let text = r#"{
        "params": 1000,
        "weight_dtype_bytes": 2.0,
        "layer_groups": [
            {"layers": 2, "attention": {"gqa": {"kv_heads": 2, "head_dim": 8}}, "dtype_bytes": 1.0},
            {"layers": 6, "attention": "no_kv", "dtype_bytes": 1.0}
        ]
    }"#;
    let shape: ModelShape = serde_json::from_str(text).unwrap();
    assert_eq!(shape.kv().bytes_per_token(), BytesPerToken::new(64.0).unwrap());
    let back: ModelShape = serde_json::from_str(&serde_json::to_string(&shape).unwrap()).unwrap();
    assert_eq!(back, shape);

    let refused = |from: &str, to: &str| {
        assert!(text.contains(from));
        serde_json::from_str::<ModelShape>(&text.replace(from, to)).unwrap_err().to_string()
    };
    assert_eq!(refused("\"layers\": 2", "\"layers\": 0"), "layers must be at least 1, got 0");
    assert!(refused("\"params\"", "\"parameters\"").starts_with("unknown field `parameters`"));
    assert!(refused("kv_heads", "num_kv_heads").starts_with("unknown field `num_kv_heads`"));
    assert!(refused("no_kv", "mamba").starts_with("unknown variant `mamba`"));
    assert!(refused("\"layers\": 2", "\"layers\": -2").contains("invalid value"));
}

/// The source's worked value: 8 · 131,072 B · 4,096 = 4 GiB, at 1 GiB/s.
#[test]
fn a_step_reads_four_gibibytes_in_four_seconds() {
    let (batch, tokens) = (Requests::new(8.0).unwrap(), Tokens::new(4_096.0).unwrap());
    let per_token = kv_bytes_per_token(32, 8, 128, 2.0).unwrap();
    assert_eq!(kv_step_bytes(batch, per_token, tokens), Bytes::new(4_294_967_296.0));
    let time = |bandwidth| kv_step_time_lower_bound(batch, per_token, tokens, bandwidth);
    assert_eq!(time(BytesPerSecond::new(GIB).unwrap()), Seconds::new(4.0));
    assert_eq!(message(time(BytesPerSecond::ZERO)), "memory_bandwidth must be above 0, got 0");
    let huge = Requests::new(1e100).unwrap();
    assert!(matches!(kv_step_bytes(huge, per_token, tokens), Err(Error::TooLarge { .. })));
}

/// Llama 3 8B in bf16 at batch 1 and 1,024 tokens on an H100 (InternLM/lmdeploy#1608): everything but
/// the embedding table of 128,256 · 4,096 is read once. The reported bound is 4.52 ms, the measured
/// step of vLLM 8.66 ms.
#[test]
fn a_measured_decode_step_is_above_its_bound() {
    let read = weights_bytes(8_030_261_248 - 128_256 * 4_096, 2.0).unwrap();
    let per_token = kv_bytes_per_token(32, 8, 128, 2.0).unwrap();
    let kv = per_token * Tokens::new(1_024.0).unwrap();
    let bandwidth = BytesPerSecond::new(3.35e12).unwrap();
    let bound = decode_step_time_lower_bound(read, kv, bandwidth).unwrap().as_millis();
    assert!((bound - 4.52).abs() <= 0.005, "{bound} ms");
    assert!(bound < 8.66);
    assert_eq!(
        message(decode_step_time_lower_bound(read, kv, BytesPerSecond::ZERO)),
        "memory_bandwidth must be above 0, got 0"
    );
}

/// An 8k prompt of an 8B model on an H100 (989 TFLOP/s dense bf16): datasheet floor 113 ms, measured
/// kernels 194 ms, a public simulator 66 ms.
///
/// 113 ms are 8,000 tokens through the matrices of the 32 layers (4,096 · (2 · 4,096 + 2 · 1,024 +
/// 3 · 14,336) each), without embedding table and output head, and without attention. Causal
/// attention adds 4 · 32 layers · 4,096 · T² / 2, 17 ms at 8,000 tokens. All 8.03 · 10^9 parameters
/// would give 130 ms without it: embedding and head taken for work that most tokens do not cause.
#[test]
fn the_datasheet_floor_of_an_8k_prompt_rules_out_a_wrong_simulator() {
    let matrices = 32 * 4_096 * (2 * 4_096 + 2 * 1_024 + 3 * 14_336);
    let peak = FlopPerSecond::new(989e12).unwrap();
    let floor = prefill_time_lower_bound(matrices, 8_000, peak).unwrap().as_millis();
    assert!((floor - 113.0).abs() <= 0.5, "{floor} ms");
    assert!(66.0 < floor && floor < 194.0);
    // With 8,192 tokens and attention the floor is higher still, and still below the measurement.
    let longer = prefill_time_lower_bound(matrices, 8_192, peak).unwrap();
    let attention = Flop::new(4.0 * 32.0 * 4_096.0 * 8_192.0_f64.powi(2) / 2.0).unwrap();
    let with_attention = (longer + (attention / peak).unwrap()).as_millis();
    assert!(floor < with_attention && with_attention < 194.0, "{with_attention} ms");

    assert_eq!(message(prefill_time_lower_bound(0, 1, peak)), "n_params must be at least 1, got 0");
    assert_eq!(
        message(prefill_time_lower_bound(1, 1, FlopPerSecond::ZERO)),
        "peak_flops must be above 0, got 0"
    );
    assert_eq!(prefill_time_lower_bound(1, 0, peak), Ok(Seconds::ZERO));
}

#[test]
fn intensity_needs_bytes_and_a_ridge_needs_both_rates() {
    let (peak, bandwidth) = (FlopPerSecond::new(1e15).unwrap(), BytesPerSecond::new(4e12).unwrap());
    assert_eq!(
        message(arithmetic_intensity(Flop::new(1.0).unwrap(), Bytes::ZERO)),
        "bytes must be above 0, got 0"
    );
    assert_eq!(arithmetic_intensity(Flop::ZERO, Bytes::new(1.0).unwrap()), Ok(FlopPerByte::ZERO));
    assert_eq!(ridge_point(peak, bandwidth), FlopPerByte::new(250.0));
    assert_eq!(
        message(ridge_point(FlopPerSecond::ZERO, bandwidth)),
        "peak_flops must be above 0, got 0"
    );
    assert_eq!(
        message(ridge_point(peak, BytesPerSecond::ZERO)),
        "memory_bandwidth must be above 0, got 0"
    );
    let batch = Requests::new(1.0).unwrap();
    assert_eq!(
        message(decode_arithmetic_intensity(1, batch, Bytes::ZERO, Bytes::ZERO)),
        "m_weights + m_kv_step must be above 0, got 0"
    );
    let byte = Bytes::new(1.0).unwrap();
    assert_eq!(decode_arithmetic_intensity(1, batch, byte, Bytes::ZERO), FlopPerByte::new(2.0));
    assert_eq!(
        message(decode_arithmetic_intensity(0, batch, byte, byte)),
        "n_params must be at least 1, got 0"
    );
}

/// bf16 weights alone give one FLOP a byte and request. With 2,048 tokens of 128 KiB each, a request
/// adds 256 MiB to what a step reads, so that no batch passes 2 · N / 256 MiB.
#[test]
fn a_larger_batch_stops_helping_where_kv_dominates() {
    let n = 8_000_000_000;
    let weights = weights_bytes(n, 2.0).unwrap();
    let intensity = |batch: f64, cached: f64| {
        let batch = Requests::new(batch).unwrap();
        let per_token = BytesPerToken::new(131_072.0).unwrap();
        let kv = kv_step_bytes(batch, per_token, Tokens::new(cached).unwrap()).unwrap();
        decode_arithmetic_intensity(n, batch, weights, kv).unwrap().get()
    };
    assert!((intensity(64.0, 0.0) - 64.0).abs() < 1e-9);
    let ceiling = 2.0 * 8e9 / (256.0 * 1_048_576.0);
    assert!((intensity(1e9, 2_048.0) / ceiling - 1.0).abs() < 1e-6);
    assert!(intensity(64.0, 2_048.0) < ceiling);
}

prop_compose! {
    fn plain_group()(
        layers in 1..100_u64,
        kv_heads in 1..64_u64,
        head_dim in 1..512_u64,
        dtype_bytes in prop::sample::select(vec![0.5, 0.5625, 1.0, 2.0, 4.0]),
    ) -> (u64, u64, u64, f64) {
        (layers, kv_heads, head_dim, dtype_bytes)
    }
}

proptest! {
    /// Fewer KV heads, fewer bytes: MQA ≤ GQA ≤ MHA, with equality at one group and at one head each.
    #[test]
    fn grouped_query_lies_between_its_ends(
        (layers, kv_heads, head_dim, dtype_bytes) in plain_group(),
        share in 1..16_u64,
    ) {
        let heads = kv_heads * share;
        let bytes = |attention| group(layers, attention, dtype_bytes).kv_bytes_per_token();
        let mha = bytes(Attention::Mha { heads, head_dim })?;
        let gqa = bytes(Attention::Gqa { kv_heads, head_dim, heads: Some(heads) })?;
        let mqa = bytes(Attention::Mqa { head_dim })?;
        prop_assert!(mqa <= gqa && gqa <= mha);
        prop_assert_eq!(gqa == mha, share == 1);
        prop_assert_eq!(gqa == mqa, kv_heads == 1);
        let all = Attention::Gqa { kv_heads: heads, head_dim, heads: Some(heads) };
        prop_assert_eq!(bytes(all)?, mha);
    }

    /// A window holds no more than full attention, the same while it is not full, and never shrinks.
    #[test]
    fn a_window_is_full_attention_until_it_is_full(
        (layers, kv_heads, head_dim, dtype_bytes) in plain_group(),
        window in 1..10_000_u64,
        tokens in 0..20_000_u64,
    ) {
        let shape = |attention| ModelShape::new(model(vec![group(layers, attention, dtype_bytes)]));
        let sliding = shape(Attention::SlidingWindow { kv_heads, head_dim, window })?;
        let full = shape(gqa(kv_heads, head_dim))?;
        prop_assert!(sliding.kv().bytes(tokens)? <= full.kv().bytes(tokens)?);
        prop_assert_eq!(sliding.kv().bytes(tokens)? == full.kv().bytes(tokens)?, tokens <= window);
        prop_assert!(sliding.kv().bytes(tokens)? <= sliding.kv().bytes(tokens + 1)?);
        prop_assert_eq!(sliding.kv().bytes_per_token(), BytesPerToken::ZERO);
    }

    /// Splitting a group in two, in any order, changes nothing.
    #[test]
    fn groups_add_up(
        (layers, kv_heads, head_dim, dtype_bytes) in plain_group(),
        more in 1..100_u64,
        tokens in 0..1_000_000_u64,
    ) {
        let of = |layers| group(layers, gqa(kv_heads, head_dim), dtype_bytes);
        let whole = ModelShape::new(model(vec![of(layers + more)]))?;
        let split = ModelShape::new(model(vec![of(more), of(layers)]))?;
        prop_assert_eq!(whole.kv().bytes_per_token(), split.kv().bytes_per_token());
        prop_assert_eq!(whole.kv().bytes(tokens)?, split.kv().bytes(tokens)?);
        prop_assert_eq!(whole.kv().bytes(tokens)?, whole.kv().bytes_per_token() * Tokens::new(tokens as f64)?);
    }

    /// Blocks by whole numbers, per layer first as vLLM divides: pool // page // layers; close to and
    /// on multiples of a block, where a rounded quotient could slip.
    #[test]
    fn blocks_are_those_of_whole_number_division(
        layers in 1..200_u64,
        kv_heads in 1..64_u64,
        head_dim in 1..512_u64,
        block_size in 1..256_u64,
        blocks in 0..200_000_u64,
        off in -2..=2_i64,
    ) {
        let page = 2 * kv_heads * head_dim * 2 * block_size;
        let Some(pool) = (blocks * page * layers).checked_add_signed(off) else { return Ok(()) };
        prop_assume!(pool <= LARGEST_EXACT);
        let per_token = kv_bytes_per_token(layers, kv_heads, head_dim, 2.0)?;
        let got = kv_blocks(Bytes::new(pool as f64)?, per_token, block_size)?;
        prop_assert_eq!(got, pool / page / layers);
        prop_assert_eq!(kv_tokens(Bytes::new(pool as f64)?, per_token, block_size)?, got * block_size);
    }

    /// A request holds whole blocks, and as many full requests fit as the blocks last.
    #[test]
    fn full_requests_take_their_blocks(
        n_blocks in 0..1_000_000_u64,
        block_size in 1..256_u64,
        max_model_len in 1..200_000_u64,
    ) {
        let fits = full_length_concurrency(n_blocks, block_size, max_model_len)?.get();
        let mut each = 0;
        let mut covered = 0;
        while covered < max_model_len {
            covered += block_size;
            each += 1;
        }
        prop_assert!((fits * f64::from(each) - n_blocks as f64).abs() <= 1e-9 * n_blocks as f64);
    }

    /// At the ridge point computing and moving take equally long; below it moving takes longer.
    #[test]
    fn the_ridge_is_where_both_sides_meet(
        peak in 1e12..1e16_f64,
        bandwidth in 1e11..1e14_f64,
        bytes in 1e6..1e12_f64,
        factor in 0.01..0.99_f64,
    ) {
        let (peak, bandwidth) = (FlopPerSecond::new(peak)?, BytesPerSecond::new(bandwidth)?);
        let bytes = Bytes::new(bytes)?;
        let ridge = ridge_point(peak, bandwidth)?;
        let (computing, moving) = (((ridge * bytes) / peak)?, (bytes / bandwidth)?);
        prop_assert!((computing.get() - moving.get()).abs() <= 1e-12 * moving.get());
        let less = (ridge * bytes * factor)?;
        prop_assert!(arithmetic_intensity(less, bytes)? < ridge);
        prop_assert!((less / peak)? < moving);
    }

    /// More requests, longer contexts or fatter KV never shorten a step; bandwidth never lengthens it.
    #[test]
    fn step_bounds_are_monotone(
        batch in 0.0..1024.0_f64,
        per_token in 0.0..4e6_f64,
        tokens in 0.0..131_072.0_f64,
        weights in 0.0..1e12_f64,
        factor in 1.0..3.0_f64,
    ) {
        let bandwidth = BytesPerSecond::new(3.35e12)?;
        let time = |batch: f64, per_token: f64, tokens: f64, bandwidth| {
            let batch = Requests::new(batch)?;
            let (per_token, tokens) = (BytesPerToken::new(per_token)?, Tokens::new(tokens)?);
            kv_step_time_lower_bound(batch, per_token, tokens, bandwidth)
        };
        let base = time(batch, per_token, tokens, bandwidth)?;
        prop_assert!(base <= time(batch * factor, per_token, tokens, bandwidth)?);
        prop_assert!(base <= time(batch, per_token * factor, tokens, bandwidth)?);
        prop_assert!(base <= time(batch, per_token, tokens * factor, bandwidth)?);
        prop_assert!(time(batch, per_token, tokens, (bandwidth * factor)?)? <= base);
        // Weights come on top of KV.
        let kv = kv_step_bytes(
            Requests::new(batch)?, BytesPerToken::new(per_token)?, Tokens::new(tokens)?,
        )?;
        prop_assert!(base <= decode_step_time_lower_bound(Bytes::new(weights)?, kv, bandwidth)?);
    }
}

/// Groups of 12 layers over 36 + 12: Llama 3.1 8B on 1, 4, 8 and 16 GPUs keeps 8, 2, 1 and 1 heads.
#[test]
fn each_gpu_keeps_its_heads_and_at_least_one() {
    let kv = |attention| KvShape::new(vec![group(32, attention, 2.0)]).unwrap();
    let per_gpu = |attention, gpus| {
        kv(attention)
            .of_one_gpu(gpus)
            .map(|kv| kv.bytes_per_token().get() / (2.0 * 32.0 * 128.0 * 2.0))
    };
    for (gpus, heads) in [(1, 8.0), (4, 2.0), (8, 1.0), (16, 1.0)] {
        assert_eq!(per_gpu(gqa(8, 128), gpus), Ok(heads), "{gpus}");
    }
    let window = Attention::SlidingWindow { kv_heads: 8, head_dim: 128, window: 64 };
    assert_eq!(per_gpu(window, 4), Ok(0.0)); // nothing without an end
    assert_eq!(kv(window).of_one_gpu(4).unwrap().bytes(64).unwrap().get(), 64.0 * 32_768.0);
    let mla = Attention::Mla { kv_lora_rank: 512, qk_rope_head_dim: 64 };
    assert_eq!(kv(mla).of_one_gpu(8).unwrap(), kv(mla));
    assert_eq!(
        message(per_gpu(gqa(8, 128), 3)),
        "8 KV heads cannot be divided over 3 GPUs: one number must be a multiple of the other"
    );
    assert_eq!(message(per_gpu(gqa(8, 128), 0)), "gpus must be at least 1, got 0");
}

/// 20 layers with full attention and 30 with a window: 30 < 1.5 · 20 does not hold, so groups of 20;
/// 29 and 20 are one group of 29 each. 62 layers of Gemma 3: 10 full and 52 in six groups.
#[test]
fn layers_of_two_kinds_share_blocks_in_groups() {
    let window = Attention::SlidingWindow { kv_heads: 1, head_dim: 1, window: 17 };
    let pool = |full, sliding| {
        let kv = KvShape::new(vec![group(full, gqa(1, 1), 1.0), group(sliding, window, 1.0)]);
        KvPool::of_memory(&kv.unwrap(), Bytes::new(320_000.0).unwrap(), 16).unwrap()
    };
    // 2 B a layer and token: 40 B in groups of 20, 58 in groups of 29, 20 in groups of 10.
    for (full, sliding, per_token, groups) in [(20, 30, 40, 2), (20, 29, 58, 1), (10, 52, 20, 6)] {
        let pool = pool(full, sliding);
        assert_eq!(pool.blocks(), 320_000 / (16 * per_token), "{full} {sliding}");
        // 160 tokens: 10 blocks, and of the window ⌈min(160, 16 + 16) / 16⌉ + 1 = 3.
        assert_eq!(pool.blocks_of_request(160, 16), Ok(10 + 3 * groups));
        let fit = pool.blocks() as f64 / (10 + 3 * groups) as f64;
        assert_eq!(pool.concurrency(160, 16).unwrap().get(), fit);
        assert_eq!(pool.tokens(160, 16).unwrap(), (fit * 160.0) as u64);
    }
}

#[test]
fn a_pool_that_cannot_be_counted_says_why() {
    let of = |groups| {
        let kv = KvShape::new(groups).unwrap();
        KvPool::of_memory(&kv, Bytes::new(1e9).unwrap(), 16)
    };
    assert_eq!(
        message(of(vec![group(4, Attention::NoKv, 2.0)])),
        "no layer keeps keys and values, so that there are no KV blocks"
    );
    assert_eq!(
        message(of(vec![group(4, gqa(1, 64), 2.0), group(4, gqa(2, 64), 2.0)])),
        "some layers keep 256 and others 512 bytes of a token: blocks are counted for layers that keep equally many"
    );
    let pool = KvPool::of_blocks(None, 1_381, 16).unwrap();
    assert_eq!(message(pool.concurrency(0, 1)), "tokens must be at least 1, got 0");
    assert_eq!(
        pool.concurrency(2_048, 1).unwrap(),
        full_length_concurrency(1_381, 16, 2_048).unwrap()
    );
    assert!(KvPool::of_blocks(None, 1, 0).is_err());
}
