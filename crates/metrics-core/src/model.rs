//! What a model costs in memory: weights, KV bytes per token, KV blocks.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, above, at_least, within};
#[cfg(feature = "catalog")]
use crate::metric::{Formula, Input, Layer, Metric, Source, computed, computed_as, text, whole};
use crate::timeline::LARGEST_TOKENS;
use crate::units::{Bytes, BytesPerToken, Requests, Tokens};
#[cfg(feature = "catalog")]
use crate::units::{Quantity, Unit};

/// Up to here `f64` holds every whole number, so that the arithmetic of this module is exact.
const EXACT: f64 = LARGEST_TOKENS as f64;
/// The widest element that any framework stores: a complex number of two doubles.
const WIDEST_DTYPE: f64 = 16.0;

/// A count that `f64` holds exactly.
fn exact(input: &'static str, n: u64) -> Result<f64> {
    // Compared as whole numbers: 2^53 + 1 would round down to the bound.
    if LARGEST_TOKENS < n {
        return Err(Error::TooLarge { input, max: EXACT, value: n as f64 });
    }
    Ok(n as f64)
}

/// A count of at least one that `f64` holds exactly.
fn count(input: &'static str, n: u64) -> Result<f64> {
    at_least(input, exact(input, n)?, 1.0)
}

/// Bytes of one element; a fraction where several share a byte.
fn dtype(dtype_bytes: f64) -> Result<f64> {
    within("dtype_bytes", above("dtype_bytes", dtype_bytes, 0.0)?, 0.0, WIDEST_DTYPE)
}

/// A whole, not negative `f64` as an integer.
fn to_count(input: &'static str, x: f64) -> Result<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked and callers round first"
    )]
    within(input, x, 0.0, EXACT).map(|x| x as u64)
}

/// KV-cache bytes of one token: a key and a value for each layer and KV head.
///
/// ```text
/// kv_bytes_per_token = 2 * layers * kv_heads * head_dim * dtype_bytes
/// ```
///
/// `layers` counts only the layers with full attention, `kv_heads` the heads that keep keys and
/// values (all of them under MHA, one under MQA, one per group under GQA), `head_dim` the elements of
/// one; `dtype_bytes` is the size of an element of the cache: 2 for bf16, 1 for fp8, 0.5625 for
/// NVFP4 with one scale byte for 16 elements. Models with MLA, sliding windows or layers without a cache need
/// [`mla_kv_bytes_per_token`] or [`KvShape`]. All GPUs of a replica together hold it once, unless
/// there are fewer KV heads than GPUs.
///
/// # Errors
///
/// [`Error::TooSmall`] if a count is 0, [`Error::NotAbove`] if `dtype_bytes` is not positive,
/// [`Error::TooLarge`] if it is above 16, or a count or the result above 2^53.
///
/// # Examples
///
/// ```
/// use metrics_core::{model::kv_bytes_per_token, units::BytesPerToken};
///
/// // Llama 3.1 8B in bf16: 2 · 32 · 8 · 128 · 2 B = 128 KiB.
/// assert_eq!(kv_bytes_per_token(32, 8, 128, 2.0)?, BytesPerToken::new(131_072.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: vLLM at 001cabc `vllm/v1/kv_cache_interface.py`, `AttentionSpec.real_page_size_bytes`, for
/// one token over all layers.
pub fn kv_bytes_per_token(
    layers: u64,
    kv_heads: u64,
    head_dim: u64,
    dtype_bytes: f64,
) -> Result<BytesPerToken> {
    let elements = 2.0
        * count("layers", layers)?
        * count("kv_heads", kv_heads)?
        * count("head_dim", head_dim)?;
    bytes_per_token(elements * dtype(dtype_bytes)?)
}

/// A checked number of bytes per token, exact if whole.
fn bytes_per_token(bytes: f64) -> Result<BytesPerToken> {
    BytesPerToken::new(within("kv bytes per token", bytes, 0.0, EXACT)?)
}

