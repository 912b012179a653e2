// SPDX-License-Identifier: Apache-2.0
//! Requests and responses of SMB1 ([MS-CIFS] section 2.2.4, [MS-SMB] section 2.2.4). Offsets count from the
//! header. A message may hold a chain of commands (AndX).

use super::bytes::{Strings, array, name, part, size16_at, size32_at, u16_at, u32_at, u64_at, unix_seconds};
use super::handle::FileId;
use super::pipe::Carrier;
use super::secblob::Token;
use super::session::{PieceHead, ReadPlace, Session, Surroundings, Tree, UNKNOWN};
use super::tables::{DUPLICATE_NEGOTIATE, MALFORMED_DATA, MALFORMED_DIALECTS, MALFORMED_NTLMSSP};
use super::tx::{
    Detail, Dialect, Disposition, Login, MessageKey, NativeNames, Negotiation, Opening, Renaming, SmbStatus,
    SmbTransaction, TreeConnect,
};
use bartizan_base::Direction;

/// Length of the header.
pub(super) const HEAD: usize = 32;

const CLOSE: u8 = 0x04;
const RENAME: u8 = 0x07;
const PLAIN_WRITE: u8 = 0x0b;
const LOCKING_ANDX: u8 = 0x24;
const TRANS: u8 = 0x25;
const WRITE_AND_CLOSE: u8 = 0x2c;
const OPEN_ANDX: u8 = 0x2d;
pub(super) const READ_ANDX: u8 = 0x2e;
pub(super) const WRITE_ANDX: u8 = 0x2f;
const TRANS2: u8 = 0x32;
const TRANS2_SECONDARY: u8 = 0x33;
const TREE_DISCONNECT: u8 = 0x71;
const NEGOTIATE: u8 = 0x72;
const SESSION_SETUP: u8 = 0x73;
const LOGOFF: u8 = 0x74;
const TREE_CONNECT: u8 = 0x75;
const NT_CREATE: u8 = 0xa2;
const NT_CANCEL: u8 = 0xa4;
/// No further command in the chain.
pub(super) const NONE: u8 = 0xff;

const SUCCESS: u32 = 0;
/// Limit of the commands of a chain.
const CHAIN_MAX: usize = 16;
/// Limit of the dialects of a client.
const DIALECTS_MAX: usize = 64;
/// Function of TRANS that writes to a pipe and reads the answer.
const TRANSACT_PIPE: u16 = 0x26;
/// Functions of TRANS2 that set information of a file, by its path and by its handle, and their levels.
const SET_PATH_INFO: u16 = 6;
const SET_FILE_INFO: u16 = 8;
const LEVEL_RENAME: u16 = 1_010;
const LEVEL_DISPOSITION: u16 = 1_013;

/// The header of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head1 {
    pub(super) is_response: bool,
    pub(super) command: u8,
    /// The status as a number; 0 is success.
    pub(super) number: u32,
    status: SmbStatus,
    is_wide: bool,
    pub(super) key: MessageKey,
}

impl Head1 {
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let number = u32_at(message, 5)?;
        let flags = u16_at(message, 10)?;
        let [class, _, code @ ..] = array::<4>(message, 5)?;
        let is_nt = flags & 0x4000 != 0 || number == SUCCESS;
        let (high, user) = (u16_at(message, 12)?, u16_at(message, 28)?);
        Some(Head1 {
            is_response: message.get(9)? & 0x80 != 0,
            command: *message.get(4)?,
            number,
            status: if is_nt {
                SmbStatus::Nt(number)
            } else {
                SmbStatus::Dos { class, code: u16::from_le_bytes(code) }
            },
            is_wide: flags & 0x8000 != 0,
            key: MessageKey {
                session: u64::from(high) << 16 | u64::from(user),
                tree: u16_at(message, 24)?.into(),
                message: u16_at(message, 30)?.into(),
            },
        })
    }

    /// A handle of the message's session.
    fn file(&self, words: &[u8], at: usize) -> Option<FileId> {
        Some(FileId::Number { file: u16_at(words, at)?, session: self.key.session })
    }

    const fn carrier(&self) -> Carrier {
        Carrier { version: 1, command: self.command as u16, key: self.key, is_numbered: false }
    }
}

