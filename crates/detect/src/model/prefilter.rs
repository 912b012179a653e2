// SPDX-License-Identifier: Apache-2.0
//! Prefilters in compiled form, which find the rules worth evaluating for a packet or transaction: sets of
//! literals with the rules of each, rules with a key ([`PrefilterKey`]), and rules that are always
//! candidates.
//!
//! `compile::prefilter` builds the prefilters, `engine::prefilter` and its neighbours run them.

use crate::model::addresses::ByAddress;
use crate::model::condition::{PrefilterKey, Transform};
use crate::model::guards::Guard;
use crate::model::places::FixedPlaces;
use crate::model::signature::{FlowNeeds, Signature, ValueCheck};
use bartizan_applayer::protocol::{BufferSpec, ProtocolId};
use bartizan_base::{Direction, PerDirection};
use bartizan_pattern::PatternSet;
use foldhash::fast::FixedState;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Literals of one buffer and the rules that need each.
pub struct Set {
    pub(crate) set: PatternSet,
    /// Rules of each literal, by its number in the set.
    pub(crate) rules: Vec<Vec<u32>>,
    /// The heads of all these rules, a bit each; empty: unknown.
    pub(crate) heads: Vec<u64>,
}

impl Set {
    /// Length of the longest literal, in bytes: a scan of a growing value must reach back that far.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.set.longest()
    }
}

/// Rules that are candidates without a literal, for every flow whose packets can meet their head.
#[derive(Default)]
pub struct Always {
    /// Head and rule, sorted.
    pub(crate) rules: Vec<(u32, u32)>,
    /// The guards that each rule needs, a bit each; empty: no rule needs any.
    pub(crate) wants: Vec<u64>,
    /// Blocks of 64 heads: index of the block, a bit for each head with rules, and the index in `rules` of
    /// the block's first rule.
    pub(crate) words: Vec<(u32, u64, u32)>,
    /// Head and rule, sorted, for heads that are found by an address ([`crate::model::addresses`]). These
    /// rules are in no other field.
    pub(crate) by_address: Vec<(u32, u32)>,
}

impl Always {
    pub(crate) fn push(&mut self, head: u32, rule: u32) {
        self.rules.push((head, rule));
    }

    /// Sorts the rules and builds `words`; called when all rules are added.
    pub(crate) fn finish(&mut self) {
        self.rules.sort_unstable();
        self.words.clear();
        for (at, (head, _)) in self.rules.iter().enumerate() {
            let (word, bit) = (head / 64, 1u64 << (head % 64));
            match self.words.last_mut() {
                Some((last, heads, _)) if *last == word => *heads |= bit,
                _ => self.words.push((word, bit, u32::try_from(at).unwrap_or(u32::MAX))),
            }
        }
    }

    /// Moves the rules whose head is found by an address to `by_address`: they are candidates for packets of
    /// that address alone.
    pub(crate) fn set_apart(&mut self, by_address: &ByAddress) {
        let all = core::mem::take(&mut self.rules);
        (self.by_address, self.rules) = all.into_iter().partition(|(head, _)| by_address.has(*head));
        self.finish();
    }

    /// Whether the set has no rules.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.by_address.is_empty()
    }

    /// Whether the set has a rule.
    #[must_use]
    pub fn contains(&self, rule: u32) -> bool {
        self.rules.iter().chain(&self.by_address).any(|(_, r)| *r == rule)
    }
}

/// A set of literals on one transaction buffer.
pub struct TxSet {
    /// Buffer.
    pub buffer: u16,
    /// The buffer's entry in the protocol's table.
    pub spec: &'static BufferSpec,
    /// The transforms that are applied before the scan.
    pub transforms: Vec<Arc<dyn Transform>>,
    /// The literals.
    pub set: Arc<Set>,
}

/// Rules on the transactions of one protocol and direction.
#[derive(Default)]
pub struct TxRules {
    /// Sets, sorted by the progress at which their buffer is complete.
    pub sets: Vec<TxSet>,
    /// Rules without a literal.
    pub always: Always,
    /// Rules whose literal is searched in a growing value of a transaction and that have a condition on the
    /// stream as well: each piece of the stream is evaluated against them, whether the literal was found
    /// before or not.
    pub beside_stream: Always,
    /// Guards of the rules in `always` and `beside_stream`.
    pub guards: Vec<Guard>,
}

