// SPDX-License-Identifier: Apache-2.0
//! Reassembly of fragments, and the rules of prevention for fragments.
//!
//! Live prevention holds the frames of a datagram until the datagram is complete and inspected; then they
//! leave together and unchanged. A receiver gets nothing of a datagram that was not inspected as a whole,
//! however it reassembles: docs/design/0011-what-the-receiver-reads.md says why, and which fragments are
//! refused besides.
//!
//! Several datagrams can depend on one frame: a fragment may complete a datagram that carries a fragment of
//! another datagram. [`Joined`] lists them while the frame's packets are handled; [`Intake::finish_frame`]
//! then applies the decision to all of them.

use super::Intake;
use super::joined::Joined;
use crate::chain::Chains;
use crate::context::FrameContext;
use crate::frame::Frame;
use crate::identity::PacketOrigin;
use crate::normaliser;
use crate::record::{EventContext, PacketVerdict};
use crate::settings::EngineSettings;
use bartizan_base::{Decision, FunctionId, LinkId, Reason, Timestamp, Verdict};
use bartizan_flow::EspFlows;
use bartizan_packet::defrag::{Attached, DatagramId, DefragResult, Fragment, FragmentKey};
use bartizan_packet::{DecodeEvent, DecodeOutput, Decoded, Ipv6ExtHeaders, LinkType, Network, PacketView};

/// The result of adding a fragment to its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmented {
    /// The datagram is incomplete.
    Waits,
    /// The datagram is complete and in the buffer.
    Whole,
    /// Prevention: the fragment must not be forwarded.
    Refused(Reason),
}

/// The disposition of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The decision to carry out.
    Decided(Decision),
    /// The frame is held until its datagram is complete.
    Held,
}

/// Whether prevention refuses a packet since receivers differ in its fragment headers: a second fragment
/// header follows that of a "datagram in one fragment". Linux discards such a packet, other hosts add it to a
/// datagram.
pub fn is_fragmented_twice(packet: &Decoded) -> bool {
    packet.ipv6().is_some_and(|ip| ip.ext_headers.contains(Ipv6ExtHeaders::FRAGMENT_AGAIN))
}

impl Intake {
    /// Adds a fragment to its datagram; `datagram` then holds the datagram if it is complete.
    pub fn defragment(
        &mut self,
        settings: &EngineSettings,
        chains: &Chains,
        frame: &Frame<'_>,
        bytes: &[u8],
        packet: &mut Decoded,
        datagram: &mut Vec<u8>,
    ) -> Fragmented {
        let prevention = settings.prevention;
        let refused = |reason| if prevention { Fragmented::Refused(reason) } else { Fragmented::Waits };
        // A receiver that discards this fragment accepts another one in its place.
        if prevention && packet.is_invalid() {
            return Fragmented::Refused(Reason::Defrag);
        }
        if PacketView::new(bytes, packet).is_fragment_cut() {
            self.defrag.leave_out_cut(packet.ipv4().is_some());
            return refused(Reason::Defrag);
        }
        // A fragment has no ports, and no SPI.
        let esp_flows = EspFlows::default();
        let tenant = chains.classifier.tenant_of(packet, frame.link);
        let whence = PacketOrigin { tenant, link: frame.link, arrived_by: self.arrived_by, esp_flows };
        let Some((key, fragment)) = fragment_of(settings, &whence, bytes, packet) else {
            return refused(Reason::Defrag);
        };
        datagram.clear();
        let host = settings.hosts.fragments(key.dst);
        let outcome = self.defrag.insert(&key, &fragment, host, frame.now, datagram);
        for event in outcome.events.iter() {
            if let Some(event) = DecodeEvent::from_rule_name(event.name()) {
                packet.event(event);
                self.decoder.counters_mut().event(event);
            }
        }
        match outcome.result {
            DefragResult::Complete => {
                if let Some(id) = outcome.datagram {
                    self.joined.push_whole(id);
                }
                // The link header of the last fragment precedes the datagram, as records show it.
                let link = bytes.get(packet.start as usize..packet.l3 as usize).unwrap_or_default();
                datagram.splice(..0, link.iter().copied());
                Fragmented::Whole
            }
            DefragResult::Held => {
                if settings.defrag.hold && chains.enforces_something() {
                    self.joined.waiting = outcome.datagram;
                } else if let Some(id) = outcome.datagram.filter(|_| settings.defrag.hold) {
                    self.defrag.leave_at_once(id);
                }
                Fragmented::Waits
            }
            DefragResult::Dropped(reason) => refused(reason.reason()),
        }
    }

