// SPDX-License-Identifier: Apache-2.0
//! The two ends of the inspected packet or flow.

use crate::model::condition::ConditionContext;
use bartizan_base::Direction;
use bartizan_function::view::FlowView;
use bartizan_packet::{PacketView, TransportLayer};
use core::net::IpAddr;

/// IP protocols with ports that rules can name: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Both ends of the inspected packet, or of the flow when there is no packet. An end is an address and a
/// port; packets of protocols without ports, and fragments, have no port.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Source address and port.
    pub source: Option<(IpAddr, Option<u16>)>,
    /// Destination address and port.
    pub destination: Option<(IpAddr, Option<u16>)>,
}

impl Ends {
    /// The ends of a scene.
    #[must_use]
    pub fn of(scene: &ConditionContext<'_>) -> Self {
        match (scene.facts.packet, scene.facts.flow) {
            (Some(packet), _) => {
                let decoded = packet.decoded();
                let (sport, dport) = ports(packet).unzip();
                Ends {
                    source: decoded.src().map(|a| (a, sport)),
                    destination: decoded.dst().map(|a| (a, dport)),
                }
            }
            (None, Some(flow)) => Ends::of_flow(flow, scene.facts.direction),
            (None, None) => Ends { source: None, destination: None },
        }
    }

    /// The ends of a flow's packets in a direction. For protocols without ports the flow keeps other numbers
    /// in place of the ports, which are left out.
    #[must_use]
    pub fn of_flow(flow: &FlowView<'_>, direction: Direction) -> Self {
        let has_ports = WITH_PORTS.contains(&flow.protocol);
        let end = |(address, port): (IpAddr, u16)| Some((address, has_ports.then_some(port)));
        Ends { source: end(flow.source(direction)), destination: end(flow.destination(direction)) }
    }

    /// The ends, exchanged.
    #[must_use]
    pub const fn turned(self) -> Self {
        Ends { source: self.destination, destination: self.source }
    }
}

impl core::fmt::Display for Ends {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (end, behind) in [(self.source, " -> "), (self.destination, "")] {
            match end {
                None => f.write_str("no address")?,
                Some((address, None)) => write!(f, "{address}")?,
                Some((IpAddr::V6(address), Some(port))) => write!(f, "[{address}]:{port}")?,
                Some((address, Some(port))) => write!(f, "{address}:{port}")?,
            }
            f.write_str(behind)?;
        }
        Ok(())
    }
}

/// Ports of a packet, if its protocol has any.
#[must_use]
pub fn ports(packet: &PacketView<'_>) -> Option<(u16, u16)> {
    match &packet.decoded().transport {
        TransportLayer::Tcp(tcp) => Some((tcp.sport, tcp.dport)),
        TransportLayer::Udp(udp) => Some((udp.sport, udp.dport)),
        TransportLayer::Sctp(sctp) => Some((sctp.sport, sctp.dport)),
        _ => None,
    }
}
