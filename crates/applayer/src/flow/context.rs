// SPDX-License-Identifier: Apache-2.0
//! The view of a flow that its parser gets, and the one that people get.

use super::{AppLayer, FlowInfo};
use crate::event::Events;
use crate::file::FileSettings;
use crate::protocol::ParseContext;

/// The parts of the flow that a parser may use.
pub(super) fn context<'c>(
    flow: &FlowInfo,
    files: &'c FileSettings,
    events: &'c mut Events,
) -> ParseContext<'c> {
    ParseContext {
        now: flow.now,
        server_port: flow.ports.to_server,
        client_port: flow.ports.to_client,
        transport: flow.transport,
        files,
        prevents: flow.prevents,
        events,
    }
}

impl core::fmt::Debug for AppLayer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AppLayer")
            .field("protocol", &self.protocol)
            .field("by_direction", &self.by_direction)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}
