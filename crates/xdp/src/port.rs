// SPDX-License-Identifier: Apache-2.0
//! What a port of the level is, and how its program is run.

use bartizan_base::{LinkId, Spread};
use std::fmt;
use std::time::Duration;

/// Who runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The driver, before the kernel makes anything of a frame.
    Native,
    /// The kernel, for drivers that cannot: slower, and after frames may have been merged.
    Generic,
}

impl Mode {
    /// `XDP_FLAGS_DRV_MODE`, `XDP_FLAGS_SKB_MODE`.
    pub(crate) const fn flag(self) -> u32 {
        match self {
            Mode::Native => 1 << 2,
            Mode::Generic => 1 << 1,
        }
    }

    /// The word of `ip link`.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Mode::Native => "xdpdrv",
            Mode::Generic => "xdpgeneric",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Native => "native mode",
            Mode::Generic => "generic mode",
        })
    }
}

/// Which mode is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModeChoice {
    /// Native where the driver can, else generic.
    #[default]
    Auto,
    /// This one or none.
    Only(Mode),
}

/// On which side of its link the senders behind a port are, as it stands in keys (`FlowSide` of crate `flow`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// Not known, or it does not matter: sides are no part of keys.
    #[default]
    Unknown = 0,
    /// The side of the link's first port.
    First = 1,
    /// The side of its second port.
    Second = 2,
}

/// What becomes of frames that would go up while the worker that they would go to has failed: it gives no sign of life, since it hangs, or the process is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fail {
    /// They are dropped. When the process is gone the program is, too.
    #[default]
    Closed,
    /// They leave by the port across the link. The attachment is pinned once workers live ([`crate::Program::take_over`]), so the program goes on when the process is gone, until the next one takes it over.
    Open,
}

/// Who serves the frames of a port that go up, and how long they may give no sign of life ([`crate::Tables::beat`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// What becomes of their frames then.
    pub fail: Fail,
    /// For so long. Zero watches nobody.
    pub stale: Duration,
    /// How frames are shared out among the link's workers.
    pub spread: Spread,
    /// Number of the first of them among the workers of all links.
    pub first: u32,
}

/// When packets without a flow are refused by early tables. Each with the number of the port's link among those that have such tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// At any time.
    Always(u8),
    /// Only while nobody serves the link and it fails open: until then they go up.
    WhileOpen(u8),
}

impl Early {
    pub(crate) const fn link(self) -> u8 {
        match self {
            Early::Always(link) | Early::WhileOpen(link) => link,
        }
    }
}

/// A port of a link, as the host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSetup {
    /// Number of its interface in this network namespace.
    pub ifindex: u32,
    /// The link, as it stands in keys.
    pub link: LinkId,
    /// Side of the link, as it stands in keys of what comes by this port.
    pub side: Side,
    /// The port's own number, from 0 to 63.
    pub index: u8,
    /// Number of the port across the link.
    pub pair: u8,
    /// Whether VLAN ids are part of keys.
    pub vlans_in_key: bool,
    /// Of two to the power of so many packets that would be dropped one goes up instead, by chance. `None`: none does.
    pub drop_samples: Option<u8>,
    /// Whether packets without a flow are refused by early tables ([`crate::EarlyTables`]). `None`: they go up.
    pub early: Option<Early>,
    /// Who serves it. `None`: nobody is watched, and frames go up whatever happens.
    pub watch: Option<Watch>,
}

/// A port whose program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Who runs it.
    pub mode: Mode,
    /// Whether the port across the link is there as well, both are fit, and packets of flows are handled from now on. Until then all go up.
    pub enabled: bool,
    /// A program that a process has left runs until [`crate::Program::take_over`].
    pub waits: bool,
}
