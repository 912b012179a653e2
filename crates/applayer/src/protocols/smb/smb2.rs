// SPDX-License-Identifier: Apache-2.0
//! Requests and responses of SMB2 and SMB3 ([MS-SMB2] section 2.2). Offsets count from the header.

use super::bytes::{array, name, part, size16_at, size32_at, u16_at, u32_at, u64_at, unix_seconds};
use super::handle::FileId;
use super::names;
use super::pipe::{Carrier, is_call};
use super::secblob::Token;
use super::session::{PieceHead, RECOGNISED, ReadPlace, RequestBefore, Session, Surroundings, Tree, UNKNOWN};
use super::tables::{
    MALFORMED_DATA, MALFORMED_NTLMSSP, MAX_READ_TOO_LARGE, MAX_WRITE_TOO_LARGE, READ_REQUEST_TOO_LARGE,
};
use super::tx::{
    Detail, Dialect, Disposition, Login, MessageKey, Negotiation, Opening, Renaming, SmbStatus,
    SmbTransaction, TreeConnect,
};
use crate::file::FileState;
use bartizan_base::Direction;

/// Length of the header.
pub(super) const HEAD: usize = 64;

const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const TREE_CONNECT: u16 = 3;
const TREE_DISCONNECT: u16 = 4;
const CREATE: u16 = 5;
const CLOSE: u16 = 6;
const FLUSH: u16 = 7;
pub(super) const READ: u16 = 8;
pub(super) const WRITE: u16 = 9;
const LOCK: u16 = 10;
const IOCTL: u16 = 11;
const QUERY_DIRECTORY: u16 = 14;
const CHANGE_NOTIFY: u16 = 15;
const GET_INFO: u16 = 16;
const SET_INFO: u16 = 17;
const OPLOCK_BREAK: u16 = 18;
/// Length of the fields of an OPLOCK_BREAK that names a file; that of a lease has others.
const OPLOCK_SIZE: usize = 24;

const SUCCESS: u32 = 0;
/// The answer comes later.
pub(super) const PENDING: u32 = 0x103;
/// The rest of the data is read by a later request.
pub(super) const BUFFER_OVERFLOW: u32 = 0x8000_0005;
const END_OF_FILE: u32 = 0xc000_0011;

/// The function of IOCTL that writes to a pipe and reads the answer.
const PIPE_TRANSCEIVE: u32 = 0x0011_c017;
/// The kind of a share of pipes.
const PIPE_SHARE: u8 = 2;
/// Options of an opening.
const DIRECTORY_FILE: u32 = 0x1;
const DELETE_ON_CLOSE: u32 = 0x1000;
/// Kind of information, and its classes, that SET_INFO has for files.
const FILE_INFORMATION: u8 = 1;
const RENAME: u8 = 10;
const DISPOSITION: u8 = 13;

/// The header of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head2 {
    pub(super) is_response: bool,
    /// A request that goes on with session, tree and file of the one before.
    pub(super) is_related: bool,
    pub(super) command: u16,
    pub(super) status: u32,
    pub(super) key: MessageKey,
    /// Offset of the next message, if there is one.
    pub(super) next: usize,
}

impl Head2 {
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let flags = u32_at(message, 16)?;
        // The answer that comes later has a number of its own in place of the tree.
        let is_async = flags & 2 != 0;
        Some(Head2 {
            is_response: flags & 1 != 0,
            is_related: flags & 5 == 4,
            command: u16_at(message, 12)?,
            status: u32_at(message, 8)?,
            key: MessageKey {
                session: u64_at(message, 40)?,
                tree: if is_async { 0 } else { u32_at(message, 36)? },
                message: u64_at(message, 24)?,
            },
            next: size32_at(message, 20)?,
        })
    }

    /// The names of the message without its tree.
    const fn opening(&self) -> MessageKey {
        MessageKey { tree: 0, ..self.key }
    }

    const fn carrier(&self) -> Carrier {
        let is_numbered = self.command == IOCTL;
        Carrier { version: 2, command: self.command, key: self.key, is_numbered }
    }

    /// Whether the message carries a piece of a file, or bytes of a pipe.
    pub(super) const fn has_piece(&self) -> bool {
        match self.command {
            WRITE => !self.is_response,
            READ => self.is_response && matches!(self.status, SUCCESS | BUFFER_OVERFLOW),
            _ => false,
        }
    }
}

/// Length of the fields before the piece in a message that carries one.
pub(super) const PIECE_FIELDS: usize = HEAD + 48;

/// A piece, and where it begins in the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece2 {
    pub(super) head: PieceHead,
    pub(super) at: usize,
}

