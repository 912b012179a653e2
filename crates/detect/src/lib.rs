// SPDX-License-Identifier: Apache-2.0
//! The detection engine: keywords, groups, prefilter, inspection.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod compile;
pub mod encoding;
pub mod engine;
pub mod keywords;
pub mod model;
pub mod reference;
pub mod ruleset;
pub mod state;

// Others know the modules by their names alone.
pub use compile::{builder, firewall, groups, hook, keyword, known};
pub use engine::{explain, header, inspect, txstate};
pub use model::{basis, buffers, condition, content, heads, request, signature};
pub use ruleset::needs;
pub use state::shared;
