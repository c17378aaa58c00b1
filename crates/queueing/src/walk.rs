//! The random walk with steps Poisson(a) − c: what waits in M/D/c from one service time to the
//! next, and what a full batch leaves behind.
//!
//! Spitzer's identity writes the law of its maximum M as exp(Σ b(j) (z^j − 1) / j) with
//! b(j) = j · Σ P(S(n) = j) / n over n from 1: all terms are positive, so that no probability,
//! however small, comes from a difference. From b follow the mean Σ b(j), the probabilities by
//! m q(m) = Σ b(j) q(m − j), and P(S stays below 0) = e^(−b(0)) P(M = 0).
//!
//! Two things make it quick at any load. The sum over n is smooth, so that beyond its first terms
//! Gregory's formula with Gauss's quadrature sums thousands of millions of terms at once. And b(j)
//! tends to r^j, where 1 / r is the real root above 1 of w^c = e^(a (w − 1)); the next root, which
//! is complex, tells from which j on no digit is missing.
//!
//! Source: Spitzer, *A combinatorial lemma and its application to probability theory*, 1956; for
//! the roots, Franx, *A simple solution for the M/D/c waiting time distribution*, 2001.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "indices come from whole numbers that were checked to be below 10^8"
)]

use crate::error::{QueueError, Result};
use crate::numeric::{deviance, poisson, stirling_error};

/// Terms of the sum over n that are added one by one.
const PLAIN: usize = 200;

/// Abscissas and weights of Gauss and Legendre on [−1, 1], 12 points: the positive half.
const GAUSS: [(f64, f64); 6] = [
    (0.125_233_408_511_468_9, 0.249_147_045_813_402_8),
    (0.367_831_498_998_180_2, 0.233_492_536_538_354_8),
    (0.587_317_954_286_617_4, 0.203_167_426_723_065_92),
    (0.769_902_674_194_304_7, 0.160_078_328_543_346_23),
    (0.904_117_256_370_474_9, 0.106_939_325_995_318_43),
    (0.981_560_634_246_719_3, 0.047_175_336_386_511_83),
];

/// Weights of f(N), f(N + 1), … in Σ f(n) over n from N, beside the integral from N: Gregory's
/// coefficients 1/2, −1/12, 1/24, −19/720, 3/160, −863/60480, 275/24192, −33953/3628800 of the
/// differences, multiplied out.
fn gregory() -> [f64; 8] {
    const OF_DIFFERENCES: [f64; 8] = [
        1.0 / 2.0,
        -1.0 / 12.0,
        1.0 / 24.0,
        -19.0 / 720.0,
        3.0 / 160.0,
        -863.0 / 60_480.0,
        275.0 / 24_192.0,
        -33_953.0 / 3_628_800.0,
    ];
    let mut weights = [0.0; 8];
    for (k, coefficient) in OF_DIFFERENCES.iter().enumerate() {
        let mut binomial = 1.0;
        for (i, weight) in weights.iter_mut().enumerate().take(k + 1) {
            let sign = if (k - i) % 2 == 0 { 1.0 } else { -1.0 };
            *weight += sign * binomial * coefficient;
            binomial *= (k - i) as f64 / (i + 1) as f64;
        }
    }
    weights
}

/// The maximum of the walk with steps Poisson(a) − c.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Walk {
    /// c.
    pub(crate) c: f64,
    /// a, above 0 and below c.
    pub(crate) a: f64,
    /// Σ P(S(n) = 0) / n.
    pub(crate) level: f64,
    /// b(1), b(2), …; beyond the last, r^j.
    b: Vec<f64>,
    /// The ratio to which probabilities tend.
    pub(crate) r: f64,
    /// 1 / r − 1, with all its digits.
    pub(crate) growth: f64,
}

