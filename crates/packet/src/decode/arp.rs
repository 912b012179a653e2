// SPDX-License-Identifier: Apache-2.0
//! ARP for Ethernet and IPv4 (RFC 826, RFC 903).

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult};
use crate::{Arp, DecodeEvent, Decoded, Network};
use bartizan_base::Cursor;
use core::net::Ipv4Addr;

const MIN_LEN: usize = 8;
const LEN: usize = 28;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.arp += 1;
    if span.len() < MIN_LEN {
        p.invalid(DecodeEvent::ArpPktTooSmall);
        return Err(DecodeStop);
    }
    cx.layer(p)?;
    match parse(cx.slice(span)) {
        Ok(arp) => {
            p.l3 = span.start();
            p.network = Network::Arp(arp);
            Ok(())
        }
        Err(event) => {
            p.invalid(event);
            Err(DecodeStop)
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Arp, DecodeEvent> {
    let mut c = Cursor::new(bytes);
    let short = DecodeEvent::ArpInvalidPkt;
    let hardware = c.u16().ok_or(short)?;
    let protocol = c.u16().ok_or(short)?;
    let hardware_size = c.u8().ok_or(short)?;
    let protocol_size = c.u8().ok_or(short)?;
    let operation = c.u16().ok_or(short)?;
    if hardware != 1 {
        return Err(DecodeEvent::ArpUnsupportedHardware);
    }
    if protocol != super::ether_type::IPV4 {
        return Err(DecodeEvent::ArpUnsupportedProtocol);
    }
    if bytes.len() < LEN {
        return Err(short);
    }
    if hardware_size != 6 {
        return Err(DecodeEvent::ArpInvalidHardwareSize);
    }
    if protocol_size != 4 {
        return Err(DecodeEvent::ArpInvalidProtocolSize);
    }
    if !(1..=4).contains(&operation) {
        return Err(DecodeEvent::ArpUnsupportedOpcode);
    }
    Ok(Arp {
        operation,
        sender_mac: c.array().ok_or(short)?,
        sender: Ipv4Addr::from(c.array::<4>().ok_or(short)?),
        target_mac: c.array().ok_or(short)?,
        target: Ipv4Addr::from(c.array::<4>().ok_or(short)?),
    })
}
