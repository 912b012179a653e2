// SPDX-License-Identifier: Apache-2.0
//! The data plane: workers, owners, generations, live links and captures.
//!
//! A [`worker::Worker`] runs packets to completion: it leads them through the stages of `bartizan_stages` (decode, defragment, find
//! the flow, advance TCP and application layer once, let the functions on the flow's path speak, account), then records, forwards or
//! refuses.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod ahead;
pub mod board;
pub mod eve;
pub mod event_ring;
pub mod explain;
pub mod handover;
pub mod limits;
pub mod live;
mod passage;
mod segmentation;
pub mod worker;
pub mod workers;
