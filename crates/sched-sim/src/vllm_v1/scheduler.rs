//! vLLM's scheduler as a state machine: requests in, plans out.
//!
//! Numbers such as "2a" in comments are sections of the rules in the module comment above.

mod skip;

pub(super) use skip::{Quiet, Taken};

use std::collections::{BTreeSet, HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::config::{EngineVersion, QueuePolicy, VllmConfig};
use super::plan::{FinishReason, Finished, Kind, Plan, Scheduled, Update};
use crate::admission::Shut;
use crate::error::Result;
use crate::history::Held;
use crate::kv_cache::{BlockTable, Content, FreedOrder, Hit, KvCache, KvCounters, KvOptions};

/// A request as it is handed to the scheduler.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewRequest<'a> {
    /// Its id, unique among the requests that are not over. It also breaks ties of priority and
    /// arrival, as vLLM's id strings do: pad those with zeros to the same order.
    pub id: u64,
    /// When it arrived, in any unit; it matters under the priority policy only.
    pub arrival: u128,
    /// Its priority: lower runs first.
    pub priority: i64,
    /// The prompt as segments with their lengths; equal segments are equal tokens.
    pub prompt: &'a [(u64, u64)],
    /// The segment of the answer.
    pub output_segment: u64,
    /// Tokens of the answer, unless `max_model_len` cuts it.
    pub max_tokens: u64,
    /// Tokens of the answer that another server made, less than all; 0 for a request that begins
    /// here. The KV of all known tokens but the last is then there when it is admitted, as after a
    /// load through vLLM's KV connector that hits all of them.
    pub made_tokens: u64,
    /// When the last of them was made, in attoseconds, if that is known.
    pub made_at: Option<u128>,
}

impl<'a> NewRequest<'a> {
    fn prompt_tokens(&self) -> u64 {
        self.prompt.iter().fold(0, |sum, &(_, length)| sum.saturating_add(length))
    }

    /// A request of priority 0 that arrives at 0.
    #[must_use]
    pub fn new(id: u64, prompt: &'a [(u64, u64)], output_segment: u64, max_tokens: u64) -> Self {
        let (arrival, priority) = (0, 0);
        let (made_tokens, made_at) = (0, None);
        Self { id, arrival, priority, prompt, output_segment, max_tokens, made_tokens, made_at }
    }
}

/// Why a request is refused when it arrives, before it reaches the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// Nothing to compute.
    #[error("the prompt of request {id} must have at least 1 token, got 0")]
    EmptyPrompt {
        /// The request.
        id: u64,
    },
    /// No room for one token of the answer.
    #[error(
        "the prompt of request {id} must be shorter than max_model_len, which is \
         {max_model_len}, to leave room for one token of the answer; got {prompt} tokens"
    )]
    PromptTooLong {
        /// The request.
        id: u64,
        /// Its prompt's tokens.
        prompt: u64,
        /// Their bound, exclusive.
        max_model_len: u64,
    },
    /// No token is asked for.
    #[error("max_tokens of request {id} must be at least 1, got 0")]
    NoOutput {
        /// The request.
        id: u64,
    },
    /// Another request with this id is not over.
    #[error("request ids must differ: {id} is not over")]
    DuplicateId {
        /// The request.
        id: u64,
    },
    /// It could never be served to its end, under a policy other than vLLM's.
    #[error("request {id} needs {needed} KV blocks to be admitted and to end, and there are {max}")]
    NeverFits {
        /// The request.
        id: u64,
        /// Blocks at its last token, or at its admission together with those that an admission
        /// leaves free, whichever are more.
        needed: u64,
        /// Blocks of the pool.
        max: u64,
    },
    /// As many requests wait as may.
    #[error("request {id} finds {waiting} requests waiting, and at most {max} may")]
    QueueFull {
        /// The request.
        id: u64,
        /// Requests that wait.
        waiting: u64,
        /// Most that may.
        max: u64,
    },
    /// Those who wait, and this one, have more tokens to prefill than they may.
    #[error("with request {id}, {tokens} tokens would wait for prefill, and at most {max} may")]
    QueueTokens {
        /// The request.
        id: u64,
        /// Tokens, its own included.
        tokens: u64,
        /// Most that may.
        max: u64,
    },
    /// The admission rule of the server does not let it in.
    #[error("the admission rule refuses request {id}: {shut}")]
    Shut {
        /// The request.
        id: u64,
        /// What keeps the door shut.
        shut: Shut,
    },
    /// The token bucket of the server is empty.
    #[error("the token bucket has no permit for request {id}")]
    NoPermit {
        /// The request.
        id: u64,
    },
}

