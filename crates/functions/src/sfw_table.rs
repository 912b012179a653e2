// SPDX-License-Identifier: Apache-2.0
//! What the stateful firewall decides, as data: tables of values, which the host interprets ([`crate::sfw`])
//! and levels below can.
//!
//! TCP: [`TRANSITIONS`] by the state of the connection before the segment and the class of the segment
//! ([`SegmentClass`]). States are those of TCP tracking ([`TcpState`]). What makes a segment of its class
//! (numbers compared with windows, what tracking knows) is code, in `sfw_tcp`. Everything else is in
//! [`sfw_messages`](crate::sfw_messages). docs/design/0014-header-halves.md has the whole.
//!
//! Sources: RFC 9293 sections 3.4 to 3.10 (what each state takes), RFC 5961 section 4 (answers to a SYN that
//! are none).

use bartizan_base::{Direction, Reason};
use bartizan_flow::tcp::{SessionPhase, TcpState};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// It goes on if its flow is let in: who may open and how many is asked once per flow. Of a packet
    /// without a flow it is asked whether its sender may open one.
    Admit = 0,
    /// It goes on and is nobody's flow.
    Skip = 1,
    /// It does not go on.
    Refuse = 2,
}

/// Which timeout a flow has from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Timeout {
    /// Of a flow that is not established.
    New = 0,
    /// Of one that is.
    Established = 1,
    /// Of one that has ended.
    Closed = 2,
}

/// A cell of a table. As plain bytes ([`Transition::bytes`]) it is what headers for other levels hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// State after it. `None`: it depends on more than the class, and only tracking knows; a level below
    /// hands the packet up.
    pub next: Option<TcpState>,
    /// What becomes of the packet.
    pub action: Action,
    /// Why it does not go on.
    pub reason: Option<Reason>,
    /// The timeout that goes with `next`.
    pub timeout: Option<Timeout>,
}

/// In place of a number: there is none.
pub const NONE: u8 = 0xff;

impl Transition {
    /// Its numbers: state after it, action, reason, timeout; [`NONE`] where there is none.
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

/// What a segment is by its flags, where those can stand in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
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

impl Kind {
    /// All, in the order of their numbers.
    pub const ALL: [Kind; 6] = [Kind::Broken, Kind::Syn, Kind::SynAck, Kind::Rst, Kind::Ack, Kind::Fin];
}

/// Kind by flags: FIN 1, SYN 2, RST 4, ACK 8.
pub static KINDS: [Kind; 16] = {
    use Kind::{Ack, Broken as No, Fin, Rst, Syn, SynAck};
    [No, No, Syn, No, Rst, No, No, No, Ack, Fin, SynAck, No, Rst, No, No, No]
};

/// How a segment that tracking takes lies in the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// The state stays, and nothing more speaks for the segment.
    Stays = 0,
    /// The state stays, and the segment may come in it: an answer without data to a SYN (a server that has an
    /// older connection of these ports), what is seen of a one-sided connection, what a connection that has
    /// ended left under way.
    Expected = 1,
    /// The state changes.
    Moves = 2,
}

impl Place {
    /// All, in the order of their numbers.
    pub const ALL: [Place; 3] = [Place::Stays, Place::Expected, Place::Moves];
}

/// Class of a segment: a number below [`SegmentClass::COUNT`]. Segments that a check has decided have one of
/// the named classes; those that tracking takes have kind × 8 + place × 2 + direction (1: to the client).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentClass(pub u8);

impl SegmentClass {
    /// The flags are those of no segment.
    pub const BROKEN: SegmentClass = SegmentClass(0);
    /// The checksum is wrong: the receiver drops it, and nothing was learnt from it.
    pub const UNREAD: SegmentClass = SegmentClass(1);
    /// There is no connection, or one that was picked up in the middle where the policy wants none.
    pub const NO_CONNECTION: SegmentClass = SegmentClass(2);
    /// Of a one-sided connection that the policy only has inspected.
    pub const ONE_SIDED: SegmentClass = SegmentClass(3);
    /// Its numbers lie outside of the window.
    pub const OUT_OF_WINDOW: SegmentClass = SegmentClass(4);
    /// Tracking does not take its numbers, which the policy does not want to be checked.
    pub const UNCHECKED: SegmentClass = SegmentClass(5);
    /// Tracking does not take it in this state.
    pub const REFUSED: SegmentClass = SegmentClass(6);
    /// Data of the server in the place of the client's ACK.
    pub const INJECTED: SegmentClass = SegmentClass(7);
    /// How many numbers there are.
    pub const COUNT: usize = 48;

