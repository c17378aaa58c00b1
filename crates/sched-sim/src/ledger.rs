//! Where the time of a request went: a ledger in which every tick has exactly one account.
//!
//! A latency says how long; the ledger says on what. It is computed after a run, from the instants
//! of each request and the steps that ran meanwhile, so that it costs nothing where nobody asks.
//! Time that two accounts could claim goes to the first in this order: swap, preempted, recomputing,
//! held back, and then the stage that the request was in. So the accounts of a request add up to its
//! TTFT and to its E2E exactly, in attoseconds.
//!
//! The wait for admission is told apart by what each step that ran meanwhile, on the server that the
//! request came to, [held](Held) the head of the queue back with: who is behind the head waits for
//! what the head waits for, and so does who is in the queue of a router.
//!
//! A request begins when its client sends it, in closed loops and sessions too, and nothing holds it
//! there: thinking is between requests. So no account is for waiting in the client.

use metrics_core::summary::nearest_rank;

use crate::error::{Result, SimError};
use crate::history::{Held, Observer, Stretch};
use crate::simulation::{RequestDetail, RequestRecord, RunResult, Span, Stall};
use crate::step_time::{StepTime, StretchTime};
use crate::time::Ticks;
use crate::workload::WorkloadRequest;

/// What a request spends its time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Account {
    /// Before the first step that gave it tokens: steps that were decided before it came, as the one
    /// under way at its arrival.
    WaitStep,
    /// Steps without a slot for who is next in the queue.
    WaitSlots,
    /// Steps without KV blocks for who is next in the queue.
    WaitBlocks,
    /// Steps whose tokens went to others, or that by the policy's rule take nobody in.
    WaitBudget,
    /// Steps that computed tokens of its prompt for the first time.
    OwnPrefill,
    /// Steps that went on without it although it was admitted: others' prompts, or no budget left.
    HeldBack,
    /// The step after its prompt that gave the first token, where the last prompt step does not.
    FirstDecode,
    /// From its first token until its KV was in the decode pool, where prompts have a pool of their
    /// own.
    KvTransfer,
    /// From then to the first step that it was in there.
    DecodeAdmission,
    /// What its decode steps would have taken with nobody else in the batch.
    OwnDecode,
    /// The rest of its decode steps, which is due to the others in them.
    Interference,
    /// From a preemption until it was admitted again.
    Preempted,
    /// Steps from then until all its known tokens were computed again.
    Recompute,
    /// Its KV moved out when it was preempted, and back.
    Swap,
}

impl Account {
    /// All accounts, in the order in which a request meets them.
    pub const ALL: [Self; 14] = [
        Self::WaitStep,
        Self::WaitSlots,
        Self::WaitBlocks,
        Self::WaitBudget,
        Self::OwnPrefill,
        Self::HeldBack,
        Self::FirstDecode,
        Self::KvTransfer,
        Self::DecodeAdmission,
        Self::OwnDecode,
        Self::Interference,
        Self::Preempted,
        Self::Recompute,
        Self::Swap,
    ];

    /// Its name in JSON and tables.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::WaitStep => "waiting_step",
            Self::WaitSlots => "waiting_slots",
            Self::WaitBlocks => "waiting_blocks",
            Self::WaitBudget => "waiting_budget",
            Self::OwnPrefill => "own_prefill",
            Self::HeldBack => "held_back",
            Self::FirstDecode => "first_decode",
            Self::KvTransfer => "kv_transfer",
            Self::DecodeAdmission => "decode_admission",
            Self::OwnDecode => "own_decode",
            Self::Interference => "interference",
            Self::Preempted => "preempted",
            Self::Recompute => "recompute",
            Self::Swap => "swap",
        }
    }

    /// What it is, to complete "of the time went on …", in English and Chinese.
    #[must_use]
    pub const fn meaning(self) -> (&'static str, &'static str) {
        match self {
            Self::WaitStep => ("waiting for the step under way to end", "等待正在运行的步结束"),
            Self::WaitSlots => ("waiting for a slot in the batch", "等待 batch 中的空位"),
            Self::WaitBlocks => ("waiting for KV blocks", "等待 KV 块"),
            Self::WaitBudget => {
                ("waiting behind the tokens of others", "排在其他请求的 token 之后")
            }
            Self::OwnPrefill => ("its own prefill steps", "自己的 prefill 步"),
            Self::HeldBack => ("steps that served others", "只服务其他请求的步"),
            Self::FirstDecode => ("the first decode step", "第一个 decode 步"),
            Self::KvTransfer => ("moving its KV to the decode pool", "KV 传往 decode 池"),
            Self::DecodeAdmission => {
                ("waiting for admission in the decode pool", "等待进入 decode 池的批次")
            }
            Self::OwnDecode => ("its own decode", "自己的 decode"),
            Self::Interference => ("others in its decode steps", "decode 步中其他请求的开销"),
            Self::Preempted => ("being preempted", "被抢占"),
            Self::Recompute => ("computing lost KV again", "重新计算丢失的 KV"),
            Self::Swap => ("moving its KV out and back", "KV 换出与换入"),
        }
    }
}

