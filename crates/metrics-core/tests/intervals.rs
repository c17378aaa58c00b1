//! Intervals against brute force, published values, and the truth of simulated samples.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy only knows the test functions")]

use metrics_core::Error;
use metrics_core::interval::{
    Confidence, Interval, IntervalMethod, NoInterval, Run, Side, autocorrelation, mean_independent,
    order_statistic_ranks, percentile_independent, percentile_lower_bound, percentile_upper_bound,
    proportion, proportion_exact, samples_for_upper_bound,
};
use metrics_core::summary::Summary;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// An exponential variable with mean 1.
fn exponential(rng: &mut Pcg64Mcg) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

/// Draws one sample.
type Draw = fn(&mut Pcg64Mcg) -> f64;
/// The value that a share of all samples does not exceed.
type Quantile = fn(f64) -> f64;

fn draw(n: usize, seed: u64, one: Draw) -> Summary {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    Summary::new((0..n).map(|_| one(&mut rng)).collect()).unwrap()
}

/// Waits of `n` successive customers of an M/M/1 queue with service rate 1, by Lindley's
/// recursion; the first wait is drawn from the stationary distribution.
fn mm1_waits(n: usize, rho: f64, seed: u64) -> Summary {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut wait =
        if rng.random::<f64>() < rho { exponential(&mut rng) / (1.0 - rho) } else { 0.0 };
    let next = |_| {
        let this = wait;
        wait = (wait + exponential(&mut rng) - exponential(&mut rng) / rho).max(0.0);
        this
    };
    Summary::new((0..n).map(next).collect()).unwrap()
}

/// The true percentile of an M/M/1 wait, from P(W > t) = ρ·exp(-(1 - ρ)·t).
fn mm1_percentile(rho: f64, p: f64) -> f64 {
    ((rho / (1.0 - p)).ln() / (1.0 - rho)).max(0.0)
}

/// How many runs got an interval, and how many of those hold the truth.
#[derive(Debug, Default)]
struct Coverage {
    runs: u32,
    given: u32,
    held: u32,
}

impl Coverage {
    fn add(&mut self, interval: &Result<Interval, NoInterval>, truth: f64) {
        self.runs += 1;
        if let Ok(interval) = interval {
            self.given += 1;
            self.held += u32::from(interval.contains(truth));
        }
    }

    fn held_share(&self) -> f64 {
        f64::from(self.held) / f64::from(self.given)
    }

    fn given_share(&self) -> f64 {
        f64::from(self.given) / f64::from(self.runs)
    }
}

/// 50,000 waits at ρ = 0.9 are worth about 300 independent ones. In 2,000 other runs the intervals
/// held the truth 95 to 97 % of the time; 400 runs of an
/// interval that holds 95.5 % fall below 93 % once in a hundred times.
#[test]
fn block_intervals_of_a_queue_cover_what_they_say() {
    let rho = 0.9;
    let mut attainment = Coverage::default();
    let (mut mean, mut percentiles) =
        (Coverage::default(), [0.5, 0.9, 0.95].map(|p| (p, Coverage::default())));
    for seed in 0..400 {
        let waits = mm1_waits(50_000, rho, seed);
        let run = waits.run();
        mean.add(&run.mean(Confidence::P95), rho / (1.0 - rho));
        let limit = mm1_percentile(rho, 0.9);
        let met: Vec<bool> = waits.values().iter().map(|&w| w <= limit).collect();
        attainment.add(&run.proportion(&met, Confidence::P95), 0.9);
        for (p, coverage) in &mut percentiles {
            coverage.add(&run.percentile(*p, Confidence::P95), mm1_percentile(rho, *p));
        }
    }
    println!("mean {mean:?}, percentiles {percentiles:?}, attainment {attainment:?}");
    assert!(0.93 <= attainment.held_share() && 0.95 <= attainment.given_share(), "{attainment:?}");
    assert!(0.93 <= mean.held_share(), "{mean:?}");
    assert!(0.95 <= mean.given_share(), "{mean:?}");
    for (p, coverage) in &percentiles {
        assert!(0.93 <= coverage.held_share(), "p = {p}: {coverage:?}");
        // p95 asks for 200 effective samples, which one run in ten misses.
        assert!(0.8 <= coverage.given_share(), "p = {p}: {coverage:?}");
    }
}

