// SPDX-License-Identifier: Apache-2.0
//! The parser of a connection: commands and replies, line by line, and the lines of messages.

use super::config::SmtpConfig;
use super::replies::{AwaitedReplies, AwaitedReply};
use super::tables::{
    COMPLETE, DATA_COMMAND_REJECTED, DUPLICATE_FIELDS, FLOODED, INVALID_BDAT, INVALID_PIPELINED_SEQUENCE,
    INVALID_REPLY, MIME_INVALID_BASE64, MIME_INVALID_QP, MIME_LONG_BOUNDARY, MIME_LONG_ENC_LINE,
    MIME_LONG_FILENAME, MIME_LONG_HEADER_NAME, MIME_LONG_HEADER_VALUE, MIME_LONG_LINE, MIME_MALFORMED_MSG,
    NO_SERVER_WELCOME_MESSAGE, TLS_REJECTED, TRUNCATED_LINE, UNPARSABLE_CONTENT,
};
use super::tx::SmtpTransaction;
use crate::content::files::FileContext;
use crate::content::mime::message::{MailMessage, MessageLine, MessageOddities};
use crate::event::EventCode;
use crate::file::FileState;
use crate::frames::{Notes, ProtocolFrameNote};
use crate::memory::allocated;
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::protocols::first_line;
use crate::transaction::{TxId, TxList, listed_transactions};
use bartizan_base::{Direction, PerDirection};
use std::sync::Arc;

/// Length, in bytes, from which on a line of a command or a reply is cut, and one of a message is read in
/// pieces.
pub(super) const LINE_MAX: usize = 4_096;
/// Limit of the envelopes of a flow.
pub(super) const TX_MAX: usize = 256;
/// Name of the file of a whole message (`raw-extraction`), as in Suricata.
const RAW_NAME: &[u8] = b"rawmsg";

const COMMAND_FRAME: u8 = 1;
const DATA_FRAME: u8 = 2;
const REPLY_FRAME: u8 = 3;

/// The kind of the client's next bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ClientMode {
    #[default]
    Commands,
    /// Lines of a message, up to one with a dot alone.
    Message,
    /// Bytes of a chunk (BDAT).
    Chunk {
        /// Number of bytes that are left.
        left: u64,
        /// The message ends with this chunk.
        is_last: bool,
    },
}

/// A line, or a piece of one.
struct SmtpLine<'a> {
    text: &'a [u8],
    /// The end of the line; empty if it has not come yet.
    end: &'static [u8],
    /// Number of bytes.
    length: usize,
}

/// The front of a direction's data.
enum SmtpStep {
    /// This number of bytes was consumed.
    Taken(usize),
    /// This number of bytes was consumed; TLS follows.
    BeginsTls(usize),
    /// This number of bytes is no reply.
    Invalid(usize),
    /// Some receivers read a message here, others commands.
    Ambiguous,
    /// This number of bytes is needed.
    Needs(usize),
}

/// Events for what is odd in a message.
const ODDITIES: &[(MessageOddities, EventCode)] = &[
    (MessageOddities::INVALID_BASE64, MIME_INVALID_BASE64),
    (MessageOddities::INVALID_QP, MIME_INVALID_QP),
    (MessageOddities::LONG_LINE, MIME_LONG_LINE),
    (MessageOddities::LONG_ENCODED_LINE, MIME_LONG_ENC_LINE),
    (MessageOddities::LONG_HEADER_NAME, MIME_LONG_HEADER_NAME),
    (MessageOddities::LONG_HEADER_VALUE, MIME_LONG_HEADER_VALUE),
    (MessageOddities::LONG_BOUNDARY, MIME_LONG_BOUNDARY),
    (MessageOddities::LONG_FILE_NAME, MIME_LONG_FILENAME),
    (MessageOddities::TOO_MUCH, MIME_MALFORMED_MSG),
];

