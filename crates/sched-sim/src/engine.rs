//! The engine that skips.
//!
//! Between two events a batch only ages: every decode gains a token a step, every prompt another
//! chunk. So nothing is stored per request and step. A request that starts to decode notes at
//! which reading of the *decode clock* (steps in which all decode) it will finish; the earliest
//! of these is on top of a heap, and its distance from the clock says how many steps are alike.
//! Prompts do the same on a prefill clock, up to their last, partial chunk. The sums that price a
//! step (context tokens, attention pairs) are kept for the group as a whole, and k steps take one
//! closed form. An event costs O(log B) for a batch of B, however many steps lie before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::Result;
use crate::history::{Blocks, Observer, Stretch};
use crate::itl::GapRun;
use crate::kv_cache::Hit;
use crate::memory::{Memory, Order, Reserve};
use crate::policy::Policy;
use crate::queue::{Place, Queue};
use crate::radix::Seats;
use crate::replica::{Entry, Preempted, Replica, short};
use crate::request::Stage;
use crate::run::run_workload;
use crate::simulation::{RunResult, Simulation};
use crate::statistics::KvStatistics;
use crate::step::Rest;
use crate::step_time::{StepTime, StepWork};
use crate::time::Ticks;

/// Runs a simulation, skipping what has no events.
///
/// # Errors
///
/// [`SimError::Refused`](crate::SimError) if the policy breaks an invariant,
/// [`SimError::RunTooLong`](crate::SimError) if the clock passes its range.
pub fn run<'w, P: Policy, T: StepTime>(
    simulation: Simulation<'w, P, T>,
    observer: &mut impl Observer,
) -> Result<RunResult<'w>> {
    let Simulation { workload, policy, step_time, limits, settings, patience } = simulation;
    let server = Replica::new(policy, step_time).settings(settings).limits(limits);
    let hits = server.caches_prefixes();
    run_workload(workload, server, hits, |job| job.give_up_after(patience), observer)
}

/// No request.
const NONE: u32 = u32::MAX;

/// Where a request is, for the counters that hold its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not admitted.
    Waiting,
    /// In the queue, with its KV swapped out.
    Swapped,
    /// In the queue, with the KV that it came with.
    Brought,
    /// Admitted in this step.
    Admitted,
    /// In prefill with a whole chunk left: its progress is on the prefill clock.
    Chunks,
    /// In prefill with less than a chunk left: its progress is in `done`.
    LastChunk,
    /// Its progress is on the decode clock.
    Decode,
    /// Finished.
    Done,
}

/// One request; a row is hardly more than a cache line, since an event touches all of it.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Tokens that its prefill computes: its prompt, and after a preemption its answer so far.
    target: u64,
    /// Output tokens that it had when it last began its prefill.
    decoded: u64,
    /// When it joined the queue, in numbers that grow.
    seq: u64,
    /// Tokens of the target computed when it last entered a prefill phase.
    done: u64,
    /// The prefill clock then.
    entered: u64,
    /// The clock reading of its event: the decode clock at its last token, or the prefill clock
    /// at its last whole chunk. A heap entry with another reading is out of date.
    due: u64,
    /// The step in which it was last served by name.
    served: u64,
    /// Its neighbours in order of admission.
    before: u32,
    after: u32,
    phase: Phase,
}

/// Clock readings with the request they belong to, earliest first; ties end at the request.
type Agenda = BinaryHeap<Reverse<(u64, u32)>>;

/// The batch of the skipping engine.
#[expect(clippy::struct_excessive_bools, reason = "two of the server, two of the step")]
pub(crate) struct Skipping {
    emits: bool,
    order: Order,
    rows: Vec<Row>,
    waiting: Queue,
    /// Tokens that those who wait have to prefill.
    waiting_tokens: u64,
    /// Numbers given to those who joined the queue.
    seq: u64,
    /// Whether somebody went to the end of the queue, so that the batch is not in order of it.
    shuffled: bool,
    paged: Option<Paged>,
    /// Tokens that are left to compute or to make.
    outstanding: u64,
    rest: Rest,
    first: u32,
    last: u32,
    running: u64,
    decoding: u64,
    prefilling: u64,

    /// Steps in which all decode.
    decode_clock: u64,
    finishes: Agenda,
    /// Tokens of the requests that decode.
    context: u64,
    /// Requests whose next token is the first, or the first after a return.
    fresh: Vec<u32>,

    /// Steps in which all prefill with `chunk` tokens.
    prefill_clock: u64,
    chunk: u64,
    last_whole_chunks: Agenda,
    /// Requests in [`Phase::Chunks`], and the prompt tokens that they have computed.
    chunking: u64,
    chunking_done: u64,
    /// Requests in [`Phase::LastChunk`].
    last_chunks: Vec<u32>,
    /// Prompt tokens that all requests in prefill have computed.
    prompt_held: u64,

    /// The step that is being filled.
    step: u64,
    work: StepWork,
    all_decode: bool,
    all_prefill: bool,
    decodes: Vec<u32>,
    prefills: Vec<(u32, u64)>,
    admitted: Vec<(u32, u64)>,
    preempted: Vec<Preempted>,
    /// Who came back from being swapped out, and has not run since.
    returned: Vec<u32>,
    /// Tokens whose KV moves before the next step.
    moved: u64,

    /// When all who decoded got a token.
    beat: Ticks,
    /// Who decodes and got its last token at another time, which its [`Entry`] knows.
    apart: Vec<u32>,
    /// Gaps between tokens that ended in the last stretch, if somebody counts them.
    gaps: Vec<GapRun>,
    counts_gaps: bool,
}

/// Blocks of the batch, counted for the group of decodes as a whole.
struct Paged {
    memory: Memory,
    kv: KvStatistics,
    /// The sum over the requests; what they share in `seats` is in it more than once.
    used: u64,
    seats: Option<Seats>,
    /// Blocks that the decodes of the step that is being filled need.
    asked: u64,
    /// How many decodes have so many tokens in their last block, counted from class `full` on: a
    /// token more for all moves that one, and nobody.
    residues: Vec<u64>,
    /// The class of those whose last block is full.
    full: usize,
    decoding: u64,
}

