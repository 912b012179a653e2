// SPDX-License-Identifier: Apache-2.0
//! The state of a connection between two messages: transactions, names of files, connected shares,
//! reads that wait for their data.

use super::cache::Cache;
use super::file::{FileTransfer, PieceStart};
use super::handle::FileId;
use super::image::FileImage;
use super::tables::{
    FILE_OVERLAP, MALFORMED_DATA, PIECE_EVENTS, READS_STRICT, SPAN, SmbConfig, TOO_MANY_TRANSACTIONS,
};
use super::tx::{Detail, Dialect, MessageKey, SmbStatus, SmbTransaction};
use crate::event::EventCode;
use crate::file::{FileSettings, FileState};
use crate::memory::{Held, allocated};
use crate::rpc::RpcInterfaces;
use crate::transaction::{TxId, TxList};
use bartizan_base::{Direction, PerDirection};
use smallvec::SmallVec;
use std::collections::HashMap;

/// A connected share.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) name: Vec<u8>,
    pub(super) is_pipe: bool,
}

impl Held for Tree {
    fn held(&self) -> usize {
        self.name.held()
    }
}

/// The place of the data that a response will bring.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPlace {
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) tree: u32,
}

impl Held for ReadPlace {
    fn held(&self) -> usize {
        0
    }
}

/// Names of pipes whose bytes are remote calls, without the backslash before them.
const SERVICES: &[&[u8]] = &[b"svcctl", b"srvsvc", b"atsvc", b"lsarpc", b"samr", b"spoolss", b"winreg"];

/// Name of a pipe that was recognised by its bytes.
pub(super) const RECOGNISED: &[u8] = b"suricata::dcerpc";

/// Name of a file whose opening was not seen.
pub(super) const UNKNOWN: &[u8] = b"<unknown>";

/// The parts of the flow that messages need.
pub(super) struct Surroundings<'c> {
    pub(super) files: &'c FileSettings,
    pub(super) prevents: bool,
}

/// A piece of a file in a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceHead {
    pub(super) file: FileId,
    pub(super) offset: u64,
    /// Length of the piece.
    pub(super) length: u64,
    pub(super) version: u8,
    pub(super) command: u16,
    /// The share, and the names of the message for the record.
    pub(super) key: MessageKey,
}

/// State of a connection.
pub(super) struct Session {
    pub(super) config: SmbConfig,
    pub(super) txs: TxList<SmbTransaction>,
    pub(super) dialect: Dialect,
    pub(super) max_read: u32,
    pub(super) max_write: u32,
    /// Names of files to be opened, by their request without its tree.
    pub(super) openings: Cache<MessageKey, Vec<u8>>,
    /// Names of open files.
    pub(super) names: Cache<FileId, Vec<u8>>,
    /// Connected shares, by session and tree.
    pub(super) trees: Cache<MessageKey, Tree>,
    pub(super) reads: Cache<MessageKey, ReadPlace>,
    /// First parts of answers of pipes.
    pub(super) parts: Cache<FileId, Vec<u8>>,
    pub(super) interfaces: RpcInterfaces,
    /// Too many transactions wait for their ends.
    pub(super) is_full: bool,
    /// The transaction of the piece that a direction's message carries.
    current: PerDirection<Option<TxId>>,
    /// In prevention: what related requests of the client take over from the one before.
    pub(super) strict: bool,
    pub(super) before: RequestBefore,
    /// In prevention: handles of files that were named by [`FileId::Opened`].
    pub(super) handles: Cache<FileId, FileId>,
    /// Transactions of requests by the number of their message, oldest first; some may be complete.
    messages: HashMap<u64, SmallVec<[TxId; 2]>>,
    /// Transfers by file and sender; entries of transfers that are over may stand here.
    transfers: HashMap<(FileId, Direction), TxId>,
    /// In prevention: files that requests close, until the server says that they are closed.
    closings: Cache<MessageKey, FileId>,
    /// In prevention: some receivers read the bytes in another way.
    pub(super) is_ambiguous: bool,
}

/// Session, tree and file of a request, which a related request behind it in the same message goes on with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestBefore {
    pub(super) key: MessageKey,
    pub(super) file: Option<FileId>,
}

impl Session {
    pub(super) fn new(config: SmbConfig) -> Self {
        Session {
            config,
            txs: TxList::default(),
            dialect: Dialect::Unknown,
            max_read: 0,
            max_write: 0,
            openings: Cache::new(config.sessions),
            names: Cache::new(config.names),
            trees: Cache::new(config.trees),
            reads: Cache::new(config.reads),
            parts: Cache::new(config.parts),
            interfaces: RpcInterfaces::default(),
            is_full: false,
            current: PerDirection::default(),
            strict: false,
            before: RequestBefore::default(),
            handles: Cache::new(config.reads),
            messages: HashMap::new(),
            transfers: HashMap::new(),
            closings: Cache::new(READS_STRICT),
            is_ambiguous: false,
        }
    }

