// SPDX-License-Identifier: Apache-2.0
//! Evasion strategies in the grammar of the project Geneva: `OUTBOUND \/ INBOUND`, each a list of action
//! trees `[PROTO:FIELD:VALUE]-ACTION-|`.
//!
//! [`parse`](Strategy::parse) reads strategies, [`out`](Strategy::out) runs a packet through one,
//! [`random::strategy`] generates new ones. The meaning is that of Bock et al., "Geneva: Evolving Censorship
//! Evasion Strategies" (CCS 2019), and of the project's documentation. Not supported: changes inside DNS
//! messages (`DNS:...`), and `load` of HTTP by parts.

mod act;
mod fields;
mod parse;
pub mod random;

pub use act::Sent;
pub use parse::Wrong;

/// A strategy. It counts the firings of its triggers, so each connection has its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// Trees for sent packets.
    pub outbound: Vec<Tree>,
    /// Trees for received packets.
    pub inbound: Vec<Tree>,
}

/// One tree with its trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Condition that selects packets.
    pub trigger: Trigger,
    /// Action on the selected packets.
    pub action: Action,
}

/// A condition on the value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// `IP`, `TCP`, `UDP`.
    pub protocol: String,
    /// The field.
    pub field: String,
    /// Required value as text; with `*` at the end, a text that the field contains.
    pub value: String,
    /// Limit on its firings.
    pub gas: Gas,
}

/// Limit on a trigger's firings, used up as packets match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gas {
    /// No limit.
    Unlimited,
    /// Fires for the first matches only.
    Times(u32),
    /// Fires after this many matches; written as a negative number.
    After(u32),
}

/// An action on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends the packet.
    Send,
    /// Drops the packet.
    Drop,
    /// Plays both actions on a copy each, left first.
    Duplicate(Box<Action>, Box<Action>),
    /// Changes a field.
    Tamper {
        /// `IP`, `TCP`, `UDP`.
        protocol: String,
        /// The field.
        field: String,
        /// The change.
        how: Change,
        /// Action on the changed packet.
        next: Box<Action>,
    },
    /// Cuts the packet in two.
    Fragment {
        /// TCP segments if true, else IP fragments.
        segments: bool,
        /// Length of the first part in bytes (fragments: units of 8); -1: half.
        size: i64,
        /// Whether the first part is sent first.
        in_order: bool,
        /// Bytes of the second part that the first part repeats.
        overlap: usize,
        /// Action on the part that is sent first.
        left: Box<Action>,
        /// Action on the other part.
        right: Box<Action>,
    },
    /// Delays this packet and those after it, in milliseconds.
    Sleep(u64, Box<Action>),
}

/// The change of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets this value.
    Replace(String),
    /// Sets a random value.
    Corrupt,
    /// Adds this amount.
    Add(i64),
}
