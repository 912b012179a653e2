// SPDX-License-Identifier: Apache-2.0
//! The function API, by which security functions are written.
//!
//! A function is three callbacks, as in the UniSec and PASS papers: **rules** ([`FunctionKind::rules`]: parse
//! and install the rules of a generation), **packet/payload** ([`Function::packet`], [`Function::payload`]:
//! return verdicts), **log** ([`Function::log`]: return the collected counters). Its [`FunctionSpec`]
//! declares its properties. A function never changes packets and knows no other function, port or device; the
//! results of earlier functions are in the [`ChainResults`] of the packet.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod classes;
pub mod contain;
mod context;
mod description;
mod finding;
pub mod header;
pub mod hosts;
mod part;
mod patterns;
mod rule_counts;
mod spec;
mod transactions;
pub mod view;

pub use context::{ChainResults, PacketContext, PacketFacts, StreamNews};
pub use description::{FlowDescription, OfFlow, VariableNames};
pub use finding::{Edit, Finding, FindingAction, RejectTo, RuleInfo, STAGED_GID, would_refuse};
pub use header::{HeaderRules, names_among};
pub use hosts::{HostData, HostKeeper, HostSlot, HostTables, HostTablesConfig, HostValues};
pub use part::RulePart;
pub use patterns::PatternSets;
pub use rule_counts::{RuleCount, RuleName};
pub use spec::{
    ENTRY_BYTES_MAX, Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec, HandsUp,
    HeaderField, HeaderHalf, LOOKUPS_MAX, OffloadRequirement, RuleSource, RulesError, SlotState, StateSlot,
    Together, WorkerState, slot_as, slot_as_mut, state_in,
};
pub use transactions::{AppView, Marks, RecordMark, TransactionRound};
pub use view::FlowView;
