// SPDX-License-Identifier: Apache-2.0
//! The parser of a control connection: lines of commands and of replies (RFC 959 section 4.2).
//!
//! As in Suricata, a reply belongs to the oldest command without a final reply, and each line that begins
//! with no `1` is a final one. Further lines go to the same transaction while it has no record, and make one
//! of their own afterwards. Which port is announced says, passively, the newest command; prevention goes by
//! the command of the reply, and takes more forms, as servers and clients do.

use super::commands::{self, AUTH_TLS, Announced, Transfer};
use super::data;
use super::tables::{
    FILE_BEFORE_PORT, FILE_WITHOUT_NAME, FLOODED, FtpConfig, REQUEST_TOO_LONG, RESPONSE_TOO_LONG,
};
use super::tx::FtpTransaction;
use crate::expectation::Expectation;
use crate::frames::Notes;
use crate::memory::Held as _;
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::protocols::first_line;
use crate::transaction::{TxId, TxList, listed_transactions};
use bartizan_base::{Direction, PerDirection};
use core::net::IpAddr;
use std::collections::VecDeque;

/// A line, or as much of a longer one as is kept.
struct FtpLine<'a> {
    text: &'a [u8],
    is_cut: bool,
    /// Number of bytes with the end of the line.
    length: usize,
}

/// The front of a direction's data.
enum FtpStep<'a> {
    /// A line.
    Line(FtpLine<'a>),
    /// This number of bytes belongs to a line that is skipped.
    Skipped(usize),
    /// This number of bytes is needed.
    Needs(usize),
}

/// The port that the next data connection is opened to.
#[derive(Debug)]
struct NextConnection {
    port: u16,
    /// The server opens it.
    is_active: bool,
}

impl NextConnection {
    /// Direction in which it is opened.
    const fn opened(&self) -> Direction {
        if self.is_active { Direction::ToClient } else { Direction::ToServer }
    }
}

/// The parser of a control connection.
#[derive(Debug)]
pub(super) struct FtpParser {
    config: FtpConfig,
    held: TxList<FtpTransaction>,
    /// Transactions before this one have their replies.
    first_open: TxId,
    /// Transactions with a transfer, oldest first; some may have ended since.
    transfers: VecDeque<TxId>,
    /// The rest of the direction's line is skipped.
    skips: PerDirection<bool>,
    next: Option<NextConnection>,
    /// The newest command, if it is known.
    newest: Option<&'static str>,
    /// The newest announcement of the client.
    announced: Option<Announced>,
    /// In prevention: the data has not reached its receiver yet.
    strict: bool,
    /// In prevention: some receivers read the bytes in another way.
    is_ambiguous: bool,
    expected: Vec<Expectation>,
    frames: Notes,
}

impl FtpParser {
    pub(super) fn new(config: FtpConfig) -> Self {
        FtpParser {
            config,
            held: TxList::default(),
            first_open: 0,
            transfers: VecDeque::new(),
            skips: PerDirection::default(),
            next: None,
            newest: None,
            announced: None,
            strict: false,
            is_ambiguous: false,
            expected: Vec::new(),
            frames: Notes::default(),
        }
    }

    /// Adds a transaction, and lets go of the oldest if there are too many.
    fn push(&mut self, tx: FtpTransaction) -> TxId {
        let has_transfer = tx.transfer.is_some();
        let id = self.held.push(tx);
        if has_transfer {
            let first = self.held.range().start;
            while self.transfers.front().is_some_and(|id| *id < first) {
                self.transfers.pop_front();
            }
            self.transfers.push_back(id);
        }
        if self.held.len() > self.config.max_tx {
            let oldest = self.held.range().start;
            self.held.free(oldest);
            if let Some(newest) = self.held.last_mut() {
                newest.common.events.set(FLOODED);
            }
        }
        id
    }

    /// Handles a command.
    fn command(&mut self, line: &FtpLine<'_>) {
        if self.strict {
            return self.lenient_command(line);
        }
        let text = line.text.trim_ascii();
        self.newest = commands::command_of(text);
        // Unknown commands make no transaction, as in Suricata.
        let Some(name) = self.newest else { return };
        let mut tx = FtpTransaction::command(name, text, line.is_cut);
        if line.is_cut {
            tx.common.events.set(REQUEST_TOO_LONG);
        }
        if matches!(name, "PORT" | "EPRT") {
            tx.announced = commands::strict_announcement(text);
            self.announced = tx.announced;
        }
        self.check_transfer(&mut tx);
        self.push(tx);
        self.expect();
    }

