// SPDX-License-Identifier: Apache-2.0
//! A DNS transaction: one message. Query and response are transactions of their own, as in Suricata 8.

use super::message::{Message, Section};
use super::name::Name;
use super::{buffers, log};
use crate::lookup::AddressLookup;
use crate::memory::allocated;
use crate::protocol::NumberId;
use crate::transaction::{BufferQuery, BufferView, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, Path};
use bartizan_events::JsonWriter;
use core::cell::OnceCell;

/// The protocol of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// DNS.
    Unicast,
    /// mDNS: both queries and responses travel to the multicast group, so all messages go to the server.
    Multicast,
}

/// One message.
#[derive(Debug)]
pub struct DnsTransaction {
    common: TxCommon,
    variant: Variant,
    response: bool,
    message: Message,
    /// Names of `dns.response.rrname`, gathered at the first access.
    response_names: OnceCell<Box<[Name]>>,
}

impl DnsTransaction {
    pub(super) fn new(variant: Variant, direction: Direction, response: bool, message: Message) -> Self {
        let mut common = TxCommon::default();
        // The other direction has no part of the message.
        common.done[direction.flip()] = Path::ALL;
        DnsTransaction { common, variant, response, message, response_names: OnceCell::new() }
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Whether the message was read as a response.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.response
    }

    /// Protocol of the message.
    #[must_use]
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The message, if it travels in `direction`.
    fn message_of(&self, direction: Direction) -> Option<&Message> {
        (self.response == (direction == Direction::ToClient)).then_some(&self.message)
    }

    /// The message, if it is a response.
    fn response(&self) -> Option<&Message> {
        self.response.then_some(&self.message)
    }

    /// All names of a response: questions, then owner and data of the records. As in Suricata, a section ends
    /// at an empty name.
    fn response_names(&self) -> &[Name] {
        self.response_names.get_or_init(|| {
            let Some(message) = self.response() else { return Box::default() };
            let mut names: Vec<Name> =
                message.queries.iter().map(|q| q.name).take_while(|n| !n.is_empty()).collect();
            for section in [Section::Answers, Section::Authorities, Section::Additionals] {
                for record in message.section(section).iter().take_while(|r| !r.name.is_empty()) {
                    names.push(record.name);
                    names.extend(message.data_name(record).filter(|n| !n.is_empty()));
                }
            }
            names.into_boxed_slice()
        })
    }

    /// The name for a buffer's query.
    fn name(&self, query: BufferQuery) -> Option<Name> {
        let index = usize::try_from(query.index).ok()?;
        let owner = |message: &Message, section| message.section(section).get(index).map(|r| r.name);
        match query.id {
            buffers::QUERY | buffers::QUERIES | buffers::QUERY_NAME => {
                self.message_of(query.direction)?.queries.get(index).map(|q| q.name)
            }
            buffers::ANSWERS | buffers::ANSWER_NAME => match self.variant {
                Variant::Unicast => owner(self.message_of(query.direction)?, Section::Answers),
                Variant::Multicast => owner(&self.message, Section::Answers),
            },
            buffers::AUTHORITIES => owner(self.response()?, Section::Authorities),
            buffers::ADDITIONALS => owner(self.response()?, Section::Additionals),
            buffers::RESPONSE => self.response_names().get(index).copied(),
            _ => None,
        }
    }

    /// The types of `dns.rrtype`: of the questions in a query, of the answers in a response.
    fn rrtype(&self, direction: Direction, index: usize) -> Option<u16> {
        let message = self.message_of(direction)?;
        if self.response {
            message.section(Section::Answers).get(index).map(|r| r.rrtype)
        } else {
            message.queries.get(index).map(|q| q.rrtype)
        }
    }
}

impl Transaction for DnsTransaction {
    fn message_direction(&self) -> Option<Direction> {
        Some(if self.response { Direction::ToClient } else { Direction::ToServer })
    }

    fn lookup(&self) -> Option<&dyn AddressLookup> {
        Some(self)
    }

    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn held(&self) -> usize {
        let names = self.response_names.get().map_or(0, |names| allocated(size_of_val(&**names)));
        self.message.size().saturating_add(names)
    }

    fn progress(&self, _direction: Direction) -> u8 {
        // A message is complete when it exists.
        super::states::COMPLETE
    }

    fn buffer<'a>(&'a self, query: BufferQuery, scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        if query.id == buffers::RRTYPES {
            let rrtype = self.rrtype(query.direction, usize::try_from(query.index).ok()?)?;
            scratch.extend_from_slice(&rrtype.to_be_bytes());
            return Some(BufferView::whole(scratch));
        }
        let name = self.name(query).filter(|n| !n.is_empty())?;
        name.decode(self.message.bytes(), scratch);
        Some(BufferView::whole(scratch))
    }

    /// The name of the root is empty. As in Suricata, nothing matches in it, but the value exists.
    fn is_present(&self, query: BufferQuery) -> bool {
        match query.id {
            buffers::RESPONSE => self.response().is_some_and(|message| {
                let sections = [Section::Answers, Section::Authorities, Section::Additionals];
                !message.queries.is_empty() || sections.iter().any(|s| !message.section(*s).is_empty())
            }),
            _ => self.name(query).is_some(),
        }
    }

    fn number(&self, id: NumberId, direction: Direction) -> Option<u64> {
        match id {
            buffers::OPCODE => self.message_of(direction).map(|m| m.header.opcode().into()),
            buffers::RCODE => self.message_of(direction).map(|m| m.header.rcode().into()),
            buffers::RRTYPE => self.rrtype(direction, 0).map(u64::from),
            _ => None,
        }
    }

    fn records(&self, options: &LogOptions) -> usize {
        log::records(self, options)
    }

    fn log(&self, json: &mut JsonWriter, options: &LogOptions, in_alert: bool) {
        log::write(self, json, options, 0, in_alert);
    }

    fn log_record(&self, json: &mut JsonWriter, options: &LogOptions, number: usize) {
        log::write(self, json, options, number, false);
    }
}
