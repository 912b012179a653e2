// SPDX-License-Identifier: Apache-2.0
//! Layer 0: the words of the system as types.
//!
//! Nothing here does I/O, allocates per packet or reads a clock. The types are small, `Copy` and mean one
//! thing each, so that a flow class ([`Fid`]) cannot be confused with a table entry ([`FlowId`]), or a time
//! of the packet clock ([`Timestamp`]) with wall-clock time.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod at;
mod bytes;
mod direction;
mod ends;
mod ids;
pub mod limit;
pub mod page;
mod path;
mod settings;
pub mod spread;
mod time;
pub mod turns;
mod verdict;

pub use bytes::Cursor;
pub use direction::{Direction, PerDirection};
pub use ends::between;
pub use ids::{Fid, FlowId, FunctionId, Generation, Level, LinkId, PortIndex, RuleId, TenantId, WorkerId};
pub use path::Path;
pub use settings::{SettingError, SettingsMap, parse_bool, parse_size};
pub use spread::Spread;
pub use time::{PacketDuration, Timestamp};
pub use verdict::{Decision, MetadataAction, Reason, Verdict};
