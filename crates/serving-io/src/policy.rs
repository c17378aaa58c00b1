//! Policies by their names, with what else a server under one of them can be told.
//!
//! [`RULES`] is the one list of them: names, constructors, which options each takes, what its rule says
//! and whom it favours. Help, messages and tables are made from it. `vllm-v1` is not made here: its
//! options are those of [`engine`](crate::engine).

use metrics_core::metric::{Text, text};
use metrics_core::slo::Latency;
use sched_sim::{
    AdmissionRule, DecodeFirst, KvPool, Orca, Order, Policy, Preemption, PrefillFirst, Result,
    Sarathi, ServerSettings, SgLang, StaticBatch, Ticks, TokenBucket,
};

/// Most prompt tokens in a step of `prefill-first`, where nothing else is said.
pub const MAX_NUM_BATCHED_TOKENS: u64 = 4096;

/// Tokens in a KV block, where nothing else is said.
pub const BLOCK_SIZE: u64 = 16;

/// The policy that follows vLLM's scheduler.
pub const VLLM_V1: &str = "vllm-v1";

/// The policies that a scenario or a flag can name.
pub const POLICIES: [&str; RULES.len()] = names(false);

/// Those of them that [`named`] makes.
pub const NAMES: [&str; made()] = names(true);

/// How many policies are made here.
const fn made() -> usize {
    let (mut n, mut i) = (0, 0);
    while i < RULES.len() {
        n += RULES[i].make.is_some() as usize;
        i += 1;
    }
    n
}

/// The first `N` names, of all or of those that are made here.
const fn names<const N: usize>(made: bool) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut n, mut i) = (0, 0);
    while i < RULES.len() {
        if RULES[i].make.is_some() || !made {
            names[n] = RULES[i].name;
            n += 1;
        }
        i += 1;
    }
    names
}

/// Makes a policy from its batch limit, its chunk and the options of its server.
type Make = fn(u64, u64, &ServerOptions) -> Result<Box<dyn Policy>>;

fn boxed<P: Policy + 'static>(policy: Result<P>) -> Result<Box<dyn Policy>> {
    Ok(Box::new(policy?))
}

/// What a policy does and takes, as help, tables and explanations say it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PolicyRule {
    /// The policy's name.
    pub name: &'static str,
    /// The rule in one sentence.
    pub rule: Text,
    /// Whom it favours.
    pub favours: Text,
    /// Whom it can starve.
    pub can_starve: Text,
    /// Who describes it, or which engine does it and in which file.
    pub source: Text,
    /// Which of TTFT and TPOT the rule protects at the cost of the other; none if neither.
    pub protects: Option<Latency>,
    /// Whose prompt tokens its `chunk` bounds in a step; none if it has no chunk.
    pub chunk: Option<Text>,
    /// Whether it has a `max_num_batched_tokens` for the prompts of a step.
    pub takes_batched_tokens: bool,
    /// Whether it can swap out a decode that it preempts.
    pub may_swap: bool,
    /// Whether it keeps prefixes that were computed, if the server has KV blocks.
    pub caches_prefixes: bool,
    /// What makes it; none for vLLM's, which is no policy of a [`Replica`](sched_sim::Replica).
    make: Option<Make>,
}

impl PolicyRule {
    /// The rule of this name; `None` if there is none.
    ///
    /// # Examples
    ///
    /// ```
    /// use metrics_core::slo::Latency;
    /// use serving_io::policy::PolicyRule;
    ///
    /// let rule = PolicyRule::of("decode-first").unwrap();
    /// assert_eq!(rule.protects, Some(Latency::Tpot));
    /// ```
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        RULES.iter().find(|rule| rule.name == name)
    }
}