/// Attoseconds in each account; [`Account::Interference`] can be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts([i128; Account::ALL.len()]);

impl Accounts {
    /// The attoseconds of one account.
    #[must_use]
    pub const fn attoseconds(&self, account: Account) -> i128 {
        self.0[account as usize]
    }

    /// The seconds of one account.
    #[must_use]
    pub fn seconds(&self, account: Account) -> f64 {
        self.attoseconds(account) as f64 / Ticks::SECOND.0 as f64
    }

    /// All accounts together, in attoseconds.
    #[must_use]
    pub fn total(&self) -> i128 {
        self.0.iter().sum()
    }

    /// The account with the most time; of equals the first.
    #[must_use]
    pub fn dominant(&self) -> Account {
        let [mut most, rest @ ..] = Account::ALL;
        for account in rest {
            if self.attoseconds(most) < self.attoseconds(account) {
                most = account;
            }
        }
        most
    }

    /// The share of one account in the total; `None` of no time at all.
    #[must_use]
    pub fn share(&self, account: Account) -> Option<f64> {
        let total = self.total();
        (total != 0).then(|| self.attoseconds(account) as f64 / total as f64)
    }

    fn add(&mut self, account: Account, attoseconds: i128) {
        self.0[account as usize] += attoseconds;
    }

    fn add_all(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

/// The accounts of one completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerRow {
    /// Its position in the workload.
    pub position: usize,
    /// Up to the first token; adds up to TTFT.
    pub ttft: Accounts,
    /// Up to the last token; adds up to E2E.
    pub e2e: Accounts,
}

/// The steps of a run as the ledger needs them: an [`Observer`] to run with.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Of each server of a fleet.
    servers: Vec<OfServer>,
    /// The server that runs now.
    server: usize,
    /// Whether some step took no time at all, so that instants do not tell how many there were.
    timeless: bool,
}

/// The steps of one server.
#[derive(Clone, Debug, Default)]
struct OfServer {
    slices: Vec<Slice>,
    /// What held the queue back, from each change on.
    holds: Vec<Hold>,
}

/// The accounts of the wait for admission.
const WAITS: [Account; 4] =
    [Account::WaitStep, Account::WaitSlots, Account::WaitBlocks, Account::WaitBudget];

/// Attoseconds in each of these accounts.
type Waits = [u128; 4];

/// Where the time is counted that a reason held the queue back.
const fn place(held: Option<Held>) -> usize {
    match held {
        None => 0,
        Some(Held::Slots) => 1,
        Some(Held::Blocks) => 2,
        Some(Held::Budget) => 3,
    }
}

/// A time in which one reason held the queue back, up to the next one.
#[derive(Clone, Copy, Debug)]
struct Hold {
    from: Ticks,
    held: Option<Held>,
    before: Waits,
}

impl Hold {
    /// All waits up to `at`, which is not before it.
    fn until(&self, at: Ticks) -> Waits {
        let mut waits = self.before;
        waits[place(self.held)] += at.0.saturating_sub(self.from.0);
        waits
    }
}

