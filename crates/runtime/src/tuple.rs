// SPDX-License-Identifier: Apache-2.0
//! The textual form of flows: `tcp 10.0.0.1:40000 192.0.2.7:80`, `udp [2001:db8::1] [2001:db8::53]:53`, `icmp
//! 10.0.0.1 192.0.2.7`, `icmp:3/1 ...`, `47 10.0.0.1 10.0.0.2`.

use std::net::IpAddr;

/// Default port of the side that opens a flow: the first of the dynamic ones (RFC 6335).
pub const ANY_PORT: u16 = 49_152;

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTuple {
    /// IP protocol.
    pub protocol: u8,
    /// Address and port of the side that opens the flow.
    pub source: (IpAddr, Option<u16>),
    /// Address and port of the other side.
    pub destination: (IpAddr, Option<u16>),
    /// ICMP: type and code.
    pub icmp: Option<(u8, u8)>,
}

/// The textual form of a flow, for messages.
pub const FORM: &str = "write for example `tcp 10.0.0.1:40000 192.0.2.7:80`, `udp [2001:db8::1]:5000 \
     [2001:db8::53]:53` or `icmp 10.0.0.1 192.0.2.7`";

/// Whether a text is meant as a flow, right or wrong, and not as a file.
pub fn is_meant(text: &str) -> bool {
    let mut words = words(text);
    let protocol = words.next().is_some_and(|word| protocol_of(word).is_ok());
    protocol && words.next().is_some() || words_look_like_addresses(text)
}

fn words_look_like_addresses(text: &str) -> bool {
    words(text).any(|word| end(word).is_ok())
}

/// The words of a flow, without arrows and commas between them.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '\t', ','])
        .filter(|word| !word.is_empty() && !matches!(*word, "->" | "<->" | ">" | "=>"))
}

/// Parses a flow.
///
/// # Errors
/// A message with the error and the right form.
pub fn parse(text: &str) -> Result<FlowTuple, String> {
    let all: Vec<&str> = words(text).collect();
    let (protocol, source, destination) = match all.as_slice() {
        [protocol, source, destination] => (*protocol, *source, *destination),
        [source, destination] if end(source).is_ok() => {
            return Err(format!("`{source} {destination}`: the protocol is missing; {FORM}"));
        }
        other => {
            return Err(format!("a flow is a protocol and two ends, found {} words; {FORM}", other.len()));
        }
    };
    let (protocol, icmp) = protocol_of(protocol)?;
    let (source, destination) = (end(source)?, end(destination)?);
    if source.0.is_ipv4() != destination.0.is_ipv4() {
        return Err(format!(
            "{} and {} are of different IP versions; a flow has one: {FORM}",
            source.0, destination.0
        ));
    }
    let protocol = if protocol == 1 && source.0.is_ipv6() { 58 } else { protocol };
    if !matches!(protocol, 6 | 17 | 132) && (source.1.is_some() || destination.1.is_some()) {
        return Err(format!("only tcp, udp and sctp have ports; remove them: {FORM}"));
    }
    Ok(FlowTuple { protocol, source, destination, icmp })
}

/// Parses a protocol, by name or number; ICMP with type and code.
pub fn protocol_of(word: &str) -> Result<(u8, Option<(u8, u8)>), String> {
    let lower = word.to_ascii_lowercase();
    let (name, rest) = match lower.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (lower.as_str(), None),
    };
    let number = match name {
        "tcp" => 6,
        "udp" => 17,
        "icmp" => 1,
        "icmpv6" | "icmp6" => 58,
        "sctp" => 132,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        other => other.parse().map_err(|_| {
            format!("`{word}` is not a protocol; protocols are tcp, udp, icmp, icmpv6, sctp, gre, esp, ah and numbers up to 255")
        })?,
    };
    let Some(rest) = rest else { return Ok((number, None)) };
    let (kind, code) = rest.split_once('/').unwrap_or((rest, "0"));
    match (number, kind.parse(), code.parse()) {
        (1 | 58, Ok(kind), Ok(code)) => Ok((number, Some((kind, code)))),
        (1 | 58, _, _) => Err(format!("`{word}`: type and code are numbers up to 255; write `icmp:8/0`")),
        _ => Err(format!("`{word}`: only icmp and icmpv6 have a type; {FORM}")),
    }
}

