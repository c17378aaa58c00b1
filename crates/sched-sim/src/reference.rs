//! The reference engine: every step, for every request, asking the policy each time.
//!
//! It knows nothing of stretches, clocks or agendas: a step is a list of who gets how many
//! tokens, and running it means walking that list. It is there to be believed, and its results
//! are those of the [engine](crate::engine) that skips, bit for bit. It is a tight loop all the
//! same, so that a comparison of speed means something.

use crate::error::Result;
use crate::history::{Blocks, Observer, Stretch};
use crate::itl::GapRun;
use crate::kv_cache::Hit;
use crate::memory::{Memory, Order, Reserve};
use crate::policy::Policy;
use crate::radix::Seats;
use crate::replica::{Entry, Preempted, Replica, short};
use crate::request::Stage;
use crate::run::run_workload;
use crate::simulation::{RunResult, Simulation};
use crate::statistics::KvStatistics;
use crate::step::Rest;
use crate::step_time::{StepTime, StepWork};
use crate::time::Ticks;

/// Runs a simulation, one step at a time.
///
/// # Errors
///
/// As [`engine::run`](crate::engine::run).
pub fn run<'w, P: Policy, T: StepTime>(
    simulation: Simulation<'w, P, T>,
    observer: &mut impl Observer,
) -> Result<RunResult<'w>> {
    let Simulation { workload, policy, step_time, limits, settings, patience } = simulation;
    let server = Replica::reference(policy, step_time).settings(settings).limits(limits);
    let hits = server.caches_prefixes();
    run_workload(workload, server, hits, |job| job.give_up_after(patience), observer)
}

/// A request that waits or is in the batch.
struct Row {
    position: usize,
    input: u64,
    output: u64,
    /// What the order goes by, and when it joined the queue, in numbers that grow.
    place: (i64, u64),
    /// Tokens that its prefill computes: its prompt, and after a preemption its answer so far.
    target: u64,
    prefilled: u64,
    /// Output tokens made.
    decoded: u64,
    /// Output tokens made since its prefill.
    since: u64,
    blocks: u64,
    /// Prompt tokens in this step; a decode has none.
    tokens: u64,
    served: bool,
    came: Came,
    /// It waits with its KV somewhere else, and whether that is what it came with.
    swapped: bool,
    brought: bool,
}

/// How a row came into the batch, if it has not run since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Came {
    #[default]
    Before,
    Admitted,
    Returned,
}

impl Row {
    fn is_decoding(&self) -> bool {
        self.prefilled == self.target
    }

    fn known(&self) -> u64 {
        self.input + self.decoded
    }

    /// Tokens that it holds by the count of the source: a token counts when it is made.
    fn held(&self) -> u64 {
        self.prefilled + self.since
    }
}

/// The batch of the reference engine, in order of admission.
#[derive(Default)]
pub(crate) struct Plain {
    emits: bool,
    order: Order,
    memory: Option<Memory>,
    kv: KvStatistics,
    /// What the requests hold of the radix tree, and how many of their blocks are shared there.
    seats: Option<Seats>,
    joined: u64,
    rest: Rest,
    rows: Vec<Row>,
    /// Whether a prompt that was there before has work in this step.
    prefills_served: bool,
    /// In order of arrival.
    waiting: Vec<Row>,
    work: StepWork,
    preempted: Vec<Preempted>,
    /// Tokens whose KV moves before the next step.
    moved: u64,
    /// Gaps between tokens that ended in the last step.
    gaps: Vec<GapRun>,
}

impl Plain {
    pub fn new(emits: bool, order: Order, memory: Option<Memory>) -> Self {
        let mut kv = KvStatistics::default();
        if let Some(memory) = memory {
            kv.blocks = memory.pool.blocks();
            kv.block_size = memory.pool.block_size();
            kv.radix_tree = memory.radix;
        }
        let seats = memory.filter(|m| m.radix).map(|m| Seats::new(m.pool));
        Self { emits, order, memory, kv, seats, ..Self::default() }
    }

