// SPDX-License-Identifier: Apache-2.0
//! IPv4 (RFC 791) and its payload protocols.
//!
//! Not done: the payload of an authentication header is not decoded; fragments are decoded only once they
//! are reassembled.

use super::{
    DecodeContext, DecodeSpan, DecodeStop, LayerResult, Tunnel, esp, gre, icmpv4, ipv4_options, ipv6, proto,
    sctp, tcp, udp,
};
use crate::{
    DecodeEvent, Decoded, Fragment, IpOptions, Ipv4, Network, PacketFlags, PacketSource, TunnelKind,
    TunnelTag,
};
use core::net::Ipv4Addr;

/// Length of a header without options, in bytes.
pub(super) const HEADER_LEN: usize = 20;
const MAX_LEN: usize = 65_535;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.ipv4 += 1;
    cx.layer(p)?;
    let span = span.first(MAX_LEN);
    let ip = match header(cx, p, span) {
        Ok(ip) => ip,
        Err(event) => {
            // An error of the options is noted already, with its option.
            if let Some(event) = event {
                p.invalid(event);
            }
            p.flags |= PacketFlags::UNREADABLE;
            p.clear_network();
            // A receiver with fewer checks may accept the packet as the fragment that it is.
            let is_part = |[.., flags, offset]: &[u8; 8]| flags & 0x3f != 0 || *offset != 0;
            if cx.head::<8>(span).is_some_and(is_part) {
                p.flags |= PacketFlags::FRAGMENT;
            }
            return Err(DecodeStop);
        }
    };
    let header_len = usize::from(ip.header_len);
    let datagram = span.first(usize::from(ip.total_len));
    let data = datagram.skip(header_len);
    p.l3 = span.start();
    p.l4 = data.start();
    p.payload = data.start();
    p.network = Network::Ipv4(ip);
    if ip.fragment.offset > 0 || ip.fragment.more {
        p.flags |= PacketFlags::FRAGMENT;
        return Ok(());
    }
    // The result of the transport layer does not matter here: its events record it.
    let _ = transport(cx, p, ip.proto, data);
    Ok(())
}

fn header(
    cx: &mut DecodeContext<'_>,
    p: &mut Decoded,
    span: DecodeSpan,
) -> Result<Ipv4, Option<DecodeEvent>> {
    let Some([version_len, tos, l0, l1, i0, i1, f0, f1, ttl, next, _, _, s0, s1, s2, s3, d0, d1, d2, d3]) =
        cx.head::<HEADER_LEN>(span)
    else {
        return Err(Some(DecodeEvent::Ipv4PktTooSmall));
    };
    if version_len >> 4 != 4 {
        return Err(Some(DecodeEvent::Ipv4WrongIpVersion));
    }
    let header_len = (version_len & 0x0f) * 4;
    let total_len = u16::from_be_bytes([*l0, *l1]);
    if usize::from(header_len) < HEADER_LEN {
        return Err(Some(DecodeEvent::Ipv4HlenTooSmall));
    }
    if total_len < u16::from(header_len) {
        return Err(Some(DecodeEvent::Ipv4IplenSmallerThanHlen));
    }
    if span.len() < usize::from(total_len) {
        return Err(Some(DecodeEvent::Ipv4TruncPkt));
    }
    let options = cx.slice(span.first(usize::from(header_len)).skip(HEADER_LEN));
    // The options of a cut frame may be missing.
    if options.len() < usize::from(header_len) - HEADER_LEN {
        return Err(Some(DecodeEvent::Ipv4TruncPkt));
    }
    let (options, option_count) = if options.is_empty() {
        (IpOptions::empty(), 0)
    } else {
        ipv4_options::decode(p, options).ok_or(None)?
    };
    let fragment = u16::from_be_bytes([*f0, *f1]);
    Ok(Ipv4 {
        src: Ipv4Addr::new(*s0, *s1, *s2, *s3),
        dst: Ipv4Addr::new(*d0, *d1, *d2, *d3),
        proto: *next,
        ttl: *ttl,
        tos: *tos,
        header_len,
        total_len,
        id: u16::from_be_bytes([*i0, *i1]),
        fragment: Fragment {
            offset: (fragment & 0x1fff) << 3,
            more: fragment & 0x2000 != 0,
            dont: fragment & 0x4000 != 0,
            reserved: fragment & 0x8000 != 0,
        },
        options,
        option_count,
    })
}

fn transport(cx: &mut DecodeContext<'_>, p: &mut Decoded, next: u8, data: DecodeSpan) -> LayerResult {
    let tunnel = Tunnel::new(PacketSource::Ipv4, TunnelTag::new(TunnelKind::Ip, 0));
    match next {
        proto::TCP => tcp::decode(cx, p, data),
        proto::UDP => udp::decode(cx, p, data),
        proto::ICMP => icmpv4::decode(cx, p, data),
        proto::GRE => gre::decode(cx, p, data),
        proto::SCTP => sctp::decode(cx, p, data),
        proto::ESP => esp::decode(cx, p, data),
        proto::AH => esp::decode_ah(cx, p, data),
        proto::IPV6 => {
            if cx.tunnel(p, data, tunnel, ipv6::decode).is_ok() {
                cx.counters.ipv6_in_ipv4 += 1;
            }
            p.flags |= PacketFlags::WANTS_FLOW;
            Ok(())
        }
        proto::IPIP => {
            if cx.tunnel(p, data, tunnel, decode).is_ok() {
                cx.counters.ipv4_in_ipv4 += 1;
            }
            p.flags |= PacketFlags::WANTS_FLOW;
            Ok(())
        }
        // RFC 1144, 3.2.3: the protocol field holds a connection number, a TCP header follows.
        0 if p.flags.contains(PacketFlags::VJ_UNCOMPRESSED) => tcp::decode(cx, p, data),
        proto::ICMPV6 => {
            p.invalid(DecodeEvent::Ipv4Icmpv6);
            Err(DecodeStop)
        }
        _ => Ok(()),
    }
}
