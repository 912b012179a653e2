// SPDX-License-Identifier: Apache-2.0
//! Which rules are worth evaluating for a packet or transaction.
//!
//! A prefilter must have **no false negatives**: a rule whose conditions hold must be among the candidates. Each rule
//! has at most one fast pattern, a literal that must occur in one buffer; the literals of all rules of a buffer are
//! one set, scanned once. Rules without a literal are found by a cheap property ([`PrefilterKey`]) or are always
//! candidates.

use crate::buffers::{BufferRef, Buffers};
use crate::condition::PrefilterKey;
use crate::content::{Literal, Number};
use crate::groups::Group;
use crate::signature::{FlowNeeds, Signature, ValueCheck};
use bartizan_applayer::protocol::{BufferSpec, ProtocolId};
use bartizan_base::{Direction, PerDirection};
use bartizan_pattern::{BuildError, Compiler, Matches, Pattern, PatternSet};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Literals of one buffer and the rules behind each.
pub struct Set {
    set: PatternSet,
    /// Rules of each literal, by its number in the set.
    rules: Vec<Vec<u32>>,
}

impl Set {
    /// Compiles literals, each with its caselessness and the rules behind it.
    pub(crate) fn new(
        literals: BTreeMap<(Vec<u8>, bool), Vec<u32>>,
        compiler: &Compiler,
    ) -> Result<Self, BuildError> {
        let patterns: Vec<Pattern<'_>> = literals
            .keys()
            .enumerate()
            .map(|(number, (bytes, nocase))| Pattern { id: number as u32, bytes, nocase: *nocase })
            .collect();
        let set = compiler.pattern_set(&patterns, Matches::First)?;
        Ok(Set { set, rules: literals.into_values().collect() })
    }

    /// Adds the rules whose literal occurs to `candidates`.
    pub fn scan(&self, scratch: &mut bartizan_pattern::Scratch, data: &[u8], candidates: &mut Candidates) {
        if !self.literals_in(scratch, data, |literal| candidates.extend(self.rules_of(literal))) {
            self.every_rule(candidates);
        }
    }

    /// Calls `found` with each literal that occurs, by its number in the set. `false`: the scan failed (no scratch
    /// memory), and in order not to lose rules every one is a candidate.
    pub(crate) fn literals_in(
        &self,
        scratch: &mut bartizan_pattern::Scratch,
        data: &[u8],
        mut found: impl FnMut(u32),
    ) -> bool {
        let scanned = self.set.scan(scratch, data, |literal, _end| {
            found(literal);
            true
        });
        scanned.is_ok()
    }

    /// The rules behind a literal.
    pub(crate) fn rules_of(&self, literal: u32) -> &[u32] {
        self.rules.get(literal as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds all rules to `candidates`.
    pub(crate) fn every_rule(&self, candidates: &mut Candidates) {
        self.rules.iter().for_each(|rules| candidates.extend(rules));
    }

    /// Length of the longest literal: how far a scan of a growing value must reach back.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.set.longest()
    }
}

/// Rules worth evaluating, each once, in the order of evaluation after [`Candidates::sorted`].
#[derive(Debug, Default)]
pub struct Candidates {
    list: Vec<u32>,
    seen: Vec<u64>,
}

impl Candidates {
    /// Makes room for so many rules.
    pub fn reserve(&mut self, rules: usize) {
        self.seen.resize(rules.div_ceil(64), 0);
        self.list.reserve(64);
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: u32) {
        let word = (rule / 64) as usize;
        let bit = 1u64 << (rule % 64);
        if let Some(word) = self.seen.get_mut(word)
            && *word & bit == 0
        {
            *word |= bit;
            self.list.push(rule);
        }
    }

    /// Adds rules.
    pub fn extend(&mut self, rules: &[u32]) {
        for rule in rules {
            self.add(*rule);
        }
    }

    /// Whether a rule is among them.
    #[must_use]
    pub fn contains(&self, rule: u32) -> bool {
        self.seen.get((rule / 64) as usize).is_some_and(|w| w & 1 << (rule % 64) != 0)
    }

