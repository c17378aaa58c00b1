//! Small functions that keep their digits where the textbook expression loses them.

use std::f64::consts::TAU;

/// `ρ^n` for any `n`, from ρ and `idle` = 1 − ρ.
///
/// Near ρ = 1 the logarithm comes from `idle`, which has all its digits there.
pub(crate) fn geometric(rho: f64, idle: f64, n: f64) -> f64 {
    if rho < 0.5 || n < 16.0 { rho.powf(n) } else { (n * (-idle).ln_1p()).exp() }
}

/// `(1 − e^(−x)) / x`, which is 1 at 0.
pub(crate) fn decay_mean(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { -(-x).exp_m1() / x }
}

/// `x ln(x / m) − x + m`, the deviance of a Poisson variable: 0 at `x = m`, positive elsewhere.
///
/// Near `x = m` by the series of Loader, *Fast and Accurate Computation of Binomial
/// Probabilities*, 2000, where the plain expression cancels.
pub(crate) fn deviance(x: f64, m: f64) -> f64 {
    let v = (x - m) / (x + m);
    if 0.25 <= v.abs() {
        // The quotient x / m would overflow for a subnormal m.
        return x * (x.ln() - m.ln()) - x + m;
    }
    let (mut power, mut odd, mut sum) = (v, 1.0, 0.0);
    loop {
        power *= v * v;
        odd += 2.0;
        let term = power / odd;
        sum += term;
        if term.abs() <= 1e-17 * f64::abs(sum) {
            return (x - m) * v + 2.0 * x * sum;
        }
    }
}

/// `ln n! − (n + ½) ln n + n − ½ ln 2π`, the error of Stirling's formula, for `n` of 16 and more.
pub(crate) fn stirling_error(n: f64) -> f64 {
    let s = 1.0 / (n * n);
    (1.0 / 12.0 - s * (1.0 / 360.0 - s * (1.0 / 1260.0 - s * (1.0 / 1680.0 - s / 1188.0)))) / n
}

/// The Poisson probability of `n` at mean `m`.
pub(crate) fn poisson(n: f64, m: f64) -> f64 {
    if m == 0.0 {
        return if n == 0.0 { 1.0 } else { 0.0 };
    }
    if 16.0 <= n {
        return (-stirling_error(n) - deviance(n, m)).exp() / (TAU * n).sqrt();
    }
    // e^(−m) in two halves: whole, it underflows where the product with m^n does not.
    let half = (-0.5 * m).exp();
    let (mut p, mut k) = (half, 0.0);
    while k < n && 0.0 < p {
        k += 1.0;
        p *= m / k;
    }
    p * half
}

/// The complementary error function, to a few 1e-15 of its value up to 5 and 1e-13 beyond.
///
/// That of statrs 0.19 is 5e-11 off around 1, measured against 25 digits: not enough here.
pub(crate) fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    let scale = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x < 2.0 {
        // erf by its series of positive terms: 2 x e^(−x²) / √π · Σ (2 x²)^n / (1 · 3 · 5 …).
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while 1e-18 * sum < term {
            odd += 2.0;
            term *= 2.0 * x * x / odd;
            sum += term;
        }
        return 1.0 - 2.0 * scale * sum;
    }
    // Laplace's continued fraction, from far inside.
    let mut below = x;
    for k in (1..=120).rev() {
        below = x + 0.5 * f64::from(k) / below;
    }
    scale / below
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides of the switch at 16 satisfy p(n) = p(n − 1) · m / n.
    #[test]
    fn poisson_obeys_its_recursion_across_the_switch() {
        for m in [0.3, 5.0, 15.5, 40.0] {
            for n in 10..40 {
                let (n, before) = (f64::from(n), f64::from(n - 1));
                let step = poisson(before, m) * m / n;
                assert!((poisson(n, m) / step - 1.0).abs() < 1e-13, "{n} {m}");
            }
        }
    }

    #[test]
    fn deviance_is_continuous_where_the_series_takes_over() {
        // v = 0.25 at x / m = 5 / 3.
        let (below, above) = (deviance(5.0 - 1e-9, 3.0), deviance(5.0 + 1e-9, 3.0));
        assert!((above - below - 2e-9 * (5.0_f64 / 3.0).ln()).abs() < 1e-14);
        assert!(deviance(7.0, 7.0) == 0.0);
    }

    #[test]
    fn geometric_agrees_on_both_ways() {
        assert!((geometric(0.75, 0.25, 100.0) / 0.75_f64.powi(100) - 1.0).abs() < 1e-13);
        assert!((geometric(0.0, 1.0, 0.0) - 1.0).abs() < 1e-16);
        assert!(geometric(0.0, 1.0, 3.0) == 0.0);
    }

    /// Against values from tables with 16 digits, and across the switch.
    #[test]
    fn erfc_holds_its_digits() {
        for (x, want) in [
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (1.999_999_999_999_99, 0.004_677_734_981_047_47),
            (2.0, 0.004_677_734_981_047_266),
            (3.0, 2.209_049_699_858_544e-5),
            (-1.0, 1.842_700_792_949_715),
        ] {
            assert!((erfc(x) / want - 1.0).abs() < 1e-13, "{x}: {:e}", erfc(x));
        }
    }
}
