// SPDX-License-Identifier: Apache-2.0
//! Decides which packets' payloads are searched for a rule's literal, and up to which offset.
//!
//! Most rules on packets require that a literal lies near the beginning, or that the payload is short. A long
//! segment of a transfer is searched whole only for the few rules that require neither.

use crate::compile::literals::{BRIEF, LiteralCollector};
use crate::compile::places::PlaceCollector;
use crate::model::basis::{Packets, payload_literals, payload_programs};
use crate::model::content::{Item, Literal, Number, Program};
use crate::model::prefilter::{HeadSet, PayloadSets, SHORT_MAX, ShortSets, StreamSets, TINY_MAX};
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
    /// The literal can end at no smaller offset.
    is_fixed: bool,
}

/// Part of a short payload that is searched for brief literals that must lie near its beginning, in bytes.
const NEAR_MAX: usize = 32;

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
    // Largest offset of the cursor after the item before, and whether it has no smaller one.
    let mut cursor = Some((0, false));
    program.items.iter().filter_map(move |item| match item {
        Item::Literal(literal) if literal.negated => None,
        Item::Literal(literal) => {
            cursor = if literal.is_relative() { behind(cursor, literal) } else { from_beginning(literal) };
            cursor.map(|(end, is_fixed)| Heading { literal, end, is_fixed })
        }
        // These items keep the cursor.
        Item::DataAt { .. } | Item::Test(_) | Item::Size { .. } | Item::Custom(_) => None,
        _ => {
            cursor = None;
            None
        }
    })
}

/// Largest end offset of a literal whose place counts from the beginning, and whether it has no smaller one.
fn from_beginning(literal: &Literal) -> Option<(usize, bool)> {
    let depth = constant(literal.place.depth, None)?;
    let end = constant(literal.place.offset, Some(0))?.checked_add(depth)?;
    Some((end, depth == literal.bytes.len()))
}

/// As [`from_beginning`], of a literal whose place counts from the cursor.
fn behind(cursor: Option<(usize, bool)>, literal: &Literal) -> Option<(usize, bool)> {
    // As in Suricata, other rules apply before the beginning, so a negative distance gives no bound.
    let distance = constant(literal.place.distance, Some(0))?;
    let within = constant(literal.place.within, None)?;
    let (cursor, is_fixed) = cursor?;
    let end = cursor.checked_add(distance)?.checked_add(within)?;
    Some((end, is_fixed && within == literal.bytes.len()))
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
    /// Brief literals at one offset.
    fixed: PlaceCollector,
    collector: LiteralCollector,
    /// Length of the beginning in which all of them lie, in bytes.
    within: usize,
}

impl HeadCollector {
    /// Adds a rule by a literal near the beginning.
    fn add(&mut self, heading: &Heading<'_>, signature: &Member, index: u32) {
        let Literal { bytes, nocase, .. } = heading.literal;
        match heading.end.checked_sub(bytes.len()).filter(|_| heading.is_fixed && bytes.len() <= BRIEF) {
            Some(offset) => self.fixed.add(offset, bytes, *nocase, (index, signature.head)),
            None => {
                self.collector.add_literal(heading.literal, signature, index);
                self.within = heading.end.max(self.within);
            }
        }
    }
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
            Some(heading) => self.head.add(&heading, signature, index),
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
        let HeadCollector { fixed, collector, within } = head;
        let head = HeadSet { fixed: fixed.build(), set: collector.build(compiler)?, within };
        Ok((!head.is_empty()).then_some(head))
    }
}

/// Collects the rules on short payloads. Brief literals occur in most payloads: their rules are found by a
/// place, or by the length of the payload, where the rule demands one.
#[derive(Default)]
struct ShortCollector {
    head: HeadCollector,
    tiny: LiteralCollector,
    all: LiteralCollector,
}

impl ShortCollector {
    fn add(&mut self, signature: &Member, index: u32) {
        let is_brief = signature.fast_pattern.as_ref().is_some_and(|fast| fast.bytes.len() <= BRIEF);
        if !is_brief {
            self.all.add(signature, index);
            return;
        }
        let near = |heading: &Heading<'_>| heading.is_fixed || heading.end <= NEAR_MAX;
        if let Some(heading) = Heading::of(signature).filter(near) {
            self.head.add(&heading, signature, index);
        } else if longest_payload(signature).is_some_and(|bytes| bytes <= TINY_MAX) {
            self.tiny.add(signature, index);
        } else {
            self.all.add(signature, index);
        }
    }

    fn build(self, compiler: &Compiler) -> Result<ShortSets, BuildError> {
        Ok(ShortSets {
            head: HeadSet::build(self.head, compiler)?,
            tiny: self.tiny.build(compiler)?,
            all: self.all.build_by_length(compiler)?,
        })
    }
}

/// Length of the longest payload that a rule matches, in bytes; `None`: any length.
fn longest_payload(signature: &Member) -> Option<usize> {
    signature.packet.iter().filter_map(|condition| condition.longest_payload()).min()
}

/// Collects the rules on the payloads of packets of one class and direction.
#[derive(Default)]
pub(crate) struct PayloadCollector {
    head: HeadCollector,
    whole: LiteralCollector,
    /// Rules that inspect a packet only where its payload is no part of the stream.
    outside: LiteralCollector,
    short: ShortCollector,
    /// Rules of `short` and of `outside`.
    short_outside: ShortCollector,
}

impl PayloadCollector {
    /// Adds a rule whose fast pattern is a literal of the payload.
    pub fn add(&mut self, signature: &Member, index: u32, packets: Packets) {
        if packets == Packets::OutsideStream {
            self.outside.add(signature, index);
            self.short_outside.add(signature, index);
            return;
        }
        self.short.add(signature, index);
        self.short_outside.add(signature, index);
        if longest_payload(signature).is_some_and(|bytes| bytes <= SHORT_MAX) {
            return;
        }
        match Heading::of(signature) {
            Some(heading) => self.head.add(&heading, signature, index),
            None => self.whole.add(signature, index),
        }
    }

    /// Compiles the collected literals.
    pub fn build(mut self, compiler: &Compiler) -> Result<PayloadSets, BuildError> {
        let short_outside = match self.outside.is_empty() {
            true => None,
            false => {
                self.outside.add_all(&self.whole);
                Some(self.short_outside.build(compiler)?)
            }
        };
        Ok(PayloadSets {
            outside: self.outside.build_by_length(compiler)?,
            short_outside,
            head: HeadSet::build(self.head, compiler)?,
            whole: self.whole.build_by_length(compiler)?,
            short: self.short.build(compiler)?,
        })
    }
}