/// The parser of a connection.
pub(super) struct SmtpParser {
    config: Arc<SmtpConfig>,
    held: TxList<SmtpTransaction>,
    /// The envelope that commands belong to.
    current: Option<TxId>,
    helo: Option<Arc<[u8]>>,
    mode: ClientMode,
    /// DATA was sent; its reply decides whether a message follows.
    awaits_data: bool,
    /// The rest of the direction's line is skipped.
    skips: PerDirection<bool>,
    /// A piece of the client's line was read.
    is_within_line: bool,
    /// The line before, of a message, ended with CR LF.
    follows_crlf: bool,
    /// The frame of the message was noted.
    is_data_noted: bool,
    awaited: AwaitedReplies,
    greeted: bool,
    /// The server takes groups of commands.
    is_pipelining: bool,
    /// The server takes messages in chunks.
    is_chunking: bool,
    /// In prevention: a line of a message in chunks whose end has not come.
    chunk_line: Vec<u8>,
    /// In prevention: some receivers read the bytes in another way.
    is_ambiguous: bool,
    files: FileContext,
    frames: Notes,
}

impl SmtpParser {
    pub(super) fn new(config: Arc<SmtpConfig>) -> Self {
        SmtpParser {
            config,
            held: TxList::default(),
            current: None,
            helo: None,
            mode: ClientMode::default(),
            awaits_data: false,
            skips: PerDirection::default(),
            is_within_line: false,
            follows_crlf: true,
            is_data_noted: false,
            awaited: AwaitedReplies::default(),
            greeted: false,
            is_pipelining: false,
            is_chunking: false,
            chunk_line: Vec::new(),
            is_ambiguous: false,
            files: FileContext::default(),
            frames: Notes::default(),
        }
    }

    /// The current envelope, which is made if there is none.
    fn envelope(&mut self) -> Option<&mut SmtpTransaction> {
        let id = match self.current.filter(|id| self.held.get(*id).is_some()) {
            Some(id) => id,
            None => self.begin_envelope(),
        };
        self.held.get_mut(id)
    }

    fn begin_envelope(&mut self) -> TxId {
        let id = self.held.push(SmtpTransaction::new(self.helo.clone()));
        self.current = Some(id);
        if self.held.len() > TX_MAX {
            let oldest = self.held.range().start;
            self.held.free(oldest);
            self.event(FLOODED);
        }
        id
    }

    fn event(&mut self, code: EventCode) {
        if let Some(tx) = self.envelope() {
            tx.event(code);
        }
    }

    /// Whether the client has finished the current envelope.
    fn is_sent(&self) -> bool {
        self.current.is_some_and(|id| self.held.get(id).is_none_or(SmtpTransaction::is_sent))
    }

    /// Whether the server's side is not in sight: its replies decide nothing.
    fn is_server_unseen(&self) -> bool {
        self.held.worklist().unseen().to_client
    }

    /// Records that some receivers read the bytes in another way: prevention refuses the flow.
    fn disagree(&mut self) {
        if self.files.strict {
            self.is_ambiguous = true;
            self.event(UNPARSABLE_CONTENT);
        }
    }

    /// Handles a command.
    fn command(&mut self, line: &[u8], is_cut: bool) {
        // Receivers pass over blanks before a command and within it.
        let line = if self.files.strict { line.trim_ascii_start() } else { line };
        if self.files.strict && first_line::FTP.is_foreign_to(&first_line::SMTP, line) {
            self.disagree();
        }
        let verb = SmtpVerb::of(line, self.files.strict);
        let ends = matches!(verb, SmtpVerb::Reset | SmtpVerb::Quit);
        if self.current.is_none() || self.is_sent() && !ends {
            self.begin_envelope();
        }
        if is_cut {
            self.event(TRUNCATED_LINE);
            // The text that rules look for may be in the rest.
            if matches!(verb, SmtpVerb::Hello(_) | SmtpVerb::Mail(_) | SmtpVerb::Recipient(_)) {
                self.disagree();
            }
        }
        if let SmtpVerb::Mail(address) | SmtpVerb::Recipient(address) = verb
            && has_needless_escape(address)
        {
            self.disagree();
        }
        if !self.greeted {
            self.event(NO_SERVER_WELCOME_MESSAGE);
        }
        let tx = self.current.unwrap_or_default();
        let awaited = match verb {
            SmtpVerb::StartTls => AwaitedReply::StartTls,
            SmtpVerb::Data => self.data_command(),
            SmtpVerb::Chunk(arguments) => self.bdat_command(arguments, tx),
            SmtpVerb::Hello(name) => self.helo_command(name, tx),
            SmtpVerb::Mail(sender) => self.mail_command(sender),
            SmtpVerb::Recipient(recipient) => {
                if self.envelope().is_some_and(|tx| !tx.add_recipient(recipient)) {
                    self.event(FLOODED);
                    self.disagree();
                }
                AwaitedReply::Other
            }
            SmtpVerb::Reset | SmtpVerb::Quit => {
                // A new sender may follow in the same group (RFC 2920 section 3.1).
                if let Some(tx) = self.current.and_then(|id| self.held.get_mut(id)) {
                    tx.is_refused = true;
                }
                AwaitedReply::Ends { tx, digit: b'2' }
            }
            SmtpVerb::Other => AwaitedReply::Other,
        };
        if self.awaited.push(awaited) {
            self.event(INVALID_PIPELINED_SEQUENCE);
        }
    }

