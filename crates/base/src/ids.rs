// SPDX-License-Identifier: Apache-2.0
//! Identifiers, one type each.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// The tenant of a packet. 0 is the tenant of traffic that no selector names.
    TenantId(u16)
}
id! {
    /// The link on which a packet arrives, without direction: a port pair, a tap, a capture.
    LinkId(u16)
}
id! {
    /// Number of a named port, by which redirected packets leave: its index among the `ports` of the host
    /// file, from 0.
    PortIndex(u8)
}
id! {
    /// Global index of a flow *class*: the same number in every function's table, allocated by the
    /// agent (smallest free), never shared by two tenants.
    Fid(u32)
}
id! {
    /// Index of one *entry* of a worker's flow table.
    FlowId(u32)
}
id! {
    /// Number of a generation: a consistent set of policies, rules and chains. It only grows.
    Generation(u64)
}
id! {
    /// Index of a worker thread.
    WorkerId(u16)
}
id! {
    /// Index of a security function: its bit in a [`crate::Path`], 0 to 31.
    FunctionId(u8)
}

impl FunctionId {
    /// No function: the engine itself decided (a limit, an error, an exception policy).
    pub const ENGINE: FunctionId = FunctionId(u8::MAX);
}

impl Generation {
    /// The 8 bits in tables and packet metadata (a value is used again only after a sweep).
    #[must_use]
    pub const fn low(self) -> u8 {
        (self.0 & 0xff) as u8
    }
}

/// Identity of a detection rule: generator, signature, revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId {
    /// Generator id; 1 unless a rule says otherwise.
    pub gid: u32,
    /// Signature id.
    pub sid: u32,
    /// Revision.
    pub rev: u32,
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.gid, self.sid, self.rev)
    }
}

/// The place where a flow's packets are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// This program.
    #[default]
    Host = 0,
    /// The kernel's XDP hook.
    Xdp = 1,
    /// The SmartNIC's logic.
    Rtl = 2,
}

impl Level {
    /// Name in events and counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::Host => "host",
            Level::Xdp => "xdp",
            Level::Rtl => "rtl",
        }
    }
}
