// SPDX-License-Identifier: Apache-2.0
//! Running a content program on a value.

use crate::model::condition::{Answer, BufferCondition, ConditionContext, Measure};
use crate::model::content::{Capture, Item, Literal, Number, Program, RegexItem, VARIABLES_MAX};
use crate::state::FlowRuleState;
use bartizan_pattern::{MatchOptions, Scratch};
use bartizan_rules::UintMatch;

/// Items tried for one value of a buffer before the rule counts as not matching (Suricata's
/// `inspection-recursion-limit` is 3000 by default).
pub const STEPS_MAX: u32 = 3_000;

/// Position from which relative items start.
pub type MatchCursor = usize;

/// The result of a program's run on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramOutcome {
    /// All items hold.
    Match,
    /// Some item does not hold.
    NoMatch,
    /// Some item does not hold, but more data may change that.
    NotYet,
}

/// State of a run beside program and value; the worker owns and reuses it.
pub struct Evaluation<'e> {
    /// Data that conditions may inspect.
    pub scene: &'e ConditionContext<'e>,
    /// Variables of the flow, in place of those of `scene`.
    pub state: Option<&'e FlowRuleState>,
    /// Scratch memory of the pattern engines.
    pub scratch: &'e mut Scratch,
    /// Values of `byte_extract` and `byte_math`, kept across the buffers of one rule.
    pub variables: &'e mut [u64; VARIABLES_MAX],
    /// Decoded bytes of `base64_decode`.
    pub decoded: &'e mut Vec<u8>,
    /// Values of capture groups, applied when the rule matches.
    pub captured: &'e mut Vec<(Capture, Vec<u8>)>,
    /// Values that conditions computed, matching or not.
    pub measured: &'e mut Vec<Measure>,
    /// The DCERPC header declares little-endian numbers.
    pub little_endian: bool,
    /// No more data of this value will follow.
    pub complete: bool,
    /// Steps left.
    pub steps: u32,
    /// An expression reached its match limit (counted by the caller).
    pub limit_hit: bool,
}

/// Runs a program on a value.
#[must_use]
pub fn evaluate(program: &Program, value: &[u8], run: &mut Evaluation<'_>) -> ProgramOutcome {
    run.steps = STEPS_MAX;
    match items(&program.items, value, 0, run) {
        ItemOutcome::Match => ProgramOutcome::Match,
        ItemOutcome::NotYet => ProgramOutcome::NotYet,
        ItemOutcome::Next | ItemOutcome::Stop => ProgramOutcome::NoMatch,
    }
}

/// Outcome of a program's remaining items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemOutcome {
    /// All remaining items hold.
    Match,
    /// An item fails from this cursor; another occurrence of an earlier item may help.
    Next,
    /// An item fails, and no other occurrence is worth trying.
    Stop,
    /// An item fails, but more data may change that.
    NotYet,
}

/// `isdataat` treats a variable of at least this value as invalid.
const DATA_AT_MAX: u64 = 100_000_000;

/// Runs the remaining items of a program from a cursor.
fn items(list: &[Item], value: &[u8], cursor: MatchCursor, run: &mut Evaluation<'_>) -> ItemOutcome {
    let Some((item, rest)) = list.split_first() else { return ItemOutcome::Match };
    run.steps = run.steps.saturating_sub(1);
    if run.steps == 0 {
        return ItemOutcome::Stop;
    }
    match item {
        Item::Literal(literal) => literal_item(literal, rest, value, cursor, run),
        Item::Regex(regex) => regex_item(regex, rest, value, cursor, run),
        Item::DataAt { at, relative, negated } => {
            match data_at(*at, *relative, *negated, value.len(), cursor, run) {
                None => items(rest, value, cursor, run),
                Some(step) => step,
            }
        }
        Item::Test(test) => {
            let holds = test.holds(value, cursor, run.variables, run.little_endian);
            if holds { items(rest, value, cursor, run) } else { ItemOutcome::Next }
        }
        Item::Jump(jump) => {
            let target = jump.target(value, cursor, run.variables, run.little_endian);
            from_cursor(target, rest, value, run)
        }
        Item::Extract(extract) => {
            let behind = extract.run(value, cursor, run.variables, run.little_endian);
            from_cursor(behind, rest, value, run)
        }
        Item::Math(math) => {
            let behind = math.run(value, cursor, run.variables, run.little_endian);
            from_cursor(behind, rest, value, run)
        }
        Item::Size { check, .. } => {
            if check.matches(value.len() as u64) {
                items(rest, value, cursor, run)
            } else if run.complete || matches!(check, UintMatch::Less(_) | UintMatch::LessEqual(_)) {
                ItemOutcome::Stop
            } else {
                ItemOutcome::NotYet
            }
        }
        Item::Base64 { bytes, offset, relative, inner } => {
            let base = if *relative { cursor } else { 0 };
            base64_item(base.saturating_add(*offset as usize), *bytes, inner, value, run)
        }
        Item::Custom(condition) => match custom(condition.as_ref(), value, run) {
            Answer::Yes => {
                let step = items(rest, value, cursor, run);
                if step == ItemOutcome::Match
                    && let Some((name, json)) = condition.context(value)
                {
                    run.captured.push((Capture::Context(name), json.to_vec()));
                }
                step
            }
            Answer::No => ItemOutcome::Stop,
            Answer::NotYet => ItemOutcome::NotYet,
        },
    }
}

