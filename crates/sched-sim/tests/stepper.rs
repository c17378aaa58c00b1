//! The learner's scheduler against the rule written down again, and the clocked engine against
//! the learner's scheduler.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use sched_sim::stepper::Scheduler;
use sched_sim::{Affine, BatchHistory, DecodeFirst, Simulation, Ticks, Workload, WorkloadRequest};

/// The rule of the walkthrough, transcribed: lists, slices and a dictionary's worth of state.
struct Transcript {
    input: Vec<u64>,
    output: Vec<u64>,
    prefilled: Vec<u64>,
    decoded: Vec<u64>,
    finished: Vec<bool>,
}

type Done = (Vec<usize>, Vec<(usize, u64)>, Vec<usize>);

impl Transcript {
    fn new(requests: &[(u64, u64)]) -> Self {
        let n = requests.len();
        Self {
            input: requests.iter().map(|r| r.0).collect(),
            output: requests.iter().map(|r| r.1).collect(),
            prefilled: vec![0; n],
            decoded: vec![0; n],
            finished: vec![false; n],
        }
    }

    fn stage(&self, i: usize) -> &'static str {
        if self.finished[i] {
            "done"
        } else if self.prefilled[i] < self.input[i] {
            "prefill"
        } else {
            "decode"
        }
    }

    fn step(&mut self, max_batch_size: usize, prefill_chunk: u64) -> Done {
        let stages: Vec<_> = (0..self.input.len()).map(|i| self.stage(i)).collect();
        let with =
            |s: &str| -> Vec<usize> { (0..stages.len()).filter(|&i| stages[i] == s).collect() };
        let mut selected_decode = with("decode");
        selected_decode.truncate(max_batch_size);
        let remaining_slots = max_batch_size - selected_decode.len();
        let mut selected_prefill = with("prefill");
        selected_prefill.truncate(remaining_slots);
        let (mut chunks, mut finished) = (Vec::new(), Vec::new());
        for &i in &selected_decode {
            self.decoded[i] += 1;
            if self.decoded[i] >= self.output[i] {
                self.finished[i] = true;
                finished.push(i);
            }
        }
        for i in selected_prefill {
            let before = self.prefilled[i];
            self.prefilled[i] = self.input[i].min(before + prefill_chunk);
            chunks.push((i, self.prefilled[i] - before));
        }
        (selected_decode, chunks, finished)
    }
}

fn requests() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let input = prop_oneof![1 => Just(0_u64), 4 => 1_u64..40, 1 => 40_u64..600];
    prop::collection::vec((input, 1_u64..30), 0..12)
}

