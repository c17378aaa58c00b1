//! How people write durations, rates, sizes, counts, prices and shares.
//!
//! Units are mandatory where a bare number has two readings; the error then prints both.

use crate::error::{Error, Result, within};
use crate::units::{Bytes, CostPerHour, CostPerToken, RequestsPerSecond, Seconds};

/// Splits a number from what follows it; `None` if there is no number.
fn split_number(s: &str) -> Option<(f64, &str)> {
    let end = s
        .char_indices()
        .find(|&(i, c)| {
            let exponent_sign = (c == '-' || c == '+') && s[..i].ends_with(['e', 'E']);
            let exponent = (c == 'e' || c == 'E')
                && s[i + 1..].starts_with(|d: char| d.is_ascii_digit() || d == '-' || d == '+')
                && 0 < i;
            !(c.is_ascii_digit()
                || c == '.'
                || (i == 0 && (c == '-' || c == '+'))
                || exponent
                || exponent_sign)
        })
        .map_or(s.len(), |(i, _)| i);
    let number = s[..end].parse().ok()?;
    Some((number, &s[end..]))
}

fn grammar(what: &'static str, text: &str, expected: impl Into<String>) -> Error {
    Error::Grammar { what, text: text.to_owned(), expected: expected.into() }
}

/// Seconds in one of a duration's units.
fn seconds_in(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    })
}

/// A duration: `250us`, `30 ms`, `1.5s`, `2m`, `1h30m`.
///
/// # Errors
///
/// [`Error::Grammar`] without a unit (both readings are printed), with an unknown unit, or if the
/// value is negative.
///
/// # Examples
///
/// ```
/// use metrics_core::grammar::duration;
///
/// assert_eq!(duration("1h30m")?.get(), 5400.0);
/// assert_eq!(
///     duration("200").unwrap_err().to_string(),
///     "duration `200`: a number needs a unit, write 200ms or 200s"
/// );
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn duration(s: &str) -> Result<Seconds> {
    const WHAT: &str = "duration";
    let mut rest = s.trim();
    if rest.is_empty() {
        return Err(grammar(WHAT, s, "write a number and a unit, for example 250ms"));
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let Some((number, after)) = split_number(rest) else {
            return Err(grammar(WHAT, s, "write a number and a unit, for example 250ms or 1h30m"));
        };
        let spaces = after.len() - after.trim_start().len();
        let (spaces, after) = after.split_at(spaces);
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.' || c == ' ' || c == '-' || c == '+')
            .unwrap_or(after.len());
        let (unit, tail) = after.split_at(end);
        if unit.is_empty() {
            let number = crate::format::plain(number);
            let expected = format!("a number needs a unit, write {number}ms or {number}s");
            return Err(grammar(WHAT, s, expected));
        }
        let Some(scale) = seconds_in(unit) else {
            return Err(grammar(
                WHAT,
                s,
                format!(
                    "unknown unit `{}`, use ns, us, ms, s, m, h or d",
                    unit.chars().take(20).flat_map(char::escape_debug).collect::<String>()
                ),
            ));
        };
        if number < 0.0 {
            return Err(grammar(WHAT, s, "a duration is not negative"));
        }
        total += scaled(&rest[..rest.len() - after.len() - spaces.len()], number, scale);
        rest = tail.trim_start();
    }
    if total.is_infinite() {
        return Err(grammar(WHAT, s, "a duration is at most about 1.8e308 s"));
    }
    Seconds::named(WHAT, total)
}

/// The number in seconds: where the unit is a power of ten, the nearest `f64` to what is written,
/// since multiplying would round twice and move a limit off its own value.
fn scaled(text: &str, number: f64, scale: f64) -> f64 {
    let power =
        [(1e-9, -9), (1e-6, -6), (1e-3, -3)].iter().find(|(s, _)| scale.total_cmp(s).is_eq());
    power.and_then(|(_, p)| shifted(text, *p)).unwrap_or(number * scale)
}

/// The decimal number `text` times 10^`power`, rounded once; `None` if it has an exponent already.
fn shifted(text: &str, power: i32) -> Option<f64> {
    if text.contains(['e', 'E']) {
        return None;
    }
    format!("{text}e{power}").parse().ok()
}

/// A rate of requests: `20/s`, `1200/min`, `20rps`, `50000/h`; a bare number is per second.
///
/// # Errors
///
/// [`Error::Grammar`] for an unknown unit or a negative number.
///
/// # Examples
///
/// ```
/// use metrics_core::grammar::rate;
///
/// assert_eq!(rate("1200/min")?.get(), 20.0);
/// assert_eq!(rate("50000/h")?, rate("13.88888888888889")?);
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn rate(s: &str) -> Result<RequestsPerSecond> {
    const WHAT: &str = "rate";
    let expected = "write 20/s, 1200/min, 50000/h or 20rps";
    let (number, unit) = split_number(s.trim()).ok_or_else(|| grammar(WHAT, s, expected))?;
    let per_second = match unit.trim() {
        "" | "/s" | "rps" | "req/s" | "/sec" => number,
        "/m" | "/min" | "rpm" => number / 60.0,
        "/h" | "rph" => number / 3600.0,
        "/d" => number / 86_400.0,
        _ => return Err(grammar(WHAT, s, expected)),
    };
    if number < 0.0 {
        return Err(grammar(WHAT, s, "a rate is not negative"));
    }
    if per_second.is_infinite() {
        return Err(grammar(WHAT, s, "a rate is at most about 1.8e308/s"));
    }
    RequestsPerSecond::named(WHAT, per_second)
}