    /// Raises the events of a transfer without a name or an announced port.
    fn check_transfer(&self, tx: &mut FtpTransaction) {
        let is_nameless = tx.transfer.is_some_and(Transfer::needs_name) && tx.data().is_empty();
        if is_nameless {
            tx.common.events.set(FILE_WITHOUT_NAME);
            tx.transfer = None;
        } else if tx.transfer.is_some() && self.next.is_none() {
            tx.common.events.set(FILE_BEFORE_PORT);
            if !self.strict {
                tx.transfer = None;
            }
        }
    }

    /// Handles a command as lenient servers do. Each has a transaction, so that rules see its argument and
    /// replies are not taken for those of others.
    fn lenient_command(&mut self, line: &FtpLine<'_>) {
        // The server may be one of mail.
        self.is_ambiguous |= first_line::SMTP.is_foreign_to(&first_line::FTP, line.text);
        let (name, argument) = commands::lenient_command_of(line.text);
        let mut tx = FtpTransaction::of(name, argument, line.is_cut);
        if line.is_cut {
            tx.common.events.set(REQUEST_TOO_LONG);
            // Servers read on.
            self.is_ambiguous = true;
        }
        let announced = name.and_then(|name| commands::lenient_announcement(name, argument));
        tx.announced = announced;
        self.check_transfer(&mut tx);
        self.push(tx);
        if let Some(announced) = announced {
            self.agree(NextConnection { port: announced.port, is_active: true }, announced.address);
        }
        self.expect();
    }

    /// Notes an announced port, in prevention also for bytes that come before the command of their transfer.
    fn agree(&mut self, next: NextConnection, address: Option<IpAddr>) {
        if self.strict {
            self.expected.push(Expectation {
                protocol: data::NAME,
                opened: next.opened(),
                port: next.port,
                address,
                context: data::context_of_any(next.is_active),
            });
        }
        self.next = Some(next);
    }

    /// The transaction of the next reply.
    fn answered(&mut self) -> TxId {
        let mut ids = self.held.range();
        ids.start = ids.start.max(self.first_open);
        let open = ids.clone().find(|id| self.held.get(*id).is_some_and(|tx| !tx.done));
        self.first_open = open.unwrap_or(ids.end);
        let newest = || self.held.iter().next_back().filter(|tx| !tx.common.logged).map(|tx| tx.common.id);
        match open.or_else(newest) {
            Some(id) => id,
            None => self.push(FtpTransaction::default()),
        }
    }

    /// Handles a line of a reply. Returns whether TLS begins after it.
    fn reply(&mut self, line: &FtpLine<'_>) -> bool {
        let prevents = self.strict;
        // Whichever command the reply belongs to: clients take it for that of PASV.
        let told = if prevents { commands::announcement_of_reply(line.text) } else { None };
        if let Some(announced) = told {
            self.agree(NextConnection { port: announced.port, is_active: false }, announced.address);
            self.expect();
        }
        let (newest, announced) = (self.newest, self.announced);
        let id = self.answered();
        let Some(tx) = self.held.get_mut(id) else { return false };
        let text = line.text.trim_ascii_end();
        let is_active = matches!(newest, Some("PORT" | "EPRT"));
        if !prevents {
            if newest.is_none() {
                // An unknown command hides the one whose reply this is.
                tx.command = None;
            }
            if is_active && announced.is_none() {
                // Suricata leaves the reply to an announcement that it cannot read out.
                tx.done = true;
                tx.transfer = None;
                return false;
            }
        }
        if !tx.add_reply(text, line.is_cut) || line.is_cut {
            tx.common.events.set(RESPONSE_TOO_LONG);
        }
        let is_final = !(text.len() >= 4 && text.starts_with(b"1"));
        let (agreed, is_active) = match prevents {
            true if tx.done => (None, false),
            true => (leniently_agreed(tx, text, told), matches!(tx.command, Some("PORT" | "EPRT"))),
            // A reply that no command asked for has no port.
            false if is_active => (announced.filter(|_| tx.command.is_some()), true),
            false => {
                let is_of = match newest {
                    Some("PASV") => text.starts_with(b"227"),
                    Some("EPSV") => text.starts_with(b"229"),
                    _ => false,
                };
                (is_of.then(|| commands::strict_passive_reply(text)).flatten(), false)
            }
        };
        let begins_tls = prevents && !tx.done && tx.command == Some(AUTH_TLS) && text.starts_with(b"234");
        if let Some(announced) = agreed {
            tx.port = Some(announced.port);
            tx.is_active = is_active;
            if !prevents {
                self.next = Some(NextConnection { port: announced.port, is_active });
            }
        }
        if is_final {
            tx.done = true;
            tx.transfer = None;
        }
        self.expect();
        begins_tls
    }

