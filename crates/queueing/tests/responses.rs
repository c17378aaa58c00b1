//! Response times and variances that have no formula of their own, against models that have one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "it is a test")]

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use queueing::lps::{Autoscaler, ServingLaw};
use queueing::{
    BirthDeath, ErlangA, LpsStateDependent, MPh1, Md1, Mdc, Mg1, Mg1Ps, Mm1, Mmc, MmcK, MmcN,
    Queue, ServiceMoments, WaitDistribution, mph1::PhaseType,
};

fn close(got: f64, want: f64, relative: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (got - want).abs() <= relative * want.abs() || got.total_cmp(&want).is_eq(),
        "{got:e} is not {want:e}"
    );
    Ok(())
}

/// Variance of the number that wait, and of the number in the system, from a chain's states.
fn variances(chain: &BirthDeath, c: u64) -> (f64, f64) {
    let waiting = |n: f64| (n - c as f64).max(0.0);
    let mean = chain.expect(waiting);
    (chain.expect(|n| (waiting(n) - mean) * (waiting(n) - mean)), chain.variance())
}

/// ∫ f over 0 to `end`, by Simpson's rule.
fn simpson(end: f64, steps: u32, f: impl Fn(f64) -> f64) -> f64 {
    let h = end / f64::from(2 * steps);
    let weight = |i: u32| {
        if i == 0 || i == 2 * steps {
            1.0
        } else if i % 2 == 1 {
            4.0
        } else {
            2.0
        }
    };
    (0..=2 * steps).map(|i| weight(i) * f(h * f64::from(i))).sum::<f64>() * h / 3.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With n servers' rates for n jobs, sharing is M/M/c with room K: wait and response are its own.
    #[test]
    fn the_response_of_servers_is_that_of_mmck(rho in 0.05..3.0_f64, c in 1..12_u64, more in 0..40_u64, t in 0.0..6.0_f64) {
        let lambda = rho * c as f64;
        let rates: Vec<f64> = (1..=c).map(|n| n as f64).collect();
        let shared = LpsStateDependent::new(lambda, &rates, Some(more)).unwrap();
        let (response, room) = (shared.response().unwrap(), MmcK::new(lambda, 1.0, c, c + more).unwrap());
        close(response.w_sf(t).unwrap(), room.w_sf(t).unwrap(), 1e-11)?;
        close(response.mean(), shared.w(), 1e-11)?;
        close(response.w_quantile(0.99).unwrap(), room.w_quantile(0.99).unwrap(), 1e-10)?;
        close(shared.var_n(), room.var_n(), 1e-11)?;
    }

    /// The same without a limit of the room.
    #[test]
    fn the_response_of_endless_room_is_that_of_mmc(rho in 0.05..0.9_f64, c in 1..12_u64, t in 0.0..6.0_f64) {
        let lambda = rho * c as f64;
        let rates: Vec<f64> = (1..=c).map(|n| n as f64).collect();
        let shared = LpsStateDependent::new(lambda, &rates, None).unwrap();
        let (response, room) = (shared.response().unwrap(), Mmc::new(lambda, 1.0, c).unwrap());
        close(response.w_sf(t).unwrap(), room.w_sf(t).unwrap(), 1e-11)?;
        close(response.mean(), room.w(), 1e-12)?;
        close(shared.var_n(), room.var_n(), 1e-11)?;
    }

    /// Rates of any kind: the mean of the distribution is the W of Little's law.
    #[test]
    fn the_mean_of_the_response_is_w(rates in prop::collection::vec(0.2..5.0_f64, 1..8), lambda in 0.0..6.0_f64, room in 0..30_u64, p in 0.01..0.999_f64) {
        let shared = LpsStateDependent::new(lambda, &rates, Some(room)).unwrap();
        let response = shared.response().unwrap();
        close(response.mean(), shared.w(), 1e-11)?;
        let t = response.w_quantile(p).unwrap();
        close(response.w_cdf(t).unwrap(), p, 1e-11)?;
    }

    /// Where an arrival finds a long queue, nobody is gone for the first forty jumps: the mean was
    /// infinite.
    #[test]
    fn a_queue_that_nobody_leaves_at_first_has_a_mean(more in 0..8_u64) {
        let rates = [2.030_488_794_698_048_8, 0.214_195_319_264_240_01];
        let shared = LpsStateDependent::new(5.774_032_438_599_758, &rates, Some(15 + more)).unwrap();
        close(shared.response().unwrap().mean(), shared.w(), 1e-11)?;
    }

    /// Endless slots are processor sharing, whose variance is known.
    #[test]
    fn many_slots_are_processor_sharing(rho in 0.05..0.6_f64) {
        let shared = LpsStateDependent::mm1(rho, 1.0, 120).unwrap();
        let response = shared.response().unwrap();
        let ps = Mg1Ps::new(rho, 1.0).unwrap();
        close(response.mean(), ps.w(), 1e-12)?;
        // E[T²] is twice the area under t · sf.
        let end = response.w_quantile(1.0 - 1e-12).unwrap();
        let second = 2.0 * simpson(end, 1500, |t| t * response.w_sf(t).unwrap());
        close(second - ps.w() * ps.w(), ps.var_w_exp(), 1e-6)?;
    }

    /// Wait and response of those who may leave: cdf and sf, quantile and mean.
    #[test]
    fn erlang_a_distributes_its_response(rho in 0.1..3.0_f64, c in 1..40_u64, theta in 0.02..20.0_f64, t in 0.0..5.0_f64, p in 0.001..0.999_f64) {
        let queue = ErlangA::new(rho * c as f64, 1.0, c, theta).unwrap();
        let (cdf, sf) = (queue.w_cdf(t).unwrap(), queue.w_sf(t).unwrap());
        prop_assert!((cdf + sf - 1.0).abs() <= 1e-12, "{cdf} {sf}");
        close(queue.w_cdf(queue.w_quantile(p).unwrap()).unwrap(), p, 1e-11)?;
        let end = queue.w_quantile(1.0 - 1e-13).unwrap();
        close(simpson(end, 600, |t| queue.w_sf(t).unwrap()), queue.w(), 1e-4)?;
        close(queue.served_within(end).unwrap(), 1.0 - queue.p_abandon(), 1e-9)?;
        // Early on the complement has no digits left; the sum of positive parts has.
        let early = queue.w_cdf(1e-9).unwrap();
        close(early, queue.w_cdf(2e-9).unwrap() / 2.0, 1e-6)?;
    }

    /// An endless patience makes the response that of M/M/c.
    #[test]
    fn endless_patience_has_the_response_of_mmc(rho in 0.05..0.9_f64, c in 1..60_u64, t in 0.0..5.0_f64) {
        let lambda = rho * c as f64;
        let (patient, plain) = (ErlangA::new(lambda, 1.0, c, 1e-11).unwrap(), Mmc::new(lambda, 1.0, c).unwrap());
        close(patient.w_sf(t).unwrap(), plain.w_sf(t).unwrap(), 1e-8)?;
        close(patient.var_nq(), plain.var_nq(), 1e-6)?;
        close(patient.var_n(), plain.var_n(), 1e-6)?;
    }

    /// Variances against the chain, state by state.
    #[test]
    fn variances_are_those_of_the_chain(rho in 0.05..4.0_f64, c in 1..30_u64, more in 0..60_u64, theta in 0.05..20.0_f64) {
        let lambda = rho * c as f64;
        let k = c + more;
        let deaths = |n: u64| n.min(c) as f64;
        let births = vec![lambda; usize::try_from(k).unwrap()];
        let chain = BirthDeath::new(&births, &(1..=k).map(deaths).collect::<Vec<_>>()).unwrap();
        let (nq, n) = variances(&chain, c);
        let room = MmcK::new(lambda, 1.0, c, k).unwrap();
        close(room.var_nq(), nq, 1e-10)?;
        close(room.var_n(), n, 1e-10)?;
        let births = vec![lambda; 4000];
        let leaving = |n: u64| deaths(n) + theta * n.saturating_sub(c) as f64;
        let chain = BirthDeath::new(&births, &(1..=4000).map(leaving).collect::<Vec<_>>()).unwrap();
        let (nq, n) = variances(&chain, c);
        let queue = ErlangA::new(lambda, 1.0, c, theta).unwrap();
        prop_assert!((queue.var_nq() - nq).abs() <= 1e-9 * nq + 1e-12, "{} {nq}", queue.var_nq());
        close(queue.var_n(), n, 1e-9)?;
    }

    /// Variances of wait and response are twice the area under t · sf, less the mean squared.
    #[test]
    fn variances_of_waits_are_those_of_their_distribution(rho in 0.1..1.5_f64, c in 1..8_u64, more in 1..12_u64) {
        let room = MmcK::new(rho * c as f64, 1.0, c, c + more).unwrap();
        let second = |f: &dyn Fn(f64) -> f64| 2.0 * simpson(45.0, 3000, |t| t * f(t));
        let wq = second(&|t| room.wq_sf(t).unwrap()) - room.wq() * room.wq();
        close(wq, room.var_wq(), 1e-5)?;
        let w = second(&|t| room.w_sf(t).unwrap()) - room.w() * room.w();
        close(w, room.var_w(), 1e-5)?;
        let closed = MmcN::new(rho, 1.0, c, c + more).unwrap();
        let wq = second(&|t| closed.wq_sf(t).unwrap()) - closed.wq() * closed.wq();
        close(wq, closed.var_wq(), 1e-5)?;
    }

    /// One server, exponential service: four models give one variance.
    #[test]
    fn variances_of_one_server_agree(rho in 0.01..0.95_f64) {
        let (one, c) = (Mm1::new(rho, 1.0).unwrap(), Mmc::new(rho, 1.0, 1).unwrap());
        let general = Mg1::new(rho, ServiceMoments::exp(1.0)).unwrap();
        let phases = MPh1::new(rho, PhaseType::erlang(1.0, 1).unwrap()).unwrap();
        let (n, nq) = (one.var_n(), one.var_nq());
        for got in [c.var_n(), general.var_n().unwrap(), phases.var_n()] {
            close(got, n, 1e-12)?;
        }
        for got in [c.var_nq(), general.var_nq().unwrap(), phases.var_nq()] {
            close(got, nq, 1e-12)?;
        }
        let (d1, dc) = (Md1::new(rho, 1.0).unwrap(), Mdc::new(rho, 1.0, 1).unwrap());
        close(d1.var_nq(), dc.var_nq(), 1e-10)?;
        close(d1.var_n(), dc.var_n(), 1e-10)?;
    }
}

