// SPDX-License-Identifier: Apache-2.0
//! PPP (RFC 1661), with or without HDLC framing (RFC 1662) and protocol compression.
//!
//! Not done: control protocols; Van Jacobson compressed headers (RFC 1144) other than uncompressed ones.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, ipv4, ipv6};
use crate::{DecodeEvent, Decoded, PacketFlags};

const HDLC_ADDRESS: u8 = 0xff;
const IPV4: u16 = 0x0021;
const IPV6: u16 = 0x0057;
const VJ_UNCOMPRESSED: u16 = 0x002f;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.ppp += 1;
    let at = match cx.slice(span) {
        [HDLC_ADDRESS, ..] => 2,
        _ => 0,
    };
    let protocol_field = span.skip(at);
    let Some((protocol, len)) = protocol(cx, protocol_field) else {
        p.invalid(DecodeEvent::PppPktTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    let data = protocol_field.skip(len);
    if len == 1 && !matches!(protocol, IPV4 | IPV6 | VJ_UNCOMPRESSED) {
        p.event(DecodeEvent::PppUnsupProto);
        return Ok(());
    }
    if control_is_accepted(protocol) {
        return Ok(());
    }
    payload(cx, p, protocol, data)
}

/// The protocol field and its length: one byte when its lowest bit is set, otherwise two.
pub(super) fn protocol(cx: &DecodeContext<'_>, span: DecodeSpan) -> Option<(u16, usize)> {
    match cx.slice(span) {
        [only, ..] if only & 1 != 0 => Some((u16::from(*only), 1)),
        [high, low, ..] => Some((u16::from_be_bytes([*high, *low]), 2)),
        _ => None,
    }
}

/// Whether a control protocol of PPP is skipped without an event.
const fn control_is_accepted(protocol: u16) -> bool {
    matches!(
        protocol,
        0x8021 | 0x8057 | 0xc021 | 0xc023 | 0xc223 | 0x80fd | 0xc025 | 0xc029 | 0x00fd | 0x8207
    )
}

/// Whether a protocol is known but not decoded.
const fn is_known(protocol: u16) -> bool {
    matches!(
        protocol,
        0x0023
            | 0x0025
            | 0x0027
            | 0x0029
            | 0x002b
            | 0x002d
            | 0x0031
            | 0x0033
            | 0x0035
            | 0x0201
            | 0x0231
            | 0x0233
            | 0x0281
            | 0x0283
            | 0x8021
            | 0x8023
            | 0x8025
            | 0x8027
            | 0x8029
            | 0x802b
            | 0x8033
            | 0x8035
            | 0x8057
            | 0x8281
            | 0xc021
            | 0xc023
            | 0xc025
            | 0xc223
    )
}

/// Decodes the payload of a protocol number; PPPoE uses this too.
pub(super) fn payload(
    cx: &mut DecodeContext<'_>,
    p: &mut Decoded,
    protocol: u16,
    data: DecodeSpan,
) -> LayerResult {
    let too_small = match protocol {
        VJ_UNCOMPRESSED if data.len() < ipv4::HEADER_LEN => DecodeEvent::PppVjuPktTooSmall,
        IPV4 if data.len() < ipv4::HEADER_LEN => DecodeEvent::PppIp4PktTooSmall,
        IPV6 if data.len() < ipv6::HEADER_LEN => DecodeEvent::PppIp6PktTooSmall,
        VJ_UNCOMPRESSED => {
            if cx.slice(data).first().is_none_or(|first| first >> 4 != 4) {
                return Err(DecodeStop);
            }
            p.flags |= PacketFlags::VJ_UNCOMPRESSED;
            return ipv4::decode(cx, p, data);
        }
        IPV4 => return ipv4::decode(cx, p, data),
        IPV6 => return ipv6::decode(cx, p, data),
        known if is_known(known) => {
            p.event(DecodeEvent::PppUnsupProto);
            return Ok(());
        }
        _ => {
            p.invalid(DecodeEvent::PppWrongType);
            return Ok(());
        }
    };
    p.invalid(too_small);
    Err(DecodeStop)
}
