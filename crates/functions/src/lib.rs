// SPDX-License-Identifier: Apache-2.0
//! The security functions: portscan, pfw, sfw, ids, and the gate before them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod gate;
pub mod ids;
pub mod ids_kind;
pub mod limits;
pub mod names;
pub mod pfw;
pub mod pfw_table;
pub mod portscan;
pub mod reference;
pub mod registry;
pub mod sfw;
pub mod sfw_messages;
pub mod sfw_table;
mod sfw_tcp;
#[cfg(test)]
mod sfw_tests;
