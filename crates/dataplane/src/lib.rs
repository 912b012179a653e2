// SPDX-License-Identifier: Apache-2.0
//! The data plane: workers, owners, chain runner, normaliser and generations.
//!
//! A [`worker::Worker`] runs packets to completion: decode, defragment, find the flow, advance TCP and application
//! layer once, let the functions on the flow's path speak, record, forward or refuse.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod account;
pub mod app_memory;
pub mod app_stats;
pub mod board;
pub mod chain;
mod checksums;
mod class;
mod context;
mod counts;
pub mod early;
pub mod enough;
pub mod eve;
pub mod event_ring;
pub mod explain;
pub mod flow_ext;
mod flows;
mod frame;
mod guests;
pub mod handover;
mod host_tables;
pub mod hosts;
mod identity;
mod intake;
mod leaving;
pub mod lifecycle;
pub mod limits;
pub mod live;
pub mod moving;
pub mod normaliser;
pub mod notice;
pub mod overload;
mod passage;
pub mod quotas;
pub mod record;
mod runner;
mod segmentation;
pub mod settings;
mod settled;
pub mod standing;
pub mod stats;
mod tally;
pub mod train;
pub mod worker;
pub mod workers;
