// SPDX-License-Identifier: Apache-2.0
//! The facts about a packet that functions read, made in this one place.

use crate::record::{Cause, EventContext};
use bartizan_function::PacketFacts;
use bartizan_packet::PacketView;

/// The facts that the headers of a packet show, without flow, stream and events. `packet`: what functions
/// see of it; header halves also see the addresses and ports of bytes that arrived without one.
pub fn facts_of<'a>(
    occasion: &EventContext<'a>,
    packet: Option<&'a PacketView<'a>>,
    prevention: bool,
) -> PacketFacts<'a> {
    PacketFacts {
        bytes: occasion.bytes().filter(|_| packet.is_none()),
        flow_ends: matches!(occasion.cause, Cause::FlowEnd),
        ..PacketFacts::of(occasion.now, occasion.direction, packet, prevention)
    }
}
