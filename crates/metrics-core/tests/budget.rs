//! Parts of a latency: the decompositions, their bounds, and why percentiles do not add.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use metrics_core::budget::{
    chunked_prefill_time, e2e_budget, part_quantile, prefill_time, tpot_bandwidth, tpot_roofline,
    ttft_from_parts, ttft_with_scheduling, union_bound,
};
use metrics_core::demand::{request_service_demand, service_rate_from_demand};
use metrics_core::units::{Bytes, BytesPerSecond, FlopPerSecond};
use metrics_core::{Error, Seconds, SecondsPerToken};
use proptest::prelude::*;

fn s(x: f64) -> Seconds {
    Seconds::new(x).unwrap()
}

fn message<T: std::fmt::Debug>(result: metrics_core::Result<T>) -> String {
    result.unwrap_err().to_string()
}

/// The largest time that a quantity holds: two of them are too much for one.
fn longest() -> Seconds {
    s(metrics_core::error::LARGEST)
}

#[test]
fn sums_of_parts_stop_where_a_time_ends() {
    let (max, zero) = (longest(), Seconds::ZERO);
    assert_eq!(ttft_from_parts(max, zero, zero), Ok(max));
    assert!(matches!(ttft_from_parts(max, max, zero), Err(Error::TooLarge { .. })));
    assert_eq!(ttft_with_scheduling(zero, zero, max), Ok(max));
    assert!(matches!(ttft_with_scheduling(max, zero, max), Err(Error::TooLarge { .. })));
    assert_eq!(e2e_budget(zero, max, zero, zero), Ok(max));
    assert!(matches!(e2e_budget(zero, max, zero, max), Err(Error::TooLarge { .. })));
}

#[test]
fn prefill_time_refuses_what_no_gpu_has() {
    let peak = FlopPerSecond::new(1e15).unwrap();
    assert_eq!(message(prefill_time(0, 8, peak, 0.5)), "n_params must be at least 1, got 0");
    assert!(prefill_time(1, 8, peak, 0.5).is_ok());
    assert_eq!(
        message(prefill_time(8, 8, FlopPerSecond::ZERO, 0.5)),
        "peak_flops must be above 0, got 0"
    );
    assert_eq!(message(prefill_time(8, 8, peak, 0.0)), "mfu must be above 0, got 0");
    assert!(prefill_time(8, 8, peak, 1e-9).is_ok());
    assert!(prefill_time(8, 8, peak, 1.0).is_ok());
    assert!(
        message(prefill_time(8, 8, peak, 1.0 + f64::EPSILON)).starts_with("mfu must be at most 1")
    );
    assert!(message(prefill_time(8, 8, peak, f64::NAN)).starts_with("mfu must be a finite number"));
    // A prompt found in the prefix cache as a whole leaves nothing to compute.
    assert_eq!(prefill_time(8, 0, peak, 0.5), Ok(Seconds::ZERO));
}

#[test]
fn a_chunk_holds_at_least_one_token() {
    let (t, zero) = (s(0.25), Seconds::ZERO);
    assert_eq!(message(chunked_prefill_time(9, 0, t, zero)), "c_chunk must be at least 1, got 0");
    assert_eq!(chunked_prefill_time(9, 1, t, zero), Ok(s(2.25)));
    // Both sides of a whole number of chunks: 1,024 tokens are two of 512, 1,025 are three.
    assert_eq!(chunked_prefill_time(1_024, 512, t, zero), Ok(s(0.5)));
    assert_eq!(chunked_prefill_time(1_025, 512, t, zero), Ok(s(0.75)));
    assert_eq!(chunked_prefill_time(0, 512, t, t), Ok(t));
}

#[test]
fn a_decode_step_needs_bandwidth() {
    let bytes = Bytes::new(1e9).unwrap();
    let step = |bandwidth| tpot_bandwidth(bytes, bytes, bandwidth, Seconds::ZERO, Seconds::ZERO);
    assert_eq!(message(step(BytesPerSecond::ZERO)), "bandwidth must be above 0, got 0");
    assert_eq!(step(BytesPerSecond::new(2e9).unwrap()), SecondsPerToken::new(1.0));
    assert!(matches!(
        tpot_bandwidth(bytes, bytes, BytesPerSecond::new(1e9).unwrap(), longest(), longest()),
        Err(Error::TooLarge { .. })
    ));
}

#[test]
fn the_roofline_takes_the_slower_side() {
    assert_eq!(tpot_roofline(s(0.25), s(0.5)), SecondsPerToken::new(0.5));
    assert_eq!(tpot_roofline(s(0.5), s(0.25)), SecondsPerToken::new(0.5));
    assert!(matches!(
        tpot_roofline(longest() + longest(), Seconds::ZERO),
        Err(Error::TooLarge { .. })
    ));
}

