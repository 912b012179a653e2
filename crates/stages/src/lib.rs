// SPDX-License-Identifier: Apache-2.0
//! The stages of a packet's way, and what they share: intake, flows, chain runner, account.
//!
//! ```text
//!   intake ------> flows ---------> runner ---------> account
//!   decode,        find or make,    functions of      counters by
//!   defragment     track            the flow's path   what became of it
//! ```
//!
//! Each stage has its own state and does not know who drives it. The data plane (`bartizan_dataplane`) does: workers, the
//! order of the stages, live links, captures, events.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod account;
pub mod app_memory;
pub mod app_stats;
pub mod chain;
pub mod checksums;
pub mod class;
pub mod context;
pub mod counts;
pub mod early;
pub mod enough;
pub mod flow_ext;
pub mod flows;
pub mod frame;
pub mod guests;
pub mod host_tables;
pub mod hosts;
pub mod identity;
pub mod intake;
pub mod leaving;
pub mod lifecycle;
pub mod moving;
pub mod normaliser;
pub mod notice;
pub mod overload;
pub mod quotas;
pub mod record;
pub mod runner;
pub mod settings;
pub mod settled;
pub mod standing;
pub mod stats;
pub mod tally;
pub mod train;
