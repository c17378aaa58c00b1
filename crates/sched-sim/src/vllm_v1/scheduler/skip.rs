//! Many steps at once, while everybody who runs decodes and nobody else can be admitted.
//!
//! In such a stretch the only thing that happens is that blocks fill up: a request takes its next
//! block, and registers the one before it, once in as many steps as a block has tokens. These are
//! done one by one, in the order in which the scheduler would have done them, since the order
//! decides which block is handed out and evicted. All else is a number that grows by one a step.

use super::{Held, Plan, QueuePolicy, VllmV1};

/// A state in which the scheduler would do the same for some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vllm_v1) struct Quiet {
    /// Steps until a request ends.
    pub steps: u64,
    /// Requests that decode.
    pub decodes: u64,
    /// Tokens that they have in the first of these steps, the one that it computes included.
    pub context: u64,
    /// Whether an arrival would change it.
    pub arrivals: bool,
    /// What holds back whoever waits.
    pub held: Option<Held>,
    head: Head,
}

/// What the head of the queue meets in each of these steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// It is not looked at.
    Unseen,
    /// Its prompt does not fit into the step, and may not be cut.
    TooLong(u32),
    /// There are too few blocks for it.
    NoBlocks(u32),
}

/// Blocks taken in a stretch, as sums from which their use over time follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::vllm_v1) struct Taken {
    /// How many.
    pub blocks: u64,
    /// Σ of the steps in which they were taken, from 0.
    steps: u128,
    /// Σ of step · (step − 1) / 2.
    pairs: u128,
    /// The last step in which some were taken, how many, and how many of them held a prefix.
    last: (u64, u64, u64),
    /// Those of the first step, and how many of them held a prefix.
    pub first: (u64, u64),
    /// How many held a prefix, which is gone.
    pub evicted: u64,
}

impl Taken {
    fn add(&mut self, blocks: u64, evicted: u64, step: u64) {
        let (n, j) = (u128::from(blocks), u128::from(step));
        self.blocks += blocks;
        self.steps += n * j;
        self.pairs += n * (j * j.saturating_sub(1) / 2);
        self.evicted += evicted;
        if blocks > 0 {
            self.last = (step, blocks, evicted);
        }
        if step == 0 {
            self.first = (self.first.0 + blocks, self.first.1 + evicted);
        }
    }

    /// Blocks taken before step `step`, which is the last one or after it.
    pub fn before(&self, step: u64) -> u64 {
        if self.last.0 == step { self.blocks - self.last.1 } else { self.blocks }
    }

    /// The same of those that held a prefix.
    pub fn evicted_before(&self, step: u64) -> u64 {
        if self.last.0 == step { self.evicted - self.last.2 } else { self.evicted }
    }

    /// Σ over the first `steps` steps j of (blocks in use), and of j · (blocks in use), with
    /// `before` in use before the first. All were taken in step `steps` or before.
    pub fn used(&self, before: u64, steps: u64) -> (u128, u128) {
        let (k, n) = (u128::from(steps), u128::from(before) + u128::from(self.blocks));
        let pairs = k * k.saturating_sub(1) / 2;
        (n * k - self.steps, n * pairs - self.pairs)
    }
}

impl VllmV1 {
    /// Whether the next steps only decode what runs now, with `in_flight` not updated yet.
    pub(in crate::vllm_v1) fn quiet(&self, in_flight: Option<&Plan>) -> Option<Quiet> {
        let decodes = self.running.len();
        let room = self.budget.checked_sub(decodes as u64)?;
        let waiting = self.waiting.len();
        let holds = self.config.prefill_schedule_interval > 1;
        if decodes == 0 || holds && (self.backlogged || waiting > 0) {
            return None;
        }
        let limit = self.held_by_limit(room);
        let (head, arrivals) = if limit.is_some() {
            // Nobody is admitted, whoever waits.
            (Head::Unseen, holds)
        } else if let Some(slot) = self.waiting.head() {
            // Who comes later is behind the head, unless by priority, and unless the cap depends
            // on how many there are.
            let arrivals = self.config.policy == QueuePolicy::Priority
                || self.config.long_prefill_token_threshold_adaptive;
            (self.blocked(slot, room)?, arrivals)
        } else {
            (Head::Unseen, true)
        };
        // With two steps in flight, one of them is under way, and every row of it has to be a
        // decode of the running request in its place, whose token is the only one on its way.
        let is_async = in_flight.is_some();
        let rows = in_flight.map_or(&[][..], Plan::rows);
        if is_async && rows.len() != decodes {
            return None;
        }
        let on_the_way = u64::from(is_async);
        let (mut steps, mut context) = (u64::MAX, 0);
        for (place, &slot) in self.running.iter().enumerate() {
            let seq = self.seqs.get(slot as usize)?;
            if let Some(row) = rows.get(place)
                && (row.slot != slot || row.prefill || !row.samples)
            {
                return None;
            }
            let decodes = !seq.in_prefill
                && seq.placeholders == on_the_way
                && seq.in_flight == on_the_way
                && seq.stale == 0
                && seq.computed + 1 == seq.tokens + on_the_way
                && seq.tokens <= seq.table.register_at();
            // In the step that makes its last token it counts as an event.
            let left = self.config.max_model_len.min(seq.end).saturating_sub(seq.tokens + 1);
            if !decodes || left == 0 {
                return None;
            }
            steps = steps.min(left);
            context += seq.computed + 1;
        }
        let held = limit.or(match head {
            Head::Unseen => None,
            Head::TooLong(_) => Some(Held::Budget),
            Head::NoBlocks(_) => Some(Held::Blocks),
        });
        Some(Quiet { steps, decodes: decodes as u64, context, arrivals, held, head })
    }

