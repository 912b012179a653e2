// SPDX-License-Identifier: Apache-2.0
//! One request and its response.

use crate::content::certificate::{CertificateView, Storing};
use crate::event::Events;
use crate::file::FileTrack;
use crate::lookup::AddressLookup;
use crate::memory::Held;
use crate::protocols::http2::HttpFrames;
use crate::rpc::RpcCall;
use crate::worklist::Worklist;
use bartizan_base::{Direction, FunctionId, Path, PerDirection};
use bartizan_events::JsonWriter;
use core::net::IpAddr;

/// Number of a transaction within its flow, from 0, in the order of their beginning.
pub type TxId = u64;

/// Identifier of a number within a protocol ([`crate::protocol::NumberSpec::id`]).
pub type NumberId = u16;

/// The requested value of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferQuery {
    /// [`crate::protocol::BufferSpec::id`].
    pub id: u16,
    /// Direction that is being inspected.
    pub direction: Direction,
    /// Index among several values ([`crate::protocol::BufferKind::Multi`]); else 0.
    pub index: u32,
}

/// A value of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct BufferView<'a> {
    /// The bytes that are held.
    pub data: &'a [u8],
    /// Offset of the first byte within the whole value (streaming buffers; else 0).
    pub offset: u64,
    /// Whether no more bytes will follow.
    pub complete: bool,
}

impl<'a> BufferView<'a> {
    /// A complete value.
    #[must_use]
    pub const fn whole(data: &'a [u8]) -> Self {
        BufferView { data, offset: 0, complete: true }
    }
}

/// Fields that every transaction has beside those of its protocol.
#[derive(Debug, Default)]
pub struct TxCommon {
    /// Number in the flow.
    pub id: TxId,
    /// Events raised by the parser for this transaction.
    pub events: Events,
    /// Number of `events` that were reported as anomaly records.
    pub events_logged: usize,
    /// The protocol's record was written.
    pub logged: bool,
    /// Progress of this direction when payload functions last saw it.
    pub inspected: PerDirection<u8>,
    /// Payload functions that have finished with this direction, by their bits in paths. The data plane
    /// writes it, functions only read it.
    pub done: PerDirection<Path>,
    /// Payload functions that hold the transaction beyond its end. Written by the data plane.
    pub held: Path,
    /// The flow ended or the stream broke before this direction was complete.
    pub ended: PerDirection<bool>,
    /// The transaction gets no record (a rule with `config: logging disable` matched).
    pub silent: bool,
    /// All files of these directions must be stored (a rule with `filestore` matched).
    pub store: PerDirection<bool>,
    /// Result of the last call of [`Transaction::held`].
    pub(crate) measured: usize,
}

impl TxCommon {
    /// Whether a function has finished with a direction.
    #[inline]
    #[must_use]
    pub const fn is_done(&self, direction: Direction, function: FunctionId) -> bool {
        match direction {
            Direction::ToServer => self.done.to_server.contains(function),
            Direction::ToClient => self.done.to_client.contains(function),
        }
    }

    /// The functions of a path that still need the transaction. `unseen`: directions without packets on this
    /// link, which no function inspects.
    #[inline]
    #[must_use]
    pub fn waits_for(&self, path: Path, unseen: PerDirection<bool>) -> Path {
        let open =
            |direction| if unseen[direction] { Path::EMPTY } else { path.and_not(self.done[direction]) };
        path.and(self.held).or(open(Direction::ToServer)).or(open(Direction::ToClient))
    }

    /// Stores the memory that the transaction holds now. Returns the growth and the decrease since the last
    /// call.
    pub(crate) fn measure(&mut self, now: usize) -> (usize, usize) {
        let before = core::mem::replace(&mut self.measured, now);
        (now.saturating_sub(before), before.saturating_sub(now))
    }
}

/// The files of a transaction, by the direction that sends them.
pub type Files<'a> = PerDirection<&'a [FileTrack]>;

/// The files of a transaction, for changes of their marks.
pub type FilesMut<'a> = PerDirection<&'a mut [FileTrack]>;

/// A transaction as functions, detection and events see it.
pub trait Transaction: Send {
    /// The common part.
    fn common(&self) -> &TxCommon;