/// 512 · 0.5 ms + 128 · 10 ms = 0.256 s + 1.28 s; one over it is the service rate.
#[test]
fn demand_leads_to_the_service_rate() {
    let (prefill, decode) =
        (SecondsPerToken::new(0.0005).unwrap(), SecondsPerToken::new(0.01).unwrap());
    let demand = request_service_demand(512, 128, prefill, decode).unwrap();
    assert!((demand.get() - 1.536).abs() < 1e-12);
    assert_eq!(request_service_demand(0, 0, prefill, decode), Ok(Seconds::ZERO));
    let mu = service_rate_from_demand(demand).unwrap();
    assert!((mu.get() * demand.get() - 1.0).abs() < 1e-12);
    assert_eq!(
        message(service_rate_from_demand(Seconds::ZERO)),
        "mean_demand must be above 0, got 0"
    );
    assert!(service_rate_from_demand(s(1e-100)).is_ok());
    assert!(matches!(service_rate_from_demand(s(1e-101)), Err(Error::TooLarge { .. })));
    let slowest = SecondsPerToken::new(1e100).unwrap();
    assert!(matches!(request_service_demand(1, 1, slowest, slowest), Err(Error::TooLarge { .. })));
}

#[test]
fn probabilities_are_checked_at_both_ends() {
    assert_eq!(message(union_bound(&[])), "alphas must hold at least one part, got none");
    assert_eq!(union_bound(&[0.0, 0.0]), Ok(0.0));
    assert_eq!(union_bound(&[1.0]), Ok(1.0));
    // More than certain says no more than certain.
    assert_eq!(union_bound(&[0.75, 0.5]), Ok(1.0));
    assert_eq!(message(union_bound(&[0.5, -0.25])), "alpha must be at least 0, got -0.25");
    assert_eq!(message(union_bound(&[0.5, 1.5])), "alpha must be at most 1, got 1.5");
    assert_eq!(part_quantile(0.0, 1), Ok(0.0));
    assert_eq!(part_quantile(1.0, 3), Ok(1.0));
    assert_eq!(message(part_quantile(-0.5, 3)), "q_total must be at least 0, got -0.5");
    assert_eq!(message(part_quantile(1.5, 3)), "q_total must be at most 1, got 1.5");
    assert_eq!(message(part_quantile(0.5, 0)), "parts must be at least 1, got 0");
}

/// How often `exceeds` holds over equally likely outcomes.
fn frequency<T>(outcomes: &[T], exceeds: impl Fn(&T) -> bool) -> f64 {
    outcomes.iter().filter(|o| exceeds(o)).count() as f64 / outcomes.len() as f64
}

/// 10,000 equally likely outcomes of four parts, each 1 ms but for 100 outcomes of its own in which
/// it is 2 ms: every part keeps 1 ms in 99 % of them, the four together 4 ms in only 96 %.
#[test]
fn the_sum_of_four_p99s_can_be_missed_four_times_as_often() {
    let outcomes: Vec<[u64; 4]> = (0..10_000_usize)
        .map(|outcome| std::array::from_fn(|part| 1 + u64::from(outcome / 100 == part)))
        .collect();
    let alphas: [f64; 4] = std::array::from_fn(|part| frequency(&outcomes, |o| 1 < o[part]));
    assert!(alphas.iter().all(|alpha| (alpha - 0.01).abs() < 1e-12));

    let missed = frequency(&outcomes, |o| 4 < o.iter().sum::<u64>());

    assert!((missed - 0.04).abs() < 1e-12);
    assert!((union_bound(&alphas).unwrap() - missed).abs() < 1e-12, "the bound is reached");
}

/// Parts that rise and fall together: the outcome that is the k-th of one is the k-th of all, so the
/// total passes the sum of the P99s exactly when each part passes its own.
#[test]
fn parts_in_step_miss_together_and_no_more_often() {
    let outcomes: Vec<[u64; 3]> = (0..1_000).map(|u: u64| [u, 3 * u * u, u / 2 + 7]).collect();
    let limits = outcomes[989];
    let alphas: Vec<f64> =
        limits.iter().enumerate().map(|(i, &x)| frequency(&outcomes, |o| x < o[i])).collect();

    let missed = frequency(&outcomes, |o| limits.iter().sum::<u64>() < o.iter().sum::<u64>());

    assert!((missed - 0.01).abs() < 1e-12);
    assert!(missed <= union_bound(&alphas).unwrap());
}

