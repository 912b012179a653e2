// SPDX-License-Identifier: Apache-2.0
//! The running stack as a library: the work of the program's commands, without a command line.
//!
//! A program that embeds it builds generations ([`generation::Builder`]), runs links ([`plan::RunOptions`]),
//! and requests the end or a reload through [`requests::Requests`]. Some work needs no link: [`check`] checks
//! rules and policies, [`explain`] explains decisions, [`replay`] judges past traffic, [`headers`]
//! classifies. [`client`] is the client of a controller, [`control::client`] that of a running program.
//! Nothing is printed: log lines are events of `tracing`, diagnostics are values ([`log`]).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[allow(unsafe_code)] // The allocator's options; the argument stands in the module.
pub mod allocator;
pub mod cache;
mod captures;
pub mod captures_of_settings;
pub mod channel;
pub mod check;
pub mod client;
mod compiling;
mod confine;
pub mod control;
pub mod coverage;
pub mod crew;
mod default_route;
mod descriptors;
pub mod engines;
pub mod error;
pub mod explain;
pub mod findings;
pub mod firewall;
pub mod functions;
pub mod generation;
pub mod guests;
pub mod headers;
mod health;
pub mod input;
pub mod inspect;
mod interfaces;
pub mod levels;
pub mod limits;
mod link_plan;
pub mod links;
pub mod load;
pub mod lock;
pub mod log;
pub mod machine_code;
#[cfg(test)]
#[allow(clippy::print_stdout)] // Measurements, which people read.
mod many;
pub mod metrics;
pub mod notify;
pub mod offline;
pub mod offload;
mod outputs;
pub mod plan;
pub mod plane;
pub mod poll;
pub mod queries;
pub mod reload;
pub mod replay;
pub mod requests;
pub mod rule_files;
pub mod run;
mod sections;
mod sets;
pub mod southbound;
pub mod stats;
mod stats_file;
pub mod stores;
pub mod supervisor;
pub mod suricata_line;
pub mod traces;
pub mod tuple;
pub mod unused;
