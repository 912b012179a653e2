// SPDX-License-Identifier: Apache-2.0
//! Counters that are kept beside a worker's own: of the hand-over and of the live loop.

mod handover;
mod live;

pub use handover::HandOverCounters;
pub use live::LiveCounters;
