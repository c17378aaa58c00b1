//! Small functions that keep their digits where the textbook expression loses them.

use std::f64::consts::TAU;

use crate::error::{QueueError, Result};

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

/// Σ over whole i from `low` to below `high` of the Poisson probability of i at mean `x`, times
/// `weight(i)`.
///
/// The weights must be log-concave, so that the terms have one peak: the sum starts there and goes
/// out on both sides while a term counts.
pub(crate) fn poisson_mean(x: f64, low: f64, high: f64, weight: impl Fn(f64) -> f64) -> f64 {
    // Beyond this the Poisson probability itself is 0.
    let high = high.min((x + 40.0 * x.sqrt() + 400.0).floor());
    if high <= low {
        return 0.0;
    }
    let rises = |i: f64| {
        let (here, next) = (weight(i), weight(i + 1.0));
        here < next && here == 0.0 || here * (i + 1.0) < x * next
    };
    let (mut left, mut right) = (low, high - 1.0);
    while left < right {
        let middle = (0.5 * (left + right)).floor();
        if rises(middle) {
            left = middle + 1.0;
        } else {
            right = middle;
        }
    }
    let peak = poisson(left, x);
    let mut sum = peak * weight(left);
    let (mut p, mut i) = (peak, left);
    while i + 1.0 < high {
        i += 1.0;
        p *= x / i;
        let term = p * weight(i);
        sum += term;
        if term <= 1e-18 * sum {
            break;
        }
    }
    let (mut p, mut i) = (peak, left);
    while low < i && 0.0 < x {
        p *= i / x;
        i -= 1.0;
        let term = p * weight(i);
        sum += term;
        if term <= 1e-18 * sum {
            break;
        }
    }
    sum
}

/// Probability of `n` jobs, fewer than the `c` servers, at a load `a` = ρ c: that of c jobs is
/// `at_c`, and that of c or more is `full`.
pub(crate) fn below_full(n: f64, c: f64, a: f64, rho: f64, idle: f64, at_c: f64, full: f64) -> f64 {
    if full <= 1e-18 {
        // Where hardly anybody waits, no digit of the Poisson law is touched.
        return poisson(n, a);
    }
    if 0.0 <= idle {
        return poisson(n, a) * (at_c / poisson(c, a));
    }
    // c! a^n / (n! a^c), in factors of which none overflows.
    at_c * ((n - c) * ln_of(rho, idle)).exp() * (poisson(n, c) / poisson(c, c))
}

/// Iterations after which [`quantile`] gives up; it needs about ten.
const ITERATIONS: u32 = 400;

/// The least `t` at which a distribution with an atom `at_zero` at 0 reaches `p`, from its cdf and
/// its survival function; `scale` is a time of the order of its mean.
///
/// Regula falsi (Illinois) on the logarithm of the smaller tail, which is nearly straight.
pub(crate) fn quantile(
    name: &'static str,
    p: f64,
    at_zero: f64,
    scale: f64,
    cdf: impl Fn(f64) -> f64,
    sf: impl Fn(f64) -> f64,
) -> Result<f64> {
    if p <= at_zero {
        return Ok(0.0);
    }
    let rest = 1.0 - p;
    if rest == 0.0 {
        return Ok(f64::INFINITY);
    }
    // Positive beyond the quantile.
    let error = |t: f64| if p < 0.5 { (cdf(t) / p).ln() } else { -(sf(t) / rest).ln() };
    let (mut low, mut high) = (0.0, scale);
    let mut at_high = error(high);
    let mut doublings = 0;
    while at_high < 0.0 {
        (low, high) = (high, 2.0 * high);
        at_high = error(high);
        doublings += 1;
        if 2000 < doublings || !high.is_finite() {
            return Err(QueueError::NotConverged { name, iterations: 2000, residual: -at_high });
        }
    }
    let mut at_low = if low == 0.0 { error(0.0) } else { error(low) };
    if 0.0 <= at_low {
        return Ok(low);
    }
    let mut residual = 1.0;
    for step in 0..ITERATIONS {
        let width = high - low;
        residual = width / high;
        if residual <= 2.0 * f64::EPSILON {
            return Ok(high);
        }
        // Every third step halves, so that a curve with a corner cannot stall the secant.
        let secant = high - width * (at_high / (at_high - at_low));
        let straight = at_low.is_finite() && at_high.is_finite() && step % 3 != 2;
        let t = if straight && low < secant && secant < high {
            secant
        } else if low == 0.0 {
            // Ever larger steps towards 0: the quantile of a tiny p may be of any size.
            high * 2.0_f64.powi(-1 - step.min(900).cast_signed())
        } else if low < 1e-3 * high {
            low.sqrt() * high.sqrt()
        } else {
            0.5 * low + 0.5 * high
        };
        if t <= low || high <= t {
            return Ok(high);
        }
        let at = error(t);
        if at == 0.0 {
            return Ok(t);
        }
        if at < 0.0 {
            (low, at_low) = (t, at);
            // Next to the root the secant only moves one end: look on the other side of it.
            let beyond = t + (t - low).abs().max(4.0 * f64::EPSILON * t);
            if beyond < high {
                let at = error(beyond);
                if 0.0 <= at {
                    (high, at_high) = (beyond, at);
                }
            }
        } else {
            (high, at_high) = (t, at);
            let before = t * (1.0 - 4.0 * f64::EPSILON);
            if low < before {
                let at = error(before);
                if at <= 0.0 {
                    (low, at_low) = (before, at);
                }
            }
        }
    }
    Err(QueueError::NotConverged { name, iterations: ITERATIONS, residual })
}