    /// Applies `decision`, that of all packets of the frame: completed datagrams are forwarded or refused
    /// with the frame; an incomplete one holds the frame.
    pub fn finish_frame(
        &mut self,
        cx: &mut FrameContext<'_>,
        chains: &Chains,
        frame: &Frame<'_>,
        decision: Decision,
    ) -> Settled {
        // Datagrams that had timed out when a fragment arrived.
        self.discard(cx, chains, Reason::Defrag.into_decision());
        let joined = core::mem::take(&mut self.joined);
        if joined.is_empty() {
            return Settled::Decided(decision);
        }
        let whole = joined.whole.into_iter().flatten();
        if !decision.verdict.forwards() {
            whole.chain(joined.waiting).for_each(|id| self.defrag.refuse(id));
            self.discard(cx, chains, decision);
            return Settled::Decided(decision);
        }
        let Some(waiting) = joined.waiting else {
            let before = self.defrag.outgoing();
            let mut pass = true;
            whole.for_each(|id| pass &= self.defrag.pass(id, frame.now));
            cx.account.counters.forwarded += u64::from(self.defrag.outgoing() - before);
            // The datagram timed out while the frame was judged.
            return if pass {
                Settled::Decided(decision)
            } else {
                self.refuse_frame(cx, chains, frame, Reason::Defrag)
            };
        };
        whole.for_each(|id| self.defrag.join(id, waiting, frame.now));
        let attached = self.attach(cx, waiting, frame);
        // The rest of the datagram, if it is refused with the frame; datagrams evicted for it have their own
        // reason.
        let why = attached.err().unwrap_or(Reason::Defrag);
        self.discard(cx, chains, why.into_decision());
        match attached {
            Ok(Attached::Waits) => Settled::Held,
            Ok(Attached::Passed) => Settled::Decided(decision),
            Err(reason) => self.refuse_frame(cx, chains, frame, reason),
        }
    }

    /// Holds a frame with its datagram, and keeps the change that the frame needs before it leaves: the
    /// checksum of an outer tunnel header that the sender left to hardware.
    fn attach(
        &mut self,
        cx: &mut FrameContext<'_>,
        datagram: DatagramId,
        frame: &Frame<'_>,
    ) -> Result<Attached, Reason> {
        let mut changed = self.datagrams.pop().unwrap_or_default();
        let mut bytes = frame.bytes;
        // A cut frame cannot leave whole.
        let mut fits = frame.bytes.len() as u64 >= u64::from(frame.wire_len);
        let mut longer = Vec::new();
        if let Some(change) = cx.leaving.change.take() {
            changed.clear();
            changed.extend_from_slice(frame.bytes);
            fits = fits && normaliser::rewrite(&mut changed, &change, &[], &mut longer, &mut cx.leaving.done);
            bytes = if longer.is_empty() { &changed } else { &longer };
            cx.leaving.reuse(change);
        }
        let attached = if fits {
            let note = HeldFrameMeta::of(frame, self.arrived_by).to_bytes();
            self.defrag.attach(datagram, &note, bytes, frame.now).map_err(|reason| reason.reason())
        } else {
            self.defrag.refuse(datagram);
            Err(Reason::Defrag)
        };
        self.datagrams.push(changed);
        attached
    }

    /// Forwards or refuses the datagrams that a frame has completed, by the decision on the frame. For
    /// captures, where no frame is held.
    pub fn decide_datagrams(&mut self, joined: &Joined, decision: &Decision, now: Timestamp) {
        for id in joined.whole.into_iter().flatten() {
            if decision.verdict.forwards() {
                self.defrag.pass(id, now);
            } else {
                self.defrag.refuse(id);
            }
        }
    }

    /// Refuses the datagrams of a frame that cannot be handed over.
    pub fn discard_datagrams(&mut self, cx: &mut FrameContext<'_>, chains: &Chains, joined: Joined) {
        joined.whole.into_iter().flatten().chain(joined.waiting).for_each(|id| self.defrag.refuse(id));
        self.discard(cx, chains, Reason::HandOverRing.into_decision());
    }

