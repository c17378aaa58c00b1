//! Sums and products with twice the digits of `f64`, where a difference needs them: 1 − ρ from a
//! mean that has to be rounded itself.

/// An unevaluated sum of two doubles, the second at most half a unit in the last place of the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Twice {
    pub(crate) high: f64,
    pub(crate) low: f64,
}

impl Twice {
    pub(crate) const fn of(x: f64) -> Self {
        Self { high: x, low: 0.0 }
    }

    /// a + b, exactly.
    pub(crate) fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let shift = high - a;
        Self { high, low: (a - (high - shift)) + (b - shift) }
    }

    /// a · b, exactly unless it underflows.
    pub(crate) fn product(a: f64, b: f64) -> Self {
        let high = a * b;
        Self { high, low: a.mul_add(b, -high) }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let s = Self::sum(self.high, other.high);
        Self::sum(s.high, s.low + self.low + other.low)
    }

    pub(crate) fn times(self, other: Self) -> Self {
        let p = Self::product(self.high, other.high);
        Self::sum(p.high, p.low + (self.high * other.low + self.low * other.high))
    }

    pub(crate) fn over(self, other: Self) -> Self {
        let q = self.high / other.high;
        let rest = self.plus(other.times(Self::of(-q)));
        Self::sum(q, (rest.high + rest.low) / other.high)
    }

    /// e^x, by the series of x / 2^10 and ten squarings: good to 1e-28 for x of at most a hundred.
    pub(crate) fn exp(self) -> Self {
        const HALVINGS: i32 = 10;
        let scale = 2.0_f64.powi(-HALVINGS);
        // Without the bulk k ln 2 the argument is small; ln 2 comes in two parts.
        let k = (self.high / std::f64::consts::LN_2).round();
        let ln2 = Self { high: std::f64::consts::LN_2, low: 2.319_046_813_846_299_6e-17 };
        let rest = self.plus(ln2.times(Self::of(-k)));
        let x = Self { high: rest.high * scale, low: rest.low * scale };
        // e^x − 1, which squaring as (1 + y)² − 1 = y (2 + y) keeps small.
        let mut y = Self::of(0.0);
        for i in (1..=9_u32).rev() {
            y = Self::of(1.0).plus(y).times(x).over(Self::of(f64::from(i)));
        }
        for _ in 0..HALVINGS {
            y = y.times(Self::of(2.0).plus(y));
        }
        let value = Self::of(1.0).plus(y);
        let power = k.exp2();
        Self { high: value.high * power, low: value.low * power }
    }

    pub(crate) fn value(self) -> f64 {
        self.high + self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_times_three_is_one_to_twice_the_digits() {
        let third = Twice::of(1.0).over(Twice::of(3.0));
        let rest = third.times(Twice::of(3.0)).plus(Twice::of(-1.0)).value();
        assert!(rest.abs() < 1e-31, "{rest:e}");
    }

    #[test]
    fn exponential_and_its_inverse_cancel() {
        for x in [0.1, 1.0, 5.105, -3.7, 60.0] {
            let one = Twice::of(x).exp().times(Twice::of(-x).exp());
            assert!(one.plus(Twice::of(-1.0)).value().abs() < 1e-28, "{x}");
            assert!((Twice::of(x).exp().value() / x.exp() - 1.0).abs() < 4e-16);
        }
    }
}
