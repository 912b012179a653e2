// SPDX-License-Identifier: Apache-2.0
//! `byte_test`, `byte_jump`, `byte_extract`, `byte_math`: numbers in a buffer.
//!
//! Byte order by `dce` is that of the remote call that the transaction carries.

use super::text;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::content::{
    ByteExtract, ByteJump, ByteMath, ByteOrder, ByteTest, Item, MathOperator, Number, NumberBase,
    NumberField, TestOperator,
};

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "byte_test",
        aliases: &[],
        summary: "Compares a number in the buffer: `byte_test:2,>,100,4,relative;`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "byte_test:BYTES,[!]OPERATOR,VALUE,OFFSET[,relative][,big|little|dce][,string,hex|dec|oct][,bitmask MASK]",
        example: r#"alert udp any any -> any any (msg:"byte_test"; byte_test:2,>,100,4; sid:1;)"#,
        note: "`dce`: the byte order of the remote call, in rules about DCERPC or SMB.",
        parse: byte_test,
    },
    Keyword {
        name: "byte_jump",
        aliases: &[],
        summary: "Reads a number and moves the cursor so many bytes: `byte_jump:2,0,relative;`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "byte_jump:BYTES,OFFSET[,relative][,multiplier N][,big|little|dce][,string,hex|dec|oct][,align][,from_beginning|from_end][,post_offset N][,bitmask MASK]",
        example: r#"alert udp any any -> any any (msg:"byte_jump"; byte_jump:2,0; content:"x"; distance:0; sid:1;)"#,
        note: "`dce`: the byte order of the remote call, in rules about DCERPC or SMB.",
        parse: byte_jump,
    },
    Keyword {
        name: "byte_extract",
        aliases: &[],
        summary: "Reads a number into a variable for later keywords: `byte_extract:2,0,length;`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "byte_extract:BYTES,OFFSET,NAME[,relative][,multiplier N][,big|little|dce][,string,hex|dec|oct][,align N]",
        example: r#"alert udp any any -> any any (msg:"byte_extract"; byte_extract:1,0,length; isdataat:length,relative; sid:1;)"#,
        note: "`dce`: the byte order of the remote call, in rules about DCERPC or SMB.",
        parse: byte_extract,
    },
    Keyword {
        name: "byte_math",
        aliases: &[],
        summary: "Computes with a number into a variable: `byte_math:bytes 2,offset 0,oper +,rvalue 4,result n;`.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "byte_math:bytes N, offset N, oper OPERATOR, rvalue N, result NAME[, relative][, endian big|little][, string hex|dec|oct][, bitmask MASK]",
        example: r#"alert udp any any -> any any (msg:"byte_math"; byte_math:bytes 1, offset 0, oper +, rvalue 4, result end; isdataat:end; sid:1;)"#,
        note: "`endian dce`: the byte order of the remote call, in rules about DCERPC or SMB.",
        parse: byte_math,
    },
];

/// Limit of offsets in either direction, in bytes.
const OFFSET_MAX: i64 = 65_535;

/// Options that all four keywords have.
#[derive(Default)]
struct ByteKeywordOptions {
    relative: bool,
    order: Option<ByteOrder>,
    string: bool,
    base: Option<NumberBase>,
    bitmask: Option<u32>,
}

impl ByteKeywordOptions {
    /// Parses an option; `false` if it is none of these.
    fn take(&mut self, item: &str) -> Result<bool, KeywordError> {
        let lower = item.to_ascii_lowercase();
        match lower.as_str() {
            "relative" => self.relative = true,
            "big" => self.order = Some(ByteOrder::Big),
            "little" => self.order = Some(ByteOrder::Little),
            "dce" => self.order = Some(ByteOrder::Dce),
            "string" => self.string = true,
            "hex" => self.set_base(NumberBase::Hex)?,
            "dec" => self.set_base(NumberBase::Decimal)?,
            "oct" => self.set_base(NumberBase::Octal)?,
            _ => return self.take_bitmask(&lower),
        }
        Ok(true)
    }

    fn set_base(&mut self, base: NumberBase) -> Result<(), KeywordError> {
        match self.base.replace(base) {
            None => Ok(()),
            Some(before) if before == base => Ok(()),
            Some(_) => Err(KeywordError::argument("a number has one base: hex, dec or oct")),
        }
    }

    fn take_bitmask(&mut self, item: &str) -> Result<bool, KeywordError> {
        let Some(mask) = item.strip_prefix("bitmask") else { return Ok(false) };
        let mask = text::unsigned(mask.trim()).and_then(|m| u32::try_from(m).ok());
        self.bitmask =
            Some(mask.ok_or_else(|| KeywordError::argument("bitmask takes a number of up to 32 bits"))?);
        Ok(true)
    }