/// The catalog entry of [`kv_bytes_per_token`].
#[cfg(feature = "catalog")]
pub const KV_BYTES_PER_TOKEN: Metric = Metric {
    id: "kv_bytes_per_token",
    symbol: r"m_{\text{token}}",
    name: text("KV bytes per token", "每 token 的 KV 字节数"),
    layer: Layer::Capacity,
    unit: BytesPerToken::UNIT,
    inputs: &[
        Input::whole(
            "layers",
            "L",
            Unit::ONE,
            (1.0, 200.0),
            text("layers with full attention", "全注意力层数"),
        ),
        Input::whole(
            "kv_heads",
            r"H_{\mathrm{KV}}",
            Unit::ONE,
            (1.0, 128.0),
            text("heads that keep keys and values", "KV 头数"),
        ),
        Input::whole(
            "head_dim",
            r"d_{\mathrm{head}}",
            Unit::ONE,
            (1.0, 512.0),
            text("elements of one head", "每个头的维度"),
        ),
        DTYPE_BYTES.counts_as(Unit::BYTE.per(Unit::TOKEN)),
    ],
    formula: Formula::Scalar {
        text: "2 * layers * kv_heads * head_dim * dtype_bytes",
        eval: |x| {
            computed(kv_bytes_per_token(
                whole("layers", x[0])?,
                whole("kv_heads", x[1])?,
                whole("head_dim", x[2])?,
                x[3],
            ))
        },
        example: (&[32.0, 8.0, 128.0, 2.0], 131_072.0),
    },
    path: "metrics_core::model::kv_bytes_per_token",
    source: Source {
        work: "vLLM at 001cabc `vllm/v1/kv_cache_interface.py`",
        section: "`AttentionSpec.real_page_size_bytes`",
    },
    note: text(
        "Count only layers with full attention: a hybrid model taken as uniform comes out several times too large.",
        "只计全注意力层：把混合模型当作均匀模型会高估数倍。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const DTYPE_BYTES: Input = Input::real(
    "dtype_bytes",
    r"b_{\mathrm{dtype}}",
    Unit::BYTE,
    (0.5, 8.0),
    text("bytes of one element", "每个元素的字节数"),
);

/// KV-cache bytes of one token under multi-head latent attention (MLA).
///
/// ```text
/// mla_kv_bytes_per_token = layers * (kv_lora_rank + rope_dim) * dtype_bytes
/// ```
///
/// Each layer keeps one latent vector of `kv_lora_rank` elements, from which keys and values of all
/// heads are rebuilt, and one key of `rope_dim` elements that carries the position; there is no
/// factor 2 and no number of heads. `dtype_bytes` is the size of an element. Under tensor
/// parallelism every GPU holds it in full. Packed formats with scales inside, as vLLM's `fp8_ds_mla` of
/// 656 B for a token and layer, are not of this form.
///
/// # Errors
///
/// [`Error::TooSmall`] if `layers` or `kv_lora_rank` is 0, [`Error::NotAbove`] if `dtype_bytes` is
/// not positive, [`Error::TooLarge`] if it is above 16, or a count or the result above 2^53.
///
/// # Examples
///
/// ```
/// use metrics_core::{model::mla_kv_bytes_per_token, units::BytesPerToken};
///
/// // DeepSeek-V3 in bf16: 61 · (512 + 64) · 2 B.
/// assert_eq!(mla_kv_bytes_per_token(61, 512, 64, 2.0)?, BytesPerToken::new(70_272.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: DeepSeek-V2, arXiv:2405.04434, 2.1 and table 1.
pub fn mla_kv_bytes_per_token(
    layers: u64,
    kv_lora_rank: u64,
    rope_dim: u64,
    dtype_bytes: f64,
) -> Result<BytesPerToken> {
    let rope = exact("rope_dim", rope_dim)?;
    let elements = count("layers", layers)? * (count("kv_lora_rank", kv_lora_rank)? + rope);
    bytes_per_token(elements * dtype(dtype_bytes)?)
}

/// The catalog entry of [`mla_kv_bytes_per_token`].
#[cfg(feature = "catalog")]
pub const MLA_KV_BYTES_PER_TOKEN: Metric = Metric {
    id: "mla_kv_bytes_per_token",
    symbol: r"m_{\text{token}}^{\mathrm{MLA}}",
    name: text("KV bytes per token, MLA", "每 token 的 KV 字节数（MLA）"),
    layer: Layer::Capacity,
    unit: BytesPerToken::UNIT,
    inputs: &[
        Input::whole("layers", "L", Unit::ONE, (1.0, 200.0), text("layers with MLA", "MLA 层数")),
        Input::whole(
            "kv_lora_rank",
            r"d_c",
            Unit::ONE,
            (1.0, 2048.0),
            text("elements of the latent vector", "潜在向量的维度"),
        ),
        Input::whole(
            "rope_dim",
            r"d_{\mathrm{rope}}",
            Unit::ONE,
            (0.0, 256.0),
            text("elements of the key that carries the position", "携带位置信息的 key 的维度"),
        ),
        DTYPE_BYTES.counts_as(Unit::BYTE.per(Unit::TOKEN)),
    ],
    formula: Formula::Scalar {
        text: "layers * (kv_lora_rank + rope_dim) * dtype_bytes",
        eval: |x| {
            computed(mla_kv_bytes_per_token(
                whole("layers", x[0])?,
                whole("kv_lora_rank", x[1])?,
                whole("rope_dim", x[2])?,
                x[3],
            ))
        },
        example: (&[61.0, 512.0, 64.0, 2.0], 70_272.0),
    },
    path: "metrics_core::model::mla_kv_bytes_per_token",
    source: Source { work: "DeepSeek-V2, arXiv:2405.04434", section: "2.1, table 1" },
    note: text(
        "Tensor parallelism does not split it: every GPU holds the latent vector in full.",
        "张量并行不会切分它：每块 GPU 都保存完整的潜在向量。",
    ),
    exported: &[],
};

/// Bytes of a model's weights.
///
/// ```text
/// weights_bytes = n_params * dtype_bytes
/// ```
///
/// `n_params` counts all parameters, of a mixture of experts those of every expert; `dtype_bytes`
/// is the mean size of one, 2 for bf16. Quantized checkpoints keep embeddings and scales in wider
/// types: take the checkpoint's size over its parameters.
///
/// # Errors
///
/// [`Error::TooSmall`] if `n_params` is 0, [`Error::NotAbove`] if `dtype_bytes` is not positive,
/// [`Error::TooLarge`] if it is above 16, or `n_params` or the result above 2^53.
///
/// # Examples
///
/// ```
/// use metrics_core::{model::weights_bytes, units::Bytes};
///
/// assert_eq!(weights_bytes(8_000_000_000, 2.0)?, Bytes::new(16e9)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: the meaning of a checkpoint's size; metric dictionary, 1.3 names it `M_weights`.
pub fn weights_bytes(n_params: u64, dtype_bytes: f64) -> Result<Bytes> {
    let bytes = count("n_params", n_params)? * dtype(dtype_bytes)?;
    Bytes::new(within("weights bytes", bytes, 0.0, EXACT)?)
}

/// The catalog entry of [`weights_bytes`].
#[cfg(feature = "catalog")]
pub const WEIGHTS_BYTES: Metric = Metric {
    id: "weights_bytes",
    symbol: r"M_{\mathrm{weights}}",
    name: text("Bytes of weights", "权重字节数"),
    layer: Layer::Capacity,
    unit: Unit::BYTE,
    inputs: &[
        Input::whole(
            "n_params",
            "N",
            Unit::PARAMETER,
            (1.0, 2e12),
            text("parameters, of every expert", "参数量（含所有专家）"),
        ),
        DTYPE_BYTES.counts_as(Unit::BYTE.per(Unit::PARAMETER)),
    ],
    formula: Formula::Scalar {
        text: "n_params * dtype_bytes",
        eval: |x| computed(weights_bytes(whole("n_params", x[0])?, x[1])),
        example: (&[8e9, 2.0], 16e9),
    },
    path: "metrics_core::model::weights_bytes",
    source: Source { work: "metric dictionary", section: "1.3" },
    note: text(
        "Quantized checkpoints keep embeddings and scales in wider types: take the mean bytes of a parameter.",
        "量化权重中 embedding 与缩放因子仍用较宽的类型：应取每个参数的平均字节数。",
    ),
    exported: &[],
};

/// KV blocks that fit into the memory left for them.
///
/// ```text
/// kv_blocks = floor(kv_memory_bytes / (bytes_per_token * block_size))
/// ```
///
/// `kv_memory_bytes` is what remains for the cache after weights, activations and reserve;
/// `bytes_per_token` as in [`kv_bytes_per_token`], both of one GPU or both of the whole replica;
/// `block_size` counts the tokens of a block. Only whole blocks count, and memory for less than one
/// gives 0, with which no engine starts. It is the number that vLLM prints, of which it keeps one
/// block, the null block, free of any request's tokens. Models whose layers differ in kind share memory in
/// groups: [`KvPool`](crate::kv_pool::KvPool) counts those.
///
/// # Errors
///
/// [`Error::NotAbove`] if `bytes_per_token` is zero, [`Error::TooSmall`] if `block_size` is 0,
/// [`Error::TooLarge`] if `block_size` or the result is above 2^53.
///
/// # Examples
///
/// ```
/// use metrics_core::{model::kv_blocks, units::{Bytes, BytesPerToken}};
///
/// // 16 GiB over 57,344 B a token and 16 tokens a block: 18,724.57 blocks.
/// let blocks = kv_blocks(Bytes::new(17_179_869_184.0)?, BytesPerToken::new(57_344.0)?, 16)?;
/// assert_eq!(blocks, 18_724);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: vLLM at 001cabc `vllm/v1/core/kv_cache_utils.py`, `get_num_blocks`.
pub fn kv_blocks(
    kv_memory_bytes: Bytes,
    bytes_per_token: BytesPerToken,
    block_size: u64,
) -> Result<u64> {
    let block_bytes =
        above("bytes_per_token", bytes_per_token.get(), 0.0)? * count("block_size", block_size)?;
    // The rounded quotient of whole numbers up to 2^53 never reaches the next whole number.
    to_count("kv blocks", (kv_memory_bytes.get() / block_bytes).floor())
}

/// The catalog entry of [`kv_blocks`].
#[cfg(feature = "catalog")]
pub const KV_BLOCKS: Metric = Metric {
    id: "kv_blocks",
    symbol: r"N_{\text{blocks}}",
    name: text("KV blocks", "KV 块数"),
    layer: Layer::Capacity,
    unit: Unit::BLOCK,
    inputs: KV_MEMORY_INPUTS,
    formula: Formula::Scalar {
        text: "floor(kv_memory_bytes / (bytes_per_token * block_size))",
        eval: |x| {
            let blocks =
                kv_blocks(Bytes::new(x[0])?, BytesPerToken::new(x[1])?, whole("block_size", x[2])?);
            computed_as(Unit::BLOCK, blocks.map(|n| n as f64))
        },
        example: (&[17_179_869_184.0, 57_344.0, 16.0], 18_724.0),
    },
    path: "metrics_core::model::kv_blocks",
    source: Source {
        work: "vLLM at 001cabc `vllm/v1/core/kv_cache_utils.py`",
        section: "`get_num_blocks`",
    },
    note: text(
        "Whole blocks only; vLLM keeps one of them, the null block, for itself.",
        "只计整块；vLLM 会保留其中一块作为空块（null block）。",
    ),
    exported: &[],
};

#[cfg(feature = "catalog")]
const KV_MEMORY_INPUTS: &[Input] = &[
    Input::real(
        "kv_memory_bytes",
        r"M_{\text{KV budget}}",
        Unit::BYTE,
        (0.0, 1e12),
        text("memory left for the KV cache", "留给 KV cache 的显存"),
    ),
    Input::real(
        "bytes_per_token",
        r"m_{\text{token}}",
        BytesPerToken::UNIT,
        (1024.0, 4_194_304.0),
        text("KV bytes of one token", "每 token 的 KV 字节数"),
    ),
    BLOCK_SIZE,
];
#[cfg(feature = "catalog")]
const BLOCK_SIZE: Input = Input::whole(
    "block_size",
    r"B_{\mathrm{size}}",
    Unit::TOKEN.per(Unit::BLOCK),
    (1.0, 256.0),
    text("tokens of one block", "每块的 token 数"),
);

/// Tokens that the KV cache holds, in whole blocks.
///
/// ```text
/// kv_tokens = floor(kv_memory_bytes / (bytes_per_token * block_size)) * block_size
/// ```
///
/// The inputs are those of [`kv_blocks`]. For a model with one kind of layer it is what vLLM at the
/// commit below prints as "GPU KV cache size"; requests fill their last block only in part, so that fewer
/// tokens of theirs fit.
///
/// # Errors
///
/// As [`kv_blocks`].
///
/// # Examples
///
/// ```
/// use metrics_core::{model::kv_tokens, units::{Bytes, BytesPerToken}};
///
/// // 18,724 whole blocks of 16 tokens.
/// let tokens = kv_tokens(Bytes::new(17_179_869_184.0)?, BytesPerToken::new(57_344.0)?, 16)?;
/// assert_eq!(tokens, 299_584);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: vLLM at 001cabc `vllm/v1/core/kv_cache_utils.py`, `get_num_blocks` times the block size.
pub fn kv_tokens(
    kv_memory_bytes: Bytes,
    bytes_per_token: BytesPerToken,
    block_size: u64,
) -> Result<u64> {
    let blocks = kv_blocks(kv_memory_bytes, bytes_per_token, block_size)?;
    to_count("kv tokens", blocks as f64 * block_size as f64)
}

/// The catalog entry of [`kv_tokens`].
#[cfg(feature = "catalog")]
pub const KV_TOKENS: Metric = Metric {
    id: "kv_tokens",
    symbol: r"T_{\mathrm{KV}}",
    name: text("Tokens that the KV cache holds", "KV cache 可容纳的 token 数"),
    layer: Layer::Capacity,
    unit: Unit::TOKEN,
    inputs: KV_MEMORY_INPUTS,
    formula: Formula::Scalar {
        text: "floor(kv_memory_bytes / (bytes_per_token * block_size)) * block_size",
        eval: |x| {
            let tokens =
                kv_tokens(Bytes::new(x[0])?, BytesPerToken::new(x[1])?, whole("block_size", x[2])?);
            computed_as(Unit::TOKEN, tokens.map(|n| n as f64))
        },
        example: (&[17_179_869_184.0, 57_344.0, 16.0], 299_584.0),
    },
    path: "metrics_core::model::kv_tokens",
    source: Source {
        work: "vLLM at 001cabc `vllm/v1/core/kv_cache_utils.py`",
        section: "`get_num_blocks`",
    },
    note: text(
        "Requests fill their last block only in part, so that fewer of their tokens fit.",
        "每个请求的最后一块通常未填满，因此实际可容纳的 token 更少。",
    ),
    exported: &[],
};

/// Requests of full length that the KV cache holds at once.
///
/// ```text
/// full_length_concurrency = n_blocks / ceil(max_model_len / block_size)
/// ```
///
/// `n_blocks` and `block_size` as in [`kv_blocks`]; `max_model_len` is the longest request, prompt
/// and answer together, which takes whole blocks. vLLM prints it at start-up as "Maximum
/// concurrency". A floor, not a prediction: most requests are shorter and grow only as they decode,
/// so that more fit.
///
/// # Errors
///
/// [`Error::TooSmall`] if `block_size` or `max_model_len` is 0, [`Error::TooLarge`] if an input is
/// above 2^53.
///
/// # Examples
///
/// ```
/// use metrics_core::{model::full_length_concurrency, units::Requests};
///
/// // A request of 2,048 tokens takes 128 blocks of 16.
/// assert_eq!(full_length_concurrency(1_280, 16, 2_048)?, Requests::new(10.0)?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: vLLM at 001cabc `vllm/v1/core/kv_cache_utils.py`, `get_max_concurrency_for_kv_cache_config`.
pub fn full_length_concurrency(
    n_blocks: u64,
    block_size: u64,
    max_model_len: u64,
) -> Result<Requests> {
    count("block_size", block_size)?;
    count("max_model_len", max_model_len)?;
    let blocks_each = max_model_len.div_ceil(block_size) as f64;
    Requests::new(exact("n_blocks", n_blocks)? / blocks_each)
}

/// The catalog entry of [`full_length_concurrency`].
#[cfg(feature = "catalog")]
pub const FULL_LENGTH_CONCURRENCY: Metric = Metric {
    id: "full_length_concurrency",
    symbol: r"B_{\mathrm{full}}",
    name: text("Requests of full length that fit", "可同时容纳的满长度请求数"),
    layer: Layer::Capacity,
    unit: Unit::REQUEST,
    inputs: &[
        // Blocks over blocks per request: the second count belongs to one request.
        Input::whole(
            "n_blocks",
            r"N_{\text{blocks}}",
            Unit::BLOCK,
            (0.0, 1_000_000.0),
            text("KV blocks", "KV 块数"),
        )
        .counts_as(Unit::BLOCK.times(Unit::REQUEST)),
        BLOCK_SIZE,
        Input::whole(
            "max_model_len",
            r"T_{\max}",
            Unit::TOKEN,
            (1.0, 1_048_576.0),
            text("longest request, prompt and answer", "最长请求的 token 数（输入与输出之和）"),
        ),
    ],
    formula: Formula::Scalar {
        text: "n_blocks / ceil(max_model_len / block_size)",
        eval: |x| {
            computed(full_length_concurrency(
                whole("n_blocks", x[0])?,
                whole("block_size", x[1])?,
                whole("max_model_len", x[2])?,
            ))
        },
        example: (&[1280.0, 16.0, 2048.0], 10.0),
    },
    path: "metrics_core::model::full_length_concurrency",
    source: Source {
        work: "vLLM at 001cabc `vllm/v1/core/kv_cache_utils.py`",
        section: "`get_max_concurrency_for_kv_cache_config`",
    },
    note: text(
        "A floor, not a prediction: requests shorter than the longest leave room for more.",
        "这是下限而非预测：请求短于最大长度时可容纳更多。",
    ),
    exported: &[],
};

/// How the layers of a group attend, as far as it decides what they keep of each token.
///
/// Plain data; [`KvShape::new`] checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Attention {
    /// Multi-head: every head keeps its own keys and values.
    Mha {
        /// Attention heads.
        heads: u64,
        /// Elements of one head.
        head_dim: u64,
    },
    /// Grouped-query: several heads share keys and values.
    Gqa {
        /// Heads that keep keys and values.
        kv_heads: u64,
        /// Elements of one head.
        head_dim: u64,
        /// Query heads, a multiple of `kv_heads`; not needed for memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heads: Option<u64>,
    },
    /// Multi-query: all heads share one set of keys and values.
    Mqa {
        /// Elements of one head.
        head_dim: u64,
    },
    /// Multi-head latent attention: one latent vector and one positional key for all heads.
    Mla {
        /// Elements of the latent vector.
        kv_lora_rank: u64,
        /// Elements of the positional key; may be 0.
        qk_rope_head_dim: u64,
    },
    /// Attention to the last `window` tokens only; older ones are dropped from the cache.
    SlidingWindow {
        /// Heads that keep keys and values.
        kv_heads: u64,
        /// Elements of one head.
        head_dim: u64,
        /// Most tokens held.
        window: u64,
    },
    /// Nothing per token: linear attention and state-space layers, whose state has a fixed size
    /// that is not counted here, and layers that share another layer's cache.
    NoKv,
}