/// A size: `80GB` (decimal), `16GiB` (binary), `512B`.
///
/// # Errors
///
/// [`Error::Grammar`] without a unit, since GB and GiB differ by 7 %, or for an unknown one.
///
/// # Examples
///
/// ```
/// use metrics_core::grammar::size;
///
/// assert_eq!(size("16GiB")?.get(), 17_179_869_184.0);
/// assert_eq!(size("80GB")?.get(), 8e10);
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn size(s: &str) -> Result<Bytes> {
    const WHAT: &str = "size";
    let expected = "write a number and a unit: 80GB is 80·10^9 bytes, 80GiB is 80·2^30";
    let (number, unit) = split_number(s.trim()).ok_or_else(|| grammar(WHAT, s, expected))?;
    let scale = match unit.trim() {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        "TiB" => 1_099_511_627_776.0,
        "" => {
            let number = crate::format::plain(number);
            let both = format!("a number needs a unit, write {number}GB or {number}GiB");
            return Err(grammar(WHAT, s, both));
        }
        _ => return Err(grammar(WHAT, s, expected)),
    };
    if number < 0.0 {
        return Err(grammar(WHAT, s, "a size is not negative"));
    }
    Bytes::named(WHAT, number * scale)
}

/// A whole count: `120`, `5k`, `1.2M`.
///
/// # Errors
///
/// [`Error::Grammar`] if it is not whole, negative or above 2^53.
///
/// # Examples
///
/// ```
/// use metrics_core::grammar::count;
///
/// assert_eq!(count("1.2M")?, 1_200_000);
/// assert!(count("1.5").is_err());
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn count(s: &str) -> Result<u64> {
    const WHAT: &str = "count";
    let expected = "write a whole number up to 2^53, with k, M or G if you like: 120, 5k, 1.2M";
    // Digits alone are read exactly, where an `f64` would round 2^53 + 1 into the range.
    let digits = s.trim();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        let n = digits.parse().ok().filter(|&n| n <= crate::timeline::LARGEST_TOKENS);
        return n.ok_or_else(|| grammar(WHAT, s, expected));
    }
    let (number, unit) = split_number(s.trim()).ok_or_else(|| grammar(WHAT, s, expected))?;
    let scale = match unit.trim() {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" | "B" => 1e9,
        _ => return Err(grammar(WHAT, s, expected)),
    };
    let value = number * scale;
    let near = value.round();
    // 1.2 has no exact binary form, so 1.2M may miss the whole number by a rounding.
    if !(0.0 <= value && value <= crate::timeline::LARGEST_TOKENS as f64)
        || 1e-9 * value.max(1.0) < (value - near).abs()
    {
        return Err(grammar(WHAT, s, expected));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(near as u64)
}

/// A price: `2.50/h`.
///
/// # Errors
///
/// [`Error::Grammar`] without `/h` or if it is negative.
///
/// # Examples
///
/// ```
/// use metrics_core::grammar::price;
///
/// assert_eq!(price("2.50/h")?.get(), 2.5);
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn price(s: &str) -> Result<CostPerHour> {
    const WHAT: &str = "price";
    let expected = "write a number per hour: 2.50/h";
    match split_number(s.trim()) {
        Some((number, "/h" | "/hour" | "/hr")) if 0.0 <= number => CostPerHour::named(WHAT, number),
        _ => Err(grammar(WHAT, s, expected)),
    }
}

/// A price of tokens: `0.60/1M`, `2/1k`.
///
/// # Errors
///
/// [`Error::Grammar`] without the number of tokens that it is for, or if it is negative.
///
/// # Examples
///
/// ```
/// use metrics_core::grammar::token_price;
///
/// assert_eq!(token_price("0.60/1M")?.get(), 0.6 / 1e6);
/// assert_eq!(
///     token_price("0.60").unwrap_err().to_string(),
///     "price of tokens `0.60`: a number needs a unit, write 0.60/1M for a million tokens or 0.60/1k for a thousand"
/// );
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn token_price(s: &str) -> Result<CostPerToken> {
    const WHAT: &str = "price of tokens";
    let expected = "write a number for a million tokens or a thousand: 0.60/1M, 0.0006/1k";
    let (number, unit) = split_number(s.trim()).ok_or_else(|| grammar(WHAT, s, expected))?;
    if number < 0.0 {
        return Err(grammar(WHAT, s, "a price is not negative"));
    }
    let tokens = match unit.trim() {
        "/1M" | "/M" => 1e6,
        "/1k" | "/k" => 1e3,
        "" => {
            let number = s.trim();
            let both = format!(
                "a number needs a unit, write {number}/1M for a million tokens or {number}/1k for a thousand"
            );
            return Err(grammar(WHAT, s, both));
        }
        _ => return Err(grammar(WHAT, s, expected)),
    };
    CostPerToken::named(WHAT, number / tokens)
}

