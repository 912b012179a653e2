// SPDX-License-Identifier: Apache-2.0
//! What a function sees of a flow.

use bartizan_applayer::flow::AppSummary;
use bartizan_base::{Direction, PerDirection, TenantId, Timestamp};
use bartizan_flow::tcp::TcpSession;
use core::net::IpAddr;

/// A flow as functions and detection see it: plain values and borrowed state, nothing to change.
#[derive(Clone, Copy)]
pub struct FlowView<'a> {
    /// Number of the flow in events: unique in a run.
    pub id: u64,
    /// Whose traffic.
    pub tenant: TenantId,
    /// IP protocol.
    pub protocol: u8,
    /// Address and port of the side that opened the flow.
    pub client: (IpAddr, u16),
    /// Address and port of the other side.
    pub server: (IpAddr, u16),
    /// It was first seen the wrong way round, and turned: what was kept by direction before that has changed
    /// sides.
    pub turned: bool,
    /// Time of the first packet.
    pub start: Timestamp,
    /// Time of the last packet before this one.
    pub last_seen: Timestamp,
    /// Packets so far, this one included.
    pub packets: PerDirection<u64>,
    /// Bytes of frames so far, this one included.
    pub bytes: PerDirection<u64>,
    /// TCP: the handshake is complete (or the flow was picked up midstream); others: both sides were seen.
    pub established: bool,
    /// More came in the direction within an interval than makes an elephant flow (`flow.rate-tracking`).
    pub elephant: PerDirection<bool>,
    /// TCP state, if it is TCP and tracked.
    pub tcp: Option<&'a TcpSession>,
    /// What is known of the application protocol.
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
