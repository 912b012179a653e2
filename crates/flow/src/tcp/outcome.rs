// SPDX-License-Identifier: Apache-2.0
//! The result of the stream engine for one packet.

use super::{EventList, ExceptionPolicy, ExceptionTarget, SessionPhase, TcpState};
use bartizan_base::{PerDirection, Reason};
use bitflags::bitflags;

/// The stream engine's advice on the packet, inline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Forward the packet unchanged.
    #[default]
    Forward,
    /// Forward the packet with the inspected bytes restored ([`crate::stream::Stream::restore`]).
    Rewrite,
    /// Forward the packet with this number of bytes in front, those between the beginning of the stream and
    /// the packet ([`crate::stream::Stream::beginning`]): a receiver that takes it for the first segment
    /// reads the stream from its beginning.
    Complete(u8),
    /// Forward the packet without this number of bytes at the front of its data, which its receiver has and
    /// which cannot be compared any more. If no data is left, the packet keeps its sequence number, so that
    /// the receiver answers as to old data; a FIN keeps its own number.
    Trim(u32),
    /// Drop the packet.
    Drop(Reason),
}

bitflags! {
    /// The kind of the packet with regard to its session.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PacketKind: u16 {
        /// Its data was sent before.
        const RETRANSMISSION = 1;
        /// Its data was sent and acknowledged before.
        const SPURIOUS_RETRANSMISSION = 1 << 1;
        /// Keep-alive probe.
        const KEEP_ALIVE = 1 << 2;
        /// Answer to a keep-alive probe.
        const KEEP_ALIVE_ACK = 1 << 3;
        /// Only changes the window.
        const WINDOW_UPDATE = 1 << 4;
        /// Acknowledges nothing new.
        const DUPLICATE_ACK = 1 << 5;
        /// Zero-window probe.
        const ZERO_WINDOW_PROBE = 1 << 6;
        /// Answer to a zero-window probe.
        const ZERO_WINDOW_PROBE_ACK = 1 << 7;
        /// Acknowledges data that was not seen.
        const ACK_UNSEEN_DATA = 1 << 8;
        /// The packet changed the state of the session.
        const STATE_UPDATE = 1 << 9;
    }
}

/// The result of one segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// State before the packet.
    pub previous: TcpState,
    /// State after the packet.
    pub state: TcpState,
    /// The flow's coarse state changed to this.
    pub flow_state: Option<SessionPhase>,
    /// Events in the order in which they arose.
    pub events: EventList,
    /// The advice on the packet, inline.
    pub advice: Advice,
    /// The kind of the packet.
    pub kind: PacketKind,
    /// Directions whose readers have to be run now: new bytes, a gap or the end became visible.
    pub readable: PerDirection<bool>,
    /// The packet's payload is part of its stream (Suricata's `PKT_STREAM_ADD`).
    pub stored: bool,
    /// The session is established or beyond.
    pub established: bool,
    /// The flow counts as established from this packet on, although it completes the handshake.
    pub established_now: bool,
    /// A SYN/ACK was picked up: the flow has to be reversed, the packet goes to the client.
    pub reverse: bool,
    /// The packet opens another session on the same tuple and was not handled. The caller makes a new flow
    /// for the packet.
    pub reuse: bool,
    /// The packet does not fit the session: state, sequence or acknowledgement number are wrong.
    pub rejected: bool,
    /// The checksum is wrong; the packet was not handled.
    pub checksum_invalid: bool,
    /// A session was made by this packet.
    pub created: bool,
    /// An exception policy was applied.
    pub exception: Option<(ExceptionTarget, ExceptionPolicy)>,
    /// The flow may be bypassed: its depth is reached.
    pub bypass: bool,
}