/// p99 wants 1,000 effective samples; 20,000 waits at half load are worth about 4,000.
#[test]
fn block_intervals_of_a_half_loaded_queue_cover_p99() {
    let rho = 0.5;
    let mut p99 = Coverage::default();
    for seed in 0..400 {
        let waits = mm1_waits(20_000, rho, 1000 + seed);
        p99.add(&waits.run().percentile(0.99, Confidence::P95), mm1_percentile(rho, 0.99));
    }
    println!("{p99:?}");
    assert!(0.93 <= p99.held_share() && 0.95 <= p99.given_share(), "{p99:?}");
}

/// 2,000 waits at ρ = 0.9 are worth about 20: no honest interval exists. In 4,000 other runs two
/// to four got one.
#[test]
fn a_short_run_of_a_busy_queue_is_refused() {
    let mut refused = 0;
    for seed in 0..500 {
        let waits = mm1_waits(2000, 0.9, seed);
        let run = waits.run();
        for interval in [
            run.mean(Confidence::P95),
            run.percentile(0.5, Confidence::P95),
            run.percentile(0.99, Confidence::P95),
        ] {
            refused += u32::from(matches!(interval, Err(NoInterval::TooShort { .. })));
        }
    }
    assert!(1494 <= refused, "{refused} of 1500");
}

/// p99 needs ten times as much as p90, so a run may have one interval and not the other.
#[test]
fn a_refusal_says_what_is_missing() {
    let waits = mm1_waits(50_000, 0.9, 1);
    let run = waits.run();
    assert!(run.percentile(0.9, Confidence::P95).is_ok());
    let refusal = run.percentile(0.99, Confidence::P95).unwrap_err();
    let NoInterval::TooShort { samples, effective, needed } = refusal else { panic!("{refusal}") };
    assert_eq!(samples, 50_000);
    assert!(100.0 < effective && effective < needed && (needed - 1000.0).abs() < 1e-9);
    let text = refusal.to_string();
    assert!(text.starts_with("too short: 50000 correlated samples are worth "), "{text}");
}

/// When all requests of a short busy run meet a limit, the latencies still tell that they are worth
/// a few only; Wilson's bound of 2,000 independent successes, 99.8 %, would be far too good.
#[test]
fn full_attainment_of_a_short_run_proves_nothing() {
    let short = mm1_waits(2000, 0.9, 4);
    let refusal = short.run().proportion(&[true; 2000], Confidence::P95);
    assert!(matches!(refusal, Err(NoInterval::TooShort { .. })), "{refusal:?}");

    let long = mm1_waits(50_000, 0.9, 4);
    let run = long.run();
    let all = run.proportion(&vec![true; 50_000], Confidence::P95).unwrap();
    assert_eq!((all.high, all.method), (Some(1.0), IntervalMethod::Blocks));
    // Nothing missed in n: the bound is n/(n + t²), with t of 19 degrees of freedom, 2.093.
    let worth = run.effective_samples();
    assert!((all.low.unwrap() - worth / (worth + 2.093_f64.powi(2))).abs() < 1e-4);
    assert!(run.proportion(&[], Confidence::P95).is_err());
}

/// A mean that wanders off is no mean: a drift fails the length or the block test.
#[test]
fn a_drifting_run_is_refused() {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let drift = (0..5000).map(|i| exponential(&mut rng) + f64::from(i) / 2500.0).collect();
    let drift = Summary::new(drift).unwrap();
    assert!(drift.run().is_correlated());
    assert!(drift.run().mean(Confidence::P95).is_err());
    assert!(drift.run().percentile(0.9, Confidence::P95).is_err());
}

/// Independent samples take the independent method, but for the 5 % that the two tests cost.
#[test]
fn independent_samples_are_recognized() {
    let mut correlated = 0;
    for seed in 0..1000 {
        correlated += u32::from(draw(200, seed, exponential).run().is_correlated());
    }
    // Two tests at 2.5 %, three standard errors of 0.7 % above and below.
    assert!((20..=71).contains(&correlated), "{correlated} of 1000");
}