impl Rejection {
    /// Why, without the number of the request.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::EmptyPrompt { .. } => "the prompt must have at least 1 token, got 0".to_owned(),
            Self::PromptTooLong { prompt, max_model_len, .. } => format!(
                "the prompt must be shorter than max_model_len, which is {max_model_len}, to leave \
                 room for one token of the answer; got {prompt} tokens"
            ),
            Self::NoOutput { .. } => "max_tokens must be at least 1, got 0".to_owned(),
            Self::DuplicateId { .. } => "another request of this id is not over".to_owned(),
            Self::QueueFull { waiting, max, .. } => {
                format!("requests waiting are {waiting}, at most {max} may")
            }
            Self::QueueTokens { tokens, max, .. } => {
                format!("{tokens} tokens would wait for prefill, and at most {max} may")
            }
            Self::Shut { shut, .. } => format!("the admission rule: {shut}"),
            Self::NoPermit { .. } => "the token bucket has no permit".to_owned(),
            Self::NeverFits { needed, max, .. } => {
                format!(
                    "it needs {needed} KV blocks to be admitted and to end, and there are {max}"
                )
            }
        }
    }
}

/// What happened since the scheduler was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VllmCounters {
    /// Preemptions; each means that what was computed is computed again, less its hits.
    pub preemptions: u64,
    /// Tokens scheduled.
    pub scheduled_tokens: u64,
    /// Steps that scheduled at least one token.
    pub executed_steps: u64,
    /// What happened in the KV cache.
    pub kv: KvCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Waiting,
    Running,
    Preempted,
    Finished,
}

/// A request in the scheduler (section 1).
#[derive(Clone, Debug)]
struct Sequence {
    id: u64,
    prompt: u64,
    /// Prompt and all of the answer, before `max_model_len` cuts it.
    end: u64,
    /// Known tokens: prompt and delivered answer.
    tokens: u64,
    /// Tokens whose KV is computed or is being computed.
    computed: u64,
    /// Tokens whose KV came along, until it is admitted.
    brought: u64,
    /// Async only: tokens of the answer that are scheduled and not delivered.
    placeholders: u64,
    /// Tokens in steps that are not updated yet.
    in_flight: u64,
    /// Those of them from before a preemption.
    stale: u64,
    /// Whether its last step left known tokens uncomputed.
    in_prefill: bool,
    /// Up to how many computed tokens it only decodes, with nothing to do about its blocks; 0 if
    /// that is not known.
    calm: u64,
    status: Status,
    preemptions: u64,
    priority: i64,
    arrival: u128,
    /// When it got its last token, as far as the clock [says](VllmV1::tell), in attoseconds; none
    /// without one.
    token_at: Option<u128>,
    table: BlockTable,
}

impl Sequence {
    /// Finds out for how long it only decodes. Sooner is always right, as the general path takes
    /// over then.
    fn calm_down(&mut self, last: u64, on_the_way: u64) {
        // Async: the token that fills a block is known, and registers it, a step later.
        let full = (self.table.register_at() - 1).saturating_add(on_the_way);
        let calm = last.min(self.table.room()).min(full).min(self.end - 1);
        self.calm = if self.in_prefill { 0 } else { calm };
    }

    fn outputs(&self) -> u64 {
        self.tokens - self.prompt
    }

    /// Known tokens whose step has not run; none of a request whose KV came with it.
    fn left_to_prefill(&self) -> u64 {
        let ran = self.computed.saturating_sub(self.in_flight);
        if self.brought == 0 { self.tokens.saturating_sub(ran) } else { 0 }
    }

    fn finished(&self, reason: FinishReason) -> Finished {
        let (outputs, preemptions) = (self.outputs(), self.preemptions);
        Finished { id: self.id, reason, outputs, preemptions }
    }
}

/// Who comes first under the priority policy.
type Rank = (i64, u128, u64, u32);

/// The requests that are not running.
#[derive(Clone, Debug)]
enum Waiting {
    Fcfs(VecDeque<u32>),
    Priority(BTreeSet<Rank>),
}

impl Waiting {
    fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Priority(queue) => queue.len(),
        }
    }

    fn head(&self) -> Option<u32> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Priority(queue) => queue.first().map(|&(.., slot)| slot),
        }
    }

    fn pop(&mut self) {
        match self {
            Self::Fcfs(queue) => drop(queue.pop_front()),
            Self::Priority(queue) => drop(queue.pop_first()),
        }
    }

    fn push_back(&mut self, slot: u32, seq: &Sequence) {
        match self {
            Self::Fcfs(queue) => queue.push_back(slot),
            Self::Priority(queue) => drop(queue.insert(rank(slot, seq))),
        }
    }

    fn push_front(&mut self, slot: u32, seq: &Sequence) {
        match self {
            Self::Fcfs(queue) => queue.push_front(slot),
            Self::Priority(queue) => drop(queue.insert(rank(slot, seq))),
        }
    }

    fn remove(&mut self, slot: u32, seq: &Sequence) {
        match self {
            Self::Fcfs(queue) => queue.retain(|&s| s != slot),
            Self::Priority(queue) => drop(queue.remove(&rank(slot, seq))),
        }
    }
}

