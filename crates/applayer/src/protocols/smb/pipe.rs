// SPDX-License-Identifier: Apache-2.0
//! Remote calls in pipes ([MS-RPCE] section 2.1.1.2): messages of DCERPC in what is written and read.

use super::handle::FileId;
use super::session::Session;
use super::tables::{INTERFACES_MAX, MALFORMED_DATA};
use super::tx::{Detail, MessageKey, PipeCall, SmbStatus, SmbTransaction};
use crate::protocols::dcerpc::pdu::{self, RpcHead};
use crate::rpc::RpcInterfaces;
use bartizan_base::{Direction, PerDirection};
use std::sync::Arc;

/// The message of SMB that carries a part of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carrier {
    pub(super) version: u8,
    pub(super) command: u16,
    pub(super) key: MessageKey,
    /// Request and response have one number (IOCTL): a response belongs to the call of its own request.
    pub(super) is_numbered: bool,
}

impl Carrier {
    /// Whether a transaction is the call of this number.
    fn carries(&self, tx: &SmbTransaction, call: u32) -> bool {
        tx.call().is_some_and(|it| it.call == call)
            && tx.key.session == self.key.session
            // An answer that comes later does not name its tree.
            && (if self.is_numbered { tx.key.message == self.key.message } else { tx.key.tree == self.key.tree })
    }
}

/// A message of DCERPC with the bytes after it.
struct RpcPart<'a> {
    head: RpcHead,
    /// The bytes after the head.
    body: &'a [u8],
    rest: &'a [u8],
}

/// The message at the front.
fn front(data: &[u8]) -> Option<RpcPart<'_>> {
    let head = RpcHead::read(data)?;
    let body = data.get(pdu::HEAD..)?;
    let length = head.length.checked_sub(pdu::HEAD)?;
    let (body, rest) = body.split_at_checked(length).unwrap_or((body, &[]));
    Some(RpcPart { head, body, rest })
}

/// Whether bytes look like a message of DCERPC.
pub(super) fn is_call(data: &[u8]) -> bool {
    front(data).is_some_and(|part| part.head.minor == 0 && part.head.kind <= pdu::LAST_KIND)
}

impl PipeCall {
    /// Adds arguments or results.
    fn add(&mut self, direction: Direction, stub: &[u8], most: usize) {
        self.fragments[direction] = self.fragments[direction].saturating_add(1);
        self.sizes[direction] = self.sizes[direction].saturating_add(stub.len() as u64);
        let held = &mut self.stubs[direction];
        let room = most.saturating_sub(held.len());
        held.extend_from_slice(stub.get(..room).unwrap_or(stub));
    }
}

