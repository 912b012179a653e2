// SPDX-License-Identifier: Apache-2.0
//! Firewall mode: rules that accept traffic, and policies for all else. Source: Suricata 8's user guide,
//! "Firewall Mode Design", and the behaviour of 8.0.8; docs/firewall.md lists which of the two holds here
//! where they differ.
//!
//! The firewall judges each packet before detection does, table by table: `packet:pre_flow`,
//! `packet:pre_stream` (both only if they have rules), `packet:filter`, then one table for each state that
//! the packet's transactions have reached. In a table the first matching rule in the order of the files
//! decides; where none matches, the table's policy decides. Detection does not inspect what the firewall
//! refuses.
//!
//! The engine evaluates the tables in `engine/inspect/gate.rs`.

mod policies;
mod rules;
mod tables;

pub use crate::model::firewall::{
    Act, At, FirewallDrop, FirewallDropCause, FirewallRule, Gate, PacketHook, Reach,
};
pub(crate) use policies::POLICY_SIDS;
pub use policies::{Policies, is_enabled};
pub(crate) use rules::{check_detection, check_firewall};
pub use tables::{Firewall, FirewallPolicy, States, Table};