/// A share: `99%` or `0.99`.
///
/// # Errors
///
/// [`Error::Grammar`] outside 0 to 1, or for a bare number above 1, which could be a percentage.
///
/// # Examples
///
/// ```
/// use metrics_core::grammar::share;
///
/// assert_eq!(share("99.9%")?, 0.999);
/// assert_eq!(
///     share("99").unwrap_err().to_string(),
///     "share `99`: a share is at most 1, write 99% or 0.99"
/// );
/// # Ok::<(), metrics_core::Error>(())
/// ```
pub fn share(s: &str) -> Result<f64> {
    const WHAT: &str = "share";
    let expected = "write a percentage such as 99%, or a number from 0 to 1";
    let (number, unit) = split_number(s.trim()).ok_or_else(|| grammar(WHAT, s, expected))?;
    match unit.trim() {
        "%" if 0.0 <= number && number <= 100.0 => {
            let written = s.trim().trim_end_matches('%').trim_end();
            within(WHAT, shifted(written, -2).unwrap_or(number / 100.0), 0.0, 1.0)
        }
        "" if 0.0 <= number && number <= 1.0 => within(WHAT, number, 0.0, 1.0),
        "" if 1.0 < number && number <= 100.0 => {
            let both = format!("a share is at most 1, write {number}% or {}", number / 100.0);
            Err(grammar(WHAT, s, both))
        }
        "" | "%" if number < 0.0 => Err(grammar(WHAT, s, "a share is not negative")),
        "" | "%" => Err(grammar(WHAT, s, "a share is at most 100%")),
        _ => Err(grammar(WHAT, s, expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (s, want) in [
            ("250us", 250e-6),
            ("250µs", 250e-6),
            ("30ms", 0.03),
            ("1.5s", 1.5),
            ("2m", 120.0),
            ("1h30m", 5400.0),
            ("1m 30s", 90.0),
            ("0s", 0.0),
            ("30 ms", 0.03),
            ("1 h 30 m", 5400.0),
            ("200ms", 0.2),
            ("1e3ms", 1.0),
            ("2.5e-1s", 0.25),
        ] {
            assert_eq!(duration(s).unwrap().get(), want, "{s}");
        }
        for s in [
            "",
            "200",
            "ms",
            "5 fortnights",
            "-5ms",
            "1h30",
            "1 30",
            "1..5s",
            "nan",
            "1e999s",
            "1s-2s",
            "5m/s",
        ] {
            assert!(duration(s).is_err(), "{s}");
        }
    }

    #[test]
    fn a_limit_written_in_milliseconds_is_the_nearest_number() {
        for ms in 1..2000_u32 {
            let want: f64 = format!("{}.{:03}", ms / 1000, ms % 1000).parse().unwrap();
            assert_eq!(duration(&format!("{ms}ms")).unwrap().get(), want);
        }
    }

    #[test]
    fn rates_of_every_unit_are_per_second() {
        for s in ["20", "20/s", "20rps", "1200/min", "1200rpm", "72000/h", "1728000/d"] {
            assert_eq!(rate(s).unwrap().get(), 20.0, "{s}");
        }
    }

    #[test]
    fn sizes_rates_counts_prices_and_shares_refuse_what_is_ambiguous() {
        assert_eq!(
            size("80").unwrap_err().to_string(),
            "size `80`: a number needs a unit, write 80GB or 80GiB"
        );
        assert!(size("80Gb").is_err() && size("-1GB").is_err());
        assert_eq!(rate("20").unwrap().get(), 20.0);
        assert!(rate("20/w").is_err() && rate("-1/s").is_err() && rate("x").is_err());
        assert_eq!(count("5k").unwrap(), 5000);
        assert_eq!(count("9007199254740992").unwrap(), 1 << 53);
        assert!(count("9007199254740993").is_err() && count("18446744073709551616").is_err());
        assert!(count("-1").is_err() && count("1e30").is_err() && count("0.0005k").is_err());
        assert!(price("2.5").is_err() && price("-2/h").is_err());
        assert_eq!(share("0").unwrap(), 0.0);
        assert!(share("101%").is_err() && share("-1%").is_err() && share("200").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(s in ".{0,24}") {
            let _ = (duration(&s), rate(&s), size(&s), count(&s), price(&s), share(&s));
        }
    }
}
