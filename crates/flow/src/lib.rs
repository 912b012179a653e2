// SPDX-License-Identifier: Apache-2.0
//! Layer 1: the flow table, TCP state, timeouts, reassembly and the host table.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod stream;
pub mod tcp;
