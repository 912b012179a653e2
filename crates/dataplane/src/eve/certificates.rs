// SPDX-License-Identifier: Apache-2.0
//! Stored certificates: passed to the certificate store, which writes them.

use super::EveRecorder;
use super::head::flow_tuple;
use bartizan_base::Direction;
use bartizan_events::StoredChain;
use bartizan_stages::record::{Entry, EventContext, TxRecord};

impl EveRecorder {
    pub(super) fn store_certificates(
        &self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        side: Direction,
    ) {
        let (Some(store), Some(found)) =
            (&self.certificates, tx.tx.certificates().and_then(|view| view.due(side)))
        else {
            return;
        };
        store.store(StoredChain {
            of_client: side == Direction::ToServer,
            at: occasion.now,
            packet: occasion.number,
            tuple: flow_tuple(flow),
            subject: found.subject.to_owned(),
            issuer: found.issuer.to_owned(),
            fingerprint: found.fingerprint.to_owned(),
            chain: found.chain.into_iter().map(<[u8]>::to_vec).collect(),
        });
    }
}
