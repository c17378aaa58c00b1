//! What a step does, and what came of it.

use crate::history::Held;
use crate::step_time::StepWork;

/// How a request came to be in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// It was running.
    Running,
    /// It was admitted for the first time.
    New,
    /// It was admitted again after a preemption.
    Resumed,
}

/// One request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduled {
    /// The request.
    pub id: u64,
    /// Tokens that it computes in this step.
    pub tokens: u64,
    /// Tokens computed before; for an admission, the prefix-cache hit.
    pub computed: u64,
    /// How it came to be here.
    pub kind: Kind,
    /// Whether it computes tokens that were known before, of its prompt or after a preemption, and
    /// not only the one that it sampled last.
    pub prefill: bool,
    /// Whether the step brings it up to all its known tokens, so that it samples one.
    pub samples: bool,
    pub(super) slot: u32,
    /// Which of [`Plan::block_ids`] are its.
    pub(super) blocks: (u32, u32),
}

/// One step: who runs in it with how many tokens, and who had to go for it.
///
/// Hand it back to [`VllmV1::update_from_output`](super::VllmV1::update_from_output) when the
/// step has run; steps in flight are handed back oldest first.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub(super) rows: Vec<Scheduled>,
    /// Rows before this one were running, the others are admissions.
    pub(super) admitted: usize,
    pub(super) preempted: Vec<u64>,
    /// For each of them the tokens whose KV it lost.
    pub(super) lost: Vec<u64>,
    pub(super) block_ids: Vec<u32>,
    pub(super) held: Option<Held>,
    pub(super) tokens: u64,
    context: u64,
    work: StepWork,
}

impl Plan {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.admitted = 0;
        self.preempted.clear();
        self.lost.clear();
        self.block_ids.clear();
        self.held = None;
        self.begin_count();
    }

    fn begin_count(&mut self) {
        self.tokens = 0;
        self.context = 0;
        self.work = StepWork::default();
    }

    pub(super) fn push(&mut self, row: Scheduled) {
        self.count(&row);
        self.rows.push(row);
    }

    fn count(&mut self, row: &Scheduled) {
        self.tokens += row.tokens;
        self.context += row.computed + row.tokens;
        if row.prefill {
            self.work.add_chunk(row.tokens, row.computed);
        } else {
            // The token that it computes was sampled before this step.
            self.work.add_decode(row.computed + 1);
        }
    }

    /// Counts rows of decodes, whose tokens sum to `context` when the step ends.
    pub(super) fn count_decodes(&mut self, decodes: u64, context: u64) {
        self.tokens += decodes;
        self.context += context;
        self.work.decodes += decodes;
        self.work.decode_context += context;
    }

    /// Takes a row out again.
    pub(super) fn remove(&mut self, row: usize) -> Scheduled {
        let removed = self.rows.remove(row);
        self.begin_count();
        for row in std::mem::take(&mut self.rows) {
            self.push(row);
        }
        removed
    }

    /// Makes it the plan of a later step of the same decodes, for which nobody had to go and in
    /// which `held` keeps others waiting.
    pub(super) fn repeat(&mut self, held: Option<Held>) {
        self.held = held;
        self.admitted = self.rows.len();
        self.preempted.clear();
        self.lost.clear();
    }

    /// The requests of the step: in the order of the running list, then admissions.
    #[must_use]
    pub fn rows(&self) -> &[Scheduled] {
        &self.rows
    }

    /// The admissions among them.
    #[must_use]
    pub fn admissions(&self) -> &[Scheduled] {
        self.rows.get(self.admitted..).unwrap_or_default()
    }

    /// Requests preempted for this step, in order.
    #[must_use]
    pub fn preempted(&self) -> &[u64] {
        &self.preempted
    }

    /// For each of [`preempted`](Self::preempted), the tokens whose KV it lost.
    #[must_use]
    pub fn lost(&self) -> &[u64] {
        &self.lost
    }

    /// What holds back the head of the queue; none if nobody waits.
    #[must_use]
    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// Tokens that the step computes.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Sum over its requests of the tokens that are computed when it ends.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.context
    }

    /// What the step processes, to be priced by a [`StepTime`](crate::StepTime).
    #[must_use]
    pub fn work(&self) -> StepWork {
        self.work
    }

    /// Block ids of one of its rows: of an admission the whole table, of a running request the
    /// blocks added now. Empty unless
    /// [`record_blocks`](super::VllmV1::record_blocks) asked for them.
    #[must_use]
    pub fn blocks(&self, row: &Scheduled) -> &[u32] {
        self.block_ids.get(row.blocks.0 as usize..row.blocks.1 as usize).unwrap_or_default()
    }
}

/// Why a request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// It has all its tokens, or as many as `max_model_len` allows.
    Length,
    /// The client went away.
    Abort,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// The request.
    pub id: u64,
    /// Why.
    pub reason: FinishReason,
    /// Tokens delivered.
    pub outputs: u64,
    /// How often it was preempted.
    pub preemptions: u64,
}

/// What came of one step.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Update {
    /// Requests that got their first token.
    pub first_tokens: Vec<u64>,
    /// Requests that got their last token, in the order of the step.
    pub finished: Vec<Finished>,
    /// Tokens that are not the first of an answer, and whose answer got the one before at the
    /// instant of the update before.
    pub(super) following: u64,
    /// When the others that are not the first got the one before, in attoseconds.
    pub(super) before: Vec<u128>,
}

impl Update {
    /// One more token, the one before it at that instant.
    pub(super) fn token(&mut self, before: Option<u128>, previous: u128) {
        match before {
            Some(before) if before == previous => self.following += 1,
            Some(before) => self.before.push(before),
            None => {}
        }
    }
}