    fn mail_command(&mut self, from: &[u8]) -> AwaitedReply {
        let strict = self.files.strict;
        let known = self.envelope().filter(|tx| tx.mail_from.is_some()).map(|tx| tx.is_refused);
        if let Some(is_refused) = known {
            self.event(DUPLICATE_FIELDS);
            if !strict {
                return AwaitedReply::Other;
            }
            // A server takes one of the two; after a refusal, or a RSET, that is the second.
            if !is_refused {
                self.disagree();
                return AwaitedReply::Other;
            }
            self.end_envelope(self.current);
            self.begin_envelope();
        }
        let Some(tx) = self.envelope() else { return AwaitedReply::Other };
        tx.mail_from = Some(from.into());
        AwaitedReply::Sender(tx.common.id)
    }

    fn helo_command(&mut self, name: &[u8], id: TxId) -> AwaitedReply {
        if self.helo.is_some() {
            // A new EHLO ends the envelope as RSET does (RFC 5321 section 4.1.4).
            let Some(tx) = self.envelope() else { return AwaitedReply::Other };
            tx.event(DUPLICATE_FIELDS);
            let has_begun = tx.has_begun();
            if self.files.strict && self.helo.as_deref() != Some(name) {
                // Rules see each name: as that of an envelope of its own.
                self.helo = Some(name.into());
                self.end_envelope(Some(id));
                self.begin_envelope();
                return AwaitedReply::Other;
            }
            return if has_begun { AwaitedReply::Ends { tx: id, digit: b'2' } } else { AwaitedReply::Other };
        }
        let helo: Arc<[u8]> = name.into();
        self.helo = Some(Arc::clone(&helo));
        if let Some(tx) = self.envelope() {
            tx.helo = Some(helo);
        }
        AwaitedReply::Other
    }

    fn data_command(&mut self) -> AwaitedReply {
        let config = Arc::clone(&self.config);
        let (is_pipelining, strict) = (self.is_pipelining, self.files.strict);
        let Some(tx) = self.envelope() else { return AwaitedReply::Data };
        if tx.has_data {
            tx.event(UNPARSABLE_CONTENT);
            return AwaitedReply::Data;
        }
        tx.has_data = true;
        if config.decode_mime {
            let message = MailMessage::new(Arc::clone(&config.message), strict);
            tx.message = Some(Box::new(message));
        }
        self.awaits_data = true;
        if is_pipelining && !strict {
            // The message may follow at once, as in Suricata.
            self.begin_message();
        }
        AwaitedReply::Data
    }

    /// Begins to read a message.
    fn begin_message(&mut self) {
        if !core::mem::take(&mut self.awaits_data) {
            return;
        }
        self.mode = ClientMode::Message;
        self.is_within_line = false;
        self.follows_crlf = true;
        self.is_data_noted = false;
        let is_raw = self.config.raw_extraction;
        // What waited in prevention would have left.
        let inspect_min = if self.files.strict { 0 } else { self.config.inspect_min };
        let Some(id) = self.current else { return };
        let Some(tx) = self.held.get_mut(id) else { return };
        tx.begin_data();
        tx.inspect_min = inspect_min;
        if is_raw {
            let _ = tx.files.open(RAW_NAME, &mut self.files);
        }
    }

