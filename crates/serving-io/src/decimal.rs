//! Decimal numbers as whole multiples of a small unit, without a float in between.

/// `text` · 10^`power` as a whole number: exact if it is one, else the nearest one, halves up.
///
/// `None` if the text is no decimal number of at least 0, or beyond 128 bits.
pub(crate) fn scaled(text: &str, power: i32) -> Option<u128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((m, e)) => (m, e.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let plain = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    // Where the last digit that counts stands, as a power of ten of the unit.
    let last = i64::from(power) + i64::from(exponent) - i64::try_from(fraction.len()).ok()?;
    let mut value: u128 = 0;
    let digits = whole.bytes().chain(fraction.bytes());
    let count = i64::try_from(whole.len() + fraction.len()).ok()?;
    // Digits below the unit only decide the rounding, and of those only the first one does.
    let kept = if last < 0 { (count + last).max(0) } else { count };
    let mut up = false;
    for (i, digit) in (0_i64..).zip(digits) {
        let digit = u128::from(digit - b'0');
        if i < kept {
            value = value.checked_mul(10)?.checked_add(digit)?;
        } else {
            up = i == kept && 5 <= digit && count + last == kept;
            break;
        }
    }
    if value == 0 && !up {
        return Some(0);
    }
    for _ in 0..last.max(0) {
        value = value.checked_mul(10)?;
    }
    value.checked_add(u128::from(up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_multiples_are_exact() {
        assert_eq!(scaled("0.1", 18), Some(100_000_000_000_000_000));
        assert_eq!(scaled("1700000000.1234567", 18), Some(1_700_000_000_123_456_700_000_000_000));
        assert_eq!(scaled("1.5e-3", 18), Some(1_500_000_000_000_000));
        assert_eq!(scaled("12", 0), Some(12));
        assert_eq!(scaled("+12.50e1", 0), Some(125));
        assert_eq!(scaled("0e999999999", 18), Some(0));
        assert_eq!(scaled(".5", 1), Some(5));
    }

    #[test]
    fn what_is_finer_is_rounded_to_the_nearest() {
        assert_eq!(scaled("0.00012345678901234567", 18), Some(123_456_789_012_346));
        assert_eq!(scaled("8.892494048732314e-07", 15), Some(889_249_405));
        assert_eq!(scaled("0.5", 0), Some(1));
        assert_eq!(scaled("0.49999", 0), Some(0));
        assert_eq!(scaled("9.95", 0), Some(10));
        // The digit that decides stands below a zero that is not written.
        assert_eq!(scaled("9e-2", 0), Some(0));
        assert_eq!(scaled("9e-1", 0), Some(1));
        assert_eq!(scaled("1e-999999999", 18), Some(0));
    }

    #[test]
    fn what_is_no_number_or_too_large_is_none() {
        for text in ["", ".", "-1", "1.2.3", "1e", "e5", "0x1", "nan", "inf", "1_0", "1e40", " 1"] {
            assert_eq!(scaled(text, 0), None, "{text}");
        }
        assert_eq!(scaled("1e999999999", 18), None);
    }
}
