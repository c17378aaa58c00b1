//! One step while a policy fills it: the only place where a policy can act.

#![expect(clippy::inline_always, reason = "left to itself the compiler makes a run slower by 1 %")]

use crate::engine::Skipping;
use crate::error::{Refusal, Result, SimError};
use crate::history::Held;
use crate::kv_cache::Hit;
use crate::memory::{Memory, Order, Preemption};
use crate::policy::Horizon;
use crate::reference::Plain;
use crate::replica::Entry;
use crate::request::Stage;
use crate::step_time::StepWork;
use crate::time::Ticks;
use crate::workload::RequestId;

/// The state behind a step: of the engine that skips, or of the plain one.
///
/// Both understand the same operations; everything that can be refused is checked here, once.
pub(crate) enum Batch<'a> {
    Skipping(&'a mut Skipping),
    Plain(&'a mut Plain),
}

macro_rules! on {
    ($step:expr, $batch:ident => $call:expr) => {
        match &$step.batch {
            Batch::Skipping($batch) => $call,
            Batch::Plain($batch) => $call,
        }
    };
    (mut $step:expr, $batch:ident => $call:expr) => {
        match &mut $step.batch {
            Batch::Skipping($batch) => $call,
            Batch::Plain($batch) => $call,
        }
    };
}

/// A request that waits for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Where it is among the requests inside, as the other operations name it.
    pub position: usize,
    /// Tokens of its prompt.
    pub input_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Tokens that its prefill has to compute: its prompt, and after a preemption the tokens of
    /// its answer that it has already.
    pub known_tokens: u64,
    /// Whether its KV is somewhere else, swapped out or brought along from another server: it has
    /// nothing to prefill, and comes by [`Step::swap_in`].
    pub swapped: bool,
}

impl Waiting {
    /// Tokens of its answer that it has yet to make.
    #[must_use]
    pub const fn output_left(&self) -> u64 {
        self.input_tokens + self.output_tokens - self.known_tokens
    }
}

/// Whether a server had nothing to do before the step that is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// When the last step ended.
    ended: Ticks,
    /// Whether nobody was inside at some time since.
    idle: bool,
}

impl Default for Rest {
    fn default() -> Self {
        Self { ended: Ticks::ZERO, idle: true }
    }
}

impl Rest {
    /// Somebody arrives at a server in which there is nobody.
    pub fn woken(&mut self, at: Ticks) {
        // Who comes as the last one ends leaves it no time to rest.
        self.idle |= self.ended < at;
    }

    /// A step has ended.
    pub fn ran(&mut self, end: Ticks) {
        *self = Self { ended: end, idle: false };
    }

    pub const fn is_over(&self) -> bool {
        self.idle
    }
}

/// One step of a replica while a policy fills it.
///
/// Stages are those at the start of the step: a request whose prompt ends in it decodes from the
/// next one on. Every operation is checked and changes only this step; the engine then prices the
/// step, runs it, and moves the requests.
pub struct Step<'a> {
    pub(crate) batch: Batch<'a>,
    pub(crate) requests: &'a [Entry],
    pub(crate) inside: u64,
    pub(crate) max_num_seqs: u64,
    pub(crate) order: Order,
    pub(crate) preemption: Preemption,
    pub(crate) at: Ticks,
    pub(crate) number: u64,
    /// What holds back who is next in the queue, as far as the policy has come upon it.
    pub(crate) held: Option<Held>,
}

impl<'a> Step<'a> {
    /// Requests in the batch, those admitted in this step included.
    #[must_use]
    #[inline]
    pub fn running(&self) -> u64 {
        on!(self, b => b.running())
    }

    /// Requests that decode at the start of the step.
    #[must_use]
    #[inline]
    pub fn decoding(&self) -> u64 {
        on!(self, b => b.decoding())
    }

    /// Requests whose prompt was begun and is not complete at the start of the step.
    #[must_use]
    pub fn prefilling(&self) -> u64 {
        on!(self, b => b.prefilling())
    }

    /// Requests that have arrived and are not admitted.
    #[must_use]
    #[inline]
    pub fn waiting(&self) -> u64 {
        on!(self, b => b.waiting())
    }

