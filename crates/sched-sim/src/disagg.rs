//! Prefill/decode disaggregation: a pool of servers for prompts, one for answers, driven as one.
//!
//! A request goes to the prefill pool and gets its first token there. Then its KV moves to the
//! decode pool, which makes the other tokens. What waits for prompts is so apart from what waits
//! for decodes: no prompt stalls the answer of another, and each pool is sized by its own load. The
//! price is the transfer, which lies between the first token and the second.
//!
//! Between the pools KV is in neither of them: it takes room in the prefill pool up to the first
//! token and in the decode pool from the admission there on, as if what waits were in host memory.
//! Transfers do not slow each other down.
//!
//! Source: `DistServe` (Zhong et al., OSDI 2024). vLLM's example proxy for disaggregated prefill asks
//! the prefill server for one token too, but drops it: the first token that its client sees comes
//! from the decode server, after the transfer.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Result, SimError};
use crate::history::{Observer, Stretch};
use crate::itl::GapRun;
use crate::memory::Preemption;
use crate::server::{Ending, Job, Leave, Over, Progress, Server, ServerLoad};
use crate::simulation::{RequestRecord, RunEnd, Transfer};
use crate::statistics::RunStatistics;
use crate::step_time::Affine;
use crate::time::Ticks;

/// How long the KV of a prompt takes from one pool to the other.
///
/// ```text
/// time = latency + per_token · prompt tokens
/// ```
///
/// # Examples
///
/// ```
/// use sched_sim::{KvTransfer, Ticks};
///
/// // 131072 bytes a token over 400 Gbit/s.
/// let transfer = KvTransfer::at_bandwidth(131_072, 400_000_000_000, "1ms".parse()?)?;
/// assert_eq!(transfer.per_token(), "2.62144us".parse()?);
/// assert_eq!(transfer.time(1000), "3.62144ms".parse()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvTransfer {
    per_token: Ticks,
    latency: Ticks,
}

impl KvTransfer {
    /// So long for each token of the prompt, and so long for each transfer.
    ///
    /// # Errors
    ///
    /// [`SimError::Coefficient`] if a token takes longer than [`Preemption::LONGEST`], or the
    /// latency is above [`Affine::LARGEST`].
    pub fn new(per_token: Ticks, latency: Ticks) -> Result<Self> {
        for (input, value, max) in [
            ("KV transfer time per token", per_token, Preemption::LONGEST),
            ("KV transfer latency", latency, Affine::LARGEST),
        ] {
            if max < value {
                return Err(SimError::Coefficient { input, max, value });
            }
        }
        Ok(Self { per_token, latency })
    }

    /// So many bytes of KV a token over a bandwidth: the time of a token is rounded to the nearest
    /// attosecond.
    ///
    /// # Errors
    ///
    /// [`SimError::TooSmall`] for a bandwidth of 0, [`SimError::TooLarge`] above 2³² bytes a token;
    /// as [`new`](Self::new).
    pub fn at_bandwidth(
        bytes_per_token: u64,
        bits_per_second: u64,
        latency: Ticks,
    ) -> Result<Self> {
        const LARGEST: u64 = 1 << 32;
        if LARGEST < bytes_per_token {
            let (max, value) = (LARGEST.into(), bytes_per_token.into());
            return Err(SimError::TooLarge { input: "KV bytes per token", max, value });
        }
        let bits = u128::from(bytes_per_token) * 8 * Ticks::SECOND.0;
        let bandwidth = u128::from(bits_per_second);
        let Some(per_token) = (bits + bandwidth / 2).checked_div(bandwidth) else {
            return Err(SimError::TooSmall { input: "KV bandwidth in bit/s", min: 1, value: 0 });
        };
        Self::new(Ticks(per_token), latency)
    }

    /// How long the KV of one token takes.
    #[must_use]
    pub const fn per_token(&self) -> Ticks {
        self.per_token
    }

    /// What every transfer takes, however little it moves.
    #[must_use]
    pub const fn latency(&self) -> Ticks {
        self.latency
    }

