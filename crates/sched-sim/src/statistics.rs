//! What a run adds up to, in exact integers.

use metrics_core::cache;

use crate::history::Stretch;
use crate::kv_cache::KvCounters;
use crate::time::Ticks;
use crate::vllm_v1::Rejection;

/// What happened in the KV cache of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvStatistics {
    /// Blocks that can be handed out.
    pub blocks: u64,
    /// Tokens in a block.
    pub block_size: u64,
    /// Hits, look-ups, evictions, refills, failed allocations.
    pub counters: KvCounters,
    /// Whether prefixes are kept in a radix tree, which does not know again what it has evicted:
    /// refills are not counted.
    pub radix_tree: bool,
    /// Blocks that hold a prefix and are in use by nobody.
    pub cached_blocks: u64,
    /// ∫ blocks in the table of at least one request dt, of each step as it was scheduled.
    pub used_time: u128,
    /// Most blocks in use when a step was scheduled.
    pub used_max: u64,
    /// Preemptions: each frees all blocks of a request.
    pub preemptions: u64,
    /// Requests that were preempted at least once.
    pub preempted_requests: u64,
    /// Tokens computed again after a preemption: what was lost, less the hits of its return.
    pub recomputed_tokens: u64,
    /// Tokens whose KV was swapped out by preemptions.
    pub swapped_tokens: u64,
}

impl KvStatistics {
    /// The sum over two servers with the same blocks.
    fn plus(&self, other: &Self) -> Option<Self> {
        ((self.blocks, self.block_size) == (other.blocks, other.block_size)).then(|| Self {
            blocks: self.blocks,
            block_size: self.block_size,
            counters: self.counters.plus(&other.counters),
            radix_tree: self.radix_tree || other.radix_tree,
            cached_blocks: self.cached_blocks + other.cached_blocks,
            used_time: self.used_time + other.used_time,
            used_max: self.used_max.max(other.used_max),
            preemptions: self.preemptions + other.preemptions,
            preempted_requests: self.preempted_requests + other.preempted_requests,
            recomputed_tokens: self.recomputed_tokens + other.recomputed_tokens,
            swapped_tokens: self.swapped_tokens + other.swapped_tokens,
        })
    }

    /// Share of the tokens that admissions looked up which were there, by
    /// [`kv_hit_rate`](cache::kv_hit_rate); `None` without look-ups.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        cache::kv_hit_rate(self.counters.hit_tokens, self.counters.queried_tokens).ok()
    }

    /// Share of the evicted blocks that were needed again, by
    /// [`refill_rate`](cache::refill_rate); `None` without evictions, and for a radix tree.
    #[must_use]
    pub fn refill_rate(&self) -> Option<f64> {
        let counted = self.refilled_blocks()?;
        cache::refill_rate(counted, self.counters.evicted_blocks).ok()
    }

    /// Blocks that were needed again after their eviction; `None` for a radix tree.
    #[must_use]
    pub fn refilled_blocks(&self) -> Option<u64> {
        (!self.radix_tree).then_some(self.counters.refilled_blocks)
    }

    /// The largest share of the blocks that was in use.
    #[must_use]
    pub fn utilization_max(&self) -> Option<f64> {
        ratio(self.used_max.into(), self.blocks.into())
    }
}

/// Requests refused, by reason; together they are [`RunStatistics::rejected`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Never to be served to their end, for want of KV blocks.
    pub never_fits: u64,
    /// Prompts that `max_model_len` leaves no room for.
    pub prompt_too_long: u64,
    /// As many requests waited as may.
    pub queue_full: u64,
    /// As many tokens waited as may.
    pub queue_tokens: u64,
    /// By the admission rule.
    pub admission_rule: u64,
    /// The token bucket was empty.
    pub token_bucket: u64,
    /// Nothing to compute or to make, or a number that another request has.
    pub invalid: u64,
}