impl Paged {
    fn new(memory: Memory) -> Self {
        let kv = KvStatistics {
            blocks: memory.pool.blocks(),
            block_size: memory.pool.block_size(),
            radix_tree: memory.radix,
            ..KvStatistics::default()
        };
        let seats = memory.radix.then(|| Seats::new(memory.pool));
        // At most 2³² − 1, and as many as one block has tokens.
        let size = usize::try_from(memory.pool.block_size()).unwrap_or(usize::MAX);
        Self { memory, kv, used: 0, seats, asked: 0, residues: vec![0; size], full: 0, decoding: 0 }
    }

    /// Blocks in use, each counted once.
    fn used(&self) -> u64 {
        self.used - self.seats.as_ref().map_or(0, Seats::shared)
    }

    /// Evicts what is cached until so many blocks are free.
    fn make_free(&mut self, blocks: u64) {
        let used = self.used() + self.asked;
        if let Some(seats) = &mut self.seats {
            seats.make_free(blocks, used);
        }
    }

    fn size(&self) -> u64 {
        self.memory.pool.block_size()
    }

    fn free(&self) -> u64 {
        self.kv.blocks - self.used() - self.asked
    }

    /// Where requests are counted that have stored `tokens`.
    fn class(&self, tokens: u64) -> usize {
        let size = self.residues.len();
        // Less than a block has.
        #[allow(clippy::cast_possible_truncation)]
        let class = self.memory.pool.split(tokens).1 as usize + self.full;
        if class < size { class } else { class - size }
    }

    /// Blocks that the decodes need in the next step: those whose last one is full.
    fn need(&self) -> u64 {
        if self.memory.grows() { self.residues[self.full] } else { 0 }
    }

    /// All that decode have stored so many tokens more.
    fn age(&mut self, steps: u64) {
        // Less than a block has.
        #[allow(clippy::cast_possible_truncation)]
        let rest = self.memory.pool.split(steps).1 as usize;
        self.full = if rest <= self.full { self.full } else { self.full + self.residues.len() };
        self.full -= rest;
    }

    /// A request that has stored `tokens` begins to decode, or ends.
    fn join(&mut self, tokens: u64) {
        let class = self.class(tokens);
        self.residues[class] += 1;
        self.decoding += 1;
    }

    fn part(&mut self, tokens: u64) {
        let class = self.class(tokens);
        self.residues[class] -= 1;
        self.decoding -= 1;
    }

    /// The blocks that decodes which take blocks as they go need in each step from now on, as many
    /// steps as a block has tokens; after them the same again.
    fn needs(&self) -> impl Iterator<Item = u64> {
        let (low, high) = self.residues.split_at(self.full + 1);
        low.iter().rev().chain(high.iter().rev()).copied()
    }

    /// Blocks that the decodes take in so many steps from now on.
    fn growth(&self, steps: u64) -> u64 {
        // At most the blocks that there are.
        u64::try_from(self.sums(steps)[0]).unwrap_or(u64::MAX)
    }

    /// For how many of at most `steps` steps from now on there are blocks.
    fn lasts(&self, steps: u64) -> u64 {
        let free = self.kv.blocks - self.used();
        // In a cycle of as many steps as a block has tokens, each decode takes one block.
        let begun = self.memory.pool.split(steps).0.saturating_add(1);
        if !self.memory.grows() || begun.saturating_mul(self.decoding) <= free {
            return steps;
        }
        let Some(cycles) = free.checked_div(self.decoding) else { return steps };
        let (mut rest, mut lasts) = (free - cycles * self.decoding, cycles * self.size());
        for need in self.needs() {
            let Some(left) = rest.checked_sub(need).filter(|_| lasts < steps) else { break };
            rest = left;
            lasts += 1;
        }
        lasts.min(steps)
    }

    /// Sums over the steps j = 0, 1, … of a stretch from now on: of the blocks that are taken, of j
    /// times them, and of j (j − 1) / 2 times them.
    fn sums(&self, steps: u64) -> [u128; 3] {
        if !self.memory.grows() {
            [0; 3]
        } else if steps < 1 << 10 && self.decoding < 1 << 32 {
            self.short_sums(steps)
        } else {
            self.long_sums(steps)
        }
    }

    /// The same of so few steps that they fit into one word, from the last to the first: what was
    /// added up so far is added once more for each step before.
    fn short_sums(&self, steps: u64) -> [u128; 3] {
        let size = self.residues.len();
        let mut class = self.class(self.size() - self.memory.pool.split(steps - 1).1);
        let mut sums = [0_u64; 3];
        for _ in 0..steps {
            sums[2] += sums[1];
            sums[1] += sums[0];
            sums[0] += self.residues[class];
            class = if class + 1 < size { class + 1 } else { 0 };
        }
        sums.map(u128::from)
    }

    /// The same of any number of steps, class by class.
    fn long_sums(&self, steps: u64) -> [u128; 3] {
        let size = u128::from(self.size());
        let (whole, rest) = self.memory.pool.split(steps);
        // Of steps a, a + size, …: how many, and what they and their squares are beyond those of a.
        let terms = |m: u64| {
            let m = u128::from(m);
            let pairs = m * m.saturating_sub(1) / 2;
            let squares = pairs * (2 * m).saturating_sub(1) / 3;
            (m, size * pairs, size * size * squares)
        };
        let (more, fewer) = (terms(whole + 1), terms(whole));
        let mut sums = [0; 3];
        for (a, need) in (0..steps).zip(self.needs()) {
            let (m, beyond, squares) = if a < rest { more } else { fewer };
            let (at, need) = (u128::from(a), u128::from(need));
            let each = m * at + beyond;
            let pairs = (m * at * at + 2 * at * beyond + squares - each) / 2;
            sums = [sums[0] + need * m, sums[1] + need * each, sums[2] + need * pairs];
        }
        sums
    }

