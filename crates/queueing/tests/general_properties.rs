//! Identities of the queues with general service, batches and approximations, the faults that
//! public tools have with them, and inputs that no model was made for.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test's helpers fail as its tests do, and its counts are small"
)]

use proptest::prelude::*;
use queueing::approx::{
    allen_cunneen, burst_factor, daley_upper_bound, gap_scv, kingman_upper_bound, kingman_vut, klb,
    klb_qna, sakasegawa, wait_factor, whitt_gim, whitt_phi,
};
use queueing::batch::{BatchRule, BatchSize};
use queueing::closed::{interactive_response, interactive_throughput, saturation_clients};
use queueing::gim1::Gaps;
use queueing::lps::{Autoscaler, ServingLaw};
use queueing::mg1_priority::{Discipline, PriorityClass};
use queueing::mph1::PhaseType;
use queueing::{
    BatchArrivals, BatchCapped, BatchLinear, BulkMmK, Closed, GiM1, LpsStateDependent, MPh1, Md1,
    Mdc, Mg1, Mg1Priority, Mg1Ps, Mm1, Mmc, Queue, QueueError, ServiceLaw, ServiceMoments,
    TokenLaw, WaitDistribution,
};

fn close(got: f64, want: f64, relative: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (got - want).abs() <= relative * want.abs() + f64::MIN_POSITIVE,
        "{got:e} is not {want:e} within {relative:e}"
    );
    Ok(())
}

fn obeys_little(queue: &impl Queue) -> Result<(), TestCaseError> {
    let lambda = queue.throughput();
    close(queue.l(), lambda * queue.w(), 1e-13)?;
    close(queue.lq(), lambda * queue.wq(), 1e-13)
}

/// cdf and survival add up to 1, and the quantile inverts both.
fn distributes(queue: &impl WaitDistribution, t: f64, p: f64) -> Result<(), TestCaseError> {
    close(queue.wq_cdf(t)? + queue.wq_sf(t)?, 1.0, 1e-13)?;
    close(queue.w_cdf(t)? + queue.w_sf(t)?, 1.0, 1e-13)?;
    let wait = queue.wq_quantile(p)?;
    if 0.0 < wait {
        close(queue.wq_sf(wait)?, 1.0 - p, 1e-11)?;
    } else {
        prop_assert!(p <= queue.wq_cdf(0.0)? + 1e-15);
    }
    prop_assert!(wait <= queue.w_quantile(p)? * (1.0 + 1e-12));
    Ok(())
}

