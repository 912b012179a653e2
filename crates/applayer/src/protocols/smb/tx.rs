// SPDX-License-Identifier: Apache-2.0
//! Transactions: a request with its response, a file, or a remote procedure call.

use super::file::FileTransfer;
use super::handle::FileId;
use super::secblob::{Ntlm, Ticket};
use super::tables::{
    COMPLETE, FILE_DATA, FILE_MAGIC, FILE_NAME, NAMED_PIPE, NTLM_DOMAIN, NTLM_USER, RECORD_TYPES, SHARE,
    STUB, VERSION,
};
use crate::file::FileState;
use crate::memory::{Held, allocated};
use crate::protocol::NumberId;
use crate::protocols::dcerpc::pdu;
use crate::rpc::{RpcCall, RpcInterfaces};
use crate::transaction::{BufferQuery, BufferView, Files, FilesMut, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, PerDirection};
use bartizan_events::JsonWriter;
use std::sync::Arc;

/// The names of a message that its answer repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct MessageKey {
    pub(super) session: u64,
    pub(super) tree: u32,
    pub(super) message: u64,
}

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SmbStatus {
    /// A status of Windows NT.
    Nt(u32),
    /// A class and a code of DOS.
    Dos { class: u8, code: u16 },
}

/// The dialect that client and server have agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    #[default]
    Unknown,
    /// The name of a dialect of SMB1.
    Named(Arc<[u8]>),
    /// The number of a dialect of SMB2 or SMB3.
    Revision(u16),
}

/// A negotiation.
#[derive(Debug, Default)]
pub(super) struct Negotiation {
    /// Dialects of the client.
    pub(super) dialects: Vec<Vec<u8>>,
    pub(super) client: Option<[u8; 16]>,
    pub(super) server: Option<[u8; 16]>,
    pub(super) max_read: u32,
    pub(super) max_write: u32,
}

/// The software of a side, by its own words.
#[derive(Debug, Default)]
pub(super) struct NativeNames {
    pub(super) system: Vec<u8>,
    pub(super) manager: Vec<u8>,
}

/// A session setup.
#[derive(Debug, Default)]
pub(super) struct Login {
    pub(super) ntlm: Option<Ntlm>,
    pub(super) ticket: Option<Ticket>,
    pub(super) client: Option<NativeNames>,
    pub(super) server: Option<NativeNames>,
}

/// A connection to a share.
#[derive(Debug, Default)]
pub(super) struct TreeConnect {
    pub(super) name: Vec<u8>,
    pub(super) is_pipe: bool,
    pub(super) kind: u8,
    pub(super) asked: Vec<u8>,
    pub(super) given: Option<Vec<u8>>,
}

/// An opened file, directory or pipe.
#[derive(Debug, Default)]
pub(super) struct Opening {
    pub(super) name: Vec<u8>,
    pub(super) disposition: u32,
    pub(super) is_deleted: bool,
    pub(super) is_directory: bool,
    /// Seconds: created, accessed, modified, changed.
    pub(super) times: [u64; 4],
    pub(super) size: u64,
    pub(super) id: FileId,
}

/// A new name.
#[derive(Debug)]
pub(super) struct Renaming {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) id: FileId,
}

/// A request that a file is deleted when it is closed.
#[derive(Debug)]
pub(super) struct Disposition {
    pub(super) name: Vec<u8>,
    pub(super) is_deleted: bool,
    pub(super) id: FileId,
    /// The function of SMB1's TRANS2, or the class of SMB2's SET_INFO.
    pub(super) function: u16,
    /// Level of information.
    pub(super) level: u16,
}

/// A call in a pipe.
#[derive(Debug, Default)]
pub(super) struct PipeCall {
    pub(super) call: u32,
    pub(super) context: u16,
    pub(super) opnum: u16,
    pub(super) request: Option<u8>,
    pub(super) response: Option<u8>,
    pub(super) fragments: PerDirection<u32>,
    pub(super) stubs: PerDirection<Vec<u8>>,
    /// Length of the whole arguments, of which the first bytes are held.
    pub(super) sizes: PerDirection<u64>,
    pub(super) interfaces: RpcInterfaces,
    pub(super) is_little: bool,
}

