//! Identities that hold whatever the numbers, and inputs that no model was made for.

use proptest::prelude::*;
use queueing::finite_source::{
    engset_call_congestion, engset_carried_load, engset_time_congestion,
};
use queueing::mg1::{mg1_l, mg1_lq, mg1_w, mg1_wq};
use queueing::mm1::{
    mm1_l, mm1_lq, mm1_pn, mm1_w, mm1_w_quantile, mm1_w_sf, mm1_wq, mm1_wq_quantile, mm1_wq_sf,
};
use queueing::mmc::{mmc_l, mmc_lq, mmc_w, mmc_wq, mmc_wq_quantile, mmc_wq_sf};
use queueing::plan::{
    Target, halfin_whitt, max_rate, min_replicas, min_servers, pooled_against_split,
    square_root_staffing,
};
use queueing::plan::{
    mm1_max_rate_for_mean_response, mm1_max_rate_for_mean_wait, mm1_max_rate_for_response_quantile,
    mm1_max_rate_for_wait_quantile, mm1_service_rate_for_mean_response,
    mm1_service_rate_for_mean_wait, mm1_service_rate_for_response_quantile,
    mm1_service_rate_for_wait_quantile, quantile_of_sum, quantile_per_part,
};
use queueing::{
    BirthDeath, ErlangA, Mg1, Mm1, MmInf, Mmc, MmcK, MmcN, Queue, QueueError, ServiceMoments,
    WaitDistribution, erlang_b, erlang_b_real, erlang_c, erlang_c_real, little, ln_erlang_b,
    ln_erlang_b_real, ln_erlang_c, offered_load, utilization,
};

/// A few units in the last place, for identities of some operations.
const ULPS: f64 = 1e-14;

fn close(got: f64, want: f64, relative: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (got - want).abs() <= relative * want.abs() + f64::MIN_POSITIVE,
        "{got:e} is not {want:e} within {relative:e}"
    );
    Ok(())
}

/// L = λ W and Lq = λ Wq, and the difference of both pairs is the service alone.
fn obeys_little(queue: &impl Queue, service: f64) -> Result<(), TestCaseError> {
    let lambda = queue.throughput();
    close(queue.l(), lambda * queue.w(), ULPS)?;
    close(queue.lq(), lambda * queue.wq(), ULPS)?;
    close(queue.w(), queue.wq() + service, ULPS)?;
    close(queue.l(), queue.lq() + lambda * service, ULPS)
}

/// cdf and survival add up to 1, the quantile inverts the cdf, and both fit the means.
fn distributes(queue: &impl WaitDistribution, t: f64, p: f64) -> Result<(), TestCaseError> {
    close(queue.wq_cdf(t)? + queue.wq_sf(t)?, 1.0, ULPS)?;
    close(queue.w_cdf(t)? + queue.w_sf(t)?, 1.0, ULPS)?;
    prop_assert!(queue.wq_sf(t)? <= queue.w_sf(t)? * (1.0 + ULPS));
    let wait = queue.wq_quantile(p)?;
    if 0.0 < wait {
        // An error of one unit in t moves the tail by t times its decay.
        close(queue.wq_sf(wait)?, 1.0 - p, 1e-12)?;
    } else {
        prop_assert!(p <= queue.wq_cdf(0.0)? + 1e-15);
    }
    let response = queue.w_quantile(p)?;
    close(queue.w_sf(response)?, 1.0 - p, 1e-12)?;
    close(queue.w_cdf(response)?, p, 1e-12)?;
    prop_assert!(wait <= response);
    Ok(())
}

/// An M/M/c load as (λ, μ, c) with ρ from 0 to just below 1.
fn loaded() -> impl Strategy<Value = (f64, f64, u64)> {
    let rho = prop_oneof![0.0..1.0_f64, (0.0..12.0_f64).prop_map(|x| 1.0 - 10_f64.powf(-x))];
    (rho, 1e-3..1e3_f64, prop_oneof![1..40_u64, 1..20_000_u64])
        .prop_map(|(rho, mu, c)| (rho * mu * c as f64, mu, c))
        .prop_filter("stable", |(lambda, mu, c)| *lambda < *mu * *c as f64 * (1.0 - 1e-15))
}

