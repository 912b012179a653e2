// SPDX-License-Identifier: Apache-2.0
//! TCP (RFC 9293) and its options (RFC 7323, 2018, 7413, 2385, 5925, 8684).

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult};
use crate::{DecodeEvent, Decoded, MULTIPATH, PacketFlags, Tcp, TcpFlags, TcpOptions, TransportLayer};

const HEADER_LEN: usize = 20;
/// RFC 7323 section 2.3.
const WINDOW_SCALE_MAX: u8 = 14;
/// Kind of Fast Open inside the experimental options (RFC 6994).
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.tcp += 1;
    match header(cx, p, span) {
        Ok(tcp) => {
            let payload = span.skip(usize::from(tcp.header_len));
            p.transport = TransportLayer::Tcp(tcp);
            p.l4 = span.start();
            p.payload = payload.start();
            p.payload_len = payload.len_u32();
            p.flags |= PacketFlags::WANTS_FLOW;
            Ok(())
        }
        Err(event) => {
            p.unreadable(event);
            p.clear_transport();
            Err(DecodeStop)
        }
    }
}

fn header(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> Result<Tcp, DecodeEvent> {
    let Some([s0, s1, d0, d1, n0, n1, n2, n3, a0, a1, a2, a3, offset, flags, w0, w1, _, _, u0, u1]) =
        cx.head::<HEADER_LEN>(span)
    else {
        return Err(DecodeEvent::TcpPktTooSmall);
    };
    let header_len = (offset >> 4) * 4;
    let header = cx.slice(span.first(header_len.into()));
    if header.len() < usize::from(header_len) {
        return Err(DecodeEvent::TcpHlenTooSmall);
    }
    if usize::from(header_len) < HEADER_LEN {
        return Err(DecodeEvent::TcpInvalidOptlen);
    }
    let options = options(p, header.get(HEADER_LEN..).unwrap_or(&[]));
    Ok(Tcp {
        sport: u16::from_be_bytes([*s0, *s1]),
        dport: u16::from_be_bytes([*d0, *d1]),
        seq: u32::from_be_bytes([*n0, *n1, *n2, *n3]),
        ack: u32::from_be_bytes([*a0, *a1, *a2, *a3]),
        window: u16::from_be_bytes([*w0, *w1]),
        urgent: u16::from_be_bytes([*u0, *u1]),
        flags: TcpFlags::from_bits_retain(*flags),
        reserved: offset & 0x0f,
        header_len,
        options,
    })
}

fn options(p: &mut Decoded, bytes: &[u8]) -> TcpOptions {
    let mut options = TcpOptions::default();
    let mut rest = bytes;
    while let Some((kind, tail)) = rest.split_first() {
        match kind {
            0 => break,
            1 => {
                rest = tail;
                continue;
            }
            _ => {}
        }
        let Some(len) = tail.first().copied().map(usize::from) else {
            break;
        };
        let (true, Some((option, after))) = (len >= 2, rest.split_at_checked(len)) else {
            p.invalid(DecodeEvent::TcpOptInvalidLen);
            break;
        };
        // The offset of the option's value from the first byte of the TCP header.
        let value_at = HEADER_LEN + (bytes.len() - rest.len()) + 2;
        one(p, &mut options, option, value_at as u8);
        rest = after;
    }
    options
}

/// Keeps the value of an option at its first occurrence; a second one is an event.
fn keep<T>(p: &mut Decoded, place: &mut Option<T>, value: T) {
    if place.is_some() {
        p.event(DecodeEvent::TcpOptDuplicate);
    } else {
        *place = Some(value);
    }
}

fn one(p: &mut Decoded, options: &mut TcpOptions, option: &[u8], value_at: u8) {
    match option {
        [2, _, a, b] => keep(p, &mut options.mss, u16::from_be_bytes([*a, *b])),
        [3, _, shift] => {
            if *shift > WINDOW_SCALE_MAX && options.wscale.is_none() {
                p.event(DecodeEvent::TcpOptWscaleOverMax);
            }
            keep(p, &mut options.wscale, *shift);
        }
        [4, _] => {
            let mut seen = options.sack_ok.then_some(());
            keep(p, &mut seen, ());
            options.sack_ok = true;
        }
        [5, _, blocks @ ..] if blocks.len() <= 32 && blocks.len().is_multiple_of(8) => {
            let mut seen = (options.sack_blocks > 0).then_some((options.sack_blocks, options.sack_offset));
            keep(p, &mut seen, ((blocks.len() / 8) as u8, value_at));
            (options.sack_blocks, options.sack_offset) =
                seen.filter(|(count, _)| *count > 0).unwrap_or_default();
        }
        [8, _, v0, v1, v2, v3, e0, e1, e2, e3] => {
            let times = (u32::from_be_bytes([*v0, *v1, *v2, *v3]), u32::from_be_bytes([*e0, *e1, *e2, *e3]));
            keep(p, &mut options.timestamps, times);
        }
        [19, _, signature @ ..] if signature.len() == 16 => options.md5 = true,
        [29, _, _, _, ..] => options.ao = true,
        [MULTIPATH, ..] => options.multipath = true,
        [34, _, cookie @ ..]
            if cookie.is_empty() || ((4..=16).contains(&cookie.len()) && cookie.len().is_multiple_of(2)) =>
        {
            keep(p, &mut options.fast_open, cookie.len() as u8);
        }
        [253 | 254, _, a, b, cookie @ ..]
            if [*a, *b] == FAST_OPEN_EXPERIMENT && matches!(cookie.len(), 0 | 8) =>
        {
            keep(p, &mut options.fast_open, cookie.len() as u8);
        }
        // Another experiment of a length that Fast Open could have.
        [253 | 254, _, _, _, rest @ ..] if matches!(rest.len(), 0 | 8) => {}
        // Authentication cannot be checked without the key, but its form can: a wrong form makes the packet
        // invalid.
        [19 | 29, ..] => p.invalid(DecodeEvent::TcpOptInvalidLen),
        [2 | 3 | 4 | 5 | 8 | 34 | 253 | 254, ..] => p.event(DecodeEvent::TcpOptInvalidLen),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DecodeEvent as E;

    fn walk(bytes: &[u8]) -> (TcpOptions, Vec<DecodeEvent>, bool) {
        let mut p = Decoded::default();
        let options = options(&mut p, bytes);
        (options, p.events.as_slice().to_vec(), p.is_invalid())
    }

    #[test]
    fn a_syn_of_linux() {
        let (options, events, _) = walk(&[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7]);
        assert!(events.is_empty());
        assert_eq!(options.mss, Some(1460));
        assert!(options.sack_ok);
        assert_eq!(options.timestamps, Some((9, 0)));
        assert_eq!(options.wscale, Some(7));
    }

    #[test]
    fn blocks_and_cookies() {
        let mut bytes = vec![1, 1, 5, 18];
        bytes.extend([0; 16]);
        let (options, events, _) = walk(&bytes);
        assert!(events.is_empty());
        assert_eq!((options.sack_blocks, options.sack_offset), (2, 24));
        assert_eq!(walk(&[34, 2, 1, 1]).0.fast_open, Some(0));
        assert_eq!(walk(&[254, 4, 0xf9, 0x89]).0.fast_open, Some(0));
        assert_eq!(walk(&[254, 4, 0, 0]).0.fast_open, None);
    }

    #[test]
    fn broken_options() {
        assert_eq!(walk(&[3, 3, 15, 0]).1, [E::TcpOptWscaleOverMax]);
        assert_eq!(walk(&[3, 3, 15, 0]).0.wscale, Some(15));
        assert_eq!(walk(&[3, 3, 14, 0]).1, []);
        assert_eq!(walk(&[2, 3, 0, 0]).1, [E::TcpOptInvalidLen]);
        assert_eq!(walk(&[4, 2, 4, 2]).1, [E::TcpOptDuplicate]);
        assert_eq!(walk(&[34, 5, 0, 0, 0, 0, 0, 0]).1, [E::TcpOptInvalidLen]);
        let (_, events, invalid) = walk(&[19, 4, 0, 0]);
        assert_eq!((events, invalid), (vec![E::TcpOptInvalidLen], true));
        let (_, events, invalid) = walk(&[77, 9, 0, 0]);
        assert_eq!((events, invalid), (vec![E::TcpOptInvalidLen], true));
        let (_, events, invalid) = walk(&[77, 1, 0, 0]);
        assert_eq!((events, invalid), (vec![E::TcpOptInvalidLen], true));
        assert!(walk(&[1, 1, 1, 77]).1.is_empty());
    }
}
