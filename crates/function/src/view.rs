// SPDX-License-Identifier: Apache-2.0
//! A function's view of a flow.

use bartizan_applayer::flow::AppSummary;
use bartizan_base::{Direction, PerDirection, TenantId, Timestamp};
use bartizan_flow::tcp::TcpSession;
use core::net::IpAddr;

/// A flow for functions and detection: plain values and borrowed, read-only state.
#[derive(Clone, Copy)]
pub struct FlowView<'a> {
    /// Number of the flow in events: unique in a run.
    pub id: u64,
    /// The tenant.
    pub tenant: TenantId,
    /// IP protocol.
    pub protocol: u8,
    /// Address and port of the side that opened the flow.
    pub client: (IpAddr, u16),
    /// Address and port of the other side.
    pub server: (IpAddr, u16),
    /// The flow was first seen in the wrong direction, and reversed: earlier state by direction has been
    /// swapped.
    pub turned: bool,
    /// Time of the first packet.
    pub start: Timestamp,
    /// Time of the last packet before this one.
    pub last_seen: Timestamp,
    /// Packets so far, this one included.
    pub packets: PerDirection<u64>,
    /// Bytes of frames so far, this one included.
    pub bytes: PerDirection<u64>,
    /// TCP: the handshake is complete (or the flow was picked up midstream); others: both directions were
    /// seen.
    pub established: bool,
    /// The direction had more bytes within an interval than the limit for elephant flows
    /// (`flow.rate-tracking`).
    pub elephant: PerDirection<bool>,
    /// TCP state, if the flow is TCP and tracked.
    pub tcp: Option<&'a TcpSession>,
    /// The state of the application protocol.
    pub app: AppSummary,
}

impl FlowView<'_> {
    /// Sender of the packets of a direction.
    #[must_use]
    pub const fn source(&self, direction: Direction) -> (IpAddr, u16) {
        match direction {
            Direction::ToServer => self.client,
            Direction::ToClient => self.server,
        }
    }

    /// Receiver of the packets of a direction.
    #[must_use]
    pub const fn destination(&self, direction: Direction) -> (IpAddr, u16) {
        self.source(direction.flip())
    }
}