fn file_at(message: &[u8], at: usize) -> Option<FileId> {
    array(message, at).map(FileId::Long)
}

impl Session {
    /// The header with the tree of its request, which an answer that comes later does not name.
    pub(super) fn resolve2(&mut self, head: Head2) -> Head2 {
        if !head.is_response {
            return self.resolve_request(head);
        }
        if head.key.tree != 0 {
            return head;
        }
        let is_own = |tx: &&SmbTransaction| tx.version == 2 && tx.key.session == head.key.session;
        let tree = match self.reads.get(&head.opening()) {
            Some(place) => Some(place.tree),
            None => self.of_message(head.key.message).find(is_own).map(|tx| tx.key.tree),
        };
        Head2 { key: MessageKey { tree: tree.unwrap_or_default(), ..head.key }, ..head }
    }

    /// The header with session and tree of the request before, if it is related to it. Passively as in
    /// Suricata, which takes the numbers as they stand there.
    fn resolve_request(&mut self, head: Head2) -> Head2 {
        if !self.strict {
            return head;
        }
        if head.is_related {
            let MessageKey { session, tree, .. } = self.before.key;
            return Head2 { key: MessageKey { session, tree, ..head.key }, ..head };
        }
        self.before = RequestBefore { key: head.key, file: None };
        head
    }

    /// The file that a request names. A related one names none, and means that of the one before: of another
    /// name some servers take this one, others that one ([MS-SMB2] section 3.3.5.2.7.2).
    fn file_of(&mut self, message: &[u8], at: usize) -> Option<FileId> {
        let file = file_at(message, at)?;
        if !self.strict {
            return Some(file);
        }
        let before = *self.before.file.get_or_insert(file);
        if file != before && file != FileId::SAME {
            self.disagree();
        }
        Some(before)
    }

    /// Notes the file of a request that is not read otherwise, for related ones.
    fn note_file(&mut self, command: u16, body: &[u8]) {
        let at = match command {
            FLUSH | LOCK | QUERY_DIRECTORY | CHANGE_NOTIFY => 8,
            OPLOCK_BREAK if size16_at(body, 0) == Some(OPLOCK_SIZE) => 8,
            GET_INFO => 24,
            _ => return,
        };
        let _ = self.file_of(body, at);
    }

    /// The piece that a message carries. `None`: the message is broken, or its request was not seen.
    pub(super) fn piece2(&mut self, head: &Head2, message: &[u8]) -> Option<Piece2> {
        let body = message.get(HEAD..).unwrap_or_default();
        let (at, length, place) = if head.command == WRITE {
            let place = self
                .file_of(body, 16)
                .and_then(|file| Some(ReadPlace { file, offset: u64_at(body, 8)?, tree: head.key.tree }));
            (size16_at(body, 2), u32_at(body, 4), place)
        } else {
            let place = self.read_place(head).or_else(|| self.unknown_place(head.key.tree));
            (body.get(2).map(|at| usize::from(*at)), u32_at(body, 4), place)
        };
        let (Some(at), Some(length)) = (at, length) else {
            self.raise(MALFORMED_DATA);
            return None;
        };
        let place = place?;
        let (version, command) = (2, head.command);
        let length = u64::from(length);
        let head =
            PieceHead { file: place.file, offset: place.offset, length, version, command, key: head.key };
        Some(Piece2 { head, at })
    }

    /// The place of a file that a response to READ brings, whose handle may have become known since.
    fn read_place(&mut self, head: &Head2) -> Option<ReadPlace> {
        let place = self.reads.remove(&head.opening())?;
        let file = self.handles.get(&place.file).copied().unwrap_or(place.file);
        Some(ReadPlace { file, ..place })
    }

    /// Handles a message with bytes of a pipe, or with a piece whose share is not known.
    pub(super) fn whole_piece2(&mut self, head: &Head2, message: &[u8], around: &Surroundings<'_>) {
        let Some(piece) = self.piece2(head, message) else { return };
        let data = part(message, piece.at, usize::try_from(piece.head.length).unwrap_or(usize::MAX));
        let file = piece.head.file;
        let mut is_pipe = self.tree(head.key).is_some_and(|tree| tree.is_pipe);
        if self.tree(head.key).is_none() && is_call(data) {
            self.trees.insert(
                MessageKey { message: 0, ..head.key },
                Tree { name: RECOGNISED.to_vec(), is_pipe: true },
            );
            if !self.is_service(file) {
                self.names.insert(file, RECOGNISED.to_vec());
            }
            is_pipe = true;
        }
        match (is_pipe, head.command) {
            (true, _) if !self.is_service(file) => {}
            (true, WRITE) => self.write_pipe(head.carrier(), data),
            (true, _) => self.read_pipe(head.carrier(), file, head.status, data),
            (false, command) => {
                let direction = if command == WRITE { Direction::ToServer } else { Direction::ToClient };
                self.begin_piece(direction, &piece.head, unnamed2(command), around);
                self.piece(direction, data);
            }
        }
    }

