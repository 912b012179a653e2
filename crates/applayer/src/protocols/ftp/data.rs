// SPDX-License-Identifier: Apache-2.0
//! A data connection of FTP: one transfer, known by the command on the control connection.
//!
//! No bytes show that a connection is one: it has to be expected ([`crate::expectation`]).

use super::commands::Transfer;
use super::tables::STATES;
use crate::content::files::{FileContext, FileList};
use crate::event::UNEXPECTED_PROTOCOL;
use crate::expectation::CONTEXT_MAX;
use crate::file::{FileState, FileTrack};
use crate::frames::Notes;
use crate::memory::allocated;
use crate::protocol::{
    BufferKind, BufferSpec, CounterSpec, Input, NumberId, NumberSpec, ParseContext, Parser, ParserFactory,
    Progress, ProtocolSpec, RecordSpec, Transport, buffer,
};
use crate::transaction::{
    BufferQuery, BufferView, Files, FilesMut, LogOptions, Transaction, TxCommon, single_held,
    single_transaction,
};
use crate::worklist::Worklist;
use bartizan_base::limit::LimitTrace::Nothing;
use bartizan_base::limit::{LimitSpec, bytes};
use bartizan_base::{Direction, PerDirection, limits};
use bartizan_events::JsonWriter;

/// Name in rules and records.
pub(super) const NAME: &str = "ftp-data";

/// Progress of a transfer that has ended.
const COMPLETE: u8 = 1;

const FILE_DATA: u16 = 0;
const FILE_NAME: u16 = 1;
const FILE_MAGIC: u16 = 2;

const BUFFERS: &[BufferSpec] = &[
    buffer(FILE_DATA, "file.data", true, true, COMPLETE, BufferKind::Files).of_state(0),
    buffer(FILE_NAME, "file.name", true, true, COMPLETE, BufferKind::Multi).of_state(0).from(0),
    buffer(FILE_MAGIC, "file.magic", true, true, COMPLETE, BufferKind::Multi).of_state(0).from(0),
];

/// The command of the transfer ([`COMMANDS`]).
const COMMAND: NumberId = 0;

const NUMBERS: &[NumberSpec] = &[NumberSpec { id: COMMAND, name: "ftpdata_command" }];

/// Names of commands, with the numbers that rules compare.
pub const COMMANDS: &[(&str, u64)] = &[("retr", 1), ("stor", 2)];

/// The entry of FTP's data connections in the table of protocols.
pub static SPEC: ProtocolSpec = ProtocolSpec {
    name: NAME,
    aliases: &[],
    family: None,
    carries: None,
    exact_name: NAME,
    eve_name: NAME,
    eve_type: Some("ftp_data"),
    records: RecordSpec { progress: false, listed_as: Some("ftp"), ..RecordSpec::PLAIN },
    counters: CounterSpec::PLAIN,
    transports: &[Transport::Tcp],
    patterns: &[],
    ports: &[],
    probe: None,
    likely: None,
    enabled_by_default: true,
    complete: PerDirection::new(COMPLETE, COMPLETE),
    states: STATES,
    buffers: BUFFERS,
    numbers: NUMBERS,
    encrypted: None,
    frames: &["stream"],
    events: &[],
    absent: UNEXPECTED_PROTOCOL,
    has_trailing_bytes: false,
    limits: LIMITS,
    configure: |_| Ok(Box::new(FtpDataFactory)),
};

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "FTP: name of a transferred file" = "{}" [bytes(NAME_MAX)] in ["applayer/protocols/ftp/data.rs"],
        "the name is cut", [Nothing];
};

/// Bytes of a context before the name of the file: number of the command, mode.
const HEAD: usize = 2;
/// Limit of the name of a file, in bytes: the longest that file systems have, and some folders.
const NAME_MAX: usize = CONTEXT_MAX - HEAD;

/// The data for the parser of an expected connection.
pub(super) fn context(transfer: Transfer, is_active: bool, argument: &[u8]) -> Box<[u8]> {
    let name = if transfer.has_file() { argument } else { &[] };
    let name = name.get(..NAME_MAX).unwrap_or(name);
    [&[transfer.number(), u8::from(is_active)], name].concat().into()
}

/// The data for the parser of a connection whose transfer is not known yet.
pub(super) fn context_of_any(is_active: bool) -> Box<[u8]> {
    [ANY, u8::from(is_active)].into()
}

/// Number of a transfer that is not known.
const ANY: u8 = 0;

struct FtpDataFactory;

impl ParserFactory for FtpDataFactory {
    fn make(&self) -> Box<dyn Parser> {
        self.make_expected(&[])
    }