    /// Counts and records the held frames that are dropped; those of evicted datagrams have their own reason.
    pub fn discard(&mut self, cx: &mut FrameContext<'_>, chains: &Chains, decision: Decision) {
        if !self.defrag.has_discarded() {
            return;
        }
        let evicted = Reason::DefragMemory.into_decision();
        let mut bytes = self.datagrams.pop().unwrap_or_default();
        loop {
            let (length, decision) = match self.defrag.pop_discarded(&mut bytes) {
                Some(length) => (length, decision),
                None => match self.defrag.pop_evicted(&mut bytes) {
                    Some(length) => (length, evicted),
                    None => break,
                },
            };
            let (note, frame) = bytes.split_at_checked(length).unwrap_or_default();
            let frame = HeldFrameMeta::from_bytes(note).frame(frame);
            self.record_refused(cx, chains, &frame, decision);
            cx.decided(&decision);
        }
        self.datagrams.push(bytes);
    }

    /// Gives up fragments that have timed out.
    pub fn expire_fragments(&mut self, cx: &mut FrameContext<'_>, chains: &Chains, now: Timestamp) {
        self.forget_fragments(now);
        self.discard(cx, chains, Reason::Defrag.into_decision());
    }

    /// Gives up all held fragments.
    pub fn discard_all(&mut self, cx: &mut FrameContext<'_>, chains: &Chains) {
        self.defrag.clear();
        self.discard(cx, chains, Reason::Defrag.into_decision());
    }

    /// The next frame of a datagram that may leave: the port on which it arrived, and its time.
    pub fn take_released(&mut self, bytes: &mut Vec<u8>) -> Option<(u32, Timestamp)> {
        let length = self.defrag.pop_outgoing(bytes)?;
        let note = HeldFrameMeta::from_bytes(bytes.get(..length).unwrap_or_default());
        bytes.drain(..length);
        Some((note.arrived_by, note.now))
    }

    fn refuse_frame(
        &mut self,
        cx: &mut FrameContext<'_>,
        chains: &Chains,
        frame: &Frame<'_>,
        reason: Reason,
    ) -> Settled {
        let decision = reason.into_decision();
        self.record_refused(cx, chains, frame, decision);
        Settled::Decided(decision)
    }

    /// Records that a frame is dropped.
    fn record_refused(
        &mut self,
        cx: &mut FrameContext<'_>,
        chains: &Chains,
        frame: &Frame<'_>,
        decision: Decision,
    ) {
        self.redecode_outermost(chains, frame, |occasion| {
            cx.recorder.refused(occasion, None, &PacketVerdict { decision, reject: None }, &[]);
        });
    }

    /// Decodes the outermost packet of a held frame again, to record the decision on it.
    pub fn redecode_outermost(
        &mut self,
        chains: &Chains,
        frame: &Frame<'_>,
        record: impl FnOnce(&EventContext<'_>),
    ) {
        let mut output = DecodeOutput::new();
        // The frame was counted when it arrived.
        let counters = self.decoder.counters().clone();
        self.decoder.decode(frame.link_type, frame.bytes, frame.wire_len, &mut output);
        *self.decoder.counters_mut() = counters;
        let Some(packet) = output.outer() else { return };
        let view = PacketView::new(frame.bytes, packet);
        record(&EventContext::of(&view, frame.number, frame.now, chains.generation));
    }
}

/// The reason why prevention refuses a packet for every receiver, since hosts differ in how they treat it.
/// Fragments that can be reassembled are not passed here.
pub fn refused_as_it_is(settings: &EngineSettings, packet: &Decoded) -> Option<Reason> {
    if !settings.prevention {
        None
    } else if packet.is_fragment() || is_fragmented_twice(packet) {
        Some(Reason::Defrag)
    } else if packet.is_unreadable() && settings.has_real_receivers() {
        Some(Reason::Unreadable)
    } else {
        None
    }
}

/// The engine's refusal for a reason.
trait IntoDecision {
    fn into_decision(self) -> Decision;
}

impl IntoDecision for Reason {
    fn into_decision(self) -> Decision {
        Decision::refuse(Verdict::Drop, self, FunctionId::ENGINE)
    }
}

/// The data of a held frame: all of [`Frame`] but the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HeldFrameMeta {
    now: Timestamp,
    number: Option<u64>,
    wire_len: u32,
    arrived_by: u32,
    link_type: LinkType,
    link: LinkId,
}

impl HeldFrameMeta {
    const LEN: usize = 32;

