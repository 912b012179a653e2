// SPDX-License-Identifier: Apache-2.0
//! The detection engine: keywords, groups, prefilter, inspection.
//!
//! The folders, from the bottom to the top; a file uses its own folder and those before it (`cargo xtask
//! tidy` reads this list):
//!
//! 1. `encoding`: hexadecimal digits, for all other folders.
//! 2. `state`: state of rules beside the traffic, for flows, hosts, datasets and files.
//! 3. `model`: the compiled rule, with buffers, conditions, heads and prefilters as plain values without
//!    execution.
//! 4. `compile`: from a syntax tree to the model, with the builder that keywords are written against, and
//!    from many rules to groups and prefilters; it has no table of keywords.
//! 5. `keywords`: one file for each keyword, which defines how it is parsed, weighed and evaluated, and the
//!    table of all.
//! 6. `ruleset`: one generation: files of rules, parsed by their keywords, sorted, grouped and prefiltered.
//! 7. `engine`: inspects packets, streams and transactions with a rule set, and explains the result.
//! 8. `reference`: pages of the reference, generated from the table of keywords.
//! 9. `limits`: the bounds of all of them, for docs/limits.md.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod compile;
mod encoding;
pub mod engine;
pub mod keywords;
pub mod limits;
pub mod model;
pub mod reference;
pub mod ruleset;
pub mod state;

// Other crates use these modules by their names alone.
pub use compile::{builder, firewall, groups, hook, keyword, known};
pub use engine::{explain, header, inspect, txstate};
pub use model::{basis, buffers, condition, content, ends, heads, left, request, signature, visibility};
pub use ruleset::needs;
pub use state::shared;
