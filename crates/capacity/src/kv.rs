//! How much a KV cache holds: bytes per token, blocks, tokens, and requests that fit at once.
//!
//! # Examples
//!
//! ```
//! use capacity::kv::{KvMemory, KvQuestion, answer};
//! use metrics_core::{grammar, model::{Attention, KvShape, LayerGroup}};
//!
//! let attention = Attention::Gqa { kv_heads: 4, head_dim: 128, heads: None };
//! let kv = KvShape::new(vec![LayerGroup { layers: 28, attention, dtype_bytes: 2.0 }])?;
//! let mut question = KvQuestion::new(Some(kv));
//! question.memory = KvMemory::PerGpu(grammar::size("16GiB")?);
//! question.context = Some(8192);
//! question.mean_tokens = Some(3500);
//! let found = answer(&question)?;
//! let pool = found.pool.expect("there is a memory");
//! assert_eq!((pool.blocks, pool.tokens), (18_724, 299_584));
//! // 512 blocks of 16 tokens at full length, 219 at the mean.
//! assert_eq!(pool.requests_at_context, Some(18_724.0 / 512.0));
//! assert_eq!(pool.requests_at_mean, Some(18_724.0 / 219.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use metrics_core::kv_pool::KvPool;
use metrics_core::model::KvShape;
use metrics_core::units::Bytes;
use metrics_core::validity::Finding;
use metrics_core::validity::engine::printed_concurrency;
use serving_io::machine::{gib, kv_memory};

use crate::error::{FitError, Result};

/// Where the memory of the KV cache comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum KvMemory {
    /// It is not known: only what tokens and requests take is answered.
    #[default]
    Unknown,
    /// So many blocks, as an engine's log says.
    Blocks(u64),
    /// So many bytes of each GPU.
    PerGpu(Bytes),
    /// What a share of each GPU's memory leaves beside weights and reserve.
    Share {
        /// Memory of one GPU.
        gpu_memory: Bytes,
        /// The share that the server takes.
        utilization: f64,
        /// Weights of the whole model.
        weights: Bytes,
        /// Memory of each GPU for activations and graphs.
        reserved: Bytes,
    },
}

/// What a KV cache is asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KvQuestion {
    /// The layers of the whole model; `None` if only blocks are known.
    pub kv: Option<KvShape>,
    /// GPUs of one replica, by tensor parallelism.
    pub tensor_parallel: u32,
    /// Tokens of a block.
    pub block_size: u64,
    /// The memory.
    pub memory: KvMemory,
    /// The longest request, prompt and answer.
    pub context: Option<u64>,
    /// What a request holds on average while it is served.
    pub mean_tokens: Option<u64>,
    /// Most tokens of a step, which layers with a window hold on top of it.
    pub step_tokens: u64,
    /// Requests that are sent at once.
    pub concurrency: Option<u64>,
}

impl KvQuestion {
    /// A question about one GPU with blocks of 16 tokens and steps of 8,192.
    #[must_use]
    pub fn new(kv: Option<KvShape>) -> Self {
        Self {
            kv,
            tensor_parallel: 1,
            block_size: 16,
            memory: KvMemory::Unknown,
            context: None,
            mean_tokens: None,
            step_tokens: 8192,
            concurrency: None,
        }
    }
}

/// What a KV cache holds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KvAnswer {
    /// Bytes that each further token of a long request takes, over all layers, once.
    pub bytes_per_token: Option<f64>,
    /// The same on each GPU.
    pub bytes_per_token_per_gpu: Option<f64>,
    /// Bytes of a request of full length, once.
    pub request_bytes: Option<f64>,
    /// Bytes of a request of mean occupancy, once.
    pub mean_request_bytes: Option<f64>,
    /// Whether some layers have a sliding window.
    pub has_windows: bool,
    /// Weights on each GPU, where they decide the memory.
    pub weights_per_gpu: Option<Bytes>,
    /// Memory of each GPU for the cache.
    pub memory_per_gpu: Option<Bytes>,
    /// What fits, if the memory is known.
    pub pool: Option<KvFit>,
}

/// What fits into a pool of blocks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KvFit {
    /// Blocks, the one that vLLM keeps for itself included.
    pub blocks: u64,
    /// Tokens that vLLM prints as "GPU KV cache size".
    pub tokens: u64,
    /// Requests of full length that fit, which vLLM prints as "Maximum concurrency".
    pub requests_at_context: Option<f64>,
    /// Requests of mean occupancy that fit.
    pub requests_at_mean: Option<f64>,
    /// What the requests sent at once want, over what there is.
    pub demand: Option<f64>,
    /// That the printed concurrency is for the longest requests (W20).
    pub finding: Option<Finding>,
}

