// SPDX-License-Identifier: Apache-2.0
//! A flow leaves a worker and comes to another one, with all that is kept of it: entry and TCP session,
//! streams, application layer, what functions remember, what it is counted with. Who may move what when, and
//! how packets follow, is told in docs/design/0016-moving-flows.md; the protocol of live workers is the data
//! plane's (`handover`), and so is that of captures (`workers`).
//!
//! Amounts that a worker *holds* (flows, sessions, buffers of streams, memory of application layers) go
//! along: released here, charged there, so that their sums over all workers stay exact. What a worker has
//! *counted* (packets, flows made, flows ended, transactions) stays where it was counted; what of a flow has
//! been counted stands in the flow, so that nothing is counted twice. What functions keep of a flow is their
//! own boxed state, plain data without a word about the worker; what they keep for the worker stays with it.
//!
//! Not moved: flows that ever sank to a level below the host, and none while segments wait in a train.

use crate::flow_ext::FlowExt;
use bartizan_flow::FlowKey;
use bartizan_flow::table::moving::Moved;

pub use crate::guests::{Chance, NotMoved};

/// A flow between two workers. Who has it gives it to one of them: it has not ended.
#[must_use = "who lets go of it loses a flow that has not ended"]
pub struct MovedFlow {
    /// The flow as the table gave it away.
    pub flow: Moved<FlowExt>,
    /// Bytes of its application layer and of what functions remember.
    pub held: u64,
}

impl MovedFlow {
    /// Its identity.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        self.flow.key()
    }
}
