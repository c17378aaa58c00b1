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
use std::collections::{BinaryHeap, VecDeque};

use crate::error::Result;
use crate::history::{Observer, Stretch};
use crate::policy::Policy;
use crate::replica::{Entry, Replica, short};
use crate::request::Stage;
use crate::run::run_workload;
use crate::simulation::{RunResult, Simulation};
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
    let Simulation { workload, policy, step_time, limits } = simulation;
    let server = Replica::new(policy, step_time).limits(limits);
    run_workload(workload, server, false, |_| (), observer)
}

/// No request.
const NONE: u32 = u32::MAX;

/// Where a request is, for the counters that hold its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not admitted.
    Waiting,
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

/// One request; a row is less than a cache line, since an event touches all of it.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Prompt tokens computed when it last entered a prefill phase.
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
pub(crate) struct Skipping {
    emits: bool,
    rows: Vec<Row>,
    waiting: VecDeque<u32>,
    /// Tokens that are left to compute or to make.
    outstanding: u64,
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
    /// Requests that have not had their first token, those that begin to decode.
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
}

impl Skipping {
    pub fn new(emits: bool) -> Self {
        Self {
            emits,
            rows: Vec::new(),
            waiting: VecDeque::new(),
            outstanding: 0,
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
        }
    }

    pub fn arrive(&mut self, i: u32, r: &Entry) {
        let row = Row {
            done: 0,
            entered: 0,
            due: 0,
            served: 0,
            before: NONE,
            after: NONE,
            phase: Phase::Waiting,
        };
        match self.rows.get_mut(i as usize) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
        self.waiting.push_back(i);
        self.outstanding += r.input + r.output;
    }

    pub fn begin(&mut self) {
        self.step += 1;
        self.work = StepWork::default();
        self.all_decode = false;
        self.all_prefill = false;
        self.decodes.clear();
        self.prefills.clear();
        self.admitted.clear();
    }

    pub fn running(&self) -> u64 {
        self.running
    }

    pub fn decoding(&self) -> u64 {
        self.decoding
    }