impl OfServer {
    /// Notes what holds the queue back from here on.
    fn hold(&mut self, from: Ticks, held: Option<Held>) {
        let before = match self.holds.last() {
            Some(last) if last.held == held => return,
            Some(last) => last.until(from),
            None => Waits::default(),
        };
        self.holds.push(Hold { from, held, before });
    }

    /// All waits up to an instant.
    fn waits(&self, at: Ticks) -> Waits {
        let next = self.holds.partition_point(|hold| hold.from <= at);
        let hold = next.checked_sub(1).and_then(|last| self.holds.get(last));
        hold.map_or_else(Waits::default, |hold| hold.until(at))
    }

    /// The end of the step under way at an instant, or the instant.
    fn step_end(&self, at: Ticks) -> Ticks {
        let next = self.slices.partition_point(|slice| slice.end <= at);
        self.slices.get(next).map_or(at, |slice| slice.step_end(at))
    }
}

/// Consecutive steps of the same kind.
#[derive(Clone, Copy, Debug)]
struct Slice {
    start: Ticks,
    end: Ticks,
    time: StretchTime,
    steps: u64,
    decodes: bool,
    prefills: bool,
}

impl Observer for Steps {
    fn server(&mut self, server: usize) {
        self.server = server;
    }

    fn stretch(&mut self, s: &Stretch) {
        self.timeless |= s.time.first == Ticks::ZERO;
        if self.servers.len() <= self.server {
            self.servers.resize_with(self.server + 1, OfServer::default);
        }
        let server = &mut self.servers[self.server];
        let idle_from = server.slices.last().map_or(Ticks::ZERO, |slice| slice.end);
        if idle_from < s.start {
            // Who is left waiting while nothing runs is by the policy's rule.
            server.hold(idle_from, Some(Held::Budget));
        }
        server.hold(s.start, s.held);
        server.slices.push(Slice {
            start: s.start,
            end: s.end,
            time: s.time,
            steps: s.steps,
            decodes: s.work.decodes > 0,
            prefills: s.work.prefills > 0,
        });
    }
}

impl Slice {
    /// The end of the step under way at an instant before the last one ends, or the instant.
    fn step_end(&self, at: Ticks) -> Ticks {
        let Some(gap) = at.since(self.start).filter(|gap| Ticks::ZERO < *gap) else { return at };
        let step = self.time.steps_to_reach(gap, self.steps);
        self.start.after(self.time.total(step))
    }

    /// The step that starts at `at`, which the slice reaches; `None` inside of a step.
    fn step_at(&self, at: Ticks) -> Option<u64> {
        if at <= self.start {
            return Some(0);
        }
        if self.end <= at {
            return Some(self.steps);
        }
        let gap = at.since(self.start)?;
        let step = self.time.steps_to_reach(gap, self.steps);
        (self.time.total(step) == gap).then_some(step)
    }
}

/// The ledger of every completed request of a run.
///
/// # Examples
///
/// ```
/// use sched_sim::ledger::{Account, Ledger, Steps};
/// use sched_sim::{Affine, DecodeFirst, Simulation, Ticks, Workload, WorkloadRequest};
///
/// // One slot: `b` waits for `a`, whose prompt takes 2 ms and whose two tokens take 2.02 ms.
/// let workload = Workload::new(vec![
///     WorkloadRequest::new("a", Ticks::ZERO, 100, 2),
///     WorkloadRequest::new("b", Ticks::ZERO, 100, 1),
/// ])?;
/// let step_time: Affine = "base=1ms,prefill=10us/token,decode=10us/request".parse()?;
/// let mut steps = Steps::default();
/// let simulation = Simulation::new(&workload, DecodeFirst::new(1, 512)?, step_time);
/// let result = simulation.run_observed(&mut steps)?;
///
/// let ledger = Ledger::new(&result, &steps, &step_time)?;
/// let b = &ledger.rows()[1];
/// let waited: Ticks = "4.02ms".parse()?;
/// assert_eq!(b.ttft.attoseconds(Account::WaitSlots), waited.attoseconds().cast_signed());
/// assert_eq!(b.ttft.dominant(), Account::WaitSlots);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    rows: Vec<LedgerRow>,
}

