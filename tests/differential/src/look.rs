// SPDX-License-Identifier: Apache-2.0
//! Ways to match bytes: each content modifier, regular expressions and the byte keywords, with numbers that
//! are right, or off by one.

use crate::text::{at, content, expression, near, near_positive, other_case, place};
use bartizan_testkit::random::Random;

/// Makes options that match `data`, which may be a payload or the value of a buffer.
pub type Look = fn(&mut Random, &[u8]) -> Vec<String>;

/// All ways to match, by name.
pub const LOOKS: &[(&str, Look)] = &[
    ("content", |r, d| {
        let piece = place(r, d, 8);
        vec![content(&at(d, piece))]
    }),
    ("nocase", |r, d| {
        let piece = place(r, d, 8);
        vec![content(&other_case(&at(d, piece))), "nocase".into()]
    }),
    ("wrong-case", |r, d| {
        let piece = place(r, d, 8);
        vec![content(&other_case(&at(d, piece)))]
    }),
    ("offset", |r, d| {
        let piece = place(r, d, 6);
        vec![content(&at(d, piece)), format!("offset:{}", near_positive(r, piece.0))]
    }),
    ("depth", |r, d| {
        let piece = place(r, d, 6);
        let depth = near(r, piece.0 + piece.1).max(piece.1 as i64);
        vec![content(&at(d, piece)), format!("depth:{}", depth.max(2))]
    }),
    ("offset-depth", |r, d| {
        let piece = place(r, d, 6);
        let from = r.below(piece.0 + 1);
        let depth = near(r, piece.0 + piece.1 - from).max(piece.1.max(2) as i64);
        vec![content(&at(d, piece)), format!("offset:{from}"), format!("depth:{depth}")]
    }),
    ("startswith", |r, d| {
        let mut piece = place(r, d, 8);
        if r.percent(70) {
            piece.0 = 0;
        }
        vec![content(&at(d, piece)), "startswith".into()]
    }),
    ("endswith", |r, d| {
        let mut piece = place(r, d, 8);
        if r.percent(70) {
            piece.0 = d.len() - piece.1;
        }
        vec![content(&at(d, piece)), "endswith".into()]
    }),
    ("whole", |r, d| {
        let end = d.len().min(200) - usize::from(r.percent(20) && !d.is_empty());
        vec![content(&at(d, (0, end))), "startswith".into(), "endswith".into()]
    }),
    ("negated", |r, d| {
        let (piece, other) = (place(r, d, 3), place(r, d, 6));
        let absent = if r.percent(50) { b"qqqq".to_vec() } else { at(d, other) };
        vec![content(&at(d, piece)), content(&absent).replacen(':', ":!", 1)]
    }),
    ("negated-alone", |r, d| {
        let piece = place(r, d, 5);
        let absent = if r.percent(60) { b"qqqq".to_vec() } else { at(d, piece) };
        vec![content(&absent).replacen(':', ":!", 1)]
    }),
    ("negated-depth", |r, d| {
        let (first, piece) = (place(r, d, 4), place(r, d, 5));
        let depth = near(r, piece.0 + piece.1).max(piece.1.max(2) as i64);
        vec![content(&at(d, first)), content(&at(d, piece)).replacen(':', ":!", 1), format!("depth:{depth}")]
    }),
    ("distance", |r, d| {
        let (a, b) = two(r, d);
        vec![content(&at(d, a)), content(&at(d, b)), format!("distance:{}", near(r, gap(a, b)))]
    }),
    ("within", |r, d| {
        let (a, b) = two(r, d);
        let within = near(r, gap(a, b) + b.1).max(b.1.max(1) as i64);
        vec![content(&at(d, a)), content(&at(d, b)), format!("within:{within}")]
    }),
    ("distance-within", |r, d| {
        let (a, b) = two(r, d);
        let distance = r.below(gap(a, b) + 1);
        let within = near(r, gap(a, b) + b.1 - distance).max(b.1.max(1) as i64);
        vec![
            content(&at(d, a)),
            content(&at(d, b)),
            format!("distance:{distance}"),
            format!("within:{within}"),
        ]
    }),
    ("backwards", |r, d| {
        let (a, b) = two(r, d);
        let distance = a.0 as i64 - (b.0 + b.1) as i64 + *r.pick(&[0, 0, -1, 1]);
        vec![content(&at(d, b)), content(&at(d, a)), format!("distance:{distance}")]
    }),
    ("three", |r, d| {
        let (a, b) = two(r, d);
        let c = place(r, d, 3);
        let behind = (c.0 + c.1).saturating_sub(b.0 + b.1);
        vec![
            content(&at(d, a)),
            content(&at(d, b)),
            format!("within:{}", near(r, gap(a, b) + b.1).max(b.1.max(1) as i64)),
            content(&at(d, c)),
            format!("within:{}", near(r, behind).max(c.1.max(1) as i64)),
        ]
    }),
    ("negated-within", |r, d| {
        let (a, b) = two(r, d);
        let within = near(r, gap(a, b) + b.1).max(b.1.max(1) as i64);
        vec![content(&at(d, a)), content(&at(d, b)).replacen(':', ":!", 1), format!("within:{within}")]
    }),
    ("isdataat", |r, d| {
        let size = near_positive(r, d.len());
        vec![not(r, "isdataat:", &size.to_string())]
    }),
    ("isdataat-relative", |r, d| {
        let piece = place(r, d, 5);
        let behind = near_positive(r, d.len().saturating_sub(piece.0 + piece.1));
        vec![content(&at(d, piece)), not(r, "isdataat:", &format!("{behind},relative"))]
    }),
    ("fast-pattern", |r, d| {
        let (a, b) = two(r, d);
        vec![content(&at(d, a)), "fast_pattern".into(), content(&at(d, b))]
    }),
    ("fast-pattern-only", |r, d| {
        let (a, b) = two(r, d);
        vec![content(&at(d, a)), "fast_pattern:only".into(), content(&at(d, b))]
    }),
    ("fast-pattern-chop", |r, d| {
        let piece = place(r, d, 12);
        let from = r.below(piece.1);
        let length = r.within(1, (piece.1 - from).max(1));
        vec![content(&at(d, piece)), format!("fast_pattern:{from},{length}")]
    }),
    ("long", |r, d| {
        let length = d.len().min(60);
        let from = r.below(d.len() - length + 1);
        vec![content(&at(d, (from, length)))]
    }),
    ("pcre", |r, d| {
        let piece = place(r, d, 8);
        vec![pcre(r, &expression(&at(d, piece)), "")]
    }),
    ("pcre-anchored", |r, d| {
        let mut piece = place(r, d, 8);
        if r.percent(60) {
            piece.0 = 0;
        }
        let flags = *r.pick(&["", "m", "A", "s"]);
        let text = format!("^{}", expression(&at(d, piece)));
        vec![pcre(r, &text, flags)]
    }),
    ("pcre-end", |r, d| {
        let mut piece = place(r, d, 8);
        if r.percent(60) {
            piece.0 = d.len() - piece.1;
        }
        let flags = *r.pick(&["", "m", "E", "s"]);
        let text = format!("{}$", expression(&at(d, piece)));
        vec![pcre(r, &text, flags)]
    }),
    ("pcre-gap", |r, d| {
        let (a, b) = two(r, d);
        let flags = *r.pick(&["", "s", "i"]);
        let count = near_positive(r, gap(a, b));
        let text = format!("{}.{{{count}}}{}", expression(&at(d, a)), expression(&at(d, b)));
        vec![pcre(r, &text, flags)]
    }),
    ("pcre-relative", |r, d| {
        let (a, b) = two(r, d);
        let text = if r.percent(50) { format!("^.{{{}}}", gap(a, b)) } else { String::new() };
        vec![content(&at(d, a)), pcre(r, &format!("{text}{}", expression(&at(d, b))), "Rs")]
    }),
    ("pcre-then", |r, d| {
        let (a, b) = two(r, d);
        vec![
            format!("pcre:\"/{}/\"", expression(&at(d, a))),
            content(&at(d, b)),
            format!("within:{}", near(r, gap(a, b) + b.1).max(b.1.max(1) as i64)),
        ]
    }),
    ("byte-test", |r, d| {
        let (bytes, from) = number(r, d);
        let value = big(d, from, bytes).wrapping_add(*r.pick(&[0, 0, 1]));
        let (operator, order) = (*r.pick(OPERATORS), *r.pick(&["", "", ",little", ",big"]));
        vec![not(r, "byte_test:", &format!("{bytes},{operator},{value},{from}{order}")).replace(":!", ":")]
    }),
    ("byte-test-relative", |r, d| {
        let (bytes, from) = number(r, d);
        let (length, value) = (r.within(1, 3).min(from), big(d, from, bytes));
        let piece = (from - length, length);
        let beside = *r.pick(&[0, 0, 0, 1, -1]);
        let operator = r.pick(OPERATORS);
        vec![content(&at(d, piece)), format!("byte_test:{bytes},{operator},{value},{beside},relative")]
    }),
    ("byte-test-mask", |r, d| {
        let (bytes, from) = number(r, d);
        let mask = *r.pick(&[0x0f_u64, 0xf0, 0xff, 0x3c]);
        let value = (big(d, from, bytes) & mask) >> mask.trailing_zeros();
        vec![format!("byte_test:{bytes},=,{value},{from},bitmask 0x{mask:x}")]
    }),
    ("byte-test-string", |r, d| {
        let from = digits(r, d);
        let (count, base) = (r.within(1, 4), *r.pick(&["dec", "hex", "oct"]));
        let value = *r.pick(&[0, 7, 12, 255, 100]);
        let operator = r.pick(OPERATORS);
        vec![format!("byte_test:{count},{operator},{value},{from},string,{base}")]
    }),
    ("byte-jump", |r, d| {
        let (bytes, from) = number(r, d);
        let to = from + bytes + big(d, from, bytes) as usize;
        let piece = (to.min(d.len()), 2);
        let extra = *r.pick(&[
            "",
            "",
            ",multiplier 2",
            ",post_offset 1",
            ",post_offset -1",
            ",align",
            ",from_beginning",
            ",little",
        ]);
        vec![
            format!("byte_jump:{bytes},{from}{extra}"),
            content(&at(d, piece)),
            if r.percent(50) { "distance:0".into() } else { "within:3".into() },
        ]
    }),
    ("byte-jump-relative", |r, d| {
        let (bytes, from) = number(r, d);
        let length = r.within(1, 3).min(from);
        let to = from + bytes + big(d, from, bytes) as usize;
        let piece = (to.min(d.len()), 2);
        let extra = *r.pick(&["", "", ",from_end", ",post_offset -2", ",from_beginning"]);
        vec![
            content(&at(d, (from - length, length))),
            format!("byte_jump:{bytes},0,relative{extra}"),
            if r.percent(50) { content(&at(d, piece)) } else { "isdataat:1,relative".into() },
        ]
    }),
    ("byte-extract", |r, d| {
        let (bytes, from) = number(r, d);
        let piece = place(r, d, 3);
        let modifier = *r.pick(&["offset", "depth", "within", "distance"]);
        vec![format!("byte_extract:{bytes},{from},var"), content(&at(d, piece)), format!("{modifier}:var")]
    }),
    ("byte-extract-test", |r, d| {
        let (bytes, from) = number(r, d);
        let piece = place(r, d, 3);
        let operator = r.pick(OPERATORS);
        vec![
            content(&at(d, piece)),
            format!("byte_extract:{bytes},{from},var"),
            format!("byte_test:{bytes},{operator},var,{}", near_positive(r, from)),
        ]
    }),
    ("byte-math", |r, d| {
        let (bytes, from) = number(r, d);
        let (operator, value) = *r.pick(&[("+", 1), ("-", 1), ("*", 2), ("/", 2), ("<<", 1), (">>", 1)]);
        let piece = place(r, d, 3);
        let modifier = *r.pick(&["offset", "depth", "distance"]);
        vec![
            format!("byte_math:bytes {bytes}, offset {from}, oper {operator}, rvalue {value}, result res"),
            content(&at(d, piece)),
            format!("{modifier}:res"),
        ]
    }),
    ("base64", |r, d| {
        let piece = place(r, d, 4);
        let (from, bytes) = (near_positive(r, piece.0), r.within(4, 16));
        let text = *r.pick(&["a", "i", "abc", "|69|"]);
        vec![
            format!("base64_decode:bytes {bytes}, offset {from}"),
            "base64_data".into(),
            format!("content:\"{text}\""),
        ]
    }),
    ("rawbytes", |r, d| {
        let piece = place(r, d, 8);
        vec![content(&at(d, piece)), "rawbytes".into()]
    }),
];