    pub fn prefilling(&self) -> u64 {
        self.prefilling
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub fn next_waiting(&self) -> Option<usize> {
        self.waiting.front().map(|&i| i as usize)
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

    pub fn stage(&self, position: usize) -> Option<Stage> {
        match self.rows.get(position)?.phase {
            Phase::Waiting | Phase::Done => None,
            Phase::Admitted | Phase::Chunks | Phase::LastChunk => Some(Stage::Prefill),
            Phase::Decode => Some(Stage::Decode),
        }
    }

    pub fn prefilled(&self, position: usize, r: &Entry) -> u64 {
        let row = &self.rows[position];
        match row.phase {
            Phase::Waiting | Phase::Admitted => 0,
            Phase::Chunks => row.done + (self.prefill_clock - row.entered) * self.chunk,
            Phase::LastChunk => row.done,
            Phase::Decode | Phase::Done => r.input,
        }
    }

    pub fn served(&self, position: usize) -> bool {
        let row = &self.rows[position];
        match row.phase {
            Phase::Waiting | Phase::Done => false,
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
    }

    pub fn decode(&mut self, position: usize, r: &Entry) {
        let row = &mut self.rows[position];
        row.served = self.step;
        let left = row.due - self.decode_clock;
        self.work.add_decode(r.input + r.output - left);
        self.decodes.push(short(position));
    }

    pub fn prefill_all(&mut self, chunk: u64, requests: &[Entry]) {
        if chunk != self.chunk {
            self.change_chunk(chunk, requests);
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
            let done = self.rows[i as usize].done;
            w.add_chunk(requests[i as usize].input - done, done);
        }
    }

    pub fn prefill(&mut self, position: usize, tokens: u64, r: &Entry) {
        self.work.add_chunk(tokens, self.prefilled(position, r));
        self.rows[position].served = self.step;
        self.prefills.push((short(position), tokens));
    }

    pub fn admit(&mut self, tokens: u64, _: &Entry) {
        let Some(i) = self.waiting.pop_front() else { return };
        let row = &mut self.rows[i as usize];
        row.phase = Phase::Admitted;
        row.before = self.last;
        row.after = NONE;
        match self.rows.get_mut(self.last as usize) {
            Some(last) => last.after = i,
            None => self.first = i,
        }
        self.last = i;
        self.running += 1;
        self.work.add_chunk(tokens, 0);
        self.admitted.push((i, tokens));
    }

    /// Tokens in KV before this step.
    pub fn held_tokens(&self) -> u64 {
        self.context + self.prompt_held
    }

    /// For how many steps the decision just made has no event before the end of the last one.
    pub fn repeats(&mut self, requests: &[Entry]) -> u64 {
        if !self.admitted.is_empty() || (self.all_prefill && !self.last_chunks.is_empty()) {
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
            let left = requests[i].input - self.prefilled(i, &requests[i]);
            steps = steps.min(left / tokens);
        }
        steps
    }

    /// Runs the stretch, and tells who `finished` in its last step.
    pub fn apply(&mut self, stretch: &Stretch, requests: &mut [Entry], finished: &mut Vec<u32>) {
        let end = stretch.end;
        self.outstanding -= stretch.steps * (stretch.work.prefill_tokens + stretch.work.decodes);
        self.apply_decodes(stretch, requests);
        while let Some((due, i)) = next(&mut self.finishes, &self.rows, Phase::Decode)
            && due <= self.decode_clock
        {
            self.finishes.pop();
            self.finish(i, &requests[i as usize]);
            finished.push(i);
        }

        self.prompt_held += stretch.steps * stretch.work.prefill_tokens;
        let mut complete = |batch: &mut Self, i: u32, requests: &mut [Entry]| {
            if batch.complete(i, &mut requests[i as usize], end) {
                finished.push(i);
            }
        };
        let mut prefills = std::mem::take(&mut self.prefills);
        for (i, tokens) in prefills.drain(..) {
            let r = &requests[i as usize];
            let done = self.prefilled(i as usize, r) + stretch.steps * tokens;
            self.leave_group(i, r);
            if self.enter_group(i, done, r) {
                complete(self, i, requests);
            }
        }
        self.prefills = prefills;
        if self.all_prefill {
            self.prefill_clock += stretch.steps;
            self.chunking_done += stretch.steps * self.chunking * self.chunk;
            // A step with last chunks is a stretch of its own, so all of them are complete.
            let mut last_chunks = std::mem::take(&mut self.last_chunks);
            for i in last_chunks.drain(..) {
                complete(self, i, requests);
            }
            self.last_chunks = last_chunks;
            while let Some((due, i)) = next(&mut self.last_whole_chunks, &self.rows, Phase::Chunks)
                && due <= self.prefill_clock
            {
                let r = &requests[i as usize];
                let done = self.prefilled(i as usize, r);
                self.last_whole_chunks.pop();
                self.chunking -= 1;
                self.chunking_done -= done;
                if self.enter_group(i, done, r) {
                    complete(self, i, requests);
                }
            }
        }
        let mut admitted = std::mem::take(&mut self.admitted);
        for (i, tokens) in admitted.drain(..) {
            requests[i as usize].scheduled(stretch.start);
            self.prefilling += 1;
            if self.enter_group(i, tokens, &requests[i as usize]) {
                complete(self, i, requests);
            }
        }
        self.admitted = admitted;
    }

    fn apply_decodes(&mut self, stretch: &Stretch, requests: &mut [Entry]) {
        let first_end = stretch.start.after(stretch.time.first);
        if self.all_decode {
            self.decode_clock += stretch.steps;
            self.context += stretch.steps * self.decoding;
            for i in self.fresh.drain(..) {
                requests[i as usize].token(first_end);
            }
        } else if !self.decodes.is_empty() {
            for &i in &self.decodes {
                let row = &mut self.rows[i as usize];
                row.due -= stretch.steps;
                self.finishes.push(Reverse((row.due, i)));
                self.context += stretch.steps;
                requests[i as usize].token(first_end);
            }
            self.fresh.retain(|&i| requests[i as usize].record.first_token().is_none());
        }
    }

    /// Puts a request with `done` prompt tokens into the group that fits; `true` if none does,
    /// since its prompt is complete.
    fn enter_group(&mut self, i: u32, done: u64, r: &Entry) -> bool {
        let left = r.input - done;
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

    fn leave_group(&mut self, i: u32, r: &Entry) {
        if self.rows[i as usize].phase == Phase::Chunks {
            self.chunking -= 1;
            self.chunking_done -= self.prefilled(i as usize, r);
            // No reading is due now, so what is left on the agenda is out of date.
            self.rows[i as usize].due = 0;
        } else {
            self.last_chunks.retain(|&j| j != i);
        }
    }

    /// Sorts the requests in prefill anew for another size of chunk.
    fn change_chunk(&mut self, chunk: u64, requests: &[Entry]) {
        let mut group = Vec::new();
        let mut at = self.running_after(None);
        while let Some(p) = at {
            if matches!(self.rows[p].phase, Phase::Chunks | Phase::LastChunk) {
                group.push((p, self.prefilled(p, &requests[p])));
            }
            at = self.running_after(Some(p));
        }
        self.chunk = chunk;
        self.last_whole_chunks.clear();
        self.last_chunks.clear();
        self.chunking = 0;
        self.chunking_done = 0;
        for (p, done) in group {
            self.enter_group(short(p), done, &requests[p]);
        }
    }

    /// Moves a request whose prompt is complete to decode; whether it is finished at once.
    fn complete(&mut self, i: u32, r: &mut Entry, end: Ticks) -> bool {
        self.prefilling -= 1;
        self.prompt_held -= r.input;
        self.decoding += 1;
        self.context += r.input;
        r.prompt_done(end);
        let mut left = r.output;
        if self.emits {
            r.token(end);
            self.context += 1;
            self.outstanding -= 1;
            left -= 1;
            if left == 0 {
                self.finish(i, r);
                return true;
            }
        } else {
            self.fresh.push(i);
        }
        let row = &mut self.rows[i as usize];
        row.phase = Phase::Decode;
        row.due = self.decode_clock + left;
        self.finishes.push(Reverse((row.due, i)));
        false
    }

    /// Takes a request with all its tokens out of the batch.
    fn finish(&mut self, i: u32, r: &Entry) {
        self.decoding -= 1;
        self.context -= r.input + r.output;
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
        let row = &self.rows[i as usize];
        let decoded = match row.phase {
            Phase::Decode => r.output - (row.due - self.decode_clock),
            _ => 0,
        };
        (self.prefilled(i as usize, r), decoded)
    }

    /// Takes a request out between two steps, wherever it is; how far it came.
    pub fn remove(&mut self, i: u32, r: &Entry) -> (u64, u64) {
        let (prefilled, decoded) = self.progress(i, r);
        self.outstanding -= r.input - prefilled + r.output - decoded;
        match self.rows[i as usize].phase {
            Phase::Decode => {
                self.decoding -= 1;
                self.context -= r.input + decoded;
                self.fresh.retain(|&j| j != i);
                self.unlink(i);
            }
            Phase::Chunks | Phase::LastChunk => {
                self.prefilling -= 1;
                self.prompt_held -= prefilled;
                self.leave_group(i, r);
                self.unlink(i);
            }
            Phase::Waiting => self.waiting.retain(|&j| j != i),
            Phase::Admitted | Phase::Done => {}
        }
        (prefilled, decoded)
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