/// The part of a transaction that depends on its command.
#[derive(Default)]
pub(super) enum Detail {
    #[default]
    None,
    Negotiation(Box<Negotiation>),
    Login(Box<Login>),
    Tree(Box<TreeConnect>),
    Opening(Box<Opening>),
    File(Box<FileTransfer>),
    Control(u32),
    Renaming(Box<Renaming>),
    Disposition(Box<Disposition>),
    Call(Box<PipeCall>),
}

/// A transaction.
#[derive(Default)]
pub(super) struct SmbTransaction {
    pub(super) common: TxCommon,
    /// 1, or 2 for SMB2 and SMB3.
    pub(super) version: u8,
    pub(super) command: u16,
    pub(super) status: Option<SmbStatus>,
    pub(super) key: MessageKey,
    pub(super) done: PerDirection<bool>,
    pub(super) dialect: Dialect,
    pub(super) detail: Detail,
}

impl SmbTransaction {
    /// Whether a response is awaited.
    pub(super) const fn is_open(&self) -> bool {
        !self.done.to_client
    }

    /// Ends the transaction with a status.
    pub(super) fn finish(&mut self, status: SmbStatus) {
        self.status = Some(status);
        self.done = PerDirection::new(true, true);
    }

    pub(super) const fn file(&self) -> Option<&FileTransfer> {
        match &self.detail {
            Detail::File(file) => Some(file),
            _ => None,
        }
    }

    pub(super) const fn file_mut(&mut self) -> Option<&mut FileTransfer> {
        match &mut self.detail {
            Detail::File(file) => Some(file),
            _ => None,
        }
    }

    pub(super) const fn call(&self) -> Option<&PipeCall> {
        match &self.detail {
            Detail::Call(call) => Some(call),
            _ => None,
        }
    }

    pub(super) const fn call_mut(&mut self) -> Option<&mut PipeCall> {
        match &mut self.detail {
            Detail::Call(call) => Some(call),
            _ => None,
        }
    }
}

/// Bytes that a boxed value takes.
const fn boxed<T>() -> usize {
    allocated(size_of::<T>())
}

impl Detail {
    /// The place of its kind among [`RECORD_TYPES`].
    const fn kind(&self) -> usize {
        match self {
            Detail::None => 0,
            Detail::Negotiation(_) => 1,
            Detail::Login(_) => 2,
            Detail::Tree(_) => 3,
            Detail::Opening(_) => 4,
            Detail::File(_) => 5,
            Detail::Control(_) => 6,
            Detail::Renaming(_) => 7,
            Detail::Disposition(_) => 8,
            Detail::Call(_) => 9,
        }
    }

    fn held(&self) -> usize {
        match self {
            Detail::None | Detail::Control(_) => 0,
            Detail::Negotiation(it) => it
                .dialects
                .iter()
                .fold(boxed::<Negotiation>().saturating_add(it.dialects.held()), |sum, dialect| {
                    sum.saturating_add(dialect.held())
                }),
            Detail::Login(it) => {
                let names = |names: &Option<NativeNames>| {
                    names.as_ref().map_or(0, |it| it.system.held().saturating_add(it.manager.held()))
                };
                boxed::<Login>()
                    .saturating_add(it.ntlm.held())
                    .saturating_add(it.ticket.held())
                    .saturating_add(names(&it.client))
                    .saturating_add(names(&it.server))
            }
            Detail::Tree(it) => boxed::<TreeConnect>()
                .saturating_add(it.name.held())
                .saturating_add(it.asked.held())
                .saturating_add(it.given.held()),
            Detail::Opening(it) => boxed::<Opening>().saturating_add(it.name.held()),
            Detail::File(it) => boxed::<FileTransfer>().saturating_add(it.held()),
            Detail::Renaming(it) => {
                boxed::<Renaming>().saturating_add(it.from.held()).saturating_add(it.to.held())
            }
            Detail::Disposition(it) => boxed::<Disposition>().saturating_add(it.name.held()),
            Detail::Call(it) => boxed::<PipeCall>()
                .saturating_add(it.stubs.to_server.held())
                .saturating_add(it.stubs.to_client.held())
                // Others may have the same list: counted for each, since each may be the last to hold it.
                .saturating_add(it.interfaces.held()),
        }
    }
}

