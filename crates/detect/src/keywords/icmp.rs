// SPDX-License-Identifier: Apache-2.0
//! `itype`, `icode`, `icmp_id`, `icmp_seq`, `icmpv6.mtu`: numbers of ICMP and ICMPv6 (RFC 792, RFC 4443).

use super::number::{packet_equals, packet_number, packet_number_keyed};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::PrefilterKey;
use bartizan_packet::{Icmp, PacketView, TransportLayer};

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "itype",
        aliases: &[],
        summary: "The type of an ICMP or ICMPv6 message.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "itype:[<|>|!]N or N<>M",
        example: r#"alert icmp any any -> any any (msg:"itype"; itype:8; sid:1;)"#,
        note: "",
        parse: kind,
    },
    Keyword {
        name: "icode",
        aliases: &[],
        summary: "The code of an ICMP or ICMPv6 message.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "icode:[<|>|!]N or N<>M",
        example: r#"alert icmp any any -> any any (msg:"icode"; icode:0; sid:1;)"#,
        note: "",
        parse: code,
    },
    Keyword {
        name: "icmp_id",
        aliases: &[],
        summary: "The identifier of an echo, timestamp, information or address mask message, or of an ICMPv6 echo.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "icmp_id:N",
        example: r#"alert icmp any any -> any any (msg:"icmp_id"; icmp_id:1; sid:1;)"#,
        note: "",
        parse: id,
    },
    Keyword {
        name: "icmp_seq",
        aliases: &[],
        summary: "The sequence number of the messages that have an identifier.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "icmp_seq:N",
        example: r#"alert icmp any any -> any any (msg:"icmp_seq"; icmp_seq:1; sid:1;)"#,
        note: "",
        parse: seq,
    },
    Keyword {
        name: "icmpv6.mtu",
        aliases: &[],
        summary: "The MTU of an ICMPv6 message \"packet too big\".",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "icmpv6.mtu:[<|>|!]N or N-M",
        example: r#"alert icmpv6 any any -> any any (msg:"icmpv6.mtu"; icmpv6.mtu:<1280; sid:1;)"#,
        note: "",
        parse: mtu,
    },
];

fn kind(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let read = |packet: &PacketView<'_>| packet.decoded().transport.icmp().map(|icmp| icmp.kind);
    packet_number_keyed(builder, argument, read, PrefilterKey::IcmpType)
}

fn code(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_number::<u8>(builder, argument, |packet| packet.decoded().transport.icmp().map(|icmp| icmp.code))
}

/// The message, if it has identifier and sequence number.
fn numbered<'p>(packet: &'p PacketView<'_>) -> Option<&'p Icmp> {
    match &packet.decoded().transport {
        TransportLayer::Icmp(icmp) if matches!(icmp.kind, 0 | 8 | 13..=18) => Some(icmp),
        TransportLayer::Icmpv6(icmp) if matches!(icmp.kind, 128 | 129) => Some(icmp),
        _ => None,
    }
}

fn id(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_equals::<u16>(builder, argument, |packet| numbered(packet)?.id)
}

fn seq(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_equals::<u16>(builder, argument, |packet| numbered(packet)?.seq)
}

fn mtu(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_number::<u32>(builder, argument, |packet| match &packet.decoded().transport {
        TransportLayer::Icmpv6(icmp) => icmp.mtu,
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{both, build, icmp, ipv4, ipv6, matches, refused, udp};
    use crate::model::condition::PrefilterKey;

    #[test]
    fn numbers() {
        let v4 = ipv4(1, &icmp(8, 0, [0x55, 0x15, 0, 7], b"data"));
        let v6 = ipv6(58, &icmp(128, 0, [0x55, 0x15, 0, 7], b"data"));
        for (packet, echo) in [(&v4, "8"), (&v6, "128")] {
            assert!(matches("itype", echo, packet) && matches("itype", ">7", packet));
            assert!(!matches("itype", "0", packet));
            assert!(matches("icode", "0", packet) && !matches("icode", ">0", packet));
            assert!(matches("icmp_id", "21781", packet));
            assert!(matches("icmp_seq", "7", packet) && !matches("icmp_seq", "8", packet));
            assert!(!matches("icmpv6.mtu", "<1500", packet));
        }
        let too_big = ipv6(58, &icmp(2, 0, [0, 0, 5, 0], &[0; 48]));
        assert!(matches("icmpv6.mtu", "1280", &too_big) && !matches("icmp_id", "0", &too_big));
        for packet in both(17, &udp(b"x")) {
            assert!(!matches("itype", "!1", &packet));
        }
    }

    #[test]
    fn equality_is_a_prefilter_key() {
        let key = |argument| build("icmp", &[("itype", argument)]).unwrap().packet[0].prefilter();
        assert_eq!(key("8"), Some(PrefilterKey::IcmpType(8)));
        assert_eq!(key(">8"), None);
    }

    #[test]
    fn what_is_refused() {
        for (keyword, argument) in
            [("itype", "256"), ("icode", "a"), ("icmp_id", "65536"), ("icmpv6.mtu", "")]
        {
            assert_eq!(refused(keyword, argument), Some(RefusalCode::BadArgument), "{keyword}:{argument}");
        }
    }
}