    /// How long the KV of a prompt of so many tokens takes.
    #[must_use]
    pub fn time(&self, tokens: u64) -> Ticks {
        self.latency.after(Ticks(self.per_token.0 * u128::from(tokens)))
    }
}

impl std::fmt::Display for KvTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = format!("{}/token", self.per_token.compact());
        if self.latency != Ticks::ZERO {
            text.push_str(&format!(" and {}", self.latency.compact()));
        }
        f.pad(&text)
    }
}

/// A prefill pool and a decode pool, each one server or a fleet.
///
/// It counts servers through: those of the prefill pool first. The prefill pool sees a request as
/// one whose answer is a single token, and the decode pool as one that arrives with
/// [`Job::made_tokens`]; each refuses by its own limits. A request in transfer counts as queued.
///
/// # Examples
///
/// ```
/// use sched_sim::server::{Job, Over, Server};
/// use sched_sim::{Affine, Disaggregated, KvTransfer, Replica, Sarathi, Ticks};
///
/// let step_time: Affine = "base=1ms,prefill=10us/token".parse()?;
/// let pool = || Ok::<_, sched_sim::SimError>(Replica::new(Sarathi::new(8, 512)?, step_time));
/// let transfer = KvTransfer::new("5us".parse()?, Ticks::ZERO)?;
/// let mut server = Disaggregated::new(pool()?, pool()?, transfer);
/// server.submit(Job::new(0, Ticks::ZERO, 100, 3))?;
/// server.finish(&mut ())?;
/// let mut over: Vec<Over> = Vec::new();
/// server.take_over(&mut over);
/// // The prompt and the first token take 2 ms, the transfer 0.5 ms, two more tokens 1 ms each.
/// assert_eq!(over[0].progress.record.first_token(), Some("2ms".parse()?));
/// assert_eq!(over[0].at, "4.5ms".parse()?);
/// # Ok::<(), sched_sim::SimError>(())
/// ```
pub struct Disaggregated<P, D> {
    prefill: P,
    decode: D,
    transfer: KvTransfer,
    /// Servers of the prefill pool.
    prefill_servers: usize,
    /// Everybody who was submitted and is not over.
    inside: BTreeMap<u64, Inside>,
    /// Who is on the way, by the instant at which its KV is all there.
    on_the_way: BTreeSet<(Ticks, u64)>,
    at: Ticks,
    over: Vec<Over>,
    scratch: Vec<Over>,
    totals: Totals,
}

/// A request that is not over.
struct Inside {
    job: Job,
    /// How far it came in the prefill pool, once it has left that.
    first: Option<Box<Progress>>,
}

impl Inside {
    /// When its transfer began, if it has not reached the decode pool.
    fn sent(&self) -> Option<Ticks> {
        let transfer = self.first.as_deref()?.transfer.as_deref()?;
        transfer.to.is_none().then_some(transfer.from)
    }
}

/// What is counted beside the pools.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    requests: u64,
    start: Ticks,
    /// Requests that the prefill pool answered in full.
    completed: u64,
    /// Requests whose client left between the pools, and when the last of them did.
    cancelled: u64,
    timed_out: u64,
    left: Ticks,
    /// Σ time on the way, of those who are there or left.
    transfer_time: u128,
}

/// The servers of one pool, with their numbers among all.
struct Numbered<'a>(&'a mut dyn Observer, usize);

impl<'a> Numbered<'a> {
    fn new(observer: &'a mut dyn Observer, first: usize) -> Self {
        observer.server(first);
        Self(observer, first)
    }
}

impl Observer for Numbered<'_> {
    fn server(&mut self, server: usize) {
        self.0.server(self.1 + server);
    }

    fn stretch(&mut self, stretch: &Stretch) {
        self.0.stretch(stretch);
    }

    fn is_watching(&self) -> bool {
        self.0.is_watching()
    }

    fn counts_gaps(&self) -> bool {
        self.0.counts_gaps()
    }

    fn idle(&mut self, from: Ticks, to: Ticks) {
        self.0.idle(from, to);
    }

    fn gaps(&mut self, runs: &[GapRun]) {
        self.0.gaps(runs);
    }
}