    /// The rules in the order of evaluation.
    pub fn sorted(&mut self) -> &[u32] {
        self.list.sort_unstable();
        &self.list
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        for rule in self.list.drain(..) {
            if let Some(word) = self.seen.get_mut((rule / 64) as usize) {
                *word = 0;
            }
        }
    }
}

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
    pub transforms: Vec<Arc<dyn crate::condition::Transform>>,
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

/// Literals that lie near the beginning of payloads.
pub struct HeadSet {
    set: Set,
    /// So many bytes are scanned.
    within: usize,
}

impl HeadSet {
    /// Adds the rules whose literal occurs at the beginning of a payload to `candidates`.
    pub fn scan(&self, scratch: &mut bartizan_pattern::Scratch, payload: &[u8], candidates: &mut Candidates) {
        self.set.scan(scratch, payload.get(..self.within).unwrap_or(payload), candidates);
    }
}

/// All prefilters of a rule set.
#[derive(Default)]
pub struct Prefilters {
    /// Rules that look at the payloads of packets: by IP protocol class and direction.
    pub packet_payload: PerClass<Option<Set>>,
    /// Rules that look at the payload of a TCP segment only where it is no part of the stream: by direction.
    pub segment_payload: PerDirection<Option<Set>>,
    /// Rules that look at each TCP segment, by literals that lie near its beginning: by direction.
    pub segment_head: PerDirection<Option<HeadSet>>,
    /// Stream data by direction.
    pub stream: PerDirection<Option<Set>>,
    /// Packet buffers.
    pub packet_buffers: Vec<(u16, Set)>,
    /// Rules on packets without literal or key, by class and direction.
    pub packet_always: PerClass<Always>,
    /// Rules on streams without literal.
    pub stream_always: PerDirection<Always>,
    /// Rules found by a property of the packet.
    pub by_key: HashMap<PrefilterKey, Vec<u32>>,
    /// Rules on transactions.
    pub tx: PerProtocol,
}

impl Prefilters {
    /// Whether a rule looks at TCP segments in order and without events by themselves, not only at their stream.
    #[must_use]
    pub fn looks_at_segments(&self) -> bool {
        let always = self.packet_always.get(Class::Tcp);
        let payload = self.packet_payload.get(Class::Tcp);
        !self.packet_buffers.is_empty()
            || Direction::BOTH
                .into_iter()
                .any(|d| !always[d].is_empty() || payload[d].is_some() || self.segment_head[d].is_some())
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

/// Which packets a rule on packets and streams is evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// None: it looks at the stream only.
    None,
    /// Those whose payload is no part of the stream, as before the handshake is complete.
    OutsideStream,
    /// Each.
    All,
}

/// What a rule on packets and streams is evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// Packets one by one.
    pub packets: Packets,
    /// The reassembled stream.
    pub stream: bool,
}

impl Basis {
    /// Of a rule. As in Suricata, a TCP rule with payload looks
    ///
    /// * at packets only, if it asks for something that only a packet has (`dsize`, `flags`, `tcp-pkt`);
    /// * at the stream and at each packet, if a content has a place counted from the beginning (`depth`, `offset`,
    ///   `startswith`), or `stream_size` is asked for: where a message begins, a segment most often does, too;
    /// * else at the stream, and at what never became part of it.
    #[must_use]
    pub fn of(signature: &Signature) -> Basis {
        let payload = signature.values.iter().any(|v| v.buffer == BufferRef::Payload);
        let tcp = signature.protocol.ip.is_empty() || signature.protocol.ip.contains(&6);
        if !payload || !tcp || signature.protocol.packet_only || signature.flow.contains(FlowNeeds::NO_STREAM)
        {
            return Basis { packets: Packets::All, stream: false };
        }
        if signature.protocol.stream_only || signature.flow.contains(FlowNeeds::ONLY_STREAM) {
            return Basis { packets: Packets::None, stream: true };
        }
        let packet_bound = signature.packet.iter().any(|c| c.needs_packet())
            || signature.values.iter().any(|v| matches!(v.buffer, BufferRef::Packet(_)));
        if packet_bound {
            return Basis { packets: Packets::All, stream: false };
        }
        let placed = payload_literals(signature)
            .any(|literal| literal.place.depth.is_some() || literal.place.offset.is_some());
        let both = placed || signature.packet.iter().any(|c| c.wants_packets_too());
        Basis { packets: if both { Packets::All } else { Packets::OutsideStream }, stream: true }
    }
}

/// The contents that a rule looks for in payloads.
fn payload_literals(signature: &Signature) -> impl Iterator<Item = &Literal> {
    let payload = signature.values.iter().filter(|v| v.buffer == BufferRef::Payload);
    payload.flat_map(|v| v.program.literals().map(|(_, literal)| literal))
}

/// A literal that lies near the beginning of each payload that a rule matches on.
struct Heading<'s> {
    literal: &'s Literal,
    /// It lies in so many bytes from the beginning.
    within: usize,
}

