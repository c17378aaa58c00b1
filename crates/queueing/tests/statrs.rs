//! How accurate statrs is where this crate could use it, beside our own functions: the reason why it
//! does not.
//!
//! A test here fails when statrs becomes good enough, which is the day to take it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::excessive_precision, reason = "it is a test")]

#[path = "common/tables.rs"]
mod tables;

use std::io::Write as _;

use statrs::distribution::{Continuous, ContinuousCDF, Discrete, DiscreteCDF, Normal, Poisson};
use statrs::function::erf::erfc;

/// The worst relative error of each over the rows, and how many values were no number.
#[derive(Default)]
struct Errors {
    worst: f64,
    broken: u32,
    rows: u32,
}

impl Errors {
    fn see(&mut self, got: f64, want: f64) {
        self.rows += 1;
        let error = (got / want - 1.0).abs();
        if got.is_finite() && error < 0.5 {
            self.worst = self.worst.max(error);
        } else {
            self.broken += 1;
        }
    }
}

fn report(what: &str, ours: &Errors, theirs: &Errors) {
    // Past the test runner's capture, so that a plain run shows the numbers.
    let _ = writeln!(
        std::io::stderr(),
        "{what}: {} rows, ours {:.1e} ({} broken), statrs {:.1e} ({} broken)",
        ours.rows,
        ours.worst,
        ours.broken,
        theirs.worst,
        theirs.broken
    );
}

/// Erlang B is the Poisson probability of c over that of at most c.
#[test]
fn erlang_b_by_statrs_loses_digits_with_the_servers() {
    let (mut ours, mut theirs) = (Errors::default(), Errors::default());
    for row in tables::rows("erlang.csv") {
        let (c, a, want) = (row.count("c"), row.number("a"), row.number("erlang_b"));
        if want < 1e-300 || a == 0.0 {
            continue;
        }
        let poisson = Poisson::new(a).unwrap();
        ours.see(queueing::erlang_b(c, a).unwrap(), want);
        theirs.see(poisson.pmf(c) / poisson.cdf(c), want);
    }
    report("Erlang B", &ours, &theirs);
    assert!(ours.broken == 0 && ours.worst < 2e-13);
    assert!(1e-10 < theirs.worst, "statrs would do: {:e}", theirs.worst);
}

/// The Poisson quantile of M/M/∞, which only needs a sum to be on the right side.
#[test]
fn poisson_quantiles_agree_with_statrs() {
    for a in [0.5, 3.0, 20.0, 400.0] {
        for p in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let ours = queueing::MmInf::new(a, 1.0).unwrap().n_quantile(p).unwrap();
            assert_eq!(ours, Poisson::new(a).unwrap().inverse_cdf(p), "{a} {p}");
        }
    }
}

/// Halfin and Whitt's function by statrs' normal distribution.
#[test]
fn halfin_whitt_by_statrs_has_half_the_digits() {
    let normal = Normal::new(0.0, 1.0).unwrap();
    let (mut ours, mut theirs) = (Errors::default(), Errors::default());
    for row in tables::rows("halfin_whitt.csv") {
        let (beta, want) = (row.number("beta"), row.number("alpha_p_wait"));
        ours.see(queueing::plan::halfin_whitt(beta).unwrap(), want);
        theirs.see(1.0 / (1.0 + beta * normal.cdf(beta) / normal.pdf(beta)), want);
    }
    report("Halfin-Whitt", &ours, &theirs);
    assert!(ours.broken == 0 && ours.worst < 1e-13);
}

/// The complementary error function, of which the lognormal token law is made, against values with 25
/// digits from a table.
#[test]
fn erfc_of_statrs_is_short_of_digits_around_one() {
    let mut theirs = Errors::default();
    for (x, want) in [
        (0.5, 0.479_500_122_186_953_462_3),
        (0.9, 0.203_091_787_577_167_7),
        (1.0, 0.157_299_207_050_285_130_7),
        (1.1, 0.119_794_930_425_914_5),
        (2.0, 0.004_677_734_981_047_265_838),
        (3.0, 2.209_049_699_858_544_137e-5),
    ] {
        theirs.see(erfc(x), want);
    }
    let _ = writeln!(std::io::stderr(), "erfc: statrs {:.1e}", theirs.worst);
    assert!(1e-13 < theirs.worst, "statrs would do: {:e}", theirs.worst);
}