impl Ledger {
    /// Books a run that `steps` observed, with the step time that it ran with; with pools, that of
    /// the decode pool, since no other step is split.
    ///
    /// # Errors
    ///
    /// [`SimError::Ledger`] if the steps are not those of the run.
    pub fn new(result: &RunResult<'_>, steps: &Steps, step_time: &impl StepTime) -> Result<Self> {
        let mut details = result.details().iter().peekable();
        let none = RequestDetail::default();
        let mut rows = Vec::new();
        let requests = result.workload.requests().iter().zip(result.records());
        for (position, (request, record)) in requests.enumerate() {
            let detail = details.next_if(|d| d.position == position).unwrap_or(&none);
            let Some(instants) = Instants::of(request, record) else { continue };
            let last = result.servers().get(position).copied().unwrap_or_default();
            let mut book = Book {
                steps: &[],
                next: 0,
                step_time,
                context: request.input_tokens + 1,
                tokens: 1,
                accounts: Accounts::default(),
            };
            let row = book.fill(position, &instants, detail, (steps, last));
            let made = detail.output_tokens.unwrap_or(request.output_tokens);
            let row = row.filter(|_| book.tokens == made || steps.timeless);
            rows.push(row.ok_or_else(|| SimError::Ledger { id: request.id.clone() })?);
        }
        Ok(Self { rows })
    }

    /// The rows, in order of the workload; requests that are not completed have none.
    #[must_use]
    pub fn rows(&self) -> &[LedgerRow] {
        &self.rows
    }

    /// The rows of the requests at these positions alone.
    #[must_use]
    pub fn of_positions(mut self, positions: std::ops::Range<usize>) -> Self {
        self.rows.retain(|row| positions.contains(&row.position));
        self
    }

    /// The slowest requests by TTFT, those from the `p`-th percentile (nearest rank) on, and what
    /// their time went on; `None` without requests or for a `p` that is not between 0 and 100.
    #[must_use]
    pub fn tail_by_ttft(&self, p: f64) -> Option<Tail> {
        self.tail(p, |row| &row.ttft)
    }

    /// The slowest requests by E2E, as [`tail_by_ttft`](Self::tail_by_ttft).
    #[must_use]
    pub fn tail_by_e2e(&self, p: f64) -> Option<Tail> {
        self.tail(p, |row| &row.e2e)
    }

    /// All time from first to last tokens, of all completed requests together: what TPOT is made of.
    #[must_use]
    pub fn after_first_token(&self) -> Accounts {
        let mut accounts = Accounts::default();
        for row in &self.rows {
            for account in Account::ALL {
                let after = row.e2e.attoseconds(account) - row.ttft.attoseconds(account);
                accounts.add(account, after);
            }
        }
        accounts
    }

    fn tail(&self, p: f64, of: impl Fn(&LedgerRow) -> &Accounts) -> Option<Tail> {
        if !(0.0..100.0).contains(&p) || self.rows.is_empty() {
            return None;
        }
        let mut order: Vec<(i128, usize)> =
            self.rows.iter().enumerate().map(|(i, row)| (of(row).total(), i)).collect();
        order.sort_unstable();
        let slowest = order.get(nearest_rank(order.len(), p / 100.0) - 1..)?;
        let mut accounts = Accounts::default();
        for &(_, i) in slowest {
            accounts.add_all(of(self.rows.get(i)?));
        }
        let from = Ticks(slowest.first()?.0.unsigned_abs());
        Some(Tail { requests: slowest.len(), from, accounts })
    }
}

/// The slowest requests together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tail {
    /// How many they are.
    pub requests: usize,
    /// The latency of the fastest of them.
    pub from: Ticks,
    /// Their time by account, added up.
    pub accounts: Accounts,
}

/// The instants of a completed request.
struct Instants {
    arrival: Ticks,
    scheduled: Ticks,
    prompt_done: Ticks,
    first_token: Ticks,
    last_token: Ticks,
}

