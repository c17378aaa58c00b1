//! What holds for every run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Budget, Moody, OneByOne, both, decode_first, limits, step_time, workload};
use proptest::prelude::*;
use sched_sim::{
    BatchHistory, DecodeFirst, Observer, Policy, RunEnd, RunLimits, Simulation, StepTime, StepWork,
    Stretch, Ticks, Workload, WorkloadRequest,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The skipping engine and the plain one agree bit for bit under decode-first.
    #[test]
    fn skipping_equals_the_reference(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        limits in limits(),
    ) {
        both(&workload, &policy, &step_time, limits)?;
    }

    /// They agree under a policy that serves single requests and claims a horizon.
    #[test]
    fn skipping_equals_the_reference_under_a_budget(
        workload in workload(),
        max_num_seqs in 1_u64..12,
        tokens in prop_oneof![1_u64..20, 20_u64..2000],
        step_time in step_time(),
        limits in limits(),
    ) {
        both(&workload, &Budget { max_num_seqs, tokens }, &step_time, limits)?;
    }

    /// They agree under a policy that changes its mind in every step.
    #[test]
    fn skipping_equals_the_reference_under_a_moody_policy(
        workload in workload(),
        max_num_seqs in 1_u64..12,
        chunks in prop::collection::vec(1_u64..300, 1..9),
        emits in any::<bool>(),
        step_time in step_time(),
        limits in limits(),
    ) {
        both(&workload, &Moody { max_num_seqs, chunks, emits, step: 0 }, &step_time, limits)?;
    }

    /// Bulk operations mean the same as one operation per request.
    #[test]
    fn bulk_operations_equal_single_ones(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
    ) {
        let mut histories = [BatchHistory::new(), BatchHistory::new()];
        let bulk = Simulation::new(&workload, policy, step_time);
        let bulk = bulk.run_observed(&mut histories[0]).unwrap();
        let single = Simulation::new(&workload, OneByOne(policy), step_time);
        let single = single.run_observed(&mut histories[1]).unwrap();
        prop_assert_eq!(bulk, single);
        prop_assert_eq!(&histories[0], &histories[1]);
    }

    /// Little's law on the sample path, counted from the requests' own instants: the area under
    /// the number in the system, and in service, is the sum of the times.
    #[test]
    fn littles_law_is_exact(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        limits in limits(),
    ) {
        let (result, _) = both(&workload, &policy, &step_time, limits)?;
        let s = result.statistics();
        prop_assert!(s.littles_law_holds(), "{s:?}");
        let end = s.end.attoseconds();
        let (mut system, mut service) = (Vec::new(), Vec::new());
        for (r, record) in workload.requests().iter().zip(result.records()) {
            let left = record.last_token().map_or(end, Ticks::attoseconds);
            if r.arrival.attoseconds() <= end {
                system.extend([(r.arrival.attoseconds(), 1), (left, -1)]);
            }
            if let Some(scheduled) = record.scheduled() {
                service.extend([(scheduled.attoseconds(), 1), (left, -1)]);
            }
        }
        for (mut edges, want) in [(system, s.in_system_time), (service, s.in_service_time)] {
            edges.sort_unstable();
            let (mut area, mut inside, mut last) = (0_i128, 0_i128, 0_u128);
            for (t, step) in edges {
                area += i128::try_from(t - last).unwrap() * inside;
                (inside, last) = (inside + step, t);
            }
            prop_assert_eq!(u128::try_from(area).unwrap(), want);
        }
    }

    /// Every request is completed, running, queued, or has not arrived; none twice.
    #[test]
    fn requests_are_conserved(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        limits in limits(),
    ) {
        let (result, history) = both(&workload, &policy, &step_time, limits)?;
        let s = result.statistics();
        prop_assert!(s.conserves_requests(), "{s:?}");
        prop_assert_eq!(s.injected + s.not_arrived(), workload.len() as u64);
        let records = result.records();
        let completed = records.iter().filter(|r| r.last_token().is_some()).count() as u64;
        let scheduled = records.iter().filter(|r| r.scheduled().is_some()).count() as u64;
        prop_assert_eq!(completed, s.completed);
        prop_assert_eq!(scheduled, s.completed + s.running);
        prop_assert_eq!(result.end() == RunEnd::Completed, completed == workload.len() as u64);
        if limits == RunLimits::default() {
            prop_assert_eq!(result.end(), RunEnd::Completed);
            let tokens = |f: fn(&WorkloadRequest) -> u64| -> u64 {
                workload.requests().iter().map(f).sum()
            };
            prop_assert_eq!(s.prefill_tokens, tokens(|r| r.input_tokens));
            prop_assert_eq!(s.output_tokens, tokens(|r| r.output_tokens));
            // Under this policy every output token is a decode of one step.
            let decodes: u64 = history.runs().iter().map(|r| r.steps * r.decodes).sum();
            prop_assert_eq!(decodes, s.output_tokens);
        }
        for u in result.unfinished() {
            let r = &workload.requests()[u.position];
            prop_assert!(u.prefilled <= r.input_tokens && u.decoded < r.output_tokens);
            prop_assert_eq!(records[u.position].first_token().is_some(), 0 < u.decoded);
        }
        prop_assert_eq!(result.timelines().unwrap().len() as u64, s.injected);
    }

    /// Nobody is served before arriving, the instants of a request are in order, and requests
    /// are scheduled in order of submission.
    #[test]
    fn instants_are_in_order(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
    ) {
        let (result, _) = both(&workload, &policy, &step_time, RunLimits::default())?;
        let mut before = Ticks::ZERO;
        for (r, record) in workload.requests().iter().zip(result.records()) {
            let scheduled = record.scheduled().unwrap();
            let (done, first) = (record.prompt_done().unwrap(), record.first_token().unwrap());
            let last = record.last_token().unwrap();
            prop_assert!(r.arrival <= scheduled && scheduled <= done);
            prop_assert!(done <= first && first <= last);
            prop_assert!(r.output_tokens != 1 || first == last);
            prop_assert!(before <= scheduled, "first come, first served");
            before = scheduled;
        }
    }

    /// The history covers the run without gaps and adds up to the totals.
    #[test]
    fn history_adds_up_to_the_totals(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        limits in limits(),
    ) {
        let (result, history) = both(&workload, &policy, &step_time, limits)?;
        let s = result.statistics();
        let mut at = Ticks::ZERO;
        let (mut steps, mut slots, mut area, mut busy) = (0, 0, 0, Ticks::ZERO);
        for run in history.runs() {
            prop_assert_eq!(run.start, at);
            at = at.after(run.duration);
            let b = run.decodes + run.prefills;
            prop_assert!(b <= s.max_num_seqs);
            prop_assert_eq!(run.steps == 0, b == 0);
            steps += run.steps;
            slots += u128::from(b * run.steps);
            area += u128::from(b) * run.duration.attoseconds();
            busy = if b == 0 { busy } else { busy.after(run.duration) };
        }
        prop_assert!(at == s.end || s.injected == 0);
        prop_assert_eq!((steps, slots, area), (s.steps, s.served_steps, s.served_time));
        prop_assert_eq!(busy, s.busy);
        // Under decode-first whoever is in the batch is served in every step.
        prop_assert_eq!((s.served_steps, s.served_time), (s.in_service_steps, s.in_service_time));
        prop_assert!(s.utilization_by_steps().is_none_or(|u| 0.0 < u && u <= 1.0));
        prop_assert!(s.utilization_by_time().is_none_or(|u| 0.0 <= u && u <= 1.0));
    }

    /// Tokens in KV, followed request by request from their instants, are what the run counted.
    #[test]
    fn kv_totals_follow_from_the_steps(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
    ) {
        #[derive(Default)]
        struct Kv { read: u128, held: u128, max: u64 }
        impl Observer for Kv {
            fn stretch(&mut self, s: &Stretch) {
                for j in 0..s.steps {
                    let w = s.work.after(j);
                    let new = w.prefill_tokens + w.decodes;
                    let held = s.held_tokens + (j + 1) * new;
                    self.read += u128::from(w.decode_context);
                    self.held += u128::from(held);
                    self.max = self.max.max(held);
                    assert!(w.decode_context <= held - new);
                }
            }
        }
        let mut kv = Kv::default();
        let result = Simulation::new(&workload, policy, step_time).run_observed(&mut kv).unwrap();
        let s = result.statistics();
        prop_assert_eq!((kv.read, kv.held, kv.max), (s.kv_read_tokens, s.kv_held_tokens, s.kv_held_max));
        // Every decode of request r reads its prompt and the tokens before: a closed form per
        // request, whatever the order of steps.
        let read: u128 = workload.requests().iter().map(|r| {
            let (i, o) = (u128::from(r.input_tokens), u128::from(r.output_tokens));
            i * o + o * (o - 1) / 2
        }).sum();
        prop_assert_eq!(s.kv_read_tokens, read);
    }

    /// The closed form over a stretch is the sum of its steps, for any form and any composition.
    #[test]
    fn stretches_are_sums_of_steps(
        step_time in step_time(),
        chunks in prop::collection::vec((1_u64..5000, 0_u64..9), 0..6),
        decodes in 0_u64..50,
        context in 0_u64..100_000,
        k in 1_u64..200,
    ) {
        // Chunk by chunk: attention of chunk tokens after `before` whole chunks.
        let work_at = |j: u64| {
            let mut w = StepWork::default();
            w.decodes = decodes;
            w.decode_context = context + j * decodes;
            for &(chunk, before) in &chunks {
                w.prefills += 1;
                w.prefill_tokens += chunk;
                let (n, done) = (u128::from(chunk), u128::from((before + j) * chunk));
                w.attention_doubled += 2 * n * done + n * n;
                w.attention_growth += 2 * n * n;
            }
            w
        };
        let stretch = step_time.stretch(&work_at(0));
        let mut sum = Ticks::ZERO;
        for j in 0..k {
            prop_assert_eq!(work_at(0).after(j), work_at(j));
            prop_assert_eq!(stretch.step(j), step_time.step(&work_at(j)));
            sum = sum.after(step_time.step(&work_at(j)));
        }
        prop_assert_eq!(stretch.total(k), sum);
    }

    /// The number of steps until an arrival is the one that counting finds.
    #[test]
    fn steps_to_reach_is_the_first_that_does(
        first in prop_oneof![Just(0_u128), 1_u128..1_000_000_000_000_000_000],
        growth in prop_oneof![Just(0_i128), 0_i128..1_000_000_000_000, -1000_i128..0],
        gap in 1_u128..10_000_000_000_000_000_000_000,
        max in 1_u64..2000,
    ) {
        let first = first + u128::from(max) * growth.min(0).unsigned_abs();
        let time = sched_sim::StretchTime {
            first: Ticks::from_attoseconds(first), growth, steps: max,
        };
        let gap = Ticks::from_attoseconds(gap);
        let want = (1..=max).find(|&k| gap <= time.total(k)).unwrap_or(max);
        prop_assert_eq!(time.steps_to_reach(gap, max), want);
    }

    /// A longer run is the shorter one and more: what has happened does not change.
    #[test]
    fn a_truncated_run_is_a_prefix(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
        until in 0_u64..20_000_000_000,
    ) {
        let full = Simulation::new(&workload, policy, step_time).run().unwrap();
        let limits = RunLimits { until: Some(Ticks::from_nanoseconds(until)), max_steps: None };
        let cut = Simulation::new(&workload, policy, step_time).limits(limits).run().unwrap();
        for (f, c) in full.records().iter().zip(cut.records()) {
            prop_assert!(c.scheduled().is_none_or(|at| Some(at) == f.scheduled()));
            prop_assert!(c.first_token().is_none_or(|at| Some(at) == f.first_token()));
            prop_assert!(c.last_token().is_none_or(|at| Some(at) == f.last_token()));
        }
    }

    /// A step time that knows no stretches gives the same run, one step at a time.
    #[test]
    fn a_step_time_without_stretches_gives_the_same_run(
        workload in workload(),
        policy in decode_first(),
        step_time in step_time(),
    ) {
        #[derive(Clone)]
        struct Opaque<T>(T);
        impl<T: StepTime> StepTime for Opaque<T> {
            fn step(&self, work: &StepWork) -> Ticks {
                self.0.step(work)
            }
        }
        let known = Simulation::new(&workload, policy, step_time).run().unwrap();
        let opaque = Simulation::new(&workload, policy, Opaque(step_time)).run().unwrap();
        prop_assert_eq!(known, opaque);
    }
}

/// A policy may be chosen when the program runs.
#[test]
fn policies_and_step_times_work_as_trait_objects() {
    let workload = Workload::new(vec![WorkloadRequest::new(1, Ticks::ZERO, 10, 2)]).unwrap();
    let policy: Box<dyn Policy> = Box::new(DecodeFirst::default());
    let step_time: Box<dyn StepTime> = Box::new("base=1ms".parse::<sched_sim::Affine>().unwrap());
    let result = Simulation::new(&workload, policy, step_time).run().unwrap();
    assert_eq!(result.records()[0].last_token(), Some("3ms".parse().unwrap()));
}