fn rank(slot: u32, seq: &Sequence) -> Rank {
    (seq.priority, seq.arrival, seq.id, slot)
}

/// The scheduler of vLLM's engine v1.
///
/// # Examples
///
/// ```
/// use sched_sim::vllm_v1::{NewRequest, VllmConfig, VllmV1};
///
/// let mut config = VllmConfig::new(101, 400);
/// config.async_scheduling = Some(false);
/// config.max_num_batched_tokens = 128;
/// let mut vllm = VllmV1::new(config)?;
///
/// // Prompts of 100 and 60 tokens: the second is cut to what the first leaves of the step.
/// vllm.add_request(&NewRequest::new(1, &[(1, 100)], 101, 2))?;
/// vllm.add_request(&NewRequest::new(2, &[(2, 60)], 102, 2))?;
/// let plan = vllm.schedule();
/// assert_eq!(plan.rows().iter().map(|r| r.tokens).collect::<Vec<_>>(), [100, 28]);
/// assert_eq!(vllm.update_from_output(plan).first_tokens, [1]);
///
/// // One token for the first, the rest of the prompt for the second.
/// let plan = vllm.schedule();
/// assert_eq!(plan.rows().iter().map(|r| r.tokens).collect::<Vec<_>>(), [1, 32]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct VllmV1 {
    config: VllmConfig,
    /// Tokens of a step. vLLM counts two budgets down by the same amounts, so that the smaller
    /// one decides.
    budget: u64,
    max_active: usize,
    watermark_blocks: u64,
    kv: KvCache,
    seqs: Vec<Sequence>,
    /// Slots of `seqs` that are over and in no step in flight.
    vacant: Vec<u32>,
    /// Looked up and never iterated.
    by_id: HashMap<u64, u32, FixedState>,
    /// In order of admission; never sorted anew, also not under the priority policy.
    running: Vec<u32>,
    waiting: Waiting,
    /// Steps that scheduled at least one token, and the last of them that carried prefill.
    executed: u64,
    last_prefill: Option<u64>,
    backlogged: bool,
    preemptions: u64,
    scheduled_tokens: u64,
    /// Computed tokens of those that run; a shared prefix counts for each of them.
    held: u64,
    /// When the update that comes takes place, and when the last one with a token did, in
    /// attoseconds; 0 for who knows no time.
    now: u128,
    previous: u128,
    record_blocks: bool,
    spare: Vec<Plan>,
    pub(super) update: Update,
    /// Scratch of [`skip`]: when which running request fills a block.
    due: Vec<(u64, u32)>,
}

/// What a step has left while it is filled.
struct Pass {
    room: u64,
    cap: u64,
    hold: bool,
    carries_prefill: bool,
    /// Async only: 1, the token of this step that nobody knows before it has run.
    on_the_way: u64,
}

impl VllmV1 {
    /// An idle scheduler.
    ///
    /// # Errors
    ///
    /// [`ConfigFault`](super::ConfigFault) for what vLLM would not start with, a KV cache that
    /// is smaller than one request of `max_model_len` included.
    pub fn new(config: VllmConfig) -> Result<Self> {
        config.check()?;
        config.check_capacity()?;
        Self::with_any_capacity(config)
    }

    /// The same with a KV cache of any size, as when its scheduler is driven from outside: a
    /// prompt that does not fit then waits for ever and blocks all behind it, and a lone request
    /// that outgrows the cache preempts itself and waits for ever.
    ///
    /// # Errors
    ///
    /// [`ConfigFault`](super::ConfigFault) for what else vLLM would not start with.
    pub fn with_any_capacity(config: VllmConfig) -> Result<Self> {
        config.check()?;
        let kv = KvCache::new(KvOptions {
            prefix_caching: config.enable_prefix_caching,
            freed_order: if config.has(EngineVersion::UNREGISTERED_FIRST) {
                FreedOrder::UnregisteredFirst
            } else {
                FreedOrder::AllAtEnd
            },
            ..KvOptions::new(config.num_blocks - 1, config.block_size)
        })?;
        let scheduled = config.max_num_scheduled_tokens.unwrap_or(config.max_num_batched_tokens);
        let active = config.max_num_active_seqs.unwrap_or(config.max_num_seqs);
        Ok(Self {
            budget: scheduled.min(config.max_num_batched_tokens),
            max_active: usize::try_from(active).unwrap_or(usize::MAX),
            watermark_blocks: watermark_blocks(&config),
            kv,
            seqs: Vec::new(),
            vacant: Vec::new(),
            by_id: HashMap::with_hasher(FixedState::default()),
            running: Vec::new(),
            waiting: match config.policy {
                QueuePolicy::Fcfs => Waiting::Fcfs(VecDeque::new()),
                QueuePolicy::Priority => Waiting::Priority(BTreeSet::new()),
            },
            executed: 0,
            last_prefill: None,
            backlogged: false,
            preemptions: 0,
            scheduled_tokens: 0,
            held: 0,
            now: 0,
            previous: 0,
            record_blocks: false,
            spare: Vec::new(),
            update: Update::default(),
            due: Vec::new(),
            config,
        })
    }