impl Instants {
    fn of(request: &WorkloadRequest, record: &RequestRecord) -> Option<Self> {
        Some(Self {
            arrival: request.arrival,
            scheduled: record.scheduled()?,
            prompt_done: record.prompt_done()?,
            first_token: record.first_token()?,
            last_token: record.last_token()?,
        })
    }
}

/// What is taken in order of time.
type Peeks<'d, X> = std::iter::Peekable<std::slice::Iter<'d, X>>;

/// One request while it is booked.
struct Book<'a, T> {
    steps: &'a [Slice],
    /// The first slice that is not over at the time booked so far.
    next: usize,
    step_time: &'a T,
    /// Tokens that its next decode reads.
    context: u64,
    /// Output tokens that the steps booked so far gave.
    tokens: u64,
    accounts: Accounts,
}

impl<'a, T: StepTime> Book<'a, T> {
    /// Books from arrival to last token, which `last` of the servers made; `None` if an instant lies
    /// inside of a step.
    fn fill(
        &mut self,
        position: usize,
        at: &Instants,
        detail: &RequestDetail,
        (steps, last): (&'a Steps, usize),
    ) -> Option<LedgerRow> {
        let first = detail.transfer.as_ref().map_or(last, |transfer| transfer.from_server);
        self.waits(steps.servers.get(first)?, at)?;
        let mut ttft = None;
        let mut apart = (detail.stalls.iter().peekable(), detail.held.iter().peekable());
        let mut now = at.scheduled;
        if let Some(transfer) = detail.transfer {
            self.on_server(steps, first, now);
            self.on_one(now, transfer.from, at, &mut apart, &mut ttft)?;
            ttft = Some(self.accounts);
            let (to, admitted) = (transfer.to?, transfer.admitted?);
            self.plain(Account::KvTransfer, transfer.from, to)?;
            self.plain(Account::DecodeAdmission, to, admitted)?;
            now = admitted;
        }
        self.on_server(steps, last, now);
        self.on_one(now, at.last_token, at, &mut apart, &mut ttft)?;
        let ttft = ttft.unwrap_or(self.accounts);
        Some(LedgerRow { position, ttft, e2e: self.accounts })
    }

    /// Books the wait for admission to a server.
    fn waits(&mut self, server: &OfServer, at: &Instants) -> Option<()> {
        let looked_at = server.step_end(at.arrival);
        self.plain(Account::WaitStep, at.arrival, looked_at)?;
        at.scheduled.since(looked_at)?;
        let [before, after] = [looked_at, at.scheduled].map(|at| server.waits(at));
        for (account, (before, after)) in WAITS.into_iter().zip(before.into_iter().zip(after)) {
            self.accounts.add(account, (after - before).cast_signed());
        }
        Some(())
    }

    /// Goes on with the steps of this server, from `now` on.
    fn on_server(&mut self, steps: &'a Steps, server: usize, now: Ticks) {
        self.steps = steps.servers.get(server).map_or(&[], |server| &server.slices);
        self.next = self.steps.partition_point(|s| s.end <= now);
    }

    /// Books from `now` to `until`, all on one server; the accounts up to the first token are
    /// `ttft`, if it is made meanwhile.
    fn on_one<'d>(
        &mut self,
        mut now: Ticks,
        until: Ticks,
        at: &Instants,
        (stalls, held): &mut (Peeks<'d, Stall>, Peeks<'d, Span>),
        ttft: &mut Option<Accounts>,
    ) -> Option<()> {
        while now < until {
            if now == at.first_token && ttft.is_none() {
                *ttft = Some(self.accounts);
            }
            // A stall without an end would be one of a request that is not completed.
            if let Some(stall) = stalls.next_if(|s| s.from <= now) {
                let back = stall.readmitted?;
                self.plain(Account::Preempted, now, back)?;
                // The two steps in which it moved are booked whole, the second as a decode. If it was
                // away for less than one way takes, no step ran before it came back, and both ways
                // are in that decode.
                let swap = stall.swap_time.0.cast_signed();
                let away = if back.since(now)? < stall.swap_time { 0 } else { swap };
                self.accounts.add(Account::Swap, 2 * swap);
                self.accounts.add(Account::Preempted, -away);
                self.accounts.add(Account::Interference, away - 2 * swap);
                now = back;
                let end = stalls.peek().map_or(until, |next| next.from.min(until));
                let end = stall.recomputed.map_or(end, |recomputed| recomputed.min(end));
                while now < end {
                    let to = if let Some(span) = held.next_if(|h| h.from <= now) {
                        self.plain(Account::HeldBack, now, span.to)?;
                        span.to
                    } else {
                        let to = held.peek().map_or(end, |h| h.from.min(end));
                        self.served(Account::Recompute, now, to)?;
                        to
                    };
                    now = to;
                }
                if stall.caught_up == Some(now) && at.first_token < now {
                    self.token();
                }
                continue;
            }
            if let Some(span) = held.next_if(|h| h.from <= now) {
                self.plain(Account::HeldBack, now, span.to)?;
                now = span.to;
                continue;
            }
            let (account, stage_end) = if now < at.prompt_done {
                (Some(Account::OwnPrefill), at.prompt_done)
            } else if now < at.first_token {
                (Some(Account::FirstDecode), at.first_token)
            } else {
                (None, until)
            };
            let stall = stalls.peek().map_or(stage_end, |s| s.from);
            let to = held.peek().map_or(stage_end, |h| h.from).min(stall).min(stage_end);
            match account {
                Some(account) => self.served(account, now, to)?,
                None => self.decodes(now, to)?,
            }
            now = to;
        }
        Some(())
    }

