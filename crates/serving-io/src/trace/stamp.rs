//! Time stamps as text, read without losing a digit.
//!
//! `YYYY-MM-DD HH:MM:SS`, a `T` in place of the space, up to 18 digits of a second, and `Z` or an
//! offset such as `+00:00` behind it. Days are counted by the calendar: leap years, no leap
//! seconds, as Unix time does.

use jiff::civil::{Date, date};

/// Attoseconds in a second.
const SECOND: u64 = 1_000_000_000_000_000_000;

/// What the digits of a second count, in attoseconds.
const UNITS: [u64; 18] = {
    let mut units = [1; 18];
    let mut at = units.len() - 1;
    while 0 < at {
        units[at - 1] = units[at] * 10;
        at -= 1;
    }
    units
};

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
fn two(bytes: [u8; 2], limit: u32) -> Option<u32> {
    let n = digits(&bytes)?;
    (n < limit).then_some(n)
}

/// A few digits as a number.
fn digits(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0_u32, |n, b| {
        let digit = char::from(*b).to_digit(10)?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// How long the text of a minute is: `YYYY-MM-DD HH:MM`.
const MINUTE: usize = 16;

/// Reads stamps one after another.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// The minute of the stamp before, as text and in seconds since 1970 began: in a trace, most
    /// stamps are of the same minute as the one before.
    minute: Option<([u8; MINUTE], i64)>,
}

impl Stamps {
    /// The stamp in a text; `None` if it is none, or before 1970.
    pub(super) fn parse(&mut self, text: &str) -> Option<Stamp> {
        let (minute, rest) = text.as_bytes().split_first_chunk::<MINUTE>()?;
        let start = match self.minute {
            Some((same, start)) if same == *minute => start,
            _ => {
                let start = start_of(minute)?;
                self.minute = Some((*minute, start));
                start
            }
        };
        let [b':', s1, s2, rest @ ..] = rest else { return None };
        let second = i64::from(two([*s1, *s2], 60)?);
        let (part, zone) = match rest {
            [b'.', rest @ ..] => part(rest)?,
            _ => (0, rest),
        };
        let (offset, zoned) = offset(zone)?;
        let seconds = u64::try_from(start + second - offset).ok()?;
        let unix = u128::from(seconds) * u128::from(SECOND) + u128::from(part);
        Some(Stamp { unix, zoned })
    }
}

/// Seconds from the beginning of 1970 to a minute of the calendar.
fn start_of(minute: &[u8; MINUTE]) -> Option<i64> {
    let [y @ .., b'-', m1, m2, b'-', d1, d2, b' ' | b'T', h1, h2, b':', n1, n2] = minute else {
        return None;
    };
    let year = i16::try_from(digits(y)?).ok()?;
    let month = i8::try_from(two([*m1, *m2], 13)?).ok()?;
    let day = i8::try_from(two([*d1, *d2], 32)?).ok()?;
    let (hour, minute) = (two([*h1, *h2], 24)?, two([*n1, *n2], 60)?);
    let day = Date::new(year, month, day).ok()?;
    let days = day.duration_since(date(1970, 1, 1)).as_secs();
    Some(days + i64::from(hour * 3600 + minute * 60))
}

/// The digits behind the point in attoseconds, and what follows them.
fn part(text: &[u8]) -> Option<(u64, &[u8])> {
    let digit = |b: &u8| b.is_ascii_digit().then(|| u64::from(b - b'0'));
    let (mut value, mut count) = (0, 0);
    for (digit, unit) in text.iter().map_while(digit).zip(&UNITS) {
        value += digit * unit;
        count += 1;
    }
    // Zeros may be finer than an attosecond; another digit there is left, and is no zone.
    let rest = text.get(count..).filter(|_| 0 < count)?;
    let zeros = rest.iter().take_while(|b| **b == b'0').count();
    Some((value, rest.get(zeros..)?))
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
    let (hours, minutes) = (two([*h1, *h2], 24)?, two([*m1, *m2], 60)?);
    Some((sign * i64::from(hours * 3600 + minutes * 60), true))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Option<Stamp> {
        Stamps::default().parse(text)
    }

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
        assert_eq!(unix("1970-01-01T00:00:00.00000000000000000100"), Some(1));
        assert_eq!(unix("1970-01-01T00:00:00.00000000000000000001Z"), None);
        assert_eq!(
            unix("1970-01-01T00:00:00.9999999999999999990000Z"),
            Some(999_999_999_999_999_999)
        );
        assert_eq!(unix("1970-01-01 00:00:01"), Some(u128::from(SECOND)));
    }

    #[test]
    fn the_calendar_is_kept() {
        assert_eq!(unix("2024-02-29 00:00:00"), Some(1_709_164_800 * u128::from(SECOND)));
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

    proptest! {
        /// Which stamps came before makes no difference, whether they were right or wrong.
        #[test]
        fn stamps_are_read_one_by_one(
            texts in vec("202[34]-0[012]-29[ T]2[34]:0[01](:[0-6]0)?(\\.[0-9]{0,20})?(Z|\\+01:00)?", 1..20),
        ) {
            let mut stamps = Stamps::default();
            for text in &texts {
                prop_assert_eq!(stamps.parse(text), parse(text), "{} of {:?}", text, texts);
            }
        }
    }
}
