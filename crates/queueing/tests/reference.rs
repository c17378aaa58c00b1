//! The models against tables computed to 25 digits with other methods and arbitrary precision.
//!
//! Part of each table stands in `tests/data` and is checked always; the whole tables are checked
//! too where `GOODPUT_DATA` (by default `../shared/data` beside the workspace) holds them.
//!
//! An input is the exact value of the double that the text parses to. Where a model takes λ and μ,
//! the tables' μ is 1, so that a = λ has no rounding of its own. The bounds are what the issue of
//! this crate asks for, or tighter; each test prints the worst error that it met.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test's helpers fail and report as its tests do"
)]

#[path = "common/tables.rs"]
mod tables;

use std::collections::HashMap;

use queueing::{
    Mg1, Mm1, Mmc, Queue, QueueError, ServiceMoments, WaitDistribution, erlang_b, erlang_c,
    ln_erlang_b, ln_erlang_c,
};
use tables::{Row, rows};

/// The number of servers of a row.
fn servers(row: &Row) -> u64 {
    row.text("c").parse().unwrap()
}

/// The worst error of one quantity over a table.
struct Worst {
    what: &'static str,
    bound: f64,
    error: f64,
    at: String,
}

impl Worst {
    fn new(what: &'static str, bound: f64) -> Self {
        Self { what, bound, error: 0.0, at: String::new() }
    }

    /// Counts the relative error beyond what the input or a subnormal result allows.
    fn see(&mut self, row: &Row, got: f64, want: f64, absolute: f64) {
        assert!(!got.is_nan(), "{} is NaN in {}", self.what, row.line);
        if got.total_cmp(&want).is_eq() {
            return;
        }
        // A subnormal number has fewer digits: half its unit is no fault.
        let allowed = absolute.max(f64::from_bits(1));
        let error = ((got - want).abs() - allowed).max(0.0) / want.abs();
        if self.error < error || error.is_nan() {
            self.error = error;
            self.at = format!("{got:e} for {want:e} in {}", row.line);
        }
    }

    fn judge(self) {
        println!("{:<12} worst {:.1e} (bound {:.0e})", self.what, self.error, self.bound);
        assert!(self.error <= self.bound, "{}: {:e} at {}", self.what, self.error, self.at);
    }
}

/// Erlang B and C: 2e-13 for every normal value, and 1e-14 where B > 1e-12.
#[test]
fn erlang_holds_its_digits_from_one_to_a_thousand_million_servers() {
    let mut all = [
        Worst::new("B", 2e-13),
        Worst::new("C", 2e-13),
        Worst::new("ln B", 1e-14),
        Worst::new("ln C", 1e-14),
    ];
    let mut likely = [Worst::new("B > 1e-12", 1e-14), Worst::new("its C", 1e-14)];
    for name in ["erlang.csv", "erlang_huge.csv"] {
        for row in rows(name) {
            let (c, a) = (servers(&row), row.number("a"));
            let b = row.number("erlang_b");
            let got = erlang_b(c, a).unwrap();
            all[0].see(&row, got, b, 0.0);
            all[2].see(&row, ln_erlang_b(c, a).unwrap(), row.number("ln_erlang_b"), 0.0);
            if 1e-12 < b {
                likely[0].see(&row, got, b, 0.0);
            }
            let Some(wait) = row.get("erlang_c") else {
                assert!(c as f64 <= a, "{}", row.line);
                let rho = a / c as f64;
                assert_eq!(erlang_c(c, a), Err(QueueError::Unstable { rho }));
                continue;
            };
            let got = erlang_c(c, a).unwrap();
            all[1].see(&row, got, wait, 0.0);
            all[3].see(&row, ln_erlang_c(c, a).unwrap(), row.number("ln_erlang_c"), 0.0);
            if 1e-12 < b {
                likely[1].see(&row, got, wait, 0.0);
            }
        }
    }
    all.into_iter().chain(likely).for_each(Worst::judge);
}

