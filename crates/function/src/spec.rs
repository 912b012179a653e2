// SPDX-License-Identifier: Apache-2.0
//! What a function is and does.

use crate::context::PacketContext;
use crate::description::{FlowDescription, VariableNames};
use crate::header::HeaderRules;
use crate::hosts::{HostKeeper, HostSlot, HostTables};
use crate::part::RulePart;
use crate::patterns::PatternSets;
use crate::rule_counts::RuleCount;
use crate::view::FlowView;
use bartizan_base::{Decision, Fid, FunctionId, Generation, Reason, Verdict};
use bartizan_classify::Names;
use core::any::Any;
use std::sync::Arc;

/// The papers' three models of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// 1: looks at headers, keeps nothing. Runs before the flow's state is advanced.
    StatelessHeaders,
    /// 2: looks at headers and flow state.
    StatefulHeaders,
    /// 3: looks at payloads, streams and transactions.
    Payload,
}

/// How a payload function takes full segments of a stream that came together, one directly behind the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Together {
    /// Each packet is shown, with what the stream has new by it.
    #[default]
    Apart,
    /// Each packet is shown; what the stream has new by all of them comes with the last.
    StreamJoined,
    /// Only the last packet is shown, with what the stream has new by all of them; acknowledgements that
    /// bring nothing new are not shown.
    Joined,
}

/// A header field that a function's header half matches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// Name, as in the classifier.
    pub name: &'static str,
    /// Width in bits (IPv6 where both versions differ).
    pub width: u16,
}

/// The header half as data: from it host, XDP and RTL tables are interpreted or generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderHalf {
    /// What it matches on.
    pub fields: &'static [HeaderField],
    /// Bytes of its longest table entry, at most [`ENTRY_BYTES_MAX`].
    pub entry_bytes: u16,
    /// Table lookups per packet of which each depends on the one before, at most [`LOOKUPS_MAX`].
    pub lookups: u8,
}

/// Bytes of a table entry that a level below the host reads at once.
pub const ENTRY_BYTES_MAX: u16 = 128;

/// Lookups depending on each other that a level below the host has time for.
pub const LOOKUPS_MAX: u8 = 2;

impl HeaderHalf {
    /// Whether a level below the host has room and time for it.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.entry_bytes <= ENTRY_BYTES_MAX && self.lookups <= LOOKUPS_MAX
    }
}

/// A counter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name in metrics, without the function's.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
}

/// All that is fixed about a function.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionSpec {
    /// Name in policies, paths and events.
    pub name: &'static str,
    /// What it does, one sentence for the reference.
    pub summary: &'static str,
    /// Model.
    pub model: Model,
    /// Functions that it runs after, where they are in the chain.
    pub runs_after: &'static [&'static str],
    /// Functions that it runs before.
    pub runs_before: &'static [&'static str],
    /// Its header half, if part of it can run at a lower level.
    pub header_half: Option<HeaderHalf>,
    /// What it keeps per host, beyond flows and generations, if it does.
    pub host_slot: Option<HostSlot>,
    /// Its counters.
    pub counters: &'static [Counter],
}

/// Why the rules of a function cannot be installed: nothing of the generation is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}: {place}: {message}")]
pub struct RulesError {
    /// The function.
    pub function: &'static str,
    /// Where: `policy.yaml:12:5`, or the path of a key.
    pub place: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// What the rules of a function are made from: its parts of a policy file, as JSON, with the place that they
/// came from.
#[derive(Clone, Copy, Debug)]
pub struct RuleSource<'r> {
    /// What all classes have in common; functions share it.
    pub common: &'r Arc<RulePart>,
    /// The function's section of each policy, with the classes that it holds for.
    pub classes: &'r [Arc<RulePart>],
    /// Where it stands, for messages.
    pub place: &'r str,
    /// Number of the generation that is built.
    pub generation: Generation,
    /// The function's bit in paths.
    pub id: FunctionId,
    /// Where it finds what it keeps per host ([`HostTables::of`]).
    pub hosts: &'r HostTables,
    /// Compiles the patterns that it looks for ([`PatternSets`]).
    pub patterns: &'r PatternSets,
    /// Which addresses have which names now.
    pub names: &'r Arc<Names>,
}

/// A kind of function: makes an instance for the rules of a generation.
pub trait FunctionKind: Send + Sync {
    /// What it is.
    fn spec(&self) -> &'static FunctionSpec;

