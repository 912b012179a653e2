// SPDX-License-Identifier: Apache-2.0
//! Helpers for collected events, one per line: number of bytes and lines, time of the first.

/// Number of bytes that are collected before they are written.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// The time text of an event; every event begins with it.
pub(super) fn timestamp_of(event: &[u8]) -> &str {
    let text = event.strip_prefix(br#"{"timestamp":""#).and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == b'"')?;
        core::str::from_utf8(rest.get(..end)?).ok()
    });
    text.unwrap_or("1970-01-01T00:00:00.000000+0000")
}

/// Seconds since the epoch of an event's time text, `2018-10-10T09:24:31.516380+0200`; `None` for any other
/// text.
pub(super) fn seconds_of(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let zone = text.len().checked_sub(5)?;
    let sign = if text.get(zone..=zone)? == "-" { -1 } else { 1 };
    let offset = sign * (number(zone + 1, zone + 3)? * 3600 + number(zone + 3, zone + 5)? * 60);
    // Days since 1970-01-01 in the proleptic Gregorian calendar, years beginning in March.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + day - 1 - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second - offset).ok()
}

/// Number of line ends.
pub(super) fn lines(bytes: &[u8]) -> u64 {
    // Pieces whose count fits into a byte, so that the processor adds many at once.
    let in_piece = |piece: &[u8]| piece.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    bytes.chunks(192).map(|piece| u64::from(in_piece(piece))).sum()
}