    /// Whether the server was idle since the last step, with nobody in the batch or in the queue;
    /// also before the first one.
    #[must_use]
    pub fn after_idle(&self) -> bool {
        on!(self, b => b.rest().is_over())
    }

    /// The request that is admitted next, by the [order](crate::Order) of the server.
    #[must_use]
    #[inline(always)]
    pub fn next_waiting(&self) -> Option<Waiting> {
        let position = on!(self, b => b.next_waiting())?;
        let r = self.requests.get(position)?;
        let known_tokens = on!(self, b => b.known(position, r));
        let (input_tokens, output_tokens) = (r.input, r.output);
        let swapped = on!(self, b => b.swapped(position));
        Some(Waiting { position, input_tokens, output_tokens, known_tokens, swapped })
    }

    /// The batch in order of admission: the first request, or the one after `position`.
    #[must_use]
    pub fn running_after(&self, position: Option<usize>) -> Option<usize> {
        on!(self, b => b.running_after(position))
    }

    /// The stage of a running request at the start of the step; `None` if it is not running.
    #[must_use]
    pub fn stage(&self, position: usize) -> Option<Stage> {
        on!(self, b => b.stage(position))
    }

    /// Tokens that a running request has left to prefill at the start of the step; `None` if it
    /// does not prefill.
    #[must_use]
    pub fn prompt_left(&self, position: usize) -> Option<u64> {
        let r = self.requests.get(position)?;
        (self.stage(position)? == Stage::Prefill).then(|| self.left(position, r))
    }

    /// Tokens that a request in prefill has left to compute.
    fn left(&self, position: usize, r: &Entry) -> u64 {
        on!(self, b => b.known(position, r) - b.prefilled(position))
    }

    /// Output tokens that a request has yet to make.
    #[must_use]
    pub fn output_left(&self, position: usize) -> u64 {
        let known = |r| on!(self, b => b.known(position, r));
        self.requests.get(position).map_or(0, |r| r.input + r.output - known(r))
    }

    /// The number of a request, the tokens of its prompt, and those of its answer.
    #[must_use]
    pub fn numbers_of(&self, position: usize) -> Option<(u64, u64, u64)> {
        self.requests.get(position).map(|r| (r.id, r.input, r.output))
    }

    /// The request of the batch that was admitted last.
    #[must_use]
    pub fn last_admitted(&self) -> Option<usize> {
        on!(self, b => b.last_admitted())
    }

    /// Tokens in a KV block; 1 if blocks have no bound.
    #[must_use]
    pub fn block_size(&self) -> u64 {
        on!(self, b => b.memory()).map_or(1, |memory| memory.pool.block_size())
    }

    /// KV blocks that nobody has, those that only the prefix cache holds included; `u64::MAX` if
    /// there is no bound.
    #[must_use]
    #[inline]
    pub fn free_blocks(&self) -> u64 {
        on!(self, b => b.free_blocks())
    }

    /// KV blocks that one more token of every decode needs.
    #[must_use]
    #[inline]
    pub fn decode_blocks(&self) -> u64 {
        on!(self, b => b.decode_blocks())
    }

    /// Whether there are blocks to admit the [next](Self::next_waiting) request with `tokens` in
    /// its first step, and to leave the policy's watermark free; who comes back to an empty batch needs
    /// none.
    #[must_use]
    #[inline(always)]
    pub fn next_fits(&mut self, tokens: u64) -> bool {
        let Some(position) = on!(self, b => b.next_waiting()) else { return false };
        let (Some(r), Some(memory)) = (self.requests.get(position), on!(self, b => b.memory()))
        else {
            return true;
        };
        let needed = self.admission(memory, position, r, tokens);
        let fits = needed + self.watermark(memory) <= self.free_blocks();
        self.held = if fits { None } else { Some(Held::Blocks) };
        fits
    }

    /// Says what holds back who is next in the queue, for those who ask where time went; what is said
    /// last counts. It need not be said that the batch is full, nor that there are too few blocks for
    /// [`next_fits`](Self::next_fits), [`swap_in`](Self::swap_in) or [`make_room`](Self::make_room);
    /// where nothing is said, it is [`Held::Budget`].
    #[inline]
    pub fn hold(&mut self, why: Held) {
        self.held = Some(why);
    }