    /// Handles a request.
    pub(super) fn request2(&mut self, head: &Head2, message: &[u8]) {
        let body = message.get(HEAD..).unwrap_or_default();
        self.note_file(head.command, body);
        let detail = match head.command {
            NEGOTIATE => negotiate_request(body),
            SESSION_SETUP => return self.login2(head, message),
            TREE_CONNECT => tree_request(message),
            CREATE => self.create_request(head, message),
            SET_INFO => match self.set_info(head, message) {
                // Other information has no transaction, as in Suricata.
                Some(Detail::None) => return,
                other => other,
            },
            IOCTL => return self.control_request(head, message),
            READ => return self.read_request(head, body),
            GET_INFO => return,
            TREE_DISCONNECT => {
                self.trees.remove(&MessageKey { message: 0, ..head.key });
                Some(Detail::None)
            }
            CLOSE => self.file_of(body, 8).map(|file| {
                if self.strict {
                    self.closes(head.opening(), file);
                } else {
                    self.close_file(file, &Direction::BOTH, Some(SmbStatus::Nt(SUCCESS)));
                }
                Detail::None
            }),
            _ => Some(Detail::None),
        };
        let is_again = matches!(detail, Some(Detail::Negotiation(_)))
            && self.find(|tx| tx.version == 2 && matches!(tx.detail, Detail::Negotiation(_))).is_some();
        if is_again {
            return;
        }
        let is_broken = detail.is_none();
        if is_broken && head.command == SET_INFO {
            return self.raise(MALFORMED_DATA);
        }
        // Until the answer comes, the session and the tree are not known.
        let key = match head.command {
            NEGOTIATE => MessageKey { message: head.key.message, ..MessageKey::default() },
            TREE_CONNECT => MessageKey { tree: 0, ..head.key },
            _ => head.key,
        };
        let id = self.request(2, head.command, key, detail.unwrap_or_default());
        if is_broken && let Some(tx) = self.txs.get_mut(id) {
            tx.common.events.set(MALFORMED_DATA);
        }
    }

    fn login2(&mut self, head: &Head2, message: &[u8]) {
        let (at, length) = (size16_at(message, HEAD + 12), size16_at(message, HEAD + 14));
        let (Some(at), Some(length)) = (at, length) else { return self.raise(MALFORMED_DATA) };
        let token = Token::read(part(message, at, length));
        let login = Login { ntlm: token.ntlm, ticket: token.ticket, ..Login::default() };
        let id = self.request(2, head.command, head.key, Detail::Login(Box::new(login)));
        if token.is_malformed
            && let Some(tx) = self.txs.get_mut(id)
        {
            tx.common.events.set(MALFORMED_NTLMSSP);
        }
    }

    fn create_request(&mut self, head: &Head2, message: &[u8]) -> Option<Detail> {
        let body = message.get(HEAD..)?;
        let options = u32_at(body, 40)?;
        let file = name(part(message, size16_at(body, 44)?, size16_at(body, 46)?));
        self.openings.insert(head.opening(), file.clone());
        if self.strict {
            let id = FileId::Opened { session: head.key.session, message: head.key.message };
            self.before.file = Some(id);
            // A related request may follow.
            if head.next != 0 {
                self.names.insert(id, file.clone());
            }
        }
        Some(Detail::Opening(Box::new(Opening {
            name: file,
            disposition: u32_at(body, 36)?,
            is_deleted: options & DELETE_ON_CLOSE != 0,
            is_directory: options & DIRECTORY_FILE != 0,
            ..Opening::default()
        })))
    }

    fn read_request(&mut self, head: &Head2, body: &[u8]) {
        let (Some(length), Some(offset), Some(file)) =
            (u32_at(body, 4), u64_at(body, 8), self.file_of(body, 16))
        else {
            return self.raise(MALFORMED_DATA);
        };
        let limit = self.config.piece.to_client;
        if (self.max_read > 0 && length > self.max_read) || (limit > 0 && u64::from(length) > limit) {
            self.raise(READ_REQUEST_TOO_LARGE);
            // The server may answer nevertheless.
            if !self.strict {
                return;
            }
        }
        self.reads.insert(head.opening(), ReadPlace { file, offset, tree: head.key.tree });
    }

