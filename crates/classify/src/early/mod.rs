// SPDX-License-Identifier: Apache-2.0
//! Early tables: what a level below the host reads to refuse packets without a flow, by a list of rules of
//! which the first that matches decides.
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
//! Each field becomes the class of all values that the same rules match; two classes become the class of what
//! matches both. So a lookup is two searches in sorted segments and some loads, however many rules there are,
//! and a rule with 10,000 prefixes costs segments only. The price is room: rules that cross each other in
//! both addresses multiply classes. What does not fit is left out from the end of the list: what only rules
//! match that are left out goes up, and no packet is decided by a rule behind one that is not there.
//!
//! *Tenants* ([`EarlyTenant`]): a packet is of the tenant whose selector is the first that fits. Links and
//! tenants for which the same rules count are one scope. Where no rule asks for a tenant each link is a
//! scope, and nothing else is looked at.
//!
//! *Rules* ([`EarlyRules`]) are put in as header rules; alternatives of one rule that are a product of sets
//! (addresses × ports) become one row again. [`EarlyTable`] has the words, as `packet::slots` lays them out;
//! [`outcome`] reads them as `ebpf/early.h` does.
//!
//! Source of the method: recursive flow classification (Gupta and McKeown, SIGCOMM 1999), with two phases.
//!
//! Not done: other protocols than TCP, UDP and ICMP, DNS names (what they decide goes up).

mod build;
mod read;
mod rows;
mod sets;
mod tenants;

pub use build::{EarlyLevel, EarlyTable};
pub use read::{Protocol, Question, outcome};
pub use rows::{EarlyReach, EarlyRules, EarlyTenant, OnLink, Unknown};
pub(crate) use tenants::{HOSTS_MAX, SELECTED_MAX, TUNNELS_MAX};

#[cfg(test)]
mod tests;
