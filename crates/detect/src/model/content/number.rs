// SPDX-License-Identifier: Apache-2.0
//! Numbers in programs: written in the rule, or taken from a variable.

/// Values that `byte_extract` and `byte_math` can hold at a time in one rule.
pub const VARIABLES_MAX: usize = 16;

/// A number in a rule: written there, or taken from a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// As written.
    Constant(i64),
    /// Index of a variable of the rule.
    Variable(u8),
}

impl Number {
    /// The value, given the rule's variables.
    #[must_use]
    pub fn value(self, variables: &[u64; VARIABLES_MAX]) -> i64 {
        match self {
            Number::Constant(value) => value,
            Number::Variable(index) => {
                let value = variables.get(usize::from(index)).copied().unwrap_or(0);
                i64::try_from(value).unwrap_or(i64::MAX)
            }
        }
    }

    /// The value as a place of 32 bits: that of a variable wraps, as in Suricata.
    pub(crate) fn place(self, variables: &[u64; VARIABLES_MAX]) -> i64 {
        match self {
            Number::Constant(value) => value,
            Number::Variable(index) => {
                let value = variables.get(usize::from(index)).copied().unwrap_or(0);
                i64::from(value as u32)
            }
        }
    }

    /// The same, counted from a place: in its upper half a variable counts backwards.
    pub(crate) fn step(self, variables: &[u64; VARIABLES_MAX]) -> i64 {
        match self {
            Number::Constant(value) => value,
            Number::Variable(_) => i64::from((self.place(variables) as u32).cast_signed()),
        }
    }
}
