//! Time stamps as text, read without losing a digit.
//!
//! `YYYY-MM-DD HH:MM:SS`, a `T` in place of the space, up to 18 digits of a second, and `Z` or an
//! offset such as `+00:00` behind it. Days are counted by the calendar: leap years, no leap
//! seconds, as Unix time does.

use jiff::civil::{Date, date};

/// Attoseconds in a second.
const SECOND: u128 = 1_000_000_000_000_000_000;

/// What a stamp should be.
pub(super) const STAMP: &str =
    "a time stamp on the calendar from 1970 on, for example `2023-11-16 18:15:46.6805900`";

/// An instant on the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Attoseconds since 1970 began, in UTC; as written if the stamp has no zone.
    pub(super) unix: u128,
    /// Whether it says its offset from UTC.
    pub(super) zoned: bool,
}

/// Two digits as a number below `limit`.
fn two(bytes: &[u8], limit: u32) -> Option<u32> {
    let n = digits(bytes.get(..2)?)?;
    (n < limit).then_some(n)
}

/// A few digits as a number.
fn digits(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0_u32, |n, b| {
        let digit = char::from(*b).to_digit(10)?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// The stamp in a text; `None` if it is none, or before 1970.
pub(super) fn parse(text: &str) -> Option<Stamp> {
    let b = text.as_bytes();
    let marks = [(4, b"-"), (7, b"-"), (13, b":"), (16, b":")];
    if marks.iter().any(|(i, m)| b.get(*i) != m.first()) || !matches!(b.get(10), Some(b' ' | b'T'))
    {
        return None;
    }
    let year = i16::try_from(digits(b.get(..4)?)?).ok()?;
    let month = i8::try_from(two(b.get(5..7)?, 13)?).ok()?;
    let day = i8::try_from(two(b.get(8..10)?, 32)?).ok()?;
    let (hour, minute) = (two(b.get(11..13)?, 24)?, two(b.get(14..16)?, 60)?);
    let second = two(b.get(17..19)?, 60)?;
    let day = Date::new(year, month, day).ok()?;
    let rest = b.get(19..)?;
    let (fraction, zone) = match rest.strip_prefix(b".") {
        Some(rest) => {
            let n = rest.iter().take_while(|c| c.is_ascii_digit()).count();
            if n == 0 {
                return None;
            }
            rest.split_at_checked(n)?
        }
        None => (&rest[..0], rest),
    };
    let (offset, zoned) = offset(zone)?;
    let days = day.duration_since(date(1970, 1, 1)).as_secs();
    let clock = i64::from(hour * 3600 + minute * 60 + second);
    let seconds = u128::try_from(days + clock - offset).ok()?;
    Some(Stamp { unix: seconds * SECOND + part(fraction)?, zoned })
}

/// Digits behind the point in attoseconds; none may be finer.
fn part(fraction: &[u8]) -> Option<u128> {
    let mut value: u128 = 0;
    for (i, b) in fraction.iter().enumerate() {
        let digit = u128::from(b - b'0');
        if i < 18 {
            value = value * 10 + digit;
        } else if digit != 0 {
            return None;
        }
    }
    Some(value * 10_u128.pow(u32::try_from(18 - fraction.len().min(18)).ok()?))
}

/// Seconds east of UTC, and whether the stamp says so.
fn offset(zone: &[u8]) -> Option<(i64, bool)> {
    let (sign, rest) = match zone {
        [] => return Some((0, false)),
        b"Z" => return Some((0, true)),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let [h1, h2, b':', m1, m2] = rest else { return None };
    let (hours, minutes) = (two(&[*h1, *h2], 24)?, two(&[*m1, *m2], 60)?);
    Some((sign * i64::from(hours * 3600 + minutes * 60), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(text: &str) -> Option<u128> {
        parse(text).map(|s| s.unix)
    }

    #[test]
    fn every_digit_counts() {
        // 1700158546 is `date -u -d '2023-11-16 18:15:46' +%s`.
        let tenth_microseconds = 17_001_585_466_805_900_u128;
        assert_eq!(
            parse("2023-11-16 18:15:46.6805900"),
            Some(Stamp { unix: tenth_microseconds * 100_000_000_000, zoned: false })
        );
        assert_eq!(unix("1970-01-01T00:00:00.000000000000000001"), Some(1));
        assert_eq!(unix("1970-01-01T00:00:00.0000000000000000010"), Some(1));
        assert_eq!(unix("1970-01-01T00:00:00.0000000000000000001"), None);
        assert_eq!(unix("1970-01-01 00:00:01"), Some(SECOND));
    }

    #[test]
    fn the_calendar_is_kept() {
        assert_eq!(unix("2024-02-29 00:00:00"), Some(1_709_164_800 * SECOND));
        for text in [
            "2023-02-29 00:00:00",
            "1900-02-29 00:00:00",
            "2023-04-31 00:00:00",
            "2023-13-01 00:00:00",
            "2023-00-01 00:00:00",
            "2023-01-00 00:00:00",
            "2023-01-01 24:00:00",
            "2023-01-01 00:60:00",
            "2023-06-30 23:59:60",
            "1969-12-31 23:59:59",
        ] {
            assert_eq!(unix(text), None, "{text}");
        }
    }

    #[test]
    fn offsets_are_taken_off() {
        let noon = unix("2024-05-10 12:00:00");
        for text in
            ["2024-05-10 12:00:00Z", "2024-05-10 14:30:00+02:30", "2024-05-10T04:00:00.0-08:00"]
        {
            assert_eq!(unix(text), noon, "{text}");
            assert_eq!(parse(text).map(|s| s.zoned), Some(true), "{text}");
        }
        for text in [
            "2024-05-10 12:00:00 UTC",
            "2024-05-10 12:00:00+2",
            "2024-05-10 12:00:00+02:60",
            "1970-01-01 00:00:00+01:00",
        ] {
            assert_eq!(unix(text), None, "{text}");
        }
    }

    #[test]
    fn other_forms_are_none() {
        for text in [
            "",
            "2023-11-16",
            "18:15:46",
            "2023-11-16 18:15",
            "2023/11/16 18:15:46",
            "16-11-2023 18:15:46",
            "2023-11-16 18:15:46.",
            "2023-11-16  8:15:46",
            "2023-11-16 18:15:46,5",
            "+023-11-16 18:15:46",
            "２０２３-11-16 18:15:46",
        ] {
            assert_eq!(unix(text), None, "{text}");
        }
    }
}
