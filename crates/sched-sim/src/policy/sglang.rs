//! `sglang`: if a prefill batch can be formed, from the prompt in progress and then the head of the
//! queue, a step runs it alone; else every request that decodes gets one token. An admission needs
//! memory for the answer that it predicts.
//!
//! Favours prompts, like `prefill-first`, and stalls streams for at most a step of `chunk` tokens at
//! a time. Can starve the queue where the prediction is high, and whoever has the fewest tokens of
//! its answer when the prediction was too low: it is retracted to the *end* of the queue.
//!
//! The rule of SGLang 0.5.23 in its default form, read from its source and not compared with runs of
//! it:
//!
//! - A prompt longer than what is left of `chunk` is cut to it, in whole pages; it goes on first in
//!   the next prefill batch, and one at a time is in progress.
//! - A request is admitted if what it has to prefill, its answer up to 4096 tokens and one page are
//!   fewer tokens than are free or evictable, less what the running requests are expected to make:
//!   their answers' rest, up to 4096 tokens each, times the *new-token ratio*. The first that does
//!   not fit ends the pass, and no other pass is tried until a request has left the batch.
//! - With KV blocks, a *radix cache* keeps what was computed: a prompt chunk by chunk, an answer
//!   when it ends. A request has to prefill what follows its longest cached prefix, in whole pages
//!   and without its last token. A prefix that a running request has is locked; what nobody has
//!   locked goes when blocks are needed, the least recently used leaf of the tree first.
//! - The ratio starts at 0.7, falls in each decode step without a retraction by 1/600 of its range
//!   down to 0.098, rises after a retraction to the share of their answers that those who stay have
//!   made (20 tokens each in advance), and starts anew when the server was idle: nobody was there,
//!   in the batch or in the queue.
//! - Out of memory, whoever has the fewest tokens of its answer, then the longest prompt, is
//!   retracted until the rest fits; one always stays, and if it does not fit beside the prompt in
//!   progress, that one is retracted as well. Its prompt stays cached, its answer is lost. Each
//!   time 20 tokens are made free for each of those who stay.
//!
//! Not modelled: mixed chunks, priorities that preempt, overlap scheduling (a step is decided when
//! the one before it has ended), the queue by longest prefix, and the page for each request that an
//! allocation evicts in excess where pages have several tokens. A page is a KV block of the server.

use crate::error::{Result, SimError};
use crate::history::Held;
use crate::memory::Reserve;
use crate::policy::{Horizon, Policy, limit};
use crate::step::Step;
use crate::step_time::StepWork;

/// Most tokens of an answer that an admission reckons with.
const CLIP: u64 = 4096;
/// The new-token ratio of an empty server, at a conservativeness of 1.
const INIT_RATIO: f64 = 0.7;
/// The least ratio, as a share of the first.
const MIN_SHARE: f64 = 0.14;
/// Decode steps from the first ratio to the least.
const DECAY_STEPS: f64 = 600.0;
/// Tokens that a retraction gives each request in advance.
const AHEAD: u64 = 20;

/// Prefill first, one chunked prompt at a time, and memory by prediction.
///
/// # Examples
///
/// ```
/// use sched_sim::{Policy, SgLang};
///
/// let policy = SgLang::new(256, 8192)?.with_conservativeness(0.3)?;
/// assert_eq!(policy.name(), "sglang");
/// assert!(SgLang::new(256, 8192)?.with_conservativeness(f64::NAN).is_err());
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgLang {
    max_num_seqs: u64,
    chunk: u64,
    max_prefill_tokens: u64,
    first: f64,
    /// Whether there is a radix cache.
    radix: bool,
    /// The ratio after the last event, and the decode steps since.
    ratio: f64,
    decays: u64,
    /// Whether the last decision retracted somebody.
    retracted: bool,
    /// Whether a prefill was refused and nobody has left since.
    full: bool,
    /// Requests in the batch after the last decision.
    running: u64,
}

impl SgLang {
    /// Most prompt tokens in a step by default.
    pub const MAX_PREFILL_TOKENS: u64 = 16_384;

