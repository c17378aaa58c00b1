//! The queues with general service, batches and approximations against tables computed to 25
//! digits with other methods and arbitrary precision.
//!
//! Part of each table stands in `tests/data` and is checked always; the whole tables are checked
//! too where `GOODPUT_DATA` (by default `../shared/data` beside the workspace) holds them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test's helpers fail as its tests do, and its counts are small"
)]

#[path = "common/tables.rs"]
mod tables;

use queueing::batch::{BatchRule, BatchSize};
use queueing::gim1::Gaps;
use queueing::lps::{Autoscaler, ServingLaw};
use queueing::mg1_priority::{Discipline, PriorityClass};
use queueing::mph1::PhaseType;
use queueing::{
    BatchArrivals, BatchCapped, BatchLinear, BulkMmK, GiM1, LpsStateDependent, MPh1, Md1, Mdc, Mg1,
    Mg1Priority, Mg1Ps, Queue, ServiceLaw, ServiceMoments, TokenLaw, WaitDistribution,
};
use tables::{Row, Worst, rows};

/// What every table here is to hold: the bound.
const BOUND: f64 = 1e-11;

fn law(row: &Row) -> ServiceLaw {
    let p = |i: usize| row.number(["p1", "p2", "p3"][i - 1]);
    match row.text("dist") {
        "exp" => ServiceLaw::Exp { mean: p(1) },
        "det" => ServiceLaw::Det { mean: p(1) },
        "erlang" => ServiceLaw::Erlang { mean: p(1), k: row.count("p2") },
        "gamma" => ServiceLaw::Gamma { shape: p(1), scale: p(2) },
        "uniform" => ServiceLaw::Uniform { low: p(1), high: p(2) },
        "lognormal_mean_cv" => ServiceLaw::Lognormal { mean: p(1), cv: p(2) },
        "lognormal_mu_sigma" => ServiceLaw::LognormalOfLog { mu: p(1), sigma: p(2) },
        "hyperexp2" => ServiceLaw::Hyperexp { p: p(1), rate1: p(2), rate2: p(3) },
        "pareto" => ServiceLaw::Pareto { alpha: p(1), least: p(2) },
        "geometric1" => ServiceLaw::Geometric { q: p(1), unit: p(2) },
        other => panic!("{other}"),
    }
}

/// Heavy tails are infinite where the table says so; ρ = 0.999999 from a mean that has more digits
/// than a double.
#[test]
fn mg1_holds_its_digits_from_named_laws() {
    let mut worst = Worst::default();
    for row in rows("mg1.csv") {
        let queue = Mg1::of_law(row.number("lambda"), &law(&row)).unwrap();
        let service = queue.service();
        worst.see(&row, "es", service.mean);
        worst.see(&row, "es3", service.third.unwrap());
        worst.see(&row, "es2", (1.0 + service.scv) * service.mean * service.mean);
        worst.see(&row, "cs2", service.scv);
        worst.see(&row, "rho", queue.utilization());
        worst.see(&row, "wq", queue.wq());
        worst.see(&row, "lq", queue.lq());
        worst.see(&row, "w", queue.w());
        worst.see(&row, "l", queue.l());
        worst.see(&row, "var_wq", queue.var_wq().unwrap());
    }
    worst.judge(BOUND);
}

#[test]
fn clipped_tokens_hold_their_digits() {
    let mut worst = Worst::default();
    for row in rows("mg1_token_clipping.csv") {
        let tokens = match row.text("dist") {
            "geometric" => TokenLaw::Geometric { q: row.number("p1") },
            "uniform" => TokenLaw::Uniform { most: row.count("p2") },
            _ => TokenLaw::Lognormal { mu: row.number("p1"), sigma: row.number("p2"), most: 4096 },
        };
        let n_max = row.count("n_max");
        let n = tokens.clipped(n_max).unwrap();
        worst.see(&row, "e_n", n.mean);
        worst.see(&row, "e_n2", n.second);
        worst.see(&row, "clipped_fraction", n.clipped);
        let law = ServiceLaw::ClippedTokens { base: 0.2, per_token: 0.02, tokens, n_max };
        if row.text("wq_s").is_empty() || row.text("wq_s") == "inf" {
            continue;
        }
        let queue = Mg1::of_law(row.number("lambda_per_s"), &law).unwrap();
        worst.see(&row, "es_s", queue.service().mean);
        worst.see(&row, "rho", queue.utilization());
        worst.see(&row, "wq_s", queue.wq());
    }
    worst.judge(BOUND);
}