impl TxRules {
    /// Whether there are no rules.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.always.is_empty()
    }
}

/// Rules on transactions, by protocol and direction.
#[derive(Default)]
pub struct PerProtocol(pub(crate) Vec<PerDirection<TxRules>>);

impl PerProtocol {
    /// The rules on a protocol's transactions in a direction. `None`: there are none.
    #[must_use]
    pub fn of(&self, protocol: ProtocolId, direction: Direction) -> Option<&TxRules> {
        self.0.get(usize::from(protocol.0)).map(|both| &both[direction])
    }

    /// Changes the rules on a protocol's transactions in a direction.
    pub(crate) fn change(
        &mut self,
        protocol: ProtocolId,
        direction: Direction,
        change: impl FnOnce(&mut TxRules),
    ) {
        let index = usize::from(protocol.0);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, PerDirection::default);
        }
        if let Some(both) = self.0.get_mut(index) {
            change(&mut both[direction]);
        }
    }
}

/// All prefilters of a rule set.
#[derive(Default)]
pub struct Prefilters {
    /// Literals of rules on the payloads of packets, by IP protocol class and direction.
    pub payloads: PerClass<PayloadSets>,
    /// Literals of rules on streams, by direction.
    pub stream: PerDirection<StreamSets>,
    /// Literals of rules on packet buffers.
    pub packet_buffers: Vec<(u16, Set)>,
    /// Rules on packets without literal or key, by class and direction.
    pub packet_always: PerClass<Always>,
    /// Search by address for heads of the rules in `packet_always`.
    pub by_address: ByAddress,
    /// Rules on streams without a literal, by direction.
    pub stream_always: PerDirection<Always>,
    /// Rules found by a property of the packet.
    pub by_key: HashMap<PrefilterKey, Vec<u32>, FixedState>,
    /// Rules on transactions.
    pub tx: PerProtocol,
    /// Rules on frames, by protocol and kind, in the order of evaluation.
    pub frames: HashMap<(ProtocolId, u8), PerDirection<Vec<u32>>, FixedState>,
}

impl Prefilters {
    /// The heads of rules on packets that are candidates without a literal.
    pub(crate) fn heads_without_literal(&self) -> BTreeSet<u32> {
        let all = self.packet_always.values.iter().flat_map(|both| [&both.to_server, &both.to_client]);
        all.flat_map(|always| always.rules.iter().map(|(head, _)| *head)).collect()
    }

    /// Moves rules on packets to the search by address, where their heads allow it.
    pub(crate) fn set_apart(&mut self, by_address: ByAddress) {
        for both in &mut self.packet_always.values {
            both.to_server.set_apart(&by_address);
            both.to_client.set_apart(&by_address);
        }
        self.by_address = by_address;
    }

    /// Whether a rule must be evaluated on each TCP segment, not only on the stream: also on segments that
    /// are in order and raise no events.
    #[must_use]
    pub fn inspects_segments(&self) -> bool {
        let always = self.packet_always.get(ProtocolClass::Tcp);
        let payloads = self.payloads.get(ProtocolClass::Tcp);
        !self.packet_buffers.is_empty()
            || Direction::BOTH.into_iter().any(|d| !always[d].is_empty() || payloads[d].inspects_each())
    }
}

/// The class of a packet's IP protocol; prefilters are grouped by it before the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolClass {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP, ICMPv6.
    Icmp,
    /// All other protocols.
    Other,
}

impl ProtocolClass {
    /// All classes.
    pub const ALL: [ProtocolClass; 4] =
        [ProtocolClass::Tcp, ProtocolClass::Udp, ProtocolClass::Icmp, ProtocolClass::Other];

    /// The class of an IP protocol number.
    #[must_use]
    pub const fn of(protocol: Option<u8>) -> Self {
        match protocol {
            Some(6) => ProtocolClass::Tcp,
            Some(17) => ProtocolClass::Udp,
            Some(1 | 58) => ProtocolClass::Icmp,
            _ => ProtocolClass::Other,
        }
    }

    /// Whether a rule with these IP protocols applies to packets of this class.
    pub(crate) fn covers(self, protocols: &[u8]) -> bool {
        protocols.is_empty() || protocols.iter().any(|p| ProtocolClass::of(Some(*p)) == self)
    }
}

