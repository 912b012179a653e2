// SPDX-License-Identifier: Apache-2.0
//! Transactions: a stream, or a frame of the connection.

use super::body::StreamBody;
use super::doh::DnsMessages;
use super::frame::{DATA, FramePayload, HttpFrame, HttpFrames, PING};
use super::hpack::HeaderField;
use super::{buffers, log};
use crate::lookup::AddressLookup;
use crate::memory::{Held as _, allocated};
use crate::protocol::NumberId;
use crate::transaction::{BufferQuery, BufferView, Files, FilesMut, LogOptions, Transaction, TxCommon, TxId};
use crate::worklist::Worklist;
use bartizan_base::{Direction, PerDirection};
use bartizan_events::JsonWriter;
use std::collections::BTreeMap;

/// Progress of a direction: fields may be on their way.
pub(super) const OPEN: u8 = 1;
/// The fields of this direction's message have come.
pub(super) const FIELDS: u8 = 2;
/// All of this direction's message has come.
pub(super) const MESSAGE: u8 = 3;
/// The stream has ended in both directions.
pub(super) const COMPLETE: u8 = 4;

/// Limit of the frames without data that a transaction holds in a direction; frames that say the same are
/// held once.
pub(super) const FRAMES_HELD: usize = 1_024;
/// Frames among which one that says the same is looked for.
const RECENT: usize = 32;

/// State of a stream, in the order of its life as Suricata counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamState {
    #[default]
    Open,
    /// A server has promised it.
    Reserved,
    /// The client has sent data, and sends more.
    DataClient,
    /// The client has sent all.
    HalfClosedClient,
    /// The server has sent data, and sends more.
    DataServer,
    /// The server has sent all before the client has.
    HalfClosedServer,
    Closed,
    /// A frame of the connection.
    Connection,
    /// Given up, since there are too many.
    Dropped,
}

/// A direction of a stream.
#[derive(Default)]
pub(super) struct StreamSide {
    /// Frames that say something to rules and records.
    pub(super) frames: Vec<HttpFrame>,
    /// Number of all frames.
    pub(super) count: u32,
    /// Memory of the texts in frames, in bytes.
    texts: usize,
    /// Size of all fields, as tables count it.
    pub(super) fields: usize,
    /// The fields before the body have come.
    pub(super) headed: bool,
    /// The side has ended the stream.
    pub(super) ended: bool,
    pub(super) body: StreamBody,
}

impl StreamSide {
    /// The fields of all blocks.
    pub(super) fn all(&self) -> impl Iterator<Item = &HeaderField> {
        self.frames.iter().flat_map(|frame| match &frame.payload {
            FramePayload::Fields { fields, .. } => fields.as_slice(),
            _ => &[],
        })
    }

    /// The first field of a name in lower case.
    pub(super) fn first(&self, name: &[u8]) -> Option<&HeaderField> {
        self.all().find(|field| field.is_named(name))
    }

    /// Holds a frame. `false`: there are too many different ones.
    pub(super) fn push(&mut self, frame: HttpFrame) -> bool {
        self.count = self.count.saturating_add(1);
        let recent = self.frames.iter().rev().take(RECENT);
        let says_same = |known: &HttpFrame| {
            known.kind == frame.kind
                && match (&known.payload, &frame.payload) {
                    (FramePayload::Other, FramePayload::Other) => true,
                    (FramePayload::Window(a), FramePayload::Window(b))
                    | (FramePayload::Error(a), FramePayload::Error(b)) => a == b,
                    _ => false,
                }
        };
        // Records say whether there is more than one priority or error.
        let is_single = matches!(frame.payload, FramePayload::Error(_));
        let anywhere = matches!(frame.kind, DATA | PING);
        if !is_single && (recent.into_iter().any(says_same) || anywhere && self.frames.iter().any(says_same))
        {
            return true;
        }
        if self.frames.len() >= FRAMES_HELD {
            return false;
        }
        if let FramePayload::Fields { fields, .. } = &frame.payload {
            let texts = fields
                .iter()
                .map(|field| allocated(field.name.len() + 16) + allocated(field.value.len() + 16));
            self.texts = self.texts.saturating_add(texts.sum()).saturating_add(fields.held());
        }
        if let FramePayload::Settings(list) = &frame.payload {
            self.texts = self.texts.saturating_add(list.held());
        }
        self.frames.push(frame);
        true
    }

    fn held(&self) -> usize {
        self.frames.held().saturating_add(self.texts).saturating_add(self.body.held())
    }
}