/// A command of a message: its words, and its bytes.
#[derive(Clone, Copy)]
struct AndxCommand<'a> {
    code: u8,
    words: &'a [u8],
    bytes: &'a [u8],
    /// Offset of the bytes.
    at: usize,
}

impl<'a> AndxCommand<'a> {
    fn read(message: &'a [u8], code: u8, at: usize) -> Option<Self> {
        let count = usize::from(*message.get(at)?).saturating_mul(2);
        let words = message.get(at.saturating_add(1)..)?.get(..count)?;
        let end = at.saturating_add(1).saturating_add(count);
        let length = size16_at(message, end)?;
        let at = end.saturating_add(2);
        Some(AndxCommand { code, words, bytes: part(message, at, length), at })
    }

    fn strings(&self, is_wide: bool) -> Strings<'a> {
        Strings::new(self.bytes, self.at, is_wide)
    }

    /// The next command of the chain, and its offset.
    fn next(&self, before: usize) -> Option<(u8, usize)> {
        let is_chained = matches!(
            self.code,
            LOCKING_ANDX
                | OPEN_ANDX
                | READ_ANDX
                | WRITE_ANDX
                | SESSION_SETUP
                | LOGOFF
                | TREE_CONNECT
                | NT_CREATE
        );
        let (code, at) = (*self.words.first()?, size16_at(self.words, 2)?);
        (is_chained && code != NONE && at > before).then_some((code, at))
    }
}

/// Calls a function for each command of a message's chain. Returns whether the message has a command.
fn each<'a>(message: &'a [u8], code: u8, mut act: impl FnMut(AndxCommand<'a>)) -> bool {
    let (mut code, mut at) = (code, HEAD);
    for count in 0..CHAIN_MAX {
        let Some(command) = AndxCommand::read(message, code, at) else { return count > 0 };
        act(command);
        let Some(next) = command.next(at) else { break };
        (code, at) = next;
    }
    true
}

/// A piece, and where it begins in the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece1 {
    pub(super) head: PieceHead,
    pub(super) at: usize,
}

/// Length of the fields before the piece in a message that carries one.
pub(super) const PIECE_FIELDS: usize = HEAD + 1 + 28 + 2;

/// The name of a file whose opening was not seen, as in Suricata.
pub(super) const fn unnamed1(command: u8) -> &'static [u8] {
    if command == READ_ANDX { b"" } else { UNKNOWN }
}

impl Session {
    /// The piece that a message with one command carries. `None`: the message is broken, or its request was
    /// not seen.
    pub(super) fn first_piece1(&mut self, head: &Head1, message: &[u8]) -> Option<Piece1> {
        let count = usize::from(*message.get(HEAD)?).saturating_mul(2);
        self.piece1(head, part(message, HEAD + 1, count))
    }

    /// The piece that a command carries.
    fn piece1(&mut self, head: &Head1, words: &[u8]) -> Option<Piece1> {
        let (length, at, place) = if head.command == WRITE_ANDX {
            let high = if words.len() >= 28 { u32_at(words, 24).unwrap_or_default() } else { 0 };
            let offset = u64::from(high) << 32 | u64::from(u32_at(words, 6)?);
            let length = u64::from(u16_at(words, 18)?) << 16 | u64::from(u16_at(words, 20)?);
            (
                length,
                size16_at(words, 22)?,
                ReadPlace { file: head.file(words, 4)?, offset, tree: head.key.tree },
            )
        } else {
            let length = u64::from(u16_at(words, 14)?) << 16 | u64::from(u16_at(words, 10)?);
            let place = self.reads.remove(&head.key).or_else(|| self.unknown_place(head.key.tree));
            (length, size16_at(words, 12)?, place?)
        };
        let piece = PieceHead {
            file: place.file,
            offset: place.offset,
            length,
            version: 1,
            command: head.command.into(),
            key: head.key,
        };
        Some(Piece1 { head: piece, at })
    }

    /// Whether a message is about a share of pipes.
    pub(super) fn is_pipe1(&self, head: &Head1) -> bool {
        self.tree(head.key).is_some_and(|tree| tree.is_pipe)
    }

