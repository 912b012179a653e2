// SPDX-License-Identifier: Apache-2.0
//! Which rules are worth evaluating for a packet or transaction.
//!
//! A prefilter must have **no false negatives**: a rule whose conditions hold must be among the candidates. Each rule
//! has at most one fast pattern, a literal that must occur in one buffer; the literals of all rules of a buffer are
//! one set, scanned once. Rules without a literal are found by a cheap property ([`PrefilterKey`]) or are always
//! candidates.

use crate::compile::groups::Group;
use crate::compile::payloads::{PayloadCollector, PayloadSets, StreamCollector, StreamSets};
use crate::engine::candidates::{Candidates, Collector, Set};
use crate::model::basis::{Basis, Packets};
use crate::model::buffers::{BufferRef, Buffers};
use crate::model::condition::PrefilterKey;
use crate::model::signature::{FlowNeeds, Member, Signature, ValueCheck};
use bartizan_applayer::protocol::{BufferSpec, ProtocolId};
use bartizan_base::{Direction, PerDirection};
use bartizan_pattern::{BuildError, Compiler};
use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Rules that are candidates without a literal: all those whose head the packets of the flow can meet.
#[derive(Default)]
pub struct Always {
    /// Head and rule, sorted.
    rules: Vec<(u32, u32)>,
    /// 64 heads: their word, those that have rules, and where the rules of the first of these stand.
    words: Vec<(u32, u64, u32)>,
}

impl Always {
    fn push(&mut self, head: u32, rule: u32) {
        self.rules.push((head, rule));
    }

    /// To be called when all rules are there.
    fn finish(&mut self) {
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

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a rule is among them.
    #[must_use]
    pub fn contains(&self, rule: u32) -> bool {
        self.rules.iter().any(|(_, r)| *r == rule)
    }

    /// Adds those of a flow's group to `candidates`; without a group all.
    pub fn add_to(&self, group: Option<Group<'_>>, candidates: &mut Candidates) {
        for (word, heads, first) in &self.words {
            let met = group.map_or(u64::MAX, |g| g.word(*word)) & heads;
            if met == 0 {
                continue;
            }
            let rules = self.rules.get(*first as usize..).unwrap_or_default();
            for (head, rule) in rules.iter().take_while(|(head, _)| head / 64 == *word) {
                if met >> (head % 64) & 1 == 1 {
                    candidates.add(*rule);
                }
            }
        }
    }
}

/// A set on one buffer of transactions.
pub struct TxSet {
    /// Buffer.
    pub buffer: u16,
    /// Its entry in the protocol's table.
    pub spec: &'static BufferSpec,
    /// A check with the transforms that precede the scan.
    pub transforms: Vec<Arc<dyn crate::model::condition::Transform>>,
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
    /// Rules whose literal is looked for in a growing value of a transaction and that want something of the stream as well: what is shown
    /// of it is held against them, whether the literal is there by then or not.
    pub beside_stream: Always,
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
pub struct PerProtocol(Vec<PerDirection<TxRules>>);

impl PerProtocol {
    /// Of a protocol's transactions in a direction. `None`: there are none.
    #[must_use]
    pub fn of(&self, protocol: ProtocolId, direction: Direction) -> Option<&TxRules> {
        self.0.get(usize::from(protocol.0)).map(|both| &both[direction])
    }

    /// Changes the rules on a protocol's transactions in a direction.
    fn change(&mut self, protocol: ProtocolId, direction: Direction, change: impl FnOnce(&mut TxRules)) {
        let index = usize::from(protocol.0);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, PerDirection::default);
        }
        if let Some(both) = self.0.get_mut(index) {
            change(&mut both[direction]);
        }
    }
}

/// The keys of a packet.
pub struct PrefilterKeys;

impl PrefilterKeys {
    /// Decode events, stream events and the ICMP type of a packet.
    pub fn of<'k>(
        packet: &'k bartizan_packet::PacketView<'_>,
        stream_events: &'k [bartizan_flow::tcp::StreamEvent],
    ) -> impl Iterator<Item = PrefilterKey> + 'k {
        let decoded = packet.decoded();
        let icmp = match &decoded.transport {
            bartizan_packet::Transport::Icmp(icmp) | bartizan_packet::Transport::Icmpv6(icmp) => {
                Some(PrefilterKey::IcmpType(icmp.kind))
            }
            _ => None,
        };
        decoded
            .events
            .as_slice()
            .iter()
            .map(|event| PrefilterKey::DecodeEvent(*event as u16))
            .chain(stream_events.iter().map(|event| PrefilterKey::StreamEvent(*event as u16)))
            .chain(icmp)
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
    /// Whether a rule looks at TCP segments in order and without events by themselves, not only at their stream.
    #[must_use]
    pub fn looks_at_segments(&self) -> bool {
        let always = self.packet_always.get(Class::Tcp);
        let payloads = self.payloads.get(Class::Tcp);
        !self.packet_buffers.is_empty()
            || Direction::BOTH.into_iter().any(|d| !always[d].is_empty() || payloads[d].looks_at_each())
    }
}