/// Any bit pattern, with the odd ones more often than one in 2^52.
fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => any::<u64>().prop_map(f64::from_bits),
        4 => 1e-3..1e3_f64,
        1 => prop::sample::select(vec![0.0, -0.0, 1.0, f64::NAN, f64::INFINITY, 1e-50, 1e50, 5e-324, -1.0]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever goes in: a value from 0 on, a typed error, never NaN, never a panic.
    #[test]
    fn no_input_gives_nan_or_a_panic((x, y, z, t) in (anything(), anything(), anything(), anything()), (c, n) in (any::<u64>(), any::<u64>())) {
        let sound = |what: &str, v: f64| {
            prop_assert!(0.0 <= v, "{what} of {x} {y} {z} {t} {c} {n}: {v}");
            Ok(())
        };
        let mut values = Vec::new();
        let few = c % 50;
        if let Ok(q) = ErlangA::new(x, y, few, z) {
            values.extend([q.w_sf(t), q.w_cdf(t), q.w_quantile(t), q.wq_quantile(t), q.served_within(t)]);
            values.extend([Ok(q.var_n()), Ok(q.var_nq())]);
        }
        if let Ok(q) = MmcK::new(x, y, few, few.saturating_add(n % 70_000)) {
            values.extend([q.var_n(), q.var_nq(), q.var_w(), q.var_wq()].map(Ok));
        }
        if let Ok(q) = MmcN::new(x, y, few, n % 200) {
            values.extend([q.var_n(), q.var_nq(), q.var_w(), q.var_wq()].map(Ok));
        }
        // A response takes as many jumps as rates are apart: rates alike, and a load of any size.
        if let Ok(q) = LpsStateDependent::new(x.min(1e6), &[1.0, 1.5], Some(n % 8)) {
            values.push(Ok(q.var_n()));
            if let Ok(r) = q.response() {
                values.extend([r.w_sf(t), r.w_cdf(t), r.w_quantile(t), Ok(r.mean())]);
            }
        }
        for value in values.into_iter().flatten() {
            sound("value", value)?;
        }
    }
}

