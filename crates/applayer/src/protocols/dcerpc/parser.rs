// SPDX-License-Identifier: Apache-2.0
//! The parser of a connection over TCP, or of a flow of datagrams.

use super::datagram::RpcDatagram;
use super::pdu::{self, RpcHead};
use super::tables::{INTERFACES_MAX, RpcConfig};
use super::tx::{Activity, RpcTransaction};
use crate::frames::{Notes, ProtocolFrameNote};
use crate::memory::{Held as _, allocated};
use crate::protocol::{Input, ParseContext, Parser, Progress, Transport};
use crate::rpc::{RpcInterface, RpcInterfaces};
use crate::transaction::{TxId, TxList, listed_transactions};
use bartizan_base::{Direction, PerDirection};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

const PDU_FRAME: u8 = 1;
const HEAD_FRAME: u8 = 2;
const DATA_FRAME: u8 = 3;

/// The parser of a flow.
pub(super) struct RpcParser {
    config: RpcConfig,
    txs: TxList<RpcTransaction>,
    /// Transactions over TCP by the number of their call, oldest first; some may be complete.
    calls: HashMap<u32, SmallVec<[TxId; 2]>>,
    interfaces: RpcInterfaces,
    /// Where messages begin is not known, after a gap.
    is_lost: PerDirection<bool>,
    frames: Notes,
}

/// The result of reading the front of the data.
enum RpcStep {
    /// Number of bytes that were consumed.
    Taken(usize),
    /// Number of bytes that are needed from here.
    Needs(usize),
    /// The data is no DCERPC.
    Invalid,
}

impl RpcParser {
    pub(super) fn new(config: RpcConfig) -> Self {
        RpcParser {
            config,
            txs: TxList::default(),
            calls: HashMap::new(),
            interfaces: RpcInterfaces::default(),
            is_lost: PerDirection::default(),
            frames: Notes::default(),
        }
    }

    /// Adds a transaction. Too many that are open end the oldest.
    fn push(&mut self, tx: RpcTransaction) -> TxId {
        if self.txs.len() >= self.config.max_tx {
            let oldest = self.txs.iter().find(|tx| tx.is_open()).map(|tx| tx.common.id);
            if let Some(tx) = oldest.and_then(|id| self.txs.get_mut(id)) {
                tx.done = PerDirection::new(true, true);
            }
            if self.txs.len() >= self.config.max_tx.saturating_mul(2) {
                self.free(self.txs.range().start);
            }
        }
        self.txs.push(tx)
    }

    /// Bytes of memory of the numbers of calls.
    fn calls_held(&self) -> usize {
        let entry = size_of::<(u32, SmallVec<[TxId; 2]>)>().saturating_add(1);
        allocated(self.calls.capacity().saturating_mul(entry))
    }