impl Refused {
    /// Name in JSON and tables, and count, of every reason.
    #[must_use]
    pub const fn by_reason(&self) -> [(&'static str, u64); 7] {
        [
            ("never_fits", self.never_fits),
            ("prompt_too_long", self.prompt_too_long),
            ("queue_full", self.queue_full),
            ("queue_tokens", self.queue_tokens),
            ("admission_rule", self.admission_rule),
            ("token_bucket", self.token_bucket),
            ("invalid", self.invalid),
        ]
    }

    /// Counts one more.
    pub(crate) fn count(&mut self, why: &Rejection) {
        *match why {
            Rejection::NeverFits { .. } => &mut self.never_fits,
            Rejection::PromptTooLong { .. } => &mut self.prompt_too_long,
            Rejection::QueueFull { .. } => &mut self.queue_full,
            Rejection::QueueTokens { .. } => &mut self.queue_tokens,
            Rejection::Shut { .. } => &mut self.admission_rule,
            Rejection::NoPermit { .. } => &mut self.token_bucket,
            Rejection::EmptyPrompt { .. }
            | Rejection::NoOutput { .. }
            | Rejection::DuplicateId { .. } => &mut self.invalid,
        } += 1;
    }

    /// The sum over two servers.
    pub(crate) const fn plus(&self, other: &Self) -> Self {
        Self {
            never_fits: self.never_fits + other.never_fits,
            prompt_too_long: self.prompt_too_long + other.prompt_too_long,
            queue_full: self.queue_full + other.queue_full,
            queue_tokens: self.queue_tokens + other.queue_tokens,
            admission_rule: self.admission_rule + other.admission_rule,
            token_bucket: self.token_bucket + other.token_bucket,
            invalid: self.invalid + other.invalid,
        }
    }
}

/// Totals of a run; both engines give the same ones, bit for bit.
///
/// A total named `…_time` is an area: requests times attoseconds. Ratios are taken at the end, as
/// floats, by the methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunStatistics {
    /// The batch limit of the policy, of each server.
    pub max_num_seqs: u64,
    /// How many servers these are the totals of.
    pub servers: u64,
    /// Requests of the workload.
    pub requests: u64,
    /// Requests that arrived before the run ended.
    pub injected: u64,
    /// Requests answered in full.
    pub completed: u64,
    /// Requests in the batch when the run ended.
    pub running: u64,
    /// Requests that had arrived and were not in the batch when the run ended, preempted ones
    /// included.
    pub queued: u64,
    /// Requests refused at arrival.
    pub rejected: u64,
    /// The same by reason.
    pub refused: Refused,
    /// Requests whose client went away.
    pub cancelled: u64,
    /// Requests whose client stopped waiting.
    pub timed_out: u64,
    /// Steps, each of which served somebody: waiting for an arrival is no step here.
    pub steps: u64,
    /// Steps that carried a prompt chunk, or in which a request finished.
    pub event_steps: u64,
    /// Steps that only decoded.
    pub decode_steps: u64,
    /// Steps that carried prompt chunks, alone or beside decodes.
    pub prefill_steps: u64,
    /// The first arrival.
    pub start: Ticks,
    /// When the run ended.
    pub end: Ticks,
    /// The duration of all steps.
    pub busy: Ticks,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// Output tokens made.
    pub output_tokens: u64,
    /// Sum over steps of the requests that the step serves.
    pub served_steps: u128,
    /// Sum over steps of the requests in the batch, those that the step holds back included.
    pub in_service_steps: u128,
    /// ∫ requests that the step serves dt.
    pub served_time: u128,
    /// ∫ requests that decode dt.
    pub decode_time: u128,
    /// ∫ prompt chunks dt.
    pub prefill_time: u128,
    /// ∫ requests in the system dt, queue included, taken along the clock.
    pub in_system_time: u128,
    /// ∫ requests in the batch dt, taken along the clock.
    pub in_service_time: u128,
    /// Σ time in the system, taken request by request (to the end of the run if cut off).
    pub sojourn_time: u128,
    /// Σ time since the start of the first step of a request, taken request by request.
    pub service_time: u128,
    /// Sum over steps of the context tokens that the decodes read.
    pub kv_read_tokens: u128,
    /// Sum over steps of the tokens of the batch in KV at the step's end, before finished requests
    /// leave; those that requests share count once.
    pub kv_held_tokens: u128,
    /// Most tokens in KV at the end of a step.
    pub kv_held_max: u64,
    /// Most requests waiting at the start of a step, or at the end of the run.
    pub waiting_max: u64,
    /// What happened in the KV cache, under a policy that has one.
    pub kv: Option<KvStatistics>,
}

impl RunStatistics {
    /// Mean share of the KV blocks in use, idle time included; `None` without a KV cache or time.
    #[must_use]
    pub fn kv_utilization(&self) -> Option<f64> {
        let kv = self.kv?;
        ratio(kv.used_time, self.server_time() * u128::from(kv.blocks))
    }

    /// Share of the requests that ended which were preempted at least once, by
    /// [`preemption_rate`](cache::preemption_rate); `None` if none ended or there is no KV cache.
    #[must_use]
    pub fn preemption_rate(&self) -> Option<f64> {
        cache::preemption_rate(self.kv?.preempted_requests, self.ended()).ok()
    }

    /// Share of the requests that ended which failed for want of memory, by
    /// [`oom_rate`](cache::oom_rate): 0, as a scheduler that preempts fails none. `None` if none
    /// ended or there is no KV cache.
    #[must_use]
    pub fn oom_rate(&self) -> Option<f64> {
        self.kv?;
        cache::oom_rate(0, self.ended()).ok()
    }

