// SPDX-License-Identifier: Apache-2.0
//! Text forms of times, addresses and bytes, written without allocation.
//!
//! Source: RFC 3339 for the shape of a timestamp (EVE leaves out the colon of the offset and always has six
//! digits of fraction); the day count is the usual one from 1970-01-01 in the proleptic Gregorian calendar.
//! Always UTC: time zones are not supported.

use bartizan_base::Timestamp;
use std::net::IpAddr;

/// `2018-10-10T09:24:31.516380+0000`.
pub(crate) fn push_timestamp(out: &mut Vec<u8>, at: Timestamp) {
    let seconds = at.as_secs();
    let micros = at.as_micros() % 1_000_000;
    let (year, month, day) = civil_date(seconds / 86_400);
    let of_day = seconds % 86_400;
    push_digits(out, year, 4);
    out.push(b'-');
    push_digits(out, month, 2);
    out.push(b'-');
    push_digits(out, day, 2);
    out.push(b'T');
    push_digits(out, of_day / 3_600, 2);
    out.push(b':');
    push_digits(out, of_day / 60 % 60, 2);
    out.push(b':');
    push_digits(out, of_day % 60, 2);
    out.push(b'.');
    push_digits(out, micros, 6);
    out.extend_from_slice(b"+0000");
}

/// `10/10/2018-09:24:31.516380`, as Suricata's text outputs have it.
pub(crate) fn push_date_time(out: &mut Vec<u8>, at: Timestamp) {
    let seconds = at.as_secs();
    let (year, month, day) = civil_date(seconds / 86_400);
    let of_day = seconds % 86_400;
    for (value, width, behind) in [
        (month, 2, b'/'),
        (day, 2, b'/'),
        (year, 4, b'-'),
        (of_day / 3_600, 2, b':'),
        (of_day / 60 % 60, 2, b':'),
        (of_day % 60, 2, b'.'),
    ] {
        push_digits(out, value, width);
        out.push(behind);
    }
    push_digits(out, at.as_micros() % 1_000_000, 6);
}

/// A time as events have it: `2018-10-10T09:24:31.516380+0000`.
#[must_use]
pub fn time_text(at: Timestamp) -> String {
    let mut out = Vec::with_capacity(31);
    push_timestamp(&mut out, at);
    String::from_utf8_lossy(&out).into_owned()
}

/// The time of an RFC 3339 text (`2018-10-10T09:24:31.5Z`, `2018-10-10 11:24:31+02:00`) in microseconds since
/// 1970, from then to the end of the year 9999; a leap second is the first one of the next day. None for
/// anything else: earlier times, dates that are not there, a fraction without digits.
#[must_use]
pub fn micros_of(text: &str) -> Option<u64> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let mut rest = rest.strip_prefix(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(rest.get(..8)?, ':', [2, 2, 2])?;
    rest = rest.get(8..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let kept = fraction.get(..digits.min(6)).filter(|kept| !kept.is_empty())?;
        micros = format!("{kept:0<6}").parse().ok()?;
        rest = fraction.get(digits..)?;
    }
    let offset = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = match rest.get(..1)? {
                "+" => 1,
                "-" => -1,
                _ => return None,
            };
            // Times in events have no colon here.
            let (hours, minutes) = rest.get(1..)?.split_at_checked(2)?;
            let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
            let ([hours], [minutes]) = (numbers(hours, ':', [2])?, numbers(minutes, ':', [2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            sign * i64::try_from(hours * 3_600 + minutes * 60).ok()?
        }
    };
    let is_there = year >= 1969 && hour < 24 && minute < 60 && second <= 60;
    // With an offset the first hours of 1970 may be written as of the year before.
    let days = is_there.then(|| day_since_1969(year, month, day))??;
    let seconds = i64::try_from(days * 86_400 + hour * 3_600 + minute * 60 + second)
        .ok()?
        .checked_sub(i64::try_from(DAYS_OF_1969 * 86_400).ok()?)?
        .checked_sub(offset)?;
    if second == 60 && seconds % 86_400 != 0 {
        return None;
    }
    u64::try_from(seconds).ok()?.checked_mul(1_000_000)?.checked_add(micros)
}

/// Days of the year before the first that [`day_of`] counts.
const DAYS_OF_1969: u64 = 365;

/// The number of days from 1969-01-01 to a date from then on, if there is such a date.
fn day_since_1969(year: u64, month: u64, day: u64) -> Option<u64> {
    match year {
        // As common a year as 1970.
        1969 => day_of(1970, month, day),
        _ => day_of(year, month, day).map(|days| days + DAYS_OF_1969),
    }
}

/// Parses numbers with the digits `widths` each, and a character between them.
fn numbers<const N: usize>(text: &str, between: char, widths: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(between);
    let mut all = [0; N];
    for (number, width) in all.iter_mut().zip(widths) {
        let part =
            parts.next().filter(|part| part.len() == width && part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(all)
}

/// Number of days from 1970-01-01 to a date, if the date exists: the inverse of [`civil_date`].
fn day_of(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let (shifted, year_from_march) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let era = year_from_march / 400;
    let of_era = year_from_march % 400;
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = days.checked_sub(719_468)?;
    (civil_date(days) == (year, month, day)).then_some(days)
}

/// Year, month and day of a number of days after 1970-01-01. The range of [`Timestamp`] (year 2554)
/// keeps every step far from overflow.
fn civil_date(days: u64) -> (u64, u64, u64) {
    // Days are counted from 0000-03-01, so that the leap day is the last day of a year.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

/// The last `width` decimal digits, six at most.
fn push_digits(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut digits = [b'0'; 6];
    let mut rest = value;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(digits.get(digits.len().saturating_sub(width)..).unwrap_or(&digits));
}

/// IPv4 dotted; IPv6 as eight groups of four digits, never shortened.
pub(crate) fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (index, octet) in v4.octets().iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(*octet).as_bytes());
            }
        }
        IpAddr::V6(v6) => {
            for (index, octet) in v6.octets().iter().enumerate() {
                if index > 0 && index % 2 == 0 {
                    out.push(b':');
                }
                push_hex(out, *octet);
            }
        }
    }
}