/// A stream, or a frame of the connection.
#[derive(Default)]
pub(super) struct Http2Tx {
    pub(super) common: TxCommon,
    /// Number of the stream; 0 for the connection.
    pub(super) stream: u32,
    pub(super) state: StreamState,
    /// The data has not reached its receiver yet ([`crate::protocol::ParseContext::prevents`]).
    pub(super) strict: bool,
    /// A side has reset the stream, so that the other side's data may still come.
    pub(super) is_reset: bool,
    /// The server has opened the stream.
    pub(super) is_pushed: bool,
    /// Messages of DNS.
    pub(super) dns: Option<Box<DnsMessages>>,
    pub(super) sides: PerDirection<StreamSide>,
}

impl Http2Tx {
    /// Moves the state on when a frame ends a direction of the stream.
    pub(super) fn end_side(&mut self, direction: Direction) {
        use Direction::{ToClient, ToServer};
        use StreamState::{Closed, Connection, DataServer, Dropped, HalfClosedClient, HalfClosedServer};
        self.sides[direction].ended = true;
        self.state = match (self.state, direction) {
            (Closed | Connection | Dropped, _) => self.state,
            // Suricata's stream is over with the answer; the client's data may go on.
            (DataServer, ToClient) if self.strict && !self.sides.to_server.ended => HalfClosedServer,
            (HalfClosedClient | DataServer, ToClient) | (HalfClosedServer, ToServer) => Closed,
            (HalfClosedClient | DataServer, ToServer) | (HalfClosedServer, ToClient) => self.state,
            (_, ToServer) => HalfClosedClient,
            (_, ToClient) => HalfClosedServer,
        };
    }

    /// Moves the state on when a side sends data and does not end the stream.
    pub(super) fn send_data(&mut self, direction: Direction) {
        let least = match direction {
            Direction::ToServer => StreamState::DataClient,
            Direction::ToClient => StreamState::DataServer,
        };
        self.state = self.state.max(least);
    }

    /// Whether rules on single frames of a direction see them. Suricata looks at an answer's frames when the
    /// first packet of the answer comes, whose bytes it parses only when they are acknowledged; so they are
    /// seen where the server has opened the stream.
    pub(super) fn shows_frames(&self, direction: Direction) -> bool {
        self.strict || direction == Direction::ToServer || self.stream == 0 || self.is_pushed
    }
}

impl Transaction for Http2Tx {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        let fields = match direction {
            Direction::ToServer => StreamState::DataClient,
            Direction::ToClient => StreamState::DataServer,
        };
        let side = &self.sides[direction];
        if self.state >= StreamState::Closed {
            COMPLETE
        } else if self.state >= fields || self.strict && side.headed {
            if side.ended { MESSAGE } else { FIELDS }
        } else {
            OPEN
        }
    }

    fn buffer<'a>(&'a self, query: BufferQuery, scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        buffers::get(self, query, scratch)
    }

    fn http_frames(&self, direction: Direction) -> Option<HttpFrames<'_>> {
        let list = if self.shows_frames(direction) { self.sides[direction].frames.as_slice() } else { &[] };
        Some(HttpFrames { list, is_final: !self.strict })
    }

    fn is_present(&self, query: BufferQuery) -> bool {
        // Where there is no message, none of its values is absent. The name of the root is, as in Suricata,
        // where it is not in DNS itself.
        query.id >= buffers::DNS && self.dns.as_deref().and_then(|dns| dns.of(query.direction)).is_none()
    }

    fn number(&self, id: NumberId, direction: Direction) -> Option<u64> {
        self.dns.as_deref()?.of(direction)?.number(id, direction)
    }

    fn lookup(&self) -> Option<&dyn AddressLookup> {
        self.dns.as_deref()?.of(Direction::ToClient)?.lookup()
    }

    fn held(&self) -> usize {
        let dns = self
            .dns
            .as_deref()
            .map_or(0, |dns| allocated(size_of::<DnsMessages>()).saturating_add(dns.held()));
        let sides = self.sides.to_server.held().saturating_add(self.sides.to_client.held());
        sides.saturating_add(dns)
    }

    fn forwarded(&self, field: &str) -> Option<&[u8]> {
        self.sides.to_server.first(field.as_bytes()).map(|field| &*field.value)
    }

    fn files(&self) -> Option<Files<'_>> {
        Some(Files::new(&self.sides.to_server.body.files.list, &self.sides.to_client.body.files.list))
    }

    fn files_mut(&mut self) -> Option<FilesMut<'_>> {
        let PerDirection { to_server, to_client } = &mut self.sides;
        Some(FilesMut::new(&mut to_server.body.files.list, &mut to_client.body.files.list))
    }

    fn records(&self, _options: &LogOptions) -> usize {
        usize::from(log::has_content(self))
    }

    fn record_type(&self) -> Option<&'static str> {
        self.dns.as_deref().and_then(DnsMessages::latest).map(|_| "dns")
    }

    fn log(&self, json: &mut JsonWriter, options: &LogOptions, in_alert: bool) {
        match self.dns.as_deref().and_then(DnsMessages::latest) {
            Some(message) => message.log(json, options, in_alert),
            None => log::write(self, json),
        }
    }

    fn log_beside(&self, json: &mut JsonWriter, _options: &LogOptions) {
        if self.dns.as_deref().and_then(DnsMessages::latest).is_some() {
            json.object("http");
            log::write(self, json);
            json.end_object();
        }
    }
}