    /// Why the head of the queue would not be admitted with `room` tokens left; `None` if it would.
    fn blocked(&self, slot: u32, room: u64) -> Option<Head> {
        let seq = self.seqs.get(slot as usize).filter(|seq| seq.stale == 0)?;
        let (hit, computed) = self.found(seq);
        let n = (seq.tokens - computed).min(self.long_prefill_cap());
        if room < n && !self.config.enable_chunked_prefill {
            Some(Head::TooLong(slot))
        } else if self.fits(hit, slot, computed + n.min(room)) {
            None
        } else {
            Some(Head::NoBlocks(slot))
        }
    }

    /// Schedules and updates up to `most` steps of a [`quiet`](Self::quiet) state; how many it
    /// was: fewer if blocks run out or the head of the queue may fit.
    pub(in crate::vllm_v1) fn skip(&mut self, quiet: &Quiet, most: u64, taken: &mut Taken) -> u64 {
        if let Head::TooLong(slot) | Head::NoBlocks(slot) = quiet.head
            && let Some(seq) = self.seqs.get(slot as usize)
        {
            self.kv.watch(&seq.table);
        }
        let steps = self.fill_blocks(most.min(quiet.steps), taken);
        self.kv.unwatch();
        for &slot in &self.running {
            let seq = &mut self.seqs[slot as usize];
            seq.tokens += steps;
            seq.computed += steps;
        }
        let tokens = steps * quiet.decodes;
        self.scheduled_tokens += tokens;
        self.held += tokens;
        self.executed += steps;
        if matches!(quiet.head, Head::NoBlocks(_)) {
            self.kv.count_failed_allocations(steps);
        }
        steps
    }

    /// Dates the tokens of a [`skip`](Self::skip), the last of which came at `end`; tells of
    /// the first of each, in [`Update`](super::Update), when the one before it came.
    pub(in crate::vllm_v1) fn date(&mut self, end: u128) {
        self.update.following = 0;
        self.update.before.clear();
        for &slot in &self.running {
            let seq = &mut self.seqs[slot as usize];
            self.update.token(seq.token_at.replace(end), self.previous);
        }
        self.previous = end;
    }

    /// Takes and registers blocks as in up to `most` steps; how many steps were possible.
    fn fill_blocks(&mut self, most: u64, taken: &mut Taken) -> u64 {
        let size = self.config.block_size;
        let last = self.config.max_model_len - 1;
        // A block has to be taken when the request's tokens pass a multiple of its size, and one
        // can be registered when they reach it; with a step in flight that is the same step.
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        for (place, &slot) in self.running.iter().enumerate() {
            let seq = &self.seqs[slot as usize];
            let take = until_multiple(seq.computed, size);
            let register = until_multiple(seq.tokens, size);
            if take < most {
                due.push((take, super::count(place)));
            }
            if register != take && register < most {
                due.push((register, super::count(place)));
            }
        }
        due.sort_unstable();
        let mut steps = most;
        let (mut base, mut at) = (0, 0);
        while let Some(&(offset, _)) = due.get(at) {
            let step = base + offset;
            if most <= step {
                break;
            }
            let group = due[at..].iter().take_while(|d| d.0 == offset).count();
            let group = &due[at..at + group];
            let before = self.kv.idle_blocks();
            let cached = self.kv.books().cached;
            if before < group.len() as u64 && before < self.takes(group, step) {
                steps = step;
                break;
            }
            for &(_, place) in group {
                let Some(&slot) = self.running.get(place as usize) else { continue };
                let seq = &mut self.seqs[slot as usize];
                self.kv.extend(&mut seq.table, seq.computed + 1 + step);
                self.kv.register(&mut seq.table, seq.tokens + step);
                seq.calm_down(last, seq.placeholders);
            }
            let evicted = cached - self.kv.books().cached;
            taken.add(before - self.kv.idle_blocks(), evicted, step);
            if self.kv.was_touched() {
                steps = step + 1;
                break;
            }
            at += group.len();
            if at == due.len() {
                (base, at) = (base + size, 0);
            }
        }
        self.due = due;
        steps
    }

    /// Blocks that these requests need in a step.
    fn takes(&self, group: &[(u64, u32)], step: u64) -> u64 {
        let slots = group.iter().filter_map(|d| self.running.get(d.1 as usize));
        let seqs = slots.filter_map(|&slot| self.seqs.get(slot as usize));
        seqs.filter(|seq| seq.table.room() < seq.computed + 1 + step).count() as u64
    }
}

/// How far `n` is from the next multiple of `size`; 0 if it is one.
fn until_multiple(n: u64, size: u64) -> u64 {
    let over = n % size;
    if over == 0 { 0 } else { size - over }
}
