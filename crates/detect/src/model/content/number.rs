// SPDX-License-Identifier: Apache-2.0
//! Numbers in programs: constants of the rule or variables.

/// Limit of the values that `byte_extract` and `byte_math` hold at a time in one rule.
pub const VARIABLES_MAX: usize = 16;

/// A number in a rule: a constant or a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A constant of the rule.
    Constant(i64),
    /// Index of a variable of the rule.
    Variable(u8),
}

impl Number {
    /// The value as a position of 32 bits: a variable wraps, as in Suricata.
    pub(crate) fn place(self, variables: &[u64; VARIABLES_MAX]) -> i64 {
        match self {
            Number::Constant(value) => value,
            Number::Variable(index) => {
                let value = variables.get(usize::from(index)).copied().unwrap_or(0);
                i64::from(value as u32)
            }
        }
    }

    /// The value as a signed step from a position or number of bytes: in its upper half a variable is
    /// negative (the result of `byte_math` may be below 0).
    pub(crate) fn step(self, variables: &[u64; VARIABLES_MAX]) -> i64 {
        match self {
            Number::Constant(value) => value,
            Number::Variable(_) => i64::from((self.place(variables) as u32).cast_signed()),
        }
    }
}