/// Payloads are scanned from their beginning so far for [`Heading`]s.
const HEADING_MAX: usize = 128;
/// Shorter literals would make too many candidates.
const HEADING_BYTES: usize = 3;

impl<'s> Heading<'s> {
    /// The longest of a rule.
    fn of(signature: &'s Signature) -> Option<Self> {
        let constant = |number: Option<Number>, absent: usize| match number {
            Some(Number::Constant(value)) => usize::try_from(value).ok(),
            Some(Number::Variable(_)) => None,
            None => Some(absent),
        };
        // With `fast_pattern:only` what the prefilter found is not looked for again.
        if payload_literals(signature).any(|literal| literal.fast_pattern_only) {
            return None;
        }
        payload_literals(signature)
            .filter(|literal| !literal.negated && !literal.is_relative() && literal.place.depth.is_some())
            .filter_map(|literal| {
                let offset = constant(literal.place.offset, 0)?;
                let within = offset.checked_add(constant(literal.place.depth, 0)?)?;
                (within <= HEADING_MAX).then_some(Heading { literal, within })
            })
            .filter(|heading| heading.literal.bytes.len() >= HEADING_BYTES)
            .max_by_key(|heading| heading.literal.bytes.len())
    }
}

#[derive(Default)]
struct Collector {
    /// Literal (bytes, nocase) to rules.
    literals: BTreeMap<(Vec<u8>, bool), Vec<u32>>,
}

impl Collector {
    fn add(&mut self, signature: &Signature, index: u32) {
        if let Some(fast) = &signature.fast_pattern {
            self.literals.entry((fast.bytes.to_vec(), fast.nocase)).or_default().push(index);
        }
    }

    fn add_literal(&mut self, literal: &Literal, index: u32) {
        self.literals.entry((literal.bytes.to_vec(), literal.nocase)).or_default().push(index);
    }

    fn build(self, compiler: &Compiler) -> Result<Option<Set>, BuildError> {
        if self.literals.is_empty() {
            return Ok(None);
        }
        Set::new(self.literals, compiler).map(Some)
    }
}

/// Identity of a transaction set: protocol, direction, buffer, transforms.
type TxKey = (u8, u8, u16, String);

/// Builds the prefilters of a rule set.
///
/// # Errors
/// A pattern engine cannot compile a set of literals.
pub fn build(
    signatures: &[Signature],
    buffers: &Buffers,
    compiler: &Compiler,
) -> Result<Prefilters, BuildError> {
    let mut prefilters = Prefilters::default();
    let mut payload: PerClass<Collector> = PerClass::default();
    let mut segments: PerDirection<Collector> = PerDirection::default();
    let mut heads: PerDirection<(Collector, usize)> = PerDirection::default();
    let mut stream: PerDirection<Collector> = PerDirection::default();
    let mut packet_buffers: BTreeMap<u16, Collector> = BTreeMap::new();
    let mut tx: BTreeMap<TxKey, (Collector, &ValueCheck)> = BTreeMap::new();
    for (index, signature) in signatures.iter().enumerate() {
        let index = index as u32;
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
                        match (class == Class::Tcp && basis.stream, basis.packets, Heading::of(signature)) {
                            (true, Packets::OutsideStream, _) => segments[direction].add(signature, index),
                            (true, _, Some(heading)) => {
                                let (collector, within) = &mut heads[direction];
                                collector.add_literal(heading.literal, index);
                                *within = heading.within.max(*within);
                            }
                            _ => payload.get_mut(class)[direction].add(signature, index),
                        }
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
    for (class, mut both) in Class::ALL.into_iter().zip(payload.values) {
        for direction in Direction::BOTH {
            prefilters.packet_payload.get_mut(class)[direction] =
                core::mem::take(&mut both[direction]).build(compiler)?;
        }
    }
    for direction in Direction::BOTH {
        prefilters.segment_payload[direction] = core::mem::take(&mut segments[direction]).build(compiler)?;
        prefilters.stream[direction] = core::mem::take(&mut stream[direction]).build(compiler)?;
        let (collector, within) = core::mem::take(&mut heads[direction]);
        prefilters.segment_head[direction] = collector.build(compiler)?.map(|set| HeadSet { set, within });
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
        prefilters.tx.0.iter_mut().for_each(|both| both[direction].always.finish());
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

fn add_tx<'s>(
    prefilters: &mut Prefilters,
    tx: &mut BTreeMap<TxKey, (Collector, &'s ValueCheck)>,
    buffers: &Buffers,
    signature: &'s Signature,
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
            for direction in Direction::BOTH.into_iter().filter(|d| which[*d]) {
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
