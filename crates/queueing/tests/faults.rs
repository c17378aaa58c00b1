//! Inputs on which public queueing tools give wrong numbers, NaN or a panic: here the right value or
//! a typed error. The numbers of the cases are those of the list that they come from.

use queueing::plan::{Target, max_rate, min_servers};
use queueing::stability::{kv_memory_limit, memory_iterations, token_budget_limit};
use queueing::{
    BirthDeath, ErlangA, Mmc, MmcK, Queue, QueueError, WaitDistribution, erlang_b, erlang_c,
    erlang_c_real,
};

fn near(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= relative * want.abs(), "{got:e} is not {want:e}");
}

/// Q01: a negative mean wait, which its maintainer calls correct. A fraction of an agent is allowed.
#[test]
fn q01_overload_is_an_error_and_no_negative_wait() {
    let a = 44.34 / 1800.0 * 646.0;
    match erlang_c_real(14.01, a) {
        Err(QueueError::Unstable { rho }) => near(rho, 1.1358, 1e-4),
        other => panic!("{other:?}"),
    }
}

/// Q04, Q05, Q23: without a server the models refuse, and Erlang B loses everyone; with a server for
/// everyone nobody waits.
#[test]
fn q23_no_servers_and_endlessly_many_are_defined() {
    for refused in [
        Mmc::new(1.0, 1.0, 0).err(),
        MmcK::new(1.0, 1.0, 0, 5).err(),
        ErlangA::new(1.0, 1.0, 0, 1.0).err(),
        erlang_c(0, 1.0).err(),
    ] {
        let Some(QueueError::OutOfRange { name: "c", value, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(value, 0.0);
    }
    assert_eq!(erlang_b(0, 1.0), Ok(1.0));
    assert_eq!(queueing::MmInf::new(1.0, 1.0).unwrap().wq(), 0.0);
}

/// Q10: waits of M/M/4 against which a simulator was 47 to 71 % short.
#[test]
fn q10_four_instances_wait_as_long_as_theory_says() {
    near(Mmc::new(1.2, 1.0, 4).unwrap().wq(), 0.013_232_050_967_9, 1e-11);
    near(Mmc::new(2.0, 1.0, 4).unwrap().wq(), 0.086_956_521_739_1, 1e-11);
}

/// Q14: 80 % within 20 s of 180 s at 10 erlangs needs 13.04 servers, 14 as a whole number.
#[test]
fn q14_a_fraction_of_a_server_is_a_solution() {
    let level = |x: f64| 1.0 - erlang_c_real(x, 10.0).unwrap() * (-(x - 10.0) * 20.0 / 180.0).exp();
    near(level(13.037_206_466_4), 0.8, 1e-10);
    let target = Target::WaitQuantile { p: 0.8, t: 20.0 };
    assert_eq!(min_servers(10.0 / 180.0, 1.0 / 180.0, &target), Ok(14));
    near(Mmc::new(10.0 / 180.0, 1.0 / 180.0, 14).unwrap().wq_cdf(20.0).unwrap(), 0.888_35, 1e-5);
}

/// Q20: long prompts exhaust the token budget while the KV cache is nearly empty: two limits, and the
/// smaller decides.
#[test]
fn q20_both_stability_limits_are_rates() {
    let budget = token_budget_limit(512, 0.03, 1000, 250).unwrap();
    let held = memory_iterations(1000, 250, 512).unwrap();
    let memory = kv_memory_limit(1_000_000, 0.03, held).unwrap();
    assert!(budget < memory);
    near(budget, 512.0 / (0.03 * 1250.0), 1e-15);
    // 512 + 1000 for the prompt, then 1000 + j for j = 1 to 250.
    near(held, 1512.0 + 250_000.0 + 125.0 * 251.0, 1e-15);
}

/// Q22: never more in service than there are servers.
#[test]
fn q22_the_servers_in_use_are_at_most_all() {
    for lambda in [1.0, 19.9, 20.0, 39.0, 1e6] {
        let q = MmcK::new(lambda, 1.0, 20, 40).unwrap();
        assert!(q.utilization() <= 1.0 && q.l() <= 40.0);
        let q = ErlangA::new(lambda, 1.0, 20, 0.5).unwrap();
        assert!(q.utilization() <= 1.0);
    }
}

/// Q25: those who leave are lost to this visit only: what leaves and what is served add up to λ.
#[test]
fn q25_served_and_leaving_add_up_to_the_arrivals() {
    for (lambda, theta) in [(8.0, 0.1), (30.0, 0.5), (300.0, 5.0)] {
        let q = ErlangA::new(lambda, 1.0, 10, theta).unwrap();
        near(q.throughput() + theta * q.lq(), lambda, 1e-13);
        near(q.p_abandon(), 1.0 - q.throughput() / lambda, 1e-11);
    }
}

/// Q26, Q32: L of M/M/1/K near ρ = 1, where others cancel to 140.7, −140.7, 0 or 100.
#[test]
fn q26_the_mean_number_does_not_cancel_near_full_load() {
    for (lambda, want) in [
        (1.0 - 1e-9, 49.999_999_15),
        (1.0 + 1e-9, 50.000_000_85),
        (1.0 - 1e-14, 49.999_999_999_991_5),
    ] {
        near(MmcK::new(lambda, 1.0, 1, 100).unwrap().l(), want, 1e-14);
    }
}

/// Q28: a "probability" of 1.55.
#[test]
fn q28_erlang_c_refuses_overload() {
    assert_eq!(erlang_c(5, 6.0), Err(QueueError::Unstable { rho: 1.2 }));
}

/// Q29: the response of M/M/c next to a = c − 1.
#[test]
fn q29_the_response_does_not_cancel_next_to_the_double_pole() {
    near(Mmc::new(3.0 + 1e-14, 1.0, 4).unwrap().w_sf(1.0).unwrap(), 0.555_289_722_522_931_8, 1e-14);
}

/// Q31: the response of M/M/c/c is the service, not the constant e^μ.
#[test]
fn q31_without_room_to_wait_the_response_is_the_service() {
    let q = MmcK::new(2.0, 1.0, 4, 4).unwrap();
    near(q.w_cdf(0.5).unwrap(), 0.393_469_34, 1e-8);
    assert_eq!(q.wq_sf(0.0), Ok(0.0));
}

/// Q34, Q35: 740 and 950 erlangs overflow elsewhere, and searches start one server too high.
#[test]
fn q34_large_systems_do_not_overflow() {
    near(erlang_c(760, 740.0).unwrap(), 0.355_021_113_243_704_9, 1e-14);
    near(erlang_c(1000, 950.0).unwrap(), 0.068_253_415_377_141_42, 1e-14);
    near(erlang_c(150, 135.0).unwrap(), 0.140_308_636_103_494_3, 1e-14);
    let p99 = |c, a| Mmc::new(a, 1.0, c).unwrap().wq_quantile(0.99).unwrap();
    near(p99(760, 740.0), 0.178_479_608_432, 1e-11);
    near(p99(1000, 950.0), 0.038_412_847_639_5, 1e-11);
    assert_eq!(min_servers(160.0, 1.0, &Target::PWait(0.2)), Ok(174));
    assert_eq!(min_servers(2.5, 1.0, &Target::MeanWait(10.0)), Ok(3));
}

/// Q37: one slot and no queue is a system like any other: a chain of one step.
#[test]
fn q37_a_single_place_is_a_valid_system() {
    // 512 output tokens after a prompt of 128 take 6286.496 ms by the source's service law.
    let (lambda, mu) = (0.05, 1.0 / 6.286_496);
    let chain = BirthDeath::new(&[lambda], &[mu]).unwrap();
    let loss = MmcK::new(lambda, mu, 1, 1).unwrap();
    near(chain.pn(0), loss.p0(), 1e-15);
    near(loss.p0(), 0.760_846_938_3, 1e-9);
    near(loss.throughput(), 0.038_042_346_91, 1e-9);
}

/// Q40: Erlang B at 998,300 erlangs, where the incomplete gamma function of scipy loses 1e-9.
#[test]
fn q40_a_million_servers_keep_their_digits() {
    let (c, a) = (1_000_000_u32, 998_300.0);
    let mut b = 1.0;
    for k in 1..=c {
        b = a * b / (f64::from(k) + a * b);
    }
    near(erlang_b(u64::from(c), a).unwrap(), b, 1e-13);
}

/// Values that textbooks, manuals and other programs print, to their digits.
#[test]
fn published_values_of_finite_systems_are_met() {
    let to =
        |got: f64, want: f64, digits: f64| assert!((got - want).abs() <= digits, "{got} {want}");
    // P01: erlang.com's manual: 15 lines at 1 % loss take 8.108 erlangs.
    to(max_rate(1.0, 15, &Target::Blocking(0.01)).unwrap(), 8.108_042_797_18, 1e-11);
    // P02: 33.333 erlangs at 1 % need 45 lines.
    assert_eq!(min_servers(33.333, 1.0, &Target::Blocking(0.01)), Ok(45));
    // P07: pyworkforce's docstring: 14 agents before shrinkage, 20 after 30 % of it.
    let raw = min_servers(100.0 / 1800.0, 1.0 / 180.0, &Target::WaitQuantile { p: 0.8, t: 20.0 });
    assert_eq!(raw, Ok(14));
    assert_eq!((14.0_f64 / 0.7).ceil(), 20.0);
    // P12 to P14: octave-queueing 1.2.7, the tests of qsmmmk.
    let q = MmcK::new(40.0, 30.0, 3, 7).unwrap();
    to(q.p0(), 0.255_037, 5e-7);
    to(q.w(), 0.036_517, 5e-7);
    to(MmcK::new(50.0, 10.0, 4, 6).unwrap().p_block(), 0.293_543, 5e-7);
    let q = MmcK::new(3.0, 2.0, 2, 5).unwrap();
    to(q.p0(), 0.179_334, 1e-6);
    to(q.p_block(), 0.085_113_8, 1e-7);
    to(q.l(), 2.005_95, 5e-6);
    to(q.wq(), 0.230_858, 5e-7);
}
