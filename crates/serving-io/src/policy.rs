//! Policies by their names, with what else a server under one of them can be told.
//!
//! `vllm-v1` is not among them: its options are those of [`engine`](crate::engine).

use sched_sim::{
    DecodeFirst, KvPool, Orca, Order, Policy, PrefillFirst, Result, Sarathi, ServerSettings,
    SgLang, StaticBatch,
};

/// Most prompt tokens in a step of `prefill-first`, where nothing else is said.
pub const MAX_NUM_BATCHED_TOKENS: u64 = 4096;

/// Tokens in a KV block, where nothing else is said.
pub const BLOCK_SIZE: u64 = 16;

/// The policies that [`named`] makes.
pub const NAMES: [&str; 6] =
    ["decode-first", "prefill-first", "sarathi", "orca", "static", "sglang"];

/// What a server can be told besides its policy, its batch limit and its chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Most prompt tokens in a step; for `prefill-first` alone.
    pub max_num_batched_tokens: Option<u64>,
    /// Its KV blocks; none: as many as anybody asks for.
    pub kv_blocks: Option<u64>,
    /// Tokens in a KV block.
    pub block_size: Option<u64>,
    /// Who is next in the queue.
    pub order: Option<Order>,
}

impl ServerOptions {
    /// Name and value of what is given.
    #[must_use]
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let counts = [
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("kv_blocks", self.kv_blocks),
            ("block_size", self.block_size),
        ];
        let counts = counts.into_iter().filter_map(|(name, n)| Some((name, n?.to_string())));
        counts.chain(self.order.map(|order| ("order", order.to_string()))).collect()
    }

    /// The settings of the server.
    ///
    /// # Errors
    ///
    /// [`SimError`](sched_sim::SimError) for a pool without blocks, or blocks without tokens.
    pub fn settings(&self) -> Result<ServerSettings> {
        let mut settings = ServerSettings::default();
        settings.order = self.order.unwrap_or_default();
        let size = self.block_size.unwrap_or(BLOCK_SIZE);
        settings.kv = self.kv_blocks.map(|blocks| KvPool::new(blocks, size)).transpose()?;
        Ok(settings)
    }
}

/// Whether a policy has a chunk: most prompt tokens of one request, or of all, in a step.
#[must_use]
pub fn takes_chunk(name: &str) -> bool {
    matches!(name, "decode-first" | "sarathi" | "sglang")
}

/// The policy of this name; `None` if there is none.
///
/// # Errors
///
/// [`SimError`](sched_sim::SimError) for a limit of 0, or one that is too large.
///
/// # Examples
///
/// ```
/// use serving_io::policy::{NAMES, ServerOptions, named};
///
/// for name in NAMES {
///     let policy = named(name, 64, 512, &ServerOptions::default()).unwrap()?;
///     assert_eq!(policy.name(), name);
/// }
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[must_use]
pub fn named(
    name: &str,
    max_num_seqs: u64,
    chunk: u64,
    options: &ServerOptions,
) -> Option<Result<Box<dyn Policy>>> {
    fn boxed<P: Policy + 'static>(policy: Result<P>) -> Result<Box<dyn Policy>> {
        Ok(Box::new(policy?))
    }
    let tokens = options.max_num_batched_tokens.unwrap_or(MAX_NUM_BATCHED_TOKENS);
    Some(match name {
        "decode-first" => boxed(DecodeFirst::new(max_num_seqs, chunk)),
        "prefill-first" => boxed(PrefillFirst::new(max_num_seqs, tokens)),
        "sarathi" => boxed(Sarathi::new(max_num_seqs, chunk)),
        "orca" => boxed(Orca::new(max_num_seqs)),
        "static" => boxed(StaticBatch::new(max_num_seqs)),
        "sglang" => boxed(SgLang::new(max_num_seqs, chunk)),
        _ => return None,
    })
}