    /// Takes the blocks of a stretch in which all decode, or of a step in which some do.
    fn run(&mut self, stretch: &Stretch, all: bool) {
        let Stretch { steps, time, .. } = *stretch;
        // Blocks that are taken in step j are there from its start, j · first + growth · j (j − 1) / 2.
        let [grown, steps_before, pairs_before] =
            if all { self.sums(steps) } else { [self.asked.into(), 0, 0] };
        let held = stretch.duration().0.wrapping_mul(u128::from(self.used()) + grown);
        let aged = time.growth.cast_unsigned().wrapping_mul(pairs_before);
        let not_yet = time.first.0.wrapping_mul(steps_before).wrapping_add(aged);
        self.asked = 0;
        // At most the blocks that there are.
        self.used += u64::try_from(grown).unwrap_or(u64::MAX);
        // Modulo 2^128, in which the whole fits.
        self.kv.used_time = self.kv.used_time.wrapping_add(held).wrapping_sub(not_yet);
        self.kv.used_max = self.kv.used_max.max(self.used());
        self.make_free(0);
    }
}

impl Skipping {
    pub fn new(emits: bool, order: Order, memory: Option<Memory>) -> Self {
        Self {
            emits,
            order,
            rows: Vec::new(),
            waiting: Queue::new(order),
            waiting_tokens: 0,
            seq: 0,
            shuffled: false,
            paged: memory.map(Paged::new),
            outstanding: 0,
            rest: Rest::default(),
            first: NONE,
            last: NONE,
            running: 0,
            decoding: 0,
            prefilling: 0,
            decode_clock: 0,
            finishes: Agenda::new(),
            context: 0,
            fresh: Vec::new(),
            prefill_clock: 0,
            chunk: 0,
            last_whole_chunks: Agenda::new(),
            chunking: 0,
            chunking_done: 0,
            last_chunks: Vec::new(),
            prompt_held: 0,
            step: 0,
            work: StepWork::default(),
            all_decode: false,
            all_prefill: false,
            decodes: Vec::new(),
            prefills: Vec::new(),
            admitted: Vec::new(),
            preempted: Vec::new(),
            returned: Vec::new(),
            moved: 0,
            beat: Ticks::ZERO,
            apart: Vec::new(),
            gaps: Vec::new(),
            counts_gaps: false,
        }
    }

    pub fn arrive(&mut self, i: u32, r: &Entry) {
        if self.running == 0 && self.waiting() == 0 {
            self.rest.woken(r.arrival);
        }
        self.seq += 1;
        let row = Row {
            target: r.input + r.made,
            decoded: r.made,
            seq: self.seq,
            done: 0,
            entered: 0,
            due: 0,
            served: 0,
            before: NONE,
            after: NONE,
            phase: if r.made == 0 { Phase::Waiting } else { Phase::Brought },
        };
        match self.rows.get_mut(i as usize) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
        self.join_queue(i, r);
        self.outstanding += self.left(i) + r.output - r.made;
    }

    fn join_queue(&mut self, i: u32, r: &Entry) {
        self.waiting_tokens += self.left(i);
        self.waiting.insert(self.place(i, r));
    }

    fn leave_queue(&mut self, i: u32, r: &Entry) {
        self.waiting_tokens -= self.left(i);
        self.waiting.remove(self.place(i, r));
    }

    /// Takes who is next out of the queue.
    fn take_next(&mut self) -> Option<u32> {
        let i = self.waiting.take_first()?;
        self.waiting_tokens -= self.left(i);
        Some(i)
    }

    /// Tokens that it has left to prefill.
    fn left(&self, i: u32) -> u64 {
        self.rows[i as usize].target - self.prefilled(i as usize)
    }

    /// Tokens that those who wait have to prefill.
    pub fn waiting_tokens(&self) -> u64 {
        self.waiting_tokens
    }

    fn place(&self, i: u32, r: &Entry) -> Place {
        (self.order.key(r), self.rows[i as usize].seq, i)
    }

    #[inline]
    pub fn begin(&mut self) {
        self.step += 1;
        self.work = StepWork::default();
        self.all_decode = false;
        self.all_prefill = false;
        self.decodes.clear();
        self.prefills.clear();
        self.admitted.clear();
        self.preempted.clear();
        if let Some(paged) = &mut self.paged {
            paged.asked = 0;
        }
        if let Some(seats) = self.seats() {
            seats.begin();
        }
    }

    fn seats(&mut self) -> Option<&mut Seats> {
        self.paged.as_mut()?.seats.as_mut()
    }

    /// What the radix tree has of a request that waits.
    pub fn look_up(&mut self, position: usize, r: &Entry) -> Option<Hit> {
        let known = self.known(position, r);
        let own = r.own_prompt();
        Some(self.seats()?.look_up(short(position), &r.content(&own), known))
    }

    /// What the last look-up found, if it was for this request.
    pub fn found(&self, position: usize) -> Hit {
        let seats = self.paged.as_ref().and_then(|p| p.seats.as_ref());
        seats.map_or_else(Hit::default, |seats| seats.found(short(position)))
    }

    /// Evicts what is cached until so many blocks are free.
    pub fn make_free(&mut self, blocks: u64) {
        if let Some(paged) = &mut self.paged {
            paged.make_free(blocks);
        }
    }

    #[inline]
    pub fn preempted(&self) -> &[Preempted] {
        &self.preempted
    }

    /// Whether it waits with its KV somewhere else.
    pub fn swapped(&self, position: usize) -> bool {
        matches!(self.rows[position].phase, Phase::Swapped | Phase::Brought)
    }

    /// Whether it came back in this step.
    pub fn returned(&self, position: usize) -> bool {
        self.returned.contains(&short(position))
    }

    /// Tokens whose KV moves before the step just decided.
    #[inline]
    pub fn take_moved(&mut self) -> u64 {
        std::mem::take(&mut self.moved)
    }

