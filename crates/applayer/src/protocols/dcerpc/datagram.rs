// SPDX-License-Identifier: Apache-2.0
//! Messages of connectionless DCERPC (C706 section 12.5).

use super::pdu::Order;
use super::tables::is_representation;
use crate::rpc::RpcUuid;

/// Length of the header.
const HEAD: usize = 80;
/// The message is a fragment of several.
const FRAGMENT: u8 = 4;
/// The message is the last fragment.
const LAST_FRAGMENT: u8 = 2;

/// A message.
#[derive(Clone, Copy, Debug)]
pub(super) struct RpcDatagram<'a> {
    pub(super) kind: u8,
    pub(super) is_little: bool,
    /// No further fragment of the message follows.
    pub(super) is_last: bool,
    pub(super) interface: RpcUuid,
    /// Major version of the interface.
    pub(super) version: u16,
    /// The call, with its number below.
    pub(super) activity: RpcUuid,
    pub(super) sequence: u32,
    pub(super) opnum: u16,
    pub(super) stub: &'a [u8],
}

impl<'a> RpcDatagram<'a> {
    /// Reads a message; `None`: it is none.
    pub(super) fn read(data: &'a [u8]) -> Option<Self> {
        let [4, kind, flags, more_flags, order, floats, ..] = *data else { return None };
        if more_flags & 0xfc != 0 || !is_representation(order, floats) {
            return None;
        }
        let is_little = order & 0x10 != 0;
        let order = Order { is_little };
        let length = usize::from(order.u16(data, 74)?);
        Some(RpcDatagram {
            kind,
            is_little,
            is_last: flags & FRAGMENT == 0 || flags & LAST_FRAGMENT != 0,
            interface: order.uuid(data.get(24..)?)?,
            version: (order.u32(data, 60)? & 0xffff) as u16,
            activity: order.uuid(data.get(40..)?)?,
            sequence: order.u32(data, 64)?,
            opnum: order.u16(data, 68)?,
            stub: data.get(HEAD..)?.get(..length)?,
        })
    }
}
