// SPDX-License-Identifier: Apache-2.0
//! The detection engine: keywords, groups, prefilter, inspection.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod base64;
pub mod basis;
pub mod buffers;
pub mod builder;
pub mod candidates;
pub mod condition;
mod conflicts;
pub mod content;
pub mod dataset;
pub mod explain;
pub mod firewall;
pub mod groups;
pub mod header;
pub mod heads;
pub mod hook;
pub mod inspect;
pub mod keyword;
pub mod keywords;
pub mod known;
pub mod locations;
pub mod needs;
pub mod payloads;
pub mod prefilter;
pub mod protocol;
pub mod reference;
pub mod request;
pub mod ruleset;
pub mod shared;
pub mod signature;
pub mod state;
pub mod txstate;
mod unknown_classes;
pub mod window;
