// SPDX-License-Identifier: Apache-2.0
//! `ip_proto`: the IP protocol by number or name (IANA, "Assigned Internet Protocol Numbers").
//!
//! It narrows the protocol of the rule's head and adds no condition of its own, as in Suricata: a rule with
//! nothing else stays one that is evaluated once per flow.

use super::number::{text, unquoted};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::signature::Family;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "ip_proto",
        aliases: &[],
        summary: "The IP protocol by number or name; `!`, `<` and `>` may precede it.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ip_proto:[!|<|>]N|NAME",
        example: r#"alert ip any any -> any any (msg:"ip_proto"; ip_proto:47; sid:1;)"#,
        note: "",
        parse: ip_proto,
    },
    Keyword {
        name: "l3_proto",
        aliases: &[],
        summary: "The version of IP: `ipv4` or `ipv6`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "l3_proto:ipv4|ip4|ipv6|ip6",
        example: r#"alert tcp any any -> any any (msg:"l3_proto"; l3_proto:ipv6; sid:1;)"#,
        note: "",
        parse: l3_proto,
    },
];

/// Names of protocols, as in the usual `/etc/protocols`.
const NAMES: &[(&str, u8)] = &[
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipv4", 4),
    ("ipencap", 4),
    ("st", 5),
    ("tcp", 6),
    ("cbt", 7),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("dsr", 48),
    ("esp", 50),
    ("ipsec-esp", 50),
    ("ah", 51),
    ("ipsec-ah", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ospfigp", 89),
    ("ax.25", 93),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("fc", 133),
    ("mobility-header", 135),
    ("sctp", 132),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
    ("ethernet", 143),
];

fn l3_proto(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let family = match text(argument)?.to_ascii_lowercase().as_str() {
        "ipv4" | "ip4" => Family::V4,
        "ipv6" | "ip6" => Family::V6,
        other => return Err(KeywordError::argument(format!("`{other}` is neither `ipv4` nor `ipv6`"))),
    };
    if builder.protocol.family != Family::Any {
        return Err(KeywordError::context("the IP version is already given"));
    }
    builder.flags_set += 1;
    builder.protocol.family = family;
    Ok(())
}

fn ip_proto(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    if !builder.seen.contains(&"ip_proto") && !builder.protocol.ip.is_empty() {
        return Err(KeywordError::context("the rule's head already has the IP protocol")
            .help("write `ip` as its protocol, or remove `ip_proto`"));
    }
    let argument = text(unquoted(argument))?;
    let (operator, name) = match argument.strip_prefix(['!', '<', '>']) {
        Some(rest) => (argument.chars().next().unwrap_or('='), rest.trim()),
        None => ('=', argument.trim()),
    };
    let wrong = || {
        KeywordError::argument(format!(
            "`{name}` is neither a number from 0 to 255 nor the name of an IP protocol"
        ))
    };
    let number = if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.parse::<u8>().map_err(|_| wrong())?
    } else {
        NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).ok_or_else(wrong)?.1
    };
    let again = builder.seen.contains(&"ip_proto");
    builder.flags_set += 1;
    if operator == '=' {
        if again {
            return Err(KeywordError::context("several `ip_proto` in one rule need `!`, `<` or `>` each"));
        }
        let protocols = &mut builder.protocol.ip;
        // For `ip` rules this is the only protocol; `tcp` rules keep their own beside it.
        if !protocols.contains(&number) {
            protocols.push(number);
        }
        return Ok(());
    }
    let keeps = |p: &u8| match operator {
        '<' => *p < number,
        '>' => *p > number,
        _ => *p != number,
    };
    let before = core::mem::take(&mut builder.protocol.ip);
    let narrowed: Vec<u8> = if before.is_empty() {
        (0..=u8::MAX).filter(keeps).collect()
    } else {
        before.into_iter().filter(keeps).collect()
    };
    if narrowed.is_empty() {
        return Err(KeywordError::context("no IP protocol is left that the rule could match"));
    }
    builder.protocol.ip = narrowed;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{build, refused_all};

    #[test]
    fn protocols_of_the_head() {
        let of = |options: &[(&str, &str)]| build("ip", options).unwrap().protocol.ip;
        assert_eq!(of(&[("ip_proto", "103")]), [103]);
        assert_eq!(of(&[("ip_proto", "PIM")]), [103]);
        assert_eq!(of(&[("ip_proto", "<3")]), [0, 1, 2]);
        assert_eq!(of(&[("ip_proto", ">250"), ("ip_proto", "!253"), ("ip_proto", "< 255")]), [251, 252, 254]);
        assert_eq!(of(&[("ip_proto", "!6")]).len(), 255);
        // The head names the protocol already; Suricata refuses the rule, too.
        let twice = build("tcp", &[("ip_proto", "6")]).map(|_| ()).map_err(|e| e.code);
        assert_eq!(twice, Err(RefusalCode::BadContext));
    }

    #[test]
    fn what_is_refused() {
        for argument in ["256", "nonsense", "!"] {
            assert_eq!(refused_all(&[("ip_proto", argument)]), Some(RefusalCode::BadArgument), "{argument}");
        }
        assert_eq!(refused_all(&[("ip_proto", "6"), ("ip_proto", "17")]), Some(RefusalCode::BadContext));
        assert_eq!(refused_all(&[("ip_proto", "<10"), ("ip_proto", ">10")]), Some(RefusalCode::BadContext));
    }
}