    /// The common part, for changes of its marks.
    fn common_mut(&mut self) -> &mut TxCommon;

    /// Progress of this direction, from 0 to [`crate::protocol::ProtocolSpec::complete`].
    fn progress(&self, direction: Direction) -> u8;

    /// A value of a buffer, or `None` if this transaction has none (yet). Composed values
    /// (`http.header_names`) are written into `scratch`, which the caller clears and reuses.
    fn buffer<'a>(&'a self, query: BufferQuery, scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>>;

    /// Whether a buffer without a value to match exists nevertheless, so that it is not `absent` (the root's
    /// name in DNS).
    fn is_present(&self, query: BufferQuery) -> bool {
        let _ = query;
        false
    }

    /// A number that keywords compare, one of [`crate::protocol::ProtocolSpec::numbers`]. `None`: this
    /// transaction has no such number (yet).
    fn number(&self, id: NumberId, direction: Direction) -> Option<u64> {
        let _ = (id, direction);
        None
    }

    /// Bytes of memory held outside of the transaction itself. Called after each change, so it must take a
    /// constant number of steps (values that grow by pieces are summed up as they grow).
    fn held(&self) -> usize;

    /// Direction of the message, if a transaction is one message (DNS).
    fn message_direction(&self) -> Option<Direction> {
        None
    }

    // Optional views that only some protocols have; these override the method.

    /// The value of the field of this name, in lower case, in which proxies name the client for which they
    /// forward (`x-forwarded-for`).
    fn forwarded(&self, field: &str) -> Option<&[u8]> {
        let _ = field;
        None
    }

    /// The transferred files.
    fn files(&self) -> Option<Files<'_>> {
        None
    }

    /// The transferred files, for changes of their marks.
    fn files_mut(&mut self) -> Option<FilesMut<'_>> {
        None
    }

    /// The message as a lookup of addresses by name.
    fn lookup(&self) -> Option<&dyn AddressLookup> {
        None
    }

    /// The remote procedure call that the transaction carries.
    fn rpc(&self) -> Option<RpcCall<'_>> {
        None
    }

    /// The frames that a direction of an HTTP/2 stream sends, as rules on single frames see them.
    fn http_frames(&self, direction: Direction) -> Option<HttpFrames<'_>> {
        let _ = direction;
        None
    }

    /// The address that the client announces for a further connection.
    fn announced_address(&self) -> Option<IpAddr> {
        None
    }

    /// The certificates that the sides present.
    fn certificates(&self) -> Option<CertificateView<'_>> {
        None
    }

    /// Progress of storing each side's certificates, for changes.
    fn storing_mut(&mut self) -> Option<PerDirection<&mut Storing>> {
        None
    }

    /// Whether the record is to be written now. Called whenever a transaction without a record has changed;
    /// most protocols write it when both directions are complete (the caller also calls this with `ended` set
    /// in [`TxCommon`]).
    fn log_ready(&self, complete: PerDirection<u8>) -> bool {
        Direction::BOTH.iter().all(|d| self.progress(*d) >= complete[*d] || self.common().ended[*d])
    }

    /// Type of the record, where a protocol's transactions have records of several types.
    fn record_type(&self) -> Option<&'static str> {
        None
    }

    /// Number of records for an output with these options: none with `requests: no` of dns, one for each
    /// question with its `version: 2`.
    fn records(&self, options: &LogOptions) -> usize {
        let _ = options;
        1
    }

    /// Writes the fields of the protocol's record, as in EVE, into an open object (`"http": { here }`).
    /// `in_alert`: the record is part of an alert, where some protocols write more or less.
    fn log(&self, json: &mut JsonWriter, options: &LogOptions, in_alert: bool);

    /// Writes the fields of a record with a number below [`Transaction::records`].
    fn log_record(&self, json: &mut JsonWriter, options: &LogOptions, number: usize) {
        let _ = number;
        self.log(json, options, false);
    }

    /// Writes further top-level fields of the EVE record (`smtp` writes `"email"`), also in alerts.
    fn log_beside(&self, json: &mut JsonWriter, options: &LogOptions) {
        let _ = (json, options);
    }
}