    /// The totals of several servers: sums, and the largest of what is a maximum. What the KV
    /// caches did is summed where all have the same blocks, and left out where they differ.
    pub(crate) fn of_fleet(each: impl Iterator<Item = Self>) -> Self {
        each.reduce(|a, b| Self {
            max_num_seqs: a.max_num_seqs.max(b.max_num_seqs),
            servers: a.servers + b.servers,
            requests: a.requests + b.requests,
            injected: a.injected + b.injected,
            completed: a.completed + b.completed,
            running: a.running + b.running,
            queued: a.queued + b.queued,
            rejected: a.rejected + b.rejected,
            refused: a.refused.plus(&b.refused),
            cancelled: a.cancelled + b.cancelled,
            timed_out: a.timed_out + b.timed_out,
            steps: a.steps + b.steps,
            event_steps: a.event_steps + b.event_steps,
            decode_steps: a.decode_steps + b.decode_steps,
            prefill_steps: a.prefill_steps + b.prefill_steps,
            start: a.start.min(b.start),
            end: a.end.max(b.end),
            busy: a.busy.after(b.busy),
            prefill_tokens: a.prefill_tokens + b.prefill_tokens,
            output_tokens: a.output_tokens + b.output_tokens,
            served_steps: a.served_steps + b.served_steps,
            in_service_steps: a.in_service_steps + b.in_service_steps,
            served_time: a.served_time + b.served_time,
            decode_time: a.decode_time + b.decode_time,
            prefill_time: a.prefill_time + b.prefill_time,
            in_system_time: a.in_system_time + b.in_system_time,
            in_service_time: a.in_service_time + b.in_service_time,
            sojourn_time: a.sojourn_time + b.sojourn_time,
            service_time: a.service_time + b.service_time,
            kv_read_tokens: a.kv_read_tokens + b.kv_read_tokens,
            kv_held_tokens: a.kv_held_tokens + b.kv_held_tokens,
            kv_held_max: a.kv_held_max.max(b.kv_held_max),
            waiting_max: a.waiting_max.max(b.waiting_max),
            kv: a.kv.zip(b.kv).and_then(|(a, b)| a.plus(&b)),
        })
        .unwrap_or_default()
    }

    /// The same totals of a server that is part of a whole: shares and means are then over the time of
    /// the whole, of which it may have had nothing to do at either end.
    pub(crate) fn as_part_of(self, whole: &Self) -> Self {
        Self { start: whole.start, end: whole.end, ..self }
    }

    /// Requests that are over.
    pub(crate) fn ended(&self) -> u64 {
        self.completed + self.cancelled + self.timed_out + self.rejected
    }

    /// Adds a stretch, in whose last step some requests `finished`.
    #[inline]
    pub(crate) fn add(&mut self, s: &Stretch, finished: u64) {
        let w = &s.work;
        let (k, dt) = (u128::from(s.steps), s.duration().0);
        let served = w.requests();
        self.steps += s.steps;
        self.completed += finished;
        if w.prefills == 0 {
            self.decode_steps += s.steps;
            self.event_steps += u64::from(0 < finished);
        } else {
            self.prefill_steps += s.steps;
            self.event_steps += s.steps;
        }
        self.busy.0 += dt;
        self.prefill_tokens += w.prefill_tokens * s.steps;
        self.served_steps += k * u128::from(served);
        self.in_service_steps += k * u128::from(s.running);
        self.decode_time += dt * u128::from(w.decodes);
        self.prefill_time += dt * u128::from(w.prefills);
        self.in_service_time += dt * u128::from(s.running);
        let new = w.prefill_tokens + w.decodes;
        let held_at_end = s.held_tokens + s.steps * new;
        self.kv_held_max = self.kv_held_max.max(held_at_end);
        // Most stretches are one step, for which no sum has to be made.
        if s.steps == 1 {
            self.kv_read_tokens += u128::from(w.decode_context);
            self.kv_held_tokens += u128::from(held_at_end);
        } else {
            let pairs = k * (k - 1) / 2;
            self.kv_read_tokens += k * u128::from(w.decode_context) + pairs * u128::from(w.decodes);
            self.kv_held_tokens += k * u128::from(s.held_tokens) + (pairs + k) * u128::from(new);
        }
    }

    /// Takes so many prompt chunks and decodes of a step just added out of its stages: the step
    /// computes them for requests that are not in the batch any more.
    pub(crate) fn leave_out(&mut self, s: &Stretch, (prefills, decodes): (u64, u64)) {
        let dt = s.duration().0;
        self.served_steps -= u128::from(prefills + decodes);
        self.prefill_time -= dt * u128::from(prefills);
        self.decode_time -= dt * u128::from(decodes);
    }

    /// Fills what follows from the rest.
    pub(crate) fn close(&mut self) {
        self.served_time = self.decode_time + self.prefill_time;
    }

