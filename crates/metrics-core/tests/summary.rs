//! Percentiles against their written definitions, and what no definition may break.

use metrics_core::Error;
use metrics_core::summary::{PercentileMethod, Summary, percentile, percentile_by};
use proptest::prelude::*;

const METHODS: [PercentileMethod; 2] = [PercentileMethod::Linear, PercentileMethod::NearestRank];

fn samples() -> impl Strategy<Value = Vec<f64>> {
    // Few distinct values half of the time, so that ties are common.
    let tied = (-4..5_i32).prop_map(f64::from);
    prop::collection::vec(prop_oneof![-1e3..1e3_f64, tied], 1..60)
}

/// The percentile from the definition in words, by counting instead of sorting: the rank of a
/// value is how many samples are not above it.
fn by_counting(samples: &[f64], numerator: usize, denominator: usize) -> (f64, f64) {
    let n = samples.len();
    // The k-th smallest, k from 1: the smallest value with at least k samples not above it.
    let nth = |k: usize| {
        let reaches = |x: f64| k <= samples.iter().filter(|&&y| y <= x).count();
        samples.iter().copied().filter(|&x| reaches(x)).fold(f64::INFINITY, f64::min)
    };
    let nearest = nth((n * numerator).div_ceil(denominator).max(1));
    let (whole, rest) = ((n - 1) * numerator / denominator, (n - 1) * numerator % denominator);
    let (a, b) = (nth(whole + 1), nth((whole + 2).min(n)));
    (a + (b - a) * rest as f64 / denominator as f64, nearest)
}

proptest! {
    /// Positions are exact fractions here, so that floating point cannot pick another rank.
    #[test]
    fn percentiles_equal_their_definitions(x in samples(), per_mille in 0..=1000_usize) {
        let p = per_mille as f64 / 1000.0;

        let (linear, nearest) = by_counting(&x, per_mille, 1000);

        // Two roundings of a position up to 60 and one of a difference up to 2,000.
        let got = percentile(&x, p)?;
        prop_assert!((got - linear).abs() <= 1e-10, "{got} != {linear}");
        prop_assert_eq!(percentile_by(&x, p, PercentileMethod::NearestRank)?, nearest);
    }

    #[test]
    fn percentiles_rise_with_p_between_min_and_max(x in samples(), p in 0.0..=1.0_f64, q in 0.0..=1.0_f64) {
        let s = Summary::new(x)?;
        let (p, q) = (p.min(q), p.max(q));
        for method in METHODS {
            let (a, b) = (s.percentile_by(p, method)?, s.percentile_by(q, method)?);
            prop_assert!(s.min() <= a && a <= b && b <= s.max(), "{method}: {a} {b}");
            prop_assert_eq!(s.percentile_by(1.0, method)?, s.max());
            prop_assert_eq!(s.percentile_by(0.0, method)?, s.min());
        }
    }

    #[test]
    fn order_does_not_matter_to_figures(x in samples().prop_shuffle(), p in 0.0..=1.0_f64) {
        let mut other = x.clone();
        other.sort_by(f64::total_cmp);
        other.reverse();
        let (a, b) = (Summary::new(x.clone())?, Summary::new(other)?);
        for method in METHODS {
            prop_assert_eq!(a.percentile_by(p, method)?, b.percentile_by(p, method)?);
        }
        // Compensated sums of at most 60 values up to 1,000 differ by their last rounding.
        prop_assert!((a.mean() - b.mean()).abs() <= 1e-12);
        prop_assert_eq!(a.values(), &x[..]);
    }

    /// A power of two as scale and whole numbers as samples, so that both are exact.
    #[test]
    fn figures_shift_and_scale_with_the_samples(
        x in prop::collection::vec(-1000..1000_i32, 1..60),
        shift in -1000..1000_i32,
        p in 0.0..=1.0_f64,
    ) {
        let of = |f: &dyn Fn(f64) -> f64| Summary::new(x.iter().map(|&v| f(f64::from(v))).collect());
        let (plain, moved) = (of(&|v| v)?, of(&|v| 4.0 * v + f64::from(shift))?);
        let want = |v: f64| 4.0 * v + f64::from(shift);
        for method in METHODS {
            let (got, want) = (moved.percentile_by(p, method)?, want(plain.percentile_by(p, method)?));
            prop_assert!((got - want).abs() <= 1e-9, "{got} != {want}");
        }
        prop_assert!((moved.mean() - want(plain.mean())).abs() <= 1e-9);
        prop_assert!((moved.std_population() - 4.0 * plain.std_population()).abs() <= 1e-9);
    }

    #[test]
    fn one_sample_is_every_percentile(x in -1e9..1e9_f64, p in 0.0..=1.0_f64) {
        let s = Summary::new(vec![x])?;
        for method in METHODS {
            prop_assert_eq!(s.percentile_by(p, method)?, x);
        }
        prop_assert_eq!((s.mean(), s.std(), s.std_population()), (x, None, 0.0));
    }

    /// The median is one point that minimizes the sum of absolute deviations.
    #[test]
    fn no_sample_beats_the_median_in_absolute_deviation(x in samples()) {
        let s = Summary::new(x.clone())?;
        let cost = |c: f64| x.iter().map(|v| (v - c).abs()).sum::<f64>();
        let at_median = cost(s.percentile(0.5)?);
        for &c in &x {
            prop_assert!(at_median <= cost(c) + 1e-9);
        }
    }
}