/// Slow waves under noise: neighbours correlate with 0.05 only, but a thousand in a row do.
#[test]
fn slow_waves_under_noise_are_noticed() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let x = (0..10_000).map(|i| exponential(&mut rng) + 0.3 * f64::from(i % 2000) / 1000.0);
    let summary = Summary::new(x.collect()).unwrap();
    assert!(summary.run().is_correlated());
    assert!(summary.run().effective_samples() < 2000.0);
}

/// The integrated correlation time of an autoregression with factor φ is (1 + φ)/(1 - φ) = 3.
#[test]
fn effective_samples_of_an_autoregression_are_a_third() {
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    let mut x = 0.0;
    let next = |_| {
        // Twelve uniforms, nearly normal, so that ranks correlate like values.
        let noise = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        x = 0.5 * x + noise;
        x
    };
    let summary = Summary::new((0..100_000).map(next).collect()).unwrap();
    let share = summary.run().effective_samples() / 100_000.0;
    // Rank correlation of a normal pair with 0.5 is 0.483, of 0.25 is 0.239, …: the sum gives 0.345.
    assert!((0.31..0.38).contains(&share), "{share}");
    let lag1 = autocorrelation(summary.values(), 1).unwrap().unwrap();
    // Standard error sqrt((1 - φ²)/n) = 0.003.
    assert!((lag1 - 0.5).abs() < 0.012, "{lag1}");
}

#[test]
fn blocks_never_promise_more_than_independent_samples() {
    // Alternating values: the mean is far better known than from independent samples.
    let x = (0..1000).map(|i| f64::from(i % 2) + f64::from(i % 7) / 100.0).collect();
    let summary = Summary::new(x).unwrap();
    let run = summary.run();
    let blocks = run.mean_by_blocks(Confidence::P95).unwrap();
    let independent = mean_independent(&summary, Confidence::P95).unwrap();
    assert!(independent.width() <= blocks.width());
    assert_eq!(run.effective_samples(), 1000.0);
}

/// Chances of 0..=n successes by adding one trial at a time.
fn binomial(n: usize, p: f64) -> Vec<f64> {
    let mut chances = vec![1.0];
    for _ in 0..n {
        let with = |k: usize| if k == 0 { 0.0 } else { chances[k - 1] * p };
        let without = |k: usize| chances.get(k).map_or(0.0, |c| c * (1.0 - p));
        chances = (0..=chances.len()).map(|k| with(k) + without(k)).collect();
    }
    chances
}

/// The ranks by their definition, for every n up to 80.
#[test]
fn ranks_equal_brute_force() {
    for n in 1..=80_usize {
        for p in [0.01, 0.1, 0.37, 0.5, 0.9, 0.95, 0.99] {
            let chances = binomial(n, p);
            for c in [0.8, 0.9, 0.95, 0.99] {
                for (side, tail) in
                    [(Side::Both, (1.0 - c) / 2.0), (Side::Upper, 1.0 - c), (Side::Lower, 1.0 - c)]
                {
                    // P(x(r) > q) = P(B <= r - 1) and P(x(r) < q) = P(B >= r).
                    let low = (1..=n).rev().find(|&r| chances[..r].iter().sum::<f64>() <= tail);
                    let high = (1..=n).find(|&r| chances[r..].iter().sum::<f64>() <= tail);
                    let (low, high) = match side {
                        Side::Both => (low, high),
                        Side::Lower => (low, None),
                        Side::Upper => (None, high),
                    };
                    let got = order_statistic_ranks(n as u64, p, Confidence::new(c).unwrap(), side);
                    let want = (low.map(|r| r as u64), high.map(|r| r as u64));
                    assert_eq!(got, Ok(want), "n = {n}, p = {p}, {c}, {side:?}");
                }
            }
        }
    }
}

