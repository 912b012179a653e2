// SPDX-License-Identifier: Apache-2.0
//! Who owns a packet, and the walk of a frame from owner to owner.

use crate::worker::Worker;
use bartizan_base::spread::{Network, Part};
use bartizan_base::{Decision, LinkId, Reason, Spread, WorkerId};
use bartizan_flow::FlowKey;
use bartizan_packet::{DecodeOutput, Decoded};
use bartizan_stages::chain::Chains;
use bartizan_stages::frame::{Around, Frame, MAX_DEPTH, Place};
use bartizan_stages::guests::Guest;
use bartizan_stages::intake::fragment::{Fragmented, refused_as_it_is};
use bartizan_stages::intake::joined::Joined;
use bartizan_stages::normaliser::Rewrite;
use bartizan_stages::record::Recorder;
use std::sync::Arc;

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

    /// The owner of all fragments in frames with this outermost packet: by its virtual network and addresses. So the fragments of a datagram in a tunnel meet those of
    /// the datagrams that carry them, whose frames wait with them.
    fn of_fragments(&self, link: LinkId, outermost: &Decoded) -> WorkerId {
        if self.is_one() {
            return WorkerId(0);
        }
        let (Some(source), Some(destination)) = (outermost.src(), outermost.dst()) else {
            return WorkerId(0);
        };
        let network = network_of(outermost);
        WorkerId(self.spread.of_link(link).worker_in(network, source, destination, Part::Nothing))
    }

    /// The home of a flow: where its packets go first (`Owners::of_packet`). `None`: its key does not say it. An ICMPv6 error's own flow is where what it quotes
    /// is at home; a key without ports, of a protocol that has them, may be that of a packet whose ports were cut off, or of one with ports 0.
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

    /// The owner of a packet of a link, by its own word: its flow's home; a fragment's, until it is part of a datagram, by its virtual network and addresses.
    ///
    /// A tenant's number is left out: what it is told by (link, VLANs, tunnel, addresses) is in the hash as far as it is in flows' keys, so it would tell no more; a kernel filter that spreads frames
    /// by the same hash cannot know it; and with the next policy it may be another one, for packets that are under way.
    #[inline]
    pub(crate) fn of_packet(&self, link: LinkId, packet: &Decoded) -> WorkerId {
        if self.is_one() {
            return WorkerId(0);
        }
        self.among_several(link, packet)
    }

    /// Who is alone owns all.
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

/// The packets of a frame, or of a datagram that was put together from one of them.
#[derive(Default)]
struct Layer {
    /// Empty for the frame itself, whose bytes stand elsewhere.
    datagram: Vec<u8>,
    output: DecodeOutput,
    /// Packets that are still to be handled: those below this index.
    left: usize,
    /// The packet in hand is a fragment and has been put to its datagram.
    fragment_done: bool,
    /// It must not go on.
    refused: Option<Reason>,
    /// What is told of the packets around: of the layer as a whole, and of a packet in another one of it.
    outermost: Option<Around>,
    first: Option<Around>,
}

impl Layer {
    /// Begins with the packets of `output`.
    fn begin(&mut self, outermost: Option<Around>, number: Option<u64>) {
        self.left = self.output.packets().len();
        (self.fragment_done, self.refused) = (false, None);
        self.outermost = outermost;
        self.first = outermost.or_else(|| Around::of(self.output.packets().first()?, number));
    }
}

/// How far a frame has got.
#[derive(Default)]
pub(super) struct Walk {
    layers: Vec<Layer>,
    /// Used layers, for their memory.
    spare: Vec<Layer>,
    pub(super) decision: Decision,
    /// The change that the frame needs before it may leave: travels with it.
    pub(super) rewrite: Option<Rewrite>,
    /// Who keeps the frame's fragments, once it has met one, and the datagrams that they were put to.
    keeper: Option<WorkerId>,
    pub(super) joined: Joined,
    /// Some packet was handled.
    begun: bool,
    /// The generation of the packets that other workers have handled, or in which a flow's home has looked at the next one.
    chains: Option<Arc<Chains>>,
    /// The next packet was sent on by its flow's home: its flow is where the frame goes now.
    pub(super) directed: Option<Directed>,
}

/// A packet on its way from its flow's home to where the flow is.
pub(super) struct Directed {
    pub(super) key: FlowKey,
    pub(super) guest: Guest,
}

/// Whether the flow of a packet that is at home here is away: its key.
pub(super) type Moved<'m> = dyn Fn(&Worker, &Frame<'_>, &Decoded) -> Option<FlowKey> + 'm;

/// Where a walk is.
#[derive(Clone, Copy)]
pub(super) struct Site<'s> {
    pub(super) me: WorkerId,
    pub(super) owners: &'s Owners,
    pub(super) moved: &'s Moved<'s>,
}

/// Where a walk stopped.
pub(super) enum Stop {
    /// All packets are handled.
    Done,
    /// The next packet is this worker's.
    At(WorkerId),
    /// The next packet's flow is at home here, and away.
    Moved(FlowKey),
}

