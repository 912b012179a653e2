// SPDX-License-Identifier: Apache-2.0
//! Transactions of DCERPC, and their records with Suricata's fields.

use super::pdu;
use super::tables::{COMPLETE, STUB};
use crate::memory::Held as _;
use crate::rpc::{RpcCall, RpcInterface, RpcInterfaces, RpcUuid};
use crate::transaction::{BufferQuery, BufferView, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, PerDirection};
use bartizan_events::JsonWriter;

/// Names of a call over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) id: RpcUuid,
    pub(super) sequence: u32,
}

/// A transaction.
#[derive(Debug, Default)]
pub(super) struct RpcTransaction {
    pub(super) common: TxCommon,
    pub(super) call: u32,
    /// Minor version of the protocol.
    pub(super) minor: u8,
    /// Kinds of the messages: of the client, of the server.
    pub(super) kinds: PerDirection<Option<u8>>,
    pub(super) done: PerDirection<bool>,
    pub(super) context: u16,
    pub(super) opnum: u16,
    pub(super) fragments: PerDirection<u32>,
    pub(super) stubs: PerDirection<Vec<u8>>,
    /// Length of the arguments and results, of which the first bytes are held.
    pub(super) sizes: PerDirection<u64>,
    pub(super) interfaces: RpcInterfaces,
    pub(super) is_little: bool,
    /// Over UDP.
    pub(super) activity: Option<Activity>,
}

impl RpcTransaction {
    /// Whether a message is still awaited.
    pub(super) const fn is_open(&self) -> bool {
        !(self.done.to_server && self.done.to_client)
    }

    /// Adds arguments or results.
    pub(super) fn add(&mut self, direction: Direction, stub: &[u8], most: usize) {
        self.sizes[direction] = self.sizes[direction].saturating_add(stub.len() as u64);
        let held = &mut self.stubs[direction];
        let room = most.saturating_sub(held.len());
        held.extend_from_slice(stub.get(..room).unwrap_or(stub));
    }

    /// Whether the record has an interface.
    fn is_shown(&self, interface: &RpcInterface) -> bool {
        match self.kinds.to_server {
            Some(pdu::REQUEST) => interface.context == self.context,
            Some(pdu::BIND) => interface.call == self.call,
            _ => false,
        }
    }

    fn stub(&self, direction: Direction, json: &mut JsonWriter) {
        json.num("frag_cnt", self.fragments[direction]);
        json.num("stub_data_size", self.sizes[direction]);
        json.end_object();
    }
}

impl Transaction for RpcTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        if self.done[direction] { COMPLETE } else { 0 }
    }

    fn buffer<'a>(&'a self, query: BufferQuery, _scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        let stub = &self.stubs[query.direction];
        (query.id == STUB && query.index == 0 && !stub.is_empty()).then(|| BufferView::whole(stub))
    }

    fn held(&self) -> usize {
        let stubs = self.stubs.to_server.held().saturating_add(self.stubs.to_client.held());
        // Others may have the same list: counted for each, since each may be the last to hold it.
        stubs.saturating_add(self.interfaces.held())
    }

    fn rpc(&self) -> Option<RpcCall<'_>> {
        let is_request = self.kinds.to_server == Some(pdu::REQUEST);
        Some(RpcCall {
            opnum: is_request.then_some(self.opnum),
            context: Some(self.context),
            interfaces: &self.interfaces,
            is_little: self.is_little,
        })
    }

    fn log(&self, json: &mut JsonWriter, _options: &LogOptions, _in_alert: bool) {
        let lost = |json: &mut JsonWriter, key: &str, kind: Option<u8>, is_done: bool, none: &str| match kind
            .filter(|_| is_done)
        {
            Some(kind) => json.str(key, &pdu::kind_name(kind)),
            None => json.str(key, none),
        };
        lost(json, "request", self.kinds.to_server, self.done.to_server, "REQUEST_LOST");
        if self.kinds.to_server == Some(pdu::REQUEST) && self.done.to_server {
            json.object("req");
            json.num("opnum", self.opnum);
            self.stub(Direction::ToServer, json);
        }
        if self.activity.is_none() && self.interfaces.iter().any(|it| self.is_shown(it)) {
            json.array("interfaces");
            for interface in self.interfaces.iter().filter(|it| self.is_shown(it)) {
                json.begin_object();
                json.str("uuid", &interface.uuid.to_string());
                json.str("version", &format!("{}.{}", interface.version, interface.minor));
                if let Some(result) = interface.result {
                    json.num("ack_result", result);
                }
                json.end_object();
            }
            json.end_array();
        }
        lost(json, "response", self.kinds.to_client, self.done.to_client, "UNREPLIED");
        if self.kinds.to_client == Some(pdu::RESPONSE) && self.done.to_client {
            json.object("res");
            self.stub(Direction::ToClient, json);
        }
        match &self.activity {
            Some(activity) => {
                json.str("activityuuid", &activity.id.to_string());
                json.num("seqnum", activity.sequence);
                json.str("rpc_version", "4.0");
            }
            None => {
                json.num("call_id", self.call);
                json.str("rpc_version", &format!("5.{}", self.minor));
            }
        }
    }
}
