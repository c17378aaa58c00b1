//! The one formatter: digits per unit, for reports and snapshots alike.
//!
//! Every figure that a person reads passes through here, so that noise in the last bit of an `f64`
//! never moves a snapshot and the same value looks the same everywhere. JSON and CSV carry full
//! numbers and do not.

use crate::units::{Quantity, Seconds};

/// `value` with a fixed number of decimals, without a negative zero.
#[must_use]
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let zero = text.strip_prefix('-').filter(|rest| rest.chars().all(|c| c == '0' || c == '.'));
    zero.map_or(text.clone(), str::to_owned)
}

/// `value` with `digits` significant digits, without an exponent where it is short enough and
/// without trailing zeros after the point.
#[must_use]
pub fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((_, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-7..=15).contains(&exponent) {
        return scientific;
    }
    let decimals = usize::try_from(i64::try_from(digits).unwrap_or(17) - 1 - i64::from(exponent));
    // Rounding first and printing after keeps 12345 to three digits at 12300.
    let rounded: f64 = scientific.parse().unwrap_or(value);
    let text = format!("{rounded:.*}", decimals.unwrap_or(0));
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// A time as benchmark tools print it: milliseconds with two decimals from 1 ms to 10 s, else
/// microseconds or seconds.
///
/// # Examples
///
/// ```
/// use metrics_core::{Seconds, format::time};
///
/// assert_eq!(time(Seconds::new(0.145920)?), "145.92 ms");
/// assert_eq!(time(Seconds::new(0.000002)?), "2.00 us");
/// assert_eq!(time(Seconds::new(27.44)?), "27.44 s");
/// # Ok::<(), metrics_core::Error>(())
/// ```
#[must_use]
pub fn time(t: Seconds) -> String {
    let s = t.number();
    if s == 0.0 {
        "0 ms".to_owned()
    } else if s < 1e-9 {
        // Two decimals would print a time that is there as 0.00 ns.
        format!("{} ns", significant(s * 1e9, 3))
    } else if s < 1e-6 {
        format!("{} ns", fixed(s * 1e9, 2))
    } else if s < 1e-3 {
        format!("{} us", fixed(s * 1e6, 2))
    } else if s < 10.0 {
        format!("{} ms", fixed(s * 1e3, 2))
    } else {
        format!("{} s", two_decimals(s))
    }
}

/// Two decimals, or six significant digits where an `f64` does not hold two decimals.
fn two_decimals(x: f64) -> String {
    if x.abs() < 1e13 { fixed(x, 2) } else { significant(x, 6) }
}

/// A number as it came, for a message: the digits that read back as the same number, with an
/// exponent where they would be many.
///
/// # Examples
///
/// ```
/// use metrics_core::format::plain;
///
/// assert_eq!(plain(-0.25), "-0.25");
/// assert_eq!(plain(1e300), "1e300");
/// ```
#[must_use]
pub fn plain(x: f64) -> String {
    let size = x.abs();
    if size == 0.0 || (1e-6 <= size && size < 1e16) || !size.is_finite() {
        x.to_string()
    } else {
        format!("{x:e}")
    }
}

/// A long duration, such as that of a run: seconds with two decimals from 1 s on.
#[must_use]
pub fn duration(t: Seconds) -> String {
    if 1.0 <= t.number() { format!("{} s", two_decimals(t.number())) } else { time(t) }
}

/// A number of things in words: `1 request`, `2 requests`.
#[must_use]
pub fn things(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// A rate with two decimals, or three significant digits where two decimals would hide it.
#[must_use]
pub fn rate(per_second: f64) -> String {
    if per_second == 0.0 || 0.1 <= per_second.abs() {
        two_decimals(per_second)
    } else {
        significant(per_second, 3)
    }
}

/// A share as a percentage with one decimal, or with as many as it takes to tell it from none and
/// from all.
///
/// # Examples
///
/// ```
/// use metrics_core::format::percent;
///
/// assert_eq!(percent(25.0 / 104.0), "24.0 %");
/// assert_eq!(percent(0.99996), "99.996 %"); // "100.0 %" would say that none missed
/// assert_eq!(percent(1e-5), "0.001 %");
/// ```
#[must_use]
pub fn percent(share: f64) -> String {
    let x = share * 100.0;
    let text = fixed(x, 1);
    if text == "0.0" && x != 0.0 {
        return format!("{} %", significant(x, 1));
    }
    if text == "100.0" && share != 1.0 {
        // From the share, whose distance to 1 is exact, to the first digit that is not a nine.
        let apart = ((1.0 - share).abs() * 100.0).log10().floor();
        // Between 1 and 15 decimals: the distance is below 0.05 and at least 1e-14.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let decimals = (-apart).clamp(1.0, 15.0) as usize;
        return format!("{} %", fixed(x, decimals).trim_end_matches('0'));
    }
    format!("{text} %")
}

/// A count that need not be whole: whole numbers as they are, others with one decimal.
#[must_use]
pub fn count(n: f64) -> String {
    if 1e16 <= n.abs() {
        significant(n, 6)
    } else if n.fract() == 0.0 {
        fixed(n, 0)
    } else {
        fixed(n, 1)
    }
}

/// The value of a formula: whole numbers as they are, others with up to six significant digits.
#[must_use]
pub fn value(x: f64) -> String {
    if x.fract() == 0.0 && x.abs() < 1e15 { fixed(x, 0) } else { significant(x, 6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_in_the_last_bit_is_not_seen() {
        assert_eq!(value(0.1 + 0.2), "0.3");
        assert_eq!(value(1.0 / 6.0), "0.166667");
        assert_eq!(value(4_294_967_296.0), "4294967296");
        assert_eq!(fixed(-1e-9, 2), "0.00");
        assert_eq!(fixed(-1.5, 1), "-1.5");
    }

    #[test]
    fn digits_follow_the_unit() {
        assert_eq!(rate(15.948_262), "15.95");
        assert_eq!(rate(0.001_234_5), "0.00123");
        assert_eq!(percent(25.0 / 104.0), "24.0 %");
        assert_eq!(count(13.0), "13");
        assert_eq!(count(13.07), "13.1");
        assert_eq!(significant(12_345.0, 3), "12300");
        assert_eq!(significant(1.5e300, 3), "1.50e300");
        assert_eq!(significant(0.999_96, 3), "1");
        assert_eq!(time(Seconds::ZERO), "0 ms");
    }

    #[test]
    fn what_is_there_is_never_printed_as_nothing_and_never_as_noise() {
        let of = |s| time(Seconds::new(s).unwrap());
        assert_eq!(of(1e-12), "0.001 ns");
        assert_eq!(of(1e-300), "1.00e-291 ns");
        assert_eq!(of(1e9), "1000000000.00 s");
        assert_eq!(of(1e99), "1.00000e99 s");
        assert_eq!(rate(1e27), "1.00000e27");
        assert_eq!(count(1e20), "1.00000e20");
        assert_eq!(percent(0.0), "0.0 %");
        assert_eq!(percent(1.0), "100.0 %");
        assert_eq!(percent(0.999_5), "99.95 %");
        assert_eq!(percent(1.0 - f64::EPSILON / 2.0), "99.99999999999999 %");
        assert_eq!(percent(1.000_001), "100.0001 %");
        assert_eq!(percent(1e-9), "0.0000001 %");
        assert_eq!(plain(f64::NAN), "NaN");
        assert_eq!(plain(9_007_199_254_740_992.0), "9007199254740992");
    }
}
