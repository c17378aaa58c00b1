//! Random runs, and policies that use the operations one by one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses its part")]

use proptest::prelude::*;
use sched_sim::fleet::{Fleet, RouterKind};
use sched_sim::history::Blocks;
use sched_sim::ledger::{Account, Ledger, Steps};
use sched_sim::server::{Books, Job, Over, Server, run_stream};
use sched_sim::{
    AdmissionRule, Affine, BatchHistory, Coefficients, DecodeFirst, GapRun, Horizon,
    InterTokenLatency, KvPool, KvTransfer, Observer, Orca, Order, Policy, Preemption, PrefillFirst,
    PromptContent, Replica, Result, RunEnd, RunLimits, RunResult, RunStatistics, Sarathi,
    ServerSettings, SgLang, Simulation, Stage, StaticBatch, Step, StepTime, Stretch, Ticks,
    TokenBucket, Workload, WorkloadRequest,
};

/// Arrivals in bursts, with ties, short gaps and long idle ones; prompts and answers tiny or long.
pub fn workload() -> impl Strategy<Value = Workload> {
    let gap = prop_oneof![
        4 => Just(0_u64),
        4 => 1_u64..50_000_000,
        2 => 50_000_000_u64..3_000_000_000,
        1 => 3_000_000_000_u64..100_000_000_000,
    ];
    let input = prop_oneof![3 => 1_u64..10, 3 => 1_u64..400, 1 => 400_u64..20_000];
    let output = prop_oneof![2 => Just(1_u64), 3 => 1_u64..8, 3 => 1_u64..200, 1 => 200_u64..3000];
    prop::collection::vec((gap, input, output), 1..40).prop_map(|rows| {
        let mut now = 0;
        let requests = rows.into_iter().enumerate().map(|(i, (gap, input, output))| {
            now += gap;
            WorkloadRequest::new(i as u64, Ticks::from_nanoseconds(now), input, output)
        });
        Workload::new(requests.collect()).unwrap()
    })
}

/// The same requests with tokens that others have as well: each begins with one of a few system
/// prompts, or with the prompt and the answer of one before it.
pub fn shared_workload() -> impl Strategy<Value = Workload> {
    let choice = (0_u64..6, prop_oneof![0_u64..40, 40_u64..2000], any::<bool>());
    (workload(), prop::collection::vec(choice, 40)).prop_map(|(workload, choices)| {
        let mut requests = workload.requests().to_vec();
        let mut conversations: Vec<Vec<(u64, u64)>> = Vec::new();
        for ((i, r), &(which, tokens, turn)) in requests.iter_mut().enumerate().zip(&choices) {
            let before = i.checked_sub(1 + usize::try_from(which).unwrap());
            let begins = match before.and_then(|before| conversations.get(before)) {
                Some(conversation) if turn => conversation.clone(),
                _ => vec![(which % 3, tokens)],
            };
            let (mut left, mut prompt) = (r.input_tokens, Vec::new());
            for (segment, tokens) in begins {
                prompt.push((segment, tokens.min(left)));
                left -= tokens.min(left);
            }
            prompt.push((100 + i as u64, left));
            let mut content = PromptContent::new(prompt.clone());
            content.answer = Some(1000 + i as u64);
            r.content = Some(Box::new(content));
            prompt.push((1000 + i as u64, r.output_tokens));
            conversations.push(prompt);
        }
        Workload::new(requests).unwrap()
    })
}

/// The source's linear form, and affine ones with and without an attention term; some are zero.
pub fn step_time() -> impl Strategy<Value = Affine> {
    let coefficient = |max: u128| prop_oneof![1 => Just(0), 4 => 0..max];
    let ms = 1_000_000_000_000_000_u128;
    prop_oneof![
        (0..ms / 5, 0..10 * ms).prop_map(|(p, d)| {
            Affine::linear(Ticks::from_attoseconds(p), Ticks::from_attoseconds(d)).unwrap()
        }),
        (
            coefficient(20 * ms),
            coefficient(ms / 10),
            coefficient(ms),
            coefficient(ms / 1000),
            coefficient(1_000_000_000)
        )
            .prop_map(|(base, prefill, decode, context, attention)| {
                let t = Ticks::from_attoseconds;
                Affine::new(Coefficients {
                    base: t(base),
                    prefill: t(prefill),
                    decode: t(decode),
                    context: t(context),
                    attention: t(attention / 2 * 2),
                })
                .unwrap()
            }),
    ]
}