    pub fn memory(&self) -> Option<&Memory> {
        self.paged.as_ref().map(|p| &p.memory)
    }

    /// The KV cache, and the blocks in use, those that the step under way takes among them.
    pub fn kv(&self) -> Option<(KvStatistics, u64)> {
        self.paged.as_ref().map(|p| {
            let (counters, cached_blocks) =
                p.seats.as_ref().map_or_else(Default::default, |s| (s.counters(), s.cached()));
            (KvStatistics { counters, cached_blocks, ..p.kv }, p.used() + p.asked)
        })
    }

    /// Blocks while the first and the last of so many decided steps run. What is cached makes room
    /// here already, which takes the same leaves in the same order as at the end of the stretch.
    pub fn blocks_in(&mut self, steps: u64) -> Option<[Blocks; 2]> {
        let all = self.all_decode;
        let p = self.paged.as_mut()?;
        Some([1, steps].map(|n| {
            let used = p.used() + if all { p.growth(n) } else { p.asked };
            let cached = p.seats.as_mut().map(|seats| {
                seats.make_free(0, used);
                seats.cached()
            });
            Blocks { used, cached }
        }))
    }

    pub fn free_blocks(&self) -> u64 {
        self.paged.as_ref().map_or(u64::MAX, Paged::free)
    }

    /// Blocks that one more token of every decode needs.
    pub fn decode_blocks(&self) -> u64 {
        self.paged.as_ref().map_or(0, Paged::need)
    }

    /// Blocks that one more token of a decode needs.
    pub fn block_of(&self, position: usize, r: &Entry) -> u64 {
        let stored = self.known(position, r);
        self.paged.as_ref().map_or(0, |p| {
            let full = p.memory.pool.split(stored - p.memory.lag).1 == 0;
            u64::from(p.memory.grows() && full)
        })
    }

    /// The tokens that a request knows: its prompt, and its answer so far.
    pub fn known(&self, position: usize, r: &Entry) -> u64 {
        let row = &self.rows[position];
        match row.phase {
            Phase::Decode => r.input + r.output - (row.due - self.decode_clock),
            _ => row.target,
        }
    }

    /// The request of the batch that the order puts last.
    pub fn last_in_order(&self, requests: &[Entry]) -> Option<usize> {
        if self.order == Order::Fcfs && !self.shuffled {
            return self.last_admitted();
        }
        let mut at = self.running_after(None);
        let mut last: Option<Place> = None;
        while let Some(p) = at {
            last = last.max(Some(self.place(short(p), &requests[p])));
            at = self.running_after(Some(p));
        }
        last.map(|place| place.2 as usize)
    }

    #[inline]
    pub fn running(&self) -> u64 {
        self.running
    }

    pub fn decoding(&self) -> u64 {
        self.decoding
    }

    pub fn prefilling(&self) -> u64 {
        self.prefilling
    }

    #[inline]
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    #[inline]
    pub fn next_waiting(&self) -> Option<usize> {
        self.waiting.first().map(|i| i as usize)
    }

    pub fn rest(&self) -> &Rest {
        &self.rest
    }

    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    pub fn work(&self) -> &StepWork {
        &self.work
    }

    pub fn running_after(&self, position: Option<usize>) -> Option<usize> {
        let next = match position {
            None => self.first,
            Some(p) => self.rows.get(p)?.after,
        };
        if next == NONE { None } else { Some(next as usize) }
    }

    pub fn last_admitted(&self) -> Option<usize> {
        (self.last != NONE).then_some(self.last as usize)
    }

    pub fn stage(&self, position: usize) -> Option<Stage> {
        match self.rows.get(position)?.phase {
            Phase::Waiting | Phase::Swapped | Phase::Brought | Phase::Done => None,
            Phase::Admitted | Phase::Chunks | Phase::LastChunk => Some(Stage::Prefill),
            Phase::Decode => Some(Stage::Decode),
        }
    }

    pub fn prefilled(&self, position: usize) -> u64 {
        let row = &self.rows[position];
        match row.phase {
            Phase::Waiting => 0,
            Phase::Chunks => row.done + (self.prefill_clock - row.entered) * self.chunk,
            Phase::Admitted | Phase::LastChunk => row.done,
            Phase::Swapped | Phase::Brought | Phase::Decode | Phase::Done => row.target,
        }
    }

    pub fn served(&self, position: usize) -> bool {
        let row = &self.rows[position];
        match row.phase {
            Phase::Waiting | Phase::Swapped | Phase::Brought | Phase::Done => false,
            Phase::Admitted => true,
            Phase::Chunks | Phase::LastChunk => self.all_prefill || row.served == self.step,
            Phase::Decode => self.all_decode || row.served == self.step,
        }
    }

    pub fn prefills_served(&self) -> bool {
        self.all_prefill || !self.prefills.is_empty()
    }

    pub fn decode_all(&mut self) {
        self.all_decode = true;
        self.work.decodes += self.decoding;
        self.work.decode_context += self.context;
        let asked = self.decode_blocks();
        if let Some(paged) = &mut self.paged {
            paged.asked = asked;
        }
    }

    pub fn decode(&mut self, position: usize, r: &Entry) {
        self.rows[position].served = self.step;
        self.work.add_decode(self.known(position, r));
        let asked = self.block_of(position, r);
        if let Some(paged) = &mut self.paged {
            paged.asked += asked;
        }
        self.decodes.push(short(position));
    }

    pub fn prefill_all(&mut self, chunk: u64) {
        if chunk != self.chunk {
            self.change_chunk(chunk);
        }
        if self.prefilling == 0 {
            return;
        }
        self.all_prefill = true;
        let (n, group) = (u128::from(chunk), u128::from(self.chunking));
        let w = &mut self.work;
        w.prefills += self.chunking;
        w.prefill_tokens += self.chunking * chunk;
        w.attention_doubled += n * (2 * u128::from(self.chunking_done) + group * n);
        w.attention_growth += 2 * group * n * n;
        for &i in &self.last_chunks {
            let Row { target, done, .. } = self.rows[i as usize];
            w.add_chunk(target - done, done);
        }
    }