    /// The name of an open file. A request that follows an opening in one message does not know the file's
    /// handle yet.
    fn file_name(&self, head: &Head2, file: FileId) -> Vec<u8> {
        let before = head.key.message.checked_sub(1);
        let opening = before.map(|message| MessageKey { message, ..head.opening() });
        let found = self.names.get(&file).or_else(|| self.openings.get(&opening?));
        found.cloned().unwrap_or_else(|| UNKNOWN.to_vec())
    }

    fn set_info(&mut self, head: &Head2, message: &[u8]) -> Option<Detail> {
        let body = message.get(HEAD..)?;
        let (kind, class) = (*body.get(2)?, *body.get(3)?);
        let data = part(message, size16_at(body, 8)?, size32_at(body, 4)?);
        let file = self.file_of(body, 16)?;
        Some(match (kind, class) {
            (FILE_INFORMATION, RENAME) => {
                let to = part(data, 20, size32_at(data, 16)?);
                let from = self.names.get(&file).cloned().unwrap_or_else(|| UNKNOWN.to_vec());
                Detail::Renaming(Box::new(Renaming { from, to: name(to), id: file }))
            }
            (FILE_INFORMATION, DISPOSITION) => Detail::Disposition(Box::new(Disposition {
                name: self.file_name(head, file),
                is_deleted: data.first()? & 1 != 0,
                id: file,
                function: kind.into(),
                level: class.into(),
            })),
            _ => Detail::None,
        })
    }

    fn control_request(&mut self, head: &Head2, message: &[u8]) {
        let body = message.get(HEAD..).unwrap_or_default();
        let (Some(function), Some(file), Some(at), Some(length)) =
            (u32_at(body, 4), self.file_of(body, 8), size32_at(body, 24), size32_at(body, 28))
        else {
            let id = self.request(2, IOCTL, head.key, Detail::None);
            if let Some(tx) = self.txs.get_mut(id) {
                tx.common.events.set(MALFORMED_DATA);
            }
            return;
        };
        if function == PIPE_TRANSCEIVE && self.is_service(file) {
            self.write_pipe(head.carrier(), part(message, at, length));
        } else {
            self.request(2, IOCTL, head.key, Detail::Control(function));
        }
    }

    /// Handles a response.
    pub(super) fn response2(&mut self, head: &Head2, message: &[u8]) {
        let body = message.get(HEAD..).unwrap_or_default();
        let status = SmbStatus::Nt(head.status);
        let is_done = match head.command {
            NEGOTIATE => self.negotiate_response(head, body),
            SESSION_SETUP => self.login_response(head),
            TREE_CONNECT => self.tree_response(head, body),
            CREATE if head.status == SUCCESS => self.create_response(head, body),
            IOCTL => self.control_response(head, message),
            READ if head.status == END_OF_FILE => {
                if let Some(place) = self.read_place(head)
                    && let Some(tx) = self.file_tx(place.file, Direction::ToClient)
                {
                    tx.status = Some(status);
                    tx.done.to_server = true;
                    if let Some(file) = tx.file_mut() {
                        file.close(FileState::Closed);
                    }
                }
                Some(())
            }
            TREE_DISCONNECT => {
                self.trees.remove(&MessageKey { message: 0, ..head.key });
                None
            }
            CLOSE if self.strict => {
                self.closed(head.opening(), status);
                None
            }
            _ => None,
        };
        if is_done.is_none() {
            self.answer(2, head.command, head.key, status, head.command == IOCTL);
        }
    }

    fn negotiate_response(&mut self, head: &Head2, body: &[u8]) -> Option<()> {
        let status = SmbStatus::Nt(head.status);
        if head.status == SUCCESS {
            let (Some(revision), Some(read), Some(write), Some(guid)) =
                (u16_at(body, 4), u32_at(body, 32), u32_at(body, 36), array::<16>(body, 8))
            else {
                self.raise(MALFORMED_DATA);
                return None;
            };
            let limits = self.config.piece;
            for (size, limit, event) in
                [(read, limits.to_client, MAX_READ_TOO_LARGE), (write, limits.to_server, MAX_WRITE_TOO_LARGE)]
            {
                if limit > 0 && u64::from(size) > limit {
                    self.raise(event);
                }
            }
            (self.dialect, self.max_read, self.max_write) = (Dialect::Revision(revision), read, write);
            let is_found = self.negotiated(2, status, Some(guid)) || self.negotiated(1, status, Some(guid));
            return is_found.then_some(());
        }
        (self.negotiated(2, status, None) || self.negotiated(1, status, None)).then_some(())
    }

