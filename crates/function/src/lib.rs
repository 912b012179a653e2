// SPDX-License-Identifier: Apache-2.0
//! The function API: three callbacks, verdicts, host services, function specifications.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod view;
