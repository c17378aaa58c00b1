//! What the scheduler is told, under vLLM's own names and with its defaults.

use std::fmt;
use std::str::FromStr;

use crate::error::{Result, SimError};

/// A release of vLLM. Rules that came later than it are off.
///
/// Only the rules below are dated. What else differed in older releases was not looked up, so that
/// step-by-step agreement is claimed for 0.33.0 alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineVersion {
    major: u16,
    minor: u16,
    patch: u16,
}

impl EngineVersion {
    /// 0.33.0, whose scheduler this one follows step by step.
    pub const V0_33_0: Self = Self::new(0, 33, 0);
    /// 0.8.5, the oldest release that is answered for.
    pub const OLDEST: Self = Self::new(0, 8, 5);

    // The release in which each rule was first seen; the one before it that was looked at did not
    // have it. A release between the two counts as not having it.
    /// Async scheduling is the default (not yet in 0.11.0).
    pub const ASYNC_BY_DEFAULT: Self = Self::new(0, 14, 1);
    /// `scheduler_reserve_full_isl`, on by default (not yet in 0.18.1).
    pub const RESERVE_FULL_ISL: Self = Self::new(0, 20, 2);
    /// Blocks outside the prefix cache are freed to the front; `watermark`;
    /// `prefill_schedule_interval` (not yet in 0.22.1).
    pub const UNREGISTERED_FIRST: Self = Self::new(0, 24, 0);
    /// A lone request is exempt from the long-prefill cap; `max_num_active_seqs`; the adaptive
    /// cap (not yet in 0.30.0).
    pub const LONE_REQUEST_EXEMPT: Self = Self::new(0, 31, 0);
    /// Under the priority policy, the pass over running requests goes on after one of them
    /// preempted itself (not yet in 0.32.0).
    pub const PASS_GOES_ON: Self = Self::new(0, 33, 0);

    /// A release by its three numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for EngineVersion {
    type Err = SimError;

    fn from_str(s: &str) -> Result<Self> {
        let mut numbers = s.split('.').map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => {
                Ok(Self::new(major, minor, patch))
            }
            _ => Err(SimError::Grammar {
                what: "engine version",
                text: s.to_owned(),
                expected: "three numbers, for example 0.33.0".to_owned(),
            }),
        }
    }
}

/// Who runs first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueuePolicy {
    /// `fcfs`: in order of arrival.
    #[default]
    Fcfs,
    /// `priority`: the lower value first, then the earlier arrival.
    Priority,
}

/// Who starts the engine; two defaults depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Usage {
    /// `vllm serve`.
    ApiServer,
    /// The class `LLM`.
    Offline,
}

/// The options of vLLM's scheduler and KV cache, under vLLM's own names.
///
/// `None` means what vLLM takes when the option is not given.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VllmConfig {
    /// The release whose rules apply.
    pub engine_version: EngineVersion,
    /// Tokens in a block.
    pub block_size: u64,
    /// Blocks of the pool. vLLM sets one of them aside as the null block: `num_blocks − 1` can be
    /// used.
    pub num_blocks: u64,
    /// Most tokens of a request, prompt and answer.
    pub max_model_len: u64,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u64,
    /// Most requests that run at once.
    pub max_num_seqs: u64,
    /// Most requests that the scheduler lets run; `max_num_seqs` if not given.
    pub max_num_active_seqs: Option<u64>,
    /// Most tokens that the scheduler gives out in a step; `max_num_batched_tokens` if not given.
    pub max_num_scheduled_tokens: Option<u64>,
    /// Whether a prompt can be cut to what is left of the step.
    pub enable_chunked_prefill: bool,
    /// Whether filled blocks are kept for equal prefixes.
    pub enable_prefix_caching: bool,
    /// Who runs first.
    pub policy: QueuePolicy,
    /// Two steps in flight. Not given: on from 0.14.1.
    pub async_scheduling: Option<bool>,
    /// Most tokens of one request in a step; 0 is no limit.
    pub long_prefill_token_threshold: u64,
    /// Whether that limit rises to an equal share of `max_num_batched_tokens`.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Whether an admission needs room for all known tokens, not only for its first chunk. Not
    /// given: on from 0.20.2.
    pub scheduler_reserve_full_isl: Option<bool>,
    /// Share of the blocks that an admission leaves free while something runs.
    pub watermark: f64,
    /// While something decodes, prefill runs at most every so many steps.
    pub prefill_schedule_interval: u64,
}