    /// What holds back whoever waits in the step as it is filled, or comes while it repeats. It must
    /// not depend on whether somebody waits: where who arrives changes nothing, a stretch of steps is
    /// decided before they come.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        if self.max_num_seqs <= self.running() {
            Held::Slots
        } else {
            self.held.unwrap_or(Held::Budget)
        }
    }

    /// Blocks that have to stay free beside who joins the batch: none if it is empty, so that who
    /// was preempted with nearly all of its answer can come back. Who is new and needs more than the
    /// rest was refused at the door.
    #[inline]
    fn watermark(&self, memory: &Memory) -> u64 {
        if self.running() == 0 { 0 } else { memory.watermark }
    }

    /// Blocks that an admission takes from those that nobody has.
    #[inline]
    fn admission(&self, memory: &Memory, position: usize, r: &Entry, tokens: u64) -> u64 {
        let hit = on!(self, b => b.found(position));
        let all = memory.admission(r, hit.tokens + tokens, on!(self, b => b.known(position, r)));
        all - hit.blocks + hit.idle_blocks
    }

    /// What the prefix cache has of the [next](Self::next_waiting) request: all that it knows but
    /// the last token can be found. [`admit`](Self::admit) then takes it, if nothing was evicted in
    /// between. The prefix counts as used now, even if the request is not admitted. Nothing is found
    /// where the policy says [so](crate::Policy::prefix_caching), or blocks have no bound.
    pub fn look_up(&mut self) -> Hit {
        let next = self.next_waiting().filter(|next| !next.swapped);
        let Some((next, r)) = next.and_then(|n| Some((n, self.requests.get(n.position)?))) else {
            return Hit::default();
        };
        on!(mut self, b => b.look_up(next.position, r)).unwrap_or_default()
    }

    /// Evicts cached prefixes until so many blocks are free, if there are as many. Whatever else
    /// needs blocks evicts by itself, but later: at the end of the decision.
    pub fn make_free(&mut self, blocks: u64) {
        on!(mut self, b => b.make_free(blocks));
    }

    /// Evicts what has to go for the blocks that were taken.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.make_free(0);
    }

    /// The request of the batch that the server's [order](crate::Order) puts last; the last to
    /// arrive, for first come, first served.
    #[must_use]
    pub fn last_in_order(&self) -> Option<usize> {
        on!(self, b => b.last_in_order(self.requests))
    }

    /// Preempts whoever the order puts last until there are blocks for one more token of every
    /// decode that is left; how many it were.
    ///
    /// # Errors
    ///
    /// As [`preempt`](Self::preempt).
    #[inline]
    pub fn make_room(&mut self) -> Result<u64> {
        if self.decode_blocks() <= self.free_blocks() { Ok(0) } else { self.preempt_for_blocks() }
    }

    #[cold]
    fn preempt_for_blocks(&mut self) -> Result<u64> {
        let before = self.running();
        while self.free_blocks() < self.decode_blocks()
            && let Some(last) = self.last_in_order()
        {
            self.preempt(last)?;
        }
        self.hold(Held::Blocks);
        Ok(before - self.running())
    }

    /// Brings the [next](Self::next_waiting) request into the batch, if its KV is
    /// [somewhere else](Waiting::swapped), there is a slot, and there are blocks for it, for one more
    /// token of every decode and, unless the batch is empty, for the policy's watermark; whether it
    /// is in. It decodes.
    #[inline(always)]
    pub fn swap_in(&mut self) -> bool {
        let Some(position) = on!(self, b => b.next_waiting()) else { return false };
        if !on!(self, b => b.swapped(position)) {
            return false;
        }
        let Some(r) = self.requests.get(position) else { return false };
        let known = on!(self, b => b.known(position, r));
        let free = self.free_blocks().saturating_sub(self.decode_blocks());
        let needed = on!(self, b => b.memory())
            .map_or(0, |m| m.holding(r, known + 1 - m.lag) + self.watermark(m));
        let short = free < needed;
        self.held = if short { Some(Held::Blocks) } else { None };
        if self.max_num_seqs <= self.running() || short || 0 < self.work().decodes {
            return false;
        }
        on!(mut self, b => b.swap_in(r));
        true
    }

    /// Takes a running request out of the batch and back into the queue, where the order has it.
    /// Its blocks are free, and its KV is lost: what it knows is prefilled again. A decode is
    /// swapped out if the policy says [so](crate::Policy::preemption).
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSuchRequest`], [`Refusal::WrongStage`] if it is not running, or
    /// [`Refusal::ServedTwice`] if it has work in this step or has come back in it.
    pub fn preempt(&mut self, position: usize) -> Result<()> {
        self.put_back(position, false)
    }

    /// As [`preempt`](Self::preempt), but to the end of its rank in the queue.
    ///
    /// # Errors
    ///
    /// As [`preempt`](Self::preempt).
    pub fn retract(&mut self, position: usize) -> Result<()> {
        self.put_back(position, true)
    }

    fn put_back(&mut self, position: usize, to_end: bool) -> Result<()> {
        let r = self.request(position)?;
        if self.stage(position).is_none() {
            let refusal = Refusal::WrongStage { id: RequestId::from(r.id), stage: "the batch" };
            return Err(self.refuse(refusal));
        }
        if on!(self, b => b.served(position) || b.returned(position)) {
            return Err(self.refuse(Refusal::ServedTwice { id: RequestId::from(r.id) }));
        }
        let decodes = self.stage(position) == Some(Stage::Decode);
        if decodes && matches!(self.preemption, Preemption::Swap { .. }) && !to_end {
            on!(mut self, b => b.swap_out(position, r));
        } else {
            on!(mut self, b => b.preempt(position, r, to_end));
        }
        Ok(())
    }

    /// The horizon of a policy that serves whoever runs in every step, and admits who is next in
    /// the queue whenever there is room: an arrival changes nothing if there is no slot, or if it
    /// goes behind others that do not fit.
    #[must_use]
    #[inline]
    pub fn horizon(&self) -> Horizon {
        let behind = self.order == Order::Fcfs && 0 < self.waiting();
        if behind || self.max_num_seqs <= self.running() {
            Horizon::UNTIL_CHANGE
        } else {
            Horizon::UNTIL_ARRIVAL
        }
    }

    /// What the step does so far.
    #[must_use]
    #[inline]
    pub fn work(&self) -> StepWork {
        *on!(self, b => b.work())
    }

    /// Gives one token to every request that decodes.
    ///
    /// # Errors
    ///
    /// [`Refusal::GroupServedTwice`] if one of them already has work in this step,
    /// [`Refusal::NoBlocks`] if there are not enough for one more token of each.
    #[inline]
    pub fn decode_all(&mut self) -> Result<()> {
        if self.work().decodes != 0 {
            return Err(self.refuse(Refusal::GroupServedTwice { stage: "decode" }));
        }
        // Whoever is swapped in later in this step is not one of the requests that were meant.
        if self.decoding() == 0 {
            return Ok(());
        }
        let needed = self.decode_blocks();
        self.check_blocks("a token of every decode", needed)?;
        on!(mut self, b => b.decode_all());
        Ok(())
    }

    /// Gives one token to one request that decodes.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSuchRequest`], [`Refusal::WrongStage`], [`Refusal::ServedTwice`] or
    /// [`Refusal::NoBlocks`].
    pub fn decode(&mut self, position: usize) -> Result<()> {
        let r = self.request(position)?;
        self.check(position, r, Stage::Decode, "decode")?;
        let needed = on!(self, b => b.block_of(position, r));
        self.check_blocks("a decode", needed)?;
        on!(mut self, b => b.decode(position, r));
        Ok(())
    }

    /// Gives up to `chunk` prompt tokens to every request in prefill that was running before this
    /// step.
    ///
    /// # Errors
    ///
    /// [`Refusal::EmptyChunk`] if `chunk` is 0; [`Refusal::GroupServedTwice`] if one of them
    /// already has work in this step.
    #[inline]
    pub fn prefill_all(&mut self, chunk: u64) -> Result<()> {
        if chunk == 0 {
            return Err(self.refuse(Refusal::EmptyChunk));
        }
        if on!(self, b => b.prefills_served()) {
            return Err(self.refuse(Refusal::GroupServedTwice { stage: "prefill" }));
        }
        on!(mut self, b => b.prefill_all(chunk));
        Ok(())
    }

    /// Gives `tokens` prompt tokens to one running request in prefill.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSuchRequest`], [`Refusal::WrongStage`], [`Refusal::ServedTwice`],
    /// [`Refusal::NoBlocks`], or [`Refusal::PrefillTokens`] unless `1 <= tokens` and the prompt has that many left.
    pub fn prefill(&mut self, position: usize, tokens: u64) -> Result<()> {
        let r = self.request(position)?;
        self.check(position, r, Stage::Prefill, "prefill")?;
        self.check_tokens(r, tokens, self.left(position, r))?;
        let needed = on!(self, b => b.chunk_blocks(position, tokens));
        self.check_blocks("a prefill", needed)?;
        on!(mut self, b => b.prefill(position, tokens));
        Ok(())
    }

    /// Admits the next waiting request and gives it the first `tokens` of its prompt, after those
    /// that a [`look_up`](Self::look_up) in this step found.
    ///
    /// # Errors
    ///
    /// [`Refusal::BatchFull`], [`Refusal::NothingWaiting`], [`Refusal::NoBlocks`], or
    /// [`Refusal::PrefillTokens`] unless `1 <= tokens` and the prompt has that many left: none, if
    /// the request is swapped out.
    #[inline(always)]
    pub fn admit(&mut self, tokens: u64) -> Result<usize> {
        let running = self.running();
        if self.max_num_seqs <= running {
            return Err(self.refuse(Refusal::BatchFull { running, max: self.max_num_seqs }));
        }
        let Some(position) = on!(self, b => b.next_waiting()) else {
            return Err(self.refuse(Refusal::NothingWaiting));
        };
        let r = self.request(position)?;
        let known = on!(self, b => b.known(position, r));
        let hit = on!(self, b => b.found(position));
        let left = if on!(self, b => b.swapped(position)) { 0 } else { known - hit.tokens };
        self.check_tokens(r, tokens, left)?;
        if let Some(memory) = on!(self, b => b.memory()) {
            let needed = self.admission(memory, position, r, tokens);
            self.check_blocks("an admission", needed)?;
        }
        on!(mut self, b => b.admit(tokens, r));
        Ok(position)
    }

    #[inline]
    fn request(&self, position: usize) -> Result<&'a Entry> {
        self.requests.get(position).filter(|r| r.inside).ok_or_else(|| {
            let inside = usize::try_from(self.inside).unwrap_or(usize::MAX);
            self.refuse(Refusal::NoSuchRequest { position, inside })
        })
    }

    /// That a running request is in `stage` and has no work in this step yet.
    fn check(&self, position: usize, r: &Entry, stage: Stage, name: &'static str) -> Result<()> {
        if self.stage(position) != Some(stage) {
            return Err(self.refuse(Refusal::WrongStage { id: RequestId::from(r.id), stage: name }));
        }
        if on!(self, b => b.served(position)) {
            return Err(self.refuse(Refusal::ServedTwice { id: RequestId::from(r.id) }));
        }
        Ok(())
    }

    #[inline]
    fn check_tokens(&self, r: &Entry, tokens: u64, left: u64) -> Result<()> {
        if 1 <= tokens && tokens <= left {
            return Ok(());
        }
        Err(self.refuse(Refusal::PrefillTokens { id: RequestId::from(r.id), left, tokens }))
    }

    #[inline]
    fn check_blocks(&self, what: &'static str, needed: u64) -> Result<()> {
        let free = self.free_blocks();
        if needed <= free {
            return Ok(());
        }
        Err(self.refuse(Refusal::NoBlocks { what, needed, free }))
    }

    #[cold]
    fn refuse(&self, refusal: Refusal) -> SimError {
        SimError::Refused { at: self.at, step: self.number, refusal }
    }
}
