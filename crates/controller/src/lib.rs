// SPDX-License-Identifier: Apache-2.0
//! The controller.
//!
//! * [`southbound`]: sessions with agents.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod southbound;