/// Layers of one kind.
///
/// Plain data; [`KvShape::new`] checks it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerGroup {
    /// How many layers.
    pub layers: u64,
    /// How they attend.
    pub attention: Attention,
    /// Bytes of one element of their cache: 2 for bf16, 1 for fp8, 0.5 for plain fp4.
    pub dtype_bytes: f64,
}

impl LayerGroup {
    /// What the cache of these layers gains with a token, before any window is full.
    ///
    /// # Errors
    ///
    /// As [`kv_bytes_per_token`] and [`mla_kv_bytes_per_token`]; [`Error::Contradiction`] if the
    /// query heads are no multiple of the KV heads.
    pub fn kv_bytes_per_token(&self) -> Result<BytesPerToken> {
        let plain = |kv_heads, head_dim| {
            kv_bytes_per_token(self.layers, kv_heads, head_dim, self.dtype_bytes)
        };
        match self.attention {
            Attention::Mha { heads, head_dim } => plain(heads, head_dim),
            Attention::Gqa { kv_heads, head_dim, heads } => {
                let bytes = plain(kv_heads, head_dim)?;
                match heads {
                    Some(heads) if heads == 0 || heads % kv_heads != 0 => {
                        Err(Error::Contradiction {
                            what: format!(
                                "heads must be a multiple of kv_heads = {kv_heads}, got {heads}"
                            ),
                        })
                    }
                    _ => Ok(bytes),
                }
            }
            Attention::Mqa { head_dim } => plain(1, head_dim),
            Attention::Mla { kv_lora_rank, qk_rope_head_dim } => mla_kv_bytes_per_token(
                self.layers,
                kv_lora_rank,
                qk_rope_head_dim,
                self.dtype_bytes,
            ),
            Attention::SlidingWindow { kv_heads, head_dim, .. } => plain(kv_heads, head_dim),
            Attention::NoKv => {
                count("layers", self.layers)?;
                dtype(self.dtype_bytes)?;
                Ok(BytesPerToken::ZERO)
            }
        }
    }