pub fn decode_first() -> impl Strategy<Value = DecodeFirst> {
    let batch = prop_oneof![3 => 1_u64..6, 2 => 1_u64..64];
    let chunk = prop_oneof![1 => Just(1_u64), 3 => 1_u64..64, 3 => 64_u64..30_000];
    (batch, chunk).prop_map(|(b, c)| DecodeFirst::new(b, c).unwrap())
}

pub fn limits() -> impl Strategy<Value = RunLimits> {
    let max_steps = prop_oneof![3 => Just(None), 1 => (0_u64..300).prop_map(Some)];
    let until = prop_oneof![
        3 => Just(None),
        1 => (0_u64..20_000_000_000).prop_map(|ns| Some(Ticks::from_nanoseconds(ns)))
    ];
    (max_steps, until).prop_map(|(max_steps, until)| RunLimits { max_steps, until })
}

/// Both engines must agree on everything; returns what they agree on.
pub fn both<'w, P: Policy + Clone, T: StepTime + Clone>(
    workload: &'w Workload,
    policy: &P,
    step_time: &T,
    limits: RunLimits,
) -> Result<(RunResult<'w>, BatchHistory), TestCaseError> {
    let run = || Simulation::new(workload, policy.clone(), step_time.clone()).limits(limits);
    let (mut fast_history, mut plain_history) = Default::default();
    let fast = run().run_observed(&mut fast_history).unwrap();
    let plain = run().run_reference_observed(&mut plain_history).unwrap();
    prop_assert_eq!(&fast, &plain);
    let (fast_history, fast_gaps): (BatchHistory, Gaps) = fast_history;
    let (plain_history, plain_gaps): (BatchHistory, Gaps) = plain_history;
    prop_assert_eq!(&fast_history, &plain_history);
    fast_gaps.check(&plain_gaps, fast.statistics(), &tokens_of(&fast))?;
    Ok((fast, fast_history))
}

/// Every gap between two tokens one by one, and as they are counted.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    each: Vec<u128>,
    counted: InterTokenLatency,
}

impl Observer for Gaps {
    fn gaps(&mut self, runs: &[GapRun]) {
        for run in runs {
            for j in 0..run.steps {
                let gap = run.first.attoseconds().cast_signed() + run.growth * i128::from(j);
                let many = usize::try_from(run.requests).unwrap();
                self.each.extend(std::iter::repeat_n(gap.cast_unsigned(), many));
            }
        }
        self.counted.gaps(runs);
    }
}

impl Gaps {
    /// That they are those of `plain`, one for each token but the first of an answer (`tokens`:
    /// those made of each answer), and that counting them loses nothing.
    pub fn check(
        &self,
        plain: &Self,
        s: &RunStatistics,
        tokens: &[u64],
    ) -> Result<(), TestCaseError> {
        let sorted = |gaps: &Self| {
            let mut each = gaps.each.clone();
            each.sort_unstable();
            each
        };
        let each = sorted(self);
        prop_assert_eq!(&each, &sorted(plain));
        let n = each.len() as u64;
        prop_assert_eq!(n, tokens.iter().map(|t| t.saturating_sub(1)).sum::<u64>());
        prop_assert!(s.requests == 0 || tokens.len() as u64 <= s.requests);
        prop_assert_eq!(self.counted.n(), n);
        prop_assert_eq!(self.counted.total().attoseconds(), each.iter().sum::<u128>());
        prop_assert_eq!(self.counted.max().map(Ticks::attoseconds), each.last().copied());
        let places: Vec<u64> = (0..=10).map(|i| i * n.saturating_sub(1) / 10).collect();
        let found = self.counted.in_order(&places);
        for (place, gap) in places.iter().zip(found).take(if n == 0 { 0 } else { 11 }) {
            prop_assert_eq!(gap.attoseconds(), each[usize::try_from(*place).unwrap()]);
        }
        Ok(())
    }

    /// All of them together.
    pub fn total(&self) -> u128 {
        self.each.iter().sum()
    }
}

/// Tokens made of each answer of a run.
pub fn tokens_of(result: &RunResult<'_>) -> Vec<u64> {
    result.timelines().unwrap().iter().map(|t| t.output_tokens().unwrap_or(0)).collect()
}

/// The KV blocks of a run: at which step, counted from 0, how many there were.
#[derive(Default)]
pub struct BlockLog {
    steps: u64,
    /// Which step it was, the tokens that the batch held after it, and the blocks while it ran.
    ends: Vec<(u64, u64, Option<Blocks>)>,
}

impl Observer for BlockLog {
    fn stretch(&mut self, s: &Stretch) {
        let held = |steps| s.held_tokens + steps * (s.work.prefill_tokens + s.work.decodes);
        self.ends.push((self.steps, held(1), s.blocks.map(|ends| ends[0])));
        self.steps += s.steps;
        self.ends.push((self.steps - 1, held(s.steps), s.blocks.map(|ends| ends[1])));
    }
}