    /// Whether plans say which blocks their requests got.
    pub fn record_blocks(&mut self, record: bool) {
        self.record_blocks = record;
    }

    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &VllmConfig {
        &self.config
    }

    /// Its KV cache.
    #[must_use]
    pub fn kv_cache(&self) -> &KvCache {
        &self.kv
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> VllmCounters {
        VllmCounters {
            preemptions: self.preemptions,
            scheduled_tokens: self.scheduled_tokens,
            executed_steps: self.executed,
            kv: self.kv.counters(),
        }
    }

    /// Requests that run.
    #[must_use]
    pub fn num_running(&self) -> usize {
        self.running.len()
    }

    /// Requests that wait, preempted ones included.
    #[must_use]
    pub fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Tokens that those who wait have to prefill: all that they know, as far as it is not computed
    /// or came with them. What the prefix cache holds of them shows at their admission.
    #[must_use]
    pub fn waiting_tokens(&self) -> u64 {
        let waits = |seq: &&Sequence| matches!(seq.status, Status::Waiting | Status::Preempted);
        self.seqs.iter().filter(waits).map(Sequence::left_to_prefill).sum()
    }

    /// The same of one request that is not over, whose steps in flight count as not run.
    pub(super) fn left_to_prefill(&self, id: u64) -> u64 {
        let seq = self.by_id.get(&id).and_then(|&slot| self.seqs.get(slot as usize));
        seq.map_or(0, Sequence::left_to_prefill)
    }

    /// Whether any request is not over.
    #[must_use]
    pub fn has_unfinished(&self) -> bool {
        !self.running.is_empty() || self.waiting.len() > 0
    }

    /// Tokens delivered to a request that is not over, and how often it was preempted.
    #[must_use]
    pub fn progress(&self, id: u64) -> Option<(u64, u64)> {
        let seq = self.seqs.get(*self.by_id.get(&id)? as usize)?;
        Some((seq.outputs(), seq.preemptions))
    }

    /// Prompt tokens whose step has run, of a request that is not over.
    #[must_use]
    pub fn prefilled(&self, id: u64) -> Option<u64> {
        let seq = self.seqs.get(*self.by_id.get(&id)? as usize)?;
        Some(seq.computed.saturating_sub(seq.in_flight).max(seq.brought).min(seq.prompt))
    }

    /// Requests that run and are not in `plan`, which was scheduled last.
    pub(super) fn left_out<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = u64> + 'a {
        // Both are in order of admission.
        let mut rows = plan.rows().iter().map(|row| row.id).peekable();
        let running = self.running.iter().filter_map(|&slot| self.seqs.get(slot as usize));
        running.map(|seq| seq.id).filter(move |&id| rows.next_if_eq(&id).is_none())
    }

    /// Computed tokens of the requests that run, those in steps in flight included; a prefix whose
    /// blocks several of them share counts once.
    #[must_use]
    pub fn held_tokens(&self) -> u64 {
        self.held - self.kv.shared_tokens()
    }

    /// Whether vLLM's input processor would take a request.
    ///
    /// # Errors
    ///
    /// [`Rejection`] if it would refuse it.
    pub fn check(&self, request: &NewRequest<'_>) -> Result<(), Rejection> {
        let id = request.id;
        let prompt = request.prompt_tokens();
        let max_model_len = self.config.max_model_len;
        if prompt == 0 {
            return Err(Rejection::EmptyPrompt { id });
        }
        let known = prompt.saturating_add(request.made_tokens);
        if max_model_len <= known {
            return Err(Rejection::PromptTooLong { id, prompt: known, max_model_len });
        }
        if request.max_tokens == 0 {
            return Err(Rejection::NoOutput { id });
        }
        if self.by_id.contains_key(&id) {
            return Err(Rejection::DuplicateId { id });
        }
        Ok(())
    }

