// SPDX-License-Identifier: Apache-2.0
//! The ports that a level has, and their counters.

use bartizan_base::LinkId;
use bartizan_offload::level::{LevelView, PortCounters};
use std::sync::Arc;

/// A port of a link that has a level.
#[derive(Clone, Debug)]
pub struct LevelPort {
    /// The port's interface.
    pub interface: String,
    /// The link's name.
    pub link: String,
    /// Name of the level.
    pub level: &'static str,
    /// Whether no other level of the link is nearer to the wire: all frames that arrive are counted here.
    pub is_nearest: bool,
    /// The link's number.
    pub(super) number: LinkId,
    /// The port's number in the level's tables.
    pub index: u8,
}

/// Per-port counters of the level, for readers in other threads.
pub struct LevelPortCounters {
    pub(super) view: Arc<dyn LevelView>,
    pub(super) ports: Vec<LevelPort>,
    /// Interfaces of named ports.
    pub(super) exits: Vec<(String, u8)>,
}

impl LevelPortCounters {
    /// Counters of packets sent by each named port.
    pub fn exits(&self) -> impl Iterator<Item = (&str, PortCounters)> {
        self.exits.iter().filter_map(|(port, index)| Some((port.as_str(), self.view.port_counters(*index)?)))
    }

    /// Counters of packets received by each port.
    pub fn ports(&self) -> impl Iterator<Item = (&LevelPort, PortCounters)> {
        self.ports.iter().filter_map(|port| Some((port, self.view.port_counters(port.index)?)))
    }
}
