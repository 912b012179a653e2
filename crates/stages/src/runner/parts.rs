// SPDX-License-Identifier: Apache-2.0
//! The parts of a flow that change while its entry stays readable, and the view of a flow for functions.

use crate::flow_ext::FunctionSlot;
use crate::record::Entry;
use bartizan_applayer::flow::{AppLayer, AppSummary};
use bartizan_base::{FunctionId, PerDirection};
use bartizan_flow::FlowFlags;
use bartizan_flow::stream::StreamPair;
use bartizan_function::view::FlowView;

/// The view of a flow for functions.
pub fn view(entry: &Entry, app: AppSummary, established: bool) -> FlowView<'_> {
    let key = entry.key();
    FlowView {
        id: entry.ext.event_id,
        tenant: entry.tenant(),
        protocol: key.protocol(),
        client: (key.source(), key.source_port()),
        server: (key.destination(), key.destination_port()),
        turned: entry.flags.contains(FlowFlags::FLIPPED),
        start: entry.start,
        last_seen: entry.last_seen,
        packets: entry.packets,
        bytes: entry.bytes,
        established,
        elephant: PerDirection::new(
            entry.flags.contains(FlowFlags::ELEPHANT_TO_SERVER),
            entry.flags.contains(FlowFlags::ELEPHANT_TO_CLIENT),
        ),
        tcp: (key.protocol() == 6).then_some(&entry.ext.session),
        app,
    }
}

/// The parts of a flow's extension that change while the entry itself stays readable.
#[derive(Default)]
pub struct FlowParts {
    pub streams: Option<Box<StreamPair>>,
    pub app: Option<Box<AppLayer>>,
    slots: Vec<FunctionSlot>,
}

impl FlowParts {
    pub fn take(ext: &mut crate::flow_ext::FlowExt) -> Self {
        FlowParts { streams: ext.streams.take(), app: ext.app.take(), slots: core::mem::take(&mut ext.slots) }
    }

    pub fn put_back(self, ext: &mut crate::flow_ext::FlowExt) {
        ext.streams = self.streams;
        ext.app = self.app;
        ext.slots = self.slots;
    }

    /// Puts back the parts that recorders read, while they record.
    pub fn lend(&mut self, ext: &mut crate::flow_ext::FlowExt) {
        ext.app = self.app.take();
        ext.streams = self.streams.take();
        ext.slots = core::mem::take(&mut self.slots);
    }

    pub fn take_back(&mut self, ext: &mut crate::flow_ext::FlowExt) {
        *self = FlowParts::take(ext);
    }

    /// A function's slot, made if it does not exist.
    pub fn slot(&mut self, bit: FunctionId) -> Option<&mut FunctionSlot> {
        let index = usize::from(bit.0);
        while self.slots.len() <= index {
            self.slots.push(FunctionSlot::default());
        }
        self.slots.get_mut(index)
    }
}
