//! Models and GPUs: `config.json` of every kind of architecture, names, and what is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

use metrics_core::kv_pool::KvPool;
use metrics_core::model::Attention;
use metrics_core::units::Bytes;
use serving_io::machine::{Gpu, Machine, Model, ModelConfig, Precision, kv_dtype_bytes};

/// A small model; further keys, each with a comma before it, are put at its end.
fn with(more: &str) -> String {
    format!(
        r#"{{"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8,
            "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 4096,
            "vocab_size": 1000, "max_position_embeddings": 4096{more}}}"#
    )
}

fn parsed(text: &str) -> ModelConfig {
    ModelConfig::parse("config.json", text).unwrap()
}

fn refused(text: &str) -> String {
    ModelConfig::parse("config.json", text).unwrap_err().to_string()
}

/// Layers that hold everything, layers with a window and that window, layers that hold nothing.
fn layers(text: &str) -> (u64, u64, Option<u64>, u64) {
    let mut out = (0, 0, None, 0);
    for group in parsed(text).layer_groups {
        match group.attention {
            Attention::SlidingWindow { window, .. } => {
                out.1 += group.layers;
                out.2 = Some(window);
            }
            Attention::NoKv => out.3 += group.layers,
            _ => out.0 += group.layers,
        }
    }
    out
}

