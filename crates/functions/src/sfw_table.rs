// SPDX-License-Identifier: Apache-2.0
//! The stateful firewall's decisions as data: tables of values, which the host interprets ([`crate::sfw`])
//! and levels below can interpret.
//!
//! TCP: [`TRANSITIONS`] by the state of the connection before the segment and the class of the segment
//! ([`SegmentClass`]). States are those of TCP tracking ([`TcpState`]). The classification of segments
//! (comparison of numbers with windows, knowledge of tracking) is code, in `sfw_tcp`. All other packets are
//! in [`sfw_messages`](crate::sfw_messages). docs/design/0014-header-halves.md has the whole.
//!
//! Sources: RFC 9293 sections 3.4 to 3.10 (segments that each state accepts), RFC 5961 section 4 (challenge
//! ACKs in reply to a SYN).

use bartizan_base::{Direction, Reason};
use bartizan_flow::tcp::{SessionPhase, TcpState};

/// The action on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SfwAction {
    /// Forward it if its flow is admitted: who may open flows, and how many, is checked once per flow.
    /// Without a flow, the sender must be allowed to open one.
    Admit = 0,
    /// Forward it without a flow.
    Skip = 1,
    /// Refuse it.
    Refuse = 2,
}

/// The timeout of a flow from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Timeout {
    /// That of a flow that is not established.
    New = 0,
    /// That of an established flow.
    Established = 1,
    /// That of a flow that has ended.
    Closed = 2,
}

/// A cell of a table. Its plain bytes ([`Transition::bytes`]) are in the headers for other levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The next state. `None`: it depends on more than the class, and only tracking knows it; a level below
    /// passes the packet up.
    pub next: Option<TcpState>,
    /// The action on the packet.
    pub action: SfwAction,
    /// The reason of a refusal.
    pub reason: Option<Reason>,
    /// The timeout of `next`.
    pub timeout: Option<Timeout>,
}

/// Stands for a missing number.
pub const NONE: u8 = 0xff;

impl Transition {
    /// The numbers of next state, action, reason and timeout; [`NONE`] for a missing one.
    #[must_use]
    pub fn bytes(&self) -> [u8; 4] {
        [
            self.next.map_or(NONE, |state| state as u8),
            self.action as u8,
            self.reason.map_or(NONE, |reason| reason as u8),
            self.timeout.map_or(NONE, |timeout| timeout as u8),
        ]
    }
}

/// The kind of a segment by its flags, if their combination is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// FIN with SYN or RST, SYN with RST, or none of SYN, RST and ACK.
    Broken = 0,
    /// SYN alone.
    Syn = 1,
    /// SYN and ACK.
    SynAck = 2,
    /// RST, with or without ACK.
    Rst = 3,
    /// ACK alone.
    Ack = 4,
    /// FIN and ACK.
    Fin = 5,
}

impl SegmentKind {
    /// All, in the order of their numbers.
    pub const ALL: [SegmentKind; 6] = [
        SegmentKind::Broken,
        SegmentKind::Syn,
        SegmentKind::SynAck,
        SegmentKind::Rst,
        SegmentKind::Ack,
        SegmentKind::Fin,
    ];
}

/// Kind by flags: FIN 1, SYN 2, RST 4, ACK 8.
pub static KINDS: [SegmentKind; 16] = {
    use SegmentKind::{Ack, Broken as No, Fin, Rst, Syn, SynAck};
    [No, No, Syn, No, Rst, No, No, No, Ack, Fin, SynAck, No, Rst, No, No, No]
};

/// The position of an accepted segment in the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentPosition {
    /// The state stays, and the segment has no special position.
    Unchanged = 0,
    /// The state stays, and the state allows the segment: a reply without data to a SYN (of a server that has
    /// an older connection of these ports), a segment of a one-sided connection, or a segment that an ended
    /// connection had in flight.
    Expected = 1,
    /// The state changes.
    Moves = 2,
}

impl SegmentPosition {
    /// All, in the order of their numbers.
    pub const ALL: [SegmentPosition; 3] =
        [SegmentPosition::Unchanged, SegmentPosition::Expected, SegmentPosition::Moves];
}

/// Class of a segment: a number below [`SegmentClass::COUNT`]. Segments that a check has decided have one of
/// the named classes; accepted segments have kind × 8 + place × 2 + direction (1: to the client).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentClass(pub u8);

