// SPDX-License-Identifier: Apache-2.0
//! An envelope of SMTP with its message.

use super::log;
use super::tables::{
    COMPLETE, DATA, EMAIL_BODY_MD5, EMAIL_FIELDS, EMAIL_RECEIVED, EMAIL_URL, FIELDS, FILE_DATA, FILE_MAGIC,
    FILE_NAME, HELO, MAIL_FROM, RCPT_TO,
};
use crate::content::files::FileList;
use crate::content::mime::message::MailMessage;
use crate::event::EventCode;
use crate::file::FileState;
use crate::memory::{Held as _, allocated};
use crate::transaction::{BufferQuery, BufferView, Files, FilesMut, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, PerDirection};
use bartizan_events::JsonWriter;
use std::sync::Arc;

/// Limit of the recipients of an envelope that are kept (RFC 5321 section 4.5.3.1.8 asks for 100).
pub(super) const RECIPIENTS_MAX: usize = 1_024;

/// An envelope.
#[derive(Default)]
pub(super) struct SmtpTransaction {
    pub(super) common: TxCommon,
    /// The name of the client, if it has one.
    pub(super) helo: Option<Arc<[u8]>>,
    pub(super) mail_from: Option<Box<[u8]>>,
    pub(super) rcpt_to: Vec<Box<[u8]>>,
    /// Bytes of the texts of `rcpt_to`.
    recipient_bytes: usize,
    pub(super) message: Option<Box<MailMessage>>,
    pub(super) files: FileList,
    /// Size from which on rules see a file that is not complete.
    pub(super) inspect_min: u64,
    /// The server has refused the sender, or the client has given it up.
    pub(super) is_refused: bool,
    /// DATA was sent and not refused.
    pub(super) has_data: bool,
    pub(super) progress: PerDirection<u8>,
}

impl SmtpTransaction {
    /// An envelope of a client with this name.
    pub(super) fn new(helo: Option<Arc<[u8]>>) -> Self {
        SmtpTransaction { helo, ..SmtpTransaction::default() }
    }

    pub(super) fn event(&mut self, code: EventCode) {
        self.common.events.set(code);
    }

    /// Whether the envelope is over.
    pub(super) fn is_done(&self) -> bool {
        self.progress == PerDirection::new(COMPLETE, COMPLETE)
    }

    /// Whether the envelope has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.mail_from.is_some() || !self.rcpt_to.is_empty() || self.message.is_some() || self.has_data
    }

    /// Whether the client has sent the whole message, or given the envelope up.
    pub(super) fn is_sent(&self) -> bool {
        self.progress.to_server >= COMPLETE
    }

    /// The server has accepted DATA.
    pub(super) fn begin_data(&mut self) {
        for direction in Direction::BOTH {
            self.progress[direction] = self.progress[direction].max(DATA);
        }
    }

    /// Ends the message.
    pub(super) fn end_message(&mut self, state: FileState) {
        if let Some(message) = self.message.as_deref_mut() {
            message.finish(&mut self.files);
        }
        self.files.close(state);
    }

    /// Ends the envelope in both directions.
    pub(super) fn finish(&mut self) {
        self.end_message(FileState::Truncated);
        self.progress = PerDirection::new(COMPLETE, COMPLETE);
    }

    /// Adds a recipient. `false`: there are too many.
    pub(super) fn add_recipient(&mut self, recipient: &[u8]) -> bool {
        if self.rcpt_to.len() >= RECIPIENTS_MAX {
            return false;
        }
        self.recipient_bytes = self.recipient_bytes.saturating_add(allocated(recipient.len()));
        self.rcpt_to.push(recipient.into());
        true
    }

    /// A value of the message.
    fn email(&self, id: u16, index: usize) -> Option<&[u8]> {
        let message = self.message.as_deref()?;
        match id {
            EMAIL_URL => message.urls().get(index).map(Vec::as_slice),
            EMAIL_RECEIVED => message.values("received").nth(index),
            _ if index > 0 => None,
            EMAIL_BODY_MD5 => message.body_md5().map(str::as_bytes),
            _ => {
                let field = id.checked_sub(EMAIL_FIELDS).map(usize::from);
                message.values(field.and_then(|field| FIELDS.get(field))?).next()
            }
        }
    }
}

impl Transaction for SmtpTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        self.progress[direction]
    }

    fn buffer<'a>(&'a self, query: BufferQuery, _scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        let index = usize::try_from(query.index).ok()?;
        let value = match (query.id, index) {
            (HELO, 0) => self.helo.as_deref()?,
            (MAIL_FROM, 0) => self.mail_from.as_deref()?,
            (RCPT_TO, _) => self.rcpt_to.get(index)?,
            (HELO | MAIL_FROM, _) => return None,
            (FILE_DATA, _) => {
                let file = self.files.list.get(index)?;
                if file.state == FileState::Open && file.size < self.inspect_min {
                    return None;
                }
                let (data, offset) = file.content();
                return Some(BufferView { data, offset, complete: file.state != FileState::Open });
            }
            (FILE_NAME, _) => match index.checked_sub(self.files.list.len()) {
                None => &self.files.list.get(index)?.name,
                Some(beyond) => self.files.aliases.get(beyond)?,
            },
            (FILE_MAGIC, _) => self.files.list.get(index)?.magic()?.as_bytes(),
            (id, _) => self.email(id, index)?,
        };
        Some(BufferView::whole(value))
    }

    fn held(&self) -> usize {
        let helo = self.helo.as_ref().map_or(0, |helo| allocated(helo.len()));
        let from = self.mail_from.as_ref().map_or(0, |from| allocated(from.len()));
        let recipients = self.rcpt_to.held().saturating_add(self.recipient_bytes);
        let message = self
            .message
            .as_deref()
            .map_or(0, |message| message.held().saturating_add(size_of::<MailMessage>()));
        let envelope = helo.saturating_add(from).saturating_add(recipients);
        envelope.saturating_add(message).saturating_add(self.files.held())
    }

    fn files(&self) -> Option<Files<'_>> {
        Some(PerDirection::new(self.files.list.as_slice(), &[]))
    }

    fn files_mut(&mut self) -> Option<FilesMut<'_>> {
        Some(PerDirection::new(self.files.list.as_mut_slice(), &mut []))
    }

    fn log(&self, json: &mut JsonWriter, _options: &LogOptions, _in_alert: bool) {
        log::envelope(self, json);
    }

    fn log_beside(&self, json: &mut JsonWriter, options: &LogOptions) {
        if let Some(message) = self.message.as_deref() {
            log::email(message, json, options);
        }
    }
}
