// SPDX-License-Identifier: Apache-2.0
//! The trait by which security functions see payloads, and their verdicts.

use bartizan_base::TenantId;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

/// Number of a stream: unique while the engine runs, so that logs name one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// Direction of payloads, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadDirection {
    /// From the guest's program to its peer.
    Outgoing,
    /// From the peer to the guest's program.
    Incoming,
}

/// The properties of a stream that do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The stream's number.
    pub id: StreamId,
    /// The guest's tenant, from the descriptor that the guest was started with.
    pub tenant: TenantId,
    /// Number of the guest.
    pub guest: u16,
    /// Process that opened the stream, as the kernel names it.
    pub process: i32,
    /// Number of the joining by which this process opened it: another one after each `fork` and `exec`, so
    /// that what is known of the process may be kept. `None`: another process has named this one.
    pub joined: Option<u64>,
    /// The guest's address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The guest accepted the connection (its program is the server).
    pub accepted: bool,
    /// It is a socket of datagrams; the ends are those of the last one.
    pub is_datagram: bool,
    /// The peer is a stream of a guest of this engine: no TCP is in between. The client's end is the first
    /// that an inspector hears of.
    pub partner: Option<StreamPartner>,
}

/// The other end of a stream between guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPartner {
    /// The stream's number.
    pub id: StreamId,
    /// Number of its guest.
    pub guest: u16,
}

/// Payload of one direction that no verdict covers yet.
#[derive(Clone, Copy, Debug)]
pub struct PayloadWindow<'p> {
    /// The direction.
    pub direction: PayloadDirection,
    /// Position in the direction's bytes of the first one here, from 0.
    pub position: u64,
    /// The bytes, in order, in the engine's own memory: the guest cannot change them.
    pub bytes: &'p [u8],
    /// Index of the first byte that was not in the window of an earlier call.
    pub fresh: usize,
    /// The direction ends after these bytes.
    pub end: bool,
}

/// The verdict of a function on a [`PayloadWindow`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadVerdict {
    /// The first bytes may leave; the rest waits for more. More than the window has means all of it.
    Pass(usize),
    /// Nothing leaves until more bytes, the end or the time-out of holding.
    Hold {
        /// The inspector is asked again after this time, with the same bytes if no others came. Without it
        /// an end cannot be held: the bytes before it go by the policy of the time-out.
        retry_after: Option<Duration>,
    },
    /// The stream is blocked in both directions.
    Drop,
    /// Bytes of the window are replaced, which then leaves up to the end of the replacement.
    Replace {
        /// The replaced bytes, as indices in the window.
        range: Range<usize>,
        /// The bytes in their place.
        with: Vec<u8>,
    },
    /// All of the window and the direction's rest leave without any further call.
    Bypass,
}

/// The verdict on a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramVerdict {
    /// It goes on.
    Pass,
    /// It is dropped. A connected socket that sent it gets `EACCES` with the next call.
    Drop,
    /// It is dropped. A connected socket that sent it gets `ECONNREFUSED` with the next call.
    Reject,
    /// It goes on with these bytes, as many as it has.
    Replace(Vec<u8>),
}

/// Decision on a new stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Its payloads are inspected.
    Inspect,
    /// It is refused: the program gets `EACCES`, an accepted connection is reset.
    Refuse,
}

/// A consumer of payloads: the data plane, which runs the chain of functions. The engine runs no chain.
pub trait PayloadInspector {
    /// Decides on a stream before its first byte: at `connect`, before a SYN is sent, and after a connection
    /// was accepted.
    fn admit(&mut self, stream: &StreamInfo) -> Admission {
        let _ = stream;
        Admission::Inspect
    }

    /// Inspects payload of a stream. Called when there are new bytes or the direction ends.
    fn inspect(&mut self, stream: &StreamInfo, window: PayloadWindow<'_>) -> PayloadVerdict;

    /// Judges a datagram before it leaves or is delivered; one that nobody judges is dropped.
    fn datagram(
        &mut self,
        socket: &StreamInfo,
        direction: PayloadDirection,
        bytes: &[u8],
    ) -> DatagramVerdict {
        let _ = (socket, direction, bytes);
        DatagramVerdict::Drop
    }

    /// The stream is gone.
    fn close(&mut self, stream: &StreamInfo) {
        let _ = stream;
    }
}
