// SPDX-License-Identifier: Apache-2.0
//! Flow table, TCP state, timeouts, reassembly and host table.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod stream;
pub mod tcp;