/// The means of M/M/c inherit the error of C; P0 = e^(−a) / Z that of e^(−a), exact to a few
/// units here since a is exact.
#[test]
fn mmc_means_hold_their_digits() {
    let [mut lq, mut wq, mut l, mut w, mut p0] =
        ["Lq", "Wq", "L", "W", "P0"].map(|what| Worst::new(what, 2e-13));
    for row in rows("erlang.csv") {
        let Some(want) = row.get("lq") else { continue };
        let queue = Mmc::new(row.number("a"), 1.0, servers(&row)).unwrap();
        lq.see(&row, queue.lq(), want, 0.0);
        wq.see(&row, queue.wq(), row.number("wq_mu1"), 0.0);
        l.see(&row, queue.l(), row.number("l"), 0.0);
        w.see(&row, queue.w(), row.number("w_mu1"), 0.0);
        // The table has ln P0; its exponential is good to |ln P0| units in the last place.
        let ln_p0 = row.number("ln_p0");
        let allowed = ln_p0.exp() * ln_p0.abs() * f64::EPSILON;
        p0.see(&row, queue.p0(), ln_p0.exp(), allowed);
    }
    [lq, wq, l, w, p0].into_iter().for_each(Worst::judge);
}

/// Where the wait's quantile is 0 to rounding, 1e-14 / (c − a) is allowed.
#[test]
fn mmc_quantiles_hold_their_digits() {
    let [mut wait, mut response] = ["Wq(p)", "W(p)"].map(|what| Worst::new(what, 1e-12));
    for row in rows("mmc_wait_quantiles.csv") {
        let (a, p) = (row.number("a"), row.number("p"));
        let queue = Mmc::new(a, 1.0, servers(&row)).unwrap();
        let want = row.number("wq_quantile_mu1");
        let scale = 1.0 / (servers(&row) as f64 - a);
        let zero = if want < 1e-12 * scale { 1e-14 * scale } else { 0.0 };
        wait.see(&row, queue.wq_quantile(p).unwrap(), want, zero);
        response.see(&row, queue.w_quantile(p).unwrap(), row.number("w_quantile_mu1"), 0.0);
    }
    [wait, response].into_iter().for_each(Worst::judge);
}

/// Survival functions deep into the tail, a = c − 1 (where the two rates coincide) included.
#[test]
fn mmc_tails_hold_their_digits() {
    let [mut wait, mut response] = ["P(Wq>t)", "P(W>t)"].map(|what| Worst::new(what, 1e-12));
    for row in rows("mmc_wait_tails.csv") {
        let t = row.number("t_mu1");
        let queue = Mmc::new(row.number("a"), 1.0, servers(&row)).unwrap();
        wait.see(&row, queue.wq_sf(t).unwrap(), row.number("p_wq_gt_t"), 0.0);
        response.see(&row, queue.w_sf(t).unwrap(), row.number("p_w_gt_t"), 0.0);
    }
    [wait, response].into_iter().for_each(Worst::judge);
}

#[test]
fn mm1_holds_its_digits_up_to_a_thousand_millionth_below_full() {
    let mut all: HashMap<&str, Worst> = HashMap::new();
    for row in rows("mm1.csv") {
        let (lambda, mu) = (row.number("lambda"), row.number("mu"));
        let queue = Mm1::new(lambda, mu).unwrap();
        let mut see = |column: &'static str, got: f64, absolute: f64| {
            all.entry(column).or_insert_with(|| Worst::new(column, 5e-15)).see(
                &row,
                got,
                row.number(column),
                absolute,
            );
        };
        see("rho", queue.utilization(), 0.0);
        see("p0", queue.p0(), 0.0);
        see("l", queue.l(), 0.0);
        see("lq", queue.lq(), 0.0);
        see("w", queue.w(), 0.0);
        see("wq", queue.wq(), 0.0);
        see("var_n", queue.var_n(), 0.0);
        see("var_nq", queue.var_nq(), 0.0);
        see("var_w", queue.var_w(), 0.0);
        see("var_wq", queue.var_wq(), 0.0);
        for (p, w, wq) in [
            (0.5, "w_p0.5", "wq_p0.5"),
            (0.9, "w_p0.9", "wq_p0.9"),
            (0.95, "w_p0.95", "wq_p0.95"),
            (0.99, "w_p0.99", "wq_p0.99"),
            (0.999, "w_p0.999", "wq_p0.999"),
            (0.9999, "w_p0.9999", "wq_p0.9999"),
        ] {
            see(w, queue.w_quantile(p).unwrap(), 0.0);
            let scale = 1.0 / (mu - lambda);
            let zero = if row.number(wq) < 1e-12 * scale { 1e-14 * scale } else { 0.0 };
            see(wq, queue.wq_quantile(p).unwrap(), zero);
        }
        for (n, column) in [(1, "p1"), (2, "p2"), (5, "p5"), (10, "p10")] {
            see(column, queue.pn(n).unwrap(), 0.0);
        }
    }
    let mut worst: Vec<Worst> = all.into_values().collect();
    worst.sort_by_key(|w| w.what);
    worst.into_iter().for_each(Worst::judge);
}

