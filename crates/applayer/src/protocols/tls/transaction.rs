// SPDX-License-Identifier: Apache-2.0
//! The transaction of a TLS flow, for rules and records.

use super::certificate::Certificate;
use super::tx::{ClientState, TlsFlags, TlsTx};
use super::{buffers, events, log, version};
use crate::content::certificate::{CertificateView, Certificates, ShownCertificates, Storing};
use crate::memory::Held as _;
use crate::protocol::NumberId;
use crate::transaction::{BufferQuery, BufferView, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, PerDirection};
use bartizan_events::JsonWriter;

impl Transaction for TlsTx {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        match direction {
            Direction::ToServer if self.unheard => ClientState::InProgress as u8,
            Direction::ToServer => self.client as u8,
            Direction::ToClient => self.server as u8,
        }
    }

    fn buffer<'a>(&'a self, query: BufferQuery, scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        buffers::get(self, query, scratch).map(BufferView::whole)
    }

    fn number(&self, id: NumberId, direction: Direction) -> Option<u64> {
        let side = &self.sides[direction];
        let certificate = side.certificate.as_deref();
        match id {
            buffers::VERSION => (side.version != version::UNKNOWN).then_some(u64::from(side.version)),
            buffers::NOT_BEFORE => certificate.map(|c| c.not_before.cast_unsigned()),
            buffers::NOT_AFTER => certificate.map(|c| c.not_after.cast_unsigned()),
            buffers::CHAIN_LENGTH => {
                (self.progress(direction) >= buffers::CERTIFICATE).then_some(side.chain.len() as u64)
            }
            buffers::STATE => Some(u64::from(self.current.intersection(TlsFlags::STATE).bits())),
            buffers::ENCRYPTED => Some(u64::from(self.encrypted && !self.config.full_inspection())),
            _ => None,
        }
    }

    fn held(&self) -> usize {
        let sides = [&self.sides.to_server, &self.sides.to_client];
        sides.iter().fold(0, |sum: usize, side| {
            let certificate = side.certificate.as_deref().map_or(0, Certificate::held);
            let texts = side.session_id.held().saturating_add(side.server_name.held());
            let lists = side.hello.held().saturating_add(side.ja3.held()).saturating_add(side.chain.held());
            sum.saturating_add(certificate).saturating_add(texts).saturating_add(lists)
        })
    }

    fn certificates(&self) -> Option<CertificateView<'_>> {
        let PerDirection { to_server: client, to_client: server } = &self.sides;
        Some(CertificateView::new(PerDirection::new(client.storing, server.storing), self))
    }

    fn storing_mut(&mut self) -> Option<PerDirection<&mut Storing>> {
        let PerDirection { to_server: client, to_client: server } = &mut self.sides;
        Some(PerDirection::new(&mut client.storing, &mut server.storing))
    }

    fn log_ready(&self, _complete: PerDirection<u8>) -> bool {
        match self.worth {
            Some(worth) => worth,
            None => Direction::BOTH.iter().all(|d| self.common.ended[*d]) && self.worth_a_record(),
        }
    }

    fn records(&self, options: &LogOptions) -> usize {
        usize::from(log::wanted(self, options))
    }

    fn log(&self, json: &mut JsonWriter, options: &LogOptions, in_alert: bool) {
        log::write(self, json, options, in_alert);
    }
}

impl ShownCertificates for TlsTx {
    fn certificates_of(&self, side: Direction) -> Option<Certificates<'_>> {
        let side = &self.sides[side];
        let own = side.certificate.as_deref()?;
        Some(Certificates {
            subject: &own.subject,
            issuer: &own.issuer,
            fingerprint: &own.fingerprint,
            chain: side.chain.iter().collect(),
        })
    }
}

const _: () = assert!(events::NAMES.len() < crate::event::GENERIC_BASE as usize);
