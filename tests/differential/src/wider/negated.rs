// SPDX-License-Identifier: Apache-2.0
//! Negated contents of every form, with contents that are relative to them.

use crate::look::{Look, gap, two};
use crate::order::Order;
use crate::pair::Rule;
use crate::text::{at, content, expression, near, near_positive, other_case, place};
use crate::usual::head;
use bartizan_testkit::random::Random;

/// A rule with a negated content.
pub(super) fn rule(random: &mut Random, order: &Order<'_>) -> (String, Rule) {
    let target = order.target;
    let (name, look) = random.pick(SHAPES);
    let mut options = Vec::new();
    if !target.buffer.is_empty() {
        options.push(target.buffer.into());
    }
    options.extend(look(random, &target.data));
    let head = head(random, target);
    (format!("{}+{name}", target.buffer), order.rule(random, head, options))
}

/// A negated piece that occurs, or does not.
fn denied(random: &mut Random, data: &[u8]) -> String {
    let piece = place(random, data, 4);
    let bytes = if random.percent(35) { b"qq".to_vec() } else { at(data, piece) };
    content(&bytes).replacen(':', ":!", 1)
}

/// A short piece, which is likely to occur several times.
fn short(random: &mut Random, data: &[u8]) -> (String, (usize, usize)) {
    let piece = place(random, data, 2);
    (content(&at(data, piece)), piece)
}

fn within(random: &mut Random, size: usize) -> String {
    format!("within:{}", near(random, size).max(4))
}

const SHAPES: &[(&str, Look)] = &[
    ("distance", |r, d| {
        let (first, from) = short(r, d);
        let to = place(r, d, 3);
        vec![first, denied(r, d), format!("distance:{}", near_positive(r, gap(from, to)))]
    }),
    ("distance-zero", |r, d| vec![short(r, d).0, denied(r, d), "distance:0".into()]),
    ("distance-within", |r, d| {
        let (a, b) = two(r, d);
        let distance = r.below(gap(a, b) + 1);
        let reach = within(r, gap(a, b) + b.1 - distance);
        vec![short(r, d).0, denied(r, d), format!("distance:{distance}"), reach]
    }),
    ("within", |r, d| {
        let (a, b) = two(r, d);
        let reach = within(r, gap(a, b) + b.1);
        vec![content(&at(d, a)), denied(r, d), reach]
    }),
    ("offset", |r, d| {
        let piece = place(r, d, 4);
        vec![denied(r, d), format!("offset:{}", near_positive(r, piece.0))]
    }),
    ("offset-depth", |r, d| {
        let piece = place(r, d, 4);
        let depth = near(r, piece.1).max(4);
        vec![denied(r, d), format!("offset:{}", piece.0), format!("depth:{depth}")]
    }),
    ("startswith", |r, d| vec![short(r, d).0, denied(r, d), "startswith".into()]),
    ("endswith", |r, d| vec![short(r, d).0, denied(r, d), "endswith".into()]),
    ("nocase", |r, d| {
        let piece = place(r, d, 5);
        let other = content(&other_case(&at(d, piece))).replacen(':', ":!", 1);
        vec![short(r, d).0, other, "nocase".into()]
    }),
    ("middle", |r, d| {
        let (a, b) = two(r, d);
        vec![
            content(&at(d, a)),
            denied(r, d),
            "within:6".into(),
            content(&at(d, b)),
            format!("distance:{}", near_positive(r, 0)),
        ]
    }),
    ("two", |r, d| {
        vec![short(r, d).0, denied(r, d), "within:5".into(), denied(r, d), format!("distance:{}", r.below(4))]
    }),
    ("first", |r, d| {
        let piece = place(r, d, 4);
        let depth = near(r, piece.0 + piece.1).max(4);
        vec![denied(r, d), format!("depth:{depth}"), content(&at(d, piece))]
    }),
    ("isdataat", |r, d| {
        let (a, b) = two(r, d);
        let behind = near_positive(r, d.len().saturating_sub(a.0 + a.1));
        vec![
            content(&at(d, a)),
            format!("isdataat:!{behind},relative"),
            denied(r, d),
            "distance:0".into(),
            content(&at(d, b)),
        ]
    }),
    ("pcre", |r, d| {
        let piece = place(r, d, 3);
        vec![short(r, d).0, format!("pcre:!\"/{}/R\"", expression(&at(d, piece)))]
    }),
    ("pcre-between", |r, d| {
        let (a, b) = two(r, d);
        let piece = place(r, d, 2);
        vec![
            content(&at(d, a)),
            format!("pcre:!\"/^{}/R\"", expression(&at(d, piece))),
            content(&at(d, b)),
            "distance:0".into(),
        ]
    }),
    ("byte-test", |r, d| {
        let (first, piece) = short(r, d);
        let value = d.get(piece.0 + piece.1).copied().unwrap_or_default();
        vec![first, format!("byte_test:1,!=,{value},0,relative"), denied(r, d), "distance:1".into()]
    }),
    ("fast-pattern", |r, d| vec![short(r, d).0, "fast_pattern".into(), denied(r, d), "distance:0".into()]),
    ("backwards", |r, d| {
        let piece = place(r, d, 3);
        vec![content(&at(d, piece)), denied(r, d), format!("distance:-{}", r.within(1, 6)), "within:5".into()]
    }),
];
