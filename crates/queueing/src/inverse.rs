//! I = 1 / B, the inverse of Erlang B, for any number of servers in constant time.
//!
//! `I = 1 + Γ(x + 1) Q(x, a) e^a a^(−x)` holds for a real number of servers x. Up to 40 servers it
//! comes from the recursion `I(k) = 1 + I(k − 1) k / a`, multiplied through by a^k so that nothing
//! is divided. Beyond, with ρ = a / x and ½ η² = ρ − 1 − ln ρ:
//!
//! - for ρ from 0.26 to 2.55 by Temme's uniform expansion,
//!   `I − 1 = G · (√(2πx) · ½ e^(xη²/2) erfc(η √(x/2)) + Σ c_k(η) x^(−k))`, where G is Stirling's
//!   factor Γ(x + 1) / (√(2πx) (x/e)^x);
//! - for less load by `I − 1 = G √(2πx) e^(xη²/2) − Σ a^n / ((x + 1) … (x + n))`, n from 0 on;
//! - for more load by `I − 1 = Σ x (x − 1) … (x − n + 1) / a^n`, n from 1 on: positive terms that
//!   fall faster than 2.55^(−n).
//!
//! The exponent x η² / 2 is carried as the sum of two numbers: one alone would lose 1e-13 of an
//! I near 10^308. Past that, I is kept as a factor and an exponent.
//!
//! **Where the numbers come from.** The Taylor series of c_0 = 1 / (ρ − 1) − 1 / η follows from
//! `η dη = (1 − 1/ρ) dρ`, and c_k = c'_(k−1) / η + (−1)^k g_k / (ρ − 1), where g_k are Stirling's
//! coefficients (NIST DLMF 8.12.9 to 8.12.12 and 5.11.3; Temme, *The asymptotic expansion of the
//! incomplete gamma functions*, SIAM J. Math. Anal. 10, 1979). The series were computed in exact
//! fractions to the power 60 and interpolated at Chebyshev nodes on |η| <= 1.14 with 60 digits, to
//! the degree at which c_k · 40^(−k) is off by less than 2e-17. The scaled error function is the
//! Chebyshev interpolant of degree 23 of `(1 + 2z) e^(z²) erfc(z)`, off by less than 3e-17
//! relative; the map of z to t is that of Shepherd and Laframboise, Math. Comp. 36, 1981.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers that are cast are whole, and small"
)]
#![allow(
    clippy::approx_constant,
    clippy::unreadable_literal,
    reason = "the digits of a coefficient are read by no one: each is the double nearest to the value"
)]

use std::f64::consts::TAU;