    /// Takes a request in (section 7).
    ///
    /// # Errors
    ///
    /// [`Rejection`] if vLLM's input processor would refuse it.
    pub fn add_request(&mut self, request: &NewRequest<'_>) -> Result<(), Rejection> {
        self.check(request)?;
        let id = request.id;
        let prompt = request.prompt_tokens();
        let known = prompt.saturating_add(request.made_tokens);
        let slot = self.vacant.pop().unwrap_or_else(|| {
            let slot = u32::try_from(self.seqs.len()).unwrap_or(u32::MAX);
            self.seqs.push(Sequence {
                id: 0,
                prompt: 0,
                end: 0,
                tokens: 0,
                computed: 0,
                brought: 0,
                placeholders: 0,
                in_flight: 0,
                stale: 0,
                in_prefill: false,
                calm: 0,
                status: Status::Finished,
                preemptions: 0,
                priority: 0,
                arrival: 0,
                token_at: None,
                table: BlockTable::default(),
            });
            slot
        });
        let seq = &mut self.seqs[slot as usize];
        let table = std::mem::take(&mut seq.table);
        *seq = Sequence {
            id,
            prompt,
            end: prompt.saturating_add(request.max_tokens),
            tokens: known,
            computed: 0,
            brought: if request.made_tokens == 0 { 0 } else { known - 1 },
            placeholders: 0,
            in_flight: 0,
            stale: 0,
            in_prefill: false,
            calm: 0,
            status: Status::Waiting,
            preemptions: 0,
            priority: request.priority,
            arrival: request.arrival,
            token_at: request.made_at,
            table,
        };
        let output = (request.output_segment, request.max_tokens);
        self.kv.describe(&mut seq.table, &Content { prompt: request.prompt, output });
        self.waiting.push_back(slot, seq);
        self.by_id.insert(id, slot);
        Ok(())
    }

    /// That the next update takes place at `now`.
    pub(super) fn tell(&mut self, now: u128) {
        self.now = now;
    }

    /// Removes a request at once, also with a step in flight, whose output for it is dropped.
    /// Does nothing if there is no such request.
    pub fn abort(&mut self, id: u64) -> Option<Finished> {
        let slot = self.by_id.remove(&id)?;
        let seq = self.seqs.get_mut(slot as usize)?;
        if seq.status == Status::Running {
            self.running.retain(|&s| s != slot);
        } else {
            self.waiting.remove(slot, seq);
        }
        self.kv.release(&mut seq.table);
        self.held -= seq.computed;
        seq.status = Status::Finished;
        if seq.in_flight == 0 {
            self.vacant.push(slot);
        }
        Some(seq.finished(FinishReason::Abort))
    }

    /// Fills the next step.
    pub fn schedule(&mut self) -> Plan {
        let mut plan = self.spare.pop().unwrap_or_default();
        plan.clear();
        let mut pass = Pass {
            room: self.budget,
            cap: self.long_prefill_cap(),
            hold: self.holds_prefill(),
            carries_prefill: false,
            on_the_way: u64::from(self.config.is_async()),
        };
        self.schedule_running(&mut plan, &mut pass);
        plan.admitted = plan.rows.len();
        // A step that preempted admits nobody: the victim would be the first to come back.
        plan.held = if plan.preempted.is_empty() {
            let met = self.schedule_waiting(&mut plan, &mut pass);
            self.held_by_limit(pass.room).or(met)
        } else {
            Some(Held::Blocks)
        };
        self.scheduled_tokens += plan.tokens;
        self.held += plan.tokens;
        self.executed += u64::from(plan.tokens > 0);
        if pass.carries_prefill {
            self.last_prefill = Some(self.executed);
        }
        plan
    }

    /// What keeps everybody out of a step with so many tokens left, whoever waits.
    fn held_by_limit(&self, room: u64) -> Option<Held> {
        if self.max_active <= self.running.len() {
            Some(Held::Slots)
        } else if room == 0 {
            Some(Held::Budget)
        } else {
            None
        }
    }

    /// How many tokens a request may have in this step; `u64::MAX` is no limit.
    fn long_prefill_cap(&self) -> u64 {
        let cap = self.config.long_prefill_token_threshold;
        let requests = (self.running.len() + self.waiting.len()) as u64;
        // A lone request stands in nobody's way (from 0.31.0).
        let exempt = requests <= 1 && self.config.has(EngineVersion::LONE_REQUEST_EXEMPT);
        if cap == 0 || exempt {
            return u64::MAX;
        }
        if self.config.long_prefill_token_threshold_adaptive {
            return cap.max(self.config.max_num_batched_tokens / requests.max(1));
        }
        cap
    }

    /// Whether prefill pauses in this step for those who decode (from 0.24.0).
    fn holds_prefill(&self) -> bool {
        let interval = self.config.prefill_schedule_interval;
        if interval <= 1 || self.backlogged {
            return false;
        }
        // vLLM counts from `last_prefill = -interval`, so that the first step is never held.
        let recent = self.last_prefill.is_some_and(|last| self.executed + 1 - last < interval);
        recent && self.running.iter().any(|&slot| !self.seqs[slot as usize].in_prefill)
    }