    /// At most `max_num_seqs` requests in the batch (`max_running_requests`), at most `chunk`
    /// prompt tokens in a step (`chunked_prefill_size`).
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] if either is 0, [`SimError::TooLarge`] above 2³² − 1.
    pub fn new(max_num_seqs: u64, chunk: u64) -> Result<Self> {
        Ok(Self {
            max_num_seqs: limit("max_num_seqs", max_num_seqs)?,
            chunk: limit("chunk", chunk)?,
            max_prefill_tokens: Self::MAX_PREFILL_TOKENS,
            first: INIT_RATIO,
            radix: true,
            ratio: INIT_RATIO,
            decays: 0,
            retracted: false,
            full: false,
            running: 0,
        })
    }

    /// The same with another `schedule_conservativeness` than 1: the ratio starts at 0.7 times it,
    /// at most 1.
    ///
    /// # Errors
    ///
    /// [`SimError::Parameter`] unless it is from 0 to 10.
    pub fn with_conservativeness(mut self, value: f64) -> Result<Self> {
        if !(0.0 <= value && value <= 10.0) {
            let input = "schedule_conservativeness".to_owned();
            return Err(SimError::Parameter { input, bound: "from 0 to 10", value });
        }
        self.first = (INIT_RATIO * value).min(1.0);
        self.ratio = self.first;
        Ok(self)
    }

    /// The same without a radix cache (`disable_radix_cache`): every prompt is computed in full.
    #[must_use]
    pub fn without_radix_cache(mut self) -> Self {
        self.radix = false;
        self
    }

    /// The share of the rest of their answers that running requests are expected to make.
    #[must_use]
    pub fn new_token_ratio(&self) -> f64 {
        let least = MIN_SHARE * self.first;
        let step = (self.first - least) / DECAY_STEPS;
        (self.ratio - self.decays as f64 * step).max(least)
    }

    /// Forms a prefill batch, as far as there is one.
    fn prefill(&mut self, step: &mut Step<'_>) -> Result<()> {
        let page = step.block_size();
        let grain = page.min(self.chunk);
        let whole_pages = |tokens: u64| tokens / grain * grain;
        let mut chunk = self.chunk;
        let mut input = self.max_prefill_tokens;
        let free = step.free_blocks().saturating_mul(page);
        let mut room = free.saturating_sub(self.expected(step));
        if let Some((last, rest)) = in_progress(step) {
            // The rest of a page that the prompt has begun is its own.
            let (_, input_tokens, output_tokens) = step.numbers_of(last).unwrap_or_default();
            let done = input_tokens + output_tokens - step.output_left(last) - rest;
            let own = done.next_multiple_of(page) - done;
            let most = chunk.min(room.min(free).saturating_add(own));
            let tokens = if rest <= most { rest } else { whole_pages(most) };
            if tokens < rest && most < chunk {
                step.hold(Held::Blocks);
            }
            if tokens == 0 {
                return Ok(());
            }
            step.prefill(last, tokens)?;
            if tokens < rest {
                return Ok(());
            }
            room = room.saturating_sub(tokens + step.output_left(last).min(CLIP));
            chunk -= tokens;
            input = input.saturating_sub(tokens);
        }
        while chunk > 0
            && input > 0
            && let Some(next) = step.next_waiting()
            && !next.swapped
        {
            if self.max_num_seqs <= step.running() {
                self.full = true;
                break;
            }
            let hit = step.look_up();
            // What it locks cannot be evicted for others.
            room = room.saturating_sub(hit.idle_blocks.saturating_mul(page));
            let left = next.known_tokens - hit.tokens;
            let answer = next.output_left().min(CLIP);
            let needed = left.saturating_add(answer).saturating_add(page);
            let cut = chunk < left;
            let tokens = if cut { whole_pages(chunk) } else { left };
            // Whoever is alone has all the memory there is.
            let refused = step.running() > 0 && room <= needed;
            if refused || !step.next_fits(tokens) {
                self.full = true;
                step.hold(Held::Blocks);
                break;
            }
            if tokens == 0 {
                break;
            }
            step.admit(tokens)?;
            if cut {
                break;
            }
            room = room.saturating_sub(tokens + answer);
            chunk -= tokens;
            input = input.saturating_sub(tokens);
        }
        Ok(())
    }

    /// Tokens that the requests that decode are expected to make.
    fn expected(&self, step: &Step<'_>) -> u64 {
        if step.free_blocks() == u64::MAX {
            return 0;
        }
        let mut tokens = 0;
        let mut at = step.running_after(None);
        while let Some(p) = at {
            if step.prompt_left(p).is_none() {
                tokens += step.output_left(p).min(CLIP);
            }
            at = step.running_after(Some(p));
        }
        // The product is at most the sum, which is far below 2⁵³.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let expected = (tokens as f64 * self.new_token_ratio()).ceil() as u64;
        expected
    }

    /// Retracts until the rest fits.
    fn retract(&mut self, step: &mut Step<'_>) -> Result<()> {
        let mut decodes = Vec::new();
        let mut at = step.running_after(None);
        while let Some(p) = at {
            if step.prompt_left(p).is_none() {
                let (id, input, output) = step.numbers_of(p).unwrap_or_default();
                let made = output - step.output_left(p);
                decodes.push((made, std::cmp::Reverse(input), id, p, output));
            }
            at = step.running_after(Some(p));
        }
        decodes.sort_unstable();
        let mut victims = decodes.iter();
        // What is cached goes before anybody, and before the prompt of whoever goes.
        step.make_free(step.decode_blocks());
        while step.free_blocks() < step.decode_blocks()
            && 1 < victims.len()
            && let Some(&(_, _, _, victim, _)) = victims.next()
        {
            step.retract(victim)?;
            let ahead = (AHEAD * victims.len() as u64).div_ceil(step.block_size());
            step.make_free(ahead.max(step.decode_blocks()));
        }
        if step.free_blocks() < step.decode_blocks()
            && let Some((last, _)) = in_progress(step)
        {
            step.retract(last)?;
        }
        let n = victims.len() as u64;
        let (made, asked) = victims.fold((0, 0), |(m, a), v| (m + v.0, a + v.4));
        self.ratio = ((made + AHEAD * n) as f64 / (asked + 1) as f64).min(1.0);
        self.decays = 0;
        self.retracted = true;
        step.hold(Held::Blocks);
        self.full = false;
        Ok(())
    }
}

