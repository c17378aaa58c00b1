//! Little's law for every model, and quantiles that invert their distributions, over one list.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as its tests do")]

use proptest::prelude::*;
use queueing::batch::{BatchRule, BatchSize};
use queueing::gim1::Gaps;
use queueing::mg1_priority::{Discipline, PriorityClass};
use queueing::mph1::PhaseType;
use queueing::{
    BatchArrivals, BatchCapped, BatchLinear, BulkMmK, Closed, ErlangA, GiM1, LpsStateDependent,
    MPh1, Md1, Mdc, Mg1, Mg1Priority, Mg1Ps, Mm1, MmInf, Mmc, MmcK, MmcN, Queue, ServiceMoments,
    WaitDistribution,
};

fn close(what: &str, got: f64, want: f64, relative: f64) -> Result<(), TestCaseError> {
    prop_assert!(
        (got - want).abs() <= relative * want.abs() + 1e-300,
        "{what}: {got:e} is not {want:e} within {relative:e}"
    );
    Ok(())
}

/// L and Lq, W and Wq, and the rate that they hold with.
fn little(
    what: &str,
    rate: f64,
    (l, w): (f64, f64),
    (lq, wq): (f64, f64),
) -> Result<(), TestCaseError> {
    close(what, l, rate * w, 1e-11)?;
    close(what, lq, rate * wq, 1e-11)
}

fn queue(what: &str, rate: f64, q: &impl Queue) -> Result<(), TestCaseError> {
    little(what, rate, (q.l(), q.w()), (q.lq(), q.wq()))
}