    /// Expects the data connection of the oldest transfer that has none, once a port is known.
    fn expect(&mut self) {
        let Some(next) = self.next.as_ref() else { return };
        let is_over = |id: &TxId| self.held.get(*id).is_none_or(|tx| tx.transfer.is_none());
        while self.transfers.front().is_some_and(is_over) {
            self.transfers.pop_front();
        }
        let Some(tx) = self.transfers.pop_front().and_then(|id| self.held.mark_mut(id)) else { return };
        let Some(transfer) = tx.transfer.take() else { return };
        let opened = next.opened();
        let context = data::context(transfer, next.is_active, tx.data());
        self.expected.push(Expectation {
            protocol: data::NAME,
            opened,
            port: next.port,
            address: None,
            context,
        });
        self.next = None;
    }

    /// Reads the line at the front of the data.
    fn line<'a>(&mut self, direction: Direction, data: &'a [u8]) -> FtpStep<'a> {
        let end = memchr::memchr(b'\n', data);
        if self.skips[direction] {
            self.skips[direction] = end.is_none();
            return FtpStep::Skipped(end.map_or(data.len(), |end| end.saturating_add(1)));
        }
        let most = self.config.max_line;
        match end.filter(|end| end.saturating_add(1) < most) {
            Some(end) => {
                let text = data.get(..end).unwrap_or_default();
                let text = text.strip_suffix(b"\r").unwrap_or(text);
                FtpStep::Line(FtpLine { text, is_cut: false, length: end.saturating_add(1) })
            }
            None if data.len() >= most => {
                self.skips[direction] = true;
                let text = data.get(..most).unwrap_or_default();
                FtpStep::Line(FtpLine { text, is_cut: true, length: most })
            }
            None => FtpStep::Needs(data.len().saturating_add(1)),
        }
    }
}

/// The announcement that a command and a line of its reply agree on, in any form that clients and servers
/// take. `told`: what the line announces.
fn leniently_agreed(tx: &FtpTransaction, text: &[u8], told: Option<Announced>) -> Option<Announced> {
    match tx.command? {
        "PORT" | "EPRT" if text.starts_with(b"2") => tx.announced,
        "PASV" if text.starts_with(b"227") => told,
        "EPSV" if text.starts_with(b"229") => told,
        _ => None,
    }
}

impl Parser for FtpParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        self.strict = context.prevents;
        let mut consumed = 0usize;
        while let Some(rest) = input.data.get(consumed..).filter(|rest| !rest.is_empty()) {
            let line = match self.line(direction, rest) {
                FtpStep::Line(line) => line,
                FtpStep::Skipped(length) => {
                    consumed = consumed.saturating_add(length);
                    continue;
                }
                FtpStep::Needs(needed) => return Progress::Incomplete { consumed, needed },
            };
            consumed = consumed.saturating_add(line.length);
            match direction {
                Direction::ToServer => self.command(&line),
                Direction::ToClient => {
                    if self.reply(&line) {
                        return Progress::Switch { consumed, to: Some("tls") };
                    }
                }
            }
            if self.is_ambiguous {
                return Progress::Error;
            }
        }
        Progress::Done
    }

    fn gap(&mut self, direction: Direction, _missing: u64, _context: &mut ParseContext<'_>) -> bool {
        // What follows is the rest of a line.
        self.skips[direction] = true;
        true
    }

    listed_transactions!(held);

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    // Suricata's parser asks for no inspection of the stream.
    fn wants_raw(&mut self, _direction: Direction) -> bool {
        false
    }

    fn expectations(&mut self) -> Option<&mut Vec<Expectation>> {
        Some(&mut self.expected)
    }

    fn held(&mut self) -> usize {
        size_of::<Self>()
            .saturating_add(self.held.held())
            .saturating_add(self.expected.held())
            .saturating_add(self.transfers.held())
    }

    fn end(&mut self, direction: Direction, _context: &mut ParseContext<'_>) {
        for id in self.held.range() {
            if let Some(tx) = self.held.get_mut(id) {
                tx.common.ended[direction] = true;
            }
        }
    }
}
