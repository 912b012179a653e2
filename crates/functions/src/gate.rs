// SPDX-License-Identifier: Apache-2.0
//! `gate`: a policy's decisions on flows as a whole, before any other function: the default action for
//! traffic that no policy names, and flows with only one visible direction.
//!
//! The agent puts the gate on the path of a class that needs it; the gate has no section of its own.

use bartizan_base::{Decision, Direction, Fid, FunctionId, Reason, Verdict};
use bartizan_function::classes::{self, ByFid};
use bartizan_function::{
    FlowView, Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec, HandsUp, HeaderField,
    HeaderHalf, PacketContext, RuleSource, RulesError, WorkerState,
};
use serde::Deserialize;

/// The specification of the function.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "gate",
    summary: "Applies a policy's default action, and its action for flows with one visible direction (`one-sided`).",
    model: FunctionModel::StatefulHeaders,
    runs_after: &[],
    runs_before: &["pfw", "sfw", "ids"],
    header_half: Some(HeaderHalf {
        fields: &[HeaderField { name: "fid", width: 32 }],
        entry_bytes: 16,
        lookups: 1,
    }),
    host_slot: None,
    counters: &[
        FunctionCounter {
            name: "refused",
            help: "Packets dropped by the default action: no policy matches \
                 their flow.",
        },
        FunctionCounter {
            name: "one_sided",
            help: "Packets dropped because only one direction of their flow is visible.",
        },
    ],
};

/// Number of packets of one direction, without any of the other, that make a flow one-sided.
const ONE_SIDED_AFTER: u64 = 8;

/// The gate's section, which the agent writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GateSection {
    /// Everything is dropped.
    #[serde(default)]
    pub refuse: bool,
    /// One-sided flows are dropped.
    #[serde(default)]
    pub drop_one_sided: bool,
}

/// Makes gates.
#[derive(Debug, Default)]
pub struct GateKind;

impl FunctionKind for GateKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let (_, classes) = classes::read::<GateSection>(SPEC.name, source)?;
        let by_fid = ByFid::new(&classes);
        Ok(Box::new(GateFunction {
            id: source.id,
            sections: classes.iter().map(|c| *c.class.rules).collect(),
            by_fid,
        }))
    }
}

/// The function `gate` with the sections of one generation.
#[derive(Debug)]
pub struct GateFunction {
    id: FunctionId,
    sections: Vec<GateSection>,
    by_fid: ByFid,
}

#[derive(Debug, Default)]
struct GateCounts {
    refused: u64,
    one_sided: u64,
}

/// Whether only one direction of a flow is visible: a TCP connection whose other side should have answered
/// long ago.
#[must_use]
pub fn is_one_sided(flow: &FlowView<'_>) -> bool {
    let lonely =
        Direction::BOTH.iter().any(|d| flow.packets[*d] >= ONE_SIDED_AFTER && flow.packets[d.flip()] == 0);
    flow.protocol == 6 && (lonely || flow.tcp.is_some_and(|session| session.is_async()) && flow.established)
}

impl Function for GateFunction {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn worker(&self) -> WorkerState {
        Box::new(GateCounts::default())
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let section = self.by_fid.get(context.notes.fid).and_then(|i| self.sections.get(i));
        let (Some(section), Some(counts)) = (section, context.worker.downcast_mut::<GateCounts>()) else {
            return Decision::CONTINUE;
        };
        if section.refuse {
            counts.refused += 1;
            return Decision::refuse(Verdict::Drop, Reason::PolicyDefault, self.id);
        }
        if section.drop_one_sided && context.facts.flow.is_some_and(is_one_sided) {
            counts.one_sided += 1;
            return Decision::refuse(Verdict::Drop, Reason::OneSided, self.id);
        }
        Decision::CONTINUE
    }

    fn refuses(&self, fid: Fid, _: Option<u32>) -> Result<Decision, HandsUp> {
        let section = self.by_fid.get(fid).and_then(|i| self.sections.get(i));
        let refuse = section.is_some_and(|section| section.refuse);
        refuse.then(|| Decision::refuse(Verdict::Drop, Reason::PolicyDefault, self.id)).ok_or(HandsUp::Judges)
    }

    fn repeated(&self, worker: &mut WorkerState, _: Fid, decision: &Decision, packets: u64) {
        if let Some(counts) = worker.downcast_mut::<GateCounts>()
            && decision.reason == Some(Reason::PolicyDefault)
        {
            counts.refused += packets;
        }
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let Some(counts) = worker.downcast_ref::<GateCounts>() else { return };
        each("refused", counts.refused);
        each("one_sided", counts.one_sided);
    }
}
