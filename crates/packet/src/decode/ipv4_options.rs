// SPDX-License-Identifier: Apache-2.0
//! IPv4 options (RFC 791, 1108, 2113, 4782, FIPS 188): each is validated.

use crate::{DecodeEvent, Decoded, IpOptions};

/// The shortest valid lengths of options, in bytes with type and length.
const ROUTE_MIN: usize = 3;
const TIMESTAMP_MIN: usize = 5;
const QUICK_START_MIN: usize = 8;
const SECURITY_MIN: usize = 3;
const STREAM_ID_LEN: usize = 4;
const ROUTER_ALERT_LEN: usize = 4;
const CIPSO_MIN: usize = 10;

/// Walks the options. `None` when the list itself is broken; a broken option inside a good list is an event
/// that makes the packet invalid, and the walk continues after it.
pub(super) fn decode(p: &mut Decoded, options: &[u8]) -> Option<(IpOptions, u8)> {
    if !options.len().is_multiple_of(8) {
        p.event(DecodeEvent::Ipv4OptPadRequired);
    }
    let mut seen = IpOptions::empty();
    let mut count = 0u8;
    let mut rest = options;
    while let Some((kind, tail)) = rest.split_first() {
        count = count.saturating_add(1);
        match kind {
            0 => {
                seen |= IpOptions::EOL;
                break;
            }
            1 => {
                seen |= IpOptions::NOP;
                rest = tail;
                continue;
            }
            _ => {}
        }
        let Some(len) = tail.first().copied().map(usize::from) else {
            p.event(DecodeEvent::Ipv4OptEolRequired);
            break;
        };
        if len < 2 {
            p.invalid(DecodeEvent::Ipv4OptInvalidLen);
            return None;
        }
        let Some((option, after)) = rest.split_at_checked(len) else {
            p.invalid(DecodeEvent::Ipv4OptInvalidLen);
            return None;
        };
        one(p, *kind, option, &mut seen);
        rest = after;
    }
    Some((seen, count))
}

fn one(p: &mut Decoded, kind: u8, option: &[u8], seen: &mut IpOptions) {
    let (flag, validity) = match kind {
        0x07 => (IpOptions::RECORD_ROUTE, route(option)),
        0x19 => (IpOptions::QUICK_START, at_least(option, QUICK_START_MIN)),
        0x44 => (IpOptions::TIMESTAMP, timestamp(option)),
        0x82 => (IpOptions::SECURITY, at_least(option, SECURITY_MIN)),
        0x83 => (IpOptions::LOOSE_SOURCE_ROUTE, route(option)),
        0x85 => (IpOptions::EXTENDED_SECURITY, at_least(option, SECURITY_MIN)),
        0x86 => (IpOptions::CIPSO, cipso(option)),
        0x88 => (IpOptions::STREAM_ID, exactly(option, STREAM_ID_LEN)),
        0x89 => (IpOptions::STRICT_SOURCE_ROUTE, route(option)),
        0x94 => (IpOptions::ROUTER_ALERT, exactly(option, ROUTER_ALERT_LEN)),
        _ => {
            p.event(DecodeEvent::Ipv4OptInvalid);
            return;
        }
    };
    if seen.contains(flag) {
        p.event(DecodeEvent::Ipv4OptDuplicate);
        return;
    }
    match validity {
        Ok(()) => *seen |= flag,
        Err(event) => p.invalid(event),
    }
}

fn at_least(option: &[u8], len: usize) -> Result<(), DecodeEvent> {
    if option.len() < len { Err(DecodeEvent::Ipv4OptInvalidLen) } else { Ok(()) }
}

fn exactly(option: &[u8], len: usize) -> Result<(), DecodeEvent> {
    if option.len() == len { Ok(()) } else { Err(DecodeEvent::Ipv4OptInvalidLen) }
}

/// Record and source routes: the pointer counts from 1, starts after itself and advances by whole
/// addresses.
fn route(option: &[u8]) -> Result<(), DecodeEvent> {
    at_least(option, ROUTE_MIN)?;
    match option {
        [_, _, pointer, ..]
            if *pointer >= 4 && pointer % 4 == 0 && usize::from(*pointer) <= option.len() + 1 =>
        {
            Ok(())
        }
        _ => Err(DecodeEvent::Ipv4OptMalformed),
    }
}

/// Timestamps: records of four bytes, or eight if the flag says that the times have addresses.
fn timestamp(option: &[u8]) -> Result<(), DecodeEvent> {
    at_least(option, TIMESTAMP_MIN)?;
    let [_, _, pointer, overflow_and_flag, ..] = option else {
        return Err(DecodeEvent::Ipv4OptMalformed);
    };
    let record = if matches!(overflow_and_flag & 0x0f, 1 | 3) { 8 } else { 4 };
    match pointer.checked_sub(5) {
        Some(from) if from % record == 0 && usize::from(*pointer) <= option.len() + 1 => Ok(()),
        _ => Err(DecodeEvent::Ipv4OptMalformed),
    }
}