    /// Blocks that a chunk of a prompt needs.
    pub fn chunk_blocks(&self, position: usize, tokens: u64) -> u64 {
        self.paged.as_ref().filter(|p| p.memory.reserve == Reserve::Chunk).map_or(0, |p| {
            let (pool, done) = (p.memory.pool, self.prefilled(position));
            pool.blocks_for(done + tokens) - pool.blocks_for(done)
        })
    }

    #[inline]
    pub fn prefill(&mut self, position: usize, tokens: u64) {
        let blocks = self.chunk_blocks(position, tokens);
        if let Some(paged) = &mut self.paged {
            paged.used += blocks;
        }
        self.work.add_chunk(tokens, self.prefilled(position));
        self.rows[position].served = self.step;
        self.prefills.push((short(position), tokens));
    }

    pub fn admit(&mut self, tokens: u64, r: &Entry) {
        let Some(i) = self.take_next() else { return };
        let known = self.rows[i as usize].target;
        let hit = self.seats().map_or(0, |seats| seats.admit(i, known));
        if let Some(paged) = &mut self.paged {
            paged.used += paged.memory.admission(r, hit + tokens, known);
        }
        let row = &mut self.rows[i as usize];
        row.phase = Phase::Admitted;
        row.done = hit;
        self.outstanding -= hit;
        self.prompt_held += hit;
        self.link(i);
        self.work.add_chunk(tokens, hit);
        self.admitted.push((i, hit + tokens));
    }

    /// Puts a request at the end of the order of admission.
    fn link(&mut self, i: u32) {
        let row = &mut self.rows[i as usize];
        row.before = self.last;
        row.after = NONE;
        match self.rows.get_mut(self.last as usize) {
            Some(last) => last.after = i,
            None => self.first = i,
        }
        self.last = i;
        self.running += 1;
    }

    /// Takes a decode out of the batch and puts it back into the queue with its KV.
    pub fn swap_out(&mut self, position: usize, r: &Entry) {
        let i = short(position);
        let known = self.known(position, r);
        let moved = known - u64::from(self.emits);
        let token_at = self.take_out(i, r);
        let row = &mut self.rows[position];
        row.phase = Phase::Swapped;
        row.target = known;
        row.decoded = known - r.input;
        self.join_queue(i, r);
        self.moved += moved;
        self.preempted.push(Preempted { position: i, lost: 0, moved, token_at });
    }

    /// Brings in who is next in the queue, with its KV.
    pub fn swap_in(&mut self, r: &Entry) {
        let Some(i) = self.take_next() else { return };
        self.link(i);
        let row = &mut self.rows[i as usize];
        let brought = row.phase == Phase::Brought;
        row.phase = Phase::Decode;
        row.due = self.decode_clock + r.input + r.output - row.target;
        self.finishes.push(Reverse((row.due, i)));
        let (known, stored) = (row.target, row.target - u64::from(self.emits));
        if let Some(seats) = self.seats() {
            seats.swap_in(i);
        }
        self.decoding += 1;
        self.context += known;
        if let Some(paged) = &mut self.paged {
            paged.used += paged.memory.holding(r, stored);
            paged.join(stored);
        }
        self.fresh.push(i);
        self.returned.push(i);
        // What it came with was moved by whoever sent it.
        self.moved += if brought { 0 } else { stored };
    }

    /// Takes a request out of the batch and puts it back into the queue, at the end or where the
    /// order has it. Its KV is lost; its tokens are kept, and computed again.
    pub fn preempt(&mut self, position: usize, r: &Entry, to_end: bool) {
        let i = short(position);
        let (known, target) = (self.known(position, r), self.rows[position].target);
        let lost = match self.rows[position].phase {
            Phase::Decode => known - u64::from(self.emits),
            _ => self.prefilled(position),
        };
        let left = target - self.prefilled(position);
        let token_at = self.take_out(i, r);
        self.outstanding += known - left;
        if to_end {
            self.seq += 1;
            self.shuffled = true;
        }
        let seq = self.seq;
        let row = &mut self.rows[position];
        row.phase = Phase::Waiting;
        row.target = known;
        row.decoded = known - r.input;
        row.done = 0;
        if to_end {
            row.seq = seq;
        }
        self.join_queue(i, r);
        self.preempted.push(Preempted { position: i, lost, moved: 0, token_at });
    }

    /// Takes a running request out of every count; when it got its last token, if that was with
    /// all others.
    fn take_out(&mut self, i: u32, r: &Entry) -> Option<Ticks> {
        let mut token_at = None;
        let position = i as usize;
        let known = self.known(position, r);
        let prefilled = self.prefilled(position);
        if self.rows[position].phase == Phase::Decode {
            self.decoding -= 1;
            self.context -= known;
            let alone = self.fresh.contains(&i) || self.apart.contains(&i);
            token_at = (!alone).then_some(self.beat);
            self.fresh.retain(|&j| j != i);
            self.apart.retain(|&j| j != i);
            self.returned.retain(|&j| j != i);
            self.give_back(known, r);
        } else {
            self.prefilling -= 1;
            self.prompt_held -= prefilled;
            self.leave_group(i);
            if let Some(paged) = &mut self.paged {
                paged.used -= paged.memory.admission(r, prefilled, known);
            }
        }
        if let Some(seats) = self.seats() {
            seats.leave(i);
        }
        self.unlink(i);
        token_at
    }

    /// Frees the blocks of a decode that knows so many tokens.
    fn give_back(&mut self, known: u64, r: &Entry) {
        if let Some(paged) = &mut self.paged {
            let memory = paged.memory;
            let stored = known - memory.lag;
            paged.part(stored);
            paged.used -= memory.holding(r, stored);
        }
    }

