// SPDX-License-Identifier: Apache-2.0
//! Fragments: putting them to their datagrams, and what prevention does about them.
//!
//! In live prevention the frames of a datagram are held until it is whole and has been inspected; then they leave together, as they
//! came. So a receiver gets nothing of a datagram that was not inspected as a whole, whatever it would have made of it: why,
//! and which fragments are refused besides, is in docs/design/0011-what-the-receiver-reads.md.
//!
//! Of one frame several datagrams can hang: a fragment that makes one whole which carries a fragment of another. [`Joined`]
//! remembers them while the frame's packets are handled; [`Worker::settle`] then does with all of them what was decided.

use crate::normaliser::{self, NormaliserCounters};
use crate::record::{Fate, Occasion, Recorder};
use crate::worker::{Frame, Worker};
use bartizan_base::{Decision, Direction, FunctionId, LinkId, Reason, Timestamp, Verdict};
use bartizan_packet::defrag::{Attached, DatagramId, DefragResult, Fragment, FragmentKey};
use bartizan_packet::{DecodeEvent, DecodeOutput, Decoded, Ipv6ExtHeaders, LinkType, Network, PacketView};

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragmented {
    /// Its datagram is not whole yet.
    Waits,
    /// The buffer holds its datagram.
    Whole,
    /// Prevention: it must not go on.
    Refused(Reason),
}

/// The datagrams that fragments of the frame in hand were put to. Prevention only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Joined {
    /// Those that are whole, outermost first; as many as lie in each other at most.
    whole: [Option<DatagramId>; crate::worker::MAX_DEPTH as usize],
    /// The innermost, if it is not whole.
    waiting: Option<DatagramId>,
}

impl Joined {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_none() && self.whole.first().is_none_or(Option::is_none)
    }

    fn push_whole(&mut self, id: DatagramId) {
        if let Some(place) = self.whole.iter_mut().find(|place| place.is_none()) {
            *place = Some(id);
        }
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// This was decided.
    Decided(Decision),
    /// It waits for the rest of its datagram.
    Held,
}

/// Whether prevention refuses a packet because of what receivers make of its fragment header: behind the header of a "datagram in one fragment"
/// comes another one. Linux throws it away, others put it to a datagram.
pub(crate) fn is_fragmented_twice(packet: &Decoded) -> bool {
    packet.ipv6().is_some_and(|ip| ip.ext_headers.contains(Ipv6ExtHeaders::FRAGMENT_AGAIN))
}

/// Puts a fragment to its datagram.
pub(crate) fn defragment(
    worker: &mut Worker,
    frame: &Frame<'_>,
    bytes: &[u8],
    packet: &mut Decoded,
    datagram: &mut Vec<u8>,
) -> Fragmented {
    let prevention = worker.settings.prevention;
    let refused = |reason| if prevention { Fragmented::Refused(reason) } else { Fragmented::Waits };
    // What a receiver may throw away leaves room for another in its place.
    if prevention && packet.is_invalid() {
        return Fragmented::Refused(Reason::Defrag);
    }
    let Some((key, fragment)) = fragment_of(worker, frame, bytes, packet) else {
        return refused(Reason::Defrag);
    };
    datagram.clear();
    let host = worker.settings.hosts.fragments(key.dst);
    let outcome = worker.defrag.insert(&key, &fragment, host, frame.now, datagram);
    for event in outcome.events.iter() {
        if let Some(event) = DecodeEvent::from_rule_name(event.name()) {
            packet.event(event);
            worker.decoder.counters_mut().event(event);
        }
    }
    match outcome.result {
        DefragResult::Complete => {
            if let Some(id) = outcome.datagram {
                worker.joined.push_whole(id);
            }
            // The link header of the last fragment stands before the datagram, as records show it.
            let link = bytes.get(packet.start as usize..packet.l3 as usize).unwrap_or_default();
            datagram.splice(..0, link.iter().copied());
            Fragmented::Whole
        }
        DefragResult::Held => {
            if worker.settings.defrag.hold {
                worker.joined.waiting = outcome.datagram;
            }
            Fragmented::Waits
        }
        DefragResult::Dropped(reason) => refused(reason.reason()),
    }
}

impl Worker {
    /// Why prevention refuses a packet whoever it is for: nobody can tell what its receiver makes of it. Fragments that can be put to
    /// their datagram do not come here.
    pub(crate) fn refused_as_it_is(&self, packet: &Decoded) -> Option<Reason> {
        if !self.settings.prevention {
            None
        } else if packet.is_fragment() || is_fragmented_twice(packet) {
            Some(Reason::Defrag)
        } else if packet.is_unreadable() && self.settings.has_real_receivers() {
            Some(Reason::Unreadable)
        } else {
            None
        }
    }

