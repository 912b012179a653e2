// SPDX-License-Identifier: Apache-2.0
//! The two ends of what is being inspected.

use crate::model::condition::Scene;
use bartizan_packet::{PacketView, Transport};
use core::net::IpAddr;

/// Both ends of what is being inspected: of the packet, or of the flow when there is no packet.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Where it comes from.
    pub source: Option<(IpAddr, u16)>,
    /// Where it goes.
    pub destination: Option<(IpAddr, u16)>,
}

impl Ends {
    /// Of a scene.
    #[must_use]
    pub fn of(scene: &Scene<'_>) -> Self {
        match (scene.packet, scene.flow) {
            (Some(packet), _) => {
                let decoded = packet.decoded();
                let (sport, dport) = ports(packet).unwrap_or((0, 0));
                Ends {
                    source: decoded.src().map(|a| (a, sport)),
                    destination: decoded.dst().map(|a| (a, dport)),
                }
            }
            (None, Some(flow)) => Ends {
                source: Some(flow.source(scene.direction)),
                destination: Some(flow.destination(scene.direction)),
            },
            (None, None) => Ends { source: None, destination: None },
        }
    }

    /// The other way round.
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
                Some((IpAddr::V6(address), port)) => write!(f, "[{address}]:{port}")?,
                Some((address, port)) => write!(f, "{address}:{port}")?,
            }
            f.write_str(behind)?;
        }
        Ok(())
    }
}

/// Ports of a packet, if its protocol has some.
#[must_use]
pub fn ports(packet: &PacketView<'_>) -> Option<(u16, u16)> {
    match &packet.decoded().transport {
        Transport::Tcp(tcp) => Some((tcp.sport, tcp.dport)),
        Transport::Udp(udp) => Some((udp.sport, udp.dport)),
        Transport::Sctp(sctp) => Some((sctp.sport, sctp.dport)),
        _ => None,
    }
}
