// SPDX-License-Identifier: Apache-2.0
//! Community ID, version 1: a hash of a flow's tuple that other tools compute as well.
//!
//! Source: <https://github.com/corelight/community-id-spec>, version 1. ICMP types that have a counterpart
//! (echo, router solicitation, ...) give the same value for both directions; other types count as one-way,
//! with type and code in place of the ports. Only version 1 is supported.

use crate::record::Tuple;
use sha1::{Digest, Sha1};
use std::net::IpAddr;

/// Text of the Community ID of a flow: `1:` and 28 characters of base64.
///
/// `icmp` is type and code of the flow's first packet, for ICMP and ICMPv6.
#[must_use]
pub fn community_id(seed: u16, tuple: &Tuple, icmp: Option<(u8, u8)>) -> String {
    let (source_port, dest_port, one_way) = match (tuple.proto, icmp) {
        (1, Some((kind, code))) => icmp_ports(kind, code, icmp_counterpart(kind)),
        (58, Some((kind, code))) => icmp_ports(kind, code, icmpv6_counterpart(kind)),
        _ => {
            let (source, dest) = tuple.ports.unwrap_or((0, 0));
            (source, dest, false)
        }
    };
    let in_order = one_way || (tuple.src, source_port) <= (tuple.dest, dest_port);
    let (first, second) = if in_order { (tuple.src, tuple.dest) } else { (tuple.dest, tuple.src) };
    let mut hash = Sha1::new();
    hash.update(seed.to_be_bytes());
    for address in [first, second] {
        match address {
            IpAddr::V4(v4) => hash.update(v4.octets()),
            IpAddr::V6(v6) => hash.update(v6.octets()),
        }
    }
    hash.update([tuple.proto, 0]);
    // Protocols without ports contribute none.
    if tuple.ports.is_some() || icmp.is_some() {
        let (first, second) = if in_order { (source_port, dest_port) } else { (dest_port, source_port) };
        hash.update(first.to_be_bytes());
        hash.update(second.to_be_bytes());
    }
    let mut text = b"1:".to_vec();
    crate::json::base64_into(&mut text, &hash.finalize());
    String::from_utf8(text).unwrap_or_default()
}

fn icmp_ports(kind: u8, code: u8, counterpart: Option<u8>) -> (u16, u16, bool) {
    match counterpart {
        Some(answer) => (kind.into(), answer.into(), false),
        None => (kind.into(), code.into(), true),
    }
}

fn icmp_counterpart(kind: u8) -> Option<u8> {
    Some(match kind {
        0 => 8,
        8 => 0,
        9 => 10,
        10 => 9,
        13 => 14,
        14 => 13,
        15 => 16,
        16 => 15,
        17 => 18,
        18 => 17,
        _ => return None,
    })
}

fn icmpv6_counterpart(kind: u8) -> Option<u8> {
    Some(match kind {
        128 => 129,
        129 => 128,
        130 => 131,
        131 => 130,
        133 => 134,
        134 => 133,
        135 => 136,
        136 => 135,
        139 => 140,
        140 => 139,
        144 => 145,
        145 => 144,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seed: u16, proto: u8, src: (&str, u16), dest: (&str, u16)) -> String {
        let tuple = Tuple {
            src: src.0.parse().unwrap(),
            dest: dest.0.parse().unwrap(),
            ports: Some((src.1, dest.1)),
            proto,
        };
        community_id(seed, &tuple, None)
    }

    fn icmp_id(proto: u8, src: &str, dest: &str, icmp: (u8, u8)) -> String {
        let tuple = Tuple { src: src.parse().unwrap(), dest: dest.parse().unwrap(), ports: None, proto };
        community_id(0, &tuple, Some(icmp))
    }

    /// Values of the specification's baseline.
    #[test]
    fn known_vectors() {
        let client = ("128.232.110.120", 34855);
        let server = ("66.35.250.204", 80);
        assert_eq!(id(0, 6, client, server), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        assert_eq!(id(0, 6, server, client), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
        assert_eq!(id(1, 6, client, server), "1:3V71V58M3Ksw/yuFALMcW0LAHvc=");
        assert_eq!(id(0, 17, ("192.168.1.52", 54585), ("8.8.8.8", 53)), "1:d/FP5EW3wiY1vCndhwleRRKHowQ=");
        assert_eq!(
            id(0, 132, ("192.168.170.8", 7), ("192.168.170.56", 80)),
            "1:jQgCxbku+pNGw8WPbEc/TS/uTpQ="
        );
        assert_eq!(icmp_id(1, "192.168.0.89", "192.168.0.1", (8, 0)), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
        assert_eq!(icmp_id(1, "192.168.0.1", "192.168.0.89", (0, 0)), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=");
        assert_eq!(
            icmp_id(58, "fe80::200:86ff:fe05:80da", "fe80::260:97ff:fe07:69ea", (135, 0)),
            "1:dGHyGvjMfljg6Bppwm3bg0LO8TY="
        );
    }

    #[test]
    fn one_way_icmp_keeps_its_direction() {
        assert_ne!(
            icmp_id(1, "192.168.0.89", "192.168.0.1", (3, 1)),
            icmp_id(1, "192.168.0.1", "192.168.0.89", (3, 1))
        );
    }
}
