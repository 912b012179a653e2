// SPDX-License-Identifier: Apache-2.0
//! For `explain`: the range of each field in which a header gets the same results.
//!
//! Rules cut each field into segments, which all structures of this crate are built on. [`Segments`] are
//! those that contain a header, computed from the rules themselves, so that they are the same whatever
//! structure holds the rules.

use crate::header::{Header, HeaderRule, Net, Range, number};
use bartizan_base::{LinkId, TenantId};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The fields.
pub const FIELDS: [&str; 7] =
    ["source", "destination", "source_port", "destination_port", "protocol", "tenant", "link"];

/// First and last value of each field between which no rule begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    header: Header,
    ranges: [(u128, u128); FIELDS.len()],
}

impl Segments {
    /// The segments of a header before any rule: everything of its IP version.
    #[must_use]
    pub fn new(header: &Header) -> Self {
        let address = |address: IpAddr| (0, if address.is_ipv4() { u128::from(u32::MAX) } else { u128::MAX });
        let port = (0, u128::from(u16::MAX));
        let ranges = [
            address(header.source),
            address(header.destination),
            port,
            port,
            (0, u128::from(u8::MAX)),
            port,
            port,
        ];
        Segments { header: *header, ranges }
    }

    /// Narrows the segments by a rule.
    pub fn cut(&mut self, rule: &HeaderRule) {
        let header = &self.header;
        let values = [
            number(header.source).1,
            number(header.destination).1,
            header.source_port.into(),
            header.destination_port.into(),
            header.protocol.into(),
            header.tenant.0.into(),
            header.link.0.into(),
        ];
        let net = |net: Option<Net>, address: IpAddr| {
            let (v6, first, last) = net?.range();
            (v6 == address.is_ipv6()).then_some((first, last))
        };
        let ports = |range: Range| Some((u128::from(range.first), u128::from(range.last)));
        let one = |value: Option<u16>| value.map(|v| (u128::from(v), u128::from(v)));
        let asked = [
            net(rule.source, header.source),
            net(rule.destination, header.destination),
            ports(rule.source_ports),
            ports(rule.destination_ports),
            one(rule.protocol.map(u16::from)),
            one(rule.tenant.map(|t| t.0)),
            one(rule.link.map(|l| l.0)),
        ];
        for ((segment, value), asked) in self.ranges.iter_mut().zip(values).zip(asked) {
            let Some((first, last)) = asked.filter(|(first, last)| first <= last) else { continue };
            if value < first {
                segment.1 = segment.1.min(first - 1);
            } else if value > last {
                segment.0 = segment.0.max(last + 1);
            } else {
                *segment = (segment.0.max(first), segment.1.min(last));
            }
        }
    }

    /// The headers with the first and with the last values of the segments.
    #[must_use]
    pub fn ends(&self) -> [Header; 2] {
        [|range: (u128, u128)| range.0, |range: (u128, u128)| range.1].map(|end| {
            let [source, destination, source_port, destination_port, protocol, tenant, link] =
                self.ranges.map(end);
            let address = |number: u128| match self.header.source {
                IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(number as u32)),
                IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
            };
            Header {
                tenant: TenantId(tenant as u16),
                link: LinkId(link as u16),
                source: address(source),
                destination: address(destination),
                protocol: protocol as u8,
                source_port: source_port as u16,
                destination_port: destination_port as u16,
            }
        })
    }

    /// Each field with its segment as text: `10.0.0.0 to 10.0.255.255`, `80`, `any`.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let [first, last] = self.ends();
        let everything = Segments::new(&self.header).ranges;
        let texts = [
            text(first.source, last.source),
            text(first.destination, last.destination),
            text(first.source_port, last.source_port),
            text(first.destination_port, last.destination_port),
            text(first.protocol, last.protocol),
            text(first.tenant.0, last.tenant.0),
            text(first.link.0, last.link.0),
        ];
        let whole: Vec<bool> = self.ranges.iter().zip(everything).map(|(a, b)| *a == b).collect();
        FIELDS
            .into_iter()
            .zip(texts)
            .zip(whole)
            .map(|((name, text), whole)| (name, if whole { "any".to_owned() } else { text }))
    }
}

fn text<T: fmt::Display + PartialEq>(first: T, last: T) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}
