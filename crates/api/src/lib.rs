// SPDX-License-Identifier: Apache-2.0
//! Wire contracts: what programs say to this one, and how.
//!
//! * [`control`]: the command socket, as Suricata's tools speak it.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod control;
pub mod limits;
