// SPDX-License-Identifier: Apache-2.0
//! `ipv4-csum`, `tcpv4-csum`, `tcpv6-csum`, `udpv4-csum`, `udpv6-csum`, `icmpv4-csum`, `icmpv6-csum`:
//! checksums (RFC 1071). A UDP datagram over IPv4 without a checksum is neither valid nor invalid.

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use bartizan_packet::{PacketView, TransportLayer};

/// Whether the checksum is right; `None` when the packet is not of the kind.
type Check = fn(&PacketView<'_>) -> Option<bool>;

struct Checksum {
    check: Check,
    valid: bool,
}

impl PacketCondition for Checksum {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.packet.and_then(self.check) == Some(self.valid)
    }

    fn needs_real_packet(&self) -> bool {
        true
    }
}

macro_rules! keywords {
    ($($name:literal, $what:literal, $check:expr;)+) => {
        /// The keywords.
        pub const KEYWORDS: &[Keyword] = &[$(Keyword {
            name: $name,
            aliases: &[],
            summary: concat!("The checksum of ", $what, " is `valid` or `invalid`."),
            argument: Argument::Required,
            role: Role::Condition,
            syntax: concat!($name, ":valid|invalid"),
            example: concat!("alert pkthdr any any -> any any (msg:\"checksum\"; ", $name, ":invalid; sid:1;)"),
            note: "",
            parse: |builder, argument| add(builder, argument, $check),
        },)+];
    };
}

keywords! {
    "ipv4-csum", "the IPv4 header", |p| p.ip_checksum_ok();
    "tcpv4-csum", "TCP over IPv4", |p| of(p, true, matches!(transport(p), TransportLayer::Tcp(_)));
    "tcpv6-csum", "TCP over IPv6", |p| of(p, false, matches!(transport(p), TransportLayer::Tcp(_)));
    "udpv4-csum", "UDP over IPv4", |p| of(p, true, matches!(transport(p), TransportLayer::Udp(_)) && has_udp_checksum(p));
    "udpv6-csum", "UDP over IPv6", |p| of(p, false, matches!(transport(p), TransportLayer::Udp(_)));
    "icmpv4-csum", "ICMP", |p| of(p, true, matches!(transport(p), TransportLayer::Icmp(_)));
    "icmpv6-csum", "ICMPv6", |p| of(p, false, matches!(transport(p), TransportLayer::Icmpv6(_)));
}

fn transport<'p>(packet: &PacketView<'p>) -> &'p TransportLayer {
    &packet.decoded().transport
}

fn of(packet: &PacketView<'_>, v4: bool, is: bool) -> Option<bool> {
    if !is || packet.decoded().ipv4().is_some() != v4 {
        return None;
    }
    packet.l4_checksum_ok()
}

fn has_udp_checksum(packet: &PacketView<'_>) -> bool {
    packet.l4_header().and_then(|header| header.get(6..8)).is_some_and(|sum| sum != [0, 0])
}

fn add(builder: &mut SignatureBuilder<'_>, argument: &[u8], check: Check) -> Result<(), KeywordError> {
    let valid = argument.eq_ignore_ascii_case(b"valid");
    if !valid && !argument.eq_ignore_ascii_case(b"invalid") {
        return Err(KeywordError::argument("the checksum can be `valid` or `invalid`"));
    }
    builder.packet.push(Box::new(Checksum { check, valid }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{LinkFrame, icmp, ipv4, ipv6, matches, refused, tcp, udp};

    /// `keyword` holds for this packet, and not after a byte is changed.
    fn right_then_wrong(keyword: &str, packet: &LinkFrame, byte: usize) {
        let broken = packet.clone().with(byte, 0xee);
        for (packet, ok) in [(packet, true), (&broken, false)] {
            assert_eq!(matches(keyword, "valid", packet), ok, "{keyword}");
            assert_eq!(matches(keyword, "invalid", packet), !ok, "{keyword}");
        }
    }

    #[test]
    fn right_and_wrong() {
        let v4 = |proto, body: &[u8]| ipv4(proto, body).fix_checksums();
        let v6 = |proto, body: &[u8]| ipv6(proto, body).fix_checksums();
        right_then_wrong("ipv4-csum", &v4(17, &udp(b"abcd")), 8);
        right_then_wrong("tcpv4-csum", &v4(6, &tcp(2, 1, 2, 3, b"abcd")), 40);
        right_then_wrong("udpv4-csum", &v4(17, &udp(b"abcd")), 28);
        right_then_wrong("icmpv4-csum", &v4(1, &icmp(8, 0, [0, 1, 0, 1], b"abcd")), 28);
        right_then_wrong("tcpv6-csum", &v6(6, &tcp(2, 1, 2, 3, b"abcd")), 60);
        right_then_wrong("udpv6-csum", &v6(17, &udp(b"abcd")), 48);
        right_then_wrong("icmpv6-csum", &v6(58, &icmp(128, 0, [0, 1, 0, 1], b"abcd")), 48);
    }

    #[test]
    fn other_packets() {
        let without = ipv4(17, &udp(b"abcd"));
        let v6 = ipv6(17, &udp(b"abcd")).fix_checksums();
        for (keyword, packet) in
            [("udpv4-csum", &without), ("tcpv4-csum", &without), ("udpv4-csum", &v6), ("ipv4-csum", &v6)]
        {
            assert!(!matches(keyword, "valid", packet) && !matches(keyword, "invalid", packet), "{keyword}");
        }
        assert_eq!(refused("ipv4-csum", "broken"), Some(RefusalCode::BadArgument));
    }
}