proptest! {
    #[test]
    fn mm1_obeys_little((lambda, mu, _) in loaded()) {
        let lambda = lambda % mu;
        obeys_little(&Mm1::new(lambda, mu)?, 1.0 / mu)?;
    }

    #[test]
    fn mmc_obeys_little((lambda, mu, c) in loaded()) {
        obeys_little(&Mmc::new(lambda, mu, c)?, 1.0 / mu)?;
    }

    #[test]
    fn mg1_obeys_little(rho in 0.0..0.999_999_f64, mean in 1e-3..1e3_f64, cv in 0.0..20.0_f64) {
        obeys_little(&Mg1::from_cv(rho / mean, mean, cv)?, mean)?;
    }

    #[test]
    fn waits_of_mm1_are_distributed((lambda, mu, _) in loaded(), t in 0.0..20.0_f64, p in 0.0..1.0_f64) {
        let lambda = lambda % mu;
        let queue = Mm1::new(lambda, mu)?;
        distributes(&queue, t * queue.w(), p)?;
    }

    #[test]
    fn waits_of_mmc_are_distributed(
        (lambda, mu, c) in loaded(),
        t in 0.0..20.0_f64,
        p in prop_oneof![0.0..1.0_f64, (0.0..14.0_f64).prop_map(|x| 1.0 - 10_f64.powf(-x)), (0.0..14.0_f64).prop_map(|x| 10_f64.powf(-x))],
    ) {
        let queue = Mmc::new(lambda, mu, c)?;
        prop_assume!(p < 1.0);
        distributes(&queue, t * queue.w(), p)?;
    }

    /// One server makes M/M/c an M/M/1: every answer, from a different formula.
    #[test]
    fn one_server_of_mmc_is_mm1(
        rho in prop_oneof![0.0..1.0_f64, (1.0..9.0_f64).prop_map(|x| 1.0 - 10_f64.powf(-x))],
        mu in 1e-3..1e3_f64,
        n in 0..2000_u64,
        t in 0.0..30.0_f64,
        p in 0.0..1.0_f64,
    ) {
        let (one, many) = (Mm1::new(rho * mu, mu)?, Mmc::new(rho * mu, mu, 1)?);
        close(many.utilization(), one.utilization(), ULPS)?;
        close(many.l(), one.l(), ULPS)?;
        close(many.lq(), one.lq(), ULPS)?;
        close(many.w(), one.w(), ULPS)?;
        close(many.wq(), one.wq(), ULPS)?;
        close(many.p0(), one.p0(), ULPS)?;
        close(many.p_wait(), one.p_wait(), ULPS)?;
        close(many.var_wq(), one.var_wq(), ULPS)?;
        close(many.var_w(), one.var_w(), ULPS)?;
        close(many.var_nq(), one.var_nq(), ULPS)?;
        // n powers of ρ carry n roundings of it.
        close(many.pn(n)?, one.pn(n)?, ULPS * (1.0 + n as f64))?;
        let t = t * one.w();
        close(many.wq_sf(t)?, one.wq_sf(t)?, ULPS * (1.0 + 30.0))?;
        close(many.w_sf(t)?, one.w_sf(t)?, ULPS * (1.0 + 30.0))?;
        // Each cdf has all its digits; what differs is the rounding of ρ in 1 − C.
        close(many.w_cdf(t)?, one.w_cdf(t)?, 1e-13)?;
        close(many.w_quantile(p)?, one.w_quantile(p)?, 1e-13)?;
    }

    #[test]
    fn exponential_service_makes_mg1_an_mm1(rho in 0.0..0.999_999_f64, mu in 1e-3..1e3_f64) {
        let mm1 = Mm1::new(rho * mu, mu)?;
        for mg1 in [Mg1::from_cv(rho * mu, 1.0 / mu, 1.0)?, Mg1::new(rho * mu, ServiceMoments::exp(1.0 / mu))?] {
            // 1 / μ is rounded, which 1 − ρ magnifies.
            let relative = 1e-15 / mm1.p0() + ULPS;
            close(mg1.l(), mm1.l(), relative)?;
            close(mg1.lq(), mm1.lq(), relative)?;
            close(mg1.w(), mm1.w(), relative)?;
            close(mg1.wq(), mm1.wq(), relative)?;
        }
        let mg1 = Mg1::new(rho * mu, ServiceMoments::exp(1.0 / mu))?;
        let relative = 4e-15 / mm1.p0() + ULPS;
        close(mg1.var_wq().unwrap(), mm1.var_wq(), relative)?;
        close(mg1.var_w().unwrap(), mm1.var_w(), relative)?;
    }

    /// B falls with every server and rises with the load.
    #[test]
    fn erlang_b_falls_with_servers_and_rises_with_load(c in 0..3000_u64, a in 1e-3..4000.0_f64) {
        let b = erlang_b(c, a)?;
        // Subnormal values have too few digits to tell neighbours apart.
        let next = erlang_b(c + 1, a)?;
        prop_assert!(next < b || next <= b && b < 1e-300);
        prop_assert!(b <= erlang_b(c, a * 1.001)?);
        prop_assert!(ln_erlang_b(c + 1, a)? < ln_erlang_b(c, a)?);
    }

    /// B(c) = a B(c − 1) / (c + a B(c − 1)) between neighbours that start their recursions apart.
    #[test]
    fn erlang_b_obeys_its_recursion(c in 1..200_000_u64, spread in -30.0..30.0_f64) {
        let servers = c as f64;
        let a = servers * (spread / servers.sqrt()).exp();
        let before = erlang_b(c - 1, a)?;
        close(erlang_b(c, a)?, a * before / (c as f64 + a * before), 2e-13)?;
    }

    /// The sums of the textbook, term by term, with all terms positive.
    #[test]
    fn erlang_is_the_textbooks_sum(c in 1..120_u64, a in 1e-3..100.0_f64) {
        let mut term = 1.0;
        let mut sum = 0.0;
        for k in 1..=c {
            sum += term;
            term *= a / k as f64;
        }
        prop_assume!(1e-290 < term);
        close(erlang_b(c, a)?, term / (sum + term), 1e-13)?;
        close(ln_erlang_b(c, a)?, (term / (sum + term)).ln(), 1e-13)?;
        let servers = c as f64;
        if a < servers {
            let waiting = term * servers / (servers - a);
            close(erlang_c(c, a)?, waiting / (sum + waiting), 1e-13)?;
            // (λ, μ) = (a, 1): the states' probabilities from the same sum.
            let queue = Mmc::new(a, 1.0, c)?;
            close(queue.p0(), 1.0 / (sum + waiting), 1e-13)?;
            close(queue.pn(c)?, term / (sum + waiting), 1e-13)?;
        }
    }

    /// The logarithms go on where the values end, and agree with them before.
    #[test]
    fn logarithms_agree_with_the_values(c in 1..5000_u64, load in 1e-6..0.999_999_f64) {
        let a = load * c as f64;
        for (ln, value) in [(ln_erlang_b(c, a)?, erlang_b(c, a)?), (ln_erlang_c(c, a)?, erlang_c(c, a)?)] {
            if f64::MIN_POSITIVE <= value {
                prop_assert!((ln - value.ln()).abs() <= 1e-12 + 1e-15 * ln.abs());
            } else {
                prop_assert!(ln.is_finite() && ln < -708.0);
            }
        }
    }

    /// ln B(c) − ln B(c − 1) = ln(a / c) far below what f64 holds, where Stirling's formula serves.
    #[test]
    fn the_logarithm_obeys_the_recursion_beyond_underflow(c in 2000..2_000_000_u64, a in 1e-3..1000.0_f64) {
        let step = ln_erlang_b(c, a)? - ln_erlang_b(c - 1, a)?;
        let want = (a / c as f64).ln();
        let size = ln_erlang_b(c, a)?.abs();
        prop_assert!((step - want).abs() <= 4e-15 * size, "{step} {want}");
    }

    /// The probabilities of all states add up to 1, and their mean is L.
    #[test]
    fn states_add_up(rho in 0.0..0.95_f64, c in 1..300_u64) {
        let queue = Mmc::new(rho * c as f64, 1.0, c)?;
        let mut total = 0.0;
        let mut mean = 0.0;
        // Beyond c + 800 less than 0.95^800, 1e-18, is left.
        for n in 0..c + 800 {
            let p = queue.pn(n)?;
            total += p;
            mean += n as f64 * p;
        }
        close(total, 1.0, 1e-12)?;
        close(mean, queue.l(), 1e-11)?;
        let one = Mm1::new(rho, 1.0)?;
        let total: f64 = (0..1000).map(|n| one.pn(n)).sum::<Result<f64, _>>()?;
        close(total, 1.0, 1e-12)?;
    }

    /// The rate that a target needs meets it exactly, and a smaller one does not.
    #[test]
    fn service_rates_meet_their_target(lambda in 1e-3..1e3_f64, p in 0.01..0.9999_f64, t in 1e-3..1e3_f64) {
        // Rounding μ moves μ − λ by half a unit of μ, which is all that the targets are made of.
        let relative = |mu: f64| ULPS + f64::EPSILON * (mu * t + mu / (mu - lambda));
        let mu = mm1_service_rate_for_mean_response(lambda, t)?;
        close(Mm1::new(lambda, mu)?.w(), t, relative(mu))?;
        let mu = mm1_service_rate_for_response_quantile(lambda, p, t)?;
        close(Mm1::new(lambda, mu)?.w_quantile(p)?, t, relative(mu))?;
        let mu = mm1_service_rate_for_wait_quantile(lambda, p, t)?;
        close(Mm1::new(lambda, mu)?.wq_sf(t)?, 1.0 - p, relative(mu))?;
        // And back: the largest arrival rate at that service rate is the one we came from.
        close(mm1_max_rate_for_wait_quantile(mu, p, t)?, lambda, relative(mu))?;
        let mu = mm1_service_rate_for_mean_wait(lambda, t)?;
        close(Mm1::new(lambda, mu)?.wq(), t, relative(mu))?;
        close(mm1_max_rate_for_mean_wait(mu, t)?, lambda, relative(mu))?;
    }

    #[test]
    fn arrival_rates_meet_their_target(mu in 1e-3..1e3_f64, p in 0.01..0.9999_f64, services in 1.001..100.0_f64) {
        let w = services / mu;
        let lambda = mm1_max_rate_for_mean_response(mu, w)?;
        close(Mm1::new(lambda, mu)?.w(), w, 1e-9)?;
        let t = services * Mm1::new(0.0, mu)?.w_quantile(p)?;
        let lambda = mm1_max_rate_for_response_quantile(mu, p, t)?;
        close(Mm1::new(lambda, mu)?.w_quantile(p)?, t, 1e-9)?;
    }

    #[test]
    fn union_bound_splits_and_adds_up(p in 0.0..1.0_f64, parts in 1..50_usize) {
        let each = quantile_per_part(p, parts as u64)?;
        prop_assert!((quantile_of_sum(&vec![each; parts])? - p).abs() <= 1e-14);
    }

    /// The three directions of Little's law undo each other.
    #[test]
    fn little_turns_round(lambda in 1e-6..1e6_f64, w in 1e-6..1e6_f64) {
        let l = little::l(lambda, w)?;
        close(little::lambda(l, w)?, lambda, ULPS)?;
        close(little::w(l, lambda)?, w, ULPS)?;
    }
}

