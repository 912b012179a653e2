// SPDX-License-Identifier: Apache-2.0
//! The content program of one buffer: literals, regular expressions and arithmetic on bytes, in the order of
//! the rule.
//!
//! Every item either fails or leaves a cursor behind, from which the next relative item starts. When an item
//! fails that stands relative to a literal or expression, the next occurrence of that one is tried: a search
//! with backtracking, bounded by `STEPS_MAX`.

mod bytes;
mod literal;
mod number;

pub use bytes::{
    ByteExtract, ByteJump, ByteMath, ByteOrder, ByteTest, MathOperator, NumberBase, NumberField, TestOperator,
};
pub use literal::{Literal, Placement};
pub use number::{Number, VARIABLES_MAX};

use bartizan_pattern::Regex;
use bartizan_rules::UintMatch;
use std::sync::Arc;

/// One item of a program.
#[derive(Clone)]
pub enum Item {
    /// `content`.
    Literal(Literal),
    /// `pcre`.
    Regex(RegexItem),
    /// `isdataat`.
    DataAt {
        /// Position asked about.
        at: Number,
        /// Counted from the cursor.
        relative: bool,
        /// There must be no data there.
        negated: bool,
    },
    /// `byte_test`.
    Test(ByteTest),
    /// `byte_jump`.
    Jump(ByteJump),
    /// `byte_extract`.
    Extract(ByteExtract),
    /// `byte_math`.
    Math(ByteMath),
    /// `bsize`, `urilen`: the length of the whole value.
    Size {
        /// The comparison.
        check: UintMatch<u64>,
        /// It is of `urilen`, which leaves room for other contents than `bsize`.
        uri: bool,
    },
    /// `base64_decode` and the `base64_data` items behind it: a program on the decoded bytes.
    Base64 {
        /// How many encoded bytes at most; 0 for all.
        bytes: u32,
        /// Where decoding starts.
        offset: u32,
        /// The offset counts from the cursor.
        relative: bool,
        /// What must hold on the decoded bytes.
        inner: Arc<Program>,
    },
    /// A condition that a keyword brings along (`entropy`, `isutf8`...): on the whole value.
    Custom(Arc<dyn crate::model::condition::BufferCondition>),
}

/// `pcre` in a program.
#[derive(Clone)]
pub struct RegexItem {
    /// The expression.
    pub regex: Arc<Regex>,
    /// Starts at the cursor (flag `R`).
    pub relative: bool,
    /// Must not match.
    pub negated: bool,
    /// An item that starts from this one's end follows (set by [`Program::link`]).
    pub anchors: bool,
    /// Variables that the groups fill, in the order of the groups: number of the group, what is filled.
    pub captures: Vec<(usize, Capture)>,
}

/// What a match leaves behind besides the match itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capture {
    /// A flow variable, by interned name.
    Flow(u32),
    /// A packet variable, by interned name.
    Packet(u32),
    /// A value that goes into the alert, by interned name.
    Alert(u32),
    /// What a data set keeps with a value, as JSON; goes into the alert, by interned name.
    Context(u32),
    /// `replace`: these bytes go into the packet, at this offset of its payload.
    Replace(u32),
}

impl Item {
    /// How much keywords made of it, for [`crate::compile::builder::SignatureBuilder::weight`].
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Item::Literal(literal) => literal.modifiers(),
            Item::Base64 { inner, .. } => inner.items.iter().map(|i| 1 + i.weight()).sum(),
            _ => 0,
        }
    }

    /// Whether the item starts from the cursor that the one before it left.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        match self {
            Item::Literal(l) => l.is_relative(),
            Item::Regex(r) => r.relative,
            Item::DataAt { relative, .. } | Item::Base64 { relative, .. } => *relative,
            Item::Test(t) => t.field.relative,
            Item::Jump(j) => j.field.relative,
            Item::Extract(e) => e.field.relative,
            Item::Math(m) => m.field.relative,
            Item::Size { .. } | Item::Custom(_) => false,
        }
    }
}

/// The items of one buffer in order.
#[derive(Clone, Default)]
pub struct Program {
    /// The items.
    pub items: Vec<Item>,
}

impl Program {
    /// Whether the program asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Notes at each literal and expression whether an item behind it starts from its end.
    ///
    /// That item belongs to the last literal or expression before it, whatever stands between. A literal with
    /// nothing but a `distance` is found behind the first occurrence or behind none, so it asks for no other.
    /// A
    /// negated one is the opposite: behind a later occurrence it is more likely to be missing.
    pub fn link(&mut self) {
        let mut last: Option<usize> = None;
        for index in 0..self.items.len() {
            let Some(item) = self.items.get_mut(index) else { break };
            let relative = item.is_relative();
            let more = !matches!(item, Item::Literal(l) if l.place.within.is_none() && !l.negated);
            let anchor = matches!(item, Item::Literal(_) | Item::Regex(_));
            if let Item::Base64 { inner, .. } = item {
                Arc::make_mut(inner).link();
            }
            if relative && let Some(before) = last.and_then(|i| self.items.get_mut(i)) {
                match before {
                    Item::Literal(literal) => {
                        literal.anchors = true;
                        literal.retried |= more;
                    }
                    Item::Regex(regex) => regex.anchors = true,
                    _ => {}
                }
            }
            if anchor {
                last = Some(index);
            }
        }
    }

    /// The literals, to choose a fast pattern from.
    pub fn literals(&self) -> impl Iterator<Item = (usize, &Literal)> {
        self.items.iter().enumerate().filter_map(|(i, item)| match item {
            Item::Literal(l) => Some((i, l)),
            _ => None,
        })
    }
}