/// Σ ρ^j for j from 0 to below `n`, from ρ and `idle` = 1 − ρ, which may be negative.
pub(crate) fn geometric_sum(rho: f64, idle: f64, n: f64) -> f64 {
    if n == 0.0 {
        return 0.0;
    }
    if idle == 0.0 {
        return n;
    }
    if idle == 1.0 {
        return 1.0;
    }
    -(n * ln_of(rho, idle)).exp_m1() / idle
}

/// Bernoulli numbers over factorials: 1 / (e^x − 1) = 1/x − 1/2 − Σ b x^(2k + 1).
const BERNOULLI: [f64; 8] = [
    -1.0 / 12.0,
    1.0 / 720.0,
    -1.0 / 30240.0,
    1.0 / 1_209_600.0,
    -1.0 / 47_900_160.0,
    691.0 / 1_307_674_368_000.0,
    -1.0 / 74_724_249_600.0,
    3617.0 / 10_670_622_842_880_000.0,
];

/// Mean of j on 0 to below `n` with weights ρ^j, for ρ from 0 to 1.
pub(crate) fn geometric_mean_place(rho: f64, idle: f64, n: f64) -> f64 {
    if n <= 1.0 || rho == 0.0 {
        return 0.0;
    }
    let theta = -ln_of(rho, idle);
    let whole = n * theta;
    if whole < 1.0 {
        // 1 / (e^θ − 1) − n / (e^(nθ) − 1), both by their series in Bernoulli numbers, since they
        // are nearly alike.
        let series = |x: f64| BERNOULLI.iter().rev().fold(0.0, |sum, b| sum * x * x + b) * x;
        return 0.5 * (n - 1.0) + n * series(whole) - series(theta);
    }
    1.0 / theta.exp_m1() - n / whole.exp_m1()
}

/// Variance of j on 0 to below `n` with weights ρ^j, for ρ from 0 to 1.
pub(crate) fn geometric_var_place(rho: f64, idle: f64, n: f64) -> f64 {
    if n <= 1.0 || rho == 0.0 {
        return 0.0;
    }
    let theta = -ln_of(rho, idle);
    let whole = n * theta;
    if whole < 1.0 {
        // Minus the derivative of the mean's series with respect to θ.
        let slope = |x: f64| {
            let mut odd = 17.0;
            BERNOULLI.iter().rev().fold(0.0, |sum, b| {
                odd -= 2.0;
                sum * x * x + odd * b
            })
        };
        // The first terms alone make (n² − 1) / 12, and are apart where n is near 1.
        return slope(theta) - n * n * slope(whole);
    }
    // n² e^(nθ) / (e^(nθ) − 1)², which is 0 where e^(nθ) overflows.
    let spread = |x: f64| 0.25 / (0.5 * x).sinh() / (0.5 * x).sinh();
    (spread(theta) - n * n * spread(whole)).max(0.0)
}

/// ln ρ from whichever of ρ and 1 − ρ has its digits.
pub(crate) fn ln_of(rho: f64, idle: f64) -> f64 {
    if idle.abs() < 0.5 { (-idle).ln_1p() } else { rho.ln() }
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
