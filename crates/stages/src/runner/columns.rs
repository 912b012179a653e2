// SPDX-License-Identifier: Apache-2.0
//! A flow's state borrowed column by column, and the view of a flow for functions.

use crate::chain::HeaderRuleMatches;
use crate::flow_ext::{FlowExt, FunctionSlot};
use crate::record::Entry;
use crate::standing::FlowDisposition;
use bartizan_applayer::flow::{AppLayer, AppSummary};
use bartizan_base::{Fid, FunctionId, Path, PerDirection, Timestamp};
use bartizan_flow::stream::StreamPair;
use bartizan_flow::tcp::TcpSession;
use bartizan_flow::{FlowEntryParts, FlowFlags, FlowKey};
use bartizan_function::view::FlowView;

/// The parts of an entry that the view of a flow is made from.
struct ViewParts<'f> {
    event_id: u64,
    key: &'f FlowKey,
    start: Timestamp,
    last_seen: Timestamp,
    packets: &'f PerDirection<u64>,
    bytes: &'f PerDirection<u64>,
    flags: FlowFlags,
    session: &'f TcpSession,
}

impl<'f> ViewParts<'f> {
    fn view(&self, app: AppSummary, established: bool) -> FlowView<'f> {
        let key = self.key;
        FlowView {
            id: self.event_id,
            tenant: key.tenant(),
            protocol: key.protocol(),
            client: (key.source(), key.source_port()),
            server: (key.destination(), key.destination_port()),
            turned: self.flags.contains(FlowFlags::FLIPPED),
            start: self.start,
            last_seen: self.last_seen,
            packets: *self.packets,
            bytes: *self.bytes,
            established,
            elephant: PerDirection::new(
                self.flags.contains(FlowFlags::ELEPHANT_TO_SERVER),
                self.flags.contains(FlowFlags::ELEPHANT_TO_CLIENT),
            ),
            tcp: (key.protocol() == 6).then_some(self.session),
            app,
        }
    }
}

/// The view of a flow for functions.
pub fn view(entry: &Entry, app: AppSummary, established: bool) -> FlowView<'_> {
    let parts = ViewParts {
        event_id: entry.ext.event_id,
        key: entry.key(),
        start: entry.start,
        last_seen: entry.last_seen,
        packets: &entry.packets,
        bytes: &entry.bytes,
        flags: entry.flags,
        session: &entry.ext.session,
    };
    parts.view(app, established)
}

/// The columns of a flow's entry that functions and their results touch, each borrowed by itself: a function
/// reads the flow while its own slot, the streams and the transactions change.
pub(super) struct FlowColumns<'f> {
    pub streams: Option<&'f mut StreamPair>,
    pub app: Option<&'f mut AppLayer>,
    pub judged: JudgedFlow<'f>,
}

/// The columns that one call of a function reads and changes.
pub(super) struct JudgedFlow<'f> {
    view: ViewParts<'f>,
    /// Class of the flow.
    pub fid: Fid,
    /// The functions that the flow's packets still visit.
    pub path: &'f mut Path,
    /// The verdict that applies to the next packet without running any function.
    pub standing: &'f mut FlowDisposition,
    /// Results of the lookup in the header rules of functions.
    pub matches: &'f HeaderRuleMatches,
    /// State of functions, by their bit in paths ([`slot_of`]).
    pub slots: &'f mut Vec<FunctionSlot>,
}

impl<'f> JudgedFlow<'f> {
    /// The flow as functions see it. `established`: it is established for rules.
    pub fn view(&self, app: Option<&AppLayer>, established: bool) -> FlowView<'f> {
        self.view.view(app.map(AppLayer::summary).unwrap_or_default(), established)
    }
}

impl<'f> FlowColumns<'f> {
    /// Borrows the columns of an entry.
    pub fn of(entry: &'f mut Entry) -> Self {
        let FlowEntryParts { key, last_seen, start, packets, bytes, fid, flags, path, ext } = entry.parts();
        let FlowExt { event_id, session, streams, app, slots, matches, standing, .. } = ext;
        let view = ViewParts { event_id: *event_id, key, start, last_seen, packets, bytes, flags, session };
        FlowColumns {
            streams: streams.as_deref_mut(),
            app: app.as_deref_mut(),
            judged: JudgedFlow { view, fid, path, standing, matches, slots },
        }
    }
}

/// A function's slot, made if it does not exist.
pub(super) fn slot_of(slots: &mut Vec<FunctionSlot>, bit: FunctionId) -> Option<&mut FunctionSlot> {
    let index = usize::from(bit.0);
    if slots.len() <= index {
        slots.resize_with(index + 1, FunctionSlot::default);
    }
    slots.get_mut(index)
}