    /// What one of `gpus` GPUs keeps of these layers under tensor parallelism.
    ///
    /// KV heads are divided; where there are fewer of them than GPUs, each GPU keeps one, so that
    /// several keep the same. MQA, MLA and layers without a cache are not divided.
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`] for no GPU; [`Error::Contradiction`] if neither the KV heads are a
    /// multiple of the GPUs nor the GPUs of the KV heads, which engines refuse too.
    pub fn of_one_gpu(&self, gpus: u64) -> Result<Self> {
        count("gpus", gpus)?;
        let share = |heads: u64| {
            if heads.is_multiple_of(gpus) {
                Ok(heads / gpus)
            } else if 0 < heads && gpus.is_multiple_of(heads) {
                Ok(1)
            } else {
                Err(Error::Contradiction {
                    what: format!(
                        "{heads} KV heads cannot be divided over {gpus} GPUs: one number must be a \
                         multiple of the other"
                    ),
                })
            }
        };
        let attention = match self.attention {
            Attention::Mha { heads, head_dim } => Attention::Mha { heads: share(heads)?, head_dim },
            Attention::Gqa { kv_heads, head_dim, .. } => {
                Attention::Gqa { kv_heads: share(kv_heads)?, head_dim, heads: None }
            }
            Attention::SlidingWindow { kv_heads, head_dim, window } => {
                Attention::SlidingWindow { kv_heads: share(kv_heads)?, head_dim, window }
            }
            whole => whole,
        };
        Ok(Self { attention, ..*self })
    }

    /// The most tokens of a request that these layers hold, if there is a limit.
    fn window(&self) -> Result<Option<u64>> {
        match self.attention {
            Attention::SlidingWindow { window, .. } => {
                count("window", window)?;
                Ok(Some(window))
            }
            _ => Ok(None),
        }
    }
}

/// The fields of a model's shape before they are checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFields {
    /// All parameters, of a mixture of experts those of every expert.
    pub params: u64,
    /// Parameters that one token passes; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_params: Option<u64>,
    /// Mean bytes of a parameter: 2 for bf16.
    pub weight_dtype_bytes: f64,
    /// The layers by kind, in any order.
    pub layer_groups: Vec<LayerGroup>,
}

/// The layers of a model as its KV cache sees them, checked once when made.
///
/// # Examples
///
/// ```
/// use metrics_core::model::{Attention, KvShape, LayerGroup};
///
/// // Gemma 3 27B in bf16: 10 layers see everything, 52 the last 1,024 tokens.
/// let full = Attention::Gqa { kv_heads: 16, head_dim: 128, heads: Some(32) };
/// let window = Attention::SlidingWindow { kv_heads: 16, head_dim: 128, window: 1024 };
/// let kv = KvShape::new(vec![
///     LayerGroup { layers: 10, attention: full, dtype_bytes: 2.0 },
///     LayerGroup { layers: 52, attention: window, dtype_bytes: 2.0 },
/// ])?;
/// assert_eq!(kv.bytes_per_token().get(), 81_920.0);
/// assert_eq!(kv.bytes(1_000)?.get(), 62.0 * 8_192.0 * 1_000.0);
/// assert_eq!(kv.bytes(10_000)?.get(), 81_920.0 * 10_000.0 + 52.0 * 8_192.0 * 1_024.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KvShape {
    groups: Vec<LayerGroup>,
    /// What each group gains with a token, and up to how many tokens.
    caches: Vec<(BytesPerToken, Option<u64>)>,
    unbounded: BytesPerToken,
}