/// Evaluates a condition on the whole value and keeps the number that it computed, whatever the answer.
fn custom(condition: &dyn BufferCondition, value: &[u8], run: &mut Evaluation<'_>) -> Answer {
    let Some(measure) = condition.measure(value) else {
        let scene = ConditionContext { state: run.state, ..*run.scene };
        return condition.matches(value, run.complete, &scene);
    };
    run.measured.push(measure);
    match (measure.holds, run.complete) {
        (true, false) if condition.needs_all() => Answer::NotYet,
        (true, _) => Answer::Yes,
        (false, true) => Answer::No,
        (false, false) => Answer::NotYet,
    }
}

fn from_cursor(
    cursor: Option<MatchCursor>,
    rest: &[Item],
    value: &[u8],
    run: &mut Evaluation<'_>,
) -> ItemOutcome {
    match cursor {
        Some(cursor) => items(rest, value, cursor, run),
        None => ItemOutcome::Next,
    }
}

/// Evaluates `isdataat`. `None`: it holds. A relative position may lie at the end of the buffer: byte 1
/// counted from the cursor is the byte at the cursor.
fn data_at(
    at: Number,
    relative: bool,
    negated: bool,
    length: usize,
    cursor: MatchCursor,
    run: &Evaluation<'_>,
) -> Option<ItemOutcome> {
    let (position, fixed) = match at {
        Number::Constant(n) => (u64::try_from(n).unwrap_or(0), true),
        Number::Variable(v) => (run.variables.get(usize::from(v)).copied().unwrap_or(0), false),
    };
    if !fixed && position >= DATA_AT_MAX {
        return if negated { None } else { Some(ItemOutcome::Next) };
    }
    let length = length as u64;
    let there = if relative { (cursor as u64).saturating_add(position) <= length } else { position < length };
    if there != negated {
        return None;
    }
    // Another occurrence does not change a fixed position, except that a later one may lie close enough to
    // the end.
    let hopeless = fixed && !(relative && negated);
    Some(if hopeless { ItemOutcome::Stop } else { ItemOutcome::Next })
}

fn literal_item(
    literal: &Literal,
    rest: &[Item],
    value: &[u8],
    cursor: MatchCursor,
    run: &mut Evaluation<'_>,
) -> ItemOutcome {
    let window = literal.window(cursor, value.len(), run.variables);
    if literal.negated {
        let found = window.is_some_and(|(start, end)| literal.forbidden_in(value, start, end));
        return match found {
            false => items(rest, value, cursor, run),
            true if literal.is_single() => ItemOutcome::Stop,
            true => ItemOutcome::Next,
        };
    }
    let Some((start, end)) = window else { return ItemOutcome::Next };
    let mut from = start;
    loop {
        let Some(at) = literal.find(value, from, end) else {
            return if literal.is_relative() { ItemOutcome::Next } else { ItemOutcome::Stop };
        };
        match items(rest, value, at.saturating_add(literal.bytes.len()), run) {
            ItemOutcome::Next if !literal.retried => return ItemOutcome::Stop,
            ItemOutcome::Next => {}
            ItemOutcome::Match => {
                if let (Some(bytes), Ok(at)) = (&literal.replace, u32::try_from(at)) {
                    run.captured.push((Capture::Replace(at), bytes.to_vec()));
                }
                return ItemOutcome::Match;
            }
            other => return other,
        }
        from = at.saturating_add(1);
        if from > end {
            return ItemOutcome::Next;
        }
    }
}

fn regex_item(
    item: &RegexItem,
    rest: &[Item],
    value: &[u8],
    cursor: MatchCursor,
    run: &mut Evaluation<'_>,
) -> ItemOutcome {
    // A relative expression does not see bytes before the cursor: `^` matches at the cursor.
    let base = if item.relative { cursor } else { 0 };
    let Some(seen) = value.get(base..) else { return ItemOutcome::Next };
    let mut from = 0;
    loop {
        let found = match item.regex.find_at(run.scratch, seen, from, MatchOptions::empty()) {
            Ok(found) => found,
            Err(_) => {
                // The result is neither a match nor, when negated, the absence of one.
                run.limit_hit = true;
                return ItemOutcome::Next;
            }
        };
        let Some((start, end)) = found.as_ref().map(|m| (m.start(), m.end())) else {
            return if item.negated { items(rest, value, cursor, run) } else { ItemOutcome::Next };
        };
        if item.negated {
            return ItemOutcome::Next;
        }
        for (group, target) in &item.captures {
            let range = found.as_ref().and_then(|m| m.group(*group));
            if let Some(bytes) = range.and_then(|(from, to)| seen.get(from..to)) {
                run.captured.push((target.clone(), bytes.to_vec()));
            }
        }
        match items(rest, value, base.saturating_add(end), run) {
            ItemOutcome::Next if item.anchors => {}
            other => return other,
        }
        from = start.saturating_add(1);
        if from > seen.len() {
            return ItemOutcome::Next;
        }
    }
}

/// Evaluates `base64_decode`, which ends the program: the conditions on the decoded bytes decide.
fn base64_item(
    from: usize,
    limit: u32,
    inner: &Program,
    value: &[u8],
    run: &mut Evaluation<'_>,
) -> ItemOutcome {
    let Some(mut encoded) = value.get(from..) else { return ItemOutcome::Next };
    if limit != 0 {
        encoded = encoded.get(..limit as usize).unwrap_or(encoded);
    }
    let mut decoded = core::mem::take(run.decoded);
    decoded.clear();
    bartizan_applayer::content::base64::decode(
        encoded,
        bartizan_applayer::content::base64::Base64Mode::Rfc4648,
        &mut decoded,
    );
    let holds = !decoded.is_empty()
        && !inner.is_empty()
        && items(&inner.items, &decoded, 0, run) == ItemOutcome::Match;
    *run.decoded = decoded;
    if holds { ItemOutcome::Match } else { ItemOutcome::Next }
}