/// Any bit pattern, with the odd ones more often than one in 2^52.
fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => any::<u64>().prop_map(f64::from_bits),
        2 => prop::sample::select(vec![
            0.0, -0.0, 1.0, -1.0, 0.5, 1.0 - f64::EPSILON / 2.0, 1.0 + f64::EPSILON, f64::MAX,
            f64::MIN, f64::MIN_POSITIVE, 5e-324, -5e-324, f64::INFINITY, f64::NEG_INFINITY,
            f64::NAN, 1e-50, 1e50, 1e24, 1e25, 1e100, 1e-100,
        ]),
        4 => 0.0..1.0_f64,
        2 => 0.0..1e9_f64,
        2 => (-60.0..60.0_f64).prop_map(|x| 10_f64.powf(x)),
    ]
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..100_u64,
        0..1_000_000_u64,
        prop::sample::select(vec![
            0,
            1,
            2,
            999_999_999,
            1_000_000_000,
            1_000_000_001,
            u64::MAX - 1,
            u64::MAX,
        ]),
    ]
}

/// A value from `low` to `high` (so no NaN), or an error with a message in words.
fn sound(
    what: &str,
    result: &Result<f64, QueueError>,
    low: f64,
    high: f64,
) -> Result<(), TestCaseError> {
    match result {
        Ok(x) => prop_assert!(low <= *x && *x <= high, "{what} gives {x}"),
        Err(QueueError::NotConverged { .. }) => prop_assert!(false, "{what}: {result:?}"),
        Err(e) => prop_assert!(e.to_string().contains(", got "), "{what}: {e}"),
    }
    Ok(())
}

