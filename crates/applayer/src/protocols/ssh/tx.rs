// SPDX-License-Identifier: Apache-2.0
//! The transaction of an SSH flow.

use super::hassh::Hassh;
use super::{
    COMPLETE, ENCRYPTED, HASSH, HASSH_SERVER, HASSH_SERVER_STRING, HASSH_STRING, PROTO, SOFTWARE, SshConfig,
};
use crate::memory::Held as _;
use crate::protocol::NumberId;
use crate::transaction::{BufferQuery, BufferView, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, PerDirection};
use bartizan_events::JsonWriter;

/// Progress of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum SshState {
    /// The identification line has not come.
    #[default]
    InProgress,
    /// The end of a line that is too long has not come.
    BannerWaitEol,
    /// The identification line is complete; packets follow.
    BannerDone,
    /// SSH_MSG_NEWKEYS has come: what follows is encrypted.
    Finished,
}

/// Names of [`SshState`], of the client.
pub(super) const CLIENT_STATES: &[&str] =
    &["request_in_progress", "request_banner_wait_eol", "request_banner_done", "request_finished"];

/// Names of [`SshState`], of the server.
pub(super) const SERVER_STATES: &[&str] =
    &["response_in_progress", "response_banner_wait_eol", "response_banner_done", "response_finished"];

/// Data of one side; `to_server` is the client's.
#[derive(Debug, Default)]
pub(super) struct SshSide {
    pub(super) state: SshState,
    pub(super) version: Vec<u8>,
    pub(super) software: Vec<u8>,
    pub(super) hassh: Option<Hassh>,
}

impl SshSide {
    fn held(&self) -> usize {
        let hassh = self.hassh.as_ref().map_or(0, Hassh::held);
        self.version.held().saturating_add(self.software.held()).saturating_add(hassh)
    }

    fn log(&self, json: &mut JsonWriter, name: &str) {
        if self.version.is_empty() {
            return;
        }
        json.object(name);
        json.text("proto_version", &self.version);
        if !self.software.is_empty() {
            json.text("software_version", &self.software);
        }
        if let Some(hassh) = &self.hassh {
            json.object("hassh");
            json.str("hash", &hassh.hash);
            json.text("string", &hassh.text);
            json.end_object();
        }
        json.end_object();
    }
}

/// The transaction of an SSH flow.
#[derive(Debug)]
pub(super) struct SshTransaction {
    pub(super) common: TxCommon,
    pub(super) config: SshConfig,
    pub(super) sides: PerDirection<SshSide>,
    /// Encrypted payload was seen after both sides had taken their keys into use.
    pub(super) encrypted_seen: bool,
}

impl SshTransaction {
    pub(super) fn new(config: SshConfig) -> Self {
        SshTransaction {
            common: TxCommon::default(),
            config,
            sides: PerDirection::default(),
            encrypted_seen: false,
        }
    }

    /// Whether both sides have reached a state.
    fn are_at(&self, state: SshState) -> bool {
        Direction::BOTH.iter().all(|direction| self.sides[*direction].state >= state)
    }

    /// Whether all later bytes are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.are_at(SshState::Finished)
    }
}

/// A value that may not be there yet.
fn some(value: &[u8]) -> Option<&[u8]> {
    (!value.is_empty()).then_some(value)
}

impl Transaction for SshTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        self.sides[direction].state as u8
    }

    fn buffer<'a>(&'a self, query: BufferQuery, _scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        if query.index > 0 {
            return None;
        }
        let side = &self.sides[query.direction];
        let value = match (query.id, query.direction) {
            (PROTO, _) => some(&side.version),
            (SOFTWARE, _) => some(&side.software),
            (HASSH, Direction::ToServer) | (HASSH_SERVER, Direction::ToClient) => {
                side.hassh.as_ref().map(|hassh| hassh.hash.as_bytes())
            }
            (HASSH_STRING, Direction::ToServer) | (HASSH_SERVER_STRING, Direction::ToClient) => {
                side.hassh.as_ref().map(|hassh| hassh.text.as_slice())
            }
            _ => None,
        };
        value.map(BufferView::whole)
    }

    fn number(&self, id: NumberId, _direction: Direction) -> Option<u64> {
        (id == ENCRYPTED).then(|| u64::from(self.encrypted_seen && !self.config.full))
    }

    fn held(&self) -> usize {
        self.sides.to_server.held().saturating_add(self.sides.to_client.held())
    }

    fn log_ready(&self, _complete: PerDirection<u8>) -> bool {
        // With fingerprints the record waits for both of them, as in Suricata.
        let state = if self.config.hassh { SshState::Finished } else { SshState::BannerDone };
        self.are_at(state) || Direction::BOTH.iter().all(|direction| self.common.ended[*direction])
    }

    fn records(&self, _options: &LogOptions) -> usize {
        let sides = [&self.sides.to_server, &self.sides.to_client];
        usize::from(sides.iter().any(|side| !side.version.is_empty()))
    }

    fn log(&self, json: &mut JsonWriter, _options: &LogOptions, _in_alert: bool) {
        self.sides.to_server.log(json, "client");
        self.sides.to_client.log(json, "server");
    }
}

const _: () =
    assert!(CLIENT_STATES.len() == COMPLETE as usize + 1 && SERVER_STATES.len() == COMPLETE as usize + 1);
