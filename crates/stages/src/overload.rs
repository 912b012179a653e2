// SPDX-License-Identifier: Apache-2.0
//! The priority of a class of flows, set by its policy, when memory is used up or the load exceeds a worker's
//! capacity.

use bartizan_applayer::flow::{AppLayer, Disruption};
use bartizan_base::Direction;

/// The action on a flow that is shed under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverloadAction {
    /// The action of `app-layer.memcap-policy`; where the load exceeds a worker's capacity, the flow's
    /// packets are dropped.
    #[default]
    Settings,
    /// The flow continues; its packets and streams are inspected, its protocol is not parsed any more.
    Inspect,
    /// The flow passes uninspected.
    Pass,
    /// The flow is refused.
    Drop,
}

/// The rank of a class of flows under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// Flows of lower priority are shed first.
    pub priority: u8,
    /// The action on a flow that is shed.
    pub action: OverloadAction,
}

impl Overload {
    /// The default for policies without the key.
    pub const DEFAULT: Overload = Overload { priority: 100, action: OverloadAction::Settings };
}

impl Default for Overload {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Whether an application layer was closed because memory was used up.
#[must_use]
pub fn is_closed(app: &AppLayer) -> bool {
    app.disrupted(Direction::ToServer) == Some(Disruption::Memory)
        || app.disrupted(Direction::ToClient) == Some(Disruption::Memory)
}