impl Session {
    /// Handles bytes that the client writes into a pipe.
    pub(super) fn write_pipe(&mut self, carrier: Carrier, data: &[u8]) {
        let mut rest = data;
        loop {
            match front(rest) {
                Some(part) => {
                    self.write_part(carrier, &part);
                    rest = part.rest;
                }
                None if rest.len() == data.len() => return self.raise(MALFORMED_DATA),
                None => return,
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    fn write_part(&mut self, carrier: Carrier, part: &RpcPart<'_>) {
        let (head, most) = (&part.head, self.config.stub);
        if head.kind == pdu::REQUEST && !head.is_first() {
            let Some(request) = head.request(part.body) else { return self.raise(MALFORMED_DATA) };
            let is_open = |tx: &SmbTransaction| !tx.done.to_server && carrier.carries(tx, head.call);
            let Some(tx) = self.find(is_open) else { return };
            tx.done.to_server = head.is_last();
            if let Some(call) = tx.call_mut() {
                call.add(Direction::ToServer, request.stub, most);
            }
            return;
        }
        let mut call = PipeCall {
            call: head.call,
            request: Some(head.kind),
            is_little: head.is_little,
            ..PipeCall::default()
        };
        let (mut is_done, mut is_malformed) = (true, head.kind > pdu::LAST_KIND);
        match head.kind {
            pdu::REQUEST => match head.request(part.body) {
                Some(request) => {
                    (call.context, call.opnum) = (request.context, request.opnum);
                    call.add(Direction::ToServer, request.stub, most);
                    is_done = head.is_last();
                }
                None => is_malformed = true,
            },
            pdu::BIND | pdu::ALTER_CONTEXT => match head.contexts(part.body) {
                Some(asked) => {
                    if head.kind == pdu::BIND {
                        self.interfaces = RpcInterfaces::default();
                    }
                    pdu::add_interfaces(&mut self.interfaces, asked, INTERFACES_MAX);
                }
                None => is_malformed = true,
            },
            _ => {}
        }
        call.interfaces = Arc::clone(&self.interfaces);
        let id = self.request(carrier.version, carrier.command, carrier.key, Detail::Call(Box::new(call)));
        let Some(tx) = self.txs.get_mut(id) else { return };
        tx.done.to_server = is_done;
        if is_malformed {
            tx.common.events.set(MALFORMED_DATA);
        }
    }

    /// Handles bytes that the client has read from a pipe; `status`: that of the response.
    pub(super) fn read_pipe(&mut self, carrier: Carrier, file: FileId, status: u32, data: &[u8]) {
        const SUCCESS: u32 = 0;
        if status != SUCCESS && status != super::smb2::BUFFER_OVERFLOW {
            self.answer(carrier.version, carrier.command, carrier.key, SmbStatus::Nt(status), true);
            return;
        }
        let mut joined = self.parts.remove(&file).unwrap_or_default();
        let is_part = status == super::smb2::BUFFER_OVERFLOW;
        if is_part || !joined.is_empty() {
            let room = self.config.stub.saturating_sub(joined.len());
            joined.extend_from_slice(data.get(..room).unwrap_or(data));
        }
        if is_part {
            self.parts.insert(file, joined);
            return;
        }
        let data = if joined.is_empty() { data } else { joined.as_slice() };
        let mut rest = data;
        loop {
            match front(rest) {
                Some(part) => {
                    self.read_part(carrier, status, &part);
                    rest = part.rest;
                }
                None if rest.len() == data.len() => return self.raise(MALFORMED_DATA),
                None => return,
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    fn read_part(&mut self, carrier: Carrier, status: u32, part: &RpcPart<'_>) {
        let (head, most) = (&part.head, self.config.stub);
        let mut is_malformed = head.kind > pdu::LAST_KIND;
        if matches!(head.kind, pdu::BIND_ACK | pdu::ALTER_CONTEXT_RESPONSE) {
            match head.results(part.body) {
                Some(results) => pdu::acknowledge(&mut self.interfaces, head.call, &results),
                None => is_malformed = true,
            }
        }
        let interfaces = Arc::clone(&self.interfaces);
        let id = match self.find(|tx| carrier.carries(tx, head.call)) {
            Some(tx) => tx.common.id,
            None => {
                let call = PipeCall { call: head.call, is_little: head.is_little, ..PipeCall::default() };
                let detail = Detail::Call(Box::new(call));
                self.request(carrier.version, carrier.command, carrier.key, detail)
            }
        };
        let Some(tx) = self.txs.get_mut(id) else { return };
        tx.status = Some(SmbStatus::Nt(status));
        tx.done.to_client = head.kind != pdu::RESPONSE || head.is_last();
        tx.done.to_server |= tx.done.to_client;
        if let Some(call) = tx.call_mut() {
            call.response = Some(head.kind);
            match head.kind {
                pdu::RESPONSE => match part.body.get(8..) {
                    Some(stub) => call.add(Direction::ToClient, stub, most),
                    None => is_malformed = true,
                },
                pdu::BIND_ACK | pdu::ALTER_CONTEXT_RESPONSE => call.interfaces = interfaces,
                _ => {}
            }
        }
        if is_malformed {
            tx.common.events.set(MALFORMED_DATA);
        }
    }

    /// Ends the open transaction of a message. `ends_calls`: the answer also ends the call that the message
    /// carried; that of a WRITE says only that its bytes were taken.
    pub(super) fn answer(
        &mut self,
        version: u8,
        command: u16,
        key: MessageKey,
        status: SmbStatus,
        ends_calls: bool,
    ) -> bool {
        let is_wanted = |tx: &SmbTransaction| {
            tx.version == version
                && tx.command == command
                && tx.file().is_none()
                && (ends_calls || tx.call().is_none())
                && tx.key.session == key.session
                && (tx.key.tree == key.tree || key.tree == 0)
        };
        let Some(tx) = self.find_request(key.message, is_wanted) else { return false };
        tx.status = Some(status);
        if status != SmbStatus::Nt(super::smb2::PENDING) {
            tx.done = PerDirection::new(true, true);
        }
        true
    }
}