/// ρ up to a millionth below 1.
fn load() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..0.95_f64, (1.0..6.0_f64).prop_map(|x| 1.0 - 10_f64.powf(-x))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The sum over the walk against Pollaczek and Khinchine, up to 1 − 1e-6.
    #[test]
    fn one_server_of_mdc_has_the_mean_of_mg1(rho in load(), service in 1e-3..1e3_f64, t in 0.0..20.0_f64, p in 0.0..1.0_f64) {
        let lambda = rho / service;
        let queue = Md1::new(lambda, service)?;
        let mg1 = Mg1::new(lambda, ServiceMoments::det(service))?;
        close(queue.wq(), mg1.wq(), 1e-13)?;
        close(queue.var_wq(), mg1.var_wq().unwrap(), 1e-12)?;
        obeys_little(&queue)?;
        // Variance by the walk, and by Takács; 1 − ρ carries the rounding of λ.
        let same = Mdc::new(lambda, service, 1)?;
        close(same.var_wq(), queue.var_wq(), 1e-12 + 1e-15 / queue.p0())?;
        distributes(&queue, t * queue.w(), p)?;
    }

    #[test]
    fn mdc_obeys_its_identities(rho in load(), c in 1..60_u64, t in 0.0..10.0_f64, p in 0.0..1.0_f64) {
        let queue = Mdc::new(rho * c as f64, 1.0, c)?;
        obeys_little(&queue)?;
        distributes(&queue, t * (0.1 + queue.wq()), p)?;
        // What waits at the start is what more than c in the system means.
        let below: f64 = (0..c).map(|n| queue.pn(n)).sum::<Result<f64, _>>()?;
        close(below, queue.wq_cdf(0.0)?, 1e-11)?;
        // Constant service waits less than exponential service, and more than half as long.
        let mmc = Mmc::new(rho * c as f64, 1.0, c)?.wq();
        prop_assert!(queue.wq() <= mmc && 0.5 * mmc <= queue.wq() * (1.0 + 1e-12));
    }

    /// Integrating the survival function gives the mean: Simpson over the bulk of the wait.
    #[test]
    fn the_tail_of_mdc_has_its_mean(rho in 0.1..0.95_f64, c in 1..12_u64) {
        let queue = Mdc::new(rho * c as f64, 1.0, c)?;
        let end = queue.wq_quantile(1.0 - 1e-12)?.ceil().max(1.0);
        // Kinks at whole services only: panels do not cross them.
        let panels = (16 * c as u32 + 32) * end as u32;
        let h = end / f64::from(panels);
        let mut sum = 0.0;
        for i in 0..panels {
            let t = f64::from(i) * h;
            // The survival jumps nowhere, so that both ends of a panel may be evaluated.
            sum += h / 6.0 * (queue.wq_sf(t)? + 4.0 * queue.wq_sf(t + 0.5 * h)? + queue.wq_sf(t + h)?);
        }
        close(sum, queue.wq(), 1e-7)?;
    }

    #[test]
    fn poisson_gaps_make_gim1_an_mm1(rho in load(), mu in 1e-3..1e3_f64, t in 0.0..20.0_f64, p in 0.0..1.0_f64) {
        let lambda = rho * mu;
        prop_assume!(lambda < mu);
        let mm1 = Mm1::new(lambda, mu)?;
        for gaps in [Gaps::Exp, Gaps::Erlang { k: 1 }, Gaps::Gamma { scv: 1.0 }, Gaps::Hyperexp { scv: 1.0 }] {
            let queue = GiM1::new(lambda, gaps, mu)?;
            let relative = 1e-12;
            close(queue.wq(), mm1.wq(), relative)?;
            close(queue.p_wait(), mm1.p_wait(), relative)?;
            close(queue.var_wq(), mm1.var_wq(), relative)?;
            obeys_little(&queue)?;
            distributes(&queue, t * queue.w(), p)?;
        }
    }

    /// σ solves its equation, at any load and variation.
    #[test]
    fn the_root_of_gim1_is_one(rho in 1e-3..0.999_f64, k in 1..200_u64) {
        let queue = GiM1::new(rho, Gaps::Erlang { k }, 1.0)?;
        let sigma = queue.p_wait();
        let k = k as f64;
        let transform = (1.0 + (1.0 - sigma) / (k * rho)).powf(-k);
        close(transform, sigma, 1e-9)?;
        let states: f64 = (0..4000).map(|n| queue.pn_arrival(n)).sum();
        prop_assert!(states <= 1.0 + 1e-12);
    }

    #[test]
    fn one_phase_makes_mph1_an_mm1(rho in 0.0..0.99_f64, mu in 1e-2..1e2_f64, t in 0.0..20.0_f64, p in 0.0..1.0_f64) {
        let (mm1, mph1) = (Mm1::new(rho * mu, mu)?, MPh1::new(rho * mu, PhaseType::erlang(1.0 / mu, 1)?)?);
        close(mph1.wq(), mm1.wq(), 1e-12)?;
        let t = t * mm1.w();
        close(mph1.wq_sf(t)?, mm1.wq_sf(t)?, 1e-11)?;
        close(mph1.w_sf(t)?, mm1.w_sf(t)?, 1e-11)?;
        close(mph1.w_cdf(t)?, mm1.w_cdf(t)?, 1e-11)?;
        distributes(&mph1, t, p)?;
    }

    /// The law of the service does not matter to processor sharing: its number is M/M/1's.
    #[test]
    fn processor_sharing_is_insensitive(rho in load(), mean in 1e-3..1e3_f64, n in 0..50_u64) {
        let (ps, mm1) = (Mg1Ps::new(rho / mean, mean)?, Mm1::new(rho / mean, 1.0 / mean)?);
        let relative = 1e-13 + 4e-15 / mm1.p0();
        close(ps.w(), mm1.w(), relative)?;
        close(ps.l(), mm1.l(), relative)?;
        close(ps.pn(n)?, mm1.pn(n)?, relative)?;
        obeys_little(&ps)?;
        // As many slots as anyone needs make limited sharing the same.
        if rho < 0.9 {
            let lps = LpsStateDependent::mm1(rho / mean, 1.0 / mean, 700)?;
            close(lps.w(), ps.w(), 1e-11)?;
            prop_assert!(lps.wq() <= 1e-20 * ps.w());
        }
    }

    /// Classes alike are one queue, whose mean wait they keep among them (work is conserved).
    #[test]
    fn priorities_conserve_work(loads in prop::collection::vec(0.0..0.3_f64, 1..4), means in prop::collection::vec(0.1..10.0_f64, 4), scv in 0.0..9.0_f64) {
        let classes: Vec<PriorityClass> = loads.iter().zip(&means).map(|(rho, &mean)| PriorityClass {
            lambda: rho / mean,
            service: ServiceMoments { mean, scv, third: None },
        }).collect();
        let queue = Mg1Priority::new(&classes)?;
        let rho: f64 = loads.iter().sum();
        let residual: f64 = classes.iter().map(|c| c.lambda * c.service.mean * c.service.mean * (1.0 + scv) / 2.0).sum();
        let head = queue.means(Discipline::NonPreemptive)?;
        let waiting: f64 = head.iter().map(|m| m.rho * m.wq).sum();
        close(waiting, rho * residual / (1.0 - rho), 1e-11)?;
        // The last class does not gain from being interrupted.
        let preempt = queue.means(Discipline::PreemptiveResume)?;
        prop_assert!(preempt[0].w <= head[0].w * (1.0 + 1e-12));
        let last = loads.len() - 1;
        prop_assert!(head[last].w <= preempt[last].w * (1.0 + 1e-12));
    }

    /// One slot is M/M/1, N slots with the rates of N servers are M/M/c.
    #[test]
    fn rates_of_servers_make_limited_sharing_an_mmc(rho in 0.0..0.999_f64, c in 1..50_u64, t in 0.0..5.0_f64) {
        let mmc = Mmc::new(rho * c as f64, 1.0, c)?;
        let rates: Vec<f64> = (1..=c).map(|n| n as f64).collect();
        let lps = LpsStateDependent::new(rho * c as f64, &rates, None)?;
        close(lps.wq(), mmc.wq(), 1e-11)?;
        close(lps.l(), mmc.l(), 1e-11)?;
        close(lps.p0(), mmc.p0(), 1e-11)?;
        close(lps.wq_sf(t)?, mmc.wq_sf(t)?, 1e-10)?;
        obeys_little(&lps)?;
        // A room that is never full is as good as none.
        if rho < 0.9 {
            let room = LpsStateDependent::new(rho * c as f64, &rates, Some(800))?;
            close(room.wq(), mmc.wq(), 1e-11)?;
            close(room.wq_sf(t)?, mmc.wq_sf(t)?, 1e-10)?;
            let p = room.wq_quantile(0.999)?;
            close(p.max(1e-9), mmc.wq_quantile(0.999)?.max(1e-9), 1e-9)?;
        }
    }

    /// A cap that is never reached is none, and a cap of 1 is M/D/1.
    #[test]
    fn batch_caps_have_their_limits(la in 0.01..0.5_f64, tau in 0.1..5.0_f64) {
        let free = BatchLinear::new(1.0, la, tau)?;
        let capped = BatchCapped::new(1.0, la, tau, 120)?;
        close(capped.w(), free.w(), 1e-11)?;
        close(capped.wq(), free.wq(), 1e-10)?;
        close(capped.mean_batch(), free.mean_batch(), 1e-11)?;
        prop_assert!(free.w() <= free.w_bound() * (1.0 + 1e-12));
        let lambda = 0.9 / (la + tau);
        let one = BatchCapped::new(lambda, la, tau, 1)?;
        close(one.wq(), Md1::new(lambda, la + tau)?.wq(), 1e-10)?;
    }

    /// A batch of at most one job is M/M/1, whatever the rule.
    #[test]
    fn bulk_service_of_one_is_mm1(rho in 0.0..0.999_f64, k in 1..64_u64) {
        let mm1 = Mm1::new(rho, 1.0)?;
        for rule in [BatchRule::Joinable, BatchRule::Full, BatchRule::Closed] {
            let one = BulkMmK::new(rho, 1.0, 1, rule)?;
            close(one.w(), mm1.w(), 1e-11)?;
            close(one.wq(), mm1.wq(), 1e-11)?;
            let many = BulkMmK::new(rho * k as f64, 1.0, k, rule)?;
            prop_assert!(0.0 <= many.wq() && many.w() < f64::INFINITY || rho == 0.0);
        }
        let single = BatchArrivals::new(rho, BatchSize::Constant(1), 1.0)?;
        close(single.w(), mm1.w(), 1e-12)?;
        close(single.wq(), mm1.wq(), 1e-12)?;
    }

    /// The laws that name the same distribution agree, and exponential service is M/M/1.
    #[test]
    fn laws_agree_with_each_other(rho in load(), mean in 1e-2..1e2_f64, cv in 0.1..5.0_f64) {
        let lambda = rho / mean;
        let wq = |law: ServiceLaw| Mg1::of_law(lambda, &law).map(|q| (q.wq(), q.var_wq().unwrap()));
        let exp = wq(ServiceLaw::Exp { mean })?;
        for law in [
            ServiceLaw::Erlang { mean, k: 1 },
            ServiceLaw::Gamma { shape: 1.0, scale: mean },
            ServiceLaw::Hyperexp { p: 0.3, rate1: 1.0 / mean, rate2: 1.0 / mean },
        ] {
            let (got, variance) = wq(law)?;
            let relative = 1e-13 + 4e-15 / (1.0 - rho);
            close(got, exp.0, relative)?;
            close(variance, exp.1, 2.0 * relative)?;
        }
        let sigma = (cv * cv).ln_1p().sqrt();
        let (a, b) = (
            wq(ServiceLaw::Lognormal { mean, cv })?,
            wq(ServiceLaw::LognormalOfLog { mu: mean.ln() - 0.5 * sigma * sigma, sigma })?,
        );
        close(a.0, b.0, 1e-12 + 1e-14 / (1.0 - rho))?;
    }

    /// A closed system obeys its own law and its asymptotic bounds.
    #[test]
    fn closed_systems_obey_their_law(n in 1..500_u64, demand in 1e-3..1e3_f64, think in 0.0..1e3_f64) {
        let queue = Closed::new(n, demand, think)?;
        let clients = n as f64;
        close(interactive_throughput(clients, queue.w(), think)?, queue.throughput(), 1e-12)?;
        prop_assert!(queue.throughput() * demand <= 1.0 + 1e-12);
        prop_assert!(queue.throughput() <= clients / (demand + think) * (1.0 + 1e-12));
        close(queue.l() + queue.thinking(), clients, 1e-12)?;
    }

    /// Poisson arrivals make each formula exact for one server.
    #[test]
    fn approximations_are_exact_where_they_must_be(rho in 0.01..0.99_f64, cs2 in 0.0..9.0_f64) {
        let exact = Mg1::new(rho, ServiceMoments { mean: 1.0, scv: cs2, third: None })?.wq();
        for formula in [kingman_vut, klb_qna, klb] {
            close(formula(rho, 1.0, cs2, 1.0)?, exact, 1e-12)?;
        }
        for formula in [allen_cunneen, sakasegawa] {
            close(formula(1, rho, 1.0, cs2, 1.0)?, exact, 1e-12)?;
        }
        prop_assert!(exact <= daley_upper_bound(rho, 1.0, cs2, 1.0)? * (1.0 + 1e-12));
        prop_assert!(daley_upper_bound(rho, 1.0, cs2, 1.0)? <= kingman_upper_bound(rho, 1.0, cs2, 1.0)? * (1.0 + 1e-12));
    }
}

