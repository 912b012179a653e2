// SPDX-License-Identifier: Apache-2.0
//! Lookups of addresses by name, as transactions show them to functions: groups by DNS name rest on them.

use core::net::IpAddr;

/// A question for addresses. An answer belongs to it if its own question is equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressQuestion {
    /// Number of the question.
    pub number: u16,
    /// Type of the records that the query requests.
    pub rrtype: u16,
    /// The name, in lower case.
    pub name: Box<str>,
}

/// The part of a message in a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupPart {
    /// It asks.
    Question,
    /// It answers.
    Answer,
}

/// A message of a lookup: an optional view of a transaction.
pub trait AddressLookup {
    /// Its part. `None`: it claims to be of the other part than its sender.
    fn part(&self) -> Option<LookupPart>;

    /// Its only question, if that asks for addresses.
    fn question(&self) -> Option<AddressQuestion>;

    /// Whether an answer reports success and is whole.
    fn succeeded(&self) -> bool;

    /// The addresses that an answer has for a name, through so many aliases at most, each with the least time
    /// to live on the way, in seconds.
    fn addresses(&self, name: &str, aliases: usize) -> Vec<(IpAddr, u32)>;
}