const OPERATORS: &[&str] = &["=", "=", "<", ">", "<=", ">=", "&", "^", "!=", "!"];

/// Two places; the second one follows the first without overlap if there is room.
pub(crate) fn two(random: &mut Random, data: &[u8]) -> ((usize, usize), (usize, usize)) {
    let (a, b) = (place(random, data, 4), place(random, data, 4));
    let (a, b) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    let end = a.0 + a.1;
    if b.0 >= end || end >= data.len() {
        return (a, b);
    }
    (a, (end, b.1.min(data.len() - end)))
}

pub(crate) fn gap(a: (usize, usize), b: (usize, usize)) -> usize {
    b.0.saturating_sub(a.0 + a.1)
}

/// The length of a number in bytes, and its offset.
fn number(random: &mut Random, data: &[u8]) -> (usize, usize) {
    let bytes = *random.pick(&[1, 1, 1, 2, 4]);
    // Prefers a small number, which a jump can use.
    let small: Vec<usize> = (0..data.len()).filter(|at| usize::from(data[*at]) < data.len()).collect();
    let from =
        if bytes == 1 && !small.is_empty() { *random.pick(&small) } else { random.below(data.len().max(1)) };
    (bytes, from)
}

/// The offset of a digit.
fn digits(random: &mut Random, data: &[u8]) -> usize {
    let places: Vec<usize> = (0..data.len()).filter(|at| data[*at].is_ascii_digit()).collect();
    if places.is_empty() { 0 } else { *random.pick(&places) }
}

/// The big-endian number at an offset, as far as there are bytes.
fn big(data: &[u8], from: usize, bytes: usize) -> u64 {
    data.iter().skip(from).take(bytes).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// A keyword with its argument, sometimes negated.
fn not(random: &mut Random, keyword: &str, argument: &str) -> String {
    format!("{keyword}{}{argument}", if random.percent(35) { "!" } else { "" })
}

fn pcre(random: &mut Random, text: &str, flags: &str) -> String {
    let not = if random.percent(15) { "!" } else { "" };
    let case = if random.percent(20) && !flags.contains('i') { "i" } else { "" };
    format!("pcre:{not}\"/{text}/{flags}{case}\"")
}