    fn login_response(&mut self, head: &Head2) -> Option<()> {
        let key = head.key;
        let is_wanted = |tx: &SmbTransaction| {
            tx.version == 2
                && matches!(tx.detail, Detail::Login(_))
                && (tx.key.session == key.session || tx.key.session == 0)
        };
        let tx = self.find_request(key.message, is_wanted)?;
        tx.key = MessageKey { message: key.message, ..key };
        tx.finish(SmbStatus::Nt(head.status));
        Some(())
    }

    fn tree_response(&mut self, head: &Head2, body: &[u8]) -> Option<()> {
        let key = head.key;
        let kind = body.get(2).copied();
        let is_wanted =
            |tx: &SmbTransaction| matches!(tx.detail, Detail::Tree(_)) && tx.key.session == key.session;
        let Some(tx) = self.find_request(key.message, is_wanted) else { return Some(()) };
        if head.status == PENDING {
            tx.status = Some(SmbStatus::Nt(PENDING));
            return Some(());
        }
        tx.finish(SmbStatus::Nt(head.status));
        if head.status != SUCCESS {
            return Some(());
        }
        tx.key = key;
        let Some(kind) = kind else {
            tx.common.events.set(MALFORMED_DATA);
            return Some(());
        };
        let Detail::Tree(tree) = &mut tx.detail else { return Some(()) };
        (tree.kind, tree.is_pipe) = (kind, kind == PIPE_SHARE);
        let tree = Tree { name: tree.name.clone(), is_pipe: tree.is_pipe };
        self.trees.insert(MessageKey { message: 0, ..key }, tree);
        Some(())
    }

    fn create_response(&mut self, head: &Head2, body: &[u8]) -> Option<()> {
        let opened = |body: &[u8]| {
            let times = [8, 16, 24, 32].map(|at| u64_at(body, at).map(unix_seconds));
            let [Some(created), Some(accessed), Some(modified), Some(changed)] = times else { return None };
            Some(([created, accessed, modified, changed], u64_at(body, 48)?, file_at(body, 64)?))
        };
        let name = self.openings.remove(&head.opening());
        let Some((times, size, id)) = opened(body) else {
            self.raise(MALFORMED_DATA);
            return None;
        };
        if let Some(name) = name {
            self.names.insert(id, name);
        }
        if self.strict {
            self.name_handle(FileId::Opened { session: head.key.session, message: head.key.message }, id);
        }
        let key = head.key;
        let tx = self.find_request(key.message, |tx| {
            matches!(tx.detail, Detail::Opening(_)) && tx.key.session == key.session
        })?;
        tx.finish(SmbStatus::Nt(head.status));
        if let Detail::Opening(opening) = &mut tx.detail {
            (opening.times, opening.size, opening.id) = (times, size, id);
        }
        Some(())
    }

    fn control_response(&mut self, head: &Head2, message: &[u8]) -> Option<()> {
        let body = message.get(HEAD..)?;
        let (function, file) = (u32_at(body, 4)?, file_at(body, 8)?);
        let (at, length) = (size32_at(body, 32)?, size32_at(body, 36)?);
        // A response without data has another form ([MS-SMB2] section 2.2.2).
        if size16_at(body, 0)? != 49 || function != PIPE_TRANSCEIVE || !self.is_service(file) {
            return None;
        }
        self.read_pipe(head.carrier(), file, head.status, part(message, at, length));
        Some(())
    }
}

/// The name of a file whose opening was not seen, as in Suricata.
pub(super) const fn unnamed2(command: u16) -> &'static [u8] {
    if command == WRITE { b"" } else { UNKNOWN }
}

fn negotiate_request(body: &[u8]) -> Option<Detail> {
    let count = size16_at(body, 2)?;
    let revisions = part(body, 36, count.saturating_mul(2)).chunks_exact(2);
    let dialects = revisions.filter_map(|pair| u16_at(pair, 0));
    Some(Detail::Negotiation(Box::new(Negotiation {
        dialects: dialects
            .take(64)
            .map(|revision| names::dialect(revision).into_owned().into_bytes())
            .collect(),
        client: Some(array(body, 12)?),
        ..Negotiation::default()
    })))
}

fn tree_request(message: &[u8]) -> Option<Detail> {
    let (at, length) = (size16_at(message, HEAD + 4)?, size16_at(message, HEAD + 6)?);
    Some(Detail::Tree(Box::new(TreeConnect {
        name: name(part(message, at, length)),
        ..TreeConnect::default()
    })))
}