    /// Callback **rules**: parses and installs the rules of a generation.
    ///
    /// # Errors
    /// Each with its position; the running generation stays.
    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>>;

    /// Keys of its section that can be changed by an order, without the policy file: each means what it means
    /// there, and a change makes a generation.
    fn changeable(&self) -> &'static [&'static str] {
        &[]
    }

    /// JSON schema of its section of a policy, for the schema of policy files. `None`: it has none, or brings
    /// its section with crate `config`.
    fn section_schema(&self) -> Option<serde_json::Value> {
        None
    }
}

/// What a function keeps per worker.
pub type WorkerState = Box<dyn Any + Send>;

/// What functions keep per flow.
pub trait SlotState: Any + Send {
    /// Bytes of memory held beside its own place: what traffic makes it grow by. Asked after each packet of
    /// the flow, so the answer costs a constant number of steps.
    fn held(&self) -> usize {
        0
    }

    /// Memory is used up and the flow gives way: what is only of use for data that comes is let go of. What
    /// records tell and what was decided stays.
    fn let_go(&mut self) {}

    /// What the flow's records say of it.
    fn describe(&self) -> FlowDescription<'_> {
        FlowDescription::default()
    }
}

/// What a function keeps per flow; `None` until it stores something.
pub type Slot = Option<Box<dyn SlotState>>;

/// What stands in a slot, if it is of this type.
#[must_use]
pub fn slot_as<T: SlotState>(slot: &Slot) -> Option<&T> {
    let state: &dyn Any = slot.as_deref()?;
    state.downcast_ref()
}

/// What stands in a slot, if it is of this type, to change.
pub fn slot_as_mut<T: SlotState>(slot: &mut Slot) -> Option<&mut T> {
    let state: &mut dyn Any = slot.as_deref_mut()?;
    state.downcast_mut()
}

/// What stands in a slot, made if nothing does. A state of another type, which another function of this name
/// has left, is replaced by a new one: `true` then, to be counted, as no function runs without its state in
/// silence.
pub fn state_in<T: SlotState + Default>(slot: &mut Slot) -> Option<(&mut T, bool)> {
    let replaced = slot.is_some() && slot_as::<T>(slot).is_none();
    if replaced || slot.is_none() {
        *slot = Some(Box::new(T::default()));
    }
    slot_as_mut(slot).map(|state| (state, replaced))
}

/// What a level below the host has to hold of a flow, so that nothing goes on there which a function's header
/// half would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Below {
    /// Nothing: the function lets every further packet of the flow go on.
    Nothing,
    /// The numbers of the TCP connection: it lets go on what plainly goes on with them
    /// ([`TcpSession::windows`](bartizan_flow::tcp::TcpSession::windows)), in an established connection.
    Windows,
    /// More than a level can: the function looks at each packet.
    #[default]
    Judges,
}

/// Why a level below does not refuse a packet without a flow in a function's name ([`Function::refuses`]): it
/// goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandsUp {
    /// The rule lets it go on; that opens a flow, which is the host's to do.
    LetsGo,
    /// The rule refuses it with an answer, which the host sends.
    Answers,
    /// The policy is staged: its refusals are computed and reported by the host.
    Staged,
    /// The function judges by more than headers.
    Judges,
}

/// A function with the rules of one generation; immutable, shared by the workers.
pub trait Function: Send + Sync {
    /// What it is.
    fn spec(&self) -> &'static FunctionSpec;

    /// Its bit in paths.
    fn id(&self) -> FunctionId;

    /// The function that this one stands around (it observes it, or holds back what it decides): what this
    /// one does not answer itself, that one answers.
    fn inner(&self) -> Option<&dyn Function> {
        None
    }

    /// The function as its own type, for those that know it: `trace` looks for rules of detection. Never
    /// called for traffic.
    fn as_any(&self) -> Option<&dyn Any> {
        self.inner()?.as_any()
    }

    /// What it keeps per worker.
    fn worker(&self) -> WorkerState {
        self.inner().map_or_else(|| Box::new(()) as WorkerState, |inner| inner.worker())
    }

    /// Rules on headers alone, which who builds the generation takes from it, once, before the first packet.
    /// One lookup on a flow's first packet serves all functions and policies; what it found is in the
    /// packets' [`Notes`](crate::Notes::matched).
    fn take_header_rules(&mut self) -> Vec<HeaderRules> {
        Vec::new()
    }

