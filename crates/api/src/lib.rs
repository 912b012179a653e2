// SPDX-License-Identifier: Apache-2.0
//! Wire contracts, as types: what is said, not who says it when.
//!
//! * [`control`]: the command socket, as Suricata's tools speak it.
//! * [`southbound`]: between controller and agent. docs/southbound.md specifies it to the byte.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod control;
pub mod limits;
pub mod southbound;
