// SPDX-License-Identifier: Apache-2.0
//! A command of FTP with its replies.

use super::commands::{Announced, Transfer};
use super::tables::{
    COMMAND, COMMAND_DATA, COMPLETE, COMPLETION_CODE, DYNAMIC_PORT, MODE, REPLIES_MAX, REPLY, REPLY_RECEIVED,
};
use crate::memory::{Held as _, allocated};
use crate::protocol::NumberId;
use crate::transaction::{BufferQuery, BufferView, LogOptions, Transaction, TxCommon};
use bartizan_base::Direction;
use bartizan_events::JsonWriter;
use core::net::IpAddr;

/// Names of the modes in which data connections are opened, with the numbers that rules compare.
pub const MODES: &[(&str, u64)] = &[("active", 1), ("passive", 2)];

/// A line of a reply.
#[derive(Debug)]
pub(super) struct ReplyLine {
    text: Box<[u8]>,
    is_cut: bool,
}

impl ReplyLine {
    /// Completion code and text. A line without a code and a blank after it (`211-Features`) is all text.
    fn parts(&self) -> (Option<&[u8]>, &[u8]) {
        match self.text.split_at_checked(3) {
            Some((code, [b' ', text @ ..])) if code.iter().all(u8::is_ascii_digit) => (Some(code), text),
            _ => (None, &self.text),
        }
    }
}

/// A command with its replies, or replies without a known command.
#[derive(Debug, Default)]
pub struct FtpTransaction {
    pub(super) common: TxCommon,
    /// Name of the command.
    pub(super) command: Option<&'static str>,
    /// The text after the command and a blank.
    data: Box<[u8]>,
    is_cut: bool,
    replies: Vec<ReplyLine>,
    /// Bytes of the texts of `replies`.
    reply_bytes: usize,
    /// A final reply has come.
    pub(super) done: bool,
    /// The port of the data connection that command and reply have agreed on.
    pub(super) port: Option<u16>,
    /// The client has announced the port.
    pub(super) is_active: bool,
    /// The address and port that the command announces.
    pub(super) announced: Option<Announced>,
    /// The command's data connection is not expected yet.
    pub(super) transfer: Option<Transfer>,
}

impl FtpTransaction {
    /// A command; `line`: without its end and white space around it.
    pub(super) fn command(command: &'static str, line: &[u8], is_cut: bool) -> Self {
        let data = line.get(command.len().saturating_add(1)..).unwrap_or_default();
        FtpTransaction {
            command: Some(command),
            data: data.into(),
            is_cut,
            transfer: Transfer::of(command),
            ..FtpTransaction::default()
        }
    }

    /// The argument of the command.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Adds a line of a reply. `false`: there are too many, and it is left out.
    pub(super) fn add_reply(&mut self, text: &[u8], is_cut: bool) -> bool {
        if text.is_empty() {
            return true;
        }
        if self.reply_bytes.saturating_add(text.len()) > REPLIES_MAX {
            return false;
        }
        self.reply_bytes = self.reply_bytes.saturating_add(allocated(text.len()));
        self.replies.push(ReplyLine { text: text.into(), is_cut });
        true
    }

    /// Whether the command is one of those that agree on a data connection.
    fn agrees_on_a_port(&self) -> bool {
        matches!(self.command, Some("PORT" | "EPRT" | "PASV" | "EPSV"))
    }
}

impl Transaction for FtpTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, _direction: Direction) -> u8 {
        if self.done { COMPLETE } else { 0 }
    }

    fn buffer<'a>(&'a self, query: BufferQuery, _scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        let index = usize::try_from(query.index).ok()?;
        let value = match (query.id, index) {
            (COMMAND, 0) => self.command?.as_bytes(),
            (COMMAND_DATA, 0) if self.command.is_some() && !self.data.is_empty() => &self.data,
            (REPLY, _) => self.replies.get(index)?.parts().1,
            (COMPLETION_CODE, _) => self.replies.iter().filter_map(|line| line.parts().0).nth(index)?,
            _ => return None,
        };
        Some(BufferView::whole(value))
    }

    fn number(&self, id: NumberId, direction: Direction) -> Option<u64> {
        match id {
            DYNAMIC_PORT => self.port.map(u64::from),
            MODE => self.port.map(|_| if self.is_active { 1 } else { 2 }),
            REPLY_RECEIVED if direction == Direction::ToClient && self.command.is_some() => {
                Some(u64::from(self.done))
            }
            _ => None,
        }
    }

    fn announced_address(&self) -> Option<IpAddr> {
        self.announced?.address
    }

    fn held(&self) -> usize {
        allocated(self.data.len()).saturating_add(self.reply_bytes).saturating_add(self.replies.held())
    }

    fn log(&self, json: &mut JsonWriter, _options: &LogOptions, _in_alert: bool) {
        if let Some(command) = self.command {
            json.str("command", command);
            if !self.data.is_empty() {
                json.text("command_data", &self.data);
                json.bool("command_truncated", self.is_cut);
            }
        }
        let codes = || self.replies.iter().filter_map(|line| line.parts().0);
        if codes().next().is_some() {
            json.array("completion_code");
            codes().for_each(|code| json.item_text(code));
            json.end_array();
        }
        if !self.replies.is_empty() {
            json.array("reply");
            // As in Suricata, which makes text of replies only.
            self.replies.iter().for_each(|line| json.item_str(&String::from_utf8_lossy(line.parts().1)));
            json.end_array();
        }
        if let Some(port) = self.port {
            json.num("dynamic_port", port);
        }
        if self.agrees_on_a_port() {
            json.str("mode", if self.is_active { "active" } else { "passive" });
        }
        json.str("reply_received", if self.done { "yes" } else { "no" });
        json.bool("reply_truncated", self.replies.iter().any(|line| line.is_cut));
    }
}
