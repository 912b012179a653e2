// SPDX-License-Identifier: Apache-2.0
//! Carries out the requests of matches: the data plane marks files and transactions, and the writers of
//! records and files read the marks.

use crate::model::request::{Request, StoreFiles, StoreScope};
use crate::state::FlowRuleState;
use bartizan_applayer::file::FileTrack;
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_base::{Direction, PerDirection};
use bartizan_function::{AppView, RecordMark};

/// A request of a match on a transaction, until the transaction is accessible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRequest {
    pub tx: TxId,
    pub rule: u32,
    pub sid: u32,
    pub direction: Direction,
    pub request: Request,
}

/// Carries out a request. `matched`: whether the conditions of the rule on single files hold for a file.
pub(crate) fn carry_out(
    asked: &PendingRequest,
    tx: &dyn Transaction,
    state: &mut FlowRuleState,
    app: &mut AppView<'_>,
    matched: impl Fn(&FileTrack) -> bool,
) {
    let (id, direction) = (asked.tx, asked.direction);
    match asked.request {
        Request::DisableLogging => app.mark(RecordMark::Silent(id)),
        // This request is recorded in the flow's state, since a match on a packet counts as much as one on a
        // transaction (a TLS session has only one transaction).
        Request::StoreCertificates => {}
        Request::StoreFiles(StoreFiles { directions, scope }) => {
            let store = directions.is_none_or(|d| d[direction]) && scope == StoreScope::File;
            for (index, _) in tx.files_of(direction).iter().enumerate().filter(|(_, file)| matched(file)) {
                app.mark(RecordMark::FileMatched { tx: id, direction, index, sid: asked.sid, store });
            }
            let mut wanted = PerDirection::default();
            wanted[direction] = true;
            let wanted = directions.unwrap_or(wanted);
            match scope {
                StoreScope::File => {}
                StoreScope::Transaction => app.mark(RecordMark::StoreAllFiles { tx: id, directions: wanted }),
                StoreScope::Flow => {
                    state.store.to_server |= wanted.to_server;
                    state.store.to_client |= wanted.to_client;
                }
            }
        }
    }
}

/// Marks the files of a transaction for storage if the whole transaction or flow is to be stored.
pub(crate) fn mark_files(tx: &dyn Transaction, id: TxId, state: &FlowRuleState, app: &mut AppView<'_>) {
    let (of_flow, of_tx) = (state.store, tx.common().store);
    let directions =
        PerDirection::new(of_flow.to_server || of_tx.to_server, of_flow.to_client || of_tx.to_client);
    if directions.to_server || directions.to_client {
        app.mark(RecordMark::StoreFiles { tx: id, directions });
    }
}