    /// Frees a transaction.
    fn free(&mut self, id: TxId) {
        if let Some(call) = self.txs.get(id).filter(|tx| tx.activity.is_none()).map(|tx| tx.call)
            && let Some(ids) = self.calls.get_mut(&call)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.calls.remove(&call);
            }
        }
        self.txs.free(id);
    }

    /// The open transaction of a call to which a message belongs, or a new one.
    fn of_call(&mut self, direction: Direction, head: &RpcHead) -> TxId {
        let other = direction.flip();
        let wanted = pdu::other_kind(head.kind);
        let ids = self.calls.get(&head.call).into_iter().flatten();
        let found = ids.filter_map(|id| self.txs.get(*id)).find(|tx| {
            let own = tx.kinds[direction];
            tx.is_open()
                // A later fragment is of the same kind.
                && own.is_none_or(|kind| kind == head.kind)
                && match tx.kinds[other] {
                    Some(kind) => wanted.is_none_or(|wanted| wanted == kind),
                    None => own.is_some(),
                }
        });
        if let Some(tx) = found {
            return tx.common.id;
        }
        let interfaces = Arc::clone(&self.interfaces);
        let tx = RpcTransaction {
            call: head.call,
            minor: head.minor,
            interfaces,
            is_little: head.is_little,
            ..RpcTransaction::default()
        };
        let id = self.push(tx);
        self.calls.entry(head.call).or_default().push(id);
        id
    }

    /// Handles a message.
    fn message(&mut self, direction: Direction, head: &RpcHead, body: &[u8]) -> Option<()> {
        let is_request = head.kind == pdu::REQUEST;
        match head.kind {
            pdu::BIND | pdu::ALTER_CONTEXT => {
                let asked = head.contexts(body)?;
                pdu::add_interfaces(&mut self.interfaces, asked, INTERFACES_MAX);
            }
            pdu::BIND_ACK | pdu::ALTER_CONTEXT_RESPONSE => {
                let results = head.results(body)?;
                pdu::acknowledge(&mut self.interfaces, head.call, &results);
            }
            pdu::REQUEST | pdu::RESPONSE | pdu::FAULT | pdu::BIND_NAK => {}
            // The others have no transaction.
            kind => return (kind <= pdu::LAST_KIND).then_some(()),
        }
        let request = if is_request { Some(head.request(body)?) } else { None };
        let (most, interfaces) = (self.config.stub, Arc::clone(&self.interfaces));
        let id = self.of_call(direction, head);
        let tx = self.txs.get_mut(id)?;
        tx.kinds[direction] = Some(head.kind);
        tx.done[direction] = true;
        tx.fragments[direction] = 1;
        if !matches!(head.kind, pdu::RESPONSE | pdu::FAULT) {
            tx.interfaces = interfaces;
        }
        if let Some(request) = request {
            (tx.context, tx.opnum) = (request.context, request.opnum);
            tx.add(direction, request.stub, most);
        } else if head.kind == pdu::RESPONSE {
            // As in Suricata, with the fields of the response.
            tx.add(direction, body, most);
        }
        Some(())
    }

    /// Reads the front of a stream.
    fn step(&mut self, direction: Direction, data: &[u8], at: u64) -> RpcStep {
        if self.is_lost[direction] {
            return self.resume(direction, data);
        }
        if data.len() < pdu::HEAD {
            return RpcStep::Needs(pdu::HEAD);
        }
        let Some(head) = RpcHead::read(data).filter(|head| head.length >= pdu::HEAD) else {
            return RpcStep::Invalid;
        };
        let Some(message) = data.get(..head.length) else { return RpcStep::Needs(head.length) };
        let (first, length) = (pdu::HEAD as u64, head.length as u64);
        let mut note = |kind, at, len| {
            self.frames.add(direction, ProtocolFrameNote::Whole { kind, at, len, tx: None });
        };
        note(HEAD_FRAME, at, first);
        note(PDU_FRAME, at, length);
        note(DATA_FRAME, at.saturating_add(first), length.saturating_sub(first));
        match self.message(direction, &head, message.get(pdu::HEAD..).unwrap_or_default()) {
            Some(()) => RpcStep::Taken(head.length),
            None => RpcStep::Invalid,
        }
    }

    /// Finds the next message after a gap.
    fn resume(&mut self, direction: Direction, data: &[u8]) -> RpcStep {
        let last = data.len().saturating_sub(pdu::HEAD);
        for at in memchr::memchr_iter(5, data).take_while(|at| *at <= last && data.len() >= pdu::HEAD) {
            let rest = data.get(at..).unwrap_or_default();
            let head = RpcHead::read(rest).filter(|head| head.length >= pdu::HEAD);
            if head.is_some_and(|head| head.kind <= pdu::LAST_KIND && head.minor == 0) {
                self.is_lost[direction] = false;
                return RpcStep::Taken(at);
            }
        }
        match data.len().saturating_sub(pdu::HEAD - 1) {
            0 => RpcStep::Needs(pdu::HEAD),
            passed => RpcStep::Taken(passed),
        }
    }

    /// Handles a datagram.
    fn datagram(&mut self, message: &RpcDatagram<'_>) -> bool {
        let direction = match message.kind {
            pdu::REQUEST => Direction::ToServer,
            pdu::RESPONSE => Direction::ToClient,
            _ => return false,
        };
        let activity = Activity { id: message.activity, sequence: message.sequence };
        let found = self.txs.iter().find(|tx| tx.activity == Some(activity) && !tx.done[direction]);
        let id = match found.map(|tx| tx.common.id) {
            Some(id) => id,
            None => {
                let interface = RpcInterface {
                    context: 0,
                    uuid: message.interface,
                    version: message.version,
                    minor: 0,
                    // There is nobody who could refuse it.
                    result: Some(0),
                    is_first: true,
                    call: 0,
                };
                self.push(RpcTransaction {
                    activity: Some(activity),
                    is_little: message.is_little,
                    opnum: message.opnum,
                    interfaces: Arc::new(vec![interface]),
                    ..RpcTransaction::default()
                })
            }
        };
        let most = self.config.stub;
        let Some(tx) = self.txs.get_mut(id) else { return false };
        tx.kinds[direction] = Some(message.kind);
        tx.fragments[direction] = tx.fragments[direction].saturating_add(1);
        tx.add(direction, message.stub, most);
        tx.done[direction] = message.is_last;
        true
    }
}

impl Parser for RpcParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        if context.transport == Transport::Udp {
            return match RpcDatagram::read(input.data) {
                Some(message) if self.datagram(&message) => Progress::Done,
                _ => Progress::Error,
            };
        }
        let mut consumed = 0usize;
        while let Some(rest) = input.data.get(consumed..).filter(|rest| !rest.is_empty()) {
            let at = input.offset.saturating_add(consumed as u64);
            match self.step(direction, rest, at) {
                RpcStep::Taken(count) => consumed = consumed.saturating_add(count),
                RpcStep::Needs(needed) => return Progress::Incomplete { consumed, needed },
                RpcStep::Invalid => return Progress::Error,
            }
        }
        Progress::Done
    }

    fn gap(&mut self, direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        self.is_lost[direction] = true;
        true
    }

    listed_transactions!(txs,);

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn held(&mut self) -> usize {
        size_of::<Self>()
            .saturating_add(self.txs.held())
            .saturating_add(self.interfaces.held())
            .saturating_add(self.calls_held())
    }

    fn end(&mut self, direction: Direction, _context: &mut ParseContext<'_>) {
        for id in self.txs.range() {
            if let Some(tx) = self.txs.get_mut(id) {
                tx.common.ended[direction] = true;
            }
        }
    }
}