    /// Section 2a.
    fn schedule_running(&mut self, plan: &mut Plan, pass: &mut Pass) {
        let max_model_len = self.config.max_model_len;
        let mut at = 0;
        loop {
            at += self.schedule_decodes(at, plan, pass);
            if pass.room == 0 {
                break;
            }
            let Some(&slot) = self.running.get(at) else { break };
            at += 1;
            let seq = &mut self.seqs[slot as usize];
            // Async: the tokens that are on their way already reach the end of the answer.
            if seq.placeholders > 0 && seq.end + seq.placeholders <= seq.computed + 2 {
                continue;
            }
            if pass.hold && seq.in_prefill {
                continue;
            }
            // A decode is the case in which one token is missing. It has no precedence over a
            // prefill other than its place in the list.
            let n = (seq.tokens + seq.placeholders - seq.computed)
                .min(pass.cap)
                .min(pass.room)
                .min((max_model_len - 1).saturating_sub(seq.computed));
            if n == 0 {
                continue;
            }
            let (computed, in_prefill) = (seq.computed, seq.in_prefill);
            let held = seq.table.blocks().len();
            if !self.kv.extend(&mut seq.table, computed + n)
                && !self.extend_by_preemption(slot, computed + n, &mut at, plan, pass)
            {
                // The priority policy goes on with the next request, which has moved to this
                // place in the list (from 0.33.0).
                if self.config.policy == QueuePolicy::Priority
                    && self.config.has(EngineVersion::PASS_GOES_ON)
                {
                    continue;
                }
                break;
            }
            let seq = &mut self.seqs[slot as usize];
            // Before the step has run, so that an admission later in this very step can hit it.
            self.kv.register(&mut seq.table, (computed + n).min(seq.tokens));
            let mut blocks = (0, 0);
            if self.record_blocks {
                blocks.0 = count(plan.block_ids.len());
                plan.block_ids.extend(seq.table.blocks().iter().skip(held));
                blocks.1 = count(plan.block_ids.len());
            }
            pass.carries_prefill |= in_prefill;
            let row = Scheduled {
                id: seq.id,
                tokens: n,
                computed,
                kind: Kind::Running,
                prefill: in_prefill,
                samples: false,
                slot,
                blocks,
            };
            self.commit(row, plan, pass);
        }
    }

    /// The part of section 2a that most rows of most steps are: running requests from place
    /// `from` on that compute the one token they sampled last, and neither need nor fill a block.
    /// How many there are until the first that is anything else.
    fn schedule_decodes(&mut self, from: usize, plan: &mut Plan, pass: &mut Pass) -> usize {
        let room = usize::try_from(pass.room).unwrap_or(usize::MAX);
        let (mut decodes, mut context) = (0, 0);
        for &slot in self.running.get(from..).unwrap_or_default().iter().take(room) {
            let Some(seq) = self.seqs.get_mut(slot as usize) else { break };
            let computed = seq.computed;
            let after = computed + 1;
            let sampled = after == seq.tokens + pass.on_the_way;
            if seq.calm < after || !sampled || seq.placeholders != pass.on_the_way {
                break;
            }
            seq.computed = after;
            seq.in_flight += 1;
            seq.placeholders += pass.on_the_way;
            decodes += 1;
            context += after;
            plan.rows.push(Scheduled {
                id: seq.id,
                tokens: 1,
                computed,
                kind: Kind::Running,
                prefill: false,
                samples: true,
                slot,
                blocks: (0, 0),
            });
        }
        pass.room -= decodes as u64;
        plan.count_decodes(decodes as u64, context);
        decodes
    }

    /// Preempts until the running request `slot`, the one before `at` in the list, can hold
    /// `tokens` tokens; false if it was preempted itself.
    #[cold]
    fn extend_by_preemption(
        &mut self,
        slot: u32,
        tokens: u64,
        at: &mut usize,
        plan: &mut Plan,
        pass: &mut Pass,
    ) -> bool {
        loop {
            let Some((place, victim)) = self.victim() else { return false };
            self.running.remove(place);
            if place < *at {
                *at -= 1;
            }
            // Only the priority policy can choose one that already has its tokens of this step.
            // What it gives back goes to those later in the list.
            if let Some(row) = plan.rows.iter().position(|r| r.slot == victim) {
                let row = plan.remove(row);
                pass.room += row.tokens;
                let seq = &mut self.seqs[victim as usize];
                seq.computed -= row.tokens;
                seq.in_flight -= row.tokens;
            }
            self.preempt(victim, plan);
            if victim == slot {
                return false;
            }
            if self.kv.extend(&mut self.seqs[slot as usize].table, tokens) {
                return true;
            }
        }
    }

