// SPDX-License-Identifier: Apache-2.0
//! Firewall mode: rules that say what may go on, and policies for all else. Source: Suricata 8's user guide,
//! "Firewall Mode Design", and what 8.0.8 was seen to do; where both differ, docs/firewall.md says which
//! holds here.
//!
//! The firewall judges each packet before detection does, table by table: `packet:pre_flow`,
//! `packet:pre_stream` (both only if they have rules), `packet:filter`, then one table for each state that
//! the packet's transactions have come to. In a table the first rule that matches decides, in the order of
//! the files; where none does, the table's policy decides. What the firewall refuses detection does not see.
//!
//! The engine runs it (`engine/inspect/gate.rs`).

mod policies;
mod rules;
mod tables;

pub use crate::model::firewall::{Act, At, Cause, FirewallRule, Gate, PacketHook, Reach, Refusal};
pub(crate) use policies::POLICY_SIDS;
pub use policies::{Policies, is_enabled};
pub(crate) use rules::{check_detection, check_firewall};
pub use tables::{Firewall, Policy, States, Table};