    /// Tokens in KV before this step, each once. The newest one of a decode is stored by its next
    /// step, where the last prefill step gave a token.
    #[inline]
    pub fn held_tokens(&self) -> u64 {
        let unstored = if self.emits { self.decoding } else { 0 };
        self.context - unstored + self.prompt_held - self.shared_tokens()
    }

    /// Tokens that are counted more than once in the sum over the requests.
    fn shared_tokens(&self) -> u64 {
        self.paged.as_ref().map_or(0, |p| {
            let shared = p.seats.as_ref().map_or(0, Seats::shared);
            shared * p.size()
        })
    }

    /// For how many steps the decision just made has no event before the end of the last one.
    #[inline]
    pub fn repeats(&mut self) -> u64 {
        // What a chunk has computed can be found from the next step on.
        let chunked = |m: &Memory| m.reserve == Reserve::Chunk || m.radix;
        let by_chunk = |p: &Paged| chunked(&p.memory) && self.work.prefills > 0;
        if self.paged.as_ref().is_some_and(|p| !self.decodes.is_empty() || by_chunk(p)) {
            return 1;
        }
        let stays = self.admitted.is_empty() && self.preempted.is_empty();
        let stays = stays && self.returned.is_empty();
        if !stays || (self.all_prefill && !self.last_chunks.is_empty()) {
            return 1;
        }
        let mut steps = u64::MAX;
        if self.all_decode
            && let Some((due, _)) = next(&mut self.finishes, &self.rows, Phase::Decode)
        {
            steps = due - self.decode_clock;
        }
        if self.all_prefill
            && let Some((due, _)) = next(&mut self.last_whole_chunks, &self.rows, Phase::Chunks)
        {
            steps = steps.min(due - self.prefill_clock);
        }
        for &i in &self.decodes {
            steps = steps.min(self.rows[i as usize].due - self.decode_clock);
        }
        for &(i, tokens) in &self.prefills {
            let i = i as usize;
            steps = steps.min((self.rows[i].target - self.prefilled(i)) / tokens);
        }
        match &self.paged {
            Some(paged) if self.all_decode => paged.lasts(steps),
            _ => steps,
        }
    }

    /// Dates who came back in a step that serves nobody.
    pub fn date_returns(&mut self, at: Ticks, requests: &mut [Entry]) {
        for i in self.returned.drain(..) {
            requests[i as usize].returned(at);
        }
    }

    /// Gaps between tokens that ended in the last stretch.
    #[inline]
    pub fn gaps(&self) -> &[GapRun] {
        &self.gaps
    }

    /// Runs the stretch, and tells who `finished` in its last step.
    pub fn apply(
        &mut self,
        stretch: &Stretch,
        requests: &mut [Entry],
        finished: &mut Vec<u32>,
        counts_gaps: bool,
    ) {
        self.gaps.clear();
        self.counts_gaps = counts_gaps;
        self.outstanding -= stretch.steps * (stretch.work.prefill_tokens + stretch.work.decodes);
        self.rest.ran(stretch.end);
        self.note_left_out(stretch, requests);
        if !self.returned.is_empty() {
            self.date_returns(stretch.start, requests);
        }
        if let Some(paged) = &mut self.paged {
            paged.run(stretch, self.all_decode);
        }
        self.apply_decodes(stretch, requests);
        while let Some((due, i)) = next(&mut self.finishes, &self.rows, Phase::Decode)
            && due <= self.decode_clock
        {
            self.finishes.pop();
            self.finish(i, &requests[i as usize]);
            finished.push(i);
        }

        self.prompt_held += stretch.steps * stretch.work.prefill_tokens;
        if !self.prefills.is_empty() {
            self.apply_prefills(stretch, requests, finished);
        }
        if self.all_prefill {
            self.apply_chunks(stretch, requests, finished);
        }
        if !self.admitted.is_empty() {
            self.apply_admissions(stretch, requests, finished);
        }
        if let Some(seats) = self.seats() {
            seats.close_step(requests);
        }
    }

    /// The prompts that were served by name.
    fn apply_prefills(&mut self, stretch: &Stretch, requests: &mut [Entry], out: &mut Vec<u32>) {
        let mut prefills = std::mem::take(&mut self.prefills);
        for (i, tokens) in prefills.drain(..) {
            let done = self.prefilled(i as usize) + stretch.steps * tokens;
            self.leave_group(i);
            if self.enter_group(i, done) {
                self.complete(i, requests, stretch.end, out);
            } else {
                self.computed(i, done);
            }
        }
        self.prefills = prefills;
    }

    /// A chunk of all that prefill.
    fn apply_chunks(&mut self, stretch: &Stretch, requests: &mut [Entry], out: &mut Vec<u32>) {
        self.prefill_clock += stretch.steps;
        self.chunking_done += stretch.steps * self.chunking * self.chunk;
        // A step with last chunks is a stretch of its own, so all of them are complete.
        for at in 0..self.last_chunks.len() {
            self.complete(self.last_chunks[at], requests, stretch.end, out);
        }
        self.last_chunks.clear();
        self.all_computed();
        while let Some((due, i)) = next(&mut self.last_whole_chunks, &self.rows, Phase::Chunks)
            && due <= self.prefill_clock
        {
            let done = self.prefilled(i as usize);
            self.last_whole_chunks.pop();
            self.chunking -= 1;
            self.chunking_done -= done;
            if self.enter_group(i, done) {
                self.complete(i, requests, stretch.end, out);
            }
        }
    }

    /// The first chunks of those who were admitted.
    fn apply_admissions(&mut self, stretch: &Stretch, requests: &mut [Entry], out: &mut Vec<u32>) {
        for at in 0..self.admitted.len() {
            let (i, tokens) = self.admitted[at];
            let hit = self.seats().map_or(0, |seats| seats.hit(i));
            let again = requests[i as usize].scheduled(stretch.start, hit);
            if let Some(paged) = &mut self.paged {
                paged.kv.recomputed_tokens += again;
            }
            self.prefilling += 1;
            if self.enter_group(i, tokens) {
                self.complete(i, requests, stretch.end, out);
            } else {
                self.computed(i, tokens);
            }
        }
        self.admitted.clear();
    }

