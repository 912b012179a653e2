// SPDX-License-Identifier: Apache-2.0
//! The data on which a rule with payload is evaluated: packets, the stream, or both.

use crate::model::buffers::BufferRef;
use crate::model::content::{Literal, Program};
use crate::model::signature::{FlowNeeds, Signature};

/// The packets on which a rule on packets and streams is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// None: the rule inspects the stream only.
    None,
    /// Packets whose payload is no part of the stream, as before the handshake is complete.
    OutsideStream,
    /// All packets.
    All,
}

/// The data on which a rule on packets and streams is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// Packets one by one.
    pub packets: Packets,
    /// The reassembled stream.
    pub stream: bool,
}

impl Basis {
    /// The basis of a rule. As in Suricata, a TCP rule with payload is evaluated
    ///
    /// * on the stream only, if it has `flow:only_stream`;
    /// * on packets only, if it has a condition on something that only a packet has (`dsize`, `flags`,
    ///   `tcp.hdr`, `tcp-pkt`), which addresses (`ip.src`, `ip.dst`) are not;
    /// * on the stream and on each packet, if a content has a place counted from the beginning (`depth`,
    ///   `offset`, `startswith`), or with `stream_size`: where a message begins, most often a segment begins,
    ///   too;
    /// * otherwise on the stream, and on payload that never became part of it.
    #[must_use]
    pub fn of(signature: &Signature) -> Basis {
        let payload = signature.values.iter().any(|v| v.buffer == BufferRef::Payload);
        let tcp = signature.protocol.ip.is_empty() || signature.protocol.ip.contains(&6);
        if payload && signature.flow.contains(FlowNeeds::ONLY_STREAM) {
            // UDP has no stream, so such a rule never matches.
            return Basis { packets: Packets::None, stream: tcp };
        }
        if !payload || !tcp || signature.protocol.packet_only || signature.flow.contains(FlowNeeds::NO_STREAM)
        {
            return Basis { packets: Packets::All, stream: false };
        }
        if signature.protocol.stream_only {
            return Basis { packets: Packets::OutsideStream, stream: true };
        }
        let packet_bound = signature.packet.iter().any(|c| c.needs_packet())
            || signature.values.iter().any(|v| v.buffer.is_of_one_packet());
        if packet_bound {
            return Basis { packets: Packets::All, stream: false };
        }
        let placed = payload_literals(signature)
            .any(|literal| literal.place.depth.is_some() || literal.place.offset.is_some());
        let both = placed || signature.packet.iter().any(|c| c.wants_packets_too());
        Basis { packets: if both { Packets::All } else { Packets::OutsideStream }, stream: true }
    }
}

/// The literals of a rule that are searched in payloads.
pub(crate) fn payload_literals(signature: &Signature) -> impl Iterator<Item = &Literal> {
    payload_programs(signature).flat_map(|program| program.literals().map(|(_, literal)| literal))
}

/// The programs of a rule on payloads without transforms.
pub(crate) fn payload_programs(signature: &Signature) -> impl Iterator<Item = &Program> {
    let payload =
        signature.values.iter().filter(|v| v.buffer == BufferRef::Payload && v.transforms.is_empty());
    payload.map(|v| &v.program)
}