impl dyn Transaction + '_ {
    /// The files that a direction sends.
    #[must_use]
    pub fn files_of(&self, direction: Direction) -> &[FileTrack] {
        self.files().map_or(&[], |files| files[direction])
    }

    /// The files that a direction sends, for changes of their marks.
    pub fn files_of_mut(&mut self, direction: Direction) -> &mut [FileTrack] {
        match (self.files_mut(), direction) {
            (None, _) => &mut [],
            (Some(files), Direction::ToServer) => files.to_server,
            (Some(files), Direction::ToClient) => files.to_client,
        }
    }
}

/// Options of EVE records that apply to protocols (`outputs.N.eve-log.types.N.TYPE.*`).
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Write the extended form (`http.extended`, `tls.extended`, `dhcp.extended`).
    pub extended: bool,
    /// Additional fields by name (`http.custom`, `tls.custom`).
    pub custom: Vec<String>,
    /// `dump-all-headers`: none, request, response, both.
    pub dump_all_headers: PerDirection<bool>,
    /// Version of the records ([`crate::protocol::RecordSpec::version`]).
    pub version: u8,
    /// Formats of dns records: detailed, grouped.
    pub formats: Vec<String>,
    /// Bodies in an alert's record (`alert.http-body`, `alert.http-body-printable`).
    pub bodies: Bodies,
    /// All other settings of the type, for protocols with options of their own.
    pub settings: bartizan_base::SettingsMap,
}

/// Forms of message bodies in an alert's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bodies {
    /// In base64.
    pub base64: bool,
    /// As text, with dots for unprintable bytes.
    pub printable: bool,
}

/// The transactions of a flow, in the order of their beginning, and the list of changed ones.
#[derive(Debug)]
pub struct TxList<T> {
    list: std::collections::VecDeque<Option<T>>,
    first: TxId,
    /// Places in the list that are free.
    free: usize,
    work: Worklist,
}

impl<T> Default for TxList<T> {
    fn default() -> Self {
        TxList { list: std::collections::VecDeque::new(), first: 0, free: 0, work: Worklist::default() }
    }
}

impl<T: Transaction> TxList<T> {
    /// Ids held: `first..next`.
    #[must_use]
    pub fn range(&self) -> core::ops::Range<TxId> {
        self.first..self.next_id()
    }

    /// The id that the next transaction gets.
    #[must_use]
    pub fn next_id(&self) -> TxId {
        self.first.saturating_add(self.list.len() as u64)
    }

    /// Number of transactions that are held and not freed.
    #[must_use]
    pub fn live(&self) -> usize {
        self.list.len().saturating_sub(self.free)
    }

    /// Number of places in the list, from the oldest transaction that is not freed on.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a transaction, giving it the next id.
    pub fn push(&mut self, mut tx: T) -> TxId {
        let id = self.next_id();
        let common = tx.common_mut();
        common.id = id;
        for direction in Direction::BOTH {
            common.ended[direction] |= self.work.disrupted()[direction];
        }
        self.work.changed(id);
        self.list.push_back(Some(tx));
        id
    }

