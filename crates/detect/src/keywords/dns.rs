// SPDX-License-Identifier: Apache-2.0
//! `dns.opcode`, `dns.rcode`, `dns.rrtype`: numbers of DNS messages (RFC 1035, IANA "DNS Parameters"). The
//! sticky buffers (`dns.query`) come from the table of the protocol.

use super::number::tx_number;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{Answer, BufferCondition, ConditionContext};
use crate::model::content::Item;
use bartizan_base::PerDirection;
use bartizan_rules::UintMatch;
use std::sync::Arc;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "dns.opcode",
        aliases: &[],
        summary: "The operation code of a DNS message.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "dns.opcode:[!]N",
        example: r#"alert dns any any -> any any (msg:"dns.opcode"; dns.opcode:4; sid:1;)"#,
        note: "",
        parse: opcode,
    },
    Keyword {
        name: "dns.rcode",
        aliases: &[],
        summary: "The response code of a DNS message, by number or name.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "dns.rcode:[!]N|NAME",
        example: r#"alert dns any any -> any any (msg:"dns.rcode"; dns.rcode:3; sid:1;)"#,
        note: "",
        parse: rcode,
    },
    Keyword {
        name: "dns.rrtype",
        aliases: &[],
        summary: "The type, by number or name, of a question of a query or of an answer of a response.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "dns.rrtype:[!]N|NAME",
        example: r#"alert dns any any -> any any (msg:"dns.rrtype"; dns.rrtype:16; sid:1;)"#,
        note: "",
        parse: rrtype,
    },
];

const RCODES: &[(&str, u64)] = &[
    ("noerror", 0),
    ("formerr", 1),
    ("servfail", 2),
    ("nxdomain", 3),
    ("notimp", 4),
    ("refused", 5),
    ("yxdomain", 6),
    ("yxrrset", 7),
    ("nxrrset", 8),
    ("notauth", 9),
    ("notzone", 10),
    ("badvers", 16),
    ("badsig", 16),
    ("badkey", 17),
    ("badtime", 18),
    ("badmode", 19),
    ("badname", 20),
    ("badalg", 21),
    ("badtrunc", 22),
];

const TYPES: &[(&str, u16)] = &[
    ("a", 1),
    ("ns", 2),
    ("md", 3),
    ("mf", 4),
    ("cname", 5),
    ("soa", 6),
    ("mb", 7),
    ("mg", 8),
    ("mr", 9),
    ("null", 10),
    ("wks", 11),
    ("ptr", 12),
    ("hinfo", 13),
    ("minfo", 14),
    ("mx", 15),
    ("txt", 16),
    ("rp", 17),
    ("afsdb", 18),
    ("x25", 19),
    ("isdn", 20),
    ("rt", 21),
    ("nsap", 22),
    ("nsapptr", 23),
    ("sig", 24),
    ("key", 25),
    ("px", 26),
    ("gpos", 27),
    ("aaaa", 28),
    ("loc", 29),
    ("nxt", 30),
    ("srv", 33),
    ("atma", 34),
    ("naptr", 35),
    ("kx", 36),
    ("cert", 37),
    ("a6", 38),
    ("dname", 39),
    ("opt", 41),
    ("apl", 42),
    ("ds", 43),
    ("sshfp", 44),
    ("ipseckey", 45),
    ("rrsig", 46),
    ("nsec", 47),
    ("dnskey", 48),
    ("dhcid", 49),
    ("nsec3", 50),
    ("nsec3param", 51),
    ("tlsa", 52),
    ("smimea", 53),
    ("hip", 55),
    ("cds", 59),
    ("cdnskey", 60),
    ("openpgpkey", 61),
    ("csync", 62),
    ("zonemd", 63),
    ("svcb", 64),
    ("https", 65),
    ("spf", 99),
    ("nid", 104),
    ("l32", 105),
    ("l64", 106),
    ("lp", 107),
    ("eui48", 108),
    ("eui64", 109),
    ("tkey", 249),
    ("tsig", 250),
    ("ixfr", 251),
    ("axfr", 252),
    ("mailb", 253),
    ("maila", 254),
    ("any", 255),
    ("uri", 256),
    ("caa", 257),
];

const BOTH: PerDirection<bool> = PerDirection::new(true, true);

fn opcode(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    tx_number::<u8>(builder, "dns.opcode", argument, BOTH, &[])
}

fn rcode(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    tx_number::<u16>(builder, "dns.rcode", argument, BOTH, RCODES)
}

/// A condition on record types. A message can have several records: their types are a buffer of several
/// values with two bytes each.
struct RecordType(UintMatch<u16>);

impl BufferCondition for RecordType {
    fn matches(&self, data: &[u8], _complete: bool, _scene: &ConditionContext<'_>) -> Answer {
        data.first_chunk::<2>().is_some_and(|kind| self.0.matches(u16::from_be_bytes(*kind))).into()
    }
}

fn rrtype_check(argument: &[u8]) -> Result<UintMatch<u16>, KeywordError> {
    Ok(UintMatch::<u16>::parse_or_name(argument, TYPES.iter().copied())?)
}

fn rrtype(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = rrtype_check(argument)?;
    builder.push_aside("dns.rrtype.raw", Item::Custom(Arc::new(RecordType(check))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{ipv4, on_scene, udp};

    #[test]
    fn types() {
        assert_eq!(rrtype_check(b"!A"), Ok(UintMatch::NotEqual(1)));
        assert_eq!(rrtype_check(b"HTTPS"), Ok(UintMatch::Equal(65)));
        assert_eq!(rrtype_check(b">250"), Ok(UintMatch::Greater(250)));
        assert_eq!(rrtype_check(b"nonsense").unwrap_err().code, RefusalCode::BadArgument);
        let condition = RecordType(UintMatch::Equal(28));
        on_scene(&ipv4(17, &udp(b"")), |scene| {
            assert_eq!(condition.matches(&[0, 28], true, scene), Answer::Yes);
            assert_eq!(condition.matches(&[0, 1], true, scene), Answer::No);
            assert_eq!(condition.matches(&[28], true, scene), Answer::No);
        });
    }
}