fn near(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= relative * want.abs(), "{got} is not {want}");
}

/// The errors that the documentation of the approximations states, from the exact models.
#[test]
fn stated_errors_of_the_approximations_are_right() {
    let off = |approximate: f64, exact: f64| (approximate / exact - 1.0) * 100.0;
    let steady = |rho| GiM1::new(rho, Gaps::Det, 1.0).unwrap().wq();
    let bursty = |rho| GiM1::new(rho, Gaps::Hyperexp { scv: 4.0 }, 1.0).unwrap().wq();
    let vut = |rho, ca2| kingman_vut(rho, ca2, 1.0, 1.0).unwrap();
    near(off(vut(0.5, 0.0), steady(0.5)), 96.0, 0.01);
    near(off(vut(0.8, 0.0), steady(0.8)), 18.0, 0.02);
    near(off(vut(0.5, 4.0), bursty(0.5)), 15.6, 0.01);
    near(off(vut(0.8, 4.0), bursty(0.8)), 1.8, 0.05);
    assert!(off(klb_qna(0.5, 0.0, 1.0, 1.0).unwrap(), steady(0.5)).abs() < 0.75);
    let constant = Mdc::new(70.0, 1.0, 100).unwrap().wq();
    near(off(sakasegawa(100, 70.0, 1.0, 0.0, 1.0).unwrap(), constant), 1100.0, 0.1);
    let factor = |formula: fn(u64, f64, f64, f64, f64) -> Result<f64, QueueError>, least: f64| {
        let mut worst: f64 = 0.0;
        for c in [1_u64, 2, 3, 5, 8, 10, 20, 50, 100] {
            for rho in [0.7, 0.8, 0.9, 0.95, 0.99] {
                if least <= rho {
                    let a = rho * c as f64;
                    let exact = Mdc::new(a, 1.0, c).unwrap().wq();
                    worst = worst.min(off(formula(c, a, 1.0, 0.0, 1.0).unwrap(), exact));
                }
            }
        }
        worst
    };
    near(factor(allen_cunneen, 0.7), -38.0, 0.03);
    near(factor(allen_cunneen, 0.9), -12.0, 0.05);
    near(factor(whitt_gim, 0.7), -24.0, 0.03);
}

