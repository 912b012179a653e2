// SPDX-License-Identifier: Apache-2.0
//! Wire contracts, as types: the messages, not the sessions that exchange them.
//!
//! * [`content`]: content hashes of the files that a program has read.
//! * [`control`]: the command socket, in the protocol of Suricata's tools.
//! * [`json`]: JSON without duplicate keys.
//! * [`southbound`]: between controller and agent. docs/southbound.md specifies it to the byte.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod content;
pub mod control;
pub mod json;
pub mod limits;
pub mod southbound;