/// c_0(η), a polynomial in η.
const C0: [f64; 20] = [
    -0.33333333333333337,
    0.08333333333333334,
    -0.014814814814812937,
    0.001157407407406909,
    0.00035273368601938733,
    -0.00017875514402025257,
    3.919263225355994e-05,
    -2.185448635740603e-06,
    -1.8540645466237475e-06,
    8.296717617620195e-07,
    -1.7665284609193421e-07,
    6.706041325756591e-09,
    1.025020605022816e-08,
    -4.3788437274838034e-09,
    9.271828737385032e-10,
    -2.9006130769036395e-11,
    -6.62471690003269e-11,
    2.6682980994747177e-11,
    -2.301745943888766e-12,
    -7.52853472781371e-13,
];
/// c_1(η), a polynomial in η.
const C1: [f64; 19] = [
    -0.001851851851851852,
    -0.0034722222222241424,
    0.002645502645502818,
    -0.0009902263373598125,
    0.00020576131686442258,
    -4.0187877680096664e-07,
    -1.80985502244156e-05,
    7.649168362476183e-06,
    -1.6120907843643629e-06,
    4.6221469290807e-09,
    1.3786575101604563e-07,
    -5.74760877380811e-08,
    1.1946649164305989e-08,
    -7.676508398466212e-11,
    -1.0027643624929581e-09,
    4.5880511982509614e-10,
    -9.07264712693104e-11,
    -1.6872524284008197e-11,
    9.571797972609746e-12,
];
/// c_2(η), a polynomial in η.
const C2: [f64; 17] = [
    0.004133597883597883,
    -0.0026813271603932463,
    0.000771604938261865,
    2.009384140101156e-06,
    -0.00010736653190084261,
    5.2923489034950333e-05,
    -1.2760639177227566e-05,
    3.404023830576781e-08,
    1.3722156927724317e-06,
    -6.293933147872841e-07,
    1.427521933220287e-07,
    -9.505545420140288e-10,
    -1.4007598691172117e-08,
    6.859793513430001e-09,
    -1.446600121668032e-09,
    -2.8622096431989156e-10,
    1.7175766211214219e-10,
];
/// c_3(η), a polynomial in η.
const C3: [f64; 15] = [
    0.0006494341563786008,
    0.00022947208896412913,
    -0.0004691894939042246,
    0.0002677207661077949,
    -7.561803099056913e-05,
    -2.407696474092486e-07,
    1.1082776100481754e-05,
    -5.670819150413547e-06,
    1.4226210845061538e-06,
    -7.903113001001209e-09,
    -1.686322715608204e-07,
    8.909200892950536e-08,
    -2.0193037930866643e-08,
    -4.2998975053750304e-09,
    2.744457945987617e-09,
];
/// c_4(η), a polynomial in η.
const C4: [f64; 13] = [
    -0.0008618882909167117,
    0.000784039408804795,
    -0.00029907250211326416,
    -1.4678873025174931e-06,
    6.641545997445222e-05,
    -3.965859749053468e-05,
    1.1372664057564322e-05,
    -6.665144006866483e-08,
    -1.6867400414712143e-06,
    9.78313795283751e-07,
    -2.418090399460287e-07,
    -5.582055797866885e-08,
    3.8326025994064374e-08,
];
/// c_5(η), a polynomial in η.
const C5: [f64; 11] = [
    -0.00033679855336635813,
    -6.97345039691783e-05,
    0.0002772761591773588,
    -0.00019922730680002734,
    6.796463225266843e-05,
    -2.8667825698226276e-07,
    -1.3533675944153937e-05,
    8.787359905993324e-06,
    -2.4102964694397548e-06,
    -6.135837806523415e-07,
    4.585262672968957e-07,
];
/// c_6(η), a polynomial in η.
const C6: [f64; 9] = [
    0.0005313079364639922,
    -0.0005919888879972468,
    0.0002708513918712456,
    -1.0444750064492335e-06,
    -8.125314496380287e-05,
    6.12931856535666e-05,
    -1.9207663692315503e-05,
    -5.50895665159576e-06,
    4.5642765626283155e-06,
];
/// c_7(η), a polynomial in η.
const C7: [f64; 7] = [
    0.00034436760689237765,
    4.7856456812092145e-05,
    -0.00033423695892443786,
    0.00030535854141415243,
    -0.00011436437897509201,
    -3.85357175570852e-05,
    3.628529458396187e-05,
];
/// c_8(η), a polynomial in η.
const C8: [f64; 4] = [
    -0.0006965966234229891,
    0.0008644515765367653,
    -0.00017397320535850725,
    -0.00015608849933495698,
];
/// (1 + 2 z) e^(z²) erfc(z), a polynomial in t = (z − 3.75) / (z + 3.75).
const ERFCX: [f64; 24] = [
    1.2375126308378275,
    -0.14024059858554702,
    0.003585415485479575,
    0.08227673849014977,
    -0.10880393014246645,
    0.09230432116025894,
    -0.05869339857631061,
    0.028362277420377335,
    -0.00974657968596217,
    0.001755625843431864,
    0.000293714390578856,
    -0.00029015404203352704,
    5.164649341002877e-05,
    2.2384138525656757e-05,
    -1.1437980374495534e-05,
    -9.733875167494142e-07,
    1.7419011945194367e-06,
    -5.741076073013916e-08,
    -2.4851108650210706e-07,
    2.3398534313040898e-08,
    3.195398612057818e-08,
    -3.798189797736207e-09,
    -2.618520156503145e-09,
    3.2052623379289157e-10,
];
/// The factor by which √(2πx) (x / e)^x misses Γ(x + 1), in powers of 1 / x.
const STIRLING: [f64; 9] = [
    1.0,
    0.08333333333333333,
    0.003472222222222222,
    -0.0026813271604938273,
    -0.00022947209362139917,
    0.0007840392217200666,
    6.972813758365857e-05,
    -0.0005921664373536939,
    -5.171790908260592e-05,
];
/// ln of 1, 1.25, 1.5, 1.75 and 2, each as the sum of two numbers.
const LN: [(f64, f64); 5] = [
    (0.0, 0.0),
    (0.22314355131420976, -9.091270597324799e-18),
    (0.4054651081081644, -2.8811380259626426e-18),
    (0.5596157879354227, 2.685492580212308e-17),
    (0.6931471805599453, 2.3190468138462996e-17),
];

