// SPDX-License-Identifier: Apache-2.0
//! The SmartNIC: the map of its registers, the driver of its tables, and its logic as a model.
//!
//! The logic itself is SystemVerilog, in `hw/rtl`. [`registers`] declares its address map, from which the
//! logic's package is generated. [`flows`] has the keys and entries of the flow cache. [`entries`] makes
//! entries of the classifier from header rules, and [`TableDriver`] writes them, over whatever reaches the
//! registers ([`RegisterBus`]). With the feature `verilator`, module `model` has the logic cycle by cycle:
//! packets and register writes in; packets, metadata and counters out.
//!
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod card;
pub mod device;
pub mod driver;
pub mod entries;
pub mod flows;
#[cfg(feature = "verilator")]
pub mod level;
#[cfg(feature = "verilator")]
#[allow(unsafe_code)]
pub mod model;
pub mod registers;
#[cfg(feature = "verilator")]
pub mod simulation;

pub use card::{Card, CardState};
pub use device::SmartNicDevice;
pub use driver::{BusError, DriverError, EntryClass, LogicCapabilities, RegisterBus, TableDriver};
pub use entries::{KeyLayout, TernaryEntry};
pub use flows::{CacheKey, CacheNumbers, EntryAction, EntryControl, EntryCounts, EntryReading, SegmentCheck};
#[cfg(feature = "verilator")]
pub use level::SmartNicDriver;