    /// Handles a piece of a file, or bytes of a pipe, that a message holds whole.
    fn whole_piece1(&mut self, head: &Head1, piece: &PieceHead, data: &[u8], around: &Surroundings<'_>) {
        let direction = if head.is_response { Direction::ToClient } else { Direction::ToServer };
        if !self.is_pipe1(head) {
            self.begin_piece(direction, piece, unnamed1(head.command), around);
            self.piece(direction, data);
        } else if head.is_response {
            self.read_pipe(head.carrier(), piece.file, head.number, data);
        } else {
            self.write_pipe(head.carrier(), data);
        }
    }

    /// Handles a request.
    pub(super) fn request1(&mut self, head: &Head1, message: &[u8], around: &Surroundings<'_>) {
        let is_read = each(message, head.command, |command| self.command1(head, message, command, around));
        if !is_read {
            let id = self.request(1, head.command.into(), head.key, Detail::None);
            self.mark(id, MALFORMED_DATA);
        }
    }

    fn mark(&mut self, id: crate::transaction::TxId, event: crate::event::EventCode) {
        if let Some(tx) = self.txs.get_mut(id) {
            tx.common.events.set(event);
        }
    }

    fn command1(
        &mut self,
        head: &Head1,
        message: &[u8],
        command: AndxCommand<'_>,
        around: &Surroundings<'_>,
    ) {
        let words = command.words;
        let code = u16::from(command.code);
        let detail = match command.code {
            WRITE_ANDX | PLAIN_WRITE | WRITE_AND_CLOSE => {
                return self.write1(head, message, command, around);
            }
            READ_ANDX => {
                match read_place(head, words) {
                    Some(place) => self.reads.insert(head.key, place),
                    None => self.raise(MALFORMED_DATA),
                }
                return;
            }
            TRANS => return self.trans_request(head, message, words),
            NEGOTIATE => return self.negotiate1(head, command),
            SESSION_SETUP => return self.login1(head, command),
            TREE_CONNECT => tree_request(head, command),
            NT_CREATE => self.create1(head, command),
            RENAME => rename(head, command),
            TRANS2 => match trans2(self, head, message, words) {
                // Others have no transaction, as in Suricata.
                Some(Detail::None) => return,
                other => other,
            },
            TREE_DISCONNECT => {
                self.trees.remove(&MessageKey { message: 0, ..head.key });
                Some(Detail::None)
            }
            CLOSE => head.file(words, 0).map(|file| {
                if self.strict {
                    self.closes(head.key, file);
                } else {
                    self.reads.insert(head.key, ReadPlace { file, offset: 0, tree: head.key.tree });
                    self.close_file(file, &[Direction::ToServer], None);
                }
                Detail::None
            }),
            _ => Some(Detail::None),
        };
        let is_broken = detail.is_none();
        let tree = if command.code == TREE_CONNECT { 0 } else { head.key.tree };
        let id = self.request(1, code, MessageKey { tree, ..head.key }, detail.unwrap_or_default());
        if is_broken {
            self.mark(id, MALFORMED_DATA);
        }
        let has_answer = !matches!(command.code, NT_CANCEL | TRANS2_SECONDARY | LOCKING_ANDX);
        if let Some(tx) = self.txs.get_mut(id).filter(|_| !has_answer) {
            tx.done.to_client = true;
        }
    }

    fn write1(&mut self, head: &Head1, message: &[u8], command: AndxCommand<'_>, around: &Surroundings<'_>) {
        let head = &Head1 { command: command.code, ..*head };
        let words = command.words;
        let piece = match command.code {
            WRITE_ANDX => self.piece1(head, words).map(|piece| (piece.head, piece.at)),
            code => {
                // The form of the data, or padding, and in WRITE their length stand before them.
                let before = if code == PLAIN_WRITE { 3 } else { 1 };
                let place = head.file(words, 0).and_then(|file| {
                    Some((file, u64::from(u32_at(words, 4)?), u64::from(u16_at(words, 2)?)))
                });
                place.map(|(file, offset, length)| {
                    let (version, key) = (1, head.key);
                    let piece = PieceHead { file, offset, length, version, command: WRITE_ANDX.into(), key };
                    (piece, command.at.saturating_add(before))
                })
            }
        };
        let Some((piece, at)) = piece else { return self.raise(MALFORMED_DATA) };
        let data = part(message, at, usize::try_from(piece.length).unwrap_or(usize::MAX));
        self.whole_piece1(head, &piece, data, around);
        if command.code == WRITE_AND_CLOSE && self.strict {
            self.closes(head.key, piece.file);
        } else if command.code == WRITE_AND_CLOSE {
            self.close_file(piece.file, &[Direction::ToServer], None);
        }
        if command.code != WRITE_ANDX {
            self.request(1, command.code.into(), head.key, Detail::None);
        }
    }

