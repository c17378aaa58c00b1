//! The KV blocks of one GPU, and how many requests they hold, as vLLM counts both.

use crate::error::{Error, Result};
use crate::model::{KvShape, full_length_concurrency, kv_blocks};
use crate::timeline::LARGEST_TOKENS;
use crate::units::{Bytes, BytesPerToken, Requests};

/// Groups of layers that share block tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    groups: u64,
    /// Tokens that its layers look back, if not all.
    window: Option<u64>,
}

/// The blocks of one GPU's KV cache.
///
/// Layers of one kind share a block table: a block holds `block_size` tokens of all of them. Where
/// some layers have a sliding window and others do not, vLLM forms groups of equally many layers of
/// one kind, each with its own table over one pool, so that a request takes blocks for each group:
/// up to its length for full attention, up to the window for the others. The size of a group is the
/// smaller number of layers, or the larger if that is less than half as much again, and the last
/// group of a kind is filled with layers that are not there.
///
/// # Examples
///
/// ```
/// use metrics_core::{kv_pool::KvPool, units::Bytes};
/// use metrics_core::model::{Attention, KvShape, LayerGroup};
///
/// let layers = |layers, attention| LayerGroup { layers, attention, dtype_bytes: 2.0 };
/// let full = Attention::Gqa { kv_heads: 4, head_dim: 128, heads: None };
/// let kv = KvShape::new(vec![layers(28, full)])?;
/// let pool = KvPool::of_memory(&kv, Bytes::new(17_179_869_184.0)?, 16)?;
/// assert_eq!((pool.blocks(), pool.tokens(2_048, 2_048)?), (18_724, 299_584));
///
/// // Six groups of two layers: one of full attention and five that hold at most 33 + 1 blocks.
/// let window = Attention::SlidingWindow { kv_heads: 4, head_dim: 128, window: 512 };
/// let kv = KvShape::new(vec![layers(2, full), layers(10, window)])?;
/// let pool = KvPool::of_memory(&kv, Bytes::new(1_073_741_824.0)?, 16)?;
/// assert_eq!(pool.blocks(), 16_384);
/// assert_eq!(pool.blocks_of_request(16_000, 16)?, 1_000 + 5 * 34);
/// # Ok::<(), metrics_core::Error>(())
/// ```
///
/// Source: vLLM at 001cabc `vllm/v1/core/kv_cache_utils.py`,
/// `_get_kv_cache_groups_uniform_page_size`, `get_max_concurrency_for_kv_cache_config` and
/// `get_kv_cache_capacity`, and `SlidingWindowSpec.max_memory_usage_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPool {
    blocks: u64,
    block_size: u64,
    kinds: Vec<Kind>,
}

impl KvPool {
    /// The blocks that fit into `memory`, for the layers that the GPU keeps of a model.
    ///
    /// # Errors
    ///
    /// [`Error::Contradiction`] if no layer keeps anything, or layers differ in their bytes per
    /// token, for which vLLM's block sizes differ too and which is not counted here;
    /// otherwise as [`kv_blocks`].
    pub fn of_memory(kv: &KvShape, memory: Bytes, block_size: u64) -> Result<Self> {
        let (kinds, per_token) = kinds(kv)?;
        let blocks = kv_blocks(memory, per_token, block_size)?;
        Ok(Self { blocks, block_size, kinds })
    }