/// CIPSO: a domain, then tags that fill the option; their alignment byte is zero, except in tag 7, which has
/// none.
fn cipso(option: &[u8]) -> Result<(), DecodeEvent> {
    at_least(option, CIPSO_MIN)?;
    let malformed = DecodeEvent::Ipv4OptMalformed;
    let mut tags = option.get(6..).ok_or(malformed)?;
    while let Some((kind, tail)) = tags.split_first() {
        let len = tail.first().copied().map(usize::from).ok_or(malformed)?;
        if len < 4 || !matches!(kind, 1 | 2 | 5 | 6 | 7) {
            return Err(malformed);
        }
        let (tag, after) = tags.split_at_checked(len).ok_or(malformed)?;
        if *kind != 7 && tag.get(2) != Some(&0) {
            return Err(malformed);
        }
        tags = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use DecodeEvent as E;

    fn walk(options: &[u8]) -> (Option<(IpOptions, u8)>, Vec<DecodeEvent>, bool) {
        let mut p = Decoded::default();
        let result = decode(&mut p, options);
        (result, p.events.as_slice().to_vec(), p.is_invalid())
    }

    fn padded(option: &[u8]) -> Vec<u8> {
        let mut bytes = option.to_vec();
        bytes.resize(option.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn good_options_are_seen() {
        let cases: &[(&[u8], IpOptions)] = &[
            (&[0x07, 7, 4, 0, 0, 0, 0], IpOptions::RECORD_ROUTE),
            (&[0x83, 7, 8, 10, 0, 0, 1], IpOptions::LOOSE_SOURCE_ROUTE),
            (&[0x89, 7, 4, 10, 0, 0, 1], IpOptions::STRICT_SOURCE_ROUTE),
            (&[0x19, 8, 0x0d, 0, 0xbe, 0xef, 0, 0], IpOptions::QUICK_START),
            (&[0x44, 12, 13, 1, 1, 2, 3, 4, 5, 6, 7, 8], IpOptions::TIMESTAMP),
            (&[0x82, 11, 0xf1, 0x35, 0, 0, 0, 0, 0, 0, 0], IpOptions::SECURITY),
            (&[0x85, 3, 0], IpOptions::EXTENDED_SECURITY),
            (&[0x88, 4, 0, 1], IpOptions::STREAM_ID),
            (&[0x94, 4, 0, 0], IpOptions::ROUTER_ALERT),
            (&[0x86, 10, 0, 0, 0, 1, 1, 4, 0, 1], IpOptions::CIPSO),
        ];
        for (bytes, flag) in cases {
            let (result, events, invalid) = walk(&padded(bytes));
            assert!(events.is_empty() && !invalid, "{bytes:x?}: {events:?}");
            let (seen, _) = result.unwrap();
            assert!(seen.contains(*flag), "{bytes:x?}");
        }
        assert_eq!(walk(&[1, 1, 1, 1, 1, 1, 1, 0]).0, Some((IpOptions::NOP | IpOptions::EOL, 8)));
    }

    #[test]
    fn broken_options_are_events_and_do_not_end_the_walk() {
        let cases: &[(&[u8], E)] = &[
            (&[0x07, 7, 5, 0, 0, 0, 0], E::Ipv4OptMalformed),
            (&[0x07, 7, 12, 0, 0, 0, 0], E::Ipv4OptMalformed),
            (&[0x07, 2], E::Ipv4OptInvalidLen),
            (&[0x19, 7, 0, 0, 0, 0, 0], E::Ipv4OptInvalidLen),
            (&[0x44, 8, 4, 0, 0, 0, 0, 0], E::Ipv4OptMalformed),
            (&[0x44, 8, 0xff, 0, 0, 0, 0, 0], E::Ipv4OptMalformed),
            (&[0x82, 2], E::Ipv4OptInvalidLen),
            (&[0x88, 3, 0], E::Ipv4OptInvalidLen),
            (&[0x94, 5, 0, 0, 0], E::Ipv4OptInvalidLen),
            (&[0x86, 10, 0, 0, 0, 1, 0, 4, 0, 1], E::Ipv4OptMalformed),
            (&[0x86, 10, 0, 0, 0, 1, 1, 4, 9, 1], E::Ipv4OptMalformed),
            (&[0x86, 10, 0, 0, 0, 1, 1, 3, 0, 1], E::Ipv4OptMalformed),
        ];
        for (bytes, event) in cases {
            let mut with_nop = bytes.to_vec();
            with_nop.push(1);
            let (result, events, invalid) = walk(&padded(&with_nop));
            assert_eq!(events, [*event], "{bytes:x?}");
            assert!(invalid);
            assert!(result.unwrap().0.contains(IpOptions::NOP), "{bytes:x?}: the walk ended");
        }
    }

    #[test]
    fn lists_that_cannot_be_walked() {
        assert_eq!(walk(&[0x07, 9, 4, 0, 0, 0, 0, 0]), (None, vec![E::Ipv4OptInvalidLen], true));
        assert_eq!(walk(&[0x07, 1, 0, 0, 0, 0, 0, 0]), (None, vec![E::Ipv4OptInvalidLen], true));
        assert_eq!(walk(&[1, 1, 1, 1, 1, 1, 1, 7]).1, [E::Ipv4OptEolRequired]);
        assert_eq!(walk(&[1, 1, 1, 1]).1, [E::Ipv4OptPadRequired]);
        assert_eq!(walk(&[0xee, 2, 0, 0, 0, 0, 0, 0]).1, [E::Ipv4OptInvalid]);
        let twice = walk(&[0x94, 4, 0, 0, 0x94, 4, 0, 0]);
        assert_eq!((twice.1, twice.2), (vec![E::Ipv4OptDuplicate], false));
    }
}
