//! The engine that skips against the plain one: any requests under any policy, and under plans that
//! ask for any operation, sound or not. Both give the same, or refuse with the same words; nobody is
//! lost, and no block.
#![no_main]

use arbitrary::Arbitrary;
use sched_sim::server::{Job, Over, Server, run_stream};
use sched_sim::{
    Affine, BatchHistory, Coefficients, KvPool, Order, Policy, Preemption, PromptContent, Replica,
    RunEnd, RunLimits, RunStatistics, ServerSettings, Step, StepWork, Ticks,
};
use serving_io::policy::{NAMES, ServerOptions, may_swap, named};

/// Most steps of a run: plans may serve nobody for long.
const STEPS: u64 = 3_000;

#[derive(Arbitrary, Debug)]
struct Request {
    gap_us: u16,
    idle: bool,
    input: u16,
    output: u8,
    priority: i8,
    /// Which prompt it begins with, and for how many tokens.
    shares: Option<(u8, u16)>,
    cancel_us: Option<u16>,
    timeout_us: Option<u16>,
}

/// An operation of a step; numbers are taken as they are, or to the nearest that is sound.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Operation {
    Decode(u8),
    DecodeAll,
    Prefill(u8, u16),
    PrefillAll(u16),
    Admit(u16),
    AdmitWhole,
    Preempt(u8),
    Retract(u8),
    MakeRoom,
    SwapIn,
    LookUp,
    MakeFree(u8),
}

#[derive(Arbitrary, Debug)]
enum Rule {
    Named { policy: u8, chunk: u16, tokens: u16, swap: bool },
    Plan { steps: Vec<Vec<Operation>>, stops: bool, emits: bool, swap: bool, caches: bool },
}

#[derive(Arbitrary, Debug)]
struct Input {
    requests: Vec<Request>,
    rule: Rule,
    max_num_seqs: u8,
    base_us: u16,
    prefill_ns: u16,
    decode_ns: u16,
    context_ns: u8,
    kv: Option<(u8, u8)>,
    order: u8,
    max_waiting: Option<u8>,
    until_us: Option<u32>,
}

/// A policy that does what a list says, one entry a step, whether it makes sense or not.
#[derive(Clone)]
struct Plan {
    steps: Vec<Vec<Operation>>,
    /// Whether a refusal ends the run, instead of being passed over.
    stops: bool,
    emits: bool,
    caches: bool,
    preemption: Preemption,
    max_num_seqs: u64,
    step: usize,
}

impl Plan {
    fn operate(&self, operation: Operation, step: &mut Step<'_>) -> sched_sim::Result<()> {
        let running = |n: u8| {
            let mut at = step.running_after(None);
            for _ in 0..n % 8 {
                at = step.running_after(at).or(at);
            }
            // A request that is not in the batch is refused by its number.
            at.unwrap_or(usize::from(n))
        };
        match operation {
            Operation::Decode(n) => step.decode(running(n)),
            Operation::DecodeAll => step.decode_all(),
            Operation::Prefill(n, tokens) => step.prefill(running(n), tokens.into()),
            Operation::PrefillAll(chunk) => step.prefill_all(chunk.into()),
            Operation::Admit(tokens) => step.admit(tokens.into()).map(drop),
            Operation::AdmitWhole => {
                let known = step.next_waiting().map_or(1, |w| w.known_tokens);
                step.admit(known).map(drop)
            }
            Operation::Preempt(n) => step.preempt(running(n)),
            Operation::Retract(n) => step.retract(running(n)),
            Operation::MakeRoom => step.make_room().map(drop),
            Operation::SwapIn => {
                step.swap_in();
                Ok(())
            }
            Operation::LookUp => {
                step.look_up();
                Ok(())
            }
            Operation::MakeFree(blocks) => {
                step.make_free(blocks.into());
                Ok(())
            }
        }
    }
}

impl Policy for Plan {
    fn name(&self) -> &'static str {
        "plan"
    }

    fn max_num_seqs(&self) -> u64 {
        self.max_num_seqs
    }

    fn prefill_emits_first_token(&self) -> bool {
        self.emits
    }

    fn preemption(&self) -> Preemption {
        self.preemption
    }

    fn prefix_caching(&self) -> bool {
        self.caches
    }

    fn ran(&mut self, _: &StepWork, steps: u64) {
        self.step = self.step.wrapping_add(usize::try_from(steps).unwrap_or(usize::MAX));
    }

    fn fill(&mut self, step: &mut Step<'_>) -> sched_sim::Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        for &operation in &self.steps[self.step % self.steps.len()] {
            match self.operate(operation, step) {
                Err(refused) if self.stops => return Err(refused),
                _ => {}
            }
        }
        Ok(())
    }
}

