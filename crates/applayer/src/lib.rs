// SPDX-License-Identifier: Apache-2.0
//! Application protocols: detection, parsers, transactions, buffers, events.
//!
//! A flow's bytes go through [`flow::AppLayer`] once; detection and every payload function read the same
//! transactions afterwards.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod content;
pub mod detection;
pub mod event;
pub mod expectation;
// libmagic is a C library that is loaded at run time: no safe binding works this way.
mod engine;
#[allow(unsafe_code)]
mod ffi_magic;
pub mod flow;
pub mod frames;
pub mod limits;
pub mod lookup;
pub mod memory;
#[cfg(test)]
mod open_tests;
pub mod protocol;
pub mod protocols;
pub mod rpc;
#[cfg(test)]
pub(crate) mod suite;
pub mod transaction;
pub mod worklist;

pub use content::{file, magic};