impl Walk {
    /// The walk for `0 < a < c`, with `idle` = (c − a) / c.
    pub(crate) fn new(c: f64, a: f64, idle: f64) -> Result<Self> {
        let growth = real_root(c, a, idle);
        let r = 1.0 / (1.0 + growth);
        // Under light load many roots are alike, but there r^j is soon below what f64 holds.
        let vanished = (745.0 / growth.ln_1p()).ceil().min(1e7) as usize + 2;
        let terms = settled(c, a, growth)?.min(vanished);
        let mut walk = Self { c, a, level: 0.0, b: vec![0.0; terms], r, growth };
        // P(S(n) = 0) falls as e^(−n · decay), and the others no slower beside r^j.
        let decay = deviance(c, a);
        let steeper = (a / c).ln() + growth.ln_1p();
        let last = ((42.0 + terms as f64 * steeper.max(0.0)) / decay).ceil();
        if last <= 2.0 * PLAIN as f64 {
            for n in 1..=last as u32 {
                walk.add(f64::from(n), 1.0, decay);
            }
        } else {
            for n in 1..PLAIN as u32 {
                walk.add(f64::from(n), 1.0, decay);
            }
            for (i, weight) in gregory().into_iter().enumerate() {
                walk.add((PLAIN + i) as f64, weight, decay);
            }
            // ∫ f dn = ∫ f n ds over s = ln n, in panels short enough for e^(−decay · e^s).
            let (from, to) = ((PLAIN as f64).ln(), last.ln());
            let panels = ((to - from) / 0.5).ceil();
            let half = 0.5 * (to - from) / panels;
            let mut middle = from + half;
            while middle < to {
                for (x, weight) in GAUSS {
                    for s in [middle - half * x, middle + half * x] {
                        let n = s.exp();
                        walk.add(n, weight * half * n, decay);
                    }
                }
                middle += 2.0 * half;
            }
        }
        Ok(walk)
    }

    /// Adds weight · P(S(n) = j) / n to every b, times j.
    fn add(&mut self, n: f64, weight: f64, decay: f64) {
        let (x, mean) = (n * self.c, n * self.a);
        let zero = if 16.0 <= x {
            // The deviance of n c at mean n a, from that of c at a: n · a would be rounded first.
            (-n * decay - stirling_error(x)).exp() / (std::f64::consts::TAU * x).sqrt()
        } else {
            poisson(x, mean)
        };
        let mut p = zero / n * weight;
        self.level += p;
        let mut j = 0.0;
        for b in &mut self.b {
            j += 1.0;
            p *= mean / (x + j);
            *b += j * p;
            if p == 0.0 {
                break;
            }
        }
    }

    /// r^(n), for n beyond what is listed.
    pub(crate) fn power(&self, n: f64) -> f64 {
        (-n * self.growth.ln_1p()).exp()
    }

    /// 1 − r.
    pub(crate) fn idle(&self) -> f64 {
        self.growth * self.r
    }

    fn listed(&self) -> f64 {
        self.b.len() as f64
    }

    /// E\[M\].
    pub(crate) fn mean(&self) -> f64 {
        self.b.iter().sum::<f64>() + self.power(self.listed() + 1.0) / self.idle()
    }

    /// Σ (j − 1) b(j): E\[M (M − 1)\] − E\[M\]².
    pub(crate) fn second(&self) -> f64 {
        let mut sum = 0.0;
        for (i, b) in self.b.iter().enumerate() {
            sum += i as f64 * b;
        }
        let idle = self.idle();
        sum + self.power(self.listed() + 1.0) / idle * (self.listed() + self.r / idle)
    }

    /// −ln P(M = 0) = Σ b(j) / j.
    pub(crate) fn minus_ln_zero(&self) -> f64 {
        let (mut sum, mut power, mut j) = (0.0, 1.0, 0.0);
        if self.r < 0.9 {
            for b in &self.b {
                j += 1.0;
                sum += b / j;
            }
            let mut term = self.power(j + 1.0);
            while 1e-18 * sum < term && 0.0 < term {
                j += 1.0;
                sum += term / j;
                term *= self.r;
            }
            return sum;
        }
        // The rest of the series is that of −ln(1 − r), which is well above 0 here.
        for b in &self.b {
            j += 1.0;
            power *= self.r;
            sum += (b - power) / j;
        }
        sum - self.idle().ln()
    }

