// SPDX-License-Identifier: Apache-2.0
//! GTP-U version 1 (3GPP TS 29.281): user packets only. Off unless configured; Suricata does not decode it.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, Tunnel, raw};
use crate::{Decoded, PacketSource, TunnelKind, TunnelTag};

const HEADER_LEN: usize = 8;
const OPTIONAL_LEN: usize = 4;
const USER_PACKET: u8 = 0xff;
/// Version 1, protocol type GTP.
const VERSION: u8 = 0x30;
const EXTENSION: u8 = 0x04;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    let Some([flags, kind, l0, l1, t0, t1, t2, t3]) = cx.head::<HEADER_LEN>(span) else {
        return Err(DecodeStop);
    };
    let rest = span.skip(HEADER_LEN);
    let len = usize::from(u16::from_be_bytes([*l0, *l1]));
    if flags & 0xf0 != VERSION || *kind != USER_PACKET || rest.len() < len {
        return Err(DecodeStop);
    }
    cx.layer(p)?;
    let mut rest = rest.first(len);
    if flags & 0x07 != 0 {
        let Some([_, _, _, next]) = cx.head::<OPTIONAL_LEN>(rest) else {
            return Err(DecodeStop);
        };
        let mut next = if flags & EXTENSION != 0 { *next } else { 0 };
        rest = rest.skip(OPTIONAL_LEN);
        // Extension headers count in units of four bytes and end with the type of the next one.
        while next != 0 {
            let bytes = cx.slice(rest);
            let len = bytes.first().map_or(0, |units| usize::from(*units) * 4);
            let Some([.., last]) = bytes.get(..len) else {
                return Err(DecodeStop);
            };
            next = *last;
            rest = rest.skip(len);
        }
    }
    let tag = TunnelTag::new(TunnelKind::Gtp, u32::from_be_bytes([*t0, *t1, *t2, *t3]));
    let tunnel = Tunnel { source: PacketSource::Gtp, tag, strict: true };
    cx.tunnel(p, rest, tunnel, raw::decode_version)
}
