// SPDX-License-Identifier: Apache-2.0
//! A flow's state borrowed column by column, and the view of a flow for functions.

use crate::chain::HeaderRuleMatches;
use crate::flow_ext::{FlowExt, FunctionSlot};
use crate::record::Entry;
use crate::standing::FlowDisposition;
use bartizan_applayer::flow::{AppLayer, AppSummary};
use bartizan_base::{Fid, FunctionId, Path, PerDirection};
use bartizan_flow::stream::StreamPair;
use bartizan_flow::tcp::TcpSession;
use bartizan_flow::{FlowEntry, FlowFlags};
use bartizan_function::view::FlowView;

/// The view of a flow for functions, without its session.
fn view_of(entry: &Entry, app: AppSummary, established: bool) -> FlowView<'static> {
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
        tcp: None,
        app,
    }
}

/// The session that functions see: TCP flows have one.
fn session_of<'f>(view: &FlowView<'_>, session: &'f TcpSession) -> Option<&'f TcpSession> {
    (view.protocol == 6).then_some(session)
}

/// The view of a flow for functions.
pub fn view(entry: &Entry, app: AppSummary, established: bool) -> FlowView<'_> {
    let view = view_of(entry, app, established);
    FlowView { tcp: session_of(&view, &entry.ext.session), ..view }
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
    /// The flow as functions see it.
    pub view: FlowView<'f>,
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

impl<'f> FlowColumns<'f> {
    /// Borrows the columns of an entry. `established`: the flow is established for rules.
    pub fn of(entry: &'f mut Entry, established: bool) -> Self {
        let summary = entry.ext.app.as_deref().map(AppLayer::summary).unwrap_or_default();
        let view = view_of(entry, summary, established);
        let FlowEntry { path, fid, ext, .. } = entry;
        let FlowExt { session, streams, app, slots, matches, standing, .. } = ext;
        let view = FlowView { tcp: session_of(&view, session), ..view };
        FlowColumns {
            streams: streams.as_deref_mut(),
            app: app.as_deref_mut(),
            judged: JudgedFlow { view, fid: *fid, path, standing, matches, slots },
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