    /// The duration of the run, once for each server.
    fn server_time(&self) -> u128 {
        self.duration().0 * u128::from(self.servers.max(1))
    }

    /// From the first arrival to the end of the run.
    #[must_use]
    pub fn duration(&self) -> Ticks {
        self.end.since(self.start).unwrap_or_default()
    }

    /// Time without a step since the first arrival, of all servers together.
    #[must_use]
    pub fn idle(&self) -> Ticks {
        Ticks(self.server_time()).since(self.busy).unwrap_or_default()
    }

    /// Requests that had not arrived when the run ended.
    #[must_use]
    pub fn not_arrived(&self) -> u64 {
        self.requests - self.injected
    }

    /// Whether every request that arrived is accounted for.
    #[must_use]
    pub fn conserves_requests(&self) -> bool {
        self.injected == self.ended() + self.running + self.queued
    }

    /// Little's law on the sample path, queue included and in service, as equalities of integers:
    /// the area under the number of requests is the sum of their times.
    #[must_use]
    pub fn littles_law_holds(&self) -> bool {
        self.in_system_time == self.sojourn_time && self.in_service_time == self.service_time
    }

    /// Batch utilization by steps: Σ b / (T · B_max), with b the requests in the batch, since who
    /// is held back takes a place as well; `None` without steps.
    #[must_use]
    pub fn utilization_by_steps(&self) -> Option<f64> {
        let slots = u128::from(self.steps) * u128::from(self.max_num_seqs);
        ratio(self.in_service_steps, slots)
    }

    /// Batch utilization by time: ∫ b dt / (T · B_max), with the same b, idle time included; `None`
    /// if no time passed.
    #[must_use]
    pub fn utilization_by_time(&self) -> Option<f64> {
        // Within 2^128: a run is below 2^92 ticks, a batch below 2^32 requests.
        ratio(self.in_service_time, self.server_time() * u128::from(self.max_num_seqs))
    }

    /// Mean number of requests in the system, queue included.
    #[must_use]
    pub fn mean_in_system(&self) -> Option<f64> {
        ratio(self.in_system_time, self.duration().0)
    }

    /// Mean number of requests in the batch; this one compares with the batch limit.
    #[must_use]
    pub fn mean_in_service(&self) -> Option<f64> {
        ratio(self.in_service_time, self.duration().0)
    }

    /// Mean number of requests that wait for admission.
    #[must_use]
    pub fn mean_waiting(&self) -> Option<f64> {
        ratio(self.in_system_time.checked_sub(self.in_service_time)?, self.duration().0)
    }

    /// Mean number of prompt chunks being computed.
    #[must_use]
    pub fn mean_in_prefill(&self) -> Option<f64> {
        ratio(self.prefill_time, self.duration().0)
    }

    /// Mean number of requests being decoded.
    #[must_use]
    pub fn mean_in_decode(&self) -> Option<f64> {
        ratio(self.decode_time, self.duration().0)
    }

    /// Mean number of requests in the batch that no step serves, as decodes while a step has only
    /// prompts: what is in the batch and neither in prefill nor in decode.
    #[must_use]
    pub fn mean_held_back(&self) -> Option<f64> {
        ratio(self.in_service_time.checked_sub(self.served_time)?, self.duration().0)
    }

    /// Share of the time since the first arrival in which a step ran, over all servers.
    #[must_use]
    pub fn busy_share(&self) -> Option<f64> {
        ratio(self.busy.0, self.server_time())
    }

    /// Prompt tokens computed per output token made.
    #[must_use]
    pub fn prefill_decode_ratio(&self) -> Option<f64> {
        ratio(u128::from(self.prefill_tokens), u128::from(self.output_tokens))
    }

    /// Mean KV bytes that the decodes of a step read, at `bytes_per_token`.
    #[must_use]
    pub fn kv_read_bytes_per_step(&self, bytes_per_token: u64) -> Option<f64> {
        Some(ratio(self.kv_read_tokens, u128::from(self.steps))? * bytes_per_token as f64)
    }

    /// Mean KV bytes that the batch holds at the end of a step, at `bytes_per_token`.
    #[must_use]
    pub fn kv_held_bytes_per_step(&self, bytes_per_token: u64) -> Option<f64> {
        Some(ratio(self.kv_held_tokens, u128::from(self.steps))? * bytes_per_token as f64)
    }

    /// Most KV bytes that the batch ever holds, at `bytes_per_token`.
    #[must_use]
    pub fn kv_held_bytes_max(&self, bytes_per_token: u64) -> u128 {
        u128::from(self.kv_held_max) * u128::from(bytes_per_token)
    }
}

fn ratio(part: u128, whole: u128) -> Option<f64> {
    if whole == 0 { None } else { Some(part as f64 / whole as f64) }
}