impl Walk {
    /// Begins with what was decoded of a frame; the memory that `output` gets in exchange can be used again.
    pub(super) fn begin(&mut self, output: &mut DecodeOutput, number: Option<u64>) {
        while let Some(layer) = self.layers.pop() {
            self.spare.push(layer);
        }
        self.decision = Decision::CONTINUE;
        self.rewrite = None;
        self.begun = false;
        (self.keeper, self.joined) = (None, Joined::default());
        self.chains = None;
        self.directed = None;
        let mut layer = self.spare.pop().unwrap_or_default();
        layer.datagram.clear();
        core::mem::swap(&mut layer.output, output);
        layer.begin(None, number);
        self.layers.push(layer);
    }

    /// Handles packets until one belongs to somebody else, all in the generation of the first.
    pub(super) fn run(
        &mut self,
        site: &Site<'_>,
        worker: &mut Worker,
        frame: &Frame<'_>,
        recorder: &mut dyn Recorder,
    ) -> Stop {
        let stop = match self.chains.clone() {
            Some(chains) => worker.in_generation(&chains, |worker| self.go(site, worker, frame, recorder)),
            None => self.go(site, worker, frame, recorder),
        };
        match stop {
            // Nobody is to be kept from freeing it by a parcel that is empty.
            Stop::Done => self.chains = None,
            Stop::At(_) if self.begun && self.chains.is_none() => {
                self.chains = Some(Arc::clone(worker.chains()))
            }
            Stop::At(_) => {}
            // Whose flow it is was asked in this generation.
            Stop::Moved(_) => {
                self.chains.get_or_insert_with(|| Arc::clone(worker.chains()));
            }
        }
        stop
    }

    fn go(
        &mut self,
        site: &Site<'_>,
        worker: &mut Worker,
        frame: &Frame<'_>,
        recorder: &mut dyn Recorder,
    ) -> Stop {
        let Site { me, owners, moved } = *site;
        loop {
            let depth = self.layers.len();
            let keeper = self.fragment_owner(frame.link, owners);
            let Some(layer) = self.layers.last_mut() else {
                // Who keeps its fragments settles it.
                let keeper = self.keeper.filter(|keeper| *keeper != me && !self.joined.is_empty());
                return keeper.map_or(Stop::Done, Stop::At);
            };
            let Some(index) = layer.left.checked_sub(1) else {
                self.spare.extend(self.layers.pop());
                continue;
            };
            let bytes = if depth == 1 { frame.bytes } else { layer.datagram.as_slice() };
            let count = layer.output.packets().len();
            let Some(packet) = layer.output.packets_mut().get_mut(index) else {
                layer.left = index;
                continue;
            };
            if let Some(keeper) = keeper
                && !layer.fragment_done
                && depth <= usize::from(MAX_DEPTH)
            {
                if keeper != me {
                    return Stop::At(keeper);
                }
                self.keeper = Some(me);
                let mut inner = self.spare.pop().unwrap_or_default();
                let fragmented =
                    worker.defragment(frame, bytes, packet, &mut inner.datagram, &mut self.joined);
                layer.fragment_done = true;
                if let Fragmented::Refused(reason) = fragmented {
                    layer.refused = Some(reason);
                }
                if fragmented == Fragmented::Whole {
                    worker.intake.decode_datagram(packet, &inner.datagram, &mut inner.output);
                    inner.begin(layer.outermost.or_else(|| Around::of(packet, frame.number)), frame.number);
                    self.layers.push(inner);
                } else {
                    self.spare.push(inner);
                }
                continue;
            }
            // What its flow's home has sent here is handled here.
            let directed = self.directed.take();
            if directed.is_none() {
                let owner = keeper.unwrap_or_else(|| owners.of_packet(frame.link, packet));
                if owner != me {
                    return Stop::At(owner);
                }
                if keeper.is_none()
                    && let Some(key) = moved(worker, frame, packet)
                {
                    return Stop::Moved(key);
                }
            }
            // What became of a fragment was said when it was put to its datagram.
            if !layer.fragment_done {
                layer.refused = refused_as_it_is(&worker.settings, packet);
            }
            let place = Place {
                made: depth > 1 || packet.recursion > 0,
                around: if index > 0 { layer.first.as_ref() } else { layer.outermost.as_ref() },
                carries: index + 1 < count,
                inside: self.decision.into(),
                refused: layer.refused.take(),
            };
            self.begun = true;
            let decision = worker.packet(frame, bytes, packet, &place, recorder);
            if let Some(Directed { key, guest }) = directed {
                worker.note_guest(&key, guest);
            }
            self.decision = self.decision.strictest(decision);
            self.rewrite = worker.take_rewrite().or(self.rewrite.take());
            layer.left = index;
            layer.fragment_done = false;
        }
    }
}

impl Walk {
    /// Who keeps fragments of the frame, if it has met any.
    pub(super) const fn keeper(&self) -> Option<WorkerId> {
        self.keeper
    }

    /// Who keeps the fragments of this frame, if the next packet is one.
    fn fragment_owner(&self, link: LinkId, owners: &Owners) -> Option<WorkerId> {
        let Layer { output, left, .. } = self.layers.last()?;
        output.packets().get(left.checked_sub(1)?).filter(|packet| packet.is_fragment())?;
        let outermost = self.layers.first().and_then(|layer| layer.output.outer());
        Some(outermost.map_or(WorkerId(0), |packet| owners.of_fragments(link, packet)))
    }
}