impl VllmConfig {
    /// The defaults of a bare `SchedulerConfig` of vLLM 0.33.0 for a pool of `num_blocks` (one of
    /// which is the null block) and requests of up to `max_model_len` tokens.
    #[must_use]
    pub fn new(num_blocks: u64, max_model_len: u64) -> Self {
        Self {
            engine_version: EngineVersion::V0_33_0,
            block_size: 16,
            num_blocks,
            max_model_len,
            max_num_batched_tokens: 2048,
            max_num_seqs: 128,
            max_num_active_seqs: None,
            max_num_scheduled_tokens: None,
            enable_chunked_prefill: true,
            enable_prefix_caching: true,
            policy: QueuePolicy::Fcfs,
            async_scheduling: None,
            long_prefill_token_threshold: 0,
            long_prefill_token_threshold_adaptive: false,
            scheduler_reserve_full_isl: None,
            watermark: 0.0,
            prefill_schedule_interval: 1,
        }
    }

    /// Sets the step's token and request limits as vLLM 0.33.0 does by the memory of the GPU
    /// when neither is given. `a100_or_gb10` because those two keep the small limits at any size
    /// below 160 GiB.
    ///
    /// Call it after `enable_chunked_prefill` and `max_model_len` are set: without chunks a step
    /// must hold a whole prompt, and no step needs more than `max_num_seqs` whole requests.
    #[must_use]
    pub fn with_gpu_defaults(mut self, memory_gib: f64, a100_or_gb10: bool, usage: Usage) -> Self {
        let (serve, offline) = if 160.0 <= memory_gib {
            ((16_384, 1024), (16_384, 1024))
        } else if 70.0 <= memory_gib && !a100_or_gb10 {
            ((8192, 1024), (16_384, 1024))
        } else {
            ((2048, 256), (8192, 256))
        };
        let (mut tokens, seqs) = match usage {
            Usage::ApiServer => serve,
            Usage::Offline => offline,
        };
        if !self.enable_chunked_prefill {
            tokens = self.max_model_len.max(tokens);
        }
        self.max_num_seqs = seqs;
        self.max_num_batched_tokens = tokens.min(self.max_model_len.saturating_mul(seqs));
        self
    }

    /// Whether two steps are in flight.
    #[must_use]
    pub fn is_async(&self) -> bool {
        self.async_scheduling.unwrap_or(EngineVersion::ASYNC_BY_DEFAULT <= self.engine_version)
    }

    /// Whether a rule of this release is in force.
    pub(super) fn has(&self, rule: EngineVersion) -> bool {
        rule <= self.engine_version
    }

    /// Whether an admission needs room for all known tokens.
    #[must_use]
    pub fn reserves_full_isl(&self) -> bool {
        self.scheduler_reserve_full_isl
            .unwrap_or(EngineVersion::RESERVE_FULL_ISL <= self.engine_version)
    }

    /// What vLLM would refuse at start-up, and what the release does not know.
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        let at_least_1 = [
            ("block_size", self.block_size),
            ("max_model_len", self.max_model_len),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_active_seqs", self.max_num_active_seqs.unwrap_or(1)),
            ("max_num_scheduled_tokens", self.max_num_scheduled_tokens.unwrap_or(1)),
            ("prefill_schedule_interval", self.prefill_schedule_interval),
        ];
        for (option, value) in at_least_1 {
            if value < 1 {
                return Err(ConfigFault::BelowOne { option });
            }
        }
        if self.num_blocks < 2 {
            return Err(ConfigFault::NoUsableBlock { num_blocks: self.num_blocks });
        }
        if self.max_num_batched_tokens < self.max_num_seqs {
            return Err(ConfigFault::BudgetBelowSeqs {
                max_num_batched_tokens: self.max_num_batched_tokens,
                max_num_seqs: self.max_num_seqs,
            });
        }
        if !self.enable_chunked_prefill && self.max_num_batched_tokens < self.max_model_len {
            return Err(ConfigFault::BudgetBelowModelLen {
                max_num_batched_tokens: self.max_num_batched_tokens,
                max_model_len: self.max_model_len,
            });
        }
        if let Some(active) = self.max_num_active_seqs
            && self.max_num_seqs < active
        {
            return Err(ConfigFault::ActiveAboveSeqs {
                max_num_active_seqs: active,
                max_num_seqs: self.max_num_seqs,
            });
        }
        if self.max_model_len < self.long_prefill_token_threshold {
            return Err(ConfigFault::CapAboveModelLen {
                long_prefill_token_threshold: self.long_prefill_token_threshold,
                max_model_len: self.max_model_len,
            });
        }
        if !(0.0 <= self.watermark && self.watermark < 1.0) {
            return Err(ConfigFault::Watermark { watermark: self.watermark });
        }
        self.check_version()
    }

    /// That nothing is asked for which the release does not have.
    fn check_version(&self) -> Result<(), ConfigFault> {
        let version = self.engine_version;
        if !(EngineVersion::OLDEST <= version && version <= EngineVersion::V0_33_0) {
            return Err(ConfigFault::UnknownVersion { version });
        }
        let later = [
            (
                "scheduler_reserve_full_isl",
                self.scheduler_reserve_full_isl == Some(true),
                EngineVersion::RESERVE_FULL_ISL,
            ),
            ("watermark", self.watermark != 0.0, EngineVersion::UNREGISTERED_FIRST),
            (
                "prefill_schedule_interval",
                self.prefill_schedule_interval != 1,
                EngineVersion::UNREGISTERED_FIRST,
            ),
            (
                "max_num_active_seqs",
                self.max_num_active_seqs.is_some(),
                EngineVersion::LONE_REQUEST_EXEMPT,
            ),
            (
                "long_prefill_token_threshold_adaptive",
                self.long_prefill_token_threshold_adaptive,
                EngineVersion::LONE_REQUEST_EXEMPT,
            ),
        ];
        for (option, given, since) in later {
            if given && version < since {
                return Err(ConfigFault::NotYet { option, since, version });
            }
        }
        Ok(())
    }

    /// That one request of the longest kind fits: vLLM refuses to start otherwise.
    pub(super) fn check_capacity(&self) -> Result<(), ConfigFault> {
        let (usable, need) = (self.num_blocks - 1, self.max_model_len.div_ceil(self.block_size));
        if usable < need {
            return Err(ConfigFault::KvBelowModelLen {
                max_model_len: self.max_model_len,
                block_size: self.block_size,
                need,
                usable,
            });
        }
        Ok(())
    }
}

