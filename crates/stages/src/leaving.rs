// SPDX-License-Identifier: Apache-2.0
//! What is changed in the packet in hand before it leaves: noted while it is judged, done by the normaliser.

use crate::normaliser::{self, NormaliserCounters, Resize, Rewrite};
use crate::settings::EngineSettings;
use bartizan_flow::stream::Stream;
use bartizan_flow::tcp::{Seq, UrgentPolicy};
use bartizan_function::Edit;
use bartizan_packet::{Decoded, PacketFlags, PacketSource, PacketView, TcpFlags, Transport};

/// See the module.
#[derive(Default)]
pub struct Leaving {
    /// The change that the frame in hand needs before it may leave.
    pub change: Option<Rewrite>,
    spare: Rewrite,
    /// What was done to frames that waited.
    pub done: NormaliserCounters,
}

/// What became of the bytes that rules wanted to have replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// There was nothing to be replaced, or the packet does not leave.
    Nothing,
    /// They are noted.
    Noted,
    /// The packet cannot be changed.
    Refused,
}

impl Leaving {
    /// Gives the memory of a change back.
    pub fn reuse(&mut self, change: Rewrite) {
        self.spare = change;
    }

    /// Notes the change that puts inspected bytes back into the packet in hand.
    pub fn note(&mut self, view: &PacketView<'_>, restore: impl FnOnce(&mut [u8]) -> bool) {
        let mut change = core::mem::take(&mut self.spare);
        change.take_up(view);
        if restore(&mut change.bytes) {
            change.restored = true;
            self.change = Some(change);
        } else {
            self.spare = change;
        }
    }

    /// Notes that the packet in hand leaves with another beginning.
    pub fn note_resize(&mut self, view: &PacketView<'_>, resize: Resize) {
        self.note(view, |_| true);
        if let Some(change) = &mut self.change {
            (change.restored, change.resize) = (false, resize);
        }
    }

    /// Notes that the urgent flag of the packet in hand is to be taken off, beside what is noted already.
    pub fn note_urgent(&mut self, view: &PacketView<'_>) {
        self.note_header(view, |change| change.urgent = true);
    }

    /// Notes that the options of Multipath TCP of the packet in hand are to be taken out, beside what is
    /// noted already.
    pub fn note_multipath(&mut self, view: &PacketView<'_>) {
        self.note_header(view, |change| change.multipath = true);
    }

    fn note_header(&mut self, view: &PacketView<'_>, also: impl FnOnce(&mut Rewrite)) {
        // A segment that its receiver refuses is not made right.
        if view.l4_checksum_ok() != Some(true) {
            return;
        }
        if self.change.is_none() {
            self.note(view, |_| true);
            if let Some(change) = &mut self.change {
                change.restored = false;
            }
        }
        if let Some(change) = &mut self.change {
            also(change);
        }
    }

    /// Notes that the transport checksum of the packet in hand is still to be made right, if nothing else is
    /// noted that does so: its sender left it to hardware, and nobody will do it on the way on.
    pub fn note_checksum(&mut self, view: &PacketView<'_>) {
        let is_rebuilt = view.decoded().flags.contains(PacketFlags::REBUILT);
        if self.change.is_some() || is_rebuilt || !view.l4_checksum_is_due() {
            return;
        }
        self.note(view, |_| true);
        if let Some(change) = &mut self.change {
            (change.restored, change.due) = (false, true);
        }
    }

    /// Notes what rules want to have replaced in the packet in hand, on top of the bytes that are put back.
    /// To be asked of packets that leave, inline.
    ///
    /// A packet that was put together from fragments or found in a tunnel stays as it is: neither its
    /// fragments nor the checksums around it would fit any more.
    pub fn note_edits(&mut self, edits: &[Edit], view: &PacketView<'_>) -> Replaced {
        if edits.is_empty() {
            return Replaced::Nothing;
        }
        let packet = view.decoded();
        let made = packet.recursion > 0
            || packet.source != PacketSource::Wire
            || packet.flags.contains(PacketFlags::REBUILT);
        if made || !matches!(packet.proto(), Some(1 | 6 | 17 | 58)) {
            return Replaced::Refused;
        }
        let mut change = self.change.take().unwrap_or_else(|| {
            let mut change = core::mem::take(&mut self.spare);
            change.bytes.clear();
            change.bytes.extend_from_slice(view.payload());
            change.resize = Resize::default();
            (change.restored, change.replaced, change.due) = (false, false, false);
            (change.urgent, change.multipath) = (false, false);
            change
        });
        for edit in edits {
            let from = edit.offset as usize;
            let place = change.bytes.get_mut(from..from.saturating_add(edit.bytes.len()));
            if let Some(place) = place {
                place.copy_from_slice(&edit.bytes);
            }
        }
        change.payload = packet.payload as usize;
        change.header = packet.l4 as usize;
        change.ends = packet.src().zip(packet.dst());
        change.protocol = packet.proto().unwrap_or(0);
        change.replaced = true;
        self.change = Some(change);
        Replaced::Noted
    }
}

/// Prevention, urgent bytes inspected in their place: whether the receiver has to be told to read them there,
/// too.
pub fn has_urgent_to_clear(settings: &EngineSettings, packet: &Decoded) -> bool {
    let reads_in_place = settings.stream.reassembly.urgent == UrgentPolicy::Inline;
    let Transport::Tcp(tcp) = &packet.transport else { return false };
    settings.prevention && reads_in_place && tcp.flags.contains(TcpFlags::URG)
}

/// Prevention before real receivers: whether options of Multipath TCP are to be taken out, so that the
/// receiver reads the stream in the order of its numbers. With them it reads what their mappings say, perhaps
/// of several connections together (RFC 8684 section 3.3).
pub fn has_multipath_to_clear(settings: &EngineSettings, packet: &Decoded) -> bool {
    packet.transport.tcp().is_some_and(|tcp| tcp.options.multipath) && settings.has_real_receivers()
}

/// Writes a packet's frame to `into`, with the inspected bytes in place of those that differ from them.
/// `false`: there is nothing to put back.
pub fn restore(packet: &PacketView<'_>, stream: &Stream, into: &mut Vec<u8>) -> bool {
    let Transport::Tcp(tcp) = &packet.decoded().transport else { return false };
    let mut change = Rewrite::default();
    change.take_up(packet);
    into.clear();
    into.extend_from_slice(packet.frame());
    // What is done to the packet itself is counted when it leaves.
    let uncounted = &mut NormaliserCounters::default();
    stream.restore(Seq(tcp.seq), &mut change.bytes)
        && normaliser::rewrite(into, &change, &mut Vec::new(), uncounted)
}