    /// Whom a running request without a block displaces: place in the list, and slot.
    fn victim(&self) -> Option<(usize, u32)> {
        let last = self.running.len().checked_sub(1)?;
        if self.config.policy == QueuePolicy::Fcfs {
            return Some((last, self.running[last]));
        }
        let mut worst: Option<(usize, u32, (i64, u128))> = None;
        for (place, &slot) in self.running.iter().enumerate() {
            let seq = &self.seqs[slot as usize];
            let key = (seq.priority, seq.arrival);
            // On a tie the first in the list goes, as with Python's `max`.
            if worst.is_none_or(|(.., k)| k < key) {
                worst = Some((place, slot, key));
            }
        }
        worst.map(|(place, slot, _)| (place, slot))
    }

    /// Section 2c: all is freed, and what is known is computed again later, less what the prefix
    /// cache still holds then.
    fn preempt(&mut self, slot: u32, plan: &mut Plan) {
        let seq = &mut self.seqs[slot as usize];
        self.kv.release(&mut seq.table);
        plan.lost.push(seq.computed);
        self.held -= seq.computed;
        seq.computed = 0;
        seq.calm = 0;
        seq.placeholders = 0;
        seq.stale = seq.in_flight;
        seq.status = Status::Preempted;
        seq.preemptions += 1;
        self.preemptions += 1;
        plan.preempted.push(seq.id);
        // Of several the last preempted ends up first, which restores their order.
        self.waiting.push_front(slot, seq);
    }

    /// Section 2b; what the head of the queue meets that is not admitted.
    fn schedule_waiting(&mut self, plan: &mut Plan, pass: &mut Pass) -> Option<Held> {
        let mut met = None;
        // Those whose output of before a preemption is still on its way: with two steps in flight
        // there are none, with more there can be.
        let mut aside: Vec<u32> = Vec::new();
        while pass.room > 0
            && self.running.len() < self.max_active
            && let Some(slot) = self.waiting.head()
        {
            let seq = &mut self.seqs[slot as usize];
            if seq.stale > 0 {
                self.waiting.pop();
                aside.push(slot);
                continue;
            }
            let seq = &self.seqs[slot as usize];
            let (hit, computed) = self.found(seq);
            let carries_prefill = computed + 1 < seq.tokens;
            if pass.hold && carries_prefill {
                met = Some(Held::Budget);
                break;
            }
            let mut n = (seq.tokens - computed).min(pass.cap);
            if pass.room < n {
                if !self.config.enable_chunked_prefill {
                    met = Some(Held::Budget);
                    break;
                }
                n = pass.room;
            }
            // The head blocks all behind it, under both policies, and displaces nobody.
            if !self.fits(hit, slot, computed + n) {
                self.kv.count_failed_allocations(1);
                met = Some(Held::Blocks);
                break;
            }
            let seq = &mut self.seqs[slot as usize];
            let brought = std::mem::take(&mut seq.brought);
            // Nothing has to be computed of what came along, whether it is there already or not.
            let queried = if brought == 0 { seq.tokens } else { 0 };
            if !self.kv.admit(&mut seq.table, hit, queried, computed + n) {
                seq.brought = brought;
                met = Some(Held::Blocks);
                break;
            }
            self.kv.register(&mut seq.table, (computed + n).min(seq.tokens));
            let kind = if seq.status == Status::Preempted { Kind::Resumed } else { Kind::New };
            seq.computed = computed;
            self.held += computed;
            seq.status = Status::Running;
            let mut blocks = (0, 0);
            if self.record_blocks {
                blocks.0 = count(plan.block_ids.len());
                plan.block_ids.extend_from_slice(seq.table.blocks());
                blocks.1 = count(plan.block_ids.len());
            }
            let row = Scheduled {
                id: seq.id,
                tokens: n,
                computed,
                kind,
                prefill: brought == 0,
                samples: false,
                slot,
                blocks,
            };
            self.commit(row, plan, pass);
            pass.carries_prefill |= carries_prefill;
            self.waiting.pop();
            self.running.push(slot);
        }
        if !pass.hold {
            self.backlogged = self.waiting.len() > 0;
        }
        for slot in aside.into_iter().rev() {
            self.waiting.push_front(slot, &self.seqs[slot as usize]);
        }
        met
    }

    /// What the prefix cache has of a request that waits, and how many of its tokens are computed
    /// with what it brings along.
    fn found(&self, seq: &Sequence) -> (Hit, u64) {
        let hit = if self.config.enable_prefix_caching {
            self.kv.lookup(&seq.table, seq.tokens)
        } else {
            Hit::default()
        };
        (hit, hit.tokens.max(seq.brought))
    }

