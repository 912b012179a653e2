// SPDX-License-Identifier: Apache-2.0
//! The stateful firewall's decisions on packets other than segments of a tracked connection, as data:
//! [`EXCHANGES`], by the state of the flow and the kind of message.
//!
//! Sources: RFC 5927 section 4 (ICMP errors), RFC 792 and RFC 4443 (messages of ICMP).

use crate::sfw_table::SfwAction;
use bartizan_base::Reason;

/// The kind of a packet that is no segment of a tracked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SfwMessageKind {
    /// TCP without tracking: the flow table had no room.
    Untracked = 0,
    /// UDP and other protocols.
    Plain = 1,
    /// ICMP query, which opens an exchange.
    Question = 2,
    /// ICMP reply, to the side that opened the exchange.
    Answer = 3,
    /// ICMP reply from the side that opened the exchange.
    AnswerOfAsker = 4,
    /// ICMP error about a packet that the flow has sent.
    Error = 5,
    /// Any other ICMP error.
    StrayError = 6,
    /// Neighbour and multicast listener discovery, without which the link does not work.
    Neighbour = 7,
}

impl SfwMessageKind {
    /// Number of kinds.
    pub const COUNT: usize = 8;
    /// All, in the order of their numbers.
    pub const ALL: [SfwMessageKind; Self::COUNT] = [
        SfwMessageKind::Untracked,
        SfwMessageKind::Plain,
        SfwMessageKind::Question,
        SfwMessageKind::Answer,
        SfwMessageKind::AnswerOfAsker,
        SfwMessageKind::Error,
        SfwMessageKind::StrayError,
        SfwMessageKind::Neighbour,
    ];
}

/// The state of the flow of a packet that is no TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SfwAdmission {
    /// There is no flow.
    NoFlow = 0,
    /// The flow is not admitted yet.
    New = 1,
    /// The flow is admitted.
    Admitted = 2,
}

/// The action on a packet that is no segment, and the reason of a refusal.
pub type ExchangeDecision = (SfwAction, Option<Reason>);

const ADMIT: ExchangeDecision = (SfwAction::Admit, None);
const SKIP: ExchangeDecision = (SfwAction::Skip, None);
const UNRELATED: ExchangeDecision = (SfwAction::Refuse, Some(Reason::SfwUnrelatedIcmp));
const NO_CONNECTION: ExchangeDecision = (SfwAction::Refuse, Some(Reason::SfwNoConnection));

/// Rows by [`SfwAdmission`], columns by [`SfwMessageKind`].
pub static EXCHANGES: [ExchangeDecision; 3 * SfwMessageKind::COUNT] = [
    // Untracked, plain, question, answer, answer of the asker, error, stray error, neighbour.
    NO_CONNECTION,
    ADMIT,
    ADMIT,
    ADMIT,
    ADMIT,
    UNRELATED,
    UNRELATED,
    SKIP, // no flow: who may open is asked of the packet
    ADMIT,
    ADMIT,
    ADMIT,
    ADMIT,
    NO_CONNECTION,
    SKIP,
    UNRELATED,
    SKIP, // new
    ADMIT,
    ADMIT,
    ADMIT,
    ADMIT,
    ADMIT,
    SKIP,
    UNRELATED,
    SKIP, // admitted
];

/// The cell for a message of a flow in a state.
#[inline]
#[must_use]
pub fn exchange(known: SfwAdmission, message: SfwMessageKind) -> ExchangeDecision {
    let place = known as usize * SfwMessageKind::COUNT + message as usize;
    EXCHANGES.get(place).copied().unwrap_or(NO_CONNECTION)
}

/// The kind of an ICMP type, before its direction and its quoted packet are considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IcmpKind {
    /// Opens an exchange.
    Question = 0,
    /// Belongs to an exchange.
    Answer = 1,
    /// Is about a packet of a flow.
    Error = 2,
    /// Neighbour and multicast listener discovery.
    Neighbour = 3,
}

/// Kind of each type of ICMP (RFC 792, RFC 8335); all other types are queries.
pub const fn icmpv4_kind(number: u8) -> IcmpKind {
    match number {
        3 | 4 | 5 | 11 | 12 => IcmpKind::Error,
        0 | 14 | 16 | 18 | 43 => IcmpKind::Answer,
        _ => IcmpKind::Question,
    }
}

/// Kind of each type of ICMPv6 (RFC 4443, RFC 4861, RFC 2710, RFC 3810, RFC 8335).
pub const fn icmpv6_kind(number: u8) -> IcmpKind {
    match number {
        1..=4 => IcmpKind::Error,
        129 | 161 => IcmpKind::Answer,
        130..=137 | 143 => IcmpKind::Neighbour,
        _ => IcmpKind::Question,
    }
}
