// SPDX-License-Identifier: Apache-2.0
//! The third stage, the chain runner: tracks a flow's session, reads its streams, runs the functions of its
//! path and records their findings. The runner works on one flow's entry and its own state; it returns the
//! changes that the flow table and the memory account have to make afterwards as [`Effects`].

mod columns;
mod effects;
mod facts;
mod flowless;
mod functions;
mod generations;
mod in_hand;
mod lifecycle;
mod observation;
mod payload;
mod reader;
mod reading;
mod rest;
mod tracking;
mod transactions;
mod waiting;

use crate::chain::Chains;
use crate::lifecycle::Lifecycle;
use crate::observers::Observation;
use crate::settings::EngineSettings;
use crate::train::Train;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Decision, Fid, Generation};
use bartizan_flow::stream::MemoryBudget;
use bartizan_flow::tcp::{StreamCounters, TcpSession};
use bartizan_function::contain::{contained, note_places};
use bartizan_function::{Edit, Finding, Marks, WorkerState};
use generations::OldGenerations;
use lifecycle::FailedFunction;
use std::sync::Arc;

pub use effects::{Effects, Judgement};
pub use functions::{apply_policy, verdict_of};
pub use in_hand::{PacketHandling, is_shown_early};
pub use lifecycle::Wanting;
pub use reading::info_of;

/// The chain runner of a worker: its chains, the functions' states, and the state of the current packet.
pub struct Runner {
    chains: Arc<Chains>,
    states: Vec<WorkerState>,
    past: OldGenerations,
    engine: Arc<Engine>,
    /// Memory of streams.
    budget: MemoryBudget,
    stream_counters: StreamCounters,
    /// The findings of functions in the current packet, and the replacements that they want.
    findings: Vec<Finding>,
    edits: Vec<Edit>,
    marks: Marks,
    /// Buffer for a frame with the inspected bytes restored.
    restored: Vec<u8>,
    /// Buffer that joins the stream bytes around the current packet.
    joined: Vec<u8>,
    /// The conditions of the functions.
    pub lifecycle: Lifecycle,
    /// Functions that panicked with the current packet.
    fallen: Vec<FailedFunction>,
    /// The observers of functions, if there are any.
    observation: Option<Box<Observation>>,
    /// Segments queued for those that follow.
    pub train: Train,
}

impl Runner {
    /// A runner of the chains in force.
    pub fn new(settings: &EngineSettings, engine: Arc<Engine>, chains: Arc<Chains>) -> Self {
        note_places();
        Runner {
            states: chains.worker_states(),
            past: OldGenerations::default(),
            chains,
            engine,
            budget: MemoryBudget::new(settings.stream.reassembly.memcap),
            stream_counters: StreamCounters::default(),
            findings: Vec::new(),
            edits: Vec::new(),
            marks: Marks::default(),
            restored: Vec::new(),
            joined: Vec::new(),
            lifecycle: Lifecycle::new(settings.restarts),
            fallen: Vec::new(),
            observation: None,
            train: Train::default(),
        }
    }

    /// The running chains.
    pub const fn chains(&self) -> &Arc<Chains> {
        &self.chains
    }

    /// The running generation.
    pub fn generation(&self) -> Generation {
        self.chains.generation
    }

    /// The state of functions for the worker, by their bit.
    pub fn states(&self) -> &[WorkerState] {
        &self.states
    }

    /// Passes to a function the number of packets that a level below has handled by its decision.
    pub fn repeated(&mut self, fid: Fid, decision: &Decision, packets: u64) {
        let state = self.states.get_mut(usize::from(decision.function.0));
        if let (Some(function), Some(state)) = (self.chains.function(decision.function), state)
            && !self.lifecycle.away().contains(decision.function)
            && let Err(panicked) = contained(|| function.repeated(state, fid, decision, packets))
        {
            self.lifecycle.leave(decision.function);
            self.fallen.push(FailedFunction { id: decision.function, panicked, would_refuse: false });
        }
    }

    /// The parsers.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Memory of streams.
    pub const fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// The budget, for flows that end.
    pub const fn budget_mut(&mut self) -> &mut MemoryBudget {
        &mut self.budget
    }

    /// Counters of tracking and reassembly.
    pub const fn stream_counters(&self) -> &StreamCounters {
        &self.stream_counters
    }

    /// The counters, for sessions that end.
    pub const fn stream_counters_mut(&mut self) -> &mut StreamCounters {
        &mut self.stream_counters
    }

    /// Whether there is room for another session.
    pub fn has_session_room(&self, settings: &EngineSettings) -> bool {
        TcpSession::has_room(&settings.stream, &self.stream_counters)
    }
}
