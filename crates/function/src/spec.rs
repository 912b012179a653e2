// SPDX-License-Identifier: Apache-2.0
//! The interface of a function: its specification, rules and callbacks.

use crate::context::PacketContext;
use crate::description::{FlowDescription, VariableNames};
use crate::header::HeaderRules;
use crate::hosts::{HostKeeper, HostSlot, HostTables};
use crate::part::RulePart;
use crate::patterns::PatternSets;
use crate::rule_counts::RuleCount;
use crate::view::FlowView;
use bartizan_base::{Decision, Fid, FunctionId, Generation, Reason, Verdict};
use bartizan_classify::NameTable;
use core::any::Any;
use std::sync::Arc;

/// The papers' three models of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FunctionModel {
    /// 1: inspects headers, keeps no state. Runs before the flow's state is advanced.
    StatelessHeaders,
    /// 2: inspects headers and flow state.
    StatefulHeaders,
    /// 3: inspects payloads, streams and transactions.
    Payload,
}

/// The way in which a payload function takes full segments of a stream that arrived back to back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Together {
    /// It gets each packet, with the new stream data of that packet.
    #[default]
    Apart,
    /// It gets each packet; the new stream data of all of them comes with the last.
    StreamJoined,
    /// It gets only the last packet, with the new stream data of all of them; acknowledgements without news
    /// are skipped.
    Joined,
}

/// A header field on which a function's header half matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// Name, as in the classifier.
    pub name: &'static str,
    /// Width in bits (IPv6 where both versions differ).
    pub width: u16,
}

/// The header half as data: the host interprets it, and XDP and RTL tables are generated from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderHalf {
    /// The fields of the match.
    pub fields: &'static [HeaderField],
    /// Bytes of its longest table entry, at most [`ENTRY_BYTES_MAX`].
    pub entry_bytes: u16,
    /// Table lookups per packet of which each depends on the previous one, at most [`LOOKUPS_MAX`].
    pub lookups: u8,
}

/// Most bytes of a table entry that a level below the host reads at once.
pub const ENTRY_BYTES_MAX: u16 = 128;

/// Most dependent lookups for which a level below the host has time.
pub const LOOKUPS_MAX: u8 = 2;

impl HeaderHalf {
    /// Whether a level below the host can run it.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.entry_bytes <= ENTRY_BYTES_MAX && self.lookups <= LOOKUPS_MAX
    }
}

/// A counter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionCounter {
    /// Name in metrics, without the function's.
    pub name: &'static str,
    /// Description of the counted events.
    pub help: &'static str,
}

/// The fixed properties of a function.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionSpec {
    /// Name in policies, paths and events.
    pub name: &'static str,
    /// The function's purpose, one sentence for the reference.
    pub summary: &'static str,
    /// Model.
    pub model: FunctionModel,
    /// Functions after which it runs, if they are in the chain.
    pub runs_after: &'static [&'static str],
    /// Functions before which it runs.
    pub runs_before: &'static [&'static str],
    /// The function's header half, if part of it can run at a lower level.
    pub header_half: Option<HeaderHalf>,
    /// The function's state per host, beyond flows and generations, if it has any.
    pub host_slot: Option<HostSlot>,
    /// The function's counters.
    pub counters: &'static [FunctionCounter],
}

/// An error in the rules of a function: the generation is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}: {place}: {message}")]
pub struct RulesError {
    /// The function.
    pub function: &'static str,
    /// The place: `policy.yaml:12:5`, or the path of a key.
    pub place: String,
    /// The error and its remedy.
    pub message: String,
}

/// The source of a function's rules: its parts of a policy file, as JSON, with their place.
#[derive(Clone, Copy, Debug)]
pub struct RuleSource<'r> {
    /// The part that all classes share; all functions use it.
    pub common: &'r Arc<RulePart>,
    /// The function's section of each policy, with the classes to which it applies.
    pub classes: &'r [Arc<RulePart>],
    /// The place of the source, for messages.
    pub place: &'r str,
    /// Number of the generation that is built.
    pub generation: Generation,
    /// The function's bit in paths.
    pub id: FunctionId,
    /// The tables of its state per host ([`HostTables::of`]).
    pub hosts: &'r HostTables,
    /// Compiles the patterns that the function searches ([`PatternSets`]).
    pub patterns: &'r PatternSets,
    /// The current names of addresses.
    pub names: &'r Arc<NameTable>,
}

