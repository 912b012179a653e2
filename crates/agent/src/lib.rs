// SPDX-License-Identifier: Apache-2.0
//! The agent: policy to fids, paths, rules and the generation that the data plane runs.
//!
//! * [`grt`]: the global rule table, which hands out fids;
//! * [`order`]: in which order functions run;
//! * [`tenants`]: whose traffic a packet is;
//! * [`classes`]: which class a new flow gets, by the one lookup for policies and functions;
//! * `early`: what a level below may refuse of packets without a flow;
//! * [`staged`]: policies whose verdicts are only reported;
//! * [`explain`]: why a flow is treated as it is;
//! * [`replay`]: a generation over traffic that was;
//! * [`session`]: the southbound protocol, the agent's side;
//! * [`joined`]: a controller's objects to a policy file, and back from what is wrong in it;
//! * [`build`]: a policy file to a generation, all or nothing.
//!
//! The program drives the data plane with what comes of it.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod build;
pub mod classes;
mod compaction;
mod early;
pub mod explain;
pub mod grt;
pub mod joined;
mod kept;
pub mod limits;
mod lookup;
mod named;
pub mod order;
pub mod replay;
pub mod session;
pub mod staged;
pub mod tenants;

pub use build::{AGENTS_OWN, Agent, ClassInfo, Overrides, PolicyEntries, Prepared};
pub use classes::one_chain;
pub use grt::{FidAllocator, GlobalRuleTable, SmallestFree};
pub use lookup::TOGETHER_MAX;
pub use tenants::TenantSelector;
