// SPDX-License-Identifier: Apache-2.0
//! `id`, `tos`, `sameip`, `ipopts`, `fragbits`, `fragoffset`: fields of the IP header (RFC 791, RFC 8200
//! 4.5).
//!
//! As in Suricata, `id`, `tos`, `ipopts` and `fragbits` apply to IPv4 only; `fragoffset` is in units of 8
//! bytes for IPv4 and in bytes for IPv6.

use super::number::{packet_check, packet_equals, plain, text, unquoted};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{ConditionContext, PacketCondition};
use bartizan_packet::{Fragment, IpOptions, Network};
use bartizan_rules::UintMatch;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "id",
        aliases: &[],
        summary: "The identification field of the IPv4 header.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "id:N",
        example: r#"alert ip any any -> any any (msg:"id"; id:1; sid:1;)"#,
        note: "",
        parse: id,
    },
    Keyword {
        name: "tos",
        aliases: &[],
        summary: "The type of service field of the IPv4 header: a decimal number, or hexadecimal after `x`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tos:[!]N|xHEX",
        example: r#"alert ip any any -> any any (msg:"tos"; tos:8; sid:1;)"#,
        note: "",
        parse: tos,
    },
    Keyword {
        name: "sameip",
        aliases: &[],
        summary: "Source and destination address are equal.",
        argument: Argument::None,
        role: Role::Condition,
        syntax: "sameip",
        example: r#"alert ip any any -> any any (msg:"sameip"; sameip; sid:1;)"#,
        note: "",
        parse: same_ip,
    },
    Keyword {
        name: "ipopts",
        aliases: &[],
        summary: "The packet has this IPv4 option.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ipopts:rr|eol|nop|ts|sec|esec|lsrr|ssrr|satid|any",
        example: r#"alert ip any any -> any any (msg:"ipopts"; ipopts:lsrr; sid:1;)"#,
        note: "`any` is accepted and never matches: the guide says otherwise, but in Suricata 8.0.8 it matches no packet.",
        parse: options,
    },
    Keyword {
        name: "fragbits",
        aliases: &[],
        summary: "Bits of the IPv4 fragment field: M more, D do not, R reserved; `+` and more, `*` any of, `!` not all.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "fragbits:[+|*|!]MDR",
        example: r#"alert ip any any -> any any (msg:"fragbits"; fragbits:+M; sid:1;)"#,
        note: "As in Suricata, characters after the letters are ignored: `M+` is `M`.",
        parse: fragment_bits,
    },
    Keyword {
        name: "fragoffset",
        aliases: &[],
        summary: "The offset of a fragment: in units of 8 bytes for IPv4, in bytes for IPv6.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "fragoffset:[<|>]N",
        example: r#"alert ip any any -> any any (msg:"fragoffset"; fragoffset:>0; sid:1;)"#,
        note: "A range is not possible: as in Suricata 8.0.8, characters after the first decimal number are ignored (`1-3` is 1, `0x5` is 0).",
        parse: fragment_offset,
    },
];

fn id(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_equals::<u16>(builder, argument, |packet| packet.decoded().ipv4().map(|ip| ip.id))
}

/// A condition on the packet alone.
struct OnPacket<F>(F);

impl<F: Fn(&Network) -> bool + Send + Sync> PacketCondition for OnPacket<F> {
    fn matches(&self, scene: &ConditionContext<'_>) -> bool {
        scene.facts.packet.is_some_and(|packet| (self.0)(&packet.decoded().network))
    }

    fn needs_packet(&self) -> bool {
        true
    }
}

fn on_packet(builder: &mut SignatureBuilder<'_>, check: impl Fn(&Network) -> bool + Send + Sync + 'static) {
    builder.packet.push(Box::new(OnPacket(check)));
}

fn tos(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let mut value = text(unquoted(argument))?;
    let negated = value.starts_with('!');
    if negated {
        value = value.trim_start_matches('!').trim_start();
    }
    let wrong = || KeywordError::argument(format!("`{value}` is not a number from 0 to 255"));
    let hexadecimal = value.strip_prefix(['x', 'X']);
    let wanted = match hexadecimal {
        Some(digits) => u8::from_str_radix(digits, 16).map_err(|_| wrong())?,
        None => value.parse::<u8>().map_err(|_| wrong())?,
    };
    on_packet(builder, move |network| match network {
        Network::Ipv4(ip) => (ip.tos == wanted) != negated,
        _ => false,
    });
    Ok(())
}

fn same_ip(builder: &mut SignatureBuilder<'_>, _: &[u8]) -> Result<(), KeywordError> {
    on_packet(builder, |network| match network {
        Network::Ipv4(ip) => ip.src == ip.dst,
        Network::Ipv6(ip) => ip.src == ip.dst,
        _ => false,
    });
    Ok(())
}

fn options(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let name = text(argument)?;
    // Suricata 8.0.8 accepts `any`, which then matches no packet, whatever its options.
    let wanted = if name.eq_ignore_ascii_case("any") {
        None
    } else {
        let option = IpOptions::from_rule_name(name);
        Some(option.ok_or_else(|| {
            KeywordError::argument(format!("unknown IP option `{name}`"))
                .help("use one of rr, eol, nop, ts, sec, esec, lsrr, ssrr, satid, qs, cipso, rtralt")
        })?)
    };
    on_packet(builder, move |network| match (network, wanted) {
        (Network::Ipv4(ip), Some(option)) => ip.options.contains(option),
        _ => false,
    });
    Ok(())
}

const MORE: u8 = 1;
const DONT: u8 = 2;
const RESERVED: u8 = 4;