impl SegmentClass {
    /// The combination of flags is invalid.
    pub const BROKEN: SegmentClass = SegmentClass(0);
    /// The checksum is wrong: the receiver drops the segment, and tracking ignores it.
    pub const UNREAD: SegmentClass = SegmentClass(1);
    /// There is no connection, or one picked up in the middle against the policy.
    pub const NO_CONNECTION: SegmentClass = SegmentClass(2);
    /// A segment of a one-sided connection, which the policy only inspects.
    pub const ONE_SIDED: SegmentClass = SegmentClass(3);
    /// The sequence or acknowledgement number is outside of the window.
    pub const OUT_OF_WINDOW: SegmentClass = SegmentClass(4);
    /// Tracking rejects its numbers, which the policy does not check.
    pub const UNCHECKED: SegmentClass = SegmentClass(5);
    /// Tracking rejects it in this state.
    pub const REFUSED: SegmentClass = SegmentClass(6);
    /// Data of the server in the place of the client's ACK.
    pub const INJECTED: SegmentClass = SegmentClass(7);
    /// Number of classes.
    pub const COUNT: usize = 48;

    /// The named classes, in the order of their numbers.
    pub const NAMED: [(SegmentClass, &'static str); 8] = [
        (SegmentClass::BROKEN, "BROKEN"),
        (SegmentClass::UNREAD, "UNREAD"),
        (SegmentClass::NO_CONNECTION, "NO_CONNECTION"),
        (SegmentClass::ONE_SIDED, "ONE_SIDED"),
        (SegmentClass::OUT_OF_WINDOW, "OUT_OF_WINDOW"),
        (SegmentClass::UNCHECKED, "UNCHECKED"),
        (SegmentClass::REFUSED, "REFUSED"),
        (SegmentClass::INJECTED, "INJECTED"),
    ];

    /// The class of an accepted segment.
    #[inline]
    #[must_use]
    pub const fn taken(kind: SegmentKind, place: SegmentPosition, direction: Direction) -> SegmentClass {
        SegmentClass((kind as u8) << 3 | (place as u8) << 1 | matches!(direction, Direction::ToClient) as u8)
    }
}

/// Every state, in the order of its number, which is the row of the table.
pub const STATES: [TcpState; 11] = [
    TcpState::None,
    TcpState::SynSent,
    TcpState::SynRecv,
    TcpState::Established,
    TcpState::FinWait1,
    TcpState::FinWait2,
    TcpState::TimeWait,
    TcpState::LastAck,
    TcpState::CloseWait,
    TcpState::Closing,
    TcpState::Closed,
];

/// A rule from which rows of the table are made.
struct TransitionRule {
    state: TcpState,
    kinds: &'static [SegmentKind],
    places: &'static [SegmentPosition],
}

/// Accepted segments that a state does not allow; all others are forwarded. Before the SYN/ACK only SYNs,
/// RSTs, and expected segments; after the end only RSTs and expected segments. In all other states a segment
/// needs one of ACK, SYN and RST (RFC 9293 section 3.10.7.4), which each kind has.
const REFUSED: &[TransitionRule] = &[
    TransitionRule {
        state: TcpState::SynSent,
        kinds: &[SegmentKind::Ack, SegmentKind::Fin],
        places: &[SegmentPosition::Unchanged],
    },
    TransitionRule {
        state: TcpState::Closed,
        kinds: &[SegmentKind::Ack, SegmentKind::Fin],
        places: &[SegmentPosition::Unchanged],
    },
    TransitionRule {
        state: TcpState::Closed,
        kinds: &[SegmentKind::Syn, SegmentKind::SynAck],
        places: &[SegmentPosition::Unchanged, SegmentPosition::Expected],
    },
];

const TO_SERVER: &[Direction] = &[Direction::ToServer];
const TO_CLIENT: &[Direction] = &[Direction::ToClient];
const BOTH: &[Direction] = &[Direction::ToServer, Direction::ToClient];

/// The next state of a segment that changes the state, as far as state, kind and direction determine it. The
/// others are up to tracking: a connection that continues after a RST, a server's ACK that took another path.
pub(crate) const MOVES: &[(TcpState, SegmentKind, &[Direction], TcpState)] = &[
    (TcpState::None, SegmentKind::Syn, BOTH, TcpState::SynSent),
    // Picked up in the middle.
    (TcpState::None, SegmentKind::SynAck, BOTH, TcpState::SynRecv),
    (TcpState::None, SegmentKind::Ack, BOTH, TcpState::Established),
    (TcpState::None, SegmentKind::Fin, BOTH, TcpState::FinWait1),
    (TcpState::SynSent, SegmentKind::SynAck, TO_CLIENT, TcpState::SynRecv),
    // The other side is not visible.
    (TcpState::SynSent, SegmentKind::Ack, BOTH, TcpState::Established),
    (TcpState::SynSent, SegmentKind::Rst, TO_CLIENT, TcpState::Closed),
    (TcpState::SynRecv, SegmentKind::Ack, BOTH, TcpState::Established),
    (TcpState::SynRecv, SegmentKind::Fin, TO_SERVER, TcpState::CloseWait),
    (TcpState::SynRecv, SegmentKind::Fin, TO_CLIENT, TcpState::FinWait1),
    (TcpState::SynRecv, SegmentKind::Rst, BOTH, TcpState::Closed),
    (TcpState::Established, SegmentKind::Fin, TO_SERVER, TcpState::CloseWait),
    (TcpState::Established, SegmentKind::Fin, TO_CLIENT, TcpState::FinWait1),
    (TcpState::Established, SegmentKind::Rst, BOTH, TcpState::Closed),
    (TcpState::FinWait1, SegmentKind::Ack, TO_SERVER, TcpState::FinWait2),
    (TcpState::FinWait1, SegmentKind::Fin, BOTH, TcpState::TimeWait),
    (TcpState::FinWait1, SegmentKind::Rst, BOTH, TcpState::Closed),
    (TcpState::FinWait2, SegmentKind::Fin, BOTH, TcpState::TimeWait),
    (TcpState::FinWait2, SegmentKind::Rst, BOTH, TcpState::Closed),
    (TcpState::CloseWait, SegmentKind::Fin, TO_CLIENT, TcpState::LastAck),
    (TcpState::CloseWait, SegmentKind::Rst, BOTH, TcpState::Closed),
    (TcpState::Closing, SegmentKind::Ack, BOTH, TcpState::TimeWait),
    (TcpState::Closing, SegmentKind::Fin, BOTH, TcpState::TimeWait),
    (TcpState::Closing, SegmentKind::Rst, BOTH, TcpState::Closed),
    (TcpState::LastAck, SegmentKind::Ack, TO_SERVER, TcpState::Closed),
    (TcpState::LastAck, SegmentKind::Rst, BOTH, TcpState::Closed),
    (TcpState::TimeWait, SegmentKind::Ack, BOTH, TcpState::Closed),
    (TcpState::TimeWait, SegmentKind::Rst, BOTH, TcpState::Closed),
];

/// The timeout of a state.
#[must_use]
pub const fn timeout_of(state: TcpState) -> Timeout {
    match state.flow_state() {
        SessionPhase::New => Timeout::New,
        SessionPhase::Established => Timeout::Established,
        SessionPhase::Closed => Timeout::Closed,
    }
}

const fn cell(next: Option<TcpState>, action: SfwAction, reason: Option<Reason>) -> Transition {
    let timeout = match next {
        Some(state) => Some(timeout_of(state)),
        None => None,
    };
    Transition { next, action, reason, timeout }
}

const fn has_kind(mut kinds: &[SegmentKind], kind: SegmentKind) -> bool {
    while let [first, rest @ ..] = kinds {
        if *first as u8 == kind as u8 {
            return true;
        }
        kinds = rest;
    }
    false
}

const fn has_place(mut places: &[SegmentPosition], place: SegmentPosition) -> bool {
    while let [first, rest @ ..] = places {
        if *first as u8 == place as u8 {
            return true;
        }
        places = rest;
    }
    false
}

const fn has_direction(mut directions: &[Direction], direction: Direction) -> bool {
    while let [first, rest @ ..] = directions {
        if *first as u8 == direction as u8 {
            return true;
        }
        directions = rest;
    }
    false
}

/// The next state of a segment that changes the state.
const fn moved(state: TcpState, kind: SegmentKind, direction: Direction) -> Option<TcpState> {
    let mut moves = MOVES;
    while let [(from, by, directions, to), rest @ ..] = moves {
        if *from as u8 == state as u8 && *by as u8 == kind as u8 && has_direction(directions, direction) {
            return Some(*to);
        }
        moves = rest;
    }
    None
}

/// The cell of an accepted segment.
const fn taken(
    state: TcpState,
    kind: SegmentKind,
    place: SegmentPosition,
    direction: Direction,
) -> Transition {
    let mut refused = REFUSED;
    while let [rule, rest @ ..] = refused {
        if rule.state as u8 == state as u8 && has_kind(rule.kinds, kind) && has_place(rule.places, place) {
            return cell(Some(state), SfwAction::Refuse, Some(Reason::SfwState));
        }
        refused = rest;
    }
    let next = match place {
        SegmentPosition::Unchanged | SegmentPosition::Expected => Some(state),
        SegmentPosition::Moves => moved(state, kind, direction),
    };
    cell(next, SfwAction::Admit, None)
}

/// The cell of a segment of a named class, in any state. The class does not determine the next state after a
/// refused segment.
const fn named(class: SegmentClass) -> Transition {
    match class {
        SegmentClass::UNREAD | SegmentClass::UNCHECKED => cell(None, SfwAction::Admit, None),
        SegmentClass::ONE_SIDED => cell(None, SfwAction::Skip, None),
        SegmentClass::NO_CONNECTION => cell(None, SfwAction::Refuse, Some(Reason::SfwNoConnection)),
        SegmentClass::OUT_OF_WINDOW => cell(None, SfwAction::Refuse, Some(Reason::SfwWindow)),
        // BROKEN, REFUSED, INJECTED; and undefined numbers.
        _ => cell(None, SfwAction::Refuse, Some(Reason::SfwState)),
    }
}

const fn cell_of(state: TcpState, class: u8) -> Transition {
    let kind = match class >> 3 {
        1 => SegmentKind::Syn,
        2 => SegmentKind::SynAck,
        3 => SegmentKind::Rst,
        4 => SegmentKind::Ack,
        5 => SegmentKind::Fin,
        _ => return named(SegmentClass(class)),
    };
    let place = match class >> 1 & 3 {
        0 => SegmentPosition::Unchanged,
        1 => SegmentPosition::Expected,
        2 => SegmentPosition::Moves,
        _ => return named(SegmentClass::BROKEN),
    };
    taken(state, kind, place, if class & 1 == 0 { Direction::ToServer } else { Direction::ToClient })
}

/// Number of cells in [`TRANSITIONS`].
pub const CELLS: usize = STATES.len() * SegmentClass::COUNT;

/// The decisions on segments: row by state, column by class.
pub static TRANSITIONS: [Transition; CELLS] = {
    let mut table = [named(SegmentClass::BROKEN); CELLS];
    let mut rest: &mut [Transition] = &mut table;
    let mut states: &[TcpState] = &STATES;
    let mut class = 0;
    while let ([state, others @ ..], Some((cell, behind))) = (states, { rest }.split_first_mut()) {
        *cell = cell_of(*state, class);
        rest = behind;
        class += 1;
        if class as usize == SegmentClass::COUNT {
            (states, class) = (others, 0);
        }
    }
    table
};

/// The cell for a segment of a class in a state.
#[inline]
#[must_use]
pub fn transition(state: TcpState, class: SegmentClass) -> Transition {
    let column = usize::from(class.0);
    let cell = TRANSITIONS
        .get(state as usize * SegmentClass::COUNT + column)
        .filter(|_| column < SegmentClass::COUNT);
    cell.copied().unwrap_or(const { named(SegmentClass::BROKEN) })
}

/// The share of a connection in its source's limits, by its state after the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionShare {
    /// A half-open connection.
    HalfOpen = 0,
    /// A connection.
    Open = 1,
    /// Nothing.
    Nothing = 2,
}

/// The share of a state.
#[must_use]
pub const fn share(state: TcpState) -> ConnectionShare {
    match state {
        TcpState::None | TcpState::SynSent | TcpState::SynRecv => ConnectionShare::HalfOpen,
        TcpState::Established
        | TcpState::FinWait1
        | TcpState::FinWait2
        | TcpState::LastAck
        | TcpState::CloseWait
        | TcpState::Closing => ConnectionShare::Open,
        TcpState::TimeWait | TcpState::Closed => ConnectionShare::Nothing,
    }
}
