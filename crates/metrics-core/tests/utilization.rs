//! Laws over many steps, and the bounds that keep a ratio a ratio.

#![allow(clippy::unwrap_used, reason = "a helper of the tests fails like a test")]

use metrics_core::units::{Requests, RequestsPerSecond};
use metrics_core::utilization::{
    batch_utilization, batch_utilization_by_time, gpu_utilization, kv_utilization,
    mean_batch_utilization, requests_in_service, requests_in_system,
};
use metrics_core::{Error, Seconds};
use proptest::prelude::*;

fn s(x: f64) -> Seconds {
    Seconds::new(x).unwrap()
}

proptest! {
    /// `full` full steps among `full + idle` have exactly that share, whatever the batch size.
    #[test]
    fn full_steps_and_idle_steps_give_their_share(
        full in 0_usize..200,
        idle in 0_usize..200,
        max in 1_u64..1_000,
    ) {
        prop_assume!(0 < full + idle);
        let mut history = vec![max; full];
        history.extend(vec![0; idle]);

        let got = batch_utilization(&history, max).unwrap();

        // One division on each side, so at most one rounding apart.
        let share = full as f64 / (full + idle) as f64;
        prop_assert!((got - share).abs() <= f64::EPSILON, "{got} != {share}");
    }

    /// Where all steps last equally long, weighing by time changes nothing.
    #[test]
    fn steps_of_equal_length_have_one_utilization(
        history in prop::collection::vec(0_u64..=64, 1..100),
        length in 1e-4..10.0_f64,
    ) {
        let intervals: Vec<_> = history.iter().map(|&b| (s(length), b)).collect();

        let by_steps = batch_utilization(&history, 64).unwrap();
        let by_time = batch_utilization_by_time(&intervals, 64).unwrap();

        // A sum of 100 terms is off by at most 100 roundings.
        prop_assert!((by_steps - by_time).abs() <= 200.0 * f64::EPSILON);
    }

    /// A batch that is full all the time has utilization 1, not a rounding more.
    #[test]
    fn no_utilization_by_time_passes_one(
        lengths in prop::collection::vec(1e-9..1e9_f64, 1..50),
        max in 1_u64..1_000,
        short in 0_u64..3,
    ) {
        let intervals: Vec<_> =
            lengths.iter().map(|&d| (s(d), max.saturating_sub(short))).collect();

        let got = batch_utilization_by_time(&intervals, max).unwrap();

        prop_assert!(got <= 1.0, "{got}");
        prop_assert!(0 < short || got >= 1.0, "{got}");
    }

    /// In service and waiting together are all that is in the system.
    #[test]
    fn the_system_is_the_queue_and_the_service(
        rate in 0.0..1e3_f64,
        served in 0.0..100.0_f64,
        waited in 0.0..100.0_f64,
    ) {
        let rate = RequestsPerSecond::new(rate).unwrap();
        let e2e = s(served + waited);

        let system = requests_in_system(rate, e2e).unwrap().get();
        let service = requests_in_service(rate, e2e, s(waited)).unwrap().get();
        let queue = rate.get() * waited;

        prop_assert!((system - service - queue).abs() <= 1e-12 * system.max(1.0));
    }
}

/// A short full step and a long idle one: half by steps, a tenth by time.
#[test]
fn long_steps_weigh_more_by_time_only() {
    assert!((batch_utilization(&[8, 0], 8).unwrap() - 0.5).abs() < 1e-15);
    let by_time = batch_utilization_by_time(&[(s(1.0), 8), (s(9.0), 0)], 8).unwrap();
    assert!((by_time - 0.1).abs() < 1e-15);
}

#[test]
fn what_has_no_utilization_says_why() {
    let say = |e: metrics_core::Result<f64>| e.unwrap_err().to_string();
    assert_eq!(
        say(batch_utilization(&[], 4)),
        "active_batch_history must hold at least one step, got none"
    );
    assert_eq!(say(batch_utilization(&[0], 0)), "max_batch_size must be at least 1, got 0");
    assert_eq!(
        say(batch_utilization(&[4, 5], 4)),
        "max_batch_size must be at least the batch of a step = 5, got 4"
    );
    assert_eq!(
        say(batch_utilization_by_time(&[(Seconds::ZERO, 1)], 4)),
        "the sum of the intervals must be above 0, got 0"
    );
    assert!(matches!(batch_utilization_by_time(&[], 4), Err(Error::Empty { .. })));
    assert!(matches!(batch_utilization_by_time(&[(s(1.0), 5)], 4), Err(Error::Order { .. })));
    assert_eq!(say(kv_utilization(0, 0)), "total_blocks must be at least 1, got 0");
    assert_eq!(say(kv_utilization(3, 2)), "total_blocks must be at least used_blocks = 3, got 2");
    assert_eq!(say(gpu_utilization(s(0.0), s(0.0))), "t_total must be above 0, got 0");
}

/// 20 requests a second that wait 0.5 s and are served 0.5 s: 20 in the system, 10 of 16 in
/// service. With the queue counted as batch the utilization would be 1.25.
#[test]
fn only_requests_in_service_compare_with_the_batch() {
    let rate = RequestsPerSecond::new(20.0).unwrap();
    let b_max = Requests::new(16.0).unwrap();

    let service = requests_in_service(rate, s(1.0), s(0.5)).unwrap();
    let system = requests_in_system(rate, s(1.0)).unwrap();

    assert!((mean_batch_utilization(service, b_max).unwrap() - 0.625).abs() < 1e-15);
    assert!(matches!(mean_batch_utilization(system, b_max), Err(Error::Order { .. })));
}

proptest! {
    /// The whole-number sum keeps a full batch at exactly 1 even for counts that no `u64` sum holds.
    #[test]
    fn a_full_batch_is_one_at_any_size(max in 1_u64..=u64::MAX, steps in 1_usize..50) {
        prop_assert!((batch_utilization(&vec![max; steps], max).unwrap() - 1.0).abs() <= 0.0);
    }
}