/// Parses an address with or without a port.
pub fn end(word: &str) -> Result<(IpAddr, Option<u16>), String> {
    let bad = || format!("`{word}` is not an address, with or without a port; {FORM}");
    let port = |text: &str| {
        text.parse::<u16>().map_err(|_| format!("`{text}` in `{word}` is not a port; ports are 0 to 65535"))
    };
    if let Some(rest) = word.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or_else(bad)?;
        let address = address.parse().map_err(|_| bad())?;
        return match rest.strip_prefix(':') {
            Some(text) => Ok((address, Some(port(text)?))),
            None if rest.is_empty() => Ok((address, None)),
            None => Err(bad()),
        };
    }
    if let Ok(address) = word.parse() {
        return Ok((address, None));
    }
    let (address, text) = word.rsplit_once(':').ok_or_else(bad)?;
    let address: std::net::Ipv4Addr = address.parse().map_err(|_| bad())?;
    Ok((IpAddr::V4(address), Some(port(text)?)))
}

/// Name of an IP protocol, as the textual form has it.
pub fn protocol_name(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        132 => "sctp".to_owned(),
        other => other.to_string(),
    }
}

/// An end of a flow in its textual form.
pub fn end_text(address: IpAddr, port: u16) -> String {
    match (address, port) {
        (address, 0) => address.to_string(),
        (IpAddr::V6(v6), port) => format!("[{v6}]:{port}"),
        (address, port) => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_read_as_people_write_them() {
        let a = |text: &str| text.parse::<IpAddr>().unwrap();
        let cases = [
            ("tcp 10.0.0.1:40000 192.0.2.7:80", 6, ("10.0.0.1", Some(40_000)), ("192.0.2.7", Some(80))),
            ("TCP 10.0.0.1 -> 192.0.2.7:80", 6, ("10.0.0.1", None), ("192.0.2.7", Some(80))),
            ("udp,2001:db8::1,[2001:db8::53]:53", 17, ("2001:db8::1", None), ("2001:db8::53", Some(53))),
            ("icmp 2001:db8::1 2001:db8::2", 58, ("2001:db8::1", None), ("2001:db8::2", None)),
            ("47 10.0.0.1 10.0.0.2", 47, ("10.0.0.1", None), ("10.0.0.2", None)),
        ];
        for (text, protocol, source, destination) in cases {
            let expected = FlowTuple {
                protocol,
                source: (a(source.0), source.1),
                destination: (a(destination.0), destination.1),
                icmp: None,
            };
            assert_eq!(parse(text), Ok(expected), "{text}");
            assert!(is_meant(text), "{text}");
        }
        assert_eq!(parse("icmp:3/1 10.0.0.1 10.0.0.2").unwrap().icmp, Some((3, 1)));
        assert!(!is_meant("capture.pcap") && !is_meant("/tmp/tcp.pcap") && !is_meant("tcp"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("10.0.0.1:1 10.0.0.2:2", "the protocol is missing"),
            ("tcp 10.0.0.1:1", "found 2 words"),
            ("tpc 10.0.0.1:1 10.0.0.2:2", "`tpc` is not a protocol"),
            ("tcp 10.0.0.1:99999 10.0.0.2:2", "`99999` in `10.0.0.1:99999` is not a port"),
            ("tcp 10.0.0.256:1 10.0.0.2:2", "`10.0.0.256:1` is not an address"),
            ("tcp [2001:db8::1:1 10.0.0.2:2", "`[2001:db8::1:1` is not an address"),
            ("tcp 10.0.0.1:1 [2001:db8::1]:2", "different IP versions"),
            ("icmp 10.0.0.1:1 10.0.0.2", "only tcp, udp and sctp have ports"),
            ("tcp:8 10.0.0.1 10.0.0.2", "only icmp and icmpv6 have a type"),
            ("icmp:900 10.0.0.1 10.0.0.2", "type and code are numbers"),
        ];
        for (text, expected) in cases {
            let error = parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
