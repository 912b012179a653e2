// SPDX-License-Identifier: Apache-2.0
//! What the stream engine says about one packet.

use super::{EventList, ExceptionPolicy, ExceptionTarget, SessionPhase, TcpState};
use bartizan_base::{PerDirection, Reason};
use bitflags::bitflags;

/// What happens to the packet inline, as far as the stream engine is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// It goes on as it is.
    #[default]
    Forward,
    /// It goes on with the inspected bytes put back ([`crate::stream::Stream::restore`]).
    Rewrite,
    /// It goes on with so many bytes in front, those from the beginning of the stream to where it stands
    /// ([`crate::stream::Stream::beginning`]): whoever takes it for the first segment reads the stream from
    /// its beginning.
    Complete(u8),
    /// It goes on without so many bytes at the front of its data: its receiver has them, and nobody can
    /// compare them any more. Where nothing is left, the number stays, so that the receiver answers as it
    /// does to old data; a FIN stands at its own.
    Trim(u32),
    /// It does not go on.
    Drop(Reason),
}

bitflags! {
    /// What kind of packet this was for its session.
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
        /// Changes the window and nothing else.
        const WINDOW_UPDATE = 1 << 4;
        /// Acknowledges what was acknowledged before.
        const DUPLICATE_ACK = 1 << 5;
        /// Zero-window probe.
        const ZERO_WINDOW_PROBE = 1 << 6;
        /// Answer to a zero-window probe.
        const ZERO_WINDOW_PROBE_ACK = 1 << 7;
        /// Acknowledges data that was not seen.
        const ACK_UNSEEN_DATA = 1 << 8;
        /// It changed the state of the session.
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
    /// What happens to the packet inline.
    pub advice: Advice,
    /// What kind of packet it was.
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
    /// The packet opens another session on the same tuple; nothing was done with it. Make a new
    /// flow and hand the packet to that.
    pub reuse: bool,
    /// The session does not explain the packet: state, sequence or acknowledgement number are wrong.
    pub rejected: bool,
    /// The checksum is wrong; the packet was not looked at.
    pub checksum_invalid: bool,
    /// A session was made by this packet.
    pub created: bool,
    /// An exception policy was applied.
    pub exception: Option<(ExceptionTarget, ExceptionPolicy)>,
    /// The flow may be bypassed: its depth is reached.
    pub bypass: bool,
}
