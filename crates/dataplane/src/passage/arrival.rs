// SPDX-License-Identifier: Apache-2.0
//! A packet on its way through a worker.

use bartizan_base::Direction;
use bartizan_packet::{Decoded, PacketFlags, PacketView};
use bartizan_stages::record::EventContext;

/// A packet with its event context.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) packet: &'a PacketView<'a>,
    pub(super) occasion: EventContext<'a>,
}

impl<'a> Arrival<'a> {
    /// The arrival with a direction; made in `room` if that is another one.
    pub(super) fn directed<'s>(&'s self, direction: Direction, room: &'s mut Option<Self>) -> &'s Self {
        if direction == self.occasion.direction { self } else { room.insert(self.with_direction(direction)) }
    }

    /// The arrival with a direction.
    pub(super) const fn with_direction(self, direction: Direction) -> Self {
        Arrival { occasion: self.occasion.with_direction(direction), ..self }
    }

    pub(super) fn decoded(&self) -> &'a Decoded {
        self.packet.decoded()
    }

    /// Bytes that the packet adds to its flow's counters.
    pub(super) fn length(&self) -> u32 {
        let packet = self.decoded();
        if packet.flags.contains(PacketFlags::REBUILT) { packet.wire_len } else { packet.length() }
    }
}
