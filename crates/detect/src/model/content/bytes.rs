// SPDX-License-Identifier: Apache-2.0
//! `byte_test`, `byte_jump`, `byte_extract`, `byte_math`: numbers read from a buffer.

use super::number::{Number, VARIABLES_MAX};

/// Byte order of a binary number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// Most significant first.
    #[default]
    Big,
    /// Least significant first.
    Little,
    /// The order in the DCERPC header of the transaction.
    Dce,
}

/// Base of a number written in digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberBase {
    /// Octal.
    Octal,
    /// Decimal.
    Decimal,
    /// Hexadecimal.
    Hex,
    /// From the number's prefix: `0x` hexadecimal, `0` octal, else decimal.
    Auto,
}

/// A number to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberField {
    /// Number of bytes; a variable where the keyword allows one. 0 for `string` means up to the maximum.
    pub bytes: Number,
    /// Position of the number, in bytes.
    pub offset: Number,
    /// The offset counts from the cursor.
    pub relative: bool,
    /// Byte order of binary numbers.
    pub order: ByteOrder,
    /// Written in digits of this base; `None` for binary numbers.
    pub string: Option<NumberBase>,
}

/// `byte_test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteTest {
    /// The number.
    pub field: NumberField,
    /// Comparison.
    pub operator: TestOperator,
    /// The result is inverted.
    pub negated: bool,
    /// Right-hand side of the comparison.
    pub value: Number,
    /// Mask that is applied to the number first; the result is shifted right by the mask's trailing zeros.
    pub bitmask: Option<u32>,
}

/// Comparison of `byte_test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOperator {
    /// `<`
    Less,
    /// `>`
    Greater,
    /// `=`
    Equal,
    /// `<=`
    LessEqual,
    /// `>=`
    GreaterEqual,
    /// `&`: some of the bits are set.
    And,
    /// `^`: the exclusive or with the value is not 0.
    Or,
}

/// `byte_jump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteJump {
    /// The number.
    pub field: NumberField,
    /// Factor of the number.
    pub multiplier: u32,
    /// Round the number up to a multiple of 4.
    pub align: bool,
    /// Count from the start of the buffer.
    pub from_beginning: bool,
    /// Count from the end of the buffer.
    pub from_end: bool,
    /// Offset that is added to the position, in bytes.
    pub post_offset: Number,
    /// Mask that is applied to the number first.
    pub bitmask: Option<u32>,
}

/// `byte_extract`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteExtract {
    /// The number.
    pub field: NumberField,
    /// Variable that receives the number.
    pub variable: u8,
    /// Factor of the number.
    pub multiplier: u32,
    /// Round up to a multiple of this (2 or 4).
    pub align: Option<u8>,
}

/// `byte_math`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMath {
    /// The number.
    pub field: NumberField,
    /// Operation on the number and `value`.
    pub operator: MathOperator,
    /// The right-hand side.
    pub value: Number,
    /// Variable that receives the result.
    pub variable: u8,
    /// Mask that is applied to the number first.
    pub bitmask: Option<u32>,
}

/// Operation of `byte_math`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MathOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
}

/// A `byte_jump` of this much or less is an unsigned number of 64 bits, which leads beyond the end. Smaller
/// steps back come from a sign, a `post_offset` or a multiplication that wraps.
const JUMP_LEAST: i64 = -(1 << 46);

/// Position of a field in a buffer, if it lies within.
fn position(base: usize, offset: i64, length: usize) -> Option<usize> {
    let at = i64::try_from(base).ok()?.checked_add(offset)?;
    let at = usize::try_from(at).ok()?;
    (at <= length).then_some(at)
}

