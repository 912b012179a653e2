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
//! * [`session`]: the southbound protocol, the agent's side;
//! * [`build`]: a policy file to a generation, all or nothing.
//!
//! Not done yet: rule library; sessions do not drive the data plane yet.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod build;
pub mod classes;
mod early;
pub mod explain;
pub mod grt;
mod lookup;
pub mod order;
pub mod session;
pub mod staged;
pub mod tenants;

pub use build::{Agent, ClassInfo, PolicyEntries, Prepared};
pub use classes::one_chain;
pub use grt::GlobalRuleTable;
pub use lookup::TOGETHER_MAX;
pub use tenants::TenantSelector;
