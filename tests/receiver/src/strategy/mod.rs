// SPDX-License-Identifier: Apache-2.0
//! Evasion strategies in the grammar of the project Geneva: `OUTBOUND \/ INBOUND`, each of action trees
//! `[PROTO:FIELD:VALUE]-ACTION-|`.
//!
//! [`parse`](Strategy::parse) reads them, [`out`](Strategy::out) plays a packet through them,
//! [`random::strategy`] makes new ones. The meaning is that of Bock et al., "Geneva: Evolving Censorship
//! Evasion Strategies" (CCS 2019), and of the project's documentation. Not done: changes inside DNS messages
//! (`DNS:...`), and `load` of HTTP by parts.

mod act;
mod fields;
mod parse;
pub mod random;

pub use act::Sent;
pub use parse::Wrong;

/// A strategy. It remembers how often its triggers have fired: one for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// For packets that are sent.
    pub outbound: Vec<Tree>,
    /// For packets that are received.
    pub inbound: Vec<Tree>,
}

/// One tree with its trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// For which packets.
    pub trigger: Trigger,
    /// What becomes of them.
    pub action: Action,
}

/// A field that has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// `IP`, `TCP`, `UDP`.
    pub protocol: String,
    /// The field.
    pub field: String,
    /// Its value as text; with `*` at the end, what it holds.
    pub value: String,
    /// How often.
    pub gas: Gas,
}

/// How often a trigger fires. It is used up as packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gas {
    /// Always.
    Unlimited,
    /// The first times.
    Times(u32),
    /// From behind so many times on; written as a negative number.
    After(u32),
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is sent.
    Send,
    /// It is not.
    Drop,
    /// Twice, left first.
    Duplicate(Box<Action>, Box<Action>),
    /// A field is changed.
    Tamper {
        /// `IP`, `TCP`, `UDP`.
        protocol: String,
        /// The field.
        field: String,
        /// How.
        how: Change,
        /// And then.
        next: Box<Action>,
    },
    /// Cut in two.
    Fragment {
        /// Into segments, not into fragments.
        segments: bool,
        /// After so many bytes (fragments: units of 8); -1: in the middle.
        size: i64,
        /// The first part first.
        in_order: bool,
        /// Bytes of the second part that the first has, too.
        overlap: usize,
        /// The part that comes first.
        left: Box<Action>,
        /// The other.
        right: Box<Action>,
    },
    /// Waits, in milliseconds, also those behind it.
    Sleep(u64, Box<Action>),
}

/// How a field changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// To this value.
    Replace(String),
    /// To a random one.
    Corrupt,
    /// By this amount.
    Add(i64),
}
