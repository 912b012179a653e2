// SPDX-License-Identifier: Apache-2.0
//! Which rules are worth evaluating for a packet or transaction, as it is compiled: sets of literals with the
//! rules behind each, rules that are found by a cheap property ([`PrefilterKey`]), and those that always are
//! candidates.
//!
//! `compile::prefilter` builds it, `engine::prefilter` and its neighbours run it.

use crate::model::addresses::ByAddress;
use crate::model::condition::{PrefilterKey, Transform};
use crate::model::guards::Guard;
use crate::model::signature::{FlowNeeds, Signature, ValueCheck};
use bartizan_applayer::protocol::{BufferSpec, ProtocolId};
use bartizan_base::{Direction, PerDirection};
use bartizan_pattern::PatternSet;
use foldhash::fast::FixedState;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Literals of one buffer and the rules behind each.
pub struct Set {
    pub(crate) set: PatternSet,
    /// Rules of each literal, by its number in the set.
    pub(crate) rules: Vec<Vec<u32>>,
    /// The heads of all these rules, a bit each; none: they are not known.
    pub(crate) heads: Vec<u64>,
}

impl Set {
    /// Length of the longest literal: how far a scan of a growing value must reach back.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.set.longest()
    }
}

/// Rules that are candidates without a literal: all those whose head the packets of the flow can meet.
#[derive(Default)]
pub struct Always {
    /// Head and rule, sorted.
    pub(crate) rules: Vec<(u32, u32)>,
    /// The guards that each of them wants, a bit each; empty: none wants any.
    pub(crate) wants: Vec<u64>,
    /// 64 heads: their word, those that have rules, and where the rules of the first of these stand.
    pub(crate) words: Vec<(u32, u64, u32)>,
    /// Head and rule, sorted: those whose head is found by an address ([`crate::model::addresses`]). They are
    /// in none of the others.
    pub(crate) by_address: Vec<(u32, u32)>,
}

impl Always {
    pub(crate) fn push(&mut self, head: u32, rule: u32) {
        self.rules.push((head, rule));
    }

    /// To be called when all rules are there.
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

    /// Those whose head is found by an address are candidates of packets of that address alone.
    pub(crate) fn set_apart(&mut self, by_address: &ByAddress) {
        let all = core::mem::take(&mut self.rules);
        (self.by_address, self.rules) = all.into_iter().partition(|(head, _)| by_address.has(*head));
        self.finish();
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.by_address.is_empty()
    }

    /// Whether a rule is among them.
    #[must_use]
    pub fn contains(&self, rule: u32) -> bool {
        self.rules.iter().chain(&self.by_address).any(|(_, r)| *r == rule)
    }
}

/// A set on one buffer of transactions.
pub struct TxSet {
    /// Buffer.
    pub buffer: u16,
    /// Its entry in the protocol's table.
    pub spec: &'static BufferSpec,
    /// A check with the transforms that precede the scan.
    pub transforms: Vec<Arc<dyn Transform>>,
    /// The literals.
    pub set: Arc<Set>,
}

/// Rules on the transactions of one protocol and direction.
#[derive(Default)]
pub struct TxRules {
    /// Sets, by the progress at which their buffer is complete.
    pub sets: Vec<TxSet>,
    /// Rules without a literal.
    pub always: Always,
    /// Rules whose literal is looked for in a growing value of a transaction and that want something of the
    /// stream as well: what is shown of it is held against them, whether the literal is there by then or not.
    pub beside_stream: Always,
    /// What these two ask of a transaction.
    pub guards: Vec<Guard>,
}

impl TxRules {
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.always.is_empty()
    }
}

/// Rules on transactions, by protocol and direction.
#[derive(Default)]
pub struct PerProtocol(pub(crate) Vec<PerDirection<TxRules>>);