/// A kind of function: makes an instance for the rules of a generation.
pub trait FunctionKind: Send + Sync {
    /// The specification of the function.
    fn spec(&self) -> &'static FunctionSpec;

    /// Callback **rules**: parses and installs the rules of a generation.
    ///
    /// # Errors
    /// Every error, with its position; the running generation stays.
    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>>;

    /// Keys of its section that an order can change without the policy file: each has the meaning that it has
    /// in the section, and a change makes a generation.
    fn changeable(&self) -> &'static [&'static str] {
        &[]
    }

    /// JSON schema of its section of a policy, for the schema of policy files. `None`: it has no section, or
    /// crate `config` defines the section.
    fn section_schema(&self) -> Option<serde_json::Value> {
        None
    }
}

/// A function's state for a worker.
pub type WorkerState = Box<dyn Any + Send>;

/// A function's state for a flow.
pub trait SlotState: Any + Send {
    /// Bytes of memory held beside the state's own size: the part that traffic can grow. Called after each
    /// packet of the flow, so it must take constant time.
    fn held(&self) -> usize {
        0
    }

    /// Frees state that only later data needs, when memory is used up and the flow gives way. Data for
    /// records and earlier decisions stay.
    fn release_state(&mut self) {}

    /// The description for the flow's records.
    fn describe(&self) -> FlowDescription<'_> {
        FlowDescription::default()
    }
}

/// The slot of a function's state in a flow; `None` until the function stores something.
pub type StateSlot = Option<Box<dyn SlotState>>;

/// The state in a slot, if it has this type.
#[must_use]
pub fn slot_as<T: SlotState>(slot: &StateSlot) -> Option<&T> {
    let state: &dyn Any = slot.as_deref()?;
    state.downcast_ref()
}

/// The state in a slot, if it has this type, to change.
pub fn slot_as_mut<T: SlotState>(slot: &mut StateSlot) -> Option<&mut T> {
    let state: &mut dyn Any = slot.as_deref_mut()?;
    state.downcast_mut()
}

/// The state in a slot, made if the slot is empty. A state of another type, left by another function of this
/// name, is replaced by a new one: then `true`, which the caller counts, since a function must not lose its
/// state silently.
pub fn state_in<T: SlotState + Default>(slot: &mut StateSlot) -> Option<(&mut T, bool)> {
    let replaced = slot.is_some() && slot_as::<T>(slot).is_none();
    if replaced || slot.is_none() {
        *slot = Some(Box::new(T::default()));
    }
    slot_as_mut(slot).map(|state| (state, replaced))
}

/// The part of a flow that a level below the host needs, so that it forwards nothing which a function's
/// header half would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OffloadRequirement {
    /// Nothing: the function forwards every further packet of the flow.
    Nothing,
    /// The numbers of the TCP connection: the function forwards segments that plainly fit them
    /// ([`TcpSession::windows`](bartizan_flow::tcp::TcpSession::windows)), in an established connection.
    Windows,
    /// More than a level can do: the function inspects each packet.
    #[default]
    Judges,
}

/// The reason why a level below cannot refuse a packet without a flow for a function ([`Function::refuses`]):
/// the packet goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandsUp {
    /// The rule forwards the packet, which opens a flow; only the host does that.
    LetsGo,
    /// The rule refuses the packet with an answer, which the host sends.
    Answers,
    /// The policy is staged: its refusals are computed and reported by the host.
    Staged,
    /// The function needs more than headers to decide.
    Judges,
}

/// A function with the rules of one generation; immutable, shared by the workers.
pub trait Function: Send + Sync {
    /// The specification of the function.
    fn spec(&self) -> &'static FunctionSpec;

    /// Its bit in paths.
    fn id(&self) -> FunctionId;

    /// The function that this one wraps (as an observer, or to withhold its decisions): the default of each
    /// method calls the wrapped function.
    fn inner(&self) -> Option<&dyn Function> {
        None
    }

    /// The function as its own type, for code that knows the type: `trace` uses it for detection rules. Never
    /// called for traffic.
    fn as_any(&self) -> Option<&dyn Any> {
        self.inner()?.as_any()
    }

    /// A new state for a worker.
    fn worker(&self) -> WorkerState {
        self.inner().map_or_else(|| Box::new(()) as WorkerState, |inner| inner.worker())
    }

    /// Takes the function's header rules; the builder of the generation calls this once, before the first
    /// packet. One lookup on a flow's first packet serves all functions and policies; its results are in the
    /// packets' [`ChainResults`](crate::ChainResults::matched).
    fn take_header_rules(&mut self) -> Vec<HeaderRules> {
        Vec::new()
    }