/// Published faults of other tools, and what is right.
#[test]
fn inputs_that_broke_other_tools_have_the_right_value() {
    // Q35: −6 of mean wait at ρ = 1.2.
    assert!(matches!(
        Mg1::of_law(1.2, &ServiceLaw::Exp { mean: 1.0 }),
        Err(QueueError::Unstable { .. })
    ));
    // Q02: no prompt and one output token are no service at all in the older laws.
    let law = ServingLaw::V1 { alpha: 12.0, beta: 0.05, gamma: 0.0, delta: 0.0005 };
    let error = Autoscaler::new(law, 0.0, 1.0, 48, 128).unwrap_err();
    assert_eq!(error.to_string(), "service must be above 0, got 0");
    // Q13: the number of servers in Sakasegawa's formula is not a rate.
    near(sakasegawa(2, 1.6, 1.0, 1.0, 1.0).unwrap(), 1.809_130_68, 1e-8);
    // Q11: a burst of b at once and steady arrivals are two formulas; the second does not know b.
    near(1.0 + kingman_vut(0.5, 1.0, 1.0, 1.0).unwrap(), 2.0, 1e-15);
    // Q19: one connection without pauses: N = X R.
    near(interactive_response(1.0, 17_924.0, 0.0).unwrap(), 55.79e-6, 1e-4);
    // Q37: one slot and no queue is a valid system.
    let law = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
    let state = Autoscaler::new(law, 128.0, 512.0, 1, 0).unwrap().at(0.05e-3).unwrap();
    near(state.chain.p0(), 0.760_846_938_3, 1e-10);
    near(state.throughput * 1e3, 0.038_042_346_91, 1e-9);
    // Q38: the law at HEAD, not the one of the README.
    let state = Autoscaler::new(law, 128.0, 512.0, 48, 128).unwrap().at(3e-3).unwrap();
    near(state.wait, 21.405_387_156_7, 1e-11);
    near(state.response, 10_348.367_477_9, 1e-11);
    // Single precision loses the wait at half load.
    let half = Autoscaler::new(law, 128.0, 512.0, 48, 128).unwrap();
    let state = half.at(half.max_rate().unwrap() / 2.0).unwrap();
    near(state.wait, 5.984_199_476e-5, 1e-9);
    // Q10: M/M/4 as a check of simulators.
    near(Mmc::new(1.2, 1.0, 4).unwrap().wq(), 0.013_232_050_967_9, 1e-11);
    near(Mmc::new(2.0, 1.0, 4).unwrap().wq(), 0.086_956_521_739_1, 1e-11);
    // Infinite second moment: the wait is infinite, and so is none without arrivals.
    let heavy = ServiceLaw::Pareto { alpha: 2.0, least: 0.1 };
    assert_eq!(Mg1::of_law(1.0, &heavy).unwrap().wq(), f64::INFINITY);
    assert_eq!(Mg1::of_law(0.0, &heavy).unwrap().wq(), 0.0);
}