    fn negotiate1(&mut self, head: &Head1, command: AndxCommand<'_>) {
        let mut strings = command.strings(false);
        let (mut dialects, mut is_odd) = (Vec::new(), false);
        let mut read = 0usize;
        while read < command.bytes.len() && dialects.len() < DIALECTS_MAX {
            let text = strings.narrow();
            read = read.saturating_add(text.len()).saturating_add(1);
            // A byte before the name says that it is one.
            is_odd |= text.len() < 2;
            if let Some(name) = text.get(1..) {
                dialects.push(super::bytes::name(name));
            }
        }
        let is_again = |tx: &SmbTransaction| tx.version == 1 && matches!(tx.detail, Detail::Negotiation(_));
        if let Some(tx) = self.find(is_again) {
            tx.common.events.set(DUPLICATE_NEGOTIATE);
            return;
        }
        let detail = Detail::Negotiation(Box::new(Negotiation { dialects, ..Negotiation::default() }));
        let key = MessageKey { message: head.key.message, ..MessageKey::default() };
        let id = self.request(1, NEGOTIATE.into(), key, detail);
        if is_odd {
            self.mark(id, MALFORMED_DIALECTS);
        }
    }

    fn login1(&mut self, head: &Head1, command: AndxCommand<'_>) {
        let words = command.words;
        let mut strings = command.strings(head.is_wide);
        let mut login = Login::default();
        let mut is_malformed = false;
        let names =
            |strings: &mut Strings<'_>| NativeNames { system: strings.next(), manager: strings.next() };
        match words.len() {
            24 => {
                let length = size16_at(words, 14).unwrap_or_default();
                let token = Token::read(part(command.bytes, 0, length));
                is_malformed = token.is_malformed;
                (login.ntlm, login.ticket) = (token.ntlm, token.ticket);
                strings.skip(length);
                login.client = Some(names(&mut strings));
            }
            26 => {
                let passwords = [14, 16].map(|at| size16_at(words, at).unwrap_or_default());
                strings.skip(passwords.into_iter().fold(0, usize::saturating_add));
                let _user_and_domain = [strings.next(), strings.next()];
                login.client = Some(names(&mut strings));
            }
            _ => return self.raise(MALFORMED_DATA),
        }
        let key = MessageKey { tree: 0, ..head.key };
        let id = self.request(1, SESSION_SETUP.into(), key, Detail::Login(Box::new(login)));
        if is_malformed {
            self.mark(id, MALFORMED_NTLMSSP);
        }
    }

    fn create1(&mut self, head: &Head1, command: AndxCommand<'_>) -> Option<Detail> {
        let words = command.words;
        let length = size16_at(words, 5)?;
        let padding = usize::from(head.is_wide && command.at % 2 == 1);
        let file = name(part(command.bytes, padding, length));
        let options = u32_at(words, 39)?;
        self.openings.insert(head.key, file.clone());
        Some(Detail::Opening(Box::new(Opening {
            name: file,
            disposition: u32_at(words, 35)?,
            is_deleted: options & 0x1000 != 0,
            is_directory: options & 1 != 0,
            ..Opening::default()
        })))
    }

    fn trans_request(&mut self, head: &Head1, message: &[u8], words: &[u8]) {
        let data = size16_at(words, 22).zip(size16_at(words, 24));
        let Some((length, at)) = data else { return self.raise(MALFORMED_DATA) };
        if u16_at(words, 28) != Some(TRANSACT_PIPE) {
            return;
        }
        let Some(file) = head.file(words, 30) else { return };
        self.reads.insert(head.key, ReadPlace { file, offset: 0, tree: head.key.tree });
        if self.is_service(file) {
            self.write_pipe(head.carrier(), part(message, at, length));
        }
    }

    /// Handles a response.
    pub(super) fn response1(&mut self, head: &Head1, message: &[u8], around: &Surroundings<'_>) {
        let is_read = each(message, head.command, |command| self.answer1(head, message, command, around));
        if !is_read {
            self.answer(1, head.command.into(), head.key, head.status, false);
        }
    }