/// 2 √π = √(2πx) · √(2/x).
const TWO_ROOTS_OF_PI: f64 = 3.544907701811032;

/// The most servers for which the recursion is used: the expansion needs more than these.
const FEW: f64 = 40.0;
/// Loads ρ between which the uniform expansion is used; |η| stays below 1.14.
const UNIFORM: (f64, f64) = (0.26, 2.55);
/// A load so small that, up to [`FEW`] servers, I passes what `f64` holds.
const TINY: f64 = 1e-7;
/// A load so large that a^40 passes it.
const VAST: f64 = 1e7;
/// The exponent from which on I is not written out.
const HUGE: f64 = 600.0;

/// I = 1 / B.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Inverse {
    /// I − 1, which has its digits where B is near 1.
    Excess(f64),
    /// I = front · e^power, with the power as a sum of two numbers: I − 1 is I.
    Scaled { front: f64, power: (f64, f64) },
    /// B, which has its digits where it is too small for an inverse, and ln I.
    Rare { b: f64, ln: f64 },
}

impl Inverse {
    /// For a checked whole number of servers 1 <= c and a load 0 < a, both finite.
    pub(crate) fn new(c: f64, a: f64) -> Self {
        if FEW < c {
            return Self::many(c, a);
        }
        if a < TINY {
            return Self::rare(c, a);
        }
        if VAST < a {
            return Self::overloaded(c, a);
        }
        // J(k) = a^k I(k) obeys J(k) = a^k + k J(k − 1).
        let (mut j, mut before, mut power, mut k) = (1.0, 1.0, 1.0, 0.0);
        while k < c {
            k += 1.0;
            power *= a;
            before = k * j;
            j = power + before;
        }
        Self::Excess(before / power)
    }

    /// For a real number of servers 0 <= x and a load 0 < a.
    pub(crate) fn real(x: f64, a: f64) -> Self {
        if x == 0.0 {
            return Self::Excess(0.0);
        }
        if FEW < x {
            return Self::many(x, a);
        }
        if x.fract() == 0.0 {
            return Self::new(x, a);
        }
        if UNIFORM.1 * FEW < a {
            return Self::overloaded_real(x, a);
        }
        let first = x.fract();
        let inverse = less_than_one(first, a);
        // Upwards the recursion is stable; B itself cannot overflow where I does.
        let (mut excess, mut b, mut ln) = (inverse - 1.0, 1.0 / inverse, inverse.ln());
        for step in 1..=x.floor() as u32 {
            let k = first + f64::from(step);
            excess = (1.0 + excess) * (k / a);
            ln += (k.ln() - a.ln()) + (a * b / k).ln_1p();
            b = a * b / (k + a * b);
        }
        if excess < 1e290 { Self::Excess(excess) } else { Self::Rare { b, ln } }
    }

    /// Beyond [`FEW`] servers.
    fn many(x: f64, a: f64) -> Self {
        let rho = a / x;
        if UNIFORM.1 < rho {
            return if x.fract() == 0.0 {
                Self::overloaded(x, a)
            } else {
                Self::overloaded_real(x, a)
            };
        }
        let power = exponent(x, a, rho);
        let root = (TAU * x).sqrt();
        let stirling = horner(&STIRLING, 1.0 / x);
        if rho < 1.0 && HUGE < power.0 {
            return Self::Scaled { front: stirling * root, power };
        }
        if rho < UNIFORM.0 {
            return Self::Excess(stirling * root * exp(power) - geometric_tail(x, a));
        }
        let z = power.0.sqrt();
        let tail = 0.5 * erfcx(z);
        let half = if rho < 1.0 { exp(power) - tail } else { tail };
        let eta = TWO_ROOTS_OF_PI / root * if rho < 1.0 { -z } else { z };
        Self::Excess(stirling * (root * half + correction(eta, 1.0 / x)))
    }