/// Many places: the closed form of the variance against the sum over the states, just below and
/// above the switch at 65 536 places.
#[test]
fn the_variance_of_many_places_is_that_of_the_states() {
    for rho in [0.5, 0.999, 1.0, 1.001, 2.0] {
        let (few, many) = (
            MmcK::new(rho * 100.0, 1.0, 100, 65_536).unwrap().var_n(),
            MmcK::new(rho * 100.0, 1.0, 100, 65_537).unwrap().var_n(),
        );
        assert!((few / many - 1.0).abs() < 1e-4, "{rho}: {few} {many}");
    }
}

/// The autoscaler's published `/optimize`, whose figures have the digits of 32 bits. Its search is
/// six halvings from 31, the batch at which the ITL is at its limit, to 256; the smallest batch is
/// one less than it ends at.
#[test]
fn the_published_batch_search_is_reproduced() {
    let law = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
    let server = Autoscaler::new(law, 128.0, 512.0, 256, 128).unwrap();
    let at = |max_batch| {
        let server = server.with_max_batch(max_batch).unwrap();
        let rate = server.max_rate_for_means(60.0, 20.0).unwrap();
        server.at(rate).unwrap()
    };
    let peak = at(256).throughput;
    let (mut low, mut high) = (31, 256);
    for _ in 0..6 {
        let middle = u64::midpoint(low, high);
        if 0.99 * peak <= at(middle).throughput { high = middle } else { low = middle + 1 }
    }
    assert_eq!(high, 49);
    let state = at(49);
    let near = |got: f64, want: f64, digits: f64| {
        assert!((got / want - 1.0).abs() < digits, "{got} is not {want}");
    };
    near(state.throughput * 1e3, 2.971_583_6, 1e-6);
    near(state.response, 10_277.985, 1e-6);
    // The wait is a small difference of two large sums in 32 bits.
    near(state.wait, 12.017_578, 1e-4);
    near(state.in_service, 30.506_18, 1e-6);
    near(state.ttft, 57.987_3, 2e-5);
    near(state.itl, 19.999_996, 1e-6);
    near(0.999 * server.with_max_batch(49).unwrap().max_rate().unwrap() * 1e3, 3.900_383_5, 1e-6);
    // Exact: 48 are enough, 47 are not.
    let choice = server.smallest_batch(60.0, 20.0, 0.99).unwrap();
    assert_eq!(choice.max_batch, 48);
    assert!(at(47).throughput < 0.99 * choice.peak && choice.peak.total_cmp(&peak).is_eq());
}

/// The autoscaler's own example: the mean response of 10.2 s has a P99 between four and five times that, and
/// nobody's tail is seen in the means.
#[test]
fn the_autoscalers_response_has_a_tail() {
    let law = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
    let server = Autoscaler::new(law, 128.0, 512.0, 48, 128).unwrap();
    let state = server.at(server.max_rate_for_ttft(60.0).unwrap()).unwrap();
    let response = state.chain.response().unwrap();
    assert!((response.mean() / state.response - 1.0).abs() < 1e-11);
    let p99 = response.w_quantile(0.99).unwrap();
    assert!(4.0 < p99 / state.response && p99 / state.response < 5.0, "{p99}");
}
