// SPDX-License-Identifier: Apache-2.0
//! Messages of connection-oriented DCERPC (C706 chapter 12, [MS-RPCE] section 2.2.2), in either byte order.

use crate::rpc::{RpcInterface, RpcInterfaces, RpcUuid};
use bartizan_base::Direction;
use std::sync::Arc;

/// Bytes of a message before its body.
pub(crate) const HEAD: usize = 16;

/// Kinds of messages.
pub(crate) const REQUEST: u8 = 0;
pub(crate) const RESPONSE: u8 = 2;
pub(crate) const FAULT: u8 = 3;
pub(crate) const BIND: u8 = 11;
pub(crate) const BIND_ACK: u8 = 12;
pub(crate) const BIND_NAK: u8 = 13;
pub(crate) const ALTER_CONTEXT: u8 = 14;
pub(crate) const ALTER_CONTEXT_RESPONSE: u8 = 15;
/// The last kind.
pub(crate) const LAST_KIND: u8 = 20;

/// The message is the first fragment of its kind and call.
const FIRST_FRAGMENT: u8 = 1;
/// The message is the last fragment.
const LAST_FRAGMENT: u8 = 2;

/// Names of the kinds.
const KINDS: [&str; 21] = [
    "REQUEST",
    "PING",
    "RESPONSE",
    "FAULT",
    "WORKING",
    "NOCALL",
    "REJECT",
    "ACK",
    "CL_CANCEL",
    "FACK",
    "CANCEL_ACK",
    "BIND",
    "BINDACK",
    "BINDNAK",
    "ALTER_CONTEXT",
    "ALTER_CONTEXT_RESP",
    "AUTH3",
    "SHUTDOWN",
    "CO_CANCEL",
    "ORPHANED",
    "RTS",
];

/// The name of a kind in records, or its number.
pub(crate) fn kind_name(kind: u8) -> String {
    KINDS.get(usize::from(kind)).map_or_else(|| kind.to_string(), |name| (*name).to_owned())
}

/// The kind of message that answers, or is answered by, a message of a kind; `None`: any.
pub(super) const fn other_kind(kind: u8) -> Option<u8> {
    match kind {
        REQUEST => Some(RESPONSE),
        RESPONSE | FAULT => Some(REQUEST),
        BIND_ACK | BIND_NAK => Some(BIND),
        ALTER_CONTEXT => Some(ALTER_CONTEXT_RESPONSE),
        ALTER_CONTEXT_RESPONSE => Some(ALTER_CONTEXT),
        _ => None,
    }
}

/// The first bytes of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RpcHead {
    pub(crate) minor: u8,
    pub(crate) kind: u8,
    flags: u8,
    pub(crate) is_little: bool,
    /// Length of the message with these bytes.
    pub(crate) length: usize,
    pub(crate) call: u32,
}