    /// Notes how many tokens of a request are computed.
    fn computed(&mut self, i: u32, tokens: u64) {
        if let Some(seats) = self.seats() {
            seats.computed(i, tokens);
        }
    }

    /// The same of all that prefilled with the group, and go on.
    fn all_computed(&mut self) {
        if self.seats().is_none() {
            return;
        }
        let mut at = self.running_after(None);
        while let Some(p) = at {
            if matches!(self.rows[p].phase, Phase::Chunks | Phase::LastChunk) {
                self.computed(short(p), self.prefilled(p));
            }
            at = self.running_after(Some(p));
        }
    }

    /// Notes who is left out while others at the same stage are served. The batch is walked only
    /// if somebody is.
    fn note_left_out(&self, stretch: &Stretch, requests: &mut [Entry]) {
        let (w, named) = (&stretch.work, (self.decodes.len() as u64, self.prefills.len() as u64));
        let decodes = !self.all_decode && 0 < w.decodes && named.0 < self.decoding;
        // Those who are admitted in this step prefill as well, and are not counted yet.
        let prompts = !self.all_prefill && 0 < w.prefills && named.1 < self.prefilling;
        let mut at = self.running_after(None).filter(|_| decodes || prompts);
        while let Some(p) = at {
            let here = match self.rows[p].phase {
                Phase::Decode => decodes,
                Phase::Chunks | Phase::LastChunk => prompts,
                Phase::Waiting
                | Phase::Swapped
                | Phase::Brought
                | Phase::Admitted
                | Phase::Done => false,
            };
            if here && !self.served(p) {
                requests[p].left_out(stretch);
            }
            at = self.running_after(Some(p));
        }
    }

    fn apply_decodes(&mut self, stretch: &Stretch, requests: &mut [Entry]) {
        let first_end = stretch.start.after(stretch.time.first);
        if self.all_decode {
            self.decode_clock += stretch.steps;
            if let Some(paged) = &mut self.paged {
                paged.age(stretch.steps);
            }
            self.context += stretch.steps * self.decoding;
            self.gaps_of_all(stretch, first_end, requests);
        } else if !self.decodes.is_empty() {
            let decodes = std::mem::take(&mut self.decodes);
            for &i in &decodes {
                let known = self.known(i as usize, &requests[i as usize]);
                let row = &mut self.rows[i as usize];
                row.due -= stretch.steps;
                self.finishes.push(Reverse((row.due, i)));
                self.context += stretch.steps;
                if let Some(paged) = &mut self.paged {
                    let stored = known - paged.memory.lag;
                    paged.part(stored);
                    paged.join(stored + stretch.steps);
                }
                let fresh = self.fresh.contains(&i);
                let apart = self.apart.contains(&i);
                let r = &mut requests[i as usize];
                let own = r.token(first_end);
                r.token_at = Some(stretch.end);
                let before = if fresh || apart { own } else { Some(self.beat) };
                self.gap(before, first_end, 1);
                self.gaps_of_steps(stretch, 1, 1);
                if !apart {
                    self.apart.push(i);
                }
            }
            self.fresh.retain(|i| !decodes.contains(i));
            self.decodes = decodes;
        }
    }

    /// The gaps of a stretch in which all decode.
    fn gaps_of_all(&mut self, stretch: &Stretch, first_end: Ticks, requests: &mut [Entry]) {
        let (fresh, apart) = (self.fresh.len(), self.apart.len());
        if fresh + apart == 0 && self.beat == stretch.start {
            self.gaps_of_steps(stretch, 0, self.decoding);
        } else {
            self.gap(Some(self.beat), first_end, self.decoding - (fresh + apart) as u64);
            for at in 0..fresh {
                self.first_gap(self.fresh[at], first_end, requests);
            }
            for at in 0..apart {
                self.first_gap(self.apart[at], first_end, requests);
            }
            self.fresh.clear();
            self.apart.clear();
            self.gaps_of_steps(stretch, 1, self.decoding);
        }
        self.beat = stretch.end;
    }

    /// Notes the gap to the token at `end` of an answer that did not get its last one with the others.
    fn first_gap(&mut self, i: u32, end: Ticks, requests: &mut [Entry]) {
        let before = requests[i as usize].token(end);
        self.gap(before, end, 1);
    }

    /// Notes a gap of so many answers from the token `before`, if they have one.
    fn gap(&mut self, before: Option<Ticks>, end: Ticks, requests: u64) {
        if let Some(before) = before
            && self.counts_gaps
            && 0 < requests
        {
            self.gaps.push(GapRun::between(before, end, requests));
        }
    }

    /// Notes the gaps of all steps of a stretch but the first `skipped`.
    fn gaps_of_steps(&mut self, stretch: &Stretch, skipped: u64, requests: u64) {
        if self.counts_gaps && skipped < stretch.steps {
            self.gaps.push(GapRun::of_steps(&stretch.time, skipped, stretch.steps, requests));
        }
    }

    /// Puts a request with `done` prompt tokens into the group that fits; `true` if none does,
    /// since its prompt is complete.
    #[inline]
    fn enter_group(&mut self, i: u32, done: u64) -> bool {
        let left = self.rows[i as usize].target - done;
        if left == 0 {
            return true;
        }
        let row = &mut self.rows[i as usize];
        row.done = done;
        row.entered = self.prefill_clock;
        if left < self.chunk {
            row.phase = Phase::LastChunk;
            self.last_chunks.push(i);
            return false;
        }
        row.phase = Phase::Chunks;
        self.chunking += 1;
        self.chunking_done += done;
        // Without a chunk nobody has prefilled the group yet; the first to do so sorts it.
        if let Some(chunks) = left.checked_div(self.chunk) {
            row.due = self.prefill_clock + chunks;
            self.last_whole_chunks.push(Reverse((row.due, i)));
        }
        false
    }

