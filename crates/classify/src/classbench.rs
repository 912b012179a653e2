// SPDX-License-Identifier: Apache-2.0
//! Rule files of ClassBench, and header traces.
//!
//! Source: Taylor and Turner, "ClassBench: a packet classification benchmark" (INFOCOM 2005). A rule a line,
//! the first line wins: `@SIP/LEN DIP/LEN SPLO : SPHI DPLO : DPHI PROTO/MASK [FLAGS/MASK]`, ports in decimal,
//! protocol and flags in hexadecimal. TCP flags are ignored: they are no field of a lookup. IPv6 has the same
//! layout (`@2001:db8::/32`); a rule has one IP version. A trace is a header a line: `SIP DIP SPORT DPORT
//! PROTO`, addresses decimal or dotted (or IPv6); more columns are ignored.

use crate::header::{Header, HeaderRule, Net, Range};
use bartizan_base::{LinkId, TenantId};
use core::fmt::Write as _;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The reason why a line could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, `{field}`: `{text}` is not {expected}")]
pub struct ReadError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The field that was expected.
    pub field: &'static str,
    /// The text found.
    pub text: String,
    /// A description of the valid values.
    pub expected: &'static str,
}

struct ClassbenchLine<'a> {
    number: usize,
    words: Vec<&'a str>,
}

impl ClassbenchLine<'_> {
    fn read<T>(
        &self,
        index: usize,
        field: &'static str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ReadError> {
        let text = self.words.get(index).copied().unwrap_or_default();
        parse(text).ok_or_else(|| ReadError { line: self.number, field, text: text.into(), expected })
    }

    fn ports(&self, index: usize, field: &'static str) -> Result<Range, ReadError> {
        let number = |text: &str| text.parse().ok();
        let first = self.read(index, field, "a port", number)?;
        self.read(index + 1, field, "`:`", |t| (t == ":").then_some(()))?;
        let last = self.read(index + 2, field, "a port that is not below the first", |t| {
            number(t).filter(|last| first <= *last)
        })?;
        Ok(Range { first, last })
    }
}

fn lines(text: &str) -> impl Iterator<Item = ClassbenchLine<'_>> {
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(index, line)| ClassbenchLine {
        number: index + 1,
        words: line.split_ascii_whitespace().collect(),
    })
}

fn net(text: &str) -> Option<Net> {
    let (address, length) = text.trim_start_matches('@').split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let length = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some(Net { address, length })
}

fn protocol(text: &str) -> Option<Option<u8>> {
    let hexadecimal = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let (value, mask) = text.split_once('/')?;
    match (hexadecimal(value)?, hexadecimal(mask)?) {
        (_, 0) => Some(None),
        (value, 0xff) => Some(Some(value)),
        _ => None,
    }
}

/// Reads a rule file. The rules are in the order of their lines; the first that matches wins.
///
/// # Errors
/// The first line that is not a rule.
pub fn rules(text: &str) -> Result<Vec<HeaderRule>, ReadError> {
    let prefix = "an address with a prefix length (`192.0.2.0/24`)";
    lines(text)
        .map(|line| {
            line.read(0, "source", "`@`", |t| t.starts_with('@').then_some(()))?;
            let source = line.read(0, "source", prefix, net)?;
            let destination = line.read(1, "destination", prefix, net)?;
            line.read(1, "destination", "a prefix of the source's IP version", |_| {
                (source.address.is_ipv4() == destination.address.is_ipv4()).then_some(())
            })?;
            Ok(HeaderRule {
                source: Some(source),
                destination: Some(destination),
                source_ports: line.ports(2, "source ports")?,
                destination_ports: line.ports(5, "destination ports")?,
                protocol: line.read(
                    8,
                    "protocol",
                    "a protocol with mask 0x00 or 0xFF (`0x06/0xFF`)",
                    protocol,
                )?,
                ..HeaderRule::default()
            })
        })
        .collect()
}