/// A value for each class and direction.
#[derive(Default)]
pub struct PerClass<T> {
    pub(crate) values: [PerDirection<T>; 4],
}

impl<T> PerClass<T> {
    /// The values of a class.
    #[must_use]
    pub fn get(&self, class: ProtocolClass) -> &PerDirection<T> {
        let [tcp, udp, icmp, other] = &self.values;
        match class {
            ProtocolClass::Tcp => tcp,
            ProtocolClass::Udp => udp,
            ProtocolClass::Icmp => icmp,
            ProtocolClass::Other => other,
        }
    }

    pub(crate) fn get_mut(&mut self, class: ProtocolClass) -> &mut PerDirection<T> {
        let [tcp, udp, icmp, other] = &mut self.values;
        match class {
            ProtocolClass::Tcp => tcp,
            ProtocolClass::Udp => udp,
            ProtocolClass::Icmp => icmp,
            ProtocolClass::Other => other,
        }
    }
}

/// Payloads of up to this many bytes are searched once for all literals.
pub(crate) const SHORT_MAX: usize = 512;

/// The literals of rules on streams, by their place in the window that is inspected.
#[derive(Default)]
pub struct StreamSets {
    /// Literals near the beginning of the window.
    pub head: Option<HeadSet>,
    /// Literals anywhere in the window.
    pub whole: Option<Set>,
}

/// Payloads of up to this many bytes are also searched for the literals of rules that match no longer ones.
pub(crate) const TINY_MAX: usize = 64;

/// Literals near the beginning of the data.
pub struct HeadSet {
    /// Brief literals at one offset.
    pub(crate) fixed: FixedPlaces,
    /// Other literals.
    pub(crate) set: Option<Set>,
    /// Number of bytes from the beginning that are scanned.
    pub(crate) within: usize,
}

impl HeadSet {
    /// Whether there are no literals.
    pub(crate) const fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.set.is_none()
    }
}

/// The literals of rules on short payloads.
#[derive(Default)]
pub struct ShortSets {
    /// Brief literals near the beginning.
    pub(crate) head: Option<HeadSet>,
    /// Payloads of up to [`TINY_MAX`] bytes: brief literals of rules that match no longer ones.
    pub(crate) tiny: Option<Set>,
    /// All other literals.
    pub(crate) all: Vec<Set>,
}

impl ShortSets {
    /// Whether there are no literals.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.head.is_none() && self.tiny.is_none() && self.all.is_empty()
    }
}

/// The literals of rules on the payloads of packets, by their place. A payload is searched either for one of
/// the sets for short payloads, or for `head` and one of the sets for longer ones.
#[derive(Default)]
pub struct PayloadSets {
    /// Payloads of up to [`SHORT_MAX`] bytes: all literals of rules on each packet.
    pub(crate) short: ShortSets,
    /// Literals of `short`, and of rules that inspect a packet only where its payload is no part of the
    /// stream, if there are such rules.
    pub(crate) short_outside: Option<ShortSets>,
    /// Longer payloads: literals near the beginning.
    pub(crate) head: Option<HeadSet>,
    /// Longer payloads: literals elsewhere.
    pub(crate) whole: Vec<Set>,
    /// Literals of `whole`, and of rules that inspect a packet only where its payload is no part of the
    /// stream; empty if there are no such rules.
    pub(crate) outside: Vec<Set>,
}

impl PayloadSets {
    /// Whether a rule inspects each packet.
    #[must_use]
    pub const fn inspects_each(&self) -> bool {
        !self.short.is_empty()
    }
}

/// Directions in which a rule's packets travel.
#[must_use]
pub fn directions(signature: &Signature) -> Vec<Direction> {
    if signature.flow.contains(FlowNeeds::TO_SERVER) {
        vec![Direction::ToServer]
    } else if signature.flow.contains(FlowNeeds::TO_CLIENT) {
        vec![Direction::ToClient]
    } else {
        Direction::BOTH.to_vec()
    }
}

/// Directions of a protocol's transactions that have a check's buffer.
#[must_use]
pub fn check_directions(check: &ValueCheck, spec: &BufferSpec) -> PerDirection<bool> {
    let wanted = |d| check.direction.is_none_or(|only| only == d);
    PerDirection::new(
        spec.directions.to_server && wanted(Direction::ToServer),
        spec.directions.to_client && wanted(Direction::ToClient),
    )
}
