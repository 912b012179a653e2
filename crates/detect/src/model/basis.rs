// SPDX-License-Identifier: Apache-2.0
//! What a rule with payload is evaluated on: packets, the stream, or both.

use crate::model::buffers::BufferRef;
use crate::model::content::{Literal, Program};
use crate::model::signature::{FlowNeeds, Signature};

/// Which packets a rule on packets and streams is evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// None: it looks at the stream only.
    None,
    /// Those whose payload is no part of the stream, as before the handshake is complete.
    OutsideStream,
    /// Each.
    All,
}

/// What a rule on packets and streams is evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// Packets one by one.
    pub packets: Packets,
    /// The reassembled stream.
    pub stream: bool,
}

impl Basis {
    /// Of a rule. As in Suricata, a TCP rule with payload looks
    ///
    /// * at the stream only, if `flow:only_stream` says so;
    /// * at packets only, if it asks for something that only a packet has (`dsize`, `flags`, `tcp.hdr`,
    ///   `tcp-pkt`), which addresses (`ip.src`, `ip.dst`) are not;
    /// * at the stream and at each packet, if a content has a place counted from the beginning (`depth`,
    ///   `offset`, `startswith`), or `stream_size` is asked for: where a message begins, a segment most often
    ///   does, too;
    /// * else at the stream, and at what never became part of it.
    #[must_use]
    pub fn of(signature: &Signature) -> Basis {
        let payload = signature.values.iter().any(|v| v.buffer == BufferRef::Payload);
        let tcp = signature.protocol.ip.is_empty() || signature.protocol.ip.contains(&6);
        if payload && signature.flow.contains(FlowNeeds::ONLY_STREAM) {
            // Over UDP there is no stream: such a rule never matches.
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

/// The literals that a rule looks for in payloads.
pub(crate) fn payload_literals(signature: &Signature) -> impl Iterator<Item = &Literal> {
    payload_programs(signature).flat_map(|program| program.literals().map(|(_, literal)| literal))
}

/// What a rule asks of payloads as they are.
pub(crate) fn payload_programs(signature: &Signature) -> impl Iterator<Item = &Program> {
    let payload =
        signature.values.iter().filter(|v| v.buffer == BufferRef::Payload && v.transforms.is_empty());
    payload.map(|v| &v.program)
}
