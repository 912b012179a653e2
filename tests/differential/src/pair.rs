// SPDX-License-Identifier: Apache-2.0
//! A pair: one rule file with one conversation.
//!
//! Each pair has its own addresses, rule numbers and names, derived from the pair's number. Many pairs can
//! therefore share one run of a program, and each can be run alone.

use bartizan_testkit::packet::{Datagram, FIN, ICMP, ICMPV6, Ip, RST, Segment, TCP, UDP};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The largest number of rules in a pair.
pub const MAX_RULES: u32 = 16;

/// Length of a pair's time slot in the capture, in microseconds; a pair is shorter.
pub const SLOT: u64 = 4_000_000;

/// Start of captures, in seconds since 1970.
const EPOCH: u64 = 1_760_000_000;

/// A rule; `@C`, `@S` and `@N` in its text stand for the client's and the server's address and the pair's
/// number.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `alert`, `drop`, and the like.
    pub action: &'static str,
    /// The header from protocol to port: `tcp @C any -> @S any`.
    pub head: String,
    /// Options without `msg` and `sid`.
    pub options: Vec<String>,
}

/// The payload of a packet.
#[derive(Clone, Debug)]
pub enum Body {
    /// A segment; its ports are set when the frame is made.
    Tcp(Segment),
    /// A datagram.
    Udp(Vec<u8>),
    /// An ICMP or ICMPv6 echo: request or not, identifier and number, data.
    Echo(bool, u32, Vec<u8>),
    /// Data of another IP protocol, by its number.
    Other(u8, Vec<u8>),
}

/// A packet of a conversation.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Microseconds after the previous packet.
    pub after: u64,
    /// Index of the client, each a host of its own.
    pub client: u8,
    /// Index of the client's flow, each with a port of its own.
    pub flow: u16,
    /// The server's port.
    pub port: u16,
    /// Sent by the client.
    pub to_server: bool,
    /// Time to live.
    pub ttl: u8,
    /// Type of service.
    pub tos: u8,
    /// Fragment size in bytes, a multiple of 8, if the packet is fragmented.
    pub fragments: Option<usize>,
    /// VLAN tag.
    pub vlan: Option<u16>,
    /// Payload.
    pub body: Body,
}

impl Packet {
    /// Description for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let arrow = if self.to_server { '>' } else { '<' };
        let place =
            format!("{arrow} client {} flow {} port {} +{}us", self.client, self.flow, self.port, self.after);
        let fragments = self.fragments.map_or(String::new(), |size| format!(" fragments of {size}"));
        match &self.body {
            Body::Tcp(segment) => format!(
                "{place}{fragments} seq {} ack {} flags {:x}{} \"{}\"",
                segment.seq,
                segment.ack,
                segment.flags,
                if segment.chksum_error == 0 { "" } else { " wrong checksum" },
                segment.load.escape_ascii()
            ),
            Body::Udp(load) | Body::Echo(_, _, load) | Body::Other(_, load) => {
                format!("{place}{fragments} \"{}\"", load.escape_ascii())
            }
        }
    }
}

/// A rule file and a conversation.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Its number among the pairs of a seed.
    pub number: u32,
    /// The family of its scene, and the feature by which it differs from the first pair of its group.
    pub name: String,
    /// Over IPv6.
    pub v6: bool,
    /// Index of its setting in [`crate::engine::SETTINGS`].
    pub setting: usize,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Its packets.
    pub packets: Vec<Packet>,
    /// It is of the grammar of application protocols, which has settings and records of its own.
    pub is_application: bool,
}

/// A frame with its time in microseconds since 1970.
pub type Frame = (u64, Vec<u8>);

impl Pair {
    /// The address of a host: 2 is the server, 1 and from 3 on are clients.
    #[must_use]
    pub fn address(&self, host: u8) -> IpAddr {
        address(self.number, self.v6, host)
    }

    /// The `sid` of a rule.
    #[must_use]
    pub fn sid(&self, rule: usize) -> u32 {
        1_000_000 + self.number * MAX_RULES + rule as u32
    }

    /// The lines of the rule file.
    #[must_use]
    pub fn rules(&self) -> Vec<String> {
        let client = self.address(1).to_string();
        let server = self.address(2).to_string();
        let number = self.number.to_string();
        self.rules
            .iter()
            .enumerate()
            .map(|(at, rule)| {
                let mut options = String::new();
                for option in &rule.options {
                    options.push_str(option);
                    options.push_str("; ");
                }
                let sid = self.sid(at);
                format!("{} {} (msg:\"rule {at}\"; {options}sid:{sid}; rev:1;)", rule.action, rule.head)
                    .replace("@C", &client)
                    .replace("@S", &server)
                    .replace("@N", &number)
            })
            .collect()
    }

    /// The frames of the conversation, in this slot of the capture.
    #[must_use]
    pub fn frames(&self, slot: usize) -> Vec<Frame> {
        let mut at = EPOCH * 1_000_000 + slot as u64 * SLOT;
        let mut frames = Vec::new();
        for (index, packet) in self.packets.iter().enumerate() {
            at += packet.after;
            for frame in self.frame(packet, index as u32) {
                frames.push((at, frame));
                at += 1;
            }
        }
        frames
    }

