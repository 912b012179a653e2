// SPDX-License-Identifier: Apache-2.0
//! Bounds of the boundary around a guest, for docs/limits.md.

use crate::relay::RELAYED_MOST;
use bartizan_base::limit::LimitTrace::Told;
use bartizan_base::limit::{LimitSpec, count};
use bartizan_base::limits;

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "connections of plain sockets that are relayed at a time" = "{}" [count(RELAYED_MOST)]
        in ["boundary/relay.rs"], "further ones are reset", [Told("what `bartizan guest run` reports at its end")];
};
