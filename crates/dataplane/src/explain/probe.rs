// SPDX-License-Identifier: Apache-2.0
//! The first packet of a flow, built from its 5-tuple: a SYN for TCP, an empty datagram for UDP, the
//! requested type and code for ICMP, an INIT for SCTP, the header for GRE, ESP and AH, eight zeros for other
//! protocols. Sources: RFC 791, 8200, 9293, 768, 792, 4443, 9260, 2784, 4302, 4303.

use super::first::FlowProbe;
use bartizan_packet::InternetChecksum;
use core::net::IpAddr;

/// The packet, from its IP header on. The checksum that the engine always verifies (IPv4) is correct.
pub(super) fn packet(probe: &FlowProbe) -> Vec<u8> {
    let body = transport(probe);
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let mut out = Vec::new();
    match (probe.source.0, probe.destination.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&length.saturating_add(20).to_be_bytes());
            out.extend_from_slice(&[0, 1, 0x40, 0, 64, probe.protocol, 0, 0]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
            let sum = InternetChecksum::new().with(&out).finish().to_be_bytes();
            if let Some(field) = out.get_mut(10..12) {
                field.copy_from_slice(&sum);
            }
        }
        (source, destination) => {
            let v6 = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&[probe.protocol, 64]);
            out.extend_from_slice(&v6(source));
            out.extend_from_slice(&v6(destination));
        }
    }
    out.extend_from_slice(&body);
    out
}

fn transport(probe: &FlowProbe) -> Vec<u8> {
    let [a, b] = probe.source.1.to_be_bytes();
    let [c, d] = probe.destination.1.to_be_bytes();
    match probe.protocol {
        // Sequence number 1, SYN, window 64,240, MSS 1,460.
        6 => vec![a, b, c, d, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xfa, 0xf0, 0, 0, 0, 0, 2, 4, 5, 0xb4],
        17 => vec![a, b, c, d, 0, 8, 0, 0],
        1 | 58 => {
            let (kind, code) = probe.icmp_numbers();
            vec![kind, code, 0, 0, 0, 1, 0, 1]
        }
        132 => {
            let mut out = vec![a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20];
            out.extend_from_slice(&[0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
            out
        }
        // GRE without flags, ESP with SPI 1, AH before no next header (59).
        47 => vec![0; 4],
        50 => vec![0, 0, 0, 1, 0, 0, 0, 1],
        51 => vec![59, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
        _ => vec![0; 8],
    }
}