    /// Whether an admission has the blocks it needs to hold `tokens` tokens (section 3c).
    fn fits(&self, hit: Hit, slot: u32, tokens: u64) -> bool {
        let seq = &self.seqs[slot as usize];
        // While nothing runs, nothing would ever raise what is free above the watermark.
        let reserve = if self.running.is_empty() { 0 } else { self.watermark_blocks };
        let fits = |tokens: u64| self.kv.need(hit, tokens) + reserve <= self.kv.idle_blocks();
        // Room for all known tokens (from 0.20.2). Nothing is set aside for the later chunks: the
        // next admission can take those blocks, and then somebody is preempted.
        (!self.config.reserves_full_isl() || fits(seq.tokens)) && fits(tokens)
    }

    /// Section 2d, for one request; what the priority policy takes back is undone in
    /// [`extend_by_preemption`](Self::extend_by_preemption).
    fn commit(&mut self, mut row: Scheduled, plan: &mut Plan, pass: &mut Pass) {
        let Some(seq) = self.seqs.get_mut(row.slot as usize) else { return };
        pass.room -= row.tokens;
        seq.computed += row.tokens;
        seq.in_flight += row.tokens;
        seq.in_prefill = seq.computed < seq.tokens + seq.placeholders;
        row.samples = !seq.in_prefill;
        seq.placeholders += if row.samples { pass.on_the_way } else { 0 };
        seq.calm_down(self.config.max_model_len - 1, pass.on_the_way);
        plan.push(row);
    }

    /// What the latest [`update_from_output`](Self::update_from_output) said.
    #[must_use]
    pub fn last_update(&self) -> &Update {
        &self.update
    }

    /// Takes the output of the oldest step in flight: every request that sampled gets a token
    /// (section 6).
    pub fn update_from_output(&mut self, plan: Plan) -> &Update {
        self.update.first_tokens.clear();
        self.update.finished.clear();
        self.update.following = 0;
        self.update.before.clear();
        let (now, previous) = (self.now, self.previous);
        let max_model_len = self.config.max_model_len;
        for row in &plan.rows {
            let Some(seq) = self.seqs.get_mut(row.slot as usize) else { continue };
            // Most rows of most steps: one more token that is neither the first nor the last, and
            // fills no block.
            let known = seq.tokens + 1;
            if !row.prefill
                && row.samples
                && seq.stale == 0
                && seq.status == Status::Running
                && known < seq.table.register_at().min(seq.end).min(max_model_len)
            {
                seq.tokens = known;
                self.update.token(seq.token_at.replace(now), previous);
                seq.in_flight -= row.tokens;
                seq.placeholders = seq.placeholders.saturating_sub(1);
                continue;
            }
            seq.in_flight = seq.in_flight.saturating_sub(row.tokens);
            let stale = seq.stale > 0;
            seq.stale = seq.stale.saturating_sub(row.tokens);
            if seq.status == Status::Finished {
                if seq.in_flight == 0 {
                    self.vacant.push(row.slot);
                }
                continue;
            }
            if !row.samples {
                continue;
            }
            // Also to one that was preempted meanwhile: its token was sampled all the same.
            seq.tokens += 1;
            self.update.token(seq.token_at.replace(now), previous);
            if seq.tokens == seq.prompt + 1 {
                self.update.first_tokens.push(seq.id);
            }
            if !stale && seq.placeholders > 0 {
                seq.placeholders -= 1;
                // Async: at schedule() the token that fills the block was not known yet.
                if seq.status == Status::Running {
                    let computed = seq.computed.saturating_sub(seq.in_flight);
                    self.kv.register(&mut seq.table, computed.min(seq.tokens));
                }
            }
            if self.config.max_model_len.min(seq.end) <= seq.tokens {
                self.update.finished.push(seq.finished(FinishReason::Length));
                if seq.status == Status::Preempted {
                    self.waiting.remove(row.slot, seq);
                }
                self.kv.release(&mut seq.table);
                self.held -= seq.computed;
                seq.status = Status::Finished;
                self.by_id.remove(&seq.id);
                if seq.in_flight == 0 {
                    self.vacant.push(row.slot);
                }
            }
        }
        if !self.update.finished.is_empty() {
            let seqs = &self.seqs;
            self.running.retain(|&slot| seqs[slot as usize].status == Status::Running);
        }
        if 0 < plan.tokens() {
            self.previous = now;
        }
        self.spare.push(plan);
        &self.update
    }
}

/// Blocks that an admission leaves free; the null block counts in the product, as in vLLM.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "vLLM rounds this product of a share and a count down"
)]
fn watermark_blocks(config: &VllmConfig) -> u64 {
    (config.watermark * config.num_blocks as f64) as u64
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