/// scipy 1.17 `stats.binom`: where statrs' own binomial is wrong in the third digit.
#[test]
fn ranks_are_right_for_millions_of_samples() {
    for (n, p, c, low, high) in [
        (1_000, 0.5, 0.95, 469, 532),
        (1_000, 0.99, 0.95, 983, 997),
        (100_000, 0.99, 0.99, 98_918, 99_081),
        (1_000_000, 0.5, 0.95, 499_020, 500_981),
        (1_000_000, 0.99, 0.95, 989_805, 990_196),
        (1_000_000, 0.999, 0.99, 998_918, 999_081),
        (10_000_000, 0.5, 0.95, 4_996_901, 5_003_100),
        (10_000_000, 0.99, 0.99, 9_899_189, 9_900_811),
    ] {
        let got = order_statistic_ranks(n, p, Confidence::new(c).unwrap(), Side::Both);
        assert_eq!(got, Ok((Some(low), Some(high))), "n = {n}, p = {p}, {c}");
    }
}

/// 0.95^58 > 5 % >= 0.95^59 and its like; two-sided intervals have 2.5 % to spend.
#[test]
fn an_upper_bound_needs_enough_samples() {
    for (p, one_sided, two_sided) in [(0.95, 59, 72), (0.99, 299, 368), (0.999, 2995, 3688)] {
        assert_eq!(samples_for_upper_bound(p, Confidence::P95), Ok(one_sided));
        let exists =
            |n, side| order_statistic_ranks(n, p, Confidence::P95, side).unwrap().1.is_some();
        assert!(!exists(one_sided - 1, Side::Upper) && exists(one_sided, Side::Upper));
        assert!(!exists(two_sided - 1, Side::Both) && exists(two_sided, Side::Both));
    }
    let few = draw(298, 1, exponential);
    let bound = percentile_upper_bound(&few, 0.99, Confidence::P95).unwrap();
    assert_eq!((bound.low, bound.high), (None, None));
    let enough = draw(299, 1, exponential);
    let bound = percentile_upper_bound(&enough, 0.99, Confidence::P95).unwrap();
    assert_eq!((bound.low, bound.high), (None, Some(enough.max())));
}

/// Whether `held` of `runs` is at least `nominal`, up to three standard errors.
fn at_least(held: u32, runs: u32, nominal: f64) -> bool {
    let error = (nominal * (1.0 - nominal) / f64::from(runs)).sqrt();
    nominal - 3.0 * error <= f64::from(held) / f64::from(runs)
}

#[test]
fn percentile_intervals_cover_for_any_distribution() {
    let uniform: Draw = RngExt::random;
    let exponential_quantile = |p: f64| -(1.0 - p).ln();
    let quantiles: [(Draw, Quantile); 2] = [(exponential, exponential_quantile), (uniform, |p| p)];
    for (one, quantile) in quantiles {
        for (n, p) in [(30, 0.5), (100, 0.9), (400, 0.99), (50, 0.99)] {
            let (mut both, mut upper, mut lower) = (0, 0, 0);
            for seed in 0..1000 {
                let s = draw(n, 5000 + seed, one);
                let held = |i: Result<Interval, _>| u32::from(i.unwrap().contains(quantile(p)));
                both += held(percentile_independent(&s, p, Confidence::P95));
                upper += held(percentile_upper_bound(&s, p, Confidence::P90));
                lower += held(percentile_lower_bound(&s, p, Confidence::P90));
            }
            assert!(at_least(both, 1000, 0.95), "n = {n}, p = {p}: {both}");
            assert!(at_least(upper, 1000, 0.9), "n = {n}, p = {p}: {upper}");
            assert!(at_least(lower, 1000, 0.9), "n = {n}, p = {p}: {lower}");
        }
    }
}

#[test]
fn mean_intervals_of_uniform_samples_cover() {
    let held = (0..2000)
        .filter(|&seed| {
            let s = draw(20, seed, RngExt::random);
            mean_independent(&s, Confidence::P95).unwrap().contains(0.5)
        })
        .count();
    assert!(at_least(u32::try_from(held).unwrap(), 2000, 0.95), "{held}");
}