    fn answer1(&mut self, head: &Head1, message: &[u8], command: AndxCommand<'_>, around: &Surroundings<'_>) {
        let words = command.words;
        let code = u16::from(command.code);
        let is_success = head.number == SUCCESS;
        let is_done = match command.code {
            READ_ANDX => {
                let head = &Head1 { command: command.code, ..*head };
                if is_success && let Some(piece) = self.piece1(head, words) {
                    let length = usize::try_from(piece.head.length).unwrap_or(usize::MAX);
                    self.whole_piece1(head, &piece.head, part(message, piece.at, length), around);
                }
                true
            }
            NEGOTIATE => self.negotiated1(head, command),
            SESSION_SETUP => self.logged_in1(head, command),
            TREE_CONNECT => self.connected1(head, command),
            NT_CREATE if is_success => self.created1(head, words),
            TREE_DISCONNECT => {
                self.trees.remove(&MessageKey { message: 0, ..head.key });
                false
            }
            CLOSE | WRITE_AND_CLOSE if self.strict => {
                self.closed(head.key, head.status);
                false
            }
            CLOSE => {
                if let Some(place) = self.reads.remove(&head.key) {
                    self.close_file(place.file, &[Direction::ToClient], None);
                }
                false
            }
            TRANS => {
                let place = self.reads.remove(&head.key);
                let data = size16_at(words, 12).zip(size16_at(words, 14));
                if let Some((place, (length, at))) =
                    place.zip(data).filter(|(place, _)| self.is_service(place.file))
                {
                    self.read_pipe(head.carrier(), place.file, head.number, part(message, at, length));
                }
                false
            }
            // The newest request is meant: its session has ended with it.
            LOGOFF => match self.txs.last_mut().filter(|tx| tx.version == 1 && tx.command == code) {
                Some(tx) => {
                    tx.finish(head.status);
                    true
                }
                None => false,
            },
            _ => false,
        };
        if !is_done {
            self.answer(1, code, head.key, head.status, false);
        }
    }

    fn negotiated1(&mut self, head: &Head1, command: AndxCommand<'_>) -> bool {
        let Some(index) = size16_at(command.words, 0) else { return self.negotiated(1, head.status, None) };
        // The server's GUID stands in the place of a challenge in the form with security tokens.
        let has_guid = u32_at(command.words, 19).is_some_and(|capabilities| capabilities & 0x8000_0000 != 0);
        let guid = array::<16>(command.bytes, 0).filter(|_| has_guid);
        let is_wanted = |tx: &SmbTransaction| tx.version == 1 && matches!(tx.detail, Detail::Negotiation(_));
        let Some(tx) = self.find(is_wanted) else { return false };
        let Detail::Negotiation(it) = &tx.detail else { return false };
        match it.dialects.get(index).map(|dialect| Dialect::Named(dialect.as_slice().into())) {
            Some(dialect) => self.dialect = dialect,
            None => tx.common.events.set(MALFORMED_DIALECTS),
        }
        self.negotiated(1, head.status, guid)
    }

    fn logged_in1(&mut self, head: &Head1, command: AndxCommand<'_>) -> bool {
        let key = head.key;
        let is_wanted = |tx: &SmbTransaction| {
            tx.version == 1
                && matches!(tx.detail, Detail::Login(_))
                && (tx.key.session == key.session || tx.key.session == 0)
        };
        let mut strings = command.strings(head.is_wide);
        let Some(tx) = self.find_request(key.message, is_wanted) else { return false };
        let has_names = match command.words.len() {
            6 => true,
            8 => {
                strings.skip(size16_at(command.words, 6).unwrap_or_default());
                true
            }
            _ => false,
        };
        if let Detail::Login(login) = &mut tx.detail
            && has_names
        {
            login.server = Some(NativeNames { system: strings.next(), manager: strings.next() });
        }
        tx.key = key;
        tx.finish(head.status);
        true
    }

