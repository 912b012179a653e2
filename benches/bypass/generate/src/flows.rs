// SPDX-License-Identifier: Apache-2.0
//! Description of a flow: its class, length and frame size, and its two endpoints.

use bartizan_testkit::packet::End;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A class of flows: its transport protocol, and whether a rule on ports bypasses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Name in messages and JSON.
    pub name: &'static str,
    /// TCP if true, else UDP.
    pub tcp: bool,
    /// The rule of the bench is meant to bypass flows of this class.
    pub bypassable: bool,
    /// The servers' port, by which rules and counters distinguish classes.
    pub port: u16,
}

/// All classes. The cited text's rule bypasses TCP except some ports, among them 80.
pub const CLASSES: [Class; 4] = [
    Class { name: "tcp-kept", tcp: true, bypassable: false, port: 80 },
    Class { name: "tcp-bypassable", tcp: true, bypassable: true, port: 8443 },
    Class { name: "udp-kept", tcp: false, bypassable: false, port: 9000 },
    Class { name: "udp-bypassable", tcp: false, bypassable: true, port: 9001 },
];

/// The least number of packets of a flow: the shortest frames still carry a request, an answer, handshake and
/// end.
pub const SHORTEST: u16 = 11;
/// The largest number of packets of a flow.
pub const LONGEST: u16 = 256;
/// The least frame size over IPv4 and over IPv6, in bytes without the frame check sequence: TCP carries ten
/// bytes of payload.
pub const SMALLEST: (u16, u16) = (64, 84);
/// The largest frame size, in bytes.
pub const LARGEST: u16 = 9000;

/// A flow of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Number of packets.
    pub packets: u16,
    /// Size of its full frames, in bytes.
    pub size: u16,
    /// Index in [`CLASSES`].
    pub class: u8,
    /// IPv6 if true, else IPv4.
    pub v6: bool,
}

impl Flow {
    /// The flow's class.
    #[must_use]
    pub fn class(&self) -> Class {
        CLASSES[usize::from(self.class)]
    }
}

/// Both endpoints of the flow with this number, client first. Endpoints are unique for numbers below 115
/// million.
///
/// Addresses are those reserved for benchmarks (RFC 2544, RFC 5180), except for IPv4's clients, which are in
/// 10.0.0.0/8 because rules name a home network.
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