proptest! {
    /// Any joint law on equally likely outcomes, any limits: whole numbers, so that no sum rounds.
    #[test]
    fn the_total_misses_no_more_often_than_the_union_bound_says(
        outcomes in prop::collection::vec(prop::array::uniform4(0..50_u64), 1..200),
        limits in prop::array::uniform4(0..60_u64),
    ) {
        let alphas: [f64; 4] = std::array::from_fn(|i| frequency(&outcomes, |o| limits[i] < o[i]));
        let missed = frequency(&outcomes, |o| limits.iter().sum::<u64>() < o.iter().sum::<u64>());
        // The sum of four fractions is off by a few units in the last place.
        prop_assert!(missed <= union_bound(&alphas)? + 1e-15 * 4.0, "{missed} > {alphas:?}");
    }

    /// Disjoint misses reach the bound, so that no smaller one holds for every dependence.
    #[test]
    fn parts_that_never_miss_together_reach_the_bound(
        parts in 1..6_usize,
        missed_each in 0..200_usize,
    ) {
        const OUTCOMES: usize = 1_000;
        let outcomes: Vec<Vec<u64>> = (0..OUTCOMES)
            .map(|o| (0..parts).map(|p| {
                1 + u64::from((p * missed_each..(p + 1) * missed_each).contains(&o))
            }).collect())
            .collect();
        let missed = frequency(&outcomes, |o| (parts as u64) < o.iter().sum::<u64>());
        let alphas = vec![missed_each as f64 / OUTCOMES as f64; parts];
        prop_assert!((union_bound(&alphas)? - missed).abs() <= 1e-14);
    }

    /// Equal shares spend exactly what the total may miss.
    #[test]
    fn the_parts_quantiles_spend_what_the_total_may_miss(q in 0.0..=1.0_f64, parts in 1..50_u64) {
        let alpha = 1.0 - part_quantile(q, parts)?;
        let spent = union_bound(&vec![alpha; usize::try_from(parts)?])?;
        // Three roundings of at most 2^-54 for each of up to 50 parts.
        prop_assert!((spent - (1.0 - q)).abs() <= 50.0 * f64::EPSILON);
        // 1 - q and the result are each rounded by at most 2^-54 below 1.
        let part = part_quantile(q, parts)?;
        prop_assert!(q <= part + f64::EPSILON, "a part is held to no less than the total");
    }

    /// One chunk that holds the prompt, with nothing in between, is the unchunked prefill.
    #[test]
    fn one_chunk_is_the_unchunked_form(
        n_params in 1..1_000_000_000_000_u64,
        t_in in 1..200_000_u64,
        room in 0..10_000_u64,
        mfu in 0.01..=1.0_f64,
    ) {
        let whole = prefill_time(n_params, t_in, FlopPerSecond::new(989e12)?, mfu)?;
        prop_assert_eq!(chunked_prefill_time(t_in, t_in + room, whole, Seconds::ZERO)?, whole);
    }

    /// Counts the chunks by running the scheduler's update rule p ← min(T, p + C).
    #[test]
    fn chunks_are_those_of_the_update_rule(t_in in 0..20_000_u64, c_chunk in 1..5_000_u64) {
        let (mut done, mut steps) = (0, 0_u32);
        while done < t_in {
            done = t_in.min(done + c_chunk);
            steps += 1;
        }
        let time = chunked_prefill_time(t_in, c_chunk, Seconds::new(1.0)?, Seconds::ZERO)?;
        prop_assert_eq!(time, Seconds::new(f64::from(steps))?);
    }

    /// Longer prompts and larger models take longer; a better MFU or GPU never does.
    #[test]
    fn prefill_time_is_monotone(
        n in 1..1_000_000_000_000_u64,
        t in 0..200_000_u64,
        more in 0..1_000_u64,
        mfu in 0.01..0.5_f64,
        factor in 1.0..2.0_f64,
    ) {
        let peak = FlopPerSecond::new(1e15)?;
        let base = prefill_time(n, t, peak, mfu)?;
        prop_assert!(base <= prefill_time(n, t + more, peak, mfu)?);
        prop_assert!(base <= prefill_time(n + more, t, peak, mfu)?);
        prop_assert!(prefill_time(n, t, peak, mfu * factor)? <= base);
        prop_assert!(prefill_time(n, t, (peak * factor)?, mfu)? <= base);
    }

    /// The bandwidth form holds all that the roofline's memory side holds, and more.
    #[test]
    fn the_bandwidth_form_is_never_below_its_kv_part(
        weights in 0.0..1e12_f64,
        kv in 0.0..1e12_f64,
        bandwidth in 1e11..1e14_f64,
        extra in 0.0..0.1_f64,
    ) {
        let (weights, kv) = (Bytes::new(weights)?, Bytes::new(kv)?);
        let bandwidth = BytesPerSecond::new(bandwidth)?;
        let full = tpot_bandwidth(weights, kv, bandwidth, Seconds::new(extra)?, Seconds::ZERO)?;
        let moving = tpot_roofline(Seconds::ZERO, (kv / bandwidth)?)?;
        prop_assert!(moving <= full);
    }

    /// Two lengths that add up ask for two demands that add up.
    #[test]
    fn demand_is_additive(
        a in (0..100_000_u64, 0..100_000_u64),
        b in (0..100_000_u64, 0..100_000_u64),
        c_prefill in 0.0..0.01_f64,
        c_decode in 0.0..0.2_f64,
    ) {
        let cost = (SecondsPerToken::new(c_prefill)?, SecondsPerToken::new(c_decode)?);
        let demand = |n_in, n_out| request_service_demand(n_in, n_out, cost.0, cost.1);
        let parts = demand(a.0, a.1)? + demand(b.0, b.1)?;
        let whole = demand(a.0 + b.0, a.1 + b.1)?;
        prop_assert!((parts.get() - whole.get()).abs() <= 1e-12 * whole.get());
    }
}