    /// A transaction.
    #[must_use]
    pub fn get(&self, id: TxId) -> Option<&T> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.list.get(index)?.as_ref()
    }

    /// A transaction, for changes: it will be inspected again.
    pub fn get_mut(&mut self, id: TxId) -> Option<&mut T> {
        self.work.changed(id);
        self.mark_mut(id)
    }

    /// A transaction, for changes of its marks only.
    pub fn mark_mut(&mut self, id: TxId) -> Option<&mut T> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.list.get_mut(index)?.as_mut()
    }

    /// The held transactions, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.list.iter().flatten()
    }

    /// The newest transaction, for changes.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        let newest = self.list.iter_mut().rev().flatten().next()?;
        self.work.changed(newest.common().id);
        Some(newest)
    }

    /// The changed transactions.
    #[must_use]
    pub const fn worklist(&self) -> &Worklist {
        &self.work
    }

    /// The changed transactions, to add and to take.
    pub const fn worklist_mut(&mut self) -> &mut Worklist {
        &mut self.work
    }

    /// Bytes of memory held. The cost depends on the changes since the last call.
    pub fn held(&mut self) -> usize {
        let ids = self.work.take_unmeasured();
        let (mut more, mut less) = (0usize, 0usize);
        for id in &ids {
            let Some(tx) = self.mark_mut(*id) else { continue };
            let now = tx.held();
            let (up, down) = tx.common_mut().measure(now);
            (more, less) = (more.saturating_add(up), less.saturating_add(down));
        }
        self.work.measured(ids, more, less);
        self.list.held().saturating_add(self.work.held())
    }

    /// Frees a transaction.
    pub fn free(&mut self, id: TxId) {
        if let Some(index) = id.checked_sub(self.first).and_then(|i| usize::try_from(i).ok())
            && let Some(slot) = self.list.get_mut(index)
            && let Some(tx) = slot.take()
        {
            self.work.released(tx.common().measured);
            self.free = self.free.saturating_add(1);
        }
        while matches!(self.list.front(), Some(None)) {
            self.list.pop_front();
            self.free = self.free.saturating_sub(1);
            self.first = self.first.saturating_add(1);
        }
    }
}
/// The methods of [`crate::protocol::Parser`] that a parser with one transaction for each flow has, in its
/// field `tx`; the field `work` is its [`Worklist`].
macro_rules! single_transaction {
    () => {
        fn tx_range(&self) -> core::ops::Range<$crate::transaction::TxId> {
            if self.tx.is_some() { 0..1 } else { 1..1 }
        }

        fn tx(&self, id: $crate::transaction::TxId) -> Option<&dyn $crate::transaction::Transaction> {
            self.tx.as_ref().filter(|_| id == 0).map(|tx| tx as &dyn $crate::transaction::Transaction)
        }

        fn tx_mut(
            &mut self,
            id: $crate::transaction::TxId,
        ) -> Option<&mut dyn $crate::transaction::Transaction> {
            self.tx.as_mut().filter(|_| id == 0).map(|tx| tx as &mut dyn $crate::transaction::Transaction)
        }

        fn free_tx(&mut self, id: $crate::transaction::TxId) {
            if id == 0
                && let Some(tx) = self.tx.take()
            {
                self.work.released($crate::transaction::Transaction::common(&tx).measured);
            }
        }

        fn worklist(&self) -> &$crate::worklist::Worklist {
            &self.work
        }

        fn worklist_mut(&mut self) -> &mut $crate::worklist::Worklist {
            &mut self.work
        }
    };
}
pub(crate) use single_transaction;

/// The methods of [`crate::protocol::Parser`] that a parser with several transactions has, in a field that is
/// a [`TxList`] or has its methods. A second argument names what frees a transaction, if it is not the list.
macro_rules! listed_transactions {
    ($($list:ident).+) => {
        $crate::transaction::listed_transactions!($($list).+, $($list).+);
    };
    ($($list:ident).+, $($owner:ident).*) => {
        fn tx_range(&self) -> core::ops::Range<$crate::transaction::TxId> {
            self.$($list).+.range()
        }

        fn tx(&self, id: $crate::transaction::TxId) -> Option<&dyn $crate::transaction::Transaction> {
            self.$($list).+.get(id).map(|tx| tx as &dyn $crate::transaction::Transaction)
        }

        fn tx_mut(
            &mut self,
            id: $crate::transaction::TxId,
        ) -> Option<&mut dyn $crate::transaction::Transaction> {
            self.$($list).+.mark_mut(id).map(|tx| tx as &mut dyn $crate::transaction::Transaction)
        }

        fn free_tx(&mut self, id: $crate::transaction::TxId) {
            self.$($owner.)*free(id);
        }

        fn worklist(&self) -> &$crate::worklist::Worklist {
            self.$($list).+.worklist()
        }

        fn worklist_mut(&mut self) -> &mut $crate::worklist::Worklist {
            self.$($list).+.worklist_mut()
        }
    };
}
pub(crate) use listed_transactions;

/// Bytes that a single transaction and the lists of changes hold. The cost depends on the changes since the
/// last call.
pub(crate) fn single_held(tx: Option<&mut impl Transaction>, work: &mut Worklist) -> usize {
    if work.is_unmeasured() {
        let ids = work.take_unmeasured();
        let measured = tx.map(|tx| {
            let now = tx.held();
            tx.common_mut().measure(now)
        });
        let (more, less) = measured.unwrap_or_default();
        work.measured(ids, more, less);
    }
    work.held()
}