    pub fn arrive(&mut self, position: u32, r: &Entry) {
        if self.rows.is_empty() && self.waiting.is_empty() {
            self.rest.woken(r.arrival);
        }
        self.joined += 1;
        self.waiting.push(Row {
            position: position as usize,
            input: r.input,
            output: r.output,
            place: (self.order.key(r), self.joined),
            target: r.input,
            prefilled: if r.made == 0 { 0 } else { r.input },
            decoded: r.made,
            since: r.made,
            blocks: 0,
            tokens: 0,
            served: false,
            came: Came::Before,
            swapped: r.made > 0,
            brought: r.made > 0,
        });
    }

    pub fn begin(&mut self) {
        self.prefills_served = false;
        self.preempted.clear();
        self.work = StepWork::default();
        if let Some(seats) = &mut self.seats {
            seats.begin();
        }
    }

    /// What the radix tree has of a request that waits.
    pub fn look_up(&mut self, position: usize, r: &Entry) -> Option<Hit> {
        let known = self.known(position, r);
        let own = r.own_prompt();
        Some(self.seats.as_mut()?.look_up(short(position), &r.content(&own), known))
    }

    /// What the last look-up found, if it was for this request.
    pub fn found(&self, position: usize) -> Hit {
        self.seats.as_ref().map_or_else(Hit::default, |seats| seats.found(short(position)))
    }

    /// Evicts what is cached until so many blocks are free.
    pub fn make_free(&mut self, blocks: u64) {
        let used = self.used();
        if let Some(seats) = &mut self.seats {
            seats.make_free(blocks, used);
        }
    }

    fn row(&self, position: usize) -> Option<&Row> {
        self.rows.iter().find(|r| r.position == position)
    }

    pub fn running(&self) -> u64 {
        self.rows.len() as u64
    }

    pub fn decoding(&self) -> u64 {
        self.rows.iter().filter(|r| r.is_decoding()).count() as u64
    }

