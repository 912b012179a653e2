// SPDX-License-Identifier: Apache-2.0
//! Layer 2: flows below the host.
//!
//! ```text
//!   data plane --offer--> FlowManager --requests in bulk--> Device (none, mock, xdp, ...)
//!       ^                    |   ^                             |
//!       +---- done, ended ---+   +------ answers, counts ------+
//! ```
//!
//! * [`device`]: a device's capabilities, the requests to it, and its replies;
//! * [`key`]: a flow's identity as a device can make it from a frame;
//! * [`manager`]: the life of flows below the host, and their counts;
//! * [`stays`]: a flow's reason not to be at a lower level;
//! * [`level`]: the driver of a kind of level, and its reports;
//! * [`marks`]: flows that a level must not refuse packets of.
//!
//! The flow's own entry, and its steps down and up, belong to the flow table ([`bartizan_flow::level`]). The
//! data plane decides flows, and the handling of their packets.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod device;
pub mod key;
pub mod level;
pub mod manager;
pub mod marks;
mod places;
pub mod stays;

pub use device::{
    Action, Actions, Answered, Capabilities, Counting, Counts, Device, DeviceReply, DeviceRequest, Endpoint,
    Install, Sides, Wish,
};
pub use key::{DeviceKey, Fields, KeyField, direction_from_low, directions};
pub use manager::{Done, Ended, FlowManager, ManagerCounters, Offer, PacketTotals};
pub use marks::Mark;
pub use stays::OffloadDenied;