    /// All packets of a frame are handled, and `decision` is what they say. Datagrams that have become whole go or are refused with it;
    /// one that is not whole keeps it.
    pub(crate) fn settle(
        &mut self,
        frame: &Frame<'_>,
        decision: Decision,
        recorder: &mut dyn Recorder,
    ) -> Settled {
        // Datagrams whose time was over when a fragment came.
        self.discard(Reason::Defrag.into_decision(), recorder);
        let joined = core::mem::take(&mut self.joined);
        if joined.is_empty() {
            return Settled::Decided(decision);
        }
        let whole = joined.whole.into_iter().flatten();
        if !decision.verdict.forwards() {
            whole.chain(joined.waiting).for_each(|id| self.defrag.refuse(id));
            self.discard(decision, recorder);
            return Settled::Decided(decision);
        }
        let Some(waiting) = joined.waiting else {
            let before = self.defrag.outgoing();
            let mut pass = true;
            whole.for_each(|id| pass &= self.defrag.pass(id, frame.now));
            self.counters.forwarded += u64::from(self.defrag.outgoing() - before);
            // Its time ran out while others decided.
            return if pass {
                Settled::Decided(decision)
            } else {
                self.refuse_frame(frame, Reason::Defrag, recorder)
            };
        };
        whole.for_each(|id| self.defrag.join(id, waiting, frame.now));
        match self.attach(waiting, frame) {
            Ok(Attached::Waits) => Settled::Held,
            Ok(Attached::Passed) => Settled::Decided(decision),
            Err(reason) => {
                let settled = self.refuse_frame(frame, reason, recorder);
                self.discard(reason.into_decision(), recorder);
                settled
            }
        }
    }

    /// Lets a frame wait with its datagram, with the change that it needs before it leaves: a checksum that its sender left to hardware,
    /// of a tunnel around it.
    fn attach(&mut self, datagram: DatagramId, frame: &Frame<'_>) -> Result<Attached, Reason> {
        let mut changed = self.datagrams.pop().unwrap_or_default();
        let mut bytes = frame.bytes;
        // What is missing of a frame cannot leave with it.
        let mut fits = frame.bytes.len() as u64 >= u64::from(frame.wire_len);
        let mut longer = Vec::new();
        if let Some(change) = self.rewrite.take() {
            changed.clear();
            changed.extend_from_slice(frame.bytes);
            fits = fits && normaliser::rewrite(&mut changed, &change, &mut longer, &mut self.normalised);
            bytes = if longer.is_empty() { &changed } else { &longer };
            self.reuse_rewrite(change);
        }
        let attached = if fits {
            let note = Note::of(frame, self.arrived_by).to_bytes();
            self.defrag.attach(datagram, &note, bytes, frame.now).map_err(|reason| reason.reason())
        } else {
            self.defrag.refuse(datagram);
            Err(Reason::Defrag)
        };
        self.datagrams.push(changed);
        attached
    }

    /// What the normaliser has done to frames that waited, since the last call.
    pub fn take_normalised(&mut self) -> NormaliserCounters {
        core::mem::take(&mut self.normalised)
    }

    /// Datagrams that have become whole go, whatever is decided of them later: over captures, where nothing waits.
    pub(crate) fn pass_datagrams(&mut self, now: Timestamp) {
        let joined = core::mem::take(&mut self.joined);
        for id in joined.whole.into_iter().flatten() {
            self.defrag.pass(id, now);
        }
    }

    /// The frame in hand cannot be handed on: neither can the datagrams that it belongs to.
    pub(crate) fn unsettle(&mut self, joined: Joined, recorder: &mut dyn Recorder) {
        joined.whole.into_iter().flatten().chain(joined.waiting).for_each(|id| self.defrag.refuse(id));
        self.discard(Reason::HandOverRing.into_decision(), recorder);
    }

    /// Counts and records the frames that waited and go nowhere.
    pub(crate) fn discard(&mut self, decision: Decision, recorder: &mut dyn Recorder) {
        if !self.defrag.has_discarded() {
            return;
        }
        let mut bytes = self.datagrams.pop().unwrap_or_default();
        while let Some(length) = self.defrag.pop_discarded(&mut bytes) {
            let (note, frame) = bytes.split_at_checked(length).unwrap_or_default();
            let frame = Note::from_bytes(note).frame(frame);
            self.record_refused(&frame, decision, recorder);
            crate::handover::walk::count_decision(self, &decision);
        }
        self.datagrams.push(bytes);
    }

    /// Gives up all that waits.
    pub(crate) fn discard_all(&mut self, recorder: &mut dyn Recorder) {
        self.defrag.clear();
        self.discard(Reason::Defrag.into_decision(), recorder);
    }

    /// Whether [`Worker::take_released`] has something.
    #[must_use]
    pub const fn has_released(&self) -> bool {
        self.defrag.outgoing() > 0
    }