    /// Sets the mode. In prevention each read that a client may have under way has its place.
    pub(super) fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
        if strict {
            self.reads.allow(READS_STRICT);
        }
    }

    /// Records that some receivers read the bytes in another way: prevention refuses the flow.
    pub(super) fn disagree(&mut self) {
        if self.strict {
            self.is_ambiguous = true;
            self.raise(MALFORMED_DATA);
        }
    }

    /// The place of bytes whose request was not seen or is forgotten: prevention inspects them as a file of
    /// their own.
    pub(super) fn unknown_place(&self, tree: u32) -> Option<ReadPlace> {
        self.strict.then_some(ReadPlace { file: FileId::None, offset: 0, tree })
    }

    /// Adds a transaction. If too many wait for their ends, the flow is read no further, as in Suricata.
    pub(super) fn push(&mut self, mut tx: SmbTransaction) -> TxId {
        tx.dialect = self.dialect.clone();
        if self.txs.live() > self.config.max_tx {
            let is_waiting = |tx: &&SmbTransaction| tx.is_open() && !tx.common.ended.to_client;
            let oldest = self.txs.iter().find(is_waiting).map(|tx| tx.common.id);
            if let Some(tx) = oldest.and_then(|id| self.txs.get_mut(id)) {
                tx.done = PerDirection::new(true, true);
                tx.common.events.set(TOO_MANY_TRANSACTIONS);
                self.is_full = true;
            }
        }
        let most = self.config.max_tx.saturating_mul(SPAN);
        if self.txs.live() >= most {
            self.free(self.txs.range().start);
        } else if self.txs.len() >= most {
            self.end_oldest();
        }
        let message = tx.file().is_none().then_some(tx.key.message);
        let id = self.txs.push(tx);
        if let Some(message) = message {
            self.messages.entry(message).or_default().push(id);
        }
        id
    }

    /// Frees a transaction.
    pub(super) fn free(&mut self, id: TxId) {
        let file = self.txs.get(id).and_then(SmbTransaction::file).map(|file| (file.id, file.sender));
        if let Some(key) = file.filter(|key| self.transfers.get(key) == Some(&id)) {
            self.transfers.remove(&key);
        }
        if let Some(message) = self.txs.get(id).filter(|tx| tx.file().is_none()).map(|tx| tx.key.message)
            && let Some(ids) = self.messages.get_mut(&message)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.messages.remove(&message);
            }
        }
        self.txs.free(id);
    }

    /// Ends the oldest transaction, behind which many have come and gone: a notification that does not come,
    /// or a file that is open for long. What follows of a file is a transfer of its own.
    fn end_oldest(&mut self) {
        let id = self.txs.range().start;
        let is_under_way = Direction::BOTH.iter().any(|direction| self.current[*direction] == Some(id));
        let Some(tx) = self.txs.get_mut(id).filter(|tx| tx.is_open() && !is_under_way) else { return };
        tx.done = PerDirection::new(true, true);
        let (version, command, key, dialect) = (tx.version, tx.command, tx.key, tx.dialect.clone());
        let Some(file) = tx.file_mut().map(FileTransfer::renew) else { return };
        let place = (file.id, file.sender);
        let detail = Detail::File(Box::new(file));
        let tx = SmbTransaction { version, command, key, dialect, detail, ..SmbTransaction::default() };
        let id = self.txs.push(tx);
        self.transfers.insert(place, id);
    }

    /// Adds the transaction of a request.
    pub(super) fn request(&mut self, version: u8, command: u16, key: MessageKey, detail: Detail) -> TxId {
        self.push(SmbTransaction {
            version,
            command,
            key,
            done: PerDirection { to_server: true, to_client: false },
            detail,
            ..SmbTransaction::default()
        })
    }

    /// Raises an event on the newest transaction.
    pub(super) fn raise(&mut self, event: EventCode) {
        if let Some(tx) = self.txs.last_mut() {
            tx.common.events.set(event);
        }
    }

    /// Finds an open transaction.
    pub(super) fn find(
        &mut self,
        is_wanted: impl Fn(&SmbTransaction) -> bool,
    ) -> Option<&mut SmbTransaction> {
        let id = self.txs.iter().find(|tx| tx.is_open() && is_wanted(tx)).map(|tx| tx.common.id)?;
        let dialect = self.dialect.clone();
        let tx = self.txs.get_mut(id)?;
        tx.dialect = dialect;
        Some(tx)
    }

    /// The open transactions of a message's request.
    pub(super) fn of_message(&self, message: u64) -> impl Iterator<Item = &SmbTransaction> {
        let ids = self.messages.get(&message).into_iter().flatten();
        ids.filter_map(|id| self.txs.get(*id)).filter(|tx| tx.is_open())
    }

    /// Finds the open transaction of a message's request.
    pub(super) fn find_request(
        &mut self,
        message: u64,
        is_wanted: impl Fn(&SmbTransaction) -> bool,
    ) -> Option<&mut SmbTransaction> {
        let id = self.of_message(message).find(|tx| is_wanted(tx)).map(|tx| tx.common.id)?;
        let dialect = self.dialect.clone();
        let tx = self.txs.get_mut(id)?;
        tx.dialect = dialect;
        Some(tx)
    }

    /// The transaction of a file that a direction transfers.
    pub(super) fn file_tx(&mut self, file: FileId, sender: Direction) -> Option<&mut SmbTransaction> {
        let id = *self.transfers.get(&(file, sender))?;
        if !self.txs.get(id).is_some_and(SmbTransaction::is_open) {
            self.transfers.remove(&(file, sender));
            return None;
        }
        let dialect = self.dialect.clone();
        let tx = self.txs.get_mut(id)?;
        tx.dialect = dialect;
        Some(tx)
    }

    /// The connected share of a message.
    pub(super) fn tree(&self, key: MessageKey) -> Option<&Tree> {
        self.trees.get(&MessageKey { message: 0, ..key })
    }

    /// Whether the bytes of a pipe are remote calls, by its name.
    pub(super) fn is_service(&self, file: FileId) -> bool {
        let Some(name) = self.names.get(&file) else { return false };
        let name = name.strip_prefix(b"\\").filter(|rest| !rest.is_empty()).unwrap_or(name);
        SERVICES.contains(&name) || name == RECOGNISED
    }

    /// Notes the handle of a file that requests of its opening's message have named without it.
    pub(super) fn name_handle(&mut self, opened: FileId, handle: FileId) {
        if self.names.remove(&opened).is_none() {
            return;
        }
        self.handles.insert(opened, handle);
        for sender in Direction::BOTH {
            let Some(id) = self.transfers.remove(&(opened, sender)) else { continue };
            if let Some(file) = self.txs.get_mut(id).and_then(SmbTransaction::file_mut) {
                file.id = handle;
                self.transfers.insert((handle, sender), id);
            }
        }
    }

    /// Notes that a request closes a file. In prevention it is open until the server says otherwise: pieces
    /// may be under way, and the server may refuse.
    pub(super) fn closes(&mut self, key: MessageKey, file: FileId) {
        self.closings.insert(key, file);
    }

    /// Ends the file that a request has closed, in prevention, once the server has answered.
    pub(super) fn closed(&mut self, key: MessageKey, status: SmbStatus) {
        if status == SmbStatus::Nt(super::smb2::PENDING) {
            return;
        }
        let Some(file) = self.closings.remove(&key).filter(|_| status == SmbStatus::Nt(0)) else { return };
        let file = self.handles.get(&file).copied().unwrap_or(file);
        self.close_file(file, &Direction::BOTH, Some(status));
    }

    /// Ends a file in both directions.
    pub(super) fn close_file(&mut self, file: FileId, senders: &[Direction], status: Option<SmbStatus>) {
        for sender in senders {
            let Some(tx) = self.file_tx(file, *sender) else { continue };
            if let Some(file) = tx.file_mut() {
                file.close(FileState::Closed);
            }
            tx.done = PerDirection::new(true, true);
            tx.status = status.or(tx.status);
        }
    }

    /// Begins a piece of a file that a direction's message carries.
    pub(super) fn begin_piece(
        &mut self,
        direction: Direction,
        head: &PieceHead,
        unnamed: &[u8],
        around: &Surroundings<'_>,
    ) {
        self.current[direction] = None;
        let limit = self.config.piece[direction];
        let agreed = u64::from(match direction {
            Direction::ToServer => self.max_write,
            Direction::ToClient => self.max_read,
        });
        let [too_large, too_many_bytes, too_many] = PIECE_EVENTS[direction];
        if (limit > 0 && head.length > limit) || (agreed > 0 && head.length > agreed) {
            self.raise(too_large);
            // The receiver may take it nevertheless.
            if !around.prevents {
                return;
            }
        }
        let limits = self.config.queue[direction];
        let is_full = |tx: &SmbTransaction| tx.file().is_some_and(|file| file.is_full_at(head.offset));
        let mut image = around.prevents.then(FileImage::default);
        if let Some(tx) = self.file_tx(head.file, direction).filter(|tx| is_full(tx)) {
            image = tx.file_mut().and_then(FileTransfer::take_image);
            self.close_file(head.file, &[direction], None);
        }
        let id = match self.file_tx(head.file, direction) {
            Some(tx) => tx.common.id,
            None => self.open_file(direction, head, unnamed, around.files, image),
        };
        let Some(file) = self.txs.get_mut(id).and_then(SmbTransaction::file_mut) else { return };
        let event = match file.begin(head.offset, head.length, limits) {
            PieceStart::Taken => None,
            PieceStart::Overlaps => Some(FILE_OVERLAP),
            PieceStart::TooManyBytes => Some(too_many_bytes),
            PieceStart::TooManyPieces => Some(too_many),
        };
        self.current[direction] = Some(id);
        if let Some(event) = event {
            self.raise(event);
        }
    }

    fn open_file(
        &mut self,
        direction: Direction,
        head: &PieceHead,
        unnamed: &[u8],
        settings: &FileSettings,
        image: Option<FileImage>,
    ) -> TxId {
        let name = self.names.get(&head.file).cloned().unwrap_or_else(|| unnamed.to_vec());
        // As in Suricata, records of what SMB2 writes do not have the share.
        let has_share = head.version == 1 || direction == Direction::ToClient;
        let tree = self.tree(head.key).filter(|_| has_share);
        let share = tree.map(|tree| tree.name.clone()).unwrap_or_default();
        let mut file = FileTransfer::new(head.file, name, share, direction);
        file.open(self.txs.next_id() as u32, settings, image);
        // As in Suricata, records of SMB1 do not have the names of the message.
        let key = MessageKey { message: 0, ..head.key };
        let id = self.push(SmbTransaction {
            version: head.version,
            command: head.command,
            key: if head.version == 1 { MessageKey::default() } else { key },
            detail: Detail::File(Box::new(file)),
            ..SmbTransaction::default()
        });
        self.transfers.insert((head.file, direction), id);
        id
    }

    /// Adds bytes of the direction's piece.
    pub(super) fn piece(&mut self, direction: Direction, data: &[u8]) {
        let Some(id) = self.current[direction] else { return };
        if let Some(file) = self.txs.get_mut(id).and_then(SmbTransaction::file_mut) {
            file.data(data);
        }
    }

    /// Records that the direction's piece is over.
    pub(super) const fn end_piece(&mut self, direction: Direction) {
        match direction {
            Direction::ToServer => self.current.to_server = None,
            Direction::ToClient => self.current.to_client = None,
        }
    }

    /// Records that bytes of the direction's piece will never come.
    pub(super) fn piece_gap(&mut self, direction: Direction, missing: u64) {
        let Some(id) = self.current[direction] else { return };
        if let Some(file) = self.txs.get_mut(id).and_then(SmbTransaction::file_mut) {
            file.gap(missing);
        }
    }

    /// Ends the open negotiation of a version. Returns whether there was one.
    pub(super) fn negotiated(&mut self, version: u8, status: SmbStatus, guid: Option<[u8; 16]>) -> bool {
        let (read, write) = (self.max_read, self.max_write);
        let is_wanted =
            |tx: &SmbTransaction| tx.version == version && matches!(tx.detail, Detail::Negotiation(_));
        let Some(tx) = self.find(is_wanted) else { return false };
        if let Detail::Negotiation(it) = &mut tx.detail {
            (it.server, it.max_read, it.max_write) = (guid, read, write);
        }
        tx.finish(status);
        true
    }

    /// Ends what is open when a direction ends.
    pub(super) fn end(&mut self, direction: Direction) {
        for id in self.txs.range() {
            let Some(tx) = self.txs.get_mut(id) else { continue };
            tx.common.ended[direction] = true;
            if let Some(file) = tx.file_mut().filter(|file| file.sender == direction) {
                file.close(FileState::Truncated);
            }
        }
    }

    /// Bytes of memory held.
    pub(super) fn held(&mut self) -> usize {
        [
            self.openings.held(),
            self.names.held(),
            self.trees.held(),
            self.reads.held(),
            self.parts.held(),
            self.handles.held(),
            self.closings.held(),
            allocated(self.messages.capacity().saturating_mul(size_of::<(u64, SmallVec<[TxId; 2]>)>() + 1)),
            allocated(self.transfers.capacity().saturating_mul(size_of::<((FileId, Direction), TxId)>() + 1)),
            self.interfaces.held(),
        ]
        .into_iter()
        .fold(self.txs.held(), usize::saturating_add)
    }
}