impl NumberField {
    /// Reads the number. Returns it and the position after it.
    #[must_use]
    pub fn read(
        &self,
        buffer: &[u8],
        cursor: usize,
        variables: &[u64; VARIABLES_MAX],
        little: bool,
    ) -> Option<(u64, usize)> {
        // An empty buffer has no number, not even one without bytes.
        if buffer.is_empty() {
            return None;
        }
        let base = if self.relative { cursor } else { 0 };
        let at = position(base, self.offset.step(variables), buffer.len())?;
        let wanted = usize::try_from(self.bytes.step(variables)).ok()?;
        match self.string {
            None => {
                let bytes = buffer.get(at..at.checked_add(wanted)?)?;
                if wanted > 8 {
                    return None;
                }
                let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
                let little = self.order == ByteOrder::Little || self.order == ByteOrder::Dce && little;
                let value =
                    if little { bytes.iter().rev().fold(0, fold) } else { bytes.iter().fold(0, fold) };
                Some((value, at.checked_add(wanted)?))
            }
            Some(base) => {
                let rest = buffer.get(at..)?;
                if wanted > rest.len() {
                    return None;
                }
                let limit = if wanted == 0 { rest.len().min(23) } else { wanted };
                let (value, used) = digits(rest.get(..limit)?, base)?;
                Some((value, at.checked_add(used)?))
            }
        }
    }
}

/// Reads digits as `strtoull` does: blanks, a sign, a prefix, then digits. Returns the number and the bytes
/// used.
fn digits(text: &[u8], base: NumberBase) -> Option<(u64, usize)> {
    let mut at = text.iter().take_while(|b| b.is_ascii_whitespace() || **b == 0x0b).count();
    let mut negative = false;
    if let Some(sign @ (b'-' | b'+')) = text.get(at) {
        negative = *sign == b'-';
        at += 1;
    }
    let rest = text.get(at..)?;
    let prefixed = matches!(rest, [b'0', b'x' | b'X', d, ..] if d.is_ascii_hexdigit());
    let radix = match base {
        NumberBase::Octal => 8,
        NumberBase::Decimal => 10,
        NumberBase::Hex => 16,
        NumberBase::Auto if prefixed => 16,
        NumberBase::Auto if rest.first() == Some(&b'0') => 8,
        NumberBase::Auto => 10,
    };
    if radix == 16 && prefixed {
        at += 2;
    }
    let mut value: u64 = 0;
    let mut count = 0usize;
    for byte in text.get(at..)? {
        let Some(digit) = char::from(*byte).to_digit(radix) else { break };
        value = value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))?;
        count += 1;
    }
    if count == 0 {
        return None;
    }
    let value = if negative { value.wrapping_neg() } else { value };
    Some((value, at.checked_add(count)?))
}

/// Extracts the bits of a mask and shifts them to the right end.
fn masked(value: u64, mask: Option<u32>) -> u64 {
    match mask {
        Some(mask) if mask != 0 => (value & u64::from(mask)) >> mask.trailing_zeros(),
        Some(_) => 0,
        None => value,
    }
}

impl ByteTest {
    /// Whether the test holds.
    #[must_use]
    pub fn holds(
        &self,
        buffer: &[u8],
        cursor: usize,
        variables: &[u64; VARIABLES_MAX],
        little: bool,
    ) -> bool {
        let Some((value, _)) = self.field.read(buffer, cursor, variables, little) else { return false };
        let value = masked(value, self.bitmask);
        let other = match self.value {
            Number::Constant(n) => n as u64,
            Number::Variable(v) => variables.get(usize::from(v)).copied().unwrap_or(0),
        };
        let result = match self.operator {
            TestOperator::Less => value < other,
            TestOperator::Greater => value > other,
            TestOperator::Equal => value == other,
            TestOperator::LessEqual => value <= other,
            TestOperator::GreaterEqual => value >= other,
            TestOperator::And => value & other != 0,
            TestOperator::Or => value ^ other != 0,
        };
        result != self.negated
    }
}

impl ByteJump {
    /// Target of the jump: the new cursor.
    #[must_use]
    pub fn target(
        &self,
        buffer: &[u8],
        cursor: usize,
        variables: &[u64; VARIABLES_MAX],
        little: bool,
    ) -> Option<usize> {
        if buffer.is_empty() {
            return None;
        }
        let (value, behind) = self.number(buffer, cursor, variables, little)?;
        let mut jump = masked(value, self.bitmask).wrapping_mul(u64::from(self.multiplier));
        if self.align {
            jump = jump.wrapping_add(3) & !3;
        }
        let jump = jump.wrapping_add_signed(self.post_offset.step(variables)).cast_signed();
        if jump <= JUMP_LEAST {
            return None;
        }
        let base = if self.from_beginning {
            0
        } else if self.from_end {
            buffer.len()
        } else {
            behind
        };
        // A jump before the start ends at the start; a jump beyond the end fails.
        let at = i64::try_from(base).ok()?.checked_add(jump)?.max(0);
        usize::try_from(at).ok().filter(|at| *at <= buffer.len())
    }