proptest! {
    /// Step by step the scheduler does what the rule says, also with requests that come later,
    /// with empty prompts, and in idle steps.
    #[test]
    fn stepper_equals_the_rule(
        first in requests(),
        later in requests(),
        pause in 0_u64..20,
        batch in 1_u64..7,
        chunk in 1_u64..200,
    ) {
        let mut scheduler = Scheduler::new(batch, chunk).unwrap();
        let mut rule = Transcript::new(&first);
        for (i, &(input, output)) in first.iter().enumerate() {
            scheduler.submit(i.to_string(), input, output).unwrap();
        }
        for step in 1..=400 {
            if step == pause + 1 {
                let more = Transcript::new(&later);
                for (i, &(input, output)) in later.iter().enumerate() {
                    scheduler.submit((first.len() + i).to_string(), input, output).unwrap();
                }
                rule.input.extend(more.input);
                rule.output.extend(more.output);
                rule.prefilled.extend(more.prefilled);
                rule.decoded.extend(more.decoded);
                rule.finished.extend(more.finished);
            }
            let report = scheduler.step();
            let (decoded, prefilled, finished) =
                rule.step(usize::try_from(batch).unwrap(), chunk);
            let names = |v: &[usize]| v.iter().map(usize::to_string).collect::<Vec<_>>();
            prop_assert_eq!(report.step, step);
            prop_assert_eq!(report.decoded, names(&decoded));
            prop_assert_eq!(report.finished, names(&finished));
            let prefilled: Vec<_> = prefilled.iter().map(|&(i, n)| (i.to_string(), n)).collect();
            prop_assert_eq!(report.prefilled, prefilled);
        }
    }

    /// With steps of one second and everybody there at the start, the clock counts the stepper's
    /// steps: who is served when, first and last tokens, and the batch of every step.
    #[test]
    fn clocked_engine_makes_the_same_steps(
        requests in prop::collection::vec((1_u64..300, 1_u64..40), 1..20),
        batch in 1_u64..9,
        chunk in 1_u64..200,
    ) {
        let mut scheduler = Scheduler::new(batch, chunk).unwrap();
        let mut rows = Vec::new();
        for (i, &(input, output)) in (0_u64..).zip(&requests) {
            scheduler.submit(i.to_string(), input, output).unwrap();
            rows.push(WorkloadRequest::new(i, Ticks::ZERO, input, output));
        }
        let workload = Workload::new(rows).unwrap();
        let second: Affine = "base=1s".parse().unwrap();
        let policy = DecodeFirst::new(batch, chunk).unwrap();
        let mut history = BatchHistory::new();
        let result =
            Simulation::new(&workload, policy, second).run_observed(&mut history).unwrap();

        let seconds = |n: u64| Some(Ticks::from_nanoseconds(n * 1_000_000_000));
        let mut batches = history.runs().iter().flat_map(|r| {
            std::iter::repeat_n((r.decodes, r.prefills), usize::try_from(r.steps).unwrap())
        });
        let mut seen = vec![(0_u64, 0_u64); requests.len()];
        while scheduler.unfinished().next().is_some() {
            let report = scheduler.step();
            let sizes = (report.decoded.len() as u64, report.prefilled.len() as u64);
            prop_assert_eq!(batches.next(), Some(sizes));
            for (id, tokens) in &report.prefilled {
                let i: usize = id.parse().unwrap();
                let record = &result.records()[i];
                if seen[i].0 == 0 {
                    prop_assert_eq!(record.scheduled(), seconds(report.step - 1));
                }
                seen[i].0 += tokens;
                if seen[i].0 == requests[i].0 {
                    prop_assert_eq!(record.prompt_done(), seconds(report.step));
                }
            }
            for id in &report.decoded {
                let i: usize = id.parse().unwrap();
                if seen[i].1 == 0 {
                    prop_assert_eq!(result.records()[i].first_token(), seconds(report.step));
                }
                seen[i].1 += 1;
            }
            for id in &report.finished {
                let i: usize = id.parse().unwrap();
                prop_assert_eq!(result.records()[i].last_token(), seconds(report.step));
            }
        }
        prop_assert_eq!(batches.next(), None);
        prop_assert_eq!(result.statistics().steps, scheduler.steps());
    }
}

/// By hand, with the defaults of 8 and 128: 300 tokens take chunks of 128, 128 and 44; two tokens
/// follow; then nothing is left to do, and the counter goes on.
#[test]
fn first_token_comes_one_step_after_the_prompt() {
    let mut scheduler = Scheduler::default();
    scheduler.submit("r", 300, 2).unwrap();
    let steps: Vec<String> = (0..6).map(|_| scheduler.step().to_string()).collect();
    insta::assert_snapshot!(steps.join("\n"), @"
    step 1: prefill r +128
    step 2: prefill r +128
    step 3: prefill r +44
    step 4: decode r
    step 5: decode r; done r
    step 6: idle
    ");
    assert_eq!(scheduler.steps(), 6);
}

/// One step too few leaves the last token of the last request; one more finishes it.
#[test]
fn running_out_of_steps_names_who_is_unfinished() {
    let mut scheduler = Scheduler::new(1, 10).unwrap();
    scheduler.submit("a", 20, 1).unwrap();
    scheduler.submit("b", 10, 2).unwrap();
    // a: 2 chunks and a token; b: 1 chunk and 2 tokens.
    assert_eq!(scheduler.run_until_done(5), ["b"]);
    assert!(scheduler.run_until_done(Scheduler::MAX_STEPS).is_empty());
    assert_eq!(scheduler.steps(), 6);
}

/// The walkthrough does these steps by hand; both languages show what the scheduler prints.
#[test]
fn example_by_hand_in_the_book_is_what_the_scheduler_does() {
    let mut scheduler = Scheduler::new(2, 64).unwrap();
    for (id, input, output) in [("a", 100, 3), ("b", 64, 1), ("c", 100, 1)] {
        scheduler.submit(id, input, output).unwrap();
    }
    let mut steps = String::new();
    while scheduler.unfinished().next().is_some() {
        steps += &format!("{}\n", scheduler.step());
    }
    for language in ["en", "zh"] {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let page = format!("{root}/docs/{language}/background/scheduler.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&format!("```text\n{steps}```")), "{language} differs:\n{steps}");
    }
}