const ANY: f64 = f64::INFINITY;

fn sound_means(queue: &impl Queue, n: u64) -> Result<(), TestCaseError> {
    sound_means_from(queue, n, 1)
}

/// The means of a queue whose jobs come from several streams, each of at most the largest rate.
fn sound_means_from(queue: &impl Queue, n: u64, streams: u64) -> Result<(), TestCaseError> {
    let most = 1e50 * streams as f64 * (1.0 + ULPS);
    for (what, x, high) in [
        ("rho", queue.utilization(), 1.0),
        ("l", queue.l(), ANY),
        ("lq", queue.lq(), ANY),
        ("w", queue.w(), ANY),
        ("wq", queue.wq(), ANY),
        ("p0", queue.p0(), 1.0 + ULPS),
        ("throughput", queue.throughput(), most),
        ("p_wait", queue.p_wait(), 1.0),
    ] {
        prop_assert!(0.0 <= x && x <= high, "{what} gives {x}");
    }
    sound("pn", &queue.pn(n), 0.0, 1.0 + ULPS)
}

fn sound_waits(queue: &impl WaitDistribution, t: f64, p: f64) -> Result<(), TestCaseError> {
    sound("wq_cdf", &queue.wq_cdf(t), 0.0, 1.0 + ULPS)?;
    sound("wq_sf", &queue.wq_sf(t), 0.0, 1.0)?;
    sound("wq_quantile", &queue.wq_quantile(p), 0.0, ANY)?;
    sound("w_cdf", &queue.w_cdf(t), 0.0, 1.0 + ULPS)?;
    sound("w_sf", &queue.w_sf(t), 0.0, 1.0)?;
    sound("w_quantile", &queue.w_quantile(p), 0.0, ANY)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Every public function: a value in its range or a typed error, never NaN, never a panic.
    #[test]
    fn no_input_gives_nan_or_a_panic(
        (x, y, z) in (anything(), anything(), anything()),
        (c, n) in (any_count(), any_count()),
    ) {
        sound("erlang_b", &erlang_b(c, x), 0.0, 1.0)?;
        sound("erlang_c", &erlang_c(c, x), 0.0, 1.0)?;
        sound("ln_erlang_b", &ln_erlang_b(c, x), -ANY, 0.0)?;
        sound("ln_erlang_c", &ln_erlang_c(c, x), -ANY, 0.0)?;
        sound("offered_load", &offered_load(x, y), 0.0, f64::MAX)?;
        sound("utilization", &utilization(x, y, c), 0.0, 1.0)?;
        sound("little::l", &little::l(x, y), 0.0, f64::MAX)?;
        sound("little::lambda", &little::lambda(x, y), 0.0, f64::MAX)?;
        sound("little::w", &little::w(x, y), 0.0, f64::MAX)?;
        if let Ok(queue) = Mm1::new(x, y) {
            sound_means(&queue, n)?;
            sound_waits(&queue, z, z)?;
            for x in [queue.var_n(), queue.var_nq(), queue.var_w(), queue.var_wq()] {
                prop_assert!(0.0 <= x && x <= f64::MAX);
            }
        }
        if let Ok(queue) = Mmc::new(x, y, c) {
            sound_means(&queue, n)?;
            sound_waits(&queue, z, z)?;
        }
        let moments = |third| ServiceMoments { mean: y, scv: z, third: Some(third) };
        let queues = [Mg1::from_cv(x, y, z), Mg1::new(x, moments(x)), Mg1::new(x, moments(ANY))];
        for queue in queues.into_iter().flatten() {
            sound_means(&queue, n)?;
            for x in [queue.var_wq(), queue.var_w()].into_iter().flatten() {
                prop_assert!(0.0 <= x, "{x}");
            }
        }
        for (what, result) in [
            ("mm1_l", mm1_l(x, y)),
            ("mm1_lq", mm1_lq(x, y)),
            ("mm1_w", mm1_w(x, y)),
            ("mm1_wq", mm1_wq(x, y)),
            ("mm1_pn", mm1_pn(x, y, n)),
            ("mm1_wq_sf", mm1_wq_sf(x, y, z)),
            ("mm1_w_sf", mm1_w_sf(x, y, z)),
            ("mm1_wq_quantile", mm1_wq_quantile(x, y, z)),
            ("mm1_w_quantile", mm1_w_quantile(x, y, z)),
            ("mmc_wq", mmc_wq(x, y, c)),
            ("mmc_w", mmc_w(x, y, c)),
            ("mmc_lq", mmc_lq(x, y, c)),
            ("mmc_l", mmc_l(x, y, c)),
            ("mmc_wq_sf", mmc_wq_sf(x, y, c, z)),
            ("mmc_wq_quantile", mmc_wq_quantile(x, y, c, z)),
            ("mg1_wq", mg1_wq(x, y, z)),
            ("mg1_w", mg1_w(x, y, z)),
            ("mg1_lq", mg1_lq(x, y, z)),
            ("mg1_l", mg1_l(x, y, z)),
            ("for_mean_response", mm1_service_rate_for_mean_response(x, y)),
            ("for_mean_wait", mm1_service_rate_for_mean_wait(x, y)),
            ("for_response_quantile", mm1_service_rate_for_response_quantile(x, z, y)),
            ("for_wait_quantile", mm1_service_rate_for_wait_quantile(x, z, y)),
            ("max_for_mean_response", mm1_max_rate_for_mean_response(x, y)),
            ("max_for_mean_wait", mm1_max_rate_for_mean_wait(x, y)),
            ("max_for_response_quantile", mm1_max_rate_for_response_quantile(x, z, y)),
            ("max_for_wait_quantile", mm1_max_rate_for_wait_quantile(x, z, y)),
            ("quantile_per_part", quantile_per_part(z, c)),
            ("quantile_of_sum", quantile_of_sum(&[x, y, z])),
            ("quantile_of_none", quantile_of_sum(&[])),
        ] {
            sound(what, &result, 0.0, ANY)?;
        }
    }

    /// A rate that an inverse gives can always be run, even where rounding eats the difference.
    #[test]
    fn inverses_give_stable_queues((x, y, p) in (anything(), anything(), anything())) {
        for mu in [
            mm1_service_rate_for_mean_response(x, y),
            mm1_service_rate_for_mean_wait(x, y),
            mm1_service_rate_for_response_quantile(x, p, y),
            mm1_service_rate_for_wait_quantile(x, p, y),
        ] {
            if let Ok(mu) = mu && (1e-50..=1e50).contains(&mu) {
                prop_assert!(Mm1::new(x, mu).is_ok(), "{x:e} {mu:e}");
            }
        }
        for lambda in [
            mm1_max_rate_for_mean_response(x, y),
            mm1_max_rate_for_mean_wait(x, y),
            mm1_max_rate_for_response_quantile(x, p, y),
            mm1_max_rate_for_wait_quantile(x, p, y),
        ]
        .into_iter()
        .flatten()
        {
            prop_assert!(Mm1::new(lambda, x).is_ok(), "{lambda:e} {x:e}");
        }
    }
}