    fn token(&mut self) {
        self.context += 1;
        self.tokens += 1;
    }

    /// Books a span whatever ran in it.
    fn plain(&mut self, account: Account, from: Ticks, to: Ticks) -> Option<()> {
        let span = to.since(from)?;
        self.accounts.add(account, span.0.cast_signed());
        Some(())
    }

    /// Calls `f` with each slice from `from` to `to`, with its first step there, the number of
    /// steps and their time; what lies between slices is held back.
    fn walk(
        &mut self,
        from: Ticks,
        to: Ticks,
        mut f: impl FnMut(&mut Self, &Slice, u64, Ticks),
    ) -> Option<()> {
        let mut now = from;
        while now < to {
            let Some(slice) = self.steps.get(self.next).copied().filter(|s| s.start < to) else {
                return self.plain(Account::HeldBack, now, to);
            };
            if slice.end <= now {
                self.next += 1;
                continue;
            }
            if now < slice.start {
                self.plain(Account::HeldBack, now, slice.start)?;
                now = slice.start;
            }
            let (first, last) = (slice.step_at(now)?, slice.step_at(to)?);
            let end = slice.end.min(to);
            f(self, &slice, last - first, end.since(now)?);
            now = end;
        }
        Some(())
    }

    /// Books steps before the first token, or that compute again: those without a prompt chunk, or
    /// without a decode for the first token, went on without it.
    fn served(&mut self, account: Account, from: Ticks, to: Ticks) -> Option<()> {
        self.walk(from, to, |book, slice, _, time| {
            let served =
                if account == Account::FirstDecode { slice.decodes } else { slice.prefills };
            let account = if served { account } else { Account::HeldBack };
            book.accounts.add(account, time.0.cast_signed());
        })
    }

    /// Books decode steps: what the request would have taken alone, and the rest.
    fn decodes(&mut self, from: Ticks, to: Ticks) -> Option<()> {
        self.walk(from, to, |book, slice, steps, time| {
            if !slice.decodes {
                book.accounts.add(Account::HeldBack, time.0.cast_signed());
                return;
            }
            let mut own = 0_u128;
            let mut left = steps;
            while left > 0 {
                let alone = book.step_time.decode_alone(book.context, slice.prefills);
                let some = left.min(alone.steps.max(1));
                own += alone.total(some).0;
                book.context += some;
                book.tokens += some;
                left -= some;
            }
            book.accounts.add(Account::OwnDecode, own.cast_signed());
            book.accounts.add(Account::Interference, time.0.cast_signed() - own.cast_signed());
        })
    }
}