impl KvShape {
    /// Checks the layers of a model.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] without layers; [`Error::TooSmall`], [`Error::NotAbove`] or
    /// [`Error::TooLarge`] for a count or size out of range, or a sum above 2^53;
    /// [`Error::Contradiction`] if query heads are no multiple of KV heads.
    pub fn new(groups: Vec<LayerGroup>) -> Result<Self> {
        if groups.is_empty() {
            return Err(Error::Empty { input: "layer_groups", item: "group" });
        }
        let caches = groups
            .iter()
            .map(|group| Ok((group.kv_bytes_per_token()?, group.window()?)))
            .collect::<Result<Vec<_>>>()?;
        bytes_per_token(caches.iter().map(|(bytes, _)| bytes.get()).sum())?;
        let unbounded =
            caches.iter().filter(|(_, window)| window.is_none()).map(|&(bytes, _)| bytes).sum();
        Ok(Self { groups, caches, unbounded })
    }

    /// What one of `gpus` GPUs keeps under tensor parallelism.
    ///
    /// # Errors
    ///
    /// As [`LayerGroup::of_one_gpu`].
    pub fn of_one_gpu(&self, gpus: u64) -> Result<Self> {
        Self::new(self.groups.iter().map(|g| g.of_one_gpu(gpus)).collect::<Result<_>>()?)
    }