/// The rule of every policy.
///
/// A rule protects TPOT if a prompt cannot stop a stream that has begun: its chunk is bounded, or it
/// waits. It protects TTFT if prompts run before streams go on.
///
/// Source: as each rule says; Sarathi-Serve, OSDI 2024, sections 3 and 4, compares them so.
pub const RULES: &[PolicyRule] = &[
    PolicyRule {
        name: "decode-first",
        rule: text(
            "Every request in decode gets one token, then each of the first prompts that find a place gets up to one chunk.",
            "处于 decode 的请求各得一个 token，然后最前面有名额的 prompt 各推进至多一个 chunk。",
        ),
        favours: text("answers that have begun (TPOT)", "已开始的回答（TPOT）"),
        can_starve: text("prompts (TTFT)", "prompt（TTFT）"),
        source: text("formula walkthrough, section 4", "公式讲解，第 4 节"),
        protects: Some(Latency::Tpot),
        chunk: Some(text("of one request", "单个请求的")),
        takes_batched_tokens: false,
        may_swap: false,
        caches_prefixes: false,
        make: Some(|seats, chunk, _| boxed(DecodeFirst::new(seats, chunk))),
    },
    PolicyRule {
        name: "prefill-first",
        rule: text(
            "If whole prompts from the head of the queue fit, the step runs them alone; else every request in decode gets one token.",
            "队首的完整 prompt 放得下时，该步只运行它们；否则处于 decode 的请求各得一个 token。",
        ),
        favours: text("prompts (TTFT)", "prompt（TTFT）"),
        can_starve: text("answers that have begun (ITL)", "已开始的回答（ITL）"),
        source: text(
            "vLLM's engine v0: SOSP 2023; Vidur `vllm_replica_scheduler.py`",
            "vLLM 引擎 v0：SOSP 2023；Vidur `vllm_replica_scheduler.py`",
        ),
        protects: Some(Latency::Ttft),
        chunk: None,
        takes_batched_tokens: true,
        may_swap: true,
        caches_prefixes: false,
        make: Some(|seats, _, options| {
            let tokens = options.max_num_batched_tokens.unwrap_or(MAX_NUM_BATCHED_TOKENS);
            let policy = PrefillFirst::new(seats, tokens);
            boxed(policy.and_then(|p| p.with_preemption(options.preemption.unwrap_or_default())))
        }),
    },
    PolicyRule {
        name: "sarathi",
        rule: text(
            "Every request in decode gets one token; what the step's token budget leaves goes to the prompt in progress, then to the head of the queue.",
            "处于 decode 的请求各得一个 token；该步 token 预算的剩余先给进行中的 prompt，再给队首。",
        ),
        favours: text(
            "answers that have begun, with steps of bounded length",
            "已开始的回答，且每步长度有上限",
        ),
        can_starve: text("prompts, if decodes use up the budget", "prompt，当 decode 用完预算时"),
        source: text(
            "Sarathi-Serve: OSDI 2024; Vidur `sarathi_replica_scheduler.py`",
            "Sarathi-Serve：OSDI 2024；Vidur `sarathi_replica_scheduler.py`",
        ),
        protects: Some(Latency::Tpot),
        chunk: Some(text("of all with the decodes", "连同 decode 的全部")),
        takes_batched_tokens: false,
        may_swap: true,
        caches_prefixes: false,
        make: Some(|seats, chunk, options| {
            let policy = Sarathi::new(seats, chunk);
            boxed(policy.and_then(|p| p.with_preemption(options.preemption.unwrap_or_default())))
        }),
    },
    PolicyRule {
        name: "orca",
        rule: text(
            "Every request in decode gets one token, and whole prompts join as long as there are slots and memory for their longest answers.",
            "处于 decode 的请求各得一个 token；只要有名额，且内存容得下最长的回答，完整的 prompt 就加入。",
        ),
        favours: text("nobody in particular", "无所偏向"),
        can_starve: text(
            "the queue, whose memory is reserved and unused",
            "队列：内存被预留却未使用",
        ),
        source: text(
            "Orca: OSDI 2022; Vidur `orca_replica_scheduler.py`",
            "Orca：OSDI 2022；Vidur `orca_replica_scheduler.py`",
        ),
        protects: None,
        chunk: None,
        takes_batched_tokens: false,
        may_swap: false,
        caches_prefixes: false,
        make: Some(|seats, _, _| boxed(Orca::new(seats))),
    },
    PolicyRule {
        name: "static",
        rule: text(
            "Whoever waits when the server is empty forms a batch, which runs until its longest answer ends.",
            "服务器空闲时在等待的请求组成一个 batch，运行到其中最长的回答结束为止。",
        ),
        favours: text("the batch under way", "进行中的 batch"),
        can_starve: text("everybody who comes meanwhile", "其间到达的所有请求"),
        source: text("the baseline of the Orca paper: OSDI 2022", "Orca 论文的基线：OSDI 2022"),
        protects: Some(Latency::Tpot),
        chunk: None,
        takes_batched_tokens: false,
        may_swap: false,
        caches_prefixes: false,
        make: Some(|seats, _, _| boxed(StaticBatch::new(seats))),
    },
    PolicyRule {
        name: "sglang",
        rule: text(
            "If a prefill batch can be formed, one chunk budget at a time and with memory for the answers it predicts, the step runs it alone; else every request in decode gets one token.",
            "若能组成 prefill batch（每次一个 chunk 预算，且内存容得下所预测的回答），该步只运行它；否则处于 decode 的请求各得一个 token。",
        ),
        favours: text("prompts (TTFT), chunk by chunk", "prompt（TTFT），逐块推进"),
        can_starve: text(
            "the queue, if the prediction is high; whoever is retracted, to its end",
            "队列，当预测偏高时；被撤回到队尾的请求",
        ),
        source: text(
            "SGLang 0.5.23, `srt/managers/schedule_policy.py`, `scheduler.py`",
            "SGLang 0.5.23，`srt/managers/schedule_policy.py`、`scheduler.py`",
        ),
        protects: Some(Latency::Ttft),
        chunk: Some(text("of all", "全部请求的")),
        takes_batched_tokens: false,
        may_swap: false,
        caches_prefixes: true,
        make: Some(|seats, chunk, options| {
            let cached = options.enable_prefix_caching != Some(false);
            let policy = SgLang::new(seats, chunk);
            boxed(if cached { policy } else { policy.map(SgLang::without_radix_cache) })
        }),
    },
    PolicyRule {
        name: VLLM_V1,
        rule: text(
            "Everybody who runs gets the tokens that they lack, in order of admission, until the step's token budget is spent; the rest goes to the head of the queue.",
            "正在运行的请求按接纳次序各得所缺的 token，直到用完该步的 token 预算；剩余的给队首。",
        ),
        favours: text("whoever was admitted first", "先被接纳者"),
        can_starve: text(
            "those behind a long prompt, and everybody behind a prompt that does not fit",
            "排在长 prompt 之后者，以及放不下的 prompt 之后的所有请求",
        ),
        source: text(
            "vLLM 0.33.0, `vllm/v1/core/sched/scheduler.py`",
            "vLLM 0.33.0，`vllm/v1/core/sched/scheduler.py`",
        ),
        protects: None,
        chunk: None,
        takes_batched_tokens: false,
        may_swap: false,
        caches_prefixes: false,
        make: None,
    },
];

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
    /// What becomes of the KV of a decode that is preempted; for policies that
    /// [`may_swap`] alone.
    pub preemption: Option<Preemption>,
    /// Whether prefixes that were computed are kept; for policies with a
    /// [prefix cache](caches_prefixes) alone, which have it on.
    pub enable_prefix_caching: Option<bool>,
    /// Most requests that wait: who arrives when so many do is refused.
    pub max_waiting: Option<u64>,
    /// Most tokens that those who wait have to prefill, the one who arrives included.
    pub max_waiting_tokens: Option<u64>,
    /// Permits, of which everybody takes one.
    pub token_bucket: Option<Box<TokenBucket>>,
    /// What else refuses who arrives.
    pub admission_rule: Option<Box<AdmissionRule>>,
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
        let texts = [
            ("order", self.order.map(|order| order.to_string())),
            ("preemption", self.preemption.map(|p| p.to_string())),
            ("enable_prefix_caching", self.enable_prefix_caching.map(|on| on.to_string())),
            ("max_waiting", self.max_waiting.map(|n| n.to_string())),
            ("max_waiting_tokens", self.max_waiting_tokens.map(|n| n.to_string())),
            ("token_bucket", self.token_bucket.as_ref().map(ToString::to_string)),
            ("admission_rule", self.admission_rule.as_ref().map(ToString::to_string)),
        ];
        counts.chain(texts.into_iter().filter_map(|(name, text)| Some((name, text?)))).collect()
    }

    /// What of it refuses who arrives, whatever the scheduler is.
    #[must_use]
    pub fn gateway(&self) -> Self {
        Self {
            max_waiting: self.max_waiting,
            max_waiting_tokens: self.max_waiting_tokens,
            token_bucket: self.token_bucket.clone(),
            admission_rule: self.admission_rule.clone(),
            ..Self::default()
        }
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
        settings.max_waiting = self.max_waiting;
        settings.max_waiting_tokens = self.max_waiting_tokens;
        settings.bucket = self.token_bucket.as_deref().copied();
        settings.rule = self.admission_rule.as_deref().copied();
        Ok(settings)
    }
}