/// Positions that are stretched: by four of 4,096, of 1,024 before, and not at all.
#[test]
fn the_longest_request_follows_stretched_positions() {
    let longest = |scaling: &str| {
        parsed(&with(&format!(r#", "rope_scaling": {scaling}"#))).max_model_len.unwrap()
    };
    assert_eq!(longest(r#"{"type": "linear", "factor": 4.0}"#), 16_384);
    assert_eq!(longest(r#"{"rope_type": "yarn", "factor": 4.0}"#), 16_384);
    let said = r#"{"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024}"#;
    assert_eq!(longest(said), 4_096);
    assert_eq!(longest(r#"{"rope_type": "llama3", "factor": 8.0}"#), 4_096);
    assert_eq!(longest("null"), 4_096);
    let absurd = refused(&with(r#", "rope_scaling": {"type": "linear", "factor": 1e30}"#));
    assert!(absurd.contains("`rope_scaling`"), "{absurd}");
}

/// Every way in which a file says which layers keep what.
#[test]
fn only_layers_with_a_cache_count() {
    for (more, expected) in [
        ("", (8, 0, None, 0)),
        (r#", "sliding_window": null"#, (8, 0, None, 0)),
        (r#", "sliding_window": 512, "use_sliding_window": false"#, (8, 0, None, 0)),
        (r#", "sliding_window": 512"#, (0, 8, Some(512), 0)),
        (r#", "sliding_window": 512, "sliding_window_pattern": 4"#, (2, 6, Some(512), 0)),
        (r#", "sliding_window": 512, "model_type": "gemma2""#, (4, 4, Some(512), 0)),
        // Of 8 layers the sixth is the only one with full attention.
        (r#", "sliding_window": 512, "model_type": "gemma3_text""#, (1, 7, Some(512), 0)),
        (
            r#", "sliding_window": 512, "model_type": "qwen2", "max_window_layers": 6,
               "use_sliding_window": true"#,
            (6, 2, Some(512), 0),
        ),
        (r#", "full_attention_interval": 4"#, (2, 0, None, 6)),
        (r#", "attn_layer_period": 8, "attn_layer_offset": 4"#, (1, 0, None, 7)),
        (
            r#", "sliding_window": 64, "layer_types": ["full_attention", "sliding_attention",
               "linear_attention", "conv", "mamba", "full_attention", "sliding_attention", "conv"]"#,
            (2, 2, Some(64), 4),
        ),
        (
            r#", "layers_block_type": ["mamba", "mamba", "hybrid", "mamba", "mamba", "mamba",
               "mamba", "hybrid"]"#,
            (2, 0, None, 6),
        ),
        (r#", "linear_attn_config": {"full_attn_layers": [4, 8]}"#, (2, 0, None, 6)),
        (r#", "hybrid_override_pattern": "M-M*-M*-""#, (2, 0, None, 6)),
        // Bamba, Zamba2, LFM2 and MiniMax; RecurrentGemma's blocks repeat, two of eight attend.
        (r#", "attn_layer_indices": [2, 5], "mamba_d_state": 256"#, (2, 0, None, 6)),
        (r#", "hybrid_layer_ids": [1, 4, 7], "mamba_d_state": 64"#, (3, 0, None, 5)),
        (r#", "full_attn_idxs": [3]"#, (1, 0, None, 7)),
        (r#", "attn_type_list": [0, 0, 0, 1, 0, 0, 0, 1]"#, (2, 0, None, 6)),
        (
            r#", "block_types": ["recurrent", "recurrent", "attention"], "lru_width": 1024,
               "attention_window_size": 2048"#,
            (0, 2, Some(2048), 6),
        ),
        // Falcon-H1 has attention in each layer, beside a state.
        (r#", "mamba_d_ssm": 64, "model_type": "falcon_h1""#, (8, 0, None, 0)),
        (r#", "num_kv_shared_layers": 3"#, (5, 0, None, 3)),
        (
            r#", "attention_chunk_size": 8192, "layer_types": ["chunked_attention",
               "chunked_attention", "chunked_attention", "full_attention", "chunked_attention",
               "chunked_attention", "chunked_attention", "full_attention"]"#,
            (2, 6, Some(8192), 0),
        ),
    ] {
        // A key that is there twice is refused: put the type where it is.
        let text = with(more);
        let text = if more.contains("model_type") {
            text.replacen(r#""model_type": "llama", "#, "", 1)
        } else {
            text
        };
        assert_eq!(layers(&text), expected, "{more}");
    }
}

/// MHA without KV heads, MQA by the old switch, GQA with a head size of its own, MLA.
#[test]
fn heads_are_those_that_keep_keys_and_values() {
    let bytes = |text: &str| {
        let groups = parsed(text).layer_groups;
        groups.iter().map(|g| g.kv_bytes_per_token().unwrap().get()).sum::<f64>()
    };
    let base = with("");
    // Eight layers, a key and a value of 2 B: 32 times heads times head size.
    assert_eq!(bytes(&base), 32.0 * 4.0 * 64.0);
    let own = base.replace(r#""num_key_value_heads": 4"#, r#""head_dim": 128"#);
    assert_eq!(bytes(&own), 32.0 * 16.0 * 128.0);
    let one = base.replace(r#""num_key_value_heads": 4"#, r#""multi_query": true"#);
    assert_eq!(bytes(&one), 32.0 * 64.0);
    // MPT and DBRX have them in an object; Zamba's heads are of twice the hidden size.
    let inner = |object: &str| {
        base.replace(r#""num_key_value_heads": 4"#, &format!(r#""attn_config": {object}"#))
    };
    assert_eq!(bytes(&inner(r#"{"kv_n_heads": 2}"#)), 32.0 * 2.0 * 64.0);
    assert_eq!(bytes(&inner(r#"{"attn_type": "multiquery_attention"}"#)), 32.0 * 64.0);
    assert_eq!(bytes(&inner(r#"{"attn_type": "multihead_attention"}"#)), 32.0 * 16.0 * 64.0);
    let zamba = with(r#", "hybrid_layer_ids": [1, 4]"#).replacen("llama", "zamba2", 1);
    assert_eq!(bytes(&zamba), 8.0 * 4.0 * 128.0);
    let mla = with(
        r#", "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
                      "v_head_dim": 128"#,
    );
    assert_eq!(bytes(&mla), 8.0 * 576.0 * 2.0);
    assert_eq!(bytes(&with(r#", "torch_dtype": "float32""#)), 2.0 * 32.0 * 4.0 * 64.0);
}

/// The language model of a multimodal one, with the type of the whole.
#[test]
fn a_nested_model_is_read_and_what_is_left_out_is_said() {
    let text = format!(
        r#"{{"model_type": "gemma3", "torch_dtype": "float32", "vision_config": {{"hidden_size": 9}},
            "text_config": {}}}"#,
        with("").replacen("llama", "gemma3_text", 1)
    );
    let config = parsed(&text);
    assert_eq!(
        (config.model_type.as_str(), config.layer_groups[0].dtype_bytes),
        ("gemma3_text", 4.0)
    );
    assert!(config.limitations.iter().any(|l| l.contains("only the language model")));
}

/// 8 layers of 1,024 · 1,024 for queries and output, 1,024 · 512 for keys and values, 3 · 1,024 ·
/// 4,096 and two norms; two tables of 1,000 · 1,024 and a norm.
#[test]
fn parameters_weights_and_precision_follow_from_types() {
    let layers = 8 * (2 * 1024 * 1024 + 1024 * 512 + 3 * 1024 * 4096 + 2 * 1024) as u64;
    let table = 1_024_000;
    let config = parsed(&with(""));
    let p = config.parameters.unwrap();
    assert_eq!((p.total, p.head), (layers + 2 * table + 1024, table));
    assert_eq!(p.multiplied(), layers + 1024);
    assert_eq!(config.weights(), Some(2.0 * p.total as f64));
    assert_eq!(config.precision, Precision::Half);
    let tied = parsed(&with(r#", "tie_word_embeddings": true"#)).parameters.unwrap();
    assert_eq!((tied.total, tied.multiplied()), (layers + table + 1024, layers + 1024));

    let quantized = |q: &str| {
        let config = parsed(&with(&format!(r#", "quantization_config": {q}"#)));
        (config.weights().map(|w| w - 2.0 * 2.0 * table as f64), config.precision)
    };
    let inner = (layers + 1024) as f64;
    assert_eq!(quantized(r#"{"quant_method": "fp8"}"#), (Some(inner), Precision::Fp8));
    // 4 bits, and 16 + 4 for a group of 128.
    let awq = r#"{"quant_method": "awq", "bits": 4, "group_size": 128}"#;
    assert_eq!(quantized(awq), (Some(inner * (4.0 + 20.0 / 128.0) / 8.0), Precision::Half));
    let w8a8 = r#"{"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8}}}}"#;
    assert_eq!(quantized(w8a8), (Some(inner), Precision::Int8));

    let unknown = parsed(&with(r#", "quantization_config": {"quant_method": "new"}"#));
    assert_eq!(unknown.weights(), None);
    assert!(unknown.limitations[0].contains("`new` is not known"), "{:?}", unknown.limitations);
    // An architecture that is not known keeps its cache; its parameters are not made up.
    let other = parsed(&with("").replacen("llama", "brand_new", 1));
    assert_eq!((other.parameters, other.layer_groups.len()), (None, 1));
    assert!(other.limitations[0].contains("`brand_new`"));
    assert!(other.assumptions[0].contains("`brand_new` is not known"), "{:?}", other.assumptions);
    assert_eq!(config.assumptions.len(), 0);
    let none = parsed(&with("").replacen("\"llama\"", "null", 1));
    assert!(none.assumptions[0].starts_with("no `model_type`"), "{:?}", none.assumptions);
}

#[test]
fn what_a_config_lacks_or_garbles_is_named() {
    let mut said = String::new();
    for text in [
        "",
        "[1]",
        "{\"hidden_size\": 1024",
        "{}",
        &with("").replace(r#""num_attention_heads": 16"#, r#""x": 1"#),
        &with("").replace("\"num_hidden_layers\": 8", "\"num_hidden_layers\": 0"),
        &with("").replace("\"num_hidden_layers\": 8", "\"num_hidden_layers\": 100000"),
        &with("").replace("\"num_key_value_heads\": 4", "\"num_key_value_heads\": [4, 8]"),
        &with("").replace("\"num_key_value_heads\": 4", "\"num_key_value_heads\": 3"),
        &with("").replace("\"hidden_size\": 1024", "\"hidden_size\": -1"),
        &with("").replace("\"hidden_size\": 1024", "\"hidden_size\": 1000"),
        &with(r#", "layer_types": ["full_attention"]"#),
        &with(r#", "layer_types": "full_attention""#),
        &with(r#", "torch_dtype": "complex64""#),
        &with(r#", "tie_word_embeddings": "yes""#),
        &with(r#", "num_local_experts": 4, "num_experts_per_tok": 8"#),
        &with(r#", "kv_lora_rank": 512"#),
        &with(",\n \"num_hidden_layers\": 80"),
        &with(r#", "rope_scaling": {"type": "yarn", "type": "linear"}"#),
        &with(r#", "head_dim": 0"#),
        &with("").replace(r#""max_position_embeddings": 4096"#, r#""max_position_embeddings": 0"#),
        &with(r#", "torch_dtype": "float16", "dtype": "float32""#),
        &with(r#", "quantization_config": {"quant_method": "gptq", "bits": 0}"#),
        &with("").replacen("llama", "falcon_mamba", 1),
        &with("").replacen("llama", "bert", 1),
        &with(r#", "is_encoder_decoder": true"#),
        &with(r#", "mamba_d_state": 16"#),
        &with(r#", "layer_group_size": 5"#),
        &with(r#", "attn_layer_indices": [8]"#),
        &with(r#", "attn_type_list": [0, 1]"#),
        &with(r#", "block_types": ["recurrent", "linear"], "attention_window_size": 9"#),
        &with(r#", "attn_config": {"kv_n_heads": 0}"#),
        &with(r#", "attn_config": {"sliding_window_size": 64}"#),
    ] {
        match ModelConfig::parse("config.json", text) {
            Err(e) => said.push_str(&format!("{e}\n")),
            // A shape is checked as a whole.
            Ok(config) => {
                let e = metrics_core::model::KvShape::new(config.layer_groups).unwrap_err();
                said.push_str(&format!("{e}\n"));
            }
        }
    }
    insta::assert_snapshot!("machine_refusals", said);
}

#[test]
fn names_are_forgiving_and_unknown_ones_have_neighbours() {
    for name in ["Qwen/Qwen3-8B", "qwen3-8b", "QWEN3_8B", " qwen3-8b-Base"] {
        assert_eq!(Model::named(name).unwrap().name, "Qwen/Qwen3-8B", "{name}");
    }
    let llama = "meta-llama/Meta-Llama-3.1-8B";
    for name in ["meta-llama/Llama-3.1-8B-Instruct", "Meta-Llama-3.1-8B", "llama-3.1-8b"] {
        assert_eq!(Model::named(name).unwrap().name, llama, "{name}");
    }
    for name in ["h100", "H100-SXM", "NVIDIA H100 80GB HBM3", "nvidia h100 sxm5"] {
        assert_eq!(Gpu::named(name).unwrap().name, "NVIDIA H100 SXM", "{name}");
    }
    assert_eq!(
        Gpu::named("H1000").unwrap_err().to_string(),
        "`H1000` is no GPU that is known; nearest are `NVIDIA H100 SXM`, `NVIDIA H100 PCIe`, `NVIDIA H200 SXM`"
    );
    let unknown = Model::named("llama-3.1-9b").unwrap_err().to_string();
    assert!(unknown.contains("`llama-3.1-9b` is no model") && unknown.contains(llama), "{unknown}");
    assert!(Machine::named("llama-3.1-8b", "h100", 0).is_err());
    assert_eq!(kv_dtype_bytes("FP8").unwrap(), Some(1.0));
    assert_eq!(kv_dtype_bytes("auto").unwrap(), None);
}

/// Peaks fall back to the next wider precision; none is above the one of half the bits.
#[test]
fn peaks_are_ordered_by_precision() {
    for gpu in Gpu::all().unwrap() {
        let peaks = [Precision::Half, Precision::Fp8, Precision::Fp4].map(|p| gpu.peak(p).get());
        assert!(peaks.is_sorted() && peaks[2] <= 4.0 * peaks[0] * 1.05, "{} {peaks:?}", gpu.name);
        assert!(gpu.peak(Precision::Half) <= gpu.peak(Precision::Int8), "{}", gpu.name);
        assert!(!gpu.source.is_empty() && Bytes::ZERO < gpu.memory);
    }
    let v100 = Gpu::named("v100").unwrap();
    assert_eq!(v100.peak(Precision::Fp8), v100.peak(Precision::Half));
}

/// DeepSeek-V3: 61 layers of 576 elements, 8-bit weights and 16-bit tables, 37 of 671 · 10^9 active.
/// gpt-oss-120b: half of the layers hold 128 tokens, and its experts have 4.25 bits.
#[test]
fn well_known_models_have_their_well_known_figures() {
    let v3 = Model::named("deepseek-ai/DeepSeek-R1").unwrap();
    assert_eq!(v3.kv(None).unwrap().bytes_per_token().get(), 70_272.0);
    let p = v3.parameters().unwrap();
    assert_eq!((p.total / 1_000_000_000, p.active() / 1_000_000_000), (671, 37));
    assert!((v3.weights().unwrap().get() / 1e9 - 672.9).abs() < 0.1, "{:?}", v3.weights());

    let oss = Model::named("gpt-oss-120b").unwrap();
    // The checkpoint is 60.8 GiB.
    let weights = oss.weights().unwrap().get() / 1_073_741_824.0;
    assert!((weights / 60.8 - 1.0).abs() < 0.01, "{weights}");
    let kv = oss.kv(None).unwrap();
    assert_eq!(kv.bytes_per_token().get(), 18.0 * 2_048.0);
    let pool = KvPool::of_memory(&kv, Bytes::new(1_179_648_000.0).unwrap(), 16).unwrap();
    // Two groups of 18 layers: 18 · 2,048 B a token in each.
    assert_eq!(pool.blocks(), 2_000);
    assert_eq!(pool.blocks_of_request(131_072, 8_192).unwrap(), 8_192 + 8_319_u64.div_ceil(16) + 1);
    // A mixture of experts of which all are known by name.
    let moe = Model::named("Qwen3-30B-A3B").unwrap().parameters().unwrap();
    assert_eq!(moe.active() / 100_000_000, 33);
}

/// A quarter of the heads and of the weights on each of four GPUs.
#[test]
fn memory_for_the_cache_is_what_a_share_leaves() {
    let machine = Machine::named("llama-3.1-70b", "h100", 4).unwrap();
    let left = machine.kv_memory(0.9, Bytes::new(2e9).unwrap()).unwrap().get();
    let by_hand = 0.9 * 81_559.0 * 1_048_576.0 - 2.0 * 70_553_706_496.0 / 4.0 - 2e9;
    assert!((left - by_hand).abs() < 1.0);
    let small = Machine::named("llama-3.1-70b", "h100", 1).unwrap();
    assert_eq!(
        small.kv_memory(0.9, Bytes::ZERO).unwrap_err().to_string(),
        "no memory for the KV cache: 0.9 of 79.65 GiB is 71.68 GiB, the weights of \
         meta-llama/Meta-Llama-3.1-70B take 131.42 GiB of each GPU"
    );
}

/// A folder as a download leaves it.
#[test]
fn a_file_or_its_folder_is_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), with("")).unwrap();
    let file = Model::read_path(&dir.path().join("config.json")).unwrap();
    assert_eq!(Model::read_path(dir.path()).unwrap(), file);
    assert_eq!(file.max_model_len(), Some(4096));
    assert!(refused("{}").contains("`num_hidden_layers`: is missing"));
    assert!(Model::read_path(&dir.path().join("none.json")).is_err());
}