    fn make_expected(&self, context: &[u8]) -> Box<dyn Parser> {
        let (transfer, is_active, name) = match context {
            [number, mode, name @ ..] => (Transfer::of_number(*number), *mode != 0, name),
            _ => (None, false, &[][..]),
        };
        let is_known = transfer.is_some() || context.first() == Some(&ANY);
        let stores = matches!(transfer, Some(Transfer::Store(_)));
        // In active mode the server opens the connection.
        let sender = if stores != is_active { Direction::ToServer } else { Direction::ToClient };
        Box::new(FtpDataParser {
            tx: is_known.then(|| FtpDataTransaction {
                common: TxCommon::default(),
                transfer,
                name: name.into(),
                sender,
                files: FileList::default(),
                done: false,
            }),
            work: Worklist::default(),
            frames: Notes::default(),
        })
    }
}

/// A transfer.
struct FtpDataTransaction {
    common: TxCommon,
    /// The transfer; `None`: its command comes after its bytes.
    transfer: Option<Transfer>,
    /// Name of the file; empty if there is none.
    name: Box<[u8]>,
    /// Direction of the transferred bytes.
    sender: Direction,
    files: FileList,
    done: bool,
}

impl FtpDataTransaction {
    fn file(&self, query: BufferQuery) -> Option<&FileTrack> {
        let index = usize::try_from(query.index).ok()?;
        (query.direction == self.sender).then(|| self.files.list.get(index))?
    }

    /// Ends the transfer.
    fn finish(&mut self, state: FileState) {
        self.files.close(state);
        self.done = true;
    }
}

impl Transaction for FtpDataTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, _direction: Direction) -> u8 {
        if self.done { COMPLETE } else { 0 }
    }

    fn buffer<'a>(&'a self, query: BufferQuery, _scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        let file = self.file(query)?;
        match query.id {
            FILE_DATA => {
                let (data, offset) = file.content();
                Some(BufferView { data, offset, complete: file.state != FileState::Open })
            }
            FILE_NAME => Some(BufferView::whole(&file.name)),
            FILE_MAGIC => file.magic().map(|kind| BufferView::whole(kind.as_bytes())),
            _ => None,
        }
    }

    fn number(&self, id: NumberId, _direction: Direction) -> Option<u64> {
        match (id, self.transfer) {
            (COMMAND, Some(Transfer::Retrieve)) => Some(1),
            (COMMAND, Some(Transfer::Store(_))) => Some(2),
            _ => None,
        }
    }

    fn held(&self) -> usize {
        allocated(self.name.len()).saturating_add(self.files.held())
    }

    fn files(&self) -> Option<Files<'_>> {
        let list = self.files.list.as_slice();
        Some(match self.sender {
            Direction::ToServer => PerDirection::new(list, &[]),
            Direction::ToClient => PerDirection::new(&[], list),
        })
    }

    fn files_mut(&mut self) -> Option<FilesMut<'_>> {
        let list = self.files.list.as_mut_slice();
        Some(match self.sender {
            Direction::ToServer => PerDirection::new(list, &mut []),
            Direction::ToClient => PerDirection::new(&mut [], list),
        })
    }

    fn log(&self, json: &mut JsonWriter, _options: &LogOptions, _in_alert: bool) {
        if !self.name.is_empty() {
            json.text("filename", &self.name);
        }
        if let Some(transfer) = self.transfer {
            json.str("command", transfer.name());
        }
    }
}

/// The parser of a data connection.
struct FtpDataParser {
    tx: Option<FtpDataTransaction>,
    work: Worklist,
    frames: Notes,
}

impl Parser for FtpDataParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        let Some(tx) = self.tx.as_mut() else { return Progress::Done };
        if tx.transfer.is_none() && tx.files.list.is_empty() {
            tx.sender = direction;
        }
        if direction != tx.sender || tx.done {
            return Progress::Done;
        }
        self.work.changed(0);
        if tx.transfer.is_none_or(Transfer::has_file) && tx.files.list.is_empty() {
            let mut files = FileContext {
                settings: context.files.clone(),
                strict: context.prevents,
                ..FileContext::default()
            };
            // The name was cut before.
            let _ = tx.files.open(&tx.name, &mut files);
        }
        tx.files.append(input.data);
        if input.eof {
            tx.finish(FileState::Closed);
        }
        Progress::Done
    }

    fn gap(&mut self, direction: Direction, missing: u64, _context: &mut ParseContext<'_>) -> bool {
        if let Some(tx) = self.tx.as_mut().filter(|tx| tx.sender == direction) {
            tx.files.gap(missing);
            self.work.changed(0);
        }
        true
    }

    single_transaction!();

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn held(&mut self) -> usize {
        size_of::<Self>().saturating_add(single_held(self.tx.as_mut(), &mut self.work))
    }

    fn end(&mut self, direction: Direction, _context: &mut ParseContext<'_>) {
        if let Some(tx) = self.tx.as_mut().filter(|tx| tx.sender == direction && !tx.done) {
            // The connection's own end came before, so that the rest of the file is missing.
            tx.finish(FileState::Truncated);
            self.work.changed(0);
        }
    }
}