    /// The sum of falling positive terms for a load far above the servers.
    fn overloaded(c: f64, a: f64) -> Self {
        let (mut sum, mut term, mut left) = (0.0, 1.0, c);
        while 0.0 < left {
            term *= left / a;
            sum += term;
            left -= 1.0;
            if term <= 1e-17 * sum {
                break;
            }
        }
        Self::Excess(sum)
    }

    /// The same where the number of servers is not whole: the sum goes on below 0, and alternates.
    fn overloaded_real(x: f64, a: f64) -> Self {
        // Γ(x + 1, a) e^a a^(−x) = 1 + x Γ(x, a) e^a a^(−x), by Legendre's continued fraction,
        // evaluated by Lentz's method.
        let mut b = a + 1.0 - x;
        let (mut c, mut d) = (f64::INFINITY, 1.0 / b);
        let mut h = d;
        for n in 1..10_000 {
            let n = f64::from(n);
            let an = n * (x - n);
            b += 2.0;
            d = 1.0 / (an * d + b);
            c = b + an / c;
            let factor = c * d;
            h *= factor;
            if (factor - 1.0).abs() <= f64::EPSILON {
                break;
            }
        }
        Self::Excess(x * h)
    }

    /// Up to [`FEW`] servers and hardly any load: B = Π (a / j) / Σ a^j / j!.
    fn rare(c: f64, a: f64) -> Self {
        let (mut b, mut ln, mut sum, mut k) = (1.0, 0.0, 1.0, 0.0);
        while k < c {
            k += 1.0;
            // Only the last of these can be subnormal by more than it is then divided by.
            b = b * a / k;
            ln += k.ln();
            sum += b;
        }
        Self::Rare { b: b / sum, ln: ln - c * a.ln() + (sum - 1.0).ln_1p() }
    }

    /// 1 / (weight · I) for a weight from about 1e-16 to 1.
    pub(crate) fn scaled_down(&self, weight: f64) -> f64 {
        match *self {
            Self::Excess(excess) => 1.0 / (weight * (1.0 + excess)),
            Self::Scaled { front, power } => {
                // In two halves: whole, e^(−power) has no digits where the quotient may have some.
                let half = (-0.5 * power.0).exp();
                half * (1.0 - power.1) / (weight * front) * half
            }
            Self::Rare { b, .. } => b / weight,
        }
    }

    /// ln I.
    pub(crate) fn ln(&self) -> f64 {
        match *self {
            Self::Excess(excess) => excess.ln_1p(),
            Self::Scaled { front, power } => power.0 + front.ln(),
            Self::Rare { ln, .. } => ln,
        }
    }

    /// I itself, infinite where it passes what `f64` holds.
    pub(crate) fn value(&self) -> f64 {
        match *self {
            Self::Excess(excess) => 1.0 + excess,
            Self::Scaled { .. } => 1.0 / self.scaled_down(1.0),
            Self::Rare { b, .. } => 1.0 / b,
        }
    }

    /// Erlang C and 1 − Erlang C, from ρ and `idle` = 1 − ρ.
    pub(crate) fn wait(&self, rho: f64, idle: f64) -> (f64, f64) {
        match *self {
            Self::Excess(excess) => {
                // At full load rounding could pass 1.
                let c = (1.0 / (rho + idle * (1.0 + excess))).min(1.0);
                (c, idle * excess * c)
            }
            Self::Scaled { .. } => {
                let c = self.scaled_down(idle);
                (c, 1.0 - c)
            }
            Self::Rare { b, .. } => {
                let c = b / (rho * b + idle);
                (c, 1.0 - c)
            }
        }
    }

    /// ln of Erlang C, from ρ and `idle` = 1 − ρ.
    pub(crate) fn ln_wait(&self, rho: f64, idle: f64) -> f64 {
        match *self {
            Self::Excess(excess) => -(idle * excess).ln_1p(),
            Self::Scaled { .. } => -(self.ln() + idle.ln()),
            Self::Rare { b, .. } => -(self.ln() + idle.ln() + (rho * b / idle).ln_1p()),
        }
    }
}