    /// The layers by kind.
    #[must_use]
    pub fn layer_groups(&self) -> &[LayerGroup] {
        &self.groups
    }

    /// What each group of layers gains with a token, and up to how many tokens.
    pub(crate) fn caches(&self) -> &[(BytesPerToken, Option<u64>)] {
        &self.caches
    }

    /// KV bytes that each further token of a long request takes: full attention and MLA only.
    ///
    /// Sliding windows are full by then, and layers without a cache take nothing. It is what bounds
    /// the context; a short request takes more per token, see [`Self::bytes`]. Zero for a model
    /// without full attention.
    #[must_use]
    pub fn bytes_per_token(&self) -> BytesPerToken {
        self.unbounded
    }

    /// KV bytes of one request that holds `tokens` tokens.
    ///
    /// Layers with a sliding window hold at most the window. Bytes of tokens, not of blocks: an
    /// engine rounds each kind of layer up to whole blocks.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if `tokens` is above 2^53.
    #[inline]
    pub fn bytes(&self, tokens: u64) -> Result<Bytes> {
        exact("tokens", tokens)?;
        let mut bytes = Bytes::ZERO;
        for &(per_token, window) in &self.caches {
            let held = window.map_or(tokens, |window| tokens.min(window));
            bytes = bytes + per_token * Tokens::named("tokens", held as f64)?;
        }
        Ok(bytes)
    }
}

