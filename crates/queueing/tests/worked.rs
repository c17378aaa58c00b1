//! The worked values of the metric specification, each to be redone by hand.

use queueing::plan::{
    mm1_max_rate_for_response_quantile, mm1_service_rate_for_mean_response, quantile_of_sum,
    quantile_per_part,
};
use queueing::{
    Mg1, Mm1, Mmc, Queue, QueueError, WaitDistribution, demand, erlang_b, erlang_c, little,
    utilization,
};

fn near(got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-14 * want.abs(), "{got} is not {want}");
}

#[test]
fn four_arrivals_at_ten_services_a_second() {
    let queue = Mm1::new(4.0, 10.0).unwrap();
    near(queue.utilization(), 0.4);
    near(queue.w(), 1.0 / 6.0);
    near(queue.wq(), 1.0 / 15.0);
    near(queue.l(), 2.0 / 3.0);
    near(queue.lq(), 4.0 / 15.0);
    near(queue.p0(), 0.6);
    near(queue.throughput(), 4.0);
    near(utilization(4.0, 10.0, 1).unwrap(), 0.4);
}

#[test]
fn exponential_service_by_its_variation_is_the_same_queue() {
    let (mm1, mg1) = (Mm1::new(4.0, 10.0).unwrap(), Mg1::from_cv(4.0, 0.1, 1.0).unwrap());
    near(mg1.utilization(), mm1.utilization());
    near(mg1.wq(), mm1.wq());
    near(mg1.w(), mm1.w());
    near(mg1.l(), mm1.l());
    near(mg1.lq(), mm1.lq());
}

#[test]
fn a_third_server_shortens_the_wait() {
    let (two, three) = (Mmc::new(8.0, 5.0, 2).unwrap(), Mmc::new(8.0, 5.0, 3).unwrap());
    for queue in [two, three] {
        assert!(0.0 < queue.p_wait() && queue.p_wait() < 1.0);
    }
    assert!(three.wq() < two.wq());
    // By hand, a = 1.6: terms 1, 1.6, 1.28; waiting 1.28 · 2 / 0.4 = 6.4; C = 6.4 / 9 = 32 / 45.
    near(two.p_wait(), 32.0 / 45.0);
    // With three: terms 1, 1.6, 1.28 and waiting 4.096 / 6 · 3 / 1.4 = 1.462857...
    let waiting = 4.096 / 6.0 * 3.0 / 1.4;
    near(three.p_wait(), waiting / (3.88 + waiting));
}

#[test]
fn little_and_required_rate() {
    near(little::l(20.0, 0.5).unwrap(), 10.0);
    near(little::lambda(10.0, 0.5).unwrap(), 20.0);
    near(little::w(10.0, 20.0).unwrap(), 0.5);
    near(mm1_service_rate_for_mean_response(4.0, 0.25).unwrap(), 8.0);
}

/// In units of the service time: one public page prints 13.4 at 0.7 and 46.1 at 0.9 for the wait,
/// of which the second is the response.
#[test]
fn p99_of_wait_and_response_are_two_formulas() {
    let p99 = |rho: f64| {
        let queue = Mm1::new(rho, 1.0).unwrap();
        (queue.wq_quantile(0.99).unwrap(), queue.w_quantile(0.99).unwrap())
    };
    let (wait, response) = p99(0.7);
    near(wait, 70.0_f64.ln() / (1.0 - 0.7));
    near(response, 100.0_f64.ln() / (1.0 - 0.7));
    assert_eq!(format!("{wait:.2} {response:.2}"), "14.16 15.35");
    let (wait, response) = p99(0.9);
    assert_eq!(format!("{wait:.2} {response:.2}"), "45.00 46.05");
    // At ρ = 0.005 no more than one in 200 waits: the wait's P99 is 0.
    let (wait, response) = p99(0.005);
    assert!(wait == 0.0 && 4.6 < response);
}

#[test]
fn four_parts_need_p99_75_each() {
    near(quantile_per_part(0.99, 4).unwrap(), 0.9975);
    near(quantile_of_sum(&[0.99; 4]).unwrap(), 0.96);
    assert_eq!(quantile_of_sum(&[0.5, 0.4]), Ok(0.0));
}

/// P99 within one second at ten services a second: ρ may be 1 − 4.605 / 10.
#[test]
fn a_percentile_bounds_the_arrival_rate() {
    let lambda = mm1_max_rate_for_response_quantile(10.0, 0.99, 1.0).unwrap();
    near(lambda, 10.0 - 100.0_f64.ln());
    let e = mm1_max_rate_for_response_quantile(10.0, 0.99, 0.4).unwrap_err();
    assert_eq!(
        e.to_string(),
        "p must be at most 0.9816843611112658, the share that a server without a queue reaches \
         within t = 0.4, got 0.99"
    );
}

/// 512 tokens at 0.5 ms and 128 at 10 ms: 1.536 s of one slot; 0.5 such requests a second keep it
/// 76.8 % busy.
#[test]
fn service_demand_becomes_rate_and_load() {
    use metrics_core::{Seconds, units::RequestsPerSecond};

    let demand = Seconds::new(512.0 * 0.0005 + 128.0 * 0.010).unwrap();
    let arrivals = RequestsPerSecond::new(0.5).unwrap();
    near(demand::mu_from_demand(demand).unwrap(), 1.0 / 1.536);
    near(demand::rho_from_demand(arrivals, demand).unwrap(), 0.768);
    near(demand::mm1(arrivals, demand).unwrap().utilization(), 0.768);
    near(demand::mmc(arrivals, demand, 2).unwrap().utilization(), 0.384);
    near(demand::mg1(arrivals, demand, 1.0).unwrap().w(), 1.536 / (1.0 - 0.768));
    // Overload has a load but no queue.
    let arrivals = RequestsPerSecond::new(1.0).unwrap();
    near(demand::rho_from_demand(arrivals, demand).unwrap(), 1.536);
    assert!(matches!(demand::mm1(arrivals, demand), Err(QueueError::Unstable { .. })));
}