    /// The number and the position after it. Without bytes to read the number is 0, and only the offset must
    /// lie in the buffer.
    fn number(
        &self,
        buffer: &[u8],
        cursor: usize,
        variables: &[u64; VARIABLES_MAX],
        little: bool,
    ) -> Option<(u64, usize)> {
        let NumberField { bytes, offset, relative, string, .. } = self.field;
        if bytes.step(variables) != 0 || string.is_some() {
            return self.field.read(buffer, cursor, variables, little);
        }
        let at = position(if relative { cursor } else { 0 }, offset.step(variables), buffer.len())?;
        Some((0, at))
    }
}

impl ByteExtract {
    /// Reads the value into its variable; returns the position after the number.
    #[must_use]
    pub fn run(
        &self,
        buffer: &[u8],
        cursor: usize,
        variables: &mut [u64; VARIABLES_MAX],
        little: bool,
    ) -> Option<usize> {
        let (value, behind) = self.field.read(buffer, cursor, variables, little)?;
        let mut value = value.wrapping_mul(u64::from(self.multiplier));
        if let Some(align) = self.align {
            value = value.checked_next_multiple_of(u64::from(align.max(1)))?;
        }
        *variables.get_mut(usize::from(self.variable))? = value;
        Some(behind)
    }
}

impl ByteMath {
    /// Computes the value into its variable; returns the position after the number.
    #[must_use]
    pub fn run(
        &self,
        buffer: &[u8],
        cursor: usize,
        variables: &mut [u64; VARIABLES_MAX],
        little: bool,
    ) -> Option<usize> {
        let (value, behind) = self.field.read(buffer, cursor, variables, little)?;
        let other = match self.value {
            Number::Constant(n) => n as u64,
            Number::Variable(v) => variables.get(usize::from(v)).copied().unwrap_or(0),
        };
        let shift = u32::try_from(other).ok();
        let result = match self.operator {
            MathOperator::Add => value.wrapping_add(other),
            MathOperator::Subtract => value.wrapping_sub(other),
            MathOperator::Multiply => value.wrapping_mul(other),
            MathOperator::Divide => value.checked_div(other)?,
            MathOperator::ShiftLeft => shift.and_then(|s| value.checked_shl(s)).unwrap_or(0),
            MathOperator::ShiftRight => shift.and_then(|s| value.checked_shr(s)).unwrap_or(0),
        };
        *variables.get_mut(usize::from(self.variable))? = masked(result, self.bitmask);
        Some(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_as_strtoull_reads_them() {
        assert_eq!(digits(b"0x1Fz", NumberBase::Hex), Some((31, 4)));
        assert_eq!(digits(b"1F", NumberBase::Hex), Some((31, 2)));
        assert_eq!(digits(b"017", NumberBase::Auto), Some((15, 3)));
        assert_eq!(digits(b" 12;", NumberBase::Decimal), Some((12, 3)));
        assert_eq!(digits(b"x", NumberBase::Decimal), None);
        assert_eq!(digits(b"99999999999999999999999", NumberBase::Decimal), None);
    }

    #[test]
    fn fields_stay_inside_the_buffer() {
        let field = NumberField {
            bytes: Number::Constant(2),
            offset: Number::Constant(-1),
            relative: true,
            order: ByteOrder::Big,
            string: None,
        };
        let none = [0; VARIABLES_MAX];
        assert_eq!(field.read(&[1, 2, 3], 1, &none, false), Some((0x0102, 2)));
        assert_eq!(field.read(&[1, 2, 3], 0, &none, false), None);
        assert_eq!(field.read(&[1, 2, 3], 3, &none, false), None);
    }
}