    /// Remarks on its rules that are no errors (a rule that another one hides), which who builds the
    /// generation takes from it, once. Of rules that were made for a generation before, none.
    fn take_warnings(&mut self) -> Vec<RulesError> {
        Vec::new()
    }

    /// The rules that apply to flows of a class, for quotas: the index of the rule set among the function's
    /// own, and the number of its rules.
    fn rules_of(&self, fid: Fid) -> Option<(usize, usize)> {
        self.inner()?.rules_of(fid)
    }

    /// Callback **packet**: the header half.
    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        self.inner().map_or(Decision::CONTINUE, |inner| inner.packet(context))
    }

    /// The part of a flow that a level below needs to handle further packets without this function's header
    /// half, after the latest packet was forwarded. Called when a flow could be offloaded, not for each
    /// packet.
    fn below(&self, flow: &FlowView<'_>, fid: Fid, slot: &StateSlot) -> OffloadRequirement {
        self.inner().map_or(OffloadRequirement::Judges, |inner| inner.below(flow, fid, slot))
    }

    /// Callback **payload**: the payload half, called per packet after streams and transactions were
    /// advanced.
    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        self.inner().map_or(Decision::CONTINUE, |inner| inner.payload(context))
    }

    /// The way in which its payload half takes segments that arrived together. The bytes are the same either
    /// way; the decision at the last of joined segments applies to all of them.
    fn together(&self) -> Together {
        self.inner().map_or(Together::Apart, |inner| inner.together())
    }

    /// Whether the function has nothing to search in payloads: then it is not called for them, and counts as
    /// done with the data.
    fn is_idle(&self) -> bool {
        self.inner().is_some_and(|inner| inner.is_idle())
    }

    /// Whether it refuses traffic by its protocol, so that bytes of an undecided protocol must not reach
    /// their receiver before the function has decided.
    fn waits_for_protocol(&self) -> bool {
        self.inner().is_some_and(|inner| inner.waits_for_protocol())
    }

    /// The table of its state per host. Workers let its values expire and export its counters.
    fn hosts(&self) -> Option<Arc<dyn HostKeeper>> {
        self.inner()?.hosts()
    }

    /// The names of the numbers in its descriptions of flows ([`SlotState::describe`]).
    fn variable_names(&self) -> Option<Arc<dyn VariableNames>> {
        self.inner()?.variable_names()
    }

    /// Details of a packet beyond the verdict, by name, for `explain`. Never called for traffic.
    fn explain(&self, context: &PacketContext<'_>) -> serde_json::Map<String, serde_json::Value> {
        self.inner().map(|inner| inner.explain(context)).unwrap_or_default()
    }

    /// Callback **log**: passes on the counters of a worker, (name, value).
    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        if let Some(inner) = self.inner() {
            inner.log(worker, each);
        }
    }

    /// Passes on a worker's count for each rule of the generation, each once.
    fn log_rules(&self, worker: &WorkerState, each: &mut dyn FnMut(RuleCount<'_>)) {
        if let Some(inner) = self.inner() {
            inner.log_rules(worker, each);
        }
    }

    /// The decision on each packet of TCP and UDP that opens a flow of this class, or belongs to none, if the
    /// lookup has found this one of its header rules (`None`: none), independent of everything else: a
    /// refusal by [`Verdict::Drop`] that a level below may carry out.
    ///
    /// # Errors The reason why a level below cannot decide: then the packet goes up.
    fn refuses(&self, fid: Fid, matched: Option<u32>) -> Result<Decision, HandsUp> {
        self.inner().map_or(Err(HandsUp::Judges), |inner| inner.refuses(fid, matched))
    }

    /// Counts packets of a flow of this class that a level below the host has handled by the function's
    /// decision ([`Decision::repeats`]), as if the function had run.
    fn repeated(&self, worker: &mut WorkerState, fid: Fid, decision: &Decision, packets: u64) {
        if let Some(inner) = self.inner() {
            inner.repeated(worker, fid, decision, packets);
        }
    }

    /// Would-be refusals of staged policies by a worker: class, verdict, reason, packets. For wrappers that
    /// stage functions; a function itself does not know of staging.
    fn staged(&self, worker: &WorkerState, each: &mut dyn FnMut(Fid, Verdict, Reason, u64)) {
        if let Some(inner) = self.inner() {
            inner.staged(worker, each);
        }
    }
}