#[test]
fn nobody_arrives_and_nobody_waits() {
    for wq in [
        Mm1::new(0.0, 5.0).unwrap().wq_quantile(1.0).unwrap(),
        Mmc::new(0.0, 5.0, 3).unwrap().wq(),
        Mmc::new(0.0, 5.0, 3).unwrap().wq_quantile(1.0).unwrap(),
        Mg1::from_cv(0.0, 0.2, f64::INFINITY).unwrap().wq(),
    ] {
        assert!(wq == 0.0);
    }
    near(Mm1::new(0.0, 5.0).unwrap().w(), 0.2);
    near(Mmc::new(0.0, 5.0, 3).unwrap().w(), 0.2);
    near(Mmc::new(0.0, 5.0, 3).unwrap().p0(), 1.0);
}

#[test]
fn without_servers_or_load_erlang_is_defined() {
    assert_eq!(erlang_b(0, 3.0), Ok(1.0));
    assert_eq!(erlang_b(0, 0.0), Ok(1.0));
    assert_eq!(erlang_b(3, 0.0), Ok(0.0));
    assert_eq!(erlang_c(3, 0.0), Ok(0.0));
    assert!(erlang_c(0, 0.0).is_err());
    assert_eq!(erlang_c(2, 2.0), Err(QueueError::Unstable { rho: 1.0 }));
    // Huge counts of servers are refused at once, not counted up to.
    assert!(erlang_b(u64::MAX, 1e18).is_err());
}

#[test]
fn infinite_second_moment_makes_the_wait_infinite() {
    let queue = Mg1::from_cv(1e-3, 1.0, f64::INFINITY).unwrap();
    assert!(queue.wq().is_infinite() && queue.l().is_infinite());
    near(queue.utilization(), 1e-3);
    assert!(Mm1::new(1.0, 2.0).unwrap().w_quantile(1.0).unwrap().is_infinite());
}

/// A negative variation must not hide behind its square.
#[test]
fn refusals_say_what_would_be_right() {
    let say = |e: QueueError| e.to_string();
    assert_eq!(
        say(Mg1::from_cv(1.0, 0.5, -1.0).unwrap_err()),
        "cv must be from 0 to 1e24, or infinite, got -1"
    );
    assert_eq!(
        say(Mm1::new(12.0, 10.0).unwrap_err()),
        "rho must be below 1 for a queue that does not grow for ever, got 1.2"
    );
    assert_eq!(
        say(Mm1::new(4.0, 10.0).unwrap().w_quantile(99.0).unwrap_err()),
        "p must be from 0 to 1, got 99"
    );
    assert_eq!(
        say(Mg1::from_cv(1.0, 0.5, 1.0).unwrap().pn(3).unwrap_err()),
        "the moments of the service time do not settle p_n beyond n = 0, got n = 3"
    );
}

/// With two servers and hardly any load B is a² / 2, with one it is a: below 2.2e-308, where f64
/// has ever fewer digits, they are still there.
#[test]
fn the_smallest_probabilities_are_not_cut_to_zero() {
    assert_eq!(erlang_b(1, 2e-320), Ok(2e-320));
    let b = erlang_b(2, 1e-155).unwrap();
    assert!((b - 5e-311).abs() <= f64::from_bits(1));
    // 1e-162² / 2 is 5e-325, nearer to 0 than to the smallest f64, which is 4.9e-324.
    assert_eq!(erlang_b(2, 1e-162), Ok(0.0));
}

/// At ρ = 1/2 half of the jobs do not wait; a hair above the median the wait is a hair above 0,
/// with all its digits: −ln(1 − 2δ) / (1/2) for p = 1/2 + δ.
#[test]
fn a_percentile_just_above_those_who_do_not_wait_has_its_digits() {
    for delta in [1e-4_f64, 1e-10, 1e-15] {
        let p = 0.5 + delta;
        let delta = p - 0.5; // as it was rounded
        for wait in [
            Mm1::new(0.5, 1.0).unwrap().wq_quantile(p).unwrap(),
            Mmc::new(0.5, 1.0, 1).unwrap().wq_quantile(p).unwrap(),
        ] {
            near(wait, -(-2.0 * delta).ln_1p() / 0.5);
        }
    }
    assert_eq!(Mm1::new(0.5, 1.0).unwrap().wq_quantile(0.5), Ok(0.0));
    assert_eq!(Mm1::new(0.5, 1.0).unwrap().wq_quantile(0.2), Ok(0.0));
}

/// At ρ = 1 the queue grows for ever, so the bound itself is refused, by every model without
/// finite room.
#[test]
fn a_full_load_is_unstable_in_every_model() {
    let full = Err(QueueError::Unstable { rho: 1.0 });
    assert_eq!(Mm1::new(4.0, 4.0).map(|q| q.w()), full);
    assert_eq!(Mmc::new(8.0, 4.0, 2).map(|q| q.w()), full);
    assert_eq!(queueing::utilization(8.0, 4.0, 2), full);
    assert_eq!(Mg1::from_cv(4.0, 0.25, 1.0).map(|q| q.w()), full);
    assert_eq!(queueing::Md1::new(4.0, 0.25).map(|q| q.w()), full);
    assert_eq!(queueing::Mdc::new(8.0, 0.25, 2).map(|q| q.w()), full);
}
