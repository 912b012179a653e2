// SPDX-License-Identifier: Apache-2.0
//! `names` reads the answers of resolvers and notes which addresses have the names of policies: the basis of
//! groups by DNS name.
//!
//! This function refuses nothing. The agent puts it on the path of flows to a resolver that the policy file
//! trusts, if some group has a name, after all other functions: an answer counts if no function on the path
//! refuses it. It must also answer a question of the flow's client (same number, name and type, unanswered so
//! far), with a response code of success, and not be truncated. Only records that follow from the queried
//! name count: its addresses, or those of its aliases within the same answer. The queried name alone decides
//! which names of policies an address gets: an alias into another owner's name makes no address a member of a
//! group of that name.
//!
//! An address is a member for the least time to live of the records that lead to it, within the bounds of the
//! policy file.

use bartizan_applayer::lookup::{AddressLookup, AddressQuestion, LookupPart};
use bartizan_base::turns::wait_for_turn;
use bartizan_base::{Decision, FunctionId, PacketDuration};
use bartizan_classify::names::Learned;
use bartizan_classify::{NameId, NameTable};
use bartizan_function::{
    Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec, PacketContext, RuleSource,
    RulesError, SlotState, Together, WorkerState, state_in,
};
use serde::Deserialize;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The specification of the function.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "names",
    summary: "Reads answers of trusted resolvers for groups by DNS name. The agent adds it to the path of flows to these resolvers; it never drops.",
    model: FunctionModel::Payload,
    runs_after: &["gate", "portscan", "pfw", "sfw", "ids"],
    runs_before: &[],
    header_half: None,
    host_slot: None,
    counters: &[
        FunctionCounter { name: "answers", help: "Answers for names of groups that were accepted." },
        FunctionCounter { name: "added", help: "Addresses added as members of a name." },
        FunctionCounter { name: "renewed", help: "Members whose lifetime an answer extended." },
        FunctionCounter { name: "full", help: "Addresses not added: their tenant has reached its bound." },
        FunctionCounter {
            name: "crowded",
            help: "Addresses not added to another name: they have reached the bound of names.",
        },
        FunctionCounter {
            name: "not_asked",
            help: "Answers ignored: the flow's client has no outstanding query for them.",
        },
        FunctionCounter {
            name: "failed",
            help: "Answers ignored: their code is an error, or they are truncated.",
        },
        FunctionCounter { name: "refused", help: "Answers ignored: a function dropped their packet." },
        FunctionCounter {
            name: "forgotten",
            help: "Queries evicted: their flow has more outstanding queries than are kept.",
        },
    ],
};

/// Most unanswered questions of a flow; the oldest is dropped.
pub(crate) const ASKED_MAX: usize = 64;
/// Most aliases that are followed in an answer.
pub(crate) const ALIASES_MAX: usize = 16;

/// The function's section, which the agent writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct NamesSection {
    names: HashMap<String, u32>,
    ttl_min: u64,
    ttl_max: u64,
}

/// Makes the function.
#[derive(Debug, Default)]
pub struct NamesKind;

impl FunctionKind for NamesKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let said = NamesSection::deserialize(source.common.json());
        let said =
            said.map_err(|e| vec![bartizan_function::classes::error(SPEC.name, "dns", e.to_string())])?;
        let mut watched = DnsPolicyNames::default();
        for (name, number) in said.names {
            let Some(id) = core::num::NonZeroU32::new(number).map(NameId) else { continue };
            match name.strip_prefix("*.") {
                Some(below) => watched.below.insert(below.into(), id),
                None => watched.exact.insert(name.into(), id),
            };
        }
        Ok(Box::new(NamesFunction {
            id: source.id,
            watched,
            lives: (said.ttl_min, said.ttl_max),
            names: Arc::clone(source.names),
        }))
    }
}

/// The names of policies.
#[derive(Debug, Default)]
struct DnsPolicyNames {
    exact: HashMap<Box<str>, NameId>,
    below: HashMap<Box<str>, NameId>,
}

impl DnsPolicyNames {
    /// The names of policies that a name is, or is below.
    fn of(&self, name: &str) -> SmallVec<[NameId; 2]> {
        let mut found: SmallVec<[NameId; 2]> = self.exact.get(name).copied().into_iter().collect();
        if !self.below.is_empty() {
            let parents = name.match_indices('.').filter_map(|(dot, _)| name.get(dot.saturating_add(1)..));
            found.extend(parents.filter_map(|parent| self.below.get(parent)).copied());
        }
        found
    }
}

/// The function `names` with the names of one generation's policies.
#[derive(Debug)]
struct NamesFunction {
    id: FunctionId,
    watched: DnsPolicyNames,
    /// Least and greatest time to live, in seconds.
    lives: (u64, u64),
    names: Arc<NameTable>,
}