/// The service's moments come from the table (as doubles, so that the squared variation has
/// cancelled in it where it is small) and the results are those of the named distribution.
#[test]
fn mg1_holds_its_digits_with_heavy_tails_infinite() {
    let [mut wq, mut lq, mut w, mut l, mut var] =
        ["Wq", "Lq", "W", "L", "Var Wq"].map(|what| Worst::new(what, 1e-15));
    for row in rows("mg1.csv") {
        let service = ServiceMoments {
            mean: row.number("es"),
            scv: row.number("cs2"),
            third: row.get("es3"),
        };
        let queue = Mg1::new(row.number("lambda"), service).unwrap();
        // A mean rounded to a double moves 1 − ρ by half a unit of ρ.
        let rounding = |want: f64| want.abs() * 4.0 * f64::EPSILON / queue.p0();
        for (worst, got, column) in [
            (&mut wq, queue.wq(), "wq"),
            (&mut lq, queue.lq(), "lq"),
            (&mut w, queue.w(), "w"),
            (&mut l, queue.l(), "l"),
            (&mut var, queue.var_wq().unwrap(), "var_wq"),
        ] {
            let want = row.number(column);
            let absolute = if want.is_finite() { rounding(want) } else { 0.0 };
            worst.see(&row, got, want, absolute);
        }
    }
    [wq, lq, w, l, var].into_iter().for_each(Worst::judge);
}

/// Values from textbooks, manuals and other programs, to the digits that they print.
#[test]
fn published_values_are_met_where_they_are_right() {
    let near = |got: f64, want: f64, digits: f64| {
        assert!((got - want).abs() <= digits, "{got} is not {want} within {digits}");
    };
    // erlang.com forum, 2001: the least c with B <= 1 % at 33.333 (100 / 3) erlangs is 45.
    near(erlang_b(45, 100.0 / 3.0).unwrap(), 0.009_654_016_9, 1e-10);
    near(erlang_b(44, 100.0 / 3.0).unwrap(), 0.013_159_969, 1e-9);
    // CRAN ErlangC 0.1.0: 100 calls in 30 min of 180 s, 14 agents, answered within 20 s.
    let calls = Mmc::new(100.0 / 1800.0, 1.0 / 180.0, 14).unwrap();
    near(calls.p_wait(), 0.174_131_9, 5e-8);
    near(calls.wq_cdf(20.0).unwrap(), 0.888_35, 5e-6);
    near(calls.wq(), 7.835_937_011_777_24, 1e-13);
    let fewer = Mmc::new(100.0 / 1800.0, 1.0 / 180.0, 11).unwrap();
    near(fewer.p_wait(), 0.682_118_2, 5e-8);
    near(fewer.wq_cdf(20.0).unwrap(), 0.389_613_8, 5e-8);
    // Bronson 1982, ex. 23.3, 23.14, 23.16 and 24.6, as web.ist.utl.pt's Fx-queuevars quotes them.
    let q = Mm1::new(24.0, 30.0).unwrap();
    near(q.l(), 4.0, 1e-14);
    near(q.w(), 1.0 / 6.0, 1e-16);
    near(q.p0(), 0.2, 1e-16);
    let q = Mm1::new(0.5, 1.0 / 1.5).unwrap();
    near(q.lq(), 2.25, 1e-14);
    near(q.wq(), 4.5, 1e-14);
    let q = Mm1::new(1.0, 1.0 / 0.75).unwrap();
    near(q.wq(), 2.25, 1e-14);
    near(q.p0(), 0.25, 1e-15);
    // The page prints 0.178 as its P0: that is ρ^6, the probability of six jobs or more.
    near(0.75_f64.powi(6), 0.178, 5e-4);
    let q = Mmc::new(300.0, 182.5, 3).unwrap();
    near(q.lq(), 0.352_425_92, 5e-9);
    near(q.l(), 1.996_261_5, 5e-8);
    near(q.wq(), 0.001_174_753_1, 5e-11);
    near(q.w(), 0.006_654_205_1, 5e-11);
    near(q.p0(), 0.177_537_03, 5e-9);
    // Ciw's capacitated processor sharing: P0 of M/M/3.
    near(Mmc::new(10.0, 12.0, 3).unwrap().p0(), 0.432_132_963_988_919_6, 1e-15);
}

