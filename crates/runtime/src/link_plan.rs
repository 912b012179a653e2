// SPDX-License-Identifier: Apache-2.0
//! The plan of one link: its interfaces, workers, filter and levels.

use bartizan_config::host::{self, GuestSection, OffloadFail, OffloadSection, Snap};

/// Interfaces of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkPorts {
    /// Two interfaces, bridged.
    Inline {
        /// The first interface.
        a: String,
        /// The second interface.
        b: String,
        /// Whether the interfaces' offloads are switched off during the run.
        fix_offloads: bool,
    },
    /// One watched interface, or several watched as one.
    Tap {
        /// The interfaces.
        interfaces: Vec<String>,
        /// Whether the interfaces' offloads are switched off during the run.
        fix_offloads: bool,
    },
    /// Programs of this host, by the stream path.
    Guest(GuestSection),
}

impl LinkPorts {
    /// The interfaces.
    pub fn interfaces(&self) -> Vec<&str> {
        match self {
            LinkPorts::Inline { a, b, .. } => vec![a, b],
            LinkPorts::Tap { interfaces, .. } => interfaces.iter().map(String::as_str).collect(),
            LinkPorts::Guest(_) => Vec::new(),
        }
    }
}

/// One link of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Name in policies, events and counters.
    pub name: String,
    /// Ports.
    pub ports: LinkPorts,
    /// Worker threads.
    pub workers: u16,
    /// Whether refusals are enforced.
    pub prevention: bool,
    /// Filter of the inspected packets.
    pub filter: Option<FilterExpression>,
    /// Receive options.
    pub receive: Receive,
    /// Levels below, for decided flows, the nearest to the wire first.
    pub levels: Vec<OffloadSection>,
}

/// Receive options of a link; absent ones have the ports' defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receive {
    /// Inline: frames of a receive ring.
    pub frames: Option<u32>,
    /// Bytes of a tap's ring.
    pub ring: Option<u64>,
    /// Taps: time in milliseconds within which a second frame with the same bytes is not inspected.
    pub duplicate_window: Option<u32>,
    /// Taps: bytes of a frame that are inspected.
    pub snap_length: Option<Snap>,
    /// Taps with several interfaces: time in milliseconds that frames of one wait for those of another.
    pub merge_wait: Option<u32>,
    /// Taps: source of the timestamps.
    pub timestamps: host::TimestampSource,
}

impl Receive {
    pub(crate) fn of(link: &host::Link) -> Self {
        let tap = link.tap.as_ref();
        Receive {
            frames: link.inline.as_ref().and_then(|inline| inline.frames),
            ring: tap.and_then(|tap| tap.ring).map(|size| size.0),
            duplicate_window: tap.and_then(|tap| tap.duplicate_window),
            snap_length: tap.and_then(|tap| tap.snap_length),
            merge_wait: tap.and_then(|tap| tap.merge_wait),
            timestamps: tap.and_then(|tap| tap.timestamps).unwrap_or_default(),
        }
    }
}

/// A packet filter in tcpdump's language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterExpression {
    /// The expression.
    pub expression: String,
    /// The filter's place, for messages.
    pub place: String,
}

impl LinkPlan {
    /// The link's settings for a level of this name, if it has that level.
    pub fn level(&self, name: &str) -> Option<&OffloadSection> {
        self.levels.iter().find(|level| level.level == name)
    }

    /// Whether one of its levels may refuse packets without a flow. Not where refusals are only reported.
    pub const fn drops_early(&self, level: &OffloadSection) -> bool {
        self.prevention && level.early_drop
    }

    /// Whether one of its levels has the rules that refuse packets without a flow: to refuse those early, or
    /// while the link is open.
    pub fn knows_refusals(&self, level: &OffloadSection) -> bool {
        self.drops_early(level) || self.prevention && level.fail == OffloadFail::Open
    }

    /// Whether the link is two bridged interfaces.
    pub const fn is_inline(&self) -> bool {
        matches!(self.ports, LinkPorts::Inline { .. })
    }

    /// Whether the link is a guest.
    pub const fn is_guest(&self) -> bool {
        matches!(self.ports, LinkPorts::Guest(_))
    }

    /// The link's interfaces in one word: `eth1-eth2`; a guest's name.
    pub fn interface(&self) -> String {
        if self.is_guest() { self.name.clone() } else { self.ports.interfaces().join("-") }
    }
}