/// The state of a flow to a resolver: unanswered questions that could make members.
#[derive(Debug, Default)]
struct ResolverFlowState {
    questions: VecDeque<AddressQuestion>,
    held: usize,
}

impl SlotState for ResolverFlowState {
    fn held(&self) -> usize {
        self.held.saturating_add(self.questions.capacity().saturating_mul(size_of::<AddressQuestion>()))
    }

    fn release_state(&mut self) {
        *self = ResolverFlowState::default();
    }
}

impl ResolverFlowState {
    /// Adds a question; returns whether another one was dropped for it.
    fn note(&mut self, question: AddressQuestion) -> bool {
        if self.questions.contains(&question) {
            return false;
        }
        let full = self.questions.len() >= ASKED_MAX;
        if full {
            self.forget(0);
        }
        self.held = self.held.saturating_add(question.name.len());
        self.questions.push_back(question);
        full
    }

    /// Removes an answered question; returns whether it was asked.
    fn take(&mut self, question: &AddressQuestion) -> bool {
        let Some(at) = self.questions.iter().position(|q| q == question) else { return false };
        self.forget(at);
        true
    }

    fn forget(&mut self, at: usize) {
        if let Some(question) = self.questions.remove(at) {
            self.held = self.held.saturating_sub(question.name.len());
        }
    }
}

#[derive(Debug, Default)]
struct NamesCounts {
    answers: u64,
    added: u64,
    renewed: u64,
    full: u64,
    crowded: u64,
    not_asked: u64,
    failed: u64,
    refused: u64,
    forgotten: u64,
}

impl NamesFunction {
    fn note_question(
        &self,
        message: &dyn AddressLookup,
        state: &mut ResolverFlowState,
        counts: &mut NamesCounts,
    ) {
        if let Some(question) = message.question().filter(|q| !self.watched.of(&q.name).is_empty()) {
            counts.forgotten += u64::from(state.note(question));
        }
    }

    fn answers(
        &self,
        message: &dyn AddressLookup,
        asked: &mut ResolverFlowState,
        counts: &mut NamesCounts,
        context: &AnswerContext,
    ) {
        let Some(question) = message.question() else { return };
        let ids = self.watched.of(&question.name);
        if ids.is_empty() {
            return;
        }
        if !context.goes_on {
            counts.refused += 1;
            return;
        }
        if !asked.take(&question) {
            counts.not_asked += 1;
            return;
        }
        if !message.succeeded() {
            counts.failed += 1;
            return;
        }
        counts.answers += 1;
        // Captures: workers touch shared state in the order of the packets.
        wait_for_turn();
        let name: Arc<str> = Arc::from(question.name);
        for (address, ttl) in message.addresses(&name, ALIASES_MAX) {
            let (least, most) = self.lives;
            let lives = PacketDuration::from_secs(u64::from(ttl).max(least).min(most));
            let until = context.now + lives;
            for id in &ids {
                match self.names.learn(context.tenant, address, *id, &name, until, context.now) {
                    Learned::Added => counts.added += 1,
                    Learned::Renewed => counts.renewed += 1,
                    Learned::Full => counts.full += 1,
                    Learned::Crowded => counts.crowded += 1,
                }
            }
        }
    }
}

/// The properties of the packet that brings an answer.
struct AnswerContext {
    goes_on: bool,
    tenant: bartizan_base::TenantId,
    now: bartizan_base::Timestamp,
}

impl Function for NamesFunction {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn worker(&self) -> WorkerState {
        Box::new(NamesCounts::default())
    }

    fn together(&self) -> Together {
        Together::Joined
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let Some(app) = context.app.as_mut().filter(|app| !app.changed().is_empty()) else {
            return Decision::CONTINUE;
        };
        let Some(counts) = context.worker.downcast_mut::<NamesCounts>() else { return Decision::CONTINUE };
        let goes_on = context.notes.decision.verdict.forwards() && !context.facts.flow_ends;
        let seen = AnswerContext { goes_on, tenant: context.notes.tenant, now: context.facts.now };
        let Some((asked, _)) = state_in::<ResolverFlowState>(context.slot) else { return Decision::CONTINUE };
        for (_, tx) in app.transactions() {
            let Some(message) = tx.lookup() else { continue };
            match message.part() {
                Some(LookupPart::Question) => self.note_question(message, asked, counts),
                Some(LookupPart::Answer) => self.answers(message, asked, counts, &seen),
                // A message that claims to be of the other kind is neither.
                None => {}
            }
        }
        Decision::CONTINUE
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let Some(counts) = worker.downcast_ref::<NamesCounts>() else { return };
        each("answers", counts.answers);
        each("added", counts.added);
        each("renewed", counts.renewed);
        each("full", counts.full);
        each("crowded", counts.crowded);
        each("not_asked", counts.not_asked);
        each("failed", counts.failed);
        each("refused", counts.refused);
        each("forgotten", counts.forgotten);
    }
}