impl Transaction for SmbTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        // The response says whether the name is that of a share or of pipes; until then it is of a share.
        let waits = matches!(self.detail, Detail::Tree(_)) && direction == Direction::ToServer;
        let is_done = self.done[direction] && (!waits || self.done.to_client);
        if is_done { COMPLETE } else { 0 }
    }

    fn buffer<'a>(&'a self, query: BufferQuery, _scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        match query.id {
            FILE_DATA | FILE_NAME | FILE_MAGIC => {
                let file = self.file()?.file(query.direction, query.index)?;
                return match query.id {
                    FILE_DATA => {
                        let (data, offset) = file.content();
                        Some(BufferView { data, offset, complete: file.state != FileState::Open })
                    }
                    FILE_NAME => Some(BufferView::whole(&file.name)),
                    _ => file.magic().map(|kind| BufferView::whole(kind.as_bytes())),
                };
            }
            _ if query.index > 0 => return None,
            _ => {}
        }
        let value = match (query.id, &self.detail) {
            (NAMED_PIPE, Detail::Tree(tree)) if tree.is_pipe => &tree.name,
            (SHARE, Detail::Tree(tree)) if !tree.is_pipe => &tree.name,
            (NTLM_USER, Detail::Login(login)) => &login.ntlm.as_ref()?.user,
            (NTLM_DOMAIN, Detail::Login(login)) => &login.ntlm.as_ref()?.domain,
            (STUB, Detail::Call(call)) if !call.stubs[query.direction].is_empty() => {
                &call.stubs[query.direction]
            }
            _ => return None,
        };
        Some(BufferView::whole(value))
    }

    fn number(&self, id: NumberId, _direction: Direction) -> Option<u64> {
        (id == VERSION).then_some(u64::from(self.version))
    }

    fn held(&self) -> usize {
        self.detail.held()
    }

    fn rpc(&self) -> Option<RpcCall<'_>> {
        let call = self.call()?;
        let is_request = call.request == Some(pdu::REQUEST);
        Some(RpcCall {
            opnum: is_request.then_some(call.opnum),
            // As in Suricata, any accepted interface of the connection.
            context: None,
            interfaces: &call.interfaces,
            is_little: call.is_little,
        })
    }

    fn files(&self) -> Option<Files<'_>> {
        let file = self.file()?;
        let list = file.files.list.as_slice();
        Some(match file.sender {
            Direction::ToServer => PerDirection::new(list, &[]),
            Direction::ToClient => PerDirection::new(&[], list),
        })
    }

    fn files_mut(&mut self) -> Option<FilesMut<'_>> {
        let file = self.file_mut()?;
        let list = file.files.list.as_mut_slice();
        Some(match file.sender {
            Direction::ToServer => PerDirection::new(list, &mut []),
            Direction::ToClient => PerDirection::new(&mut [], list),
        })
    }

    fn records(&self, options: &LogOptions) -> usize {
        let mut wanted = options.settings.children("types").peekable();
        let own = RECORD_TYPES.get(self.detail.kind()).copied();
        let is_own = |number: &str| options.settings.get(&format!("types.{number}")) == own;
        usize::from(wanted.peek().is_none() || wanted.any(is_own))
    }

    fn log(&self, json: &mut JsonWriter, _options: &LogOptions, _in_alert: bool) {
        super::log::write(self, json);
    }
}