    pub fn prefilling(&self) -> u64 {
        self.rows.iter().filter(|r| r.came != Came::Admitted && !r.is_decoding()).count() as u64
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub fn next_waiting(&self) -> Option<usize> {
        self.waiting.iter().min_by_key(|r| r.place).map(|r| r.position)
    }

    /// The request of the batch that the order puts last.
    pub fn last_in_order(&self, _: &[Entry]) -> Option<usize> {
        self.rows.iter().max_by_key(|r| r.place).map(|r| r.position)
    }

    pub fn preempted(&self) -> &[Preempted] {
        &self.preempted
    }

    /// Whether it waits with its KV somewhere else.
    pub fn swapped(&self, position: usize) -> bool {
        self.waiting.iter().any(|r| r.position == position && r.swapped)
    }

    /// Whether it came back in this step.
    pub fn returned(&self, position: usize) -> bool {
        self.row(position).is_some_and(|r| r.came == Came::Returned)
    }

    /// Tokens whose KV moves before the step just decided.
    pub fn take_moved(&mut self) -> u64 {
        std::mem::take(&mut self.moved)
    }

    pub fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    fn used(&self) -> u64 {
        let shared = self.seats.as_ref().map_or(0, Seats::shared);
        self.rows.iter().map(|r| r.blocks).sum::<u64>() - shared
    }

    pub fn kv(&self) -> Option<(KvStatistics, u64)> {
        self.memory.map(|_| {
            let (counters, cached_blocks) =
                self.seats.as_ref().map_or_else(Default::default, |s| (s.counters(), s.cached()));
            (KvStatistics { counters, cached_blocks, ..self.kv }, self.used())
        })
    }

    /// Blocks while the step runs that was decided, with what is cached gone that has to go.
    pub fn blocks_in(&mut self, _: u64) -> Option<[Blocks; 2]> {
        self.memory?;
        self.make_free(0);
        let cached = self.seats.as_ref().map(Seats::cached);
        Some([Blocks { used: self.used(), cached }; 2])
    }

    pub fn free_blocks(&self) -> u64 {
        if self.memory.is_some() { self.kv.blocks - self.used() } else { u64::MAX }
    }

    /// Whether the next token of a decode begins a block.
    fn begins_block(&self, row: &Row) -> bool {
        self.memory.is_some_and(|memory| {
            row.is_decoding()
                && memory.grows()
                && row.blocks * memory.pool.block_size() == row.known() - memory.lag
        })
    }

    pub fn decode_blocks(&self) -> u64 {
        self.rows.iter().filter(|r| self.begins_block(r)).count() as u64
    }

    pub fn block_of(&self, position: usize, _: &Entry) -> u64 {
        self.row(position).map_or(0, |r| u64::from(self.begins_block(r)))
    }

    /// The tokens that a request knows: its prompt, and its answer so far.
    pub fn known(&self, position: usize, _: &Entry) -> u64 {
        let mut all = self.waiting.iter().chain(&self.rows);
        all.find(|r| r.position == position).map_or(0, Row::known)
    }

    /// Blocks that a chunk of a prompt needs.
    pub fn chunk_blocks(&self, position: usize, tokens: u64) -> u64 {
        let Some(memory) = self.memory.filter(|m| m.reserve == Reserve::Chunk) else { return 0 };
        let held = |r: &Row| memory.pool.blocks_for(r.prefilled + tokens) - r.blocks;
        self.row(position).map_or(0, held)
    }

    /// Takes a request out of the batch and puts it back into the queue.
    pub fn preempt(&mut self, position: usize, _: &Entry, to_end: bool) {
        let Some(at) = self.rows.iter().position(|r| r.position == position) else { return };
        let mut row = self.rows.remove(at);
        let unstored = u64::from(self.emits && row.is_decoding());
        let lost = row.held() - unstored;
        let short = short(position);
        self.preempted.push(Preempted { position: short, lost, moved: 0, token_at: None });
        if to_end {
            self.joined += 1;
            row.place.1 = self.joined;
        }
        row.target = row.known();
        (row.prefilled, row.since, row.blocks) = (0, 0, 0);
        self.waiting.push(row);
        self.leave(position);
    }

    /// Gives back what a request holds of the radix tree.
    fn leave(&mut self, position: usize) {
        if let Some(seats) = &mut self.seats {
            seats.leave(short(position));
        }
    }

    /// Takes a decode out of the batch and puts it back into the queue with its KV.
    pub fn swap_out(&mut self, position: usize, _: &Entry) {
        let Some(at) = self.rows.iter().position(|r| r.position == position) else { return };
        let mut row = self.rows.remove(at);
        let moved = row.held() - u64::from(self.emits);
        self.moved += moved;
        let short = short(position);
        self.preempted.push(Preempted { position: short, lost: 0, moved, token_at: None });
        (row.swapped, row.blocks) = (true, 0);
        self.waiting.push(row);
        self.leave(position);
    }

    /// Brings in who is next in the queue, with its KV.
    pub fn swap_in(&mut self, r: &Entry) {
        let next = self.next_waiting();
        let Some(at) = self.waiting.iter().position(|r| Some(r.position) == next) else { return };
        let mut row = self.waiting.remove(at);
        let stored = row.held() - u64::from(self.emits);
        self.moved += if row.brought { 0 } else { stored };
        row.blocks = self.memory.map_or(0, |m| m.holding(r, stored));
        (row.swapped, row.brought, row.came) = (false, false, Came::Returned);
        if let Some(seats) = &mut self.seats {
            seats.swap_in(short(row.position));
        }
        self.rows.push(row);
    }

    /// Tokens that those who wait have to prefill.
    pub fn waiting_tokens(&self) -> u64 {
        self.waiting.iter().map(|r| r.target - r.prefilled).sum()
    }

    /// Tokens that are left to compute or to make.
    pub fn rest(&self) -> &Rest {
        &self.rest
    }

    pub fn outstanding(&self) -> u64 {
        let all = self.waiting.iter().chain(&self.rows);
        all.map(|r| r.target - r.prefilled + r.output - r.decoded).sum()
    }

    /// Tokens in KV, each once: the newest one of a decode is not there before its next step.
    pub fn held_tokens(&self) -> u64 {
        let unstored = |r: &Row| u64::from(self.emits && r.is_decoding());
        let sum = self.rows.iter().map(|r| r.held() - unstored(r)).sum::<u64>();
        let shared = self.seats.as_ref().map_or(0, Seats::shared);
        sum - shared * self.memory.map_or(0, |m| m.pool.block_size())
    }

    pub fn work(&self) -> &StepWork {
        &self.work
    }

    pub fn running_after(&self, position: Option<usize>) -> Option<usize> {
        let next = match position {
            None => 0,
            Some(p) => self.rows.iter().position(|r| r.position == p)? + 1,
        };
        self.rows.get(next).map(|r| r.position)
    }

    pub fn last_admitted(&self) -> Option<usize> {
        self.rows.last().map(|r| r.position)
    }

    pub fn stage(&self, position: usize) -> Option<Stage> {
        let row = self.row(position)?;
        Some(if row.is_decoding() { Stage::Decode } else { Stage::Prefill })
    }

    pub fn prefilled(&self, position: usize) -> u64 {
        self.row(position).map_or(0, |r| r.prefilled)
    }

    pub fn served(&self, position: usize) -> bool {
        self.row(position).is_some_and(|r| r.served)
    }

    pub fn prefills_served(&self) -> bool {
        self.prefills_served
    }

    pub fn decode_all(&mut self) {
        let decodes = self.rows.iter().filter(|r| r.is_decoding()).map(|r| r.position);
        for position in decodes.collect::<Vec<_>>() {
            self.serve(position);
        }
    }

    pub fn decode(&mut self, position: usize, _: &Entry) {
        self.serve(position);
    }

    fn serve(&mut self, position: usize) {
        let Some(at) = self.rows.iter().position(|r| r.position == position) else { return };
        let block = u64::from(self.begins_block(&self.rows[at]));
        let row = &mut self.rows[at];
        row.served = true;
        row.blocks += block;
        self.work.add_decode(row.held());
    }

    pub fn prefill_all(&mut self, chunk: u64) {
        for row in &mut self.rows {
            if row.came != Came::Admitted && !row.is_decoding() {
                self.prefills_served = true;
                row.served = true;
                row.tokens = chunk.min(row.target - row.prefilled);
                self.work.add_chunk(row.tokens, row.prefilled);
            }
        }
    }

    pub fn prefill(&mut self, position: usize, tokens: u64) {
        let blocks = self.chunk_blocks(position, tokens);
        if let Some(row) = self.rows.iter_mut().find(|r| r.position == position) {
            self.prefills_served = true;
            row.served = true;
            row.tokens = tokens;
            row.blocks += blocks;
            self.work.add_chunk(tokens, row.prefilled);
        }
    }

    pub fn admit(&mut self, tokens: u64, r: &Entry) {
        let next = self.next_waiting();
        let Some(at) = self.waiting.iter().position(|r| Some(r.position) == next) else { return };
        let mut row = self.waiting.remove(at);
        let seats = self.seats.as_mut();
        row.prefilled = seats.map_or(0, |seats| seats.admit(short(row.position), row.target));
        let computed = row.prefilled + tokens;
        row.blocks = self.memory.map_or(0, |m| m.admission(r, computed, row.target));
        row.tokens = tokens;
        row.served = true;
        row.came = Came::Admitted;
        self.work.add_chunk(tokens, row.prefilled);
        self.rows.push(row);
    }

    /// Prompt tokens computed and output tokens made.
    pub fn progress(&self, position: u32, _: &Entry) -> (u64, u64) {
        let mut all = self.waiting.iter().chain(&self.rows);
        let row = all.find(|r| r.position == position as usize);
        row.map_or((0, 0), |r| (r.prefilled.min(r.input), r.decoded))
    }

    /// Takes a request out between two steps, wherever it is; how far it came.
    pub fn remove(&mut self, position: u32, r: &Entry) -> (u64, u64) {
        let progress = self.progress(position, r);
        if let Some(row) = self.rows.iter().find(|r| r.position == position as usize)
            && let Some(seats) = &mut self.seats
        {
            let unstored = u64::from(self.emits && row.is_decoding());
            seats.remove(position, r, row.held() - unstored);
        }
        self.rows.retain(|r| r.position != position as usize);
        self.waiting.retain(|r| r.position != position as usize);
        progress
    }

    /// Dates who came back in a step that serves nobody.
    pub fn date_returns(&mut self, at: Ticks, requests: &mut [Entry]) {
        for row in self.rows.iter_mut().filter(|r| matches!(r.came, Came::Returned)) {
            row.came = Came::Before;
            requests[row.position].returned(at);
        }
    }

    /// Gaps between tokens that ended in the last step.
    pub fn gaps(&self) -> &[GapRun] {
        &self.gaps
    }

    /// Runs the step, and tells who `finished` in it.
    pub fn apply(
        &mut self,
        step: &Stretch,
        requests: &mut [Entry],
        finished: &mut Vec<u32>,
        counts_gaps: bool,
    ) {
        self.gaps.clear();
        self.rest.ran(step.end);
        self.make_free(0);
        let used = self.used();
        self.kv.used_time += step.duration().0 * u128::from(used);
        self.kv.used_max = self.kv.used_max.max(used);
        for row in self.rows.iter().filter(|r| !r.served) {
            let stage = row.is_decoding();
            // A chunk has tokens; a decode has none here.
            let same = |r: &Row| r.served && (r.tokens == 0) == stage;
            if self.rows.iter().any(same) {
                requests[row.position].left_out(step);
            }
        }
        for row in &mut self.rows {
            let request = &mut requests[row.position];
            match std::mem::take(&mut row.came) {
                Came::Before => {}
                Came::Admitted => {
                    let hit = self.seats.as_ref().map_or(0, |s| s.hit(short(row.position)));
                    self.kv.recomputed_tokens += request.scheduled(step.start, hit);
                }
                Came::Returned => request.returned(step.start),
            }
        }
        let gaps = &mut self.gaps;
        let mut token = |request: &mut Entry| {
            let before = request.token(step.end).filter(|_| counts_gaps);
            gaps.extend(before.map(|t| GapRun::between(t, step.end, 1)));
        };
        for row in &mut self.rows {
            if !row.served {
                continue;
            }
            row.served = false;
            let request = &mut requests[row.position];
            let was_prefill = row.tokens > 0;
            if row.tokens == 0 {
                token(request);
                row.decoded += 1;
                row.since += 1;
            } else {
                row.prefilled += row.tokens;
                row.tokens = 0;
                if row.is_decoding() {
                    request.prompt_done(step.end);
                    if self.emits {
                        token(request);
                        row.decoded += 1;
                        row.since += 1;
                    }
                }
            }
            let unstored = u64::from(self.emits && row.is_decoding());
            if row.decoded == row.output {
                finished.push(short(row.position));
                if let Some(seats) = &mut self.seats {
                    seats.finished(short(row.position), row.known() - unstored);
                }
            } else if was_prefill && let Some(seats) = &mut self.seats {
                seats.computed(short(row.position), row.prefilled);
            }
        }
        if !finished.is_empty() {
            self.rows.retain(|r| r.decoded < r.output);
        }
        if let Some(seats) = &mut self.seats {
            seats.close_step(requests);
        }
    }
}
