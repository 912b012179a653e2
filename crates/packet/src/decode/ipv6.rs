// SPDX-License-Identifier: Apache-2.0
//! IPv6 (RFC 8200) and its payload protocols. Not done: jumbograms (RFC 2675).

use super::{
    DecodeContext, DecodeSpan, DecodeStop, LayerResult, Tunnel, gre, icmpv6, ipv4, ipv6_ext, proto, sctp,
    tcp, udp,
};
use crate::{
    DecodeEvent, Decoded, Ipv6, Ipv6ExtHeaders, Network, PacketFlags, PacketSource, TunnelKind, TunnelTag,
};
use core::net::Ipv6Addr;

/// Length of the fixed header, in bytes.
pub(super) const HEADER_LEN: usize = 40;
const MAX_LEN: usize = 65_535;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.ipv6 += 1;
    cx.layer(p)?;
    let span = span.first(MAX_LEN);
    let ip = match header(cx.slice(span), span.len()) {
        Ok(ip) => ip,
        Err(event) => {
            p.unreadable(event);
            p.clear_network();
            // As for IPv4: a receiver with fewer checks may accept a fragment.
            if cx.slice(span).get(6) == Some(&proto::FRAGMENT) {
                p.flags |= PacketFlags::FRAGMENT;
            }
            return Err(DecodeStop);
        }
    };
    let data = span.skip(HEADER_LEN).first(usize::from(ip.payload_len));
    p.l3 = span.start();
    p.l4 = data.start();
    p.payload = data.start();
    p.network = Network::Ipv6(ip);
    // The result of the transport layer does not matter here: its events record it.
    let _ = after_header(cx, p, ip, data);
    Ok(())
}

/// Reads the fixed header. `length` is that of the packet and all after it; `bytes` may be only the
/// beginning of those.
fn header(bytes: &[u8], length: usize) -> Result<Ipv6, DecodeEvent> {
    let Some(head) = bytes.first_chunk::<HEADER_LEN>() else {
        return Err(DecodeEvent::Ipv6PktTooSmall);
    };
    let mut c = bartizan_base::Cursor::new(head);
    let short = DecodeEvent::Ipv6PktTooSmall;
    let word = c.u32().ok_or(short)?;
    if word >> 28 != 6 {
        return Err(DecodeEvent::Ipv6WrongIpVersion);
    }
    let payload_len = c.u16().ok_or(short)?;
    if length < HEADER_LEN + usize::from(payload_len) {
        return Err(DecodeEvent::Ipv6TruncPkt);
    }
    let next_header = c.u8().ok_or(short)?;
    Ok(Ipv6 {
        proto: next_header,
        next_header,
        hop_limit: c.u8().ok_or(short)?,
        src: Ipv6Addr::from(c.array::<16>().ok_or(short)?),
        dst: Ipv6Addr::from(c.array::<16>().ok_or(short)?),
        traffic_class: (word >> 20) as u8,
        flow_label: word & 0x000f_ffff,
        payload_len,
        ext_headers: Ipv6ExtHeaders::empty(),
        ext_len: 0,
        routing_type: None,
        fragment: None,
    })
}

fn after_header(cx: &mut DecodeContext<'_>, p: &mut Decoded, ip: Ipv6, data: DecodeSpan) -> LayerResult {
    match ip.next_header {
        proto::TCP | proto::UDP | proto::ICMPV6 | proto::SCTP | proto::IPIP | proto::IPV6 | proto::GRE => {
            transport(cx, p, ip.next_header, data)
        }
        proto::FRAGMENT
        | proto::HOP_BY_HOP
        | proto::ROUTING
        | proto::NONE
        | proto::DESTINATION
        | proto::AH
        | proto::ESP
        | proto::MOBILITY
        | proto::HIP
        | proto::SHIM6 => ipv6_ext::decode(cx, p, ip, data),
        proto::ICMP => {
            p.event(DecodeEvent::Ipv6Icmpv4);
            set(p, Ipv6 { proto: 0, ..ip });
            Err(DecodeStop)
        }
        _ => {
            p.event(DecodeEvent::Ipv6UnknownNextHeader);
            Err(DecodeStop)
        }
    }
}

/// Decodes a transport protocol; `next` is one that [`is_transport`] accepts.
pub(super) fn transport(
    cx: &mut DecodeContext<'_>,
    p: &mut Decoded,
    next: u8,
    data: DecodeSpan,
) -> LayerResult {
    match next {
        proto::TCP => tcp::decode(cx, p, data),
        proto::UDP => udp::decode(cx, p, data),
        proto::ICMPV6 => icmpv6::decode(cx, p, data),
        proto::SCTP => sctp::decode(cx, p, data),
        proto::IPIP => ipv4_in_ipv6(cx, p, data),
        proto::IPV6 => ipv6_in_ipv6(cx, p, data),
        proto::GRE => gre::decode(cx, p, data),
        _ => Ok(()),
    }
}

/// Whether [`transport`] decodes this protocol.
pub(super) const fn is_transport(next: u8) -> bool {
    matches!(
        next,
        proto::TCP | proto::UDP | proto::ICMPV6 | proto::SCTP | proto::IPIP | proto::IPV6 | proto::GRE
    )
}

/// Writes back the fields that extension headers changed.
pub(super) fn set(p: &mut Decoded, ip: Ipv6) {
    p.network = Network::Ipv6(ip);
}

const TUNNEL: Tunnel = Tunnel::new(PacketSource::Ipv6, TunnelTag::new(TunnelKind::Ip, 0));

fn ipv4_in_ipv6(cx: &mut DecodeContext<'_>, p: &mut Decoded, data: DecodeSpan) -> LayerResult {
    let Some([first, ..]) = cx.head::<{ ipv4::HEADER_LEN }>(data) else {
        p.invalid(DecodeEvent::Ipv6Ipv4InIpv6TooSmall);
        return Err(DecodeStop);
    };
    if first >> 4 != 4 {
        p.invalid(DecodeEvent::Ipv6Ipv4InIpv6WrongVersion);
        return Err(DecodeStop);
    }
    if cx.tunnel(p, data, TUNNEL, ipv4::decode).is_ok() {
        cx.counters.ipv4_in_ipv6 += 1;
    }
    p.flags |= PacketFlags::WANTS_FLOW;
    Ok(())
}

fn ipv6_in_ipv6(cx: &mut DecodeContext<'_>, p: &mut Decoded, data: DecodeSpan) -> LayerResult {
    let Some([first, ..]) = cx.head::<HEADER_LEN>(data) else {
        p.invalid(DecodeEvent::Ipv6Ipv6InIpv6TooSmall);
        return Err(DecodeStop);
    };
    if first >> 4 != 6 {
        p.invalid(DecodeEvent::Ipv6Ipv6InIpv6WrongVersion);
        return Err(DecodeStop);
    }
    if cx.tunnel(p, data, TUNNEL, decode).is_ok() {
        cx.counters.ipv6_in_ipv6 += 1;
    }
    p.flags |= PacketFlags::WANTS_FLOW;
    Ok(())
}
