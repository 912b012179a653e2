// SPDX-License-Identifier: Apache-2.0
//! Carrying out what matches ask for: files and transactions are marked, whoever writes records and files reads the marks.

use crate::engine::txstate::FlowDetect;
use crate::model::request::{Request, StoreFiles, StoreScope};
use crate::state::FlowState;
use bartizan_applayer::file::FileTrack;
use bartizan_applayer::protocol::Parser;
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_base::{Direction, PerDirection};

/// A request that waits for its transaction to be at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub tx: TxId,
    pub rule: u32,
    pub sid: u32,
    pub direction: Direction,
    pub request: Request,
}

/// Carries out a request. `matched`: whether the conditions of the rule on single files hold for a file.
pub(crate) fn carry_out(
    asked: &Asked,
    tx: &mut dyn Transaction,
    state: &mut FlowState,
    matched: impl Fn(&FileTrack) -> bool,
) {
    match asked.request {
        Request::DisableLogging => tx.common_mut().silent = true,
        // Asked of the flow: see `ask_for_certificates`.
        Request::StoreCertificates => {}
        Request::StoreFiles(StoreFiles { directions, scope }) => {
            for file in tx.files_mut(asked.direction).iter_mut().filter(|f| matched(f)) {
                file.note_rule(asked.sid);
                let here = directions.is_none_or(|d| d[asked.direction]);
                file.store |= here && scope == StoreScope::File;
            }
            let mut wanted = PerDirection::default();
            wanted[asked.direction] = true;
            let wanted = directions.unwrap_or(wanted);
            let keep = match scope {
                StoreScope::File => return,
                StoreScope::Transaction => &mut tx.common_mut().store,
                StoreScope::Flow => &mut state.store,
            };
            keep.to_server |= wanted.to_server;
            keep.to_client |= wanted.to_client;
        }
    }
}

/// Tells a flow's transactions whose certificates rules asked for. They are noted on the flow, since a match on a packet is as good
/// as one on a transaction: a TLS session has but one.
pub(crate) fn ask_for_certificates(parser: &mut dyn Parser, state: &mut FlowState, direction: Direction) {
    let asked = core::mem::take(&mut state.certificates);
    for id in parser.tx_range() {
        let Some(tx) = parser.tx_mut(id) else { continue };
        let mut new = false;
        for side in Direction::BOTH.into_iter().filter(|side| asked[*side]) {
            new |= tx.ask_for_certificates(side);
        }
        if new {
            // They may be there already: whoever stores them looks now.
            parser.worklist_mut().inspected(id, direction);
        }
    }
}

/// Marks the files of a transaction that are kept because all of it, or all of the flow, is.
pub(crate) fn mark_files(tx: &mut dyn Transaction, flow: &FlowDetect) {
    let (of_flow, of_tx) = (flow.state.store, tx.common().store);
    for direction in Direction::BOTH {
        if of_flow[direction] || of_tx[direction] {
            tx.files_mut(direction).iter_mut().for_each(|file| file.store = true);
        }
    }
}