    /// The named ones, in the order of their numbers.
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

    /// Of a segment that tracking takes.
    #[inline]
    #[must_use]
    pub const fn taken(kind: Kind, place: Place, direction: Direction) -> SegmentClass {
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

/// What one row of the table is made from.
struct Rule {
    state: TcpState,
    kinds: &'static [Kind],
    places: &'static [Place],
}

/// Segments that tracking takes and a state does not allow: everything else goes on. Before the SYN/ACK only
/// SYNs, RSTs, and what is expected; behind the end only RSTs and what is expected. In all other states a
/// segment needs one of ACK, SYN and RST (RFC 9293 section 3.10.7.4), which each kind has.
const REFUSED: &[Rule] = &[
    Rule { state: TcpState::SynSent, kinds: &[Kind::Ack, Kind::Fin], places: &[Place::Stays] },
    Rule { state: TcpState::Closed, kinds: &[Kind::Ack, Kind::Fin], places: &[Place::Stays] },
    Rule {
        state: TcpState::Closed,
        kinds: &[Kind::Syn, Kind::SynAck],
        places: &[Place::Stays, Place::Expected],
    },
];

const TO_SERVER: &[Direction] = &[Direction::ToServer];
const TO_CLIENT: &[Direction] = &[Direction::ToClient];
const BOTH: &[Direction] = &[Direction::ToServer, Direction::ToClient];

/// Where a segment that changes the state leads, as far as state, kind and direction tell. What is not here
/// is tracking's matter: a connection that goes on behind a RST, a server's ACK that came another way.
pub(crate) const MOVES: &[(TcpState, Kind, &[Direction], TcpState)] = &[
    (TcpState::None, Kind::Syn, BOTH, TcpState::SynSent),
    // Picked up in the middle.
    (TcpState::None, Kind::SynAck, BOTH, TcpState::SynRecv),
    (TcpState::None, Kind::Ack, BOTH, TcpState::Established),
    (TcpState::None, Kind::Fin, BOTH, TcpState::FinWait1),
    (TcpState::SynSent, Kind::SynAck, TO_CLIENT, TcpState::SynRecv),
    // The other side is not seen.
    (TcpState::SynSent, Kind::Ack, BOTH, TcpState::Established),
    (TcpState::SynSent, Kind::Rst, TO_CLIENT, TcpState::Closed),
    (TcpState::SynRecv, Kind::Ack, BOTH, TcpState::Established),
    (TcpState::SynRecv, Kind::Fin, TO_SERVER, TcpState::CloseWait),
    (TcpState::SynRecv, Kind::Fin, TO_CLIENT, TcpState::FinWait1),
    (TcpState::SynRecv, Kind::Rst, BOTH, TcpState::Closed),
    (TcpState::Established, Kind::Fin, TO_SERVER, TcpState::CloseWait),
    (TcpState::Established, Kind::Fin, TO_CLIENT, TcpState::FinWait1),
    (TcpState::Established, Kind::Rst, BOTH, TcpState::Closed),
    (TcpState::FinWait1, Kind::Ack, TO_SERVER, TcpState::FinWait2),
    (TcpState::FinWait1, Kind::Fin, BOTH, TcpState::TimeWait),
    (TcpState::FinWait1, Kind::Rst, BOTH, TcpState::Closed),
    (TcpState::FinWait2, Kind::Fin, BOTH, TcpState::TimeWait),
    (TcpState::FinWait2, Kind::Rst, BOTH, TcpState::Closed),
    (TcpState::CloseWait, Kind::Fin, TO_CLIENT, TcpState::LastAck),
    (TcpState::CloseWait, Kind::Rst, BOTH, TcpState::Closed),
    (TcpState::Closing, Kind::Ack, BOTH, TcpState::TimeWait),
    (TcpState::Closing, Kind::Fin, BOTH, TcpState::TimeWait),
    (TcpState::Closing, Kind::Rst, BOTH, TcpState::Closed),
    (TcpState::LastAck, Kind::Ack, TO_SERVER, TcpState::Closed),
    (TcpState::LastAck, Kind::Rst, BOTH, TcpState::Closed),
    (TcpState::TimeWait, Kind::Ack, BOTH, TcpState::Closed),
    (TcpState::TimeWait, Kind::Rst, BOTH, TcpState::Closed),
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

const fn cell(next: Option<TcpState>, action: Action, reason: Option<Reason>) -> Transition {
    let timeout = match next {
        Some(state) => Some(timeout_of(state)),
        None => None,
    };
    Transition { next, action, reason, timeout }
}

const fn has_kind(mut kinds: &[Kind], kind: Kind) -> bool {
    while let [first, rest @ ..] = kinds {
        if *first as u8 == kind as u8 {
            return true;
        }
        kinds = rest;
    }
    false
}

const fn has_place(mut places: &[Place], place: Place) -> bool {
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

/// Where a segment that moves the state leads.
const fn moved(state: TcpState, kind: Kind, direction: Direction) -> Option<TcpState> {
    let mut moves = MOVES;
    while let [(from, by, directions, to), rest @ ..] = moves {
        if *from as u8 == state as u8 && *by as u8 == kind as u8 && has_direction(directions, direction) {
            return Some(*to);
        }
        moves = rest;
    }
    None
}

/// What becomes of a segment that tracking takes.
const fn taken(state: TcpState, kind: Kind, place: Place, direction: Direction) -> Transition {
    let mut refused = REFUSED;
    while let [rule, rest @ ..] = refused {
        if rule.state as u8 == state as u8 && has_kind(rule.kinds, kind) && has_place(rule.places, place) {
            return cell(Some(state), Action::Refuse, Some(Reason::SfwState));
        }
        refused = rest;
    }
    let next = match place {
        Place::Stays | Place::Expected => Some(state),
        Place::Moves => moved(state, kind, direction),
    };
    cell(next, Action::Admit, None)
}

/// What becomes of a segment of a named class, in whatever state. What tracking has made of one that is
/// refused is no matter of the class.
const fn named(class: SegmentClass) -> Transition {
    match class {
        SegmentClass::UNREAD | SegmentClass::UNCHECKED => cell(None, Action::Admit, None),
        SegmentClass::ONE_SIDED => cell(None, Action::Skip, None),
        SegmentClass::NO_CONNECTION => cell(None, Action::Refuse, Some(Reason::SfwNoConnection)),
        SegmentClass::OUT_OF_WINDOW => cell(None, Action::Refuse, Some(Reason::SfwWindow)),
        // BROKEN, REFUSED, INJECTED; and numbers that no segment has.
        _ => cell(None, Action::Refuse, Some(Reason::SfwState)),
    }
}

const fn cell_of(state: TcpState, class: u8) -> Transition {
    let kind = match class >> 3 {
        1 => Kind::Syn,
        2 => Kind::SynAck,
        3 => Kind::Rst,
        4 => Kind::Ack,
        5 => Kind::Fin,
        _ => return named(SegmentClass(class)),
    };
    let place = match class >> 1 & 3 {
        0 => Place::Stays,
        1 => Place::Expected,
        2 => Place::Moves,
        _ => return named(SegmentClass::BROKEN),
    };
    taken(state, kind, place, if class & 1 == 0 { Direction::ToServer } else { Direction::ToClient })
}

/// How many cells [`TRANSITIONS`] has.
pub const CELLS: usize = STATES.len() * SegmentClass::COUNT;

/// What becomes of a segment: row by state, column by class.
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

/// The cell for a segment of a class that comes in a state.
#[inline]
#[must_use]
pub fn transition(state: TcpState, class: SegmentClass) -> Transition {
    let column = usize::from(class.0);
    let cell = TRANSITIONS
        .get(state as usize * SegmentClass::COUNT + column)
        .filter(|_| column < SegmentClass::COUNT);
    cell.copied().unwrap_or(const { named(SegmentClass::BROKEN) })
}

/// What a connection counts for its source, by its state after the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Share {
    /// A half-open connection.
    HalfOpen = 0,
    /// A connection.
    Open = 1,
    /// Nothing any more.
    Nothing = 2,
}

/// The share of a state.
#[must_use]
pub const fn share(state: TcpState) -> Share {
    match state {
        TcpState::None | TcpState::SynSent | TcpState::SynRecv => Share::HalfOpen,
        TcpState::Established
        | TcpState::FinWait1
        | TcpState::FinWait2
        | TcpState::LastAck
        | TcpState::CloseWait
        | TcpState::Closing => Share::Open,
        TcpState::TimeWait | TcpState::Closed => Share::Nothing,
    }
}
