// SPDX-License-Identifier: Apache-2.0
//! The protocol in a rule's head.

use crate::compile::keyword::{KeywordError, RefusalCode};
use crate::model::signature::{Family, ProtocolMatch};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_rules::suggest;

/// Names that are no application protocols, with IP protocols.
const PLAIN: &[(&str, &[u8])] = &[
    ("ip", &[]),
    ("pkthdr", &[]),
    ("tcp", &[6]),
    ("tcp-pkt", &[6]),
    ("tcp-stream", &[6]),
    ("udp", &[17]),
    ("icmp", &[1, 58]),
    ("icmpv4", &[1]),
    ("icmpv6", &[58]),
    ("ipv4", &[]),
    ("ip4", &[]),
    ("ipv6", &[]),
    ("ip6", &[]),
    ("sctp", &[132]),
];

/// Application protocols that Suricata has and this build has no parser for; the others declare their names.
const WITHOUT_PARSER: &[&str] = &[
    "modbus",
    "enip",
    "dnp3",
    "nfs",
    "ntp",
    "ike",
    "ikev2",
    "krb5",
    "dhcp",
    "snmp",
    "sip",
    "rfb",
    "mqtt",
    "pgsql",
    "telnet",
    "ldap",
    "template",
    "rdp",
    "bittorrent-dht",
];

/// Protocols that rules for later versions of Suricata name; their packets are not inspected.
const BELOW_IP: &[&str] = &["ether", "arp"];

/// Reads the protocol of a rule's head.
///
/// # Errors
/// The protocol is unknown, or this build has no parser for it.
pub fn parse(name: &str) -> Result<ProtocolMatch, KeywordError> {
    let lower = name.to_ascii_lowercase();
    if let Some((_, ip)) = PLAIN.iter().find(|(n, _)| *n == lower) {
        return Ok(ProtocolMatch {
            ip: ip.to_vec(),
            family: match lower.as_str() {
                "ipv4" | "ip4" => Family::V4,
                "ipv6" | "ip6" => Family::V6,
                _ => Family::Any,
            },
            packet_only: lower == "tcp-pkt",
            stream_only: lower == "tcp-stream",
            ..ProtocolMatch::default()
        });
    }
    if BELOW_IP.contains(&lower.as_str()) {
        return Err(KeywordError::new(
            RefusalCode::UnsupportedProtocol,
            format!("`{name}` is below IP: rules inspect IP packets only, as in Suricata 8"),
        )
        .help("`arp` events record ARP; rules of `pkthdr` see decode events of all packets"));
    }
    let app: Vec<_> = protocols::called(&lower).map(|(id, _)| id).collect();
    if !app.is_empty() {
        return Ok(ProtocolMatch {
            app,
            ambiguous: protocols::is_family(&lower),
            ..ProtocolMatch::default()
        });
    }
    if WITHOUT_PARSER.contains(&lower.as_str()) {
        return Err(unsupported(name));
    }
    let error = KeywordError::new(RefusalCode::UnknownProtocol, format!("unknown protocol `{name}`"));
    let names = PLAIN.iter().map(|(n, _)| *n).chain(app_names());
    Err(match suggest(&lower, names) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error,
    })
}

/// Whether Suricata has an application protocol of this name, with or without a parser in this build.
#[must_use]
pub fn is_known(name: &str) -> bool {
    WITHOUT_PARSER.contains(&name) || protocols::called(name).next().is_some()
}

/// Names of all application protocols that Suricata or this build knows.
fn app_names() -> impl Iterator<Item = &'static str> {
    let parsed = protocols::TABLE.iter().flat_map(|spec| core::iter::once(&spec.name).chain(spec.aliases));
    parsed.chain(WITHOUT_PARSER).copied()
}

/// The name of one protocol of a family: its first.
pub(crate) fn exact_name(family: &str) -> &'static str {
    protocols::called(family).next().map_or("", |(_, spec)| spec.exact_name)
}

/// The application protocols that a keyword means by a name; the name of a family covers all of its members.
///
/// # Errors
/// No parser of this build has the protocol, so that neither its presence nor its absence in a flow can be
/// detected; or Suricata does not have it either.
pub fn app(name: &str) -> Result<Vec<ProtocolId>, KeywordError> {
    if is_known(name) {
        return parse(name).map(|protocol| protocol.app);
    }
    let error = KeywordError::argument(format!("unknown protocol `{name}`"));
    Err(match suggest(name, app_names()) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error,
    })
}

/// The refusal of a keyword that names a protocol which this build cannot detect.
#[must_use]
pub fn unsupported(name: &str) -> KeywordError {
    KeywordError::new(
        RefusalCode::UnsupportedProtocol,
        format!("no parser for the protocol `{name}` in this build"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_below_ip_are_named_and_refused() {
        for name in ["ether", "arp", "ARP"] {
            let error = parse(name).expect_err(name);
            assert_eq!(error.code, RefusalCode::UnsupportedProtocol, "{name}");
            assert!(error.message.contains(&format!("`{name}` is below IP")), "{}", error.message);
        }
        assert!(parse("pkthdr").is_ok() && parse("ip").is_ok());
    }

    #[test]
    fn a_name_without_a_parser_is_declared_by_none() {
        for name in WITHOUT_PARSER {
            assert_eq!(protocols::called(name).count(), 0, "{name} has a parser: take it out of the list");
        }
    }
}