    /// Whether answers can depend on the end of the run: a rule counts by time, and a connection is still
    /// open, whose rest is inspected then.
    #[must_use]
    pub fn hangs_on_the_end(&self) -> bool {
        let by_time = |option: &String| option.contains("seconds ") || option.contains("expire ");
        self.rules.iter().any(|rule| rule.options.iter().any(by_time)) && self.is_left_open()
    }

    /// Whether it has more than one flow.
    #[must_use]
    pub fn has_several_flows(&self) -> bool {
        let flow = |packet: &Packet| (packet.client, packet.flow);
        self.packets.first().is_some_and(|first| self.packets.iter().any(|one| flow(one) != flow(first)))
    }

    /// Whether some connection has neither a reset nor FINs of both sides.
    fn is_left_open(&self) -> bool {
        let flags = |of: &Packet, to_server: bool| {
            let same = self.packets.iter().filter(|one| (one.client, one.flow) == (of.client, of.flow));
            same.filter(|one| one.to_server == to_server).fold(0, |all, one| match &one.body {
                Body::Tcp(segment) => all | segment.flags,
                _ => all,
            })
        };
        self.packets.iter().filter(|one| matches!(one.body, Body::Tcp(_))).any(|one| {
            let (client, server) = (flags(one, true), flags(one, false));
            (client | server) & RST == 0 && client & server & FIN == 0
        })
    }

    /// Number of frames of each packet.
    #[must_use]
    pub fn frame_counts(&self) -> Vec<usize> {
        self.packets.iter().enumerate().map(|(at, packet)| self.frame(packet, at as u32).len()).collect()
    }

    fn frame(&self, packet: &Packet, index: u32) -> Vec<Vec<u8>> {
        let client =
            (self.address(if packet.client == 0 { 1 } else { packet.client + 2 }), 40_000 + packet.flow);
        let server = (self.address(2), packet.port);
        let (from, to) = if packet.to_server { (client, server) } else { (server, client) };
        let mut ip = Ip::new(from.0, to.0, TCP);
        ip.ttl = packet.ttl;
        ip.tos = packet.tos;
        ip.id = 1 + index;
        ip.tags.extend(packet.vlan);
        let payload = match &packet.body {
            Body::Tcp(segment) => Segment { sport: from.1, dport: to.1, ..segment.clone() }.bytes(&ip),
            Body::Udp(load) => {
                ip.protocol = UDP;
                Datagram::new((from.1, to.1), load).bytes(&ip)
            }
            Body::Echo(request, id, load) => {
                ip.protocol = if self.v6 { ICMPV6 } else { ICMP };
                echo(&ip, *request, *id, load)
            }
            Body::Other(protocol, load) => {
                ip.protocol = *protocol;
                load.clone()
            }
        };
        match packet.fragments {
            Some(size) if payload.len() > size => ip.fragment_frames(&payload, size),
            _ => vec![ip.frame(&payload, None)],
        }
    }

    /// A hash of rules and frames (FNV-1a).
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        for rule in self.rules() {
            add(rule.as_bytes());
        }
        add(&[self.setting as u8]);
        for (at, frame) in self.frames(0) {
            add(&at.to_be_bytes());
            add(&frame);
        }
        hash
    }
}

/// The address of a pair's host.
#[must_use]
pub fn address(number: u32, v6: bool, host: u8) -> IpAddr {
    let [_, _, high, low] = number.to_be_bytes();
    if v6 {
        Ipv6Addr::new(0xfd00, 0, 0, number as u16, 0, 0, 0, u16::from(host)).into()
    } else {
        Ipv4Addr::new(10, high, low, host).into()
    }
}

/// The pair and the host that own an address.
#[must_use]
pub fn owner(address: IpAddr) -> Option<(u32, u8)> {
    match address {
        IpAddr::V4(address) => match address.octets() {
            [10, high, low, host] => Some((u32::from(high) << 8 | u32::from(low), host)),
            _ => None,
        },
        IpAddr::V6(address) => match address.segments() {
            [0xfd00, 0, 0, number, 0, 0, 0, host] => Some((u32::from(number), host as u8)),
            _ => None,
        },
    }
}

fn echo(ip: &Ip, request: bool, id: u32, load: &[u8]) -> Vec<u8> {
    let kind = match (ip.src.is_ipv6(), request) {
        (true, true) => 128,
        (true, false) => 129,
        (false, true) => 8,
        (false, false) => 0,
    };
    ip.summed(&[&[kind, 0, 0, 0], &id.to_be_bytes()[..], load].concat())
}

#[cfg(test)]
mod tests {
    use crate::make::pair;

    #[test]
    fn who_counts_by_time_in_an_open_connection_hangs_on_the_end() {
        let mut open = pair(1, 2060);
        assert!(open.hangs_on_the_end());
        open.rules.remove(0);
        assert!(!open.hangs_on_the_end(), "nobody counts");
        let mut closed = pair(1, 974);
        assert!(!closed.hangs_on_the_end());
        closed.rules[0].options.push("threshold:type limit, track by_src, count 1, seconds 1".into());
        assert!(!closed.hangs_on_the_end(), "both sides close");
        closed.packets.truncate(26);
        assert!(closed.hangs_on_the_end(), "the client alone has closed");
    }
}