impl BlockLog {
    /// Whether the blocks of these stretches are those that `plain` has step by step.
    pub fn agrees_with(&self, plain: &Self) -> bool {
        let step = |n: u64| plain.ends.get(usize::try_from(2 * n).unwrap());
        self.steps == plain.steps && self.ends.iter().all(|end| step(end.0) == Some(end))
    }

    /// Whether all tokens that are said to be held fit into the blocks in use, of so many tokens.
    pub fn has_room_for_what_is_held(&self, block_size: u64) -> bool {
        let mut all = self.ends.iter();
        all.all(|(_, held, blocks)| blocks.is_none_or(|b| *held <= b.used * block_size))
    }
}

/// Sends a workload to a server as its requests arrive, advancing it to each arrival before it is
/// submitted, and if it `peeks` from one visible instant to the next in between.
pub fn driven(
    workload: &Workload,
    mut server: impl Server,
    hits: bool,
    peeks: bool,
) -> Result<RunResult<'_>, TestCaseError> {
    let mut books = Books::new(workload, hits);
    let mut over = Vec::new();
    let mut arrivals = workload.requests().iter().enumerate().peekable();
    while let Some(&(_, next)) = arrivals.peek() {
        server.advance_to(next.arrival, &mut ()).unwrap();
        let mut now = next.arrival;
        while let Some((position, r)) = arrivals.next_if(|(_, r)| r.arrival == now) {
            server.submit(Job::of(position, r)).unwrap();
        }
        let until = arrivals.peek().map(|(_, r)| r.arrival);
        while peeks
            && let Some(visible) = server.next_visible(&mut ()).unwrap()
            && until.is_none_or(|until| visible < until)
        {
            prop_assert!(now <= visible, "{now} {visible}");
            server.take_over(&mut over);
            prop_assert!(over.iter().all(|o| o.at <= now), "nobody is over in the future");
            over.drain(..).for_each(|o| books.take(&o));
            server.advance_to(visible, &mut ()).unwrap();
            now = visible;
        }
    }
    let end = server.finish(&mut ()).unwrap();
    server.take_over(&mut over);
    for o in over {
        books.take(&o);
    }
    Ok(books.close(&server, end))
}

/// The requests of a workload as they arrive, whose clients wait so long.
pub fn jobs(workload: &Workload, patience: Option<Ticks>) -> impl Iterator<Item = Job> {
    workload.requests().iter().enumerate().map(move |(position, r)| {
        let mut job = Job::of(position, r);
        job.timeout_at = patience.map(|p| r.arrival.after(p));
        job
    })
}

/// Runs a server; who is over in order of their numbers, and the totals.
pub fn served(
    mut server: impl Server,
    jobs: impl Iterator<Item = Job>,
) -> (RunEnd, Vec<Over>, RunStatistics) {
    let mut over = Vec::new();
    let end = run_stream(&mut server, jobs, &mut (), |o| over.push(o.clone())).unwrap();
    over.sort_by_key(|o| o.progress.id);
    let s = server.statistics();
    assert!(server.inside().is_empty() || end.is_truncated());
    (end, over, s)
}

/// Runs a workload on a server; the result, and what its steps were.
pub fn booked(workload: &Workload, mut server: impl Server) -> (Steps, RunResult<'_>) {
    let (mut steps, mut books) = (Steps::default(), Books::new(workload, false));
    let jobs = jobs(workload, None);
    let end = run_stream(&mut server, jobs, &mut steps, |over| books.take(over)).unwrap();
    (steps, books.close(&server, end))
}

/// The accounts of E2E in milliseconds that are not zero, one line for each request.
pub fn lines(ledger: &Ledger, workload: &Workload) -> String {
    let mut lines = Vec::new();
    for (row, r) in ledger.rows().iter().zip(workload.requests()) {
        let accounts = Account::ALL.into_iter().filter(|a| row.e2e.attoseconds(*a) != 0);
        let parts: Vec<String> =
            accounts.map(|a| format!("{} {:.1}", a.id(), 1e3 * row.e2e.seconds(a))).collect();
        lines.push(format!("{}: {}", r.id, parts.join(", ")));
    }
    lines.join("\n")
}

/// A fleet as one of two pools.
#[derive(Clone, Debug)]
pub struct Pool {
    pub servers: usize,
    pub router: RouterKind,
    pub policy: (usize, u64, u64),
    pub settings: ServerSettings,
}