/// Rows P15, P16, P21 and P22 of the published values; P18 to P20 stand with the tables.
#[test]
fn published_values_are_met() {
    let class = |lambda| PriorityClass { lambda, service: ServiceMoments::exp(1.0) };
    let queue = Mg1Priority::new(&[class(0.2), class(0.6)]).unwrap();
    let means = queue.means(Discipline::NonPreemptive).unwrap();
    near(means[0].w, 2.0, 1e-14);
    near(means[1].w, 6.0, 1e-14);
    // Ciw's capacitated sharing: three at most at full speed of their own.
    let shared = LpsStateDependent::new(10.0, &[12.0, 24.0, 36.0], None).unwrap();
    near(shared.p0(), 0.432_132_963_988_919_6, 1e-14);
    near(wait_factor(9.0, 2.25).unwrap(), 3.461_538_46, 1e-8);
    near(1.0 + kingman_vut(0.9, 0.18, 0.0, 1.0).unwrap(), 1.81, 1e-12);
}

/// Mean and P99 of the autoscaler's own example: what a target on the mean hides.
#[test]
fn a_mean_ttft_of_60_ms_has_a_p99_far_above() {
    let law = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
    let server = Autoscaler::new(law, 128.0, 512.0, 48, 128).unwrap();
    let rate = server.max_rate_for_ttft(60.0).unwrap();
    let state = server.at(rate).unwrap();
    let p99 = state.ttft_quantile(0.99).unwrap();
    near(state.chain.wq_sf(p99 - state.prefill - state.itl).unwrap(), 0.01, 1e-9);
    assert!(5.0 * state.ttft < p99, "{p99}");
    // A rate for the percentile itself is lower.
    let lower = server.max_rate_for_ttft_quantile(0.99, 60.0).unwrap();
    assert!(lower < rate);
    let state = server.at(lower).unwrap();
    near(state.ttft_quantile(0.99).unwrap(), 60.0, 1e-6);
}