/// I for less than one server: its series for little load, else the continued fraction.
fn less_than_one(x: f64, a: f64) -> f64 {
    if 0.25 <= a {
        // Backwards, each step damps the error of the one before; 4 √(a n) digits of e after n.
        let mut n = (30.0 + 110.0 / a).floor();
        let mut denominator = a + 1.0 - x + 2.0 * n;
        while 0.0 < n {
            n -= 1.0;
            denominator = a + 1.0 - x + 2.0 * n + (n + 1.0) * (x - n - 1.0) / denominator;
        }
        return 1.0 + x / denominator;
    }
    ((a - x * a.ln()).exp() * gamma(x) - geometric_tail(x, a) + 1.0).max(1.0)
}

/// Σ a^n / ((x + 1) … (x + n)) from n = 0 on.
fn geometric_tail(x: f64, a: f64) -> f64 {
    let (mut sum, mut term, mut k) = (1.0, 1.0, x);
    while 1e-18 * sum < term {
        k += 1.0;
        term *= a / k;
        sum += term;
    }
    sum
}

/// Σ y^j / ((x + 1) … (x + j)) from j = 0 on, as front · e^power, for 0 < x and 0 <= y: the states
/// from a full system on whose departure rates rise by 1, from x + 1, at the arrival rate y.
///
/// It is what [`Inverse`] leaves of Γ(x + 1) e^y y^(−x).
pub(crate) fn rising_tail(x: f64, y: f64) -> (f64, f64) {
    let rho = y / x;
    if rho < UNIFORM.0 || x <= FEW && y <= 700.0 {
        return (geometric_tail(x, y), 0.0);
    }
    if x <= FEW {
        return (gamma(x), y - x * y.ln());
    }
    let root = (TAU * x).sqrt();
    let stirling = horner(&STIRLING, 1.0 / x);
    let power = exponent(x, y, rho);
    if 1.0 < rho && HUGE < power.0 {
        return (stirling * root * (1.0 + power.1), power.0);
    }
    if UNIFORM.1 < rho {
        let more = Inverse::overloaded_real(x, y).value() - 1.0;
        return (stirling * root * exp(power) - more, 0.0);
    }
    let z = power.0.sqrt();
    let tail = 0.5 * erfcx(z);
    let half = if rho < 1.0 { tail } else { exp(power) - tail };
    let eta = TWO_ROOTS_OF_PI / root * if rho < 1.0 { -z } else { z };
    (stirling * (root * half - correction(eta, 1.0 / x)), 0.0)
}

/// Γ(x + 1) for x from 0 to [`FEW`], from Stirling's formula at x + 20, where its series has all
/// digits; ln(x + 20) per unit of x is what rounding the argument cost.
fn gamma(x: f64) -> f64 {
    let far = x + 20.0;
    let lost = (x - (far - 20.0)) * far.ln();
    let product: f64 = (1..=20).map(|n| x + f64::from(n)).product();
    let power = (TAU * far).sqrt() * far.powf(far) * (-far).exp() * (1.0 + lost);
    power * horner(&STIRLING, 1.0 / far) / product
}

/// e^power for a power that is a sum of two numbers.
fn exp(power: (f64, f64)) -> f64 {
    power.0.exp() * (1.0 + power.1)
}

/// x η² / 2 = a − x − x ln(a / x), as the sum of two numbers where it is the power of e.
fn exponent(x: f64, a: f64, rho: f64) -> (f64, f64) {
    let v = (x - a) / (x + a);
    if v.abs() <= 0.25 {
        // (x − a) v + 2x (v³/3 + v⁵/5 + …), after Loader 2000; the first term holds nine tenths,
        // and is exact but for its last quotient, since x − a is exact here.
        let (d, s) = (x - a, x + a);
        let lost = if a < x { a - (s - x) } else { x - (s - a) };
        let square = d * d;
        let quotient = square / s;
        let w = v * v;
        let series = 2.0 * x * v * w * atanh_rest(w);
        if quotient < 4.0 {
            // So small a power may be off by a rounding of its own.
            return (quotient + series, 0.0);
        }
        let rest = d.mul_add(d, -square) - quotient.mul_add(s, -square) - quotient * lost;
        return sum(quotient, rest / s + series);
    }
    if 1.0 < rho {
        // Only its root is asked for here.
        return (a - x - x * rho.ln(), 0.0);
    }
    if rho < 1e-15 {
        return (x * (x.ln() - a.ln()) - (x - a), 0.0);
    }
    let ratio = x / a;
    let (ln, ln_rest) = ln(ratio);
    let ln_rest = ln_rest + (-ratio).mul_add(a, x) / x;
    let product = x * ln;
    let d = x - a;
    let (power, rest) = sum(product, -d);
    let lost = (x - d) - a;
    sum(power, rest + x.mul_add(ln, -product) + x * ln_rest - lost)
}