impl<P: Server, D: Server> Disaggregated<P, D> {
    /// Two idle pools.
    #[must_use]
    pub fn new(prefill: P, decode: D, transfer: KvTransfer) -> Self {
        Self {
            prefill_servers: prefill.each().len(),
            prefill,
            decode,
            transfer,
            inside: BTreeMap::new(),
            on_the_way: BTreeSet::new(),
            at: Ticks::ZERO,
            over: Vec::new(),
            scratch: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// The pool that computes prompts.
    #[must_use]
    pub const fn prefill(&self) -> &P {
        &self.prefill
    }

    /// The pool that makes answers.
    #[must_use]
    pub const fn decode(&self) -> &D {
        &self.decode
    }

    /// Takes in who has left the prefill pool, and sends on who has tokens left to make.
    fn collect_prefill(&mut self) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.prefill.take_over(&mut scratch);
        for mut over in scratch.drain(..) {
            let id = over.progress.id;
            let completed = over.ending == Ending::Completed;
            let Some(inside) = self.inside.get_mut(&id) else { continue };
            if !completed || inside.job.output_tokens == 1 {
                self.totals.completed += u64::from(completed);
                self.inside.remove(&id);
                self.over.push(over);
                continue;
            }
            over.progress.record.last_token = RequestRecord::NEW.last_token;
            if let Some((_, why)) = inside.job.departure().filter(|(at, _)| *at <= over.at) {
                self.leave((id, over.server), over.progress, over.at, why);
                continue;
            }
            let to = over.at.after(self.transfer.time(inside.job.input_tokens));
            if Ticks::LONGEST_RUN < to {
                return Err(SimError::RunTooLong);
            }
            over.progress.transfer = Some(Box::new(Transfer {
                from_server: over.server,
                from: over.at,
                to: None,
                admitted: None,
            }));
            inside.first = Some(Box::new(over.progress));
            self.on_the_way.insert((to, id));
        }
        self.scratch = scratch;
        Ok(())
    }

    /// The client of a request leaves between the pools; `server` had it last.
    fn leave(&mut self, (id, server): (u64, usize), progress: Progress, at: Ticks, why: Leave) {
        match why {
            Leave::Cancel => self.totals.cancelled += 1,
            Leave::Timeout => self.totals.timed_out += 1,
        }
        self.totals.left = self.totals.left.max(at);
        if let Some(transfer) = &progress.transfer {
            self.totals.transfer_time += at.0 - transfer.from.0;
        }
        self.inside.remove(&id);
        self.over.push(Over { server, ..Over::new(progress, at, why.ending()) });
    }

    /// Lets go whoever on the way has left by `time` and before its KV is there.
    fn take_departures(&mut self, time: Ticks) {
        let leaving = self.on_the_way.iter().filter_map(|&(to, id)| {
            let (at, why) = self.inside.get(&id)?.job.departure()?;
            (at <= time && at < to).then_some((to, id, at, why))
        });
        for (to, id, at, why) in leaving.collect::<Vec<_>>() {
            self.on_the_way.remove(&(to, id));
            let first = self.inside.get_mut(&id).and_then(|inside| inside.first.take());
            if let Some(first) = first
                && let Some(&Transfer { from, from_server, .. }) = first.transfer.as_deref()
            {
                self.leave((id, from_server), *first, at.max(from), why);
            }
        }
    }

    /// Submits to the decode pool who is there before `time`, or by it.
    fn deliver(&mut self, time: Option<Ticks>, at_it: bool) -> Result<()> {
        self.take_departures(time.unwrap_or(Ticks::LONGEST_RUN));
        while let Some(&(to, id)) = self.on_the_way.first()
            && time.is_none_or(|time| to < time || (at_it && to == time))
        {
            self.on_the_way.remove(&(to, id));
            let Some(inside) = self.inside.get_mut(&id) else { continue };
            if let Some(transfer) = inside.first.as_mut().and_then(|f| f.transfer.as_mut()) {
                transfer.to = Some(to);
                self.totals.transfer_time += to.0 - transfer.from.0;
            }
            let first = inside.first.as_deref().and_then(|f| f.record.first_token());
            let job = Job { arrival: to, made_tokens: 1, made_at: first, ..inside.job.clone() };
            self.decode.submit(job)?;
        }
        Ok(())
    }

    /// Takes in who has left the decode pool.
    fn collect_decode(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.decode.take_over(&mut scratch);
        for over in scratch.drain(..) {
            let first = self.inside.remove(&over.progress.id).and_then(|inside| inside.first);
            let progress = match first {
                Some(first) => whole(*first, over.progress),
                None => over.progress,
            };
            let server = self.prefill_servers + over.server;
            let progress = self.in_decode_pool(progress);
            self.over.push(Over { progress, server, ..over });
        }
        self.scratch = scratch;
    }

    /// The same with its server counted among all.
    fn in_decode_pool(&self, mut progress: Progress) -> Progress {
        progress.server = progress.server.map(|server| self.prefill_servers + server);
        progress
    }

    /// Requests that are on the way, and the sum of the times since their transfer began; as the
    /// decode pool sees it, somebody whom it was told of and has not let in is still on the way.
    fn open_transfers(&self, end: Ticks) -> (u64, u128) {
        let known: BTreeSet<u64> = self.decode.inside().iter().map(|p| p.id).collect();
        let sent = self.inside.iter().filter(|(id, _)| !known.contains(id));
        let mut open = (0, 0);
        for transfer in sent.filter_map(|(_, inside)| inside.first.as_deref()?.transfer.as_deref())
        {
            open.0 += 1;
            // Up to its arrival it is counted already.
            let from = transfer.to.unwrap_or(transfer.from);
            open.1 += end.0.saturating_sub(from.0);
        }
        open
    }
}

/// A request as a whole, from its parts in the two pools.
fn whole(first: Progress, second: Progress) -> Progress {
    let mut whole = first;
    if let Some(transfer) = &mut whole.transfer {
        transfer.admitted = second.record.scheduled();
    }
    whole.record.last_token = second.record.last_token;
    whole.server = second.server;
    whole.prefilled = second.prefilled;
    whole.output_tokens = second.output_tokens;
    whole.stalls.extend(second.stalls);
    whole.held.extend(second.held);
    whole
}

impl<P: Server, D: Server> Server for Disaggregated<P, D> {
    fn submit(&mut self, job: Job) -> Result<()> {
        job.check()?;
        if job.made_tokens > 0 {
            let (input, value) = ("made_tokens", job.made_tokens);
            return Err(SimError::RequestTokens {
                input,
                id: job.id.into(),
                min: 0,
                max: 0,
                value,
            });
        }
        self.prefill.submit(Job { output_tokens: 1, ..job.clone() })?;
        if self.totals.requests == 0 {
            self.totals.start = job.arrival;
        }
        self.totals.requests += 1;
        self.inside.insert(job.id, Inside { job, first: None });
        Ok(())
    }