    fn bdat_command(&mut self, arguments: &[u8], tx: TxId) -> AwaitedReply {
        let mut words = arguments.split(|byte| *byte == b' ').filter(|w| !w.is_empty());
        let digits = words.next().filter(|word| word.iter().all(u8::is_ascii_digit) || !self.files.strict);
        let size = digits.and_then(|word| core::str::from_utf8(word).ok()?.parse::<u64>().ok());
        let last = words.next();
        let is_last = last.is_some_and(|word| word.eq_ignore_ascii_case(b"last"));
        let (Some(left), true, None) = (size, last.is_none() || is_last, words.next()) else {
            self.event(INVALID_BDAT);
            self.disagree();
            return AwaitedReply::Other;
        };
        // For a server without chunks the bytes are commands (RFC 3030 section 3).
        if !self.is_chunking && !self.is_server_unseen() {
            self.disagree();
        }
        let config = Arc::clone(&self.config);
        let strict = self.files.strict;
        if let Some(tx) = self.envelope() {
            let begins = !tx.has_data;
            tx.has_data = true;
            tx.begin_data();
            if strict && begins {
                if config.decode_mime {
                    tx.message = Some(Box::new(MailMessage::new(Arc::clone(&config.message), strict)));
                }
                self.begin_chunks();
            }
        }
        self.mode = ClientMode::Chunk { left, is_last };
        self.end_chunk();
        if is_last { AwaitedReply::Ends { tx, digit: 0 } } else { AwaitedReply::Other }
    }

    /// Begins to read a message in chunks, as prevention does.
    fn begin_chunks(&mut self) {
        self.chunk_line.clear();
        self.is_within_line = false;
        let is_raw = self.config.raw_extraction;
        if let Some(tx) = self.current.and_then(|id| self.held.get_mut(id))
            && is_raw
        {
            let _ = tx.files.open(RAW_NAME, &mut self.files);
        }
    }

    /// Leaves a chunk that is complete.
    fn end_chunk(&mut self) {
        let ClientMode::Chunk { left: 0, is_last } = self.mode else { return };
        if is_last && self.files.strict {
            let rest = core::mem::take(&mut self.chunk_line);
            if !rest.is_empty() {
                self.content_line(&SmtpLine { text: &rest, end: b"", length: rest.len() });
            }
            self.end_content();
        }
        self.mode = ClientMode::Commands;
        if is_last && let Some(tx) = self.envelope() {
            tx.progress.to_server = COMPLETE;
        }
    }

    /// Reads bytes of a chunk; returns their number. Passive mode skips them, as Suricata does.
    fn chunk(&mut self, data: &[u8]) -> usize {
        let ClientMode::Chunk { left, is_last } = self.mode else { return 0 };
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
        if self.files.strict {
            self.chunk_lines(data.get(..length).unwrap_or_default());
        }
        self.mode = ClientMode::Chunk { left: left.saturating_sub(length as u64), is_last };
        self.end_chunk();
        length
    }

    /// Reads the lines of a message in chunks; a line may lie in several chunks.
    fn chunk_lines(&mut self, data: &[u8]) {
        let mut bytes = core::mem::take(&mut self.chunk_line);
        bytes.extend_from_slice(data);
        let mut at = 0usize;
        while let Some(line) = bytes.get(at..).and_then(|rest| self.line(rest)) {
            at = at.saturating_add(line.length);
            self.content_line(&line);
        }
        bytes.drain(..at.min(bytes.len()));
        self.chunk_line = bytes;
    }

    /// Hands a line of content, or a piece of one, to the message.
    fn content_line(&mut self, line: &SmtpLine<'_>) {
        let is_first = !core::mem::replace(&mut self.is_within_line, line.end.is_empty());
        self.content(line.text, line.end, is_first);
    }

    /// Hands content to the message.
    fn content(&mut self, text: &[u8], end: &'static [u8], is_first: bool) {
        let Some(tx) = self.current.and_then(|id| self.held.get_mut(id)) else { return };
        let SmtpTransaction { message, files, .. } = &mut *tx;
        let mut differs = false;
        match message.as_deref_mut() {
            Some(message) => {
                message.line(MessageLine { text, end, is_first }, files, &mut self.files);
                differs = message.differs();
            }
            None => {
                files.append(text);
                files.append(end);
            }
        }
        raise(tx);
        if differs {
            tx.event(MIME_MALFORMED_MSG);
            self.is_ambiguous = true;
        }
    }

