//! How many parameters a model has, from the shape in its `config.json`.

use metrics_core::timeline::LARGEST_TOKENS;

use super::config::{Keys, LayerKind};
use crate::error::{IoError, Result};

/// Parameters of a model, by what a step does with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameters {
    /// All of them, those of every expert.
    pub total: u64,
    /// Those of the embedding table, of which a step reads a row a token.
    pub embedding: u64,
    /// Those of the output head, which only the last token of a prompt passes; the embedding table
    /// itself if the two are tied.
    pub head: u64,
    /// Whether embedding and head are one table, counted once in `total`.
    pub tied: bool,
    /// Experts, if it is a mixture of them.
    pub experts: Option<Experts>,
}

/// The routed experts of a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Experts {
    /// Layers that have them.
    pub layers: u64,
    /// Experts of one layer.
    pub each_layer: u64,
    /// How many of these a token passes.
    pub chosen: u64,
    /// Parameters of one expert in one layer.
    pub params: u64,
}

impl Experts {
    /// Parameters of all of them.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.layers * self.each_layer * self.params
    }

    /// Those that one token passes.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.layers * self.chosen * self.params
    }
}

impl Parameters {
    /// Parameters that one token passes, embedding and head along.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.total - self.experts.map_or(0, |e| e.all() - e.passed())
    }

    /// Parameters that every token is multiplied with: the active ones without embedding and head.
    #[must_use]
    pub fn multiplied(&self) -> u64 {
        self.active() - self.head - if self.tied { 0 } else { self.embedding }
    }

    /// Parameters outside of the layers' experts that each step reads, the head along.
    #[must_use]
    pub fn always_read(&self) -> u64 {
        self.total
            - self.experts.map_or(0, |e| e.all())
            - if self.tied { 0 } else { self.embedding }
    }
}

/// What the models of a family have beside the matrices that all have.
#[derive(Clone, Copy)]
struct Family {
    /// Whether queries, keys and values have a bias; `None` if the key `attention_bias` says so.
    qkv_bias: Option<bool>,
    /// Whether `attention_bias` gives the output of attention one too.
    output_bias: bool,
    /// Norms of queries and keys, of the size of a head.
    head_norms: bool,
    /// Norms of the size of the model in each layer.
    norms: u128,
    /// Whether embedding and head are one table where the file does not say so.
    tied: bool,
}

/// The families whose parameters are counted.
fn family(model_type: &str) -> Option<Family> {
    let llama =
        Family { qkv_bias: None, output_bias: true, head_norms: false, norms: 2, tied: false };
    Some(match model_type {
        "llama" | "granite" => llama,
        "mistral" | "mixtral" | "phi3" | "jamba" | "deepseek_v2" | "deepseek_v3" | "kimi_k2" => {
            Family { qkv_bias: Some(false), output_bias: false, ..llama }
        }
        "qwen2" | "qwen2_moe" => Family { qkv_bias: Some(true), output_bias: false, ..llama },
        "qwen3" | "qwen3_moe" | "qwen3_next" => Family { head_norms: true, ..llama },
        "gemma2" => Family { norms: 4, tied: true, ..llama },
        "gemma3_text" => Family { norms: 4, head_norms: true, tied: true, ..llama },
        "gpt_oss" => Family { qkv_bias: Some(true), ..llama },
        _ => return None,
    })
}

/// Whether the parameters of models of that type are counted.
pub(super) fn is_counted(model_type: &str) -> bool {
    family(model_type).is_some()
}