/// An M/M/c/K system at any load.
fn limited() -> impl Strategy<Value = (f64, f64, u64, u64)> {
    let rho = prop_oneof![
        0.01..3.0_f64,
        (1.0..14.0_f64).prop_map(|x| 1.0 - 10_f64.powf(-x)),
        (1.0..14.0_f64).prop_map(|x| 1.0 + 10_f64.powf(-x)),
        Just(1.0),
    ];
    (rho, 1e-3..1e3_f64, prop_oneof![1..8_u64, 1..200_u64], prop_oneof![0..10_u64, 0..500_u64])
        .prop_map(|(rho, mu, c, room)| (rho * mu * c as f64, mu, c, c + room))
}

/// As [`distributes`] for distributions with an atom at 0 and their quantile by search.
fn searched(queue: &impl WaitDistribution, t: f64, p: f64) -> Result<(), TestCaseError> {
    close(queue.wq_cdf(t)? + queue.wq_sf(t)?, 1.0, 1e-12)?;
    close(queue.w_cdf(t)? + queue.w_sf(t)?, 1.0, 1e-12)?;
    prop_assert!(queue.wq_sf(t)? <= queue.w_sf(t)? * (1.0 + 1e-12));
    let wait = queue.wq_quantile(p)?;
    if 0.0 < wait {
        close(queue.wq_sf(wait)?, 1.0 - p, 1e-10)?;
    } else {
        prop_assert!(p <= queue.wq_cdf(0.0)? + 1e-14);
    }
    let response = queue.w_quantile(p)?;
    close(queue.w_sf(response)?, 1.0 - p, 1e-10)?;
    close(queue.w_cdf(response)?, p, 1e-10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn mmck_obeys_little_with_the_jobs_let_in((lambda, mu, c, k) in limited()) {
        let queue = MmcK::new(lambda, mu, c, k)?;
        obeys_little_loosely(&queue, 1.0 / mu)?;
        close(queue.throughput(), lambda * (1.0 - queue.p_block()), 1e-11)?;
    }

    /// The closed forms against the chain, state by state.
    #[test]
    fn mmck_is_its_birth_death_chain((lambda, mu, c, k) in limited()) {
        let queue = MmcK::new(lambda, mu, c, k)?;
        let births = vec![lambda; usize::try_from(k)?];
        let deaths: Vec<f64> = (1..=k).map(|n| n.min(c) as f64 * mu).collect();
        let chain = BirthDeath::new(&births, &deaths)?;
        close(queue.p_block(), chain.pn(k), 1e-11)?;
        close(queue.l(), chain.mean(), 1e-11)?;
        close(queue.p0(), chain.pn(0), 1e-11)?;
        for n in [0, c / 2, c, k / 2, k] {
            close(queue.pn(n)?, chain.pn(n), 1e-11)?;
        }
        prop_assert_eq!(queue.pn(k + 1)?, 0.0);
    }

    #[test]
    fn waits_of_mmck_are_distributed((lambda, mu, c, k) in limited(), t in 0.0..5.0_f64, p in 1e-6..0.999_999_f64) {
        let queue = MmcK::new(lambda, mu, c, k)?;
        searched(&queue, t * queue.w(), p)?;
    }

    /// The mean wait is the area under its survival function.
    #[test]
    fn the_area_under_the_tail_is_the_mean((lambda, mu, c, k) in limited()) {
        let queue = MmcK::new(lambda, mu, c, k)?;
        prop_assume!(1e-6 < queue.p_wait());
        let steps = 4000;
        let step = |end: f64| end / f64::from(steps);
        let (g, h) = (step(queue.wq_quantile(1.0 - 1e-10)?), step(queue.w_quantile(1.0 - 1e-10)?));
        let (mut wait, mut response) = (0.0, 0.0);
        for i in 0..=steps {
            // Simpson's rule.
            let weight = if i == 0 || i == steps { 1.0 } else { 2.0 + 2.0 * f64::from(i % 2) };
            wait += weight * queue.wq_sf(g * f64::from(i))?;
            response += weight * queue.w_sf(h * f64::from(i))?;
        }
        close(wait * g / 3.0, queue.wq(), 1e-4)?;
        close(response * h / 3.0, queue.w(), 1e-4)?;
    }

    /// With more and more room M/M/c/K becomes M/M/c.
    #[test]
    fn endless_room_is_mmc(rho in 0.01..0.95_f64, c in 1..100_u64, t in 0.0..3.0_f64) {
        let (limited, endless) =
            (MmcK::new(rho * c as f64, 1.0, c, c + 2000)?, Mmc::new(rho * c as f64, 1.0, c)?);
        close(limited.l(), endless.l(), 1e-11)?;
        close(limited.wq(), endless.wq(), 1e-11)?;
        close(limited.p0(), endless.p0(), 1e-11)?;
        close(limited.p_wait(), endless.p_wait(), 1e-11)?;
        let t = t * endless.w();
        close(limited.wq_sf(t)?, endless.wq_sf(t)?, 1e-11)?;
        close(limited.w_sf(t)?, endless.w_sf(t)?, 1e-11)?;
        let (a, b) = (limited.w_quantile(0.99)?, endless.w_quantile(0.99)?);
        close(a, b, 1e-11)?;
    }

    /// Without room M/M/c/K is Erlang's loss system.
    #[test]
    fn no_room_is_erlang_b(a in 1e-3..500.0_f64, c in 1..300_u64) {
        close(MmcK::new(a, 1.0, c, c)?.p_block(), erlang_b(c, a)?, 1e-13)?;
    }

    /// An endless patience makes M/M/c+M an M/M/c.
    #[test]
    fn endless_patience_is_mmc(rho in 0.01..0.9_f64, c in 1..100_u64, t in 0.0..3.0_f64) {
        let (a, b) =
            (ErlangA::new(rho * c as f64, 1.0, c, 1e-14)?, Mmc::new(rho * c as f64, 1.0, c)?);
        close(a.p_wait(), b.p_wait(), 1e-9)?;
        close(a.wq(), b.wq(), 1e-9)?;
        close(a.w(), b.w(), 1e-9)?;
        close(a.wq_sf(t)?, b.wq_sf(t)?, 1e-9)?;
    }

    /// M/M/c+M against its chain, and as M/M/∞ where patience is service.
    #[test]
    fn erlang_a_is_its_birth_death_chain(
        a in 0.1..120.0_f64, c in 1..60_u64, ln_theta in -2.0..3.0_f64,
    ) {
        let theta = ln_theta.exp();
        let queue = ErlangA::new(a, 1.0, c, theta)?;
        let n = 3000;
        let deaths: Vec<f64> =
            (1..=n).map(|n: u64| n.min(c) as f64 + n.saturating_sub(c) as f64 * theta).collect();
        let chain = BirthDeath::new(&vec![a; deaths.len()], &deaths)?;
        close(queue.l(), chain.mean(), 1e-11)?;
        close(queue.p0(), chain.pn(0), 1e-11)?;
        close(queue.p_wait(), chain.states()[usize::try_from(c)?..].iter().sum(), 1e-11)?;
        for n in [c / 2, c, c + 3, c + 90] {
            close(queue.pn(n)?, chain.pn(n), 1e-11)?;
        }
        close(queue.throughput() + theta * queue.lq(), a, 1e-12)?;
        close(ErlangA::new(a, 1.0, c, 1.0)?.l(), a, 1e-12)?;
        let t = queue.wq_quantile(0.95)?;
        if 0.0 < t {
            close(queue.wq_sf(t)?, 1.0 - 0.95, 1e-12)?;
        }
        close(queue.offered_wait_sf(0.0)?, queue.p_wait(), 1e-13)?;
    }

    #[test]
    fn mmcn_obeys_little_and_distributes(
        alpha in 1e-3..10.0_f64, c in 1..20_u64, n in 1..80_u64, t in 0.0..4.0_f64, p in 1e-6..0.999_999_f64,
    ) {
        let queue = MmcN::new(alpha, 1.0, c, n)?;
        obeys_little_loosely(&queue, 1.0)?;
        // Idle sources send what is served.
        close(alpha * (n as f64 - queue.l()), queue.throughput(), 1e-9)?;
        searched(&queue, t * queue.w(), p)?;
    }

    /// Many sources at a low rate each are Poisson arrivals.
    #[test]
    fn many_sources_are_erlang_b(a in 0.1..20.0_f64, c in 1..30_u64) {
        let n = 9_000_000;
        let alpha = a / n as f64;
        for congestion in [engset_time_congestion(n, c, alpha)?, engset_call_congestion(n, c, alpha)?] {
            close(congestion, erlang_b(c, a)?, 1e-4)?;
        }
        prop_assert!(engset_call_congestion(50, c, a / 50.0)? < engset_time_congestion(50, c, a / 50.0)?);
    }

    /// The least number keeps the target, and one less does not; the largest rate lies at the edge.
    #[test]
    fn plans_are_exact(a in 0.01..3000.0_f64, p in 0.001..0.9_f64, t in 0.01..2.0_f64, kind in 0..5_usize) {
        let target = [
            Target::PWait(p),
            Target::MeanWait(t),
            Target::WaitQuantile { p, t },
            Target::ResponseQuantile { p, t: t + 7.0 },
            Target::Blocking(p),
        ][kind];
        let keeps = |c: u64| -> Result<bool, QueueError> {
            if target == Target::Blocking(p) {
                return Ok(erlang_b(c, a)? <= p * (1.0 + 1e-15));
            }
            let Ok(queue) = Mmc::new(a, 1.0, c) else { return Ok(false) };
            Ok(match target {
                Target::PWait(p) => queue.p_wait() <= p * (1.0 + 1e-15),
                Target::MeanWait(t) => queue.wq() <= t * (1.0 + 1e-15),
                Target::WaitQuantile { p, t } => queue.wq_sf(t)? <= (1.0 - p) * (1.0 + 1e-15),
                Target::ResponseQuantile { p, t } => queue.w_sf(t)? <= (1.0 - p) * (1.0 + 1e-15),
                _ => false,
            })
        };
        let c = min_servers(a, 1.0, &target)?;
        prop_assert!(keeps(c)?, "{c} servers miss {target:?} at {a}");
        prop_assert!(c == 1 || !keeps(c - 1)?, "{c} servers are one too many for {target:?} at {a}");
        let most = max_rate(1.0, c, &target)?;
        prop_assert!(a <= most * (1.0 + 1e-13), "{most} is less than {a}");
        prop_assert!(min_servers(most, 1.0, &target)? <= c);
        prop_assert!(c < min_servers(most * (1.0 + 1e-9), 1.0, &target)?);
        let parts = pooled_against_split(a, 1.0, 3, &target)?;
        prop_assert!(parts.pooled == c && c <= parts.split);
        let replicas = min_replicas(a, 1.0, 40, &target)?;
        prop_assert!(replicas.pooled <= replicas.split);
    }

    /// Whole and real numbers of servers agree, and the real ones lie between.
    #[test]
    fn real_servers_lie_between_whole_ones(c in 1..300_u64, share in 0.0..1.0_f64, rho in 0.01..4.0_f64) {
        let a = rho * c as f64;
        close(erlang_b_real(c as f64, a)?, erlang_b(c, a)?, 1e-13)?;
        let between = erlang_b_real(c as f64 + share, a)?;
        prop_assert!(erlang_b(c + 1, a)? <= between * (1.0 + 1e-13));
        prop_assert!(between <= erlang_b(c, a)? * (1.0 + 1e-13));
        // Below the least normal number the probability has lost digits, and its logarithm has not.
        if between.is_normal() {
            close(ln_erlang_b_real(c as f64 + share, a)?, between.ln(), 1e-12)?;
        }
        // The recursion holds for real numbers as well.
        let next = erlang_b_real(c as f64 + share + 1.0, a)?;
        close(next, a * between / (c as f64 + share + 1.0 + a * between), 2e-13)?;
    }
}

/// Little's law where the means come from different sums.
fn obeys_little_loosely(queue: &impl Queue, service: f64) -> Result<(), TestCaseError> {
    let lambda = queue.throughput();
    close(queue.l(), lambda * queue.w(), 1e-11)?;
    close(queue.lq(), lambda * queue.wq(), 1e-11)?;
    close(queue.l(), queue.lq() + lambda * service, 1e-11)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The finite models: a value in its range or a typed error, never NaN, never a panic.
    #[test]
    fn no_input_of_finite_models_gives_nan_or_a_panic(
        (x, y, z) in (anything(), anything(), anything()),
        (c, k) in (any_count(), any_count()),
        few in 1..300_u64,
    ) {
        sound("erlang_b_real", &erlang_b_real(x, y), 0.0, 1.0)?;
        sound("erlang_c_real", &erlang_c_real(x, y), 0.0, 1.0)?;
        sound("ln_erlang_b_real", &ln_erlang_b_real(x, y), -ANY, 0.0)?;
        if let Ok(queue) = MmcK::new(x, y, c, k) {
            sound_means(&queue, k)?;
            sound_waits(&queue, z, z)?;
            prop_assert!(0.0 <= queue.p_block() && queue.p_block() <= 1.0);
            prop_assert!(0.0 <= queue.wq_given_wait());
        }
        if let Ok(queue) = MmcK::new(x, y, few, few + k % 1000) {
            sound_means(&queue, few)?;
            sound_waits(&queue, z, z)?;
        }
        if let Ok(queue) = ErlangA::new(x, y, c, z) {
            sound_means(&queue, k)?;
            sound("wq_sf", &queue.wq_sf(y), 0.0, 1.0)?;
            sound("wq_cdf", &queue.wq_cdf(y), 0.0, 1.0)?;
            sound("wq_quantile", &queue.wq_quantile(0.9), 0.0, ANY)?;
            prop_assert!(0.0 <= queue.p_abandon() && queue.p_abandon() <= 1.0);
        }
        if let Ok(queue) = MmcN::new(x, y, c, few) {
            sound_means_from(&queue, k, few)?;
            sound_waits(&queue, z, z)?;
        }
        if let Ok(system) = MmInf::new(x, y) {
            sound_means(&system, k)?;
            sound_waits(&system, z, z)?;
            sound("n_cdf", &system.n_cdf(k), 0.0, 1.0)?;
            sound("n_sf", &system.n_sf(k), 0.0, 1.0)?;
            let _ = system.n_quantile(z);
        }
        if let Ok(chain) = BirthDeath::new(&[x, y, z], &[y, z, x]) {
            prop_assert!(0.0 <= chain.mean() && chain.mean() <= 3.0);
            prop_assert!(0.0 <= chain.variance());
        }
        sound("time", &engset_time_congestion(few, c, x), 0.0, 1.0)?;
        sound("call", &engset_call_congestion(few, c, x), 0.0, 1.0)?;
        sound("carried", &engset_carried_load(few, c, x), 0.0, 1e9)?;
        sound("halfin_whitt", &halfin_whitt(x), 0.0, 1.0)?;
        for target in [
            Target::PWait(z),
            Target::MeanWait(z),
            Target::WaitQuantile { p: z, t: x },
            Target::ResponseQuantile { p: z, t: x },
            Target::Blocking(z),
        ] {
            if let Ok(n) = min_servers(x, y, &target) {
                prop_assert!(1 <= n);
            }
            sound("max_rate", &max_rate(y, c, &target), 0.0, ANY)?;
            let _ = pooled_against_split(x, y, few, &target);
            let _ = square_root_staffing(x, z);
        }
    }
}