    /// Remarks on its rules that are no errors (a rule that another one hides), which who builds the
    /// generation takes from it, once. Of rules that were made for a generation before, none.
    fn take_warnings(&mut self) -> Vec<RulesError> {
        Vec::new()
    }

    /// Rules that flows of a class meet, for quotas: which set of rules it is, of those that this function
    /// has, and how many there are.
    fn rules_of(&self, fid: Fid) -> Option<(usize, usize)> {
        self.inner()?.rules_of(fid)
    }

    /// Callback **packet**: the header half.
    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        self.inner().map_or(Decision::CONTINUE, |inner| inner.packet(context))
    }

    /// What a level below has to hold of a flow whose latest packet went on, so that it may handle the next
    /// ones without this function's header half. Asked when a flow could leave the host, not for each packet.
    fn below(&self, flow: &FlowView<'_>, fid: Fid, slot: &Slot) -> Below {
        self.inner().map_or(Below::Judges, |inner| inner.below(flow, fid, slot))
    }

    /// Callback **payload**: the payload half, called per packet after streams and transactions were
    /// advanced.
    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        self.inner().map_or(Decision::CONTINUE, |inner| inner.payload(context))
    }

    /// How its payload half takes segments that came together. It is shown the same bytes either way; what it
    /// decides at the last of joined segments is decided of all of them.
    fn together(&self) -> Together {
        self.inner().map_or(Together::Apart, |inner| inner.together())
    }

    /// Whether it has nothing to look for in payloads: it is not shown any, and counts as done with what it
    /// would have been shown.
    fn is_idle(&self) -> bool {
        self.inner().is_some_and(|inner| inner.is_idle())
    }

    /// Whether it refuses traffic for the protocol that it does or does not speak, so that bytes whose
    /// protocol is open must not reach their receiver before the function was asked.
    fn waits_for_protocol(&self) -> bool {
        self.inner().is_some_and(|inner| inner.waits_for_protocol())
    }

    /// The table of what it keeps per host. Workers let its values expire and show its counters.
    fn hosts(&self) -> Option<Arc<dyn HostKeeper>> {
        self.inner()?.hosts()
    }

    /// The names of what its descriptions of flows number ([`SlotState::describe`]).
    fn variable_names(&self) -> Option<Arc<dyn VariableNames>> {
        self.inner()?.variable_names()
    }

    /// For `explain`: what it can say of a packet beyond its verdict, by name. Never called for traffic.
    fn explain(&self, context: &PacketContext<'_>) -> serde_json::Map<String, serde_json::Value> {
        self.inner().map(|inner| inner.explain(context)).unwrap_or_default()
    }

    /// Callback **log**: hands over the counters of a worker, (name, value).
    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        if let Some(inner) = self.inner() {
            inner.log(worker, each);
        }
    }

    /// Hands over what a worker has counted for each rule of the generation, each once.
    fn log_rules(&self, worker: &WorkerState, each: &mut dyn FnMut(RuleCount<'_>)) {
        if let Some(inner) = self.inner() {
            inner.log_rules(worker, each);
        }
    }

    /// What becomes of each packet of TCP and UDP that opens a flow of this class, or belongs to none, where
    /// the lookup has found this rule of its header rules (`None`: none), whatever else is known of it: a
    /// refusal by [`Verdict::Drop`] that a level below may do in its place.
    ///
    /// # Errors
    /// What it is instead: then the packet goes up.
    fn refuses(&self, fid: Fid, matched: Option<u32>) -> Result<Decision, HandsUp> {
        self.inner().map_or(Err(HandsUp::Judges), |inner| inner.refuses(fid, matched))
    }

    /// A level below the host has handled so many packets of a flow of this class as the function had decided
    /// ([`Decision::repeats`]): they are counted as if it had been asked.
    fn repeated(&self, worker: &mut WorkerState, fid: Fid, decision: &Decision, packets: u64) {
        if let Some(inner) = self.inner() {
            inner.repeated(worker, fid, decision, packets);
        }
    }

    /// Refusals of staged policies that a worker only computed: class, verdict, reason, packets. For who
    /// stages functions; a function itself knows nothing of it.
    fn staged(&self, worker: &WorkerState, each: &mut dyn FnMut(Fid, Verdict, Reason, u64)) {
        if let Some(inner) = self.inner() {
            inner.staged(worker, each);
        }
    }
}
