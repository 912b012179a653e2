// SPDX-License-Identifier: Apache-2.0
//! DNS messages as lookups of addresses.

use super::message::{Data, Message, Section};
use super::name::Name;
use super::transaction::DnsTransaction;
use crate::lookup::{AddressLookup, AddressQuestion, LookupPart};
use core::net::IpAddr;

/// The class of the Internet (RFC 1035 section 3.2.4).
const INTERNET: u16 = 1;
/// Types of records (RFC 1035 section 3.2.2, RFC 3596).
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
/// The flag of a truncated answer (RFC 1035 section 4.1.1).
const TRUNCATED: u16 = 0x0200;

impl AddressLookup for DnsTransaction {
    fn part(&self) -> Option<LookupPart> {
        match (self.is_response(), self.message().header.is_response()) {
            (false, false) => Some(LookupPart::Question),
            (true, true) => Some(LookupPart::Answer),
            _ => None,
        }
    }

    fn question(&self) -> Option<AddressQuestion> {
        question(self.message())
    }

    fn succeeded(&self) -> bool {
        let message = self.message();
        message.header.rcode() == 0 && message.header.flags & TRUNCATED == 0 && !message.malformed
    }

    fn addresses(&self, name: &str, aliases: usize) -> Vec<(IpAddr, u32)> {
        addresses(self.message(), name, aliases)
    }
}

/// A name of a message in the form of policies: lower case. `None`: it is truncated or empty.
fn text(message: &Message, name: Name) -> Option<Box<str>> {
    if name.is_truncated() || name.is_empty() {
        return None;
    }
    let mut bytes = Vec::new();
    name.decode(message.bytes(), &mut bytes);
    bytes.make_ascii_lowercase();
    String::from_utf8(bytes).ok().map(String::into_boxed_str)
}

/// The single question of a message, if it asks for addresses.
fn question(message: &Message) -> Option<AddressQuestion> {
    let [query] = message.queries.as_slice() else { return None };
    let is_address = query.class == INTERNET && matches!(query.rrtype, A | AAAA);
    let name = text(message, query.name).filter(|_| is_address)?;
    Some(AddressQuestion { number: message.header.id, rrtype: query.rrtype, name })
}

/// The addresses that an answer gives for a name, through aliases, each with the least time to live on the
/// way.
fn addresses(message: &Message, asked: &str, aliases: usize) -> Vec<(IpAddr, u32)> {
    let records = message.section(Section::Answers);
    let of = |name: &str| {
        let own = records.iter().filter(|r| r.class == INTERNET);
        let own = own.filter(|r| text(message, r.name).as_deref() == Some(name));
        own.collect::<Vec<_>>()
    };
    // A time to live with its highest bit set counts as none (RFC 2181 section 8).
    let lives = |ttl: u32| if ttl > i32::MAX as u32 { 0 } else { ttl };
    let (mut name, mut least, mut found) = (Box::<str>::from(asked), u32::MAX, Vec::new());
    for _ in 0..=aliases {
        let own = of(&name);
        let direct = own.iter().filter_map(|record| {
            let address = match (record.rrtype, message.data(record)) {
                (A, Data::Address(bytes)) => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
                (AAAA, Data::Address(bytes)) => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
                _ => return None,
            };
            Some((address, least.min(lives(record.ttl))))
        });
        found.extend(direct);
        let alias = own.iter().find(|record| record.rrtype == CNAME);
        let Some(record) = alias.filter(|_| found.is_empty()) else { break };
        let Data::Name(target) = message.data(record) else { break };
        let Some(target) = text(message, target) else { break };
        (name, least) = (target, least.min(lives(record.ttl)));
    }
    found
}
