// SPDX-License-Identifier: Apache-2.0
//! Early tables: what a level below the host reads to refuse packets without a flow, by a list of rules of which the first that matches decides.
//!
//! ```text
//!   source address ---segments---> class \
//!                                         pair class \
//!   destination    ---segments---> class /            outcome, or up
//!   link, protocol, ports -------> service class -----/
//! ```
//!
//! Each field becomes the class of all values that the same rules match; two classes become the class of what matches both. So a lookup is two searches in
//! sorted segments and some loads, however many rules there are, and a rule with 10,000 prefixes costs segments only. The price is room: rules that
//! cross each other in both addresses multiply classes. What does not fit is left out from the end of the list: what only rules match that are
//! left out goes up, and no packet is decided by a rule behind one that is not there.
//!
//! *Rules* ([`EarlyRules`]) are put in as header rules; alternatives of one rule that are a product of sets (addresses × ports) become one
//! row again. [`EarlyTable`] has the words, as `packet::slots` lays them out; [`outcome`] reads them as `ebpf/early.h` does.
//!
//! Source of the method: recursive flow classification (Gupta and McKeown, SIGCOMM 1999), with two phases.
//!
//! Not done: other protocols than TCP, UDP and ICMP, tenants (what they decide goes up).

mod build;
mod read;
mod rows;
mod sets;

pub use build::EarlyTable;
pub use read::{Protocol, Question, outcome};
pub use rows::{EarlyRules, OnLink, Unknown};

#[cfg(test)]
mod tests;