#[test]
fn bursts_are_measured() {
    assert!(matches!(gap_scv(&[1.0]), Err(QueueError::NoSolution { .. })));
    assert!(matches!(gap_scv(&[0.0, 0.0]), Err(QueueError::NoSolution { .. })));
    assert!(burst_factor(&[0.0, 2.0, 1.0], 1.0).is_err());
    near(burst_factor(&[0.0, 1.0, 2.0, 3.0], 1.0).unwrap(), 0.5, 1e-15);
}

/// Any bit pattern, with the odd ones more often than one in 2^52.
fn anything() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => any::<u64>().prop_map(f64::from_bits),
        2 => prop::sample::select(vec![
            0.0, -0.0, 1.0, -1.0, 0.5, 1.0 - f64::EPSILON / 2.0, 1.0 + f64::EPSILON, f64::MAX,
            f64::MIN, f64::MIN_POSITIVE, 5e-324, -5e-324, f64::INFINITY, f64::NEG_INFINITY,
            f64::NAN, 1e-50, 1e50, 1e24, 1e25, 1e100, 1e-100,
        ]),
        5 => 0.0..1.0_f64,
        2 => 0.0..1e4_f64,
        2 => (-60.0..60.0_f64).prop_map(|x| 10_f64.powf(x)),
    ]
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => any::<u64>(),
        6 => 0..40_u64,
        1 => prop::sample::select(vec![0, 1, 2, u64::MAX]),
    ]
}

/// A value from `low` to `high` (so no NaN), or an error in words.
fn sound(
    what: &str,
    result: &Result<f64, QueueError>,
    low: f64,
    high: f64,
) -> Result<(), TestCaseError> {
    match result {
        Ok(x) => prop_assert!(low <= *x && *x <= high, "{what} gives {x}"),
        Err(e) => prop_assert!(e.to_string().contains(", got "), "{what}: {e}"),
    }
    Ok(())
}

const ANY: f64 = f64::INFINITY;

fn sound_means(queue: &impl Queue, n: u64) -> Result<(), TestCaseError> {
    for (what, x, high) in [
        ("rho", queue.utilization(), 1.0 + 1e-12),
        ("l", queue.l(), ANY),
        ("lq", queue.lq(), ANY),
        ("w", queue.w(), ANY),
        ("wq", queue.wq(), ANY),
        ("p0", queue.p0(), 1.0 + 1e-12),
        ("throughput", queue.throughput(), 1e50),
        ("p_wait", queue.p_wait(), 1.0 + 1e-12),
    ] {
        prop_assert!(0.0 <= x && x <= high, "{what} gives {x}");
    }
    sound("pn", &queue.pn(n), 0.0, 1.0 + 1e-12)
}

