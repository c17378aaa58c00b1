//! A model's `config.json`, as Hugging Face has it.

use metrics_core::model::{Attention, LayerGroup};
use serde_json::{Map, Value};

use super::gpu::Precision;
use super::params::{self, Parameters};
use crate::error::{IoError, Place, Result, shown};

/// The largest size or count that is read: no model is near it, and products of four stay exact.
const LARGEST: u64 = 1 << 24;
/// The most layers.
const MOST_LAYERS: u64 = 4096;

/// Other names of keys, as older or other models have them.
const ALIASES: [(&str, &[&str]); 8] = [
    ("hidden_size", &["n_embd", "d_model"]),
    ("num_hidden_layers", &["n_layer", "n_layers", "num_layers"]),
    ("num_attention_heads", &["n_head", "n_heads"]),
    ("num_key_value_heads", &["num_kv_heads", "multi_query_group_num"]),
    ("head_dim", &["attention_head_dim"]),
    (
        "max_position_embeddings",
        &["n_positions", "max_sequence_length", "max_seq_len", "seq_length"],
    ),
    ("num_experts_per_tok", &["moe_topk", "top_k_experts"]),
    ("torch_dtype", &["dtype"]),
];

/// Architectures of state-space layers alone, which keep no keys and values.
const STATES_ONLY: [&str; 4] = ["mamba", "mamba2", "falcon_mamba", "rwkv"];

/// Architectures with an encoder; those that generate keep keys and values of the encoder's tokens
/// too, which a token of the answer does not add to.
const ENCODERS: [&str; 18] = [
    "albert",
    "bart",
    "bert",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "m2m_100",
    "marian",
    "mbart",
    "modernbert",
    "mt5",
    "pegasus",
    "roberta",
    "t5",
    "umt5",
    "whisper",
    "xlm-roberta",
];

/// Keys of models in which not every layer has attention to all tokens, or not with the same heads,
/// by rules that are not read here. To count all layers would be wrong by a multiple.
const UNREAD_RULES: [&str; 19] = [
    "attention_layers",
    "attention_types",
    "block_configs",
    "cross_attention_layers",
    "hybrid_layer_pattern",
    "layer_group_size",
    "linear_num_key_heads",
    "lru_width",
    "mamba_d_conv",
    "mamba_d_ssm",
    "mamba_d_state",
    "mamba_expand",
    "mamba_num_heads",
    "mamba_step",
    "mb_per_layer",
    "num_mem_blocks",
    "ssm_cfg",
    "ssm_state_size",
    "state_size",
];

/// Architectures of which every layer has attention, where the file says nothing else, beside those
/// whose parameters are counted.
const ALL_ATTENTION: [&str; 42] = [
    "baichuan",
    "bailing_moe",
    "bloom",
    "chatglm",
    "codegen",
    "cohere",
    "cohere2",
    "dbrx",
    "deepseek_v32",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone",
    "falcon",
    "falcon_h1",
    "gemma",
    "glm",
    "glm4",
    "glm4_moe",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "granitemoe",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "internlm2",
    "llama4_text",
    "minicpm",
    "mpt",
    "nemotron",
    "olmo",
    "olmo2",
    "olmoe",
    "opt",
    "phi",
    "phimoe",
    "qwen",
    "qwen2_5_vl_text",
    "qwen2_vl",
    "seed_oss",
    "stablelm",
    "starcoder2",
];

/// Under which key the language model of a multimodal one is.
const NESTED: [&str; 4] = ["text_config", "language_config", "llm_config", "thinker_config"];

/// What one layer keeps of each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    /// Attention to all tokens.
    Full,
    /// Attention to the last `window` tokens.
    Sliding { window: u64 },
    /// Linear attention.
    Linear,
    /// A state-space layer.
    Mamba,
    /// Attention over another layer's keys and values.
    Shared,
    /// Something else without a cache: a convolution, or a layer without attention.
    Other,
}