    /// The field, checked against what the options allow.
    fn field(
        &self,
        builder: &mut SignatureBuilder<'_>,
        bytes: Number,
        offset: Number,
        unset: NumberBase,
    ) -> Result<NumberField, KeywordError> {
        if self.base.is_some() && !self.string {
            return Err(KeywordError::argument("a base (hex, dec, oct) is for numbers in digits")
                .help("add the option `string`"));
        }
        let most = if self.string { 23 } else { 8 };
        if let Number::Constant(bytes) = bytes
            && !(0..=most).contains(&bytes)
        {
            let kind = if self.string { "in digits" } else { "in binary form" };
            return Err(KeywordError::argument(format!("a number {kind} has at most {most} bytes")));
        }
        if self.order == Some(ByteOrder::Dce) {
            if self.string {
                return Err(KeywordError::argument("`dce` is for binary numbers, not with `string`"));
            }
            let carriers = super::dcerpc::carriers(builder, "dce")?;
            builder.narrow_app(&carriers, "dce")?;
        }
        Ok(NumberField {
            bytes,
            offset,
            relative: self.relative,
            order: self.order.unwrap_or_default(),
            string: self.string.then(|| self.base.unwrap_or(unset)),
        })
    }
}

fn unknown(item: &str) -> KeywordError {
    KeywordError::argument(format!("unknown option `{item}`"))
}

fn missing(keyword: &str, form: &str) -> KeywordError {
    KeywordError::argument(format!("{keyword} is written `{form}`"))
}

fn byte_test(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    let [bytes, operator, value, offset, options @ ..] = items.as_slice() else {
        return Err(missing("byte_test", "bytes,[!]operator,value,offset[,options]"));
    };
    let (negated, sign) = match operator.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, *operator),
    };
    let operator = match sign {
        "=" => TestOperator::Equal,
        "" if negated => TestOperator::Equal,
        "<" => TestOperator::Less,
        ">" => TestOperator::Greater,
        "<=" => TestOperator::LessEqual,
        ">=" => TestOperator::GreaterEqual,
        "&" => TestOperator::And,
        "^" => TestOperator::Or,
        other => {
            return Err(KeywordError::argument(format!("unknown operator `{other}`"))
                .help("operators are = < > <= >= & ^, each with `!` before it or without"));
        }
    };
    let bytes = text::number(builder, "bytes", bytes, 0..=23)?;
    let value = if text::is_name(value) {
        Number::Variable(builder.variable(value, false)?)
    } else {
        // A sign gives the two's complement, since the comparison is unsigned (`-1` is the largest number).
        let (digits, complement) = value.strip_prefix('-').map_or((*value, false), |digits| (digits, true));
        let number = text::unsigned(digits)
            .ok_or_else(|| KeywordError::argument(format!("`{value}` is neither a number nor a variable")))?;
        Number::Constant(if complement { number.wrapping_neg() } else { number }.cast_signed())
    };
    let offset = text::number(builder, "offset", offset, i64::from(i32::MIN)..=i64::from(i32::MAX))?;
    let mut common = ByteKeywordOptions::default();
    for item in options {
        if !common.take(item)? {
            return Err(unknown(item));
        }
    }
    let field = common.field(builder, bytes, offset, NumberBase::Auto)?;
    let bitmask = common.bitmask;
    builder.push_positional(Item::Test(ByteTest { field, operator, negated, value, bitmask }))
}

fn byte_jump(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    let [bytes, offset, options @ ..] = items.as_slice() else {
        return Err(missing("byte_jump", "bytes,offset[,options]"));
    };
    let bytes = text::number(builder, "bytes", bytes, 0..=23)?;
    let offset = text::number(builder, "offset", offset, -OFFSET_MAX..=OFFSET_MAX)?;
    let mut common = ByteKeywordOptions::default();
    let (mut multiplier, mut post_offset) = (1u32, Number::Constant(0));
    let (mut align, mut from_beginning, mut from_end) = (false, false, false);
    for item in options {
        let (word, rest) = text::word(item);
        match word.to_ascii_lowercase().as_str() {
            "align" => align = true,
            "from_beginning" => from_beginning = true,
            "from_end" => from_end = true,
            "multiplier" => multiplier = text::within("multiplier", rest, 1..=65_535)?,
            "post_offset" => {
                post_offset = text::number(builder, "post_offset", rest, -OFFSET_MAX..=OFFSET_MAX)?;
            }
            _ if common.take(item)? => {}
            _ => return Err(unknown(item)),
        }
    }
    if from_beginning && from_end {
        return Err(KeywordError::argument("from_beginning and from_end contradict each other"));
    }
    if common.order == Some(ByteOrder::Dce) && (from_beginning || from_end) {
        return Err(KeywordError::argument("`dce` cannot be used with from_beginning or from_end"));
    }
    let field = common.field(builder, bytes, offset, NumberBase::Auto)?;
    let bitmask = common.bitmask;
    builder.push_positional(Item::Jump(ByteJump {
        field,
        multiplier,
        align,
        from_beginning,
        from_end,
        post_offset,
        bitmask,
    }))
}