/// A model as its memory sees it, checked once when made.
///
/// # Examples
///
/// ```
/// use metrics_core::model::{Attention, LayerGroup, ModelFields, ModelShape};
///
/// let full = Attention::Gqa { kv_heads: 8, head_dim: 128, heads: Some(32) };
/// let model = ModelShape::new(ModelFields {
///     params: 8_000_000_000,
///     active_params: None,
///     weight_dtype_bytes: 2.0,
///     layer_groups: vec![LayerGroup { layers: 32, attention: full, dtype_bytes: 2.0 }],
/// })?;
/// assert_eq!(model.weights().get(), 16e9);
/// assert_eq!(model.kv().bytes_per_token().get(), 131_072.0);
/// assert_eq!(model.kv().bytes(1_000)?.get(), 131_072_000.0);
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ModelFields", into = "ModelFields")]
pub struct ModelShape {
    params: u64,
    active_params: Option<u64>,
    weight_dtype_bytes: f64,
    kv: KvShape,
    weights: Bytes,
}

impl ModelShape {
    /// Checks the fields of a model.
    ///
    /// # Errors
    ///
    /// As [`KvShape::new`] and [`weights_bytes`]; [`Error::Order`] if more parameters are active
    /// than there are.
    pub fn new(fields: ModelFields) -> Result<Self> {
        let weights = weights_bytes(fields.params, fields.weight_dtype_bytes)?;
        if let Some(active) = fields.active_params {
            let active = count("active_params", active)?;
            crate::error::difference(("params", fields.params as f64), ("active_params", active))?;
        }
        Ok(Self {
            params: fields.params,
            active_params: fields.active_params,
            weight_dtype_bytes: fields.weight_dtype_bytes,
            kv: KvShape::new(fields.layer_groups)?,
            weights,
        })
    }