    const fn of(frame: &Frame<'_>, arrived_by: u32) -> HeldFrameMeta {
        let Frame { now, bytes: _, wire_len, link_type, link, number } = *frame;
        HeldFrameMeta { now, number, wire_len, arrived_by, link_type, link }
    }

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let parts: [&[u8]; 6] = [
            &self.now.as_nanos().to_le_bytes(),
            &self.number.unwrap_or(0).to_le_bytes(),
            &self.wire_len.to_le_bytes(),
            &self.arrived_by.to_le_bytes(),
            &u32::from(self.link_type.0).to_le_bytes(),
            &u32::from(self.link.0).to_le_bytes(),
        ];
        let places = bytes.iter_mut();
        places.zip(parts.into_iter().flatten()).for_each(|(place, byte)| *place = *byte);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> HeldFrameMeta {
        let word = |at: usize| -> u32 {
            let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
            part.map_or(0, |part| u32::from_le_bytes(*part))
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at.saturating_add(4))) << 32;
        HeldFrameMeta {
            now: Timestamp::from_nanos(long(0)),
            // Frames of a capture count from 1.
            number: Some(long(8)).filter(|number| *number != 0),
            wire_len: word(16),
            arrived_by: word(20),
            link_type: LinkType(word(24) as _),
            link: LinkId(word(28) as _),
        }
    }

    const fn frame(self, bytes: &[u8]) -> Frame<'_> {
        let HeldFrameMeta { now, number, wire_len, arrived_by: _, link_type, link } = self;
        Frame { now, bytes, wire_len, link_type, link, number }
    }
}

/// The path of a fragment beyond its IP header: port, hardware address of the receiver, VLAN tags.
fn path_of(arrived_by: u32, view: &PacketView<'_>) -> [u64; 2] {
    let receiver = view.mac_addresses().map_or([0; 6], |(_, destination)| destination);
    let receiver = receiver.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let vlan = &view.decoded().vlan;
    let tags = vlan.as_slice();
    let ids = tags.iter().fold(tags.len() as u64, |number, id| number << 12 | u64::from(*id));
    [receiver | u64::from(arrived_by & 1) << 48, ids]
}

fn fragment_of<'b>(
    settings: &EngineSettings,
    origin: &PacketOrigin,
    bytes: &'b [u8],
    packet: &'b Decoded,
) -> Option<(FragmentKey, Fragment<'b>)> {
    let view = PacketView::new(bytes, packet);
    let payload = view.fragment_data()?;
    let (fragment, id, protocol) = match &packet.network {
        Network::Ipv4(ip) => {
            let f = Fragment {
                offset: ip.fragment.offset,
                more: ip.fragment.more,
                header: view.ip_header().unwrap_or_default(),
                hop_limit: ip.ttl,
                path: path_of(origin.arrived_by, &view),
                reserved: ip.fragment.reserved,
                next_header: 0,
                payload,
            };
            (f, u32::from(ip.id), ip.proto)
        }
        Network::Ipv6(ip) => {
            let part = ip.fragment?;
            let f = Fragment {
                offset: part.offset,
                more: part.more,
                header: view.frame().get(packet.l3 as usize..part.header as usize).unwrap_or_default(),
                hop_limit: ip.hop_limit,
                path: path_of(origin.arrived_by, &view),
                reserved: reserved_bits(&view, part.header),
                next_header: part.next_header,
                payload,
            };
            (f, part.id, 0)
        }
        _ => return None,
    };
    let separate = |setting: bool| setting || settings.prevention;
    let key = FragmentKey {
        tenant: origin.tenant,
        link: Some(origin.link),
        // All fragments of a datagram take one path, so in prevention a fragment with another tag or tunnel
        // belongs to another datagram.
        vlans: if separate(settings.vlan_in_key) { packet.vlan.padded() } else { [0; 3] },
        tunnel: if separate(settings.tunnel_in_key) { packet.tunnel.key() } else { 0 },
        src: packet.src()?,
        dst: packet.dst()?,
        id,
        protocol,
        recursion: packet.recursion,
    };
    Some((key, fragment))
}

/// Whether an IPv6 fragment header has a reserved bit set.
fn reserved_bits(view: &PacketView<'_>, at: u32) -> bool {
    let header = view.frame().get(at as usize..).unwrap_or_default();
    header.get(1).is_some_and(|byte| *byte != 0) || header.get(3).is_some_and(|byte| byte & 6 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_as_it_was() {
        let note = HeldFrameMeta {
            now: Timestamp::from_nanos(1 << 60 | 5),
            number: Some(1 << 40),
            wire_len: 70_000,
            arrived_by: 3,
            link_type: LinkType::ETHERNET,
            link: LinkId(9),
        };
        assert_eq!(HeldFrameMeta::from_bytes(&note.to_bytes()), note);
        let none = HeldFrameMeta { number: None, ..note };
        assert_eq!(HeldFrameMeta::from_bytes(&none.to_bytes()), none);
    }
}