/// A model as its `config.json` says it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelConfig {
    /// `model_type`, the name of the architecture.
    pub model_type: String,
    /// The layers by kind, with caches of the model's own type.
    pub layer_groups: Vec<LayerGroup>,
    /// Heads of the queries and elements of one, for the operations of attention.
    pub query_size: u64,
    /// The longest request that the model was made for, if the file says so.
    pub max_model_len: Option<u64>,
    /// Its parameters, if the architecture is one whose parameters are counted.
    pub parameters: Option<Parameters>,
    /// Bytes of a weight in the checkpoint: of the layers' matrices (of the experts' alone where
    /// only these are quantized), and of everything else; `None` for a quantization that is not
    /// known.
    pub weight_bytes: Option<WeightBytes>,
    /// What matrices are multiplied in.
    pub precision: Precision,
    /// What is not counted, one line each.
    pub limitations: Vec<String>,
    /// What the file does not say and was assumed, one line each.
    pub assumptions: Vec<String>,
}

/// Bytes of a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightBytes {
    /// Of the matrices of the layers, or of the experts alone.
    pub quantized: f64,
    /// Of everything else.
    pub plain: f64,
    /// Whether only experts are quantized.
    pub experts_only: bool,
}

impl ModelConfig {
    /// A model from the text of its `config.json`; `file` is only used in messages.
    ///
    /// # Errors
    ///
    /// [`IoError`] with the key: no JSON object, a key that is needed and not there or there twice, a
    /// value of another form, or a rule for the layers that is not read here.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let Value::Object(root) = crate::json::json_value(file, 0, text)? else {
            return Err(IoError::UnknownFormat {
                at: Box::new(Place::file(file)),
                found: "no JSON object".to_owned(),
                expected: "a model's config.json".to_owned(),
            });
        };
        let keys = Keys::new(file, &root);
        let model_type = keys.text("model_type")?.unwrap_or_default();
        keys.refuse_other_architectures(&model_type)?;
        let (mut limitations, mut assumptions) = (Vec::new(), Vec::new());
        let kinds = keys.layer_kinds(&model_type, &mut limitations)?;
        let known = ALL_ATTENTION.contains(&model_type.as_str()) || params::is_counted(&model_type);
        if !known && kinds.iter().all(|k| *k == LayerKind::Full) && !keys.names_layers() {
            let what = if model_type.is_empty() {
                "no `model_type` names the architecture".to_owned()
            } else {
                format!("the architecture `{}` is not known", shown(&model_type))
            };
            assumptions
                .push(format!("{what}: all layers are taken to have attention to all tokens"));
        }
        let dtype = keys.dtype_bytes()?;
        let layer_groups = groups(&keys, &kinds, dtype)?;
        let parameters = params::count(&keys, &model_type, &kinds)?;
        if parameters.is_none() {
            limitations.push(format!(
                "parameters of the architecture `{}` are not counted",
                shown(&model_type)
            ));
        }
        if nested(&root).is_some() {
            limitations
                .push("only the language model is counted, not what sees or hears".to_owned());
        }
        let (weight_bytes, precision) = keys.weights(dtype, &mut limitations)?;
        let head = match keys.count("qk_nope_head_dim")? {
            Some(nope) if keys.count("kv_lora_rank")?.is_some() => {
                nope + keys.count("qk_rope_head_dim")?.unwrap_or(0)
            }
            _ => keys.head_dim().unwrap_or(0),
        };
        Ok(Self {
            layer_groups,
            query_size: keys.need("num_attention_heads")? * head,
            max_model_len: keys.context()?,
            parameters,
            weight_bytes,
            precision,
            limitations,
            assumptions,
            model_type,
        })
    }

    /// Bytes of the weights, if parameters and their types are known.
    #[must_use]
    pub fn weights(&self) -> Option<f64> {
        let p = self.parameters?;
        let quantized = match (self.weight_bytes?.experts_only, p.experts) {
            (true, experts) => experts.map_or(0, |e| e.all()),
            (false, _) => p.total - p.head - if p.tied { 0 } else { p.embedding },
        };
        Some(self.bytes_of(quantized, p.total - quantized))
    }

    /// Bytes of so many quantized and so many other weights.
    pub(super) fn bytes_of(&self, quantized: u64, plain: u64) -> f64 {
        self.weight_bytes.map_or(0.0, |w| w.quantized * quantized as f64 + w.plain * plain as f64)
    }
}

