// SPDX-License-Identifier: Apache-2.0
//! `seq`, `ack`, `window`, `tcp.mss`, `tcp.wscale`: numbers of the TCP header (RFC 9293, RFC 7323).

use super::number::{packet_check, packet_equals, packet_number, plain};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use bartizan_rules::UintMatch;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "tcp.seq",
        aliases: &["seq"],
        summary: "The sequence number.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tcp.seq:N",
        example: r#"alert tcp any any -> any any (msg:"tcp.seq"; tcp.seq:0; sid:1;)"#,
        note: "",
        parse: seq,
    },
    Keyword {
        name: "tcp.ack",
        aliases: &["ack"],
        summary: "The acknowledgement number.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tcp.ack:N",
        example: r#"alert tcp any any -> any any (msg:"tcp.ack"; tcp.ack:0; sid:1;)"#,
        note: "",
        parse: ack,
    },
    Keyword {
        name: "tcp.window",
        aliases: &["window"],
        summary: "The window field, not scaled.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tcp.window:[!]N",
        example: r#"alert tcp any any -> any any (msg:"tcp.window"; tcp.window:55808; sid:1;)"#,
        note: "",
        parse: window,
    },
    Keyword {
        name: "tcp.mss",
        aliases: &[],
        summary: "The value of the maximum segment size option; a packet without it does not match.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tcp.mss:[<|>|!]N or N-M",
        example: r#"alert tcp any any -> any any (msg:"tcp.mss"; tcp.mss:<536; sid:1;)"#,
        note: "",
        parse: mss,
    },
    Keyword {
        name: "tcp.wscale",
        aliases: &[],
        summary: "The value of the window scale option; a packet without it, or with a value above 14, does not match.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "tcp.wscale:[<|>|!]N or N-M",
        example: r#"alert tcp any any -> any any (msg:"tcp.wscale"; tcp.wscale:14; sid:1;)"#,
        note: "A value above 14 is the decode event `tcp.opt_wscale_over_max`.",
        parse: wscale,
    },
];

/// Removes the `+` that Suricata accepts before numbers of 32 bits.
fn signless(argument: &[u8]) -> &[u8] {
    argument.strip_prefix(b"+").unwrap_or(argument)
}

fn seq(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_equals::<u32>(builder, signless(argument), |packet| {
        packet.decoded().transport.tcp().map(|t| t.seq)
    })
}

fn ack(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_equals::<u32>(builder, signless(argument), |packet| {
        packet.decoded().transport.tcp().map(|t| t.ack)
    })
}

fn window(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = match argument {
        [b'!', number @ ..] => UintMatch::NotEqual(plain(number.trim_ascii())?),
        _ => UintMatch::Equal(plain(argument)?),
    };
    packet_check(builder, check, |packet| packet.decoded().transport.tcp().map(|t| t.window));
    Ok(())
}

fn mss(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_number::<u16>(builder, argument, |packet| packet.decoded().transport.tcp()?.options.mss)
}

/// Largest value that RFC 7323 section 2.3 allows.
const WINDOW_SCALE_MAX: u8 = 14;

fn wscale(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_number::<u8>(builder, argument, |packet| {
        let shift = packet.decoded().transport.tcp()?.options.wscale?;
        (shift <= WINDOW_SCALE_MAX).then_some(shift)
    })
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{both, matches, refused, tcp, tcp_with_options, udp};

    #[test]
    fn numbers() {
        for packet in both(6, &tcp(0x12, 7, 9, 55808, b"")) {
            for (keyword, argument, holds) in [
                ("seq", "7", true),
                ("tcp.seq", "8", false),
                ("ack", "9", true),
                ("tcp.ack", "10", false),
                ("window", "55808", true),
                ("window", "!55808", false),
                ("tcp.mss", "<536", false),
                ("tcp.wscale", "0", false),
            ] {
                assert_eq!(matches(keyword, argument, &packet), holds, "{keyword}:{argument}");
            }
        }
        for packet in both(17, &udp(b"x")) {
            assert!(!matches("window", "!1", &packet));
        }
    }

    #[test]
    fn options() {
        for packet in both(6, &tcp_with_options(0x02, &[2, 4, 2, 0, 3, 3, 7, 1])) {
            assert!(matches("tcp.mss", "<536", &packet) && matches("tcp.mss", "500-600", &packet));
            assert!(matches("tcp.wscale", "7", &packet) && !matches("tcp.wscale", ">7", &packet));
        }
        for packet in both(6, &tcp_with_options(0x02, &[3, 3, 15, 1])) {
            for argument in ["15", "14", "0", "!7", ">14"] {
                assert!(!matches("tcp.wscale", argument, &packet), "{argument}");
            }
        }
        for packet in both(6, &tcp_with_options(0x02, &[3, 3, 14, 1])) {
            assert!(matches("tcp.wscale", "14", &packet));
        }
    }

    #[test]
    fn what_is_refused() {
        for (keyword, argument) in
            [("seq", "4294967296"), ("window", "70000"), ("tcp.mss", "x"), ("ack", "-1")]
        {
            assert_eq!(refused(keyword, argument), Some(RefusalCode::BadArgument), "{keyword}:{argument}");
        }
    }
}
