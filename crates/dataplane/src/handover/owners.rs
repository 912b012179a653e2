// SPDX-License-Identifier: Apache-2.0
//! The owner of a packet.

use bartizan_base::spread::{Network, Part};
use bartizan_base::{LinkId, Spread, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_packet::Decoded;

/// Says who owns what. The same in every worker of an instance.
#[derive(Clone, Copy, Debug)]
pub struct Owners {
    spread: Spread,
}

impl Owners {
    /// Owners as flows are spread.
    #[must_use]
    pub const fn new(spread: Spread) -> Self {
        Owners { spread }
    }

    /// Number of workers.
    #[must_use]
    pub const fn workers(&self) -> u16 {
        self.spread.workers()
    }

    /// The owner of all fragments in frames with this outermost packet: by its virtual network and addresses.
    /// So the fragments of a datagram in a tunnel meet those of the datagrams that carry them, whose frames
    /// wait with them.
    pub(super) fn of_fragments(&self, link: LinkId, outermost: &Decoded) -> WorkerId {
        if self.is_one() {
            return WorkerId(0);
        }
        let (Some(source), Some(destination)) = (outermost.src(), outermost.dst()) else {
            return WorkerId(0);
        };
        let network = network_of(outermost);
        WorkerId(self.spread.of_link(link).worker_in(network, source, destination, Part::Nothing))
    }

    /// The home of a flow: where its packets go first (`Owners::of_packet`). `None`: its key does not say it.
    /// An ICMPv6 error's own flow is where what it quotes is at home; a key without ports, of a protocol that
    /// has them, may be that of a packet whose ports were cut off, or of one with ports 0.
    #[must_use]
    pub fn home(&self, key: &FlowKey) -> Option<WorkerId> {
        let part = match (key.source_port(), key.destination_port()) {
            (0, 0) if key.has_ports() => return None,
            (source, destination) if key.has_ports() => Part::Ports(source, destination),
            _ => Part::Nothing,
        };
        let is_error = key.is_ipv6()
            && key
                .icmp_types()
                .is_some_and(|(kind, counterpart)| [kind, counterpart].iter().any(|t| (1..=4).contains(t)));
        let scope = key.scope();
        let network = Network { vlans: scope.vlans, tunnel: scope.tunnel };
        let spread = self.spread.of_link(scope.link);
        (!is_error).then(|| WorkerId(spread.worker_in(network, key.source(), key.destination(), part)))
    }

    /// The owner of a packet of a link, by its own word: its flow's home; a fragment's, until it is part of a
    /// datagram, by its virtual network and addresses.
    ///
    /// A tenant's number is left out: what it is told by (link, VLANs, tunnel, addresses) is in the hash as
    /// far as it is in flows' keys, so it would tell no more; a kernel filter that spreads frames by the same
    /// hash cannot know it; and with the next policy it may be another one, for packets that are under way.
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
            // The flow that an ICMP error is about has its owner, whoever sent the error.
            Some(quoted) => (quoted.src, quoted.dst, quoted.ports),
            None => (source, destination, packet.ports()),
        };
        let part = ports.map_or(Part::Nothing, |(a, b)| Part::Ports(a, b));
        WorkerId(self.spread.of_link(link).worker_in(network_of(packet), source, destination, part))
    }
}

/// The virtual network that a packet is in.
fn network_of(packet: &Decoded) -> Network {
    Network { vlans: packet.vlan.padded(), tunnel: packet.tunnel.key() }
}