/// The object of the language model in a multimodal model's file.
fn nested(root: &Map<String, Value>) -> Option<&Map<String, Value>> {
    NESTED.iter().find_map(|key| root.get(*key)?.as_object())
}

/// The keys of a `config.json`: those of the language model, then those of the whole.
pub(super) struct Keys<'a> {
    file: &'a str,
    objects: Vec<&'a Map<String, Value>>,
}

impl<'a> Keys<'a> {
    fn new(file: &'a str, root: &'a Map<String, Value>) -> Self {
        let mut objects = vec![root];
        // One model nests twice.
        while let Some(inner) = objects.last().copied().and_then(nested) {
            objects.push(inner);
        }
        objects.reverse();
        Self { file, objects }
    }

    /// The value of a key under one of its names; null is as good as none.
    fn get(&self, key: &'static str) -> Option<(&'static str, &'a Value)> {
        let other = ALIASES.iter().find(|a| a.0 == key).map_or(&[][..], |a| a.1);
        let names = || std::iter::once(key).chain(other.iter().copied());
        self.objects.iter().find_map(|object| {
            names().find_map(|n| object.get(n).filter(|v| !v.is_null()).map(|v| (n, v)))
        })
    }

    fn place(&self, key: &str) -> Place {
        Place::file(self.file).key(key)
    }

    /// An error about the value of a key.
    pub(super) fn refused(&self, key: &'static str, expected: &str) -> IoError {
        let found = self.get(key).map_or_else(String::new, |(_, v)| v.to_string());
        IoError::Value {
            at: Box::new(self.place(key)),
            found: format!("`{}`", shown(&found)),
            expected: expected.to_owned(),
        }
    }

