// SPDX-License-Identifier: Apache-2.0
//! What is counted beside a worker, for those who show it and those who count.

mod handover;
mod live;

pub use handover::HandOverCounters;
pub use live::LiveCounters;