    fn advance_to(&mut self, time: Ticks, observer: &mut dyn Observer) -> Result<Option<RunEnd>> {
        // Nothing goes from the decode pool back to the prefill pool, so that one can run ahead.
        let end = self.prefill.advance_to(time, &mut Numbered::new(observer, 0))?;
        self.at = self.at.max(time);
        self.collect_prefill()?;
        self.deliver(Some(time), false)?;
        let pool = &mut Numbered::new(observer, self.prefill_servers);
        let decode_end = self.decode.advance_to(time, pool)?;
        self.collect_decode();
        Ok(end.or(decode_end))
    }

    fn finish(&mut self, observer: &mut dyn Observer) -> Result<RunEnd> {
        let end = self.prefill.finish(&mut Numbered::new(observer, 0))?;
        self.collect_prefill()?;
        // Of a run that was stopped, nobody is let on after that.
        let until = end.is_truncated().then(|| self.prefill.statistics().end);
        self.deliver(until, true)?;
        let pool = &mut Numbered::new(observer, self.prefill_servers);
        let decode_end = self.decode.finish(pool)?;
        self.collect_decode();
        Ok(if end.is_truncated() { end } else { decode_end })
    }

    fn next_visible(&mut self, observer: &mut dyn Observer) -> Result<Option<Ticks>> {
        let prefill = self.prefill.next_visible(&mut Numbered::new(observer, 0))?;
        self.collect_prefill()?;
        if prefill.is_some_and(|next| next <= self.at) {
            return Ok(prefill);
        }
        self.deliver(Some(self.at), true)?;
        let pool = &mut Numbered::new(observer, self.prefill_servers);
        let decode = self.decode.next_visible(pool)?;
        self.collect_decode();
        let on_the_way = self.on_the_way.iter().map(|&(to, id)| {
            let departure = self.inside.get(&id).and_then(|inside| inside.job.departure());
            departure.map_or(to, |(at, _)| at.min(to))
        });
        Ok([prefill, decode].into_iter().flatten().chain(on_the_way).min())
    }

