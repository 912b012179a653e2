// SPDX-License-Identifier: Apache-2.0
//! State of a TLS flow's one transaction: the messages and the progress of both sides.

use super::certificate::{Certificate, Chain};
use super::config::TlsParserConfig;
use super::hello::HelloFields;
use super::ja3::Ja3;
use super::version;
use crate::content::certificate::Storing;
use crate::event::EventCode;
use crate::transaction::TxCommon;
use bartizan_base::{Direction, PerDirection};
use std::sync::Arc;

bitflags::bitflags! {
    /// Messages and properties that were seen.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct TlsFlags: u32 {
        const CLIENT_HELLO = 1;
        const SERVER_HELLO = 1 << 1;
        const CLIENT_KEY_EXCHANGE = 1 << 2;
        const SERVER_KEY_EXCHANGE = 1 << 3;
        const CLIENT_CERTIFICATE_WANTED = 1 << 5;
        /// From either side.
        const CHANGE_CIPHER_SPEC = 1 << 6;
        const CLIENT_CHANGE_CIPHER_SPEC = 1 << 7;
        const SERVER_CHANGE_CIPHER_SPEC = 1 << 8;
        /// The client offered a resumption, or the server repeated its session id.
        const SESSION_RESUMED = 1 << 9;
        /// The client hello has the extension "supported versions".
        const VERSIONS_OFFERED = 1 << 10;
        /// TLS 1.3: a record is written although the certificate is not visible.
        const LOG_WITHOUT_CERTIFICATE = 1 << 11;
        const EARLY_DATA = 1 << 12;
        const HEARTBEAT_BY_CLIENT = 1 << 13;
        const HEARTBEAT_BY_SERVER = 1 << 14;
        const SSL2_CLIENT_HELLO = 1 << 15;
        const SSL2_SERVER_HELLO = 1 << 16;
        const SSL2_MASTER_KEY = 1 << 17;
        const SSL2_NO_SESSION = 1 << 18;
        const SSL2_CLIENT_ENCRYPTS = 1 << 19;
        const SSL2_SERVER_ENCRYPTS = 1 << 20;
        /// The server requested another client hello (HelloRetryRequest).
        const RETRY = 1 << 21;
    }
}

impl TlsFlags {
    /// Flags that the number `ssl.state` contains, as bits of the same value.
    pub(super) const STATE: TlsFlags = TlsFlags::CLIENT_HELLO
        .union(TlsFlags::SERVER_HELLO)
        .union(TlsFlags::CLIENT_KEY_EXCHANGE)
        .union(TlsFlags::SERVER_KEY_EXCHANGE);
}

/// Progress of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum ClientState {
    #[default]
    InProgress,
    HelloDone,
    CertificateDone,
    HandshakeDone,
    Finished,
}

/// Progress of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum ServerState {
    #[default]
    InProgress,
    Hello,
    CertificateDone,
    HelloDone,
    HandshakeDone,
    Finished,
}

/// Names of [`ClientState`].
pub(super) const CLIENT_STATES: &[&str] = &[
    "client_in_progress",
    "client_hello_done",
    "client_cert_done",
    "client_handshake_done",
    "client_finished",
];

/// Names of [`ServerState`].
pub(super) const SERVER_STATES: &[&str] = &[
    "server_in_progress",
    "server_hello",
    "server_cert_done",
    "server_hello_done",
    "server_handshake_done",
    "server_finished",
];

/// Data of one side; `to_server` is the client's.
#[derive(Debug, Default)]
pub(super) struct TlsSide {
    /// Version from the hello; before it, from the record.
    pub(super) version: u16,
    pub(super) random: Option<[u8; 32]>,
    pub(super) session_id: Vec<u8>,
    pub(super) server_name: Option<Vec<u8>>,
    pub(super) hello: HelloFields,
    pub(super) ja3: Ja3,
    /// The first certificate that could be read.
    pub(super) certificate: Option<Box<Certificate>>,
    pub(super) chain: Chain,
    pub(super) storing: Storing,
}

/// The transaction of a TLS flow.
#[derive(Debug)]
pub struct TlsTx {
    pub(super) common: TxCommon,
    pub(super) config: Arc<TlsParserConfig>,
    pub(super) sides: PerDirection<TlsSide>,
    pub(super) flags: TlsFlags,
    /// Flags of the last handshake message; none at the start of a record that begins a piece of data.
    pub(super) current: TlsFlags,
    pub(super) client: ClientState,
    pub(super) server: ServerState,
    /// The server's certificate came before the client's side advanced: its inspection is still due.
    pub(super) unheard: bool,
    /// Length of an encrypted heartbeat request without response.
    pub(super) heartbeat_length: usize,
    /// Encrypted payload was seen.
    pub(super) encrypted: bool,
    /// Whether a record is written; decided once, when the handshake is complete on both sides.
    pub(super) worth: Option<bool>,
}

