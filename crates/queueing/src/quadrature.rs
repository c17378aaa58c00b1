//! The integral of a function whose logarithm bends down everywhere: one peak, falling on both sides.

/// Gauss-Legendre nodes and weights on −1 to 1, the positive half of eight points.
const NODES: [(f64, f64); 4] = [
    (0.183_434_642_495_649_8, 0.362_683_783_378_362),
    (0.525_532_409_916_329, 0.313_706_645_877_887_3),
    (0.796_666_477_413_626_7, 0.222_381_034_453_374_5),
    (0.960_289_856_497_536_3, 0.101_228_536_290_376_3),
];

/// Panels between the two ends.
const PANELS: u32 = 64;

/// How far below its peak, as a logarithm, the function no longer counts.
const REACH: f64 = 45.0;

/// ∫ e^`ln_f` from 0 to `end`, where `ln_f` is concave with its peak at `peak` (clamped to the
/// range).
///
/// Sixty-four panels over the part within e^−45 of the peak leave 1e-14 of the value, as long as
/// the function has no structure much finer than a hundredth of that part.
pub(crate) fn log_concave(end: f64, peak: f64, ln_f: impl Fn(f64) -> f64) -> f64 {
    if end <= 0.0 {
        return 0.0;
    }
    let peak = peak.clamp(0.0, end);
    let top = ln_f(peak);
    if !top.is_finite() {
        return 0.0;
    }
    // The ends of the part that counts, by halving: sixty steps place them well enough.
    let edge = |far: f64| {
        if top - REACH <= ln_f(far) {
            return far;
        }
        let (mut inside, mut outside) = (peak, far);
        for _ in 0..60 {
            let middle = 0.5 * inside + 0.5 * outside;
            if top - REACH <= ln_f(middle) {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        outside
    };
    // From the peak on each side, so that a function with a corner there keeps its digits.
    let side = |far: f64| {
        let width = (far - peak) / f64::from(PANELS);
        let mut sum = 0.0;
        for i in 0..PANELS {
            let middle = peak + width * (f64::from(i) + 0.5);
            for (node, weight) in NODES {
                let off = 0.5 * width * node;
                sum +=
                    weight * ((ln_f(middle - off) - top).exp() + (ln_f(middle + off) - top).exp());
            }
        }
        0.5 * width.abs() * sum
    };
    (side(edge(0.0)) + side(edge(end))) * top.exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_and_bells_keep_their_digits() {
        let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-13, "{got} {want}");
        near(log_concave(30.0, 0.0, |x| -x), 1.0 - f64::exp(-30.0));
        near(log_concave(1e9, 0.0, |x| -2.0 * x), 0.5);
        near(
            log_concave(20.0, 10.0, |x| -0.5 * (x - 10.0) * (x - 10.0)),
            f64::sqrt(std::f64::consts::TAU),
        );
        // Flat, then a steep fall: ∫ e^(−e^(x − 20)) = 20 − γ and a rest below e^−20.
        let euler = 0.577_215_664_901_532_9;
        near(log_concave(40.0, 0.0, |x| -(x - 20.0).exp()), 20.0 - euler + f64::exp(-20.0));
        assert_eq!(log_concave(0.0, 0.0, |x| -x), 0.0);
    }
}
