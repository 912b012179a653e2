// SPDX-License-Identifier: Apache-2.0
//! Wire contracts between planes, as types: what is said, not who says it when.
//!
//! * [`southbound`]: between controller and agent. docs/southbound.md specifies it to the byte.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod southbound;