/// Parameters of the model, if its family is known.
pub(super) fn count(
    keys: &Keys<'_>,
    model_type: &str,
    kinds: &[LayerKind],
) -> Result<Option<Parameters>> {
    let Some(family) = family(model_type) else { return Ok(None) };
    let hidden = keys.wide("hidden_size")?;
    let table = keys.wide("vocab_size")? * hidden;
    let tied = keys.switch("tie_word_embeddings")?.unwrap_or(family.tied);
    let mut total = table + if tied { 0 } else { table } + hidden;
    let attention = attention(keys, model_type, family)?;
    let mixture = Mixture::of(keys, model_type)?;
    let mut moe_layers = 0_u64;
    for (layer, kind) in (0..).zip(kinds) {
        total += family.norms * hidden;
        total += match kind {
            LayerKind::Full | LayerKind::Sliding { .. } => attention,
            LayerKind::Linear if model_type == "qwen3_next" => delta_net(keys)?,
            LayerKind::Mamba if model_type == "jamba" => mamba(keys)?,
            // What such a layer holds depends on the architecture.
            _ => return Ok(None),
        };
        total += match &mixture {
            Some(m) if m.has_experts(layer) => {
                moe_layers += 1;
                u128::from(m.each_layer) * m.expert + m.beside
            }
            _ => dense_mlp(keys)?,
        };
    }
    // All other counts are below the total.
    let Some(total) = u64::try_from(total).ok().filter(|&n| n <= LARGEST_TOKENS) else {
        return Err(keys.refused("hidden_size", "a model of at most 2^53 parameters"));
    };
    let table = u64::try_from(table).unwrap_or(total);
    let experts = mixture.filter(|_| 0 < moe_layers).map(|m| Experts {
        layers: moe_layers,
        each_layer: m.each_layer,
        chosen: m.chosen,
        params: u64::try_from(m.expert).unwrap_or(total),
    });
    Ok(Some(Parameters { total, embedding: table, head: table, tied, experts }))
}

/// Parameters of the attention of one layer.
fn attention(keys: &Keys<'_>, model_type: &str, family: Family) -> Result<u128> {
    let hidden = keys.wide("hidden_size")?;
    let heads = keys.wide("num_attention_heads")?;
    if let Some(rank) = keys.count("kv_lora_rank")?.map(u128::from) {
        let (rope, nope) = (keys.wide("qk_rope_head_dim")?, keys.wide("qk_nope_head_dim")?);
        let value = keys.wide("v_head_dim")?;
        let queries = match keys.count("q_lora_rank")?.map(u128::from) {
            Some(q) => hidden * q + q + q * heads * (nope + rope),
            None => hidden * heads * (nope + rope),
        };
        let latent = hidden * (rank + rope) + rank + rank * heads * (nope + value);
        return Ok(queries + latent + heads * value * hidden);
    }
    let (kv_heads, head) = (u128::from(keys.kv_heads()?), u128::from(keys.head_dim()?));
    let (q, kv) = (heads * head, 2 * kv_heads * head);
    let mut n = hidden * (q + kv) + q * hidden;
    let said = keys.switch("attention_bias")?.unwrap_or(false);
    if family.qkv_bias.unwrap_or(said) {
        n += q + kv;
    }
    if family.output_bias && (said || model_type == "gpt_oss") {
        n += hidden;
    }
    if family.head_norms {
        n += 2 * head;
    }
    Ok(match model_type {
        // A sink for each head.
        "gpt_oss" => n + heads,
        // A gate on the output, as large as the queries.
        "qwen3_next" => n + hidden * q,
        _ => n,
    })
}

/// Gate, up and down of a layer without experts.
fn dense_mlp(keys: &Keys<'_>) -> Result<u128> {
    let (hidden, inner) = (keys.wide("hidden_size")?, keys.wide("intermediate_size")?);
    let bias = if keys.switch("mlp_bias")?.unwrap_or(false) { 2 * inner + hidden } else { 0 };
    Ok(3 * hidden * inner + bias)
}