/// The sum of two numbers, and what rounding took from it.
fn sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let a_part = s - b;
    (s, (a - a_part) + (b - (s - a_part)))
}

/// ln r as the sum of two numbers, for a normal 1 <= r.
fn ln(r: f64) -> (f64, f64) {
    let bits = r.to_bits();
    let k = f64::from((bits >> 52) as u32) - 1023.0;
    let m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let near = (4.0 * m - 3.5).floor(); // from 0 to 4: m is within 1/8 of 1 + near / 4
    let pivot = 1.0 + 0.25 * near;
    // ln(m / pivot) = 2 atanh(v), with v = (m − pivot) / (m + pivot) carried twice as far.
    let (d, s) = (m - pivot, m + pivot);
    let lost = pivot - (s - m);
    let v = d / s;
    let rest = ((-v).mul_add(s, d) - v * lost) / s;
    let w = v * v;
    let (pivot_ln, pivot_rest) = LN[near as usize];
    let (two_ln, two_rest) = LN[4];
    let whole = k * two_ln;
    let whole_rest = k.mul_add(two_ln, -whole) + k * two_rest;
    let (s1, r1) = sum(whole, pivot_ln);
    let (s2, r2) = sum(s1, 2.0 * v);
    sum(s2, r1 + r2 + whole_rest + pivot_rest + 2.0 * rest + 2.0 * v * w * atanh_rest(w))
}

/// 1/3 + w/5 + w²/7 + …, for w up to 1/16.
fn atanh_rest(w: f64) -> f64 {
    const TERMS: [f64; 13] = [
        1.0 / 3.0,
        1.0 / 5.0,
        1.0 / 7.0,
        1.0 / 9.0,
        1.0 / 11.0,
        1.0 / 13.0,
        1.0 / 15.0,
        1.0 / 17.0,
        1.0 / 19.0,
        1.0 / 21.0,
        1.0 / 23.0,
        1.0 / 25.0,
        1.0 / 27.0,
    ];
    // Near a = x two terms are all that counts.
    if w < 1e-9 { TERMS[0] + w * TERMS[1] } else { horner(&TERMS, w) }
}

/// e^(z²) erfc(z) for 0 <= z.
pub(crate) fn erfcx(z: f64) -> f64 {
    horner(&ERFCX, (z - 3.75) / (z + 3.75)) / (1.0 + 2.0 * z)
}

/// Σ c_k(η) y^k.
fn correction(eta: f64, y: f64) -> f64 {
    // The terms beyond are below 2e-17.
    let mut sum = 0.0;
    if 1.0 / 400.0 < y {
        sum = horner(&C6, eta) + y * (horner(&C7, eta) + y * horner(&C8, eta));
    }
    if 1e-5 < y {
        sum = horner(&C3, eta) + y * (horner(&C4, eta) + y * (horner(&C5, eta) + y * sum));
    }
    horner(&C0, eta) + y * (horner(&C1, eta) + y * (horner(&C2, eta) + y * sum))
}

/// A polynomial by even and odd powers, whose two chains a processor runs side by side.
fn horner<const N: usize>(coefficients: &[f64; N], x: f64) -> f64 {
    let square = x * x;
    let (mut even, mut odd) = (0.0, 0.0);
    let mut i = N;
    while 0 < i {
        i -= 1;
        if i.is_multiple_of(2) {
            even = even * square + coefficients[i];
        } else {
            odd = odd * square + coefficients[i];
        }
    }
    even + x * odd
}
