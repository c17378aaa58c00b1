//! One step while a policy fills it: the only place where a policy can act.

use crate::engine::Skipping;
use crate::error::{Refusal, Result, SimError};
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
    pub(crate) at: Ticks,
    pub(crate) number: u64,
}

impl<'a> Step<'a> {
    /// Requests in the batch, those admitted in this step included.
    #[must_use]
    pub fn running(&self) -> u64 {
        on!(self, b => b.running())
    }

    /// Requests that decode at the start of the step.
    #[must_use]
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
    pub fn waiting(&self) -> u64 {
        on!(self, b => b.waiting())
    }

    /// The request that is admitted next, in order of submission.
    #[must_use]
    pub fn next_waiting(&self) -> Option<Waiting> {
        let position = on!(self, b => b.next_waiting())?;
        let r = self.requests.get(position)?;
        Some(Waiting { position, input_tokens: r.input, output_tokens: r.output })
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

    /// Prompt tokens that a running request has left at the start of the step.
    #[must_use]
    pub fn prompt_left(&self, position: usize) -> Option<u64> {
        let r = self.requests.get(position)?;
        self.stage(position)?;
        Some(r.input - on!(self, b => b.prefilled(position, r)))
    }

    /// What the step does so far.
    #[must_use]
    pub fn work(&self) -> StepWork {
        *on!(self, b => b.work())
    }

    /// Gives one token to every request that decodes.
    ///
    /// # Errors
    ///
    /// [`Refusal::GroupServedTwice`] if one of them already has work in this step.
    pub fn decode_all(&mut self) -> Result<()> {
        if self.work().decodes != 0 {
            return Err(self.refuse(Refusal::GroupServedTwice { stage: "decode" }));
        }
        on!(mut self, b => b.decode_all());
        Ok(())
    }

    /// Gives one token to one request that decodes.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSuchRequest`], [`Refusal::WrongStage`] or [`Refusal::ServedTwice`].
    pub fn decode(&mut self, position: usize) -> Result<()> {
        let r = self.request(position)?;
        self.check(position, r, Stage::Decode, "decode")?;
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
    pub fn prefill_all(&mut self, chunk: u64) -> Result<()> {
        if chunk == 0 {
            return Err(self.refuse(Refusal::EmptyChunk));
        }
        if on!(self, b => b.prefills_served()) {
            return Err(self.refuse(Refusal::GroupServedTwice { stage: "prefill" }));
        }
        let requests = self.requests;
        on!(mut self, b => b.prefill_all(chunk, requests));
        Ok(())
    }

    /// Gives `tokens` prompt tokens to one running request in prefill.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSuchRequest`], [`Refusal::WrongStage`], [`Refusal::ServedTwice`], or
    /// [`Refusal::PrefillTokens`] unless `1 <= tokens` and the prompt has that many left.
    pub fn prefill(&mut self, position: usize, tokens: u64) -> Result<()> {
        let r = self.request(position)?;
        self.check(position, r, Stage::Prefill, "prefill")?;
        let left = r.input - on!(self, b => b.prefilled(position, r));
        self.check_tokens(r, tokens, left)?;
        on!(mut self, b => b.prefill(position, tokens, r));
        Ok(())
    }

    /// Admits the next waiting request and gives it the first `tokens` of its prompt.
    ///
    /// # Errors
    ///
    /// [`Refusal::BatchFull`], [`Refusal::NothingWaiting`], or [`Refusal::PrefillTokens`] unless
    /// `1 <= tokens` and the prompt has that many.
    pub fn admit(&mut self, tokens: u64) -> Result<usize> {
        let running = self.running();
        if self.max_num_seqs <= running {
            return Err(self.refuse(Refusal::BatchFull { running, max: self.max_num_seqs }));
        }
        let Some(position) = on!(self, b => b.next_waiting()) else {
            return Err(self.refuse(Refusal::NothingWaiting));
        };
        let r = self.request(position)?;
        self.check_tokens(r, tokens, r.input)?;
        on!(mut self, b => b.admit(tokens, r));
        Ok(position)
    }

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

    fn check_tokens(&self, r: &Entry, tokens: u64, left: u64) -> Result<()> {
        if 1 <= tokens && tokens <= left {
            return Ok(());
        }
        Err(self.refuse(Refusal::PrefillTokens { id: RequestId::from(r.id), left, tokens }))
    }

    #[cold]
    fn refuse(&self, refusal: Refusal) -> SimError {
        SimError::Refused { at: self.at, step: self.number, refusal }
    }
}