/// Writes rules as [`rules`] reads them; an unspecified address is `/0` of the rule's IP version. The format
/// has no tenants and links.
#[must_use]
pub fn write(rules: &[HeaderRule]) -> String {
    let mut out = String::new();
    for rule in rules {
        let v6 = [rule.source, rule.destination].into_iter().flatten().any(|n| !n.address.is_ipv4());
        let any: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let [source, destination] =
            [rule.source, rule.destination].map(|n| n.unwrap_or(Net { address: any, length: 0 }));
        let (from, to) = (rule.source_ports, rule.destination_ports);
        let (protocol, mask) = rule.protocol.map_or((0, 0), |p| (p, 0xff));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "@{}/{}\t{}/{}\t{} : {}\t{} : {}\t0x{protocol:02x}/0x{mask:02X}\t0x0000/0x0000\t",
            source.address,
            source.length,
            destination.address,
            destination.length,
            from.first,
            from.last,
            to.first,
            to.last,
        );
    }
    out
}

/// Reads a line of a trace: the header and the words after it.
fn header<'a>(line: &ClassbenchLine<'a>) -> Result<(Header, Vec<&'a str>), ReadError> {
    let address = |text: &str| match text.parse::<u32>() {
        Ok(number) => Some(IpAddr::V4(Ipv4Addr::from(number))),
        Err(_) => text.parse().ok(),
    };
    let port = |text: &str| text.parse().ok();
    let header = Header {
        tenant: TenantId(0),
        link: LinkId(0),
        source: line.read(0, "source", "an address", address)?,
        destination: line.read(1, "destination", "an address", address)?,
        source_port: line.read(2, "source port", "a port", port)?,
        destination_port: line.read(3, "destination port", "a port", port)?,
        protocol: line.read(4, "protocol", "a protocol number", |t| t.parse().ok())?,
    };
    Ok((header, line.words.iter().skip(5).copied().collect()))
}

/// Reads a trace.
///
/// # Errors
/// The first line that is not a header.
pub fn trace(text: &str) -> Result<Vec<Header>, ReadError> {
    lines(text).map(|line| header(&line).map(|(header, _)| header)).collect()
}

/// Reads a trace whose sixth column is the number of the first rule that matches, from 0, or -1.
///
/// # Errors
/// The first line that is not a header with an expected number.
pub fn golden(text: &str) -> Result<Vec<(Header, Option<u32>)>, ReadError> {
    lines(text)
        .map(|line| {
            let (header, _) = header(&line)?;
            let answer = line.read(5, "answer", "a rule's number or -1", |t| t.parse::<i64>().ok())?;
            Ok((header, u32::try_from(answer).ok()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rules_and_says_what_is_wrong() {
        let read =
            rules("@192.0.2.7/24\t0.0.0.0/0\t0 : 65535\t53 : 54\t0x11/0xFF\t0x0000/0x0000\t\n\n").unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].protocol, Some(17));
        assert_eq!(read[0].destination_ports, Range { first: 53, last: 54 });
        assert_eq!(read[0].source, Some(Net { address: "192.0.2.7".parse().unwrap(), length: 24 }));
        let bad = rules("@192.0.2.7/33 0.0.0.0/0 0 : 1 5 : 5 0x00/0x00").unwrap_err();
        assert_eq!((bad.line, bad.field), (1, "source"));
        assert_eq!(rules("@::/0 0.0.0.0/0 0 : 1 5 : 5 0x00/0x00").unwrap_err().field, "destination");
        assert_eq!(rules("@1.2.3.4/8 1.2.3.4/8 9 : 1 5 : 5 0x00/0x00").unwrap_err().field, "source ports");
        assert_eq!(rules("@1.2.3.4/8 1.2.3.4/8 1 : 9 5 : 5 0x06/0x0F").unwrap_err().field, "protocol");
        assert_eq!(rules("@1.2.3.4/8").unwrap_err().field, "destination");
    }

    #[test]
    fn reads_traces() {
        let read = trace("3221225985 192.0.2.2 1 2 6 junk\n2001:db8::1 2001:db8::2 3 4 17\n").unwrap();
        assert_eq!(read[0].source, "192.0.2.1".parse::<IpAddr>().unwrap());
        assert_eq!(read[1].protocol, 17);
        assert_eq!(golden("1 2 3 4 6 -1").unwrap()[0].1, None);
        assert_eq!(golden("1 2 3 4 6 9").unwrap()[0].1, Some(9));
        assert_eq!(trace("1 2 3 70000 6").unwrap_err().field, "destination port");
    }
}