/// Five samples 1 to 5: mean 3, s = sqrt(2.5), and t = 2.776445 with 4 degrees of freedom.
#[test]
fn a_mean_interval_equals_the_hand_computed_one() {
    let s = Summary::new(vec![1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let ci = mean_independent(&s, Confidence::P95).unwrap();
    let half = 2.776_445_105 * (2.5_f64 / 5.0).sqrt();
    assert!((ci.low.unwrap() - (3.0 - half)).abs() < 1e-8);
    assert!((ci.high.unwrap() - (3.0 + half)).abs() < 1e-8);
    // One degree of freedom has quantile tan(0.475·π) = 12.7062; s = sqrt(2), so s/sqrt(2) = 1.
    let two = Summary::new(vec![0.0, 2.0]).unwrap();
    let ci = mean_independent(&two, Confidence::P95).unwrap();
    assert!((ci.high.unwrap() - 1.0 - 12.706_204_736).abs() < 1e-8);
    let one = Summary::new(vec![1.0]).unwrap();
    assert!(mean_independent(&one, Confidence::P95).is_err());
}

/// scipy 1.17 `stats.t.ppf(0.975, df)` around the change of method at 1,000, and far beyond.
#[test]
fn t_is_right_for_few_and_for_many_degrees_of_freedom() {
    for (n, t) in [
        (1000_usize, 1.962_341_461_133_449_3_f64),
        (1001, 1.962_339_080_826_408_3),
        (1002, 1.962_336_705_280_879_8),
        (10_000, 1.960_201_263_621_357),
        (1_000_000, 1.959_966_356_816_479_1),
    ] {
        let s = Summary::new((0..n).map(|i| (i % 2) as f64).collect()).unwrap();
        let half = mean_independent(&s, Confidence::P95).unwrap().width().unwrap() / 2.0;
        let got = half / (s.std().unwrap() / (n as f64).sqrt());
        assert!((got / t - 1.0).abs() < 1e-10, "n = {n}: {got} != {t}");
    }
}

/// Newcombe, *Two-Sided Confidence Intervals for the Single Proportion*, Statistics in Medicine 17
/// (1998), table I, methods 3 and 5, to the four digits printed there.
#[test]
fn proportions_equal_newcombes_table() {
    for (good, total, wilson, exact) in [
        (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
        (15, 148, (0.0624, 0.1605), (0.0578, 0.1617)),
        (0, 20, (0.0, 0.1611), (0.0, 0.1684)),
        (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
    ] {
        for (got, want) in [
            (proportion(good, total, Confidence::P95), wilson),
            (proportion_exact(good, total, Confidence::P95), exact),
        ] {
            let got = got.unwrap();
            assert!((got.low.unwrap() - want.0).abs() <= 5e-5, "{got:?}");
            assert!((got.high.unwrap() - want.1).abs() <= 5e-5, "{got:?}");
        }
    }
}

/// scipy 1.17 `stats.beta.ppf` of 0.025 and 0.975 with shapes (x, n - x + 1) and (x + 1, n - x).
/// (`binomtest` solves to 2e-12 only, which shows at 3 in a million.)
#[test]
fn exact_proportions_hold_for_large_counts() {
    for (good, total, low, high) in [
        (500_000, 1_000_000, 0.499_019_519_195_311_84, 0.500_980_480_804_688_2),
        (3, 1_000_000, 6.186_725_501_906_401e-7, 8.767_247_788_067_677e-6),
        (999, 1_000, 0.994_441_075_720_173_4, 0.999_974_682_512_508_8),
    ] {
        let got = proportion_exact(good, total, Confidence::P95).unwrap();
        assert!((got.low.unwrap() / low - 1.0).abs() < 1e-9, "{got:?}");
        assert!((got.high.unwrap() / high - 1.0).abs() < 1e-9, "{got:?}");
    }
}

proptest! {
    #[test]
    fn proportions_are_symmetric_and_hold_the_estimate((total, good) in (1..500_u64).prop_flat_map(|n| (Just(n), 0..=n))) {
        for f in [proportion, proportion_exact] {
            let (a, b) = (f(good, total, Confidence::P95)?, f(total - good, total, Confidence::P95)?);
            let (low, high) = (a.low.unwrap(), a.high.unwrap());
            prop_assert!(0.0 <= low && low < high && high <= 1.0);
            prop_assert!(a.contains(good as f64 / total as f64));
            prop_assert!((low + b.high.unwrap() - 1.0).abs() < 1e-12);
            let wider = f(good, total, Confidence::P99)?;
            prop_assert!(wider.low <= a.low && a.high <= wider.high);
        }
    }

    /// Intervals move with the samples, whichever method is chosen: by powers of two, exactly.
    #[test]
    fn intervals_scale_with_the_samples(seed in 0..1000_u64, rho in prop_oneof![Just(0.1), Just(0.5)]) {
        let plain = mm1_waits(3000, rho, seed);
        let scaled = Summary::new(plain.values().iter().map(|x| 8.0 * x).collect())?;
        let (a, b) = (plain.run(), scaled.run());
        prop_assert_eq!(a.effective_samples(), b.effective_samples());
        let eight = |i: Interval| (i.low.map(|x| 8.0 * x), i.high.map(|x| 8.0 * x));
        let plain = |i: Interval| (i.low, i.high);
        for f in [Run::mean, Run::mean_by_blocks] {
            prop_assert_eq!(f(&a, Confidence::P95).ok().map(eight), f(&b, Confidence::P95).ok().map(plain));
        }
        for p in [0.5, 0.9] {
            prop_assert_eq!(
                a.percentile_by_blocks(p, Confidence::P95).ok().map(eight),
                b.percentile_by_blocks(p, Confidence::P95).ok().map(plain)
            );
        }
    }

    /// No input of finite samples makes a NaN, a panic or an inverted interval.
    #[test]
    fn every_run_gets_an_ordered_interval_or_a_reason(
        x in prop::collection::vec(prop_oneof![Just(0.0), Just(1.0), -1e100..1e100_f64], 1..300),
        p in 0.001..0.999_f64,
        confidence in prop_oneof![Just(1e-9), Just(0.5), Just(0.95), Just(1.0 - 1e-9)],
    ) {
        let summary = Summary::new(x)?;
        let (run, c) = (summary.run(), Confidence::new(confidence)?);
        for interval in [
            run.mean(c), run.percentile(p, c), run.mean_by_blocks(c), run.percentile_by_blocks(p, c),
            mean_independent(&summary, c), percentile_independent(&summary, p, c),
        ].into_iter().flatten() {
            let (low, high) = (interval.low.unwrap_or(f64::MIN), interval.high.unwrap_or(f64::MAX));
            prop_assert!(low <= high, "{interval:?}");
        }
    }
}

#[test]
fn equal_samples_have_an_interval_without_width() {
    let s = Summary::new(vec![3.0; 500]).unwrap();
    let run = s.run();
    assert!(!run.is_correlated());
    for interval in [
        run.mean(Confidence::P95),
        run.mean_by_blocks(Confidence::P95),
        run.percentile(0.5, Confidence::P95),
        run.percentile_by_blocks(0.5, Confidence::P95),
    ] {
        let interval = interval.unwrap();
        assert_eq!((interval.low, interval.high), (Some(3.0), Some(3.0)), "{interval:?}");
    }
}

#[test]
fn what_has_no_interval_is_refused() {
    for bad in [0.0, 1.0, -0.5, 95.0, f64::NAN] {
        assert!(Confidence::new(bad).is_err());
        let s = draw(20, 1, exponential);
        assert!(percentile_independent(&s, bad, Confidence::P95).is_err());
        assert!(s.run().percentile(bad, Confidence::P95).is_err());
    }
    assert_eq!(
        Confidence::new(95.0).unwrap_err().to_string(),
        "confidence must be below 1, got 95"
    );
    assert!(proportion(1, 0, Confidence::P95).is_err());
    assert!(proportion_exact(3, 2, Confidence::P95).is_err());
    assert!(order_statistic_ranks(0, 0.5, Confidence::P95, Side::Both).is_err());
    assert!(matches!(autocorrelation(&[1.0, 2.0], 2), Err(Error::TooFew { .. })));
    assert_eq!(autocorrelation(&[1.0, 1.0], 1), Ok(None));
}

#[test]
fn an_interval_survives_json() {
    let interval = proportion(25, 120, Confidence::P95).unwrap();
    assert_eq!(interval.method, IntervalMethod::Wilson);
    let text = serde_json::to_string(&interval).unwrap();
    assert_eq!(serde_json::from_str::<Interval>(&text).unwrap(), interval);
    assert!(text.contains(r#""confidence":0.95,"side":"both","method":"wilson""#), "{text}");
}
