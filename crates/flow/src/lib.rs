// SPDX-License-Identifier: Apache-2.0
//! Layer 1: the flow table, TCP state, timeouts, reassembly and the host table.
//!
//! * [`key`]: the identity of a flow, and the keyed hash that also chooses its owner;
//! * [`table`]: find, create, account and end flows; nothing is allocated per flow;
//! * [`timeouts`], [`wheel`]: timeouts of flows, found without walking the table;
//! * [`rate`]: the rate of flows, for elephant flows;
//! * [`level`]: the state of a flow at levels below the host;
//! * [`counters`]: the statistics of a table under EVE's names;
//! * [`host`]: state that belongs to no flow, shared by the workers;
//! * [`tcp`], [`stream`]: TCP tracking and reassembly.
//!
//! One worker owns one flow table: it needs no lock. Only the host table is shared.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod counters;
pub mod entry;
pub mod host;
mod index;
pub mod key;
pub mod level;
pub mod limits;
#[allow(unsafe_code)] // One prefetch instruction; the argument stands in the module.
mod prefetch;
pub mod rate;
pub mod stream;
pub mod table;
pub mod tcp;
pub mod timeouts;
pub mod wheel;

pub use counters::FlowTableCounters;
pub use entry::export::{ImportError, ImportedFlow};
pub use entry::{EndReason, FlowEntry, FlowEntryParts, FlowFlags, FlowState};
pub use key::{EspFlows, FlowHash, FlowHasher, FlowKey, FlowScope, FlowSide};
pub use table::{Accounted, Find, FlowTable, FlowTableConfig, Insert, Lookup, TableError, WhenFull};
pub use timeouts::{FlowTimeouts, ProtocolTimeouts, StateTimeouts};
