// SPDX-License-Identifier: Apache-2.0
//! Wire contracts, as types: what is said, not who says it when.
//!
//! * [`content`]: content hashes of what a program has read.
//! * [`control`]: the command socket, as Suricata's tools speak it.
//! * [`json`]: JSON whose keys stand once.
//! * [`southbound`]: between controller and agent. docs/southbound.md specifies it to the byte.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod content;
pub mod control;
pub mod json;
pub mod limits;
pub mod southbound;