    /// The next frame of a datagram that may leave: `bytes` becomes the frame, before the one in hand. Gives where it had come in
    /// by ([`Worker::arrives_by`]), and when. It has been counted as forwarded.
    pub fn take_released(&mut self, bytes: &mut Vec<u8>) -> Option<(u32, Timestamp)> {
        let length = self.defrag.pop_outgoing(bytes)?;
        let note = Note::from_bytes(bytes.get(..length).unwrap_or_default());
        bytes.drain(..length);
        Some((note.arrived_by, note.now))
    }

    /// Where the frames that are handed in from now on have come in by: the caller's own number, which comes back with
    /// [`Worker::take_released`]. Fragments that come by different ways are no datagram.
    pub const fn arrives_by(&mut self, number: u32) {
        self.arrived_by = number;
    }

    fn refuse_frame(&mut self, frame: &Frame<'_>, reason: Reason, recorder: &mut dyn Recorder) -> Settled {
        let decision = reason.into_decision();
        self.record_refused(frame, decision, recorder);
        Settled::Decided(decision)
    }

    fn record_refused(&mut self, frame: &Frame<'_>, decision: Decision, recorder: &mut dyn Recorder) {
        let mut output = DecodeOutput::new();
        // It was counted when it came.
        crate::pseudo::uncounted(&mut self.decoder, |decoder| {
            decoder.decode(frame.link_type, frame.bytes, frame.wire_len, &mut output);
        });
        let Some(packet) = output.outer() else { return };
        let occasion = Occasion {
            packet: &PacketView::new(frame.bytes, packet),
            number: frame.number,
            now: frame.now,
            generation: self.chains.generation,
            direction: Direction::ToServer,
            around: None,
            variables: &[],
        };
        recorder.refused(&occasion, None, &Fate { decision, reject: None }, &[]);
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

/// What a frame that waits is kept with: all of [`Frame`] but the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Note {
    now: Timestamp,
    number: Option<u64>,
    wire_len: u32,
    arrived_by: u32,
    link_type: LinkType,
    link: LinkId,
}

impl Note {
    const LEN: usize = 32;

    const fn of(frame: &Frame<'_>, arrived_by: u32) -> Note {
        let Frame { now, bytes: _, wire_len, link_type, link, number } = *frame;
        Note { now, number, wire_len, arrived_by, link_type, link }
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

    fn from_bytes(bytes: &[u8]) -> Note {
        let word = |at: usize| -> u32 {
            let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
            part.map_or(0, |part| u32::from_le_bytes(*part))
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at.saturating_add(4))) << 32;
        Note {
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
        let Note { now, number, wire_len, arrived_by: _, link_type, link } = self;
        Frame { now, bytes, wire_len, link_type, link, number }
    }
}

/// By what a fragment came, beyond its headers: port, hardware address of the receiver, VLAN tags.
fn path_of(worker: &Worker, view: &PacketView<'_>) -> [u64; 2] {
    let receiver = view.mac_addresses().map_or([0; 6], |(_, destination)| destination);
    let receiver = receiver.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let vlan = &view.decoded().vlan;
    let tags = vlan.as_slice();
    let ids = tags.iter().fold(tags.len() as u64, |number, id| number << 12 | u64::from(*id));
    [receiver | u64::from(worker.arrived_by & 1) << 48, ids]
}

fn fragment_of<'b>(
    worker: &Worker,
    frame: &Frame<'_>,
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
                path: path_of(worker, &view),
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
                path: path_of(worker, &view),
                reserved: reserved_bits(&view, part.header),
                next_header: part.next_header,
                payload,
            };
            (f, part.id, 0)
        }
        _ => return None,
    };
    let separate = |setting: bool| setting || worker.settings.prevention;
    let key = FragmentKey {
        tenant: worker.tenant_of(frame, packet),
        link: Some(frame.link),
        // Fragments go one way, so in prevention what comes by another tag or tunnel is another datagram in any case.
        vlans: if separate(worker.settings.vlan_in_key) { packet.vlan.padded() } else { [0; 3] },
        tunnel: if separate(worker.settings.tunnel_in_key) { packet.tunnel.key() } else { 0 },
        src: packet.src()?,
        dst: packet.dst()?,
        id,
        protocol,
        recursion: packet.recursion,
    };
    Some((key, fragment))
}

/// Whether a fragment header of IPv6 has a bit set that means nothing.
fn reserved_bits(view: &PacketView<'_>, at: u32) -> bool {
    let header = view.frame().get(at as usize..).unwrap_or_default();
    header.get(1).is_some_and(|byte| *byte != 0) || header.get(3).is_some_and(|byte| byte & 6 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_as_it_was() {
        let note = Note {
            now: Timestamp::from_nanos(1 << 60 | 5),
            number: Some(1 << 40),
            wire_len: 70_000,
            arrived_by: 3,
            link_type: LinkType::ETHERNET,
            link: LinkId(9),
        };
        assert_eq!(Note::from_bytes(&note.to_bytes()), note);
        let none = Note { number: None, ..note };
        assert_eq!(Note::from_bytes(&none.to_bytes()), none);
    }
}
