// SPDX-License-Identifier: Apache-2.0
//! Changes to the current packet before it leaves: noted while the packet is judged, applied by the
//! normaliser.

use crate::normaliser::{self, NormaliserCounters, Resize, Rewrite};
use crate::settings::EngineSettings;
use bartizan_flow::stream::Stream;
use bartizan_flow::tcp::{Seq, UrgentPolicy};
use bartizan_function::Edit;
use bartizan_packet::{Decoded, PacketSource, PacketView, TcpFlags, TransportLayer};

/// The change to the current frame before it leaves, collected while the frame is judged.
#[derive(Default)]
pub struct Leaving {
    /// The change that the current frame needs before it may leave.
    pub change: Option<Rewrite>,
    spare: Rewrite,
    /// Counters of the changes applied to held frames.
    pub done: NormaliserCounters,
}

/// The result of noting the bytes that rules replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// There is nothing to replace, or the packet does not leave.
    Nothing,
    /// The replacements are noted.
    Noted,
    /// The packet cannot be changed.
    Refused,
}

impl Leaving {
    /// Takes the memory of a change back.
    pub fn reuse(&mut self, change: Rewrite) {
        self.spare = change;
    }

    /// Notes the change that puts inspected bytes back into the current packet.
    pub fn note(&mut self, view: &PacketView<'_>, restore: impl FnOnce(&mut [u8]) -> bool) {
        let mut change = core::mem::take(&mut self.spare);
        change.reset_to(view);
        if restore(&mut change.bytes) {
            change.restored = true;
            self.change = Some(change);
        } else {
            self.spare = change;
        }
    }

    /// Notes a change of the position at which the current packet's payload begins.
    pub fn note_resize(&mut self, view: &PacketView<'_>, resize: Resize) {
        self.note(view, |_| true);
        if let Some(change) = &mut self.change {
            (change.restored, change.resize) = (false, resize);
        }
    }

    /// Notes that the urgent flag of the current packet must be cleared, in addition to earlier notes.
    pub fn note_urgent(&mut self, view: &PacketView<'_>) {
        self.note_header(view, |change| change.urgent = true);
    }

    /// Notes that the Multipath TCP options of the current packet must be removed, in addition to earlier
    /// notes.
    pub fn note_multipath(&mut self, view: &PacketView<'_>) {
        self.note_header(view, |change| change.multipath = true);
    }

    fn note_header(&mut self, view: &PacketView<'_>, also: impl FnOnce(&mut Rewrite)) {
        // A segment with a wrong checksum keeps it, so that its receiver discards it.
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

    /// Notes that the transport checksum of the current packet has to be computed, unless an earlier note
    /// implies that: its sender left it to hardware, and no device after this one computes it.
    pub fn note_checksum(&mut self, view: &PacketView<'_>) {
        let several = view.decoded().is_in_several_frames();
        if self.change.is_some() || several || !view.l4_checksum_is_due() {
            return;
        }
        self.note(view, |_| true);
        if let Some(change) = &mut self.change {
            (change.restored, change.due) = (false, true);
        }
    }

    /// Notes the replacements by rules in the current packet, in addition to restored bytes. For packets that
    /// leave inline.
    ///
    /// A packet that was reassembled from fragments or found in a tunnel stays unchanged: its fragments and
    /// the outer checksums would not match any more.
    pub fn note_edits(&mut self, edits: &[Edit], view: &PacketView<'_>) -> Replaced {
        if edits.is_empty() {
            return Replaced::Nothing;
        }
        let packet = view.decoded();
        let came = matches!(packet.source, PacketSource::Wire | PacketSource::Ordered);
        let made = packet.recursion > 0 || !came || packet.is_in_several_frames();
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

/// Whether the urgent flag has to be cleared: prevention inspects urgent bytes in their place, and the
/// receiver must read them in their place too.
pub fn has_urgent_to_clear(settings: &EngineSettings, packet: &Decoded) -> bool {
    let reads_in_place = settings.stream.reassembly.urgent == UrgentPolicy::Inline;
    let TransportLayer::Tcp(tcp) = &packet.transport else { return false };
    settings.prevention && reads_in_place && tcp.flags.contains(TcpFlags::URG)
}

/// Whether the Multipath TCP options have to be removed: prevention with real receivers. Without them the
/// receiver reads the stream in the order of its sequence numbers; with them in the order of their mappings,
/// perhaps over several connections (RFC 8684 section 3.3).
pub fn has_multipath_to_clear(settings: &EngineSettings, packet: &Decoded) -> bool {
    packet.transport.tcp().is_some_and(|tcp| tcp.options.multipath) && settings.has_real_receivers()
}

/// Writes a packet's frame to `into`, with the inspected bytes in place of bytes that differ. `false`: no
/// byte differs.
pub fn restore(packet: &PacketView<'_>, stream: &Stream, into: &mut Vec<u8>) -> bool {
    let TransportLayer::Tcp(tcp) = &packet.decoded().transport else { return false };
    let mut change = Rewrite::default();
    change.reset_to(packet);
    into.clear();
    into.extend_from_slice(packet.frame());
    // Changes to the packet itself are counted when it leaves.
    let uncounted = &mut NormaliserCounters::default();
    stream.restore(Seq(tcp.seq), &mut change.bytes)
        && normaliser::rewrite(into, &change, &[], &mut Vec::new(), uncounted)
}
