// SPDX-License-Identifier: Apache-2.0
//! L2-L4 decoding, tunnels, checksums, defragmentation, capture formats and packet metadata.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod capture;
pub mod defrag;