    fn connected1(&mut self, head: &Head1, command: AndxCommand<'_>) -> bool {
        let key = head.key;
        let is_wanted = |tx: &SmbTransaction| {
            tx.version == 1
                && matches!(tx.detail, Detail::Tree(_))
                && (tx.key.session == key.session || tx.key.session == 0)
        };
        let Some(tx) = self.find_request(key.message, is_wanted) else { return true };
        tx.finish(head.status);
        if head.number != SUCCESS {
            return true;
        }
        tx.key = key;
        let given = command.strings(false).narrow().to_vec();
        let Detail::Tree(tree) = &mut tx.detail else { return true };
        tree.is_pipe = given == b"IPC";
        tree.given = Some(given);
        let tree = Tree { name: tree.name.clone(), is_pipe: tree.is_pipe };
        self.trees.insert(MessageKey { message: 0, ..key }, tree);
        true
    }

    fn created1(&mut self, head: &Head1, words: &[u8]) -> bool {
        let times = [11, 19, 27, 35].map(|at| u64_at(words, at).map(unix_seconds));
        let name = self.openings.remove(&head.key);
        let (Some(id), [Some(created), Some(accessed), Some(modified), Some(changed)], Some(size)) =
            (head.file(words, 5), times, u64_at(words, 47))
        else {
            self.raise(MALFORMED_DATA);
            return false;
        };
        if let Some(name) = name {
            self.names.insert(id, name);
        }
        let key = head.key;
        let is_wanted = |tx: &SmbTransaction| matches!(tx.detail, Detail::Opening(_)) && tx.key == key;
        let Some(tx) = self.find_request(key.message, is_wanted) else { return false };
        tx.finish(head.status);
        if let Detail::Opening(opening) = &mut tx.detail {
            (opening.times, opening.size, opening.id) = ([created, accessed, modified, changed], size, id);
        }
        true
    }
}

/// The place of the bytes that a READ_ANDX asks for.
fn read_place(head: &Head1, words: &[u8]) -> Option<ReadPlace> {
    let high = u32_at(words, 20).unwrap_or_default();
    let offset = u64::from(high) << 32 | u64::from(u32_at(words, 6)?);
    Some(ReadPlace { file: head.file(words, 4)?, offset, tree: head.key.tree })
}

fn tree_request(head: &Head1, command: AndxCommand<'_>) -> Option<Detail> {
    let mut strings = command.strings(head.is_wide);
    strings.skip(size16_at(command.words, 6)?);
    let path = strings.next();
    // As in Suricata, without the first backslash.
    let name = if path.len() > 1 { path.get(1..)?.to_vec() } else { path };
    let asked = strings.narrow().to_vec();
    Some(Detail::Tree(Box::new(TreeConnect { name, asked, ..TreeConnect::default() })))
}

fn rename(head: &Head1, command: AndxCommand<'_>) -> Option<Detail> {
    let mut strings = command.strings(head.is_wide);
    let mut path = || {
        // A byte before the name says that it is one.
        strings.skip(1);
        strings.next()
    };
    let (from, to) = (path(), path());
    Some(Detail::Renaming(Box::new(Renaming { from, to, id: FileId::None })))
}

/// The information that a TRANS2 sets; `Detail::None` for other functions.
fn trans2(session: &Session, head: &Head1, message: &[u8], words: &[u8]) -> Option<Detail> {
    let function = u16_at(words, 28)?;
    if !matches!(function, SET_PATH_INFO | SET_FILE_INFO) {
        return Some(Detail::None);
    }
    let parameters = part(message, size16_at(words, 20)?, size16_at(words, 18)?);
    let data = part(message, size16_at(words, 24)?, size16_at(words, 22)?);
    let (level, old, id) = if function == SET_PATH_INFO {
        (u16_at(parameters, 0)?, name(parameters.get(6..)?), FileId::None)
    } else {
        let id = head.file(parameters, 0)?;
        let old = session.names.get(&id).cloned().unwrap_or_else(|| UNKNOWN.to_vec());
        (u16_at(parameters, 2)?, old, id)
    };
    Some(match level {
        LEVEL_DISPOSITION => Detail::Disposition(Box::new(Disposition {
            name: old,
            is_deleted: data.first()? & 1 != 0,
            id,
            function,
            level,
        })),
        LEVEL_RENAME => {
            let to = name(part(data, 12, size32_at(data, 8)?));
            Detail::Renaming(Box::new(Renaming { from: old, to, id }))
        }
        _ => Detail::None,
    })
}
