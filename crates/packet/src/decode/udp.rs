// SPDX-License-Identifier: Apache-2.0
//! UDP (RFC 768) and the tunnels that are recognised by its ports. Not done: UDP-Lite.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, geneve, gtp, teredo, vxlan};
use crate::{DecodeEvent, Decoded, PacketFlags, TransportLayer, Udp};

const HEADER_LEN: usize = 8;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.udp += 1;
    let udp = match header(cx, span) {
        Ok(udp) => udp,
        Err(event) => {
            p.unreadable(event);
            p.clear_transport();
            return Err(DecodeStop);
        }
    };
    // Bytes after UDP's length are padding, not payload.
    let payload = span.first(usize::from(udp.len)).skip(HEADER_LEN);
    p.transport = TransportLayer::Udp(udp);
    p.l4 = span.start();
    p.payload = payload.start();
    p.payload_len = payload.len_u32();
    p.flags |= PacketFlags::WANTS_FLOW;
    tunnels(cx, p, udp, payload);
    Ok(())
}

fn header(cx: &DecodeContext<'_>, span: DecodeSpan) -> Result<Udp, DecodeEvent> {
    let Some([s0, s1, d0, d1, l0, l1, _, _]) = cx.head::<HEADER_LEN>(span) else {
        return Err(DecodeEvent::UdpHlenTooSmall);
    };
    let len = u16::from_be_bytes([*l0, *l1]);
    if span.len() < usize::from(len) {
        return Err(DecodeEvent::UdpPktTooSmall);
    }
    if usize::from(len) < HEADER_LEN {
        return Err(DecodeEvent::UdpLenInvalid);
    }
    Ok(Udp { sport: u16::from_be_bytes([*s0, *s1]), dport: u16::from_be_bytes([*d0, *d1]), len })
}

/// Tries the tunnels in turn; the first that recognises the payload as its own ends the search.
fn tunnels(cx: &mut DecodeContext<'_>, p: &mut Decoded, udp: Udp, payload: DecodeSpan) {
    let config = cx.config;
    if config.teredo.either(udp.sport, udp.dport) && teredo::decode(cx, p, payload).is_ok() {
        return;
    }
    if config.geneve.either(udp.sport, udp.dport) && geneve::decode(cx, p, payload).is_ok() {
        return;
    }
    // RFC 7348: recognised by the destination port only.
    if config.vxlan.to(udp.dport) && vxlan::decode(cx, p, payload).is_ok() {
        return;
    }
    if config.gtp.either(udp.sport, udp.dport) {
        // The last one: its result changes nothing.
        let _ = gtp::decode(cx, p, payload);
    }
}
