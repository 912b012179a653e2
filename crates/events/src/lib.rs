// SPDX-License-Identifier: Apache-2.0
//! Event types to EVE JSON, schema, sinks and metrics declarations.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod json;

pub use json::JsonWriter;
