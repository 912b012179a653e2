// SPDX-License-Identifier: Apache-2.0
//! Builds the prefilters of a rule set, which find the rules worth evaluating for a packet or transaction.
//!
//! A prefilter must have **no false negatives**: a rule whose conditions hold must be among the candidates.
//! Each rule has at most one fast pattern, a literal that must occur in one buffer; the literals of all rules
//! of a buffer are one set, scanned once. Rules without a literal have a prefilter key (a property of the
//! packet) or are always candidates.

use crate::compile::addresses;
use crate::compile::guards;
use crate::compile::literals::LiteralCollector;
use crate::compile::payloads::{PayloadCollector, StreamCollector};
use crate::model::basis::{Basis, Packets};
use crate::model::buffers::{BufferRef, Buffers};
use crate::model::heads::Heads;
use crate::model::prefilter::{
    PerClass, Prefilters, ProtocolClass, TxRules, TxSet, check_directions, directions,
};
use crate::model::signature::{Member, Signature, ValueCheck};
use bartizan_applayer::protocol::{BufferSpec, ProtocolId};
use bartizan_base::{Direction, PerDirection};
use bartizan_pattern::{BuildError, Compiler};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Identity of a transaction set: protocol, direction, buffer, transforms.
type TxKey = (u8, u8, u16, String);

/// Builds the prefilters of a rule set.
///
/// # Errors
/// A pattern engine cannot compile a set of literals.
pub fn build(
    signatures: &[Member],
    heads: &Heads,
    buffers: &Buffers,
    compiler: &Compiler,
) -> Result<Prefilters, BuildError> {
    let mut prefilters = Prefilters::default();
    let mut literals = PacketLiterals::default();
    let mut tx: BTreeMap<TxKey, (LiteralCollector, &ValueCheck)> = BTreeMap::new();
    for (index, signature) in signatures.iter().enumerate() {
        let index = index as u32;
        if signature.inspects_frames() {
            add_frames(&mut prefilters, buffers, signature, index);
        } else if signature.inspects_tx() {
            add_tx(&mut prefilters, &mut tx, buffers, signature, index);
        } else {
            literals.add(&mut prefilters, signature, index);
        }
    }
    literals.build(&mut prefilters, compiler)?;
    build_tx(&mut prefilters, tx, buffers, compiler)?;
    for direction in Direction::BOTH {
        prefilters.stream_always[direction].finish();
        for class in ProtocolClass::ALL {
            prefilters.packet_always.get_mut(class)[direction].finish();
        }
        for (protocol, both) in prefilters.tx.0.iter_mut().enumerate() {
            let rules = &mut both[direction];
            rules.always.finish();
            rules.beside_stream.finish();
            guards::add(rules, signatures, buffers, ProtocolId(protocol as u8), direction);
        }
    }
    let by_address = addresses::build(heads, &prefilters.heads_without_literal());
    prefilters.set_apart(by_address);
    Ok(prefilters)
}

/// Literals of the rules on packets and streams.
#[derive(Default)]
struct PacketLiterals {
    payloads: PerClass<PayloadCollector>,
    stream: PerDirection<StreamCollector>,
    packet_buffers: BTreeMap<u16, LiteralCollector>,
}

impl PacketLiterals {
    /// Adds a rule; one without a literal goes straight into the prefilters.
    fn add(&mut self, prefilters: &mut Prefilters, signature: &Member, index: u32) {
        let basis = Basis::of(signature);
        let fast_on =
            signature.fast_pattern.as_ref().and_then(|f| signature.values.get(f.value)).map(|v| v.buffer);
        for direction in directions(signature) {
            if basis.stream {
                match fast_on {
                    Some(BufferRef::Payload) => self.stream[direction].add(signature, index),
                    _ => prefilters.stream_always[direction].push(signature.head, index),
                }
            }
            if basis.packets != Packets::None {
                self.add_on_packets(prefilters, signature, index, direction, basis.packets, fast_on);
            }
        }
    }

    fn add_on_packets(
        &mut self,
        prefilters: &mut Prefilters,
        signature: &Member,
        index: u32,
        direction: Direction,
        packets: Packets,
        fast_on: Option<BufferRef>,
    ) {
        let classes = || ProtocolClass::ALL.into_iter().filter(|c| c.covers(&signature.protocol.ip));
        let key = signature.packet.iter().find_map(|c| c.prefilter());
        match (fast_on, key) {
            (Some(BufferRef::Payload), _) => {
                for class in classes() {
                    // Only TCP has streams.
                    let packets = if class == ProtocolClass::Tcp { packets } else { Packets::All };
                    self.payloads.get_mut(class)[direction].add(signature, index, packets);
                }
            }
            (Some(BufferRef::Packet(buffer)), _) => {
                let set = self.packet_buffers.entry(buffer).or_default();
                if direction == Direction::ToServer || !directions(signature).contains(&Direction::ToServer) {
                    set.add(signature, index);
                }
            }
            (_, Some(key)) => {
                let rules = prefilters.by_key.entry(key).or_default();
                if rules.last() != Some(&index) {
                    rules.push(index);
                }
            }
            _ => classes().for_each(|class| {
                prefilters.packet_always.get_mut(class)[direction].push(signature.head, index);
            }),
        }
    }

    /// Compiles the literals.
    fn build(mut self, prefilters: &mut Prefilters, compiler: &Compiler) -> Result<(), BuildError> {
        for (class, mut both) in ProtocolClass::ALL.into_iter().zip(self.payloads.values) {
            for direction in Direction::BOTH {
                prefilters.payloads.get_mut(class)[direction] =
                    core::mem::take(&mut both[direction]).build(compiler)?;
            }
        }
        for direction in Direction::BOTH {
            prefilters.stream[direction] = core::mem::take(&mut self.stream[direction]).build(compiler)?;
        }
        for (buffer, collector) in self.packet_buffers {
            if let Some(set) = collector.build(compiler)? {
                prefilters.packet_buffers.push((buffer, set));
            }
        }
        Ok(())
    }
}

fn transforms_key(check: &ValueCheck) -> String {
    check.transforms.iter().map(|t| t.key()).collect::<Vec<_>>().join("|")
}

/// Adds a rule on frames to the candidates of each frame kind that it names.
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
    tx: &mut BTreeMap<TxKey, (LiteralCollector, &'s ValueCheck)>,
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
            // A value that does not grow is present or absent when the stream is inspected.
            let on_stream =
                spec.kind.grows() && signature.values.iter().any(|value| value.buffer == BufferRef::Payload);
            for direction in Direction::BOTH.into_iter().filter(|d| which[*d]) {
                if on_stream {
                    let add = |rules: &mut TxRules| rules.beside_stream.push(signature.head, index);
                    prefilters.tx.change(protocol, direction, add);
                }
                let buffer = searched_as(buffers, buffer, spec, direction);
                let key = (protocol.0, direction as u8, buffer, transforms_key(check));
                tx.entry(key).or_insert_with(|| (LiteralCollector::default(), check)).0.add(signature, index);
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

/// The buffer in which a buffer's literals are searched: buffers that name the same bytes share one search.
fn searched_as(buffers: &Buffers, buffer: u16, spec: &BufferSpec, direction: Direction) -> u16 {
    match spec.to_client_as.filter(|_| direction == Direction::ToClient).and_then(|name| buffers.find(name)) {
        Some(BufferRef::Tx(other)) => other,
        _ => buffer,
    }
}

/// The protocols of the transactions that a rule inspects.
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
    tx: BTreeMap<TxKey, (LiteralCollector, &ValueCheck)>,
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
