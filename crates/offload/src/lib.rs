// SPDX-License-Identifier: Apache-2.0
//! Layer 2: flows below the host.
//!
//! ```text
//!   data plane --offer--> FlowManager --requests in bulk--> Device (none, mock, xdp)
//!       ^                    |   ^                             |
//!       +---- done, ended ---+   +------ answers, counts ------+
//! ```
//!
//! * [`device`]: what a device says that it can do, what it is asked, and what it answers;
//! * [`key`]: a flow's identity as a device can make it from a frame;
//! * [`manager`]: the life of flows below the host, and what is counted of them;
//! * [`stays`]: a flow's reason not to be at a lower level;
//! * [`devices`]: the devices.
//!
//! The flow's own entry, and the steps of its way, are the flow table's ([`bartizan_flow::level`]). Which flows are decided, and what becomes of their packets, the data
//! plane says.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod device;
pub mod devices;
pub mod key;
pub mod manager;
mod places;
pub mod stays;

pub use bartizan_xdp::Mark;
pub use device::{
    Action, Actions, Answered, Capabilities, Counting, Counts, Device, Endpoint, Install, Request, Said,
    Sides, Wish,
};
pub use key::{DeviceKey, Field, Fields, direction_from_low, directions};
pub use manager::{Done, Ended, FlowManager, ManagerCounters, Offer};
pub use stays::Stays;
