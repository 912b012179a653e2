// SPDX-License-Identifier: Apache-2.0
//! Layer 2: flows below the host.
//!
//! ```text
//!   data plane --offer--> FlowManager --requests in bulk--> Device (none, mock, xdp, ...)
//!       ^                    |   ^                             |
//!       +---- done, ended ---+   +------ answers, counts ------+
//! ```
//!
//! * [`device`]: what a device says that it can do, what it is asked, and what it answers;
//! * [`key`]: a flow's identity as a device can make it from a frame;
//! * [`manager`]: the life of flows below the host, and what is counted of them;
//! * [`stays`]: a flow's reason not to be at a lower level;
//! * [`level`]: what opens a kind of level, and what it says of itself;
//! * [`marks`]: flows that a level is not to refuse a packet of.
//!
//! The flow's own entry, and the steps of its way, are the flow table's ([`bartizan_flow::level`]). Which
//! flows are decided, and what becomes of their packets, the data plane says.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod device;
pub mod key;
pub mod level;
pub mod manager;
pub mod marks;
mod places;
pub mod stays;

pub use device::{
    Action, Actions, Answered, Capabilities, Counting, Counts, Device, Endpoint, Install, Request, Said,
    Sides, Wish,
};
pub use key::{DeviceKey, Field, Fields, direction_from_low, directions};
pub use manager::{Done, Ended, FlowManager, ManagerCounters, Offer};
pub use marks::Mark;
pub use stays::Stays;
