// SPDX-License-Identifier: Apache-2.0
//! `ttlguard` drops packets whose time to live (IPv6: hop limit) is below a floor: they would expire behind
//! the firewall, which is how traceroute maps a network and how inserted segments fool an inspector.
//!
//! The function of the tutorial, docs/writing-a-function.md. Its crate is outside of the workspace, as one of
//! yours would be.

use bartizan_base::{Decision, FunctionId, Reason, Verdict};
use bartizan_function::classes::{self, ByFid};
use bartizan_function::{
    Function, FunctionCounter, FunctionKind, FunctionModel, FunctionSpec, HeaderField, HeaderHalf,
    PacketContext, RuleSource, RulesError, WorkerState,
};
use serde::Deserialize;

/// The declaration.
pub static SPEC: FunctionSpec = FunctionSpec {
    name: "ttlguard",
    summary: "Drops packets whose time to live is below a floor.",
    model: FunctionModel::StatelessHeaders,
    runs_after: &["gate"],
    runs_before: &["pfw", "sfw", "ids"],
    header_half: Some(HeaderHalf {
        fields: &[HeaderField { name: "fid", width: 32 }, HeaderField { name: "ttl", width: 8 }],
        entry_bytes: 16,
        lookups: 1,
    }),
    host_slot: None,
    counters: &[FunctionCounter { name: "dropped", help: "Packets dropped." }],
};

/// Section `ttlguard` of a policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Packets below it are dropped.
    pub floor: u8,
}

/// Makes the function.
pub struct TtlGuardKind;

impl FunctionKind for TtlGuardKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let (_, classes) = classes::read::<Section>(SPEC.name, source)?;
        let zero = classes.iter().position(|made| made.class.rules.floor == 0);
        if let Some(index) = zero {
            let message = "a floor of 0 drops nothing; write 1 or more, or take `ttlguard` out of the chain";
            return Err(vec![classes::error(SPEC.name, format!("{}/floor", classes::path(index)), message)]);
        }
        let floors = classes.iter().map(|made| made.class.rules.floor).collect();
        Ok(Box::new(TtlGuard { id: source.id, floors, by_fid: ByFid::new(&classes) }))
    }
}

/// The floors of one generation, by class.
pub struct TtlGuard {
    id: FunctionId,
    floors: Vec<u8>,
    by_fid: ByFid,
}

impl Function for TtlGuard {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn worker(&self) -> WorkerState {
        Box::new(0u64)
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        let floor = self.by_fid.get(context.notes.fid).and_then(|place| self.floors.get(place));
        let ttl = context.facts.packet.and_then(|packet| packet.decoded().ttl());
        match (floor, ttl, context.worker.downcast_mut::<u64>()) {
            (Some(floor), Some(ttl), Some(dropped)) if ttl < *floor => {
                *dropped += 1;
                Decision::refuse(Verdict::Drop, Reason::PfwRule, self.id)
            }
            _ => Decision::CONTINUE,
        }
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        each("dropped", worker.downcast_ref().copied().unwrap_or(0));
    }
}