impl Pool {
    /// Its servers, skipping or plain.
    pub fn fleet<T: StepTime + Clone>(
        &self,
        step_time: T,
        limits: RunLimits,
        reference: bool,
    ) -> Fleet<Replica<Box<dyn Policy>, T>> {
        let new = if reference { Replica::reference } else { Replica::new };
        let central = self.router == RouterKind::CentralQueue;
        let one = |_| {
            let replica = new(make(self.policy), step_time.clone());
            replica.settings(self.settings.behind(central)).limits(limits)
        };
        let fleet = Fleet::new((0..self.servers).map(one).collect(), self.router, 7).unwrap();
        fleet.gateway(&self.settings.in_front(central))
    }
}

/// One to three servers under any policy, memory and router.
pub fn pool() -> impl Strategy<Value = Pool> {
    let router = prop::sample::select(RouterKind::ALL.to_vec());
    (1_usize..4, router, policy(), settings())
        .prop_map(|(servers, router, policy, settings)| Pool { servers, router, policy, settings })
}

/// Transfers that take no time, some or more than all else.
pub fn transfer() -> impl Strategy<Value = KvTransfer> {
    let per_token = prop_oneof![2 => Just(0_u64), 3 => 1_u64..5000, 1 => 5000_u64..2_000_000];
    let latency = prop_oneof![2 => Just(0_u64), 2 => 1_u64..5_000_000_000];
    (per_token, latency).prop_map(|(per_token, latency)| {
        let ns = Ticks::from_nanoseconds;
        KvTransfer::new(ns(per_token), ns(latency)).unwrap()
    })
}

/// Decode first again, said with the operations on single requests and without a horizon.
#[derive(Clone, Debug)]
pub struct OneByOne(pub DecodeFirst);

impl Policy for OneByOne {
    fn name(&self) -> &'static str {
        "one-by-one"
    }

    fn max_num_seqs(&self) -> u64 {
        self.0.max_num_seqs()
    }

    fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
        let mut prompts = Vec::new();
        let mut at = None;
        while let Some(p) = step.running_after(at) {
            match step.stage(p) {
                Some(Stage::Decode) => step.decode(p)?,
                _ => prompts.push(p),
            }
            at = Some(p);
        }
        for p in prompts {
            let left = step.prompt_left(p).unwrap();
            step.prefill(p, left.min(self.0.chunk()))?;
        }
        while step.running() < self.max_num_seqs()
            && let Some(w) = step.next_waiting()
        {
            step.admit(w.input_tokens.min(self.0.chunk()))?;
        }
        Ok(())
    }
}

/// A token budget shared in order of admission, where decodes may starve, the last prefill step
/// gives the first token, and the horizon is claimed as far as it is true.
#[derive(Clone, Debug)]
pub struct Budget {
    pub max_num_seqs: u64,
    pub tokens: u64,
}

impl Policy for Budget {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn max_num_seqs(&self) -> u64 {
        self.max_num_seqs
    }

    fn prefill_emits_first_token(&self) -> bool {
        true
    }

    fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
        let mut left = self.tokens;
        let mut at = None;
        while 0 < left
            && let Some(p) = step.running_after(at)
        {
            if step.stage(p) == Some(Stage::Decode) {
                step.decode(p)?;
                left -= 1;
            } else {
                let tokens = step.prompt_left(p).unwrap().min(left);
                step.prefill(p, tokens)?;
                left -= tokens;
            }
            at = Some(p);
        }
        while 0 < left
            && step.running() < self.max_num_seqs
            && let Some(w) = step.next_waiting()
        {
            let tokens = w.input_tokens.min(left);
            step.admit(tokens)?;
            left -= tokens;
        }
        Ok(())
    }

    fn horizon(&self, step: &Step<'_>) -> Horizon {
        let used = step.work().prefill_tokens + step.work().decodes;
        if used == self.tokens || step.running() == self.max_num_seqs {
            Horizon::UNTIL_CHANGE
        } else {
            Horizon::UNTIL_ARRIVAL
        }
    }
}

/// Changes its chunk from step to step and leaves decodes or prompts out now and then.
#[derive(Clone, Debug)]
pub struct Moody {
    pub max_num_seqs: u64,
    pub chunks: Vec<u64>,
    pub emits: bool,
    pub step: usize,
}

