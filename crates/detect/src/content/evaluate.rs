// SPDX-License-Identifier: Apache-2.0
//! Running a content program on a value.

use super::{Capture, Item, Literal, Program, RegexItem, STEPS_MAX, VARIABLES_MAX};
use crate::condition::{Answer, Scene};
use bartizan_pattern::{MatchOptions, Scratch};

/// Position from which relative items start.
pub type Cursor = usize;

/// What came of running a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All items hold.
    Match,
    /// They do not.
    NoMatch,
    /// They do not, but more data may change that.
    NotYet,
}

/// Everything a run needs beside program and value; owned by the worker and reused.
pub struct Evaluation<'e> {
    /// What conditions may look at.
    pub scene: Scene<'e>,
    /// Scratch memory of the pattern engines.
    pub scratch: &'e mut Scratch,
    /// Values of `byte_extract` and `byte_math`; they live on from buffer to buffer of one rule.
    pub variables: &'e mut [u64; VARIABLES_MAX],
    /// Decoded bytes of `base64_decode`.
    pub decoded: &'e mut Vec<u8>,
    /// What capture groups filled, applied when the rule matches.
    pub captured: &'e mut Vec<(Capture, Vec<u8>)>,
    /// DCERPC says little endian.
    pub little_endian: bool,
    /// No more data of this value will follow.
    pub complete: bool,
    /// Steps left.
    pub steps: u32,
    /// An expression ran into its match limit (counted by the caller).
    pub limit_hit: bool,
}

/// Runs a program on a value.
#[must_use]
pub fn evaluate(program: &Program, value: &[u8], run: &mut Evaluation<'_>) -> Outcome {
    run.steps = STEPS_MAX;
    items(&program.items, value, 0, run)
}

/// Runs the rest of a program from a cursor.
fn items(list: &[Item], value: &[u8], cursor: Cursor, run: &mut Evaluation<'_>) -> Outcome {
    let Some((item, rest)) = list.split_first() else { return Outcome::Match };
    run.steps = run.steps.saturating_sub(1);
    if run.steps == 0 {
        return Outcome::NoMatch;
    }
    match item {
        Item::Literal(literal) => literal_item(literal, rest, value, cursor, run),
        Item::Regex(regex) => regex_item(regex, rest, value, cursor, run),
        Item::DataAt { at, relative, negated } => {
            let base = if *relative { cursor } else { 0 };
            let at = i64::try_from(base).unwrap_or(i64::MAX).saturating_add(at.value(run.variables));
            let there = usize::try_from(at).is_ok_and(|at| at < value.len());
            go_on_if(there != *negated, rest, value, cursor, run)
        }
        Item::Test(test) => {
            let holds = test.holds(value, cursor, run.variables, run.little_endian);
            go_on_if(holds, rest, value, cursor, run)
        }
        Item::Jump(jump) => match jump.target(value, cursor, run.variables, run.little_endian) {
            Some(cursor) => items(rest, value, cursor, run),
            None => Outcome::NoMatch,
        },
        Item::Extract(extract) => match extract.run(value, cursor, run.variables, run.little_endian) {
            Some(cursor) => items(rest, value, cursor, run),
            None => Outcome::NoMatch,
        },
        Item::Math(math) => match math.run(value, cursor, run.variables, run.little_endian) {
            Some(cursor) => items(rest, value, cursor, run),
            None => Outcome::NoMatch,
        },
        Item::Size { check } => {
            if check.matches(value.len() as u64) {
                items(rest, value, cursor, run)
            } else if run.complete {
                Outcome::NoMatch
            } else {
                Outcome::NotYet
            }
        }
        Item::Base64 { bytes, offset, relative, inner } => {
            let base = if *relative { cursor } else { 0 };
            base64_item(base.saturating_add(*offset as usize), *bytes, inner, rest, value, cursor, run)
        }
        Item::Custom(condition) => match condition.matches(value, run.complete, &run.scene) {
            Answer::Yes => items(rest, value, cursor, run),
            Answer::No => Outcome::NoMatch,
            Answer::NotYet => Outcome::NotYet,
        },
    }
}

fn go_on_if(holds: bool, rest: &[Item], value: &[u8], cursor: Cursor, run: &mut Evaluation<'_>) -> Outcome {
    if holds { items(rest, value, cursor, run) } else { Outcome::NoMatch }
}

/// Whether another occurrence can change what follows.
fn next_is_relative(rest: &[Item]) -> bool {
    rest.first().is_some_and(Item::is_relative)
}

fn literal_item(
    literal: &Literal,
    rest: &[Item],
    value: &[u8],
    cursor: Cursor,
    run: &mut Evaluation<'_>,
) -> Outcome {
    let Some((start, end)) = literal.window(cursor, value.len(), run.variables) else {
        return go_on_if(literal.negated, rest, value, cursor, run);
    };
    if literal.negated {
        let found = literal.find(value, start, end).is_some();
        return go_on_if(!found, rest, value, cursor, run);
    }
    let mut from = start;
    while let Some(at) = literal.find(value, from, end) {
        match items(rest, value, at.saturating_add(literal.bytes.len()), run) {
            Outcome::NoMatch if next_is_relative(rest) && run.steps > 0 => from = at.saturating_add(1),
            other => return other,
        }
    }
    Outcome::NoMatch
}

fn regex_item(
    item: &RegexItem,
    rest: &[Item],
    value: &[u8],
    cursor: Cursor,
    run: &mut Evaluation<'_>,
) -> Outcome {
    let mut from = if item.relative { cursor } else { 0 };
    loop {
        let found = match item.regex.find_at(run.scratch, value, from, MatchOptions::empty()) {
            Ok(found) => found,
            Err(_) => {
                run.limit_hit = true;
                None
            }
        };
        let Some((start, end)) = found.as_ref().map(|m| (m.start(), m.end())) else {
            return go_on_if(item.negated, rest, value, cursor, run);
        };
        if item.negated {
            return Outcome::NoMatch;
        }
        for (group, target) in &item.captures {
            let range = found.as_ref().and_then(|m| m.group(*group));
            if let Some(bytes) = range.and_then(|(from, to)| value.get(from..to)) {
                run.captured.push((target.clone(), bytes.to_vec()));
            }
        }
        match items(rest, value, end, run) {
            Outcome::NoMatch if next_is_relative(rest) && run.steps > 0 => {
                from = start.saturating_add(1);
                if from > value.len() {
                    return Outcome::NoMatch;
                }
            }
            other => return other,
        }
    }
}

fn base64_item(
    from: usize,
    limit: u32,
    inner: &Program,
    rest: &[Item],
    value: &[u8],
    cursor: Cursor,
    run: &mut Evaluation<'_>,
) -> Outcome {
    let Some(mut encoded) = value.get(from..) else { return Outcome::NoMatch };
    if limit != 0 {
        encoded = encoded.get(..limit as usize).unwrap_or(encoded);
    }
    let mut decoded = core::mem::take(run.decoded);
    decoded.clear();
    crate::base64::decode_lenient(encoded, &mut decoded);
    let outcome = if decoded.is_empty() { Outcome::NoMatch } else { items(&inner.items, &decoded, 0, run) };
    *run.decoded = decoded;
    match outcome {
        Outcome::Match => items(rest, value, cursor, run),
        other => other,
    }
}
