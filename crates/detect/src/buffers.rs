// SPDX-License-Identifier: Apache-2.0
//! The buffers that rules can look at, by name.

use bartizan_applayer::protocol::{BufferKind, BufferSpec, ProtocolId};
use bartizan_applayer::protocols;
use bartizan_base::PerDirection;
use bartizan_packet::PacketView;

/// A buffer of a packet: a function that cuts it out.
pub struct PacketBuffer {
    /// Name of the keyword, `tcp.hdr`.
    pub name: &'static str,
    /// Cuts it out of a packet.
    pub get: for<'p> fn(&'p PacketView<'p>) -> Option<&'p [u8]>,
}

/// Which value a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferRef {
    /// The packet's payload, and for TCP the reassembled stream (no sticky buffer, or `pkt_data`).
    Payload,
    /// A packet buffer: index into [`PACKET_BUFFERS`].
    Packet(u16),
    /// A transaction buffer: index into [`Buffers`].
    Tx(u16),
}

/// A transaction buffer with all protocols that offer it.
#[derive(Clone, Debug)]
pub struct TxBuffer {
    /// Name of the keyword.
    pub name: &'static str,
    /// Who offers it.
    pub providers: Vec<(ProtocolId, &'static BufferSpec)>,
}

impl TxBuffer {
    /// The entry of a protocol.
    #[must_use]
    pub fn of(&self, protocol: ProtocolId) -> Option<&'static BufferSpec> {
        self.providers.iter().find(|(p, _)| *p == protocol).map(|(_, s)| *s)
    }

    /// Directions in which some protocol has it.
    #[must_use]
    pub fn directions(&self) -> PerDirection<bool> {
        let mut all = PerDirection::default();
        for (_, spec) in &self.providers {
            all.to_server |= spec.directions.to_server;
            all.to_client |= spec.directions.to_client;
        }
        all
    }

    /// Whether a transaction can have several values of it.
    #[must_use]
    pub fn is_multi(&self) -> bool {
        self.providers.iter().any(|(_, s)| s.kind == BufferKind::Multi)
    }
}

/// All transaction buffers, gathered from the protocol table.
#[derive(Clone, Debug)]
pub struct Buffers {
    list: Vec<TxBuffer>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}

impl Buffers {
    /// Gathers them.
    #[must_use]
    pub fn new() -> Self {
        let mut list: Vec<TxBuffer> = Vec::new();
        for (index, spec) in protocols::TABLE.iter().enumerate() {
            let protocol = ProtocolId(index as u8);
            for buffer in spec.buffers {
                match list.iter_mut().find(|b| b.name == buffer.name) {
                    Some(known) => known.providers.push((protocol, buffer)),
                    None => list.push(TxBuffer { name: buffer.name, providers: vec![(protocol, buffer)] }),
                }
            }
        }
        Buffers { list }
    }

    /// Finds a buffer by name, packet buffers first.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<BufferRef> {
        if let Some(index) = PACKET_BUFFERS.iter().position(|b| b.name == name) {
            return Some(BufferRef::Packet(index as u16));
        }
        self.list.iter().position(|b| b.name == name).map(|index| BufferRef::Tx(index as u16))
    }

    /// A transaction buffer.
    #[must_use]
    pub fn tx(&self, index: u16) -> Option<&TxBuffer> {
        self.list.get(usize::from(index))
    }

    /// All transaction buffers.
    pub fn iter(&self) -> impl Iterator<Item = &TxBuffer> {
        self.list.iter()
    }

    /// Name of a buffer, for messages.
    #[must_use]
    pub fn name(&self, buffer: BufferRef) -> &'static str {
        match buffer {
            BufferRef::Payload => "payload",
            BufferRef::Packet(index) => PACKET_BUFFERS.get(usize::from(index)).map_or("?", |b| b.name),
            BufferRef::Tx(index) => self.tx(index).map_or("?", |b| b.name),
        }
    }
}

/// The packet buffers.
pub const PACKET_BUFFERS: &[PacketBuffer] = &[];
