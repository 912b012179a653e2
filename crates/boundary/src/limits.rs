// SPDX-License-Identifier: Apache-2.0
//! Bounds of the boundary around a guest, for docs/limits.md.

use crate::datagrams::{ASSOCIATIONS_MOST, IDLE_MOST, PEERS_MOST};
use crate::relay::RELAYED_MOST;
use bartizan_base::limit::LimitTrace::{NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, count, time};
use bartizan_base::{PacketDuration, limits};

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "connections of plain sockets that are relayed at a time" = "{}" [count(RELAYED_MOST)]
        in ["boundary/relay.rs"], "further ones are reset", [Told("what `bartizan guest run` reports at its end")];
    Flow "sockets of datagrams that are relayed at a time" = "{}, for {} without a datagram"
        [count(ASSOCIATIONS_MOST), time(PacketDuration::from_secs(IDLE_MOST.as_secs()))]
        in ["boundary/datagrams.rs"], "that which was idle for longest gives way; its next datagram has another port", [NotNeeded];
    Flow "destinations of such a socket whose answers are relayed" = "{}" [count(PEERS_MOST)] in ["boundary/datagrams.rs"],
        "answers of the one that was used first are dropped", [Told("what `bartizan guest run` reports at its end")];
};
