// SPDX-License-Identifier: Apache-2.0
//! States of a session, and their meaning for the flow.

/// Coarse state of a flow, for flow timeouts and EVE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionPhase {
    /// No full handshake yet.
    #[default]
    New,
    /// Both sides talk.
    Established,
    /// Ended or ending.
    Closed,
}

/// State of a session, as seen from the wire: `close_wait` means that the client has closed first,
/// `fin_wait1` that the server has. The order is Suricata's and is used ("at least last_ack").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TcpState {
    /// No session.
    #[default]
    None = 0,
    /// SYN seen.
    SynSent = 1,
    /// SYN/ACK seen.
    SynRecv = 2,
    /// Handshake complete.
    Established = 3,
    /// The server sent FIN.
    FinWait1 = 4,
    /// The server's FIN is acknowledged.
    FinWait2 = 5,
    /// Both FINs seen.
    TimeWait = 6,
    /// The server sent FIN after the client.
    LastAck = 7,
    /// The client sent FIN.
    CloseWait = 8,
    /// Both sent FIN at once.
    Closing = 9,
    /// Over.
    Closed = 10,
}

impl TcpState {
    /// Name as in EVE's `tcp.state`; none without a session.
    #[must_use]
    pub const fn eve_name(self) -> Option<&'static str> {
        Some(match self {
            TcpState::None => return None,
            TcpState::SynSent => "syn_sent",
            TcpState::SynRecv => "syn_recv",
            TcpState::Established => "established",
            TcpState::FinWait1 => "fin_wait1",
            TcpState::FinWait2 => "fin_wait2",
            TcpState::TimeWait => "time_wait",
            TcpState::LastAck => "last_ack",
            TcpState::CloseWait => "close_wait",
            TcpState::Closing => "closing",
            TcpState::Closed => "closed",
        })
    }

    /// The flow state for this state.
    #[must_use]
    pub const fn flow_state(self) -> SessionPhase {
        match self {
            TcpState::None | TcpState::SynSent | TcpState::SynRecv => SessionPhase::New,
            TcpState::Established
            | TcpState::FinWait1
            | TcpState::FinWait2
            | TcpState::Closing
            | TcpState::CloseWait => SessionPhase::Established,
            TcpState::LastAck | TcpState::TimeWait | TcpState::Closed => SessionPhase::Closed,
        }
    }
}
