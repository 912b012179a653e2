// SPDX-License-Identifier: Apache-2.0
//! The XDP level's lowest layer: a program in the kernel (`ebpf/flows.bpf.c`) handles packets of flows that
//! the host has decided.
//!
//! * [`XdpProgram`]: loads the program and attaches it to the two ports of a link, once both were tested;
//! * [`Tables`]: flows by key, the handling of their packets, counters;
//! * [`EarlyTables`]: packets without a flow that the packet filter refuses;
//! * [`XdpError`]: the reason why the level cannot be used, and what to do.
//!
//! The host decides which flows go down and when they come back. All other packets go up, and so does every
//! packet when in doubt. docs/xdp.md has the picture, docs/failing.md the behaviour when the host fails.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod counters;
mod device;
mod driver;
mod early;
mod error;
mod features;
mod holders;
mod index;
mod left;
mod link;
mod lost;
// Arrays that are mapped into memory; the argument is at the top of the file.
#[allow(unsafe_code)]
mod memory;
mod netlink;
mod object;
mod pin;
mod port;
mod program;
mod prove;
mod rights;
// System calls; the argument is at the top of the file.
#[allow(unsafe_code)]
mod sys;
mod tables;

pub use counters::{XdpFlowCounts, XdpProgress};
pub use device::XdpDevice;
pub use driver::XdpDriver;
pub use early::{EarlyCounted, EarlyTables};
pub use error::{FlowInsertError, XdpError};
pub use holders::{Hold, Holder, Holders};
pub use left::{pinned, remove_left};
pub use pin::PINS;
pub use port::{Mode, ModeChoice, XdpPort};
// The types of a level's ports, which all kinds of level share.
pub use bartizan_offload::level::{
    EarlyMode, EarlyOptions, Fail, FrameTotals, LeftOn, PortCounters, PortNews, PortSetup, PortSide,
    StalePrograms, Watch,
};
pub use bartizan_offload::marks::{FlowMarks, Mark};
pub use program::{ProgramRunner, XdpOptions, XdpProgram};
pub use sys::Run;
pub use tables::{FlowSlotControl, Key, Tables, XdpFlowAction, boot_time, boot_to_real, monotonic_time};