/// Why vLLM would not start with a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// A count of 0.
    #[error("{option} must be at least 1, got 0")]
    BelowOne {
        /// The option.
        option: &'static str,
    },
    /// A pool with nothing but the null block.
    #[error("num_blocks must be at least 2, the null block and one to use, got {num_blocks}")]
    NoUsableBlock {
        /// What was asked for.
        num_blocks: u64,
    },
    /// A step that cannot hold one token of every request.
    #[error(
        "max_num_batched_tokens must be at least max_num_seqs, which is {max_num_seqs}, \
         got {max_num_batched_tokens}"
    )]
    BudgetBelowSeqs {
        /// What was asked for.
        max_num_batched_tokens: u64,
        /// Its bound.
        max_num_seqs: u64,
    },
    /// A step that cannot hold a whole prompt, with prompts never cut.
    #[error(
        "without chunked prefill, max_num_batched_tokens must be at least max_model_len, which \
         is {max_model_len}, got {max_num_batched_tokens}"
    )]
    BudgetBelowModelLen {
        /// What was asked for.
        max_num_batched_tokens: u64,
        /// Its bound.
        max_model_len: u64,
    },
    /// More active requests than the runner has room for.
    #[error(
        "max_num_active_seqs must be at most max_num_seqs, which is {max_num_seqs}, \
         got {max_num_active_seqs}"
    )]
    ActiveAboveSeqs {
        /// What was asked for.
        max_num_active_seqs: u64,
        /// Its bound.
        max_num_seqs: u64,
    },
    /// A cap that no request can reach.
    #[error(
        "long_prefill_token_threshold must be at most max_model_len, which is {max_model_len}, \
         got {long_prefill_token_threshold}"
    )]
    CapAboveModelLen {
        /// What was asked for.
        long_prefill_token_threshold: u64,
        /// Its bound.
        max_model_len: u64,
    },
    /// A share of the blocks that is none.
    #[error("watermark must be at least 0 and below 1, got {watermark}")]
    Watermark {
        /// What was asked for.
        watermark: f64,
    },
    /// A pool in which the longest request does not fit.
    #[error(
        "a request of max_model_len ({max_model_len}) tokens needs {need} blocks of {block_size} \
         tokens, but the KV cache has {usable} besides the null block: lower max_model_len to \
         {}, or raise num_blocks (--num-kv-blocks) to {}",
        usable * block_size,
        need + 1
    )]
    KvBelowModelLen {
        /// Tokens of the longest request.
        max_model_len: u64,
        /// Tokens in a block.
        block_size: u64,
        /// Blocks that it needs.
        need: u64,
        /// Blocks that there are.
        usable: u64,
    },
    /// A release that is older than what was looked at, or newer.
    #[error(
        "engine_version must be {} to {}, got {version}",
        EngineVersion::OLDEST,
        EngineVersion::V0_33_0
    )]
    UnknownVersion {
        /// What was asked for.
        version: EngineVersion,
    },
    /// An option that came later.
    #[error("{option} needs engine_version {since} or later, got {version}")]
    NotYet {
        /// The option.
        option: &'static str,
        /// The release in which it was first seen.
        since: EngineVersion,
        /// What was asked for.
        version: EngineVersion,
    },
}