    /// Ends the content of a message.
    fn end_content(&mut self) {
        let Some(tx) = self.current.and_then(|id| self.held.get_mut(id)) else { return };
        tx.end_message(FileState::Closed);
        let differs = tx.message.as_deref().is_some_and(MailMessage::differs);
        raise(tx);
        if differs {
            tx.event(MIME_MALFORMED_MSG);
            self.is_ambiguous = true;
        }
    }

    /// Handles a line of a message, or a piece of one.
    fn message_line(&mut self, line: &SmtpLine<'_>) {
        let is_first = !self.is_within_line;
        self.is_within_line = line.end.is_empty();
        // Some receivers take a carriage return for the end of a line.
        let hides_end = self.files.strict && hides_dot(line);
        let is_proper = self.follows_crlf && line.text == b"." && line.end == b"\r\n";
        self.follows_crlf = line.end == b"\r\n";
        let Some(tx) = self.current.and_then(|id| self.held.get_mut(id)) else {
            self.mode = ClientMode::Commands;
            return;
        };
        // A line with a dot alone ends the message between line ends of CR LF (RFC 5321 section 2.3.8); some
        // receivers take others for the same.
        if hides_end || self.files.strict && is_first && !is_proper && is_dot_alone(line) {
            return self.disagree();
        }
        if is_first && line.text == b"." && !line.end.is_empty() {
            tx.progress.to_server = COMPLETE;
            let id = tx.common.id;
            self.end_content();
            self.mode = ClientMode::Commands;
            if self.awaited.push(AwaitedReply::Ends { tx: id, digit: 0 }) {
                self.event(INVALID_PIPELINED_SEQUENCE);
            }
            return;
        }
        // Of a dot at the beginning that hides another text (RFC 5321 section 4.5.2).
        let hidden = is_first.then(|| line.text.strip_prefix(b".")).flatten();
        let text = hidden.unwrap_or(line.text);
        self.content(text, line.end, is_first);
    }