fn byte_extract(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let items = text::items(argument)?;
    let [bytes, offset, name, options @ ..] = items.as_slice() else {
        return Err(missing("byte_extract", "bytes,offset,variable[,options]"));
    };
    let bytes = text::number(builder, "bytes", bytes, 0..=23)?;
    let offset = text::number(builder, "offset", offset, -OFFSET_MAX..=OFFSET_MAX)?;
    if !text::is_name(name) {
        return Err(KeywordError::argument(format!("`{name}` is not the name of a variable")));
    }
    let mut common = ByteKeywordOptions::default();
    let (mut multiplier, mut align) = (1u32, None);
    for item in options {
        let (word, rest) = text::word(item);
        match word.to_ascii_lowercase().as_str() {
            "multiplier" => multiplier = text::within("multiplier", rest, 1..=65_535)?,
            "align" => {
                let to: u8 = text::within("align", rest, 2..=4)?;
                if to == 3 {
                    return Err(KeywordError::argument("align takes 2 or 4"));
                }
                align = Some(to);
            }
            _ if common.take(item)? => {}
            _ => return Err(unknown(item)),
        }
    }
    if common.bitmask.is_some() {
        return Err(unknown("bitmask"));
    }
    let field = common.field(builder, bytes, offset, NumberBase::Decimal)?;
    let variable = builder.variable(name, true)?;
    builder.push_positional(Item::Extract(ByteExtract { field, variable, multiplier, align }))
}

fn byte_math(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let mut common = ByteKeywordOptions::default();
    let (mut bytes, mut offset, mut operator, mut value, mut result) = (None, None, None, None, None);
    for item in text::items(argument)? {
        let (word, rest) = text::word(item);
        let twice = match word.to_ascii_lowercase().as_str() {
            "bytes" => bytes.replace(text::number(builder, "bytes", rest, 1..=10)?).is_some(),
            "offset" => {
                offset.replace(text::number(builder, "offset", rest, -OFFSET_MAX..=OFFSET_MAX)?).is_some()
            }
            "oper" => operator.replace(math_operator(rest)?).is_some(),
            "rvalue" => {
                let range = 0..=i64::from(u32::MAX);
                value.replace(text::number(builder, "rvalue", rest, range)?).is_some()
            }
            "result" if text::is_name(rest) => result.replace(rest).is_some(),
            "endian" => common.order.replace(order(rest)?).is_some(),
            "string" => {
                common.string = true;
                rest.is_empty() || !common.take(rest)? || common.base.is_none()
            }
            _ if common.take(item)? => false,
            _ => return Err(unknown(item)),
        };
        if twice {
            return Err(KeywordError::argument(format!("`{word}` occurs twice or lacks its value")));
        }
    }
    let (Some(bytes), Some(offset), Some(operator), Some(value), Some(result)) =
        (bytes, offset, operator, value, result)
    else {
        return Err(missing("byte_math", "bytes N, offset N, oper OP, rvalue N, result NAME[, options]"));
    };
    let field = common.field(builder, bytes, offset, NumberBase::Decimal)?;
    let variable = builder.variable(result, true)?;
    let bitmask = common.bitmask;
    builder.push_positional(Item::Math(ByteMath { field, operator, value, variable, bitmask }))
}

fn math_operator(text: &str) -> Result<MathOperator, KeywordError> {
    Ok(match text {
        "+" => MathOperator::Add,
        "-" => MathOperator::Subtract,
        "*" => MathOperator::Multiply,
        "/" => MathOperator::Divide,
        "<<" => MathOperator::ShiftLeft,
        ">>" => MathOperator::ShiftRight,
        other => {
            return Err(KeywordError::argument(format!("unknown operation `{other}`"))
                .help("operations are + - * / << >>"));
        }
    })
}

fn order(text: &str) -> Result<ByteOrder, KeywordError> {
    match text {
        "big" => Ok(ByteOrder::Big),
        "little" => Ok(ByteOrder::Little),
        other => Err(KeywordError::argument(format!("`{other}` is not a byte order: big, little"))),
    }
}
