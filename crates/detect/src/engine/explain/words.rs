// SPDX-License-Identifier: Apache-2.0
//! Conditions of rules in words.

use crate::model::content::{ByteOrder, Item, Literal, Number, NumberField, RegexItem};
use bartizan_rules::{UintMatch, format_pattern};

/// A number: itself, or the variable that holds it.
fn number(number: Number) -> String {
    match number {
        Number::Constant(value) => value.to_string(),
        Number::Variable(index) => format!("variable {index}"),
    }
}

/// Text of a literal as rules write it.
#[must_use]
pub fn pattern(bytes: &[u8]) -> String {
    format!("\"{}\"", format_pattern(bytes))
}

fn literal(literal: &Literal) -> String {
    let mut text = format!(
        "{}{}{}",
        if literal.negated { "does not contain " } else { "contains " },
        pattern(&literal.bytes),
        if literal.nocase { " in any letter case" } else { "" },
    );
    let place = &literal.place;
    if literal.startswith {
        text.push_str(", at the beginning");
    } else if let Some(offset) = place.offset {
        text.push_str(&format!(", from offset {}", number(offset)));
    }
    if let Some(depth) = place.depth
        && !literal.startswith
    {
        text.push_str(&format!(", within {} bytes of there", number(depth)));
    }
    if let Some(distance) = place.distance {
        text.push_str(&format!(", {} bytes or more after the previous item", number(distance)));
    }
    if let Some(within) = place.within {
        text.push_str(&format!(", ending within {} bytes of the item before", number(within)));
    }
    if literal.endswith {
        text.push_str(", at the end");
    }
    if literal.fast_pattern_only {
        text.push_str(" (fast_pattern:only)");
    }
    text
}

fn regex(item: &RegexItem) -> String {
    let verb = if item.negated { "does not match" } else { "matches" };
    let from = if item.relative { ", from the item before" } else { "" };
    let text = String::from_utf8_lossy(item.regex.pattern()).into_owned();
    let sets = match item.captures.len() {
        0 => String::new(),
        n => format!("; sets {n} variables"),
    };
    format!("{verb} /{text}/{from}{sets}")
}

fn field(field: &NumberField) -> String {
    let from = if field.relative { " after the previous item" } else { "" };
    let how = match (field.string, field.order) {
        (Some(_), _) => "in digits",
        (None, ByteOrder::Big) => "big endian",
        (None, ByteOrder::Little) => "little endian",
        (None, ByteOrder::Dce) => "in DCERPC's byte order",
    };
    format!("the number of {} bytes at offset {}{from}, {how},", number(field.bytes), number(field.offset))
}

/// A comparison of an unsigned number: `= 3`, `< 4`.
#[must_use]
pub fn comparison(check: &UintMatch<u64>) -> String {
    match check {
        UintMatch::Equal(n) => format!("= {n}"),
        UintMatch::NotEqual(n) => format!("!= {n}"),
        UintMatch::Less(n) => format!("< {n}"),
        UintMatch::LessEqual(n) => format!("<= {n}"),
        UintMatch::Greater(n) => format!("> {n}"),
        UintMatch::GreaterEqual(n) => format!(">= {n}"),
        UintMatch::Between(a, b) => format!("between {a} and {b}, both excluded"),
        UintMatch::NotBetween(a, b) => format!("not between {a} and {b}"),
        UintMatch::Masked(mask, n) => format!("& {mask:#x} = {n:#x}"),
        UintMatch::NotMasked(mask, n) => format!("& {mask:#x} != {n:#x}"),
    }
}

/// An item of a buffer's program in words.
#[must_use]
pub fn item(of: &Item) -> String {
    match of {
        Item::Literal(l) => literal(l),
        Item::Regex(r) => regex(r),
        Item::DataAt { at, relative, negated } => {
            let verb = if *negated { "has no byte" } else { "has a byte" };
            let from = if *relative { " after the previous item" } else { "" };
            format!("{verb} at {}{from}", number(*at))
        }
        Item::Test(test) => format!(
            "{} {}{:?} {}",
            field(&test.field),
            if test.negated { "is not " } else { "is " },
            test.operator,
            number(test.value)
        ),
        Item::Jump(jump) => format!("moves forward by {}", field(&jump.field)),
        Item::Extract(extract) => {
            format!("{} is stored in variable {}", field(&extract.field), extract.variable)
        }
        Item::Math(math) => {
            let value = number(math.value);
            format!(
                "{} {:?} {value} is stored in variable {}",
                field(&math.field),
                math.operator,
                math.variable
            )
        }
        Item::Size { check, .. } => format!("has a length {}", comparison(check)),
        Item::Base64 { offset, inner, .. } => {
            let inner: Vec<String> = inner.items.iter().map(item).collect();
            format!("decoded from Base64 at offset {offset} it {}", inner.join(", "))
        }
        Item::Custom(_) => "meets a condition on the whole value".to_owned(),
    }
}