impl Policy for Moody {
    fn name(&self) -> &'static str {
        "moody"
    }

    fn max_num_seqs(&self) -> u64 {
        self.max_num_seqs
    }

    fn prefill_emits_first_token(&self) -> bool {
        self.emits
    }

    fn fill(&mut self, step: &mut Step<'_>) -> Result<()> {
        let mood = self.chunks[self.step % self.chunks.len()];
        self.step += 1;
        if !mood.is_multiple_of(3) {
            step.decode_all()?;
        } else if let Some(p) = step.running_after(None)
            && step.stage(p) == Some(Stage::Decode)
        {
            step.decode(p)?;
        }
        if mood.is_multiple_of(2) {
            step.prefill_all(mood + 1)?;
        } else if let Some(p) = step.running_after(None)
            && step.stage(p) == Some(Stage::Prefill)
        {
            step.prefill(p, step.prompt_left(p).unwrap().min(mood))?;
        }
        if !mood.is_multiple_of(5)
            && step.running() < self.max_num_seqs
            && let Some(w) = step.next_waiting()
        {
            step.admit(w.input_tokens.min(mood))?;
        }
        if step.work().is_empty() {
            // Serving nobody while somebody could be would end the run as stalled.
            step.decode_all()?;
            if step.work().is_empty() {
                step.prefill_all(1)?;
            }
            if step.work().is_empty() && step.next_waiting().is_some() {
                step.admit(1)?;
            }
        }
        Ok(())
    }
}

/// One of the policies, with limits from tight to plenty.
pub fn policy() -> impl Strategy<Value = (usize, u64, u64)> {
    let seqs = prop_oneof![3 => 1_u64..6, 2 => 6_u64..64];
    let tokens = prop_oneof![1 => 1_u64..4, 3 => 4_u64..300, 2 => 300_u64..30_000];
    (0_usize..9, seqs, tokens)
}

/// KV of a token moves for a microsecond.
const SWAP: Preemption = Preemption::Swap { per_token: Ticks::from_nanoseconds(1000) };

/// The policy with these limits.
pub fn make((kind, seqs, tokens): (usize, u64, u64)) -> Box<dyn Policy> {
    match kind {
        0 => Box::new(DecodeFirst::new(seqs, tokens).unwrap()),
        1 => Box::new(PrefillFirst::new(seqs, tokens).unwrap()),
        2 => Box::new(Sarathi::new(seqs, tokens).unwrap()),
        3 => Box::new(Orca::new(seqs).unwrap()),
        4 => Box::new(StaticBatch::new(seqs).unwrap()),
        6 => Box::new(PrefillFirst::new(seqs, tokens).unwrap().with_preemption(SWAP).unwrap()),
        7 => Box::new(Sarathi::new(seqs, tokens).unwrap().with_preemption(SWAP).unwrap()),
        8 => Box::new(SgLang::new(seqs, tokens).unwrap().without_radix_cache()),
        _ => Box::new(SgLang::new(seqs, tokens).unwrap()),
    }
}

/// No bound, or a pool from a few requests to many; blocks from a token to a page.
pub fn settings() -> impl Strategy<Value = ServerSettings> {
    let order = prop_oneof![
        2 => Just(Order::Fcfs),
        1 => Just(Order::ShortestJob),
        1 => Just(Order::Priority)
    ];
    let size = prop_oneof![Just(1_u64), Just(4), Just(16), Just(17), Just(256)];
    let tokens = prop_oneof![2 => 20_u64..600, 2 => 600_u64..5000, 1 => 5000_u64..100_000];
    let kv = prop_oneof![
        1 => Just(None),
        4 => (size, tokens).prop_map(|(size, tokens)| {
            Some(KvPool::new(tokens.div_ceil(size), size).unwrap())
        }),
    ];
    let waiting = prop_oneof![3 => Just(None), 1 => (0_u64..8).prop_map(Some)];
    let tokens = prop_oneof![3 => Just(None), 1 => (0_u64..2000).prop_map(Some)];
    let ms = |range| (range, 0_u64..1).prop_map(|(ms, _)| Ticks::from_nanoseconds(ms * 1_000_000));
    let rule = (1_u64..10, 0.0_f64..=1.0, ms(1_u64..5000), ms(1_u64..60_000))
        .prop_map(|(queue, kv, slo, window)| AdmissionRule::new(queue, kv, slo, window).unwrap());
    let bucket = (ms(1_u64..3000), 1_u64..5).prop_map(|(t, n)| TokenBucket::new(t, n).unwrap());
    let doors = (prop::option::weighted(0.15, rule), prop::option::weighted(0.15, bucket));
    (order, kv, waiting, tokens, doors).prop_map(|(order, kv, waiting, tokens, doors)| {
        let mut settings = ServerSettings::default();
        settings.order = order;
        settings.kv = kv;
        settings.max_waiting = waiting;
        settings.max_waiting_tokens = tokens;
        (settings.rule, settings.bucket) = doors;
        settings
    })
}
