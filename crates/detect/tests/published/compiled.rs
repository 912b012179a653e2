// SPDX-License-Identifier: Apache-2.0
//! Requirements of a compiled rule, in the form of `asked.rs`.

use super::asked::{Asked, BufferNumber, Content, Meaning, from, sorted};
use bartizan_detect::buffers::Buffers;
use bartizan_detect::content::{
    ByteOrder, Item, Literal, Number, NumberBase, NumberField, Program, TestOperator,
};
use bartizan_detect::signature::{Absent, Member};
use bartizan_rules::UintMatch;
use std::fmt::Write as _;

/// The requirements of a compiled rule.
pub fn meaning_of_rule(rule: &Member, buffers: &Buffers) -> Meaning {
    let mut meaning = Meaning {
        action: format!("{:?}", rule.action).to_ascii_lowercase(),
        noalert: rule.noalert,
        bypass: rule.bypass,
        limits: rule.signature.thresholds.len(),
        others: rule.packet.len() + rule.tx.len() + rule.effects.len() + rule.requests.len(),
        ..Meaning::default()
    };
    let mut words: Vec<String> = rule.flow.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    words.sort_unstable();
    meaning.flow = words.join(",");
    for value in &rule.values {
        let mut key = buffers.name(value.buffer).to_owned();
        for transform in &value.transforms {
            let _ = write!(key, " {}", transform.key());
        }
        if value.absent != Absent::No {
            let _ = write!(key, " {:?}", value.absent);
        }
        program(&mut meaning.buffers, &key, &value.program);
    }
    meaning
}

fn program(asked: &mut Asked, key: &str, program: &Program) {
    for item in &program.items {
        let text = item_text(item);
        asked.entry(key.to_owned()).or_default().push(text);
        if let Item::Base64 { inner, .. } = item
            && !inner.is_empty()
        {
            self::program(asked, &format!("{key} base64"), inner);
        }
    }
}

fn number(of: Number) -> String {
    match of {
        Number::Constant(value) => value.to_string(),
        Number::Variable(at) => format!("v{at}"),
    }
}

fn item_text(item: &Item) -> String {
    match item {
        Item::Literal(literal) => literal_text(literal),
        Item::Regex(regex) => {
            use bartizan_pattern::RegexFlags as Flags;
            let letters = [
                (Flags::CASELESS, 'i'),
                (Flags::MULTILINE, 'm'),
                (Flags::DOTALL, 's'),
                (Flags::EXTENDED, 'x'),
                (Flags::ANCHORED, 'A'),
                (Flags::DOLLAR_ENDONLY, 'E'),
                (Flags::UNGREEDY, 'G'),
            ];
            let flags = letters.iter().filter(|(flag, _)| regex.regex.flags().contains(*flag));
            let flags: String = flags.map(|(_, letter)| letter).collect();
            let expression = String::from_utf8_lossy(regex.regex.pattern());
            let negated = if regex.negated { "!" } else { "" };
            format!("pcre {negated}{expression}{}{}", from(regex.relative), sorted(&flags))
        }
        Item::DataAt { at, relative, negated } => {
            format!("isdataat {}{}{}", if *negated { "!" } else { "" }, number(*at), from(*relative))
        }
        Item::Test(test) => {
            let sign = match test.operator {
                TestOperator::Less => "<",
                TestOperator::Greater => ">",
                TestOperator::Equal => "=",
                TestOperator::LessEqual => "<=",
                TestOperator::GreaterEqual => ">=",
                TestOperator::And => "&",
                TestOperator::Or => "^",
            };
            let negated = if test.negated { "!" } else { "" };
            let value = match test.value {
                Number::Constant(value) => value.cast_unsigned().to_string(),
                variable => number(variable),
            };
            format!("byte_test {} {negated}{sign} {value}", field(&test.field, test.bitmask))
        }
        Item::Jump(jump) => {
            let flags =
                [(jump.align, "align"), (jump.from_beginning, "from_beginning"), (jump.from_end, "from_end")];
            let set = flags.into_iter().filter(|(is_set, _)| *is_set);
            let mut rest: Vec<String> = set.map(|(_, name)| name.to_owned()).collect();
            if jump.multiplier != 1 {
                rest.push(format!("multiplier {}", jump.multiplier));
            }
            if jump.post_offset != Number::Constant(0) {
                rest.push(format!("post_offset {}", number(jump.post_offset)));
            }
            rest.sort_unstable();
            format!("byte_jump {} {}", field(&jump.field, jump.bitmask), rest.join(","))
        }
        Item::Extract(extract) => {
            let mut rest = Vec::new();
            rest.extend(extract.align.map(|to| format!("align {to}")));
            rest.extend((extract.multiplier != 1).then(|| format!("multiplier {}", extract.multiplier)));
            format!("byte_extract {} v{} {}", field(&extract.field, None), extract.variable, rest.join(","))
        }
        Item::Math(_) => "byte_math".to_owned(),
        Item::Size { check, .. } => format!("size {}", size(check)),
        Item::Base64 { bytes, offset, relative, .. } => {
            format!("base64_decode {bytes}@{offset}{}", from(*relative))
        }
        Item::Custom(_) => "custom".to_owned(),
    }
}

fn size(check: &UintMatch<u64>) -> String {
    match check {
        UintMatch::Equal(n) => n.to_string(),
        UintMatch::NotEqual(n) => format!("!{n}"),
        UintMatch::Less(n) => format!("<{n}"),
        UintMatch::LessEqual(n) => format!("<={n}"),
        UintMatch::Greater(n) => format!(">{n}"),
        UintMatch::GreaterEqual(n) => format!(">={n}"),
        UintMatch::Between(low, high) => format!("{low}<>{high}"),
        other => format!("{other:?}"),
    }
}

fn literal_text(literal: &Literal) -> String {
    let place = &literal.place;
    let part =
        literal.fast_pattern_chop.map_or(String::new(), |(offset, length)| format!(" {offset},{length}"));
    let fast = match (literal.fast_pattern, literal.fast_pattern_only) {
        (true, _) => format!(" fast_pattern{part} "),
        (false, true) => " fast_pattern only ".to_owned(),
        (false, false) => String::new(),
    };
    let content = Content {
        bytes: literal.bytes.to_vec(),
        negated: literal.negated,
        nocase: literal.nocase,
        places: [place.offset, place.depth, place.distance, place.within].map(|at| at.map(number)),
        ends: literal.endswith,
        fast,
    };
    content.text()
}

fn field(field: &NumberField, bitmask: Option<u32>) -> String {
    let of = BufferNumber {
        relative: field.relative,
        little: field.order == ByteOrder::Little,
        digits: field.string.is_some(),
        base: field.string.map(|base| match base {
            NumberBase::Octal => "oct",
            NumberBase::Decimal => "dec",
            NumberBase::Hex => "hex",
            NumberBase::Auto => "auto",
        }),
        bitmask: bitmask.map(u64::from),
        rest: Vec::new(),
    };
    of.text(&number(field.bytes), &number(field.offset))
}