#[test]
fn md1_waits_hold_their_digits() {
    let mut worst = Worst::default();
    for row in rows("md1_wait_cdf.csv") {
        let queue = Md1::new(row.number("rho"), 1.0).unwrap();
        let t = row.number("t_over_d");
        worst.see(&row, "p_wq_le_t", queue.wq_cdf(t).unwrap());
        // The table's survival is a difference to 60 digits: 0 where 2.5e-74 is right.
        let sf = row.number("p_wq_gt_t");
        worst.compare(&row, "p_wq_gt_t", queue.wq_sf(t).unwrap(), sf, 1e-50);
    }
    for row in rows("md1_wait_quantiles.csv") {
        let queue = Md1::new(row.number("rho"), 1.0).unwrap();
        let (got, want) =
            (queue.wq_quantile(row.number("p")).unwrap(), row.number("wq_quantile_over_d"));
        // Where p is P(no wait) to rounding, the quantile is 0 to rounding.
        worst.compare(
            &row,
            "wq_quantile_over_d",
            got,
            want,
            if want < 1e-12 { 1e-14 } else { 0.0 },
        );
    }
    worst.judge(BOUND);
}

#[test]
fn mdc_holds_its_digits() {
    let mut worst = Worst::default();
    for row in rows("mdc.csv") {
        let queue = Mdc::new(row.number("a"), 1.0, row.count("c")).unwrap();
        // The table comes from sums over roots to 60 digits: where hardly anything waits it holds
        // their noise, some of it negative.
        for (column, got) in
            [("wq_over_d", queue.wq()), ("lq", queue.lq()), ("p_wait", queue.p_wait())]
        {
            worst.compare(&row, column, got, row.number(column), 1e-50);
        }
    }
    for row in rows("mdc_wait_cdf.csv") {
        let queue = Mdc::new(row.number("a"), 1.0, row.count("c")).unwrap();
        let t = row.number("t_over_d");
        worst.see(&row, "p_wq_le_t", queue.wq_cdf(t).unwrap());
    }
    worst.judge(BOUND);
}

#[test]
fn gim1_holds_its_digits() {
    let mut worst = Worst::default();
    for row in rows("gim1.csv") {
        let gaps = match row.text("interarrival") {
            "det" => Gaps::Det,
            "exp" => Gaps::Exp,
            "erlang2" => Gaps::Erlang { k: 2 },
            "erlang4" => Gaps::Erlang { k: 4 },
            "hyperexp2bal_ca2_4" => Gaps::Hyperexp { scv: 4.0 },
            other => panic!("{other}"),
        };
        let queue = GiM1::new(row.number("rho"), gaps, 1.0).unwrap();
        worst.see(&row, "sigma_p_wait", queue.p_wait());
        worst.see(&row, "wq_mu1", queue.wq());
        worst.see(&row, "w_mu1", queue.w());
        worst.see(&row, "lq", queue.lq());
    }
    worst.judge(BOUND);
}

#[test]
fn processor_sharing_holds_its_digits() {
    let mut worst = Worst::default();
    for row in rows("mg1_ps.csv") {
        let queue = Mg1Ps::new(row.number("rho"), 1.0).unwrap();
        let size = row.number("x_size");
        worst.see(&row, "e_t_given_x", queue.w_given_size(size).unwrap());
        worst.see(&row, "slowdown", queue.slowdown());
        if row.get("var_t_given_x_mm1ps_mu1").is_some() {
            let variance = queue.var_w_given_size_exp(size).unwrap();
            worst.see(&row, "var_t_given_x_mm1ps_mu1", variance);
        }
    }
    worst.judge(BOUND);
}

#[test]
fn priorities_hold_their_digits() {
    let mut worst = Worst::default();
    for row in rows("mg1_priority.csv") {
        let list = |column: &str| -> Vec<f64> {
            row.text(column).split(';').map(|x| x.parse().unwrap()).collect()
        };
        let classes: Vec<PriorityClass> = list("lambdas")
            .into_iter()
            .zip(list("mean_services_exp"))
            .map(|(lambda, mean)| PriorityClass { lambda, service: ServiceMoments::exp(mean) })
            .collect();
        let queue = Mg1Priority::new(&classes).unwrap();
        let k = row.count("class") as usize - 1;
        let head = queue.class(Discipline::NonPreemptive, k).unwrap();
        worst.see(&row, "wq_nonpreemptive", head.wq);
        worst.see(&row, "w_nonpreemptive", head.w);
        let preempt = queue.class(Discipline::PreemptiveResume, k).unwrap();
        worst.see(&row, "wq_preemptive_resume", preempt.wq);
        worst.see(&row, "w_preemptive_resume", preempt.w);
    }
    worst.judge(BOUND);
}

#[test]
fn limited_sharing_holds_its_digits() {
    let mut worst = Worst::default();
    for row in rows("mm1_lps.csv") {
        let queue = LpsStateDependent::mm1(row.number("rho"), 1.0, row.count("k_slots")).unwrap();
        worst.see(&row, "l", queue.l());
        worst.see(&row, "l_buffer", queue.lq());
        worst.see(&row, "w_buffer_mu1", queue.wq());
        worst.see(&row, "l_in_service", queue.in_service());
        worst.see(&row, "w_mu1", queue.w());
    }
    worst.judge(BOUND);
}