/// Whether a policy has a chunk: most prompt tokens of one request, or of all, in a step.
#[must_use]
pub fn takes_chunk(name: &str) -> bool {
    PolicyRule::of(name).is_some_and(|rule| rule.chunk.is_some())
}

/// Whether a policy other than vLLM's has a limit on the prompt tokens of a step that is no chunk.
#[must_use]
pub fn takes_batched_tokens(name: &str) -> bool {
    PolicyRule::of(name).is_some_and(|rule| rule.takes_batched_tokens)
}

/// Whether a policy can swap out a decode that it preempts.
#[must_use]
pub fn may_swap(name: &str) -> bool {
    PolicyRule::of(name).is_some_and(|rule| rule.may_swap)
}

/// The policies for which something holds, in words: `prefill-first and sarathi`.
///
/// # Examples
///
/// ```
/// use serving_io::policy::{in_words, takes_chunk};
///
/// assert_eq!(in_words(takes_chunk), "decode-first, sarathi and sglang");
/// ```
#[must_use]
pub fn in_words(holds: fn(&str) -> bool) -> String {
    let names: Vec<&str> = POLICIES.into_iter().filter(|name| holds(name)).collect();
    match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// Whether a policy keeps prefixes that were computed, if the server has KV blocks.
#[must_use]
pub fn caches_prefixes(name: &str) -> bool {
    PolicyRule::of(name).is_some_and(|rule| rule.caches_prefixes)
}

/// How long the KV of a token moves one way when its request is swapped, as in `1us/token`.
///
/// # Errors
///
/// A text without `/token`, or one that is no time before it; the range is checked by [`named`].
///
/// # Examples
///
/// ```
/// use serving_io::policy::swap_time;
///
/// assert_eq!(swap_time("1us/token"), Ok("1us".parse()?));
/// assert!(swap_time("1us").is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub fn swap_time(text: &str) -> std::result::Result<Ticks, String> {
    let Some(time) = text.trim().strip_suffix("/token") else {
        return Err(format!("expected a time per token, such as 1us/token, got `{text}`"));
    };
    time.parse().map_err(|e: sched_sim::SimError| e.to_string())
}

/// The policy of this name; `None` if there is none.
///
/// # Errors
///
/// [`SimError`](sched_sim::SimError) for a limit of 0, one that is too large, or a swap that
/// takes too long.
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
    let make = PolicyRule::of(name)?.make?;
    Some(make(max_num_seqs, chunk, options))
}
