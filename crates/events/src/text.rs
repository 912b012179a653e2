// SPDX-License-Identifier: Apache-2.0
//! Text forms of times, addresses and bytes, written without allocation.
//!
//! Source: RFC 3339 for the shape of a timestamp (EVE leaves out the colon of the offset and always
//! has six digits of fraction); the day count is the usual one from 1970-01-01 in the proleptic
//! Gregorian calendar. Always UTC: time zones are not done.

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
