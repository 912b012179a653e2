// SPDX-License-Identifier: Apache-2.0
//! The security functions: pfw, sfw, ids.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod ids;