/// What packets are grouped by before their flow's direction is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP, ICMPv6.
    Icmp,
    /// Everything else.
    Other,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 4] = [Class::Tcp, Class::Udp, Class::Icmp, Class::Other];

    /// Of an IP protocol number.
    #[must_use]
    pub const fn of(protocol: Option<u8>) -> Self {
        match protocol {
            Some(6) => Class::Tcp,
            Some(17) => Class::Udp,
            Some(1 | 58) => Class::Icmp,
            _ => Class::Other,
        }
    }

    /// Whether a rule with these IP protocols is about packets of this class.
    fn covers(self, protocols: &[u8]) -> bool {
        protocols.is_empty() || protocols.iter().any(|p| Class::of(Some(*p)) == self)
    }
}

/// A value for each class and direction.
#[derive(Default)]
pub struct PerClass<T> {
    values: [PerDirection<T>; 4],
}

impl<T> PerClass<T> {
    /// Of a class.
    #[must_use]
    pub fn get(&self, class: Class) -> &PerDirection<T> {
        let [tcp, udp, icmp, other] = &self.values;
        match class {
            Class::Tcp => tcp,
            Class::Udp => udp,
            Class::Icmp => icmp,
            Class::Other => other,
        }
    }

    fn get_mut(&mut self, class: Class) -> &mut PerDirection<T> {
        let [tcp, udp, icmp, other] = &mut self.values;
        match class {
            Class::Tcp => tcp,
            Class::Udp => udp,
            Class::Icmp => icmp,
            Class::Other => other,
        }
    }
}

/// Identity of a transaction set: protocol, direction, buffer, transforms.
type TxKey = (u8, u8, u16, String);