    /// Handles a line of a reply. Returns whether TLS begins after it; `None`: it is no reply.
    fn reply(&mut self, line: &[u8], is_cut: bool) -> Option<bool> {
        if line.is_empty() {
            return Some(false);
        }
        if is_cut {
            self.event(TRUNCATED_LINE);
        }
        let strict = self.files.strict;
        let code = line.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit));
        let Some(code) = code.filter(|_| matches!(line.get(3), None | Some(b' ' | b'-' | b'\t'))) else {
            self.event(INVALID_REPLY);
            return None;
        };
        if !CODES.contains(&code) {
            self.event(INVALID_REPLY);
            // The client takes any code for a reply.
            if !strict {
                return None;
            }
        }
        let has_more = line.get(3) == Some(&b'-');
        if strict && code == b"354" {
            // Nothing else has this reply: whatever other replies were missed, the message follows. A server
            // that has found a DATA in other bytes reads a message in them.
            if self.awaits_data {
                self.awaited.drop_before_data();
            } else {
                self.disagree();
            }
        }
        let Some(awaited) = self.awaited.front() else {
            if !self.greeted && !has_more {
                self.greeted = true;
                if code != b"220" {
                    self.event(INVALID_REPLY);
                }
            }
            return Some(false);
        };
        self.greeted = true;
        if code == b"250" {
            let offers = |name: &str| {
                line.get(4..).is_some_and(|text| text.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
            };
            self.is_pipelining |= offers("pipelining");
            self.is_chunking |= offers("chunking");
        }
        if has_more {
            return Some(false);
        }
        self.awaited.pop();
        match awaited {
            AwaitedReply::StartTls if code == b"220" => {
                self.end_envelope(self.current);
                return Some(true);
            }
            AwaitedReply::StartTls => self.event(TLS_REJECTED),
            AwaitedReply::Data if code == b"354" => self.begin_message(),
            AwaitedReply::Data => self.reject_data(),
            AwaitedReply::Ends { tx, digit } if digit == 0 || code.first() == Some(&digit) => {
                self.end_envelope(Some(tx));
            }
            AwaitedReply::Sender(tx) => {
                if let Some(tx) = self.held.get_mut(tx) {
                    tx.is_refused |= matches!(code.first(), Some(b'4' | b'5'));
                }
            }
            AwaitedReply::Ends { .. } | AwaitedReply::Other => {}
        }
        Some(false)
    }

    /// Handles a server that takes no message.
    fn reject_data(&mut self) {
        self.awaits_data = false;
        if self.mode == ClientMode::Message {
            self.mode = ClientMode::Commands;
        }
        if let Some(tx) = self.envelope() {
            tx.event(DATA_COMMAND_REJECTED);
            tx.end_message(FileState::Truncated);
            tx.has_data = false;
        }
    }

    /// Ends an envelope, unless it is over.
    fn end_envelope(&mut self, id: Option<TxId>) {
        if let Some(tx) = id.and_then(|id| self.held.get_mut(id)).filter(|tx| !tx.is_done()) {
            tx.finish();
        }
    }

    /// Reads the line, or the piece of one, at the front of a direction's data. `None`: more is needed.
    fn line<'a>(&self, data: &'a [u8]) -> Option<SmtpLine<'a>> {
        let end = memchr::memchr(b'\n', data.get(..LINE_MAX).unwrap_or(data));
        match end {
            Some(end) => {
                let text = data.get(..end).unwrap_or_default();
                let length = end.saturating_add(1);
                Some(match text.strip_suffix(b"\r") {
                    Some(text) => SmtpLine { text, end: b"\r\n", length },
                    None => SmtpLine { text, end: b"\n", length },
                })
            }
            None if data.len() >= LINE_MAX => {
                let text = data.get(..LINE_MAX).unwrap_or(data);
                // In a message a carriage return at the cut belongs to the end of the line.
                let kept = text.strip_suffix(b"\r").filter(|_| self.mode != ClientMode::Commands);
                let text = kept.unwrap_or(text);
                Some(SmtpLine { text, end: b"", length: text.len() })
            }
            None => None,
        }
    }

    /// Reads the front of a direction's data.
    fn step(&mut self, direction: Direction, data: &[u8], at: u64) -> SmtpStep {
        if direction == Direction::ToServer && matches!(self.mode, ClientMode::Chunk { .. }) {
            return SmtpStep::Taken(self.chunk(data));
        }
        if self.skips[direction] {
            let end = memchr::memchr(b'\n', data);
            self.skips[direction] = end.is_none();
            return SmtpStep::Taken(end.map_or(data.len(), |end| end.saturating_add(1)));
        }
        let Some(line) = self.line(data) else { return SmtpStep::Needs(data.len().saturating_add(1)) };
        let is_cut = line.end.is_empty();
        if direction == Direction::ToServer && self.awaits_data && self.files.strict {
            // The client has to wait for the reply (RFC 2920 section 3.1). Without it the server may read
            // what follows as a message or as commands. Where its side is not in sight, it is a message.
            if !self.is_server_unseen() {
                self.disagree();
                return SmtpStep::Ambiguous;
            }
            self.begin_message();
        }
        if direction == Direction::ToServer && self.mode == ClientMode::Message {
            if !core::mem::replace(&mut self.is_data_noted, true) {
                self.frames
                    .add(direction, ProtocolFrameNote::Begin { kind: DATA_FRAME, at, tx: self.current });
            }
            self.message_line(&line);
            if self.mode == ClientMode::Commands {
                self.frames.add(direction, ProtocolFrameNote::End { kind: DATA_FRAME, at });
            }
            return SmtpStep::Taken(line.length);
        }
        self.skips[direction] = is_cut;
        match direction {
            Direction::ToServer => {
                self.command(line.text, is_cut);
                self.note(direction, COMMAND_FRAME, at, line.length, None);
                self.note(direction, COMMAND_FRAME, at, line.text.len(), self.current);
                SmtpStep::Taken(line.length)
            }
            Direction::ToClient => {
                let answer = self.reply(line.text, is_cut);
                self.note(direction, REPLY_FRAME, at, line.length, self.current);
                match answer {
                    Some(false) => SmtpStep::Taken(line.length),
                    Some(true) => SmtpStep::BeginsTls(line.length),
                    None => SmtpStep::Invalid(line.length),
                }
            }
        }
    }

    /// Notes a line as a frame. Suricata has a command twice: with the end of its line and without a
    /// transaction, then the other way round.
    fn note(&mut self, direction: Direction, kind: u8, at: u64, length: usize, tx: Option<TxId>) {
        self.frames.add(direction, ProtocolFrameNote::Whole { kind, at, len: length as u64, tx });
    }
}

