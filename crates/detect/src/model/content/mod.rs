// SPDX-License-Identifier: Apache-2.0
//! The content program of one buffer: literals, regular expressions and arithmetic on bytes, in the order of
//! the rule.
//!
//! Every item either fails or sets the cursor from which the next relative item starts. When an item that is
//! relative to a literal or expression fails, the next occurrence of that literal or expression is tried: a
//! search with backtracking, bounded by `STEPS_MAX`.

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
        /// The tested position.
        at: Number,
        /// The position counts from the cursor.
        relative: bool,
        /// There must be no data at the position.
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
        /// The condition comes from `urilen`, which leaves room for other contents than `bsize`.
        uri: bool,
    },
    /// `base64_decode` and the `base64_data` items after it: a program on the decoded bytes.
    Base64 {
        /// Limit of encoded bytes; 0 for all.
        bytes: u32,
        /// Offset at which decoding starts, in bytes.
        offset: u32,
        /// The offset counts from the cursor.
        relative: bool,
        /// The program that must match the decoded bytes.
        inner: Arc<Program>,
    },
    /// A keyword's own condition on the whole value (`entropy`, `isutf8`...).
    Custom(Arc<dyn crate::model::condition::BufferCondition>),
}

/// `pcre` in a program.
#[derive(Clone)]
pub struct RegexItem {
    /// The expression.
    pub regex: Arc<Regex>,
    /// The expression starts at the cursor (flag `R`).
    pub relative: bool,
    /// The expression must not match.
    pub negated: bool,
    /// A later item starts from the end of this one (set by [`Program::link`]).
    pub anchors: bool,
    /// Captures, in the order of the groups: number of the group and target.
    pub captures: Vec<(usize, Capture)>,
}

/// The target of a captured value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capture {
    /// A flow variable, by interned name.
    Flow(u32),
    /// A packet variable, by interned name.
    Packet(u32),
    /// A value that goes into the alert, by interned name.
    Alert(u32),
    /// JSON that a data set keeps with a value; goes into the alert, by interned name.
    Context(u32),
    /// `replace`: the bytes replace those at this offset of the packet's payload.
    Replace(u32),
}

impl Item {
    /// Weight that keywords gave the item, for [`crate::compile::builder::SignatureBuilder::weight`].
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Item::Literal(literal) => literal.modifiers(),
            Item::Base64 { inner, .. } => inner.items.iter().map(|i| 1 + i.weight()).sum(),
            _ => 0,
        }
    }

    /// Whether the item starts from the cursor that the item before it set.
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
    /// Whether the program has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether a keyword's own condition is part of the program, whose answer may depend on more than the
    /// value (a set that other flows change).
    #[must_use]
    pub fn has_custom(&self) -> bool {
        self.items.iter().any(|item| match item {
            Item::Custom(_) => true,
            Item::Base64 { inner, .. } => inner.has_custom(),
            _ => false,
        })
    }

    /// Marks each literal and expression from whose end a later item starts.
    ///
    /// Such an item belongs to the last literal or expression before it, whatever lies between. A literal
    /// with only a `distance` is found after the first occurrence or after none, so no other occurrence is
    /// tried. A negated literal is the opposite: after a later occurrence it is more likely to be missing.
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

    /// The literals with their index, as choices of a fast pattern.
    pub fn literals(&self) -> impl Iterator<Item = (usize, &Literal)> {
        self.items.iter().enumerate().filter_map(|(i, item)| match item {
            Item::Literal(l) => Some((i, l)),
            _ => None,
        })
    }
}