/// Gated delta net, as Qwen3-Next has it.
fn delta_net(keys: &Keys<'_>) -> Result<u128> {
    let hidden = keys.wide("hidden_size")?;
    let key = keys.wide("linear_num_key_heads")? * keys.wide("linear_key_head_dim")?;
    let (heads, head) = (keys.wide("linear_num_value_heads")?, keys.wide("linear_value_head_dim")?);
    let value = heads * head;
    let convolution = (2 * key + value) * keys.wide("linear_conv_kernel_dim")?;
    Ok(hidden * (2 * key + 2 * value)
        + hidden * 2 * heads
        + convolution
        + 2 * heads
        + head
        + value * hidden)
}

/// Mamba with norms of its inner parts, as Jamba has it.
fn mamba(keys: &Keys<'_>) -> Result<u128> {
    let hidden = keys.wide("hidden_size")?;
    let inner = keys.wide("mamba_expand")? * hidden;
    let (state, rank) = (keys.wide("mamba_d_state")?, keys.wide("mamba_dt_rank")?);
    let biases =
        |key, n: u128| Ok::<u128, IoError>(if keys.switch(key)?.unwrap_or(false) { n } else { 0 });
    Ok(2 * hidden * inner
        + inner * keys.wide("mamba_d_conv")?
        + biases("mamba_conv_bias", inner)?
        + inner * (rank + 2 * state)
        + rank * inner
        + inner
        + inner * state
        + inner
        + inner * hidden
        + biases("mamba_proj_bias", 2 * inner + hidden)?
        + rank
        + 2 * state)
}

/// Experts, and in which layers they are.
struct Mixture {
    each_layer: u64,
    chosen: u64,
    /// Parameters of one expert.
    expert: u128,
    /// Router and shared experts of a layer.
    beside: u128,
    /// The first layer that may have them.
    first: u64,
    /// Of every so many layers one has them, and which.
    every: (u64, u64),
    /// Layers that have none all the same.
    without: Vec<u64>,
}

impl Mixture {
    fn of(keys: &Keys<'_>, model_type: &str) -> Result<Option<Self>> {
        let Some(each_layer) = keys.experts()? else { return Ok(None) };
        let hidden = keys.wide("hidden_size")?;
        let inner = match keys.count("moe_intermediate_size")? {
            Some(inner) => u128::from(inner),
            None => keys.wide("intermediate_size")?,
        };
        let chosen = keys.need("num_experts_per_tok")?;
        if each_layer < chosen {
            let most = format!("at most the {each_layer} experts of a layer");
            return Err(keys.refused("num_experts_per_tok", &most));
        }
        let matrices = 3 * hidden * inner;
        let all = u128::from(each_layer);
        let router = hidden * all;
        let (expert, beside) = match model_type {
            "gpt_oss" => (matrices + 2 * inner + hidden, router + all),
            "deepseek_v2" | "deepseek_v3" | "kimi_k2" => {
                let shared = u128::from(keys.count("n_shared_experts")?.unwrap_or(0)) * matrices;
                // Later versions correct the router's scores by one number an expert.
                let correction = if model_type == "deepseek_v2" { 0 } else { all };
                (matrices, router + correction + shared)
            }
            _ => {
                let shared = keys.count("shared_expert_intermediate_size")?;
                let gated = |inner: u128| 3 * hidden * inner + hidden;
                (matrices, router + shared.map_or(0, |n| gated(u128::from(n))))
            }
        };
        let every = if model_type == "jamba" {
            (keys.need("expert_layer_period")?, keys.count("expert_layer_offset")?.unwrap_or(0))
        } else {
            let step = keys.count("decoder_sparse_step")?.unwrap_or(1).max(1);
            (step, step - 1)
        };
        Ok(Some(Self {
            each_layer,
            chosen,
            expert,
            beside,
            first: keys.count("first_k_dense_replace")?.unwrap_or(0),
            every: (every.0.max(1), every.1),
            without: keys.numbers("mlp_only_layers")?,
        }))
    }

    fn has_experts(&self, layer: u64) -> bool {
        self.first <= layer
            && layer % self.every.0 == self.every.1
            && !self.without.contains(&layer)
    }
}