    fn leave_group(&mut self, i: u32) {
        if self.rows[i as usize].phase == Phase::Chunks {
            self.chunking -= 1;
            self.chunking_done -= self.prefilled(i as usize);
            // No reading is due now, so what is left on the agenda is out of date.
            self.rows[i as usize].due = 0;
        } else {
            self.last_chunks.retain(|&j| j != i);
        }
    }

    /// Sorts the requests in prefill anew for another size of chunk.
    fn change_chunk(&mut self, chunk: u64) {
        let mut group = Vec::new();
        let mut at = self.running_after(None);
        while let Some(p) = at {
            if matches!(self.rows[p].phase, Phase::Chunks | Phase::LastChunk) {
                group.push((p, self.prefilled(p)));
            }
            at = self.running_after(Some(p));
        }
        self.chunk = chunk;
        self.last_whole_chunks.clear();
        self.last_chunks.clear();
        self.chunking = 0;
        self.chunking_done = 0;
        for (p, done) in group {
            self.enter_group(short(p), done);
        }
    }

    /// Moves a request whose prompt is complete to decode, or, if it has all its tokens at once, to
    /// who is `finished`.
    fn complete(&mut self, i: u32, requests: &mut [Entry], end: Ticks, finished: &mut Vec<u32>) {
        let r = &mut requests[i as usize];
        self.prefilling -= 1;
        let Row { target, decoded, .. } = self.rows[i as usize];
        self.prompt_held -= target;
        self.decoding += 1;
        self.context += target;
        if let Some(paged) = &mut self.paged {
            paged.join(target);
        }
        r.prompt_done(end);
        let mut left = r.output - decoded;
        if self.emits {
            let before = r.token(end);
            self.gap(before, end, 1);
            self.context += 1;
            self.outstanding -= 1;
            left -= 1;
            if left == 0 {
                self.finish(i, r);
                finished.push(i);
                return;
            }
        } else {
            self.fresh.push(i);
        }
        if self.emits && end != self.beat {
            self.apart.push(i);
        }
        self.computed(i, target);
        let row = &mut self.rows[i as usize];
        row.phase = Phase::Decode;
        row.due = self.decode_clock + left;
        self.finishes.push(Reverse((row.due, i)));
    }

    /// Takes a request with all its tokens out of the batch.
    fn finish(&mut self, i: u32, r: &Entry) {
        self.decoding -= 1;
        self.context -= r.input + r.output;
        self.apart.retain(|&j| j != i);
        self.give_back(r.input + r.output, r);
        let stored = r.input + r.output - u64::from(self.emits);
        if let Some(seats) = self.seats() {
            seats.finished(i, stored);
        }
        self.unlink(i);
    }

    /// Takes a request out of the order of admission.
    fn unlink(&mut self, i: u32) {
        self.running -= 1;
        let row = &mut self.rows[i as usize];
        row.phase = Phase::Done;
        let (before, after) = (row.before, row.after);
        match self.rows.get_mut(before as usize) {
            Some(row) => row.after = after,
            None => self.first = after,
        }
        match self.rows.get_mut(after as usize) {
            Some(row) => row.before = before,
            None => self.last = before,
        }
    }

    /// Prompt tokens computed and output tokens made.
    pub fn progress(&self, i: u32, r: &Entry) -> (u64, u64) {
        let prefilled = self.prefilled(i as usize).min(r.input);
        let decoded = match self.rows[i as usize].phase {
            Phase::Decode => self.known(i as usize, r) - r.input,
            _ => self.rows[i as usize].decoded,
        };
        (prefilled, decoded)
    }

    /// Takes a request out between two steps, wherever it is; how far it came.
    pub fn remove(&mut self, i: u32, r: &Entry) -> (u64, u64) {
        let progress = self.progress(i, r);
        self.outstanding -= self.left(i) + r.output - progress.1;
        let phase = self.rows[i as usize].phase;
        if matches!(phase, Phase::Waiting | Phase::Swapped | Phase::Brought) {
            self.leave_queue(i, r);
            self.rows[i as usize].phase = Phase::Done;
        } else {
            let stored = match phase {
                Phase::Decode => self.known(i as usize, r) - u64::from(self.emits),
                _ => self.prefilled(i as usize),
            };
            if let Some(seats) = self.seats() {
                seats.remove(i, r, stored);
            }
            self.take_out(i, r);
        }
        progress
    }
}

/// The earliest reading that is not out of date.
fn next(agenda: &mut Agenda, rows: &[Row], phase: Phase) -> Option<(u64, u32)> {
    while let Some(&Reverse((due, i))) = agenda.peek() {
        let row = &rows[i as usize];
        if row.phase == phase && row.due == due {
            return Some((due, i));
        }
        agenda.pop();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KvPool;

    /// Step by step, and from the last step to the first, and class by class: the same blocks.
    #[test]
    fn the_blocks_of_a_stretch_add_up_the_same_three_ways() {
        for size in [1, 3, 16] {
            let pool = KvPool::new(1 << 20, size).unwrap();
            let reserve = Reserve::Prompt;
            let mut paged =
                Paged::new(Memory { pool, reserve, watermark: 0, lag: 1, radix: false });
            for i in 0..40 {
                paged.join(i * i);
                paged.age(i % 5);
            }
            for steps in 1..200_u64 {
                let mut by_hand = [0_u128; 3];
                for (j, need) in
                    (0..u128::from(steps)).zip(paged.needs().collect::<Vec<_>>().iter().cycle())
                {
                    let need = u128::from(*need);
                    let pairs = j * j.saturating_sub(1) / 2;
                    by_hand = [by_hand[0] + need, by_hand[1] + j * need, by_hand[2] + pairs * need];
                }
                assert_eq!(paged.short_sums(steps), by_hand, "{size} {steps}");
                assert_eq!(paged.long_sums(steps), by_hand, "{size} {steps}");
                assert_eq!(u128::from(paged.growth(steps)), by_hand[0], "{size} {steps}");
            }
        }
    }
}
