// SPDX-License-Identifier: Apache-2.0
//! Decides which packets' payloads are searched for a rule's literal, and up to which offset.
//!
//! Most rules on packets require that a literal lies near the beginning, or that the payload is short. A long
//! segment of a transfer is searched whole only for the few rules that require neither.

use crate::compile::literals::LiteralCollector;
use crate::model::basis::{Packets, payload_literals, payload_programs};
use crate::model::content::{Item, Literal, Number, Program};
use crate::model::prefilter::{HeadSet, PayloadSets, SHORT_MAX, StreamSets};
use crate::model::signature::{Member, Signature};
use bartizan_pattern::{BuildError, Compiler};

/// Length of a payload's beginning that is scanned for [`Heading`]s, in bytes.
const HEADING_MAX: usize = 128;
/// A shorter literal, in bytes, is chosen only if the rule's fast pattern is no longer: it would make more
/// candidates than the fast pattern.
const HEADING_BYTES: usize = 3;
/// A literal that lies near the beginning of each payload that the rule matches.
struct Heading<'s> {
    literal: &'s Literal,
    /// Largest offset at which the literal ends, in bytes.
    end: usize,
}

impl<'s> Heading<'s> {
    /// The longest such literal of a rule.
    fn of(signature: &'s Signature) -> Option<Self> {
        // The inspection does not search a `fast_pattern:only` literal again after the prefilter found it.
        if payload_literals(signature).any(|literal| literal.fast_pattern_only) {
            return None;
        }
        let fast = signature.fast_pattern.as_ref().map_or(HEADING_BYTES, |fast| fast.bytes.len());
        payload_programs(signature)
            .flat_map(headings)
            .filter(|heading| {
                heading.end <= HEADING_MAX && heading.literal.bytes.len() >= fast.min(HEADING_BYTES)
            })
            .max_by_key(|heading| heading.literal.bytes.len())
    }
}

/// The literals of a program that have a largest end offset.
fn headings(program: &Program) -> impl Iterator<Item = Heading<'_>> {
    // Largest offset of the cursor after the item before.
    let mut cursor = Some(0);
    program.items.iter().filter_map(move |item| match item {
        Item::Literal(literal) if literal.negated => None,
        Item::Literal(literal) => {
            cursor = if literal.is_relative() { behind(cursor, literal) } else { from_beginning(literal) };
            Some(Heading { literal, end: cursor? })
        }
        // These items keep the cursor.
        Item::DataAt { .. } | Item::Test(_) | Item::Size { .. } | Item::Custom(_) => None,
        _ => {
            cursor = None;
            None
        }
    })
}

/// Largest end offset of a literal whose place counts from the beginning.
fn from_beginning(literal: &Literal) -> Option<usize> {
    constant(literal.place.offset, Some(0))?.checked_add(constant(literal.place.depth, None)?)
}

/// Largest end offset of a literal whose place counts from the cursor.
fn behind(cursor: Option<usize>, literal: &Literal) -> Option<usize> {
    // As in Suricata, other rules apply before the beginning, so a negative distance gives no bound.
    let distance = constant(literal.place.distance, Some(0))?;
    cursor?.checked_add(distance)?.checked_add(constant(literal.place.within, None)?)
}

fn constant(number: Option<Number>, absent: Option<usize>) -> Option<usize> {
    match number {
        Some(Number::Constant(value)) => usize::try_from(value).ok(),
        Some(Number::Variable(_)) => None,
        None => absent,
    }
}

/// Collects literals near the beginning of payloads.
#[derive(Default)]
struct HeadCollector {
    collector: LiteralCollector,
    /// Length of the beginning in which all of them lie, in bytes.
    within: usize,
}

/// Collects the rules on streams in one direction.
#[derive(Default)]
pub(crate) struct StreamCollector {
    head: HeadCollector,
    whole: LiteralCollector,
}

impl StreamCollector {
    /// Adds a rule whose fast pattern is a literal of the payload.
    pub fn add(&mut self, signature: &Member, index: u32) {
        match Heading::of(signature) {
            Some(heading) => {
                self.head.collector.add_literal(heading.literal, signature, index);
                self.head.within = heading.end.max(self.head.within);
            }
            None => self.whole.add(signature, index),
        }
    }

    /// Compiles the collected literals.
    pub fn build(self, compiler: &Compiler) -> Result<StreamSets, BuildError> {
        Ok(StreamSets { head: HeadSet::build(self.head, compiler)?, whole: self.whole.build(compiler)? })
    }
}

impl HeadSet {
    fn build(head: HeadCollector, compiler: &Compiler) -> Result<Option<Self>, BuildError> {
        let within = head.within;
        Ok(head.collector.build(compiler)?.map(|set| HeadSet { set, within }))
    }
}

/// Collects the rules on the payloads of packets of one class and direction.
#[derive(Default)]
pub(crate) struct PayloadCollector {
    head: HeadCollector,
    whole: LiteralCollector,
    /// Rules that inspect a packet only where its payload is no part of the stream.
    outside: LiteralCollector,
    short: LiteralCollector,
}

impl PayloadCollector {
    /// Adds a rule whose fast pattern is a literal of the payload.
    pub fn add(&mut self, signature: &Member, index: u32, packets: Packets) {
        if packets == Packets::OutsideStream {
            self.outside.add(signature, index);
            return;
        }
        self.short.add(signature, index);
        let longest = signature.packet.iter().filter_map(|c| c.longest_payload()).min();
        if longest.is_some_and(|bytes| bytes <= SHORT_MAX) {
            return;
        }
        match Heading::of(signature) {
            Some(heading) => {
                self.head.collector.add_literal(heading.literal, signature, index);
                self.head.within = heading.end.max(self.head.within);
            }
            None => self.whole.add(signature, index),
        }
    }

    /// Compiles the collected literals.
    pub fn build(self, compiler: &Compiler) -> Result<PayloadSets, BuildError> {
        let with_outside = |inside: &LiteralCollector| {
            if self.outside.is_empty() {
                return Ok(Vec::new());
            }
            let mut both = LiteralCollector::default();
            both.add_all(inside);
            both.add_all(&self.outside);
            both.build_by_length(compiler)
        };
        Ok(PayloadSets {
            outside: with_outside(&self.whole)?,
            short_outside: with_outside(&self.short)?,
            head: HeadSet::build(self.head, compiler)?,
            whole: self.whole.build_by_length(compiler)?,
            short: self.short.build_by_length(compiler)?,
        })
    }
}