    /// A pool of known size, for the layers that the GPU keeps of a model; without a model, for one
    /// kind of layers that hold all tokens.
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`] if `block_size` is 0; with a model as [`Self::of_memory`].
    pub fn of_blocks(kv: Option<&KvShape>, blocks: u64, block_size: u64) -> Result<Self> {
        full_length_concurrency(blocks, block_size, 1)?;
        let kinds = match kv {
            Some(kv) => kinds(kv)?.0,
            None => vec![Kind { groups: 1, window: None }],
        };
        Ok(Self { blocks, block_size, kinds })
    }

    /// How many blocks there are, the one that vLLM keeps for itself included.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Tokens of a block.
    #[must_use]
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Whether all layers hold all tokens of a request.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.kinds.as_slice(), [Kind { groups: 1, window: None }])
    }

    /// The most blocks that a request of `tokens` tokens takes, if a step adds up to `step_tokens`
    /// of them at a time.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] above 2^53.
    pub fn blocks_of_request(&self, tokens: u64, step_tokens: u64) -> Result<u64> {
        let mut blocks = 0_u64;
        for kind in &self.kinds {
            let each = match kind.window {
                None => tokens.div_ceil(self.block_size),
                // A step computes on top of the window, and the window may begin inside a block.
                Some(window) => {
                    let seen = (window - 1).saturating_add(step_tokens);
                    tokens.min(seen).div_ceil(self.block_size) + 1
                }
            };
            blocks = blocks.saturating_add(each.saturating_mul(kind.groups));
        }
        if LARGEST_TOKENS < blocks {
            let (max, value) = (LARGEST_TOKENS as f64, blocks as f64);
            return Err(Error::TooLarge { input: "blocks of a request", max, value });
        }
        Ok(blocks)
    }

    /// Requests of `tokens` tokens that fit at once; at the longest length it is what vLLM prints at
    /// its start as "Maximum concurrency".
    ///
    /// # Errors
    ///
    /// [`Error::TooSmall`] for requests without tokens, [`Error::TooLarge`] above 2^53.
    pub fn concurrency(&self, tokens: u64, step_tokens: u64) -> Result<Requests> {
        crate::error::at_least("tokens", tokens as f64, 1.0)?;
        // As many blocks of one token each make the formula that of the catalog.
        full_length_concurrency(self.blocks, 1, self.blocks_of_request(tokens, step_tokens)?)
    }

    /// What vLLM prints at its start as "GPU KV cache size": the tokens of as many requests of
    /// `max_model_len` as fit, and the blocks' tokens if all layers hold all of them.
    ///
    /// # Errors
    ///
    /// As [`Self::concurrency`].
    pub fn tokens(&self, max_model_len: u64, step_tokens: u64) -> Result<u64> {
        let tokens = if self.is_plain() {
            u128::from(self.blocks) * u128::from(self.block_size)
        } else {
            self.concurrency(max_model_len, step_tokens)?;
            let each = self.blocks_of_request(max_model_len, step_tokens)?;
            u128::from(self.blocks) * u128::from(max_model_len) / u128::from(each)
        };
        match u64::try_from(tokens) {
            Ok(tokens) if tokens <= LARGEST_TOKENS => Ok(tokens),
            _ => Err(Error::TooLarge {
                input: "kv tokens",
                max: LARGEST_TOKENS as f64,
                value: tokens as f64,
            }),
        }
    }
}

/// The groups of layers by kind, and the bytes that one group gains with a token.
fn kinds(kv: &KvShape) -> Result<(Vec<Kind>, BytesPerToken)> {
    let mut layers: Vec<(Option<u64>, u64)> = Vec::new();
    let mut per_layer: Option<f64> = None;
    for (group, &(bytes, window)) in kv.layer_groups().iter().zip(kv.caches()) {
        if bytes == BytesPerToken::ZERO {
            continue;
        }
        let one = bytes.get() / group.layers as f64;
        if let Some(other) = per_layer.replace(one)
            && other != one
        {
            return Err(Error::Contradiction {
                what: format!(
                    "some layers keep {other} and others {one} bytes of a token: blocks are counted \
                     for layers that keep equally many"
                ),
            });
        }
        match layers.iter_mut().find(|(other, _)| *other == window) {
            Some((_, n)) => *n += group.layers,
            None => layers.push((window, group.layers)),
        }
    }
    let counts = || layers.iter().map(|&(_, n)| n);
    let (Some(per_layer), Some(least), Some(most)) = (per_layer, counts().min(), counts().max())
    else {
        return Err(Error::Contradiction {
            what: "no layer keeps keys and values, so that there are no KV blocks".to_owned(),
        });
    };
    let size = if 2 * most < 3 * least { most } else { least };
    let kinds =
        layers.iter().map(|&(window, n)| Kind { groups: n.div_ceil(size), window }).collect();
    Ok((kinds, BytesPerToken::named("kv bytes per token", per_layer * size as f64)?))
}