/// Builds the prefilters of a rule set.
///
/// # Errors
/// A pattern engine cannot compile a set of literals.
pub fn build(
    signatures: &[Member],
    buffers: &Buffers,
    compiler: &Compiler,
) -> Result<Prefilters, BuildError> {
    let mut prefilters = Prefilters::default();
    let mut payloads: PerClass<PayloadCollector> = PerClass::default();
    let mut stream: PerDirection<StreamCollector> = PerDirection::default();
    let mut packet_buffers: BTreeMap<u16, Collector> = BTreeMap::new();
    let mut tx: BTreeMap<TxKey, (Collector, &ValueCheck)> = BTreeMap::new();
    for (index, signature) in signatures.iter().enumerate() {
        let index = index as u32;
        if signature.inspects_frames() {
            add_frames(&mut prefilters, buffers, signature, index);
            continue;
        }
        if signature.inspects_tx() {
            add_tx(&mut prefilters, &mut tx, buffers, signature, index);
            continue;
        }
        let basis = Basis::of(signature);
        let fast_on =
            signature.fast_pattern.as_ref().and_then(|f| signature.values.get(f.value)).map(|v| v.buffer);
        let key = signature.packet.iter().find_map(|c| c.prefilter());
        for direction in directions(signature) {
            if basis.stream {
                match fast_on {
                    Some(BufferRef::Payload) => stream[direction].add(signature, index),
                    _ => prefilters.stream_always[direction].push(signature.head, index),
                }
            }
            if basis.packets == Packets::None {
                continue;
            }
            match (fast_on, key) {
                (Some(BufferRef::Payload), _) => {
                    for class in Class::ALL.into_iter().filter(|c| c.covers(&signature.protocol.ip)) {
                        // Only TCP has streams.
                        let packets = if class == Class::Tcp { basis.packets } else { Packets::All };
                        payloads.get_mut(class)[direction].add(signature, index, packets);
                    }
                }
                (Some(BufferRef::Packet(buffer)), _) => {
                    let set = packet_buffers.entry(buffer).or_default();
                    if direction == Direction::ToServer
                        || !directions(signature).contains(&Direction::ToServer)
                    {
                        set.add(signature, index);
                    }
                }
                (_, Some(key)) => {
                    let rules = prefilters.by_key.entry(key).or_default();
                    if rules.last() != Some(&index) {
                        rules.push(index);
                    }
                }
                _ => {
                    for class in Class::ALL.into_iter().filter(|c| c.covers(&signature.protocol.ip)) {
                        prefilters.packet_always.get_mut(class)[direction].push(signature.head, index);
                    }
                }
            }
        }
    }
    for (class, mut both) in Class::ALL.into_iter().zip(payloads.values) {
        for direction in Direction::BOTH {
            prefilters.payloads.get_mut(class)[direction] =
                core::mem::take(&mut both[direction]).build(compiler)?;
        }
    }
    for direction in Direction::BOTH {
        prefilters.stream[direction] = core::mem::take(&mut stream[direction]).build(compiler)?;
    }
    for (buffer, collector) in packet_buffers {
        if let Some(set) = collector.build(compiler)? {
            prefilters.packet_buffers.push((buffer, set));
        }
    }
    build_tx(&mut prefilters, tx, buffers, compiler)?;
    for direction in Direction::BOTH {
        prefilters.stream_always[direction].finish();
        for class in Class::ALL {
            prefilters.packet_always.get_mut(class)[direction].finish();
        }
        prefilters.tx.0.iter_mut().for_each(|both| {
            both[direction].always.finish();
            both[direction].beside_stream.finish();
        });
    }
    Ok(prefilters)
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

fn transforms_key(check: &ValueCheck) -> String {
    check.transforms.iter().map(|t| t.key()).collect::<Vec<_>>().join("|")
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

/// A rule on frames is asked for frames of each kind that it names.
fn add_frames(prefilters: &mut Prefilters, buffers: &Buffers, signature: &Member, index: u32) {
    for value in &signature.values {
        let BufferRef::Frame(frame) = value.buffer else { continue };
        let Some(frame) = buffers.frame(frame) else { continue };
        let rules = prefilters.frames.entry((frame.protocol, frame.kind)).or_default();
        for direction in directions(signature) {
            if rules[direction].last() != Some(&index) {
                rules[direction].push(index);
            }
        }
    }
}

fn add_tx<'s>(
    prefilters: &mut Prefilters,
    tx: &mut BTreeMap<TxKey, (Collector, &'s ValueCheck)>,
    buffers: &Buffers,
    signature: &'s Member,
    index: u32,
) {
    let fast = signature.fast_pattern.as_ref().and_then(|f| signature.values.get(f.value));
    for protocol in protocols_of(signature, buffers) {
        let mut placed = false;
        if let Some(check) = fast
            && let BufferRef::Tx(buffer) = check.buffer
            && let Some(spec) = buffers.tx(buffer).and_then(|b| b.of(protocol))
        {
            let which = check_directions(check, spec);
            // What does not grow is there, or not, when the stream is shown.
            let on_stream =
                spec.kind.grows() && signature.values.iter().any(|value| value.buffer == BufferRef::Payload);
            for direction in Direction::BOTH.into_iter().filter(|d| which[*d]) {
                if on_stream {
                    let add = |rules: &mut TxRules| rules.beside_stream.push(signature.head, index);
                    prefilters.tx.change(protocol, direction, add);
                }
                let buffer = searched_as(buffers, buffer, spec, direction);
                let key = (protocol.0, direction as u8, buffer, transforms_key(check));
                tx.entry(key).or_insert_with(|| (Collector::default(), check)).0.add(signature, index);
                placed = true;
            }
        }
        if !placed {
            for direction in directions(signature) {
                prefilters.tx.change(protocol, direction, |rules| rules.always.push(signature.head, index));
            }
        }
    }
}

/// The buffer in which a buffer's literals are searched for: one search does for two names of the same bytes.
fn searched_as(buffers: &Buffers, buffer: u16, spec: &BufferSpec, direction: Direction) -> u16 {
    match spec.to_client_as.filter(|_| direction == Direction::ToClient).and_then(|name| buffers.find(name)) {
        Some(BufferRef::Tx(other)) => other,
        _ => buffer,
    }
}

/// The protocols whose transactions a rule looks at.
fn protocols_of(signature: &Signature, buffers: &Buffers) -> Vec<ProtocolId> {
    if !signature.protocol.app.is_empty() {
        return signature.protocol.app.clone();
    }
    let mut all: Vec<ProtocolId> = Vec::new();
    for value in &signature.values {
        if let BufferRef::Tx(buffer) = value.buffer {
            all.extend(buffers.tx(buffer).into_iter().flat_map(|b| b.providers.iter().map(|(p, _)| *p)));
        }
    }
    for check in &signature.tx {
        if check.protocols.is_empty() {
            all.extend((0..bartizan_applayer::protocols::TABLE.len()).map(|i| ProtocolId(i as u8)));
        }
        all.extend(&check.protocols);
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn build_tx(
    prefilters: &mut Prefilters,
    tx: BTreeMap<TxKey, (Collector, &ValueCheck)>,
    buffers: &Buffers,
    compiler: &Compiler,
) -> Result<(), BuildError> {
    for ((protocol, direction, buffer, _), (collector, check)) in tx {
        let protocol = ProtocolId(protocol);
        let direction = if direction == 0 { Direction::ToServer } else { Direction::ToClient };
        let Some(spec) = buffers.tx(buffer).and_then(|b| b.of(protocol)) else { continue };
        let Some(set) = collector.build(compiler)? else { continue };
        let set = TxSet { buffer, spec, transforms: check.transforms.clone(), set: Arc::new(set) };
        prefilters.tx.change(protocol, direction, |rules| rules.sets.push(set));
    }
    for both in &mut prefilters.tx.0 {
        for direction in Direction::BOTH {
            both[direction].sets.sort_by_key(|s| s.spec.ready);
        }
    }
    Ok(())
}
