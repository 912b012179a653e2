// SPDX-License-Identifier: Apache-2.0
//! States of transactions that rules can name as hooks. Source: Suricata 8's user guide, "Explicit rule hook
//! (states)".

use bartizan_applayer::protocol::{ProtocolId, ProtocolSpec};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::Direction;

/// A state of a protocol's transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The protocol.
    pub protocol: ProtocolId,
    /// Direction of the progress.
    pub direction: Direction,
    /// State number, by the direction's progress.
    pub state: u8,
}

/// Progress of a direction. A direction that the flow's end cut off stays in its state.
pub(crate) fn progress(tx: &dyn Transaction, direction: Direction) -> u8 {
    tx.progress(direction)
}

/// Finds a state by its name: the protocol's own name, or one that each protocol has.
pub(crate) fn find(protocol: ProtocolId, spec: &ProtocolSpec, name: &str) -> Option<Hook> {
    if !spec.is_parsed() {
        return None;
    }
    let hook = |direction, state| Hook { protocol, direction, state };
    let general = match name {
        "request_started" => Some(hook(Direction::ToServer, 0)),
        "request_complete" => Some(hook(Direction::ToServer, spec.complete.to_server)),
        "response_started" => Some(hook(Direction::ToClient, 0)),
        "response_complete" => Some(hook(Direction::ToClient, spec.complete.to_client)),
        _ => None,
    };
    general.or_else(|| find_own(protocol, spec, name))
}

/// Finds a state by the protocol's own name.
pub(crate) fn find_own(protocol: ProtocolId, spec: &ProtocolSpec, name: &str) -> Option<Hook> {
    Direction::BOTH.into_iter().find_map(|direction| {
        let at = spec.states[direction].iter().position(|state| *state == name)?;
        Some(Hook { protocol, direction, state: u8::try_from(at).ok()? })
    })
}

/// Every hook of every protocol, as rules name it: `http1:request_line`.
#[must_use]
pub fn all() -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for spec in protocols::TABLE.iter().filter(|spec| spec.is_parsed()) {
        for (direction, started, complete) in [
            (Direction::ToServer, "request_started", "request_complete"),
            (Direction::ToClient, "response_started", "response_complete"),
        ] {
            let own = spec.states[direction].iter().copied();
            for name in core::iter::once(started).chain(own).chain([complete]) {
                let hook = format!("{}:{name}", spec.exact_name);
                // For a state with both names the last one counts.
                found.retain(|known| *known != hook);
                found.push(hook);
            }
        }
    }
    found
}

/// The names of one state: the protocol's own, and those that each protocol has.
pub(crate) fn names_of(
    protocol: ProtocolId,
    spec: &ProtocolSpec,
    direction: Direction,
    state: u8,
) -> impl Iterator<Item = &'static str> {
    let wanted = Hook { protocol, direction, state };
    names(spec).into_iter().filter(move |name| find(protocol, spec, name) == Some(wanted))
}

/// All names of a protocol's states.
pub(crate) fn names(spec: &ProtocolSpec) -> Vec<&'static str> {
    if !spec.is_parsed() {
        return Vec::new();
    }
    let general = ["request_started", "request_complete", "response_started", "response_complete"];
    let own = Direction::BOTH.into_iter().flat_map(|d| spec.states[d].iter().copied());
    own.chain(general).collect()
}