/// The properties of a session that rules and records see besides the contents of its messages: equal before
/// and after data without such a message, if the data changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VisibleState {
    versions: (u16, u16),
    flags: TlsFlags,
    current: TlsFlags,
    states: (ClientState, ServerState, bool),
    encrypted: bool,
    worth: Option<bool>,
    events: usize,
    ended: PerDirection<bool>,
}

impl TlsTx {
    pub(super) fn visible_state(&self) -> VisibleState {
        VisibleState {
            versions: (self.sides.to_server.version, self.sides.to_client.version),
            flags: self.flags,
            current: self.current,
            states: (self.client, self.server, self.unheard),
            encrypted: self.encrypted,
            worth: self.worth,
            events: self.common.events.as_slice().len(),
            ended: self.common.ended,
        }
    }

    pub(super) fn new(config: Arc<TlsParserConfig>) -> Self {
        TlsTx {
            common: TxCommon::default(),
            config,
            sides: PerDirection::default(),
            flags: TlsFlags::default(),
            current: TlsFlags::default(),
            client: ClientState::default(),
            unheard: false,
            server: ServerState::default(),
            heartbeat_length: 0,
            encrypted: false,
            worth: None,
        }
    }

    pub(super) fn event(&mut self, code: EventCode) {
        self.common.events.set(code);
    }

    /// Advances the client to `state`; never goes back.
    pub(super) fn client_at(&mut self, state: ClientState) {
        self.client = self.client.max(state);
        self.unheard = false;
        self.decide();
    }

    /// Advances the server to `state`; never goes back.
    pub(super) fn server_at(&mut self, state: ServerState) {
        self.server = self.server.max(state);
        self.decide();
    }

    /// Finishes both sides.
    pub(super) fn finish(&mut self) {
        self.client_at(ClientState::Finished);
        self.server_at(ServerState::Finished);
    }

    /// Called at the end of a piece of data: the certificate of a side that was requested completes the
    /// handshake.
    pub(super) fn piece_done(&mut self, direction: Direction, prevents: bool) {
        // A broken hello counts as received. As in Suricata, prevention inspects its side with its next data.
        let heard = self.flags.contains(TlsFlags::CLIENT_HELLO);
        self.unheard &= !(heard && direction == Direction::ToServer);
        let side = if self.flags.contains(TlsFlags::CLIENT_CERTIFICATE_WANTED) {
            &self.sides.to_server
        } else {
            &self.sides.to_client
        };
        if side.certificate.is_some() {
            let silent = self.client == ClientState::InProgress && (prevents || !heard);
            let unheard = self.unheard || silent && direction == Direction::ToClient;
            self.client_at(ClientState::HandshakeDone);
            self.unheard = unheard;
            self.server_at(ServerState::HandshakeDone);
        }
    }

    fn decide(&mut self) {
        if self.worth.is_none()
            && self.client >= ClientState::HandshakeDone
            && self.server >= ServerState::HandshakeDone
        {
            self.worth = Some(self.worth_a_record());
        }
    }

    pub(super) fn worth_a_record(&self) -> bool {
        self.sides.to_client.certificate.is_some()
            || self.flags.intersects(TlsFlags::SESSION_RESUMED | TlsFlags::LOG_WITHOUT_CERTIFICATE)
    }

    /// Whether a record is written only because the session was resumed.
    pub(super) fn only_resumed(&self) -> bool {
        self.sides.to_client.certificate.is_none() && !self.flags.contains(TlsFlags::LOG_WITHOUT_CERTIFICATE)
    }

    /// Whether the session was resumed, as far as is visible.
    pub(super) fn resumed(&self) -> bool {
        self.flags.contains(TlsFlags::SESSION_RESUMED | TlsFlags::SERVER_HELLO) && self.only_resumed()
    }

    /// Whether a handshake record counts as encrypted by its place alone, as in Suricata.
    pub(super) fn is_behind_the_change(&self) -> bool {
        self.flags.contains(TlsFlags::CHANGE_CIPHER_SPEC)
            && !(self.flags.contains(TlsFlags::CLIENT_HELLO)
                && self.sides.to_server.version > version::TLS12
                && !self.flags.contains(TlsFlags::SERVER_HELLO))
    }
}
