// SPDX-License-Identifier: Apache-2.0
//! A flow on its way from one worker to another, with all its state: entry and TCP session, streams,
//! application layer, state of functions, charges. docs/design/0016-moving-flows.md says who may move which
//! flow when, and how packets follow; the protocol between live workers (`handover`) and between those of
//! captures (`workers`) is in the data plane.
//!
//! Amounts that a worker *holds* (flows, sessions, buffers of streams, memory of application layers) move
//! with the flow: released here, charged there, so that their sums over all workers stay exact. Amounts that
//! a worker has *counted* (packets, flows made, flows ended, transactions) stay with that worker; the flow
//! records what has been counted of it, so that nothing is counted twice. The state of a function for a flow
//! is a box of plain data that does not refer to the worker; its state for the worker stays there.
//!
//! Flows that a level below the host ever had are never moved, and no flow is moved while its segments are
//! queued in a train.
//!
//! Not moved: flows that ever sank to a level below the host, and none while segments wait in a train.

use crate::flow_ext::FlowExt;
use bartizan_flow::FlowKey;
use bartizan_flow::table::moving::Moved;

pub use crate::guests::{Chance, NotMoved};

/// A flow between two workers. It has not ended: its holder must give it to one of them.
#[must_use = "dropping it loses a flow that has not ended"]
pub struct MovedFlow {
    /// The flow as the table released it.
    pub flow: Moved<FlowExt>,
    /// Bytes of its application layer and of the state of functions.
    pub held: u64,
}

impl MovedFlow {
    /// The key of the flow.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        self.flow.key()
    }
}