    /// All parameters.
    #[must_use]
    pub fn params(&self) -> u64 {
        self.params
    }

    /// Parameters that one token passes.
    #[must_use]
    pub fn active_params(&self) -> u64 {
        self.active_params.unwrap_or(self.params)
    }

    /// The layers as the KV cache sees them.
    #[must_use]
    pub fn kv(&self) -> &KvShape {
        &self.kv
    }

    /// Bytes of the weights.
    #[must_use]
    pub fn weights(&self) -> Bytes {
        self.weights
    }
}

impl TryFrom<ModelFields> for ModelShape {
    type Error = Error;

    fn try_from(fields: ModelFields) -> Result<Self> {
        Self::new(fields)
    }
}

impl From<ModelShape> for ModelFields {
    fn from(model: ModelShape) -> Self {
        Self {
            params: model.params,
            active_params: model.active_params,
            weight_dtype_bytes: model.weight_dtype_bytes,
            layer_groups: model.kv.groups,
        }
    }
}

/// The entries of this family, in docs order.
#[cfg(feature = "catalog")]
pub const METRICS: &[&Metric] = &[
    &KV_BYTES_PER_TOKEN,
    &MLA_KV_BYTES_PER_TOKEN,
    &WEIGHTS_BYTES,
    &KV_BLOCKS,
    &KV_TOKENS,
    &FULL_LENGTH_CONCURRENCY,
];