/// The codes that replies have (RFC 5321 section 4.2.3, RFC 4954, RFC 7504), as Suricata knows them.
const CODES: &[&[u8]] = &[
    b"211", b"214", b"220", b"221", b"235", b"250", b"251", b"252", b"334", b"354", b"401", b"402", b"421",
    b"435", b"450", b"451", b"452", b"454", b"455", b"500", b"501", b"502", b"503", b"504", b"521", b"525",
    b"530", b"534", b"535", b"538", b"541", b"543", b"550", b"551", b"552", b"553", b"554", b"555",
];

/// Raises the events of a transaction's message.
fn raise(tx: &mut SmtpTransaction) {
    let Some(message) = tx.message.as_deref_mut() else { return };
    let found = message.take_oddities();
    for (oddity, code) in ODDITIES {
        if found.contains(*oddity) {
            tx.common.events.set(*code);
        }
    }
}

/// Whether a line is a dot alone, whatever carriage returns are behind it.
fn is_dot_alone(line: &SmtpLine<'_>) -> bool {
    let end = line.text.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last.saturating_add(1));
    !line.end.is_empty() && line.text.get(..end) == Some(b".")
}

/// Whether a dot alone stands between two carriage returns, or between one and the end of the line.
fn hides_dot(line: &SmtpLine<'_>) -> bool {
    let is_end = |rest: &[u8]| match rest {
        [b'.', b'\r', ..] => true,
        [b'.'] => !line.end.is_empty(),
        _ => false,
    };
    let mut returns = memchr::memchr_iter(b'\r', line.text);
    returns.any(|at| line.text.get(at.saturating_add(1)..).is_some_and(is_end))
}

/// A command with its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SmtpVerb<'a> {
    StartTls,
    Data,
    Chunk(&'a [u8]),
    Hello(&'a [u8]),
    Mail(&'a [u8]),
    Recipient(&'a [u8]),
    Reset,
    Quit,
    Other,
}

impl<'a> SmtpVerb<'a> {
    /// The command of a line. `strict`: with blanks where receivers pass over them, and the whole argument.
    fn of(line: &'a [u8], strict: bool) -> Self {
        let is = |name: &str| {
            line.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name.as_bytes()))
        };
        let rest = |length: usize| {
            if strict { path(line.get(length..).unwrap_or_default()) } else { argument(line, length) }
        };
        if is("starttls") {
            SmtpVerb::StartTls
        } else if is("data") {
            SmtpVerb::Data
        } else if is("bdat") {
            SmtpVerb::Chunk(line.get(4..).unwrap_or_default())
        } else if is("helo") || is("ehlo") {
            SmtpVerb::Hello(rest(4))
        } else if is("rset") {
            SmtpVerb::Reset
        } else if is("quit") {
            SmtpVerb::Quit
        } else if is("mail from") {
            SmtpVerb::Mail(rest(9))
        } else if is("rcpt to") {
            SmtpVerb::Recipient(rest(7))
        } else if let Some(sender) = in_two_words(line, "mail", "from").filter(|_| strict) {
            SmtpVerb::Mail(path(sender))
        } else if let Some(recipient) = in_two_words(line, "rcpt", "to").filter(|_| strict) {
            SmtpVerb::Recipient(path(recipient))
        } else {
            SmtpVerb::Other
        }
    }
}

/// Whether an address escapes letters, behind which rules would not find a name (RFC 5321 section 4.1.2: one
/// should not).
fn has_needless_escape(address: &[u8]) -> bool {
    address.windows(2).any(|pair| matches!(pair, [b'\\', byte] if byte.is_ascii_alphanumeric()))
}

/// The text after a command of two words with any blanks between them.
fn in_two_words<'a>(line: &'a [u8], first: &str, second: &str) -> Option<&'a [u8]> {
    let (begin, rest) = line.split_at_checked(first.len())?;
    let behind = rest.trim_ascii_start();
    let (middle, behind) = behind.split_at_checked(second.len())?;
    let is_it =
        begin.eq_ignore_ascii_case(first.as_bytes()) && middle.eq_ignore_ascii_case(second.as_bytes());
    is_it.then_some(behind)
}