/// The quantile of the wait and that of the response, in their own distributions.
fn inverts(what: &str, q: &impl WaitDistribution, p: f64) -> Result<(), TestCaseError> {
    let wait = q.wq_quantile(p)?;
    if 0.0 < wait {
        close(what, q.wq_sf(wait)?, 1.0 - p, 1e-9)?;
        close(what, q.wq_cdf(wait)?, p, 1e-9)?;
    } else {
        prop_assert!(p <= q.wq_cdf(0.0)? + 1e-14, "{what}");
    }
    let response = q.w_quantile(p)?;
    prop_assert!(wait <= response * (1.0 + 1e-12), "{what}");
    // A service that is always the same leaves nobody sooner, and those who do not wait at once.
    if q.w_sf(response * (1.0 - 1e-9))? - q.w_sf(response)? < 1e-3 {
        close(what, q.w_sf(response)?, 1.0 - p, 1e-9)?;
        close(what, q.w_cdf(response)?, p, 1e-9)?;
    } else {
        prop_assert!(p <= q.w_cdf(response)? + 1e-12, "{what}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_model_obeys_little(
        rho in 0.01..0.98_f64,
        mu in 1e-2..1e2_f64,
        c in 1..30_u64,
        more in 0..60_u64,
        x in 0.05..20.0_f64,
        cv in 0.0..4.0_f64,
    ) {
        let (one, all) = (rho * mu, rho * mu * c as f64);
        queue("M/M/1", one, &Mm1::new(one, mu)?)?;
        queue("M/M/c", all, &Mmc::new(all, mu, c)?)?;
        queue("M/M/∞", all, &MmInf::new(all, mu)?)?;
        let limited = MmcK::new(x * all, mu, c, c + more)?;
        queue("M/M/c/K", limited.throughput(), &limited)?;
        let sources = MmcN::new(x * mu, mu, c, c + more)?;
        queue("M/M/c//N", sources.throughput(), &sources)?;
        // Over all arrivals, those that leave included.
        queue("M/M/c+M", x * all, &ErlangA::new(x * all, mu, c, x * mu)?)?;
        queue("M/G/1", one, &Mg1::from_cv(one, 1.0 / mu, cv)?)?;
        queue("M/D/1", one, &Md1::new(one, 1.0 / mu)?)?;
        queue("M/D/c", all, &Mdc::new(all, 1.0 / mu, c)?)?;
        queue("GI/M/1", one, &GiM1::new(one, Gaps::Gamma { scv: x }, mu)?)?;
        queue("M/PH/1", one, &MPh1::new(one, PhaseType::erlang(1.0 / mu, 1 + c % 5)?)?)?;
        queue("M/G/1-PS", one, &Mg1Ps::new(one, 1.0 / mu)?)?;
        let rates: Vec<f64> = (1..=c).map(|n| mu * (n as f64).sqrt()).collect();
        let lps = LpsStateDependent::new(x * mu, &rates, Some(more))?;
        queue("LPS", lps.throughput(), &lps)?;
        let service = |mean: f64| ServiceMoments { mean, scv: cv * cv, third: None };
        let class = |lambda| PriorityClass { lambda, service: service(1.0 / mu) };
        let classes = [class(0.4 * one), class(0.6 * one)];
        for discipline in [Discipline::NonPreemptive, Discipline::PreemptiveResume] {
            for (k, m) in Mg1Priority::new(&classes)?.means(discipline)?.iter().enumerate() {
                little("priorities", classes[k].lambda, (m.l, m.w), (m.lq, m.wq))?;
            }
        }
        // Batches: the model states no Lq where a job has no service of its own.
        let linear = BatchLinear::new(one, 1.0 / mu, x)?;
        close("M/D(b)/1", linear.l(), one * linear.w(), 1e-11)?;
        let capped = BatchCapped::new(0.5 / (0.1 + 0.1 * x), 0.1, 0.1 * x, 1 + c % 8)?;
        close("capped", capped.l(), 0.5 / (0.1 + 0.1 * x) * capped.w(), 1e-11)?;
        for rule in [BatchRule::Joinable, BatchRule::Full, BatchRule::Closed] {
            let q = BulkMmK::new(all, mu, c, rule)?;
            little("bulk", all, (q.l(), q.w()), (q.lq(), q.wq()))?;
        }
        let q = BatchArrivals::new(one / c as f64, BatchSize::Constant(c), mu)?;
        little("M^[X]/M/1", one, (q.l(), q.w()), (q.lq(), q.wq()))?;
        let q = Closed::new(c, 1.0 / mu, x)?;
        close("closed", q.l(), q.throughput() * q.w(), 1e-11)?;
    }

    #[test]
    fn quantiles_invert_their_distributions(
        rho in 0.05..0.95_f64,
        mu in 1e-1..1e1_f64,
        c in 1..12_u64,
        more in 1..30_u64,
        x in 0.2..4.0_f64,
        p in 0.001..0.9999_f64,
    ) {
        let (one, all) = (rho * mu, rho * mu * c as f64);
        inverts("M/M/1", &Mm1::new(one, mu)?, p)?;
        inverts("M/M/c", &Mmc::new(all, mu, c)?, p)?;
        inverts("M/M/∞", &MmInf::new(all, mu)?, p)?;
        inverts("M/M/c/K", &MmcK::new(x * all, mu, c, c + more)?, p)?;
        inverts("M/M/c//N", &MmcN::new(x * mu, mu, c, c + more)?, p)?;
        inverts("M/M/c+M", &ErlangA::new(x * all, mu, c, x * mu)?, p)?;
        inverts("M/D/1", &Md1::new(one, 1.0 / mu)?, p)?;
        inverts("M/D/c", &Mdc::new(all, 1.0 / mu, c)?, p)?;
        inverts("GI/M/1", &GiM1::new(one, Gaps::Gamma { scv: x }, mu)?, p)?;
        inverts("M/PH/1", &MPh1::new(one, PhaseType::erlang(1.0 / mu, 1 + c % 4)?)?, p)?;
        let lps = LpsStateDependent::new(x * mu, &[mu, 1.5 * mu], Some(more))?;
        let wait = lps.wq_quantile(p)?;
        if 0.0 < wait {
            close("LPS", lps.wq_sf(wait)?, 1.0 - p, 1e-9)?;
        }
        let response = lps.response()?;
        let t = response.w_quantile(p)?;
        close("LPS", response.w_sf(t)?, 1.0 - p, 1e-9)?;
        close("LPS", response.w_cdf(t)?, p, 1e-9)?;
    }
}