/// `numpy.percentile([15, 20, 35, 40, 50], [5, 30, 40, 99])`, and the nearest ranks of the same.
#[test]
fn a_published_example_has_its_values() {
    let x = [15.0, 20.0, 35.0, 40.0, 50.0];
    for (p, linear, nearest) in
        [(0.05, 16.0, 15.0), (0.3, 23.0, 20.0), (0.4, 29.0, 20.0), (0.99, 49.6, 50.0)]
    {
        assert!((percentile(&x, p).unwrap() - linear).abs() < 1e-12);
        assert_eq!(percentile_by(&x, p, PercentileMethod::NearestRank), Ok(nearest));
    }
}

/// 0.07 · 100 is 7.000000000000001 in floating point; the 7th sample is meant.
#[test]
fn a_whole_rank_is_not_missed_by_rounding() {
    for n in [10_u32, 100, 1000, 10_000] {
        let x: Vec<f64> = (1..=n).map(f64::from).collect();
        let s = Summary::new(x).unwrap();
        for k in 1..=n.min(1000) {
            let p = f64::from(k) / f64::from(n);
            let got = s.percentile_by(p, PercentileMethod::NearestRank);
            assert_eq!(got, Ok(f64::from(k)), "{k} of {n}");
        }
    }
}

/// Sample variance of 2, 4, 4, 4, 5, 5, 7, 9: squares sum to 32 around 5, over 7 or over 8.
#[test]
fn both_deviations_are_told_apart() {
    let s = Summary::new(vec![2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
    assert_eq!(s.std_population(), 2.0);
    assert!((s.std().unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-15);
}

/// A plain loop loses the ones beside 1e16, and with them the whole mean.
#[test]
fn small_samples_count_beside_large_ones() {
    let s = Summary::new(vec![1e16, 1.0, 1.0, -1e16]).unwrap();
    assert_eq!(s.mean(), 0.5);
    let equal = Summary::new(vec![0.1; 1000]).unwrap();
    assert_eq!((equal.mean(), equal.std()), (0.1, Some(0.0)));
}

#[test]
fn what_is_no_sample_is_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(matches!(Summary::new(vec![1.0, bad]), Err(Error::NotFinite { .. })));
        assert!(percentile(&[bad], 0.5).is_err());
        assert!(percentile(&[1.0], bad).is_err());
    }
    assert!(matches!(Summary::new(vec![]), Err(Error::Empty { .. })));
    assert!(matches!(percentile(&[], 0.5), Err(Error::Empty { .. })));
    assert!(percentile(&[1.0], 1.5).is_err());
    // A percentage where a fraction belongs.
    assert_eq!(percentile(&[1.0], 99.0).unwrap_err().to_string(), "p must be at most 1, got 99");
}

#[test]
fn a_limit_counts_inclusively() {
    let s = Summary::new(vec![0.3, 0.1, 0.2, 0.2]).unwrap();
    assert_eq!((s.at_most(0.05), s.at_most(0.2), s.at_most(1.0)), (0, 3, 4));
}

/// p90 of 1, 2, 4 lies at 1.8 between 2 and 4; squares sum to 14/3 around 7/3.
#[test]
fn a_row_survives_json() {
    let row = Summary::new(vec![1.0, 2.0, 4.0]).unwrap().row();
    let text = serde_json::to_string(&row).unwrap();
    assert_eq!(serde_json::from_str::<metrics_core::summary::SummaryRow>(&text).unwrap(), row);
    insta::assert_snapshot!(text.replace(",\"", "\n\""), @r#"
    {"p50":2.0
    "p90":3.6
    "p95":3.8
    "p99":3.96
    "max":4.0
    "min":1.0
    "mean":2.3333333333333335
    "std":1.5275252316519468
    "n":3}
    "#);
}