    fn cancel(&mut self, id: u64) {
        let Some(inside) = self.inside.get_mut(&id) else { return };
        inside.job.cancel_at = Some(inside.job.cancel_at.map_or(self.at, |at| at.min(self.at)));
        if inside.first.is_none() {
            self.prefill.cancel(id);
        } else if inside.sent().is_none() {
            self.decode.cancel(id);
        }
    }

    fn load(&self) -> ServerLoad {
        let (prefill, decode) = (self.prefill.load(), self.decode.load());
        let blocks = [prefill.kv_blocks, decode.kv_blocks].into_iter().flatten();
        let mut sum = ServerLoad {
            waiting: prefill.waiting + decode.waiting + self.on_the_way.len() as u64,
            running: prefill.running + decode.running,
            outstanding_tokens: prefill.outstanding_tokens + decode.outstanding_tokens,
            kv_used: prefill.kv_used + decode.kv_used,
            kv_cached: prefill.kv_cached + decode.kv_cached,
            kv_blocks: blocks.reduce(|a, b| a + b),
        };
        // The decode pool does not know of those who have not reached it.
        let coming = self.inside.values().filter(|inside| {
            inside.job.arrival <= self.at && (inside.first.is_none() || inside.sent().is_some())
        });
        sum.outstanding_tokens += coming.map(|inside| inside.job.output_tokens - 1).sum::<u64>();
        sum
    }

    fn take_over(&mut self, into: &mut Vec<Over>) {
        self.over.sort_by_key(|o| (o.at, o.progress.id));
        into.append(&mut self.over);
    }

    fn inside(&self) -> Vec<Progress> {
        let mut list = self.prefill.inside();
        let mut decode = self.decode.inside().into_iter().peekable();
        for (id, inside) in &self.inside {
            let Some(first) = inside.first.as_deref().cloned() else { continue };
            list.push(match decode.next_if(|p| p.id == *id) {
                Some(second) => self.in_decode_pool(whole(first, second)),
                None => first,
            });
        }
        list.sort_unstable_by_key(|p| p.id);
        list
    }

    fn each(&self) -> Vec<RunStatistics> {
        let whole = self.statistics();
        let both = self.prefill.each().into_iter().chain(self.decode.each());
        both.map(|server| server.as_part_of(&whole)).collect()
    }

    fn statistics(&self) -> RunStatistics {
        let (prefill, decode) = (self.prefill.statistics(), self.decode.statistics());
        let t = &self.totals;
        let mut sum = RunStatistics::of_fleet([prefill, decode].into_iter());
        sum.requests = t.requests;
        sum.start = t.start;
        sum.end = sum.end.max(t.start).max(t.left);
        sum.injected = prefill.injected;
        sum.completed = t.completed + decode.completed;
        sum.cancelled += t.cancelled;
        sum.timed_out += t.timed_out;
        let (open, open_time) = self.open_transfers(sum.end);
        sum.queued += open;
        sum.in_system_time += t.transfer_time + open_time;
        sum.sojourn_time += t.transfer_time + open_time;
        sum
    }
}