    /// P(M = m) / P(M = 0) for m below `count`.
    pub(crate) fn ratios(&self, count: usize) -> Vec<f64> {
        let mut q = Vec::with_capacity(count);
        let listed = self.b.len();
        let first_beyond = self.power(self.listed() + 1.0);
        // What the r^j beyond the list give, carried from one m to the next.
        let mut beyond = 0.0;
        for m in 0..count {
            if m == 0 {
                q.push(1.0);
                continue;
            }
            beyond *= self.r;
            if listed < m {
                beyond += first_beyond * q[m - 1 - listed];
            }
            let mut sum = beyond;
            for (b, before) in self.b.iter().zip(q.iter().rev()) {
                sum += b * before;
            }
            q.push(sum / m as f64);
        }
        q
    }

    /// Number of ratios from which on the next is r times the last, to rounding.
    pub(crate) fn settles(&self) -> usize {
        3 * self.b.len() / 2 + 8
    }
}

/// x above 0 with ln(1 + x) = ρ x, ρ = a / c: the root w = 1 + x of w^c = e^(a (w − 1)).
fn real_root(c: f64, a: f64, idle: f64) -> f64 {
    let rho = a / c;
    // Concave: from the right of the root Newton's method comes down to it.
    let value = |x: f64| if idle < 0.5 { ln_1p_less(x) + idle * x } else { x.ln_1p() - rho * x };
    let slope = |x: f64| if idle < 0.5 { idle - x / (1.0 + x) } else { 1.0 / (1.0 + x) - rho };
    let mut x = 2.0 * idle / rho;
    while 0.0 < value(x) {
        x *= 2.0;
    }
    for _ in 0..200 {
        let next = x - value(x) / slope(x);
        if x <= next || (x - next) <= 1e-16 * x {
            break;
        }
        x = next;
    }
    x
}

/// ln(1 + x) − x, for x above −1/2, without their difference where x is small.
pub(crate) fn ln_1p_less(x: f64) -> f64 {
    if 0.5 < x.abs() {
        return x.ln_1p() - x;
    }
    // With v = x / (2 + x): ln(1 + x) = 2 (v + v³/3 + …) and x = 2 v / (1 − v).
    let v = x / (2.0 + x);
    let (mut sum, mut power, mut odd) = (0.0, v, 1.0);
    loop {
        power *= v * v;
        odd += 2.0;
        let term = power / odd;
        sum += term;
        if term.abs() <= 1e-18 * v * v {
            return 2.0 * sum - x * v;
        }
    }
}

/// How many b(j) differ from r^j: the next root is the solution w of
/// ρ (w − 1) = ln w + 2 π i / c, and b(j) r^(−j) − 1 shrinks as (r |w|)^(−j).
fn settled(c: f64, a: f64, growth: f64) -> Result<usize> {
    const ITERATIONS: u32 = 10_000;
    let (rho, turn) = (a / c, std::f64::consts::TAU / c);
    let (mut x, mut y) = (1.0 + 2.0 * growth, turn.sqrt());
    for _ in 0..ITERATIONS {
        // Newton's method on w − 1 − (ln w + i turn) / ρ.
        let norm = x * x + y * y;
        let f = (x - 1.0 - 0.5 * norm.ln() / rho, y - (y.atan2(x) + turn) / rho);
        let d = (1.0 - x / norm / rho, y / norm / rho);
        let size = d.0 * d.0 + d.1 * d.1;
        let mut step = ((f.0 * d.0 + f.1 * d.1) / size, (f.1 * d.0 - f.0 * d.1) / size);
        let length = (step.0 * step.0 + step.1 * step.1).sqrt();
        // Short enough to stay on the side of the root, away from the two real ones.
        let most = 0.5 * norm.sqrt();
        if most < length {
            step = (step.0 * most / length, step.1 * most / length);
        }
        x = (x - step.0).max(1.0);
        y = (y - step.1).max(0.25 * y);
        if length <= 1e-9 * norm.sqrt() {
            let apart = 0.5 * (x * x + y * y).ln() - growth.ln_1p();
            return Ok((38.0 / apart).ceil().min(1e7) as usize + 4);
        }
    }
    Err(QueueError::NotConverged { name: "second root", iterations: ITERATIONS, residual: 1.0 })
}
