// SPDX-License-Identifier: Apache-2.0
//! What a flow is: its class, length and size, and who its ends are.

use bartizan_testkit::packet::End;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A class of flows: what carries it, and whether a rule on ports bypasses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// For people and programs.
    pub name: &'static str,
    /// TCP, else UDP.
    pub tcp: bool,
    /// The rule of the bench is meant for it.
    pub bypassable: bool,
    /// The servers' port, by which rules and counters tell classes apart.
    pub port: u16,
}

/// All classes. The rule of the text bypasses TCP beside some ports, of which 80 is one.
pub const CLASSES: [Class; 4] = [
    Class { name: "tcp-kept", tcp: true, bypassable: false, port: 80 },
    Class { name: "tcp-bypassable", tcp: true, bypassable: true, port: 8443 },
    Class { name: "udp-kept", tcp: false, bypassable: false, port: 9000 },
    Class { name: "udp-bypassable", tcp: false, bypassable: true, port: 9001 },
];

/// Flows have at least so many packets, so that the shortest frames carry a request, an answer, handshake and
/// end.
pub const SHORTEST: u16 = 11;
/// And at most so many.
pub const LONGEST: u16 = 256;
/// Frames have at least so many bytes (without the frame check sequence), so that TCP over IPv4 and over IPv6
/// carries ten.
pub const SMALLEST: (u16, u16) = (64, 84);
/// And at most so many.
pub const LARGEST: u16 = 9000;

/// A flow of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Packets.
    pub packets: u16,
    /// Bytes of its full frames.
    pub size: u16,
    /// Index in [`CLASSES`].
    pub class: u8,
    /// IPv6, else IPv4.
    pub v6: bool,
}

impl Flow {
    /// Its class.
    #[must_use]
    pub fn class(&self) -> Class {
        CLASSES[usize::from(self.class)]
    }
}

/// Both ends of the flow with this number, client first. No two numbers below 115 million have the same.
///
/// Addresses are those that are set aside for measuring (RFC 2544, RFC 5180) but for IPv4's clients, who are
/// in 10.0.0.0/8: rules speak of a home network.
#[must_use]
pub fn ends(number: u64, flow: &Flow) -> (End, End) {
    const CLIENTS: u64 = 4096;
    const FIRST_PORT: u64 = 32_768;
    const PORTS: u64 = 28_232;
    let (client, port) = (number % CLIENTS, FIRST_PORT + number / CLIENTS % PORTS);
    let server = (number ^ (number >> 12)) % 250 + 1;
    let [high, low] = (client as u16 + 256).to_be_bytes();
    let ends: (IpAddr, IpAddr) = if flow.v6 {
        let of = |net: u16, host: u64| Ipv6Addr::new(0x2001, 2, 0, net, 0, 0, 0, host as u16);
        (of(1, client + 1).into(), of(2, server).into())
    } else {
        (Ipv4Addr::new(10, 18, high, low).into(), Ipv4Addr::new(198, 18, 0, server as u8).into())
    };
    ((ends.0, port as u16), (ends.1, flow.class().port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_flows_have_the_same_ends() {
        let flow = |n: u64| Flow { packets: 11, size: 64, class: (n % 4) as u8, v6: n.is_multiple_of(3) };
        let ends: HashSet<_> = (0..300_000).map(|n| ends(n, &flow(n))).collect();
        assert_eq!(ends.len(), 300_000);
    }
}
