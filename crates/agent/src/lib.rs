// SPDX-License-Identifier: Apache-2.0
//! The agent: policy to fids, paths, rules and the generation that the data plane runs.
//!
//! * [`grt`]: the global rule table, which allocates fids;
//! * [`order`]: the order in which functions run;
//! * [`tenants`]: assigns packets to tenants;
//! * [`classes`]: the class of a new flow, by the one lookup for policies and functions;
//! * `early`: the list by which a level below drops packets without a flow;
//! * [`staged`]: policies whose verdicts are only reported;
//! * [`explain`]: explains the handling of a flow;
//! * [`replay`]: evaluates a generation on recorded traffic;
//! * [`session`]: the agent's side of the southbound protocol;
//! * [`joined`]: joins a controller's objects to a policy file, and maps problems back to objects;
//! * [`build`]: compiles a policy file, all or nothing;
//! * [`generations`]: builds the generations of a device, from a policy's source.
//!
//! The program passes the results to the data plane.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod build;
pub mod classes;
mod compaction;
mod early;
pub mod explain;
pub mod generations;
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