/// Times in ms; rates in the table per second.
#[test]
fn the_autoscalers_chain_holds_its_digits() {
    let mut worst = Worst::default();
    for row in rows("wva_state_dependent.csv") {
        let law = ServingLaw::Chunked {
            alpha: row.number("alpha_ms"),
            beta: row.number("beta_ms"),
            gamma: row.number("gamma_ms"),
        };
        let server = Autoscaler::new(
            law,
            row.number("n_in"),
            row.number("n_out"),
            row.count("max_batch"),
            row.count("max_queue"),
        )
        .unwrap();
        let state = server.at(row.number("rps") / 1e3).unwrap();
        worst.see(&row, "throughput_rps", state.throughput * 1e3);
        worst.see(&row, "resp_ms", state.response);
        worst.see(&row, "wait_ms", state.wait);
        worst.see(&row, "n_in_service", state.in_service);
        worst.see(&row, "serv_ms", state.service);
        worst.see(&row, "prefill_ms", state.prefill);
        worst.see(&row, "itl_ms", state.itl);
        worst.see(&row, "ttft_ms", state.ttft);
        worst.see(&row, "p_block", state.p_block);
        worst.see(&row, "p0", state.chain.p0());
    }
    worst.judge(BOUND);
}

/// Single precision: what the autoscaler's programs print has seven digits, of which the wait, a
/// difference there, has lost two or three.
#[test]
fn the_autoscalers_published_example_is_met_to_its_digits() {
    let near = |got: f64, want: f64, relative: f64| {
        assert!((got / want - 1.0).abs() <= relative, "{got} is not {want}");
    };
    let law = ServingLaw::Chunked { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
    // examples/solution-optimize.json: TTFT <= 60 ms and ITL <= 20 ms on average.
    let server = Autoscaler::new(law, 128.0, 512.0, 48, 128).unwrap();
    let rate = server.max_rate_for_ttft(60.0).unwrap();
    assert!(rate <= server.max_rate_for_itl(20.0).unwrap());
    let state = server.at(rate).unwrap();
    near(state.throughput * 1e3, 2.949_462_2, 1e-6);
    near(state.response, 10_231.625, 1e-6);
    near(state.wait, 14.219_727, 5e-5);
    near(state.in_service, 30.135_853, 2e-6);
    near(state.ttft, 60.000_584, 1e-5);
    near(state.itl, 19.905_33, 1e-6);
    // What they call the maximum is the end of their search, 0.999 of it.
    near(0.999 * server.max_rate().unwrap() * 1e3, 3.860_929_5, 1e-7);
    // Our own 64 bits.
    near(state.throughput * 1e3, 2.949_464_045, 1e-9);
    near(state.wait, 14.219_127_42, 1e-9);
    near(state.ttft, 60.0, 1e-12);
    // README /optimize: batch 49.
    let server = Autoscaler::new(law, 128.0, 512.0, 49, 128).unwrap();
    let state = server.at(2.971_584_426e-3).unwrap();
    near(state.response, 10_277.985, 1e-6);
    near(state.wait, 12.017_578, 1e-4);
    near(state.ttft, 57.987_3, 2e-5);
    // README /solve comes from the law before: 3 requests a second.
    let law = ServingLaw::V2 { alpha: 12.0, beta: 0.05, gamma: 0.0005 };
    let server = Autoscaler::new(law, 128.0, 512.0, 48, 128).unwrap();
    let state = server.at(3e-3).unwrap();
    near(state.response, 10_568.446, 1e-6);
    near(state.wait, 28.275_39, 1e-5);
    near(state.ttft, 75.317_46, 1e-5);
    near(state.itl, 20.534_498, 1e-6);
    near(0.999 * server.max_rate().unwrap() * 1e3, 3.820_823_2, 1e-7);
}

#[test]
fn dynamic_batches_hold_their_digits() {
    let mut worst = Worst::default();
    for row in rows("dynamic_batching_linear_unlimited.csv") {
        let queue = BatchLinear::new(row.number("lambda"), row.number("alpha"), row.number("tau0"))
            .unwrap();
        worst.see(&row, "mean_latency", queue.w());
        worst.see(&row, "mean_batch", queue.mean_batch());
        worst.see(&row, "util", queue.utilization());
        worst.see(&row, "phi0", queue.phi0());
        worst.see(&row, "phi1", queue.phi1());
        worst.see(&row, "phi_upper_bound", queue.w_bound());
        assert!(queue.w() <= queue.w_bound() * (1.0 + 1e-15), "{}", row.line);
    }
    for row in rows("dynamic_batching_linear_capped.csv") {
        let (lambda, alpha, tau0) = (row.number("lambda"), row.number("alpha"), row.number("tau0"));
        let queue = BatchCapped::new(lambda, alpha, tau0, row.count("b_max")).unwrap();
        worst.see(&row, "mean_latency", queue.w());
        worst.see(&row, "mean_wait", queue.wq());
        worst.see(&row, "mean_batch", queue.mean_batch());
        worst.see(&row, "util", queue.utilization());
    }
    worst.judge(BOUND);
}

#[test]
fn bulk_service_and_arrivals_hold_their_digits() {
    let mut worst = Worst::default();
    for row in rows("bulk_mmk1.csv") {
        let queue = |rule| {
            BulkMmK::new(row.number("lambda"), row.number("mu"), row.count("k"), rule).unwrap()
        };
        let (join, full, closed) =
            (queue(BatchRule::Joinable), queue(BatchRule::Full), queue(BatchRule::Closed));
        worst.see(&row, "r0", join.r());
        worst.see(&row, "l_joinable", join.l());
        worst.see(&row, "w_joinable", join.w());
        worst.see(&row, "p0_full", full.p0());
        worst.see(&row, "l_full", full.l());
        worst.see(&row, "w_full", full.w());
        worst.see(&row, "lq_nonjoin", closed.lq());
        worst.see(&row, "wq_nonjoin", closed.wq());
        worst.see(&row, "w_nonjoin", closed.w());
        worst.see(&row, "p_idle_nonjoin", closed.p0());
    }
    for row in rows("batch_arrivals_mxm1.csv") {
        let size = match row.text("batch_dist") {
            "const" => BatchSize::Constant(row.count("param")),
            _ => BatchSize::Geometric(row.number("param")),
        };
        let queue = BatchArrivals::new(row.number("lambda_batches"), size, 1.0).unwrap();
        worst.see(&row, "rho", queue.utilization());
        worst.see(&row, "l", queue.l());
        worst.see(&row, "w_mu1", queue.w());
        worst.see(&row, "wq_mu1", queue.wq());
    }
    worst.judge(BOUND);
}

/// Values of the formulas, not of the queues.
#[test]
fn approximations_hold_their_digits() {
    use queueing::approx::{
        allen_cunneen, daley_upper_bound, kingman_upper_bound, kingman_vut, klb, klb_qna,
        sakasegawa, whitt_gim, whitt_phi,
    };
    let mut worst = Worst::default();
    for row in rows("ggc_approx.csv") {
        let (c, a) = (row.count("c"), row.number("a"));
        let (ca2, cs2) = (row.number("ca2"), row.number("cs2"));
        worst.see(&row, "wq_allen_cunneen", allen_cunneen(c, a, ca2, cs2, 1.0).unwrap());
        worst.see(&row, "wq_sakasegawa", sakasegawa(c, a, ca2, cs2, 1.0).unwrap());
        if row.get("wq_whitt1993").is_some() {
            worst.see(&row, "wq_whitt1993", whitt_gim(c, a, ca2, cs2, 1.0).unwrap());
            worst.see(&row, "whitt_phi", whitt_phi(c, a, ca2, cs2).unwrap());
        }
        if c == 1 {
            worst.see(&row, "wq_kingman_vut_c1", kingman_vut(a, ca2, cs2, 1.0).unwrap());
            let bound = kingman_upper_bound(a, ca2, cs2, 1.0).unwrap();
            worst.see(&row, "wq_kingman_upper_bound_c1", bound);
            worst.see(
                &row,
                "wq_daley_upper_bound_c1",
                daley_upper_bound(a, ca2, cs2, 1.0).unwrap(),
            );
            worst.see(&row, "wq_klb_qna_c1", klb_qna(a, ca2, cs2, 1.0).unwrap());
            worst.see(&row, "wq_klb_full_c1", klb(a, ca2, cs2, 1.0).unwrap());
        }
    }
    worst.judge(BOUND);
}

#[test]
fn phase_type_waits_hold_their_digits() {
    let mut worst = Worst::default();
    for row in rows("mph1_wait.csv") {
        let law = if row.text("dist") == "erlang2" {
            PhaseType::erlang(row.number("p1"), 2).unwrap()
        } else {
            let p = row.number("p1");
            let branches = [(p, row.number("p2")), (1.0 - p, row.number("p3"))];
            PhaseType::hyperexponential(&branches).unwrap()
        };
        let queue = MPh1::new(row.number("lambda"), law).unwrap();
        let (what, x) = (row.text("what"), row.number("x"));
        let got =
            if what == "tail" { queue.wq_sf(x).unwrap() } else { queue.wq_quantile(x).unwrap() };
        worst.compare(&row, what, got, row.number("value"), 0.0);
    }
    worst.judge(BOUND);
}