impl Policy for SgLang {
    fn name(&self) -> &'static str {
        "sglang"
    }

    fn max_num_seqs(&self) -> u64 {
        self.max_num_seqs
    }

    fn prefill_emits_first_token(&self) -> bool {
        true
    }

    fn reserve(&self) -> Reserve {
        Reserve::Chunk
    }

    fn prefix_caching(&self) -> bool {
        self.radix
    }

    fn ran(&mut self, work: &StepWork, steps: u64) {
        if work.prefills == 0 && !self.retracted {
            self.decays += steps;
        }
    }

    fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
        self.retracted = false;
        if step.after_idle() {
            (self.ratio, self.decays) = (self.first, 0);
        }
        if step.running() < self.running {
            self.full = false;
        }
        // The prompt in progress has to stay the request admitted last.
        while in_progress(step).is_none() && step.swap_in() {}
        if !self.full || in_progress(step).is_some() {
            self.prefill(step)?;
        } else {
            // What was refused was too large, unless there was no slot, which is still so.
            step.hold(Held::Blocks);
        }
        if step.work().is_empty() {
            if step.free_blocks() < step.decode_blocks() {
                self.retract(step)?;
            }
            step.decode_all()?;
        }
        self.running = step.running();
        Ok(())
    }

    fn horizon(&self, step: &Step<'_>) -> Horizon {
        // The ratio falls from step to step, so that another try can end otherwise.
        if in_progress(step).is_some() {
            Horizon::ONE
        } else if self.full {
            // No prefill is tried, but who brings its KV needs none.
            step.horizon()
        } else if step.waiting() > 0 {
            Horizon::ONE
        } else {
            Horizon::UNTIL_ARRIVAL
        }
    }
}

/// The request whose prompt is in progress, always the one admitted last, with what is left of it.
fn in_progress(step: &Step<'_>) -> Option<(usize, u64)> {
    let last = step.last_admitted()?;
    step.prompt_left(last).map(|rest| (last, rest))
}