/// The transactions that a flow holds. Those that are over leave no places, however long an older stream
/// stays open.
#[derive(Default)]
pub(super) struct TxTable {
    list: BTreeMap<TxId, Box<Http2Tx>>,
    /// Transactions of streams, by their numbers.
    streams: BTreeMap<u32, TxId>,
    next: TxId,
    work: Worklist,
}

impl TxTable {
    /// Ids held: `first..next`.
    pub(super) fn range(&self) -> core::ops::Range<TxId> {
        self.list.first_key_value().map_or(self.next, |(first, _)| *first)..self.next
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds a transaction.
    pub(super) fn push(&mut self, mut tx: Http2Tx) -> TxId {
        let id = self.next;
        self.next = self.next.saturating_add(1);
        tx.common.id = id;
        for direction in Direction::BOTH {
            tx.common.ended[direction] |= self.work.disrupted()[direction];
        }
        if tx.stream > 0 {
            self.streams.insert(tx.stream, id);
        }
        self.work.changed(id);
        self.list.insert(id, Box::new(tx));
        id
    }

    /// The transaction of a stream.
    pub(super) fn of_stream(&self, stream: u32) -> Option<TxId> {
        self.streams.get(&stream).copied()
    }

    pub(super) fn get(&self, id: TxId) -> Option<&Http2Tx> {
        self.list.get(&id).map(Box::as_ref)
    }

    /// A transaction, to change.
    pub(super) fn get_mut(&mut self, id: TxId) -> Option<&mut Http2Tx> {
        self.work.changed(id);
        self.mark_mut(id)
    }

    /// A transaction, for changes of its marks only.
    pub(super) fn mark_mut(&mut self, id: TxId) -> Option<&mut Http2Tx> {
        self.list.get_mut(&id).map(Box::as_mut)
    }

    /// The newest transaction, to change.
    pub(super) fn last_mut(&mut self) -> Option<&mut Http2Tx> {
        let (id, tx) = self.list.iter_mut().next_back()?;
        self.work.changed(*id);
        Some(tx)
    }

    /// Ids of all transactions.
    pub(super) fn ids(&self) -> Vec<TxId> {
        self.list.keys().copied().collect()
    }

    pub(super) fn free(&mut self, id: TxId) {
        if let Some(tx) = self.list.remove(&id) {
            self.work.released(tx.common.measured);
            if self.of_stream(tx.stream) == Some(id) {
                self.streams.remove(&tx.stream);
            }
        }
    }

    pub(super) const fn worklist(&self) -> &Worklist {
        &self.work
    }

    pub(super) const fn worklist_mut(&mut self) -> &mut Worklist {
        &mut self.work
    }

    /// Bytes of memory held. The cost depends on the changes since the last call.
    pub(super) fn held(&mut self) -> usize {
        const PLACE: usize = allocated(size_of::<Http2Tx>()) + 2 * size_of::<[u64; 4]>();
        let ids = self.work.take_unmeasured();
        let (mut more, mut less) = (0usize, 0usize);
        for id in &ids {
            let Some(tx) = self.mark_mut(*id) else { continue };
            let now = tx.held();
            let (up, down) = tx.common.measure(now);
            (more, less) = (more.saturating_add(up), less.saturating_add(down));
        }
        self.work.measured(ids, more, less);
        self.list.len().saturating_mul(PLACE).saturating_add(self.work.held())
    }
}