fn preemption(swap: bool) -> Preemption {
    if swap {
        Preemption::Swap { per_token: Ticks::from_nanoseconds(1000) }
    } else {
        Preemption::Recompute
    }
}

fn policy(rule: &Rule, max_num_seqs: u64) -> Option<Box<dyn Policy>> {
    match rule {
        Rule::Named { policy, chunk, tokens, swap } => {
            let name = NAMES[usize::from(*policy) % NAMES.len()];
            let mut options = ServerOptions::default();
            options.max_num_batched_tokens = Some(u64::from(*tokens));
            if may_swap(name) {
                options.preemption = Some(preemption(*swap));
            }
            // Limits of 0 are refused.
            named(name, max_num_seqs, u64::from(*chunk), &options)?.ok()
        }
        Rule::Plan { steps, stops, emits, swap, caches } => Some(Box::new(Plan {
            steps: steps.clone(),
            stops: *stops,
            emits: *emits,
            caches: *caches,
            preemption: preemption(*swap),
            max_num_seqs,
            step: 0,
        })),
    }
}

type Outcome = Result<(RunEnd, Vec<Over>, RunStatistics, BatchHistory), String>;

fn run(mut server: Replica<Box<dyn Policy>, Affine>, jobs: Vec<Job>) -> Outcome {
    let (mut over, mut history) = (Vec::new(), BatchHistory::new());
    let end = run_stream(&mut server, jobs.into_iter(), &mut history, |o| over.push(o));
    let end = end.map_err(|e| e.to_string())?;
    let s = server.statistics();
    assert!(s.conserves_requests() && s.littles_law_holds(), "{s:?}");
    if let Some(kv) = s.kv {
        assert!(kv.used_max <= kv.blocks && kv.cached_blocks <= kv.blocks, "{s:?}");
    }
    if end == RunEnd::Completed {
        assert_eq!(server.load().kv_used, 0, "every block is free again");
        assert!(server.inside().is_empty());
    }
    Ok((end, over, s, history))
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let mut at = 0_u64;
    let jobs: Vec<Job> = (0_u64..)
        .zip(input.requests.iter().take(32))
        .map(|(id, r)| {
            at += u64::from(r.gap_us) * if r.idle { 1_000_000 } else { 1000 };
            let arrival = Ticks::from_nanoseconds(at);
            let later = |us: u16| Ticks::from_nanoseconds(at + 1000 * u64::from(us));
            let (input, output) = (1 + u64::from(r.input) % 5_000, 1 + u64::from(r.output));
            let mut job = Job::new(id, arrival, input, output);
            job.priority = r.priority.into();
            job.content = r.shares.map(|(segment, tokens)| {
                let shared = u64::from(tokens).min(input);
                let own = (1000 + id, input - shared);
                Box::new(PromptContent::new(vec![(u64::from(segment % 4), shared), own]))
            });
            job.cancel_at = r.cancel_us.map(later);
            job.timeout_at = r.timeout_us.map(later);
            job
        })
        .collect();
    let ns = |n: u64| Ticks::from_nanoseconds(n);
    let step_time = Affine::new(Coefficients {
        base: ns(1000 * u64::from(input.base_us)),
        prefill: ns(input.prefill_ns.into()),
        decode: ns(input.decode_ns.into()),
        context: ns(input.context_ns.into()),
        ..Coefficients::default()
    })
    .expect("the coefficients are small");
    let mut settings = ServerSettings::default();
    settings.order = [Order::Fcfs, Order::ShortestJob, Order::Priority]
        [usize::from(input.order) % 3];
    settings.max_waiting = input.max_waiting.map(u64::from);
    settings.kv = input
        .kv
        .and_then(|(blocks, size)| KvPool::new(4 * u64::from(blocks), u64::from(size)).ok());
    let limits = RunLimits {
        max_steps: Some(STEPS),
        until: input.until_us.map(|us| ns(1000 * u64::from(us))),
    };
    let seqs = 1 + u64::from(input.max_num_seqs);
    let (Some(fast), Some(plain)) = (policy(&input.rule, seqs), policy(&input.rule, seqs)) else {
        return;
    };
    let fast = Replica::new(fast, step_time).settings(settings.clone()).limits(limits);
    let plain = Replica::reference(plain, step_time).settings(settings).limits(limits);
    assert_eq!(run(fast, jobs.clone()), run(plain, jobs));
});