const fn bits(fragment: Fragment) -> u8 {
    (if fragment.more { MORE } else { 0 })
        | (if fragment.dont { DONT } else { 0 })
        | (if fragment.reserved { RESERVED } else { 0 })
}

fn fragment_bits(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (modifier, letters) = match argument {
        [modifier @ (b'+' | b'*' | b'!'), rest @ ..] => (Some(*modifier), rest.trim_ascii_start()),
        _ => (None, argument),
    };
    let mut wanted = 0;
    for letter in letters {
        wanted |= match letter {
            b'M' => MORE,
            b'D' => DONT,
            b'R' => RESERVED,
            // As in Suricata, text after the letters is ignored.
            _ => break,
        };
    }
    if wanted == 0 {
        return Err(KeywordError::argument("no bit is named: M, D and R, with one of + * ! before them"));
    }
    on_packet(builder, move |network| {
        let Network::Ipv4(ip) = network else { return false };
        let have = bits(ip.fragment);
        match modifier {
            Some(b'*') => have & wanted != 0,
            // "and more": other bits must be set, too.
            Some(b'+') => have & wanted == wanted && have != wanted,
            Some(_) => have & wanted != wanted,
            None => have == wanted,
        }
    });
    Ok(())
}

fn fragment_offset(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let (make, rest): (fn(u16) -> UintMatch<u16>, _) = match argument {
        [b'<', rest @ ..] => (UintMatch::Less, rest),
        [b'>', rest @ ..] => (UintMatch::Greater, rest),
        _ => (UintMatch::Equal, argument),
    };
    let rest = rest.trim_ascii_start();
    // As in Suricata, text after the number is ignored.
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = rest.get(..digits).filter(|digits| !digits.is_empty());
    let number = number.ok_or_else(|| {
        KeywordError::argument(format!(
            "`{}` is not a number to compare a fragment's offset with",
            argument.escape_ascii()
        ))
        .help("write `N`, `<N` or `>N`")
    })?;
    packet_check(builder, make(plain(number)?), |packet| match &packet.decoded().network {
        Network::Ipv4(ip) => Some(ip.fragment.offset / 8),
        Network::Ipv6(ip) => ip.fragment.map(|fragment| fragment.offset),
        _ => None,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{ipv4, ipv4_with_options, ipv6, matches, refused, udp};

    #[test]
    fn identification() {
        let packet = ipv4(17, &udp(b"x")).with16(4, 1234);
        assert!(matches("id", "1234", &packet));
        assert!(!matches("id", "1", &packet) && !matches("id", "1234", &ipv6(17, &udp(b"x"))));
        assert_eq!(refused("id", "65536"), Some(RefusalCode::BadArgument));
    }

    #[test]
    fn type_of_service() {
        let packet = ipv4(17, &udp(b"x")).with(1, 0x28);
        for (argument, holds) in [("40", true), ("x28", true), ("!40", false), ("!x10", true), ("8", false)] {
            assert_eq!(matches("tos", argument, &packet), holds, "tos:{argument}");
        }
        assert!(!matches("tos", "!8", &ipv6(17, &udp(b"x"))));
        for argument in ["256", "a", "!", "0x28"] {
            assert_eq!(refused("tos", argument), Some(RefusalCode::BadArgument), "tos:{argument}");
        }
    }

    #[test]
    fn equal_addresses() {
        let v4 = ipv4(17, &udp(b"x"));
        let v6 = ipv6(17, &udp(b"x"));
        assert!(!matches("sameip", "", &v4) && !matches("sameip", "", &v6));
        assert!(matches("sameip", "", &v4.copying(12..16, 16)));
        assert!(matches("sameip", "", &v6.copying(8..24, 24)));
    }

    #[test]
    fn options_of_ipv4() {
        // Record route with one slot, then no operation.
        let packet = ipv4_with_options(17, &[7, 7, 4, 0, 0, 0, 0, 1], &udp(b"x"));
        for (argument, holds) in
            [("rr", true), ("NOP", true), ("any", false), ("lsrr", false), ("eol", false)]
        {
            assert_eq!(matches("ipopts", argument, &packet), holds, "ipopts:{argument}");
        }
        assert_eq!(refused("ipopts", "invalidopt"), Some(RefusalCode::BadArgument));
    }

    #[test]
    fn fragment_field() {
        let more = ipv4(17, &udp(b"xxxxxxxx")).with16(6, 0x2000);
        let dont_more = more.clone().with16(6, 0x6000);
        for (argument, of_more, of_both) in [
            ("M", true, false),
            ("MD", false, true),
            ("+M", false, true),
            ("*DM", true, true),
            ("!D", true, false),
            ("R", false, false),
        ] {
            assert_eq!(matches("fragbits", argument, &more), of_more, "fragbits:{argument}");
            assert_eq!(matches("fragbits", argument, &dont_more), of_both, "fragbits:{argument}");
        }
        for argument in ["G", "", "+", "m", "-M"] {
            assert_eq!(refused("fragbits", argument), Some(RefusalCode::BadArgument), "fragbits:{argument}");
        }
        let later = more.with16(6, 0x2003);
        assert!(matches("fragoffset", "3", &later) && matches("fragoffset", ">2", &later));
        assert!(!matches("fragoffset", "0", &later));
        // IPv6: a fragment header (next header UDP) with offset 16 bytes, more fragments.
        let mut fragment = vec![17, 0, 0, 0x11, 0, 0, 0, 1];
        fragment.extend_from_slice(&[0; 8]);
        assert!(matches("fragoffset", "16", &ipv6(44, &fragment)));
    }
}
