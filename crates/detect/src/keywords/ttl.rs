// SPDX-License-Identifier: Apache-2.0
//! `ttl`: IPv4's time to live, IPv6's hop limit (RFC 791, RFC 8200).

use super::number::packet_number;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "ttl",
    aliases: &[],
    summary: "The packet's time to live (IPv4) or hop limit (IPv6).",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "ttl:[<|>|!]N or N-M",
    example: r#"alert ip any any -> any any (msg:"ttl"; ttl:<5; sid:1;)"#,
    note: "",
    parse: ttl,
}];

fn ttl(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    packet_number::<u8>(builder, argument, |packet| packet.decoded().ttl())
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{ipv4, ipv6, matches, refused, udp};

    #[test]
    fn both_versions_of_ip() {
        let v4 = ipv4(17, &udp(b"x")).with(8, 10);
        let v6 = ipv6(17, &udp(b"x")).with(7, 10);
        for packet in [&v4, &v6] {
            for (argument, holds) in
                [("10", true), ("!10", false), ("<10", false), (">=10", true), ("5-11", true)]
            {
                assert_eq!(matches("ttl", argument, packet), holds, "ttl:{argument}");
            }
        }
    }

    #[test]
    fn what_is_refused() {
        for argument in ["256", "x", "10-10", ""] {
            assert_eq!(refused("ttl", argument), Some(RefusalCode::BadArgument), "ttl:{argument}");
        }
    }
}