/// Answers a question.
///
/// # Errors
///
/// [`FitError::Option`] that names the input: a count of 0, a mean above the longest request,
/// memory that does not hold one request of full length; [`FitError::Metric`] for a shape that
/// cannot be divided or counted.
pub fn answer(q: &KvQuestion) -> Result<KvAnswer> {
    let at_least_one = |option, n: Option<u64>| match n {
        Some(0) => Err(wrong(option, "expected at least 1, got 0")),
        _ => Ok(()),
    };
    at_least_one("--block-size", Some(q.block_size))?;
    at_least_one("--context", q.context)?;
    at_least_one("--mean-tokens", q.mean_tokens)?;
    at_least_one("--concurrency", q.concurrency)?;
    at_least_one("--tp", Some(u64::from(q.tensor_parallel)))?;
    at_least_one("--max-num-batched-tokens", Some(q.step_tokens))?;
    if let (Some(mean), Some(context)) = (q.mean_tokens, q.context)
        && context < mean
    {
        return Err(wrong(
            "--mean-tokens",
            format!("{mean} is above the {context} tokens of the longest request"),
        ));
    }
    let gpus = q.tensor_parallel;
    let kv = q.kv.as_ref();
    let one = kv.map(|kv| kv.of_one_gpu(u64::from(gpus))).transpose()?;
    let bytes = |tokens: Option<u64>| -> Result<Option<f64>> {
        let Some((kv, tokens)) = kv.zip(tokens) else { return Ok(None) };
        Ok(Some(kv.bytes(tokens)?.get()))
    };
    let (weights_per_gpu, memory_per_gpu) = memory(q)?;
    let pool = match (&one, q.memory, memory_per_gpu) {
        (kv, KvMemory::Blocks(n), _) => Some(KvPool::of_blocks(kv.as_ref(), n, q.block_size)?),
        (Some(kv), _, Some(memory)) => Some(KvPool::of_memory(kv, memory, q.block_size)?),
        (None, _, Some(_)) => {
            return Err(wrong("--memory-for-kv", "needs a model, or layers, heads and head size"));
        }
        (_, _, None) => None,
    };
    Ok(KvAnswer {
        bytes_per_token: kv.map(|kv| kv.bytes_per_token().get()),
        bytes_per_token_per_gpu: one.as_ref().map(|kv| kv.bytes_per_token().get()),
        request_bytes: bytes(q.context)?,
        mean_request_bytes: bytes(q.mean_tokens)?,
        has_windows: pool.as_ref().is_some_and(|p| !p.is_plain()),
        weights_per_gpu,
        memory_per_gpu,
        pool: pool.map(|pool| fit(q, &pool)).transpose()?,
    })
}

/// Weights and cache on each GPU, as far as they are known.
fn memory(q: &KvQuestion) -> Result<(Option<Bytes>, Option<Bytes>)> {
    match q.memory {
        KvMemory::Unknown | KvMemory::Blocks(_) => Ok((None, None)),
        KvMemory::PerGpu(memory) => Ok((None, Some(memory))),
        KvMemory::Share { gpu_memory, utilization, weights, reserved } => {
            let part = weights.get() / f64::from(q.tensor_parallel);
            let Some(left) = kv_memory(gpu_memory, utilization, part, reserved) else {
                return Err(wrong(
                    "--gpu-memory-utilization",
                    format!(
                        "{utilization} of {} GiB is {} GiB, which the {} GiB of weights and {} GiB of \
                         reserve on each GPU leave nothing of: use more GPUs (--tp) or a smaller type",
                        gib(gpu_memory.get()),
                        gib(gpu_memory.get() * utilization),
                        gib(part),
                        gib(reserved.get())
                    ),
                ));
            };
            Ok((Some(Bytes::new(part)?), Some(left)))
        }
    }
}

/// What fits into the blocks.
fn fit(q: &KvQuestion, pool: &KvPool) -> Result<KvFit> {
    let tokens = match q.context {
        Some(context) => pool.tokens(context, q.step_tokens)?,
        // Without a length there are only the blocks' own tokens.
        None if pool.is_plain() => pool.tokens(1, 1)?,
        None => {
            return Err(wrong(
                "--context",
                "is needed: how much layers with a sliding window hold depends on the length",
            ));
        }
    };
    let at = |tokens: Option<u64>, step| -> Result<Option<f64>> {
        let fit = tokens.map(|n| pool.concurrency(n, step)).transpose()?;
        Ok(fit.map(metrics_core::units::Requests::get))
    };
    let requests_at_context = at(q.context, q.step_tokens)?;
    if let (Some(fit), Some(context)) = (requests_at_context, q.context)
        && fit < 1.0
    {
        let problem = too_long(pool, context, q.step_tokens)?;
        return Err(wrong("--context", problem));
    }
    // While a request decodes, a step adds one token to it.
    let requests_at_mean = at(q.mean_tokens, 1)?;
    if let (Some(fit), Some(mean)) = (requests_at_mean, q.mean_tokens)
        && fit < 1.0
    {
        return Err(wrong("--mean-tokens", too_long(pool, mean, 1)?));
    }
    let finding = match (q.context, requests_at_mean) {
        (Some(context), Some(n)) if 0.0 < n => {
            printed_concurrency(tokens, context, tokens as f64 / n)
        }
        _ => None,
    };
    Ok(KvFit {
        blocks: pool.blocks(),
        tokens,
        requests_at_context,
        requests_at_mean,
        demand: q
            .concurrency
            .zip(requests_at_mean)
            .filter(|x| 0.0 < x.1)
            .map(|(c, n)| c as f64 / n),
        finding,
    })
}

/// That a request is longer than the cache.
fn too_long(pool: &KvPool, tokens: u64, step_tokens: u64) -> Result<String> {
    Ok(format!(
        "a request of {tokens} tokens needs {} blocks and the KV cache has {}, {} tokens: no engine \
         starts so; shorten it, or give the cache more memory",
        pool.blocks_of_request(tokens, step_tokens)?,
        pool.blocks(),
        pool.blocks().saturating_mul(pool.block_size())
    ))
}

fn wrong(option: &'static str, problem: impl Into<String>) -> FitError {
    FitError::Option { option, problem: problem.into() }
}
