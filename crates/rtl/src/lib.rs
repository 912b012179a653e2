// SPDX-License-Identifier: Apache-2.0
//! The SmartNIC: the map of its registers, the driver of its tables, and its logic as a model.
//!
//! The logic itself is SystemVerilog, in `hw/rtl`. [`registers`] declares its address map, from which the
//! logic's package is generated. [`entries`] makes entries of the classifier from header rules, and
//! [`TableDriver`] writes them, over whatever reaches the registers ([`RegisterBus`]). With the feature
//! `verilator`, module `model` has the logic cycle by cycle: packets and register writes in; packets,
//! metadata and counters out.
//!
//! Not done: the level driver of crate `offload` over this. [`TableDriver`] has what its device needs of
//! tables, counters and generations; flows have no table in the logic yet.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod driver;
pub mod entries;
#[cfg(feature = "verilator")]
#[allow(unsafe_code)]
pub mod model;
pub mod registers;
#[cfg(feature = "verilator")]
pub mod simulation;

pub use driver::{BusError, DriverError, EntryClass, LogicCapabilities, RegisterBus, TableDriver};
pub use entries::{KeyLayout, TernaryEntry};
