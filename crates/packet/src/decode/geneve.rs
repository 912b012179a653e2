// SPDX-License-Identifier: Apache-2.0
//! GENEVE (RFC 8926). Not done: options are checked for their lengths only.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, Tunnel, ether_type, ethernet, ipv4, ipv6};
use crate::{DecodeEvent, Decoded, PacketSource, TunnelKind, TunnelTag};

const HEADER_LEN: usize = 8;
const OPTION_HEADER_LEN: usize = 4;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    let Some([version_len, flags, a, b, v0, v1, v2, reserved]) = cx.head::<HEADER_LEN>(span) else {
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    let options_len = usize::from(version_len & 0x3f) * 4;
    let rest = span.skip(HEADER_LEN);
    if rest.len() < options_len || version_len >> 6 != 0 || flags & 0x3f != 0 || *reserved != 0 {
        return Err(DecodeStop);
    }
    if !options_fill(cx.slice(rest.first(options_len))) {
        return Err(DecodeStop);
    }
    cx.counters.geneve += 1;
    let decode: fn(&mut DecodeContext<'_>, &mut Decoded, DecodeSpan) -> LayerResult =
        match u16::from_be_bytes([*a, *b]) {
            ether_type::IPV4 => ipv4::decode,
            ether_type::IPV6 => ipv6::decode,
            ether_type::BRIDGE => ethernet::decode,
            ether_type::ARP => return Ok(()),
            _ => {
                p.invalid(DecodeEvent::GeneveUnknownPayloadType);
                return Ok(());
            }
        };
    let tag = TunnelTag::new(TunnelKind::Geneve, u32::from_be_bytes([0, *v0, *v1, *v2]));
    // An inner packet that cannot be decoded leaves the outer one unchanged.
    let _ = cx.tunnel(p, rest.skip(options_len), Tunnel::new(PacketSource::Geneve, tag), decode);
    Ok(())
}

/// Whether the options' lengths add up to the length in the header.
fn options_fill(options: &[u8]) -> bool {
    let mut rest = options;
    while let [_, _, _, flags_len, ..] = rest {
        let len = OPTION_HEADER_LEN + usize::from(flags_len & 0x1f) * 4;
        match rest.get(len..) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}