/// `08:00:27:0b:cf:a3`.
pub(crate) fn push_mac(out: &mut Vec<u8>, mac: [u8; 6]) {
    for (index, octet) in mac.iter().enumerate() {
        if index > 0 {
            out.push(b':');
        }
        push_hex(out, *octet);
    }
}

/// Two lower-case hexadecimal digits.
pub(crate) fn push_hex(out: &mut Vec<u8>, byte: u8) {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) };
    out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_of_texts() {
        for (text, seconds, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2000-02-29t00:00:00.000001z", 951_782_400, 1_000),
            ("2018-10-10 11:24:31.51638+02:00", 1_539_163_471, 516_380_000),
            ("2018-10-10T09:24:31.5163801234+0000", 1_539_163_471, 516_380_000),
            ("2100-02-28T18:59:59-05:00", 4_107_542_399, 0),
            ("1969-12-31T23:30:00-01:00", 1_800, 0),
            ("1970-01-01T01:00:00+01:00", 0, 0),
            // Beyond the clock of packets (2554), up to the last that RFC 3339 can write.
            ("2554-07-21T23:34:33Z", 18_446_744_073, 0),
            ("2600-01-01T00:00:00Z", 19_880_899_200, 0),
            ("9999-12-31T23:59:59.999999Z", 253_402_300_799, 999_999_000),
            ("9999-12-31T23:59:59-23:59", 253_402_387_139, 0),
            // Leap seconds, of UTC and elsewhere.
            ("2016-12-31T23:59:60Z", 1_483_228_800, 0),
            ("1990-12-31T15:59:60-08:00", 662_688_000, 0),
        ] {
            assert_eq!(micros_of(text), Some(seconds * 1_000_000 + nanos / 1_000), "{text}");
        }
        for day in (0..200_000).step_by(97) {
            let at = Timestamp::from_parts(day * 86_400 + day % 86_400, 0);
            assert_eq!(micros_of(&time_text(at)), Some(at.as_micros()));
        }
        let wrong = [
            "",
            "now",
            "2018-10-10",
            "2018-10-10T09:24",
            "2018-10-10T09:24:31",
            "2018-10-10T09:24:31.Z",
            "2018-10-10T09:24:31ZZ",
            "2018-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2018-13-01T00:00:00Z",
            "2018-00-01T00:00:00Z",
            "2018-01-00T00:00:00Z",
            "2018-01-32T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2018-10-10T24:00:00Z",
            "2018-10-10T23:60:00Z",
            "2018-10-10T23:58:60Z",
            "2018-10-10T23:59:61Z",
            "2018-10-10T23:59:60+01:00",
            "2018-10-10T09:24:31+24:00",
            "2018-10-10T09:24:31+1:00",
            "+018-10-10T09:24:31Z",
            "10000-01-01T00:00:00Z",
            "2018-10-10T09:24:31\u{e9}",
            "2018-1\u{e9}-10T09:24:31Z",
        ];
        for wrong in wrong {
            assert_eq!(micros_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn timestamps_of_leap_and_common_years() {
        for (seconds, nanos, expected) in [
            (0, 0, "1970-01-01T00:00:00.000000+0000"),
            (951_782_400, 1_000, "2000-02-29T00:00:00.000001+0000"),
            (951_868_799, 999_999_999, "2000-02-29T23:59:59.999999+0000"),
            (1_539_163_471, 516_380_000, "2018-10-10T09:24:31.516380+0000"),
            (4_107_542_399, 0, "2100-02-28T23:59:59.000000+0000"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000+0000"),
        ] {
            assert_eq!(text(|out| push_timestamp(out, Timestamp::from_parts(seconds, nanos))), expected);
        }
        let at = Timestamp::from_parts(1_539_163_471, 16_380_000);
        assert_eq!(text(|out| push_date_time(out, at)), "10/10/2018-09:24:31.016380");
        assert!(text(|out| push_timestamp(out, Timestamp::from_nanos(u64::MAX))).starts_with("2554-07-21T"));
    }

    #[test]
    fn addresses_are_written_in_full() {
        let full = |a: &str| text(|out| push_address(out, a.parse().unwrap()));
        assert_eq!(full("10.0.200.7"), "10.0.200.7");
        assert_eq!(full("fe80::1"), "fe80:0000:0000:0000:0000:0000:0000:0001");
        assert_eq!(full("::ffff:1.2.3.4"), "0000:0000:0000:0000:0000:ffff:0102:0304");
        assert_eq!(text(|out| push_mac(out, [8, 0, 0x27, 0xb, 0xcf, 0xa3])), "08:00:27:0b:cf:a3");
    }
}