/// The argument of a command as receivers read it: blanks before it, and a colon, are passed over; it ends
/// with a blank outside of quotes and angle brackets (RFC 5321 section 4.1.2).
fn path(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b":").unwrap_or(text).trim_ascii();
    let (mut is_quoted, mut is_escaped, mut depth) = (false, false, 0usize);
    // A text before the brackets may be a name that receivers pass over.
    let mut is_closed = !text.contains(&b'<');
    let end = text.iter().position(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'<' if !is_quoted => depth = depth.saturating_add(1),
            b'>' if !is_quoted => {
                depth = depth.saturating_sub(1);
                is_closed |= depth == 0;
            }
            _ => return byte.is_ascii_whitespace() && !is_quoted && depth == 0 && is_closed,
        }
        false
    });
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// The argument of a command: the first word after its name and one further byte (a blank or a colon).
fn argument(line: &[u8], name: usize) -> &[u8] {
    let rest = line.get(name.saturating_add(1)..).unwrap_or_default();
    let rest = rest.get(rest.iter().take_while(|byte| **byte == b' ').count()..).unwrap_or_default();
    rest.split(|byte| *byte == b' ').next().unwrap_or_default()
}

impl Parser for SmtpParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        self.files.settings = context.files.clone();
        self.files.strict = context.prevents;
        let mut consumed = 0usize;
        while let Some(rest) = input.data.get(consumed..).filter(|rest| !rest.is_empty()) {
            let at = input.offset.saturating_add(consumed as u64);
            let step = self.step(direction, rest, at);
            if self.is_ambiguous {
                return Progress::Error;
            }
            match step {
                SmtpStep::Taken(length) => consumed = consumed.saturating_add(length),
                SmtpStep::BeginsTls(length) => {
                    let consumed = consumed.saturating_add(length);
                    return Progress::Switch { consumed, to: Some("tls") };
                }
                // In prevention the client's side has to be inspected nevertheless.
                SmtpStep::Invalid(length) if context.prevents => consumed = consumed.saturating_add(length),
                SmtpStep::Invalid(_) | SmtpStep::Ambiguous => return Progress::Error,
                SmtpStep::Needs(needed) => return Progress::Incomplete { consumed, needed },
            }
        }
        Progress::Done
    }

    fn gap(&mut self, direction: Direction, missing: u64, _context: &mut ParseContext<'_>) -> bool {
        if direction == Direction::ToServer {
            match self.mode {
                ClientMode::Chunk { left, is_last } if missing <= left => {
                    self.mode = ClientMode::Chunk { left: left.saturating_sub(missing), is_last };
                    self.end_chunk();
                    return true;
                }
                ClientMode::Message => {
                    if let Some(tx) = self.current.and_then(|id| self.held.get_mut(id)) {
                        tx.files.gap(missing);
                    }
                }
                ClientMode::Chunk { .. } | ClientMode::Commands => {}
            }
        }
        // What follows is the rest of a line.
        self.skips[direction] = true;
        true
    }

    listed_transactions!(held);

    fn wants_raw(&mut self, direction: Direction) -> bool {
        // As in Suricata, a message is shown to rules on the stream in larger pieces.
        direction == Direction::ToClient || self.mode != ClientMode::Message
    }

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn held(&mut self) -> usize {
        let helo = self.helo.as_ref().map_or(0, |helo| allocated(helo.len()));
        let own = size_of::<Self>().saturating_add(helo).saturating_add(self.awaited.held());
        let own = own.saturating_add(self.chunk_line.capacity());
        own.saturating_add(self.held.held())
    }

    fn end(&mut self, direction: Direction, _context: &mut ParseContext<'_>) {
        for id in self.held.range() {
            let Some(tx) = self.held.get_mut(id) else { continue };
            if direction == Direction::ToServer {
                tx.end_message(FileState::Truncated);
            }
            tx.common.ended[direction] = true;
        }
    }
}