    pub(super) fn count(&self, key: &'static str) -> Result<Option<u64>> {
        let Some((name, value)) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|&n| n <= LARGEST) {
            Some(n) => Ok(Some(n)),
            None => Err(IoError::Value {
                at: Box::new(self.place(name)),
                found: format!("`{}`", shown(&value.to_string())),
                expected: format!("a whole number from 0 to {LARGEST}"),
            }),
        }
    }

    /// A count of at least one that the file has to have.
    pub(super) fn need(&self, key: &'static str) -> Result<u64> {
        match self.count(key)? {
            Some(0) => Err(self.refused(key, "a whole number of at least 1")),
            Some(n) => Ok(n),
            None => Err(IoError::MissingKey {
                at: Box::new(self.place(key)),
                expected: "a whole number of at least 1, as in a model's config.json",
            }),
        }
    }

    /// The same, for products.
    pub(super) fn wide(&self, key: &'static str) -> Result<u128> {
        self.need(key).map(u128::from)
    }

    pub(super) fn switch(&self, key: &'static str) -> Result<Option<bool>> {
        let Some((_, value)) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.refused(key, "true or false"))
    }

    fn text(&self, key: &'static str) -> Result<Option<String>> {
        let Some((_, value)) = self.get(key) else { return Ok(None) };
        match value.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(self.refused(key, "a text")),
        }
    }

    /// A list of numbers, empty if it is not there.
    pub(super) fn numbers(&self, key: &'static str) -> Result<Vec<u64>> {
        let Some((_, value)) = self.get(key) else { return Ok(Vec::new()) };
        let list = value.as_array().map(|list| list.iter().map(Value::as_u64).collect());
        list.flatten().ok_or_else(|| self.refused(key, "a list of whole numbers"))
    }

    /// A list of texts.
    fn texts(&self, key: &'static str) -> Result<Option<Vec<&'a str>>> {
        let Some((_, value)) = self.get(key) else { return Ok(None) };
        let list = value.as_array().map(|list| list.iter().map(Value::as_str).collect());
        list.flatten().map(Some).ok_or_else(|| self.refused(key, "a list of texts"))
    }

    pub(super) fn head_dim(&self) -> Result<u64> {
        match self.count("head_dim")? {
            Some(0) => return Err(self.refused("head_dim", "a whole number of at least 1")),
            Some(n) => return Ok(n),
            None => {}
        }
        // Zamba's attention sees the hidden state and the embedding beside each other.
        let zamba = matches!(self.text("model_type")?.as_deref(), Some("zamba" | "zamba2"));
        let hidden = self.need("hidden_size")? * if zamba { 2 } else { 1 };
        let heads = self.need("num_attention_heads")?;
        if hidden % heads != 0 {
            let expected =
                format!("a multiple of num_attention_heads {heads}, or the key `head_dim`");
            return Err(self.refused("hidden_size", &expected));
        }
        Ok(hidden / heads)
    }

    pub(super) fn kv_heads(&self) -> Result<u64> {
        if let Some((name, value)) = self.get("num_key_value_heads")
            && value.is_array()
        {
            return Err(IoError::Value {
                at: Box::new(self.place(name)),
                found: "a list".to_owned(),
                expected: "one number: layers with different heads are not read".to_owned(),
            });
        }
        if self.switch("multi_query")?.unwrap_or(false) && self.get("num_key_value_heads").is_none()
        {
            return Ok(1);
        }
        if let Some(n) = self.kv_heads_of_attention()? {
            return Ok(n);
        }
        match self.count("num_key_value_heads")? {
            Some(0) => Err(self.refused("num_key_value_heads", "a whole number of at least 1")),
            Some(n) => Ok(n),
            None => self.need("num_attention_heads"),
        }
    }

    /// KV heads where MPT and DBRX have them: in the object `attn_config`.
    fn kv_heads_of_attention(&self) -> Result<Option<u64>> {
        let Some((_, value)) = self.get("attn_config") else { return Ok(None) };
        let wrong = |key: &str, found: &Value, expected: &str| IoError::Value {
            at: Box::new(self.place(&format!("attn_config.{key}"))),
            found: format!("`{}`", shown(&found.to_string())),
            expected: expected.to_owned(),
        };
        if let Some(window) = value.get("sliding_window_size")
            && window.as_i64() != Some(-1)
            && !window.is_null()
        {
            return Err(wrong("sliding_window_size", window, "-1: a window is not read here"));
        }
        match value.get("kv_n_heads").filter(|v| !v.is_null()) {
            Some(found) => {
                let heads = found.as_u64().filter(|n| (1..=LARGEST).contains(n));
                let expected = "a whole number of at least 1";
                heads.map(Some).ok_or_else(|| wrong("kv_n_heads", found, expected))
            }
            None if value.get("attn_type").and_then(Value::as_str)
                == Some("multiquery_attention") =>
            {
                Ok(Some(1))
            }
            None => Ok(None),
        }
    }

    /// Experts of a layer, if there are any.
    pub(super) fn experts(&self) -> Result<Option<u64>> {
        for key in ["num_local_experts", "n_routed_experts", "num_experts"] {
            if let Some(n) = self.count(key)?.filter(|&n| 1 < n) {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }

    /// The longest request, with positions stretched as vLLM stretches them.
    fn context(&self) -> Result<Option<u64>> {
        let own = match self.count("max_position_embeddings")? {
            Some(0) => {
                let expected = "a whole number of at least 1";
                return Err(self.refused("max_position_embeddings", expected));
            }
            Some(own) => own,
            None => return Ok(None),
        };
        let scaling = self.get("rope_scaling").and_then(|(_, v)| v.as_object());
        let text = |key: &str| scaling.and_then(|s| s.get(key)).and_then(Value::as_str);
        let number = |key: &str| scaling.and_then(|s| s.get(key)).and_then(Value::as_f64);
        let factor = number("factor").filter(|f| 1.0 <= *f).unwrap_or(1.0);
        let stretched = match text("rope_type").or(text("type")) {
            Some("linear" | "dynamic") => own as f64 * factor,
            // Of the length before it was stretched, where the file says both.
            Some("yarn") => {
                number("original_max_position_embeddings").unwrap_or(own as f64) * factor
            }
            _ => own as f64,
        };
        if !(1.0..=LARGEST as f64).contains(&stretched) {
            return Err(self.refused("rope_scaling", &format!("positions up to {LARGEST}")));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        Ok(Some(own.max(stretched as u64)))
    }

    /// Bytes of an element of the type that the model was stored in.
    fn dtype_bytes(&self) -> Result<f64> {
        let plain = |v: Option<&Value>| {
            v.and_then(Value::as_str).map(|t| t.trim_start_matches("torch.").to_owned())
        };
        for object in &self.objects {
            let (old, new) = (plain(object.get("torch_dtype")), plain(object.get("dtype")));
            if let (Some(old), Some(new)) = (old, new)
                && old != new
            {
                return Err(IoError::Value {
                    at: Box::new(self.place("torch_dtype")),
                    found: format!("`{}`", shown(&old)),
                    expected: format!("`{}` as in `dtype`", shown(&new)),
                });
            }
        }
        let Some(name) = self.text("torch_dtype")? else { return Ok(2.0) };
        match name.trim_start_matches("torch.") {
            "bfloat16" | "float16" | "half" | "auto" => Ok(2.0),
            "float32" | "float" => Ok(4.0),
            "float8_e4m3fn" | "float8_e5m2" | "int8" => Ok(1.0),
            _ => Err(self.refused("torch_dtype", "bfloat16, float16, float32 or a float8 type")),
        }
    }

    /// Refuses what is no decoder with attention, of which the layers would all be counted.
    fn refuse_other_architectures(&self, model_type: &str) -> Result<()> {
        if STATES_ONLY.contains(&model_type) {
            let expected = "a model with attention: layers with a state keep no keys and values";
            return Err(self.refused("model_type", expected));
        }
        let expected = "a model that only decodes: what an encoder keeps is not read here";
        if self.switch("is_encoder_decoder")? == Some(true) {
            return Err(self.refused("is_encoder_decoder", expected));
        }
        if ENCODERS.contains(&model_type) {
            return Err(self.refused("model_type", expected));
        }
        Ok(())
    }

    /// Whether the file says of each layer what it is.
    fn names_layers(&self) -> bool {
        ["layer_types", "layers_block_type", "attn_type_list", "hybrid_override_pattern"]
            .iter()
            .any(|key| self.get(key).is_some())
    }

    /// What each layer keeps.
    fn layer_kinds(&self, model_type: &str, limits: &mut Vec<String>) -> Result<Vec<LayerKind>> {
        // A model with a pattern of letters has a layer a letter.
        if let Some(pattern) = self.text("hybrid_override_pattern")? {
            return Ok(pattern
                .chars()
                .map(|c| match c {
                    '*' => LayerKind::Full,
                    'M' => LayerKind::Mamba,
                    _ => LayerKind::Other,
                })
                .collect());
        }
        let n = self.need("num_hidden_layers")?;
        if MOST_LAYERS < n {
            return Err(self.refused("num_hidden_layers", &format!("at most {MOST_LAYERS} layers")));
        }
        let mut kinds = match self.named_layers(n, limits)? {
            Some(kinds) => kinds,
            None => self.layers_by_rule(model_type, n, limits)?,
        };
        let shared = self.count("num_kv_shared_layers")?.unwrap_or(0).min(n);
        for kind in kinds.iter_mut().rev().take(usize::try_from(shared).unwrap_or(0)) {
            *kind = LayerKind::Shared;
        }
        if kinds.iter().any(|k| matches!(k, LayerKind::Linear | LayerKind::Mamba)) {
            limits.push(
                "the states of linear and state-space layers, of one size for each request, are not \
                 counted"
                    .to_owned(),
            );
        }
        if self.get("index_topk").is_some() {
            limits.push("the cache of the sparse attention's indexer is not counted".to_owned());
        }
        Ok(kinds)
    }

    /// The kinds where the file names that of each layer.
    fn named_layers(&self, n: u64, limits: &mut Vec<String>) -> Result<Option<Vec<LayerKind>>> {
        let mut key = "layer_types";
        let mut names = self.texts(key)?;
        if names.is_none() {
            key = "layers_block_type";
            names = self.texts(key)?;
        }
        let Some(names) = names else { return Ok(None) };
        if names.len() as u64 != n {
            return Err(IoError::Value {
                at: Box::new(self.place(key)),
                found: metrics_core::format::things(names.len() as u64, "layer"),
                expected: format!("{n} as in `num_hidden_layers`"),
            });
        }
        let kinds = names.iter().map(|name| match *name {
            "full_attention" | "attention" | "hybrid" | "global" => Ok(LayerKind::Full),
            "sliding_attention" | "local" => self.sliding(),
            "chunked_attention" => {
                let window = self.need("attention_chunk_size")?;
                Ok(LayerKind::Sliding { window })
            }
            "linear_attention" => Ok(LayerKind::Linear),
            "mamba" | "mamba2" => Ok(LayerKind::Mamba),
            "conv" | "recurrent" | "mlp" | "moe" => Ok(LayerKind::Other),
            other => Err(IoError::Value {
                at: Box::new(self.place(key)),
                found: format!("`{}`", shown(other)),
                expected: "full_attention, sliding_attention, chunked_attention, \
                           linear_attention, mamba or conv"
                    .to_owned(),
            }),
        });
        let kinds = kinds.collect::<Result<Vec<_>>>()?;
        if names.contains(&"chunked_attention") {
            limits.push(
                "chunked attention is counted as a window of one chunk; an engine that holds all \
                 tokens of it needs more"
                    .to_owned(),
            );
        }
        Ok(Some(kinds))
    }

    fn sliding(&self) -> Result<LayerKind> {
        self.need("sliding_window").map(|window| LayerKind::Sliding { window })
    }

    /// The kinds where the file has a rule, or the architecture does.
    fn layers_by_rule(
        &self,
        model_type: &str,
        n: u64,
        limits: &mut Vec<String>,
    ) -> Result<Vec<LayerKind>> {
        let pick = |full: &dyn Fn(u64) -> bool, other: LayerKind| {
            (0..n).map(|i| if full(i) { LayerKind::Full } else { other }).collect()
        };
        if let Some((_, value)) = self.get("linear_attn_config") {
            let full = value.get("full_attn_layers").and_then(Value::as_array);
            let Some(full) = full else {
                return Err(self.refused("linear_attn_config", "an object with `full_attn_layers`"));
            };
            // Counted from 1.
            let is_full = |i: u64| full.iter().any(|v| v.as_u64() == Some(i + 1));
            return Ok(pick(&is_full, LayerKind::Linear));
        }
        if let Some(every) = self.count("full_attention_interval")?.filter(|&n| 0 < n) {
            return Ok(pick(&|i| (i + 1) % every == 0, LayerKind::Linear));
        }
        if let Some(every) = self.count("attn_layer_period")?.filter(|&n| 0 < n) {
            let offset = self.count("attn_layer_offset")?.unwrap_or(0);
            return Ok(pick(&|i| i % every == offset, LayerKind::Mamba));
        }
        for (key, other) in [
            ("attn_layer_indices", LayerKind::Mamba),
            ("hybrid_layer_ids", LayerKind::Mamba),
            ("full_attn_idxs", LayerKind::Other),
        ] {
            let full = self.numbers(key)?;
            if full.iter().any(|&i| n <= i) {
                return Err(self.refused(key, &format!("layers from 0 to {}", n - 1)));
            }
            if self.get(key).is_some() {
                return Ok(pick(&|i| full.contains(&i), other));
            }
        }
        if let Some(kinds) = self.layers_by_list(n)? {
            return Ok(kinds);
        }
        if model_type == "falcon_h1" {
            // Each layer has attention and a state beside each other.
            limits.push("the states beside attention are not counted".to_owned());
        } else if let Some(key) = UNREAD_RULES.iter().find(|key| self.get(key).is_some()) {
            let expected = "a model whose layers all have the same attention, or one that names the \
                            kind of each in `layer_types`: this rule is not read here";
            return Err(self.refused(key, expected));
        }
        let window = self.count("sliding_window")?.filter(|&n| 0 < n);
        if window.is_none() || self.switch("use_sliding_window")? == Some(false) {
            return Ok(pick(&|_| true, LayerKind::Other));
        }
        let sliding = self.sliding()?;
        let pattern = self.count("sliding_window_pattern")?.filter(|&n| 0 < n);
        Ok(match (pattern, model_type) {
            (Some(every), _) => pick(&|i| (i + 1) % every == 0, sliding),
            (None, "gemma2") => pick(&|i| i % 2 == 1, sliding),
            (None, "gemma3" | "gemma3_text") => pick(&|i| (i + 1) % 6 == 0, sliding),
            (None, "cohere2") => pick(&|i| (i + 1) % 4 == 0, sliding),
            (None, "gpt_oss") => pick(&|i| i % 2 == 1, sliding),
            (None, "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe") => {
                let first = self.count("max_window_layers")?.unwrap_or(0);
                pick(&|i| i < first, sliding)
            }
            _ => pick(&|_| false, sliding),
        })
    }

    /// The kinds where the file has a number or a word for each layer, or words that repeat.
    fn layers_by_list(&self, n: u64) -> Result<Option<Vec<LayerKind>>> {
        if self.get("attn_type_list").is_some() {
            let types = self.numbers("attn_type_list")?;
            if types.len() as u64 != n || types.iter().any(|t| 1 < *t) {
                let expected =
                    format!("{n} numbers, 1 for attention to all tokens and 0 for linear");
                return Err(self.refused("attn_type_list", &expected));
            }
            let kind = |t: u64| if t == 1 { LayerKind::Full } else { LayerKind::Linear };
            return Ok(Some(types.into_iter().map(kind).collect()));
        }
        let Some(words) = self.texts("block_types")? else { return Ok(None) };
        let window = self.need("attention_window_size")?;
        let kind = |word: &&str| match *word {
            "attention" => Ok(LayerKind::Sliding { window }),
            "recurrent" => Ok(LayerKind::Other),
            _ => Err(self.refused("block_types", "a list of `recurrent` and `attention`")),
        };
        let kinds = words.iter().map(kind).collect::<Result<Vec<_>>>()?;
        if kinds.is_empty() {
            return Err(self.refused("block_types", "a list of `recurrent` and `attention`"));
        }
        // The blocks repeat until there are enough layers.
        let layers = usize::try_from(n).unwrap_or(usize::MAX);
        Ok(Some(kinds.into_iter().cycle().take(layers).collect()))
    }

    /// Bytes of a weight, and what matrices are multiplied in.
    fn weights(
        &self,
        dtype: f64,
        limits: &mut Vec<String>,
    ) -> Result<(Option<WeightBytes>, Precision)> {
        let all = |quantized| Some(WeightBytes { quantized, plain: dtype, experts_only: false });
        let Some((_, value)) = self.get("quantization_config") else {
            let precision = if dtype < 2.0 { Precision::Fp8 } else { Precision::Half };
            return Ok((all(dtype), precision));
        };
        let Some(quantization) = value.as_object() else {
            return Err(self.refused("quantization_config", "an object"));
        };
        let text = |key| quantization.get(key).and_then(Value::as_str).unwrap_or_default();
        let method = text("quant_method").to_lowercase();
        let number = |value: Option<&Value>| value.and_then(Value::as_f64);
        if let Some(bits) = quantization.get("bits").filter(|v| !v.is_null())
            && !bits.as_f64().is_some_and(|n| (1.0..=16.0).contains(&n))
        {
            return Err(IoError::Value {
                at: Box::new(self.place("quantization_config.bits")),
                found: format!("`{}`", shown(&bits.to_string())),
                expected: "bits of a weight from 1 to 16".to_owned(),
            });
        }
        // Scales and zero points of a group of 128 weights: 16 bits and as many as a weight has.
        let grouped = |bits: f64| {
            let group = number(quantization.get("group_size")).filter(|&n| 1.0 <= n);
            (bits + (16.0 + bits) / group.unwrap_or(128.0)) / 8.0
        };
        let known = match method.as_str() {
            "fp8" | "fbgemm_fp8" => Some((1.0, Precision::Fp8)),
            "mxfp4" => {
                // 4 bits, and a byte for the scale of 32 weights.
                let bytes =
                    WeightBytes { quantized: 17.0 / 32.0, plain: dtype, experts_only: true };
                return Ok((Some(bytes), Precision::Fp4));
            }
            "gptq" | "awq" | "auto-round" => {
                let bits = number(quantization.get("bits"));
                bits.map(|bits| (grouped(bits), Precision::Half))
            }
            "modelopt" | "modelopt_fp4" => match text("quant_algo") {
                "FP8" => Some((1.0, Precision::Fp8)),
                "NVFP4" => Some((0.5625, Precision::Fp4)),
                _ => None,
            },
            "compressed-tensors" => compressed(quantization),
            _ => None,
        };
        let Some((bytes, precision)) = known else {
            limits.push(format!(
                "the quantization `{}` is not known: the bytes of its weights have to be given",
                shown(&method)
            ));
            return Ok((None, Precision::Half));
        };
        Ok((all(bytes), precision))
    }
}

/// Bytes and precision of the first group of a `compressed-tensors` file.
fn compressed(quantization: &Map<String, Value>) -> Option<(f64, Precision)> {
    let groups = quantization.get("config_groups")?.as_object()?;
    let group = groups.values().next()?;
    let weights = group.get("weights")?;
    let bits = weights.get("num_bits")?.as_f64()?;
    let float = weights.get("type").and_then(Value::as_str) == Some("float");
    let activations = group.get("input_activations").is_some_and(|v| !v.is_null());
    let group_size = weights.get("group_size").and_then(Value::as_f64);
    let scales = group_size.filter(|&n| 1.0 <= n).map_or(0.0, |n| 16.0 / n);
    let precision = match (activations, float) {
        (false, _) => Precision::Half,
        (true, true) if bits < 8.0 => Precision::Fp4,
        (true, true) => Precision::Fp8,
        (true, false) => Precision::Int8,
    };
    Some(((bits + scales) / 8.0, precision))
}

/// The layers of one kind together, in the order in which kinds first appear.
fn groups(keys: &Keys<'_>, kinds: &[LayerKind], dtype_bytes: f64) -> Result<Vec<LayerGroup>> {
    let mut groups: Vec<LayerGroup> = Vec::new();
    for kind in kinds {
        let attention = match kind {
            LayerKind::Full => match keys.count("kv_lora_rank")? {
                Some(0) => return Err(keys.refused("kv_lora_rank", "a whole number of at least 1")),
                Some(kv_lora_rank) => Attention::Mla {
                    kv_lora_rank,
                    qk_rope_head_dim: keys.need("qk_rope_head_dim")?,
                },
                None => {
                    let (kv_heads, head_dim) = (keys.kv_heads()?, keys.head_dim()?);
                    let heads = Some(keys.need("num_attention_heads")?);
                    Attention::Gqa { kv_heads, head_dim, heads }
                }
            },
            LayerKind::Sliding { window } => Attention::SlidingWindow {
                kv_heads: keys.kv_heads()?,
                head_dim: keys.head_dim()?,
                window: *window,
            },
            LayerKind::Linear | LayerKind::Mamba | LayerKind::Shared | LayerKind::Other => {
                Attention::NoKv
            }
        };
        match groups.iter_mut().find(|g| g.attention == attention) {
            Some(group) => group.layers += 1,
            None => groups.push(LayerGroup { layers: 1, attention, dtype_bytes }),
        }
    }
    Ok(groups)
}
