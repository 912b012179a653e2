// SPDX-License-Identifier: Apache-2.0
//! The owner of a packet.

use bartizan_base::spread::{SpreadPorts, VirtualNetwork};
use bartizan_base::{LinkId, Spread, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_packet::Decoded;

/// Maps packets and flows to their owners; equal in all workers of an instance.
#[derive(Clone, Copy, Debug)]
pub struct Owners {
    spread: Spread,
}

impl Owners {
    /// The map for a spread of flows over workers.
    #[must_use]
    pub const fn new(spread: Spread) -> Self {
        Owners { spread }
    }

    /// Number of workers.
    #[must_use]
    pub const fn workers(&self) -> u16 {
        self.spread.workers()
    }

    /// The owner of all fragments in frames with this outermost packet, by its virtual network and addresses.
    /// So the fragments of a datagram in a tunnel are with the same worker as those of the datagrams that
    /// carry them, whose frames are held together.
    pub(super) fn of_fragments(&self, link: LinkId, outermost: &Decoded) -> WorkerId {
        if self.is_one() {
            return WorkerId(0);
        }
        let (Some(source), Some(destination)) = (outermost.src(), outermost.dst()) else {
            return WorkerId(0);
        };
        let network = network_of(outermost);
        WorkerId(self.spread.of_link(link).worker_in(network, source, destination, SpreadPorts::Nothing))
    }

    /// The home of a flow, which its packets reach first (`Owners::of_packet`). `None`: the key does not
    /// determine it. An ICMPv6 error's own flow has the home of the packet that it quotes; a key without
    /// ports, of a protocol that has them, may belong to a packet whose ports were cut off, or to one with
    /// ports 0.
    #[must_use]
    pub fn home(&self, key: &FlowKey) -> Option<WorkerId> {
        let part = match (key.source_port(), key.destination_port()) {
            (0, 0) if key.has_ports() => return None,
            (source, destination) if key.has_ports() => SpreadPorts::Ports(source, destination),
            _ => SpreadPorts::Nothing,
        };
        let is_error = key.is_ipv6()
            && key
                .icmp_types()
                .is_some_and(|(kind, counterpart)| [kind, counterpart].iter().any(|t| (1..=4).contains(t)));
        let scope = key.scope();
        let network = VirtualNetwork { vlans: scope.vlans, tunnel: scope.tunnel };
        let spread = self.spread.of_link(scope.link);
        (!is_error).then(|| WorkerId(spread.worker_in(network, key.source(), key.destination(), part)))
    }

    /// The owner of a packet of a link: the home of its flow; for a fragment that is not yet part of a
    /// datagram, the owner by virtual network and addresses.
    ///
    /// The tenant's number is not hashed. The hash contains the fields that determine the tenant (link,
    /// VLANs, tunnel, addresses) as far as flow keys do, so the number would add nothing; a kernel filter
    /// that spreads frames by the same hash cannot know it; and the next policy may change it while packets
    /// are in transit.
    #[inline]
    pub(crate) fn of_packet(&self, link: LinkId, packet: &Decoded) -> WorkerId {
        if self.is_one() {
            return WorkerId(0);
        }
        self.among_several(link, packet)
    }

    /// Whether there is one worker, which owns all packets.
    #[inline]
    const fn is_one(&self) -> bool {
        self.spread.workers() == 1
    }

    fn among_several(&self, link: LinkId, packet: &Decoded) -> WorkerId {
        let (Some(source), Some(destination)) = (packet.src(), packet.dst()) else { return WorkerId(0) };
        let (source, destination, ports) = match packet.about() {
            _ if packet.is_fragment() => return self.of_fragments(link, packet),
            // An ICMP error has the owner of the flow that it quotes, whoever sent the error.
            Some(quoted) => (quoted.src, quoted.dst, quoted.ports),
            None => (source, destination, packet.ports()),
        };
        let part = ports.map_or(SpreadPorts::Nothing, |(a, b)| SpreadPorts::Ports(a, b));
        WorkerId(self.spread.of_link(link).worker_in(network_of(packet), source, destination, part))
    }
}

/// The virtual network that a packet is in.
fn network_of(packet: &Decoded) -> VirtualNetwork {
    VirtualNetwork { vlans: packet.vlan.padded(), tunnel: packet.tunnel.key() }
}