impl PerProtocol {
    /// Of a protocol's transactions in a direction. `None`: there are none.
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
    /// Rules that look at the payloads of packets: by IP protocol class and direction.
    pub payloads: PerClass<PayloadSets>,
    /// Stream data by direction.
    pub stream: PerDirection<StreamSets>,
    /// Packet buffers.
    pub packet_buffers: Vec<(u16, Set)>,
    /// Rules on packets without literal or key, by class and direction.
    pub packet_always: PerClass<Always>,
    /// Those of their heads that are found by an address.
    pub by_address: ByAddress,
    /// Rules on streams without literal.
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

    /// Finds rules on packets by an address where their heads can be.
    pub(crate) fn set_apart(&mut self, by_address: ByAddress) {
        for both in &mut self.packet_always.values {
            both.to_server.set_apart(&by_address);
            both.to_client.set_apart(&by_address);
        }
        self.by_address = by_address;
    }

    /// Whether a rule looks at TCP segments in order and without events by themselves, not only at their
    /// stream.
    #[must_use]
    pub fn looks_at_segments(&self) -> bool {
        let always = self.packet_always.get(ProtocolClass::Tcp);
        let payloads = self.payloads.get(ProtocolClass::Tcp);
        !self.packet_buffers.is_empty()
            || Direction::BOTH.into_iter().any(|d| !always[d].is_empty() || payloads[d].looks_at_each())
    }
}

/// What packets are grouped by before their flow's direction is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolClass {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP, ICMPv6.
    Icmp,
    /// Everything else.
    Other,
}

impl ProtocolClass {
    /// All of them.
    pub const ALL: [ProtocolClass; 4] =
        [ProtocolClass::Tcp, ProtocolClass::Udp, ProtocolClass::Icmp, ProtocolClass::Other];

    /// Of an IP protocol number.
    #[must_use]
    pub const fn of(protocol: Option<u8>) -> Self {
        match protocol {
            Some(6) => ProtocolClass::Tcp,
            Some(17) => ProtocolClass::Udp,
            Some(1 | 58) => ProtocolClass::Icmp,
            _ => ProtocolClass::Other,
        }
    }

    /// Whether a rule with these IP protocols is about packets of this class.
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
    /// Of a class.
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

/// Payloads of up to so many bytes are searched once for everything.
pub(crate) const SHORT_MAX: usize = 512;

/// The literals of rules on streams, by where they can lie in what is shown.
#[derive(Default)]
pub struct StreamSets {
    /// Those that lie near the beginning of what is shown.
    pub head: Option<HeadSet>,
    /// Those that may lie anywhere.
    pub whole: Option<Set>,
}

/// Literals that lie near the beginning.
pub struct HeadSet {
    pub(crate) set: Set,
    /// So many bytes are scanned.
    pub(crate) within: usize,
}

/// The literals of rules on the payloads of packets, by where they can lie. A payload is searched for one of
/// them, or for those near its beginning and one more.
#[derive(Default)]
pub struct PayloadSets {
    /// Payloads of up to [`SHORT_MAX`] bytes: all literals of rules on each packet.
    pub(crate) short: Vec<Set>,
    /// The same, and those of rules that look at a packet only where its payload is no part of the stream; if
    /// there are some.
    pub(crate) short_outside: Vec<Set>,
    /// Longer payloads: what lies near the beginning.
    pub(crate) head: Option<HeadSet>,
    /// Longer payloads: what may lie elsewhere.
    pub(crate) whole: Vec<Set>,
    /// The same, and those of rules that look at a packet only where its payload is no part of the stream; if
    /// there are some.
    pub(crate) outside: Vec<Set>,
}

impl PayloadSets {
    /// Whether a rule looks at each packet.
    #[must_use]
    pub const fn looks_at_each(&self) -> bool {
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

/// Directions in which the transactions of a protocol concern a check.
#[must_use]
pub fn check_directions(check: &ValueCheck, spec: &BufferSpec) -> PerDirection<bool> {
    let wanted = |d| check.direction.is_none_or(|only| only == d);
    PerDirection::new(
        spec.directions.to_server && wanted(Direction::ToServer),
        spec.directions.to_client && wanted(Direction::ToClient),
    )
}
