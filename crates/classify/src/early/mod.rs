// SPDX-License-Identifier: Apache-2.0
//! Early tables: a level below the host reads them to refuse packets without a flow, by a list of rules,
//! the first match of which decides.
//!
//! ```text
//!   source address ---segments---> class \
//!                                         pair class \
//!   destination    ---segments---> class /            outcome, or up
//!   scope, protocol, ports ------> service class -----/
//!
//!   link, tags or tunnel, addresses ---> place of the tenant's selector ---> scope
//! ```
//!
//! Each field becomes the class of all values that the same rules match; two classes become the class of
//! their intersection. So a lookup is two searches in sorted segments and some loads, however many rules
//! there are, and a rule with 10,000 prefixes costs segments only. The price is memory: rules that cross
//! each other in both addresses multiply classes. If the list does not fit, rules are left out from its
//! end: packets that only those match go up, and no packet is decided by a rule after one that was left
//! out.
//!
//! *Tenants* ([`EarlyTenant`]): a packet is of the tenant whose selector is the first that fits. Links and
//! tenants with the same rules are one scope. Where no rule names a tenant each link is a scope, and tags,
//! tunnels and addresses are not read for it.
//!
//! *Rules* ([`EarlyRules`]) are added as header rules; alternatives of one rule that are a product of sets
//! (addresses × ports) become one row again. [`EarlyTable`] has the words, as `packet::slots` lays them
//! out; [`outcome`] reads them as `ebpf/early.h` does.
//!
//! Source of the method: recursive flow classification (Gupta and McKeown, SIGCOMM 1999), with two phases.
//!
//! Not done: other protocols than TCP, UDP and ICMP, DNS names (packets that such rules may match go up).

mod build;
mod read;
mod rows;
mod sets;
mod tenants;

pub use build::{EarlyLevel, EarlyTable};
pub use read::{EarlyKey, Protocol, outcome};
pub use rows::{EarlyReach, EarlyRules, EarlyTenant, OnLink, Unknown};
pub(crate) use tenants::{HOSTS_MAX, SELECTED_MAX, TUNNELS_MAX};

#[cfg(test)]
mod tests;