/// Inputs on which public tools give NaN, negative waits or wrong values.
#[test]
fn inputs_that_broke_other_tools_have_the_right_value() {
    let near = |got: f64, want: f64| {
        assert!((got / want - 1.0).abs() < 1e-12, "{got} is not {want}");
    };
    near(erlang_c(760, 740.0).unwrap(), 0.355_021_113_243_704_9);
    near(erlang_c(1000, 950.0).unwrap(), 0.068_253_415_377_141_42);
    near(erlang_c(150, 135.0).unwrap(), 0.140_308_636_103_494_3);
    // P99 of the wait in units of 1 / μ: 178.479608432 ms at μ = 1 / s.
    let p99 = Mmc::new(740.0, 1.0, 760).unwrap().wq_quantile(0.99).unwrap();
    assert!((p99 * 1e3 - 178.479_608_432).abs() < 5e-9);
    let p99 = Mmc::new(950.0, 1.0, 1000).unwrap().wq_quantile(0.99).unwrap();
    assert!((p99 * 1e3 - 38.412_847_639_5).abs() < 5e-10);
    near(Mmc::new(3.0 + 1e-14, 1.0, 4).unwrap().w_sf(1.0).unwrap(), 0.555_289_722_522_931_8);
    near(Mmc::new(2.0, 1.0, 4).unwrap().wq_given_wait(), 0.5);
    assert_eq!(erlang_c(5, 6.0), Err(QueueError::Unstable { rho: 1.2 }));
    // 15.9 erlangs on 14 agents: -6 s of mean wait elsewhere.
    let rho = match Mmc::new(44.34 / 1800.0, 1.0 / 646.0, 14) {
        Err(QueueError::Unstable { rho }) => rho,
        other => panic!("{other:?}"),
    };
    near(rho, 44.34 / 1800.0 * 646.0 / 14.0);
    assert!(matches!(Mg1::from_cv(1.2, 1.0, 1.0), Err(QueueError::Unstable { .. })));
    assert_eq!(
        Mmc::new(1.0, 1.0, 0).unwrap_err().to_string(),
        "c must be a whole number from 1 to 1000000000, got 0"
    );
    assert_eq!(Mg1::from_cv(1.0, 0.0, 1.0).unwrap_err().to_string(), "mean must be above 0, got 0");
}

/// State probabilities far from the mean and response times far below it, against sums at 50
/// digits (mpmath): neither P(n) by products nor 1 − survival would have a digit left.
#[test]
fn states_and_early_responses_hold_their_digits() {
    let near = |got: f64, want: f64| {
        assert!((got / want - 1.0).abs() < 2e-13, "{got:e} is not {want:e}");
    };
    for (n, c, a, want) in [
        (95_000, 100_000, 95_000.0, 0.001_294_338_538_132_170_7),
        (94_000, 100_000, 99_990.0, 2.962_127_455_217_790_4e-84),
        (99_000, 100_000, 99_990.0, 7.072_528_756_141_536e-7),
        (15, 2000, 750.0, 1.943_380_820_553_187_3e-295),
        (100, 1000, 700.0, 3.417_141_906_117_931e-178),
    ] {
        near(Mmc::new(a, 1.0, c).unwrap().pn(n).unwrap(), want);
    }
    for (c, a, t, want) in [
        (4, 3.999_999, 1e-9, 5.546_874_426_219_604e-16),
        (4, 3.999_999, 0.5, 3.247_830_841_935_181e-7),
        (4, 3.999_999, 3.0, 2.576_854_662_235_483_6e-6),
        (2, 1.5, 1e-8, 3.571_428_569_642_857e-9),
        (1000, 990.0, 1e-6, 3.409_227_030_494_396e-7),
        (4, 3.999_999_999_9, 1.5, 1.154_050_244_842_856_2e-10),
    ] {
        near(Mmc::new(a, 1.0, c).unwrap().w_cdf(t).unwrap(), want);
    }
    // ln B where c ln a - ln c! - a has 26 digits to spare and B is long gone.
    near(ln_erlang_b(1_000_000_000, 1e3).unwrap(), -12_815_511_569.244_846);
    near(ln_erlang_b(1_000_000_000, 5e8).unwrap(), -193_147_191.840_516_77);
}