fn sound_waits(queue: &impl WaitDistribution, t: f64, p: f64) -> Result<(), TestCaseError> {
    sound("wq_cdf", &queue.wq_cdf(t), 0.0, 1.0 + 1e-12)?;
    sound("wq_sf", &queue.wq_sf(t), 0.0, 1.0 + 1e-12)?;
    sound("wq_quantile", &queue.wq_quantile(p), 0.0, ANY)?;
    sound("w_cdf", &queue.w_cdf(t), 0.0, 1.0 + 1e-12)?;
    sound("w_sf", &queue.w_sf(t), 0.0, 1.0 + 1e-12)?;
    sound("w_quantile", &queue.w_quantile(p), 0.0, ANY)
}

fn sound_all(what: &str, values: &[f64]) -> Result<(), TestCaseError> {
    for x in values {
        prop_assert!(0.0 <= *x, "{what} gives {values:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn no_input_gives_nan_or_a_panic(
        (x, y, z, v) in (anything(), anything(), anything(), anything()),
        (c, n) in (any_count(), any_count()),
    ) {
        let n = n.min(1 << 20);
        if let Ok(queue) = Md1::new(x, y) {
            sound_means(&queue, n)?;
            sound_waits(&queue, z, v)?;
            sound_all("var", &[queue.var_wq()])?;
        }
        // A load that is often stable.
        if let Ok(queue) = Mdc::new(x.fract() * c as f64, 1.0, c.min(60)) {
            sound_means(&queue, n)?;
            sound_waits(&queue, z, v)?;
            sound_all("var", &[queue.var_wq(), queue.var_nq(), queue.wq_given_wait()])?;
        }
        for gaps in [Gaps::Exp, Gaps::Det, Gaps::Erlang { k: c }, Gaps::Gamma { scv: z }, Gaps::Hyperexp { scv: z }] {
            if let Ok(queue) = GiM1::new(x, gaps, y) {
                sound_means(&queue, n)?;
                sound_waits(&queue, z, v)?;
                sound_all("var", &[queue.var_wq(), queue.var_w(), queue.pn_arrival(n)])?;
            }
        }
        for tokens in [TokenLaw::Geometric { q: x }, TokenLaw::Uniform { most: c }, TokenLaw::Lognormal { mu: x, sigma: y, most: c.min(1000) }] {
            if let Ok(m) = tokens.clipped(n) {
                sound_all("tokens", &[m.mean - 1.0 + 1e-12, m.second, m.third, m.clipped])?;
            }
            let law = ServiceLaw::ClippedTokens { base: y, per_token: z, tokens, n_max: n };
            if let Ok(queue) = Mg1::of_law(v, &law) {
                sound_means(&queue, n)?;
            }
        }
        for law in [
            ServiceLaw::Exp { mean: y },
            ServiceLaw::Det { mean: y },
            ServiceLaw::Erlang { mean: y, k: c },
            ServiceLaw::Gamma { shape: y, scale: z },
            ServiceLaw::Uniform { low: y, high: z },
            ServiceLaw::Lognormal { mean: y, cv: z },
            ServiceLaw::LognormalOfLog { mu: y, sigma: z },
            ServiceLaw::Hyperexp { p: v, rate1: y, rate2: z },
            ServiceLaw::Pareto { alpha: z, least: y },
            ServiceLaw::Geometric { q: z, unit: y },
        ] {
            if let Ok(queue) = Mg1::of_law(x, &law) {
                sound_means(&queue, n)?;
                sound_all("var", &[queue.var_wq().unwrap_or(0.0), queue.var_w().unwrap_or(0.0)])?;
            }
        }
        if let Ok(queue) = Mg1Ps::new(x, y) {
            sound_means(&queue, n)?;
            sound("given size", &queue.w_given_size(z), 0.0, ANY)?;
            sound("var given size", &queue.var_w_given_size_exp(z), 0.0, ANY)?;
            sound("n_sf", &queue.n_sf(z), 0.0, 1.0)?;
            sound_all("var", &[queue.var_w_exp(), queue.slowdown()])?;
        }
        let class = |lambda, mean, scv| PriorityClass { lambda, service: ServiceMoments { mean, scv, third: None } };
        if let Ok(queue) = Mg1Priority::new(&[class(x, y, z), class(z, v, x)]) {
            for discipline in [Discipline::NonPreemptive, Discipline::PreemptiveResume] {
                for k in 0..3 {
                    if let Ok(m) = queue.class(discipline, k) {
                        sound_all("class", &[m.rho, m.wq, m.w, m.lq, m.l])?;
                    }
                }
            }
        }
        for room in [None, Some(c.min(300))] {
            if let Ok(queue) = LpsStateDependent::new(x, &[y, z, v], room) {
                sound_means(&queue, n)?;
                sound("wq_sf", &queue.wq_sf(z), 0.0, 1.0)?;
                sound("wq_quantile", &queue.wq_quantile(v), 0.0, ANY)?;
                sound_all("lps", &[queue.p_block(), queue.service(), queue.in_service()])?;
            }
        }
        for law in [
            ServingLaw::V1 { alpha: x, beta: y, gamma: z, delta: v },
            ServingLaw::V2 { alpha: x, beta: y, gamma: z },
            ServingLaw::Chunked { alpha: x, beta: y, gamma: z },
        ] {
            if let Ok(server) = Autoscaler::new(law, v, x.abs() + 1.0, c.min(30), n.min(30)) {
                if let Ok(s) = server.at(z) {
                    sound_all("server", &[s.throughput, s.response, s.wait, s.in_service, s.service, s.prefill, s.itl, s.ttft, s.p_block])?;
                }
                if c < 4 {
                    sound("for ttft", &server.max_rate_for_ttft(x), 0.0, ANY)?;
                }
            }
        }
        if let Ok(queue) = BatchLinear::new(x, y, z) {
            sound_all("batch", &[queue.w(), queue.wq(), queue.l(), queue.mean_batch(), queue.utilization(), queue.phi1()])?;
        }
        if let Ok(queue) = BatchCapped::new(x, y, z, c.min(20)) {
            sound_all("capped", &[queue.w(), queue.wq(), queue.l(), queue.mean_batch(), queue.utilization()])?;
        }
        for rule in [BatchRule::Joinable, BatchRule::Full, BatchRule::Closed] {
            if let Ok(queue) = BulkMmK::new(x, y, c.min(50), rule) {
                sound_all("bulk", &[queue.r(), queue.p0(), queue.l(), queue.lq(), queue.w(), queue.wq()])?;
            }
        }
        for size in [BatchSize::Constant(c), BatchSize::Geometric(z)] {
            if let Ok(queue) = BatchArrivals::new(x, size, y) {
                sound_all("arrivals", &[queue.l(), queue.lq(), queue.w(), queue.wq(), queue.p0()])?;
            }
        }
        if let Ok(queue) = Closed::new(c.min(1000), x, y) {
            sound_all("closed", &[queue.w(), queue.wq(), queue.throughput(), queue.l(), queue.thinking()])?;
        }
        if let Ok(law) = PhaseType::hyperexponential(&[(x, y), (1.0 - x, z)])
            && let Ok(queue) = MPh1::new(v, law)
        {
            sound_means(&queue, n)?;
            sound_waits(&queue, z, x)?;
        }
        for (what, result) in [
            ("vut", kingman_vut(x, y, z, v)),
            ("upper", kingman_upper_bound(x, y, z, v)),
            ("daley", daley_upper_bound(x, y, z, v)),
            ("klb_qna", klb_qna(x, y, z, v)),
            ("klb", klb(x, y, z, v)),
            ("allen_cunneen", allen_cunneen(c, x, y, z, v)),
            ("sakasegawa", sakasegawa(c, x, y, z, v)),
            ("whitt", whitt_gim(c, x, y, z, v)),
            ("phi", whitt_phi(c, x, y, z)),
            ("factor", wait_factor(x, y)),
            ("scv", gap_scv(&[x, y, z])),
            ("burst", burst_factor(&[x, y, z], v)),
            ("response", interactive_response(x, y, z)),
            ("throughput", interactive_throughput(x, y, z)),
            ("saturation", saturation_clients(x, y)),
        ] {
            sound(what, &result, 0.0, ANY)?;
        }
    }
}
