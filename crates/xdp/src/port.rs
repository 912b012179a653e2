// SPDX-License-Identifier: Apache-2.0
//! A port of the level, and the mode of its program.

use std::fmt;

/// The place where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The driver, before the kernel handles a frame.
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

/// The mode requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModeChoice {
    /// Native if the driver supports it, else generic.
    #[default]
    Auto,
    /// Only this mode.
    Only(Mode),
}

/// A port with a running program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpPort {
    /// The mode of its program.
    pub mode: Mode,
    /// Whether both ports of the link are attached and fit, and packets of flows are handled from now on.
    /// Until then all go up.
    pub enabled: bool,
    /// An older process's program runs until [`crate::XdpProgram::take_over`].
    pub waits: bool,
}