impl RpcHead {
    /// Reads the first bytes; `None`: there are too few, or this is not version 5 of the protocol.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let [5, minor @ (0 | 1), kind, flags, drep, _, _, _, length @ ..] = data else { return None };
        let is_little = drep & 0x10 != 0;
        let order = Order { is_little };
        Some(RpcHead {
            minor: *minor,
            kind: *kind,
            flags: *flags,
            is_little,
            length: order.u16(length, 0)?.into(),
            call: order.u32(length, 4)?,
        })
    }

    pub(crate) const fn is_first(&self) -> bool {
        self.flags & FIRST_FRAGMENT != 0
    }

    pub(crate) const fn is_last(&self) -> bool {
        self.flags & LAST_FRAGMENT != 0
    }

    /// The side that sends such a message; `None`: either.
    pub(super) const fn sender(&self) -> Option<Direction> {
        match self.kind {
            REQUEST | BIND | ALTER_CONTEXT => Some(Direction::ToServer),
            RESPONSE | FAULT | BIND_ACK | BIND_NAK | ALTER_CONTEXT_RESPONSE => Some(Direction::ToClient),
            _ => None,
        }
    }

    const fn order(&self) -> Order {
        Order { is_little: self.is_little }
    }

    /// The interfaces that BIND or ALTER_CONTEXT asks for. `body`: the bytes after the head.
    pub(crate) fn contexts(&self, body: &[u8]) -> Option<Vec<RpcInterface>> {
        let order = self.order();
        let count = *body.get(8)?;
        let mut rest = body.get(12..)?;
        let mut found = Vec::new();
        for _ in 0..count {
            let syntaxes = usize::from(*rest.get(2)?);
            found.push(RpcInterface {
                context: order.u16(rest, 0)?,
                uuid: order.uuid(rest.get(4..)?)?,
                version: order.u16(rest, 20)?,
                minor: order.u16(rest, 22)?,
                result: None,
                is_first: self.is_first(),
                call: self.call,
            });
            rest = rest.get(24..)?.get(syntaxes.saturating_mul(20)..)?;
        }
        Some(found)
    }

    /// Results of BIND_ACK or ALTER_CONTEXT_RESP, in the order of the interfaces.
    pub(crate) fn results(&self, body: &[u8]) -> Option<Vec<u16>> {
        let order = self.order();
        let address = usize::from(order.u16(body, 8)?);
        // The results begin at a multiple of four bytes.
        let at = address.saturating_add(10).next_multiple_of(4);
        let count = *body.get(at)?;
        let list = body.get(at.saturating_add(4)..)?;
        let results = list.chunks_exact(24).take(usize::from(count));
        let found: Vec<_> = results.filter_map(|entry| order.u16(entry, 0)).collect();
        (found.len() == usize::from(count)).then_some(found)
    }

    /// The fields of a request.
    pub(crate) fn request<'a>(&self, body: &'a [u8]) -> Option<RpcRequest<'a>> {
        let order = self.order();
        Some(RpcRequest { context: order.u16(body, 4)?, opnum: order.u16(body, 6)?, stub: body.get(8..)? })
    }
}

/// The fields of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RpcRequest<'a> {
    pub(crate) context: u16,
    pub(crate) opnum: u16,
    /// The bytes after the fields, with the object's UUID if there is one.
    pub(crate) stub: &'a [u8],
}

/// Byte order of a message.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) is_little: bool,
}

impl Order {
    pub(super) fn u16(self, data: &[u8], at: usize) -> Option<u16> {
        let bytes = data.get(at..)?.first_chunk::<2>()?;
        Some(if self.is_little { u16::from_le_bytes(*bytes) } else { u16::from_be_bytes(*bytes) })
    }

    pub(super) fn u32(self, data: &[u8], at: usize) -> Option<u32> {
        let bytes = data.get(at..)?.first_chunk::<4>()?;
        Some(if self.is_little { u32::from_le_bytes(*bytes) } else { u32::from_be_bytes(*bytes) })
    }

    /// A UUID, its bytes in the order of its text.
    pub(super) fn uuid(self, data: &[u8]) -> Option<RpcUuid> {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *data.first_chunk::<16>()?;
        let [i, j, k, l, m, n, o, p] = rest;
        Some(RpcUuid(if self.is_little {
            [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
        } else {
            [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
        }))
    }
}

/// Adds interfaces that a client has asked for, up to a number. Transactions have the list as it stood: it is
/// copied for a change only.
pub(crate) fn add_interfaces(interfaces: &mut RpcInterfaces, asked: Vec<RpcInterface>, most: usize) {
    let room = most.saturating_sub(interfaces.len());
    if room > 0 && !asked.is_empty() {
        Arc::make_mut(interfaces).extend(asked.into_iter().take(room));
    }
}

/// Adds the server's answers to the interfaces that it was asked for by a call.
pub(crate) fn acknowledge(interfaces: &mut RpcInterfaces, call: u32, results: &[u16]) {
    let asked = interfaces.iter().filter(|interface| interface.call == call);
    if asked.zip(results).all(|(interface, answer)| interface.result == Some(*answer)) {
        return;
    }
    let asked = Arc::make_mut(interfaces).iter_mut().filter(|interface| interface.call == call);
    for (interface, answer) in asked.zip(results) {
        interface.result = Some(*answer);
    }
}
